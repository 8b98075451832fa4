"""Gradient descent on a linear function, stopped early: one step on all pairs, or one pass over them.

    one step    w = lr sum over i <= k of x_i y_i                                       from w = 0, all pairs at once
    one pass    w += lr x_i (y_i - w . x_i),   i = 1 .. k                               from w = 0, a pair at a time

Akyürek et al. (2023, section 4.3) compare learners with the first, and their Theorem 1 is about the second. They name
no rate. The defaults here are the best for inputs N(0, I), weights N(0, I) and no noise:

    one step    lr = 1 / (k + d + 1)     minimises E |w - w*|^2, since E |X^T y|^2 = (k^2 + k (d + 1)) |w*|^2
    one pass    lr = 1 / (d + 2)         minimises 1 - 2 lr + lr^2 (d + 2), the factor of E |w - w*|^2 in each step

All arithmetic is float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import lacks, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.labels import by_component


@dataclass(frozen=True)
class _Descent(Predictor):
    """A linear function w . x; a subclass has its weights."""

    lr: float | None = None

    def __post_init__(self) -> None:
        if self.lr is not None:
            real("lr", self.lr, above=0.0, hint="none: the best rate for inputs N(0, I)")

    def _with_rate(self, words: str) -> str:
        return words + ("" if self.lr is None else f", lr {self.lr:g}")

    def linear_weights(self, x: Tensor, y: Tensor) -> Tensor:
        raise lacks(self, "linear_weights(x, y)")

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bnd,bnd->bn", self.linear_weights(x, y), x.double()).to(y)


@dataclass(frozen=True)
class OneStep(_Descent, kind="one-step"):
    """One step of gradient descent from zero on 1/2 sum (w·x_i - y_i)^2, over all pairs seen.

    Args:
        lr: the rate; None for 1 / (k + d + 1) after k pairs, the best for inputs N(0, I) and weights N(0, I).
    """

    @property
    def name(self) -> str:
        return self._with_rate("one step of GD")

    def linear_weights(self, x: Tensor, y: Tensor) -> Tensor:
        """(B, n, d): lr X^T y of the pairs before each."""
        moments = torch.nn.functional.pad((x.double() * y.double()[..., None]).cumsum(1)[:, :-1], (0, 0, 1, 0))
        if self.lr is not None:
            return self.lr * moments
        seen = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
        return moments / (seen + x.shape[2] + 1)[:, None]


@dataclass(frozen=True)
class OnePass(_Descent, kind="one-pass"):
    """One pass of stochastic gradient descent from zero: a step on 1/2 (w·x_i - y_i)^2 for each pair in turn.

    Args:
        lr: the rate; None for 1 / (d + 2), the best for inputs N(0, I).
    """

    @property
    def name(self) -> str:
        return self._with_rate("one pass of SGD")

    def linear_weights(self, x: Tensor, y: Tensor) -> Tensor:
        """(B, n, d): w after the pairs before each."""
        x, y = x.double(), y.double()
        lr = 1.0 / (x.shape[2] + 2) if self.lr is None else self.lr
        w, found = torch.zeros_like(x[:, 0]), [torch.zeros_like(x[:, 0])]
        for k in range(x.shape[1] - 1):
            w = w + lr * (y[:, k] - (w * x[:, k]).sum(-1))[:, None] * x[:, k]
            found.append(w)
        return torch.stack(found, 1)
