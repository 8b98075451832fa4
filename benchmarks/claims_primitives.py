"""Checks of *What Learning Algorithm Is In-Context Learning? Investigations with Linear Models* (004).

The layer under test is (1)-(7) of the paper, :class:`Layer`: causal softmax heads with the "imaginary" timestep of
score 0, GeLU and LayerNorm from torch. The matrices of the RAW operator are written from the paper's index equations in
:func:`raw`; each equation that is wrong can be put back as printed, alone or with the others. What a layer should do is
computed by loops over columns in :func:`raw_definition`, by numpy, SciPy or autograd. The chains of Theorems 1 and 2
are those of ``innergrad.algorithms.raw``: its operations become the matrices of the paper here, and those of a compiled
transformer there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from scipy import stats
from sklearn.linear_model import LinearRegression, Ridge
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from claims import Paper, gap, normal
from innergrad.algorithms.raw import Aff, Chain, Div, Mov, Mul, OneStepRidge, OneStepSGD, Operation

PAPER = Paper(
    "004",
    "E. Akyürek, D. Schuurmans, J. Andreas, T. Ma, D. Zhou, *What Learning Algorithm Is In-Context Learning? "
    "Investigations with Linear Models*, ICLR 2023 (the version under review)",
)
claim = PAPER.claim

SHARP = 60.0  # scores +-SHARP: what leaks past the softmax is e^-60
PAD = 1e6  # N of Lemma 6
BYPASS = 40.0  # N of Lemma 5: GeLU(40 + x) = 40 + x in float64
SCALE = 3e4  # N of (93)-(95): inputs of the product are divided by it


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


# --------------------------------------------------------------------------------------------------------- the layer


@dataclass(frozen=True)
class Layer:
    """(1)-(7): heads (W^Q, W^K, W^V), W^F, and W_out GeLU(W_in LN(a + h) + b_in) + b_out; columns are tokens.

    imaginary: with the timestep of score 0 that sec. C.4.1 adds.
    """

    heads: tuple[tuple[Tensor, Tensor, Tensor], ...]
    WF: Tensor
    W_in: Tensor
    b_in: Tensor
    W_out: Tensor
    b_out: Tensor
    imaginary: bool = True

    def attended(self, H: Tensor) -> Tensor:
        """a + h."""
        T = H.shape[1]
        future = torch.ones(T, T).triu(1).bool()
        outputs = []
        for WQ, WK, WV in self.heads:
            scores = ((WQ @ H).T @ (WK @ H)).masked_fill(future, -math.inf)
            first = zeros(T, 1) if self.imaginary else torch.full((T, 1), -math.inf, dtype=torch.float64)
            weights = torch.softmax(torch.cat([first, scores], dim=1), dim=1)[:, 1:]
            outputs.append(WV @ H @ weights.T)
        return H + self.WF @ torch.cat(outputs)

    def before(self, H: Tensor) -> Tensor:
        """Input of the nonlinearity, u."""
        x = self.attended(H)
        normalised = F.layer_norm(x.T, (len(x),), eps=0.0).T
        return self.W_in @ normalised + self.b_in[:, None]

    def hidden(self, H: Tensor) -> Tensor:
        """Output of the nonlinearity, v."""
        return F.gelu(self.before(H))

    def __call__(self, H: Tensor) -> Tensor:
        return self.attended(H) + self.W_out @ self.hidden(H) + self.b_out[:, None]


@dataclass(frozen=True)
class Lanes:
    """Named rows of the hidden state: data, scratch t, t_a, t_b, t_c, a one-hot position code, two pads."""

    index: dict[str, list[int]]

    @classmethod
    def of(cls, columns: int, scratch: int, **data: int) -> Lanes:
        sizes = data | dict.fromkeys(("t", "ta", "tb", "tc"), scratch) | {"pos": columns, "p1": 1, "p2": 1}
        ends = list(itertools.accumulate(sizes.values()))
        return cls({name: list(range(e - n, e)) for (name, n), e in zip(sizes.items(), ends, strict=True)})

    def __getitem__(self, name: str) -> list[int]:
        return self.index[name]

    @property
    def width(self) -> int:
        return sum(map(len, self.index.values()))

    @property
    def columns(self) -> int:
        return len(self["pos"])

    @property
    def visible(self) -> list[int]:
        """All but the pads, which every layer writes afresh."""
        return [i for name, rows in self.index.items() if name not in ("p1", "p2") for i in rows]

    def state(self, **data: Tensor) -> Tensor:
        """A hidden state: the given lanes and the position code, the rest 0."""
        H = zeros(self.width, self.columns)
        H[self["pos"]] = eye(self.columns)
        for name, rows in data.items():
            H[self[name]] = rows
        return H


def attends(lanes: Lanes, pattern: Tensor) -> tuple[Tensor, Tensor]:
    """W^Q, W^K for a 0/1 pattern: column i reads column j where it is 1, and nothing where its row is 0."""
    WQ, WK = zeros(lanes.columns, lanes.width), zeros(lanes.columns, lanes.width)
    WQ[:, lanes["pos"]] = SHARP * (2 * pattern.T - 1)
    WK[:, lanes["pos"]] = eye(lanes.columns)
    return WQ, WK


def fresh_pads(lanes: Lanes, W: Tensor) -> Tensor:
    """Rows p1, p2 of W^V in the self-attending head: pads become N - S/2 and -N - S/2, S the sum of the other lanes."""
    for pad, sign in ((lanes["p1"], 1.0), (lanes["p2"], -1.0)):
        W[pad] = 0
        W[pad, lanes.visible] = -0.5
        W[pad, lanes["pos"]] += sign * PAD
        W[pad, pad] = -1
    return W


def balanced(lanes: Lanes, WF: Tensor) -> Tensor:
    """W^F with rows p1, p2 such that what a head writes into other lanes leaves the mean at 0."""
    writes = WF[lanes.visible].sum(0)
    for pad in (lanes["p1"], lanes["p2"]):
        WF[pad] = WF[pad] - writes / 2
    return WF


def unnormalise(lanes: Lanes) -> float:
    """sqrt(2/L) N of Lemma 6."""
    return math.sqrt(2 / lanes.width) * PAD


# --------------------------------------------------------------------------------------------------------------- RAW


@dataclass(frozen=True)
class Raw:
    """Definition C.2: h_i[w] <- W_o((W_a mean_{k in K(i)} h_k[r]) op (W h_i[s])) + b; K a 0/1 matrix."""

    op: str
    w: Sequence[int]
    r: Sequence[int]
    s: Sequence[int]
    Wo: Tensor
    Wa: Tensor
    W: Tensor
    K: Tensor
    b: Tensor


def raw_definition(p: Raw, H: Tensor) -> Tensor:
    """(27), (28), column by column."""
    h, out = H.numpy(), H.numpy().copy()
    for i in range(h.shape[1]):
        sources = [j for j in range(h.shape[1]) if p.K[i, j]]
        read = sum((h[list(p.r), j] for j in sources), np.zeros(len(p.r))) / max(len(sources), 1)
        left, right = p.Wa.numpy() @ read, p.W.numpy() @ h[list(p.s), i]
        out[list(p.w), i] = p.Wo.numpy() @ (left * right if p.op == "*" else left + right) + p.b.numpy()
    return torch.as_tensor(out)


def raw(lanes: Lanes, p: Raw, printed: Collection[str] = ()) -> Layer:
    """The layer of section C.4, corrected; the equations named in ``printed`` are as in the paper."""
    n, D = len(p.Wa), lanes.width
    t = lanes["t"][:n]
    read, self_read, WF = zeros(D, D), zeros(D, D), zeros(D, 2 * D)
    set_block(read, t, p.r, p.Wa)  # (56)
    set_block(self_read, t, t, eye(n))  # (57), corrected
    if "57" in printed:
        self_read[t] = 0
        set_block(self_read, t, p.r, -torch.ones(n, len(p.r), dtype=torch.float64))
    set_block(WF, t, t, eye(n))  # (58)
    set_block(WF, t, [i + D for i in t], -eye(n))  # (59)
    for pad in (*lanes["p1"], *lanes["p2"]):
        WF[pad, D + pad] = 1
    heads = ((*attends(lanes, p.K), read), (*attends(lanes, eye(lanes.columns)), fresh_pads(lanes, self_read)))
    mlp = raw_product(lanes, p, t, printed) if p.op == "*" else raw_sum(lanes, p, t, printed)
    W_in, b_in, W_out, b_out = mlp
    return Layer(heads, balanced(lanes, WF), unnormalise(lanes) * W_in, b_in, W_out, b_out)


def set_block(W: Tensor, rows: Sequence[int], columns: Sequence[int], block: Tensor) -> None:
    W[torch.tensor(list(rows))[:, None], torch.tensor(list(columns))[None, :]] = block


Mlp = tuple[Tensor, Tensor, Tensor, Tensor]


def overwrite(D: int, t: Sequence[int], w: Sequence[int]) -> Mlp:
    """(70), (71), (74)-(77), (84), (85), (88): units that take the old content of t and w out of the stream."""
    W_in, b_in, W_out, b_out = zeros(D, D), torch.full((D,), -BYPASS, dtype=torch.float64), zeros(D, D), zeros(D)
    for lanes in (list(t), list(w)):
        set_block(W_in, lanes, lanes, -eye(len(lanes)))
        set_block(W_out, lanes, lanes, eye(len(lanes)))
        b_in[lanes], b_out[lanes] = BYPASS, -BYPASS
    return W_in, b_in, W_out, b_out


def raw_sum(lanes: Lanes, p: Raw, t: Sequence[int], printed: Collection[str]) -> Mlp:
    """(64)-(90)."""
    n, w = len(t), list(p.w)
    W_in, b_in, W_out, b_out = overwrite(lanes.width, t, w)
    hat = lanes["ta"][:n]
    set_block(W_in, hat, p.s, p.W)  # (68)
    set_block(W_in, hat, t, torch.ones(n, n, dtype=torch.float64) if "69" in printed else eye(n))  # (69)
    b_in[hat] = BYPASS  # (76)
    set_block(W_out, w, hat, p.Wo)  # (83)
    b_out[w] += p.b - BYPASS * p.Wo.sum(1)  # (87)
    return W_in, b_in, W_out, b_out


def raw_product(lanes: Lanes, p: Raw, t: Sequence[int], printed: Collection[str]) -> Mlp:
    """(93)-(125)."""
    n, w = len(t), list(p.w)
    W_in, b_in, W_out, b_out = overwrite(lanes.width, t, w)
    ta, tb, tc = (lanes[name][:n] for name in ("ta", "tb", "tc"))
    ones = torch.ones(n, n, dtype=torch.float64)
    set_block(W_in, ta, p.s, p.W / SCALE)  # (100)
    set_block(W_in, ta, t, (ones if "101" in printed else eye(n)) / SCALE)
    set_block(W_in, tb, t, eye(n) / SCALE)  # (102)
    set_block(W_in, tc, p.s, (torch.eye(*p.W.shape, dtype=torch.float64) if "103" in printed else p.W) / SCALE)
    b_in[ta + tb + tc] = 0  # (107)
    if "107" in printed:
        b_in[list(t)] = 0
    power = 1 if "118" in printed else 2
    for units, sign in ((ta, 1), (tb, -1), (tc, -1)):  # (118)-(120)
        set_block(W_out, w, units, sign * p.Wo * SCALE**power * math.sqrt(math.pi / 2))
    if "124" in printed:
        b_out[w + list(t)] = BYPASS
    b_out[w] += p.b
    return W_in, b_in, W_out, b_out


# -------------------------------------------------------------------------------------------- primitives of Lemma 1


def itself(lanes: Lanes) -> Tensor:
    return eye(lanes.columns)


def aff(lanes: Lanes, w: str, W1: Tensor, r: str, W2: Tensor, s: str, b: Tensor | None = None) -> Raw:
    """w <- W_1 h[r] + W_2 h[s] + b."""
    rows = len(lanes[w])
    bias = zeros(rows) if b is None else b
    return Raw("+", lanes[w], lanes[r], lanes[s], eye(rows), W1, W2, itself(lanes), bias)


def mul(lanes: Lanes, shape: tuple[int, int, int], w: str, r: str, s: str) -> Raw:
    """w <- the a x b matrix in r times the b x c matrix in s; one scratch lane per scalar product."""
    a, b, c = shape
    Wa, W, Wo = zeros(a * b * c, a * b), zeros(a * b * c, b * c), zeros(a * c, a * b * c)
    for m, (i, j, k) in enumerate(itertools.product(range(a), range(b), range(c))):
        Wa[m, i * b + j] = W[m, j * c + k] = Wo[i * c + k, m] = 1
    return Raw("*", lanes[w], lanes[r], lanes[s], Wo, Wa, W, itself(lanes), zeros(a * c))


def only(lanes: Lanes, column: int, source: int) -> Tensor:
    """One column reads one source; all others read nothing."""
    pattern = zeros(lanes.columns, lanes.columns)
    pattern[column, source] = 1
    return pattern


def mov(lanes: Lanes, source: int, target: int, r: str, w: str) -> Layer:
    """Two heads, which in all other columns attend to the imaginary timestep: + h_source[r] - h_target[w]; no MLP."""
    D = lanes.width
    new, old, WF = zeros(D, D), zeros(D, D), zeros(D, 2 * D)
    set_block(new, lanes[w], lanes[r], eye(len(lanes[w])))
    set_block(old, lanes[w], lanes[w], eye(len(lanes[w])))
    set_block(WF, lanes[w], lanes[w], eye(len(lanes[w])))
    set_block(WF, lanes[w], [i + D for i in lanes[w]], -eye(len(lanes[w])))
    heads = ((*attends(lanes, only(lanes, target, source)), new), (*attends(lanes, only(lanes, target, target)), old))
    return Layer(heads, WF, zeros(D, D), zeros(D), zeros(D, D), zeros(D))


def div(lanes: Lanes, w: str, r: str, c: str) -> Layer:
    """w <- h[r] / |h[c]|: attention clears w and makes the pads +-N c - S/2; LayerNorm then divides lanes by |c|."""
    D, rows = lanes.width, len(lanes[w])
    WV, W_in, W_out = fresh_pads(lanes, zeros(D, D)), zeros(2 * rows, D), zeros(D, 2 * rows)
    for pad, sign in ((lanes["p1"], 1.0), (lanes["p2"], -1.0)):
        WV[pad, lanes["pos"]] -= sign * PAD
        WV[pad, lanes[c]] += sign * PAD
    set_block(WV, lanes[w], lanes[w], -eye(rows))
    set_block(W_in, range(rows), lanes[r], eye(rows))
    set_block(W_in, range(rows, 2 * rows), lanes[r], -eye(rows))
    set_block(W_out, lanes[w], range(rows), eye(rows))
    set_block(W_out, lanes[w], range(rows, 2 * rows), -eye(rows))  # GeLU(z) - GeLU(-z) = z
    heads = ((*attends(lanes, itself(lanes)), WV),)
    return Layer(heads, balanced(lanes, eye(D)), unnormalise(lanes) * W_in, zeros(2 * rows), W_out, zeros(D))


def layer_gap(lanes: Lanes, layer: Layer, wanted: Tensor, H: Tensor) -> float:
    """Largest error in any lane but the pads."""
    return gap(layer(H)[lanes.visible], wanted[lanes.visible])


# ------------------------------------------------------------------------------------------ sections 2 to 4: formulas


def random_layer(seed: int, D: int = 5, imaginary: bool = False) -> Layer:
    """Two heads and full matrices."""
    heads = tuple((normal(s, D, D) / 2, normal(s + 1, D, D) / 2, normal(s + 2, D, D) / 2) for s in (seed, seed + 10))
    rest = [normal(seed + 30 + k, *shape) / 2 for k, shape in enumerate([(D, 2 * D), (7, D), (7,), (D, 7), (D,)])]
    WF, W_in, b_in, W_out, b_out = rest
    return Layer(heads, WF, W_in, b_in, W_out, b_out, imaginary)


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
    return max(gap(erf_gelu(x), x.numpy() * stats.norm.cdf(x.numpy())), gap(erf_gelu(x), F.gelu(x)))


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


def lemma_1_lanes() -> tuple[Lanes, Tensor]:
    """Lanes A (2 x 3), B (3 x 2), out (2 x 2), c, with random content in four columns."""
    lanes = Lanes.of(4, 12, A=6, B=6, out=4, c=1)
    content = {name: normal(3 + k, len(lanes[name]), 4) for k, name in enumerate(("A", "B", "out"))}
    return lanes, lanes.state(**content, c=torch.tensor([1.3, -0.7, 2.0, -1.1], dtype=torch.float64))


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


def product_of(A: Tensor, B: Tensor, a: int, b: int, c: int) -> Tensor:
    """Matrix products of the columns, read as a x b and b x c matrices."""
    return torch.stack([(x.reshape(a, b) @ z.reshape(b, c)).flatten() for x, z in zip(A.T, B.T, strict=True)], dim=1)


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


def literal(lanes: Lanes, operation: Operation) -> Layer:
    """An operation of the package as a layer of the paper."""
    match operation:
        case Mov(source, target, src, dst):
            return mov(lanes, source, 2 if target == "queries" else target, src, dst)
        case Mul(shape, left, right, dst):
            return raw(lanes, mul(lanes, shape, dst, left, right))
        case Div(src, by, dst):
            return div(lanes, dst, src, by)
        case Aff(dst, terms, bias):
            rows = len(lanes[dst])
            parts = [(matrix(W, rows), lane) for lane, W in terms] + [(zeros(rows, 1), "y")] * (2 - len(terms))
            b = torch.tensor(bias, dtype=torch.float64) if bias else None
            return raw(lanes, aff(lanes, dst, *parts[0], *parts[1], b=b))
    raise TypeError(operation)


def matrix(W: float | tuple[tuple[float, ...], ...], rows: int) -> Tensor:
    return W * eye(rows) if isinstance(W, float) else torch.tensor(W, dtype=torch.float64)


def chain_lanes(chain: Chain) -> Lanes:
    """The lanes of a chain in three columns; scratch for its largest product."""
    sizes = {name: math.prod(shape) for name, shape in chain.sizes().items()}
    rows = [sizes.get(op.dst, chain.d) for op in chain.operations() if isinstance(op, Aff)]
    scratch = [math.prod(op.shape) for op in chain.operations() if isinstance(op, Mul)]
    return Lanes.of(3, max(rows + scratch), y=1, x=chain.d, **sizes, out=1)


def chain_layers(chain: Chain, operations: Sequence[Operation] | None = None) -> list[Layer]:
    lanes = chain_lanes(chain)
    return [literal(lanes, operation) for operation in operations or chain.operations()]


def three_columns(lanes: Lanes, x: Tensor, y: Tensor, query: Tensor) -> Tensor:
    """[0 y 0; x 0 x_n]."""
    nothing = zeros(len(x))
    return lanes.state(y=torch.stack([zeros(), y, zeros()])[None], x=torch.stack([x, nothing, query], dim=1))


def grows_like(width: Callable[[int], int], order: int) -> bool:
    """Whether the width is a polynomial in d of this order: differences of order + 1 vanish."""
    return not np.diff([width(d) for d in range(1, 8)], n=order + 1).any()


def state_after(
    chain: Chain, x: Tensor, y: Tensor, query: Tensor, operations: Sequence[Operation] | None = None
) -> tuple[Lanes, Tensor]:
    """The three columns after these operations (all of them, if not given), by the layers of the paper."""
    lanes = chain_lanes(chain)
    H = three_columns(lanes, x, y, query)
    for layer in chain_layers(chain, operations):
        H = layer(H)
    return lanes, H


def compiled_answer(chain: Chain, x: Tensor, y: Tensor, query: Tensor) -> float:
    """What the package's transformer predicts: its matrices, in the block of the paper."""
    tf = ig.compile(chain, target="gpt", variant="raw", n_examples=1, z_bound=16.0)
    run = tf.run(x[None], y.reshape(1, 1), query[None], executor="dense")
    return float(run.predictions[0, 0])


