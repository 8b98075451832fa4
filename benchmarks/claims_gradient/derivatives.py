"""Lemma 3: the derivatives."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from claims import attained, gap, normal
from claims_gradient.common import (
    ONE,
    SIZES,
    claim,
    compiled,
    flat,
    forward_bound,
    lanes,
    matrices,
    propagate,
    row_bound,
    sample,
    total_weight,
)
from innergrad.functions import PiecewiseLinear
from innergrad.transformer import CompiledTransformer


@claim("Lemma 3, 10, (3.13)", "|r̄′_i(j−1)[k] − r′_i(j−1)[k]| ≤ ε_{r′} + L_{r′} B_v E_r ε_r", limit=ONE)
def lemma_3() -> float:
    """Largest ratio of the sides, lanes of a compiled transformer, L_r' = 4/(3 sqrt 3) for tanh; and r = t^2/2 near 0,
    r and r' off by eps and 2 eps everywhere, K = 16, d = 1, where it is 1 (inf if it is less).
    """
    eps, eps_prime = 1e-6, 2e-6
    V = [1e-3 * F.normalize(normal(209, 16, 3), dim=1), torch.full((1, 16), 0.25, dtype=torch.float64)]
    X, Y = F.normalize(normal(208, 5, 3), dim=1), torch.zeros(5, 1, dtype=torch.float64)
    exact, shifted = (
        propagate(V, X, Y, lambda t, e=e: t * t / 2 + e * eps, lambda t, e=e: t + e * eps_prime)  # type: ignore[misc]
        for e in (0, 1)
    )
    E_r = max(forward_bound(j, (3, 16, 1), 1e-3, 1.0) for j in (1, 2))
    worst = gap(shifted.d[1], exact.d[1]) / (eps_prime + E_r * eps)
    if worst < 1 - 1e-6:
        return math.inf
    tf = compiled()
    for seed in (210, 211, 212):
        V = matrices(seed)
        state, B_v = lanes(tf, seed, V)["derivatives"], row_bound(V)
        found = propagate(V, state["x"][0], state["y"][0])
        E_r = max(forward_bound(j, SIZES, 1.0, B_v) for j in (1, 2, 3))
        eps, eps_prime = (tf.approximants[name].error for name in ("tanh", "tanh'"))
        bound = eps_prime + 4 / (3 * math.sqrt(3)) * B_v * E_r * eps
        worst = max(worst, *(gap(state[f"d{j}"][0], found.d[j - 1]) / bound for j in (1, 2, 3)))
    return worst


@claim(
    "Lemma 3, R_2",
    "B_{r′}^j = max |r′(t)| over |t| ≤ B_v B_{r′}^{j−1}; R₂ = max{B_v B_{r′}, 1} covers the arguments of r′",
    "corrected",
    instead="r′ is taken at the argument of r, v_jᵀp(j−1): R₂ = R₁ (as corrected), and B_{r′} = max |r′| over |t| ≤ R₁",
    limit=ONE,
    threshold=5.0,
)
def lemma_3_range() -> tuple[float, float]:
    """|v . p(1)| over the ranges, softplus, B_x = 1, B_v = 3, K = 16; printed: R_2 = 3, B_r' <= 1, B_x = 1."""
    p = F.softplus(torch.full((16,), 3.0, dtype=torch.float64))
    z = float((torch.full((16,), 3 / 4, dtype=torch.float64) * p).sum())
    B_r = float(F.softplus(torch.tensor(3.0, dtype=torch.float64)))
    return attained([z / (3 * max(1.0, 4 * B_r))]), z / max(3 * max(1.0, 1.0), 1.0)


@claim(
    "Lemma 3, dimension",
    "r̄′_i ∈ ℝ^{(N−2)K+d}",
    "corrected",
    instead="(N−1)K + d: N − 1 hidden layers and the output (so in D.7 too)",
    limit=0,
    threshold=4,
)
def lemma_3_dimension() -> tuple[float, float]:
    """Entries of the lanes d1 .. dN of compiled transformers, N = 2, 3, 4, K = 4, d_y = 2."""
    right, printed = [], []
    for N in (2, 3, 4):
        tf = compiled((3, *[4] * (N - 1), 2), epsilon=0.1)
        size = sum(lane.size for lane in tf.program.stream.lanes if lane.name[0] == "d")
        right.append(abs(size - ((N - 1) * 4 + 2)))
        printed.append(abs(size - ((N - 2) * 4 + 2)))
    return max(right), min(printed)


