"""What is to be said of rows before their predictions are believed: far from what was learned, empty, known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from innergrad.errors import plural, readable
from innergrad.tables import words
from innergrad.tables.fitted import Fitted, Predictions
from innergrad.tables.new_rows import NewRows
from innergrad.tables.sheets import lines_words
from innergrad.tables.table import are_varied, row_keys
from innergrad.written import Plan, Value, absent, number_alone, span

MIDDLE = 0.9  # of the rows that taught: their range without the ends
MOST = 0.5  # of the cells: so many lie outside where a mark is misread


def notes(model: Fitted, new: NewRows, matters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about rows that are to be predicted. matters: the columns, with how far the score falls without."""
    some, told = [one["column"] for one in words.important(matters)], list[str]()
    for one, known, values in zip(model.used, model.columns, new.columns, strict=True):
        doubted = _other_mark(one, known, values, new) if one.kind == "numbers" else ""
        if not doubted and one.name in some and one.kind in ("numbers", "dates", "times"):
            doubted = _outside(one, known, values, new)
        told += [doubted] if doubted else []
    return [*told, *_empty(new)]


def _other_mark(one: Plan, known: Sequence[Value], values: Sequence[Value], new: NewRows) -> str:
    """Where numbers that lie outside the range of those that taught lie within by the other mark of fractions, all of
    them, and are most: 41.097, where 41,097 taught. The range within which they must lie is that of nine tenths of what
    taught: one odd row would make it so wide that many numbers are within by chance.
    """
    place = new.sheet.place(one.name)
    taught = sorted(value for value in known if isinstance(value, float) and not math.isnan(value))
    if place is None or not taught:
        return ""
    low, high = taught[int((1 - MIDDLE) / 2 * len(taught))], taught[-1 - int((1 - MIDDLE) / 2 * len(taught))]
    given = [row for row in new.places if not absent(values[row])]
    far = [row for row in given if not taught[0] <= float(values[row] or 0.0) <= taught[-1]]
    if len(far) < MOST * len(given) or not far:
        return ""
    texts = [new.sheet.rows[row][place].strip() for row in far]
    for mark in ".,":
        read = [number_alone(text, mark, one.unit) for text in texts]
        if all(found is not None and low <= found <= high for found in read):
            here, there = readable(float(values[far[0]] or 0.0)), readable(read[0] or 0.0)
            where = lines_words([new.sheet.lines[row] for row in far])
            return (
                f"column {one.name!r}: {texts[0]!r} is read as {here}, outside the range of the rows that taught "
                f"({where}); by the other decimal mark it would be {there}, within it: write numbers as in these rows"
            )
    return ""


def _outside(one: Plan, known: Sequence[Value], values: Sequence[Value], new: NewRows) -> str:
    taught = [value for value in known if isinstance(value, float) and not math.isnan(value)]
    low, high = min(taught), max(taught)
    rows = [row for row in new.places if not absent(values[row]) and not low <= float(values[row] or 0.0) <= high]
    if not rows:
        return ""
    where = lines_words([new.sheet.lines[row] for row in rows])
    lie, ends = "row lies" if len(rows) == 1 else "rows lie", span(low, high, one).removeprefix("from ")
    return (
        f"column {one.name!r}: {len(rows):,} {lie} outside the range of the rows that taught, {ends} ({where}): "
        "predictions there go beyond what was learned, and intervals may be too narrow"
    )


def _empty(new: NewRows) -> list[str]:
    rows = [row for row in new.places if all(absent(values[row]) for values in new.columns)]
    if not rows:
        return []
    have = "has" if len(rows) == 1 else "have"
    where = lines_words([new.sheet.lines[row] for row in rows])
    return [f"{plural(len(rows), 'row')} {have} no cell that was learned from ({where}): nothing tells its target"]


def beyond(model: Fitted, predictions: Predictions, new: NewRows) -> list[str]:
    """Predicted amounts that need a word: below zero, where none that is known is; not between their own ends."""
    if predictions.ends is None or predictions.target.kind == "dates":
        return []
    values, (low, high), told = predictions.values, predictions.ends.T, list[str]()

    def where(rows: np.ndarray) -> str:
        return lines_words([new.sheet.lines[new.places[row]] for row in np.flatnonzero(rows)])

    if (below := values < 0.0).any() and min(float(one or 0.0) for one in model.y) >= 0.0:
        none = f"no {model.target.name!r} that is known is"
        told.append(f"{plural(int(below.sum()), 'prediction')} below zero, though {none} ({where(below)})")
    if (apart := (values < low) | (values > high)).any():
        few = "1 prediction is" if apart.sum() == 1 else f"{apart.sum():,} predictions are"
        told.append(
            f"{few} not between low and high ({where(apart)}): a prediction is the mean of all that is likely, and a "
            "long tail moves it"
        )
    return told


def taught(model: Fitted, new: NewRows) -> int:
    """How many of the rows whose target is known are among those that taught."""
    if new.truth is None or not are_varied(model.used, model.columns):
        return 0
    known = set(row_keys([*model.columns, model.y], range(len(model.y))))
    rows = [row for row, value in enumerate(new.truth) if value is not None]
    return sum(key in known for key in row_keys([*new.columns, new.truth], rows))
