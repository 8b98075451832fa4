"""Definition 4 and Lemma 7: sums of ReLUs."""

from __future__ import annotations

import itertools
import math

import torch

from claims import attained, gap
from claims_gradient.common import (
    ONE,
    claim,
    derivatives,
    ring,
    total_weight,
)
from innergrad.functions import ACTIVATIONS, Function, approximate


@claim(
    "Def. 4",
    "(ε, R, H, C)-approximable: Σ c_h σ(a_hᵀ[z; 1]), Σ|c_h| ≤ C, ‖a_h‖₁ ≤ 1, sup error ≤ ε",
    "definition",
    limit=ONE,
)
def definition_4() -> float:
    """The approximants of the library: largest |a| + |b|, and error of the sum of ReLUs over eps, on [-8, 8]."""
    t = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    found = []
    for name in ("tanh", "softplus", "gelu"):
        f = ACTIVATIONS[name].r
        hinges = torch.as_tensor(approximate(f, 1e-2).hinges)
        total = sum(c * torch.relu(a * t + b) for a, b, c in hinges)
        found += [float(hinges[:, :2].abs().sum(1).max()), gap(total, f(t)) / 1e-2]
    return max(found)


def wave(omega: float) -> Function:
    """sin(omega t)/omega: bounded by 1/omega, slope at most 1, curvature omega."""
    return Function(f"wave {omega}", lambda t: torch.sin(omega * t) / omega, curvature=omega, lipschitz=1.0)


@claim(
    "Lemma 7, smoothness",
    "for k = 1 a C^s function, s = ⌈(k−1)/2⌉ + 1 = 1, has sums of ReLUs with Σ|c| ≤ C(1) max(L₀, L₁R), for every ε",
    "corrected",
    instead="s = ⌈(k−1)/2⌉ + 2, as in Bai et al. and as Lemmas 2 and 3 have it (C²): Σ|c| is at least the variation of "
    "the slope, which L₀ and L₁ do not bound, and L₂ does",
    limit=8.0,
    threshold=50.0,
)
def lemma_7() -> tuple[float, float]:
    """C over max(L_i R^i), sin(omega t)/omega, R = 1, omega to 256: with L_2; printed: by how much the least C of any
    sum of ReLUs grows from omega = 32 to 2048, while L_0 and L_1 stay at most 1, so that no C(1) will do. inf if the
    least is more than the sum that was made has, or less than a quarter of it.

    A sum within eps of the function has slopes, between its peaks, at least those of the peaks less 2 eps apart; the
    variation of the slope is at most the sum of |c| |a|.
    """

    def least(omega: float) -> float:
        eps, peaks = 0.1 / omega, 2 * math.floor(omega / math.pi - 0.5)  # in [-1, 1]
        slope = (2 / omega - 2 * eps) / (math.pi / omega)
        return 2 * slope * (peaks - 2)

    right = []
    for omega in (4.0, 32.0, 256.0):
        C = total_weight(approximate(wave(omega), 0.1 / omega, 1.0))
        right.append(C / max(1 / omega, 1.0, omega))
    if not 0.25 < least(256.0) / C <= 1:
        return math.inf, 0.0
    return attained(right, 2.2), least(2048.0) / least(32.0)


def least_weight(omega: float) -> float:
    """The sum of |c| of any ReLUs of two variables, ||a||_1 <= 1, that are within eps of ring(|x|), eps -> 0, on [-1,
    1]^2.

    For any measure m: <ring, m> <= sum |c| sup |<relu, m>|. Here m = w(|x|) cos(omega |x|) dx, w Gaussian, and by
    symmetry <relu(a x + b), m> is at most the larger of |H(s)|, H(s) = <(x_1 - s)_+, m>, |s| <= 1, and |m(1)|. The
    angle is integrated by hand.
    """
    r = torch.linspace(0, 1, int(24 * omega) + 1, dtype=torch.float64)[1:]
    weight = torch.exp(-((r - 0.5) ** 2) / 0.02) * torch.cos(omega * r) * r * (r[1] - r[0])
    s = torch.linspace(-1, 1, int(10 * omega) + 1, dtype=torch.float64)[:, None]
    inside = (r * r - s * s).clamp(min=0).sqrt() - s * torch.arccos((s / r).clamp(-1, 1))
    H = 2 * inside @ weight
    between = float(torch.diff(H, n=2).abs().max()) / 4  # what H can rise by between two points, and more
    largest = max(float(H.abs().max()) + between, abs(2 * math.pi * float(weight.sum())))
    return 2 * math.pi * float((ring(omega, r) * weight).sum()) / largest


