"""What scikit-learn promises of X and y, and nothing that would take cells for numbers."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from innergrad.errors import InputError, shortened
from innergrad.estimators.cells import NUMBER, Values, is_number, missing, split


def table_of(estimator: Any, X: Any, *, reset: bool, y: Any = "no_validation") -> list[Values]:
    """The columns of X, after scikit-learn's checks of names, axes and sizes. Cells may be anything."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        validate_data(estimator, X, y, reset=reset, skip_check_array=True)
        if 0 in X.shape:
            check_array(np.empty(X.shape), estimator=estimator)  # says what is empty, in scikit-learn's words
        return split(X)
    X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
    if X.dtype.kind == "V":
        raise InputError("X has a structured dtype", got=X.dtype, hint="make it a data frame")
    validate_data(estimator, X, y, reset=reset, skip_check_array=True)
    return split(X)


def require_labels(y: Any) -> None:
    """An error if one is missing. scikit-learn does not know all forms in which one may be."""
    labels = np.asarray(y)
    lacking = [place for place, label in enumerate(labels.ravel()) if missing(label)] if labels.dtype == object else []
    if lacking:
        row = lacking[0] * len(labels) // labels.size
        raise InputError("Input y contains a missing label", got=f"row {row}", hint="leave out such rows")


def require_numbers(y: Any) -> None:
    """An error if a label is a text, a date, or anything else that is no number. It says what to do."""
    require_labels(y)
    labels = np.asarray(y)
    if labels.dtype.kind not in "OUSMm":
        return
    strange = next((label for label in labels.ravel() if not _reads_as_number(label)), None)
    if strange is None:
        return
    got = shortened(repr(strange), 60)
    raise InputError("y has labels that are no numbers", got=got, allowed="finite numbers", hint=_hint(strange))


def _reads_as_number(label: object) -> bool:
    return is_number(label) or (isinstance(label, str) and NUMBER.match(label.strip()) is not None)


def _hint(label: object) -> str:
    if isinstance(label, datetime.date | np.datetime64 | np.timedelta64):
        return "make them numbers, such as days"
    return "classes? InContextClassifier predicts them" if isinstance(label, str) else "make them numbers"


def names_of(estimator: Any) -> list[str]:
    names = getattr(estimator, "feature_names_in_", None)
    return [f"column {place + 1}" for place in range(estimator.n_features_in_)] if names is None else list(names)


def names_of_labels(y: Any, count: int) -> list[str]:
    """Those of a data frame's columns, or their numbers."""
    names = [f"label {place + 1}" for place in range(count)]
    return [str(name) for name in y.columns] if hasattr(y, "columns") else names
