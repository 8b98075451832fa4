"""How much memory training and evaluation will take, before they begin; nothing is allocated to find out.

Learners are built, and a prompt is drawn, on torch's *meta* device, where tensors have shapes and no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from innergrad.errors import limit_of
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners import LearnerConfig
from innergrad.lab.tasks import Task
from innergrad.memory import require_memory

WEIGHT = 64  # bytes for a parameter in training: itself, its gradient, the optimiser's state, and copies
DRAWN = 48  # bytes for an entry of the largest tensor of a prompt while it is drawn: there are a few such, of 64 bits
KEPT = 4  # bytes for a number that a forward pass keeps for the way back
LAYER = 2**16  # bytes for a layer, however small: the graph of its operations, and torch's record of each tensor
SMALLER = "take a smaller learner, shorter prompts or a smaller batch"


def check_training(experiments: Sequence[Experiment]) -> None:
    """An error if the machine has no room for a stack of these."""
    first, stack = experiments[0], len(experiments)
    weights = numbers_of_learner(first.learner, first.task, first.n_points, stack)
    prompts = first.train.batch * sum(numbers_of_prompt(one.task, first.n_points) for one in experiments)
    activations = first.train.batch * stack * activations_of_prompt(first.learner, first.task, first.n_points)
    layers = LAYER * int(getattr(first.learner, "n_layers", 1))
    n_bytes = WEIGHT * weights + DRAWN * prompts + KEPT * activations + layers
    require_memory(n_bytes, f"training with batches of {first.train.batch:,} prompts", SMALLER)


def check_learner(experiment: Experiment) -> None:
    """An error if the machine has no room for a learner that is only run."""
    numbers = numbers_of_learner(experiment.learner, experiment.task, experiment.n_points, 1)
    require_memory(2 * KEPT * numbers, "the learner", "it is larger than this machine")


def check_evaluation(experiment: Experiment, task: Task, n_prompts: int, n_points: int, batch: int) -> None:
    """An error if the machine has no room for so many prompts, or for a batch of them."""
    drawn = DRAWN * min(batch, n_prompts) * numbers_of_prompt(task, n_points)
    activations = min(batch, n_prompts) * activations_of_prompt(experiment.learner, task, n_points)
    kept = KEPT * (activations + 8 * n_prompts * n_points * task.d)
    require_memory(drawn + kept, f"evaluating {n_prompts:,} prompts of {n_points:,} points", "take fewer")


def numbers_of_learner(config: LearnerConfig, task: Task, n_points: int, stack: int) -> int:
    """Parameters of a stack; 0 where a learner of the user's own cannot be built without numbers."""
    try:
        with torch.device("meta"):
            learner = config.build_for(task.d, n_points, stack, task.outputs)
            return sum(parameter.numel() for parameter in learner.parameters())
    except Exception as error:
        if limit_of(error) is not None:
            raise
        return 0


def activations_of_prompt(config: LearnerConfig, task: Task, n_points: int) -> int:
    """Numbers that one prompt leaves behind in a forward pass, with all numbers of its labels."""
    return config.activations(n_points) * (task.outputs if config.by_component else 1)


@lru_cache(maxsize=256)
def numbers_of_prompt(task: Task, n_points: int) -> int:
    """Entries of the largest tensor, a prompt, while it is drawn; of its points for a task of the user's own."""
    with _Largest() as seen:
        try:
            task.sample(CounterRNG.of(0, "room", "meta"), torch.arange(1, device="meta"), n_points)
        except Exception as error:
            if limit_of(error) is not None:
                raise
    return int(max(seen.numbers, n_points * (task.d + task.outputs)))


class _Largest(TorchDispatchMode):
    """Sees every tensor that is made, and remembers the size of the largest."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            self.numbers = max(self.numbers, each.numel() if isinstance(each, Tensor) else 0)
        return made
