"""Sup errors of approximants, proven from the facts that a function declares; never sampled.

- on a cell [a, b] inside one piece, with e = f - f^ and |f''| <= curvature:  |e| <= max(|e(a)|, |e(b)|) + curvature
  (b - a)^2 / 8; cells are bisected until the bound is below epsilon, or the function does not deserve the declaration;
- on the rays, f minus its asymptote is monotone with limit 0, so |e| <= max(|e(last knot)|, |offset of the ray|).

Evaluations of f in float64 are trusted to a few units in the last place, which are added.

What is sampled are the declarations themselves: that can refute them, and a function that does not deserve its
declarations is refused.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from innergrad.errors import InputError
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import Asymptote, Function

_ROUNDING = 16 * np.finfo(np.float64).eps


def prove(f: Function, approximant: PiecewiseLinear, epsilon: float) -> PiecewiseLinear:
    """The approximant with its proven error; raises if |f - f^| <= epsilon cannot be proven from what f declares."""
    lo, hi = approximant.domain
    inner = {*approximant.knots, approximant.anchor, *(b for b in f.breaks if lo < b < hi)}
    edges = np.array(sorted(inner | {end for end in (lo, hi) if math.isfinite(end)}))
    error = 0.0
    if math.isinf(lo):
        error = max(error, _ray_error(f, approximant, f.left, edges[0], -1))
    if math.isinf(hi):
        error = max(error, _ray_error(f, approximant, f.right, edges[-1], 1))
    if error > epsilon:
        raise InputError(
            f"{f.name} does not approach its declared asymptotes", got=f"distance {error:g} at the last knot"
        )
    _check_size(f, edges)
    return replace(approximant, error=max(error, _cell_error(f, approximant, edges[:-1], edges[1:], epsilon)))


def _check_size(f: Function, edges: np.ndarray) -> None:
    """Refute, by sampling, a false Lipschitz constant or bound."""
    t = np.linspace(edges[0], edges[-1], 2001)
    value = f(torch.from_numpy(t)).numpy()
    slope = float(np.abs(np.diff(value) / np.diff(t)).max())
    for fact, declared, seen in (("lipschitz", f.lipschitz, slope), ("bound", f.bound, float(np.abs(value).max()))):
        if seen > declared * (1 + 1e-9) + 1e-12:
            raise InputError(f"{f.name} exceeds its declared {fact}", got=f"{seen:g}", allowed=f"{declared:g}")


def _ray_error(f: Function, approximant: PiecewiseLinear, asymptote: Asymptote | None, edge: float, side: int) -> float:
    """sup |f - f^| from the edge outwards: f - asymptote is monotone with limit 0, f^ is parallel to the asymptote."""
    ray = approximant.slopes[0 if side < 0 else -1]
    if asymptote is None or side * (edge - asymptote.beyond) < 0 or ray != asymptote.slope:
        raise InputError(f"{f.name}: the approximant has no ray along a declared asymptote beyond {edge:g}")
    _check_asymptote(f, asymptote, edge, side)
    at_edge = float(approximant(torch.tensor(edge, dtype=torch.float64)))
    offset = abs(at_edge - asymptote.slope * edge - asymptote.intercept)
    return max(offset, float(np.abs(difference(f, approximant, np.array([edge]))[0]))) + _ROUNDING * (1 + abs(at_edge))


def _cell_error(f: Function, approximant: PiecewiseLinear, a: np.ndarray, b: np.ndarray, epsilon: float) -> float:
    """sup |f - f^| on the cells [a, b], none of which has a knot or a break inside; cells are halved where need be."""
    largest = 0.0
    for _ in range(64):
        if a.size == 0:
            return largest
        middle = 0.5 * (a + b)
        left, right, centre = (difference(f, approximant, t) for t in (a, b, middle))
        ends = np.maximum(np.abs(left), np.abs(right))
        if (ends > epsilon).any():
            break
        bend = f.curvature * (b - a) ** 2 / 8
        rounding = _ROUNDING * (1 + np.abs(f(torch.from_numpy(middle)).numpy()))
        if (np.abs(centre - 0.5 * (left + right)) > bend + rounding).any():
            what = f"{f.name} bends more than its declared curvature"
            raise InputError(what, got=f.curvature, hint="declare sup |f''|")
        bound = ends + bend + rounding
        done = bound <= epsilon
        largest = max(largest, float(bound[done].max(initial=0.0)))
        a, b = np.concatenate([a[~done], middle[~done]]), np.concatenate([middle[~done], b[~done]])
    what = f"{f.name}: a sup error of {epsilon:g} could not be proven"
    raise InputError(what, hint="check its curvature, asymptotes and breaks")


def _check_asymptote(f: Function, asymptote: Asymptote, edge: float, side: int) -> None:
    """A declaration can be refuted, not proven, by sampling: f minus its asymptote must shrink outwards."""
    t = edge + side * np.geomspace(1e-3, 1e6, 400)
    distance = np.abs(f(torch.from_numpy(t)).numpy() - asymptote.slope * t - asymptote.intercept)
    rounding = _ROUNDING * (1 + np.abs(t))
    if (distance[1:] > distance[:-1] + rounding[1:]).any() or distance[-1] > 1e-3 + rounding[-1]:
        what = f"{f.name} does not approach its declared asymptote monotonically beyond {edge:g}"
        raise InputError(what, got=f"distance {distance[0]:g} there and {distance[-1]:g} at {t[-1]:g}")


def difference(f: Function, approximant: PiecewiseLinear, t: np.ndarray) -> np.ndarray:
    """f - f^ at the points t."""
    points = torch.from_numpy(np.ascontiguousarray(t))
    values: np.ndarray = (f(points) - approximant(points)).numpy()
    return values
