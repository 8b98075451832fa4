"""Which rows of a large table should be in the prompt: those nearest to the row that is asked for, or rows at random?

    python benchmarks/table_contexts.py --learner forest --learner gp [--learner tables-regression]

Tables come from the prior. ``forest`` and ``gp`` are scikit-learn's, made to answer from a context as a learner of
tables does; ``tables-regression`` is the one of the zoo. The score is R^2, clipped at -1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innergrad import InContextRegressor, lab

WAYS: dict[str, dict[str, Any]] = {
    "one at random": {"contexts": "random", "n_estimators": 1},
    "two at random": {"contexts": "random", "n_estimators": 2},
    "four at random": {"contexts": "random", "n_estimators": 4},
    "nearest": {"contexts": "nearest", "n_estimators": 1},
}


@dataclass(frozen=True)
class Mean:
    mean: Tensor

    @property
    def std(self) -> Tensor:
        return torch.zeros_like(self.mean)


@dataclass
class Proxy:
    """A model of scikit-learn as a learner of tables. A missing cell is the mean of its column."""

    model: Any
    d: int
    exchangeable: bool = True

    def answer(self, x: Tensor, y: Tensor) -> Mean:
        k = y.shape[1]
        cells = x[0].double().numpy()
        cells = cells[:, np.isfinite(cells[:k]).any(0)]
        mean, std = np.nanmean(cells[:k], 0), np.nanstd(cells[:k], 0)
        z = np.nan_to_num((cells - mean) / np.where(std > 0, std, 1.0))
        found = self.model.fit(z[:k], y[0].double().numpy()).predict(z[k:])
        return Mean(torch.from_numpy(found)[None])


def learner(name: str, d: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel

    if name == "forest":
        return Proxy(RandomForestRegressor(50, min_samples_leaf=2, max_features=0.5, random_state=0), d)
    if name == "gp":
        kernel = 1.0 * RBF(np.sqrt(d)) + WhiteKernel(0.1)
        return Proxy(GaussianProcessRegressor(kernel, normalize_y=True), d)
    return name


def score(way: dict[str, Any], given: Any, table: tuple[np.ndarray, np.ndarray], rows: int, context: int) -> float:
    x, y = table
    model = InContextRegressor(learner=given, max_rows=context, **way).fit(x[:rows], y[:rows])
    return max(-1.0, float(model.score(x[rows:], y[rows:])))


def measured(name: str, tables: int, rows: int, context: int, queries: int, d: int) -> dict[str, Any]:
    task, found = lab.TableRegression(d=d), {way: list[float]() for way in (*WAYS, "all rows")}
    for index in range(tables):
        prompt = task.sample(lab.CounterRNG.of(7), torch.tensor([index]), rows + queries)
        table = prompt.x[0].double().numpy(), prompt.y[0].double().numpy()
        given = learner(name, d)
        for way, settings in WAYS.items():
            found[way].append(score(settings, given, table, rows, context))
        found["all rows"].append(score(WAYS["one at random"], given, table, rows, rows))
        print(name, index, {way: round(scores[-1], 3) for way, scores in found.items()}, flush=True)
    means = {way: float(np.mean(scores)) for way, scores in found.items()}
    gains = np.subtract(found["nearest"], found["four at random"])
    interval = 1.96 * float(gains.std(ddof=1)) / len(gains) ** 0.5
    return {"means": means, "nearest minus four": [float(gains.mean()), interval], "scores": found}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", action="append", required=True)
    parser.add_argument("--tables", type=int, default=24)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--context", type=int, default=400)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    sizes = {name: getattr(given, name) for name in ("tables", "rows", "context", "queries", "d")}
    found = {name: measured(name, **sizes) for name in given.learner}
    print(json.dumps({name: {key: one[key] for key in ("means", "nearest minus four")} for name, one in found.items()}))
    if given.out:
        given.out.write_text(json.dumps({"settings": sizes, "learners": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
