"""Section 2: the problem, and what the abstract says of it."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

import innergrad as ig
from claims import attained, gap
from claims_gradient.common import (
    ONE,
    algorithm_of,
    claim,
    columns,
    compiled,
    exact_step,
    flat,
    matrices,
    propagate,
    risk_gradient,
    sample,
    scratch,
)
from innergrad.transformer import CompiledTransformer


@claim(
    "Abstract, ReLU",
    "a (2N+4)L-layer transformer simulates gradient descent of an N-layer ReLU network within any given error",
    "corrected",
    instead="not near a kink: transformers are continuous in w and x, the gradient of a ReLU network jumps, so each is "
    "wrong there by half the jump or more; the construction (r′ a ramp) is exact off its ramp",
    limit=1e-9,
    threshold=0.49,
)
def abstract_relu() -> tuple[float, float]:
    """Error of the gradient, one unit, |grad| = 1: pre-activation 1; printed: on the ramp, smallest error over eps, and
    half the jump of the exact step, by autograd on both sides, which no continuous function comes nearer than.
    """

    def error(tf: CompiledTransformer, z: float) -> float:
        w0, one = torch.tensor([z, 1.0], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
        return gap(tf.run(one, -one, one, w0=w0).weights[1], exact_step(tf, w0, one, -one))

    right, printed = [], []
    for epsilon in (1e-1, 1e-3, 1e-6):
        tf = compiled((1, 1, 1), "relu", lr=1.0, box=None, epsilon=epsilon, output="linear", n=1)
        ((low, high),) = next(f.ramps for f in tf.approximants.values() if f.ramps)
        right.append(error(tf, 1.0))
        printed.append(error(tf, low + (high - low) / 4))
    one, sides = torch.ones(1, 1, dtype=torch.float64), []
    for z in (1e-9, -1e-9):
        sides.append(exact_step(tf, torch.tensor([z, 1.0], dtype=torch.float64), one, -one))
    return max(right), min(*printed, gap(*sides) / 2)


@claim(
    "(2.1), D",
    "the width of the prompt is D = Θ(d), q_i = [0; 1; t_i]",
    "partly",
    instead="for fixed K and N; w and what is computed from it are lanes too: D = d_x + d_y + D_N + 3((N−1)K + d_y) + "
    "d_y + 2, which is Θ(dK + NK²)",
    limit=0,
    threshold=2.5,
)
def eq_2_1() -> tuple[float, float]:
    """D of compiled transformers (two lanes more, query and omega, left out) against the sum, and inf if it does not
    double with d at fixed K; printed: D at K = 16 over D at K = 4, d = 3.
    """
    widths, wrong = {}, 0
    for d, K, N in itertools.product((3, 64, 128), (4, 16), (2, 3, 4)):
        if d == 3 or K == 4:
            sizes = (d, *[K] * (N - 1), d)
            tf = compiled(sizes, epsilon=0.1)
            D_N = 2 * d * K + (N - 2) * K * K
            widths[d, K, N] = tf.d_model - 2
            wrong = max(wrong, abs(widths[d, K, N] - (2 * d + D_N + 3 * ((N - 1) * K + d) + d + 2)))
    if not all(1.8 < widths[128, 4, N] / widths[64, 4, N] < 2.0 for N in (2, 3, 4)):
        return math.inf, 0.0
    return wrong, min(widths[3, 16, N] / widths[3, 4, N] for N in (2, 3, 4))


@claim(
    "(2.1), prediction",
    "the (d+1, n+1) entry of 𝒯(H) is to be the prediction ŷ_{n+1} (the aim of Sec. 2)",
    "partly",
    instead="with a read-out of N attention layers and a copy; the (2N+4)L layers of Theorem 1, whose output is w, "
    "leave 0 there",
    limit=0.05,
    threshold=0.2,
)
def read_out() -> tuple[float, float]:
    """Distance to the network that was trained: the query's y after the read-out (eps = 0.01); printed: before it."""
    tf = compiled(steps=2)
    X, y, query = sample(10)
    states = tf.trace(X, y, query, w0=flat(matrices(11)), executor="dense")
    before, after = states[tf.n_layers][1], states[-1][1]
    V = [before[f"V{j}"][0, 0] for j in (1, 2, 3)]
    wanted = propagate(V, query, y[:1]).p[-1][0]
    return gap(after["y"][0, -1], wanted), gap(before["y"][0, -1], wanted)


@claim("(2.2)", "ℒ_n(w) = 1/(2n) Σ ℓ(f(w, x_i), y_i)", "definition", limit=1e-12)
def eq_2_2() -> float:
    """The library's reference step against autograd on the risk written out; the one-half is in the step."""
    tf, (X, y, query) = compiled(box=None), sample(20)
    V = matrices(21)
    weights = ig.reference(tf.algorithm, X, y, query, w0=flat(V)).weights
    return gap((weights[0] - weights[1]) / 0.5, flat(risk_gradient(V, X, y)))


