"""Configurations of the lab, checked without torch: which keys there are, which kinds, and what their values are.

The classes that have these settings need torch. ``lab_settings.json`` says of each its keys, their types and defaults;
``python benchmarks/settings_tables.py`` writes it from the classes, and a test compares. Here it becomes dataclasses
that do nothing, which :mod:`innergrad.config` fills as it fills the real ones, with the same errors. The real ones
check later what a value means, and which go together.

A type is int, float, bool, str; "a|b", names to choose among; "@Task", a class; "float...", a list; "float float", a
list of two; "none or ..." before any of them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Optional

from innergrad.config import Family, change, parse, read
from innergrad.errors import InputError

FILE = "lab_settings.json"
SIMPLE: Mapping[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}
COMMA = re.compile(r",(?![^\[]*\])")  # between values, but not inside brackets


@cache
def _classes() -> dict[str, Any]:
    """Name of a class, or of a family -> a dataclass with its fields, or the base of those of its kinds."""
    outline = json.loads(files("innergrad.cli").joinpath(FILE).read_text(encoding="utf-8"))
    made: dict[str, Any] = {name: dataclasses.dataclass(type(name, (Family,), {})) for name in outline["families"]}
    for name, fields in outline["tables"].items():  # a table comes after those that it has
        made[name] = _dataclass(name, fields, made)
    for family, kinds in outline["families"].items():
        for kind, fields in kinds.items():
            _dataclass(f"{family}-{kind}", fields, made, made[family], kind)
    return made


def _dataclass(
    name: str, fields: Mapping[str, Any], made: Mapping[str, Any], base: Any = object, kind: str = ""
) -> Any:
    told = {"kind": kind} if kind else {}
    cls: Any = type(base)(name, (base,), {}, **told)
    cls.__annotations__ = {key: _hint(text, made) for key, (text, *_) in fields.items()}
    for key, (text, *default) in fields.items():
        if default:
            setattr(cls, key, dataclasses.field(default_factory=_maker(text, default[0], made)))
    return dataclasses.dataclass(frozen=False, kw_only=True)(cls)


def _maker(text: str, default: Any, made: Mapping[str, Any]) -> Callable[[], Any]:
    if text.startswith("@") and text.endswith("..."):
        return lambda: tuple(parse(made[text[1:-3]], one) for one in default)
    if text.startswith("@"):
        return lambda: parse(made[text[1:]], default)
    return lambda: tuple(default) if isinstance(default, list) else default


def _hint(text: str, made: Mapping[str, Any]) -> Any:
    if text.startswith("none or "):
        return Optional[_hint(text.removeprefix("none or "), made)]  # noqa: UP045
    if text.endswith("..."):
        return tuple[_hint(text.removesuffix("..."), made), ...]  # type: ignore[misc]
    if " " in text:
        return tuple[tuple(_hint(part, made) for part in text.split())]  # type: ignore[misc]
    if text.startswith("@"):
        return made[text[1:]]
    return SIMPLE[text] if text in SIMPLE else Literal[tuple(text.split("|"))]


# --------------------------------------------------------------------------------------------------------------- checks


def check_configuration(path: Path, sets: Sequence[str] = (), grid: Sequence[str] = ()) -> None:
    """An error about a configuration file, or a change of it, that is wrong whatever the classes do."""
    table, experiment = read(path), _classes()["Experiment"]
    if "experiments" in table:
        stack = parse(_stack(), table, source=str(path)).experiments
    else:
        stack = (parse(experiment, table, source=str(path)),)
    of_one = [item for item in sets if item.startswith("experiments.")]
    of_all = [item for item in sets if item not in of_one]
    stack = tuple(change(one, of_all) for one in stack)
    change(_stack()(experiments=stack), of_one)
    _check_grid(stack[0], grid)


def _check_grid(experiment: Any, grid: Sequence[str]) -> None:
    """Every value of an axis, beside the first ones of the others."""
    axes: dict[str, list[str]] = {}
    for axis in grid:
        key, equals, text = axis.partition("=")
        if not equals or not text.strip():
            raise InputError("an axis of a grid is key=value,value,...", got=repr(axis), allowed="e.g. seed=0,1,2")
        axes.setdefault(key.strip(), [value.strip() for value in COMMA.split(text)])
    for key, values in axes.items():
        others = [f"{other}={found[0]}" for other, found in axes.items() if other != key]
        for value in values:
            change(experiment, [*others, f"{key}={value}"], what="--grid")


def check_shifts(config: Path, shifts: Sequence[str]) -> None:
    """The same of changes of a trained run's task. config: what the run was trained by."""
    for shift in shifts:
        if not shift.startswith("task."):
            raise InputError("only the task of a trained model can be changed", got=shift, allowed="task.<setting>=...")
    try:
        (trained,) = (parse(_classes()["Experiment"], read(config)),)
    except InputError:  # a stack, or a task of the user's own: who evaluates it sees
        return
    change(trained, shifts)


def check_baselines(names: Sequence[str]) -> None:
    """The same of baselines, "ridge:lam=0.1"."""
    family = _classes()["Predictor"]
    for text in names:
        kind, *settings = text.strip().split(":")
        if kind != "best" and all("=" in setting for setting in settings):
            change(parse(family, {"kind": kind}, source="baselines"), settings, what=f"baseline {kind}:")


@cache
def _stack() -> Any:
    return dataclasses.make_dataclass("Stack", [("experiments", _hint("@Experiment...", _classes()))])
