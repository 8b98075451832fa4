"""Free-knot piecewise-linear approximants with proven sup error.

The tube of half-width epsilon around f is walked greedily: from a point of the path, the straight link that stays
inside the tube for as long as possible, and so on. On a stretch of constant convexity the links run from one side of
the tube to the same side, and touch the other side in between. That is the best a continuous piecewise-linear function
can do: about ``1/4 int sqrt|f''| epsilon^-1/2`` pieces (the paper: O(epsilon^-2)). The walk starts at a pinned point,
f^(0) = f(0), and goes outwards until a ray parallel to the asymptote stays in the tube for ever; a function without an
asymptote needs a bounded domain.

Several functions can be walked together (*joint knots*): they share the knots, each in its own tube.

The sup error is then proven, never sampled, and independently of how the knots were found:

- on a cell [a, b] inside one piece, with e = f - f^ and |f''| <= c there, |e| <= max(|e(a)|, |e(b)|) + c (b - a)^2 / 8;
  cells are halved until the bound is below epsilon;
- where f'' has no bound, at a break with an infinite slope, |e| is at most the distance between the ranges of f and f^
  on the cell;
- on the rays, f minus its asymptote lies between its value at the last knot and its limit, and f^ is parallel to the
  asymptote, so |e| is at most the larger of the two distances.

f is enclosed by interval arithmetic with outward rounding, f'' on each cell too, and tails are those of
:mod:`innergrad.functions.facts`. f^ is the piecewise-linear function of its knots and slopes in rational arithmetic.
The rounding of its float64 table on the cells is part of the error. Rounding that grows with |t| along a ray is not: it
belongs to the arithmetic that evaluates there.

A function whose formula has no interval rules is *trusted* instead: its values in float64 to 16 units in the last
place, and its declarations, which sampling can refute but not prove. ``prove_facts(f).proven`` tells which it was.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
import torch
from jaxtyping import Float

from innergrad.errors import InputError
from innergrad.functions.facts import Facts, Tail, exact_knots, facts_on, prove_facts
from innergrad.functions.intervals import Interval
from innergrad.functions.rules import evaluate
from innergrad.functions.scalar import Asymptote, Function, PiecewiseLinear, ramps

SMALLEST_EPSILON = 1e-8  # below it the rounding of f itself would eat the tube
RAMP = 2.0**-26  # of a jump, in float64: see ramp_approximant
APART = 2.0**-22  # of its position
LARGEST_EPSILON = 0.1
_GRID = 512  # points per link: the walk may leave the tube by 2 epsilon / _GRID^2 between them, which _SHRINK pays for
_SHRINK = 1.0 - 1e-4
_SLOPES_TRIED = 6  # between each extreme slope and the derivative
_FINE = 9e-6  # below it a better slope gains next to nothing, and the walk is long
_MOST_LINKS = 50_000
_MOST_SPANS = 200  # tried for one link; halving and doubling find it in far fewer
_FAR = 1e7  # a link this long never ends

Values = Float[np.ndarray, "functions points"]
Slopes = Float[np.ndarray, " functions"]


def approximate(f: Function, epsilon: float, radius: float | None = None, ramp: float = RAMP) -> PiecewiseLinear:
    """A piecewise-linear function within ``epsilon`` of f. The error is proven.

    It is valid on the whole line. If f needs a domain, it is valid on [-radius, radius], and never on more than the
    domain that f declares. A piecewise-linear f is returned as it is. A step function gets a ramp for every jump: its
    ``error`` is infinite, and ``ramps`` lists where it differs.

    Args:
        f: a function with facts.
        epsilon: the largest error.
        radius: the domain, for functions that need one.
        ramp: how wide ramps are, at most.

    Examples:
        >>> import innergrad as ig
        >>> coarse = ig.approximate(ig.ACTIVATIONS["tanh"].r, epsilon=0.1)
        >>> coarse.error <= 0.1, len(coarse.knots)
        (True, 2)
    """
    if f.exact is not None:
        return f.exact
    check_epsilon(epsilon)
    if f.jumps:
        check_epsilon(ramp)
        return f.bounded(ramp_approximant(f, 2.0 ** math.floor(math.log2(ramp))))
    return f.bounded(_approximate((f,), epsilon, _reach((f,), radius))[0])


def approximate_jointly(
    functions: tuple[Function, ...], epsilon: float, radius: float | None = None
) -> tuple[PiecewiseLinear, ...]:
    """Approximants of several smooth functions on one set of knots, so that one head can write several lanes."""
    check_epsilon(epsilon)
    found = _approximate(functions, epsilon, _reach(functions, radius))
    return tuple(f.bounded(approximant) for f, approximant in zip(functions, found, strict=True))


def ramp_approximant(f: Function, width: float) -> PiecewiseLinear:
    """A step function with every jump replaced by a ramp of the given width, on the side that the jump names. This is
    the one rule for jumps.

    A narrow ramp costs nothing: two hinges for every width delta. Rounding limits it. On a ramp of height h, f^ is h
    (relu(t) - relu(t - delta)) / delta. So in arithmetic with unit u, where |t| is much larger than delta, it is off by
    about u h |t| / delta. On the ramp, which a share of about delta of all arguments of size one meets, it is off by h.
    The two are equal at delta = sqrt(u): *half of the digits*, 2^-26 in float64 (``RAMP``), 2^-12 in float32. (With h a
    power of two, at the position 0, the two hinges cancel exactly for |t| < delta / u.) One set of weights cannot serve
    both: at 2^-26 the matrices in float32 are off by 8 |t|. So 2^-26 is the default, executors that do not add hinges
    (plain, fused) are exact with it in both, and the matrices refuse float32 unless ramps of 2^-12 or wider were asked
    for.

    At a position p no ramp is narrower than ``APART`` times the power of two that is at least |p|: float32 tells its
    ends apart.
    """
    start = float(f.value(torch.tensor(-1e300, dtype=torch.float64)))
    widths = [max(width, APART * 2.0 ** math.ceil(math.log2(abs(at)))) if at else width for at, _, _ in f.jumps]
    try:
        return ramps(f.jumps, start, widths)
    except InputError as error:
        what = f"the jumps of {f.name} are too close for ramps between them"
        got = ", ".join(f"{position!r}" for position, _, _ in sorted(f.jumps))
        raise InputError(what, got=f"jumps at {got}", allowed=f"ramps of {max(widths):.1e}") from error


def is_ramped(f: Function, given: PiecewiseLinear, widest: float) -> bool:
    """Whether a function is the step function with ramps by that rule, none of them wider than allowed."""
    narrowest = min((high - low for low, high in given.ramps), default=0.0)
    if not narrowest > 0.0:
        return False
    width = min(round(math.log2(narrowest)), math.floor(math.log2(max(widest, RAMP))))
    return given == f.bounded(ramp_approximant(f, 2.0**width))


def _reach(functions: tuple[Function, ...], radius: float | None) -> float | None:
    """How far to walk: for ever (None) or, where an asymptote is missing, as told, but no farther than f is applied."""
    declared = max((f.radius for f in functions if f.needs_domain), default=None)
    if declared is None or math.isinf(declared):
        return None if declared is None else radius
    return declared if radius is None else min(radius, declared)


def check_epsilon(epsilon: float, smallest: float = SMALLEST_EPSILON) -> None:
    what = "epsilon is the sup error of every approximant"
    allowed = f"{smallest:g} to {LARGEST_EPSILON:g} in float64"
    if not isinstance(epsilon, numbers.Real) or not smallest <= epsilon <= LARGEST_EPSILON:
        raise InputError(what, got=repr(epsilon), allowed=allowed)


@lru_cache(maxsize=256)
def _approximate(functions: tuple[Function, ...], epsilon: float, radius: float | None) -> tuple[PiecewiseLinear, ...]:
    if radius is not None and not (math.isfinite(radius) and radius > 0):
        raise InputError("the radius of a domain must be a positive number", got=radius)
    for f in functions:
        if f.exact is not None:
            raise InputError(f"{f.name} is piecewise linear already", hint="it is its own approximant")
        if f.jumps:
            raise InputError(
                f"{f.name} jumps: it has no approximant with a sup error", hint="approximate it alone, by ramps"
            )
        if f.needs_domain and radius is None:
            raise InputError(
                f"no asymptotes of {f.name} are known, so its approximant needs a bounded domain", hint="give a radius"
            )
        if not math.isfinite(f.curvature) and not (len(functions) == 1 and _steep(f)):
            raise InputError(f"{f.name} declares no curvature (sup |f''|)", hint="declare it, or nothing can be proven")
    tubes = _Tubes(functions, epsilon * _SHRINK, radius)
    if radius is not None and radius > _MOST_LINKS * tubes.first_span:
        raise InputError("the domain is too large for this epsilon", got=f"radius {radius:g}", hint="use a smaller one")
    paths = list(tubes.paths())
    if not paths:
        raise InputError("no approximant was found", got=f"epsilon = {epsilon:g}", hint="use a smaller epsilon")
    best = min(paths, key=lambda path: _preference(functions, path))
    if math.isinf(functions[0].curvature):
        best = tuple(_half_line(path, epsilon) for path in best)
    elif all(map(_flat_on_the_left, functions)):
        best = tuple(_anchored_on_the_right(path) for path in best)
    return tuple(prove(f, path, epsilon) for f, path in zip(functions, best, strict=True))


def _steep(f: Function) -> bool:
    """Constant left of 0, where it breaks, with an infinite slope on the right: proven without a bound on f''."""
    return math.isinf(f.curvature) and _flat_on_the_left(f) and f.right is not None and prove_facts(f).proven


def _flat_on_the_left(f: Function) -> bool:
    """Constant left of 0, where it breaks."""
    if f.breaks != (0.0,):
        return False
    return f.left == Asymptote(0.0, float(f(torch.zeros(1, dtype=torch.float64))), 0.0)


def _half_line(path: PiecewiseLinear, epsilon: float) -> PiecewiseLinear:
    """For a steep function, which is for t >= 0: its first link goes on a little to the left of 0, so that there is no
    kink with large slopes that cancel.
    """
    path = _anchored_on_the_right(path)
    return replace(path, knots=path.knots[1:], slopes=path.slopes[1:], domain=(-(epsilon**2), math.inf))


def _anchored_on_the_right(path: PiecewiseLinear) -> PiecewiseLinear:
    """Anchored on the right. From there, convex functions are sums of hinges of one sign, and rounding stays relative
    however large t is.
    """
    last, value = exact_knots(path)[-1]
    return replace(path, anchor=float(last), value=float(value))


# -------------------------------------------------------------------------------------------------------- the walk


@dataclass(frozen=True)
class _Link:
    """A straight link: where it ends, and its slope per function."""

    end: float
    slopes: Slopes


@dataclass(frozen=True)
class _Tubes:
    """The tubes of half-width epsilon around several functions, walked together from ``pin`` outwards."""

    functions: tuple[Function, ...]
    epsilon: float
    radius: float | None
    pin: float = 0.0

    def evaluate(self, t: np.ndarray) -> Values:
        points = torch.from_numpy(np.ascontiguousarray(t))
        return np.stack([f(points).numpy() for f in self.functions])

    @cached_property
    def first_span(self) -> float:
        """Length of a link where the curvature is largest; where that is infinite, a guess, which the walk corrects."""
        largest = max(1e-12, *(f.curvature for f in self.functions))
        return 4.0 * math.sqrt(self.epsilon / largest) if math.isfinite(largest) else self.epsilon**2

    def paths(self) -> Iterator[tuple[PiecewiseLinear, ...]]:
        """Paths through the tubes, one for each tried slope of the link through the pin.

        Two slopes give the longest such links, to the left and to the right. The slopes between them and the derivative
        trade length for a smaller error around the pin, or for a better fit of the pieces on either side.
        """
        if any(self.pin in f.breaks for f in self.functions):  # a kink at the pin: nothing ties the sides together
            tried: list[Slopes | None] = [None]
        else:
            values, step = self.evaluate(np.array([self.pin]))[:, 0], 1e-3 * self.first_span
            derivative = np.diff(self.evaluate(np.array([self.pin - step, self.pin + step])))[:, 0] / (2 * step)
            extremes = [self.longest_link(self.pin, values, side, self.first_span, None)[1] for side in (-1, 1)]
            if np.allclose(extremes[0], extremes[1]):  # odd around the pin
                extremes = extremes[:1]
            parts = np.linspace(0.0, 1.0, _SLOPES_TRIED) if self.epsilon > _FINE else np.zeros(1)
            tried = [(1 - part) * extreme + part * derivative for extreme in extremes for part in parts]
        for slope in tried:
            right, left = self.side(1, slope), self.side(-1, slope)
            if right is not None and left is not None:
                yield self.path(left, right, kink=slope is None)

    def path(self, left: list[_Link], right: list[_Link], *, kink: bool) -> tuple[PiecewiseLinear, ...]:
        knots = [link.end for link in reversed(left[:-1])] + [self.pin] * kink + [link.end for link in right[:-1]]
        slopes = [link.slopes for link in reversed(left)] + [link.slopes for link in (right if kink else right[1:])]
        domain = (-math.inf, math.inf) if self.radius is None else (-self.radius, self.radius)
        values = self.evaluate(np.array([self.pin]))[:, 0]
        return tuple(
            PiecewiseLinear(tuple(knots), tuple(float(s[i]) for s in slopes), self.pin, float(value), domain)
            for i, value in enumerate(values)
        )

    def side(self, side: int, first_slope: Slopes | None) -> list[_Link] | None:
        """Links from the pin to infinity (or the radius) in direction ``side``; the last one is the ray.

        None if a link other than the ray never leaves the tube: the first slope was a poor choice.
        """
        links: list[_Link] = []
        x, values, span, slope = self.pin, self.evaluate(np.array([self.pin]))[:, 0], self.first_span, first_slope
        asymptotes = [f.right if side > 0 else f.left for f in self.functions]
        while True:
            if slope is None and all(self.ray_fits(a, x, v, side) for a, v in zip(asymptotes, values, strict=True)):
                links.append(_Link(side * math.inf, np.array([a.slope for a in asymptotes if a is not None])))
                return links
            length, slopes, values = self.longest_link(x, values, side, span, slope)
            if length >= self.limit(x, side):  # without a radius: never, unless the first slope was a poor choice
                links.append(_Link(side * math.inf, slopes))
                return None if self.radius is None else links
            x += side * length
            links.append(_Link(x, slopes))
            if len(links) > _MOST_LINKS:
                raise InputError(
                    f"{self.functions[0].name} does not settle on its declared asymptote", got=f"t = {x:g}"
                )
            span, slope = length, None

    def limit(self, x: float, side: int) -> float:
        if self.radius is not None:
            return abs(side * self.radius - x)
        slow = math.isinf(self.functions[0].curvature) or not self.settled[side]
        return _FAR / self.epsilon**2 if slow else _FAR

    @cached_property
    def settled(self) -> dict[int, bool]:
        """Whether all functions are near their asymptotes at _FAR, by side; those that are slow are not."""
        found = {}
        for side in (-1, 1):
            at, asymptotes = side * _FAR, [f.right if side > 0 else f.left for f in self.functions]
            found[side] = all(
                asymptote is None or abs(value - asymptote.slope * at - asymptote.intercept) <= self.epsilon
                for asymptote, value in zip(asymptotes, self.evaluate(np.array([at]))[:, 0], strict=True)
            )
        return found

    def ray_fits(self, asymptote: Asymptote | None, x: float, value: float, side: int) -> bool:
        """From (x, value), a ray parallel to the asymptote stays within epsilon of f (which is within epsilon at x)."""
        if asymptote is None or side * (x - asymptote.beyond) < 0:
            return False
        offset = value - asymptote.slope * x - asymptote.intercept
        return abs(offset) <= self.epsilon * (1 + 1e-6)  # _SHRINK pays for the rounding

    def longest_link(
        self, x: float, v: Slopes, side: int, span: float, slope: Slopes | None
    ) -> tuple[float, Slopes, Slopes]:
        """The longest link from (x, v) that stays in every tube: its length, its slopes, the values at its end.

        A slope is feasible up to distance s if (f - eps - v)/s' <= slope <= (f + eps - v)/s' for all s' <= s: a funnel
        that narrows. ``span`` is a first guess of the length; a given ``slope`` is kept.
        """
        limit = self.limit(x, side)
        span = min(span, limit)
        for tried in count():
            if tried > _MOST_SPANS:
                raise InputError(
                    f"{self.functions[0].name} cannot be followed by straight links", got=f"near t = {x:g}"
                )
            s = self.distances(x, side, span)
            lo, hi = self.funnel(x, v, side, s, slope)
            bad = np.nonzero((lo > hi).any(axis=0))[0]
            if bad.size == 0:
                slopes = self.to_the_ray(x, v, side, span, lo[:, -1], hi[:, -1])
                if span >= limit or slopes is not None:
                    slopes = 0.5 * (lo[:, -1] + hi[:, -1]) if slopes is None else slopes
                    return span, side * slopes, v + slopes * span
                span = min(2.0 * span, limit)
            elif bad[0] < _GRID // 4:
                span = float(s[bad[0]]) * 1.5
            else:
                break
        j = int(bad[0])
        inside, outside, lo, hi = float(s[j - 1]), float(s[j]), lo[:, j - 1 : j], hi[:, j - 1 : j]
        for _ in range(6):  # the exit, between two grid points: 6 rounds of 64 divide the gap by 7e10
            s = np.linspace(inside, outside, 65)
            low, high = self.slope_bounds(x, v, side, s, slope)
            fits = (np.maximum(lo, low) <= np.minimum(hi, high)).all(axis=0)
            j = int(np.argmin(fits[1:])) + 1
            inside, outside = float(s[j - 1]), float(s[j])
        low, high = self.slope_bounds(x, v, side, np.array([inside]), slope)
        # a convex function is best left on the lower side of its tube, a concave one on the upper side
        near = self.evaluate(x + side * inside * np.array([0.98, 0.99, 1.0]))
        convex = near[:, 0] - 2 * near[:, 1] + near[:, 2] > 0
        slopes = np.where(convex, np.maximum(lo, low)[:, 0], np.minimum(hi, high)[:, 0])
        return inside, side * slopes, v + slopes * inside

    def distances(self, x: float, side: int, span: float) -> np.ndarray:
        """From x, up to span: a grid, and the breaks, between which alone f is as smooth as the grid takes it to be."""
        s = np.linspace(0.0, span, _GRID + 1)[1:]
        breaks = [side * (b - x) for f in self.functions for b in f.breaks if 0.0 < side * (b - x) < span]
        return np.union1d(s, breaks) if breaks else s

    def to_the_ray(self, x: float, v: Slopes, side: int, span: float, lo: Slopes, hi: Slopes) -> Slopes | None:
        """Feasible slopes with which the link meets, at distance ``span``, a ray that stays in the tube for ever."""
        end, slopes = x + side * span, []
        for f, value, low, high in zip(self.functions, v, lo, hi, strict=True):
            asymptote = f.right if side > 0 else f.left
            if asymptote is None or self.radius is not None:
                return None
            centre = (asymptote.slope * end + asymptote.intercept - value) / span
            slope = min(max(centre, low), high)
            if not self.ray_fits(asymptote, end, value + slope * span, side):
                return None
            slopes.append(slope)
        return np.array(slopes)

    def slope_bounds(
        self, x: float, v: Slopes, side: int, s: np.ndarray, slope: Slopes | None
    ) -> tuple[Values, Values]:
        """Slopes with which a link from (x, v) is inside the tubes at distance s."""
        # a given slope may touch the tube between grid points: do not stop there (_SHRINK pays)
        epsilon = self.epsilon if slope is None else self.epsilon * (1 + 2e-5)
        f = self.evaluate(x + side * s) - v[:, None]
        low, high = (f - epsilon) / s, (f + epsilon) / s
        if slope is not None:
            low, high = np.maximum(low, side * slope[:, None]), np.minimum(high, side * slope[:, None])
        return low, high

    def funnel(self, x: float, v: Slopes, side: int, s: np.ndarray, slope: Slopes | None) -> tuple[Values, Values]:
        low, high = self.slope_bounds(x, v, side, s, slope)
        return np.maximum.accumulate(low, axis=1), np.minimum.accumulate(high, axis=1)


def _preference(functions: tuple[Function, ...], paths: tuple[PiecewiseLinear, ...]) -> tuple[int, float]:
    """Fewest pieces; among those, the least mean square error under N(0, 1), where pre-activations are."""
    t = np.linspace(-4.0, 4.0, 801)
    weight = np.exp(-0.5 * t * t)
    errors = [difference(f, path, t) for f, path in zip(functions, paths, strict=True)]
    return paths[0].pieces, float(sum((weight * error * error).sum() for error in errors))


_TRUSTED = 16 * np.finfo(np.float64).eps
_STEPS = 2.0**-51  # a subtraction, a product and a sum, relative to the largest number that occurs
_UP = 1 + 1e-14  # for the few roundings of the bound itself


def prove(f: Function, approximant: PiecewiseLinear, epsilon: float) -> PiecewiseLinear:
    """The approximant with its proven error, whichever it states; raises if |f - f^| <= epsilon cannot be proven."""
    return replace(approximant, error=_proven_error(f, replace(approximant, error=math.inf), epsilon))


@lru_cache(maxsize=1024)
def _proven_error(f: Function, approximant: PiecewiseLinear, epsilon: float) -> float:
    """Once in a process: compiling, loading and ``verify`` ask for the same proof."""
    lo, hi = approximant.domain
    error = _Error(f, approximant, facts_on(f, approximant.domain))
    inner = {*approximant.knots, approximant.anchor, *(b for b in f.breaks if lo < b < hi)}
    edges = np.array(sorted(inner | {end for end in (lo, hi) if math.isfinite(end)}))
    worst = 0.0
    if math.isinf(lo):
        worst = max(worst, error.on_ray(f.left, float(edges[0]), -1))
    if math.isinf(hi):
        worst = max(worst, error.on_ray(f.right, float(edges[-1]), 1))
    if worst > epsilon:
        raise InputError(
            f"{f.name} does not approach its declared asymptotes", got=f"distance {worst:g} at the last knot"
        )
    if not error.facts.proven:
        _check_size(f, edges)
    return max(worst, error.on_cells(edges[:-1], edges[1:], epsilon))


@dataclass(frozen=True)
class _Line:
    """Pieces of f^: on piece i it is y_i + slope_i (t - x_i) with y_i enclosed; its table is off by at most off_i."""

    knots: np.ndarray
    x: np.ndarray
    y: Interval
    slope: np.ndarray
    off: np.ndarray

    @staticmethod
    def of(f: PiecewiseLinear) -> _Line:
        x, y, slope = f.table
        exact = {float(knot): value for knot, value in exact_knots(f)}
        near = np.array([float(exact[point]) for point in x.tolist()])  # correctly rounded
        off = np.array([float(abs(exact[point] - Fraction(value))) for point, value in zip(x, y, strict=True)])
        enclosed = Interval(np.nextafter(near, -math.inf), np.nextafter(near, math.inf))
        return _Line(np.array(f.knots), x, enclosed, slope, np.nextafter(off, math.inf))

    def piece(self, inside: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.searchsorted(self.knots, inside)
        return found

    def at(self, t: np.ndarray, piece: np.ndarray) -> Interval:
        x, y = Interval.point(self.x[piece]), Interval(self.y.lo[piece], self.y.hi[piece])
        return y + (Interval.point(t) - x) * Interval.point(self.slope[piece])

    def rounding(self, t: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """Of the table at t, in float64."""
        size = self.y.magnitude[piece] + np.abs(self.slope[piece] * (t - self.x[piece]))
        total: np.ndarray = self.off[piece] + _STEPS * size
        return total


class _Error:
    """e = f - f^, from proven facts or from trust."""

    def __init__(self, f: Function, approximant: PiecewiseLinear, facts: Facts) -> None:
        self.f, self.approximant, self.facts, self.line = f, approximant, facts, _Line.of(approximant)

    def at(self, t: np.ndarray, piece: np.ndarray, side: int) -> np.ndarray:
        """A bound on |e| at t, as a limit from that side, with the rounding of the table."""
        if self.facts.proven:
            value = evaluate(self.f.value, t, t, side).value
        else:
            near = self.f(torch.from_numpy(np.ascontiguousarray(t))).numpy()
            margin = _TRUSTED * (1 + np.abs(near))
            value = Interval(near - margin, near + margin)
        total: np.ndarray = (value - self.line.at(t, piece)).magnitude + self.line.rounding(t, piece)
        return total

    def curvature(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if not self.facts.proven:
            return np.full(a.shape, self.f.curvature)
        local: np.ndarray = np.minimum(evaluate(self.f.value, a, b).second.magnitude, self.facts.curvature)
        return local

    def on_ray(self, asymptote: Asymptote | None, edge: float, side: int) -> float:
        """From the edge outwards."""
        ray = self.approximant.slopes[0 if side < 0 else -1]
        if asymptote is None or side * (edge - asymptote.beyond) < 0 or ray != asymptote.slope:
            raise InputError(f"{self.f.name}: the approximant has no ray along a declared asymptote beyond {edge:g}")
        tail = self.facts.left if side < 0 else self.facts.right
        if tail is None:  # trusted
            _check_asymptote(self.f, asymptote, edge, side)
            tail = Tail((0.0, 0.0), 0.0)
        point, piece = np.array([edge]), self.line.piece(np.array([edge + side]))
        line = Interval.point(point) * Interval.point(asymptote.slope * np.ones(1))
        offset = line + Interval.point(asymptote.intercept * np.ones(1)) - self.line.at(point, piece)
        limit = (offset + Interval(np.array([tail.limit[0]]), np.array([tail.limit[1]]))).magnitude
        at_edge = self.at(point, piece, side)
        return float(np.maximum(limit + self.line.rounding(point, piece), at_edge)[0] + tail.slack) * _UP

    def on_cells(self, a: np.ndarray, b: np.ndarray, epsilon: float) -> float:
        """On the cells [a, b], none of which has a knot or a break inside; they are halved where need be."""
        largest, piece = 0.0, self.line.piece(0.5 * (a + b))
        for _ in range(64):
            if a.size == 0:
                return largest
            left, right = self.at(a, piece, 1), self.at(b, piece, -1)
            ends = np.maximum(left, right)
            if (ends > epsilon).any():
                break
            middle, bend = 0.5 * (a + b), self.curvature(a, b) * (b - a) ** 2 / 8
            if not self.facts.proven:
                self.check_bend(a, b, bend)
            bound, steep = (ends + bend) * _UP, ~np.isfinite(bend)
            if steep.any():
                bound[steep] = self.apart(a[steep], b[steep], piece[steep]) * _UP
            done = bound <= epsilon
            largest = max(largest, float(bound[done].max(initial=0.0)))
            a, b = np.concatenate([a[~done], middle[~done]]), np.concatenate([middle[~done], b[~done]])
            piece = np.concatenate([piece[~done], piece[~done]])
        what = f"{self.f.name}: a sup error of {epsilon:g} could not be proven"
        raise InputError(what, hint="check its curvature, asymptotes and breaks")

    def apart(self, a: np.ndarray, b: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """A bound on |e| on the cells from the ranges of f and f^; cells are inside one piece."""
        if not self.facts.proven:
            return np.full(a.shape, math.inf)
        line = self.line.at(a, piece).hull(self.line.at(b, piece))
        rounding = np.maximum(self.line.rounding(a, piece), self.line.rounding(b, piece))
        total: np.ndarray = (evaluate(self.f.value, a, b).value - line).magnitude + rounding
        return total

    def check_bend(self, a: np.ndarray, b: np.ndarray, bend: np.ndarray) -> None:
        """Refute, by sampling, a false curvature."""
        left, centre, right = (self.f(torch.from_numpy(t)).numpy() for t in (a, 0.5 * (a + b), b))
        if (np.abs(centre - 0.5 * (left + right)) > bend + _TRUSTED * (1 + np.abs(centre))).any():
            what = f"{self.f.name} bends more than its declared curvature"
            raise InputError(what, got=self.f.curvature, hint="declare sup |f''|")


def _check_size(f: Function, edges: np.ndarray) -> None:
    """Refute, by sampling, a false Lipschitz constant or bound."""
    t = np.linspace(edges[0], edges[-1], 2001)
    value = f(torch.from_numpy(t)).numpy()
    slope = float(np.abs(np.diff(value) / np.diff(t)).max())
    for fact, declared, seen in (("lipschitz", f.lipschitz, slope), ("bound", f.bound, float(np.abs(value).max()))):
        if seen > declared * (1 + 1e-9) + 1e-12:
            raise InputError(f"{f.name} exceeds its declared {fact}", got=f"{seen:g}", allowed=f"{declared:g}")


def _check_asymptote(f: Function, asymptote: Asymptote, edge: float, side: int) -> None:
    """Refute, by sampling, a false asymptote: f minus it must shrink outwards."""
    t = edge + side * np.geomspace(1e-3, 1e6, 400)
    distance = np.abs(f(torch.from_numpy(t)).numpy() - asymptote.slope * t - asymptote.intercept)
    rounding = _TRUSTED * (1 + np.abs(t))
    if (distance[1:] > distance[:-1] + rounding[1:]).any() or distance[-1] > 1e-3 + rounding[-1]:
        what = f"{f.name} does not approach its declared asymptote monotonically beyond {edge:g}"
        raise InputError(what, got=f"distance {distance[0]:g} there and {distance[-1]:g} at {t[-1]:g}")


def difference(f: Function, approximant: PiecewiseLinear, t: np.ndarray) -> np.ndarray:
    """f - f^ at the points t."""
    points = torch.from_numpy(np.ascontiguousarray(t))
    values: np.ndarray = (f(points) - approximant(points)).numpy()
    return values
