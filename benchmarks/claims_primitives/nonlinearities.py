"""Appendix C: the nonlinearities."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from claims import gap, normal
from claims_primitives.common import (
    BYPASS,
    PAD,
    claim,
    erf_gelu,
    normalised,
    zeros,
)


@claim("Lemma 4, (36)", "√(π/2)(GeLU(x+y) − GeLU(x) − GeLU(y)) = xy + O(|x|³ + |y|³)", limit=1e-2)
def lemma_4() -> float:
    """Error over |x|^3 + |y|^3 for |x|, |y| <= 0.01: it falls with the square, as the error is of fourth order."""
    x, y = torch.meshgrid(*[torch.linspace(-0.01, 0.01, 21, dtype=torch.float64)] * 2, indexing="ij")
    error = math.sqrt(math.pi / 2) * (F.gelu(x + y) - F.gelu(x) - F.gelu(y)) - x * y
    return float((error.abs() / (x.abs() ** 3 + y.abs() ** 3 + 1e-12)).max())


def tanh_gelu(x: Tensor) -> Tensor:
    """(37)."""
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def taylor(f: Callable[[Tensor], Tensor], order: int) -> list[float]:
    """Taylor coefficients 1, ..., order at 0, by repeated autograd."""
    x = zeros().requires_grad_(True)
    derivative, coefficients = f(x), []
    for k in range(1, order + 1):
        (derivative,) = torch.autograd.grad(derivative, x, create_graph=True)
        coefficients.append(float(derivative.detach()) / math.factorial(k))
    return coefficients


@claim(
    "(37)",
    "a standard implementation of GeLU is x/2 (1 + tanh(√(2/π)(x + 0.044715x³)))",
    "partly",
    instead="it is one, and an approximation of (6), within 5e-4: not the same function. Lemma 4 holds for both",
    limit=5e-4,
    threshold=1e-4,
)
def eq_37() -> tuple[float, float]:
    """Also: the difference of the Taylor coefficients up to order 3."""
    x = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    distance, series = gap(tanh_gelu(x), erf_gelu(x)), gap(taylor(tanh_gelu, 3), taylor(erf_gelu, 3))
    return max(distance, series, gap(tanh_gelu(x), F.gelu(x, approximate="tanh"))), distance


@claim(
    "(38)",
    "GeLU(x) = x/2 + √(2/π)x² + O(x³)",
    "corrected",
    instead="x/2 + x²/√(2π) − x⁴/(6√(2π)) + O(x⁶): half the printed coefficient, and no cubic term",
    limit=1e-12,
    threshold=0.1,
)
def eq_38() -> tuple[float, float]:
    coefficients, root = taylor(erf_gelu, 5), math.sqrt(2 * math.pi)
    wanted = [0.5, 1 / root, 0.0, -1 / (6 * root), 0.0]
    return gap(coefficients, wanted), abs(coefficients[1] - math.sqrt(2 / math.pi))


@claim("(39), (40)", "GeLU(x+y) − GeLU(x) − GeLU(y) ≈ √(2/π)xy: right, the mistake of (38) cancels", limit=1e-3)
def eq_39() -> float:
    """The error of (40) over its leading term -xy(2x^2 + 3xy + 2y^2)/6, minus 1, for x, y around 0.01."""
    x, y = torch.meshgrid(*[torch.tensor([-0.01, -0.006, 0.007, 0.011], dtype=torch.float64)] * 2, indexing="ij")
    error = math.sqrt(math.pi / 2) * (F.gelu(x + y) - F.gelu(x) - F.gelu(y)) - x * y
    return gap(error / (-x * y * (2 * x**2 + 3 * x * y + 2 * y**2) / 6), torch.ones(4, 4))


@claim("Lemma 5, (41)", "GeLU(N + x) − N ≈ x for N ≫ 1", limit=1e-12)
def lemma_5() -> float:
    x = torch.linspace(-20, 20, 101, dtype=torch.float64)
    return gap(F.gelu(BYPASS + x) - BYPASS, x)


@claim(
    "(42)-(44)",
    "GeLU(N + x) − N = N/2 (1 + tanh(√(2/π)(N + 0.044715N³))) − N ≈ x",
    "corrected",
    instead="N + x for N, three times (as printed it is 0); no N is needed: GeLU(x) − GeLU(−x) = x exactly",
    limit=1e-13,
    threshold=1.0,
)
def eq_42() -> tuple[float, float]:
    N, x = BYPASS, torch.linspace(-6, 6, 101, dtype=torch.float64)
    right = max(gap(tanh_gelu(N + x) - N, x), gap(F.gelu(x) - F.gelu(-x), x))
    return right, gap((tanh_gelu(torch.full_like(x, N)) - N), x)


@claim("(46), (48)", "the mean of [x, N, −N − Σx, 0] is 0", limit=1e-12)
def eq_46() -> float:
    """Infinite if the vector without its last pad had mean 0 as well."""
    x, N = normal(82, 6), 30.0
    vector = torch.cat([x, torch.stack([zeros() + N, -N - x.sum()]), zeros(4)])
    return abs(float(vector.mean())) if abs(float(vector[:-5].mean())) > 0.1 else math.inf


@claim(
    "Lemma 6, (45)",
    "√(2/L)Nλ([x, N, −N − Σx, 0]) ≈ [x, 2N, −2N − Σx, 0]",
    "corrected",
    instead="[x, N, −N − Σx, 0]; pads N − S/2, −N − S/2 make the error second order, S the sum of *all* other lanes",
    limit=1e-8,
    threshold=0.5,
)
def lemma_6() -> tuple[float, float]:
    """Symmetric pads at N = 1e6 (the printed ones: 1e-6); printed: error of the pad, over N."""
    N, x = PAD, normal(82, 6)
    S, rest = x.sum(), zeros(4)
    pads = torch.stack([N - S / 2, -N - S / 2])
    scale = math.sqrt(2 / 12) * N
    right = scale * normalised(torch.cat([x, pads, rest]))
    printed = scale * normalised(torch.cat([x, torch.stack([zeros() + N, -N - S]), rest]))
    if gap(printed[:6], x) > 1e-5:
        return math.inf, 0.0
    return max(gap(right[:6], x), gap(right[6:8], pads) / N), abs(float(printed[6]) - 2 * N) / N


@claim(
    "(47)",
    "the variance of [x, N, −N − Σx, 0] is (N² + N² + x²)/L",
    "corrected",
    instead="(N² + (N + S)² + ‖x‖²)/L, S = Σx: a first-order term 2NS, which symmetric pads remove",
    limit=1e-12,
    threshold=1e-2,
)
def eq_47() -> tuple[float, float]:
    """Relative, N = 30."""
    N, x = 30.0, normal(83, 6)
    S, square = float(x.sum()), float(x @ x)
    variance = float(np.var(np.concatenate([x.numpy(), [N, -N - S], np.zeros(4)])))
    right, printed = (N**2 + (N + S) ** 2 + square) / 12, (2 * N**2 + square) / 12
    return abs(right / variance - 1), abs(printed / variance - 1)
