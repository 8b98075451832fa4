"""Scalar functions, their facts, and their piecewise-linear approximants with proven error."""

from innergrad.functions.activations import ACTIVATIONS, Activation
from innergrad.functions.approximants import approximate, approximate_jointly
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import Asymptote, Function

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Asymptote",
    "Function",
    "PiecewiseLinear",
    "approximate",
    "approximate_jointly",
]
