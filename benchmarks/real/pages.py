"""The tables of docs/reference/real_tables.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from _results import RESULTS, read

from . import models
from .files import SOURCES

Row = dict[str, Any]
NONE = ["*No result is stored.*"]
WORDS = {
    "forest": "random forest",
    "boosting": "boosting",
    "neighbours": "k nearest neighbours",
    "network": "network (MLP)",
    "process": "Gaussian process",
    "innergrad": "**innergrad**",
    "learner": "the learner alone",
}
REASONS = (  # beginnings of reasons, and what they are called in the table
    ("a set of the same source", "another set of the same source is used"),
    ("its source is", "its source is a table of the list"),
    ("near ", "copies of tables of the list, or parts of them"),
    ("a time series", "time series"),
    ("a duration", "durations that were cut off"),
    ("half of its races", "copies of tables of the list, or parts of them"),
    ("its colleges", "copies of tables of the list, or parts of them"),
)


def called(model: str, task: str) -> str:
    if model == "linear":
        return "tuned ridge" if task == "regression" else "logistic regression"
    if model.startswith("learner "):
        return f"the learner alone, training {model.removeprefix('learner ')}"
    return WORDS.get(model, model)


def found() -> Row:
    return read("real_tables") if (RESULTS / "real_tables.json").exists() else {}


def counts() -> list[str]:
    listed = read("real_tables_list")
    lines = ["| source | numbers | classes | left out |", "|---|---|---|---|"]
    for source in SOURCES:
        tasks = Counter(row["task"] for row in listed["tables"] if row["source"] == source)
        left = sum(row["source"] == source for row in listed["left_out"])
        lines.append(f"| {source} | {tasks['regression']} | {tasks['classification']} | {left} |")
    total = [listed["regression"], listed["classification"], len(listed["left_out"])]
    return [*lines, "| **all** | " + " | ".join(f"**{number}**" for number in total) + " |"]


def left_out() -> list[str]:
    def reason(why: str) -> str:
        named = next((name for start, name in REASONS if why.startswith(start)), None)
        limits = "too few or too many rows, columns, classes, or values of the target"
        return named or (limits if any(mark.isdigit() for mark in why) else "nothing to predict, or no single table")

    rows = Counter(reason(row["why"]) for row in read("real_tables_list")["left_out"])
    return ["| why | tables |", "|---|---|", *(f"| {why} | {count} |" for why, count in rows.most_common())]


def removed() -> list[str]:
    """How many columns, by the rule that removed them."""
    kinds = {
        "names or numbers the rows": "they name or number the rows",
        "text that names the rows": "they name or number the rows",
        "numbers the rows": "they name or number the rows",
        "has one value": "they have one value, or none",
        "has no values": "they have one value, or none",
        "rank correlation": "they have the order of the target (rank correlation over .995)",
        "a function of the target": "they are a function of the target, or the target is one of them",
        "the target is a threshold": "they are a function of the target, or the target is one of them",
        "by its name": "they have the order of the target (rank correlation over .995)",
        "each of its values": "they are a function of the target, or the target is one of them",
    }
    reasons = [line.split(": ", 1)[1] for row in read("real_tables_list")["tables"] for line in row["removed"]]
    by_hand = "named by hand: parts, changes, earlier and later values of the target"
    rows = Counter(next((name for start, name in kinds.items() if why.startswith(start)), by_hand) for why in reasons)
    return ["| why | columns |", "|---|---|", *(f"| {why} | {count} |" for why, count in rows.most_common())]


def numbers() -> list[str]:
    lines = ["| table | source | target | rows | columns | removed |", "|---|---|---|---|---|---|"]
    for row in read("real_tables_list")["tables"]:
        if row["task"] == "regression":
            size = f"{row['rows']:,} | {row['columns']} | {len(row['removed'])}"
            lines.append(f"| {row['name']} | {row['source']} | {row['target']} | {size} |")
    return lines


def classes() -> list[str]:
    lines = ["| table | source | classes | rows | columns | of them categories |", "|---|---|---|---|---|---|"]
    for row in read("real_tables_list")["tables"]:
        if row["task"] == "classification":
            size = f"{row['rows']:,} | {row['columns']} | {row['categories']}"
            lines.append(f"| {row['name']} | {row['source']} | {row['classes']} | {size} |")
    return lines


def _scores(name: str, task: str) -> list[str]:
    group = found().get("groups", {}).get(name, {})
    if not group.get("models"):
        return NONE
    score, more = ("R²", []) if task == "regression" else ("ROC AUC", ["log-loss", "calibration error"])
    head = ["model", f"mean {score}", "95%", "median", "mean rank", *more, "seconds a fold"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in sorted(group["models"], key=lambda row: row["rank"]):
        cells = [called(row["model"], task), f"{row['mean']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}"]
        cells += [f"{row['median']:.3f}", f"{row['rank']:.2f}"]
        cells += [f"{row[key]:.3f}" for key in ("log_loss", "calibration")] if more else []
        cells.append(f"{row['seconds']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    best = f" The best of the others, chosen for each table afterwards, has a mean of {group['best_afterwards']:.3f}."
    return [*lines, "", f"{group['tables']} tables, five folds each." + best]


def _gains(name: str, task: str) -> list[str]:
    group = found().get("groups", {}).get(name, {})
    if not group.get("gains"):
        return NONE
    lines = ["| model | over | mean gain | 95% | median gain | wins | 95% | loses by more than .1 |", "|---" * 8 + "|"]
    for row in group["gains"]:
        cells = [called(row["model"], task), called(row["over"], task), f"{row['gain']:+.3f}"]
        cells += [f"{row['low']:+.3f} to {row['high']:+.3f}", f"{row['median']:+.3f}", f"{row['wins']:.0%}"]
        cells += [f"{row['wins_low']:.0%} to {row['wins_high']:.0%}", f"{row['lost']:.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def door() -> list[str]:
    """Means of the estimators and of the baselines, the best first; and gains whose intervals reach zero."""
    lines, near = ["| | tables | mean score |", "|---|---|---|"], []
    for name, words, score in (("regression", "numbers", "R²"), ("classification", "classes", "AUC")):
        group = found().get("groups", {}).get(name, {})
        gains = [row for row in group.get("gains", []) if not row["model"].startswith("learner")]
        near += [f"{score} over {called(row['over'], name)}" for row in gains if row["low"] <= 0.0]
        shown = [row for row in group.get("models", []) if not row["model"].startswith("learner")]
        best = sorted(shown, key=lambda row: -row["mean"])
        cells = ", ".join(f"{called(row['model'], name)} {row['mean']:.3f}" for row in best)
        lines.append(f"| {words} ({score}) | {group.get('tables', 0)} | {cells} |")
    return [*lines, "", f"What chance may explain: the gain in {', '.join(near)}."] if near else lines


def intervals() -> list[str]:
    rows = found().get("intervals", [])
    if not rows:
        return NONE
    lines = ["| model | covered, mean over tables | 95% | within 70 to 90% | worst table | covered there |"]
    lines.append("|---" * 6 + "|")
    for row in rows:
        cells = [called(row["model"], "regression"), f"{row['mean']:.1%}", f"{row['low']:.1%} to {row['high']:.1%}"]
        cells += [f"{row['within']:.0%} of {row['tables']} tables", row["worst"], f"{row['worst_share']:.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def context() -> list[str]:
    rows = found().get("context", [])
    if not rows:
        return NONE
    sizes = sorted({row["rows"] for row in rows})
    lines = [f"| task | model | {' | '.join(f'{size:,} rows' for size in sizes)} | tables |"]
    lines.append("|---" * (3 + len(sizes)) + "|")
    shown = [("regression", "numbers, 1 − R²", "error"), ("classification", "classes, 1 − AUC", "error")]
    shown.append(("classification", "classes, log-loss", "log_loss"))
    for task, what, key in shown:
        for model in dict.fromkeys(row["model"] for row in rows if row["task"] == task):
            chosen = {row["rows"]: row for row in rows if (row["task"], row["model"]) == (task, model)}
            cells = [f"{chosen[size][key]:.3f}" if size in chosen else "—" for size in sizes]
            count = next(iter(chosen.values()))["tables"]
            lines.append(f"| {what} | {called(model, task)} | {' | '.join(cells)} | {count} |")
    best = [max(row[model] for model in models.MODELS) for row in found()["by_table"] if large(row)]
    words = "With 1,000 rows, the best of the six baselines of numbers, chosen for each table afterwards, is at"
    return [*lines, "", f"{words} {1.0 - np.mean(best):.3f}."]


def large(row: Row) -> bool:
    """A table of numbers whose folds have 1,000 rows to learn from."""
    rows: int = row["rows"]
    return row["task"] == "regression" and rows * 4 // 5 >= 1000


def permuted() -> list[str]:
    rows = found().get("permuted", [])
    tasks = {(row["source"], row["name"]): row["task"] for row in read("real_tables_list")["tables"]}
    lines = ["| task | model | tables | mean score | largest |", "|---" * 5 + "|"]
    for task, score in (("regression", "R²"), ("classification", "AUC")):
        chosen = [row for row in rows if tasks[row["source"], row["table"]] == task]
        for model in dict.fromkeys(key for row in chosen for key in row if key not in ("table", "source")):
            values = [row[model] for row in chosen if model in row]
            cells = [score, called(model, task), f"{len(values)}", f"{np.mean(values):+.3f}", f"{max(values):+.3f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines if rows else NONE


def race() -> list[str]:
    """Seconds of training until the mean score passes each baseline, seed by seed; and the curve of the mean."""
    log = read("tables_race")
    lines = [
        "| passed | its mean R² | seconds of training at the first look that is above it, seed by seed |",
        "|---|---|---|",
    ]
    for model, bar in sorted(log["bars"].items(), key=lambda item: item[1]):
        seconds = [run["passed"][model] for run in log["runs"]]
        cells = ", ".join("never" if one is None else f"{one:.1f}" for one in seconds)
        lines.append(f"| {called(model, 'regression')} | {bar:.3f} | {cells} |")
    curves = [run["curve"] for run in log["runs"]]
    shown = [(looks[0]["seconds"], np.mean([look["score"] for look in looks])) for looks in zip(*curves, strict=True)]
    words = ", ".join(f"{score:.3f} after {seconds:.0f} s" for seconds, score in shown)
    about = (
        f"{len(log['tables'])} tables, {len(curves)} seeds, {log['device']}, {log['compile_seconds']:.0f} s to compile"
    )
    return [*lines, "", f"{about} (once, not counted), {log['steps_per_second']:.0f} steps a second. Mean R²: {words}."]


TABLES: dict[str, Callable[[], list[str]]] = {
    "real_counts": counts,
    "real_left_out": left_out,
    "real_removed": removed,
    "real_numbers": numbers,
    "real_classes": classes,
    "real_scores_numbers": lambda: _scores("regression", "regression"),
    "real_gains_folds": lambda: _gains("regression by fold", "regression"),
    "real_gains_numbers": lambda: _gains("regression", "regression"),
    "real_scores_classes": lambda: _scores("classification", "classification"),
    "real_gains_classes": lambda: _gains("classification", "classification"),
    "real_scores_keel": lambda: _scores("keel", "classification"),
    "real_gains_keel": lambda: _gains("keel", "classification"),
    "real_door": door,
    "real_intervals": intervals,
    "real_context": context,
    "real_permuted": permuted,
    "real_race": race,
}
