"""How good a learner is on a table, beside other methods. Every row is predicted by a model that has not seen it."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from innergrad.tables.models import LEAST_PROBABILITY, Engine, matrix, objects, rivals
from innergrad.tables.table import Table
from innergrad.written import Task

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # quantiles that calibration is measured at
SCORED = 3000  # rows; of more, a sample: boosting and the like would take minutes
RESAMPLED = 200  # times, for the spread of a score
WITHIN = (0.1587, 0.8413)  # one standard deviation on both sides of the mean, for normal draws
ROUNDED = 1e-9  # a share that is rounding
PERMUTED_ROWS, PERMUTED_QUERIES = 250, 8000  # rows that a column is shuffled in, and predictions for all columns
OWN = "in context"
CHANCE = 0.5  # the area under the ROC curve of a method that does not tell rows apart

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What a method predicted for every row that teaches. values: amounts (n,), or probabilities (n, classes).
    quantiles: (n, levels) of amounts, of a method that says how sure it is. seconds: of all folds.
    """

    name: str
    values: np.ndarray
    seconds: float
    quantiles: np.ndarray | None = None


@dataclass(frozen=True)
class Validation:
    """Cross-validation of a table. rows: of the table. y: amounts, or the numbers of classes. found: the learner itself
    comes first.
    """

    task: Task
    classes: list[str]
    rows: list[int]
    y: np.ndarray
    fold: np.ndarray
    found: list[Found]
    matters: list[tuple[str, float]]

    def scores(self) -> list[dict[str, Any]]:
        """A row a method: its measures, and the standard error of the one that decides."""
        measure = amounts if self.task == "numbers" else classes
        return [
            {
                "method": one.name,
                **measure(self.y, one, self.fold),
                "spread": spread_of(drawn),
                "seconds": one.seconds,
            }
            for one, drawn in zip(self.found, self.resampled, strict=True)
        ]

    def gain(self, other: int) -> tuple[float, float]:
        """How much better the learner's score is than another's, and the standard error of that, on the same rows."""
        own, theirs = (decisive(self.task, self.y, self.found[n].values, self.fold) for n in (0, other))
        spread = spread_of(self.resampled[0] - self.resampled[other])
        if self.task == "classes" and theirs == CHANCE:  # rows drawn again hardly tell how little few pairs say
            spread = max(spread, chance_error(self.y, self.fold))
        return own - theirs, spread

    @cached_property
    def resampled(self) -> np.ndarray:
        """(methods, times): the scores, if rows were drawn again, with replacement; NaN where a draw has none."""
        n, rng = len(self.y), np.random.default_rng(0)
        weights = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLED).astype(float)
        return np.stack([weighted(self.task, self.y, one.values, self.fold, weights) for one in self.found])


# ------------------------------------------------------------------------------------------------------------- measures


def decisive(task: Task, y: np.ndarray, values: np.ndarray, fold: np.ndarray | None = None) -> float:
    """R² of amounts; of classes the area under the ROC curve."""
    same = np.zeros(len(y), dtype=int) if fold is None else fold
    found = float(weighted(task, y, values, same, np.ones((1, len(y))))[0])
    return 0.0 if np.isnan(found) else found


def spread_of(drawn: np.ndarray) -> float:
    """The standard error of a score that was drawn again and again: half of the range that 68 % of the draws are in.

    Of scores that are spread normally, that is their standard deviation. But where a few rows make most of the variance
    of the labels, some draws have hardly any of them, and an R² far below zero.
    """
    known = drawn[~np.isnan(drawn)]
    return float(np.diff(np.quantile(known, WITHIN))[0]) / 2.0 if len(known) else 0.0


