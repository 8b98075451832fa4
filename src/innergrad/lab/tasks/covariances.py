"""Covariances of random functions. Gaussian processes are drawn from them, and their best predictors know them.

A kernel takes points (..., n, d) and (..., m, d) and gives the matrix (..., n, m) of covariances of the labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from innergrad.config import check_choices
from innergrad.errors import integer, real
from innergrad.lab.tasks.inputs import Gaussian, Inputs


@dataclass(frozen=True)
class KernelTerm:
    """weight * h(<G u, G v> / sigma2), h = linear, relu or exp; G = diag(``coordinates``), empty for the identity."""

    h: Literal["linear", "relu", "exp"] = "exp"
    weight: float = 1.0
    sigma2: float = 1.0
    coordinates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_choices(self, "kernel ")
        real("the weight of a kernel", self.weight, above=0.0)
        real("sigma2", self.sigma2, above=0.0)
        for value in self.coordinates:
            real("a coordinate's factor", value)

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        if self.coordinates:
            # built by arithmetic on the device: a graph can record it, a copy from the host it cannot
            squares = torch.stack([u.new_full((), factor**2) for factor in self.coordinates])
            u = u * squares
        products = u @ v.mT / self.sigma2
        h = {"linear": products, "relu": products.relu()}.get(self.h)
        return self.weight * (products.exp() if h is None else h)


@dataclass(frozen=True)
class SumKernel:
    """K(x, x') = sum of terms K_s(G_s u, G_s u'), u = Sigma^(-1/2) x if the ``inputs`` have a covariance (Cheng et al.
    2024, D.1).
    """

    terms: tuple[KernelTerm, ...]
    inputs: Inputs = field(default_factory=Gaussian)

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        return covariances(self.terms, self.inputs, x, z)

    @property
    def positive(self) -> bool:
        """Positive semi-definite, as sums of linear and exponential kernels are; ReLU's is not."""
        return all_positive(self.terms)


def all_positive(terms: tuple[KernelTerm, ...]) -> bool:
    return all(term.h != "relu" for term in terms)


def covariances(terms: tuple[KernelTerm, ...], inputs: Inputs, x: Tensor, z: Tensor) -> Tensor:
    """The matrix of a ``SumKernel`` of these: for torch.compile, which cannot trace the making of one."""
    u, v = inputs.whiten(x), inputs.whiten(z)
    return torch.stack([term(u, v) for term in terms]).sum(0)


@dataclass(frozen=True)
class Matern:
    """The Matern kernel of order nu = ``smoothness`` + 1/2: its functions have ``smoothness`` derivatives.

    k(r) = exp(-a) sum_i (p + i)! / (i! (p - i)!) (2 a)^(p - i) p! / (2 p)!,  a = sqrt(2 nu) r / length, p = smoothness
    """

    smoothness: int = 3
    length: float = 1.0

    def __post_init__(self) -> None:
        integer("smoothness", self.smoothness, low=0, high=20)
        real("length", self.length, above=0.0)

    def __call__(self, x: Tensor, z: Tensor) -> Tensor:
        p = self.smoothness
        a = math.sqrt(2 * p + 1) / self.length * torch.cdist(x, z, compute_mode="donot_use_mm_for_euclid_dist")
        total = torch.zeros_like(a)
        for i in range(p + 1):
            coefficient = math.factorial(p + i) / (math.factorial(i) * math.factorial(p - i))
            total = total + coefficient * (2.0 * a) ** (p - i)
        return (-a).exp() * total * (math.factorial(p) / math.factorial(2 * p))

    @property
    def positive(self) -> bool:
        return True
