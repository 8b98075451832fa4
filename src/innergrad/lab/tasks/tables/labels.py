"""From a signal with its noise to labels: numbers of several sorts, or classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.config import Family
from innergrad.errors import lacks
from innergrad.lab.tasks.tables.base import Draws, Weighted


@dataclass(frozen=True)
class Label(Weighted, Family):
    """A sort of number that a label can be. Subclass it to write your own.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        """(B, n), of any size, from y (B, n) with mean 0 and deviation 1."""
        raise lacks(self, "draw(draws, y)")


@dataclass(frozen=True)
class PlainLabel(Label, kind="plain"):
    """The number as it is.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        return y


@dataclass(frozen=True)
class SkewedLabel(Label, kind="skewed"):
    """An amount above zero with a long tail: prices, wages. Log-normal.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        return (y * draws.between(0.2, 1.0)[:, None]).exp()


@dataclass(frozen=True)
class CountLabel(Label, kind="count"):
    """Counts, with the noise that counting has (Poisson's, by a normal number with its mean and variance).

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        rate = (draws.between(0.0, 4.0)[:, None] + y * draws.between(0.2, 0.9)[:, None]).exp()
        return (rate + rate.sqrt() * draws.normal(y.shape[1])).round().clamp(min=0.0)


@dataclass(frozen=True)
class FlagLabel(Label, kind="flag"):
    """0 or 1, as a number.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        return (y > 0.8 * draws.normal()[:, None]).float()


@dataclass(frozen=True)
class CensoredLabel(Label, kind="censored"):
    """Zero for some rows and an amount for the others: hours worked, spending (Tobin's model).

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        return (y - draws.between(-1.2, 0.5)[:, None]).relu()


@dataclass(frozen=True)
class BoundedLabel(Label, kind="bounded"):
    """A share between two ends: rates of approval, test scores near their maximum.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        return torch.sigmoid(draws.log_between(0.5, 3.0)[:, None] * y + draws.normal()[:, None])


@dataclass(frozen=True)
class RoundedLabel(Label, kind="rounded"):
    """Whole numbers on a scale: grades, ratings, years of school.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, y: Tensor) -> Tensor:
        return (y * draws.log_between(0.7, 6.0)[:, None]).round()


# -------------------------------------------------------------------------------------------------------------- classes


@dataclass(frozen=True)
class ClassRule(Weighted, Family):
    """A way to make classes of scores. Subclass it to write your own.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, scores: Tensor, count: Tensor) -> Tensor:
        """(B, n) int64, each 0 .. count - 1, from scores (B, n, m) of m >= count outputs; count (B,) int64.

        Classes that no row has are closed up later, and the others get their numbers in a random order.
        """
        raise lacks(self, "draw(draws, scores, count)")


@dataclass(frozen=True)
class ThresholdClasses(ClassRule, kind="thresholds"):
    """One score, cut into classes: low, middle, high. Every class has its share of the rows, and some are small.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, scores: Tensor, count: Tensor) -> Tensor:
        n, most = scores.shape[1:]
        uneven = draws.between(0.0, 1.5)[:, None]
        shares = (uneven * draws.normal(most)).exp() + 0.05
        shares = shares * (torch.arange(most, device=scores.device) < count[:, None])
        edges = (shares.cumsum(1) / shares.sum(1, keepdim=True)).clamp(1.0 / n, 1.0 - 1.0 / n)
        rank = scores[:, :, 0].argsort(1).argsort(1)
        found = ((rank + 0.5)[:, :, None] / n > edges[:, None, : most - 1]).sum(-1)
        return found.minimum(count[:, None] - 1)


@dataclass(frozen=True)
class LargestClasses(ClassRule, kind="largest"):
    """One score for each class; the largest wins. With noise in the scores: a draw from their softmax, or nearly so.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, scores: Tensor, count: Tensor) -> Tensor:
        most = scores.shape[2]
        favour = draws.between(0.0, 1.0)[:, None] * draws.normal(most)
        absent = torch.arange(most, device=scores.device) >= count[:, None]
        return (scores + favour[:, None, :]).masked_fill(absent[:, None, :], -torch.inf).argmax(-1)


def closed_up(draws: Draws, found: Tensor, most: int) -> Tensor:
    """Classes (B, n) without gaps, 0 .. C - 1 for the C classes that rows have, in a random order."""
    there = (found[:, :, None] == torch.arange(most, device=found.device)).any(1)  # (B, most)
    keys = draws.uniform(most) + 2.0 * ~there
    return keys.argsort(1).argsort(1).gather(1, found)
