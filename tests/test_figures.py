"""Figures: one style in one place, the same file for the same numbers, and a line that says what is missing."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree
from pathlib import Path

import matplotlib as mpl
import pytest
from typer.testing import CliRunner

from innergrad import figures, files
from innergrad.cli.app import app
from innergrad.errors import InputError

ROOT = Path(__file__).parent.parent


def drawn(path: Path, height: float = 1.0) -> Path:
    with figures.new(1, 2, size=(6, 3), share_y=True) as (figure, (left, right)):
        left.plot([0, 1, 2], [0.0, height, 0.5], color=figures.BLUE, label="a line")
        left.legend()
        right.scatter([1, 2], [0.2, 0.4], color=figures.ORANGE)
        figures.whole_numbers(left)
        figure.suptitle("two panels")
        return figures.save(figure, path, svg=True)


def test_the_same_numbers_give_the_same_files(tmp_path: Path) -> None:
    """Whatever the user has set, and byte for byte; other numbers give others."""
    first = drawn(tmp_path / "first.png")
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "savefig.dpi": 10, "figure.facecolor": "red"}):
        again = drawn(tmp_path / "again.png")
    other = drawn(tmp_path / "other.png", height=2.0)
    assert first.read_bytes().startswith(b"\x89PNG\r\n")
    assert first.with_suffix(".svg").read_text().lstrip().startswith("<?xml")
    for suffix in (".png", ".svg"):
        contents = [path.with_suffix(suffix).read_bytes() for path in (first, again, other)]
        assert contents[0] == contents[1] != contents[2]


def test_sizes_are_inches_at_150_dots_and_panels_come_row_by_row(tmp_path: Path) -> None:
    with figures.new(2, 3, size=(8, 4)) as (figure, axes):
        assert len(axes) == 6
        assert axes[1].get_subplotspec().is_first_row()
        assert axes[3].get_subplotspec().is_first_col()
        content = figures.save(figure, tmp_path / "figure").read_bytes()  # a PNG, whatever the name
    assert [int.from_bytes(content[at : at + 4], "big") for at in (16, 20)] == [1200, 600]


def test_the_ending_says_what_a_figure_is(tmp_path: Path) -> None:
    """.svg is an SVG that knows who wrote it; an ending that promises another form is refused before anything."""
    with figures.new(size=(4, 3)) as (figure, (ax,)):
        ax.plot([0, 1])
        path = figures.save(figure, tmp_path / "one.svg", mark=files.Writer("plot").mark)
        xml.etree.ElementTree.parse(path)  # it is one
        assert files.made_by(path) == "plot"
        figures.save_plot(figure, path)  # an earlier plot is replaced
        for name in ("one.jpg", "one.pdf", "one.tar.gz"):
            with pytest.raises(InputError, match="PNG or an SVG"):
                figures.save_plot(figure, tmp_path / name)
    assert [one.name for one in tmp_path.iterdir()] == ["one.svg"]
    called = CliRunner().invoke(app, ["evaluate", "linear-20", "--prompts", "2", "--figure", str(tmp_path / "x.pdf")])
    assert isinstance(called.exception, InputError)
    assert "x.pdf" in str(called.exception)


def test_nothing_of_the_users_matplotlib_changes(tmp_path: Path) -> None:
    before = dict(dict.items(mpl.rcParams))  # read as a plain dictionary: rcParams chooses a backend when looked at
    drawn(tmp_path / "figure.png")
    assert dict(dict.items(mpl.rcParams)) == before
    assert mpl.rcParams["axes.grid"] is not figures.STYLE["axes.grid"]


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"a figure needs matplotlib; pip install 'innergrad\[demo\]'"):
        drawn(Path("never.png"))


def test_matplotlib_is_set_up_in_one_place() -> None:
    """Neither pyplot, with its state for all, nor a second style, anywhere in the package or its benchmarks."""
    forbidden = re.compile(r"pyplot|rc_context|rcParams|savefig|matplotlib\.use|#[0-9a-f]{6}\b")
    folders = (Path(figures.__file__).parent, ROOT / "benchmarks")
    files = [path for folder in folders for path in folder.rglob("*.py")]
    found = {path.name for path in files if forbidden.search(path.read_text())}
    assert found == {"figures.py"}
