"""The fused executor in plain torch: a graph of operations, replayed step after step.

It computes what :mod:`innergrad.interpret.plain` computes, with the same approximants, as batched matrix products and
tables (:mod:`innergrad.interpret.symbolic` says how it comes about). Nothing is kept from step to step but lanes
that are carried, so thousands of steps take the memory of one. Where all prompts of a batch are one, the axis of
prompts is left out, which makes every product a plain matrix product.

A *kernel* is the graph made ready for tensors of one kind: a list of closures on a list of registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import tables
from innergrad.interpret.graph import Coefficient, Graph, Node
from innergrad.ir.stream import State

Registers = list[Tensor | None]
Operation = Callable[[Registers], None]
Make = Callable[[list[Tensor]], Tensor]


@dataclass(frozen=True)
class Extent:
    """What the kernel is made for: number of tokens in the prompt, one prompt or several, kind of numbers."""

    tokens: int
    batched: bool
    dtype: torch.dtype
    device: torch.device

    def number(self, coefficient: Coefficient) -> float:
        return coefficient[0] * float(self.tokens) ** coefficient[1]

    def labels(self, labels: str) -> str:
        return labels if self.batched else labels.replace("B", "")


class Kernel:
    """One pass through the layers of a graph, on a state of lanes without an axis of prompts if there is only one."""

    def __init__(self, graph: Graph, extent: Extent, state: State) -> None:
        self.graph, self.extent = graph, extent
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.lanes = [(node, self.place[node]) for node in graph.nodes if node.op == "lane"]
        self.uses = _uses(graph)
        inlined = {e for node in graph.nodes if (e := _inlined(node, self.uses, extent)) is not None}
        self.constants: dict[int, Tensor] = {}
        self.operations: list[Operation] = []
        self.reads: list[tuple[int, ...]] = []
        done: set[Node] = set()
        for node in graph.nodes:
            if node.op == "mask":
                self.constants[self.place[node]] = _mask(node, state, extent)
            elif node.op != "lane" and node not in inlined and node not in done:
                self._add(node, inlined, done)
        self.last_uses = self._last_uses()

    def _add(self, node: Node, inlined: set[Node], done: set[Node]) -> None:
        place = self.place
        if node.op == "apply" and isinstance(node.f, PiecewiseLinear):
            group = [n for n in self.graph.nodes if n.op == "apply" and n.args == node.args]
            group = [n for n in group if isinstance(n.f, PiecewiseLinear)]
            done.update(group)
            source, into = place[node.args[0][0]], [place[n] for n in group]
            reuse = not any(n is kept for n in group for kept in self.graph.results.values())
            functions = tuple(n.f for n in group)
            evaluate = tables.evaluator(functions, self.extent.dtype, self.extent.device, reuse=reuse)

            def look_up(registers: Registers) -> None:
                argument = registers[source]
                assert argument is not None
                for target, value in zip(into, evaluate(argument), strict=True):
                    registers[target] = value

            self.reads.append((source,))
            self.operations.append(look_up)
            return
        product = next((e for e, _ in node.args if e in inlined), None) if node.op == "sum" else None
        if product is not None:
            make, sources = _add_product(node, product, self.extent)
        else:
            make, sources = _operation(node, self.extent), [argument for argument, _ in node.args]
            make = _in_place(node, self.uses, self.extent) or make
        places, target = tuple(place[source] for source in sources), place[node]

        def operate(registers: Registers) -> None:
            registers[target] = make([registers[i] for i in places])  # type: ignore[misc]

        self.reads.append(places)
        self.operations.append(operate)

    def _last_uses(self) -> list[tuple[int, ...]]:
        """After each operation, the registers that nobody reads any more."""
        kept = {self.place[node] for node in self.graph.results.values()} | set(self.constants)
        kept |= {self.place[check.node] for check in self.graph.checks}
        last: dict[int, int] = {}
        for number, places in enumerate(self.reads):
            last |= dict.fromkeys(places, number)
        free: list[list[int]] = [[] for _ in self.reads]
        for register, number in last.items():
            if register not in kept:
                free[number].append(register)
        return [tuple(registers) for registers in free]

    def step(self, state: State) -> tuple[State, list[Tensor]]:
        """The lanes after the layers, and for each check the smallest and the largest value."""
        registers: Registers = [None] * len(self.place)
        for index, tensor in self.constants.items():
            registers[index] = tensor
        for node, index in self.lanes:
            registers[index] = state[node.name]
        for operation, free in zip(self.operations, self.last_uses, strict=True):
            operation(registers)
            for index in free:
                registers[index] = None
        after = dict(state)
        for name, node in self.graph.results.items():
            value = registers[self.place[node]]
            assert value is not None
            after[name] = value if value.shape == state[name].shape else value.expand(_lane_shape(value, state[name]))
        for name in self.graph.zero:
            after[name] = torch.zeros_like(state[name])
        found = []
        for check in self.graph.checks:
            value = registers[self.place[check.node]]
            assert value is not None
            found.append(torch.stack(torch.aminmax(value)))
        return after, found


class Recorded:
    """A kernel on a GPU as a CUDA graph: one launch a step, the carried lanes updated in place."""

    def __init__(self, kernel: Kernel, lanes: State) -> None:
        self.lanes = {name: lane.clone() for name, lane in lanes.items()}
        self.ranges: list[Tensor] = []
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # whatever is set up on first use happens outside the graph
            for _ in range(3):
                _, found = kernel.step(self.lanes)
        torch.cuda.current_stream().wait_stream(side)
        for low_high in found:
            self.ranges.append(torch.tensor([math.inf, -math.inf], dtype=low_high.dtype, device=low_high.device))
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


def _lane_shape(value: Tensor, lane: Tensor) -> tuple[int, ...]:
    return tuple(max(a, b) for a, b in zip(value.shape, lane.shape, strict=True))


def _uses(graph: Graph) -> dict[Node, int]:
    uses = dict.fromkeys(graph.nodes, 0)
    for node in graph.nodes:
        for argument, _ in node.args:
            uses[argument] += 1
    for node in (*graph.results.values(), *(check.node for check in graph.checks)):
        uses[node] += 1
    return uses


# ------------------------------------------------------------------------------------------------------- operations


def _operation(node: Node, extent: Extent) -> Make:
    own = extent.labels(node.labels)
    used = [extent.labels(labels) for _, labels in node.args]
    if node.op == "sum":
        return _sum(node, own, used, extent)
    if node.op == "product":
        return _contraction(used, own)
    if node.op == "apply":
        return lambda args: node.f(args[0])
    if node.op == "softmax":
        return lambda args: _softmax(args, used, own, extent.tokens)
    if node.op == "count":
        axis = used[0].index("S" if "S" in used[0] else "I")
        return lambda args: args[0].sum(axis).clamp(min=1.0)
    index = tuple(slice(None) if i is None else i for i in node.index)
    first = len(own) - len(node.index) if node.op == "scatter" else len(used[0]) - len(node.index)
    place = (*(slice(None),) * first, *index)
    if node.op == "select":
        return lambda args: args[0][place]

    def scatter(args: list[Tensor]) -> Tensor:
        base, added = args
        rest = tuple(max(a, b) for a, b in zip(base.shape[:first], added.shape[:first], strict=True))
        result = base.expand(*rest, *base.shape[first:]).clone()
        result[place] += added
        return result

    return scatter


def _aligned(labels: str, own: str) -> Callable[[Tensor], Tensor]:
    """A view of a tensor with axes ``labels`` as one with axes ``own``, of length 1 where it has none."""
    order = [labels.index(label) for label in own if label in labels]
    missing = [axis for axis, label in enumerate(own) if label not in labels]
    if order == list(range(len(order))) and not missing:
        return lambda tensor: tensor
    if not missing and order == [*range(len(order) - 2), len(order) - 1, len(order) - 2]:
        return lambda tensor: tensor.mT

    def align(tensor: Tensor) -> Tensor:
        tensor = tensor.permute(order)
        for axis in missing:
            tensor = tensor.unsqueeze(axis)
        return tensor

    return align


def _sum(node: Node, own: str, used: list[str], extent: Extent) -> Make:
    views = [_aligned(labels, own) for labels in used]
    numbers = [extent.number(c) for c in node.coefficients]
    constant = extent.number(node.constant)
    order = sorted(range(len(numbers)), key=lambda i: numbers[i] != 1.0)  # a plain copy first
    alone = [1] * (len(own) - len(node.sizes)) + list(node.sizes)

    def add(args: list[Tensor]) -> Tensor:
        total: Tensor | None = None
        for i in order:
            term = views[i](args[i])
            if total is None:
                total = term if numbers[i] == 1.0 else term * numbers[i]
            else:
                total = torch.add(total, term, alpha=numbers[i])
        if total is None:
            return torch.full(alone, constant, dtype=extent.dtype, device=extent.device)
        return total + constant if constant else total

    return add


def _contraction(used: list[str], own: str) -> Make:
    """einsum of one or two operands, as a sum, an element-wise product or a (batched) matrix product."""
    if len(used) == 1:
        (labels,) = used
        once = "".join(dict.fromkeys(labels))
        if len(once) < len(labels):
            return lambda args: torch.einsum(f"{labels}->{own}", args[0])
        gone = [labels.index(label) for label in labels if label not in own]
        left = "".join(label for label in labels if label in own)
        align = _aligned(left, own)
        return lambda args: align(args[0].sum(gone))
    form = _matrix_form(used, own)
    if form is None:
        a, b = used
        if any(label not in own for label in a + b):
            equation = f"{a},{b}->{own}"
            return lambda args: torch.einsum(equation, *args)
        first, second = _aligned(a, own), _aligned(b, own)
        return lambda args: first(args[0]) * second(args[1])

    def multiply(args: list[Tensor]) -> Tensor:
        left, right, finish = form(args[0], args[1])
        return finish(torch.matmul(left, right))

    return multiply


def _in_place(node: Node, uses: Mapping[Node, int], extent: Extent) -> Make | None:
    """An element-wise product with a matrix product that nobody else reads: into the memory of that."""
    if node.op != "product" or len(node.args) != 2 or any(used != node.labels for _, used in node.args):
        return None
    for i, (argument, _) in enumerate(node.args):
        if argument.op == "product" and uses[argument] == 1 and len(argument.args) == 2:
            form = _matrix_form([extent.labels(used) for _, used in argument.args], extent.labels(argument.labels))
            if form is not None:
                return lambda args, i=i: args[i].mul_(args[1 - i])  # type: ignore[misc]
    return None


Finish = Callable[[Tensor], Tensor]


def _matrix_form(used: list[str], own: str) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Finish]] | None:
    """Two operands as matrices to be multiplied, and how the result becomes the node; None if it is not a product of
    matrices.
    """
    a, b = used
    last = next((label for label in reversed(own) if (label in a) != (label in b)), None)
    if last is not None and last in a:  # the other way round the result is in order
        form = _matrix_form([b, a], own)
        return None if form is None else lambda first, second: form(second, first)
    both = "".join(label for label in own if label in a and label in b)
    summed = "".join(label for label in a if label in b and label not in own)
    rows = "".join(label for label in own if label in a and label not in b)
    columns = "".join(label for label in own if label in b and label not in a)
    if not summed or any(label not in own and label not in summed for label in a + b):
        return None
    if both not in ("", "B"):
        return None
    left, right = _aligned(a, both + rows + summed), _aligned(b, both + summed + columns)
    align = _aligned(both + rows + columns, own)
    if len(rows) == len(columns) == len(summed) == 1:
        return lambda first, second: (left(first), right(second), align)

    def flattened(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Finish]:
        first, second = left(first), right(second)
        k = len(both)
        shape = (*first.shape[: k + len(rows)], *second.shape[k + len(summed) :])
        inner = math.prod(first.shape[k + len(rows) :])
        first = first.reshape(*first.shape[:k], math.prod(first.shape[k : k + len(rows)]), inner)
        second = second.reshape(*second.shape[:k], inner, math.prod(second.shape[k + len(summed) :]))
        return first, second, lambda product: align(product.view(shape))

    return flattened


def _inlined(node: Node, uses: Mapping[Node, int], extent: Extent) -> Node | None:
    """The matrix product that a sum takes as it is made: base + coefficient * left @ right."""
    if node.op != "sum" or len(node.args) != 2 or node.constant[0]:
        return None
    own = extent.labels(node.labels)
    for (e, labels), (base, others) in (node.args, node.args[::-1]):
        if e.op != "product" or len(e.args) != 2 or uses[e] != 1 or base is e:
            continue
        simple = all(len(extent.labels(used).replace("B", "")) == 2 for _, used in e.args)
        same = extent.labels(labels) == own and len(own.replace("B", "")) == 2
        if simple and same and set(extent.labels(others)) <= set(own) and _plain_product(e, extent):
            return e
    return None


def _plain_product(e: Node, extent: Extent) -> bool:
    return _matrix_form([extent.labels(labels) for _, labels in e.args], extent.labels(e.labels)) is not None


def _add_product(node: Node, product: Node, extent: Extent) -> tuple[Make, list[Node]]:
    """node = beta base + alpha left @ right, in one operation."""
    index = next(i for i, (e, _) in enumerate(node.args) if e is product)
    base, labels = node.args[1 - index]
    own = extent.labels(node.labels)
    alpha, beta = (extent.number(node.coefficients[i]) for i in (index, 1 - index))
    form = _matrix_form([extent.labels(used) for _, used in product.args], extent.labels(product.labels))
    assert form is not None
    align = _aligned(extent.labels(labels), own)

    def add(args: list[Tensor]) -> Tensor:
        left, right, _ = form(args[1], args[2])
        onto = align(args[0])
        if left.ndim == 2:
            return torch.addmm(onto, left, right, beta=beta, alpha=alpha)
        return torch.baddbmm(onto, left, right, beta=beta, alpha=alpha)

    return add, [base, *(argument for argument, _ in product.args)]


def _softmax(args: list[Tensor], used: list[str], own: str, tokens: int) -> Tensor:
    axis = own.index("S" if "S" in own else "I")
    scores = _aligned(used[0], own)(args[0])
    if scores.shape[axis] == 1:
        scores = scores.expand(*scores.shape[:axis], tokens, *scores.shape[axis + 1 :])
    if len(args) > 1:
        mask = _aligned(used[1], own)(args[1])
        scores = torch.where(mask == 0, -torch.inf, scores)
    return torch.nan_to_num(torch.softmax(scores, dim=axis))


def _mask(node: Node, state: State, extent: Extent) -> Tensor:
    """Of the scope that the node stands for, in the prompt."""
    lanes = {name: state[name] for name in ("one", node.f.reads) if name is not None}
    given = lanes if extent.batched else {name: lane.unsqueeze(0) for name, lane in lanes.items()}
    mask: Tensor = node.f.mask(given, extent.tokens)
    return mask if extent.batched or "B" not in node.labels else mask[0]
