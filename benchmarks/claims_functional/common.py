"""What the checks share: the layers under test, networks, samples, references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import Tensor

from claims import Paper, normal

PAPER = Paper(
    "003",
    "X. Cheng, Y. Chen, S. Sra, *Transformers Implement Functional Gradient Descent to Learn Non-Linear Functions In "
    "Context*, ICML 2024",
)


claim = PAPER.claim


# Functions that make what a statement is tried on; no mutants of these.
CASES = (
    "orbits",
    "prompt",
    "rotation",
    "signed_permutations",
    "some_layers",
    "some_point",
    "sphere",
    "two_layers",
)


Activation = Callable[[Tensor, Tensor], Tensor]


Layer = tuple[Tensor, Tensor, Tensor]  # V, B, C


Array = npt.NDArray[np.float64]


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


def entry_by_entry(Z: Array, layers: list[Layer], h: Activation) -> Array:
    """(3) in loops over tokens: the query's token is read by none; one of h at a time, by :func:`scalar`."""
    d, tokens = Z.shape[0] - 1, Z.shape[1]
    for V, B, C in layers:
        keys, queries = B.numpy() @ Z[:d], C.numpy() @ Z[:d]
        new = Z.copy()
        for j in range(tokens):
            weights = scalar(h, [float(keys[:, i] @ queries[:, j]) for i in range(tokens - 1)])
            new[:, j] += sum(w * (V.numpy() @ Z[:, i]) for i, w in enumerate(weights))
        Z = new
    return Z


def scalar(h: Activation, scores: list[float]) -> list[float]:
    """What a column of h is, by the math module."""
    if h is softmax:
        total = sum(map(math.exp, scores))
        return [math.exp(score) / total for score in scores]
    functions: dict[Activation, Callable[[float], float]] = {linear: float, relu: lambda t: max(t, 0.0), exp: math.exp}
    f = functions[h]
    return [f(score) for score in scores]


def some_layers() -> list[Layer]:
    """Two layers of full matrices."""
    return [(0.3 * normal(s, 4, 4), 0.6 * normal(s + 1, 3, 3), 0.6 * normal(s + 2, 3, 3)) for s in (4, 7)]


def unit_descent(K: Tensor, y: Tensor, rates: list[float]) -> tuple[Tensor, list[float]]:
    """f_0, f_1, ... with the *unit* direction of (7), downhill, and the step r' that each took along (9)."""
    f, states, steps = zeros(len(K)), [zeros(len(K))], []
    for r in rates:
        a = zeros(len(K)).requires_grad_(True)
        (slope,) = torch.autograd.grad(((f[: len(y)] + K[: len(y)] @ a - y) ** 2).sum(), a)
        g = torch.linalg.pinv(K, rcond=1e-13, hermitian=True) @ slope  # coefficients of the gradient in H
        norm = float(g @ K @ g) ** 0.5
        f = f - r * (K @ g) / norm
        states.append(f)
        steps.append(2 * r / norm)
    return torch.stack(states), steps


@cache
def gaussian_process() -> tuple[Tensor, Tensor, Tensor, float]:
    """Points, labels, Gram matrix of the examples, and scikit-learn's posterior mean at the query (Remark 3.2)."""
    X, y = sphere(40, 4, 6), normal(41, 5)
    model = GaussianProcessRegressor(ConstantKernel(math.e) * RBF(1.0), alpha=0.0, optimizer=None)
    mean = model.fit(X.T[:5].numpy(), y.numpy()).predict(X.T[5:].numpy())
    return X, y, exp(X, X)[:5, :5], float(mean[0])


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


def propagator(X: Tensor, layers: list[Layer], h: Activation) -> Tensor:
    """G with Y_{k+1} = Y_0 G: the label lane of the transformer itself, for label rows e_1, ..., e_{n+1}."""
    n = X.shape[-1]
    Z = torch.cat([X.expand(n, -1, -1), eye(n)[:, None]], dim=1)
    return transformer(Z, layers, h)[-1, :, -1]


def two_layers(A: Tensor) -> list[Layer]:
    return [(value(r, A), 0.6 * normal(s, 3, 3), 0.6 * normal(s + 1, 3, 3)) for r, s in ((-0.3, 112), (-0.2, 114))]


def states(X: Tensor, layers: list[Layer], h: Activation) -> Tensor:
    """X_0, X_1, ... of (20)."""
    return transformer(torch.cat([X, X[:1]]), layers, h)[:, :-1]
