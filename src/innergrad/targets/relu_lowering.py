"""How a program becomes the weights of target ``relu``: an instruction dst += scale f(<q_i, k_s>) v_s as heads.

- f is a sum of hinges c relu(a z + b), so there is one head per hinge and per index of the score, with
  Q = [a q; b one], K = [k; one], V = scale c v. The identity is relu(z) - relu(-z): two heads. No score: relu(1).
- scope ``self`` is realised by *shared* keys and values: T equal terms cancel the 1/T. An instruction that reads lanes
  of its own token otherwise needs a product layer, or *self-selecting* heads.
- self-selecting heads tell tokens apart by their positions, m binary signs (the lane bits), in prompts of a fixed
  length T: score a z + b - R (m - <bits_i, bits_s>) / 2, value T c v_s. Where two signs differ the score is at most
  a z + b - R <= 0, so s = i alone is left, and T cancels the 1/T. R is a power of two and bounds |a z + b| on the
  domain that the function declares; what is known of z is about a token's own lanes, so no more than one side of the
  inner product may read lanes that differ between tokens. The rows of the positions come first in Q and K: for s = i
  they add up to 0, exactly, before anything else is added, as long as inner products are summed in order.
- in an mlp the score is a linear form of the token (its other side is ``one``) and the value is ``one``.
- in a product layer f is the identity and the scope ``self``.

Heads (units) of a layer with the same Q and K (the same row of W_1) are one head (unit) that writes several lanes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from innergrad.errors import LoweringError
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import IDENTITY
from innergrad.program import Attend, Layer, Program
from innergrad.targets.base import LoopedTransformer, Sublayer, looped
from innergrad.targets.relu import Mlp, Product, ReluAttention
from innergrad.targets.rows import Head, Row, family, head_stacks, linear_form, merge, scaled, score_rows, stack, writes


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
        _check_own_token(program, instruction, name)
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


def _check_own_token(program: Program, instruction: Attend, name: str) -> None:
    """Attention to its own token: by shared keys and values, or by self-selecting heads."""
    private = private_reads(program, instruction)
    if not private:
        return
    if program.length is None or "bits" not in program.stream.by_name:
        raise LoweringError(
            f"{name}: attention reaches its own token only through shared keys and values",
            got=f"{', '.join(private)} not shared",
            hint="use a product layer, put the token's own lanes on the query side, or give the prompts positions "
            "(the lane bits) and a fixed length",
        )
    if 2 ** program.stream["bits"].size < program.length:
        raise LoweringError(
            f"{name}: the positions of all tokens must differ",
            got=f"{program.stream['bits'].size} binary digits for {program.length} tokens",
        )
    for score in instruction.scores:
        if not math.isfinite(score.f.radius):
            raise LoweringError(
                f"{name}: a self-selecting head needs a bound on its score",
                got=f"{score.f.name}, which declares no radius",
                hint="write within(f, radius)",
            )
        sides = [[view for pair in score.pairs for view in pair[side]] for side in (0, 1)]
        if all(any(not program.stream[view.lane].shared for view in views) for views in sides):
            raise LoweringError(
                f"{name}: queries and keys of a self-selecting head both read lanes that differ between tokens",
                hint="its score must be known from one token: use shared lanes on one side",
            )


def private_reads(program: Program, instruction: Attend) -> list[str]:
    """Lanes that an instruction of scope ``self`` reads as keys or values and that differ between tokens: if there are
    any, attention needs self-selecting heads.
    """
    keys = (view for score in instruction.scores for _, key in score.pairs for view in key)
    return sorted({view.lane for view in (*instruction.value, *keys) if not program.stream[view.lane].shared})


def selects(program: Program, layer: Layer, instruction: Attend) -> bool:
    """The instruction becomes self-selecting heads."""
    own = layer.kind == "attention" and instruction.scope == "self"
    return own and bool(private_reads(program, instruction))


def positions(program: Program, radius: float) -> list[tuple[Row, Row]]:
    """Rows of Q and K whose inner product is -R times the number of binary digits in which two positions differ."""
    digits = program.stream["bits"].size
    R = 2.0 ** math.ceil(math.log2(max(1.0, radius)))
    entries = [program.stream.entry("bits", (digit,)) for digit in range(digits)]
    one = program.stream.entry("one")
    return [*(({entry: R / 2}, {entry: 1.0}) for entry in entries), ({one: -R * digits / 2}, {one: 1.0})]


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
    first, times = list[tuple[Row, Row]](), 1.0
    if selects(program, layer, instruction):
        assert program.length is not None
        first = positions(program, max((score.f.radius for score in instruction.scores), default=1.0))
        times = float(program.length)
    if not instruction.scores:
        rows = [*first, ({one: 1.0}, {one: 1.0})]
        yield Head([q for q, _ in rows], [k for _, k in rows], writes(program, instruction, {}, times / level))
        return
    (score,) = instruction.scores
    hinges = [(1.0, 0.0, 1.0)] if layer.kind == "product" else approximants[score.f.name].hinges
    for index in itertools.islice(family(program, instruction), 1 if representative else None):
        pairs = score_rows(program, instruction, score, index)
        if layer.kind == "mlp":
            pairs = [(linear_form(pairs, one), {one: 1.0})]
        for a, b, c in hinges:
            query = [*(q for q, _ in first), *(scaled(q, a) for q, _ in pairs if a)]
            key = [*(k for _, k in first), *(k for _, k in pairs if a)]
            if layer.kind == "mlp" and a and b:
                query[0][one] = query[0].get(one, 0.0) + b
            elif b:
                query, key = [*query, {one: b}], [*key, {one: 1.0}]
            yield Head(query, key, writes(program, instruction, index, c * times))


def family_size(program: Program, instruction: Attend) -> int:
    """Number of indices for which an instruction with a score has heads of its own."""
    return sum(1 for _ in family(program, instruction))
