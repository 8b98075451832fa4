"""The dense executor: the matrices of the module itself, layer by layer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch

from innergrad.errors import InputError, LongRun
from innergrad.interpret import plain
from innergrad.ir.stream import State
from innergrad.memory import require_memory
from innergrad.model.compiled import SMALLER
from innergrad.model.executors.base import Layered, Step, check_rounding
from innergrad.model.executors.timing import dense_seconds
from innergrad.model.guard import Guard
from innergrad.model.prompt import Prompt
from innergrad.targets.parts.base import PIECE

LONG = 3.0  # seconds, from which a run is announced


class Dense(Layered):
    """Of the program only the arguments of functions with a bounded domain are computed beside the module, on the
    stream that it produced: it would not say that they left it.
    """

    def check(self, dtype: torch.dtype, guard: Guard, compiled: bool | None = None) -> None:
        super().check(torch.float64, guard, compiled)
        check_rounding(self.of, dtype, as_weights=True)

    def layers(self, prompt: Prompt, guard: Guard) -> Iterator[Step]:
        of, tokens = self.of, prompt.state(self.of.program)["x"].shape[1]
        longest = of.target.positions.longest(of.program, of.options, prompt.X.dtype)
        if tokens > longest:
            raise InputError(
                f"the prompt is too long for {prompt.X.dtype}: its positions are rounded",
                got=f"{tokens} tokens",
                allowed=f"at most {longest:g}",
                hint="use float64, or variant='raw'",
            )
        seconds = dense_seconds(of, len(prompt.X), tokens)
        if seconds > LONG:
            text = f"the dense transformer will take about {seconds:.0f} s on this prompt"
            warnings.warn(f"{text}; executor='fused' computes the same function", LongRun, stacklevel=4)
        return super().layers(prompt, guard)

    def _layers(self, state: State, guard: Guard, readout: bool) -> Iterator[Step]:
        of, stream = self.of, self.of.program.stream
        h = stream.pack(state)
        largest = max(row.heads * max(row.d_head, 1) for row in of.cost().rows)
        whole, head = largest * h.shape[0] * h.shape[1], h.shape[0] * h.shape[1] * (h.shape[1] + of.d_model)
        room = 4 * min(whole, max(PIECE, head)) * h.element_size()  # heads are computed in pieces
        require_memory(room, "running the dense transformer", SMALLER)
        module = of.module_for(h.dtype)
        modules = iter(module.stored_readout()) if readout else module.layers()
        for layer, step_ends in self.schedule(readout):
            for instruction, score, argument in plain.arguments(of.program, layer, state, guard.bounded):
                guard.argument(layer, instruction, score, argument)
            h = next(modules)(h)
            state = stream.unpack(h)
            yield layer, state, step_ends
