"""Sums of features: the form of a fitted function.

    f(t) ~ slope t + constant + sum_m c_m phi(a_m t + b_m)      on a bounded domain

Errors are *measured*, on a grid finer than the one that was fitted; they are not proven. Piecewise-linear functions are
sums of hinges, and a steep unit is a hinge: |gelu(k z) / k - relu(z)| <= 0.17 / k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from innergrad.functions.scalar import Function, PiecewiseLinear, farthest_outside, ramp_hits

FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda z: torch.nn.functional.softplus(z, threshold=100.0),
    "silu": torch.nn.functional.silu,
    "cos": torch.cos,
}
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
Domain = tuple[float, float]


def domain_of(f: Function, otherwise: Domain) -> Domain:
    """The domain that f declares, or the one that it gets otherwise."""
    return otherwise if math.isinf(f.radius) else (-f.radius, f.radius)


def less(f: Function) -> str:
    """Advice where f is not fitted to within epsilon."""
    return f"give a larger epsilon or a smaller {'z_bound' if math.isinf(f.radius) else 'radius'}"


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


def feature(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """phi on numpy arrays."""
    return lambda z: FEATURES[name](torch.from_numpy(z)).numpy()
