"""LayerNorm as the identity, and as a division.

Two pads +-N, N = 2^24, dwarf all other entries of the stream. So LN divides by N sqrt(2 / D) for every token, and the
gain multiplies it back. An entry that is always zero shows the amount that LN subtracted, and every row that reads
subtracts it again. LN then is the identity up to |h|^2 / (4 N^2), relatively (1e-13), in float64 and in float32.
Nothing has to keep sums at zero. (The pads of Akyürek et al.'s Lemma 6, [N, -N - sum x], err by x sum x / (2N).)

Division (div). An attention layer multiplies a token's pads by c; LN then divides everything the MLP reads by c.
Variant ``raw`` has no LN before attention, so the next attention layer sets the pads back. In variant ``pre-ln`` LN
would not let it see c. There the same MLP adds N (1 - c), with c from a fit of 1 / t at t = 1 / c. Each MLP then
repairs the rest of the error by adding N (one - 1), with one as LN shows it. That is Newton's iteration for 1 / one =
1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from innergrad.functions.fits.gelu import reciprocal_sum
from innergrad.functions.fits.sigmas import COARSE
from innergrad.functions.scalar import RECIPROCAL
from innergrad.ir.program import Attend, Layer, Options, Program, View
from innergrad.ir.stream import Lane, Role, Stream
from innergrad.targets.parts.base import Abilities, Context, Norm, Reason, linear, need
from innergrad.targets.weights.modules import Sublayer
from innergrad.targets.weights.rows import Row, Units, destinations

LN_EPS = 1e-5  # GPT-2's
PAD = 2.0**24
PADS = {"pad_up": 1.0, "pad_down": -1.0}
FINEST = 1e-11  # relative error of a reciprocal


class LayerNorm(Norm):
    """See the module docstring. All gains are equal, and there is no bias."""

    name = "layer"
    can: ClassVar[Abilities] = {"division": "by LayerNorm, its pads set back {how}"}

    def apply(self, h: Tensor, gain: float) -> Tensor:
        return layer_norm(h, h.shape[-1:], torch.full_like(h[0, 0], gain), None, LN_EPS)

    def gain(self, kind: str, context: Context) -> float | None:
        raw = kind == "attention" and context.options.variant == "raw"
        return None if raw else PAD * math.sqrt(2.0 / context.program.stream.d_model)

    def read(self, row: Row, gain: float | None, context: Context) -> Row:
        if not row or gain is None:
            return row
        zero = context.entry("zero")
        return {**row, zero: row.get(zero, 0.0) - sum(row.values())}

    # ------------------------------------------------------------------------------------------------------- division

    def prepare(self, program: Program, options: Options) -> Program:
        """Pads and the entry that is zero; pads scaled before each division and set back after it."""
        made, carry = list[list[Layer]](), False  # carry: pads are still scaled
        segments = [*((loop.layers, loop.count > 1) for loop in program.body), (program.readout, True)]
        for layers, closed in segments:
            made.append([])
            for layer in layers:
                c = self.divisor(layer)
                if carry and layer.kind == "attention":
                    layer = replace(layer, instructions=(*layer.instructions, *_set_back()))
                elif carry:
                    made[-1].append(Layer("attention", f"{layer.name}: restore", _set_back()))
                carry = c is not None and options.variant == "raw"
                if c is not None:
                    made[-1].append(Layer("attention", f"{layer.name}: scale", _pads(f"{c} - one")))
                    more = () if carry else _pads(f"one - {c}")
                    layer = replace(layer, instructions=(*layer.instructions, *more))
                made[-1].append(layer)
            if carry and closed:
                made[-1].append(Layer("attention", "restore", _set_back()))
                carry = False
        divides = any(self.divisor(layer) for layer in program.layers)
        role: Role = "state" if divides else "input"
        pads = (Lane(pad, (), role, not divides, fill=sign * PAD) for pad, sign in PADS.items())
        stream, *parts = Stream((*program.stream.lanes, Lane("zero"), *pads)), *map(tuple, made)
        body = tuple(replace(loop, layers=part) for loop, part in zip(program.body, parts, strict=False))
        return replace(program, stream=stream, body=body, readout=parts[-1])

    def divisors(self, layer: Layer) -> tuple[set[View], Reason | None]:
        """The divisors of a layer, and their faults."""
        scores = [s for instruction in layer.instructions for s in instruction.scores if s.f == RECIPROCAL]
        found = {v for score in scores for pair in score.pairs for side in pair for v in side if v.lane != "one"}
        reason = Reason(
            "a layer divides by one scalar lane, a token's own",
            ", ".join(sorted(view.lane for view in found)),
            hint="copy the divisor into a lane of shape () in the layer before",
        )
        wrong = len(found) > 1 or any(view.index or view.coefficient != 1.0 for view in found)
        return found, reason if wrong else None

    def divisor(self, layer: Layer) -> str | None:
        """The lane that a layer divides by."""
        found, wrong = self.divisors(layer)
        if wrong is not None:
            raise wrong.error(f"layer {layer.name}")
        return next((view.lane for view in found), None)

    def why_not(self, layer: Layer, instruction: Attend) -> Reason | None:
        divides, scores = need(instruction) == "division", instruction.scores
        pairs = [pair for score in scores for pair in score.pairs if linear(score)]
        if divides and (len(scores) > 1 or len(pairs) != 1 or sum(map(len, pairs[0])) != 2):
            return Reason("an mlp divides a linear form by one lane", hint="write Score(RECIPROCAL, (lane, one))")
        found, wrong = self.divisors(layer)
        if divides and wrong is not None:
            return wrong
        if found and not divides and instruction.dst.lane not in PADS:
            what = "everything a layer that divides reads is divided"
            return Reason(what, hint="put other instructions into another layer")
        return None

    def write(self, layer: Layer, units: Units, context: Context) -> None:
        divisor = self.divisor(layer)
        if divisor is None:
            super().write(layer, units, context)
            if context.options.variant == "pre-ln" and context.program.stream["pad_up"].role == "state":
                self._repair(units, context)
        for instruction in layer.instructions if divisor is not None else ():
            if instruction.dst.lane in PADS:
                self._restore(instruction, units, context, divisor or "")
            else:  # dst += scale value / c: LN divides by c, the pads being +-N c
                for entry, value in destinations(context.program, instruction, {}):
                    units.add(entry, value, instruction.scale)

    def _restore(self, instruction: Attend, units: Units, context: Context, divisor: str) -> None:
        """pads += +-N (1 - c), c from a fit of 1 / t at t = one / c."""
        c, entry = context.entry(divisor), context.entry(instruction.dst.lane)
        largest, least = float(context.bound[c]), context.program.stream[divisor].least
        accuracy = min(context.options.epsilon, COARSE / 4)  # pads are exact up to a layer's rounding, 1e-7 at most
        fit = reciprocal_sum(least / largest, max(accuracy / largest, FINEST))  # relative to c
        units.function(fit, {context.one: least}, c, entry, -instruction.scale * least)  # 1 / t = least / (least t)
        units.add(entry, {c: 1.0}, instruction.scale)

    def _repair(self, units: Units, context: Context) -> None:
        """pads += +-N (one - 1): LN shows the lane one as 1 / (1 + e) for pads N (1 + e)."""
        for pad, sign in PADS.items():
            for side in (1.0, -1.0):
                units.unit({context.one: side}, -side, context.entry(pad), side * sign * PAD)

    def inspect(
        self, program: Program, built: list[Sublayer], h: Tensor, options: Options
    ) -> Iterator[tuple[float, float, str]]:
        """Pre-LN blocks that divide: every other mlp repairs pads that are off by 1e-4 to within 1e-7."""
        if options.variant != "pre-ln" or program.stream["pad_up"].role != "state":
            return
        off, entries = h.clone(), {pad: program.stream.entry(pad) for pad in PADS}
        off[..., list(entries.values())] *= 1.0 + 1e-4
        for pad, entry in entries.items():
            for layer, module in zip(program.layers, built, strict=True):
                if layer.kind == "mlp" and self.divisor(layer) is None:
                    error = float((module(off)[..., entry] / (PADS[pad] * PAD) - 1).abs().max())
                    yield error, 1e-7, f"layer {layer.name}, lane {pad}"


def _pads(change: str) -> tuple[Attend, ...]:
    """pads += +-N change."""
    return tuple(Attend(pad, value=change, scale=sign * PAD) for pad, sign in PADS.items())


def _set_back() -> tuple[Attend, ...]:
    """pads = +-N."""
    return tuple(Attend(p, value=(View("one", (), sign * PAD), View(p, (), -1.0))) for p, sign in PADS.items())
