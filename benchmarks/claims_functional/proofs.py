"""Appendices A to D: the proofs of sections 2 and 3."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from claims import gap, normal
from claims_functional.common import (
    ACTIVATIONS,
    RATES,
    Activation,
    attention,
    claim,
    construction,
    descent,
    entry_by_entry,
    exp,
    eye,
    gaussian_process,
    linear,
    mask,
    predictions,
    prompt,
    quadratic,
    recursion,
    softmax,
    spectrum,
    sphere,
    transformer,
    unit_descent,
    value,
    zeros,
)


def reformulated() -> list[tuple[float, float]]:
    """For each h the loss of one prompt as in (5), and Tr((I - M) Y^T Y (I - M)) with the query's label unmasked."""
    X, y, A = normal(90, 3, 6) / 2, normal(91, 6), 0.1 * normal(92, 3, 3)
    layers = [(value(r, A), 0.5 * normal(93, 3, 3), 0.5 * normal(94, 3, 3)) for r in (-0.2, -0.1)]
    pairs = []
    for h in ACTIVATIONS.values():
        direct = (predictions(prompt(X, y[:-1]), layers, h)[-1] + y[-1]) ** 2
        Y = transformer(torch.cat([X, y[None]]), layers, h)[-1, -1:] @ (eye(6) - mask(6))
        pairs.append((float(direct), float(torch.trace(Y.mT @ Y))))
    return pairs


@claim("Lemma A.1", "the loss is E Tr((I−M) ȲᵀȲ (I−M)) with the query's label unmasked", limit=1e-12)
def lemma_a_1() -> float:
    return max(abs(direct - trace) for direct, trace in reformulated())


@claim(
    "Lemma A.1, proof",
    "last line: the loss is E (Tr((I−M) ȲᵀȲ (I−M)))²",
    "corrected",
    instead="without the square",
    limit=1e-12,
    threshold=1e-2,
)
def lemma_a_1_proof() -> tuple[float, float]:
    pairs = reformulated()
    return max(abs(a - b) for a, b in pairs), min(abs(a - b**2) for a, b in pairs)


@claim("(22)", "an example's label lane is Y_ℓ⁽ⁱ⁾ = y⁽ⁱ⁾ + TF_ℓ(x⁽ⁱ⁾), TF with the query placed at x⁽ⁱ⁾", limit=1e-12)
def eq_22() -> float:
    """Two runs of the transformer; and the recursion (9), whose f is -TF."""
    X, y, errors = sphere(95, 3, 6), normal(96, 5), []
    for h, i in itertools.product(ACTIVATIONS.values(), range(5)):
        lanes = transformer(prompt(X, y), construction(3, RATES), h)[:, -1, i]
        at_example = torch.cat([X[:, :-1], X[:, i : i + 1]], dim=1)
        errors.append(gap(lanes, y[i] + predictions(prompt(at_example, y), construction(3, RATES), h)))
        errors.append(gap(lanes, y[i] - recursion(h(X, X), y, RATES)[:, i]))
    return max(errors)


@claim("(23)", "TF_{ℓ+1}(x) = TF_ℓ(x) − r Σ Y_ℓ⁽ⁱ⁾ h(X₀, X₀)_{i,n+1}, for any h", limit=1e-12)
def eq_23() -> float:
    """With the lanes Y of the transformer itself."""
    X, y, errors = sphere(97, 3, 6), normal(98, 5), []
    for h in ACTIVATIONS.values():
        Z = transformer(prompt(X, y), construction(3, RATES), h)
        column = h(X, X).numpy()[:5, 5]
        steps = [Z[i, -1, -1] - r * float(Z[i, -1, :5].numpy() @ column) for i, r in enumerate(RATES)]
        errors.append(gap(torch.stack(steps), Z[1:, -1, -1]))
    return max(errors)


@claim(
    "(24)",
    "TF_{ℓ+1}(x) = TF_ℓ(x) − r Σ Y_ℓ⁽ⁱ⁾ K(xᵢ, x), and in the next line −f_ℓ(x) − r Σ (yᵢ − f_ℓ(x)) K(xᵢ, x)",
    "corrected",
    instead="(24) is right; in the line after it yᵢ − f_ℓ(xᵢ): the residual at the example, not at the query",
    limit=1e-9,
    threshold=1e-2,
)
def eq_24() -> tuple[float, float]:
    X, y = sphere(97, 3, 6), normal(98, 5)
    f = descent(exp(X, X), y, [r / 2 for r in RATES])
    k, Z = exp(X, X)[:-1, -1], transformer(prompt(X, y), construction(3, RATES), exp)
    tf = Z[:, -1, -1]
    as_numbered = [tf[i] - r * Z[i, -1, :-1] @ k for i, r in enumerate(RATES)]
    right = [-f[i, -1] - r * (y - f[i, :-1]) @ k for i, r in enumerate(RATES)]
    printed = [-f[i, -1] - r * ((y - f[i, -1]) @ k) for i, r in enumerate(RATES)]
    holds = max(gap(torch.stack(steps), tf[1:]) for steps in (as_numbered, right))
    return holds, gap(torch.stack(printed), tf[1:])


