"""The tables of docs/coverage.md, from results/coverage.json, which ``python benchmarks/coverage.py`` makes. (They are
not in that file, because a package has its name.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _results import read

TARGETS = ("relu", "kernel", "gpt", "softmax", "sigma", "llama")
Cell = dict[str, Any]


class Reasons:
    """Refusals by number."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def cell(self, row: Cell) -> str:
        if "state" in row:
            return str(row["state"])
        if "failed" in row:
            return "FAILED"
        reason = row["reason"].replace("|", "\\|")
        if reason not in self.found:
            self.found.append(reason)
        return f"no ({self.found.index(reason) + 1})"

    def lines(self) -> list[str]:
        return ["", *(f"{number}. {reason}" for number, reason in enumerate(self.found, start=1))]


def _grid(rows: list[Cell], key: Callable[[Cell], str], column: str, columns: tuple[str, ...]) -> list[str]:
    reasons, lines = Reasons(), [f"| | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    for name in dict.fromkeys(map(key, rows)):
        found = {row[column]: reasons.cell(row) for row in rows if key(row) == name}
        lines.append(f"| {name} | {' | '.join(found[c] for c in columns)} |")
    return lines + reasons.lines()


def _where(rows: list[Cell]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["where"] for row in rows))


def activations_table() -> list[str]:
    rows = [row for row in read("coverage")["descent"] if row["loss"] == "squared"]
    return _grid(rows, lambda row: f"{row['activation']}, {row['output']}", "where", _where(rows))


def losses_table() -> list[str]:
    rows = [row for row in read("coverage")["descent"] if row["activation"] == "tanh"]
    return _grid(rows, lambda row: f"{row['loss']}, {row['output']}", "where", _where(rows))


def projections_table() -> list[str]:
    rows = read("coverage")["projections"]
    return _grid(rows, lambda row: str(row["projection"]), "where", _where(rows))


def others_table() -> list[str]:
    return _grid(read("coverage")["others"], lambda row: str(row["algorithm"]), "target", TARGETS)


def fits_table() -> list[str]:
    """What llama fits: units a neuron, the error on a grid, and that of the weights after five steps."""
    lines = ["| | epsilon | units | measured error | weights, after 5 steps |", "|---|---|---|---|---|"]
    for row in read("coverage")["fits"]:
        cells = (f"{row['epsilon']:.0e}", str(row["units"]), f"{row['error']:.0e}", f"{row['weights']:.0e}")
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "llama_fits": fits_table,
    "coverage_activations": activations_table,
    "coverage_losses": losses_table,
    "coverage_projections": projections_table,
    "coverage_algorithms": others_table,
}