def fourier_weight(omega: float) -> float:
    """A sum of |c| that does: by the Fourier transform, cos(xi x) on |xi x| <= T = |xi|_1 <= sqrt(2) |xi| having one
    within 4 T^2 + 4 T + 2 (slopes vary by 2 T; value and slope at 0).
    """
    r = torch.linspace(0.2, 0.8, int(16 * omega) + 1, dtype=torch.float64)
    k = torch.linspace(0, 4 * omega, 2001, dtype=torch.float64)
    transform = torch.special.bessel_j0(k[:, None] * r) @ (ring(omega, r) * r * (r[1] - r[0]))  # over 2 pi
    T = math.sqrt(2) * k
    return float((transform.abs() * k * (4 * T * T + 4 * T + 2)).sum() * (k[1] - k[0]))


@claim(
    "Lemma 7, k = 2",
    "for k = 2 a C² function, s = ⌈(k−1)/2⌉ + 1 = 2, has sums of ReLUs with Σ|c| ≤ C(2) max(L₀, L₁R, L₂R²)",
    "corrected",
    instead="s = 3, as in Bai et al. and as Lemma 4 has it (C³): cos(ω|x|)/ω² has waves in all directions, and needs "
    "Σ|c| of order √ω, whatever the ReLUs, with L₀, L₁, L₂ bounded",
    limit=10.0,
    threshold=1.9,
)
def lemma_7_two() -> tuple[float, float]:
    """Sum of |c| over max(L_i R^i), i <= 3, of a sum that does, largest for omega = 32, 128, 256; printed: by how much
    the least sum of |c| over max(L_i R^i), i <= 2, grows from 64 to 256 (the root of 4 is 2).
    """
    right = max(fourier_weight(omega) / max(derivatives(omega)) for omega in (32.0, 128.0, 256.0))
    least = [least_weight(omega) / max(derivatives(omega)[:3]) for omega in (64.0, 256.0)]
    return right, least[1] / least[0]


@claim(
    "Lemma 7, terms",
    "H ≤ C(k) C_ℓ² log(1 + C_ℓ/ε)/ε² terms do (k = 1; free knots need only c (C_ℓ/ε)^½)",
    limit=1.0,
)
def lemma_7_terms() -> float:
    """H over (C_l/eps)^(1/2)/2 + 4, which is stronger, C_l = max L_i R^i, i <= 2, R = 8 for tanh and its derivative, R
    = 1 for waves, sin(omega t)/omega, omega to 32; inf if the bound of the lemma fails with C(1) = 1.
    """
    functions = [(ACTIVATIONS["tanh"].r, 8.0), (ACTIVATIONS["tanh"].dr, 8.0)]
    functions += [(wave(omega), 1.0) for omega in (4.0, 32.0)]
    found = []
    for (f, R), relative in itertools.product(functions, (1e-1, 1e-2)):
        C = max(1.0, R * f.lipschitz, R * R * f.curvature)
        eps = relative * (1.0 if R > 1 else 1 / f.curvature)
        H = len(approximate(f, eps, R).hinges)
        found.append(H / (math.sqrt(C / eps) / 2 + 4))
        if C**2 * math.log(1 + C / eps) / eps**2 < H:
            return math.inf
    return attained(found, 0.5)
