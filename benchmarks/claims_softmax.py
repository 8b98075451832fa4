"""Checks of Appendix F, softmax transformers, of *Transformers are Deep Optimizers*.

The layers under test are (F.1) and Definition 11, :func:`attend` and :func:`feed_forward`; the quantiser (F.5)-(F.11)
is written out of its ReLUs. What it should do is computed from the definitions of the grid, by brute force over small
grids, or by autograd.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from claims import Paper, attained, gap, normal

PAPER = Paper(
    "001",
    "*Transformers are Deep Optimizers: Provable In-Context Learning for Deep Model Training* (the version under "
    "review), Appendix F, softmax transformers",
)
claim = PAPER.claim
# Functions that make what a statement is tried on; no mutants of these.
CASES = (
    "corners",
    "plane_head",
    "points",
    "random",
    "small_attention",
)

Array = npt.NDArray[np.float64]

B = 2.0  # B_x: not 1, so that a missing factor shows
RAMP = 1e-3  # delta of (F.5): a ramp is RAMP * B wide
CELLS = 8  # D, the granularity of the grid


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------------------------------- layers and quantiser


def relu(z: Array) -> Array:
    return np.maximum(z, 0)


def attend(Z: Array, WO: Array, V: Array, K: Array, Q: Array) -> Array:
    """(F.1): Z + W_O V Z softmax((K Z)^T (Q Z)), the softmax over each column."""
    scores = (K @ Z).T @ (Q @ Z)
    weights = np.exp(scores - scores.max(0))
    return np.asarray(Z + WO @ V @ Z @ (weights / weights.sum(0)), dtype=np.float64)


def feed_forward(Z: Array, W1: Array, b1: Array, W2: Array, b2: Array) -> Array:
    """Definition 11, without the names: Z + W_2 relu(W_1 Z + b_1) + b_2."""
    return np.asarray(Z + W2 @ relu(W1 @ Z + b1[:, None]) + b2[:, None], dtype=np.float64)


def step(z: Array, t: int = 0, cells: int = CELLS) -> Array:
    """(F.5), (F.6), left side."""
    shift = t * B / (RAMP * cells)
    return (relu(z / RAMP - shift) - relu(z / RAMP - B - shift)) / cells


def staircase(z: Array, cells: int = CELLS) -> Array:
    """(F.7)."""
    return np.asarray(np.sum([step(z, t, cells) for t in range(cells)], axis=0))


def last_step(z: Array, factor: float) -> Array:
    """The bracket of (F.10), times a factor: printed 1."""
    return factor * (relu(z / RAMP - B / RAMP) - relu(z / RAMP - 1 - B / RAMP))


def penalty(z: Array) -> Array:
    """(F.11), the ReLUs."""
    above, below = (z - B) / RAMP, -z / RAMP
    return B * (relu(above - 1) - relu(above) + relu(below - 1) - relu(below))


def grid_point(z: Array, cells: int = CELLS, width: float = B) -> Array:
    """(F.8): 0 below 0; k B/D for (k - 1) B/D <= z < k B/D; B above."""
    return np.asarray(np.clip(np.floor(z * cells / width) + 1, 0, cells) * width / cells)


def wanted_quantiser(z: Array) -> Array:
    """(F.8) in [0, B], 0 outside."""
    return np.where((z >= 0) & (z <= B), grid_point(z), 0.0)


def quantised(Z: Array) -> Array:
    """F_1 of (F.12) with the ReLUs: the quantiser, and all penalties added to every entry."""
    return np.asarray(staircase(Z) - last_step(Z, B) + penalty(Z).sum(), dtype=np.float64)


def off_the_ramps(z: Array) -> npt.NDArray[np.bool_]:
    """Entries of z that are on no ramp: none within one RAMP max(B, 1) above a grid point, nor just outside."""
    edges = np.arange(CELLS + 1) * B / CELLS
    behind = np.asarray(z)[..., None] - edges
    near = ((behind > 0) & (behind < 1.01 * RAMP * max(B, 1))).any(-1) | ((z < 0) & (z > -1.01 * RAMP))
    return np.asarray(~near & (np.abs(behind).min(-1) > 1e-12))


def points(seed: int = 0, low: float = -1.0, high: float = 3.0, n: int = 20_000) -> Array:
    z = random(seed).uniform(low, high, n)
    return np.asarray(z[off_the_ramps(z)])


def small_attention(seed: int, d: int) -> tuple[Array, Array, Array, Array]:
    """W_O, V, K, Q of rank 1 with ||W_O V|| just below 1/(4 sqrt(d) D), as (F.15) asks."""
    u, v, k1, k2, q1, q2 = random(seed).normal(size=(6, d))
    WO = np.outer(u, [0.999]) / np.linalg.norm(u) / (4 * math.sqrt(d) * CELLS)
    return WO, v[None] / np.linalg.norm(v), np.outer(k1, k2), np.outer(q1, q2)


def sequences(cells: int, n: int) -> list[tuple[int, ...]]:
    """G_D for d = 1, in units of B/D."""
    return list(itertools.product(range(1, cells + 1), repeat=n))


# ----------------------------------------------------------------------------------------------- F.1: layers, Lemma 16


@claim(
    "(F.1)",
    "Attn(H) = H + W_O (V H) softmax[(K H)ᵀ(Q H)] (the sizes ℝ^{D×D} ∈ ℝ^{d×d}: D × D)",
    "definition",
    limit=1e-12,
)
def eq_f_1() -> float:
    """torch's scaled_dot_product_attention with scale 1."""
    H, WO, V, K, Q = random(1).normal(size=(5, 4, 4))
    q, k, v = (torch.as_tensor((P @ H).T) for P in (Q, K, V))
    return gap(attend(H, WO, V, K, Q), H + WO @ F.scaled_dot_product_attention(q, k, v, scale=1.0).T.numpy())


