"""Lemma 4: the loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from claims import attained, gap, normal
from claims_gradient.common import (
    ONE,
    SIZES,
    aligned,
    claim,
    compiled,
    forward_bound,
    lanes,
    matrices,
    norm_1,
    propagate,
    row_bound,
    squared_u,
)
from innergrad.functions import ACTIVATIONS, approximate


@claim("Lemma 4, 11, (3.15)", "|g_i[k] − u(p_i(N), y_i)[k]| ≤ ε_l + L_l E_r ε_r", limit=ONE)
def lemma_4() -> float:
    """Largest ratio of the sides, log-cosh loss, u = tanh(t - y), L_l = 1; and u = 2 (t - y) off by eps_l, r linear,
    off by eps, where it is 1 (inf if it is less).
    """
    exact, shifted, eps = aligned(2)
    E_r, eps_l, y = max(forward_bound(j, (4, 4, 1), 3.0, 1.0) for j in (1, 2)), 2e-3, torch.zeros(5, 1).double()
    worst = gap(squared_u(shifted.p[2], y) + eps_l, squared_u(exact.p[2], y)) / (eps_l + 2 * E_r * eps)
    if worst < 1 - 1e-9:
        return math.inf
    tf = compiled(loss="log-cosh")
    for seed in (230, 231, 232):
        V = matrices(seed)
        state = lanes(tf, seed, V)["loss derivative"]
        found = propagate(V, state["x"][0], state["y"][0]).p[3]
        E_r = max(forward_bound(j, SIZES, 1.0, row_bound(V)) for j in (1, 2, 3))
        eps = tf.approximants["tanh"].error
        worst = max(worst, gap(state["g"][0, :-1], torch.tanh(found - state["y"][0])[:-1]) / (eps + E_r * eps))
    return worst


@claim(
    "Lemma 4, R_3",
    "with R₃ = max{B_v B_r, B_y, 1}, p_i(N) ≤ R₃",
    "corrected",
    instead="R₃ = max{B_r + ε_r, B_y, 1}: the loss reads p_i(N), the value of r, not its argument",
    limit=ONE,
    threshold=2.0,
)
def lemma_4_range() -> tuple[float, float]:
    """|p(N)| / R_3, r = 9 sigmoid(100 t), B_v = 0.1, B_x = B_y = 1 (B_r <= 9, with B_x or without): attained."""
    V = [0.1 * F.normalize(matrix, dim=1) for matrix in matrices(240)]
    x = F.normalize(normal(241, 50, 3), dim=1)
    p = propagate(V, x, torch.zeros(50, 2), r=lambda t: 9 * torch.sigmoid(100 * t)).p[3]
    return attained([float(p.max()) / max(9.0, 1.0)]), float(p.max()) / max(0.1 * 9.0, 1.0)


@claim(
    "Theorem 1, R_3",
    "∂₁ℓ is approximable on R₃ = max{B_v B_r, 1}, which suffices for Lemma 4",
    "corrected",
    instead="R₃ = max{B_r + ε_r, B_y, 1}: y is an argument too",
    limit=ONE,
    threshold=4.0,
)
def theorem_1_range() -> tuple[float, float]:
    """The largest argument p(N)[k] or y[k] over R_3, tanh, B_v = B_x = 1 (so B_r <= 1), B_y = 5."""
    V = [F.normalize(matrix, dim=1) for matrix in matrices(250)]
    y = torch.stack([5 * torch.sign(normal(251, 50)), torch.zeros(50, dtype=torch.float64)], dim=1)
    p = propagate(V, F.normalize(normal(252, 50, 3), dim=1), y).p[3]
    largest = max(float(p.abs().max()), float(y.abs().max()))
    return attained([largest / max(1.0 + 1e-2, 5.0, 1.0)]), largest / 1.0


@claim(
    "(D.10), (D.13)",
    "‖a_m‖₂ ≤ 1, and the mask −R₃(1 − t_i) makes g_{n+1} = 0",
    "partly",
    instead="both hold because ‖a_m‖₁ ≤ 1 by Definition 4, and then |aᵀ[p; y; 1]| ≤ R₃; from ‖a_m‖₂ ≤ 1, which is all "
    "that is printed here, the second does not follow: the mask leaks",
    limit=0,
    threshold=0.3,
)
def mask() -> tuple[float, float]:
    """What is left of a unit at the query (y = 0), R_3 = 1, p in [-1, 1]: largest over random a and p; printed."""
    a, p = normal(260, 20_000, 3), 2 * torch.rand(20_000, dtype=torch.float64) - 1
    inputs = torch.stack([p, torch.zeros_like(p), torch.ones_like(p)], dim=1)
    left = [torch.relu((a / a.norm(dim=1, p=q, keepdim=True) * inputs).sum(1) - 1.0 - 1e-12) for q in (1, 2)]
    return float(left[0].max()), float(left[1].max())


def loss_mlp(d: int, R: float) -> tuple[Tensor, Tensor, float]:
    """(D.14) for log-cosh, lanes [p (d); y (d); 1; t]: W_1 (M, 2d + 2), W_2 (d, M) and C_3."""
    rows, writes = [], []
    C = 0.0
    for k in range(d):
        for a, b, c in approximate(ACTIVATIONS["tanh"].r, 1e-2).hinges:
            size = 2 * abs(a) + abs(b)
            row, write = torch.zeros(2 * d + 2, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
            row[k], row[d + k], row[2 * d], row[2 * d + 1] = a / size, -a / size, b / size - R, R
            write[k] = c * size
            rows.append(row)
            writes.append(write)
            C += abs(c * size) / d
    return torch.stack(rows), torch.stack(writes, dim=1), C


@claim(
    "Lemma 4, norm",
    "‖W₁‖₁ ≤ R₃ + 1, ‖W₂‖₁ ≤ C₃, so B_{θ_{N+2}} ≤ max{R₃ + 1, C₃}",
    "corrected",
    instead="‖W₁‖₁ is a column sum, up to M₃(R₃ + 1), and (C.1) a sum; with row m of W₁ times |c_m|: dC₃(R₃ + 1) + 1",
    limit=ONE,
    threshold=2.0,
)
def lemma_4_norm() -> tuple[float, float]:
    """Norm over bound for the log-cosh MLP, d = 2, R_3 = 1, rescaled (inf if another function); printed: as built."""
    W1, W2, C = loss_mlp(2, 1.0)
    size = W2.abs().sum(0)
    rows, signs = W1 * size[:, None], W2 / size
    h = torch.cat([normal(270, 4, 50), torch.ones(2, 50)]).double()
    if gap(W2 @ torch.relu(W1 @ h), signs @ torch.relu(rows @ h)) > 1e-12:
        return math.inf, 0.0
    if gap(W2 @ torch.relu(W1 @ h), torch.tanh(h[:2] - h[2:4])) > 1.01e-2:  # the loss that it is for
        return math.inf, 0.0
    right = (norm_1(rows) + norm_1(signs)) / (2 * C * 2 + 1)
    return attained([right], 0.6), (norm_1(W1) + norm_1(W2)) / max(1.0 + 1, C)


@claim(
    "(D.14)",
    "W₂[j, m] = c_m^k if j = D_g^k and M₃^{k−1} < m ≤ M₃^k",
    "corrected",
    instead="Σ_{l<k} M₃^l < m ≤ Σ_{l≤k} M₃^l: with equal M₃^k, as printed, only the first output has units",
    limit=0.03,
    threshold=0.3,
)
def eq_d_14() -> tuple[float, float]:
    """Error of g, d = 2, log-cosh, eps = 0.01 (tanh on [-2, 2]); printed: only M^{k-1} < m <= M^k."""
    W1, W2, _ = loss_mlp(2, 1.0)
    M = W2.shape[1] // 2
    p, y = torch.tanh(normal(280, 2, 50)), torch.tanh(normal(281, 2, 50))
    h = torch.cat([p, y, torch.ones(2, 50, dtype=torch.float64)])
    printed = torch.zeros_like(W2)
    counts = [0, M, M]  # M^0, M^1, M^2
    for k in (1, 2):
        kept = slice(counts[k - 1], counts[k])
        printed[k - 1, kept] = W2[k - 1, kept]
    wanted = torch.tanh(p - y)
    return gap(W2 @ torch.relu(W1 @ h), wanted), gap(printed @ torch.relu(W1 @ h), wanted)


@claim(
    "(D.13), losses",
    "u(t, y)[k] is approximated for (t, y) ∈ [−R₃, R₃]², with ℓ: ℝᵈ × ℝᵈ → ℝ any smooth loss",
    "corrected",
    instead="on [−R₃, R₃]^{2d}, a_m ∈ ℝ^{2d+1}, then for any smooth loss; two variables do for separable losses alone, "
    "where u[k] depends on t[k], y[k] only",
    limit=0.02,
    threshold=0.2,
)
def all_variables() -> tuple[float, float]:
    """Softmax cross-entropy, d = 3, |t| <= 1: largest error, on other points, of 500 random ReLUs of all of t fitted to
    u[0] + y[0]; printed: half of what u[0] varies by at one (t[0], y[0]), which no function of these two avoids.
    """
    generator = torch.Generator().manual_seed(290)
    t = 2 * torch.rand(8000, 3, generator=generator, dtype=torch.float64) - 1
    wanted = torch.softmax(t, 1)[:, 0]
    a = F.normalize(normal(291, 4, 500), dim=0)
    features = torch.relu(torch.cat([t, torch.ones(8000, 1, dtype=torch.float64)], dim=1) @ a)
    gram = features[:4000].T @ features[:4000] + 1e-6 * torch.eye(500, dtype=torch.float64)
    c = torch.linalg.solve(gram, features[:4000].T @ wanted[:4000])
    corners = torch.tensor([[0.0, x, x] for x in (-1.0, 1.0)], dtype=torch.float64)
    spread = torch.softmax(corners, 1)[:, 0]
    return gap(features[4000:] @ c, wanted[4000:]), float(spread.max() - spread.min()) / 2
