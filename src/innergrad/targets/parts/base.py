"""Parts, and targets: a target is a row of parts.

A sublayer (attention, MLP, product layer) is a module that also knows its abilities, and how a layer of a program
becomes its weights. A new one, say a gated MLP, is one subclass of :class:`Part`:

    matrices, hooks     the names of its weights, and of its visible tensors
    kind                attention, mlp or product
    can                 ability -> how well, in words, for docs and ``why_not``
    about               one sentence about it
    limits              why it cannot do an instruction although it has the ability, or None
    build               a layer of the program -> the module
    forward             stream in, stream out

Norms, positions and functions are the other columns of a row; the base class of each is "none". A norm, or positions,
may add to the abilities of a sublayer (a division, reading one token). They say so themselves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError, LoweringError
from innergrad.functions.fits.sums import FEATURES, Approximant
from innergrad.functions.scalar import IDENTITY, NEGATION, RECIPROCAL
from innergrad.ir.program import DEFAULT_BOUND, Attend, Expr, Layer, Options, Program, Score
from innergrad.targets.weights.modules import Count, LoopedTransformer, SparseStack, Sublayer, looped
from innergrad.targets.weights.rows import Row, Units

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
Approximants = Mapping[str, Any]  # of the kind the target makes: PiecewiseLinear, FeatureSum
PIECE = 2**22  # numbers that heads have at a time: 32 MB


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
    """The demands of an instruction, in words."""
    wanted, names = need(instruction), ", ".join(score.f.name for score in instruction.scores)
    if instruction.scope != "self" or wanted is None:
        return f"scope={instruction.scope!r}, reduce={instruction.reduce!r}"
    return ABILITIES[wanted] + (f" ({names})" if names else "")


def activation(name: str) -> Callable[[Tensor], Tensor]:
    return torch.relu if name == "relu" else FEATURES[name]


# ------------------------------------------------------------------------------------------------- columns of a row


class Column:
    """A column of a row beside its sublayers. can: its additions to the abilities of a sublayer."""

    can: ClassVar[Abilities] = {}

    def prepare(self, program: Program, options: Options) -> Program:
        """The program with the lanes, layers, functions of its own and the sink that it needs."""
        return program


class Norm(Column):
    """No norm: sublayers read the stream as it is. name: under which modules save it."""

    name: ClassVar[str] = "none"
    known: ClassVar[dict[str, Norm]] = {}

    def __init_subclass__(cls) -> None:
        cls.known[cls.name] = cls()

    def why_not(self, layer: Layer, instruction: Attend) -> Reason | None:
        """Why an instruction cannot be in a layer that divides, or in one that does not."""

    def write(self, layer: Layer, units: Units, context: Context) -> None:
        """The units of an MLP behind this norm."""
        for instruction in layer.instructions:
            units.compute(instruction, context.approximants)

    def gain(self, kind: str, context: Context) -> Any:
        """The gain of the norm before a sublayer, as the sublayer stores it, as JSON; None: it has none."""

    def apply(self, h: Tensor, gain: Any) -> Tensor:
        """The norm itself."""
        return h

    def read(self, row: Row, gain: Any, context: Context) -> Row:
        """A row of weights that reads through the norm the same as ``row`` without it."""
        return row

    def inspect(
        self, program: Program, built: list[Sublayer], h: Tensor, options: Options
    ) -> Iterator[tuple[float, float, str]]:
        """Further checks of the modules, on a stream: (value, limit, where)."""
        return iter(())


class Positions(Column):
    """No positions: tokens are told apart by nothing."""

    def longest(self, program: Program, options: Options, dtype: torch.dtype) -> float:
        """How many tokens the modules tell apart in a dtype."""
        return math.inf


class Functions(Column):
    """The approximants of a program's functions: none here, they are computed as they are.

    how, linear: how good they are, and scores that are used as they are, in words.
    proven: approximants aside, layers are exact up to rounding; otherwise products are fitted, as functions are.
    """

    how: ClassVar[str] = "exactly"
    linear: ClassVar[str] = "exactly"
    proven: ClassVar[bool] = True

    def approximated(self, program: Program) -> set[str]:
        """The names of the functions that something else stands for."""
        return set()

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        """The approximants."""
        return {}

    def measured(self, program: Program) -> set[str]:
        """The names of those whose approximants are fitted: their errors are measured, and everything says so."""
        return set() if self.proven else self.approximated(program)

    def rounding(self, options: Options) -> float:
        """How far a layer may be from the plain interpreter in float64, relative to the largest number in the stream.
        It covers the parts that are not exact beside approximants (products of GeLUs, divisions).
        """
        return 1e-12

    def spread(self, program: Program, approximants: Mapping[str, Approximant]) -> float:
        """How far a shared lane may differ between tokens, relative to its size."""
        return 1e-14


@dataclass(frozen=True)
class Context:
    """Everything that a sublayer is built from, besides the layer."""

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
        """The range that each lane is taken to stay in, from its declaration, x_bound, y_bound and z_bound."""
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


class Part(Sublayer, ABC):
    """A kind of sublayer: its abilities, and how a layer of a program becomes one. See the module docstring."""

    kind: ClassVar[str]
    can: ClassVar[Abilities] = {}
    about: ClassVar[str]

    @classmethod
    def abilities(cls, norm: Norm, positions: Positions) -> Abilities:
        """Its abilities beside this norm and these positions."""
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
        """The lanes that a layer reads, with their bounds. Outside them the layer computes something wrong."""
        return {}

    @classmethod
    @abstractmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        """The module of a layer of the program."""

    @classmethod
    def stored(cls, context: Context) -> dict[str, Any]:
        """Settings of its modules beside their matrices."""
        return {}

    @classmethod
    def foreseen(cls, layer: Layer, context: Context) -> Count | None:
        """The later result of ``counted``, without building the weights; None if it cannot be said."""

    def normalised(self, h: Tensor) -> Tensor:
        """The stream behind the norm, if it has one."""
        return h

    @abstractmethod
    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]: ...


class Piece(NamedTuple):
    """The heads from ``first`` to before ``last``, and how large the largest of them is."""

    first: int
    last: int
    d_head: int
    d_v: int


class Heads(Part):
    """h += the sum over heads of W_O times the head's result from its queries, keys and values."""

    kind = "attention"
    hooks: ClassVar[tuple[str, ...]] = ("hook_q", "hook_k", "hook_v", "hook_pattern")
    separable: ClassVar[bool] = True  # the result of a head depends on no other

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        if self.n_heads == 0:
            return h
        g = self.normalised(h)
        pieces = self._pieces(h)
        if len(pieces) > 1:
            return h + sum(self._written(h, g, piece) for piece in pieces)
        q, k, v = (self.show(f"hook_{name.lower()}", getattr(self, f"W_{name}").project(g)) for name in "QKV")
        return h + self.W_O.write(self.mixed(h, q, k, v))

    def _pieces(self, h: Tensor) -> list[Piece]:
        """Heads that are computed together, so that queries, keys, values and scores take :data:`PIECE` numbers or so.
        All of them if there are few, if somebody looks, or if matrices are dense, as those of an export are.
        """
        _, d_head, _, d_v = (n for stack in (self.W_Q, self.W_V) for n in stack.shape[:2])
        tokens, whole = h.shape[0] * h.shape[1], [Piece(0, self.n_heads, d_head, d_v)]
        if not self.separable or type(self.W_Q) is not SparseStack:
            return whole
        looked = any(self.get_submodule(hook)._forward_hooks for hook in self.hooks)
        if looked or tokens * self.n_heads * (2 * (d_head + d_v) + h.shape[1]) <= PIECE:
            return whole
        d_heads = torch.maximum(self.W_Q.used(1), self.W_K.used(1)).tolist()
        d_vs = torch.maximum(self.W_V.used(1), self.W_O.used(2)).tolist()
        pieces = [Piece(0, 0, 1, 1)]
        for head, (d_head, d_v) in enumerate(zip(d_heads, d_vs, strict=True)):
            last = pieces[-1]
            more = Piece(last.first, head + 1, max(last.d_head, d_head), max(last.d_v, d_v))
            if tokens * (more.last - more.first) * (2 * (more.d_head + more.d_v) + h.shape[1]) <= PIECE:
                pieces[-1] = more
            else:
                pieces.append(Piece(head, head + 1, max(1, d_head), max(1, d_v)))
        return [piece for piece in pieces if piece.last > piece.first]

    def _written(self, h: Tensor, g: Tensor, piece: Piece) -> Tensor:
        """The output of some heads. The heads of a layer are as large as its largest; these, as their own largest."""
        (first, last, d_head, d_v), d_model = piece, self.W_Q.shape[2]
        q, k, v = (
            stack.some(first, last, size, d_model).project(g)
            for stack, size in ((self.W_Q, d_head), (self.W_K, d_head), (self.W_V, d_v))
        )
        return self.W_O.some(first, last, d_model, d_v).write(self.mixed(h, q, k, v))

    @abstractmethod
    def mixed(self, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "heads batch tokens d_v"]:
        """From q, k (heads, batch, T, d_head) and v (heads, batch, T, d_v)."""