@claim(
    "Def. 11",
    "FF ∘ Attn ∘ FF with FF(H) = H + W₂ relu(W₁H + b₁𝟙ᵀ) + b₂𝟙ᵀ (𝟙 of length n, b₁ ∈ ℝ^{d′}, b₂ ∈ ℝᴰ)",
    "definition",
    limit=1e-12,
)
def definition_11() -> float:
    """torch's linear layers and scaled_dot_product_attention on the transpose; a column alone gives the same FF."""
    rng = random(2)
    Z = rng.normal(size=(3, 5))
    one, two = (
        (rng.normal(size=(7, 3)), rng.normal(size=7), rng.normal(size=(3, 7)), rng.normal(size=3)) for _ in "ab"
    )
    WO, V, K, Q = rng.normal(size=(4, 3, 3))

    def layer(H: torch.Tensor, *weights: Array) -> torch.Tensor:
        W1, b1, W2, b2 = map(torch.as_tensor, weights)
        return H + F.linear(F.relu(F.linear(H, W1, b1)), W2, b2)

    H = layer(torch.as_tensor(Z.T), *one)
    q, k, v = (F.linear(H, torch.as_tensor(P)) for P in (Q, K, V))
    H = H + F.linear(F.scaled_dot_product_attention(q, k, v, scale=1.0), torch.as_tensor(WO))
    wanted = layer(H, *two).T
    alone = np.concatenate([feed_forward(Z[:, [i]], *one) for i in range(5)], axis=1)
    made = feed_forward(attend(feed_forward(Z, *one), WO, V, K, Q), *two)
    return max(gap(made, wanted), gap(feed_forward(Z, *one), alone))


def lemma_bound(d: int, n: int, cells: int, width: float, lipschitz: float = 1.0) -> float:
    return lipschitz * (8 * math.sqrt(d * n) + math.sqrt(n)) * width / (2 * cells)


def phi(s: Array, t: Array, c: float, scale: float) -> Array:
    """What a block of d = 1, n = 2 makes of tokens s, t before its last layer, in the first: s + c (w s + (1 - w) t),
    with c = W_O V, scale = K Q and the weight w of softmax, which is sigmoid(scale s (s - t)).
    """
    rows = np.stack([s, t])
    scores = scale * s * rows
    weights = np.exp(scores - scores.max(0))
    return np.asarray(s + c * (rows * weights / weights.sum(0)).sum(0), dtype=np.float64)


def extrema(c: float, scale: float) -> int:
    """Interior local extrema of phi on a grid of [-3, 3]^2, among the eight neighbours."""
    line = np.linspace(-3, 3, 301)
    values = phi(*np.meshgrid(line, line, indexing="ij"), c, scale)
    middle, shape = values[1:-1, 1:-1], values.shape[0] - 2
    around = [
        values[1 + a : 1 + a + shape, 1 + b : 1 + b + shape]
        for a, b in itertools.product((-1, 0, 1), repeat=2)
        if (a, b) != (0, 0)
    ]
    highest = np.all([middle > other + 1e-12 for other in around], axis=0)
    lowest = np.all([middle < other - 1e-12 for other in around], axis=0)
    return int((highest | lowest).sum())


def peaks(x: Array, y: Array) -> Array:
    """x + 2 bump at three places of the unit square, and 0 at its edge: 2.2 or more at the places, x elsewhere from
    0.05 to 0.95. Bumps reach 0.1 in both coordinates.
    """
    places = ((0.2, 0.7), (0.5, 0.3), (0.8, 0.75))
    bumps = [np.maximum(0.0, 1 - 10 * np.maximum(np.abs(x - a), np.abs(y - b))) for a, b in places]
    edge = np.minimum(1.0, 20 * np.min([x, 1 - x, y, 1 - y], axis=0))
    return np.asarray((x + 2 * np.sum(bumps, axis=0)) * edge)


def slope_of_phi(s: float, t: float, c: float, scale: float) -> tuple[float, float]:
    """By hand: dPhi/ds and dPhi/dt."""
    u = scale * s * (s - t)
    w = 1 / (1 + math.exp(-u))
    return 1 + c * (w + w * (1 - w) * scale * (s - t) * (2 * s - t)), c * (1 - w) * (1 - u * w)


@claim(
    "Lemma 16, 18",
    "for L-Lipschitz equivariant f a block is within L(8√(dn) + √n)B_x/(2D) of f at every Z ∈ [0, B_x]^{d×n}, for "
    "any D",
    "corrected",
    instead="off the ramps of (F.7), so in Lᵖ. At every Z no block is, for d = 1, n = 2 and an f with three peaks: "
    "before F₂ a token is Φ(a(z₁), a(z₂)), with at most two critical points",
    limit=1.0,
    threshold=2.0,
)
def lemma_16() -> tuple[float, float]:
    """Error / bound off the ramps, by :func:`lookup_error`; printed: the error 0.05 that no block of d = 1, n = 2
    avoids over the bound at D = 10^5, for f(Z) = (g(z_1, z_2), g(z_2, z_1)), g of :func:`peaks`; 0 if some Phi on a
    grid has a third extremum, inf if its derivatives are not those below.

    Why none avoids it. Before F_2 the first token is Phi(a(z_1), a(z_2)), a = F_1. Let the error be less than 0.05. If
    a(x) = a(x'), then g(x, 1/2) = x and g(x', 1/2) = x' have the same approximation, so |x - x'| < 0.1: of points 0.1
    apart or more, a keeps (or reverses) the order. At the edge of a bump, from p - 0.1 to p + 0.1 and from q - 0.1 to
    q + 0.1, F_2(Phi) < 1.05; at its peak (p, q) F_2(Phi) > 2.15. Every point of the edge of the rectangle from
    a(p - 0.1) to a(p + 0.1) and from a(q - 0.1) to a(q + 0.1) is taken at an edge of the bump, so Phi there is never
    what it is at the peak, inside: Phi has an extremum in the rectangle. Bumps are 0.1 apart in x: three rectangles,
    disjoint. But dPhi/dt = c (1 - w)(1 - u w), u = scale s (s - t), w = sigmoid(u), is 0 for one u only, where u w = 1;
    and with it dPhi/ds = 1 + c (w + w (1 - w)(u + u^2 / (scale s^2))) is 0 for one s^2: two critical points at most.
    """
    draws = 4 * random(40).normal(size=(60, 4))
    h = 1e-6
    for s, t, c, k in draws[:20] / 4:
        steps = [
            (phi(s + h * a, t + h * b, c, k) - phi(s - h * a, t - h * b, c, k)) / (2 * h) for a, b in ((1, 0), (0, 1))
        ]
        if gap(steps, slope_of_phi(s, t, c, k)) > 1e-6:
            return math.inf, 0.0
    most = max(extrema(c, k) for c, k in draws[:, 2:])
    line = np.linspace(0, 1, 2001)
    values = peaks(*np.meshgrid(line, line, indexing="ij"))
    slopes = np.hypot(*(np.diff(values, axis=a)[: -1 if a else None, : None if a else -1] * 2000 for a in (0, 1)))
    bound = lemma_bound(1, 2, 10**5, 1.0, 2 * float(slopes.max()))  # f has two such entries: 2 is sqrt(2) and more
    return attained([lookup_error()], 0.18), 0.05 / bound if most <= 2 else 0.0


