"""What compiles where: every algorithm on every target, gradient descent with every activation, output and loss.

Writes results/coverage.json and prints the tables; ``--tables``: only the tables. ``--workers``: processes (it takes
about five minutes of one core); ``--out folder``: also writes it there. A cell is compiled and passes ``verify`` on a
random prompt of three examples, or is refused with a sentence, which is stored. A verification that fails would be
stored as such. Gradient descent is one step on [2, 3, 1] ([2, 3, 2] for the softmax loss); activations are tried with
the squared loss and losses with tanh, both with a linear and an activated output: what is refused depends on one of
them; projections, with tanh and the squared loss. ``fits``: what target llama fits, on [2, 4, 4, 1], box=None, by its
matrices.
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
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
    "llama chain": ("llama", "chain", None),
    "llama wide": ("llama", "wide", None),
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
EPSILON = {"relu": 1e-2, "llama": 1e-12}  # of the others: 1e-4
FITTED: dict[str, dict[str, Any]] = {
    "gelu": {"activation": "gelu"},
    "softplus": {"activation": "softplus"},
    "sin": {"activation": "sin"},
    "pseudo-huber": {"loss": "pseudo-huber"},
}
PROJECTIONS: dict[str, dict[str, Any]] = {
    "none": {"box": None},
    "box": {"box": 1.0},
    "box, l1": {"box": 1.0, "l1": 0.1},
    "ball": {"ball": 1.0},
    "ball, l1": {"ball": 1.0, "l1": 0.1},
}
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


def descent_cell(activation: str, output: str, loss: str, where: str) -> Cell:
    target, variant, sigma = WHERE[where]
    box = None if sigma == "tanh" else 4.0  # sums of tanh do not clip
    options = {"target": target, "variant": variant, "sigma": sigma, "epsilon": EPSILON.get(target, 1e-4)}
    bound = {"z_bound": 16.0} if target == "relu" and activation == "sin" else {}
    found = tried(lambda: descent(activation, output, loss, box), **options, **bound)
    return {"activation": activation, "output": output, "loss": loss, "where": where, **found}


def projection_cell(projection: str, where: str) -> Cell:
    """Weights of [2, 3, 1] are about 2 long at the start, so that the ball binds."""
    target, variant, sigma = WHERE[where]
    options = {"target": target, "variant": variant, "sigma": sigma, "epsilon": EPSILON.get(target, 1e-4)}
    make = partial(ig.GradientDescent, ig.Network([2, 3, 1]), lr=0.1, steps=1, **PROJECTIONS[projection])
    return {"projection": projection, "where": where, **tried(make, **options)}


def other_cell(name: str, target: str) -> Cell:
    lookup = {"variant": "lookup"} if name == "descent on a grid" and target == "softmax" else {}
    epsilon = {} if target == "kernel" or lookup else {"epsilon": 1e-4}
    return {"algorithm": name, "target": target, **tried(OTHERS[name], target=target, **lookup, **epsilon)}


def fit(name: str, epsilon: float) -> Cell:
    """On target llama: units of a neuron, the error of the fits, and the error of the weights after five steps."""
    settings = dict(FITTED[name])
    network = ig.Network([2, 4, 4, 1], settings.pop("activation", "tanh"))
    algorithm = ig.GradientDescent(network, lr=0.1, steps=5, box=None, **settings)
    tf = ig.compile(algorithm, target="llama", epsilon=epsilon, n_examples=8)
    X, y, X_query = algorithm.random_prompt(8, 1, torch.Generator().manual_seed(0))
    off = tf.run(X, y, X_query, executor="dense").weights - ig.reference(algorithm, X, y, X_query).weights
    fits = tf.approximants.values()
    sizes = {"units": max(len(f.a) for f in fits), "error": max(f.error for f in fits)}  # type: ignore[union-attr]
    return {"name": name, "epsilon": epsilon, **sizes, "weights": float(off.abs().max())}


def everything(workers: int) -> dict[str, list[Cell]]:
    settings = [(activation, output, "squared") for activation in ACTIVATIONS for output in OUTPUTS]
    settings += [("tanh", output, loss) for loss in LOSSES if loss != "squared" for output in OUTPUTS]
    return {
        "descent": made(descent_cell, [(*setting, where) for setting in settings for where in WHERE], workers),
        "projections": made(projection_cell, [(name, where) for name in PROJECTIONS for where in WHERE], workers),
        "others": made(other_cell, [(name, target) for name in OTHERS for target in TARGETS], workers),
        "fits": made(fit, [(name, epsilon) for name in FITTED for epsilon in (1e-6, 1e-12)], workers),
    }


def made(task: Callable[..., Cell], cells: Iterable[tuple[Any, ...]], workers: int) -> list[Cell]:
    """task(*cell) for every cell, in order."""
    if workers == 1:
        return [task(*cell) for cell in cells]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        return list(pool.map(task, *zip(*cells, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="only print the tables")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="a folder for a copy of the results")
    given = parser.parse_args()
    if not given.tables:
        torch.set_num_threads(1)
        store("coverage", "python benchmarks/coverage.py", everything(given.workers), given.out)
    print("\n\n".join("\n".join(table()) for table in TABLES.values()))


if __name__ == "__main__":
    main()