def bounded(seed: int, *shape: int) -> Tensor:
    return normal(seed, *shape).clamp(-3, 3)


def sgd_chain(d: int) -> OneStepSGD:
    return OneStepSGD(d, lr=0.2, weight_decay=0.3, w=tuple(normal(23, d).tolist()))


def sgd_gap(d: int, sign: float = 1.0) -> float:
    """Error of the transformer's prediction, against a step by autograd on the loss with the factor 1/2."""
    chain = sgd_chain(d)
    x, y, query = bounded(20, d), bounded(21), bounded(22, d)
    w = torch.tensor(chain.w, dtype=torch.float64).requires_grad_(True)
    (gradient,) = torch.autograd.grad((w @ x - y) ** 2 / 2 + 0.3 * (w @ w), w)
    operations = list(chain.operations())
    operations[5] = Aff("q", (("g", 1.0), ("w", sign * 2 * 0.3)))
    lanes, H = state_after(chain, x, y, query, operations)
    wanted = float((w - 0.2 * gradient).detach() @ query)
    error = abs(float(H[lanes["out"], 2]) - wanted)
    return max(error, abs(compiled_answer(chain, x, y, query) - wanted)) if sign > 0 else error


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
    """Second differences of the depth of the package's SGD in N, for N = 1, ..., 6."""
    depths = [ig.OnlineSGD(3).program(ig.Options("gpt", n_examples=n)).n_layers for n in range(1, 7)]
    return float(np.abs(np.diff(depths, n=2)).max()) if min(np.diff(depths)) > 0 else math.inf


