"""Settings of a model from flags and from a TOML file, checked without torch; which algorithm has which is the table
``ALGORITHMS``. ``cli/making.py`` makes models of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innergrad.cli import names
from innergrad.cli.places import require_there
from innergrad.config import read
from innergrad.errors import InputError, Registry, integer, one_of, real, suggestion

NETWORK = ("sizes", "activation", "output", "bias")
COMPILE = (
    *("target", "variant", "epsilon", "n_examples", "x_bound", "y_bound", "z_bound", "sigma"),
    *("weight_error", "until", "double"),
)


@dataclass(frozen=True)
class Choice:
    """An algorithm of the command line.

    targets: that it has a program for, its default first.
    settings: their names, which are those of the flags and of the keys in [algorithm].
    network: further ones, below [network] in a file.
    """

    targets: tuple[str, ...]
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


DEFAULT = "gradient-descent"
ALGORITHMS = Registry(
    "algorithm",
    {
        "gradient-descent": Choice(
            ("relu", "gpt", "softmax", "sigma", "llama"),
            (
                *("optimiser", "loss", "lr", "steps", "box", "ball", "momentum", "weight_decay"),
                *("nesterov", "l1", "clip", "schedule", "batch_size", "epochs", "betas", "delta"),
            ),
            network=NETWORK,
        ),
        "functional": Choice(
            ("kernel", "gpt"),
            (
                *("kernel", "bandwidth", "d", "d_y", "steps", "step_rule", "step", "lambda_max"),
                *("condition", "covariate_step"),
            ),
        ),
        "sgd": Choice(("gpt",), ("d", "lr", "weight_decay")),
        "rls": Choice(("gpt",), ("d", "ridge", "noise", "form")),
        "grid": Choice(
            ("softmax",),
            ("loss", "lr", "steps", "box", "weight_decay", "grid", "x_bound", "y_bound"),
            network=NETWORK,
        ),
    },
)
KNOWN = frozenset(name for choice in ALGORITHMS.values() for name in choice.names)
FOREIGN = {"sgd": ("betas", "delta"), "adam": ("momentum", "nesterov")}  # settings of the other optimiser


def settings(config: Path | None, flags: Mapping[str, Any], *, needed: bool = False) -> dict[str, Any]:
    """What was chosen: the settings of a TOML file, overridden by the flags that were given.

    ``algorithm`` is the name of the algorithm, where one was given; every other setting is one that it takes.
    needed: choosing nothing is an error.
    """
    if config is not None:
        require_there(config, "", "name a TOML file of settings")
    file = {} if config is None else read(config, what="")
    named = {} if flags.get("algorithm") is None else {"algorithm": flags["algorithm"]}
    if not named and isinstance(file.get("algorithm"), dict) and "kind" in file["algorithm"]:
        named = {"algorithm": file["algorithm"]["kind"]}
    name = name_of(named)
    given = {key: value for key, value in flags.items() if key in KNOWN and value is not None}
    _check_flags(name, given)
    chosen = named | ({} if config is None else _of_config(config, file, name)) | given
    for key, parse in PARSERS.items():
        if isinstance(chosen.get(key), str):
            chosen[key] = parse(_said(key, given), chosen[key])
    if chosen or needed:
        check(name, chosen, given)
    return chosen


def name_of(chosen: Mapping[str, Any]) -> str:
    """The name of the algorithm."""
    name = chosen.get("algorithm", DEFAULT)
    ALGORITHMS.find(name)
    return str(name)


# --------------------------------------------------------------------------------------------------------------- checks

CHOICES = {
    "activation": ("unknown activation", names.ACTIVATIONS),
    "output": ("unknown output", names.OUTPUTS),
    "loss": ("unknown loss", names.LOSSES),
    "optimiser": ("unknown optimiser", names.OPTIMISERS),
    "schedule": ("unknown schedule", names.SCHEDULES),
    "kernel": ("unknown kernel", names.KERNELS),
    "step_rule": ("unknown step rule", names.STEP_RULES),
    "form": ("unknown form", names.FORMS),
    "sigma": ("unknown activation of the transformer", names.SIGMAS),
}
COUNTS = {"n_examples": 1, "d": 1, "d_y": 1, "steps": 1, "batch_size": 1, "epochs": 1, "grid": 2}  # and the least
MOST_EXAMPLES = 10**6  # rows of a prompt: a table of more is not read, and its tokens would fill the memory
NOT_NEGATIVE = ("lr", "momentum", "weight_decay", "l1", "until")
POSITIVE = (
    *("epsilon", "x_bound", "y_bound", "z_bound", "weight_error", "box", "ball", "clip", "delta", "bandwidth"),
    *("step", "lambda_max", "ridge", "noise"),
)


def check(name: str, chosen: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """An error about one setting that is wrong by itself. What does not go together the library says.

    flags: those of the settings that were given as flags; others are called by their keys in the file.
    """
    if "sizes" in ALGORITHMS[name].names:
        if "sizes" not in chosen:
            hint = "give --sizes 3,8,8,1, or sizes in a --config file"
            raise InputError("the network's sizes are missing", hint=hint)
        _check_sizes(_said("sizes", flags), chosen["sizes"])
    target = one_of("unknown target", chosen.get("target", ALGORITHMS[name].targets[0]), names.TARGETS)
    if target not in ALGORITHMS[name].targets:
        what = f"algorithm {name} has no program for target {target!r}"
        raise InputError(what, allowed=", ".join(ALGORITHMS[name].targets), hint=_elsewhere(target))
    if "variant" in chosen:
        others = [one for one, variants in names.TARGETS.items() if chosen["variant"] in variants]
        hint = f"--target {' or '.join(others)} has it" if others else ""
        one_of(f"unknown variant of target {target!r}", chosen["variant"], names.TARGETS[target], hint=hint)
    for key, (what, known) in CHOICES.items():
        if key in chosen:
            one_of(what, chosen[key], known)
    for key, value in chosen.items():
        if value is not None:
            _check_number(key, value, _said(key, flags))
    _check_optimiser(chosen)


def _elsewhere(target: str) -> str:
    able = [name for name, choice in ALGORITHMS.items() if target in choice.targets]
    return f"--algorithm {' or '.join(able)} has one"


def _check_sizes(said: str, sizes: object) -> None:
    whole = isinstance(sizes, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in sizes)
    if not isinstance(sizes, list) or not whole or len(sizes) < 2 or min(sizes) < 1:
        what = f"{said} are inputs, hidden widths, outputs: two or more positive integers"
        raise InputError(what, got=repr(sizes), allowed="e.g. 3,8,8,1")


def _check_number(key: str, value: Any, said: str) -> None:
    if key == "n_examples":
        integer(said, value, 1, MOST_EXAMPLES)
    elif key in COUNTS:
        integer(said, value, COUNTS[key])
    elif key == "lr" and isinstance(value, list):  # of every step: the library looks at each
        return
    elif key in NOT_NEGATIVE:
        real(said, value, low=0.0)
    elif key in POSITIVE:
        real(said, value, above=0.0)
    elif key == "condition":
        real(said, value, low=1.0)
    elif key == "covariate_step":
        real(said, value)


def _check_optimiser(chosen: Mapping[str, Any]) -> None:
    optimiser = chosen.get("optimiser", "sgd")
    wrong = [key for key in FOREIGN[optimiser] if key in chosen]
    if wrong:
        other = next(one for one in FOREIGN if one != optimiser)
        got = ", ".join(map(flag_of, wrong))
        raise InputError(f"optimiser {optimiser} does not take this", got=got, hint=f"--optimiser {other} does")
    if "schedule" in chosen and isinstance(chosen.get("lr"), list):
        raise InputError("a schedule starts from one rate", got="a list of rates in lr", hint="leave out the schedule")


# -------------------------------------------------------------------------------------------------------- flags, a file


def _said(key: str, flags: Mapping[str, Any]) -> str:
    """What the user calls a setting: the flag, or the key of a file."""
    return flag_of(key) if key in flags else key


def flag_of(key: str, value: object = None) -> str:
    return ("--no-" if value is False else "--") + key.replace("_", "-")


def _check_flags(name: str, given: Mapping[str, Any]) -> None:
    wrong = [key for key in given if key not in ALGORITHMS[name].names]
    if wrong:
        owners = [other for other, choice in ALGORITHMS.items() if set(wrong) <= set(choice.names)]
        raise InputError(
            f"algorithm {name} does not take {'these flags' if len(wrong) > 1 else 'this flag'}",
            got=", ".join(flag_of(key, given[key]) for key in wrong),
            allowed=", ".join(flag_of(key) for key in ALGORITHMS[name].names),
            hint=f"--algorithm {' or '.join(owners)} does" if owners else "",
        )


def _of_config(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings in a file, all of them settings of the algorithm, and in their section."""
    chosen: dict[str, Any] = {}
    sections = ALGORITHMS[name].sections
    for section, values in content.items():
        if section not in sections or not isinstance(values, dict):
            *others, last = (f"[{known}]" for known in sections)
            allowed = f"{', '.join(others)} and {last}, each with the settings of algorithm {name} below it"
            hint = suggestion(section, sections)
            raise InputError(f"unknown section in {path}", got=f"[{section}]", allowed=allowed, hint=hint)
        for key, value in values.items():
            if key not in sections[section]:
                allowed = f"{', '.join(sections[section])} (algorithm {name})"
                elsewhere = [f"it belongs in [{other}]" for other, keys in sections.items() if key in keys]
                hint = (elsewhere or [suggestion(key, sections[section])])[0]
                raise InputError(f"unknown setting in [{section}] of {path}", got=key, allowed=allowed, hint=hint)
            chosen[key] = value
    chosen.pop("kind", None)
    return chosen


def _sizes(said: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{said} must be integers", got=repr(text), allowed="e.g. 3,8,8,1") from None


def _box(said: str, text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{said} must be a number or 'none'", got=repr(text), allowed="e.g. 4") from None


def _betas(said: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{said} are two numbers", got=repr(text), allowed="e.g. 0.9,0.999") from None


PARSERS: dict[str, Callable[[str, str], object]] = {"sizes": _sizes, "box": _box, "betas": _betas}
