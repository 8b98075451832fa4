"""How long do the estimators take on one core, beside scikit-learn's? Each in a process of its own, after the imports.

    python benchmarks/table_times.py      stores results/table_times.json (a few minutes)

A table has columns of normal numbers, and labels of a sine, a product and a line. Half of its rows are asked for.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from _results import device_name, read, store

SIZES = ((500, 10), (1000, 20), (10_000, 20), (10_000, 100))  # rows that are known, columns; as many rows are asked for
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


def timed(method: str, rows: int, columns: int) -> list[float]:
    """Seconds of fit and predict together: the first time in a process, and the next ones."""
    import numpy as np
    import sklearn.ensemble  # noqa: F401
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * rows, columns))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3:].sum(1) / columns**0.5 + 0.3 * rng.normal(size=2 * rows)
    model, found = make(method), []
    for _ in range(REPEATS if rows <= 1000 else 1):
        start = time.perf_counter()
        model.fit(X[:rows], y[:rows]).predict(X[rows:])
        found.append(time.perf_counter() - start)
    return found


def measured(method: str, rows: int, columns: int) -> dict[str, Any]:
    """In a process that has one core, three times where it is short; the fastest counts."""
    given = [sys.executable, __file__, "--one", method, str(rows), str(columns)]
    times = [
        json.loads(subprocess.run(given, capture_output=True, text=True, check=True).stdout)
        for _ in range(REPEATS if rows <= 1000 else 1)
    ]
    first, again = min(one[0] for one in times), min(min(one) for one in times)
    print(f"{method:<12} {rows:>6} x {columns:<4} {first:8.2f} s   again {again:8.2f} s", flush=True)
    return {"method": method, "rows": rows, "columns": columns, "first": round(first, 3), "again": round(again, 3)}


def table() -> list[str]:
    found = read("table_times")
    sizes = list(dict.fromkeys((row["rows"], row["columns"]) for row in found["rows"]))
    lines = [f"| seconds | {' | '.join(f'{rows:,} rows, {columns} columns' for rows, columns in sizes)} |"]
    lines.append("|---" * (1 + len(sizes)) + "|")
    for method, name in METHODS.items():
        of = {(row["rows"], row["columns"]): row for row in found["rows"] if row["method"] == method}
        lines.append(f"| {name} | {' | '.join(_cell(of.get(size)) for size in sizes)} |")
    return [*lines, "", f"One core of an {found['device']}; fit and predict; the first call of a process."]


def _cell(row: dict[str, Any] | None) -> str:
    return "—" if row is None else f"{row['first']:.1f}" if row["first"] >= 10 else f"{row['first']:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "ROWS", "COLUMNS"), help="print its seconds as JSON")
    given = parser.parse_args()
    if given.one:
        method, rows, columns = given.one
        print(json.dumps(timed(method, int(rows), int(columns))))
        return
    rows = [measured(method, *size) for size in SIZES for method in METHODS]
    store("table_times", "python benchmarks/table_times.py", {"device": device_name("cpu"), "rows": rows})


if __name__ == "__main__":
    main()
