"""Jets: a formula written for tensors, evaluated on whole cells [lo, hi] together with its two derivatives.

A :class:`Jet` stands for a function of t on many cells at once and encloses it together with f' and f''. It answers to
operators, to methods of tensors and to functions of torch, so the formula that runs is the formula that is enclosed.
The enclosure is of the real function that the formula denotes, with its float constants taken as they are. An operation
without a rule, and a branch that depends on t, raise :class:`NoRule`.

Tails need relative accuracy: softplus(t) - t is e^-t, which is lost once it is added to t. Hence f = a + b t + rest on
each cell with exact numbers a and b (the *main part*), and intervals for the rest, its derivative and f''. Saturating
functions have their limit as main part; sums, products and quotients keep the exact numbers.

At a kink (abs, clamp, where) a cell that ends there sees one side only; a cell with a kink inside has no bound on f''.
A point takes the side it is asked for (``side``), so that limits from both sides can be compared.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.intervals import SMALLEST_NORMAL, Array, Interval, simple, two_sum


class NoRule(InputError):
    """A formula does something that intervals cannot follow: nothing about it can be proven."""

    def __init__(self, operation: str) -> None:
        hint = "write the formula with arithmetic and functions such as exp, tanh, sigmoid, erfc, sqrt, abs, clamp"
        super().__init__(f"no interval rule for {operation}, so nothing about this formula can be proven", hint=hint)
        self.operation = operation


@dataclass(frozen=True, eq=False)
class Jet:
    """f = a + b t + v, f' = b + d, f'' = s on the cells t; see the module docstring.

    side: 0 for cells, +1 or -1 for points at which limits from the right or from the left are meant.
    """

    t: Interval
    side: int
    a: Array
    b: Array
    v: Interval
    d: Interval
    s: Interval

    __array_ufunc__ = None  # numpy's scalars leave operators to this class
    dtype = torch.float64
    device = torch.device("cpu")

    @staticmethod
    def variable(lo: Array, hi: Array, side: int = 0) -> Jet:
        """t itself on the cells [lo, hi]."""
        zero = np.zeros_like(lo)
        rest = Interval.point(zero)
        return Jet(Interval(lo, hi), side, zero, np.ones_like(lo), rest, rest, rest)

    def constant(self, value: object) -> Jet:
        if isinstance(value, Tensor) and value.numel() == 1:
            value = float(value)
        if not isinstance(value, numbers.Real | np.ndarray):
            raise NoRule(f"a constant of type {type(value).__name__}")
        zero = np.zeros_like(self.a)
        rest = Interval.point(zero)
        return Jet(self.t, self.side, zero + value, zero, rest, rest, rest)

    def lift(self, other: object) -> Jet:
        if isinstance(other, Mask):
            return other.number
        return other if isinstance(other, Jet) else self.constant(other)

    @property
    def main(self) -> Interval:
        if not self.b.any():
            return Interval.point(self.a)
        return self.t.times(self.b) + Interval.point(self.a)

    @property
    def value(self) -> Interval:
        return self.main + self.v

    @property
    def first(self) -> Interval:
        return Interval.point(self.b) + self.d

    @property
    def second(self) -> Interval:
        return self.s

    @property
    def is_constant(self) -> bool:
        rests = (self.v, self.d, self.s)
        return not self.b.any() and not any(part.any() for rest in rests for part in (rest.lo, rest.hi))

    def plain(self, value: Interval, first: Interval, second: Interval, limit: Array | None = None) -> Jet:
        """No main part but a limit."""
        zero = np.zeros_like(self.a)
        return Jet(self.t, self.side, zero if limit is None else limit, zero, value, first, second)

    def chain(self, value: Interval, first: Interval, second: Interval, limit: Array | None = None) -> Jet:
        """g(f), from limit + value = g, first = g' and second = g'' on the values of f."""
        d, s = self.first, self.second
        return self.plain(value, first * d, second * d.square() + first * s, limit)

    def pick(self, mask: Array, other: Jet) -> Jet:
        """self on the cells of the mask, other elsewhere."""
        if mask.all():
            return self
        a, b = np.where(mask, self.a, other.a), np.where(mask, self.b, other.b)
        v, d, s = self.v.where(mask, other.v), self.d.where(mask, other.d), self.s.where(mask, other.s)
        return replace(self, a=a, b=b, v=v, d=d, s=s)

    # ------------------------------------------------------------------------------------------------------ operators

    def __neg__(self) -> Jet:
        return replace(self, a=-self.a, b=-self.b, v=-self.v, d=-self.d, s=-self.s)

    def __pos__(self) -> Jet:
        return self

    def __add__(self, other: object) -> Jet:
        y = self.lift(other)
        (a, a_rest), (b, b_rest) = two_sum(self.a, y.a), two_sum(self.b, y.b)
        v, d = self.v + y.v, self.d + y.d
        if a_rest.any() or b_rest.any():
            v = v + Interval.point(a_rest) + self.t * Interval.point(b_rest)
            d = d + Interval.point(b_rest)
        return replace(self, a=a, b=b, v=v, d=d, s=self.s + y.s)

    __radd__ = __add__

    def __sub__(self, other: object) -> Jet:
        return self + (-self.lift(other))

    def __rsub__(self, other: object) -> Jet:
        return self.lift(other) + (-self)

    def __mul__(self, other: object) -> Jet:
        """x y = x rest(y) + rest(x) main(y) + main(x) main(y); the last is exact, or y has no main part."""
        if other is self:
            return self**2
        x, y = self, self.lift(other)
        slope, error = two_sum(x.a * y.b, x.b * y.a)
        exact = _exact(x.a, y.a) & _exact(x.a, y.b) & _exact(x.b, y.a) & (error == 0)
        y = y.pick(exact, y.plain(y.value, y.first, y.second))
        value, first = x.value, x.first
        v = value * y.v
        d = first * y.v + value * y.d
        s = x.s * y.v + first * y.d.times(np.array(2.0)) + value * y.s
        if y.a.any() or y.b.any():
            main, tilt = y.main, Interval.point(y.b)
            v = v + x.v * main
            d = d + x.d * main + x.v * tilt
            s = s + x.s * main + (x.d * tilt).times(np.array(2.0))
        if (x.b * y.b).any():
            square = Interval.point(x.b) * Interval.point(y.b)
            twice = square.times(np.array(2.0))
            v, d, s = v + x.t.square() * square, d + x.t * twice, s + twice
        return replace(x, a=x.a * y.a, b=np.where(exact, slope, 0.0), v=v, d=d, s=s)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> Jet:
        """x / y = q + (x - q y) / y, with q the quotient of the slopes of the main parts, where it is exact."""
        x, y = self, self.lift(other)
        if y.is_constant and simple(y.a).all() and y.a.all():
            return x * (1 / y.a)
        kept = simple(y.b) & (y.b != 0) & (x.b != 0)
        if not kept.any():
            return x * reciprocal(y)
        q = x.constant(np.where(kept, x.b / np.where(kept, y.b, 1.0), 0.0))
        return (x - q * y) * reciprocal(y) + q

    def __rtruediv__(self, other: object) -> Jet:
        return self.lift(other) / self

    def __pow__(self, n: object) -> Jet:
        if isinstance(n, numbers.Real) and float(n) in (0.5, -0.5):
            return square_root(self) if float(n) > 0 else reciprocal(square_root(self))
        if not isinstance(n, numbers.Real) or not float(n).is_integer() or abs(float(n)) > 64:
            raise NoRule(f"the power {n!r}")
        k = int(float(n))
        if k < 0:
            return reciprocal(self**-k)
        if k < 2:
            return self if k == 1 else self.constant(1.0)
        x = self.value
        second = x.power(k - 2).times(np.array(float(k * (k - 1))))
        return self.chain(x.power(k), x.power(k - 1).times(np.array(float(k))), second)

    def __abs__(self) -> Jet:
        return absolute(self)

    def __gt__(self, other: object) -> Mask:
        return Mask(self - self.lift(other), False)

    def __lt__(self, other: object) -> Mask:
        return Mask(self - self.lift(other), True)

    __ge__, __le__ = __gt__, __lt__

    def __eq__(self, other: object) -> bool:
        raise NoRule("==")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise NoRule("a branch that depends on t")

    def __float__(self) -> float:
        raise NoRule("a number made of t")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        rule = _rule(name)
        return lambda *args, **kwargs: _apply(name, rule, (self, *args), kwargs)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _call(func, args, kwargs or {})


