"""What the checks share: the layers under test, networks, samples, references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from claims import Paper, normal

PAPER = Paper("000", "*Transformers Perform In-Context Learning through Neural Networks* (the version under review)")


claim = PAPER.claim


# Functions that make what a statement is tried on; no mutants of these.
CASES = ("data", "fit_line", "fit_plane", "fit_product", "grids", "solve", "uniform")


Array = npt.NDArray[np.float64]


Scalar = Callable[[Tensor], Tensor]


Dictionary = tuple[Tensor, Tensor]  # a, beta of sum_m beta_m sigma(<a_m, [inputs; 1]>)


ETA = 0.3


SIGMAS: dict[str, Scalar] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
}


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def uniform(seed: int, *shape: int) -> Tensor:
    """Uniform in [-1, 1]."""
    return 2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1


@dataclass
class Heads:
    """Heads of an attention layer; V of each is e_out (row vector), as in all of the paper."""

    width: int
    rows: int
    Q: list[Tensor] = field(default_factory=list)
    K: list[Tensor] = field(default_factory=list)
    V: list[Tensor] = field(default_factory=list)
    out: list[int] = field(default_factory=list)

    def add(self, q: Sequence[Tensor], k: Sequence[Tensor], value: Tensor, out: int) -> None:
        """q, k: the rows of Q, K; value: what V reads; out: the lane that it writes."""
        pad = [zeros(self.width)] * (self.rows - len(q))
        self.Q.append(torch.stack([*q, *pad]))
        self.K.append(torch.stack([*k, *pad]))
        self.V.append(value)
        self.out.append(out)


def attention(H: Tensor, heads: Heads, sigma: Scalar, *, matrix_form: bool = False, divisor: int = 0) -> Tensor:
    """Definition 1, column form: h_i + (1/columns) sum_m sum_j sigma(<Q h_i, K h_j>) V h_j.

    The matrix form printed above it, V H sigma((Q H)^T (K H)), has <Q h_j, K h_i> instead.
    """
    Q, K = torch.stack(heads.Q) @ H, torch.stack(heads.K) @ H
    scores = torch.einsum("mrj,mri->mji", Q, K) if matrix_form else torch.einsum("mri,mrj->mji", Q, K)
    written = torch.einsum("mj,mji->mi", torch.stack(heads.V) @ H, sigma(scores)) / (divisor or H.shape[1])
    return H.index_add(0, torch.tensor(heads.out), written)


def mlp(H: Tensor, W1: Tensor, W2: Tensor, sigma: Scalar) -> Tensor:
    """Definition 2."""
    return H + W2 @ sigma(W1 @ H)


class Lanes:
    """Named rows of the hidden state."""

    def __init__(self, **sizes: int) -> None:
        ends = list(itertools.accumulate(sizes.values()))
        self.index = {name: list(range(e - n, e)) for (name, n), e in zip(sizes.items(), ends, strict=True)}
        self.width = ends[-1]

    def __getitem__(self, name: str) -> list[int]:
        return self.index[name]

    def e(self, name: str, i: int = 0) -> Tensor:
        """Unit row that reads lane i of a name."""
        return eye(self.width)[self[name][i]]


def split(w: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Definition 4: W^(1), ..., W^(n) from a flat vector; widths = (d, K_1, ..., K_n = 1)."""
    sizes = [a * b for a, b in itertools.pairwise(widths)]
    return [P.reshape(b, a) for P, (a, b) in zip(torch.split(w, sizes), itertools.pairwise(widths), strict=True)]


def parameters(widths: Sequence[int]) -> int:
    return sum(a * b for a, b in itertools.pairwise(widths))


def predict(w: Tensor, X: Tensor, widths: Sequence[int], r: Scalar = torch.tanh) -> Tensor:
    """Definition 4, on the columns of X; built of torch's linear layers."""
    p = X.T
    for i, W in enumerate(split(w, widths)):
        p = F.linear(r(p) if i else p, W)
    return p[:, 0]


def gradient(w: Tensor, X: Tensor, y: Tensor, widths: Sequence[int], scale: float) -> Tensor:
    """Autograd of scale * sum_i l(pred(x_i), y_i), l(p, y) = (p - y)^2."""
    leaf = w.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(scale * ((predict(leaf, X, widths) - y) ** 2).sum(), leaf)
    return slope


