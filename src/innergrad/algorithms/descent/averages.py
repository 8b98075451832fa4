"""Gradient descent on an N-layer network for blocks whose MLPs multiply and whose attention averages (targets ``gpt``
and ``softmax``).

Lanes as in :mod:`innergrad.algorithms.descent.literal`, and zj (pre-activations), qj, Gj (gradients of one example):

    mlp          2 a layer     z_j = V_j p_{j-1} + b_j,   p_j = r(z_j), d_j = r'(z_j)          (linear output: z_N only)
    mlp          0 or 1        g = u(z_N, y)                                                   (squared loss: none)
      or attention             the softmax loss: over marker tokens (:mod:`innergrad.algorithms.descent.markers`)
    mlp          0 or 1        s_N = d_N g                                                     (linear output: s_N = g)
    mlp          2 a layer     q_j = V_{j+1}^T s_{j+1},   s_j = d_j q_j                        j = N - 1 .. 1
    mlp          1             G_j = s_j p_{j-1}^T, all j
    attention    1             V_j -= eta/2 mean(G_j),  b_j -= eta/2 mean(s_j)
    mlp                        project w onto the box, clear the scratch lanes                 (same block)

A step takes 4N - 1 blocks for a linear output and the squared loss, and 4N for other losses. It takes 4N + 1 for an
activated output and the squared loss, which is the network of the paper. The weighted mean over the examples is a
softmax of the lane log_omega, the logarithms of their weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from innergrad.algorithms.base import LOG_UNIT
from innergrad.algorithms.descent.literal import loss_layers
from innergrad.algorithms.descent.markers import marker_lanes, marks, softmax_layer
from innergrad.algorithms.descent.step import DescentSettings, Gradient, below, descent
from innergrad.algorithms.losses import Loss, ResidualLoss, SmoothLoss, SoftmaxLoss
from innergrad.algorithms.networks import Network
from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Mark, Options, Program, Score
from innergrad.ir.stream import Lane

WEIGHTS_OF_EXAMPLES = (Lane("log_omega", (), "input"),)  # the weights of the softmax average
GRADIENTS = 16.0  # range of the lanes of the backward pass, unless z_bound is larger


def mean_program(algorithm: DescentSettings, options: Options) -> Program:
    net = algorithm.network
    bound = gradient_range(algorithm, options)
    output = last_lane(net)
    u = loss_derivative(algorithm, bound)
    backward_lanes, backward = _backward(net, u.g, bound)
    scratch = (*_forward_lanes(net), *u.lanes, *backward_lanes)
    step = (*_forward(net), *u.layers, *backward)
    average, inputs = mean_gradient(net, u.g), (*WEIGHTS_OF_EXAMPLES, *u.inputs)
    return descent(
        algorithm, scratch, step, _forward(net, "read-out: "), output, average, inputs, marks=u.marks, smooth=True
    )


def gradient_range(algorithm: DescentSettings, options: Options) -> float:
    """Of the lanes of the backward pass."""
    loss = algorithm.loss
    return max(GRADIENTS, options.z_bound or 0.0, loss.bound if isinstance(loss, SmoothLoss) else 0.0)


def kinked(net: Network) -> bool:
    """The activation is piecewise linear: relu, leaky_relu, relu6."""
    return net.activation.r.exact is not None or bool(net.activation.dr.jumps)


def last_lane(net: Network) -> str:
    """The lane that holds the network's output."""
    return f"p{net.depth}" if net.activated(net.depth) else f"z{net.depth}"


def squared(loss: Loss) -> bool:
    """Its derivative is linear: no lane and no layer of its own."""
    return isinstance(loss, ResidualLoss) and loss.u == IDENTITY and loss.scale == 2.0


def _forward_lanes(net: Network) -> tuple[Lane, ...]:
    return tuple(lane for j in range(1, net.depth + 1) for lane in layer_lanes(net, j))


def layer_lanes(net: Network, j: int) -> tuple[Lane, ...]:
    """zj, and, where layer j is activated, pj and dj."""
    r, shape = net.activation, (net.sizes[j],)
    own = (Lane(f"p{j}", shape, bound=r.r.bound), Lane(f"d{j}", shape, bound=r.dr.bound))
    return (Lane(f"z{j}", shape), *(own if net.activated(j) else ()))


def forward(net: Network, j: int) -> tuple[Attend, ...]:
    """z_j = V_j p_{j-1} + b_j."""
    z = Attend(f"z{j}[k]", Score(IDENTITY, (f"V{j}[k,c]", f"{below(j)}[c]")))
    return (z, Attend(f"z{j}[k]", value=f"b{j}[k]")) if net.bias else (z,)


