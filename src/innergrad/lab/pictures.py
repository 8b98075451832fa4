"""What the lab measures, as pictures: curves of learners beside baselines, losses of training, results of sweeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.errors import InputError
from innergrad.figures import AMBER, BLUE, DARK, GREEN, GREENS, GREY, ORANGE, SKY
from innergrad.lab.journal import Row, read_log
from innergrad.lab.metrics import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, GREEN, GREY, DARK, *GREENS)  # of baselines beside one learner
LEARNERS = (ORANGE, BLUE, GREEN, SKY, AMBER, *GREENS)  # of several learners, or losses
STYLES = ("--", ":", "-.")  # of baselines beside several learners
ROOM = 1.6  # an axis ends so much above the learner and the first baseline: least squares goes to infinity
LEAST = -2.0  # R^2 below is not shown: with no example, it can be anything
STEEP = 5.0  # a loss that falls by more is drawn on a log axis
WIDTH, HEIGHT = 4.6, 3.9  # inches of a panel
MOST_PANELS = 6  # side by side
SHADED = "shaded: 95 % intervals"


def plot_curves(
    curves: Mapping[str, Curve], measure: str, learner: str, title: str, file: str | Path | None, force: bool
) -> Figure:
    """curves: by predictor."""
    with figures.new(size=(6.4, 4.2)) as (figure, (ax,)):
        draw_curves(ax, curves, measure, learner, title)
        if file is not None:
            figures.save_plot(figure, file, force=force)
    return figure


def draw_curves(ax: Axes, curves: Mapping[str, Curve], measure: str, learner: str, title: str) -> None:
    """The learner in front, its baselines behind; shaded: 95 % intervals over prompts."""
    others = (name for name in curves if name != learner)
    colours = {learner: ORANGE, **{name: COLOURS[n % len(COLOURS)] for n, name in enumerate(others)}}
    for name, curve in curves.items():
        front = name == learner
        width, order = (2.5, 3) if front else (1.6, 2)
        _draw(ax, curve, color=colours[name], lw=width, zorder=order, label="the learner" if front else name)
    _frame(ax, [*curves.values()][:2], measure, title)
    ax.legend(title=SHADED)


def _draw(ax: Axes, curve: Curve, **style: Any) -> None:
    k = curve.k.tolist()
    ax.plot(k, curve.value.tolist(), **style)
    ax.fill_between(k, curve.low.tolist(), curve.high.tolist(), color=style["color"], alpha=0.18, lw=0)


def _frame(ax: Axes, usual: Sequence[Curve], measure: str, title: str) -> None:
    """Axes of a measure. usual: curves that must be seen whole."""
    ax.set(title=title, xlabel="examples seen before the query", ylabel=measure.replace("R^2", "R²"))
    if measure == "squared error":
        top = max(float(curve.value.nan_to_num(0.0).max()) for curve in usual)
        ax.set_ylim(0, ROOM * top or None)
        ax.set_ylabel("squared error / mean square of a label")
    else:
        ax.set_ylim(max(ax.get_ylim()[0], LEAST), 1.05)
    figures.whole_numbers(ax)


# ------------------------------------------------------------------------------------------------- several evaluations

Group = tuple[str, str, Mapping[str, Mapping[str, Curve]]]  # name of the learners, shift in words, curves


def plot_groups(
    groups: Sequence[Group], measures: Sequence[str], learner: str, save: Callable[[Figure], object] | None
) -> Figure:
    """A panel for every shift and measure: one line for each group of learners, and their baselines, dashed.

    With one shift the measures are side by side; else a column is a shift, and a row a measure.
    """
    shifts = list(dict.fromkeys(shift for _, shift, _ in groups))
    if len(shifts) > MOST_PANELS:
        raise InputError("too many shifts for one figure", got=len(shifts) - 1, allowed=f"at most {MOST_PANELS - 1}")
    rows, columns = (1, len(measures)) if len(shifts) == 1 else (len(measures), len(shifts))
    panels = [(measure, shift) for measure in measures for shift in shifts]
    names = list(dict.fromkeys(name for name, _, _ in groups))
    colours = {name: LEARNERS[number % len(LEARNERS)] for number, name in enumerate(names)}
    others = list(dict.fromkeys(name for _, _, found in groups for name in found if name != learner))
    styles = {name: ((GREY, DARK)[n % 2], STYLES[n % len(STYLES)]) for n, name in enumerate(others)}
    with figures.new(rows, columns, size=(WIDTH * columns + 2.4, HEIGHT * rows)) as (figure, axes):
        for ax, (measure, shift) in zip(axes, panels, strict=True):
            here = [(name, found) for name, other, found in groups if other == shift]
            for name, found in here:
                words = name if names[1:] else "the learner"
                _draw(ax, found[learner][measure], color=colours[name], lw=2.2, zorder=3, label=words)
            beside = {name: curves[measure] for _, found in here for name, curves in found.items() if name != learner}
            for name, curve in beside.items():
                colour, style = styles[name]
                _draw(ax, curve, color=colour, lw=1.4, ls=style, zorder=4, label=name)  # seen where they coincide
            title = shift if len(shifts) > 1 else ""
            _frame(ax, [*(found[learner][measure] for _, found in here), *[*beside.values()][:1]], measure, title)
        shown = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(list(shown.values()), list(shown), loc="outside right center", title=SHADED)
        if len(shifts) == 1:
            figure.suptitle(shifts[0])
        if save is not None:
            save(figure)
    return figure


# ---------------------------------------------------------------------------------------------------- training, sweeps


def plot_loss(run: str | Path, path: str | Path | None = None, *, force: bool = False) -> Figure:
    """The loss of training by step, a line for each model of the run.

    Args:
        run: the folder of a run.
        path: save it there, as a PNG.
        force: replace a file that no plot wrote.

    Examples:
        >>> from innergrad import lab
        >>> shape = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8)
        >>> short = lab.TrainConfig(steps=6, batch=4, log_every=2)
        >>> _ = lab.train(lab.Experiment(n_points=4, task=lab.Linear(d=2), learner=shape, train=short), "run")
        >>> figure = lab.plot_loss("run", "loss.png")
    """
    rows = read_log(run)
    if not rows:
        raise InputError(f"the log of {run} is empty", hint="train further: a line comes every train.log_every steps")
    with figures.new(size=(6.4, 4.2)) as (figure, (ax,)):
        draw_log(ax, rows)
        if path is not None:
            figures.save_plot(figure, path, force=force)
    return figure


def draw_log(ax: Axes, rows: Sequence[Row]) -> None:
    """The lines of a log, a line for each model."""
    known = [row for row in rows if row.get("loss") is not None]
    steps, losses = [row["step"] for row in known], [row["loss"] for row in known]
    columns = list(zip(*losses, strict=True)) if losses and isinstance(losses[0], list) else [tuple(losses)]
    for n, column in enumerate(columns):
        label = f"model {n}" if len(columns) > 1 else None
        ax.plot(steps, numbers(column), color=LEARNERS[n % len(LEARNERS)], lw=1.8, label=label)
    ax.set(title="Loss of training", xlabel="step", ylabel="loss", yscale=scale_of(columns))
    if len(columns) > 1:
        ax.legend()


def numbers(values: Sequence[float | None]) -> list[float]:
    return [math.nan if value is None else value for value in values]


def scale_of(columns: Sequence[Sequence[float | None]]) -> str:
    """A log axis for numbers that are far apart."""
    positive = [value for column in columns for value in column if value is not None and value > 0]
    return "log" if positive and max(positive) > STEEP * min(positive) else "linear"
