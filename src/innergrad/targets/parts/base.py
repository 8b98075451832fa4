"""What a part is.

A sublayer (attention, MLP, product layer) is a module that also knows what it can do, and how a layer of a program
becomes its weights. A new one, say a gated MLP, is one subclass of :class:`Part`:

    matrices, hooks     the names of its weights, and of what can be looked at
    can                 ability -> how well, in words: what docs and ``why_not`` go by
    about               one sentence: what it does
    limits              why it cannot do an instruction although it has the ability, or None
    build               a layer of the program -> the module
    forward             stream in, stream out

Norms, positions and functions are the other columns of a row; the base class of each is "none". What a norm or
positions add to the abilities of a sublayer (a division, reading one token) they say themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import LoweringError
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import IDENTITY, NEGATION, RECIPROCAL
from innergrad.ir.options import Options
from innergrad.ir.program import Attend, Expr, Layer, Program, Score
from innergrad.targets.weights.looped import Count, Sublayer
from innergrad.targets.weights.rows import Row
from innergrad.targets.weights.units import Units

Ability = Literal["linear map", "product", "function", "score", "division", "mean", "softmax", "token", "examples"]
Abilities = Mapping[Ability, str]
ABILITIES: dict[Ability, str] = {
    "linear map": "a linear map of the token's own lanes",
    "product": "a product of two linear forms of the token",
    "function": "a function of a linear form of the token",
    "score": "a function of an inner product, or times a value; a product of three",
    "division": "a division by a scalar lane of the token",
    "mean": "the mean over all tokens",
    "softmax": "a softmax over tokens",
    "token": "reading one token",
    "examples": "a sum over the examples of functions of scores",
}
DEFAULT_BOUND = 8.0


class Reason(NamedTuple):
    """Why a part cannot do an instruction."""

    what: str
    got: object = None
    allowed: str = ""
    hint: str = ""

    def error(self, name: str) -> LoweringError:
        return LoweringError(f"{name}: {self.what}", got=self.got, allowed=self.allowed, hint=self.hint)


# ---------------------------------------------------------------------------------------------- what an instruction is


def constant(expression: Expr) -> bool:
    return {view.lane for view in expression} == {"one"}


def linear(score: Score) -> bool:
    """The score is a linear form of the token."""
    return all(constant(query) or constant(key) for query, key in score.pairs)


def need(instruction: Attend) -> Ability | None:
    """The ability that an instruction asks for; None: no part has it."""
    beyond: dict[tuple[str, str], Ability] = {("all", "mean"): "mean", ("demos", "sum"): "examples"}
    kind, scores, alone = instruction.scope, instruction.scores, constant(instruction.value)
    if instruction.reduce == "softmax":
        return "softmax"
    if kind != "self":
        return "token" if instruction.at or kind == "previous" else beyond.get((kind, instruction.reduce))
    if any(score.f == RECIPROCAL for score in scores):
        return "division"
    if len(scores) != 1:
        return "score" if scores else "linear map"
    form, f = linear(scores[0]), scores[0].f
    if f == IDENTITY and form != alone:
        return "product"
    if not form or not alone:
        return "score"
    return "linear map" if f in (IDENTITY, NEGATION) else "function"


def described(instruction: Attend) -> str:
    """What an instruction asks for, in words."""
    wanted, names = need(instruction), ", ".join(score.f.name for score in instruction.scores)
    if instruction.scope != "self" or wanted is None:
        return f"scope={instruction.scope!r}, reduce={instruction.reduce!r}"
    return ABILITIES[wanted] + (f" ({names})" if names else "")


# ------------------------------------------------------------------------------------------------- columns of a row


class Norm:
    """No norm: sublayers read the stream as it is. name: under which modules save it."""

    name: ClassVar[str] = "none"
    can: ClassVar[Abilities] = {}
    known: ClassVar[dict[str, Norm]] = {}

    def __init_subclass__(cls) -> None:
        cls.known[cls.name] = cls()

    def prepare(self, program: Program, options: Options) -> Program:
        """The program with the lanes and layers that the norm needs."""
        return program

    def why_not(self, layer: Layer, instruction: Attend) -> Reason | None:
        """Why an instruction cannot be in a layer that divides, or in one that does not."""

    def write(self, layer: Layer, units: Units, context: Context) -> None:
        """The units of an MLP behind this norm."""
        for instruction in layer.instructions:
            units.compute(instruction, context.approximants)

    def gain(self, kind: str, context: Context) -> Any:
        """What a sublayer stores of the norm before it, as JSON; None: it has none."""

    def apply(self, h: Tensor, gain: Any) -> Tensor:
        """The norm itself."""
        return h

    def read(self, row: Row, gain: Any, context: Context) -> Row:
        """A row of weights that reads through the norm what ``row`` would read without it."""
        return row

    def inspect(
        self, program: Program, built: list[Sublayer], h: Tensor, options: Options
    ) -> Iterator[tuple[float, float, str]]:
        """Further checks of the modules, on a stream: (value, limit, where)."""
        return iter(())


class Positions:
    """No positions: tokens are told apart by nothing."""

    can: ClassVar[Abilities] = {}

    def prepare(self, program: Program) -> Program:
        """The program with the lanes, and the sink, that reading by position needs."""
        return program

    def longest(self, program: Program, options: Options, dtype: torch.dtype) -> float:
        """How many tokens the modules tell apart in a dtype."""
        return math.inf


class Functions:
    """What stands for a program's functions: nothing, they are computed as they are.

    how, linear: how good they are, and scores that are used as they are, in words.
    proven: errors of approximants are proven; otherwise they are measured, and everything says so.
    """

    how: ClassVar[str] = "exactly"
    linear: ClassVar[str] = "exactly"
    proven: ClassVar[bool] = True

    def prepare(self, program: Program) -> Program:
        """The program with scores that heads must add up as functions of their own."""
        return program

    def approximated(self, program: Program) -> set[str]:
        """The names of the functions that something else stands for."""
        return set()

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        """What stands for them."""
        return {}

    def rounding(self, options: Options) -> float:
        """How far a layer may be from the plain interpreter in float64, relative to the largest number in the stream;
        it covers what is not exact beside approximants (products of GeLUs, divisions).
        """
        return 1e-12


@dataclass(frozen=True)
class Context:
    """What a sublayer is built from, besides the layer."""

    program: Program
    options: Options
    norm: Norm = field(default_factory=Norm)
    positions: Positions = field(default_factory=Positions)
    approximants: Mapping[str, Any] = field(default_factory=dict)

    def entry(self, lane: str) -> int:
        return self.program.stream.entry(lane)

    @cached_property
    def one(self) -> int:
        return self.entry("one")

    @cached_property
    def ranges(self) -> dict[str, float]:
        """The range that each lane is taken to stay in, from what it declares, x_bound, y_bound and z_bound."""
        default = self.options.z_bound or DEFAULT_BOUND
        given = {"x": self.options.x_bound, "y": self.options.y_bound, "zero": 0.0}
        return {
            lane.name: given.get(lane.name) or (lane.bound if math.isfinite(lane.bound) else default)
            for lane in self.program.stream.lanes
        }

    @cached_property
    def bound(self) -> np.ndarray:
        """The range of every entry of the stream."""
        return np.concatenate([np.full(lane.size, self.ranges[lane.name]) for lane in self.program.stream.lanes])


# --------------------------------------------------------------------------------------------------------- sublayers


class Part(Sublayer):
    """A kind of sublayer: what it can do, and how a layer of a program becomes one. See the module docstring."""

    kind: ClassVar[str]
    can: ClassVar[Abilities] = {}
    about: ClassVar[str]

    @classmethod
    def abilities(cls, norm: Norm, positions: Positions) -> Abilities:
        """What it can do beside this norm and these positions."""
        return {**cls.can, **{"attention": positions.can, "mlp": norm.can}.get(cls.kind, {})}

    @classmethod
    def why_not(cls, instruction: Attend, context: Context) -> Reason | None:
        """Why it cannot do an instruction, or None."""
        if instruction.where != "all":
            hint = "multiply by the lane t, query or omega in a layer before"
            return Reason("this target writes all tokens", f"where={instruction.where!r}", hint=hint)
        if need(instruction) not in cls.abilities(context.norm, context.positions):
            return Reason(cls.about, described(instruction), hint="split it into two layers, or use another kind")
        return cls.limits(instruction, context)

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        """Why it cannot do an instruction although it has the ability, or None."""

    @classmethod
    def bounds(cls, layer: Layer, context: Context) -> dict[str, tuple[float, float]]:
        """Lanes that a layer reads, outside whose bounds it does not compute what it should."""
        return {}

    @classmethod
    def room(cls, options: Options) -> int:
        """Rows that one term of an instruction takes, where they are put together before they are counted."""
        return 0

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        """The module of a layer of the program."""
        raise NotImplementedError

    @classmethod
    def foreseen(cls, layer: Layer, context: Context) -> Count | None:
        """What ``counted`` will find, without building the weights; None if it cannot be said."""


class Normed(Part):
    """A sublayer behind a norm. gain: what it stores of it, or None; LayerNorm goes without a name."""

    shares = True

    def __init__(self, name: str, *stacks: Any, gain: Any, norm: str = "layer", **settings: Any) -> None:
        super().__init__(name, *stacks, gain=gain, **settings, **({} if norm == "layer" else {"norm": norm}))
        self.gain, self.norm = gain, norm

    def normalised(self, h: Tensor) -> Tensor:
        return self.show("hook_normalized", h if self.gain is None else Norm.known[self.norm].apply(h, self.gain))

    @classmethod
    def behind(cls, context: Context) -> dict[str, Any]:
        """The settings of the norm."""
        gain = context.norm.gain(cls.kind, context)
        return {"gain": gain} | ({} if gain is None or context.norm.name == "layer" else {"norm": context.norm.name})
