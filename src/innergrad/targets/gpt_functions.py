"""What stands for functions on target ``gpt``, the ranges of its lanes, and what it cannot do."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from innergrad.errors import LoweringError
from innergrad.functions.approximants import approximate
from innergrad.functions.fits.exponentials import exponential_sum
from innergrad.functions.fits.gelu import gelu_sum
from innergrad.functions.fits.smooth import shared_sums
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import IDENTITY, NEGATION, RECIPROCAL
from innergrad.kernels import EXP
from innergrad.options import Options
from innergrad.program import Attend, Expr, Layer, Program, View
from innergrad.targets.base import LoopedTransformer
from innergrad.targets.gpt_prepare import LINEAR, PAD, PADS, divisor_of

DEFAULT_BOUND = 8.0
LINEAR_BOUND = 2.0  # of linear attention's scores
COARSE = 1e-7  # from this epsilon on, products are made for float32


def approximated(program: Program) -> set[str]:
    """Functions of mlps, and linear scores; exp, division and identity are what the blocks compute."""
    return {
        score.f.name
        for layer in program.layers
        for instruction in layer.instructions
        for score in instruction.scores
        if score.f == LINEAR or (instruction.scope == "self" and score.f not in (IDENTITY, NEGATION, RECIPROCAL))
    }


def approximants(program: Program, options: Options) -> dict[str, Approximant]:
    """Exponential sums for linear scores, GeLU sums for functions of mlps."""
    radius, functions, made = options.z_bound or DEFAULT_BOUND, program.functions(), dict[str, Approximant]()
    if options.variant == "lookup":
        return {name: approximate(functions[name], 1e-3) for name in sorted(approximated(program))}
    by_heads = sigmoids(program)
    made |= shared_sums((functions[f] for f in sorted(by_heads)), "sigmoid", options.epsilon, (-radius, radius))
    for name in sorted(approximated(program) - by_heads):
        if functions[name] == LINEAR:
            made[name] = exponential_sum(options.z_bound or LINEAR_BOUND, options.epsilon)
        else:
            made[name] = gelu_sum(functions[name], options.epsilon, (-radius, radius))
    return made


def sigmoids(program: Program) -> set[str]:
    """Functions that attention applies to a token's own lanes, by a sink."""
    found: dict[str, set[str]] = {"attention": set(), "mlp": set()}
    for layer in program.layers:
        for instruction in layer.instructions:
            found[layer.kind] |= {score.f.name for score in instruction.scores if instruction.scope == "self"}
    both = found["attention"] & found["mlp"] - {IDENTITY.name, NEGATION.name}
    if both:
        raise LoweringError(
            "a function is applied by attention or by mlps, not by both",
            got=", ".join(sorted(both)),
            hint="name it twice",
        )
    return found["attention"]


def lane_bounds(program: Program, options: Options) -> dict[str, float]:
    """The range that each lane is taken to stay in, from what it declares, x_bound, y_bound and z_bound."""
    default = options.z_bound or DEFAULT_BOUND
    given = {"x": options.x_bound, "y": options.y_bound, "zero": 0.0}
    return {
        lane.name: given.get(lane.name) or (lane.bound if math.isfinite(lane.bound) else default)
        for lane in program.stream.lanes
    }


def bounds(program: Program, layer: Layer, options: Options) -> dict[str, tuple[float, float]]:
    """Ranges of the lanes that are factors of a product of this layer, or are divided by."""
    everything, found = lane_bounds(program, options), set[str]()
    for instruction in layer.instructions if layer.kind == "mlp" else ():
        for score in instruction.scores:
            if score.f in (IDENTITY, RECIPROCAL):
                sides = [side for pair in score.pairs for side in pair]
                sides += [] if score.f == RECIPROCAL else [instruction.value]
                if len([side for side in sides if not constant(side)]) > 1 or score.f == RECIPROCAL:
                    found |= {view.lane for side in sides for view in side if view.lane != "one"}
    divisor = divisor_of(layer)
    lows = {lane: program.stream[lane].least if lane == divisor else -everything[lane] for lane in found}
    return {lane: (lows[lane], everything[lane]) for lane in sorted(found)}


def inspect(
    program: Program, module: LoopedTransformer, h: Tensor, options: Options
) -> Iterator[tuple[float, float, str]]:
    """Pre-LN blocks that divide: every other mlp repairs pads that are off by 1e-4 to within 1e-7."""
    if options.variant != "pre-ln" or program.stream["pad_up"].role != "state":
        return
    for pad, sign in PADS.items():
        entry = program.stream.entry(pad)
        for layer, built in zip(program.layers, module.stored_layers(), strict=True):
            if layer.kind == "mlp" and divisor_of(layer) is None:
                off = h.clone()
                for other in PADS:
                    off[..., program.stream.entry(other)] *= 1.0 + 1e-4
                error = float((built(off)[..., entry] / (sign * PAD) - 1).abs().max())
                yield error, 1e-7, f"layer {layer.name}, lane {pad}"


