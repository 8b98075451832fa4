"""Predictors that a learner is compared with. Each has a ``kind``, its name on the command line.

    class             what it predicts with
    Zero              nothing: 0
    Mean              the mean of the labels seen
    KNN               the labels of the nearest points
    LeastSquares      a linear function
    Ridge             a linear function, with a penalty
    TunedRidge        the same, with the best penalty for all prompts
    Lasso             a sparse linear function
    Tree, Boosting    decision trees
    KernelBayes       a Gaussian process
    NNGP              the Gaussian process of an infinitely wide network
    TrainedNetwork    a network, trained on the prompt by torch
    CompiledNetwork   the same training, inside a compiled transformer

Examples:
    >>> import torch
    >>> from innergrad import lab
    >>> x, y = torch.zeros(1, 3, 2), torch.tensor([[1.0, 3.0, 5.0]])
    >>> lab.baselines.Mean()(x, y)  # of the labels before each
    tensor([[0., 1., 2.]])
"""

from innergrad.lab.baselines.base import Predictor
from innergrad.lab.baselines.compiled import CompiledNetwork
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
    "Lasso",
    "LeastSquares",
    "Mean",
    "Predictor",
    "Ridge",
    "TrainedNetwork",
    "Tree",
    "TunedRidge",
    "Zero",
]
