"""The declarations of a function, proven by interval arithmetic: never by sampling.

:func:`prove_facts` encloses the ranges of f, f' and f'' for all |t| <= reach (2^128: every float32) by branch and
bound: cells are halved until their enclosures are close to a value that is attained. The enclosures are proven; the
attained values refute declarations that are too small. f is continuous, and f' is between the ``breaks``: where cells
meet, the limits from both sides agree.

An asymptote: g = f - (slope t + intercept) is monotone from ``beyond`` to REACH, up to a total variation ``slack`` in
the other direction. Its value at REACH stands for its limit, and is enclosed. So between any t and REACH, g is between
g(t) and that ``limit``, up to the slack.

Functions that are given by pieces or by jumps are their formulas, up to rounding, on every cell between them.

That f is the derivative of F is proven to within DERIVATIVE. On a cell, f - F' is at most its value in the middle, plus
the growth that f' - F'' allows. How far f is from F' around a point (:func:`departure`) is part of certificates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError, own_gradients
from innergrad.functions.intervals import SMALLEST_NORMAL, Interval, quiet
from innergrad.functions.jets import Jet, NoRule
from innergrad.functions.rules import evaluate
from innergrad.functions.scalar import Asymptote, Function, Levels, PiecewiseLinear
from innergrad.functions.tape import Formula, Tape

REACH = 2.0**128
U = 2.0**-53
_TOLERANCE = 8e-7  # of the enclosures of ranges, relative to the largest value in the range
_COARSE = 1e-3
_ACCEPTED = 1e-6  # a declaration may be this much, relatively, below the proven number, which is the one that counts
_CONTINUOUS = 1e-9
_LIMIT = 1e-12  # an asymptote is right to this
_SLACK = 1e-13
_LEVELS = 100
_MOST_CELLS = 20_000
_PIECES = 4  # per interval, in local bounds
DERIVATIVE = 1e-5  # how far, relative to 1 or to its size, f may be from the derivative that it stands for
_DERIVATIVE_CELLS = 2**19
_SAME = 2.0**-48  # of a formula that is given by pieces, relative

Range = tuple[float, float]
_ANYTHING: Range = (-math.inf, math.inf)


@dataclass(frozen=True)
class Tail:
    """f minus its asymptote, between t and reach, lies between its value at t and ``limit``, give or take ``slack``."""

    limit: Range
    slack: float


@dataclass(frozen=True)
class Facts:
    """Proven facts about a function f, for |t| <= reach. A range is a pair of numbers that enclose it.

    Attributes:
        name: of the function.
        proven: False if the formula is beyond interval arithmetic, or if a declaration could be neither proven nor
            refuted. Then nothing here is more than "unknown".
        reason: why it is not proven.
        reach: for |t| up to this.
        value: the range of f.
        first: the range of f', between breaks.
        second: the range of f'', between breaks.
        left: the tail towards minus infinity.
        right: the tail towards infinity.

    Examples:
        >>> import innergrad as ig
        >>> facts = ig.prove_facts(ig.ACTIVATIONS["tanh"].r)
        >>> facts.proven, round(facts.lipschitz, 3), round(facts.curvature, 3)
        (True, 1.0, 0.77)
    """

    name: str
    proven: bool = True
    reason: str = ""
    reach: float = REACH
    value: Range = _ANYTHING
    first: Range = _ANYTHING
    second: Range = _ANYTHING
    left: Tail | None = None
    right: Tail | None = None

    @property
    def bound(self) -> float:
        return max(map(abs, self.value))

    @property
    def lipschitz(self) -> float:
        return max(map(abs, self.first))

    @property
    def curvature(self) -> float:
        return max(map(abs, self.second))


class _Unproven(InputError):
    """A declaration is neither proven nor refuted."""


@lru_cache(maxsize=256)
def prove_facts(f: Function, reach: float = REACH) -> Facts:
    """Prove the facts that a function declares, by interval arithmetic on its formula.

    A false declaration is an ``InputError`` that says where it fails. ``Facts.proven`` is False if the formula has an
    operation without a rule, or if intervals are too coarse to decide.

    Args:
        f: the function.
        reach: for |t| up to this. Asymptotes are proven up to 2^128 in any case.

    Examples:
        >>> import innergrad as ig, torch
        >>> ig.prove_facts(ig.Function("wave", torch.sin, curvature=1, lipschitz=1, bound=1)).proven
        True
        >>> ig.prove_facts(ig.Function("wave", torch.sin, curvature=1, lipschitz=1, bound=0.5))
        Traceback (most recent call last):
        ...
        innergrad.errors.InputError: ...
    """
    if not isinstance(f, Function):
        raise InputError("facts are proven of an ig.Function", got=repr(f), allowed="e.g. ig.ACTIVATIONS['tanh'].r")
    if not 0.0 < reach <= REACH:
        raise InputError("reach is a positive number", got=reach, allowed=f"up to {REACH:g}")
    try:
        _check_ties(f, reach)
        if f.jumps:
            return _of_steps(f)
        if f.exact is not None:
            return _of_pieces(f, f.exact)
        tails = [None if a is None else _tail(f, a, side) for a, side in ((f.left, -1), (f.right, 1))]
        value, first, second = _ranges(f, reach)
    except (NoRule, _Unproven) as problem:
        return Facts(f.name, False, f"{f.name}: {problem}", reach)  # everything unknown
    return Facts(f.name, True, "", reach, value, first, second, *tails)


def facts_on(f: Function, domain: Range) -> Facts:
    """The facts of f as far out as an interval goes: on the domain of its approximant, those that was proven from."""
    return prove_facts(f, min(max(map(abs, domain)), REACH))


def proven(f: Function) -> Function:
    """The function with the facts that are proven in place of those it declares; refuses where nothing is."""
    if f.jumps or f.exact is not None:
        return f
    facts = prove_facts(f)
    if not facts.proven:
        raise InputError(f"nothing is proven about {f.name}, so there is no certificate", got=facts.reason)
    return replace(f, curvature=facts.curvature, lipschitz=facts.lipschitz, bound=facts.bound)


def local_curvature(f: Function, lo: Tensor, hi: Tensor, facts: Facts | None = None) -> Tensor:
    """A bound on |f''| on each interval [lo, hi]; inf where there is none, as across a break. facts: known facts of f,
    by default for all of the line.
    """
    low, high = lo.detach().cpu().numpy().astype(np.float64), hi.detach().cpu().numpy().astype(np.float64)
    across = np.zeros(low.shape, dtype=bool)
    for position in (*f.breaks, *(jump[0] for jump in f.jumps)):
        across |= (low < position) & (position < high)
    if f.jumps or f.exact is not None:
        bound = np.zeros(low.shape)
    else:
        everywhere = _global_curvature(f, low, high, facts)
        bound = np.minimum(_cell_curvature(f, low, high, np.isfinite(everywhere)), everywhere)
    return torch.from_numpy(np.where(across, math.inf, bound)).to(lo.device)


def local_swing(f: Function, z: Tensor, radius: Tensor) -> Tensor:
    """A bound on |f(t) - f(z)| for |t - z| <= radius, from the range of f there: all there is at an infinite slope."""
    centre, reach = (part.detach().cpu().numpy().astype(np.float64) for part in (z, radius))
    known = np.isfinite(reach)
    low = np.nextafter(centre - np.where(known, reach, 0.0), -math.inf)
    high = np.nextafter(centre + np.where(known, reach, 0.0), math.inf)
    try:
        inside = evaluate(f.value, low.ravel(), high.ravel()).value
        at = evaluate(f.value, centre.ravel(), centre.ravel(), side=1).value
    except NoRule:
        return torch.full_like(z, math.inf)
    swing = np.maximum(inside.hi - at.lo, at.hi - inside.lo).reshape(centre.shape)
    total = 2.0 * _bound(f)
    found = np.where(known, np.minimum(np.nextafter(swing, math.inf), total), total)
    return torch.from_numpy(found).to(z.device)


class Evaluated(NamedTuple):
    """f(t) and f'(t) in float64, and the errors of the two."""

    value: Tensor
    slope: Tensor
    off: Tensor
    slope_off: Tensor