@claim(
    "App. A, space", "O(N + d) hidden space for N examples, as lanes are used again (here: O(d), whatever N)", limit=0.0
)
def appendix_a_space() -> float:
    """Width of the compiled transformers: its change with N, and its second differences in d."""
    widths = np.array(
        [[ig.compile(ig.OnlineSGD(d), target="gpt", n_examples=n).d_model for n in (1, 3, 6)] for d in (1, 2, 3, 4)]
    )
    return float(max(np.ptp(widths, axis=1).max(), np.abs(np.diff(widths, n=2, axis=0)).max()))


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


# ------------------------------------------------------------------------------------------------- appendices A and B


@claim(
    "App. A, sign",
    "aff with W₂ = −2λ: x(wᵀx − y) − 2λw, then w − α(..)",
    "corrected",
    instead="W₂ = +2λ, as in (11)",
    limit=1e-6,
    threshold=1e-2,
)
def appendix_a_sign() -> tuple[float, float]:
    """The transformer of Theorem 1 with either sign."""
    return sgd_gap(3), sgd_gap(3, sign=-1.0)


@claim(
    "App. A, column 3",
    "the third column of the displayed states is x₂wᵀx₁",
    "corrected",
    instead="x₂wᵀx₂; and w − α(x₁wᵀx₁ + 2λw) with the parentheses",
    limit=1e-6,
    threshold=1e-2,
)
def appendix_a_column() -> tuple[float, float]:
    """The lane g after the fourth layer of the transformer of Theorem 1."""
    chain = sgd_chain(3)
    x, y, query, w = bounded(40, 3), bounded(41), bounded(42, 3), torch.tensor(chain.w, dtype=torch.float64)
    lanes, H = state_after(chain, x, y, query, chain.operations()[:4])
    return gap(H[lanes["g"], 2], query * (w @ query)), gap(H[lanes["g"], 2], query * (w @ x))


