"""Appendices G, H and I, and what was measured."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

from claims import gap, normal
from claims_functional.common import (
    PAPER,
    RATES,
    Array,
    claim,
    construction,
    derivative,
    features,
    linear,
    predictions,
    prompt,
    quadratic,
    zeros,
)


@claim("Thm. G.1", "⟨f, K(·, x)⟩ = f(x) in the Hilbert space of K", "cited", limit=1e-12)
def theorem_g_1() -> float:
    """f = sum_j a_j K(., u_j) for K = (1 + <u, w>)^2, the inner product in an orthonormal basis of features."""
    X, U, a = normal(130, 2, 4), normal(131, 2, 7), normal(132, 7)
    return gap(features(X) @ (a @ features(U)), quadratic(X, U) @ a)


@claim("Thm. G.2", "a minimiser of cost(f(x₁), …) + g(‖f‖) is Σ αᵢ K(·, xᵢ)", "cited", limit=1e-6)
def theorem_g_2() -> float:
    """log-cosh cost, g(r) = r^3, minimised over all six features by BFGS; what is outside the span of K(., x_i)."""
    Phi, y = features(normal(133, 2, 3)), normal(134, 3)

    def objective(theta: Tensor) -> Tensor:
        return torch.log(torch.cosh(Phi @ theta - y)).sum() + 0.1 * (theta @ theta) ** 1.5

    def slope(theta: Array) -> Array:
        leaf = torch.as_tensor(theta).requires_grad_(True)
        return torch.autograd.grad(objective(leaf), leaf)[0].numpy()

    start = normal(135, 6).numpy()
    found = minimize(lambda t: float(objective(torch.as_tensor(t))), start, jac=slope, tol=1e-10).x
    inside = Phi.numpy().T @ np.linalg.lstsq(Phi.numpy().T, found, rcond=None)[0]
    return gap(found, inside)


def steepest() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features of points and of probes, the residuals, and the unit direction of steepest descent by autograd."""
    X, y, theta, probe = normal(136, 2, 4), normal(137, 4), normal(138, 6) / 3, normal(139, 2, 5)
    theta.requires_grad_(True)
    (gradient,) = torch.autograd.grad(((features(X) @ theta - y) ** 2).sum(), theta)
    return features(X), features(probe), y - features(X) @ theta.detach(), -gradient / gradient.norm()


@claim("Lemma G.3", "the direction of steepest descent is c Σ (yᵢ − f(xᵢ)) K(·, xᵢ) for some c > 0", limit=1e-12)
def lemma_g_3() -> float:
    """In features; infinite if c is not positive, or if a random unit direction descends faster."""
    Phi, at, residual, g = steepest()
    step = at @ Phi.mT @ residual
    c = float((at @ g) @ step / (step @ step))
    others = torch.nn.functional.normalize(normal(155, 1000, 6), dim=1)
    faster = (-2 * others @ Phi.mT @ residual).min() < -2 * g @ Phi.mT @ residual - 1e-12
    return gap(at @ g, c * step) if c > 0 and not faster else math.inf


@claim(
    "Lemma G.3, c",
    "c = 1/((Y−F)ᵀK(Y−F))",
    "corrected",
    instead="c = ((Y−F)ᵀK(Y−F))^{-½}",
    limit=1e-12,
    threshold=0.1,
)
def lemma_g_3_c() -> tuple[float, float]:
    """Against the unit direction by autograd; printed: how far the norm is from 1."""
    Phi, at, residual, g = steepest()
    energy = residual @ Phi @ Phi.mT @ residual
    return gap(at @ g, energy**-0.5 * at @ Phi.mT @ residual), abs(float((residual @ Phi / energy).norm()) - 1)


@claim(
    "Lemma G.3, line 2",
    "d/dt Σ (yᵢ − (f + tg)(xᵢ))² at 0 is Σ −2yᵢ g(xᵢ)",
    "corrected",
    instead="Σ −2(yᵢ − f(xᵢ)) g(xᵢ), as the proof has it further on",
    limit=1e-12,
    threshold=0.1,
)
def lemma_g_3_line() -> tuple[float, float]:
    X, y, f, g = normal(136, 2, 4), normal(137, 4), normal(138, 6) / 3, normal(156, 6)
    Phi = features(X)
    slope = derivative(
        lambda t: ((y - Phi @ (f + t * g)) ** 2).sum(), (zeros(),), (torch.ones((), dtype=torch.float64),)
    )
    return gap(slope, -2 * (y - Phi @ f) @ Phi @ g), gap(slope, -2 * y @ Phi @ g)


