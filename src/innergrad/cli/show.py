"""Tables on the terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from innergrad.cli.data import Examples
from innergrad.cli.words import in_flags
from innergrad.errors import plural
from innergrad.evidence.explain import Explanation
from innergrad.evidence.report import Report
from innergrad.model import cost as costs
from innergrad.model.compiled import Compiled
from innergrad.model.cost import Cost, LayerCost
from innergrad.transformer import Run

HEADER = ("layer", "kind", "times", "heads", "d_head", "nonzero", "norm")


def print_cost(cost: Cost) -> None:
    console = Console()
    console.print("Architecture", style="italic")
    header, *lines = _layers(cost)
    console.print(header, style="bold", highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    totals = Table(title=f"Totals, for {cost.n_tokens} tokens", title_justify="left")
    for column in ("", "here", "the paper"):
        totals.add_column(column, justify="right" if column == "here" else "left", overflow="fold")
    for name, value in cost.totals().items():
        totals.add_row(name, costs.number(value), cost.paper.get(name, ""))
    console.print(totals)


def print_states(of: Compiled) -> None:
    """What is known of the functions, by state."""
    console = Console()
    by_state: dict[str, list[str]] = {}
    for name, known in of.standings.items():
        by_state.setdefault(str(known), []).append(name)
    for words, names in by_state.items():
        console.print(f"{', '.join(names)}: {words}", markup=False, highlight=False, soft_wrap=True)


def _layers(cost: Cost) -> list[str]:
    """The layers in columns; lines about layers that repeat run across them, which rich's tables cannot do."""
    rows = [HEADER, *(row if isinstance(row, str) else _cells(row) for row in costs.condensed(cost.rows))]
    widths = [max(map(len, column)) for column in zip(*(row for row in rows if isinstance(row, tuple)), strict=True)]

    def line(row: tuple[str, ...]) -> str:
        padded = (f"{cell:{'<' if i < 2 else '>'}{widths[i]}}" for i, cell in enumerate(row))
        return "  " + "   ".join(padded)

    return [f"    {row}" if isinstance(row, str) else line(row) for row in rows]


def _cells(row: LayerCost) -> tuple[str, ...]:
    times = str(row.times) if row.times else "out"
    return row.name, row.kind, times, f"{row.heads:,}", str(row.d_head or ""), f"{row.nonzeros:,}", f"{row.norm:.3g}"


def print_report(name: str, report: Report) -> None:
    status = "" if report.proven else f" ({report.state}, not proven: no certificate)"
    table = Table(title=f"Laws on {escape(name)}{status}", title_justify="left")
    for column in ("law", "value", "limit", "result", "worst"):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left", overflow="fold")
    for law in report.laws:
        result = "[green]holds[/green]" if law.holds else "[bold red]FAILS[/bold red]"
        table.add_row(law.name, f"{law.value:.2e}", f"{law.limit:.2e}", result, escape(law.where))
    console = Console()
    console.print(table)
    console.print(report.summary(), markup=False)


def print_explanation(name: str, explanation: Explanation) -> None:
    console = Console()
    console.print(f"\nWhere the error comes from, on {name}", style="italic", markup=False)
    for line in explanation.tables():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    table = Table(title="Health", title_justify="left")
    for column in ("", "value", "limit", "state", "reason"):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left", overflow="fold")
    for row in explanation.health:
        state = "[green]green[/green]" if row.green else "[bold red]RED[/bold red]"
        table.add_row(row.name, f"{row.value:.2g}", f"{row.limit:.2g}", state, escape(row.reason))
    console.print(table)


def print_run(table: Examples, run: Run, losses: list[float] | None, causal: bool) -> None:
    console, examples = Console(), plural(len(table.X), "example")
    if table.scales is not None:
        of = "inputs and targets" if table.scale_json()["targets"] else "inputs"
        console.print(
            f"{of} are scaled by the mean and deviation of the {examples}; predictions are in the units of the file, "
            f"losses and weights those of scaled data{'; online predictions know that scale' * causal}",
            soft_wrap=True,
        )
    if losses is not None:
        steps = plural(len(losses) - 1, "step")
        console.print(f"loss on {examples}: {losses[0]:.6g} before, {losses[-1]:.6g} after {steps}")
    if isinstance(run.stopped, int):  # of one prompt
        console.print(f"stopped after {plural(run.stopped, 'step')}: the gradient is certified to be small enough")
    if run.symptoms:
        console.print(f"not well: {', '.join(symptom.kind for symptom in run.symptoms)}", style="bold red")
    for sentence in run.violations:
        console.print(f"outside: {sentence}", style="bold red", markup=False, soft_wrap=True)
    if run.online is not None:
        error = float((run.online.double() - table.y[:, 0]).square().mean().sqrt())
        error = error if table.scales is None else error * table.scales[1][0].std
        console.print(f"root mean squared online error: {error:.6g} ({examples})")
    spread = [] if run.std is None else [table.spread_in_units(run.std).unsqueeze(-1)]
    predictions = torch.cat([table.in_units(run.predictions), *spread], dim=1)
    shown = Table(title=plural(len(predictions), "prediction"), title_justify="left", box=SIMPLE)
    for column in ("query", *table.targets, *(["std"] if spread else [])):
        shown.add_column(escape(column), justify="right", overflow="fold")
    for number, row in enumerate(predictions[:20].tolist(), start=1):
        shown.add_row(str(number), *(f"{value:.5g}" for value in row))
    console.print(shown)
    if len(predictions) > 20:
        console.print(f"... and {len(predictions) - 20} more; --out writes them all")


def working(what: str, silent: bool) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    return nullcontext() if silent else Console(stderr=True).status(f"{what} ...")


@contextmanager
def warning_lines(silent: bool) -> Iterator[None]:
    """The library's warnings, one line each on stderr, when they are raised: some are about what comes next."""

    def show(message: Warning | str, *where: object, **more: object) -> None:
        if not silent:
            print(f"innergrad: warning: {in_flags(str(message), 'run')}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
