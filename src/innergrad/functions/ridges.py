"""Functions of two variables as sums of functions of one: u(t, y) = sum_m scale_m f_m(a_m t + b_m y) for |t| <= T,
|y| <= Y. Each term is one instruction, so this is Lemma 4 of the paper: the derivative of any smooth loss.

*Exactly*, where the steps of u say so:

    u(t, y) = f(t - y)          the losses of a residual
    u(t, y) = f(t) + g(y)       Poisson's e^t - y; the mixed derivative is zero
    linear parts                are linear terms

*Any other smooth u*, by a polynomial. A polynomial of degree D in two variables is a sum of polynomials of degree D of
D + 1 linear forms. Their directions are j pi / (D + 1), and their powers span every degree (Logan and Shepp, 1975). It
is fitted at Chebyshev points, with the least D that is good enough. A proof follows, independent of how the polynomial
was found. On square cells, in the variables t / T and y / Y, every term of the Taylor polynomial of e = u - P is
enclosed (:mod:`innergrad.functions.taylor`). So are the terms of the next degree around all points of the cell. Their
absolute sum bounds |e|. Cells are quartered until it is small enough. The proven *remainder* is part of certificates
(``Function.rounded``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from innergrad.errors import InputError
from innergrad.functions.calculus import at, of_the_difference, partial, reads
from innergrad.functions.facts import prove_facts
from innergrad.functions.intervals import Array
from innergrad.functions.polynomials import Polynomial
from innergrad.functions.scalar import IDENTITY, Function
from innergrad.functions.tape import Formula, Tape, record
from innergrad.functions.taylor import ROUNDED, Taylor, exponents

DEGREES = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24)
FIT = 0.5  # of the accuracy: the error of the fit at points, so that there is room for the proof
ORDER = 8  # of Taylor polynomials, the remainder among them
_FIRST = 8  # cells of a side to begin with
_MOST_CELLS = 2**16
_PART = 2**10  # cells at a time
_MARGIN = 1.0 + 1e-6  # of declared facts, over the proven ones


Form = tuple[float, float]  # (p, q): the linear form p t / T + q y / Y


@dataclass(frozen=True)
class Ridge:
    """scale f(t t_ + y y_), t_ and y_ the two variables."""

    f: Function
    t: float
    y: float
    scale: float = 1.0


@lru_cache(maxsize=64)
def ridge_form(name: str, u: Tape, t_bound: float, y_bound: float, accuracy: float) -> tuple[Ridge, ...]:
    """u(t, y) for |t| <= t_bound, |y| <= y_bound, exactly or to within the accuracy. Its proven error is ``rounded`` of
    the first term's function. name: its functions are named after it.
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
    if not all(map(math.isfinite, known.values())):
        raise InputError(f"{name} is not smooth on its domain", got=f"|s| <= {radius:g}", hint="give smaller bounds")
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


def _polynomial_form(name: str, u: Tape, T: float, Y: float, accuracy: float) -> tuple[Ridge, ...]:
    """With the least degree that is good enough at points, and then provably so."""
    best, (a, b) = math.inf, _grid()
    if not np.isfinite(_at(u, T * a, Y * b)).all():
        raise InputError(f"{name} is not finite on its domain", got=f"|t| <= {T:g}, |y| <= {Y:g}")
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
            Ridge(smooth(f"{name}, {j + 1} of {degree + 1}", p, abs(a) + abs(b)), a / T, b / Y)
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


def _fitted(u: Tape, T: float, Y: float, forms: Sequence[Form], degree: int) -> tuple[list[Polynomial], float]:
    """Least squares at Chebyshev points, the shortest solution; and how far it is off between them."""
    points = np.cos(np.pi * (np.arange(2 * degree + 4) + 0.5) / (2 * degree + 4))
    a, b = (side.ravel() for side in np.meshgrid(points, points))
    reaches = [abs(p) + abs(q) for p, q in forms]
    bend = 1.0 / (1.0 + np.arange(degree + 1.0) ** 2)  # of the many solutions, one that bends little: it has few pieces
    columns = [
        bend * np.polynomial.chebyshev.chebvander((p * a + q * b) / reach, degree)
        for (p, q), reach in zip(forms, reaches, strict=True)
    ]
    solution = np.linalg.lstsq(np.concatenate(columns, axis=1), _at(u, T * a, Y * b), rcond=1e-13)[0]
    made = [
        Polynomial(tuple(map(float, np.polynomial.chebyshev.cheb2poly(bend * c))), 1.0 / reach)
        for c, reach in zip(solution.reshape(len(forms), -1), reaches, strict=True)
    ]
    a, b = _grid()
    off = _at(u, T * a, Y * b) - sum(f(p * a + q * b) for f, (p, q) in zip(made, forms, strict=True))
    return made, float(np.abs(off).max())


