"""Functions learned in context through networks of 2, 3 and 4 layers, at equal size of the transformer.

Writes results/bridges.json, docs/bridges.png and the table of docs/resources.md; ``--draw`` only the last two;
``--check`` looks for drift of the table.

Each function is learned from one prompt of examples by gradient descent with momentum on a tanh network, inside the
forward pass of a compiled transformer. Widths are such that the transformers have equal size: layers a step x heads of
the widest layer, measured on the compiled transformer, within 10%. The rate is chosen for each network from one grid by
the training loss of the exact algorithm, whose weights the transformer's follow to the distance in the last column.
A 2-layer network with as many trained weights as the 3-layer one, whose transformer is larger, is the control.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import innergrad as ig
from _results import read, store
from innergrad import figures
from innergrad.figures import BLUE, GREY, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "resources.md"

TARGET, VARIANT = "sigma", "backprop"
EPSILON, Z_BOUND = 1e-4, 10.0
EXAMPLES, QUERIES, SEEDS, STEPS = 128, 128, 5, 150
MOMENTUM, RATES = 0.9, (0.03, 0.1, 0.3, 1.0)
WIDEST, DEPTHS = 24, (2, 3, 4)  # the 2-layer network that sets the size


@dataclass(frozen=True)
class Task:
    """A function of x ~ N(0, I) cut off at 3."""

    name: str
    d: int
    f: Callable[[Tensor], Tensor]

    def prompt(self, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(EXAMPLES + QUERIES, self.d, generator=generator, dtype=torch.float64).clamp(-3.0, 3.0)
        y = self.f(X).unsqueeze(-1)
        return X[:EXAMPLES], y[:EXAMPLES], X[EXAMPLES:], y[EXAMPLES:]

    def prompts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        X, y, X_query, y_query = zip(*(self.prompt(seed) for seed in range(SEEDS)), strict=True)
        return torch.stack(X), torch.stack(y), torch.stack(X_query), torch.stack(y_query)


def ball(radius: float) -> Callable[[Tensor], Tensor]:
    return lambda X: (X.norm(dim=-1) <= radius).double()


TASKS = (
    Task("ball in 2 dimensions", 2, ball(math.sqrt(1.3863))),  # medians of |x|^2: half the points are inside
    Task("ball in 4 dimensions", 4, ball(math.sqrt(3.3567))),
    Task("sin(2 x1) cos(x2)", 2, lambda X: torch.sin(2.0 * X[:, 0]) * torch.cos(X[:, 1])),
)

# ------------------------------------------------------------------------------------------------------------ the sizes


@dataclass(frozen=True)
class Size:
    """Of one step of gradient descent: layers (attention and the mlp after it), heads of the widest, heads of all."""

    layers: int
    heads: int
    all_heads: int
    parameters: int

    @property
    def product(self) -> int:
        return self.layers * self.heads


def network(d: int, n: int, K: int) -> ig.Network:
    return ig.Network([d, *[K] * (n - 1), 1], "tanh", "linear", True)


def compiled(net: ig.Network, lr: float, steps: int) -> ig.CompiledTransformer:
    algorithm = ig.GradientDescent(net, lr=lr, steps=steps, box=None, momentum=MOMENTUM)
    return ig.compile(algorithm, target=TARGET, variant=VARIANT, epsilon=EPSILON, n_examples=EXAMPLES, z_bound=Z_BOUND)


@cache
def size(d: int, n: int, K: int) -> Size:
    cost = compiled(network(d, n, K), 0.1, 1).cost()
    heads = [row.heads for row in cost.rows if row.kind == "attention" and row.times]
    return Size(cost.blocks, max(heads), sum(heads), cost.nonzeros)


def of_equal_size(d: int, n: int, aim: int) -> int:
    """The width whose transformer has this size, within 10%; the size is linear in the width."""
    one, two = (size(d, n, K).product for K in (1, 2))
    K = round((aim - one) / (two - one)) + 1
    assert abs(size(d, n, K).product - aim) <= 0.1 * aim
    return K


# ------------------------------------------------------------------------------------------------------------- learning


def learn(task: Task, n: int, K: int) -> dict[str, Any]:
    net = network(task.d, n, K)
    X, y, X_query, y_query = task.prompts()
    w0 = torch.stack([net.init(seed) for seed in range(SEEDS)])

    def trained(lr: float) -> tuple[float, ig.Run]:
        algorithm = ig.GradientDescent(net, lr=lr, steps=STEPS, box=None, momentum=MOMENTUM)
        run = ig.reference(algorithm, X, y, X_query, w0=w0)
        risk = float(algorithm.risk(run.weights[:, -1], X, y).mean())
        return (risk if math.isfinite(risk) else math.inf), run

    by_rate = {lr: trained(lr) for lr in RATES}
    lr = min(RATES, key=lambda rate: by_rate[rate][0])
    exact, tf = by_rate[lr][1], compiled(net, lr, STEPS)
    run = tf.run(X, y, X_query, w0=w0, executor="plain")
    measured = size(task.d, n, K)
    assert isinstance(tf.algorithm, ig.GradientDescent)
    return {
        "task": task.name,
        "n": n,
        "K": K,
        "layers": measured.layers,
        "heads": measured.heads,
        "size": measured.product,
        "all_heads": measured.all_heads,
        "parameters": measured.parameters,
        "nK2": n * K * K,
        "weights": net.n_weights,
        "lr": lr,
        "train": (2.0 * tf.algorithm.risk(run.weights[:, -1], X, y)).tolist(),
        "error": (run.predictions - y_query).square().mean((1, 2)).tolist(),
        "of_the_mean": (y.mean(1, keepdim=True) - y_query).square().mean((1, 2)).tolist(),
        "distance": float((run.weights - exact.weights).norm(dim=-1).max()),
        "moved": float((run.weights[:, -1] - w0).norm(dim=-1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="only the figure and the table, from stored results")
    parser.add_argument("--check", action="store_true", help="exit 1 if the table is not what the results say")
    asked = parser.parse_args()
    if asked.check:
        if rendered(PAGE.read_text()) != PAGE.read_text():
            sys.exit("docs/resources.md: the table is not what results/ says; run python benchmarks/bridges.py --draw")
        return
    if not asked.draw:
        start = time.perf_counter()
        rows = [row for task in TASKS for row in family(task)]
        settings = {
            "target": TARGET,
            "variant": VARIANT,
            "examples": EXAMPLES,
            "queries": QUERIES,
            "seeds": SEEDS,
            "steps": STEPS,
            "momentum": MOMENTUM,
            "rates": list(RATES),
            "epsilon": EPSILON,
            "z_bound": Z_BOUND,
        }
        store("bridges", "python benchmarks/bridges.py", {"settings": settings, "bridges": rows})
        print(f"{time.perf_counter() - start:.0f} s")
    if PAGE.exists():
        PAGE.write_text(rendered(PAGE.read_text()))
    draw()


def family(task: Task) -> list[dict[str, Any]]:
    """The networks of a task: with transformers of the same size; and, as a control, one of 2 layers that has as many
    trained weights as the one of 3.
    """
    aim = size(task.d, 2, WIDEST).product
    chosen = {n: WIDEST if n == 2 else of_equal_size(task.d, n, aim) for n in DEPTHS}
    wide = round((network(task.d, 3, chosen[3]).n_weights - 1) / (task.d + 2))
    rows = []
    for equal, n, K in (*(("size", n, K) for n, K in chosen.items()), ("weights", 2, wide)):
        rows.append({"equal": equal, **learn(task, n, K)})
        print(task.name, n, K, f"{statistics.mean(rows[-1]['error']):.4f}", flush=True)
    return rows


# ----------------------------------------------------------------------------------------------------- table and figure

HEAD = ("function", "n", "K", "layers x heads", "heads in all", "parameters", "n K²", "trained weights", "rate")
RESULTS = (
    "training error",
    "error on queries",
    "seeds better than n = 2",
    "mean of the prompt",
    "distance to training",
)


def table() -> list[str]:
    lines = ["| " + " | ".join(HEAD + RESULTS) + " |", "|---" * len(HEAD + RESULTS) + "|"]
    shallow: list[float] = []
    for row in read("bridges")["bridges"]:
        control = row["equal"] == "weights"
        shallow = row["error"] if row["n"] == 2 and not control else shallow
        better = sum(a < b for a, b in zip(row["error"], shallow, strict=True))
        cells = [row["task"] + ", control" * control, row["n"], row["K"]]
        cells += [f"{row['layers']} x {row['heads']:,} = {row['size']:,}", f"{row['all_heads']:,}"]
        cells += [f"{row['parameters']:,}", row["nK2"], row["weights"], f"{row['lr']:g}", _spread(row["train"])]
        cells += [_spread(row["error"]), "" if row["error"] == shallow else f"{better} of {len(shallow)}"]
        cells += [f"{statistics.mean(row['of_the_mean']):.3f}", f"{row['distance']:.0e}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def rendered(text: str) -> str:
    new = "<!-- table: bridges -->\n" + "\n".join(table()) + "\n<!-- end -->"
    return re.sub(r"<!-- table: bridges -->\n.*?<!-- end -->", lambda _: new, text, flags=re.DOTALL)


TICKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


def draw() -> None:
    """Error on the queries and on the examples by depth, one panel a function."""
    rows = read("bridges")["bridges"]
    with figures.new(1, len(TASKS), size=(13, 4.6), share_y=True) as (figure, axes):
        for ax, task in zip(axes, TASKS, strict=True):
            _panel(ax, task.name, [row for row in rows if row["task"] == task.name])
        axes[0].set_ylabel("mean squared error")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        figure.suptitle("Learned in context through networks of n layers, with transformers of equal size")
        figures.save(figure, ROOT / "docs" / "bridges.png")


def _panel(ax: Axes, title: str, rows: list[dict[str, Any]]) -> None:
    level = statistics.mean(rows[0]["of_the_mean"])
    ax.axhline(level, color=GREY, lw=1.2, ls="--", label="predicting the mean of the prompt")
    same = [row for row in rows if row["equal"] == "size"]
    for key, color, label in (("error", BLUE, "queries (dots: seeds)"), ("train", ORANGE, "examples in the prompt")):
        for place, row in enumerate(rows):
            ax.plot([place] * len(row[key]), row[key], "o", color=color, ms=4.5, alpha=0.45, mew=0)
        means = [statistics.mean(row[key]) for row in rows]
        ax.plot(range(len(same)), means[: len(same)], "-", color=color, lw=1)
        ax.plot(range(len(rows)), means, "_", color=color, ms=22, mew=3, label=label)
    ax.axvline(len(same) - 0.5, color=GREY, lw=0.8, ls=":")
    names = [f"n = {row['n']}\nK = {row['K']}" + ("\ncontrol" if row["equal"] == "weights" else "") for row in rows]
    ax.set(title=title, yscale="log", xlim=(-0.5, len(rows) - 0.5))
    ax.set_xticks(range(len(rows)), names)
    ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()


if __name__ == "__main__":
    main()
