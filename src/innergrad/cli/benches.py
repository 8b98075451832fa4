"""``innergrad bench``: speed as a ratio, on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

from innergrad.cli.names import BENCHES, DTYPES
from innergrad.errors import InputError, one_of
from innergrad.files import Writer

if TYPE_CHECKING:
    from innergrad.bench.executor import Point


def run_bench(
    what: str,
    full: bool,
    points: str | None,
    dtype: str,
    threads: str,
    repeats: int,
    out: Path | None,
    *,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    writer = Writer("bench", force=force)
    if out is not None:
        writer.check(out, stream=True)
    one_of("unknown benchmark", what, BENCHES)
    sizes = [_numbers(part, 3) for part in points.split()] if points is not None else None
    dtypes = [one_of("unknown dtype", part.strip(), DTYPES) for part in dtype.split(",")]
    counts = _numbers(threads)
    from innergrad.bench.executor import chosen, measure

    found = chosen(not full, sizes, dtypes, counts)
    rows = [measure(point, repeats) for point in _watched(found, quiet or as_json)]
    if out is not None:
        writer.json(out, {"executor": rows})
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
        what = "--threads are positive integers" if count is None else "--points are n,K,N"
        raise InputError(what, got=repr(text), allowed="e.g. 1 or 1,2" if count is None else "e.g. 20,8,3")
    return found


def _watched(points: list[Point], silent: bool) -> Iterable[Point]:
    return points if silent or not sys.stderr.isatty() else _progress(points)


def _progress(points: list[Point]) -> Iterator[Point]:
    yield from track(points, "measuring", console=Console(stderr=True), transient=True)


def _print(rows: list[dict[str, Any]]) -> None:
    """Five times and two ratios: it fits 80 columns; --json has every rival."""
    from innergrad.bench.rivals import AUTOGRAD

    title = "us a step, and ratios to the fastest of torch's autograd"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False, collapse_padding=True)
    for column in ("n, K, N", "dtype", "thr.", "autograd", "by hand", "compiled", "torch", "ratio", "torch's"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        settings = [
            f"{row['n']}, {row['K']}, {row['N']}",
            row["dtype"].replace("float", "f"),
            str(row["threads"]),
        ]
        autograd = min(row[name] for name in AUTOGRAD)
        times = [f"{value:.3g}" for value in (autograd, row["manual"], row["compiled"], row["fallback"])]
        table.add_row(*settings, *times, f"{row['ratio']:.3f}", f"{row['fallback_ratio']:.2f}")
    console = Console()
    console.print(table)
    console.print("compiled: the fused executor's kernel; torch: the same without a compiler", highlight=False)
