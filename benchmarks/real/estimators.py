"""InContextRegressor and InContextClassifier on real tables, as a user has them: a data frame in, with categories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scores import Row, covered
from .tables import Table

Array = NDArray[Any]
NAME = "innergrad"  # of the model in rows


def frame(table: Table) -> Any:
    """Columns of numbers, and columns of categories with their names' codes as text."""
    import pandas as pd

    found = pd.DataFrame(table.x, columns=[f"{i} {name}" for i, name in enumerate(table.columns)])
    for i in np.flatnonzero(table.categories):
        texts = [None if np.isnan(cell) else f"{cell:.0f}" for cell in table.x[:, i]]
        found[found.columns[i]] = pd.Categorical(texts)
    return found


@cache
def _learner(path: str) -> Any:
    from innergrad.lab import load_learner

    return load_learner(path)[0]


def estimator(table: Table, weights: Sequence[str] = ()) -> Any:
    """With the learner of the package, or with that of ``weights`` whose labels are the table's."""
    import innergrad

    labels = "numbers" if table.task == "regression" else "classes"
    learners = [one for one in map(_learner, weights) if one.config.labels == labels]
    settings = {"learner": learners[0]} if learners else {}
    make: Any = innergrad.InContextRegressor if labels == "numbers" else innergrad.InContextClassifier
    return make(**settings)


def said(table: Table, learn: Array, test: Array, weights: Sequence[str] = ()) -> tuple[Array, float, Row]:
    """Predictions or probabilities, the seconds of a core for both, and how many rows the 80% interval covers."""
    rows, model = frame(table), estimator(table, weights)
    if table.task == "classification":
        started = time.process_time()
        p = model.fit(rows.iloc[learn], table.y[learn].astype(int)).predict_proba(rows.iloc[test])
        found = np.zeros((len(test), len(table.classes)))
        found[:, model.classes_.astype(int)] = p
        return found, time.process_time() - started, {}
    started = time.process_time()
    prediction = model.fit(rows.iloc[learn], table.y[learn]).predict(rows.iloc[test])
    took = time.process_time() - started
    low, high = np.asarray(model.predict(rows.iloc[test], quantiles=[0.1, 0.9]), dtype=float).T
    return np.asarray(prediction, dtype=float), took, covered(table, learn, test, low, high)
