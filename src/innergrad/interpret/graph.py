"""The graph of tensor operations that the fused executor runs, and which tokens it needs.

Every lane holds a linear combination of nodes (:class:`Linear`), every node is an operation on earlier nodes.
:mod:`innergrad.interpret.symbolic` makes the graph of a program.

Axes have labels, as in einsum: B prompts, I the token that is written, S the token that is read, and one small letter
for each index. A node's own axes are named a, b, c, ... in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from innergrad.interpret.walk import Seen
from innergrad.ir.program import Program

ScalarFunction = Callable[[Tensor], Tensor]
Coefficient = tuple[float, int]  # a number, and a power of the number of tokens
ONCE: Coefficient = (1.0, 0)
NAMES = "abcdefghijklmnopqrstuvwxyz"
EXAMPLES = Seen(lane="t")
DEMOS_ONLY = ("t", "omega", "y", "batch")  # lanes that are zero on every token that is not an example


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. ``labels`` name its axes, ``sizes`` the lengths of its index axes, in order.

    lane     the lane ``name`` at the beginning of the loop
    product  of its one or two arguments, summed over the labels that it lacks
    sum      of its arguments, each with its coefficient, and the constant
    apply    the function ``f``, entry by entry
    softmax  of its first argument over S, where its second argument, if any, is not zero
    normalise  the softmax of its argument over its last index
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

    @cached_property
    def tokens(self) -> set[str]:
        """The labels of tokens, I or S, that its arguments have."""
        return {label for _, used in self.args for label in used if label in "IS"}

    @cached_property
    def summed(self) -> set[str]:
        """Those over which it sums."""
        return self.tokens - set(self.labels)


Term = tuple[Node, str]


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * node[labels]: the value of a lane, or an expression."""

    terms: Mapping[Term, Coefficient] = field(default_factory=dict)
    constant: Coefficient = (0.0, 0)

    @property
    def zero(self) -> bool:
        return not self.terms and self.constant[0] == 0.0

    @property
    def single(self) -> tuple[Node, str, Coefficient] | None:
        """Node, labels and coefficient, if it is a number times one node."""
        if len(self.terms) != 1 or self.constant[0]:
            return None
        (((node, used), coefficient),) = self.terms.items()
        return node, used, coefficient

    @property
    def labels(self) -> str:
        """The labels of all its terms, in the order of those of its longest term."""
        longest = max((used for _, used in self.terms), key=len, default="")
        return ordered({label for _, used in self.terms for label in used}, longest)

    def scaled(self, factor: Coefficient) -> Linear:
        if factor[0] == 0.0:
            return Linear()
        return Linear({term: times(c, factor) for term, c in self.terms.items()}, times(self.constant, factor))

    def plus(self, other: Linear) -> Linear | None:
        """The sum; None if some coefficients cannot be added, for they have different powers of the token count."""
        terms = {term: _plus(self.terms.get(term), other.terms.get(term)) for term in {**self.terms, **other.terms}}
        constant = _plus(self.constant, other.constant)
        if constant is None or None in terms.values():
            return None
        return Linear({term: c for term, c in terms.items() if c is not None and c[0] != 0.0}, constant)

    def relabelled(self, names: Mapping[str, str]) -> Linear:
        return Linear({(node, rename(labels, names)): c for (node, labels), c in self.terms.items()}, self.constant)


def of_node(node: Node, labels: str = "") -> Linear:
    """One node, once; with the node's own labels, unless they are given."""
    return Linear({(node, labels or node.labels): (1.0, 0)})


def times(a: Coefficient, b: Coefficient) -> Coefficient:
    return a[0] * b[0], a[1] + b[1]


def _plus(a: Coefficient | None, b: Coefficient | None) -> Coefficient | None:
    if a is None or a[0] == 0.0:
        return b
    if b is None or b[0] == 0.0:
        return a
    return (a[0] + b[0], a[1]) if a[1] == b[1] else None


def lengths(*terms: Term) -> dict[str, int]:
    """How far the indices of some nodes range, by the labels that they are used with."""
    return {label: size for node, used in terms for label, size in zip(indices(used), node.sizes, strict=True)}


def rename(labels: str, names: Mapping[str, str]) -> str:
    return "".join(names.get(label, label) for label in labels)


