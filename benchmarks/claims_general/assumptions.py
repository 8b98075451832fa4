"""Section 3: assumptions, and Theorem 1."""

from __future__ import annotations

import math

import torch
from scipy.integrate import quad
from scipy.special import wofz
from torch import Tensor

from claims import attained, gap
from claims_general.common import (
    ETA,
    Data,
    Scalar,
    claim,
    data,
    gradient,
    mlp,
    predict,
    solve,
    split,
    transformer_2,
    two_layers,
)


@claim(
    "Sec. 3, (4)",
    "L_N = 1/(2N) Σ l(pred(xᵢ), yᵢ) has the gradient 1/N Σ ∂₁l · ∇pred",
    "corrected",
    instead="1/(2N) Σ ∂₁l · ∇pred (or the loss 1/N Σ l)",
    limit=1e-12,
    threshold=0.1,
)
def eq_4() -> tuple[float, float]:
    """Relative to the gradient; grad pred by autograd for one example at a time."""
    sample = data(27, (2, 3, 1))
    X, y, w, n = sample.X[:, :-1], sample.y, sample.w, sample.examples
    terms = []
    for i in range(n):
        leaf = w.clone().requires_grad_(True)
        pred = predict(leaf, X[:, i : i + 1], sample.widths)[0]
        (slope,) = torch.autograd.grad(pred, leaf)
        terms.append(2 * float(pred.detach() - y[i]) * slope)
    total, wanted = torch.stack(terms).sum(0), gradient(w, X, y, sample.widths, 1 / (2 * n))
    return gap(total / (2 * n), wanted), gap(total / n, wanted) / float(wanted.abs().max())


@claim("Sec. 3.1, ∇pred", "∇pred = [u_k r′(⟨v_k, x⟩) x; r(⟨v_k, x⟩)]ₖ for two layers", limit=1e-12)
def gradient_two_layers() -> float:
    sample = data(28, (3, 4, 1))
    x = sample.X[:, 0]
    leaf = sample.w.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(predict(leaf, x[:, None], sample.widths)[0], leaf)
    V, u = split(sample.w, sample.widths)
    outer, inner = (u[0] / torch.cosh(V @ x) ** 2)[:, None] * x, torch.tanh(V @ x)
    return gap(slope, torch.cat([outer.flatten(), inner]))


def window_is_right() -> bool:
    """The norm of the window alone is 1 + E|omega|, omega ~ N(0, 1/4), up to the step of the frequencies."""
    return abs(windowed_norm(torch.ones_like) - 1 - 1 / math.sqrt(2 * math.pi)) < 2e-3


def windowed_norm(f: Scalar, cut: float = math.inf, s: int = 1) -> float:
    """Barron norm of f(x) exp(-x^2/8), frequencies up to cut, by FFT."""
    x = torch.linspace(-40, 40, 2**14 + 1, dtype=torch.float64)[:-1]
    step = float(x[1] - x[0])
    density = torch.fft.fft(f(x) * torch.exp(-(x**2) / 8)).abs() * step / (2 * math.pi)
    omega = 2 * math.pi * torch.fft.fftfreq(len(x), step, dtype=torch.float64).abs()
    return float(((1 + omega) ** s * density)[omega <= cut].sum()) * 2 * math.pi / (len(x) * step)


@claim(
    "Assumption 1",
    "r and l have a finite Barron norm ∫ (1 + |ω|)ˢ |f̂(ω)| dω over all of ℝᵈ",
    "partly",
    instead="an extension of them from a bounded range can have; on ℝ not even tanh has (1/|ω| at 0), nor (p − y)²",
    limit=1e-9,
    threshold=1.0,
)
def assumption_1() -> tuple[float, float]:
    """tanh with a window: what frequencies above 60 add; printed: what |omega| in [1e-9, 1e-6] adds for tanh itself.

    The Fourier transform of tanh is 1 / (2 i sinh(pi omega / 2)); its derivative's, by quadrature, says so too.
    """
    check = quad(lambda x: math.cos(1.3 * x) / math.cosh(x) ** 2, -30, 30)[0] / (2 * math.pi) / 1.3
    if abs(check - 1 / (2 * math.sinh(math.pi * 1.3 / 2))) > 1e-9 or not window_is_right():
        return math.inf, 0.0
    grows = quad(lambda t: math.exp(t) / math.sinh(math.pi * math.exp(t) / 2), math.log(1e-9), math.log(1e-6))[0]
    return windowed_norm(torch.tanh, 120) - windowed_norm(torch.tanh, 60), grows


