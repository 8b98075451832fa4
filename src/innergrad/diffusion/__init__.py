"""Diffusion models whose score is learned in context.

from innergrad import diffusion

mixture = diffusion.SHAPES["eight-gaussians"]()                # data whose exact score is known
task = diffusion.ScoreTask()                                    # how a score becomes examples of a prompt
learner = diffusion.ScoreLearner(d=2, task=task)                # gradient descent, compiled into a transformer
learned = learner.learn(task.from_mixture(mixture, n=1024))     # one forward pass
samples = diffusion.sample(learned, task, n=1000, d=2)          # noise becomes data
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from innergrad.diffusion.measures import (
    Scale,
    ScoreError,
    energy_distance,
    score_error,
    sliced_wasserstein,
    wasserstein_1,
)
from innergrad.diffusion.process import GaussianMixture
from innergrad.diffusion.samplers import Samples, sample
from innergrad.diffusion.shapes import SHAPES
from innergrad.diffusion.targets import LABELS, Examples, ScoreTask

if TYPE_CHECKING:
    from innergrad.diffusion.compiled import LearnedScore, Plateau, ScoreCertificate, ScoreLearner
    from innergrad.diffusion.direct import TrainedScore, train_directly

# The compiler is imported on first use: the rest needs torch alone.
_HOME = {
    **dict.fromkeys(("LearnedScore", "Plateau", "ScoreCertificate", "ScoreLearner"), "compiled"),
    **dict.fromkeys(("TrainedScore", "train_directly"), "direct"),
}

__all__ = [
    "LABELS",
    "SHAPES",
    "Examples",
    "GaussianMixture",
    "LearnedScore",
    "Plateau",
    "Samples",
    "Scale",
    "ScoreCertificate",
    "ScoreError",
    "ScoreLearner",
    "ScoreTask",
    "TrainedScore",
    "energy_distance",
    "sample",
    "score_error",
    "sliced_wasserstein",
    "train_directly",
    "wasserstein_1",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'innergrad.diffusion' has no attribute {name!r}")
    return getattr(import_module(f"innergrad.diffusion.{_HOME[name]}"), name)
