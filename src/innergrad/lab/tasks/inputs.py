"""Distributions of the inputs x of a prompt, (B, n, d)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from innergrad.config import Family, check_choices
from innergrad.errors import InputError, integer, lacks, real
from innergrad.lab.counter_rng import CounterRNG

Matrix = tuple[tuple[float, ...], ...]
MOST_EIGENVALUES = 1024  # of a matrix that is kept as rows of numbers


@dataclass(frozen=True)
class Inputs(Family):
    """A distribution of inputs. Subclass it to write your own.

    A subclass gives its ``kind``, the name in configuration files, and overrides ``sample`` and ``moments``.

    Examples:
        >>> from innergrad import lab
        >>> sorted(lab.Inputs.kinds)[:3]
        ['covariance', 'gaussian', 'gaussian-mixture']
    """

    def sample(self, rng: CounterRNG, index: Tensor, n: int, d: int) -> Tensor:
        """(B, n, d): the points of the prompts numbered ``index``."""
        raise lacks(self, "sample(rng, index, n, d)")

    def moments(self, d: int) -> tuple[float, float]:
        """(a, b) with E x x^T = a I + b 1 1^T for one point."""
        raise lacks(self, "moments(d)")

    def second_moment(self, d: int) -> float:
        """E |x|^2 of one point, for the scale of labels."""
        return d * sum(self.moments(d))

    def check(self, d: int) -> None:
        """Raise an InputError if these are not inputs of d coordinates."""

    def whiten(self, x: Tensor) -> Tensor:
        """Points (..., d) before they were given their covariance; the points themselves for most distributions."""
        return x


@dataclass(frozen=True)
class Gaussian(Inputs, kind="gaussian"):
    """Inputs N(mean, std^2 I).

    Args:
        mean: of every coordinate.
        std: of every coordinate.

    Examples:
        >>> from innergrad import lab
        >>> lab.Linear(d=4, inputs=lab.Gaussian(mean=-2.0)).inputs.mean
        -2.0
    """

    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        real("mean", self.mean)
        real("std", self.std, above=0.0)

    def sample(self, rng: CounterRNG, index: Tensor, n: int, d: int) -> Tensor:
        return self.mean + self.std * rng.normal(index, n, d)

    def moments(self, d: int) -> tuple[float, float]:
        return self.std**2, self.mean**2


@dataclass(frozen=True)
class GaussianMixture(Inputs, kind="gaussian-mixture"):
    """Inputs of two Gaussians, N(-mean, std^2 I) and N(mean, std^2 I): those of *Deep Optimizers*.

    All coordinates of a point have the same component. The paper has mean = 2 and w1 = 1, 0.9, 0.7 or 0.5. With w1 = 1
    the points are those of ``Gaussian(mean=-mean)``.

    Args:
        w1: the probability of the first component.
        mean: of the second.
        std: of every coordinate.
        per: every ``example`` draws a component of its own, or all points of a ``prompt`` share one.
    """

    w1: float = 0.5
    mean: float = 2.0
    std: float = 1.0
    per: Literal["example", "prompt"] = "example"

    def __post_init__(self) -> None:
        if not 0.0 <= real("w1", self.w1) <= 1.0:
            raise InputError("w1 is a probability", got=self.w1, allowed="0 to 1")
        real("mean", self.mean)
        real("std", self.std, above=0.0)
        check_choices(self, "inputs.")

    def sample(self, rng: CounterRNG, index: Tensor, n: int, d: int) -> Tensor:
        draws = rng.fork("component").uniform(index, n if self.per == "example" else 1)
        centre = torch.where(draws < self.w1, -self.mean, self.mean)[:, :, None]
        return centre + self.std * rng.normal(index, n, d)

    def moments(self, d: int) -> tuple[float, float]:
        return self.std**2, self.mean**2


@dataclass(frozen=True)
class Sphere(Inputs, kind="sphere"):
    """Inputs uniform on a sphere. Cheng et al. (2024) have the unit sphere.

    Args:
        radius: of the sphere.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        real("radius", self.radius, above=0.0)

    def sample(self, rng: CounterRNG, index: Tensor, n: int, d: int) -> Tensor:
        return self.radius * torch.nn.functional.normalize(rng.normal(index, n, d), dim=-1)

    def moments(self, d: int) -> tuple[float, float]:
        return self.radius**2 / d, 0.0


