"""Section 3: functional descent."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist
from torch import Tensor

from claims import derived, gap, normal
from claims_functional.common import (
    RATES,
    Activation,
    absolute,
    claim,
    construction,
    descent,
    exp,
    eye,
    features,
    gaussian_process,
    linear,
    predictions,
    prompt,
    quadratic,
    recursion,
    relu,
    rotation,
    softmax,
    spectrum,
    sphere,
    transformer,
    unit_descent,
    zeros,
)


@claim(
    "(7)",
    "f ← f − r ∇L(f), where ∇L(f) is the unit g that minimises dL(f + tg)/dt",
    "corrected",
    instead="that g descends, so the minus climbs; take the gradient itself, ∇L(f) = −2 Σ (yᵢ − f(xᵢ)) K(·, xᵢ)",
    limit=1e-12,
    threshold=1e-2,
)
def eq_7() -> tuple[float, float]:
    """Autograd in the feature space of (1 + <u, w>)^2; printed: the relative *increase* of L by a step of (7)."""
    X, y, theta, probe = normal(0, 2, 5), normal(1, 5), normal(2, 6) / 3, normal(3, 2, 4)

    def loss(t: Tensor) -> Tensor:
        return ((features(X) @ t - y) ** 2).sum()

    theta.requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(theta), theta)
    residual = y - features(X) @ theta.detach()
    right = gap(features(probe) @ gradient, -2 * quadratic(probe, X) @ residual)
    g = -gradient / gradient.norm()
    printed = loss(theta.detach() - 0.01 * g) / loss(theta.detach()) - 1
    return right, float(printed)


@claim(
    "Prop. 3.1",
    "with h = K, V = diag(0, −r′), B = C = I there are r′ such that TF_ℓ(x) = −f_ℓ(x) for all ℓ, f_ℓ from (7)",
    "partly",
    instead="for the prompt at hand: r′ = r/‖..‖ follows the unit direction of (7), downhill, and depends on it. "
    "One transformer for all prompts follows the gradient itself, with r′ = 2r",
    limit=1e-9,
    threshold=0.1,
)
def prop_3_1() -> tuple[float, float]:
    """Three kernels, three prompts each, both directions; printed: how far apart the first r' of two prompts are."""
    errors, spreads = [], []
    for h in (linear, quadratic, exp):
        firsts = []
        for seed in (10, 11, 12):
            X, y = sphere(seed, 3, 7), normal(seed + 50, 6)
            tf = predictions(prompt(X, y), construction(3, RATES), h)
            errors.append(gap(tf, -descent(h(X, X), y, [r / 2 for r in RATES])[:, -1]))
            f, steps = unit_descent(h(X, X), y, RATES)
            errors.append(gap(predictions(prompt(X, y), construction(3, steps), h), -f[:, -1]))
            firsts.append(steps[0])
        spreads.append(max(firsts) / min(firsts) - 1)
    return max(errors), min(spreads)


@claim("(8)", "TF_ℓ = −f_ℓ at every layer and for every query, f_ℓ from (9)", limit=1e-12)
def eq_8() -> float:
    """At four queries of one prompt, each a prompt of its own for the transformer."""
    X, y, errors = sphere(16, 3, 9), normal(17, 5), []
    for h in (linear, quadratic, exp):
        f = recursion(h(X, X), y, RATES)
        for query in range(5, 9):
            at = torch.cat([X[:, :5], X[:, query : query + 1]], dim=1)
            errors.append(gap(predictions(prompt(at, y), construction(3, RATES), h), -f[:, query]))
    return max(errors)


@claim("(9), (21)", "gradient descent in H is f ← f + r′ Σ (yᵢ − f(xᵢ)) K(·, xᵢ) for some r′", limit=1e-9)
def eq_9() -> float:
    """r' = 2r; the descent is free to use functions K(., u) at points u that are no examples, and does not."""
    errors = []
    for h in (linear, quadratic, exp):
        X, y = sphere(20, 3, 8), normal(21, 5)
        errors.append(gap(recursion(h(X, X), y, RATES), descent(h(X, X), y, [r / 2 for r in RATES])))
    return max(errors)


