"""The largest curvature of a risk, by products with its Hessian: a learning rate has to be small beside its inverse."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Curved = Callable[[Tensor], Tensor]  # v (batch, D_w) -> the Hessian of each prompt times its v
ITERATIONS = 12
MARGIN = 1.1  # a power iteration finds the largest eigenvalue from below


def largest(curved: Curved, like: Tensor) -> float:
    """The largest absolute eigenvalue in any prompt, by power iteration, with a margin; prompts whose Hessian overflows
    are left out. like: (batch, D_w).
    """
    v = torch.randn(like.shape, generator=torch.Generator().manual_seed(0), dtype=like.dtype).to(like.device)
    found = v.new_zeros(len(v), 1)
    for _ in range(ITERATIONS):
        v = v / torch.where(found > 0, found, v.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny))
        v = curved(v)
        found = v.norm(dim=-1, keepdim=True)
    return MARGIN * float(found.nan_to_num(0.0, 0.0).max())


def along(curved: Curved, gradient: Tensor, direction: Tensor, decay: float) -> float:
    """How far along the direction -s the quadratic model of every prompt falls: <g, s> / (<s, H s> + decay |s|^2), or
    for ever.
    """
    slope = (gradient * direction).sum(-1)
    bend = (direction * curved(direction)).sum(-1) + decay * direction.square().sum(-1)
    return float(torch.where(bend > 0, slope / bend, math.inf).min())


def to_zero(risk: Tensor, gradient: Tensor, direction: Tensor) -> float:
    """How far along -s the linear model of every prompt is positive, as risks are: where a risk is almost linear, its
    curvature says nothing. (On a quadratic it is at least half of the value that the curvature gives.)
    """
    slope = (gradient * direction).sum(-1)
    return float(torch.where(slope > 0, risk / slope, math.inf).min())
