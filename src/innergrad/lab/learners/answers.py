"""What a learner of tables says about rows without a label: a distribution of a number, or the chances of classes.

A number's distribution is a histogram on the scale of the demonstrations' labels, z = (y - location) / scale:

    borders   b_0 < b_1 < ... < b_K        fixed on the z-scale, narrow around 0, wide in the tails
    chances   p_1, ..., p_K                 the learner's; uniform between two borders

The borders are b = a sinh(t), t from -asinh(top / a) to asinh(top / a) in equal steps. So a bin is about
sqrt(a^2 + z^2) times as wide as a step. Numbers beyond the last border belong to the last bin.

A vector of q numbers has a distribution for each of them: all shapes then have one more axis of q, after that of rows.

Shapes: B prompts, m rows that are asked for, q numbers of a vector, K bins, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from innergrad.errors import InputError

CENTRE, TOP = 0.7, 20.0  # a and top, in standard deviations of the demonstrations' labels


def borders(bins: int) -> Tensor:
    """The borders of ``bins`` bins on the z-scale, (bins + 1,) float64."""
    reach = math.asinh(TOP / CENTRE)
    return CENTRE * torch.linspace(-reach, reach, bins + 1, dtype=torch.float64).sinh()


def bin_of(z: Tensor, bins: int) -> Tensor:
    """The number of the bin that each z is in, int64."""
    share = (z / CENTRE).asinh() / (2.0 * math.asinh(TOP / CENTRE)) + 0.5
    return (share * bins).long().clamp(0, bins - 1)


@dataclass(frozen=True)
class NumberAnswer:
    """The distribution of a number for every row that was asked for.

    Attributes:
        chances: of the bins, (B, m, K), of a vector (B, m, q, K); they sum to one.
        location: (B,) or (B, q): of the demonstrations' labels.
        scale: (B,) or (B, q): of the same; 0 where all labels are equal.

    Examples:
        >>> import torch
        >>> from innergrad.lab.learners.answers import NumberAnswer
        >>> flat = torch.full((1, 1, 64), 1 / 64)
        >>> answer = NumberAnswer(flat, location=torch.tensor([5.0]), scale=torch.tensor([2.0]))
        >>> round(float(answer.mean), 6), round(float(answer.quantile([0.5])), 6)
        (5.0, 5.0)
    """

    chances: Tensor
    location: Tensor
    scale: Tensor

    @cached_property
    def mean(self) -> Tensor:
        """(B, m) or (B, m, q), in the units of the labels."""
        return self._units(self.chances.double() @ self._centres)

    @cached_property
    def std(self) -> Tensor:
        """(B, m) or (B, m, q): the standard deviation, in the units of the labels."""
        edges, centres = self._edges, self._centres
        squares = centres.square() + edges.diff().square() / 12.0
        chances = self.chances.double()
        variance = chances @ squares - (chances @ centres).square()
        return (variance.clamp(min=0.0).sqrt() * self.scale[:, None]).to(self.location.dtype)

    def quantile(self, q: Sequence[float]) -> Tensor:
        """(B, m, levels), or (B, m, q, levels): the numbers below which the label is with these chances; they rise."""
        levels = torch.as_tensor(list(q), dtype=torch.float64, device=self.chances.device)
        if levels.ndim != 1 or not bool(((levels >= 0.0) & (levels <= 1.0)).all()):
            raise InputError("quantiles are chances", got=list(q), allowed="numbers from 0 to 1")
        edges, chances = self._edges, self.chances.double()
        below = torch.nn.functional.pad(chances.cumsum(-1), (1, 0))
        below = below / below[..., -1:]
        wanted = levels.expand(*below.shape[:-1], -1).contiguous()
        place = (torch.searchsorted(below, wanted, right=True) - 1).clamp(0, chances.shape[-1] - 1)
        low, high = below.gather(-1, place), below.gather(-1, place + 1)
        inside = torch.where(high > low, (wanted - low) / (high - low), 1.0).clamp(0.0, 1.0)
        return self._units(edges[place] + inside * (edges[place + 1] - edges[place]))

    @property
    def _edges(self) -> Tensor:
        return borders(self.chances.shape[-1]).to(self.chances.device)

    @property
    def _centres(self) -> Tensor:
        edges = self._edges
        return (edges[1:] + edges[:-1]) / 2.0

    def _units(self, z: Tensor) -> Tensor:
        """Numbers on the z-scale, (B, m, ...) or (B, m, q, ...), in the units of the labels."""
        ones = [1] * (z.ndim - self.location.ndim - 1)
        location, scale = (each.view(len(each), 1, *each.shape[1:], *ones) for each in (self.location, self.scale))
        return location + (z * scale).to(location.dtype)


@dataclass(frozen=True)
class ClassAnswer:
    """The chances of the classes for every row that was asked for.

    Attributes:
        probabilities: (B, m, C); they sum to one. A class that no demonstration has gets 0.

    Examples:
        >>> import torch
        >>> from innergrad.lab.learners.answers import ClassAnswer
        >>> ClassAnswer(torch.tensor([[[0.2, 0.8]]])).classes
        tensor([[1]])
    """

    probabilities: Tensor

    @property
    def classes(self) -> Tensor:
        """(B, m) int64: the most probable class."""
        return self.probabilities.argmax(-1)


Answer = NumberAnswer | ClassAnswer
