"""The findings of verification: laws, and measured errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from innergrad.functions.states import StateName

#: law -> what its value and its limit are sizes of
UNITS = {
    "weights": "error of an entry",
    "probe": "error of an entry",
    "proof": "error of a function",
    "fit": "error of a function",
    "declared": "error of a function",
    "approximation": "error of an entry",
    "gradient": "error, in epsilons",
    "oracle": "difference of an entry",
    "examples": "difference of an entry",
    "shared": "difference of tokens",
    "scratch": "entry that is left",
    "inputs": "change of an entry",
    "box": "distance outside",
}


@dataclass(frozen=True)
class Law:
    """One checked law: ``value`` must not exceed ``limit``; ``where`` names the layer or lane of the worst case."""

    name: str
    value: float
    limit: float
    where: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    @property
    def unit(self) -> str:
        """What value and limit are sizes of."""
        return UNITS.get(self.name, "")


class WorstCase:
    """A law while it is being checked: keeps the largest value / limit seen. limit: where no other is given."""

    def __init__(self, name: str, limit: float) -> None:
        self.limit, self.law, self.used = limit, Law(name, 0.0, limit), 0.0

    def see(self, value: float, where: str, limit: float | None = None) -> None:
        limit = self.limit if limit is None else limit
        value = math.inf if math.isnan(value) else value
        used = 0.0 if value == 0.0 else value / limit if limit else math.inf
        if used > self.used or (used == self.used == math.inf and value > self.law.value):
            self.used, self.law = used, Law(self.law.name, value, limit, where)

    def unchecked(self, reason: str) -> None:
        """The text for a law that saw nothing."""
        self.law = replace(self.law, where=f"not checked: {reason}")


@dataclass(frozen=True)
class Report:
    """All laws, and per step: ||w - w_oracle||, the error of the update direction in units of epsilon, ramp hits.

    For an algorithm without weights, its predictions take their place. state: of the functions: exact, proven, measured
    or declared. notes: why it is one of the last two, a sentence each. proven: it is one of the first two; otherwise
    nothing here is a certificate.
    """

    laws: tuple[Law, ...]
    distance: list[float]
    step_error: list[float]
    ramp_hits: list[int]
    epsilon: float
    proven: bool = True
    learned: str = "weights"
    state: StateName = "proven"
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return all(law.holds for law in self.laws)

    def to_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "laws": [{**vars(law), "holds": law.holds} for law in self.laws],
            "distance": self.distance,
            "step_error_over_epsilon": self.step_error,
            "ramp_hits": self.ramp_hits,
            "epsilon": self.epsilon,
            "proven": self.proven,
            "state": self.state,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [f"{'law':<16}{'value':>12}{'limit':>12}   {'of what':<24}result"]
        lines += [
            f"{law.name:<16}{law.value:>12.2e}{law.limit:>12.2e}   {law.unit:<24}{'holds' if law.holds else 'FAILS'}"
            f"{f' (worst: {law.where})' if law.where else ''}"
            for law in self.laws
        ]
        return "\n".join([*lines, "", self.summary()])

    def summary(self) -> str:
        errors, last = sorted(self.step_error), f"{self.distance[-1]:.2e}"
        sizes = f"median {errors[len(errors) // 2]:.2f}, max {errors[-1]:.2f} times epsilon = {self.epsilon:g}"
        if self.learned == "weights":
            text = f"error of the gradient per step: {sizes}; ||w - w_oracle|| after the last step: {last}"
        else:
            text = f"error of the predictions per step: {sizes}; distance to the exact ones after the last step: {last}"
        text += f"; ramp hits: {sum(self.ramp_hits)}"
        if not self.proven:
            text += f"; no certificate, for functions are {self.state}: {'; '.join(self.notes)}"
        return text
