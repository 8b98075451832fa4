"""The plain interpreter: a program on a state of named lanes, with given scalar functions.

With the compiled approximants f^ it computes what the weights compute; with the functions themselves
(``program.functions()``), the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from innergrad.functions.fits.sums import FeatureSum
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret.domains import SCALE_INPUTS, argument_error
from innergrad.interpret.tensors import ScalarFunction, Tensors, used
from innergrad.interpret.walk import added, arguments_of
from innergrad.ir.program import Attend, Layer, Program, Score
from innergrad.ir.stream import State

Observer = Callable[[Layer, Attend, Score, Tensor], None]


def run(
    program: Program, state: State, functions: Mapping[str, ScalarFunction], *, observer: Observer | None = None
) -> Iterator[tuple[Layer, State, bool]]:
    """Run the body, then the read-out; yields (layer, state after it, whether a step ends here)."""
    for layer, step_ends in program.schedule():
        state = apply_layer(program, layer, state, functions, observer=observer)
        yield layer, state, step_ends


def apply_layer(
    program: Program,
    layer: Layer,
    state: State,
    functions: Mapping[str, ScalarFunction],
    *,
    observer: Observer | None = None,
) -> State:
    """All instructions read the state before the layer, then all add."""
    after = dict(state)
    for i in layer.instructions:

        def watch(score: Score, argument: Tensor, i: Attend = i) -> None:
            if observer is not None:
                observer(layer, i, score, argument)
            check_domain(functions[score.f.name], score, layer, argument)

        change = added(program, i, Tensors(program, state, functions, watch))
        after[i.dst.lane] = placed(after[i.dst.lane], i, change.aligned("BI" + i.family))
    return after


def placed(lane: Tensor, i: Attend, change: Tensor) -> Tensor:
    """The lane with the change added to the entries that the instruction writes."""
    if not i.dst.whole:
        tokens = max(change.shape[1], lane.shape[1])
        padded = torch.zeros_like(lane).expand(-1, tokens, *lane.shape[2:]).clone()
        padded[:, :, *i.dst.place] = change
        change = padded
    return lane + change


def arguments(
    program: Program, layer: Layer, state: State, chosen: Callable[[Score], bool]
) -> Iterator[tuple[Attend, Score, Tensor]]:
    """The arguments of the chosen scores of a layer, as an observer sees them; nothing else is computed."""
    for i in layer.instructions:
        for score, argument, value in arguments_of(program, i, Tensors(program, state, {}), chosen):
            yield i, score, used(argument, value)


def check_domain(f: ScalarFunction, score: Score, layer: Layer, argument: Tensor) -> None:
    if isinstance(f, PiecewiseLinear | FeatureSum) and f.outside(argument) is not None:
        raise argument_error(layer, score.f.name, f, argument, SCALE_INPUTS)
