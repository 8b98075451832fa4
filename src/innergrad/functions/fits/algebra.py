"""t, t^2 and piecewise-linear functions as sums of one activation sigma.

- t and t^2: c (sigma(b + t/s) - sigma(b - t/s)) and c (sigma(b + t/s) + sigma(b - t/s)) at several scales s, which
  cancel the higher terms of the Taylor series one after the other. For gelu, softplus and silu t is exact.
- Piecewise-linear f, for sigma that are hinges from afar (gelu, softplus, silu): sigma(k z) / k is a hinge up to h / k.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.approximants import RAMP, approximate
from innergrad.functions.fits.sigmas import COARSE, CUTOFF, SIGMAS, Sigma, Terms, sum_of
from innergrad.functions.fits.smooth import UNITS, frequencies_of, knots_of
from innergrad.functions.fits.sums import FEATURES, FeatureSum, feature, hinge_sum, with_error
from innergrad.functions.scalar import Function


def linear_sum(sigma: str, radius: float, epsilon: float) -> FeatureSum:
    """t for |t| <= radius; for every t, exactly, where sigma(z) - sigma(-z) = z."""
    identity = Function("identity", lambda t: t)
    if SIGMAS[sigma].hinge is not None:
        return sum_of(sigma, ((1.0, 0.0, 1.0), (-1.0, 0.0, -1.0)))
    if epsilon >= COARSE:
        return _odd_sum(sigma, radius, epsilon)
    terms = tuple((a / radius, b, c * radius) for a, b, c in scales(sigma, 1, False))
    fitted = sum_of(sigma, terms, domain=(-radius, radius))
    fitted = with_error(fitted, identity)
    if fitted.error > epsilon:
        raise InputError(
            f"t is not a sum of {sigma} to within epsilon on [-{radius:g}, {radius:g}]",
            got=f"epsilon = {epsilon:g}",
            allowed=f"at least {fitted.error:.1e}",
            hint="give a larger epsilon or a smaller z_bound",
        )
    return fitted


def _odd_sum(sigma: str, radius: float, epsilon: float) -> FeatureSum:
    """t by knots: more units than with scales, but smaller coefficients. Pairs make it odd, so zero at zero exactly: a
    term that must not count has score zero.
    """
    t = radius * np.cos(np.pi * (np.arange(800) + 0.5) / 1600)
    for units in UNITS:
        for steepness in SIGMAS[sigma].steepness or (0.0,):
            a, b = frequencies_of(units, radius) if sigma == "cos" else knots_of(units, steepness, radius)
            a, b = (
                (a[1::2], b[1::2])
                if sigma == "cos"
                else (np.abs(a[: units // 2]), b[: units // 2] * np.sign(a[: units // 2]))
            )
            columns = feature(sigma)(np.outer(t, a) + b) - feature(sigma)(np.outer(-t, a) + b)
            c = np.linalg.lstsq(columns, t, rcond=CUTOFF[True])[0]
            terms = [(s * x, y, s * z) for x, y, z in zip(a, b, c, strict=True) for s in (1.0, -1.0)]
            fitted = with_error(sum_of(sigma, terms, domain=(-radius, radius)), Function("identity", lambda t: t))
            if fitted.error <= epsilon:
                return fitted
    raise InputError(f"t is not a sum of {UNITS[-1]} units {sigma} to within epsilon", got=f"epsilon = {epsilon:g}")


@cache
def scales(sigma: str, power: int, coarse: bool) -> Terms:
    """t (power 1) or t^2 (power 2) for |t| <= 1 as a sum of sigma; a constant is one of its terms."""
    return scales_of(sigma, SIGMAS[sigma], power, coarse)


def algebra_error(sigma: str, coarse: bool) -> float:
    """How far t and t^2 are off on [-1, 1]; t is exact where sigma is a hinge from afar."""
    t = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)
    powers = (2,) if SIGMAS[sigma].hinge is not None else (1, 2)
    return max(float((evaluate(scales(sigma, power, coarse), sigma, t) - t**power).abs().max()) for power in powers)


def scales_of(sigma: str, known: Sigma, power: int, coarse: bool) -> Terms:
    phi = feature(sigma)
    b, sign = (known.odd, -1.0) if power == 1 else (known.even, 1.0)
    count, smallest, cutoff = (8, 0.4 * known.width, 1e-9) if coarse else (7, known.width, 1e-15)
    s = smallest * 8.0 ** (np.arange(count) / (count - 1))
    t = np.cos(np.pi * (np.arange(400) + 0.5) / 800)  # on one half: the sums are odd or even
    middle = 0.0 if power == 1 else 2.0 * float(phi(np.array([b]))[0])
    columns = np.stack([phi(b + t / x) + sign * phi(b - t / x) - middle for x in s], axis=1)
    size = np.abs(columns).max(0)
    weight = 1.0 / np.abs(t)  # errors near zero count more
    c = np.linalg.lstsq(columns / size * weight[:, None], t**power * weight, rcond=cutoff)[0] / size
    terms = [(u / x, b, v * w) for x, w in zip(s, c, strict=True) for u, v in ((1.0, 1.0), (-1.0, sign))]
    constant = -middle * float(c.sum())
    level = known.level
    value = float(phi(np.array([level]))[0])
    return tuple((float(p), float(q), float(r)) for p, q, r in [*terms, (0.0, level, constant / value)] if r)


def piecewise_sum(f: Function, sigma: str, epsilon: float, ramp: float = RAMP) -> FeatureSum:
    """A piecewise-linear function (a projection), every hinge a steep unit."""
    hinge = SIGMAS[sigma].hinge
    if hinge is None:
        raise InputError(
            f"{f.name} has kinks, which sums of {sigma} do not have",
            got=f"sigma={sigma!r}",
            allowed=", ".join(name for name, known in SIGMAS.items() if known.hinge is not None),
            hint="or do without: box=None, and no ball",
        )
    return hinge_sum(approximate(f, max(epsilon, 1e-8), ramp=ramp), epsilon, sigma, hinge)


def without_line(f: FeatureSum) -> FeatureSum:
    """The same function without a linear part of its own, for attention, where there is none: sigma(t) - sigma(-t) = t
    for sigma that are hinges from afar, and a constant is a unit.
    """
    terms = [*zip(f.a, f.b, f.c, strict=True)]
    terms += [(1.0, 0.0, f.slope), (-1.0, 0.0, -f.slope)] if f.slope else []
    return replace(sum_of(f.feature, terms, f.constant, f.domain, f.error), ramps=f.ramps)


def evaluate(terms: Terms, sigma: str, t: Tensor) -> Tensor:
    """The sum at t."""
    a, b, c = (torch.tensor(column, dtype=t.dtype) for column in zip(*terms, strict=True))
    return FEATURES[sigma](t.unsqueeze(-1) * a + b) @ c
