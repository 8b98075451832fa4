"""How figures look, and how they are written: one style for the package, its command line and its benchmarks.

    with figures.new(1, 3, size=(14, 4.4)) as (figure, axes):
        axes[0].plot(...)
        figures.save(figure, "out/demo.png")

Figures do not depend on the user's matplotlibrc and change nothing in it. The same numbers give the same file, byte for
byte, with one version of matplotlib. matplotlib is an optional extra, imported where a figure is drawn.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from innergrad.errors import InputError
from innergrad.files import Writer, make_folder, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, told apart by the colour-blind; GREY for what is beside the point, DARK for words and rules.
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
GREY, DARK = "#8a8f98", "#444444"
SKY, AMBER = "#56b4e9", "#e69f00"  # two more of theirs, for steps between BLUE and ORANGE
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
    rows: int = 1, columns: int = 1, *, size: tuple[float, float], share_y: bool | Literal["row"] = False
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
    """Writes a PNG, or an SVG if the path ends so; with ``svg`` the same as SVG beside it. Returns the path.

    mark: names the writer in the file; see :mod:`innergrad.files`.
    """
    path = Path(path)
    form = form_of(path)
    with whole(path) as part:
        write(figure, part, form, mark)
    if svg:
        with whole(path.with_suffix(".svg")) as part:
            write(figure, part, "svg")
    return path


def form_of(path: Path | str) -> str:
    """What a file of this name is to be: ``svg``, or ``png``, which a name without an ending is, too."""
    ending = Path(path).suffix.lower()
    if ending not in ("", ".png", ".svg"):
        raise InputError("a figure is a PNG or an SVG", got=str(path), allowed="a name that ends in .png or .svg")
    return "svg" if ending == ".svg" else "png"


def write(figure: Figure, file: Any, form: str, mark: str | None = None) -> None:
    """Into an open file or a path: ``png`` or ``svg``, with the mark.

    A PNG has a palette of 256 colours: a figure has few, and its file is a third as large.
    """
    if form == "svg":
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        first, _, rest = text.getvalue().partition("\n")
        made = f"<!-- made by {mark} -->\n" if mark is not None else ""
        Path(file).write_text(f"{first}\n{made}{rest}", encoding="utf-8")
        return
    from PIL import Image, PngImagePlugin

    drawn, about = io.BytesIO(), PngImagePlugin.PngInfo()
    figure.savefig(drawn, format="png", metadata={"Software": None})
    if mark is not None:
        about.add_text("Software", mark)
    image = Image.open(drawn).convert("RGB")
    image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        file, "PNG", optimize=True, pnginfo=about
    )


def save_plot(figure: Figure, path: Path | str, *, force: bool = False) -> None:
    """The file of the methods ``plot``, which replaces nothing but an earlier plot, unless ``force``."""
    path, writer = Path(path), Writer("plot", force=force)
    form_of(path)
    writer.check(path)
    make_folder(path.parent)
    save(figure, path, mark=writer.mark)


def as_svg(figure: Figure) -> str:
    """For a page: the element alone, without the head of a file, as wide as its place."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return text.getvalue().partition("<svg ")[1] + text.getvalue().partition("<svg ")[2]


def animate(
    figure: Figure, frames: Iterator[None], path: Path | str, *, dots: int, per_second: int, mark: str | None = None
) -> Path:
    """Write a GIF: of the figure, as it is at every turn of ``frames``. mark: as in ``save``."""
    from matplotlib.animation import PillowWriter

    path, film = Path(path), PillowWriter(fps=per_second)
    with whole(path) as part:
        drawn = part.with_suffix(".gif")  # the format follows from the name
        try:
            with film.saving(figure, str(drawn), dots):
                for _ in frames:
                    film.grab_frame()
                    figure.set_layout_engine("none")  # panels stay where they were put, and it takes half the time
            part.write_bytes(_commented(drawn.read_bytes(), mark))
        finally:
            drawn.unlink(missing_ok=True)
    return path


def _commented(gif: bytes, mark: str | None) -> bytes:
    """With a comment after the header and its table of colours."""
    colours = 3 * 2 ** ((gif[10] & 7) + 1) if gif[10] & 0x80 else 0
    text = (mark or "").encode()
    comment = b"\x21\xfe" + bytes([len(text)]) + text + b"\0" if text else b""
    return gif[: 13 + colours] + comment + gif[13 + colours :]


Lines = Sequence[tuple[Sequence[float], dict[str, Any]]]


def log_lines(ax: Axes, numbers: Sequence[int], lines: Lines, reach: float = math.inf) -> None:
    """Values and how to draw them, on a log axis for values that are positive and below ``reach``. Infinite values have
    a marker at the top, and the word.
    """
    known = [value for values, _ in lines for value in values if 0.0 < value < reach] or [1.0]
    top = max(known) * (max(known) / min(known)) ** 0.12 * 2
    ax.set_yscale("log")
    ax.set_ylim(min(known) / 2, top * 1.4)
    for values, style in lines:
        ax.plot(numbers, [value if 0.0 < value < math.inf else math.nan for value in values], **style)
        places = [number for number, value in zip(numbers, values, strict=True) if math.isinf(value)]
        if places:
            colour = style["color"]
            ax.plot(places, [top] * len(places), "^", color=colour, ms=6)
            ax.annotate(
                "infinite", (places[0], top), (0, -16), textcoords="offset points", color=colour, fontsize=SMALL
            )


def few_ticks(ax: Axes) -> None:
    """Room for long numbers below the x axis."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(3))


def whole_numbers(ax: Axes) -> None:
    """Ticks of the x axis at whole numbers only: steps, layers."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
