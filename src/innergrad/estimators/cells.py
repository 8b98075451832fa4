"""Cells of a table: which are missing, and what the others are as numbers, days or texts.

A column is an array: of float64, of dates, or of objects, where anything may be a cell. pandas need not be installed:
its types are known by what they have.
"""

from __future__ import annotations

import datetime
import numbers
import re
from decimal import Decimal
from typing import Any

import numpy as np

from innergrad.errors import InputError, shortened
from innergrad.written import number_alone

Values = np.ndarray  # of one column: float64, or datetime64 and timedelta64, or objects

NO_VALUE = frozenset(("na", "n/a", "nan", "null", "none", "?", "-", "missing"))  # among texts that are else numbers
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
DATE = re.compile(r"\d{4}-\d\d?-\d\d?")
DAY = np.timedelta64(1, "D")
MISSING_TYPES = ("NAType", "NaTType")  # of pandas


class Level(str):
    """A cell of a column that was declared to be one of categories, even if it looks like a number."""


def split(X: Any) -> list[Values]:
    """The columns of a data frame or of an array with two axes: of numbers as float64, of anything else as objects."""
    if hasattr(X, "iloc"):
        return [_series(X.iloc[:, place]) for place in range(X.shape[1])]
    if X.dtype.kind in "biuf":
        return list(np.asarray(X, dtype=np.float64).T)
    if X.dtype.kind in "Mm":
        return list(X.T)
    return [_simple(column) for column in np.asarray(X, dtype=object).T]


def _series(series: Any) -> Values:
    """A pandas column; its own types of numbers may lack values."""
    dtype = series.dtype
    kind = getattr(dtype, "kind", "O")
    if hasattr(dtype, "categories"):
        cells = np.asarray(series.astype(object), dtype=object)
        return np.array([None if missing(cell) else Level(_text(cell)) for cell in cells], dtype=object)
    if kind == "b" and isinstance(dtype, np.dtype):
        return np.asarray(series, dtype=object)  # stays a column of yes and no
    if kind in "iuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind in "Mm":
        aware = getattr(dtype, "tz", None) is not None
        return np.asarray((series.dt.tz_convert(None) if aware else series).to_numpy())
    if type(dtype).__name__ == "PeriodDtype":
        return np.asarray(series.dt.to_timestamp().to_numpy())
    return np.asarray(series, dtype=object)


def _simple(values: np.ndarray) -> Values:
    """Objects that are all numbers, as numbers: the usual case of a mixed table, and the fast one."""
    plain = all(type(value) in (int, float) or isinstance(value, np.floating | np.integer) for value in values)
    return values.astype(np.float64) if plain else values


def missing(value: object) -> bool:
    if value is None or type(value).__name__ in MISSING_TYPES:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, str) and not value.strip()


def is_number(value: object) -> bool:
    return isinstance(value, numbers.Real | Decimal | bool | np.bool_)


def iso_date(text: str) -> datetime.datetime | None:
    if not DATE.match(text):
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found


def floats(values: Values, name: str) -> np.ndarray:
    """Numbers of a column of numbers, in any of the forms that they come in."""
    if values.dtype.kind == "f":
        return values
    if values.dtype.kind in "Mm":
        raise InputError(f"{named(name)} had numbers in the training rows", got="dates", allowed="numbers")
    return np.array([_float(value, name) for value in values], dtype=np.float64)


def _float(value: object, name: str) -> float:
    if missing(value):
        return np.nan
    if is_number(value):
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            return np.inf
    text = value.strip() if isinstance(value, str) else ""
    if text.casefold() in NO_VALUE:
        return np.nan
    if NUMBER.match(text):
        return float(text)
    if (found := number_alone(text)) is not None:  # 58.2 m2, among bare numbers
        return found
    got = shortened(repr(value), 60)
    raise InputError(f"{named(name)} had numbers in the training rows", got=got, allowed="a number, or missing")


def finite(found: np.ndarray, name: str) -> np.ndarray:
    if np.isinf(found).any():
        row = int(np.flatnonzero(np.isinf(found))[0])
        hint = "leave such cells empty: missing values are fine"
        raise InputError(f"{named(name)} contains infinity", got=f"row {row}", allowed="finite numbers", hint=hint)
    return found


def days(values: Values, name: str) -> np.ndarray:
    if values.dtype.kind == "m":
        return np.asarray(values / DAY, dtype=np.float64)
    if values.dtype.kind != "M":
        values = np.array([_date(value, name) for value in values], dtype="datetime64[us]")
    return np.asarray((values - np.datetime64(0, "D")) / DAY, dtype=np.float64)


def _date(value: object, name: str) -> object:
    if missing(value) or (isinstance(value, str) and value.strip().casefold() in NO_VALUE):
        return np.datetime64("NaT")
    found = iso_date(value.strip()) if isinstance(value, str) else value
    if isinstance(found, datetime.datetime) and found.tzinfo is not None:
        found = found.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(found, datetime.date | np.datetime64):
        return np.datetime64(found, "us")  # type: ignore[call-overload]
    got = shortened(repr(value), 60)
    raise InputError(f"{named(name)} had dates in the training rows", got=got, allowed="a date such as 2024-05-31")


def named(name: str) -> str:
    return name if name.startswith("column ") else f"column {name!r}"


def texts(values: Values) -> list[str | None]:
    return [None if missing(value) else _text(value) for value in values]


def _text(value: object) -> str:
    """Two cells are the same category if their texts are: 1 and 1.0 are, too."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
