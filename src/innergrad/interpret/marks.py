"""Attention over markers as a function of the token's own numbers.

Markers are tokens whose lanes are known before the prompt is: nothing but marks fills them, and no layer writes them. A
softmax over such tokens, whose scores are rate_s t + log_s with one number t of the token that asks, gives

    sum over s of value_s exp(rate_s t + log_s)  /  sum over s of exp(rate_s t + log_s)

a function of t (:class:`Mixture`); where marker s asks for entry s of a vector and returns it there, the softmax of the
vector. Nothing here knows of tanh, or of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from innergrad.interpret.graph import Coefficient, Linear, Node, Term, indices, of_node, rename, times
from innergrad.interpret.walk import Seen
from innergrad.ir.program import STANDARD_LANES, Program


@dataclass(frozen=True)
class Mixture:
    """t -> the mean of the values with weights exp(rate t + log); one entry of each for every marker."""

    rates: tuple[float, ...]
    logs: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def weights(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Functions that have these in common differ in their values alone."""
        return self.rates, self.logs

    def __call__(self, t: Tensor) -> Tensor:
        return together((self,), t)[0]


def together(functions: Sequence[Mixture], t: Tensor) -> tuple[Tensor, ...]:
    """Functions with the same weights, of one argument. The largest exponent is 0, so nothing overflows."""
    rates, logs = functions[0].weights
    scores = [t * rate + log for rate, log in zip(rates, logs, strict=True)]
    largest = torch.stack(scores).amax(0)
    each = [torch.exp(score - largest) for score in scores]
    total = torch.stack(each).sum(0)
    return tuple(sum((e * v for e, v in zip(each, f.values, strict=True) if v), t * 0.0) / total for f in functions)


class Read(NamedTuple):
    """The result of a softmax over markers: a coefficient times f(argument), entry by entry. Without an f, times the
    softmax of the argument, a vector, over its label.
    """

    coefficient: Coefficient
    argument: Linear
    f: Mixture | None = None
    label: str = ""


