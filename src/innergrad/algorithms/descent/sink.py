"""Gradient descent on an N-layer network in 2N + 1 blocks a step, for softmax attention with a sink.

On target ``softmax`` a token that holds nothing, the *sink*, turns attention into sigmoids of a token's own lanes: it
applies the activations while the MLP behind it multiplies, one block a layer. Lanes as in
:mod:`innergrad.algorithms.descent.averages`, and products of the forward pass that the backward pass uses, made on the
way:

    mlp                 z_1 = V_1 x + b_1
    attention, mlp      p_j = r(z_j), d_j = r'(z_j);  z_{j+1} = V_{j+1} p_j + b_{j+1}, U_j = d_j V_j,
                        H_j = d_j p_{j-1}^T
    attention, mlp      g = u(z_N, y);  q_{N-1} = V_N^T g
    mlp                 q_{j-1} = U_j^T q_j                                       j = N - 1 .. 2; above: j = 1 .. N - 1
    mlp                 G_j = q_j H_j,  s_j = q_j d_j,  G_N = g p_{N-1}^T
    attention, mlp      V_j -= eta/2 mean(G_j),  b_j -= eta/2 mean(s_j);  project and clear

Activations with kinks (relu, leaky_relu, relu6) are applied by an MLP: one block more for each layer that has one.

A step takes 2N + 1 blocks for a linear output with every loss. An activated output has s_N = d_N u(p_N, y) in place of
g: one block more for the squared loss, two for others.
"""

from __future__ import annotations

from dataclasses import replace

from innergrad.algorithms.descent.averages import (
    WEIGHTS_OF_EXAMPLES,
    Derivative,
    activation,
    forward,
    gradient_range,
    kinked,
    last_lane,
    layer_lanes,
    loss_derivative,
    mean_gradient,
    signal,
    squared,
)
from innergrad.algorithms.descent.step import DescentSettings, below, descent
from innergrad.algorithms.losses import SoftmaxLoss
from innergrad.algorithms.networks import Network
from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.ir.program import Attend, Layer, Options, Program, Score
from innergrad.ir.stream import Lane


def sink_program(algorithm: DescentSettings, options: Options) -> Program:
    net, N = algorithm.network, algorithm.network.depth
    bound = gradient_range(algorithm, options)
    u = _loss(algorithm, bound)
    g = u.g
    layers = _forward(net)
    if net.activated(N):
        layers.append(_activation(net, N, "", derivative=True))
    layers += u.layers
    scratch = [*(lane for j in range(1, N + 1) for lane in layer_lanes(net, j)), *u.lanes]
    if net.activated(N):
        scratch.append(Lane(f"s{N}", (net.sizes[N],), bound=bound))
        layers.append(Layer("mlp", f"backward {N}", (Attend(f"s{N}[k]", Score(IDENTITY, (g, f"d{N}[k]"))),)))
    for j in range(N - 1, 0, -1):
        above = (f"V{N}[c,k]", signal(net, N, g, "c")) if j == N - 1 else (f"U{j + 1}[c,k]", f"q{j + 1}[c]")
        layers.append(Layer("mlp", f"backward {j}", (Attend(f"q{j}[k]", Score(IDENTITY, above)),)))
        scratch += [Lane(f"{name}{j}", (net.sizes[j],), bound=bound) for name in "qs"]
        scratch += kept_lanes(net, j)
    scratch += [Lane(f"G{j}", (net.sizes[j], net.sizes[j - 1])) for j in range(1, N + 1)]
    layers.append(Layer("mlp", "gradients", _gradients(net, g)))

    readout = [*_forward(net, "read-out: ")]
    if net.activated(N):
        readout.append(_activation(net, N, "read-out: ", derivative=False))
    average, inputs, output = mean_gradient(net, g), (*WEIGHTS_OF_EXAMPLES, *u.inputs), last_lane(net)
    return descent(
        algorithm, tuple(scratch), tuple(layers), tuple(readout), output, average, inputs, marks=u.marks, smooth=True
    )


def kept_products(j: int) -> tuple[Attend, ...]:
    """The products of layer j for the backward pass: H_j = d_j p_{j-1}^T and, above the first, U_j = d_j V_j."""
    H = Attend(f"H{j}[k,c]", Score(IDENTITY, (f"d{j}[k]", f"{below(j)}[c]")))
    return (H, Attend(f"U{j}[k,c]", Score(IDENTITY, (f"d{j}[k]", f"V{j}[k,c]")))) if j > 1 else (H,)


def kept_lanes(net: Network, j: int) -> tuple[Lane, ...]:
    shape = net.sizes[j], net.sizes[j - 1]
    return (Lane(f"H{j}", shape), Lane(f"U{j}", shape)) if j > 1 else (Lane(f"H{j}", shape),)


def _forward(net: Network, place: str = "") -> list[Layer]:
    """z_1, then, for every layer, activations by attention and the next z by the MLP."""
    layers = [Layer("mlp", f"{place}forward 1", forward(net, 1))]
    for j in range(1, net.depth):
        layers.append(_activation(net, j, place, derivative=not place))
        products = forward(net, j + 1)
        if not place:
            products += kept_products(j)
        layers.append(Layer("mlp", f"{place}forward {j + 1}", products))
    return layers


def _activation(net: Network, j: int, place: str, derivative: bool) -> Layer:
    """By attention; if it has kinks, which sums of sigmoids have not, by an MLP, whose GeLUs are hinges from afar."""
    return Layer("mlp" if kinked(net) else "attention", f"{place}activation {j}", activation(net, j, derivative))


def _loss(algorithm: DescentSettings, bound: float) -> Derivative:
    """The derivative of the loss, its functions by attention."""
    found = loss_derivative(algorithm, bound)
    if squared(algorithm.loss) or isinstance(algorithm.loss, SoftmaxLoss):
        return found
    (layer,) = found.layers
    functions = tuple(i for i in layer.instructions if i.scores[0].f not in (IDENTITY, NEGATION))
    g = "g[k]" + "".join(_linear(i) for i in layer.instructions if i not in functions)
    return replace(found, g=g, layers=(Layer("attention", layer.name, functions),))


def _linear(i: Attend) -> str:
    """The addend of an instruction that is a linear form already, as a term of an expression."""
    ((query, _),), sign = i.scores[0].pairs, -1.0 if i.scores[0].f == NEGATION else 1.0
    terms = [(sign * i.scale * view.coefficient, f"{view.lane}[k]") for view in query]
    return "".join(f" {'-' if c < 0 else '+'} {'' if abs(c) == 1.0 else f'{abs(c)!r}*'}{lane}" for c, lane in terms)


def _gradients(net: Network, g: str) -> tuple[Attend, ...]:
    """Of one example."""
    N = net.depth
    made = [Attend(f"G{N}[k,c]", Score(IDENTITY, (signal(net, N, g), f"{below(N)}[c]")))]
    for j in range(1, N):
        made.append(Attend(f"G{j}[k,c]", Score(IDENTITY, (f"q{j}[k]", f"H{j}[k,c]"))))
        if net.bias:
            made.append(Attend(f"s{j}[k]", Score(IDENTITY, (f"q{j}[k]", f"d{j}[k]"))))
    return tuple(made)
