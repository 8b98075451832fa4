"""Models of the settings that ``cli/settings.py`` has checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from innergrad.algorithms import (
    Adam,
    FunctionalGradientDescent,
    GradientDescent,
    GridDescent,
    OnlineSGD,
    RecursiveLeastSquares,
    minibatches,
    schedules,
)
from innergrad.algorithms.base import Algorithm
from innergrad.algorithms.kernels import Kernel
from innergrad.algorithms.networks import Network
from innergrad.cli.settings import ALGORITHMS, NETWORK, name_of
from innergrad.compiler import compile
from innergrad.transformer import CompiledTransformer

EXAMPLES = 16  # where n_examples is not given


def compile_settings(chosen: Mapping[str, Any]) -> CompiledTransformer:
    name = name_of(chosen)
    choice = ALGORITHMS[name]
    own, common = (
        {key: chosen[key] for key in keys if key in chosen}
        for keys in ((*choice.network, *choice.settings), choice.compile)
    )
    if "batch_size" in own and "n_examples" in common:
        own["n_examples"] = common["n_examples"]
    return compile(MAKERS[name](**own), **common)


def _gradient_descent(**chosen: Any) -> GradientDescent:
    network = Network(**{name: chosen.pop(name) for name in NETWORK if name in chosen})
    optimiser, schedule, size = (chosen.pop(name, None) for name in ("optimiser", "schedule", "batch_size"))
    examples = chosen.pop("n_examples", EXAMPLES)
    if size is not None:
        chosen["batches"] = minibatches(examples, size)
    make = Adam if optimiser == "adam" else GradientDescent
    settled = make(network, **chosen)
    if schedule is None:
        return settled
    return make(network, **chosen | {"lr": SCHEDULES[schedule](settled.lr, settled.steps)})


SCHEDULES: dict[str, Callable[[float, int], tuple[float, ...]]] = {
    "constant": schedules.constant,
    "cosine": schedules.cosine,
    "warmup-cosine": lambda lr, steps: schedules.warmup_cosine(lr, steps, steps // 10),
    "step-decay": lambda lr, steps: schedules.step_decay(lr, steps, max(1, -(-steps // 3))),
}


def _grid(**chosen: Any) -> GridDescent:
    own = {name: chosen.pop(name) for name in ("grid", "x_bound", "y_bound") if name in chosen}
    return GridDescent(_gradient_descent(**chosen), **own)


def _functional(kernel: str = "exp", bandwidth: float = 1.0, **chosen: Any) -> FunctionalGradientDescent:
    return FunctionalGradientDescent(Kernel(kernel, bandwidth), **chosen)


MAKERS: dict[str, Callable[..., Algorithm]] = {
    "gradient-descent": _gradient_descent,
    "functional": _functional,
    "sgd": OnlineSGD,
    "rls": RecursiveLeastSquares,
    "grid": _grid,
}
