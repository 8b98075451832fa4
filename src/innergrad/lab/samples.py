"""Prompts of samples: points of a distribution, and places where its score is asked for.

    point   (x_1, ..., x_d, t, role)
    role    1    a sample of the data: x_0, at t = 0
            -1   a query: a point x_t of the diffusion at time t > 0; its label is sigma_t grad log p_t(x_t)
            0    an empty place: prompts of one batch have different numbers of samples

    x_t = e^-t x_0 + sigma_t z,    sigma_t^2 = 1 - e^-2t                        (see innergrad.diffusion)

Samples have no label (0 stands there). Times sigma_t, a score stays of the size of one as t goes to 0.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SAMPLE, QUERY, EMPTY = 1.0, -1.0, 0.0
EXTRA = 2  # numbers of a point besides its place: time and role


class Parts(NamedTuple):
    """The parts of points (..., N, d + 2): places (..., N, d), times, and which are samples and queries, (..., N)."""

    place: Tensor
    t: Tensor
    sample: Tensor
    query: Tensor


def parts(x: Tensor) -> Parts:
    place, t, role = x[..., :-EXTRA], x[..., -EXTRA], x[..., -1]
    return Parts(place, t, role > 0.5, role < -0.5)


def joined(place: Tensor, t: Tensor, role: Tensor) -> Tensor:
    """Points (..., N, d + 2) from places (..., N, d), times and roles (..., N)."""
    return torch.cat((place, t[..., None], role[..., None]), -1)


def asked(samples: Tensor, place: Tensor, t: Tensor) -> Tensor:
    """Points of prompts that hold samples (..., n, d) and ask at places (..., m, d) and times (..., m)."""
    here = samples.new_zeros(samples.shape[:-1])
    first, then = joined(samples, here, here + SAMPLE), joined(place, t, torch.full_like(t, QUERY))
    return torch.cat((first, then), -2)
