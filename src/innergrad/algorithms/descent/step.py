"""The common parts of every form of gradient descent on a network: its weights' lanes, the steps, the program.

A variant says how the gradients of the examples come about and how one is averaged (:data:`Gradient`). The algorithm's
:class:`Rule` says how the average changes the weights. Here a step is put together:

    gradients of the examples      the variant; in a step on a batch, its weights in place of those of all examples
    update                         the rule
    mlp: project and clear         proximal step and box, and scratch lanes to zero

A ball has layers of its own before that: |w|^2, and w times a function of it (:func:`_ball_layers`; by mlps alone,
:func:`_ball_factor`).

Steps with the same settings are one loop; where rates, batches or bias corrections differ, so do the weights of the
transformer, and each run of equal steps is a loop of its own.

An update rule turns the mean gradient into layers, the same for every variant and target. A variant gives instructions
that add a multiple of the mean gradient to a lane. A rule makes layers of them, with lanes of its own beside every
weight lane w (of the same shape, shared or per token as w is):

    Mw  state    momentum; Adam: the first moment          Gw  scratch  the gradient, where it is needed as such
    Sw  state    Adam: the second moment                   Rw  scratch  Adam, weights per token: 1 / (1 + sqrt(Sw ...))

Settings that differ from step to step are in a :class:`Step`.

Products of a token's own lanes: attention reaches shared lanes, and only those, so for weights that tokens carry
themselves such products go into product layers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from innergrad.algorithms.descent.curvature import Curved, along, largest, to_zero
from innergrad.algorithms.losses import Loss, SmoothLoss
from innergrad.algorithms.networks import Network
from innergrad.algorithms.schedules import Batches
from innergrad.functions.adam import ADAM
from innergrad.functions.ball import BALL, MIDDLE, REACH, ROOT
from innergrad.functions.scalar import IDENTITY, NEGATION, RELU, Function, clip, clip_residual
from innergrad.ir.program import Attend, Expr, Kind, Layer, Loop, Mark, Program, Score, View, expr, pointwise
from innergrad.ir.stream import Lane, Role, example_stream

LEAST_DAMPING = 0.01  # of a momentum of one or more, with which no rate is safe


@dataclass(frozen=True)
class Step:
    """Settings that differ from step to step: the rate, the batch by its number, Adam's bias corrections 1 - beta^l."""

    rate: float
    batch: int | None = None
    corrections: tuple[float, float] = (1.0, 1.0)


class Weight(NamedTuple):
    """A weight lane, and instructions for dst += rate * its mean gradient."""

    lane: Lane
    gradient: Callable[[str, float], tuple[Attend, ...]]

    def view(self, kind: str = "") -> str:
        """All entries of the lane, or of the rule's lane of that kind."""
        return whole(f"{kind}{self.lane.name}", self.lane.shape)


def whole(name: str, shape: tuple[int, ...]) -> str:
    """All entries of a lane."""
    return name + ("", "[k]", "[k,c]")[len(shape)]


def times(coefficient: float, text: str) -> Expr:
    return tuple(replace(view, coefficient=coefficient * view.coefficient) for view in expr(text))


class Rule(ABC):
    """An update rule, for the exact algorithm and for programs."""

    @property
    def more(self) -> tuple[str, ...]:
        """The layers a step has because of it, in words."""
        return ()

    @abstractmethod
    def lanes(self, shared: bool) -> dict[str, str]:
        """The lanes beside every weight lane: kind -> role."""

    @abstractmethod
    def layers(self, weights: Sequence[Weight], step: Step) -> tuple[Layer, ...]:
        """From the gradients of the examples to weights that are not projected yet."""

    @abstractmethod
    def update(self, w: Tensor, gradient: Tensor, state: tuple[Tensor, ...], step: Step) -> tuple[Tensor, ...]:
        """The same on flat vectors, by torch: w and the state, after the step."""

    @abstractmethod
    def safe_rate(self, risk: Tensor, gradient: Tensor, curved: Curved) -> float:
        """A rate that suits the risk (batch,) at w0, from its gradients (batch, D_w) and its curvature there."""


