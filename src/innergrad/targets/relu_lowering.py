"""How a program becomes the weights of target ``relu``: an instruction dst += scale f(<q_i, k_s>) v_s as heads.

- f is a sum of hinges c relu(a z + b), so there is one head per hinge and per index of the score, with
  Q = [a q; b one], K = [k; one], V = scale c v. The identity is relu(z) - relu(-z): two heads. No score: relu(1).
- scope ``self`` is realised by *shared* keys and values: T equal terms cancel the 1/T. An instruction that reads lanes
  of its own token otherwise needs a product layer.
- in an mlp the score is a linear form of the token (its other side is ``one``) and the value is ``one``.
- in a product layer f is the identity and the scope ``self``.

Heads (units) of a layer with the same Q and K (the same row of W_1) are one head (unit) that writes several lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from innergrad.errors import LoweringError
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import IDENTITY
from innergrad.program import Attend, Expr, Layer, Program
from innergrad.stream import Stream
from innergrad.targets.base import LoopedTransformer, Sublayer
from innergrad.targets.relu import Mlp, Product, ReluAttention
from innergrad.targets.sparse import SparseStack

Row = dict[int, float]  # a row of a weight matrix: entry of the stream -> weight
Index = Mapping[str, int]


@dataclass
class Head:
    """Rows of Q and K, and what the head writes: (destination entry, row of V)."""

    query: list[Row]
    key: list[Row]
    writes: dict[int, Row] = field(default_factory=dict)


def lower(program: Program, approximants: Mapping[str, PiecewiseLinear]) -> LoopedTransformer:
    """Each layer of the program becomes exactly one layer, or a :class:`LoweringError` says why not."""
    check(program)

    def modules(layers: tuple[Layer, ...]) -> list[Sublayer]:
        return [build_layer(program, layer, approximants) for layer in layers]

    return LoopedTransformer(
        [modules(loop.layers) for loop in program.body], [loop.count for loop in program.body], modules(program.readout)
    )


def check(program: Program) -> None:
    """Fail with the reason, before anything is built, if some instruction cannot be realised."""
    for layer in program.layers:
        for instruction in layer.instructions:
            _check(program, layer, instruction)


def merged_heads(program: Program, layer: Layer, approximants: Mapping[str, PiecewiseLinear]) -> list[Head]:
    """The heads (units) of a layer; those with the same queries and keys are one."""
    merged: dict[object, Head] = {}
    for instruction in layer.instructions:
        for head in heads_of(program, layer, instruction, approximants):
            kept = merged.setdefault((row_key(head.query), row_key(head.key)), head)
            if kept is not head:
                for entry, row in head.writes.items():
                    target = kept.writes.setdefault(entry, {})
                    for column, weight in row.items():
                        target[column] = target.get(column, 0.0) + weight
    return [head for head in merged.values() if head.writes]


def build_layer(program: Program, layer: Layer, approximants: Mapping[str, PiecewiseLinear]) -> Sublayer:
    heads, d_model = merged_heads(program, layer, approximants), program.stream.d_model
    if layer.kind == "mlp":
        one = program.stream.entry("one")
        W_1 = _stack(
            (1, len(heads), d_model), ((0, u, c, w) for u, head in enumerate(heads) for c, w in head.query[0].items())
        )
        W_2 = _stack(
            (1, d_model, len(heads)),
            ((0, e, u, row[one]) for u, head in enumerate(heads) for e, row in head.writes.items()),
        )
        return Mlp(layer.name, W_1, W_2)
    d_head = max((len(head.query) for head in heads), default=1)
    d_v = max((len(head.writes) for head in heads), default=1)
    W_Q = _stack((len(heads), d_head, d_model), _entries([head.query for head in heads]))
    W_K = _stack((len(heads), d_head, d_model), _entries([head.key for head in heads]))
    W_V = _stack((len(heads), d_v, d_model), _entries([list(head.writes.values()) for head in heads]))
    W_O = _stack(
        (len(heads), d_model, d_v), ((m, e, r, 1.0) for m, head in enumerate(heads) for r, e in enumerate(head.writes))
    )
    return (Product if layer.kind == "product" else ReluAttention)(layer.name, W_Q, W_K, W_V, W_O)


def row_key(rows: list[Row]) -> tuple[tuple[tuple[int, float], ...], ...]:
    return tuple(tuple(sorted(row.items())) for row in rows)


def _entries(matrices: list[list[Row]]) -> Iterator[tuple[int, int, int, float]]:
    """(matrix, row, column, weight) of every entry."""
    for m, rows in enumerate(matrices):
        for r, row in enumerate(rows):
            for column, weight in row.items():
                yield m, r, column, weight


def _stack(shape: tuple[int, int, int], entries: Iterator[tuple[int, int, int, float]]) -> SparseStack:
    table = np.array([entry for entry in entries if entry[3] != 0.0], dtype=np.float64).reshape(-1, 4)
    return SparseStack(
        shape, torch.from_numpy(table[:, :3].T.astype(np.int64).copy()), torch.from_numpy(table[:, 3].copy())
    )


def _check(program: Program, layer: Layer, instruction: Attend) -> None:
    """What this target cannot do."""
    name = f"layer {layer.name}, {instruction.dst.lane}"
    if len(instruction.scores) > 1:
        raise LoweringError(f"{name}: a head of this target has one score", got=len(instruction.scores))
    if instruction.where != "all":
        raise LoweringError(
            f"{name}: this target writes all tokens",
            got=f"where={instruction.where!r}",
            hint="multiply by the lane t, query or omega in a product layer",
        )
    if instruction.reduce == "softmax":
        raise LoweringError(f"{name}: this target has no softmax")
    if instruction.scope != "self" and not (
        instruction.scope == "all" and instruction.reduce == "mean" and layer.kind == "attention"
    ):
        raise LoweringError(
            f"{name}: beyond its own token, this target takes the mean over all tokens, in an attention layer",
            got=f"scope={instruction.scope!r}, reduce={instruction.reduce!r} in a {layer.kind} layer",
            hint="weight the demos with the lane omega, which is zero on the query",
        )
    pairs = instruction.scores[0].pairs if instruction.scores else ()
    values = [view.lane for view in instruction.value]
    if layer.kind == "attention" and instruction.scope == "self":
        private = sorted(
            {
                lane
                for lane in (*values, *(view.lane for _, key in pairs for view in key))
                if not program.stream[lane].shared
            }
        )
        if private:
            raise LoweringError(
                f"{name}: attention reaches its own token only through shared keys and values",
                got=f"{', '.join(private)} not shared",
                hint="use a product layer, or put the token's own lanes on the query side",
            )
    if layer.kind == "product" and instruction.scores and instruction.scores[0].f != IDENTITY:
        raise LoweringError(
            f"{name}: a product layer multiplies, it applies no function",
            got=instruction.scores[0].f.name,
            hint="use an attention or mlp layer for the function",
        )
    if layer.kind == "mlp":
        if values != ["one"]:
            raise LoweringError(
                f"{name}: an mlp applies a function to a linear form; its value is the lane one",
                got=values,
                hint="write Score(IDENTITY, (lane, one)) to add a lane, or multiply in a product layer",
            )
        if any(
            {view.lane for view in query} != {"one"} and {view.lane for view in key} != {"one"} for query, key in pairs
        ):
            raise LoweringError(
                f"{name}: an mlp takes linear forms", got="a product of two lanes", hint="use a product layer"
            )


def heads_of(
    program: Program,
    layer: Layer,
    instruction: Attend,
    approximants: Mapping[str, PiecewiseLinear],
    *,
    representative: bool = False,
) -> Iterator[Head]:
    """The heads (in an mlp: units) of one instruction, before merging; only those of the first index if
    ``representative``.
    """
    stream, one = program.stream, program.stream.entry("one")
    if not instruction.scores:
        yield Head([{one: 1.0}], [{one: 1.0}], _writes(program, instruction, {}, 1.0))
        return
    hinges = [(1.0, 0.0, 1.0)] if layer.kind == "product" else approximants[instruction.scores[0].f.name].hinges
    for index in itertools.islice(_family(program, instruction), 1 if representative else None):
        pairs = [
            (_row(stream, query, point), _row(stream, key, point))
            for query, key, point in _products(program, instruction, index)
        ]
        if layer.kind == "mlp":
            pairs = [(_linear_form(pairs, one), {one: 1.0})]
        for a, b, c in hinges:
            query = [_scaled(q, a) for q, _ in pairs] if a else []
            key = [k for _, k in pairs] if a else []
            if layer.kind == "mlp" and a and b:
                query[0][one] = query[0].get(one, 0.0) + b
            elif b:
                query, key = [*query, {one: b}], [*key, {one: 1.0}]
            yield Head(query, key, _writes(program, instruction, index, c))


def _linear_form(pairs: list[tuple[Row, Row]], one: int) -> Row:
    """sum of query * key, where one side of each pair is a multiple of the constant lane."""
    form: Row = {}
    for query, key in pairs:
        linear, constant = (query, key) if set(key) == {one} else (key, query)
        for entry, weight in linear.items():
            form[entry] = form.get(entry, 0.0) + constant[one] * weight
    return form


def _scaled(row: Row, factor: float) -> Row:
    return {entry: factor * weight for entry, weight in row.items()}


def family_size(program: Program, instruction: Attend) -> int:
    """Number of indices for which an instruction with a score has heads of its own."""
    return sum(1 for _ in _family(program, instruction))


def _family(program: Program, instruction: Attend) -> Iterator[dict[str, int]]:
    """Every assignment of the destination's labels that the score depends on: one head (per hinge) each."""
    sizes = program.label_sizes(instruction)
    used = {label for query, key in instruction.scores[0].pairs for view in (*query, *key) for label in view.labels}
    labels = [label for label in instruction.dst.labels if label in used]
    for point in itertools.product(*(range(sizes[label]) for label in labels)):
        yield dict(zip(labels, point, strict=True))


