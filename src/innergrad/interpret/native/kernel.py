"""Running a generated kernel: arrays in, arrays out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import JobError
from innergrad.interpret.graph import Coefficient, Graph
from innergrad.interpret.native.build import at_hand, build
from innergrad.interpret.native.source import Source, Unsupported, generate
from innergrad.ir.program import Program
from innergrad.ir.stream import State

BLOCK_BYTES = 512 * 1024  # of what the tokens of a block hold: about half of a core's second-level cache


@dataclass(frozen=True)
class NativeLoop:
    """A loop's graph as a kernel. Running it may raise :class:`innergrad.interpret.native.build.NoCompiler`."""

    program: Program
    graph: Graph
    source: Source

    @classmethod
    def generated(cls, program: Program, graph: Graph) -> NativeLoop:
        sizes = {lane.name: lane.size for lane in program.stream.lanes}
        if any(not lane.shared for lane in program.weights):
            raise Unsupported("weights that are not shared")
        return cls(program, graph, generate(graph, sizes, tuple(lane.name for lane in program.weights)))

    @property
    def kind(self) -> tuple[str, tuple[int, ...]]:
        """Loops of the same kind differ in nothing but their numbers."""
        return self.source.text, tuple(id(table) for table in self.source.tables)

    def at_hand(self, dtype: torch.dtype) -> bool:
        """To run it costs no compiling."""
        return at_hand(self.source.text, dtype)

    def run(
        self,
        state: State,
        tokens: int,
        coefficients: Sequence[tuple[Coefficient, ...]],
        steps: int,
        wanted: Sequence[int],
    ) -> tuple[State, Tensor, Tensor]:
        """The lanes after all steps, the weights (batch, wanted, D_w) after the wanted ones (from 1), and for every
        check the smallest and the largest value.

        state: lanes (batch, size...) and (batch, n, size...). coefficients: of each step, or of all if there is one.
        """
        source, some = self.source, state["x"]
        library = build(source.text, some.dtype)
        batch, n = some.shape[:2]
        threads = max(1, min(torch.get_num_threads(), batch * max(1, n // 32)))
        real = {torch.float32: np.float32, torch.float64: np.float64}[some.dtype]
        rows = [[c * float(tokens) ** power for c, power in row] for row in coefficients]
        numbers = np.array(rows, dtype=real)
        tables = [_aligned(np.ascontiguousarray(table, dtype=real)) for table in source.tables]
        shared = [
            state[name].reshape(batch, -1).clone(memory_format=torch.contiguous_format) for name in source.shared_lanes
        ]
        token = [state[name].reshape(batch, n, -1).contiguous() for name in source.token_lanes]
        record = torch.empty(batch, len(wanted), self.program.n_weights, dtype=some.dtype)
        ranges = np.empty((threads, max(len(self.graph.checks), 1), 2), dtype=real)
        ranges[..., 0], ranges[..., 1] = np.inf, -np.inf
        failed = library.take_steps(
            *(ctypes.c_long(value) for value in (batch, n, steps, threads, BLOCK_BYTES)),
            ctypes.c_void_p(numbers.ctypes.data),
            ctypes.c_long(numbers.shape[1] if len(rows) > 1 else 0),
            _pointers([table.ctypes.data for table in tables]),
            _pointers([lane.data_ptr() for lane in token]),
            _pointers([lane.data_ptr() for lane in shared]),
            (ctypes.c_long * len(wanted))(*wanted),
            ctypes.c_long(len(wanted)),
            ctypes.c_void_p(record.data_ptr()),
            ctypes.c_void_p(ranges.ctypes.data),
        )
        if failed:
            raise JobError("the fused executor ran out of memory")
        after = dict(state)
        for name, lane in zip(source.shared_lanes, shared, strict=True):
            after[name] = lane.view(state[name].shape)
        for name in self.graph.zero:
            after[name] = torch.zeros_like(state[name])
        found = np.stack([np.minimum.reduce(ranges[..., 0]), np.maximum.reduce(ranges[..., 1])], axis=-1)
        return after, record, torch.from_numpy(found)


def _aligned(array: np.ndarray) -> np.ndarray:
    """The same numbers at an address that is a multiple of 64."""
    room = np.empty(array.nbytes + 64, dtype=np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _pointers(addresses: list[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
