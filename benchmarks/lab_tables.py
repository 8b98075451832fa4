"""The tables of docs/lab.md, from results/training_*.json and results/lab_*.json."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

from _results import RESULTS, read

DEVICES = ("cuda", "cpu")
KS = (10, 20, 30, 40, 50)
PARTS = (0.1, 0.25, 0.5, 0.75, 1.0)  # of a stored curve of losses


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


def training_attention() -> list[str]:
    """Model-steps a second with both attentions."""
    lines = ["| device | stack | softmax | ReLU | ratio |", "|---" * 5 + "|"]
    for content in _stored("attention"):
        for row in content["stacks"]:
            rates = f"{row['softmax']:,.0f} | {row['relu']:,.0f} | {row['relu_over_softmax']:.2f}"
            lines.append(f"| {_where(content)} | {row['stack']} | {rates} |")
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
    "training_attention": training_attention,
    "training_target": training_target,
    "training_curve": training_curve,
    "lab_errors": lab_errors,
    "lab_claims": lab_claims,
    "lab_full": lab_full,
}
