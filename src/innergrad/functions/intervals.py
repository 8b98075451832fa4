"""Interval arithmetic on numpy arrays, with outward rounding.

Sums and products of float64 are correctly rounded, so one step to the next float encloses them, and none is taken where
the result is exact. Library functions (exp, log, sin, erfc ...) are assumed to be accurate to ``LIBRARY_ULP`` units in
the last place, and may flush subnormal results to zero; tests check that against ball arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

LIBRARY_ULP = 8
_MAX = np.finfo(np.float64).max
SMALLEST_NORMAL = 2.0**-1022  # library functions may flush smaller numbers to zero

Array = np.ndarray
quiet = np.errstate(all="ignore")  # overflow and nan are looked after


def _down(x: Array) -> Array:
    below: Array = np.nextafter(x, -math.inf)
    return below


def _up(x: Array) -> Array:
    above: Array = np.nextafter(x, math.inf)
    return above


@dataclass(frozen=True)
class Interval:
    """Sets of reals lo <= x <= hi, one per entry; an infinite end is no bound."""

    lo: Array
    hi: Array

    @staticmethod
    def make(lo: Array, hi: Array) -> Interval:
        """After an operation: nan is no knowledge at all, and overflow is a large number, not infinity."""
        low, high = np.minimum(lo, _MAX), np.maximum(hi, -_MAX)
        unknown = np.isnan(low) | np.isnan(high)
        if not unknown.any():  # nearly always
            return Interval(low, high)
        return Interval(np.where(unknown, -math.inf, low), np.where(unknown, math.inf, high))

    @staticmethod
    def point(x: Array | float) -> Interval:
        at = np.asarray(x, dtype=np.float64)
        return Interval(at, at)

    @property
    def _ends(self) -> tuple[Array, ...]:
        """Both, or one if they are the same array: a point."""
        return (self.lo,) if self.lo is self.hi else (self.lo, self.hi)

    def __neg__(self) -> Interval:
        if self.lo is self.hi:
            return Interval.point(-self.lo)
        return Interval(-self.hi, -self.lo)

    def __add__(self, other: Interval) -> Interval:
        low, below = two_sum(self.lo, other.lo)
        if self.lo is self.hi and other.lo is other.hi:
            high, above = low, below
        else:
            high, above = two_sum(self.hi, other.hi)
        return Interval.make(np.where(below >= 0, low, _down(low)), np.where(above <= 0, high, _up(high)))

    def __sub__(self, other: Interval) -> Interval:
        return self + (-other)

    @quiet
    def __mul__(self, other: Interval) -> Interval:
        pairs = [(x, y) for x in self._ends for y in other._ends]
        products, zeros = [x * y for x, y in pairs], [(x == 0) | (y == 0) for x, y in pairs]
        if any(zero.any() for zero in zeros):  # zero times an unbounded set is zero
            lows = [np.where(zero, 0.0, _down(product)) for zero, product in zip(zeros, products, strict=True)]
            highs = [np.where(zero, 0.0, _up(product)) for zero, product in zip(zeros, products, strict=True)]
            return Interval.make(reduce(np.minimum, lows), reduce(np.maximum, highs))
        return Interval.make(_down(reduce(np.minimum, products)), _up(reduce(np.maximum, products)))

    @quiet
    def times(self, factor: Array) -> Interval:
        """By exact numbers; powers of two cause no rounding."""
        ends = [np.where(factor == 0, 0.0, end * factor) for end in (self.lo, self.hi)]
        exact = [simple(factor) & ((np.abs(y) >= SMALLEST_NORMAL) | (x == 0)) | (factor == 0)
                 for x, y in zip((self.lo, self.hi), ends, strict=True)]  # fmt: skip
        if all(keep.all() for keep in exact):
            return Interval.make(np.minimum(*ends), np.maximum(*ends))
        low = [np.where(keep, y, _down(y)) for keep, y in zip(exact, ends, strict=True)]
        high = [np.where(keep, y, _up(y)) for keep, y in zip(exact, ends, strict=True)]
        return Interval.make(np.minimum(*low), np.maximum(*high))

    @quiet
    def reciprocal(self) -> Interval:
        low, high = (
            np.where(self.hi == 0, -math.inf, _down(1 / self.hi)),
            np.where(self.lo == 0, math.inf, _up(1 / self.lo)),
        )
        across = ((self.lo < 0) & (self.hi > 0)) | ((self.lo == 0) & (self.hi == 0))
        return Interval.make(np.where(across, -math.inf, low), np.where(across, math.inf, high))

    def __truediv__(self, other: Interval) -> Interval:
        return self * other.reciprocal()

    def __abs__(self) -> Interval:
        low = np.maximum(np.maximum(self.lo, -self.hi), 0.0)
        return Interval(low, np.maximum(np.abs(self.lo), np.abs(self.hi)))

    def square(self) -> Interval:
        return self.power(2)

    def power(self, n: int) -> Interval:
        """x^n, n >= 0, by multiplication; tight."""
        if n == 0:
            return Interval.point(np.ones_like(self.lo))
        base = abs(self) if n % 2 == 0 else self
        low, high = Interval.point(base.lo), Interval.point(base.hi)
        first, last = low, high
        for _ in range(n - 1):
            first, last = first * low, last * high
        return Interval(first.lo, last.hi)

    def sqrt(self) -> Interval:
        outside = self.lo < 0
        root = [np.sqrt(np.maximum(x, 0.0)) for x in (self.lo, self.hi)]
        low = np.where(root[0] == 0, 0.0, _down(root[0]))
        return Interval(np.where(outside, -math.inf, low), np.where(outside, math.inf, _up(root[1])))

    def within(self, lo: float, hi: float = math.inf) -> Interval:
        """Where it is known to lie."""
        return Interval(np.clip(self.lo, lo, hi), np.clip(self.hi, lo, hi))

    def hull(self, other: Interval) -> Interval:
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def meet(self, other: Interval) -> Interval:
        """Both enclose the same numbers."""
        return Interval(np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi))

    def where(self, mask: Array, other: Interval) -> Interval:
        return Interval(np.where(mask, self.lo, other.lo), np.where(mask, self.hi, other.hi))

    @property
    def magnitude(self) -> Array:
        largest: Array = np.maximum(np.abs(self.lo), np.abs(self.hi))
        return largest


@quiet
def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (nan on overflow)."""
    total = x + y
    other = total - x
    return total, (x - (total - other)) + (y - other)


