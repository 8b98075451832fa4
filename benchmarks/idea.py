"""The idea in one picture: docs/idea.png, from a run of a compiled Llama.

    python benchmarks/idea.py

A prompt of a few tokens at the top; below it the network that the residual stream holds, at the start, on the way and
after the last step; at the bottom the answers. Every curve and number is that of the run.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

import innergrad as ig
from innergrad import figures

PICTURE = Path(__file__).parent.parent / "docs" / "idea.png"
STEPS, SHOWN = 160, (0, 20, 160)
HEADINGS = (
    "1. The prompt: every token carries the same small network",
    "2. The blocks: each step makes that network fit better",
    "3. The answers: the network, asked at the queries",
)
CELL, GAP = 0.8, 0.3  # of a token: the side of a cell, and the space to the next token


def problem() -> tuple[Tensor, Tensor, Tensor]:
    """24 noisy points of a sine, and two places where it is asked for."""
    noise = torch.randn(24, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    X = torch.linspace(-3, 3, 24, dtype=torch.float64).view(-1, 1)
    return X, torch.sin(X) + 0.08 * noise, torch.tensor([[-1.0], [2.0]], dtype=torch.float64)


def draw_prompt(ax: Axes, X: Tensor, y: Tensor, queries: Tensor) -> None:
    """Tokens are columns of three cells: x, y, and the weights of the network, equal in all of them."""
    ax.axis("off")
    shown = [*range(3), None, len(X) - 1]
    columns = [("…", "…") if i is None else (f"{float(X[i]):.1f}", f"{float(y[i]):.1f}") for i in shown]
    columns += [(f"{float(x):.1f}", "?") for x in queries]
    for place, (x, label) in enumerate(columns):
        left, asked = place * (CELL + GAP), label == "?"
        if x == "…":
            ax.text(left + CELL / 2, 1.5 * CELL, "…", ha="center", va="center", fontsize=figures.LARGE)
            continue
        for row, (text, colour) in enumerate((("w", figures.GREEN), (label, figures.ORANGE), (x, figures.BLUE))):
            ax.add_patch(Rectangle((left, row * CELL), CELL, CELL, facecolor=colour, alpha=0.18, edgecolor="none"))
            ax.add_patch(Rectangle((left, row * CELL), CELL, CELL, fill=False, edgecolor=colour, lw=1.2))
            weight = "bold" if asked and row == 1 else "normal"
            ax.text(
                left + CELL / 2, (row + 0.5) * CELL, text.replace("-", "−"), ha="center", va="center", weight=weight
            )
    for row, name in enumerate(("network", "y", "x")):
        ax.text(-0.25, (row + 0.5) * CELL, name, ha="right", va="center", color=figures.DARK)
    asked_at = (len(columns) - len(queries)) * (CELL + GAP)
    ax.text((asked_at - GAP) / 2, 3 * CELL + 0.25, "24 examples", ha="center", color=figures.DARK)
    ax.text(asked_at + CELL + GAP / 2, 3 * CELL + 0.25, "2 queries", ha="center", color=figures.DARK)
    ax.set(xlim=(-1.7, len(columns) * (CELL + GAP)), ylim=(-0.1, 3 * CELL + 0.7), aspect="equal")


def draw_network(ax: Axes, net: ig.Network, w: Tensor, X: Tensor, y: Tensor, title: str) -> None:
    """The network's curve through the examples."""
    at = torch.linspace(-3.4, 3.4, 200, dtype=torch.float64).view(-1, 1)
    ax.plot(X[:, 0], y[:, 0], "o", color=figures.ORANGE, ms=3.5)
    ax.plot(at[:, 0], net.forward(w, at)[:, 0], color=figures.GREEN, lw=2.2)
    ax.set(xlim=(-3.4, 3.4), ylim=(-1.9, 1.9), xticks=[], yticks=[])
    ax.set_title(title, weight="normal")


def draw_answers(ax: Axes, queries: Tensor, predictions: Tensor) -> None:
    ax.axis("off")
    for place, (x, p) in enumerate(zip(queries[:, 0].tolist(), predictions[:, 0].tolist(), strict=True)):
        words = f"y({x:.0f}) = {p:.2f}   (sine: {math.sin(x):.2f})".replace("-", "−")
        box = {"facecolor": figures.ORANGE, "alpha": 0.18, "edgecolor": figures.ORANGE, "pad": 6}
        ax.text(0.25 + 0.5 * place, 0.45, words, ha="center", va="center", bbox=box, transform=ax.transAxes)


def main() -> None:
    X, y, queries = problem()
    net = ig.Network([1, 16, 1], activation="tanh")
    algorithm = ig.GradientDescent(net, lr=0.2, momentum=0.8, steps=STEPS, box=None)
    tf = ig.compile(algorithm, target="llama", n_examples=24)
    run = tf.run(X, y, queries)
    blocks = tf.cost().blocks_a_step
    with figures.new(size=(6.4, 6.2)) as (figure, axes):
        axes[0].remove()
        figure.set_layout_engine("none")
        for words, height in zip(HEADINGS, (0.96, 0.60, 0.145), strict=True):
            figure.text(0.03, height, words, weight="bold")
        draw_prompt(figure.add_axes((0.03, 0.64, 0.94, 0.31)), X, y, queries)
        for column, step in enumerate(SHOWN):
            ax = figure.add_axes((0.03 + 0.325 * column, 0.24, 0.29, 0.29))
            draw_network(
                ax, net, run.weights[step], X, y, f"after block {1 + step * blocks}" if step else "at the start"
            )
            ax.set_xlabel(f"{step} steps: loss {float(run.loss[step]):.3f}")
        draw_answers(figure.add_axes((0.03, 0.02, 0.94, 0.1)), queries, run.predictions)
        figures.save(figure, PICTURE)
    print(f"{PICTURE}: {tf.cost().blocks} blocks, loss {run.loss[0]:.3f} -> {run.loss[-1]:.4f}")


if __name__ == "__main__":
    main()
