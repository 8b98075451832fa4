"""Columns of a table as numbers: transformers see nothing else.

A cell is a number, a category (0, 1, 2 ... in the order of the sorted texts), a date (days since 1970) or missing
(NaN). Text may have numbers with units, and dates as people write them: it is read as ``innergrad fit`` reads a file
(:mod:`innergrad.written`). Columns that cannot help are left out: empty, constant, a copy of another one, or text that
differs in almost every row. Everything is learned from the training rows, and is the same for any order of them.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from innergrad.errors import LARGEST, plural, shortened
from innergrad.estimators.cells import (
    NO_VALUE,
    NUMBER,
    Level,
    Values,
    days,
    finite,
    floats,
    is_number,
    iso_date,
    missing,
    named,
    texts,
)
from innergrad.written import (
    Plan,
    answer,
    answers,
    are_compact_days,
    day_of,
    hour_of,
    is_missing,
    mixture,
    number_alone,
    parsed,
    plan,
    scales,
)
from innergrad.written.dates import MONTH_AND_YEAR

Kind = Literal["number", "yes/no", "category", "date", "text", "constant", "copy", "empty"]

USED: tuple[Kind, ...] = ("number", "yes/no", "category", "date")
MOST_LEVELS = 64  # categories of a column with a number of their own; rarer ones share the last
FEW, SHARE = 20, 0.5  # text is left out if it has more than so many values, and more than this share of the rows
CODE = re.compile(r"0\d+\Z")  # 007 is the name of something


@dataclass(frozen=True)
class Column:
    """What was done with a column of the table, in words.

    Attributes:
        name: as the table has it, or ``column 3`` where it has no names.
        kind: ``number``, ``yes/no``, ``category``, ``date``; or, of a column that is left out, ``text``, ``constant``,
            ``copy``, ``empty``.
        words: one phrase about it.

    Examples:
        >>> from innergrad.estimators import Column
        >>> Column("age", "number", "numbers, 3 of 50 missing").used
        True
    """

    name: str
    kind: Kind
    words: str

    @property
    def used(self) -> bool:
        """Whether predictions are made from it."""
        return self.kind in USED


@dataclass(frozen=True)
class Coding:
    """How the cells of a column become numbers; place: in the table. levels: the number of each category's text.
    yes_no: those of no and of yes, where the texts are spellings of these; others are read, too. plan: of text with
    units, or with dates of other forms than 2024-05-31; what it cannot read is missing.
    """

    column: Column
    place: int
    levels: dict[str, int] | None = None
    plan: Plan | None = None
    yes_no: tuple[int, int] | None = None

    def numbers(self, values: Values) -> np.ndarray:
        """(n,) float64; NaN where a cell is missing, or is a category that no training row has."""
        if self.levels is not None:
            codes = [np.nan if text is None else self.levels.get(text, self._meant(text)) for text in texts(values)]
            return np.array(codes, dtype=np.float64)
        if self.plan is not None:
            return np.array([self._read(text) for text in texts(values)], dtype=np.float64)
        if self.column.kind == "date":
            return days(values, self.column.name)
        return finite(floats(values, self.column.name), self.column.name)

    def _meant(self, text: str) -> float:
        """The category of a text that no training row has."""
        found = answer(text) if self.yes_no is not None else None
        return np.nan if found is None or self.yes_no is None else self.yes_no[int(found)]

    def unread(self, values: Values) -> list[str]:
        """Cells of a column with a plan that are there, and cannot be read."""
        if self.plan is None:
            return []
        return [text for text in texts(values) if text and not is_missing(text) and np.isnan(self._read(text))]

    def assumed(self, values: Values) -> list[str]:
        """Cells without a unit, where the unit of the training rows is a multiple, $ k or %, and so says how they are
        read.
        """
        if self.plan is None or self.plan.kind != "numbers" or not scales(self.plan.unit):
            return []
        return [text for text in texts(values) if text and (found := parsed(text, self.plan.decimal)) and not found[1]]

    def _read(self, text: str | None) -> float:
        """A cell by itself: others in the same call have no say."""
        assert self.plan is not None
        if text is None or is_missing(text):
            return np.nan
        if self.plan.kind == "numbers":
            found = number_alone(text, self.plan.decimal, self.plan.unit)
        else:
            found = (day_of if self.plan.kind == "dates" else hour_of)(text, self.plan.day_first)
        return np.nan if found is None or not abs(found) < LARGEST else found


@dataclass(frozen=True)
class Columns:
    """All columns of a table. ``codings`` has those that are used."""

    columns: tuple[Column, ...]
    codings: tuple[Coding, ...]

    @classmethod
    def learn(cls, table: Sequence[Values], names: Sequence[str]) -> Columns:
        """From the training rows, column by column."""
        codings = [_learn(values, name, place) for place, (values, name) in enumerate(zip(table, names, strict=True))]
        codings = _without_copies(table, codings)
        return cls(tuple(one.column for one in codings), tuple(one for one in codings if one.column.used))

    @property
    def levels(self) -> tuple[int, ...]:
        """Of every used column the number of its categories; 0 for numbers."""
        return tuple(0 if one.levels is None else 1 + max(one.levels.values()) for one in self.codings)

    def doubts(self, table: Sequence[Values]) -> list[str]:
        """Sentences on cells that count as missing, because they cannot be read, and on those whose unit is assumed."""
        assumed = [(one, one.assumed(table[one.place])) for one in self.codings]
        told = [
            f"{named(one.column.name)} has {plural(len(cells), 'cell')} without the unit of the training rows, such as "
            f"{shortened(cells[0], 30)!r}: the unit {one.plan.unit!r} is assumed"
            for one, cells in assumed
            if cells and one.plan is not None
        ]
        found = [(one.column, one.unread(table[one.place])) for one in self.codings]
        return told + [
            f"{named(column.name)} has {plural(len(cells), 'cell')} that cannot be read as in the training rows, such "
            f"as {shortened(cells[0], 30)!r} (there: {column.words}): taken as missing"
            for column, cells in found
            if cells
        ]

    def matrix(self, table: Sequence[Values]) -> np.ndarray:
        """(rows, used columns), float64."""
        rows = len(table[0])
        found = [coding.numbers(table[coding.place]) for coding in self.codings]
        return np.column_stack(found) if found else np.empty((rows, 0))


def _learn(values: Values, name: str, place: int) -> Coding:
    kind, read = _kind(values)
    if kind == "empty":
        return Coding(Column(name, "empty", "every cell is missing: left out"), place)
    if kind == "category":
        return _written(values, name, place) or _category(values, name, place)
    coding = Coding(Column(name, kind, ""), place)
    found = coding.numbers(values)
    seen = found[~np.isnan(found)]
    if len(np.unique(seen)) == 1 and len(seen) == len(found):
        return Coding(Column(name, "constant", "the same value in every row: left out"), place)
    return Coding(Column(name, kind, read + _lacking(len(found) - len(seen), len(found))), place)


def _kind(values: Values) -> tuple[Kind, str]:
    """Of a column, and how its cells were read."""
    if values.dtype.kind == "f":
        return ("empty", "") if np.isnan(values).all() else ("number", "numbers")
    if values.dtype.kind in "Mm":
        read = "dates, as days since 1970" if values.dtype.kind == "M" else "durations, as days"
        return ("empty", "") if np.isnat(values).all() else ("date", read)
    seen = [value for value in values if not missing(value)]
    if not seen:
        return "empty", ""
    if all(isinstance(value, bool | np.bool_) for value in seen):
        return "yes/no", "yes and no, as 1 and 0"
    if all(is_number(value) for value in seen):
        return "number", "numbers"
    if all(isinstance(value, datetime.date | np.datetime64) for value in seen):
        return "date", "dates, as days since 1970"
    if all(isinstance(value, str) and not isinstance(value, Level) for value in seen):
        return _kind_of_text([value.strip() for value in seen])
    return "category", ""


def _kind_of_text(seen: list[str]) -> tuple[Kind, str]:
    told = [text for text in seen if text.casefold() not in NO_VALUE]
    if len(set(told)) > 1 and all(MONTH_AND_YEAR.fullmatch(text) for text in told):
        return "category", ""  # 06.2014 is a date
    if are_compact_days(told):
        return "category", ""  # 20240131, too
    if told and all(NUMBER.match(text) for text in told) and not any(CODE.match(text) for text in told):
        return "number", "text that reads as numbers"
    if told and all(iso_date(text) is not None for text in told):
        return "date", "text that reads as dates, as days since 1970"
    return "category", ""


def _written(values: Values, name: str, place: int) -> Coding | None:
    """Of text that is numbers with units, or dates or times as people write them; None of anything else."""
    if any(isinstance(value, Level) or not (missing(value) or isinstance(value, str)) for value in values):
        return None
    found = plan(name, [text or "" for text in texts(values)])
    kinds: dict[str, Kind] = {"numbers": "number", "dates": "date", "times": "number"}
    if found.kind not in kinds:
        return None
    return Coding(Column(name, kinds[found.kind], found.words), place, plan=found)


def _category(values: Values, name: str, place: int) -> Coding:
    counts = Counter(text for text in texts(values) if text is not None)
    rows, seen = len(values), sum(counts.values())
    if len(counts) == 1 and seen == rows:
        return Coding(Column(name, "constant", "the same value in every row: left out"), place)
    if len(counts) > max(FEW, SHARE * seen):
        words = f"text with {len(counts):,} different values in {plural(seen, 'row')}: left out"
        words += f"; {why}" if (why := mixture(counts)) else ""
        return Coding(Column(name, "text", words), place)
    spelt = answers(counts) if len(counts) > 1 else None
    if spelt is not None and len(counts) > 2 and not any(isinstance(value, Level) for value in values):
        levels = {text: int(answer(text) or 0.0) for text in counts}
        words = f"yes and no, written in {len(counts)} ways" + _lacking(rows - seen, rows)
        return Coding(Column(name, "category", words), place, levels, yes_no=(0, 1))
    frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_LEVELS]
    order = {text: number for number, text in enumerate(sorted(frequent))}
    levels = {text: order.get(text, MOST_LEVELS) for text in counts}
    words = "1 category" if len(counts) == 1 else f"{len(counts):,} categories"
    if len(counts) > MOST_LEVELS:
        words += f", of which all but the {MOST_LEVELS} most frequent count as one"
    both = {answer(text): number for text, number in levels.items()} if spelt is not None and len(levels) == 2 else {}
    yes_no = (both[0.0], both[1.0]) if both.keys() == {0.0, 1.0} else None
    return Coding(Column(name, "category", words + _lacking(rows - seen, rows)), place, levels, yes_no=yes_no)


def _lacking(missing: int, rows: int) -> str:
    return f", {missing:,} of {rows:,} missing" if missing else ""


def _without_copies(table: Sequence[Values], codings: list[Coding]) -> list[Coding]:
    """The same, where a column whose numbers are those of an earlier one is left out."""
    first: dict[bytes, str] = {}
    kept = []
    for coding in codings:
        name = coding.column.name
        if coding.column.used:
            content = (coding.numbers(table[coding.place]) + 0.0).tobytes()  # -0.0 is 0.0
            if content in first:
                coding = Coding(Column(name, "copy", f"a copy of {named(first[content])}: left out"), coding.place)
            else:
                first[content] = name
        kept.append(coding)
    return kept
