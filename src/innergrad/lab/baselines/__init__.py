"""Predictors that a learner is compared with. Each has a ``kind``, its name on the command line.

    kind            class             what it predicts with
    zero            Zero              nothing: 0
    mean            Mean              the mean of the labels seen
    knn             KNN               the labels of the nearest points
    least-squares   LeastSquares      a linear function
    ridge           Ridge             a linear function, with a penalty
    tuned-ridge     TunedRidge        the same, with a penalty from a grid
    lasso           Lasso             a sparse linear function
    tree            Tree              a decision tree
    boosting        Boosting          many small trees
    kernel-bayes    KernelBayes       a Gaussian process
    nngp            NNGP              the Gaussian process of an infinitely wide network
    one-step        OneStep           a linear function, after one step of gradient descent
    one-pass        OnePass           a linear function, after one pass of stochastic gradient descent
    network         TrainedNetwork    a network, trained on the prompt by torch
    compiled        CompiledNetwork   the same training, inside a compiled transformer
    kernel-density  KernelDensity     the score of a kernel density estimate, of samples

Examples:
    >>> import torch
    >>> from innergrad import lab
    >>> x, y = torch.zeros(1, 3, 2), torch.tensor([[1.0, 3.0, 5.0]])
    >>> lab.baselines.Mean()(x, y)  # of the labels before each
    tensor([[0., 1., 2.]])
"""

from innergrad.lab.baselines.base import Predictor
from innergrad.lab.baselines.compiled import CompiledNetwork
from innergrad.lab.baselines.density import KernelDensity
from innergrad.lab.baselines.descent import OnePass, OneStep
from innergrad.lab.baselines.gaussian import NNGP, KernelBayes
from innergrad.lab.baselines.lasso import Lasso
from innergrad.lab.baselines.linear import LeastSquares, Ridge, TunedRidge
from innergrad.lab.baselines.simple import KNN, Mean, Zero
from innergrad.lab.baselines.trained import Fits, TrainedNetwork
from innergrad.lab.baselines.trees import Boosting, Tree

__all__ = [
    "KNN",
    "NNGP",
    "Boosting",
    "CompiledNetwork",
    "Fits",
    "KernelBayes",
    "KernelDensity",
    "Lasso",
    "LeastSquares",
    "Mean",
    "OnePass",
    "OneStep",
    "Predictor",
    "Ridge",
    "TrainedNetwork",
    "Tree",
    "TunedRidge",
    "Zero",
]
