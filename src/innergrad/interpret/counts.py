"""The operations of an instruction, counted. Shared lanes and scores are used once, as by the plain interpreter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from innergrad.flops import SOFTMAX, Flops, feature_sum, functions, product, total
from innergrad.functions.fits.sums import FeatureSum
from innergrad.functions.scalar import IDENTITY, NEGATION, PiecewiseLinear
from innergrad.interpret.walk import Algebra, Seen, Token, added
from innergrad.ir.program import Attend, Expr, Program, Score

Axes = frozenset[str]


def structured_flops(program: Program, i: Attend, tokens: int, stands: Mapping[str, object] | None = None) -> Flops:
    """Of the inner products, of the functions of scores, and of additions, at every token written.

    stands: the approximants of the functions, by name. A sum of features is counted by its terms, any other function as
    one operation, and a linear one, which can be part of the products, as none.
    """
    counts = Counts(program, {**program.label_sizes(i), "I": tokens, "S": tokens}, stands or {})
    written = Axes("I") if not program.stream[i.dst.lane].shared else Axes()
    axes = added(program, i, counts) | Axes(i.family) | written
    return total(counts.made) + product(counts.size(axes | counts.summed[-1]))


def function_flops(f: object, count: int) -> Flops:
    """Of a function, or of its approximant, at so many numbers."""
    if isinstance(f, PiecewiseLinear):
        return feature_sum(count, len(f.hinges)) if f.knots else Flops()
    if isinstance(f, FeatureSum):
        return feature_sum(count, len(f.a)) + (product(count) if f.slope else Flops())
    return Flops() if f in (IDENTITY, NEGATION) else functions(count)


@dataclass(frozen=True)
class Counts(Algebra[Axes]):
    """Values are the axes that they have. made: the inner products and functions so far."""

    program: Program
    sizes: dict[str, int]
    stands: Mapping[str, object]
    made: list[Flops] = field(default_factory=list)
    summed: list[Axes] = field(default_factory=lambda: [Axes()])

    def size(self, axes: Axes) -> int:
        return math.prod(self.sizes[label] for label in axes)

    def read(self, expression: Expr, token: Token) -> Axes:
        own = any(not self.program.stream[view.lane].shared for view in expression)
        return Axes(label for view in expression for label in view.labels) | (Axes(token) if own else Axes())

    def product(self, factors: list[Axes], keep: str) -> Axes:
        axes = Axes().union(*factors)
        if "S" in keep:  # an inner product; additions are counted at the end
            self.made.append(product(self.size(axes)))
        else:
            self.summed.append(axes)
        return axes & Axes(keep)

    def sum(self, terms: list[Axes]) -> Axes:
        return Axes().union(*terms)

    def apply(self, score: Score, argument: Axes, value: Axes | None) -> Axes:
        self.made.append(function_flops(self.stands.get(score.f.name, score.f), self.size(argument)))
        return argument

    def softmax(self, scores: Axes, mask: Axes | None) -> Axes:
        axes = scores | Axes("S") | (mask or Axes())
        self.made.append(functions(self.size(axes), SOFTMAX))
        return axes

    def mask(self, seen: Seen) -> Axes:
        if seen.single:  # one token is read, not all
            self.sizes["S"] = 1
        return Axes(seen.labels) - Axes("B")

    def count(self, value: Axes, mask: Axes | None, power: Literal[-1, 1]) -> Axes:
        return value

    def scale(self, value: Axes, factor: float) -> Axes:
        return value

    def varies(self, value: Axes) -> bool:
        return "S" in value