@dataclass(frozen=True, eq=False)
class Mask:
    """difference > 0, or < 0 if ``negated``: for torch.where, or as a number. Ties are a matter of sides."""

    difference: Jet
    negated: bool

    @property
    def number(self) -> Jet:
        one, zero = self.difference.constant(1.0), self.difference.constant(0.0)
        return branch(self.difference, zero, one) if self.negated else branch(self.difference, one, zero)

    def __invert__(self) -> Mask:
        return Mask(self.difference, not self.negated)

    def __and__(self, other: object) -> Jet:
        if not isinstance(other, Mask | Jet):
            raise NoRule("this condition")
        return self.number * (other.number if isinstance(other, Mask) else other)

    def __mul__(self, other: object) -> Jet:
        return self.number * other

    __rand__, __rmul__ = __and__, __mul__

    def __bool__(self) -> bool:
        raise NoRule("a branch that depends on t")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("to", "double"):
            return getattr(self.number, name)
        raise NoRule(f"{name} of a comparison")

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _call(func, args, kwargs or {})


# ------------------------------------------------------------------------------------------- what operators stand on


def _exact(x: Array, y: Array) -> Array:
    """x y is a float64."""
    product, zero = np.abs(x * y), (x == 0) | (y == 0)
    found: Array = zero | ((simple(x) | simple(y)) & (product >= SMALLEST_NORMAL) & np.isfinite(product))
    return found


