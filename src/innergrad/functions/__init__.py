"""Scalar functions, their facts, and their piecewise-linear approximants with proven error."""

from innergrad.functions.activation import ACTIVATIONS, Activation
from innergrad.functions.approximants import approximate, approximate_jointly
from innergrad.functions.scalar import Asymptote, Function, PiecewiseLinear

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Asymptote",
    "Function",
    "PiecewiseLinear",
    "approximate",
    "approximate_jointly",
]