def _added(kind: Kind, dst: str, source: str, scale: float) -> tuple[Attend, ...]:
    """dst += scale * source, both a token's own; nothing if the scale is zero."""
    if scale == 0.0:
        return ()
    if kind == "mlp":
        return (Attend(dst, Score(IDENTITY, (source, "one")), scale=scale),)
    return (Attend(dst, value=source, scale=scale),)


def _gradient_layer(weights: Sequence[Weight], decay: float) -> Layer:
    """G = gradient + decay * w."""
    gradients = [i for w in weights for i in w.gradient(w.view("G"), 1.0)]
    own = [i for w in weights for i in _added("attention", w.view("G"), w.view(), decay)]
    return Layer("attention", "gradient", (*gradients, *own))


@dataclass(frozen=True)
class Momentum(Rule):
    """``torch.optim.SGD``, after ``clip_grad_value_``: g = clip(gradient) + decay w,  m <- momentum m + g,

        w <- w - rate m,   or, Nesterov's,   w <- w - rate (g + momentum m)        (m the new one)

    One attention layer. With clipping, the gradient goes into G, and an mlp does the rest: one layer more.
    """

    momentum: float = 0.0
    decay: float = 0.0
    nesterov: bool = False
    clip: float | None = None

    @property
    def more(self) -> tuple[str, ...]:
        return () if self.clip is None else ("value clipping adds 1 mlp layer a step",)

    def lanes(self, shared: bool) -> dict[str, str]:
        del shared
        return ({"M": "state"} if self.momentum else {}) | ({} if self.clip is None else {"G": "scratch"})

    def _terms(self, w: Weight, rate: float) -> tuple[tuple[str, float, float, float], ...]:
        """(dst, then the coefficients of the gradient, of w and of m in the sum that is added to it)."""
        ahead = self.momentum if self.nesterov else 0.0
        along = -rate * (1.0 + ahead)
        mine = (w.view(), along, along * self.decay, -rate * self.momentum * (ahead if self.nesterov else 1.0))
        return (mine, (w.view("M"), 1.0, self.decay, self.momentum - 1.0)) if self.momentum else (mine,)

    def layers(self, weights: Sequence[Weight], step: Step) -> tuple[Layer, ...]:
        kind: Kind = "attention" if self.clip is None else "mlp"
        gradients, own = list[Attend](), list[Attend]()
        for w in weights:
            for dst, g, decay, memory in self._terms(w, step.rate):
                if self.clip is None:
                    gradients += w.gradient(dst, g)
                else:
                    gradients.append(Attend(dst, Score(clip(self.clip), (w.view("G"), "one")), scale=g))
                own += _added(kind, dst, w.view(), decay)
                own += _added(kind, dst, w.view("M"), memory) if self.momentum else ()
        if self.clip is None:
            return (Layer(kind, "update", (*gradients, *own)),)
        return _gradient_layer(weights, 0.0), Layer(kind, "clip and update", (*gradients, *own))

    def update(self, w: Tensor, gradient: Tensor, state: tuple[Tensor, ...], step: Step) -> tuple[Tensor, ...]:
        g = (gradient if self.clip is None else gradient.clamp(-self.clip, self.clip)) + self.decay * w
        if not self.momentum:
            return (w - step.rate * g,)
        m = g if not state else self.momentum * state[0] + g
        return w - step.rate * (g + self.momentum * m if self.nesterov else m), m

    def safe_rate(self, risk: Tensor, gradient: Tensor, curved: Curved) -> float:
        """(1 - momentum) / L. Let the curvature of a risk be at most L. A step of at most 2 (1 - momentum) / L then
        lowers the sum of the risk and a multiple of the last step's square (Zavriev and Kostyuk, 1993). That sum starts
        as the risk.
        """
        curvature = largest(curved, gradient) + self.decay
        rate = min(1.0 / curvature if curvature else math.inf, to_zero(risk, gradient, gradient))
        return max(1.0 - self.momentum, LEAST_DAMPING) * rate


