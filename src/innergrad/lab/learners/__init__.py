"""Learners: the models that are trained. Importing this package makes every shipped learner known to configuration
files.
"""

from innergrad.lab.learners.answers import ClassAnswer, NumberAnswer
from innergrad.lab.learners.base import Keep, Learner, LearnerConfig
from innergrad.lab.learners.gpt import GPT, GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig, from_compiled
from innergrad.lab.learners.sample_learner import SampleLearner, SampleLearnerConfig
from innergrad.lab.learners.table import TableConfig, TableLearner

__all__ = [
    "GPT",
    "ClassAnswer",
    "GPTConfig",
    "Keep",
    "KernelLearner",
    "KernelLearnerConfig",
    "Learner",
    "LearnerConfig",
    "NumberAnswer",
    "SampleLearner",
    "SampleLearnerConfig",
    "TableConfig",
    "TableLearner",
    "from_compiled",
]
