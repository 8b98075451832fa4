"""Learning algorithms and their programs."""

from innergrad.algorithms.base import Algorithm, example_stream, pointwise
from innergrad.algorithms.gradient_descent import GradientDescent

__all__ = ["Algorithm", "GradientDescent", "example_stream", "pointwise"]
