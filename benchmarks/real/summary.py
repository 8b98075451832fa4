"""Rows of folds become scores of tables, and these means, ranks, and gains with intervals over tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import models
from .choice import Task
from .rules import ranks
from .tables import FOLDS, Table

Array = NDArray[Any]
Row = dict[str, Any]
Scores = dict[tuple[str, str], dict[str, Row]]  # by source and table: of every model its score, log-loss ...
DRAWS = 10_000  # of the bootstrap
LOST = 0.1  # a table is lost clearly by more than this


def of_tables(rows: Sequence[Row], *, by_fold: bool = False) -> Scores:
    """Scores of the models that have all folds of a table.

    R^2 is that of all rows of a table together, each predicted once: folds of ten rows have no R^2 of their own worth
    the name. ``by_fold``: the mean of the folds' R^2 all the same, as scikit-learn's cross_val_score has it. The other
    scores are means over folds.
    """
    found = defaultdict[tuple[str, str, str], list[Row]](list)
    for row in rows:
        if "failed" not in row:
            found[row["source"], row["table"], row["model"]].append(row)
    scores: Scores = defaultdict(dict)
    for (source, table, model), folds in found.items():
        if {row["fold"] for row in folds} == set(range(FOLDS)):
            scores[source, table][model] = _of_folds(folds, by_fold)
    return dict(scores)


def _of_folds(folds: Sequence[Row], by_fold: bool) -> Row:
    def mean(key: str) -> float:
        return float(np.mean([row[key] for row in folds]))

    one: Row = {"seconds": mean("seconds")}
    if "squares" not in folds[0]:
        return one | {"score": mean("auc")} | {key: mean(key) for key in ("log_loss", "accuracy", "calibration")}
    together = 1.0 - sum(row["squares"] for row in folds) / sum(row["spread"] for row in folds)
    one["score"] = mean("r2") if by_fold else together
    if "covered" in folds[0]:
        one["covered"] = sum(row["covered"] for row in folds) / sum(row["test"] for row in folds)
        one["width"] = mean("width")
    return one


def interval(values: Array, seed: int = 0) -> tuple[float, float]:
    """The middle 95% of the means of tables that are drawn with replacement."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))


def group(scores: Scores, keys: Sequence[tuple[str, str]], ours: Sequence[str]) -> Row:
    """The summary of a group of tables: every model, and ours against each baseline, paired over tables.

    A model that is not there for every table of the group is left out, and said. ``best_afterwards``: the mean of the
    best baseline of each table, chosen when all scores are known.
    """
    known = dict.fromkeys(model for key in keys for model in scores.get(key, {}))
    complete = [model for model in known if all(model in scores.get(key, {}) for key in keys)]
    table = {model: np.array([scores[key][model]["score"] for key in keys]) for model in complete}
    if not table:
        return {"tables": len(keys), "models": [], "gains": [], "incomplete": list(known)}
    lines = []
    others = [model for model in complete if model not in ours]
    for model in complete:
        cells = [scores[key][model] for key in keys]
        line: Row = {"model": model, "mean": table[model].mean(), "median": np.median(table[model])}
        line["low"], line["high"] = interval(table[model])
        line["rank"] = rank(table, model, [*others, *(one for one in ours[:1] if one in table)])
        extra = [name for name in ("log_loss", "accuracy", "calibration", "seconds") if name in cells[0]]
        line |= {name: np.mean([cell[name] for cell in cells]) for name in extra}
        lines.append({key: _short(value) for key, value in line.items()})
    gains = [gain(table, one, other) for one in ours if one in table for other in others]
    best = _short(np.max([table[model] for model in others], axis=0).mean()) if others else None
    left = sorted(set(known) - set(complete))
    return {"tables": len(keys), "models": lines, "gains": gains, "best_afterwards": best, "incomplete": left}


def rank(table: dict[str, Array], model: str, rivals: Sequence[str]) -> float:
    """The mean rank among rivals, of which only the first of ours is one: ours are alike and would push one another."""
    known = [one for one in rivals if one in models.MODELS or model in models.MODELS]
    names = list(dict.fromkeys([model, *known]))
    scores = np.round(np.stack([table[name] for name in names]), 6)
    return float(np.mean([ranks(-column)[0] for column in scores.T]))


