"""Numbers that are off by no more than a radius, through one instruction after the other: what verification allows.

It is cruder than the affine forms: radii add up, nothing cancels. And it takes no look at what was computed: a radius
comes from the numbers alone, so a wrong weight does not enlarge it. What a function adds is given by ``off``: the error
of its approximant, or its rounding. Radii of arguments go through f by its values around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from innergrad.interpret.tensors import (
    Labelled,
    ScalarFunction,
    Tensors,
    attention,
    contract,
    divided,
    labelled_view,
    tokens_in,
    total,
)
from innergrad.interpret.walk import Algebra, Seen, Token, added
from innergrad.ir.program import Expr, Layer, Program, Score, View
from innergrad.ir.stream import State

Ball = tuple[Labelled, Labelled]  # centre and radius
Off = Callable[[Score, Labelled], Tensor]  # what a function is off by at its arguments


def radii_after(
    program: Program, layer: Layer, state: State, functions: Mapping[str, ScalarFunction], radii: State, off: Off
) -> State:
    """What the lanes are off by after a layer, from what they are off by before it: (batch, tokens or 1, *shape)."""
    balls, after = Balls(Tensors(program, state, functions), radii, off), dict(radii)
    for i in layer.instructions:
        radius = added(program, i, balls)[1].aligned("BI" + i.family)
        shape = torch.broadcast_shapes(radius.shape[:2], after[i.dst.lane].shape[:2])
        grown = after[i.dst.lane].expand(*shape, *after[i.dst.lane].shape[2:]).clone()
        grown[:, :, *i.dst.place] += radius
        after[i.dst.lane] = grown
    return after


@dataclass(frozen=True)
class Balls(Algebra[Ball]):
    """Centres as the plain interpreter has them, and radii."""

    numbers: Tensors
    radii: State
    off: Off

    def read(self, expression: Expr, token: Token) -> Ball:
        off = [self._view(view, token) for view in expression]
        return self.numbers.read(expression, token), total([part.map(torch.abs) for part in off])

    def _view(self, view: View, token: Token) -> Labelled:
        """A radius that is given once is that of every token."""
        radius, like = self.radii[view.lane], self.numbers.state[view.lane]
        each = radius.expand(-1, like.shape[1], *radius.shape[2:]) if radius.shape[1] == 1 else radius
        return labelled_view(self.numbers.program, view, each, token)

    def product(self, factors: list[Ball], keep: str) -> Ball:
        """|prod (c + r) - prod c| <= prod (|c| + |r|) - prod |c|, as a sum in which nothing cancels."""
        parts = []
        for m, (_, radius) in enumerate(factors):
            larger = [centre.map(torch.abs) + off for centre, off in factors[:m]]
            parts.append(contract([*larger, radius, *(centre.map(torch.abs) for centre, _ in factors[m + 1 :])], keep))
        return contract([centre for centre, _ in factors], keep), total(parts)

    def sum(self, terms: list[Ball]) -> Ball:
        return total([centre for centre, _ in terms]), total([radius for _, radius in terms])

    def apply(self, score: Score, argument: Ball, value: Ball | None) -> Ball:
        (centre, radius), f = argument, self.numbers.functions[score.f.name]
        at, off = centre.map(f), radius.aligned(centre.labels)
        moved = [(f(centre.tensor + side * off) - at.tensor).abs() for side in (1.0, -1.0)]
        return at, Labelled(2 * torch.maximum(*moved) + self.off(score, centre), centre.labels)

    def softmax(self, scores: Ball, mask: Ball | None) -> Ball:
        """Scores that are off by rho change a weight by no more than a factor of exp(2 rho)."""
        weights = attention(scores[0], None if mask is None else mask[0], tokens_in(self.numbers.state))
        factor = torch.expm1(2 * scores[1].tensor.amax())
        return weights, weights.map(lambda weight: factor * weight)

    def mask(self, seen: Seen) -> Ball:
        mask = self.numbers.mask(seen)
        return mask, mask.map(torch.zeros_like)

    def count(self, value: Ball, mask: Ball | None, power: Literal[-1, 1]) -> Ball:
        tokens, shown = tokens_in(self.numbers.state), None if mask is None else mask[0]
        if power > 0:
            return self.scale(value, tokens)
        return divided(value[0], shown, tokens), divided(value[1], shown, tokens)

    def scale(self, value: Ball, factor: float) -> Ball:
        return self.numbers.scale(value[0], factor), self.numbers.scale(value[1], abs(factor))

    def varies(self, value: Ball) -> bool:
        return self.numbers.varies(value[0])
