"""Gradient descent on a network: settings, prompts, oracle, saving.

A transformer runs the programs of the variants (:data:`PROGRAMS`). :mod:`innergrad.algorithms.descent.step` has the
update rules, and puts steps together.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.algorithms.descent.any_sigma import backprop_program, recursion_program
from innergrad.algorithms.descent.averages import mean_program
from innergrad.algorithms.descent.chain import chain_program
from innergrad.algorithms.descent.compact import compact_program
from innergrad.algorithms.descent.literal import literal_program
from innergrad.algorithms.descent.marked import marked_program
from innergrad.algorithms.descent.narrow import narrow_program
from innergrad.algorithms.descent.shallow import shallow_program
from innergrad.algorithms.descent.shortest import shortest_program
from innergrad.algorithms.descent.sink import sink_program
from innergrad.algorithms.descent.step import Momentum, Rule, Step, batch_weights
from innergrad.algorithms.descent.widest import widest_program
from innergrad.algorithms.losses import LOSSES, LogisticLoss, Loss, SmoothLoss, SoftmaxLoss
from innergrad.algorithms.networks import Network
from innergrad.algorithms.schedules import Batches, plan
from innergrad.errors import DegenerateStart, DomainError, InputError, real
from innergrad.functions.activation import ACTIVATIONS, PAIRS, Activation
from innergrad.functions.derived import square_derivative
from innergrad.functions.scalar import (
    MOST_BOXES,
    Function,
    clip_residual,
    soft_residual,
    threshold_unit,
)
from innergrad.functions.tape import Formula, recorded
from innergrad.ir.program import Options, Program

BOX_BITS = 24


class Default(float):
    """A number that nobody has chosen."""


DEFAULT_BOX = Default(4.0)
MOST_CLASSES = 4096
MOST_DIFFERENT = 10_000  # steps that differ: each has layers of its own
PROGRAMS = {  # by variant
    "literal": literal_program,
    "compact": compact_program,
    "shallow": shallow_program,
    "narrow": narrow_program,
    "sink": sink_program,
    "mean": mean_program,
    "pre-ln": mean_program,
    "raw": mean_program,
    "backprop": backprop_program,
    "recursion": recursion_program,
    "chain": chain_program,
    "wide": chain_program,
    "widest": widest_program,
    "shortest": shortest_program,
    "markers": marked_program,
}


@dataclass(frozen=True)
class GradientDescent(Algorithm):
    """Projected gradient descent on a network, as ``torch.optim.SGD`` does it.

    It makes *half* the mean loss small, which is the papers' convention: L(w) = 1/(2n) sum_i l(f(x_i), y_i), with l
    summed over the outputs. So ``lr`` is twice the rate of a loop on the mean loss. One step is

        g  = clip(grad L(w)) + weight_decay w
        m <- momentum m + g
        w <- box(soft(w - lr m))

    With ``nesterov``, g + momentum m stands in place of m. With ``ball``, w min(1, ball / |w|) stands in place of
    box(w).

    Args:
        network: what is trained.
        loss: a name from ``innergrad.LOSSES``, or a loss of your own.
        lr: the learning rate, or a sequence with a rate for each step, such as ``ig.schedules.cosine(0.1, 20)``. The
            attribute ``lr`` then is the least positive rate, and ``rates`` has all of them.
        steps: how many. By default as many as ``lr`` has rates, or one for each batch, or 5.
        box: the largest absolute weight, 4 by default; None for no limit. It is rounded to 24 significant bits, so that
            the projection is exact in float32 and in float64.
        momentum: of the heavy ball.
        weight_decay: the coefficient of w in the gradient.
        nesterov: Nesterov's momentum.
        l1: the coefficient of a proximal step, soft(w) = sign(w) max(|w| - lr l1, 0), before the projection. Together
            they are the proximal map of lr l1 |w| on the box or ball. Weights that it sets to zero are exactly zero.
        clip: entries of the gradient are clipped to [-clip, clip], before weight decay and momentum.
        batches: lists of examples, by number. Step l is on batch l; after the last batch comes the first. A batch whose
            examples the prompt does not have gives a gradient of zero.
        epochs: how often all batches are gone through. It sets the number of steps.
        ball: the radius of a Euclidean ball, in place of the box. All weights together are projected onto it. On
            ``relu`` and ``llama``, ``compile(epsilons={"ball": ...})`` sets how exactly. On ``relu``, w0 may be
            anywhere; on other targets weights of more than four radii are an error.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.linspace(-1, 1, 8).view(-1, 1)
        >>> algorithm = ig.GradientDescent(ig.Network([1, 4, 1]), loss="squared", lr=0.2, steps=20, box=None)
        >>> loss = ig.reference(algorithm, X, torch.sin(X)).loss
        >>> bool(loss[-1] < loss[0])
        True
    """

    kind: ClassVar[str] = "gradient_descent"
    targets: ClassVar[tuple[str, ...]] = ("relu", "gpt", "softmax", "sigma", "llama")
    variants: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "softmax": ("sink", "mean", "markers"),
        "gpt": ("pre-ln", "raw", "markers"),
    }

    network: Network
    loss: Loss
    lr: float
    steps: int
    box: float | None
    momentum: float
    weight_decay: float
    nesterov: bool
    l1: float
    clip: float | None
    batches: Batches | None
    schedule: tuple[float, ...] | None
    ball: float | None

    def __init__(
        self,
        network: Network,
        loss: str | Loss = "squared",
        lr: float | Sequence[float] = 0.1,
        steps: int | None = None,
        box: float | None = DEFAULT_BOX,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        l1: float = 0.0,
        clip: float | None = None,
        batches: Sequence[Sequence[int]] | None = None,
        epochs: int | None = None,
        ball: float | None = None,
    ) -> None:
        if not isinstance(network, Network):
            raise InputError("gradient descent needs a network", got=repr(network), allowed="an ig.Network")
        if not isinstance(loss, Loss):
            loss = LOSSES.find(loss)
        if isinstance(loss, LogisticLoss | SoftmaxLoss) and network.output != "linear":
            raise InputError(
                f"the {loss.name} loss acts on logits", got="an activated output", allowed="output='linear'"
            )
        if isinstance(loss, SoftmaxLoss) and network.sizes[-1] < 2:
            raise InputError(
                "the softmax loss needs at least two outputs", got=network.sizes[-1], hint="use loss='logistic'"
            )
        if isinstance(loss, SoftmaxLoss) and network.sizes[-1] > MOST_CLASSES:
            what = "the softmax loss has an instruction for every output"
            raise InputError(what, got=network.sizes[-1], allowed=f"at most {MOST_CLASSES:,}")
        momentum, weight_decay, l1 = (
            real(name, value, low=0.0)
            for name, value in (("momentum", momentum), ("weight_decay", weight_decay), ("l1", l1))
        )
        if not isinstance(nesterov, bool) or (nesterov and not momentum):
            got, allowed = f"{nesterov!r}, momentum={momentum:g}", "True, with momentum > 0, or False"
            raise InputError("nesterov is a kind of momentum", got=got, allowed=allowed)
        if clip is not None:
            clip = real("clip", clip, above=0.0, hint="or None for no clipping")
        if ball is not None:
            ball = real("ball", ball, above=0.0, hint="or None for none")
            if box is not None and not isinstance(box, Default):
                raise InputError("a ball takes the place of the box", got=f"box={box:g}, ball={ball:g}")
            box = None
        if box is not None:
            box = real("box", box, above=0.0, hint="or None for no projection")
            mantissa, exponent = math.frexp(box)
            box = math.ldexp(round(math.ldexp(mantissa, BOX_BITS)), exponent - BOX_BITS)
        planned = plan(lr, steps, batches, epochs)
        largest = max(planned.rates or (planned.lr,)) * l1
        if box is not None and largest > MOST_BOXES * box:
            what = "a soft threshold lr l1 is so much larger than the box that float64 does not tell their sum from it"
            hint = "it sets every weight to zero; use a smaller l1 or lr, or box=None"
            raise InputError(what, got=f"{largest:g}", allowed=f"at most 2^28 boxes, {MOST_BOXES * box:g}", hint=hint)
        for name, content in (
            ("network", network),
            ("loss", loss),
            ("lr", planned.lr),
            ("steps", planned.steps),
            ("box", box),
            ("momentum", momentum),
            ("weight_decay", weight_decay),
            ("nesterov", nesterov),
            ("l1", l1),
            ("clip", clip),
            ("batches", planned.batches),
            ("schedule", planned.rates),
            ("ball", ball),
        ):
            object.__setattr__(self, name, content)

    # --------------------------------------------------------------------------------------------------------------
    # steps

    @property
    def rates(self) -> Iterable[float]:
        """The learning rate of every step, one after the other: there may be a billion."""
        return itertools.repeat(self.lr, self.steps) if self.schedule is None else self.schedule

    @property
    def distinct_batches(self) -> Batches:
        return tuple(dict.fromkeys(self.batches or ()))

    @property
    def plan(self) -> Iterator[Step]:
        """The settings of every step, one after the other."""
        numbers = {batch: number for number, batch in enumerate(self.distinct_batches)}
        cycle = [None] if self.batches is None else [numbers[batch] for batch in self.batches]
        return (self._step(i, rate, cycle[i % len(cycle)]) for i, rate in enumerate(self.rates))

    @property
    def runs(self) -> list[tuple[Step, int]]:
        """The settings of the steps, each with how many steps in a row have them."""
        first, second = (self._step(number, self.lr, None) for number in (0, 1))
        if self.schedule is None and self.batches is None and first == second:
            return [(first, self.steps)]
        if self.steps > MOST_DIFFERENT:
            what = "a program writes out steps that differ (in rate, batch, or as Adam's do)"
            raise InputError(what, got=f"{self.steps} steps", allowed=f"at most {MOST_DIFFERENT:,}")
        return [(step, len(list(same))) for step, same in itertools.groupby(self.plan)]

    def _step(self, number: int, rate: float, batch: int | None) -> Step:
        """number: from 0."""
        del number
        return Step(rate, batch)

    @property
    def rule(self) -> Rule:
        """The update rule."""
        return Momentum(self.momentum, self.weight_decay, self.nesterov, self.clip)

    @property
    def basic(self) -> bool:
        """Nothing but one rate, momentum, weight decay and a box: the settings that theorems and tables are about."""
        return not (self.nesterov or self.l1 or self.clip or self.batches or self.schedule or self.ball)

    @property
    def by_place(self) -> bool:  # type: ignore[override]
        return self.batches is not None

    @property
    def monotone(self) -> bool:
        """A small enough rate lowers the objective in every step."""
        return not self.momentum and self.batches is None

    def threshold(self, rate: float) -> float:
        """rate * l1. If there is a box, it is rounded to a multiple of 2^-48 of it, or to float64's resolution of the
        sum of both if that is more. So soft threshold and box in one are exact (in float64, for weights of up to 8
        boxes before them).
        """
        if self.box is None:
            return rate * self.l1
        unit = threshold_unit(self.box, rate * self.l1)
        return round(rate * self.l1 / unit) * unit

    def projection(self, rate: float) -> Function | None:
        """The change of a weight at the end of a step: the proximal map of rate l1 |w| on the box, minus w."""
        threshold = self.threshold(rate)
        if threshold:
            return soft_residual(threshold, self.box)
        return None if self.box is None else clip_residual(self.box, rate * self.l1)

    def program(self, options: Options) -> Program:
        """Theorem 1's on ReLU attention; on standard blocks, products in MLPs and averages by attention."""
        if options.variant not in PROGRAMS:
            what = f"{self.kind} has no program for variant {options.variant!r}"
            raise InputError(what, allowed=", ".join(PROGRAMS))
        return PROGRAMS[options.variant](self, options)

    def check_options(self, options: Options) -> None:
        last = max((max(batch) for batch in self.batches or ()), default=-1)
        if last >= options.n_examples:
            raise InputError(
                "the batches name examples that no prompt has",
                got=f"example {last}",
                allowed=f"0 to {options.n_examples - 1}: n_examples = {options.n_examples}",
            )

    # --------------------------------------------------------------------------------------------------------------
    # prompts and oracle

    def initial_weights(self, seed: int) -> Tensor:
        return self.network.init(seed)

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        del X
        self._check_targets(y)
        if self.network.depth >= 2 and bool((w0 == 0).all(-1).any()):
            warnings.warn(self._degenerate(), DegenerateStart, stacklevel=4)

    def _degenerate(self) -> str:
        r = self.network.activation
        if r.vanishes_at_zero:
            return (
                f"w0 = 0 is a saddle: {r.name}(0) = 0, so every gradient but the output bias's is zero and stays zero; "
                "start from net.init(seed)"
            )
        return (
            "w0 = 0 keeps all hidden units of a layer identical for ever (their gradients are equal), so the network "
            "never uses its width; start from net.init(seed)"
        )

    def _check_targets(self, y: Tensor) -> None:
        if isinstance(self.loss, LogisticLoss):
            if not bool(((y == 0) | (y == 1)).all()):
                raise InputError(
                    "logistic targets must be 0 or 1", got=f"values in [{float(y.min()):g}, {float(y.max()):g}]"
                )
        elif isinstance(self.loss, SoftmaxLoss):
            if not (bool(((y == 0) | (y == 1)).all()) and bool((y.sum(-1) == 1).all())):
                raise InputError("softmax targets must be one-hot rows", hint="encode the classes as 0/1 columns")
        elif isinstance(self.loss, SmoothLoss):
            if float(y.abs().max()) > self.loss.y_bound:
                raise DomainError(
                    f"targets leave the domain of the loss {self.loss.name!r}",
                    got=f"max |y| = {float(y.abs().max()):g}",
                    allowed=f"at most y_bound = {self.loss.y_bound:g}",
                )
        elif self.network.output == "activation":
            lo, hi = self.network.activation.closed_range
            if float(y.min()) < lo or float(y.max()) > hi:
                raise InputError(
                    f"the output passes through {self.network.activation.name}, so targets must lie in its range",
                    got=f"values in [{float(y.min()):g}, {float(y.max()):g}]",
                    allowed=f"[{lo:g}, {hi:g}]",
                    hint="scale the targets or use output='linear'",
                )

    def risk(
        self, w: Float[Tensor, "*batch n_weights"], X: Tensor, y: Tensor, omega: Tensor | None = None
    ) -> Float[Tensor, "*batch"]:
        """L(w) = 1/2 sum_i omega_i l(f(x_i), y_i), omega summing to one (1/n by default)."""
        losses = self.loss.value(self.network.forward(w, X), y)
        return 0.5 * (losses.mean(-1) if omega is None else (omega * losses).sum(-1))

    def predicted(self, w: Tensor, X: Tensor) -> Tensor:
        return self.network.forward(w, X)

    def objective_at(self, w: Tensor, predictions: Tensor, y: Tensor, omega: Tensor) -> Tensor:
        """The risk, with the terms of weight decay and l1."""
        risk = 0.5 * (omega * self.loss.value(predictions, y)).sum(-1)
        return risk + 0.5 * self.weight_decay * w.square().sum(-1) + self.l1 * w.abs().sum(-1)

    def seen(self, omega: Tensor) -> Tensor:
        if self.batches is None:
            return omega
        cycle = [self.batches[step % len(self.batches)] for step in range(min(self.steps, len(self.batches)))]
        total = torch.stack([batch_weights(omega, batch) for batch in cycle]).mean(0)
        return torch.where(total.sum(-1, keepdim=True) > 0, total / total.sum(-1, keepdim=True), omega)

    @property
    def by_example(self) -> bool:
        return self.batches is not None

    @property
    def rate_setting(self) -> tuple[str, float]:
        return "lr", max(self.schedule) if self.schedule else self.lr

    def with_rate(self, rate: float, steps: int) -> GradientDescent:
        slower = copy.copy(self)
        factor, rates = rate / self.rate_setting[1], self.schedule
        object.__setattr__(slower, "lr", factor * self.lr)
        object.__setattr__(slower, "steps", steps)
        object.__setattr__(slower, "schedule", rates and tuple(factor * one for one in rates[:steps]))
        return slower

    def in_box(self, box: float) -> GradientDescent:
        """The same with this box as the projection."""
        boxed = copy.copy(self)
        object.__setattr__(boxed, "box", box)
        object.__setattr__(boxed, "ball", None)
        return boxed

    def curvature_rate(self, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> float | None:
        """The rule's, from the largest curvature of the risk of any batch, in any prompt."""
        found = []
        for weights in [batch_weights(omega, batch) for batch in self.distinct_batches] or [omega]:
            w = w0.detach().requires_grad_()
            risk = self.risk(w, X, y, weights)
            (gradient,) = torch.autograd.grad(risk.sum(), w, create_graph=True)
            found.append(self.rule.safe_rate(risk.detach(), gradient.detach(), partial(_curved, gradient, w)))
        return min(found)

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """Training by torch autograd with the same projection: the oracle."""
        w, state, trajectory, rule = w0, list[Tensor](), [w0], self.rule
        weights = [batch_weights(omega, batch) for batch in self.distinct_batches]
        for step in self.plan:
            variable = w.detach().requires_grad_()
            risk = self.risk(variable, X, y, omega if step.batch is None else weights[step.batch])
            (gradient,) = torch.autograd.grad(risk.sum(), variable)
            w, *state = rule.update(w, gradient, tuple(state), step)
            threshold = step.rate * self.l1
            w = w.sign() * (w.abs() - threshold).clamp(min=0.0) if threshold else w
            w = w if self.box is None else w.clamp(-self.box, self.box)
            w = w if self.ball is None else w * (self.ball / w.norm(dim=-1, keepdim=True)).clamp(max=1.0)
            trajectory.append(w)
        return torch.stack(trajectory, dim=-2), self.network.forward(w, X_query)

    def primitives(self) -> Mapping[Function, tuple[Formula, ...]]:
        """r' is the derivative of r, (r^2)' of r^2, and u of the loss; of those that ship that is known."""
        activation, found = self.network.activation, self.loss.primitives()
        r, dr = activation.r, activation.dr
        used = any(self.network.activated(j) for j in range(1, self.network.depth + 1))
        if not used or (r.value, dr.value) in PAIRS:
            return found
        found[dr] = (*found.get(dr, ()), r.exact or r.value)
        if r.exact is None and not dr.jumps:
            (square,) = square_derivative(activation)
            found[square] = (recorded(lambda t: r.value(t) * r.value(t)),)
        return found

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        """Theorem 1 and Appendix E as printed, constants hidden in O(.) set to one."""
        net, N, L = self.network, self.network.depth, self.steps
        d_x, d_y, K, n = net.sizes[0], net.sizes[-1], max(net.sizes[1:-1], default=net.sizes[-1]), n_examples
        units = sum(net.sizes[1:])
        C_w = 2 * net.n_weights * (self.box or 0.0)
        flops = n * L * N**3 * K**5 / epsilon**2
        extra = ""
        if isinstance(self.loss, SoftmaxLoss):
            extra = f"; softmax adds ceil(log2 d_y) = {math.ceil(math.log2(d_y))} mlp layers a step"
        extra += "".join(f"; {more}" for more in self.rule.more)
        extra += "" if self.ball is None else "; a ball adds 2 attention layers a step (narrow: 4 layers)"
        return {
            "layers": f"(2N+4)L = {(2 * N + 4) * L}{extra}",
            "read-out layers": "none given: after the last step the query's y is still 0",
            "width D": f"d_x+d_y+D_N+3((N-1)K+d_y)+d_y+2 = {d_x + d_y + net.n_weights + 3 * units + d_y + 2}",
            "heads of the widest layer": f"O(K eps^-2) = {K / epsilon**2:.3g}",
            "norm B_theta": f"O(eta) + C_w + 1 = {self.rate_setting[1] + 1 + C_w:.3g}, with C_w = 2 D_w B",
            "FLOPs (D x D heads)": f"O(n L N^3 K^5 eps^-2) = {flops:.3g}",
            "FLOPs (structured)": f"training itself: O(n L N K^2) = {n * L * N * K**2:.3g}",
        }

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """x ~ N(0, I); targets N(0, I), in the range of an activated output, labels for logistic and softmax."""
        sizes = self.network.sizes
        X = torch.randn(n + n_query, sizes[0], generator=generator, dtype=torch.float64)
        y = torch.randn(n, sizes[-1], generator=generator, dtype=torch.float64)
        X, X_query = X[:n], X[n:]
        if isinstance(self.loss, LogisticLoss):
            y = (y > 0).to(y.dtype)
        elif isinstance(self.loss, SoftmaxLoss):
            y = torch.nn.functional.one_hot(y.argmax(-1), y.shape[-1]).to(y.dtype)
        elif isinstance(self.loss, SmoothLoss):
            y = y.clamp(-self.loss.y_bound, self.loss.y_bound)
        elif self.network.output == "activation":
            y = self.network.activation.r(y)
        return X, y, X_query

    # --------------------------------------------------------------------------------------------------------------
    # saving

    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("lr", "steps", "box", "momentum", "weight_decay"),
        *("nesterov", "l1", "clip", "batches", "ball"),
    )
    #: Folders of earlier versions lack them.
    ADDED: ClassVar[tuple[str, ...]] = ("nesterov", "l1", "clip", "batches", "ball")

    def config(self) -> dict[str, Any]:
        net = self.network
        own = {name: getattr(self, name) for name in self.SETTINGS} | {"lr": self.schedule or self.lr}
        return {
            "sizes": list(net.sizes),
            "activation": net.activation.name,
            "output": net.output,
            "bias": net.bias,
            "loss": self.loss.name,
            **own,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], extensions: Iterable[object] = ()) -> GradientDescent:
        """``extensions``: the user's own activations and losses, found by name."""
        settings = dict(config)
        expected = {"sizes", "activation", "output", "bias", "loss", *cls.SETTINGS}
        wrong = sorted((set(settings) ^ expected) - (set(cls.ADDED) - set(settings)))
        if wrong:
            raise InputError(f"the saved settings of {cls.kind} are not complete", got=f"missing or unknown: {wrong}")
        own = tuple(extensions)
        activations = ACTIVATIONS.with_own({item.name: item for item in own if isinstance(item, Activation)})
        losses = LOSSES.with_own({item.name: item for item in own if isinstance(item, Loss)})
        activation, loss = activations.find(settings.pop("activation")), losses.find(settings.pop("loss"))
        network = Network(settings.pop("sizes"), activation, settings.pop("output"), settings.pop("bias"))
        return cls(network, loss, **settings)


def _curved(gradient: Tensor, w: Tensor, v: Tensor) -> Tensor:
    """The Hessian times v, prompt by prompt."""
    if not gradient.requires_grad:  # it does not depend on w
        return torch.zeros_like(v)
    (found,) = torch.autograd.grad((gradient * v).sum(), w, retain_graph=True, materialize_grads=True)
    return found
