"""Checks of *Transformers Implement Functional Gradient Descent to Learn Non-Linear Functions In Context* (003).

The layer under test is (2)-(4) of the paper, written out in :func:`attention` and :func:`transformer`; what it is
compared with is autograd in the reproducing kernel Hilbert space, scikit-learn, SciPy, or a finite group average.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from scipy.integrate import quad
from scipy.linalg import sqrtm
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import Tensor

from claims import Paper, gap, normal

PAPER = Paper(
    "003",
    "X. Cheng, Y. Chen, S. Sra, *Transformers Implement Functional Gradient Descent to Learn Non-Linear Functions In "
    "Context*, ICML 2024",
)
claim = PAPER.claim

Activation = Callable[[Tensor, Tensor], Tensor]
Layer = tuple[Tensor, Tensor, Tensor]  # V, B, C
Array = npt.NDArray[np.float64]

# --------------------------------------------------------------------------------------------------- the transformer


def linear(U: Tensor, W: Tensor) -> Tensor:
    return U.mT @ W


def relu(U: Tensor, W: Tensor) -> Tensor:
    return torch.relu(U.mT @ W)


def exp(U: Tensor, W: Tensor) -> Tensor:
    return torch.exp(U.mT @ W)


def quadratic(U: Tensor, W: Tensor) -> Tensor:
    """(1 + <u, w>)^2, a kernel with the explicit features of :func:`features`."""
    return (1 + U.mT @ W) ** 2


def softmax(U: Tensor, W: Tensor) -> Tensor:
    """(6): over the keys 1..n of each column; the row of the query is 0."""
    weights = torch.softmax((U.mT @ W)[..., :-1, :], dim=-2)
    return torch.cat([weights, torch.zeros_like(weights[..., :1, :])], dim=-2)


ACTIVATIONS: dict[str, Activation] = {"linear": linear, "relu": relu, "exp": exp, "softmax": softmax}


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def mask(tokens: int) -> Tensor:
    M = eye(tokens)
    M[-1, -1] = 0
    return M


def attention(Z: Tensor, V: Tensor, B: Tensor, C: Tensor, h: Activation) -> Tensor:
    """(2): V Z M h(B X, C X), X the first d rows of Z."""
    X = Z[..., :-1, :]
    return V @ Z @ mask(Z.shape[-1]) @ h(B @ X, C @ X)


def transformer(Z: Tensor, layers: list[Layer], h: Activation) -> Tensor:
    """(3): Z_0, ..., Z_{k+1}, stacked in front."""
    states = [Z]
    for V, B, C in layers:
        states.append(states[-1] + attention(states[-1], V, B, C, h))
    return torch.stack(states)


def prompt(X: Tensor, y: Tensor) -> Tensor:
    """(1): the columns (x_i; y_i) and (x; 0)."""
    return torch.cat([X, torch.cat([y, zeros(1)])[None]])


def value(r: Tensor | float, A: Tensor) -> Tensor:
    """Assumption 4.4: V = diag(A, r)."""
    corner = torch.as_tensor(r, dtype=torch.float64).reshape(1, 1)
    V: Tensor = torch.block_diag(A, corner)
    return V


def construction(d: int, rates: list[float], scale: float = 1.0) -> list[Layer]:
    """The weights of Proposition 3.1: V = diag(0, -r'), B = C = scale I."""
    return [(value(-r, zeros(d, d)), scale * eye(d), scale * eye(d)) for r in rates]


def predictions(Z: Tensor, layers: list[Layer], h: Activation) -> Tensor:
    """(4): TF_0, ..., TF_{k+1}, the last entry of every Z."""
    return transformer(Z, layers, h)[..., -1, -1]


# ------------------------------------------------------------------------------------------------- data and oracles


def sphere(seed: int, d: int, n: int) -> Tensor:
    """n points of the unit sphere, as columns."""
    return torch.nn.functional.normalize(normal(seed, d, n), dim=0)


def features(X: Tensor) -> Tensor:
    """Features of (1 + <u, w>)^2, as rows: an orthonormal basis of its Hilbert space, so norms are Euclidean."""
    d = X.shape[0]
    pairs = [math.sqrt(2) * X[i] * X[j] for i in range(d) for j in range(i)]
    return torch.stack([torch.ones_like(X[0]), *(math.sqrt(2) * X), *(X**2), *pairs], dim=1)


def descent(K: Tensor, y: Tensor, rates: list[float]) -> Tensor:
    """f_0, f_1, ... at all points: gradient descent of L(f) = sum_i (f(x_i) - y_i)^2 in the space of the kernel.

    f = sum_j a_j K(., u_j) over *all* points u_j, examples or not; autograd differentiates L in a, and the Gram matrix
    turns that into the gradient for the Hilbert norm a^T K a.
    """
    a = zeros(len(K))
    states = [K @ a]
    for r in rates:
        a.requires_grad_(True)
        (slope,) = torch.autograd.grad(((K[: len(y)] @ a - y) ** 2).sum(), a)
        a = a.detach() - r * torch.linalg.pinv(K, rcond=1e-13, hermitian=True) @ slope
        states.append(K @ a)
    return torch.stack(states)


def recursion(H: Tensor, y: Tensor, rates: list[float]) -> Tensor:
    """(9), (17): f_{l+1}(x_j) = f_l(x_j) + r'_l sum_i (y_i - f_l(x_i)) H_ij, at all points."""
    f = np.zeros(H.shape[1])
    states = [f]
    for r in rates:
        f = f + r * ((y.numpy() - f[: len(y)]) @ H.numpy()[: len(y)])
        states.append(f)
    return torch.as_tensor(np.array(states))


def absolute(K: Tensor) -> Tensor:
    """K_+ of Definition 3.3: the absolute value of a symmetric matrix."""
    values, vectors = torch.linalg.eigh(K)
    return torch.einsum("ik,k,jk->ij", vectors, values.abs(), vectors)


def spectrum(K: Tensor) -> tuple[float, float]:
    values = torch.linalg.eigvalsh(K)
    return float(values[0]), float(values[-1])


def derivative(f: Callable[..., Tensor], at: tuple[Tensor, ...], along: tuple[Tensor, ...]) -> Tensor:
    """Directional derivative by autograd."""
    slope: Tensor = torch.autograd.functional.jvp(f, at, along)[1]
    return slope


RATES = [0.11, 0.07, 0.13, 0.05]

# --------------------------------------------------------------------------------------------- section 2: the modules


def module_gap(h: Activation, act: Callable[[Tensor], Tensor], masked: bool) -> float:
    """The module with (d+1) x (d+1) matrices Q, K of Assumption 2.1, against (2)."""
    d, tokens = 3, 6
    Z, V, B, C = (normal(s, *shape) for s, shape in enumerate([(d + 1, tokens), (d + 1, d + 1), (d, d), (d, d)]))
    Q, K = (torch.nn.functional.pad(P, (0, 1, 0, 1)) for P in (B, C))
    scores = act(Z.mT @ Q.mT @ K @ Z)
    direct = V @ Z @ (mask(tokens) if masked else eye(tokens)) @ scores
    return gap(attention(Z, V, B, C, h), direct)


@claim("Example 1", "linear attention VZMZᵀQᵀKZ is (2) with h(U, W) = UᵀW", limit=1e-12)
def example_1() -> float:
    return module_gap(linear, lambda s: s, masked=True)


@claim("Example 2", "ReLU attention is (2) with h(U, W) = relu(UᵀW)", limit=1e-12)
def example_2() -> float:
    return module_gap(relu, lambda s: s.clamp(min=0), masked=True)


@claim("Example 3", "softmax attention is (2) with the masked softmax (6); M is then unnecessary", limit=1e-12)
def example_3() -> float:
    def masked_softmax(scores: Tensor) -> Tensor:
        weights = np.exp(scores.numpy())
        weights[-1] = 0
        return torch.as_tensor(weights / weights.sum(axis=0))

    return module_gap(softmax, masked_softmax, masked=False)


# ----------------------------------------------------------------------------------- section 3: functional descent


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
    "with h = K, V = diag(0, −r′), B = C = I, TF_ℓ(x) = −f_ℓ(x) for all ℓ, f_ℓ from (7)",
    "corrected",
    instead="for the gradient, r′ = 2r; for the unit direction of (7) r′ depends on the prompt, and weights do not",
    limit=1e-9,
    threshold=0.1,
)
def prop_3_1() -> tuple[float, float]:
    """Three kernels, three prompts each; printed: spread of r'_0 = r / sqrt(y^T K y) over prompts, max / min - 1."""
    errors, spreads = [], []
    for h in (linear, quadratic, exp):
        scales = []
        for seed in (10, 11, 12):
            X, y = sphere(seed, 3, 7), normal(seed + 50, 6)
            tf = predictions(prompt(X, y), construction(3, RATES), h)
            errors.append(gap(tf, -descent(h(X, X), y, [r / 2 for r in RATES])[:, -1]))
            scales.append(float(y @ h(X, X)[:-1, :-1] @ y) ** -0.5)
        spreads.append(max(scales) / min(scales) - 1)
    return max(errors), min(spreads)


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
    return max(gap(right, wanted), gap(same, wanted)), gap(printed, wanted)


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
    "corrected",
    instead="for a kernel K₊ = K; for other K the law of y₁..yₙ depends on the query, so it is no process",
    limit=1e-10,
    threshold=1e-2,
)
def definition_3_3() -> tuple[float, float]:
    """K_+ against SciPy's (K K)^{1/2}; printed: the examples' block of K_+ with and without the query, relu."""
    X = sphere(35, 3, 12)
    K, R = exp(X, X), relu(X, X)
    right = max(gap(absolute(K), K), gap(absolute(R), sqrtm(R.numpy() @ R.numpy()).real))
    return right, gap(absolute(R)[:-1, :-1], absolute(R[:-1, :-1]))


