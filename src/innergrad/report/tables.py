"""The report of a fitted table: how good the predictions are, how sure they can be, what they rest on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from innergrad import figures
from innergrad.errors import plural, shortened
from innergrad.figures import BLUE, GREY, ORANGE, SMALL
from innergrad.manifest import manifest
from innergrad.report.page import Page, Picture, Section, Table, number
from innergrad.tables import words
from innergrad.tables.fitted import FIRST, PREDICTIONS, Fitted, load, read_predictions, read_validation, shown_places
from innergrad.tables.scoring import LEVELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (5.4, 4.0)
BARS = 15  # columns of the picture of those that matter
WORST = 10  # rows of the table of the largest errors
NEW, BESIDES = FIRST, 3  # new rows that are shown, each with so many of the columns that matter most
DOTS = 1500  # of a scatter plot
BASES = {"r2": (0.0, "the mean"), "auc": (0.5, "chance")}  # where bars begin: the score of who has learned nothing
WORST_SHOWN = -1.0  # R² of a bar: those below end here
BINS = 8  # of the picture of reliability
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BESIDE = "Predicted against actual, and how sure it is"
WRITTEN = "It is a transformer whose weights were written by a compiler."
IS = {
    "pretrained": "It is a transformer that was trained on made-up tables, and has never seen yours. The rows of your "
    "table are its prompt. It reads them and answers for new rows: no weight changes.",
    "gd": f"{WRITTEN} Its forward pass trains a small network on your rows, by gradient descent. Rate and number of "
    "steps were chosen on rows held out.",
    "ridge": f"{WRITTEN} Its forward pass is ridge regression on your rows: a weighted sum of the columns. The penalty "
    "was chosen on rows held out.",
    "kernel": f"{WRITTEN} Its forward pass is gradient descent on a function, with a kernel that says which rows are "
    "alike.",
}
IS_NOT = (
    "It takes rows as separate cases, and new rows as cases of the same kind. It knows nothing of time: for a series, "
    "where today depends on yesterday, this score is too good. If the world has changed since the rows were collected, "
    "so has the score.",
    "It does not read free text or pictures, and it does not know the meaning of a column.",
    "It says what tends to go together, not what causes what. Changing a column in the world need not change the "
    "target as the prediction does.",
)


def report_of_fit(folder: Path) -> Page:
    """The page, from the files that `innergrad fit` wrote."""
    model, found = load(folder)
    lines, actual, numbers = read_validation(folder)
    target = model.target.name
    beside = _amounts(model, lines, actual, numbers) if model.task == "numbers" else _classes(model, actual, numbers)
    new = _new_rows(model, found, folder)
    sections = [_scores(model, found), beside, *new, _matters(model, found)]
    sections += [_columns(model, found), _nature(model, found)]
    made = manifest(
        {"data": found["data"], **{key: value for key, value in found["model"].items() if key != "columns"}}
    )
    title = f"{shortened(target, 60)}, predicted from {found['data']}"
    lead = f"{found['file']} {' '.join(found['verdict'])}"
    numbers_of = {key: found[key] for key in ("data", "rows", "scores", "gains", "matters", "verdict", "warnings")}
    return Page(title, lead, sections, json.dumps(made, indent=1), numbers_of, found["warnings"])


# --------------------------------------------------------------------------------------------------------------- scores


def _scores(model: Fitted, found: Mapping[str, Any]) -> Section:
    scores = found["scores"]
    key, name = ("r2", "R²") if model.task == "numbers" else ("auc", "AUC")
    about = [
        f"{found['about_target']} The rows were cut into {found['folds']} parts. Every part was predicted from the "
        f"others, so each row was predicted by a model that had not seen it. {words.SCORES[model.task]}.",
        *(["Half of the predictions are off by less than the typical error."] if model.task == "numbers" else []),
        "The method called in context is the model of this page. A difference of less than two standard errors may be "
        "chance.",
    ]
    gains = {one["over"]: f"{one['gain']:+.3f} ± {one['spread']:.3f}" for one in found["gains"]}
    header, *rows = words.score_rows(model.task, scores, found.get("unit", ""))
    table = [[*header, "in context is better by"], *([*row, gains.get(row[0], "")] for row in rows)]
    bars = _panel(lambda ax: _draw_bars(ax, scores, key, name), f"{name} of every method; lines are standard errors.")
    return Section("How good it is", about, [bars], [Table("Scores", table)])


def _draw_bars(ax: Axes, scores: Sequence[Mapping[str, Any]], key: str, name: str) -> None:
    labels = [one["method"] for one in scores][::-1]
    values = [one[key] for one in scores][::-1]
    base, nothing = BASES[key]
    ends = [max(value, WORST_SHOWN) for value in values]
    colours = [GREY] * (len(scores) - 1) + [ORANGE]
    spread = [one["spread"] for one in scores][::-1]
    bars: dict[str, Any] = {"color": colours, "height": 0.62, "xerr": spread, "ecolor": figures.DARK}
    ax.barh(labels, [end - base for end in ends], left=base, **bars)
    ax.axvline(base, color=figures.DARK, lw=1)
    low = min(base, *(end - error for end, error in zip(ends, spread, strict=True)))
    reach = max(1.0, *values) - low
    for place, (value, error) in enumerate(zip(values, spread, strict=True)):
        text = f"{round(value, 2) + 0.0:.2f}"  # no minus before a zero
        ax.text(max(value, base) + error + 0.02 * reach, place, text, va="center", fontsize=SMALL)
    xlim = (low - 0.02 * reach, low + 1.14 * reach)
    ax.set(xlabel=f"{name}; {base:g} is {nothing}", xlim=xlim, title="In context, and other methods")
    ax.grid(axis="y", visible=False)


# -------------------------------------------------------------------------------------------------------------- amounts


def _amounts(model: Fitted, lines: Sequence[int], actual: Sequence[str], numbers: np.ndarray) -> Section:
    y = np.array([float(text) for text in actual])
    predicted, quantiles = numbers[:, 0], numbers[:, 1:]
    low, high = (quantiles[:, LEVELS.index(level)] for level in (0.1, 0.9))
    inside = float(((low <= y) & (y <= high)).mean())
    name = _plain(model.target.name)
    scatter = _panel(
        lambda ax: _draw_scatter(ax, y, predicted, name),
        "A dot is a row, predicted by a model that had not seen it. On the line, the prediction is right.",
    )
    levels = _panel(
        lambda ax: _draw_levels(ax, y, quantiles),
        "For every share that should lie below a predicted value: the share that did. On the line, they are equal.",
    )
    largest = np.argsort(-np.abs(y - predicted), kind="stable")[:WORST]
    rows = [["line of the file", "actual", "prediction", "low", "high", "off by"]]
    for row in largest:
        values = (y[row], predicted[row], low[row], high[row], predicted[row] - y[row])
        rows.append([f"{lines[row]:,}", *(number(float(value)) for value in values)])
    about = (
        f"Of {len(y):,} rows, {inside:.0%} lie between low and high, where 80% should. An interval is for one new row: "
        "it says how far apart the row and its prediction may be. Where cells are missing it is wider; for rows unlike "
        "all others it is too narrow."
    )
    wrong = Table("The rows it was most wrong about", rows, shown=False)
    return Section(BESIDE, [about], [scatter, levels], [wrong])


def _draw_scatter(ax: Axes, y: np.ndarray, predicted: np.ndarray, name: str) -> None:
    some = np.random.default_rng(0).permutation(len(y))[:DOTS]
    low, high = float(min(y.min(), predicted.min())), float(max(y.max(), predicted.max()))
    ax.plot([low, high], [low, high], color=GREY, lw=1, zorder=0)
    ax.scatter(y[some], predicted[some], s=14, color=ORANGE, edgecolor="white", lw=0.3, alpha=0.8)
    ax.set(xlabel=f"actual {name}", ylabel=f"predicted {name}", title=plural(len(some), "row"))
    if max(abs(low), abs(high)) >= 1000:
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:,.0f}" if max(abs(low), abs(high)) < 1e9 else "{x:.1g}")
        figures.few_ticks(ax)


def _draw_levels(ax: Axes, y: np.ndarray, quantiles: np.ndarray) -> None:
    below = (y[:, None] <= quantiles).mean(0)
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, zorder=0)
    ax.plot(LEVELS, below, "o-", color=BLUE, ms=5)
    ax.set(xlabel="should lie below", ylabel="lies below", xlim=(0, 1), ylim=(0, 1), title="Calibration")


# -------------------------------------------------------------------------------------------------------------- classes


def _classes(model: Fitted, actual: Sequence[str], probabilities: np.ndarray) -> Section:
    classes = model.classes
    y = np.array([classes.index(text) for text in actual])
    best, sure = probabilities.argmax(1), probabilities.max(1)
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (y, best), 1)
    names = [shortened(one, 20) for one in classes]
    rows = [["actual", *(f"predicted {one}" for one in names), "right"]]
    for place, (name, row) in enumerate(zip(names, counts.tolist(), strict=True)):
        rows.append([name, *(f"{count:,}" for count in row), f"{row[place] / max(1, sum(row)):.0%}"])
    reliable = _panel(
        lambda ax: _draw_reliability(ax, sure, best == y),
        "Rows by the probability of the class that was predicted: the share that is right. On the line, a probability "
        "of 70% is right in 70% of the rows.",
    )
    claim = f"On average a prediction claims {sure.mean():.0%}; {float((best == y).mean()):.0%} are right."
    tables = [Table("Rows by their class, and by the class predicted", rows)]
    if len(classes) == 2:
        tables.append(_acting(names[1], y == 1, probabilities[:, 1]))
    return Section(BESIDE, [claim], [reliable], tables)


def _acting(name: str, true: np.ndarray, chance: np.ndarray) -> Table:
    """Of two classes: what follows if one acts on every row whose probability of the second is high enough."""
    rows = [["from a probability of", "rows", f"of which {name}", f"share of all {name}"]]
    for least in THRESHOLDS:
        chosen = chance >= least
        hits, all_ = int((chosen & true).sum()), int(chosen.sum())
        right = f"{hits / all_:.0%}" if all_ else ""
        rows.append([f"{least:.0%}", f"{all_:,}", right, f"{hits / max(1, int(true.sum())):.0%}"])
    return Table(f"If you act on every row that is {name} with at least some probability", rows, 0)


def _draw_reliability(ax: Axes, sure: np.ndarray, right: np.ndarray) -> None:
    order = np.argsort(sure, kind="stable")
    parts = [part for part in np.array_split(order, min(BINS, max(1, len(order) // 10))) if len(part)]
    claimed, found = ([float(values[part].mean()) for part in parts] for values in (sure, right))
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, zorder=0)
    ax.plot(claimed, found, "o-", color=BLUE, ms=5)
    ax.set(xlabel="probability", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1.02), title="Reliability")


# ------------------------------------------------------------------------------------------------------------- new rows


def _new_rows(model: Fitted, found: Mapping[str, Any], folder: Path) -> list[Section]:
    """The predictions that the folder has, if it has any."""
    known, lines = read_predictions(folder, NEW)
    if not lines:
        return []
    header, *rows = lines
    own = len(header) - len(known["columns"])
    ours = [own + place for place in shown_places(model.classes)]
    beside = [header.index(one["column"]) for one in words.important(found["matters"]) if one["column"] in header[:own]]
    chosen = [*sorted(beside[:BESIDES]), *ours]
    below = known.get("lines", ())
    table = [["line" if below else "row", *(shortened(header[place], 30) for place in chosen)]]
    for line, row in zip(below or range(1, 1 + len(rows)), rows, strict=False):
        table.append([f"{line:,}", *(shortened(row[place], 30) for place in chosen)])
    more = f"; the first {len(rows)} of {known['rows']:,}" if known["rows"] > len(rows) else ""
    about = [f"Rows of {known['of']} whose {model.target.name} is asked for. {PREDICTIONS} has them with all columns."]
    if "interval" in known:
        about.append(f"{known['interval']:.0%} of the true values should lie between low and high.")
    about += [f"{note[0].upper()}{note[1:]}." for note in known.get("notes", ())]
    about += [words.about_score(known["score"])] if known.get("score") else []
    return [Section("New rows", about, [], [Table(f"{plural(known['rows'], 'prediction')}{more}", table)])]


# -------------------------------------------------------------------------------------------------------------- columns


def _matters(model: Fitted, found: Mapping[str, Any]) -> Section:
    falls = [(one["column"], one["fall"]) for one in found["matters"]]
    name = "R²" if model.task == "numbers" else "AUC"
    about = [
        f"A column was shuffled among rows that the model had not seen. The picture says how far {name} fell. Columns "
        "that say the same share what they know: each alone may seem to matter little.",
    ]
    caption = f"How far {name} falls if a column is shuffled" + (f"; the first {BARS}." if len(falls) > BARS else ".")
    rows = [["column", f"{name} falls by"], *([shortened(column, 60), f"{fall:.3f}"] for column, fall in falls)]
    picture = _panel(
        lambda ax: _draw_matters(ax, falls[:BARS], name), caption, max(2.2, 0.9 + 0.26 * min(BARS, len(falls)))
    )
    return Section("Which columns matter", about, [picture], [Table("All of them", rows, shown=False)])


def _draw_matters(ax: Axes, falls: Sequence[tuple[str, float]], name: str) -> None:
    labels = [_plain(column) for column, _ in falls][::-1]
    ax.barh(range(len(falls)), [fall for _, fall in falls][::-1], color=BLUE, height=0.62)
    ax.set_yticks(range(len(falls)), labels)
    ax.set(xlabel=f"{name} falls by")
    ax.grid(axis="y", visible=False)


def _plain(name: str) -> str:
    """For a picture: short, and no formula."""
    return shortened(name, 24).replace("$", r"\$")


def _columns(model: Fitted, found: Mapping[str, Any]) -> Section:
    rows = [["column", "used", "what was done with it"]]
    rows += [[shortened(one.name, 60), "yes" if one.used else "no", one.words] for one in model.plans]
    about = [f"{note[0].upper()}{note[1:]}." for note in [*found["notes"], *found["learner"]] if note]
    return Section("Every column", about, [], [Table(plural(len(model.plans), "column"), rows, 3, wrap=True)])


def _nature(model: Fitted, found: Mapping[str, Any]) -> Section:
    kept = (
        f"The folder keeps the {found['rows']:,} rows that teach, and the name of the engine, {model.engine.engine}. "
        "This predicts new rows: innergrad fit --model FOLDER --predict new.csv"
    )
    return Section("What the model is, and is not", [IS[model.engine.engine], *IS_NOT, kept])


def _panel(draw: Callable[[Axes], None], caption: str, height: float = SIZE[1]) -> Picture:
    with figures.new(size=(SIZE[0], height)) as (figure, (ax,)):
        draw(ax)
        return Picture(figures.as_svg(figure), caption)
