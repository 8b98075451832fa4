"""The tables of docs/lab.md, from results/training_*.json and results/lab_*.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from statistics import mean, stdev
from typing import Any, Literal, get_args, get_origin, get_type_hints

from _results import RESULTS, read
from innergrad.config import Family
from innergrad.lab import baselines  # noqa: F401 (its predictors are listed)
from innergrad.lab.baselines import Predictor
from innergrad.lab.learner import LearnerConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Inputs, Task
from innergrad.lab.training import Curriculum, Experiment, TrainConfig

DEVICES = ("cuda", "cpu")
KS = (10, 20, 30, 40, 50)
PARTS = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a stored curve of losses


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


def _stored(what: str) -> list[dict[str, Any]]:
    """Results of benchmarks/training.py, one a kind of device that was measured."""
    names = [f"training_{what}_{device}" for device in DEVICES]
    return [read(name) for name in names if (RESULTS / f"{name}.json").exists()]


def _where(content: dict[str, Any]) -> str:
    threads = content["settings"]["threads"]
    alone = f", {threads} thread{'s' * (threads > 1)}" if content["settings"]["cuda"] is None else ""
    return f"{content['device']}{alone}{', small model' * ('--small' in content['manifest']['command'])}"


def training_speed() -> list[str]:
    """Model-steps a second: the median of three timings, and the extremes."""
    lines = ["| device | loop | model-steps / s | against the reference | of the peak | first step |", "|---" * 6 + "|"]
    for content in _stored("speed"):
        where = _where(content)
        rows: list[tuple[str, dict[str, Any]]] = [("reference", content["reference"][0])]
        rows += [(f"lab, stack of {row['stack']}", row) for row in content["stacks"]]
        for name, row in rows:
            rate = f"{row['steps_a_second']:,.1f} ({row['slowest']:,.1f} – {row['fastest']:,.1f})"
            ratio = f"{row['against_reference']:.2f}" if "against_reference" in row else "1"
            first = f"{row['first_step_seconds']:.1f} s" if "first_step_seconds" in row else ""
            share = f"{row['mfu']:.1%}" if "mfu" in row else ""
            lines.append(f"| {where} | {name} | {rate} | {ratio} | {share} | {first} |")
    return lines


def training_target() -> list[str]:
    """Seconds until a loss is reached, all included."""
    lines = ["| device | target (least squares) | loop | reached after | steps | ratio |", "|---|---|---|---|---|---|"]
    for content in _stored("target"):
        goal = f"{content['target']:g} ({content['least_squares']:.3g})"
        for row in content["rows"]:
            ratio = ""
            if row["loop"] == "lab" and content["ratio"]:
                ratio = f"{content['ratio']:.1f}" + ("" if content["ratio_is"] == "exact" else " or more")
            when = f"{row['seconds']:.1f} s" if row["reached"] else f"not in {row['seconds']:.0f} s"
            cells = [_where(content), goal, f"{row['loop']}: {row['how']}", when, f"{row['steps']:,}", ratio]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def training_curve() -> list[str]:
    """Mean losses of windows of steps, over seeds; how far the loops are apart, and how far seeds are."""
    lines = [
        "| device | | " + " | ".join(f"{part:.0%} of the steps" for part in PARTS) + " |",
        "|---" * (len(PARTS) + 2) + "|",
    ]
    for content in _stored("curve"):
        rows = compare_curves(content["plain"], content["fast"])
        places = [round(part * len(content["plain"][0])) - 1 for part in PARTS]
        for name, values in rows.items():
            style = ".4f" if name.startswith("mean") else ".1e"
            lines.append(f"| {_where(content)} | {name} | " + " | ".join(f"{values[i]:{style}}" for i in places) + " |")
    return lines


def compare_curves(plain: list[list[float]], fast: list[list[float]]) -> dict[str, list[float]]:
    """Two loops from the same weights on the same data, a row a seed: what the table of curves says of every window."""
    of_plain, of_fast = (list(zip(*rows, strict=True)) for rows in (plain, fast))
    means = [(mean(a), mean(b)) for a, b in zip(of_plain, of_fast, strict=True)]
    pairs = [max(abs(p - f) for p, f in zip(a, b, strict=True)) for a, b in zip(of_plain, of_fast, strict=True)]
    return {
        "mean, reference in fp32": [a for a, _ in means],
        "mean, lab": [b for _, b in means],
        "difference of the means": [abs(a - b) for a, b in means],
        "standard deviation of the reference's seeds": [stdev(each) for each in of_plain],
        "largest difference of one seed": pairs,
    }


def lab_errors() -> list[str]:
    """Squared error / scale^2 of the three trained learners and of what they are compared with."""
    lines = ["| task | predictor | " + " | ".join(f"k = {k}" for k in KS) + " |", "|---" * (len(KS) + 2) + "|"]
    for task, about in read("lab_three_tasks")["models"].items():
        for name, measures in about["curves"].items():
            lines.append(f"| {task} | {_label(name)} | " + _cells(measures["squared error"]) + " |")
    return lines


def lab_claims() -> list[str]:
    """What is claimed of the three learners, and whether it holds."""
    lines = ["| claim | measured | bound | holds |", "|---|---|---|---|"]
    for row in read("lab_three_tasks")["claims"]:
        holds = "yes" if row["holds"] else "**no**"
        lines.append(f"| {row['claim']} | {row['value']:.4g} | {row['bound']} | {holds} |")
    return lines


def lab_full() -> list[str]:
    """Networks trained on every prompt and length, beside the others: pooled and within-prompt R^2."""
    stored = read("lab_full")
    lines = ["| predictor | measure | " + " | ".join(f"k = {k}" for k in KS) + " |", "|---" * (len(KS) + 2) + "|"]
    for name, measures in stored["curves"].items():
        for measure in ("pooled R^2", "within-prompt R^2"):
            lines.append(f"| {_label(name)} | {measure} | " + _cells(measures[measure]) + " |")
    sizes = f"{stored['n_prompts']:,} prompts of {stored['n_points']} points, {stored['fits']:,} fits"
    lines += ["", f"{sizes}, {stored['epochs']} epochs: {stored['seconds']:.0f} s in all on {stored['device']}."]
    return lines


def _label(name: str) -> str:
    return "**the trained transformer**" if name == "model" else name


def _cells(rows: list[dict[str, Any]]) -> str:
    """The values of a stored curve at KS; empty where there are none."""
    found = {row["k"]: row["value"] for row in rows}
    values = [found.get(k) for k in KS]
    return " | ".join("" if v is None else f"{v:.2g}" if abs(v) < 0.1 else f"{v:.3f}" for v in values)


TABLES: dict[str, Callable[[], list[str]]] = {
    "training_speed": training_speed,
    "training_target": training_target,
    "training_curve": training_curve,
    **{f"settings_{name}": partial(settings, name) for name in FAMILIES},
    "settings_run": run_settings,
    "lab_errors": lab_errors,
    "lab_claims": lab_claims,
    "lab_full": lab_full,
}
