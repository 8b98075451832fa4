"""Tables on the terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from innergrad.cli.data import Examples
from innergrad.interpret import cost as costs
from innergrad.interpret.cost import Cost
from innergrad.report import Report


def print_cost(cost: Cost) -> None:
    layers = Table(title="Architecture", title_justify="left", box=SIMPLE)
    for column in ("layer", "kind", "times", "heads", "d_head", "nonzero", "norm"):
        layers.add_column(column, justify="left" if column in ("layer", "kind") else "right", overflow="fold")
    for row in cost.rows:
        times = str(row.times) if row.times else "out"
        counts = (f"{row.heads:,}", str(row.d_head or ""), f"{row.nonzeros:,}", f"{row.norm:.3g}")
        layers.add_row(escape(row.name), row.kind, times, *counts)
    totals = Table(title=f"Totals, for {cost.n_tokens} tokens", title_justify="left")
    for column in ("", "here", "the paper"):
        totals.add_column(column, justify="right" if column == "here" else "left", overflow="fold")
    for name, value in cost.totals().items():
        totals.add_row(name, costs.number(value), cost.paper.get(name, ""))
    console = Console()
    console.print(layers)
    console.print(totals)


def print_report(name: str, report: Report) -> None:
    table = Table(title=f"Laws on {escape(name)}", title_justify="left")
    for column in ("law", "value", "limit", "result", "worst"):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left", overflow="fold")
    for law in report.laws:
        result = "[green]holds[/green]" if law.holds else "[bold red]FAILS[/bold red]"
        table.add_row(law.name, f"{law.value:.2e}", f"{law.limit:.2e}", result, escape(law.where))
    console = Console()
    console.print(table)
    console.print(report.summary(), markup=False)


def print_run(table: Examples, predictions: Tensor, losses: list[float] | None) -> None:
    console = Console()
    if losses is not None:
        console.print(
            f"loss on {len(table.X)} examples: {losses[0]:.6g} before, {losses[-1]:.6g} after {len(losses) - 1} steps"
        )
    shown = Table(title=f"{len(predictions)} predictions", title_justify="left", box=SIMPLE)
    for column in ("query", *table.targets):
        shown.add_column(escape(column), justify="right", overflow="fold")
    for number, row in enumerate(predictions[:20].tolist(), start=1):
        shown.add_row(str(number), *(f"{value:.5g}" for value in row))
    console.print(shown)
    if len(predictions) > 20:
        console.print(f"... and {len(predictions) - 20} more; --out writes them all")


def working(what: str, silent: bool) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    return nullcontext() if silent else Console(stderr=True).status(f"{what} ...")
