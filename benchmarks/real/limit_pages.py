"""The tables of docs/reference/real_tables.md about what limits the gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _results import RESULTS, read

from . import blend, limits
from .pages import NONE, called

Row = dict[str, Any]
MEASURED = {limits.MEASURES[0]: "all rows together", limits.MEASURES[1]: "mean of folds"}
NAMES = {blend.NAME: "the mean of four", limits.BEST: "the best of six, chosen afterwards"}
FIRST, LAST = 250, 1000  # training rows between which errors fall


def _aims() -> str:
    return " | ".join(f"+{limits.AIMS[other]:.3f}" for other in limits.RIVALS)


def _gain(row: Row) -> str:
    return f"{row['gain']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})"


def _head(first: str) -> list[str]:
    others = " | ".join(f"over {called(other, 'regression')}" for other in limits.RIVALS)
    return [f"| {first} | R² | {others} |", "|---" * (2 + len(limits.RIVALS)) + "|", f"| *aim* | | {_aims()} |"]


def sizes() -> list[str]:
    """Gains of the estimator by size of table, and of the best baseline of each table."""
    stored, lines = read("real_tables")["groups"], []
    for name, measure in MEASURED.items():
        for words, ending in [
            *((f"at most {most:,} rows", f", at most {most} rows") for most in limits.MOST),
            ("all", ""),
        ]:
            group = stored[name + ending]
            gains = {row["over"]: row for row in group["gains"] if row["model"] == "innergrad"}
            cells = " | ".join(_gain(gains[other]) for other in limits.RIVALS)
            means = {row["model"]: row["mean"] for row in group["models"]}
            best = f"{group['best_afterwards'] - means['linear']:+.3f}"
            lines.append(f"| {words} ({group['tables']}) | {measure} | {cells} | {best} |")
    head = _head("tables")
    head[0] += " the best of six, chosen afterwards, over tuned ridge |"
    head[1] += "---|"
    head[2] += " |"
    return [*head, *lines]


def blends() -> list[str]:
    """Gains of the mean of four baselines, beside the estimator and the best baseline of each table."""
    if not (RESULTS / "real_tables_blend.json").exists():
        return NONE
    stored, lines = read("real_tables_blend"), _head("model")
    for name, measure in MEASURED.items():
        gains = {(row["model"], row["over"]): row for row in stored["gains"] if row["measure"] == name}
        for model in ("innergrad", blend.NAME, limits.BEST):
            cells = " | ".join(_gain(gains[model, other]) for other in limits.RIVALS)
            lines.append(f"| {NAMES.get(model, called(model, 'regression'))} | {measure} | {cells} |")
    words = []
    for name, measure in MEASURED.items():
        over = {row["over"]: row for row in stored["gains"] if row["measure"] == name and row["model"] == "innergrad"}
        for other in (blend.NAME, limits.BEST):
            words.append(f"over {NAMES[other]} {_gain(over[other])}, wins {over[other]['wins']:.0%} ({measure})")
    return [*lines, "", f"{stored['tables']} tables. innergrad gains {'; '.join(words)}."]


def excess() -> list[str]:
    """Of the error above the least that is known: how much goes away from 250 to 1,000 training rows."""
    if not (RESULTS / "real_tables_all_rows.json").exists():
        return NONE
    stored = read("real_tables_all_rows")
    errors = {
        (row["model"], row["rows"]): row["error"]
        for row in read("real_tables")["context"]
        if row["task"] == "regression"
    }
    floors = {
        "the six, 1,000 rows": stored["thousand"],
        "and three of them, all rows": stored["all"],
        "and the learner alone": stored["learner"],
    }
    heads = " | ".join(f"{words}: {floor:.3f}" for words, floor in floors.items())
    lines = [f"| model | error, {FIRST} rows | {LAST:,} rows | falls by | {heads} |", "|---" * 7 + "|"]
    for model in dict.fromkeys(model for model, _ in errors):
        first, last = errors[model, FIRST], errors[model, LAST]
        shares = " | ".join(f"{(first - last) / (first - floor):.0%}" for floor in floors.values())
        cells = f"{first:.3f} | {last:.3f} | {first - last:.3f} | {shares}"
        lines.append(f"| {called(model, 'regression')} | {cells} |")
    floor = even(*(errors[model, rows] for model in ("learner", "forest") for rows in (FIRST, LAST)))
    return [*lines, "", f"The learner alone and random forest lose the same share if the least error is {floor:.3f}."]


def even(first: float, last: float, other_first: float, other_last: float) -> float:
    """The floor f at which (first - last) / (first - f) is the other's."""
    fall, other = first - last, other_first - other_last
    return (other * first - fall * other_first) / (other - fall)


TABLES: dict[str, Callable[[], list[str]]] = {
    "real_limits_sizes": sizes,
    "real_limits_blend": blends,
    "real_limits_excess": excess,
}
