"""The softmax loss where attention is a softmax: one head over *marker tokens*, one for every class.

Marker k stands before the examples and holds e_k, the one-hot code of k, in the lane mark; other tokens hold zeros
there, and 1 in the lane unmarked. Every token asks with the network's output z:

    g[k] += softmax over all tokens s of (<z, mark_s> - 256 unmarked_s)  times mark_s[k]  =  exp(z_k) / sum_c exp(z_c)

Nothing is approximated: e^-256 is nothing beside the others. The derivative of the loss is g - y.
"""

from __future__ import annotations

from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Mark, Score
from innergrad.ir.stream import Lane

NEVER = 256.0


def marker_lanes(classes: int) -> tuple[Lane, ...]:
    return Lane("mark", (classes,), "input", bound=1.0), Lane("unmarked", (), "input", bound=1.0)


def marks(classes: int) -> tuple[Mark, ...]:
    return tuple(Mark("mark", k, k) for k in range(classes))


def softmax_layer(out: str) -> Layer:
    """g = softmax of the lane ``out``."""
    score = Score(IDENTITY, (f"{out}[c]", "mark[c]"), (f"-{NEVER}*one", "unmarked"))
    return Layer("attention", "softmax", (Attend("g[k]", score, value="mark[k]", scope="all", reduce="softmax"),))
