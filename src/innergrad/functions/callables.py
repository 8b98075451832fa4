"""Functions from callables: what a plain function of torch needs to become an :class:`innergrad.Function` and its
derivative.

The derivative is made from the steps of the function, one rule a step (:mod:`innergrad.functions.calculus`), so that
proofs can follow it; where a step has no rule, it is autograd's. The facts are found in two ways.

- *Proven.* A grid suggests them: the largest |f|, |f'| and |f''|, where f has kinks, the line that it approaches far
  out. Suggestions count for nothing until interval arithmetic proves them (:mod:`innergrad.functions.facts`).
- *Measured*, where intervals cannot follow the function: what a grid shows on |t| <= radius, a little enlarged. Such a
  function says so (``Function.measured``), and has no certificate.

A function that is linear between its kinks is its own approximant. A function whose derivative jumps, and which is not
linear in between, is refused: no program has its derivative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError, own_gradients
from innergrad.functions.calculus import kinks, partial
from innergrad.functions.facts import REACH, Facts, prove_facts, roots
from innergrad.functions.intervals import Array, Interval
from innergrad.functions.jets import Jet, NoRule
from innergrad.functions.rules import evaluate
from innergrad.functions.scalar import Asymptote, Function, PiecewiseLinear
from innergrad.functions.tape import Formula, Opaque, Tape, record
from innergrad.functions.tracing import SAME, traced

RADIUS = 8.0  # of the domain of a function of which nothing is proven for every t: that of other functions, by default
_MARGIN = 1.0 + 2.0**-10  # of what a grid shows, before it is proven
_MEASURED = 1.0 + 2.0**-5  # of what a grid shows, where nothing else is known
_STEEPEST = 1e6  # of a slope or a curvature that is of use
_MOST_KINKS = 64
_FAR = 2.0**40  # where a function is close to its asymptote, to within _CLOSE, or has none
_CLOSE = 1e-4
_ENDLESS = 1e30  # a value that only a function without bound has
_FLAT = 1e-12  # a slope, or a jump, that is rounding
_GRID = np.unique(
    np.concatenate([np.linspace(-64.0, 64.0, 2**13 + 1), *(s * 2.0 ** np.arange(6, 21, 0.125) for s in (-1, 1))])
)


@dataclass(frozen=True)
class Pair:
    """A function, its derivative, and the range of the function."""

    f: Function
    slope: Function
    range: tuple[float, float]


def function_pair(f: Formula, name: str, radius: float | None) -> Pair:
    """The function and its derivative with all facts that can be proven, or else measured, about them. radius: they are
    applied to |t| <= radius only; None: to every t, where that can be.
    """
    try:
        tape, slope = _with_slope(f, name, radius)
        if (steps := _steps(tape, name, radius)) is not None:
            return steps
        function, derivative = _with_facts({name: tape, f"{name}'": slope}, radius)
    except NoRule as problem:
        return _measured_pair(f, name, radius, problem.operation)
    return Pair(function, derivative, _range(function))


def derivative_of(f: Formula, name: str, radius: float | None) -> tuple[Formula, Function]:
    """The function as it is run, and its derivative alone, with its facts."""
    try:
        tape, slope = _with_slope(f, name, radius)
        if (steps := _steps(tape, name, radius)) is not None:
            return tape, steps.slope
        (derivative,) = _with_facts({f"{name}'": slope}, radius)
    except NoRule as problem:
        return f, _measured_pair(f, name, radius, problem.operation).slope
    return tape, derivative


def _with_slope(f: Formula, name: str, radius: float | None) -> tuple[Tape, Tape]:
    """What the function does, and its derivative, step by step."""

    def derivative(t: Any) -> Any:
        found = partial(traced(f), 0, kinks=True)
        return torch.full_like(t, found) if isinstance(found, float) else found(t)

    tape = traced(f)
    _check_same(f, tape, name, radius)
    return tape, record(derivative)


def _check_same(f: Formula, tape: Tape, name: str, radius: float | None) -> None:
    """The tape, with formulas in place of some functions of torch, is the function."""
    t = torch.linspace(-1.0, 1.0, 1001, dtype=torch.float64) * (RADIUS if radius is None else radius)
    with torch.no_grad():
        off = (tape(t) - f(t)).abs() / f(t).abs().clamp(min=1.0)
    if not bool((off <= SAME).all()):
        raise InputError(f"{name} does not do the same as what was recorded of it", got=f"{float(off.max()):g} apart")


# --------------------------------------------------------------------------------------------------------------- proven


def _with_facts(formulas: dict[str, Tape], radius: float | None) -> list[Function]:
    """Functions with proven facts, for every t, or where that cannot be, on a domain; raises NoRule if neither can."""
    reasons = []
    for reach in (math.inf, RADIUS) if radius is None else (radius,):
        try:
            return [_proven(tape, name, reach) for name, tape in formulas.items()]
        except _Unprovable as problem:
            reasons.append(problem.operation)
    raise NoRule(reasons[-1])


class _Unprovable(NoRule):
    """Why no facts could be proven."""


def _proven(tape: Tape, name: str, radius: float) -> Function:
    breaks = _breaks(tape, name, radius)
    found = _linear(tape, _pieces(tape, breaks), name, radius)
    if found is not None:
        return found
    bare = Function(name, tape, breaks=breaks, radius=radius)
    reason = ""
    for suggested in _suggestions(bare):
        try:
            facts = prove_facts(suggested, min(REACH, radius))
        except InputError as problem:
            reason = str(problem)
            continue
        if facts.proven and max(facts.curvature, facts.lipschitz) <= _STEEPEST:
            return suggested if math.isfinite(suggested.curvature) else _proven_instead(suggested, facts)
        reason = facts.reason or f"{name} has a slope of {facts.lipschitz:g} and bends by {facts.curvature:g}"
    raise _Unprovable(reason)


def _proven_instead(f: Function, facts: Facts) -> Function:
    """What is proven, where nothing was suggested."""
    bound = facts.bound * _MARGIN if math.isfinite(f.radius) else math.inf
    return replace(f, bound=bound, lipschitz=facts.lipschitz * _MARGIN, curvature=facts.curvature * _MARGIN)


def _suggestions(f: Function) -> Iterator[Function]:
    """What a grid shows, with asymptotes and without; and nothing, so that whatever is proven counts."""
    grid = _GRID[np.abs(_GRID) <= f.radius]
    grid = np.unique(np.concatenate([grid, [x for x in f.breaks if abs(x) <= f.radius]]))
    jet = evaluate(f.value, grid, grid, side=1)
    ends = evaluate(f.value, np.array(f.breaks), np.array(f.breaks), side=-1)
    sizes = [_MARGIN * max(_largest(getattr(part, k)) for part in (jet, ends)) for k in ("value", "first", "second")]
    shown = replace(f, lipschitz=sizes[1], curvature=sizes[2])
    bounded = replace(shown, bound=sizes[0])
    if math.isinf(f.radius):
        with np.errstate(invalid="ignore"):  # ends of both signs that are infinite
            slopes = 0.5 * (jet.first.lo + jet.first.hi)
        left, right = (_asymptote(f, side, grid, slopes) for side in (-1, 1))
        if left is not None and right is not None:
            flat = not left.slope and not right.slope
            yield replace(bounded if flat else shown, left=left, right=right)
    yield bounded
    yield f


def _largest(part: Interval) -> float:
    return float(np.nan_to_num(part.magnitude, nan=math.inf).max(initial=0.0))


def _asymptote(f: Function, side: int, grid: Array, slopes: Array) -> Asymptote | None:
    """The line that f follows far out on one side, and from where on, as far as the grid shows."""
    far = np.array([side * REACH])
    jet = evaluate(f.value, far, far, side=-side)
    slope = _middle(jet.first.lo[0], jet.first.hi[0])
    if slope is None:
        return None
    rest = _less(f, far, slope, side)
    intercept = _middle(rest.lo[0], rest.hi[0])
    if intercept is None:
        return None
    near = _less(f, np.array([side * _FAR]), slope, side)
    if not max(abs(near.lo[0] - intercept), abs(near.hi[0] - intercept)) <= _CLOSE * max(1.0, abs(intercept)):
        return None
    outwards = grid >= 0.0 if side > 0 else grid <= 0.0
    places, seen = (grid[outwards], slopes[outwards]) if side > 0 else (grid[outwards][::-1], slopes[outwards][::-1])
    return Asymptote(slope, intercept, float(places[min(_last_turn(seen - slope), len(places) - 1)]))


def _less(f: Function, at: Array, slope: float, side: int) -> Interval:
    t = Jet.variable(at, at, -side)
    return (evaluate(f.value, at, at, side=-side) - t * slope).value


def _middle(low: float, high: float) -> float | None:
    """The number that an enclosure is about, if it is narrow."""
    if not (math.isfinite(low) and math.isfinite(high) and high - low <= _FLAT * max(1.0, abs(low))):
        return None
    middle = float(0.5 * (low + high))
    return middle if abs(middle) > _FLAT else 0.0


def _last_turn(slopes: Array) -> int:
    """Where slopes change their sign for the last time, up to rounding, and a little farther."""
    visible = np.nonzero(np.abs(slopes) > _FLAT)[0]
    signs = np.sign(slopes[visible])
    turns = np.nonzero(signs[1:] != signs[:-1])[0]
    return int(visible[turns[-1] + 1]) + 2 if turns.size else 0


def _range(f: Function) -> tuple[float, float]:
    """The closure of the values: limits, or what is proven."""
    facts = prove_facts(f, min(REACH, f.radius))
    ends = [
        end if abs(end) < _ENDLESS or math.isfinite(f.radius) else math.copysign(math.inf, end) for end in facts.value
    ]
    for asymptote in (f.left, f.right):
        if asymptote is not None and asymptote.slope:
            rising = (asymptote.slope > 0) == (asymptote is f.right)
            ends[rising] = math.inf if rising else -math.inf
        elif asymptote is not None:
            ends = [asymptote.intercept if abs(end - asymptote.intercept) <= 1e-6 else end for end in ends]
    return ends[0], ends[1]


# ---------------------------------------------------------------------------------------------------------------- kinks


def _breaks(tape: Tape, name: str, radius: float | None) -> tuple[float, ...]:
    """The numbers at which the function may have a kink."""
    reach = min(REACH, radius or REACH)
    try:
        found = [roots(difference, Function(name, tape), reach) for difference in kinks(tape)]
    except NoRule:
        raise
    except InputError as problem:
        raise NoRule(str(problem)) from problem
    places = list[float]()
    for x in sorted({float(x) + 0.0 for part in found for x in part}):  # neighbours are one kink, between them
        if not places or x - places[-1] > 16 * math.ulp(x):
            places.append(x)
    if len(places) > _MOST_KINKS:
        raise NoRule(f"a function with {len(places)} kinks, where {_MOST_KINKS} are the most")
    return tuple(places)


def _pieces(tape: Tape, breaks: tuple[float, ...]) -> PiecewiseLinear | None:
    """The function as lines between its kinks, if a grid shows nothing else."""
    edges = np.array([-2.0 * max([1.0, *map(abs, breaks)]), *breaks, 2.0 * max([1.0, *map(abs, breaks)])])
    parts = np.linspace(0.0, 1.0, 18)[1:-1]
    inside = (edges[:-1, None] + np.diff(edges)[:, None] * parts).ravel()
    jet = evaluate(tape, inside, inside, side=1)
    slopes = (0.5 * (jet.first.lo + jet.first.hi)).reshape(-1, len(parts))
    if jet.second.magnitude.any() or not np.isfinite(slopes).all() or np.ptp(slopes, axis=1).max() > _FLAT:
        return None
    kept = [i for i in range(len(breaks)) if abs(slopes[i + 1, 0] - slopes[i, 0]) > _FLAT]
    knots = tuple(breaks[i] for i in kept)
    value = float(tape(torch.zeros((), dtype=torch.float64)))
    return PiecewiseLinear(knots, tuple(slopes[[0, *(i + 1 for i in kept)], 0].tolist()), 0.0, value)


def _linear(tape: Tape, pieces: PiecewiseLinear | None, name: str, radius: float) -> Function | None:
    """A function that is linear between its knots; None if it is not, after all."""
    if pieces is None:
        return None
    f = Function(name, tape, 0.0, breaks=pieces.knots, exact=pieces, radius=radius)
    try:
        facts = prove_facts(f)
    except InputError:
        return None
    if not facts.proven:
        raise NoRule(facts.reason)
    bound = facts.bound if pieces.slopes[0] == pieces.slopes[-1] == 0.0 else math.inf
    return replace(f, lipschitz=facts.lipschitz, bound=bound)


def _linear_range(pieces: PiecewiseLinear, radius: float) -> tuple[float, float]:
    """Of a function that is linear between its knots: from its values at the knots and at the ends."""
    places = torch.tensor(
        [0.0, *pieces.knots, *((-radius, radius) if math.isfinite(radius) else ())], dtype=torch.float64
    )
    values = pieces(places[places.abs() <= radius]).tolist()
    if math.isinf(radius):
        values += [
            side * math.copysign(math.inf, slope)
            for side, slope in ((-1, pieces.slopes[0]), (1, pieces.slopes[-1]))
            if slope
        ]
    return min(values), max(values)


def _steps(tape: Tape, name: str, radius: float | None) -> Pair | None:
    """A function that is linear between its kinks, and the steps that are its derivative; None if it is smooth. Any
    other function with a jump, or with a derivative that has one, is refused.
    """
    breaks, domain = _breaks(tape, name, radius), math.inf if radius is None else radius
    pieces = _pieces(tape, breaks)
    f = _linear(tape, pieces, name, domain)
    if breaks:
        left, right = (evaluate(tape, np.array(breaks), np.array(breaks), side) for side in (-1, 1))
        _check_no_jump(name, breaks, left.value, right.value)
        if f is None:
            _check_no_jump(f"the derivative of {name}", breaks, left.first, right.first)
    if f is None or pieces is None:
        return None
    if set(pieces.slopes) == {0.0}:
        raise InputError(f"{name} is constant: nothing is learned through it", got=f"{pieces.value:g} for every t")
    return Pair(f, _levels(tape, pieces, f"{name}'", domain), _linear_range(pieces, domain))


def _check_no_jump(name: str, breaks: tuple[float, ...], left: Interval, right: Interval) -> None:
    before, after = (0.5 * (side.lo + side.hi) for side in (left, right))
    jumps = np.abs(after - before) > 1e-9 * np.maximum(1.0, np.abs(before))
    if jumps.any():
        at = int(np.argmax(jumps))
        raise InputError(
            f"{name} jumps",
            got=f"from {before[at]:g} to {after[at]:g} at t = {breaks[at]:g}",
            allowed="a function that is linear between its kinks, or one whose derivative is continuous",
        )


def _levels(tape: Tape, pieces: PiecewiseLinear, name: str, radius: float) -> Function:
    """The slopes of a piecewise-linear function; at a knot, the one that autograd gives, if it is one of both."""
    slopes, knots = pieces.slopes, pieces.knots
    if not knots:
        constant = PiecewiseLinear((), (0.0,), 0.0, slopes[0])
        return Function(name, constant, 0.0, lipschitz=0.0, bound=abs(slopes[0]), exact=constant, radius=radius)
    seen = _by_autograd(tape, torch.tensor(knots, dtype=torch.float64)).tolist()
    jumps = tuple(
        (at, after - before, -1 if abs(found - after) < abs(found - before) else 1)
        for at, found, (before, after) in zip(knots, seen, pairwise(slopes), strict=True)
    )

    def value(t: Tensor) -> Tensor:
        total = torch.full_like(t, slopes[0])
        for at, height, side in jumps:
            total = total + ((t >= at) if side < 0 else (t > at)).to(t.dtype) * height
        return total

    return Function(name, value, 0.0, bound=max(map(abs, slopes)), jumps=jumps, radius=radius)


# ------------------------------------------------------------------------------------------------------------- measured


@dataclass(frozen=True)
class Slope:
    """f' by autograd."""

    f: Formula

    def __call__(self, t: Tensor) -> Tensor:
        return _by_autograd(self.f, t)