def evaluated(f: Function | PiecewiseLinear, t: Tensor) -> Evaluated:
    """A function as torch evaluates it, and its distance to enclosures of its formula.

    Interval arithmetic takes ``LIBRARY_ULP`` of the functions of torch and numpy for granted, and nothing of the
    formula; one that it cannot follow is refused. Where f jumps, its slope counts as zero.
    """
    if isinstance(f, PiecewiseLinear):
        return _on_lines(f, t)
    if f.jumps:
        zero = torch.zeros_like(t)
        return Evaluated(f.value(t), zero, _levels_off(f, t), zero)
    if f.exact is not None:
        return _on_lines(f.exact, t)
    with own_gradients():
        variable = t.detach().clone().requires_grad_()
        value = f.value(variable)
        (slope,) = torch.autograd.grad(value.sum(), variable)
    at = t.detach().cpu().numpy().astype(np.float64)
    try:
        jet = evaluate(f.value, at.ravel(), at.ravel(), side=1)
    except NoRule as problem:
        raise InputError(f"nothing is proven about {f.name}, so there is no certificate", got=str(problem)) from problem
    off = [_distance(found.detach(), part) for found, part in ((value, jet.value), (slope, jet.first))]
    return Evaluated(value.detach(), slope, *off)


class Remembered:
    """:func:`evaluated`, which remembers until it is cleared: interval arithmetic is slow."""

    def __init__(self) -> None:
        self._known: dict[tuple[Function | PiecewiseLinear, torch.Size, bytes], Evaluated] = {}

    def __call__(self, f: Function | PiecewiseLinear, t: Tensor) -> Evaluated:
        key = f, t.shape, t.detach().contiguous().numpy().tobytes()
        if key not in self._known:
            self._known[key] = evaluated(f, t)
        return self._known[key]

    def clear(self) -> None:
        self._known.clear()


