"""Numbers that have a companion, through one instruction after the other.

The number is the plain interpreter's. The companion is another tensor, never negative: how far the number may be off
(:class:`Balls`), say, or the sum of the absolute values of its terms. A linear combination of lanes has that of their
companions, by absolute values. A value that begins anew has the companion that ``alone`` gives it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from innergrad.interpret.plain import Labelled, ScalarFunction, Tensors, contract, labelled_view, placed, total
from innergrad.interpret.walk import Algebra, Seen, Token, added
from innergrad.ir.program import Expr, Layer, Program, Score
from innergrad.ir.stream import State

Pair = tuple[Labelled, Labelled]
Off = Callable[[Score, Labelled], Tensor]  # the error of a function at its arguments


@dataclass
class Pairs(Algebra[Pair]):
    """numbers: the plain interpreter; companions: those of the lanes, each of the shape of its lane."""

    numbers: Tensors
    companions: State

    @abstractmethod
    def alone(self, number: Labelled) -> Pair:
        """A number that is the sum of no others, and exact: a mask, say."""

    def read(self, expression: Expr, token: Token) -> Pair:
        program, lanes = self.numbers.program, self.companions
        terms = [labelled_view(program, view, lanes[view.lane], token).map(torch.abs) for view in expression]
        return self.numbers.read(expression, token), total(terms)

    def product(self, factors: list[Pair], keep: str) -> Pair:
        return contract([number for number, _ in factors], keep), contract([other for _, other in factors], keep)

    def sum(self, terms: list[Pair]) -> Pair:
        return total([number for number, _ in terms]), total([other for _, other in terms])

    def apply(self, score: Score, argument: Pair, value: Pair | None) -> Pair:
        return self.alone(self.numbers.apply(score, argument[0], None))

    def softmax(self, scores: Pair, mask: Pair | None) -> Pair:
        return self.alone(self.numbers.softmax(scores[0], mask and mask[0]))

    def mask(self, seen: Seen) -> Pair:
        return self.alone(self.numbers.mask(seen))

    def count(self, value: Pair, mask: Pair | None, power: Literal[-1, 1]) -> Pair:
        number, other = (self.numbers.count(part, mask and mask[0], power) for part in value)
        return number, other

    def scale(self, value: Pair, factor: float) -> Pair:
        return self.numbers.scale(value[0], factor), self.numbers.scale(value[1], abs(factor))

    def varies(self, value: Pair) -> bool:
        return self.numbers.varies(value[0])


@dataclass
class Balls(Pairs):
    """A number and its radius: it is off by no more. Verification allows this much.

    It is cruder than the affine forms: radii add up, nothing cancels. And it does not look at the computed values: a
    radius comes from the numbers alone, so a wrong weight does not enlarge it. The contribution of a function is given
    by ``off``: the error of its approximant, or its rounding. Radii of arguments go through f by its values around
    them.
    """

    off: Off

    def alone(self, number: Labelled) -> Pair:
        return number, number.map(torch.zeros_like)

    def product(self, factors: list[Pair], keep: str) -> Pair:
        """|prod (c + r) - prod c| <= prod (|c| + |r|) - prod |c|, as a sum in which nothing cancels."""
        sizes = [centre.map(torch.abs) for centre, _ in factors]
        larger = [centre.map(torch.abs) + radius for centre, radius in factors]
        parts = [contract([*larger[:m], factors[m][1], *sizes[m + 1 :]], keep) for m in range(len(factors))]
        return contract([centre for centre, _ in factors], keep), total(parts)

    def apply(self, score: Score, argument: Pair, value: Pair | None) -> Pair:
        (centre, radius), f = argument, self.numbers.functions[score.f.name]
        at, off = centre.map(f), radius.aligned(centre.labels)
        moved = [(f(centre.tensor + side * off) - at.tensor).abs() for side in (1.0, -1.0)]
        return at, Labelled(2 * torch.maximum(*moved) + self.off(score, centre), centre.labels)

    def softmax(self, scores: Pair, mask: Pair | None) -> Pair:
        """Scores that are off by rho change a weight by no more than a factor of exp(2 rho)."""
        weights, _ = super().softmax(scores, mask)
        return weights, self.numbers.scale(weights, float(torch.expm1(2 * scores[1].tensor.amax())))


def radii_after(
    program: Program, layer: Layer, state: State, functions: Mapping[str, ScalarFunction], radii: State, off: Off
) -> State:
    """The errors of the lanes after a layer, from those before it; a lane that is not named has none. Radii are (batch,
    tokens or 1, *shape).
    """
    before = {name: radii.get(name, torch.zeros_like(lane)).expand_as(lane) for name, lane in state.items()}
    balls, after = Balls(Tensors(program, state, functions), before, off), dict(before)
    for i in layer.instructions:
        _, radius = added(program, i, balls)
        after[i.dst.lane] = placed(after[i.dst.lane], i, radius.aligned("BI" + i.family))
    return after
