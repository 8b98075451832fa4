"""Kernels that attention can compute: sums of weight * product over factors of h(<G x, G x'> / bandwidth^2).

    Kernel("exp", bandwidth=0.7)                  exp(<x, x'> / 0.7^2)
    Kernel("linear", G=[[1, 0, 0], [0, 1, 0]])    <G x, G x'>
    Kernel("exp", covariance=Sigma)               G = Sigma^(-1/2), as in the experiments of Cheng et al. (Theorem 4.5)
    Kernel("linear") + 0.5 * Kernel("exp")        a sum: one head each (Proposition D.1)
    Kernel("linear") * Kernel("exp")              a product: one head whose score is the product

``relu`` is not positive semi-definite, and ``softmax`` is not a kernel (it normalises over the examples); both run as
attention, neither has the guarantees of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError, Registry, real
from innergrad.functions.activation import ACTIVATIONS
from innergrad.functions.scalar import EXP, IDENTITY
from innergrad.ir.program import Expr, Score, View

H = Registry("kernel", {"linear": IDENTITY, "relu": ACTIVATIONS["relu"].r, "exp": EXP, "softmax": IDENTITY})
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Factor:
    """h(<G x, G x'> / bandwidth^2)."""

    h: str
    bandwidth: float = 1.0
    G: Matrix | None = None

    def matrix(self, X: Tensor, Z: Tensor) -> Tensor:
        if self.G is not None:
            G = torch.tensor(self.G, dtype=X.dtype, device=X.device)
            X, Z = X @ G.T, Z @ G.T
        f = torch.exp if self.h == "softmax" else H[self.h].value
        return f(X @ Z.mT / self.bandwidth**2)

    def largest(self, radius: float) -> float:
        """sup h(|G x|^2 / bandwidth^2) for |x| <= radius."""
        norm = 1.0 if self.G is None else float(np.linalg.norm(np.array(self.G), 2))
        argument = (radius * norm / self.bandwidth) ** 2
        if self.h in ("linear", "relu"):
            return argument
        return math.exp(argument) if argument < 700.0 else math.inf

    def score(self, d: int) -> Score:
        """As the score of an instruction on the lane x."""
        rate = 1.0 / self.bandwidth**2
        if self.G is None:
            return Score(H[self.h], ((View("x", ("c",), rate),), (View("x", ("c",)),)))
        if len(self.G[0]) != d:
            raise InputError("G does not fit the inputs", got=f"{len(self.G[0])} columns", allowed=f"d = {d}")
        keys = rows(np.array(self.G))
        scaled = [tuple(View("x", view.index, rate * view.coefficient) for view in row) for row in keys]
        return Score(H[self.h], *((query, key) for query, key in zip(scaled, keys, strict=True) if key))

    def mapped(self, query: np.ndarray, key: np.ndarray) -> Score:
        """h(<G query x_j, G key x_s> / bandwidth^2), j the token that is written, s the one that is read."""
        G = np.eye(len(query)) if self.G is None else np.array(self.G)
        if G.shape[1] != len(query):
            allowed = f"{len(query)}, the rows of the matrices on queries and keys"
            raise InputError("G does not fit its argument", got=f"{G.shape[1]} columns", allowed=allowed)
        sides = zip(rows(G @ query / self.bandwidth**2), rows(G @ key), strict=True)
        pairs = [(one, other) for one, other in sides if one and other]
        return Score(H[self.h], *(pairs or [((View("x", (0,), 0.0),), (View("x", (0,)),))]))


@dataclass(frozen=True)
class Kernel:
    """A kernel that attention can compute: h of the inner product of G x and G x', divided by bandwidth^2.

    ``+`` and ``*`` combine kernels, and a number scales one. A sum is one head for each term; a product is one head.

    Args:
        h: ``linear``, ``exp``, ``relu`` or ``softmax``. The last two run as attention but are no kernels: ``relu`` is
            not positive semi-definite, and ``softmax`` normalises over the examples.
        bandwidth: a larger one gives smoother functions.
        G: a matrix on the inputs.
        covariance: of the inputs, Sigma; then G = Sigma^(-1/2).

    Examples:
        >>> import innergrad as ig, torch
        >>> kernel = ig.Kernel("linear") + 0.5 * ig.Kernel("exp", bandwidth=2.0)
        >>> x = torch.ones(1, 1, dtype=torch.float64)
        >>> round(float(kernel(x, x)), 4)  # 1 + exp(1/4) / 2
        1.642
    """

    terms: tuple[tuple[float, tuple[Factor, ...]], ...]

    def __init__(
        self,
        h: str,
        bandwidth: float = 1.0,
        G: Sequence[Sequence[float]] | np.ndarray | Tensor | None = None,
        covariance: Sequence[Sequence[float]] | np.ndarray | Tensor | None = None,
    ) -> None:
        H.find(h)
        if G is not None and covariance is not None:
            raise InputError("a kernel takes G or covariance, not both")
        if covariance is not None:
            G = inverse_root(finite_matrix("covariance", covariance))
        rows = None if G is None else tuple(tuple(row) for row in finite_matrix("G", G).tolist())
        factor = Factor(h, real("bandwidth", bandwidth, above=0.0), rows)
        object.__setattr__(self, "terms", ((1.0, (factor,)),))

    @classmethod
    def of(cls, kernel: str | Kernel) -> Kernel:
        return kernel if isinstance(kernel, Kernel) else cls(kernel)

    @classmethod
    def _from_terms(cls, terms: tuple[tuple[float, tuple[Factor, ...]], ...]) -> Kernel:
        alone = len(terms) == 1 and len(terms[0][1]) == 1 and terms[0][0] == 1.0
        if not alone and any(factor.h == "softmax" for _, factors in terms for factor in factors):
            raise InputError("softmax attention is not a kernel: it cannot be added, multiplied or scaled")
        made = object.__new__(cls)
        object.__setattr__(made, "terms", terms)
        return made

    def __add__(self, other: Kernel) -> Kernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        return Kernel._from_terms(self.terms + other.terms)

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Kernel._from_terms(tuple((a * b, f + g) for a, f in self.terms for b, g in other.terms))
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        weight = real("the weight of a kernel", other)
        return Kernel._from_terms(tuple((weight * a, f) for a, f in self.terms))

    __rmul__ = __mul__

    @property
    def normalised(self) -> bool:
        """Softmax attention."""
        return self.terms[0][1][0].h == "softmax"

    @property
    def positive(self) -> bool:
        """Positive semi-definite, as sums and products of the linear and the exponential kernel are."""
        return all(w >= 0 and all(f.h in ("linear", "exp") for f in factors) for w, factors in self.terms)

    def __call__(self, X: Float[Tensor, "*b n d"], Z: Float[Tensor, "*b m d"]) -> Float[Tensor, "*b n m"]:
        """The kernel matrix; of softmax attention, before it is normalised."""
        total = torch.zeros(())
        for weight, factors in self.terms:
            product = torch.full((), weight, dtype=X.dtype, device=X.device)
            for factor in factors:
                product = product * factor.matrix(X, Z)
            total = total + product
        return total

    def largest(self, radius: float = 1.0) -> float:
        """A bound on k(x, x) for |x| <= radius."""
        return sum(abs(w) * math.prod(f.largest(radius) for f in factors) for w, factors in self.terms)

    def config(self) -> list[Any]:
        return [[w, [{"h": f.h, "bandwidth": f.bandwidth, "G": f.G} for f in factors]] for w, factors in self.terms]

    @classmethod
    def from_config(cls, config: Sequence[Any]) -> Kernel:
        terms = []
        for weight, factors in config:
            made = [cls(**_factor(factor)).terms[0][1][0] for factor in factors]
            terms.append((real("weight", weight), tuple(made)))
        return cls._from_terms(tuple(terms))


def rows(matrix: np.ndarray) -> list[Expr]:
    """The rows of a matrix times the lane x; entries that are zero are left out."""
    return [tuple(View("x", (c,), float(g)) for c, g in enumerate(row) if g) for row in matrix]


def _factor(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"h": entry["h"], "bandwidth": entry["bandwidth"], "G": entry["G"]}


def finite_matrix(name: str, values: Any) -> np.ndarray:
    try:
        values = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        matrix = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not a matrix of numbers", got=type(values).__name__) from error
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise InputError(f"{name} must be a matrix of finite numbers", got=f"shape {matrix.shape}")
    return matrix


def inverse_root(covariance: np.ndarray) -> np.ndarray:
    """Sigma^(-1/2), symmetric."""
    symmetric = covariance.shape[0] == covariance.shape[1] and np.allclose(covariance, covariance.T)
    values, vectors = np.linalg.eigh(covariance) if symmetric else (np.zeros(1), np.zeros((1, 1)))
    if values.min() <= 0:
        raise InputError("a covariance is a symmetric positive definite matrix", got="one that is not")
    root: np.ndarray = (vectors / np.sqrt(values)) @ vectors.T
    return root