def lookup_error() -> float:
    """Error / bound, d = 1, n = 2, f(z_1, z_2) = (z_2, z_1), uniform attention, D = 64, F_2 the nearest id, off the
    ramps.
    """
    cells, c = 64, 0.999 / (4 * 64)

    def ids(Z: Array) -> Array:
        """Z of shape (..., 2): F_1, then attention with Q = K = 0."""
        q = staircase(Z, cells)
        return np.asarray(q + c * q.mean(-1, keepdims=True))

    table = np.array(sequences(cells, 2)) * B / cells
    known = table + c * table.mean(-1, keepdims=True)
    order = np.argsort(known[:, 0])
    Z = (random(3).integers(0, cells, (4000, 2)) + random(4).uniform(2 * RAMP * cells, 1, (4000, 2))) * B / cells
    Z = Z[np.floor(Z[:, 0] * cells / B) != np.floor(Z[:, 1] * cells / B)]
    middle = (known[order][1:, 0] + known[order][:-1, 0]) / 2
    found = np.stack([table[order[np.searchsorted(middle, ids(Z)[:, k])], 1] for k in range(2)], axis=1)
    return float(np.linalg.norm(found - Z[:, ::-1], axis=1).max()) / lemma_bound(1, 2, cells, B)


@claim(
    "F.4, one id",
    "(the proof of Lemma 16) F_SA ∘ F₁ gives different grid cells different ids, up to an error that F₂ evens out",
    "corrected",
    instead="not on the ramps: there F₁ sweeps B_x/D while the context moves an id by less, so inputs with far "
    "values of f get one id, whatever F₂ is",
    limit=1e-11,
    threshold=2.0,
)
def one_id() -> tuple[float, float]:
    """Distance of the ids of two inputs, each with its first entry on a ramp, uniform attention, D = 64, f(z_1, z_2) =
    (z_2, z_1); printed: half the difference of f there over the bound of Lemma 16.
    """
    cells, c = 64, 0.999 / (4 * 64)
    low, high = (0.5 + np.array([0, cells - 1])) * B / cells  # second entries, inside the first and last cell
    gap_of_ids = c / 2 * (B - B / cells) / (1 + c / 2)
    first = 20 * B / cells + RAMP * B * 0.7
    pair = np.array([[first, low], [first - RAMP * cells * gap_of_ids, high]])
    q = staircase(pair, cells)
    ids = (q + c * q.mean(-1, keepdims=True))[:, 0]
    return abs(float(ids[1] - ids[0])), float(high - low) / 2 / lemma_bound(1, 2, cells, B)


# ------------------------------------------------------------------------------------------------- F.2, F.3: Theorem 6


def descent_lookup(cells: int, eta: float, seed: int = 5) -> float:
    """sup error of w -> w - eta grad L at grid points: two examples, scalar w, all in [0, 1], l = (w x - y)^2 / 2."""
    Z = random(seed).uniform(0, 1, (20_000, 5))
    Z[:, 4] = np.floor(Z[:, 4] * cells) / cells  # w at the lower end of its cell: the worst case

    def after(Z: Array) -> Array:
        x, y, w = Z[:, :2], Z[:, 2:4], Z[:, 4]
        return np.asarray(w - eta * ((w[:, None] * x - y) * x).mean(1))

    return float(np.abs(after(grid_point(Z, cells, 1.0)) - after(Z)).max())


@claim(
    "Theorem 6",
    "w̄⁽ˡ⁾ = Proj(w̄ − η∇L_n(w̄) + ε⁽ˡ⁻¹⁾) with ‖ε⁽ˡ⁻¹⁾‖₂ ≤ ηε, from κ = ε/√D_w in Lemma 16",
    "partly",
    instead="that κ gives ε; ηε needs κ = ηε, a grid 1/η times as fine: w itself is rounded, not only its change. And "
    "it is shown off the ramps, as Lemma 16 is; whether some block does it at every input is open",
    limit=1.0,
    threshold=2.0,
)
def theorem_6() -> tuple[float, float]:
    """Error of f at grid points / (eta eps), eta = 0.01, eps = 0.5, D from Lemma 16 (d = 3 lanes, n = 2, L < 1.05)."""
    eta, eps = 0.01, 0.5
    cells = [math.ceil(lemma_bound(3, 2, 1, 1.0, 1.05) / kappa) for kappa in (eta * eps, eps)]
    errors = [descent_lookup(D, eta) / (eta * eps) for D in cells]
    return attained(errors[:1], 0.085), errors[1]


@claim(
    "Theorem 6, Lipschitz",
    "ℓ(w, x, y) with an L-Lipschitz gradient suffices",
    "partly",
    instead="if ∇_wℓ is Lipschitz in (w, x, y) together, which is what Lemma 16 needs; in w alone, the usual "
    "reading, it does not suffice: a gradient constant in w may jump in x",
    limit=1.0,
    threshold=0.4,
)
def theorem_6_lipschitz() -> tuple[float, float]:
    """Error / bound of Lemma 16 for squared loss; printed: l = w 1[x > 1/sqrt 2], half the jump in a cell, in eta."""
    right = attained([descent_lookup(D, 0.3) / lemma_bound(3, 2, D, 1.0, 1.6) for D in (10, 100, 1000)], 0.07)
    edge = math.sqrt(0.5)
    printed = []
    for D in (10, 1000, 100_000):
        x = edge + np.linspace(-1e-9, 1e-9, 101)
        jump = (x > edge).astype(float)  # the gradient in w, which does not depend on w
        at_grid = (grid_point(x, D, 1.0) > edge).astype(float)
        printed.append(float(np.abs(jump - at_grid).max()))
    return right, min(printed) / 2


