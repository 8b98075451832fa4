"""Appendix C: RAW and its embeddings."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from claims import gap, normal
from claims_primitives.common import (
    BYPASS,
    SHARP,
    Lanes,
    Layer,
    Raw,
    claim,
    corrected_raw,
    eye,
    layer_gap,
    mov,
    only,
    random_raw,
    random_state,
    raw,
    raw_definition,
    raw_gap,
    unnormalise,
    zeros,
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
