"""How figures look, and how they are written: one style for the package, its command line and its benchmarks.

    with figures.new(1, 3, size=(14, 4.4)) as (figure, axes):
        axes[0].plot(...)
        figures.save(figure, "out/demo.png")

Figures do not depend on the user's matplotlibrc and change nothing in it; the same numbers give the same file, byte for
byte, with one version of matplotlib, which is an optional extra and imported where a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad.errors import InputError
from innergrad.files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by the colour-blind; GREY for what is beside the point, DARK for words and rules.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
GREY, DARK = "#8a8f98", "#444444"
GREENS = ("#9fd8c3", "#3fb28a", "#006b4f")  # of one kind, from the least to the most
SMALL, LARGE = 9, 14  # beside a text of 11: legends and notes; the title of a whole figure

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "figure.titlesize": LARGE,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "savefig.dpi": 150,
    "svg.hashsalt": "innergrad",  # or ids would be random
}


@contextmanager
def new(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float], share_y: bool = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    """An empty figure of ``size`` inches and its panels, row by row. Draw and save it inside: there the style holds."""
    try:
        import matplotlib.style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("a figure needs matplotlib", hint="pip install 'innergrad[demo]'") from error
    with matplotlib.style.context(["default", STYLE]):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, list(figure.subplots(rows, columns, squeeze=False, sharey=share_y).flat)


def save(figure: Figure, path: Path | str, *, svg: bool = False, mark: str | None = None) -> Path:
    """Write the PNG, whatever its suffix; with ``svg`` the same as SVG beside it. Returns the path of the PNG.

    mark: says in the file who wrote it; see :mod:`innergrad.files`.
    """
    path = Path(path)
    with whole(path) as part:
        figure.savefig(part, format="png", metadata={"Software": mark})
    if svg:
        with whole(path.with_suffix(".svg")) as part:
            figure.savefig(part, format="svg", metadata={"Date": None})
    return path


def whole_numbers(ax: Axes) -> None:
    """Ticks of the x axis at whole numbers only: steps, layers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
