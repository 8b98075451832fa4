"""Passes that turn the layers of a program into one graph of tensor operations, which the fused executor runs.

The layers are executed symbolically, once. Every lane holds a linear combination of nodes, every node is an operation
on earlier nodes, and equal operations are one node. Nothing here knows back-propagation. For gradient descent the
result is back-propagation all the same, because

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

import torch

from innergrad.errors import InputError
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import contract
from innergrad.interpret.graph import (
    NAMES,
    ONCE,
    Check,
    Graph,
    Linear,
    Node,
    ScalarFunction,
    of_node,
    ordered,
)
from innergrad.interpret.marks import Marks
from innergrad.interpret.node_table import Combinations
from innergrad.interpret.plain import SCALE_INPUTS, argument_left, enlarge, lane_left, slack
from innergrad.interpret.walk import Seen, Token, added, maps_first, pieces_of
from innergrad.ir.program import Expr, Layer, Program, Score, View
from innergrad.ir.stream import low as low_digits

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
    zero = zero_lanes(program, "scratch") if clean else set()
    return contract.cheapest(Symbols(program, layers, functions, bounds, zero).graph)


def zero_lanes(program: Program, *roles: str) -> set[str]:
    """Those of some roles that hold zeros before the first layer. Low digits of the prompt's values do not."""
    lanes = program.stream.lanes
    given = {low_digits(lane.name) for lane in lanes if lane.role in ("input", "weight")}
    return {lane.name for lane in lanes if lane.role in roles and lane.fill == 0.0} - given


class Symbols(Combinations):
    """The symbolic execution of some layers: the values of the lanes, and the checks."""

    def __init__(
        self,
        program: Program,
        layers: tuple[Layer, ...],
        functions: Mapping[str, ScalarFunction],
        bounds: Bounds,
        zero: set[str],
        derived: Mapping[str, Linear] | None = None,
    ) -> None:
        """zero: lanes that are zero at the beginning; of scratch lanes, those that are so at the end. derived: values
        of lanes at the beginning that are made of others.
        """
        super().__init__()
        self.program, self.layers, self.functions, self.bounds = program, layers, functions, bounds
        self.marks = Marks(program)
        self.checks: dict[tuple[Node, str], Check] = {}
        self.zero, self.derived = zero, derived or {}
        self.lanes: Mapping[str, Linear] = {}
        self.graph = self._run()

    def _run(self) -> Graph:
        """Layer by layer. A scratch lane that is not cleared is carried along."""
        while True:
            graph = self._once()
            dirty = zero_lanes(self.program, "scratch") & self.zero & set(graph.results)
            if not dirty:
                return graph
            self.zero = self.zero - dirty

    def _once(self) -> Graph:
        self.checks.clear()
        start = {lane.name: self._at_first(lane.name, self.zero) for lane in self.program.stream.lanes}
        self.lanes = self.start = start | {n: self._from_lanes(value, start) for n, value in self.derived.items()}
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

    def rederived(self, name: str, value: Linear) -> bool:
        """Whether a lane is the same function of the others as at the beginning, after all layers."""
        again = self._from_lanes(value, self.lanes)
        return self._as_lane(name, again) is self._as_lane(name, self.lanes[name])

    def _from_lanes(self, value: Linear, lanes: Mapping[str, Linear]) -> Linear:
        """A linear combination of nodes, made again from the values of some lanes."""
        made: dict[Node, Node] = {}

        def again(node: Node) -> Node:
            if node not in made:
                args = tuple((again(argument), used) for argument, used in node.args)
                made[node] = self._as_lane(node.name, lanes[node.name]) if node.op == "lane" else self.again(node, args)
            return made[node]

        return Linear({(again(node), used): c for (node, used), c in value.terms.items()}, value.constant)

    # -------------------------------------------------------------------------------------------------------- lanes

    def _axes(self, lane: str) -> tuple[str, dict[str, int]]:
        """The labels of a lane's axes, and the lengths of those of its indices."""
        known = self.program.stream[lane]
        sizes = dict(zip(NAMES, known.shape, strict=False))
        return ("B" if known.shared else "BI") + "".join(sizes), sizes

    def _at_first(self, name: str, zero: set[str]) -> Linear:
        """The value of a lane at the beginning."""
        if name == "one":
            return Linear({}, ONCE)
        return Linear() if name in zero else of_node(self.node("lane", (), *self._axes(name), name=name))

    def _as_lane(self, name: str, value: Linear) -> Node:
        """A lane's value as one node with the lane's axes."""
        return self.materialise(value, *self._axes(name))

    def _kept(self, name: str, value: Linear) -> Linear:
        """Lanes that survive a step become one node after every layer; scratch lanes stay as they are."""
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

    def product(self, factors: list[Linear], keep: str) -> Linear:
        """A value times softmax weights of markers is a function of the token's query."""
        read = self.marks.read(*factors) if len(factors) == 2 and "S" not in keep else None
        if read is None:
            return super().product(factors, keep)
        labels = read.argument.labels
        argument = ((self.materialise(read.argument, labels), labels),)
        if read.f is None:
            return Linear({(self.node("normalise", argument, labels), labels): read.coefficient})
        return Linear({(self.node("apply", argument, labels, f=read.f), labels): read.coefficient})

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
