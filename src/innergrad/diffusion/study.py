"""One distribution and three scores: the exact one, a network trained by torch, and the same network trained inside a
forward pass. From each come samples, and the distances that say how good they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innergrad.diffusion.compiled import LearnedScore, ScoreLearner
from innergrad.diffusion.direct import TrainedScore, train_directly
from innergrad.diffusion.measures import (
    Scale,
    ScoreError,
    energy_distance,
    score_error,
    sliced_wasserstein,
    wasserstein_1,
)
from innergrad.diffusion.process import GaussianMixture
from innergrad.diffusion.samplers import Method, Samples, Score, sample
from innergrad.diffusion.targets import Examples

EXACT, DIRECT, CONTEXT = "exact score", "direct training", "in context"
TEST_TIMES = 16  # log-uniform, from T_0 to T


@dataclass(frozen=True)
class Sampling:
    """How samples are drawn, and how many."""

    n: int = 2000
    steps: int = 60
    method: Method = "ode"
    moments: int = 2
    seed: int = 1


@dataclass(frozen=True, eq=False)
class Study:
    """scores, samples: by EXACT, DIRECT and CONTEXT. data: fresh points of the distribution. seconds: of training."""

    name: str
    mixture: GaussianMixture
    learned: LearnedScore
    trained: TrainedScore
    samples: dict[str, Samples]
    data: Tensor
    sampling: Sampling
    seconds: dict[str, float]

    @property
    def scores(self) -> dict[str, Score]:
        return {EXACT: self.mixture.score, DIRECT: self.trained, CONTEXT: self.learned}

    @property
    def examples(self) -> Examples:
        return self.learned.examples

    @property
    def times(self) -> list[float]:
        """Where scores are tested."""
        task = self.learned.learner.task
        return task.times(torch.linspace(0.0, 1.0, TEST_TIMES, dtype=torch.float64)).tolist()

    def errors(self, seed: int = 100) -> dict[str, ScoreError]:
        """Of the learned scores, time by time."""
        return {
            name: score_error(score, self.mixture, self.times, seed=seed)
            for name, score in self.scores.items()
            if name != EXACT
        }

    def differences(self) -> list[float]:
        """Of the two learned scores, time by time."""
        return differences(self.mixture, self.learned, self.trained, self.times)

    def difference(self) -> float:
        """The same over all times."""
        return apart(self.mixture, self.learned, self.trained, self.times)

    @cached_property
    def distances(self) -> dict[str, dict[str, float]]:
        """Of samples to the data, by measure; ``noise`` is N(0, I)."""
        noise = torch.randn(self.data.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        sets = {**{name: one.x for name, one in self.samples.items()}, "noise": noise}
        measures: dict[str, Callable[[Tensor, Tensor], float]] = {"energy distance": energy_distance}
        if self.mixture.d == 1:
            measures["Wasserstein-1"] = wasserstein_1
        else:
            measures["sliced Wasserstein-1"] = sliced_wasserstein
        return {what: {name: f(x, self.data) for name, x in sets.items()} for what, f in measures.items()}

    def record(self) -> dict[str, Any]:
        """Everything that is measured, as JSON values."""
        learner, errors = self.learned.learner, self.errors()
        distances = self.distances
        scales = {what: Scale(found[EXACT], found["noise"]) for what, found in distances.items()}
        return {
            "name": self.name,
            "network": list(learner.network.sizes),
            "activation": learner.activation,
            "weights": learner.network.n_weights,
            "examples": len(self.examples),
            "label": learner.task.label,
            "min_time": learner.task.min_time,
            "max_time": learner.task.max_time,
            "lr": learner.lr,
            "momentum": learner.momentum,
            "steps": self.learned.steps,
            "at_rest": self.learned.at_rest,
            "window": learner.plateau.window,
            "fall": learner.plateau.fall,
            "target": learner.target,
            "loss": self.learned.losses[-1],
            "loss_direct": self.trained.loss,
            "score_difference": self.difference(),
            "relative_difference": max(
                one / size for one, size in zip(self.differences(), errors[CONTEXT].size, strict=True)
            ),
            "relative_error": {name: error.overall for name, error in errors.items()},
            "errors": {name: list(error.relative) for name, error in errors.items()},
            "times": self.times,
            "samples": self.sampling.n,
            "sampler": self.sampling.method,
            "sampler_steps": self.sampling.steps,
            "distances": distances,
            "on_the_scale": {
                what: {name: scales[what](found[name]) for name in (DIRECT, CONTEXT)}
                for what, found in distances.items()
            },
            "seconds": self.seconds,
        }


def differences(mixture: GaussianMixture, one: Score, other: Score, times: list[float], seed: int = 100) -> list[float]:
    """Of two scores: the root mean square over points of P_t, time by time."""
    found = []
    for number, t in enumerate(times):
        x = mixture.diffused(2000, t, seed=seed + 2 * number)
        found.append(float((one(x, t) - other(x, t)).square().sum(-1).mean().sqrt()))
    return found


def apart(mixture: GaussianMixture, one: Score, other: Score, times: list[float]) -> float:
    """The same over all times, uniform on [T_0, T] as in (H.1): of log-uniform ones, each counts t times."""
    found = differences(mixture, one, other, times)
    return math.sqrt(sum(t * size**2 for t, size in zip(times, found, strict=True)) / sum(times))


def study(
    name: str, mixture: GaussianMixture, learner: ScoreLearner, examples: Examples, how: Sampling, seed: int = 0
) -> Study:
    """Learn in context, train directly from the same start for as many steps, sample by all three scores."""
    started = time.perf_counter()
    learned = learner.learn(examples, seed=seed)
    middle = time.perf_counter()
    trained = train_directly(
        examples,
        learner.task,
        learner.hidden,
        learner.start(seed),
        lr=learner.lr,
        momentum=learner.momentum,
        steps=learned.steps,
        activation=learner.activation,
    )
    seconds = {CONTEXT: middle - started, DIRECT: time.perf_counter() - middle}
    scores: dict[str, Score] = {EXACT: mixture.score, DIRECT: trained, CONTEXT: learned}
    given = {"method": how.method, "steps": how.steps, "seed": how.seed, "moments": how.moments}
    samples = {
        which: sample(score, learner.task, how.n, mixture.d, **given)  # type: ignore[arg-type]
        for which, score in scores.items()
    }
    return Study(name, mixture, learned, trained, samples, mixture.sample(how.n, seed=how.seed + 50), how, seconds)
