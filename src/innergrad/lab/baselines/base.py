"""The base class of baselines: predictions of every label of a prompt from the pairs before it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from innergrad.config import Family
from innergrad.errors import lacks


@dataclass(frozen=True)
class Predictor(Family):
    """A predictor. Entry k of ``predictor(x, y)`` is its prediction of y_k from x_k and the first k pairs.

    x is (B, n, d); y and the predictions are (B, n), or (B, n, k) where labels are vectors of k numbers. Subclass it to
    write your own; a subclass gives its ``kind``, the name on the command line.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> class Last(lab.Predictor, kind="the-last-label"):
        ...     def __call__(self, x, y):
        ...         return torch.cat([torch.zeros_like(y[:, :1]), y[:, :-1]], 1)
        >>> Last()(torch.zeros(1, 3, 2), torch.tensor([[1.0, 3.0, 5.0]]))
        tensor([[0., 1., 3.]])
    """

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        return self.kind

    def linear_weights(self, x: Tensor, y: Tensor) -> Tensor | None:
        """(B, n, d): w of a predictor w·x, for each prefix. None if it is not linear, or does not say its w.

        Of labels of one number.
        """
        del x, y
        return None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        raise lacks(self, "__call__(x, y)")
