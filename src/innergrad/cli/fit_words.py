"""What ``innergrad fit`` prints: columns, scores, predictions, in one screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as Shown

from innergrad.errors import plural, shortened
from innergrad.tables import words

if TYPE_CHECKING:
    from innergrad.tables.fitted import Predictions
    from innergrad.tables.table import Table
    from innergrad.written import Task

SHOWN = 8  # predictions on the terminal
LISTED = 12  # columns, likewise
NAMED = 40  # characters of a name, in a table
STEPS = 30  # of the bar: five folds of six methods


def say(text: str, style: str = "") -> None:
    Console(file=sys.stdout).print(text, markup=False, highlight=False, soft_wrap=True, style=style)


@contextmanager
def progress_bar(silent: bool) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, nothing elsewhere: one step for every fold of every method."""
    console = Console(stderr=True)
    shown = [TextColumn("{task.description:<28}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
    hidden = silent or not console.is_terminal
    with Progress(*shown, TimeElapsedColumn(), console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=STEPS)

        def step(what: str) -> None:
            bar.update(task, description=what, advance=1)

        yield step


def print_table(table: Table) -> None:
    """What was made of the file. It is said before the scores, which may take minutes."""
    plans = table.plans
    say(words.about_file(table), style="bold")
    say(words.about_target(table.target, table.task, table.why))
    if len(plans) <= LISTED:
        width = max(len(shortened(one.name, NAMED)) for one in plans)
        for one in plans:
            say(f"  {shortened(one.name, NAMED):<{width}}  {one.words}", style="" if one.used else "dim")
    else:
        for line in words.about_columns(plans):
            say(line)
    for note in table.notes:
        say(f"note: {note}")
    sys.stdout.flush()
    for warning in table.warnings:
        print(f"innergrad: warning: {warning}", file=sys.stderr, flush=True)


def print_fit(found: Mapping[str, Any], task: Task, said: Sequence[str]) -> None:
    """The scores, and what follows. said: notes that were printed before."""
    for note in [*found["notes"], *found["learner"]]:
        if note not in said:
            say(f"note: {note}")
    _print_scores(task, found)
    for sentence in found["verdict"]:
        say(sentence)
    if words.is_clear(found["gains"][0]["gain"], found["gains"][0]["spread"]):
        say(words.most_important(found["matters"]))


def _print_scores(task: Task, found: Mapping[str, Any]) -> None:
    header, *rows = words.score_rows(task, found["scores"], found["unit"])
    shown = Shown(box=SIMPLE, title=f"{found['folds']}-fold cross-validation", title_justify="left")
    for place, column in enumerate(header):
        shown.add_column(column, justify="right" if place else "left")
    for place, row in enumerate(rows):
        shown.add_row(*row, style="" if place else "bold")
    Console(file=sys.stdout).print(shown)
    say(f"(In context: the transformer. {words.SCORES[task]}; ± is a standard error.)", style="dim")


def print_predictions(predictions: Predictions, told: Mapping[str, Any]) -> None:
    for note in told.get("notes", ()):
        say(f"note: {note}")
    title = f"{plural(len(predictions), 'prediction')} of {shortened(predictions.target.name, NAMED)}"
    if predictions.ends is not None:
        title += f"; {told['interval']:.0%} of the true values should lie between low and high"
    say(f"{title}:")
    shown = Shown(box=SIMPLE)
    header, *rows = predictions.shown()[: 1 + SHOWN]
    for column in ("line", *header):
        shown.add_column(escape(shortened(column, NAMED)), justify="right")
    for line, row in zip(told["lines"], rows, strict=False):
        shown.add_row(f"{line:,}", *map(escape, row))
    Console(file=sys.stdout).print(shown)
    if len(predictions) > SHOWN:
        say(f"... and {len(predictions) - SHOWN:,} more in the file")
    if score := told.get("score"):
        say(words.about_score(score))


def print_files(folder: Path, names: Sequence[str], removed: Sequence[str] = ()) -> None:
    say(f"wrote to {folder}: {', '.join(names)}", style="dim")
    if removed:
        say(f"removed, since an earlier fit wrote them: {', '.join(removed)}", style="dim")