def weighted(task: Task, y: np.ndarray, values: np.ndarray, fold: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(times,): the same, with every row counted as often as weights (times, rows) say. R² is NaN if all labels are
    equal.
    """
    if task == "numbers":
        size = np.abs(y).max() or 1.0  # squares of tiny numbers would be zero
        y, values = y / size, values / size
        centred, count = y - y.mean(), weights.sum(1)
        squares, error = weights @ centred**2, weights @ (y - values) ** 2
        total = squares - (weights @ centred) ** 2 / count
        known = total > ROUNDED * squares
        return np.asarray(1.0 - np.divide(error, total, out=np.full(len(total), np.nan), where=known))
    count = values.shape[1]
    areas = [area(y == one, values[:, one], fold, weights) for one in ([1] if count == 2 else range(count))]
    known = ~np.isnan(areas)
    mean = np.where(known, areas, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    return np.asarray(np.where(known.any(0), mean, CHANCE))


def area(positive: np.ndarray, value: np.ndarray, fold: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(times,): the area under the ROC curve. That is how often a row of the class has a higher value than another row;
    a tie counts a half. Rows of different folds were predicted by different models, and are not compared. NaN where
    there are no pairs.
    """
    order = np.lexsort((value, fold))
    value, fold, positive, weights = value[order], fold[order], positive[order], weights[:, order]
    new_fold = np.r_[True, fold[1:] != fold[:-1]]
    new_value = new_fold | np.r_[True, value[1:] != value[:-1]]
    ties, starts = np.flatnonzero(new_value), np.flatnonzero(new_fold)
    own, others = (np.add.reduceat(weights * rows, ties, axis=1) for rows in (positive, ~positive))
    below = others.cumsum(1) - others  # of all folds so far
    first = np.searchsorted(ties, starts)  # of the values of a fold
    below -= np.repeat(below[:, first], np.diff(np.r_[first, len(ties)]), axis=1)
    pairs = np.add.reduceat(own, first, axis=1) * np.add.reduceat(others, first, axis=1)
    above, all_pairs = (own * (below + others / 2)).sum(1), pairs.sum(1)
    return np.asarray(np.divide(above, all_pairs, out=np.full(len(weights), np.nan), where=all_pairs > 0.0))


def chance_error(y: np.ndarray, fold: np.ndarray) -> float:
    """The standard error of the area under the ROC curve of a method that guesses; the mean over classes."""
    found = []
    for one in np.unique(y):
        inside = [(int((y[fold == f] == one).sum()), int((y[fold == f] != one).sum())) for f in np.unique(fold)]
        pairs = sum(a * b for a, b in inside)
        if pairs:
            found.append(np.sqrt(sum(a * b * (a + b + 1) / 12 for a, b in inside)) / pairs)
    return float(np.mean(found)) if found else 1.0


def amounts(y: np.ndarray, found: Found, fold: np.ndarray) -> dict[str, Any]:
    error = np.abs(y - found.values)
    row: dict[str, Any] = {
        "r2": decisive("numbers", y, found.values, fold),
        "typical_error": float(np.median(error)),
        "mean_absolute_error": float(error.mean()),
        "root_mean_squared_error": float(np.sqrt(np.square(error).mean())),
    }
    if found.quantiles is not None:
        low, high = (found.quantiles[:, LEVELS.index(level)] for level in (0.1, 0.9))
        covered = float(((low <= y) & (y <= high)).mean())
        row |= {"covered_80": covered, "width_80": float(np.median(high - low)), "rows": len(y)}
    return row


def classes(y: np.ndarray, found: Found, fold: np.ndarray) -> dict[str, Any]:
    right = np.clip(found.values[np.arange(len(y)), y], LEAST_PROBABILITY, 1.0)
    return {
        "auc": decisive("classes", y, found.values, fold),
        "right": float((found.values.argmax(1) == y).mean()),
        "log_loss": float(-np.log(right).mean()),
    }


# ---------------------------------------------------------------------------------------------------------------- folds


def folds(task: Task, y: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The fold of every row, at random; every class is spread over all folds."""
    order = np.random.default_rng(seed).permutation(len(y))
    if task == "classes":
        order = order[np.argsort(y[order], kind="stable")]
    found = np.empty(len(y), dtype=int)
    found[order] = np.arange(len(y)) % count
    return found


def validate(
    table: Table, engine: Engine, *, count: int = 5, seed: int = 0, progress: Progress = lambda what: None
) -> Validation:
    """The learner and its rivals, on the same folds. Of many rows, a sample."""
    known, names = table.known, table.classes
    if len(known) > SCORED:
        known = sorted(random.Random(seed).sample(known, SCORED))
    labels = np.array([table.y[row] for row in known])
    y = labels.astype(float) if table.task == "numbers" else np.array([names.index(one) for one in labels])
    fold = folds(table.task, y, min(count, len(y)), seed)
    target = y if table.task == "numbers" else labels
    shuffled = Shuffled(len(y), len(table.used), int(fold.max()) + 1, seed)
    learn = Learn(table.task, names, target, fold, progress)
    found = [learn(OWN, engine.make, objects(table.columns, known), shuffled)]
    M = matrix(table.columns, table.used, known)
    found += [learn(rival.name, rival.make, M) for rival in rivals(table.task, table.used, seed, len(y))]
    matters = shuffled.matters(table.task, y, found[0].values, fold, [one.name for one in table.used])
    return Validation(table.task, names, known, y, fold, found, matters)


@dataclass(frozen=True)
class Learn:
    """Cross-validation of one method after the other. y: amounts, or names of classes."""

    task: Task
    names: Sequence[str]
    y: np.ndarray
    fold: np.ndarray
    progress: Progress

    def _alike(self, rows: np.ndarray) -> bool:
        """Rows of one class teach nothing, and some methods refuse them."""
        return self.task == "classes" and len(set(self.y[rows].tolist())) == 1

    def __call__(self, name: str, make: Callable[[], Any], X: np.ndarray, shuffled: Shuffled | None = None) -> Found:
        """shuffled: of the learner itself, whose quantiles are asked for, too."""
        amounts = self.task == "numbers"
        values = np.zeros(len(self.y)) if amounts else np.zeros((len(self.y), len(self.names)))
        quantiles = np.zeros((len(self.y), len(LEVELS))) if amounts and shuffled is not None else None
        seconds = 0.0
        for number in range(int(self.fold.max()) + 1):
            self.progress(name)
            held, started = self.fold == number, time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of convergence, and of rare classes: the scores say how well it went
                given = X if shuffled is not None else _without_empty(X, ~held)
                model: Any = Same() if self._alike(~held) else make()
                model.fit(given[~held], self.y[~held])
                values[held] = predicted(self.task, model, given[held], self.names)
                seconds += time.perf_counter() - started
                if quantiles is not None:
                    quantiles[held] = model.predict(X[held], quantiles=list(LEVELS))
                if shuffled is not None:
                    shuffled.add(held, X, partial(predicted, self.task, model, names=self.names))
        return Found(name, values, seconds, quantiles)


def _without_empty(M: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The matrix; a column that has no value in the rows that teach is 0, since boosting refuses it."""
    empty = np.isnan(M[rows]).all(0)
    return np.where(empty, 0.0, M) if empty.any() else M


class Same:
    """Learns from rows of one class."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Same:
        del X
        self.classes_ = y[:1]
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.ones((len(X), 1))


def predicted(task: Task, model: Any, X: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Amounts, or probabilities of all classes: one that the model has not seen has none."""
    if task == "numbers":
        return np.asarray(model.predict(X), dtype=float)
    found = np.zeros((len(X), len(names)))
    found[:, [list(names).index(label) for label in model.classes_]] = model.predict_proba(X)
    return found


# ------------------------------------------------------------------------------------------------ which columns matter


class Shuffled:
    """Predictions of rows that a model has not seen, with one column after the other shuffled among them."""

    def __init__(self, rows: int, columns: int, folds: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.most = max(2, min(PERMUTED_ROWS, PERMUTED_QUERIES // columns) // folds)
        self.columns = columns
        self.rows = list[np.ndarray]()
        self.values = list[np.ndarray]()

    def add(self, held: np.ndarray, X: np.ndarray, predict: Callable[[np.ndarray], np.ndarray]) -> None:
        """The rows of one fold, or some of them."""
        rows = self.rng.permutation(np.flatnonzero(held))[: self.most]
        copies = []
        for place in range(self.columns):
            copy = X[rows].copy()
            copy[:, place] = copy[self.rng.permutation(len(rows)), place]
            copies.append(copy)
        values = predict(np.concatenate(copies))
        self.rows.append(rows)
        self.values.append(values.reshape(self.columns, len(rows), *values.shape[1:]))

    def matters(
        self, task: Task, y: np.ndarray, values: np.ndarray, fold: np.ndarray, names: Sequence[str]
    ) -> list[tuple[str, float]]:
        """Column -> how much the score falls where the column is shuffled; the largest first."""
        rows = np.concatenate(self.rows)
        whole = decisive(task, y[rows], values[rows], fold[rows])
        each = [decisive(task, y[rows], part, fold[rows]) for part in np.concatenate(self.values, axis=1)]
        found = [(name, whole - score) for name, score in zip(names, each, strict=True)]
        return sorted(found, key=lambda pair: -pair[1])
