"""Instructions as rows of weight matrices: what every lowering needs.

A row maps entries of the residual stream to weights; a head is made of rows of W_Q and W_K, and of what it writes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from innergrad.functions.dictionaries import Approximant, FeatureSum
from innergrad.program import Attend, Expr, Program, Score
from innergrad.stream import Stream
from innergrad.targets.sparse import BYTES_PER_ENTRY, SparseStack, require_memory

Row = dict[int, float]  # a row of a weight matrix: entry of the stream -> weight
Index = Mapping[str, int]
Shape = tuple[int, int, int]


@dataclass
class Head:
    """Rows of Q and K, and what the head writes: (destination entry, row of V)."""

    query: list[Row]
    key: list[Row]
    writes: dict[int, Row] = field(default_factory=dict)


def merge(heads: Iterable[Head]) -> list[Head]:
    """Heads with the same queries and keys are one head that writes several entries."""
    merged: dict[object, Head] = {}
    for head in heads:
        kept = merged.setdefault((row_key(head.query), row_key(head.key)), head)
        if kept is not head:
            for entry, row in head.writes.items():
                add(kept.writes.setdefault(entry, {}), row)
    return [head for head in merged.values() if head.writes]


def add(target: Row, row: Row, factor: float = 1.0) -> None:
    for entry, weight in row.items():
        target[entry] = target.get(entry, 0.0) + factor * weight


def scaled(row: Row, factor: float) -> Row:
    return {entry: factor * weight for entry, weight in row.items()}


def row_key(rows: list[Row]) -> tuple[tuple[tuple[int, float], ...], ...]:
    return tuple(tuple(sorted(row.items())) for row in rows)


def row_of(stream: Stream, expression: Expr, index: Index) -> Row:
    """A linear combination of lane views, at one value of its labels."""
    row: Row = {}
    for view in expression:
        entry = stream.entry(view.lane, tuple(i if isinstance(i, int) else index[i] for i in view.index))
        row[entry] = row.get(entry, 0.0) + view.coefficient
    return row


def points(sizes: Mapping[str, int], labels: Iterable[str]) -> Iterator[dict[str, int]]:
    """Every assignment of the labels."""
    labels = list(labels)
    for point in itertools.product(*(range(sizes[label]) for label in labels)):
        yield dict(zip(labels, point, strict=True))


def family(program: Program, instruction: Attend) -> Iterator[dict[str, int]]:
    """Every assignment of the destination's labels that the scores depend on: heads of their own for each."""
    used = {
        label
        for score in instruction.scores
        for query, key in score.pairs
        for view in (*query, *key)
        for label in view.labels
    }
    yield from points(program.label_sizes(instruction), (label for label in instruction.dst.labels if label in used))


def score_rows(program: Program, instruction: Attend, score: Score, index: Index) -> list[tuple[Row, Row]]:
    """The terms of the inner product, query row and key row: every pair at every value of its contracted labels."""
    sizes, rows = program.label_sizes(instruction), []
    for query, key in score.pairs:
        labels = sorted({label for view in (*query, *key) for label in view.labels} - set(index))
        for point in points(sizes, labels):
            at = {**index, **point}
            rows.append((row_of(program.stream, query, at), row_of(program.stream, key, at)))
    return rows


def destinations(program: Program, instruction: Attend, index: Index) -> Iterator[tuple[int, Row]]:
    """For every value of the destination's remaining labels: its entry, and the row of the value, unscaled."""
    labels = [label for label in instruction.dst.labels if label not in index]
    for point in points(program.label_sizes(instruction), labels):
        at = {**index, **point}
        place = tuple(i if isinstance(i, int) else at[i] for i in instruction.dst.index)
        yield program.stream.entry(instruction.dst.lane, place), row_of(program.stream, instruction.value, at)


def writes(program: Program, instruction: Attend, index: Index, coefficient: float) -> dict[int, Row]:
    """What one head adds: destination entry -> row of V."""
    if instruction.scale == 0.0:
        return {}
    factor = coefficient * instruction.scale
    return {entry: scaled(row, factor) for entry, row in destinations(program, instruction, index)}


def linear_form(pairs: list[tuple[Row, Row]], one: int) -> Row:
    """sum of query * key, where one side of each pair is a multiple of the constant lane."""
    form: Row = {}
    for query, key in pairs:
        linear, constant = (query, key) if set(key) == {one} else (key, query)
        add(form, linear, constant[one])
    return form


def require_room(program: Program, heads: int, approximants: Mapping[str, Approximant] | None = None) -> None:
    """Refuse, before anything is built, what would take too much memory to put together.

    heads: rows that one term of an instruction takes, unless its function is approximated by more pieces.
    """
    pieces = {name: len(f.a) if isinstance(f, FeatureSum) else f.pieces for name, f in (approximants or {}).items()}

    def rows(i: Attend) -> int:
        most = max([heads, *(pieces.get(score.f.name, 0) for score in i.scores)])
        return most * math.prod(program.label_sizes(i).values())

    terms = {(layer.kind, layer.instructions): sum(map(rows, layer.instructions)) for layer in program.layers}
    what, hint = "building the weights", "use fewer inputs, or smaller networks"
    require_memory(BYTES_PER_ENTRY * 4 * sum(terms.values()), what, hint)


def stack(shape: Shape, entries: Iterable[tuple[int, int, int, float]]) -> SparseStack:
    table = np.array([entry for entry in entries if entry[3] != 0.0], dtype=np.float64).reshape(-1, 4)
    table = table[np.lexsort(table[:, 2::-1].T)]  # the order in which a dense matrix is read
    return SparseStack(
        shape, torch.from_numpy(table[:, :3].T.astype(np.int64).copy()), torch.from_numpy(table[:, 3].copy())
    )


def entries(matrices: list[list[Row]]) -> Iterator[tuple[int, int, int, float]]:
    """(matrix, row, column, weight) of every entry."""
    for m, rows in enumerate(matrices):
        for r, row in enumerate(rows):
            for column, weight in row.items():
                yield m, r, column, weight


def head_stacks(heads: list[Head], d_model: int) -> tuple[SparseStack, SparseStack, SparseStack, SparseStack]:
    """W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v)."""
    d_head = max((len(head.query) for head in heads), default=1)
    d_v = max((len(head.writes) for head in heads), default=1)
    return (
        stack((len(heads), d_head, d_model), entries([head.query for head in heads])),
        stack((len(heads), d_head, d_model), entries([head.key for head in heads])),
        stack((len(heads), d_v, d_model), entries([list(head.writes.values()) for head in heads])),
        stack(
            (len(heads), d_model, d_v),
            ((m, entry, r, 1.0) for m, head in enumerate(heads) for r, entry in enumerate(head.writes)),
        ),
    )
