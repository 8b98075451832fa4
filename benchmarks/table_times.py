"""How long do the estimators take on one core, beside scikit-learn's? Each in a process of its own, after the imports.

    python benchmarks/table_times.py                stores results/table_times.json (a few minutes)
    python benchmarks/table_times.py --missing      only what the file lacks

A table has columns of normal numbers, and labels of a sine, a product and a line. Half of its rows are asked for. Some
tables have categories in their last columns, 5 and 12 of them: text to innergrad, codes to the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from _results import device_name, read, store

SIZES = ((500, 10, 0), (500, 10, 2), (1000, 20, 0), (10_000, 20, 0), (10_000, 100, 0))  # rows that are known, columns,
# and how many of these have categories; as many rows are asked for
LEVELS = (5, 12)
METHODS = {
    "pretrained": "innergrad, `pretrained`",
    "kernel": "innergrad, `kernel`",
    "ridge": "innergrad, `ridge`",
    "forest": "random forest, 300 trees",
    "boosting": "boosting",
}
REPEATS = 3  # of small tables; the least counts


def make(method: str) -> Any:
    if method == "forest":
        from sklearn.ensemble import RandomForestRegressor

        return RandomForestRegressor(300, random_state=0)
    if method == "boosting":
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(random_state=0)
    from innergrad import InContextRegressor

    return InContextRegressor(method)


def timed(method: str, rows: int, columns: int, categories: int) -> list[float]:
    """Seconds of fit and predict together: the first time in a process, and the next ones."""
    import numpy as np
    import sklearn.ensemble  # noqa: F401
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X: Any = rng.normal(size=(2 * rows, columns))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3:].sum(1) / columns**0.5 + 0.3 * rng.normal(size=2 * rows)
    if categories:
        codes = rng.integers(0, LEVELS, (2 * rows, len(LEVELS)))[:, :categories]
        if method in ("forest", "boosting"):
            X[:, columns - categories :] = codes
        else:
            X = np.column_stack([X[:, : columns - categories].astype(object), codes.astype(str).astype(object)])
            X[:, columns - categories :] = "kind " + X[:, columns - categories :]
    model, found = make(method), []
    for _ in range(REPEATS if rows <= 1000 else 1):
        start = time.perf_counter()
        model.fit(X[:rows], y[:rows]).predict(X[rows:])
        found.append(time.perf_counter() - start)
    return found


def measured(method: str, rows: int, columns: int, categories: int) -> dict[str, Any]:
    """In a process that has one core, three times where it is short; the fastest counts."""
    given = [sys.executable, __file__, "--one", method, str(rows), str(columns), str(categories)]
    times = [
        json.loads(subprocess.run(given, capture_output=True, text=True, check=True).stdout)
        for _ in range(REPEATS if rows <= 1000 else 1)
    ]
    first, again = min(one[0] for one in times), min(min(one) for one in times)
    print(f"{method:<12} {rows:>6} x {columns:<4} {first:8.2f} s   again {again:8.2f} s", flush=True)
    table = {"rows": rows, "columns": columns, "categories": categories}
    return {"method": method, **table, "first": round(first, 3), "again": round(again, 3)}


def size_of(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["rows"], row["columns"], row.get("categories", 0)


def shown(rows: int, columns: int, categories: int) -> str:
    return f"{rows:,} rows, {columns} columns" + (f", {categories} of categories" if categories else "")


def table() -> list[str]:
    found = read("table_times")
    known = {size_of(row) for row in found["rows"]}
    sizes = [size for size in SIZES if size in known]
    lines = [f"| seconds | {' | '.join(shown(*size) for size in sizes)} |"]
    lines.append("|---" * (1 + len(sizes)) + "|")
    for method, name in METHODS.items():
        of = {size_of(row): row for row in found["rows"] if row["method"] == method}
        lines.append(f"| {name} | {' | '.join(_cell(of.get(size)) for size in sizes)} |")
    return [*lines, "", f"One core of an {found['device']}; fit and predict; the first call of a process."]


def _cell(row: dict[str, Any] | None) -> str:
    return "—" if row is None else f"{row['first']:.1f}" if row["first"] >= 10 else f"{row['first']:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("METHOD", "ROWS", "COLUMNS", "CATEGORIES")
    parser.add_argument("--one", nargs=4, metavar=names, help="print its seconds as JSON")
    parser.add_argument("--missing", action="store_true", help="only what the stored file lacks, of the same machine")
    given = parser.parse_args()
    if given.one:
        method, *size = given.one
        print(json.dumps(timed(method, *map(int, size))))
        return
    empty: dict[str, Any] = {"device": device_name("cpu"), "rows": []}
    stored = read("table_times") if given.missing else empty
    if stored["device"] != device_name("cpu"):
        sys.exit(f"the stored times are of another machine, {stored['device']}: leave out --missing")
    done = {(size_of(row), row["method"]) for row in stored["rows"]}
    new = [measured(method, *size) for size in SIZES for method in METHODS if (size, method) not in done]
    rows = stored["rows"] + new
    store("table_times", "python benchmarks/table_times.py", {"device": device_name("cpu"), "rows": rows})


if __name__ == "__main__":
    main()
