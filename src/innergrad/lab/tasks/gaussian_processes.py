"""K-Gaussian processes, exactly as in Cheng et al. (Definition 3.3, App. H.1): labels of n points are drawn jointly,

    (y_1, ..., y_n) ~ N(0, K_+),   K_ij = K(Sigma^(-1/2) x_i, Sigma^(-1/2) x_j),   K_+ = V |D| V^T  for  K = V D V^T.

If K is positive semi-definite, K_+ = K and this is a Gaussian process. If not (``relu``), K_+ of some points is no part
of K_+ of all of them: leaving a point out changes the distribution of the others' labels. So labels belong to prompts
of one length, and prompts of another length are another task.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab.baselines import KernelBayes, Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.optimisers import GROWTH
from innergrad.lab.tasks.base import Params, Task, measured_scale
from innergrad.lab.tasks.covariances import KernelTerm, SumKernel, all_positive, covariances
from innergrad.lab.tasks.inputs import Covariance, Inputs

JITTER = 1e-12  # of a label's variance, for the Cholesky factor of a singular K: labels move by 1e-6
TINY = 1e-30  # where that variance is zero


@dataclass(frozen=True)
class GaussianProcesses(Task, kind="gaussian-process"):
    """Draws of a Gaussian process. The defaults are those of Cheng et al. (2024).

    Labels are N(0, K_+), with K the sum of ``terms``.

    ``inputs=Sphere()`` is the unit sphere of their section 3.3. Parameters are z (B, n), standard normal; y = L z with
    the Cholesky factor L of K_+, in float64. If K is positive semi-definite, label k depends on the first k points
    alone, and longer prompts begin with shorter ones.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.
        terms: the kernels that K is the sum of.
    """

    d: int = 5
    inputs: Inputs = field(default_factory=Covariance)
    terms: tuple[KernelTerm, ...] = (KernelTerm("exp"),)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.terms or not all(isinstance(term, KernelTerm) for term in self.terms):
            raise InputError("terms must be one KernelTerm or more", got=repr(self.terms))
        for term in self.terms:
            if term.coordinates and len(term.coordinates) != self.d:
                raise InputError("coordinates of a kernel must be d", got=len(term.coordinates), allowed=str(self.d))

    @property
    def kernel(self) -> SumKernel:
        """K as a function of the points x."""
        return SumKernel(self.terms, self.inputs)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {"z": rng.normal(index, n)}

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        n = x.shape[1]
        if n > params["z"].shape[1]:
            raise InputError(
                "a Gaussian process was drawn for shorter prompts", got=n, allowed=str(params["z"].shape[1])
            )
        points = x.double()
        K = covariances(self.terms, self.inputs, points, points)
        K = K if all_positive(self.terms) else absolute(K)
        jitter = torch.diag_embed(JITTER * K.diagonal(dim1=-2, dim2=-1) + TINY)
        factor = torch.linalg.cholesky_ex(K + jitter).L
        return torch.einsum("bij,bj->bi", factor, params["z"][:, :n].double()).to(x.dtype)

    def covariance(self, x: Tensor) -> Tensor:
        """K_+ + noise^2 I."""
        K = covariances(self.terms, self.inputs, x, x)
        K = K if all_positive(self.terms) else absolute(K)
        return K + self.noise**2 * torch.eye(x.shape[1], dtype=x.dtype, device=x.device) if self.noise else K

    @property
    def scale(self) -> float:
        """sqrt(E K(x, x)); measured on prompts of 16 points where K is not positive semi-definite."""
        return _root_diagonal(self) if self.kernel.positive else measured_scale(self)

    def best(self) -> Predictor:
        """The posterior mean (13) of Cheng et al. 2024."""
        return KernelBayes(self.kernel, noise=self.noise, flip=not self.kernel.positive)


def absolute(matrix: Tensor) -> Tensor:
    """|K| = V |D| V^T of symmetric matrices K = V D V^T, (B, n, n)."""
    if matrix.device.type != "cpu":
        return absolute_by_products(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    return torch.einsum("bik,bk,bjk->bij", vectors, values.abs(), vectors)


def absolute_by_products(matrix: Tensor) -> Tensor:
    """|K| = K sign(K) with products alone, for GPUs, where eigenvalues are slow and no CUDA graph records them.

    X <- X p(X^2) from X = K / |K|_F takes every eigenvalue to its sign, small ones last. First p is Muon's: each step
    makes small eigenvalues 3.4 times as large, and keeps those that have arrived between 0.68 and 1.21. After m steps
    those below 3.4^-m |K|_F are on their way. They are too small in the result, for m = 11 by 2e-6 |K|_F at most. Then
    X <- 3/2 X - 1/2 X^3 takes 0.68 to 1.
    """
    X = matrix / matrix.square().sum((-2, -1), keepdim=True).sqrt().clamp(min=TINY)
    a, b, c = GROWTH
    for _ in range(11):
        square = X @ X
        X = torch.baddbmm(X, X, torch.baddbmm(square, square, square, beta=b, alpha=c), beta=a)
    for _ in range(5):
        X = torch.baddbmm(X, X, X @ X, beta=1.5, alpha=-0.5)
    product = matrix @ X
    return 0.5 * (product + product.mT)


@lru_cache(maxsize=64)
def _root_diagonal(task: GaussianProcesses) -> float:
    """sqrt(E K(x, x)) over 65,536 points of a fixed generator; exact where K(x, x) is a constant, as on the sphere."""
    x = task.inputs.sample(CounterRNG.of(0, "scale"), torch.arange(2**16), 1, task.d).double()
    return float(task.kernel(x, x).mean() ** 0.5)
