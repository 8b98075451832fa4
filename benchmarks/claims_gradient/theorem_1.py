"""Theorems 1 to 3: the whole step."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from claims import attained, gap, normal
from claims_gradient.common import (
    N_EXAMPLES,
    ONE,
    SIZES,
    algorithm_of,
    aligned_errors,
    attend,
    block,
    claim,
    columns,
    compiled,
    exact_step,
    flat,
    gradient_bound,
    gradient_distance,
    lanes,
    matrices,
    norm_1,
    propagate,
    risk_gradient,
    sample,
    scratch,
    total_weight,
    unit_errors,
)
from innergrad.functions import ACTIVATIONS, approximate


@claim(
    "Theorem 1, 4",
    "w̄⁽ˡ⁾ = Proj(w̄ − η∇ℒ_n(w̄) + ε⁽ˡ⁻¹⁾), ‖ε⁽ˡ⁻¹⁾‖₂ ≤ ηε for any ε (W a box; bound as corrected here)",
    limit=1.0,
)
def theorem_1() -> float:
    """Error / bound: of each of 3 steps, eps = 1e-2 and 1e-4 (the bound goes with eps); of r + eps, r' + eps with equal
    positive rows, where all errors add; and in a network of width 1, where it is 1 (inf if it is less).
    """
    X, y, query = sample(370)
    worst, bounds = 0.0, []
    for epsilon in (1e-2, 1e-4):
        tf = compiled(steps=3, epsilon=epsilon)
        weights = tf.run(X, y, query, w0=flat(matrices(371))).weights
        eps, eps_prime = (tf.approximants[name].error for name in ("tanh", "tanh'"))
        for before, after in itertools.pairwise(weights):
            V = [matrix for matrix, _ in algorithm_of(tf).network.unflatten(before)]
            bound = gradient_bound(V, float(X.norm(dim=1).max()), 0.5, eps, eps_prime)
            worst = max(worst, float((after - exact_step(tf, before, X, y)).norm()) / (0.5 * bound))
            bounds.append(bound)
    if max(bounds[3:]) > 0.02 * min(bounds[:3]):
        return math.inf
    return attained([worst, aligned_errors(), unit_errors()], 1 - 1e-4)


@claim("Theorem 1, layers, B.1", "(2N+4)L layers, TF^{N+2}, EWML^N, TF² a step: O(NL)", limit=0)
def theorem_1_layers() -> float:
    """Compiled transformers, N = 2 .. 5, L = 1, 3: kinds of the layers in order."""
    wrong = 0
    for N, L in itertools.product((2, 3, 4, 5), (1, 3)):
        tf = compiled((3, *[4] * (N - 1), 2), steps=L, epsilon=0.1)
        kinds = [row.kind for row in tf.cost().rows if row.times]
        wanted = ["attention"] * (N + 1) + ["mlp"] + ["product"] * N + ["attention", "mlp"]
        wrong += abs(tf.n_layers - (2 * N + 4) * L) + (kinds != wanted)
    return wrong


@claim(
    "Theorem 1, order",
    "a block is TF^{N+2} ∘ EWML^N ∘ TF²",
    "corrected",
    instead="TF² ∘ EWML^N ∘ TF^{N+2}: the update and the projection come last; as printed w does not move",
    limit=0.05,
    threshold=0.99,
)
def theorem_1_order() -> tuple[float, float]:
    """|w - exact step| / |step|, dense layers in both orders, eps = 0.01."""
    tf, (X, y, query) = compiled(), sample(380)
    w0 = flat(matrices(381))
    wanted, layers, found = exact_step(tf, w0, X, y), block(tf), []
    for order in (layers, [*layers[8:], *layers[5:8], *layers[:5]]):
        h = tf.stream(X, y, query, w0=w0)
        for layer in order:
            h = layer(h)
        w = torch.cat([h[0, 0, columns(tf, f"V{j}")] for j in (1, 2, 3)])
        found.append(float((w - wanted).norm() / (w0 - wanted).norm()))
    return found[0], found[1]


@claim("Theorem 1, heads", "at most Õ(ε^{-2}) heads a layer (free knots: about ε^{-½})", limit=0.6)
def theorem_1_heads() -> float:
    """Growth of the widest layer: slope of log heads in log 1/eps, from 1e-2 to 1e-4."""
    heads = [compiled(epsilon=eps).n_heads for eps in (1e-2, 1e-4)]
    return math.log10(heads[1] / heads[0]) / 2


@claim(
    "Theorem 1, width, B.3",
    "the embedding width and the hidden width of the MLPs are O(NK²) + D_w",
    "partly",
    instead="the embedding and the last MLP (2 units a weight and a scratch lane), O(dK + NK²); but the MLP of Lemma 4 "
    "has M₃ units, Õ(dε^{-2}), here about dε^{-½}, which no N, K and D_w bound",
    limit=0,
    threshold=5.0,
)
def theorem_1_width() -> tuple[float, float]:
    """Units of the last MLP against 2 D_N + 2 (3 ((N-1)K + d) + d), D_N = O(dK + N K^2) (the embedding width is in
    (2.1)); printed: units of the loss's MLP at eps = 1e-4 over those at 1e-2, log-cosh.
    """
    wrong = 0
    for K, N in itertools.product((4, 8), (2, 3, 4)):
        sizes = (3, *[K] * (N - 1), 2)
        tf = compiled(sizes, epsilon=0.1)
        D_N = sum(c * k for c, k in itertools.pairwise(sizes))
        units = next(row.heads for row in tf.cost().rows if row.name == "project and clear")
        wrong += abs(units - 2 * (D_N + 3 * ((N - 1) * K + 2) + 2))
    few, many = [
        next(row.heads for row in compiled(loss="log-cosh", epsilon=eps).cost().rows if row.name == "loss derivative")
        for eps in (1e-2, 1e-4)
    ]
    return wrong, many / few


@claim(
    "Theorem 1, norm",
    "B_θ ≤ O(η) + C_w + 1",
    "corrected",
    instead="the largest of 1 + KC₁, 1 + ((N−1)K + d)C₂, dC₃(R₃+1) + 1, 1 + K, 1 + O(η), C_w; and C_w is no constant",
    limit=ONE,
    threshold=2.0,
)
def theorem_1_norm() -> tuple[float, float]:
    """B_theta of a compiled transformer over the bound, eta = 0.01, box 1/64: C_w read off it; printed: 2 eta N K."""
    tf = compiled(lr=0.01, box=2.0**-6, loss="log-cosh")
    rows = {row.name: row.norm for row in tf.cost().rows if row.times}
    C_1, C_2 = (total_weight(tf.approximants[name]) for name in ("tanh", "tanh'"))
    C_w, eta = rows["project and clear"], 2 * 0.01 * 3 * 4
    bound = max(1 + 4 * C_1, 1 + (2 * 4 + 2) * C_2, 2 * 2 * C_1 * 2 + 1, 1 + 4, 1 + eta, C_w)
    return attained([max(rows.values()) / bound]), max(rows.values()) / (eta + C_w + 1)


@claim(
    "Theorem 1, C_w",
    "Proj_W is assumed to be an MLP with parameters ‖θ‖ ≤ C_w",
    "partly",
    instead="for a box, with a C_w that grows with the network: all 2 D_N units read the lane 1, so for the MLP that "
    "clips entry by entry C_w ≥ 2√(2 D_N B), however its units are scaled",
    limit=ONE,
    threshold=3.0,
)
def theorem_1_projection_norm() -> tuple[float, float]:
    """2 sqrt(2 D_N B) / C_w of compiled transformers, B = 4; printed: C_w at K = 16 over that at K = 4."""
    found, ratio = {}, 0.0
    for K in (4, 16):
        tf = compiled((3, K, K, 2), epsilon=0.1)
        found[K] = next(row.norm for row in tf.cost().rows if row.name == "project and clear")
        ratio = max(ratio, 2 * math.sqrt(2 * algorithm_of(tf).network.n_weights * 4.0) / found[K])
    return attained([ratio], 0.75), found[16] / found[4]


@claim(
    "Theorem 1, Proj",
    "Proj_W is assumed to be a ReLU MLP, W ⊂ {‖v_jk‖₂ ≤ B_v}",
    "partly",
    instead="a box inside the balls will do; the balls ‖v‖₂ ≤ B_v themselves, the W that (3.4) suggests, will not: "
    "their projection is not piecewise linear, so no ReLU MLP is it",
    limit=0,
    threshold=0.05,
)
def projection() -> tuple[float, float]:
    """The MLP for the box against clamp; printed: smallest second derivative of the ball's along a line outside."""
    w, B = 3 * normal(390, 1000), 1.5
    right = gap(w - torch.relu(w - B) + torch.relu(-w - B), w.clamp(-B, B))
    t = torch.linspace(0, 1, 1001, dtype=torch.float64)
    first = 2.0 / torch.sqrt(4.0 + t * t)  # first entry of the projection of (2, t) onto the unit ball
    second = torch.diff(first, n=2) / 1e-6
    return right, float(second.abs().min())


