"""Tensors with labelled axes, and the algebra of the plain interpreter: an instruction in a few einsums.

Shared lanes have no token axis, so sums over equal tokens disappear by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal

import torch
from torch import Tensor

from innergrad.interpret.walk import Algebra, Seen, Token
from innergrad.ir.program import Expr, Program, Score, View
from innergrad.ir.stream import State

ScalarFunction = Callable[[Tensor], Tensor]
Watch = Callable[[Score, Tensor], None]


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


def divided(value: Labelled, mask: Labelled | None, tokens: int) -> Labelled:
    """The value divided by the number of tokens that the mask shows."""
    count = value.tensor.new_tensor(float(tokens))
    shown = Labelled(count, "") if mask is None else contract([mask], "BI").map(lambda n: n.clamp(min=1.0))
    labels = value.with_labels(shown.labels)
    return Labelled(value.aligned(labels) / shown.aligned(labels), labels)


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
    watch: Watch | None = None

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
        return divided(value, mask, tokens) if power < 0 else self.scale(value, tokens)

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
