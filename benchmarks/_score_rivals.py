"""Scores from samples without pretraining: what a learner has to beat. Each is fitted to many distributions at once.

a method    samples (M, n, d)  ->  an answer
an answer   places x (M, m, d), times t (M, m)  ->  sigma_t times the score, (M, m, d)

kernel density           a Gaussian at every sample; its bandwidth by leave-one-out likelihood, or given
mixture by EM            round Gaussians by expectation-maximisation; their number by BIC. It knows the family, and the
                         least variance of a component.
network by denoising     a ReLU network, trained on noised samples by Adam, stopped where the loss on samples that were
                         held out is least
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from innergrad.diffusion.process import noised, sigma
from innergrad.diffusion.targets import ScoreTask
from innergrad.errors import own_gradients
from innergrad.lab.baselines.density import density_score, likeliest_bandwidth
from innergrad.lab.learners.sample_learner import SampleLearner
from innergrad.lab.samples import asked

Answer = Callable[[Tensor, Tensor], Tensor]
PART = 256  # places at a time


def in_parts(answer: Answer) -> Answer:
    """The same answer, for a part of the places at a time."""

    def parted(x: Tensor, t: Tensor) -> Tensor:
        return torch.cat([answer(*some) for some in zip(x.split(PART, 1), t.split(PART, 1), strict=True)], 1)

    return parted


def by_learner(learner: SampleLearner, samples: Tensor) -> Answer:
    """One forward pass for every part of the places; no weight changes."""
    given = samples.to(learner.scale)

    @torch.no_grad()
    def answer(x: Tensor, t: Tensor) -> Tensor:
        points = asked(given, x.to(given), t.to(given))
        blank = points.new_zeros(*points.shape[:2], *((x.shape[2],) if x.shape[2] > 1 else ()))
        found: Tensor = learner(points[None], blank[None])[0][:, given.shape[1] :]
        return found.view(x.shape).to(x)

    return in_parts(answer)


def by_density(samples: Tensor, bandwidth: float | None = None) -> Answer:
    there = torch.ones(samples.shape[:2], dtype=torch.bool, device=samples.device)
    h = likeliest_bandwidth(samples, there) if bandwidth is None else samples.new_full((len(samples),), bandwidth)
    return in_parts(lambda x, t: density_score(samples, there, x, t, h))


# ------------------------------------------------------------------------------------------------------------------ EM


def by_em(
    samples: Tensor, most: int = 8, least: float = 0.01, restarts: int = 6, rounds: int = 60, seed: int = 0
) -> Answer:
    """Mixtures of 1 to ``most`` round Gaussians; of each number the likeliest of some starts, then the least BIC.

    least: the least variance of a Gaussian. Without one, a Gaussian of one point would be infinitely likely.
    """
    M, n, d = samples.shape
    generator = torch.Generator(samples.device).manual_seed(seed)
    best = samples.new_full((M,), math.inf)
    weight, mean = samples.new_zeros(M, most), samples.new_zeros(M, most, d)
    variance = samples.new_ones(M, most)
    for k in range(1, min(most, n) + 1):
        for _ in range(restarts if k > 1 else 1):
            found = _em(samples, k, least, rounds, generator)
            criterion = (d + 2) * k * math.log(n) - 2.0 * _likelihood(samples, *found).logsumexp(-1).sum(1)
            better = criterion < best
            best = torch.where(better, criterion, best)
            padded = [
                torch.nn.functional.pad(found[0], (0, most - k)),
                torch.zeros_like(mean),
                torch.ones_like(variance),
            ]
            padded[1][:, :k], padded[2][:, :k] = found[1], found[2]
            weight = torch.where(better[:, None], padded[0], weight)
            mean = torch.where(better[:, None, None], padded[1], mean)
            variance = torch.where(better[:, None], padded[2], variance)
    return in_parts(lambda x, t: _mixture_score(weight, mean, variance, x, t))


def _em(
    samples: Tensor, k: int, least: float, rounds: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Shares (M, k), means (M, k, d) and variances (M, k), from k of the samples as first means."""
    M, n, d = samples.shape
    first = torch.rand(M, n, generator=generator, device=samples.device).argsort(1)[:, :k]
    mean = samples.gather(1, first[..., None].expand(-1, -1, d))
    variance = (samples.var(1).mean(1, keepdim=True) / k).clamp(min=least).expand(M, k)
    weight = samples.new_full((M, k), 1.0 / k)
    for _ in range(rounds):
        share = _likelihood(samples, weight, mean, variance).softmax(-1)  # (M, n, k)
        count = share.sum(1).clamp(min=1e-6)
        weight = count / count.sum(1, keepdim=True)
        mean = (share.mT @ samples) / count[..., None]
        apart = (samples[:, :, None] - mean[:, None]).square().sum(-1)
        variance = ((share * apart).sum(1) / (d * count)).clamp(min=least)
    return weight, mean, variance


