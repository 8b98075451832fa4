"""The cost of sublayers made of heads of scores, counted without building the weights: large networks would be slow.

The heads of an instruction differ only in which entries they read and write, so one index stands for all: its heads
are built and counted as often as the instruction has indices. Where an instruction names single entries, as in x[0],
different indices can coincide, and so can the constant hinges of self-selecting heads, which read no more than
positions; such layers are small and are built in full. The tests compare with the built module.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from innergrad.ir.program import Attend, Layer, Program, labels_of
from innergrad.targets.parts.base import Context
from innergrad.targets.weights.looped import Count
from innergrad.targets.weights.rows import Head, Pairs, Row, add, family


class Heads(Protocol):
    """A part whose layers are heads of scores, or units."""

    kind: str

    def merged(self, layer: Layer, context: Context) -> list[Head]: ...
    def heads(self, instruction: Attend, context: Context, representative: bool = False) -> Iterable[Head]: ...
    def selects(self, program: Program, instruction: Attend) -> list[str]: ...


@dataclass
class _Group:
    """Heads with the same queries and keys up to the index: how many there are, and what they write.

    repeats: destination entry -> how many entries it stands for in one head; equal: how many of those read the same.
    """

    copies: int
    pairs: Pairs
    writes: dict[int, Row] = field(default_factory=dict)
    repeats: dict[int, int] = field(default_factory=dict)
    equal: dict[int, int] = field(default_factory=dict)


def count(part: Heads, layer: Layer, context: Context) -> Count:
    groups, D = _groups(part, layer, context), context.program.stream.d_model
    heads = sum(group.copies for group in groups)
    if part.kind == "mlp":
        nonzeros = sum(g.copies * (len(g.pairs[0][0]) + sum(g.repeats.values())) for g in groups)
        return Count({"W_1": (1, heads, D), "W_2": (1, D, heads)}, nonzeros, _mlp_norm(context.one, groups))
    d_head = max((len(group.pairs) for group in groups), default=1)
    d_v = max((sum(group.repeats.values()) for group in groups), default=1)
    shapes = {"W_Q": (heads, d_head, D), "W_K": (heads, d_head, D), "W_V": (heads, d_v, D), "W_O": (heads, D, d_v)}
    nonzeros = sum(
        g.copies
        * (sum(len(q) + len(k) for q, k in g.pairs) + sum(g.repeats[e] * (len(row) + 1) for e, row in g.writes.items()))
        for g in groups
    )
    sides = ([pair[side] for pair in group.pairs] for group in groups for side in (0, 1))
    scores = max(map(_column_norm, sides), default=0.0)
    return Count(shapes, nonzeros, scores + sum(g.copies * _value_norm(g) for g in groups))


def _groups(part: Heads, layer: Layer, context: Context) -> list[_Group]:
    if any(_coincide(part, instruction, context) for instruction in layer.instructions):
        heads = part.merged(layer, context)
        return [_Group(1, head.pairs, head.writes, dict.fromkeys(head.writes, 1)) for head in heads]
    constant = Head([({context.one: 1.0}, {context.one: 1.0})]).key
    groups: dict[object, _Group] = {}
    for instruction in layer.instructions:
        indices = sum(1 for _ in family(context.program, instruction)) if instruction.scores else 1
        scored = {x for score in instruction.scores for pair in score.pairs for side in pair for x in labels_of(side)}
        apart = bool(scored & labels_of(instruction.value))
        for head in part.heads(instruction, context, representative=True):
            times = indices if head.key == constant else 1
            group = groups.setdefault(head.key, _Group(indices // times, head.pairs))
            for entry, row in head.writes.items():
                add(group.writes.setdefault(entry, {}), row)
                group.repeats[entry] = times
                group.equal[entry] = 1 if apart else times
    return [group for group in groups.values() if group.writes]


def _coincide(part: Heads, instruction: Attend, context: Context) -> bool:
    """Heads of different indices may be the same."""
    if any(isinstance(i, int) for view in instruction.views() for i in view.index):
        return True
    hinges = [context.approximants[score.f.name].hinges for score in instruction.scores]
    return any((h[:, 0] == 0.0).any() for h in hinges) and bool(part.selects(context.program, instruction))


def _column_norm(rows: list[Row]) -> float:
    sums: Row = {}
    for row in rows:
        add(sums, {entry: abs(weight) for entry, weight in row.items()})
    return max(sums.values(), default=0.0)


def _value_norm(group: _Group) -> float:
    return _column_norm([{c: group.equal.get(e, 1) * w for c, w in row.items()} for e, row in group.writes.items()])


def _mlp_norm(one: int, groups: list[_Group]) -> float:
    """||W_1||_1 + ||W_2||_1: the constant lane is read by every unit, any other entry by the units of one index."""
    reads: Row = {}
    for group in groups:
        row = group.pairs[0][0]
        add(reads, {entry: abs(weight) * (group.copies if entry == one else 1) for entry, weight in row.items()})
    writes = (sum(abs(row[one]) * group.repeats[e] for e, row in group.writes.items()) for group in groups)
    return max(reads.values()) + max(writes)
