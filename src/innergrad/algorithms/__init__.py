"""Learning algorithms and their programs."""

from innergrad.algorithms import raw, schedules
from innergrad.algorithms.adam import Adam
from innergrad.algorithms.base import Algorithm
from innergrad.algorithms.functional import FunctionalGradientDescent
from innergrad.algorithms.functional_layers import FunctionalHead, FunctionalLayers
from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.algorithms.lookup import GridDescent, Tabulated
from innergrad.algorithms.online import OnlineSGD, RecursiveLeastSquares
from innergrad.algorithms.schedules import minibatches
from innergrad.errors import Registry
from innergrad.ir.program import pointwise
from innergrad.ir.stream import example_stream

#: The algorithms of saved models, by their kind.
ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "algorithm",
    {
        algorithm.kind: algorithm
        for algorithm in (
            GradientDescent,
            Adam,
            FunctionalGradientDescent,
            FunctionalLayers,
            OnlineSGD,
            RecursiveLeastSquares,
            GridDescent,
            raw.OneStepSGD,
            raw.OneStepRidge,
        )
    },
    unknown="the model's algorithm is not known here",
    hint="pass its class: ig.load(path, extensions=[TheAlgorithm])",
)

__all__ = [
    "ALGORITHMS",
    "Adam",
    "Algorithm",
    "FunctionalGradientDescent",
    "FunctionalHead",
    "FunctionalLayers",
    "GradientDescent",
    "GridDescent",
    "OnlineSGD",
    "RecursiveLeastSquares",
    "Tabulated",
    "example_stream",
    "minibatches",
    "pointwise",
    "raw",
    "schedules",
]