def _likelihood(x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """(M, n, k): the log of share times density."""
    apart = (x[:, :, None] - mean[:, None]).square().sum(-1)
    spread = 0.5 * x.shape[2] * (2.0 * math.pi * variance).log()
    return weight.log()[:, None] - 0.5 * apart / variance[:, None] - spread[:, None]


def _mixture_score(weight: Tensor, mean: Tensor, variance: Tensor, x: Tensor, t: Tensor) -> Tensor:
    left, noise = (-t).exp()[..., None], -torch.expm1(-2.0 * t)[..., None]
    v = left.square() * variance[:, None] + noise
    away = left[..., None] * mean[:, None] - x[:, :, None]
    logits = weight.log()[:, None] - 0.5 * (away.square().sum(-1) / v + x.shape[2] * v.log())
    return noise.sqrt() * ((logits.softmax(-1) / v)[..., None] * away).sum(2)


# ------------------------------------------------------------------------------------------------------------- networks


def by_network(
    samples: Tensor,
    label: str = "velocity",
    *,
    hidden: int = 64,
    steps: int = 2000,
    batch: int = 256,
    lr: float = 3e-3,
    every: int = 25,
    seed: int = 0,
) -> Answer:
    """d + 3 -> hidden -> hidden -> d, ReLU: a network for each distribution, all in batched products.

    A fifth of the samples is held out. New noise in every step.
    """
    M, n, d = samples.shape
    task, device = ScoreTask(label=label), samples.device
    generator = torch.Generator(device).manual_seed(seed)
    data = samples.float()
    held = max(1, n // 5)

    def drawn(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
        which = torch.randint(points.shape[1], (M, count), generator=generator, device=device)
        x0 = points.gather(1, which[..., None].expand(-1, -1, d))
        t = task.times(torch.rand(M, count, generator=generator, device=device))
        z = torch.randn(x0.shape, generator=generator, device=device)
        x = noised(x0, t, z)
        return task.features(x, t), task.labels(x, t, -z / sigma(t)[..., None])

    with own_gradients():
        weights = _started(M, (d + 3, hidden, hidden, d), generator, device)
        adam = torch.optim.Adam(weights, lr=lr)
        left_out = drawn(data[:, n - held :], 1024)
        best, least = [weight.detach().clone() for weight in weights], torch.full((M,), math.inf, device=device)
        for step in range(steps + 1):
            if step % every == 0:
                with torch.no_grad():
                    loss = (_network(weights, left_out[0]) - left_out[1]).square().mean((1, 2))
                    better = loss < least
                    least = torch.where(better, loss, least)
                    for kept, weight in zip(best, weights, strict=True):
                        kept.copy_(torch.where(better[:, None, None], weight, kept))
            for group in adam.param_groups:
                group["lr"] = lr * 0.5 * (1.0 + math.cos(math.pi * step / steps))
            X, y = drawn(data[:, : n - held], batch)
            adam.zero_grad()
            (_network(weights, X) - y).square().mean((1, 2)).sum().backward()
            adam.step()

    def answer(x: Tensor, t: Tensor) -> Tensor:
        times = t.float().clamp(task.min_time, task.max_time)
        with torch.no_grad():
            y = _network(best, task.features(x.float(), times))
        return (sigma(times)[..., None] * task.score(x.float(), times, y)).to(x)

    return in_parts(answer)


def _started(M: int, sizes: tuple[int, ...], generator: torch.Generator, device: torch.device) -> list[Tensor]:
    """He's initial weights, a row of zeros for the bias below each matrix."""
    made = []
    for rows, columns in pairwise(sizes):
        drawn = torch.randn(M, rows, columns, generator=generator, device=device) * math.sqrt(2.0 / rows)
        made.append(torch.cat((drawn, torch.zeros(M, 1, columns, device=device)), 1).requires_grad_())
    return made


def _network(weights: list[Tensor], x: Tensor) -> Tensor:
    for number, weight in enumerate(weights):
        x = torch.baddbmm(weight[:, -1:], x, weight[:, :-1])
        x = x.relu() if number < len(weights) - 1 else x
    return x
