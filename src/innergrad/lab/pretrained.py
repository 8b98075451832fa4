"""Learners of the zoo: trained, kept in the package, loaded without a network."""

from __future__ import annotations

import torch

from innergrad import zoo
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.base import Learner
from innergrad.lab.training import load_learner


def load_pretrained(name: str, device: torch.device | str | None = "cpu") -> tuple[Learner, Experiment]:
    """A learner of the zoo and its experiment: the task, the shape and the training.

    The weights are part of the package. Their digest is checked first. ``innergrad zoo`` lists the learners, and
    ``innergrad zoo NAME`` shows the card of one: what it was trained on, how good it is, and where it fails.

    Args:
        name: of the learner.
        device: None for the GPU if there is one.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> learner, experiment = lab.load_pretrained("networks-3-softmax")
        >>> x, y, _ = experiment.task.sample(lab.CounterRNG.of(1, "an example"), torch.arange(2), n=8)
        >>> tuple(learner.predict(x, y).shape)
        (2, 8)
    """
    return load_learner(zoo.weights(name), device=device)
