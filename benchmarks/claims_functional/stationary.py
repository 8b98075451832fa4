"""Section 4: the stationary points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from claims import gap, normal
from claims_functional.common import (
    ACTIVATIONS,
    LAYERS,
    RATES,
    ROOT_SIGMA,
    Layer,
    Orbits,
    claim,
    critical,
    descent,
    exp,
    eye,
    linear,
    on_set,
    orbits,
    predictions,
    prompt,
    propagator,
    recursion,
    relu,
    softmax,
    some_point,
    spectrum,
    sphere,
    transformer,
    value,
    zeros,
)


def stationarity(free: bool) -> float:
    """Largest gradient in any weight matrix at the critical points within the set; infinite if they are trivial."""
    sizes = []
    for name in ACTIVATIONS:
        v = critical(name, free)
        r, _, b, c = v.reshape(4, LAYERS)
        if float((r * b * c).abs().min()) < 1e-3:
            return math.inf
        gradients = orbits(name).gradients(*on_set(v))
        sizes += [float(g.abs().max()) for k, g in enumerate(gradients) if free or k != 1]
    return max(sizes)


@claim("Thm. 4.5, E.1", "with A = 0 the loss has stationary points B = bΣ^{-½}, C = cΣ^{-½}", limit=1e-10)
def theorem_4_5() -> float:
    """Where the loss is critical *within* the set (b, c, r not 0) its full gradient vanishes; for all four h.

    The gradient in B is a multiple of Sigma^{1/2}, not of Sigma^{-1/2}: it is zero with its component along the set,
    but Euclidean gradient flow leaves the set if Sigma is not a multiple of I; the flow (30) of the proof does not.
    """
    return stationarity(free=False)


@claim(
    "(5), (19)",
    "the in-context loss f = E (TF_{k+1} + y⁽ⁿ⁺¹⁾)², which is E Tr((I−M) Gᵀ K(X) G (I−M)), Y_{k+1} = Y₀G",
    "definition",
    limit=1e-12,
)
def eq_5() -> float:
    """The sum over label rows against the covariance between propagators; relative, at a point off every set."""
    weights = [w + 0.05 * normal(81 + k, *w.shape) for k, w in enumerate(on_set(some_point(True)))]
    errors = []
    for name in ACTIVATIONS:
        o = orbits(name)
        layers = [(value(r, A), B, C) for r, A, B, C in zip(*weights, strict=True)]
        mean = torch.stack([squared(o, p, layers) for p in range(0, len(o.Z), 7)]).mean()
        some = Orbits(o.h, o.Z[::7], o.target[::7])
        errors.append(abs(float(some.loss(*weights) / mean) - 1))
    return max(errors)


def squared(o: Orbits, number: int, layers: list[Layer]) -> Tensor:
    """The lower right entry of G^T K G, K = exp of the whitened inputs of this prompt."""
    X = o.Z[number, 0, :-1]
    white = torch.linalg.solve(ROOT_SIGMA, X)
    last = propagator(X, layers, o.h)[:, -1]
    return last @ exp(white, white) @ last


@claim(
    "(16)",
    "with h = K the weights (16) are functional descent for K̃(u, w) = K(Σ^{-½}u, Σ^{-½}w)",
    "partly",
    instead="for bc = 1, and up to the step for K^linear; in general for K(bΣ^{-½}u, cΣ^{-½}w): for exp another "
    "kernel, and none if bc < 0",
    limit=1e-9,
    threshold=1e-2,
)
def eq_16() -> tuple[float, float]:
    """b c = 1 and b c = 2 against descent in the space of the kernel; printed: exp with b c = 2, the best r' for K~."""
    X, y, white = ROOT_SIGMA @ sphere(82, 3, 7), normal(83, 6), torch.linalg.inv(ROOT_SIGMA)
    errors = []
    for h, (b, c) in itertools.product((linear, exp), ((1.6, 1 / 1.6), (2.0, 1.0))):
        layers = [(value(-r, zeros(3, 3)), b * white, c * white) for r in RATES]
        K = h(b * white @ X, c * white @ X)
        errors.append(gap(predictions(prompt(X, y), layers, h), -descent(K, y, [r / 2 for r in RATES])[:, -1]))
    step, wanted = (y @ exp(s * white @ X, white @ X)[:-1] for s in (1.0, 2.0))
    best = (step @ wanted) / (step @ step)
    if spectrum(exp(-white @ X, white @ X))[0] > -1e-3:
        return math.inf, 0.0
    return max(errors), float((best * step - wanted).norm() / wanted.norm())


