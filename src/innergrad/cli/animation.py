"""A film of a forward pass: a Llama fits a curve, and beside it stand the loss and the layer at work.

A small 1-D regression is compiled on target ``llama`` and run through its matrices, layer by layer. Every frame is a
moment of that one pass: the fit is the network whose weights the stream holds at that layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from innergrad import figures
from innergrad.algorithms import GradientDescent
from innergrad.algorithms.networks import Network
from innergrad.compiler import compile
from innergrad.figures import BLUE, DARK, GREY, LARGE, ORANGE, SMALL
from innergrad.interpret.outline import Sublayer, outline
from innergrad.transformer import CompiledTransformer, reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_EXAMPLES, STEPS, LR, NOISE = 24, 160, 0.35, 0.08
SLOW, FINE, COARSE = 2, 16, 5  # steps shown layer by layer; then one by one, up to this one; then every so many
LAYERS = 5  # of a step of this network, on this target
HOLD = 12  # frames that the end stays
SIZE, DOTS, PER_SECOND = (9.6, 3.9), 88, 6  # inches, dots an inch, frames a second
TICKS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the loss
KIND = {"attention": BLUE, "mlp": ORANGE}


@dataclass(frozen=True)
class Frame:
    """A moment: after ``layer`` layers, of which this one has just worked in this step; the weights it left."""

    step: int
    layer: int
    name: str
    weights: Tensor


@dataclass(frozen=True)
class Film:
    """What is shown. losses: of gradient descent, by step; own: in context; grid, truth: the curve to learn."""

    tf: CompiledTransformer
    X: Tensor
    y: Tensor
    grid: Tensor
    truth: Tensor
    frames: tuple[Frame, ...]
    losses: list[float]
    own: list[float]

    @property
    def difference(self) -> float:
        """Of the losses, the largest."""
        return max(abs(a - b) for a, b in zip(self.losses, self.own, strict=True))


def curve(x: Tensor) -> Tensor:
    """What is to be learned."""
    return torch.sin(2.5 * x) * (1.0 - 0.3 * x)


def film(seed: int) -> Film:
    """Compile, run layer by layer through the matrices, and keep the moments that are shown."""
    generator = torch.Generator().manual_seed(seed)
    X = 3.0 * torch.rand(N_EXAMPLES, 1, generator=generator, dtype=torch.float64) - 1.5
    y = curve(X) + NOISE * torch.randn(N_EXAMPLES, 1, generator=generator, dtype=torch.float64)
    algorithm = GradientDescent(Network([1, 12, 1], "tanh"), lr=LR, steps=STEPS, box=None)
    tf = compile(algorithm, target="llama", n_examples=N_EXAMPLES)
    grid = torch.linspace(-1.5, 1.5, 120, dtype=torch.float64).unsqueeze(-1)
    prompt = tf.prompt(X, y, seed=seed)
    frames, path, place = [Frame(0, 0, "", prompt.w0[0])], [prompt.w0[0]], 0
    learning = islice(tf.execute(prompt, "dense"), tf.n_layers)  # without the read-out
    for number, (layer, state, step_ends) in enumerate(learning, start=1):
        weights, step = prompt.weights(tf.program, state)[0], len(path) - 1
        if _shown(step, place) or number == tf.n_layers:
            frames.append(Frame(step + step_ends, number, layer.name, weights))
        place += 1
        if step_ends:
            path.append(weights)
            place = 0
    exact = reference(algorithm, X, y, seed=seed)
    own = algorithm.risk(torch.stack(path), X.expand(len(path), -1, -1), y)
    return Film(tf, X, y, grid, curve(grid), tuple(frames), exact.loss.tolist(), own.tolist())


def _shown(step: int, place: int) -> bool:
    """Of the first steps every layer; then one layer a step, another each time; then only of some steps."""
    if step < SLOW:
        return True
    chosen = step < FINE or step % COARSE == 0
    return chosen and place == (step if step < FINE else step // COARSE) % LAYERS


def draw_film(shown: Film, path: Path, mark: str | None = None) -> None:
    """Write the GIF."""
    with figures.new(1, 3, size=SIZE) as (figure, axes):
        axes[2].set_axis_off()
        figure.suptitle("A Llama learns a curve inside one forward pass", fontsize=LARGE)
        rows = step_layers(shown)

        def frames() -> Iterator[None]:
            for frame in [*shown.frames, *[shown.frames[-1]] * HOLD]:
                for ax in axes:
                    ax.clear()
                _draw_fit(axes[0], shown, frame)
                _draw_loss(axes[1], shown, frame)
                _draw_layers(axes[2], shown, frame, rows)
                yield

        figures.animate(figure, frames(), path, dots=DOTS, per_second=PER_SECOND, mark=mark)


def _draw_fit(ax: Axes, shown: Film, frame: Frame) -> None:
    assert isinstance(shown.tf.algorithm, GradientDescent)
    fit = shown.tf.algorithm.network.forward(frame.weights, shown.grid)
    x = shown.grid[:, 0].tolist()
    ax.plot(x, shown.truth[:, 0].tolist(), color=GREY, lw=1.2, ls="--", label="the truth")
    ax.scatter(
        shown.X[:, 0].tolist(), shown.y[:, 0].tolist(), s=20, color=DARK, zorder=3, label="examples in the prompt"
    )
    ax.plot(x, fit[:, 0].tolist(), color=ORANGE, lw=2.5, label="what the stream holds")
    ax.set(title="The fit", xlabel="x", ylim=(-2.2, 2.4), xlim=(-1.55, 1.55))
    ax.legend(loc="upper left")


def _draw_loss(ax: Axes, shown: Film, frame: Frame) -> None:
    ax.plot(range(len(shown.losses)), shown.losses, color=BLUE, lw=1.8, label="gradient descent")
    ax.plot(range(frame.step + 1), shown.own[: frame.step + 1], "o", color=ORANGE, ms=4, label="in context")
    ax.set(title=f"The loss: step {frame.step} of {len(shown.own) - 1}", xlabel="step", yscale="log")
    ax.set_xlim(-2, len(shown.own) + 1)
    ax.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.set_yticks([], minor=True)
    ax.set_ylim(0.8 * min(shown.losses), 1.3 * max(shown.losses))
    ax.legend(loc="upper right")


def step_layers(shown: Film) -> list[Sublayer]:
    """The layers of a step."""
    step = next(section for section in outline(shown.tf.program).sections if section.step)
    return [sub for run in step.runs for block in run.blocks for sub in block]


def _draw_layers(ax: Axes, shown: Film, frame: Frame, rows: list[Sublayer]) -> None:
    """The layers of a step from top to bottom, the one at work full, and how deep the pass is."""
    ax.set_axis_off()
    ax.set(title="The layer at work", xlim=(0, 1), ylim=(0, 1))
    depth = shown.tf.n_layers
    ax.barh([0.05], [1.0], height=0.05, color=GREY, alpha=0.25)
    ax.barh([0.05], [frame.layer / depth], height=0.05, color=ORANGE)
    ax.text(0, 0.11, f"layer {frame.layer} of {depth}", fontsize=SMALL, color=DARK)
    height = 0.78 / len(rows)
    for place, sub in enumerate(rows):
        y, at_work = 0.96 - (place + 0.5) * height, sub.name == frame.name
        colour = KIND.get(sub.kind, GREY)
        ax.barh([y], [1.0], height=0.86 * height, color=colour, alpha=1.0 if at_work else 0.12)
        words = f"{'MLP' if sub.kind == 'mlp' else sub.kind}: {sub.name}"
        ax.text(0.03, y, words, va="center", fontsize=SMALL, color="white" if at_work else DARK)