def simple(x: Array) -> Array:
    """Zero or a power of two, up to sign: multiplying by it is exact."""
    found: Array = (x == 0) | (np.abs(np.frexp(x)[0]) == 0.5)
    return found


def library(function: Callable[[Array], Array], x: Interval) -> Interval:
    """An increasing library function at the ends, widened by the error that it is trusted to have."""
    low, high = function(x.lo), function(x.hi)
    return Interval.make(low - _margin(low), high + _margin(high))


def _margin(y: Array) -> Array:
    return np.where(np.isfinite(y), LIBRARY_ULP * np.spacing(np.abs(y)) + SMALLEST_NORMAL, 0.0)


def from_torch(function: Callable[[Tensor], Tensor]) -> Callable[[Array], Array]:
    """torch's own, where numpy has no such function."""

    def call(x: Array) -> Array:
        result: Array = function(torch.from_numpy(np.ascontiguousarray(x))).numpy()
        return result

    return call


def exp(x: Interval) -> Interval:
    return library(np.exp, x).within(0.0)


def erfc(x: Interval) -> Interval:
    return -library(from_torch(lambda t: -torch.erfc(t)), x).within(-2.0, 0.0)


def odd(function: Callable[[Array], Array], x: Interval, limit: float = math.inf) -> Interval:
    """An increasing odd function; its sign is that of x."""
    y = library(function, x).within(-limit, limit)
    return Interval(np.where(x.lo >= 0, np.maximum(y.lo, 0), y.lo), np.where(x.hi <= 0, np.minimum(y.hi, 0), y.hi))


def log(x: Interval, function: Callable[[Array], Array], least: float) -> Interval:
    y = library(function, Interval(np.maximum(x.lo, least), np.maximum(x.hi, least)))
    outside = x.lo < least
    return Interval(np.where(outside, -math.inf, y.lo), np.where(outside, math.inf, y.hi))


def wave(x: Interval, function: Callable[[Array], Array], peak: float) -> Interval:
    """sin or cos; ``peak`` is where it is 1, up to multiples of 2 pi. Cells that may hold an extremum reach +-1."""
    ends = [Interval(y - _margin(y), y + _margin(y)).within(-1, 1) for y in (function(x.lo), function(x.hi))]
    hull = ends[0].hull(ends[1])
    far = (x.magnitude > 2.0**20) & (x.lo < x.hi)  # cells out there are wide

    def holds(place: float) -> Array:
        slack = 1e-15 * (1 + x.magnitude)
        first, last = (x.lo - place - slack) / (2 * math.pi), (x.hi - place + slack) / (2 * math.pi)
        found: Array = far | ((np.ceil(first - 1e-9) <= np.floor(last + 1e-9)) & (x.magnitude <= 2.0**20))
        return found

    return Interval(np.where(holds(peak + math.pi), -1.0, hull.lo), np.where(holds(peak), 1.0, hull.hi))


def around(x: float) -> Interval:
    """A number known to a few units in the last place; shape (1,), so that it goes with any cells."""
    return Interval(np.array([x - 2 * math.ulp(x)]), np.array([x + 2 * math.ulp(x)]))


TWO_OVER_ROOT_PI = around(2 / math.sqrt(math.pi))
ROOT_HALF = around(math.sqrt(0.5))
HALF_PI_REST = Interval(np.array([6.123e-17]), np.array([6.124e-17]))  # pi/2 minus its float64
