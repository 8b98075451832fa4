"""What was learned from a table, in a folder: JSON and CSV, nothing pickled.

A learner in context is three things: the rows that teach (``demonstrations.csv``), how columns are read, and the name
of the engine (``fit.json``, with the digests of the files beside it).
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from innergrad.errors import InputError, readable
from innergrad.files import Writer, digest, digests, read_text
from innergrad.tables import words
from innergrad.tables.models import ENGINES, Engine, objects
from innergrad.tables.new_rows import NewRows
from innergrad.tables.scoring import LEVELS, Validation, decisive, predicted
from innergrad.tables.sheets import MOST
from innergrad.tables.table import Table
from innergrad.written import Plan, Task, Value, absent, answer, day_words

FIT, DEMONSTRATIONS, VALIDATION = "fit.json", "demonstrations.csv", "validation.csv"
PREDICTED, PREDICTIONS = "predictions.json", "predictions.csv"
VERSION = 1
DIGITS = 6
AT_ONCE = 10_000  # rows to predict
FIRST = 30  # predictions that people see, with their lines
KEYS = ("model", "files", "scores", "matters")  # of fit.json, without which it is none


@dataclass(frozen=True)
class Fitted:
    """columns and y: of the rows that teach. plans: of every column of the file but the target."""

    engine: Engine
    target: Plan
    plans: tuple[Plan, ...]
    classes: list[str]
    columns: list[list[Value]] = field(repr=False)
    y: list[Value] = field(repr=False)

    @classmethod
    def of(cls, table: Table, engine: Engine) -> Fitted:
        known = table.known
        columns = [[values[row] for row in known] for values in table.columns]
        return cls(engine, table.target, table.plans, table.classes, columns, [table.y[row] for row in known])

    @property
    def task(self) -> Task:
        return self.engine.task

    @property
    def used(self) -> list[Plan]:
        return [one for one in self.plans if one.used]

    @cached_property
    def estimator(self) -> Any:
        """It has the rows in its prompt."""
        y = np.array(self.y, dtype=float if self.task == "numbers" else None)
        return self.engine.make().fit(objects(self.columns, range(len(self.y))), y)

    def predict(self, columns: Sequence[Sequence[Value]], rows: Sequence[int], interval: float) -> Predictions:
        """Of the rows of some columns, which are those that are used. interval: the share of targets between low and
        high.
        """
        parts = [objects(columns, rows[at : at + AT_ONCE]) for at in range(0, len(rows), AT_ONCE)]
        values = np.concatenate([predicted(self.task, self.estimator, X, self.classes) for X in parts])
        if self.task == "classes":
            return Predictions(self.target, self.classes, values)
        ends = [(1 - interval) / 2, (1 + interval) / 2]
        return Predictions(self.target, [], values, np.concatenate([self._ends(X, ends) for X in parts]))

    def _ends(self, X: np.ndarray, levels: list[float]) -> np.ndarray:
        return np.asarray(self.estimator.predict(X, quantiles=levels), dtype=float)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            **self.engine.settings(),
            "target": self.target.to_json(),
            "classes": self.classes,
            "columns": [one.to_json() for one in self.plans],
        }

    def write(self, path: Path) -> None:
        """The rows that teach, as the learner gets them: dates are days, yes is 1; an empty cell is missing."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*(one.name for one in self.used), self.target.name])
            writer.writerows([list(map(_kept, row)) for row in zip(*self.columns, self.y, strict=True)])


def _kept(value: Value) -> str:
    return "" if absent(value) else value if isinstance(value, str) else repr(value)


def is_fit(folder: Path) -> bool:
    return (folder / FIT).is_file()


def load(folder: Path) -> tuple[Fitted, dict[str, Any]]:
    """What `innergrad fit` wrote into a folder: the learner, and all that is known of it."""
    index, rows = folder / FIT, folder / DEMONSTRATIONS
    for path in (index, rows):
        if not path.is_file():
            what = f"there is no fitted table in {folder}"
            raise InputError(what, got=f"no {path.name}", allowed="a folder written by innergrad fit")
    known = digests(index).get(DEMONSTRATIONS, ())
    if known and digest(rows) not in known:
        raise InputError(
            f"{rows} was changed", got="another digest than its fit.json knows", hint="fit the table again"
        )
    try:
        content = json.loads(read_text(index))
        _require(index, content, known)
        model = content["model"]
        if model["version"] != VERSION:
            raise InputError(f"{index} is of another version", got=model["version"], allowed=str(VERSION))
        return _read(model, rows), content
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{index} cannot be read", got=str(error), hint="fit the table again") from error


def _require(index: Path, content: Any, known: Collection[str]) -> None:
    """An error that says what fit.json lacks."""
    lacks = [key for key in KEYS if key not in content] if isinstance(content, dict) else list(KEYS)
    if lacks or not known:
        got = f"no {', '.join(map(repr, lacks))}" if lacks else f"no digest of {DEMONSTRATIONS}"
        raise InputError(f"{index} is not as innergrad fit wrote it", got=got, hint="fit the table again")


