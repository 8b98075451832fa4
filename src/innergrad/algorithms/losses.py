"""Losses l(t, y), summed over outputs, with their derivatives u = dl/dt in the form the program needs.

The risk is the paper's, L(w) = 1/(2n) sum_i l(f(x_i), y_i), with weights: 1/(2 sum omega) sum_i omega_i l(f(x_i), y_i).

    squared        (t - y)^2                         u = 2 (t - y)          exact
    log-cosh       log cosh(t - y)                   u = tanh(t - y)
    pseudo-huber   sqrt(1 + (t - y)^2) - 1           u = d / sqrt(1 + d^2),  d = t - y
    logistic       softplus(t) - t y, y in {0, 1}    u = sigmoid(t) - y      needs a linear output
    softmax        LSE(t) - <t, y>, y one-hot        u = softmax(t) - y      needs a linear output

A new loss is a :class:`SmoothLoss`: l(t, y) of one output, smooth in both, on a stated domain; its derivative is made
from its formula. A loss of the residual, l = psi(t - y), can be a :class:`ResidualLoss`, with u = psi' as a
:class:`Function` that needs no domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from innergrad.errors import InputError, Registry, real
from innergrad.functions.calculus import of_the_difference, partial, pruned, summands
from innergrad.functions.callables import RADIUS, derivative_of
from innergrad.functions.derived import within
from innergrad.functions.jets import NoRule
from innergrad.functions.ridges import Ridge, ridge_form
from innergrad.functions.scalar import EXP_CAPPED, IDENTITY, PSEUDO_HUBER_U, SIGMOID, SOFTPLUS, TANH, Function
from innergrad.functions.tape import Formula, Opaque, Tape, residual
from innergrad.functions.tracing import check_callable, name_of, takes, traced

SLIGHTLY = 2.0**-6  # above 0: where a probability, by a fit, is a little more than one


@dataclass(frozen=True)
class Loss:
    """The base of all losses. To write one, use ``Loss.from_callable``, ``SmoothLoss`` or ``ResidualLoss``.

    Attributes:
        name: models are saved with it.
        value: value(t, y) is the loss of every example, summed over the outputs, which are the last axis. t is the
            output of the network, y the label.

    Examples:
        >>> import innergrad as ig, torch
        >>> loss = ig.LOSSES["squared"]
        >>> loss.value(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]))
        tensor([5.])
    """

    name: str
    value: Callable[[Tensor, Tensor], Tensor] = field(repr=False)

    def primitives(self) -> dict[Function, tuple[Formula, ...]]:
        """Functions that must be derivatives, and what of; of the losses that ship they are."""
        return {}

    @staticmethod
    def from_callable(
        f: Callable[..., Tensor],
        name: str | None = None,
        radius: float | None = None,
        t_bound: float = 4.0,
        y_bound: float = 4.0,
        accuracy: float = 1e-4,
    ) -> Loss:
        """A loss from a plain function of torch. Its derivative and all facts are found.

        The function is l(t, y), of an output t of the network and its label y, or psi(d), of their difference d = t -
        y. It gives one number for each output, or their sum over the last axis. The derivative dl/dt is made from the
        steps of the function, and facts about it are proven. If intervals cannot follow a loss of t - y, its facts are
        measured on a grid, and there is no certificate. Any other loss that they cannot follow is refused.

        Args:
            f: l(t, y), or psi(d).
            name: models are saved with it. By default the name of the function.
            radius: for a loss of t - y, the largest |t - y|. By default as in ``Activation.from_callable``.
            t_bound: for any other loss, as in ``SmoothLoss``, which it becomes.
            y_bound: likewise.
            accuracy: likewise.

        Examples:
            >>> import innergrad as ig, torch
            >>> cauchy = ig.Loss.from_callable(lambda d: torch.log1p(d * d), "cauchy")
            >>> ig.GradientDescent(ig.Network([1, 3, 1]), loss=cauchy).loss.name
            'cauchy'
        """
        return _from_callable(
            f, name_of(f, name), radius, {"t_bound": t_bound, "y_bound": y_bound, "accuracy": accuracy}
        )


@dataclass(frozen=True)
class ResidualLoss(Loss):
    """A loss of the residual: l = psi(t - y), for any t and y.

    Args:
        name: models are saved with it.
        value: value(t, y), summed over the outputs.
        u: the derivative of psi, divided by ``scale``.
        scale: a factor.

    Examples:
        >>> import innergrad as ig, torch
        >>> half = ig.ResidualLoss("half-squared", lambda t, y: ((t - y) ** 2 / 2).sum(-1), u=ig.IDENTITY)
        >>> ig.GradientDescent(ig.Network([1, 3, 1]), loss=half).loss.name
        'half-squared'
    """

    u: Function = IDENTITY
    scale: float = 1.0

    def primitives(self) -> dict[Function, tuple[Formula, ...]]:
        return {} if self in _BUILTIN else {self.u: (residual(self.value, self.scale),)}


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """u = sigmoid(t) - y."""

    sigmoid: Function = SIGMOID

    def primitives(self) -> dict[Function, tuple[Formula, ...]]:
        return {} if self in _BUILTIN else {self.sigmoid: (_unknown(self),)}


@dataclass(frozen=True)
class SoftmaxLoss(Loss):
    """u_k = exp(t_k - LSE(t)) - y_k, LSE by a binary tree of LSE(a, b) = b + softplus(a - b)."""

    softplus: Function = SOFTPLUS
    exp: Function = EXP_CAPPED
    shift: float = 0.0  # what is added to the argument of exp, which is exp(s - shift) then

    def smooth(self, differences: float, classes: int) -> SoftmaxLoss:
        """For sums of smooth units, on a bounded domain: exp as it is, without the kink at 0 at which it is cut off,
        with its argument, between -(differences + log classes) and 0, moved so that 0 is in the middle.
        """
        shift = 0.5 * (differences + math.log(classes))
        exp = Function(f"exp(s-{shift:g})", lambda s: torch.exp(s - shift), radius=shift + SLIGHTLY)
        return replace(self, softplus=within(self.softplus, differences + math.log(classes)), exp=exp, shift=shift)

    def primitives(self) -> dict[Function, tuple[Formula, ...]]:
        return {} if self in _BUILTIN else {f: (_unknown(self),) for f in (self.softplus, self.exp)}


@dataclass(frozen=True)
class SmoothLoss(Loss):
    """A smooth loss from its formula alone, on a stated domain.

    The formula is a sum over the outputs, and smooth for |t| <= t_bound and |y| <= y_bound. Its derivative dl/dt is
    made from the steps of the formula. It is then written as a sum of functions of a t + b y: exactly, if it is f(t -
    y) or f(t) + g(y), and otherwise to within ``accuracy``. That error is proven and part of certificates. A run that
    leaves the domain stops.

    Args:
        name: models are saved with it.
        value: value(t, y), summed over the outputs. t is the output of the network, y the label.
        t_bound: the largest |t|.
        y_bound: the largest |y|.
        accuracy: of the derivative.

    Examples:
        >>> import innergrad as ig, torch
        >>> poisson = ig.SmoothLoss("poisson", lambda t, y: (torch.exp(t) - y * t).sum(-1), t_bound=3, y_bound=9)
        >>> poisson.remainder  # exact: the derivative is exp(t) - y
        0.0
        >>> ig.GradientDescent(ig.Network([1, 3, 1]), loss=poisson).loss.name
        'poisson'
    """

    t_bound: float = 4.0
    y_bound: float = 4.0
    accuracy: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("t_bound", "y_bound", "accuracy"):
            object.__setattr__(self, name, real(name, getattr(self, name), above=0.0))
        try:
            u = partial(summands(self.value), 0)
        except NoRule as problem:
            raise InputError(
                f"the loss {self.name!r} is no formula of t and y that can be differentiated step by step",
                got=problem.operation,
                allowed="(...).sum(-1) of arithmetic and smooth functions such as exp, log, sqrt, tanh, sin, cosh",
                hint="a loss that couples the outputs has no program, but for loss='softmax'",
            ) from problem
        if isinstance(u, float):
            raise InputError(f"the loss {self.name!r} is linear in t: nothing is learned from it", got=f"u = {u:g}")
        object.__setattr__(self, "_u", u)

    @property
    def u(self) -> Tape:
        """dl/dt of one output, as a tape of t and y."""
        return cast(Tape, self.__dict__["_u"])

    @cached_property
    def ridges(self) -> tuple[Ridge, ...]:
        """u as a sum of functions of linear forms; ``remainder`` says how far it is off."""
        return ridge_form(f"{self.name}'", self.u, self.t_bound, self.y_bound, self.accuracy)

    @property
    def remainder(self) -> float:
        return sum(abs(ridge.scale) * ridge.f.rounded for ridge in self.ridges)

    @property
    def bound(self) -> float:
        """sup |u| on the domain, from its terms."""
        reach = [abs(r.t) * self.t_bound + abs(r.y) * self.y_bound for r in self.ridges]
        return sum(abs(r.scale) * r.f.magnitude(s) for r, s in zip(self.ridges, reach, strict=True)) + self.remainder

    @property
    def lipschitz(self) -> float:
        """sup |du/dt| of the terms on the domain."""
        return sum(abs(ridge.scale * ridge.t) * ridge.f.lipschitz for ridge in self.ridges)


def _unknown(loss: Loss) -> Formula:
    return Opaque(loss.value, f"the loss {loss.name!r}, which is not the library's")


def _log_cosh(t: Tensor, y: Tensor) -> Tensor:
    d = (t - y).abs()
    return (d + torch.log1p(torch.exp(-2 * d)) - math.log(2.0)).sum(-1)


_BUILTIN: tuple[Loss, ...] = (
    ResidualLoss("squared", lambda t, y: (t - y).square().sum(-1), IDENTITY, 2.0),
    ResidualLoss("log-cosh", _log_cosh, TANH),
    ResidualLoss("pseudo-huber", lambda t, y: (torch.sqrt(1 + (t - y).square()) - 1).sum(-1), PSEUDO_HUBER_U),
    LogisticLoss("logistic", lambda t, y: (torch.logaddexp(t, torch.zeros_like(t)) - t * y).sum(-1)),
    SoftmaxLoss("softmax", lambda t, y: torch.logsumexp(t, -1) - (t * y).sum(-1)),
)
LOSSES = Registry(
    "loss",
    {loss.name: loss for loss in _BUILTIN},
    hint="or your own, an ig.SmoothLoss or ResidualLoss; to load a model that has one, ig.load(path, extensions=[it])",
)
"""The losses that ship, by name.

