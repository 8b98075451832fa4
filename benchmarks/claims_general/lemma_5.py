"""The proof of Lemma 5, and what the paper says of itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import torch
from scipy.integrate import quad

from claims import attained, gap, normal
from claims_general.common import (
    PAPER,
    Array,
    claim,
    eye,
    gradient,
    grids,
    predict,
    target,
    uniform,
)

P_DECAY = 2.0


def bump(t: Array) -> Array:
    """sigma of the proof: decays, and is not even, so that its Fourier transform has a phase."""
    return np.exp(-((t - 0.5) ** 2))


def bump_hat(a: float) -> complex:
    """(1/2 pi) int sigma(t) exp(-i a t) dt, by quadrature."""
    real, imaginary = (
        quad(lambda t, g=g: float(bump(np.array(t))) * g(a * t), -9, 10)[0] for g in (math.cos, math.sin)
    )
    return complex(real, -imaginary) / (2 * math.pi)


def target_hat(omega: Array) -> npt.NDArray[np.complex128]:
    """Of the target, with the paper's convention f = int f_hat exp(i omega x)."""
    return np.asarray(np.exp(-(omega**2) / 2 - 0.3j * omega) / math.sqrt(2 * math.pi), dtype=np.complex128)


def integral(values: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    omega, b, _ = grids()
    total: npt.NDArray[np.complex128] = (
        values.sum((0, 1)) * (omega[1, 0, 0] - omega[0, 0, 0]) * (b[0, 1, 0] - b[0, 0, 0])
    )
    return total


A_FREQUENCY = 1.3  # a of the proof


@claim(
    "Lemma 5, proof",
    "f(x) = ∬ (2π σ̂(a))⁻¹ σ(ω/a·x + a) f̂(ω) e^{−iab} db dω",
    "corrected",
    instead="σ(ω/a·x + b)",
    limit=1e-10,
    threshold=0.1,
)
def lemma_5_fourier() -> tuple[float, float]:
    """A Gaussian in one dimension, by trapezoidal sums."""
    omega, b, x = grids()
    a, found = A_FREQUENCY, []
    for shift in (b, a + 0 * b):
        found.append(
            integral(bump(omega / a * x + shift) * target_hat(omega) * np.exp(-1j * a * b)) / (2 * np.pi * bump_hat(a))
        )
    return gap(np.abs(found[0] - target(x)), np.zeros(7)), gap(np.abs(found[1] - target(x)).max(), 0.0)


def envelope(b: Array, omega: Array, R: float) -> Array:
    """h(b, omega)."""
    return (1 + np.maximum(0, np.abs(b) - R * np.abs(omega) / A_FREQUENCY)) ** -P_DECAY


@claim("Lemma 5, ∫h db", "∫ h(b, ω) db = 2R|ω|/|a| + 2/(p − 1)", limit=1e-6)
def lemma_5_envelope() -> float:
    """SciPy, on the half-lines."""
    errors, R = [], 1.5
    for omega in (0.0, 0.7, 3.0):
        edge = R * omega / A_FREQUENCY
        inner = quad(lambda b, o=omega: float(envelope(np.array(b), np.array(o), R)), -edge, edge)[0]
        outer = quad(lambda b, o=omega: float(envelope(np.array(b), np.array(o), R)), edge, np.inf)[0]
        errors.append(abs(inner + 2 * outer - 2 * R * omega / A_FREQUENCY - 2 / (P_DECAY - 1)))
    return float(max(errors))


@claim("(1), (2)", "I = ∬ (1 + |ω|)ᵐ h |f̂| db dω ≤ C₁ ‖f‖ in B^{m+1} (C₁ = max(2R/|a|, 2/(p − 1)))", limit=1.0)
def eq_1() -> float:
    """Ratio of the sides, by trapezoidal sums (|b| <= 2000: what is left out is below 1e-3), m = 0, 1, 2.

    I must also be what the integral of h over b makes of it; and C_1 cannot be smaller: near 1 for narrow f_hat.
    """
    omega, b = np.linspace(-9, 9, 181)[:, None], np.sinh(np.linspace(-8.3, 8.3, 2001))[None] / 2
    size, ratios = np.abs(target_hat(omega[:, 0])), []
    for m, R in itertools.product((0, 1, 2), (0.5, 4.0)):
        inner = np.trapezoid(envelope(b, omega, R), b[0], axis=1) + 1e-3
        weight = (1 + np.abs(omega[:, 0])) ** m * size
        left = np.trapezoid(weight * inner, omega[:, 0])
        known = np.trapezoid(weight * (2 * R * np.abs(omega[:, 0]) / A_FREQUENCY + 2 / (P_DECAY - 1)), omega[:, 0])
        norm = np.trapezoid(weight * (1 + np.abs(omega[:, 0])), omega[:, 0])
        ratios.append(float(left / (max(2 * R / A_FREQUENCY, 2 / (P_DECAY - 1)) * norm)))
        if abs(left / known - 1) > 2e-3:
            return math.inf
    return attained(ratios, 0.7)


@claim("Lemma 5, E_λ", "f(x) = E_λ[J χ σ(ω/a·x + b)], χ the real part of e^{iθ}, θ = θ(f̂) − θ(σ̂(a)) − ab", limit=1e-10)
def lemma_5_expectation() -> float:
    """The density of lambda, J and chi as printed, m = 1, by trapezoidal sums."""
    omega, b, x = grids()
    a, m, R = A_FREQUENCY, 1, 1.5
    h, f_hat, s_hat = envelope(b, omega, R), target_hat(omega), bump_hat(A_FREQUENCY)
    weight = (1 + np.abs(omega)) ** m * h * np.abs(f_hat)
    total = float(integral(weight.astype(complex))[0].real)
    J = total * (1 + np.abs(omega)) ** -m / h / (2 * np.pi * abs(s_hat))
    chi = np.cos(np.angle(f_hat) - np.angle(s_hat) - a * b)
    return gap(integral((weight / total * J * chi * bump(omega / a * x + b)).astype(complex)).real, target(x))


@claim(
    "Lemma 5, D^α",
    "|D^α σ(ω·x/a + b)| ≤ |a|^{-|α|} (1 + |ω|)ᵐ σ^{(|α|)}(ω·x/a + b) for |α| ≤ m",
    "corrected",
    instead="|σ^{(|α|)}|: a derivative of a decaying σ is negative somewhere",
    limit=1.0,
    threshold=0.1,
)
def lemma_5_derivative() -> tuple[float, float]:
    """Largest ratio by autograd, d = 2, |alpha| = 1; printed: largest left side minus right side."""
    x, omega = uniform(77, 400, 2).requires_grad_(True), 2 * normal(78, 400, 2)
    b = 2 * normal(79, 400)
    inner = (omega * x).sum(1) / A_FREQUENCY + b
    (slope,) = torch.autograd.grad(torch.exp(-((inner - 0.5) ** 2)).sum(), x)
    t = (inner - 0.5).detach().numpy()
    outer = -2 * t * np.exp(-(t**2)) * (1 + np.linalg.norm(omega.numpy(), axis=1)) / A_FREQUENCY
    left = slope.abs().max(1).values.numpy()
    return float((left / np.abs(outer)).max()), float((left - outer).max())


@claim(
    "Lemma 5, ‖f_{ω,b}‖",
    "‖f_{ω,b}‖ in H^m(Ω) ≤ |Ω|^½ Σ sup|D^α f_{ω,b}| ≤ |Ω|^½ (2π|σ̂(a)|)⁻¹ I C_p Σ_{|α| ≤ m} |a|^{-|α|}",
    limit=1.0,
)
def lemma_5_norm() -> float:
    """Largest ratios of neighbours over a grid of omega and b, d = 1, m = 1, derivatives by differences."""
    a, R = A_FREQUENCY, 1.5
    x, t = np.linspace(-R, R, 601), np.linspace(-30, 30, 60_001)
    C_p = max(float(np.max(np.abs(v) * (1 + np.abs(t)) ** P_DECAY)) for v in (bump(t), np.gradient(bump(t), t)))
    omega, b, _ = grids()
    total = float(
        integral(((1 + np.abs(omega)) * envelope(b, omega, R) * np.abs(target_hat(omega))).astype(complex))[0].real
    )
    bound = math.sqrt(2 * R) * total * C_p * (1 + 1 / a) / (2 * math.pi * abs(bump_hat(a)))
    ratios, bounded = list[float](), list[float]()
    for o, shift in itertools.product(np.linspace(-6, 6, 25), np.linspace(-9, 9, 37)):
        J = total / (1 + abs(o)) / float(envelope(shift, o, R)) / (2 * math.pi * abs(bump_hat(a)))
        f = J * bump(o / a * x + shift)  # |chi| <= 1 is left out: larger
        slope = np.gradient(f, x)
        sup = math.sqrt(2 * R) * float(np.abs(f).max() + np.abs(slope).max())
        norm = math.sqrt(float(np.trapezoid(f**2 + slope**2, x)))
        ratios.append(norm / max(sup, 1e-300))
        bounded.append(sup / bound)
    return max(attained(ratios, 0.99), attained(bounded, 0.4))


@claim(
    "(3)", "a point of the convex hull is within C n^{-1/2} of a mean of n of its points, C the largest norm", limit=1.0
)
def eq_3() -> float:
    """Largest ratio of the sides, for random hulls: all means of n of five points are tried; and for the corners of a
    simplex in 40 dimensions, where it is nearly 1 (inf if not).
    """
    ratios = []
    for seed in range(20):
        points = normal(300 + seed, 5, 4)
        mixture = torch.softmax(2 * normal(400 + seed, 5), 0) @ points
        C = float(points.norm(dim=1).max())
        for n in (1, 2, 3, 4):
            means = [points[list(choice)].mean(0) for choice in itertools.combinations_with_replacement(range(5), n)]
            ratios.append(min(float((mean - mixture).norm()) for mean in means) * math.sqrt(n) / C)
    corners = eye(40)  # the nearest to their mean of n of them is 1/sqrt(n) and a little less away
    distances = [float((corners[:n].mean(0) - corners.mean(0)).norm()) for n in (1, 2, 3, 4)]
    return attained([*ratios, *(distance * math.sqrt(n) for n, distance in enumerate(distances, 1))], 0.98)


def hull_rate(n: int, R: float) -> tuple[float, float]:
    """L2([-R, R]) error of cos by n Gaussians, per sqrt(2 R): of a fit, and a lower bound for all sums of n Gaussians.

    Such a sum has at most 2 n - 2 zeros. Over two half-periods without one it has the wrong sign on one: pi/2 or more.
    """
    x = np.linspace(-R, R, max(600, int(12 * R)))
    centres = np.linspace(-R, R, n)
    columns = np.exp(-(((x[:, None] - centres) * n / (2 * R)) ** 2))
    rest = np.cos(x) - columns @ np.linalg.lstsq(columns, np.cos(x), rcond=None)[0]
    bound = max(0.0, (math.floor(R / math.pi) - 2 * n + 2) * math.pi / 2)
    return math.sqrt(float((rest**2).mean())), math.sqrt(bound / (2 * R))


@claim(
    "Lemma 5",
    "inf ‖f − f_n‖ ≤ |Ω|^½ √n₀ C(p, m, dim(Ω), σ) n^{-½} ‖f‖ in B^{m+1}, f_n a sum of n terms",
    "partly",
    instead="read as C(p, m, diam(Ω), σ), as in (2); not with dim: for cos on [−R, R] it grows without bound with R",
    limit=1.0,
    threshold=3.0,
)
def lemma_5() -> tuple[float, float]:
    """The C that is needed, n = R / 4 pi: a fit's, per diameter; printed: growth of its lower bound over R x 16."""
    right, needed = [], []
    for R in (32 * math.pi, 128 * math.pi, 512 * math.pi):
        n = round(R / (4 * math.pi))
        fitted, bound = hull_rate(n, R)
        if not bound <= fitted <= 2 * bound:
            return math.inf, 0.0
        right.append(fitted * math.sqrt(n) / 2 / (2 * R))  # ||cos|| = 2 in B^1
        needed.append(bound * math.sqrt(n) / 2)
    return attained(right, 4.5e-3), needed[-1] / needed[0]


PAPER.untestable(
    "Sec. 1.1, heads",
    "the bound on the number of heads is tighter than that of Bai et al. (2023)",
    "compares two upper bounds, proved under different assumptions, up to constants that neither paper gives",
)


@claim(
    "Sec. 5",
    "transformers can learn in context any function class that networks approximate",
    "conjecture",
    instead="steps of descent can be made (Theorem 2); that they find the network which exists does not follow",
    limit=1e-12,
    threshold=0.05,
)
def conclusion() -> tuple[float, float]:
    """Loss of weights that exist, relative; printed: what 2000 steps leave from a start with two equal units."""
    X = torch.linspace(-3, 3, 31, dtype=torch.float64)[None]
    y, widths = torch.tanh(4 * X[0]) - torch.tanh(X[0]), (1, 2, 1)
    wanted, w = torch.tensor([4.0, 1.0, 1.0, -1.0]).double(), torch.tensor([0.5, 0.5, 0.3, 0.3]).double()
    for _ in range(2000):
        w = w - 0.2 * gradient(w, X, y, widths, 1 / (2 * 31))
    left = [float(((predict(v, X, widths) - y) ** 2).mean() / (y**2).mean()) for v in (wanted, w)]
    return left[0], left[1]
