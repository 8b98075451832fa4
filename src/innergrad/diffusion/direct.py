"""The same training without a transformer: torch.nn and torch.optim, which share no code with what is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from innergrad.diffusion.process import Times
from innergrad.diffusion.targets import Examples, ScoreTask
from innergrad.errors import InputError, own_gradients

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU, "sigmoid": nn.Sigmoid}


@dataclass(frozen=True, eq=False)
class TrainedScore:
    """A score network that was trained by torch. Call it with points (n, d) and a time.

    Attributes:
        task: how a score becomes examples.
        model: the network.
        loss: half the mean squared error on the examples, at the end.

    Examples:
        >>> import innergrad as ig, torch
        >>> task = ig.diffusion.ScoreTask()
        >>> learner = ig.diffusion.ScoreLearner(d=1, task=task, hidden=(8, 8), n_examples=32, steps=100)
        >>> examples = task.from_mixture(ig.diffusion.SHAPES["two-bumps"](), n=32)
        >>> x = torch.linspace(-2, 2, 9).view(-1, 1)
        >>> how = {"lr": learner.lr, "momentum": learner.momentum, "steps": 100}
        >>> trained = ig.diffusion.train_directly(examples, task, (8, 8), learner.start(), **how)
        >>> bool((trained(x, 0.5) - learner.learn(examples)(x, 0.5)).abs().max() < 1e-3)
        True
    """

    task: ScoreTask
    model: nn.Module
    loss: float

    def __call__(self, x: Tensor, t: Times) -> Tensor:
        """The score at points x (n, d) and times t."""
        times = self.task.checked_times(t, x)
        dtype = next(self.model.parameters()).dtype
        with torch.no_grad():
            y = self.model(self.task.features(x, times).to(dtype))
        return self.task.score(x, times, y.to(x.dtype))


def train_directly(
    examples: Examples,
    task: ScoreTask,
    hidden: tuple[int, ...],
    w0: Tensor,
    *,
    lr: float,
    momentum: float,
    steps: int,
    activation: str = "relu",
    dtype: torch.dtype = torch.float32,
) -> TrainedScore:
    """Train a score network by torch.optim.SGD on half the mean squared error, all examples in every step.

    Args:
        examples: to train on.
        task: how a score becomes examples.
        hidden: units of the hidden layers.
        w0: initial weights, in the order of ``torch.nn.utils.parameters_to_vector``.
        lr: the learning rate.
        momentum: of the heavy ball.
        steps: how many.
        activation: ``relu``, ``tanh``, ``silu`` or ``sigmoid``.
        dtype: of the training.

    Examples:
        >>> import innergrad as ig
        >>> task, mixture = ig.diffusion.ScoreTask(), ig.diffusion.SHAPES["two-bumps"]()
        >>> learner = ig.diffusion.ScoreLearner(d=1, task=task, hidden=(8, 8))
        >>> examples, how = task.from_mixture(mixture, n=32), {"lr": 0.2, "momentum": 0.9, "steps": 50}
        >>> trained = ig.diffusion.train_directly(examples, task, (8, 8), learner.start(), **how)
        >>> trained.loss < 1.0
        True
    """
    if activation not in ACTIVATIONS:
        raise InputError("unknown activation", got=repr(activation), allowed=", ".join(ACTIVATIONS))
    X, y = examples.X.to(dtype), examples.y.to(dtype)
    omega = torch.ones(len(X), dtype=torch.float64) if examples.weight is None else examples.weight
    omega = (omega / omega.sum()).to(dtype)
    with own_gradients():
        layers = [nn.Linear(a, b, dtype=dtype) for a, b in pairwise((X.shape[1], *hidden, y.shape[1]))]
        between = [part for layer in layers for part in (layer, ACTIVATIONS[activation]())]
        model = nn.Sequential(*between[:-1])
        nn.utils.vector_to_parameters(w0.to(dtype, copy=True), model.parameters())
        optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        for _ in range(steps):
            optimiser.zero_grad()
            loss = 0.5 * (omega * (model(X) - y).square().sum(-1)).sum()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            end = 0.5 * (omega * (model(X) - y).square().sum(-1)).sum()
    return TrainedScore(task, model.requires_grad_(False), float(end))
