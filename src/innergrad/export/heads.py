"""The heads of a model: sizes, and which share their keys and values.

All heads of a model have the same size, a power of four: scores are divided by its root, a power of two, by which W_Q
is multiplied. A head that writes more numbers than that becomes several with the same queries and keys.

Grouped queries. ``share`` query heads have one key and value head in common. Heads of one layer can where their keys
and values are the same: those of all neurons of a layer are, for they look at the same markers. The heads that an
average over many numbers was cut into cannot, for their values differ. A group that is not full has zeros.

The size and ``share`` are those of the fewest parameters, or of so many key and value heads as asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from innergrad.errors import InputError
from innergrad.export.families import Family
from innergrad.export.folder import Sizes
from innergrad.export.frames import least_width
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.weights.modules import SparseStack
from innergrad.transformer import CompiledTransformer

HEAD_SIZES = (4, 16, 64, 256, 1024)
Piece = tuple[int, int]  # a head of a layer, and the first of its values


@dataclass(frozen=True)
class LlamaExport(Sizes):
    """Sizes of the model that a transformer of target ``llama`` becomes. ``llama_sizes`` gives them.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import LlamaExport
        >>> LlamaExport(n_layer=5, n_head=1, n_kv=1, d_head=64, n_inner=64, d_model=64).n_parameters
        144128
    """

    n_layer: int
    n_head: int
    n_kv: int
    d_head: int
    n_inner: int
    d_model: int

    @property
    def heads(self) -> str:
        return f"{super().heads}, {self.n_kv} of keys and values"

    @property
    def width(self) -> int:
        return self.d_model

    @property
    def share(self) -> int:
        """Query heads to a head of keys and values."""
        return self.n_head // self.n_kv

    @property
    def n_parameters(self) -> int:
        D = self.d_model
        attention = 2 * D * (self.n_head + self.n_kv) * self.d_head
        return self.n_layer * (attention + 3 * D * self.n_inner + 2 * D) + 2 * D


def groups(layer: SoftmaxAttention, size: int, share: int) -> list[list[Piece]]:
    """The heads of so many values that those of a layer become, at most ``share`` to a group with the same keys and
    values.
    """
    return [found[i : i + share] for found in _alike(layer, size) for i in range(0, len(found), share)]


def _alike(layer: SoftmaxAttention, size: int) -> list[list[Piece]]:
    """The same heads, all with the same keys and values together."""
    keys, values = _entries(layer.W_K), _entries(layer.W_V)
    alike: dict[object, list[Piece]] = {}
    for head, used in enumerate(layer.W_V.used(1).tolist()):
        read: dict[int, list[object]] = defaultdict(list)  # by the piece, which entries its rows read
        for row, entry, weight in values[head]:
            read[row // size].append((row % size, entry, weight))
        for piece in range(max(1, -(-used // size))):
            alike.setdefault((*keys[head], "values", *read[piece]), []).append((head, piece * size))
    return list(alike.values())


def _entries(stack: SparseStack) -> list[list[tuple[int, int, float]]]:
    """Of every matrix, (row, column, weight)."""
    found: list[list[tuple[int, int, float]]] = [[] for _ in range(stack.shape[0])]
    for matrix, row, column, weight in zip(*stack.index.tolist(), stack.value.tolist(), strict=True):
        found[matrix].append((row, column, weight))
    return found


def sizes(
    tf: CompiledTransformer,
    family: Family,
    attentions: Iterable[SoftmaxAttention],
    n_layer: int,
    n_inner: int,
    kv_heads: int | None,
) -> LlamaExport:
    """See the module docstring. attentions: the layers that differ."""
    layers = list(attentions)
    rows = max((layer.W_Q.shape[1] for layer in layers), default=1) + int(family.pinned)
    most = max((layer.n_heads for layer in layers), default=1)
    found = []
    for size in (size for size in HEAD_SIZES if size >= rows):
        counts = [[len(heads) for heads in _alike(layer, size)] for layer in layers]
        for share in range(1, 2 * most + 1):  # some of them divide the width
            needed = max((sum(-(-n // share) for n in alike) for alike in counts), default=1)
            if kv_heads is not None and needed > kv_heads:
                continue
            made = _fitting(tf, family, max(1, needed, kv_heads or 0), share, size, kv_heads)
            found += [] if made is None else [LlamaExport(n_layer, *made[:2], size, n_inner, made[2])]
    if not found:
        got = f"{rows} rows of queries" if kv_heads is None else f"kv_heads={kv_heads}"
        hint = "" if kv_heads is None else "an average of many numbers takes several; leave kv_heads out"
        raise InputError("no heads fit", got=got, allowed=f"of up to {HEAD_SIZES[-1]} rows and values", hint=hint)
    return min(found, key=lambda made: (made.n_parameters, made.n_kv))


def _fitting(
    tf: CompiledTransformer, family: Family, groups: int, share: int, size: int, kv_heads: int | None
) -> tuple[int, int, int] | None:
    """Heads, those of keys and values, and width, for so many groups or more; as many as asked for, if it is."""
    width = least_width(tf, family, groups * share, share, size)
    if width is None:
        return None
    counts = [width // size] if family.square else range(groups * share, width + 1, share)
    n_head = next((n for n in counts if width % n == 0 and n % share == 0), None)
    if n_head is None or (kv_heads is not None and n_head != kv_heads * share):
        return None
    return n_head, n_head // share, width