def activation(net: Network, j: int, derivative: bool) -> tuple[Attend, ...]:
    """p_j = r(z_j), d_j = r'(z_j)."""
    p = Attend(f"p{j}[k]", Score(net.activation.r, (f"z{j}[k]", "one")))
    return (p, Attend(f"d{j}[k]", Score(net.activation.dr, (f"z{j}[k]", "one")))) if derivative else (p,)


def _forward(net: Network, place: str = "") -> tuple[Layer, ...]:
    layers = []
    for j in range(1, net.depth + 1):
        layers.append(Layer("mlp", f"{place}forward {j}", forward(net, j)))
        if net.activated(j):
            layers.append(Layer("mlp", f"{place}activation {j}", activation(net, j, derivative=not place)))
    return tuple(layers)


@dataclass(frozen=True)
class Derivative:
    """The derivative of the loss in the network's output: g, an expression with the label k; the lanes and layers that
    make it, input lanes and marks of marker tokens.
    """

    g: str
    lanes: tuple[Lane, ...] = ()
    layers: tuple[Layer, ...] = ()
    inputs: tuple[Lane, ...] = ()
    marks: tuple[Mark, ...] = ()


def loss_derivative(algorithm: DescentSettings, bound: float) -> Derivative:
    """By an mlp that fills the lane g, by attention for the softmax loss; the squared loss needs neither."""
    net, loss, out, d_y = algorithm.network, algorithm.loss, last_lane(algorithm.network), algorithm.network.sizes[-1]
    if squared(loss):
        return Derivative(f"2.0*{out}[k] - 2.0*y[k]")
    if isinstance(loss, SoftmaxLoss):
        own = (Lane("g", (d_y,), bound=1.0),)
        return Derivative("g[k] - y[k]", own, (softmax_layer(out),), marker_lanes(d_y), marks(d_y))
    lanes, layers = loss_layers(loss, out, d_y)
    return Derivative("g[k]", (*lanes, Lane("g", (net.sizes[-1],), bound=bound)), layers)


def _backward(net: Network, g: str, bound: float) -> tuple[tuple[Lane, ...], tuple[Layer, ...]]:
    N, lanes, layers = net.depth, list[Lane](), list[Layer]()
    if net.activated(N):
        lanes.append(Lane(f"s{N}", (net.sizes[N],), bound=bound))
        layers.append(Layer("mlp", f"backward {N}", (Attend(f"s{N}[k]", Score(IDENTITY, (g, f"d{N}[k]"))),)))
    for j in range(N - 1, 0, -1):
        lanes += [Lane(f"{name}{j}", (net.sizes[j],), bound=bound) for name in "qs"]
        q = Attend(f"q{j}[k]", Score(IDENTITY, (f"V{j + 1}[c,k]", signal(net, j + 1, g, "c"))))
        layers.append(Layer("mlp", f"transpose {j}", (q,)))
        layers.append(Layer("mlp", f"backward {j}", (Attend(f"s{j}[k]", Score(IDENTITY, (f"d{j}[k]", f"q{j}[k]"))),)))
    lanes += [Lane(f"G{j}", (net.sizes[j], net.sizes[j - 1])) for j in range(1, N + 1)]
    outer = (Attend(f"G{j}[k,c]", Score(IDENTITY, (signal(net, j, g), f"{below(j)}[c]"))) for j in range(1, N + 1))
    return tuple(lanes), (*layers, Layer("mlp", "gradients", tuple(outer)))


def signal(net: Network, j: int, g: str, label: str = "k") -> str:
    """The derivative of the loss in z_j: the lane sj, or, for a linear output, that of the loss itself."""
    return f"s{j}[{label}]" if j < net.depth or net.activated(j) else g.replace("[k]", f"[{label}]")


def mean_gradient(net: Network, g: str) -> Gradient:
    """dst += rate * weighted mean over the examples of G_j or s_j, halved as the risk is."""

    def gradient(dst: str, j: int, matrix: bool, rate: float) -> tuple[Attend, ...]:
        return average(dst, f"G{j}[k,c]" if matrix else signal(net, j, g), rate / 2)

    return gradient


def average(dst: str, value: str, scale: float) -> tuple[Attend, ...]:
    """dst += scale * weighted mean over the examples of the value."""
    weights = Score(IDENTITY, (f"{LOG_UNIT}*one", "log_omega"))
    return (Attend(dst, weights, value=value, scope="all", reduce="softmax", scale=scale),)
