"""Sections 2 to 4: formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy import stats
from sklearn.linear_model import LinearRegression, Ridge
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from claims import derived, gap, normal
from claims_primitives.common import (
    Lanes,
    Layer,
    aff,
    bounded,
    chain_lanes,
    chain_layers,
    claim,
    compiled_answer,
    div,
    erf_gelu,
    eye,
    layer_gap,
    lemma_1_lanes,
    mov,
    mul,
    normalised,
    product_of,
    random_layer,
    raw,
    sgd_chain,
    sgd_gap,
    state_after,
    zeros,
)
from innergrad.algorithms.raw import OneStepRidge, OneStepSGD, Operation


def layer_by_loops(layer: Layer, H: np.ndarray) -> np.ndarray:
    """(1)-(7), token by token, in numpy and with SciPy's normal distribution."""
    out = np.zeros_like(H)
    for i in range(H.shape[1]):
        answers = []
        for WQ, WK, WV in ((part.numpy() for part in head) for head in layer.heads):
            scores = [(WQ @ H[:, i]) @ (WK @ H[:, k]) for k in range(i + 1)]
            weights = np.exp(scores) / np.exp(scores).sum()
            answers.append(sum(weight * (WV @ H[:, k]) for k, weight in enumerate(weights)))
        x = layer.WF.numpy() @ np.concatenate(answers) + H[:, i]
        u = layer.W_in.numpy() @ ((x - x.mean()) / x.std()) + layer.b_in.numpy()
        out[:, i] = layer.W_out.numpy() @ (u * stats.norm.cdf(u)) + layer.b_out.numpy() + x
    return out


@claim(
    "(1)-(4), (49)-(53)",
    "heads with causal softmax over the columns up to i, W^F of their outputs, and FF with its residuals",
    "definition",
    limit=1e-12,
)
def eq_1() -> float:
    """The layer that all other rows use, against loops over tokens; infinite if later columns would matter."""
    layer, H = random_layer(100), normal(99, 5, 4)
    changed = H.clone()
    changed[:, 3] += 1
    if gap(layer(H)[:, :3], layer(changed)[:, :3]) > 0 or gap(layer(H)[:, 3], layer(changed)[:, 3]) < 0.1:
        return math.inf
    return gap(layer(H), layer_by_loops(layer, H.numpy()))


@claim("(6)", "GeLU(x) = x/2 (1 + erf(x/√2))", "definition", limit=1e-13)
def eq_6() -> float:
    """x times the normal distribution function (SciPy), and torch's GeLU."""
    x = torch.linspace(-8, 8, 801, dtype=torch.float64)
    return derived(x.numpy() * stats.norm.cdf(x.numpy()), erf_gelu(x), F.gelu(x))


@claim("(7)", "λ(x) = (x − E x)/√Var x over the entries (variance with 1/L)", "definition", limit=1e-13)
def eq_7() -> float:
    """numpy against torch's layer norm; infinite if the variance with 1/(L - 1) gave the same."""
    x = 3 + 2 * normal(98, 9)
    biased, unbiased = ((x.numpy() - x.numpy().mean()) / x.numpy().std(ddof=k) for k in (0, 1))
    return gap(normalised(x), biased) if gap(normalised(x), unbiased) > 1e-2 else math.inf


@claim(
    "(8)",
    "the objective E Σᵢ L(f(xᵢ), T([x₁, f(x₁), .., xₙ]))",
    "corrected",
    instead="T([x₁, f(x₁), .., xᵢ]), the prediction at xᵢ from the examples before it",
    limit=1e-12,
    threshold=0.1,
)
def eq_8() -> tuple[float, float]:
    """A learner that knows f predicts f at the last input it is given: its loss must be 0; relative to E f^2."""
    X, w = normal(97, 6, 3), normal(96, 3)

    def learner(sequence: Tensor) -> Tensor:
        return sequence[-1] @ w

    losses = [
        sum(float((X[i] @ w - learner(X[: end(i)])) ** 2) for i in range(6)) for end in (lambda i: i + 1, lambda i: 6)
    ]
    scale = float(((X @ w) ** 2).sum())
    return losses[0] / scale, losses[1] / scale


