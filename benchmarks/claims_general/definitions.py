"""Section 2: definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from claims import gap, normal, worst
from claims_general.common import (
    SIGMAS,
    Data,
    Heads,
    Scalar,
    add_inner,
    attention,
    claim,
    data,
    fit_line,
    gradient,
    mlp,
    parameters,
    predict,
    solve,
    transformer_2,
    two_layers,
    zeros,
)


@claim(
    "Def. 1",
    "the matrix form V H σ((Q H)ᵀ(K H)) is, by columns, Σⱼ σ(⟨Q hᵢ, K hⱼ⟩) V hⱼ",
    "corrected",
    instead="σ((K H)ᵀ(Q H)); as printed the two forms have Q and K exchanged",
    limit=1e-12,
    threshold=0.1,
)
def definition_1() -> tuple[float, float]:
    """Loops over columns and heads, tanh."""
    H, Q, K, V = normal(10, 4, 5), normal(11, 3, 4, 4), normal(12, 3, 4, 4), normal(13, 3, 4, 4)
    columns = H.clone()
    for m, i, j in itertools.product(range(3), range(5), range(5)):
        columns[:, i] += torch.tanh((Q[m] @ H[:, i]) @ (K[m] @ H[:, j])) * (V[m] @ H[:, j]) / 5
    right = H + sum((V[m] @ H @ torch.tanh((K[m] @ H).T @ (Q[m] @ H)) for m in range(3)), zeros(4, 5)) / 5
    printed = H + sum((V[m] @ H @ torch.tanh((Q[m] @ H).T @ (K[m] @ H)) for m in range(3)), zeros(4, 5)) / 5
    return gap(right, columns), gap(printed, columns)


@claim("Def. 2", "H + W₂ σ(W₁ H) is h + W₂ σ(W₁ h) for each column: tokens do not mix", "definition", limit=1e-12)
def definition_2() -> float:
    H, W1, W2 = normal(14, 4, 5), normal(15, 6, 4), normal(16, 4, 6)
    layer = torch.nn.Sequential(torch.nn.Linear(4, 6, False), torch.nn.GELU(), torch.nn.Linear(6, 4, False)).double()
    layer.load_state_dict({"0.weight": W1, "2.weight": W2})
    return max(gap(mlp(H, W1, W2, F.gelu)[:, i], H[:, i] + layer(H[:, i])) for i in range(5))


def decaying(sigma: Scalar, t: Tensor) -> Tensor:
    """A combination of shifts that decays: a second difference for unbounded sigma, a first one for sigmoids."""
    if float(sigma(torch.tensor(50.0))) > 2:
        return sigma(t + 1) - 2 * sigma(t) + sigma(t - 1)
    return sigma(t + 1) - sigma(t - 1)


def decay_growth(sigma: Scalar, m: int) -> float:
    """sup |nu^(k)(t)| (1 + |t|)^2 over |t| <= 400 over the same for |t| <= 20, less 1, for k <= m, p = 2 and nu != 0.

    It is 0 if nu decays faster, and far above 0 if not at all.
    """
    t = (torch.linspace(-400, 400, 80_001, dtype=torch.float64) + 1e-4).requires_grad_(True)
    nu, growth = decaying(sigma, t), []
    for k in range(m + 1):
        weighed = nu.detach().abs() * (1 + t.detach().abs()) ** 2
        growth.append(float(weighed.max() / weighed[t.detach().abs() <= 20].max()) - 1)
        if k < m:
            (nu,) = torch.autograd.grad(nu.sum(), t, create_graph=True)
    return worst(growth)


def smoothness(name: str) -> int:
    """m of W^{m,inf}_loc: ReLU has one weak derivative that is bounded, the others any number (here three)."""
    return 1 if name == "relu" else 3


@claim(
    "Def. 3",
    "σ is non-zero and some ν = Σ βᵢ σ(ωᵢ x + bᵢ) satisfies |ν⁽ᵏ⁾| ≤ C (1 + |t|)^-p",
    "corrected",
    instead="some ν ≠ 0: as printed ν = 0 qualifies for every σ, even for σ(t) = t, whose sums are affine functions",
    limit=1e-9,
    threshold=0.2,
)
def definition_3() -> tuple[float, float]:
    """Growth of sup |nu| (1 + |t|)^2, six activations; printed: L2([-1, 1]) distance of |x| from sums of t."""
    x = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    sums = torch.stack([w * x + b for w, b in ((1, 0), (2, 1), (-1, 3), (0.5, -2))], dim=1)
    rest = x.abs() - sums @ solve(sums, x.abs())
    return worst(decay_growth(sigma, 0) for sigma in SIGMAS.values()), math.sqrt(2 * float((rest**2).mean()))


@claim(
    "Def. 3, note",
    "most common activation functions satisfy the condition (here: tanh, sigmoid, softplus, GELU, SiLU for k ≤ m = 3, "
    "ReLU for m = 1; cos not)",
    limit=1e-9,
)
def definition_3_note() -> float:
    """Finite sums of cosines have a mean square that does not fall with t; the six others fall faster than t^-2."""
    for seed in range(5):
        omega, b, beta = 3 * normal(seed, 4).abs() + 0.2, normal(seed + 50, 4), normal(seed + 100, 4)
        power = []
        for start in (0.0, 1e4):
            t = start + torch.linspace(0, 2000, 40_001, dtype=torch.float64)
            power.append(float(((torch.cos(t[:, None] * omega + b) @ beta) ** 2).mean()))
        if not 0.9 < power[1] / power[0] < 1.1 or abs(power[1] - float((beta**2).sum()) / 2) > 0.1 * power[1]:
            return math.inf
    return worst(decay_growth(sigma, smoothness(name)) for name, sigma in SIGMAS.items())


@claim("Def. 4", "pred = W⁽ⁿ⁾ r(W⁽ⁿ⁻¹⁾ r(… r(W⁽¹⁾ x)))", "definition", limit=1e-12)
def definition_4() -> float:
    """Loops over units, against torch's layers."""
    widths = (3, 4, 2, 1)
    w, X = normal(17, parameters(widths)), normal(18, 3, 5)
    found = []
    for x in X.T.tolist():
        values, flat = x, iter(w.tolist())
        for level, n in enumerate(widths[1:]):
            if level:
                values = [math.tanh(v) for v in values]
            values = [sum(next(flat) * v for v in values) for _ in range(n)]
        found.append(values[0])
    return gap(predict(w, X, widths), found)