@claim(
    "Theorem 6, L steps",
    "L identical blocks do L steps, with hᵢ⁽⁴ˡ⁾ = [xᵢ; yᵢ; w̄⁽ˡ⁾; 0; 1; tᵢ]",
    "corrected",
    instead="x, y come out on the grid, and (F.8) takes kB_x/D to (k+1)B_x/D: a cell higher a step; write cell centres",
    limit=0.5,
    threshold=10.0,
)
def theorem_6_steps() -> tuple[float, float]:
    """How far x is from where it was, in cells, after 20 blocks, D = 100: at cell centres; printed: at grid points."""
    x = random(6).uniform(0, 0.7 * B, 200)
    centred, printed = x, x
    for _ in range(20):
        centred = grid_point(centred, 100) - B / 200
        printed = grid_point(printed + 1e-12, 100)  # 1e-12: k B/D is a little below itself in float64
    return float(np.abs(centred - x).max()) * 100 / B, float(np.abs(printed - x).min()) * 100 / B


@claim(
    "Theorem 6, f_Softmax ∘ MLP",
    "f_Softmax ∘ MLP does w ↦ Proj(w − η∇L_n(w))",
    "corrected",
    instead="MLP ∘ f_Softmax: the projection comes last",
    limit=6e-6,
    threshold=0.1,
)
def theorem_6_order() -> tuple[float, float]:
    """A box: projection after and before a step of autograd, against the nearest point of the box by search, 1e-5
    apart; inf if the step is not the one of the normal equations.
    """
    X, y, w = normal(7, 6, 3), 4 * normal(8, 6), normal(9, 3).clamp(-1, 1)

    def move(w: torch.Tensor) -> torch.Tensor:
        leaf = w.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(((X @ leaf - y) ** 2).mean() / 2, leaf)
        return w - 0.5 * slope

    grid = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    nearest = torch.stack([grid[(grid - v).abs().argmin()] for v in move(w)])
    if gap(move(w), w - 0.5 * X.T @ (X @ w - y) / 6) > 1e-12 or float(move(w).abs().max()) < 1.1:
        return math.inf, 0.0
    return gap(move(w).clamp(-1, 1), nearest), gap(move(w.clamp(-1, 1)), nearest)


@claim(
    "(F.2)",
    "f: w ↦ w − η∇L_n(w), other lanes kept (n + 1 columns), is permutation equivariant, as Lemma 16 asks",
    limit=1e-12,
)
def eq_f_2() -> float:
    """Autograd on the prompt of (F.2); the query is known by t = 0, not by its place. Also the gradient by hand."""
    H = np.concatenate([random(10).normal(size=(3, 6)), np.repeat(random(11).normal(size=(2, 1)), 6, axis=1)])
    H = np.concatenate([H, np.ones((1, 6)), [[1.0] * 5 + [0.0]]])
    order = random(12).permutation(6)

    def f(H: Array) -> Array:
        P = torch.as_tensor(H)
        x, y, w, t = P[:2], P[2], P[3:5, 0].clone().requires_grad_(True), P[6]
        (slope,) = torch.autograd.grad((t * (torch.tanh(w @ x) - y) ** 2).sum() / t.sum(), w)
        out = H.copy()
        out[3:5] -= 0.3 * slope.numpy()[:, None]
        return out

    p = np.tanh(H[3:5, 0] @ H[:2, :5])  # the five examples
    slope = (2 * (p - H[2, :5]) * (1 - p**2) * H[:2, :5]).mean(1)
    wanted = np.concatenate([H[:3], H[3:5] - 0.3 * slope[:, None], H[5:]])
    return max(gap(f(H), wanted), gap(f(H[:, order]), wanted[:, order]))


@claim(
    "F.3, domain",
    "Lemma 16 holds for H ∈ [−B, B], B = max(B_x, B_y, B_w, 1)",
    "corrected",
    instead="it is for [0, B_x]: shift by B, and the bound has 2B; as it is, negative entries are “outside”, f = 0",
    limit=1.0,
    threshold=0.3,
)
def domain() -> tuple[float, float]:
    """f the identity, entries in [-1, 1]: error / bound after the shift; printed: mean error without it, z < 0."""
    z = random(13).uniform(-1, 1, 5000)
    shifted = grid_point(z + 1, CELLS, 2.0) - 1
    unshifted = wanted_quantiser(z)
    right = float(np.abs(shifted - z).max()) / lemma_bound(1, 1, CELLS, 2.0)
    return attained([right], 0.2), float(np.abs(unshifted - z)[z < 0].mean())


@claim(
    "F.3, norms",
    "‖w̄ − w⁺‖₂ ≤ √D_w ‖w̄ − w⁺‖_max ≤ ‖f_Softmax − f‖_max ≤ √D_w · ε/√D_w",
    "corrected",
    instead="the second is ≤ √D_w ‖f_Softmax − f‖_max; and ‖w̄ − w⁺‖₂ ≤ ‖f_Softmax − f‖₂ ≤ κ needs no √D_w at all",
    limit=1.0,
    threshold=1.5,
)
def norms() -> tuple[float, float]:
    """Largest ratio of the sides over random errors, spectral norm; printed: D_w = 9, the same error everywhere."""
    ratios = [
        float(np.linalg.norm(E[2:11, k]) / np.linalg.norm(E, 2))
        for E in random(14).normal(size=(50, 13, 4))
        for k in range(4)
    ]
    E = np.full((13, 4), 0.1)
    return attained(ratios, 0.9), math.sqrt(9) * float(np.abs(E[2:11]).max()) / float(np.abs(E).max())


