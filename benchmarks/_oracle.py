"""Gradient descent written out twice, without the library: what certificates are judged by.

- :func:`step` in 80-bit floating point (u = 2^-64, two thousand times finer than float64), back-propagation by hand. A
  certificate of a network that is compiled exactly bounds nothing but rounding; only an oracle that is finer than
  float64 can tell whether it holds, without any tolerance.
- :func:`autograd_step` in float64, by torch's own functions and autograd. It is right by construction; the two are
  compared on every step.

Weights are flat: layer by layer, each matrix row by row, its bias after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Long = NDArray[Any]  # of np.longdouble
if np.finfo(np.longdouble).eps > 2e-19:
    raise RuntimeError("long double is not finer than float64 on this machine: there is no oracle")


@dataclass(frozen=True)
class Descent:
    """m <- momentum m + grad L(w) + decay w,   w <- clip(w - lr m, -box, box),   L = 1/2 sum_i omega_i l(f(x_i), y_i).

    sizes: d_x, hidden widths, d_y. Names of activations and losses are the library's.
    """

    sizes: tuple[int, ...]
    activation: str
    activated_output: bool
    bias: bool
    loss: str
    lr: float
    momentum: float
    decay: float
    box: float | None

    def activated(self, j: int) -> bool:
        return j < len(self.sizes) - 1 or self.activated_output


def long(values: Tensor) -> Long:
    return values.detach().double().numpy().astype(np.longdouble)


# ---------------------------------------------------------------------------------------------------------- long double

_PI = 4 * np.arctan(np.longdouble(1))


def _phi(t: Long) -> Long:
    density: Long = np.exp(-t * t / 2) / np.sqrt(2 * _PI)
    return density


def _cdf(t: Long) -> Long:
    """1/2 + phi(t) (t + t^3 / 3 + t^5 / (3 5) + ...), all terms of one sign; beyond 3, where that would cancel with the
    1/2, the tail phi(t) / (|t| + 1 / (|t| + 2 / (|t| + ...))).
    """
    inside, outside = np.clip(t, -3, 3), np.maximum(np.abs(t), 3)
    term = total = inside
    for k in range(3, 200, 2):
        term = term * inside * inside / k
        total = total + term
    fraction = outside
    for k in range(300, 0, -1):
        fraction = outside + k / fraction
    tail = _phi(outside) / fraction
    series: Long = np.longdouble(0.5) + _phi(inside) * total
    return np.where(t < -3, tail, np.where(t > 3, 1 - tail, series))


def _sigmoid(t: Long) -> Long:
    return 1 / (1 + np.exp(-t))


def _slope(steep: NDArray[np.bool_], low: float = 0.0) -> Long:
    return np.where(steep, np.longdouble(1), np.longdouble(low))


_ACTIVATIONS: dict[str, tuple[Callable[[Long], Long], Callable[[Long], Long]]] = {
    "tanh": (np.tanh, lambda t: 1 / np.cosh(t) ** 2),
    "sigmoid": (_sigmoid, lambda t: _sigmoid(t) * _sigmoid(-t)),
    "softplus": (lambda t: np.logaddexp(t, np.longdouble(0)), _sigmoid),
    "gelu": (lambda t: t * _cdf(t), lambda t: _cdf(t) + t * _phi(t)),
    "silu": (lambda t: t * _sigmoid(t), lambda t: _sigmoid(t) * (1 + t * _sigmoid(-t))),
    "sin": (np.sin, np.cos),
    "relu": (lambda t: np.maximum(t, 0), lambda t: _slope(t > 0)),
    "leaky_relu": (lambda t: np.where(t > 0, t, np.longdouble(0.01) * t), lambda t: _slope(t > 0, 0.01)),
    "relu6": (lambda t: np.clip(t, 0, 6), lambda t: _slope((t > 0) & (t < 6))),
}


def _softmax(t: Long, y: Long) -> Long:
    weights: Long = np.exp(t - t.max(-1, keepdims=True))
    shares: Long = weights / weights.sum(-1, keepdims=True)
    return shares - y


_DERIVATIVES: dict[str, Callable[[Long, Long], Long]] = {
    "squared": lambda t, y: 2 * (t - y),
    "log-cosh": lambda t, y: np.tanh(t - y),
    "pseudo-huber": lambda t, y: (t - y) / np.sqrt(1 + (t - y) ** 2),
    "logistic": lambda t, y: _sigmoid(t) - y,
    "softmax": _softmax,
}


def _layers(descent: Descent, w: Long) -> list[tuple[Long, Long]]:
    layers, start = [], 0
    for c, k in zip(descent.sizes, descent.sizes[1:], strict=False):
        V = w[start : start + k * c].reshape(k, c)
        start += k * c
        b = w[start : start + k] if descent.bias else np.zeros(k, np.longdouble)
        start += k * descent.bias
        layers.append((V, b))
    return layers


def forward(descent: Descent, w: Long, X: Long) -> tuple[list[Long], list[Long]]:
    """p_0 .. p_N and r'_1 .. r'_N, (n, k_j)."""
    r, dr = _ACTIVATIONS[descent.activation]
    values, slopes = [X], []
    for j, (V, b) in enumerate(_layers(descent, w), start=1):
        z = values[-1] @ V.T + b
        values.append(r(z) if descent.activated(j) else z)
        slopes.append(dr(z) if descent.activated(j) else np.ones_like(z))
    return values, slopes


def predict(descent: Descent, w: Long, X: Long) -> Long:
    return forward(descent, w, X)[0][-1]


def gradient(descent: Descent, w: Long, X: Long, y: Long, omega: Long) -> Long:
    values, slopes = forward(descent, w, X)
    s = omega[:, None] * _DERIVATIVES[descent.loss](values[-1], y) * slopes[-1]
    parts: list[Long] = []
    layers = _layers(descent, w)
    for j in range(len(layers), 0, -1):
        bias = [s.sum(0)] if descent.bias else []
        parts = [(s.T @ values[j - 1]).ravel(), *bias, *parts]
        if j > 1:
            s = (s @ layers[j - 1][0]) * slopes[j - 2]
    return np.concatenate(parts) / 2


def step(descent: Descent, w: Long, m: Long, X: Long, y: Long, omega: Long) -> tuple[Long, Long]:
    m = descent.momentum * m + gradient(descent, w, X, y, omega) + descent.decay * w
    w = w - descent.lr * m
    return (w if descent.box is None else np.clip(w, -descent.box, descent.box)), m


# ------------------------------------------------------------------------------------------------- autograd, in float64

_TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda t: F.softplus(t, threshold=600.0),  # torch's own threshold, 20, is an error of 2e-9
    "gelu": F.gelu,
    "silu": F.silu,
    "sin": torch.sin,
    "relu": torch.relu,
    "leaky_relu": lambda t: F.leaky_relu(t, 0.01),
    "relu6": F.relu6,
}
_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda t, y: F.mse_loss(t, y, reduction="none").sum(-1),
    "log-cosh": lambda t, y: (F.softplus(2 * (t - y), threshold=600.0) - (t - y)).sum(-1),  # up to a constant
    "pseudo-huber": lambda t, y: (torch.sqrt(1 + (t - y) ** 2) - 1).sum(-1),
    "logistic": lambda t, y: F.binary_cross_entropy_with_logits(t, y, reduction="none").sum(-1),
    "softmax": lambda t, y: F.cross_entropy(t, y, reduction="none"),
}


def autograd_step(descent: Descent, w: Tensor, m: Tensor, X: Tensor, y: Tensor, omega: Tensor) -> Tensor:
    """The weights after one step, by torch."""
    variable = w.detach().double().requires_grad_()
    p, start = X, 0
    for j, (c, k) in enumerate(zip(descent.sizes, descent.sizes[1:], strict=False), start=1):
        V = variable[start : start + k * c].view(k, c)
        start += k * c
        b = variable[start : start + k] if descent.bias else None
        start += k * descent.bias
        z = F.linear(p, V, b)
        p = _TORCH[descent.activation](z) if descent.activated(j) else z
    risk = 0.5 * (omega * _LOSSES[descent.loss](p, y)).sum()
    (found,) = torch.autograd.grad(risk, variable)
    after = w.double() - descent.lr * (descent.momentum * m.double() + found + descent.decay * w.double())
    return after if descent.box is None else after.clamp(-descent.box, descent.box)
