"""Does training keep a construction? A compiled transformer of functional gradient descent is trained further.

    run       trains, measures: results/from_compiled.json (some minutes of one core)
    draw      docs/from_compiled.png, from these results

The transformer has three layers, three steps of gradient descent on a linear function of 5 inputs, compiled by
``ig.compile(ig.FunctionalGradientDescent("linear", steps=3, ...))``. ``lab.from_compiled`` makes it a learner. All its
numbers are trained: r, B and C, and A where it is free. Beside it: the same learner from random weights.

Two distributions of inputs: the unit sphere; and Sigma^(1/2) times it, with linear functions of the points before they
were stretched (Cheng et al. 2024). For the first, plain descent has the right form: B^T C and A are multiples of 1. For
the second, Theorem 4.5 there has another: B^T C is a multiple of Sigma^(-1).

Measured at steps that are evenly spaced on a log axis:

    error       squared error of the label of the query after 20 examples, over the mean square of a label
    plain       how far B^T C is from a multiple of 1, the worst layer: |M - a 1| / |M|
    whitened    the same of Sigma^(1/2) B^T C Sigma^(1/2)
    apart       mean squared distance of predictions to those of the nearest learner of the form, over the mean square
                of a label; the form is that of the distribution of inputs
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from _results import read, store
from innergrad import figures, lab
from innergrad.algorithms.functional import FunctionalGradientDescent
from innergrad.compiler import compile
from innergrad.figures import BLUE, ORANGE
from innergrad.lab import checkpoints
from innergrad.lab.evaluation import prompts
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig, distance, from_compiled
from innergrad.lab.tasks import Covariance, Sphere
from innergrad.lab.tasks.base import Params

ROOT = Path(__file__).parent.parent
D, EXAMPLES, LAYERS, STEP = 5, 20, 3, 0.15
STEPS, BATCH, TESTED, RATE = 1500, 128, 4000, 5e-3
SEEDS = (0, 1, 2)
INPUTS = {"sphere": Sphere(), "Sigma": Covariance()}
COMMAND = "python benchmarks/from_compiled.py run"

Row = dict[str, Any]


@dataclass(frozen=True)
class WhitenedLinear(lab.Linear, kind="whitened-linear"):
    """w . Sigma^(-1/2) x: linear functions of the points before they were stretched. Labels have mean square 1."""

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        inputs = self.inputs
        return super().evaluate(params, inputs.whiten(x) if isinstance(inputs, Covariance) else x)

    @property
    def scale(self) -> float:
        return self.tau


def task(inputs: str, seed: int) -> lab.Task:
    """Linear functions; each seed has axes of its own."""
    chosen = INPUTS[inputs]
    own = replace(chosen, sigma_seed=seed) if isinstance(chosen, Covariance) else chosen
    return WhitenedLinear(d=D, inputs=own)


def experiments(free_A: bool, steps: int = STEPS) -> list[lab.Experiment]:
    learner = KernelLearnerConfig(n_layers=LAYERS, heads=("linear",), free_A=free_A)
    optimiser = lab.Optimiser(lr=RATE, schedule="cosine", clip=1.0)
    config = lab.TrainConfig(steps=steps, batch=BATCH, optimiser=optimiser, snapshots=4)
    return [
        lab.Experiment(f"{name}-{seed}", seed, EXAMPLES + 1, task(name, seed), learner, config)
        for name in INPUTS
        for seed in SEEDS
    ]


def compiled(free_A: bool) -> KernelLearner:
    """Three equal steps of gradient descent, compiled."""
    descent = FunctionalGradientDescent("linear", steps=LAYERS, d=D, step=STEP)
    return from_compiled(compile(descent, n_examples=EXAMPLES), free_A=free_A)


@torch.no_grad()
def measure(learner: KernelLearner, one: lab.Experiment, x: Tensor, y: Tensor) -> Row:
    """One learner on prompts whose last label is asked for."""
    inputs = one.task.inputs
    sigma = inputs.sigma() if isinstance(inputs, Covariance) else torch.eye(D, dtype=torch.float64)
    found, formed = learner(x[None], y[None])[0, :, 0], nearest(learner, sigma)(x[None], y[None])[0, :, 0]
    scale = one.task.scale**2
    row = {
        "error": float((found - y[:, -1]).square().mean()) / scale,
        "plain": float(learner.distance_to_identity().max()),
        "whitened": float(learner.distance_to_identity(sigma).max()),
        "apart": float((found - formed).square().mean()) / scale,
    }
    if learner.config.free_A:
        used = learner.get_parameter("A")[0, :-1, 0].double()  # the last layer's moves nothing that is read
        row |= {"A": float(used.norm(dim=(-2, -1)).max()), "A_plain": float(distance(used).nan_to_num(0.0).max())}
    return {name: float(f"{value:.6g}") for name, value in row.items()}


def nearest(learner: KernelLearner, sigma: Tensor) -> KernelLearner:
    """B^T C becomes b Sigma^(-1), and A a multiple of 1, with the same traces; the steps stay."""
    made = learner.alone()
    values, vectors = torch.linalg.eigh(sigma)
    root, inverse = (vectors * values.sqrt()) @ vectors.T, (vectors / values) @ vectors.T
    with torch.no_grad():
        for name, parameter in learner.named_parameters():
            made.get_parameter(name).copy_(parameter)
        product = learner.get_parameter("B").double().mT @ learner.get_parameter("C").double()
        size = (root @ product @ root).diagonal(dim1=-2, dim2=-1).mean(-1)
        made.get_parameter("B").copy_(torch.eye(D).expand_as(made.get_parameter("B")))
        made.get_parameter("C").copy_(size[..., None, None] * inverse)
        if learner.config.free_A:
            mean = learner.get_parameter("A").diagonal(dim1=-2, dim2=-1).mean(-1)
            made.get_parameter("A").copy_(mean[..., None, None] * torch.eye(D))
    return made


def run(folder: Path, steps: int = STEPS, tested: int = TESTED) -> list[Row]:
    """A row for every kind of inputs, A, start, seed and snapshot."""
    rows = []
    for free_A in (False, True):
        stack = experiments(free_A, steps)
        drawn = [prompts(one.task, tested, EXAMPLES + 1, 1, 1000, "cpu") for one in stack]
        for start in ("compiled", "random"):
            place = folder / f"{start}-{'free' if free_A else 'fixed'}"
            shutil.rmtree(place, ignore_errors=True)
            lab.train(stack, place, start=compiled(free_A) if start == "compiled" else None)
            for path in lab.snapshots(place):
                step = checkpoints.load(path).step
                for number, one in enumerate(stack):
                    learner, _ = lab.load_learner(path, number)
                    assert isinstance(learner, KernelLearner)
                    about = {"inputs": one.name.split("-")[0], "free_A": free_A, "start": start, "seed": one.seed}
                    rows.append({**about, "step": step, **measure(learner, one, *drawn[number])})
            print(f"{place.name}: error {rows[-1]['error']:.4g}", flush=True)
    return rows


# -------------------------------------------------------------------------------------------------------------- pages

CASES = (("sphere", False), ("sphere", True), ("Sigma", False), ("Sigma", True))


def chosen(rows: list[Row], inputs: str, free_A: bool, start: str, step: int) -> list[Row]:
    wanted = {"inputs": inputs, "free_A": free_A, "start": start, "step": step}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def span(rows: list[Row], name: str) -> str:
    """The range over seeds, in two digits."""
    low, high = min(row[name] for row in rows), max(row[name] for row in rows)
    return f"{low:.2g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g} – {high:.2g}"


def table() -> list[str]:
    """Before and after training, over seeds."""
    rows = read("from_compiled")["rows"]
    last = max(row["step"] for row in rows)
    lines = ["| inputs | A | start | error before | after | B^T C from its form, before | after | predictions apart |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for inputs, free_A in CASES:
        for start in ("compiled", "random"):
            first, end = (chosen(rows, inputs, free_A, start, step) for step in (0, last))
            cells = [span(first, "error"), span(end, "error"), span(first, "whitened"), span(end, "whitened")]
            where = "unit sphere" if inputs == "sphere" else "Sigma^½ · sphere"
            named = [where, "trained" if free_A else "0", start, *cells, span(end, "apart")]
            lines.append(f"| {' | '.join(named)} |")
    return [line.replace("Sigma", "Σ").replace("B^T C", "BᵀC") for line in lines]


def draw(path: Path) -> None:
    """A column for each kind of inputs and A: the error above, the distance to the form below, a line for each seed."""
    rows = read("from_compiled")["rows"]
    steps = sorted({row["step"] for row in rows})
    with figures.new(2, len(CASES), size=(15.0, 6.8)) as (figure, axes):
        for place, (inputs, free_A) in enumerate(CASES):
            for ax, measure_ in ((axes[place], "error"), (axes[len(CASES) + place], "whitened")):
                for start, colour in (("compiled", ORANGE), ("random", BLUE)):
                    for seed in SEEDS:
                        found = [chosen(rows, inputs, free_A, start, step) for step in steps]
                        values = [next(row[measure_] for row in some if row["seed"] == seed) for some in found]
                        label = {"compiled": "from the compiled transformer", "random": "from random weights"}[start]
                        ax.plot([step + 1 for step in steps], values, color=colour,
                                lw=1.6, label=label if seed == SEEDS[0] else None)  # fmt: skip
                ax.set(xscale="log", xlabel="steps of training + 1", yscale="log" if measure_ == "error" else "linear")
            where = "inputs on the unit sphere" if inputs == "sphere" else "inputs $\\Sigma^{1/2}$ · sphere"
            axes[place].set_title(f"{where}\n{'A trained, too' if free_A else 'A = 0'}")
            axes[len(CASES) + place].set_ylim(-0.03, 1.05)
        axes[0].set_ylabel("squared error / mean square")
        axes[len(CASES)].set_ylabel("distance of $\\Sigma^{1/2} B^T C\\, \\Sigma^{1/2}$\nto a multiple of 1")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figures.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "draw"))
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "from_compiled")
    given = parser.parse_args()
    if given.command == "run":
        settings = {"examples": EXAMPLES, "layers": LAYERS, "step": STEP, "steps": STEPS, "batch": BATCH, "lr": RATE}
        store("from_compiled", COMMAND, {"settings": settings, "rows": run(given.folder)})
    else:
        draw(ROOT / "docs" / "from_compiled.png")
        print("wrote docs/from_compiled.png")


if __name__ == "__main__":
    main()
