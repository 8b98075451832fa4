"""Certificates before any run: bounds for every admissible prompt of the declared domain.

The domain is |x| <= x_bound, |y| <= y_bound entry by entry, weights in the box, any number of examples, any weights of
the examples. A bound for all of it holds under every shift of the distribution of inputs or parameters inside it.

Three bounds on the error of the gradient in one step stand side by side:

    printed      Theorem 1 of the paper with the constants of Lemmas 2, 3 and 6, and the ranges, as they are printed
    corrected    the same theorem with its errors mended, in the Euclidean norm (:func:`corrected_theorem_1`)
    best         the program itself, instruction by instruction (:mod:`innergrad.interpret.worst`)

and so for the weights after l steps: Corollary 1.1 as printed and corrected, and the program carried on from step to
step. Lemma 14 bounds the gradient mapping G(w) = (w - Proj(w - eta grad L(w))) / eta along the transformer's own steps.

A ball of radius R in place of the box bounds every weight, and the norm of each lane of weights, by R. Its projection
is approximate, which is a further error in every step (:func:`_on_ball`).

Symbols: N layers of k_j units, K the widest hidden layer. B is the box, and B_v = B sqrt(k_{j-1}) bounds the rows of
V_j. eps_r, eps_r' and eps_l are the proven errors of the approximants. L_f is the Lipschitz constant of the gradient. A
bias is a weight on a further input that is one. Exact arithmetic: rounding is not included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.algorithms.losses import LogisticLoss, ResidualLoss, SmoothLoss, SoftmaxLoss
from innergrad.errors import InputError
from innergrad.functions.facts import prove_derivative, proven
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import IDENTITY, Function, PiecewiseLinear, linear_function
from innergrad.interpret.worst import TINY, Bound, Known, Worst
from innergrad.model.compiled import Compiled

Sizes = Mapping[str, tuple[float, float]]  # lane -> largest entry, largest norm
SLACKS = (2.0**-10, 2.0**-6, 2.0**-3, 1.0)  # how far outside of a ball, relatively, weights may be
ONE = linear_function("one", PiecewiseLinear((), (0.0,), value=1.0), 0.0, 1.0)  # the derivative of the identity


class Stated(NamedTuple):
    """A bound, where it comes from, and whether to believe it."""

    label: str
    source: str
    value: float
    note: str


@dataclass(frozen=True)
class DomainCertificate:
    """Bounds for every prompt of the domain: ``tf.certificate``. ``inf`` means that nothing is known.

    Attributes:
        domain: the domain in words.
        gradient: bounds on the error of the gradient in one step, from any weights in the box. The last is the best
            one.
        largest_gradient: a bound on the norm of the gradient.
        lipschitz: a bound on the Lipschitz constant of the gradient, L_f.
        weights: the best bounds on the distance to the algorithm's weights after steps 1, 2, ..., from the same start.
        prediction: the best bound on the error of a prediction after all steps (Euclidean norm over the outputs).
        lr: the learning rate.
        n_examples: the longest prompt.
        plain_descent: it is projected gradient descent without momentum or other extras, as the paper's Corollary 1.1
            and Lemma 14 ask.

    Examples:
        >>> import innergrad as ig
        >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), lr=0.1, steps=1, box=1.0)
        >>> tf = ig.compile(algorithm, target="relu", epsilon=1e-3, x_bound=1.0, y_bound=1.0, n_examples=4)
        >>> 0 < tf.certificate.best < 0.1  # no gradient of any prompt is farther off
        True
    """

    domain: str
    gradient: tuple[Stated, ...]
    largest_gradient: float
    lipschitz: float
    weights: tuple[float, ...]
    prediction: float
    lr: float
    n_examples: int
    plain_descent: bool

    @property
    def best(self) -> float:
        """The smallest proven bound on the error of the gradient."""
        return self.gradient[-1].value

    @property
    def step_size_met(self) -> bool:
        """Whether lr <= 1 / L_f, which Lemma 14 needs (the paper prints lr <= L_f)."""
        return self.lr * self.lipschitz <= 1.0

    def trajectory(self, step: int) -> tuple[Stated, ...]:
        """Bounds on ||w - w_GD||_2 after the given number of steps."""
        if not 0 <= step <= len(self.weights):
            raise InputError("no such step", got=step, allowed=f"0 to {len(self.weights)}")
        best = Stated(
            "best", "the program, step by step, or the corrected", self.weights[step - 1] if step else 0.0, "proven"
        )
        if not self.plain_descent:
            return (best,)
        printed, L_f = self.gradient[0].value, self.lipschitz
        grown = _power(1.0 + self.n_examples * self.largest_gradient, step)
        as_printed = grown * printed / self.largest_gradient if self.largest_gradient else math.inf
        return (
            Stated("printed", "Corollary 1.1", as_printed, "false: growth n L_f without eta, L_f that of the risk"),
            Stated("corrected", "eps ((1 + eta L_f)^l - 1) / L_f", corollary(self.best, self.lr, L_f, step), "proven"),
            best,
        )

    def lemma14(self, steps: int, risk0: float) -> float:
        """A bound on the mean over l = 0 .. steps - 1 of ||G(w_l)||^2, hence on the least, from the risk L(w_0) (with
        weight decay: plus weight_decay ||w_0||^2 / 2).

            (sqrt(2 L(w_0) / (eta steps) + eps^2) + 2 eps)^2          if eta <= 1 / L_f, else inf

        Proof. Let a = ||w_{l+1} - w_l|| / eta, and eps the error of the gradient. Projections are non-expansive, so
        ||G(w_l)|| <= a + eps. The descent lemma and (w_l - eta g - w_{l+1})·(w_l - w_{l+1}) <= 0, g the approximate
        gradient, give L(w_l) - L(w_{l+1}) >= eta (a^2/2 - eps a). With a^2/2 - eps a = ((a - eps)^2 - eps^2) / 2, the
        mean of (a - eps)^2 is at most 2 L(w_0) / (eta steps) + eps^2, the risk being at least 0; and
        ||G|| <= (a - eps) + 2 eps: Minkowski. The paper's 8 L(w_0) / (eta steps) + 10 eps^2 is larger, and is printed
        with the condition eta <= L_f.
        """
        if steps < 1 or not risk0 >= 0.0:
            raise InputError("steps must be positive, and a risk is at least 0", got=f"{steps}, {risk0}")
        if not (self.step_size_met and self.plain_descent and self.lr > 0.0):
            return math.inf
        root = math.sqrt(2.0 * risk0 / (self.lr * steps) + self.best * self.best) + 2.0 * self.best
        return root * root

    def __str__(self) -> str:
        last = len(self.weights)
        rows = {"error of the gradient, one step": self.gradient, f"weights, {last} steps": self.trajectory(last)}
        lines = [f"for every prompt with {self.domain}"]
        for title, bounds in rows.items():
            lines += ["", f"{title}: at most"]
            lines += [f"  {b.label:<12}{b.value:>14.3e}    {b.source}; {b.note}" for b in bounds]
        lines += ["", f"prediction: off by at most {self.prediction:.3e}"]
        if self.plain_descent:
            met = "met" if self.step_size_met else "not met, so Lemma 14 says nothing"
            limit = 1.0 / self.lipschitz if self.lipschitz else math.inf
            lines += [
                f"gradient: norm at most {self.largest_gradient:.3e}, Lipschitz constant L_f at most "
                f"{self.lipschitz:.3e}",
                f"Lemma 14: lr = {self.lr:g} <= 1/L_f = {limit:.3e}: {met}",
            ]
        return "\n".join(lines)


def apriori(of: Compiled) -> DomainCertificate:
    """The certificate of a compiled transformer for all of its declared domain."""
    if isinstance(of.algorithm, GradientDescent) and of.algorithm.ball is not None:
        return _on_ball(of, of.algorithm, of.algorithm.ball)
    return _on_box(of)


def _on_box(of: Compiled, norm: float | None = None) -> DomainCertificate:
    """norm: of every lane of weights, if it is known."""
    of.require_proven_facts()
    if not of.proven or of.options.target != "relu":
        raise InputError(
            "only target relu has proven approximants, which a certificate is made from",
            got=f"target={of.options.target!r}",
            allowed="target='relu'",
        )
    of = replace(of, approximants=_of_derivatives(of))
    algorithm, lr = of.algorithm, getattr(of.algorithm, "lr", 1.0)
    if isinstance(algorithm, GradientDescent) and not algorithm.basic:
        raise InputError(
            "a certificate for every input is for gradient descent with one rate, momentum, weight decay and a box",
            got="another optimiser, rates that differ, l1, clip or batches",
            hint="tf.certify(X, y) bounds the error of a run",
        )
    if of.options.variant == "narrow":  # the same numbers in exact arithmetic, which the bounds are about
        of = replace(of, program=algorithm.program(replace(of.options, variant="literal")))
    if not of.program.weights or lr == 0.0:
        raise InputError("a certificate is about weights that are trained", got="none" if lr else "lr = 0")
    sizes, words = _domain(of, norm)
    one = _first_step(of, sizes)  # its changes: the addends of the weights before they are projected
    jumps, changes = ", ".join(sorted(one.jumps)), [one.changes[lane.name] for lane in of.program.weights]
    note = f"proven, but {jumps} jumps: it does not shrink with epsilon" if jumps else "proven"
    error = math.hypot(*(change.error.norm for change in changes)) / lr
    best = Stated("best", "the program, instruction by instruction", error, note)
    stated: tuple[Stated, ...] = (best,)
    if isinstance(algorithm, GradientDescent):
        printed, corrected = theorems(algorithm, of.approximants, sizes)
        if "g" not in of.program.stream.by_name:  # s_N is made of other functions than r' and u
            corrected = corrected._replace(note="of the literal variant")
        elif corrected.value < best.value:
            best = corrected._replace(label="best")
        stated = (printed, corrected, best)
    L_f = _lipschitz(of, sizes) / lr + getattr(algorithm, "weight_decay", 0.0)
    weights, prediction = _all_steps(of, sizes)
    plain_descent = isinstance(algorithm, GradientDescent) and algorithm.momentum == 0.0
    if plain_descent:
        weights = tuple(min(w, corollary(best.value, lr, L_f, step)) for step, w in enumerate(weights, start=1))
    return DomainCertificate(
        domain=words,
        gradient=stated,
        largest_gradient=math.hypot(*(change.size.norm for change in changes)) / lr,
        lipschitz=L_f,
        weights=weights,
        prediction=prediction,
        lr=lr,
        n_examples=of.options.n_examples,
        plain_descent=plain_descent,
    )


def _on_ball(of: Compiled, algorithm: GradientDescent, radius: float) -> DomainCertificate:
    """For gradient descent on a ball. Let B be a little more than R, and eps the error of the function of the
    projection. Let weights be within B. Before they are projected, they are within P = B + eta sup |gradient|. After
    it, they are within R + eps P in the transformer, and within R in the algorithm. If R + eps P is at most B, this
    holds for ever. Projections are not expanding, hence E_{l+1} <= (1 + eta L_f) E_l + eta eps_gradient + eps P, all
    bounds those of the box B.
    """
    if algorithm.momentum:
        what = "a certificate for every input, on a ball, is for plain gradient descent"
        raise InputError(
            what, got=f"momentum={algorithm.momentum:g}", hint="tf.certify(X, y) bounds the error of a run"
        )
    of.require_proven_facts()
    eps, lr, kept = of.approximants["ball"].error, algorithm.lr, abs(1.0 - algorithm.lr * algorithm.weight_decay)
    for box, boxed in _boxes(of, algorithm, radius):
        found = _on_box(boxed, box)
        off = eps * (max(1.0, kept) * box + lr * found.largest_gradient)
        if radius + off <= box:
            break
    else:
        raise InputError(
            "the weights may leave the ball by so much that there is no bound for every input",
            got=f"{off:.3g}, the projection being exact to {eps:.1e}",
            hint="compile with epsilons={'ball': ...} less than that, or smaller x_bound, y_bound or lr",
        )
    errors = (corollary(found.best + off / lr, lr, found.lipschitz, step) for step in range(1, algorithm.steps + 1))
    weights = tuple(min(error, radius + box) for error in errors)
    words = f"{found.domain.rsplit(', ', 1)[0]}, ||w|| <= {radius:g}"
    prediction = _predicted(boxed, box, weights[-1])
    return replace(found, domain=words, weights=weights, prediction=prediction, plain_descent=False)


def _boxes(of: Compiled, algorithm: GradientDescent, radius: float) -> Iterator[tuple[float, Compiled]]:
    """The same with a box around the ball in place of the ball: B, and the compiled record."""
    options = replace(of.options, variant="literal") if of.options.variant == "narrow" else of.options
    for slack in SLACKS:
        boxed = algorithm.in_box((1.0 + slack) * radius)
        yield (1.0 + slack) * radius, replace(of, algorithm=boxed, program=boxed.program(options))


def _predicted(of: Compiled, norm: float, error: float) -> float:
    """A bound on the error of a prediction with weights within the norm that are off by so much."""
    worst = Worst(of.program, _of_derivatives(of), _domain(of, norm)[0])
    for lane in of.program.weights:
        size = worst.lanes[lane.name].size
        worst.lanes[lane.name] = Known(size, Bound.tight(size.filled(error).entry, error))
    for layer in of.program.readout:
        worst.layer(layer)
    return worst.lanes[of.program.prediction].error.norm


def _of_derivatives(of: Compiled) -> dict[str, Approximant]:
    """The approximants; the error of one that stands for a derivative is the distance to that."""
    found, known = dict(of.approximants), {f.value: primitives for f, primitives in of.primitives.items()}
    for name, f in of.program.functions().items():
        if f.value in known and f.exact is None and not f.jumps:
            apart = prove_derivative(f, known[f.value]) * max(1.0, proven(f).bound)
            found[name] = replace(found[name], error=found[name].error + apart)
    return found


# --------------------------------------------------------------------------------------------------------- the domain


def _domain(of: Compiled, norm_of_weights: float | None = None) -> tuple[Sizes, str]:
    """Largest entries and norms of x and y, and of weights, if their norm is known, and the domain in words; raises if
    something is not bounded.
    """
    x, y = (math.inf if bound is None else bound for bound in (of.options.x_bound, of.options.y_bound))
    norm = math.inf
    if isinstance(of.algorithm, GradientDescent):  # targets that prompts are checked for are bounded by themselves
        loss, net = of.algorithm.loss, of.algorithm.network
        if isinstance(loss, LogisticLoss | SoftmaxLoss):
            y, norm = min(y, 1.0), 1.0 if isinstance(loss, SoftmaxLoss) else math.inf
        elif isinstance(loss, SmoothLoss):
            y = min(y, loss.y_bound)
        elif net.output == "activation":
            y = min(y, max(map(abs, net.activation.closed_range)))
    free = [lane.name for lane in of.program.weights if math.isinf(lane.bound)]
    missing = [f"no {name}_bound" for name, bound in (("x", x), ("y", y)) if math.isinf(bound)]
    missing += ["no box for " + ", ".join(free)] if free else []
    if missing:
        raise InputError(
            "a bound for every input needs a bounded domain",
            got=", ".join(missing),
            hint="compile with x_bound=..., y_bound=..., of an algorithm with a box",
        )
    d_x, d_y = of.program.stream["x"].size, of.program.stream["y"].size
    sizes = {"x": (x, x * math.sqrt(d_x)), "y": (y, min(y * math.sqrt(d_y), norm))}
    if norm_of_weights is not None:
        sizes |= {lane.name: (norm_of_weights, norm_of_weights) for lane in of.program.weights}
    boxes = sorted({lane.bound for lane in of.program.weights})
    words = f"|x| <= {x:g}, |y| <= {y:g}" + (f", |w| <= {', '.join(f'{b:g}' for b in boxes)}" if boxes else "")
    return sizes, words


# --------------------------------------------------------------------------------------------------- best: the program


def _first_step(of: Compiled, sizes: Sizes, moved: str | None = None) -> Worst:
    """The program on the domain up to the end of its first step; ``moved``: exact, from weights that differ there."""
    worst = Worst(of.program, of.approximants, sizes, moved=moved)
    for layer, step_ends in of.program.schedule():
        worst.layer(layer)
        if step_ends:
            break
    return worst


def _lipschitz(of: Compiled, sizes: Sizes) -> float:
    """A bound on the Lipschitz constant of lr times the gradient, on the domain, which is convex.

    M[a, b] bounds how much the gradient in lane b changes, to first order, when lane a does: a norm of a block of the
    Hessian H. So ||H|| <= ||M||_2, and if the step is along a gradient, H being symmetric, the smaller of M[a, b] and
    M[b, a] serves for both.
    """
    lanes = [lane.name for lane in of.program.weights]
    changes = [_first_step(of, sizes, moved).changes for moved in lanes]
    blocks = torch.tensor([[change[b].error.norm / TINY for b in lanes] for change in changes], dtype=torch.float64)
    if not bool(torch.isfinite(blocks).all()):
        return math.inf
    if isinstance(of.algorithm, GradientDescent):
        blocks = blocks.minimum(blocks.T)
    return float(torch.linalg.matrix_norm(blocks, 2))


def _all_steps(of: Compiled, sizes: Sizes) -> tuple[tuple[float, ...], float]:
    """The error of the weights after every step, never more than the box allows, and of the prediction at the end."""
    program, lanes, weights = of.program, [lane.name for lane in of.program.weights], list[float]()
    worst, lost = Worst(program, of.approximants, sizes), False  # nothing is known any more, and no step changes that
    for layer, step_ends in program.schedule():
        if not lost or len(weights) == program.steps:
            worst.layer(layer)
        if step_ends:
            worst.cap(lanes)
            weights.append(math.hypot(*(worst.lanes[lane].error.norm for lane in lanes)))
            most = 2.0 * math.hypot(*(worst.lanes[lane].size.norm for lane in lanes))
            lost = weights[-1] >= most and all(lane.role != "state" for lane in program.stream.lanes)
    return tuple(weights), worst.lanes[program.prediction].error.norm


# ------------------------------------------------------------------------------------------------------- the theorems


def theorems(
    algorithm: GradientDescent, approximants: Mapping[str, Approximant], sizes: Sizes
) -> tuple[Stated, Stated]:
    """Theorem 1 as printed, and corrected."""
    net = algorithm.network
    for f in (net.activation.r, net.activation.dr) if any(map(net.activated, range(1, net.depth + 1))) else ():
        if not math.isfinite(f.lipschitz):
            note = f"{f.name} {'jumps' if f.jumps else 'declares no Lipschitz constant'}: the theorem does not apply"
            return Stated("printed", "Theorem 1", math.inf, note), Stated("corrected", "Theorem 1", math.inf, note)
    printed = printed_theorem_1(algorithm, approximants, sizes["x"][0], sizes["y"][0])
    mended = corrected_theorem_1(algorithm, approximants, sizes["x"][0], sizes["y"][0])
    wrong = "false: it takes ||p_j||_2 <= P^(1/2) B_r, even for p_0 = x"
    if isinstance(algorithm.loss, SoftmaxLoss):
        wrong = "false, and not meant for a loss that is not separable"
    return (
        Stated("printed", "Theorem 1 with Lemmas 2, 3, 6", printed, wrong),
        Stated("corrected", "Theorem 1, in the Euclidean norm", mended, "proven"),
    )


def printed_theorem_1(
    algorithm: GradientDescent, approximants: Mapping[str, Approximant], x_bound: float, y_bound: float
) -> float:
    """N/2 P [(E_s^r eps_r + E_s^r' eps_r' + E_s^l eps_l) P^(1/2) B_r + B_s E_r eps_r], last display of D.7.

    All as printed: B_r^j = max |r| over |t| <= B_v B_r^{j-1}, B_r the largest for j in [N]; B_r' likewise, in itself.
    """
    net, box = algorithm.network, algorithm.box or math.inf
    N, r, dr = net.depth, net.activation.r, net.activation.dr
    K, d = max(net.sizes[1:-1], default=net.sizes[-1]), net.sizes[-1]
    B_v = box * math.sqrt(max(net.sizes[:-1]) + net.bias)
    B_x = math.hypot(math.sqrt(net.sizes[0]) * x_bound, net.bias)
    sizes, slopes = [B_x], [B_x]
    for j in range(1, N + 1):
        sizes.append(_largest(r if net.activated(j) else IDENTITY, B_v * sizes[-1]))
        slopes.append(_largest(dr, B_v * slopes[-1]) if net.activated(j) else 1.0)
    B_r, B_dr, P = max(sizes[1:]), max(slopes[1:]), max(math.sqrt(K), math.sqrt(d))
    (eps_l, L_l, B_l), eps_r = _loss(algorithm, approximants, B_r, y_bound), _eps(r, approximants)
    L_r, L_dr, growth = r.lipschitz if N > 1 or net.activated(N) else 1.0, dr.lipschitz, B_dr * B_v * P
    forward = [_power(math.sqrt(K) * L_r * B_v, power) for power in range(N)]
    E_r = max([math.sqrt(K) * sum(forward[:j]) for j in range(1, N)] + [math.sqrt(d) * sum(forward)])
    B_s = max(_power(growth, N - j) * B_dr * B_l for j in range(1, N + 1))
    total = {j: sum(_power(growth, power) for power in range(N - j)) for j in range(1, N + 1)}
    last_r = B_l * L_dr * B_v * E_r + B_dr * L_l * E_r
    E_s_r = max(L_dr * E_r * P * B_s * B_v * B_v * total[j] + _power(growth, N - j) * last_r for j in total)
    E_s_dr = max(P * B_s * B_v * total[j] + _power(growth, N - j) * B_l for j in total)
    E_s_l = max(_power(growth, N - j) * B_dr for j in total)
    backward = E_s_r * eps_r + E_s_dr * _eps(dr, approximants) + E_s_l * eps_l
    return _sound(N / 2 * P * (backward * math.sqrt(P) * B_r + B_s * E_r * eps_r))


def corrected_theorem_1(
    algorithm: GradientDescent, approximants: Mapping[str, Approximant], x_bound: float, y_bound: float
) -> float:
    """1/2 sqrt(sum_j (D_j b_{j-1} + S_j e_{j-1})^2), everything in the Euclidean norm. With O_j = B sqrt(k_j k_{j-1}):

        e_j = sqrt(k_j) eps_r + L_r O_j e_{j-1}            error of p_j,    e_0 = 0;       ||p_j|| <= b_j
        d_j = eps_r' + L_r' B sqrt(k_{j-1}) e_{j-1}        error of r'_j, each entry
        S_N = (B_r' + d) sqrt(d_y) B_l,                    S_j = (B_r' + d) O_{j+1} S_{j+1}         ||s_j|| <= S_j
        D_N = d_N sqrt(d_y) B_l + B_r' (sqrt(d_y) eps_l + L_l e_N)
        D_j = O_{j+1} (d_j S_{j+1} + B_r' D_{j+1})         error of s_j

    d the largest d_j. It bounds s by ||V^T s|| <= ||V|| ||s||, where the paper takes columns of V for rows. It has
    ||x|| and ||p_j|| <= sqrt(k_j) sup |p_j|, where the paper has K^(1/4). It takes sup |p_j| from the range of V_j
    p_{j-1}.
    """
    net, box = algorithm.network, algorithm.box or math.inf
    k, N, r, dr = net.sizes, net.depth, proven(net.activation.r), proven(net.activation.dr)
    O = [0.0, *(box * math.sqrt(k[j] * k[j - 1]) for j in range(1, N + 1))]  # noqa: E741
    entry, e, d, B_dr = [x_bound], [0.0], [0.0], 0.0
    for j in range(1, N + 1):
        f, df = (r, dr) if net.activated(j) else (IDENTITY, ONE)
        z, eps_r, eps_dr = box * (k[j - 1] * entry[-1] + net.bias), _eps(f, approximants), _eps(df, approximants)
        entry.append(f.magnitude(z) + eps_r)
        d.append(eps_dr + df.lipschitz * box * math.sqrt(k[j - 1]) * e[-1])
        e.append(math.sqrt(k[j]) * eps_r + f.lipschitz * (O[j] * e[-1]))
        B_dr = max(B_dr, df.magnitude(z))
    (eps_l, L_l, B_l), root = _loss(algorithm, approximants, entry[N], y_bound), math.sqrt(k[N])
    S, D = (B_dr + max(d)) * root * B_l, d[N] * root * B_l + B_dr * (root * eps_l + L_l * e[N])
    errors = []
    for j in range(N, 0, -1):
        below = math.hypot(math.sqrt(k[j - 1]) * entry[j - 1], net.bias)
        errors.append(D * below + S * e[j - 1])
        S, D = (B_dr + max(d)) * O[j] * S, O[j] * (d[j - 1] * S + B_dr * D)
    return _sound(0.5 * math.hypot(*errors))


def corollary(eps: float, lr: float, L_f: float, step: int) -> float:
    """Corollary 1.1, corrected: E_{l+1} <= (1 + eta L_f) E_l + eta eps, projections onto convex sets not expanding."""
    if math.isinf(eps) or math.isinf(L_f):
        return math.inf if step else 0.0
    return eps * lr * step if L_f == 0.0 else eps * (_power(1.0 + lr * L_f, step) - 1.0) / L_f


def _loss(
    algorithm: GradientDescent, approximants: Mapping[str, Approximant], out: float, y: float
) -> tuple[float, float, float]:
    """eps_l, L_l, B_l of the derivative u of the loss: the error of the approximate one, entry by entry, a Lipschitz
    constant, and sup |u| for outputs up to ``out`` and targets up to ``y``.
    """
    loss = algorithm.loss
    if isinstance(loss, ResidualLoss):
        eps, u = loss.scale * _eps(loss.u, approximants), proven(loss.u)
        return eps, loss.scale * u.lipschitz, loss.scale * u.magnitude(out + y) + eps
    if isinstance(loss, LogisticLoss):
        eps = _eps(loss.sigmoid, approximants)
        return eps, proven(loss.sigmoid).lipschitz, 1.0 + eps
    if isinstance(loss, SoftmaxLoss):  # its Jacobian, diag(s) - s s^T, has norm at most 1/2
        levels, eps = math.ceil(math.log2(algorithm.network.sizes[-1])), _eps(loss.exp, approximants)
        return eps + levels * _eps(loss.softplus, approximants), 0.5, 1.0 + eps
    if isinstance(loss, SmoothLoss):
        eps = loss.remainder + sum(abs(ridge.scale) * _eps(ridge.f, approximants) for ridge in loss.ridges)
        return eps, loss.lipschitz, loss.bound + eps
    raise InputError(f"no theorem is known for the loss {loss.name!r}")


def _eps(f: Function, approximants: Mapping[str, Approximant]) -> float:
    return approximants[f.name].error if f.name in approximants else 0.0


def _largest(f: Function, radius: float) -> float:
    """max |f| over [-radius, radius]: at 0 or at the ends for most activations; sampled for the others."""
    return float(f(torch.linspace(-radius, radius, 20001, dtype=torch.float64)).abs().max())


def _sound(value: float) -> float:
    """Zero times infinity, when products overflow, is not known: infinity."""
    return math.inf if math.isnan(value) else value


def _power(base: float, exponent: int) -> float:
    return math.exp(log) if (log := exponent * math.log(base)) < 709.0 else math.inf


Domainwide = DomainCertificate  # the old name
"""The old name of ``DomainCertificate``.

Examples:
    >>> import innergrad as ig
    >>> ig.Domainwide is ig.DomainCertificate
    True
"""
