"""Learning algorithms and their programs."""

from innergrad.algorithms import schedules
from innergrad.algorithms.adam import Adam
from innergrad.algorithms.base import Algorithm, example_stream, pointwise
from innergrad.algorithms.functional import FunctionalGradientDescent
from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.algorithms.lookup import GridDescent, Tabulated
from innergrad.algorithms.online import OnlineSGD, RecursiveLeastSquares
from innergrad.algorithms.schedules import minibatches

SHIPPED: tuple[type[Algorithm], ...] = (
    GradientDescent,
    Adam,
    FunctionalGradientDescent,
    OnlineSGD,
    RecursiveLeastSquares,
    GridDescent,
)

__all__ = [
    "SHIPPED",
    "Adam",
    "Algorithm",
    "FunctionalGradientDescent",
    "GradientDescent",
    "GridDescent",
    "OnlineSGD",
    "RecursiveLeastSquares",
    "Tabulated",
    "example_stream",
    "minibatches",
    "pointwise",
    "schedules",
]
