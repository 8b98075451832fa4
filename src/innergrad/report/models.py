"""The report of a compiled model: its architecture, a training on a prompt, the distance to the algorithm, and the
cost.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from innergrad import figures
from innergrad.errors import InputError, JobError, PoorRun, at_most, plural, shortened
from innergrad.evidence.explain import Explanation, explain
from innergrad.evidence.explain.explanation import draw_layers
from innergrad.evidence.pictures import draw_certificate
from innergrad.evidence.report import Report
from innergrad.evidence.verification import random_prompt
from innergrad.figures import GREY, ORANGE, SMALL
from innergrad.manifest import manifest
from innergrad.model import cost as costs
from innergrad.model.cost import Cost, LayerCost
from innergrad.model.executors import Name
from innergrad.model.learning import draw_loss
from innergrad.model.scores import Score, score
from innergrad.model.symptoms import INPUTS, LABELS, Symptom
from innergrad.report.page import Page, Picture, Section, Table, number, some
from innergrad.transformer import CompiledTransformer, Run, reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (5.4, 4.0)  # inches of a panel: on a telephone its words can still be read
LARGEST = 2 * 10**6  # nonzero weights: a larger model is interpreted, and its matrices are not multiplied
PROMPTS = 2  # that the laws are checked on
Columns = tuple[Sequence[str], Sequence[str]]  # names of the inputs and of the targets, where they have any
Units = Callable[[Tensor], Tensor]  # predictions of scaled data -> the same in the units of the file


@dataclass(frozen=True)
class Learned:
    """A prompt, the transformer's run on it, and the algorithm's own."""

    X: Tensor
    y: Tensor
    w0: Tensor | None
    run: Run
    exact: Run
    losses: tuple[list[float], list[float]] | None
    source: str
    columns: Columns = ((), ())
    notes: Sequence[str] = ()
    units: Units | None = None

    @property
    def predictions(self) -> tuple[Tensor, Tensor]:
        """The transformer's and the algorithm's, in the units of the data as they were given."""
        pair = self.run.predictions, self.exact.predictions
        return pair if self.units is None else (self.units(pair[0]), self.units(pair[1]))

    @property
    def symptoms(self) -> list[Symptom]:
        """What is plainly wrong with the run. Notes about the data come in place of columns that are not scaled."""
        return [one for one in self.run.symptoms if not (self.notes and one.kind in (INPUTS, LABELS))]

    @property
    def warnings(self) -> list[str]:
        """The same in sentences, by the names of the columns, and the notes."""
        inputs, targets = self.columns
        return [*(one.said(targets if one.kind == LABELS else inputs) for one in self.symptoms), *self.notes]


def report_of_model(
    tf: CompiledTransformer,
    name: str,
    *,
    X: Tensor | None = None,
    y: Tensor | None = None,
    X_query: Tensor | None = None,
    source: str = "",
    columns: Columns = ((), ()),
    notes: Sequence[str] = (),
    units: Units | None = None,
    seed: int = 0,
) -> Page:
    """The page. X, y: the examples, from ``source``; by default a prompt of the algorithm's own, drawn from the seed.
    X_query: further rows to predict. columns: names of the inputs and of the targets. notes: warnings about the data.
    units: of scaled data, takes predictions back to the units of the file.
    """
    learned = replace(_learned(tf, X, y, X_query, source, seed), columns=columns, notes=notes, units=units)
    cost = tf.cost()
    laws = tf.verify(seed=seed, prompts=PROMPTS) if _executor(tf) == "dense" else None
    explanation, why_not = _explained(tf, learned)
    algorithm = tf.algorithm.kind.replace("_", " ")
    found = _found(tf, cost, learned, explanation, laws) | {"warnings": learned.warnings}
    proven = _proven(explanation, why_not)
    sections = [
        _architecture(tf, cost),
        _training(tf, learned, algorithm),
        _errors(explanation, why_not, laws, scaled=units is not None),
        _cost(cost),
    ]
    made = manifest({"model": name, "algorithm": tf.algorithm.config(), "compile": vars(tf.options), "seed": seed})
    title = f"{algorithm[0].upper()}{algorithm[1:]}, compiled into a transformer ({tf.options.target})"
    lead = _lead(found, algorithm, list(dict.fromkeys(symptom.kind for symptom in learned.symptoms)), proven)
    return Page(title, lead, sections, json.dumps(made, indent=1, default=str), found, found["warnings"])


def _learned(
    tf: CompiledTransformer, X: Tensor | None, y: Tensor | None, X_query: Tensor | None, source: str, seed: int
) -> Learned:
    w0 = None
    if X is None or y is None:
        drawn = random_prompt(tf, seed, 1, None)
        X, y, X_query, w0 = drawn.X[0], drawn.y[0], None, drawn.w0[0]
        source = f"a random prompt of the algorithm's own, seed {seed}"
    queries = X if X_query is None or not len(X_query) else X_query
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoorRun)  # the page says it
        run = tf.run(X, y, queries, w0=w0, seed=seed, executor=_executor(tf))
    exact = reference(tf.algorithm, X, y, queries, w0=w0, seed=seed)
    try:
        losses = run.loss.tolist(), exact.loss[list(run.recorded)].tolist()
    except InputError:  # of an algorithm that says of no loss that it makes it small
        losses = None
    return Learned(X, y, w0, run, exact, losses, source)


def _executor(tf: CompiledTransformer) -> Name:
    """The matrices themselves, where that takes seconds."""
    return "dense" if tf.cost().nonzeros <= LARGEST else "plain"


def _explained(tf: CompiledTransformer, learned: Learned) -> tuple[Explanation | None, str]:
    try:
        return explain(tf, learned.X, learned.y, w0=learned.w0, executor=_executor(tf)), ""
    except (InputError, JobError) as error:
        return None, str(error)


def _found(
    tf: CompiledTransformer, cost: Cost, learned: Learned, explanation: Explanation | None, laws: Report | None
) -> dict[str, Any]:
    """The numbers of the page."""
    steps = [] if explanation is None else explanation.steps
    there, here = learned.predictions
    return {
        "algorithm": tf.algorithm.kind,
        "target": tf.options.target,
        "blocks": cost.blocks,
        "readout_blocks": cost.readout_blocks,
        "steps": tf.program.steps,
        "examples": len(learned.X),
        "data": learned.source,
        "loss": None if learned.losses is None else learned.losses[0],
        "loss_exact": None if learned.losses is None else learned.losses[1],
        "prediction_difference": float((there - here).abs().max()),
        "in_units": learned.units is not None,
        "path_error": [step.path for step in steps],
        "path_bound": [step.path_bound for step in steps],
        "step_bound": [step.bound for step in steps],
        "laws_hold": None if laws is None else laws.passed,
    }


def _lead(found: dict[str, Any], algorithm: str, symptoms: Sequence[str], proven: str) -> str:
    """What happened; first, whether it went well. Then what was measured of its error, and what is proven."""
    poor = f"This run did not go well: {', '.join(symptoms)}. " if symptoms else ""
    blocks, steps = plural(found["blocks"], "block"), plural(found["steps"], "step")
    blocks += f" (and {found['readout_blocks']} for the read-out)" * bool(found["readout_blocks"])
    what = f"{poor}Inside one forward pass of {blocks} this transformer does {steps} of {algorithm} on "
    what += plural(found["examples"], "example")
    losses = found["loss"]
    if losses:
        way = "falls" if losses[-1] < losses[0] else "rises" if losses[-1] > losses[0] else "stays"
        what += f": the loss {way} from {number(losses[0])} to {number(losses[-1])}"
    apart = number(found["prediction_difference"]) + " (in the units of the file)" * found["in_units"]
    return f"{what}. Measured: its predictions differ from those of {algorithm} itself by at most {apart}. {proven}"


def _proven(explanation: Explanation | None, why_not: str) -> str:
    """The bound, in a sentence; and whether it says anything."""
    if explanation is None:
        return f"Proven: nothing ({why_not})."
    last, single = explanation.steps[-1], max(step.bound for step in explanation.steps)
    learned = "weights" if explanation.learned == "gradient" else "state"
    alone = f"the {explanation.learned} of every single step is off by at most {at_most(single)}"
    if single == math.inf:
        alone = f"nothing about the {explanation.learned} of some single step"
    if last.path_bound is None:
        return f"Proven: {alone}; too much is learned for a bound on all steps together."
    if not explanation.useful:
        size = f"{at_most(last.path_bound)}, where all that was learned has size {number(explanation.size)}"
        return f"Proven: {alone}; the bound on all steps together is useless ({size})."
    apart = f"measured, they are {number(last.path)} apart"
    return f"Proven: the last {learned} are within {at_most(last.path_bound)} of the exact ones; {apart}."


# ------------------------------------------------------------------------------------------------------------ sections


def _architecture(tf: CompiledTransformer, cost: Cost) -> Section:
    words = (
        f"{cost.blocks:,} blocks learn and {cost.readout_blocks} read out; every token carries {tf.d_model:,} numbers, "
        f"the lanes on the right; {cost.nonzeros:,} weights are not zero. Read it from top to bottom. A line puts a "
        "layer into words. A ring marks a lane it reads, a dot the lane it writes. Repetitions are drawn once."
    )
    return Section("Architecture", [words], [Picture(tf.draw().svg, "Drawn from the program itself.", wide=True)])


def _training(tf: CompiledTransformer, learned: Learned, algorithm: str) -> Section:
    inputs, targets = learned.columns
    names = f" Inputs: {', '.join(inputs)}. Target: {', '.join(targets)}." if inputs else ""
    words = [f"Data: {learned.source}; {plural(len(learned.X), 'example')}.{names}"]
    reached = _score(tf, learned)
    words += [] if reached is None else [f"{reached.words('example')}. (On the rows that taught it; 1 is perfect.)"]
    scaled = " It is the loss of the scaled data." * (learned.units is not None)
    pictures, tables = list[Picture](), list[Table]()
    if learned.losses is not None:
        own, exact = learned.losses
        caption = f"The loss on the examples after every step: {algorithm} itself, and inside the forward pass.{scaled}"
        pictures.append(_panel(lambda ax: draw_loss(ax, learned.run.recorded, own, exact, algorithm), caption))
        rows = [["step", "loss of the algorithm", "loss in context"]]
        rows += [
            [str(step), *(f"{v:.6f}" if v < 1e6 else number(v) for v in (a, b))]
            for step, a, b in zip(learned.run.recorded, exact, own, strict=True)
        ]
        tables.append(Table("Loss by step", some(rows), shown=False))
    there, here = (part.flatten().tolist() for part in learned.predictions)
    caption = f"Predictions of the transformer, against those of {algorithm} itself: on the line they are equal."
    caption += " In the units of the file." * (learned.units is not None)
    pictures.append(_panel(lambda ax: _draw_predictions(ax, here, there, ", ".join(targets)), caption))
    return Section("Training, in context and by itself", words, pictures, tables)


def _score(tf: CompiledTransformer, learned: Learned) -> Score | None:
    """How good the predictions of the examples are, if the last weights say what they are."""
    w = learned.run.weights[-1:].double()
    found = tf.algorithm.predicted(w, learned.X.double().unsqueeze(0)) if w.numel() else None
    if found is None:
        return None
    loss = getattr(getattr(tf.algorithm, "loss", None), "name", "")
    y = learned.y.reshape(len(learned.X), -1)
    names = learned.columns[1] or [f"target {n}" for n in range(1, y.shape[1] + 1)]
    return score(found[0], y, names, classes=loss in ("logistic", "softmax"))


def _draw_predictions(ax: Axes, exact: Sequence[float], own: Sequence[float], target: str) -> None:
    low, high = min(*exact, *own), max(*exact, *own)
    ax.plot([low, high], [low, high], color=GREY, lw=1, zorder=0)
    ax.scatter(exact, own, s=22, color=ORANGE, edgecolor="white", lw=0.4)
    worst = max(abs(a - b) for a, b in zip(exact, own, strict=True))
    title = plural(len(own), "prediction")
    of = f"{shortened(target, 24)}: ".replace("$", r"\$") if target else ""
    ax.set(title=title, xlabel=f"{of}the algorithm itself", ylabel=f"{of}the transformer")
    if max(abs(low), abs(high)) >= 1000:
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:,.0f}" if max(abs(low), abs(high)) < 1e9 else "{x:.1g}")
        figures.few_ticks(ax)
    ax.text(0.05, 0.92, f"largest difference {number(worst)}", transform=ax.transAxes, color=GREY, fontsize=SMALL)


def _errors(explanation: Explanation | None, why_not: str, laws: Report | None, *, scaled: bool) -> Section:
    title = "Error and certificate"
    checked = [] if laws is None else [_laws(laws)]
    if explanation is None:
        return Section(title, [f"There is no certificate: {why_not}."], [], checked)
    steps = explanation.steps
    bounds = None if any(step.path_bound is None for step in steps) else [step.path_bound or 0.0 for step in steps]
    words = [
        "A certificate is a number that the error provably does not exceed, rounding included. "
        f"The state of the functions: {explanation.state}."
        + " Weights and gradients are those of the scaled data."
        * scaled,
        *(f"{row.name}: {row.reason}." for row in explanation.health if not row.green),
        *explanation.notes,
    ]
    by_step = [step.bound for step in steps], bounds, [step.path for step in steps]
    by_steps = (
        f"Error by step. Blue: what is proven, of the {explanation.learned} of one step (dotted) and of all steps so "
        "far; orange: what was measured."
    )
    pictures = [
        _panel(lambda ax: draw_certificate(ax, *by_step), by_steps, height=4.8),
        _panel(lambda ax: draw_layers(ax, explanation), "Error by layer, in the step where it is largest.", height=4.8),
    ]
    rows = [["step", f"error of the {explanation.learned}", "bound", "distance to the exact path", "bound"]]
    rows += [
        [
            str(n),
            number(s.measured),
            number(s.bound),
            number(s.path),
            "-" if s.path_bound is None else number(s.path_bound),
        ]
        for n, s in enumerate(steps, start=1)
    ]
    shares = [["function", "share of the bound"], *([k, f"{v:.1%}"] for k, v in explanation.functions.items())]
    tables = [Table("Errors by step", some(rows), shown=False)]
    tables += [Table("Where the bound comes from", shares)] if len(shares) > 1 else []
    return Section(title, words, pictures, [*tables, *checked])


def _laws(laws: Report) -> Table:
    rows = [["law", "of what", "value", "limit", "holds"]]
    rows += [
        [law.name, law.unit, f"{law.value:.2e}", f"{law.limit:.2e}", "yes" if law.holds else "NO"] for law in laws.laws
    ]
    failed = sum(not law.holds for law in laws.laws)
    words = f"{failed} fail" if failed else "all hold"
    return Table(f"Laws of the weights, checked on random prompts: {words}", rows, 2, shown=bool(failed))


def _cost(cost: Cost) -> Section:
    head = [["layer", "kind", "times", "heads or units", "nonzero weights", "norm"]]
    layers = [*head, *map(_layer, costs.condensed(cost.rows))]
    totals = [["", "here", *["the paper"] * bool(cost.paper)]]
    for name, value in cost.totals().items():
        totals.append([name, costs.number(value), *[cost.paper.get(name, "")] * bool(cost.paper)])
    return Section(
        "Cost",
        [f"For {cost.n_tokens} tokens. {costs.WORDS}"],
        [],
        [Table("Totals", totals), Table("Layers", layers, 2, shown=False)],
    )


def _layer(row: LayerCost | str) -> list[str]:
    if isinstance(row, str):
        return [row, "", "", "", "", ""]
    times = str(row.times) if row.times else "read-out"
    return [row.name, row.kind, times, f"{row.heads:,}", f"{row.nonzeros:,}", f"{row.norm:.3g}"]


def _panel(draw: Any, caption: str, height: float = SIZE[1]) -> Picture:
    with figures.new(size=(SIZE[0], height)) as (figure, (ax,)):
        draw(ax)
        return Picture(figures.as_svg(figure), caption)
