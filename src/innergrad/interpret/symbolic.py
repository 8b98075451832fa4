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
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch

from innergrad.errors import InputError
from innergrad.functions.scalar import Function, PiecewiseLinear
from innergrad.interpret.graph import NAMES, Check, Graph, Linear, Node, ScalarFunction, ordered
from innergrad.interpret.nodes import Nodes
from innergrad.interpret.plain import SCALE_INPUTS, argument_left, enlarge, lane_left, slack
from innergrad.interpret.walk import Algebra, Seen, Token, added
from innergrad.ir.program import Attend, Expr, Layer, Program, Score, View

Bounds = Callable[[Layer], Mapping[str, tuple[float, float]]]


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
    scratch = {lane.name for lane in program.stream.lanes if lane.role == "scratch" and lane.fill == 0.0}
    zero = scratch if clean else set[str]()
    while True:  # a scratch lane that is not cleared is carried along
        graph = _Builder(program, layers, functions, bounds, zero).run()
        dirty = zero & set(graph.results)
        if not dirty:
            return graph
        zero -= dirty


class _Builder:
    def __init__(
        self,
        program: Program,
        layers: tuple[Layer, ...],
        functions: Mapping[str, ScalarFunction],
        bounds: Bounds,
        zero: set[str],
    ) -> None:
        self.program, self.layers, self.functions, self.bounds = program, layers, functions, bounds
        self.nodes = Nodes(program)
        self.checks: dict[tuple[Node, str], Check] = {}
        self.start = {lane.name: self.nodes.lane(lane.name, lane.name in zero) for lane in program.stream.lanes}

    def run(self) -> Graph:
        lanes = dict(self.start)
        for layer in self.layers:
            lanes = self._layer(layer, lanes)
        changed = {name: value for name, value in lanes.items() if value != self.start[name]}
        results = {name: self.nodes.as_lane(name, value) for name, value in changed.items() if not value.zero}
        cleared = tuple(name for name, value in changed.items() if value.zero)
        return Graph(results, cleared, tuple(self.checks.values()))

    def _layer(self, layer: Layer, lanes: Mapping[str, Linear]) -> dict[str, Linear]:
        for name, (low, high) in self.bounds(layer).items():
            if lanes[name].terms:
                node, what = self.nodes.as_lane(name, lanes[name]), lane_left(layer, name)
                hint = enlarge(self.program.stream[name])
                self.checks[node, what] = Check(node, low, high, slack((low, high)), what, hint)
        after = dict(lanes)
        for instruction in layer.instructions:
            algebra = Symbols(self, layer, lanes, self.program.label_sizes(instruction))
            name, change = instruction.dst.lane, added(self.program, instruction, algebra)
            if change.zero:
                continue
            if not instruction.dst.whole:
                after[name] = self._scatter(instruction, after[name], change)
                continue
            change = change.relabelled(dict(zip(instruction.dst.labels, NAMES, strict=False)))
            after[name] = self._add(name, after[name], change)
        return {name: self._kept(name, value) for name, value in after.items()}

    def _kept(self, name: str, value: Linear) -> Linear:
        """What survives a step becomes one node after every layer; scratch lanes stay as they are."""
        lane = self.program.stream[name]
        if lane.role == "scratch" or len(value.terms) < 2:
            return value
        return of_node(self.nodes.as_lane(name, value))

    def _add(self, name: str, value: Linear, change: Linear) -> Linear:
        total = value.plus(change)
        if total is None:
            parts = [of_node(self.nodes.as_lane(name, part)) for part in (value, change)]
            total = parts[0].plus(parts[1])
        assert total is not None
        return self.nodes.fold(total)

    def _scatter(self, instruction: Attend, value: Linear, change: Linear) -> Linear:
        """The lane with something added to one of its entries, or to some."""
        labels, sizes = self.nodes.axes(instruction.dst.lane)
        base = self.nodes.materialise(value, labels, sizes)
        kept = {label: NAMES[i] for i, label in enumerate(instruction.dst.index) if isinstance(label, str)}
        part = labels.removesuffix("".join(sizes)) + "".join(kept.values())
        entries = self.nodes.materialise(change.relabelled(kept), part, sizes)
        index = tuple(i if isinstance(i, int) else None for i in instruction.dst.index)
        return of_node(
            self.nodes.node("scatter", ((base, labels), (entries, part)), labels, sizes, index=index), labels
        )


def of_node(node: Node, labels: str | None = None) -> Linear:
    """One node, once."""
    return Linear({(node, node.labels if labels is None else labels): (1.0, 0)})


