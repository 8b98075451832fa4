"""Decision trees and boosted trees of scikit-learn, one fit for every prompt and prefix, on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from innergrad.errors import integer, lacks, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.labels import by_component

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Fitted(Predictor):
    """Fits a scikit-learn regressor on every prefix of ``ks`` (all by default; predictions at the others are NaN).

    k = 0 predicts 0. ``workers`` processes share the prompts; every fit has the same ``seed``.
    """

    ks: tuple[int, ...] | None = None
    workers: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        integer("workers", self.workers)
        integer("seed", self.seed, low=0)

    def regressor(self) -> Any:
        """A new regressor."""
        raise lacks(self, "regressor()")

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        n = x.shape[1]
        ks = [integer("ks", k, 0, n - 1) for k in (range(n) if self.ks is None else self.ks)]
        inputs, labels = (part.detach().cpu().double().numpy() for part in (x, y))
        one = partial(_one_prompt, self, ks)
        rows: Iterable[Array]
        if self.workers == 1:
            rows = map(one, inputs, labels)
        else:
            with ProcessPoolExecutor(self.workers, mp_context=get_context("spawn")) as pool:
                rows = list(pool.map(one, inputs, labels, chunksize=max(1, len(inputs) // (4 * self.workers))))
        return torch.from_numpy(np.stack(list(rows))).to(y)


def _one_prompt(predictor: _Fitted, ks: list[int], x: Array, y: Array) -> Array:
    """(n,): predictions for one prompt x (n, d), y (n,)."""
    found = np.full(len(y), math.nan)
    for k in ks:
        found[k] = predictor.regressor().fit(x[:k], y[:k]).predict(x[k : k + 1])[0] if k else 0.0
    return found


@dataclass(frozen=True)
class Tree(_Fitted, kind="tree"):
    """A decision tree grown until its leaves are pure, or to ``depth`` where it is not 0."""

    depth: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("depth", self.depth, low=0)

    def regressor(self) -> Any:
        from sklearn.tree import DecisionTreeRegressor

        return DecisionTreeRegressor(max_depth=self.depth or None, random_state=self.seed)


@dataclass(frozen=True)
class Boosting(_Fitted, kind="boosting"):
    """Gradient boosting: ``trees`` trees of depth ``depth``, each shrunk by ``lr``."""

    trees: int = 100
    depth: int = 3
    lr: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("trees", self.trees)
        integer("depth", self.depth)
        real("lr", self.lr, above=0.0)

    def regressor(self) -> Any:
        from sklearn.ensemble import GradientBoostingRegressor

        return GradientBoostingRegressor(
            n_estimators=self.trees, max_depth=self.depth, learning_rate=self.lr, random_state=self.seed
        )
