"""Bounds on the arguments of scalar functions, by propagating the lanes' bounds through one pass of the program.

Only functions without asymptotes (sin) need one: their approximants live on a bounded interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from innergrad.program import Attend, Expr, Program


def argument_bounds(program: Program, declared: Mapping[str, float], epsilon: float) -> dict[str, float]:
    """sup |argument| of every function by name, from the bounds of input and weight lanes (``declared`` overrides,
    e.g. x).

    Scratch lanes start each step at zero, so one pass through each loop suffices; approximants add epsilon to a
    function's size.
    """
    start = {
        lane.name: (0.0 if lane.role == "scratch" else declared.get(lane.name, lane.bound))
        for lane in program.stream.lanes
    }
    found: dict[str, float] = {}
    for layers in (*(loop.layers for loop in program.body), program.readout):
        bounds = dict(start)
        for layer in layers:
            after = dict(bounds)
            for instruction in layer.instructions:
                change = _change(program, instruction, bounds, epsilon, found)
                if program.stream[instruction.dst.lane].role == "scratch":
                    after[instruction.dst.lane] += change
            bounds = after
    return found


def _change(
    program: Program, instruction: Attend, bounds: Mapping[str, float], epsilon: float, found: dict[str, float]
) -> float:
    """A bound on what the instruction adds; notes the size of every argument in ``found``."""

    def size(expression: Expr) -> float:
        return sum(abs(view.coefficient) * bounds[view.lane] for view in expression)

    sizes, marked = program.label_sizes(instruction), {mark.lane for mark in program.marks}
    change = abs(instruction.scale) * size(instruction.value)
    if instruction.reduce == "mean" and {view.lane for view in instruction.value} <= marked and program.length:
        change /= program.length  # an entry is 1 on a single token
    for score in instruction.scores:
        argument = 0.0
        for query, key in score.pairs:
            labels = {label for view in (*query, *key) for label in view.labels} - set(instruction.dst.labels)
            parts = (size(query), size(key))
            argument += math.prod(sizes[label] for label in labels) * (0.0 if 0.0 in parts else parts[0] * parts[1])
        found[score.f.name] = max(found.get(score.f.name, 0.0), argument)
        change = 0.0 if change == 0.0 else change * (score.f.magnitude(argument) + epsilon)
    return change
