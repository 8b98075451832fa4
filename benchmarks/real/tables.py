"""A table as the benchmark has it; how it is made from a package's file, split into folds, and stored."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import choice, rules
from .choice import Aim, Task

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
FOLDS, TRAIN = 5, 1000  # a fold's training rows are the first 1,000 of ``order`` that are not tested in it


@dataclass(frozen=True)
class Table:
    """Cells are float32; a missing one is NaN, a category a whole number in the order of the alphabet, as is a class.

    ``fold`` says in which fold a row is tested, ``order`` in which order rows are taken for training.
    """

    name: str
    source: str
    task: Task
    target: str
    columns: tuple[str, ...]
    categories: Array  # (d,) bool
    x: Array  # (n, d) float32
    y: Array  # (n,) float32
    fold: Array  # (n,) int8
    order: Array  # (n,) int32
    classes: tuple[str, ...] = ()
    removed: tuple[tuple[str, str], ...] = field(default=())

    @property
    def rows(self) -> int:
        return len(self.y)

    def split(self, fold: int, train: int = TRAIN) -> tuple[Array, Array]:
        """Indices of the rows to learn from, and to be tested on."""
        learn = self.order[self.fold[self.order] != fold][:train]
        return learn, np.flatnonzero(self.fold == fold)

    def hash(self) -> str:
        parts = (self.x, self.y, self.fold, self.order)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()[:16]

    def entry(self) -> dict[str, Any]:
        """The table's line of the pinned list."""
        said = {"name": self.name, "source": self.source, "task": self.task, "target": self.target}
        sizes = {"rows": self.rows, "columns": len(self.columns), "categories": int(self.categories.sum())}
        if self.classes:
            sizes["classes"] = len(self.classes)
        return said | sizes | {"removed": [f"{name}: {why}" for name, why in self.removed], "hash": self.hash()}


def folds(y: Array, name: str, *, classes: bool) -> tuple[Array, Array]:
    """Fold and order of every row, drawn from the table's name.

    Of classes, both are stratified: every fold, and every beginning of the order, has each class as often as the table,
    up to one row.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    n, shuffled = len(y), rng.permutation(len(y))
    if not classes:
        fold = np.empty(n, np.int8)
        fold[shuffled] = np.arange(n) % FOLDS
        return fold, rng.permutation(n).astype(np.int32)
    fold, place, dealt = np.empty(n, np.int8), np.empty(n), 0
    for label in np.unique(y):
        rows = shuffled[y[shuffled] == label]
        fold[rows] = (dealt + np.arange(len(rows))) % FOLDS
        dealt += len(rows)
        place[rng.permutation(rows)] = (np.arange(len(rows)) + rng.random()) / len(rows)
    return fold, np.argsort(place).astype(np.int32)


class LeftOut(Exception):
    """A rule keeps a table out; the message is the reason."""


def last_period(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return frame[frame[column] == frame[column].max()]


def numbers(column: pd.Series[Any]) -> tuple[Array, list[str]]:
    """A column's cells as floats; of text, codes in the order of the alphabet, and the texts."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=float, na_value=np.nan)
        return np.where(np.isfinite(values), values, np.nan), []
    texts = sorted(str(cell) for cell in column.dropna().unique())
    codes = {text: float(i) for i, text in enumerate(texts)}
    return np.array([np.nan if pd.isna(cell) else codes[str(cell)] for cell in column]), texts


def raw(frame: pd.DataFrame) -> Array:
    """The columns of numbers of a file, without those that name or number its rows: for ``rules.near``."""
    read = ((str(name), *numbers(frame[name])) for name in frame.columns)
    kept = [
        values
        for name, values, texts in read
        if not texts and rules.idle(values, name, choice.IDENTIFIERS, text=False) is None
    ]
    return np.column_stack(kept) if kept else np.empty((len(frame), 0))


def _target(frame: pd.DataFrame, aim: Aim) -> tuple[Array, tuple[str, ...], pd.DataFrame]:
    frame = frame[frame[aim.target].notna()].reset_index(drop=True)
    values, texts = numbers(frame[aim.target])
    if aim.task == "regression":
        frame, values = frame[~np.isnan(values)].reset_index(drop=True), values[~np.isnan(values)]
        if len(np.unique(values)) <= choice.VALUES:
            raise LeftOut(f"the target has {len(np.unique(values))} values only")
        return values, (), frame
    labels, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(labels) > choice.CLASSES:
        raise LeftOut(f"{len(labels)} classes")
    if counts.min() < choice.CLASS_ROWS:
        raise LeftOut(f"a class has {counts.min()} rows only")
    return codes.astype(float), tuple(texts[int(label)] if texts else f"{label:g}" for label in labels), frame


def _leak(column: str, values: Array, y: Array, aim: Aim, *, ordered: bool) -> str | None:
    found = rules.leak(values, y, classes=aim.task == "classification", ordered=ordered)
    return found or rules.named(column, aim.target)


def _within(count: int, limits: tuple[int, int], what: str) -> None:
    if not limits[0] <= count <= limits[1]:
        raise LeftOut(f"{count:,} {what}")


