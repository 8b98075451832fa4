"""Rules that find columns that give the target away, columns that say nothing, and tables that are one table twice.

Everything here looks at names, values and the target, never at a model's score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
RANKS = 0.995  # a column whose rank correlation with the target is larger is the target in another unit
EXACT = 0.999  # R^2 of least squares on the rows it was fitted to, from which the columns give the target together
FEW = 5  # rows that must differ from the most common value before a column can be said to follow the target
WEAK, STRONG, POSSIBLE = 20, 100, 1000  # different values that a column must have to say which table it is from
COLUMN, ROWS, MOST = 0.4, 0.25, 0.8  # shares of a column's values, and of a table's rows, that make two tables near


def ranks(values: Array) -> Array:
    """1, 2, ... in the order of size; equal values share the mean of theirs. Along the last axis of a vector."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((ends - counts + 1 + ends) / 2)[inverse])


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's, over rows where both are there; 0 where one of them is constant."""
    there = ~(np.isnan(a) | np.isnan(b))
    if there.sum() < FEW:
        return 0.0
    left, right = ranks(a[there]), ranks(b[there])
    left, right = left - left.mean(), right - right.mean()
    size = np.sqrt((left @ left) * (right @ right))
    return float(left @ right / size) if size > 0 else 0.0


def _varies(values: Array) -> bool:
    """At least ``FEW`` rows differ from the most common value."""
    counts = np.unique(values, return_counts=True)[1]
    return bool(len(values) - counts.max() >= FEW)


def monotone(a: Array, b: Array) -> bool:
    """Sorted by ``a``, ``b`` never falls, or never rises."""
    for sign in (1, -1):
        order = np.lexsort((sign * b, a))
        if (np.diff(sign * b[order]) >= 0).all():
            return True
    return False


def function(of: Array, value: Array) -> bool:
    """Rows with one entry in ``of`` have one ``value``."""
    _, group = np.unique(of, return_inverse=True)
    low, high = np.full(group.max() + 1, np.inf), np.full(group.max() + 1, -np.inf)
    np.minimum.at(low, group, value)
    np.maximum.at(high, group, value)
    return bool((low == high).all())


def leak(column: Array, target: Array, *, classes: bool, ordered: bool) -> str | None:
    """Why a column gives the target away; None if it does not. ``ordered``: the column's values are numbers.

    Of numbers: it has nearly the target's order, or is a rising or falling function of the target (a logarithm, a
    threshold), or the target is one of it. Of two classes the same, without the first. Of all: rows with one value of
    the column have one target, and there are at least five rows for each value.
    """
    there = ~(np.isnan(column) | np.isnan(target))
    column, target = column[there].astype(float), target[there].astype(float)
    if len(column) < FEW or not (_varies(column) and _varies(target)):
        return None
    if ordered and not classes:
        correlation = rank_correlation(column, target)
        if abs(correlation) > RANKS:
            return f"rank correlation with the target {correlation:.4f}"
    decided = function(column, target)
    if ordered and (not classes or len(np.unique(target)) == 2) and monotone(target, column):
        if function(target, column):
            return "a function of the target"
        if decided:
            return "the target is a threshold of it"
    if decided and len(np.unique(column)) <= len(column) / 5:
        return "each of its values has one target"
    return None


def named(column: str, target: str) -> str | None:
    """Why a column's name gives it away: that of the target with the mark of a logarithm or of a square."""
    marked = {f"l{target}", f"log{target}", f"log_{target}", f"log({target})", f"{target}sq", f"{target}_sq"}
    return "by its name, a logarithm or a square of the target" if column.lower() in map(str.lower, marked) else None


def idle(column: Array, name: str, identifiers: frozenset[str], *, text: bool) -> str | None:
    """Why a column says nothing: no value, one value, or it numbers or names the rows."""
    there = column[~np.isnan(column)]
    if len(there) == 0:
        return "has no values"
    if len(np.unique(there)) == 1:
        return "has one value"
    if name in identifiers:
        return "names or numbers the rows"
    if text and len(np.unique(there)) > len(there) / 2:
        return "text that names the rows"
    if not text and len(there) == len(column) and np.array_equal(np.diff(there), np.ones(len(there) - 1)):
        return "numbers the rows"
    return None


