"""What the checks share: the layers under test, networks, samples, references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import innergrad as ig
from claims import Paper, normal
from innergrad.functions import PiecewiseLinear
from innergrad.ir.stream import State
from innergrad.transformer import CompiledTransformer

PAPER = Paper(
    "001",
    "*Transformers are Deep Optimizers: Provable In-Context Learning for Deep Model Training* (the version under "
    "review), main text and Appendices A-E",
)


claim = PAPER.claim


# Functions that make what a statement is tried on; no mutants of these.
CASES = (
    "algorithm_of",
    "compiled",
    "counterexample",
    "matrices",
    "sample",
)


Scalar = Callable[[Tensor], Tensor]


ONE = 1 + 1e-9  # limit of a ratio that can be 1, with rounding


SIZES = (3, 4, 4, 2)  # d_x, K, K, d_y: N = 3


N_EXAMPLES = 6


@lru_cache(maxsize=64)
def compiled(
    sizes: tuple[int, ...] = SIZES,
    activation: str = "tanh",
    loss: str = "squared",
    *,
    lr: float = 0.5,
    steps: int = 1,
    box: float | None = 4.0,
    epsilon: float = 1e-2,
    output: str = "activation",
    n: int = N_EXAMPLES,
) -> CompiledTransformer:
    """The construction of Theorem 1, for networks without biases."""
    network = ig.Network(sizes, activation, output="linear" if output == "linear" else "activation", bias=False)
    algorithm = ig.GradientDescent(network, loss, lr=lr, steps=steps, box=box)
    return ig.compile(algorithm, target="relu", epsilon=epsilon, n_examples=n)


def algorithm_of(tf: CompiledTransformer) -> ig.GradientDescent:
    assert isinstance(tf.algorithm, ig.GradientDescent)
    return tf.algorithm


def sample(seed: int, sizes: tuple[int, ...] = SIZES, n: int = N_EXAMPLES) -> tuple[Tensor, Tensor, Tensor]:
    """X, y in the range of tanh, and a query."""
    return normal(seed, n, sizes[0]), 0.5 * torch.tanh(normal(seed + 1, n, sizes[-1])), normal(seed + 2, 1, sizes[0])


def matrices(seed: int, sizes: tuple[int, ...] = SIZES, scale: float = 1.0) -> list[Tensor]:
    """V_1, ..., V_N with entries of variance scale^2 / fan_in."""
    pairs = itertools.pairwise(sizes)
    return [scale * normal(seed + 50 * j, k, c) / math.sqrt(c) for j, (c, k) in enumerate(pairs)]


def flat(V: list[Tensor]) -> Tensor:
    """(3.2): w."""
    return torch.cat([matrix.flatten() for matrix in V])


def tanh_prime(t: Tensor) -> Tensor:
    return 1 - torch.tanh(t) ** 2


def squared_u(t: Tensor, y: Tensor) -> Tensor:
    return 2 * (t - y)


@dataclass(frozen=True)
class Pass:
    """Definitions 1-3 for all tokens: p[j] = p_i(j), d[j] = r'_i(j), s[j] = s_i(j) (s[0] is empty), rows are tokens."""

    p: list[Tensor]
    d: list[Tensor]
    s: list[Tensor]


def propagate(
    V: list[Tensor],
    X: Tensor,
    Y: Tensor,
    r: Scalar = torch.tanh,
    dr: Scalar = tanh_prime,
    u: Callable[[Tensor, Tensor], Tensor] = squared_u,
) -> Pass:
    """Forward pass, and the products of Definition 3, each written out from R_i(N - 1) u downwards."""
    p, d = [X], []
    for matrix in V:
        z = p[-1] @ matrix.T
        d.append(dr(z))
        p.append(r(z))
    N = len(V)
    s = [X.new_zeros(0)]
    for j in range(1, N + 1):
        columns = []
        for i in range(len(X)):
            product = torch.diag(d[j - 1][i])
            for m in range(j, N):  # R_i(j-1) V_{j+1}^T R_i(j) .. V_N^T R_i(N-1)
                product = product @ V[m].T @ torch.diag(d[m][i])
            columns.append(product @ u(p[N][i], Y[i]))
        s.append(torch.stack(columns))
    return Pass(p, d, s)