@claim(
    "(25)",
    "the Bayes estimator is νᵀK̂⁻¹Ŷ",
    "partly",
    instead="where K̂ is invertible; the pseudo-inverse where it is not (linear kernel, n > d), and the transformer's "
    "limit is that one too",
    limit=1e-9,
    threshold=1e12,
)
def eq_25() -> tuple[float, float]:
    """scikit-learn's; y = <theta, x> with n > d is known exactly; printed: condition number of the matrix to invert."""
    Z, labels, K, posterior = gaussian_process()
    inverse = abs(float(exp(Z, Z)[-1, :-1] @ torch.linalg.inv(K) @ labels) - posterior)
    X, theta = normal(99, 3, 8), normal(100, 3)
    y, K = theta @ X[:, :-1], linear(X, X)
    bayes = K[-1, :-1] @ torch.linalg.pinv(K[:-1, :-1], rcond=1e-10, hermitian=True) @ y
    limit = predictions(prompt(X, y), construction(3, [1 / spectrum(K)[1]] * 1500), linear)[-1]
    condition = float(np.linalg.cond(K[:-1, :-1].numpy()))
    return max(inverse, gap(bayes, theta @ X[:, -1]), gap(-limit, bayes)), condition


@claim(
    "App. C",
    "y_{ℓ+1}⁽ⁿ⁺¹⁾ = −νᵀ Σ_{k≤ℓ} (I − δK̂)ᵏ Ŷ → νᵀK̂⁻¹Ŷ",
    "corrected",
    instead="−δνᵀ Σ_{k≤ℓ} (I − δK̂)ᵏ Ŷ → −νᵀK̂⁻¹Ŷ: the factor δ, and the lane is minus the prediction "
    "(and it is Ŷ_ℓ, not Ŷ_{ℓ+1}, that is (I − δK̂)^ℓ Ŷ)",
    limit=1e-9,
    threshold=1e-2,
)
def appendix_c() -> tuple[float, float]:
    X, y, K, bayes = gaussian_process()
    delta, nu = 1 / spectrum(K)[1], exp(X, X)[:-1, -1].numpy()
    tf = predictions(prompt(X, y), construction(4, [delta] * 3000), exp)
    powers = [np.linalg.matrix_power(np.eye(5) - delta * K.numpy(), k) @ y.numpy() for k in range(6)]
    sums = np.cumsum(np.array(powers) @ nu)
    right = max(gap(tf[1:7], -delta * sums), abs(float(tf[-1]) + bayes))
    return right, min(gap(tf[1:7], -sums), abs(float(tf[-1]) - bayes))


Heads = list[tuple[Activation, Tensor, float]]  # activation, G, r per head


def multi_head(Z: Tensor, heads: Heads, depth: int) -> Tensor:
    """(26) with V^s = diag(0, -r^s), B^s = C^s = G^s, the same in every layer; TF_0, TF_1, ..."""
    d, out = Z.shape[0] - 1, [Z[-1, -1]]
    for _ in range(depth):
        Z = Z + sum(attention(Z, value(-r, zeros(d, d)), G, G, h) for h, G, r in heads)
        out.append(Z[-1, -1])
    return torch.stack(out)


G_1 = torch.diag(torch.tensor([1.0, 1, 0, 0, 0], dtype=torch.float64))


G_2 = torch.diag(torch.tensor([0.0, 0, 1, 1, 1], dtype=torch.float64))


def composite(X: Tensor, weight: float = 1.0) -> Tensor:
    """linear(G_1 u, G_1 v) + weight exp(G_2 u, G_2 v)."""
    return X[:2].T @ X[:2] + weight * torch.exp(X[2:].T @ X[2:])


@claim(
    "(26), (27)", "several heads, each with its own h, V, B, C, are added; TF_ℓ as in (4)", "definition", limit=1e-12
)
def eq_26() -> float:
    """Against the loops of (1)-(4): what a head adds is what a layer of that head alone adds."""
    X, y = normal(106, 3, 6) / 2, normal(107, 5)
    heads: Heads = [(linear, normal(108, 3, 3) / 2, 0.1), (exp, normal(109, 3, 3) / 2, 0.05), (softmax, eye(3), 0.3)]
    Z = prompt(X, y).numpy()
    wanted = [Z[-1, -1]]
    for _ in range(3):
        alone = [entry_by_entry(Z, [(value(-r, zeros(3, 3)), G, G)], h) - Z for h, G, r in heads]
        Z = Z + sum(alone)
        wanted.append(Z[-1, -1])
    return gap(multi_head(prompt(X, y), heads, 3), np.array(wanted))


