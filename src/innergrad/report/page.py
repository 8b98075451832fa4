"""A page: a title, a sentence that says it all, sections of words, pictures and tables. Rendered as one HTML file.

Pictures are inline SVG, the style is in the file, and nothing is fetched from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from innergrad import figures
from innergrad.errors import InputError, readable

TEMPLATE = "page.html.j2"
MOST_ROWS = 24  # of a table by step; of more, some are shown


@dataclass(frozen=True)
class Picture:
    """svg: the element. wide: it keeps its size, and its place is scrolled on a narrow screen."""

    svg: str
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of text, the first the header. words: how many columns, from the left, are words and not numbers; shown: it
    is open, and need not be clicked on; wrap: its last column has sentences, which are broken into lines.
    """

    caption: str
    rows: Sequence[Sequence[str]]
    words: int = 1
    shown: bool = True
    wrap: bool = False


@dataclass(frozen=True)
class Section:
    title: str
    words: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Page:
    """lead: the sentence; found: the numbers behind it, for ``--json``; manifest: what it was made with, as JSON;
    warnings: sentences that stand right below the lead.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    manifest: str
    found: dict[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    def html(self, comment: str = "") -> str:
        """The file. comment: its writer, for commands that would replace it."""
        try:
            from jinja2 import Environment, StrictUndefined
        except ImportError as error:
            raise InputError("a report needs Jinja2", hint="pip install 'innergrad[report]'") from error
        source = files("innergrad.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        colours = {"blue": figures.BLUE, "orange": figures.ORANGE, "grey": figures.GREY, "dark": figures.DARK}
        text: str = environment.from_string(source).render(page=self, comment=comment, **colours)
        return text


def some(rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Of many rows by step: the header, the first, the last, and some between."""
    header, *body = rows
    if len(body) <= MOST_ROWS:
        return [header, *body]
    shown = sorted({round(i * (len(body) - 1) / (MOST_ROWS - 1)) for i in range(MOST_ROWS)})
    return [header, *(body[i] for i in shown)]


def number(value: float) -> str:
    """Short, in words where it is no number."""
    return "infinite" if value == float("inf") else readable(value, 3)