class Marks:
    """The values of a program's markers."""

    def __init__(self, program: Program) -> None:
        written = {i.dst.lane for layer in program.layers for i in layer.instructions}
        self.held: dict[str, Tensor] = {}  # (markers, *shape)
        for mark in program.marks:
            lane = program.stream[mark.lane]
            if lane.role == "input" and lane.name not in (*STANDARD_LANES, *written):
                held = self.held.setdefault(lane.name, torch.zeros(program.carriers, *lane.shape, dtype=torch.float64))
                held[mark.token].view(-1)[mark.entry] = 1.0

    def read(self, value: Linear, weights: Linear) -> Read | None:
        """The sum over tokens S of a value times softmax weights; None if others than markers have a say in it."""
        if weights.single is None or weights.single[0].op != "softmax":
            return None
        softmax, used, coefficient = weights.single
        (scores, labels), *masks = softmax.args
        shown = self._shown(masks[0][0]) if masks else None
        if shown is None:
            return None
        asked = (scores, rename(labels, dict(zip(softmax.labels, used, strict=True))))
        held = None if value.single is None else self._known(value.single[0])
        if held is not None and value.single is not None and held.ndim == 2:
            vector, place = self._vector(asked, shown, held), times(coefficient, value.single[2])
            label = indices(value.single[1])
            return None if vector is None else Read(place, of_node(vector[0], vector[1] + label), label=label)
        values = [self._numbers(value, marker) for marker in shown]
        found = _function([self._score(asked, marker) for marker in shown], values)
        return None if found is None else Read(coefficient, *found)

    def _shown(self, mask: Node) -> list[int] | None:
        """The markers in a scope, if there is nobody else."""
        lane = mask.f.lane if mask.op == "mask" else None
        if lane not in self.held or mask.f != Seen(lane=lane):
            return None
        return [marker for marker, one in enumerate(self.held[lane].tolist()) if one]

    def _known(self, node: Node) -> Tensor | None:
        """The values of the markers in a node (markers, *sizes), if they are known."""
        if node.op == "lane":
            return self.held.get(node.name)
        inside = [self._known(argument) for argument, _ in node.args]
        held = [one for one in inside if one is not None]
        if not held or len(held) < len(inside):
            return None
        if node.op == "select":
            return held[0][(slice(None), *(slice(None) if i is None else i for i in node.index))]
        alike = all(used == node.labels for _, used in node.args) and not any(p for _, p in node.coefficients)
        if node.op != "sum" or not alike or node.constant[1]:
            return None
        terms = (number * one for (number, _), one in zip(node.coefficients, held, strict=True))
        return sum(terms, torch.zeros_like(held[0])) + node.constant[0]

    def _numbers(self, value: Linear, marker: int) -> Linear | None:
        """A linear combination, read at the marker."""
        total: Linear | None = Linear({}, value.constant)
        for term, coefficient in value.terms.items():
            part = self._score(term, marker)
            total = None if part is None or total is None else total.plus(part.scaled(coefficient))
        return total

    def _score(self, term: Term, marker: int) -> Linear | None:
        """A term, read at the marker, if it is linear in the lanes of other tokens."""
        node, used = term
        if "S" not in used:
            return Linear({term: (1.0, 0)})
        held = self._known(node)
        if held is not None:
            return Linear({}, (float(held[marker]), 0)) if held.ndim == 1 else None
        names = dict(zip(node.labels, used, strict=True))
        args = [(argument, rename(labels, names)) for argument, labels in node.args]
        if node.op == "sum":
            return self._numbers(Linear(dict(zip(args, node.coefficients, strict=True)), node.constant), marker)
        parts = [part for part in (self._score(argument, marker) for argument in args) if part is not None]
        if node.op != "product" or len(parts) != 2 or _contracts(node):
            return None
        number, other = sorted(parts, key=lambda part: bool(part.terms))
        return None if number.terms else other.scaled(number.constant)

    def _vector(self, scores: Term, shown: list[int], value: Tensor) -> Term | None:
        """The vector whose entries are the scores, marker by marker, if the values put them where they were, without
        the label of its entries.
        """
        node, used = scores
        if node.op != "product" or len(node.args) != 2 or indices(used):
            return None
        (vector, asks), (key, keeps) = sorted(node.args, key=lambda term: "S" in term[1])
        held = self._known(key)
        if "S" in asks or held is None or held.ndim != 2 or indices(asks) != indices(keeps):
            return None
        one = torch.eye(len(shown), dtype=held.dtype)
        placed = held[shown].shape == one.shape == value[shown].shape
        same = placed and torch.equal(held[shown], one) and torch.equal(value[shown], one)
        return (vector, asks.replace(indices(asks), "")) if same else None


def _contracts(node: Node) -> bool:
    return any(label not in node.labels for _, used in node.args for label in used)


def _function(scores: Sequence[Linear | None], values: Sequence[Linear | None]) -> tuple[Linear, Mixture] | None:
    """The number of which all scores are linear functions, and the function of it; None if there is none."""
    asked = [score for score in scores if score is not None]
    numbers = [value.constant for value in values if value is not None and not value.terms]
    powers = [power for score in asked for _, power in (*score.terms.values(), score.constant)]
    first = next((score for score in asked if score.terms), None)
    if first is None or len(asked) < len(scores) or len(numbers) < len(values) or any(powers):
        return None
    t = first.scaled((1.0 / next(iter(first.terms.values()))[0], 0))
    t = Linear(t.terms)
    rates = [next(iter(score.terms.values()), (0.0, 0))[0] for score in asked]
    if any(score.terms != t.scaled((rate, 0)).terms for score, rate in zip(asked, rates, strict=True)):
        return None
    logs = tuple(score.constant[0] for score in asked)
    return t, Mixture(tuple(rates), logs, tuple(number for number, _ in numbers))
