"""Examples and queries from CSV files, predictions back into them."""

from __future__ import annotations

import csv
import itertools
import math
import re
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.files import require_regular
from innergrad.transformer import CompiledTransformer

MOST, LONGEST = 2**28, 2**24  # bytes of a CSV file, and characters of a line of it


@dataclass(frozen=True)
class Examples:
    """A CSV file: rows with targets are examples, rows with empty targets are queries."""

    X: Tensor
    y: Tensor
    X_query: Tensor
    inputs: list[str]
    targets: list[str]


def read_table(path: Path, targets: str | None, tf: CompiledTransformer) -> Examples:
    with _opened(path) as (header, rows):
        d_x, d_y = tf.program.stream["x"].size, tf.program.stream["y"].size
        names = header[-d_y:] if targets is None else [name.strip() for name in targets.split(",")]
        _require_columns(path, names, header)
        inputs = [name for name in header if name not in names]
        if len(names) != d_y or len(inputs) != d_x:
            hint = "classes are one-hot columns of 0 and 1" if d_y > 1 else "name the targets with --target"
            got = f"{len(inputs)} input and {len(names)} target columns"
            raise InputError(f"{path} does not fit the model", got=got, allowed=f"{d_x} and {d_y}", hint=hint)
        x_columns, y_columns = [header.index(name) for name in inputs], [header.index(name) for name in names]
        X, y, X_query = Numbers(path, x_columns), Numbers(path, y_columns), Numbers(path, x_columns)
        for line, row in rows:
            given = [bool(row[c].strip()) for c in y_columns]
            if any(given) and not all(given):
                what = f"{path} has rows with some targets empty"
                raise InputError(what, got=f"line {line}", allowed="all targets (an example) or none (a query)")
            (X if all(given) else X_query).add(line, row)
            if all(given):
                y.add(line, row)
    if not X.values:
        raise InputError(f"{path} has no examples: every target is empty")
    return Examples(X.tensor, y.tensor, X_query.tensor, inputs, names)


def read_inputs(path: Path, inputs: list[str]) -> Tensor:
    with _opened(path) as (header, rows):
        _require_columns(path, inputs, header)
        X = Numbers(path, [header.index(name) for name in inputs])
        for line, row in rows:
            X.add(line, row)
    return X.tensor


def _require_columns(path: Path, names: list[str], header: list[str]) -> None:
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"no such column in {path}", got=", ".join(missing), allowed=", ".join(header))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]]]]:
    """The header of a CSV file, and its rows, with their numbers, one after the other: a file may be large."""
    require_regular(path, MOST)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            lines = ((number, row) for number, row in enumerate(csv.reader(_lines(path, file)), start=1) if row)
            header = [name.strip() for name in next(lines, (1, []))[1]]
            first = next(lines, None)
            if first is None:
                raise InputError(f"{path} is empty", allowed="a header and at least one row")
            if all(_is_number(name) for name in header):
                what, allowed = f"the first line of {path} is not a header", "names of the columns"
                raise InputError(what, got=", ".join(header), allowed=allowed)
            if len(set(header)) != len(header):
                raise InputError(f"{path} has columns of the same name", got=", ".join(header))
            yield header, _as_long(path, len(header), itertools.chain([first], lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a CSV file with a header") from error


def _lines(path: Path, file: IO[str]) -> Iterator[str]:
    """The lines of a file; none that would fill the memory."""
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise InputError(f"{path} has a line of more than {LONGEST:,} characters", hint="is it a table?")
        yield line


def _as_long(path: Path, length: int, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """The rows, all of this length."""
    for line, row in rows:
        if len(row) != length:
            raise InputError(f"line {line} of {path} has the wrong length", got=len(row), allowed=str(length))
        yield line, row


NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)  # Python also takes 1_0 for 10
NOT_FINITE = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)


def _is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text) or NOT_FINITE.fullmatch(text))


class Numbers:
    """Some columns of a table, while it is read."""

    def __init__(self, path: Path, columns: list[int]) -> None:
        self.path, self.columns, self.values, self.rows = path, columns, array("d"), 0

    def add(self, line: int, row: list[str]) -> None:
        if not all(_is_number(row[c]) for c in self.columns):
            raise InputError(f"line {line} of {self.path} is not numeric", got=", ".join(row))
        entries = [float(row[c]) for c in self.columns]
        if not all(map(math.isfinite, entries)):
            raise InputError(f"line {line} of {self.path} has NaN or infinity", got=", ".join(row))
        self.values.extend(entries)
        self.rows += 1

    @property
    def tensor(self) -> Tensor:
        """(rows, columns), float64."""
        return torch.from_numpy(np.array(self.values)).reshape(self.rows, len(self.columns))


def write_csv(path: Path, header: list[str], rows: Tensor) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows.tolist())