@claim(
    "(9)", "the objective Σ L(wᵀxᵢ, yᵢ) + λ‖w‖²: OLS for λ = 0, ridge regression for λ > 0", "definition", limit=1e-9
)
def eq_9() -> float:
    """scikit-learn's two, and the gradient of the objective by autograd at (10); infinite if lambda did not matter."""
    X, y = normal(0, 7, 3), normal(1, 7)
    errors, found = [], []
    for lam, model in ((0.0, LinearRegression(fit_intercept=False)), (0.4, Ridge(alpha=0.4, fit_intercept=False))):
        w = torch.linalg.solve(X.T @ X + lam * eye(3), X.T @ y).requires_grad_(True)
        (gradient,) = torch.autograd.grad(((X @ w - y) ** 2).sum() + lam * (w @ w), w)
        errors += [gap(w, model.fit(X.numpy(), y.numpy()).coef_), float(gradient.abs().max())]
        found.append(w.detach())
    return max(errors) if gap(*found) > 1e-2 else math.inf


@claim("(10)", "Σ (wᵀxᵢ − yᵢ)² + λ‖w‖² is minimised by (XᵀX + λI)⁻¹Xᵀy, the rows of X being xᵢ", limit=1e-10)
def eq_10() -> float:
    """Against least squares of the augmented system."""
    X, y, lam = normal(0, 7, 3), normal(1, 7), 0.4
    augmented = torch.cat([X, math.sqrt(lam) * eye(3)]), torch.cat([y, zeros(3)])
    return gap(torch.linalg.solve(X.T @ X + lam * eye(3), X.T @ y), torch.linalg.lstsq(*augmented).solution)


@claim(
    "mov, Sec. 3.1",
    "mov yields columns :s−1, then [H_{:i−1,t}; H_{i′:j′,t}; H_{j+1:,t}], then s+1:",
    "corrected",
    instead="columns :t−1, then [H_{:i′−1,t}; H_{i:j,s}; H_{j′+1:,t}], then t+1: (as printed nothing of s is copied)",
    limit=1e-12,
    threshold=1e-2,
)
def mov_matrix() -> tuple[float, float]:
    """Rows 1:3 of column 0 to rows 3:5 of column 2: both matrices against a layer that does it."""
    lanes = Lanes.of(4, 1, first=1, a=2, b=2, last=1)
    H = lanes.state(**{name: normal(2 + k, len(lanes[name]), 4) for k, name in enumerate(("first", "a", "b", "last"))})
    s, t, (i, j), (k, m) = 0, 2, (1, 3), (3, 5)
    moved, h = mov(lanes, s, t, "a", "b")(H)[:6].numpy(), H[:6].numpy()
    column = np.concatenate([h[:k, t], h[i:j, s], h[m:, t]])
    right = np.column_stack([h[:, :t], column, h[:, t + 1 :]])
    printed = np.column_stack([h[:, :s], np.concatenate([h[:i, t], h[k:m, t], h[j:, t]]), h[:, s + 1 :]])
    return gap(right, moved), gap(printed, moved)


@claim("Lemma 1", "each of mov, mul, div and aff is one transformer layer (to any precision; pads aside)", limit=1e-7)
def lemma_1() -> float:
    """Largest error in any lane of any column; the wanted states by torch matrix algebra."""
    lanes, H = lemma_1_lanes()
    A, B, out, c = (lanes[name] for name in ("A", "B", "out", "c"))
    W1, W2, b = normal(7, 4, 6), normal(8, 4, 6), normal(9, 4)
    errors = []
    for layer, rows, content in (
        (raw(lanes, aff(lanes, "out", W1, "A", W2, "B", b)), out, W1 @ H[A] + W2 @ H[B] + b[:, None]),
        (raw(lanes, mul(lanes, (2, 3, 2), "out", "A", "B")), out, product_of(H[A], H[B], 2, 3, 2)),
        (div(lanes, "B", "A", "c"), B, H[A] / H[c].abs()),
        (mov(lanes, 0, 2, "A", "B"), B, torch.cat([H[B][:, :2], H[A][:, :1], H[B][:, 3:]], dim=1)),
    ):
        wanted = H.clone()
        wanted[rows] = content
        errors.append(layer_gap(lanes, layer, wanted, H))
    return max(errors)


