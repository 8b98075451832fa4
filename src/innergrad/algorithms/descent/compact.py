"""Variant ``compact``: gradient descent on an N-layer network, N >= 2, in 2N - 1 blocks of attention and mlp a step.

Lanes as in :mod:`innergrad.algorithms.descent.selecting`, and xr = d_1 o_1^T, xb = omega d_1. The gradient of layer 1
is an average of these, with V_2^T s_2 as weights. So s_1 is never formed, which saves a layer.

    attention   1 .. N            p_j, d_j, o_j; the second layer also xr, xb; the last s_N, or its parts
    mlp         N                 s_N = u(p_N, y), if the output is linear
    attention   N + 1 .. 2N - 2   s_j = d_j (V_{j+1}^T s_{j+1}),   j = N - 1 .. 2
    attention   2N - 1            V_j -= eta/2 mean(s_j o_j^T), j >= 2,   V_1[k] -= eta/2 mean((V_2^T s_2)[k] xr[k])
    mlp         2N - 1            project w onto the box, clear the scratch lanes

One block more for an activated output with a loss that is not squared, ceil(log2 d_y) more for the softmax loss.
"""

from __future__ import annotations

from innergrad.algorithms.descent.selecting import Selecting, mean, selecting
from innergrad.algorithms.descent.step import DescentSettings
from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Options, Program, Score
from innergrad.ir.stream import Lane


def compact_program(algorithm: DescentSettings, options: Options) -> Program:
    begun = selecting(algorithm, options)
    net, N = begun.net, begun.net.depth
    lanes, instructions = _first_layer(begun)
    step = (
        *(
            Layer("attention", f"forward {j}", (*forward, *(instructions if j == 2 else ())))
            for j, forward in enumerate(begun.forward, start=1)
        ),
        *begun.output,
        *(Layer("attention", f"backward {j}", (begun.backward(j),)) for j in range(N - 1, 1, -1)),
    )
    scratch = (*lanes, *(Lane(f"s{j}", (net.sizes[j],)) for j in range(N - 1, 1, -1)))

    def gradient(dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
        if j > 1:
            return begun.gradient(dst, j, matrix, rate)
        transpose = Score(IDENTITY, ("V2[e,k]", f"{begun.s(2)}[e]"))
        return (mean(dst, transpose, "xr[k,c]" if matrix else "xb[k]", rate),)

    return begun.program(scratch, step, gradient)


def _first_layer(begun: Selecting) -> tuple[tuple[Lane, ...], tuple[Attend, ...]]:
    """xr and xb, from d_1 and o_1."""
    (d_x, k), slope = begun.net.sizes[:2], Score(begun.factor, ("d1[k]", "one"))
    lanes = (Lane("xr", (k, d_x)), *((Lane("xb", (k,)),) if begun.net.bias else ()))
    bias = (Attend("xb[k]", slope, value="omega"),) if begun.net.bias else ()
    return lanes, (Attend("xr[k,c]", slope, value="o1[c]"), *bias)
