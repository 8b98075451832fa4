"""Section 4: resources."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from claims import gap, normal
from claims_general.common import (
    claim,
    matrices,
    solve,
    zeros,
)


@claim(
    "Lemma 1",
    "a ball’s indicator needs 2-layer width exp(c d): for the unit ball, hence for any A, b, r",
    "cited",
    limit=1e-12,
)
def lemma_1() -> float:
    """Only the last step: x = A^-1 (r z - b) takes two-layer networks to such of the same width, and balls to balls."""
    A, b, r, Z = normal(70, 3, 3), normal(71, 3), 1.7, normal(72, 3, 4000)
    W, c, u = normal(73, 6, 3), normal(74, 6), normal(75, 6)
    X = torch.linalg.solve(A, r * Z - b[:, None])
    moved = u @ torch.tanh(W @ (A @ X + b[:, None]) / r + c[:, None])
    loss = [((Z.norm(dim=0) <= 1).double() - u @ torch.tanh(W @ Z + c[:, None])).square().mean()]
    loss.append((((A @ X + b[:, None]).norm(dim=0) <= r).double() - moved).square().mean())
    return gap(loss[0], loss[1])


def ball_error(d: int, delta: float) -> float:
    """Three layers of ReLU: x_i^2 piecewise linear, then a ramp of two units; width 8 d^2/delta; x ~ N(0, I/d)."""
    knots = int(8 * d**2 / delta) // d
    grid = np.linspace(-4, 4, knots)
    X = np.random.default_rng(76).normal(size=(20_000, d)) / math.sqrt(d)
    total = np.interp(X, grid, grid**2).sum(1)
    ramp = np.clip((1 + 1e-6 - total) / 1e-6, 0, 1)
    return float(((ramp - (np.linalg.norm(X, axis=1) <= 1)) ** 2).mean())


def shell_error(width: int) -> float:
    """Lower bound of the squared error of the disc's indicator, of all such networks, on a thin shell about the circle.

    A ReLU network with two hidden layers has at most 2 w (2 w + 1) pieces along the circle. Pieces shorter than a tenth
    of the mean make up a tenth of the circle at most. On a piece of length l, in coordinates along it (l p) and across
    (s rho), affine functions are spanned by 1, p, s rho - (l p)^2 / 2; longer pieces are worse.
    """
    arc = 0.1 * 2 * math.pi / (2 * width * (2 * width + 1))
    s = 1e-3 * arc**2
    p, rho = torch.cartesian_prod(*[torch.linspace(-1, 1, 120, dtype=torch.float64)] * 2).T
    affine = torch.stack([torch.ones_like(p), p, (s * rho - (arc * p / 2) ** 2 / 2) / arc**2], dim=1)
    inside = (rho < 0).double()
    return 0.9 * float((inside - affine @ solve(affine, inside)).square().mean())


@claim(
    "Lemma 2",
    "3-layer networks of width max(8 c_σ d²/σ, c_σ √(1/2δ)) reach error δ for the ball, for any continuous law μ of x",
    "corrected",
    instead="8 c_σ d²/δ (here for N(0, I/d)), and not for every μ: no width serves all thin shells about the sphere",
    limit=1.0,
    threshold=2.0,
)
def lemma_2() -> tuple[float, float]:
    """Error / delta of explicit networks with c_sigma = 1; printed: for shells, d = 2, delta = 0.1, c = 1 to 100."""
    right = max(ball_error(d, delta) / delta for d in (2, 5) for delta in (0.1, 0.01, 0.001))
    return right, min(shell_error(int(c * 8 * 4 / 0.1)) for c in (1, 10, 100)) / 0.1


def exponent(cost: Callable[[float], float], small: float = 1e-6) -> float:
    """-d log cost / d log epsilon, between epsilon and epsilon / 10."""
    return math.log10(cost(small / 10) / cost(small))


@claim(
    "Theorem 3",
    "with 3 layers of width O(ε⁻¹) the transformer needs O(ε⁻¹) parameter matrices",
    "corrected",
    instead="K² = O(ε⁻²) at fixed d; in Lemma 1, ε = c₂/d⁴: width 8cd²/ε, O(ε⁻³). Lemma 1 gives Ω, not O, for TF_A",
    limit=0.05,
    threshold=0.9,
)
def theorem_3() -> tuple[float, float]:
    """Exponents of layers times heads, parameters counted."""
    fixed = exponent(lambda eps: matrices(3, round(1 / eps), 10))
    coupled = exponent(lambda eps: matrices(3, round(8 * eps**-1.5), round(eps**-0.25)), 1e-8)
    return max(abs(fixed - 2), abs(coupled - 3)), min(fixed, coupled) - 1


@claim(
    "Theorem 3, proof",
    "the number of transformer layers is O(nK²), layers × heads O(n²K²)",
    "corrected",
    instead="layers O(n²), heads O(nK²), so O(n³K²), the one that Theorem 4 uses",
    limit=0.05,
    threshold=0.9,
)
def theorem_3_proof() -> tuple[float, float]:
    """Exponent of n in layers times heads, counted, n from 400 to 800; printed: how far it is from 2."""
    found = math.log2(matrices(800, 30, 30) / matrices(400, 30, 30))
    return abs(found - 3), found - 2


@claim(
    "Lemma 3",
    "ReLU networks of depth O(ln 1/ε) express smooth functions (F_{d,n}: the unit ball of W^{n,∞}) with few units",
    "cited",
    limit=1e-12,
)
def lemma_3() -> float:
    """The step that makes it so: x^2 by m layers of three units, to exactly 4^-(m+1); relative."""
    x = torch.linspace(0, 1, 2**14 + 1, dtype=torch.float64)
    saw, found, errors = x, x, []
    for m in range(1, 7):
        saw = 2 * torch.relu(saw) - 4 * torch.relu(saw - 0.5) + 2 * torch.relu(saw - 1)
        found = found - saw / 4**m
        errors.append(abs(gap(found, x**2) * 4.0 ** (m + 1) - 1))
    return max(errors)


def pieces(weights: Sequence[tuple[Tensor, Tensor]]) -> int:
    """Linear pieces on [0, 1] of a ReLU network in one variable, from the slopes between points of a fine grid."""
    x = torch.linspace(0, 1, 40_001, dtype=torch.float64)
    p = x[:, None]
    for i, (W, b) in enumerate(weights):
        p = F.linear(torch.relu(p) if i else p, W, b)
    bends = (p[2:, 0] - 2 * p[1:-1, 0] + p[:-2, 0]).abs() > 1e-9
    return 1 + int((bends[1:] & ~bends[:-1]).sum()) + int(bends[0])


def zigzag(k: int, hidden: int) -> list[tuple[Tensor, Tensor]]:
    """k units a layer, k pieces up and down between 0 and 1, composed."""
    steps = torch.arange(k, dtype=torch.float64)
    read = k * torch.where(steps == 0, 1.0, 2 * (-1.0) ** steps).double()
    bias, ones = -steps / k, torch.ones(k, 1, dtype=torch.float64)
    inner = [(ones @ read[None], bias)] * (hidden - 1)
    return [(ones, bias), *inner, (read[None], zeros(1))]


@claim(
    "Lemma 4",
    "depth-L ReLU networks need at least c ε^{-1/(2(L−1))} units for a nonlinear C² function (L as in Def. 4)",
    "cited",
    limit=1e-9,
)
def lemma_4() -> float:
    """x^2: m pieces are off by 1/(8 m^2) at best; L - 1 hidden layers of k units have k^(L-1) to (k+1)^(L-1) at best.

    Pieces counted; the distance of the exponent of epsilon = 1/(8 pieces^2) in the units from -2 (L - 1).
    """
    x = np.linspace(0, 1, 4001)
    for m in (1, 2, 5):
        edges = np.linspace(0, 1, m + 1)
        best = np.interp(x, edges, edges**2 - 1 / (8 * m**2))
        if abs(np.abs(best - x**2).max() * 8 * m**2 - 1) > 1e-6:
            return math.inf
    worst = 0.0
    for hidden in (1, 2, 3):
        for seed in range(3):
            shapes = [(5, 1), *[(5, 5)] * (hidden - 1), (1, 5)]
            if (
                pieces([(3 * normal(80 + seed + i, *s), normal(90 + seed + i, s[0])) for i, s in enumerate(shapes)])
                > 6**hidden
            ):
                return math.inf
        units = [k * hidden for k in (2, 4, 8)]
        error = [1 / (8 * pieces(zigzag(k, hidden)) ** 2) for k in (2, 4, 8)]
        slopes = np.diff(np.log(error)) / np.diff(np.log(units))
        worst = max(worst, float(np.abs(slopes + 2 * hidden).max()))
    return worst


@claim(
    "Theorem 4",
    "if 2(L−1)d < n, the deep narrow network costs the transformer less: O(ln(1/ε)³ ε^{-2d/n}) against O(ε^{-1/(L−1)})",
    "partly",
    instead="as ε → 0, with Ω(ε^{-1/(L−1)}), Lemma 4 being a lower bound; of a given ε the unknown constants decide",
    limit=0.0,
)
def theorem_4() -> float:
    """Comparisons of layers times heads that the condition gets wrong, whatever the constants, at ln 1/eps = 1e5.

    ln of layers times heads of n layers, K wide: ln of n^3 K^2, which is what the counts come to (Theorem 3, proof).
    """

    def log_cost(log_layers: float, log_width: float) -> float:
        return 3 * log_layers + 2 * log_width

    if abs(log_cost(math.log(400), math.log(40)) - math.log(2 * matrices(400, 40, 40))) > 0.02:
        return math.inf
    wrong, log = 0, 1e5
    for d, n, L, constant in itertools.product(range(1, 5), range(3, 40), range(2, 6), (1e-9, 1.0, 1e9)):
        deep, shallow = log_cost(math.log(log + 1), d / n * log), log_cost(math.log(L), log / (2 * (L - 1)))
        if 2 * (L - 1) * d != n:
            wrong += (deep + math.log(constant) < shallow) != (2 * (L - 1) * d < n)
    return float(wrong)
