"""Kernel density estimates of a distribution from its samples, and their scores.

A Gaussian of deviation h at every sample is a mixture. The diffusion keeps it one: at time t it has its components at
e^-t x_i, with the variance v = e^-2t h^2 + sigma_t^2. So the score of the smoothed estimate is exact:

    score(x, t) = sum_i share_i(x, t) (e^-t x_i - x) / v,     share = softmax over i of -|x - e^-t x_i|^2 / (2 v)

With h = 0 it is the score of the samples themselves. A bandwidth is chosen by the likelihood of every sample under the
estimate from the others (leave-one-out), the best of a grid, for every prompt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import InputError, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.samples import EXTRA, parts

#: Bandwidths to choose from: twelve a decade, from 0.02 to 2.
BANDWIDTHS = tuple(0.02 * 10.0 ** (step / 12) for step in range(25))


def density_score(samples: Tensor, there: Tensor, x: Tensor, t: Tensor, h: Tensor) -> Tensor:
    """(B, m, d): sigma_t times the score at x (B, m, d) and t (B, m) of the estimate with bandwidths h (B,).

    samples (B, n, d); ``there`` (B, n) says which of them are samples.
    """
    left = (-t).exp()[..., None]
    noise = -torch.expm1(-2.0 * t)[..., None]
    variance = left.square() * h.view(-1, 1, 1).square() + noise  # (B, m, 1)
    apart = left[..., None] * samples[:, None] - x[:, :, None]  # (B, m, n, d)
    logits = (-0.5 * apart.square().sum(-1) / variance).masked_fill(~there[:, None], -math.inf)
    return noise.sqrt() * (logits.softmax(-1)[..., None] * apart).sum(2) / variance


def likeliest_bandwidth(samples: Tensor, there: Tensor, grid: tuple[float, ...] = BANDWIDTHS) -> Tensor:
    """(B,): the bandwidth with the largest leave-one-out likelihood, for samples (B, n, d)."""
    apart = (samples[:, :, None] - samples[:, None]).square().sum(-1)
    alone = torch.eye(samples.shape[1], dtype=torch.bool, device=samples.device)
    apart = apart.masked_fill(alone | ~there[:, None], math.inf)
    found = []
    for h in grid:
        likelihood = (-0.5 * apart / h**2).logsumexp(-1) - samples.shape[2] * math.log(h)
        found.append(likelihood.masked_fill(~there, 0.0).sum(1))
    best = torch.stack(found).nan_to_num(nan=-math.inf).argmax(0)
    return torch.tensor(grid, dtype=samples.dtype, device=samples.device)[best]


@dataclass(frozen=True)
class KernelDensity(Predictor, kind="kernel-density"):
    """The score of a kernel density estimate, for prompts of samples (``lab.tasks.SampleScores``).

    Args:
        bandwidth: the deviation of the Gaussians; None for the likeliest of a grid, for every prompt by itself.
    """

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None:
            real("bandwidth", self.bandwidth, above=0.0, hint="none: the likeliest of a grid")

    @property
    def name(self) -> str:
        return "kernel density" + ("" if self.bandwidth is None else f", bandwidth {self.bandwidth:g}")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        d = x.shape[2] - EXTRA
        if d < 1 or (y.shape[2] if y.ndim == 3 else 1) != d:
            got, allowed = f"points of {x.shape[2]} numbers, labels {tuple(y.shape[2:])}", "task.kind = sample-scores"
            raise InputError("a density is estimated from prompts of samples", got=got, allowed=allowed)
        found = torch.zeros_like(y)
        for row in range(len(x)):  # prompts have different numbers of samples
            place, t, sample, query = (part[None] for part in parts(x[row].double()))
            points, asked = place[sample][None], place[query][None]
            if points.shape[1] == 0 or asked.shape[1] == 0:
                continue
            there = torch.ones(points.shape[:2], dtype=torch.bool, device=x.device)
            fixed = points.new_full((1,), self.bandwidth or 1.0)
            h = likeliest_bandwidth(points, there) if self.bandwidth is None else fixed
            score = density_score(points, there, asked, t[query][None], h)[0].to(y)
            found[row, query[0]] = score if y.ndim == 3 else score[:, 0]
        return found