# -------------------------------------------------------------------------------------- F.4: separateness, context ids


@claim(
    "Def. 12",
    "token-wise (r_min, r_max, δ)-separated, with > and < (𝔾_D is for r_min < √d B_x/D, r_max > √d B_x, δ < B_x/D)",
    "definition",
    limit=1e-12,
)
def definition_12() -> float:
    """All tokens of the grid, d = 2, D = 8."""
    tokens = np.array(list(itertools.product(range(1, CELLS + 1), repeat=2))) * B / CELLS
    size = np.linalg.norm(tokens, axis=1)
    apart = np.linalg.norm(tokens[:, None] - tokens[None], axis=2)
    found = [size.min(), size.max(), apart[apart > 0].min()]
    return gap(found, [math.sqrt(2) * B / CELLS, math.sqrt(2) * B, B / CELLS])


def context_ids(cells: int, n: int) -> tuple[Array, Array]:
    """Sequences of G~_D for d = 1 and n different tokens, and their ids after a small softmax head."""
    table = np.array([s for s in sequences(cells, n) if len(set(s)) == n]) * B / cells
    c = 0.999 / (4 * cells)
    head = np.array([[c]]), np.array([[1.0]]), np.array([[0.7]]), np.array([[1.0]])
    return table, np.stack([attend(row[None], *head)[0] for row in table])


def least_distance() -> float:
    """Of the ids of different (token, set of tokens), G~_6, n = 3."""
    table, ids = context_ids(6, 3)
    first = {(round(row[0], 9), tuple(sorted(np.round(row, 9)))): i[0] for row, i in zip(table, ids, strict=True)}
    return float(np.diff(np.sort(np.array(list(first.values())))).min())


@claim(
    "Def. 13",
    "contextual mapping: ids differ by more than δ if the tokens differ, Z⁽ⁱ⁾_{:,k} ≠ Z⁽ʲ⁾_{:,l}",
    "corrected",
    instead="if the tokens or the sequences (as sets) differ; as printed the identity is one, which sees no context",
    limit=-1e-6,
    threshold=0.3,
)
def definition_13() -> tuple[float, float]:
    """Minus the least distance of ids of a softmax head; printed: half the spread of (z_2 + z_3)/2 at one z_1."""
    table, _ = context_ids(6, 3)
    tokens = np.unique(table)
    if min(abs(a - b) for a, b in itertools.permutations(tokens, 2)) < 0.99 * B / 6:  # the identity, as printed
        return math.inf, 0.0
    spread = max(np.ptp(table[table[:, 0] == z, 1:].mean(1)) for z in tokens)
    return -least_distance(), float(spread) / 2


def log_delta(n: int, d: int, vocabulary: int, eps: float, r_min: float, r_max: float) -> float:
    """ln delta of Lemma 17."""
    size = (vocabulary + 1) ** 4 * (2 * math.log(n) + 3) * math.pi * d
    front = 2 * math.log(n) ** 2 * eps**2 * r_min / (r_max**2 * size)
    return math.log(front) - size * r_max**2 / (4 * eps * r_min)


@claim(
    "Lemma 17",
    "a rank-1 softmax head is a contextual mapping: norms < r = r_max + ε/4, ids > δ apart (ids as corrected in "
    "Def. 13)",
    "cited",
    limit=0.0,
)
def lemma_17() -> float:
    """ln(delta / least distance of ids), the larger of two heads of rank 1: d = 1, G~_6, n = 3, and d = 2, D = 3, n =
    2; inf if a norm reaches r.

    The delta is far from sharp: its logarithm is less than -3e5, that of the distances more than -12.
    """
    _, ids = context_ids(6, 3)
    if float(np.abs(ids).max()) >= B + B / 24:
        return math.inf
    one = log_delta(3, 1, 6, 0.999 * B / 6, 0.999 * B / 6, 1.001 * B) - math.log(least_distance())
    tokens = [np.array(t) * B / 3 for t in itertools.product((1, 2, 3), repeat=2)]
    found = {}
    for i, j in itertools.permutations(range(9), 2):
        out = attend(np.stack([tokens[i], tokens[j]], axis=1), *plane_head())
        found[i, j] = out[:, 0]  # of token i in the context {i, j}
        if np.linalg.norm(out, axis=0).max() >= math.sqrt(2) * B * 1.001 + B / 12:
            return math.inf
    pairs = itertools.combinations(found.values(), 2)
    least = min(float(np.linalg.norm(a - b)) for a, b in pairs)
    two = log_delta(2, 2, 9, 0.999 * B / 3, 0.999 * math.sqrt(2) * B / 3, 1.001 * math.sqrt(2) * B)
    return max(one, two - math.log(least)) if least > 1e-9 else math.inf


def plane_head() -> tuple[Array, Array, Array, Array]:
    """W_O, V, K, Q of rank 1 for d = 2: moves tokens by less than B/12, in a direction that tells contexts apart."""
    u = np.array([[1.0], [0.3]]) * 0.02
    v = np.array([[1.0, 0.37]])
    return u, v, v, v


# -------------------------------------------------------------------------------------------------- F.4: the quantiser


@claim(
    "(F.3)",
    "f̄(Z) = f(L) on L + [−B_x/D, 0), the nearest grid point; Q(Z) = L if Z ∈ L + [−1/D, 0)",
    "corrected",
    instead="[−B_x/D, 0) in both; L is the next grid point above, not the nearest, and z = B_x is in no cell",
    limit=0.0,
    threshold=0.3,
)
def eq_f_3() -> tuple[float, float]:
    """Cells that hold a point of [0, B): one; printed: share of points in none, B = 2."""
    z, corners = random(15).uniform(0, B, 5000), np.arange(1, CELLS + 1) * B / CELLS
    counts = [((z[:, None] >= corners - w / CELLS) & (z[:, None] < corners)).sum(1) for w in (B, 1.0)]
    return float(np.abs(counts[0] - 1).max()), float((counts[1] == 0).mean())