def longest(program: Program, options: Options, dtype: torch.dtype) -> float:
    """Scores by position grow with the square of the number of tokens; behind a LayerNorm they are rounded."""
    by_position = "pos" in program.stream.by_name
    return 512 if by_position and options.variant == "pre-ln" and dtype == torch.float32 else math.inf


def rounding(options: Options) -> float:
    """Products are exact to 1e-14, or, made for float32, to 1e-10, of the square of their range."""
    return 1e-9 if options.epsilon < COARSE else 1e-7


# ------------------------------------------------------------------------------------------------------------ checks


def check(program: Program) -> None:
    """Fail with the reason, before anything is built, if some instruction cannot be realised."""
    for layer in program.layers:
        for instruction in layer.instructions:
            name = f"layer {layer.name}, {instruction.dst.lane}"
            if instruction.where != "all":
                raise LoweringError(
                    f"{name}: this target writes all tokens",
                    got=f"where={instruction.where!r}",
                    hint="multiply by the lane t, query or omega in an mlp",
                )
            (check_mlp if layer.kind == "mlp" else _check_attention)(program, instruction, name)
            divides = any(score.f == RECIPROCAL for score in instruction.scores)
            if divisor_of(layer) is not None and not divides and instruction.dst.lane not in PADS:
                raise LoweringError(
                    f"{name}: everything a layer that divides reads is divided",
                    hint="put other instructions into another layer",
                )


def check_mlp(program: Program, instruction: Attend, name: str) -> None:
    if instruction.scope != "self":
        raise LoweringError(f"{name}: an mlp reads its own token", got=f"scope={instruction.scope!r}")
    if len(instruction.scores) > 1:
        raise LoweringError(f"{name}: an mlp multiplies two factors", got=f"{len(instruction.scores)} scores")
    if instruction.scores:
        (score,) = instruction.scores
        linear = all(constant(query) or constant(key) for query, key in score.pairs)
        if score.f == RECIPROCAL and len(score.pairs[0][0]) == len(score.pairs) == 1 and linear:
            return
        product = score.f == IDENTITY and (linear or constant(instruction.value))
        if not product and not (linear and constant(instruction.value)):
            raise LoweringError(
                f"{name}: an mlp applies a function to a linear form, or multiplies two linear forms",
                got=f"{score.f.name} of a product, or times a lane",
                hint="split it into two layers",
            )


def _check_attention(program: Program, instruction: Attend, name: str) -> None:
    scope, reduce = instruction.scope, instruction.reduce
    if scope == "demos" and not program.causal and instruction.scores:
        _check_read(program, instruction, name)
        wrong = [score.f.name for score in instruction.scores if score.f not in (EXP, LINEAR, IDENTITY)]
        if wrong or reduce == "mean" or (reduce == "softmax" and instruction.scores[0].f != IDENTITY):
            raise LoweringError(
                f"{name}: softmax heads add up exponentials of scores, and linear scores as sums of those",
                got=wrong or reduce,
                allowed="scores exp and linear with reduce='sum', or a softmax",
            )
        return
    if scope == "all" and reduce == "softmax" and instruction.scores[0].f == IDENTITY and not program.causal:
        return
    if scope == "self" and "log_tokens" in program.stream.by_name and instruction.scores:
        check_mlp(program, instruction, name)  # sigmoids do what an mlp could do, except multiply
        if instruction.scores[0].f in (IDENTITY, NEGATION) or instruction.value != (View("one"),):
            raise LoweringError(f"{name}: with a sink, attention applies functions to linear forms")
        return
    if instruction.scores:
        raise LoweringError(f"{name}: scores are for scope='demos' in a program that is not causal", got=scope)
    _check_read(program, instruction, name)
    known = scope in ("self", "previous") or instruction.at is not None
    if not known and not (scope == "all" and reduce == "mean" and not program.causal):
        raise LoweringError(
            f"{name}: no head for this",
            got=f"scope={scope!r}, reduce={reduce!r}",
            allowed="self, previous, at(t), at(t,u), or the mean over all",
        )
    if scope == "self" and "pos" not in program.stream.by_name and not shared(program, instruction):
        raise LoweringError(f"{name}: a token reads its own lanes in an mlp", hint="make it an mlp layer")


def _check_read(program: Program, instruction: Attend, name: str) -> None:
    constants = [v.lane for v in instruction.value if program.stream[v.lane].shared and v.lane != "one"]
    if program.sink and instruction.scope not in ("all", "self") and constants:
        raise LoweringError(
            f"{name}: where there is nothing to read, shared lanes would be read off the sink",
            got=", ".join(constants),
            hint="read lanes that are per token, and add the shared ones in an mlp",
        )


def constant(expression: Expr) -> bool:
    return {view.lane for view in expression} == {"one"}


def shared(program: Program, instruction: Attend) -> bool:
    return not program.causal and all(program.stream[view.lane].shared for view in instruction.value)
