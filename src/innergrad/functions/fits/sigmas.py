"""The activations sigma that a transformer may have, and where each is used."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from innergrad.functions.fits.sums import FEATURES, FeatureSum

Terms = tuple[tuple[float, float, float], ...]  # (a, b, c): the sum of c sigma(a t + b)
COARSE = 1e-7  # from this epsilon on, weights are made for float32
CUTOFF = {False: 1e-14, True: 1e-7}  # singular values that are dropped, relative to the largest; True: for float32


@dataclass(frozen=True)
class Sigma:
    """An activation of the transformer.

    steepness: slopes of units, in knot spacings, the narrowest first. level: where sigma is not zero, for constants.
    odd, even: where its odd and its even part around a point are used, for t and t^2; width: their smallest scale.
    hinge: sup |sigma - relu|, if it is one from afar; sigma(z) - sigma(-z) = z then holds exactly.
    """

    steepness: tuple[float, ...]
    odd: float
    even: float
    width: float
    level: float = 1.0
    hinge: float | None = None


SIGMAS: dict[str, Sigma] = {
    "gelu": Sigma((0.7, 0.6, 0.5, 0.4), 0.0, 0.0, 1.0, hinge=0.17),
    "tanh": Sigma((0.35, 0.25, 0.2, 0.15), 0.0, 0.66, 1.0),
    "sigmoid": Sigma((0.7, 0.5, 0.4, 0.3), 0.0, 1.32, 0.5),
    "softplus": Sigma((0.7, 0.6, 0.5, 0.4), 0.0, 0.0, 0.7, hinge=0.694),
    "silu": Sigma((0.7, 0.6, 0.5, 0.4), 0.0, 0.0, 1.0, hinge=0.279),
    "cos": Sigma((), math.pi / 2, 0.0, 0.5, level=0.0),
}
SHIPPED = tuple(FEATURES)
POINTS = torch.tensor([-2.5, -1.0, -0.3, 0.2, 0.9, 2.0], dtype=torch.float64)


def fingerprint(name: str) -> list[float]:
    """The fingerprint by which a saved model knows its activation."""
    return [float(value) for value in FEATURES[name](POINTS)]


def unit_level(sigma: str) -> tuple[float, float]:
    """(b, sigma(b)): a unit that is constant."""
    level = SIGMAS[sigma].level
    return level, float(FEATURES[sigma](torch.tensor(level, dtype=torch.float64)))


def sum_of(
    sigma: str,
    terms: Iterable[tuple[float, float, float]],
    constant: float = 0.0,
    domain: tuple[float, float] = (-math.inf, math.inf),
    error: float = 0.0,
) -> FeatureSum:
    """A sum of sigma and nothing else: the constant is a unit of its own."""
    level, value = unit_level(sigma)
    columns = [tuple(float(entry) for entry in term) for term in terms]
    columns += [(0.0, level, constant / value)] if constant else []
    a, b, c = zip(*columns, strict=True)
    return FeatureSum(sigma, a, b, c, domain=domain, error=error)
