"""Section 2: the modules."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from claims import gap, normal
from claims_functional.common import (
    ACTIVATIONS,
    Activation,
    attention,
    claim,
    entry_by_entry,
    eye,
    linear,
    mask,
    predictions,
    prompt,
    relu,
    softmax,
    some_layers,
    transformer,
    zeros,
)


def module_gap(h: Activation, act: Callable[[Tensor], Tensor], masked: bool) -> float:
    """The module with (d+1) x (d+1) matrices Q, K of Assumption 2.1, against (2)."""
    d, tokens = 3, 6
    Z, V, B, C = (normal(s, *shape) for s, shape in enumerate([(d + 1, tokens), (d + 1, d + 1), (d, d), (d, d)]))
    Q, K = (torch.nn.functional.pad(P, (0, 1, 0, 1)) for P in (B, C))
    scores = act(Z.mT @ Q.mT @ K @ Z)
    direct = V @ Z @ (mask(tokens) if masked else eye(tokens)) @ scores
    return gap(attention(Z, V, B, C, h), direct)


@claim(
    "(1)-(4)",
    "Z₀, the module V Z M h(BX, CX), the residual layers, and TF_ℓ, the last entry of Z_ℓ",
    "definition",
    limit=1e-12,
)
def eq_1() -> float:
    """Against loops over tokens, full V, B, C, all four h."""
    X, y, errors = normal(1, 3, 6) / 2, normal(2, 5), []
    for h in ACTIVATIONS.values():
        wanted = entry_by_entry(prompt(X, y).numpy(), some_layers(), h)
        errors += [gap(transformer(prompt(X, y), some_layers(), h)[-1], wanted)]
        errors += [gap(predictions(prompt(X, y), some_layers(), h)[-1], wanted[-1, -1])]
    return max(errors)


@claim(
    "Assumption 2.1",
    "Q = diag(B, 0), K = diag(C, 0): the scores do not see the labels",
    "definition",
    limit=1e-12,
)
def assumption_2_1() -> float:
    """Change of all scores with the labels; infinite if a corner of Q and K that is not 0 would not change them."""
    X, labels = normal(10, 3, 6), normal(11, 2, 6)
    B, C = normal(12, 3, 3), normal(13, 3, 3)

    def change(corner: float) -> float:
        corners = torch.tensor([[corner]], dtype=torch.float64)
        Q, K = (torch.block_diag(P, corners) for P in (B, C))
        return gap(*(Z.mT @ Q.mT @ K @ Z for Z in (torch.cat([X, y[None]]) for y in labels)))

    return change(0.0) if change(1.0) > 0.1 else math.inf


@claim("Example 1", "linear attention VZMZᵀQᵀKZ is (2) with h(U, W) = UᵀW", limit=1e-12)
def example_1() -> float:
    return module_gap(linear, lambda s: s, masked=True)


@claim("Example 2", "ReLU attention is (2) with h(U, W) = relu(UᵀW)", limit=1e-12)
def example_2() -> float:
    return module_gap(relu, lambda s: s.clamp(min=0), masked=True)


@claim("Example 3", "softmax attention is (2) with the masked softmax (6); M is then unnecessary", limit=1e-12)
def example_3() -> float:
    def masked_softmax(scores: Tensor) -> Tensor:
        weights = np.exp(scores.numpy())
        weights[-1] = 0
        return torch.as_tensor(weights / weights.sum(axis=0))

    return module_gap(softmax, masked_softmax, masked=False)


@claim("(6)", "the masked softmax: columns over the examples, the query's row 0, M h = h", "definition", limit=1e-12)
def eq_6() -> float:
    """Against exponentials by numpy; infinite if the softmax over all n + 1 rows were the same."""
    U, W = normal(14, 3, 5), normal(15, 3, 5)
    S = softmax(U, W)
    e = np.exp(U.numpy().T @ W.numpy())
    if gap(S[:-1], torch.softmax(U.mT @ W, dim=0)[:-1]) < 1e-2:
        return math.inf
    return max(gap(S[:-1], e[:-1] / e[:-1].sum(0)), gap(S[-1], zeros(5)), gap(mask(5) @ S, S))
