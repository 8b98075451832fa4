"""The rounding that a layer is allowed, from the numbers that it reads: never from the numbers that it wrote.

A sum of n terms, added in any order, is off by at most n u times the sum of their sizes (u = 2^-53 in float64; Higham
2002, chapter 4). So the sum that an instruction adds has a *size*: its value if every term of every sum in it were
positive. Products have the product of the sizes. A function that is a sum of hinges c relu(a z + b) has

    sum |c| (|a| size(z) + |b|)

which is large where the hinges cancel: far out, and on a steep ramp. A fit in units that are hinges from afar, as silu,
has that size, too, and the distance of a unit from a hinge. A layer may be off by n u times the size of its summands,
old and new. n is the number of roundings on the way of one term: no more than the tokens, twice the entries of the
stream, the pieces or units of a function, and a few.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import own_gradients
from innergrad.functions.fits.sigmas import SIGMAS
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import Function, PiecewiseLinear
from innergrad.interpret import plain
from innergrad.interpret.pairs import Pair, Pairs
from innergrad.interpret.walk import added
from innergrad.ir.program import Layer, Program, Score
from innergrad.ir.stream import State

U = 2.0**-53
FEW = 16  # products, divisions and weights that are rounded themselves


@dataclass
class Sizes(Pairs):
    """A number, and the size of the terms that add up to it."""

    approximants: Mapping[str, Approximant]

    def alone(self, number: plain.Labelled) -> Pair:
        return number, number.map(torch.abs)

    def apply(self, score: Score, argument: Pair, value: Pair | None) -> Pair:
        z, size = argument
        at, f = z.map(self.numbers.functions[score.f.name]), self.approximants.get(score.f.name)
        own = size.aligned(z.labels).expand_as(z.tensor)
        own = own + (score.f.radius if math.isfinite(score.f.radius) else 0.0)  # positions of self-selecting heads
        sizes = _by_slope(score.f, z.tensor, own) if f is None else _by_terms(score.f, f, at.tensor, own)
        return at, plain.Labelled(sizes, z.labels)

    def softmax(self, scores: Pair, mask: Pair | None) -> Pair:
        """Scores that are off by rho change a weight by no more than a factor of exp(2 rho)."""
        weights, sizes = super().softmax(scores, mask)
        largest = float(scores[1].tensor.amax()) if scores[1].tensor.numel() else 0.0
        return weights, self.numbers.scale(sizes, 1.0 + 2.0 * largest)


def _by_terms(f: Function, given: Approximant, at: Tensor, size: Tensor) -> Tensor:
    """Of a sum of hinges, or of units that are hinges from afar. Of another fit, or one with ramps, only the part that
    its ramps multiply: the rest is measured.
    """
    if isinstance(given, PiecewiseLinear):
        a, b, c = abs(given.hinges.T)
        return float(a @ c) * size + float(b @ c)
    near = SIGMAS[given.feature].hinge if given.feature in SIGMAS and not given.ramps else None
    if near is not None:
        a, b, c = (np.abs(column) for column in (given.a, given.b, given.c))
        return (abs(given.slope) + float(a @ c)) * size + (abs(given.constant) + float((b + near) @ c))
    jump = max([1.0, *(abs(height) for _, height, _ in f.jumps)])
    slope = max((jump / (high - low) for low, high in given.ramps), default=0.0)
    return at.abs() + slope * (size + 1.0)


def _by_slope(f: Function, z: Tensor, size: Tensor) -> Tensor:
    """Of a function that is computed as such: it passes on the error of its argument."""
    with own_gradients():
        variable = z.detach().clone().requires_grad_()
        value = f.value(variable)
        slope = torch.autograd.grad(value.sum(), variable)[0] if value.requires_grad else torch.zeros_like(z)
    return value.detach().abs() + slope.abs() * size


def sizes_after(
    program: Program,
    layer: Layer,
    before: State,
    functions: Mapping[str, plain.ScalarFunction],
    approximants: Mapping[str, Approximant],
) -> State:
    """Of the lanes after a layer: of the old values, and of the added ones. They are (batch, tokens or 1, *shape)."""
    after = {name: lane.abs() for name, lane in before.items()}
    sizes = Sizes(plain.Tensors(program, before, functions), dict(after), approximants)
    for i in layer.instructions:
        _, size = added(program, i, sizes)
        after[i.dst.lane] = plain.placed(after[i.dst.lane], i, size.aligned("BI" + i.family))
    return after


def roundings(program: Program, approximants: Mapping[str, Approximant], tokens: int) -> int:
    """On the way of one term through a layer."""
    lengths = (len(f.slopes) if isinstance(f, PiecewiseLinear) else len(f.a) for f in approximants.values())
    pieces = max(lengths, default=0)
    return tokens + 2 * program.stream.d_model + pieces + FEW
