"""Checks of a summary of *In-Context Deep Learning via Transformer Models* (arXiv 2411.16549).

The summary is of the paper whose statements are in ``claims_gradient`` and ``claims_softmax.py``; it has no numbers,
so its claims are counted: key results, mechanisms, trade-offs, limitations. What it says of its own confidence, and the
questions it leaves open, are no claims. Transformers are compiled by the library and compared with autograd.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import torch
from torch import Tensor

import innergrad as ig
from claims import Paper, gap, normal, worst
from innergrad.transformer import CompiledTransformer

PAPER = Paper("002", "A summary of *In-Context Deep Learning via Transformer Models* (arXiv 2411.16549)")
claim = PAPER.claim
# Functions that make what a statement is tried on; no mutants of these.
CASES = ("compiled", "examples")

LR = 0.25
EPSILONS = (1e-1, 1e-2, 1e-3)
RAMP_EPSILONS = (1e-1, 1e-3, 1e-6)


@cache
def compiled(
    sizes: tuple[int, ...], activation: str = "tanh", epsilon: float = 1e-2, steps: int = 1, box: float | None = 4.0
) -> CompiledTransformer:
    """The construction that the summary is about."""
    network = ig.Network(list(sizes), activation=activation, output="linear", bias=False)
    algorithm = ig.GradientDescent(network, loss="squared", lr=LR, steps=steps, box=box)
    return ig.compile(algorithm, target="relu", variant="literal", epsilon=epsilon, n_examples=6)


def examples(seed: int, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """X, y, w0."""
    weights = sum(a * b for a, b in itertools.pairwise(sizes))
    return torch.tanh(normal(seed, 6, sizes[0])), torch.tanh(normal(seed + 1, 6, sizes[-1])), normal(seed + 2, weights)


def pred(w: Tensor, X: Tensor, sizes: tuple[int, ...], activation: str = "tanh") -> Tensor:
    r = torch.tanh if activation == "tanh" else torch.relu
    p, used = X, 0
    for level, (a, b) in enumerate(itertools.pairwise(sizes)):
        p = (r(p) if level else p) @ w[used : used + a * b].reshape(b, a).T
        used += a * b
    return p


def gradient(w: Tensor, X: Tensor, y: Tensor, sizes: tuple[int, ...], activation: str = "tanh") -> Tensor:
    """Of 1/(2n) sum (f(x_i) - y_i)^2, by autograd."""
    leaf = w.clone().requires_grad_(True)
    risk = ((pred(leaf, X, sizes, activation) - y) ** 2).sum() / (2 * len(X))
    (slope,) = torch.autograd.grad(risk, leaf)
    return slope


def gradient_error(sizes: tuple[int, ...], epsilon: float, steps: int = 1) -> float:
    """Of the transformer's first step, in the 2-norm, over epsilon's scale: |(w0 - w1)/lr - gradient|."""
    X, y, w0 = examples(1, sizes)
    moved = compiled(sizes, epsilon=epsilon, steps=steps).run(X, y, X[:1], w0=w0).weights[1]
    return float(((w0 - moved) / LR - gradient(w0, X, y, sizes)).norm())


def ramp_error(epsilon: float) -> float:
    """Error of the gradient of one ReLU of slope 1, its argument at a quarter of the ramp that stands for the jump."""
    tf = compiled((1, 1, 1), "relu", epsilon, 1, None)
    ((low, high),) = next(f.ramps for f in tf.approximants.values() if f.ramps)
    w0, one = torch.tensor([low + (high - low) / 4, 1.0], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    moved = tf.run(one, -one, one, w0=w0).weights[1]
    return gap((w0 - moved) / LR, gradient(w0, one, -one, (1, 1, 1), "relu"))


# --------------------------------------------------------------------------------------------------------- key results


@claim(
    "Key result 1",
    "a (2N+4)L-layer transformer can simulate L gradient descent steps of an N-layer ReLU network",
    "partly",
    instead="the count is right, and for smooth activations every step is within ε; for ReLU not, where r′ jumps",
    limit=1e-2,
    threshold=0.7,
)
def key_result_1() -> tuple[float, float]:
    """Largest error of two steps, N = 2 and 3, tanh; printed: smallest error of a ReLU's gradient, over epsilon."""
    errors = []
    for sizes in ((2, 3, 1), (2, 3, 2, 1)):
        tf, (X, y, w) = compiled(sizes, steps=2), examples(1, sizes)
        if tf.n_layers != (2 * (len(sizes) - 1) + 4) * 2:
            return math.inf, 0.0
        for before, after in itertools.pairwise(tf.run(X, y, X[:1], w0=w).weights):
            errors.append(gap((before - after) / LR, gradient(before, X, y, sizes)))
    return worst(errors), min(map(ramp_error, RAMP_EPSILONS))