def indices(labels: str) -> str:
    """Those of the labels that are neither of prompts nor of tokens."""
    return "".join(label for label in labels if label.islower())


@dataclass(frozen=True)
class Check:
    """The values of a node must be in [low, high]. ``what`` names the value that left it, and ``hint`` gives advice."""

    node: Node
    low: float
    high: float
    slack: float
    what: str
    hint: str


@dataclass(frozen=True, eq=False)
class Graph:
    """The effect of some layers: the lanes they change, as nodes, and the checks on the way.

    zero: lanes that are cleared. Lanes that are neither are left as they are.
    """

    results: Mapping[str, Node]
    zero: tuple[str, ...]
    checks: tuple[Check, ...]

    def replaced(self, new: Mapping[Node, Node]) -> Graph:
        """The graph with other nodes in place of its own."""
        results = {name: new[node] for name, node in self.results.items()}
        return Graph(results, self.zero, tuple(replace(check, node=new[check.node]) for check in self.checks))

    @cached_property
    def kept(self) -> tuple[Node, ...]:
        """The nodes that are needed at the end."""
        return (*self.results.values(), *(check.node for check in self.checks))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that is needed, arguments first."""
        found: dict[Node, None] = {}
        stack = list(reversed(self.kept))
        while stack:
            missing = [argument for argument, _ in stack[-1].args if argument not in found]
            if missing:
                stack.append(missing[0])
            else:
                found[stack.pop()] = None
        return tuple(found)

    @cached_property
    def uses(self) -> Counter[Node]:
        """How often a node is read, or needed at the end."""
        return Counter([*(argument for node in self.nodes for argument, _ in node.args), *self.kept])


def last_uses(reads: Sequence[Sequence[Node]], kept: Container[Node]) -> list[list[Node]]:
    """For every operation, the nodes that nobody reads after it, unless they are kept; from the reads of each
    operation.
    """
    last = {node: i for i, nodes in enumerate(reads) for node in nodes}
    ends: list[list[Node]] = [[] for _ in reads]
    for node, i in last.items():
        if node not in kept:
            ends[i].append(node)
    return ends


def ordered(labels: set[str], like: str = "") -> str:
    """Prompts, tokens, then indices as in ``like``, and others."""
    return "".join(label for label in dict.fromkeys("BIS" + indices(like) + NAMES) if label in labels)


# --------------------------------------------------------------------------------------------------- tokens left out


def own_tokens(graph: Graph) -> bool:
    """Whether no token reads another."""
    return not any(node.summed for node in graph.nodes)


def demos_suffice(program: Program, graphs: tuple[Graph, ...], given: Mapping[str, Node]) -> bool:
    """Whether the steps can be taken on the examples alone. given: lanes that are made before the first step.

    They can if every sum over tokens has a factor that is zero on all others, and if no lane that is kept per token is
    changed. Then no other token has any influence on the weights, and their lanes stay as they were.
    """
    if program.tokens != "stacked" or program.sink or program.causal or program.placement:
        return False
    weights = {name for name, node in given.items() if any(mask.f == EXAMPLES for mask, _ in node.args[1:])}
    return all(_demos_suffice(graph, weights.union(DEMOS_ONLY)) for graph in graphs)


def _demos_suffice(graph: Graph, lanes: set[str]) -> bool:
    zero: dict[Node, bool] = {}  # on every token that is not an example; so are these lanes
    for node in graph.nodes:
        zero[node] = node.name in lanes or _zero_elsewhere(node, zero)
        others = node.summed and not any(zero[argument] and node.summed & set(used) for argument, used in node.args)
        if others or len(node.tokens) > 1 or node.op in ("softmax", "mask", "count"):
            return False
    return not any(node.per_token for node in graph.results.values())


def _zero_elsewhere(node: Node, zero: Mapping[Node, bool]) -> bool:
    inside = [zero[argument] and not set("IS").isdisjoint(used) for argument, used in node.args]
    match node.op:
        case "product":
            return any(inside)
        case "sum":
            return all(inside) and node.constant[0] == 0.0
        case "select" | "scatter":
            return all(inside)
        case "apply":
            return all(inside) and float(node.f(torch.zeros(1, dtype=torch.float64))) == 0.0
    return False
