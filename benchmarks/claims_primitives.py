"""Checks of *What Learning Algorithm Is In-Context Learning? Investigations with Linear Models* (004).

The layer under test is (1)-(7) of the paper, :class:`Layer`: causal softmax heads with the "imaginary" timestep of
score 0, GeLU and LayerNorm from torch. The matrices of the RAW operator are written from the paper's index equations in
:func:`raw`; each equation that is wrong can be put back as printed, alone or with the others. What a layer should do is
computed by loops over columns in :func:`raw_definition`, by numpy, SciPy or autograd.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from claims import Paper, gap, normal

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
    """(1)-(7): heads (W^Q, W^K, W^V), W^F, and W_out GeLU(W_in LN(a + h) + b_in) + b_out; columns are tokens."""

    heads: tuple[tuple[Tensor, Tensor, Tensor], ...]
    WF: Tensor
    W_in: Tensor
    b_in: Tensor
    W_out: Tensor
    b_out: Tensor

    def attended(self, H: Tensor) -> Tensor:
        """a + h."""
        T = H.shape[1]
        future = torch.ones(T, T).triu(1).bool()
        outputs = []
        for WQ, WK, WV in self.heads:
            scores = ((WQ @ H).T @ (WK @ H)).masked_fill(future, -math.inf)
            weights = torch.softmax(torch.cat([zeros(T, 1), scores], dim=1), dim=1)[:, 1:]
            outputs.append(WV @ H @ weights.T)
        return H + self.WF @ torch.cat(outputs)

    def hidden(self, H: Tensor) -> Tensor:
        """Output of the nonlinearity."""
        x = self.attended(H)
        normalised = F.layer_norm(x.T, (len(x),), eps=0.0).T
        return F.gelu(self.W_in @ normalised + self.b_in[:, None])

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
    limit=0.0,
    threshold=1e-2,
)
def mov_matrix() -> tuple[float, float]:
    """Copy rows 1:3 of column 0 to rows 3:5 of column 2, by indexing; printed: the same rows, its own columns."""
    H = normal(2, 6, 4).numpy()
    s, t, (i, j), (k, m) = 0, 2, (1, 3), (3, 5)
    wanted = H.copy()
    wanted[k:m, t] = H[i:j, s]
    column = np.concatenate([H[:k, t], H[i:j, s], H[m:, t]])
    right = np.column_stack([H[:, :t], column, H[:, t + 1 :]])
    printed = np.column_stack([H[:, :s], np.concatenate([H[:i, t], H[k:m, t], H[j:, t]]), H[:, s + 1 :]])
    return gap(right, wanted), gap(printed, wanted)


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


def sgd_lanes(d: int) -> Lanes:
    return Lanes.of(3, d, y=1, x=d, a=1, e=1, g=d, w=d, q=d, out=1)


def sgd_layers(w: Tensor, alpha: float, lam: float, sign: float = 1.0) -> list[Layer]:
    """The nine operations of App. A; its sign of lambda is wrong, -1."""
    d = len(w)
    L = sgd_lanes(d)
    unit, one = eye(d), eye(1)
    steps = [
        aff(L, "a", w[None], "x", zeros(1, 1), "y"),
        aff(L, "e", one, "a", -one, "y"),
        replace(mul(L, (d, 1, 1), "g", "x", "e"), W=torch.ones(d, 1, dtype=torch.float64)),
        aff(L, "w", zeros(d, 1), "y", zeros(d, 1), "y", b=w),
        aff(L, "q", unit, "g", sign * 2 * lam * unit, "w"),
        aff(L, "w", unit, "w", -alpha * unit, "q"),
    ]
    return [
        mov(L, 0, 1, "x", "x"),
        *(raw(L, step) for step in steps),
        mov(L, 1, 2, "w", "w"),
        raw(L, mul(L, (1, d, 1), "out", "w", "x")),
    ]


def three_columns(lanes: Lanes, x: Tensor, y: Tensor, query: Tensor) -> Tensor:
    """[0 y 0; x 0 x_n]."""
    nothing = zeros(len(x))
    return lanes.state(y=torch.stack([zeros(), y, zeros()])[None], x=torch.stack([x, nothing, query], dim=1))


def grows_like(width: Callable[[int], int], order: int) -> bool:
    """Whether the width is a polynomial in d of this order: differences of order + 1 vanish."""
    return not np.diff([width(d) for d in range(1, 8)], n=order + 1).any()


def sgd_gap(d: int, sign: float = 1.0) -> float:
    """Error of the transformer's prediction, against a step by autograd on the loss with the factor 1/2."""
    x, y, query, w = normal(20, d), normal(21), normal(22, d), normal(23, d).requires_grad_(True)
    (gradient,) = torch.autograd.grad((w @ x - y) ** 2 / 2 + 0.3 * (w @ w), w)
    lanes = sgd_lanes(d)
    H = three_columns(lanes, x, y, query)
    for layer in sgd_layers(w.detach(), 0.2, 0.3, sign):
        H = layer(H)
    return gap(H[lanes["out"], 2], ((w - 0.2 * gradient) @ query)[None])