@dataclass(frozen=True)
class Covariance(Inputs, kind="covariance"):
    """Inputs with a covariance. The defaults are those of Cheng et al. (2024).

    x = Sigma^(1/2) xi with xi from ``base``. Sigma = U^T D U with D the ``eigenvalues``, and U uniform among orthogonal
    matrices.

    Args:
        base: the distribution of xi.
        eigenvalues: of Sigma.
        sigma_seed: of U.
    """

    base: Inputs = field(default_factory=Sphere)
    eigenvalues: tuple[float, ...] = (1.0, 1.0, 0.25, 2.25, 1.0)
    sigma_seed: int = 0
    root: Matrix = field(init=False, repr=False, compare=False)  # Sigma^(1/2)
    inverse_root: Matrix = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.base, Inputs) or isinstance(self.base, Covariance):
            raise InputError("base must be a distribution of inputs without a covariance", got=repr(self.base))
        if len(self.eigenvalues) > MOST_EIGENVALUES:
            raise InputError(f"a covariance has at most {MOST_EIGENVALUES} eigenvalues", got=len(self.eigenvalues))
        for value in self.eigenvalues:
            real("an eigenvalue of a covariance", value, above=0.0)
        u = _orthogonal(integer("sigma_seed", self.sigma_seed, low=0), len(self.eigenvalues))
        roots = torch.tensor(self.eigenvalues, dtype=torch.float64).sqrt()
        for name, values in (("root", roots), ("inverse_root", 1.0 / roots)):
            matrix = torch.einsum("ki,k,kj->ij", u, values, u).tolist()
            object.__setattr__(self, name, tuple(tuple(row) for row in matrix))

    def check(self, d: int) -> None:
        if len(self.eigenvalues) != d:
            raise InputError("a covariance needs d eigenvalues", got=len(self.eigenvalues), allowed=f"d = {d}")

    def sigma(self) -> Tensor:
        """Sigma, (d, d), float64."""
        root = torch.tensor(self.root, dtype=torch.float64)
        return root @ root

    def sample(self, rng: CounterRNG, index: Tensor, n: int, d: int) -> Tensor:
        xi = self.base.sample(rng, index, n, d)
        return xi @ _constant(self.root, xi.dtype, xi.device)

    def second_moment(self, d: int) -> float:
        """trace(Sigma E xi xi^T)."""
        isotropic, shared = self.base.moments(d)
        return float(isotropic * self.sigma().trace() + shared * self.sigma().sum())

    def whiten(self, x: Tensor) -> Tensor:
        """Sigma^(-1/2) x: the xi that x was made of."""
        return x @ _constant(self.inverse_root, x.dtype, x.device)


@dataclass(frozen=True)
class Leading(Inputs, kind="leading"):
    """Inputs of which only the first few coordinates are not zero.

    So functions of few inputs can be learned beside functions of many, by learners of one shape.

    Args:
        base: the distribution of these coordinates.
        count: how many.
    """

    base: Inputs = field(default_factory=Gaussian)
    count: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.base, Inputs):
            raise InputError("base must be a distribution of inputs", got=repr(self.base))
        self.base.check(integer("count", self.count))

    def check(self, d: int) -> None:
        if self.count > d:
            raise InputError("leading coordinates are some of d", got=self.count, allowed=f"1 to {d}")

    def sample(self, rng: CounterRNG, index: Tensor, n: int, d: int) -> Tensor:
        return torch.nn.functional.pad(self.base.sample(rng, index, n, self.count), (0, d - self.count))

    def second_moment(self, d: int) -> float:
        del d
        return self.base.second_moment(self.count)


def _orthogonal(seed: int, d: int) -> Tensor:
    """A uniformly random orthogonal matrix (Haar): the QR factor of a normal one, once R has a positive diagonal."""
    normal = CounterRNG.of(seed, "sigma").normal(torch.zeros(1, dtype=torch.int64), d, d, dtype=torch.float64)
    q, r = torch.linalg.qr(normal[0])
    u: Tensor = q * r.diagonal().sign()
    return u


def _constant(rows: Matrix, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A matrix on a device, without a copy from the host, which a CUDA graph could not record. Made once, but for a
    compiler: it folds the making.
    """
    return _made(rows, dtype, device) if torch.compiler.is_compiling() else _kept(rows, dtype, device)


def _made(rows: Matrix, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.stack([torch.stack([torch.full((), x, dtype=dtype, device=device) for x in row]) for row in rows])


@cache  # for good: a recorded graph may read it
def _kept(rows: Matrix, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # or gradients could not go through it later
        return _made(rows, dtype, device)
