"""Families of functions. Importing this package makes every shipped task known to configuration files."""

from innergrad.lab.tasks.balls import Balls
from innergrad.lab.tasks.base import Params, Prompts, Task, measured_scale
from innergrad.lab.tasks.combined import Mixture, Pool
from innergrad.lab.tasks.covariances import KernelTerm, Matern, SumKernel
from innergrad.lab.tasks.gaussian_processes import GaussianProcesses
from innergrad.lab.tasks.inputs import Covariance, Gaussian, GaussianMixture, Inputs, Sphere
from innergrad.lab.tasks.linear import Linear, SparseLinear
from innergrad.lab.tasks.networks import Networks
from innergrad.lab.tasks.scores import DiffusionScores
from innergrad.lab.tasks.smooth import SmoothFunctions
from innergrad.lab.tasks.trees import DecisionTrees

__all__ = [
    "Balls",
    "Covariance",
    "DecisionTrees",
    "DiffusionScores",
    "Gaussian",
    "GaussianMixture",
    "GaussianProcesses",
    "Inputs",
    "KernelTerm",
    "Linear",
    "Matern",
    "Mixture",
    "Networks",
    "Params",
    "Pool",
    "Prompts",
    "SmoothFunctions",
    "SparseLinear",
    "Sphere",
    "SumKernel",
    "Task",
    "measured_scale",
]