@claim(
    "Sec. 3.1.2",
    "h = K = exp(⟨·,·⟩/σ²) with B = C = I/σ follows (9) with the kernel K",
    "corrected",
    instead="the two scalings multiply to exp(⟨·,·⟩/σ⁴): take h = exp(UᵀW) with B = C = I/σ, or h = K with B = C = I",
    limit=1e-12,
    threshold=1e-2,
)
def section_3_1_2() -> tuple[float, float]:
    sigma, X, y = 1.5, sphere(30, 3, 6), normal(31, 5)

    def kernel(U: Tensor, W: Tensor) -> Tensor:
        return torch.exp(U.mT @ W / sigma**2)

    wanted = -recursion(kernel(X, X), y, RATES)[:, -1]
    right = predictions(prompt(X, y), construction(3, RATES, 1 / sigma), exp)
    same = predictions(prompt(X, y), construction(3, RATES), kernel)
    printed = predictions(prompt(X, y), construction(3, RATES, 1 / sigma), kernel)
    return derived(right, wanted, same), gap(printed, wanted)


@claim("(10)", "softmax with Q = K = I/σ does the step (9) times τ(·) = 1 / Σⱼ K(·, xⱼ)", limit=1e-12)
def eq_10() -> float:
    """At the query and, as residuals, at the examples."""
    sigma, X, y = 1.5, sphere(32, 3, 6), normal(33, 5)
    K = np.exp(-cdist(X.T, X.T, "sqeuclidean") / (2 * sigma**2))  # exp kernel up to a factor, which tau cancels
    f = np.zeros(6)
    for r in RATES:
        f = f + r * (y.numpy() - f[:5]) @ K[:5] / K[:5].sum(axis=0)
    final = transformer(prompt(X, y), construction(3, RATES, 1 / sigma), softmax)[-1, -1]
    return gap(final, torch.cat([y, zeros(1)]) - torch.as_tensor(f))


@claim("Remark 3.2", "on the unit sphere the exponential kernel is the RBF kernel up to scaling", limit=1e-12)
def remark_3_2() -> float:
    sigma, X = 0.8, sphere(34, 4, 9)
    ratio = torch.exp(X.T @ X / sigma**2) / torch.as_tensor(np.exp(-cdist(X.T, X.T, "sqeuclidean") / (2 * sigma**2)))
    return gap(ratio / ratio[0, 0], torch.ones(9, 9))


@claim(
    "Definition 3.3",
    "Y ~ N(0, K₊), K₊ = U|D|Uᵀ, generalises the Gaussian process to K that are not PSD",
    "partly",
    instead="for each X it is a Gaussian law, and for a kernel K₊ = K; for other K the law of y₁..yₙ depends on the "
    "query too, so these laws are not those of one process",
    limit=1e-10,
    threshold=1e-2,
)
def definition_3_3() -> tuple[float, float]:
    """K_+ against SciPy's (K K)^{1/2}, and against K with its negative eigenvalues flipped, one by one; printed: the
    examples' block of K_+ with and without the query, relu.
    """
    X = sphere(35, 3, 12)
    K, R = exp(X, X), relu(X, X)
    values, vectors = np.linalg.eigh(R.numpy())
    flipped = R.numpy() - sum(2 * v * np.outer(u, u) for v, u in zip(values, vectors.T, strict=True) if v < 0)
    right = max(gap(absolute(K), K), gap(absolute(R), sqrtm(R.numpy() @ R.numpy()).real), gap(absolute(R), flipped))
    return right, gap(absolute(R)[:-1, :-1], absolute(R[:-1, :-1]))


@claim(
    "(11), (14)",
    "K^linear, K^relu, K^exp = exp(⟨x, y⟩/σ²) (x, y for u, w) do not change under rotations of both arguments",
    "definition",
    limit=1e-10,
)
def eq_11() -> float:
    """Infinite if a shear would not change them, or if they are not what sums over coordinates give; sigma = 1.5."""
    X, U, shear = normal(18, 3, 6), rotation(19, 3), eye(3)
    shear[0, 1] = 0.5
    kernels: tuple[Activation, ...] = (linear, relu, exp, lambda P, Q: exp(P / 1.5, Q / 1.5))
    products = [[sum(a * b for a, b in zip(u, w, strict=True)) for w in X.T.tolist()] for u in X.T.tolist()]
    by_hand = torch.tensor(products, dtype=torch.float64)
    wanted = (by_hand, by_hand.clamp(min=0), by_hand.exp(), torch.exp(by_hand / 1.5**2))
    if max(gap(K(X, X), value) for K, value in zip(kernels, wanted, strict=True)) > 1e-9:
        return math.inf
    if min(gap(K(shear @ X, shear @ X), K(X, X)) for K in kernels) < 1e-2:
        return math.inf
    return max(gap(K(U @ X, U @ X), K(X, X)) for K in kernels)


