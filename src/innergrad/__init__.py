"""innergrad: transformers that learn inside their forward pass."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from innergrad.moved import install

if TYPE_CHECKING:
    from innergrad import diffusion as diffusion
    from innergrad import lab as lab
    from innergrad.algorithms import (
        Adam,
        Algorithm,
        GradientDescent,
        example_stream,
        minibatches,
        pointwise,
        raw,
        schedules,
    )
    from innergrad.algorithms.functional import FunctionalGradientDescent
    from innergrad.algorithms.functional_layers import FunctionalHead, FunctionalLayers
    from innergrad.algorithms.kernels import Kernel
    from innergrad.algorithms.lookup import GridDescent, Tabulated
    from innergrad.algorithms.losses import LOSSES, Loss, ResidualLoss, SmoothLoss
    from innergrad.algorithms.networks import Network
    from innergrad.algorithms.online import OnlineSGD, RecursiveLeastSquares
    from innergrad.compiler import compile
    from innergrad.errors import DegenerateStart, DomainError, InputError, LongRun, LoweringError, NotPositive, PoorRun
    from innergrad.estimators import InContextClassifier, InContextRegressor
    from innergrad.evidence.bounds import DomainCertificate, Domainwide
    from innergrad.evidence.certificate import Certificate
    from innergrad.evidence.solver import Solution
    from innergrad.functions import ACTIVATIONS, Activation, Asymptote, Function, PiecewiseLinear, approximate
    from innergrad.functions.decay import Decay, decay_condition
    from innergrad.functions.facts import Facts, prove_facts
    from innergrad.functions.fits.register import register_sigma
    from innergrad.functions.scalar import IDENTITY, NEGATION, RECIPROCAL
    from innergrad.ir.program import Attend, Layer, Loop, Options, Program, Score
    from innergrad.ir.stream import Lane, Stream
    from innergrad.model.prompt import read_predictions
    from innergrad.model.ragged import ragged
    from innergrad.transformer import CompiledTransformer, Run, load, reference

__version__ = "0.2.0"
install()

# Imported on first use, so that the command line can print its help without loading torch.
_NAMES = {
    "algorithms": "Adam Algorithm GradientDescent example_stream minibatches pointwise raw schedules",
    "algorithms.functional": "FunctionalGradientDescent",
    "algorithms.functional_layers": "FunctionalHead FunctionalLayers",
    "algorithms.lookup": "GridDescent Tabulated",
    "algorithms.online": "OnlineSGD RecursiveLeastSquares",
    "evidence.bounds": "DomainCertificate Domainwide",
    "evidence.certificate": "Certificate",
    "compiler": "compile",
    "errors": "DegenerateStart DomainError InputError LongRun LoweringError NotPositive PoorRun",
    "estimators": "InContextClassifier InContextRegressor",
    "functions": "ACTIVATIONS Activation Asymptote Function PiecewiseLinear approximate",
    "functions.decay": "Decay decay_condition",
    "functions.facts": "Facts prove_facts",
    "functions.fits.register": "register_sigma",
    "functions.scalar": "IDENTITY NEGATION RECIPROCAL",
    "algorithms.kernels": "Kernel",
    "algorithms.losses": "LOSSES Loss ResidualLoss SmoothLoss",
    "algorithms.networks": "Network",
    "ir.program": "Attend Layer Loop Options Program Score",
    "model.ragged": "ragged",
    "model.prompt": "read_predictions",
    "evidence.solver": "Solution",
    "ir.stream": "Lane Stream",
    "transformer": "CompiledTransformer Run load reference",
}
_MODULES = ("diffusion", "lab")  # of the package, as attributes of it
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = [
    "ACTIVATIONS",
    "IDENTITY",
    "LOSSES",
    "NEGATION",
    "RECIPROCAL",
    "Activation",
    "Adam",
    "Algorithm",
    "Asymptote",
    "Attend",
    "Certificate",
    "CompiledTransformer",
    "Decay",
    "DegenerateStart",
    "DomainCertificate",
    "DomainError",
    "Domainwide",
    "Facts",
    "Function",
    "FunctionalGradientDescent",
    "FunctionalHead",
    "FunctionalLayers",
    "GradientDescent",
    "GridDescent",
    "InContextClassifier",
    "InContextRegressor",
    "InputError",
    "Kernel",
    "Lane",
    "Layer",
    "LongRun",
    "Loop",
    "Loss",
    "LoweringError",
    "Network",
    "NotPositive",
    "OnlineSGD",
    "Options",
    "PiecewiseLinear",
    "PoorRun",
    "Program",
    "RecursiveLeastSquares",
    "ResidualLoss",
    "Run",
    "Score",
    "SmoothLoss",
    "Solution",
    "Stream",
    "Tabulated",
    "approximate",
    "compile",
    "decay_condition",
    "example_stream",
    "load",
    "minibatches",
    "pointwise",
    "prove_facts",
    "ragged",
    "raw",
    "read_predictions",
    "reference",
    "register_sigma",
    "schedules",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"innergrad.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'innergrad' has no attribute {name!r}")
    value = getattr(import_module(f"innergrad.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES, "__version__"]
