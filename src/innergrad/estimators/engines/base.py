"""What an engine is: it learns from a table of numbers, and answers for other rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from innergrad.estimators.design import Design, Scale
from innergrad.estimators.held_out import MOST, HeldOut, by_lacking, residual_quantiles, some


@dataclass(frozen=True)
class Table:
    """Rows to learn from.

    values (n, d): cells, NaN where missing, categories as whole numbers. levels (d,): how many categories a column has,
    0 for numbers. y (n,): numbers, or the numbers of classes. classes: how many; 0 for numbers. scores (d,): the
    relevance of every column, from the highest to the lowest.
    """

    values: np.ndarray
    levels: tuple[int, ...]
    y: np.ndarray
    classes: int
    scores: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, which: np.ndarray) -> Table:
        return replace(self, values=self.values[which], y=self.y[which])


@dataclass(frozen=True)
class Numbers:
    """Predicted labels: mean and std (m,), quantiles (m, len(q))."""

    mean: np.ndarray
    std: np.ndarray
    quantiles: np.ndarray


class Engine(ABC):
    """A way to learn from a table."""

    notes: list[str]

    @abstractmethod
    def fit(self, table: Table) -> None: ...

    @abstractmethod
    def numbers(self, values: np.ndarray, q: Sequence[float]) -> Numbers: ...

    def means(self, values: np.ndarray) -> np.ndarray:
        """(m,): the same, where nobody asks how sure they are."""
        return self.numbers(values, ()).mean

    @abstractmethod
    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """(m, classes), rows that sum to one."""


@dataclass
class Same(Engine):
    """The same answer for every row: where no column, or no label, says more."""

    notes: list[str] = field(default_factory=list)

    def fit(self, table: Table) -> None:
        self.y, self.classes = table.y, table.classes

    def numbers(self, values: np.ndarray, q: Sequence[float]) -> Numbers:
        m, mean = len(values), float(self.y.mean())
        quantiles = np.quantile(self.y, q) if len(q) else np.empty(0)
        return Numbers(np.full(m, mean), np.full(m, float(self.y.std())), np.tile(quantiles, (m, 1)))

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        return np.tile(np.bincount(self.y, minlength=self.classes) / len(self.y), (len(values), 1))


@dataclass
class Compiled(Engine):
    """An engine that runs a compiled algorithm: on scaled numbers, with settings chosen on held-out rows.

    A subclass has ``choose``, ``apart``, ``learn`` and ``apply``.
    """

    seed: int = 0
    notes: list[str] = field(default_factory=list)

    def fit(self, table: Table) -> None:
        self.design = Design.learn(table.values, table.levels)
        self.classes = table.classes
        Z = self.design(table.values)
        if table.classes:
            Y = np.eye(table.classes)[table.y]
            self.floor = 0.5 / len(table)
        else:
            self.scale = Scale.of(table.y)
            Y = self.scale.there(table.y)[:, None]
        rows, part = self.choose(Z, Y)
        if not table.classes:
            kept = some(len(rows), MOST, self.seed)
            cells, labels = table.values[rows[kept]], table.y[rows[kept]]
            self.held_out = HeldOut(cells, labels, part[kept], np.maximum(table.scores, 0.0))
        self.learn(Z, Y)

    @abstractmethod
    def choose(self, Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sets the settings; returns the rows that it tried them on, and the part that each was held out in. Y has
        numbers near one, or 0 and 1 for each class.
        """

    @abstractmethod
    def apart(self, part: int, Z: np.ndarray) -> np.ndarray:
        """(m, outputs): predictions by what was learned, with the chosen settings, without a part of the rows."""

    @abstractmethod
    def learn(self, Z: np.ndarray, Y: np.ndarray) -> None:
        """Runs the transformer on all rows."""

    @abstractmethod
    def apply(self, Z: np.ndarray) -> np.ndarray:
        """(m, outputs): predictions; of classes probabilities, or numbers near them."""

    def means(self, values: np.ndarray) -> np.ndarray:
        return self.scale.back(self.apply(self.design(values))[:, 0])

    def numbers(self, values: np.ndarray, q: Sequence[float]) -> Numbers:
        """Quantiles are those of the residuals of held-out rows that lack the same cells."""
        mean, std, quantiles = self.means(values), np.empty(len(values)), np.empty((len(values), len(q)))
        for lacks, rows in by_lacking(values):
            residuals = self._residuals(lacks)
            std[rows] = np.sqrt(np.mean(residuals**2))
            quantiles[rows] = mean[rows, None] + residual_quantiles(residuals, q)
        return Numbers(mean, std, quantiles)

    def _residuals(self, lacks: np.ndarray) -> np.ndarray:
        rows = self.held_out.lacking(lacks)
        Z, found = self.design(rows.cells), np.empty(len(rows.y))
        for part in np.unique(rows.part):
            held = rows.part == part
            found[held] = self.scale.back(self.apart(int(part), Z[held])[:, 0])
        return rows.y - found

    def __getstate__(self) -> dict[str, Any]:
        """Numbers and settings. Transformers and certificates are made again where they are asked for."""
        made = {
            name for kind in type(self).__mro__ for name, it in vars(kind).items() if isinstance(it, cached_property)
        }
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        """Clipped to what as many rows can tell from 0, and normalised."""
        found = np.clip(self.apply(self.design(values)), self.floor, 1.0)
        normalised: np.ndarray = found / found.sum(1, keepdims=True)
        return normalised
