"""The learner that is asked for, and the methods that people use instead, all by scikit-learn's conventions.

Numbers of a table are a matrix here, in which a category is the number of its text; every method gets the preparation
that it needs, learned from its training rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from innergrad.errors import InputError
from innergrad.estimators.cells import Level
from innergrad.files import digest
from innergrad.written import Plan, Task, Value

ENGINES = ("pretrained", "gd", "ridge", "kernel")
CATEGORIES = 20  # of a column, with an input of their own in linear models; rarer ones share one
RIDGES = tuple(10.0 ** (power / 2) for power in range(-6, 11))
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of logistic regression
LEAF = 20  # rows, of boosting; a fifth of all if that is less
TREES = 100
DECAY = 3.0  # of its weights: without it, small tables are learned by heart
LEAST_PROBABILITY = 1e-6  # a class that is thought impossible, and comes, costs no more than this says
HIDDEN = (16,)  # units of the network: those of engine gd


def objects(columns: Sequence[Sequence[Value]], rows: Sequence[int]) -> np.ndarray:
    """(rows, columns) of floats and categories, as the estimators take them. A text is a category in every part of the
    rows, even where all texts of a part look like numbers.
    """
    found = np.empty((len(rows), len(columns)), dtype=object)
    for place, values in enumerate(columns):
        known: Mapping[Value, Value] = {value: Level(value) for value in values if isinstance(value, str)}
        found[:, place] = [known.get(values[row], values[row]) if known else values[row] for row in rows]
    return found


def matrix(columns: Sequence[Sequence[Value]], plans: Sequence[Plan], rows: Sequence[int]) -> np.ndarray:
    """(rows, columns) of float64; a category is the place of its text among the levels, NaN if it is none of them."""
    found = np.empty((len(rows), len(columns)))
    for place, (values, one) in enumerate(zip(columns, plans, strict=True)):
        known: Mapping[Value, float] = {text: float(code) for code, text in enumerate(one.levels)}
        found[:, place] = [values[row] if one.numeric else known.get(values[row], np.nan) for row in rows]
    return found


@dataclass(frozen=True)
class Engine:
    """The learner, which takes ``objects``. learner: of engine pretrained, a run of one's own instead of the learner
    that comes with the package; weights: the digest of its weights.
    """

    task: Task
    engine: str = "pretrained"
    seed: int = 0
    learner: str | None = None
    weights: str | None = None

    @classmethod
    def with_learner(cls, task: Task, engine: str, seed: int, run: Path | None) -> Engine:
        """run: a folder that `innergrad train` wrote."""
        if run is None:
            return cls(task, engine, seed)
        if engine != "pretrained":
            raise InputError(
                "--learner is for engine pretrained", got=f"--engine {engine}", hint="leave out one of them"
            )
        return cls(task, engine, seed, str(run), _weights(run))

    def make(self) -> Any:
        """A fresh estimator."""
        from innergrad.estimators import InContextClassifier, InContextRegressor

        made = InContextRegressor if self.task == "numbers" else InContextClassifier
        return made(engine=self.engine, learner=self._own(), random_state=self.seed)

    def _own(self) -> Any:
        if self.learner is None:
            return None
        if _weights(Path(self.learner)) != self.weights:
            raise InputError(f"the learner in {self.learner} has changed", hint="fit the table again")
        return _learner(self.learner, self.weights)

    def settings(self) -> dict[str, Any]:
        own = {} if self.learner is None else {"learner": self.learner, "weights": self.weights}
        return {"task": self.task, "engine": self.engine, "seed": self.seed, **own}


def _weights(run: Path) -> str:
    """The digest of the newest checkpoint of a run."""
    from innergrad.lab import checkpoints

    newest = checkpoints.newest(run) if run.is_dir() else None
    if newest is None:
        allowed = "a folder written by innergrad train, with a learner of tables"
        raise InputError(f"there is no trained learner in {run}", allowed=allowed, hint="innergrad train writes one")
    return digest(newest)


@lru_cache(maxsize=2)
def _learner(run: str, weights: str | None) -> Any:
    """Once in a process, as long as the weights are the same."""
    del weights
    from innergrad.lab.training import load_learner

    return load_learner(run)[0]


@dataclass(frozen=True)
class Rival:
    """Another method: what to call it, and a fresh one that takes a ``matrix``."""

    name: str
    make: Callable[[], Any]


def rivals(task: Task, plans: Sequence[Plan], seed: int, rows: int) -> list[Rival]:
    """The mean (or the most frequent class), a linear model, a forest, boosting, a network: as people use them.

    ``rows`` teach. Boosting's own leaves have 20 rows at least: of fewer than 40 it would learn nothing.
    """
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from sklearn.linear_model import RidgeCV
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def scaled(model: Any) -> Any:
        return make_pipeline(prepared(plans), model)

    def both_scaled(model: Any) -> Any:
        return TransformedTargetRegressor(scaled(model), transformer=StandardScaler())

    texts = [place for place, one in enumerate(plans) if not one.numeric and len(one.levels) <= 255]
    boosting: dict[str, Any] = {"categorical_features": texts or None, "random_state": seed}
    boosting["min_samples_leaf"] = min(LEAF, max(2, rows // 5))
    forest: dict[str, Any] = {"n_estimators": TREES, "random_state": seed}
    network: dict[str, Any] = {"hidden_layer_sizes": HIDDEN, "activation": "tanh", "alpha": DECAY, "max_iter": 500}
    network |= {"random_state": seed}
    if task == "numbers":
        return [
            Rival("the mean", DummyRegressor),
            Rival("tuned ridge regression", lambda: both_scaled(RidgeCV(RIDGES))),
            Rival("random forest", lambda: RandomForestRegressor(**forest)),
            Rival("boosting", lambda: HistGradientBoostingRegressor(**boosting)),
            Rival("a network trained directly", lambda: both_scaled(MLPRegressor(**network))),
        ]
    return [
        Rival("the most frequent class", lambda: DummyClassifier(strategy="prior")),
        Rival("tuned logistic regression", lambda: TunedLogistic(plans, seed)),
        Rival("random forest", lambda: RandomForestClassifier(**forest)),
        Rival("boosting", lambda: HistGradientBoostingClassifier(**boosting)),
        Rival("a network trained directly", lambda: scaled(MLPClassifier(**network))),
    ]


def prepared(plans: Sequence[Plan]) -> Any:
    """The inputs of linear models and networks: missing numbers are the median, and a column says so; numbers have mean
    0 and deviation 1; a category is a column of 0 and 1.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [place for place, one in enumerate(plans) if one.numeric]
    texts = [place for place, one in enumerate(plans) if not one.numeric]
    filled = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    coded = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=CATEGORIES, sparse_output=False)
    scaled = make_pipeline(filled, StandardScaler())
    return ColumnTransformer([("numbers", scaled, numbers), ("texts", coded, texts)])


