"""Gradient descent and its optimisers written out twice, without the library: what certificates are judged by.

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
    """Training on L = 1/2 sum_i omega_i l(f(x_i), y_i), step by step, g = clip(grad L(w)) + decay w:

        momentum    m <- momentum m + g,   w <- w - rate m,   or, Nesterov's,   w <- w - rate (g + momentum m)
        Adam        m <- b_1 m + (1 - b_1) g,  v <- b_2 v + (1 - b_2) g^2,  w <- w - rate m^ / (sqrt(v^) + delta)
        then        w <- clip(sign(w) max(|w| - rate l1, 0), -box, box), or, with a ball, w min(1, ball / ||w||)

    sizes: d_x, hidden widths, d_y. Names of activations and losses are the library's. betas: None if it is not Adam.
    batches: lists of examples, in turn; a batch that has none of the prompt's has a gradient of zero.
    """

    sizes: tuple[int, ...]
    activation: str
    activated_output: bool
    bias: bool
    loss: str
    rates: tuple[float, ...]
    box: float | None = None
    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0
    l1: float = 0.0
    clip: float | None = None
    betas: tuple[float, float] | None = None
    delta: float = 0.0
    batches: tuple[tuple[int, ...], ...] | None = None
    ball: float | None = None

    def activated(self, j: int) -> bool:
        return j < len(self.sizes) - 1 or self.activated_output

    def among(self, omega: Any, number: int) -> Any:
        """The weights of the examples of a step, an array or a tensor: those of its batch, adding up to one."""
        if self.batches is None:
            return omega
        batch = self.batches[number % len(self.batches)]
        kept = omega * 0
        for i in batch:
            if i < len(omega):
                kept[i] = omega[i]
        return kept / kept.sum() if kept.sum() > 0 else kept


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
    with np.errstate(over="ignore"):  # 1 / inf is the limit
        found: Long = 1 / (1 + np.exp(-t))
    return found


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
    "arctan": (np.arctan, lambda t: 1 / (1 + t * t)),
    "bump": (lambda t: np.exp(-t * t), lambda t: -2 * t * np.exp(-t * t)),
    "spike": (lambda t: np.tanh(t) + 0.5 * (np.abs(t - 5.123) < 1e-3), lambda t: 1 / np.cosh(t) ** 2),
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


def _correction(beta: np.longdouble, power: int) -> np.longdouble:
    """1 - beta^power, also where beta is nearly one."""
    return -np.expm1(power * np.log1p(-(np.longdouble(1) - beta))) if beta else np.longdouble(1)


State = tuple[Long, Long]  # momentum or first moment, and second moment


def step(descent: Descent, number: int, w: Long, state: State, X: Long, y: Long, omega: Long) -> tuple[Long, State]:
    """Weights and state after step ``number``, from 0."""
    (m, v), rate, one = state, np.longdouble(descent.rates[number]), np.longdouble(1)
    g = gradient(descent, w, X, y, descent.among(omega, number))
    g = (g if descent.clip is None else np.clip(g, -descent.clip, descent.clip)) + np.longdouble(descent.decay) * w
    if descent.betas is not None:
        first, second = (np.longdouble(beta) for beta in descent.betas)
        m, v = first * m + (one - first) * g, second * v + (one - second) * g * g
        corrected = m / _correction(first, number + 1), v / _correction(second, number + 1)
        w = w - rate * corrected[0] / (np.sqrt(corrected[1]) + np.longdouble(descent.delta))
    else:
        memory = np.longdouble(descent.momentum)
        m = memory * m + g
        w = w - rate * (g + memory * m if descent.nesterov else m)
    if descent.l1:
        w = np.sign(w) * np.maximum(np.abs(w) - rate * np.longdouble(descent.l1), 0)
    if descent.ball is not None:
        radius, largest = np.longdouble(descent.ball), np.abs(w).max()  # squares of huge weights would overflow
        norm = largest * np.sqrt(((w / largest) ** 2).sum()) if largest > 0 else largest
        w = w * (radius / norm) if norm > radius else w
    return (w if descent.box is None else np.clip(w, -descent.box, descent.box)), (m, v)


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
    "arctan": torch.arctan,
    "bump": lambda t: torch.exp(-t * t),
    "spike": lambda t: torch.tanh(t) + 0.5 * ((t - 5.123).abs() < 1e-3),
}
_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda t, y: F.mse_loss(t, y, reduction="none").sum(-1),
    "log-cosh": lambda t, y: (F.softplus(2 * (t - y), threshold=600.0) - (t - y)).sum(-1),  # up to a constant
    "pseudo-huber": lambda t, y: (torch.sqrt(1 + (t - y) ** 2) - 1).sum(-1),
    "logistic": lambda t, y: F.binary_cross_entropy_with_logits(t, y, reduction="none").sum(-1),
    "softmax": lambda t, y: F.cross_entropy(t, y, reduction="none"),
}


def autograd_step(
    descent: Descent, number: int, w: Tensor, state: tuple[Tensor, Tensor], X: Tensor, y: Tensor, omega: Tensor
) -> Tensor:
    """The weights after the step, by torch: its gradient, and its own optimisers from the same state."""
    variable = torch.nn.Parameter(w.detach().double().clone())
    p, start = X, 0
    for j, (c, k) in enumerate(zip(descent.sizes, descent.sizes[1:], strict=False), start=1):
        V = variable[start : start + k * c].view(k, c)
        start += k * c
        b = variable[start : start + k] if descent.bias else None
        start += k * descent.bias
        z = F.linear(p, V, b)
        p = _TORCH[descent.activation](z) if descent.activated(j) else z
    (0.5 * (descent.among(omega, number) * _LOSSES[descent.loss](p, y)).sum()).backward()
    if descent.clip is not None:
        torch.nn.utils.clip_grad_value_([variable], descent.clip)
    rate, optimiser = descent.rates[number], _optimiser(descent, variable, number, state)
    optimiser.step()
    after = variable.detach()
    if descent.l1:
        after = torch.nn.functional.softshrink(after, rate * descent.l1)
    if descent.ball is not None:
        after = after * min(1.0, descent.ball / max(float(after.norm()), 1e-300))
    return after if descent.box is None else after.clamp(-descent.box, descent.box)


def _optimiser(
    descent: Descent, variable: torch.nn.Parameter, number: int, state: tuple[Tensor, Tensor]
) -> torch.optim.Optimizer:
    m, v = (part.double().clone() for part in state)
    rate, decay = descent.rates[number], descent.decay
    optimiser: torch.optim.Optimizer
    if descent.betas is None:
        optimiser = torch.optim.SGD([variable], rate, descent.momentum, weight_decay=decay, nesterov=descent.nesterov)
        if descent.momentum:
            optimiser.state[variable]["momentum_buffer"] = m
    else:
        optimiser = torch.optim.Adam([variable], rate, descent.betas, descent.delta, weight_decay=decay)
        optimiser.state[variable].update(step=torch.tensor(float(number)), exp_avg=m, exp_avg_sq=v)
    return optimiser
