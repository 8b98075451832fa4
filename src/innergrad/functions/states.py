"""States: how much is known of a scalar function and of its approximant, decided here and nowhere else.

    exact       it is computed as it is: rounding alone
    proven      the error of what stands for it is proven, by interval arithmetic
    measured    what stands for it was fitted, and its error is the largest on a grid; or the function itself could
                not be followed, and what is known of it was read off a grid
    declared    nothing is proven: what is known of the function is what its author says

A model has the weakest of its functions' states, in this order. Certificates need facts that are proven, whatever
stands for the function; those from sup errors, and the law ``proof``, a state that is exact or proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch

from innergrad.errors import InputError
from innergrad.functions.activation import BUILTIN
from innergrad.functions.adam import ADAM
from innergrad.functions.approximants import is_ramped, prove
from innergrad.functions.calculus import is_derivative
from innergrad.functions.derived import square_derivative
from innergrad.functions.facts import REACH, facts_on, prove_derivative
from innergrad.functions.fits.sigmas import SIGMAS
from innergrad.functions.fits.sums import Approximant, FeatureSum
from innergrad.functions.scalar import (
    EXP,
    EXP_CAPPED,
    IDENTITY,
    NEGATION,
    PSEUDO_HUBER_U,
    RECIPROCAL,
    Function,
    PiecewiseLinear,
)
from innergrad.functions.tape import Formula

StateName = Literal["exact", "proven", "measured", "declared"]
STATES: tuple[StateName, ...] = ("exact", "proven", "measured", "declared")
BY, FOLDER = "its author", "the folder it is from"
_GRID = 20_001  # points, at which fits were measured
_FAR = 8.0  # of a grid on an unbounded domain
_PARTS, _CLOSER = 16, 6  # of a piece, at whose ends its error is looked at, and how often where it is largest


@dataclass(frozen=True)
class Standing:
    """The state of a function. reason: why no fact about it is proven; empty if they are. by: who declares it."""

    state: StateName
    reason: str = ""
    by: str = BY

    @property
    def proven(self) -> bool:
        return self.state in ("exact", "proven")

    @property
    def known(self) -> str:
        """Whose word the facts are, where they are not proven."""
        return f"declared by {self.by}" if self.state == "declared" else "measured on a grid"

    def __str__(self) -> str:
        return f"{self.known}, not proven: {self.reason}" if self.reason else self.state


def standing(f: Function, approximant: Approximant | None, primitives: tuple[Formula, ...] = ()) -> Standing:
    """The standing of a function, from its approximant and the functions that it must be the derivative of."""
    domain = (-math.inf, math.inf) if approximant is None else approximant.domain
    found = _facts(f, domain, primitives)
    if not found.proven or approximant is None:
        return found
    if isinstance(approximant, FeatureSum):
        return Standing("measured")
    return found if f.exact is not None else Standing("proven")


@lru_cache(maxsize=512)
def _facts(f: Function, domain: tuple[float, float], primitives: tuple[Formula, ...]) -> Standing:
    """Whether the declarations of f are proven on a domain, and whether it is the derivative that it stands for."""
    if not primitives and replace(f, name="", radius=math.inf) in _shipped():
        return Standing("exact")  # the tests prove them
    try:
        facts = facts_on(f, domain)
        if not facts.proven:
            return Standing(_unproven(f), facts.reason)
        if not all(is_derivative(f.value, primitive) for primitive in primitives):
            prove_derivative(f, primitives, min(max(map(abs, domain)), REACH))
    except InputError as problem:
        return Standing(_unproven(f), str(problem))
    return Standing("exact")


def _unproven(f: Function) -> StateName:
    return "measured" if f.measured else "declared"


@lru_cache(maxsize=1)
def _shipped() -> frozenset[Function]:
    """The functions that ship, without their names."""
    found = [IDENTITY, NEGATION, EXP, RECIPROCAL, EXP_CAPPED, PSEUDO_HUBER_U, ADAM]
    for activation in BUILTIN:
        found += [activation.r, activation.dr, *square_derivative(activation)]
    return frozenset(replace(f, name="", radius=math.inf) for f in found)


def weakest(states: Iterable[StateName]) -> StateName:
    return max(states, key=STATES.index, default="exact")


def described(standings: Mapping[str, Standing]) -> list[str]:
    """A sentence for every function about which nothing is proven, and one for all that are fitted."""
    found = [f"{name} is {known}" for name, known in standings.items() if known.reason]
    fitted = [name for name, known in standings.items() if known.state == "measured" and not known.reason]
    if fitted:
        found.append(f"{', '.join(fitted)}: fitted, with errors that are measured on a grid, not proven")
    return found


# --------------------------------------------------------------------------------------------- what somebody else says


def checked(f: Function, given: Approximant, epsilon: float) -> Approximant:
    """An approximant that was read from a file, with its true error, no matter what the file says. Where that takes
    long, for pieces of a smooth function, the stated one is compared with a grid, until :func:`proven_again`.

    Raises InputError if it is none of f, or if its error is larger than epsilon.
    """
    if isinstance(given, FeatureSum):
        return _measured(f, given, epsilon)
    if f.exact is not None:
        if replace(given, error=f.exact.error) != f.exact:
            raise InputError(f"the pieces of {f.name} are not those of the function")
        return f.exact
    if f.jumps:
        return _ramps(f, given, epsilon)
    if given.ramps:
        raise InputError(f"{f.name} has no jumps, and so no ramps", got=f"{len(given.ramps)} ramps")
    seen = _largest(f, given)
    if not seen * (1 - 1e-12) - 2.0**-50 <= given.error <= epsilon:
        what = f"the error of {f.name} is not the one that is stated"
        raise InputError(what, got=f"{given.error:g}", allowed=f"at least {seen:.6g}, and at most {epsilon:g}")
    return given


def proven_again(f: Function, given: PiecewiseLinear, epsilon: float) -> PiecewiseLinear:
    """The approximant with its proven error; it raises InputError if that is larger than epsilon, or unknown."""
    return f.bounded(prove(f, replace(given, error=0.0), epsilon))


def _largest(f: Function, given: PiecewiseLinear) -> float:
    """max |f - f^| on every piece, and far out on the rays: where it is largest is looked at closer and closer."""
    low, high = given.domain
    ends = [low if math.isfinite(low) else min([-_FAR, *given.knots]) - 1.0]
    ends += [high if math.isfinite(high) else max([_FAR, *given.knots]) + 1.0]
    edges = torch.tensor(sorted({*ends, *(x for x in given.knots if low < x < high)}), dtype=torch.float64)
    a, b, parts = edges[:-1, None], edges[1:, None], torch.linspace(0.0, 1.0, _PARTS + 1, dtype=torch.float64)
    for _ in range(_CLOSER):
        t = a + (b - a) * parts
        error = (given(t) - f(t)).abs().nan_to_num(nan=math.inf)
        best, step = error.argmax(1, keepdim=True), (b - a) / _PARTS
        a, b = torch.maximum(a, t.gather(1, best) - step), torch.minimum(b, t.gather(1, best) + step)
    far = [side * 10.0**k for side, end in ((-1, low), (1, high)) for k in range(1, 7) if math.isinf(end)]
    t = torch.tensor([*ends, *far], dtype=torch.float64)
    return max(float(error.max()), float((given(t) - f(t)).abs().nan_to_num(nan=math.inf).max()))


def _ramps(f: Function, given: PiecewiseLinear, epsilon: float) -> PiecewiseLinear:
    """Ramps on the right side of every jump, none wider than epsilon, and equal to f elsewhere."""
    found = replace(given, error=math.inf)
    if not is_ramped(f, found, epsilon):
        raise InputError(f"the ramps of {f.name} are not at its jumps, or wider than epsilon", allowed=f"{epsilon:g}")
    return found


def _measured(f: Function, given: FeatureSum, epsilon: float) -> FeatureSum:
    """The stated error, if it agrees with a grid or with the known errors of its terms; else the grid's."""
    if len(given.ramps) != len(f.jumps) or any(not 0.0 < high - low <= epsilon for low, high in given.ramps):
        raise InputError(f"the ramps of {f.name} are not those of the function", got=f"{len(given.ramps)} ramps")
    for (low, high), (at, _, side) in zip(given.ramps, sorted(f.jumps), strict=True):
        if at != (low if side > 0 else high):
            raise InputError(f"the ramps of {f.name} are not at its jumps", got=f"{low:g}", allowed=f"{at:g}")
    seen = sampled(f, given)
    size = max(1.0, *map(abs, given.domain)) if all(map(math.isfinite, given.domain)) else _FAR
    rounding = 2.0**-45 * size * max([1.0, *(1.0 / (high - low) for low, high in given.ramps)])
    if not seen <= epsilon + rounding:
        raise InputError(f"the error of {f.name} is larger than its epsilon", got=f"{seen:g}", allowed=f"{epsilon:g}")
    if f.jumps:
        return replace(given, error=math.inf)
    known = SIGMAS[given.feature].hinge if f.exact is not None and given.feature in SIGMAS else None
    steep = [c for a, b, c in zip(given.a, given.b, given.c, strict=True) if abs(a) > 1.0 or b]  # others are linear
    hinges = 0.0 if known is None else known * sum(map(abs, steep))  # of steep units, which a grid may miss
    error = max(seen, hinges)
    return given if abs(given.error - error) <= rounding + 1e-6 * error else replace(given, error=error)


def sampled(f: Function, given: Approximant, points: int = _GRID) -> float:
    """max |f - f^| on a grid over the domain (up to 8 where unbounded); of a step function, away from its ramps."""
    low, high = (end if math.isfinite(end) else math.copysign(_FAR, end) for end in given.domain)
    t = torch.linspace(low, high, points, dtype=torch.float64)
    for low, high in given.ramps:
        t = t[(t < 2 * low - high) | (t > 2 * high - low)]
    found = float((given(t) - f(t)).abs().max()) if len(t) else 0.0
    return math.inf if math.isnan(found) else found