@dataclass(frozen=True)
class Moments(Rule):
    """``torch.optim.Adam`` with eps = delta: g = clip(gradient) + decay w,  c_i = 1 - beta_i^l,

        m <- beta_1 m + (1 - beta_1) g,   v <- beta_2 v + (1 - beta_2) g^2
        w <- w - rate / c_1  m / (sqrt(v / c_2) + delta)  =  w - rate / (c_1 delta)  m rho(v / (c_2 delta^2))

    Attention: G = g; m and v, g^2 exactly; w, by heads with the value m, one for every hinge of rho's approximant
    (:mod:`innergrad.functions.adam`). Clipping is an mlp more. Where tokens carry the weights, m and v, and w, come
    from product layers, with rho by an mlp between them.
    """

    betas: tuple[float, float]
    delta: float
    decay: float = 0.0
    clip: float | None = None

    @property
    def more(self) -> tuple[str, ...]:
        adam = ("Adam adds 2 attention layers a step (narrow: 2 product, 1 mlp)",)
        return adam if self.clip is None else (*adam, "value clipping adds 1 mlp layer a step")

    def lanes(self, shared: bool) -> dict[str, str]:
        return {"M": "state", "S": "state", "G": "scratch"} | ({} if shared else {"R": "scratch"})

    def layers(self, weights: Sequence[Weight], step: Step) -> tuple[Layer, ...]:
        shared = bool(weights[0].lane.shared)
        made = [_gradient_layer(weights, self.decay if self.clip is None else 0.0)]
        if self.clip is not None:
            clipped = [Attend(g, Score(clip_residual(self.clip), (g, "one"))) for g in (w.view("G") for w in weights)]
            decayed = [i for w in weights for i in _added("mlp", w.view("G"), w.view(), self.decay)]
            made.append(Layer("mlp", "clip", (*clipped, *decayed)))
        kind: Kind = "attention" if shared else "product"
        made.append(Layer(kind, "moments", tuple(i for w in weights for i in self._moments(w))))
        (c_1, c_2), delta = step.corrections, self.delta
        scale, moved = -step.rate / (c_1 * delta), list[Attend]()
        roots = [Score(ADAM, (times(1.0 / (c_2 * delta**2), w.view("S")), "one")) for w in weights]
        if shared:
            moved = [
                Attend(w.view(), Score(ADAM, ("one", root.pairs[0][0])), value=w.view("M"), scale=scale)
                for w, root in zip(weights, roots, strict=True)
            ]
        else:
            made.append(
                Layer("mlp", "root", tuple(Attend(w.view("R"), r) for w, r in zip(weights, roots, strict=True)))
            )
            moved = [
                Attend(w.view(), Score(IDENTITY, (w.view("R"), "one")), value=w.view("M"), scale=scale) for w in weights
            ]
        return (*made, Layer(kind, "update", tuple(moved)))

    def _moments(self, w: Weight) -> tuple[Attend, ...]:
        beta_1, beta_2 = self.betas
        g, m, v = w.view("G"), w.view("M"), w.view("S")
        return (
            Attend(m, value=f"{g} - {m}", scale=1.0 - beta_1),
            Attend(v, Score(IDENTITY, ("one", g)), value=g, scale=1.0 - beta_2),
            Attend(v, value=v, scale=beta_2 - 1.0),
        )

    def update(self, w: Tensor, gradient: Tensor, state: tuple[Tensor, ...], step: Step) -> tuple[Tensor, ...]:
        g = (gradient if self.clip is None else gradient.clamp(-self.clip, self.clip)) + self.decay * w
        m, v = state or (torch.zeros_like(w), torch.zeros_like(w))
        m, v = (b * old + (1.0 - b) * new for b, old, new in zip(self.betas, (m, v), (g, g * g), strict=True))
        c_1, c_2 = step.corrections
        return w - step.rate / c_1 * m / ((v / c_2).sqrt() + self.delta), m, v

    def safe_rate(self, risk: Tensor, gradient: Tensor, curved: Curved) -> float:
        """(1 - beta_1) times the best first step: its direction is g / (|g| + delta), and the first moment keeps to it
        for about 1 / (1 - beta_1) steps.
        """
        g = gradient if self.clip is None else gradient.clamp(-self.clip, self.clip)
        s = g / (g.abs() + self.delta)
        return (1.0 - self.betas[0]) * min(along(curved, gradient, s, self.decay), to_zero(risk, gradient, s))


