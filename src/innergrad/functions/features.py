"""Scalar functions as sums of one activation sigma: what attention and MLPs with that activation can do.

    f(t) ~ sum_m c_m sigma(a_m t + b_m)      on a bounded domain

- Smooth f: knots spaced evenly over the domain, signs alternating, least squares on Chebyshev points by a truncated
  singular value decomposition. Wide units fit better, narrow ones have smaller coefficients, so less rounding: of the
  widths that reach epsilon the narrowest is taken. Several functions of one program share their knots, so that one head
  serves them all.
- cos has no knots (finite sums of cosines are almost periodic, so it fails the general decay condition); frequencies
  0, pi/L, 2 pi/L, ... with L larger than the domain do instead: a Fourier series of an extension of f.
- t and t^2: c (sigma(b + t/s) - sigma(b - t/s)) and c (sigma(b + t/s) + sigma(b - t/s)) at several scales s, which
  cancel the higher terms of the Taylor series one after the other. For gelu, softplus and silu t is exact.
- Piecewise-linear f, for sigma that are hinges from afar (gelu, softplus, silu): sigma(k z) / k is a hinge up to h / k.

Errors are measured on a finer grid than the fitted one. They are not proven.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.approximants import approximate
from innergrad.functions.decay import decay_condition
from innergrad.functions.dictionaries import FEATURES, FeatureSum, hinge_sum, with_error
from innergrad.functions.scalar import Function

Terms = tuple[tuple[float, float, float], ...]  # (a, b, c): the sum of c sigma(a t + b)
UNITS = (12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
EXTENT = 1.1  # knots reach beyond the domain
PERIOD = 1.6  # of the cosines, in diameters of the domain
COARSE = 1e-7  # from this epsilon on, weights are made for float32
CUTOFF = {False: 1e-14, True: 1e-7}  # singular values that are dropped, relative to the largest; True: for float32


@dataclass(frozen=True)
class Sigma:
    """An activation of the transformer.

    steepness: slopes of units, in knot spacings, the narrowest first. level: where sigma is not zero, for constants.
    odd, even: where its odd and its even part around a point are used, for t and t^2; width: their smallest scale.
    hinge: sup |sigma - relu|, if it is one from afar; sigma(z) - sigma(-z) = z then holds exactly.
    """

    steepness: tuple[float, ...]
    odd: float
    even: float
    width: float
    level: float = 1.0
    hinge: float | None = None


SIGMAS: dict[str, Sigma] = {
    "gelu": Sigma((0.7, 0.6, 0.5, 0.4), 0.0, 0.0, 1.0, hinge=0.17),
    "tanh": Sigma((0.35, 0.25, 0.2, 0.15), 0.0, 0.66, 1.0),
    "sigmoid": Sigma((0.7, 0.5, 0.4, 0.3), 0.0, 1.32, 0.5),
    "softplus": Sigma((0.7, 0.6, 0.5, 0.4), 0.0, 0.0, 0.7, hinge=0.694),
    "silu": Sigma((0.7, 0.6, 0.5, 0.4), 0.0, 0.0, 1.0, hinge=0.279),
    "cos": Sigma((), math.pi / 2, 0.0, 0.5, level=0.0),
}
SHIPPED = tuple(FEATURES)
_POINTS = torch.tensor([-2.5, -1.0, -0.3, 0.2, 0.9, 2.0], dtype=torch.float64)


def register_sigma(name: str, function: Callable[[Tensor], Tensor]) -> Sigma:
    """Make an activation of your own one that target ``sigma`` takes: ``ig.compile(..., sigma=name)``.

    It has to satisfy the general decay condition, and to be smooth where it is used; an epsilon that sums of it do not
    reach is refused when something is compiled. Register it again, under the same name, before loading a saved model.
    """
    if not isinstance(name, str) or not name.isidentifier() or name in SHIPPED:
        taken = ", ".join(SHIPPED)
        raise InputError("an activation needs a name of its own", got=repr(name), allowed=f"an identifier, not {taken}")
    decay = decay_condition(function)
    if not decay.holds:
        verdict = "cannot be shown to satisfy" if decay.holds is None else "does not satisfy"
        raise InputError(f"{name} {verdict} the general decay condition", got=f"{decay.kind}: {decay.reason}")
    if name in FEATURES:  # models that were compiled with it must not change
        if fingerprint(name) != [float(v) for v in function(_POINTS)]:
            raise InputError(f"{name} is another function already", hint="take another name")
        return SIGMAS[name]
    FEATURES[name] = function
    try:
        SIGMAS[name] = _measured(name)
    except (InputError, np.linalg.LinAlgError) as error:
        del FEATURES[name]
        raise InputError(
            f"sums of {name} make no squares: it has to be smooth, and curved, near zero", got=str(error)
        ) from error
    return SIGMAS[name]


def fingerprint(name: str) -> list[float]:
    """What a saved model knows its activation by."""
    return [float(value) for value in FEATURES[name](_POINTS)]


def _measured(name: str) -> Sigma:
    """Where to use sigma: what the table says of the shipped ones, measured."""
    phi, t = feature(name), np.linspace(-3.0, 3.0, 601)
    value, odd, even = phi(t), np.gradient(phi(t), t), np.gradient(np.gradient(phi(t), t), t)
    far = np.linspace(-60.0, 60.0, 2401)
    exact = float(np.abs(phi(far) - phi(-far) - far).max()) < 1e-12
    hinge = 1.001 * float(np.abs(phi(far) - np.maximum(far, 0)).max()) if exact else None
    inner = slice(50, -50)
    points = (
        0.0 if exact else float(t[inner][np.abs(odd[inner]).argmax()]),
        float(t[inner][np.abs(even[inner]).argmax()]),
    )
    level = float(t[np.abs(value).argmax()])
    candidates = [
        Sigma((1.0, 0.7, 0.5, 0.35, 0.25, 0.15), *points, width, level, hinge) for width in (2.0, 1.0, 0.5, 0.25)
    ]
    grid = torch.linspace(-1.0, 1.0, 501, dtype=torch.float64)
    errors = [
        max(
            float((evaluate(_scales(name, known, power, False), name, grid) - grid**power).abs().max())
            for power in (1, 2)
        )
        for known in candidates
    ]
    if not min(errors) < 1e-3:
        raise InputError(
            "no scale was found", got=f"errors of {min(errors):.0e} of t and t^2 on [-1, 1]", allowed="1e-3"
        )
    return candidates[int(np.argmin(errors))]


def feature(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """sigma on numpy arrays."""
    return lambda z: FEATURES[name](torch.from_numpy(z)).numpy()


# ----------------------------------------------------------------------------------------------------- smooth functions


def shared_sums(
    functions: Iterable[Function], sigma: str, epsilon: float, domain: tuple[float, float]
) -> dict[str, FeatureSum]:
    """The functions as sums of sigma with the same knots, the fewest with which all of them reach epsilon; for an
    epsilon from COARSE on in float32 too, if that can be.
    """
    wanted = list(functions)
    best, double = {f.name: math.inf for f in wanted}, None
    for units in UNITS if wanted else ():
        for steepness in SIGMAS[sigma].steepness or (0.0,):
            fitted = {
                f.name: _itself(f, sigma) or _fit(f, sigma, units, steepness, domain, epsilon >= COARSE) for f in wanted
            }
            if all(g.error <= epsilon for g in fitted.values()):
                double = double or fitted
                if epsilon < COARSE or all(_single_error(g) <= epsilon for g in fitted.values()):
                    return fitted
            best = {name: min(best[name], g.error) for name, g in fitted.items()}
    if not wanted or double:
        return double or {}
    worst = max(best, key=lambda name: best[name])
    raise InputError(
        f"{worst} is not a sum of {UNITS[-1]} units {sigma} to within epsilon on [{domain[0]:g}, {domain[1]:g}]",
        got=f"epsilon = {epsilon:g}",
        allowed=f"at least {best[worst]:.1e}",
        hint="give a larger epsilon or a smaller z_bound",
    )


def _single_error(f: FeatureSum) -> float:
    """Rounding in float32."""
    t = f.samples()
    return float((f(t.float()).double() - f(t)).abs().max())


def reachable(functions: Iterable[Function], sigma: str, units: int, domain: tuple[float, float]) -> float:
    """The smallest epsilon that all the functions reach with this number of units."""
    wanted, errors = list(functions), []
    for steepness in SIGMAS[sigma].steepness or (0.0,):
        for coarse in (False, True):
            fits = (_itself(f, sigma) or _fit(f, sigma, units, steepness, domain, coarse) for f in wanted)
            error = max(fitted.error for fitted in fits)
            errors += [error] if (error >= COARSE) == coarse else []
    return min(errors)


def _itself(f: Function, sigma: str) -> FeatureSum | None:
    """f is sigma: one unit, exact everywhere."""
    t = torch.linspace(-8.0, 8.0, 1001, dtype=torch.float64)
    same = f.name == sigma and float((f(t) - FEATURES[sigma](t)).abs().max()) < 1e-15
    return FeatureSum(sigma, (1.0,), (0.0,), (1.0,)) if same else None


@cache
def _fit(
    f: Function, sigma: str, units: int, steepness: float, domain: tuple[float, float], coarse: bool
) -> FeatureSum:
    centre, radius = (domain[0] + domain[1]) / 2, (domain[1] - domain[0]) / 2
    a, b = _frequencies(units, radius) if sigma == "cos" else _knots(units, steepness, radius)
    b = b - a * centre
    t = centre + radius * np.cos(np.pi * (np.arange(12 * units) + 0.5) / (12 * units))
    columns = np.concatenate([feature(sigma)(np.outer(t, a) + b), np.ones((len(t), 1))], axis=1)
    size = np.abs(columns).max(0)
    solution = np.linalg.lstsq(columns / size, f(torch.from_numpy(t)).numpy(), rcond=CUTOFF[coarse])[0] / size
    constant = float(solution[-1])
    return with_error(_sum(sigma, zip(a, b, solution[:-1], strict=True), constant, domain), f)


def _knots(units: int, steepness: float, radius: float) -> tuple[np.ndarray, np.ndarray]:
    knots = np.linspace(-EXTENT * radius, EXTENT * radius, units)
    a = steepness / (knots[1] - knots[0]) * np.where(np.arange(units) % 2, 1.0, -1.0)
    return a, -a * knots


def _frequencies(units: int, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """cos(k pi t / L) and sin(k pi t / L) = cos(k pi t / L - pi/2), k = 1, 2, ..."""
    k = np.arange(units) // 2 + 1
    return k * np.pi / (PERIOD * radius), np.where(np.arange(units) % 2, -np.pi / 2, 0.0)


def _sum(
    sigma: str,
    terms: Iterable[tuple[float, float, float]],
    constant: float = 0.0,
    domain: tuple[float, float] = (-math.inf, math.inf),
    error: float = 0.0,
) -> FeatureSum:
    """A sum of sigma and nothing else: the constant is a unit of its own."""
    level, value = unit_level(sigma)
    columns = [tuple(float(entry) for entry in term) for term in terms]
    columns += [(0.0, level, constant / value)] if constant else []
    a, b, c = zip(*columns, strict=True)
    return FeatureSum(sigma, a, b, c, domain=domain, error=error)


# --------------------------------------------------------------------------------- linear, square, piecewise linear


def unit_level(sigma: str) -> tuple[float, float]:
    """(b, sigma(b)): a unit that is constant."""
    level = SIGMAS[sigma].level
    return level, float(FEATURES[sigma](torch.tensor(level, dtype=torch.float64)))


def linear_sum(sigma: str, radius: float, epsilon: float) -> FeatureSum:
    """t for |t| <= radius; for every t, exactly, where sigma(z) - sigma(-z) = z."""
    identity = Function("identity", lambda t: t)
    if SIGMAS[sigma].hinge is not None:
        return _sum(sigma, ((1.0, 0.0, 1.0), (-1.0, 0.0, -1.0)))
    if epsilon >= COARSE:
        return _odd_sum(sigma, radius, epsilon)
    terms = tuple((a / radius, b, c * radius) for a, b, c in scales(sigma, 1, False))
    fitted = _sum(sigma, terms, domain=(-radius, radius))
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
    """t by knots: more units than with scales, but smaller coefficients. Pairs make it odd, so zero at zero exactly:
    what must not count has score zero.
    """
    t = radius * np.cos(np.pi * (np.arange(800) + 0.5) / 1600)
    for units in UNITS:
        for steepness in SIGMAS[sigma].steepness or (0.0,):
            a, b = _frequencies(units, radius) if sigma == "cos" else _knots(units, steepness, radius)
            a, b = (
                (a[1::2], b[1::2])
                if sigma == "cos"
                else (np.abs(a[: units // 2]), b[: units // 2] * np.sign(a[: units // 2]))
            )
            columns = feature(sigma)(np.outer(t, a) + b) - feature(sigma)(np.outer(-t, a) + b)
            c = np.linalg.lstsq(columns, t, rcond=CUTOFF[True])[0]
            terms = [(s * x, y, s * z) for x, y, z in zip(a, b, c, strict=True) for s in (1.0, -1.0)]
            fitted = with_error(_sum(sigma, terms, domain=(-radius, radius)), Function("identity", lambda t: t))
            if fitted.error <= epsilon:
                return fitted
    raise InputError(f"t is not a sum of {UNITS[-1]} units {sigma} to within epsilon", got=f"epsilon = {epsilon:g}")


@cache
def scales(sigma: str, power: int, coarse: bool) -> Terms:
    """t (power 1) or t^2 (power 2) for |t| <= 1 as a sum of sigma; a constant is one of its terms."""
    return _scales(sigma, SIGMAS[sigma], power, coarse)


def algebra_error(sigma: str, coarse: bool) -> float:
    """How far t and t^2 are off on [-1, 1]; t is exact where sigma is a hinge from afar."""
    t = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)
    powers = (2,) if SIGMAS[sigma].hinge is not None else (1, 2)
    return max(float((evaluate(scales(sigma, power, coarse), sigma, t) - t**power).abs().max()) for power in powers)


def _scales(sigma: str, known: Sigma, power: int, coarse: bool) -> Terms:
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


def piecewise_sum(f: Function, sigma: str, epsilon: float) -> FeatureSum:
    """A piecewise-linear function (a projection), every hinge a steep unit."""
    hinge = SIGMAS[sigma].hinge
    if hinge is None:
        raise InputError(
            f"{f.name} has kinks, which sums of {sigma} do not have",
            got=f"sigma={sigma!r}",
            allowed=", ".join(name for name, known in SIGMAS.items() if known.hinge is not None),
            hint="or do without: box=None",
        )
    return hinge_sum(approximate(f, max(epsilon, 1e-8)), epsilon, sigma, hinge)


def evaluate(terms: Terms, sigma: str, t: Tensor) -> Tensor:
    """The sum at t."""
    a, b, c = (torch.tensor(column, dtype=t.dtype) for column in zip(*terms, strict=True))
    return FEATURES[sigma](t.unsqueeze(-1) * a + b) @ c