@claim(
    "(2.3), (3.5)",
    "h_i = [x_i; y_i; w⁽ˡ⁾; 0; 1; t_i] after block l: the data kept, one w in all tokens, the rest 0",
    limit=1e-13,
)
def eq_2_3() -> float:
    """The dense layers of two steps: scratch, difference of w over the tokens, change of x, y and t."""
    tf = compiled(steps=2)
    X, y, query = sample(30)
    h = start = tf.stream(X, y, query, w0=flat(matrices(31)))
    worst = []
    for layer in itertools.islice(tf.module.layers(), tf.n_layers):
        h = layer(h)
        if layer.name == "project and clear":
            worst += [float(h[..., place].abs().max()) for place in scratch(tf)]
            worst += [
                gap(h[0, :, columns(tf, f"V{j}")], h[0, :1, columns(tf, f"V{j}")].expand(7, -1)) for j in (1, 2, 3)
            ]
            worst += [gap(h[..., columns(tf, name)], start[..., columns(tf, name)]) for name in ("x", "y", "t")]
    moved = gap(h[..., columns(tf, "V1")], start[..., columns(tf, "V1")])
    return max(worst) if moved > 1e-2 else math.inf


def losses(tf: CompiledTransformer, w0: Tensor) -> tuple[float, float, Tensor]:
    """Risk before and after the algorithm, by autograd, and the last weights."""
    X, y, query = sample(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.DegenerateStart)
        weights = ig.reference(tf.algorithm, X, y, query, w0=w0).weights
    risks = [float(algorithm_of(tf).risk(w, X, y)) for w in (weights[0], weights[-1])]
    return risks[0], risks[1], weights[-1]


@claim(
    "(2.3), start",
    "the steps start at w̄⁽⁰⁾ = 0 (r(0) = 0)",
    "partly",
    instead="the recursion is right, and empty: for r(0) = 0 and N ≥ 2, ∇ℒ_n(0) = 0 and nothing ever moves; the start "
    "has to be in the prompt",
    limit=0.5,
    threshold=0.999,
)
def start_tanh() -> tuple[float, float]:
    """Risk after 50 steps over risk before, tanh: from random weights; printed: from 0."""
    tf = compiled(steps=50)
    before, after, _ = losses(tf, flat(matrices(41)))
    stuck = losses(tf, torch.zeros(algorithm_of(tf).network.n_weights, dtype=torch.float64))
    return after / before, stuck[1] / stuck[0]


@claim(
    "(3.5), start",
    "the steps start at w̄⁽⁰⁾ = 0 (r(0) ≠ 0)",
    "partly",
    instead="then w moves, but all hidden neurons of a layer stay equal for ever: what is trained is a network of "
    "width 1",
    limit=1e-12,
    threshold=1.5,
)
def start_sigmoid() -> tuple[float, float]:
    """Largest difference of two neurons after 200 steps from 0, sigmoid; printed: loss there over that from random."""
    sizes = (3, 4, 2)
    tf = compiled(sizes, "sigmoid", lr=1.0, steps=200, box=None, output="linear")
    _, from_zero, w = losses(tf, torch.zeros(20, dtype=torch.float64))
    _, from_random, _ = losses(tf, flat(matrices(42, sizes)))
    V1, V2 = w[:12].view(4, 3), w[12:].view(2, 4)
    if float(V1.abs().max()) < 1e-2:
        return math.inf, 0.0
    return max(gap(V1, V1[:1].expand(4, 3)), gap(V2, V2[:, :1].expand(2, 4))), from_zero / from_random


@claim(
    "Problem 1, W",
    "W is closed, and Proj_W the projection onto it (Corollary 1.1 is stated in this setting)",
    "corrected",
    instead="closed and convex, as in Lemma 14: else Proj_W magnifies errors without bound, and the corollary fails",
    limit=ONE,
    threshold=100,
)
def convex_domain() -> tuple[float, float]:
    """|w - w_GD| / (eps (1 + eta L_f)^l / L_f) after a step from 0, f' = -0.4999 (L_f = 1 bounds f''), eta = n = 1, eps
    = 1e-3: W = [-2, 2]; printed: W = [-2, -1], 0 and [1, 2], which is closed and has 0.
    """

    def distance(project: Callable[[float], float]) -> float:
        exact, wrong = project(0.4999), project(0.4999 + 1e-3)
        return abs(exact - wrong) / (1e-3 * 2.0)

    def nearest(w: float) -> float:
        return min((min(max(w, -2.0), -1.0), 0.0, min(max(w, 1.0), 2.0)), key=lambda v: abs(v - w))

    return attained([distance(lambda w: min(max(w, -2.0), 2.0))], 0.5 - 1e-9), distance(nearest)


@claim(
    "Problem 2",
    "ICGD on N-layer networks: Problem 1 with f(w, ·) = pred_o(·; w, N), W as in (3.4)",
    "definition",
    limit=1e-4,
)
def problem_2() -> float:
    """That it has a solution in one case: every step of a compiled transformer, eps = 1e-4, against autograd on the
    network written out and a box that binds; inf if nothing moves, or nothing is at the wall.
    """
    X, y, query = sample(55)
    tf, worst = compiled(steps=3, box=0.5, epsilon=1e-4), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ig.PoorRun)  # the box is to bind
        weights = tf.run(X, y, query, w0=flat(matrices(56)).clamp(-0.5, 0.5), executor="dense").weights
    for before, after in itertools.pairwise(weights):
        V = [matrix for matrix, _ in algorithm_of(tf).network.unflatten(before)]
        moved = before - 0.5 * flat(risk_gradient(V, X, y))
        if float(moved.abs().max()) < 0.51 or gap(before, after) < 1e-2:
            return math.inf
        worst = max(worst, gap(after, moved.clamp(-0.5, 0.5)))
    return worst