def _read(model: Mapping[str, Any], path: Path) -> Fitted:
    if model["task"] not in ("numbers", "classes") or model["engine"] not in ENGINES:
        raise ValueError(f"{model['task']}, {model['engine']}")
    plans, target = tuple(map(Plan.from_json, model["columns"])), Plan.from_json(model["target"])
    used = [one for one in plans if one.used]
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    if header != [*(one.name for one in used), target.name]:
        raise ValueError(f"{path.name} has other columns")
    columns = [[_value(row[place], one.numeric) for row in rows] for place, one in enumerate(used)]
    y = [_value(row[-1], model["task"] == "numbers") for row in rows]
    own = (str(model[key]) if key in model else None for key in ("learner", "weights"))
    engine = Engine(model["task"], model["engine"], int(model["seed"]), *own)
    return Fitted(engine, target, plans, list(model["classes"]), columns, y)


def _value(text: str, numeric: bool) -> Value:
    if numeric:
        return float(text) if text else math.nan
    return text or None


# ---------------------------------------------------------------------------------------------------------- predictions


@dataclass(frozen=True)
class Predictions:
    """values: amounts (n,), with low and high (n, 2); or probabilities (n, classes)."""

    target: Plan
    classes: list[str]
    values: np.ndarray
    ends: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def header(self) -> list[str]:
        if self.ends is not None:
            return ["prediction", "low", "high"]
        return ["class", "probability", *(f"probability of {name}" for name in self.classes)]

    def shown(self) -> list[list[str]]:
        """Text for people, header first: 98,852."""
        if self.ends is None or self.target.kind == "dates":
            return [[row[place] for place in shown_places(self.classes)] for row in [self.header, *self.rows()]]
        numbers = np.column_stack([self.values, self.ends]).tolist()
        return [self.header, *([readable(value) for value in row] for row in numbers)]

    def rows(self, decimal: str = ".") -> list[list[str]]:
        """Text for a file, with the mark of fractions that it has."""
        if self.ends is not None:
            numbers = np.column_stack([self.values, self.ends])
            return [[self._amount(value, decimal) for value in row] for row in numbers.tolist()]
        best = self.values.argmax(1)
        return [
            [self.classes[top], *(f"{value:.4f}".replace(".", decimal) for value in (row[top], *row))]
            for top, row in zip(best.tolist(), self.values.tolist(), strict=True)
        ]

    def _amount(self, value: float, decimal: str) -> str:
        if self.target.kind == "dates" and abs(value) < 10**6:
            return day_words(value)
        plain = 1e-4 <= abs(value) < 1e15 or value == 0.0
        text = np.format_float_positional(value, DIGITS, fractional=False, trim="-") if plain else f"{value:.{DIGITS}g}"
        return text.replace(".", decimal)

    def to_json(self, new: NewRows) -> list[dict[str, Any]]:
        """What the file gets, row by row. line: of the row in the file that asks."""
        lines = [new.sheet.lines[row] for row in new.places]
        if self.ends is None:
            return [
                {
                    "line": line,
                    "class": row[0],
                    "probability": max(chances),
                    "probabilities": dict(zip(self.classes, chances, strict=True)),
                }
                for line, row, chances in zip(lines, self.rows(), self.values.tolist(), strict=True)
            ]
        dates = self.target.kind == "dates"
        numbers = self.rows() if dates else np.column_stack([self.values, self.ends]).tolist()
        return [
            {"line": line, **dict(zip(self.header, row, strict=True))} for line, row in zip(lines, numbers, strict=True)
        ]

    def write(self, path: Path, new: NewRows) -> None:
        """The rows of the file, as they are, and the predictions behind them; separated as the file is. A spreadsheet
        that wrote a byte order mark, or another encoding than UTF-8, reads UTF-8 by such a mark.
        """
        sheet, own = new.sheet, self.rows(new.decimal)
        encoding = "utf-8" if sheet.encoding == "utf-8" else "utf-8-sig"
        with path.open("w", newline="", encoding=encoding) as file:
            writer = csv.writer(file, delimiter=sheet.separator)
            writer.writerow([*sheet.header, *new_names(self.header, sheet.header)])
            writer.writerows([[*sheet.rows[row], *found] for row, found in zip(new.places, own, strict=True)])

    def score(self, new: NewRows) -> dict[str, Any]:
        """Where the new file knows the target of its rows. most: the share of the most frequent class among them."""
        truth = new.truth or []
        rows = [row for row, value in enumerate(truth) if value is not None]
        if not rows:
            return {}
        if self.ends is None:
            found = [self.classes[best] for best in self.values[rows].argmax(1)]
            right = sum(one == truth[row] for one, row in zip(found, rows, strict=True)) / len(rows)
            most = max(Counter(truth[row] for row in rows).values()) / len(rows)
            return {"rows": len(rows), "right": right, "most": most}
        y, (low, high) = np.array([truth[row] for row in rows], dtype=float), self.ends[rows].T
        inside = float(((low <= y) & (y <= high)).mean())
        r2 = decisive("numbers", y, self.values[rows]) if len(set(y.tolist())) > 1 else None
        return {"rows": len(rows), "r2": r2, "covered": inside}


