"""docs/lab.png: errors of the trained learners against the number of examples, beside their references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.lab.evaluation import MODEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What a curve is -> its colour and line.
LOOKS = {
    MODEL: (figures.GREEN, "-"),
    "reference": (figures.DARK, "--"),
    "ridge": (figures.ORANGE, "-"),
    "mean": (figures.GREY, ":"),
}
LABELS = {MODEL: "transformer, in context", "ridge": "ridge, tuned", "mean": "mean of the labels"}


def draw(stored: dict[str, Any], path: Path) -> None:
    """Error against the number of examples, one panel a task, with the bootstrap interval of the model."""
    models = stored["models"]
    with figures.new(1, len(models), size=(4.6 * len(models), 4.2)) as (figure, axes):
        for ax, (title, about) in zip(axes, models.items(), strict=True):
            _panel(ax, about)
            ax.set_title(title[0].upper() + title[1:], loc="left")
        axes[0].set_ylabel("squared error / mean square of a label")
        figures.save(figure, path)
    print(f"wrote {path.name}")


def _panel(ax: Axes, about: dict[str, Any]) -> None:
    for name, rows in sorted(about["curves"].items(), key=lambda item: item[0] == MODEL):
        part = [row for row in rows["squared error"] if row["value"] and (name != "mean" or row["k"])]
        ks, values = [row["k"] for row in part], [row["value"] for row in part]
        role = name if name in (MODEL, "mean") else "reference" if name == about["reference"] else "ridge"
        colour, line = LOOKS[role]
        ax.plot(ks, values, line, color=colour, lw=2.2 if role == MODEL else 1.3, label=LABELS.get(role, name))
        if role == MODEL:
            low, high = [row["low"] for row in part], [row["high"] for row in part]
            ax.fill_between(ks, low, high, color=colour, alpha=0.2, lw=0)
    if "fitted" in about:
        name, rows = best_network(about["fitted"]["curves"])
        ks, values = [row["k"] for row in rows], [row["value"] for row in rows]
        ax.plot(ks, values, "o", color=figures.BLUE, ms=5, label=name)
    lowest = min(row["value"] for row in about["curves"][MODEL]["squared error"])
    ax.set(yscale="log", xlabel="examples in the prompt", ylim=(lowest / 2, 1.6), xlim=(0, None))
    ax.yaxis.set_major_formatter("{x:g}")
    if lowest > 0.05:
        ax.yaxis.set_minor_formatter("{x:g}")
        ax.tick_params(axis="y", which="minor", labelsize=7)
    ax.legend()


def best_network(fitted: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The rate and epoch of trained networks with the least error, summed over the lengths."""
    errors = {name: rows["squared error"] for name, rows in fitted.items() if name.endswith("pooled epoch")}
    name = min(errors, key=lambda one: sum(row["value"] for row in errors[one]))
    return "network trained on the prompt", errors[name]
