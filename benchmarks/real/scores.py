"""Scores of predictions on the rows of one fold; numpy only. A test has scikit-learn's beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rules import ranks
from .tables import Table

Array = NDArray[Any]
Row = dict[str, Any]
BINS = 10  # of the calibration error
LEAST = 1e-6  # a probability is taken for no less, so that one sure mistake does not decide a mean


def auc(truth: Array, score: Array) -> float:
    """Area under the ROC curve of two classes: the chance that a row of the class has the larger score."""
    positive = truth.astype(bool)
    count, others = int(positive.sum()), int((~positive).sum())
    if count == 0 or others == 0:
        return float("nan")
    return float((ranks(score)[positive].sum() - count * (count + 1) / 2) / (count * others))


def roc_auc(y: Array, p: Array) -> float:
    """Of two classes; of more, the mean over classes of each against the rest."""
    if p.shape[1] == 2:
        return auc(y == 1, p[:, 1])
    return float(np.mean([auc(y == label, p[:, label]) for label in range(p.shape[1])]))


def log_loss(y: Array, p: Array) -> float:
    clipped = np.clip(p, LEAST, 1.0)
    clipped = clipped / clipped.sum(1, keepdims=True)
    return float(-np.log(clipped[np.arange(len(y)), y.astype(int)]).mean())


def calibration(y: Array, p: Array) -> float:
    """How far the chance of the likeliest class is from how often it is right: in ten bins, weighted by their rows."""
    sure, right = p.max(1), p.argmax(1) == y
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    return float(sum(abs((sure - right)[bins == i].sum()) for i in range(BINS)) / len(y))


def of_numbers(table: Table, test: Array, prediction: Array) -> Row:
    """``squares`` and ``spread`` of all folds together give the table's R^2: 1 - sum of one / sum of the other."""
    y = table.y[test].astype(float)
    squares = float(((y - prediction) ** 2).sum())
    inside = float(((y - y.mean()) ** 2).sum())
    return {
        "r2": 1.0 - squares / inside if inside > 0 else 0.0,
        "squares": squares,
        "spread": float(((y - table.y.astype(float).mean()) ** 2).sum()),
    }


def of_classes(table: Table, test: Array, p: Array) -> Row:
    y = table.y[test].astype(int)
    return {
        "auc": roc_auc(y, p),
        "log_loss": log_loss(y, p),
        "accuracy": float((p.argmax(1) == y).mean()),
        "calibration": calibration(y, p),
    }


def covered(table: Table, learn: Array, test: Array, low: Array, high: Array) -> Row:
    """How many rows lie within their interval, and how wide intervals are: in deviations of the labels learned from."""
    y, deviation = table.y[test].astype(float), float(table.y[learn].astype(float).std())
    width = float((high - low).mean()) / max(deviation, 1e-12)
    return {"covered": int(((low <= y) & (y <= high)).sum()), "width": float(f"{width:.4g}")}


def scored(table: Table, test: Array, said: Array) -> Row:
    """``said``: predictions (m,), or probabilities (m, C)."""
    scores = of_numbers(table, test, said) if table.task == "regression" else of_classes(table, test, said)
    return {name: float(f"{value:.6g}") for name, value in scores.items()}