def _by_autograd(f: Formula, t: Tensor) -> Tensor:
    with own_gradients():
        variable = t.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(f(variable).sum(), variable)
    return found


def _measured_pair(f: Formula, name: str, radius: float | None, reason: str) -> Pair:
    """What a grid shows on the domain: differences of f' by autograd are f'' and f''' somewhere between the points."""
    domain = RADIUS if radius is None else radius
    value, slope = Opaque(f, reason), Opaque(Slope(f), reason)
    seen, sharper = (_sups(f, name, domain, points) for points in (2**13 + 1, 2**14 + 1))
    for order, (coarse, fine) in enumerate(zip(seen, sharper, strict=True)):
        if fine > 1.25 * coarse + 1e-6:
            raise _rough(f, name, domain, order, reason)
    if not sharper[1]:
        raise InputError(f"{name} is constant: nothing is learned through it", got="f' = 0 on a grid")
    sups = [_MEASURED * size for size in sharper]
    made = [
        Function(
            name + dash,
            formula,
            curvature=sups[k + 2],
            lipschitz=sups[k + 1],
            bound=sups[k],
            radius=domain,
            measured=True,
        )
        for k, (formula, dash) in enumerate(((value, ""), (slope, "'")))
    ]
    t = torch.linspace(-domain, domain, 2**13 + 1, dtype=torch.float64)
    with torch.no_grad():
        values = f(t)
    return Pair(made[0], made[1], (float(values.min()), float(values.max())))


