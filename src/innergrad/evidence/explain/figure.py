"""An explanation as a picture: bound and measured error on one axis, per step and per layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.evidence.explain.explanation import Explanation
from innergrad.figures import BLUE, ORANGE, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HUGE = 1e4  # the axis ends before bounds so much above every measured error, lest all else be squeezed


def draw(explanation: Explanation, path: Path | str, mark: str | None = None) -> None:
    """Write a PNG: on the left errors by step, on the right, of the worst step, by layer. mark: as in figures.save."""
    with figures.new(1, 2, size=(13, 5)) as (figure, (left, right)):
        _draw_steps(left, explanation)
        _draw_layers(right, explanation)
        figures.save(figure, path, mark=mark)


def _draw_steps(ax: Axes, explanation: Explanation) -> None:
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
    figures.whole_numbers(ax)
    ax.legend()


def _draw_layers(ax: Axes, explanation: Explanation) -> None:
    layers = explanation.layers[-40:]
    numbers = range(len(layers))
    bounds, measured = [layer.bound for layer in layers], [layer.measured for layer in layers]
    top = _limits(ax, [*bounds, *measured], 0.0)
    for values, colour, marker, label in ((bounds, BLUE, "_", "bound"), (measured, ORANGE, "o", "measured")):
        ax.plot(numbers, _positive(values), marker, color=colour, ms=14 if marker == "_" else 6, mew=3, label=label)
        _infinite(ax, numbers, values, top, colour)
    names, size = [layer.name for layer in layers], SMALL if len(layers) < 20 else 6
    ax.set_xticks(list(numbers), names, rotation=40, ha="right", fontsize=size)
    ax.set(title=f"Largest error of what a layer wrote, step {explanation.worst}", ylabel="largest entry")
    ax.legend()


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
        ax.annotate("infinite", (places[0], top), (0, -16), textcoords="offset points", color=colour, fontsize=SMALL)


def _positive(values: Sequence[float]) -> list[float]:
    return [value if 0.0 < value < math.inf else math.nan for value in values]