@claim(
    "App. A, several steps",
    "the second step is w″ = w′ − α(x₂w′ᵀx₂ − y₂x₂ + 2λw)",
    "corrected",
    instead="2λw′",
    limit=1e-12,
    threshold=1e-2,
)
def appendix_a_steps() -> tuple[float, float]:
    """torch.optim.SGD with weight decay 2 lambda on (w.x - y)^2 / 2."""
    X, y, alpha, lam = normal(44, 2, 3), normal(45, 2), 0.2, 0.3
    w = normal(46, 3).requires_grad_(True)
    start, optimiser = w.detach().clone(), torch.optim.SGD([w], lr=alpha, weight_decay=2 * lam)
    for x, label in zip(X, y, strict=True):
        optimiser.zero_grad()
        ((w @ x - label) ** 2 / 2).backward()
        optimiser.step()
    first = start - alpha * (X[0] * (start @ X[0] - y[0]) + 2 * lam * start)
    second = [first - alpha * (X[1] * (first @ X[1] - y[1]) + 2 * lam * decayed) for decayed in (first, start)]
    return gap(second[0], w), gap(second[1], w)


@claim(
    "App. B, several steps",
    "several examples: repeat the process for the next positions",
    "partly",
    instead="A⁻¹ by repeating; the moment must be summed too, w′ = A⁻¹ Σ xᵢyᵢ (or w be updated recursively): the "
    "operations as they are would leave A⁻¹xₙyₙ",
    limit=1e-10,
    threshold=1e-2,
)
def appendix_b_steps() -> tuple[float, float]:
    """Rank-one updates of A^-1 over five examples, against ridge regression by least squares."""
    X, y, lam = normal(47, 5, 3), normal(48, 5), 0.5
    inverse = eye(3) / lam
    for x in X:
        u = inverse @ x
        inverse = inverse - torch.outer(u, u) / (1 + x @ u)
    augmented = torch.cat([X, math.sqrt(lam) * eye(3)]), torch.cat([y, zeros(3)])
    ridge = torch.linalg.lstsq(*augmented).solution
    return gap(inverse @ (y @ X), ridge), gap(inverse @ X[-1] * y[-1], ridge)


# --------------------------------------------------------------------------------- appendix C: RAW and its embeddings


def random_state(seed: int) -> tuple[Lanes, Tensor]:
    lanes = Lanes.of(4, 3, r=3, s=2, w=2)
    return lanes, lanes.state(r=normal(seed, 3, 4), s=normal(seed + 1, 2, 4), w=normal(seed + 2, 2, 4))


def random_raw(lanes: Lanes, op: str) -> Raw:
    """Full matrices W_a, W, W_o and a pattern K with one, two or three columns to read."""
    K = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 1]], dtype=torch.float64)
    return Raw(
        op, lanes["w"], lanes["r"], lanes["s"], normal(52, 2, 3), normal(50, 3, 3), normal(51, 3, 2), K, zeros(2)
    )


@claim("Definition C.1", "x[r] is the vector of the entries x_{r_j}", "definition", limit=1e-15)
def definition_c_1() -> float:
    """Indexing as the product with a 0/1 matrix, an index twice; infinite if the order did not matter."""
    x, r = normal(49, 6), [4, 0, 4, 2]
    selection = zeros(4, 6)
    for j, index in enumerate(r):
        selection[j, index] = 1
    return gap(selection @ x, x[r]) if gap(x[r], x[sorted(r)]) > 0.1 else math.inf


@claim(
    "(23)",
    "reading is (1/W_a Σ_{k∈K(i)} h_k[r])",
    "corrected",
    instead="W_a/|K(i)| Σ_{k∈K(i)} h_k[r], as in (24)-(26)",
    limit=1e-10,
    threshold=0.1,
)
def eq_23() -> tuple[float, float]:
    """What the attention of C.4.3 writes, against the mean; printed: with the inverse of W_a."""
    lanes, H = random_state(64)
    p = random_raw(lanes, "+")
    read = raw(lanes, p).attended(H)[lanes["t"]]
    means = [
        torch.stack([H[lanes["r"]][:, p.K[i] > 0].sum(1) / size for i, size in enumerate(sizes)], dim=1)
        for sizes in (p.K.sum(1).tolist(), [1.0] * 4)
    ]
    return gap(read, p.Wa @ means[0]), gap(read, torch.linalg.solve(p.Wa, means[1]))


@claim(
    "Definition C.2, (24)-(28)",
    "RAW: h_i[w] ← W_o((W_a/|K(i)| Σ_{k∈K(i)} h_k[r]) ⊕ W h_i[s]), ⊕ in {+, ⊙}; all else stays",
    "definition",
    limit=1e-12,
)
def definition_c_2() -> float:
    """The loops that all rows of C.4 are compared with, against one einsum over all columns."""
    errors = []
    for op in ("+", "*"):
        lanes, H = random_state(61)
        p = random_raw(lanes, op)
        left = torch.einsum("ar,rk,ik,i->ai", p.Wa, H[lanes["r"]], p.K, 1 / p.K.sum(1))
        right = torch.einsum("as,si->ai", p.W, H[lanes["s"]])
        wanted = H.clone()
        wanted[lanes["w"]] = p.Wo @ (left + right if op == "+" else left * right)
        errors.append(gap(raw_definition(p, H), wanted))
    return max(errors)


@claim("Lemma 2, dot", "dot is RAW(⊙, W = I, W_a = I, W_o = 1ᵀ, K(i) = {i})", limit=1e-12)
def lemma_2_dot() -> float:
    lanes = Lanes.of(4, 3, r=3, s=3, w=1)
    H = lanes.state(r=normal(53, 3, 4), s=normal(54, 3, 4))
    ones = torch.ones(1, 3, dtype=torch.float64)
    out = raw_definition(Raw("*", lanes["w"], lanes["r"], lanes["s"], ones, eye(3), eye(3), eye(4), zeros(1)), H)
    return gap(out[lanes["w"]], torch.linalg.vecdot(H[lanes["r"]].T, H[lanes["s"]].T)[None])


@claim(
    "Lemma 2, aff",
    "aff(W₁, W₂, b, r, s, w) is RAW(+, W = W₁, W_a = W₂, b₀ = b, ..)",
    "partly",
    instead="if s is aff's first block and r its second; with r the first, as they are listed, W_a = W₁, W = W₂",
    limit=1e-12,
    threshold=1e-2,
)
def lemma_2_aff() -> tuple[float, float]:
    """Blocks of the same size, or the printed matrices would not even fit."""
    lanes = Lanes.of(4, 3, r=3, s=3, w=3)
    H, W1, W2, b = (
        lanes.state(r=normal(53, 3, 4), s=normal(54, 3, 4)),
        normal(55, 3, 3),
        normal(56, 3, 3),
        normal(57, 3),
    )
    wanted = W1 @ H[lanes["r"]] + W2 @ H[lanes["s"]] + b[:, None]
    swapped = W1 @ H[lanes["s"]] + W2 @ H[lanes["r"]] + b[:, None]
    outs = [
        raw_definition(Raw("+", lanes["w"], lanes["r"], lanes["s"], eye(3), Wa, W, eye(4), b), H)[lanes["w"]]
        for Wa, W in ((W1, W2), (W2, W1))
    ]
    return max(gap(outs[0], wanted), gap(outs[1], swapped)), gap(outs[1], wanted)


@claim(
    "Lemma 2, mov",
    "mov is RAW(+, W = 0, W_a = I, W_o = I, r = (i′, j′), K = {(t, {t′})})",
    "corrected",
    instead="K(i) = ∅ elsewhere: by (27) and by the layer of C.4 w is erased there; two heads with a sink do it, "
    "+ h_{t′}[r] − h_t[w] in column t only (and r is (i, j), w is (i′, j′))",
    limit=1e-12,
    threshold=1e-2,
)
def lemma_2_mov() -> tuple[float, float]:
    lanes = Lanes.of(4, 3, r=3, w=3)
    H = lanes.state(r=normal(58, 3, 4), w=normal(59, 3, 4))
    wanted = H.clone()
    wanted[lanes["w"], 2] = H[lanes["r"], 0]
    K, none = only(lanes, 2, 0), zeros(3, 3)
    p = Raw("+", lanes["w"], lanes["r"], lanes["r"], eye(3), eye(3), none, K, zeros(3))
    printed = min(gap(raw_definition(p, H), wanted), layer_gap(lanes, raw(lanes, p), wanted, H))
    return layer_gap(lanes, mov(lanes, 0, 2, "r", "w"), wanted, H), printed