def _products(program: Program, instruction: Attend, index: Index) -> Iterator[tuple[Expr, Expr, Index]]:
    """The terms of the inner product: every pair at every value of its contracted labels."""
    sizes = program.label_sizes(instruction)
    for query, key in instruction.scores[0].pairs:
        labels = sorted({label for view in (*query, *key) for label in view.labels} - set(index))
        for point in itertools.product(*(range(sizes[label]) for label in labels)):
            yield query, key, {**index, **dict(zip(labels, point, strict=True))}


def _row(stream: Stream, expression: Expr, index: Index) -> Row:
    row: Row = {}
    for view in expression:
        entry = stream.entry(view.lane, tuple(i if isinstance(i, int) else index[i] for i in view.index))
        row[entry] = row.get(entry, 0.0) + view.coefficient
    return row


def _writes(program: Program, instruction: Attend, index: Index, coefficient: float) -> dict[int, Row]:
    """What one head adds: for every value of the remaining labels, the destination entry and its row of V."""
    sizes = program.label_sizes(instruction)
    labels = [label for label in instruction.dst.labels if label not in index]
    writes = {}
    for point in itertools.product(*(range(sizes[label]) for label in labels)):
        full = {**index, **dict(zip(labels, point, strict=True))}
        entry = program.stream.entry(
            instruction.dst.lane, tuple(i if isinstance(i, int) else full[i] for i in instruction.dst.index)
        )
        row = _row(program.stream, instruction.value, full)
        if instruction.scale != 0.0:
            writes[entry] = _scaled(row, coefficient * instruction.scale)
    return writes