@dataclass(frozen=True)
class Data:
    X: Tensor
    y: Tensor
    w: Tensor
    widths: tuple[int, ...]

    @property
    def examples(self) -> int:
        return len(self.y)

    def step(self) -> Tensor:
        """w - eta grad L_N(w), L_N = 1/(2N) sum l, by autograd."""
        n = self.examples
        return self.w - ETA * gradient(self.w, self.X[:, :n], self.y, self.widths, 1 / (2 * n))

    def prompt(self, lanes: Lanes) -> Tensor:
        """Remark 1: columns [x_i; y_i'; w; 0; 1; t_i]."""
        H = zeros(lanes.width, self.examples + 1)
        H[lanes["x"]] = self.X
        H[lanes["y"], :-1] = self.y
        H[lanes["w"]] = self.w[:, None]
        H[lanes["one"]] = 1
        H[lanes["t"], :-1] = 1
        return H


def data(seed: int, widths: tuple[int, ...], examples: int = 7) -> Data:
    """x in [-1, 1]^d, |y| <= 1, weights of modulus at most 0.8; the query is the last column of X."""
    X, y = uniform(seed, widths[0], examples + 1), uniform(seed + 1, examples)
    return Data(X, y, 0.8 * uniform(seed + 2, parameters(widths)), widths)


def evaluate(dictionary: Dictionary, *inputs: Tensor, sigma: Scalar = F.gelu) -> Tensor:
    a, beta = dictionary
    ones = torch.ones_like(inputs[0])
    return sigma(torch.stack([*inputs, ones], dim=-1) @ a.T) @ beta


def solve(columns: Tensor, target: Tensor) -> Tensor:
    return torch.as_tensor(np.linalg.lstsq(columns.numpy(), target.numpy(), rcond=1e-13)[0])


@cache
def fit_line(f: Scalar, terms: int = 48, radius: float = 3.0, sigma: Scalar = F.gelu) -> Dictionary:
    """f(t) on [-radius, radius] as a sum of sigma(a t + b): knots on a grid, least squares."""
    t = torch.linspace(-radius, radius, 600, dtype=torch.float64)
    knots = torch.linspace(-1.1 * radius, 1.1 * radius, terms, dtype=torch.float64)
    slopes = 1.7 * (1 + 0.05 * normal(1, terms)) * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(terms)[:terms]
    a = torch.stack([slopes, -slopes * knots], dim=1)
    return a, solve(sigma(torch.stack([t, torch.ones_like(t)], dim=1) @ a.T), f(t))


@cache
def fit_product(radius: float = 3.0, sigma: Scalar = F.gelu) -> Dictionary:
    """u v = ((u + v)^2 - (u - v)^2) / 4 for |u| + |v| <= radius, z^2 a sum of sigma(z/s) + sigma(-z/s) up to 1."""
    z = torch.linspace(-radius, radius, 800, dtype=torch.float64)
    scales = radius * torch.logspace(math.log10(2), math.log10(16), 5, dtype=torch.float64)
    even = torch.stack([sigma(z / s) + sigma(-z / s) for s in scales] + [torch.ones_like(z)], dim=1)
    c = solve(even, z**2)[:-1] / 4
    terms = [
        ((p / s, p * q / s, 0.0), q * float(v))
        for s, v in zip(scales, c, strict=True)
        for p in (1, -1)
        for q in (1, -1)
    ]
    a = torch.tensor([[float(x) for x in term] for term, _ in terms], dtype=torch.float64)
    return a, torch.tensor([beta for _, beta in terms], dtype=torch.float64)


def slope_of(r: Scalar) -> Scalar:
    """r' by autograd."""

    def derivative(t: Tensor) -> Tensor:
        leaf = t.detach().clone().requires_grad_(True)
        (found,) = torch.autograd.grad(r(leaf).sum(), leaf)
        return found

    return derivative


tanh_slope = slope_of(torch.tanh)


