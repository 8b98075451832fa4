"""Update rules: what a step does with the mean gradient, as layers, whatever the variant and the target.

A variant gives instructions that add a multiple of the mean gradient to a lane; a rule makes layers of them, with
lanes of its own beside every weight lane w (of the same shape, shared or per token as w is):

    Mw  state    momentum; Adam: the first moment          Gw  scratch  the gradient, where it is needed as such
    Sw  state    Adam: the second moment                   Rw  scratch  Adam, weights per token: 1 / (1 + sqrt(Sw ...))

The projection that ends a step (proximal step and box) is :func:`innergrad.algorithms.descent.step.projection`. What
differs from step to step is a :class:`Step`.

Products of a token's own lanes: attention reaches shared lanes, and only those, so for weights that tokens carry
themselves such products go into product layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from innergrad.functions.adam import ADAM
from innergrad.functions.scalar import IDENTITY, clip, clip_residual
from innergrad.ir.program import Attend, Expr, Kind, Layer, Score, expr
from innergrad.ir.stream import Lane


@dataclass(frozen=True)
class Step:
    """What differs from step to step: the rate, the batch by its number, Adam's bias corrections 1 - beta^l."""

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
        """(dst, coefficients of the gradient, of w and of m in what is added to it)."""
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


def batch_weights(omega: Tensor, batch: Sequence[int]) -> Tensor:
    """Weights of the examples (batch, n), those of one batch alone, adding up to one, or to zero if none is there."""
    inside = torch.zeros_like(omega)
    inside[:, [i for i in batch if i < omega.shape[1]]] = 1.0
    kept = omega * inside
    total = kept.sum(-1, keepdim=True)
    return torch.where(total > 0, kept / total.clamp(min=torch.finfo(omega.dtype).tiny), 0.0)
