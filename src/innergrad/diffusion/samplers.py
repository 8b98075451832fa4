"""From noise to data: the diffusion backwards, by a score.

    reverse SDE            dx = (x + 2 score) ds + sqrt(2) dW,   s = T - t     by Euler and Maruyama
    probability flow       dx = (x + score) ds                                 by Heun's method, of second order

Both have the law of x_t at every time, if the score is exact and they begin with the law of x_T. They begin with
N(0, I), which is near to it. Times are geometric from T to T_0: each is the same multiple of the one before. At T_0
some noise is left. A last step replaces x by the data to be expected, E[x_0 | x] = e^T_0 (x + sigma^2 score)
(``denoise``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from innergrad.diffusion.process import decay, sigma
from innergrad.diffusion.targets import ScoreTask
from innergrad.errors import JobError, integer, one_of, seed_number

Score = Callable[[Tensor, float], Tensor]  # points (n, d), a time -> (n, d)
Method = Literal["sde", "ode"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples, and how they came about.

    Attributes:
        x: the samples, (n, d).
        path: the points at some times, (moments, n, d), from noise to samples.
        times: of these moments; the last is 0 if the samples are denoised.

    Examples:
        >>> import innergrad as ig
        >>> mixture, task = ig.diffusion.SHAPES["moons"](), ig.diffusion.ScoreTask()
        >>> samples = ig.diffusion.sample(mixture.score, task, n=10, d=2, steps=20, moments=5)
        >>> tuple(samples.path.shape), samples.times[0], samples.times[-1]
        ((5, 10, 2), 3.0, 0.0)
    """

    x: Tensor
    path: Tensor
    times: tuple[float, ...]


def sample(
    score: Score,
    task: ScoreTask,
    n: int,
    d: int,
    *,
    method: Method = "ode",
    steps: int = 60,
    seed: int = 0,
    denoise: bool = True,
    moments: int = 2,
    dtype: torch.dtype = torch.float64,
) -> Samples:
    """Samples by a score, all at once.

    Args:
        score: a function of points (n, d) and a time. The score of a mixture is one, and so is a learned one.
        task: says from which time to which.
        n: how many.
        d: their dimension.
        method: ``ode``, the probability flow, or ``sde``, the reverse SDE.
        steps: of the method.
        seed: of the noise. The same seed gives the same samples.
        denoise: end with the data to be expected, in place of data with the noise of ``task.min_time``.
        moments: how many points of the way are kept, noise and samples among them.
        dtype: of the points.

    Examples:
        >>> import innergrad as ig
        >>> mixture, task = ig.diffusion.SHAPES["two-bumps"](), ig.diffusion.ScoreTask()
        >>> x = ig.diffusion.sample(mixture.score, task, n=1000, d=1, seed=1).x
        >>> ig.diffusion.wasserstein_1(x, mixture.sample(1000)) < 0.1
        True
    """
    one_of("unknown method", method, get_args(Method))
    n, d, steps, moments = integer("n", n), integer("d", d), integer("steps", steps), integer("moments", moments, low=2)
    generator = torch.Generator().manual_seed(seed_number(seed))

    def normal() -> Tensor:
        return torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype)

    times = [task.max_time * (task.min_time / task.max_time) ** (i / steps) for i in range(steps + 1)]
    kept = {round(i * steps / (moments - 1)) for i in range(moments - 1)}
    x, path, shown = normal(), list[Tensor](), list[float]()
    for i, t in enumerate(times):
        if i in kept:
            path, shown = [*path, x], [*shown, t]
        if i < steps:
            x = (_sde if method == "sde" else _ode)(score, x, t, times[i + 1], normal)
        if not bool(torch.isfinite(x).all()):
            raise JobError(f"the samples overflowed at t = {t:.3g}; take more steps, or learn the score better")
    if denoise:
        x = (x + sigma(times[-1]).to(dtype) ** 2 * score(x, times[-1])) / decay(times[-1]).to(dtype)
    return Samples(x, torch.stack([*path, x]), (*shown, 0.0 if denoise else times[-1]))


def _sde(score: Score, x: Tensor, t: float, later: float, normal: Callable[[], Tensor]) -> Tensor:
    h = t - later
    return x + h * (x + 2.0 * score(x, t)) + math.sqrt(2.0 * h) * normal()


def _ode(score: Score, x: Tensor, t: float, later: float, normal: Callable[[], Tensor]) -> Tensor:
    del normal
    h = t - later
    slope = x + score(x, t)
    guess = x + h * slope
    return x + 0.5 * h * (slope + guess + score(guess, later))
