"""Smooth functions as sums of one activation sigma with shared knots.

    f(t) ~ sum_m c_m sigma(a_m t + b_m)      on a bounded domain

- Knots are spaced evenly over the domain, signs alternate, least squares on Chebyshev points by a truncated singular
  value decomposition. Wide units fit better, narrow ones have smaller coefficients, so less rounding: of the widths
  that reach epsilon the narrowest is taken. Several functions of one program share their knots, so that one head
  serves them all.
- cos has no knots (finite sums of cosines are almost periodic, so it fails the general decay condition); frequencies
  0, pi/L, 2 pi/L, ... with L larger than the domain do instead: a Fourier series of an extension of f.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

import numpy as np
import torch

from innergrad.errors import InputError
from innergrad.functions.fits.sigmas import COARSE, CUTOFF, SIGMAS, sum_of
from innergrad.functions.fits.sums import FEATURES, Domain, FeatureSum, domain_of, feature, less, with_error
from innergrad.functions.scalar import Function

UNITS = (12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
EXTENT = 1.1  # knots reach beyond the domain
PERIOD = 1.6  # of the cosines, in diameters of the domain


def shared_sums(
    functions: Iterable[Function], sigma: str, epsilon: float, domain: tuple[float, float]
) -> dict[str, FeatureSum]:
    """The functions as sums of sigma with the same knots: the fewest with which all of them reach epsilon, each on its
    own domain if it declares one. For an epsilon from COARSE on they do so in float32, too, if that is possible.
    """
    wanted = list(functions)
    around = _around(wanted, domain)
    best, double = {f.name: math.inf for f in wanted}, None
    for units in UNITS if wanted else ():
        for steepness in SIGMAS[sigma].steepness or (0.0,):
            fitted = {
                f.name: _itself(f, sigma)
                or _fit(f, sigma, units, steepness, domain_of(f, domain), around, epsilon >= COARSE)
                for f in wanted
            }
            if all(g.error <= epsilon for g in fitted.values()):
                double = double or fitted
                if epsilon < COARSE or all(_single_error(g) <= epsilon for g in fitted.values()):
                    return fitted
            best = {name: min(best[name], g.error) for name, g in fitted.items()}
    if not wanted or double:
        return double or {}
    worst = max(wanted, key=lambda f: best[f.name])
    low, high = domain_of(worst, domain)
    raise InputError(
        f"{worst.name} is not a sum of {UNITS[-1]} units {sigma} to within epsilon on [{low:g}, {high:g}]",
        got=f"epsilon = {epsilon:g}",
        allowed=f"at least {best[worst.name]:.1e}",
        hint=less(worst),
    )


def _around(functions: list[Function], domain: Domain) -> Domain:
    """The smallest interval around the domains of all functions, over which the knots are spaced."""
    domains = [domain_of(f, domain) for f in functions] or [domain]
    return min(low for low, _ in domains), max(high for _, high in domains)


def _single_error(f: FeatureSum) -> float:
    """Rounding in float32."""
    t = f.samples()
    return float((f(t.float()).double() - f(t)).abs().max())


def reachable(functions: Iterable[Function], sigma: str, units: int, domain: tuple[float, float]) -> float:
    """The smallest epsilon that all the functions reach with this number of units."""
    wanted, errors = list(functions), []
    around = _around(wanted, domain)
    for steepness in SIGMAS[sigma].steepness or (0.0,):
        for coarse in (False, True):
            fits = (
                _itself(f, sigma) or _fit(f, sigma, units, steepness, domain_of(f, domain), around, coarse)
                for f in wanted
            )
            error = max(fitted.error for fitted in fits)
            errors += [error] if (error >= COARSE) == coarse else []
    return min(errors)


def _itself(f: Function, sigma: str) -> FeatureSum | None:
    """f is sigma: one unit, exact everywhere it is applied."""
    t = torch.linspace(-8.0, 8.0, 1001, dtype=torch.float64)
    same = f.name == sigma and float((f(t) - FEATURES[sigma](t)).abs().max()) < 1e-15
    return FeatureSum(sigma, (1.0,), (0.0,), (1.0,), domain=(-f.radius, f.radius)) if same else None


@cache
def _fit(
    f: Function, sigma: str, units: int, steepness: float, domain: Domain, around: Domain, coarse: bool
) -> FeatureSum:
    """On the domain, with knots over the interval around it."""
    centre, radius = (around[0] + around[1]) / 2, (around[1] - around[0]) / 2
    a, b = frequencies_of(units, radius) if sigma == "cos" else knots_of(units, steepness, radius)
    b = b - a * centre
    centre, radius = (domain[0] + domain[1]) / 2, (domain[1] - domain[0]) / 2
    t = centre + radius * np.cos(np.pi * (np.arange(12 * units) + 0.5) / (12 * units))
    columns = np.concatenate([feature(sigma)(np.outer(t, a) + b), np.ones((len(t), 1))], axis=1)
    size = np.abs(columns).max(0)
    size[size == 0.0] = 1.0  # units whose knots are outside the domain
    solution = np.linalg.lstsq(columns / size, f(torch.from_numpy(t)).numpy(), rcond=CUTOFF[coarse])[0] / size
    constant = float(solution[-1])
    return with_error(sum_of(sigma, zip(a, b, solution[:-1], strict=True), constant, domain), f)


def knots_of(units: int, steepness: float, radius: float) -> tuple[np.ndarray, np.ndarray]:
    knots = np.linspace(-EXTENT * radius, EXTENT * radius, units)
    a = steepness / (knots[1] - knots[0]) * np.where(np.arange(units) % 2, 1.0, -1.0)
    return a, -a * knots


def frequencies_of(units: int, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """cos(k pi t / L) and sin(k pi t / L) = cos(k pi t / L - pi/2), k = 1, 2, ..."""
    k = np.arange(units) // 2 + 1
    return k * np.pi / (PERIOD * radius), np.where(np.arange(units) % 2, -np.pi / 2, 0.0)
