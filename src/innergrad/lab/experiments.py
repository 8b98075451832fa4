"""The settings of a run, which configuration files hold: what is trained, on which task, and how."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from innergrad.config import check_choices
from innergrad.errors import InputError, integer, seed_number
from innergrad.lab.learners import GPTConfig, LearnerConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Linear, Task

MOST = 10**9  # of anything that is counted: steps, prompts, points


@dataclass(frozen=True)
class Curriculum:
    """Prompts that grow during training: first few coordinates, or few points, then more.

    At step i there are first + more floor(i / every), at most all.

    Garg et al. (2022) have dims 5 + floor(i / 2000), and points 11 + 2 floor(i / 2000) for linear functions or 26 + 5
    floor(i / 2000) for networks.

    Args:
        first_dims: coordinates that are not zero at first; 0 for all at once.
        more_dims: how many more each time.
        first_points: points at first; 0 for all at once.
        more_points: how many more each time.
        every: steps between two changes.
        buckets: how many lengths prompts may have. A prompt gets the next of these lengths, and the loss counts the
            points.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> curriculum = lab.Curriculum(first_points=11, every=100)
        >>> [int(curriculum.points(torch.tensor(step), n=41)) for step in (0, 100, 200)]
        [11, 13, 15]
    """

    first_dims: int = 0
    more_dims: int = 1
    first_points: int = 0
    more_points: int = 2
    every: int = 2000
    buckets: int = 4

    def __post_init__(self) -> None:
        for name in ("first_dims", "first_points"):
            integer(f"curriculum.{name}", getattr(self, name), low=0, high=MOST)
        for name in ("more_dims", "more_points", "every", "buckets"):
            integer(f"curriculum.{name}", getattr(self, name), high=MOST)

    def dims(self, step: Tensor, d: int) -> Tensor | None:
        """Coordinates that are not zero."""
        return (self.first_dims + self.more_dims * (step // self.every)).clamp(max=d) if self.first_dims else None

    def points(self, step: Tensor, n: int) -> Tensor | None:
        """Points the loss counts."""
        return (self.first_points + self.more_points * (step // self.every)).clamp(max=n) if self.first_points else None

    def length(self, step: int, n: int) -> int:
        """Points of a prompt: the smallest bucket that holds ``points``."""
        points = self.points(torch.tensor(step), n)
        if points is None:
            return n
        width = math.ceil((n - min(self.first_points, n)) / self.buckets) or 1
        return n - (n - int(points)) // width * width


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Args:
        steps: of the optimiser.
        batch: prompts in a step.
        optimiser: how parameters are updated.
        curriculum: how prompts grow.
        precision: ``fp32``, or ``bf16``, which keeps float32 master weights.
        compile: on a GPU, fuse the step and record it as a CUDA graph.
        record: on a GPU, record the step without fusing it, where ``compile`` is off: ready at once, so short runs of
            many shapes are done sooner. What a task computes has to stay on the GPU.
        data_every: steps on the same batch. Cheng et al. (2024) have 10.
        labels: ``drawn``; or ``averaged``, for learners that are linear in the labels and tasks that know their
            covariance: the loss is its exact mean over all labels that the points could have.
        log_every: steps between two lines of the log.
        checkpoint_every: steps between two checkpoints.
        snapshots: weights that are kept for good, so many for each tenfold of the steps. 0 for none.

    Examples:
        >>> from innergrad import lab
        >>> lab.TrainConfig(steps=1000, optimiser=lab.Optimiser(lr=3e-4)).batch
        64
    """

    steps: int = 500_000
    batch: int = 64
    optimiser: Optimiser = field(default_factory=Optimiser)
    curriculum: Curriculum = field(default_factory=Curriculum)
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = True
    record: bool = False
    data_every: int = 1
    labels: Literal["drawn", "averaged"] = "drawn"
    log_every: int = 100
    checkpoint_every: int = 10_000
    snapshots: int = 0

    def __post_init__(self) -> None:
        check_choices(self, "train.")
        integer("train.snapshots", self.snapshots, low=0, high=1000)
        for name in ("steps", "batch", "data_every", "log_every", "checkpoint_every"):
            integer(f"train.{name}", getattr(self, name), high=MOST)

    @property
    def snapshot_steps(self) -> tuple[int, ...]:
        """The steps whose weights are kept: the first, the last, and some between, at equal distances on a log axis."""
        return log_spaced(self.steps, self.snapshots) if self.snapshots else ()


def log_spaced(last: int, each: int) -> tuple[int, ...]:
    """0, the powers of 10^(1 / each) up to ``last``, rounded, and ``last``."""
    between = (round(10 ** (number / each)) for number in range(math.ceil(each * math.log10(last)) + 1))
    return tuple(sorted({0, last, *(step for step in between if step < last)}))


@dataclass(frozen=True)
class Experiment:
    """One model to train: the task, the learner, and how.

    Args:
        name: of the run's folder in a sweep.
        seed: of data and initial weights.
        n_points: points of the longest prompt.
        task: what to learn.
        learner: the shape of the model.
        train: how to train.

    Examples:
        >>> from innergrad import lab
        >>> one = lab.Experiment(n_points=11, task=lab.Linear(d=5), learner=lab.GPTConfig(n_layers=3, d_model=64))
        >>> one.train.steps
        500000
    """

    name: str = "experiment"
    seed: int = 0
    n_points: int = 41
    task: Task = field(default_factory=Linear)
    learner: LearnerConfig = field(default_factory=GPTConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        seed_number(self.seed)
        if not self.name or self.name.startswith(".") or set(self.name) & set("/\\\0"):
            raise InputError("name is that of a folder", got=repr(self.name), allowed="no slashes, no dot in front")
        integer("n_points", self.n_points, low=2, high=MOST)