PRINTED = ("57", "69", "101", "103", "107", "118", "124")


def raw_gap(op: str, printed: Collection[str] = (), seed: int = 60) -> float:
    """Error of the layer with these equations as printed, in any lane but the pads."""
    lanes, H = random_state(seed)
    p = random_raw(lanes, op)
    return layer_gap(lanes, raw(lanes, p, printed), raw_definition(p, H), H)


@cache
def corrected_raw() -> float:
    return max(raw_gap(op, seed=seed) for op in ("+", "*") for seed in (60, 70))


@claim("Lemma 3", "a single layer implements the RAW operator (to any precision; scratch lanes hold 0)", limit=1e-6)
def lemma_3() -> float:
    """The corrected matrices of C.4.3, on four random states, and for another K."""
    lanes, H = random_state(62)
    errors = [corrected_raw()]
    for op in ("+", "*"):
        p = replace(random_raw(lanes, op), K=torch.tensor([[1, 0, 0, 0]] * 4, dtype=torch.float64))
        errors.append(layer_gap(lanes, raw(lanes, p), raw_definition(p, H), H))
    return max(errors)


@claim(
    "Sec. C.4.3",
    "the matrices of section C.4.3 implement RAW",
    "corrected",
    instead="with (57), (69), (101), (103), (107), (118)-(120) and (124) corrected",
    limit=1e-6,
    threshold=1e-1,
)
def section_c_4_3() -> tuple[float, float]:
    """All of them as printed."""
    return corrected_raw(), min(raw_gap(op, PRINTED) for op in ("+", "*"))


@claim(
    "(5)",
    "the layer is FF = W₁σ(W₂λ(a + h)) + a + h, without biases",
    "partly",
    instead="(74), (87), (107), (124) need biases, as the remark after (28) allows; without them they can come from "
    "constant lanes and one more unit",
    limit=1e-6,
    threshold=0.1,
)
def eq_5() -> tuple[float, float]:
    """Bias-free layer: b_in from the position code (its sum is 1), b_out from a unit that is constant."""
    right, printed = [], []
    for op in ("+", "*"):
        lanes, H = random_state(60)
        p = random_raw(lanes, op)
        layer, unit = raw(lanes, p), lanes["p1"][0]
        W_in, W_out, none = layer.W_in.clone(), layer.W_out.clone(), zeros(lanes.width)
        bias = layer.b_in.clone()
        bias[unit] = BYPASS
        W_in[:, lanes["pos"]] += unnormalise(lanes) * bias[:, None]
        W_out[:, unit] = layer.b_out / BYPASS
        bare = Layer(layer.heads, layer.WF, W_in, none, W_out, none)
        dropped = Layer(layer.heads, layer.WF, layer.W_in, none, layer.W_out, none)
        right.append(layer_gap(lanes, bare, raw_definition(p, H), H))
        printed.append(layer_gap(lanes, dropped, raw_definition(p, H), H))
    return max(right), min(printed)


@claim(
    "(33)",
    "2p position units per layer, p = T, padded with H − 2pT − 1 zeros",
    "corrected",
    instead="H − d − 1 − 2p(L + 1) zeros: the printed vector is not H long; and three lanes i/T, (i/T)², 1 serve all "
    "layers, the pattern being in W_Q",
    limit=1e-12,
    threshold=1.0,
)
def eq_33() -> tuple[float, float]:
    """'Attend to previous' for T = 40 from three lanes; printed: surplus entries of p_i, d = 8, L = 16, H = 2000: the
    least of those if T is the number of tokens, of layers, or of layers and one more.
    """
    T, d, depth, H = 40, 8, 16, 2000
    i = torch.arange(T, dtype=torch.float64) / T
    code = torch.stack([i, i**2, torch.ones_like(i)])
    WQ, WK = zeros(2, 3), zeros(2, 3)
    WQ[0, [0, 2]] = SHARP * T**2 * torch.tensor([2.0, -2.0 / T], dtype=torch.float64)  # 2 (i - 1)
    WQ[1, 2] = -SHARP * T**2
    WK[0, 0] = WK[1, 1] = 1
    weights = torch.softmax(
        ((WQ @ code).T @ (WK @ code)).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf), dim=1
    )
    surplus = [abs(d + 1 + 2 * T * (depth + 1) + (H - 2 * T * last - 1) - H) for last in (T, depth, depth + 1)]
    return gap(weights[1:], eye(T)[:-1]), min(surplus)


def patterns(queries: Tensor, keys: Tensor) -> Tensor:
    """Causal softmax of q_i . k_j with the imaginary timestep; queries and keys as columns."""
    T = queries.shape[1]
    scores = (queries.T @ keys).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
    return torch.softmax(torch.cat([zeros(T, 1), scores], dim=1), dim=1)[:, 1:]


@claim(
    "Sec. C.4.1, case 1",
    "k_i = e_i, q_i = N e_{i−1} attends to the previous token",
    "partly",
    instead="from the second token on; the first has no scores but 0, and reads half of itself (or all, without the "
    "imaginary timestep): q_i = N(2e_{i−1} − 1) serves all",
    limit=1e-12,
    threshold=0.4,
)
def case_1() -> tuple[float, float]:
    T = 5
    previous = torch.diag(torch.ones(T - 1, dtype=torch.float64), -1)
    right, printed = patterns(SHARP * (2 * previous.T - 1), eye(T)), patterns(SHARP * previous.T, eye(T))
    return max(gap(right, previous), gap(printed[1:], previous[1:])), gap(printed, previous)


@claim(
    "(29)-(32)",
    "W_e pads [0, x_i] and [y_i, 0] to H entries, to which positions are added",
    "definition",
    limit=1e-15,
)
def eq_29() -> float:
    """W_e is H x (d + 1). Tokens and positions, entry by entry, against lists; positions use other entries."""
    d, H = 3, 11
    x, y, W_e = normal(95, d), normal(96, 1), torch.eye(H, d + 1, dtype=torch.float64)
    code = normal(97, H - d - 1)
    position = torch.cat([zeros(d + 1), code])
    tokens = [W_e @ torch.cat([zeros(1), x]) + position, W_e @ torch.cat([y, zeros(d)]) + position]
    lists = [[0.0, *x.tolist(), *code.tolist()], [float(y), *[0.0] * d, *code.tolist()]]
    return max(gap(token, wanted) for token, wanted in zip(tokens, lists, strict=True))


@claim("(34)", "W_K, W_Q of layer l pick k⁽ˡ⁾, q⁽ˡ⁾ from the position code: each layer has its own map K", limit=1e-12)
def eq_34() -> float:
    """Two layers: the previous token (from the second on), and token 2 (from it on), from one code of 4p lanes."""
    T, t = 5, 2
    previous = torch.diag(torch.ones(T - 1, dtype=torch.float64), -1)
    single = zeros(T, T)
    single[t:, t] = 1
    keys = [eye(T), -SHARP / 8 * torch.ones(T, T, dtype=torch.float64)]
    keys[1][:, t] = SHARP / 8
    queries = [SHARP * previous.T, torch.full((T, T), 8.0 / T, dtype=torch.float64)]
    code, errors = torch.cat([keys[0], queries[0], keys[1], queries[1]]), []
    for layer, wanted in enumerate((previous, single)):
        W_K, W_Q = zeros(T, 4 * T), zeros(T, 4 * T)
        W_K[:, 2 * T * layer : 2 * T * layer + T] = eye(T)
        W_Q[:, 2 * T * layer + T : 2 * T * (layer + 1)] = eye(T)
        first = 1 - layer
        errors.append(gap(patterns(W_Q @ code, W_K @ code)[first:], wanted[first:]))
    return max(errors)


@claim("(35)", "k_i = ±N, q_i = N: tokens i ≥ t attend to t, earlier ones to the imaginary timestep", limit=1e-12)
def eq_35() -> float:
    T, t, N = 5, 2, 8.0
    keys = torch.full((1, T), -N, dtype=torch.float64)
    keys[0, t] = N
    wanted = zeros(T, T)
    wanted[t:, t] = 1
    return gap(patterns(torch.full((1, T), N, dtype=torch.float64), keys), wanted)