def _levels_off(f: Function, t: Tensor) -> Tensor:
    """The error of a step function, as torch evaluates it; at a jump it has the value of either side."""
    if isinstance(f.value, Levels):
        return torch.zeros_like(t)
    at, found = t.detach().cpu().numpy().astype(np.float64).ravel(), f.value(t).detach()
    return torch.minimum(*(_distance(found, enclosed(f.value, at, at, side).value) for side in (1, -1)))


@quiet
def _distance(found: Tensor, enclosed: Interval) -> Tensor:
    """To the farther end; infinite where either is not a number."""
    at = found.cpu().numpy().ravel()
    apart = np.maximum(enclosed.hi - at, at - enclosed.lo)
    far = np.where(np.isnan(apart), math.inf, np.nextafter(apart, math.inf))
    return torch.from_numpy(np.broadcast_to(far, at.shape).reshape(found.shape).copy()).to(found.device)


def _on_lines(f: PiecewiseLinear, t: Tensor) -> Evaluated:
    """y + s (t - x): nothing is rounded where it only picks a number, or leaves t as it is."""
    x, y, slope = (part.expand_as(t) for part in f.lines(t))
    moved = (slope * (t - x)).abs()
    inexact, moves = slope.abs() != 1.0, (slope != 0) & (t != x)
    times = (x != 0).to(t.dtype) + inexact.to(t.dtype)
    rounded = times * moved + torch.where(moves & (y != 0), moved + y.abs(), 0.0)
    underflow = torch.full_like(t, SMALLEST_NORMAL)
    off = torch.where(moves, U * (1 + 4 * U) * rounded + torch.where(inexact, underflow, 0.0), 0.0)
    return Evaluated(f(t), slope, off + _sums_off(f).to(t.device)[f.piece(t)], torch.zeros_like(t))


@lru_cache(maxsize=256)
def _sums_off(f: PiecewiseLinear) -> Tensor:
    """The error of the value at the point of every piece, which is a rounded sum."""
    exact, (x, y, _) = dict(exact_knots(f)), f.table
    off = [abs(exact[Fraction(at)] - Fraction(value)) for at, value in zip(x.tolist(), y.tolist(), strict=True)]
    return torch.tensor([math.nextafter(float(gap), math.inf) if gap else 0.0 for gap in off], dtype=torch.float64)


def _bound(f: Function) -> float:
    try:
        facts = prove_facts(f)
    except InputError:
        return math.inf
    return facts.bound if facts.proven else math.inf


