"""A learner of tables on real tables, directly: torch and numpy, no scikit-learn. It is given one prompt a fold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import scores
from .rules import rank_correlation, ranks
from .tables import FOLDS, TRAIN, Table

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
Row = dict[str, Any]
COVER = 0.8  # of an interval


def selected(table: Table, learn: Array, d: int) -> Array:
    """The columns a learner of d columns is given: all, or those that say most about the target, by the training rows.

    Of numbers, by the rank correlation with the target. Otherwise by how much of the spread of the ranks lies between
    the categories, or between the classes.
    """
    if table.x.shape[1] <= d:
        return np.arange(table.x.shape[1])
    y = table.y[learn].astype(float)
    share = []
    for column, category in zip(table.x[learn].T.astype(float), table.categories, strict=True):
        if table.task == "classification":
            tells = max(abs(rank_correlation(column, (y == label).astype(float))) for label in np.unique(y))
            if category:
                tells = max(tells, _between(y, column, classes=True))
        else:
            tells = _between(y, column, classes=False) if category else abs(rank_correlation(column, y))
        share.append(tells)
    return np.sort(np.argsort(-np.array(share), kind="stable")[:d])


def _between(y: Array, column: Array, *, classes: bool) -> float:
    """The root of the share of the target's spread that lies between the categories of a column."""
    goals = [(y == label).astype(float) for label in np.unique(y)] if classes else [ranks(y)]
    codes = np.where(np.isnan(column), -1.0, column)
    best = 0.0
    for goal in goals:
        parts = [goal[codes == code] for code in np.unique(codes)]
        spread = ((goal - goal.mean()) ** 2).sum()
        between = sum(len(part) * (part.mean() - goal.mean()) ** 2 for part in parts)
        best = max(best, float(np.sqrt(between / spread)) if spread > 0 else 0.0)
    return best


def answer(learner: Any, table: Table, learn: Array, test: Array, device: torch.device | str) -> Any:
    """The learner's answer for the rows ``test``."""
    import torch

    columns = selected(table, learn, learner.d)
    x = np.full((1, len(learn) + len(test), learner.d), np.nan, np.float32)
    x[0, :, : len(columns)] = table.x[np.concatenate([learn, test])][:, columns]
    y = torch.as_tensor(table.y[learn][None], device=device)
    return learner.answer(torch.as_tensor(x, device=device), y)


def said(learner: Any, table: Table, learn: Array, test: Array, device: torch.device | str) -> tuple[Array, Row]:
    """Predictions or probabilities, and what else the answer says: of numbers, how many rows its interval covers."""
    found = answer(learner, table, learn, test, device)
    if table.task == "classification":
        p = found.probabilities[0].double().cpu().numpy()[:, : len(table.classes)]
        return np.pad(p, ((0, 0), (0, len(table.classes) - p.shape[1]))), {}
    low, high = found.quantile([(1 - COVER) / 2, (1 + COVER) / 2])[0].double().cpu().numpy().T
    return found.mean[0].double().cpu().numpy(), scores.covered(table, learn, test, low, high)


def rows(
    learner: Any, tables: Sequence[Table], device: torch.device | str, *, train: int = TRAIN, name: str = "learner"
) -> Iterator[Row]:
    """One row a table and fold; tables whose labels are not of the learner's kind are passed over."""
    task = "classification" if learner.config.labels == "classes" else "regression"
    for table in tables:
        if table.task != task:
            continue
        for fold in range(FOLDS):
            learn, test = table.split(fold, train)
            started = time.perf_counter()
            found, more = said(learner, table, learn, test, device)
            took = time.perf_counter() - started
            head: Row = {"table": table.name, "source": table.source, "hash": table.hash(), "fold": fold, "model": name}
            sizes = {"train": len(learn), "test": len(test), "seconds": round(took, 3)}
            yield head | sizes | scores.scored(table, test, found) | more