@claim(
    "(11)",
    "w − α ∂/∂w ((wᵀx − y)² + λ‖w‖²) = w − α(xwᵀx − yx + 2λw)",
    "corrected",
    instead="2(xwᵀx − yx) + 2λw; the printed update belongs to ½(wᵀx − y)² + λ‖w‖²",
    limit=1e-12,
    threshold=1e-2,
)
def eq_11() -> tuple[float, float]:
    x, y, lam = normal(10, 3), 0.7, 0.3
    w = normal(11, 3).requires_grad_(True)
    steps = []
    for half in (0.5, 1.0):
        (gradient,) = torch.autograd.grad(half * (w @ x - y) ** 2 + lam * (w @ w), w)
        steps.append(gradient)
    update = x * (w.detach() @ x) - y * x + 2 * lam * w.detach()
    return gap(update, steps[0]), gap(update, steps[1])


@claim("(12)", "Sherman-Morrison, wherever both sides exist", limit=1e-10)
def eq_12() -> float:
    A, u, v = normal(12, 4, 4), normal(13, 4), normal(14, 4)
    inverse = torch.linalg.inv(A)
    update = inverse - torch.outer(inverse @ u, v @ inverse) / (1 + v @ inverse @ u)
    return gap(update, np.linalg.inv((A + torch.outer(u, v)).numpy()))


def grows_like(width: Callable[[int], int], order: int) -> bool:
    """Whether the width is a polynomial in d of this order: differences of order + 1 vanish, those of order do not."""
    widths = [width(d) for d in range(1, 8)]
    return not np.diff(widths, n=order + 1).any() and bool(np.diff(widths, n=order).all())


@claim("Theorem 1", "O(1) layers of O(d) lanes compute w′ᵀxₙ, w′ one gradient step (11) (to any precision)", limit=1e-6)
def theorem_1() -> float:
    """Nine layers, 8d + 9 lanes; d = 2, 3, 5. The layers of the paper, and the package's transformer."""
    size = grows_like(lambda d: chain_lanes(OneStepSGD(d)).width, 1) and len(chain_layers(sgd_chain(5))) == 9
    return max(map(sgd_gap, (2, 3, 5))) if size else math.inf


def ridge_gap(d: int, operations: Sequence[Operation] | None = None) -> float:
    """Error of the fourteen operations, against numpy's inverse."""
    chain, x, y, query = OneStepRidge(d, ridge=0.5), bounded(24, d), bounded(25), bounded(26, d)
    wanted = float(np.linalg.inv(np.outer(x, x) + 0.5 * np.eye(d)) @ x.numpy() @ query.numpy() * float(y))
    lanes, H = state_after(chain, x, y, query, operations)
    return max(abs(float(H[lanes["out"], 2]) - wanted), abs(compiled_answer(chain, x, y, query) - wanted))


@claim("Theorem 2", "O(1) layers of O(d²) lanes compute w′ᵀxₙ, w′ = (xxᵀ + λI)⁻¹xy (to any precision)", limit=1e-6)
def theorem_2() -> float:
    """Fourteen layers, against numpy's inverse; d = 2, 3. The layers of the paper, and the package's transformer."""
    size = grows_like(lambda d: chain_lanes(OneStepRidge(d)).width, 2) and len(chain_layers(OneStepRidge(3))) == 14
    return max(map(ridge_gap, (2, 3))) if size else math.inf


