"""Why linear attention with A = 0 leaves the weights that Theorem 4.5 of Cheng et al. (2024) predicts.

    python benchmarks/functional_rotations.py      four minutes on one core; stores results/functional_rotations.json

:mod:`innergrad.papers.functional_rotations` has the reason: descent with complex steps would err less, and matrices
that turn planes do a little of that. For linear, relu and exp labels, three layers and 30 examples, a row has

    real          the best steps on the predicted set
    free          the steps of the best polynomial of degree 3, which may be complex, as pairs (real, imaginary)
    free_gain     how much less it errs, on other prompts than those it was chosen on; with a 95 % interval
    curvature     the least eigenvalue of the Hessian of the loss along turns, at the best real steps; on two samples
    distances     of the best turned matrices to the identity, layer by layer
    gain          how much less these err, on other prompts; with a 95 % interval
    loss          of the best real steps on these prompts
    trained       where training ends: the same distances, means over seeds, from results/figures
"""

from __future__ import annotations

import json
from typing import Any

import torch

from _results import RESULTS, no_arguments, read, store
from innergrad.lab.learners.kernel_learner import distance
from innergrad.papers.functional_rotations import Moments, best_rotations, best_steps, curvature, on_set, steps_of

KERNELS = ("linear", "relu", "exp")
CHOSEN_ON, MEASURED_ON = 200_000, 1_000_000  # prompts
NAME = "functional_rotations"
COMMAND = "python benchmarks/functional_rotations.py"
RECORDS = RESULTS / "figures" / "functional-identity.linear.json"
Row = dict[str, Any]


def measured(kernel: str, chosen_on: int = CHOSEN_ON, measured_on: int = MEASURED_ON) -> Row:
    """What is best is chosen on some prompts, and measured on others."""
    some, again, others = (Moments.of(kernel, n, k) for k, n in ((1, chosen_on), (3, chosen_on), (2, measured_on)))
    steps, polynomial = best_steps(some), some.best_polynomial()
    matrices = best_rotations(some, steps)
    least = others.losses(on_set(steps))
    return {
        "kernel": kernel,
        "real": [_digits(value, 5) for value in steps.tolist()],
        "free": [[_digits(one.real, 5), _digits(one.imag, 5)] for one in steps_of(polynomial)],
        "free_gain": _interval(least - others.polynomial_losses(polynomial)),
        "curvature": [_digits(curvature(some, steps)), _digits(curvature(again, best_steps(again)))],
        "distances": [_digits(value) for value in distance(matrices).tolist()],
        "gain": _interval(least - others.losses(matrices)),
        "loss": _digits(float(least.mean()), 6),
        "trained": trained(kernel),
    }


def trained(kernel: str) -> list[float]:
    """The distances of trained learners at the end, by layer: means over seeds."""
    records = [row for row in json.loads(RECORDS.read_text())["records"] if row["kernel"] == kernel]
    return [
        _digits(sum(column) / len(column)) for column in zip(*(row["distances"][-1] for row in records), strict=True)
    ]


def _interval(values: torch.Tensor) -> list[float]:
    """The mean, and half its 95 % interval."""
    return [_digits(float(values.mean())), _digits(1.96 * float(values.std()) / len(values) ** 0.5, 2)]


def _digits(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


def table() -> list[str]:
    """For docs/reproduction.md."""
    head = ["labels", "best real steps", "best steps, complex ones too", "their gain", "curvature"]
    head += ["gain of rotations", "distances of the best rotations", "distances at the end of training"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in read(NAME)["rows"]:
        cells = [row["kernel"], ", ".join(f"{value:.2f}" for value in row["real"]), _complex(row["free"])]
        told = " and ".join(f"{value:.1e}" for value in row["curvature"])
        cells += [_percent(row["free_gain"], row["loss"]), told, _percent(row["gain"], row["loss"])]
        cells += [", ".join(f"{value:.2f}" for value in row[name]) for name in ("distances", "trained")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _complex(steps: list[list[float]]) -> str:
    pairs = [
        f"{real:.2f}" if not imaginary else f"{real:.2f} ± {imaginary:.2f} i"
        for real, imaginary in steps
        if imaginary >= 0
    ]
    return ", ".join(pairs)


def _percent(interval: list[float], loss: float) -> str:
    value, half = (100 * one / loss for one in interval)
    return "0" if abs(value) < 1e-3 else f"{value:.3f} % ± {half:.3f} %"


if __name__ == "__main__":
    no_arguments(__doc__)
    torch.set_num_threads(1)
    store(
        NAME,
        COMMAND,
        {"chosen_on": CHOSEN_ON, "measured_on": MEASURED_ON, "rows": [measured(kernel) for kernel in KERNELS]},
    )