@claim(
    "Sec. 4.3, kernels",
    "h of Examples 1, 2 (linear, ReLU) are kernels K",
    "corrected",
    instead="linear is; relu(⟨u, w⟩) is not, as the note after (12) says: K̃ has no RKHS then, and (17) is what remains",
    limit=1e-12,
    threshold=1e-2,
)
def section_4_3() -> tuple[float, float]:
    """Minus the least eigenvalue of a Gram matrix."""
    X = sphere(36, 3, 14)
    return -spectrum(linear(X, X))[0], -spectrum(relu(X, X))[0]


@claim(
    "(17)",
    "for any h, (16) does f ← f + r′ Σ (yᵢ − f(xᵢ)) h(Σ^{-½}X, Σ^{-½}X)ᵢ",
    "corrected",
    instead="h(bΣ^{-½}X, cΣ^{-½}X), r′ = −r: b and c go into r′ if h is homogeneous (linear, ReLU), not for softmax",
    limit=1e-12,
    threshold=1e-2,
)
def eq_17() -> tuple[float, float]:
    """Printed: what is left of one softmax step at all tokens with the best r', relative."""
    X, y, b, c, r = ROOT_SIGMA @ normal(73, 3, 7), normal(74, 6), 1.3, 0.9, [-0.3, -0.2]
    white = torch.linalg.inv(ROOT_SIGMA)
    errors = []
    for h in ACTIVATIONS.values():
        layers = [(value(rate, zeros(3, 3)), b * white, c * white) for rate in r]
        H = h(b * white @ X, c * white @ X)
        errors.append(gap(predictions(prompt(X, y), layers, h), -recursion(H, y, [-rate for rate in r])[:, -1]))
    step, wanted = (y @ softmax(s * white @ X, white @ X)[:-1] for s in (1.0, b * c))
    best = (step @ wanted) / (step @ step)
    return max(errors), float((best * step - wanted).norm() / wanted.norm())


@claim("Thm. 4.6, F.1", "without A = 0 the loss has stationary points A = aI, B = bΣ^{-½}, C = cΣ^{-½}", limit=1e-10)
def theorem_4_6() -> float:
    """As Theorem 4.5, with a free: the gradient in A is a multiple of I."""
    return stationarity(free=True)


@claim(
    "(18)",
    "with A = aI and h = K: functional descent steps interleaved with transformations of the covariates",
    limit=1e-12,
)
def eq_18() -> float:
    """f moves by (9) with the kernel at the covariates of that layer, which move by X <- X + a X M K(X, X)."""
    X0, y, white = ROOT_SIGMA @ sphere(86, 3, 7), normal(87, 6), torch.linalg.inv(ROOT_SIGMA)
    errors = []
    for h in (linear, exp):
        layers = [
            (value(-r, a * eye(3)), 0.9 * white, 0.9 * white) for r, a in ((0.1, -0.05), (0.07, 0.04), (0.2, 0.1))
        ]
        X, f = X0.numpy(), np.zeros(7)
        for V, B, C in layers:
            P = torch.as_tensor(X)
            K = h(B @ P, C @ P).numpy()[:6]
            f = f - float(V[-1, -1]) * (y.numpy() - f[:6]) @ K
            X = X + float(V[0, 0]) * X[:, :6] @ K
        final = transformer(prompt(X0, y), layers, h)[-1]
        errors += [gap(final[-1], torch.cat([y, zeros(1)]) - torch.as_tensor(f)), gap(final[:-1], X)]
    return max(errors)


@claim(
    "Sec. 4.4, linear",
    "for linear attention a covariate step improves the condition number of the problem (after von Oswald et al.)",
    "cited",
    limit=-1e-2,
)
def section_4_4() -> float:
    """a in (-1/(3 lambda), 0), lambda the largest eigenvalue of X X^T: the least gain, relative."""
    changes = []
    for seed in range(320, 330):
        X = prompt(normal(seed, 3, 9), zeros(8))
        gram = X[:3, :8] @ X[:3, :8].mT
        for share in (0.05, 0.15, 0.3):
            a = -share / spectrum(gram)[1]
            moved = transformer(X, [(value(0.0, a * eye(3)), eye(3), eye(3))], linear)[-1, :3, :8]
            changes.append(float(torch.linalg.cond(moved @ moved.mT) / torch.linalg.cond(gram)) - 1)
    return max(changes)
