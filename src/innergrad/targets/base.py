"""What a target architecture is: a row of parts, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from innergrad.functions.fits.sums import Approximant
from innergrad.interpret.cost import Cost, layer_cost
from innergrad.ir.options import Options
from innergrad.ir.program import Layer, Program
from innergrad.targets.parts.base import Context, Functions, Norm, Part, Positions, Reason
from innergrad.targets.weights.looped import Count, LoopedTransformer, looped
from innergrad.targets.weights.rows import require_room

Approximants = Mapping[str, Any]  # of the kind the target makes: PiecewiseLinear, FeatureSum


@dataclass(frozen=True)
class Target:
    """A target architecture: norm x attention x MLP (x product layer) x positions x functions.

    variants: the first is the default; likewise sigmas, the activations it can have, if it has a choice.
    parts: its kinds of sublayer; each says what it can do.
    epsilon: the default accuracy; finest: the finest.
    structural: lanes whose values mean something to the modules; verification does not replace them by random ones.
    probes: the sizes of the random streams it does make.
    """

    variants: tuple[str, ...]
    parts: tuple[type[Part], ...]
    functions: Functions
    epsilon: float
    finest: float
    structural: tuple[str, ...]
    norm: Norm = field(default_factory=Norm)
    positions: Positions = field(default_factory=Positions)
    probes: tuple[float, ...] = (0.25, 0.5, 1.0)
    sigmas: Mapping[str, Any] = field(default_factory=dict)

    @property
    def modules(self) -> dict[str, type[Part]]:
        """Kind of layer -> its module, made from a name and one SparseStack for each of its ``matrices``."""
        return {part.kind: part for part in self.parts}

    @property
    def proven(self) -> bool:
        """Errors of its approximants are proven; otherwise they are measured, and everything says so."""
        return self.functions.proven

    def context(self, program: Program, options: Options, approximants: Approximants | None = None) -> Context:
        return Context(program, options, self.norm, self.positions, approximants or {})

    # -------------------------------------------------------------------------------------------- what it can realise

    def abilities(self) -> dict[str, dict[str, str]]:
        """Kind of layer -> ability -> how well, in words."""
        words = {"how": self.functions.how, "linear": self.functions.linear}
        return {
            part.kind: {a: text.format(**words) for a, text in part.abilities(self.norm, self.positions).items()}
            for part in self.parts
        }

    def prepare(self, program: Program, options: Options) -> Program:
        """The program as this target runs it: lanes of its own, a sink token, instructions rewritten."""
        if "product" not in self.modules:
            program = program.with_layers(
                lambda layer: replace(layer, kind="mlp") if layer.kind == "product" else layer
            )
        program = self.norm.prepare(self.functions.prepare(program), options)
        return self.positions.prepare(program)

    def why_not(self, layer: Layer, context: Context) -> Iterator[tuple[str, Reason]]:
        """What of a layer cannot be realised, and why."""
        part = self.modules.get(layer.kind)
        for instruction in layer.instructions:
            if part is None:
                reason: Reason | None = Reason("this target has no such layer", layer.kind, ", ".join(self.modules))
            else:
                reason = part.why_not(instruction, context) or self.norm.why_not(layer, instruction)
            if reason is not None:
                yield f"layer {layer.name}, {instruction.dst.lane}", reason

    def check(self, program: Program, options: Options) -> None:
        """Raise :class:`innergrad.errors.LoweringError`, with the reason, if it cannot realise a program."""
        context = self.context(program, options)
        for layer in program.layers:
            for name, reason in self.why_not(layer, context):
                raise reason.error(name)

    def approximated(self, program: Program) -> set[str]:
        """The names of the functions that something else stands for; others are computed as they are."""
        return self.functions.approximated(program)

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        """What stands for the program's functions."""
        return self.functions.approximants(program, options)

    # ---------------------------------------------------------------------------------------------- weights and cost

    def lower(self, program: Program, approximants: Approximants, options: Options) -> LoopedTransformer:
        """The transformer; each layer of the program becomes exactly one module."""
        self.check(program, options)
        heads, context = max(part.room(options) for part in self.parts), self.context(program, options, approximants)
        if heads:
            require_room(program, heads, approximants)
        return looped(program, lambda layer: self.modules[layer.kind].build(layer, context))

    def foreseen(self, program: Program, approximants: Approximants, options: Options) -> list[Count] | None:
        """What the weights of every stored layer are counted to be, where that is known without building them."""
        context = self.context(program, options, approximants)
        found = [self.modules[layer.kind].foreseen(layer, context) for layer in program.layers]
        counts = [count for count in found if count is not None]
        return counts if len(counts) == len(found) else None

    def cost(self, program: Program, options: Options, counts: Sequence[Count], paper: dict[str, str]) -> Cost:
        """The cost, from counts of the weights of every stored layer: foreseen, or of the module."""
        times = [loop.count for loop in program.body for _ in loop.layers] + [0] * len(program.readout)
        tokens, D = tokens_of(program, options), program.stream.d_model
        each = zip(program.layers, counts, times, strict=True)
        rows = tuple(layer_cost(program, layer, time, tokens, *count) for layer, count, time in each)
        return Cost(rows, program.n_layers, len(program.readout), D, tokens, paper, program.steps)

    # --------------------------------------------------------------------------------------------------- verification

    def rounding(self, options: Options) -> float:
        """How far a layer may be from the plain interpreter in float64, relative to the largest number it reads."""
        return self.functions.rounding(options)

    def bounds(self, program: Program, layer: Layer, options: Options) -> dict[str, tuple[float, float]]:
        """Lanes that a layer reads, outside whose bounds it does not compute what it should (products of GeLUs)."""
        return self.modules[layer.kind].bounds(layer, self.context(program, options))

    def inspect(
        self, program: Program, module: LoopedTransformer, h: Tensor, options: Options
    ) -> Iterator[tuple[float, float, str]]:
        """Further checks of the modules, on a stream: (value, limit, where)."""
        return self.norm.inspect(program, list(module.stored_layers()), h, options)

    def longest(self, program: Program, options: Options, dtype: torch.dtype) -> float:
        """How many tokens the modules tell apart in a dtype."""
        return self.positions.longest(program, options, dtype)


def tokens_of(program: Program, options: Options) -> int:
    """Tokens of the longest prompt with one query."""
    return program.length or int(program.sink) + options.n_examples * (2 if program.tokens == "interleaved" else 1) + 1