@claim(
    "Assumption 1, note",
    "this includes sigmoidal functions, Boolean functions and most common activation functions",
    "partly",
    instead="smooth ones, on a bounded range; not ReLU, as in Sec. 4: f̂ falls like ω⁻² only, and Lemma 5 needs s = 1",
    limit=1e-9,
    threshold=0.5,
)
def assumption_1_note() -> tuple[float, float]:
    """What a decade of frequencies adds to the norm, with a window: 40 to 400 for tanh; 1e2 to 1e3 for ReLU."""

    def density(t: float) -> float:
        """omega^2 |Fourier transform of relu(x) exp(-x^2/2)| / (2 pi), omega = e^t: by parts, 1 - i omega D(omega)."""
        omega = math.exp(t)
        half_line = math.sqrt(math.pi / 2) * complex(wofz(-omega / math.sqrt(2)))
        return omega**2 * abs(1 - 1j * omega * half_line) / (2 * math.pi)

    brute = quad(lambda x: x * math.exp(-(x**2) / 2) * math.cos(2 * x), 0, 30)[0]
    brute_i = quad(lambda x: x * math.exp(-(x**2) / 2) * math.sin(2 * x), 0, 30)[0]
    if abs(math.hypot(brute, brute_i) - density(math.log(2)) * 2 * math.pi / 4) > 1e-9 or not window_is_right():
        return math.inf, 0.0
    grows = 2 * quad(density, math.log(1e2), math.log(1e3))[0]
    return windowed_norm(torch.tanh, 400) - windowed_norm(torch.tanh, 40), grows


@claim(
    "Assumption 1, C⁴",
    "C⁴ functions have a bounded Barron norm, so the assumption of Bai et al. (2023), r and l in C⁴, is stricter",
    "partly",
    instead="on a bounded range (f in H⁴, and 4 > s + d/2 for s = 1, d ≤ 2); on ℝ tanh is smooth and has none",
    limit=1e-4,
    threshold=1.0,
)
def assumption_1_c4() -> tuple[float, float]:
    """|t|^4.5 with a window: what 100 to 200 adds to the norm with s = 1; printed: what [1e-9, 1e-6] adds for tanh."""

    def rough(t: Tensor) -> Tensor:
        return t.abs() ** 4.5

    grows = quad(lambda t: math.exp(t) / math.sinh(math.pi * math.exp(t) / 2), math.log(1e-9), math.log(1e-6))[0]
    if not window_is_right():
        return math.inf, 0.0
    return windowed_norm(rough, 200) - windowed_norm(rough, 100), grows


@claim("Assumption 1, closed", "B_s is closed under products, linear combinations and translations", limit=1 + 1e-9)
def barron_algebra() -> float:
    """Largest ratio of norms: ||f g|| / ||f|| ||g||, ||2 f - 3 g|| / (2 ||f|| + 3 ||g||), ||g(. - 1)|| / ||g||."""

    def bump_1(x: Tensor) -> Tensor:
        return torch.exp(-((x - 1) ** 2)) * torch.cos(3 * x)

    def product(x: Tensor) -> Tensor:
        return torch.tanh(x) * torch.exp(-(x**2) / 8) * bump_1(x)

    def sum_of_both(x: Tensor) -> Tensor:
        return 2 * torch.tanh(x) - 3 * bump_1(x)

    def moved(x: Tensor) -> Tensor:
        return bump_1(x - 1) * torch.exp(-((x - 1) ** 2) / 8 + x**2 / 8)

    ratios = []
    for s in (0, 1, 2):
        f, g = windowed_norm(torch.tanh, s=s), windowed_norm(bump_1, s=s)
        ratios += [windowed_norm(product, s=s) / (f * g), windowed_norm(sum_of_both, s=s) / (2 * f + 3 * g)]
        ratios.append(windowed_norm(moved, s=s) / g)
    return attained(ratios) if window_is_right() else math.inf


