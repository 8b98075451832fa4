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
from typing import assert_never

import torch

from innergrad.errors import InputError
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import Function
from innergrad.guard import SCALE_INPUTS, argument_left, enlarge, lane_left, slack
from innergrad.interpret.graph import NAMES, Check, Graph, Linear, Node, ScalarFunction, ordered
from innergrad.interpret.nodes import Nodes
from innergrad.program import Attend, Expr, Layer, Program, Score, View

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
            name, change = instruction.dst.lane, self._change(layer, instruction, lanes)
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
        node = self.nodes.as_lane(name, value)
        return Linear({(node, node.labels): (1.0, 0)})

    def _add(self, name: str, value: Linear, change: Linear) -> Linear:
        total = value.plus(change)
        if total is None:
            labels, _ = self.nodes.axes(name)
            parts = [Linear({(self.nodes.as_lane(name, part), labels): (1.0, 0)}) for part in (value, change)]
            total = parts[0].plus(parts[1])
        assert total is not None
        return self.nodes.fold(total)

    def _scatter(self, instruction: Attend, value: Linear, change: Linear) -> Linear:
        """The lane with something added to one of its entries, or to some."""
        labels, sizes = self.nodes.axes(instruction.dst.lane)
        base = self.nodes.materialise(value, labels, sizes)
        kept = {label: NAMES[i] for i, label in enumerate(instruction.dst.index) if isinstance(label, str)}
        part = labels.removesuffix("".join(sizes)) + "".join(kept.values())
        added = self.nodes.materialise(change.relabelled(kept), part, sizes)
        index = tuple(i if isinstance(i, int) else None for i in instruction.dst.index)
        node = self.nodes.node("scatter", ((base, labels), (added, part)), labels, sizes, index=index)
        return Linear({(node, labels): (1.0, 0)})

    def _change(self, layer: Layer, instruction: Attend, lanes: Mapping[str, Linear]) -> Linear:
        """What one instruction adds: :func:`innergrad.interpret.plain._contribution`, symbolically."""
        sizes = self.program.label_sizes(instruction)
        token, keep = instruction.token, "BI" + instruction.family
        mask = self._mask(instruction)
        factors = [self._expression(instruction.value, lanes, token, sizes)]
        for score in instruction.scores:
            argument = self._argument(score, lanes, token, "BIS" + instruction.family, sizes)
            if instruction.softmax:
                factors.append(self._softmax(layer, score, argument, mask, sizes))
            else:
                factors.append(self._apply(layer, score, argument, sizes))
        if mask is not None and not instruction.softmax:
            factors.append(mask)
        power = instruction.power(summed=any("S" in used for factor in factors for _, used in factor.terms))
        result = self.nodes.product(factors, keep, sizes)
        if power < 0 and mask is not None:
            ((term, _),) = mask.terms.items()
            labels = ordered(set(term[1]) - {"S"})
            count = self.nodes.node("count", (term,), labels, sizes)
            inverse = self.nodes.node("apply", ((count, count.labels),), labels, sizes, f=torch.reciprocal)
            result = self.nodes.product([result, Linear({(inverse, labels): (1.0, 0)})], keep, sizes)
            power = 0
        if instruction.written is not None:
            result = self.nodes.product([result, lanes[instruction.written]], keep, sizes)
        return result.scaled((instruction.scale, power))

    def _expression(
        self, expression: Expr, lanes: Mapping[str, Linear], token: str, sizes: Mapping[str, int]
    ) -> Linear:
        total = Linear()
        for view in expression:
            term = self._view(view, lanes[view.lane], token, sizes).scaled((view.coefficient, 0))
            added = total.plus(term)
            if added is None:  # different powers of the token count: one of them becomes a node
                labels = term.labels
                node = self.nodes.materialise(term, labels, sizes)
                added = total.plus(Linear({(node, labels): (1.0, 0)}))
            assert added is not None
            total = added
        return total

    def _view(self, view: View, value: Linear, token: str, sizes: Mapping[str, int]) -> Linear:
        """A lane's value with the view's labels in place of the lane's, read at token I or S."""
        if not value.terms:
            return value
        shape = self.program.stream[view.lane].shape
        if not view.whole or len(set(view.labels)) < len(view.labels):
            lane_sizes = dict(zip(NAMES, shape, strict=False))
            tokens = {label for _, used in value.terms for label in used if label.isupper()}
            labels = ordered(tokens | set(NAMES[: len(shape)]))
            node = self.nodes.materialise(value, labels, lane_sizes)
            index = tuple(i if isinstance(i, int) else None for i in view.index)
            if any(i is not None for i in index):
                rest = "".join(n for n in labels if n.isupper() or index[NAMES.index(n)] is None)
                node, labels = self.nodes.node("select", ((node, labels),), rest, lane_sizes, index=index), rest
            upper = "".join(label for label in labels if label.isupper())
            used = upper + "".join(view.labels)
            if len(set(used)) < len(used):
                once = ordered(set(used))
                node = self.nodes.node("product", ((node, used),), once, sizes)
                used = once
            return Linear({(node, used.replace("I", token)): (1.0, 0)})
        names = dict(zip(NAMES, (str(i) for i in view.index), strict=False)) | {"I": token}
        return value.relabelled(names)

    def _argument(
        self, score: Score, lanes: Mapping[str, Linear], read: str, keep: str, sizes: Mapping[str, int]
    ) -> Linear:
        total = Linear()
        for query, key in score.pairs:
            sides = [self._expression(query, lanes, "I", sizes), self._expression(key, lanes, read, sizes)]
            term = self.nodes.product(sides, keep, sizes)
            added = total.plus(term)
            assert added is not None, "powers of the token count arise in means only"
            total = added
        return total

    def _apply(self, layer: Layer, score: Score, argument: Linear, sizes: Mapping[str, int]) -> Linear:
        f = self.functions[score.f.name]
        f = f.exact if isinstance(f, Function) and f.exact is not None else f
        self._check_domain(f, layer, score, argument, sizes)
        if isinstance(f, PiecewiseLinear) and len(f.slopes) == 1:
            constant = f.value - f.slopes[0] * f.anchor
            total = argument.scaled((f.slopes[0], 0)).plus(Linear({}, (constant, 0)))
            assert total is not None
            return total
        if not argument.terms:
            return Linear({}, (float(f(torch.tensor(argument.constant[0], dtype=torch.float64))), 0))
        labels = argument.labels
        node = self.nodes.materialise(argument, labels, sizes)
        applied = self.nodes.node("apply", ((node, labels),), labels, sizes, f=f)
        return Linear({(applied, labels): (1.0, 0)})

    def _check_domain(
        self, f: ScalarFunction, layer: Layer, score: Score, argument: Linear, sizes: Mapping[str, int]
    ) -> None:
        low, high = getattr(f, "domain", (-torch.inf, torch.inf))
        if (low == -torch.inf and high == torch.inf) or not argument.terms:
            return
        labels = argument.labels
        node, what = self.nodes.materialise(argument, labels, sizes), argument_left(layer, score.f.name)
        self.checks[node, what] = Check(node, low, high, 0.0, what, SCALE_INPUTS)

    def _softmax(
        self, layer: Layer, score: Score, argument: Linear, mask: Linear | None, sizes: Mapping[str, int]
    ) -> Linear:
        scores = self._apply(layer, score, argument, sizes)
        ones = {label for _, used in scores.terms for label in used}
        terms = () if mask is None else tuple(mask.terms)
        labels = ordered(ones | {"S"} | {label for _, used in terms for label in used})
        first = self.nodes.materialise(scores, ordered(ones), sizes)
        node = self.nodes.node("softmax", ((first, ordered(ones)), *terms), labels, sizes)
        return Linear({(node, labels): (1.0, 0)})

    def _mask(self, instruction: Attend) -> Linear | None:
        """Where token S is in the scope of token I; None if everywhere. Made from the prompt by the plain rules."""
        labels = mask_labels(self.program, instruction)
        if not labels:
            return None
        read = {"demos": "t", "at": "query"}.get(instruction.scope_kind, instruction.scope)
        if any(read == other.dst.lane for layer in self.layers for other in layer.instructions):
            raise InputError(
                "the fused executor makes the mask of a scope before the first layer",
                got=f"layers that write lane {read}",
                hint='use executor="plain"',
            )
        node = self.nodes.node("mask", (), labels, {}, name=instruction.scope)
        return Linear({(node, labels): (1.0, 0)})


def mask_labels(program: Program, instruction: Attend) -> str:
    """The axes of a scope's mask, as :func:`innergrad.interpret.plain.scope_mask` makes it; empty if there is none."""
    chosen = "BIS" if program.causal or program.sink else "BS"
    match instruction.scope_kind:
        case "self":
            return ""
        case "all":
            return "IS" if program.causal else ""
        case "before" | "upto" | "previous":
            return "IS"
        case "at":
            return "BIS" if instruction.at and instruction.at[1] else chosen
        case "demos" | "lane":
            return chosen
        case unknown:
            assert_never(unknown)
