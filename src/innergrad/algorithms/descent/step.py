"""What every form of gradient descent on a network shares: its weights' lanes, the steps, the program.

A variant says how the gradients of the examples come about and how one is averaged (:data:`Gradient`); what is done
with the average is the algorithm's rule (:mod:`innergrad.algorithms.optimisers`). Here a step is put together:

    gradients of the examples      the variant; in a step on a batch, its weights in place of those of all examples
    update                         the rule
    mlp: project and clear         proximal step and box, and scratch lanes to zero

Steps with the same settings are one loop; where rates, batches or bias corrections differ, so do the weights of the
transformer, and each run of equal steps is a loop of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, cast

from innergrad.algorithms.base import example_stream, pointwise
from innergrad.algorithms.losses import Loss
from innergrad.algorithms.networks import Network
from innergrad.algorithms.optimisers import Rule, Step, Weight
from innergrad.algorithms.schedules import Batches
from innergrad.functions.scalar import NEGATION, clip_residual, soft_residual
from innergrad.ir.program import Attend, Expr, Layer, Loop, Program, Score, View
from innergrad.ir.stream import Lane, Role

# dst, layer j, whether of its matrix or its bias, rate -> instructions for dst += rate * mean gradient
Gradient = Callable[[str, int, bool, float], tuple[Attend, ...]]
BATCHES = {"omega": "batch", "log_omega": "log_batch"}  # what holds the weights of examples -> of those of a batch


class DescentSettings(Protocol):
    """What programs read of the settings of gradient descent; see :class:`innergrad.GradientDescent`."""

    @property
    def network(self) -> Network: ...

    @property
    def loss(self) -> Loss: ...

    @property
    def box(self) -> float | None: ...

    @property
    def rule(self) -> Rule: ...

    @property
    def runs(self) -> list[tuple[Step, int]]: ...

    @property
    def distinct_batches(self) -> Batches: ...

    def threshold(self, rate: float) -> float:
        """Of the proximal step."""


def descent(
    algorithm: DescentSettings,
    scratch: tuple[Lane, ...],
    gradients: tuple[Layer, ...],
    readout: tuple[Layer, ...],
    output: str,
    gradient: Gradient,
    inputs: tuple[Lane, ...] = (),
    length: int | None = None,
    weights: tuple[Lane, ...] | None = None,
) -> Program:
    """The program whose step computes the gradients of every example, updates the weights, projects and clears.

    gradient: the instruction that adds a multiple of the mean gradient. inputs: further lanes that the prompt fills.
    length: of the prompts, if it is fixed. weights: the lanes that are trained, by default :func:`weight_lanes`; Vj and
    bj of any shape, shared or not.
    """
    net, rule = algorithm.network, algorithm.rule
    weights = weight_lanes(net, weight_bound(algorithm)) if weights is None else weights
    trained = [Weight(w, partial(_of_layer, gradient, int(w.name[1:]), w.name[0] == "V")) for w in weights]
    own = [
        Lane(f"{kind}{w.name}", w.shape, cast(Role, role), w.shared)
        for kind, role in rule.lanes(bool(weights[0].shared)).items()
        for w in weights
    ]
    scratch = (*scratch, *(lane for lane in own if lane.role == "scratch"))
    batches = algorithm.distinct_batches

    def layers(step: Step) -> tuple[Layer, ...]:
        end = (*_project(algorithm, step, weights), *pointwise(NEGATION, scratch))
        made = (*gradients, *rule.layers(trained, step), Layer("mlp", "project and clear", end))
        return made if step.batch is None else tuple(_on_batch(layer, step.batch) for layer in made)

    loops = [Loop(count, layers(step)) for step, count in algorithm.runs]
    read = {view.lane for loop in loops for layer in loop.layers for i in layer.instructions for view in i.views()}
    inputs = (*inputs, *(Lane(name, (len(batches),), "input") for name in BATCHES.values() if name in read))
    state = (lane for lane in own if lane.role == "state")
    stream = example_stream(net.sizes[0], net.sizes[-1], *weights, *state, *scratch, *inputs)
    return Program(stream, tuple(loops), readout, output, length=length, batches=batches)


def _of_layer(gradient: Gradient, j: int, matrix: bool, dst: str, rate: float) -> tuple[Attend, ...]:
    return gradient(dst, j, matrix, rate)


def _project(algorithm: DescentSettings, step: Step, weights: tuple[Lane, ...]) -> tuple[Attend, ...]:
    """w <- clip(soft(w)), the proximal map of rate l1 |w| on the box."""
    threshold = algorithm.threshold(step.rate)
    if threshold:
        return pointwise(soft_residual(threshold, algorithm.box), weights)
    return () if algorithm.box is None else pointwise(clip_residual(algorithm.box), weights)


def _on_batch(layer: Layer, batch: int) -> Layer:
    """The layer with the weights of one batch's examples in place of all examples'."""

    def restricted(expression: Expr) -> Expr:
        return tuple(
            View(BATCHES[view.lane], (batch,), view.coefficient) if view.lane in BATCHES else view
            for view in expression
        )

    def of(i: Attend) -> Attend:
        scores = [Score(s.f, *((restricted(query), restricted(key)) for query, key in s.pairs)) for s in i.scores]
        return i.changed(scores=scores, value=restricted(i.value))

    return replace(layer, instructions=tuple(map(of, layer.instructions)))


def weight_bound(algorithm: DescentSettings) -> float:
    return math.inf if algorithm.box is None else algorithm.box


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
