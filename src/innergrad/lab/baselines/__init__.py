"""Baselines. Importing this package makes every shipped predictor known to configuration files and commands."""

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
