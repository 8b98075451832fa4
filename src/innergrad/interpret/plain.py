"""The straightforward interpreter: a program on a state of named lanes, with given scalar functions.

With the compiled approximants f^ it computes what the weights compute (*plain*); with the functions themselves, the
algorithm (*exact*, :mod:`innergrad.interpret.exact`). Every instruction is a few einsums over index labels; the token
axes are labels too: I is the token that is written, S the token that is read (the same with scope ``self``), and
shared lanes have none. So sums over equal tokens disappear by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import DomainError
from innergrad.functions.dictionaries import Approximant, FeatureSum
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.program import Attend, Expr, Layer, Program, Score, View
from innergrad.stream import State

ScalarFunction = Callable[[Tensor], Tensor]
Observer = Callable[[Layer, Attend, Score, Tensor], None]


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

    def __add__(self, other: Labelled) -> Labelled:
        labels = self.labels + "".join(label for label in other.labels if label not in self.labels)
        return Labelled(self.aligned(labels) + other.aligned(labels), labels)


def contract(operands: list[Labelled], keep: str) -> Labelled:
    """Product of the operands, summed over every label that is not kept."""
    present = "".join(label for label in keep if any(label in operand.labels for operand in operands))
    equation = ",".join(operand.labels for operand in operands) + "->" + present
    return Labelled(torch.einsum(equation, *(operand.tensor for operand in operands)), present)


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
    for instruction in layer.instructions:
        lane = instruction.dst.lane
        change = _contribution(program, layer, instruction, state, functions, observer)
        if any(isinstance(i, int) for i in instruction.dst.index):
            place = (
                slice(None),
                slice(None),
                *(i if isinstance(i, int) else slice(None) for i in instruction.dst.index),
            )
            tokens = max(change.shape[1], after[lane].shape[1])
            padded = torch.zeros_like(after[lane]).expand(-1, tokens, *after[lane].shape[2:]).clone()
            padded[place] = change
            change = padded
        after[lane] = after[lane] + change
    return after


def _contribution(
    program: Program,
    layer: Layer,
    instruction: Attend,
    state: State,
    functions: Mapping[str, ScalarFunction],
    observer: Observer | None,
) -> Tensor:
    """What one instruction adds to its destination: (batch, tokens or 1, *shape)."""
    tokens = max(value.shape[1] for value in state.values())
    read = "I" if instruction.scope == "self" else "S"
    family = "".join(instruction.dst.labels)
    mask = scope_mask(program, instruction, state, tokens)
    factors = [_combine(program, instruction.value, state, read)]
    for score in instruction.scores:
        argument = _score_argument(program, score, state, read, "BIS" + family)
        f = functions[score.f.name]
        if observer is not None:
            observer(layer, instruction, score, _used(argument, factors[0], instruction))
        if isinstance(f, PiecewiseLinear | FeatureSum):
            _check_domain(f, score, layer, _used(argument, factors[0], instruction))
        if instruction.reduce == "softmax":
            factors.append(_softmax(argument, f, mask, tokens))
        else:
            factors.append(Labelled(f(argument.tensor), argument.labels))
    if mask is not None and instruction.reduce != "softmax":
        factors.append(mask)
    result = contract(factors, "BI" + family)
    if read == "S" and not any("S" in factor.labels for factor in factors) and instruction.reduce == "sum":
        result = Labelled(result.tensor * tokens, result.labels)  # equal terms: the sum over s is a multiple
    if read == "S" and any("S" in factor.labels for factor in factors) and instruction.reduce == "mean":
        count = (
            Labelled(torch.tensor(float(tokens), dtype=result.tensor.dtype), "")
            if mask is None
            else contract([mask], "BI")
        )
        labels = result.labels + "".join(label for label in count.labels if label not in result.labels)
        result = Labelled(result.aligned(labels) / count.aligned(labels).clamp(min=1.0), labels)
    if instruction.where != "all":
        lane = "t" if instruction.where == "demos" else "query"
        result = contract([result, Labelled(state[lane], "BI")], "BI" + family)
    return instruction.scale * result.aligned("BI" + family)


def _used(argument: Labelled, value: Labelled, instruction: Attend) -> Tensor:
    """The arguments without those of tokens whose value is zero in all prompts: f of them is multiplied by zero."""
    if instruction.reduce == "softmax" or "S" not in argument.labels or "S" not in value.labels:
        return argument.tensor
    tokens = (value.tensor != 0).movedim(value.labels.index("S"), 0).flatten(1).any(1)
    if not bool(tokens.any()) or bool(tokens.all()):
        return argument.tensor
    return argument.tensor.index_select(argument.labels.index("S"), tokens.nonzero().flatten())


def _combine(program: Program, expression: Expr, state: State, token: str) -> Labelled:
    """A linear combination of lane views at token I or S; shared lanes have no token axis."""
    total: Labelled | None = None
    for view in expression:
        term = labelled_view(program, view, state[view.lane], token)
        total = term if total is None else total + term
    assert total is not None
    return total


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


def _score_argument(program: Program, score: Score, state: State, read: str, keep: str) -> Labelled:
    total: Labelled | None = None
    for query, key in score.pairs:
        term = contract([_combine(program, query, state, "I"), _combine(program, key, state, read)], keep)
        total = term if total is None else total + term
    assert total is not None
    return total


def scope_mask(program: Program, instruction: Attend, state: State, tokens: int) -> Labelled | None:
    """1 where token S is in the scope of token I; None for ``self``, and for ``all`` unless the program is causal.

    A sink reads no other token, except that ``all`` is all.
    """
    scope, one, first = instruction.scope, state["one"], int(program.sink)
    if scope == "self" or (scope == "all" and not program.causal):
        return None
    reader = torch.arange(tokens, device=one.device).unsqueeze(1)
    source = reader.T
    seen = source <= reader if program.causal else torch.ones_like(source <= reader)
    if scope in ("before", "upto"):
        seen = seen & (source >= first) & (source <= reader - int(scope == "before"))
    elif scope == "previous":
        seen = seen & (source >= first) & (source == reader - 1)
    elif instruction.at is not None:
        token, since = instruction.at
        example = Labelled((source == token + first).to(one.dtype) * (1.0 - state["query"]), "BS")
        if not program.causal and since == first == 0:  # every token reads it: no axis I
            return example
        return contract([Labelled((seen & (reader >= since + first)).to(one.dtype), "IS"), example], "BIS")
    elif scope != "all":
        lane = Labelled(state["t" if scope == "demos" else scope], "BS")
        if not program.causal and not program.sink:
            return lane
        return contract([lane, Labelled((seen & (reader >= first)).to(one.dtype), "IS")], "BIS")
    return Labelled(seen.to(one.dtype), "IS")


def _softmax(argument: Labelled, f: ScalarFunction, mask: Labelled | None, tokens: int) -> Labelled:
    if "S" not in argument.labels:
        argument = Labelled(argument.tensor.unsqueeze(-1).expand(*argument.tensor.shape, tokens), argument.labels + "S")
    labels = argument.labels + "".join(label for label in (mask.labels if mask else "") if label not in argument.labels)
    scores = f(argument.tensor)
    scores = Labelled(scores, argument.labels).aligned(labels)
    if mask is not None:
        scores = scores.masked_fill(mask.aligned(labels) == 0, -torch.inf)
    weights = torch.softmax(scores, dim=labels.index("S"))
    return Labelled(torch.nan_to_num(weights), labels)  # a token with an empty scope receives nothing


def _check_domain(f: Approximant, score: Score, layer: Layer, argument: Tensor) -> None:
    outside = f.outside(argument)
    if outside is not None:
        raise DomainError(
            f"layer {layer.name}: an argument of {score.f.name} left the domain of its approximant",
            got=f"{outside:g}",
            allowed=f"[{f.domain[0]:g}, {f.domain[1]:g}]",
            hint="compile with a larger z_bound, or scale the inputs",
        )