class Activated(Part):
    """A sublayer with an activation, phi: sigma, which goes without a name if it is relu, or another setting."""

    def __init__(self, name: str, *stacks: Any, sigma: str = "relu", **settings: Any) -> None:
        super().__init__(name, *stacks, **settings, **({} if sigma == "relu" else {"sigma": sigma}))
        self.sigma, self.phi = sigma, activation(settings.get("activation", sigma))

    @classmethod
    def stored(cls, context: Context) -> dict[str, Any]:
        return {} if context.options.sigma is None else {"sigma": context.options.sigma}


class Normed(Part):
    """A sublayer behind a norm. gain: the stored part of it, or None; LayerNorm goes without a name."""

    shares = True

    def __init__(self, name: str, *stacks: Any, gain: Any, norm: str = "layer", **settings: Any) -> None:
        super().__init__(name, *stacks, gain=gain, **settings, **({} if norm == "layer" else {"norm": norm}))
        self.gain, self.norm = gain, norm

    def normalised(self, h: Tensor) -> Tensor:
        return self.show("hook_normalized", h if self.gain is None else Norm.known[self.norm].apply(h, self.gain))

    @classmethod
    def stored(cls, context: Context) -> dict[str, Any]:
        gain = context.norm.gain(cls.kind, context)
        return {"gain": gain} | ({} if gain is None or context.norm.name == "layer" else {"norm": context.norm.name})


