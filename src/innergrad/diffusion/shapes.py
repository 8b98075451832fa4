"""Distributions to learn: mixtures of Gaussians, so that their scores are known exactly.

The curved ones are chains of many narrow Gaussians. All have a spread of between one and two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from innergrad.diffusion.process import GaussianMixture
from innergrad.errors import Registry


def two_bumps() -> GaussianMixture:
    """On the line: two Gaussians of unequal weight."""
    return GaussianMixture([[-1.2], [0.9]], std=0.25, weights=[0.4, 0.6])


def eight_gaussians(radius: float = 2.0, std: float = 0.12) -> GaussianMixture:
    """In the plane: eight equal Gaussians on a circle."""
    angle = torch.arange(8, dtype=torch.float64) * (2.0 * math.pi / 8)
    return GaussianMixture(radius * torch.stack([angle.cos(), angle.sin()], -1), std=std)


def moons(pieces: int = 40, std: float = 0.1) -> GaussianMixture:
    """In the plane: two half circles, each the other's mirror image, as chains of narrow Gaussians."""
    angle = torch.linspace(0.0, math.pi, pieces // 2, dtype=torch.float64)
    upper = torch.stack([angle.cos() - 0.5, angle.sin() - 0.25], -1)
    return GaussianMixture(1.6 * torch.cat([upper, -upper]), std=std)


def spiral(pieces: int = 60, std: float = 0.1) -> GaussianMixture:
    """In the plane: one and a half turns of a spiral, as a chain of narrow Gaussians at equal distances."""
    fine = torch.linspace(0.5 * math.pi, 3.5 * math.pi, 4000, dtype=torch.float64)
    curve = 0.22 * fine[:, None] * torch.stack([fine.cos(), fine.sin()], -1)
    length = torch.cat([torch.zeros(1, dtype=torch.float64), curve.diff(dim=0).norm(dim=1).cumsum(0)])
    places = torch.searchsorted(length, torch.linspace(0.0, float(length[-1]), pieces, dtype=torch.float64))
    return GaussianMixture(curve[places.clamp(max=len(curve) - 1)], std=std)


SHAPES: Registry[Callable[[], GaussianMixture]] = Registry(
    "shape",
    {"two-bumps": two_bumps, "eight-gaussians": eight_gaussians, "moons": moons, "spiral": spiral},
)
"""The distributions that ship, by name: functions that make them.

Examples:
    >>> import innergrad as ig
    >>> ig.diffusion.SHAPES["moons"]().d
    2
"""
