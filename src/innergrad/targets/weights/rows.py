"""Instructions as rows of weight matrices: what every lowering needs.

A row maps entries of the residual stream to weights; a head is made of rows of W_Q and W_K, and of what it writes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from innergrad.functions.fits.sums import Approximant, FeatureSum
from innergrad.ir.program import Attend, Expr, Program, Score, labels_of
from innergrad.ir.stream import Stream
from innergrad.targets.weights.sparse import BYTES_PER_ENTRY, SparseStack, require_memory, stack

Row = dict[int, float]  # a row of a weight matrix: entry of the stream -> weight
Pairs = list[tuple[Row, Row]]  # rows of Q and K
Index = Mapping[str, int]


@dataclass
class Head:
    """Rows of Q and K, and what the head writes: (destination entry, row of V)."""

    pairs: Pairs
    writes: dict[int, Row] = field(default_factory=dict)

    @property
    def key(self) -> object:
        """What heads that can be one have in common."""
        return tuple((tuple(sorted(q.items())), tuple(sorted(k.items()))) for q, k in self.pairs)


def merge(heads: Iterable[Head]) -> list[Head]:
    """Heads with the same queries and keys are one head that writes several entries."""
    merged: dict[object, Head] = {}
    for head in heads:
        kept = merged.setdefault(head.key, head)
        if kept is not head:
            for entry, row in head.writes.items():
                add(kept.writes.setdefault(entry, {}), row)
    return [head for head in merged.values() if head.writes]


def add(target: Row, row: Row, factor: float = 1.0) -> None:
    for entry, weight in row.items():
        target[entry] = target.get(entry, 0.0) + factor * weight


def scaled(row: Row, factor: float) -> Row:
    return {entry: factor * weight for entry, weight in row.items()}


def row_of(stream: Stream, expression: Expr, index: Index) -> Row:
    """A linear combination of lane views, at one value of its labels."""
    row: Row = {}
    for view in expression:
        place = tuple(i if isinstance(i, int) else index[i] for i in view.index)
        add(row, {stream.entry(view.lane, place): view.coefficient})
    return row


def points(program: Program, instruction: Attend, labels: Iterable[str], index: Index) -> Iterator[dict[str, int]]:
    """Every assignment of the labels, beside those of the index."""
    sizes, labels = program.label_sizes(instruction), list(labels)
    for point in itertools.product(*(range(sizes[label]) for label in labels)):
        yield {**index, **dict(zip(labels, point, strict=True))}


def family(program: Program, instruction: Attend) -> Iterator[dict[str, int]]:
    """Every assignment of the destination's labels that the scores depend on: heads of their own for each."""
    used = {x for score in instruction.scores for pair in score.pairs for side in pair for x in labels_of(side)}
    yield from points(program, instruction, (label for label in instruction.dst.labels if label in used), {})


def score_rows(program: Program, instruction: Attend, score: Score, index: Index) -> Pairs:
    """The terms of the inner product, query row and key row: every pair at every value of its contracted labels."""
    return [
        (row_of(program.stream, query, at), row_of(program.stream, key, at))
        for query, key in score.pairs
        for at in points(program, instruction, sorted((labels_of(query) | labels_of(key)) - set(index)), index)
    ]


def destinations(program: Program, instruction: Attend, index: Index) -> Iterator[tuple[int, Row]]:
    """For every value of the destination's remaining labels: its entry, and the row of the value, unscaled."""
    for at in points(program, instruction, (x for x in instruction.dst.labels if x not in index), index):
        place = tuple(i if isinstance(i, int) else at[i] for i in instruction.dst.index)
        yield program.stream.entry(instruction.dst.lane, place), row_of(program.stream, instruction.value, at)


def writes(program: Program, instruction: Attend, index: Index, coefficient: float) -> dict[int, Row]:
    """What one head adds: destination entry -> row of V."""
    factor = coefficient * instruction.scale
    found = destinations(program, instruction, index) if instruction.scale else ()
    return {entry: scaled(row, factor) for entry, row in found}


def linear_form(pairs: Pairs, one: int) -> Row:
    """sum of query * key, where one side of each pair is a multiple of the constant lane."""
    form: Row = {}
    for query, key in pairs:
        linear, constant = (query, key) if set(key) == {one} else (key, query)
        add(form, linear, constant[one])
    return form


def require_room(program: Program, heads: int, approximants: Mapping[str, Approximant]) -> None:
    """Refuse, before anything is built, what would take too much memory to put together.

    heads: rows that one term of an instruction takes, unless its function is approximated by more pieces.
    """
    pieces = {name: len(f.a) if isinstance(f, FeatureSum) else f.pieces for name, f in approximants.items()}

    def rows(i: Attend) -> int:
        most = max([heads, *(pieces.get(score.f.name, 0) for score in i.scores)])
        return most * math.prod(program.label_sizes(i).values())

    terms = {(layer.kind, layer.instructions): sum(map(rows, layer.instructions)) for layer in program.layers}
    what, hint = "building the weights", "use fewer inputs, or smaller networks"
    require_memory(BYTES_PER_ENTRY * 4 * sum(terms.values()), what, hint)


def tall(heads: list[list[Row]], d_model: int) -> SparseStack:
    """A matrix for each head from its rows, (heads, the most rows, D)."""
    rows = ((m, r, c, w) for m, head in enumerate(heads) for r, row in enumerate(head) for c, w in row.items())
    return stack((len(heads), max([1, *map(len, heads)]), d_model), rows)


def attention_stacks(scores: list[Pairs], heads: list[list[tuple[Row, Row]]], d_model: int) -> list[SparseStack]:
    """W_Q, W_K (scores, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    heads: for each a list of (row of W_V, what is done with it: entry -> weight).
    """
    W_V = tall([[row for row, _ in head] for head in heads], d_model)
    out = (
        (m, e, r, w) for m, head in enumerate(heads) for r, (_, column) in enumerate(head) for e, w in column.items()
    )
    return [
        tall([[query for query, _ in pairs] for pairs in scores], d_model),
        tall([[key for _, key in pairs] for pairs in scores], d_model),
        W_V,
        stack((len(heads), d_model, W_V.shape[1]), out),
    ]
