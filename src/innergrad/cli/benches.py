"""``innergrad bench``: speed as a ratio, on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from innergrad.bench.executor import Point, chosen, measure
from innergrad.cli.commands import write_json
from innergrad.errors import InputError


def run_bench(
    what: str,
    full: bool,
    points: str | None,
    dtype: str,
    threads: str,
    repeats: int,
    out: Path | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    if what != "executor":
        raise InputError("unknown benchmark", got=repr(what), allowed="executor")
    sizes = [_numbers(part, 3) for part in points.split()] if points is not None else None
    found = chosen(not full, sizes, [part.strip() for part in dtype.split(",")], _numbers(threads))
    rows = [measure(point, repeats) for point in _watched(found, quiet or as_json)]
    if out is not None:
        write_json(out, {"executor": rows})
    if as_json:
        print(json.dumps({"executor": rows}))
    elif not quiet:
        _print(rows)


def _numbers(text: str, count: int | None = None) -> list[int]:
    """Positive integers with commas between them."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1 or (count is not None and len(found) != count):
        what = "threads are positive numbers" if count is None else "points are n,K,N"
        raise InputError(what, got=repr(text), allowed="e.g. 1 or 1,2" if count is None else "e.g. 20,8,3")
    return found


def _watched(points: list[Point], silent: bool) -> Iterable[Point]:
    return points if silent or not sys.stderr.isatty() else _progress(points)


def _progress(points: list[Point]) -> Iterator[Point]:
    yield from track(points, "measuring", console=Console(stderr=True), transient=True)


def _print(rows: list[dict[str, Any]]) -> None:
    table = Table(title="Microseconds a step, and ratios to the fastest of torch's autograd", title_justify="left")
    names = ("module", "functional", "foreach", "manual", "compiled", "fallback")
    ratios = {"ratio": "compiled / autograd", "fallback_ratio": "fallback / autograd"}
    for column in ("n", "K", "N", "dtype", "threads", *names, *ratios.values()):
        table.add_column(column, justify="right")
    for row in rows:
        settings = [str(row[name]) for name in ("n", "K", "N", "dtype", "threads")]
        times = [f"{row[name]:.3g}" for name in names]
        table.add_row(*settings, *times, *(f"{row[name]:.2f}" for name in ratios))
    Console().print(table)
