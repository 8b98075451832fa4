"""What the checks share: the layers under test, networks, samples, references."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from claims import Paper, gap, normal
from innergrad.algorithms.raw import Aff, Chain, Div, Mov, Mul, OneStepSGD, Operation

PAPER = Paper(
    "004",
    "E. Akyürek, D. Schuurmans, J. Andreas, T. Ma, D. Zhou, *What Learning Algorithm Is In-Context Learning? "
    "Investigations with Linear Models*, ICLR 2023 (the version under review)",
)


claim = PAPER.claim


# Functions that make what a statement is tried on; no mutants of these.
CASES = (
    "bounded",
    "lemma_1_lanes",
    "random_layer",
    "random_raw",
    "random_state",
    "sgd_chain",
)


SHARP = 60.0  # scores +-SHARP: what leaks past the softmax is e^-60


PAD = 1e6  # N of Lemma 6


BYPASS = 40.0  # N of Lemma 5: GeLU(40 + x) = 40 + x in float64


SCALE = 3e4  # N of (93)-(95): inputs of the product are divided by it


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


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


def random_layer(seed: int, D: int = 5, imaginary: bool = False) -> Layer:
    """Two heads and full matrices."""
    heads = tuple((normal(s, D, D) / 2, normal(s + 1, D, D) / 2, normal(s + 2, D, D) / 2) for s in (seed, seed + 10))
    rest = [normal(seed + 30 + k, *shape) / 2 for k, shape in enumerate([(D, 2 * D), (7, D), (7,), (D, 7), (D,)])]
    WF, W_in, b_in, W_out, b_out = rest
    return Layer(heads, WF, W_in, b_in, W_out, b_out, imaginary)


def lemma_1_lanes() -> tuple[Lanes, Tensor]:
    """Lanes A (2 x 3), B (3 x 2), out (2 x 2), c, with random content in four columns."""
    lanes = Lanes.of(4, 12, A=6, B=6, out=4, c=1)
    content = {name: normal(3 + k, len(lanes[name]), 4) for k, name in enumerate(("A", "B", "out"))}
    return lanes, lanes.state(**content, c=torch.tensor([1.3, -0.7, 2.0, -1.1], dtype=torch.float64))


def product_of(A: Tensor, B: Tensor, a: int, b: int, c: int) -> Tensor:
    """Matrix products of the columns, read as a x b and b x c matrices."""
    return torch.stack([(x.reshape(a, b) @ z.reshape(b, c)).flatten() for x, z in zip(A.T, B.T, strict=True)], dim=1)


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


def random_state(seed: int) -> tuple[Lanes, Tensor]:
    lanes = Lanes.of(4, 3, r=3, s=2, w=2)
    return lanes, lanes.state(r=normal(seed, 3, 4), s=normal(seed + 1, 2, 4), w=normal(seed + 2, 2, 4))


def random_raw(lanes: Lanes, op: str) -> Raw:
    """Full matrices W_a, W, W_o and a pattern K with one, two or three columns to read."""
    K = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 1]], dtype=torch.float64)
    return Raw(
        op, lanes["w"], lanes["r"], lanes["s"], normal(52, 2, 3), normal(50, 3, 3), normal(51, 3, 2), K, zeros(2)
    )


def raw_gap(op: str, printed: Collection[str] = (), seed: int = 60) -> float:
    """Error of the layer with these equations as printed, in any lane but the pads."""
    lanes, H = random_state(seed)
    p = random_raw(lanes, op)
    return layer_gap(lanes, raw(lanes, p, printed), raw_definition(p, H), H)


@cache
def corrected_raw() -> float:
    return max(raw_gap(op, seed=seed) for op in ("+", "*") for seed in (60, 70))


def erf_gelu(x: Tensor) -> Tensor:
    """(6)."""
    return x / 2 * (1 + torch.erf(x / math.sqrt(2)))


def normalised(vector: Tensor) -> Tensor:
    return F.layer_norm(vector, vector.shape, eps=0.0)