@claim("(12), note", "relu(UᵀW) and softmax are not kernels", limit=-1e-2)
def eq_12() -> float:
    """The larger of: least eigenvalue of a relu Gram matrix; minus the asymmetry of a softmax matrix. Both negative."""
    X = sphere(36, 3, 14)
    S = softmax(X, X)[:-1, :-1]
    return max(spectrum(relu(X, X))[0], -gap(S, S.mT))


@cache
def gaussian_process() -> tuple[Tensor, Tensor, Tensor, float]:
    """Points, labels, Gram matrix of the examples, and scikit-learn's posterior mean at the query (Remark 3.2)."""
    X, y = sphere(40, 4, 6), normal(41, 5)
    model = GaussianProcessRegressor(ConstantKernel(math.e) * RBF(1.0), alpha=0.0, optimizer=None)
    mean = model.fit(X.T[:5].numpy(), y.numpy()).predict(X.T[5:].numpy())
    return X, y, exp(X, X)[:5, :5], float(mean[0])


@claim(
    "Prop. 3.4",
    "for Y from the K Gaussian process TF_ℓ tends to the Bayes estimator, for steps δ < ‖K̂‖ (proof, App. C)",
    "corrected",
    instead="for 0 < δ < 2/λ_max(K̂); steps that the proof allows diverge",
    limit=1e-9,
    threshold=1e3,
)
def prop_3_4() -> tuple[float, float]:
    """Steps 1 and 1.9 / lambda_max reach scikit-learn's posterior mean; 0.9 ||K|| is far away after 40 layers."""
    X, y, K, bayes = gaussian_process()
    top = spectrum(K)[1]
    right = [
        abs(float(predictions(prompt(X, y), construction(4, [delta] * depth), exp)[-1]) + bayes)
        for delta, depth in ((1.9 / top, 1500), (1.0 / top, 3000))
    ]
    printed = predictions(prompt(X, y), construction(4, [0.9 * top] * 40), exp)[-1]
    return max(right), abs(float(printed) + bayes)


