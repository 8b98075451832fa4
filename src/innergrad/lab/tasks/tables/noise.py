"""Noise of labels: what the columns do not tell. Its size is drawn apart from its shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.config import Family
from innergrad.errors import lacks, real
from innergrad.lab.tasks.tables.base import Draws, Weighted, check_share, standard
from innergrad.lab.tasks.tables.functions import Sheet


@dataclass(frozen=True)
class Noise(Weighted, Family):
    """A shape of noise. Subclass it to write your own.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, sheet: Sheet, signal: Tensor) -> Tensor:
        """(B, n, m), for labels (B, n, m) without noise; of any size."""
        raise lacks(self, "draw(draws, sheet, signal)")


@dataclass(frozen=True)
class NormalNoise(Noise, kind="normal"):
    """The same normal noise for every row.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, sheet: Sheet, signal: Tensor) -> Tensor:
        return draws.normal(*signal.shape[1:])


@dataclass(frozen=True)
class HeavyNoise(Noise, kind="heavy"):
    """Noise with heavy tails, nearly Student's t with 2 to 6 degrees of freedom: a few rows are far off.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, sheet: Sheet, signal: Tensor) -> Tensor:
        freedom = draws.log_between(2.0, 6.0)[:, None, None]
        return student(draws.normal(*signal.shape[1:]), freedom)


def student(normal: Tensor, freedom: Tensor) -> Tensor:
    """Normal numbers stretched to Student's t, by the approximation of Wallace (1959).

    From 3 degrees of freedom on it is within a tenth, up to 3 deviations; at 2 within a quarter.
    """
    stretched = normal * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)
    return normal.sign() * (freedom * torch.expm1((stretched.square() / freedom).clamp(max=12.0))).sqrt()


@dataclass(frozen=True)
class SkewedNoise(Noise, kind="skewed"):
    """Noise with one long tail: delays, damages.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, sheet: Sheet, signal: Tensor) -> Tensor:
        skew = draws.between(0.3, 1.2)[:, None, None]
        side = 1.0 - 2.0 * draws.chance(0.3).float()[:, None, None]
        return side * (skew * draws.normal(*signal.shape[1:])).exp()


@dataclass(frozen=True)
class UnequalNoise(Noise, kind="unequal"):
    """Normal noise whose size differs from row to row: by the columns, or by the label itself (heteroscedastic).

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, sheet: Sheet, signal: Tensor) -> Tensor:
        weights = draws.normal(sheet.values.shape[2], 1) * sheet.importance[:, :, None]
        by_label = draws.chance(0.5)[:, None, None]
        cause = torch.where(by_label, standard(signal), standard(sheet.values @ weights))
        size = (draws.between(0.3, 1.2)[:, None, None] * cause).clamp(-4.0, 4.0).exp()
        return size * draws.normal(*signal.shape[1:])


@dataclass(frozen=True)
class Strength:
    """How much of the labels the columns explain: the share R^2 of the variance that is not noise.

    Usually R^2 = u^power with u uniform on 0 to 1. In a few tables it is 0. In quiet tables 1 - R^2 is log-uniform on
    1e-6 to 1e-2.

    Args:
        nothing: the share of tables with R^2 = 0.
        power: small for strong signals, large for weak ones.
    """

    nothing: float = 0.04
    power: float = 0.4

    def __post_init__(self) -> None:
        check_share("nothing", self.nothing)
        real("power", self.power, above=0.0)

    def draw(self, draws: Draws, quiet: Tensor) -> Tensor:
        """(B,): R^2, for tables that are quiet with this probability, (B,)."""
        usual = draws.uniform() ** self.power
        least = 1.0 - (draws.between(math.log(1e-6), math.log(1e-2))).exp()
        explained = torch.where(draws.chance(quiet), least, usual)
        return torch.where(draws.chance(self.nothing), 0.0, explained)
