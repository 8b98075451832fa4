"""What was found on a table, in plain words: for the terminal, the JSON and the report alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from innergrad.errors import plural, readable
from innergrad.tables.table import Table
from innergrad.written import Plan, Task, Value

CLEAR = 2.0  # standard errors: a difference of more is no chance
MATTERS, MOST_IMPORTANT = 0.005, 5  # a column matters if the score falls by more; the most that are named
LOPSIDED = 0.8  # a value that more than this share of the rows have is worth a word
ALMOST = 0.995  # R² that would be rounded to 1
VISIBLE = 0.002  # a smaller difference of scores is none, however sure it is
LOOSE, UNSAFE = 0.05, 0.7  # intervals of 80%: so far off is not worth a word; so few covered, and they mislead
UNITS = {"dates": "days", "times": "hours"}
KINDS = {"numbers": "of numbers", "dates": "of dates", "times": "of times", "yes or no": "of yes or no"}
KINDS |= {"categories": "of categories"}
Score = Mapping[str, Any]


def about_file(table: Table) -> str:
    """ "houses.csv: 240 rows teach, and 12 rows have no target."."""
    known, queries = len(table.known), len(table.queries)
    asked = f", and {plural(queries, 'row')} {'has' if queries == 1 else 'have'} no target" if queries else ""
    return f"{table.sheet.path.name}: {plural(known, 'row')} teach{asked}."


def about_target(target: Plan, task: Task, why: str) -> str:
    kind = "amounts" if task == "numbers" else "classes"
    return f"The target {target.name!r}: {kind}" + (f" ({why})." if why else ".")


def about_columns(plans: Sequence[Plan]) -> list[str]:
    """How many of which kind, and every one that is left out."""
    kinds = Counter(one.kind for one in plans if one.used)
    used = ", ".join(f"{count} {KINDS[kind]}" for kind, count in kinds.most_common())
    lines = [f"Learned from {plural(sum(kinds.values()), 'column')}: {used}."]
    lines += [f"{one.name!r} is {one.words}." for one in plans if not one.used]
    return lines


SCORES = {
    "numbers": "R² is 1 where every prediction is right, and 0 where the mean would do as well",
    "classes": "AUC: how often a row of a class is ranked above one of another; 1 is always, 0.5 is chance",
}


def error_unit(target: Plan) -> str:
    """Of errors of its predictions; empty if it has none."""
    return UNITS.get(target.kind, target.unit)


def score_rows(task: Task, scores: Sequence[Score], unit: str) -> list[list[str]]:
    """The table of scores as text, the header first."""
    if task == "numbers":
        rows = [["method", "R²", "±", f"typical error, {unit}" if unit else "typical error", "seconds"]]
        for one in scores:
            rows.append([one["method"], f"{one['r2']:.3f}", f"{one['spread']:.3f}", readable(one["typical_error"], 3)])
    else:
        rows = [["method", "AUC", "±", "right", "log-loss", "seconds"]]
        for one in scores:
            cells = [f"{one['auc']:.3f}", f"{one['spread']:.3f}", f"{one['right']:.1%}", f"{one['log_loss']:.3f}"]
            rows.append([one["method"], *cells])
    for row, one in zip(rows[1:], scores, strict=True):
        row.append(f"{one['seconds']:.1f}")
    return rows


def verdict(
    task: Task, target: str, scores: Sequence[Score], gains: Sequence[tuple[float, float]], unit: str = ""
) -> list[str]:
    """How good the learner is; how that compares with the best of the others; how far its intervals can be trusted.

    gains: over each of the other methods, with the standard error. unit: of errors.
    """
    key = "r2" if task == "numbers" else "auc"
    own, others = scores[0], scores[1:]
    best = max(range(len(others)), key=lambda place: others[place][key])
    others_can = others[best][key] - others[0][key] > CLEAR * others[best]["spread"]
    told = [_level(task, target, own, gains[0], others_can, unit)]
    told += [_beside(others[best], gains[best], key)] if others_can else []
    return told + ([_intervals(own)] if "covered_80" in own else [])


def is_clear(gain: float, spread: float) -> bool:
    """More than chance."""
    return gain > CLEAR * spread


def _level(task: Task, target: str, own: Score, over_nothing: tuple[float, float], others_can: bool, unit: str) -> str:
    gain, spread = over_nothing
    if not is_clear(gain, spread):
        none = "" if others_can else f", and no other method is: these columns, or so few rows, do not tell {target!r}"
        what = "the mean" if task == "numbers" else "chance"
        return f"In context it is not clearly better than {what}{none}. Decide nothing by it."
    if task == "numbers":
        share = "over 99%" if ALMOST <= own["r2"] < 1.0 else f"{max(own['r2'], 0.0):.0%}"
        error = f"{readable(own['typical_error'], 3)} {unit}".strip()
        half = f"half of the predictions are off by less than {error}"
        return f"In context, {share} of the variance of {target!r} is explained; {half}."
    return f"In context, {own['right']:.0%} of the classes are right, and the AUC is {own['auc']:.2f}."


def _beside(other: Score, over: tuple[float, float], key: str) -> str:
    gain, spread = over
    name, score = other["method"], f"{other[key]:.3f}"
    if is_clear(abs(gain), spread) and abs(gain) < VISIBLE:
        return f"The best of the other methods, {name}, is as good ({score})."
    if is_clear(gain, spread):
        return f"That is better than every other method here; the next is {name} ({score})."
    if is_clear(-gain, spread):
        return f"Of the other methods, {name} is clearly better here ({score}): where the score is all, use that."
    return f"On these rows it cannot be told apart from the best of the other methods, {name} ({score})."


def _intervals(own: Score) -> str:
    covered, rows = own["covered_80"], own["rows"]
    off, chance = covered - 0.8, CLEAR * math.sqrt(0.8 * 0.2 / rows)
    if abs(off) <= LOOSE:
        honest = ""
    elif abs(off) <= chance:
        honest = "; of so few rows, that may be chance"
    elif off > 0:
        honest = ": they are wider than needed"
    else:
        honest = ": they are too narrow" if covered >= UNSAFE else ": do not rely on them"
    return f"Intervals that should have 80% of the targets had {covered:.0%}{honest}."


def important(matters: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The columns that matter most, of all in their order."""
    return [one for one in matters[:MOST_IMPORTANT] if one["fall"] > MATTERS]