@claim("(F.4)", "‖f(Z) − f̄(Z)‖₂ ≤ L√(dn) B_x/D", limit=1 + 1e-9)
def eq_f_4() -> float:
    """Ratio of the sides for f = tanh(M Z + N mean), L = ||M|| + ||N||, and for the identity."""
    rng = random(16)
    M, N = rng.normal(size=(2, 2, 2))
    L = float(np.linalg.norm(M, 2) + np.linalg.norm(N, 2))
    ratios = []
    for Z in rng.uniform(0, B, (2000, 2, 3)):
        Z[:] = np.where(rng.uniform(size=Z.shape) < 0.5, np.floor(Z * CELLS / B) * B / CELLS, Z)  # lower corners too
        pair = [np.tanh(M @ P + (N @ P).mean(1, keepdims=True)) for P in (Z, grid_point(Z))]
        ratios.append(float(np.linalg.norm(pair[0] - pair[1], 2)) / (L * math.sqrt(6) * B / CELLS))
        ratios.append(float(np.linalg.norm(Z - grid_point(Z), 2)) / (math.sqrt(6) * B / CELLS))
    return attained(ratios, 0.9)


@claim("(F.5)", "(σ[z/δ] − σ[z/δ − B_x])/D is 0, z/(δD), B_x/D", limit=1e-12)
def eq_f_5() -> float:
    z = np.concatenate([random(17).uniform(-1, 3, 500), random(18).uniform(0, RAMP * B, 500)])
    return gap(step(z), np.select([z < 0, z < RAMP * B], [0 * z, z / (RAMP * CELLS)], B / CELLS))


@claim(
    "(F.6)",
    "shifted by tB_x/D, the middle case is z/(δD)",
    "corrected",
    instead="(z − tB_x/D)/(δD)",
    limit=1e-10,
    threshold=1.0,
)
def eq_f_6() -> tuple[float, float]:
    t = 3
    z = t * B / CELLS + np.concatenate([random(19).uniform(-1, 1, 500), random(20).uniform(0, RAMP * B, 500)])
    cases = [z < t * B / CELLS, z < RAMP * B + t * B / CELLS]
    shifted = [np.select(cases, [0 * z, middle / (RAMP * CELLS)], B / CELLS) for middle in (z - t * B / CELLS, z)]
    return gap(step(z, t), shifted[0]), gap(step(z, t), shifted[1])


@claim("(F.7), (F.8)", "the sum of the steps is quant_D: kB_x/D on the k-th cell, off the ramps", limit=1e-10)
def eq_f_7() -> float:
    z = points(21)
    return gap(staircase(z), grid_point(z))


@claim("(F.9)", "the sum differs from quant_D by at most B_x/D (for δ ≤ 1/D)", limit=1 + 1e-9)
def eq_f_9() -> float:
    """Ratio of the sides, ramps included."""
    z = np.concatenate(
        [random(22).uniform(-1, 3, 2000), (np.arange(8)[:, None] * B / 8 + random(23).uniform(0, RAMP * B, 99)).ravel()]
    )
    return attained([float(np.abs(staircase(z) - grid_point(z)).max()) * CELLS / B], 0.95)


@claim(
    "(F.9), matrices",
    "the same for Z with σ[Z/δ − Q(Z)/(δD)] − σ[Z/δ − B_xE − Q(Z)/(δD)] in the sum over t",
    "corrected",
    instead="tB_xE/(δD) in place of Q(Z)/(δD): as printed all D terms are the same",
    limit=1.0,
    threshold=2.0,
)
def eq_f_9_matrices() -> tuple[float, float]:
    """Ratio of the sides, d = 2, n = 3."""
    right, printed = [], []
    for Z in random(24).uniform(0, B, (200, 2, 3)):
        shift = grid_point(Z) / (RAMP * CELLS)
        same = CELLS * (relu(Z / RAMP - shift) - relu(Z / RAMP - B - shift)) / CELLS
        bound = B * math.sqrt(6) / CELLS
        right.append(float(np.linalg.norm(staircase(Z) - grid_point(Z), 2)) / bound)
        printed.append(float(np.linalg.norm(same - grid_point(Z), 2)) / bound)
    return attained(right, 0.35), max(printed)


@claim(
    "(F.10)",
    "minus σ[z/δ − B_x/δ] − σ[z/δ − 1 − B_x/δ] it is 0 outside [0, B_x]",
    "corrected",
    instead="minus B_x times that: the bracket only reaches 1, and B_x − 1 is left above B_x",
    limit=1e-9,
    threshold=0.5,
)
def eq_f_10() -> tuple[float, float]:
    z = points(25)
    right, printed = (gap(staircase(z) - last_step(z, factor), wanted_quantiser(z)) for factor in (B, 1.0))
    return right, printed


@claim(
    "(F.11)",
    "the penalty is about −B_x for z ≤ 0 and z > B_x, 0 between",
    "partly",
    instead="off the ramps; at z = 0, which is in [0, B_x] and which (F.20) is about, the ReLUs give 0",
    limit=1e-9,
    threshold=1.0,
)
def eq_f_11() -> tuple[float, float]:
    z = points(26)
    right = gap(penalty(z), np.where((z < 0) | (z > B), -B, 0.0))
    return right, gap(penalty(np.zeros(1)), [-B])


def first_feed_forward(d: int) -> tuple[Array, Array, Array, Array]:
    """W_1, b_1, W_2, b_2 of Definition 11: every entry its quantiser (F.10), plus its column's penalties (F.11)."""
    units: list[tuple[float, float, float, bool]] = []  # slope, bias, weight, of the penalty
    for t in range(CELLS):
        shift = t * B / (RAMP * CELLS)
        units += [(1 / RAMP, -shift, 1 / CELLS, False), (1 / RAMP, -B - shift, -1 / CELLS, False)]
    units += [(1 / RAMP, -B / RAMP, -B, False), (1 / RAMP, -1 - B / RAMP, B, False)]
    units += [(1 / RAMP, -B / RAMP, -B, True), (1 / RAMP, -B / RAMP - 1, B, True)]
    units += [(-1 / RAMP, 0.0, -B, True), (-1 / RAMP, -1.0, B, True)]
    units += [(1.0, 0.0, -1.0, False), (-1.0, 0.0, 1.0, False)]  # takes the residual connection away
    rows = [(i, *unit) for i in range(d) for unit in units]
    W1 = np.stack([slope * np.eye(d)[i] for i, slope, *_ in rows])
    W2 = np.stack([weight * (np.ones(d) if whole else np.eye(d)[i]) for i, _, _, weight, whole in rows], axis=1)
    return W1, np.array([row[2] for row in rows]), W2, np.zeros(d)


