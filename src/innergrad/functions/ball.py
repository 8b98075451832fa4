"""The scalar function of the projection onto a ball: beta(t) = 1 / sqrt(1 + t) - 1 for t >= 0, continued by 0.

With t = |w|^2 / R^2 - 1 the projection is w + beta(t) w = w min(1, R / |w|): one function serves every radius. Inside
the ball it is zero, and so is its approximant, but for rounding, for it has a knot at the kink. Outside it is convex
and decreasing, with the limit -1. A sup error epsilon of beta is an error epsilon |w| of the projection. Its
approximants need no domain: about 1/4 int sqrt(beta'') epsilon^-1/2 = 0.866 epsilon^-1/2 pieces.

Sums of smooth units have no kinks, and need a domain. There t_+ = max(t, 0) comes first, by a steep unit, and then the
root, which is smooth for t_+ >= 0. It is fitted for |w| <= REACH R, that is 0 <= t_+ <= REACH^2 - 1, as a function of
s = t_+ - MIDDLE, whose domain is symmetric.
"""

from __future__ import annotations

import torch

from innergrad.functions.scalar import Asymptote, Function

BALL = Function(
    "ball",
    lambda t: 1.0 / torch.sqrt(1.0 + t.clamp(min=0.0)) - 1.0,
    curvature=0.75,
    left=Asymptote(0.0, 0.0, 0.0),
    right=Asymptote(0.0, -1.0, 0.0),
    lipschitz=0.5,
    bound=1.0,
    breaks=(0.0,),
)

REACH = 4.0  # |w| / R, before it is projected, at most
MIDDLE = (REACH**2 - 1.0) / 2
_SLIGHTLY = 2.0**-6  # beyond both ends: a steep unit is a little off
ROOT = Function(
    "ball",
    lambda s: 1.0 / torch.sqrt(s + (1.0 + MIDDLE)) - 1.0,
    curvature=0.79,
    lipschitz=0.52,
    bound=1.0,
    radius=MIDDLE + _SLIGHTLY,
)
