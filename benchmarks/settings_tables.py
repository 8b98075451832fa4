"""The tables of docs/settings.md: every setting of the lab with its default, from the classes that have them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

from innergrad.config import Family
from innergrad.lab.baselines import Predictor
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.base import LearnerConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Inputs, Task

FAMILIES: dict[str, tuple[str, type[Family]]] = {
    "tasks": ("task", Task),
    "inputs": ("task.inputs", Inputs),
    "learners": ("learner", LearnerConfig),
    "baselines": ("", Predictor),
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
    **{f"settings_{name}": partial(settings, name) for name in FAMILIES},
}
