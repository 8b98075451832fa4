"""Explanations: bound and measured error side by side, attribution, the health table; in words, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from innergrad import figures
from innergrad.figures import BLUE, ORANGE, SMALL
from innergrad.functions.states import StateName

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HUGE = 1e4  # an axis ends before bounds so much above every measured error, lest all else be squeezed

#: row of the health table -> what its value and its limit are sizes of
UNITS = {
    "error growth": "measured / bound",
    "range use": "part of the range",
    "rounding share": "part of the bound",
    "cancellation in products": "bits lost",
    "softmax leakage": "part of a value",
}


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
    """The largest error of the lanes that a layer wrote, when the algorithm starts the step from the transformer's own
    state.
    """

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

    @property
    def unit(self) -> str:
        """What value and limit are sizes of."""
        return UNITS.get(self.name, "")


@dataclass(frozen=True)
class Explanation:
    """Errors by step and, of the step ``worst`` (from 1) with the largest measured error, by layer; shares of the bound
    by function, layer and instruction, largest first, adding up to one; the health table.

    proven: the bounds follow from proven errors of the approximants; else from their errors at the arguments. state: of
    the functions. notes: further assumptions that a reader should know, as in a certificate. size: of the algorithm's
    own weights (or state) after the last step, as a norm: a bound on the path that is larger says nothing.
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
    state: StateName = "proven"
    notes: tuple[str, ...] = ()
    size: float = math.inf

    @property
    def useful(self) -> bool:
        """The bound on the path says something: there is one, and it is smaller than what it is about."""
        last = self.steps[-1].path_bound
        return last is not None and last < self.size

    @property
    def violations(self) -> list[str]:
        """Bounds that a measured error is above: there must be none.

        The exact program beside the transformer is run in float64, and rounds as well. Where a bound is rounding alone
        (state ``exact``), both runs are within it, so they may be twice as far apart.
        """
        runs = 2 if self.state == "exact" else 1
        found = [
            *((f"step {n}", step.measured, step.bound) for n, step in enumerate(self.steps, 1)),
            *((f"path after step {n}", s.path, s.path_bound) for n, s in enumerate(self.steps, 1)),
            *((f"layer {layer.name}", layer.measured, layer.bound) for layer in self.layers),
        ]
        return [
            f"{where}: measured {measured:.3e}, certified to be at most {bound:.3e}"
            for where, measured, bound in found
            if bound is not None and not measured <= runs * bound
        ]

    @property
    def well(self) -> bool:
        """Every row of the health table is green."""
        return all(row.green for row in self.health)

    @property
    def shares(self) -> dict[str, Mapping[str, float]]:
        """Kind of source -> source -> its share of the bound."""
        return {"function": self.functions, "layer": self.by_layer, "instruction": self.instructions}

    def to_json(self) -> dict[str, Any]:
        """Infinite numbers are null."""
        return {
            "steps": [_finite(vars(step)) for step in self.steps],
            "worst_step": self.worst,
            "layers": [_finite(vars(layer)) for layer in self.layers],
            "shares": {name: dict(shares) for name, shares in self.shares.items()},
            "health": [_finite(vars(row)) for row in self.health],
            "learned": self.learned,
            "proven": self.proven,
            "state": self.state,
            "notes": list(self.notes),
            "violations": self.violations,
        }

    def __str__(self) -> str:
        lines = [*self.tables(), "", f"{'health':<26}{'value':>11}{'limit':>11}   {'of what':<20}"]
        lines += [
            f"{row.name:<26}{row.value:>11.3g}{row.limit:>11.3g}   {row.unit:<20}"
            f"{'green' if row.green else 'RED'}: {row.reason}"
            for row in self.health
        ]
        return "\n".join(lines)

    def tables(self) -> list[str]:
        """Errors and attribution as lines of text."""
        head = f"{'bound':>11}{'measured':>11}"
        lines = [f"{f'error of the {self.learned} in':<26}{head}{'path bound':>15}{'measured':>11}"]
        for number, step in enumerate(self.steps, 1):
            along = "not computed" if step.path_bound is None else f"{step.path_bound:.3e}"
            lines.append(f"step {number:<21}{step.bound:>11.3e}{step.measured:>11.3e}{along:>15}{step.path:>11.3e}")
        lines += ["", f"largest error of a layer's output, in step {self.worst}", f"{'':<26}{head}"]
        lines += [f"{layer.name:<26}{layer.bound:>11.3e}{layer.measured:>11.3e}" for layer in self.layers]
        for name, shares in self.shares.items():
            shown = {source: share for source, share in shares.items() if share >= 0.001}
            rest = 1.0 - sum(shown.values())
            others = {"all others": rest} if rest > 0.0005 else {}
            lines += ["", f"share of the bound by {name}"]
            lines += [f"{share:>8.1%}  {source}" for source, share in (shown | others).items()]
        lines += ["", *self.notes] if self.notes else []
        return [*lines, *(f"VIOLATION: {text}" for text in self.violations)]


