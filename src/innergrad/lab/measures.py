"""What is watched during training: functions of the learner, called at log-spaced steps.

    lab.train(one, measures={"distance": lambda learner: learner.distance_to_identity(sigma)})

A function sees the whole stack, and gives numbers: a tensor, a number, or lists and dicts of them. It is called before
the first step, after steps 1, 2, 3, 4, 5, 6, 8, 10, 13, ..., ten a decade, and after the last one. It changes nothing
in the run: weights, log and random numbers are those of a run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab.experiments import log_spaced
from innergrad.lab.learners.base import Learner
from innergrad.lab.stack import Stack

PER_DECADE = 10
Measures = Mapping[str, Callable[[Learner], Any]]
Row = dict[str, Any]


class Watch:
    """The measures of a run. ``rows``: what they gave, {"step": 10, "distance": [...]}, one a step that was watched.

    ``write`` is told about every new row.
    """

    def __init__(
        self,
        measures: Measures | None,
        steps: int,
        rows: Iterable[Row] = (),
        write: Callable[[Row], None] | None = None,
    ) -> None:
        self.measures, self.rows, self.write = dict(measures or {}), list(rows), write
        for name, function in self.measures.items():
            if not callable(function) or name == "step":
                allowed = "names, other than step, and functions of the learner"
                raise InputError("measures are functions by name", got=f"{name}: {function!r}", allowed=allowed)
        self.plan(steps)

    def plan(self, steps: int) -> None:
        """Another number of steps; see ``Stack.plan``."""
        self.steps = log_spaced(steps, PER_DECADE) if self.measures else ()

    def run(self, stack: Stack, step: int, end: int, n: int) -> None:
        """Takes the steps from ``step`` to ``end``, on prompts of n points, and looks wherever it is time."""
        if step == 0:
            self.look(stack.learner, 0)
        for stop in [*(one for one in self.steps if step < one < end), end]:
            stack.run(stop - step, n)
            step = stop
            self.look(stack.learner, step)

    def look(self, learner: Learner, step: int) -> None:
        """Calls every function, if it is time, and no row has this step yet."""
        if step not in self.steps or any(row["step"] == step for row in self.rows):
            return
        with torch.no_grad():
            found = {name: _numbers(name, function(learner)) for name, function in self.measures.items()}
        self.rows.append(row := {"step": step, **found})
        if self.write:
            self.write(row)


def _numbers(name: str, value: Any) -> Any:
    """For JSON: tensors become lists."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    if isinstance(value, Mapping):
        return {str(key): _numbers(name, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(name, one) for one in value]
    if isinstance(value, int | float) or value is None:
        return value
    allowed = "a tensor, a number, or lists and dicts of them"
    raise InputError(f"the measure {name} gives no numbers", got=type(value).__name__, allowed=allowed)
