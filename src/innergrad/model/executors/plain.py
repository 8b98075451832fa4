"""The plain executor: the program, interpreted with the approximants of the weights. Readable, and differentiable."""

from __future__ import annotations

from collections.abc import Iterator

from innergrad.interpret import plain
from innergrad.interpret.tensors import ScalarFunction
from innergrad.ir.stream import State
from innergrad.model.executors.base import Layered, Step
from innergrad.model.guard import Guard


class Plain(Layered):
    """Arguments of functions go past the guard, so the functions themselves need not check them."""

    def _layers(self, state: State, guard: Guard, readout: bool) -> Iterator[Step]:
        unchecked = {name: _unchecked(f) for name, f in self.of.functions.items()}
        for layer, step_ends in self.schedule(readout):
            state = plain.apply_layer(self.of.program, layer, state, unchecked, observer=guard.argument)
            yield layer, state, step_ends


def _unchecked(f: ScalarFunction) -> ScalarFunction:
    """f, also where it is an approximant and its argument is outside its domain, which the interpreter refuses."""
    return lambda t: f(t)
