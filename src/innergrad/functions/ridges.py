"""Functions of two variables as sums of functions of one: u(t, y) = sum_m scale_m f_m(a_m t + b_m y) for |t| <= T,
|y| <= Y. Each term is one instruction, so this is Lemma 4 of the paper: the derivative of any smooth loss.

*Exactly*, where the steps of u say so:

    u(t, y) = f(t - y)          the losses of a residual
    u(t, y) = f(t) + g(y)       Poisson's e^t - y; the mixed derivative is zero
    linear parts                are linear terms

*Any other smooth u*, by a polynomial. A polynomial of degree D in two variables is a sum of polynomials of degree D of
D + 1 linear forms: of the directions j pi / (D + 1), whose powers span every degree (Logan and Shepp, 1975). It is fitted
at Chebyshev points, with the least D that is good enough; that it is, is then proven, independently of how it was found:
with e = u - P on a square cell of half-width h around c, in the variables t / T and y / Y,

    |e| <= |e(c)| + h (|e_t| + |e_y|)(c) + h^2 / 2 (|e_tt| + 2 |e_ty| + |e_yy|)(cell)

everything enclosed by jets along (1, 0), (0, 1) and (1, 1); cells are quartered until the bound is small enough. The
proven *remainder* is a number beside the form: it is part of certificates (``Function.rounded``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from innergrad.errors import InputError
from innergrad.functions.calculus import at, of_the_difference, partial, reads
from innergrad.functions.facts import prove_facts
from innergrad.functions.intervals import Array, Interval
from innergrad.functions.jets import Jet
from innergrad.functions.scalar import IDENTITY, Function
from innergrad.functions.tape import Formula, Tape, record

DEGREES = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24)
FIT = 0.5  # of the accuracy, what the fit may be off by at points, so that there is room for the proof
_FIRST = 16  # cells of a side to begin with
_MOST_CELLS = 2**20
_PART = 2**14  # cells at a time
_MARGIN = 1.0 + 1e-6  # of declared facts, over the proven ones


@dataclass(frozen=True)
class Ridge:
    """scale f(t t_ + y y_), t_ and y_ the two variables."""

    f: Function
    t: float
    y: float
    scale: float = 1.0


@lru_cache(maxsize=64)
def ridge_form(name: str, u: Tape, t_bound: float, y_bound: float, accuracy: float) -> tuple[Ridge, ...]:
    """u(t, y) for |t| <= t_bound, |y| <= y_bound, exactly or to within the accuracy; how far it is off, proven, is
    ``rounded`` of the first term's function. name: what its functions are called after.
    """
    exact = _exact_form(name, u, t_bound, y_bound)
    return exact if exact is not None else _polynomial_form(name, u, t_bound, y_bound, accuracy)


def smooth(name: str, formula: Formula, radius: float) -> Function:
    """The function on [-radius, radius], with the facts that are proven there."""
    f = Function(name, formula, radius=radius)
    facts = prove_facts(f, radius)
    if not facts.proven:
        raise InputError(f"nothing can be proven about {name}", got=facts.reason)
    known = {key: _MARGIN * getattr(facts, key) for key in ("curvature", "lipschitz", "bound")}
    return replace(f, **known)


# --------------------------------------------------------------------------------------------------------- exact forms


def _exact_form(name: str, u: Tape, T: float, Y: float) -> tuple[Ridge, ...] | None:
    slope_t, slope_y, residual = partial(u, 0), partial(u, 1), of_the_difference(u)
    if residual is not None and not isinstance(slope_t, float):
        return (Ridge(smooth(name, residual, T + Y), 1.0, -1.0),)
    if not isinstance(slope_y, float) and reads(slope_y, 0):
        return None
    start = float(u(*torch.zeros(2, dtype=torch.float64)))
    own = () if isinstance(slope_t, float) and not start else (at(u, 1, 0.0),)  # with the constant, if there is one
    found = [Ridge(smooth(f"{name} in t", f, T), 1.0, 0.0) for f in own]
    found += [Ridge(IDENTITY, 1.0, 0.0, slope_t)] if isinstance(slope_t, float) and slope_t and not own else []
    if isinstance(slope_y, float):
        return (*found, Ridge(IDENTITY, 0.0, 1.0, slope_y)) if slope_y else tuple(found)
    other = at(u, 0, 0.0)
    return (*found, Ridge(smooth(f"{name} in y", record(lambda t: other(t) - start), Y), 0.0, 1.0))


# ---------------------------------------------------------------------------------------------------------- polynomials


@dataclass(frozen=True)
class _Polynomial:
    """sum_k c_k (s / reach)^k, by Horner's rule."""

    c: tuple[float, ...]
    reach: float

    def __call__(self, s: Any) -> Any:
        x = s / self.reach
        total = x * self.c[-1] + self.c[-2]
        for c in self.c[-3::-1]:
            total = total * x + c
        return total


