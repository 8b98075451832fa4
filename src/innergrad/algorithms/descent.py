"""What every form of gradient descent on a network shares: its weights' lanes, the update of a step, the program.

A variant says how the gradients of the examples come about and how one is averaged (:data:`Gradient`); what is done
with the average, and the end of a step, is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from innergrad.algorithms.base import example_stream, pointwise
from innergrad.functions.scalar import NEGATION, clip_residual
from innergrad.networks import Network
from innergrad.program import Attend, Layer, Loop, Program
from innergrad.stream import Lane

if TYPE_CHECKING:
    from innergrad.algorithms.gradient_descent import GradientDescent

# dst, layer j, whether of its matrix or its bias, rate -> instructions for dst += rate * mean gradient
Gradient = Callable[[str, int, bool, float], tuple[Attend, ...]]


def descent(
    algorithm: GradientDescent,
    scratch: tuple[Lane, ...],
    gradients: tuple[Layer, ...],
    readout: tuple[Layer, ...],
    output: str,
    gradient: Gradient,
    inputs: tuple[Lane, ...] = (),
    length: int | None = None,
) -> Program:
    """The program whose step computes the gradients of every example, updates the weights, projects and clears.

    gradient: the instruction that adds a multiple of the mean gradient. inputs: further lanes that the prompt fills.
    length: of the prompts, if it is fixed.
    """
    net = algorithm.network
    weights = weight_lanes(net, math.inf if algorithm.box is None else algorithm.box)
    momentum = tuple(Lane(f"M{w.name}", w.shape, "state") for w in weights) if algorithm.momentum else ()
    project = () if algorithm.box is None else pointwise(clip_residual(algorithm.box), weights)
    step = (
        *gradients,
        update_layer(weights, algorithm.lr, algorithm.momentum, algorithm.weight_decay, gradient),
        Layer("mlp", "project and clear", (*project, *pointwise(NEGATION, scratch))),
    )
    stream = example_stream(net.sizes[0], net.sizes[-1], *weights, *momentum, *scratch, *inputs)
    return Program(stream, (Loop(algorithm.steps, step),), readout, output, length=length)


def weight_lanes(net: Network, bound: float) -> tuple[Lane, ...]:
    """V1, b1, V2, b2, ...: the order of ``net.flatten``."""
    lanes = []
    for j, (c, k) in enumerate(zip(net.sizes, net.sizes[1:], strict=False), start=1):
        lanes.append(Lane(f"V{j}", (k, c), "weight", bound=bound))
        if net.bias:
            lanes.append(Lane(f"b{j}", (k,), "weight", bound=bound))
    return tuple(lanes)


def below(j: int) -> str:
    """The lane that layer j of the network reads."""
    return "x" if j == 1 else f"p{j - 1}"


def update_layer(
    weights: tuple[Lane, ...],
    lr: float,
    momentum: float,
    decay: float,
    gradient: Gradient,
) -> Layer:
    """w <- w - lr (momentum m + grad + decay w),  m <- momentum m + grad + decay w."""
    instructions: list[Attend] = []
    for w in weights:
        j, matrix = int(w.name[1:]), w.name[0] == "V"
        labels = "k,c" if matrix else "k"
        this, memory = f"{w.name}[{labels}]", f"M{w.name}[{labels}]"
        for dst, rate in ((this, -lr), (memory, 1.0)) if momentum else ((this, -lr),):
            instructions += gradient(dst, j, matrix, rate)
            if decay:
                instructions.append(Attend(dst, value=this, scale=rate * decay))
        if momentum:
            instructions.append(Attend(this, value=memory, scale=-lr * momentum))
            instructions.append(Attend(memory, value=memory, scale=momentum - 1.0))
    return Layer("attention", "update", tuple(instructions))