@claim(
    "Assumption 2",
    "some MLP layer (Def. 2, any admissible σ) projects w onto the compact 𝒲",
    "partly",
    instead="for a box and ReLU; never for analytic σ (tanh, GELU): a layer that is the identity in 𝒲 is so everywhere",
    limit=1e-12,
    threshold=1.0,
)
def assumption_2() -> tuple[float, float]:
    """w - relu(w - 1) + relu(-w - 1) against clamp; printed: error at w = 3 of tanh layers that are exact on [-1, 1].

    Five units of different slopes: on [-1, 1] they are linearly independent, so only coefficients 0 add nothing there.
    """
    w = torch.linspace(-3, 3, 4001, dtype=torch.float64)
    H = torch.stack([w, torch.ones_like(w)])
    W1, W2 = torch.tensor([[1.0, -1], [-1, -1]]).double(), torch.tensor([[-1.0, 1], [0, 0]]).double()
    slopes, biases = (
        torch.tensor([0.5, 1.0, 2.0, 3.0, 4.0]).double(),
        torch.tensor([0.0, -2.0, 1.0, 3.0, -4.0]).double(),
    )
    inside = torch.tanh(w[w.abs() <= 1][:, None] * slopes + biases)
    sizes = torch.linalg.svdvals(inside)
    if float(sizes.min() / sizes.max()) < 1e-6:
        return math.inf, 0.0
    added = float(torch.tanh(3 * slopes + biases) @ solve(inside, torch.zeros(len(inside)).double()))
    return gap(mlp(H, W1, W2, torch.relu)[0], w.clamp(-1, 1)), abs(3 + added - 1)


def error_2(seed: int, terms: int = 48, scale: float = 1.0) -> float:
    """||epsilon(w)|| / eta of the two-layer transformer, scale: of the inputs x."""
    sample = data(seed, (2, 3, 1))
    sample = Data(scale * sample.X, sample.y, sample.w, sample.widths)
    lanes = two_layers(2, 3)
    out = transformer_2(sample.prompt(lanes), 2, 3, terms)
    return float((out[lanes["w"]] - sample.step()[:, None]).norm(dim=0).max()) / ETA


@claim(
    "Theorem 1",
    "two layers, O(ε⁻²) heads: w⁺ = w − η∇L_N(w) + ε(w), ‖ε(w)‖ ≤ ηε, for any input data and any w ∈ 𝒲",
    "partly",
    instead="for x, y in a given bounded set (the fits of the proof have a range), with the layers corrected as below",
    limit=1e-6,
    threshold=0.1,
)
def theorem_1() -> tuple[float, float]:
    """||epsilon|| / eta against autograd, three prompts; error sqrt(heads) must fall; printed: x 20 times larger."""
    rate = [max(error_2(seed, terms) for seed in (30, 33)) * math.sqrt(terms) for terms in (12, 24, 48)]
    if sorted(rate, reverse=True) != rate:
        return math.inf, 0.0
    return max(error_2(seed) for seed in (30, 33, 36)), min(error_2(seed, scale=20.0) for seed in (30, 33, 36))


@claim(
    "Remark 1",
    "hᵢ = [xᵢ; yᵢ′; w; 0; 1; tᵢ] ↦ [xᵢ; yᵢ′; w⁺; 0; 1; tᵢ], the rest unchanged, by the layers of the proof",
    "partly",
    instead="if the last MLP also takes away pred and ∂₁l, left in the zeros by the proof: else a second step is wrong",
    limit=1e-6,
    threshold=0.1,
)
def remark_1() -> tuple[float, float]:
    """Two steps against autograd, all lanes, GELU(z) - GELU(-z) = z; printed: the same without the clearing."""
    sample, lanes = data(39, (2, 3, 1)), two_layers(2, 3)
    twice = Data(sample.X, sample.y, sample.step(), sample.widths)
    wanted = Data(sample.X, sample.y, twice.step(), sample.widths).prompt(lanes)
    found = []
    for cleared in (True, False):
        H = transformer_2(sample.prompt(lanes), 2, 3, cleared=cleared)
        found.append(transformer_2(H, 2, 3, cleared=cleared))
    return gap(found[0], wanted), gap(found[1][lanes["w"]], wanted[lanes["w"]])
