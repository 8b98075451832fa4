"""Appendices A and B: the chains of operations."""

from __future__ import annotations

import math

import torch

from claims import gap, normal
from claims_primitives.common import (
    bounded,
    claim,
    eye,
    sgd_chain,
    sgd_gap,
    state_after,
    zeros,
)


@claim(
    "App. A, sign",
    "aff with W₂ = −2λ: x(wᵀx − y) − 2λw, then w − α(..)",
    "corrected",
    instead="W₂ = +2λ, as in (11)",
    limit=1e-6,
    threshold=1e-2,
)
def appendix_a_sign() -> tuple[float, float]:
    """The transformer of Theorem 1 with either sign."""
    return sgd_gap(3), sgd_gap(3, sign=-1.0)


@claim(
    "App. A, column 3",
    "the third column of the displayed states is x₂wᵀx₁",
    "corrected",
    instead="x₂wᵀx₂; and w − α(x₁wᵀx₁ + 2λw) with the parentheses",
    limit=1e-6,
    threshold=1e-2,
)
def appendix_a_column() -> tuple[float, float]:
    """The lane g after the fourth layer of the transformer of Theorem 1."""
    chain = sgd_chain(3)
    x, y, query, w = bounded(40, 3), bounded(41), bounded(42, 3), torch.tensor(chain.w, dtype=torch.float64)
    lanes, H = state_after(chain, x, y, query, chain.operations()[:4])
    return gap(H[lanes["g"], 2], query * (w @ query)), gap(H[lanes["g"], 2], query * (w @ x))


@claim(
    "App. A, several steps",
    "the second step is w″ = w′ − α(x₂w′ᵀx₂ − y₂x₂ + 2λw)",
    "corrected",
    instead="2λw′",
    limit=1e-12,
    threshold=1e-2,
)
def appendix_a_steps() -> tuple[float, float]:
    """torch.optim.SGD with weight decay 2 lambda on (w.x - y)^2 / 2."""
    X, y, alpha, lam = normal(44, 2, 3), normal(45, 2), 0.2, 0.3
    w = normal(46, 3).requires_grad_(True)
    start, optimiser = w.detach().clone(), torch.optim.SGD([w], lr=alpha, weight_decay=2 * lam)
    for x, label in zip(X, y, strict=True):
        optimiser.zero_grad()
        ((w @ x - label) ** 2 / 2).backward()
        optimiser.step()
    first = start - alpha * (X[0] * (start @ X[0] - y[0]) + 2 * lam * start)
    second = [first - alpha * (X[1] * (first @ X[1] - y[1]) + 2 * lam * decayed) for decayed in (first, start)]
    return gap(second[0], w), gap(second[1], w)


@claim(
    "App. B, several steps",
    "several examples: repeat the process for the next positions",
    "partly",
    instead="A⁻¹ by repeating; the moment must be summed too, w′ = A⁻¹ Σ xᵢyᵢ (or w be updated recursively): the "
    "operations as they are would leave A⁻¹xₙyₙ",
    limit=1e-10,
    threshold=1e-2,
)
def appendix_b_steps() -> tuple[float, float]:
    """Rank-one updates of A^-1 over five examples, against ridge regression by least squares."""
    X, y, lam = normal(47, 5, 3), normal(48, 5), 0.5
    inverse = eye(3) / lam
    for x in X:
        u = inverse @ x
        inverse = inverse - torch.outer(u, u) / (1 + x @ u)
    augmented = torch.cat([X, math.sqrt(lam) * eye(3)]), torch.cat([y, zeros(3)])
    ridge = torch.linalg.lstsq(*augmented).solution
    return gap(inverse @ (y @ X), ridge), gap(inverse @ X[-1] * y[-1], ridge)
