"""innergrad: transformers that learn inside their forward pass."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from innergrad.algorithms import Algorithm, GradientDescent
    from innergrad.compiler import compile
    from innergrad.errors import DegenerateStart, DomainError, InputError, LoweringError
    from innergrad.functions import Activation, Asymptote, Function, PiecewiseLinear, approximate
    from innergrad.losses import Loss, ResidualLoss
    from innergrad.networks import Network
    from innergrad.storage import load
    from innergrad.transformer import CompiledTransformer, Run, reference

__version__ = "0.1.0"

# Imported on first use, so that the command line can print its help without loading torch.
_HOME = {
    "Algorithm": "algorithms",
    "GradientDescent": "algorithms",
    "compile": "compiler",
    "DegenerateStart": "errors",
    "DomainError": "errors",
    "InputError": "errors",
    "LoweringError": "errors",
    "Activation": "functions",
    "Asymptote": "functions",
    "Function": "functions",
    "PiecewiseLinear": "functions",
    "approximate": "functions",
    "Loss": "losses",
    "ResidualLoss": "losses",
    "Network": "networks",
    "load": "storage",
    "CompiledTransformer": "transformer",
    "Run": "transformer",
    "reference": "transformer",
}
__all__ = [
    "Activation",
    "Algorithm",
    "Asymptote",
    "CompiledTransformer",
    "DegenerateStart",
    "DomainError",
    "Function",
    "GradientDescent",
    "InputError",
    "Loss",
    "LoweringError",
    "Network",
    "PiecewiseLinear",
    "ResidualLoss",
    "Run",
    "approximate",
    "compile",
    "load",
    "reference",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'innergrad' has no attribute {name!r}")
    value = getattr(import_module(f"innergrad.{_HOME[name]}"), name)
    globals()[name] = value
    return value