def together(x: Array, y: Array) -> float:
    """R^2 of least squares of the target on all columns, on its own rows: of the cells, or of logarithms if larger.

    Beyond ``EXACT`` the columns give the target away together: it is their sum, their product, a difference, a ratio.
    """
    filled = np.where(np.isnan(x), np.nanmedian(x, axis=0), x).astype(float)
    shares = [_fitted(filled, y.astype(float))]
    positive = filled[:, (filled > 0).all(axis=0)]
    if (y > 0).all() and positive.shape[1]:
        shares.append(_fitted(np.log(positive), np.log(y)))
    return max(shares)


def _fitted(x: Array, y: Array) -> float:
    scaled = (x - x.mean(0)) / np.maximum(x.std(0), 1e-12)
    design = np.column_stack([scaled, np.ones(len(y))])
    rest = y - design @ np.linalg.lstsq(design, y, rcond=1e-8)[0]
    return 1.0 - float(rest @ rest) / float(((y - y.mean()) ** 2).sum())


@dataclass(frozen=True)
class Mark:
    """A column with many different values, by which a table can be known: as it is, and scaled to 0 .. 1."""

    cells: tuple[Array, Array]
    values: tuple[frozenset[float], frozenset[float]]
    strong: bool


def marks(x: Array) -> list[Mark]:
    """``x`` has a table's columns of numbers, the target among them, without those that name or number the rows.

    A mark has ``WEAK`` different values. It is strong if it has ``STRONG``, or one in every other row, and ``POSSIBLE``
    values lie in its range, by the least distance between two: ages and counts of a few dozen agree by chance.
    """
    found = list[Mark]()
    for column in x.T.astype(float):
        there = column[~np.isnan(column)]
        values = np.unique(np.round(there, 5))
        if len(values) < WEAK:
            continue
        low, high = values[0], values[-1]
        cells = (np.round(column, 5), np.round((column - low) / (high - low), 5))
        raw, scaled = (frozenset(cell[~np.isnan(cell)]) for cell in cells)
        strong = len(values) >= min(STRONG, len(there) / 2) and (high - low) / np.diff(values).min() >= POSSIBLE
        found.append(Mark(cells, (raw, scaled), bool(strong)))
    return found


def near(a: list[Mark], b: list[Mark]) -> float:
    """The share of the smaller table's rows that are rows of the larger in the marks they share; 0 if they share few.

    A mark of one is a mark of the other if ``COLUMN`` of its values are there, as they are or scaled (another unit),
    and if together with those found before it leaves at least ``ROWS`` of the rows in common. Wanted are two strong
    marks, or three marks with ``MOST`` of the rows; one that has the order of another does not count. Then the tables
    are one table twice, or one is a part of the other, or they have a part in common.
    """
    if not (a and b):
        return 0.0
    small, large = (a, b) if len(a[0].cells[0]) <= len(b[0].cells[0]) else (b, a)
    taken, share = list[tuple[Array, Array, bool]](), 0.0
    free = set(range(len(large)))
    for mark in sorted(small, key=lambda mark: -len(mark.values[0])):
        if any(abs(rank_correlation(mark.cells[0], left)) > RANKS for left, _, _ in taken):
            continue
        trials = {
            j: [*taken, (mark.cells[way], large[j].cells[way], mark.strong)] for j, way in _partners(mark, large, free)
        }
        common, j = max(((_common_rows(trial), j) for j, trial in trials.items()), default=(0.0, -1))
        if common >= ROWS:
            taken, share = trials[j], common
            free.remove(j)
    enough = sum(strong for _, _, strong in taken) >= 2 or (len(taken) >= 3 and share >= MOST)
    return share if enough else 0.0


def _partners(mark: Mark, others: list[Mark], free: set[int]) -> Iterator[tuple[int, int]]:
    for j in free:
        for way in (0, 1):
            if len(mark.values[way] & others[j].values[way]) >= COLUMN * len(mark.values[way]):
                yield j, way


def _common_rows(pairs: list[tuple[Array, Array, bool]]) -> float:
    """A missing cell is equal to a missing cell."""
    rows, others = (
        Counter(zip(*(np.nan_to_num(pair[side], nan=np.inf).tolist() for pair in pairs), strict=True))
        for side in (0, 1)
    )
    return sum((rows & others).values()) / len(pairs[0][0])
