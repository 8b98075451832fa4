"""Both estimators: fit and answer, by one of four engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from innergrad.errors import InputError, integer, one_of
from innergrad.estimators.cells import Values
from innergrad.estimators.columns import Column, Columns
from innergrad.estimators.engines.base import Engine, Same, Table
from innergrad.estimators.engines.descent import Descent
from innergrad.estimators.engines.kernel import FunctionalDescent
from innergrad.estimators.engines.pretrained import Pretrained
from innergrad.estimators.engines.ridge import Ridge
from innergrad.estimators.inputs import names_of, table_of
from innergrad.estimators.order import order_of_columns, order_of_rows, ranks, relevance
from innergrad.evidence.certificate import Certificate

ENGINES = ("pretrained", "gd", "ridge", "kernel")


class InContext(BaseEstimator):  # type: ignore[misc]
    """Shared by regressor and classifier, whose parameters it reads."""

    _LEARNER = ""  # the name in the zoo

    engine: str
    columns_: list[Column]
    notes_: list[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def _fit(self, table: list[Values], y: np.ndarray, classes: int) -> None:
        """y: numbers, or the numbers of classes."""
        self._columns = Columns.learn(table, names_of(self))
        values, levels = self._columns.matrix(table), self._columns.levels
        labels = np.eye(classes)[y] if classes else ranks(y)
        scores = [relevance(column, labels, count) for column, count in zip(values.T, levels, strict=True)]
        self._order = order_of_columns(scores, values)
        values, levels = values[:, self._order], tuple(levels[j] for j in self._order)
        rows = order_of_rows(values, y)
        learned = Table(values[rows], levels, y[rows], classes, tuple(scores[j] for j in self._order))
        self._engine = self._choose(learned)
        self._engine.fit(learned)
        self.columns_, self.notes_ = list(self._columns.columns), list(self._engine.notes)

    def _choose(self, table: Table) -> Engine:
        one_of("unknown engine", self.engine, ENGINES)
        seed = integer("random_state", self.random_state, low=0, high=2**32 - 1)
        if not table.values.shape[1]:
            return Same(["no column can be used: every row gets the same answer"])
        if len(np.unique(table.y)) == 1:
            return Same(["all labels are equal: so are all answers"])
        if self.engine == "ridge":
            return Ridge(seed)
        if self.engine == "kernel":
            return FunctionalDescent(seed)
        if self.engine == "gd":
            return Descent(seed, hidden=_sizes(self.hidden), most_steps=integer("steps", self.steps))
        return self._pretrained(seed)

    def _pretrained(self, seed: int) -> Pretrained:
        settings = {name: getattr(self, name) for name in ("n_estimators", "max_rows", "contexts")}
        if isinstance(self.learner, str):
            return Pretrained(self.learner, None, **settings, seed=seed)
        return Pretrained(self._LEARNER, self.learner, **settings, seed=seed)

    def _values(self, X: Any) -> np.ndarray:
        """(m, used columns) in the engine's order."""
        check_is_fitted(self)
        table = table_of(self, X, reset=False)
        found: np.ndarray = self._columns.matrix(table)[:, self._order]
        return found

    @property
    def certificate_(self) -> Certificate:
        """A bound on the error of the run that learned, of ``engine="gd"``. It is made when it is asked for, which
        takes much longer than the run.
        """
        return self._descent("certificate_").certificate

    @property
    def loss_curve_(self) -> np.ndarray:
        """The loss on the training rows before the first step and after every one, of ``engine="gd"``."""
        return self._descent("loss_curve_").loss_curve

    def _descent(self, name: str) -> Descent:
        engine = self.__dict__.get("_engine")
        if not isinstance(engine, Descent):
            raise AttributeError(f"{name} is there after fit with engine='gd'; this engine is {self.engine!r}")
        return engine


def _sizes(hidden: object) -> tuple[int, ...]:
    if not isinstance(hidden, Iterable) or isinstance(hidden, str):
        raise InputError("hidden has the size of every hidden layer", got=repr(hidden), allowed="such as (16,)")
    return tuple(integer("each of the hidden sizes", size) for size in hidden)