PAPER.untestable(
    "Key result 2",
    "experimental validation shows that learning in context matches direct training on 3-, 4- and 6-layer networks",
    "a report of trainings, whose models and data are not published; it does not follow from the construction",
)


def cells(lanes: int, tokens: int, epsilon: float) -> float:
    """log10 of the sequences that the look-up of Lemma 16 tells apart, for a 1-Lipschitz function on [0, 1]."""
    per_axis = math.ceil((8 * math.sqrt(lanes * tokens) + math.sqrt(tokens)) / (2 * epsilon))
    return lanes * tokens * math.log10(per_axis)


@claim(
    "Key result 3",
    "the extension to softmax transformers provides universal approximation for practical applications",
    "partly",
    instead="universal, off the ramps of the quantiser; not practical: its MLP looks up every sequence of grid points",
    limit=1e-9,
    threshold=100.0,
)
def key_result_3() -> tuple[float, float]:
    """log10 of grid sequences, against a list of them all; printed: the same for one step on 2-3-1, 6 examples."""
    listed = len(list(itertools.product(itertools.product(range(48), repeat=1), repeat=2)))
    error = abs(cells(1, 2, (8 * math.sqrt(2) + math.sqrt(2)) / (2 * 48 - 1)) - math.log10(listed))
    return error, cells(compiled((2, 3, 1)).d_model, 7, 0.1)


def apart(steps: int, error: float) -> float:
    """f = -w^2/2, whose gradient has L_f = 1: the distance of descent with errors from descent without, w0 = 0."""
    exact = wrong = 0.0
    for _ in range(steps):
        exact, wrong = exact + LR * exact, wrong + LR * wrong + LR * error
    return abs(exact - wrong)


@claim(
    "Key result 4",
    "theoretical guarantees on approximation error and convergence are established",
    "partly",
    instead="of a step; over l steps the error grows like (1 + ηL_f)ˡ, and gradients fall to O(ε) for η ≤ 1/L_f",
    limit=1e-9,
    threshold=100.0,
)
def key_result_4() -> tuple[float, float]:
    """Distance over L_f^-1 ((1 + eta L_f)^l - 1) eps, less 1, where it is attained; printed: over eps, 30 steps."""
    ratios = [apart(steps, 1e-6) / (1e-6 * ((1 + LR) ** steps - 1)) for steps in (1, 5, 30)]
    return worst(abs(ratio - 1) for ratio in ratios), apart(30, 1e-6) / 1e-6


# ---------------------------------------------------------------------------------------------------------- mechanisms


def amplified(layers: int) -> float:
    """What an error of 1e-9 in every unit's activation adds to the output, over 1e-9: rows of sum 2, tanh near 0."""
    weight, p, q = torch.full((4, 4), 0.5, dtype=torch.float64), torch.zeros(4).double(), torch.zeros(4).double()
    for _ in range(layers - 1):
        p, q = torch.tanh(weight @ p), torch.tanh(weight @ q) + 1e-9
    return float((weight @ (p - q)).abs().max()) / 1e-9


@claim(
    "Mechanism 1",
    "a block of layers does a step: attention the forward pass, MLPs the loss’s derivative, products the chain rule; "
    "errors of the sums of ReLUs accumulate polynomially",
    "partly",
    instead="the blocks are so; errors grow with the depth like (‖V‖ L_r)ᴺ, exponentially where that is above 1",
    limit=1e-2,
    threshold=10.0,
)
def mechanism_1() -> tuple[float, float]:
    """Error of the gradient, and kinds of layers; printed: growth of an error from 2 to 10 layers, over (10/2)^2."""
    kinds = [layer.kind for layer in compiled((2, 3, 2, 1)).program.layers][:10]
    if kinds != ["attention"] * 4 + ["mlp"] + ["product"] * 3 + ["attention", "mlp"]:
        return math.inf, 0.0
    return gradient_error((2, 3, 2, 1), 1e-2), amplified(10) / amplified(2) / 5**2


@claim(
    "Mechanism 2",
    "the chain rule splits the gradient into N parts, A(j) = s(j) p(j−1)ᵀ for the parameters of layer j",
    limit=1e-12,
)
def mechanism_2() -> float:
    """The recursion s(j) = r'(j) V(j+1)^T s(j+1), written out for one example, against autograd."""
    sizes = (3, 4, 2, 2)
    X, y, w = examples(5, sizes)
    x, target = X[0], y[0]
    V1, V2, V3 = w[:12].reshape(4, 3), w[12:20].reshape(2, 4), w[20:].reshape(2, 2)
    p1 = torch.tanh(V1 @ x)
    p2 = torch.tanh(V2 @ p1)
    s3 = V3 @ p2 - target
    s2 = (1 - p2**2) * (V3.T @ s3)
    s1 = (1 - p1**2) * (V2.T @ s2)
    parts = [torch.outer(s, p).flatten() for s, p in ((s1, x), (s2, p1), (s3, p2))]
    return gap(torch.cat(parts), gradient(w, x[None], target[None], sizes))


