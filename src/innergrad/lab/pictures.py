"""An evaluation as a picture: a measure by the number of examples, the learner beside its baselines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from innergrad import figures
from innergrad.figures import BLUE, DARK, GREEN, GREENS, GREY, ORANGE
from innergrad.lab.metrics import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, GREEN, GREY, DARK, *GREENS)
ROOM = 1.6  # an axis ends so much above the learner and the first baseline: least squares goes to infinity


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
        front, k = name == learner, curve.k.tolist()
        width, order = (2.5, 3) if front else (1.6, 2)
        label = "the learner" if front else name
        ax.plot(k, curve.value.tolist(), label=label, color=colours[name], lw=width, zorder=order)
        ax.fill_between(k, curve.low.tolist(), curve.high.tolist(), color=colours[name], alpha=0.18, lw=0)
    ax.set(title=title, xlabel="examples seen before the query", ylabel=measure)
    if measure == "squared error":
        usual = [*curves.values()][:2]
        top = max(float(curve.value.nan_to_num(0.0).max()) for curve in usual)
        ax.set_ylim(0, ROOM * top or None)
        ax.set_ylabel("squared error / mean square of a label")
    figures.whole_numbers(ax)
    ax.legend()
