"""Sums of exponentials: attention heads with a heavy sink. t ~ sum_k c_k (exp(a_k t) - exp(-a_k t))."""

from __future__ import annotations

from functools import cache

import numpy as np

from innergrad.errors import InputError
from innergrad.functions.fits.sums import FeatureSum, with_error
from innergrad.functions.scalar import Function


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
