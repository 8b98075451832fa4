"""Examples and queries from CSV files, predictions back into them."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.files import read_text
from innergrad.transformer import CompiledTransformer

MOST = 2**28  # bytes of a CSV file


@dataclass(frozen=True)
class Examples:
    """A CSV file: rows with targets are examples, rows with empty targets are queries."""

    X: Tensor
    y: Tensor
    X_query: Tensor
    inputs: list[str]
    targets: list[str]


def read_table(path: Path, targets: str | None, tf: CompiledTransformer) -> Examples:
    header, rows = _read_csv(path)
    d_x, d_y = tf.program.stream["x"].size, tf.program.stream["y"].size
    names = header[-d_y:] if targets is None else [name.strip() for name in targets.split(",")]
    missing = [name for name in names if name not in header]
    if missing:
        raise InputError(f"no such column in {path}", got=", ".join(missing), allowed=", ".join(header))
    inputs = [name for name in header if name not in names]
    if len(names) != d_y or len(inputs) != d_x:
        hint = "classes are one-hot columns of 0 and 1" if d_y > 1 else "name the targets with --target"
        got = f"{len(inputs)} input and {len(names)} target columns"
        raise InputError(f"{path} does not fit the model", got=got, allowed=f"{d_x} and {d_y}", hint=hint)
    x_columns, y_columns = [header.index(name) for name in inputs], [header.index(name) for name in names]
    examples = [(number, row) for number, row in rows if all(row[c].strip() for c in y_columns)]
    queries = [(number, row) for number, row in rows if not any(row[c].strip() for c in y_columns)]
    if len(examples) + len(queries) != len(rows):
        raise InputError(
            f"{path} has rows with some targets empty", allowed="all targets (an example) or none (a query)"
        )
    if not examples:
        raise InputError(f"{path} has no examples: every target is empty")
    return Examples(
        _numbers(path, examples, x_columns),
        _numbers(path, examples, y_columns),
        _numbers(path, queries, x_columns),
        inputs,
        names,
    )


def read_inputs(path: Path, inputs: list[str]) -> Tensor:
    header, rows = _read_csv(path)
    missing = [name for name in inputs if name not in header]
    if missing:
        raise InputError(f"no such column in {path}", got=", ".join(missing), allowed=", ".join(header))
    return _numbers(path, rows, [header.index(name) for name in inputs])


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        text = read_text(path, MOST, encoding="utf-8-sig")  # spreadsheets write a byte order mark
        lines = [(number, row) for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), start=1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a CSV file with a header") from error
    if len(lines) < 2:
        raise InputError(f"{path} is empty", allowed="a header and at least one row")
    header = [name.strip() for name in lines[0][1]]
    if all(_is_number(name) for name in header):
        raise InputError(
            f"the first line of {path} is not a header", got=", ".join(header), allowed="names of the columns"
        )
    if len(set(header)) != len(header):
        raise InputError(f"{path} has columns of the same name", got=", ".join(header))
    for line, row in lines[1:]:
        if len(row) != len(header):
            raise InputError(f"line {line} of {path} has the wrong length", got=len(row), allowed=str(len(header)))
    return header, lines[1:]


NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)  # Python also takes 1_0 for 10
NOT_FINITE = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)


def _is_number(text: str) -> bool:
    return bool(NUMBER.fullmatch(text) or NOT_FINITE.fullmatch(text))


def _numbers(path: Path, rows: list[tuple[int, list[str]]], columns: list[int]) -> Tensor:
    values = []
    for line, row in rows:
        if not all(_is_number(row[c]) for c in columns):
            raise InputError(f"line {line} of {path} is not numeric", got=", ".join(row))
        entries = [float(row[c]) for c in columns]
        if not all(math.isfinite(entry) for entry in entries):
            raise InputError(f"line {line} of {path} has NaN or infinity", got=", ".join(row))
        values.append(entries)
    return torch.tensor(values, dtype=torch.float64).reshape(len(values), len(columns))


def write_csv(path: Path, header: list[str], rows: Tensor) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows.tolist())
