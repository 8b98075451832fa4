"""Definitions 5 and 6, Lemmas 5 and 6: the products, and the error of s."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from claims import attained, gap, normal
from claims_gradient.common import (
    N_EXAMPLES,
    ONE,
    attend,
    block,
    claim,
    compiled,
    counterexample,
    flat,
    lanes,
    matrices,
    propagate,
    row_bound,
    squared_u,
)


@claim(
    "Def. 5, 6, (3.17)",
    "EWML(H) = H + Σ (V_mH) γ((Q_mH)ᵀ(K_mH)), in vector form Σ ⟨Q_mh_i, K_mh_i⟩ V_mh_i",
    "definition",
    limit=1e-12,
)
def definition_6() -> float:
    """Matrix form against vector form."""
    H, Q, K, V = normal(300, 4, 6), *normal(301, 3, 4, 4)
    matrix = H + (V @ H) @ torch.diag(torch.diag((Q @ H).T @ (K @ H)))
    vector = torch.stack([H[:, i] + ((Q @ H[:, i]) @ (K @ H[:, i])) * (V @ H[:, i]) for i in range(6)], dim=1)
    return gap(matrix, vector)


def chords_of_the_square(pieces: int) -> tuple[Tensor, Tensor]:
    """Knots x_m and weights c_m: t^2 is near 1 - 2 (t + 1) + ... = 1 + sum_m c_m relu(t - x_m) on [-1, 1], by its
    chords.
    """
    knots = torch.linspace(-1, 1, pieces + 1, dtype=torch.float64)
    slopes = knots[1:] + knots[:-1]
    return knots[:-1], torch.diff(slopes, prepend=torch.zeros(1, dtype=torch.float64))


def least_error(kinks: int) -> float:
    """Of a piecewise-linear function with so many kinks, to t^2 on [-1, 1]: a line is off by h^2/8 on a piece of width
    h.
    """
    return 1 / (2 * (kinks + 1) ** 2)


@claim(
    "Before Def. 5",
    "attention and MLPs are unable to compute self-products (output xy from [x; y])",
    "partly",
    instead="exactly: M ReLUs are off by 1/(2(M+1)²) or more on the line x = y, |x| ≤ 1. Within ε they are able, on a "
    "bounded set, with O(ε^{-½}) units: xy = ((x+y)² − (x−y)²)/4",
    limit=2e-6,
)
def product_by_mlp() -> float:
    """Error on [-1, 1]^2 of an MLP with 2000 units; inf if it, or a narrower one, is less than they must have."""
    x, y = 2 * torch.rand(2, 3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    x, y = (
        torch.cat([x, torch.linspace(-1, 1, 20_001)]).double(),
        torch.cat([y, torch.linspace(-1, 1, 20_001)]).double(),
    )
    error = math.inf
    for pieces in (3, 30, 1000):
        knots, jumps = chords_of_the_square(pieces)
        squares = [1 + torch.relu(t[:, None] - knots) @ jumps for t in ((x + y) / 2, (x - y) / 2)]
        error = gap(squares[0] - squares[1], x * y)
        if error < least_error(2 * pieces):
            return math.inf
    return error


@claim(
    "Remark 3",
    "by Definition 7 transformer layers cannot multiply entries of h_i “without any other assumptions”: the EWML is "
    "necessary",
    "partly",
    instead="exactly one layer cannot; within ε it can, with O(ε^{-½}) heads of constant keys, and more Theorem 1 does "
    "not ask; exactly with lanes i, i², whose score q_i − R(i−s)² picks s = i. So it is a convenience",
    limit=2e-4,
)
def remark_3() -> float:
    """Error of x y by the vector form of Definition 7, 8 tokens, |x|, |y| <= 1, 160 heads, no positions; inf if that is
    less than it must be, or if with lanes i, i^2 two heads are off by more than 1e-10.

    Why one layer cannot, for 2 tokens and more: let F(a, b) be what a head sum adds to a token a from a token b. If
    F(a, a) + (n - 1) F(a, b) = n a_1 a_2 for all a and b, then F(a, a) = a_1 a_2 (b = a), so F(a, b) = a_1 a_2 for all
    b. But for one b, F(a, b) is piecewise linear in a, with a kink a head.
    """
    T = 8
    line = torch.linspace(-1, 1, T, dtype=torch.float64)
    error = 0.0
    for x, y in ((line, line), (line, line.flip(0)), (torch.tanh(normal(310, T)), torch.tanh(normal(311, T)))):
        H = torch.stack([x, y, torch.ones(T, dtype=torch.float64), torch.zeros(T, dtype=torch.float64)])
        error = max(error, gap(attend(H, heads_of_squares(80))[3], x * y))
    i = torch.arange(T, dtype=torch.float64)
    H = torch.stack([*normal(310, 2, T), torch.ones(T, dtype=torch.float64), i, i * i, torch.zeros(T)])
    exact = gap(attend(H, heads_of_positions(T, 8.0))[5], H[0] * H[1])
    return error if exact <= 1e-10 and error >= least_error(160) else math.inf


def heads_of_squares(pieces: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """((x+y)/2)^2 - ((x-y)/2)^2 by chords, lanes [x; y; 1; out]: a query is a hinge of its own token, the key is 1."""
    knots, jumps = chords_of_the_square(pieces)
    heads = []
    for sign, (knot, jump) in itertools.product((1.0, -1.0), zip(knots, jumps, strict=True)):
        Q, K, V = torch.zeros(3, 4, 4, dtype=torch.float64)
        Q[0, 0], Q[0, 1], Q[0, 2], K[0, 2], V[3, 2] = 0.5, sign / 2, -knot, 1.0, sign * jump
        heads.append((Q, K, V))
    return heads


def heads_of_positions(T: int, R: float) -> list[tuple[Tensor, Tensor, Tensor]]:
    """x y by two heads, lanes [x; y; 1; i; i^2; out]: relu(sign x_i - R (i - s)^2) is 0 but for s = i."""
    heads = []
    for sign in (1.0, -1.0):
        Q, K, V = torch.zeros(3, 6, 6, dtype=torch.float64)
        Q[0, 0], Q[0, 4], Q[1, 3], Q[2, 2] = sign, -R, 2 * R, -R  # [sign x_i - R i^2, 2 R i, -R]
        K[0, 2], K[1, 3], K[2, 4] = 1.0, 1.0, 1.0  # [1, s, s^2]
        V[5, 1] = sign * T
        heads.append((Q, K, V))
    return heads


@claim(
    "(3.18)",
    "norm of EWML layers: B_θ = max over heads and layers of ‖Q‖₁, ‖K‖₁, ‖V‖₁ (“similar to (C.1)”)",
    "definition",
    limit=1e-12,
)
def eq_3_18() -> float:
    """That it is one number a layer, and that it differs from (C.1) by the sum over heads: norms of the product layers
    of a compiled transformer, K = 4, d = 2, against max and against max(Q, K) + sum of V, taken column by column.
    """
    tf = compiled()
    rows, wrong = {row.name: row.norm for row in tf.cost().rows}, []
    for layer in block(tf):
        if layer.name.startswith("backward"):
            Q, K, V = layer.W_Q.weight, layer.W_K.weight, layer.W_O.weight @ layer.W_V.weight
            sizes = [matrix.abs().sum(1).max(1).values for matrix in (Q, K, V)]  # of every head
            wrong.append(abs(max(float(size.max()) for size in sizes) - 1.0))
            wrong.append(
                abs(max(float(sizes[0].max()), float(sizes[1].max())) + float(sizes[2].sum()) - rows[layer.name])
            )
    return max(wrong)


@claim(
    "Lemma 5, 12, (3.19), (D.15)",
    "N EWMLs give s̄_i(N) = r̄′ ⊙ g, s̄_i(j) = r̄′_i(j−1) ⊙ (V_{j+1}ᵀs̄_i(j+1)) exactly",
    limit=1e-12,
)
def lemma_5() -> float:
    """Lanes of the dense layers against the recursion with the lanes below (times omega, see above)."""
    tf, V = compiled(), matrices(320)
    state = lanes(tf, 321, V, dense=True)["backward 1"]
    s = state["omega"][0, :, None] * state["g"][0] * state["d3"][0]
    found = [gap(state["s3"][0], s)]
    for j in (2, 1):
        s = state[f"d{j}"][0] * (s @ V[j])
        found.append(gap(state[f"s{j}"][0], s))
    return max(found) if float(s.abs().max()) > 1e-2 else math.inf


@claim(
    "Lemma 5, norm",
    "B_{θ_{N+2+j}} as defined in (C.1) is at most 1",
    "corrected",
    instead="as defined in (3.18), the largest norm of a matrix; by (C.1) it is 1 + K",
    limit=ONE,
    threshold=3.0,
)
def lemma_5_norm() -> tuple[float, float]:
    """Matrices of the product layers of a compiled transformer, columns summed here: largest norm of a head's Q, K, V;
    printed: (C.1), largest of Q and K and the sum of V, smallest of the layers.
    """
    largest, added = [], []
    for layer in block(compiled()):
        if layer.name.startswith("backward"):
            matrices_of = (layer.W_Q.weight, layer.W_K.weight, layer.W_O.weight @ layer.W_V.weight)
            Q, K, V = (matrix.abs().sum(1).max(1).values for matrix in matrices_of)  # one number a head
            largest.append(float(torch.cat([Q, K, V]).max()))
            added.append(max(float(Q.max()), float(K.max())) + float(V.sum()))
    return max(largest), min(added)


@claim(
    "D.5, output",
    "h̃_i = h_i + Σ_{m ∈ [2], k} σ(⟨Q_{m,k} h_i, K_{m,k} h_s⟩) V_{m,k} h_s for the EWML of (D.15)",
    "partly",
    instead="right for s = i and m = 1, 2 heads of opposite sign, σ(z) − σ(−z) = z; (D.15) has one head and "
    "Definition 6 no σ, and with σ on that one head the negative products are lost",
    limit=1e-12,
    threshold=0.1,
)
def d_5_output() -> tuple[float, float]:
    """s(1) from s(2), against autograd in the pre-activations: two heads of opposite sign with ReLU; printed: one."""
    V, X, Y = matrices(330), normal(331, 5, 3), normal(332, 5, 2)
    found = propagate(V, X, Y)
    z = (X @ V[0].T).requires_grad_(True)
    loss = ((torch.tanh(torch.tanh(torch.tanh(z) @ V[1].T) @ V[2].T) - Y) ** 2).sum()
    (slope,) = torch.autograd.grad(loss, z)
    plus, minus = (torch.relu(sign * (found.s[2] @ V[1])) * found.d[0] for sign in (1, -1))
    return gap(plus - minus, slope), gap(plus, slope)


@claim(
    "(3.20)",
    "the last of the products is EWML_{θ_{2N+1}}, and the network is TF^{N+2} ∘ EWML^{N−1}",
    "corrected",
    instead="EWML_{θ_{2N+2}} and EWML^N, as in Theorem 1: s_i(N) takes one too",
    limit=0,
    threshold=1,
)
def eq_3_20() -> tuple[float, float]:
    """Product layers of a step of compiled transformers, N = 2, 3, 4."""
    counts = {}
    for N in (2, 3, 4):
        rows = compiled((3, *[4] * (N - 1), 2), epsilon=0.1).cost().rows
        counts[N] = sum(row.kind == "product" and row.times > 0 for row in rows)
    return max(abs(m - N) for N, m in counts.items()), min(abs(m - (N - 1)) for N, m in counts.items())


@claim(
    "(3.21)",
    "the output of (3.20) is [x_i; y_i; w; p̄_i; r̄′_i; s̄_i; 0; 1; t_i]",
    "corrected",
    instead="with g_i before s̄_i: nothing has cleared it",
    limit=1e-12,
    threshold=0.1,
)
def eq_3_21() -> tuple[float, float]:
    """The lane g of the examples after layer 2N + 2 against u = 2 (p^(N) - y); printed: its size there."""
    state = lanes(compiled(), 340, matrices(341), dense=True)["backward 1"]
    g, p, y = (state[name][0, :-1] for name in ("g", "p3", "y"))
    return gap(g, squared_u(p, y)), float(g.abs().max())


COUNTEREXAMPLE = (16, 16, 16)  # d = K = 16, N = 2: V_1 = 0, all rows of V_2 are e_1, so r' = 1 and p(N) = 0


def backward_bounds(sizes: tuple[int, ...], B_v: float, last: float) -> list[float]:
    """||s(j)||_2 <= S_j: S_N = last sqrt(d), S_j = B_r' sqrt(k_{j+1}) B_v S_{j+1}, B_r' = 1; index j, from 1."""
    bounds = [last * math.sqrt(sizes[-1])]
    for k in reversed(sizes[2:]):
        bounds.insert(0, math.sqrt(k) * B_v * bounds[0])
    return [math.nan, *bounds]


@claim(
    "Lemma 6, 13, (3.22), (3.23)",
    "s̄_i(j)[k] ≤ B_s = max_j (P B_{r′} B_v)^{N−j} B_{r′} B_l, P = max{√K, √d}, B_l the bound of g_i (Lemma 13: of "
    "g_i[k])",
    "partly",
    instead="with ‖g_i‖₂ ≤ B_l, which is one reading of Lemma 6; with |g_i[k]| ≤ B_l, as Lemma 13 and both proofs have "
    "it, √d is missing: Vᵀs takes columns of V, and only rows are bounded",
    limit=ONE,
    threshold=4 - 1e-9,
)
def lemma_6() -> tuple[float, float]:
    """|s(j)[k]| / bound, B_l = ||g||_2: the counter-example, run by a compiled transformer, and random networks;
    printed: the counter-example with B_l = max |g[k]|.

    K = d = 16, all rows of V_2 are e_1, V_1 = 0, y = -0.9: s(2) = 1.8 (1, .., 1), s(1)[1] = 16 x 1.8 > B_s = 4 x 1.8.
    ||x|| <= 1, so that B_r' is 1 whether or not its maximum is over B_r'^0 = B_x too.
    """
    tf = compiled(COUNTEREXAMPLE, epsilon=0.1)
    X = F.normalize(normal(350, N_EXAMPLES, 16), dim=1)
    y = torch.full((N_EXAMPLES, 16), -0.9, dtype=torch.float64)
    state = dict(tf.trace(X, y, X[:1], w0=flat(counterexample())))["backward 1"]
    s = float((state["s1"][0, 0] / state["omega"][0, 0]).abs().max())
    right = [s / (4 * math.sqrt(16) * 1.8)]
    for seed, sizes in ((351, (3, 8, 8, 4)), (352, (3, 4, 4, 4, 8))):
        V, X, Y = matrices(seed, sizes), normal(seed + 2, 20, 3), torch.tanh(normal(seed + 3, 20, sizes[-1]))
        found = propagate(V, X, Y)
        B_l, factor = float(squared_u(found.p[-1], Y).norm(dim=1).max()), math.sqrt(max(sizes[1:])) * row_bound(V)
        bounds = [max(factor**m for m in range(len(V) - j + 1)) * B_l for j in range(1, len(V) + 1)]
        right += [float(m.abs().max()) / b for m, b in zip(found.s[1:], bounds, strict=True)]
    return attained(right), s / max(4 * 1.8, 1.8)


@claim(
    "Lemma 6, (3.24)",
    "|s̄_i(j)[k] − s_i(j)[k]| ≤ E_s^r ε_r + E_s^{r′} ε_{r′} + E_s^l ε_l, E_s^l = max_j (B_{r′}B_vP)^{N−j} B_{r′}",
    "corrected",
    instead="the same recursion in the 2-norm with ‖V_j‖ ≤ √k_j B_v, from ‖s̄(N) − s(N)‖₂ ≤ √d(…)",
    limit=ONE,
    threshold=4 - 1e-6,
)
def lemma_6_error() -> tuple[float, float]:
    """The counter-example with g = u + eps_l, eps_r = eps_r' = 0: |ds(1)[k]| / bound; printed E_s^l = 4."""
    V, X, eps = counterexample(), F.normalize(normal(360, 3, 16), dim=1), 1e-3  # B_x = 1: see lemma_6
    Y = torch.full((3, 16), -0.9, dtype=torch.float64)
    exact, shifted = (propagate(V, X, Y, u=lambda t, y, e=e: squared_u(t, y) + e) for e in (0.0, eps))  # type: ignore[misc]
    error = gap(exact.s[1], shifted.s[1])
    return attained([error / backward_bounds(COUNTEREXAMPLE, 1.0, eps)[1]], 1 - 1e-6), error / (4 * eps)
