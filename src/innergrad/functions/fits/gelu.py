"""Sums of GeLUs: units of an MLP.

- Smooth functions: knots spaced evenly over the domain, slope 0.7 knot spacings, signs alternating. Least squares on
  Chebyshev points is then well conditioned (sum |c_m| / |a_m| of the size of f), so that one set of weights serves
  float64 and float32, and the error falls exponentially with the number of knots for analytic f.
- Linear functions are exact: gelu(z) - gelu(-z) = z. Piecewise-linear ones are sums of steep units.
- Products: u v = ((u + v)^2 - (u - v)^2) / 4, and z^2 ~ sum_k c_k (gelu(z / s_k) + gelu(-z / s_k)) with several
  scales s_k, which cancel the higher terms of the series one after the other.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import torch

from innergrad.errors import InputError
from innergrad.functions.approximants import RAMP, approximate
from innergrad.functions.fits.sums import FeatureSum, domain_of, feature, hinge_sum, less, with_error
from innergrad.functions.scalar import Function

UNITS = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256)
STEEPNESS = 0.7  # slope of a unit, in knot spacings: best of 0.5 .. 2 for tanh, sigmoid, softplus, sin and derivatives
Scales = tuple[tuple[float, float], ...]  # (s, c): z^2 ~ sum c (gelu(z / s) + gelu(-z / s)) for |z| <= 1
_gelu = feature("gelu")


def gelu_sum(f: Function, epsilon: float, domain: tuple[float, float], ramp: float = RAMP) -> FeatureSum:
    """The function as a sum of GeLUs, with the fewest units that reach epsilon on the domain, or on its own."""
    if f.exact is not None or f.jumps:
        return hinge_sum(approximate(f, max(epsilon, 1e-8), ramp=ramp), epsilon)
    best, domain = math.inf, domain_of(f, domain)
    for units in UNITS:
        fitted = _fit(f, units, domain)
        if fitted.error <= epsilon:
            return fitted
        best = min(best, fitted.error)
    raise InputError(
        f"{f.name} is not a sum of {UNITS[-1]} GeLUs to within epsilon on [{domain[0]:g}, {domain[1]:g}]",
        got=f"epsilon = {epsilon:g}",
        allowed=f"at least {best:.1e}",
        hint=less(f),
    )


@lru_cache(maxsize=512)
def _fit(f: Function, units: int, domain: tuple[float, float]) -> FeatureSum:
    centre, radius = (domain[0] + domain[1]) / 2, (domain[1] - domain[0]) / 2
    knots = centre + np.linspace(-1.1 * radius, 1.1 * radius, units)
    a = STEEPNESS / (2.2 * radius / (units - 1)) * np.where(np.arange(units) % 2, 1.0, -1.0)
    b = -a * knots
    angles = np.pi * (np.arange(12 * units) + 0.5) / (12 * units)
    t = centre + radius * np.cos(angles)
    scale = 1.0 / np.abs(a)
    columns = np.concatenate([_gelu(np.outer(t, a) + b) * scale, t[:, None], np.ones((len(t), 1))], axis=1)
    solution = np.linalg.lstsq(columns, f(torch.from_numpy(t)).numpy(), rcond=1e-13)[0]
    fitted = FeatureSum(
        "gelu",
        tuple(a.tolist()),
        tuple(b.tolist()),
        tuple((solution[:-2] * scale).tolist()),
        float(solution[-2]),
        float(solution[-1]),
        domain,
    )
    return with_error(fitted, f)


def square() -> Scales:
    """Five scales, 2 .. 16: 1e-14 in float64, 4e-6 in float32 (large coefficients cancel)."""
    return _scales(5, 2.0, 8.0)


def coarse_square() -> Scales:
    """Six scales, 0.4 .. 3.2: 1e-10 in float64, 1e-6 in float32."""
    return _scales(6, 0.4, 8.0)


@cache
def _scales(count: int, smallest: float, ratio: float) -> Scales:
    s = smallest * ratio ** (np.arange(count) / (count - 1))
    z = np.cos(np.pi * (np.arange(400) + 0.5) / 800)
    columns = np.stack([_gelu(z / x) + _gelu(-z / x) for x in s], axis=1)
    size = np.abs(columns).max(0)
    c = np.linalg.lstsq(columns / size / np.abs(z)[:, None], np.abs(z), rcond=1e-15)[0] / size
    return tuple(zip(s.tolist(), c.tolist(), strict=True))


@cache
def reciprocal_sum(low: float, epsilon: float) -> FeatureSum:
    """1 / t on [low, 1] as a sum of GeLUs whose knots are spaced evenly in log t."""
    f = Function("reciprocal", lambda t: 1.0 / t)
    best = math.inf
    for units in UNITS:
        step = 1.2 * math.log(1 / low) / (units - 1)
        knots = low**1.1 * np.exp(step * np.arange(units))
        a = -STEEPNESS / (knots * step)  # a unit is silent above its knot, where 1 / t is small
        angles = np.pi * (np.arange(12 * units) + 0.5) / (12 * units)
        t = np.exp(math.log(low) * (1 + np.cos(angles)) / 2)
        scale = 1.0 / np.abs(a) / knots**2
        columns = np.concatenate([_gelu(np.outer(t, a) - a * knots) * scale, t[:, None], np.ones((len(t), 1))], axis=1)
        solution = np.linalg.lstsq(columns * t[:, None], np.ones_like(t), rcond=1e-13)[0]
        c, (slope, constant) = tuple((solution[:-2] * scale).tolist()), solution[-2:].tolist()
        fitted = FeatureSum("gelu", tuple(a.tolist()), tuple((-a * knots).tolist()), c, slope, constant, (low, 1.0))
        grid = torch.from_numpy(np.exp(math.log(low) * np.linspace(0, 1, 20_001)))
        error = float((fitted(grid) * grid - 1).abs().max())
        if error <= epsilon:
            return replace(fitted, error=float((fitted(grid) - f(grid)).abs().max()))
        best = min(best, error)
    raise InputError(
        f"1 / t on [{low:g}, 1] is not a sum of {UNITS[-1]} GeLUs to within epsilon",
        got=f"epsilon = {epsilon:g}",
        allowed=f"at least {best:.1e}",
    )