def _rough(f: Formula, name: str, radius: float, order: int, reason: str) -> InputError:
    """The refusal of a function that is not smooth: where it jumps, has a kink, or is steeper than any number. order:
    that of the derivative which grows without bound on finer grids.
    """
    t = torch.linspace(-radius, radius, 2**14, dtype=torch.float64)  # 0, where functions like to jump, is between
    with torch.no_grad():
        found = f(t) if order <= 1 else _by_autograd(f, t)
    change, wider = found.diff().abs(), (found[2:] - found[:-2]).abs().max()
    at = int(change.argmax())
    ends = f"from {found[at]:.3g} to {found[at + 1]:.3g} at t = {float(t[at] + t[at + 1]) / 2:.3g}"
    allowed = "a continuous slope; or straight pieces between kinks"
    if order > 1:
        none = f"; {reason} has none" if reason.startswith(("torch.", "the derivative of torch.")) else ""
        hint = f"write kinks with torch.where, abs, clamp or relu, and the rest with what has an interval rule{none}"
        return InputError(f"{name} is not smooth", got=f"a slope that goes {ends}", allowed=allowed, hint=hint)
    hint = "take a smooth function near it, for example torch.tanh(10 * t) in place of torch.sign(t)"
    what = "not smooth: it jumps" if float(change[at]) > 0.9 * float(wider) else "not smooth: it is too steep"
    return InputError(f"{name} is {what}", got=ends, allowed=allowed, hint=hint)


def _sups(f: Formula, name: str, radius: float, points: int) -> tuple[float, float, float, float]:
    """The largest |f|, |f'|, |f''| and |f'''| that a grid shows; a jump of f is a steep slope."""
    t = torch.linspace(-radius, radius, points, dtype=torch.float64)
    with torch.no_grad():
        value = f(t)
    slope, h = _by_autograd(f, t), 2.0 * radius / (points - 1)
    if not bool(torch.isfinite(slope).all()):
        at = float(t[~torch.isfinite(slope)][0])
        raise InputError(f"the derivative of {name} is not finite", got=f"at t = {at:g}")
    steep = max(float(slope.abs().max()), float(value.diff().abs().max()) / h)
    return (
        float(value.abs().max()),
        steep,
        float(slope.diff().abs().max()) / h,
        float(slope.diff(n=2).abs().max()) / h**2,
    )
