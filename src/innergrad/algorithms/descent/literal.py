"""The program of Theorem 1 (variant ``literal``): gradient descent on an N-layer network in 2N + 4 layers a step.

Symbols of the paper and lanes here (sizes k_0 = d_x, ..., k_N = d_y):

    x_i, y_i         x, y             V_j, b_j     Vj (k_j, k_{j-1}), bj (k_j,)       momentum    MVj, Mbj
    p_i(j)           pj (k_j,)        r'_i(j-1)    dj (k_j,)
    u(p_i(N), y_i)   g (d_y,)         s_i(j)       sj (k_j,)                          1, t_i      one, t

One step of Lemma 1, in its corrected form (s uses the *columns* of V_{j+1}; the last layer has d_y rows; N products):

    attention    1 .. N            p_j = r(V_j p_{j-1} + b_j)
    attention    N + 1             d_j = r'(V_j p_{j-1} + b_j), all j
    mlp          N + 2             g = u(p_N, y)                    (softmax: ceil(log2 d_y) more, for log-sum-exp)
    product      N + 3 .. 2N + 2   s_N = omega g d_N,   s_j = d_j (V_{j+1}^T s_{j+1})
    attention    2N + 3            V_j -= eta/2 mean(s_j p_{j-1}^T),  b_j -= eta/2 mean(s_j)
    mlp          2N + 4            project w onto the box, clear the scratch lanes

The lane omega (0 on the query) replaces the paper's mask -R_3(1 - t_i) in layer N + 2, exactly and without a range R_3.
The read-out, N forward layers and a product that copies p_N into the query's y, is counted separately: the paper has
none.
"""

from __future__ import annotations

import math

from innergrad.algorithms.descent.step import DescentSettings, below, descent
from innergrad.algorithms.losses import LogisticLoss, Loss, ResidualLoss, SmoothLoss, SoftmaxLoss
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError
from innergrad.functions.ridges import Ridge
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.ir.program import Attend, Expr, Layer, Options, Program, Score, View
from innergrad.ir.stream import Lane


def literal_program(algorithm: DescentSettings, options: Options) -> Program:
    del options
    net, N = algorithm.network, algorithm.network.depth
    loss_lanes, losses = loss_layers(algorithm.loss, f"p{N}", net.sizes[-1])
    layers = range(1, N + 1)
    scratch = (
        *(Lane(f"p{j}", (net.sizes[j],)) for j in layers),
        *(Lane(f"d{j}", (net.sizes[j],)) for j in layers),
        *loss_lanes,
        Lane("g", (net.sizes[-1],)),
        *(Lane(f"s{j}", (net.sizes[j],)) for j in reversed(layers)),
    )
    gradients = (*_forward_layers(net), _derivative_layer(net), *losses, *_backward_layers(N))
    readout = (*_forward_layers(net, "read-out: "), copy_layer(N))
    return descent(algorithm, scratch, gradients, readout, "y", _gradient)


def copy_layer(N: int) -> Layer:
    """The end of the read-out: p_N into the query's y."""
    copy = Attend("y[k]", Score(IDENTITY, ("query", "one")), value=f"p{N}[k]")
    return Layer("product", "read-out: copy", (copy,))


def preactivation(net: Network, j: int) -> tuple[tuple[str, str], ...]:
    """V_j p_{j-1} + b_j as <query, key> pairs."""
    product = (f"{below(j)}[c]", f"V{j}[k,c]")
    return (product, ("one", f"b{j}[k]")) if net.bias else (product,)


def _forward_layers(net: Network, place: str = "") -> tuple[Layer, ...]:
    """Lemma 2: p_j = r(V_j p_{j-1} + b_j), one attention layer each."""
    layers = []
    for j in range(1, net.depth + 1):
        r = net.activation.r if net.activated(j) else IDENTITY
        layers.append(
            Layer("attention", f"{place}forward {j}", (Attend(f"p{j}[k]", Score(r, *preactivation(net, j))),))
        )
    return tuple(layers)


def _derivative_layer(net: Network) -> Layer:
    """Lemma 3: d_j = r'(V_j p_{j-1} + b_j) for all j; the constant 1 for a linear output."""
    instructions = []
    for j in range(1, net.depth + 1):
        scores = (Score(net.activation.dr, *preactivation(net, j)),) if net.activated(j) else ()
        instructions.append(Attend(f"d{j}[k]", *scores))
    return Layer("attention", "derivatives", tuple(instructions))