@claim("Theorem 1", "O(1) layers of O(d) lanes compute w′ᵀxₙ, w′ one gradient step (11) (to any precision)", limit=1e-6)
def theorem_1() -> float:
    """Nine layers, 8d + 9 lanes; d = 2, 3, 5."""
    size = grows_like(lambda d: sgd_lanes(d).width, 1) and len(sgd_layers(zeros(5), 0.2, 0.3)) == 9
    return max(map(sgd_gap, (2, 3, 5))) if size else math.inf


def ridge_lanes(d: int) -> Lanes:
    sizes = {"y": 1, "x": d, "xy": d, "A": d * d, "u": d, "v": d, "P": d * d, "c": 1, "R": d * d, "w": d, "out": 1}
    return Lanes.of(3, d * d, **sizes)


def ridge_layers(d: int, lam: float) -> list[Layer]:
    """The fourteen operations of App. B."""
    L = ridge_lanes(d)
    one, none, unit = eye(1), zeros(1, 1), eye(d * d)
    scalar = torch.ones(d, 1, dtype=torch.float64)
    return [
        mov(L, 0, 1, "x", "x"),
        raw(L, replace(mul(L, (d, 1, 1), "xy", "x", "y"), W=scalar)),
        raw(L, aff(L, "A", zeros(d * d, 1), "y", zeros(d * d, 1), "y", b=eye(d).flatten() / lam)),
        raw(L, mul(L, (d, d, 1), "u", "A", "x")),
        raw(L, mul(L, (1, d, d), "v", "x", "A")),
        raw(L, mul(L, (d, 1, d), "P", "u", "v")),
        raw(L, mul(L, (1, d, 1), "c", "v", "x")),
        raw(L, aff(L, "c", one, "c", none, "y", b=torch.ones(1, dtype=torch.float64))),
        div(L, "R", "P", "c"),
        raw(L, aff(L, "A", unit, "A", -unit, "R")),
        raw(L, mul(L, (d, d, 1), "w", "A", "x")),
        raw(L, replace(mul(L, (d, 1, 1), "w", "w", "y"), W=scalar)),
        mov(L, 1, 2, "w", "w"),
        raw(L, mul(L, (1, d, 1), "out", "w", "x")),
    ]


