"""Baselines without a model: zero, the mean of the labels seen, the labels of the nearest points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import InputError, integer
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.labels import by_component

WEIGHTS = ("uniform", "inverse", "squared-distance")


@dataclass(frozen=True)
class Zero(Predictor, kind="zero"):
    """Predicts 0: its error is the mean square of the labels."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.zeros_like(y)


@dataclass(frozen=True)
class Mean(Predictor, kind="mean"):
    """The mean of the labels seen; 0 at k = 0. With inputs far from 0 it is hard to beat."""

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        before = torch.nn.functional.pad(y.double().cumsum(1)[:, :-1], (*[0] * (2 * y.ndim - 4), 1, 0))
        return (before / torch.arange(y.shape[1], device=y.device).clamp(min=1).view(-1, *[1] * (y.ndim - 2))).to(y)


@dataclass(frozen=True)
class KNN(Predictor, kind="knn"):
    """A weighted mean of the labels of the nearest points seen.

    Args:
        k: how many points; all of them while they are fewer.
        weights: ``uniform``; ``inverse``, which is 1 / distance, and a point met before counts alone, as in
            scikit-learn; or ``squared-distance``, |x_i - x_j|^2, which Akyürek et al. (2023) print in section 4.2.
            There the farthest neighbour counts most, which is surely a misprint. It is here to reproduce their figures.
    """

    k: int = 3
    weights: str = "uniform"

    def __post_init__(self) -> None:
        integer("k", self.k)
        if self.weights not in WEIGHTS:
            raise InputError("unknown weights", got=repr(self.weights), allowed=", ".join(WEIGHTS))

    @property
    def name(self) -> str:
        return f"{self.k}-NN" + ("" if self.weights == "uniform" else f", {self.weights} weights")

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
        seen = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(-1)
        near, which = distance.masked_fill(~seen, torch.inf).topk(min(self.k, n), -1, largest=False)
        found = near.isfinite()
        weight = self._weight(near) * found
        labels = y[:, None].expand(-1, n, -1).gather(2, which)
        total = weight.sum(-1)
        # Points that coincide have squared distance 0 to each other: then all neighbours count alike.
        weight = torch.where((total > 0)[..., None], weight, found.to(weight))
        return (weight * labels).sum(-1) / weight.sum(-1).clamp(min=torch.finfo(y.dtype).tiny)

    def _weight(self, distance: Tensor) -> Tensor:
        if self.weights == "uniform":
            return torch.ones_like(distance)
        if self.weights == "squared-distance":
            return distance.nan_to_num(posinf=0.0).square()
        same = distance == 0
        return torch.where(same.any(-1, keepdim=True), same.to(distance), 1.0 / distance)