@claim(
    "Lemma 3, norm",
    "B_{θ_{N+1}} ≤ 1 + K(N−1)C₂",
    "corrected",
    instead="1 + ((N−1)K + d)C₂: the heads of j = N are needed too (D.3 sums over j ∈ [N], then over [N−1])",
    limit=ONE,
    threshold=1.5,
)
def lemma_3_norm() -> tuple[float, float]:
    """Norm (C.1) of the layer N + 1 of a compiled transformer over the bounds, K = 4, d_y = 8."""
    tf = compiled((3, 4, 4, 8))
    C = total_weight(tf.approximants["tanh'"])
    norm = next(row.norm for row in tf.cost().rows if row.name == "derivatives")
    return attained([norm / (1 + (2 * 4 + 8) * C)]), norm / (1 + 4 * 2 * C)


@claim("(D.9)-(D.12)", "r̄′_i(j−1)[k] = r̄′(v_jkᵀ p̄_i(j−1)) exactly (e²_{jk} is the place of r̄′_i(j−1)[k])", limit=1e-12)
def eq_d_9() -> float:
    """Lanes d_j of the dense layers against the sum of ReLUs that stands for r', written out, at V_j p^(j-1), and
    against tanh' there (inf if farther off than eps).
    """
    tf, V = compiled(), matrices(220)
    state = lanes(tf, 221, V, dense=True)["derivatives"]
    below = [state["x"][0], state["p1"][0], state["p2"][0]]
    r_prime, worst = tf.approximants["tanh'"], 0.0
    assert isinstance(r_prime, PiecewiseLinear)
    for j in (1, 2, 3):
        z = below[j - 1] @ V[j - 1].T
        total = sum(c * torch.relu(a * z + b) for a, b, c in torch.as_tensor(r_prime.hinges))
        worst = max(worst, gap(state[f"d{j}"][0], total))
        if gap(total, 1 - torch.tanh(z) ** 2) > r_prime.error * ONE:
            return math.inf
    return worst


def layer_writes(tf: CompiledTransformer, seed: int, layer: str, written: tuple[str, ...]) -> float:
    """Largest entry, after a dense layer, of what it may not have changed: all lanes but ``written``, and, of the lanes
    that only later layers write, the entries; inf if it writes nothing.
    """
    X, y, query = sample(seed)
    trace = tf.trace(X, y, query, w0=flat(matrices(seed + 1)), executor="dense")
    names = [name for name, _ in trace]
    before, after = trace[names.index(layer) - 1][1], trace[names.index(layer)][1]
    kept = [gap(after[name], before[name]) for name in after if name not in written]
    fresh = [float(before[name].abs().max()) for name in written]
    moved = min(float(after[name].abs().max()) for name in written)
    return max(*kept, *fresh) if moved > 1e-2 else math.inf


@claim("(3.14)", "after layer N+1: h_i = [x_i; y_i; w; p̄_i; r̄′_i; 0; 1; t_i]", limit=0)
def eq_3_14() -> float:
    """The dense layer writes the lanes of r', which were 0, and changes no other (s, g are still 0)."""
    tf = compiled()
    zero = lanes(tf, 225, matrices(226), dense=True)["derivatives"]
    later = max(float(zero[name].abs().max()) for name in ("g", "s1", "s2", "s3"))
    return max(layer_writes(tf, 225, "derivatives", ("d1", "d2", "d3")), later)


@claim("(3.16)", "after layer N+2: h_i = [x_i; y_i; w; p̄_i; r̄′_i; g_i; 0; 1; t_i]", limit=0)
def eq_3_16() -> float:
    """The dense layer writes the lane g, which was 0, and changes no other (s is still 0)."""
    tf = compiled(loss="log-cosh")
    zero = lanes(tf, 225, matrices(226), dense=True)["loss derivative"]
    later = max(float(zero[name].abs().max()) for name in ("s1", "s2", "s3"))
    return max(layer_writes(tf, 225, "loss derivative", ("g",)), later)
