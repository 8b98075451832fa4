"""The straightforward interpreter: a program on a state of named lanes, with given scalar functions.

With the compiled approximants f^ it computes what the weights compute (*plain*); with the functions themselves, the
algorithm (*exact*, :mod:`innergrad.interpret.exact`). Every instruction is a few einsums over index labels; the token
axes are labels too: I is the token that is written, S the token that is read (the same with scope ``self``), and
shared lanes have none. So sums over equal tokens disappear by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import assert_never

import torch
from torch import Tensor

from innergrad.errors import DomainError
from innergrad.functions.fits.sums import Approximant, FeatureSum
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


def total(terms: Sequence[Labelled]) -> Labelled:
    """The sum, of at least one term."""
    return reduce(add, terms)


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
        if not instruction.dst.whole:
            tokens = max(change.shape[1], after[lane].shape[1])
            padded = torch.zeros_like(after[lane]).expand(-1, tokens, *after[lane].shape[2:]).clone()
            padded[:, :, *instruction.dst.place] = change
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
    keep = "BI" + instruction.family
    mask = scope_mask(program, instruction, state, tokens)
    factors = [_combine(program, instruction.value, state, instruction.token)]
    for score in instruction.scores:
        argument = _score_argument(program, score, state, instruction)
        f = functions[score.f.name]
        if observer is not None:
            observer(layer, instruction, score, _used(argument, factors[0], instruction))
        if isinstance(f, PiecewiseLinear | FeatureSum):
            _check_domain(f, score, layer, _used(argument, factors[0], instruction))
        if instruction.softmax:
            factors.append(_softmax(argument, f, mask, tokens))
        else:
            factors.append(Labelled(f(argument.tensor), argument.labels))
    if mask is not None and not instruction.softmax:
        factors.append(mask)
    result = contract(factors, keep)
    power = instruction.power(summed=any("S" in factor.labels for factor in factors))
    if power > 0:
        result = Labelled(result.tensor * tokens, result.labels)
    if power < 0:
        count = (
            Labelled(torch.tensor(float(tokens), dtype=result.tensor.dtype), "")
            if mask is None
            else contract([mask], "BI")
        )
        labels = result.labels + "".join(label for label in count.labels if label not in result.labels)
        result = Labelled(result.aligned(labels) / count.aligned(labels).clamp(min=1.0), labels)
    if instruction.written is not None:
        result = contract([result, Labelled(state[instruction.written], "BI")], keep)
    return instruction.scale * result.aligned(keep)


def _used(argument: Labelled, value: Labelled, instruction: Attend) -> Tensor:
    """The arguments without those of tokens whose value is zero in all prompts: f of them is multiplied by zero."""
    if instruction.softmax or "S" not in argument.labels or "S" not in value.labels:
        return argument.tensor
    tokens = (value.tensor != 0).movedim(value.labels.index("S"), 0).flatten(1).any(1)
    if not bool(tokens.any()) or bool(tokens.all()):
        return argument.tensor
    return argument.tensor.index_select(argument.labels.index("S"), tokens.nonzero().flatten())


def _combine(program: Program, expression: Expr, state: State, token: str) -> Labelled:
    """A linear combination of lane views at token I or S; shared lanes have no token axis."""
    return total([labelled_view(program, view, state[view.lane], token) for view in expression])


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


def _score_argument(program: Program, score: Score, state: State, instruction: Attend) -> Labelled:
    pairs = [(_combine(program, q, state, "I"), _combine(program, k, state, instruction.token)) for q, k in score.pairs]
    return total([contract([query, key], "BIS" + instruction.family) for query, key in pairs])


def scope_mask(program: Program, instruction: Attend, state: State, tokens: int) -> Labelled | None:
    """1 where token S is in the scope of token I; None for ``self``, and for ``all`` unless the program is causal.

    A sink reads no other token, except that ``all`` is all.
    """
    kind, one, first = instruction.scope_kind, state["one"], int(program.sink)
    if kind == "self":
        return None
    reader = torch.arange(tokens, device=one.device).unsqueeze(1)
    source = reader.T
    places: Tensor | None = None  # which I may read which S, by position; None: any
    chosen: Tensor | None = None  # which S of a prompt may be read at all; None: any
    match kind:
        case "all":
            pass
        case "before":
            places = (source >= first) & (source < reader)
        case "upto":
            places = (source >= first) & (source <= reader)
        case "previous":
            places = (source >= first) & (source == reader - 1)
        case "at":
            assert instruction.at is not None
            token, since = instruction.at
            chosen = (source == token + first).to(one.dtype) * (1.0 - state["query"])
            places = reader >= since + first if since + first else None
        case "demos" | "lane":
            chosen = state["t" if kind == "demos" else instruction.scope]
            places = reader >= first if first else None
        case unknown:
            assert_never(unknown)
    if program.causal:
        places = source <= reader if places is None else places & (source <= reader)
    masks = [] if chosen is None else [Labelled(chosen, "BS")]
    if places is not None:
        masks.append(Labelled(places.expand(tokens, tokens).to(one.dtype), "IS"))
    return contract(masks, "BIS") if masks else None


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