@dataclass(frozen=True)
class Symbols(Algebra[Linear]):
    """Linear combinations of nodes. sizes: how far the labels of the instruction range."""

    builder: _Builder
    layer: Layer
    lanes: Mapping[str, Linear]
    sizes: Mapping[str, int]

    @property
    def nodes(self) -> Nodes:
        return self.builder.nodes

    def read(self, expression: Expr, token: Token) -> Linear:
        return self.sum([self._view(view, token).scaled((view.coefficient, 0)) for view in expression])

    def _view(self, view: View, token: Token) -> Linear:
        """A lane's value with the view's labels in place of the lane's, read at token I or S."""
        value, nodes = self.lanes[view.lane], self.nodes
        shape = self.builder.program.stream[view.lane].shape
        if not value.terms or (view.whole and len(set(view.labels)) == len(view.labels)):
            return value.relabelled(dict(zip(NAMES, map(str, view.index), strict=False)) | {"I": token})
        lane_sizes = dict(zip(NAMES, shape, strict=False))
        tokens = {label for _, used in value.terms for label in used if label.isupper()}
        labels = ordered(tokens | set(NAMES[: len(shape)]))
        node = nodes.materialise(value, labels, lane_sizes)
        index = tuple(i if isinstance(i, int) else None for i in view.index)
        if not view.whole:
            rest = "".join(n for n in labels if n.isupper() or index[NAMES.index(n)] is None)
            node, labels = nodes.node("select", ((node, labels),), rest, lane_sizes, index=index), rest
        used = "".join(label for label in labels if label.isupper()) + "".join(view.labels)
        if len(set(used)) < len(used):
            once = ordered(set(used))
            node, used = nodes.node("product", ((node, used),), once, self.sizes), once
        return of_node(node, used.replace("I", token))

    def product(self, factors: list[Linear], keep: str) -> Linear:
        return self.nodes.product(factors, keep, self.sizes)

    def sum(self, terms: list[Linear]) -> Linear:
        return reduce(self._plus, terms, Linear())

    def _plus(self, a: Linear, b: Linear) -> Linear:
        found = a.plus(b)
        if found is None:  # different powers of the token count: one of them becomes a node
            found = a.plus(of_node(self.nodes.materialise(b, b.labels, self.sizes), b.labels))
        assert found is not None
        return found

    def apply(self, score: Score, argument: Linear, value: Linear | None) -> Linear:
        del value
        f = self.builder.functions[score.f.name]
        f = f.exact if isinstance(f, Function) and f.exact is not None else f
        if not argument.terms:
            return Linear({}, (float(f(torch.tensor(argument.constant[0], dtype=torch.float64))), 0))
        self._check_domain(f, score, argument)
        if isinstance(f, PiecewiseLinear) and len(f.slopes) == 1:
            constant = Linear({}, (f.value - f.slopes[0] * f.anchor, 0))
            return self._plus(argument.scaled((f.slopes[0], 0)), constant)
        labels = argument.labels
        node = self.nodes.materialise(argument, labels, self.sizes)
        return of_node(self.nodes.node("apply", ((node, labels),), labels, self.sizes, f=f), labels)

    def _check_domain(self, f: ScalarFunction, score: Score, argument: Linear) -> None:
        low, high = getattr(f, "domain", (-torch.inf, torch.inf))
        if low > -torch.inf or high < torch.inf:
            node = self.nodes.materialise(argument, argument.labels, self.sizes)
            what = argument_left(self.layer, score.f.name)
            self.builder.checks[node, what] = Check(node, low, high, 0.0, what, SCALE_INPUTS)

    def softmax(self, scores: Linear, mask: Linear | None) -> Linear:
        ones = self._labels(scores)
        terms = () if mask is None else tuple(mask.terms)
        labels = ordered(ones | {"S"} | {label for _, used in terms for label in used})
        first = self.nodes.materialise(scores, ordered(ones), self.sizes)
        return of_node(self.nodes.node("softmax", ((first, ordered(ones)), *terms), labels, self.sizes), labels)

    def mask(self, seen: Seen) -> Linear:
        """Made from the prompt, before the first layer."""
        if any(seen.reads == other.dst.lane for layer in self.builder.layers for other in layer.instructions):
            raise InputError(
                "the fused executor makes the mask of a scope before the first layer",
                got=f"layers that write lane {seen.reads}",
                hint='use executor="plain"',
            )
        return of_node(self.nodes.node("mask", (), seen.labels, {}, f=seen), seen.labels)

    def count(self, value: Linear, mask: Linear | None, power: Literal[-1, 1]) -> Linear:
        if mask is None:
            return value.scaled((1.0, power))
        ((term, _),) = mask.terms.items()
        labels = ordered(set(term[1]) - {"S"})
        count = self.nodes.node("count", (term,), labels, self.sizes)
        inverse = self.nodes.node("apply", ((count, count.labels),), labels, self.sizes, f=torch.reciprocal)
        return self.product([value, of_node(inverse, labels)], ordered({*self._labels(value), *labels}))

    def scale(self, value: Linear, factor: float) -> Linear:
        return value.scaled((factor, 0))

    def varies(self, value: Linear) -> bool:
        return any("S" in used for _, used in value.terms)

    def _labels(self, value: Linear) -> set[str]:
        return {label for _, used in value.terms for label in used}
