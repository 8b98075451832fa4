"""Learners: the models that are trained. Importing this package makes every shipped learner known to configuration
files.
"""

from innergrad.lab.learners.base import Keep, Learner, LearnerConfig
from innergrad.lab.learners.gpt import GPT, GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig, from_compiled

__all__ = [
    "GPT",
    "GPTConfig",
    "Keep",
    "KernelLearner",
    "KernelLearnerConfig",
    "Learner",
    "LearnerConfig",
    "from_compiled",
]
