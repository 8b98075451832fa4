"""Passes that turn the layers of a program into one graph of tensor operations: what the fused executor runs.

The layers are executed symbolically, once. Every lane holds a linear combination of nodes, every node is an operation
on earlier nodes, and equal operations are one node. Nothing here knows what back-propagation is; for gradient descent
what comes out is back-propagation, because

- a score that several instructions share is one product: r and r' of a pre-activation, however many layers apart,
- a sum of hinges is one function, applied once, whatever their number,
- the constant lane, the identity and signs are folded into coefficients,
- x - x is zero: a lane that is cleared at the end of a step is zero at its beginning, and adding to zero is free,
- w + f(w) is one piecewise-linear function of w: the projection,
- a mean over tokens of s p^T is one product, and the residual stream is never formed,
- tokens that cannot reach the weights (queries, blank tokens) are left out of the steps (``graph.demos_suffice``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Literal

import torch

from innergrad.errors import InputError
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret.graph import (
    NAMES,
    Check,
    Coefficient,
    Graph,
    Linear,
    Node,
    ScalarFunction,
    Term,
    indices,
    lengths,
    of_node,
    ordered,
    rename,
    times,
)
from innergrad.interpret.plain import SCALE_INPUTS, argument_left, enlarge, lane_left, slack
from innergrad.interpret.walk import Algebra, Seen, Token, added, maps_first, pieces_of
from innergrad.ir.program import Expr, Layer, Program, Score, View

Bounds = Callable[[Layer], Mapping[str, tuple[float, float]]]
ONCE: Coefficient = (1.0, 0)


def build(
    program: Program,
    layers: tuple[Layer, ...],
    functions: Mapping[str, ScalarFunction],
    bounds: Bounds,
    *,
    clean: bool = True,
) -> Graph:
    """The graph of some layers, one after the other.

    clean: scratch lanes are zero at the beginning. bounds: of the lanes a layer reads.
    """
    zero = {lane.name for lane in program.stream.lanes if clean and lane.role == "scratch" and lane.fill == 0.0}
    while True:  # a scratch lane that is not cleared is carried along
        graph = Symbols(program, layers, functions, bounds, zero).run()
        dirty = zero & set(graph.results)
        if not dirty:
            return graph
        zero -= dirty


class Nodes(Algebra[Linear]):
    """The nodes of a graph under construction, and the algebra of their linear combinations, lanes aside.

    Equal operations are one node. The constant lane, signs and scales are coefficients; a sum or a product becomes a
    node only where it is needed as one.
    """

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

    def materialise(self, value: Linear, labels: str, sizes: Mapping[str, int] | None = None) -> Node:
        """One node with the given axes. sizes: as of a node."""
        if value.single is not None and value.single[1:] == (labels, ONCE):
            return value.single[0]
        linear = {"coefficients": tuple(value.terms.values()), "constant": value.constant}
        return self.node("sum", tuple(value.terms), labels, sizes, **linear)

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
            terms = [self._contract((first, second), needed), *rest]
        return Linear({self._contract(tuple(terms), keep): constant})

    def _contract(self, terms: tuple[Term, ...], keep: str) -> Term:
        labels = ordered({label for _, used in terms for label in used if label in keep}, keep)
        if len(terms) == 1 and set(terms[0][1]) == set(labels):
            return terms[0]
        return self.node("product", terms, labels), labels

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


class Symbols(Nodes):
    """The symbolic execution of some layers: what the lanes hold, and what has to be checked."""

    def __init__(
        self,
        program: Program,
        layers: tuple[Layer, ...],
        functions: Mapping[str, ScalarFunction],
        bounds: Bounds,
        zero: set[str],
    ) -> None:
        super().__init__()
        self.program, self.layers, self.functions, self.bounds = program, layers, functions, bounds
        self.checks: dict[tuple[Node, str], Check] = {}
        self.start = {lane.name: self._at_first(lane.name, zero) for lane in program.stream.lanes}
        self.lanes: Mapping[str, Linear] = self.start

    def run(self) -> Graph:
        for layer in self.layers:
            self._layer(layer)
        changed = {name: value for name, value in self.lanes.items() if value != self.start[name]}
        results = {name: self._as_lane(name, value) for name, value in changed.items() if not value.zero}
        cleared = tuple(name for name, value in changed.items() if value.zero)
        return Graph(results, cleared, tuple(self.checks.values()))

    def _layer(self, layer: Layer) -> None:
        self.layer = layer
        for name, (low, high) in self.bounds(layer).items():
            if self.lanes[name].terms:
                node, what = self._as_lane(name, self.lanes[name]), lane_left(layer, name)
                hint = enlarge(self.program.stream[name])
                self.checks[node, what] = Check(node, low, high, slack((low, high)), what, hint)
        after = dict(self.lanes)
        for instruction, mapped in maps_first(layer, self.functions):
            dst = instruction.dst
            if mapped is not None:
                after[dst.lane] = self._applied(mapped, instruction.scores[0], self.lanes[dst.lane])
                continue
            change = added(self.program, instruction, self)
            if not change.zero:
                after[dst.lane] = self._written(dst, after[dst.lane], change)
        self.lanes = {name: self._kept(name, value) for name, value in after.items()}

    # -------------------------------------------------------------------------------------------------------- lanes

    def _axes(self, lane: str) -> tuple[str, dict[str, int]]:
        """The labels of a lane's axes, and the lengths of those of its indices."""
        known = self.program.stream[lane]
        sizes = dict(zip(NAMES, known.shape, strict=False))
        return ("B" if known.shared else "BI") + "".join(sizes), sizes

    def _at_first(self, name: str, zero: set[str]) -> Linear:
        """What a lane holds at the beginning."""
        if name == "one":
            return Linear({}, ONCE)
        return Linear() if name in zero else of_node(self.node("lane", (), *self._axes(name), name=name))

    def _as_lane(self, name: str, value: Linear) -> Node:
        """A lane's value as one node with the lane's axes."""
        return self.materialise(value, *self._axes(name))

    def _kept(self, name: str, value: Linear) -> Linear:
        """What survives a step becomes one node after every layer; scratch lanes stay as they are."""
        if self.program.stream[name].role == "scratch" or len(value.terms) < 2:
            return value
        return of_node(self._as_lane(name, value))

    def _written(self, dst: View, value: Linear, change: Linear) -> Linear:
        """The lane with something added to it, or to some of its entries."""
        names = {label: name for label, name in zip(dst.index, NAMES, strict=False) if isinstance(label, str)}
        change = change.relabelled(names)
        if dst.whole:
            return self.plus(value, change)
        labels, sizes = self._axes(dst.lane)
        part = labels.removesuffix("".join(sizes)) + "".join(names.values())
        base, entries = self._as_lane(dst.lane, value), self.materialise(change, part, sizes)
        return of_node(self.node("scatter", ((base, labels), (entries, part)), labels, index=_entries(dst)))

    def read(self, expression: Expr, token: Token) -> Linear:
        return self.sum([self._view(view, token).scaled((view.coefficient, 0)) for view in expression])

    def _view(self, view: View, token: Token) -> Linear:
        """A lane's value with the view's labels in place of the lane's, read at token I or S."""
        value, (_, sizes) = self.lanes[view.lane], self._axes(view.lane)
        if not value.terms or (view.whole and len(set(view.labels)) == len(view.labels)):
            return value.relabelled(dict(zip(NAMES, map(str, view.index), strict=False)) | {"I": token})
        labels = ordered({*value.labels, *sizes})
        node, outer = self.materialise(value, labels, sizes), labels.removesuffix("".join(sizes))
        if not view.whole:
            kept = [name for name, entry in zip(sizes, view.index, strict=True) if isinstance(entry, str)]
            node = self.node("select", ((node, labels),), outer + "".join(kept), index=_entries(view))
        used = outer + "".join(view.labels)
        if len(set(used)) < len(used):
            once = ordered(set(used))
            node, used = self.node("product", ((node, used),), once), once
        return of_node(node, used.replace("I", token))

    # ---------------------------------------------------------------------------------------------- functions, masks

    def apply(self, score: Score, argument: Linear, value: Linear | None) -> Linear:
        del value
        f = self.functions[score.f.name]
        return self._applied(pieces_of(f) or f, score, argument)

    def _applied(self, f: ScalarFunction, score: Score, argument: Linear) -> Linear:
        if not argument.terms and argument.constant[1] == 0:
            return Linear({}, (float(f(torch.tensor(argument.constant[0], dtype=torch.float64))), 0))
        labels = argument.labels
        low, high = getattr(f, "domain", (-torch.inf, torch.inf))
        if low > -torch.inf or high < torch.inf:
            node, what = self.materialise(argument, labels), argument_left(self.layer, score.f.name)
            self.checks[node, what] = Check(node, low, high, 0.0, what, SCALE_INPUTS)
        if isinstance(f, PiecewiseLinear) and len(f.slopes) == 1:
            constant = Linear({}, (f.value - f.slopes[0] * f.anchor, 0))
            return self.plus(argument.scaled((f.slopes[0], 0)), constant)
        node = self.materialise(argument, labels)
        return of_node(self.node("apply", ((node, labels),), labels, f=f), labels)

    def mask(self, seen: Seen) -> Linear:
        """Made from the prompt, before the first layer."""
        if any(seen.reads == other.dst.lane for layer in self.layers for other in layer.instructions):
            raise InputError(
                "the fused executor makes the mask of a scope before the first layer",
                got=f"layers that write lane {seen.reads}",
                hint='use executor="plain"',
            )
        return of_node(self.node("mask", (), seen.labels, f=seen), seen.labels)


def _entries(view: View) -> tuple[int | None, ...]:
    """Its indices that are numbers."""
    return tuple(entry if isinstance(entry, int) else None for entry in view.index)