@claim(
    "(F.12)",
    "F₁ = quant(Z) + Σ_t Σ_k penalty(Z_{t,k}): an entry outside penalises the whole sequence",
    "corrected",
    instead="the whole token: FF acts on one column, so only Σ_t penalty(Z_{t,k}) can be added to column k",
    limit=1e-9,
    threshold=1.0,
)
def eq_f_12() -> tuple[float, float]:
    """The layer as weights, d = 2, n = 3; printed: how far from it (F.12) is when a token leaves the domain."""
    right, printed = [], []
    for Z in random(27).uniform(-0.5, B, (200, 2, 3)):
        if off_the_ramps(Z).all():
            out = feed_forward(Z, *first_feed_forward(2))
            own = np.where((Z < 0) | (Z > B), -B, 0.0)
            right.append(gap(out, wanted_quantiser(Z) + own.sum(0)))
            if own.any():
                printed.append(gap(out, wanted_quantiser(Z) + own.sum()))
    return max(right), max(printed)


def corners(d: int, n: int) -> list[Array]:
    """Inputs with every entry below, inside or above the domain, well off the ramps."""
    inside = 0.55 * B / CELLS
    return [np.array(s).reshape(d, n) for s in itertools.product((-0.3, inside, B - inside, B + 0.3), repeat=d * n)]


@claim("(F.13)", "max over Z of ‖F₁(Z)_{:,k}‖₂ is dn√d B_x, all entries outside (with F₁ of (F.12))", limit=1e-9)
def eq_f_13() -> float:
    """All inputs with entries below, inside, above, d = n = 2."""
    found = max(float(np.linalg.norm(quantised(Z), axis=0).max()) for Z in corners(2, 2))
    return abs(found - 4 * math.sqrt(2) * B)


@claim(
    "(F.14)",
    "different tokens of 𝔾̃_D are at least B_x/D apart (exactly; Def. 12 with > needs a smaller δ)",
    limit=1e-12,
)
def eq_f_14() -> float:
    """All sequences of two different tokens of the grid with D = 4, d = 2."""
    tokens = np.array(list(itertools.product(range(1, 5), repeat=2))) * B / 4
    pairs = [np.linalg.norm(a - b) for a, b in itertools.permutations(tokens, 2)]
    return abs(float(min(pairs)) - B / 4)


@claim(
    "(F.14), duplicates",
    "for D large enough different tokens stay different, so sequences with equal tokens are omitted",
    "corrected",
    instead="for one Z; over all Z a share 1 − Π(1 − k/Dᵈ) has equal tokens for every D, and nothing is shown there",
    limit=5e-3,
    threshold=2e-2,
)
def duplicates() -> tuple[float, float]:
    """The share of uniform prompts, counted, against the product, n = 4 tokens; printed: that share, D = 12, d = 2."""
    errors, shares = [], []
    for cells in (4, 12):
        tokens = np.floor(random(28).uniform(0, cells, (20_000, 4, 2))).astype(int)
        codes = np.sort(tokens @ [cells, 1], axis=1)
        shares.append(float((np.diff(codes, axis=1) == 0).any(1).mean()))
        errors.append(abs(shares[-1] - 1 + math.prod(1 - k / cells**2 for k in range(4))))
    return max(errors), min(shares)


# -------------------------------------------------------------------------------------- F.4: attention and last layer


def shift_ratio(inputs: list[Array], bound: float | None = None) -> float:
    """Largest ||attention's change of a column|| over inputs and heads, per bound: that of (F.15) unless given."""
    ratios = []
    for seed, Z in enumerate(inputs):
        d = len(Z)
        moved = np.linalg.norm(attend(Z, *small_attention(seed, d)) - Z, axis=0).max()
        limit = np.linalg.norm(Z, axis=0).max() / (4 * math.sqrt(d) * CELLS) if bound is None else bound
        ratios.append(float(moved / limit))
    return max(ratios)


@claim(
    "(F.15)",
    "some rank-1 head that is a contextual mapping has ‖F_SA(Z)_{:,k} − Z_{:,k}‖₂ < max‖Z_{:,k′}‖₂/(4√d D) for all "
    "Z ≠ 0",
    limit=1.0,
)
def eq_f_15() -> float:
    """Ratio of the sides: the softmax averages, so ||W_O V|| is all that counts. The head of Definition 13's row, which
    is as small, has different ids (inf if not).
    """
    if least_distance() < 1e-9:
        return math.inf
    return attained([shift_ratio([10.0**s * Z for s in (-2, 0, 2) for Z in random(29).normal(size=(100, 2, 3))])], 0.95)


@claim("(F.16)", "so F_SA ∘ F₁ is within dnB_x/(4D) of F₁", limit=1.0)
def eq_f_16() -> float:
    """Ratio of the sides over all inputs with entries below, inside, above, d = n = 2."""
    return attained([shift_ratio([quantised(Z) for Z in corners(2, 2)], 4 * B / (4 * CELLS))], 0.95)


def with_attention(Z: Array, seed: int) -> Array:
    return attend(quantised(Z), *small_attention(seed, len(Z)))


@claim(
    "(F.17)",
    "every entry of F_SA ∘ F₁(Z) is below B_x/(4D) for Z outside [0, B_x]^{d×n}",
    "corrected",
    instead="for Z outside by at least δ: nearer the penalty is still on its ramp",
    limit=1.0,
    threshold=2.0,
)
def eq_f_17() -> tuple[float, float]:
    """Largest entry / (B/4D), with (F.12); printed: one entry outside by delta / 20, the others at the top."""
    outside = [Z for Z in corners(2, 2) if (Z < 0).any() or (Z > B).any()]
    right = max(float(with_attention(Z, seed).max()) for seed, Z in enumerate(outside))
    near = np.full((2, 2), 0.97 * B)
    near[0, 0] = -RAMP / 20
    return attained([right * 4 * CELLS / B], 0.5), float(with_attention(near, 0).max()) * 4 * CELLS / B


