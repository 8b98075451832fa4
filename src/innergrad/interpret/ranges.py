"""Bounds on the arguments of scalar functions, by propagating the lanes' bounds through one pass of the program.

Only functions without asymptotes (sin) need one: their approximants live on a bounded interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from innergrad.interpret.walk import Algebra, Seen, Token, added
from innergrad.ir.program import Attend, Expr, Program, Score


def argument_bounds(
    program: Program, declared: Mapping[str, float], epsilon: float, n_examples: int
) -> dict[str, float]:
    """sup |argument| of every function by name, from the bounds of input and weight lanes (``declared`` overrides,
    e.g. x), for prompts of at most n_examples examples and any number of queries.

    Scratch lanes start each step at zero, so one pass through each loop suffices; approximants add epsilon to a
    function's size.
    """
    start = {
        lane.name: (0.0 if lane.role == "scratch" else declared.get(lane.name, lane.bound))
        for lane in program.stream.lanes
    }
    found: dict[str, float] = {}
    for layers in (*(loop.layers for loop in program.body), program.readout):
        bounds = dict(start)
        for layer in layers:
            after = dict(bounds)
            for i in layer.instructions:
                change = added(program, i, Ranges(program, i, bounds, epsilon, n_examples, found))
                if program.stream[i.dst.lane].role == "scratch":
                    after[i.dst.lane] += change.bound
            bounds = after
    return found


@dataclass(frozen=True)
class Range:
    """A bound on every entry. labels: its axes. tokens: on how many tokens S it is not zero, at most."""

    bound: float
    labels: frozenset[str] = frozenset()
    tokens: float = math.inf


@dataclass(frozen=True)
class Ranges(Algebra[Range]):
    """Largest absolute values; notes those of the arguments in ``found``."""

    program: Program
    instruction: Attend
    bounds: Mapping[str, float]
    epsilon: float
    n_examples: int
    found: dict[str, float] = field(default_factory=dict)

    def read(self, expression: Expr, token: Token) -> Range:
        """A lane of marks is 1 on a single token."""
        bound = sum(abs(view.coefficient) * self.bounds[view.lane] for view in expression)
        marked = {mark.lane for mark in self.program.marks}
        once = token == "S" and all(view.lane in marked for view in expression)
        return Range(
            bound,
            frozenset(x for view in expression for x in view.labels),
            float(len(expression)) if once else math.inf,
        )

    def product(self, factors: list[Range], keep: str) -> Range:
        labels, sizes = frozenset().union(*(f.labels for f in factors)), self.program.label_sizes(self.instruction)
        bound = 0.0 if any(f.bound == 0.0 for f in factors) else math.prod(f.bound for f in factors)
        terms = math.prod(sizes[label] for label in labels if label not in keep)
        return Range(terms * bound, labels & frozenset(keep), min(f.tokens for f in factors))

    def sum(self, terms: list[Range]) -> Range:
        labels = frozenset().union(*(term.labels for term in terms))
        return Range(sum(term.bound for term in terms), labels, sum(term.tokens for term in terms))

    def apply(self, score: Score, argument: Range, value: Range | None) -> Range:
        del value
        self.found[score.f.name] = max(self.found.get(score.f.name, 0.0), argument.bound)
        return Range(score.f.magnitude(argument.bound) + self.epsilon, argument.labels)

    def softmax(self, scores: Range, mask: Range | None) -> Range:
        return Range(1.0, scores.labels)

    def mask(self, seen: Seen) -> Range:
        tokens = 1.0 if seen.single else math.inf
        return Range(1.0, tokens=float(self.n_examples) if seen.lane == "t" else tokens)

    def count(self, value: Range, mask: Range | None, power: Literal[-1, 1]) -> Range:
        return Range(value.bound if power < 0 else value.bound * self._tokens(math.inf), value.labels)

    def scale(self, value: Range, factor: float) -> Range:
        return Range(0.0 if factor == 0.0 else abs(factor) * value.bound, value.labels, value.tokens)

    def varies(self, value: Range) -> bool:
        return True

    def over(self, factors: list[Range], keep: str, mask: Range | None, mean: bool) -> Range:
        """A sum has as many terms as there are tokens on which no factor is zero; a mean is at most the largest."""
        term = self.product(factors if mask is None else [*factors, mask], keep)
        tokens = self._tokens(term.tokens)
        if mean:
            share = tokens / self._tokens(math.inf) if mask is None and math.isfinite(tokens) else 1.0
            return Range(share * term.bound, term.labels)
        return Range(0.0 if term.bound == 0.0 else tokens * term.bound, term.labels)

    def _tokens(self, most: float) -> float:
        return min(most, self.program.length or math.inf)