@claim(
    "Sec. 1, layers", "O(1) layers for a step of SGD, O(d) to update exact least squares (Theorem 2: O(1))", limit=0.0
)
def section_1() -> float:
    """How much more than fourteen layers, and than nine, the chains have for d = 1, ..., 8."""
    layers = [[len(make(d).operations()) for d in range(1, 9)] for make in (OneStepSGD, OneStepRidge)]
    return max(abs(max(counts) - most) + abs(min(counts) - most) for counts, most in zip(layers, (9, 14), strict=True))


@claim(
    "App. B, operation 2",
    "the chain of fourteen operations, the second being x₁y",
    "partly",
    instead="thirteen do: x₁y is never read (it would be, with several examples); each of the others is needed",
    limit=1e-6,
    threshold=0.1,
)
def appendix_b_unused() -> tuple[float, float]:
    """The chain without it; printed: without any other operation, the least change of the prediction."""
    every = OneStepRidge(3, ridge=0.5).operations()
    x, y, query = bounded(24, 3), bounded(25), bounded(26, 3)
    lanes, H = state_after(OneStepRidge(3, ridge=0.5), x, y, query)
    whole, changes = float(H[lanes["out"], 2]), {}
    for k in range(len(every) - 1):
        _, H = state_after(OneStepRidge(3, ridge=0.5), x, y, query, every[:k] + every[k + 1 :])
        changes[k] = abs(float(H[lanes["out"], 2]) - whole)
    return changes.pop(1), min(value if math.isfinite(value) else math.inf for value in changes.values())


@claim(
    "App. B, last mul",
    "mul(d, 1, 1, w′, x₂): a d × 1 times a 1 × 1 matrix",
    "corrected",
    instead="mul(1, d, 1): the second block has d entries",
    limit=1e-6,
    threshold=1.0,
)
def appendix_b_last() -> tuple[float, float]:
    """Printed: entries of the two blocks and of the result that do not fit d x 1, 1 x 1 and d x 1."""
    d, shape = 3, (3, 1, 1)
    sizes = [len(chain_lanes(OneStepRidge(d))[name]) for name in ("w", "x", "out")]
    needs = [shape[0] * shape[1], shape[1] * shape[2], shape[0] * shape[2]]
    return ridge_gap(d), float(sum(abs(a - b) for a, b in zip(sizes, needs, strict=True)))


@claim("App. A, layers", "a pass over N examples takes O(N) layers", limit=0.0)
def appendix_a_layers() -> float:
    """Distance of the depth of the package's SGD from a + b N, a and b of N = 1, 2, for N = 1, ..., 6; inf if b is none
    of 1, ..., 9, the layers of a step.
    """
    depths = [ig.OnlineSGD(3).program(ig.Options("gpt", n_examples=n)).n_layers for n in range(1, 7)]
    slope = depths[1] - depths[0]
    line = [depths[0] + slope * (n - 1) for n in range(1, 7)]
    return gap(depths, line) if 1 <= slope <= 9 else math.inf


@claim(
    "App. A, space", "O(N + d) hidden space for N examples, as lanes are used again (here: O(d), whatever N)", limit=0.0
)
def appendix_a_space() -> float:
    """Width of the compiled transformers: its change with N, and its distance from a + b d, a and b of d = 1, 2; inf if
    b is less than 2 (x and w are lanes) or more than 10.
    """
    widths = np.array(
        [[ig.compile(ig.OnlineSGD(d), target="gpt", n_examples=n).d_model for n in (1, 3, 6)] for d in (1, 2, 3, 4)]
    )
    first, slope = widths[0, 0], widths[1, 0] - widths[0, 0]
    line = first + slope * np.arange(4)
    if not 2 <= slope <= 10:
        return math.inf
    return float(max(np.ptp(widths, axis=1).max(), np.abs(widths[:, 0] - line).max()))


