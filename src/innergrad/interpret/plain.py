"""The plain interpreter: a program on a state of named lanes, with given scalar functions, in a few einsums each.

With the compiled approximants f^ it computes the same as the weights. With the functions themselves
(``program.functions()``) it is the algorithm. Its algebra is that of tensors with labelled axes. Shared lanes have no
token axis, so sums over equal tokens disappear by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Literal

import torch
from torch import Tensor

from innergrad.errors import DomainError
from innergrad.functions.fits.sums import FeatureSum
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret.walk import Algebra, Seen, Token, added, arguments_of, maps_first
from innergrad.ir.program import Attend, Expr, Layer, Program, Score, View
from innergrad.ir.stream import Lane, State

ScalarFunction = Callable[[Tensor], Tensor]
Observer = Callable[[Layer, Attend, Score, Tensor], None]
Limits = tuple[float, float]
SCALE_INPUTS = "compile with a larger z_bound, or scale the inputs"

# ------------------------------------------------------------------------------------------------------------ programs


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
    """All instructions read the state before the layer, then all add. observer: sees the arguments of every function,
    and takes the place of the check that they are in its domain.
    """
    after, see = dict(state), observer or partial(check_domain, functions)
    for i, mapped in maps_first(layer, functions):
        if mapped is not None:
            see(layer, i, i.scores[0], state[i.dst.lane])
            after[i.dst.lane] = mapped(state[i.dst.lane])
            continue
        change = added(program, i, Tensors(program, state, functions, partial(see, layer, i)))
        after[i.dst.lane] = placed(after[i.dst.lane], i, change.aligned("BI" + i.family))
    return after


def placed(lane: Tensor, i: Attend, change: Tensor) -> Tensor:
    """The lane with the change added to the entries that the instruction writes."""
    if i.dst.whole:
        return lane + change
    after = lane.expand(-1, max(change.shape[1], lane.shape[1]), *lane.shape[2:]).clone()
    after[:, :, *i.dst.place] += change
    return after


def arguments(
    program: Program, layer: Layer, state: State, chosen: Callable[[Score], bool]
) -> Iterator[tuple[Attend, Score, Tensor]]:
    """The arguments of the chosen scores of a layer, as an observer sees them; nothing else is computed."""
    for i in layer.instructions:
        for score, argument, value in arguments_of(program, i, Tensors(program, state, {}), chosen):
            yield i, score, used(argument, value)


# ------------------------------------------------------------------------------------------------------------- domains


def check_domain(
    functions: Mapping[str, ScalarFunction], layer: Layer, i: Attend, score: Score, argument: Tensor
) -> None:
    f = functions[score.f.name]
    if isinstance(f, PiecewiseLinear | FeatureSum) and f.outside(argument) is not None:
        raise range_error(argument_left(layer, score.f.name), argument, f.domain, SCALE_INPUTS)


def range_error(what: str, found: Tensor, allowed: Limits, hint: str) -> DomainError:
    """The error of values outside a range: the one that is farthest from it."""
    low, high = float(found.min()), float(found.max())
    outside = low if allowed[0] - low > high - allowed[1] else high
    return DomainError(what, got=f"{outside:g}", allowed=f"[{allowed[0]:g}, {allowed[1]:g}]", hint=hint)


def argument_left(layer: Layer, f: str) -> str:
    return f"layer {layer.name}: an argument of {f} left the domain of its approximant"


def lane_left(layer: Layer, lane: str) -> str:
    return f"layer {layer.name}: lane {lane} left the range its products are made for"


def enlarge(lane: Lane) -> str:
    """Advice for a lane outside its range."""
    return f"compile with a larger {lane.bound_from}, or scale the data"


def slack(limits: Limits) -> float:
    """Rounding of lanes in float32."""
    return 1e-4 * limits[1]


# ---------------------------------------------------------------------------------------------------- labelled tensors


@dataclass(frozen=True)
class Labelled:
    """A tensor whose axes are named: B (batch), I and S (tokens), and index labels."""

    tensor: Tensor
    labels: str

    def aligned(self, labels: str) -> Tensor:
        """Permuted to the given order, with axes of length 1 for labels it lacks."""
        present = [label for label in labels if label in self.labels]
        tensor = self.tensor.permute([self.labels.index(label) for label in present])
        for axis, label in enumerate(labels):
            if label not in self.labels:
                tensor = tensor.unsqueeze(axis)
        return tensor

    def map(self, function: ScalarFunction) -> Labelled:
        """The function, entry by entry."""
        return Labelled(function(self.tensor), self.labels)

    def with_labels(self, more: str) -> str:
        """Its labels, and then those it lacks."""
        return "".join(dict.fromkeys(self.labels + more))

    def __add__(self, other: Labelled) -> Labelled:
        labels = self.with_labels(other.labels)
        return Labelled(self.aligned(labels) + other.aligned(labels), labels)


def contract(operands: Sequence[Labelled], keep: str) -> Labelled:
    """Product of the operands, summed over every label that is not kept; of none, one."""
    if not operands:
        return Labelled(torch.ones((), dtype=torch.float64), "")
    present = "".join(label for label in keep if any(label in operand.labels for operand in operands))
    equation = ",".join(operand.labels for operand in operands) + "->" + present
    return Labelled(torch.einsum(equation, *(operand.tensor for operand in operands)), present)


def total(terms: Sequence[Labelled]) -> Labelled:
    """The sum, of at least one term."""
    return reduce(add, terms)


def tokens_in(state: State) -> int:
    return max(value.shape[1] for value in state.values())


def labelled_view(program: Program, view: View, tensor: Tensor, token: str, extra: str = "") -> Labelled:
    """One view of a lane; extra: the label of a further axis at the end of the tensor."""
    labels = "B" + token
    if program.stream[view.lane].shared or tensor.shape[1] == 1:
        tensor, labels = tensor[:, 0], "B"
    for axis, index in reversed(list(enumerate(view.index, start=len(labels)))):
        if isinstance(index, int):
            tensor = tensor.select(axis, index)
    labels += "".join(view.labels) + extra
    if len(set(labels)) < len(labels):  # a label twice: the diagonal
        once = "".join(dict.fromkeys(labels))
        tensor, labels = torch.einsum(f"{labels}->{once}", tensor), once
    return Labelled(tensor * view.coefficient if view.coefficient != 1.0 else tensor, labels)


def attention(scores: Labelled, mask: Labelled | None, tokens: int) -> Labelled:
    """softmax over S of the scores, where the mask is not zero; zero in a token that sees none."""
    labels = scores.with_labels("S" if mask is None else "S" + mask.labels)
    shape = [tokens if label == "S" else -1 for label in labels]
    z = scores.aligned(labels).expand(shape)
    if mask is not None:
        z = torch.where(mask.aligned(labels) == 0, -torch.inf, z)
    return Labelled(torch.nan_to_num(torch.softmax(z, dim=labels.index("S"))), labels)


@dataclass(frozen=True)
class Tensors(Algebra[Labelled]):
    """The numbers themselves, of a state of lanes. watch: is shown the arguments of every function that matter."""

    program: Program
    state: State
    functions: Mapping[str, ScalarFunction]
    watch: Callable[[Score, Tensor], None] | None = None

    def read(self, expression: Expr, token: Token) -> Labelled:
        return total([labelled_view(self.program, view, self.state[view.lane], token) for view in expression])

    def product(self, factors: list[Labelled], keep: str) -> Labelled:
        return contract(factors, keep)

    def sum(self, terms: list[Labelled]) -> Labelled:
        return total(terms)

    def apply(self, score: Score, argument: Labelled, value: Labelled | None) -> Labelled:
        if self.watch is not None:
            self.watch(score, used(argument, value))
        return argument.map(self.functions[score.f.name])

    def softmax(self, scores: Labelled, mask: Labelled | None) -> Labelled:
        return attention(scores, mask, tokens_in(self.state))

    def mask(self, seen: Seen) -> Labelled:
        return Labelled(seen.mask(self.state, tokens_in(self.state)), seen.labels)

    def count(self, value: Labelled, mask: Labelled | None, power: Literal[-1, 1]) -> Labelled:
        tokens = tokens_in(self.state)
        if power > 0:
            return self.scale(value, tokens)
        if mask is None:
            return value.map(lambda tensor: tensor / tokens)
        shown = contract([mask], "BI").map(lambda count: count.clamp(min=1.0))
        labels = value.with_labels(shown.labels)
        return Labelled(value.aligned(labels) / shown.aligned(labels), labels)

    def scale(self, value: Labelled, factor: float) -> Labelled:
        return Labelled(factor * value.tensor, value.labels)

    def varies(self, value: Labelled) -> bool:
        return "S" in value.labels


def used(argument: Labelled, value: Labelled | None) -> Tensor:
    """The arguments without those of tokens whose value is zero in all prompts: f of them is multiplied by zero."""
    if value is None or "S" not in argument.labels or "S" not in value.labels:
        return argument.tensor
    tokens = (value.tensor != 0).movedim(value.labels.index("S"), 0).flatten(1).any(1)
    if not bool(tokens.any()) or bool(tokens.all()):
        return argument.tensor
    return argument.tensor.index_select(argument.labels.index("S"), tokens.nonzero().flatten())