@claim("(F.18), (F.19)", "one penalty: F₁ is in [−B_x, 0], and attention moves a column by at most B_x/(4D)", limit=1.0)
def eq_f_18() -> float:
    """Largest ratio; inf if an entry leaves [-B, 0]."""
    one = [quantised(Z) for Z in corners(2, 2) if int(((Z < 0) | (Z > B)).sum()) == 1]
    if any(Z.min() < -B - 1e-9 or Z.max() > 1e-9 for Z in one):
        return math.inf
    return attained([shift_ratio(one, B / (4 * CELLS))], 0.7)


@claim(
    "(F.20), (F.21)",
    "for Z ∈ [0, B_x]^{d×n}, F₁ ∈ [B_x/D, B_x] and F_SA ∘ F₁ > 3B_x/(4D)",
    "corrected",
    instead="for entries at least δB_x: on the first ramp F₁ is below B_x/D, at 0 it is 0",
    limit=1.0,
    threshold=0.5,
)
def eq_f_20() -> tuple[float, float]:
    """(3B/4D) / least entry, from delta B on; printed: by how much, relative, the entry at 0 misses it."""
    inside = [*random(30).uniform(RAMP * B, B, (300, 2, 2)), np.full((2, 2), RAMP * B)]
    if any(quantised(Z).min() < B / CELLS - 1e-9 or quantised(Z).max() > B + 1e-9 for Z in inside):
        return math.inf, 0.0
    least = min(float(with_attention(Z, seed).min()) for seed, Z in enumerate(inside))
    edge = np.array([[0.0, B / 2], [B / 2, B / 2]])
    return attained([3 * B / (4 * CELLS) / least], 0.75), 1 - float(with_attention(edge, 1)[0, 0]) / (
        3 * B / (4 * CELLS)
    )


@claim("(F.22), (F.23)", "inside, attention moves a column, so an entry, by less than B_x/(4D)", limit=1.0)
def eq_f_22() -> float:
    """Ratio of the sides, the top corner included."""
    inside = [*random(31).uniform(0, B, (300, 2, 3)), np.full((2, 3), B)]
    return attained([shift_ratio([quantised(Z) for Z in inside], B / (4 * CELLS))], 0.95)


@claim(
    "(F.24)",
    "F₂ maps every L ∈ 𝔾_D to f(L), and Z between the values of f at the grid points within B_x/2D",
    "corrected",
    instead="F₂ sees one column: it maps context ids, not tokens, to f(L)_{:,k}; between ids nothing is bounded",
    limit=1e-9,
    threshold=0.3,
)
def eq_f_24() -> tuple[float, float]:
    """f = mean of the others, F_2 piecewise linear in ids; printed: half the spread at a token, which no F_2 avoids."""
    table, ids = context_ids(6, 3)
    values = (table.sum(1, keepdims=True) - table) / 2
    others = [[(a + b) / 2 for a, b in ((y, z), (x, z), (x, y))] for x, y, z in table.tolist()]
    if gap(values, others) > 1e-12 or float(np.abs(ids - table).max()) > B / (4 * 6):
        return math.inf, 0.0
    where = np.unique(np.round(ids.ravel(), 12), return_index=True)[1]  # a set of tokens in another order: the same id
    right = gap(np.interp(ids, ids.ravel()[where], values.ravel()[where]), values)
    return right, max(float(np.ptp(values[table == z])) for z in np.unique(table)) / 2


@claim(
    "F.4, after (F.24)",
    "F₁ with ReLUs and its limit F̄₁ differ by at most 1/D in every entry, for any Z ∈ ℝ^{d×n}",
    "corrected",
    instead="by at most B_x/D inside [0, B_x]; within δ outside by up to B_x or more",
    limit=1 + 1e-9,
    threshold=2.0,
)
def limit_of_ramps() -> tuple[float, float]:
    """Largest difference / (B/D) inside, ramps included; printed: difference / (1/D) just below 0 (d = n = 1)."""
    z = np.concatenate(
        [random(32).uniform(0, B, 2000), (np.arange(8)[:, None] * B / 8 + random(33).uniform(0, RAMP * B, 99)).ravel()]
    )
    right = float(np.abs(staircase(z) - last_step(z, B) + penalty(z) - wanted_quantiser(z)).max()) * CELLS / B
    below = np.array([-RAMP / 20])
    return attained([right], 0.95), float(np.abs(quantised(below) - (wanted_quantiser(below) - B)).max()) * CELLS


@claim(
    "F.4, sum of the errors",
    "‖F_SA F̄₁ − F_SA F₁‖ ≤ √(dn)B_x/D + 2√n B_x/(4D); with L(…) it adds up to L(8√(dn) + √n)B_x/2D",
    limit=1.0,
)
def sum_of_errors() -> float:
    """Ratio of the sides, entries on ramps and off, d = 2, n = 3; and the sum, for many d and n."""
    rng, ratios = random(34), []
    bound = math.sqrt(6) * B / CELLS + 2 * math.sqrt(3) * B / (4 * CELLS)
    for seed in range(300):
        Z = rng.integers(0, CELLS, (2, 3)) * B / CELLS + rng.uniform(0, RAMP * B, (2, 3))
        both = [attend(P, *small_attention(seed, 2)) for P in (quantised(Z), wanted_quantiser(Z))]
        ratios.append(float(np.linalg.norm(both[0] - both[1], 2)) / bound)
    for d, n in itertools.product(range(1, 6), repeat=2):
        root, small = math.sqrt(d * n), math.sqrt(n)
        total = (2 * root + small) / 2 + 2 * root + root
        if abs(total - lemma_bound(d, n, 1, 1.0)) > 1e-12:
            return math.inf
    return attained(ratios, 0.5)
