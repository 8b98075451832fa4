"""Functional gradient descent in the space of a kernel (Cheng et al. 2024): a layer of attention is a step.

Rows are put on a sphere: x = (z, d^1/2) / |(z, d^1/2)|, for scaled inputs z of d columns. There exp(<x, x'> / b^2) is a
Gaussian kernel, up to a factor. Chebyshev steps for a condition number c fit eigenvalues from the largest down to 1 / c
of it, and leave smaller ones alone; so c says how closely the rows are fitted. Bandwidth and condition are those that
predict held-out rows best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from innergrad.algorithms.functional import FunctionalGradientDescent, chebyshev_steps
from innergrad.algorithms.kernels import Kernel
from innergrad.compiler import compile
from innergrad.estimators.engines.base import Compiled
from innergrad.estimators.held_out import parts, some
from innergrad.transformer import CompiledTransformer

PARTS = 3
MOST_ROWS = 1000  # of a prompt: attention takes the square of it
MOST_TRIED = 500  # to choose on
BANDWIDTHS = (0.35, 0.7, 1.4)
CONDITIONS = (4.0, 16.0, 64.0, 256.0, 1024.0)
QUERIES = 1000  # of one prompt
ROOM = 1.01  # over the largest eigenvalue: it is rounded


@dataclass
class FunctionalDescent(Compiled):
    """``examples`` are the prompt's."""

    def choose(self, Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = some(len(Z), MOST_TRIED, self.seed)
        X, Y = on_sphere(Z[chosen]), Y[chosen]
        held = parts(len(X), PARTS, self.seed)
        errors = np.zeros((len(BANDWIDTHS), len(CONDITIONS), *Y.shape))
        tried = dict[tuple[int, int], list[Expansion]]()
        for b, bandwidth in enumerate(BANDWIDTHS):
            K = matrix(bandwidth, X, X)
            for part in range(held.max() + 1):
                inside, outside = held != part, held == part
                mean = Y[inside].mean(0)
                for c, weights in enumerate(_path(K[np.ix_(inside, inside)], Y[inside] - mean)):
                    errors[b, c, outside] = Y[outside] - K[np.ix_(outside, inside)] @ weights - mean
                    tried.setdefault((b, c), []).append(Expansion(X[inside], weights, mean))
        scores = (errors**2).mean((2, 3))
        best = np.unravel_index(int(scores.argmin()), scores.shape)
        b, c = map(int, best)
        self.bandwidth, self.condition, self.tried = BANDWIDTHS[b], CONDITIONS[c], tried[b, c]
        self.notes.append(
            f"kernel: {steps_for(self.condition)} steps with bandwidth {self.bandwidth:g}; both are the best on "
            "held-out rows"
        )
        return chosen, held

    def apart(self, part: int, Z: np.ndarray) -> np.ndarray:
        one = self.tried[part]
        return np.asarray(matrix(self.bandwidth, on_sphere(Z), one.X) @ one.weights + one.mean)

    def learn(self, Z: np.ndarray, Y: np.ndarray) -> None:
        chosen = some(len(Z), MOST_ROWS, self.seed)
        if len(chosen) < len(Z):
            self.notes.append(f"kernel: the prompt has {len(chosen):,} of the {len(Z):,} rows, drawn at random")
        self.mean_ = Y.mean(0)
        self.examples = on_sphere(Z[chosen]), Y[chosen] - self.mean_
        self.largest = float(np.linalg.eigvalsh(matrix(self.bandwidth, self.examples[0], self.examples[0]))[-1])

    def apply(self, Z: np.ndarray) -> np.ndarray:
        X, Y = map(torch.from_numpy, self.examples)
        queries = torch.from_numpy(on_sphere(Z)).split(QUERIES)
        found = [self._transformer.run(X, Y, part, diagnose=False, compiled=False).predictions for part in queries]
        return np.asarray(torch.cat(found).numpy() + self.mean_)

    @cached_property
    def _transformer(self) -> CompiledTransformer:
        X, Y = self.examples
        algorithm = FunctionalGradientDescent(
            kernel(self.bandwidth),
            steps=steps_for(self.condition),
            step_rule="chebyshev",
            d=X.shape[1],
            d_y=Y.shape[1],
            lambda_max=ROOM * self.largest,
            condition=self.condition,
        )
        return compile(algorithm, n_examples=len(X))


def on_sphere(Z: np.ndarray) -> np.ndarray:
    """(n, d + 1), rows of norm one."""
    more = np.column_stack([Z, np.full(len(Z), math.sqrt(Z.shape[1]))])
    found: np.ndarray = more / np.linalg.norm(more, axis=1, keepdims=True)
    return found


def kernel(bandwidth: float) -> Kernel:
    """k(x, x) = 1 on the sphere."""
    return math.exp(-1.0 / bandwidth**2) * Kernel("exp", bandwidth=bandwidth)


def matrix(bandwidth: float, X: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.asarray(kernel(bandwidth)(torch.from_numpy(X), torch.from_numpy(other)).numpy())


def steps_for(condition: float) -> int:
    """Chebyshev steps that fit all eigenvalues of a condition number to about 1 / 750: 4 times its root."""
    return math.ceil(4.0 * math.sqrt(condition))


@dataclass(frozen=True)
class Expansion:
    """The function k(x, X) weights + mean; X (n, d + 1) on the sphere, weights (n, outputs)."""

    X: np.ndarray
    weights: np.ndarray
    mean: np.ndarray


def _path(K: np.ndarray, Y: np.ndarray) -> Iterator[np.ndarray]:
    """Weights for each condition: the same steps on eigenvalues, which is faster where many are tried."""
    values, vectors = np.linalg.eigh(K)
    values = np.maximum(values, np.finfo(float).eps * values[-1])
    at_rows = vectors.T @ Y
    high = ROOM * values[-1]
    for condition in CONDITIONS:
        rates = chebyshev_steps(steps_for(condition), high / condition, high)
        left = np.prod(1.0 - rates[:, None] * values, axis=0)
        yield vectors @ (at_rows * ((1.0 - left) / values)[:, None])