@claim(
    "Sec. 2.2, no biases",
    "bias terms are omitted “for simplicity” (sec. 4 then uses ReLU networks for balls and smooth functions)",
    "partly",
    instead="if x has a constant entry, and a unit of each layer passes it on; without, a ReLU network is homogeneous",
    limit=1e-12,
    threshold=0.15,
)
def no_biases() -> tuple[float, float]:
    """Printed: sup distance on [0, 1] of x^2 from c x, which is all that a bias-free ReLU network does there."""
    W, b, u, c, X = normal(19, 5, 2), normal(20, 5), normal(21, 5), float(normal(22, 1)), normal(23, 2, 9)
    wanted = u @ torch.relu(W @ X + b[:, None]) + c
    W1 = torch.cat([torch.cat([W, b[:, None]], dim=1), torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)])
    W2 = torch.cat([u, torch.tensor([c], dtype=torch.float64)])[None]
    lifted = torch.cat([X, torch.ones(1, 9, dtype=torch.float64)])
    right = gap(predict(torch.cat([W1.flatten(), W2.flatten()]), lifted, (3, 6, 1), torch.relu), wanted)
    x = torch.linspace(0, 1, 2001, dtype=torch.float64)
    free = predict(normal(24, parameters((1, 6, 6, 1))), x[None], (1, 6, 6, 1), torch.relu)
    if gap(free, x * free[-1]) > 1e-12:
        return math.inf, 0.0
    return right, min(gap(x**2, slope * x) for slope in np.linspace(0, 2, 401))


@claim(
    "Sec. 2.3",
    "the input holds zeros where w is to be: pᵢ = [0; 1; tᵢ]",
    "partly",
    instead="if an MLP layer first writes w₀ there, from the lane 1; descent from w = 0 itself stays at 0 if r(0) = 0",
    limit=1e-6,
    threshold=0.1,
)
def section_2_3() -> tuple[float, float]:
    """A step after such a layer, against autograd; printed: loss left after 200 steps from 0, less that from w0."""
    sample, lanes, widths = data(25, (2, 3, 1)), two_layers(2, 3), (2, 3, 1)
    X, n = sample.X[:, :-1], sample.examples
    y = torch.sin(2 * X[0])
    sample = Data(sample.X, y, sample.w, widths)
    empty = Data(sample.X, y, zeros(9), widths).prompt(lanes)
    write = zeros(lanes.width, 1)
    write[lanes["w"], 0] = sample.w / float(F.gelu(torch.ones(1, dtype=torch.float64)))
    filled = mlp(empty, lanes.e("one")[None], write, F.gelu)
    left = []
    for start in (zeros(9), sample.w):
        w = start
        for _ in range(200):
            w = w - 0.5 * gradient(w, X, y, widths, 1 / (2 * n))
        left.append(float(((predict(w, X, widths) - y) ** 2).mean() / (y**2).mean()))
    return gap(transformer_2(filled, 2, 3)[lanes["w"], 0], sample.step()), left[0] - left[1]


@claim(
    "Sec. 2.3, 1/N",
    "attention (Def. 1) has 1/N, N the number of columns: for the input’s N + 1 columns it is 1/(N + 1), as in the "
    "last layer of the proof",
    limit=1e-6,
)
def one_over_n() -> float:
    """pred of the first attention of Theorem 1, written with 1/(N + 1), against torch."""
    sample, lanes = data(26, (2, 3, 1)), two_layers(2, 3)
    heads = Heads(lanes.width, 3)
    for k in range(3):
        v = [lanes.e("w", 2 * k + c) for c in range(2)]
        add_inner(
            heads, fit_line(torch.tanh), [lanes.e("x", c) for c in range(2)], v, lanes.e("w", 6 + k), 12, lanes.e("one")
        )
    H, wanted = sample.prompt(lanes), predict(sample.w, sample.X, (2, 3, 1))
    return gap(attention(H, heads, F.gelu, divisor=sample.examples + 1)[lanes["pred"][0]], wanted)