class TunedLogistic:
    """Logistic regression whose strength is chosen on a quarter of the training rows."""

    def __init__(self, plans: Sequence[Plan], seed: int) -> None:
        self.prepared, self.seed = prepared(plans), seed

    def fit(self, X: np.ndarray, y: np.ndarray) -> TunedLogistic:
        Z = self.prepared.fit_transform(X)
        order = np.random.default_rng(self.seed).permutation(len(y))
        held, kept = order[: len(y) // 4], order[len(y) // 4 :]
        able = len(held) > 0 and len(set(y[kept])) > 1
        losses = {strength: self._loss(strength, Z, y, kept, held) for strength in STRENGTHS} if able else {1.0: 0.0}
        self.model = _logistic(min(losses, key=lambda strength: losses[strength])).fit(Z, y)
        self.classes_ = self.model.classes_
        return self

    def _loss(self, strength: float, Z: np.ndarray, y: np.ndarray, kept: np.ndarray, held: np.ndarray) -> float:
        found = _logistic(strength).fit(Z[kept], y[kept])
        places = {label: place for place, label in enumerate(found.classes_)}
        rows = zip(found.predict_proba(Z[held]), y[held], strict=True)
        right = [row[places[label]] if label in places else 0.0 for row, label in rows]
        return -float(np.log(np.clip(right, LEAST_PROBABILITY, 1.0)).mean())

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict_proba(self.prepared.transform(X)))


def _logistic(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=300)