def batch_weights(omega: Tensor, batch: Sequence[int]) -> Tensor:
    """Weights of the examples (batch, n), those of one batch alone, adding up to one, or to zero if none is there."""
    inside = torch.zeros_like(omega)
    inside[:, [i for i in batch if i < omega.shape[1]]] = 1.0
    kept = omega * inside
    largest = kept.amax(-1, keepdim=True)
    kept = kept / torch.where(largest > 0, largest, 1.0)  # of any size: the sum is between 1 and n
    return kept / kept.sum(-1, keepdim=True).clamp(min=1.0)


# dst, layer j, whether of its matrix or its bias, rate -> instructions for dst += rate * mean gradient
Gradient = Callable[[str, int, bool, float], tuple[Attend, ...]]
BATCHES = {"omega": "batch", "log_omega": "log_batch"}  # lane of the weights of examples -> of those of a batch


class DescentSettings(Protocol):
    """The settings of gradient descent that programs read; see :class:`innergrad.GradientDescent`."""

    @property
    def network(self) -> Network: ...

    @property
    def loss(self) -> Loss: ...

    @property
    def box(self) -> float | None: ...

    @property
    def ball(self) -> float | None: ...

    @property
    def rule(self) -> Rule: ...

    @property
    def runs(self) -> list[tuple[Step, int]]: ...

    @property
    def distinct_batches(self) -> Batches: ...

    def projection(self, rate: float) -> Function | None:
        """The change of a weight by the proximal step and the box."""


