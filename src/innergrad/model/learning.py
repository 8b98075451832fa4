"""The loss of a run after every step, beside that of the algorithm itself, as numbers and as a picture.

The loss is the algorithm's own objective on the examples (``Algorithm.objective_at``). It is computed when it is asked
for: from the weights after every step, or, of an algorithm that trains none and keeps residuals in the stream instead,
by going through the program once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad import figures
from innergrad.algorithms.base import Algorithm
from innergrad.errors import lacks, own_gradients
from innergrad.figures import BLUE, ORANGE
from innergrad.interpret import plain
from innergrad.interpret.plain import ScalarFunction
from innergrad.ir.program import Program
from innergrad.model.prompt import Prompt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEEP = 5.0  # a loss that falls by a larger factor is drawn on a log axis


@dataclass(frozen=True)
class Learning:
    """The data that a run learned from. functions: the scalar functions of the program, as the run computed them."""

    algorithm: Algorithm
    program: Program
    prompt: Prompt
    functions: Mapping[str, ScalarFunction]

    def loss(self, weights: Tensor, steps: Sequence[int]) -> Float[Tensor, "batch recorded"]:
        """After these steps. weights (batch, recorded, D_w): of the run after them."""
        if self.algorithm.keeps_residuals:
            return self._replayed(self.functions)[:, list(steps)]
        return torch.stack([self._at(w.detach().double(), None) for w in weights.unbind(1)], dim=1)

    def exact_loss(self, steps: Sequence[int]) -> Float[Tensor, "batch recorded"]:
        """The same of the algorithm itself, by its reference (autograd, say), else by the exact interpreter."""
        part = self._double
        with own_gradients():
            given = (one.detach().clone() for one in (part.X, part.y, part.X_query, part.w0, part.omega))
            found = self.algorithm.reference(*given)
        if self.algorithm.keeps_residuals or found is None:
            return self._replayed(self.program.functions())[:, list(steps)]
        return self.loss(found[0][:, list(steps)], steps)

    @property
    def _double(self) -> Prompt:
        p = self.prompt
        X, y, X_query, w0, omega = (part.detach().double() for part in (p.X, p.y, p.X_query, p.w0, p.omega))
        return replace(p, X=X, y=y, X_query=X_query, w0=w0, omega=omega)

    def _replayed(self, functions: Mapping[str, ScalarFunction]) -> Tensor:
        """After every step, from lanes or weights as the program holds them."""
        prompt, program = self._double, self.program
        state, found = prompt.state(program), list[Tensor]()
        first, n = int(program.sink) + program.carriers, prompt.X.shape[1]
        with torch.no_grad():
            found.append(self._at(prompt.w0, prompt.y))
            for _, after, step_ends in plain.run(program, state, functions):
                if step_ends:
                    kept = after["y"][:, first : first + n] if self.algorithm.keeps_residuals else None
                    found.append(self._at(prompt.weights(program, after), kept))
        return torch.stack(found, dim=1)

    def _at(self, w: Tensor, residuals: Tensor | None) -> Tensor:
        prompt, algorithm = self._double, self.algorithm
        kept = residuals if algorithm.keeps_residuals else None
        predictions = algorithm.predicted(w, prompt.X) if kept is None else prompt.y - kept
        found = None
        if predictions is not None:
            found = algorithm.objective_at(w, predictions, prompt.y, algorithm.seen(prompt.omega))
        if found is None:
            raise lacks(algorithm, "objective_at(w, predictions, y, omega), and predicted(w, X)")
        return found


def plot_loss(steps: Sequence[int], own: Tensor, exact: Tensor | None, path: str | Path | None, force: bool) -> Figure:
    """Losses (batch, recorded) by step; of a batch, the mean over its prompts."""
    with figures.new(size=(6.4, 4.2)) as (figure, (ax,)):
        draw_loss(ax, steps, own.mean(0).tolist(), None if exact is None else exact.mean(0).tolist())
        if len(own) > 1:
            ax.set_ylabel(f"loss on the examples, mean of {len(own):,} prompts")
        if path is not None:
            figures.save_plot(figure, path, force=force)
    return figure


def draw_loss(
    ax: Axes,
    steps: Sequence[int],
    own: Sequence[float],
    exact: Sequence[float] | None,
    name: str = "the algorithm itself",
) -> None:
    """The algorithm's loss as a line, the transformer's as dots on it."""
    if exact is not None:
        ax.plot(steps, exact, color=BLUE, lw=2.5, label=name)
    size = 6.0 if len(steps) <= 40 else 3.0
    ax.plot(steps, own, "o", color=ORANGE, ms=size, label="in context (transformer)")
    margin = max(0.5, 0.02 * steps[-1])
    every = [*own, *(exact or ())]
    steep = min(every) > 0 and max(every) > STEEP * min(every)
    ax.set(title="Training loss", xlabel="step", ylabel="loss on the examples")
    if steep:
        ax.set_yscale("log")
    else:
        ax.set_ylim(0, None)
    ax.set_xlim(-margin, steps[-1] + margin)
    figures.whole_numbers(ax)
    ax.legend()
