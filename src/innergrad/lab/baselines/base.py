"""The base class of baselines: predictions of every label of a prompt from the pairs before it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from innergrad.config import Family
from innergrad.errors import lacks


@dataclass(frozen=True)
class Predictor(Family):
    """Entry k of ``predictor(x, y)`` is the prediction of y_k from x_k and the first k pairs; k = 0: from nothing.

    x (B, n, d), y (B, n) -> (B, n). Subclasses give their ``kind``, the name on the command line.
    """

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        return self.kind

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        raise lacks(self, "__call__(x, y)")
