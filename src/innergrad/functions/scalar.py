"""Scalar functions f: R -> R that instructions apply, with what is known about them: piecewise-linear ones, functions
with facts, and the activations and losses' functions that ship.

A function is known by its name; besides its value it declares the facts that its approximants are proven from:

- ``curvature``  sup |f''| between the ``breaks`` (points where f is continuous but f'' need not exist),
- ``left``, ``right``  asymptotes: f(t) - (slope t + intercept) is monotone, with limit 0, from ``beyond`` outwards,
- ``jumps``  f is a step function (the derivative of a piecewise-linear activation): (position, height, side); its
  stand-in replaces each jump by a ramp on that side (+1: right of the position, -1: left of it),
- ``lipschitz`` (of f) and ``bound`` (sup |f|),
- ``exact``  f is piecewise linear and is its own approximant,
- ``rounded``  what f differs by, at most, from what the algorithm asks for: its constants are rounded,
- ``radius``  f is applied to |t| <= radius only: on every target that is the domain of its approximant, and an argument
  outside it is an error. What f declares besides must hold there; ``tf.certificate`` asks for every t,
- ``measured``  nobody declares these facts: they were read off a grid, where they could not be proven.

These declarations are what a user supplies for a new function. They are facts, not tuning: they are proven by interval
arithmetic on the formula itself (:mod:`innergrad.functions.facts`), and a false one is refused. Of a formula that
interval arithmetic cannot follow they are *declared*, and everything says so (:mod:`innergrad.functions.states`). The
formula is recorded when the function is made (:mod:`innergrad.functions.tape`), so that what is proven is what runs.

Continuous piecewise-linear functions on the whole line are sums of ReLUs. One is given by its knots x_1 < ... < x_m,
its m + 1 slopes and one point ``(anchor, value)`` on it. The *two-sided hinge basis* around the anchor,

    f(t) = value + s+ relu(t - anchor) - s- relu(anchor - t)
                 + sum_{x_i > anchor} D_i relu(t - x_i) + sum_{x_i < anchor} D_i relu(x_i - t)

with s+, s- the slopes right and left of the anchor and D_i the slope jumps, has the property that every hinge
vanishes at the anchor: f(anchor) is exact in floating point. Each term is stored as c relu(a t + b) with |a| + |b| <=
1 (Definition 4 of the paper), a a power of two, so that the normalisation is exact.

Constants of activations r and their derivatives r' (each checked in the tests against python-flint's ball arithmetic):

    sup |tanh''| = 4 / (3 sqrt 3)        sup |tanh'''| = 2
    sup |sigmoid''| = 1 / (6 sqrt 3)     sup |sigmoid'''| = 1/8          (softplus' = sigmoid)
    sup |gelu''| = 2 phi(0)              sup |gelu'''| = 0.778769..., at t^2 = (7 - sqrt 33) / 2
    sup |silu''| = 1/2                   sup |silu'''| = 0.308181...

Activations are pairs of such functions (:mod:`innergrad.functions.activation`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.polynomials import Polynomial
from innergrad.functions.tape import recorded


@dataclass(frozen=True)
class PiecewiseLinear:
    """A continuous piecewise-linear function on the whole line. It is exactly a sum of ReLUs.

    Args:
        knots: where the slope changes, from left to right.
        slopes: one before the first knot, one after every knot.
        anchor: a point t at which the function is exact in floating point ...
        value: ... and its value there.
        domain: the interval on which it stands for the function that it approximates.
        error: the largest error on the domain, proven.
        ramps: intervals on which it differs from a step function, by the jump at most.

    Examples:
        >>> import innergrad as ig, torch
        >>> hat = ig.PiecewiseLinear(knots=(-1.0, 0.0, 1.0), slopes=(0.0, 1.0, -1.0, 0.0), value=1.0)
        >>> hat(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 1.0000, 0.5000])
    """

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    anchor: float = 0.0
    value: float = 0.0
    domain: tuple[float, float] = (-math.inf, math.inf)
    error: float = 0.0
    ramps: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        numbers = (*self.knots, *self.slopes, self.anchor, self.value)
        ordered = all(a < b for a, b in pairwise(self.knots)) and self.domain[0] < self.domain[1]
        if len(self.slopes) != len(self.knots) + 1 or not ordered or not all(map(math.isfinite, numbers)):
            raise InputError("a piecewise-linear function has increasing knots, and one slope more", got=repr(self))

    @property
    def pieces(self) -> int:
        return len(self.slopes)

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Per piece: a point (x, y) on it, namely its knot nearest to the anchor, and its slope."""
        knots, slopes = np.array(self.knots), np.array(self.slopes)
        centre = int(np.searchsorted(knots, self.anchor))
        x, y = np.empty(len(slopes)), np.empty(len(slopes))
        x[centre], y[centre] = self.anchor, self.value
        for i in range(centre, len(knots)):  # rightwards: piece i + 1 starts at knot i
            x[i + 1], y[i + 1] = knots[i], y[i] + slopes[i] * (knots[i] - x[i])
        for i in range(centre - 1, -1, -1):  # leftwards: piece i ends at knot i
            x[i], y[i] = knots[i], y[i + 1] + slopes[i + 1] * (knots[i] - x[i + 1])
        return x, y, slopes

    def __call__(self, t: Tensor) -> Tensor:
        x, y, slope = self.lines(t)
        return y + slope * (t - x)

    def lines(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, y and s of every entry, with f(t) = y + s (t - x)."""
        x, y, slope = (torch.as_tensor(column, dtype=t.dtype, device=t.device) for column in self.table)
        if len(self.slopes) == 1:
            return x[0], y[0], slope[0]
        piece = self.piece(t)
        return x[piece], y[piece], slope[piece]

    def piece(self, t: Tensor) -> Tensor:
        """The number of the piece that every entry is on."""
        return torch.bucketize(t.detach().contiguous(), torch.as_tensor(self.knots, dtype=t.dtype, device=t.device))

    @cached_property
    def plus_identity(self) -> PiecewiseLinear:
        """t + f(t): where f is a number minus t, that number, whatever the size of t."""
        slopes = tuple(1.0 + slope for slope in self.slopes)
        return PiecewiseLinear(self.knots, slopes, self.anchor, self.value + self.anchor, self.domain)

    @cached_property
    def hinges(self) -> Float[np.ndarray, "terms 3"]:
        """Rows (a, b, c) with f(t) = sum c relu(a t + b), |a| + |b| <= 1, a a power of two; zero terms left out."""
        right = int(
            np.searchsorted(np.array(self.knots), self.anchor, side="right")
        )  # pieces right and left of the anchor
        left = int(np.searchsorted(np.array(self.knots), self.anchor, side="left"))
        terms = [
            (0.0, 1.0, self.value),
            (1.0, -self.anchor, self.slopes[right]),
            (-1.0, self.anchor, -self.slopes[left]),
        ]
        for i, (knot, jump) in enumerate(zip(self.knots, np.diff(self.slopes), strict=True)):
            if knot != self.anchor:
                terms.append((1.0, -knot, float(jump)) if i >= right else (-1.0, knot, float(jump)))
        return np.array([_normalised(*term) for term in terms if term[2] != 0.0]).reshape(-1, 3)

    def as_weights(self, t: Tensor) -> Tensor:
        """Evaluated the way the weights do."""
        return hinge_sum(self, t)

    def samples(self) -> Tensor:
        """Points at which rounding is measured: the knots, and between them."""
        knots = torch.tensor(sorted({*self.knots, self.anchor}), dtype=torch.float64)
        return torch.cat([knots, 0.5 * (knots[1:] + knots[:-1])])

    def hits(self, t: Tensor) -> Tensor:
        """Number of arguments that fall strictly inside a ramp."""
        return ramp_hits(self.ramps, t)

    def outside(self, t: Tensor) -> float | None:
        """The argument farthest outside the domain, or None."""
        return farthest_outside(self.domain, t)


def ramp_hits(ramps: tuple[tuple[float, float], ...], t: Tensor) -> Tensor:
    """Number of arguments strictly inside one of the intervals, which increase and do not overlap."""
    if not ramps:
        return torch.tensor(0)
    low, high = torch.tensor(ramps, dtype=torch.float64, device=t.device).T.contiguous()
    at = (torch.bucketize(t.double(), low) - 1).clamp(min=0)
    inside: Tensor = (t > low[at]) & (t < high[at])
    return inside.sum()


def farthest_outside(domain: tuple[float, float], t: Tensor) -> float | None:
    lo, hi = domain
    if t.numel() == 0 or (lo == -math.inf and hi == math.inf):
        return None
    low, high = float(t.detach().min()), float(t.detach().max())
    if low < lo or high > hi:
        return low if lo - low > high - hi else high
    return None


def _normalised(a: float, b: float, c: float) -> tuple[float, float, float]:
    scale = 2.0 ** math.ceil(math.log2(abs(a) + abs(b)))
    return a / scale, b / scale, c * scale


def ramps(jumps: tuple[tuple[float, float, int], ...], start: float, widths: Sequence[float]) -> PiecewiseLinear:
    """A step function, ``start`` on the far left, with every (position, height, side) jump made a ramp of its width."""
    knots: list[float] = []
    slopes = [0.0]
    intervals = []
    for (position, height, side), width in sorted(zip(jumps, widths, strict=True)):
        lo, hi = (position, position + width) if side > 0 else (position - width, position)
        knots += [lo, hi]
        slopes += [height / (hi - lo), 0.0]
        intervals.append((lo, hi))
    return PiecewiseLinear(
        tuple(knots), tuple(slopes), anchor=knots[0], value=start, error=math.inf, ramps=tuple(intervals)
    )


def hinge_sum(f: PiecewiseLinear, t: Tensor) -> Tensor:
    """The same function evaluated the way the weights do: as a sum of ReLUs, in the dtype of t."""
    a, b, c = (torch.as_tensor(column, dtype=t.dtype, device=t.device) for column in f.hinges.T)
    return torch.relu(t.unsqueeze(-1) * a + b) @ c


@dataclass(frozen=True)
class Asymptote:
    """A line that a function approaches: f(t) - (slope t + intercept) is monotone, with limit 0.

    Args:
        slope: of the line.
        intercept: of the line.
        beyond: from this t outwards.

    Examples:
        >>> import innergrad as ig
        >>> ig.ACTIVATIONS["tanh"].r.right
        Asymptote(slope=0.0, intercept=1, beyond=0)
    """

    slope: float
    intercept: float
    beyond: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.slope, self.intercept, self.beyond))):
            raise InputError("an asymptote is made of finite numbers", got=repr(self))


@dataclass(frozen=True)
class Levels:
    """A step function: levels[i] between edges i - 1 and i."""

    edges: tuple[float, ...]
    levels: tuple[float, ...]

    @cached_property
    def _table(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.edges, dtype=torch.float64), torch.tensor(self.levels, dtype=torch.float64)

    def __call__(self, t: Tensor) -> Tensor:
        edges, levels = (column.to(t.device) for column in self._table)
        return levels.to(t.dtype)[torch.bucketize(t.detach().double(), edges)]


@dataclass(frozen=True)
class Function:
    """A scalar function and facts about it. A program refers to it by its name.

    The facts are what the errors of approximants are proven from. They are not taken on trust: ``prove_facts`` proves
    them from the formula, and a false one is refused. If the formula cannot be followed, the facts are called
    *declared*, and nothing is certified.

    Args:
        name: programs and saved models know the function by it.
        value: an elementwise map of tensors.
        curvature: a bound on the second derivative, between the breaks.
        left: the asymptote towards minus infinity, if there is one. A function without one needs a domain.
        right: the asymptote towards infinity.
        lipschitz: a bound on the first derivative.
        bound: a bound on the function.
        breaks: points where it is continuous but has no second derivative.
        jumps: (position, height, side) of a step function. A ramp stands for each jump: right of the position if the
            side is +1, left of it if it is -1.
        exact: the function itself, if it is piecewise linear.
        radius: it is applied to |t| <= radius only. An argument outside is an error.
        rounded: how far it is at most from the function that the algorithm asks for, if its constants are rounded.
        measured: the facts were read off a grid, because they could not be proven.

    Examples:
        >>> import innergrad as ig, torch
        >>> facts = {"curvature": 2, "lipschitz": 1, "bound": 1}
        >>> tails = {"left": ig.Asymptote(0, 0, 0), "right": ig.Asymptote(0, 0, 0)}
        >>> bump = ig.Function("bump", lambda t: 1 / (1 + t * t), **facts, **tails)
        >>> bump(torch.tensor([0.0, 1.0]))
        tensor([1.0000, 0.5000])
        >>> ig.prove_facts(bump).proven
        True
    """

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
    rounded: float = 0.0
    measured: bool = False

    def __post_init__(self) -> None:
        if any(map(math.isnan, (self.curvature, self.lipschitz, self.bound))):
            raise InputError(f"{self.name} declares a fact that is not a number", got="NaN", allowed="a number, or inf")
        if not self.radius > 0.0:
            what = f"{self.name}: the radius of a domain is positive"
            raise InputError(what, got=self.radius, allowed="a positive number, or inf for none")
        if self.exact is not None:
            object.__setattr__(self, "exact", self.bounded(self.exact))
        if not isinstance(self.value, PiecewiseLinear | Levels | Polynomial):
            object.__setattr__(self, "value", recorded(self.value))

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
"""The function t, for scores that are plain inner products.

Examples:
    >>> import innergrad as ig, torch
    >>> ig.IDENTITY(torch.tensor([2.0]))
    tensor([2.])
"""
EXP = Function("exp", torch.exp)
RECIPROCAL = Function("reciprocal", lambda t: 1.0 / t)
"""The function 1/t, for programs on target ``gpt`` that divide. Everything that its layer reads is divided.

Examples:
    >>> import innergrad as ig, torch
    >>> ig.RECIPROCAL(torch.tensor([4.0]))
    tensor([0.2500])
"""
NEGATION = linear_function("negation", PiecewiseLinear((), (-1.0,)), 1.0)
"""The function -t: added to a lane by ``pointwise``, it clears the lane exactly.

Examples:
    >>> import innergrad as ig, torch
    >>> ig.NEGATION(torch.tensor([2.0]))
    tensor([-2.])
"""


def clip(limit: float) -> Function:
    """clip(t, -limit, limit)."""
    return linear_function(f"clip({limit!r})", PiecewiseLinear((-limit, limit), (0.0, 1.0, 0.0)), 1.0, limit)


def clip_residual(box: float, threshold: float = 0.0) -> Function:
    """clip(t, -box, box) - t: what has to be added to project onto the box. Exactly two ReLUs. threshold: of a soft
    threshold that is nothing beside the box, and left out.
    """
    name = f"clip({box!r}){f', soft({threshold!r})' if threshold else ''}-identity"
    f = linear_function(name, PiecewiseLinear((-box, box), (-1.0, 0.0, -1.0)), 1.0)
    return replace(f, rounded=threshold * (1 + 1e-9)) if threshold else f


def soft_residual(threshold: float, box: float | None) -> Function:
    """clip(soft(t)) - t, soft(t) = sign(t) max(|t| - threshold, 0): the proximal map of threshold |t| on the box."""
    name, knots, slopes = f"soft({threshold!r})", [-threshold, threshold], [0.0, -1.0, 0.0]
    if box is not None:
        edge = box + threshold
        name, knots, slopes = f"{name}, clip({box!r})", [-edge, *knots, edge], [-1.0, *slopes, -1.0]
    unit = 0.0 if box is None else threshold_unit(box, threshold)
    rounded = unit + math.ulp(threshold)  # the product of rate and l1 is rounded, then to a multiple of the unit
    f = linear_function(f"{name}-identity", PiecewiseLinear(tuple(knots), tuple(slopes)), 1.0)
    return replace(f, rounded=rounded)


def threshold_unit(box: float, threshold: float) -> float:
    """Thresholds that go with a box of 24 bits are multiples of this: box + threshold is exact, if they are at most
    MOST_BOXES.
    """
    return max(math.ldexp(1.0, math.frexp(box)[1] - 48), math.ulp(box + threshold))


MOST_BOXES = 2.0**28  # a threshold, beside which the 24 bits of a box still count
_SQRT2 = math.sqrt(2.0)
_PHI0 = 1.0 / math.sqrt(2.0 * math.pi)


def _phi(t: Tensor) -> Tensor:
    return torch.exp(-0.5 * t * t) * _PHI0


def _cdf(t: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-t / _SQRT2)


def _dsigmoid(t: Tensor) -> Tensor:
    return torch.sigmoid(t) * torch.sigmoid(-t)


def _dtanh(t: Tensor) -> Tensor:
    return torch.cosh(t.clamp(-350.0, 350.0)).square().reciprocal()


def _dsilu(t: Tensor) -> Tensor:
    return torch.sigmoid(t) * (1 + t * torch.sigmoid(-t))


def _softplus(t: Tensor) -> Tensor:
    return -torch.nn.functional.logsigmoid(-t)  # derivatives are right at 0, and accurate far out


def _flat(value: float, beyond: float) -> Asymptote:
    return Asymptote(0.0, value, beyond)


TANH = Function(
    "tanh", torch.tanh, curvature=4 / (3 * math.sqrt(3)), left=_flat(-1, 0), right=_flat(1, 0), lipschitz=1, bound=1
)
DTANH = Function(
    "tanh'", _dtanh, curvature=2.0, left=_flat(0, 0), right=_flat(0, 0), lipschitz=4 / (3 * math.sqrt(3)), bound=1
)
SIGMOID = Function(
    "sigmoid",
    torch.sigmoid,
    curvature=1 / (6 * math.sqrt(3)),
    left=_flat(0, 0),
    right=_flat(1, 0),
    lipschitz=0.25,
    bound=1,
)
DSIGMOID = Function(
    "sigmoid'",
    _dsigmoid,
    curvature=0.125,
    left=_flat(0, 0),
    right=_flat(0, 0),
    lipschitz=1 / (6 * math.sqrt(3)),
    bound=0.25,
)
SOFTPLUS = Function("softplus", _softplus, curvature=0.25, left=_flat(0, 0), right=Asymptote(1, 0, 0), lipschitz=1)
# gelu' peaks at sqrt 2, gelu'' changes sign there; gelu - t and gelu are monotone beyond 0.76, gelu' beyond sqrt 2
GELU = Function(
    "gelu", lambda t: t * _cdf(t), curvature=2 * _PHI0, left=_flat(0, -1), right=Asymptote(1, 0, 1), lipschitz=1.13
)
DGELU = Function(
    "gelu'",
    lambda t: _cdf(t) + t * _phi(t),
    curvature=0.7787697,
    left=_flat(0, -1.5),
    right=_flat(1, 1.5),
    lipschitz=2 * _PHI0,
    bound=1.13,
)
# silu and silu - t are monotone beyond 1.2785, silu' beyond 2.3994
SILU = Function(
    "silu",
    lambda t: t * torch.sigmoid(t),
    curvature=0.5,
    left=_flat(0, -1.3),
    right=Asymptote(1, 0, 1.3),
    lipschitz=1.1,
)
DSILU = Function(
    "silu'", _dsilu, curvature=0.3081816, left=_flat(0, -2.4), right=_flat(1, 2.4), lipschitz=0.5, bound=1.1
)
SIN = Function("sin", torch.sin, curvature=1.0, lipschitz=1, bound=1)
COS = Function("sin'", torch.cos, curvature=1.0, lipschitz=1, bound=1)

RELU = linear_function("relu", PiecewiseLinear((0.0,), (0.0, 1.0)), 1.0)
DRELU = Function("relu'", lambda t: (t > 0).to(t.dtype), curvature=0.0, bound=1, jumps=((0.0, 1.0, 1),))
LEAK = 0.01
LEAKY = linear_function("leaky_relu", PiecewiseLinear((0.0,), (LEAK, 1.0)), 1.0)
DLEAKY = Function(
    "leaky_relu'",
    lambda t: torch.where(t > 0, torch.ones_like(t), LEAK),
    curvature=0.0,
    bound=1,
    jumps=((0.0, 1.0 - LEAK, 1),),
)
RELU6 = linear_function("relu6", PiecewiseLinear((0.0, 6.0), (0.0, 1.0, 0.0)), 1.0, bound=6.0)
DRELU6 = Function(
    "relu6'", lambda t: ((t > 0) & (t < 6)).to(t.dtype), curvature=0.0, bound=1, jumps=((0.0, 1.0, 1), (6.0, -1.0, -1))
)

#: exp on the half-line t <= 0, continued by 1: what a softmax probability exp(t_k - LSE(t)) needs.
EXP_CAPPED = Function(
    "exp(min(t,0))",
    lambda t: torch.exp(t.clamp(max=0.0)),
    curvature=1.0,
    left=_flat(0, 0),
    right=_flat(1, 0),
    lipschitz=1,
    bound=1,
    breaks=(0.0,),
)
#: t / sqrt(1 + t^2), the derivative of the pseudo-Huber loss with delta = 1; sup |f''| = 48 sqrt 5 / 125 at t = 1/2
PSEUDO_HUBER_U = Function(
    "pseudo-huber'",
    lambda t: t / torch.hypot(t, torch.ones_like(t)),
    curvature=48 * math.sqrt(5) / 125,
    left=_flat(-1, 0),
    right=_flat(1, 0),
    lipschitz=1,
    bound=1,
)
