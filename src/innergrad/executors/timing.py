"""About how long a run will take, to within a factor of three or so on one core, from what it computes.

    plain   100 us for every instruction, and a second for 10^9 structured FLOPs
    dense   300 us for every layer, 10 ns for every nonzero weight and token, 0.5 ns for every entry of queries, keys
            and values that pairs of tokens meet in

Docs: ``docs/executor.md``.
"""

from __future__ import annotations

from innergrad.compiled import Compiled
from innergrad.interpret.counts import structured_flops


def plain_seconds(of: Compiled, batch: int, tokens: int) -> float:
    """Of the plain interpreter, on ``batch`` prompts of so many tokens."""
    program, seconds = of.program, 0.0
    times = [(layer, loop.count) for loop in program.body for layer in loop.layers]
    for layer, count in (*times, *((layer, 1) for layer in program.readout)):
        flops = sum(structured_flops(program, instruction, tokens) for instruction in layer.instructions)
        seconds += count * (1e-4 * len(layer.instructions) + 1e-9 * batch * flops)
    return seconds


def dense_seconds(of: Compiled, batch: int, tokens: int) -> float:
    """Of the module."""
    seconds = 0.0
    for row in of.cost().rows:
        work = 1e-8 * row.nonzeros * tokens
        if row.kind == "attention":
            width = row.shapes["W_Q"][1] + row.shapes["W_V"][1]
            work += 5e-10 * row.heads * (width + 4) * tokens**2
        seconds += max(row.times, 1) * (3e-4 + work * batch)
    return seconds
