"""The graph of tensor operations that the fused executor runs, and which tokens it needs.

Every lane holds a linear combination of nodes (:class:`Linear`), every node is an operation on earlier nodes.
:mod:`innergrad.interpret.symbolic` makes the graph of a program.

Axes have labels, as in einsum: B prompts, I the token that is written, S the token that is read, and one small letter
for each index; a node's own axes are named a, b, c, ... in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innergrad.ir.program import Program

ScalarFunction = Callable[[Tensor], Tensor]
NAMES = "abcdefghijklmnopqrstuvwxyz"
DEMOS_ONLY = ("t", "omega", "y", "batch")  # lanes that are zero on every token that is not an example


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. ``labels`` name its axes, ``sizes`` the lengths of its index axes, in order.

    lane     the lane ``name`` at the beginning of the loop
    product  of its one or two arguments, summed over the labels that it lacks
    sum      of its arguments, each with its coefficient, and the constant
    apply    the function ``f``, entry by entry
    softmax  of its first argument over S, where its second argument, if any, is not zero
    mask     1 where token S is in the scope ``f`` of token I
    select   entry ``index`` of the axis ``axis`` of its argument
    scatter  its first argument, its second written to the entries ``index``
    count    how many tokens S its argument, a mask, shows to each token I; at least 1
    """

    op: str
    args: tuple[tuple[Node, str], ...]
    labels: str
    sizes: tuple[int, ...]
    coefficients: tuple[Coefficient, ...] = ()
    constant: Coefficient = (0.0, 0)
    name: str = ""
    f: Any = None
    index: tuple[int | None, ...] = ()

    @cached_property
    def per_token(self) -> bool:
        return "I" in self.labels


# a number, and a power of the number of tokens
Coefficient = tuple[float, int]
Term = tuple[Node, str]


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * node[labels]: what a lane holds, or an expression."""

    terms: Mapping[Term, Coefficient] = field(default_factory=dict)
    constant: Coefficient = (0.0, 0)

    @property
    def zero(self) -> bool:
        return not self.terms and self.constant[0] == 0.0

    @property
    def labels(self) -> str:
        """The labels of all its terms, in the order of those of its longest term."""
        longest = max((used for _, used in self.terms), key=len)
        return ordered({label for _, used in self.terms for label in used}, longest)

    def scaled(self, factor: Coefficient) -> Linear:
        if factor[0] == 0.0:
            return Linear()
        return Linear({term: times(c, factor) for term, c in self.terms.items()}, times(self.constant, factor))

    def plus(self, other: Linear) -> Linear | None:
        """The sum; None if some coefficients cannot be added, for they have different powers of the token count."""
        terms = dict(self.terms)
        for term, coefficient in other.terms.items():
            total = _plus(terms.get(term), coefficient)
            if total is None:
                return None
            terms[term] = total
        constant = _plus(self.constant, other.constant)
        if constant is None:
            return None
        return Linear({term: c for term, c in terms.items() if c[0] != 0.0}, constant)

    def relabelled(self, names: Mapping[str, str]) -> Linear:
        return Linear({(node, rename(labels, names)): c for (node, labels), c in self.terms.items()}, self.constant)


def times(a: Coefficient, b: Coefficient) -> Coefficient:
    return a[0] * b[0], a[1] + b[1]


def _plus(a: Coefficient | None, b: Coefficient) -> Coefficient | None:
    if a is None or a[0] == 0.0:
        return b
    if b[0] == 0.0:
        return a
    return (a[0] + b[0], a[1]) if a[1] == b[1] else None


def rename(labels: str, names: Mapping[str, str]) -> str:
    return "".join(names.get(label, label) for label in labels)


@dataclass(frozen=True)
class Check:
    """The values of a node must be in [low, high]; ``what`` left it otherwise, and ``hint`` says what to do."""

    node: Node
    low: float
    high: float
    slack: float
    what: str
    hint: str


@dataclass(frozen=True, eq=False)
class Graph:
    """What some layers do: the lanes they change, as nodes, and what has to be checked on the way.

    zero: lanes that are cleared. Lanes that are neither are left as they are.
    """

    results: Mapping[str, Node]
    zero: tuple[str, ...]
    checks: tuple[Check, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that is needed, arguments first."""
        found: dict[Node, None] = {}
        stack = [(node, False) for node in (*self.results.values(), *(check.node for check in self.checks))][::-1]
        while stack:
            node, ready = stack.pop()
            if node in found:
                continue
            if ready:
                found[node] = None
            else:
                stack.append((node, True))
                stack.extend((argument, False) for argument, _ in reversed(node.args))
        return tuple(found)


def ordered(labels: set[str], like: str = "") -> str:
    """Prompts, tokens, then indices as in ``like``, and others."""
    inner = [label for label in dict.fromkeys(like) if label in labels and label.islower()]
    inner += sorted(label for label in labels if label.islower() and label not in inner)
    return "".join(label for label in "BIS" if label in labels) + "".join(inner)


# --------------------------------------------------------------------------------------------------- tokens left out


def own_tokens(graph: Graph) -> bool:
    """Whether no token reads another."""
    return all(not ({n for _, used in node.args for n in used if n in "IS"} - set(node.labels)) for node in graph.nodes)


def demos_suffice(program: Program, graphs: tuple[Graph, ...]) -> bool:
    """Whether the steps can be taken on the examples alone.

    So it is if every sum over tokens has a factor that is zero on all others, and if nothing that is kept per token is
    changed: then no other token has any influence on the weights, and finds the lanes as they were.
    """
    if program.tokens != "stacked" or program.sink or program.causal or program.carriers:
        return False
    return all(_demos_suffice(program, graph) for graph in graphs)


def _demos_suffice(program: Program, graph: Graph) -> bool:
    known: dict[Node, bool] = {}
    if any(node.per_token for node in graph.results.values()):
        return False
    for node in graph.nodes:
        known[node] = _zero_elsewhere(node, known)
        tokens = {label for _, used in node.args for label in used if label in "IS"}
        if node.op in ("softmax", "mask", "count") or (len(tokens) > 1):
            return False
        summed = tokens - set(node.labels)
        if summed and not any(known[argument] and summed & set(used) for argument, used in node.args):
            return False
    return True


def _zero_elsewhere(node: Node, known: Mapping[Node, bool]) -> bool:
    """Zero on every token that is not an example."""
    inside = [known[argument] and ("I" in used or "S" in used) for argument, used in node.args]
    if node.op == "lane":
        return node.name in DEMOS_ONLY
    if node.op == "product":
        return any(inside)
    if node.op == "sum":
        return all(inside) and node.constant[0] == 0.0
    if node.op in ("select", "scatter"):
        return all(inside)
    if node.op == "apply":
        at_zero = node.f(torch.zeros(1, dtype=torch.float64)) if inside[0] else None
        return at_zero is not None and float(at_zero) == 0.0
    return False
