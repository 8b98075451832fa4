"""Scalar functions f: R -> R that instructions apply, with what is known about them.

A function is known by its name; besides its value it declares the facts that its approximants are proven from:

- ``curvature``  sup |f''| between the ``breaks`` (points where f is continuous but f'' need not exist),
- ``left``, ``right``  asymptotes: f(t) - (slope t + intercept) is monotone, with limit 0, from ``beyond`` outwards,
- ``jumps``  f is a step function (the derivative of a piecewise-linear activation): (position, height, side); its
  stand-in replaces each jump by a ramp on that side (+1: right of the position, -1: left of it),
- ``lipschitz`` (of f) and ``bound`` (sup |f|),
- ``exact``  f is piecewise linear and is its own approximant,
- ``radius``  f is applied to |t| <= radius only: on every target that is the domain of its approximant, and an argument
  outside it is an error. What f declares besides must hold for every t.

These declarations are what a user supplies for a new function. They are facts, not tuning: they are proven by interval
arithmetic on the formula itself (:mod:`innergrad.functions.facts`), and a false one is refused. A formula that interval
arithmetic cannot follow is trusted, and said to be: ``prove_facts(f).proven`` is False.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.piecewise import PiecewiseLinear, ramps


@dataclass(frozen=True)
class Asymptote:
    """f(t) - (slope t + intercept) tends to 0 and is monotone from t = ``beyond`` outwards."""

    slope: float
    intercept: float
    beyond: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.slope, self.intercept, self.beyond))):
            raise InputError("an asymptote is made of finite numbers", got=repr(self))


@dataclass(frozen=True)
class Function:
    """A scalar function and its facts; see the module docstring. A program refers to it by its name."""

    name: str
    value: Callable[[Tensor], Tensor] = field(repr=False)
    curvature: float = math.inf
    left: Asymptote | None = None
    right: Asymptote | None = None
    lipschitz: float = math.inf
    bound: float = math.inf
    breaks: tuple[float, ...] = ()
    jumps: tuple[tuple[float, float, int], ...] = ()
    exact: PiecewiseLinear | None = field(default=None, repr=False)
    radius: float = math.inf

    def __post_init__(self) -> None:
        if any(map(math.isnan, (self.curvature, self.lipschitz, self.bound))):
            raise InputError(f"{self.name} declares a fact that is not a number", got="NaN", allowed="a number, or inf")
        if not self.radius > 0.0:
            what = f"{self.name}: the radius of a domain is positive"
            raise InputError(what, got=self.radius, allowed="a positive number, or inf for none")
        if self.exact is not None:
            object.__setattr__(self, "exact", self.bounded(self.exact))

    def __call__(self, t: Tensor) -> Tensor:
        return self.value(t)

    @property
    def needs_domain(self) -> bool:
        """No asymptote on some side: an approximant is valid on a bounded interval only."""
        return self.exact is None and not self.jumps and (self.left is None or self.right is None)

    def bounded(self, approximant: PiecewiseLinear) -> PiecewiseLinear:
        """An approximant, on no more than the domain that f declares."""
        if math.isinf(self.radius):
            return approximant
        lo, hi = approximant.domain
        return replace(approximant, domain=(max(lo, -self.radius), min(hi, self.radius)))

    def magnitude(self, radius: float) -> float:
        """A bound on |f(t)| for |t| <= radius."""
        at_zero = abs(float(self.value(torch.zeros((), dtype=torch.float64))))
        return min(self.bound, at_zero + self.lipschitz * radius)


def linear_function(name: str, f: PiecewiseLinear, lipschitz: float, bound: float = math.inf) -> Function:
    """A function that is piecewise linear, hence exactly a sum of ReLUs."""
    return Function(name, f, curvature=0.0, lipschitz=lipschitz, bound=bound, breaks=f.knots, exact=f)


IDENTITY = linear_function("identity", PiecewiseLinear((), (1.0,)), 1.0)
EXP = Function("exp", torch.exp)
RECIPROCAL = Function("reciprocal", lambda t: 1.0 / t)
NEGATION = linear_function("negation", PiecewiseLinear((), (-1.0,)), 1.0)


def clip(limit: float) -> Function:
    """clip(t, -limit, limit)."""
    return linear_function(f"clip({limit!r})", PiecewiseLinear((-limit, limit), (0.0, 1.0, 0.0)), 1.0, limit)


def clip_residual(box: float) -> Function:
    """clip(t, -box, box) - t: what has to be added to project onto the box. Exactly two ReLUs."""
    return linear_function(f"clip({box!r})-identity", PiecewiseLinear((-box, box), (-1.0, 0.0, -1.0)), 1.0)


def soft_residual(threshold: float, box: float | None) -> Function:
    """clip(soft(t)) - t, soft(t) = sign(t) max(|t| - threshold, 0): the proximal map of threshold |t| on the box."""
    name, knots, slopes = f"soft({threshold!r})", [-threshold, threshold], [0.0, -1.0, 0.0]
    if box is not None:
        edge = box + threshold
        name, knots, slopes = f"{name}, clip({box!r})", [-edge, *knots, edge], [-1.0, *slopes, -1.0]
    return linear_function(f"{name}-identity", PiecewiseLinear(tuple(knots), tuple(slopes)), 1.0)


def ramp_approximant(f: Function, width: float) -> PiecewiseLinear:
    """A step function with every jump replaced by a ramp of the given width, on the side the jump names."""
    start = float(f.value(torch.tensor(-1e300, dtype=torch.float64)))
    return ramps(f.jumps, start, width)
