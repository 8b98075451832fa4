"""Taylor polynomials of two variables on many cells at once, every coefficient enclosed: a formula that was written for
tensors, evaluated around the middle of a cell or, for remainders, around all of its points.

    f(c + d) = sum over i + j <= order of  f_ij d_1^i d_2^j        f_ij = centre +- radius, one per cell

A :class:`Taylor` answers to operators and to functions of torch, as a jet does, so the formula that runs is the formula
that is enclosed. Products are truncated; a function g(f) is its own Taylor series around f_00, whose coefficients
follow from g's differential equation, in interval arithmetic. By Taylor's theorem, f(c + d) minus the polynomial of
degree m is at most the sum of |f_ij| |d|^(m+1) over i + j = m + 1, with f_ij around all points of the cell.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innergrad.functions.intervals import Array, Interval, exp, log, odd, wave
from innergrad.functions.jets import NoRule
from innergrad.functions.tape import plain_name

U = 2.0**-53
ROUNDED = 256 * U  # sums of up to 64 products, and a little more
_TINY = 1e-290  # possible loss by underflow
Series = list[Interval]  # coefficients g_k = g^(k)(x) / k!, k = 0 .. order


@lru_cache(maxsize=8)
def exponents(order: int) -> tuple[tuple[int, int], ...]:
    """(i, j) with i + j <= order, by degree."""
    return tuple((degree - j, j) for degree in range(order + 1) for j in range(degree + 1))


@lru_cache(maxsize=8)
def _products(order: int) -> tuple[Array, Array, Array]:
    """Pairs of coefficients, and the first pair of each coefficient of their product."""
    place = {pair: n for n, pair in enumerate(exponents(order))}
    left, right, first = list[int](), list[int](), list[int]()
    for i, j in exponents(order):
        first.append(len(left))
        pairs = [(p, q) for p in range(i + 1) for q in range(j + 1)]
        left += [place[pair] for pair in pairs]
        right += [place[i - p, j - q] for p, q in pairs]
    return np.array(left), np.array(right), np.array(first)


@dataclass(frozen=True, eq=False)
class Taylor:
    """Coefficients centre +- radius, (terms, cells); see the module docstring."""

    order: int
    centre: Array
    radius: Array

    __array_ufunc__ = None  # numpy's scalars leave operators to this class
    dtype = torch.float64
    device = torch.device("cpu")

    @staticmethod
    def variable(order: int, number: int, lo: Array, hi: Array) -> Taylor:
        """The first (0) or second variable around the points between lo and hi."""
        centre, radius = np.zeros((2, len(exponents(order)), len(lo)))
        centre[0] = 0.5 * (lo + hi)
        radius[0] = np.maximum(hi - centre[0], centre[0] - lo) * (1.0 + 4 * U)
        centre[1 + number] = 1.0
        return Taylor(order, centre, radius)

    def lift(self, other: object) -> Taylor:
        if isinstance(other, Taylor):
            return other
        if isinstance(other, Tensor) and other.numel() == 1:
            other = float(other)
        if not isinstance(other, numbers.Real):
            raise NoRule(f"a constant of type {type(other).__name__}")
        centre = np.zeros_like(self.centre)
        centre[0] = float(other)
        return Taylor(self.order, centre, np.zeros_like(centre))

    @property
    def at(self) -> Interval:
        """The first coefficient: its value."""
        return Interval(*(np.nextafter(self.centre[0] + s * self.radius[0], s * math.inf) for s in (-1.0, 1.0)))

    @staticmethod
    def ball(value: Interval) -> tuple[Array, Array]:
        """Centre and radius."""
        with np.errstate(all="ignore"):
            centre = 0.5 * (value.lo + value.hi)
            radius = np.maximum(value.hi - centre, centre - value.lo) * (1.0 + 4 * U)
        unknown = ~(np.isfinite(centre) & np.isfinite(radius))
        return np.where(unknown, 0.0, centre), np.where(unknown, math.inf, radius)

    def series(self, rule: Callable[[Interval, int], Series]) -> Taylor:
        """g of it, by Horner's rule in its coefficients after the first."""
        with np.errstate(all="ignore"):
            coefficients = rule(self.at, self.order)
        rest = replace(self, centre=self.centre.copy(), radius=self.radius.copy())
        rest.centre[0] = rest.radius[0] = 0.0
        total = self._constant(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total * rest + self._constant(coefficient)
        return total

    def _constant(self, value: Interval) -> Taylor:
        centre, radius = np.zeros_like(self.centre), np.zeros_like(self.centre)
        centre[0], radius[0] = self.ball(value)
        return Taylor(self.order, centre, radius)

    # ------------------------------------------------------------------------------------------------------ operators

    def __neg__(self) -> Taylor:
        return replace(self, centre=-self.centre)

    def __pos__(self) -> Taylor:
        return self

    def __add__(self, other: object) -> Taylor:
        y = self.lift(other)
        centre = self.centre + y.centre
        return replace(self, centre=centre, radius=(self.radius + y.radius + U * np.abs(centre)) * (1.0 + 4 * U))

    __radd__ = __add__

    def __sub__(self, other: object) -> Taylor:
        return self + (-self.lift(other))

    def __rsub__(self, other: object) -> Taylor:
        return self.lift(other) - self

    def __mul__(self, other: object) -> Taylor:
        y, (left, right, first) = self.lift(other), _products(self.order)
        with np.errstate(all="ignore"):
            terms = self.centre[left] * y.centre[right]
            size = (
                np.abs(self.centre)[left] * y.radius[right] + self.radius[left] * (np.abs(y.centre) + y.radius)[right]
            )
            size = size + ROUNDED * np.abs(terms) + _TINY * ((self.centre[left] != 0) & (y.centre[right] != 0))
            radius = np.add.reduceat(np.nan_to_num(size, nan=math.inf), first, axis=0) * (1.0 + ROUNDED)
        return replace(self, centre=np.add.reduceat(terms, first, axis=0), radius=radius)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Taylor:
        return self * self.lift(other).series(_reciprocal)

    def __rtruediv__(self, other: object) -> Taylor:
        return self.lift(other) / self

    def __pow__(self, n: object) -> Taylor:
        if not isinstance(n, numbers.Real) or not float(n).is_integer() or not 0 < abs(float(n)) <= 64:
            raise NoRule(f"the power {n!r}")
        total = self
        for _ in range(abs(int(float(n))) - 1):
            total = total * self
        return total if float(n) > 0 else 1.0 / total

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: _apply(name, (self, *args), kwargs)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _apply(plain_name(getattr(func, "__name__", "")), args, kwargs or {})


def _apply(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Taylor:
    x = next(x for x in args if isinstance(x, Taylor))
    if name in ("zeros_like", "ones_like", "full_like"):
        return x.lift({"zeros_like": 0.0, "ones_like": 1.0}.get(name, args[-1]))
    if name in SERIES and len(args) == 1 and not kwargs:
        return x.series(SERIES[name])
    if name in OPERATORS and not kwargs:
        return OPERATORS[name](*(x.lift(part) for part in args[:1]), *args[1:])
    raise NoRule(f"the Taylor series of torch.{name}")


# ------------------------------------------------------------------------------------------------------------- series


def _over(x: Interval, number: float) -> Interval:
    return x / Interval.point(np.full_like(x.lo, number))


def _one(x: Interval) -> Interval:
    return Interval.point(np.ones_like(x.lo))


def _exp(x: Interval, order: int) -> Series:
    value = exp(x)
    return [_over(value, float(math.factorial(k))) for k in range(order + 1)]


def _log(x: Interval, order: int) -> Series:
    """Of a positive argument."""
    one, power = x.reciprocal(), _one(x)
    found = [log(x, np.log, 0.0)]
    for k in range(1, order + 1):
        power = power * one
        found.append(_over(power, float(k if k % 2 else -k)))
    return found


def _reciprocal(x: Interval, order: int) -> Series:
    found = [x.reciprocal()]
    for _ in range(order):
        found.append(-(found[-1] * found[0]))
    return found


def _sqrt(x: Interval, order: int) -> Series:
    """g_k = g_{k-1} (3/2 - k) / k / x."""
    found = [x.sqrt()]
    for k in range(1, order + 1):
        found.append(_over(found[-1].times(np.array(1.5 - k)), float(k)) / x)
    return found


def _riccati(start: Interval, order: int, next_one: Callable[[Series, int], Interval]) -> Series:
    """(k + 1) g_{k+1} = the right-hand side of the equation."""
    found = [start]
    for k in range(order):
        found.append(_over(next_one(found, k), float(k + 1)))
    return found


def _square_at(g: Series, k: int) -> Interval:
    total = g[0] * g[k]
    for i in range(1, k + 1):
        total = total + g[i] * g[k - i]
    return total


def _tanh(x: Interval, order: int) -> Series:
    """g' = 1 - g^2."""
    one = _one(x)
    return _riccati(
        odd(np.tanh, x, 1.0), order, lambda g, k: (one if k == 0 else one.times(np.array(0.0))) - _square_at(g, k)
    )


def _sigmoid(x: Interval, order: int) -> Series:
    """g' = g - g^2."""
    start = odd(np.tanh, x.times(np.array(0.5)), 1.0).times(np.array(0.5)) + _one(x).times(np.array(0.5))
    return _riccati(start, order, lambda g, k: g[k] - _square_at(g, k))


def _waves(x: Interval, order: int, first: int) -> Series:
    sin, cos = wave(x, np.sin, math.pi / 2), wave(x, np.cos, 0.0)
    turned = (sin, cos, -sin, -cos)
    return [_over(turned[(first + k) % 4], float(math.factorial(k))) for k in range(order + 1)]


def _hyperbolic(x: Interval, order: int, first: int) -> Series:
    up, down = exp(x), exp(-x)
    turned = ((up - down).times(np.array(0.5)), (up + down).times(np.array(0.5)))
    return [_over(turned[(first + k) % 2], float(math.factorial(k))) for k in range(order + 1)]


def _arctan(x: Interval, order: int) -> Series:
    """g' = h with h (1 + x^2) = 1: h_k = -(2 x h_{k-1} + h_{k-2}) / (1 + x^2)."""
    bottom, h = _one(x) + x.square(), list[Interval]()
    for k in range(order):
        top = _one(x) if k == 0 else -(x * h[-1]).times(np.array(2.0))
        h.append((top - h[-2] if k > 1 else top) / bottom)
    return [odd(np.arctan, x), *(_over(h[k], float(k + 1)) for k in range(order))]


SERIES: dict[str, Callable[[Interval, int], Series]] = {
    "exp": _exp,
    "log": _log,
    "reciprocal": _reciprocal,
    "sqrt": _sqrt,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "expit": _sigmoid,
    "sin": lambda x, order: _waves(x, order, 0),
    "cos": lambda x, order: _waves(x, order, 1),
    "sinh": lambda x, order: _hyperbolic(x, order, 0),
    "cosh": lambda x, order: _hyperbolic(x, order, 1),
    "arctan": _arctan,
    "atan": _arctan,
}
OPERATORS: dict[str, Callable[..., Taylor]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "subtract": lambda x, y: x - y,
    "rsub": lambda x, y: y - x,
    "mul": lambda x, y: x * y,
    "multiply": lambda x, y: x * y,
    "truediv": lambda x, y: x / y,
    "divide": lambda x, y: x / y,
    "true_divide": lambda x, y: x / y,
    "rtruediv": lambda x, y: y / x,
    "pow": lambda x, n: x**n,
    "square": lambda x: x * x,
    "neg": lambda x: -x,
    "negative": lambda x: -x,
    "expm1": lambda x: x.series(_exp) - 1.0,
    "log1p": lambda x: (x + 1.0).series(_log),
    "rsqrt": lambda x: x.series(_sqrt).series(_reciprocal),
}