def loss_layers(loss: Loss, out: str, d_y: int) -> tuple[tuple[Lane, ...], tuple[Layer, ...]]:
    """Lemma 4: g = u(p_N, y), with the lanes the loss needs besides g."""
    lanes: tuple[Lane, ...] = ()
    layers: tuple[Layer, ...] = ()
    if isinstance(loss, ResidualLoss):
        g: tuple[Attend, ...] = (Attend("g[k]", Score(loss.u, (f"{out}[k] - y[k]", "one")), scale=loss.scale),)
    elif isinstance(loss, LogisticLoss):
        g = (
            Attend("g[k]", Score(loss.sigmoid, (f"{out}[k]", "one"))),
            Attend("g[k]", Score(NEGATION, ("y[k]", "one"))),
        )
    elif isinstance(loss, SoftmaxLoss):
        lanes, layers, lse = _log_sum_exp(loss, out, d_y)
        shift = f" + {loss.shift!r}*one" if loss.shift else ""
        exp = Attend("g[k]", Score(loss.exp, (f"{out}[k] - {lse}{shift}", "one")))
        g = (exp, Attend("g[k]", Score(NEGATION, ("y[k]", "one"))))
    elif isinstance(loss, SmoothLoss):
        g = tuple(
            Attend("g[k]", Score(ridge.f, (_form(ridge, out), "one")), scale=ridge.scale) for ridge in loss.ridges
        )
    else:
        raise InputError(
            f"no program is known for the loss {loss.name!r}",
            got=type(loss).__name__,
            allowed="a SmoothLoss, a ResidualLoss, logistic or softmax",
        )
    return lanes, (*layers, Layer("mlp", "loss derivative", g))


def _form(ridge: Ridge, out: str) -> Expr:
    """a t + b y."""
    views = (View(out, ("k",), ridge.t), View("y", ("k",), ridge.y))
    return tuple(view for view in views if view.coefficient)


def _log_sum_exp(loss: SoftmaxLoss, below: str, width: int) -> tuple[tuple[Lane, ...], tuple[Layer, ...], str]:
    """A binary tree of LSE(a, b) = b + softplus(a - b), one mlp layer a level; an odd one out is copied."""
    lanes, layers = [], []
    for level in range(1, math.ceil(math.log2(width)) + 1):
        lane = f"lse{level}"
        instructions = []
        for i in range(width // 2):
            a, b = f"{below}[{2 * i}]", f"{below}[{2 * i + 1}]"
            instructions.append(Attend(f"{lane}[{i}]", Score(loss.softplus, (f"{a} - {b}", "one"))))
            instructions.append(Attend(f"{lane}[{i}]", Score(IDENTITY, (b, "one"))))
        if width % 2:
            instructions.append(Attend(f"{lane}[{width // 2}]", Score(IDENTITY, (f"{below}[{width - 1}]", "one"))))
        below, width = lane, (width + 1) // 2
        lanes.append(Lane(lane, (width,)))
        layers.append(Layer("mlp", f"log-sum-exp {level}", tuple(instructions)))
    return tuple(lanes), tuple(layers), f"{below}[0]"


def _backward_layers(N: int) -> tuple[Layer, ...]:
    """Lemma 5: s_N = omega g d_N, then s_j = d_j (V_{j+1}^T s_{j+1}), one product layer each."""
    first = Attend(f"s{N}[k]", Score(IDENTITY, ("omega", "g[k]")), value=f"d{N}[k]")
    rest = (
        Attend(f"s{j}[k]", Score(IDENTITY, (f"V{j + 1}[c,k]", f"s{j + 1}[c]")), value=f"d{j}[k]")
        for j in range(N - 1, 0, -1)
    )
    return tuple(
        Layer("product", f"backward {instruction.dst.lane[1:]}", (instruction,)) for instruction in (first, *rest)
    )


def _gradient(dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
    """dst += rate * grad,  grad = mean(s_j p_{j-1}^T) / 2."""
    s, factor = Score(IDENTITY, ("one", f"s{j}[k]")), f"{below(j)}[c]" if matrix else "one"
    return (Attend(dst, s, value=factor, scope="all", reduce="mean", scale=rate / 2),)
