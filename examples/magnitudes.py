"""An interpretation: a bound on the absolute value of every lane after every layer, from bounds of the input lanes.

Run it: ``python examples/magnitudes.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

import innergrad as ig
from innergrad import Attend, Program, Score
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place
from innergrad.ir.program import Expr


@dataclass(frozen=True)
class Size:
    """At most ``most`` in absolute value, at every token and index; labels: the index labels it depends on."""

    most: float
    labels: frozenset[str] = frozenset()


def times(*sizes: float) -> float:
    """With 0 inf = 0: what is zero stays zero."""
    return 0.0 if 0.0 in sizes else math.prod(sizes)


@dataclass(frozen=True)
class Sizes(Algebra[Size]):
    """bounds: of every lane. tokens: how many there are, at most. slack: function -> what its approximant is off by."""

    program: Program
    instruction: Attend
    bounds: Mapping[str, float]
    tokens: float
    slack: Mapping[str, float]

    def read(self, expression: Expr, token: Token) -> Size:
        most = sum(times(abs(view.coefficient), self.bounds[view.lane]) for view in expression)
        return Size(most, frozenset(x for view in expression for x in view.labels))

    def product(self, factors: list[Size], keep: str) -> Size:
        """As many terms as the labels that are summed have values; sums over tokens are in ``over``."""
        labels, size = frozenset().union(*(f.labels for f in factors)), self.program.label_sizes(self.instruction)
        terms = math.prod(size[label] for label in labels - frozenset(keep))
        return Size(times(terms, *(f.most for f in factors)), labels & frozenset(keep))

    def sum(self, terms: list[Size]) -> Size:
        return Size(sum(term.most for term in terms), frozenset().union(*(term.labels for term in terms)))

    def apply(self, score: Score, argument: Size, value: Size | None) -> Size:
        f = score.f
        most = largest(f.exact, argument.most) if f.exact is not None else f.magnitude(argument.most)
        return Size(most + self.slack.get(f.name, 0.0), argument.labels)

    def softmax(self, scores: Size, mask: Size | None) -> Size:
        """Weights sum to at most one, so the sum over tokens of weights times values is at most the largest value."""
        return Size(1.0, scores.labels)

    def mask(self, seen: Seen) -> Size:
        return Size(1.0)

    def count(self, value: Size, mask: Size | None, power: Literal[-1, 1]) -> Size:
        return value if power < 0 else self.scale(value, self.tokens)

    def scale(self, value: Size, factor: float) -> Size:
        return Size(times(abs(factor), value.most), value.labels)

    def varies(self, value: Size) -> bool:
        return True

    def over(self, factors: list[Size], keep: str, mask: Size | None, mean: bool) -> Size:
        """A mean is at most the largest term, a sum at most as many of them as there are tokens."""
        term = self.product(factors, keep)
        return term if mean else self.scale(term, self.tokens)


def largest(f: PiecewiseLinear, radius: float, slope: float = 0.0) -> float:
    """The largest |f(t) + slope t| for |t| <= radius: at a knot or at an end."""
    if math.isinf(radius):
        return math.inf
    t = torch.tensor([-radius, radius, *(k for k in f.knots if abs(k) < radius)], dtype=torch.float64)
    return float((f(t) + slope * t).abs().max())


def magnitudes(
    program: Program, bounds: Mapping[str, float], tokens: float = math.inf, slack: Mapping[str, float] | None = None
) -> Iterator[tuple[str, dict[str, float]]]:
    """(layer, lane -> bound) after every layer. bounds: of the lanes before the first; by default what they declare,
    and 0 for scratch lanes.
    """
    now = {
        lane.name: bounds.get(lane.name, abs(lane.fill) if lane.role == "scratch" else lane.bound)
        for lane in program.stream.lanes
    }
    for layer, _ in program.schedule():
        alone = {i.dst.lane: i for i in layer.instructions if in_place(i) is not None}  # dst + f(dst) in one: clears
        after = {
            lane: largest(f, most, 1.0) if lane in alone and (f := in_place(alone[lane])) is not None else most
            for lane, most in now.items()
        }
        for i in layer.instructions:
            if alone.get(i.dst.lane) is not i:
                after[i.dst.lane] += added(program, i, Sizes(program, i, now, tokens, slack or {})).most
        now = after
        yield layer.name, dict(now)


if __name__ == "__main__":
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), target="relu", variant="literal")
    given = {"x": 1.0, "y": 1.0, "omega": 2.0} | {lane.name: 1.0 for lane in tf.program.weights}
    for name, found in magnitudes(tf.program, given, 16):
        print(f"{name:16}", {lane: round(bound, 3) for lane, bound in found.items() if bound})
