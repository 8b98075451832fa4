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

from innergrad.errors import LoweringError
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import IDENTITY
from innergrad.program import Attend, Layer, Program
from innergrad.targets.base import LoopedTransformer, Sublayer, looped
from innergrad.targets.relu import Mlp, Product, ReluAttention
from innergrad.targets.rows import Head, family, head_stacks, linear_form, merge, scaled, score_rows, stack, writes


def lower(program: Program, approximants: Mapping[str, PiecewiseLinear]) -> LoopedTransformer:
    """Each layer of the program becomes exactly one layer, or a :class:`LoweringError` says why not."""
    check(program)
    return looped(program, lambda layer: build_layer(program, layer, approximants))


def check(program: Program) -> None:
    """Fail with the reason, before anything is built, if some instruction cannot be realised."""
    for layer in program.layers:
        for instruction in layer.instructions:
            check_instruction(program, layer, instruction)


def merged_heads(program: Program, layer: Layer, approximants: Mapping[str, PiecewiseLinear]) -> list[Head]:
    """The heads (units) of a layer; those with the same queries and keys are one."""
    return merge(head for i in layer.instructions for head in heads_of(program, layer, i, approximants))


def build_layer(program: Program, layer: Layer, approximants: Mapping[str, PiecewiseLinear]) -> Sublayer:
    heads, d_model = merged_heads(program, layer, approximants), program.stream.d_model
    if layer.kind == "mlp":
        one = program.stream.entry("one")
        W_1 = stack(
            (1, len(heads), d_model), ((0, u, c, w) for u, head in enumerate(heads) for c, w in head.query[0].items())
        )
        W_2 = stack(
            (1, d_model, len(heads)),
            ((0, e, u, row[one]) for u, head in enumerate(heads) for e, row in head.writes.items()),
        )
        return Mlp(layer.name, W_1, W_2)
    return (Product if layer.kind == "product" else ReluAttention)(layer.name, *head_stacks(heads, d_model))


def check_instruction(program: Program, layer: Layer, instruction: Attend) -> None:
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
    level: float = 1.0,
) -> Iterator[Head]:
    """The heads (in an mlp: units) of one instruction, before merging; only those of the first index if
    ``representative``. level: the activation at 1.
    """
    one = program.stream.entry("one")
    if not instruction.scores:
        yield Head([{one: 1.0}], [{one: 1.0}], writes(program, instruction, {}, 1.0 / level))
        return
    (score,) = instruction.scores
    hinges = [(1.0, 0.0, 1.0)] if layer.kind == "product" else approximants[score.f.name].hinges
    for index in itertools.islice(family(program, instruction), 1 if representative else None):
        pairs = score_rows(program, instruction, score, index)
        if layer.kind == "mlp":
            pairs = [(linear_form(pairs, one), {one: 1.0})]
        for a, b, c in hinges:
            query = [scaled(q, a) for q, _ in pairs] if a else []
            key = [k for _, k in pairs] if a else []
            if layer.kind == "mlp" and a and b:
                query[0][one] = query[0].get(one, 0.0) + b
            elif b:
                query, key = [*query, {one: b}], [*key, {one: 1.0}]
            yield Head(query, key, writes(program, instruction, index, c))


def family_size(program: Program, instruction: Attend) -> int:
    """Number of indices for which an instruction with a score has heads of its own."""
    return sum(1 for _ in family(program, instruction))