@claim("Theorem 2", "O(1) layers of O(d²) lanes compute w′ᵀxₙ, w′ = (xxᵀ + λI)⁻¹xy (to any precision)", limit=1e-6)
def theorem_2() -> float:
    """Fourteen layers, against numpy's inverse; d = 2, 3."""
    errors = []
    for d in (2, 3):
        x, y, query, lam = normal(24, d), normal(25), normal(26, d), 0.5
        wanted = np.linalg.inv(np.outer(x, x) + lam * np.eye(d)) @ x.numpy() @ query.numpy() * float(y)
        H = three_columns(ridge_lanes(d), x, y, query)
        for layer in ridge_layers(d, lam):
            H = layer(H)
        errors.append(gap(H[ridge_lanes(d)["out"], 2], [wanted]))
    return max(errors) if grows_like(lambda d: ridge_lanes(d).width, 2) else math.inf


@claim("(18)", "for w ~ N(0, τ²I) and noise σ² the posterior mean is (XᵀX + σ²/τ² I)⁻¹Xᵀy", limit=1e-10)
def eq_18() -> float:
    """Against conditioning the joint Gaussian of (w, y)."""
    X, y, sigma, tau = normal(30, 6, 3), normal(31, 6), 0.7, 1.4
    conditional = tau**2 * X.T @ torch.linalg.solve(tau**2 * X @ X.T + sigma**2 * eye(6), y)
    return gap(torch.linalg.solve(X.T @ X + (sigma / tau) ** 2 * eye(3), X.T @ y), conditional)


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
    x, y, query, w = normal(40, 3), normal(41), normal(42, 3), normal(43, 3)
    lanes, H = sgd_lanes(3), three_columns(sgd_lanes(3), x, y, query)
    for layer in sgd_layers(w, 0.2, 0.3)[:4]:
        H = layer(H)
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
    "repeating the process generalises w′ = A⁻¹x₁y₁ to several examples",
    "corrected",
    instead="w′ = A⁻¹ Σ xᵢyᵢ: the moment must be summed too (or w updated recursively); the last mul is (1, d, 1)",
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


@claim("Lemma 2, dot", "dot is RAW(⊙, W = I, W_a = I, W_o = 1ᵀ, K(i) = {i})", limit=1e-12)
def lemma_2_dot() -> float:
    lanes = Lanes.of(4, 3, r=3, s=3, w=1)
    H = lanes.state(r=normal(53, 3, 4), s=normal(54, 3, 4))
    ones = torch.ones(1, 3, dtype=torch.float64)
    out = raw_definition(Raw("*", lanes["w"], lanes["r"], lanes["s"], ones, eye(3), eye(3), eye(4), zeros(1)), H)
    return gap(out[lanes["w"]], torch.linalg.vecdot(H[lanes["r"]].T, H[lanes["s"]].T)[None])