@claim(
    "App. B, layers",
    "several iterations will at least require O(N) layers",
    "partly",
    instead="of this construction; attention that averages over the examples gives XᵀX and Xᵀy in one layer, and how "
    "many steps of Newton's the inverse takes depends on the condition and the precision, not on N",
    limit=0.0,
)
def appendix_b_layers() -> float:
    """Second differences of the depth in N; infinite if Newton took two more steps for 640 examples than for 10."""
    depths = [ig.RecursiveLeastSquares(3).program(ig.Options("gpt", n_examples=n)).n_layers for n in range(1, 7)]
    steps = [newton_steps(n) for n in (10, 640)]
    growing = min(np.diff(depths)) > 0 and steps[1] <= steps[0] + 1 and max(steps) < 30
    return float(np.abs(np.diff(depths, n=2)).max()) if growing else math.inf


def newton_steps(n: int) -> int:
    """Steps A <- A (2 - G A) for the inverse of G = X^T X / n + lambda, until G^-1 X^T y / n is exact to 1e-9.

    X^T X / n and X^T y / n are means over the examples.
    """
    X, y = normal(27, n, 3), normal(28, n)
    G, b = X.T @ X / n + 0.1 * eye(3), X.T @ y / n
    exact, A = torch.linalg.solve(G, b), eye(3) / torch.linalg.matrix_norm(G)
    for step in range(100):
        if gap(A @ b, exact) < 1e-9:
            return step
        A = A @ (2 * eye(3) - G @ A)
    return 100


@claim(
    "(13)-(15)",
    "SPD of linear predictors for x′ ~ N(0, I) is their ILW; (14) recovers the weights",
    "definition",
    limit=1e-10,
)
def eq_13() -> float:
    """Ridge regression with two penalties, five datasets; E over x' as the sum over a basis."""
    spd, ilw, errors = 0.0, 0.0, []
    for seed in range(5):
        X, y, probes = normal(200 + seed, 6, 3), normal(210 + seed, 6), normal(220 + seed, 8, 3)
        ws = [torch.linalg.solve(X.T @ X + lam * eye(3), X.T @ y) for lam in (0.01, 2.0)]
        spd += sum(float(((ws[0] - ws[1]) @ e) ** 2) for e in eye(3)) / 5
        implied = [torch.linalg.lstsq(probes, probes @ w).solution for w in ws]
        errors += [gap(a, b) for a, b in zip(implied, ws, strict=True)]
        ilw += float(((implied[0] - implied[1]) ** 2).sum()) / 5
    return max(abs(spd - ilw), *errors) if spd > 1e-3 else math.inf


@claim("(16), (17), (19)", "with noise the best prediction E[y | x, D] is ŵᵀx, ŵ from (18)", limit=1e-10)
def eq_16() -> float:
    """The linear form of the labels of least risk: least squares on a root of the joint covariance of (y, f(x))."""
    X, x, y, sigma, tau = normal(34, 6, 3), normal(35, 3), normal(36, 6), 0.7, 1.4
    points = torch.cat([X, x[None]])
    joint = tau**2 * points @ points.T + sigma**2 * torch.diag(torch.tensor([1.0] * 6 + [0.0], dtype=torch.float64))
    values, vectors = torch.linalg.eigh(joint)
    root = vectors * values.clamp(min=0).sqrt()
    best = torch.linalg.lstsq(root[:-1].T, root[-1]).solution
    w = torch.linalg.solve(X.T @ X + (sigma / tau) ** 2 * eye(3), X.T @ y)
    return abs(float(best @ y - w @ x))


@claim("(18)", "for w ~ N(0, τ²I) and noise σ² the posterior mean is (XᵀX + σ²/τ² I)⁻¹Xᵀy", limit=1e-10)
def eq_18() -> float:
    """Against conditioning the joint Gaussian of (w, y)."""
    X, y, sigma, tau = normal(30, 6, 3), normal(31, 6), 0.7, 1.4
    conditional = tau**2 * X.T @ torch.linalg.solve(tau**2 * X @ X.T + sigma**2 * eye(6), y)
    return gap(torch.linalg.solve(X.T @ X + (sigma / tau) ** 2 * eye(3), X.T @ y), conditional)


