"""Rules: the effect of torch's functions on jets, and :func:`evaluate`, which encloses a formula.

A rule encloses g, g' and g'' on the values of its argument and leaves the rest to :meth:`Jet.chain`. Monotone functions
are enclosed by their values at the ends. Functions that saturate are split into a limit and a tail made of exp or erfc,
which keeps its relative accuracy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from innergrad.functions.intervals import (
    HALF_PI_REST,
    ROOT_HALF,
    TWO_OVER_ROOT_PI,
    Array,
    Interval,
    erfc,
    exp,
    from_torch,
    library,
    log,
    odd,
    wave,
)
from innergrad.functions.jets import RULES, Jet, Mask, NoRule, absolute, branch, kink, reciprocal, square_root


def _maximum(x: Jet, other: object) -> Jet:
    y = x.lift(other)
    result, larger = kink(x - y, x, y), x.value
    other_value = y.value
    larger = Interval(np.maximum(larger.lo, other_value.lo), np.maximum(larger.hi, other_value.hi))
    across = np.isinf(result.s.lo) & (result.a == 0) & (result.b == 0)
    return replace(result, v=larger.where(across, result.v))


def _minimum(x: Jet, other: object) -> Jet:
    return -_maximum(-x, -x.lift(other))


def _clamp(x: Jet, min: object = None, max: object = None) -> Jet:
    result = x if min is None else _maximum(x, min)
    return result if max is None else _minimum(result, max)


def _where(mask: object, x: object, y: object) -> Jet:
    if not isinstance(mask, Mask):
        raise NoRule("torch.where with this condition")
    difference = mask.difference
    upper, lower = difference.lift(x), difference.lift(y)
    return branch(difference, lower, upper) if mask.negated else branch(difference, upper, lower)


def _exp_rule(x: Jet) -> Jet:
    y = exp(x.value)
    return x.chain(y, y, y)


def _expm1_rule(x: Jet) -> Jet:
    value = x.value
    y = exp(value)
    return x.chain(odd(np.expm1, value), y, y)


def _log_rule(x: Jet, function: Callable[[Array], Array] = np.log, least: float = 0.0) -> Jet:
    value = x.value
    first = (value - Interval.point(np.full_like(x.a, least))).reciprocal()
    return x.chain(log(value, function, least), first, -first.square())


def _decay(size: Interval) -> tuple[Interval, Interval]:
    """e/(1+e) and e/(1+e)^2 with e = exp(-size), size >= 0: both decrease in size, so the ends enclose them."""

    def at(x: Array) -> tuple[Interval, Interval]:
        e = exp(Interval.point(-x))
        tail = e / (Interval.point(np.ones_like(x)) + e)
        return tail, tail / (Interval.point(np.ones_like(x)) + e)

    near, far = at(size.lo), at(size.hi)
    return Interval(far[0].lo, near[0].hi), Interval(far[1].lo, near[1].hi)


def _saturate(x: Interval, direct: Interval, tail: Interval, low: float, high: float) -> tuple[Interval, Array]:
    """The rest and the limit of an increasing function that is ``tail(|x|)`` away from its limits low and high."""
    right, left = x.lo >= 1, x.hi <= -1
    return (-tail).where(right, tail.where(left, direct)), np.where(right, high, np.where(left, low, 0.0))


def _tanh_of(x: Interval) -> Interval:
    return odd(np.tanh, x, 1.0)


def _sigmoid(x: Jet) -> Jet:
    value = x.value
    tail, first = _decay(abs(value))
    half = _tanh_of(value.times(np.array(0.5)))
    direct = half.times(np.array(0.5)) + Interval.point(np.full_like(x.a, 0.5))
    rest, limit = _saturate(value, direct, tail, 0.0, 1.0)
    return x.chain(rest, first, -(first * half), limit)


def _tanh(x: Jet) -> Jet:
    value = x.value
    tail, first = _decay(abs(value).times(np.array(2.0)))
    tanh, first = _tanh_of(value), first.times(np.array(4.0))
    rest, limit = _saturate(value, tanh, tail.times(np.array(2.0)), -1.0, 1.0)
    return x.chain(rest, first, -(tanh * first).times(np.array(2.0)), limit)


def _erf(x: Jet) -> Jet:
    value = x.value
    first = exp(-value.square()) * TWO_OVER_ROOT_PI
    direct = odd(from_torch(torch.erf), value, 1.0)
    rest, limit = _saturate(value, direct, erfc(abs(value)), -1.0, 1.0)
    return x.chain(rest, first, -(value * first).times(np.array(2.0)), limit)


def _erfc_rule(x: Jet) -> Jet:
    value = x.value
    first = -(exp(-value.square()) * TWO_OVER_ROOT_PI)
    left = value.hi <= -1
    rest = (-erfc(-value)).where(left, erfc(value))
    return x.chain(rest, first, -(value * first).times(np.array(2.0)), np.where(left, 2.0, 0.0))


def _arctan(x: Jet) -> Jet:
    value = x.value
    first = (Interval.point(np.ones_like(x.a)) + value.square()).reciprocal()
    size = abs(value)
    tail = odd(np.arctan, Interval(np.maximum(size.lo, 1.0), np.maximum(size.hi, 1.0)).reciprocal()) - HALF_PI_REST
    rest, limit = _saturate(value, odd(np.arctan, value), tail, -math.pi / 2, math.pi / 2)
    return x.chain(rest, first, -(value * first.square()).times(np.array(2.0)), limit)


def _sin(x: Jet) -> Jet:
    sin, cos = wave(x.value, np.sin, math.pi / 2), wave(x.value, np.cos, 0.0)
    return x.chain(sin, cos, -sin)


def _cos(x: Jet) -> Jet:
    sin, cos = wave(x.value, np.sin, math.pi / 2), wave(x.value, np.cos, 0.0)
    return x.chain(cos, -sin, -cos)


def _cosh_of(x: Interval) -> Interval:
    return library(np.cosh, abs(x)).within(1.0)


def _cosh(x: Jet) -> Jet:
    cosh = _cosh_of(x.value)
    return x.chain(cosh, odd(np.sinh, x.value), cosh)


def _sinh(x: Jet) -> Jet:
    sinh = odd(np.sinh, x.value)
    return x.chain(sinh, _cosh_of(x.value), sinh)


def _hypot(x: Jet, y: object) -> Jet:
    """sqrt(x^2 + c^2): derivatives x/h and c^2/h^3; far out |x| + c^2 / (h + |x|), which is |x| plus a tail."""
    other = x.lift(y)
    if x.is_constant:
        x, other = other, x
    if not other.is_constant:
        return square_root(x**2 + other**2)
    if not np.asarray(other.a).any():
        return absolute(x)  # which has a kink
    value, c = x.value, Interval.point(np.abs(other.a))
    h = (value.square() + c.square()).sqrt()
    first, second = value / h, c.square() / h.power(3)
    direct = x.chain(h, first, second)
    size, positive = abs(value), absolute(x)
    tail = c.square() / (h + size)
    return (positive + positive.chain(tail, -(tail / h), second)).pick(size.lo >= 1, direct)


def _softplus(x: Jet, beta: float = 1.0, threshold: float = 20.0) -> Jet:
    if threshold != math.inf:
        raise NoRule("softplus with a threshold, where it jumps")
    y = x * beta
    return (_clamp(y, min=0.0) + _log_rule(_exp_rule(-absolute(y)), np.log1p, -1.0)) / beta


def _logaddexp(x: Any, y: Any) -> Jet:
    """log(e^x + e^y) = y + softplus(x - y)."""
    result: Jet = y + _softplus(x - y, threshold=math.inf)
    return result


def _gelu(x: Jet, approximate: str = "none") -> Jet:
    if approximate != "none":
        raise NoRule("gelu with approximate=" + repr(approximate))
    root = x.plain(ROOT_HALF, *(Interval.point(np.zeros(1)),) * 2)
    return x * (_erfc_rule(-(x * root)) * 0.5)


def _leaky(x: Jet, negative_slope: float = 0.01) -> Jet:
    return kink(x, x, x * negative_slope)


def _elu(x: Jet, alpha: float = 1.0) -> Jet:
    return kink(x, x, _expm1_rule(_minimum(x, 0.0)) * alpha)


def _full_like(x: Jet, fill_value: float, **_: object) -> Jet:
    return x.constant(fill_value)


def _swapped(rule: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: rule(y, x)


def _same(x: Jet, *given: object, **named: object) -> Jet:
    """The formula runs in float64: another type would round, or cut off."""
    if any(isinstance(value, torch.dtype) and value != torch.float64 for value in (*given, *named.values())):
        raise NoRule("a conversion to another type")
    return x


RULES.update({
    "add": operator.add, "sub": operator.sub, "subtract": operator.sub, "mul": operator.mul, "multiply": operator.mul,
    "div": operator.truediv, "divide": operator.truediv, "true_divide": operator.truediv, "pow": operator.pow,
    "truediv": operator.truediv, "rtruediv": _swapped(operator.truediv), "rdiv": _swapped(operator.truediv),
    "rsub": _swapped(operator.sub), "radd": operator.add, "rmul": operator.mul,
    "neg": operator.neg, "negative": operator.neg, "gt": operator.gt,
    "lt": operator.lt, "ge": operator.ge, "le": operator.le, "square": lambda x: x**2, "reciprocal": reciprocal,
    "abs": absolute, "absolute": absolute, "maximum": _maximum, "minimum": _minimum, "clamp": _clamp, "clip": _clamp,
    "clamp_min": _maximum, "clamp_max": _minimum, "relu": lambda x: _maximum(x, 0.0), "where": _where,
    "relu6": lambda x: _clamp(x, 0.0, 6.0), "leaky_relu": _leaky, "elu": _elu, "exp": _exp_rule,
    "expm1": _expm1_rule, "log": _log_rule, "log1p": lambda x: _log_rule(x, np.log1p, -1.0), "sqrt": square_root,
    "rsqrt": lambda x: reciprocal(square_root(x)), "sigmoid": _sigmoid, "expit": _sigmoid, "tanh": _tanh, "erf": _erf,
    "erfc": _erfc_rule, "arctan": _arctan, "atan": _arctan, "sin": _sin, "cos": _cos, "cosh": _cosh, "sinh": _sinh,
    "hypot": _hypot, "softplus": _softplus, "silu": lambda x: x * _sigmoid(x), "gelu": _gelu,
    "logaddexp": _logaddexp,
    "log_sigmoid": lambda x: -_softplus(-x, threshold=math.inf), "softsign": lambda x: x / (1 + absolute(x)),
    "ones_like": lambda x, **_: x.constant(1.0), "zeros_like": lambda x, **_: x.constant(0.0),
    "full_like": _full_like, "to": _same, "double": _same, "contiguous": _same,
})  # fmt: skip


def evaluate(formula: Callable[[Any], Any], lo: Array, hi: Array, side: int = 0) -> Jet:
    """The formula on the cells [lo, hi]; raises :class:`NoRule` if it does something unknown."""
    variable = Jet.variable(np.asarray(lo, dtype=np.float64), np.asarray(hi, dtype=np.float64), side)
    try:
        with np.errstate(all="ignore"):
            return variable.lift(formula(variable))
    except NoRule:
        raise
    except (TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise NoRule(f"what it does ({error})") from error