def _grid() -> tuple[Array, Array]:
    """Points of the square, as two columns."""
    a, b = np.meshgrid(*(np.linspace(-1.0, 1.0, 81),) * 2)
    return a.ravel(), b.ravel()


def _at(u: Tape, t: Array, y: Array) -> Array:
    found: Array = u(torch.from_numpy(t), torch.from_numpy(y)).numpy()
    return found


# ---------------------------------------------------------------------------------------------------------- the proof


def _proven_remainder(
    u: Tape, T: float, Y: float, forms: Sequence[Form], made: Sequence[Polynomial], enough: float
) -> float:
    """A bound on |u - P| for |t| <= T, |y| <= Y, refined until it is at most ``enough``, or until a point shows that it
    is not; see the module docstring.
    """
    h = 1.0 / _FIRST
    edge = np.arange(-1.0 + h, 1.0, 2 * h)
    a, b = (side.ravel() for side in np.meshgrid(edge, edge))
    worst = 0.0
    while a.size:
        off = np.abs(_at(u, T * a, Y * b) - sum(f(p * a + q * b) for f, (p, q) in zip(made, forms, strict=True)))
        if a.size > _MOST_CELLS or float(off.max()) > enough:
            what = "it could not be proven that a sum of functions of one variable is close to its function"
            got = f"{a.size} cells, {float(off.max()):.1e} in the middle of one"
            raise InputError(what, got=got, hint="give a larger accuracy, or smaller bounds")
        parts = [slice(k, k + _PART) for k in range(0, a.size, _PART)]
        bound = np.concatenate([_cell_bounds(u, T, Y, forms, made, a[part], b[part], h) for part in parts])
        rest = ~(bound <= enough)
        worst, h = max(worst, float(bound[~rest].max(initial=0.0))), h / 2
        a, b = (
            np.concatenate([c[rest] + sign * h for sign in signs])
            for c, signs in ((a, (1, 1, -1, -1)), (b, (1, -1, 1, -1)))
        )
    return worst


def _cell_bounds(
    u: Tape, T: float, Y: float, forms: Sequence[Form], made: Sequence[Polynomial], a: Array, b: Array, h: float
) -> Array:
    """On square cells around these points, by Taylor's theorem: every term of the polynomial of e = u - P, and the
    terms of the next degree around all points of the cell. (h and the points are sums of few powers of two: ends are
    exact.)
    """
    total = np.zeros_like(a)
    for reach, degrees in ((0.0, range(ORDER)), (h, (ORDER,))):
        a_, b_ = (Taylor.variable(ORDER, n, c - reach, c + reach) for n, c in ((0, a), (1, b)))
        e = u(a_ * T, b_ * Y) - _sum_of(forms, made, a_, b_)
        for n, (i, j) in enumerate(exponents(ORDER)):
            if i + j in degrees:
                total = total + (np.abs(e.centre[n]) + e.radius[n]) * h ** (i + j)
    found: Array = np.nan_to_num(total, nan=math.inf) * (1.0 + 1e-12)  # the sum itself is rounded
    return found


def _sum_of(forms: Sequence[Form], made: Sequence[Polynomial], a: Taylor, b: Taylor) -> Taylor:
    """P: of a linear form s = p a + q b, f(s) has the coefficients f_{i+j} binom(i + j, i) p^i q^j."""
    centre, radius = np.zeros_like(a.centre), np.zeros_like(a.centre)
    for f, (p, q) in zip(made, forms, strict=True):
        series = [a.ball(x) for x in f.series((a * p + b * q).at, a.order)]
        for n, (i, j) in enumerate(exponents(a.order)):
            (middle, off), factor = series[i + j], math.comb(i + j, i) * p**i * q**j
            centre[n] += middle * factor
            radius[n] += (off + ROUNDED * np.abs(middle)) * abs(factor)
    return Taylor(a.order, centre, radius * (1.0 + ROUNDED) + ROUNDED * np.abs(centre))
