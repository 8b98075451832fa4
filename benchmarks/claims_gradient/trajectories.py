"""Corollary 1.1 and Lemma 14: many steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from claims import attained, gap, normal
from claims_gradient.common import (
    N_EXAMPLES,
    ONE,
    algorithm_of,
    claim,
    compiled,
    exact_step,
    flat,
    risk_gradient,
    sample,
)


def trajectories(
    slope: Callable[[float], float], eta: float, steps: int, shift: float, box: float = math.inf
) -> tuple[list[float], list[float]]:
    """w with and without an error eta * shift in each step, from 0, one dimension, both projected."""
    exact, wrong = [0.0], [0.0]
    for _ in range(steps):
        exact.append(min(max(exact[-1] - eta * slope(exact[-1]), -box), box))
        wrong.append(min(max(wrong[-1] - eta * slope(wrong[-1]) + eta * shift, -box), box))
    return exact, wrong


def saddle_path(eta: float, steps: int, shift: float) -> Tensor:
    """Weights of r(v_2 r(v_1 x)), tanh, one example x = y = 1, from 0, each step off by eta * shift along (1, 1)/sqrt
    2.
    """
    path = [torch.zeros(2, dtype=torch.float64)]
    one = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(steps):
        slopes = risk_gradient([path[-1][:1, None], path[-1][1:, None]], one, one)
        path.append(path[-1] - eta * flat(slopes) + eta * shift / math.sqrt(2))
    return torch.stack(path)


@claim(
    "Cor. 1.1, 4.1",
    "‖w̄ˡ − w_GDˡ‖₂ ≤ L_f⁻¹(1 + nL_f)ˡ ε",
    "corrected",
    instead="L_f⁻¹((1 + ηL_f)ˡ − 1)ε, which is attained: n for η is a slip, false for η > n and far too large else",
    limit=ONE,
    threshold=100,
)
def corollary() -> tuple[float, float]:
    """Distance over bound, a two-layer network of the paper's kind with n = 1, in W = [-0.01, 0.01]^2: eta = 10, 6
    steps, eps = 1e-9; L_f is the largest of ||Hessian|| on a grid of W, and 1e-3 of it more.
    """
    eps, eta, one = 1e-9, 10.0, torch.ones(1, 1, dtype=torch.float64)
    grid = torch.cartesian_prod(*[torch.linspace(-0.01, 0.01, 5, dtype=torch.float64)] * 2)

    def risk(w: Tensor) -> Tensor:
        return ((torch.tanh(w[1] * torch.tanh(w[0] * one)) - 1) ** 2).sum() / 2

    norms = [torch.linalg.matrix_norm(torch.autograd.functional.hessian(risk, w), ord=2) for w in grid]
    L_f = 1.001 * float(torch.stack(norms).max())
    wrong, exact = saddle_path(eta, 6, eps), saddle_path(eta, 6, 0.0)
    if float(wrong.abs().max()) > 0.01:
        return math.inf, 0.0
    distances = (wrong - exact).norm(dim=1).tolist()
    right = max(d / (eps * ((1 + eta * L_f) ** step - 1) / L_f) for step, d in enumerate(distances) if step)
    return attained([right], 0.99), max(d / (eps * (1 + L_f) ** step / L_f) for step, d in enumerate(distances))


@claim(
    "Cor. 1.1, L_f",
    "L_f is the Lipschitz constant of ℒ_n",
    "corrected",
    instead="of ∇ℒ_n, as in Lemma 14: a flat but wavy risk pushes trajectories apart",
    limit=ONE,
    threshold=5.0,
)
def corollary_lipschitz() -> tuple[float, float]:
    """Distance over bound, f = 1e-3 cos(100 w): |f'| <= 0.1, |f''| <= 10; eta = 0.1, n = 1, 12 steps; printed 0.1."""
    eps = 1e-9
    exact, wrong = trajectories(lambda w: -0.1 * math.sin(100 * w), 0.1, 12, eps)
    distance = abs(exact[-1] - wrong[-1])
    return attained([distance / (eps * (2.0**12 - 1) / 10)], 0.99), distance / (eps * 1.1**12 / 0.1)


@claim(
    "Cor. 1.1, w_GD",
    "the true trajectory is w_GD^{l+1} = w_GD^l − η∇ℒ_n(w_GD^l) (before the corollary)",
    "corrected",
    instead="with Proj_W, as in Lemma 14: once W is left, the distance is not O(ε), even for ε = 0",
    limit=ONE,
    threshold=100,
)
def corollary_reference() -> tuple[float, float]:
    """Distance over the bound, f = (w - 3)^2/2, W = [-1, 1], eta = 0.1, eps = 1e-3, 20 steps; printed: unprojected."""
    projected, wrong = trajectories(lambda w: w - 3, 0.1, 20, 1e-3, box=1.0)
    free, _ = trajectories(lambda w: w - 3, 0.1, 20, 0.0)
    bounds = [1e-3 * (1.1**step - 1) for step in range(1, 21)]
    ratios = [
        [abs(a - b) / c for a, b, c in zip(path[1:], wrong[1:], bounds, strict=True)] for path in (projected, free)
    ]
    return max(ratios[0]), max(ratios[1])


def mapping_squared(slope: Callable[[float], float], eta: float, w: float, box: float) -> float:
    """||G(w)||^2 of Lemma 14, one dimension."""
    return ((w - min(max(w - eta * slope(w), -box), box)) / eta) ** 2