@quiet
def _cell_curvature(f: Function, low: np.ndarray, high: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """From the formula on each interval cut into a few pieces, and at 0, where formulas have their kinks.

    A cut could hide a kink of f: they count where f is known to be smooth, or where the whole interval has a bound.
    """
    parts = [low + (high - low) * (i / _PIECES) for i in range(1, _PIECES)]
    edges = np.sort(np.stack([low, *parts, high, np.clip(0.0, low, high)]), axis=0)
    try:
        whole = evaluate(f.value, low.ravel(), high.ravel()).second.magnitude.reshape(low.shape)
        pieces = evaluate(f.value, edges[:-1].ravel(), edges[1:].ravel()).second.magnitude.reshape(edges[1:].shape)
    except NoRule:
        return np.full(low.shape, math.inf)
    empty = (edges[:-1] == edges[1:]) & (low < high)  # no part of the interval
    bound: np.ndarray = np.where(smooth | np.isfinite(whole), np.where(empty, 0.0, pieces).max(axis=0), math.inf)
    return bound


def _global_curvature(f: Function, low: np.ndarray, high: np.ndarray, facts: Facts | None) -> np.ndarray:
    """The bound that is proven for every t. A function that is only good on a domain may have false global
    declarations.
    """
    try:
        facts = facts or prove_facts(f)
    except InputError:
        return np.full(low.shape, math.inf)
    inside = (low >= -facts.reach) & (high <= facts.reach)
    return np.where(inside & facts.proven, facts.curvature, math.inf)


# ---------------------------------------------------------------------------------------------------------- derivatives


@quiet
def departure(f: Function, primitives: tuple[Formula, ...], lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """A bound on |f - F'| on the cells [lo, hi], for every F of the primitives."""
    middle, worst = 0.5 * (lo + hi), np.zeros_like(lo)
    half = np.nextafter(np.maximum(hi - middle, middle - lo), math.inf)
    for primitive in primitives:
        cells, own = enclosed(primitive, lo, hi), enclosed(f.value, lo, hi)
        centre = enclosed(primitive, middle, middle, 1).first - enclosed(f.value, middle, middle, 1).value
        change = (cells.second - own.first) * Interval(-half, half)
        bound = np.minimum((cells.first - own.value).magnitude, (centre + change).magnitude)
        worst = np.maximum(worst, np.nan_to_num(bound, nan=math.inf))
    return worst


def departed(f: Function, primitives: tuple[Formula, ...], t: Tensor, radius: Tensor) -> Tensor:
    """How far f is, for all arguments within the radius of t, from the derivative that it stands for."""
    if not primitives:
        return torch.zeros_like(t)
    if f.jumps:  # the same for all arguments on a level
        return torch.full_like(t, prove_derivative(f, primitives))
    centre, reach = (part.detach().cpu().numpy().astype(np.float64).ravel() for part in (t, radius))
    known = np.isfinite(reach)
    low, high = centre - np.where(known, reach, 0.0), centre + np.where(known, reach, 0.0)
    apart = departure(f, primitives, np.nextafter(low, -math.inf), np.nextafter(high, math.inf))
    return torch.from_numpy(np.where(known, apart, math.inf).reshape(t.shape)).to(t.device)


@lru_cache(maxsize=256)
def prove_derivative(f: Function, primitives: tuple[Formula, ...], reach: float = REACH) -> float:
    """How far f may be from the derivatives of the primitives for |t| <= reach, relative to 1 or to its size.
    Where f is piecewise linear, it may differ by rounding alone: the difference is not part of any bound there.

    Raises InputError where it is none, and :class:`NoRule` or a sentence of its own where that could not be proven.
    """
    if f.jumps or (f.exact is not None and all(isinstance(F, PiecewiseLinear) for F in primitives)):
        return max(_slopes_are_levels(f, primitive) for primitive in primitives)
    knots = [knot for F in (f.value, *primitives) if isinstance(F, PiecewiseLinear) for knot in F.knots]
    reach = min(reach, f.radius)
    edges = np.unique(np.concatenate([_edges(f, -reach, reach), [x for x in knots if abs(x) < reach]]))
    a, b, largest, allowed = edges[:-1], edges[1:], 0.0, DERIVATIVE if f.exact is None else _SAME
    for _ in range(_LEVELS):
        middle = 0.5 * (a + b)
        size = np.maximum(1.0, np.nan_to_num(enclosed(f.value, middle, middle, 1).value.magnitude, nan=1.0))
        _refute_derivative(f, primitives, middle, size)
        if f.exact is not None and not (departure(f, primitives, middle, middle) / size <= allowed).all():
            break  # not even at points: smaller cells are of no use
        bound = departure(f, primitives, a, b) / size
        rest = ~(bound <= allowed)
        largest = max(largest, float(bound[~rest].max(initial=0.0)))
        a, b, middle = a[rest], b[rest], middle[rest]
        if not a.size:
            return largest
        if a.size > _DERIVATIVE_CELLS or (middle <= a).any() or (middle >= b).any():
            break
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
    what = f"it could not be proven that {f.name} is the derivative that it stands for, near t = {a[0]:g}"
    raise _Unproven(what)


def _refute_derivative(f: Function, primitives: tuple[Formula, ...], t: np.ndarray, size: np.ndarray) -> None:
    for primitive in primitives:
        apart = enclosed(primitive, t, t, 1).first - enclosed(f.value, t, t, 1).value
        off = np.maximum(np.maximum(apart.lo, -apart.hi), 0.0) / size
        if (off > 10 * DERIVATIVE).any():
            at = int(np.argmax(off))
            what = f"{f.name} is not the derivative that it stands for"
            raise InputError(what, got=f"off by {off[at] * size[at]:g} at t = {t[at]:g}")


def _slopes_are_levels(f: Function, primitive: Formula) -> float:
    """Of functions given by pieces or jumps: the steps of f are the slopes of the primitive; off by this at most."""
    if isinstance(primitive, PiecewiseLinear):
        places = [*primitive.knots, *(at for at, _, _ in f.jumps)]
    else:
        places = [at for at, _, _ in f.jumps]
    edges = np.unique(np.concatenate([_edges(f, -REACH, REACH), places]))
    a, b = edges[:-1], edges[1:]
    middle = 0.5 * (a + b)
    value = f.value(torch.from_numpy(middle)).numpy()
    off = (enclosed(primitive, a, b).first - Interval.point(value)).magnitude
    if not (off <= 1e-12 * np.maximum(1.0, np.abs(value))).all():
        raise InputError(
            f"{f.name} is not the derivative that it stands for",
            got=f"other slopes near t = {middle[~(off <= 1e-12)][0]:g}",
        )
    return float(off.max())


# ----------------------------------------------------------------------------------------------------------- the ranges


def _edges(f: Function, lo: float, hi: float) -> np.ndarray:
    """Where cells begin: quarters near 0, powers of two farther out, and the breaks."""
    powers = 2.0 ** np.arange(4, 1 + max(4, math.ceil(math.log2(max(abs(lo), abs(hi), 16.0)))))
    points = np.concatenate([-powers, np.linspace(-16, 16, 129), powers, np.array([lo, hi, *f.breaks])])
    return np.unique(points[(points >= lo) & (points <= hi)])


def _parts(jet: Jet) -> tuple[Interval, Interval, Interval]:
    return jet.value, jet.first, jet.second


def _refined(cells: Jet, centre: Jet) -> tuple[Interval, Interval, Interval]:
    """Enclosures of f and f' on cells, also from their values in the middle and one derivative more."""
    value, first, second = _parts(cells)
    lo, middle, hi = (Interval.point(x) for x in (cells.t.lo, centre.t.lo, cells.t.hi))
    step = Interval((lo - middle).lo, (hi - middle).hi)
    first = first.meet(centre.first + second * step)
    return value.meet(centre.value + first * step), first, second


@quiet
def _ranges(f: Function, reach: float) -> list[Range]:
    """Enclosures of the ranges of f, f' and f'', checked against the declarations of f."""
    edges = _edges(f, -reach, reach)
    _check_continuity(f, edges[1:-1])
    a, b, wanted = edges[:-1], edges[1:], [k for k in range(3) if k == 0 or math.isfinite(_declared(f, k))]
    low, high = np.full(3, math.inf), np.full(3, -math.inf)  # proven
    least, most = np.full(3, math.inf), np.full(3, -math.inf)  # attained
    points = edges
    for level in range(_LEVELS):
        middle = 0.5 * (a + b)
        cells, centre = evaluate(f.value, a, b), evaluate(f.value, middle, middle, side=1)
        for k, part in enumerate(_parts(evaluate(f.value, points, points, side=1) if level == 0 else centre)):
            least[k], most[k] = min(least[k], part.hi.min()), max(most[k], part.lo.max())
            _check_declared(f, k, part, points if level == 0 else middle)
        enclosures = _refined(cells, centre)
        below, above = least - _allowance(least, most), most + _allowance(most, least)
        fine = np.ones(a.shape, dtype=bool)
        for k in wanted:
            fine &= (enclosures[k].hi <= above[k]) & (enclosures[k].lo >= below[k])
        fine |= (middle <= a) | (middle >= b) | (level == _LEVELS - 1) | ((~fine).sum() > _MOST_CELLS)
        for k in range(3):
            low[k] = min(low[k], enclosures[k].lo[fine].min(initial=math.inf))
            high[k] = max(high[k], enclosures[k].hi[fine].max(initial=-math.inf))
        kinks = middle[~fine & ~np.isfinite(cells.second.magnitude)]  # a finite f'' leaves no room for one
        _check_continuity(f, kinks)
        a, b = np.concatenate([a[~fine], middle[~fine]]), np.concatenate([middle[~fine], b[~fine]])
        if a.size == 0:
            break
    for k in range(3):
        limit, found = _declared(f, k), max(abs(low[k]), abs(high[k]))
        if math.isfinite(limit) and not found <= limit * (1 + _ACCEPTED):
            raise _Unproven(f"{_FACTS[k]} = {limit:g} could not be proven; the proven bound is {found:g}")
    return [(float(x), float(y)) for x, y in zip(low, high, strict=True)]


def _allowance(end: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far enclosures may be from attained values; f'' is refined where it is largest, which costs most."""
    allowed: np.ndarray = _TOLERANCE * np.maximum(np.abs(end), np.minimum(np.abs(other), 1.0))
    if abs(other[2]) > 1.01 * abs(end[2]):
        allowed[2] = _COARSE * abs(other[2])
    return allowed


_FACTS = ("bound", "lipschitz", "curvature")
_HINTS = ("declare sup |f|", "declare sup |f'|", "declare sup |f''|")


def _declared(f: Function, k: int) -> float:
    return (f.bound, f.lipschitz, f.curvature)[k]


def _check_declared(f: Function, k: int, part: Interval, t: np.ndarray) -> None:
    """Attained values are lower bounds of the supremum."""
    attained = np.maximum(np.maximum(part.lo, -part.hi), 0.0)
    worst = int(np.argmax(attained))
    if attained[worst] > _declared(f, k) * (1 + 1e-12):
        what = f"{f.name} exceeds its declared {_FACTS[k]} at t = {t[worst]:g}"
        raise InputError(what, got=f"{attained[worst]:g}", allowed=f"{_declared(f, k):g}", hint=_HINTS[k])


def _check_continuity(f: Function, t: np.ndarray) -> None:
    """f has no jump at t, and f' none but at the breaks: limits from both sides agree."""
    if t.size == 0:
        return
    right, left = evaluate(f.value, t, t, side=1), evaluate(f.value, t, t, side=-1)
    for k, kind in enumerate(("jump", "break")):
        above, below = _parts(right)[k], _parts(left)[k]
        allowed = _CONTINUOUS * np.maximum(1.0, above.magnitude)
        checked = np.ones(t.shape, dtype=bool) if k == 0 else ~np.isin(t, f.breaks)
        apart = checked & (np.maximum(above.lo - below.hi, below.lo - above.hi) > allowed)
        if apart.any():
            what = f"{f.name} is not continuous" if k == 0 else f"the derivative of {f.name} is not continuous"
            raise InputError(what, got=f"a change at t = {t[apart][0]:g}", hint=f"declare it as a {kind}")
        hull = above.hull(below)
        width = hull.hi - hull.lo
        no_bound = (above.lo == below.lo) & (above.hi == below.hi) & ~np.isfinite(width)  # overflow, or a pole
        unclear = checked & ~(width <= allowed) & ~no_bound
        if unclear.any():
            raise _Unproven(f"it could not be proven continuous, with its derivative, at t = {t[unclear][0]:g}")


def _check_ties(f: Function, reach: float) -> None:
    """Where something that f compares with something else equals it, f has the value of either side, and no other:
    (t >= a) & (t <= a) is a spike that no cell shows.
    """
    for difference in f.value.comparisons if isinstance(f.value, Tape) else ():
        t = roots(difference, f, reach)
        if not t.size:
            continue
        value = f.value(torch.from_numpy(t)).to(torch.float64)
        off = [_distance(value, evaluate(f.value, t, t, side).value).numpy() for side in (1, -1)]
        apart = ~(np.minimum(*off) <= _CONTINUOUS * np.maximum(1.0, np.abs(value.numpy())))
        if apart.any():
            at = float(t[apart][0])
            raise _Unproven(f"at t = {at:g}, where it compares equal numbers, its value is not that of either side")


@quiet
def roots(difference: Formula, f: Function, reach: float) -> np.ndarray:
    """The floats at which a difference is zero, up to reach."""
    edges, found = _edges(f, -reach, reach), list[np.ndarray]()
    a, b = edges[:-1], edges[1:]
    for _ in range(_LEVELS):
        cells = evaluate(difference, a, b)
        ends = [evaluate(difference, t, t, side).value for t, side in ((a, 1), (b, -1))]
        zero = [(end.lo <= 0) & (end.hi >= 0) for end in ends]
        found += [a[zero[0]], b[zero[1]]]
        monotone = (cells.first.lo > 0) | (cells.first.hi < 0)
        same = (ends[0].hi < 0) & (ends[1].hi < 0) | (ends[0].lo > 0) & (ends[1].lo > 0)
        middle = 0.5 * (a + b)
        rest = (cells.value.lo <= 0) & (cells.value.hi >= 0) & ~(monotone & (same | zero[0] | zero[1]))
        rest &= (a < middle) & (middle < b)
        a, b, middle = a[rest], b[rest], middle[rest]
        if not a.size:
            return np.unique(np.concatenate(found))
        if a.size > _MOST_CELLS:
            break
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
    raise _Unproven(f"its comparisons could not be decided near t = {a[0]:g}")


# ------------------------------------------------------------------------------------------------------------ the tails


def _tail(f: Function, asymptote: Asymptote, direction: int) -> Tail:
    """The total variation of f - asymptote in the wrong direction, and its value at the far end."""
    ends = sorted((asymptote.beyond, direction * REACH))
    edges = _edges(f, *ends)
    a, b = edges[:-1], edges[1:]
    up = down = 0.0  # total variations upwards and downwards, at most
    steepest, falls = -math.inf, math.inf  # slopes that are attained
    for level in range(_LEVELS):
        cells = _minus(evaluate(f.value, a, b), asymptote)
        start, end = (_minus(evaluate(f.value, t, t, side), asymptote).first for t, side in ((a, 1), (b, -1)))
        width = Interval(np.zeros_like(a), np.nextafter(b - a, math.inf))
        change = cells.second * width
        slope = cells.first.meet(start + change).meet(end - change)
        rise, fall = (np.maximum(x, 0.0) * width.hi for x in (slope.hi, -slope.lo))
        steepest, falls = max(steepest, start.lo.max()), min(falls, start.hi.min())
        if min(steepest, -falls) > _CONTINUOUS:
            what = f"{f.name} does not approach its declared asymptote monotonically beyond {asymptote.beyond:g}"
            raise InputError(what, got=f"slopes {steepest:g} and {falls:g}", hint="declare a point farther out")
        middle = 0.5 * (a + b)
        last = level == _LEVELS - 1 or a.size > _MOST_CELLS
        done = (np.minimum(rise, fall) <= 0.01 * _SLACK * 2.0 ** (-level / 2)) | (middle <= a) | (middle >= b) | last
        up, down = up + float(rise[done].sum()) * (1 + 1e-9), down + float(fall[done].sum()) * (1 + 1e-9)
        if min(up, down) > _SLACK:
            break
        a, b = np.concatenate([a[~done], middle[~done]]), np.concatenate([middle[~done], b[~done]])
        if a.size == 0:
            break
    far = np.array([direction * REACH])
    rest = _minus(evaluate(f.value, far, far, side=-direction), asymptote).value
    limit = (float(rest.lo[0]), float(rest.hi[0]))
    if limit[0] > _LIMIT or limit[1] < -_LIMIT:
        what = f"{f.name} does not approach its declared asymptote"
        raise InputError(what, got=f"distance {min(map(abs, limit)):g} at t = {far[0]:g}")
    if not max(map(abs, limit)) <= _LIMIT:
        raise _Unproven(f"its asymptote could not be proven: the distance at t = {far[0]:g} is in {limit}")
    if not min(up, down) <= _SLACK:
        raise _Unproven(
            f"it could not be proven that it approaches its asymptote monotonically beyond {asymptote.beyond:g}; far "
            "out, a formula must neither overflow nor cancel (torch.sigmoid, torch.tanh and torch.hypot do not)"
        )
    return Tail(limit, min(up, down))


def _minus(jet: Jet, asymptote: Asymptote) -> Jet:
    """f - (slope t + intercept)."""
    return jet - (Jet.variable(jet.t.lo, jet.t.hi, jet.side) * asymptote.slope + asymptote.intercept)


# ------------------------------------------------------------------------------------------- piecewise linear functions


def _of_pieces(f: Function, exact: PiecewiseLinear) -> Facts:
    """Slopes and the values at the knots say it all."""
    _compare(f, exact, [*exact.knots, exact.anchor])
    _prove_same(f, exact, [*exact.knots, exact.anchor])
    knots = exact_knots(exact)
    ends = [
        value + Fraction(slope) * (Fraction(end) - knot)
        for end, slope, (knot, value) in ((-REACH, exact.slopes[0], knots[0]), (REACH, exact.slopes[-1], knots[-1]))
    ]
    value = _rounded([*ends, *(value for _, value in knots)])
    first = (min(exact.slopes), max(exact.slopes))
    return _declared_or_false(f, Facts(f.name, value=value, first=first, second=(0.0, 0.0)))


def _of_steps(f: Function) -> Facts:
    """A step function is given by its jumps; it has no Lipschitz constant."""
    first = float(f.value(torch.tensor(-1e300, dtype=torch.float64)))
    places = sorted((at, height) for at, height, _ in f.jumps)

    def steps(t: Tensor) -> Tensor:
        return first + sum((height * (t > at).to(t.dtype) for at, height in places), torch.zeros_like(t))

    if not isinstance(f.value, Levels):  # Levels are their own formula
        _compare(f, steps, [at for at, _ in places])
        levels = np.cumsum([first, *(height for _, height in places)])
        _prove_same(f, Levels(tuple(at for at, _ in places), tuple(levels.tolist())), [at for at, _ in places])
    start = Fraction(first)
    heights = accumulate((Fraction(height) for _, height, _ in sorted(f.jumps)), initial=start)
    return _declared_or_false(f, Facts(f.name, value=_rounded(list(heights)), second=(0.0, 0.0)))


def _compare(f: Function, stated: Callable[[Tensor], Tensor], special: list[float]) -> None:
    """Refutes, between and beyond the special points, that the formula equals its pieces or jumps."""
    if stated is f.value:
        return
    edges = sorted({*special, *(side * 2.0**k for side in (-1, 1) for k in range(-20, 30))})
    t = torch.tensor(
        [a + (b - a) * part for a, b in pairwise(edges) for part in (0.25, 0.5, 0.75)], dtype=torch.float64
    )
    apart = (f(t) - stated(t)).abs()
    wrong = apart > 1e-9 * (1 + t.abs())
    if bool(wrong.any()):
        at = float(t[wrong][0])
        raise InputError(f"{f.name} does not agree with its {'jumps' if f.jumps else 'pieces'}", got=f"at t = {at:g}")


@quiet
def _prove_same(f: Function, stated: Formula, special: list[float]) -> None:
    """The formula equals its pieces or jumps, up to rounding, on every cell between the special points."""
    if f.value == stated or f.value == replace_domain(stated):
        return
    reach = min(REACH, f.radius)
    edges = np.unique(np.concatenate([_edges(f, -reach, reach), [x for x in special if abs(x) < reach]]))
    a, b = edges[:-1], edges[1:]
    for _ in range(_LEVELS):
        off = _apart(f.value, stated, a, b)
        wrong = ~(off <= _SAME * np.maximum(1.0, np.minimum(np.abs(a), np.abs(b))))
        a, b = a[wrong], b[wrong]
        middle = 0.5 * (a + b)
        if not a.size:
            return
        if a.size > _MOST_CELLS or (middle <= a).any() or (middle >= b).any():
            break
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
    what = "jumps" if f.jumps else "pieces"
    raise _Unproven(f"it could not be proven that its formula agrees with its {what} near t = {a[0]:g}")


def _apart(f: Formula, stated: Formula, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A bound on |f - stated| on the cells [a, b]. Where both are straight, the ends decide."""
    ours, theirs = enclosed(f, a, b), enclosed(stated, a, b)
    off = (ours - theirs).value.magnitude
    straight = (ours.second.magnitude == 0.0) & (theirs.second.magnitude == 0.0)
    if not straight.any():
        return off
    ends = [(enclosed(f, t, t, side) - enclosed(stated, t, t, side)).value.magnitude for t, side in ((a, 1), (b, -1))]
    found: np.ndarray = np.where(straight, np.minimum(off, np.maximum(*ends)), off)
    return found


def replace_domain(stated: Formula) -> Formula:
    """The same pieces, for every t."""
    return replace(stated, domain=_ANYTHING) if isinstance(stated, PiecewiseLinear) else stated


def enclosed(formula: Formula, lo: np.ndarray, hi: np.ndarray, side: int = 0) -> Jet:
    """A formula, or a function given by pieces or levels, on cells; levels: on cells without an edge inside."""
    if isinstance(formula, PiecewiseLinear):
        t, (x, y, slope) = Jet.variable(lo, hi, side), formula.table
        jet = (t - float(x[0])) * float(slope[0]) + float(y[0])
        for knot, change in zip(formula.knots, np.diff(formula.slopes).tolist(), strict=True):
            jet = jet + (t - knot).clamp(min=0.0) * change
        return jet
    if isinstance(formula, Levels):
        where = np.searchsorted(np.array(formula.edges), 0.5 * (lo + hi))
        return Jet.variable(lo, hi, side).constant(np.array(formula.levels)[where])
    return evaluate(formula, lo, hi, side)


def _rounded(values: list[Fraction]) -> Range:
    low, high = float(min(values)), float(max(values))
    return (
        low if Fraction(low) <= min(values) else math.nextafter(low, -math.inf),
        high if Fraction(high) >= max(values) else math.nextafter(high, math.inf),
    )


def _declared_or_false(f: Function, facts: Facts) -> Facts:
    for name, declared, proven in (("bound", f.bound, facts.bound), ("lipschitz", f.lipschitz, facts.lipschitz)):
        if math.isfinite(declared) and proven > declared * (1 + _ACCEPTED):
            raise InputError(f"{f.name} exceeds its declared {name}", got=f"{proven:g}", allowed=f"{declared:g}")
    return facts


def exact_knots(f: PiecewiseLinear) -> list[tuple[Fraction, Fraction]]:
    """The knots and the anchor, in order, with the values there, in rational arithmetic."""
    knots = [Fraction(x) for x in f.knots]
    anchor, value = Fraction(f.anchor), Fraction(f.value)
    centre = sum(x < anchor for x in knots)
    right, left = [(anchor, value)], [(anchor, value)]
    for knot, slope in zip(knots[centre:], f.slopes[centre:], strict=False):
        right.append((knot, right[-1][1] + Fraction(slope) * (knot - right[-1][0])))
    for knot, slope in zip(reversed(knots[:centre]), reversed(f.slopes[1 : centre + 1]), strict=False):
        left.append((knot, left[-1][1] + Fraction(slope) * (knot - left[-1][0])))
    return [*reversed(left[1:]), *right]