def square_root(x: Jet) -> Jet:
    root = x.value.sqrt()
    half = root.reciprocal().times(np.array(0.5))
    return x.chain(root, half, -(half * x.value.reciprocal()).times(np.array(0.5)))


def reciprocal(x: Jet) -> Jet:
    """1/f, with derivatives in terms of f'/f, so that large f do not overflow."""
    y = x.value.reciprocal()
    ratio = y * x.first
    return x.plain(y, -(ratio * y), y * (ratio.square().times(np.array(2.0)) - y * x.second))


# -------------------------------------------------------------------------------------------------------------- kinks


def _sides(x: Jet, strict: bool) -> tuple[Array, Array]:
    """Cells inside of which x >= 0, and those with x <= 0; if strict, x > 0 and x < 0.

    At a point x = 0 the side decides, if x' has a sign.
    """
    value, slope = x.value, x.first
    above, below, rising, falling = value.lo >= 0, value.hi <= 0, slope.lo > 0, slope.hi < 0
    tie = above & below
    if x.side:
        flat = (slope.magnitude == 0) & (x.second.magnitude == 0)
        right, left = (rising, falling) if x.side > 0 else (falling, rising)
        above, below = above & (~tie | right | flat), below & (~tie | left | flat)
    elif strict:  # zeros only at the ends of cells
        above, below = above & ~tie, below & ~tie
    if strict:
        above, below = above & ((value.lo > 0) | rising | falling), below & ((value.hi < 0) | rising | falling)
    return above, below


def branch(x: Jet, upper: Jet, lower: Jet, strict: bool = True) -> Jet:
    """upper where x > 0, lower where x < 0. Across the change nothing is known about derivatives."""
    above, below = _sides(x, strict)
    everything = Interval(np.full_like(x.a, -math.inf), np.full_like(x.a, math.inf))
    across = x.plain(upper.value.hull(lower.value), everything, everything)
    return upper.pick(above, lower.pick(below, across))


def kink(x: Jet, upper: Jet, lower: Jet) -> Jet:
    """The same where the branches meet at x = 0: f' is in the hull of both."""
    result = branch(x, upper, lower, strict=False)
    return replace(result, d=result.d.meet(upper.first.hull(lower.first) - Interval.point(result.b)))


def absolute(x: Jet) -> Jet:
    result = kink(x, x, -x)
    across = np.isinf(result.s.lo) & (result.a == 0) & (result.b == 0)
    return replace(result, v=abs(x.value).where(across, result.v))


# --------------------------------------------------------------------------------------------------- names of torch

#: by the names of torch's functions and of the methods of tensors; filled by :mod:`innergrad.functions.rules`
RULES: dict[str, Callable[..., Any]] = {}


def _rule(name: str) -> Callable[..., Any]:
    if name not in RULES:
        raise NoRule(f"torch.{name}")
    return RULES[name]


def _apply(name: str, rule: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return rule(*args, **kwargs)
    except TypeError as error:  # arguments that the rule does not know
        raise NoRule(f"torch.{name} with these arguments") from error


def _call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch. A jet knows the cells, so it lifts a tensor or number in front of it."""
    name = func.__name__.removeprefix("special_")
    if name.startswith("__"):
        name = name.strip("_")
    if "input" in kwargs:
        args = (kwargs["input"], *args)
    kwargs = {key: value for key, value in kwargs.items() if key not in ("input", "inplace")}
    jet = next((x for x in args if isinstance(x, Jet)), None)
    if jet is not None and name != "where" and not isinstance(args[0], Jet):
        args = (jet.constant(args[0]), *args[1:])
    return _apply(name, _rule(name), args, kwargs)
