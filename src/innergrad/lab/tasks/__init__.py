"""Families of functions that a learner is trained on. Each has a ``kind``, its name in configuration files.

    kind               class               a function of the family
    linear             Linear              w·x
    sparse-linear      SparseLinear        w·x, with most entries of w zero
    network            Networks            a random network
    decision-tree      DecisionTrees       a random tree
    gaussian-process   GaussianProcesses   a draw of a Gaussian process
    ball               Balls               1 inside a random ball, 0 outside
    smooth             SmoothFunctions     a random smooth function
    diffusion          DiffusionScores     the score of a random mixture
    sample-scores      SampleScores        the same in any dimension, from samples in place of labels
    mixture            Mixture             a function of one of several families
    pool               Pool                one of a fixed set of functions
    vectors            Vectors             several functions of a family, as one label

Two kinds draw tables, with columns of several kinds and missing cells; ``lab.tables`` has their parts:

    table-regression      TableRegression       a number for each row of a random table
    table-classification  TableClassification   a class for each row of a random table

Examples:
    >>> from innergrad import lab
    >>> "linear" in lab.Task.kinds, lab.Task.kinds["linear"].__name__
    (True, 'Linear')
"""

from innergrad.lab.tasks.balls import Balls
from innergrad.lab.tasks.base import Params, Prompts, Task, measured_scale
from innergrad.lab.tasks.combined import Mixture, Pool, Vectors
from innergrad.lab.tasks.covariances import KernelTerm, Matern, SumKernel
from innergrad.lab.tasks.gaussian_processes import GaussianProcesses
from innergrad.lab.tasks.inputs import Covariance, Gaussian, GaussianMixture, Inputs, Leading, Sphere
from innergrad.lab.tasks.linear import Linear, SparseLinear
from innergrad.lab.tasks.networks import Networks
from innergrad.lab.tasks.samples import SampleScores
from innergrad.lab.tasks.scores import DiffusionScores
from innergrad.lab.tasks.smooth import SmoothFunctions
from innergrad.lab.tasks.tables import TableClassification, TableRegression
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
    "Leading",
    "Linear",
    "Matern",
    "Mixture",
    "Networks",
    "Params",
    "Pool",
    "Prompts",
    "SampleScores",
    "SmoothFunctions",
    "SparseLinear",
    "Sphere",
    "SumKernel",
    "TableClassification",
    "TableRegression",
    "Task",
    "Vectors",
    "measured_scale",
]
