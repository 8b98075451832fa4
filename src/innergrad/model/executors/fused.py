"""The fused executor: the program, with its approximants, as fast as training itself.

:mod:`innergrad.interpret.native` takes the steps, in C++ that is made from the graph of the layers and built on demand.
It needs a compiler, and a graph of the kind it knows. Otherwise :mod:`innergrad.interpret.fused` takes them, in torch,
on any device. Both give the numbers of the plain interpreter up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from itertools import groupby
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from innergrad.errors import DomainError, InputError, JobError
from innergrad.interpret import graph, plain, steps, symbolic
from innergrad.interpret.fused import Extent, Kernel, Recorded, recorded_kernel
from innergrad.interpret.graph import Check, Graph, ScalarFunction
from innergrad.interpret.native import NativeLoop, NoCompiler, Unsupported
from innergrad.interpret.steps import Steps
from innergrad.ir.program import Layer, Loop, Program
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors.base import OVERFLOWED, Executor, Plain, Step, check_rounding
from innergrad.model.executors.timing import plain_seconds
from innergrad.model.guard import Guard
from innergrad.model.prompt import Prompt

Loops = tuple[tuple[Loop, Graph], ...]
WORTH_RECORDING = 8  # steps, for which a CUDA graph is made
PATIENCE = 10.0  # seconds that saying in which prompt a domain was left may take


P = ParamSpec("P")
T = TypeVar("T")


def _ungraded(f: Callable[P, T]) -> Callable[P, T]:
    """In no mode of the caller's: working memory that was made in ``torch.inference_mode`` could not be used again.

    An argument that is not a number has no place in a table, which is an IndexError on the CPU: here a sentence.
    """

    @wraps(f)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            with torch.inference_mode(False), torch.no_grad():
                return f(*args, **kwargs)
        except IndexError as error:
            raise JobError(OVERFLOWED) from error

    return called


@dataclass(frozen=True)
class Fused(Executor):
    """The graphs of a program's loops and of its read-out, with their compiled forms."""

    of: Compiled
    kernels: dict[tuple[Graph, Extent], Kernel] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        return self.of.program

    @cached_property
    def functions(self) -> Mapping[str, ScalarFunction]:
        return self.of.functions

    @cached_property
    def steps(self) -> Steps:
        return steps.build(self.program, self.functions, self.of.ranges)

    @cached_property
    def loops(self) -> Loops:
        return tuple(zip(self.program.body, self.steps.loops, strict=True))

    @cached_property
    def readout(self) -> Graph:
        return symbolic.build(self.program, self.program.readout, self.functions, self.of.ranges, clean=False)

    @cached_property
    def possible(self) -> bool:
        """The program has graphs: no layer writes a lane that the scope of another is made from."""
        try:
            return bool(self.loops) and self.readout is not None
        except InputError:
            return False

    @cached_property
    def demos_suffice(self) -> bool:
        """The steps are taken on the examples, the read-out on the queries."""
        loops, given = tuple(dict.fromkeys(self.steps.loops)), self.steps.given.results
        return graph.own_tokens(self.readout) and graph.demos_suffice(self.program, loops, given)

    @cached_property
    def read_later(self) -> Graph:
        """The lanes made of others that the read-out reads, or predictions are read from."""
        names = {self.program.prediction, *(node.name for node in self.readout.nodes if node.op == "lane")}
        return Graph({n: node for n, node in self.steps.derived.results.items() if n in names}, (), ())

    @cached_property
    def native(self) -> Mapping[Graph, NativeLoop] | str:
        """A kernel for the graph of every loop, or the reason why there are none."""
        if not self.demos_suffice:
            return "its tokens read one another"
        try:
            return {of: NativeLoop.generated(self.program, of) for of in self.steps.loops if of.results}
        except Unsupported as reason:
            return str(reason)

    # ------------------------------------------------------------------------------------------------------- running

    def check(self, dtype: torch.dtype, guard: Guard, compiled: bool | None = None) -> None:
        del compiled
        if guard.flags:
            raise InputError("the fused executor refuses violations", got="outside='flag'", allowed="executor='plain'")
        check_rounding(self.of, dtype, as_weights=False)

    def run(
        self, prompt: Prompt, wanted: tuple[int, ...], guard: Guard, compiled: bool | None = None
    ) -> tuple[list[Tensor], State]:
        """compiled: whether the steps are taken by a kernel; by default they are if they can be."""
        _refuse_gradients(prompt)
        start, later = [prompt.w0] if 0 in wanted else [], [step for step in wanted if step]
        try:
            weights, state = self._steps(prompt, prompt.state(self.program), self.loops, later, compiled)
            return start + weights, self._read_out(prompt, self._with(self.read_later, prompt, state))
        except DomainError:
            self._say_where(prompt, guard)
            raise

    def _say_where(self, prompt: Prompt, guard: Guard) -> None:
        """Raise the error that the plain executor raises: it knows the first layer, and the prompts of a batch."""
        if plain_seconds(self.of, len(prompt.X), prompt.state(self.program)["x"].shape[1]) <= PATIENCE:
            for _ in Plain(self.of).layers(prompt, guard):
                pass

    def answers(self, prompt: Prompt) -> Tensor:
        """Predictions (batch, n_query, d_y) by the weights that the prompt begins with: the read-out, and no step."""
        state = self._with(self.read_later, prompt, prompt.state(self.program))
        return prompt.predictions(self.program, self._read_out(prompt, state))

    def read_out(self, state: State, guard: Guard) -> State:
        return Plain(self.of).read_out(state, guard)

    @_ungraded
    def _steps(
        self, prompt: Prompt, state: State, loops: Loops, wanted: list[int], compiled: bool | None
    ) -> tuple[list[Tensor], State]:
        """Weights after the wanted steps, and the lanes after all, but for those that are made of others."""
        full = self._with(self.steps.given, prompt, state)
        weights, full = self._taken(prompt, full, loops, wanted, compiled)
        return weights, {name: full[name] for name in state}

    def _taken(
        self, prompt: Prompt, state: State, loops: Loops, wanted: list[int], compiled: bool | None
    ) -> tuple[list[Tensor], State]:
        if self._use_native(prompt, compiled):
            try:
                return self._run_native(prompt, state, loops, wanted)
            except NoCompiler as reason:
                if compiled:
                    raise InputError("there is no compiled path on this machine", got=str(reason)) from reason
        return self._run_torch(prompt, state, loops, frozenset(wanted))

    def _use_native(self, prompt: Prompt, compiled: bool | None) -> bool:
        reason = self.native if isinstance(self.native, str) else ""
        if prompt.X.device.type != "cpu":
            reason = f"on {prompt.X.device.type} the steps are taken by torch"
        if compiled and reason:
            raise InputError("this program has no compiled path", got=reason, hint="leave compiled= out")
        return compiled is not False and not reason

    def at_hand(self, dtype: torch.dtype) -> bool:
        """The kernels are built; false also where there can be none."""
        try:
            return not isinstance(self.native, str) and all(loop.at_hand(dtype) for loop in self.native.values())
        except NoCompiler:
            return False

    def _run_native(self, prompt: Prompt, state: State, loops: Loops, wanted: list[int]) -> tuple[list[Tensor], State]:
        """Loops of the same kind, e.g. the steps of a schedule, are one call."""
        native = self.native
        assert not isinstance(native, str)
        tokens, examples = state["x"].shape[1], self._on_examples(prompt, state)
        lanes = {name: lane[:, 0] if self._shared(name) else lane for name, lane in examples.items()}
        weights, done = list[Tensor](), 0
        for _, group in groupby((pair for pair in loops if pair[1].results), key=lambda pair: native[pair[1]].kind):
            alike = list(group)
            kernel, count = native[alike[0][1]], sum(loop.count for loop, _ in alike)
            own = [native[of].source.numbers for _, of in alike]
            several = zip(own, alike, strict=True)
            numbers = own if len(alike) == 1 else [one for one, (loop, _) in several for _ in range(loop.count)]
            here = [step - done for step in wanted if done < step <= done + count]
            lanes, found, ranges = kernel.run(lanes, tokens, numbers, count, here)
            _complain(kernel.graph.checks, ranges)
            weights += list(found.unbind(1))
            done += count
        return weights, state | {name: lanes[name].unsqueeze(1) for name in state if self._shared(name)}

    def _run_torch(
        self, prompt: Prompt, state: State, loops: Loops, wanted: frozenset[int]
    ) -> tuple[list[Tensor], State]:
        extent = Extent(state["x"].shape[1], len(prompt.X) > 1, prompt.X.dtype, prompt.X.device)
        lanes = self._on_examples(prompt, state) if self.demos_suffice else state
        lanes, weights, step = self._squeezed(lanes, extent), list[Tensor](), 0
        for loop, loop_graph in loops:
            kernel = self._kernel(loop_graph, extent, lanes)
            if extent.device.type == "cuda" and loop.count >= WORTH_RECORDING:
                kernel = recorded_kernel(kernel, lanes)
            ranges: list[Tensor] = []
            for _ in range(loop.count):
                lanes, found = kernel.step(lanes)
                ranges = [_wider(a, b) for a, b in zip(ranges, found, strict=True)] if ranges else found
                step += loop.step
                if loop.step and step in wanted:
                    weights.append(prompt.weights(self.program, self._with_axes(lanes, extent)))
            _complain(loop_graph.checks, ranges)
            lanes = dict(lanes)
        after = self._with_axes(lanes, extent)
        return weights, state | {n: after[n] for n in state if not self.demos_suffice or self._shared(n)}

    @_ungraded
    def _read_out(self, prompt: Prompt, state: State) -> State:
        """The lanes after the read-out, from those after the last step; of the queries alone if they suffice."""
        tokens, n_query = state["x"].shape[1], prompt.X_query.shape[1]
        if self.demos_suffice:
            state = {name: lane if self._shared(name) else lane[:, tokens - n_query :] for name, lane in state.items()}
        if not self.program.readout or (self.demos_suffice and not n_query):
            return state
        extent = Extent(tokens, len(prompt.X) > 1, prompt.X.dtype, prompt.X.device)
        lanes = self._squeezed(state, extent)
        lanes, ranges = self._kernel(self.readout, extent, lanes).step(lanes)
        _complain(self.readout.checks, ranges)
        return self._with_axes(lanes, extent)

    def layers(self, prompt: Prompt, guard: Guard) -> Iterator[Step]:
        """The lanes after every layer. After a step they are the executor's own. It shows nothing inside a step; there
        the plain interpreter finds them in float64, from the same beginning.
        """
        del guard  # the values of the steps are checked as in a run
        _refuse_gradients(prompt)
        state = prompt.state(self.program)
        for loop, of in self.loops:
            once = ((replace(loop, count=1), of),)
            for _ in range(loop.count):
                after = self._with(self.steps.derived, prompt, self._steps(prompt, state, once, [], None)[1])
                yield from self._inside(loop.layers, state, after, loop.step)
                state = after
        yield from self._inside(self.program.readout, state, self._read_out_all(prompt, state), False)

    @_ungraded
    def _with(self, of: Graph, prompt: Prompt, state: State) -> State:
        """The lanes, and those that a graph makes of them, on all tokens."""
        if not of.results:
            return state
        extent = Extent(state["x"].shape[1], len(prompt.X) > 1, prompt.X.dtype, prompt.X.device)
        lanes = self._squeezed(state, extent)
        return self._with_axes(self._kernel(of, extent, lanes).step(lanes)[0], extent)

    @_ungraded
    def _read_out_all(self, prompt: Prompt, state: State) -> State:
        """With every token, so that layers can be compared."""
        extent = Extent(state["x"].shape[1], len(prompt.X) > 1, prompt.X.dtype, prompt.X.device)
        lanes = self._squeezed(state, extent)
        return self._with_axes(self._kernel(self.readout, extent, lanes).step(lanes)[0], extent)

    def _inside(self, layers: tuple[Layer, ...], before: State, after: State, step: bool) -> Iterator[Step]:
        state = {name: lane.double() for name, lane in before.items()}
        for layer in layers[:-1]:
            state = plain.apply_layer(self.program, layer, state, self.functions)
            yield layer, state, False
        if layers:
            yield layers[-1], after, step

    # --------------------------------------------------------------------------------------------------------- lanes

    def _kernel(self, of: Graph, extent: Extent, lanes: State) -> Kernel | Recorded:
        """Masks belong to the prompt; kernels without them are kept."""
        if any(node.op == "mask" for node in of.nodes):
            return Kernel(of, extent, lanes)
        key = (of, extent)
        if key not in self.kernels:
            self.kernels[key] = Kernel(of, extent, lanes)
        return self.kernels[key]

    def _shared(self, name: str) -> bool:
        return name in self._shared_lanes

    @cached_property
    def _shared_lanes(self) -> frozenset[str]:
        """Lanes that are given belong to tokens."""
        return frozenset(lane.name for lane in self.program.stream.lanes if lane.shared)

    def _on_examples(self, prompt: Prompt, state: State) -> State:
        first, n = self.program.carriers, prompt.X.shape[1]
        return {name: lane if self._shared(name) else lane[:, first : first + n] for name, lane in state.items()}

    def _squeezed(self, state: State, extent: Extent) -> State:
        """Without the token axis of shared lanes, and without that of prompts if there is one."""
        lanes = {name: lane[:, 0] if self._shared(name) else lane for name, lane in state.items()}
        return lanes if extent.batched else {name: lane[0] for name, lane in lanes.items()}

    def _with_axes(self, lanes: State, extent: Extent) -> State:
        state = lanes if extent.batched else {name: lane.unsqueeze(0) for name, lane in lanes.items()}
        return {name: lane.unsqueeze(1) if self._shared(name) else lane for name, lane in state.items()}


def _refuse_gradients(prompt: Prompt) -> None:
    """It reuses memory, and keeps nothing for a backward pass."""
    if prompt.gradients:
        raise InputError(
            "the fused executor computes no gradients",
            got=f"{', '.join(prompt.gradients)} that require{'s' * (len(prompt.gradients) == 1)} them",
            allowed="executor='plain' or 'auto', which do",
            hint="or detach it, or run under torch.no_grad()",
        )


def _wider(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([torch.minimum(a[0], b[0]), torch.maximum(a[1], b[1])])


def _complain(checks: Sequence[Check], ranges: Sequence[Tensor] | Tensor) -> None:
    """Refuses values that left the range in which the weights are right."""
    for check, found in zip(checks, ranges, strict=False):
        low, high = (float(end) for end in found)
        if low != low or high != high:
            raise JobError(OVERFLOWED)
        if low < check.low - check.slack or high > check.high + check.slack:
            raise plain.range_error(check.what, found, (check.low, check.high), check.hint)
