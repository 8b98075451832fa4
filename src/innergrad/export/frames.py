"""How a residual stream lies in a model's width, and how the model's norm becomes the identity.

RMSNorm: the stream as it is. Its pads do it (:mod:`innergrad.targets.parts.rms_norm`).

LayerNorm: it subtracts the mean, too, so there are as many pads P as -P, m of each, in place of the stream's, and one
entry that is always zero:

    LN(h) = gain (h - mean(h)) / sqrt(var(h) + eps)      gain = P / sqrt(c),  width = 2 c m,  c = 16, 64 or 256

The variance is P^2 / c up to |h|^2 / (2 m P^2), relatively, which is less than rounding. The entry that is zero shows
the subtracted mean, -mean(h), rounding of the pads included. Every row that reads subtracts that entry times the sum of
its weights. Hidden states are behind the last norm: reading them, one subtracts that entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innergrad.export.families import Family
from innergrad.targets.parts.rms_norm import SQUARES
from innergrad.transformer import CompiledTransformer

OWN = ("spare", "pad")  # lanes that RMSNorm put behind the others


@dataclass(frozen=True)
class Frame:
    """The first ``entries`` of the stream, zeros, and pads: ``width`` entries. gain: of the norm. zero: the entry that
    shows how much the norm subtracted, or None.
    """

    entries: int
    width: int
    gain: float
    pads: tuple[float, ...] = ()
    zero: int | None = None

    def reads(self, rows: Tensor) -> Tensor:
        """Rows (..., D) that read the stream, as rows (..., width) that read through the norm."""
        full = self._wide(rows)
        if self.zero is not None:
            full[..., self.zero] = -rows[..., : self.entries].sum(-1)
        return full

    def writes(self, columns: Tensor) -> Tensor:
        """Columns (D, ...) that write the stream, as columns (width, ...)."""
        return self._wide(columns.movedim(0, -1)).movedim(-1, 0)

    def inputs(self, stream: Tensor) -> Tensor:
        """``inputs_embeds`` (batch, tokens, width)."""
        full = self._wide(stream)
        full[..., self.width - len(self.pads) :] = full.new_tensor(self.pads)
        return full

    def stream(self, hidden: Tensor, d_model: int) -> Tensor:
        """The stream (batch, tokens, D) of hidden states; entries that are only RMSNorm's are zero."""
        if self.zero is None:
            return hidden
        held = hidden[..., : self.entries] - hidden[..., self.zero, None]
        return torch.nn.functional.pad(held, (0, d_model - self.entries))

    def explained(self, note: dict[str, Any]) -> dict[str, Any]:
        """The note about the stream, for this width."""
        if self.zero is None:
            return note
        held = {**note, "layout": [lane for lane in note["layout"] if lane["name"] not in OWN]}
        first, half = self.width - len(self.pads), len(self.pads) // 2
        pads = {"zero": (self.zero, 1, 0.0), "pad_up": (first, half, self.pads[0])}
        pads |= {"pad_down": (first + half, half, self.pads[-1])}
        for name, (offset, size, value) in pads.items():
            lane = {"name": name, "shape": [size], "offset": offset, "holds": f"{value:.17g} on every token"}
            held["layout"].append(lane)
        held["read"] = {**note["read"], "zero": self.zero}
        if note["example"] is not None:
            kept = [entry for entry in note["example"]["entries"] if entry[1] < self.entries]
            own = [[t, first + i, p] for t in range(note["example"]["tokens"]) for i, p in enumerate(self.pads)]
            held["example"] = {**note["example"], "entries": [*kept, *own]}
        return held

    def _wide(self, values: Tensor) -> Tensor:
        full = values.new_zeros(*values.shape[:-1], self.width)
        full[..., : self.entries] = values[..., : self.entries]
        return full


def kept_entries(tf: CompiledTransformer) -> int:
    """Of the stream: all but RMSNorm's own, which are the last."""
    return sum(lane.size for lane in tf.program.stream.lanes if lane.name not in OWN)


def least_width(tf: CompiledTransformer, family: Family, heads: int, share: int, size: int) -> int | None:
    """The least width for so many heads of a size, which come in groups of ``share``; None if there is none.

    RMSNorm: the stream's own, which some number of heads, so many or more, divides. LayerNorm: any width that fits.
    """
    if not family.layer_norm:
        return tf.d_model if any(tf.d_model % n == 0 for n in range(heads, tf.d_model + 1, share)) else None
    multiple, entries = math.lcm(share * size, 2 * SQUARES[0]), kept_entries(tf) + 1
    least = max(heads * size, entries)
    return next(
        w for w in range(math.ceil(least / multiple) * multiple, 4 * (least + multiple), multiple) if _pads(w, entries)
    )


def _pads(width: int, entries: int) -> int:
    """m: of each of the pads P and -P; 0 if so many entries do not fit."""
    return next(
        (width // (2 * c) for c in reversed(SQUARES) if width % (2 * c) == 0 and width - width // c >= entries), 0
    )


def frame(tf: CompiledTransformer, family: Family, width: int, dtype: torch.dtype) -> Frame:
    """Of a width that is the stream's or was found by ``least_width``."""
    pad = family.pad(dtype)
    if not family.layer_norm:
        return Frame(width, width, pad / math.sqrt(width / tf.program.stream["pad"].size))
    entries = kept_entries(tf)
    m = _pads(width, entries + 1)
    return Frame(entries, width, pad / math.sqrt(width / (2 * m)), (pad,) * m + (-pad,) * m, entries)
