"""Sublayers whose heads (units) are one term of one score each: scores/T attention, product layers, hinge MLPs.

An instruction dst += scale f(<q_i, k_s>) v_s becomes heads:

- f is a sum of terms c sigma(a z + b), so there is one head per term and per index of the score, with
  Q = [a q; b one], K = [k; one], V = scale c v. The identity is relu(z) - relu(-z): two heads. No score: sigma(1).
- scope ``self`` is realised by *shared* keys and values: T equal terms cancel the 1/T. An instruction that reads lanes
  of its own token otherwise needs a product layer, or, on relu, *self-selecting* heads.
- self-selecting heads tell tokens apart by their positions, m binary signs (the lane bits), in prompts of a fixed
  length T: score a z + b - R (m - <bits_i, bits_s>) / 2, value T c v_s. Where two signs differ the score is at most
  a z + b - R <= 0, so s = i alone is left, and T cancels the 1/T. R is a power of two and bounds |a z + b| on the
  domain that the function declares; what is known of z is about a token's own lanes, so no more than one side of the
  inner product may read lanes that differ between tokens. The rows of the positions come first in Q and K: for s = i
  they add up to 0, exactly, before anything else is added, as long as inner products are summed in order.
- in an mlp the score is a linear form of the token (its other side is ``one``) and the value is ``one``.
- in a product layer f is the identity and the scope ``self``.

Heads (units) of a layer with the same Q and K (the same row of W_1) are one head (unit) that writes several lanes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.functions.scalar import IDENTITY
from innergrad.ir.program import Attend, Layer, Program
from innergrad.targets.parts.base import Abilities, Context, Part, Reason, constant
from innergrad.targets.parts.counts import count
from innergrad.targets.parts.mlps import Mlp, Unit, activation
from innergrad.targets.parts.positions import SignBits
from innergrad.targets.weights.looped import Count
from innergrad.targets.weights.rows import (
    Head,
    Pairs,
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
from innergrad.targets.weights.sparse import SparseStack

_CHUNK = 1 << 18  # attention scores held at a time: they stay in the cache, which is ten times faster
Terms = Iterable[tuple[float, float, float]]


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
    def heads(cls, instruction: Attend, context: Context, representative: bool = False) -> Iterator[Head]:
        """The heads (in an mlp: units) of one instruction, before merging; only those of the first index if
        ``representative``.
        """
        program, one, first, times = context.program, context.one, Pairs(), 1.0
        if cls.selects(program, instruction) and isinstance(context.positions, SignBits):
            first, times = context.positions.pairs(instruction, context), float(program.length or 1)
        if not instruction.scores:
            level = float(activation(context.options.sigma or "relu")(torch.ones((), dtype=torch.float64)))
            yield Head([*first, ({one: 1.0}, {one: 1.0})], writes(program, instruction, {}, times / level))
            return
        (score,) = instruction.scores
        terms: Terms = [(1.0, 0.0, 1.0)] if cls.kind == "product" else context.approximants[score.f.name].hinges
        for index in itertools.islice(family(program, instruction), 1 if representative else None):
            rows = score_rows(program, instruction, score, index)
            for a, b, c in terms:
                yield Head(cls.pairs(rows, first, a, b, one), writes(program, instruction, index, c * times))

    @classmethod
    def merged(cls, layer: Layer, context: Context) -> list[Head]:
        return merge(head for instruction in layer.instructions for head in cls.heads(instruction, context))

    @classmethod
    def foreseen(cls, layer: Layer, context: Context) -> Count | None:
        return None if context.options.sigma else count(cls, layer, context)

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        heads = cls.merged(layer, context)
        values = [[(row, {entry: 1.0}) for entry, row in head.writes.items()] for head in heads]
        stacks = attention_stacks([head.pairs for head in heads], values, context.program.stream.d_model)
        return cls(layer.name, *stacks, **({} if context.options.sigma is None else {"sigma": context.options.sigma}))


class ScoreAttention(Scores):
    """h_i += 1/T sum_m sum_s sigma(<W_Q^m h_i, W_K^m h_s>) W_O^m W_V^m h_s, sigma the relu or any activation.

    Shapes: W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).
    """

    kind = "attention"
    hooks = ("hook_q", "hook_k", "hook_v", "hook_pattern")
    can: ClassVar[Abilities] = {
        "linear map": "{linear}, of shared lanes",
        "product": "{linear}, if one factor is shared",
        "function": "{how}",
        "score": "{how}, keys and values shared",
        "mean": "{linear}, also of such terms",
    }
    about = "attention of this target has one score, no softmax, and beyond its own token takes the mean over all"

    def __init__(self, name: str, *stacks: SparseStack, sigma: str = "relu") -> None:
        super().__init__(name, *stacks, **({} if sigma == "relu" else {"sigma": sigma}))
        self.sigma, self.phi = sigma, activation(sigma)

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        heads, tokens = self.W_Q.shape[0], h.shape[1]
        if heads == 0:
            return h
        q, k, v = self.projections(h)
        if self.get_submodule("hook_pattern")._forward_hooks:  # somebody looks: all heads at once
            return h + self.W_O.write(self.show("hook_pattern", self.phi(q @ k.mT) / tokens) @ v)
        chunk = max(1, _CHUNK // (h.shape[0] * tokens * tokens))
        parts = [slice(m, m + chunk) for m in range(0, heads, chunk)]
        return h + self.W_O.write(torch.cat([self.phi(q[m] @ k[m].mT) @ v[m] / tokens for m in parts]))

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        if len(instruction.scores) > 1:
            return Reason("a head of this target has one score", len(instruction.scores))
        private = cls.selects(context.program, instruction)
        if private and isinstance(context.positions, SignBits):
            return context.positions.why_not(context.program, instruction, private)
        if private:
            what = "attention reaches its own token only through shared keys and values"
            return Reason(
                what, f"{', '.join(private)} not shared", hint="put own lanes on the query side, or use an mlp"
            )
        return None


class Product(Scores):
    """Element-wise multiplication layer: h_i += sum_m <W_Q^m h_i, W_K^m h_i> W_O^m W_V^m h_i."""

    kind = "product"
    hooks = ("hook_q", "hook_k", "hook_v")
    can: ClassVar[Abilities] = {
        "linear map": "exactly",
        "product": "exactly",
        "score": "exactly: score times value, no function",
    }
    about = "a product layer multiplies, it applies no function, and reads its own token"

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        if self.W_Q.shape[0] == 0:
            return h
        q, k, v = self.projections(h)
        return h + self.W_O.write((q * k).sum(-1, keepdim=True) * v)

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        names = [score.f.name for score in instruction.scores]
        if names and names != [IDENTITY.name]:
            hint = "use an attention or mlp layer for the function"
            return Reason("a product layer multiplies, it applies no function", ", ".join(names), hint=hint)
        return None


class HingeMlp(Mlp, Scores):
    """h_i += W_2 relu(W_1 h_i): piecewise-linear functions of linear forms."""

    can: ClassVar[Abilities] = {"linear map": "exactly", "function": "{how}"}
    about = "an mlp reads its own token, and applies a function to a linear form; it does not multiply"

    @classmethod
    def pairs(cls, pairs: Pairs, first: Pairs, a: float, b: float, one: int) -> Pairs:
        row = scaled(linear_form(pairs, one), a) if a else {}
        add(row, {one: b} if b else {})
        return [(row, {one: 1.0})]

    @classmethod
    def heads(cls, instruction: Attend, context: Context, representative: bool = False) -> Iterator[Head]:
        if instruction.scores or constant(instruction.value):
            yield from super().heads(instruction, context, representative)
            return
        for entry, row in destinations(context.program, instruction, {}):  # z = relu(z) - relu(-z)
            for sign in (1.0, -1.0):
                written = {entry: {context.one: sign * instruction.scale}}
                yield Head([(scaled(row, sign), {context.one: 1.0})], written)

    @classmethod
    def units(cls, layer: Layer, context: Context) -> list[Unit]:
        heads = cls.merged(layer, context)
        return [(head.pairs[0][0], 0.0, {e: row[context.one] for e, row in head.writes.items()}) for head in heads]
