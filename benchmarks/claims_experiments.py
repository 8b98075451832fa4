"""Checks of Appendices G and H of *Transformers are Deep Optimizers*, experiments and diffusion, and of what the
introduction and Appendix B say about them.

Diffusion is in one dimension, x_t = e^-t x_0 + sqrt(1 - e^-2t) z, where everything is a sum or an integral: densities
and scores come from :func:`mixture`, derivatives from autograd, integrals from fine grids. What a trained transformer
and networks trained on the prompt do is read from ``results/lab_full.json``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.polynomial import chebyshev
from scipy.interpolate import LinearNDInterpolator
from torch import Tensor

import innergrad as ig
from _results import read
from claims import Paper, gap, normal
from innergrad import flops
from innergrad.lab.learners.gpt import GPTConfig

PAPER = Paper(
    "001",
    "*Transformers are Deep Optimizers: Provable In-Context Learning for Deep Model Training* (the version under "
    "review), introduction, Appendices B, G and H",
)
claim = PAPER.claim

ATOMS = torch.tensor([-1.5, 0.5, 2.0], dtype=torch.float64)  # x_0
SHARES = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)
T_0, T = 0.05, 3.0

# --------------------------------------------------------------------------------------------------- the introduction


@claim("Question 1", "one deep model can be trained by the ICL of another: there is an example", limit=0.2)
def question_1() -> float:
    """Risk after 60 steps over that before, a 3-layer network, weights by a compiled transformer; inf if that
    is off by a twentieth from gradient descent written out, with autograd.
    """
    network = ig.Network((3, 4, 4, 2), "tanh", output="activation", bias=False)
    algorithm = ig.GradientDescent(network, "squared", lr=0.5, steps=60, box=4.0)
    tf = ig.compile(algorithm, target="relu", epsilon=1e-2, n_examples=6)
    X, y, w0 = normal(1, 6, 3), 0.5 * torch.tanh(normal(2, 6, 2)), 0.5 * normal(3, network.n_weights)

    def risk(w: Tensor) -> Tensor:
        V = [part.view(k, -1) for part, k in zip(w.split([12, 16, 8]), (4, 4, 2), strict=True)]
        return ((torch.tanh(torch.tanh(torch.tanh(X @ V[0].T) @ V[1].T) @ V[2].T) - y) ** 2).sum() / 12

    w = w0
    for _ in range(60):
        leaf = w.detach().requires_grad_(True)
        w = leaf.detach() - 0.5 * torch.autograd.grad(risk(leaf), leaf)[0]
    weights = tf.run(X, y, X[:1], w0=w0, executor="dense").weights
    before, after, exact = (float(risk(v)) for v in (w0, weights[-1], w))
    return after / before if abs(after / exact - 1) < 0.05 else math.inf


PAPER.untestable(
    "Introduction, priority",
    "Lemma 1 is the first explicit expression for the gradient of an N-layer network",
    "who was first is not for a computation to say; it is back-propagation, written as a product (see Lemma 1)",
)
PAPER.untestable(
    "B.1, earlier work",
    "Wang et al. (2024) take O(N²L) layers and a scalar output; Panigrahi et al. (2023) stop gradients at the scores",
    "these are about other papers, which are not among those here",
)


def mixture(x: Tensor, t: Tensor | float) -> Tensor:
    """log p_t(x), up to a constant in x; any shapes that broadcast."""
    t = torch.as_tensor(t, dtype=torch.float64)[..., None]
    variance = 1 - torch.exp(-2 * t)
    logits = SHARES.log() - (x[..., None] - torch.exp(-t) * ATOMS) ** 2 / (2 * variance)
    return torch.logsumexp(logits - 0.5 * torch.log(2 * math.pi * variance), -1)


def score(x: Tensor, t: Tensor | float) -> Tensor:
    """d/dx log p_t by autograd."""
    leaf = x.detach().clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(mixture(leaf, t).sum(), leaf)
    return slope.detach()


@claim(
    "B.1, score",
    "the score function falls outside the smooth function class (of Wang et al.)",
    "corrected",
    instead="for t ≥ T₀ > 0, where it is used, it is analytic, whatever P₀: a convolution with a Gaussian; only its "
    "bounds grow as T₀ → 0",
    limit=1e-6,
    threshold=4.0,
)
def smooth_score() -> tuple[float, float]:
    """Error of the interpolation in 640 Chebyshev points of [-4, 4] at T_0, P_0 three atoms; printed: by how many
    powers of ten it falls from 160 to 640 points: 0.6 or less if there were a kink.
    """
    line = torch.linspace(-4, 4, 4001, dtype=torch.float64)
    errors = []
    for nodes in (160, 640):
        places = np.asarray(chebyshev.chebpts1(nodes))
        series = chebyshev.chebfit(places, score(torch.as_tensor(4 * places), T_0).numpy(), nodes - 1)
        errors.append(gap(chebyshev.chebval(line.numpy() / 4, series), score(line, T_0)))
    return errors[1], math.log10(errors[0] / errors[1])


@claim(
    "B.1, layers",
    "approximating the diffusion score function requires networks with multiple layers",
    "corrected",
    instead="one hidden layer does, to any accuracy, as for every continuous function; more layers can need fewer "
    "units",
    limit=1e-2,
    threshold=50.0,
)
def one_hidden_layer() -> tuple[float, float]:
    """L2(P_t) error of a network with one hidden layer of 400 ReLUs, t = T_0; printed: that of 40 over it, which would
    be 1 if there were an error that no width avoids.
    """
    x = torch.linspace(-5, 5, 20_001, dtype=torch.float64)
    density = mixture(x, T_0).exp() * (x[1] - x[0])
    errors = []
    for units in (40, 400):
        knots = torch.linspace(-5, 5, units + 1, dtype=torch.float64)
        values = score(knots, T_0)
        slopes = torch.diff(values) / torch.diff(knots)
        jumps = torch.diff(slopes, prepend=torch.zeros(1, dtype=torch.float64))
        network = values[0] + torch.relu(x[:, None] - knots[:-1]) @ jumps
        errors.append(float(((network - score(x, T_0)) ** 2 @ density).sqrt()))
    return errors[1], errors[0] / errors[1]


# ------------------------------------------------------------------------------------------------------- Appendix B.3

SIX = (20, 200, 200, 200, 200, 200, 1)


@claim(
    "B.3, billions",
    "with ICL a transformer takes fewer FLOPs in practice than training the 6-layer network: 3.3 against 7.6 billion",
    "partly",
    instead="counted: 3.1 for a forward pass on 75 examples with GPT-2's MLP of 1024, 7.4 for 100 epochs on them. But "
    "with the MLP of 256 that G.1 gives it is 1.7; for the 3-layer network it is 3.1 against 2.0; and 2·10¹⁷ of "
    "pretraining are left out",
    limit=0.06,
    threshold=0.4,
)
def billions() -> tuple[float, float]:
    """Largest relative difference of the two counts to those printed (inf if ICL's is not the smaller, or if it is for
    3 layers, or if pretraining is less than 10^7 times as much); printed: of ICL's with an MLP of 256.
    """
    icl = {width: GPTConfig(d_mlp=width).flops(20, 76).total for width in (256, 1024)}
    direct = {sizes: 100 * flops.gradient_step(sizes, 75).total for sizes in (SIX, (20, 200, 200, 1))}
    pretraining = 3 * 64 * 500_000 * GPTConfig(d_mlp=1024).flops(20, 51).total
    if not direct[20, 200, 200, 1] < icl[1024] < direct[SIX] or pretraining < 1e7 * direct[SIX]:
        return math.inf, 0.0
    right = max(abs(icl[1024] / 3.3e9 - 1), abs(direct[SIX] / 7.6e9 - 1))
    return right, abs(icl[256] / 3.3e9 - 1)


# --------------------------------------------------------------------------------------------------------- Appendix G


def stored(name: str, measure: str, k: int) -> float:
    """A curve of results/lab_full.json at k examples: 3-layer networks of G.1, inputs N(-2, I), softmax attention."""
    curve = read("lab_full")["curves"][name][measure]
    return float(next(point["value"] for point in curve if point["k"] == k))


NETWORK = "3-layer network, adam 0.003"


@claim(
    "G.1, objective 1",
    "ICL learns N-layer networks and achieves R² comparable to those from training with prompt samples",
    "partly",
    instead="for N = 3, softmax, test inputs as in pretraining: pooled R² within 0.02 of networks trained on the "
    "prompt, and above them. If a network's epoch is chosen for each prompt by its test error, as G.1 can be read, "
    "ICL is far below; N = 4, 6 and ReLU attention: docs/reproduction.md, mixtures-softmax and mixtures-relu",
    limit=0.02,
    threshold=2.0,
)
def objective_1() -> tuple[float, float]:
    """Largest difference of R^2 of the transformer and of networks trained on the prompt, last epoch, k = 10 .. 50 (inf
    if the transformer's is the smaller); printed: 1 - R^2 over that with the epoch chosen by the test label, at least.
    """
    ks = (10, 20, 30, 40, 50)
    names = ("model", f"{NETWORK}, last epoch", f"{NETWORK}, per-prompt epoch")
    model, last, chosen = ([stored(name, "pooled R^2", k) for k in ks] for name in names)
    if any(a < b for a, b in zip(model, last, strict=True)):
        return math.inf, 0.0
    ratios = [(1 - a) / (1 - b) for a, b in zip(model, chosen, strict=True)]
    return max(a - b for a, b in zip(model, last, strict=True)), min(ratios)


@claim(
    "G.1, baseline",
    "the baseline's R² is the highest of its epochs",
    "corrected",
    instead="an epoch that a learner could have chosen: the best by the test label has seen the answer, and beats even "
    "the Bayes predictor of infinitely wide networks, which no learner does on average",
    limit=1.0,
    threshold=2.0,
)
def baseline() -> tuple[float, float]:
    """Squared error of the posterior mean (NNGP) over that of networks trained on the prompt, last epoch, largest of k
    = 10 .. 50; printed: over that of networks with the epoch chosen by the test label, smallest.
    """
    ks = (10, 20, 30, 40, 50)
    ratios = [
        [stored("NNGP, 3 layers", "squared error", k) / stored(f"{NETWORK}, {epoch}", "squared error", k) for k in ks]
        for epoch in ("last epoch", "per-prompt epoch")
    ]
    return max(ratios[0]), min(ratios[1])


@claim(
    "G.1, R-squared",
    "performance is the mean R² (figures 1 to 5)",
    "partly",
    instead="pooled over prompts, R² is easy: with inputs N(−2, I) each network has a level of its own, and the "
    "mean of the labels seen has more than 0.8. Within prompts that is 0, and ICL has 0.3 to 0.8",
    limit=0.1,
    threshold=0.8,
)
def r_squared() -> tuple[float, float]:
    """|within-prompt R^2| of the mean of the labels, k = 20 .. 50 (inf if the transformer's is not above 0.3); printed:
    its pooled R^2, smallest.
    """
    ks = (20, 30, 40, 50)
    if min(stored("model", "within-prompt R^2", k) for k in ks) < 0.3:
        return math.inf, 0.0
    level = [abs(stored("mean", "within-prompt R^2", k)) for k in ks]
    return max(level), min(stored("mean", "pooled R^2", k) for k in ks)


PAPER.untestable(
    "G.1, objective 2",
    "ICL declines as the test inputs w₁N(−2, I) + w₂N(2, I) diverge from N(−2, I); past 50 examples the softmax "
    "transformer declines, the authors believe for its absolute positions",
    "not by a small check: it needs transformers of 12 blocks pretrained on 51 points and asked about 76. They were "
    "trained and judged: docs/reproduction.md, mixtures-softmax and mixtures-relu",
)


def constant_networks(mean: float, inputs: float) -> float:
    """Share of 200 random ReLU networks 20-200-200-200-1, weights N(mean, 1), that are constant on 30 points N(inputs,
    I).
    """
    rng = torch.Generator().manual_seed(31)
    constant = 0
    for _ in range(200):
        p = inputs + torch.randn(30, 20, generator=rng, dtype=torch.float64)
        for a, b in itertools.pairwise((20, 200, 200, 200, 1)):
            z = p @ (mean + torch.randn(a, b, generator=rng, dtype=torch.float64))
            p = torch.relu(z) if b > 1 else z
        constant += int(p.std() <= 1e-9 * p.abs().max())
    return constant / 200


@claim(
    "G.2",
    "for weights N(±0.5, I), not N(0, I) as in pretraining, ICL still matches training 4-layer networks",
    "partly",
    instead="N(0.5, I): docs/reproduction.md, parameters-softmax and parameters-relu. For N(−0.5, I) there is nothing "
    "to match: on inputs N(−2, I) ReLU networks of width 200 are constant, the second layer being dead, and have no R²",
    limit=0.05,
    threshold=0.95,
)
def other_weights() -> tuple[float, float]:
    """Share of networks that are constant: weights N(0, 1) and N(1/2, 1); printed: N(-1/2, 1)."""
    return max(constant_networks(mean, -2.0) for mean in (0.0, 0.5)), constant_networks(-0.5, -2.0)


@claim(
    "G.3",
    "deeper transformers (4, 6, 8, 10 layers) are better, supporting the idea that they do more steps of ICGD",
    "conjecture",
    instead="for: in compiled transformers depth is steps, and the loss falls with each. Against: a step of Theorem 1 "
    "for the networks of N = 4 takes 2N + 4 = 12 layers, more than any of those has. Trained ones: "
    "docs/reproduction.md, depth",
    limit=0.99,
)
def depth() -> float:
    """Risk after 1, 2, 4, 8 steps of a compiled transformer, N = 4, largest ratio of one to the one before; inf if a
    step takes fewer than 12 layers.
    """
    network = ig.Network((3, 4, 4, 4, 1), "tanh", output="linear", bias=False)
    X, y, w0 = normal(5, 8, 3), normal(6, 8, 1), 0.7 * normal(7, network.n_weights)
    risks = []
    for steps in (1, 2, 4, 8):
        algorithm = ig.GradientDescent(network, "squared", lr=0.3, steps=steps, box=4.0)
        tf = ig.compile(algorithm, target="relu", epsilon=1e-2, n_examples=8)
        if tf.n_layers < 12 * steps:
            return math.inf
        risks.append(float(algorithm.risk(tf.run(X, y, X[:1], w0=w0).weights[-1], X, y)))
    return max(b / a for a, b in itertools.pairwise(risks))


# --------------------------------------------------------------------------------------------------------- Appendix H


def normal_density(x: Tensor, mean: float, variance: float) -> Tensor:
    return torch.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def losses(s: Callable[[Tensor, float], Tensor], times: tuple[float, ...]) -> tuple[float, float]:
    """(H.1) and (H.2) for a score network s, gamma = 1, summed over times instead of integrated."""
    x = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    step, marginal, conditional = float(x[1] - x[0]), 0.0, 0.0
    for t in times:
        marginal += float(((s(x, t) - score(x, t)) ** 2 * mixture(x, t).exp()).sum()) * step
        for atom, share in zip(ATOMS.tolist(), SHARES.tolist(), strict=True):
            mean, variance = math.exp(-t) * atom, 1 - math.exp(-2 * t)
            target = (mean - x) / variance
            conditional += share * float(((s(x, t) - target) ** 2 * normal_density(x, mean, variance)).sum()) * step
    return marginal, conditional


TIMES = (0.1, 0.5, 1.5)
NETWORKS: list[Callable[[Tensor, float], Tensor]] = [
    lambda x, t: -x,
    lambda x, t: torch.tanh(3 * x) - t,
    lambda x, t: torch.sin(2 * x) / (t + 0.1),
    lambda x, t: 0.1 * x**2,
]


@claim(
    "(H.1)",
    "min over W of ∫ γ(t) E‖s_W(x_t, t) − ∇log p_t(x_t)‖² dt is score matching: least at the score",
    "definition",
    limit=1e-8,
)
def eq_h_1() -> float:
    """Minimiser among a + b x for each t, by the normal equations on a grid, against -(x - m)/v: the score of a
    Gaussian with the mean m and, E[x score] being -1, the slope -1/v; and (H.1) at the score itself.
    """
    x = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    worst = losses(score, TIMES)[0]
    for t in TIMES:
        p = mixture(x, t).exp() * (x[1] - x[0])
        m = float(x @ p)
        v = float((x - m) ** 2 @ p)
        design = torch.stack([torch.ones_like(x), x], 1)
        gram, right = design.T @ (p[:, None] * design), design.T @ (p * score(x, t))
        worst = max(worst, gap(torch.linalg.solve(gram, right), torch.tensor([m / v, -1 / v], dtype=torch.float64)))
    return worst


@claim("(H.2)", "with ∇log p(x_t | x₀) in place of ∇log p_t(x_t) the loss is the same but for a constant", limit=1e-9)
def eq_h_2() -> float:
    """Spread of the difference over four functions s, relative, by integrals on a grid; inf if the losses do not differ
    from function to function.
    """
    found = [losses(s, TIMES) for s in NETWORKS]
    differences = [b - a for a, b in found]
    if max(a for a, _ in found) < 2 * min(a for a, _ in found):
        return math.inf
    return (max(differences) - min(differences)) / max(b for _, b in found)


@claim(
    "Problem 3",
    "given (x_i, y_i), y_i = ∇log p_{t_i}(x_i), and x_{n+1}, predict y_{n+1}",
    "corrected",
    instead="given (x_i, t_i, y_i) and (x_{n+1}, t_{n+1}): y is a function of x and t, not of x",
    limit=0.03,
    threshold=0.3,
)
def problem_3() -> tuple[float, float]:
    """Error of the nearest of 4000 examples (x, t, y), mean square over that of y; printed: the least mean square error
    of any function of x alone, the variance of y given x over that of y, t log-uniform on [T_0, T].
    """
    rng = np.random.default_rng(11)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        t = torch.as_tensor(np.exp(rng.uniform(math.log(T_0), math.log(T), n)))
        atoms = ATOMS[torch.as_tensor(rng.choice(3, n, p=SHARES.numpy()))]
        x = torch.exp(-t) * atoms + torch.sqrt(1 - torch.exp(-2 * t)) * torch.as_tensor(rng.normal(size=n))
        return torch.stack([x, t], 1), score(x, t)

    def features(z: Tensor) -> Tensor:
        """Points of a time are near if their distance is small against the noise of that time."""
        noise = torch.sqrt(1 - torch.exp(-2 * z[:, 1]))
        return torch.stack([z[:, 0] / noise, 4 * noise.log()], 1)

    (z, y), (query, wanted) = draw(4000), draw(1000)
    nearest = torch.cdist(features(query), features(z)).argmin(1)
    scale = float((wanted**2).mean())
    line = torch.exp(torch.linspace(math.log(T_0), math.log(T), 200, dtype=torch.float64))
    x = torch.linspace(-4, 4, 401, dtype=torch.float64)
    density = mixture(x[:, None], line[None]).exp()
    values = score(x[:, None].expand(-1, 200), line[None].expand(401, -1))
    given = (density * values).sum(1) / density.sum(1)
    blind = float((density * (values - given[:, None]) ** 2).sum() / (density * values**2).sum())
    return float(((y[nearest] - wanted) ** 2).mean()) / scale, blind


@claim(
    "Lemma 19",
    "for any P₀ some ReLU network is within O(ε) of ∇log p_t in L²(P_t), for all t ∈ [T₀, T] (there: data on a "
    "subspace, a Lipschitz score)",
    "cited",
    limit=0.02,
)
def lemma_19() -> float:
    """Largest L2(P_t) error over t of a continuous piecewise-linear function of (x, t), which is a ReLU network, on
    14,000 triangles, one dimension, P_0 three atoms; inf if a quarter of them does as well.
    """
    errors = []
    for fine in (1, 2):
        x, t = np.linspace(-7, 7, 140 * fine + 1), np.exp(np.linspace(math.log(T_0), math.log(T), 25 * fine + 1))
        grid = np.array(list(itertools.product(x, t)))
        values = score(torch.as_tensor(grid[:, 0]), torch.as_tensor(grid[:, 1])).numpy()
        network = LinearNDInterpolator(grid, values)
        line = torch.linspace(-6.9, 6.9, 2001, dtype=torch.float64)
        worst = 0.0
        for time in np.exp(np.linspace(math.log(T_0) + 1e-6, math.log(T) - 1e-6, 31)):
            found = torch.as_tensor(network(line.numpy(), np.full(2001, time)))
            density = mixture(line, float(time)).exp() * (line[1] - line[0])
            worst = max(worst, float(((found - score(line, float(time))) ** 2 @ density).sqrt()))
        errors.append(worst)
    return errors[1] if errors[1] < errors[0] / 2 else math.inf


@claim(
    "H.2, reduction",
    "so Problem 3 reduces to Problem 2 with the loss (H.1), and by Theorem 1 ICL approximates the score",
    "partly",
    instead="the network of Lemma 19 has ReLUs, for which Theorem 1 does not hold (see Abstract): softplus will do. "
    "That gradient descent arrives at the network of Lemma 19 is not shown: Lemma 14 gives a small gradient, no more",
    limit=0.02,
    threshold=0.1,
)
def reduction() -> tuple[float, float]:
    """Score of three atoms from 30 examples (x, e^-t, 1; y = sigma_t score): distance of a compiled transformer's
    predictions to those of gradient descent, 40 steps on a softplus network of width 6; printed: mean square error of
    those predictions over that of y.
    """
    rng = torch.Generator().manual_seed(21)
    t = T_0 + (1 - T_0) * torch.rand(60, generator=rng, dtype=torch.float64)
    x = 2 * torch.randn(60, generator=rng, dtype=torch.float64)
    X = torch.stack([x / 2, torch.exp(-t), torch.ones_like(t)], 1)
    y = (torch.sqrt(1 - torch.exp(-2 * t)) * score(x, t))[:, None]
    variance, centres = 1 - torch.exp(-2 * t[:, None]), torch.exp(-t)[:, None] * ATOMS
    shares = SHARES * torch.exp(-((x[:, None] - centres) ** 2) / (2 * variance))
    mean = (shares * centres).sum(1) / shares.sum(1)  # of e^-t x_0, given x_t
    if gap(y[:, 0] * variance[:, 0].sqrt(), mean - x) > 1e-9:
        return math.inf, 0.0
    network = ig.Network((3, 6, 1), "softplus", output="linear", bias=False)
    algorithm = ig.GradientDescent(network, "squared", lr=0.1, steps=40, box=8.0)
    tf = ig.compile(algorithm, target="relu", epsilon=1e-3, n_examples=30)
    w0 = 0.5 * normal(22, network.n_weights)
    found = tf.run(X[:30], y[:30], X[30:], w0=w0).predictions
    exact = ig.reference(algorithm, X[:30], y[:30], X[30:], w0=w0).predictions
    return gap(found, exact), float(((exact - y[30:]) ** 2).mean() / (y[30:] ** 2).mean())


@claim(
    "H.1, backward process",
    "the backward process takes pure noise y_T to data, and is the reversed forward process: y_t ≈ᵈ x_{T−t}",
    "partly",
    instead="it is, with the drift x + 2∇log p_t, if it begins with the law of x_T. Pure noise N(0, I) is not that "
    "law: the two differ by about e⁻ᵀ times the mean of the data, and at no later time by more",
    limit=1e-8,
    threshold=3e-3,
)
def backward_process() -> tuple[float, float]:
    """The equation of Fokker and Planck of the backward process, at the density of the forward one: largest residual
    on a grid, derivatives by autograd, over the largest term. Printed: distance in total variation of P_T and N(0, 1).
    """
    worst, x = 0.0, torch.linspace(-4, 4, 401, dtype=torch.float64)
    for time in TIMES:
        leaf, t = x.clone().requires_grad_(True), torch.full_like(x, time).requires_grad_(True)
        density = mixture(leaf, t).exp()
        later, slope = torch.autograd.grad(density.sum(), (t, leaf), create_graph=True)
        drift = (leaf + 2 * slope / density) * density
        (carried,) = torch.autograd.grad(drift.sum(), leaf, retain_graph=True)
        (spread,) = torch.autograd.grad(slope.sum(), leaf)
        residual = (spread - carried + later).detach()
        worst = max(worst, float(residual.abs().max() / spread.abs().max()))
    line = torch.linspace(-9, 9, 18_001, dtype=torch.float64)
    apart = (mixture(line, T).exp() - normal_density(line, 0.0, 1.0)).abs().sum() * (line[1] - line[0]) / 2
    return worst, float(apart)


@claim("H.1, T₀", "T₀ > 0 prevents the score function from diverging", limit=1e-3)
def least_time() -> float:
    """E score² times sigma_t², from which 1 is missing as t goes to 0, P_0 three atoms: by an integral at t = 1e-5; inf
    if it is more than 1 at a time from there to T. So scores diverge as 1 / sigma_t, and from T_0 on they are bounded.
    """
    found = []
    for t in (1e-5, 1e-3, T_0, 0.5, T):
        sigma = math.sqrt(-math.expm1(-2 * t))
        places = math.exp(-t) * ATOMS[:, None] + sigma * torch.linspace(-9, 9, 6001, dtype=torch.float64)
        weights = SHARES[:, None] * normal_density((places - math.exp(-t) * ATOMS[:, None]) / sigma, 0.0, 1.0) * 0.003
        found.append(float((weights * score(places, t) ** 2).sum()) * sigma**2)
    return abs(1 - found[0]) if max(found) < 1 + 1e-9 else math.inf


@claim(
    "H.2, in context",
    "train the ReLU network in context until convergence, the training set as the prompt: the transformer serves as "
    "the trained score network s_W",
    "partly",
    instead="off the kinks it is the trained network, to rounding. But training until convergence fits the examples, "
    "not the score: on new points the error is many times that on the prompt",
    limit=1e-6,
    threshold=3.0,
)
def score_in_context() -> tuple[float, float]:
    """A 3-layer ReLU network, up to 400 steps with momentum on 24 examples, float64: difference of the scores of a
    compiled transformer and of torch.optim.SGD, root mean square; printed: mean square error of labels on new points
    over that on the prompt.
    """
    data = ig.diffusion.GaussianMixture(ATOMS[:, None], std=0.05, weights=SHARES)
    task = ig.diffusion.ScoreTask(min_time=T_0, max_time=T, label="data")
    learner = ig.diffusion.ScoreLearner(d=1, task=task, hidden=(16, 16), n_examples=24, lr=0.1, momentum=0.9, steps=400)
    prompt, new = task.from_mixture(data, 24, seed=1), task.from_mixture(data, 500, seed=2)
    learned = learner.learn(prompt, dtype=torch.float64)
    how = {"lr": 0.1, "momentum": 0.9, "steps": learned.steps, "dtype": torch.float64}
    trained = ig.diffusion.train_directly(prompt, task, (16, 16), learner.start(), **how)  # type: ignore[arg-type]

    def risk(examples: ig.diffusion.Examples) -> float:
        found = task.labels(examples.x, examples.t, learned(examples.x, examples.t))
        return float((found - examples.y).square().mean())

    difference = (learned(new.x, new.t) - trained(new.x, new.t)).square().mean().sqrt()
    return float(difference), risk(new) / risk(prompt)
