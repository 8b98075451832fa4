"""Whether the first line of a file is a row of data: a file without names is read as one that lacks a row.

Text says little: a name and a cell look alike. So a line of names is known by a column of numbers or dates whose name
is none. Where there is no such column, the line is data if it fits what is below: a unit or a date that the cells have,
too, numbers within their range, or texts that come again. Numbers in a series are names of a wide table: 2019, 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from innergrad.errors import shortened
from innergrad.written import day_of, decimal_mark, is_missing, parsed

LEAST, MOSTLY = 3, 0.9  # rows below; the share of cells of one kind
YEARS = (1900.0, 2100.0)
SHOWN = 3  # cells, in the sentence
CATEGORIES = 0.5  # a column whose texts come again: so many of its cells, at most, differ


def doubt(names: Sequence[str], rows: Sequence[Sequence[str]], separator: str) -> str:
    """A sentence, if the line of names looks like data; else nothing. rows: some of those below."""
    names = [name.strip() for name in names]
    below = [row for row in rows if [cell.strip() for cell in row] != names]  # the names may be there again
    columns = [
        [row[place].strip() for row in below if place < len(row) and not is_missing(row[place])]
        for place in range(len(names))
    ]
    decimal = decimal_mark(columns, separator)
    given = [(name, cells) for name, cells in zip(names, columns, strict=True) if name and cells]
    if len(below) < LEAST or not _is_data(given, decimal):
        return ""
    some = ", ".join(repr(shortened(name, 30)) for name, _ in given[:SHOWN])
    return f"the first line looks like data, not like names: {some}; if it is, put a line of names above it"


def _is_data(given: Sequence[tuple[str, list[str]]], decimal: str) -> bool:
    sure, plain, texts = False, list[tuple[float, list[float]]](), list[tuple[str, list[str]]]()
    for name, cells in given:
        read = [found for text in cells if (found := parsed(text, decimal)) is not None]
        if len(read) >= MOSTLY * len(cells):
            own, units = parsed(name, decimal), {unit for _, unit in read}
            if own is None or own[1] not in units:
                return False
            sure = sure or own[1] != ""
            if not own[1]:
                plain.append((own[0], [value for value, _ in read]))
        elif sum(day_of(text) is not None for text in cells) >= MOSTLY * len(cells):
            if day_of(name) is None:
                return False
            sure = True
        else:
            texts.append((name, cells))
    if sure:
        return True
    if not plain:
        return len(texts) > 1 and all(name in cells for name, cells in texts)
    strange = any(name not in cells and len(set(cells)) <= CATEGORIES * len(cells) for name, cells in texts)
    inside = sum(min(values) <= own <= max(values) for own, values in plain)
    return not strange and 2 * inside >= len(plain) and not _is_series(plain)


def _is_series(plain: Sequence[tuple[float, list[float]]]) -> bool:
    """Whether the numbers are names: years above what are none, numbers in steps, or many that rise."""
    own = [value for value, _ in plain]
    if all(_is_year(value) for value in own) and len(set(own)) == len(own):
        return not all(_is_year(value) for _, values in plain for value in values)
    steps = [b - a for a, b in pairwise(own)]
    if len(own) == 2:
        return steps[0] == 1.0
    even = len(own) > 2 and steps[0] != 0.0 and all(abs(step - steps[0]) <= 1e-9 * abs(steps[0]) for step in steps)
    return even or (len(own) > 3 and min(steps) > 0.0)


def _is_year(value: float) -> bool:
    return value.is_integer() and YEARS[0] <= value <= YEARS[1]
