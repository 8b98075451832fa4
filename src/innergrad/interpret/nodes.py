"""The nodes of a graph under construction: equal operations are one node, and linear combinations stay linear.

The constant lane, signs and scales are coefficients; a sum or a product becomes a node only where it is needed as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret.graph import NAMES, Coefficient, Linear, Node, Term, ordered, rename, times
from innergrad.interpret.tables import plus_identity
from innergrad.ir.program import Program


class Nodes:
    """Makes nodes, and keeps them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.known: dict[object, Node] = {}

    def node(self, op: str, args: tuple[Term, ...], labels: str, sizes: Mapping[str, int], **more: Any) -> Node:
        """The node with these axes, under canonical names; equal nodes are one. S without I is called I."""
        if op != "mask" and not any("I" in used for used in (labels, *(used for _, used in args))):
            labels = labels.replace("S", "I")
            args = tuple((node, used.replace("S", "I")) for node, used in args)
        names = dict(zip((label for label in labels if label.islower()), NAMES, strict=False))
        rest = iter(NAMES[len(names) :])
        for _, used in args:
            for label in used:
                if label.islower() and label not in names:
                    names[label] = next(rest)
        own = tuple(sizes[label] for label in labels if label.islower())
        args = tuple((node, rename(used, names)) for node, used in args)
        key = (op, args, rename(labels, names), own, *more.items())
        if key not in self.known:
            self.known[key] = Node(op, args, rename(labels, names), own, **more)
        return self.known[key]

    def axes(self, lane: str) -> tuple[str, dict[str, int]]:
        """The labels of a lane's axes, and the lengths of those of its indices."""
        known = self.program.stream[lane]
        sizes = dict(zip(NAMES, known.shape, strict=False))
        return ("B" if known.shared else "BI") + "".join(sizes), sizes

    def lane(self, name: str, zero: bool) -> Linear:
        """What a lane holds at the beginning."""
        if name == "one":
            return Linear({}, (1.0, 0))
        if zero:
            return Linear()
        labels, sizes = self.axes(name)
        node = self.node("lane", (), labels, sizes, name=name)
        return Linear({(node, labels): (1.0, 0)})

    def as_lane(self, name: str, value: Linear) -> Node:
        """A lane's value as one node with the lane's axes."""
        return self.materialise(value, *self.axes(name))

    def materialise(self, value: Linear, labels: str, sizes: Mapping[str, int]) -> Node:
        """One node with the given axes."""
        if len(value.terms) == 1 and value.constant[0] == 0.0:
            (((node, used), coefficient),) = value.terms.items()
            if used == labels and coefficient == (1.0, 0):
                return node
        return self.node(
            "sum",
            tuple(value.terms),
            labels,
            sizes,
            coefficients=tuple(value.terms.values()),
            constant=value.constant,
        )

    def single(self, value: Linear, sizes: Mapping[str, int]) -> tuple[Term | None, Coefficient]:
        """A value as coefficient * node; no node for a constant."""
        if not value.terms:
            return None, value.constant
        if len(value.terms) == 1 and value.constant[0] == 0.0:
            ((term, coefficient),) = value.terms.items()
            return term, coefficient
        labels = value.labels
        return (self.materialise(value, labels, sizes), labels), (1.0, 0)

    def product(self, factors: list[Linear], keep: str, sizes: Mapping[str, int]) -> Linear:
        """The product, summed over labels that are not kept, two factors at a time."""
        if any(factor.zero for factor in factors):
            return Linear()
        several = [factor for factor in factors if factor.terms]
        constant: Coefficient = (1.0, 0)
        for factor in factors:
            if not factor.terms:
                constant = times(constant, factor.constant)
        if len(several) == 1 and all(set(used) <= set(keep) for _, used in several[0].terms):
            return several[0].scaled(constant)
        if not several:
            return Linear({}, constant)
        terms: list[Term] = []
        for factor in several:
            term, coefficient = self.single(factor, sizes)
            constant = times(constant, coefficient)
            assert term is not None
            terms.append(term)
        while len(terms) > 2:
            first, second, *rest = terms
            needed = keep + "".join(used for _, used in rest)
            terms = [self.contract((first, second), needed, sizes), *rest]
        return Linear({self.contract(tuple(terms), keep, sizes): constant})

    def contract(self, terms: tuple[Term, ...], keep: str, sizes: Mapping[str, int]) -> Term:
        labels = ordered({label for _, used in terms for label in used if label in keep}, keep)
        if len(terms) == 1 and set(terms[0][1]) == set(labels):
            return terms[0]
        return self.node("product", terms, labels, sizes), labels

    def fold(self, value: Linear) -> Linear:
        """c x + a f(x), f piecewise linear with few knots, is one such function of x."""
        for (node, labels), (a, power) in value.terms.items():
            if node.op != "apply" or not isinstance(node.f, PiecewiseLinear) or power:
                continue
            ((x, _),) = node.args
            c = value.terms.get((x, labels), (0.0, 0))
            f = plus_identity(node.f, a, c[0]) if c[0] and c[1] == 0 else None
            if f is not None:
                rest = {term: k for term, k in value.terms.items() if term not in ((node, labels), (x, labels))}
                sizes = dict(zip((n for n in node.labels if n.islower()), node.sizes, strict=True))
                made = self.node("apply", node.args, node.labels, sizes, f=f)
                return Linear({**rest, (made, labels): (1.0, 0)}, value.constant)
        return value