def _finite(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}


# -------------------------------------------------------------------------------------------------------------- figure


def draw(explanation: Explanation, path: Path | str, mark: str | None = None) -> None:
    """Write a PNG, bound and measured error on one axis: on the left by step, on the right, of the worst step, by
    layer. mark: as in ``figures.save``.
    """
    with figures.new(1, 2, size=(13, 5)) as (figure, (left, right)):
        _draw_steps(left, explanation)
        draw_layers(right, explanation)
        figures.save(figure, path, mark=mark)


def _draw_steps(ax: Axes, explanation: Explanation) -> None:
    steps, within, path = explanation.steps, f"{explanation.learned} of a step", "distance to the exact path"
    along = [math.nan if step.path_bound is None else step.path_bound for step in steps]
    inner = {"ls": "-", "marker": "o", "ms": 4.0, "lw": 2.0}
    outer = inner | {"ls": ":", "marker": "s"}
    lines = [
        ([step.bound for step in steps], {"color": BLUE, "label": f"{within}: bound"} | inner),
        ([step.measured for step in steps], {"color": ORANGE, "label": f"{within}: measured"} | inner),
        (along, {"color": BLUE, "label": f"{path}: bound"} | outer),
        ([step.path for step in steps], {"color": ORANGE, "label": f"{path}: measured"} | outer),
    ]
    shown = [line for line in lines if not all(map(math.isnan, line[0]))]  # no path bound, no line
    measured = max(max(step.path, step.measured) for step in steps)
    figures.log_lines(ax, range(1, len(steps) + 1), shown, HUGE * measured if measured > 0.0 else math.inf)
    ax.legend()
    kind = "sup errors" if explanation.proven else "errors at the arguments"
    ax.set(title=f"Error by step (bounds from {kind})", xlabel="step", ylabel="Euclidean norm")
    ax.set(xlim=(0.5, len(steps) + 0.5))
    figures.whole_numbers(ax)


def draw_layers(ax: Axes, explanation: Explanation) -> None:
    """Bound and measured error of every layer, of the worst step."""
    layers = explanation.layers[-40:]
    bars = {"color": BLUE, "marker": "_", "ms": 14, "label": "bound", "ls": "", "mew": 3}
    dots = {"color": ORANGE, "marker": "o", "ms": 6, "label": "measured", "ls": "", "mew": 3}
    lines = [([layer.bound for layer in layers], bars), ([layer.measured for layer in layers], dots)]
    figures.log_lines(ax, range(len(layers)), lines)
    ax.legend()
    names, size = [layer.name for layer in layers], SMALL if len(layers) < 20 else 6
    ax.set_xticks(range(len(layers)), names, rotation=40, ha="right", fontsize=size)
    ax.set(title=f"Largest error of a layer's output, step {explanation.worst}", ylabel="largest entry")
