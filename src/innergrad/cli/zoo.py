"""``innergrad zoo``: the trained learners that come with the package, and their cards."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from innergrad import zoo as shelf
from innergrad.cli import flags
from innergrad.cli.flags import Force
from innergrad.cli.lab import Json, Quiet
from innergrad.files import Writer

WIDTH = 110  # of a line of a card


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(zoo)


def _complete(incomplete: str) -> list[str]:
    return [name for name in shelf.names() if name.startswith(incomplete)]


def zoo(
    name: Annotated[
        str | None,
        typer.Argument(help="A learner. Without a name, the list of all.", autocompletion=_complete),
    ] = None,
    out: Annotated[Path | None, flags.path("--out", "Write the list, or the card, as JSON to this file.")] = None,
    force: Force = False,
    seed: Annotated[int, flags.seed("Nothing here is random.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the trained learners that come with the package, or show the card of one.

    They need no network: innergrad evaluate NAME measures one, innergrad train CONFIG --start NAME trains it further,
    and in Python lab.load_pretrained(NAME) loads it.
    """
    del seed
    found: Any = shelf.card(name) if name is not None else [_row(shelf.card(one)) for one in shelf.names()]
    if name is not None:
        shelf.weights(name)  # a card of damaged weights is no card
    if out is not None:
        Writer("zoo", force=force).json(out, found)
    if as_json:
        print(json.dumps(found))
    elif not quiet:
        for line in _lines(found) if name is not None else _list(found):
            print(line)


def _row(card: shelf.Card) -> dict[str, Any]:
    """A line of the list."""
    about = card["weights"]
    return {"name": card["name"], "title": card["title"], "bytes": about["bytes"], "bits": about["bits"]}


def _list(rows: list[dict[str, Any]]) -> Iterator[str]:
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        yield f"{row['name']:<{width}}  {_size(row['bytes']):>8}  {row['title']}"
    yield "innergrad zoo NAME shows the card of one"


def _lines(card: shelf.Card) -> Iterator[str]:
    """A card as text."""
    yield f"{card['name']}: {card['title']}"
    for key in ("task", "data", "learner", "training"):
        yield from _paragraph(key, card[key]["words"])
    yield from _paragraph("command", card["training"]["command"])
    yield ""
    yield from _table(card["numbers"]["rows"])
    yield from _paragraph("numbers", card["numbers"]["words"])
    for limit in card["limits"]:
        yield from _paragraph("limit", limit)
    about = card["weights"]
    yield from _paragraph("weights", f"{_size(about['bytes'])}, {about['words']} SHA-256 {about['sha256']}")
    yield from _paragraph("licence", card["licence"])


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    columns = list(rows[0])
    cells = [columns, *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))


def _cell(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _paragraph(key: str, text: str) -> list[str]:
    return textwrap.wrap(f"{key + ':':<10}{text}", WIDTH, subsequent_indent=" " * 10, break_long_words=False)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f} MiB" if n_bytes >= 2**20 else f"{n_bytes / 2**10:.0f} KiB"