def gain(table: dict[str, Array], one: str, other: str) -> Row:
    difference = table[one] - table[other]
    wins = np.where(np.abs(difference) < 1e-6, 0.5, difference > 0).astype(float)
    line: Row = {"model": one, "over": other, "gain": difference.mean(), "median": np.median(difference)}
    line["low"], line["high"] = interval(difference)
    line["wins"] = wins.mean()
    line["wins_low"], line["wins_high"] = interval(wins)
    line["lost"] = (difference < -LOST).mean()
    return {key: _short(value) for key, value in line.items()}


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float | np.floating) else value


def keys_of(tables: Sequence[Table], task: Task, source: str | None = None) -> list[tuple[str, str]]:
    return [
        (table.source, table.name)
        for table in tables
        if table.task == task and (source is None or table.source == source)
    ]


def coverage(scores: Scores, keys: Sequence[tuple[str, str]], model: str) -> Row | None:
    """How many rows the 80% intervals of a model cover: the mean over tables, and the table farthest from 80%."""
    shares = {key: scores[key][model]["covered"] for key in keys if "covered" in scores.get(key, {}).get(model, {})}
    if not shares:
        return None
    worst = max(shares, key=lambda key: abs(shares[key] - 0.8))
    low, high = interval(np.array(list(shares.values())))
    found: Row = {"model": model, "tables": len(shares), "mean": float(np.mean(list(shares.values())))}
    found |= {"low": low, "high": high, "least": min(shares.values()), "most": max(shares.values())}
    found |= {"worst": " ".join(worst), "worst_share": shares[worst]}
    found["within"] = float(np.mean([0.7 <= share <= 0.9 for share in shares.values()]))
    return {key: _short(value) for key, value in found.items()}


def context(rows: Sequence[Row], tables: Sequence[Table]) -> list[Row]:
    """By model and number of training rows: 1 - R^2, or log-loss and 1 - AUC, as means over the tables that the first
    model has. A model that lacks one of them (classes that few rows do not have) is left out.
    """
    sizes = sorted({row["train_most"] for row in rows})
    tasks: dict[tuple[str, str], Task] = {(table.source, table.name): table.task for table in tables}
    lines = []
    for task in ("regression", "classification"):
        chosen = [row for row in rows if tasks.get((row["source"], row["table"])) == task]
        names = list(dict.fromkeys(row["model"] for row in chosen))
        found = {
            (model, size): of_tables([row for row in chosen if row["model"] == model and row["train_most"] == size])
            for model in names
            for size in sizes
        }
        shared = (
            set.intersection(*(set(scores) for (model, _), scores in found.items() if model == names[0]))
            if names
            else set()
        )
        whole = [model for model in names if all(shared <= set(found[model, size]) for size in sizes)]
        for (model, size), scores in found.items():
            if shared and model in whole:
                cells = [scores[key][model] for key in sorted(shared)]
                line: Row = {"task": task, "model": model, "rows": size, "tables": len(shared)}
                line["error"] = 1.0 - float(np.mean([cell["score"] for cell in cells]))
                if task == "classification":
                    line["log_loss"] = float(np.mean([cell["log_loss"] for cell in cells]))
                lines.append({key: _short(value) for key, value in line.items()})
    return lines


def whole(rows: Sequence[Row], tables: Sequence[Table]) -> Row:
    """Everything that is stored beside the rows."""
    scores = of_tables(rows)
    ours = [model for model in dict.fromkeys(row["model"] for row in rows) if model not in models.MODELS]
    numbers, classes = keys_of(tables, "regression"), keys_of(tables, "classification")
    groups = {
        "regression": group(scores, numbers, ours),
        "regression by fold": group(of_tables(rows, by_fold=True), numbers, ours),
        "classification": group(scores, classes, ours),
        "keel": group(scores, keys_of(tables, "classification", "keel"), ours),
    }
    sizes = {(table.source, table.name): table for table in tables}
    lines = []
    for key, found in ((key, found) for key, found in scores.items() if key in sizes):
        line: Row = {"table": key[1], "source": key[0], "task": sizes[key].task, "rows": sizes[key].rows}
        line["columns"] = sizes[key].x.shape[1]
        lines.append(line | {model: _short(cell["score"]) for model, cell in found.items()})
    covered = [said for model in ours if (said := coverage(scores, numbers, model))]
    return {"groups": groups, "intervals": covered, "by_table": lines}
