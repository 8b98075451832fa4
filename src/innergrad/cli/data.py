"""Examples and queries from CSV files, predictions back into them. Files are read and checked without torch."""

from __future__ import annotations

import csv
import itertools
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from innergrad.cli.models import Known
from innergrad.cli.places import near_path
from innergrad.errors import InputError, plural, readable, suggestion
from innergrad.files import require_regular
from innergrad.tables.sheets import SEPARATORS, lines
from innergrad.written import is_missing

if TYPE_CHECKING:
    from torch import Tensor

MOST = 2**28  # bytes of a CSV file
LARGE, SMALL, OUTER = 10.0, 0.1, 3.0  # a column is far from unit scale: see innergrad.model.symptoms
NAMED = 4  # columns of a warning
TARGETS = "--target-columns"
ROUNDED = 2.0**-50  # relative, of value * std + mean in float64, and more


@dataclass
class Numbers:
    """Some columns of a table, row by row, while it is read."""

    path: Path
    names: list[str]
    columns: list[int]  # places in the file, from 0
    lines: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.lines)

    def add(self, line: int, row: list[str]) -> None:
        for name, place in zip(self.names, self.columns, strict=True):
            self.values.append(_number(self.path, line, name, place, row[place]))
        self.lines.append(line)

    def column(self, number: int) -> Sequence[float]:
        return self.values[number :: len(self.columns)]

    def where(self, row: int, number: int) -> str:
        return _cell(self.path, self.lines[row], self.names[number], self.columns[number])

    def scaled(self, by: Sequence[Scale]) -> array[float]:
        width = len(self.columns)
        return array("d", (by[i % width].there(value) for i, value in enumerate(self.values)))

    def tensor(self, values: array[float] | None = None) -> Tensor:
        """(rows, columns), float64."""
        import numpy as np
        import torch

        given = self.values if values is None else values
        return torch.from_numpy(np.array(given)).reshape(len(self), len(self.columns))


@dataclass(frozen=True)
class Scale:
    """A column's mean and standard deviation over the rows that teach: (value - mean) / std, and back."""

    mean: float = 0.0
    std: float = 1.0

    def there(self, value: float) -> float:
        return (value - self.mean) / self.std


@dataclass(frozen=True)
class Examples:
    """A CSV file: rows with targets are examples, rows with empty targets are queries.

    rows: the numbers as the file has them. X, y, X_query: the prompt, which is scaled where ``scales`` say so. truth:
    targets of queries that a file of their own knows; they are for a score, and nothing is learned from them. known:
    the numbers of these queries, from 0.
    """

    rows: tuple[Numbers, Numbers, Numbers]
    scales: tuple[tuple[Scale, ...], tuple[Scale, ...]] | None = None
    truth: Numbers | None = None
    known: tuple[int, ...] = ()

    @property
    def inputs(self) -> list[str]:
        return self.rows[0].names

    @property
    def targets(self) -> list[str]:
        return self.rows[1].names

    @cached_property
    def X(self) -> Tensor:
        return self._tensor(0, 0)

    @cached_property
    def y(self) -> Tensor:
        return self._tensor(1, 1)

    @cached_property
    def X_query(self) -> Tensor:
        return self._tensor(2, 0)

    def _tensor(self, part: int, scale: int) -> Tensor:
        rows = self.rows[part]
        return rows.tensor(None if self.scales is None else rows.scaled(self.scales[scale]))

    def in_units(self, predictions: Tensor) -> Tensor:
        """Predictions of targets, (rows, targets), in the units of the file."""
        if self.scales is None:
            return predictions
        means, stds = ([getattr(one, name) for one in self.scales[1]] for name in ("mean", "std"))
        found = predictions.double()
        return found * found.new_tensor(stds) + found.new_tensor(means)

    def spread_in_units(self, std: Tensor) -> Tensor:
        """Standard deviations of the predictions of one target, likewise."""
        return std if self.scales is None else std.double() * self.scales[1][0].std

    def bounds_in_units(self, bounds: Tensor, predictions: Tensor) -> Tensor:
        """Bounds on the errors of predictions, (rows, targets), likewise; the way back rounds, which is added."""
        if self.scales is None:
            return bounds
        size, std = predictions.double().abs(), bounds.double().new_tensor([one.std for one in self.scales[1]])
        mean = bounds.double().new_tensor([abs(one.mean) for one in self.scales[1]])
        return (bounds.double() + ROUNDED * size) * std * (1 + ROUNDED) + ROUNDED * mean

    def scale_json(self) -> dict[str, dict[str, list[float]]]:
        """Name -> mean, standard deviation, of what was scaled."""
        if self.scales is None:
            return {}
        found = zip(("inputs", "targets"), (self.inputs, self.targets), self.scales, strict=True)
        unit = Scale()
        return {
            kind: {name: [one.mean, one.std] for name, one in zip(names, scales, strict=True) if one != unit}
            for kind, names, scales in found
        }

    def unscaled(self, classes: bool) -> str:
        """A sentence about columns far from unit scale that nobody scaled; empty if there are none."""
        if self.scales is not None:
            return ""
        parts = self.rows[:1] if classes else self.rows[:2]
        found = [_far(rows, number) for rows in parts for number in range(len(rows.columns))]
        far = [words for words in found if words]
        if not far:
            return ""
        more = f" and {len(far) - NAMED} more" if len(far) > NAMED else ""
        are = "is" if len(far) == 1 else "are"
        return (
            f"{', '.join(far[:NAMED])}{more} {are} far from unit scale; --scale standardises the columns, and gives "
            "predictions in the units of the file"
        )


