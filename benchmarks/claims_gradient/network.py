"""Sections 3.1 and 3.2: the network and its gradient."""

from __future__ import annotations

import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

import innergrad as ig
from claims import attained, gap, normal
from claims_gradient.common import (
    N_EXAMPLES,
    ONE,
    SOFTPLUS_LOG_COSH,
    algorithm_of,
    claim,
    compiled,
    flat,
    gradient_bound,
    gradient_distance,
    kronecker_gradient,
    matrices,
    propagate,
    risk_gradient,
    sample,
    unit_errors,
)
from innergrad.functions import ACTIVATIONS, approximate


@claim(
    "Def. 1, (3.1)-(3.3), Remark 1",
    "p_i(j) = r(V_j p_i(j−1)); w lists the rows, 2dK + (N−2)K²",
    "definition",
    limit=1e-12,
)
def definition_1() -> float:
    """torch.nn against propagate and against the library's network, d = 3, K = 4, N = 3."""
    sizes, (X, _, _) = (3, 4, 4, 3), sample(60)
    V = matrices(61, sizes)
    modules: list[nn.Module] = []
    for matrix in V:
        linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=False, dtype=torch.float64)
        linear.weight.data = matrix
        modules += [linear, nn.Tanh()]
    network = ig.Network(sizes, "tanh", output="activation", bias=False)
    wanted = nn.Sequential(*modules)(X)
    count = abs(network.n_weights - (2 * 3 * 4 + 4 * 4)) + abs(len(flat(V)) - network.n_weights)
    return max(gap(propagate(V, X, X).p[-1], wanted), gap(network.forward(flat(V), X), wanted), count)


@claim(
    "(3.1), output",
    "the output layer has the activation too, pred_o = r(v_Nᵀ pred_h)",
    "partly",
    instead="as a definition it is sound; but then labels outside the range of r cannot be fitted. A linear output "
    "costs two heads an output, exactly",
    limit=1e-3,
    threshold=4.0,
)
def linear_output() -> tuple[float, float]:
    """Mean squared error after 400 steps, labels 3: linear output (inf if not two heads each); printed: tanh."""
    X, _, query = sample(70)
    y = torch.full((N_EXAMPLES, 2), 3.0, dtype=torch.float64)
    found = []
    tf = compiled((3, 4, 2), lr=0.2, steps=400, output="linear")
    w = ig.reference(tf.algorithm, X, y, query, w0=flat(matrices(71, (3, 4, 2)))).weights[-1]
    found.append(float(((algorithm_of(tf).network.forward(w, X) - y) ** 2).mean()))
    V = matrices(71, (3, 4, 2))
    for _ in range(400):
        V = [matrix - 0.2 * slope for matrix, slope in zip(V, risk_gradient(V, X, y), strict=True)]
    found.append(float(((propagate(V, X, y).p[-1] - y) ** 2).mean()))
    heads = next(row.heads for row in tf.cost().rows if row.name == "forward 2")
    return (found[0] if heads == 2 * 2 else math.inf), found[1]


@claim(
    "(3.4)",
    "W ⊂ {‖v_jk‖₂ ≤ B_v} for j ∈ [N−1], k ∈ [K] (and Theorem 1 with this W)",
    "corrected",
    instead="j ∈ [N], k ∈ [k_j], as Lemmas 2 to 6 have it: an output layer without bound multiplies the errors "
    "below it",
    limit=ONE,
    threshold=50,
)
def eq_3_4() -> tuple[float, float]:
    """Error of the gradient over its bound for rows of norm 1, softplus, log-cosh, r and r' off by 1e-4, N = 2: random
    rows of norm 1 in both layers, and :func:`unit_errors`; printed: the same with the output layer times 1000.
    """
    right: list[float] = []
    printed: list[float] = []
    eps = 1e-4
    for seed in range(80, 90):
        V = [F.normalize(matrix.abs(), dim=1) for matrix in matrices(seed, (3, 4, 2))]
        x, y = F.normalize(normal(seed, 1, 3).abs(), dim=1), -normal(seed + 40, 1, 2).abs()
        bound = gradient_bound(V, 1.0, 0.0, eps, eps, SOFTPLUS_LOG_COSH)
        for found, factor in ((right, 1.0), (printed, 1000.0)):
            exact, shifted = (
                propagate([V[0], factor * V[1]], x, y, r, dr, lambda t, y: torch.tanh(t - y))
                for r, dr in (
                    (F.softplus, torch.sigmoid),
                    (lambda t: F.softplus(t) + eps, lambda t: torch.sigmoid(t) + eps),
                )
            )
            found.append(gradient_distance(exact, shifted) / bound)
    return max(attained(right, 0.2), attained([unit_errors()], 1 - 1e-4)), min(printed)


