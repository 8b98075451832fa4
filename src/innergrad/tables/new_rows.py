"""Rows to predict: those of the file that taught whose target is empty, or those of another file.

Another file is read by the plans of the first. It may have other marks and units, and dates in another order: what its
own cells show counts, and what was learned where they show nothing. Whatever differs is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from innergrad.errors import InputError, plural, shortened
from innergrad.tables.sheets import Sheet, lines_words, read_sheet
from innergrad.tables.table import QUERIES, Table, labels_of, near_name
from innergrad.written import (
    Plan,
    Task,
    Value,
    absent,
    dates_of,
    day_of,
    day_words,
    decimal_mark,
    is_missing,
    numbers_of,
    unit_of_others,
)
from innergrad.written.dates import either_way, short_year
from innergrad.written.numbers import own_mark
from innergrad.written.plans import EITHER, SHORT


@dataclass(frozen=True)
class NewRows:
    """Rows to predict. columns: values by the plans that are used. truth: the target of each, where the file has it.
    places: of the rows in the sheet. decimal: the mark of fractions there.
    """

    sheet: Sheet
    columns: list[list[Value]]
    truth: list[Value] | None
    notes: list[str]
    places: tuple[int, ...]
    decimal: str = "."


def without_target(table: Table) -> NewRows:
    """The rows of a file that taught whose target is empty."""
    return NewRows(table.sheet, table.columns, None, [], tuple(table.queries), table.decimal)


def read_new(path: Path, plans: Sequence[Plan], target: Plan, task: Task, classes: Sequence[str] = ()) -> NewRows:
    """The rows of another file, whose columns have the same names. classes: as the first file writes them."""
    sheet = read_sheet(path, most=QUERIES + 1)
    if sheet.total > QUERIES:
        raise InputError(
            f"{path} has too many rows", got=f"{sheet.total:,}", allowed=f"at most {QUERIES:,}", hint="split the file"
        )
    used = [one for one in plans if one.used]
    places = [sheet.place(one.name) for one in used]
    missing = [one.name for one, place in zip(used, places, strict=True) if place is None]
    if missing:
        hint = "it needs the columns that were learned from; empty cells are allowed"
        raise InputError(
            f"{path} lacks {'columns' if len(missing) > 1 else 'a column'}",
            got=f"no {', '.join(map(repr, missing))}",
            allowed=", ".join(one.name for one in used),
            hint=sheet.doubt or near_name(missing[0], sheet.header) or hint,
        )
    cells = (sheet.column(one) for one in range(len(sheet.header)))
    marks = [one.decimal for one in (*used, target) if one.kind == "numbers" and one.marked]
    decimal = decimal_mark(cells, sheet.separator, marks[0] if marks else None)
    columns, notes = list[list[Value]](), list(sheet.notes)
    for one, place in zip(used, places, strict=True):
        values, said = _new_values(sheet, one, sheet.column(place or 0), decimal)
        columns.append(values)
        notes += said
    truth, said = _truth(sheet, target, task, decimal, classes)
    return NewRows(sheet, columns, truth, [*notes, *said], tuple(range(len(sheet.rows))), decimal)


def _new_values(sheet: Sheet, one: Plan, cells: Sequence[str], decimal: str) -> tuple[list[Value], list[str]]:
    """Read as the column of the first file was, with the marks of this one."""
    noted = ""
    if one.kind == "numbers":
        one, noted = _numbers_here(one, cells, decimal)
    elif one.kind == "dates":
        one, noted = _dates_here(one, cells)
    values, strange = one.values(cells)
    given = sum(not is_missing(text) for text in cells)
    if strange and given == sum(text.strip() in set(strange) for text in cells):
        got = ", ".join(repr(shortened(text, 30)) for text in strange[:3])
        raise InputError(f"column {one.name!r} of {sheet.path} has no {one.kind}", got=got, allowed=one.words)
    if one.kind == "categories":
        new = [text for text in dict.fromkeys(v for v in values if isinstance(v, str)) if text not in one.levels]
        some = ", ".join(repr(shortened(text, 30)) for text in new[:3])
        said = (
            f"column {one.name!r} has categories that nothing was learned about: {some} ({_where(sheet, cells, new)})"
        )
        return values, [said] if new else []
    notes = [f"column {one.name!r} {noted}"] if noted else []
    if strange:
        got = ", ".join(repr(shortened(text, 30)) for text in strange[:3])
        where = _where(sheet, cells, strange)
        notes.append(f"column {one.name!r}: cells that are no {one.kind} ({got}; {where}) count as missing")
    return values, notes


def _where(sheet: Sheet, cells: Sequence[str], texts: Sequence[str]) -> str:
    """The lines of some texts in a column."""
    wanted = set(texts)
    return lines_words([line for line, text in zip(sheet.lines, cells, strict=True) if text.strip() in wanted])


def _numbers_here(one: Plan, cells: Sequence[str], decimal: str) -> tuple[Plan, str]:
    """The plan of a column of numbers for cells of another file, and a note on their unit."""
    decimal = (own_mark(cells, sure=True) or one.decimal) if one.marked else decimal
    fresh = numbers_of(one.name, cells, decimal)
    if fresh is None:
        return replace(one, decimal=decimal), ""
    unit, noted = unit_of_others(one.unit, fresh.unit)
    return replace(one, decimal=fresh.decimal, unit=unit), noted


def _dates_here(one: Plan, cells: Sequence[str]) -> tuple[Plan, str]:
    """The same for a column of dates; a note if some could be read in two ways, and nothing here decides."""
    fresh = dates_of(one.name, cells)
    if fresh is None or fresh.kind != "dates":
        return one, ""
    either, short = EITHER in fresh.words, SHORT in fresh.words and SHORT not in one.words
    if not either:
        one = replace(one, day_first=fresh.day_first)
    if not either and not short:
        return one, ""
    noted = either_way if either else short_year
    text = next(text.strip() for text in cells if noted(text.strip()))
    what = "dates that could be read in two ways" if either else "years of two digits here"
    day = day_of(text, one.day_first)
    return one, f"has {what}: {text!r} is read as {'missing' if day is None else day_words(day)}"


def _truth(
    sheet: Sheet, target: Plan, task: Task, decimal: str, classes: Sequence[str]
) -> tuple[list[Value] | None, list[str]]:
    """The target where the file knows it, and notes on where it cannot be used."""
    place = sheet.place(target.name)
    if place is None:
        return None, []
    cells = sheet.column(place)
    noted = ""
    if target.kind == "numbers":
        target, noted = _numbers_here(target, cells, decimal)
    values, strange = target.values(cells)
    y = [None if absent(value) else value for value in values]
    if task == "classes" and target.numeric:
        spelt = {name.casefold(): name for name in classes}  # Yes and yes are one class
        meant = dict(zip(target.values(classes)[0], classes, strict=True)) if target.kind == "yes or no" else {}
        y = [
            meant.get(value) or (label if label is None else spelt.get(str(label).casefold(), label))
            for value, label in zip(y, labels_of(cells, y, target), strict=True)
        ]
    if task == "classes" and classes:
        new = list(dict.fromkeys(str(one) for one in y if one is not None and one not in classes))
        y = [one if one in classes else None for one in y]
        strange = [*strange, *new]
    lines = [n for n, text, one in zip(sheet.lines, cells, y, strict=True) if one is None and not is_missing(text)]
    said = [f"the target {target.name!r} {noted}"] if noted else []
    said += _not_scored(target.name, strange, lines)
    return (y if any(value is not None for value in y) else None), said


def _not_scored(name: str, strange: Sequence[str], lines: Sequence[int]) -> list[str]:
    if not strange:
        return []
    some = ", ".join(repr(shortened(text, 30)) for text in strange[:3])
    rows, where = plural(len(lines), "row"), lines_words(lines)
    return [f"{rows} whose {name!r} is nothing that was learned ({some}; {where}) cannot be scored"]
