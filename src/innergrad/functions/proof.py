"""Sup errors of approximants, proven; never sampled.

- on a cell [a, b] inside one piece, with e = f - f^ and |f''| <= c there, |e| <= max(|e(a)|, |e(b)|) + c (b - a)^2 / 8;
  cells are halved until the bound is below epsilon;
- where f'' has no bound, at a break with an infinite slope, |e| is at most the distance between the ranges of f and f^
  on the cell;
- on the rays, f minus its asymptote lies between its value at the last knot and its limit, and f^ is parallel to the
  asymptote, so |e| is at most the larger of the two distances.

f is enclosed by interval arithmetic with outward rounding, f'' on each cell too, and tails are those of
:mod:`innergrad.functions.facts`. f^ is the piecewise-linear function of its knots and slopes in rational arithmetic;
what its table in float64 adds to it on the cells is part of the error. Rounding that grows with |t| along a ray is not:
it belongs to the arithmetic that evaluates there.

A function whose formula has no interval rules is *trusted* instead: its values in float64 to 16 units in the last
place, and its declarations, which sampling can refute but not prove. ``prove_facts(f).proven`` tells which it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch

from innergrad.errors import InputError
from innergrad.functions.facts import Facts, Tail, exact_knots, facts_on
from innergrad.functions.intervals import Interval
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.rules import evaluate
from innergrad.functions.scalar import Asymptote, Function

_TRUSTED = 16 * np.finfo(np.float64).eps
_STEPS = 2.0**-51  # a subtraction, a product and a sum, relative to the largest number that occurs
_UP = 1 + 1e-14  # for the few roundings of the bound itself


def prove(f: Function, approximant: PiecewiseLinear, epsilon: float) -> PiecewiseLinear:
    """The approximant with its proven error; raises if |f - f^| <= epsilon cannot be proven."""
    lo, hi = approximant.domain
    error = _Error(f, approximant, facts_on(f, approximant.domain))
    inner = {*approximant.knots, approximant.anchor, *(b for b in f.breaks if lo < b < hi)}
    edges = np.array(sorted(inner | {end for end in (lo, hi) if math.isfinite(end)}))
    worst = 0.0
    if math.isinf(lo):
        worst = max(worst, error.on_ray(f.left, float(edges[0]), -1))
    if math.isinf(hi):
        worst = max(worst, error.on_ray(f.right, float(edges[-1]), 1))
    if worst > epsilon:
        raise InputError(
            f"{f.name} does not approach its declared asymptotes", got=f"distance {worst:g} at the last knot"
        )
    if not error.facts.proven:
        _check_size(f, edges)
    return replace(approximant, error=max(worst, error.on_cells(edges[:-1], edges[1:], epsilon)))


@dataclass(frozen=True)
class _Line:
    """Pieces of f^: on piece i it is y_i + slope_i (t - x_i) with y_i enclosed; its table is off by at most off_i."""

    knots: np.ndarray
    x: np.ndarray
    y: Interval
    slope: np.ndarray
    off: np.ndarray

    @staticmethod
    def of(f: PiecewiseLinear) -> _Line:
        x, y, slope = f._table
        exact = {float(knot): value for knot, value in exact_knots(f)}
        near = np.array([float(exact[point]) for point in x.tolist()])  # correctly rounded
        off = np.array([float(abs(exact[point] - Fraction(value))) for point, value in zip(x, y, strict=True)])
        enclosed = Interval(np.nextafter(near, -math.inf), np.nextafter(near, math.inf))
        return _Line(np.array(f.knots), x, enclosed, slope, np.nextafter(off, math.inf))

    def piece(self, inside: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.searchsorted(self.knots, inside)
        return found

    def at(self, t: np.ndarray, piece: np.ndarray) -> Interval:
        x, y = Interval.point(self.x[piece]), Interval(self.y.lo[piece], self.y.hi[piece])
        return y + (Interval.point(t) - x) * Interval.point(self.slope[piece])

    def rounding(self, t: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """Of the table at t, in float64."""
        size = self.y.magnitude[piece] + np.abs(self.slope[piece] * (t - self.x[piece]))
        total: np.ndarray = self.off[piece] + _STEPS * size
        return total


class _Error:
    """e = f - f^, from proven facts or from trust."""

    def __init__(self, f: Function, approximant: PiecewiseLinear, facts: Facts) -> None:
        self.f, self.approximant, self.facts, self.line = f, approximant, facts, _Line.of(approximant)

    def at(self, t: np.ndarray, piece: np.ndarray, side: int) -> np.ndarray:
        """A bound on |e| at t, as a limit from that side, with the rounding of the table."""
        if self.facts.proven:
            value = evaluate(self.f.value, t, t, side).value
        else:
            near = self.f(torch.from_numpy(np.ascontiguousarray(t))).numpy()
            margin = _TRUSTED * (1 + np.abs(near))
            value = Interval(near - margin, near + margin)
        total: np.ndarray = (value - self.line.at(t, piece)).magnitude + self.line.rounding(t, piece)
        return total

    def curvature(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if not self.facts.proven:
            return np.full(a.shape, self.f.curvature)
        local: np.ndarray = np.minimum(evaluate(self.f.value, a, b).second.magnitude, self.facts.curvature)
        return local

    def on_ray(self, asymptote: Asymptote | None, edge: float, side: int) -> float:
        """From the edge outwards."""
        ray = self.approximant.slopes[0 if side < 0 else -1]
        if asymptote is None or side * (edge - asymptote.beyond) < 0 or ray != asymptote.slope:
            raise InputError(f"{self.f.name}: the approximant has no ray along a declared asymptote beyond {edge:g}")
        tail = self.facts.left if side < 0 else self.facts.right
        if tail is None:  # trusted
            _check_asymptote(self.f, asymptote, edge, side)
            tail = Tail((0.0, 0.0), 0.0)
        point, piece = np.array([edge]), self.line.piece(np.array([edge + side]))
        line = Interval.point(point) * Interval.point(asymptote.slope * np.ones(1))
        offset = line + Interval.point(asymptote.intercept * np.ones(1)) - self.line.at(point, piece)
        limit = (offset + Interval(np.array([tail.limit[0]]), np.array([tail.limit[1]]))).magnitude
        at_edge = self.at(point, piece, side)
        return float(np.maximum(limit + self.line.rounding(point, piece), at_edge)[0] + tail.slack) * _UP

    def on_cells(self, a: np.ndarray, b: np.ndarray, epsilon: float) -> float:
        """On the cells [a, b], none of which has a knot or a break inside; they are halved where need be."""
        largest, piece = 0.0, self.line.piece(0.5 * (a + b))
        for _ in range(64):
            if a.size == 0:
                return largest
            left, right = self.at(a, piece, 1), self.at(b, piece, -1)
            ends = np.maximum(left, right)
            if (ends > epsilon).any():
                break
            middle, bend = 0.5 * (a + b), self.curvature(a, b) * (b - a) ** 2 / 8
            if not self.facts.proven:
                self.check_bend(a, b, bend)
            bound, steep = (ends + bend) * _UP, ~np.isfinite(bend)
            if steep.any():
                bound[steep] = self.apart(a[steep], b[steep], piece[steep]) * _UP
            done = bound <= epsilon
            largest = max(largest, float(bound[done].max(initial=0.0)))
            a, b = np.concatenate([a[~done], middle[~done]]), np.concatenate([middle[~done], b[~done]])
            piece = np.concatenate([piece[~done], piece[~done]])
        what = f"{self.f.name}: a sup error of {epsilon:g} could not be proven"
        raise InputError(what, hint="check its curvature, asymptotes and breaks")

    def apart(self, a: np.ndarray, b: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """A bound on |e| on the cells from the ranges of f and f^; cells are inside one piece."""
        if not self.facts.proven:
            return np.full(a.shape, math.inf)
        line = self.line.at(a, piece).hull(self.line.at(b, piece))
        rounding = np.maximum(self.line.rounding(a, piece), self.line.rounding(b, piece))
        total: np.ndarray = (evaluate(self.f.value, a, b).value - line).magnitude + rounding
        return total

    def check_bend(self, a: np.ndarray, b: np.ndarray, bend: np.ndarray) -> None:
        """Refute, by sampling, a false curvature."""
        left, centre, right = (self.f(torch.from_numpy(t)).numpy() for t in (a, 0.5 * (a + b), b))
        if (np.abs(centre - 0.5 * (left + right)) > bend + _TRUSTED * (1 + np.abs(centre))).any():
            what = f"{self.f.name} bends more than its declared curvature"
            raise InputError(what, got=self.f.curvature, hint="declare sup |f''|")


def _check_size(f: Function, edges: np.ndarray) -> None:
    """Refute, by sampling, a false Lipschitz constant or bound."""
    t = np.linspace(edges[0], edges[-1], 2001)
    value = f(torch.from_numpy(t)).numpy()
    slope = float(np.abs(np.diff(value) / np.diff(t)).max())
    for fact, declared, seen in (("lipschitz", f.lipschitz, slope), ("bound", f.bound, float(np.abs(value).max()))):
        if seen > declared * (1 + 1e-9) + 1e-12:
            raise InputError(f"{f.name} exceeds its declared {fact}", got=f"{seen:g}", allowed=f"{declared:g}")


def _check_asymptote(f: Function, asymptote: Asymptote, edge: float, side: int) -> None:
    """Refute, by sampling, a false asymptote: f minus it must shrink outwards."""
    t = edge + side * np.geomspace(1e-3, 1e6, 400)
    distance = np.abs(f(torch.from_numpy(t)).numpy() - asymptote.slope * t - asymptote.intercept)
    rounding = _TRUSTED * (1 + np.abs(t))
    if (distance[1:] > distance[:-1] + rounding[1:]).any() or distance[-1] > 1e-3 + rounding[-1]:
        what = f"{f.name} does not approach its declared asymptote monotonically beyond {edge:g}"
        raise InputError(what, got=f"distance {distance[0]:g} there and {distance[-1]:g} at {t[-1]:g}")


def difference(f: Function, approximant: PiecewiseLinear, t: np.ndarray) -> np.ndarray:
    """f - f^ at the points t."""
    points = torch.from_numpy(np.ascontiguousarray(t))
    values: np.ndarray = (f(points) - approximant(points)).numpy()
    return values
