"""What figures of learners have in common: curves over seeds, beside baselines, and how they are drawn.

A row is one curve: ``by`` a predictor, on a ``test``, at the lengths ``k``; every measure with ``value``, ``low`` and
``high``. Intervals of learners are over seeds (mean, Student's t, 95 %), those of baselines over prompts (bootstrap).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from innergrad import figures
from innergrad.figures import AMBER, BLUE, DARK, GREENS, GREY, ORANGE, SKY, whole_numbers
from innergrad.papers.frame import Record, Save, over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEARNER = "learner"
LAST, BEST = "networks, last epoch", "networks, best epoch (oracle)"
ERROR, POOLED, WITHIN = MEASURES = ("squared error", "pooled R^2", "within-prompt R^2")
COLUMNS = ("value", "low", "high")
SHIFTS = (BLUE, SKY, AMBER, ORANGE)  # from no shift to the largest
OVER = "of learners over seeds,\nof others over prompts"
LOSS = 0.01  # of R^2 that still counts as a match
BOX: dict[str, Any] = {"bbox": {"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1}, "zorder": 5}  # words on lines


def rows_of(records: Iterable[Record]) -> list[Record]:
    """One row for every learner (its seeds together) and for every baseline (its lengths together), test by test."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        key = {name: record[name] for name in ("by", "variant", "layers", "test") if name in record}
        groups.setdefault(json.dumps(key, sort_keys=True), []).append(record)
    return [_seeds(json.loads(key), group) if "seed" in group[0] else _lengths(json.loads(key), group)
            for key, group in groups.items()]  # fmt: skip


def _seeds(key: Record, group: Sequence[Record]) -> Record:
    """The mean over seeds; of one seed, its curve as it is, with its interval over prompts."""
    curves, alone = [record["curves"] for record in group], len(group) == 1
    found = {m: over_seeds([curve[m]["value"] for curve in curves]) for m in MEASURES}
    if alone:
        found = {m: {column: curves[0][m][column] for column in COLUMNS} for m in MEASURES}
    undefined = {m: curves[0][m]["undefined"] for m in MEASURES if "undefined" in curves[0][m]}
    about: Record = {"interval": "prompts" if alone else "seeds", "prompts": group[0]["prompts"]}
    about |= {"seeds": sorted(record["seed"] for record in group)}
    return {**key, **about, "k": curves[0]["k"], **found, **({"undefined": undefined} if undefined else {})}


def _lengths(key: Record, group: Sequence[Record]) -> Record:
    """The lengths of all records in order."""
    places = sorted((k, n, i) for n, record in enumerate(group) for i, k in enumerate(record["curves"]["k"]))
    found: Record = {**key, "interval": "prompts", "prompts": group[0]["prompts"], "k": [k for k, _, _ in places]}
    for m in MEASURES:
        found[m] = {column: [group[n]["curves"][m][column][i] for _, n, i in places] for column in COLUMNS}
    return found


def pick(rows: Iterable[Record], by: str, test: Record | None = None, **wanted: Any) -> Record | None:
    """The first row of a predictor whose name begins so; ``test`` and ``wanted``: entries that it has."""
    for row in rows:
        same = all(row.get(name) == value for name, value in wanted.items())
        if row["by"].startswith(by) and same and all(row["test"][name] == v for name, v in (test or {}).items()):
            return row
    return None


def at(row: Record, measure: str, k: int) -> float | None:
    """The value of a row at a length; None if it has none there."""
    return row[measure]["value"][row["k"].index(k)] if k in row["k"] else None


def shared(first: Record, second: Record, low: int, high: int) -> list[int]:
    """Lengths from low to high that both rows have."""
    return [k for k in first["k"] if low <= k <= high and k in second["k"]]


def least(
    first: Record, second: Record, measure: str, ks: Sequence[int], compare: Callable[[float, float], float]
) -> tuple[float, int] | None:
    """The least of compare(first, second) over lengths, and where; None where one of them is not defined."""
    pairs = [(at(first, measure, k), at(second, measure, k), k) for k in ks]
    known = [(compare(a, b), k) for a, b, k in pairs if a is not None and b is not None]
    return min(known) if known and len(known) == len(pairs) else None


Interval = tuple[float, float]  # a mean, and half the length of its 95 % interval


def spread(row: Record, measure: str, k: int) -> Interval:
    """The value of a row at a length, and half the length of its interval; 0 if it has none."""
    value, low, high = (row[measure][column][row["k"].index(k)] for column in COLUMNS)
    return float(value), 0.0 if low is None or high is None else float(high - low) / 2


def between(one: Interval, other: Interval) -> Interval:
    """The second less the first, and the interval of that: the root of the sum of squares, as if both were independent.

    Predictors that are measured on the same prompts are not, and their difference is then better known than this says.
    """
    return other[0] - one[0], math.hypot(one[1], other[1])


def larger(one: Interval, other: Interval) -> bool:
    """Whether the second of two means is larger by more than the interval of the difference."""
    gap, half = between(one, other)
    return gap > half


def behind(first: Record, second: Record, measure: str, ks: Iterable[int]) -> list[int]:
    """Lengths where the first row is lower by more than LOSS, and by more than the interval of the difference."""
    pairs = {k: (spread(first, measure, k), spread(second, measure, k)) for k in ks}
    return [k for k, (mine, theirs) in pairs.items() if theirs[0] - mine[0] > LOSS and larger(mine, theirs)]


def said(interval: Interval, digits: int = 3) -> str:
    """0.150 ± 0.008; without a length, the value alone."""
    value, half = interval
    return f"{value:.{digits}f}" + (f" ± {half:.{digits}f}" if half else "")


