"""Rows that are held out: a setting is chosen, and an error is measured, on rows that were not learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

MOST = 1000  # rows that errors are measured on
ENOUGH = 100  # of them, for rows that lack the same cells
BLANKED = 0.1  # of a cell of its own: what a blanked one counts, where rows that lack the same are looked for
DIGITS = 9  # of such sums, which are rounded differently in another order


def parts(rows: int, count: int, seed: int) -> np.ndarray:
    """(rows,): the part that every row is in, 0 to count - 1.

    Rows come sorted by their label (:mod:`innergrad.estimators.order`). Of every ``count`` rows in a row each is in
    another part. So the parts have like labels.
    """
    count = min(count, rows)
    rng = np.random.default_rng(seed)
    blocks = -(-rows // count)
    return np.concatenate([rng.permutation(count) for _ in range(blocks)])[:rows]


def some(rows: int, most: int, seed: int) -> np.ndarray:
    """At most so many of the rows, in their order: one at random from each stretch of them."""
    if rows <= most:
        return np.arange(rows)
    edges = np.linspace(0, rows, most + 1).astype(int)
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def residual_quantiles(residuals: np.ndarray, q: Sequence[float]) -> np.ndarray:
    """(len(q),): quantiles of held-out residuals, as split conformal prediction takes them.

    Levels above one half are rounded up to the next of the n + 1 places between n residuals, levels below it down. That
    covers a new residual with the nominal probability if all are exchangeable. They are nearly: the setting that made
    them was chosen by them, so with few rows intervals cover a little less.
    """
    ordered, n = np.sort(residuals), len(residuals)
    near = [(level, round(level * (n + 1), 9)) for level in q]  # 0.8 * 20 is 16
    places = [np.ceil(place) if level > 0.5 else np.floor(place) for level, place in near]
    found = [np.median(residuals) if level == 0.5 else ordered[int(min(max(place, 1), n)) - 1]
             for level, place in zip(q, places, strict=True)]  # fmt: skip
    return np.array(found, dtype=np.float64)


@dataclass(frozen=True)
class HeldOut:
    """Rows that were held out: cells (n, d), labels y (n,), the part (n,) that each was in, and what each column is
    worth, weights (d,).
    """

    cells: np.ndarray
    y: np.ndarray
    part: np.ndarray
    weights: np.ndarray

    def lacking(self, lacks: np.ndarray) -> HeldOut:
        """The rows that tell how far off a row is that lacks some cells, lacks (d,). They lack these, too: where they
        have them, they are blanked (missing data augmentation: Zaffran et al. 2023).

        First come rows that lack nothing else; of them, those that lack the same by themselves. A cell counts by what
        its column is worth.
        """
        own = np.isnan(self.cells)
        besides, blanked = (own & ~lacks) @ self.weights, (~own & lacks) @ self.weights
        cost = np.round(besides + BLANKED * blanked, DIGITS)
        near = cost <= np.sort(cost)[min(ENOUGH, len(cost)) - 1]
        return HeldOut(np.where(lacks, np.nan, self.cells[near]), self.y[near], self.part[near], self.weights)


def by_lacking(values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows that lack the same cells: which cells (d,), and which rows."""
    patterns, group = np.unique(np.isnan(values), axis=0, return_inverse=True)
    order = np.argsort(group.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(group.ravel(), minlength=len(patterns)))
    yield from zip(patterns, np.split(order, ends[:-1]), strict=True)
