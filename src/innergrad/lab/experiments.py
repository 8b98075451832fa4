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
    """Prompts that grow: ``first`` + ``more`` floor(step / every) coordinates (points), at most all. 0: all at once.

    Garg et al.: dims 5 + floor(i / 2000), points 11 + 2 floor(i / 2000) (linear), 26 + 5 floor(i / 2000) (networks).
    A step is recorded for at most ``buckets`` lengths: prompts have the next of these, and the loss counts the points.
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
    """How to train. precision: bf16 keeps float32 master weights. data_every: steps on the same batch (003: 10).

    compile: on a GPU, fuse the step and record it as a CUDA graph.
    """

    steps: int = 500_000
    batch: int = 64
    optimiser: Optimiser = field(default_factory=Optimiser)
    curriculum: Curriculum = field(default_factory=Curriculum)
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = True
    data_every: int = 1
    log_every: int = 100
    checkpoint_every: int = 10_000

    def __post_init__(self) -> None:
        check_choices(self, "train.")
        for name in ("steps", "batch", "data_every", "log_every", "checkpoint_every"):
            integer(f"train.{name}", getattr(self, name), high=MOST)


@dataclass(frozen=True)
class Experiment:
    """One model to train: a task, a learner of prompts of at most ``n_points`` points, and how."""

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
