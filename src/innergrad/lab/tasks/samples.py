"""The score of a distribution from samples of it: a prompt holds points of a new mixture, and asks for its score.

    data     x_0 ~ sum_k p_k N(m_k, s_k^2 I) in one dimension or more, a mixture that is drawn anew for every prompt
    prompt   n samples of it, without labels, and queries (x_t, t) with x_t = e^-t x_0 + sigma_t z of another x_0
    label    sigma_t grad log p_t(x_t), exact, a vector: sum_k posterior_k (e^-t m_k - x_t) sigma_t / v_k,
             v_k = e^-2t s_k^2 + sigma_t^2

How points are written: ``innergrad.lab.samples``. Prompts of another length have other queries: they are another task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, real
from innergrad.lab.baselines import KernelDensity, Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.samples import EMPTY, EXTRA, QUERY, SAMPLE, joined, parts
from innergrad.lab.tasks.base import Params, Task

MOST_DIMS = 100


@dataclass(frozen=True)
class SampleScores(Task, kind="sample-scores"):
    """Scores of random mixtures of Gaussians, from samples of them.

    A mixture has 1 to ``components`` components, each number as likely. Shares are uniform on the simplex, means are
    uniform on a cube, deviations log-uniform. Times are log-uniform. The number of samples of a prompt is log-uniform
    from ``min_samples`` to as many as there is room for.

    Args:
        inputs: not used: points come from the process.
        noise: the standard deviation of the labels' noise.
        dims: of the data.
        queries: places of a prompt that ask for a score, its last ones; at most half of its points.
        min_samples: samples of a prompt, at least.
        components: of a mixture, at most.
        spread: means are uniform on [-spread, spread] in every direction.
        min_std: deviations of the components from here ...
        max_std: ... to here.
        min_time: the least time of a query.
        max_time: the largest time.
    """

    d: int = field(init=False)
    dims: int = 2
    queries: int = 64
    min_samples: int = 4
    components: int = 8
    spread: float = 2.0
    min_std: float = 0.1
    max_std: float = 0.6
    min_time: float = 0.02
    max_time: float = 3.0

    def __post_init__(self) -> None:
        integer("dims", self.dims, high=MOST_DIMS)
        object.__setattr__(self, "d", self.dims + EXTRA)
        super().__post_init__()
        for name in ("queries", "min_samples", "components"):
            integer(name, getattr(self, name))
        for name in ("spread", "min_std", "max_std", "min_time", "max_time"):
            real(name, getattr(self, name), above=0.0)
        if self.min_std > self.max_std or self.min_time > self.max_time:
            raise InputError("a range must not be empty", got=f"std and time from {self.min_std}, {self.min_time}")

    @property
    def outputs(self) -> int:
        return self.dims

    def unasked(self, n: int) -> int:
        """Room for samples."""
        return n - min(self.queries, n // 2)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        k = self.components
        count = 1 + rng.fork("count").integers(index, k)
        share = -(1.0 - rng.fork("weight").uniform(index, k)).log() + 1e-3
        share = share * (torch.arange(k, device=index.device) < count[:, None])
        low, high = math.log(self.min_std), math.log(self.max_std)
        return {
            "weight": share / share.sum(1, keepdim=True),
            "mean": self.spread * (2.0 * rng.fork("mean").uniform(index, k, self.dims) - 1.0),
            "std": (low + (high - low) * rng.fork("std").uniform(index, k)).exp(),
        }

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        """(B, n, dims + 2): samples, empty places, then queries."""
        data = self.data(rng.fork("data"), index, n, params)
        room, place = self.unasked(n), torch.arange(n, device=index.device)
        low, high = math.log(min(self.min_samples, room)), math.log(room + 1)
        count = (low + (high - low) * rng.fork("samples").uniform(index)).exp().floor().clamp(1, room)
        query = (place >= room).expand(len(index), n)
        sample = place < count[:, None]
        low, high = math.log(self.min_time), math.log(self.max_time)
        t = (low + (high - low) * rng.fork("time").uniform(index, n)).exp() * query
        noise = (-torch.expm1(-2.0 * t)).sqrt()[..., None] * rng.fork("noise").normal(index, n, self.dims)
        x = ((-t).exp()[..., None] * data + noise) * (query | sample)[..., None]
        return joined(x, t, torch.where(query, QUERY, torch.where(sample, SAMPLE, EMPTY)).to(x.dtype))

    def data(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        """(B, n, dims): points of the mixtures."""
        edges = params["weight"].cumsum(1)[:, None, :-1]
        which = (rng.fork("which").uniform(index, n)[:, :, None] >= edges).sum(-1)
        mean = params["mean"].gather(1, which[..., None].expand(-1, -1, self.dims))
        return mean + params["std"].gather(1, which)[..., None] * rng.normal(index, n, self.dims)

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        place, t, _, query = parts(x)
        left, noise = (-t).exp()[..., None], -torch.expm1(-2.0 * t)[..., None]
        variance = left.square() * params["std"][:, None].square() + noise  # (B, n, K)
        away = left[..., None] * params["mean"][:, None] - place[:, :, None]  # (B, n, K, dims)
        logits = params["weight"].log()[:, None] - 0.5 * (away.square().sum(-1) / variance)
        share = (logits - 0.5 * self.dims * variance.log()).softmax(-1) / variance
        score = noise.sqrt() * (share[..., None] * away).sum(2) * query[..., None]
        return score if self.dims > 1 else score[..., 0]

    @property
    def scale(self) -> float:
        """Root mean square of a query's label."""
        return _scale(self)

    def best(self) -> Predictor:
        """A kernel density estimate with the likeliest bandwidth; the strongest that knows nothing of the family."""
        return KernelDensity()


@lru_cache(maxsize=64)
def _scale(task: SampleScores) -> float:
    """Measured on 4,096 mixtures, from a fixed generator: the same number every time."""
    rng, index = CounterRNG.of(0, "scale"), torch.arange(4096)
    params = task.params(rng.fork("params"), index, 16)
    x = task.points(rng.fork("inputs"), index, 16, params)
    return float(task.evaluate(params, x)[parts(x).query].double().square().mean().sqrt())
