"""What an explanation says: bound and measured error side by side, attribution, and the health table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepError:
    """One step: the error of the gradient given the weights before it, and the distance to the algorithm's own path;
    path_bound is None if it was not computed, infinite if it diverged. Without weights, both are about the state.
    """

    bound: float
    measured: float
    path_bound: float | None
    path: float


@dataclass(frozen=True)
class LayerError:
    """The largest error of what a layer wrote, when the algorithm starts the step from the transformer's own state."""

    name: str
    bound: float
    measured: float


@dataclass(frozen=True)
class Health:
    """One row of the health table: green or red, and why in a sentence."""

    name: str
    value: float
    limit: float
    green: bool
    reason: str


@dataclass(frozen=True)
class Explanation:
    """Errors by step and, of the step ``worst`` (from 1) with the largest measured error, by layer; shares of the bound
    by function, layer and instruction, largest first, adding up to one; the health table.

    proven: the bounds follow from proven errors of the approximants; else from their errors at the arguments.
    """

    steps: tuple[StepError, ...]
    worst: int
    layers: tuple[LayerError, ...]
    functions: Mapping[str, float]
    by_layer: Mapping[str, float]
    instructions: Mapping[str, float]
    health: tuple[Health, ...]
    learned: str
    proven: bool

    @property
    def violations(self) -> list[str]:
        """Bounds that a measured error is above: there must be none."""
        found = [
            *((f"step {n}", step.measured, step.bound) for n, step in enumerate(self.steps, 1)),
            *((f"path after step {n}", s.path, s.path_bound) for n, s in enumerate(self.steps, 1)),
            *((f"layer {layer.name}", layer.measured, layer.bound) for layer in self.layers),
        ]
        return [
            f"{where}: measured {measured:.3e}, certified to be at most {bound:.3e}"
            for where, measured, bound in found
            if bound is not None and not measured <= bound
        ]

    @property
    def well(self) -> bool:
        """Every row of the health table is green."""
        return all(row.green for row in self.health)

    def to_json(self) -> dict[str, Any]:
        """What is infinite is null."""
        return {
            "steps": [_finite(vars(step)) for step in self.steps],
            "worst_step": self.worst,
            "layers": [_finite(vars(layer)) for layer in self.layers],
            "shares": {
                "function": dict(self.functions),
                "layer": dict(self.by_layer),
                "instruction": dict(self.instructions),
            },
            "health": [_finite(vars(row)) for row in self.health],
            "learned": self.learned,
            "proven": self.proven,
            "violations": self.violations,
        }

    def __str__(self) -> str:
        lines = [*self.tables(), "", f"{'health':<26}{'value':>11}{'limit':>11}"]
        lines += [
            f"{row.name:<26}{row.value:>11.3g}{row.limit:>11.3g}   {'green' if row.green else 'RED'}: {row.reason}"
            for row in self.health
        ]
        return "\n".join(lines)

    def tables(self) -> list[str]:
        """Errors and attribution as lines of text."""
        head = f"{'':<26}{'bound':>11}{'measured':>11}"
        lines = [
            f"{f'error of the {self.learned} in':<26}{'bound':>11}{'measured':>11}{'path bound':>15}{'measured':>11}"
        ]
        for number, step in enumerate(self.steps, 1):
            along = "not computed" if step.path_bound is None else f"{step.path_bound:.3e}"
            text = f"step {number}"
            lines.append(f"{text:<26}{step.bound:>11.3e}{step.measured:>11.3e}{along:>15}{step.path:>11.3e}")
        lines += ["", f"largest error of what a layer wrote, in step {self.worst}", head]
        lines += [f"{layer.name:<26}{layer.bound:>11.3e}{layer.measured:>11.3e}" for layer in self.layers]
        for name, shares in (
            ("function", self.functions),
            ("layer", self.by_layer),
            ("instruction", self.instructions),
        ):
            shown = [(source, share) for source, share in shares.items() if share >= 0.001]
            rest = 1.0 - sum(share for _, share in shown)
            lines += ["", f"share of the bound by {name}"]
            lines += [f"{share:>8.1%}  {source}" for source, share in shown]
            lines += [f"{rest:>8.1%}  all others"] if rest > 0.0005 else []
        return [*lines, *(f"VIOLATION: {text}" for text in self.violations)]


def _finite(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