@claim(
    "Sec. 4.3, one step",
    "w′ = w₀ − α(XᵀwᵀX − XᵀY + 2λw₀)",
    "corrected",
    instead="w₀ − α(XᵀXw₀ − XᵀY + 2λw₀), the rows of X being xᵢ, of ½‖Xw − Y‖² + λ‖w‖²",
    limit=1e-12,
    threshold=1e-2,
)
def one_step() -> tuple[float, float]:
    """Printed: for n = d, where the product can be read at all, the closest of its readings."""
    X, Y, lam, alpha = normal(37, 3, 3), normal(38, 3), 0.3, 0.2
    w = normal(39, 3).requires_grad_(True)
    (gradient,) = torch.autograd.grad(((X @ w - Y) ** 2).sum() / 2 + lam * (w @ w), w)
    wanted, w0 = (w - alpha * gradient).detach(), w.detach()

    def step(product: Tensor) -> Tensor:
        return w0 - alpha * (product - X.T @ Y + 2 * lam * w0)

    readings = (X.T @ (w0 @ X), (w0 @ X) @ X, X @ (w0 @ X))
    return gap(step(X.T @ X @ w0), wanted), min(gap(step(product), wanted) for product in readings)


@claim(
    "Sec. 4.3, OLS",
    "for fewer examples than d, OLS, (10) with λ = 0, is the weight vector of least norm",
    "partly",
    instead="as the limit λ → 0: with λ = 0 the matrix of (10) is singular",
    limit=1e-6,
    threshold=1e12,
)
def ols() -> tuple[float, float]:
    """Against numpy's least squares, which has the least norm; printed: condition of the matrix."""
    X, y = normal(29, 3, 8), normal(92, 3)
    limit = torch.linalg.solve(X.T @ X + 1e-8 * eye(8), X.T @ y)
    return gap(limit, np.linalg.lstsq(X.numpy(), y.numpy(), rcond=None)[0]), float(np.linalg.cond((X.T @ X).numpy()))


@claim(
    "(20)-(22)",
    "the probe: α = softmax(W_pᵀh), u = W_v h α, t̂ = FF(u) (W_p a vector; T × H′ in C.8 does not fit)",
    "definition",
    limit=1e-12,
)
def eq_20() -> float:
    """What a token holds is read exactly by a probe that attends to it; infinite if the token did not matter."""
    h, W_v = normal(93, 6, 5), normal(94, 2, 6)
    marks = zeros(5)
    marks[3] = 1
    h[0] = marks  # the first lane marks the token
    W_p = zeros(6)
    W_p[0] = 100.0
    alpha = torch.softmax(W_p @ h, dim=0)
    found = [W_v @ h[:, [3]].squeeze(), W_v @ h[:, [2]].squeeze()]
    return gap(W_v @ (h @ alpha), found[0]) if gap(*found) > 0.1 else math.inf


@claim(
    "Sec. 4.3, k-NN",
    "weighted 3-NN predicts with weights |xᵢ − xⱼ|²",
    "corrected",
    instead="weights must fall with the distance, e.g. |xᵢ − xⱼ|⁻²; as printed a neighbour at distance 0 has none",
    limit=1e-6,
    threshold=1e-2,
)
def weighted_neighbours() -> tuple[float, float]:
    """A query next to a training point must get that point's label."""
    X, y = normal(32, 6, 3), normal(33, 6)
    squared = ((X[2] + 1e-6 - X) ** 2).sum(1)
    near = squared.argsort()[:3]
    wrong, right = (squared[near] ** power for power in (1, -1))
    return gap((right @ y[near]) / right.sum(), y[2]), gap((wrong @ y[near]) / wrong.sum(), y[2])
