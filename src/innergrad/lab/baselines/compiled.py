"""The prompt learned by a compiled transformer: gradient descent on a network, inside one forward pass.

The transformer of ``innergrad.compile(GradientDescent(network))`` gets the first k pairs as its examples and x_k as its
query, for every prompt and every k, in one batch of prompts of different lengths. Its predictions are those of gradient
descent on the network, up to ``epsilon``. It is the bridge between the two halves of this library.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from innergrad.errors import integer, real
from innergrad.lab.baselines.base import Predictor

if TYPE_CHECKING:
    from innergrad.transformer import CompiledTransformer

FITS = 1 << 14  # prompts of one forward pass


@dataclass(frozen=True)
class CompiledNetwork(Predictor, kind="compiled"):
    """Gradient descent on a network d -> ``hidden`` -> k, as a compiled transformer runs it, for labels of k numbers.

    The loss is 1/(2k) sum (f(x_i) - y_i)^2, so ``lr`` does what lr / 2 does on the plain mean square. All fits start
    from the same weights; k = 0 predicts 0. The fused executor runs it: the same function as the transformer's
    matrices.

    Args:
        hidden: widths of hidden layers.
        activation: of hidden layers.
        lr: the learning rate.
        steps: how many.
        epsilon: of ``innergrad.compile``.
        box: the largest absolute weight.
        seed: of the initial weights.
        x_scale: inputs are divided by this first.
        y_scale: labels are divided by this first.
    """

    hidden: tuple[int, ...] = (16,)
    activation: str = "tanh"
    lr: float = 0.1
    steps: int = 20
    epsilon: float = 1e-3
    box: float = 4.0
    seed: int = 0
    x_scale: float = 1.0
    y_scale: float = 1.0

    def __post_init__(self) -> None:
        for width in self.hidden:
            integer("hidden", width)
        integer("steps", self.steps)
        for name in ("lr", "epsilon", "box", "x_scale", "y_scale"):
            real(name, getattr(self, name), above=0.0)

    @property
    def name(self) -> str:
        return f"compiled transformer, {self.steps} steps on {'-'.join(map(str, self.hidden))} {self.activation}"

    def transformer(self, d: int, n_examples: int, outputs: int = 1) -> CompiledTransformer:
        """The transformer that learns from prompts of up to ``n_examples`` pairs of d numbers and a label."""
        return _compiled(self, d, n_examples, outputs)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        found = torch.zeros_like(y)
        prompts, n, _ = x.shape
        rows = max(1, FITS // n)
        for first in range(0, prompts if n > 1 else 0, rows):
            part = slice(first, first + rows)
            found[part, 1:] = self._some(x[part].double() / self.x_scale, y[part].double() / self.y_scale).to(y)
        return found

    def _some(self, x: Tensor, y: Tensor) -> Tensor:
        """(B, n - 1, ...): the predictions of y_1 .. y_{n-1}."""
        from innergrad.model.ragged import ragged
        from innergrad.model.running import run

        prompts, n, d = x.shape
        labels = y if y.ndim == 3 else y[..., None]
        cuts = [(row, k) for row in range(prompts) for k in range(1, n)]
        batch = ragged([x[row, :k] for row, k in cuts], [labels[row, :k] for row, k in cuts])
        fitted = run(
            self.transformer(d, n - 1, labels.shape[2]),
            batch["X"],
            batch["y"],
            x[:, 1:].reshape(-1, 1, d),
            sample_weight=batch["sample_weight"],
            seed=self.seed,
            name="fused",
            record="last",
            watched=False,
        )
        return fitted.predictions.view(prompts, n - 1, *y.shape[2:]) * self.y_scale


@cache
def _compiled(wanted: CompiledNetwork, d: int, n_examples: int, outputs: int) -> CompiledTransformer:
    from innergrad.algorithms.gradient_descent import GradientDescent
    from innergrad.algorithms.networks import Network
    from innergrad.compiler import compile

    network = Network([d, *wanted.hidden, outputs], activation=wanted.activation, output="linear", bias=True)
    algorithm = GradientDescent(network, lr=wanted.lr, steps=wanted.steps, box=wanted.box)
    return compile(algorithm, target="relu", epsilon=wanted.epsilon, n_examples=n_examples)
