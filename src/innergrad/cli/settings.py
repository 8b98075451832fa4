"""Settings of a model from flags and from a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innergrad.algorithms import GradientDescent
from innergrad.compiler import compile
from innergrad.errors import InputError
from innergrad.networks import Network
from innergrad.transformer import CompiledTransformer

NETWORK = ("sizes", "activation", "output", "bias")
ALGORITHM = ("loss", "lr", "steps", "box", "momentum", "weight_decay")
COMPILE = ("epsilon", "n_examples", "x_bound", "y_bound", "z_bound")
SECTIONS = {"network": NETWORK, "algorithm": ALGORITHM, "compile": COMPILE}


def settings(config: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a TOML file with sections [network], [algorithm], [compile]; flags that were given override it."""
    chosen: dict[str, Any] = {} if config is None else _read_config(config)
    known = (*NETWORK, *ALGORITHM, *COMPILE)
    chosen |= {name: value for name, value in flags.items() if name in known and value is not None}
    if isinstance(chosen.get("sizes"), str):
        try:
            chosen["sizes"] = [int(part) for part in chosen["sizes"].split(",")]
        except ValueError:
            raise InputError("sizes must be integers", got=repr(chosen["sizes"]), allowed="e.g. 3,8,8,1") from None
    if isinstance(chosen.get("box"), str):
        chosen["box"] = _box(chosen["box"])
    return chosen


def _box(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError("box must be a number or 'none'", got=repr(text)) from None


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a TOML file") from error
    chosen: dict[str, Any] = {}
    for section, values in content.items():
        if section not in SECTIONS or not isinstance(values, dict):
            allowed = "[network], [algorithm] and [compile], each with its settings below it"
            raise InputError(f"unknown section in {path}", got=f"[{section}]", allowed=allowed)
        for name, value in values.items():
            if name not in SECTIONS[section]:
                raise InputError(
                    f"unknown setting in [{section}] of {path}", got=name, allowed=", ".join(SECTIONS[section])
                )
            chosen[name] = value
    return chosen


def compile_settings(chosen: Mapping[str, Any]) -> CompiledTransformer:
    if "sizes" not in chosen:
        raise InputError("the network's sizes are missing", hint="give --sizes 3,8,8,1, or sizes in a --config file")

    def part(names: Sequence[str]) -> dict[str, Any]:
        return {name: chosen[name] for name in names if name in chosen}

    return compile(GradientDescent(Network(**part(NETWORK)), **part(ALGORITHM)), **part(COMPILE))