# ------------------------------------------------------------------------------------------------------------- drawing


@contextmanager
def panels(
    rows: int, columns: int, title: str, save: Save, *, share_y: bool | Literal["row"] = True, over: str = OVER
) -> Iterator[list[Axes]]:
    """Panels of one scale (or of one in each row), row by row, to draw into. Then curves that a panel does not reach
    are named at its edge, one legend is put beside them all, and the figure is saved. ``over``: what intervals are
    over.
    """
    size = (4.6 * columns + 2.6, 3.1 * rows + 1.3)
    with figures.new(rows, columns, size=size, share_y=share_y) as (figure, axes):
        yield axes
        known: dict[str, Any] = {}
        for ax in axes:
            name_outside(ax)
            handles, labels = ax.get_legend_handles_labels()
            known |= dict(zip(labels, handles, strict=True))
        size_of_words = figures.SMALL if rows == 1 else figures.STYLE["font.size"]  # a high figure is shown smaller
        about: dict[str, Any] = {"title": f"95 % intervals:\n{over}", "alignment": "left"}
        about |= {"fontsize": size_of_words, "title_fontsize": size_of_words}
        figure.legend(list(known.values()), list(known), loc="outside right center", **about)
        figure.suptitle(title)
        save(figure)


def name_outside(ax: Axes) -> None:
    """Names curves that lie wholly below or above a panel at that edge."""
    bottom, top = ax.get_ylim()
    x, across = 0.4, ax.get_yaxis_transform()
    for sign, edge, arrow in ((1, bottom, "↓"), (-1, top, "↑")):
        away = 0.03 * sign * (top - bottom)
        for line in ax.get_lines():
            label, values = str(line.get_label()), np.asarray(line.get_ydata(), float)
            if label.startswith("_") or not values.size or np.any(sign * (values - edge) >= 0):
                continue
            place: dict[str, Any] = {"transform": across, "ha": "center", "va": "bottom" if sign > 0 else "top"}
            ax.text(x, edge + away, f"{arrow} {label}", color=line.get_color(), fontsize="small", **place, **BOX)
            away += 0.07 * sign * (top - bottom)


def tell_cut(ax: Axes, row: Record, measure: str, since: int, colour: str, place: tuple[float, float]) -> None:
    """Says how far a learner's curve and its interval go, where the panel cuts them at a length from ``since`` on.

    ``place``: of the middle of the words, in shares of the panel.
    """
    bottom, top = ax.get_ylim()
    curves = ([row[measure][column][i] for i, k in enumerate(row["k"]) if k >= since] for column in COLUMNS)
    value, low, high = ([one for one in curve if one is not None] for curve in curves)
    words = [f"learner: down to {min(value):.1f}"] if value and min(value) < bottom else []
    if low and (min(low) < bottom or max(high) > top):
        words.append(f"{'its' if words else 'learner’s'} interval: {min(low):.1f} to {max(high):.1f}")
    if words:
        look: dict[str, Any] = {"color": colour, "fontsize": figures.SMALL, "ha": "center", "va": "center", **BOX}
        ax.text(*place, "\n".join(words).replace("-", "−"), transform=ax.transAxes, **look)


def draw_row(ax: Axes, row: Record, measure: str, label: str, *, bars: Sequence[int] = (), **style: Any) -> None:
    """A curve with its interval: shaded, or as bars at the lengths ``bars``. Lengths without a value are left out."""
    curve = row[measure]
    known = [i for i, value in enumerate(curve["value"]) if value is not None]
    k, value = [row["k"][i] for i in known], [curve["value"][i] for i in known]
    ax.plot(k, value, label=label, **style)
    low, high = ([curve[side][i] for i in known] for side in ("low", "high"))
    if not known or None in low:
        return
    if bars:
        at_ = [i for i, length in enumerate(k) if length in bars]
        ends = [[value[i] - low[i] for i in at_], [high[i] - value[i] for i in at_]]
        shape: dict[str, Any] = {"fmt": "none", "elinewidth": 1.2, "capsize": 3, "zorder": style.get("zorder", 2)}
        ax.errorbar([k[i] for i in at_], [value[i] for i in at_], ends, ecolor=style["color"], **shape)
    else:
        ax.fill_between(k, low, high, color=style["color"], alpha=0.18, lw=0)


def draw_beside(ax: Axes, rows: Sequence[Record], test: Record, measure: str) -> None:
    """The predictors that a learner is compared with, on its test."""
    _, light, dark = GREENS  # last and best epoch are often the same: a line on dots
    styles: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("NNGP", "posterior (NNGP)", {"color": DARK, "lw": 1.8, "ls": ":", "zorder": 4}),  # learners are often as good
        (LAST, "network trained on the prompt", {"color": light, "lw": 0, "marker": "o", "ms": 5}),
        (BEST, "the same, best epoch (oracle)", {"color": dark, "lw": 1.2, "zorder": 2.5}),
        ("ridge", "ridge (λ by leave-one-out)", {"color": GREY, "lw": 1.2, "ls": "--"}),
        ("mean", "mean of the labels", {"color": GREY, "lw": 1.2}),
    )
    for by, label, style in styles:
        row = pick(rows, by, test)
        if row is not None:
            draw_row(ax, row, measure, label, **style)


def frame(ax: Axes, measure: str, trained: int, title: str = "") -> None:
    """Axes that all panels share; ``trained``: the longest prompt of training."""
    ax.axvline(trained, color=GREY, lw=0.8, ls=(0, (4, 3)))
    ax.set_ylim(-0.05, 1.02)
    ax.set(xlabel="examples (dashed: most in training)", ylabel=measure.replace("R^2", "R²"), title=title)
    whole_numbers(ax)
