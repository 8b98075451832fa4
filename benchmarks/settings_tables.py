"""The tables of docs/settings.md: every setting of the lab with its default, from the classes that have them.

python benchmarks/settings_tables.py     writes the same for the command line, which checks settings without torch
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from innergrad import cli
from innergrad.cli.lab_settings import FILE
from innergrad.config import Family, to_table
from innergrad.lab.baselines import Predictor
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.base import LearnerConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Inputs, Task, tables
from innergrad.lab.tasks.covariances import KernelTerm

FAMILIES: dict[str, tuple[str, type[Family]]] = {
    "tasks": ("task", Task),
    "inputs": ("task.inputs", Inputs),
    "learners": ("learner", LearnerConfig),
    "baselines": ("", Predictor),
    "table_rows": ("task.rows", tables.Rows),
    "table_columns": ("task.columns", tables.Column),
    "table_derived": ("task.derived", tables.Derived),
    "table_functions": ("task.functions", tables.Function),
    "table_noises": ("task.noises", tables.Noise),
    "table_labels": ("task.labels", tables.Label),
    "table_rules": ("task.rules", tables.ClassRule),
}


def settings(name: str) -> list[str]:
    """Every kind of a family, with its settings and their defaults."""
    key, family = FAMILIES[name]
    lines = [f"| `{key}.kind` | settings |" if key else "| name | settings |", "|---|---|"]
    shipped = {kind: cls for kind, cls in family.kinds.items() if cls.__module__.startswith("innergrad.")}
    for kind, cls in sorted(shipped.items()):
        lines.append(f"| `{kind}` | {_defaults(cls)} |")
    return lines


def run_settings() -> list[str]:
    """What the other tables of a configuration have."""
    rows = (("", Experiment), ("train", TrainConfig), ("train.optimiser", Optimiser), ("train.curriculum", Curriculum))
    lines = ["| table | settings |", "|---|---|"]
    return lines + [f"| {f'`{name}`' if name else 'the file itself'} | {_defaults(cls)} |" for name, cls in rows]


def table_settings() -> list[str]:
    """The parts of tables that have no kinds."""
    rows = (("task.strength", tables.Strength), ("task.missing", tables.Missing))
    return ["| table | settings |", "|---|---|"] + [f"| `{name}` | {_defaults(cls)} |" for name, cls in rows]


def _defaults(cls: Any) -> str:
    """Fields that a configuration can set: "`a = 1`, `b = none`"."""
    hints = get_type_hints(cls)
    found = []
    for field in fields(cls):
        if field.init:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            words = [f"{field.name}", *([] if default is MISSING else [f"= {_written(default)}"])]
            choices = get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else ()
            others = [str(choice) for choice in choices if choice != default]
            found.append(f"`{' '.join(words)}`" + (f" (or {', '.join(others)})" if others else ""))
    return ", ".join(found) or "none"


def _written(value: Any) -> str:
    """A default in short: a table by its kind, long lists by their ends."""
    if value is None:
        return "none"
    if is_dataclass(value):
        return f"{{kind = {value.kind}}}" if isinstance(value, Family) else "{...}"
    if isinstance(value, tuple):
        short = [*value[:2], "...", *value[-1:]] if len(value) > 6 else value
        return f"[{', '.join(one if one == '...' else _written(one) for one in short)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


TABLES: dict[str, Callable[[], list[str]]] = {
    "settings_run": run_settings,
    "settings_table_parts": table_settings,
    **{f"settings_{name}": partial(settings, name) for name in FAMILIES},
}


# ----------------------------------------------------------------------------------------------------- the command line

PARTS: tuple[type, ...] = (Curriculum, Optimiser, KernelTerm, tables.Strength, tables.Missing)
CLASSES = (*PARTS, TrainConfig, Experiment)  # parts first
BASES: dict[str, type[Family]] = {
    "Task": Task,
    "Inputs": Inputs,
    "LearnerConfig": LearnerConfig,
    "Predictor": Predictor,
    "Rows": tables.Rows,
    "Column": tables.Column,
    "Derived": tables.Derived,
    "Function": tables.Function,
    "Noise": tables.Noise,
    "Label": tables.Label,
    "ClassRule": tables.ClassRule,
}


def outline() -> dict[str, Any]:
    """What ``innergrad.cli.lab_settings`` reads: keys, types and defaults of every class that is shipped."""
    families = {
        name: {
            kind: _fields(cls) for kind, cls in sorted(base.kinds.items()) if cls.__module__.startswith("innergrad.")
        }
        for name, base in BASES.items()
    }
    return {"tables": {cls.__name__: _fields(cls) for cls in CLASSES}, "families": families}


def _fields(cls: Any) -> dict[str, list[Any]]:
    hints, found = get_type_hints(cls), dict[str, list[Any]]()
    for field in fields(cls):
        if field.init:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            found[field.name] = [_type(hints[field.name]), *([] if default is MISSING else [_plain(default)])]
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_table(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _type(hint: Any) -> str:
    """See ``innergrad.cli.lab_settings``. A function, which no file can have, is left out."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        given = [one for one in arguments if one is not type(None) and get_origin(one) in (None, tuple)]
        return ("none or " if type(None) in arguments else "") + _type(given[0])
    if origin is Literal:
        return "|".join(arguments)
    if origin is tuple:
        return f"{_type(arguments[0])}..." if arguments[-1] is ... else " ".join(map(_type, arguments))
    return f"@{hint.__name__}" if is_dataclass(hint) or issubclass(hint, Family) else str(hint.__name__)


if __name__ == "__main__":
    path = Path(cli.__file__).parent / FILE
    path.write_text(json.dumps(outline(), indent=1) + "\n")
