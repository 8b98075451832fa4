"""About how long a run will take on one core, from its operations. The estimate is within a factor of three (dense) or
four (plain) of the measured times: see ``docs/reference/executor.md``.

    plain   100 us for every instruction, and a second for 10^9 structured FLOPs of products
    dense   200 us for every layer; for every token 2 ns a nonzero weight, 8 ns an entry of queries, keys, values and
            outputs of heads, 4 ns a unit; for every pair of tokens 0.2 ns an entry of a query or value, 4 ns a score
"""

from __future__ import annotations

from innergrad.interpret.counts import structured_flops
from innergrad.model.compiled import Compiled
from innergrad.model.cost import LayerCost


def plain_seconds(of: Compiled, batch: int, tokens: int) -> float:
    """Of the plain interpreter, on ``batch`` prompts of so many tokens."""
    program, seconds = of.program, 0.0
    times = [(layer, loop.count) for loop in program.body for layer in loop.layers]
    for layer, count in (*times, *((layer, 1) for layer in program.readout)):
        flops = sum(structured_flops(program, instruction, tokens).products for instruction in layer.instructions)
        seconds += count * (1e-4 * len(layer.instructions) + 1e-9 * batch * flops)
    return seconds


def dense_seconds(of: Compiled, batch: int, tokens: int) -> float:
    """Of the module."""
    return sum(max(row.times, 1) * (2e-4 + batch * _layer(row, tokens)) for row in of.cost().rows)


def _layer(row: LayerCost, tokens: int) -> float:
    """One prompt."""
    if row.kind == "mlp":
        return tokens * (2e-9 * row.nonzeros + 4e-9 * row.heads)
    width = row.shapes["W_Q"][1] + row.shapes["W_V"][1]
    pairs = tokens**2 if row.kind == "attention" else 0  # a product layer reads its own token
    return tokens * (2e-9 * row.nonzeros + 1.6e-8 * row.heads * width) + pairs * row.heads * (2e-10 * width + 4e-9)
