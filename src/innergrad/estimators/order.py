"""A table in an order of its own, so that neither the order of rows nor that of columns changes a prediction.

Columns go from the most to the least telling one. Rows are sorted by their cells. Everything after this, held-out rows
for instance, is then a function of the set of rows.
"""

from __future__ import annotations

import numpy as np

BINS = 8  # of a column of numbers
DIGITS = 9  # of a score: less than rounding could change


def relevance(column: np.ndarray, labels: np.ndarray, levels: int = 0) -> float:
    """The share of the labels' variance that is between groups of rows with like cells, less the share that chance
    gives: (share - expected) / (1 - expected), expected = (groups - 1) / (rows - 1).

    column (n,), NaN where missing; labels (n, k): ranks of numbers, or one column for each class. Groups are the
    categories, or eighths of the numbers; missing cells are a group.
    """
    groups = _groups(column, levels)
    rows, count = len(labels), int(groups.max()) + 1
    if count < 2 or rows <= count:
        return 0.0
    centred = labels - labels.mean(0)
    total = float((centred**2).sum())
    sizes = np.bincount(groups, minlength=count)
    sums = np.stack([np.bincount(groups, centred[:, j], minlength=count) for j in range(labels.shape[1])])
    share = float((sums**2 / sizes).sum()) / total if total > 0.0 else 0.0
    expected = (count - 1) / (rows - 1)
    return (share - expected) / (1 - expected)


def _groups(column: np.ndarray, levels: int) -> np.ndarray:
    """The number of every row's group, 0, 1, 2 ..., each of which has rows."""
    missing = np.isnan(column)
    seen = column[~missing]
    if levels:
        groups = np.where(missing, -1.0, column)
    else:
        edges = np.unique(np.quantile(seen, np.arange(1, BINS) / BINS)) if len(seen) else np.empty(0)
        groups = np.where(missing, -1, np.searchsorted(edges, column, side="right"))
    return np.unique(groups, return_inverse=True)[1]


def ranks(y: np.ndarray) -> np.ndarray:
    """(n, 1): mean ranks of the labels, which outliers do not move."""
    _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    found: np.ndarray = middle[place][:, None]
    return found


def order_of_columns(scores: list[float], values: np.ndarray) -> np.ndarray:
    """From the highest score to the lowest; equal ones by the sorted content of the columns."""
    keys = [(-float(f"{score:.{DIGITS}g}"), np.sort(values[:, j]).tobytes()) for j, score in enumerate(scores)]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)


def order_of_rows(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """By the label, then by the cells, column by column. Rows that are equal in all may be in any order."""
    return np.lexsort((*values.T[::-1], labels))


def without_names(codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(n,): numbers of classes that do not depend on their names: the frequent first, equally frequent ones by the
    sorted content of their rows.
    """
    rows = [values[codes == one] for one in range(int(codes.max()) + 1)]
    keys = [(-len(part), part[order_of_rows(part, np.zeros(len(part)))].tobytes()) for part in rows]
    found: np.ndarray = np.argsort(sorted(range(len(keys)), key=keys.__getitem__))[codes]
    return found
