"""The fused executor in plain torch: a graph of operations, replayed step after step.

It computes the same as :mod:`innergrad.interpret.plain`, with the same approximants, as batched matrix products and
tables (:mod:`innergrad.interpret.symbolic` says how it comes about). Nothing is kept from step to step but lanes that
are carried, so thousands of steps take the memory of one. Where all prompts of a batch are one, the axis of prompts is
left out, which makes every product a plain matrix product.

A *kernel* is the graph made ready for tensors of one kind: a list of operations on registers, one for each node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import tables
from innergrad.interpret.graph import Coefficient, Graph, Node, last_uses
from innergrad.interpret.marks import Mixture, together
from innergrad.ir.stream import State

Make = Callable[[list[Tensor]], Tensor]
View = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Extent:
    """The kind of tensors that the kernel is made for: number of tokens in the prompt, one prompt or several, kind of
    numbers.
    """

    tokens: int
    batched: bool
    dtype: torch.dtype
    device: torch.device

    def number(self, coefficient: Coefficient) -> float:
        return coefficient[0] * float(self.tokens) ** coefficient[1]

    def labels(self, node: Node) -> list[str]:
        """Of a node and of its arguments; without that of prompts if there is only one."""
        labels = [node.labels, *(used for _, used in node.args)]
        return labels if self.batched else [used.replace("B", "") for used in labels]


class Operation(NamedTuple):
    """The nodes that are written, and how they are made of those that are read: one tensor, or one for each."""

    writes: list[Node]
    make: Callable[[list[Tensor]], Tensor | tuple[Tensor, ...]]
    reads: list[Node]


class Kernel:
    """One pass through the layers of a graph, on a state of lanes without an axis of prompts if there is only one."""

    def __init__(self, graph: Graph, extent: Extent, state: State) -> None:
        self.graph, self.extent = graph, extent
        self.lanes = [node for node in graph.nodes if node.op == "lane"]
        self.masks = {node: _mask(node, state, extent) for node in graph.nodes if node.op == "mask"}
        self.operations = list(self._operations())
        self.last_uses = last_uses([operation.reads for operation in self.operations], graph.kept)

    def _operations(self) -> Iterator[Operation]:
        nodes, uses, extent = self.graph.nodes, self.graph.uses, self.extent
        sums = {node: made for node in nodes if (made := _plus_product(node, uses, extent)) is not None}
        inside = {argument for node, (_, reads) in sums.items() for argument, _ in node.args if argument not in reads}
        for node in nodes:
            if isinstance(node.f, PiecewiseLinear):  # with all others of the same argument
                group = [n for n in nodes if n.args == node.args and isinstance(n.f, PiecewiseLinear)]
                if node is group[0]:
                    yield self._look_up(group)
            elif isinstance(node.f, Mixture):
                group = [n for n in nodes if n.args == node.args and _alike(n.f, node.f)]
                if node is group[0]:
                    yield Operation(group, _mixtures(group), [argument for argument, _ in node.args])
            elif node.op not in ("lane", "mask") and node not in inside:
                own = _operation(node, uses, extent), [argument for argument, _ in node.args]
                yield Operation([node], *sums.get(node, own))

    def _look_up(self, group: list[Node]) -> Operation:
        functions, reuse = tuple(node.f for node in group), not any(n in self.graph.results.values() for n in group)
        evaluate = tables.evaluator(functions, self.extent.dtype, self.extent.device, reuse=reuse)
        return Operation(group, lambda args: evaluate(args[0]), [argument for argument, _ in group[0].args])

    def step(self, state: State) -> tuple[State, list[Tensor]]:
        """The lanes after the layers, and for each check the smallest and the largest value."""
        registers = self.masks | {node: state[node.name] for node in self.lanes}
        for (writes, make, reads), over in zip(self.operations, self.last_uses, strict=True):
            made = make([registers[node] for node in reads])
            if isinstance(made, tuple):
                registers.update(zip(writes, made, strict=True))
            else:
                registers[writes[0]] = made
            for node in over:
                del registers[node]
        after = {name: registers[node] for name, node in self.graph.results.items()}
        changed = {name: _spread(lane, state[name].shape) if name in state else lane for name, lane in after.items()}
        cleared = {name: torch.zeros_like(state[name]) for name in self.graph.zero}
        found = [torch.stack(torch.aminmax(registers[check.node])) for check in self.graph.checks]
        return state | changed | cleared, found


class Recorded:
    """A kernel on a GPU as a CUDA graph: one launch a step, the carried lanes updated in place."""

    def __init__(self, kernel: Kernel, lanes: State) -> None:
        self.lanes = {name: lane.clone() for name, lane in lanes.items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # set-up on first use happens outside the graph
            for _ in range(3):
                _, found = kernel.step(self.lanes)
        torch.cuda.current_stream().wait_stream(side)
        self.ranges = [low_high.new_tensor([math.inf, -math.inf]) for low_high in found]
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            after, found = kernel.step(self.lanes)
            for name in (*kernel.graph.results, *kernel.graph.zero):
                self.lanes[name].copy_(after[name])
            for known, new in zip(self.ranges, found, strict=True):
                known[0].copy_(torch.minimum(known[0], new[0]))
                known[1].copy_(torch.maximum(known[1], new[1]))

    def step(self, lanes: State) -> tuple[State, list[Tensor]]:
        """As of a kernel; the lanes that are given are those that came out of the last step."""
        del lanes
        self.graph.replay()
        return self.lanes, self.ranges


def recorded_kernel(kernel: Kernel | Recorded, lanes: State) -> Kernel | Recorded:
    """The kernel as a CUDA graph, unless something in it cannot be recorded (a function that moves data)."""
    try:
        return kernel if isinstance(kernel, Recorded) else Recorded(kernel, lanes)
    except RuntimeError:
        torch.cuda.synchronize()
        return kernel


# ------------------------------------------------------------------------------------------------------- operations


def _operation(node: Node, uses: Mapping[Node, int], extent: Extent) -> Make:
    own, *used = extent.labels(node)
    views = [_aligned(labels, own) for labels in used]
    place = (..., *(slice(None) if i is None else i for i in node.index))
    match node.op:
        case "sum":
            return _sum(node, views, extent)
        case "product":
            return _product(node, views, uses, extent)
        case "apply":
            return lambda args: node.f(args[0])
        case "softmax":
            return _softmax(views, _read(own), extent.tokens)
        case "normalise":
            return lambda args: torch.softmax(args[0], dim=-1)
        case "count":
            return lambda args: args[0].sum(_read(used[0])).clamp(min=1.0)
        case "select":
            return lambda args: args[0][place]
        case _:
            return _scatter(len(own) - len(node.index), place)


def _aligned(labels: str, own: str) -> View:
    """A view of a tensor with axes ``labels`` as one with axes ``own``, of length 1 where it has none."""
    order = [labels.index(label) for label in own if label in labels]
    missing = [axis for axis, label in enumerate(own) if label not in labels]
    if order == list(range(len(order))) and not missing:
        return lambda tensor: tensor
    if not missing and order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
        return lambda tensor: tensor.mT  # three times as fast as a permutation

    def align(tensor: Tensor) -> Tensor:
        tensor = tensor.permute(order)
        for axis in missing:
            tensor = tensor.unsqueeze(axis)
        return tensor

    return align


def _sum(node: Node, views: list[View], extent: Extent) -> Make:
    numbers = [extent.number(c) for c in node.coefficients]
    constant = extent.number(node.constant)
    if not numbers:
        alone = [1] * (len(extent.labels(node)[0]) - len(node.sizes)) + list(node.sizes)
        return lambda args: torch.full(alone, constant, dtype=extent.dtype, device=extent.device)
    order = sorted(range(len(numbers)), key=lambda i: numbers[i] != 1.0)  # a plain copy first
    terms = [(numbers[i], views[i], i) for i in order]
    return lambda args: tables.combined([(number, view(args[i])) for number, view, i in terms], constant)


def _product(node: Node, views: list[View], uses: Mapping[Node, int], extent: Extent) -> Make:
    """Of matrices, or entry by entry, or as einsum has it."""
    own, *used = extent.labels(node)
    matrices = _matrices(node, extent)
    if matrices is not None:
        return lambda args: torch.matmul(*matrices(args))
    if len(used) == 1 and len(set(used[0])) == len(used[0]):
        gone = [axis for axis, label in enumerate(used[0]) if label not in own]
        align = _aligned("".join(label for label in used[0] if label in own), own)
        return lambda args: align(args[0].sum(gone))
    if len(used) == 1 or not set(used[0] + used[1]) <= set(own):
        last = next((label for label in reversed(own) if sum(label in labels for labels in used) == 1), "")
        order = sorted(range(len(used)), key=lambda i: last in used[i])  # the result is in order, which is fast
        equation = f"{','.join(used[i] for i in order)}->{own}"
        return lambda args: torch.einsum(equation, *(args[i] for i in order))
    for i, (argument, _) in enumerate(node.args):
        if used == [own, own] and uses[argument] == 1 and _matrices(argument, extent) is not None:
            return lambda args: args[i].mul_(args[1 - i])  # nobody else reads it, and new memory is slow
    return lambda args: views[0](args[0]) * views[1](args[1])


def _matrices(node: Node, extent: Extent) -> Callable[[list[Tensor]], tuple[Tensor, Tensor]] | None:
    """The arguments of a product as matrices, for each prompt if there are several, that are multiplied in this order;
    None if it is no such product.
    """
    own, *used = extent.labels(node)
    if node.op != "product" or len(used) != 2 or len(own) < 2 or own[:-2] not in ("", "B"):
        return None
    first, second = (0, 1) if own[-2] in used[0] else (1, 0)
    summed = "".join(set(used[0]) & set(used[1]) - set(own))
    rows, columns = own[:-1] + summed, own[:-2] + summed + own[-1]
    if len(summed) != 1 or sorted(used[first]) != sorted(rows) or sorted(used[second]) != sorted(columns):
        return None
    left, right = _aligned(used[first], rows), _aligned(used[second], columns)
    return lambda args: (left(args[first]), right(args[second]))


def _plus_product(node: Node, uses: Mapping[Node, int], extent: Extent) -> tuple[Make, list[Node]] | None:
    """beta base + alpha left @ right in one operation, and its operands; if nobody else reads the product."""
    if node.op != "sum" or len(node.args) != 2 or node.constant[0]:
        return None
    own, *used = extent.labels(node)
    alone = [uses[argument] == 1 and labels == own for (argument, _), labels in zip(node.args, used, strict=True)]
    forms = [_matrices(argument, extent) if alone[i] else None for i, (argument, _) in enumerate(node.args)]
    i = 0 if forms[0] is not None else 1
    matrices = forms[i]
    if matrices is None:
        return None
    alpha, beta = (extent.number(node.coefficients[j]) for j in (i, 1 - i))
    onto, add = _aligned(used[1 - i], own), torch.addmm if len(own) == 2 else torch.baddbmm
    reads = [node.args[1 - i][0], *(argument for argument, _ in node.args[i][0].args)]
    return lambda args: add(onto(args[0]), *matrices(args[1:]), beta=beta, alpha=alpha), reads


def _softmax(views: list[View], axis: int, tokens: int) -> Make:
    def softmax(args: list[Tensor]) -> Tensor:
        scores, *mask = (view(tensor) for view, tensor in zip(views, args, strict=True))
        scores = scores.expand(*scores.shape[:axis], tokens, *scores.shape[axis + 1 :])
        for shown in mask:
            scores = torch.where(shown == 0, -torch.inf, scores)
        return torch.nan_to_num(torch.softmax(scores, dim=axis))

    return softmax


def _alike(f: object, g: Mixture) -> bool:
    return isinstance(f, Mixture) and f.weights == g.weights


def _mixtures(group: list[Node]) -> Callable[[list[Tensor]], tuple[Tensor, ...]]:
    functions = tuple(node.f for node in group)
    return lambda args: together(functions, args[0])


def _read(labels: str) -> int:
    """The axis of the tokens that are read."""
    return labels.index("S" if "S" in labels else "I")


def _scatter(outer: int, place: tuple[Any, ...]) -> Make:
    """outer: axes of prompts and tokens, which may be of length 1 in one of the two."""

    def scatter(args: list[Tensor]) -> Tensor:
        base, added = args
        shape = map(max, base.shape[:outer], added.shape[:outer])
        result = base.expand(*shape, *base.shape[outer:]).clone()
        result[place] += added
        return result

    return scatter


def _spread(value: Tensor, shape: torch.Size) -> Tensor:
    """Over the prompts and tokens that have the same."""
    return value if value.shape == shape else value.expand(*map(max, value.shape, shape))


def _mask(node: Node, state: State, extent: Extent) -> Tensor:
    """Of the scope that the node stands for, in the prompt."""
    lanes = {name: lane if extent.batched else lane.unsqueeze(0) for name, lane in state.items()}
    mask: Tensor = node.f.mask(lanes, extent.tokens)
    return mask if extent.batched or "B" not in node.labels else mask[0]
