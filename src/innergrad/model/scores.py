"""How good predictions are, in a number that people know: R² of amounts, the share that is right of classes.

R² is 1 where all predictions are true, and 0 where they are no better than the mean of the true values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from innergrad.errors import plural


@dataclass(frozen=True)
class Score:
    """Of so many rows: R² by the name of the target, or the number of rows whose class is right."""

    rows: int
    r2: dict[str, float]
    right: int | None = None

    def words(self, where: str) -> str:
        """ "R² on 48 examples: 0.64". where: "examples", say."""
        rows = plural(self.rows, where)
        if self.right is not None:
            return f"right on {rows}: {self.right:,}, which is {self.right / self.rows:.0%}"
        several = len(self.r2) > 1
        parts = [f"{name} {value:.3f}" if several else f"{value:.3f}" for name, value in self.r2.items()]
        return f"R² on {rows}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        found = {"r2": self.r2} if self.right is None else {"right": self.right}
        return {"rows": self.rows, **found}


def score(predictions: Tensor, truth: Tensor, targets: Sequence[str], *, classes: bool = False) -> Score | None:
    """Of predictions (rows, targets) beside the truth; None where there is none: no rows, or a target that is the same
    in all of them. classes: the targets are 0 and 1, one column or one-hot, and the predictions logits.
    """
    found, true = predictions.double().reshape(len(truth), -1), truth.double().reshape(len(truth), -1)
    if not len(true):
        return None
    if classes:
        same = (found > 0) == (true > 0.5) if true.shape[1] == 1 else (found.argmax(1) == true.argmax(1)).unsqueeze(1)
        return Score(len(true), {}, int(same.sum()))
    total = (true - true.mean(0)).square().sum(0)
    if not bool((total > 0).all()):
        return None
    explained = 1.0 - (found - true).square().sum(0) / total
    return Score(len(true), dict(zip(targets, explained.tolist(), strict=True)))
