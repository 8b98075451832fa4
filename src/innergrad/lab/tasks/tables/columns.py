"""The kinds of columns, and columns that are made of other columns.

A kind turns a node z, standard normal or nearly so, into the column that the table shows, and says what the column
means to the function behind the labels. For amounts of money the meaning may be the logarithm. For categories it is a
number of its own for each category, whatever the codes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from innergrad.config import Family
from innergrad.errors import integer, lacks
from innergrad.lab.tasks.tables.base import Draws, Weighted, normal_cdf, standard


@dataclass(frozen=True)
class Column(Weighted, Family):
    """A kind of column. Subclass it to write your own.

    Args:
        weight: how often it is taken.

    Attributes:
        whole: its numbers count or name something, so they get no unit.

    Examples:
        >>> import dataclasses, torch
        >>> from innergrad import lab
        >>> @dataclasses.dataclass(frozen=True)
        ... class Percent(lab.tables.Column, kind="a-percent"):
        ...     def draw(self, draws, z):
        ...         return (100 * torch.sigmoid(z)).round(), z
        >>> task = lab.TableRegression(d=3, columns=(Percent(),), derived_share=0, units=0)
        >>> x = task.sample(lab.CounterRNG.of(0), torch.arange(2), n=5).x
        >>> bool((x.isnan() | (x == x.round())).all())
        True
    """

    whole: ClassVar[bool] = False

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        """The column as it is shown, and its meaning, both (B, n, d), of the nodes z (B, n, d).

        Both may have any size. Meanings are scaled later.
        """
        raise lacks(self, "draw(draws, z)")


@dataclass(frozen=True)
class NumberColumn(Column, kind="number"):
    """A measured number, roughly normal.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        return z + draws.normal(1, z.shape[2]) * 3.0, z


@dataclass(frozen=True)
class SkewedColumn(Column, kind="skewed"):
    """An amount above zero with a long tail: incomes, prices, areas. Log-normal.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        shown = (z * draws.between(0.3, 1.5, 1, z.shape[2])).exp()
        return shown, either(draws, z, shown)


@dataclass(frozen=True)
class HeavyColumn(Column, kind="heavy"):
    """A number with outliers on both sides: returns, growth rates.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        shown = torch.sinh(z * draws.between(0.5, 1.5, 1, z.shape[2]))
        return shown, either(draws, z, shown)


@dataclass(frozen=True)
class UniformColumn(Column, kind="uniform"):
    """A number that is equally likely anywhere between two ends: a setting of an experiment, a percentage.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        shown = normal_cdf(z)
        return shown, shown


@dataclass(frozen=True)
class AmountColumn(Column, kind="amount"):
    """Zero for many rows and an amount for the others: spending, hours, rain.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        above = (z - draws.between(-1.0, 0.8, 1, z.shape[2])).relu()
        shown = torch.expm1(above * draws.between(0.3, 1.2, 1, z.shape[2]))
        return shown, either(draws, above, shown)


@dataclass(frozen=True)
class IntegerColumn(Column, kind="integer"):
    """Whole numbers in a range: ages, scores, years.

    Args:
        weight: how often it is taken.
    """

    whole: ClassVar[bool] = True

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        spread = draws.log_between(1.5, 40.0, 1, z.shape[2])
        shown = (spread * (z + draws.between(0.0, 5.0, 1, z.shape[2]))).round()
        return shown, shown


@dataclass(frozen=True)
class CountColumn(Column, kind="count"):
    """Counts, of which many are small: children, rooms, visits.

    Args:
        weight: how often it is taken.
    """

    whole: ClassVar[bool] = True

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        d = z.shape[2]
        rate = draws.between(-0.7, 2.5, 1, d) + z * draws.between(0.3, 1.0, 1, d)
        shown = rate.exp().floor()
        return shown, either(draws, shown.log1p(), shown)


@dataclass(frozen=True)
class OrdinalColumn(Column, kind="ordinal"):
    """Answers on a scale of 3 to 10 steps.

    Args:
        weight: how often it is taken.
    """

    whole: ClassVar[bool] = True

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        steps = draws.between(3.0, 11.0, 1, z.shape[2]).floor()
        lean = draws.normal(1, z.shape[2]) * 0.5
        shown = (steps * normal_cdf(z + lean)).floor().minimum(steps - 1.0) + 1.0
        return shown, shown