def shown_places(classes: Sequence[str]) -> list[int]:
    """Which of the columns of predictions people see first: of classes that are yes and no, the chance of yes."""
    if not classes:
        return [0, 1, 2]
    said = list(map(answer, classes))
    return [0, 2 + said.index(1.0)] if sorted(said, key=str) == [0.0, 1.0] else [0, 1]


def new_names(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Names of new columns beside others; one that is taken gets a number."""
    found = list[str]()
    for name in names:
        new, number = name, 1
        while new in (*taken, *found):
            number += 1
            new = f"{name} ({number})"
        found.append(new)
    return found


# -------------------------------------------------------------------------------------------------------- the folder


def keep(writer: Writer, out: Path, model: Fitted, table: Table, validation: Validation) -> dict[str, Any]:
    """Writes the folder, and gives what fit.json says."""
    found = _found(table, model, validation)
    with writer.several(out, FIT, found) as part:
        model.write(part(DEMONSTRATIONS))
        write_validation(part(VALIDATION), table, validation)
    return found


def _found(table: Table, model: Fitted, validation: Validation) -> dict[str, Any]:
    """All that is known after cross-validation."""
    scores = validation.scores()
    gains = [validation.gain(place) for place in range(1, len(scores))]
    notes, over = list(table.notes), [one["method"] for one in scores[1:]]
    if len(validation.rows) < len(table.known):
        notes.append(f"the scores are of {len(validation.rows):,} rows, drawn at random; all rows teach the model")
    return {
        "data": table.sheet.path.name,
        "rows": len(table.known),
        "total_rows": table.sheet.total,
        "file": words.about_file(table),
        "about_target": words.about_target(table.target, table.task, table.why),
        "notes": notes,
        "warnings": table.warnings,
        "verdict": [
            *words.verdict(table.task, table.target.name, scores, gains, words.error_unit(table.target)),
            *words.lopsided(table.task, table.target.name, [table.y[row] for row in table.known]),
        ],
        "folds": int(validation.fold.max()) + 1,
        "unit": words.error_unit(table.target),
        "scores": scores,
        "gains": [
            {"over": one, "gain": gain, "spread": spread} for one, (gain, spread) in zip(over, gains, strict=True)
        ],
        "matters": [{"column": name, "fall": fall} for name, fall in validation.matters],
        "learner": [*model.estimator.notes_, *_by_the_learner(model)],
        "model": model.to_json(),
    }


def _by_the_learner(model: Fitted) -> list[str]:
    """Columns that the learner leaves out, though they can be read: copies of others, text with too many values."""
    used = [plan.name for plan in model.plans if plan.used]
    found = []
    for name, column in zip(used, model.estimator.columns_, strict=True):
        if not column.used:  # it knows columns by their places
            told = re.sub(r"column (\d+)", lambda match: f"'{used[int(match[1]) - 1]}'", column.words)
            found.append(f"'{name}', to the learner: {told}")
    return found


def write_validation(path: Path, table: Table, validation: Validation) -> None:
    """What was predicted for every row that teaches, by a learner that had not seen it; line: in the file."""
    own = validation.found[0]
    if own.quantiles is not None:
        header = ["prediction", *(f"quantile {level:g}" for level in LEVELS)]
        values = np.column_stack([own.values, own.quantiles])
    else:
        header, values = [f"probability of {name}" for name in validation.classes], own.values
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["line", "fold", "actual", *header])
        for row, fold, found in zip(validation.rows, validation.fold.tolist(), values.tolist(), strict=True):
            writer.writerow([table.sheet.lines[row], fold + 1, _kept(table.y[row]), *map(repr, found)])


def read_validation(folder: Path) -> tuple[list[int], list[str], np.ndarray]:
    """Lines of the file, the targets as text, and the numbers behind them, (rows, columns)."""
    path = folder / VALIDATION
    if not path.is_file() or digest(path) not in digests(folder / FIT).get(VALIDATION, ()):
        raise InputError(f"{path} is missing, or was changed", hint="fit the table again")
    if path.stat().st_size > MOST:
        raise InputError(f"{path} is too large", allowed=f"at most {MOST:,} bytes")
    with path.open(newline="", encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    lines, actual = [int(row[0]) for row in rows], [row[2] for row in rows]
    return lines, actual, np.array([[float(cell) for cell in row[3:]] for row in rows])


def read_predictions(folder: Path, most: int) -> tuple[dict[str, Any], list[list[str]]]:
    """What is known of the predictions in a folder, and the first rows of their file, header first; nothing if there
    are none, if the file was changed, or if they are of another fit than the one that is there.
    """
    index, path = folder / PREDICTED, folder / PREDICTIONS
    if not path.is_file() or digest(path) not in digests(index).get(PREDICTIONS, ()):
        return {}, []
    known = json.loads(read_text(index))
    if known.get("fit") != digest(folder / FIT):
        return {}, []
    with path.open(newline="", encoding="utf-8-sig") as file:
        return known, list(islice(csv.reader(file, delimiter=known.get("separator", ",")), 1 + most))