def descent(
    algorithm: DescentSettings,
    scratch: tuple[Lane, ...],
    gradients: tuple[Layer, ...],
    readout: tuple[Layer, ...],
    output: str,
    gradient: Gradient,
    inputs: tuple[Lane, ...] = (),
    length: int | None = None,
    weights: tuple[Lane, ...] | None = None,
    marks: tuple[Mark, ...] = (),
    prepared: tuple[Attend, ...] = (),
    kept: tuple[Lane, ...] = (),
    first: tuple[Layer, ...] = (),
    smooth: bool = False,
) -> Program:
    """The program whose step computes the gradients of every example, updates the weights, projects and clears.

    gradient: the instruction that adds a multiple of the mean gradient. inputs: further lanes that the prompt fills.
    length: of the prompts, if it is fixed. weights: the lanes that are trained, by default :func:`weight_lanes`; Vj and
    bj of any shape, shared or not. marks: of marker tokens. prepared: the lanes ``kept``, which an mlp makes from the
    weights before the first step, after the layers ``first``, and at the end of every step for the next. It is the mlp
    that clears, unless that projects. smooth: functions are sums of smooth units, of mlps, so that a ball is projected
    onto by mlps, from a bounded domain.
    """
    net, rule = algorithm.network, algorithm.rule
    if weights is None:
        far = REACH * algorithm.ball if smooth and algorithm.ball is not None else None
        weights = weight_lanes(net, weight_bound(algorithm)) if far is None else weight_lanes(net, far, "ball")
    trained = [Weight(w, partial(_of_layer, gradient, int(w.name[1:]), w.name[0] == "V")) for w in weights]
    own = [
        Lane(f"{kind}{w.name}", w.shape, cast(Role, role), w.shared)
        for kind, role in rule.lanes(bool(weights[0].shared)).items()
        for w in weights
    ]
    scratch = (*scratch, *(lane for lane in own if lane.role == "scratch"), *_ball_lanes(algorithm, weights, smooth))
    batches = algorithm.distinct_batches

    def layers(step: Step) -> tuple[Layer, ...]:
        project, clear = _project(algorithm, step, weights), pointwise(NEGATION, scratch)
        made = (*gradients, *rule.layers(trained, step))
        if algorithm.ball is None:
            made = (*made, *_ends(project, clear, prepared))
        else:
            made = (*made, *((Layer("mlp", "threshold", project),) if project else ()))
            if smooth:
                made = (*made, *_ball_factor(algorithm.ball, weights), *_ends(_times_factor(weights), clear, prepared))
            else:
                made = (*made, *_ball_layers(algorithm.ball, weights, length), Layer("mlp", "clear", clear))
        return made if step.batch is None else tuple(_on_batch(layer, step.batch) for layer in made)

    loops = [Loop(count, layers(step)) for step, count in algorithm.runs]
    if prepared:
        loops.insert(0, Loop(1, (*first, Layer("mlp", "prepare", prepared)), step=False))
    read = {view.lane for loop in loops for layer in loop.layers for i in layer.instructions for view in i.views()}
    inputs = (*inputs, *(Lane(name, (len(batches),), "input") for name in BATCHES.values() if name in read))
    state = (lane for lane in own if lane.role == "state")
    if isinstance(algorithm.loss, SmoothLoss):
        inputs = (Lane("y", (net.sizes[-1],), "input", bound=algorithm.loss.y_bound, bound_from="y_bound"), *inputs)
    stream = example_stream(net.sizes[0], net.sizes[-1], *weights, *state, *kept, *scratch, *inputs)
    return Program(stream, tuple(loops), readout, output, length=length, batches=batches, marks=marks)


def _ends(projected: tuple[Attend, ...], cleared: tuple[Attend, ...], prepared: tuple[Attend, ...]) -> list[Layer]:
    """The mlps at the end of a step: one, or two where the next step begins with lanes that are made from projected
    weights.
    """
    if not prepared:
        return [Layer("mlp", "project and clear", (*projected, *cleared))]
    again = {i.dst: Attend((i.dst,), Score(NEGATION, ((i.dst,), "one"))) for i in prepared}
    anew = (*again.values(), *prepared)
    if not projected:
        return [Layer("mlp", "clear and prepare", (*cleared, *anew))]
    return [Layer("mlp", "project and clear", (*projected, *cleared)), Layer("mlp", "prepare again", anew)]


def _of_layer(gradient: Gradient, j: int, matrix: bool, dst: str, rate: float) -> tuple[Attend, ...]:
    return gradient(dst, j, matrix, rate)


def _project(algorithm: DescentSettings, step: Step, weights: tuple[Lane, ...]) -> tuple[Attend, ...]:
    """w <- clip(soft(w)), the proximal map of rate l1 |w| on the box."""
    projection = algorithm.projection(step.rate)
    return () if projection is None else pointwise(projection, weights)


def _ball_lanes(algorithm: DescentSettings, weights: tuple[Lane, ...], smooth: bool) -> tuple[Lane, ...]:
    """norm: |w|^2 / R^2. Where tokens carry weights of their own, also the part of each token, and the factor. By mlps:
    the excess of norm over 1, and the factor.
    """
    if algorithm.ball is None:
        return ()
    if smooth:
        factor = Lane("factor", (), shared=True, bound=1.0)
        return Lane("norm", (), shared=True), Lane("excess", (), shared=True), factor
    own = () if weights[0].shared else (Lane("square"), Lane("factor"))
    return (Lane("norm", (), shared=True), *own)


