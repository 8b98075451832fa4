"""What the parts of the prior of tables have in common: weights, random numbers with names, and a few formulas.

A *part* is one way to make one thing of a table: its rows, a column, the function behind the labels, their noise. A
part is a frozen dataclass with a ``weight``. A table takes one part of each sort, and how often it takes which is in
proportion to the weights.

All parts of a sort are computed for every table, and one of them is kept. So shapes never depend on what was drawn, and
the whole prior can be compiled and recorded as a CUDA graph. It also means that a step costs the sum of all parts.

Shapes: B tables, n rows, d columns, m outputs of a function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from innergrad.errors import InputError, real
from innergrad.lab.counter_rng import CounterRNG

TINY = 1e-6  # a spread below this share of the values' size is rounding, not a spread


@dataclass(frozen=True)
class Weighted:
    """A part: how often it is taken, relative to the others of its sort. Never, if 0."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        real("weight", self.weight, low=0.0)


P = TypeVar("P", bound=Weighted)


class Draws:
    """Random numbers of B tables, in the order in which they are asked for: no two calls give the same ones.

    Every method returns one row for each table, (B, *shape). The numbers of a table depend on its own index and on what
    was asked for before, never on other tables.

    Numbers are made in blocks, and calls take slices of them. A generator costs some seventy operations for each block,
    and a table has hundreds of calls: one generator a call would be slow to compile.

    Args:
        rng: the generator.
        index: the numbers of the tables, (B,).
        block: the least numbers that are made at once.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> draws = lab.tables.Draws(lab.CounterRNG.of(0), torch.arange(5))
        >>> tuple(draws.normal(3).shape), bool((draws.uniform(3) < 1).all())
        ((5, 3), True)
    """

    def __init__(self, rng: CounterRNG, index: Tensor, block: int = 4096) -> None:
        self.rng, self.index, self.block = rng, index, block
        self._blocks = 0
        self._made: dict[str, tuple[Tensor, int]] = {}  # the block of each sort, and how many of its numbers are taken

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return self._take("normal", math.prod(shape)).reshape(-1, *shape)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers between 0 and 1."""
        return self._take("uniform", math.prod(shape)).reshape(-1, *shape)

    def _take(self, sort: str, count: int) -> Tensor:
        """(B, count): the next numbers of a block, or of a new one."""
        if sort not in self._made or self._made[sort][1] + count > self._made[sort][0].shape[1]:
            self._blocks += 1
            rng, size = self.rng.fork(f"block {self._blocks}"), max(count, self.block)
            made = rng.normal(self.index, size) if sort == "normal" else rng.uniform(self.index, size)
            self._made[sort] = (made, 0)
        block, start = self._made[sort]
        self._made[sort] = (block, start + count)
        return block[:, start : start + count]

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between low and high."""
        return low + (high - low) * self.uniform(*shape)

    def log_between(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between low and high whose logarithm is uniform."""
        return self.between(math.log(low), math.log(high), *shape).exp()

    def chance(self, probability: float | Tensor, *shape: int) -> Tensor:
        """True with this probability."""
        return self.uniform(*shape) < probability

    def below(self, limit: Tensor, *shape: int) -> Tensor:
        """Whole numbers 0 .. limit - 1, int64, (B, *shape); ``limit`` (B,)."""
        limit = limit.view(-1, *[1] * len(shape))
        return torch.minimum((self.uniform(*shape) * limit).long(), limit.long() - 1)

    def order(self, count: int) -> Tensor:
        """Random orders of 0 .. count - 1, (B, count)."""
        return self.uniform(count).argsort(-1)

    def choice(self, parts: Sequence[Weighted], *shape: int, mood: float = 0.0) -> Tensor:
        """Numbers of parts, in proportion to their weights. ``mood``: how much the weights vary from table to table."""
        logits = torch.stack([_log_weight(part, self.index.device) for part in parts])
        if mood:
            logits = logits + mood * self.normal(*[1] * len(shape), len(parts))
        return (logits + gumbel(self.uniform(*shape, len(parts)))).argmax(-1)


def _log_weight(part: Weighted, device: torch.device) -> Tensor:
    """Made on the device: a CUDA graph records no copy from the host."""
    return torch.full((), math.log(part.weight) if part.weight else -math.inf, device=device)


def check_parts(what: str, parts: tuple[Weighted, ...], sort: type[Weighted]) -> None:
    """An error if they are not parts of this sort, or if none of them is ever taken."""
    if not isinstance(parts, tuple) or not all(isinstance(part, sort) for part in parts):
        kinds = ", ".join(sorted(getattr(sort, "kinds", ())))
        raise InputError(f"{what} must be a tuple of {sort.__name__}", got=repr(parts), allowed=f"kinds {kinds}")
    if not any(part.weight for part in parts):
        raise InputError(f"{what} need a part with a weight above 0", got=repr(parts))


def reweighted(parts: tuple[P, ...], **weights: float) -> tuple[P, ...]:
    """The same parts, with other weights for some kinds."""
    return tuple(replace(part, weight=weights.get(getattr(part, "kind", ""), part.weight)) for part in parts)


def check_share(name: str, value: float) -> None:
    """An error if it is not a number from 0 to 1."""
    if not 0.0 <= real(name, value) <= 1.0:
        raise InputError(f"{name} is a share", got=value, allowed="0 to 1")


# ------------------------------------------------------------------------------------------------------------- formulas


def select(options: Sequence[Tensor | None], which: Tensor) -> Tensor:
    """Of each place the option that ``which`` names; it broadcasts with the options. None: an option never taken."""
    there = [(number, option) for number, option in enumerate(options) if option is not None]
    chosen = there[0][1]
    for number, option in there[1:]:
        chosen = torch.where(which == number, option, chosen)
    return chosen


def standard(values: Tensor) -> Tensor:
    """With mean 0 and deviation 1 over the rows (dimension 1); zero where all rows are alike."""
    mean = values.mean(1, keepdim=True)
    away = values - mean
    return away * (away.square().mean(1, keepdim=True) + TINY**2 * (mean.square() + TINY**2)).rsqrt()


def gumbel(uniform: Tensor) -> Tensor:
    """Noise under which the largest of log w_k is k with probability w_k / sum w."""
    return -(-(uniform.clamp(1e-7, 1.0 - 1e-7)).log()).log()


def normal_cdf(values: Tensor) -> Tensor:
    """The share of a standard normal that is below."""
    return 0.5 * (1.0 + torch.erf(values * math.sqrt(0.5)))


def rows_of(table: Tensor, which: Tensor) -> Tensor:
    """(B, n, d): row which[b, i] of table (B, rows, d)."""
    return table.gather(1, which[:, :, None].expand(-1, -1, table.shape[2]))


def columns_of(values: Tensor, which: Tensor) -> Tensor:
    """(B, n, k): column which[b, j] of values (B, n, d)."""
    return values.gather(2, which[:, None, :].expand(-1, values.shape[1], -1))
