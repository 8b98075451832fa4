"""Linear functions: y = w . x, with all coordinates (Akyürek et al.'s regression, Garg et al.) or a few (sparse)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import integer, real
from innergrad.lab.baselines import Lasso, LeastSquares, Predictor, Ridge
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Task


@dataclass(frozen=True)
class Linear(Task, kind="linear"):
    """Linear functions w·x with w ~ N(0, tau^2 I). Garg et al. (2022) have tau = 1 and no noise.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise (sigma of Akyürek et al. 2023).
        tau: the standard deviation of the weights.

    Examples:
        >>> from innergrad import lab
        >>> lab.Linear(d=4).scale  # the root mean square of a label
        2.0
        >>> lab.Linear(d=4).best().name
        'least squares'
    """

    tau: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        real("tau", self.tau, above=0.0)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"w": self.tau * rng.normal(index, self.d)}

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.einsum("bnd,bd->bn", x, params["w"])

    @property
    def scale(self) -> float:
        return float(self.tau * self.inputs.second_moment(self.d) ** 0.5)

    def best(self) -> Predictor:
        """The posterior mean: ridge regression with lambda = noise^2 / tau^2, least squares without noise."""
        return Ridge(lam=(self.noise / self.tau) ** 2, intercept=False) if self.noise else LeastSquares()


@dataclass(frozen=True)
class SparseLinear(Task, kind="sparse-linear"):
    """Linear functions with few weights that are not zero. Those are chosen uniformly, and are N(0, 1).

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.
        nonzeros: how many weights are not zero.
    """

    nonzeros: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("nonzeros", self.nonzeros, high=self.d)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        draws = rng.fork("support").uniform(index, self.d)
        rank = draws.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
        return {"w": rng.normal(index, self.d) * (rank < self.nonzeros)}

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.einsum("bnd,bd->bn", x, params["w"])

    @property
    def scale(self) -> float:
        return float((self.nonzeros * self.inputs.second_moment(self.d) / self.d) ** 0.5)

    def best(self) -> Predictor:
        """The lasso: the strongest that is cheap. (The posterior mean sums over all supports.)"""
        return Lasso()
