"""Learning algorithms and their programs."""

from innergrad.algorithms.base import Algorithm, constant_lanes, example_lanes
from innergrad.algorithms.gradient_descent import GradientDescent

__all__ = ["Algorithm", "GradientDescent", "constant_lanes", "example_lanes"]
