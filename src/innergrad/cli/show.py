"""Tables on the terminal."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from innergrad.cli.data import Examples
from innergrad.cli.words import in_flags
from innergrad.errors import at_most, plural, readable
from innergrad.evidence.certificate import Certificate
from innergrad.evidence.explain import Explanation
from innergrad.evidence.report import Report
from innergrad.model import cost as costs
from innergrad.model.compiled import Compiled
from innergrad.model.cost import Cost, LayerCost
from innergrad.model.scores import Score
from innergrad.transformer import CompiledTransformer, Run

SCALED = (
    "weights, gradients and layers are those of the scaled data; innergrad run --certify bounds the predictions in the "
    "units of the file"
)
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
    console.print(costs.WORDS, style="dim", soft_wrap=True)


def print_compiled(tf: CompiledTransformer, out: Path, verbose: bool) -> None:
    """What was compiled, in a line; where it is; what comes next."""
    cost, kind = tf.cost(), tf.algorithm.kind.replace("_", " ")
    lines = [] if tf.solution is None else [str(tf.solution)]
    depth = f"{plural(cost.blocks, 'block')} and {cost.readout_blocks} for the read-out"
    known = "exact" if tf.state == "exact" else f"functions to within {tf.options.epsilon:g}, {tf.state}"
    steps = plural(tf.program.steps, "step")
    lines.append(f"{kind}, {steps}: a transformer of {depth}, width {tf.d_model:,}; {known}")
    lines.append(f"saved to {out} (target {tf.options.target}, variant {tf.options.variant})")
    more = "" if verbose else f"; --verbose, or innergrad cost {out}, shows every layer"
    lines.append(f"next: innergrad run {out} --data FILE, or innergrad verify {out}{more}")
    for line in lines:
        Console().print(line, markup=False, highlight=False, soft_wrap=True)


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
    for column in ("law", "value", "limit", "of what", "result", "worst"):
        how = {"no_wrap": True} if column == "law" else {"overflow": "fold"}
        table.add_column(column, justify="right" if column in ("value", "limit") else "left", **how)
    for law in report.laws:
        result = "[green]holds[/green]" if law.holds else "[bold red]FAILS[/bold red]"
        table.add_row(law.name, f"{law.value:.2e}", f"{law.limit:.2e}", law.unit, result, escape(law.where))
    console = Console()
    console.print(table)
    console.print(report.summary(), markup=False)
    failed = [law.name for law in report.laws if not law.holds]
    told = f"{len(failed)} of {len(report.laws)} laws FAIL: {', '.join(failed)}" if failed else ""
    console.print(told or f"all {len(report.laws)} laws hold", markup=False, style="bold red" if failed else "green")


def print_explanation(name: str, explanation: Explanation, scaled: bool) -> None:
    console = Console()
    console.print(f"\nWhere the error comes from, on {name}", style="italic", markup=False)
    if scaled:
        console.print(SCALED, highlight=False, soft_wrap=True)
    for line in explanation.tables():
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    table = Table(title="Health", title_justify="left")
    for column in ("", "value", "limit", "of what", "state", "reason"):
        table.add_column(column, justify="right" if column in ("value", "limit") else "left", overflow="fold")
    for row in explanation.health:
        state = "[green]green[/green]" if row.green else "[bold red]RED[/bold red]"
        table.add_row(row.name, f"{row.value:.2g}", f"{row.limit:.2g}", row.unit, state, escape(row.reason))
    console.print(table)


def print_run(
    table: Examples,
    run: Run,
    losses: list[float] | None,
    scores: Mapping[str, Score],
    certificate: Certificate | None,
    tf: CompiledTransformer,
) -> None:
    console, examples = Console(), plural(len(table.X), "example")
    if table.scales is not None:
        of = "inputs and targets" if table.scale_json()["targets"] else "inputs"
        causal = "; online predictions know that scale" * tf.program.causal
        console.print(
            f"{of} are scaled by the mean and deviation of the {examples}; predictions are in the units of the file, "
            f"losses and weights those of scaled data{causal}",
            soft_wrap=True,
        )
    if losses is not None:
        steps = plural(len(losses) - 1, "step")
        console.print(f"loss on {examples}: {readable(losses[0], 6)} before, {readable(losses[-1], 6)} after {steps}")
    _print_scores(console, scores)
    if isinstance(run.stopped, int):  # of one prompt
        console.print(f"stopped after {plural(run.stopped, 'step')}: the gradient is certified to be small enough")
    if run.symptoms:
        console.print(f"not well: {', '.join(symptom.kind for symptom in run.symptoms)}", style="bold red")
    for sentence in run.violations:
        console.print(f"outside: {sentence}", style="bold red", markup=False, soft_wrap=True)
    if run.online is not None:
        error = float((run.online.double() - table.y[:, 0]).square().mean().sqrt())
        error = error if table.scales is None else error * table.scales[1][0].std
        console.print(f"root mean squared online error: {readable(error, 6)} ({examples})")
    if certificate is not None:
        console.print(_certified(certificate, table, run, tf), markup=False, highlight=False, soft_wrap=True)
    _print_predictions(console, table, run, certificate)


def _print_scores(console: Console, scores: Mapping[str, Score]) -> None:
    """How good the predictions are; what R² means is said once."""
    names = {"examples": "example", "held_out": "held-out row"}
    lines = [one.words(names[name]) for name, one in scores.items()]
    if lines and all(one.r2 for one in scores.values()):
        lines[0] += "  (1: all right; 0: no better than their mean)"
    if "examples" in scores and "held_out" not in scores:
        lines.append("a --query file that has the target, too, gives a score on rows that did not teach")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_predictions(console: Console, table: Examples, run: Run, certificate: Certificate | None) -> None:
    spread = [] if run.std is None else [table.spread_in_units(run.std).unsqueeze(-1)]
    predictions = torch.cat([table.in_units(run.predictions), *spread], dim=1)
    if not len(predictions):
        hint = "leave the target of some rows empty, or give other rows by --query FILE"
        console.print(f"no row to predict: {hint}", highlight=False, soft_wrap=True)
        return
    shown = Table(title=plural(len(predictions), "prediction"), title_justify="left", box=SIMPLE)
    bounds = None if certificate is None else certificate.predictions
    proven = [] if bounds is None else table.bounds_in_units(bounds[0], run.predictions)[:20].tolist()
    columns = [
        *table.targets,
        *(["std"] if spread else []),
        *(f"{name}: proven to" for name in table.targets if proven),
    ]
    for column in ("query", *columns):
        shown.add_column(escape(column), justify="right", overflow="fold")
    for number, row in enumerate(predictions[:20].tolist(), start=1):
        within = [f"± {at_most(bound)}" for bound in proven[number - 1]] if proven else []
        shown.add_row(str(number), *map(readable, row), *within)
    console.print(shown)
    if len(predictions) > 20:
        console.print(f"... and {len(predictions) - 20} more; --out writes them all")


def _certified(certificate: Certificate, table: Examples, run: Run, tf: CompiledTransformer) -> str:
    """What is proven, and in which units; and whether it is of any use."""
    algorithm, of = tf.algorithm.kind.replace("_", " "), ", of the scaled data" * (table.scales is not None)
    learned = "gradient" if tf.program.weights else "state"
    single = f"the {learned} of every single step is within {at_most(max(certificate.gradient))}{of}"
    bounds = certificate.predictions
    if bounds is None:
        return f"certified: {single}; too much is learned for a bound on all steps together"
    if not bounds.numel():
        return f"certified: {single}; the last weights are within {at_most(certificate.weights[-1])}{of}"
    worst, spread = bounds[0].amax(0), table.y.std(0, correction=0)
    if not bool(torch.isfinite(worst).all()):
        help_ = "a smaller --lr or --epsilon, fewer --steps, or --target llama"
        return f"certified: {single}; of all steps together nothing is known; it takes {help_}"
    named = zip(table.targets, table.bounds_in_units(bounds[0], run.predictions).amax(0).tolist(), strict=True)
    sizes = ", ".join(f"{at_most(size)} ({name})" for name, size in named)
    beside = f", in the units of the file; scaled, {at_most(float(worst.max()))}" if of else ""
    useless = "; that is more than the targets differ by, so it says nothing" * bool((worst >= spread).all())
    return f"certified: no prediction is farther from that of {algorithm} itself than {sizes}{beside}{useless}"


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
