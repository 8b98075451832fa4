"""An executor is a way to run the program of a compiled transformer on a prompt. The plain one is here: it interprets
the program with the approximants of the weights. Readable, and differentiable.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from innergrad.errors import InputError, JobError, integer
from innergrad.functions.fits.sums import Approximant
from innergrad.interpret import plain
from innergrad.ir.program import Layer
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.guard import Guard
from innergrad.model.prompt import Prompt

Step = tuple[Layer, State, bool]  # a layer, the lanes after it, whether a step of the algorithm ends
OVERFLOWED = "the forward pass overflowed: weights or predictions are not finite; scale the inputs or lower lr"


class Executor(Protocol):
    """Three give the same numbers up to rounding, see :data:`innergrad.model.executors.EXECUTORS`."""

    def check(self, dtype: torch.dtype, guard: Guard, compiled: bool | None = None) -> None:
        """Refuses a request that it cannot meet: a precision, flagged violations, a kernel."""

    def layers(self, prompt: Prompt, guard: Guard) -> Iterator[Step]:
        """The forward pass, layer by layer."""

    def run(
        self, prompt: Prompt, wanted: tuple[int, ...], guard: Guard, compiled: bool | None = None
    ) -> tuple[list[Tensor], State]:
        """Weights (batch, D_w) after the wanted steps, 0 for the initial ones, and the lanes after the read-out."""

    def read_out(self, state: State, guard: Guard) -> State:
        """The lanes after the read-out, from those after a step."""


@dataclass(frozen=True)
class Layered(Executor):
    """An executor that takes one layer after the other."""

    of: Compiled

    @abstractmethod
    def _layers(self, state: State, guard: Guard, readout: bool) -> Iterator[Step]:
        """All layers, or those of the read-out."""

    def check(self, dtype: torch.dtype, guard: Guard, compiled: bool | None = None) -> None:
        del guard
        if compiled is not None:
            name = type(self).__name__.lower()
            raise InputError("only the fused executor has a compiled path", got=f"executor={name!r}")
        check_rounding(self.of, dtype, as_weights=False)

    def layers(self, prompt: Prompt, guard: Guard) -> Iterator[Step]:
        guard.begin()
        return self._watched(prompt.state(self.of.program), guard, False)

    def run(
        self, prompt: Prompt, wanted: tuple[int, ...], guard: Guard, compiled: bool | None = None
    ) -> tuple[list[Tensor], State]:
        del compiled
        program = self.of.program
        weights, state, step = [prompt.w0] if 0 in wanted else [], prompt.state(program), 0
        for _, state, step_ends in self.layers(prompt, guard):
            step += step_ends
            if step_ends and step in wanted:
                weights.append(prompt.weights(program, state))
        return weights, state

    def read_out(self, state: State, guard: Guard) -> State:
        for _, after, _ in self._watched(state, guard, True):
            state = after
        return state

    def schedule(self, readout: bool) -> Iterable[tuple[Layer, bool]]:
        program = self.of.program
        return [(layer, False) for layer in program.readout] if readout else program.schedule()

    def _watched(self, state: State, guard: Guard, readout: bool) -> Iterator[Step]:
        for layer, after, step_ends in self._layers(state, guard, readout):
            guard.lanes(layer, state)
            state = after
            guard.step += step_ends
            yield layer, after, step_ends


class Plain(Layered):
    """The guard sees the arguments of functions."""

    def _layers(self, state: State, guard: Guard, readout: bool) -> Iterator[Step]:
        functions = self.of.functions
        for layer, step_ends in self.schedule(readout):
            state = plain.apply_layer(self.of.program, layer, state, functions, observer=guard.argument)
            yield layer, state, step_ends


def recorded(steps: int, record: int | str) -> tuple[int, ...]:
    """After which steps the weights are recorded: all from 0, every k-th and the last, or the last alone."""
    if record == "all":
        return tuple(range(steps + 1))
    if record == "last":
        return (steps,)
    if isinstance(record, str):
        raise InputError("unknown choice of steps to record", got=repr(record), allowed="'all', 'last' or a number k")
    return (*range(0, steps, integer("record, every how many steps weights are kept,", record)), steps)


def require_finite(*parts: Tensor) -> None:
    if not all(bool(torch.isfinite(part).all()) for part in parts):
        raise JobError(OVERFLOWED)


# ----------------------------------------------------------------------------------------------------------- precision


@lru_cache(maxsize=256)
def rounding(f: Approximant, dtype: torch.dtype, as_weights: bool) -> float:
    """Measured rounding error of an approximant in a dtype, against float64; as_weights: as the module computes it."""
    t = f.samples().to(dtype)
    computed = f.as_weights(t) if as_weights else f(t)
    return float((computed.double() - f(t.double())).abs().max())


def check_rounding(of: Compiled, dtype: torch.dtype, *, as_weights: bool) -> None:
    """Refuse an epsilon that drowns in the rounding of the dtype."""
    if dtype not in (torch.float32, torch.float64):
        raise InputError("unsupported dtype", got=dtype, allowed="torch.float32 or torch.float64")
    of.check_steps(dtype, as_weights=as_weights)
    for name, f in of.approximants.items():
        if 0.0 < f.error < torch.inf:
            floor, epsilon = rounding(f, dtype, as_weights), of.accuracies[name]
            if floor > epsilon:
                raise InputError(
                    f"epsilon = {epsilon:g} cannot be reached in {dtype} by the "
                    f"{'dense' if as_weights else 'plain'} executor",
                    got=f"a rounding error of {floor:.1e} in {name}",
                    hint="use float64, the plain executor, or a larger epsilon",
                )