@claim("App. G, rank", "if Kb = 0, Σ bᵢK(·, xᵢ) is 0 in H, so that α* is not unique and g* is", limit=1e-12)
def appendix_g_rank() -> float:
    """Nine points, six features: the function at other points; infinite if K had full rank."""
    X, probe = normal(157, 2, 9), normal(158, 2, 5)
    values, vectors = torch.linalg.eigh(quadratic(X, X))
    null = vectors[:, values.abs() < 1e-10 * values[-1]]
    return float((quadratic(probe, X) @ null).abs().max()) if null.shape[1] == 3 else math.inf


@claim(
    "App. G, after G.3",
    "gradient flow of Σ (yᵢ − ⟨θ, xᵢ⟩)² gives d/dt f = −2 Σ (Y − F)ᵢ K(·, xᵢ)",
    "corrected",
    instead="+2 Σ (Y − F)ᵢ K(·, xᵢ) (and dθ/dt is 2X(Y − Xᵀθ), not the sum of n such terms)",
    limit=1e-12,
    threshold=0.1,
)
def appendix_g() -> tuple[float, float]:
    X, y, theta, probe = normal(140, 3, 5), normal(141, 5), normal(142, 3), normal(143, 3, 4)
    theta.requires_grad_(True)
    (gradient,) = torch.autograd.grad(((y - theta @ X) ** 2).sum(), theta)
    flow, step = -gradient @ probe, 2 * (y - theta.detach() @ X) @ linear(X, probe)
    return gap(flow, step), gap(flow, -step)


@claim("App. H.2", "dist(M, I) = min over α of ‖M − αI‖/‖M‖ is attained at α = tr(M)/d", limit=1e-7)
def appendix_h_2() -> float:
    M = normal(144, 5, 5).numpy()
    best = minimize_scalar(lambda a: float(np.linalg.norm(M - a * np.eye(5))), options={"xtol": 1e-12})
    return abs(float(best.x) - float(np.trace(M)) / 5)


@claim(
    "App. I.2", "for the linear kernel functional descent is gradient descent of ½ Σ (⟨xᵢ, θ⟩ − yᵢ)² in θ", limit=1e-12
)
def appendix_i_2() -> float:
    """torch.optim.SGD on theta, against the linear transformer."""
    X, y = normal(145, 3, 6), normal(146, 5)
    theta = zeros(3).requires_grad_(True)
    optimiser = torch.optim.SGD([theta], lr=1.0)
    f = [0.0]
    for r in RATES:
        optimiser.param_groups[0]["lr"] = r
        optimiser.zero_grad()
        (((theta @ X[:, :-1] - y) ** 2).sum() / 2).backward()
        optimiser.step()
        f.append(float(theta.detach() @ X[:, -1]))
    return gap(-predictions(prompt(X, y), construction(3, RATES), linear), f)


def trained(*figures: str) -> str:
    """Why there is no check, and which figures of docs/reproduction.md test the statement on other transformers."""
    return (
        "a statement about the transformers that the authors trained; their weights and losses are not published. "
        f"Tested on transformers that were trained here: docs/reproduction.md, {' and '.join(figures)}"
    )


PAPER.untestable(
    "Sec. 3.3, 1",
    "softmax aside, the best error is that of the h that matches K (Figs. 1, 2)",
    trained("kernels", "kernel-depth"),
)


PAPER.untestable(
    "Sec. 3.3, 2",
    "softmax is the most accurate on K^exp for few layers and many examples (Figs. 1(c), 2(b), 2(d))",
    trained("kernels", "kernel-depth"),
)


PAPER.untestable(
    "Sec. 3.3, 3",
    "the parameters learned are those of Theorem 4.6 (Figs. 3, 6)",
    trained("identity-softmax", "identity-free"),
)


PAPER.untestable(
    "App. H.2, H.3, Figs. 5, 6",
    "the matrices converge to multiples of the identity, in most cases",
    trained("identity", "identity-free"),
)