@cache
def fit_plane(terms: int = 220, radius: float = 2.0, sigma: Scalar = F.gelu) -> Dictionary:
    """P(s, t): s tanh'(t) on [-radius, radius]^2, random directions, least squares."""
    grid = radius * torch.cos(torch.linspace(0, math.pi, 41, dtype=torch.float64))
    points = torch.cartesian_prod(grid, grid)
    directions = F.normalize(normal(2, terms, 2), dim=1) * (0.6 + 1.6 * (uniform(3, terms, 1) + 1) / 2)
    a = torch.cat([directions, 1.5 * radius * uniform(4, terms, 1)], dim=1)
    inputs = torch.cat([points, torch.ones(len(points), 1, dtype=torch.float64)], dim=1)
    return a, solve(sigma(inputs @ a.T), points[:, 0] * tanh_slope(points[:, 1]))


def add_own(
    heads: Heads, dictionary: Dictionary, inputs: Sequence[Tensor], value: Tensor, out: int, one: Tensor
) -> None:
    """Writes sum_m beta_m sigma(<a_m, [inputs of token i; 1]>) times the (shared) value lane into lane out."""
    for a, beta in zip(*dictionary, strict=True):
        heads.add([c * lane for c, lane in zip(a, [*inputs, one], strict=True)], [one] * len(a), beta * value, out)


def add_inner(
    heads: Heads, dictionary: Dictionary, x: Sequence[Tensor], v: Sequence[Tensor], value: Tensor, out: int, one: Tensor
) -> None:
    """The first layer: Q h_i = [a x_i; b], K h_j = [v; 1]: sum_m beta_m sigma(a_m <v, x_i> + b_m)."""
    for (a, b), beta in zip(*dictionary, strict=True):
        heads.add([*(a * lane for lane in x), b * one], [*v, one], beta * value, out)


def add_mean(
    heads: Heads, dictionary: Dictionary, inputs: Sequence[Tensor], scale: float, out: int, one: Tensor
) -> None:
    """The last layer: Q constant, K h_j = [inputs of token j; 1]: the mean over j of scale * the dictionary's sum."""
    for a, beta in zip(*dictionary, strict=True):
        heads.add([c * one for c in a], [*inputs, one], scale * beta * one, out)


def product_units(pairs: Sequence[tuple[Tensor, Tensor, float, int]], one: Tensor) -> tuple[Tensor, Tensor]:
    """W_1, W_2 of Definition 2: lane out += c (u . h)(v . h) for every (u, v, c, out)."""
    a, beta = fit_product()
    W1 = torch.cat([a[:, :1] * u + a[:, 1:2] * v + a[:, 2:] * one for u, v, _, _ in pairs])
    W2 = torch.cat([c * torch.outer(eye(len(one))[out], beta) for _, _, c, out in pairs], dim=1)
    return W1, W2