@claim(
    "Remark 2",
    "a bounded domain W is needed to approximate functions like r by sums of ReLUs",
    "partly",
    instead="for r such as sin; not if r has linear asymptotes (tanh, softplus, gelu, … and r′): one sum of ReLUs is "
    "within ε on all of ℝ. Theorem 1 needs W for another reason: weights multiply the errors (see (3.4))",
    limit=ONE,
    threshold=1e3,
)
def remark_2() -> tuple[float, float]:
    """Error / eps on a grid to +-1e6; printed: the range with error below eps, over R_1 = 1."""
    far = torch.logspace(-3, 6, 20_001, dtype=torch.float64)
    t = torch.cat([-far.flip(0), torch.zeros(1, dtype=torch.float64), far])
    worst, reach = 0.0, math.inf
    for name in ("tanh", "softplus", "gelu"):
        for f in (ACTIVATIONS[name].r, ACTIVATIONS[name].dr):
            error = (approximate(f, 1e-2)(t) - f(t)).abs()
            worst = max(worst, float(error.max()) / 1e-2)
            reach = min(reach, float(t[error <= 1e-2].abs().max()))
    return attained([worst], 0.99), reach


@claim(
    "Def. 2",
    "D_j, A_i(j) = ϕ_i[D_{j−1} : D_j], V_j, R_i(j) (from D_{j−1} + 1 on, or neighbours share an entry; r′_i(N−1) has d "
    "entries, not K)",
    "definition",
    limit=1e-12,
)
def definition_2() -> float:
    """Slices of the autograd gradient of one example by D_j, against s_i(j) p_i(j-1)^T; d = 3, K = 5, N = 4."""
    d, K, N = 3, 5, 4
    D = [0, d * K, d * K + K * K, d * K + 2 * K * K, 2 * d * K + (N - 2) * K * K]
    sizes = (d, K, K, K, d)
    V, X, Y = matrices(90, sizes), normal(91, 1, d), normal(92, 1, d)
    phi = 2 * flat(risk_gradient(V, X, Y))
    found = propagate(V, X, Y)
    parts = [(found.s[j].T @ found.p[j - 1]).flatten() for j in range(1, N + 1)]
    if [len(part) for part in parts] != [b - a for a, b in itertools.pairwise(D)]:
        return math.inf
    return max(gap(phi[D[j] : D[j + 1]], parts[j]) for j in range(N))


@claim(
    "Lemma 1, 8, (3.6)", "∇ℒ_n = 1/(2n) Σ_i [A_i(1); …; A_i(N)], A_i(j) = (R(N−1)V_N⋯R(j−1)[I ⊗ pᵀ])ᵀ∂ℓᵀ", limit=1e-12
)
def lemma_1() -> float:
    """Against autograd, for three networks."""
    found = []
    for seed, sizes in ((100, (3, 4, 3)), (101, (3, 4, 4, 3)), (102, (2, 5, 5, 5, 2))):
        V, X, Y = matrices(seed, sizes), normal(seed + 3, 5, sizes[0]), normal(seed + 4, 5, sizes[-1])
        found.append(gap(kronecker_gradient(V, X, Y, 5), flat(risk_gradient(V, X, Y))))
    return max(found)


@claim(
    "Lemma 1, sketch",
    "∇ℒ_n = 1/(2n) Σ_{i=1}^N [∂p_i(N)/∂w]ᵀ[∂ℓ/∂p_i(N)]ᵀ",
    "corrected",
    instead="Σ_{i=1}^n: over the examples, not over the layers",
    limit=1e-12,
    threshold=1e-2,
)
def lemma_1_sketch() -> tuple[float, float]:
    V, X, Y = matrices(110), normal(111, 6, 3), normal(112, 6, 2)
    wanted = flat(risk_gradient(V, X, Y))
    return gap(kronecker_gradient(V, X, Y, 6), wanted), gap(kronecker_gradient(V, X, Y, 3), wanted)


@claim("Def. 3, (3.7)", "s_i(j) = r′_i(j−1) ⊙ (V_{j+1}ᵀ s_i(j+1)) (for i ∈ [n+1]; [N+1] is a slip)", limit=1e-12)
def eq_3_7() -> float:
    """The recursion against the products of Definition 3, and against autograd in the pre-activations."""
    V, X, Y = matrices(120), normal(121, 5, 3), normal(122, 5, 2)
    found = propagate(V, X, Y)
    worst = [gap(found.s[j], found.d[j - 1] * (found.s[j + 1] @ V[j])) for j in (1, 2)]
    z = (X @ V[0].T).requires_grad_(True)
    loss = ((torch.tanh(torch.tanh(torch.tanh(z) @ V[1].T) @ V[2].T) - Y) ** 2).sum()
    (slope,) = torch.autograd.grad(loss, z)
    return max(*worst, gap(slope, found.s[1]))


@claim("(3.8)", "A_i(j) = [I_{K×K} ⊗ p_i(j−1)] s_i(j)", limit=1e-12)
def eq_3_8() -> float:
    """Against autograd, one example."""
    V, X, Y = matrices(130), normal(131, 1, 3), normal(132, 1, 2)
    found, slopes = propagate(V, X, Y), risk_gradient(V, X, Y)
    parts = [
        torch.kron(torch.eye(len(V[j - 1]), dtype=torch.float64), found.p[j - 1][0][:, None]) @ found.s[j][0]
        for j in (1, 2, 3)
    ]
    return gap(torch.cat(parts), 2 * flat(slopes))
