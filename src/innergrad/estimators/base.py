"""Both estimators: fit and answer, by one of four engines."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
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
from innergrad.estimators.order import order_of_columns, order_of_rows, ranks, relevance, without_names
from innergrad.evidence.certificate import Certificate

ENGINES = ("pretrained", "gd", "ridge", "kernel")


@dataclass(frozen=True)
class Fit:
    """How one label is predicted: by an engine, from the used columns in the engine's order."""

    engine: Engine
    order: np.ndarray

    def values(self, values: np.ndarray) -> np.ndarray:
        """The used columns (m, d), as the engine takes them."""
        found: np.ndarray = values[:, self.order]
        return found


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """None, and generators, as scikit-learn takes them: another seed each time."""
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    return integer("random_state", random_state, low=0, high=2**32 - 1)


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

    def _fit(self, table: list[Values], labels: Sequence[np.ndarray], classes: int, names: Sequence[str] = ()) -> None:
        """labels: of every label, if there are several, its numbers, or the numbers of its classes; names: theirs."""
        self._columns = Columns.learn(table, names_of(self))
        values = self._columns.matrix(table)
        self._fits = [self._learn(values, y, classes) for y in labels]
        self.columns_ = list(self._columns.columns)
        notes = [list(fit.engine.notes) for fit in self._fits]
        if len(labels) > 1:
            notes = [[f"{name}: {note}" for note in each] for name, each in zip(names, notes, strict=True)]
        unread = [column for column in self.columns_ if column.kind == "text" and not column.used]
        hint = "if it has something to learn from, make numbers or categories of it"
        texts = [f"column {one.name!r}: {one.words}; {hint}" for one in unread]
        self.notes_ = [*texts, *(note for each in notes for note in each)]

    def _learn(self, values: np.ndarray, y: np.ndarray, classes: int) -> Fit:
        """One label, from the used columns."""
        levels, labels = self._columns.levels, np.eye(classes)[y] if classes else ranks(y)
        scores = [relevance(column, labels, count) for column, count in zip(values.T, levels, strict=True)]
        order = order_of_columns(scores, values)
        values, levels = values[:, order], tuple(levels[j] for j in order)
        rows = order_of_rows(values, without_names(y, values) if classes else y)
        learned = Table(values[rows], levels, y[rows], classes, tuple(scores[j] for j in order))
        engine = self._choose(learned)
        engine.fit(learned)
        return Fit(engine, order)

    def _choose(self, table: Table) -> Engine:
        one_of("unknown engine", self.engine, ENGINES)
        seed = seed_of(self.random_state)
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
        """(m, used columns)."""
        check_is_fitted(self)
        table = table_of(self, X, reset=False)
        for sentence in self._columns.doubts(table):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return self._columns.matrix(table)

    @property
    def certificate_(self) -> Certificate:
        """A bound on the error of the run that learned, of ``engine="gd"`` and one label. It is made when it is asked
        for, which takes much longer than the run.
        """
        return self._descent("certificate_").certificate

    @property
    def loss_curve_(self) -> np.ndarray:
        """The loss on the training rows before the first step and after every one, of ``engine="gd"`` and one label."""
        return self._descent("loss_curve_").loss_curve

    def _descent(self, name: str) -> Descent:
        fits: list[Fit] = self.__dict__.get("_fits", [])
        if len(fits) > 1:
            raise AttributeError(f"{name} is there after fit with one label; these are {len(fits)}: fit one by one")
        if not fits or not isinstance(fits[0].engine, Descent):
            raise AttributeError(f"{name} is there after fit with engine='gd'; this engine is {self.engine!r}")
        return fits[0].engine


def _sizes(hidden: object) -> tuple[int, ...]:
    if not isinstance(hidden, Iterable) or isinstance(hidden, str):
        raise InputError("hidden has the size of every hidden layer", got=repr(hidden), allowed="such as (16,)")
    return tuple(integer("each of the hidden sizes", size) for size in hidden)