Examples:
    >>> import innergrad as ig
    >>> ", ".join(ig.LOSSES)
    'squared, log-cosh, pseudo-huber, logistic, softmax'
"""


# ------------------------------------------------------------------------------------------------------------ callables


def _from_callable(f: Callable[..., Tensor], name: str, radius: float | None, settings: dict[str, float]) -> Loss:
    if name in LOSSES:
        raise InputError(f"{name} is a loss of the library", hint="give yours another name")
    if radius is not None:
        radius = real("radius", radius, above=0.0)
    if not callable(f) or takes(f, 1):
        check_callable(f, name, RADIUS if radius is None else radius)
        return _residual_loss(f, name, radius)
    each = _each_output(f)
    check_callable(each, name, *(real(key, settings[key], above=0.0) for key in ("t_bound", "y_bound")))
    try:
        tape = _of_one_output(f)
    except NoRule as problem:
        if _of_difference(each, RADIUS if radius is None else radius):
            return _residual_loss(lambda d: each(d, torch.zeros_like(d)), name, radius)
        what = f"the loss {name!r} is neither a function of t - y nor a formula that can be followed"
        raise InputError(what, got=problem.operation) from problem
    psi = of_the_difference(tape)
    if psi is not None:
        return _residual_loss(psi, name, radius)
    return SmoothLoss(name, lambda t, y: tape(t, y).sum(-1), **settings)


def _residual_loss(psi: Formula, name: str, radius: float | None) -> ResidualLoss:
    run, u = derivative_of(psi, name, radius)
    if u.exact is not None and set(u.exact.slopes) == {0.0}:
        raise InputError(f"the loss {name!r} is linear in t: nothing is learned from it", got=f"u = {u.exact.value:g}")
    return ResidualLoss(name, lambda t, y: run(t - y).sum(-1), u)


def _each_output(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss of each output, also of a function that adds them up over the last axis."""
    ones = torch.ones(3, 2, dtype=torch.float64)
    try:
        summed = f(ones, ones).shape == (3,)
    except Exception:  # what is wrong is said where it is tried on numbers
        return f
    return (lambda t, y: f(t.unsqueeze(-1), y.unsqueeze(-1))) if summed else f


def _of_one_output(f: Callable[..., Tensor]) -> Tape:
    tape = traced(f, 2)
    if tape.steps and tape.steps[-1].name == "sum":
        return summands(tape)
    return pruned(tape)


def _of_difference(f: Callable[..., Tensor], radius: float) -> bool:
    """Whether a function of t and y is one of t - y, as far as a grid shows."""
    d = torch.linspace(-radius, radius, 1001, dtype=torch.float64)
    with torch.no_grad():
        alone, size = f(d, torch.zeros_like(d)), 1e-9
        moved = [f(d + by, torch.full_like(d, by)) for by in (-1.375, 0.3, 2.5)]
    return all(bool(((one - alone).abs() <= size * alone.abs().clamp(min=1.0)).all()) for one in moved)