# -------------------------------------------------------------------------------------- appendix C: the nonlinearities


@claim("Lemma 4, (36)", "√(π/2)(GeLU(x+y) − GeLU(x) − GeLU(y)) = xy + O(|x|³ + |y|³)", limit=1e-2)
def lemma_4() -> float:
    """Error over |x|^3 + |y|^3 for |x|, |y| <= 0.01: it falls with the square, as the error is of fourth order."""
    x, y = torch.meshgrid(*[torch.linspace(-0.01, 0.01, 21, dtype=torch.float64)] * 2, indexing="ij")
    error = math.sqrt(math.pi / 2) * (F.gelu(x + y) - F.gelu(x) - F.gelu(y)) - x * y
    return float((error.abs() / (x.abs() ** 3 + y.abs() ** 3 + 1e-12)).max())


def erf_gelu(x: Tensor) -> Tensor:
    """(6)."""
    return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


def tanh_gelu(x: Tensor) -> Tensor:
    """(37)."""
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def taylor(f: Callable[[Tensor], Tensor], order: int) -> list[float]:
    """Taylor coefficients 1, ..., order at 0, by repeated autograd."""
    x = zeros().requires_grad_(True)
    derivative, coefficients = f(x), []
    for k in range(1, order + 1):
        (derivative,) = torch.autograd.grad(derivative, x, create_graph=True)
        coefficients.append(float(derivative.detach()) / math.factorial(k))
    return coefficients


@claim(
    "(37)",
    "a standard implementation of GeLU is x/2 (1 + tanh(√(2/π)(x + 0.044715x³)))",
    "partly",
    instead="it is one, and an approximation of (6), within 5e-4: not the same function. Lemma 4 holds for both",
    limit=5e-4,
    threshold=1e-4,
)
def eq_37() -> tuple[float, float]:
    """Also: the difference of the Taylor coefficients up to order 3."""
    x = torch.linspace(-6, 6, 2001, dtype=torch.float64)
    distance, series = gap(tanh_gelu(x), erf_gelu(x)), gap(taylor(tanh_gelu, 3), taylor(erf_gelu, 3))
    return max(distance, series, gap(tanh_gelu(x), F.gelu(x, approximate="tanh"))), distance


@claim(
    "(38)",
    "GeLU(x) = x/2 + √(2/π)x² + O(x³)",
    "corrected",
    instead="x/2 + x²/√(2π) − x⁴/(6√(2π)) + O(x⁶): half the printed coefficient, and no cubic term",
    limit=1e-12,
    threshold=0.1,
)
def eq_38() -> tuple[float, float]:
    coefficients, root = taylor(erf_gelu, 5), math.sqrt(2 * math.pi)
    wanted = [0.5, 1 / root, 0.0, -1 / (6 * root), 0.0]
    return gap(coefficients, wanted), abs(coefficients[1] - math.sqrt(2 / math.pi))


@claim("(39), (40)", "GeLU(x+y) − GeLU(x) − GeLU(y) ≈ √(2/π)xy: right, the mistake of (38) cancels", limit=1e-3)
def eq_39() -> float:
    """The error of (40) over its leading term -xy(2x^2 + 3xy + 2y^2)/6, minus 1, for x, y around 0.01."""
    x, y = torch.meshgrid(*[torch.tensor([-0.01, -0.006, 0.007, 0.011], dtype=torch.float64)] * 2, indexing="ij")
    error = math.sqrt(math.pi / 2) * (F.gelu(x + y) - F.gelu(x) - F.gelu(y)) - x * y
    return gap(error / (-x * y * (2 * x**2 + 3 * x * y + 2 * y**2) / 6), torch.ones(4, 4))


@claim("Lemma 5, (41)", "GeLU(N + x) − N ≈ x for N ≫ 1", limit=1e-12)
def lemma_5() -> float:
    x = torch.linspace(-20, 20, 101, dtype=torch.float64)
    return gap(F.gelu(BYPASS + x) - BYPASS, x)


@claim(
    "(42)-(44)",
    "GeLU(N + x) − N = N/2 (1 + tanh(√(2/π)(N + 0.044715N³))) − N ≈ x",
    "corrected",
    instead="N + x for N, three times (as printed it is 0); no N is needed: GeLU(x) − GeLU(−x) = x exactly",
    limit=1e-13,
    threshold=1.0,
)
def eq_42() -> tuple[float, float]:
    N, x = BYPASS, torch.linspace(-6, 6, 101, dtype=torch.float64)
    right = max(gap(tanh_gelu(N + x) - N, x), gap(F.gelu(x) - F.gelu(-x), x))
    return right, gap((tanh_gelu(torch.full_like(x, N)) - N), x)


def normalised(vector: Tensor) -> Tensor:
    return F.layer_norm(vector, vector.shape, eps=0.0)


@claim("(46), (48)", "the mean of [x, N, −N − Σx, 0] is 0", limit=1e-12)
def eq_46() -> float:
    """Infinite if the vector without its last pad had mean 0 as well."""
    x, N = normal(82, 6), 30.0
    vector = torch.cat([x, torch.stack([zeros() + N, -N - x.sum()]), zeros(4)])
    return abs(float(vector.mean())) if abs(float(vector[:-5].mean())) > 0.1 else math.inf


@claim(
    "Lemma 6, (45)",
    "√(2/L)Nλ([x, N, −N − Σx, 0]) ≈ [x, 2N, −2N − Σx, 0]",
    "corrected",
    instead="[x, N, −N − Σx, 0]; pads N − S/2, −N − S/2 make the error second order, S the sum of *all* other lanes",
    limit=1e-8,
    threshold=0.5,
)
def lemma_6() -> tuple[float, float]:
    """Symmetric pads at N = 1e6 (the printed ones: 1e-6); printed: error of the pad, over N."""
    N, x = PAD, normal(82, 6)
    S, rest = x.sum(), zeros(4)
    pads = torch.stack([N - S / 2, -N - S / 2])
    scale = math.sqrt(2 / 12) * N
    right = scale * normalised(torch.cat([x, pads, rest]))
    printed = scale * normalised(torch.cat([x, torch.stack([zeros() + N, -N - S]), rest]))
    if gap(printed[:6], x) > 1e-5:
        return math.inf, 0.0
    return max(gap(right[:6], x), gap(right[6:8], pads) / N), abs(float(printed[6]) - 2 * N) / N


@claim(
    "(47)",
    "the variance of [x, N, −N − Σx, 0] is (N² + N² + x²)/L",
    "corrected",
    instead="(N² + (N + S)² + ‖x‖²)/L, S = Σx: a first-order term 2NS, which symmetric pads remove",
    limit=1e-12,
    threshold=1e-2,
)
def eq_47() -> tuple[float, float]:
    """Relative, N = 30."""
    N, x = 30.0, normal(83, 6)
    S, square = float(x.sum()), float(x @ x)
    variance = float(np.var(np.concatenate([x.numpy(), [N, -N - S], np.zeros(4)])))
    right, printed = (N**2 + (N + S) ** 2 + square) / 12, (2 * N**2 + square) / 12
    return abs(right / variance - 1), abs(printed / variance - 1)


# ------------------------------------------------------------------------------- appendix C: the equations of the layer


@claim(
    "(54), (57)",
    "(W₂^V)_{t[m],r[n]} = −1 for all m, n removes the residual from t",
    "corrected",
    instead="(W₂^V)_{t[m],t[m]} = 1: the lanes t themselves, and one minus sign, which (59) has",
    limit=1e-10,
    threshold=0.1,
)
def eq_57() -> tuple[float, float]:
    """(54) directly: the lanes t after attention, t holding garbage before it."""
    lanes, H = random_state(84)
    H[lanes["t"]] = normal(85, 3, 4)
    p = random_raw(lanes, "+")
    wanted = torch.stack([p.Wa @ H[lanes["r"]][:, p.K[i] > 0].mean(1) for i in range(4)], dim=1)
    right, printed = (raw(lanes, p, names).attended(H)[lanes["t"]] for names in ((), ("57",)))
    return gap(right, wanted), gap(printed, wanted)