@claim(
    "D.7, last MLP",
    "MLP_{2N+4} maps to [x; y; Proj_W(w); 0; 1; t]: “by our assumption on Proj_W, this is easy”",
    "corrected",
    instead="it must also clear p̄, r̄′, g, s̄, 2 units a lane: left there, they are added to in the next step",
    limit=0.02,
    threshold=0.5,
)
def clearing() -> tuple[float, float]:
    """|w after step 2 - exact step| / |step|, dense: the compiled MLP; printed: with its writes to scratch undone."""
    tf, (X, y, query) = compiled(steps=2, epsilon=1e-3), sample(400)
    found = []
    for clear in (True, False):
        h, weights = tf.stream(X, y, query, w0=flat(matrices(401))), []
        for layer in itertools.islice(tf.module.layers(), tf.n_layers):
            before, h = h, layer(h)
            if layer.name == "project and clear":
                if not clear:
                    for place in scratch(tf):
                        h[..., place] = before[..., place]
                weights.append(torch.cat([h[0, 0, columns(tf, f"V{j}")] for j in (1, 2, 3)]))
        wanted = exact_step(tf, weights[0], X, y)
        found.append(float((weights[1] - wanted).norm() / (weights[0] - wanted).norm()))
    return found[0], found[1]


@claim("(D.16)", "two heads for each (j, k) give w − η/(2n) Σ_t [Ā_t(1); …] exactly", limit=1e-12)
def eq_d_16() -> float:
    """The dense layer 2N + 3: change of V_j against -eta/(2n) sum of s_i(j) p_i(j-1)^T of the lanes."""
    tf, V = compiled(), matrices(410)
    found = lanes(tf, 411, V, dense=True)
    before, after = found["backward 1"], found["update"]
    below = [before["x"][0], before["p1"][0], before["p2"][0]]
    n, worst = N_EXAMPLES, 0.0
    for j in (1, 2, 3):
        s = before[f"s{j}"][0, :n] * n / (n + 1)  # without omega
        worst = max(worst, gap(after[f"V{j}"][0, 0], V[j - 1] - 0.5 / (2 * n) * s.T @ below[j - 1][:n]))
    return worst


