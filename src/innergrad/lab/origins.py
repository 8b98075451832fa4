"""Where the weights of a run come from, besides its seed: other weights that it began with, and changes of its plan.

    start      the weights that it began with: from where, and their digest; None for those that the seed draws
    planned    (step, steps): at this step, the run was planned for so many steps; more than one if it is trained longer

The learning rate of a step follows the plan of its time. So these two, the experiments and the number of the step say
what the weights are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from innergrad.errors import plural


@dataclass(frozen=True)
class Origin:
    """See the module."""

    start: Mapping[str, Any] | None = None
    planned: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Origin | None:
        """As a checkpoint has it; None if what it has is no such thing."""
        start, planned = meta.get("start"), meta.get("planned") or [[0, _steps(meta)]]
        pairs = isinstance(planned, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in planned)
        if not pairs or not all(type(number) is int for pair in planned for number in pair):
            return None
        if start is not None and not isinstance(start, dict):
            return None
        return cls(start, tuple((step, steps) for step, steps in planned))

    def meta(self) -> dict[str, Any]:
        """For a checkpoint; empty for a run like most."""
        start = {} if self.start is None else {"start": dict(self.start)}
        return start | ({"planned": [list(pair) for pair in self.planned]} if self.planned[1:] else {})

    def news(self, steps: int) -> dict[str, Any]:
        """What a manifest should say now: where a new run begins, or that an old one becomes longer."""
        if not self.planned:
            return {} if self.start is None else {"start": dict(self.start)}
        before = self.planned[-1][1]
        return {} if before == steps else {"steps": {"before": before, "now": steps}}

    def planned_for(self, step: int, steps: int) -> Origin:
        """The same, planned for so many steps from this step on."""
        if self.planned and self.planned[-1][1] == steps:
            return self
        return replace(self, planned=(*self.planned, (step, steps)))

    def notes(self) -> list[str]:
        """What a reader of results should know."""
        found = []
        if self.start is not None:
            found.append(f"training began with the weights of {self.start.get('from', 'another learner')}")
        for (_, before), (step, steps) in zip(self.planned, self.planned[1:], strict=False):
            words = f"at step {step:,} of {before:,} it was planned for {plural(steps, 'step')}"
            found.append(f"the run was trained longer: {words}, and the learning rate follows that plan from there on")
        return found


def _steps(meta: Mapping[str, Any]) -> object:
    """The steps that the experiments of a checkpoint are planned for."""
    tables = meta.get("experiments") or [{}]
    train = tables[0].get("train")
    return train.get("steps") if isinstance(train, dict) else None