@claim(
    "Mechanism 3",
    "softmax transformers approximate the map to the step, as it is continuous and permutation-equivariant",
    "partly",
    instead="equivariant always, continuous if r′ is: for ReLU networks the step jumps, and no block is near it there",
    limit=1e-12,
    threshold=0.2,
)
def mechanism_3() -> tuple[float, float]:
    """The step for reordered examples, tanh, by autograd; printed: how far the step jumps at a kink of a ReLU."""
    sizes = (2, 3, 1)
    X, y, w = examples(7, sizes)
    turned = torch.tensor([3, 0, 5, 1, 4, 2])
    one, jump = torch.ones(1, 1, dtype=torch.float64), []
    for side in (-1e-9, 1e-9):
        v = torch.tensor([side, 1.0], dtype=torch.float64)
        jump.append(v - LR * gradient(v, one, -one, (1, 1, 1), "relu"))
    return gap(gradient(w, X[turned], y[turned], sizes), gradient(w, X, y, sizes)), gap(jump[0], jump[1])


# ------------------------------------------------------------------------------------------ trade-offs and limitations


@claim(
    "Trade-off 1, Limitation 3",
    "ReLU approximates term by term, with an error; softmax is universal but may be less efficient",
    limit=0.05,
)
def trade_off_1() -> float:
    """log10 of the ReLU transformer's parameters over log10 of the cells of the softmax one, 2-3-1, error 0.1."""
    tf = compiled((2, 3, 1), epsilon=0.1)
    if not 0 < gradient_error((2, 3, 1), 0.1) < 0.1:
        return math.inf
    return math.log10(tf.n_parameters) / cells(tf.d_model, 7, 0.1)


@claim(
    "Trade-off 2",
    "more layers enable better approximation, at a higher cost",
    "corrected",
    instead="the number of layers is (2N+4)L for every ε: accuracy is bought with heads, not with layers",
    limit=0.0,
    threshold=50.0,
)
def trade_off_2() -> tuple[float, float]:
    """Layers more at epsilon = 1e-3 than at 0.1; printed: how much smaller the error is, at the same depth."""
    found = [compiled((2, 3, 1), epsilon=epsilon).n_layers for epsilon in EPSILONS]
    errors = [gradient_error((2, 3, 1), epsilon) for epsilon in EPSILONS]
    return float(max(found) - min(found)), errors[0] / errors[-1]


@claim("Trade-off 3", "wider layers can represent more, and have more parameters", limit=0.2)
def trade_off_3() -> float:
    """Largest error(epsilon / 10) / error(epsilon); parameters and heads must grow."""
    errors = [gradient_error((2, 3, 1), epsilon) for epsilon in EPSILONS]
    sizes = [(tf.n_heads, tf.n_parameters) for tf in (compiled((2, 3, 1), epsilon=e) for e in EPSILONS)]
    grows = all(a < b and c < d for (a, c), (b, d) in itertools.pairwise(sizes))
    return worst(b / a for a, b in itertools.pairwise(errors)) if grows else math.inf


@claim(
    "Limitation 1",
    "the smoothness that the theory assumes may not hold for practical activations (it does not for ReLU)",
    limit=1e-6,
)
def limitation_1() -> float:
    """A quarter up the ramp, a gradient of 1 is 1/4: distance of the error from 3/4, for every epsilon."""
    return worst(abs(ramp_error(epsilon) - 0.75) for epsilon in RAMP_EPSILONS)


@claim(
    "Limitation 2",
    "details of the element-wise multiplication layer are not fully specified",
    "partly",
    instead="Definition 6 and (D.15) specify it, with slips; mended, the layer computes r′ ⊙ (Vᵀs) to rounding",
    limit=1e-12,
)
def limitation_2() -> float:
    """The product layer of the dense module: lanes before and after it, 2-3-2-1, against torch."""
    sizes = (2, 3, 2, 1)
    X, y, w = examples(9, sizes)
    trace = dict(compiled(sizes).trace(X, y, X[:1], w0=w, executor="dense"))
    state = trace["backward 2"]
    s3, s2, slope = (state[name][0, :6] for name in ("s3", "s2", "d2"))
    V3 = w[12:].reshape(1, 2)
    return gap(s2, slope * (s3 @ V3))


PAPER.untestable(
    "Limitation 4",
    "experimental validation is limited to synthetic data and networks of up to 6 layers",
    "a description of the paper’s experiments, which says nothing of the construction",
)