@claim("(28)", "TF_ℓ = −f_ℓ at every layer for the sum of the heads' kernels, f_ℓ from (9), all rˢ equal", limit=1e-12)
def eq_28() -> float:
    """The recursion in numpy, two and three heads with full matrices G."""
    X, y, errors = sphere(88, 3, 7), normal(89, 6), []
    parts = [(linear, normal(68, 3, 3) / 2), (exp, normal(69, 3, 3) / 2), (quadratic, normal(70, 3, 3) / 2)]
    for some in (parts[:2], parts):
        K = torch.stack([h(G @ X, G @ X) for h, G in some]).sum(0)
        tf = multi_head(prompt(X, y), [(h, G, 0.07) for h, G in some], 5)
        errors.append(gap(tf, -recursion(K, y, [0.07] * 5)[:, -1]))
    return max(errors)


@claim(
    "Prop. D.1 (A)",
    "H heads with kernels Kˢ and some rˢ follow (7) for the kernel Σₛ Kˢ(Gˢu, Gˢv): TF_ℓ = −f_ℓ",
    "partly",
    instead="as Prop. 3.1: for the prompt at hand, or for all prompts with the gradient itself; rˢ = r, equal over "
    "heads (other rˢ = r αₛ follow the kernel Σ αₛKˢ)",
    limit=1e-9,
    threshold=0.1,
)
def prop_d_1_a() -> tuple[float, float]:
    """r^s = r, and (r, r/2) for the kernel K^1 + K^2 / 2; unit directions; printed: how far r'_0 of two prompts is."""
    errors, firsts = [], []
    for seed in (101, 201):
        X, y, r = sphere(seed, 5, 8), normal(seed + 1, 7), 0.1
        f, weighted = (descent(composite(X, w), y, [r / 2] * 6)[:, -1] for w in (1.0, 0.5))
        equal, unequal = (multi_head(prompt(X, y), [(linear, G_1, r), (exp, G_2, w * r)], 6) for w in (1.0, 0.5))
        errors += [gap(equal, -f), gap(unequal, -weighted)]
        states, steps = unit_descent(composite(X), y, [r])
        errors.append(gap(multi_head(prompt(X, y), [(linear, G_1, steps[0]), (exp, G_2, steps[0])], 1), -states[:, -1]))
        firsts.append(steps[0])
    return max(errors), max(firsts) / min(firsts) - 1


@claim(
    "Prop. D.1 (B)",
    "for labels of the composite Gaussian process TF_ℓ tends to the Bayes estimator (equal rˢ = δ < 2/λ_max)",
    limit=1e-8,
)
def prop_d_1_b() -> float:
    """Bayes: the conditional mean by the Cholesky factor of the joint covariance."""
    X, y = sphere(103, 5, 6), normal(104, 5)
    root = torch.linalg.cholesky(composite(X))
    bayes = root[-1, :-1] @ torch.linalg.solve_triangular(root[:-1, :-1], y[:, None], upper=False)[:, 0]
    low, top = spectrum(composite(X)[:-1, :-1])
    delta = 2 / (low + top)
    return gap(multi_head(prompt(X, y), [(linear, G_1, delta), (exp, G_2, delta)], round(12 * top / low))[-1], -bayes)


@claim(
    "App. D, one transformer",
    "a single multi-head transformer is near-optimal over many distributions, without knowing the distribution",
    "partly",
    instead="one architecture is: its r and G are those of the distribution (Fig. 4 trains them again for each); with "
    "the weights of one mixture the limit is not the Bayes estimator of another",
    limit=1e-8,
    threshold=1e-2,
)
def one_transformer() -> tuple[float, float]:
    """Heads with r and r w are Bayes for K^1 + w K^2; printed: w = 1 for labels of w = 0.1, relative to its risk."""
    X, y = sphere(103, 5, 6), normal(104, 5)
    ends, weights = [], []
    for w in (1.0, 0.1):
        K = composite(X, w)
        low, top = spectrum(K[:-1, :-1])
        heads: Heads = [(linear, G_1, 2 / (low + top)), (exp, G_2, 2 * w / (low + top))]
        weights.append(torch.linalg.solve(K[:-1, :-1], K[:-1, -1]))
        ends.append(gap(multi_head(prompt(X, y), heads, round(14 * top / low))[-1], -weights[-1] @ y))
    joint = composite(X, 0.1)
    risks = [float(joint[-1, -1] - 2 * c @ joint[:-1, -1] + c @ joint[:-1, :-1] @ c) for c in weights]
    return max(ends), risks[0] / risks[1] - 1


@claim(
    "Fig. 4(c)",
    "½(u₁v₁ + u₂v₂) + ½exp(½(u₃v₃ + u₄v₄ + u₅v₅)) is K° with G₂ = diag(0, 0, 1, 1, 1)",
    "corrected",
    instead="G₂ = diag(0, 0, 1, 1, 1)/√2; and the second head of the figure is h^exp, not h^linear",
    limit=1e-12,
    threshold=1e-2,
)
def figure_4_c() -> tuple[float, float]:
    X = sphere(105, 5, 6)
    kernel = X[:2].T @ X[:2] / 2 + torch.exp(X[2:].T @ X[2:] / 2) / 2
    composites = [(linear(G_1 @ X, G_1 @ X) + exp(s * G_2 @ X, s * G_2 @ X)) / 2 for s in (2**-0.5, 1.0)]
    return gap(composites[0], kernel), gap(composites[1], kernel)
