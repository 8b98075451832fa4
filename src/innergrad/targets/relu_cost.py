"""The cost of a program on target ``relu``, counted without building the weights.

The heads of an instruction differ only in which entries they read and write, so one index stands for all: its heads
are built and counted as often as the instruction has indices. Where an instruction names single entries, as in x[0],
different indices can coincide, and so can the constant hinges of self-selecting heads, which read no more than
positions; such layers are small and are built in full. The tests compare with the built module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.interpret.cost import Cost, LayerCost
from innergrad.interpret.counts import structured_flops
from innergrad.program import Attend, Layer, Program, labels_of
from innergrad.targets.relu_lowering import family_size, heads_of, merged_heads, selects
from innergrad.targets.rows import Row, add, row_key


@dataclass
class _Group:
    """Heads with the same queries and keys up to the index: how many there are, and what they write."""

    copies: int
    query: list[Row]
    key: list[Row]
    writes: dict[int, Row] = field(default_factory=dict)
    repeats: dict[int, int] = field(
        default_factory=dict
    )  # destination entry -> how many entries it stands for in one head
    equal: dict[int, int] = field(default_factory=dict)  # destination entry -> how many of those read the same


def relu_cost(
    program: Program, approximants: Mapping[str, PiecewiseLinear], tokens: int, paper: dict[str, str]
) -> Cost:
    rows = [_layer(program, layer, approximants, tokens, loop.count) for loop in program.body for layer in loop.layers]
    rows += [_layer(program, layer, approximants, tokens, 0) for layer in program.readout]
    return Cost(
        tuple(rows), program.n_layers, len(program.readout), program.stream.d_model, tokens, paper, program.steps
    )


def _groups(program: Program, layer: Layer, approximants: Mapping[str, PiecewiseLinear]) -> list[_Group]:
    if any(_coincide(program, layer, instruction, approximants) for instruction in layer.instructions):
        heads = merged_heads(program, layer, approximants)
        return [_Group(1, head.query, head.key, head.writes, dict.fromkeys(head.writes, 1)) for head in heads]
    constant = row_key([{program.stream.entry("one"): 1.0}])
    groups: dict[object, _Group] = {}
    for instruction in layer.instructions:
        indices = family_size(program, instruction) if instruction.scores else 1
        scored = {x for score in instruction.scores for pair in score.pairs for side in pair for x in labels_of(side)}
        apart = bool(scored & labels_of(instruction.value))
        for head in heads_of(program, layer, instruction, approximants, representative=True):
            is_constant = row_key(head.query) == constant and row_key(head.key) == constant
            group = groups.setdefault(
                (row_key(head.query), row_key(head.key)), _Group(1 if is_constant else indices, head.query, head.key)
            )
            for entry, row in head.writes.items():
                add(group.writes.setdefault(entry, {}), row)
                group.repeats[entry] = indices if is_constant else 1
                group.equal[entry] = 1 if apart else group.repeats[entry]
    return [group for group in groups.values() if group.writes]


def _coincide(program: Program, layer: Layer, instruction: Attend, approximants: Mapping[str, PiecewiseLinear]) -> bool:
    """Heads of different indices may be the same."""
    if any(isinstance(i, int) for view in instruction.views() for i in view.index):
        return True
    constant = any((approximants[score.f.name].hinges[:, 0] == 0.0).any() for score in instruction.scores)
    return constant and selects(program, layer, instruction)


def _layer(
    program: Program, layer: Layer, approximants: Mapping[str, PiecewiseLinear], tokens: int, times: int
) -> LayerCost:
    groups = _groups(program, layer, approximants)
    D, heads = program.stream.d_model, sum(group.copies for group in groups)
    structured = sum(structured_flops(program, instruction, tokens) for instruction in layer.instructions)
    if layer.kind == "mlp":
        nonzeros = sum(g.copies * (len(g.query[0]) + sum(g.repeats.values())) for g in groups)
        return LayerCost(
            layer.name,
            "mlp",
            heads,
            0,
            nonzeros,
            2 * heads * D,
            2 * heads * D,
            _mlp_norm(program, groups),
            4 * tokens * heads * D,
            structured,
            times,
            {"W_1": (1, heads, D), "W_2": (1, D, heads)},
        )
    d_head = max((len(group.query) for group in groups), default=1)
    d_v = max((sum(group.repeats.values()) for group in groups), default=1)
    nonzeros = sum(
        g.copies
        * (
            sum(map(len, g.query))
            + sum(map(len, g.key))
            + sum(g.repeats[e] * (len(row) + 1) for e, row in g.writes.items())
        )
        for g in groups
    )
    norm = max((max(_column_norm(g.query), _column_norm(g.key)) for g in groups), default=0.0) + sum(
        g.copies * _value_norm(g) for g in groups
    )
    attention = 4 * tokens * tokens * D if layer.kind == "attention" else 4 * tokens * D
    return LayerCost(
        layer.name,
        layer.kind,
        heads,
        d_head,
        nonzeros,
        heads * D * (2 * d_head + 2 * d_v),
        3 * heads * D * D,
        norm,
        heads * (6 * tokens * D * D + attention),
        structured,
        times,
        {
            "W_Q": (heads, d_head, D),
            "W_K": (heads, d_head, D),
            "W_V": (heads, d_v, D),
            "W_O": (heads, D, d_v),
        },
    )


def _column_norm(rows: list[Row]) -> float:
    sums: dict[int, float] = {}
    for row in rows:
        for entry, weight in row.items():
            sums[entry] = sums.get(entry, 0.0) + abs(weight)
    return max(sums.values(), default=0.0)


def _value_norm(group: _Group) -> float:
    return _column_norm(
        [
            {column: group.equal.get(entry, 1) * weight for column, weight in row.items()}
            for entry, row in group.writes.items()
        ]
    )


def _mlp_norm(program: Program, groups: list[_Group]) -> float:
    """||W_1||_1 + ||W_2||_1: the constant lane is read by every unit, any other entry by the units of one index."""
    one = program.stream.entry("one")
    reads: dict[int, float] = {}
    for group in groups:
        for entry, weight in group.query[0].items():
            reads[entry] = reads.get(entry, 0.0) + abs(weight) * (group.copies if entry == one else 1)
    writes = max(sum(abs(row[one]) * group.repeats[entry] for entry, row in group.writes.items()) for group in groups)
    return max(reads.values()) + writes
