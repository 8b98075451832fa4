"""Lemma 2: the forward pass."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from claims import attained, gap, normal
from claims_gradient.common import (
    ONE,
    SIZES,
    aligned,
    attend,
    claim,
    compiled,
    flat,
    forward_bound,
    lanes,
    matrices,
    propagate,
    row_bound,
    total_weight,
)
from innergrad.functions import ACTIVATIONS, PiecewiseLinear, approximate


@claim(
    "Lemma 2, 9, (3.9)",
    "‖p̄_i(j) − p_i(j)‖₂ ≤ (Σ_{l<j} (√K L_r B_v)^l) √K ε_r, √d for j = N (L_r: Lipschitz)",
    limit=ONE,
)
def lemma_2() -> float:
    """Largest ratio of the sides: lanes of a compiled transformer against the network, weights of three sizes; and a
    linear r that is off by eps everywhere, N = 3, where it is 1 in every layer (inf if it is less).
    """
    exact, shifted, eps = aligned(3)
    bounds = [forward_bound(j, (4, 4, 4, 1), 3.0, 1.0) * eps for j in (1, 2, 3)]
    attained = [float((shifted.p[j] - exact.p[j]).norm(dim=1).max()) / bounds[j - 1] for j in (1, 2, 3)]
    if min(attained) < 1 - 1e-9:
        return math.inf
    tf, worst = compiled(epsilon=1e-2), max(attained)
    for seed, scale in ((140, 0.5), (141, 1.0), (142, 2.0)):
        V = [scale * matrix.clamp(-1, 1) for matrix in matrices(seed)]
        state = lanes(tf, seed, V)["forward 3"]
        exact = propagate(V, state["x"][0], state["y"][0])
        for j in (1, 2, 3):
            error = float((state[f"p{j}"][0] - exact.p[j]).norm(dim=1).max())
            worst = max(worst, error / (forward_bound(j, SIZES, 1.0, row_bound(V)) * tf.approximants["tanh"].error))
    return worst


@claim(
    "Lemma 2, L_r",
    "the bound (3.9) with r L_r-smooth",
    "corrected",
    instead="with r L_r-Lipschitz, as in Theorem 1: r(t) = 3t is 0-smooth",
    limit=ONE,
    threshold=5.0,
)
def lemma_2_lipschitz() -> tuple[float, float]:
    """Error / bound in layer 2, r = 3t, r^ = 3t + eps, rows (1/2, 1/2, 1/2, 1/2): L_r = 3; printed: L_r = 0."""
    V, X = [torch.full((4, 4), 0.5, dtype=torch.float64)] * 2, normal(150, 5, 4)
    exact, shifted = (propagate(V, X, X, r=lambda t, e=e: 3 * t + e).p[2] for e in (0.0, 1e-3))  # type: ignore[misc]
    error = float((shifted - exact).norm(dim=1).max())
    bounds = [forward_bound(2, (4, 4, 4), lipschitz, 1.0) * 1e-3 for lipschitz in (3.0, 0.0)]
    return attained([error / bounds[0]]), error / bounds[1]


@claim(
    "Lemma 2, R_1",
    "R₁ = max{B_v B_r, 1} covers the arguments of r",
    "corrected",
    instead="|vᵀp| ≤ B_v‖p‖₂: R₁ = B_v max{B_x, √K (B_r + ε_r)}; or an approximant on all of ℝ (Remark 2), and no R₁",
    limit=ONE,
    threshold=3.0,
)
def lemma_2_range() -> tuple[float, float]:
    """|v . p^| / R_1, B_v = B_x = 1, K = 16: rows e_x in layer 1, then (1, .., 1)/4, and random ones; printed R_1 = 1.

    For either reading of B_r = max_j B_r^j, with B_r^0 = B_x or without.
    """
    r = approximate(ACTIVATIONS["tanh"].r, 1e-2)
    X = F.normalize(normal(160, 20, 3), dim=1)
    worst = 0.0
    for first, second in [(X[:1].expand(16, 3), torch.full((1, 16), 0.25, dtype=torch.float64))] + [
        (F.normalize(normal(161 + i, 16, 3), dim=1), F.normalize(normal(171 + i, 16, 16), dim=1)) for i in range(5)
    ]:
        z = r(X @ first.T) @ second.T
        worst = max(worst, float(z.abs().max()))
    return attained([worst / (4 * (math.tanh(1.0) + 1e-2))], 0.97), worst / 1.0


@claim(
    "Lemma 2, B_r^j",
    "B_r^j = max |r(t)| over |t| ≤ B_v B_r^{j−1} bounds p_i(j)",
    "corrected",
    instead="over |t| ≤ B_v √K B_r^{j−1} for j ≥ 2: B_r^{j−1} bounds the entries of p_i(j−1), not its norm",
    limit=ONE,
    threshold=3.0,
)
def lemma_2_growth() -> tuple[float, float]:
    """|p(2)| / B_r^2, softplus, B_v = B_x = 1, K = 16, rows (1, .., 1)/4 in layer 2."""
    V = [torch.eye(16, 3, dtype=torch.float64)[:1].expand(16, 3), torch.full((16, 16), 0.25, dtype=torch.float64)]
    p = propagate(V, torch.eye(3, dtype=torch.float64)[:1], torch.zeros(1, 16), r=F.softplus).p[2]
    first = F.softplus(torch.tensor(1.0, dtype=torch.float64))
    bounds = [float(F.softplus(t)) for t in (4 * first, first)]
    return attained([float(p.max()) / bounds[0]]), float(p.max()) / bounds[1]


@claim(
    "Lemma 2, norm",
    "B_{θ_j} ≤ 1 + KC₁ for every j ∈ [N]; in the proof “consequently B_{θ_j} ≤ 1 + C₁”",
    "corrected",
    instead="1 + k_j C₁, k_N = d: the lemma is right for d ≤ K only, its proof's last line for k_j = 1 only",
    limit=ONE,
    threshold=1.5,
)
def lemma_2_norm() -> tuple[float, float]:
    """Norm (C.1) of the forward layers of compiled transformers, d_y = 2 and 8, K = 4, over 1 + k_j C_1; printed: the
    smaller of its ratios to 1 + K C_1, in layer N with d = 8, and to 1 + C_1, in layer 1.
    """
    right, printed = [], []
    for d in (2, 8):
        sizes = (3, 4, 4, d)
        tf = compiled(sizes)
        C, rows = total_weight(tf.approximants["tanh"]), {row.name: row.norm for row in tf.cost().rows}
        right += [rows[f"forward {j}"] / (1 + sizes[j] * C) for j in (1, 2, 3)]
        printed += [rows["forward 1"] / (1 + C), *([rows["forward 3"] / (1 + 4 * C)] if d > 4 else [])]
    return attained(right), min(printed)


@claim("(3.10), (3.11)", "‖p̄_i(j) − p_i(j)‖₂ ≤ E_r ε_r for all j, E_r the largest of the factors in (3.9)", limit=ONE)
def eq_3_10() -> float:
    """As Lemma 2, d > K too; and where it is attained in the last layer (inf if not)."""
    exact, shifted, eps = aligned(3)
    largest = max(forward_bound(j, (4, 4, 4, 1), 3.0, 1.0) for j in (1, 2, 3))
    worst = max(float((shifted.p[j] - exact.p[j]).norm(dim=1).max()) for j in (1, 2, 3)) / (largest * eps)
    if worst < 1 - 1e-9:
        return math.inf
    for sizes in (SIZES, (3, 4, 4, 8)):
        tf, V = compiled(sizes), matrices(180, sizes)
        state = lanes(tf, 181, V)["forward 3"]
        found = propagate(V, state["x"][0], state["y"][0])
        E_r = max(forward_bound(j, sizes, 1.0, row_bound(V)) for j in (1, 2, 3))
        errors = [float((state[f"p{j}"][0] - found.p[j]).norm(dim=1).max()) for j in (1, 2, 3)]
        worst = max(worst, max(errors) / (E_r * tf.approximants["tanh"].error))
    return worst


@claim(
    "(3.12), order",
    "the output of Attn_{θ₁} ∘ ⋯ ∘ Attn_{θ_N} is [x; y; w; p̄; 0; 1; t]",
    "corrected",
    instead="of Attn_{θ_N} ∘ ⋯ ∘ Attn_{θ₁}: layer 1 is applied first; so in (3.14), (3.16), (3.20) and Theorem 1",
    limit=0.05,
    threshold=0.2,
)
def composition() -> tuple[float, float]:
    """Distance of p(2) to the network, eps = 0.01: heads (D.7) of two layers, built here, applied in both orders."""
    r = approximate(ACTIVATIONS["tanh"].r, 1e-2)
    V = matrices(191, (2, 2, 2))
    H = torch.cat([normal(192, 2, 5), torch.zeros(4, 5), flat(V)[:, None].expand(8, 5), torch.ones(1, 5)]).double()
    wanted = torch.tanh(V[1] @ torch.tanh(V[0] @ H[:2]))
    layers = [forward_heads(r, layer) for layer in (1, 2)]
    found = []
    for order in (layers, layers[::-1]):
        state = H
        for heads in order:
            state = attend(state, heads)
        found.append(gap(state[4:6], wanted))
    return found[0], found[1]


def forward_heads(r: PiecewiseLinear, layer: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(D.7) for lanes [x (2); p(1) (2); p(2) (2); V_1 (4); V_2 (4); 1]: a head for every unit and hinge."""
    below, weights, out = 2 * (layer - 1), 6 + 4 * (layer - 1), 2 * layer
    heads = []
    for k, (a, b, c) in itertools.product(range(2), r.hinges):
        Q, K, V = torch.zeros(3, 15, 15, dtype=torch.float64)
        Q[:2, below : below + 2], Q[2, 14] = a * torch.eye(2, dtype=torch.float64), b
        K[:2, weights + 2 * k : weights + 2 * k + 2], K[2, 14] = torch.eye(2, dtype=torch.float64), 1.0
        V[out + k, 14] = c
        heads.append((Q, K, V))
    return heads


@claim("(D.5)-(D.8)", "the heads (D.7) give r̄(v_jkᵀ p̄_i(j−1)) exactly; the n+1 equal keys cancel 1/(n+1)", limit=1e-12)
def eq_d_5() -> float:
    """Heads (D.7) built here from the hinges, stream [p; v_1; v_2; 1; out], by the vector form of Definition 7."""
    r = approximate(ACTIVATIONS["tanh"].r, 1e-2)
    p, v = normal(200, 3, 5), normal(201, 2, 3)
    H = torch.cat([p, v.flatten()[:, None].expand(6, 5), torch.ones(1, 5), torch.zeros(2, 5)]).double()
    heads = []
    for k in range(2):
        for a, b, c in r.hinges:
            Q, K, V = torch.zeros(3, 12, 12, dtype=torch.float64)
            Q[:3, :3], Q[3, 9] = a * torch.eye(3), b
            K[:3, 3 + 3 * k : 6 + 3 * k], K[3, 9] = torch.eye(3), 1.0
            V[10 + k, 9] = c
            heads.append((Q, K, V))
    return gap(attend(H, heads)[10:], r(v @ p))
