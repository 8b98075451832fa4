"""Variant ``shallow``: gradient descent on an N-layer network, N >= 2, in N + 2 blocks of attention and mlp a step.

Lanes as in :mod:`innergrad.algorithms.descent.selecting`. Derivatives are carried *forward*: every token keeps
the Jacobians

    T(j <- m) = dp_j / dz_m = D_j V_j T(j-1 <- m),    T(m <- m) = D_m,    D_j = diag(d_j),    m < j < N

and layer j + 1, which can read d_j, writes T(j <- m) for all m. Once s_N is there all s_m follow at once:

    attention   1 .. N     p_j, d_j, o_j, and T(j-1 <- m), m < j - 1; the last s_N, or its parts
    mlp         4 .. N-1   clear T(j-2 <- m)
    mlp         N          s_N = u(p_N, y), if the output is linear
    attention   N + 1      s_m = T(N-1 <- m)^T (V_N^T s_N),   m = 1 .. N - 1
    attention   N + 2      V_j -= eta/2 mean(s_j o_j^T)
    mlp         N + 2      project w onto the box, clear the scratch lanes

T(j <- m) needs T(j-1 <- m) alone. So there are two sets of lanes, for odd and for even j, and the mlp of the block that
read the older one last clears it. That is about 2 (N - 2) K^2 lanes, where all T(j <- m) would be O(N^2 K^2).

One block more for an activated output with a loss that is not squared, ceil(log2 d_y) more for the softmax loss.
"""

from __future__ import annotations

from innergrad.algorithms.descent.selecting import Selecting, selecting
from innergrad.algorithms.descent.step import DescentSettings
from innergrad.algorithms.networks import Network
from innergrad.functions.scalar import NEGATION
from innergrad.ir.program import Attend, Layer, Options, Program, Score, pointwise
from innergrad.ir.stream import Lane


def shallow_program(algorithm: DescentSettings, options: Options) -> Program:
    begun = selecting(algorithm, options)
    net, N = begun.net, begun.net.depth
    step: list[Layer] = []
    for j, forward in enumerate(begun.forward, start=1):
        carried = tuple(_jacobian(begun, j - 1, m) for m in range(1, j - 1))
        step.append(Layer("attention", f"forward {j}", (*forward, *carried)))
        read = [_buffer(net, j - 2, m) for m in range(1, j - 2)]
        if read and j < N:
            step.append(Layer("mlp", f"clear {j}", pointwise(NEGATION, read)))
    step += begun.output
    step.append(Layer("attention", "backward", tuple(i for m in range(1, N) for i in _backward(begun, m))))
    buffers = {_buffer(net, j, m).name: _buffer(net, j, m) for j in range(2, N) for m in range(1, j)}
    scratch = (*buffers.values(), *(Lane(f"s{j}", (net.sizes[j],)) for j in range(N - 1, 0, -1)))
    return begun.program(scratch, tuple(step), begun.gradient)


def _buffer(net: Network, j: int, m: int) -> Lane:
    """The lane of T(j <- m): one for odd and one for even j (for each width, if widths differ)."""
    rows = net.sizes[j]
    return Lane(f"T{m}_{rows}_{'even' if j % 2 == 0 else 'odd'}", (rows, net.sizes[m]))


def _jacobian(begun: Selecting, j: int, m: int) -> Attend:
    """T(j <- m) = D_j V_j T(j-1 <- m)."""
    pair = (f"V{j}[k,c]", f"d{m}[c]") if m == j - 1 else (f"V{j}[k,e]", f"{_buffer(begun.net, j - 1, m).name}[e,c]")
    return Attend(f"{_buffer(begun.net, j, m).name}[k,c]", Score(begun.factor, pair), value=f"d{j}[k]")


def _backward(begun: Selecting, m: int) -> tuple[Attend, ...]:
    """s_m = T(N-1 <- m)^T (V_N^T s_N), one instruction for every entry of V_N^T s_N."""
    net, N = begun.net, begun.net.depth
    if m == N - 1:
        return (begun.backward(m),)
    T = _buffer(net, N - 1, m).name
    return tuple(
        Attend(f"s{m}[c]", Score(begun.factor, (f"V{N}[e,{k}]", f"{begun.signal}[e]")), value=f"{T}[{k},c]")
        for k in range(net.sizes[N - 1])
    )