def most_important(matters: Sequence[Mapping[str, Any]]) -> str:
    """The columns that count, if any does."""
    some = important(matters)
    if not some:
        return "No single column matters much: shuffling one hardly lowers the score."
    return "What matters most (how far the score falls if the column is shuffled): " + ", ".join(
        f"{one['column']} {one['fall']:.2f}" for one in some
    )


def lopsided(task: Task, target: str, values: Sequence[Value]) -> list[str]:
    """A word on the most frequent target, if almost all rows have it."""
    (most, count), *_ = Counter(values).most_common(1)
    share = count / len(values)
    if share <= LOPSIDED:
        return []
    if task == "classes":
        return [f"{share:.1%} of the rows are {most!r}: who always says so is right as often."]
    return [
        f"{target!r} is {readable(float(most or 0.0))} in {share:.1%} of the rows: the others are few to learn from."
    ]


def about_score(score: Mapping[str, Any]) -> str:
    """Of new rows whose target the file knows."""
    rows = plural(score["rows"], "row")
    taught, know = score["taught"], "The file knows the"
    again = f" {taught:,} of these rows taught: their score is too good." if taught else ""
    if "right" in score:
        most = f" ({score['most']:.0%} are of one class)" if score["most"] > LOPSIDED else ""
        return f"{know} class of {rows}: {score['right']:.0%} are right{most}.{again}"
    r2 = "" if score["r2"] is None else f"R² is {score['r2']:.3f}, and "
    return f"{know} target of {rows}: {r2}{score['covered']:.0%} lie between low and high.{again}"