def clearing_units(lanes: Lanes, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """gelu(z) - gelu(-z) = z: takes lanes away exactly."""
    rows = torch.stack([eye(lanes.width)[i] for name in names for i in lanes[name]])
    return torch.cat([rows, -rows]), torch.cat([-rows, rows]).T


def update(lanes: Lanes, sources: Sequence[Tensor], examples: int) -> Heads:
    """w -= eta/(2N) sum_j g_j (gradient lane)_j: the last attention, with the paper's N + 1 and its 1/N halved."""
    heads = Heads(lanes.width, 3)
    for out, lane in zip(lanes["w"], sources, strict=True):
        scale = -(examples + 1) * ETA / (2 * examples)
        add_mean(heads, fit_product(), [lanes.e("g"), lane], scale, out, lanes.e("one"))
    return heads


def two_layers(d: int, K: int) -> Lanes:
    return Lanes(x=d, y=1, w=K * d + K, pred=1, r=K, T=K, g=1, G=K * d, one=1, t=1)


def transformer_2(H: Tensor, d: int, K: int, terms: int = 48, *, cleared: bool = True) -> Tensor:
    """Theorem 1, two layers: one step on W^(2) r(W^(1) x), r = tanh, sigma = GeLU."""
    lanes = two_layers(d, K)
    one, x = lanes.e("one"), [lanes.e("x", c) for c in range(d)]
    first = Heads(lanes.width, d + 1)
    r, slope = fit_line(torch.tanh, terms), fit_line(tanh_slope, terms)
    for k in range(K):
        v, u = [lanes.e("w", k * d + c) for c in range(d)], lanes.e("w", K * d + k)
        add_inner(first, r, x, v, u, lanes["pred"][0], one)
        add_inner(first, r, x, v, one, lanes["r"][k], one)
        add_inner(first, slope, x, v, u, lanes["T"][k], one)
    H = attention(H, first, F.gelu)
    pairs = [(lanes.e("pred") - lanes.e("y"), lanes.e("t"), 2.0, lanes["g"][0])]
    pairs += [(lanes.e("T", k), x[c], 1.0, lanes["G"][k * d + c]) for k in range(K) for c in range(d)]
    H = mlp(H, *product_units(pairs, one), F.gelu)
    sources = [lanes.e("G", i) for i in range(K * d)] + [lanes.e("r", k) for k in range(K)]
    H = attention(H, update(lanes, sources, H.shape[1] - 1), F.gelu)
    return mlp(H, *clearing_units(lanes, ["pred", "r", "T", "g", "G"]), F.gelu) if cleared else H


def three_layers() -> Lanes:
    """d = K_1 = K_2 = 2."""
    return Lanes(x=2, y=1, w=10, p1=2, q=2, T=4, s=8, pred=1, g=1, G1=4, G2=4, Gu=2, one=1, t=1)


def transformer_3(H: Tensor) -> Tensor:
    """Theorem 2 for n = 3 in three layers: forward mode, every level once."""
    lanes = three_layers()
    one, x = lanes.e("one"), [lanes.e("x", c) for c in range(2)]
    r, slope, P = fit_line(torch.tanh), fit_line(tanh_slope), fit_plane()
    first, second = Heads(lanes.width, 3), Heads(lanes.width, 3)
    pairs = []
    for j in range(2):
        v = [lanes.e("w", 2 * j + c) for c in range(2)]
        add_inner(first, r, x, v, one, lanes["p1"][j], one)
        for k in range(2):
            v_kj = lanes.e("w", 4 + 2 * k + j)
            add_inner(first, r, x, v, v_kj, lanes["q"][k], one)
            add_inner(first, slope, x, v, v_kj, lanes["T"][2 * k + j], one)
            pairs += [(lanes.e("T", 2 * k + j), x[c], 1.0, lanes["s"][4 * k + 2 * j + c]) for c in range(2)]
    H = mlp(attention(H, first, F.gelu), *product_units(pairs, one), F.gelu)
    for k in range(2):
        q, u = lanes.e("q", k), lanes.e("w", 8 + k)
        add_own(second, r, [q], u, lanes["pred"][0], one)
        add_own(second, r, [q], one, lanes["Gu"][k], one)
        for i in range(4):
            add_own(second, P, [lanes.e("s", 4 * k + i), q], u, lanes["G1"][i], one)
        for j in range(2):
            add_own(second, P, [lanes.e("p1", j), q], u, lanes["G2"][2 * k + j], one)
    H = attention(H, second, F.gelu)
    H = mlp(H, *product_units([(lanes.e("pred") - lanes.e("y"), lanes.e("t"), 2.0, lanes["g"][0])], one), F.gelu)
    sources = [lanes.e(name, i) for name, n in (("G1", 4), ("G2", 4), ("Gu", 2)) for i in range(n)]
    return attention(H, update(lanes, sources, H.shape[1] - 1), F.gelu)


def layers(n: int) -> int:
    """n - 1 forward, a_{n-1} for the inner gradients, one for P, one for the loss; a_2 = 2."""
    total = 2
    for level in range(3, n + 1):
        total = (level - 1) + total + 2
    return total


def matrices(n: int, K: int, d: int) -> float:
    """Layers times heads, a head per parameter in the last attention (up to the factor M of the dictionary)."""
    return layers(n) * float(parameters((d, *[K] * (n - 1), 1)))


def twice(z: Tensor) -> Tensor:
    return 2 * z


@cache
def grids() -> tuple[Array, Array, Array]:
    """omega, b, x: trapezoidal sums over the first two are exact to rounding for Gaussians."""
    return np.linspace(-8, 8, 161)[:, None, None], np.linspace(-22, 22, 441)[None, :, None], np.linspace(-1.5, 1.5, 7)


def target(x: Array) -> Array:
    return np.exp(-((x - 0.3) ** 2) / 2)