def read_examples(
    path: Path | None, targets: str | None, model: Known, query: Path | None = None, *, scale: bool = False
) -> Examples:
    """The table, which fits the model: columns, rows, numbers, classes and declared bounds."""
    if path is None:
        raise InputError(
            "the examples are missing", hint="give --data, a CSV of yours, or examples/examples.csv of the checkout"
        )
    X, y, X_query = _read(path, targets, model)
    truth, known = None, list[int]()
    if query is not None:
        X_query, truth, known = _read_queries(query, X.names, y.names)
    if len(X) > model.n_examples:
        raise InputError(
            f"{path} has more rows that teach than the model takes",
            got=plural(len(X), "row"),
            allowed=f"1 to {model.n_examples}, the model's --n-examples",
            hint=f"compile with --n-examples {len(X)}, or leave the target of some rows empty",
        )
    _check_labels(y, model)
    scales = None
    if scale:
        scales = (_scales(X), _scales(y) if model.free else tuple(Scale() for _ in y.names))
    found = Examples((X, y, X_query), scales, truth, tuple(known))
    _check_bounds(found, model)
    return found


# -------------------------------------------------------------------------------------------------------------- reading


def _read(path: Path, targets: str | None, model: Known) -> tuple[Numbers, Numbers, Numbers]:
    with _opened(path) as (header, rows):
        names = header[-model.d_y :] if targets is None else [name.strip() for name in targets.split(",")]
        _require_columns(path, names, header, TARGETS)
        inputs = [name for name in header if name not in names]
        if len(names) != model.d_y or len(inputs) != model.d_x:
            raise _misfit(path, header, inputs, names, model)
        x_columns, y_columns = [header.index(name) for name in inputs], [header.index(name) for name in names]
        X, y, X_query = (
            Numbers(path, inputs, x_columns),
            Numbers(path, names, y_columns),
            Numbers(path, inputs, x_columns),
        )
        for line, row in rows:
            given = [bool(row[c].strip()) for c in y_columns]
            if any(given) and not all(given):
                empty = given.index(False)
                raise InputError(
                    f"{path} has rows with some targets empty",
                    got=f"line {line}, {_column(names[empty], y_columns[empty])}",
                    allowed="all targets (an example) or none (a query)",
                )
            (X if all(given) else X_query).add(line, row)
            if all(given):
                y.add(line, row)
    if not len(X):
        hint = "rows with a target teach: fill the last column, or name another with --target-columns"
        raise InputError(f"{path} has no examples: every target is empty", got=", ".join(names), hint=hint)
    return X, y, X_query


