"""Passes that turn the layers of a program into one graph of tensor operations: what the fused executor runs.

The layers are executed symbolically, once. Every lane holds a linear combination of nodes (:class:`Linear`), every node
is an operation on earlier nodes, and equal operations are one node. Nothing here knows what back-propagation is; for
gradient descent what comes out is back-propagation, because

- a score that several instructions share is one product: r and r' of a pre-activation, however many layers apart,
- a sum of hinges is one function, applied once, whatever their number,
- the constant lane, the identity and signs are folded into coefficients,
- x - x is zero: a lane that is cleared at the end of a step is zero at its beginning, and adding to zero is free,
- w + f(w) is one piecewise-linear function of w: the projection,
- a mean over tokens of s p^T is one product, and the residual stream is never formed,
- tokens that cannot reach the weights (queries, blank tokens) are left out of the steps (:func:`demos_suffice`).

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

from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import Function
from innergrad.interpret.tables import plus_identity
from innergrad.program import Attend, Expr, Layer, Program, Score, View

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
    mask     1 where token S is in the scope ``name`` of token I
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

    def scaled(self, factor: Coefficient) -> Linear:
        if factor[0] == 0.0:
            return Linear()
        return Linear({term: _times(c, factor) for term, c in self.terms.items()}, _times(self.constant, factor))

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
        return Linear({(node, _rename(labels, names)): c for (node, labels), c in self.terms.items()}, self.constant)


def _times(a: Coefficient, b: Coefficient) -> Coefficient:
    return a[0] * b[0], a[1] + b[1]


def _plus(a: Coefficient | None, b: Coefficient) -> Coefficient | None:
    if a is None or a[0] == 0.0:
        return b
    if b[0] == 0.0:
        return a
    return (a[0] + b[0], a[1]) if a[1] == b[1] else None


def _rename(labels: str, names: Mapping[str, str]) -> str:
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
        graph = _Builder(program, functions, bounds, frozenset(zero)).run(layers)
        dirty = zero & set(graph.results)
        if not dirty:
            return graph
        zero -= dirty


class _Builder:
    def __init__(
        self, program: Program, functions: Mapping[str, ScalarFunction], bounds: Bounds, zero: frozenset[str]
    ) -> None:
        self.program, self.functions, self.bounds = program, functions, bounds
        self.known: dict[object, Node] = {}
        self.checks: dict[tuple[Node, str], Check] = {}
        self.start = {lane.name: self._lane(lane.name, lane.name in zero) for lane in program.stream.lanes}

    def run(self, layers: tuple[Layer, ...]) -> Graph:
        lanes = dict(self.start)
        for layer in layers:
            lanes = self._layer(layer, lanes)
        changed = {name: value for name, value in lanes.items() if value != self.start[name]}
        results = {name: self._as_lane(name, value) for name, value in changed.items() if not value.zero}
        cleared = tuple(name for name, value in changed.items() if value.zero)
        return Graph(results, cleared, tuple(self.checks.values()))

    # --------------------------------------------------------------------------------------------------------- nodes

    def _node(self, op: str, args: tuple[Term, ...], labels: str, sizes: Mapping[str, int], **more: Any) -> Node:
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
        args = tuple((node, _rename(used, names)) for node, used in args)
        key = (op, args, _rename(labels, names), own, *more.items())
        if key not in self.known:
            self.known[key] = Node(op, args, _rename(labels, names), own, **more)
        return self.known[key]

    def _lane(self, name: str, zero: bool) -> Linear:
        lane = self.program.stream[name]
        if name == "one":
            return Linear({}, (1.0, 0))
        if zero:
            return Linear()
        inner = NAMES[: len(lane.shape)]
        labels = ("B" if lane.shared else "BI") + inner
        node = self._node("lane", (), labels, dict(zip(inner, lane.shape, strict=True)), name=name)
        return Linear({(node, labels): (1.0, 0)})

    def _as_lane(self, name: str, value: Linear) -> Node:
        """A lane's value as one node with the lane's axes."""
        lane = self.program.stream[name]
        inner = NAMES[: len(lane.shape)]
        labels = ("B" if lane.shared else "BI") + inner
        return self._materialise(value, labels, dict(zip(inner, lane.shape, strict=True)))

    def _materialise(self, value: Linear, labels: str, sizes: Mapping[str, int]) -> Node:
        """One node with the given axes."""
        if len(value.terms) == 1 and value.constant[0] == 0.0:
            (((node, used), coefficient),) = value.terms.items()
            if used == labels and coefficient == (1.0, 0):
                return node
        return self._node(
            "sum",
            tuple(value.terms),
            labels,
            sizes,
            coefficients=tuple(value.terms.values()),
            constant=value.constant,
        )

    def _single(self, value: Linear, sizes: Mapping[str, int]) -> tuple[Term | None, Coefficient]:
        """A value as coefficient * node; no node for a constant."""
        if not value.terms:
            return None, value.constant
        if len(value.terms) == 1 and value.constant[0] == 0.0:
            ((term, coefficient),) = value.terms.items()
            return term, coefficient
        labels = _labels(value)
        return (self._materialise(value, labels, sizes), labels), (1.0, 0)

    def _product(self, factors: list[Linear], keep: str, sizes: Mapping[str, int]) -> Linear:
        """The product, summed over labels that are not kept, two factors at a time."""
        if any(factor.zero for factor in factors):
            return Linear()
        several = [factor for factor in factors if factor.terms]
        constant: Coefficient = (1.0, 0)
        for factor in factors:
            if not factor.terms:
                constant = _times(constant, factor.constant)
        if len(several) == 1 and all(set(used) <= set(keep) for _, used in several[0].terms):
            return several[0].scaled(constant)
        if not several:
            return Linear({}, constant)
        terms: list[Term] = []
        for factor in several:
            term, coefficient = self._single(factor, sizes)
            constant = _times(constant, coefficient)
            assert term is not None
            terms.append(term)
        while len(terms) > 2:
            first, second, *rest = terms
            needed = keep + "".join(used for _, used in rest)
            terms = [self._contract((first, second), needed, sizes), *rest]
        return Linear({self._contract(tuple(terms), keep, sizes): constant})

    def _contract(self, terms: tuple[Term, ...], keep: str, sizes: Mapping[str, int]) -> Term:
        labels = _ordered({label for _, used in terms for label in used if label in keep}, keep)
        if len(terms) == 1 and set(terms[0][1]) == set(labels):
            return terms[0]
        return self._node("product", terms, labels, sizes), labels

    # -------------------------------------------------------------------------------------------------- instructions

    def _layer(self, layer: Layer, lanes: Mapping[str, Linear]) -> dict[str, Linear]:
        for name, (low, high) in self.bounds(layer).items():
            if lanes[name].terms:
                node = self._as_lane(name, lanes[name])
                what = f"layer {layer.name}: lane {name} left the range its products are made for"
                self.checks[node, what] = Check(node, low, high, 1e-4 * high, what, name)
        after = dict(lanes)
        for instruction in layer.instructions:
            name, change = instruction.dst.lane, self._change(layer, instruction, lanes)
            if change.zero:
                continue
            if any(isinstance(i, int) for i in instruction.dst.index):
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
        node = self._as_lane(name, value)
        return Linear({(node, node.labels): (1.0, 0)})

    def _add(self, name: str, value: Linear, change: Linear) -> Linear:
        total = value.plus(change)
        if total is None:
            lane = self.program.stream[name]
            labels = ("B" if lane.shared else "BI") + NAMES[: len(lane.shape)]
            parts = [Linear({(self._as_lane(name, part), labels): (1.0, 0)}) for part in (value, change)]
            total = parts[0].plus(parts[1])
        assert total is not None
        return self._fold(total)

    def _fold(self, value: Linear) -> Linear:
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
                made = self._node("apply", node.args, node.labels, sizes, f=f)
                return Linear({**rest, (made, labels): (1.0, 0)}, value.constant)
        return value

    def _scatter(self, instruction: Attend, value: Linear, change: Linear) -> Linear:
        """The lane with something added to one of its entries, or to some."""
        lane = self.program.stream[instruction.dst.lane]
        inner = NAMES[: len(lane.shape)]
        labels = ("B" if lane.shared else "BI") + inner
        sizes = dict(zip(inner, lane.shape, strict=True))
        base = self._materialise(value, labels, sizes)
        kept = {label: NAMES[i] for i, label in enumerate(instruction.dst.index) if isinstance(label, str)}
        part = ("B" if lane.shared else "BI") + "".join(kept.values())
        added = self._materialise(change.relabelled(kept), part, sizes)
        index = tuple(i if isinstance(i, int) else None for i in instruction.dst.index)
        node = self._node("scatter", ((base, labels), (added, part)), labels, sizes, index=index)
        return Linear({(node, labels): (1.0, 0)})

    def _change(self, layer: Layer, instruction: Attend, lanes: Mapping[str, Linear]) -> Linear:
        """What one instruction adds: :func:`innergrad.interpret.plain._contribution`, symbolically."""
        sizes = self.program.label_sizes(instruction)
        read = "I" if instruction.scope == "self" else "S"
        keep = "BI" + "".join(instruction.dst.labels)
        mask = self._mask(instruction)
        factors = [self._expression(instruction.value, lanes, read, sizes)]
        for score in instruction.scores:
            argument = self._argument(score, lanes, read, "BIS" + "".join(instruction.dst.labels), sizes)
            if instruction.reduce == "softmax":
                factors.append(self._softmax(layer, score, argument, mask, sizes))
            else:
                factors.append(self._apply(layer, score, argument, sizes))
        if mask is not None and instruction.reduce != "softmax":
            factors.append(mask)
        seen = any("S" in used for factor in factors for _, used in factor.terms)
        result = self._product(factors, keep, sizes)
        scale: Coefficient = (instruction.scale, 0)
        if read == "S" and not seen and instruction.reduce == "sum":
            scale = _times(scale, (1.0, 1))
        if read == "S" and seen and instruction.reduce == "mean":
            if mask is None:
                scale = _times(scale, (1.0, -1))
            else:
                ((term, _),) = mask.terms.items()
                count = self._node("count", (term,), _ordered(set(term[1]) - {"S"}), sizes)
                labels = _ordered(set(term[1]) - {"S"})
                inverse = self._node("apply", ((count, count.labels),), labels, sizes, f=torch.reciprocal)
                result = self._product([result, Linear({(inverse, labels): (1.0, 0)})], keep, sizes)
        if instruction.where != "all":
            tokens = lanes["t" if instruction.where == "demos" else "query"]
            result = self._product([result, tokens], keep, sizes)
        return result.scaled(scale)

    def _expression(
        self, expression: Expr, lanes: Mapping[str, Linear], token: str, sizes: Mapping[str, int]
    ) -> Linear:
        total = Linear()
        for view in expression:
            term = self._view(view, lanes[view.lane], token, sizes).scaled((view.coefficient, 0))
            added = total.plus(term)
            if added is None:  # different powers of the token count: one of them becomes a node
                labels = _labels(term)
                node = self._materialise(term, labels, sizes)
                added = total.plus(Linear({(node, labels): (1.0, 0)}))
            assert added is not None
            total = added
        return total

    def _view(self, view: View, value: Linear, token: str, sizes: Mapping[str, int]) -> Linear:
        """A lane's value with the view's labels in place of the lane's, read at token I or S."""
        if not value.terms:
            return value
        shape = self.program.stream[view.lane].shape
        if any(isinstance(i, int) for i in view.index) or len(set(view.labels)) < len(view.labels):
            lane_sizes = dict(zip(NAMES, shape, strict=False))
            tokens = {label for _, used in value.terms for label in used if label.isupper()}
            labels = _ordered(tokens | set(NAMES[: len(shape)]))
            node = self._materialise(value, labels, lane_sizes)
            index = tuple(i if isinstance(i, int) else None for i in view.index)
            if any(i is not None for i in index):
                rest = "".join(n for n in labels if n.isupper() or index[NAMES.index(n)] is None)
                node, labels = self._node("select", ((node, labels),), rest, lane_sizes, index=index), rest
            upper = "".join(label for label in labels if label.isupper())
            used = upper + "".join(view.labels)
            if len(set(used)) < len(used):
                once = _ordered(set(used))
                node = self._node("product", ((node, used),), once, sizes)
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
            term = self._product(sides, keep, sizes)
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
        labels = _labels(argument)
        node = self._materialise(argument, labels, sizes)
        applied = self._node("apply", ((node, labels),), labels, sizes, f=f)
        return Linear({(applied, labels): (1.0, 0)})

    def _check_domain(
        self, f: ScalarFunction, layer: Layer, score: Score, argument: Linear, sizes: Mapping[str, int]
    ) -> None:
        low, high = getattr(f, "domain", (-torch.inf, torch.inf))
        if (low == -torch.inf and high == torch.inf) or not argument.terms:
            return
        labels = _labels(argument)
        node = self._materialise(argument, labels, sizes)
        what = f"layer {layer.name}: an argument of {score.f.name} left the domain of its approximant"
        hint = "compile with a larger z_bound, or scale the inputs"
        self.checks[node, what] = Check(node, low, high, 0.0, what, hint)

    def _softmax(
        self, layer: Layer, score: Score, argument: Linear, mask: Linear | None, sizes: Mapping[str, int]
    ) -> Linear:
        scores = self._apply(layer, score, argument, sizes)
        ones = {label for _, used in scores.terms for label in used}
        terms = () if mask is None else tuple(mask.terms)
        labels = _ordered(ones | {"S"} | {label for _, used in terms for label in used})
        first = self._materialise(scores, _ordered(ones), sizes)
        node = self._node("softmax", ((first, _ordered(ones)), *terms), labels, sizes)
        return Linear({(node, labels): (1.0, 0)})

    def _mask(self, instruction: Attend) -> Linear | None:
        """Where token S is in the scope of token I; None if everywhere. Made from the prompt by the plain rules."""
        if instruction.scope == "self" or (instruction.scope == "all" and not self.program.causal):
            return None
        labels = mask_labels(self.program, instruction)
        node = self._node("mask", (), labels, {}, name=instruction.scope)
        return Linear({(node, labels): (1.0, 0)})


def mask_labels(program: Program, instruction: Attend) -> str:
    """The axes of a scope's mask, as :func:`innergrad.interpret.plain.scope_mask` makes it."""
    scope, plainly = instruction.scope, not program.causal and not program.sink
    if scope in ("all", "before", "upto", "previous"):
        return "IS"
    if instruction.at is not None:
        return "BS" if plainly and instruction.at[1] == 0 else "BIS"
    return "BS" if plainly else "BIS"


def _ordered(labels: set[str], like: str = "") -> str:
    """Prompts, tokens, then indices as in ``like``, and others."""
    inner = [label for label in dict.fromkeys(like) if label in labels and label.islower()]
    inner += sorted(label for label in labels if label.islower() and label not in inner)
    return "".join(label for label in "BIS" if label in labels) + "".join(inner)


def _labels(value: Linear) -> str:
    """The labels of all its terms, in the order of those of its longest term."""
    longest = max((used for _, used in value.terms), key=len)
    return _ordered({label for _, used in value.terms for label in used}, longest)


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