def _ball_layers(radius: float, weights: tuple[Lane, ...], length: int | None) -> tuple[Layer, ...]:
    """w <- w + beta(|w|^2 / R^2 - 1) w, beta of :mod:`innergrad.functions.ball`: the projection onto the ball.

    Attention: the norm, exactly, then w, by heads with the value w, one for every hinge of beta's approximant. Where
    tokens carry weights of their own: the part of each by a product layer, their sum by attention, the factor by an
    mlp, and the product.
    """
    views = [whole(lane.name, lane.shape) for lane in weights]
    squares = [Score(IDENTITY, (view, view)) for view in views]
    if weights[0].shared:
        moved = tuple(Attend(view, Score(BALL, ("one", "norm - one")), value=view) for view in views)
        norm = tuple(Attend("norm", square, scale=1.0 / radius**2) for square in squares)
        return Layer("attention", "norm", norm), Layer("attention", "project", moved)
    tokens = cast(int, length)
    total = Attend("norm", value="square", scope="all", reduce="mean", scale=tokens / radius**2)
    factor = Attend("factor", Score(BALL, ("norm - one", "one")))
    products = tuple(Attend(view, Score(IDENTITY, ("factor", "one")), value=view) for view in views)
    return (
        Layer("product", "squares", tuple(Attend("square", square) for square in squares)),
        Layer("attention", "norm", (total,)),
        Layer("mlp", "factor", (factor,)),
        Layer("product", "project", products),
    )


def _ball_factor(radius: float, weights: tuple[Lane, ...]) -> tuple[Layer, ...]:
    """Three mlps: |w|^2 / R^2; its excess over 1, by a kink; 1 / sqrt(1 + excess) - 1, by a smooth function. A fourth
    multiplies: :func:`_times_factor`.
    """
    views = [whole(lane.name, lane.shape) for lane in weights]
    norm = tuple(Attend("norm", Score(IDENTITY, (view, view)), scale=1.0 / radius**2) for view in views)
    return (
        Layer("mlp", "norm", norm),
        Layer("mlp", "excess", (Attend("excess", Score(RELU, ("norm - one", "one"))),)),
        Layer("mlp", "factor", (Attend("factor", Score(ROOT, (f"excess - {MIDDLE!r}*one", "one"))),)),
    )


def _times_factor(weights: tuple[Lane, ...]) -> tuple[Attend, ...]:
    """w += factor w."""
    views = [whole(lane.name, lane.shape) for lane in weights]
    return tuple(Attend(view, Score(IDENTITY, ("factor", view))) for view in views)


def _on_batch(layer: Layer, batch: int) -> Layer:
    """The layer with the weights of one batch's examples in place of all examples'."""

    def restricted(expression: Expr) -> Expr:
        return tuple(
            View(BATCHES[view.lane], (batch,), view.coefficient) if view.lane in BATCHES else view
            for view in expression
        )

    def of(i: Attend) -> Attend:
        scores = [Score(s.f, *((restricted(query), restricted(key)) for query, key in s.pairs)) for s in i.scores]
        return i.changed(scores=scores, value=restricted(i.value))

    return replace(layer, instructions=tuple(map(of, layer.instructions)))


def weight_bound(algorithm: DescentSettings) -> float:
    return math.inf if algorithm.box is None else algorithm.box


def weight_lanes(net: Network, bound: float, bound_from: str = "z_bound") -> tuple[Lane, ...]:
    """V1, b1, V2, b2, ...: the order of ``net.flatten``. bound_from: the setting that their bound follows from."""
    lanes = []
    for j, (c, k) in enumerate(zip(net.sizes, net.sizes[1:], strict=False), start=1):
        lanes.append(Lane(f"V{j}", (k, c), "weight", bound=bound, bound_from=bound_from))
        if net.bias:
            lanes.append(Lane(f"b{j}", (k,), "weight", bound=bound, bound_from=bound_from))
    return tuple(lanes)


def below(j: int) -> str:
    """The lane that layer j of the network reads."""
    return "x" if j == 1 else f"p{j - 1}"
