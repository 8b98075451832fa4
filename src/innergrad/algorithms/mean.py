"""Gradient descent on an N-layer network for blocks whose MLPs multiply and whose attention averages (target ``gpt``).

Lanes as in :mod:`innergrad.algorithms.literal`, and zj (pre-activations), qj, Gj (gradients of one example):

    mlp          2 a layer     z_j = V_j p_{j-1} + b_j,   p_j = r(z_j), d_j = r'(z_j)          (linear output: z_N only)
    mlp          0, 1 or more  g = u(z_N, y)                                                   (squared loss: none)
    mlp          1             s_N = omega g                                                   (activated output: 2)
    mlp          2 a layer     q_j = V_{j+1}^T s_{j+1},   s_j = d_j q_j                        j = N - 1 .. 1
    mlp          1             G_j = s_j p_{j-1}^T, all j
    attention    1             V_j -= eta/2 mean(G_j),  b_j -= eta/2 mean(s_j)
    mlp                        project w onto the box, clear the scratch lanes                 (same block)

4N blocks a step for a linear output and the squared loss. An average over all tokens with equal scores is exact in
softmax attention; omega makes it the weighted mean over the examples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from innergrad.algorithms.base import example_stream, pointwise
from innergrad.algorithms.literal import below, loss_layers, update_layer, weight_lanes
from innergrad.functions.scalar import IDENTITY, NEGATION, clip_residual
from innergrad.losses import ResidualLoss
from innergrad.networks import Network
from innergrad.options import Options
from innergrad.program import Attend, Layer, Loop, Program, Score
from innergrad.stream import Lane

if TYPE_CHECKING:
    from innergrad.algorithms.gradient_descent import GradientDescent


GRADIENTS = 16.0  # range of the lanes of the backward pass, unless z_bound is larger


def mean_program(algorithm: GradientDescent, options: Options) -> Program:
    net, N = algorithm.network, algorithm.network.depth
    bound = max(GRADIENTS, options.z_bound or 0.0)
    weights = weight_lanes(net, math.inf if algorithm.box is None else algorithm.box)
    momentum = tuple(Lane(f"M{w.name}", w.shape, "state") for w in weights) if algorithm.momentum else ()
    out = f"p{N}" if net.activated(N) else f"z{N}"
    loss_lanes, loss = _loss(algorithm, out, bound)
    backward_lanes, backward = _backward(net, "g[k]" if loss else f"2.0*{out}[k] - 2.0*y[k]", bound)
    scratch = (*_forward_lanes(net), *loss_lanes, *backward_lanes)
    project = () if algorithm.box is None else pointwise(clip_residual(algorithm.box), weights)
    step = (
        *_forward(net),
        *loss,
        *backward,
        update_layer(weights, algorithm.lr, algorithm.momentum, algorithm.weight_decay, _gradient),
        Layer("mlp", "project and clear", (*project, *pointwise(NEGATION, scratch))),
    )
    stream = example_stream(net.sizes[0], net.sizes[-1], *weights, *momentum, *scratch)
    return Program(stream, (Loop(algorithm.steps, step),), _forward(net, "read-out: "), out)


def _forward_lanes(net: Network) -> tuple[Lane, ...]:
    lanes = []
    for j in range(1, net.depth + 1):
        lanes.append(Lane(f"z{j}", (net.sizes[j],)))
        if net.activated(j):
            r, dr = net.activation.r, net.activation.dr
            lanes += [Lane(f"p{j}", (net.sizes[j],), bound=r.bound), Lane(f"d{j}", (net.sizes[j],), bound=dr.bound)]
    return tuple(lanes)


def _forward(net: Network, place: str = "") -> tuple[Layer, ...]:
    layers = []
    for j in range(1, net.depth + 1):
        z = [Attend(f"z{j}[k]", Score(IDENTITY, (f"V{j}[k,c]", f"{below(j)}[c]")))]
        z += [Attend(f"z{j}[k]", value=f"b{j}[k]")] if net.bias else []
        layers.append(Layer("mlp", f"{place}forward {j}", tuple(z)))
        if net.activated(j):
            functions = [Attend(f"p{j}[k]", Score(net.activation.r, (f"z{j}[k]", "one")))]
            functions += [] if place else [Attend(f"d{j}[k]", Score(net.activation.dr, (f"z{j}[k]", "one")))]
            layers.append(Layer("mlp", f"{place}activation {j}", tuple(functions)))
    return tuple(layers)


def _loss(algorithm: GradientDescent, out: str, bound: float) -> tuple[tuple[Lane, ...], tuple[Layer, ...]]:
    """g = u(out, y), unless u is linear: the next layer then reads out - y itself."""
    loss = algorithm.loss
    if isinstance(loss, ResidualLoss) and loss.u == IDENTITY and loss.scale == 2.0:
        return (), ()
    d_y = algorithm.network.sizes[-1]
    lanes, layers = loss_layers(loss, out, d_y)
    return (*lanes, Lane("g", (d_y,), bound=bound)), layers


def _backward(net: Network, g: str, bound: float) -> tuple[tuple[Lane, ...], tuple[Layer, ...]]:
    N = net.depth
    lanes, layers = [Lane(f"s{N}", (net.sizes[N],), bound=bound)], []
    if net.activated(N):
        lanes.append(Lane("og", (net.sizes[N],), bound=bound))
        layers.append(Layer("mlp", "weight", (Attend("og[k]", Score(IDENTITY, ("omega", g))),)))
        layers.append(Layer("mlp", f"backward {N}", (Attend(f"s{N}[k]", Score(IDENTITY, ("og[k]", f"d{N}[k]"))),)))
    else:
        layers.append(Layer("mlp", f"backward {N}", (Attend(f"s{N}[k]", Score(IDENTITY, ("omega", g))),)))
    for j in range(N - 1, 0, -1):
        lanes += [Lane(f"{name}{j}", (net.sizes[j],), bound=bound) for name in "qs"]
        q = Attend(f"q{j}[k]", Score(IDENTITY, (f"V{j + 1}[c,k]", f"s{j + 1}[c]")))
        layers.append(Layer("mlp", f"transpose {j}", (q,)))
        layers.append(Layer("mlp", f"backward {j}", (Attend(f"s{j}[k]", Score(IDENTITY, (f"d{j}[k]", f"q{j}[k]"))),)))
    lanes += [Lane(f"G{j}", (net.sizes[j], net.sizes[j - 1])) for j in range(1, N + 1)]
    outer = (Attend(f"G{j}[k,c]", Score(IDENTITY, (f"s{j}[k]", f"{below(j)}[c]"))) for j in range(1, N + 1))
    return tuple(lanes), (*layers, Layer("mlp", "gradients", tuple(outer)))


def _gradient(dst: str, j: int, matrix: bool, rate: float) -> Attend:
    """dst += rate * mean over the examples of the gradient in V_j or b_j, halved as the risk is."""
    value = f"G{j}[k,c]" if matrix else f"s{j}[k]"
    return Attend(dst, value=value, scope="all", reduce="mean", scale=rate / 2)
