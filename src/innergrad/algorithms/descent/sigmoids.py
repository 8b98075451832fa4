"""tanh, sigmoid and softmax, exactly, by softmax attention over *markers*: tokens before the examples that hold nothing
but their marks.

Three markers have the lane f: f[i] is 1 on marker i, and 0 elsewhere; the lane marked is 1 on all three. A token whose
scores over them are 0, z + log 2 and 2 z gives them the weights

    (1 - s)^2,   2 s (1 - s),   s^2           s = sigmoid(z)

so every polynomial of degree two in s is a value that it reads: with a = 2, tanh z = 2 sigmoid(2 z) - 1,

    sigmoid(z)   = f[1] / 2 + f[2]            tanh(z)   = f[2] - f[0]
    sigmoid'(z)  = f[1] / 2                   tanh'(z)  = 2 f[1]

One head for a function and its derivative at one place, and no bound on z. Of classes, marker k holds class[k] = 1, and
a softmax of the logits over these is the softmax of the logits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from innergrad.algorithms.descent.step import times
from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Mark, Score
from innergrad.ir.stream import Lane

SIGMOIDS = 3  # markers of sigmoids
LOG_2 = f"{math.log(2.0)!r}*f[1]"


class Sigmoid(NamedTuple):
    """A function of s = sigmoid(rate z), and its derivative in z, as values on the markers."""

    rate: float
    value: str
    slope: str

    def of(self, dst: str, z: str, *, slope: bool = False, scale: float = 1.0) -> Attend:
        """dst += scale f(z), or scale f'(z)."""
        score = Score(IDENTITY, (times(self.rate, z), "f[1] + 2.0*f[2]"), ("one", LOG_2))
        value = self.slope if slope else self.value
        return Attend(dst, score, value=value, scope="marked", reduce="softmax", scale=scale)


TANH = Sigmoid(2.0, "f[2] - f[0]", "2.0*f[1]")
SIGMOID = Sigmoid(1.0, "0.5*f[1] + f[2]", "0.5*f[1]")


def class_probabilities(dst: str, logits: str) -> Attend:
    """dst[k] += softmax(logits)[k]; logits: a lane."""
    score = Score(IDENTITY, (f"{logits}[c]", "class[c]"))
    return Attend(dst, score, value="class[k]", scope="classed", reduce="softmax")


def marker_lanes(classes: int = 0) -> tuple[Lane, ...]:
    """The lanes that tell markers apart."""
    lanes = (Lane("f", (SIGMOIDS,), "input", bound=1.0), Lane("marked", (), "input", bound=1.0))
    if not classes:
        return lanes
    return (*lanes, Lane("class", (classes,), "input", bound=1.0), Lane("classed", (), "input", bound=1.0))


def marks(classes: int = 0) -> tuple[Mark, ...]:
    """The same tokens mark sigmoids and classes."""
    found = [(Mark("f", i, i), Mark("marked", i, 0)) for i in range(SIGMOIDS)]
    found += [(Mark("class", i, i), Mark("classed", i, 0)) for i in range(classes)]
    return tuple(mark for pair in found for mark in pair)
