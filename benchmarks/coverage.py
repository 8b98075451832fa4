"""What compiles where: every algorithm on every target, gradient descent with every activation, output and loss.

Writes results/coverage.json (a few minutes, one thread) and prints the tables; ``--tables``: only the tables. A cell is
compiled and passes ``verify`` on a random prompt of three examples, or is refused with a sentence, which is stored. A
verification that fails would be stored as such. Gradient descent is one step on [2, 3, 1] ([2, 3, 2] for the softmax
loss); activations are tried with the squared loss and losses with tanh, both with a linear and an activated output:
what is refused depends on one of them.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

import innergrad as ig
from _results import store
from coverage_tables import TABLES, TARGETS, Cell

Where = tuple[str, str, str | None]  # target, variant, sigma
WHERE: dict[str, Where] = {
    "relu literal": ("relu", "literal", None),
    "relu compact": ("relu", "compact", None),
    "relu shallow": ("relu", "shallow", None),
    "relu narrow": ("relu", "narrow", None),
    "gpt": ("gpt", "pre-ln", None),
    "softmax mean": ("softmax", "mean", None),
    "softmax sink": ("softmax", "sink", None),
    "sigma gelu": ("sigma", "backprop", "gelu"),
    "sigma tanh": ("sigma", "backprop", "tanh"),
}
ACTIVATIONS = tuple(ig.ACTIVATIONS)
OWN = {
    "own: f(t) + g(y)": lambda t, y: (torch.exp(t) - y * t).sum(-1),  # Poisson
    "own: any smooth": lambda t, y: (t + y * torch.exp(-t)).sum(-1),  # gamma
    "own: not smooth": lambda t, y: (t - y).abs().sum(-1),
    "own: coupled": lambda t, y: (torch.softmax(t, -1) - y).square().sum(-1),
}
LOSSES = (*ig.LOSSES, *OWN)
OUTPUTS = ("linear", "activation")
EPSILON = {"relu": 1e-2}  # of the others: 1e-4
OTHERS: dict[str, Callable[[], ig.Algorithm]] = {
    "Adam": lambda: ig.Adam(ig.Network([2, 3, 1]), lr=0.05, steps=1, delta=0.1),
    **{
        f"functional, {kernel} kernel": partial(ig.FunctionalGradientDescent, kernel, steps=2, d=2)
        for kernel in ("linear", "relu", "exp", "softmax")
    },
    "online SGD": lambda: ig.OnlineSGD(d=2),
    "recursive least squares": lambda: ig.RecursiveLeastSquares(d=2),
    "descent on a grid": lambda: ig.GridDescent(
        ig.GradientDescent(ig.Network([1, 1], bias=False), steps=1, lr=1.0, box=1.0), grid=2
    ),
}


def descent(activation: str, output: str, loss: str, box: float | None) -> ig.GradientDescent:
    sizes = [2, 3, 2] if loss in ("softmax", "own: coupled") else [2, 3, 1]
    made: str | ig.Loss = loss
    if loss in OWN:
        made = ig.SmoothLoss("own", OWN[loss], t_bound=2.0, y_bound=2.0, accuracy=1e-2)
    return ig.GradientDescent(ig.Network(sizes, activation, output), made, lr=0.1, steps=1, box=box)  # type: ignore[arg-type]


def tried(make: Callable[[], ig.Algorithm], **options: Any) -> Cell:
    """state: exact, proven, measured or declared; or why not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tf = ig.compile(make(), n_examples=3, **options)
            report = tf.verify(prompts=1)
    except ig.InputError as error:
        return {"reason": str(error)}
    return {"state": tf.state} if report.passed else {"failed": str(report)}


def cells() -> Iterator[Cell]:
    settings = [(activation, output, "squared") for activation in ACTIVATIONS for output in OUTPUTS]
    settings += [("tanh", output, loss) for loss in LOSSES if loss != "squared" for output in OUTPUTS]
    for activation, output, loss in settings:
        for name, (target, variant, sigma) in WHERE.items():
            box = None if sigma == "tanh" else 4.0  # sums of tanh do not clip
            options = {"target": target, "variant": variant, "sigma": sigma, "epsilon": EPSILON.get(target, 1e-4)}
            bound = {"z_bound": 16.0} if target == "relu" and activation == "sin" else {}
            found = tried(lambda: descent(activation, output, loss, box), **options, **bound)  # noqa: B023
            yield {"activation": activation, "output": output, "loss": loss, "where": name, **found}


def others() -> Iterator[Cell]:
    for name, make in OTHERS.items():
        for target in TARGETS:
            lookup = {"variant": "lookup"} if name == "descent on a grid" and target == "softmax" else {}
            epsilon = {} if target == "kernel" or lookup else {"epsilon": 1e-4}
            yield {"algorithm": name, "target": target, **tried(make, target=target, **lookup, **epsilon)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true", help="only print the tables")
    if not parser.parse_args().tables:
        torch.set_num_threads(1)
        store("coverage", "python benchmarks/coverage.py", {"descent": list(cells()), "others": list(others())})
    print("\n\n".join("\n".join(table()) for table in TABLES.values()))


if __name__ == "__main__":
    main()