def risk_gradient(V: list[Tensor], X: Tensor, Y: Tensor, r: Scalar = torch.tanh) -> list[Tensor]:
    """Autograd on (2.2) with the squared loss."""
    leaves = [matrix.clone().requires_grad_(True) for matrix in V]
    p = X
    for matrix in leaves:
        p = r(p @ matrix.T)
    return list(torch.autograd.grad(((p - Y) ** 2).sum() / (2 * len(X)), leaves))


def exact_step(tf: CompiledTransformer, w: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Proj(w - lr grad L(w)) by autograd."""
    algorithm = algorithm_of(tf)
    leaf = w.detach().clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(algorithm.risk(leaf, X, y), leaf)
    moved = w - algorithm.lr * slope
    return moved if algorithm.box is None else moved.clamp(-algorithm.box, algorithm.box)


def lanes(tf: CompiledTransformer, seed: int, V: list[Tensor], *, dense: bool = False) -> dict[str, State]:
    """Lanes after each layer of the first step, by the layer's name."""
    X, y, query = sample(seed, algorithm_of(tf).network.sizes)
    trace = tf.trace(X, y, query, w0=flat(V), executor="dense" if dense else "plain")
    return dict(reversed(trace))  # of repeated names the first


def block(tf: CompiledTransformer) -> list[Any]:
    """The 2N + 4 layers of one step."""
    return list(itertools.islice(tf.module.layers(), tf.n_layers // algorithm_of(tf).steps))


def columns(tf: CompiledTransformer, lane: str) -> slice:
    stream = tf.program.stream
    return slice(stream.offsets[lane], stream.offsets[lane] + stream[lane].size)


def scratch(tf: CompiledTransformer) -> list[slice]:
    return [columns(tf, lane.name) for lane in tf.program.stream.lanes if lane.role == "scratch"]


def total_weight(f: object) -> float:
    """C of Definition 4: the sum of |c_m|."""
    assert isinstance(f, PiecewiseLinear)
    return float(abs(f.hinges[:, 2]).sum())


def row_bound(V: list[Tensor]) -> float:
    """B_v: the largest norm of a row."""
    return max(float(matrix.norm(dim=1).max()) for matrix in V)


def forward_bound(j: int, sizes: tuple[int, ...], lipschitz: float, B_v: float) -> float:
    """(3.9), the factor of eps_r."""
    K = sizes[1]
    return sum((math.sqrt(K) * lipschitz * B_v) ** i for i in range(j)) * math.sqrt(sizes[j])


def jacobian(y: Tensor, x: Tensor) -> Tensor:
    """dy/dx by autograd, (entries of y, entries of x)."""
    return torch.stack([torch.autograd.grad(entry, x, retain_graph=True)[0] for entry in y])


def attend(H: Tensor, heads: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The vector form of Definition 7; H (D, T), heads (Q, K, V)."""
    out, T = H.clone(), H.shape[1]
    for i, s in itertools.product(range(T), range(T)):
        for Q, K, V in heads:
            out[:, i] += torch.relu((Q @ H[:, i]) @ (K @ H[:, s])) * (V @ H[:, s]) / T
    return out


def kronecker_gradient(V: list[Tensor], X: Tensor, Y: Tensor, examples: int) -> Tensor:
    """(3.6) as printed, the sum over the first ``examples`` tokens."""
    found, N = propagate(V, X, Y), len(V)
    total = torch.zeros(sum(matrix.numel() for matrix in V), dtype=torch.float64)
    for i in range(examples):
        parts = []
        for j in range(1, N + 1):
            left = torch.diag(found.d[N - 1][i])
            for m in range(N - 1, j - 1, -1):  # R(N-1) V_N R(N-2) .. R(j-1)
                left = left @ V[m] @ torch.diag(found.d[m - 1][i])
            p = found.p[j - 1][i]
            kron = torch.kron(torch.eye(len(V[j - 1]), dtype=torch.float64), p[None])
            parts.append((left @ kron).T @ squared_u(found.p[N][i], Y[i]))
        total += torch.cat(parts)
    return total / (2 * len(X))


def ring(omega: float, r: Tensor) -> Tensor:
    """cos(omega r) / omega^2 on 0.2 < r < 0.8, with smooth ends: a wave in all directions at once."""
    t = ((r - 0.5) / 0.3).clamp(-1 + 1e-9, 1 - 1e-9)
    return torch.exp(1 - 1 / (1 - t * t)) * torch.cos(omega * r) / omega**2


def derivatives(omega: float) -> list[float]:
    """L_0, ..., L_3 of ring(|x|): of entries of its derivatives, by those in r."""
    r = torch.linspace(0.2, 0.8, int(400 * omega) + 1, dtype=torch.float64)
    found, step = [ring(omega, r)], float(r[1] - r[0])
    for _ in range(3):
        found.append(torch.gradient(found[-1], spacing=step)[0])
    first, second = (found[1] / r), (found[2] - found[1] / r) / r
    sizes = [found[0], found[1], torch.maximum(found[2].abs(), first.abs()), found[3].abs() + 3 * second.abs()]
    return [float(size.abs().max()) for size in sizes]


def aligned(N: int) -> tuple[Pass, Pass, float]:
    """Passes of a network with r = 3t and of one with r = 3t + eps, eps = 1e-3, where all errors add: rows (1/2, ..,
    1/2), K = 4, d = 1; and eps.
    """
    V = [torch.full((4, 4), 0.5, dtype=torch.float64)] * (N - 1) + [torch.full((1, 4), 0.5, dtype=torch.float64)]
    X, Y, eps = normal(150, 5, 4), torch.zeros(5, 1, dtype=torch.float64), 1e-3
    exact, shifted = (
        propagate(V, X, Y, lambda t, e=e: 3 * t + e, torch.ones_like, lambda t, y: t - y)  # type: ignore[misc]
        for e in (0.0, eps)
    )
    return exact, shifted, eps


def norm_1(matrix: Tensor) -> float:
    """The operator norm of l1: the largest column sum."""
    return float(torch.linalg.matrix_norm(matrix, ord=1))


def counterexample() -> list[Tensor]:
    V2 = torch.zeros(16, 16, dtype=torch.float64)
    V2[:, 0] = 1.0
    return [torch.zeros(16, 16, dtype=torch.float64), V2]


@dataclass(frozen=True)
class Smooth:
    """What the bound needs of r and ℓ: |r'| <= 1 always, |r''| <= bend; |r| <= sup, or |r(0)| where there is none.

    u: sup |u(t, y)| for |t| <= 1, |y| <= B_y, less 2 B_y if ``grows``; slope: of u in t.
    """

    bend: float
    sup: float
    zero: float
    u: float
    grows: bool
    slope: float


TANH_SQUARED = Smooth(4 / (3 * math.sqrt(3)), 1.0, 0.0, 2.0, True, 2.0)


SOFTPLUS_LOG_COSH = Smooth(0.25, math.inf, math.log(2), 1.0, False, 1.0)


def gradient_bound(
    V: list[Tensor], B_x: float, B_y: float, eps: float, eps_prime: float, of: Smooth = TANH_SQUARED
) -> float:
    """Theorem 1's error in the 2-norm: ||grad^ - grad||_2 is at most this.

    e_j = sqrt(k_j) eps + O_j e_{j-1}, O_j = ||V_j||;  d_j = eps' + L_r' B_v e_{j-1};
    S_j = (1 + max d) O_{j+1} S_{j+1} bounds s^ and s;  D_j = O_{j+1} (d_j S_{j+1} + D_{j+1}) bounds s^ - s;
    the result is 1/2 sqrt(sum_j (D_j b_{j-1} + S_j e_{j-1})^2), b_j the bound of p^(j), b_0 = B_x.
    """
    N = len(V)
    norms = [float(torch.linalg.matrix_norm(matrix, ord=2)) for matrix in V]
    roots = [math.sqrt(len(matrix)) for matrix in V]
    e, b, d = [0.0], [B_x], []
    for j in range(N):
        d.append(eps_prime + of.bend * float(V[j].norm(dim=1).max()) * e[-1])
        e.append(roots[j] * eps + norms[j] * e[-1])
        b.append(roots[j] * (min(of.sup, of.zero + norms[j] * b[-1]) + eps))
    u = roots[-1] * (of.u + (of.slope * (eps + B_y) if of.grows else 0.0))  # ||g||_2
    S, D = [0.0] * N, [0.0] * N
    S[-1], D[-1] = (1 + max(d)) * u, d[-1] * u + of.slope * e[-1]
    for j in range(N - 2, -1, -1):
        S[j], D[j] = (1 + max(d)) * norms[j + 1] * S[j + 1], norms[j + 1] * (d[j] * S[j + 1] + D[j + 1])
    return 0.5 * math.sqrt(sum((D[j] * b[j] + S[j] * e[j]) ** 2 for j in range(N)))


def gradient_distance(a: Pass, b: Pass) -> float:
    """||grad^ - grad||_2 of one example, from what both passes found."""
    parts = [(of.s[j].T @ of.p[j - 1]).flatten() for of in (a, b) for j in range(1, len(of.s))]
    half = len(parts) // 2
    return float((torch.cat(parts[half:]) - torch.cat(parts[:half])).norm()) / 2


def unit_errors(N: int = 3) -> float:
    """||grad^ - grad|| / gradient_bound in a network of width 1 in which every step of the bound is attained, but for
    terms in eps^2: V_j = 1, x = 1, y = -1/2, r(t) = t + 0.35 (t - 1)^2, r and r' off by eps and 2 eps.
    """
    eps, eps_prime, one = 1e-7, 2e-7, torch.ones(1, 1, dtype=torch.float64)
    of = Smooth(bend=0.7, sup=math.inf, zero=0.0, u=2.0 + 1e-5, grows=True, slope=2.0)  # |t| is 1 and a few eps
    exact, shifted = (
        propagate(
            [one] * N,
            one,
            -one / 2,
            lambda t, e=e: t + 0.35 * (t - 1) ** 2 + e * eps,  # type: ignore[misc]
            lambda t, e=e: 1 + 0.7 * (t - 1) + e * eps_prime,  # type: ignore[misc]
        )
        for e in (0, 1)
    )
    return gradient_distance(exact, shifted) / gradient_bound([one] * N, 1.0, 0.5, eps, eps_prime, of)


def aligned_errors(sizes: tuple[int, ...] = (3, 4, 4, 4)) -> float:
    """||grad^ - grad|| / gradient_bound where r and r' are off by +eps everywhere."""
    eps, x = 1e-4, torch.full((1, sizes[0]), 1e-2, dtype=torch.float64)
    y = torch.full((1, sizes[-1]), -0.9, dtype=torch.float64)
    V = [torch.full((k, c), 0.3, dtype=torch.float64) for c, k in itertools.pairwise(sizes)]
    exact = propagate(V, x, y)
    shifted = propagate(V, x, y, lambda t: torch.tanh(t) + eps, lambda t: tanh_prime(t) + eps)
    return gradient_distance(exact, shifted) / gradient_bound(V, float(x.norm()), 0.9, eps, eps)
