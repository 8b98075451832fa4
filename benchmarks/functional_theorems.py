"""Theorems 4.5 and 4.6 of Cheng et al. (2024), computed: is the gradient on the predicted set a direction of the set?

    python benchmarks/functional_theorems.py      seconds on one core; stores results/functional_theorems.json

The loss is that of :mod:`innergrad.papers.functional_theorems`: averaged over a group that stands for all orthogonal
matrices, with d = 3, two layers and six examples. For pairs of a kernel and an attention, with A = 0 (4.5) and with a
free A (4.6), the rows of ``set`` have the share of the gradient that points off the set:

    averaged      on the set: the theorems say 0
    one axis      on the set, without the average: not 0, so that the average is what does it
    off           averaged, but B is not on the set: not 0, so that the set is what does it

The rows of ``flow`` have the largest entry of the full gradient where descent on the set ended, over that at its start;
and the same on a wrong set, where B and C are multiples of I in place of Sigma^(-1/2).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from _results import no_arguments, read, store
from innergrad.lab.counter_rng import CounterRNG
from innergrad.papers.functional_theorems import Symmetric, off_set, size

KERNELS, ATTENTIONS = ("relu", "exp"), ("linear", "relu", "exp", "softmax")
FLOWS = (("exp", "softmax"), ("relu", "relu"), ("exp", "linear"))
START = torch.tensor([[-0.5, -0.4], [0.1, 0.1], [0.8, 0.7], [0.6, 0.9]], dtype=torch.float64)  # r, a, b, c by layer
NAME = "functional_theorems"
ZERO, CLEAR, ENDED = 1e-12, 0.01, 1e-6  # a share that is rounding; one that is not; a gradient that has vanished
Row = dict[str, Any]


def on_the_set(problem: Symmetric) -> Row:
    """The shares of the gradient that point off the set."""
    weights = problem.on_set(START)
    noise = CounterRNG.of(0, "off the set").normal(torch.arange(1), *weights["B"].shape)[0].double()
    away = weights | {"B": weights["B"] + 0.1 * noise}
    return {
        "averaged": off_set(problem.gradient(weights)),
        "one axis": off_set(replace(problem, turned=False).gradient(weights)),
        "off": off_set(problem.gradient(away)),
    }


def flow(problem: Symmetric) -> Row:
    """The full gradient where descent on a set ends, over that at its start: the predicted set, and a wrong one."""
    start = size(problem.gradient(problem.on_set(START)))
    eye = torch.eye(problem.d, dtype=torch.float64)
    ends = {
        "predicted": problem.on_set(problem.settled(START)),
        "wrong": problem.on_set(problem.settled(START, eye), eye),
    }
    return {name: size(problem.gradient(weights)) / start for name, weights in ends.items()}


def measured() -> dict[str, list[Row]]:
    def rows(pairs: Any, measure: Any) -> list[Row]:
        return [
            {"kernel": kernel, "attention": h, "free_A": free}
            | {name: float(f"{value:.3g}") for name, value in measure(Symmetric(kernel, h, free)).items()}
            for kernel, h in pairs
            for free in (False, True)
        ]

    every = [(kernel, h) for kernel in KERNELS for h in ATTENTIONS]
    return {"set": rows(every, on_the_set), "flow": rows(FLOWS, flow)}


def table() -> list[str]:
    """For docs/reproduction.md: by theorem, the largest and the least numbers of all pairs."""
    found = read(NAME)
    head = ["theorem", "what", "pairs", "on the predicted set, at most", "without the average, at least"]
    lines = [f"| {' | '.join(head)} | off the set, at least |", "|---" * 6 + "|"]
    for theorem, free in (("4.5, A = 0", False), ("4.6, A is free", True)):
        rows, flows = ([row for row in found[part] if row["free_A"] is free] for part in ("set", "flow"))
        shares = f"{max(r['averaged'] for r in rows):.0e} | {min(r['one axis'] for r in rows):.2g}"
        off = min(row["off"] for row in rows)
        lines.append(f"| {theorem} | share of the gradient that leaves the set | {len(rows)} | {shares} | {off:.2g} |")
        end, wrong = max(row["predicted"] for row in flows), min(row["wrong"] for row in flows)
        what = "full gradient where descent on the set ends, over that at its start"
        lines.append(f"| {theorem} | {what} | {len(flows)} | {end:.0e} | | {wrong:.2g} |")
    return lines


if __name__ == "__main__":
    no_arguments(__doc__)
    torch.set_num_threads(1)
    store(NAME, "python benchmarks/functional_theorems.py", measured())
