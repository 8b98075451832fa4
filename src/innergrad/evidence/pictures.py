"""A certificate as a picture: the bound of every step and, beside the exact run, the true distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.figures import BLUE, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HUGE = 1e4  # an axis ends before bounds on the path so much above all else, for they may diverge


def plot_certificate(
    step: Sequence[float],
    path: Sequence[float] | None,
    distance: Sequence[float] | None,
    file: str | Path | None,
    force: bool,
) -> Figure:
    """Bounds by step: of the gradient in the step; of the distance to the algorithm's path; and the distance itself."""
    with figures.new(size=(6.4, 4.8)) as (figure, (ax,)):
        draw_certificate(ax, step, path, distance)
        if file is not None:
            figures.save_plot(figure, file, force=force)
    return figure


def draw_certificate(
    ax: Axes, step: Sequence[float], path: Sequence[float] | None, distance: Sequence[float] | None
) -> None:
    marked: dict[str, Any] = {"marker": "o", "ms": 4.0, "lw": 2.0}
    lines: list[tuple[Sequence[float], dict[str, Any]]] = []
    if path is not None:
        words = "distance of the weights to the exact ones: proven bound"
        lines.append((path, marked | {"color": BLUE, "label": words}))
    if distance is not None:
        lines.append((distance, marked | {"color": ORANGE, "label": "the same distance, measured"}))
    words = "error of the gradient of one step: proven bound"
    lines.append((step, marked | {"color": BLUE, "ls": ":", "ms": 3.0, "label": words}))
    largest = max([*step, *(distance or ())])
    figures.log_lines(ax, range(1, len(step) + 1), lines, HUGE * largest if 0.0 < largest < math.inf else math.inf)
    ax.set(title="How far from the algorithm", xlabel="step", ylabel="Euclidean norm", xlim=(0.5, len(step) + 0.5))
    figures.whole_numbers(ax)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.legend(loc="outside lower center")  # lines may go anywhere