@claim("(12), note", "relu(UᵀW) and softmax are not kernels", limit=-1e-2)
def eq_12() -> float:
    """The larger of: least eigenvalue of a relu Gram matrix; minus the asymmetry of a softmax matrix. Both negative."""
    X = sphere(36, 3, 14)
    S = softmax(X, X)[:-1, :-1]
    return max(spectrum(relu(X, X))[0], -gap(S, S.mT))


@claim(
    "Prop. 3.4",
    "for Y from the K Gaussian process TF_ℓ tends to the Bayes estimator as ℓ → ∞ (steps 0 < δ < 2/λ_max(K̂))",
    limit=1e-9,
)
def prop_3_4() -> float:
    """Steps 1 and 1.9 / lambda_max reach scikit-learn's posterior mean."""
    X, y, K, bayes = gaussian_process()
    top = spectrum(K)[1]
    ends = [
        float(predictions(prompt(X, y), construction(4, [delta] * depth), exp)[-1])
        for delta, depth in ((1.9 / top, 1500), (1.0 / top, 3000))
    ]
    return max(abs(end + bayes) for end in ends)


@claim(
    "App. C, step",
    "constant steps δ with 0 < δ < ‖K̂‖ converge",
    "corrected",
    instead="0 < δ < 2/‖K̂‖; and one δ serves all prompts only if ‖K̂‖ is bounded, as it is for bounded x",
    limit=1e-9,
    threshold=1e3,
)
def appendix_c_step() -> tuple[float, float]:
    """1.99 / ||K|| still converges; printed: 0.9 ||K||, which the proof allows, after 40 layers."""
    X, y, K, bayes = gaussian_process()
    top = spectrum(K)[1]
    right = predictions(prompt(X, y), construction(4, [1.99 / top] * 6000), exp)[-1]
    printed = predictions(prompt(X, y), construction(4, [0.9 * top] * 40), exp)[-1]
    return abs(float(right) + bayes), abs(float(printed) + bayes)


def one_layer_risk(X: Tensor, h: Activation, scale: float) -> float:
    """Least mean squared error of one layer on labels of the exponential Gaussian process, over r; X (prompts, d, n+1).

    The prediction is r <Y, h>, whose error is a quadratic form in the labels: no labels are drawn.
    """
    K, H = exp(X, X), h(scale * X, X)[:, :-1, -1]
    cross = torch.einsum("bi,bi->b", H, K[:, :-1, -1]).mean()
    energy = torch.einsum("bi,bij,bj->b", H, K[:, :-1, :-1], H).mean()
    return float(K[:, -1, -1].mean() - cross**2 / energy)