@dataclass(frozen=True)
class FlagColumn(Column, kind="flag"):
    """0 or 1: married or not, treated or not. From even to rare.

    Args:
        weight: how often it is taken.
    """

    whole: ClassVar[bool] = True

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        shown = (z > draws.normal(1, z.shape[2]) * 0.8).float()
        return shown, shown


@dataclass(frozen=True)
class CategoryColumn(Column, kind="category"):
    """Categories, as codes in an order that means nothing: regions, makers, jobs.

    Some categories are rare. Each has an effect of its own.

    Args:
        weight: how often it is taken.
        most: categories of a column.
    """

    most: int = 10
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("most", self.most, low=2, high=1000)

    def draw(self, draws: Draws, z: Tensor) -> tuple[Tensor, Tensor]:
        d, most = z.shape[2], self.most
        count = draws.log_between(2.0, most + 1.0, d).floor().clamp(max=most)
        rare = draws.log_between(0.5, 3.0, 1, d)
        place = (normal_cdf(z) ** rare * count[:, None, :]).floor().minimum(count[:, None, :] - 1.0)
        place = place.clamp(min=0.0).long().mT  # (B, d, n)
        absent = torch.arange(most, device=z.device) >= count[:, :, None]
        codes = (draws.uniform(d, most) + 2.0 * absent).argsort(-1)  # of the first ones: 0 .. count - 1
        effects = draws.normal(d, most)
        return codes.gather(2, place).mT.to(z.dtype), effects.gather(2, place).mT


def either(draws: Draws, straight: Tensor, shown: Tensor) -> Tensor:
    """The meaning of a skewed column: what is shown, or its straightened form; each column has one of them."""
    own = draws.chance(0.5, 1, shown.shape[2])
    return torch.where(own, shown, straight)


# -------------------------------------------------------------------------------------------- columns of other columns


@dataclass(frozen=True)
class Derived(Weighted, Family):
    """A column made of one or two other columns. Subclass it to write your own.

    Args:
        weight: how often it is taken.
    """

    whole: ClassVar[bool] = False

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        """(B, n, d), of two other columns for each column, as they are shown, (B, n, d) each."""
        raise lacks(self, "draw(draws, first, second)")


@dataclass(frozen=True)
class SquareColumn(Derived, kind="square"):
    """The square of a column, as economists add it for a curve.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        return first.square()


@dataclass(frozen=True)
class LogarithmColumn(Derived, kind="logarithm"):
    """The logarithm of a column.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        return first.sign() * first.abs().log1p()


@dataclass(frozen=True)
class SumColumn(Derived, kind="sum"):
    """The sum or the difference of two columns: a total beside its items.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        return torch.where(draws.chance(0.3, 1, first.shape[2]), first - second, first + second)


@dataclass(frozen=True)
class ProductColumn(Derived, kind="product"):
    """The product or the ratio of two columns: an interaction, a rate per head.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        ratio = draws.chance(0.5, 1, first.shape[2])
        return torch.where(ratio, first / (second.abs() + 0.5), first * second)


@dataclass(frozen=True)
class CopyColumn(Derived, kind="copy"):
    """Nearly the same as another column: last year's number, a second measurement.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        n, d = first.shape[1:]
        size = draws.log_between(0.01, 1.0, 1, d)
        return standard(first) + size * draws.normal(n, d)


@dataclass(frozen=True)
class DummyColumn(Derived, kind="dummy"):
    """1 where another column has a certain value, or exceeds it: one of several indicators of a group.

    Args:
        weight: how often it is taken.
    """

    whole: ClassVar[bool] = True

    def draw(self, draws: Draws, first: Tensor, second: Tensor) -> Tensor:
        n, d = first.shape[1:]
        limit = torch.full_like(draws.index, n)
        value = first.gather(1, draws.below(limit, 1, d))
        equal = first == value
        few = equal.float().mean(1, keepdim=True) > 2.0 / n  # a value that only one row has is a cut
        return torch.where(few, equal, first > value).float()