def _polynomial_form(name: str, u: Tape, T: float, Y: float, accuracy: float) -> tuple[Ridge, ...]:
    """With the least degree that is good enough at points, and then provably so."""
    best = math.inf
    for degree in DEGREES:
        angles = math.pi * np.arange(degree + 1) / (degree + 1)
        forms = [(float(np.cos(angle)), float(np.sin(angle))) for angle in angles]
        forms = [(a if abs(a) > 1e-12 else 0.0, b if abs(b) > 1e-12 else 0.0) for a, b in forms]
        polynomials, seen = _fitted(u, T, Y, forms, degree)
        best = min(best, seen)
        if seen > FIT * accuracy:
            continue
        remainder = _proven_remainder(u, T, Y, forms, polynomials, accuracy)
        made = [
            Ridge(smooth(f"{name}, {j + 1} of {degree + 1}", p, p.reach), a / T, b / Y)
            for j, (p, (a, b)) in enumerate(zip(polynomials, forms, strict=True))
        ]
        first = replace(made[0], f=replace(made[0].f, rounded=remainder))
        return (first, *made[1:])
    raise InputError(
        f"{name} is no sum of polynomials of degree {DEGREES[-1]} to within its accuracy",
        got=f"accuracy = {accuracy:g} for |t| <= {T:g}, |y| <= {Y:g}",
        allowed=f"at least {best / FIT:.1e}",
        hint="give a larger accuracy, or smaller bounds",
    )


def _fitted(
    u: Tape, T: float, Y: float, forms: Sequence[tuple[float, float]], degree: int
) -> tuple[list[_Polynomial], float]:
    """Least squares at Chebyshev points, the shortest solution; and how far it is off between them."""
    points = np.cos(np.pi * (np.arange(2 * degree + 4) + 0.5) / (2 * degree + 4))
    a, b = (side.ravel() for side in np.meshgrid(points, points))
    reaches = [abs(p) + abs(q) for p, q in forms]
    columns = [
        np.polynomial.chebyshev.chebvander((p * a + q * b) / reach, degree)
        for (p, q), reach in zip(forms, reaches, strict=True)
    ]
    solution = np.linalg.lstsq(np.concatenate(columns, axis=1), _at(u, T * a, Y * b), rcond=1e-13)[0]
    made = [
        _Polynomial(tuple(map(float, np.polynomial.chebyshev.cheb2poly(c))), reach)
        for c, reach in zip(solution.reshape(len(forms), -1), reaches, strict=True)
    ]
    a, b = (side.ravel() for side in np.meshgrid(*(np.linspace(-1.0, 1.0, 81),) * 2))
    off = _at(u, T * a, Y * b) - sum(f(p * a + q * b) for f, (p, q) in zip(made, forms, strict=True))
    return made, float(np.abs(off).max())


def _at(u: Tape, t: Array, y: Array) -> Array:
    found: Array = u(torch.from_numpy(t), torch.from_numpy(y)).numpy()
    return found


# ---------------------------------------------------------------------------------------------------------- the proof


def _proven_remainder(
    u: Tape, T: float, Y: float, forms: Sequence[tuple[float, float]], made: Sequence[_Polynomial], accuracy: float
) -> float:
    """A bound on |u - P| for |t| <= T, |y| <= Y; see the module docstring."""

    def error(a: Jet, b: Jet) -> Jet:
        total = u(a * T, b * Y)
        for f, (p, q) in zip(made, forms, strict=True):
            total = total - f(a * p + b * q)
        return total

    return largest(error, accuracy)


def largest(e: Callable[[Jet, Jet], Jet], enough: float) -> float:
    """A bound on |e| on the square [-1, 1]^2, refined until it is at most ``enough``."""
    h = 1.0 / _FIRST
    edge = np.arange(-1.0 + h, 1.0, 2 * h)
    a, b = (side.ravel() for side in np.meshgrid(edge, edge))
    worst = 0.0
    while a.size:
        if a.size > _MOST_CELLS:
            raise InputError(
                "a bound on the remainder could not be proven", got=f"{a.size} cells", hint="smaller bounds"
            )
        parts = [slice(k, k + _PART) for k in range(0, a.size, _PART)]
        bound = np.concatenate([_cell_bounds(e, a[part], b[part], h) for part in parts])
        rest = ~(bound <= enough)
        worst, h = max(worst, float(bound[~rest].max(initial=0.0))), h / 2
        a, b = (
            np.concatenate([c[rest] + sign * h for sign in signs])
            for c, signs in ((a, (1, 1, -1, -1)), (b, (1, -1, 1, -1)))
        )
    return worst


def _cell_bounds(e: Callable[[Jet, Jet], Jet], a: Array, b: Array, h: float) -> Array:
    """On square cells with these centres; h and the centres are multiples of a power of two, so that ends are exact."""
    along_a, along_b = (_directed(e, a, b, 0.0, *way) for way in ((1.0, 0.0), (0.0, 1.0)))
    wide_a, wide_b, wide = (_directed(e, a, b, h, *way).second for way in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    mixed = (wide - wide_a - wide_b).times(np.array(0.5))
    tilt = along_a.first.magnitude + along_b.first.magnitude
    bend = wide_a.magnitude + 2.0 * mixed.magnitude + wide_b.magnitude
    found: Array = along_a.value.magnitude + h * tilt + 0.5 * h * h * bend
    return found * (1.0 + 1e-12)  # the sum itself is rounded


def _directed(e: Callable[[Jet, Jet], Jet], a: Array, b: Array, h: float, along_a: float, along_b: float) -> Jet:
    """e on cells of half-width h, with its derivatives along a direction."""
    zero, one = np.zeros_like(a), np.ones_like(a)

    def variable(centre: Array, slope: float) -> Jet:
        value, first = Interval(centre - h, centre + h), Interval.point(slope * one)
        return Jet(value, 0 if h else 1, zero, zero, value, first, Interval.point(zero))

    with np.errstate(all="ignore"):
        return e(variable(a, along_a), variable(b, along_b))