def raw_parts(op: str, seed: int = 84) -> tuple[Lanes, Raw, Layer, Tensor, Tensor]:
    """A layer of C.4.3 on a random state: lanes, operator, layer, the state, and x = a + h."""
    lanes, H = random_state(seed)
    p = random_raw(lanes, op)
    layer = raw(lanes, p)
    return lanes, p, layer, H, layer.attended(H)


@claim(
    "(55), (56), (58)-(60)",
    "attention writes W_a times the mean into t, and leaves all other lanes (pads aside)",
    limit=1e-10,
)
def eq_55() -> float:
    """t from the definition of RAW with W_o = I and W = 0."""
    lanes, p, _, H, x = raw_parts("+")
    read = raw_definition(replace(p, w=lanes["t"], Wo=eye(3), W=zeros(3, 2), b=zeros(3)), H)
    return gap(x[lanes.visible], read[lanes.visible])


@claim("(61)-(63)", "the MLP adds W_o(..) − x[w] to w, −x[t] to t, and nothing elsewhere", limit=1e-6)
def eq_61() -> float:
    errors = []
    for op in ("+", "*"):
        lanes, p, layer, H, x = raw_parts(op)
        wanted = zeros(lanes.width, lanes.columns)
        wanted[lanes["w"]] = raw_definition(p, H)[lanes["w"]] - x[lanes["w"]]
        wanted[lanes["t"]] = -x[lanes["t"]]
        errors.append(gap((layer(H) - x)[lanes.visible], wanted[lanes.visible]))
    return max(errors)


@claim(
    "(64)-(68), (70)-(78)",
    "RAW(+): u is W h[s] + x[t] + N on t̂, −x + N on t and w, and −N elsewhere (h⁽ˡ⁾, not h⁽ˡ⁻¹⁾, in (64))",
    limit=1e-6,
)
def eq_64() -> float:
    lanes, p, layer, H, x = raw_parts("+")
    wanted = torch.full_like(x, -BYPASS)
    wanted[lanes["ta"]] = p.W @ H[lanes["s"]] + x[lanes["t"]] + BYPASS
    for units in (lanes["t"], lanes["w"]):
        wanted[units] = BYPASS - x[units]
    return gap(layer.before(H), wanted)


@claim("(79)-(82)", "RAW(+): v is u on t̂, t and w, and 0 elsewhere", limit=1e-12)
def eq_79() -> float:
    lanes, _, layer, H, _ = raw_parts("+")
    used = lanes["ta"] + lanes["t"] + lanes["w"]
    wanted = torch.zeros_like(layer.before(H))
    wanted[used] = layer.before(H)[used]
    return gap(layer.hidden(H), wanted)


@claim(
    "(83)-(88), (90)",
    "RAW(+): W_o v[t̂] + v[w] − N Σ W_o − N is W_o(x[t] + W h[s]) − x[w], and v[t] − N is −x[t]",
    limit=1e-6,
)
def eq_83() -> float:
    """From v of the layer, entry by entry."""
    lanes, p, layer, H, x = raw_parts("+")
    v, made = layer.hidden(H), zeros(2, 4)
    for m, column in itertools.product(range(2), range(4)):
        total = v[lanes["w"][m], column] - BYPASS
        for n, unit in enumerate(lanes["ta"]):
            total = total + p.Wo[m, n] * (v[unit, column] - BYPASS)
        made[m, column] = total
    wanted = p.Wo @ (x[lanes["t"]] + p.W @ H[lanes["s"]]) - x[lanes["w"]]
    return max(gap(made, wanted), gap(v[lanes["t"]] - BYPASS, -x[lanes["t"]]))


@claim(
    "(89)",
    "b₂ = 0 outside t",
    "corrected",
    instead="outside t ∪ w: (87) has b₂ on w",
    limit=1e-6,
    threshold=1.0,
)
def eq_89() -> tuple[float, float]:
    lanes, p, layer, H, _ = raw_parts("+")
    b_out = layer.b_out.clone()
    b_out[[i for i in range(lanes.width) if i not in lanes["t"]]] = 0
    return corrected_raw(), layer_gap(lanes, replace(layer, b_out=b_out), raw_definition(p, H), H)


@claim("(91), (127)", "the layer writes W_o((W_a/|K| Σ h[r]) ⊕ W h[s]) into w", limit=1e-6)
def eq_91() -> float:
    errors = []
    for op, seed in itertools.product(("+", "*"), (60, 63, 66)):
        lanes, H = random_state(seed)
        p = random_raw(lanes, op)
        errors.append(gap(raw(lanes, p)(H)[lanes["w"]], raw_definition(p, H)[lanes["w"]]))
    return max(errors)


@claim(
    "(93)-(100), (102), (104)-(106), (108)-(110)",
    "RAW(⊙): u is (W h[s] + x[t])/N, x[t]/N, W h[s]/N on t_a, t_b, t_c, −x + N on t and w, −N elsewhere",
    limit=1e-6,
)
def eq_93() -> float:
    """The units of the product times N, as they are divided by it."""
    lanes, p, layer, H, x = raw_parts("*")
    read, own, u = x[lanes["t"]], p.W @ H[lanes["s"]], layer.before(H)
    errors = [gap(SCALE * u[lanes[name]], z) for name, z in (("ta", read + own), ("tb", read), ("tc", own))]
    errors += [gap(u[lanes[name]], BYPASS - x[lanes[name]]) for name in ("t", "w")]
    used = [i for name in ("ta", "tb", "tc", "t", "w") for i in lanes[name]]
    rest = [i for i in range(lanes.width) if i not in used]
    return max(*errors, gap(u[rest], torch.full_like(u[rest], -BYPASS)))


@claim("(111)-(113), (116), (117)", "RAW(⊙): v is the GeLU of u on t_a, t_b, t_c, and 0 on unused units", limit=1e-12)
def eq_111() -> float:
    """Against (6), and its expansion x/2 + x^2/sqrt(2 pi)."""
    lanes, _, layer, H, _ = raw_parts("*")
    units, u, v = lanes["ta"] + lanes["tb"] + lanes["tc"], layer.before(H), layer.hidden(H)
    used = units + lanes["t"] + lanes["w"]
    rest = [i for i in range(lanes.width) if i not in used]
    small = u[units]
    expansion = small / 2 + small**2 / math.sqrt(2 * math.pi)
    return max(gap(v[units], erf_gelu(small)), gap(v[units], expansion), float(v[rest].abs().max()))


@claim("(121)-(123), (125), (126)", "RAW(⊙): W₂ is 1 from w to w and from t to t, b₂ is 0 outside t ∪ w", limit=1e-6)
def eq_121() -> float:
    """What the MLP adds to t is v[t] - N = -x[t]; to w, beside the product, v[w] - N = -x[w]; to others nothing."""
    lanes, p, layer, H, x = raw_parts("*")
    added, v = layer(H) - x, layer.hidden(H)
    product = p.Wo @ (x[lanes["t"]] * (p.W @ H[lanes["s"]]))
    errors = [gap(added[lanes["t"]], v[lanes["t"]] - BYPASS), gap(added[lanes["w"]], product + v[lanes["w"]] - BYPASS)]
    rest = [i for i in lanes.visible if i not in lanes["t"] + lanes["w"]]
    return max(*errors, float(added[rest].abs().max()))


@claim(
    "(126), text after it",
    "m[w] = W_o x[t] * W_o W h[s] − x[w]",
    "corrected",
    instead="W_o(x[t] ⊙ W h[s]) − x[w]",
    limit=1e-6,
    threshold=0.1,
)
def eq_126() -> tuple[float, float]:
    lanes, p, layer, H, x = raw_parts("*")
    added = (layer(H) - x)[lanes["w"]]
    read, own = x[lanes["t"]], p.W @ H[lanes["s"]]
    right, printed = (z - x[lanes["w"]] for z in (p.Wo @ (read * own), (p.Wo @ read) * (p.Wo @ own)))
    return gap(added, right), gap(added, printed)


