"""The scalar function of Adam: rho(t) = 1 / (1 + sqrt(t)) for t >= 0, continued by 1.

Adam divides by sqrt(v) + delta, and 1 / (sqrt(v) + delta) = rho(v / delta^2) / delta: one function serves every delta.
A sup error epsilon of rho is an error epsilon / delta of the quotient, epsilon relative to its largest value.

rho is convex and decreasing on the half-line, with an infinite slope at 0 and the limit 0. Its approximants need no
domain: about 1/4 int sqrt(rho'') epsilon^-1/2 = 1.092 epsilon^-1/2 pieces for the whole line.
"""

from __future__ import annotations

import torch

from innergrad.functions.scalar import Asymptote, Function

ADAM = Function(
    "adam",
    lambda t: 1.0 / (1.0 + torch.sqrt(t.clamp(min=0.0))),
    left=Asymptote(0.0, 1.0, 0.0),
    right=Asymptote(0.0, 0.0, 1.0),
    bound=1.0,
    breaks=(0.0,),
)
