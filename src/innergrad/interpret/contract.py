"""Products in an order that costs little: matrices of every token are multiplied by vectors before they are made.

A program may write d_j V_j, d_j x^T and products of them, matrices of every token, because the next layer needs them
there. As operations on tensors they need not exist:

    sum over tokens of omega (d x^T) o (U^T q)     is     (d o U^T q omega) x^T,  one matrix product

A product of products is taken apart into its factors. These are multiplied two at a time, in the order of least growth.
A sum of two products with a common factor is one product: V^T a + V^T b = V^T (a + b). For gradient descent on networks
that leaves the products of back-propagation. Graphs are made again as long as that makes them less work.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

from innergrad.interpret.graph import NAMES, ONCE, Graph, Linear, Node, Term, indices, lengths, ordered, rename
from innergrad.interpret.node_table import Nodes

TOKENS = 1000  # how many the work is counted for


def cheapest(graph: Graph) -> Graph:
    """The graph with its products in a better order, or as it is."""
    while work(better := Contracted(graph).graph) < work(graph):
        graph = better
    return graph


def work(graph: Graph) -> int:
    """Entries that the operations of the graph go through, with so many tokens."""
    return sum(_size(_labels(node), [*node.args, (node, node.labels)]) for node in graph.nodes if node.args)


class Contracted(Nodes):
    """The nodes of a graph, made again."""

    def __init__(self, old: Graph) -> None:
        super().__init__()
        self.rank: dict[Node, int] = {}  # in the order in which they were made
        self.new: dict[Node, Node] = {}
        for node in old.nodes:
            self.new[node] = self._made(node)
        self.graph = old.replaced(self.new)

    def node(self, op: str, args: tuple[Term, ...], labels: str, *sizes: Any, **more: Any) -> Node:
        node = super().node(op, args, labels, *sizes, **more)
        self.rank.setdefault(node, len(self.rank))
        return node

    def _made(self, node: Node) -> Node:
        if node.op == "product" and not _diagonal(node):
            terms = [term for argument in node.args for term in self._factors(argument, set(_labels(node)))]
            return self._product([(self.new[factor], used) for factor, used in terms], node.labels)
        args = tuple((self.new[argument], used) for argument, used in node.args)
        return self._sum(node, args) if node.op == "sum" else self.again(node, args)

    def _sum(self, node: Node, args: tuple[Term, ...]) -> Node:
        """Products with a common factor are added up before they are multiplied by it."""
        whole = Linear(dict(zip(args, node.coefficients, strict=True)), node.constant)
        for first, second in combinations(args, 2):
            one = self._together(first, second, whole)
            if one is not None:
                rest = {term: c for term, c in whole.terms.items() if term not in (first, second)}
                return self.materialise(Linear({**rest, one: ONCE}, whole.constant), node.labels)
        return self.again(node, args)

    def _together(self, first: Term, second: Term, within: Linear) -> Term | None:
        """Two terms of a sum that are products with a common factor, as one product."""
        (a, used), (b, other) = first, second
        shared = [term for term in a.args if term in b.args]
        if a.op != "product" or b.op != "product" or used != other or a.labels != b.labels or len(shared) != 1:
            return None
        rest = [[term for term in node.args if term != shared[0]] for node in (a, b)]
        if [len(terms) for terms in rest] != [1, 1] or set(rest[0][0][1]) != set(rest[1][0][1]):
            return None
        parts = [_terms(term).scaled(within.terms[of]) for (term,), of in zip(rest, (first, second), strict=True)]
        total, labels = parts[0].plus(parts[1]), rest[0][0][1]
        if total is None:
            return None
        factor = self.materialise(total, labels), labels
        return self.node("product", self._in_order(shared[0], factor), a.labels), used

    def _factors(self, term: Term, taken: set[str]) -> list[Term]:
        """A product that sums over no tokens, as its factors; labels inside it get names that are not taken."""
        node, used = term
        inside = indices("".join(dict.fromkeys(label for label in _labels(node) if label not in node.labels)))
        free = [name for name in NAMES if name not in taken]
        if node.op != "product" or node.summed or _diagonal(node) or len(free) < len(inside):
            return [term]
        names = dict(zip(node.labels + inside, used + "".join(free), strict=False))
        taken.update(free[: len(inside)])
        args = [(argument, rename(labels, names)) for argument, labels in node.args]
        return [factor for argument in args for factor in self._factors(argument, taken)]

    def _product(self, terms: list[Term], keep: str) -> Node:
        """Two at a time."""
        while len(terms) > 2:
            first, second = min(combinations(range(len(terms)), 2), key=lambda pair: self._price(pair, terms, keep))
            rest = [term for i, term in enumerate(terms) if i not in (first, second)]
            terms = [*rest, self._pair(terms[first], terms[second], keep + "".join(used for _, used in rest))]
        if len(terms) == 1:
            return self.node("product", tuple(terms), keep)
        return self.node("product", self._in_order(*terms), keep)

    def _in_order(self, a: Term, b: Term) -> tuple[Term, Term]:
        """The same order at every place where the two are multiplied."""
        first, second = sorted((a, b), key=lambda term: self.rank[term[0]])
        return first, second

    def _pair(self, a: Term, b: Term, needed: str) -> Term:
        a, b = self._in_order(a, b)
        labels = ordered(set(a[1] + b[1]) & set(needed), a[1] + b[1])
        return self.node("product", (a, b), labels), labels

    def _price(self, pair: tuple[int, int], terms: list[Term], keep: str) -> tuple[float, ...]:
        """Three kinds come last: sums over tokens, arrays with more axes than their factors, and matrices of tokens
        that are made of their vectors. Of the others, the least growth comes first, then the least work.
        """
        both = [terms[i] for i in pair]
        needed = keep + "".join(used for i, (_, used) in enumerate(terms) if i not in pair)
        labels, *parts = "".join(set(both[0][1] + both[1][1]) & set(needed)), both[0][1], both[1][1]
        alike = [used for used in parts if _tokens(used) == _tokens(labels)]
        late = len(indices(labels)) > max((len(indices(used)) for used in alike), default=0)
        sizes = [_size(used, both) for used in (labels, *parts, parts[0] + parts[1])]
        return late, sizes[0] - sizes[1] - sizes[2], sizes[3], *sorted(self.rank[node] for node, _ in both)


def _terms(term: Term) -> Linear:
    """A sum as its terms; other nodes are one."""
    node, used = term
    if node.op != "sum":
        return Linear({term: ONCE})
    names = dict(zip(node.labels, used, strict=True))
    args = ((argument, rename(labels, names)) for argument, labels in node.args)
    return Linear(dict(zip(args, node.coefficients, strict=True)), node.constant)


def _size(labels: str, terms: list[Term]) -> int:
    """Of an array with these labels, which are those of the terms."""
    sizes = lengths(*terms)
    return math.prod(TOKENS if _tokens(label) else sizes.get(label, 1) for label in set(labels))


def _tokens(labels: str) -> bool:
    return "I" in labels or "S" in labels


def _labels(node: Node) -> str:
    """Of a node and of its arguments."""
    return node.labels + "".join(used for _, used in node.args)


def _diagonal(node: Node) -> bool:
    return any(len(set(used)) < len(used) for _, used in node.args)