@claim(
    "Sec. 3.3, 2(a)",
    "conjecture: softmax is more iteration efficient but less statistically efficient than functional descent",
    "conjecture",
    instead="for it: one layer with the best r and scale b c errs less than one of h^exp, and many layers, for r in "
    "(0, 2), end at k(x)ᵀK̂⁻¹D y/Σk, which errs more than Bayes (measured: the larger of both changes, relative). "
    "Against it: with b c = 1 the condition number of its steps, K̂D⁻¹, is the larger one (printed: median)",
    limit=-1e-2,
    threshold=1e-2,
)
def section_3_3() -> tuple[float, float]:
    """500 prompts, n = 14, d = 5, unit sphere; errors by covariances, not by samples. D = diag(K 1)."""
    X = torch.nn.functional.normalize(normal(37, 500, 5, 15), dim=1)
    best = {h: min(one_layer_risk(X, h, s) for s in np.linspace(0.2, 12.0, 60)) for h in (exp, softmax)}
    K = exp(X, X)
    inner, k = K[:, :-1, :-1], K[:, :-1, -1]
    degrees = inner.sum(1)
    bayes = torch.linalg.solve(inner, k)
    limit = softmax_weights(K)
    risks = [
        float((K[:, -1, -1] - 2 * (c * k).sum(1) + torch.einsum("bi,bij,bj->b", c, inner, c)).mean())
        for c in (bayes, limit)
    ]
    if abs(risks[0] - float((K[:, -1, -1] - (bayes * k).sum(1)).mean())) > 1e-9:  # the variance of the posterior
        return math.inf, 0.0
    symmetric = inner / (degrees[:, :, None] * degrees[:, None, :]).sqrt()  # similar to K D^-1
    if softmax_limit() > 1e-9:
        return math.inf, 0.0
    conditions = [torch.linalg.cond(P) for P in (symmetric, inner)]
    against = float((conditions[0] / conditions[1]).median()) - 1
    return max(best[softmax] / best[exp] - 1, risks[0] / risks[1] - 1), against


def softmax_weights(K: Tensor) -> Tensor:
    """What multiplies the labels in k(x)^T K^-1 D y / sum_j k(x, x_j), D = diag(K 1); K with the query."""
    inner, k = K[..., :-1, :-1], K[..., :-1, -1]
    weights: Tensor = inner.sum(-2) * torch.linalg.solve(inner, k) / k.sum(-1, keepdim=True)
    return weights


def softmax_limit() -> float:
    """How far deep softmax transformers are from that prediction, for two rates."""
    X, y, _, _ = gaussian_process()
    limit = float(softmax_weights(exp(X, X)) @ y)
    deep = [float(predictions(prompt(X, y), construction(4, [r] * 3000), softmax)[-1]) for r in (0.5, 1.9)]
    return max(abs(tf + limit) for tf in deep)


@claim(
    "Sec. 3.3, relu",
    "the gap between relu and Bayes stays with depth, likely because flipping eigenvalues is hard for one head",
    "conjecture",
    instead="for it: K^relu of the examples is indefinite (measured: its least eigenvalue), so equal steps of Prop. "
    "3.1 have a factor |1 − δλ| > 1 for every δ ≠ 0 and diverge. Unequal ones need not, but tend to (25)",
    limit=-1e-2,
)
def section_3_3_relu() -> float:
    """The largest over thirty prompts, n = 14, d = 5; inf if for one of two equal steps the residual, by (9), is
    not what the eigenvalues say, (1 - delta lambda)^1000 of each part, or does not grow.
    """
    y = normal(330, 14)
    for seed, delta in itertools.product((300, 301), (0.1, -0.1)):
        H = relu(*[sphere(seed, 5, 14)] * 2)
        left = y - recursion(H, y, [delta] * 1000)[-1]
        values, vectors = torch.linalg.eigh(H)
        said = vectors @ ((1 - delta * values) ** 1000 * (vectors.mT @ y))
        if gap(left, said) > 1e-9 * float(said.abs().max()) or float(left.norm()) < 2 * float(y.norm()):
            return math.inf
    return max(spectrum(relu(X, X))[0] for X in (sphere(seed, 5, 14) for seed in range(300, 330)))


@claim(
    "(13)",
    "the Bayes estimator of N(0, K₊) is νᵀK̂⁻¹Ŷ with the blocks of K₊ (n × n, not d × d); not that of (25) for relu",
    limit=1e-9,
)
def eq_13() -> float:
    """Against the best linear predictor of the last coordinate of K_+^{1/2} e from the others, by least squares."""
    X, y = sphere(42, 3, 9), normal(43, 8)
    K = absolute(relu(X, X))
    root = torch.as_tensor(sqrtm(K.numpy()).real)
    weights = torch.linalg.lstsq(root[:-1].T, root[-1]).solution
    with_blocks = torch.linalg.solve(K[:-1, :-1], K[:-1, -1])
    if gap(with_blocks, torch.linalg.solve(relu(X, X)[:-1, :-1], relu(X, X)[:-1, -1])) < 0.1:
        return math.inf
    return abs(float((weights - with_blocks) @ y))
