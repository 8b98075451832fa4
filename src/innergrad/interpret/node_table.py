"""The nodes of a graph under construction, and the algebra of their linear combinations, lanes aside."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal

import torch

from innergrad.interpret.graph import (
    NAMES,
    ONCE,
    Linear,
    Node,
    Term,
    indices,
    lengths,
    of_node,
    ordered,
    rename,
    times,
)
from innergrad.interpret.walk import Algebra

# the keywords of a node, beside arguments and axes
FIELDS = {
    "lane": ("name",),
    "sum": ("coefficients", "constant"),
    "apply": ("f",),
    "mask": ("f",),
    "select": ("index",),
    "scatter": ("index",),
}


class Nodes:
    """Equal operations are one node."""

    def __init__(self) -> None:
        self.known: dict[object, Node] = {}

    def node(
        self, op: str, args: tuple[Term, ...], labels: str, sizes: Mapping[str, int] | None = None, **more: Any
    ) -> Node:
        """The node with these axes, under canonical names; equal nodes are one. S without I is called I.

        sizes: how far the labels range that no argument has.
        """
        if op != "mask" and not any("I" in used for used in (labels, *(used for _, used in args))):
            labels = labels.replace("S", "I")
            args = tuple((node, used.replace("S", "I")) for node, used in args)
        names = dict(zip(dict.fromkeys(indices(labels + "".join(used for _, used in args))), NAMES, strict=False))
        ranges = {**(sizes or {}), **lengths(*args)}
        args = tuple((node, rename(used, names)) for node, used in args)
        key = (op, args, rename(labels, names), tuple(ranges[label] for label in indices(labels)))
        return self.known.setdefault((*key, *more.items()), Node(*key, **more))

    def again(self, node: Node, args: tuple[Term, ...]) -> Node:
        """The same operation on other arguments, which have the same axes."""
        more = {name: getattr(node, name) for name in FIELDS.get(node.op, ())}
        return self.node(node.op, args, node.labels, lengths((node, node.labels)), **more)

    def contract(self, terms: tuple[Term, ...], keep: str) -> Term:
        """The product of one or two, summed over the labels that are not kept."""
        labels = ordered({label for _, used in terms for label in used if label in keep}, keep)
        if len(terms) == 1 and set(terms[0][1]) == set(labels):
            return terms[0]
        return self.node("product", terms, labels), labels

    def materialise(self, value: Linear, labels: str, sizes: Mapping[str, int] | None = None) -> Node:
        """One node with the given axes. sizes: as of a node."""
        if value.single is not None and value.single[1:] == (labels, ONCE):
            return value.single[0]
        linear = {"coefficients": tuple(value.terms.values()), "constant": value.constant}
        return self.node("sum", tuple(value.terms), labels, sizes, **linear)


class Combinations(Nodes, Algebra[Linear]):
    """The constant lane, signs and scales are coefficients; a sum or a product becomes a node only where it is needed
    as one.
    """

    def product(self, factors: list[Linear], keep: str) -> Linear:
        """Two factors at a time."""
        if any(factor.zero for factor in factors):
            return Linear()
        constant = reduce(times, (factor.constant for factor in factors if not factor.terms), ONCE)
        several = [factor for factor in factors if factor.terms] or [Linear({}, ONCE)]
        if len(several) == 1 and set(several[0].labels) <= set(keep):
            return several[0].scaled(constant)
        singles = [f.single or (self.materialise(f, f.labels), f.labels, ONCE) for f in several]
        constant = reduce(times, (coefficient for *_, coefficient in singles), constant)
        terms = [(node, used) for node, used, _ in singles]
        while len(terms) > 2:
            first, second, *rest = terms
            needed = keep + "".join(used for _, used in rest)
            terms = [self.contract((first, second), needed), *rest]
        return Linear({self.contract(tuple(terms), keep): constant})

    def sum(self, terms: list[Linear]) -> Linear:
        return reduce(self.plus, terms, Linear())

    def plus(self, a: Linear, b: Linear) -> Linear:
        """The sum of two; where coefficients have different powers of the token count, the second becomes a node."""
        total = a.plus(b) or a.plus(of_node(self.materialise(b, b.labels), b.labels))
        assert total is not None
        return total

    def softmax(self, scores: Linear, mask: Linear | None) -> Linear:
        terms = () if mask is None else tuple(mask.terms)
        labels = ordered({"S", *scores.labels, *(label for _, used in terms for label in used)})
        first = self.materialise(scores, ordered(set(scores.labels)))
        return of_node(self.node("softmax", ((first, ordered(set(scores.labels))), *terms), labels), labels)

    def count(self, value: Linear, mask: Linear | None, power: Literal[-1, 1]) -> Linear:
        if mask is None:
            return value.scaled((1.0, power))
        (term,) = mask.terms
        labels = ordered(set(term[1]) - {"S"})
        count = self.node("count", (term,), labels)
        inverse = self.node("apply", ((count, count.labels),), labels, f=torch.reciprocal)
        return self.product([value, of_node(inverse, labels)], ordered({*value.labels, *labels}))

    def scale(self, value: Linear, factor: float) -> Linear:
        return value.scaled((factor, 0))

    def varies(self, value: Linear) -> bool:
        return "S" in value.labels
