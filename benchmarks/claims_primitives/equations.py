"""Appendix C: the equations of the layer, and what was measured."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from claims import gap, normal
from claims_primitives.common import (
    BYPASS,
    PAD,
    PAPER,
    SCALE,
    Lanes,
    Layer,
    Raw,
    claim,
    corrected_raw,
    erf_gelu,
    eye,
    layer_gap,
    lemma_1_lanes,
    mul,
    normalised,
    product_of,
    random_raw,
    random_state,
    raw,
    raw_definition,
    raw_gap,
    zeros,
)


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


def trained(*figures: str) -> str:
    """Why there is no check, and which figures of docs/reproduction.md test the statement on other transformers."""
    return (
        "a statement about the transformers that the authors trained; their weights and predictions are not published. "
        f"Tested on transformers that were trained here: docs/reproduction.md, {' and '.join(figures)}"
    )


PAPER.untestable(
    "Sec. 4.3, Fig. 1",
    "trained transformers agree with OLS on data without noise, to within 0.01",
    trained("linear-algorithms"),
)


PAPER.untestable(
    "Sec. 4.3, Fig. 2", "with noise they agree with the ridge regression of least Bayes risk", trained("linear-noise")
)


PAPER.untestable(
    "Sec. 4.3, Fig. 3", "with depth they go from one step of gradient descent to ridge to OLS", trained("linear-sizes")
)


PAPER.untestable(
    "Sec. 5, Fig. 4",
    "moments and weights can be decoded from late layers, by probes that are not linear",
    trained("linear-probes"),
)


PAPER.untestable(
    "App. C.7, Table 1, C.8", "hyper-parameters of the training and of the probes", "settings, not statements"
)
