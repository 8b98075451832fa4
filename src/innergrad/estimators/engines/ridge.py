"""Ridge regression by the transformer that does recursive least squares (Akyürek et al. 2023, Theorem 2).

Least squares sees rows only through their inner products. So an orthogonal map folds n rows of d columns into d + 1
rows (the R of a QR decomposition of columns and label) that have the same solution. The transformer learns from these.
It has a state of d x d numbers in each token. A table with more than ``BLOCK`` columns is rotated into its principal
components. Blocks of components share nothing, and each is a prompt of its own in one batch. That is exact, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from innergrad.algorithms.online import RecursiveLeastSquares
from innergrad.compiler import compile
from innergrad.errors import readable
from innergrad.estimators.engines.base import Compiled
from innergrad.estimators.held_out import parts

BLOCK = 32  # columns of a prompt
PARTS = 5  # of the rows, each held out once
RIDGES = tuple(10.0 ** (k / 2) for k in range(-10, 5))  # per row, for columns of variance one


@dataclass
class Ridge(Compiled):
    """``lines.weights`` (d, outputs) are what the transformer's last token holds."""

    def choose(self, Z: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held = parts(len(Z), PARTS, self.seed)
        errors = np.zeros((len(RIDGES), *Y.shape))
        tried = list[Lines]()
        for part in range(held.max() + 1):
            inside, outside = held != part, held == part
            tried.append(_path(Z[inside], Y[inside]))
            errors[:, outside] = Y[outside] - tried[part](Z[outside])
        best = int((errors**2).mean((1, 2)).argmin())
        self.ridge = RIDGES[best]
        self.tried = [replace(one, weights=one.weights[best]) for one in tried]
        self.notes.append(
            f"ridge: the penalty is {readable(self.ridge, 2)} per row, the best of {len(RIDGES)} on held-out rows"
        )
        return np.arange(len(Z)), held

    def apart(self, part: int, Z: np.ndarray) -> np.ndarray:
        return self.tried[part](Z)

    def learn(self, Z: np.ndarray, Y: np.ndarray) -> None:
        centre, mean = Z.mean(0), Y.mean(0)
        self.lines = Lines(centre, solve(Z - centre, Y - mean, self.ridge), mean)

    def apply(self, Z: np.ndarray) -> np.ndarray:
        return self.lines(Z)


@dataclass(frozen=True)
class Lines:
    """(Z - centre) weights + mean; weights (..., d, outputs)."""

    centre: np.ndarray
    weights: np.ndarray
    mean: np.ndarray

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        found: np.ndarray = (Z - self.centre) @ self.weights + self.mean
        return found


def _path(Z: np.ndarray, Y: np.ndarray) -> Lines:
    """The solutions of all ridges, by one eigendecomposition."""
    centre, mean = Z.mean(0), Y.mean(0)
    Z, Y = Z - centre, Y - mean
    values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
    inverse = 1.0 / (np.maximum(values, 0.0) + np.array(RIDGES)[:, None])
    at_rows = vectors.T @ (Z.T @ Y) / len(Z)
    return Lines(centre, vectors @ (at_rows * inverse[:, :, None]), mean)


def solve(Z: np.ndarray, Y: np.ndarray, ridge: float) -> np.ndarray:
    """(Z^T Z / n + ridge I)^-1 Z^T Y / n, by the transformer. Z (n, d) and Y (n, outputs) have mean 0."""
    n, d = Z.shape
    rotation = np.eye(d) if d <= BLOCK else np.linalg.svd(Z, full_matrices=False)[2].T
    rotated = Z @ rotation / np.sqrt(n)
    unit_x = max(float(np.linalg.norm(rotated, axis=0).max()), np.finfo(float).tiny)
    unit_y = max(float(np.linalg.norm(Y, axis=0).max()) / np.sqrt(n), np.finfo(float).tiny)
    blocks = -(-rotated.shape[1] // BLOCK)
    width = min(BLOCK, rotated.shape[1])
    prompts = []
    for columns in np.array_split(np.arange(rotated.shape[1]), blocks):
        X = np.zeros((n, width))
        X[:, : len(columns)] = rotated[:, columns] / unit_x
        prompts += [fold(X, y / (unit_y * np.sqrt(n))) for y in Y.T]
    rows = torch.from_numpy(np.stack(prompts))
    penalty = ridge / unit_x**2
    tf = compile(
        RecursiveLeastSquares(d=width, ridge=penalty),
        n_examples=rows.shape[1],
        x_bound=1.0 + 1e-9,
        z_bound=1.0
        + width**0.5 / (2.0 * penalty**0.5),  # of a residual: a ridge solution has |w| <= |y| / (2 ridge^1/2)
    )
    run = tf.run(rows[:, :, :-1], rows[:, :, -1], diagnose=False, compiled=False, record="last")
    w = run.weights[:, -1].numpy().reshape(blocks, Y.shape[1], width).swapaxes(1, 2)
    sizes = [len(columns) for columns in np.array_split(np.arange(rotated.shape[1]), blocks)]
    found = rotation @ np.concatenate([one[:size] for one, size in zip(w, sizes, strict=True)])
    return np.asarray(found * (unit_y / unit_x))


def fold(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(d + 1, d + 1): rows with the inner products of (X, y) (n, d + 1)."""
    both = np.column_stack([X, y])
    if len(both) < both.shape[1]:
        return np.vstack([both, np.zeros((both.shape[1] - len(both), both.shape[1]))])
    return np.asarray(np.linalg.qr(both, mode="r"))