def _misfit(path: Path, header: list[str], inputs: list[str], names: list[str], model: Known) -> InputError:
    got = f"{len(inputs)} input and {len(names)} target columns"
    hint = f"targets are the last columns, here {', '.join(names)}; --target-columns names others"
    if model.d_y > 1:
        hint += "; classes are one-hot columns of 0 and 1"
    elif len(header) - model.d_y != model.d_x:
        hint = f"compile with --sizes {len(header) - model.d_y},...,{model.d_y}, or leave columns out; {hint}"
    return InputError(f"{path} does not fit the model", got=got, allowed=f"{model.d_x} and {model.d_y}", hint=hint)


def _read_queries(path: Path, inputs: list[str], targets: list[str]) -> tuple[Numbers, Numbers | None, list[int]]:
    """Rows to predict. Where the file has the targets, too: those that are numbers, and which rows have them."""
    with _opened(path) as (header, rows):
        _require_columns(path, inputs, header, "--query")
        X = Numbers(path, inputs, [header.index(name) for name in inputs])
        there = all(name in header for name in targets)
        y, known = Numbers(path, targets, [header.index(name) for name in targets] if there else []), list[int]()
        for line, row in rows:
            if there and all(NUMBER.fullmatch(row[place]) for place in y.columns):
                known.append(len(X))
                y.add(line, row)
            X.add(line, row)
    return X, y if known else None, known


def _require_columns(path: Path, names: list[str], header: list[str], flag: str) -> None:
    missing = [name for name in names if name not in header]
    if missing:
        near = suggestion(missing[0], header)
        asked = near or (f"{flag} names columns of the header" if flag == TARGETS else "it has the inputs of --data")
        raise InputError(f"no such column in {path}", got=", ".join(missing), allowed=", ".join(header), hint=asked)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]]]]:
    """The header of a CSV file, and its rows, with their numbers, one after the other: a file may be large."""
    require_regular(path, MOST)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            reader = csv.reader(lines(path, file))
            filled = ((reader.line_num, row) for row in reader if row)
            header = [name.strip() for name in next(filled, (1, []))[1]]
            first = next(filled, None)
            _check_separator(path, header)
            if first is None:
                what = f"{path} has a header but no rows" if header else f"{path} is empty"
                raise InputError(what, got=", ".join(header) or "nothing", allowed="a header and at least one row")
            _check_header(path, header)
            yield header, _as_long(path, header, itertools.chain([first], filled))
    except FileNotFoundError as error:
        hint = near_path(path) or "examples/examples.csv of the checkout is one to try"
        raise InputError(f"cannot read {path}", got="no such file", allowed="a CSV file", hint=hint) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a CSV file with a header") from error


def _check_separator(path: Path, header: list[str]) -> None:
    """A table of another separator is one column to us."""
    if len(header) != 1:
        return
    for mark, words in SEPARATORS.items():
        if mark in header[0]:
            raise InputError(
                f"{path} has {words} between its columns",
                got=repr(header[0]),
                allowed="commas between columns, and points in numbers",
                hint="save it as comma-separated CSV, or let innergrad fit read it",
            )


def _check_header(path: Path, header: list[str]) -> None:
    if all(_is_number(name) for name in header):
        what, allowed = f"the first line of {path} is not a header", "names of the columns"
        raise InputError(what, got=", ".join(header), allowed=allowed, hint="put a line of names above the numbers")
    twice = [name for n, name in enumerate(header) if name in header[:n]]
    if twice:
        raise InputError(f"{path} has columns of the same name", got=", ".join(twice), hint="rename all but one")


def _as_long(path: Path, header: list[str], rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """The rows, all as long as the header."""
    for line, row in rows:
        if len(row) != len(header):
            what = f"line {line} of {path} has the wrong length"
            hint = "a comma inside a number? use a point"
            if len(row) < len(header):
                hint = f"nothing is given for {_column(header[len(row)], len(row))}"
            raise InputError(what, got=f"{len(row)} cells", allowed=f"{len(header)}, as the header has", hint=hint)
        yield line, row


# ---------------------------------------------------------------------------------------------------------------- cells

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)  # Python also takes 1_0 for 10
NOT_FINITE = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)


def _is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text) or NOT_FINITE.fullmatch(text))


THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")


def _column(name: str, place: int) -> str:
    return f"column {name!r} (number {place + 1})"


def _cell(path: Path, line: int, name: str, place: int) -> str:
    return f"line {line} of {path}, {_column(name, place)}"


