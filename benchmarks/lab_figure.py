"""docs/lab.png: errors of the trained learners against the number of examples, beside their references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from innergrad.lab.evaluation import MODEL

COLOURS = {MODEL: "#0b6e4f", "reference": "#111111", "ridge": "#c8553d", "trained": "#3b6fb6", "mean": "#9a9a9a"}


def draw(stored: dict[str, Any], path: Path) -> None:
    """Error against the number of examples, one panel a task, with the bootstrap interval of the model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = stored["models"]
    figure, axes = plt.subplots(
        1, len(models), figsize=(4.3 * len(models), 3.9), constrained_layout=True, squeeze=False
    )
    for axis, (title, about) in zip(axes[0], models.items(), strict=True):
        reference = about["reference"]
        for name, rows in sorted(about["curves"].items(), key=lambda item: item[0] == MODEL):
            part = [row for row in rows["squared error"] if row["value"] and (name != "mean" or row["k"])]
            ks, values = [row["k"] for row in part], [row["value"] for row in part]
            role = name if name in (MODEL, "mean") else "reference" if name == reference else "ridge"
            style = {"reference": "--", MODEL: "-", "mean": ":"}.get(role, "-")
            label = {MODEL: "transformer, in context", "ridge": "ridge, tuned", "mean": "mean of the labels"}.get(
                role, name
            )
            axis.plot(ks, values, style, color=COLOURS[role], linewidth=2.2 if role == MODEL else 1.3, label=label)
            if role == MODEL:
                low, high = [row["low"] for row in part], [row["high"] for row in part]
                axis.fill_between(ks, low, high, color=COLOURS[role], alpha=0.2, linewidth=0)
        if "fitted" in about:
            name, rows = best_network(about["fitted"]["curves"])
            axis.plot(
                [row["k"] for row in rows],
                [row["value"] for row in rows],
                "o",
                color=COLOURS["trained"],
                markersize=5,
                label=name,
            )
        lowest = min(row["value"] for row in about["curves"][MODEL]["squared error"])
        axis.set(yscale="log", xlabel="examples in the prompt", ylim=(lowest / 2, 1.6), xlim=(0, None))
        axis.set_title(title[0].upper() + title[1:], loc="left", fontsize=11)
        axis.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        if lowest > 0.05:
            axis.yaxis.set_minor_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            axis.tick_params(axis="y", which="minor", labelsize=7)
        axis.legend(fontsize=8, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
    axes[0, 0].set_ylabel("squared error / mean square of a label")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"wrote {path.name}")


def best_network(fitted: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The rate and epoch of trained networks with the least error, summed over the lengths."""
    errors = {name: rows["squared error"] for name, rows in fitted.items() if name.endswith("pooled epoch")}
    name = min(errors, key=lambda one: sum(row["value"] for row in errors[one]))
    return "network trained on the prompt", errors[name]
