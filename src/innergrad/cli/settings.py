"""Settings of a model from flags and from a TOML file; which algorithm has which is the table ``ALGORITHMS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
from innergrad.compiler import compile
from innergrad.config import read
from innergrad.errors import InputError, Registry
from innergrad.transformer import CompiledTransformer

NETWORK = ("sizes", "activation", "output", "bias")
COMPILE = (
    *("target", "variant", "epsilon", "n_examples", "x_bound", "y_bound", "z_bound", "sigma"),
    *("weight_error", "until", "double"),
)


@dataclass(frozen=True)
class Choice:
    """An algorithm of the command line.

    make: its settings, by keyword, -> the algorithm; a setting that was not given is left out.
    settings: their names, which are those of the flags and of the keys in [algorithm].
    network: further ones, below [network] in a file.
    """

    make: Callable[..., Algorithm]
    settings: tuple[str, ...]
    network: tuple[str, ...] = ()

    @property
    def sections(self) -> dict[str, tuple[str, ...]]:
        """The sections of a settings file."""
        network = {"network": self.network} if self.network else {}
        return {**network, "algorithm": ("kind", *self.settings), "compile": self.compile}

    @property
    def names(self) -> tuple[str, ...]:
        """All its settings."""
        return (*self.network, *self.settings, *self.compile)

    @property
    def compile(self) -> tuple[str, ...]:
        """Settings of the compiler, those aside that are the algorithm's own."""
        return tuple(name for name in COMPILE if name not in self.settings)


def _gradient_descent(**chosen: Any) -> GradientDescent:
    if "sizes" not in chosen:
        raise InputError("the network's sizes are missing", hint="give --sizes 3,8,8,1, or sizes in a --config file")
    network = Network(**{name: chosen.pop(name) for name in NETWORK if name in chosen})
    optimiser, schedule, size = (chosen.pop(name, None) for name in ("optimiser", "schedule", "batch_size"))
    examples = chosen.pop("n_examples", EXAMPLES)
    if optimiser not in (None, *FOREIGN):
        raise InputError("unknown optimiser", got=repr(optimiser), allowed=", ".join(FOREIGN))
    wrong = [name for name in FOREIGN[optimiser or "sgd"] if name in chosen]
    if wrong:
        raise InputError(f"optimiser {optimiser or 'sgd'} does not take this", got=", ".join(map(_flag, wrong)))
    if size is not None:
        chosen["batches"] = minibatches(examples, size)
    make = Adam if optimiser == "adam" else GradientDescent
    if schedule is None:
        return make(network, **chosen)
    shape = SCHEDULES.find(schedule)
    settled = make(network, **chosen)
    if settled.schedule is not None:
        raise InputError("a schedule starts from one rate", got="a list of rates in lr", hint="leave out the schedule")
    return make(network, **chosen | {"lr": shape(settled.lr, settled.steps)})


