"""Continuous piecewise-linear functions on the whole line, and the same functions as sums of ReLUs.

A function is given by its knots x_1 < ... < x_m, its m + 1 slopes and one point ``(anchor, value)`` on it. The
*two-sided hinge basis* around the anchor,

    f(t) = value + s+ relu(t - anchor) - s- relu(anchor - t)
                 + sum_{x_i > anchor} D_i relu(t - x_i) + sum_{x_i < anchor} D_i relu(x_i - t)

with s+, s- the slopes right and left of the anchor and D_i the slope jumps, has the property that every hinge
vanishes at the anchor: f(anchor) is exact in floating point. Each term is stored as c relu(a t + b) with |a| + |b| <=
1 (Definition 4 of the paper), a a power of two, so that the normalisation is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError


@dataclass(frozen=True)
class PiecewiseLinear:
    """A continuous piecewise-linear function; see the module docstring.

    domain: the interval on which it stands for the function it approximates.
    error: proven sup |f - f^| on the domain. ``ramps``: open intervals on which it differs from a step function, at
        most by the jump.
    """

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    anchor: float = 0.0
    value: float = 0.0
    domain: tuple[float, float] = (-math.inf, math.inf)
    error: float = 0.0
    ramps: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        numbers = (*self.knots, *self.slopes, self.anchor, self.value)
        ordered = all(a < b for a, b in pairwise(self.knots)) and self.domain[0] < self.domain[1]
        if len(self.slopes) != len(self.knots) + 1 or not ordered or not all(map(math.isfinite, numbers)):
            raise InputError("a piecewise-linear function has increasing knots, and one slope more", got=repr(self))

    @property
    def pieces(self) -> int:
        return len(self.slopes)

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per piece: a point (x, y) on it, namely its knot nearest to the anchor, and its slope."""
        knots, slopes = np.array(self.knots), np.array(self.slopes)
        centre = int(np.searchsorted(knots, self.anchor))
        x, y = np.empty(len(slopes)), np.empty(len(slopes))
        x[centre], y[centre] = self.anchor, self.value
        for i in range(centre, len(knots)):  # rightwards: piece i + 1 starts at knot i
            x[i + 1], y[i + 1] = knots[i], y[i] + slopes[i] * (knots[i] - x[i])
        for i in range(centre - 1, -1, -1):  # leftwards: piece i ends at knot i
            x[i], y[i] = knots[i], y[i + 1] + slopes[i + 1] * (knots[i] - x[i + 1])
        return x, y, slopes

    def __call__(self, t: Tensor) -> Tensor:
        x, y, slope = (torch.as_tensor(column, dtype=t.dtype, device=t.device) for column in self._table)
        if len(self.slopes) == 1:
            return y[0] + slope[0] * (t - x[0])
        piece = torch.bucketize(t.detach().contiguous(), torch.as_tensor(self.knots, dtype=t.dtype, device=t.device))
        return y[piece] + slope[piece] * (t - x[piece])

    @cached_property
    def hinges(self) -> Float[np.ndarray, "terms 3"]:
        """Rows (a, b, c) with f(t) = sum c relu(a t + b), |a| + |b| <= 1, a a power of two; zero terms left out."""
        right = int(
            np.searchsorted(np.array(self.knots), self.anchor, side="right")
        )  # pieces right and left of the anchor
        left = int(np.searchsorted(np.array(self.knots), self.anchor, side="left"))
        terms = [
            (0.0, 1.0, self.value),
            (1.0, -self.anchor, self.slopes[right]),
            (-1.0, self.anchor, -self.slopes[left]),
        ]
        for i, (knot, jump) in enumerate(zip(self.knots, np.diff(self.slopes), strict=True)):
            if knot != self.anchor:
                terms.append((1.0, -knot, float(jump)) if i >= right else (-1.0, knot, float(jump)))
        return np.array([_normalised(*term) for term in terms if term[2] != 0.0]).reshape(-1, 3)

    def as_weights(self, t: Tensor) -> Tensor:
        """Evaluated the way the weights do."""
        return hinge_sum(self, t)

    def samples(self) -> Tensor:
        """Points at which rounding is measured: the knots, and between them."""
        knots = torch.tensor(sorted({*self.knots, self.anchor}), dtype=torch.float64)
        return torch.cat([knots, 0.5 * (knots[1:] + knots[:-1])])

    def hits(self, t: Tensor) -> Tensor:
        """Number of arguments that fall strictly inside a ramp."""
        return ramp_hits(self.ramps, t)

    def outside(self, t: Tensor) -> float | None:
        """The argument farthest outside the domain, or None."""
        return farthest_outside(self.domain, t)


def ramp_hits(ramps: tuple[tuple[float, float], ...], t: Tensor) -> Tensor:
    """Number of arguments strictly inside one of the intervals, which increase and do not overlap."""
    if not ramps:
        return torch.tensor(0)
    low, high = torch.tensor(ramps, dtype=torch.float64, device=t.device).T.contiguous()
    at = (torch.bucketize(t.double(), low) - 1).clamp(min=0)
    inside: Tensor = (t > low[at]) & (t < high[at])
    return inside.sum()


def farthest_outside(domain: tuple[float, float], t: Tensor) -> float | None:
    lo, hi = domain
    if t.numel() == 0 or (lo == -math.inf and hi == math.inf):
        return None
    low, high = float(t.detach().min()), float(t.detach().max())
    if low < lo or high > hi:
        return low if lo - low > high - hi else high
    return None


def _normalised(a: float, b: float, c: float) -> tuple[float, float, float]:
    scale = 2.0 ** math.ceil(math.log2(abs(a) + abs(b)))
    return a / scale, b / scale, c * scale


def ramps(jumps: tuple[tuple[float, float, int], ...], start: float, width: float) -> PiecewiseLinear:
    """A step function, ``start`` on the far left, with every (position, height, side) jump made a ramp of the given
    width.
    """
    knots: list[float] = []
    slopes = [0.0]
    intervals = []
    for position, height, side in sorted(jumps):
        lo, hi = (position, position + width) if side > 0 else (position - width, position)
        knots += [lo, hi]
        slopes += [height / width, 0.0]
        intervals.append((lo, hi))
    return PiecewiseLinear(
        tuple(knots), tuple(slopes), anchor=knots[0], value=start, error=math.inf, ramps=tuple(intervals)
    )


def hinge_sum(f: PiecewiseLinear, t: Tensor) -> Tensor:
    """The same function evaluated the way the weights do: as a sum of ReLUs, in the dtype of t."""
    a, b, c = (torch.as_tensor(column, dtype=t.dtype, device=t.device) for column in f.hinges.T)
    return torch.relu(t.unsqueeze(-1) * a + b) @ c
