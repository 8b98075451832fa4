"""What anybody could make of the baselines without knowing the scores: the mean of what four of them predict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import models
from .scores import Row, of_numbers
from .tables import Table

Array = NDArray[Any]
NAME = "blend"  # of the model in rows
PARTS = ("linear", "process", "forest", "boosting")  # a line, a smooth function, two kinds of trees


def said(table: Table, learn: Array, test: Array) -> tuple[Array, float, Row]:
    """Predictions, the seconds of a core, and the squares of every part: they must be those of the baselines' rows."""
    found = {name: models.said(name, table, learn, test) for name in PARTS}
    squares = {name: of_numbers(table, test, prediction)["squares"] for name, (prediction, _) in found.items()}
    more = {f"{name} squares": float(f"{value:.6g}") for name, value in squares.items()}
    return np.mean([prediction for prediction, _ in found.values()], axis=0), sum(s for _, s in found.values()), more
