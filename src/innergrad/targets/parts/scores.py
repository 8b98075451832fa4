"""Sublayers whose heads (units) are one term of one score each: scores/T attention, product layers, hinge MLPs.

An instruction dst += scale f(<q_i, k_s>) v_s becomes heads:

- f is a sum of terms c sigma(a z + b), so there is one head per term and per index of the score, with
  Q = [a q; b one], K = [k; one], V = scale c v. The identity is relu(z) - relu(-z): two heads. No score: sigma(1).
- scope ``self`` is realised by *shared* keys and values: T equal terms cancel the 1/T. An instruction that reads lanes
  of its own token otherwise needs a product layer, or, on relu, *self-selecting* heads.
- self-selecting heads tell tokens apart by their positions, m binary signs (the lane bits), in prompts of a fixed
  length T: score a z + b - R (m - <bits_i, bits_s>) / 2, value T c v_s. Where two signs differ the score is at most
  a z + b - R <= 0, so s = i alone is left, and T cancels the 1/T. R is a power of two and bounds |a z + b| on the
  domain that the function declares. That domain is about a token's own lanes, so at most one side of the inner
  product may read lanes that differ between tokens. The rows of the positions come first in Q and K: for s = i
  they add up to 0, exactly, before anything else is added, as long as inner products are summed in order.
- in an mlp the score is a linear form of the token (its other side is ``one``) and the value is ``one``.
- in a product layer f is the identity and the scope ``self``.

Heads (units) of a layer with the same Q and K (the same row of W_1) are one head (unit) that writes several lanes.

Their cost is counted without building the weights: large networks would be slow. The heads of an instruction differ
only in which entries they read and write, so one index stands for all. Heads of a constant term read no index, and are
one head that writes at every index: they are all made. Where an instruction names single entries, as in x[0], heads of
different instructions coincide at some indices only. Such layers are small, and all heads are made. So are they where
units of an mlp read an entry at several indices. The tests compare with the built module.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Self

import torch
from torch import Tensor

from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Program
from innergrad.targets.parts.base import (
    Abilities,
    Activated,
    Context,
    Heads,
    Part,
    Positions,
    Reason,
    activation,
    constant,
)
from innergrad.targets.parts.mlps import Mlp
from innergrad.targets.weights.modules import Count
from innergrad.targets.weights.rows import (
    Head,
    Pairs,
    Term,
    add,
    attention_stacks,
    destinations,
    family,
    linear_form,
    merge,
    scaled,
    score_rows,
    writes,
)

_CHUNK = 1 << 18  # attention scores held at a time: they stay in the cache, which is ten times faster
SHARED = "attention reaches its own token only through shared keys and values"


class SignBits(Positions):
    """The lane bits, which a program declares: self-selecting heads."""

    can: ClassVar[Abilities] = {
        "score": "{how}: keys and values shared, or, with the lane `bits`, on a bounded domain of own lanes"
    }

    def why_not(self, program: Program, instruction: Attend, private: list[str]) -> Reason | None:
        """Why a head cannot select its own token. private: the lanes it reads there that differ between tokens."""
        if program.length is None or "bits" not in program.stream.by_name:
            return Reason(
                SHARED,
                f"{', '.join(private)} not shared",
                hint="use a product layer, put the token's own lanes on the query side, or give the prompts positions "
                "(the lane bits) and a fixed length",
            )
        digits = program.stream["bits"].size
        if 2**digits < program.length:
            got = f"{digits} binary digits for {program.length} tokens"
            return Reason("the positions of all tokens must differ", got)
        for score in instruction.scores:
            if not math.isfinite(score.f.radius):
                got = f"{score.f.name}, which declares no radius"
                return Reason("a self-selecting head needs a bound on its score", got, hint="write within(f, radius)")
            sides = [[view for pair in score.pairs for view in pair[side]] for side in (0, 1)]
            if all(any(not program.stream[view.lane].shared for view in views) for views in sides):
                what = "queries and keys of a self-selecting head both read lanes that differ between tokens"
                return Reason(what, hint="its score must be known from one token: use shared lanes on one side")
        return None

    def pairs(self, instruction: Attend, context: Context) -> Pairs:
        """Rows of Q and K whose inner product is -R times the number of binary digits in which two positions differ."""
        radius = max((score.f.radius for score in instruction.scores), default=1.0)
        digits, R = context.program.stream["bits"].size, 2.0 ** math.ceil(math.log2(max(1.0, radius)))
        entries = [context.program.stream.entry("bits", (digit,)) for digit in range(digits)]
        last = ({context.one: -R * digits / 2}, {context.one: 1.0})
        return [*(({entry: R / 2}, {entry: 1.0}) for entry in entries), last]


class Scores(Part):
    """See the module docstring."""

    @classmethod
    def selects(cls, program: Program, instruction: Attend) -> list[str]:
        """Lanes that attention of scope ``self`` reads as keys or values and that differ between tokens: for these it
        needs self-selecting heads.
        """
        keys = [view for score in instruction.scores for _, key in score.pairs for view in key]
        read = (*instruction.value, *keys) if cls.kind == "attention" and instruction.scope == "self" else ()
        return sorted({view.lane for view in read if not program.stream[view.lane].shared})

    @classmethod
    def pairs(cls, pairs: Pairs, first: Pairs, a: float, b: float, one: int) -> Pairs:
        """The queries and keys of a term; first: rows of positions."""
        bias = [({one: b}, {one: 1.0})] if b else []
        return [*first, *((scaled(q, a), k) for q, k in pairs if a), *bias]

    @classmethod
    def heads(cls, instruction: Attend, context: Context, every: bool = True) -> Iterator[Head]:
        """The heads (in an mlp: units) of one instruction, before merging; those of the first index stand for others
        that differ in nothing else, unless ``every`` one is asked for.
        """
        program, one, first, times = context.program, context.one, Pairs(), 1.0
        if cls.selects(program, instruction) and isinstance(context.positions, SignBits):
            first, times = context.positions.pairs(instruction, context), float(program.length or 1)
        if not instruction.scores:
            level = float(activation(context.options.sigma or "relu")(torch.ones((), dtype=torch.float64)))
            yield Head([[*first, ({one: 1.0}, {one: 1.0})]], writes(program, instruction, {}, times / level))
            return
        (score,) = instruction.scores
        product = cls.kind == "product"
        terms: list[Term] = [(1.0, 0.0, 1.0)] if product else list(context.approximants[score.f.name].hinges)
        constants = [term for term in terms if not term[0]]
        copies = 1 if every else sum(1 for _ in family(program, instruction))
        for number, index in enumerate(family(program, instruction)):
            chosen = terms if every or number == 0 else constants
            if not chosen:
                break
            rows = [] if chosen is constants else score_rows(program, instruction, score, index)
            for a, b, c in chosen:
                written = writes(program, instruction, index, c * times)
                yield Head([cls.pairs(rows, first, a, b, one)], written, copies=copies if a else 1)

    @classmethod
    def merged(cls, layer: Layer, context: Context, every: bool = True) -> list[Head]:
        return merge(head for instruction in layer.instructions for head in cls.heads(instruction, context, every))

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        return cls.made(layer.name, cls.merged(layer, context), context)

    @classmethod
    def made(cls, name: str, heads: list[Head], context: Context) -> Self:
        """The module of these heads."""
        return cls(name, *attention_stacks(heads, context.program.stream.d_model), **cls.stored(context))

    @classmethod
    def foreseen(cls, layer: Layer, context: Context) -> Count | None:
        if context.options.sigma:
            return None
        heads = cls.merged(layer, context, every=any(map(cls.coincide, layer.instructions)))
        copies = torch.tensor([head.copies for head in heads], dtype=torch.int64)
        return cls.made(layer.name, heads, context).counted(copies, context.one)

    @classmethod
    def coincide(cls, instruction: Attend) -> bool:
        """Heads of different indices may be the same, or, in an mlp, read the same entry."""
        pairs = [pair for score in instruction.scores for pair in score.pairs]
        read = [set(view.labels) for pair in pairs for side in pair for view in side if view.lane != "one"]
        apart = cls.kind != "mlp" or all(labels == set().union(*read) for labels in read)
        return not apart or any(not view.whole for view in instruction.views())


class ScoreAttention(Scores, Heads, Activated):
    """h_i += 1/T sum_m sum_s sigma(<W_Q^m h_i, W_K^m h_s>) W_O^m W_V^m h_s, sigma the relu or any activation.

    Shapes: W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).
    """

    can: ClassVar[Abilities] = {
        "linear map": "{linear}, of shared lanes",
        "product": "{linear}, if one factor is shared",
        "function": "{how}",
        "score": "{how}, keys and values shared",
        "mean": "{linear}, also of such terms",
    }
    about = "attention of this target has one score, no softmax, and beyond its own token takes the mean over all"

    def mixed(self, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tokens = h.shape[1]
        if self.get_submodule("hook_pattern")._forward_hooks:  # somebody looks: all heads at once
            return self.show("hook_pattern", self.phi(q @ k.mT) / tokens) @ v
        chunk = max(1, _CHUNK // (h.shape[0] * tokens * tokens))
        parts = [slice(m, m + chunk) for m in range(0, len(q), chunk)]
        return torch.cat([self.phi(q[m] @ k[m].mT) @ v[m] / tokens for m in parts])

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        if len(instruction.scores) > 1:
            return Reason("a head of this target has one score", len(instruction.scores))
        private = cls.selects(context.program, instruction)
        if private and isinstance(context.positions, SignBits):
            return context.positions.why_not(context.program, instruction, private)
        got, hint = f"{', '.join(private)} not shared", "put own lanes on the query side, or use an mlp"
        return Reason(SHARED, got, hint=hint) if private else None


class Product(Scores, Heads):
    """Element-wise multiplication layer: h_i += sum_m <W_Q^m h_i, W_K^m h_i> W_O^m W_V^m h_i."""

    kind = "product"
    hooks = ("hook_q", "hook_k", "hook_v")
    can: ClassVar[Abilities] = {
        "linear map": "exactly",
        "product": "exactly",
        "score": "exactly: score times value, no function",
    }
    about = "a product layer multiplies, it applies no function, and reads its own token"

    def mixed(self, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q * k).sum(-1, keepdim=True) * v

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        names = [score.f.name for score in instruction.scores]
        if names and names != [IDENTITY.name]:
            hint = "use an attention or mlp layer for the function"
            return Reason("a product layer multiplies, it applies no function", ", ".join(names), hint=hint)
        return None


class HingeMlp(Scores, Mlp):
    """h_i += W_2 relu(W_1 h_i): piecewise-linear functions of linear forms."""

    can: ClassVar[Abilities] = {"linear map": "exactly", "function": "{how}"}
    about = "an mlp reads its own token, and applies a function to a linear form; it does not multiply"

    @classmethod
    def pairs(cls, pairs: Pairs, first: Pairs, a: float, b: float, one: int) -> Pairs:
        row = scaled(linear_form(pairs, one), a) if a else {}
        add(row, {one: b} if b else {})
        return [(row, {one: 1.0})]

    @classmethod
    def heads(cls, instruction: Attend, context: Context, every: bool = True) -> Iterator[Head]:
        if instruction.scores or constant(instruction.value):
            yield from super().heads(instruction, context, every)
            return
        for entry, row in destinations(context.program, instruction, {}):  # z = relu(z) - relu(-z)
            for sign in (1.0, -1.0):
                written = {entry: {context.one: sign * instruction.scale}}
                yield Head([[(scaled(row, sign), {context.one: 1.0})]], written)

    @classmethod
    def made(cls, name: str, heads: list[Head], context: Context) -> Self:
        units = [(h.scores[0][0][0], 0.0, {e: row[context.one] for e, row in h.writes.items()}) for h in heads]
        return cls.of(name, units, context)