FOREIGN = {"sgd": ("betas", "delta"), "adam": ("momentum", "nesterov")}  # settings of the other optimiser
SCHEDULES: Registry[Callable[[float, int], tuple[float, ...]]] = Registry(
    "schedule",
    {
        "constant": schedules.constant,
        "cosine": schedules.cosine,
        "warmup-cosine": lambda lr, steps: schedules.warmup_cosine(lr, steps, steps // 10),
        "step-decay": lambda lr, steps: schedules.step_decay(lr, steps, max(1, -(-steps // 3))),
    },
)
EXAMPLES = 16  # where n_examples is not given


def _grid(**chosen: Any) -> GridDescent:
    own = {name: chosen.pop(name) for name in ("grid", "x_bound", "y_bound") if name in chosen}
    return GridDescent(_gradient_descent(**chosen), **own)


def _functional(kernel: str = "exp", bandwidth: float = 1.0, **chosen: Any) -> FunctionalGradientDescent:
    return FunctionalGradientDescent(Kernel(kernel, bandwidth), **chosen)


DEFAULT = "gradient-descent"
ALGORITHMS = Registry(
    "algorithm",
    {
        "gradient-descent": Choice(
            _gradient_descent,
            (
                *("optimiser", "loss", "lr", "steps", "box", "ball", "momentum", "weight_decay"),
                *("nesterov", "l1", "clip", "schedule", "batch_size", "epochs", "betas", "delta"),
            ),
            network=NETWORK,
        ),
        "functional": Choice(
            _functional,
            (
                "kernel",
                "bandwidth",
                "d",
                "d_y",
                "steps",
                "step_rule",
                "step",
                "lambda_max",
                "condition",
                "covariate_step",
            ),
        ),
        "sgd": Choice(OnlineSGD, ("d", "lr", "weight_decay")),
        "rls": Choice(RecursiveLeastSquares, ("d", "ridge", "noise", "form")),
        "grid": Choice(
            _grid, ("loss", "lr", "steps", "box", "weight_decay", "grid", "x_bound", "y_bound"), network=NETWORK
        ),
    },
)
KNOWN = frozenset(name for choice in ALGORITHMS.values() for name in choice.names)


def settings(config: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """What was chosen: the settings of a TOML file, overridden by the flags that were given.

    ``algorithm`` is the name of the algorithm, where one was given; every other setting is one that it takes.
    """
    file = {} if config is None else read(config, what="")
    named = {} if flags.get("algorithm") is None else {"algorithm": flags["algorithm"]}
    if not named and isinstance(file.get("algorithm"), dict) and "kind" in file["algorithm"]:
        named = {"algorithm": file["algorithm"]["kind"]}
    name = _name(named)
    given = {key: value for key, value in flags.items() if key in KNOWN and value is not None}
    _check_flags(name, given)
    chosen = named | ({} if config is None else _of_config(config, file, name)) | given
    for key, parse in PARSERS.items():
        if isinstance(chosen.get(key), str):
            chosen[key] = parse(chosen[key])
    return chosen


def compile_settings(chosen: Mapping[str, Any]) -> CompiledTransformer:
    choice = ALGORITHMS[_name(chosen)]
    own, common = (
        {key: chosen[key] for key in keys if key in chosen}
        for keys in ((*choice.network, *choice.settings), choice.compile)
    )
    if "batch_size" in own and "n_examples" in common:
        own["n_examples"] = common["n_examples"]
    return compile(choice.make(**own), **common)


def _name(chosen: Mapping[str, Any]) -> str:
    name = chosen.get("algorithm", DEFAULT)
    ALGORITHMS.find(name)
    return str(name)


def _check_flags(name: str, given: Mapping[str, Any]) -> None:
    wrong = [key for key in given if key not in ALGORITHMS[name].names]
    if wrong:
        owners = [other for other, choice in ALGORITHMS.items() if set(wrong) <= set(choice.names)]
        raise InputError(
            f"algorithm {name} does not take {'these flags' if len(wrong) > 1 else 'this flag'}",
            got=", ".join(_flag(key, given[key]) for key in wrong),
            allowed=", ".join(_flag(key) for key in ALGORITHMS[name].names),
            hint=f"--algorithm {' or '.join(owners)} does" if owners else "",
        )


def _flag(key: str, value: object = None) -> str:
    return ("--no-" if value is False else "--") + key.replace("_", "-")


def _of_config(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings in a file, all of them settings of the algorithm, and in their section."""
    chosen: dict[str, Any] = {}
    sections = ALGORITHMS[name].sections
    for section, values in content.items():
        if section not in sections or not isinstance(values, dict):
            *others, last = (f"[{known}]" for known in sections)
            allowed = f"{', '.join(others)} and {last}, each with the settings of algorithm {name} below it"
            raise InputError(f"unknown section in {path}", got=f"[{section}]", allowed=allowed)
        for key, value in values.items():
            if key not in sections[section]:
                allowed = f"{', '.join(sections[section])} (algorithm {name})"
                raise InputError(f"unknown setting in [{section}] of {path}", got=key, allowed=allowed)
            chosen[key] = value
    chosen.pop("kind", None)
    return chosen


def _sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError("sizes must be integers", got=repr(text), allowed="e.g. 3,8,8,1") from None


def _box(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError("box must be a number or 'none'", got=repr(text)) from None


def _betas(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError("betas are two numbers", got=repr(text), allowed="e.g. 0.9,0.999") from None


PARSERS: dict[str, Callable[[str], object]] = {"sizes": _sizes, "box": _box, "betas": _betas}
