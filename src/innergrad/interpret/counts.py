"""The operations of an instruction, counted. Shared lanes and scores are used once, as by the plain interpreter."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from innergrad.interpret.walk import Algebra, Seen, Token, added
from innergrad.ir.program import Attend, Expr, Program, Score

Axes = frozenset[str]


def structured_flops(program: Program, i: Attend, tokens: int) -> int:
    """Multiply-adds, times two: those of the inner products, and those of what is added, at every token written."""
    counts = Counts(program, {**program.label_sizes(i), "I": tokens, "S": tokens})
    written = Axes("I") if not program.stream[i.dst.lane].shared else Axes()
    axes = added(program, i, counts) | Axes(i.family) | written
    return 2 * (sum(counts.products) + counts.size(axes | counts.summed[-1]))


@dataclass(frozen=True)
class Counts(Algebra[Axes]):
    """Values are the axes that they have. products: the sizes of the inner products so far."""

    program: Program
    sizes: dict[str, int]
    products: list[int] = field(default_factory=list)
    summed: list[Axes] = field(default_factory=lambda: [Axes()])

    def size(self, axes: Axes) -> int:
        return math.prod(self.sizes[label] for label in axes)

    def read(self, expression: Expr, token: Token) -> Axes:
        own = any(not self.program.stream[view.lane].shared for view in expression)
        return Axes(label for view in expression for label in view.labels) | (Axes(token) if own else Axes())

    def product(self, factors: list[Axes], keep: str) -> Axes:
        axes = Axes().union(*factors)
        if "S" in keep:  # an inner product; what is added is counted at the end
            self.products.append(self.size(axes))
        else:
            self.summed.append(axes)
        return axes & Axes(keep)

    def sum(self, terms: list[Axes]) -> Axes:
        return Axes().union(*terms)

    def apply(self, score: Score, argument: Axes, value: Axes | None) -> Axes:
        return argument

    def softmax(self, scores: Axes, mask: Axes | None) -> Axes:
        return scores | Axes("S") | (mask or Axes())

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
