"""Gaussian-process baselines: the posterior mean of y_k given the first k labels, for every k.

Labels are N(0, K + noise^2 I) with K_ij = kernel(x_i, x_j). One Cholesky factor of the whole prompt gives all prefixes:
K = L L^T and a = L^{-1} y. Because the first k rows of L factor the first k points,

    E[y_k | y_0 .. y_{k-1}] = sum_{i < k} L_ki a_i

so predictions are (L without its diagonal) L^{-1} y. Row k of L does not see the points after k: no prefix sees ahead.
All arithmetic is float64; each variance K_ii is raised by ``JITTER`` of itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from innergrad.config import check_choices
from innergrad.errors import Registry, integer, real
from innergrad.lab.baselines.base import Predictor

Kernel = Callable[[Tensor, Tensor], Tensor]  # (B, n, d), (B, m, d) -> (B, n, m)

JITTER = 1e-10

KERNELS: Registry[Kernel] = Registry(
    "kernel",
    {
        "linear": lambda x, z: x @ z.mT,
        "relu": lambda x, z: (x @ z.mT).relu(),
        "exp": lambda x, z: (x @ z.mT).exp(),
    },
    hint="or a function",
)


def online_posterior(K: Tensor, y: Tensor, noise: float = 0.0) -> Tensor:
    """The posterior mean of each label given those before it, in the shape of y; K (B, n, n), y (B, n) or (B, n, k)."""
    L = torch.linalg.cholesky(_lifted(K, noise))
    a = torch.linalg.solve_triangular(L, _columns(y).to(K), upper=False)
    mean: Tensor = L.tril(-1) @ a
    return mean.view(y.shape).to(y)


def flipped_posterior(K: Tensor, y: Tensor, noise: float = 0.0) -> Tensor:
    """(13) of Cheng et al., for kernels that are not positive: the eigenvalues of K of k + 1 points are made positive.

    With K_+ = U |D| U^T = [[A, v], [v^T, m]] of the first k + 1 points the prediction is v^T A^{-1} y. K_+ depends on
    the query, so every prefix has a decomposition of its own.
    """
    found = torch.zeros_like(y)
    for k in range(1, K.shape[1]):
        D, U = torch.linalg.eigh(K[:, : k + 1, : k + 1])
        plus = (U * D.abs()[:, None]) @ U.mT
        a = torch.linalg.solve(_lifted(plus[:, :k, :k], noise), _columns(y)[:, :k].to(K))
        found[:, k] = (plus[:, k, :k, None] * a).sum(1).view(found[:, k].shape).to(y)
    return found


def _columns(y: Tensor) -> Tensor:
    """(B, n, k): labels with their axis of numbers. Each is a process of its own, with the same kernel."""
    return y if y.ndim == 3 else y[..., None]


def _lifted(K: Tensor, noise: float) -> Tensor:
    """K + noise^2 I, and JITTER of each variance: its own, since a common size would look at later points."""
    variance = K.diagonal(dim1=-2, dim2=-1).abs()
    return K + torch.diag_embed(noise**2 + JITTER * variance + torch.finfo(K.dtype).tiny)


@dataclass(frozen=True)
class KernelBayes(Predictor, kind="kernel-bayes"):
    """The Bayes predictor of the Gaussian processes of Cheng et al. (2024): Y | X ~ N(0, K_+(X) + noise^2 I).

    Args:
        kernel: ``linear``, ``relu`` or ``exp`` of the inner product, or a function of (B, n, d), (B, m, d) to (B, n,
            m).
        noise: the standard deviation of the labels' noise.
        flip: the kernel is not positive, so take the absolute values of its eigenvalues, as their (13) does. By default
            for ``relu`` alone.
    """

    kernel: str | Kernel = "exp"
    noise: float = 0.0
    flip: bool | None = None

    def __post_init__(self) -> None:
        real("noise", self.noise, low=0.0)
        if not callable(self.kernel):
            KERNELS.find(self.kernel)

    @property
    def name(self) -> str:
        return "Bayes, kernel " + (self.kernel if isinstance(self.kernel, str) else "of the task")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        kernel = KERNELS[self.kernel] if isinstance(self.kernel, str) else self.kernel
        x = x.double()
        flip = self.kernel == "relu" if self.flip is None else self.flip
        return (flipped_posterior if flip else online_posterior)(kernel(x, x), y, self.noise)


@dataclass(frozen=True)
class NNGP(Predictor, kind="nngp"):
    """The posterior mean for random ReLU networks of infinite width (recursive arc-cosine kernel of order 1).

        K_1 = c_1 <x, z>,    K_{j+1} = c_{j+1} E[relu(u) relu(v)],  (u, v) of covariance K_j,    K = K_N
        E[relu(u) relu(v)] = |u| |v| (sin t + (pi - t) cos t) / (2 pi),  cos t = K_uv / (|u| |v|)   (Cho and Saul, 2009)

    c_j is the variance of a weight times the number of units it sums over. These are those of the task ``network`` with
    the same ``layers``, ``width``, ``scaling`` and ``weight_std``. (A common factor matters only beside ``noise``, the
    standard deviation of the labels' noise.) For networks of finite width the kernel is their covariance (two layers:
    exactly), so this is the best predictor that is linear in the labels; no better one is known in closed form.
    """

    layers: int = 2
    width: int = 100
    scaling: Literal["garg", "he", "unit"] = "garg"
    noise: float = 0.0
    weight_std: float = 1.0

    def __post_init__(self) -> None:
        integer("layers", self.layers, high=1000)
        integer("width", self.width)
        real("noise", self.noise, low=0.0)
        real("weight_std", self.weight_std, above=0.0)
        check_choices(self)

    @property
    def name(self) -> str:
        return f"NNGP, {self.layers} layers"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return online_posterior(self.kernel(x.double()), y, self.noise)

    def kernel(self, x: Tensor) -> Tensor:
        """(B, n, n): the covariance of the labels of x (B, n, d)."""
        first, *rest = self._factors(x.shape[-1])
        K = first * (x @ x.mT)
        for factor in rest:
            K = factor * relu_covariance(K)
        return K

    def _factors(self, d: int) -> list[float]:
        """The variance of a weight of layer j = 1 .. N times the number of units below (of the inputs: times one)."""
        found = []
        for layer in range(1, self.layers + 1):
            fan_in, units = (d, 1) if layer == 1 else (self.width, self.width)
            last = layer == self.layers
            if self.scaling == "he":
                variance = (1.0 if last else 2.0) / fan_in
            else:
                variance = 2.0 / self.width if last and self.scaling == "garg" else 1.0
            found.append(self.weight_std**2 * variance * units)
        return found


def relu_covariance(K: Tensor) -> Tensor:
    """E[relu(u_i) relu(u_j)] for u ~ N(0, K), (..., n, n)."""
    size = K.diagonal(dim1=-2, dim2=-1).sqrt()
    sizes = size[..., :, None] * size[..., None, :]
    cosine = (K / sizes.clamp(min=torch.finfo(K.dtype).tiny)).clamp(-1.0, 1.0)
    angle = cosine.acos()
    return sizes * (angle.sin() + (math.pi - angle) * cosine) / (2.0 * math.pi)
