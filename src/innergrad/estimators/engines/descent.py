"""Gradient descent on a small network, compiled into a transformer with Llama's blocks: nothing is approximated.

The rate and the number of steps are those that predict held-out rows best. All held-out parts are prompts of one batch:
a row that is held out has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.algorithms.networks import Network
from innergrad.compiler import compile
from innergrad.errors import InputError, JobError, readable
from innergrad.estimators.engines.base import Compiled
from innergrad.estimators.held_out import parts, some
from innergrad.evidence.certificate import Certificate
from innergrad.transformer import CompiledTransformer

PARTS = 3
MOST_ROWS = 2000  # to choose on; all rows are learned from
FACTORS = (0.25, 1.0, 2.0)  # of the rate that the curvature at the start allows
MOMENTUM = 0.9
RECORDED = 25  # numbers of steps that are tried


@dataclass
class Descent(Compiled):
    """``loss_curve`` (steps + 1,) is the objective on all rows; ``weights`` (D_w,) those after the last step."""

    hidden: tuple[int, ...] = (16,)
    most_steps: int = 200

    def choose(self, Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = some(len(Z), MOST_ROWS, self.seed)
        X, y = torch.from_numpy(Z[chosen]), torch.from_numpy(Y[chosen])
        held = torch.from_numpy(parts(len(X), PARTS, self.seed))
        weight = (held != torch.arange(int(held.max()) + 1)[:, None]).double()
        best: tuple[float, float, int, Tensor] | None = None
        start = self._safe_rate(X, y)
        for rate in (factor * start for factor in FACTORS):
            tried = self._tried(X, y, weight, rate)
            for steps, predictions, weights in tried:
                score = float(self._loss(predictions, y).mean())
                if np.isfinite(score) and (best is None or score < best[0]):
                    best = score, rate, steps, weights
        if best is None:
            raise InputError("gradient descent diverges at every rate that was tried", got=f"rates from {start:.2g}")
        _, self.rate, self.steps, weights = best
        self.tried = weights.numpy()
        self.notes.append(
            f"gd: {self.steps} steps of gradient descent at rate {readable(self.rate, 3)} on a network with "
            f"{' and '.join(map(str, self.hidden))} hidden units; rate and steps are the best on held-out rows"
        )
        return chosen, held.numpy()

    def apart(self, part: int, Z: np.ndarray) -> np.ndarray:
        return self._answers(self.tried[part], Z)

    def learn(self, Z: np.ndarray, Y: np.ndarray) -> None:
        self.examples = Z, Y
        run = self._transformer.run(
            *map(torch.from_numpy, self.examples), w0=self._start, diagnose=False, compiled=False
        )
        self.loss_curve = run.loss.numpy()
        self.weights = run.weights[-1].numpy()

    def apply(self, Z: np.ndarray) -> np.ndarray:
        return self._answers(self.weights, Z)

    def _answers(self, weights: np.ndarray, Z: np.ndarray) -> np.ndarray:
        found = self._network.forward(torch.from_numpy(weights), torch.from_numpy(Z))
        return np.asarray((found.softmax(-1) if self.classes else found).numpy())

    @cached_property
    def certificate(self) -> Certificate:
        """Of the run on all rows."""
        return self._transformer.certify(*map(torch.from_numpy, self.examples), w0=self._start)

    @property
    def _network(self) -> Network:
        outputs = self.classes or 1
        return Network([len(self.design.parts), *self.hidden, outputs])

    @property
    def _start(self) -> Tensor:
        return self._network.init(self.seed)

    def _algorithm(self, rate: float, steps: int) -> GradientDescent:
        loss = "softmax" if self.classes else "squared"
        return GradientDescent(self._network, loss=loss, lr=rate, steps=steps, box=None, momentum=MOMENTUM)

    @cached_property
    def _transformer(self) -> CompiledTransformer:
        return compile(self._algorithm(self.rate, self.steps), target="llama", n_examples=len(self.examples[0]))

    def _safe_rate(self, X: Tensor, y: Tensor) -> float:
        omega = torch.full((1, len(X)), 1.0 / len(X), dtype=torch.float64)
        found = self._algorithm(1.0, 1).curvature_rate(X[None], y[None], self._start[None], omega)
        return found if found is not None and np.isfinite(found) and found > 0 else 0.1

    def _tried(self, X: Tensor, y: Tensor, weight: Tensor, rate: float) -> list[tuple[int, Tensor, Tensor]]:
        """Numbers of steps, each with the predictions of all rows by the prompt that does not see them, and the weights
        (parts, D_w) of the small network in every prompt.
        """
        most = self.most_steps
        tf = compile(self._algorithm(rate, most), target="llama", n_examples=len(X))
        batch = len(weight)
        try:
            run = tf.run(
                X.expand(batch, -1, -1),
                y.expand(batch, -1, -1),
                w0=self._start,
                sample_weight=weight,
                record=max(1, most // RECORDED),
                diagnose=False,
                compiled=False,
            )
        except JobError:  # it overflows: another rate will not
            return []
        predictions = torch.zeros(len(run.recorded), *y.shape, dtype=torch.float64)
        for part, shown in enumerate(weight):
            outside = shown == 0
            raw = self._network.forward(run.weights[part], X[outside])
            predictions[:, outside] = raw.softmax(-1) if self.classes else raw
        return list(zip(run.recorded, predictions, run.weights.swapaxes(0, 1), strict=True))[1:]

    def _loss(self, predictions: Tensor, y: Tensor) -> Tensor:
        if self.classes:
            return -(y * predictions.clamp(min=1e-9).log()).sum(-1)
        return (predictions - y).square().sum(-1)
