"""Target ``sigma``: attention and MLPs with any activation sigma (Definitions 1 and 2 of paper 000).

    attention   h_i += 1/T sum_m sum_s sigma(<W_Q^m h_i, W_K^m h_s>) W_O^m W_V^m h_s      (T tokens)
    mlp         h_i += W_2 sigma(W_1 h_i)

Heads are written as for target ``relu``, with sums of sigma in place of sums of hinges; MLPs as for target ``gpt``:
functions, products, linear maps. Constants come from the lane ``one``. The mask of the examples is in the values: the
paper's, -R (1 - t_i) inside sigma, silences what vanishes on the far left, but not tanh or cos.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.fits.algebra import algebra_error, linear_sum, piecewise_sum, scales
from innergrad.functions.fits.sigmas import COARSE, SIGMAS
from innergrad.functions.fits.smooth import shared_sums
from innergrad.functions.fits.sums import FEATURES, Approximant, FeatureSum
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.options import Options
from innergrad.program import Attend, Layer, Program, Score
from innergrad.targets.base import Approximants, LoopedTransformer, Sublayer, looped
from innergrad.targets.gpt_functions import DEFAULT_BOUND, check_mlp, lane_bounds
from innergrad.targets.gpt_functions import bounds as product_bounds
from innergrad.targets.gpt_prepare import LINEAR
from innergrad.targets.relu import Mlp, ReluAttention
from innergrad.targets.relu_lowering import check_instruction, heads_of
from innergrad.targets.rows import head_stacks, merge, require_room, stack
from innergrad.targets.sparse import SparseStack
from innergrad.targets.units import EXACT, Algebra, Units

SCORES = 16.0  # range of scores that are used as they are, unless z_bound is larger


class SigmaAttention(ReluAttention):
    """h_i += 1/T sum_m sum_s sigma(<W_Q^m h_i, W_K^m h_s>) W_O^m W_V^m h_s; shapes as of ReluAttention."""

    def __init__(self, name: str, *stacks: SparseStack, sigma: str) -> None:
        super().__init__(name, *stacks, sigma=sigma)
        self.sigma = sigma

    def phi(self, z: Tensor) -> Tensor:
        return FEATURES[self.sigma](z)


class SigmaMlp(Mlp):
    """h_i += W_2 sigma(W_1 h_i)."""

    def __init__(self, name: str, *stacks: SparseStack, sigma: str) -> None:
        super().__init__(name, *stacks, sigma=sigma)
        self.sigma = sigma

    def phi(self, z: Tensor) -> Tensor:
        return FEATURES[self.sigma](z)


def prepare(program: Program, options: Options) -> Program:
    """Products are mlps here; scores that are used as they are become a function of their own, which heads add up."""
    del options
    return program.with_layers(_rewritten)


def _rewritten(layer: Layer) -> Layer:
    if layer.kind == "product":
        return replace(layer, kind="mlp")
    return layer if layer.kind != "attention" else replace(layer, instructions=tuple(map(_linear, layer.instructions)))


def _linear(i: Attend) -> Attend:
    scores = (Score(LINEAR, *score.pairs) if score.f == IDENTITY else score for score in i.scores)
    return Attend((i.dst,), *scores, value=i.value, scope=i.scope, reduce=i.reduce, scale=i.scale, where=i.where)


def check(program: Program) -> None:
    for layer in program.layers:
        for instruction in layer.instructions:
            if layer.kind == "mlp":
                check_mlp(program, instruction, f"layer {layer.name}, {instruction.dst.lane}")
            else:
                check_instruction(program, layer, instruction)


def approximated(program: Program) -> set[str]:
    return {name for name, f in program.functions().items() if f not in (IDENTITY, NEGATION)}


def approximants(program: Program, options: Options) -> dict[str, Approximant]:
    """All smooth functions with the same knots, so that they share heads."""
    sigma, radius = options.sigma or "", options.z_bound or DEFAULT_BOUND
    functions, smooth, made = program.functions(), [], dict[str, Approximant]()
    products = algebra_error(sigma, options.epsilon >= COARSE)
    if products > options.epsilon:
        raise InputError(
            f"products are not sums of {sigma} to within epsilon",
            got=f"epsilon = {options.epsilon:g}",
            allowed=f"at least {products:.1e}",
        )
    for name in sorted(approximated(program)):
        f = functions[name]
        if f == LINEAR:
            made[name] = linear_sum(sigma, max(SCORES, radius), options.epsilon)
        elif f.exact is not None or f.jumps:
            made[name] = piecewise_sum(f, sigma, options.epsilon)
        else:
            smooth.append(f)
    return made | shared_sums(smooth, sigma, options.epsilon, (-radius, radius))


def rounding(options: Options) -> float:
    """Products are exact to about 1e-13, or, made for float32, to 1e-9, of the square of their range."""
    range = max(SCORES, options.z_bound or DEFAULT_BOUND)
    return (1e-9 if options.epsilon < COARSE else 1e-6) * (range / SCORES) ** 2


def bounds(program: Program, layer: Layer, options: Options) -> dict[str, tuple[float, float]]:
    """Ranges of factors of products; where linear maps are not exact, of all lanes that an mlp reads."""
    found = product_bounds(program, layer, options)
    if layer.kind == "mlp" and SIGMAS[options.sigma or ""].hinge is None:
        everything = lane_bounds(program, options)
        read = {view.lane for i in layer.instructions for view in list(i.views())[1:]} - {"one"}
        found |= {lane: (-everything[lane], everything[lane]) for lane in sorted(read)}
    return found


def algebra(options: Options) -> Algebra:
    sigma, coarse = options.sigma or "", options.epsilon >= COARSE
    exact = SIGMAS[sigma].hinge is not None
    return Algebra(EXACT if exact else scales(sigma, 1, coarse), scales(sigma, 2, coarse))


def lower(program: Program, approximants: Approximants, options: Options) -> LoopedTransformer:
    """Each layer of the program becomes exactly one attention layer or mlp."""
    check(program)
    require_room(program, heads=4 * len(algebra(options).square))
    build = {"mlp": _mlp, "attention": _attention}
    return looped(program, lambda layer: build[layer.kind](program, layer, approximants, options))


def _attention(program: Program, layer: Layer, approximants: Approximants, options: Options) -> Sublayer:
    sigma = options.sigma or ""
    level = float(FEATURES[sigma](torch.ones((), dtype=torch.float64)))
    heads = merge(head for i in layer.instructions for head in heads_of(program, layer, i, approximants, level=level))
    return SigmaAttention(layer.name, *head_stacks(heads, program.stream.d_model), sigma=sigma)


def _mlp(program: Program, layer: Layer, approximants: Mapping[str, FeatureSum], options: Options) -> Sublayer:
    known, D = lane_bounds(program, options), program.stream.d_model
    bound = np.concatenate([np.full(lane.size, known[lane.name]) for lane in program.stream.lanes])
    made = Units(program, bound, algebra(options))
    for instruction in layer.instructions:
        made.compute(instruction, approximants)
    units = made.rows()
    for row, bias, _ in units:
        row[made.one] = row.get(made.one, 0.0) + bias
    return SigmaMlp(
        layer.name,
        stack((1, len(units), D), ((0, u, e, w) for u, (row, _, _) in enumerate(units) for e, w in row.items())),
        stack((1, D, len(units)), ((0, e, u, w) for u, (_, _, row) in enumerate(units) for e, w in row.items())),
        sigma=options.sigma or "",
    )