@claim(
    "Sec. 3.3, 2(a)",
    "softmax is more iteration, less statistically efficient (here: all r in (0, 2) converge, not to Bayes)",
    limit=1e-9,
)
def section_3_3() -> float:
    """With D = diag(K 1): spectrum of K D^-1 in (0, 1], limit k(x)^T K^-1 D y / sum_j k(x, x_j), which is not Bayes."""
    X, y, K, bayes = gaussian_process()
    degrees, k = K.sum(0), exp(X, X)[:-1, -1]
    modes = np.linalg.eigvals((K / degrees).numpy())
    limit = float(k @ torch.linalg.solve(K, degrees * y) / k.sum())
    if abs(limit - bayes) < 1e-2 or np.abs(modes.imag).max() > 1e-12 or modes.real.min() <= 0:
        return math.inf
    deep = [float(predictions(prompt(X, y), construction(4, [r] * 3000), softmax)[-1]) for r in (0.5, 1.9)]
    return max(float(modes.real.max()) - 1, *(abs(tf + limit) for tf in deep))


@claim(
    "(13)", "the Bayes estimator of N(0, K₊) is νᵀK̂⁻¹Ŷ with the blocks of K₊; it differs from (25) for relu", limit=1e-9
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


# --------------------------------------------------------------------------------------- section 4: the assumptions

ROOT_SIGMA = torch.diag(torch.tensor([0.6, 1.0, 1.7], dtype=torch.float64)) + 0.2  # Sigma^{1/2}, not a multiple of I


def signed_permutations(d: int) -> Tensor:
    """The 2^d d! orthogonal matrices with entries -1, 0, 1, stacked.

    Only multiples of I commute with all of them, so (Schur) the mean of U^T R U is tr(R)/d I, as over all rotations;
    the symmetry arguments of section 4 use nothing else, and a mean over this group is exact.
    """
    signs = itertools.product((1.0, -1.0), repeat=d)
    rows = [eye(d)[list(p)] * torch.tensor(s) for s in signs for p in itertools.permutations(range(d))]
    return torch.stack(rows)


def rotated(X: Tensor, U: Tensor, root: Tensor = ROOT_SIGMA) -> Tensor:
    """Sigma^{1/2} U Sigma^{-1/2} X."""
    moved: Tensor = root @ U @ torch.linalg.solve(root, X)
    return moved


def rotation(seed: int, d: int) -> Tensor:
    Q: Tensor = torch.linalg.qr(normal(seed, d, d)).Q
    return Q.contiguous()


@claim(
    "Assumption 4.1",
    "for some symmetric invertible Σ, Σ^½UΣ^{-½}X and X have the same law, for all orthogonal U",
    "corrected",
    instead="Σ symmetric positive definite, or Σ^½ is not real",
    limit=1e-12,
    threshold=0.1,
)
def assumption_4_1() -> tuple[float, float]:
    """SciPy's square roots of Sigma and of an indefinite symmetric matrix: size of the imaginary part."""
    Sigma = (ROOT_SIGMA @ ROOT_SIGMA).numpy()
    indefinite = Sigma - 1.5 * np.eye(3)
    return gap(sqrtm(Sigma), ROOT_SIGMA), float(np.abs(np.imag(sqrtm(indefinite))).max())


@claim("Example 4", "x ~ N(0, Σ), and Σ^½ξ with ξ on the unit sphere, satisfy Assumption 4.1", limit=1e-12)
def example_4() -> float:
    """Covariance (all of a Gaussian); moments up to order 6 of the ellipse, exact by 16 points of the circle."""
    U, root = rotation(60, 2), ROOT_SIGMA[:2, :2]
    T = rotated(eye(2), U, root)
    covariance = root @ root
    angles = torch.arange(16, dtype=torch.float64) * math.pi / 8
    X = root @ torch.stack([angles.cos(), angles.sin()])
    moments = [
        gap((X[0] ** i * X[1] ** j).mean(), ((T @ X)[0] ** i * (T @ X)[1] ** j).mean())
        for i in range(7)
        for j in range(7 - i)
    ]
    return max(gap(T @ covariance @ T.mT, covariance), *moments)


@claim("Example 5", "x = μ + ξ with a random mean (or several) satisfies Assumption 4.1, Σ = I", limit=1e-12)
def example_5() -> float:
    """Given who belongs to which of two clusters all x are jointly Gaussian: the covariance of vec X decides."""
    U, member = rotation(61, 3), torch.tensor([0, 1, 0, 0, 1])
    across = (member[:, None] == member).double() + eye(5)
    covariance, T = torch.kron(across, eye(3)), torch.kron(eye(5), U)
    return gap(T @ covariance @ T.mT, covariance)


@claim("Example 6", "y = ⟨θ, ξ⟩, x = Σ^½ξ has E[YᵀY] = XᵀΣ⁻¹X, which satisfies Assumption 4.2", limit=1e-12)
def example_6() -> float:
    """E over theta ~ N(0, I) as the sum over a basis."""
    xi, U = normal(62, 3, 5), rotation(63, 3)
    X = ROOT_SIGMA @ xi
    expected = sum((torch.outer(theta @ xi, theta @ xi) for theta in rotation(64, 3)), zeros(5, 5))
    moved = rotated(X, U)
    return max(gap(P.mT @ torch.linalg.inv(ROOT_SIGMA @ ROOT_SIGMA) @ P, expected) for P in (X, moved))


@claim(
    "Example 7",
    "the K Gaussian process of Definition 3.3 satisfies Assumption 4.2 if K(Uv, Uw) = K(v, w)",
    "corrected",
    instead="with K at Σ^{-½}x, as the example writes and Definition 3.3 does not (or Σ = I)",
    limit=1e-10,
    threshold=1e-2,
)
def example_7() -> tuple[float, float]:
    right, printed = [], []
    X, U = ROOT_SIGMA @ normal(65, 3, 6), rotation(66, 3)
    for h in (linear, relu, exp):
        white = [torch.linalg.solve(ROOT_SIGMA, P) for P in (X, rotated(X, U))]
        right.append(gap(*(absolute(h(P, P)) for P in white)))
        printed.append(gap(*(absolute(h(P, P)) for P in (X, rotated(X, U)))))
    return max(right), min(printed)


def relu_network_kernel(x: Tensor, z: Tensor) -> float:
    """E relu(g.x) relu(g.z) over g ~ N(0, I) in the plane: radius in closed form, angle by quadrature."""

    def integrand(angle: float) -> float:
        g = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        return float((g @ x).clamp(min=0) * (g @ z).clamp(min=0)) / math.pi

    kinks = sorted(
        (math.atan2(float(v[1]), float(v[0])) + s * math.pi / 2) % (2 * math.pi) for v in (x, z) for s in (1, 3)
    )
    ends = [0.0, *kinks, 2 * math.pi]
    return float(sum(quad(integrand, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(ends)))


@claim(
    "Example 8, App. I.1",
    "labels of a random two-layer ReLU network satisfy Assumption 4.2 (θ₁ ∈ ℝ^{d×m})",
    "corrected",
    instead="for Σ = I, or for a network that reads Σ^{-½}x: App. I.1 shows K(UX) = K(X) only; θ₁ is m × d",
    limit=1e-10,
    threshold=1e-2,
)
def example_8() -> tuple[float, float]:
    """By quadrature in the plane, per hidden unit."""
    X, U, root = normal(67, 2, 3), rotation(68, 2), ROOT_SIGMA[:2, :2]

    def K(P: Tensor) -> Tensor:
        return torch.tensor([[relu_network_kernel(x, z) for z in P.T] for x in P.T], dtype=torch.float64)

    return gap(K(U @ X), K(X)), gap(K(rotated(X, U, root)), K(X))


@claim("Assumption 4.3", "linear, ReLU and softmax satisfy h(W, V) = h(SᵀW, S⁻¹V)", limit=1e-10)
def assumption_4_3() -> float:
    W, V, S = normal(70, 3, 5), normal(71, 3, 5), normal(72, 3, 3)
    return max(gap(h(W, V), h(S.mT @ W, torch.linalg.solve(S, V))) for h in ACTIVATIONS.values())


# ---------------------------------------------------------------------------------- section 4: the stationary points


@dataclass(frozen=True)
class Orbits:
    """Prompts over whole orbits of the finite group, and the labels' covariance in closed form.

    E over Y | X of a squared linear form of Y is a sum over label rows y_e with sum_e y_e^T y_e = K(X), here the
    eigenvectors of the exponential kernel at Sigma^{-1/2} x; E over X is the mean over the orbit.
    """

    h: Activation
    Z: Tensor  # prompts, label rows, d + 1, n + 1; the query's label is masked
    target: Tensor  # prompts, label rows: that label

    def loss(self, r: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        """(5), the in-context loss; weights stacked over layers."""
        layers = [(value(r[i], A[i]), B[i], C[i]) for i in range(len(r))]
        tf = transformer(self.Z, layers, self.h)[-1, ..., -1, -1]
        return ((tf + self.target) ** 2).sum(-1).mean()

    def gradients(self, *weights: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the loss in r, A, B, C."""
        leaves = [w.detach().clone().requires_grad_(True) for w in weights]
        return torch.autograd.grad(self.loss(*leaves), leaves)


LAYERS, D = 2, 3


@cache
def orbits(name: str) -> Orbits:
    """Three prompts of four examples, each rotated by the 48 signed permutations.

    The seeds are such that the critical points of all four activations are finite (with few prompts a loss may fall for
    ever as b c grows).
    """
    Zs, targets = [], []
    for seed in (83, 84, 85):
        X = rotated(ROOT_SIGMA @ sphere(seed, D, 5), signed_permutations(D))
        white = torch.linalg.solve(ROOT_SIGMA, X)
        values, vectors = torch.linalg.eigh(exp(white, white))
        labels = (vectors * values.sqrt()[..., None, :]).mT
        known = labels @ mask(5)
        Zs.append(torch.cat([X[:, None].expand(-1, 5, -1, -1), known[:, :, None]], dim=2))
        targets.append(labels[..., -1])
    return Orbits(ACTIVATIONS[name], torch.cat(Zs), torch.cat(targets))


def on_set(v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """r, A = a I, B = b Sigma^{-1/2}, C = c Sigma^{-1/2}: the set S of Theorem F.1; a = 0: that of Theorem E.1."""
    r, a, b, c = v.reshape(4, LAYERS)
    white = torch.linalg.inv(ROOT_SIGMA)
    return (r, *(s[:, None, None] * P for s, P in ((a, eye(D)), (b, white), (c, white))))


def some_point(free: bool) -> Tensor:
    """r, a, b, c of two layers."""
    a = [0.08, -0.05] if free else [0.0, 0.0]
    return torch.tensor([-0.2, -0.1, *a, 0.9, 1.1, 0.8, 1.2], dtype=torch.float64)


@cache
def critical(name: str, free: bool) -> Tensor:
    """A critical point of the loss *within* the set: BFGS in (r, a, b, c), then Newton with autograd's Hessian."""
    o, start = orbits(name), some_point(free)
    moves = torch.ones(4 * LAYERS, dtype=torch.bool)
    moves[LAYERS : 2 * LAYERS] = free

    def restricted(u: Tensor) -> Tensor:
        return o.loss(*on_set(start.masked_scatter(moves, u)))

    def slope(u: Array) -> Array:
        leaf = torch.as_tensor(u).requires_grad_(True)
        return torch.autograd.grad(restricted(leaf), leaf)[0].numpy()

    found = minimize(lambda u: float(restricted(torch.as_tensor(u))), start[moves].numpy(), jac=slope, method="BFGS")
    u = torch.as_tensor(found.x)
    for _ in range(6):
        hessian = torch.autograd.functional.hessian(restricted, u)
        u = u - torch.linalg.pinv(hessian, rtol=1e-9, hermitian=True) @ torch.as_tensor(slope(u.numpy()))
    return start.masked_scatter(moves, u)


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


# -------------------------------------------------------------------------------------------------- appendices A to D


@claim(
    "Lemma A.1",
    "the loss is E Tr((I−M) ȲᵀȲ (I−M)) with the query's label unmasked; proof, last line: E (Tr(..))²",
    "corrected",
    instead="Tr without the square, as in the lemma's own statement",
    limit=1e-12,
    threshold=1e-2,
)
def lemma_a_1() -> tuple[float, float]:
    X, y, A = normal(90, 3, 6) / 2, normal(91, 6), 0.1 * normal(92, 3, 3)
    layers = [(value(r, A), 0.5 * normal(93, 3, 3), 0.5 * normal(94, 3, 3)) for r in (-0.2, -0.1)]
    right, printed = [], []
    for h in ACTIVATIONS.values():
        direct = (predictions(prompt(X, y[:-1]), layers, h)[-1] + y[-1]) ** 2
        Y = transformer(torch.cat([X, y[None]]), layers, h)[-1, -1:] @ (eye(6) - mask(6))
        trace = torch.trace(Y.mT @ Y)
        right.append(gap(trace, direct))
        printed.append(gap(trace**2, direct))
    return max(right), min(printed)


@claim("(22)", "an example's label lane is Y_ℓ⁽ⁱ⁾ = y⁽ⁱ⁾ + TF_ℓ(x⁽ⁱ⁾), TF with the query placed at x⁽ⁱ⁾", limit=1e-12)
def eq_22() -> float:
    X, y, errors = sphere(95, 3, 6), normal(96, 5), []
    for h, i in itertools.product(ACTIVATIONS.values(), range(5)):
        lanes = transformer(prompt(X, y), construction(3, RATES), h)[:, -1, i]
        at_example = torch.cat([X[:, :-1], X[:, i : i + 1]], dim=1)
        errors.append(gap(lanes, y[i] + predictions(prompt(at_example, y), construction(3, RATES), h)))
    return max(errors)


@claim(
    "(24)",
    "TF_{ℓ+1}(x) = −f_ℓ(x) − r Σ (yᵢ − f_ℓ(x)) K(xᵢ, x) (the line after (24))",
    "corrected",
    instead="yᵢ − f_ℓ(xᵢ): the residual at the example, not at the query",
    limit=1e-9,
    threshold=1e-2,
)
def eq_24() -> tuple[float, float]:
    X, y = sphere(97, 3, 6), normal(98, 5)
    f = descent(exp(X, X), y, [r / 2 for r in RATES])
    k, tf = exp(X, X)[:-1, -1], predictions(prompt(X, y), construction(3, RATES), exp)
    right = [-f[i, -1] - r * (y - f[i, :-1]) @ k for i, r in enumerate(RATES)]
    printed = [-f[i, -1] - r * ((y - f[i, -1]) @ k) for i, r in enumerate(RATES)]
    return gap(torch.stack(right), tf[1:]), gap(torch.stack(printed), tf[1:])


@claim(
    "(25)",
    "the Bayes estimator is νᵀK̂⁻¹Ŷ",
    "corrected",
    instead="the pseudo-inverse where K̂ is singular (linear kernel, n > d); the transformer's limit is that one too",
    limit=1e-9,
    threshold=1e12,
)
def eq_25() -> tuple[float, float]:
    """y = <theta, x> with n > d is known exactly; printed: condition number of the matrix to invert."""
    X, theta = normal(99, 3, 8), normal(100, 3)
    y, K = theta @ X[:, :-1], linear(X, X)
    bayes = K[-1, :-1] @ torch.linalg.pinv(K[:-1, :-1], rcond=1e-10, hermitian=True) @ y
    limit = predictions(prompt(X, y), construction(3, [1 / spectrum(K)[1]] * 1500), linear)[-1]
    condition = float(np.linalg.cond(K[:-1, :-1].numpy()))
    return max(gap(bayes, theta @ X[:, -1]), gap(-limit, bayes)), condition


@claim(
    "App. C",
    "y_{ℓ+1}⁽ⁿ⁺¹⁾ = −νᵀ Σ_{k≤ℓ} (I − δK̂)ᵏ Ŷ → νᵀK̂⁻¹Ŷ",
    "corrected",
    instead="−δνᵀ Σ_{k≤ℓ} (I − δK̂)ᵏ Ŷ → −νᵀK̂⁻¹Ŷ: the factor δ, and the lane is minus the prediction",
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
    "Prop. D.1 (A)",
    "H heads with kernels Kˢ and some rˢ follow (7) for the kernel Σₛ Kˢ(Gˢu, Gˢv)",
    "corrected",
    instead="with the gradient as in Prop. 3.1 and rˢ equal over the heads (or weights absorbed: rˢ = r αₛ for Σ αₛKˢ)",
    limit=1e-9,
    threshold=1e-2,
)
def prop_d_1_a() -> tuple[float, float]:
    """r^s = r, and r^s = (r, r/2) for the kernel K^1 + K^2 / 2; printed: (r, r/2) for K^1 + K^2."""
    X, y, r = sphere(101, 5, 8), normal(102, 7), 0.1
    f, weighted = (descent(composite(X, w), y, [r / 2] * 6)[:, -1] for w in (1.0, 0.5))
    equal, unequal = (multi_head(prompt(X, y), [(linear, G_1, r), (exp, G_2, w * r)], 6) for w in (1.0, 0.5))
    return max(gap(equal, -f), gap(unequal, -weighted)), gap(unequal, -f)


@claim(
    "Prop. D.1 (B)",
    "for labels of the composite Gaussian process TF_ℓ tends to the Bayes estimator (proof as for Prop. 3.4)",
    "corrected",
    instead="for equal rˢ = δ with 0 < δ < 2/λ_max of the composite K̂",
    limit=1e-8,
    threshold=1e3,
)
def prop_d_1_b() -> tuple[float, float]:
    """Bayes: the conditional mean by the Cholesky factor of the joint covariance."""
    X, y = sphere(103, 5, 6), normal(104, 5)
    K = composite(X)
    root = torch.linalg.cholesky(K)
    bayes = root[-1, :-1] @ torch.linalg.solve_triangular(root[:-1, :-1], y[:, None], upper=False)[:, 0]
    low, top = spectrum(K[:-1, :-1])
    delta = 2 / (low + top)
    right = multi_head(prompt(X, y), [(linear, G_1, delta), (exp, G_2, delta)], round(12 * top / low))
    printed = multi_head(prompt(X, y), [(linear, G_1, 0.9 * top), (exp, G_2, 0.9 * top)], 40)
    return gap(right[-1], -bayes), gap(printed[-1], -bayes)


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


# ---------------------------------------------------------------------------------- appendix E: A = 0, and appendix F


@claim("(29)", "the infimum of the squared gradients over the set is 0 (here: already at B = C = 0)", limit=1e-9)
def eq_29() -> float:
    """The full gradient at B = C = 0 with the best r; the content of the theorem is at b, c not 0 (Thm. 4.5)."""
    sizes = []
    for name in ACTIVATIONS:
        gradients = orbits(name).gradients(*on_set(best_rates(orbits(name))))
        sizes += [float(g.abs().max()) for k, g in enumerate(gradients) if k != 1]
    return max(sizes)


def best_rates(o: Orbits) -> Tensor:
    """The best r with a = b = c = 0."""

    def point(r: Array) -> Tensor:
        return torch.cat([torch.as_tensor(r), zeros(3 * LAYERS)])

    def loss(r: Array) -> tuple[float, Array]:
        weights = on_set(point(r))
        return float(o.loss(*weights)), o.gradients(*weights)[0].numpy()

    return point(minimize(loss, np.full(LAYERS, -0.1), jac=True, tol=1e-13).x)


def transformed(weights: tuple[Tensor, ...], L: Tensor) -> tuple[Tensor, ...]:
    """r, A, L^T B, L^{-1} C."""
    r, A, B, C = weights
    return r, A, L.mT @ B, torch.linalg.solve(L, C)


def invariance(free: bool) -> float:
    """Change of the loss under (B, C) -> (L^T B, L^{-1} C), and the gradient at the transformed critical point."""
    L, worst = eye(D) + 0.4 * normal(110, D, D), []
    for name in ACTIVATIONS:
        weights = on_set(critical(name, free))
        moved = transformed(weights, L)
        worst.append(gap(orbits(name).loss(*weights), orbits(name).loss(*moved)))
        gradients = orbits(name).gradients(*moved)
        worst += [float(g.abs().max()) for k, g in enumerate(gradients) if free or k != 1]
    return max(worst)


@claim("Remark E.2", "f(r, B, C) = f(r, ΛᵀB, Λ⁻¹C), so the theorem holds for B = bΛᵀΣ^{-½}, C = cΛ⁻¹Σ^{-½}", limit=1e-8)
def remark_e_2() -> float:
    return invariance(free=False)


def flow_rate(free: bool) -> float:
    """(31), (48): d loss / dt along the flow of the proof plus the sum of squared gradients, relative.

    For A, B, C only: in r the flow is plain gradient descent, where there is nothing to show.
    """
    worst = []
    for name in ACTIVATIONS:
        weights = on_set(some_point(free))
        r, A, B, C = orbits(name).gradients(*weights)
        velocity = [torch.zeros_like(r), torch.zeros_like(A)]
        if free:
            velocity[1] = -torch.stack([torch.trace(g) / D * eye(D) for g in A])
        for g in (B, C):
            velocity.append(-torch.stack([torch.trace(G @ ROOT_SIGMA) / D * torch.linalg.inv(ROOT_SIGMA) for G in g]))
        t = zeros().requires_grad_(True)
        loss = orbits(name).loss(*(w + t * v for w, v in zip(weights, velocity, strict=True)))
        (rate,) = torch.autograd.grad(loss, t)
        squares = sum(float((g**2).sum()) for g in ((A, B, C) if free else (B, C)))
        worst.append(abs(float(rate) + squares) / squares)
    return max(worst)


@claim(
    "(31)", "along the flow (30) the loss falls at least as fast as the sum of squared gradients (it is =)", limit=1e-10
)
def eq_31() -> float:
    return flow_rate(free=False)


def direction_gap(free: bool) -> float:
    """(38), (39), (56), (57): derivative along R in a B or C, minus that along tr(R Sigma^{1/2})/d Sigma^{-1/2}."""
    R, worst = normal(111, D, D), []
    along = torch.trace(R @ ROOT_SIGMA) / D * torch.linalg.inv(ROOT_SIGMA)
    for name in ACTIVATIONS:
        for g in orbits(name).gradients(*on_set(some_point(free)))[2:]:
            worst += [abs(float((layer * (R - along)).sum())) / float((layer * along).sum().abs()) for layer in g]
    return max(worst)


@claim("Prop. E.3", "the derivative along any R is at most that along R̃ = tr(RΣ^½)/d Σ^{-½} (it is =)", limit=1e-10)
def prop_e_3() -> float:
    """Relative. Since -R is allowed too, <= for all R means =: the gradient is a multiple of Sigma^{1/2}."""
    return direction_gap(free=False)


def propagator(X: Tensor, layers: list[Layer], h: Activation) -> Tensor:
    """G with Y_{k+1} = Y_0 G: the label lane of the transformer itself, for label rows e_1, ..., e_{n+1}."""
    n = X.shape[-1]
    Z = torch.cat([X.expand(n, -1, -1), eye(n)[:, None]], dim=1)
    return transformer(Z, layers, h)[-1, :, -1]


def two_layers(A: Tensor) -> list[Layer]:
    return [(value(r, A), 0.6 * normal(s, 3, 3), 0.6 * normal(s + 1, 3, 3)) for r, s in ((-0.3, 112), (-0.2, 114))]


@claim(
    "(40)",
    "Y_{ℓ+1} = Y_ℓ + r Y_ℓ M h(BX, BX) = Y₀ Π (I + r M h(BX₀, CX₀))",
    "corrected",
    instead="h(BX, CX) in the first form too",
    limit=1e-12,
    threshold=1e-2,
)
def eq_40() -> tuple[float, float]:
    X, M, layers, right, printed = normal(116, 3, 5), mask(5), two_layers(zeros(3, 3)), [], []
    for h in ACTIVATIONS.values():
        G = propagator(X, layers, h)
        factors = [
            [eye(5) + V[-1, -1] * M @ h(B @ X, P @ X) for V, B, P in ls]
            for ls in (layers, [(V, B, B) for V, B, _ in layers])
        ]
        right.append(gap(G, factors[0][0] @ factors[0][1]))
        printed.append(gap(G, factors[1][0] @ factors[1][1]))
    return max(right), min(printed)


@claim(
    "(43)",
    "d/dt G(U_ΣX₀, tR) = d/dt G(X₀, tU_ΣᵀRU_Σ)",
    "corrected",
    instead="tUᵀRU_Σ, as in the proof that follows",
    limit=1e-10,
    threshold=1e-2,
)
def eq_43() -> tuple[float, float]:
    """Directional derivatives of the propagator by autograd."""
    X, U, R = ROOT_SIGMA @ normal(117, 3, 5), rotation(118, 3), normal(119, 3, 3)
    white, U_sigma = torch.linalg.inv(ROOT_SIGMA), rotated(eye(3), U)

    def slope(P: Tensor, S: Tensor, h: Activation) -> Tensor:
        def G(T: Tensor) -> Tensor:
            V = value(-0.3, zeros(3, 3))
            return propagator(P, [(V, 0.9 * white + T, 0.8 * white), (V, 1.1 * white, 0.7 * white)], h)

        return derivative(G, (zeros(3, 3),), (S,))

    right, printed = [], []
    for h in ACTIVATIONS.values():
        moved = slope(U_sigma @ X, R, h)
        right.append(gap(moved, slope(X, U.mT @ R @ U_sigma, h)))
        printed.append(gap(moved, slope(X, U_sigma.mT @ R @ U_sigma, h)))
    return max(right), min(printed)


@claim("Remark F.2", "f(r, A, B, C) = f(r, A, ΛᵀB, Λ⁻¹C), so the theorem holds for the transformed set", limit=1e-8)
def remark_f_2() -> float:
    return invariance(free=True)


@claim(
    "(48)", "along the flow (47) the loss falls at least as fast as the sum of squared gradients (it is =)", limit=1e-10
)
def eq_48() -> float:
    return flow_rate(free=True)


@claim("Prop. F.3", "as Prop. E.3, for A = aI", limit=1e-10)
def prop_f_3() -> float:
    return direction_gap(free=True)


def states(X: Tensor, layers: list[Layer], h: Activation) -> Tensor:
    """X_0, X_1, ... of (20)."""
    return transformer(torch.cat([X, X[:1]]), layers, h)[:, :-1]


@claim(
    "(58), (72)",
    "Y_{i+1} = Y₀ Π (I + r M h(B_ℓX₀, C_ℓX₀)) also when A ≠ 0",
    "corrected",
    instead="h(B_ℓX_ℓ, C_ℓX_ℓ): the covariates move",
    limit=1e-12,
    threshold=1e-3,
)
def eq_58() -> tuple[float, float]:
    X, layers = sphere(120, 3, 5), two_layers(0.3 * eye(3))
    errors: list[list[float]] = [[], []]
    for h in ACTIVATIONS.values():
        G, moving = propagator(X, layers, h), states(X, layers, h)
        for k, Xs in enumerate((moving, X.expand_as(moving))):
            factors = [eye(5) + V[-1, -1] * mask(5) @ h(B @ Xs[i], C @ Xs[i]) for i, (V, B, C) in enumerate(layers)]
            errors[k].append(gap(G, factors[0] @ factors[1]))
    return max(errors[0]), min(errors[1])


@claim(
    "(68), (82)",
    "G_i = (I + r_i M h_i) G_{i−1}",
    "corrected",
    instead="G_i = G_{i−1} (I + r_i M h_i); and in its derivative the I drops out",
    limit=1e-12,
    threshold=1e-3,
)
def eq_68() -> tuple[float, float]:
    X, layers, right, printed = sphere(121, 3, 5), two_layers(0.3 * eye(3)), [], []
    for h in ACTIVATIONS.values():
        before, after = (propagator(X, layers[:k], h) for k in (1, 2))
        (V, B, C), P = layers[1], states(X, layers, h)[1]
        factor = eye(5) + V[-1, -1] * mask(5) @ h(B @ P, C @ P)
        right.append(gap(after, before @ factor))
        printed.append(gap(after, factor @ before))
    return max(right), min(printed)


@claim("Prop. F.4", "the derivative along any R in A is at most that along tr(Σ^{-½}RΣ^½)/d I (it is =)", limit=1e-10)
def prop_f_4() -> float:
    R, worst = normal(122, D, D), []
    along = torch.trace(torch.linalg.solve(ROOT_SIGMA, R @ ROOT_SIGMA)) / D * eye(D)
    for name in ACTIVATIONS:
        layers = orbits(name).gradients(*on_set(some_point(True)))[1][:-1]  # the last A does not reach the labels
        worst += [abs(float((g * (R - along)).sum())) / float((g * along).sum().abs()) for g in layers]
    return max(worst)


@claim(
    "Prop. F.4, last display",
    "E_U[UᵀRU_Σ] = R̃ of (70)",
    "corrected",
    instead="E_U[U_Σ⁻¹RU_Σ], as in (81)",
    limit=1e-12,
    threshold=1e-2,
)
def prop_f_4_display() -> tuple[float, float]:
    """The mean over the finite group."""
    R, group = normal(123, D, D), signed_permutations(D)
    U_sigma = rotated(eye(D), group)
    wanted = torch.trace(torch.linalg.solve(ROOT_SIGMA, R @ ROOT_SIGMA)) / D * eye(D)
    right = torch.linalg.solve(U_sigma, R @ U_sigma).mean(0)
    return gap(right, wanted), gap((group.mT @ R @ U_sigma).mean(0), wanted)


def curves() -> tuple[Tensor, ...]:
    """S(0), T(0), S'(0), T'(0), Gamma."""
    return (*(normal(s, 3, 5) for s in (124, 125, 126, 127)), eye(3) + 0.4 * normal(128, 3, 3))


@claim("Lemma F.5", "d/dt h(S, T) = d/dt h(ΓᵀS̃, Γ⁻¹T̃) at 0 if values and first derivatives agree at 0", limit=1e-10)
def lemma_f_5() -> float:
    """Curves that differ in second order."""
    S, T, dS, dT, Gamma = curves()
    errors = []
    for h in ACTIVATIONS.values():

        def one(t: Tensor, h: Activation = h) -> Tensor:
            return h(S + t * dS + t**2 * T, T + torch.sin(t) * dT)

        def two(t: Tensor, h: Activation = h) -> Tensor:
            return h(Gamma.mT @ (S + torch.sin(t) * dS), torch.linalg.solve(Gamma, T + t * dT - t**2 * S))

        zero, unit = zeros(), torch.ones((), dtype=torch.float64)
        errors.append(gap(*(derivative(f, (zero,), (unit,)) for f in (one, two))))
    return max(errors)


@claim(
    "Lemma F.5, proof",
    "line 3: the Jacobians of h at (S̃, T̃) applied to (ΓᵀS̃′, Γ⁻¹T̃′) give the same",
    "corrected",
    instead="the Jacobians at (ΓᵀS̃, Γ⁻¹T̃)",
    limit=1e-10,
    threshold=1e-2,
)
def lemma_f_5_proof() -> tuple[float, float]:
    S, T, dS, dT, Gamma = curves()
    tangent = (Gamma.mT @ dS, torch.linalg.solve(Gamma, dT))
    right, printed = [], []
    for h in ACTIVATIONS.values():
        wanted = derivative(h, (S, T), (dS, dT))
        right.append(gap(derivative(h, (Gamma.mT @ S, torch.linalg.solve(Gamma, T)), tangent), wanted))
        printed.append(gap(derivative(h, (S, T), tangent), wanted))
    return max(right), min(printed)


# ---------------------------------------------------------------------------------------------- appendices G, H and I


@claim("Thm. G.1", "⟨f, K(·, x)⟩ = f(x) in the Hilbert space of K", limit=1e-12)
def theorem_g_1() -> float:
    """f = sum_j a_j K(., u_j) for K = (1 + <u, w>)^2, the inner product in an orthonormal basis of features."""
    X, U, a = normal(130, 2, 4), normal(131, 2, 7), normal(132, 7)
    return gap(features(X) @ (a @ features(U)), quadratic(X, U) @ a)


@claim("Thm. G.2", "a minimiser of cost(f(x₁), …) + g(‖f‖) is Σ αᵢ K(·, xᵢ)", limit=1e-6)
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


@claim(
    "Lemma G.3",
    "the steepest descent direction is c Σ (yᵢ − f(xᵢ)) K(·, xᵢ), c = 1/((Y−F)ᵀK(Y−F))",
    "corrected",
    instead="c = ((Y−F)ᵀK(Y−F))^{-½}; and its sign is +, App. B uses −",
    limit=1e-12,
    threshold=0.1,
)
def lemma_g_3() -> tuple[float, float]:
    """Minus autograd's gradient over its norm, in features; printed: how far the norm is from 1."""
    X, y, theta, probe = normal(136, 2, 4), normal(137, 4), normal(138, 6) / 3, normal(139, 2, 5)
    theta.requires_grad_(True)
    (gradient,) = torch.autograd.grad(((features(X) @ theta - y) ** 2).sum(), theta)
    residual = y - features(X) @ theta.detach()
    energy = residual @ quadratic(X, X) @ residual
    right = gap(features(probe) @ (-gradient / gradient.norm()), energy**-0.5 * quadratic(probe, X) @ residual)
    return right, abs(float((residual @ features(X) / energy).norm()) - 1)


@claim(
    "App. G, after G.3",
    "gradient flow of Σ (yᵢ − ⟨θ, xᵢ⟩)² gives d/dt f = −2 Σ (Y − F)ᵢ K(·, xᵢ)",
    "corrected",
    instead="+2 Σ (Y − F)ᵢ K(·, xᵢ)",
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