# ------------------------------------------------------------------------------------------------------------ targets


@dataclass(frozen=True)
class Target:
    """A target architecture: norm x attention x MLP (x product layer) x positions x functions.

    variants: the first is the default; likewise sigmas, the activations it can have, if it has a choice.
    parts: its kinds of sublayer, each with its abilities.
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

    def __post_init__(self) -> None:
        for part in self.parts:
            lacks = [name for name in ("kind", "about") if not hasattr(part, name)] + sorted(part.__abstractmethods__)
            if lacks:
                hint = "docs/extending.md shows an example"
                raise InputError(f"part {part.__name__} has no {', '.join(lacks)}", hint=hint)

    @property
    def modules(self) -> dict[str, type[Part]]:
        """Kind of layer -> its module, made from a name and one SparseStack for each of its ``matrices``."""
        return {part.kind: part for part in self.parts}

    @property
    def proven(self) -> bool:
        """Approximants aside, its layers are exact up to rounding; otherwise products are fitted, and so measured."""
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
        for column in (self.functions, self.norm, self.positions):
            program = column.prepare(program, options)
        return program

    def why_not(self, layer: Layer, context: Context) -> Iterator[tuple[str, Reason]]:
        """The instructions of a layer that cannot be realised, and why."""
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
        for name, reason in (found for layer in program.layers for found in self.why_not(layer, context)):
            raise reason.error(name)

    def bounds(self, program: Program, layer: Layer, options: Options) -> dict[str, tuple[float, float]]:
        """The lanes that a layer reads, with their bounds. Outside them the layer computes something wrong (products of
        GeLUs).
        """
        return self.modules[layer.kind].bounds(layer, self.context(program, options))

    # ---------------------------------------------------------------------------------------------- weights and cost

    def lower(self, program: Program, approximants: Approximants, options: Options) -> LoopedTransformer:
        """The transformer; each layer of the program becomes exactly one module."""
        self.check(program, options)
        context = self.context(program, options, approximants)
        return looped(program, lambda layer: self.modules[layer.kind].build(layer, context))

    def foreseen(self, program: Program, approximants: Approximants, options: Options) -> list[Count] | None:
        """The weights of every stored layer, counted without building them where that is possible."""
        context = self.context(program, options, approximants)
        found = [self.modules[layer.kind].foreseen(layer, context) for layer in program.layers]
        counts = [count for count in found if count is not None]
        return counts if len(counts) == len(found) else None
