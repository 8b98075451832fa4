"""Scalar functions as sums of a transformer's own non-linearity: GeLU units of an MLP, exponential attention heads.

    f(t) ~ slope t + constant + sum_m c_m phi(a_m t + b_m)      on a bounded domain

- GeLU: knots spaced evenly over the domain, slope 0.7 knot spacings, signs alternating. Least squares on Chebyshev
  points is then well conditioned (sum |c_m| / |a_m| of the size of f), so that one set of weights serves float64 and
  float32, and the error falls exponentially with the number of knots for analytic f.
- Linear functions are exact: gelu(z) - gelu(-z) = z. Piecewise-linear ones are sums of hinges, and a steep GeLU is a
  hinge: |gelu(k z) / k - relu(z)| <= 0.17 / k.
- Products: u v = ((u + v)^2 - (u - v)^2) / 4, and z^2 ~ sum_k c_k (gelu(z / s_k) + gelu(-z / s_k)) with several
  scales s_k, which cancel the higher terms of the series one after the other.
- Exponentials: t ~ sum_k c_k (exp(a_k t) - exp(-a_k t)), likewise.

Errors are *measured*, on a grid finer than the one that was fitted; they are not proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.approximants import approximate
from innergrad.functions.piecewise import PiecewiseLinear, farthest_outside, ramp_hits
from innergrad.functions.scalar import Function

FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda z: torch.nn.functional.softplus(z, threshold=100.0),
    "silu": torch.nn.functional.silu,
    "cos": torch.cos,
}
UNITS = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256)
STEEPNESS = 0.7  # slope of a unit, in knot spacings: best of 0.5 .. 2 for tanh, sigmoid, softplus, sin and derivatives
HINGE = 0.17  # sup |gelu(z) - relu(z)| = 0.16997..., at |z| = 0.7518


@dataclass(frozen=True)
class FeatureSum:
    """slope t + constant + sum_m c_m phi(a_m t + b_m); see the module docstring. ``error`` is measured."""

    feature: str
    a: tuple[float, ...] = ()
    b: tuple[float, ...] = ()
    c: tuple[float, ...] = ()
    slope: float = 0.0
    constant: float = 0.0
    domain: tuple[float, float] = (-math.inf, math.inf)
    error: float = 0.0
    ramps: tuple[tuple[float, float], ...] = ()

    def __call__(self, t: Tensor) -> Tensor:
        a, b, c = (torch.tensor(column, dtype=t.dtype, device=t.device) for column in (self.a, self.b, self.c))
        z = t.unsqueeze(-1) * a + b
        return self.slope * t + self.constant + FEATURES[self.feature](z) @ c

    @property
    def hinges(self) -> list[tuple[float, float, float]]:
        """Its terms (a, b, c), for targets whose attention and MLPs are sums of them and nothing else."""
        if self.slope or self.constant:
            raise ValueError("a linear part and a constant are no terms")
        return list(zip(self.a, self.b, self.c, strict=True))

    def as_weights(self, t: Tensor) -> Tensor:
        return self(t)

    def samples(self) -> Tensor:
        """Points at which rounding is measured."""
        lo, hi = (max(self.domain[0], -8.0), min(self.domain[1], 8.0))
        return torch.linspace(lo, hi, 1001, dtype=torch.float64)

    def hits(self, t: Tensor) -> Tensor:
        return ramp_hits(self.ramps, t)

    def outside(self, t: Tensor) -> float | None:
        return farthest_outside(self.domain, t)


Approximant = PiecewiseLinear | FeatureSum


def gelu_sum(f: Function, epsilon: float, domain: tuple[float, float]) -> FeatureSum:
    """The function as a sum of GeLUs, with the fewest units that reach epsilon on the domain."""
    if f.exact is not None or f.jumps:
        return hinge_sum(approximate(f, max(epsilon, 1e-8)), epsilon)
    best = math.inf
    for units in UNITS:
        fitted = _fit(f, units, domain)
        if fitted.error <= epsilon:
            return fitted
        best = min(best, fitted.error)
    raise InputError(
        f"{f.name} is not a sum of {UNITS[-1]} GeLUs to within epsilon on [{domain[0]:g}, {domain[1]:g}]",
        got=f"epsilon = {epsilon:g}",
        allowed=f"at least {best:.1e}",
        hint="give a larger epsilon or a smaller z_bound",
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


def with_error(fitted: FeatureSum, f: Function) -> FeatureSum:
    """Measured on a grid of 20,001 points, which has no point in common with the fitted ones but the middle."""
    t = torch.linspace(*fitted.domain, 20_001, dtype=torch.float64)
    return replace(fitted, error=float((fitted(t) - f(t)).abs().max()))


def hinge_sum(f: PiecewiseLinear, epsilon: float, feature: str = "gelu", hinge: float = HINGE) -> FeatureSum:
    """A piecewise-linear function: its linear part exactly, every hinge a steep unit; hinge: sup |phi - relu|."""
    middle = f.slopes[int(np.searchsorted(np.array(f.knots), f.anchor))]
    constant = f.value - middle * f.anchor
    hinges = [(1.0, -x, d) for x, d in zip(f.knots, np.diff(f.slopes), strict=True) if x >= f.anchor]
    hinges += [(-1.0, x, d) for x, d in zip(f.knots, np.diff(f.slopes), strict=True) if x < f.anchor]
    total = hinge * sum(abs(c) for _, _, c in hinges)
    k = 2.0 ** max(0, math.ceil(math.log2(total / epsilon))) if hinges else 1.0
    a, b, c = zip(*((k * a, k * b, float(c) / k) for a, b, c in hinges), strict=True) if hinges else ((), (), ())
    error = math.inf if f.ramps else total / k
    return FeatureSum(feature, a, b, c, float(middle), float(constant), f.domain, error, f.ramps)


def _gelu(z: np.ndarray) -> np.ndarray:
    result: np.ndarray = torch.nn.functional.gelu(torch.from_numpy(z)).numpy()
    return result


Scales = tuple[tuple[float, float], ...]  # (s, c): z^2 ~ sum c (gelu(z / s) + gelu(-z / s)) for |z| <= 1


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


@cache
def exponential_sum(radius: float, epsilon: float) -> FeatureSum:
    """t ~ sum_k c_k (exp(a_k t) - exp(-a_k t)) for |t| <= radius: linear attention from eight exp heads.

    A constant, as a ninth head, would have coefficient zero: t is odd. The largest rates that reach epsilon have the
    smallest coefficients, so the least rounding.
    """
    for rate in (0.8, 0.6, 0.4, 0.3, 0.2, 0.15, 0.1):
        fitted = _odd_exponentials(radius, rate / radius)
        if fitted.error <= epsilon:
            return fitted
    raise InputError(
        f"t is not a sum of eight exponentials to within epsilon on [-{radius:g}, {radius:g}]",
        got=f"epsilon = {epsilon:g}",
        allowed=f"at least {fitted.error:.1e}",
    )


def _odd_exponentials(radius: float, rate: float) -> FeatureSum:
    a = np.arange(1, 5) * rate
    t = radius * np.cos(np.pi * (np.arange(200) + 0.5) / 400)
    columns = 2 * np.sinh(np.outer(t, a))
    c = np.linalg.lstsq(columns / t[:, None], np.ones_like(t), rcond=1e-15)[0]
    rates, weights = (tuple(np.concatenate(parts).tolist()) for parts in ((a, -a), (c, -c)))
    fitted = FeatureSum("exp", rates, (0.0,) * len(rates), weights, domain=(-radius, radius))
    return with_error(fitted, Function("identity", lambda t: t))