def make(name: str, source: str, frame: pd.DataFrame, aim: Aim) -> Table:
    """A table of a package's file, without the columns that the rules remove; raises ``LeftOut``."""
    if aim.period is not None:
        frame = last_period(frame, aim.period)
    _within(len(frame), choice.ROWS, "rows")
    y, classes, frame = _target(frame, aim)
    _within(len(frame), choice.ROWS, "rows with a target")
    removed, kept = list[tuple[str, str]](), list[tuple[str, Array, bool]]()
    for column in map(str, frame.columns):
        if column == aim.target:
            continue
        values, texts = numbers(frame[column])
        why = (
            aim.drop.get(column)
            or rules.idle(values, column, choice.IDENTIFIERS, text=bool(texts))
            or (None if choice.given(source) else _leak(column, values, y, aim, ordered=not texts))
        )
        if why:
            removed.append((column, why))
        else:
            kept.append((column, values, bool(texts)))
    _within(len(kept), choice.COLUMNS, "columns")
    x = np.column_stack([values for _, values, _ in kept]).astype(np.float32)
    if aim.task == "regression" and not choice.given(source) and rules.together(x, y) > rules.EXACT:
        raise LeftOut("its columns give the target away together")
    fold, order = folds(y, name, classes=bool(classes))
    names, categories = tuple(column for column, _, _ in kept), np.array([text for _, _, text in kept])
    words = (name, source, aim.task, aim.target, names, categories)
    return Table(*words, x, y.astype(np.float32), fold, order, classes, tuple(removed))


WORDS = ("name", "source", "task", "target", "columns", "classes", "removed")  # of a table, stored as text
ARRAYS = ("x", "y", "categories", "fold", "order")


def store(tables: Sequence[Table], path: Path) -> None:
    """One compressed file; nothing in it is pickled."""
    heads = np.array(json.dumps([{key: getattr(table, key) for key in WORDS} for table in tables]))
    arrays = {f"{i:03d}_{key}": getattr(table, key) for i, table in enumerate(tables) for key in ARRAYS}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, allow_pickle=False, heads=heads, **arrays)


def load(path: Path) -> list[Table]:
    found = list[Table]()
    with np.load(path, allow_pickle=False) as stored:
        for i, head in enumerate(json.loads(str(stored["heads"]))):
            lists = {key: tuple(head[key]) for key in ("columns", "classes")}
            lists["removed"] = tuple((column, why) for column, why in head["removed"])
            found.append(Table(**head | lists | {key: stored[f"{i:03d}_{key}"] for key in ARRAYS}))
    return found


@dataclass(frozen=True)
class Left:
    """A table that is not used, and why."""

    name: str
    source: str
    why: str


def choose() -> tuple[list[Table], list[Left]]:
    """Every table of the packages: chosen, or left out with a reason."""
    from . import files

    chosen, left, known = list[Table](), list[Left](), list[tuple[Table, list[rules.Mark]]]()
    for source in files.SOURCES:
        best = _of_families(source, files.names(source))
        for name in files.names(source):
            try:
                table, marks = _one(source, name, best, known)
            except LeftOut as reason:
                left.append(Left(name, source, str(reason)))
                continue
            chosen.append(table)
            known.append((table, marks))
    return chosen, left


def _one(
    source: str, name: str, best: set[str] | None, known: list[tuple[Table, list[rules.Mark]]]
) -> tuple[Table, list[rules.Mark]]:
    from . import files

    why, aim = choice.OUT.get(source, {}).get(name), choice.aim(source, name)
    if why or aim is None:
        raise LeftOut(why or "nothing was decided for it")
    if best is not None and name not in best:
        raise LeftOut("a set of the same source is used" if choice.family(name) else "its source is a balanced set")
    frame = files.frame(source, name)
    table = make(name, source, frame, aim)
    used = frame if aim.period is None else last_period(frame, aim.period)
    marks = rules.marks(raw(used))
    for other, others in known:
        share = rules.near(others, marks)
        if share >= rules.ROWS:
            raise LeftOut(f"near {other.source}'s {other.name}: {share:.0%} of the smaller's rows are in both")
    return table, marks


def _of_families(source: str, names: Sequence[str]) -> set[str] | None:
    """The imbalanced sets of KEEL that stand for their sources; None where the rule does not apply."""
    if source != "keel-imbalanced":
        return None
    from . import files

    best = dict[str, tuple[tuple[int, int], str]]()
    for name in names:
        family = choice.family(name)
        if family is None:
            continue
        counts = files.frame(source, name)["target"].value_counts()
        rank = (int(counts.min()), int(counts.sum()))
        if rank[1] <= choice.ROWS[1] and (family not in best or rank > best[family][0]):
            best[family] = (rank, name)
    return {name for _, name in best.values()}


def listing(chosen: Sequence[Table], left: Sequence[Left]) -> dict[str, Any]:
    return {"tables": [table.entry() for table in chosen], "left_out": [asdict(one) for one in left]}


def of_task(tables: Sequence[Table], task: Task) -> Iterator[Table]:
    return (table for table in tables if table.task == task)


def fast(tables: Sequence[Table], task: Task) -> list[Table]:
    """Those of a speed-run, small enough to be scored often. Chosen by shape: at most 20 columns, 100 to 1,250 rows."""
    return [table for table in of_task(tables, task) if 100 <= table.rows <= 1250 and len(table.columns) <= 20]
