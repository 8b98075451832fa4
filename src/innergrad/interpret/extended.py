"""An instruction in extended precision: the numbers that rounding is measured against.

A certificate compares the written lanes of a layer with the addends of its instructions. Where no function is
approximated, nothing but rounding is left, and the comparison itself must be finer than float64. So the walk is taken
once more, on numpy's ``longdouble``: 64 bits of a mantissa on x86, 53 where the platform has no such numbers (then
nothing is gained, and nothing is lost). ``UNIT`` is the unit of rounding. numpy's exponential of these numbers is the C
library's, and is taken to be accurate to the same number of units in the last place as torch's functions are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.interpret.plain import labelled_view, tokens_in
from innergrad.interpret.walk import Algebra, Seen, Token
from innergrad.ir.program import Expr, Program, Score
from innergrad.ir.stream import State

Array = npt.NDArray[np.longdouble]
UNIT = 2.0 ** -(int(np.finfo(np.longdouble).nmant) + 1)


@dataclass(frozen=True)
class Long:
    """Numbers with labelled axes, as :class:`innergrad.interpret.plain.Labelled`."""

    array: Array
    labels: str

    def aligned(self, labels: str) -> Array:
        """In the given order, with axes of length 1 for labels it lacks."""
        present = [label for label in labels if label in self.labels]
        array = self.array.transpose([self.labels.index(label) for label in present])
        missing = tuple(axis for axis, label in enumerate(labels) if label not in self.labels)
        return np.expand_dims(array, missing)

    def with_labels(self, more: str) -> str:
        """Its labels, and then those it lacks."""
        return "".join(dict.fromkeys(self.labels + more))


def long(tensor: Tensor) -> Array:
    """Exactly."""
    return tensor.detach().cpu().double().numpy().astype(np.longdouble)


def apart(after: Tensor, before: Tensor, change: Array) -> Tensor:
    """|after - before - change| in float64, not less; but a number too small for a float64 is zero."""
    with np.errstate(invalid="ignore", over="ignore"):  # of a run that overflows nothing is known
        difference = np.abs(long(after) - long(before) - change).astype(np.float64)
    return torch.from_numpy(difference) * (1 + 2.0**-50)


@dataclass(frozen=True)
class Extended(Algebra[Long]):
    """The numbers that an instruction adds. Of functions it knows multiples; of others, an instruction is refused."""

    program: Program
    state: State

    def read(self, expression: Expr, token: Token) -> Long:
        terms = []
        for view in expression:
            seen = labelled_view(self.program, replace(view, coefficient=1.0), self.state[view.lane], token)
            terms.append(Long(long(seen.tensor) * np.longdouble(view.coefficient), seen.labels))
        return self.sum(terms)

    def product(self, factors: list[Long], keep: str) -> Long:
        present = "".join(label for label in keep if any(label in factor.labels for factor in factors))
        equation = ",".join(factor.labels for factor in factors) + "->" + present
        return Long(np.einsum(equation, *(factor.array for factor in factors)), present)

    def sum(self, terms: list[Long]) -> Long:
        found = terms[0]
        for term in terms[1:]:
            labels = found.with_labels(term.labels)
            found = Long(found.aligned(labels) + term.aligned(labels), labels)
        return found

    def apply(self, score: Score, argument: Long, value: Long | None) -> Long:
        f = score.f.exact
        if f is None or f.knots or f.value or f.anchor:
            raise InputError("no values in extended precision are known", got=score.f.name)
        return self.scale(argument, f.slopes[0])

    def softmax(self, scores: Long, mask: Long | None) -> Long:
        labels = scores.with_labels("S" if mask is None else "S" + mask.labels)
        axis, z = labels.index("S"), scores.aligned(labels)
        tokens = tokens_in(self.state)
        z = np.broadcast_to(z, [tokens if n == axis else size for n, size in enumerate(z.shape)])
        if mask is not None:
            z = np.where(mask.aligned(labels) == 0, np.longdouble(-np.inf), z)
        top = z.max(axis, keepdims=True)
        weights: Array = np.exp(z - np.where(np.isfinite(top), top, np.longdouble(0)))
        total: Array = weights.sum(axis, keepdims=True)
        return Long(weights / np.maximum(total, np.finfo(np.longdouble).tiny), labels)

    def mask(self, seen: Seen) -> Long:
        return Long(long(seen.mask(self.state, tokens_in(self.state))), seen.labels)

    def count(self, value: Long, mask: Long | None, power: Literal[-1, 1]) -> Long:
        tokens = tokens_in(self.state)
        if power > 0:
            return self.scale(value, tokens)
        shown = Long(np.array(tokens, np.longdouble), "") if mask is None else self.product([mask], "BI")
        labels = value.with_labels(shown.labels)
        return Long(value.aligned(labels) / np.maximum(shown.aligned(labels), 1.0), labels)

    def scale(self, value: Long, factor: float) -> Long:
        return Long(value.array * np.longdouble(factor), value.labels)

    def varies(self, value: Long) -> bool:
        return "S" in value.labels