@claim(
    "Lemma 14, step size",
    "for η ≤ L_f: 1/L Σ ‖𝒢(w̄ˡ)‖² ≤ 8(f(0) − inf f)/(ηL) + 10ε²",
    "corrected",
    instead="for η ≤ 1/L_f, and with the sum from l = 0; then 8 and 10 are right",
    limit=1.0,
    threshold=10.0,
)
def lemma_14() -> tuple[float, float]:
    """Ratio of the sides, eta = 1/L_f: a compiled transformer with its own errors, and quadratics with errors of three
    kinds; printed: f = 5 (w - 1/2)^2 on [-1, 1], L_f = 10, eta = 5, 1000 steps from wall to wall.

    Proof: g = (w - w+)/eta of the step with its error has |G - g| <= eps and, W being convex, <grad f, g> >= |g|^2 -
    eps |g|. So f(w+) <= f(w) - eta (|g|^2 - eps |g|) + eta^2 L_f/2 |g|^2 <= f(w) - eta/4 |g|^2 + eta eps^2 for
    eta L_f <= 1. Summed over l < L, with |G|^2 <= 2 |g|^2 + 2 eps^2: 8 (f(0) - inf f)/eta + (8 + 2) L eps^2.
    """
    right = attained([descent_of_transformer(), descent_with_errors()], 0.14)
    L_f, eta, steps, box = 10.0, 5.0, 1000, 1.0

    def f(w: float) -> float:
        return 5 * (w - 0.5) ** 2

    def slope(w: float) -> float:
        return L_f * (w - 0.5)

    if max(abs((f(w + 1e-6) - f(w - 1e-6)) / 2e-6 - slope(w)) for w in (-1.0, 0.0, 1.0)) > 1e-6:
        return math.inf, 0.0
    path, _ = trajectories(slope, eta, steps, 0.0, box=box)
    if path[1:4] != [1.0, -1.0, 1.0]:  # from wall to wall
        return math.inf, 0.0
    mean = sum(mapping_squared(slope, eta, w, box) for w in path[:-1]) / steps
    return right, mean / (8 * (f(0.0) - f(0.5)) / (eta * steps))


def descent_of_transformer() -> float:
    """Logistic regression, N = 1 (||Hessian|| <= ||X||^2 / (8 n)): mean of ||G||^2 over the bound; eps measured."""
    X, _, query = sample(470, (3, 1))
    y = (normal(471, N_EXAMPLES, 1) > 0).double()
    eta = 8 * N_EXAMPLES / float(torch.linalg.matrix_norm(X, ord=2)) ** 2
    tf = compiled((3, 1), loss="logistic", lr=eta, steps=30, box=0.5, epsilon=0.05, output="linear")
    weights = tf.run(X, y, query, w0=torch.zeros(3, dtype=torch.float64)).weights
    steps = [exact_step(tf, w, X, y) for w in weights[:-1]]
    eps = max(float((a - b).norm()) for a, b in zip(weights[1:], steps, strict=True)) / eta
    mean = sum(float((w - step).norm() / eta) ** 2 for w, step in zip(weights[:-1], steps, strict=True)) / 30
    long = compiled((3, 1), loss="logistic", lr=eta, steps=500, box=0.5, epsilon=0.05, output="linear")
    lowest = ig.reference(long.algorithm, X, y, query, w0=weights[0]).weights[-1]  # convex: the minimum
    fall = float(algorithm_of(tf).risk(weights[0], X, y) - algorithm_of(tf).risk(lowest, X, y))
    return mean / (8 * fall / (eta * 30) + 10 * eps**2)


def descent_with_errors() -> float:
    """Quadratics in a box with errors of size eta eps: random, away from the minimum, and along the path."""
    worst = 0.0
    for seed, kind in itertools.product(range(3), ("random", "outwards", "along")):
        A = normal(480 + seed, 4, 4)
        H, target, box = A @ A.T, normal(490 + seed, 4), 0.5
        eta, eps, w = 1 / float(torch.linalg.matrix_norm(H, ord=2)), 0.3, torch.zeros(4, dtype=torch.float64)
        best = w
        for _ in range(5000):
            best = (best - eta * H @ (best - target)).clamp(-box, box)
        fall = float(target @ H @ target - (best - target) @ H @ (best - target)) / 2
        total = 0.0
        for done in range(60):
            step = (w - eta * H @ (w - target)).clamp(-box, box)
            total += float((w - step).norm() / eta) ** 2
            push = {"random": normal(500 + done, 4), "outwards": w - best, "along": step - w}[kind]
            w = (w - eta * H @ (w - target) + eta * eps * F.normalize(push, dim=0)).clamp(-box, box)
            worst = max(worst, total / (done + 1) / (8 * fall / (eta * (done + 1)) + 10 * eps**2))
    return worst


@claim(
    "Lemma 14, sum",
    "min_{l ∈ [L−1]} ‖𝒢‖² ≤ 1/L Σ_{l=1}^{L−1} ‖𝒢‖², for all L ≥ 1",
    "corrected",
    instead="over l = 0, …, L−1: as printed L−1 terms are divided by L, and for L = 1 there is none",
    limit=ONE,
    threshold=1.9,
)
def lemma_14_sum() -> tuple[float, float]:
    """Ratio of the sides for f = -w far from the walls (||G|| = 1 always), L = 2."""
    path, _ = trajectories(lambda w: -1.0, 0.1, 2, 0.0, box=10.0)
    G = [mapping_squared(lambda w: -1.0, 0.1, w, 10.0) for w in path]
    if gap(path, [0.0, 0.1, 0.2]) > 1e-12 or gap(G, [1.0, 1.0, 1.0]) > 1e-9:
        return math.inf, 0.0
    return attained([min(G[:2]) / (sum(G[:2]) / 2)]), min(G[1:2]) / (sum(G[1:2]) / 2)