@claim(
    "Lemma 2, aff",
    "aff(W₁, W₂, b, r, s, w) is RAW(+, W = W₁, W_a = W₂, ..)",
    "corrected",
    instead="W_a = W₁, W = W₂: RAW applies W_a to r, the first block",
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
    outs = [
        raw_definition(Raw("+", lanes["w"], lanes["r"], lanes["s"], eye(3), Wa, W, eye(4), b), H)[lanes["w"]]
        for Wa, W in ((W1, W2), (W2, W1))
    ]
    return gap(outs[0], wanted), gap(outs[1], wanted)


@claim(
    "Lemma 2, mov",
    "mov is RAW(+, W = 0, W_a = I, W_o = I, K = {(t, {t′})})",
    "corrected",
    instead="K(i) = ∅ elsewhere erases w there, by (27); two heads with a sink: + h_{t′}[r] − h_t[w] in column t only",
    limit=1e-12,
    threshold=1e-2,
)
def lemma_2_mov() -> tuple[float, float]:
    lanes = Lanes.of(4, 3, r=3, w=3)
    H = lanes.state(r=normal(58, 3, 4), w=normal(59, 3, 4))
    wanted = H.clone()
    wanted[lanes["w"], 2] = H[lanes["r"], 0]
    K, none = only(lanes, 2, 0), zeros(3, 3)
    printed = raw_definition(Raw("+", lanes["w"], lanes["r"], lanes["r"], eye(3), eye(3), none, K, zeros(3)), H)
    return layer_gap(lanes, mov(lanes, 0, 2, "r", "w"), wanted, H), gap(printed, wanted)


PRINTED = ("57", "69", "101", "103", "107", "118", "124")


def raw_gap(op: str, printed: Collection[str] = (), seed: int = 60) -> float:
    """Error of the layer with these equations as printed, in any lane but the pads."""
    lanes, H = random_state(seed)
    p = random_raw(lanes, op)
    return layer_gap(lanes, raw(lanes, p, printed), raw_definition(p, H), H)


@cache
def corrected_raw() -> float:
    return max(raw_gap(op, seed=seed) for op in ("+", "*") for seed in (60, 70))


@claim(
    "Lemma 3",
    "a single layer implements RAW, with the matrices of section C.4",
    "corrected",
    instead="with (57), (69), (101), (103), (107), (118)-(120) and (124) corrected, to any precision",
    limit=1e-6,
    threshold=1e-1,
)
def lemma_3() -> tuple[float, float]:
    return corrected_raw(), min(raw_gap(op, PRINTED) for op in ("+", "*"))


@claim(
    "(5)",
    "the layer is FF = W₁σ(W₂λ(a + h)) + a + h, without biases",
    "corrected",
    instead="(74), (87), (107), (124) need biases; they can come from the constant lanes and one more unit",
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
    instead="three lanes i/T, (i/T)², 1 serve all layers, the pattern is in W_Q; the printed vector is not H long",
    limit=1e-12,
    threshold=1.0,
)
def eq_33() -> tuple[float, float]:
    """'Attend to previous' for T = 40 from three lanes; printed: surplus entries of p_i for d = 8, L = 16, H = 2000."""
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
    return gap(weights[1:], eye(T)[:-1]), abs(d + 1 + 2 * T * (depth + 1) + (H - 2 * T * T - 1) - H)


def patterns(queries: Tensor, keys: Tensor) -> Tensor:
    """Causal softmax of q_i . k_j with the imaginary timestep; queries and keys as columns."""
    T = queries.shape[1]
    scores = (queries.T @ keys).masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
    return torch.softmax(torch.cat([zeros(T, 1), scores], dim=1), dim=1)[:, 1:]


@claim(
    "Sec. C.4.1, case 1",
    "k_i = e_i, q_i = N e_{i−1} attends to the previous token",
    "corrected",
    instead="q_i = N(2e_{i−1} − 1): with the printed one the first token has only scores 0 and reads half of itself",
    limit=1e-12,
    threshold=0.4,
)
def case_1() -> tuple[float, float]:
    T = 5
    previous = torch.diag(torch.ones(T - 1, dtype=torch.float64), -1)
    right = patterns(SHARP * (2 * previous.T - 1), eye(T))
    return gap(right, previous), gap(patterns(SHARP * previous.T, eye(T)), previous)


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
    "GeLU is x/2 (1 + tanh(√(2/π)(x + 0.044715x³)))",
    "corrected",
    instead="that is an approximation of (6), within 5e-4; the expansion of Lemma 4 holds for both",
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


@claim(
    "(92), (128)",
    "all lanes outside w are unchanged",
    "corrected",
    instead="t ends at 0 by (62), so the lanes t must hold 0 before",
    limit=1e-6,
    threshold=0.1,
)
def eq_92() -> tuple[float, float]:
    """Printed: garbage in t before the layer."""
    lanes, H = random_state(86)
    p = random_raw(lanes, "+")
    dirty = H.clone()
    dirty[lanes["t"]] = normal(87, 3, 4)
    clean = raw(lanes, p)(dirty)[lanes["t"]]
    right = max(layer_gap(lanes, raw(lanes, p), raw_definition(p, H), H), gap(clean, zeros(3, 4)))
    return right, layer_gap(lanes, raw(lanes, p), raw_definition(p, dirty), dirty)


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
