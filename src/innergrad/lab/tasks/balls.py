"""Indicators of balls and ellipsoids (*Neural Networks*, Theorem 3): f(x) = 1 if |A (x - c)| <= r, else 0."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from innergrad.errors import real
from innergrad.lab.baselines import Predictor, TunedRidge
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Task


@dataclass(frozen=True)
class Balls(Task, kind="ball"):
    """1 inside a random ball, or ellipsoid, and 0 outside.

    The centre is c ~ N(0, centre^2 I). The axes are exp(stretch z) with z standard normal. The surface passes through a
    random point of the input distribution (parameter ``surface``). So a label is 1 half of the time, whatever the
    inputs: the probability that a point is inside is uniform on [0, 1] over the balls. There are two exceptions. On
    spheres with centre = 0 every point is on the surface. A curriculum that sets coordinates to zero moves points
    inside.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.
        centre: how far from 0 the centre is, in each coordinate.
        stretch: 0 for balls.
    """

    centre: float = 1.0
    stretch: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        real("centre", self.centre, low=0.0)
        real("stretch", self.stretch, low=0.0)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        return {
            "centre": self.centre * rng.fork("centre").normal(index, self.d),
            "axes": (self.stretch * rng.fork("axes").normal(index, self.d)).exp(),
            "surface": self.inputs.sample(rng.fork("surface"), index, 1, self.d)[:, 0],
        }

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        radius2 = (params["axes"] * (params["surface"] - params["centre"])).square().sum(-1)
        distance2 = (params["axes"][:, None] * (x - params["centre"][:, None])).square().sum(-1)
        return (distance2 <= radius2[:, None]).to(x.dtype)

    @property
    def scale(self) -> float:
        return float(0.5**0.5)

    def best(self) -> Predictor:
        """Ridge regression: the strongest of the shipped ones, not the best there is (it knows nothing of balls)."""
        return TunedRidge()