@claim(
    "Sec. C.4.3, space",
    "RAW(⊙) uses 4|t| + |w| units; k operators side by side Σ (4|t_k| + |w_k|) (sec. C.5)",
    limit=0.0,
)
def section_c_4_3_space() -> float:
    """Units of the MLP that write something, for one operator, and for a product of matrices of 12 scalar ones."""
    layer = raw_parts("*")[2]
    wide, _ = lemma_1_lanes()
    matrices = raw(wide, mul(wide, (2, 3, 2), "out", "A", "B"))
    used = [int((one.W_out != 0).any(0).sum()) for one in (layer, matrices)]
    return float(abs(used[0] - (4 * 3 + 2)) + abs(used[1] - (4 * 12 + 4)))


@claim(
    "(69)",
    "(W₁)_{t̂[m],t[n]} = +1 for all m, n",
    "corrected",
    instead="for m = n only",
    limit=1e-6,
    threshold=0.1,
)
def eq_69() -> tuple[float, float]:
    return corrected_raw(), raw_gap("+", ("69",))


@claim("(92), (128)", "all lanes outside w are unchanged (t, which is unused, holds 0 before and after)", limit=1e-6)
def eq_92() -> float:
    """Both operators; garbage in t would be set to 0, by (62), so t must be unused: infinite if it were not."""
    errors = []
    for op in ("+", "*"):
        lanes, p, layer, H, _ = raw_parts(op, 86)
        kept = [i for i in lanes.visible if i not in p.w]
        dirty = H.clone()
        dirty[lanes["t"]] = normal(87, 3, 4)
        if float(layer(dirty)[lanes["t"]].abs().max()) > 1e-6:
            return math.inf
        errors.append(gap(layer(H)[kept], H[kept]))
    return max(errors)


@claim(
    "(101)",
    "(W₁)_{t_a[m],t[n]} = 1/N for all m, n",
    "corrected",
    instead="for m = n only",
    limit=1e-6,
    threshold=0.1,
)
def eq_101() -> tuple[float, float]:
    return corrected_raw(), raw_gap("*", ("101",))


@claim(
    "(103)",
    "(W₁)_{t_c[m],s[m]} = 1/N",
    "corrected",
    instead="(W₁)_{t_c[m],s[n]} = W_{m,n}/N, or (95) is not W h[s]/N",
    limit=1e-6,
    threshold=0.1,
)
def eq_103() -> tuple[float, float]:
    return corrected_raw(), raw_gap("*", ("103",))


@claim(
    "(107)",
    "b₁ = 0 on t ∪ t_a ∪ t_b ∪ t_c",
    "corrected",
    instead="on t_a ∪ t_b ∪ t_c; t has N, by (108)",
    limit=1e-6,
    threshold=0.1,
)
def eq_107() -> tuple[float, float]:
    return corrected_raw(), raw_gap("*", ("107",))


@claim(
    "(114), (115)",
    "after the GeLU the units t and w hold x + N",
    "corrected",
    instead="−x + N, from (96), (97)",
    limit=1e-6,
    threshold=0.1,
)
def eq_114() -> tuple[float, float]:
    lanes, H = random_state(88)
    layer = raw(lanes, random_raw(lanes, "*"))
    units = lanes["t"] + lanes["w"]
    x, v = layer.attended(H)[units], layer.hidden(H)[units]
    return gap(v, BYPASS - x), gap(v, BYPASS + x)


@claim(
    "(118)-(120)",
    "W₂ = ±W_o N√(π/2) on t_a, t_b, t_c",
    "corrected",
    instead="±W_o N²√(π/2): both factors were divided by N",
    limit=1e-6,
    threshold=0.1,
)
def eq_118() -> tuple[float, float]:
    return corrected_raw(), raw_gap("*", ("118",))


@claim(
    "(124)",
    "b₂ = N on t ∪ w",
    "corrected",
    instead="−N",
    limit=1e-6,
    threshold=1.0,
)
def eq_124() -> tuple[float, float]:
    return corrected_raw(), raw_gap("*", ("124",))


@claim("Sec. C.5", "parallel RAW operators give any matrix product in one layer", limit=1e-6)
def section_c_5() -> float:
    """(2 x 3) times (3 x 2), twelve scalar products."""
    lanes, H = lemma_1_lanes()
    out = raw(lanes, mul(lanes, (2, 3, 2), "out", "A", "B"))(H)[lanes["out"]]
    return gap(out, product_of(H[lanes["A"]], H[lanes["B"]], 2, 3, 2))


def division(c: float, M: float) -> tuple[Tensor, Tensor]:
    """y and the left side of (129), N = 1e6, L = 10."""
    N, y = PAD, normal(90, 4)
    pad = torch.tensor([N * c], dtype=torch.float64)
    return y, math.sqrt(2 / 10) * M * N * normalised(torch.cat([pad, y / M, -pad - y.sum() / M, zeros(4)]))


@claim(
    "Lemma 7, (129)",
    "√(2/L)MNλ([Nc, y/M, −Nc − Σy/M, 0]) ≈ [MN, y/c, −MN − y/c, 0]",
    "corrected",
    instead="[±MN, y/|c|, ∓MN − Σy/|c|, 0], ± the sign of c; M is not needed (M = 1)",
    limit=1e-5,
    threshold=0.1,
)
def lemma_7() -> tuple[float, float]:
    """Pads relative to MN. c = 1.7 and -1.7, M = 1 and 10; printed: y/c at c = -1.7."""
    errors = []
    for c, M in itertools.product((1.7, -1.7), (1.0, 10.0)):
        y, out = division(c, M)
        pad = math.copysign(M * PAD, c)
        errors += [gap(out[1:5], y / abs(c)), gap(out[[0, 5]], [pad, -pad - float(y.sum()) / abs(c)]) / (M * PAD)]
    y, out = division(-1.7, 1.0)
    return max(errors), gap(out[1:5], y / -1.7)


@claim("(130), (132)", "the mean of [Nc, y/M, −Nc − Σy/M, 0] is 0", limit=1e-12)
def eq_130() -> float:
    """Infinite if the vector without its last pad had mean 0 as well."""
    N, c, M, y = 2.0, 1.5, 10.0, normal(91, 4)
    vector = torch.cat([torch.tensor([N * c], dtype=torch.float64), y / M, (-N * c - y.sum() / M)[None], zeros(4)])
    return abs(float(vector.mean())) if abs(float(vector[:-5].mean())) > 0.1 else math.inf


@claim(
    "(131)",
    "the variance is (N²c² + (1/M)Σy² + (Nc + Σy/M)²)/L",
    "corrected",
    instead="(1/M²)Σy²",
    limit=1e-12,
    threshold=1e-2,
)
def eq_131() -> tuple[float, float]:
    """Relative, N = 2, c = 1.5, M = 10."""
    N, c, M, y = 2.0, 1.5, 10.0, normal(91, 4).numpy()
    variance = float(np.var(np.concatenate([[N * c], y / M, [-N * c - y.sum() / M], np.zeros(4)])))
    right, printed = (
        float(N**2 * c**2 + (y**2).sum() / M**power + (N * c + y.sum() / M) ** 2) / 10 for power in (2, 1)
    )
    return abs(right / variance - 1), abs(printed / variance - 1)


# -------------------------------------------------------------------------------------------------- what was measured

TRAINED = "a statement about the transformers that the authors trained; their weights and predictions are not published"
PAPER.untestable(
    "Sec. 4.3, Fig. 1", "trained transformers agree with OLS on data without noise, to within 0.01", TRAINED
)
PAPER.untestable("Sec. 4.3, Fig. 2", "with noise they agree with the ridge regression of least Bayes risk", TRAINED)
PAPER.untestable("Sec. 4.3, Fig. 3", "with depth they go from one step of gradient descent to ridge to OLS", TRAINED)
PAPER.untestable(
    "Sec. 5, Fig. 4", "moments and weights can be decoded from late layers, by probes that are not linear", TRAINED
)
PAPER.untestable(
    "App. C.7, Table 1, C.8", "hyper-parameters of the training and of the probes", "settings, not statements"
)
