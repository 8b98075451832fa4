"""Functions made from others: the same function on a bounded domain, and the derivative of a square.

A gradient needs (r^2)' = 2 r r' of a network's output activation r. It is a function with its own knots, and so with
its own facts. They come from the product rule for r and r'. Where r is not bounded, slope and curvature come from a
fine grid, a little enlarged. Both are declarations, proven as any other function's (:mod:`innergrad.functions.facts`):
one that is too small is refused.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from innergrad.functions.activation import Activation
from innergrad.functions.jets import NoRule
from innergrad.functions.rules import evaluate
from innergrad.functions.scalar import Asymptote, Function, PiecewiseLinear, linear_function

_GRID = np.linspace(-64.0, 64.0, 2**13 + 1)  # where activations bend; beyond it they follow their asymptotes
_MARGIN = 1 + 2.0**-6
_FLAT = 1e-12  # a slope that is rounding


def within(f: Function, radius: float) -> Function:
    """The same function, to be applied to |t| <= radius only: its approximant has that domain."""
    return replace(f, name=f"{f.name} within {radius:g}", radius=min(radius, f.radius))


@lru_cache(maxsize=64)
def square_derivative(activation: Activation) -> tuple[Function, ...]:
    """Functions that add up to (r^2)' = 2 r r': one, or, if r is piecewise linear, a line with kinks and its steps."""
    r, dr = activation.r, activation.dr
    radius = min(r.radius, dr.radius)
    if r.exact is not None and dr.jumps:
        return tuple(replace(f, radius=radius) for f in _of_pieces(activation.name, r.exact, dr))

    def value(t: Tensor) -> Tensor:
        return 2.0 * (r.value(t) * dr.value(t))

    f = Function(
        f"({r.name}^2)'",
        value,
        curvature=2.0 * (3.0 * dr.bound * dr.lipschitz + _product(r.bound, dr.curvature)),
        left=_square(r.left),
        right=_square(r.right),
        lipschitz=2.0 * (dr.bound * dr.bound + _product(r.bound, dr.lipschitz)),
        bound=2.0 * _product(r.bound, dr.bound),
        breaks=r.breaks,
        radius=radius,
        measured=r.measured or dr.measured,
    )
    return (f if f.left is None or f.right is None else _read_off(f, f.left, f.right),)


def _of_pieces(name: str, r: PiecewiseLinear, dr: Function) -> tuple[Function, ...]:
    """r has slopes s_i: 2 r r' has slopes 2 s_i^2, and jumps by 2 r (s_{i+1} - s_i) at the knots where r is not 0."""
    knots = torch.tensor(r.knots, dtype=torch.float64)
    steps = torch.tensor(r.slopes[1:], dtype=torch.float64) - torch.tensor(r.slopes[:-1], dtype=torch.float64)
    heights = (2.0 * r(knots) * steps).tolist()
    sides = {at: side for at, _, side in dr.jumps}
    jumps = tuple((at, h, sides[at]) for at, h in zip(r.knots, heights, strict=True) if h)
    first = r.knots[0]  # left of all jumps, where 2 r r' is 2 r s_0
    anchored = 2.0 * float(r(knots[0])) * r.slopes[0]
    line = PiecewiseLinear(r.knots, tuple(2.0 * s * s for s in r.slopes), first, anchored)
    continuous = linear_function(f"({name}^2)'", line, max(line.slopes))
    if not jumps:
        return (continuous,)

    def value(t: Tensor) -> Tensor:
        return sum((h * (t > at).to(t.dtype) for at, h, _ in jumps), torch.zeros_like(t))

    total = float(sum(abs(h) for _, h, _ in jumps))
    return continuous, Function(f"({name}^2)' steps", value, curvature=0.0, bound=total, jumps=jumps)


def _square(a: Asymptote | None) -> Asymptote | None:
    """r ~ slope t + intercept, so 2 r r' ~ 2 slope (slope t + intercept)."""
    return None if a is None else replace(a, slope=2.0 * a.slope**2, intercept=2.0 * a.slope * a.intercept + 0.0)


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0.0 or b == 0.0 else a * b


def _read_off(f: Function, left: Asymptote, right: Asymptote) -> Function:
    """With the slope and curvature that the grid shows, and the points from which f keeps to its asymptotes."""
    try:
        jet = evaluate(f.value, _GRID, _GRID, side=1)
    except NoRule:
        return f  # trusted, from the declarations of r and r'
    slopes, centre = 0.5 * (jet.first.lo + jet.first.hi), len(_GRID) // 2
    return replace(
        f,
        curvature=_MARGIN * float(jet.second.magnitude.max()),
        lipschitz=_MARGIN * float(jet.first.magnitude.max()),
        left=replace(left, beyond=float(_GRID[centre - _turn(slopes[centre::-1] - left.slope)])),
        right=replace(right, beyond=float(_GRID[centre + _turn(slopes[centre:] - right.slope)])),
    )


def _turn(slopes: np.ndarray) -> int:
    """The point from which on slopes keep their sign, up to rounding, and a little farther."""
    visible = np.nonzero(np.abs(slopes) > _FLAT)[0]
    signs = np.sign(slopes[visible])
    turns = np.nonzero(signs[1:] != signs[:-1])[0]
    return int(visible[turns[-1] + 1]) + 2 if turns.size else 0
