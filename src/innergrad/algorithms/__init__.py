"""Learning algorithms and their programs."""

from innergrad.algorithms.base import Algorithm, example_stream, pointwise
from innergrad.algorithms.functional import FunctionalGradientDescent
from innergrad.algorithms.gradient_descent import GradientDescent
from innergrad.algorithms.lookup import GridDescent, Tabulated
from innergrad.algorithms.online import OnlineSGD, RecursiveLeastSquares

SHIPPED: tuple[type[Algorithm], ...] = (
    GradientDescent,
    FunctionalGradientDescent,
    OnlineSGD,
    RecursiveLeastSquares,
    GridDescent,
)

__all__ = [
    "SHIPPED",
    "Algorithm",
    "FunctionalGradientDescent",
    "GradientDescent",
    "GridDescent",
    "OnlineSGD",
    "RecursiveLeastSquares",
    "Tabulated",
    "example_stream",
    "pointwise",
]
