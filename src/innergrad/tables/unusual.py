"""What is to be said of rows before their predictions are believed: far from what was learned, empty, known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from innergrad.errors import plural
from innergrad.tables import words
from innergrad.tables.fitted import Fitted
from innergrad.tables.new_rows import NewRows
from innergrad.tables.sheets import lines_words
from innergrad.tables.table import are_varied, row_keys
from innergrad.written import Plan, Value, absent, span


def notes(model: Fitted, new: NewRows, matters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences about rows that are to be predicted. matters: the columns, with how far the score falls without."""
    some = [one["column"] for one in words.important(matters)]
    told = [
        _outside(one, known, values, new)
        for one, known, values in zip(model.used, model.columns, new.columns, strict=True)
        if one.name in some and one.kind in ("numbers", "dates", "times")
    ]
    return [*filter(None, told), *_empty(new)]


def _outside(one: Plan, known: Sequence[Value], values: Sequence[Value], new: NewRows) -> str:
    taught = [value for value in known if isinstance(value, float) and not math.isnan(value)]
    low, high = min(taught), max(taught)
    rows = [row for row in new.places if not absent(values[row]) and not low <= float(values[row] or 0.0) <= high]
    if not rows:
        return ""
    where = lines_words([new.sheet.lines[row] for row in rows])
    lie, ends = "row lies" if len(rows) == 1 else "rows lie", span(low, high, one).removeprefix("from ")
    return (
        f"column {one.name!r}: {len(rows):,} {lie} outside the range of the rows that taught, "
        f"{ends} ({where}): predictions there go beyond what was learned, and intervals may be too narrow"
    )


def _empty(new: NewRows) -> list[str]:
    rows = [row for row in new.places if all(absent(values[row]) for values in new.columns)]
    if not rows:
        return []
    have = "has" if len(rows) == 1 else "have"
    where = lines_words([new.sheet.lines[row] for row in rows])
    return [f"{plural(len(rows), 'row')} {have} no cell that was learned from ({where}): nothing tells its target"]


def taught(model: Fitted, new: NewRows) -> int:
    """How many of the rows whose target is known are among those that taught."""
    if new.truth is None or not are_varied(model.used, model.columns):
        return 0
    known = set(row_keys([*model.columns, model.y], range(len(model.y))))
    rows = [row for row, value in enumerate(new.truth) if value is not None]
    return sum(key in known for key in row_keys([*new.columns, new.truth], rows))