def update_heads(sizes: tuple[int, ...], n: int, eta: float) -> tuple[list[tuple[Tensor, Tensor, Tensor]], int]:
    """The heads of (D.16), and D, for lanes [p(0); p(1); ..; s(1); ..; V_1; ..; 1]: two for each (j, k)."""
    N = len(sizes) - 1
    p = list(itertools.accumulate(sizes[:-1], initial=0))  # where p(0), .., p(N-1) begin, and s(1)
    s = list(itertools.accumulate(sizes[1:], initial=p[-1]))
    w = list(itertools.accumulate((a * b for a, b in itertools.pairwise(sizes)), initial=s[-1]))
    D, heads = w[-1] + 1, []
    for j, sign in itertools.product(range(1, N + 1), (1.0, -1.0)):
        size = sizes[j - 1]
        for k in range(sizes[j]):
            Q, K, V = torch.zeros(3, D, D, dtype=torch.float64)
            Q[0, D - 1], K[0, s[j - 1] + k] = sign, 1.0
            place = w[j - 1] + k * size
            identity = torch.eye(size, dtype=torch.float64)
            V[place : place + size, p[j - 1] : p[j - 1] + size] = -sign * eta * (n + 1) / (2 * n) * identity
            heads.append((Q, K, V))
    return heads, D


