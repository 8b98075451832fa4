"""Scores of diffusion processes (*Deep Optimizers*, App. H): which way is the data, from a point x at time t?

    data      x_0 ~ sum_k p_k N(m_k, s_k^2), one number, a mixture that is drawn anew for every prompt
    forward   x_t = e^-t x_0 + sigma_t eps,  sigma_t^2 = 1 - e^-2t      (Ornstein and Uhlenbeck: dx = -x dt + sqrt 2 dW)
    score     d/dx log p_t(x) = sum_k posterior_k(x, t) (e^-t m_k - x) / (e^-2t s_k^2 + sigma_t^2)

Labels are the true score (Deep Optimizers, Problem 3), which grows as 1 / sigma_t: times sigma_t (``weighting`` =
"sigma"), or times 1/2 for all t ("constant"). Time is an input: a point has the three features (x_t / 2, e^-t, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from innergrad.config import check_choices
from innergrad.errors import InputError, integer, real
from innergrad.lab.baselines import NNGP, Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Task, measured_scale


@dataclass(frozen=True)
class DiffusionScores(Task, kind="diffusion"):
    """Scores of random mixtures of Gaussians, as a diffusion model learns them.

    Weights of the mixture are uniform on the simplex. Times are log-uniform on [min_time, max_time]. Points x_t come
    from the process itself, so ``inputs`` is not used.

    Args:
        d: the number of inputs.
        inputs: not used.
        noise: the standard deviation of the labels' noise.
        components: of a mixture.
        spread: means are uniform on [-spread, spread].
        min_std: deviations are uniform from here ...
        max_std: ... to here.
        min_time: the least time.
        max_time: the largest time.
        weighting: what the score is multiplied by: ``sigma``, the deviation of the noise at that time, or ``constant``,
            1/2.
    """

    d: int = 3
    components: int = 2
    spread: float = 2.5
    min_std: float = 0.3
    max_std: float = 0.6
    min_time: float = 0.02
    max_time: float = 3.0
    weighting: Literal["sigma", "constant"] = "sigma"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("components", self.components)
        for name in ("spread", "min_std", "max_std", "min_time", "max_time"):
            real(name, getattr(self, name), above=0.0)
        if self.d != 3:
            raise InputError("points of a diffusion have the features x / 2, e^-t and 1", got=self.d, allowed="d = 3")
        if self.min_std > self.max_std or self.min_time > self.max_time:
            raise InputError("a range must not be empty", got=f"std and time from {self.min_std}, {self.min_time}")
        check_choices(self)

    @staticmethod
    def features(x: Tensor, t: Tensor) -> Tensor:
        """(..., 3): the features of the point x at time t."""
        return torch.stack((0.5 * x, (-t).exp(), torch.ones_like(x)), -1)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        shape = self.components
        exponential = -(1.0 - rng.fork("weight").uniform(index, shape)).log() + 1e-6
        return {
            "weight": exponential / exponential.sum(1, keepdim=True),
            "mean": self.spread * (2.0 * rng.fork("mean").uniform(index, shape) - 1.0),
            "std": self.min_std + (self.max_std - self.min_std) * rng.fork("std").uniform(index, shape),
        }

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        edges = params["weight"].cumsum(1)[:, None, :-1]
        which = (rng.fork("which").uniform(index, n)[:, :, None] >= edges).sum(-1)
        mean, std = params["mean"].gather(1, which), params["std"].gather(1, which)
        start, noise = rng.normal(index, n, 2).unbind(-1)
        low, high = math.log(self.min_time), math.log(self.max_time)
        t = (low + (high - low) * rng.fork("time").uniform(index, n)).exp()
        x = (-t).exp() * (mean + std * start) + (-torch.expm1(-2.0 * t)).sqrt() * noise
        return self.features(x, t)

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        point, decay = 2.0 * x[:, :, 0, None], x[:, :, 1, None]
        sigma2 = 1.0 - decay.square()
        mean, std, weight = (params[name][:, None, :] for name in ("mean", "std", "weight"))
        variance = decay.square() * std.square() + sigma2
        away = decay * mean - point
        posterior = (weight.log() - 0.5 * (away.square() / variance + variance.log())).softmax(-1)
        score = (posterior * away / variance).sum(-1)
        return score * sigma2[:, :, 0].sqrt() if self.weighting == "sigma" else 0.5 * score

    @property
    def scale(self) -> float:
        return measured_scale(self)

    def best(self) -> Predictor:
        """Networks of three layers in the limit of infinite width; the strongest here, not the best there is."""
        return NNGP(layers=3, scaling="he", noise=max(self.noise, 0.01))
