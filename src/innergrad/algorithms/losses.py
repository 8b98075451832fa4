"""Losses l(t, y), summed over outputs, with their derivatives u = dl/dt in the form the program needs.

The risk is the paper's, L(w) = 1/(2n) sum_i l(f(x_i), y_i), with weights: 1/(2 sum omega) sum_i omega_i l(f(x_i), y_i).

    squared        (t - y)^2                         u = 2 (t - y)          exact
    log-cosh       log cosh(t - y)                   u = tanh(t - y)
    pseudo-huber   sqrt(1 + (t - y)^2) - 1           u = d / sqrt(1 + d^2),  d = t - y
    logistic       softplus(t) - t y, y in {0, 1}    u = sigmoid(t) - y      needs a linear output
    softmax        LSE(t) - <t, y>, y one-hot        u = softmax(t) - y      needs a linear output

A new loss of the residual, l = psi(t - y), is a :class:`ResidualLoss` with u = psi' as a :class:`Function`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from innergrad.errors import Registry
from innergrad.functions.scalar import EXP_CAPPED, IDENTITY, PSEUDO_HUBER_U, SIGMOID, SOFTPLUS, TANH, Function
from innergrad.functions.tape import Formula, Opaque, residual


@dataclass(frozen=True)
class Loss:
    """value(t, y) -> loss per example, summed over the outputs (the last axis)."""

    name: str
    value: Callable[[Tensor, Tensor], Tensor] = field(repr=False)

    def primitives(self) -> dict[Function, tuple[Formula, ...]]:
        """Functions that must be derivatives, and what of; of the losses that ship they are."""
        return {}


@dataclass(frozen=True)
class ResidualLoss(Loss):
    """l = psi(t - y); ``u`` is psi', up to the factor ``scale``."""

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

    def primitives(self) -> dict[Function, tuple[Formula, ...]]:
        return {} if self in _BUILTIN else {f: (_unknown(self),) for f in (self.softplus, self.exp)}


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
    hint="or an ig.ResidualLoss of your own; to load a model that has one, ig.load(path, extensions=[it])",
)