def update_error(sizes: tuple[int, ...], n: int, eta: float) -> float:
    """Those heads, by the vector form of Definition 7, against a step of autograd; s(n+1) = 0."""
    heads, D = update_heads(sizes, n, eta)
    V, X, Y = matrices(420, sizes), normal(421, n + 1, sizes[0]), normal(422, n + 1, sizes[-1])
    found = propagate(V, X, Y)
    s = [torch.cat([part[:n], torch.zeros_like(part[n:])]) for part in found.s[1:]]
    H = torch.cat([*found.p[:-1], *s, flat(V).expand(n + 1, -1), torch.ones(n + 1, 1, dtype=torch.float64)], dim=1).T
    moved = attend(H, heads)[D - 1 - len(flat(V)) : D - 1]
    wanted = flat(V) - eta * flat(risk_gradient(V, X[:n], Y[:n]))
    return gap(moved, wanted[:, None].expand(-1, n + 1))


@claim(
    "D.7, layer 2N+3",
    "h̃_i = h_i + 1/(n+1) Σ_i σ(⟨Q h_s, K h_i⟩) V h_i (the i of the sum is not that on the left, which is s)",
    limit=1e-12,
)
def d_7_layer() -> float:
    """The heads (D.16) read so, N = 2 and 3, against a step of autograd, in every token."""
    worst = 0.0
    for sizes, n, eta in (((3, 2, 2), 3, 0.3), ((2, 2, 3, 1), 4, 0.7)):
        worst = max(worst, update_error(sizes, n, eta))
    return worst


@claim(
    "D.7, norm",
    "Σ ‖V_{j,m,k}‖₁ ≤ 2ηNK in layer 2N+3, B_θ ≤ 1 + 2ηNK",
    "partly",
    instead="for d ≤ K; in general η(1 + 1/n)((N−1)K + d): the output layer has d rows, not K",
    limit=1e-12,
    threshold=1.5,
)
def d_7_norm() -> tuple[float, float]:
    """Norms of the matrices (D.16), which do a step (inf if not): their sum over eta (1 + 1/n)((N-1)K + d), less 1, N =
    2, d <= K and d > K, n = 1, 3 (inf if for d <= K the printed bound fails); printed: over 2 eta N K, K = 2, d_y = 16.
    """
    off, printed, eta = [], 0.0, 0.3
    for sizes, n in itertools.product(((3, 4, 2), (3, 4, 4), (3, 2, 16)), (1, 3)):
        heads, (_, K, d) = update_heads(sizes, n, eta)[0], sizes
        total = sum(norm_1(V) for _, _, V in heads)
        if max(norm_1(M) for Q, K_, _ in heads for M in (Q, K_)) > 1 or (d <= K and total > 2 * eta * 2 * K * ONE):
            return math.inf, 0.0
        off.append(abs(total / (eta * (1 + 1 / n) * (K + d)) - 1))
        printed = max(printed, total / (2 * eta * 2 * K))
    return (max(off) if update_error((3, 2, 4), 3, eta) < 1e-12 else math.inf), printed


@claim(
    "D.7, sum over k",
    "‖Ā_i(j) − A_i(j)‖₂ ≤ P[(E_s^r ε_r + ⋯)√P B_r + B_s E_r ε_r], P = max{√K, √d}",
    "corrected",
    instead="‖δs‖₂‖p̄‖₂ + ‖s‖₂‖δp‖₂ ≤ √K·δs·√K B_r + …: ‖p̄‖₂ ≤ √K B_r = P B_r, not √P B_r",
    limit=ONE,
    threshold=2 - 1e-9,
)
def d_7_sum() -> tuple[float, float]:
    """Ratio of the sides, K = 16, an error of 1e-3 in every entry of s and none in p, all p[k] = B_r = 1."""
    K, delta = 16, 1e-3
    error = float(torch.outer(torch.full((K,), delta, dtype=torch.float64), torch.ones(K, dtype=torch.float64)).norm())
    return attained([error / (math.sqrt(K) * delta * math.sqrt(K))]), error / (4 * delta * math.sqrt(4))


@claim(
    "D.7, j = 1",
    "the same bound for j = 1: ‖p̄_i(0)‖₂ ≤ √P B_r",
    "partly",
    instead="if B_r = max_j B_r^j is over j = 0 too, B_r^0 = B_x; Lemma 2 defines B_r^j “for any j ∈ [N]”, and without "
    "j = 0 it fails: p_i(0) = x_i",
    limit=ONE,
    threshold=2.0,
)
def d_7_first() -> tuple[float, float]:
    """||x|| / (sqrt P B_r), B_x = 10, tanh, K = 4, d = 3: B_r = 10; printed: B_r = tanh(10 B_v) < 1."""
    x = 10 * F.normalize(normal(430, 20, 3), dim=1)
    norm, root = float(x.norm(dim=1).max()), math.sqrt(max(math.sqrt(4), math.sqrt(3)))
    return norm / (root * max(10.0, math.tanh(10.0))), norm / (root * math.tanh(10.0))


