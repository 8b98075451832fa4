"""An explanation as a picture: bound and measured error on one axis, per step and per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad.errors import InputError
from innergrad.explain.explanation import Explanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = "#0072b2", "#d55e00"  # told apart by the colour-blind; path and steps also differ by their lines
HUGE = 1e4  # the axis ends before bounds so much above every measured error, lest all else be squeezed


def draw(explanation: Explanation, path: Path | str) -> None:
    """Write a PNG: on the left errors by step, on the right, of the worst step, by layer."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise InputError("a figure needs matplotlib", hint="pip install 'innergrad[demo]'") from error
    style: dict[Any, Any] = {
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titleweight": "bold",
    }
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), layout="constrained")
        _draw_steps(left, explanation)
        _draw_layers(right, explanation)
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _draw_steps(ax: Axes, explanation: Explanation) -> None:
    from matplotlib.ticker import MaxNLocator

    steps, numbers = explanation.steps, range(1, len(explanation.steps) + 1)
    path = [math.nan if step.path_bound is None else step.path_bound for step in steps]
    lines = [
        ([step.bound for step in steps], BLUE, "-", f"{explanation.learned} of a step: bound"),
        ([step.measured for step in steps], ORANGE, "-", f"{explanation.learned} of a step: measured"),
        (path, BLUE, ":", "distance to the exact path: bound"),
        ([step.path for step in steps], ORANGE, ":", "distance to the exact path: measured"),
    ]
    lines = [line for line in lines if not all(map(math.isnan, line[0]))]  # no path bound, no line
    drawn = [value for values, *_ in lines for value in values]
    top = _limits(ax, drawn, max([step.path for step in steps] + [step.measured for step in steps]))
    for values, colour, line, label in lines:
        marker = {"marker": "s" if line == ":" else "o", "ms": 4.0}
        ax.plot(numbers, _positive(values), line, color=colour, lw=2.0, label=label, **dict[str, Any](marker))
        _infinite(ax, numbers, values, top, colour)
    kind = "sup errors" if explanation.proven else "errors at the arguments"
    ax.set(
        title=f"Error by step (bounds from {kind})",
        xlabel="step",
        ylabel="Euclidean norm",
        xlim=(0.5, len(steps) + 0.5),
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, fontsize=9, loc="best")


def _draw_layers(ax: Axes, explanation: Explanation) -> None:
    layers = explanation.layers[-40:]
    numbers = range(len(layers))
    bounds, measured = [layer.bound for layer in layers], [layer.measured for layer in layers]
    top = _limits(ax, [*bounds, *measured], 0.0)
    for values, colour, marker, label in ((bounds, BLUE, "_", "bound"), (measured, ORANGE, "o", "measured")):
        ax.plot(numbers, _positive(values), marker, color=colour, ms=14 if marker == "_" else 6, mew=3, label=label)
        _infinite(ax, numbers, values, top, colour)
    ax.grid(axis="x", lw=0.4, color="#dddddd")
    ax.set_xticks(
        list(numbers), [layer.name for layer in layers], rotation=40, ha="right", fontsize=9 if len(layers) < 20 else 6
    )
    ax.set(title=f"Largest error of what a layer wrote, step {explanation.worst}", ylabel="largest entry")
    ax.legend(frameon=False, fontsize=9, loc="best")


def _limits(ax: Axes, values: Sequence[float], measured: float) -> float:
    """A log axis for what is positive and, beside something measured, not enormous; the height at which what is
    infinite is drawn.
    """
    reach = HUGE * measured if measured > 0.0 else math.inf
    known = [value for value in values if 0.0 < value < reach and math.isfinite(value)] or [1.0]
    top: float = max(known) * (max(known) / min(known)) ** 0.12 * 2
    ax.set_yscale("log")
    ax.set_ylim(min(known) / 2, top * 1.4)
    return top


def _infinite(ax: Axes, numbers: Sequence[int], values: Sequence[float], top: float, colour: str) -> None:
    """A marker at the top of the axis for what is infinite, and the word."""
    places = [number for number, value in zip(numbers, values, strict=True) if math.isinf(value)]
    if places:
        ax.plot(places, [top] * len(places), "^", color=colour, ms=6)
        ax.annotate("infinite", (places[0], top), (0, -16), textcoords="offset points", color=colour, fontsize=9)


def _positive(values: Sequence[float]) -> list[float]:
    return [value if 0.0 < value < math.inf else math.nan for value in values]
