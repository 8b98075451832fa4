"""Many fits on many cores: one line of JSON each as soon as it is there. A run that is cut off goes on later."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import blend, estimators, models, scores
from .tables import FOLDS, TRAIN, Table

Row = dict[str, Any]
KEY = ("source", "table", "hash", "fold", "model", "train_most")


class Job(NamedTuple):
    """One model, one table, one fold, and at most so many training rows."""

    table: int
    fold: int
    model: str
    train: int


_TABLES: Sequence[Table] = ()  # of a worker
_WEIGHTS: Sequence[str] = ()


def _start(tables: Sequence[Table], weights: Sequence[str]) -> None:
    global _TABLES, _WEIGHTS
    _TABLES, _WEIGHTS = tables, weights


def run(job: Job) -> Row:
    table = _TABLES[job.table]
    learn, test = table.split(job.fold, job.train)
    head: Row = {"table": table.name, "source": table.source, "hash": table.hash()}
    head |= {"fold": job.fold, "model": job.model}
    head |= {"train_most": job.train, "train": len(learn), "test": len(test)}
    try:
        if job.model == estimators.NAME:
            found, seconds, more = estimators.said(table, learn, test, _WEIGHTS)
        elif job.model == blend.NAME:
            found, seconds, more = blend.said(table, learn, test)
        else:
            (found, seconds), more = models.said(job.model, table, learn, test), {}
    except Exception as error:  # one model that fails on one fold is a result, and said
        return head | {"failed": f"{type(error).__name__}: {error}"[:200]}
    return head | {"seconds": round(seconds, 3)} | scores.scored(table, test, found) | more


def cost(table: Table, model: str, train: int) -> float:
    """Seconds, roughly."""
    n, d, classes = min(train, table.rows), len(table.columns), max(len(table.classes), 1)
    times = float(classes if classes > 2 else 1)
    if model == blend.NAME:
        return sum(cost(table, part, train) for part in blend.PARTS)
    if model == "process":
        return 8.0 * (n / 1000) ** 3 if classes == 1 else 4.0 * times * (min(n, 500) / 500) ** 3
    if model == "boosting":
        return n / 1000 * times
    return n / 1000 * {"forest": 2.0 + d / 10, "network": 3.0, "linear": 1.0}.get(model, 1.0)


def jobs(tables: Sequence[Table], names: Sequence[str], train: Sequence[int], done: set[tuple[Any, ...]]) -> list[Job]:
    hashes = [table.hash() for table in tables]
    wanted = [
        Job(i, fold, name, most)
        for i, table in enumerate(tables)
        for most in train
        for name in names
        for fold in range(FOLDS)
        if (table.source, table.name, hashes[i], fold, name, most) not in done
    ]
    return sorted(wanted, key=lambda job: cost(tables[job.table], job.model, job.train))


def read(path: Path, tables: Sequence[Table] | None = None) -> list[Row]:
    """The rows of a file that a run wrote; a last line that was cut off is not one. Of rows of one fit the last counts.

    With ``tables``, only rows of these: of a table with the same cells and the same folds.
    """
    found = dict[tuple[Any, ...], Row]()
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[tuple(row.get(key) for key in KEY)] = row
    rows = list(found.values())
    if tables is None:
        return rows
    known = {(table.source, table.name): table.hash() for table in tables}
    return [row for row in rows if known.get((row["source"], row["table"])) == row["hash"]]


def write(
    tables: Sequence[Table],
    path: Path,
    *,
    names: Sequence[str] = models.MODELS,
    train: Sequence[int] = (TRAIN,),
    workers: int = 1,
    seconds: float | None = None,
    weights: Sequence[str] = (),
) -> int:
    """Appends to ``path`` what is not there yet, until all is or ``seconds`` have passed; how many fits are left.

    ``weights`` are those of the estimators' learners, if not the package's.
    """
    done = {tuple(row.get(key) for key in KEY) for row in read(path)}
    left = jobs(tables, names, train, done)
    if workers > 1:
        left.reverse()  # the longest first, so that no core waits for one at the end
    started, total = time.perf_counter(), len(left)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for number, row in enumerate(_all(tables, left, workers, weights), 1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            took = time.perf_counter() - started
            if number % 100 == 0 or number == total:
                print(f"{number} of {total} fits, {took:.0f} s", flush=True)
            if seconds is not None and took > seconds:
                return total - number
    return 0


def _all(tables: Sequence[Table], left: Sequence[Job], workers: int, weights: Sequence[str]) -> Iterator[Row]:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # one core a worker
    if workers == 1:
        _start(tables, weights)
        yield from map(run, left)
        return
    with multiprocessing.get_context("spawn").Pool(workers, _start, (tables, weights)) as pool:
        yield from pool.imap_unordered(run, left)