def _number(path: Path, line: int, name: str, place: int, text: str) -> float:
    where = _cell(path, line, name, place)
    if not _is_number(text):
        hint = "text is no input: leave the column out, or give a class a column of 0 and 1"
        if is_missing(text):
            hint = "a value is missing: leave the row out, or fill the cell"
        elif THOUSANDS.fullmatch(text.strip()):
            hint = "leave out the commas between thousands"
        raise InputError(f"{where}, is not a number", got=repr(text.strip()) if text.strip() else "nothing", hint=hint)
    value = float(text)
    if not math.isfinite(value):
        raise InputError(f"{where}, is NaN or infinity", got=text.strip(), hint="leave the row out")
    return value


# --------------------------------------------------------------------------------------------------------------- values


def _check_labels(y: Numbers, model: Known) -> None:
    """Classes are 0 and 1; of several columns, one is 1."""
    if not model.classes:
        return
    width = len(y.names)
    for place, value in enumerate(y.values):
        if value not in (0.0, 1.0):
            row, number = divmod(place, width)
            kind = (
                "logistic targets must be 0 or 1"
                if model.loss == "logistic"
                else "softmax targets must be one-hot rows"
            )
            raise InputError(kind, got=f"{value:g} in {y.where(row, number)}", hint="one column a class, of 0 and 1")
    for row in range(len(y)) if model.loss == "softmax" else ():
        ones = sum(y.values[row * width : (row + 1) * width])
        if ones != 1.0:
            got = f"{ones:g} ones in line {y.lines[row]} of {y.path}"
            raise InputError("softmax targets must be one-hot rows", got=got, allowed="one 1, and 0 elsewhere")


def _check_bounds(table: Examples, model: Known) -> None:
    """What the model was declared for; who runs it checks it again, on what the transformer gets."""
    bounds = ((0, 0, "X", model.x_bound, "--x-bound"), (2, 0, "X", model.x_bound, "--x-bound"))
    for part, scale, name, bound, flag in (*bounds, (1, 1, "y", model.y_bound, "--y-bound")):
        rows = table.rows[part]
        if bound is None or not len(rows):
            continue
        values = rows.values if table.scales is None else rows.scaled(table.scales[scale])
        place = max(range(len(values)), key=lambda i: abs(values[i]))
        if abs(values[place]) > bound:
            where = rows.where(*divmod(place, len(rows.columns)))
            raise InputError(
                f"{name} leaves the domain that the model was compiled for",
                got=f"{readable(values[place], 6)} in {where}",
                allowed=f"at most {readable(bound, 6)}",
                hint=f"compile with a larger {flag}, or scale the data",
            )


def _scales(rows: Numbers) -> tuple[Scale, ...]:
    found = []
    for number, name in enumerate(rows.names):
        values = rows.column(number)
        mean, std, _ = _moments(values)
        if not std > 1e-12 * abs(mean):
            raise InputError(
                f"{_column(name, rows.columns[number])} of {rows.path} cannot be scaled",
                got=f"{readable(values[0])} in every row that teaches",
                allowed="a column that varies",
                hint="leave the column out" if len(values) > 1 else "one row has no spread: give more rows",
            )
        found.append(Scale(mean, std))
    return tuple(found)


def _moments(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, standard deviation, largest absolute value; of numbers whose squares are none, too."""
    largest = max(map(abs, values))
    if not largest:
        return 0.0, 0.0, 0.0
    parts = [value / largest for value in values]
    mean = math.fsum(parts) / len(parts)
    std = math.sqrt(math.fsum((part - mean) ** 2 for part in parts) / len(parts))
    return mean * largest, std * largest, largest


def _far(rows: Numbers, number: int) -> str:
    """The words for a column far from unit scale, by the rule of innergrad.model.symptoms; empty if it is not."""
    mean, std, largest = _moments(rows.column(number))
    wrong = abs(mean) + OUTER * std > LARGE or 0 < largest < SMALL
    return f"{rows.names[number]} (column {rows.columns[number] + 1}, up to {readable(largest, 3)})" if wrong else ""


def write_csv(path: Path, header: list[str], rows: Tensor) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows.tolist())