@claim(
    "D.7, choice of eps",
    "ε_l = 2ε/(3C_l), … give error ε, for the coefficients C_l = NP^{3/2}B_rE_s^l, … as they stand",
    limit=1e-12,
)
def d_7_choice() -> float:
    """The bound before it, with random constants."""
    worst = 0.0
    for N, P, B_r, B_s, E_r, E_sr, E_sp, E_sl in normal(440, 20, 8).abs().tolist():
        C_l, C_p = N * P**1.5 * B_r * E_sl, N * P**1.5 * B_r * E_sp
        C_r = N * P**1.5 * B_r * E_sr + N * P * B_s * E_r
        e_l, e_r, e_p = (2 / (3 * C) for C in (C_l, C_r, C_p))
        total = N / 2 * P * ((E_sr * e_r + E_sp * e_p + E_sl * e_l) * math.sqrt(P) * B_r + B_s * E_r * e_r)
        worst = max(worst, abs(total - 1))
    return worst


@claim(
    "Theorem 2",
    "informal Theorem 1: for C⁴ r, r′, u such a transformer exists (Lemma 7, as corrected: C² r and r′, C³ u)",
    limit=0.05,
)
def theorem_2() -> float:
    """Largest error of a step over three prompts at eps = 1e-4 over that at 1e-2: three activations, and a loss whose u
    is no function of t - y, u = sin t cos y, by sums of ReLUs of t + y and of t - y.
    """
    worst = 0.0
    for activation in ("tanh", "sigmoid", "softplus"):
        errors = []
        for epsilon in (1e-2, 1e-4):
            tf = compiled(activation=activation, epsilon=epsilon, output="linear")
            steps = []
            for seed in (450, 451, 452):
                (X, y, query), w0 = sample(seed), flat(matrices(seed + 5))
                after = tf.run(X, y, query, w0=w0).weights[1]
                steps.append(float((after - exact_step(tf, w0, X, y)).norm()))
            errors.append(max(steps))
        worst = max(worst, errors[1] / errors[0])
    return max(worst, two_variables(1e-4) / two_variables(1e-2))


def two_variables(eps: float) -> float:
    """Error of the gradient of (1 - cos t) cos y, all functions by sums of ReLUs within eps."""
    r, dr = (approximate(f, eps) for f in (ACTIVATIONS["tanh"].r, ACTIVATIONS["tanh"].dr))
    sine = approximate(ACTIVATIONS["sin"].r, eps, 4.0)
    errors = []
    for seed in (450, 451, 452):
        V, X, Y = matrices(seed), normal(seed + 1, 1, 3), torch.tanh(normal(seed + 2, 1, 2))
        exact = propagate(V, X, Y, u=lambda t, y: torch.sin(t) * torch.cos(y))
        errors.append(gradient_distance(exact, propagate(V, X, Y, r, dr, lambda t, y: (sine(t + y) + sine(t - y)) / 2)))
    return max(errors)


@claim(
    "Theorem 3",
    "ℒ_n = 1/n Σ ℓ for an ℓ with Lipschitz gradient, and a transformer solves Problem 1 on it (informal Theorem 6)",
    "partly",
    instead="that Problem 1 has 1/(2n) is a matter of η or of ℓ; for the rest see Theorem 6: what is proven is weaker",
    limit=1e-12,
)
def theorem_3() -> float:
    """Only the factor: a step on the mean loss with eta/2 against the step on (2.2) with eta."""
    V, X, Y = matrices(460), normal(461, 6, 3), normal(462, 6, 2)
    w, slope = flat(V), flat(risk_gradient(V, X, Y))
    leaf = w.clone().requires_grad_(True)
    network = ig.Network(SIZES, "tanh", output="activation", bias=False)
    (mean,) = torch.autograd.grad(((network.forward(leaf, X) - Y) ** 2).sum(1).mean(), leaf)
    return gap(w - 0.25 * mean, w - 0.5 * slope)
