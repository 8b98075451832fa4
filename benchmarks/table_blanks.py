"""Rows that lack their most important cell: predicted with that column, and without it.

    python benchmarks/table_blanks.py      five minutes on one core; stores results/table_blanks.json

Real tables of numbers with 80 to 500 rows and at most 15 columns, the first 14 of the list. Of each, 65 % of the rows
teach. In the others the column is blank that matters most: the one whose shuffling costs most. A share of the training
rows lack it, too. ``with``: the learner sees the column, and the lack. ``without``: as the estimators do it. Needs what
``real_tables.py export`` writes.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _results import no_arguments, read, store
from innergrad.estimators import InContextRegressor
from innergrad.estimators.engines import pretrained

NAME = "table_blanks"
TABLES = Path(__file__).parent.parent / "out" / "tables" / "tables.npz"
SHARES = (0.0, 0.05, 0.2)
COUNT, TEACH = 14, 0.65
ROWS, COLUMNS = (80, 500), 15
WAYS = {"with": 0, "without": pretrained.LEFT_OUT}
Row = dict[str, Any]


def scores(X: np.ndarray, y: np.ndarray, asked: np.ndarray, labels: np.ndarray) -> Row:
    model = InContextRegressor().fit(X, y)
    low, high = model.predict(asked, quantiles=[0.1, 0.9]).T
    r2 = 1.0 - np.mean((model.predict(asked) - labels) ** 2) / labels.var()
    inside = np.mean((low <= labels) & (labels <= high))
    return {"r2": round(float(r2), 4), "covered": round(float(inside), 4)}


def most_important(X: np.ndarray, y: np.ndarray, asked: np.ndarray, labels: np.ndarray) -> int:
    model, rng, errors = InContextRegressor().fit(X, y), np.random.default_rng(1), []
    for column in range(X.shape[1]):
        shuffled = asked.copy()
        shuffled[:, column] = rng.permutation(shuffled[:, column])
        errors.append(np.mean((model.predict(shuffled) - labels) ** 2))
    return int(np.argmax(errors))


def measured(name: str, x: np.ndarray, y: np.ndarray) -> list[Row]:
    rng = np.random.default_rng(0)
    order, teach = rng.permutation(len(y)), int(TEACH * len(y))
    shown, held = order[:teach], order[teach:]
    column = most_important(x[shown], y[shown], x[held], y[held])
    asked, found = x[held].copy(), []
    asked[:, column] = np.nan
    for share in SHARES:
        X = x[shown].copy()
        X[rng.random(teach) < share, column] = np.nan
        for way, most in WAYS.items():
            pretrained.LEFT_OUT = most
            row = {"table": name, "share": share, "way": way}
            found.append(row | scores(X, y[shown], asked, y[held]))
    pretrained.LEFT_OUT = WAYS["without"]
    return found


def main() -> None:
    if not TABLES.is_file():
        sys.exit("there are no tables; python benchmarks/real_tables.py export writes them")
    file, rows, count = np.load(TABLES, allow_pickle=False), list[Row](), 0
    for place, head in enumerate(json.loads(str(file["heads"]))):
        x, y = file[f"{place:03d}_x"], file[f"{place:03d}_y"]
        fits = ROWS[0] <= len(y) <= ROWS[1] and x.shape[1] <= COLUMNS
        if head["task"] == "regression" and fits and count < COUNT:
            rows += measured(head["name"], x, y.astype(float))
            count += 1
            print(head["name"], flush=True)
    store(NAME, "python benchmarks/table_blanks.py", {"rows": rows})


def table() -> list[str]:
    """For docs/reference/estimators.md."""
    rows = read(NAME)["rows"]
    lines = [
        "| training rows that lack it | prompts | mean R² | 80% intervals cover | at worst |",
        "|---|---|---|---|---|",
    ]
    for share in SHARES:
        for way, words in (("with", "with the column"), ("without", "without it")):
            mine = [row for row in rows if (row["share"], row["way"]) == (share, way)]
            r2, covered = (np.array([row[what] for row in mine]) for what in ("r2", "covered"))
            cells = [f"{share:.0%}", words, f"{r2.mean():.2f}", f"{covered.mean():.0%}", f"{covered.min():.0%}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    no_arguments(__doc__)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    main()
