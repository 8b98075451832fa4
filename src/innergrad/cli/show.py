"""Tables on the terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from innergrad.cli.data import Examples
from innergrad.interpret.cost import Cost, number
from innergrad.report import Report


def print_cost(cost: Cost) -> None:
    layers = Table(title="Architecture", title_justify="left")
    for column in ("layer", "kind", "times", "heads / units", "d_head", "nonzero weights", "norm (C.1)"):
        layers.add_column(column, justify="left" if column in ("layer", "kind") else "right", overflow="fold")
    for row in cost.rows:
        times = str(row.times) if row.times else "read-out"
        layers.add_row(
            escape(row.name),
            row.kind,
            times,
            f"{row.heads:,}",
            str(row.d_head or ""),
            f"{row.nonzeros:,}",
            f"{row.norm:.3g}",
        )
    totals = Table(title=f"Totals, for {cost.n_tokens} tokens", title_justify="left")
    for column in ("", "here", "the paper"):
        totals.add_column(column, justify="right" if column == "here" else "left", overflow="fold")
    for name, value in cost.totals().items():
        totals.add_row(name, number(value), cost.paper.get(name, ""))
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
    errors, epsilon = report.step_error, report.epsilon
    console.print(
        f"error of the gradient per step: median {sorted(errors)[len(errors) // 2]:.2f}, max {max(errors):.2f} times "
        f"epsilon = {epsilon:g}; "
        f"||w - w_oracle|| after the last step: {report.distance[-1]:.2e}; ramp hits: {sum(report.ramp_hits)}"
    )


def print_run(table: Examples, X_query: Tensor, predictions: Tensor, losses: list[float] | None) -> None:
    console = Console()
    if losses is not None:
        console.print(
            f"loss on {len(table.X)} examples: {losses[0]:.6g} before, {losses[-1]:.6g} after {len(losses) - 1} steps"
        )
    shown = Table(title=f"{len(predictions)} predictions", title_justify="left")
    for column in (*table.inputs, *table.targets):
        shown.add_column(escape(column), justify="right", overflow="fold")
    for x, p in zip(X_query[:20].tolist(), predictions[:20].tolist(), strict=True):
        shown.add_row(*(f"{value:.5g}" for value in (*x, *p)))
    console.print(shown)
    if len(predictions) > 20:
        console.print(f"... and {len(predictions) - 20} more; --out writes them all")


def working(what: str, silent: bool) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    return nullcontext() if silent else Console(stderr=True).status(f"{what} ...")
