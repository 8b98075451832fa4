"""Inputs of the compiled engines: numbers near one, none missing, categories as columns of 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EPS = float(np.finfo(np.float64).eps)
MOST_COLUMNS = 20  # of 0 and 1 for one column of categories: its most frequent ones


@dataclass(frozen=True)
class Scale:
    """values = unit (mean + std z). The unit is the largest absolute value, so that no square overflows or vanishes.
    Values that do not vary keep their unit.
    """

    mean: float = 0.0
    std: float = 1.0
    unit: float = 1.0

    @classmethod
    def of(cls, values: np.ndarray) -> Scale:
        """Mean 0 and standard deviation 1 for the values that are there."""
        seen = values[~np.isnan(values)]
        unit = float(np.abs(seen).max()) if len(seen) else 0.0
        if unit == 0.0:
            return cls()
        mean, std = float((seen / unit).mean()), float((seen / unit).std())
        return cls(mean, std if std > 4 * EPS else 1.0, unit)

    def there(self, values: np.ndarray) -> np.ndarray:
        return (values / self.unit - self.mean) / self.std

    def back(self, z: np.ndarray) -> np.ndarray:
        return (z * self.std + self.mean) * self.unit

    def spread(self, z: np.ndarray) -> np.ndarray:
        """Differences of z, as differences of values."""
        return z * self.std * self.unit


@dataclass(frozen=True)
class Design:
    """Columns of the prompt, each from one column of the table: a number, a category, or "missing".

    parts: (column of the table, category or None for the number itself, or -1 for "missing"), and the scale of each.
    """

    parts: tuple[tuple[int, int | None], ...]
    scales: tuple[Scale, ...]

    @classmethod
    def learn(cls, values: np.ndarray, levels: tuple[int, ...]) -> Design:
        parts: list[tuple[int, int | None]] = []
        for j, count in enumerate(levels):
            column = values[:, j]
            missing = bool(np.isnan(column).any())
            if count:
                sizes = np.bincount(column[~np.isnan(column)].astype(int), minlength=count)
                frequent = np.argsort(-sizes, kind="stable")[:MOST_COLUMNS]
                parts += [(j, int(level)) for level in frequent if sizes[level]]
            else:
                parts.append((j, None))
            parts += [(j, -1)] if missing else []
        return cls(tuple(parts), tuple(Scale.of(_part(values, *part)) for part in parts))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """(n, parts), with mean 0 and standard deviation 1 on the training rows; a missing number is the mean."""
        if not self.parts:
            return np.zeros((len(values), 0))
        columns = [scale.there(_part(values, *part)) for part, scale in zip(self.parts, self.scales, strict=True)]
        return np.asarray(np.nan_to_num(np.column_stack(columns), nan=0.0))


def _part(values: np.ndarray, column: int, level: int | None) -> np.ndarray:
    found = values[:, column]
    if level is None:
        return found
    return np.asarray(np.isnan(found) if level < 0 else found == level, dtype=np.float64)
