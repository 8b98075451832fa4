"""Softmax attention, as in standard blocks.

    h_i += sum_m softmax_s(<W_Q^m g_i, W_K^m g_s>) W_O^m W_V^m g_s      g = norm(h)

- the mean over all tokens: no score. Softmax of a score over all tokens, or over the examples.
- reading a token by its position (:mod:`innergrad.targets.parts.positions`).
- a function of a token's own lanes, with a sink, as a sum of sigmoids: all n tokens have the score z - log n and the
  value 1, the sink 0 and 0: a head computes n e^z / n / (e^z + 1).
- sums over the examples with exp scores: a sink with score 40 and value zero makes softmax un-normalised ("heavy
  sink"): e^40 softmax is exp up to e^-40 sum exp. A linear score is a sum of eight such heads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.functions.scalar import EXP, IDENTITY
from innergrad.ir.program import Attend, Layer, Program, View
from innergrad.targets.parts.base import Abilities, Context, Normed, Reason, described, need
from innergrad.targets.parts.functions import LINEAR
from innergrad.targets.parts.positions import Places
from innergrad.targets.weights.rows import (
    Head,
    Index,
    Pairs,
    Row,
    add,
    attention_stacks,
    family,
    linear_form,
    merge,
    scaled,
    score_rows,
    writes,
)
from innergrad.targets.weights.sparse import SparseStack

SINK, NEVER = 40.0, 1024.0  # score of a heavy sink; exp(-NEVER) is zero, exactly: what a sink held would grow e^40-fold


class SoftmaxAttention(Normed):
    """See the module docstring. Shapes: W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    gain: of the norm before it, or None. causal: a token sees no later one.
    """

    kind = "attention"
    hooks = ("hook_normalized", "hook_q", "hook_k", "hook_v", "hook_pattern", "hook_z")
    can: ClassVar[Abilities] = {"linear map": "exactly, of shared lanes", "mean": "exactly", "softmax": "exactly"}
    about = "softmax attention averages over all tokens and takes the softmax of scores"

    def __init__(self, name: str, *stacks: SparseStack, gain: Any, causal: bool, norm: str = "layer") -> None:
        super().__init__(name, *stacks, gain=gain, norm=norm, causal=causal)
        self.causal = causal

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        if self.W_V.shape[0] == 0:
            return h
        q, k, v = self.projections(self.normalised(h))
        scores = q @ k.mT
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=h.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        z = self.show("hook_z", self.show("hook_pattern", torch.softmax(scores, dim=-1)) @ v)
        return h + self.W_O.write(z)

    # ------------------------------------------------------------------------------------------------ what it can do

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        program, scores, wanted = context.program, instruction.scores, need(instruction)
        functions = [score.f.name for score in scores if score.f not in (EXP, LINEAR, IDENTITY)]
        constants = [v.lane for v in instruction.value if program.stream[v.lane].shared and v.lane != "one"]
        beyond, own = instruction.scope not in ("all", "self"), instruction.value != (View("one"),)
        plain = [score.f for score in scores] == [IDENTITY] and instruction.scope in ("all", "demos")
        placed = cls.shared(program, instruction) or isinstance(context.positions, Places)
        sums = Reason(
            "softmax heads add up exponentials of scores, and linear scores as sums of those",
            functions or "no score",
            "scores exp and linear with reduce='sum', or a softmax",
        )
        sink = Reason(
            "where there is nothing to read, shared lanes would be read off the sink",
            ", ".join(constants),
            hint="read lanes that are per token, and add the shared ones in an mlp",
        )
        alone = Reason("a token reads its own lanes in an mlp", hint="make it an mlp layer")
        got = described(instruction)
        reasons = [
            (
                wanted == "function" and own,
                Reason("with a sink, attention applies functions to linear forms", "a value"),
            ),
            (wanted == "examples" and (functions or not scores), sums),
            (wanted == "softmax" and not plain, Reason("softmax heads take the softmax of a score", got)),
            (wanted == "linear map" and not placed, alone),
            (
                wanted in ("linear map", "mean", "token") and scores,
                Reason("scores are for scope='demos', or for a softmax", got),
            ),
            (
                program.causal and wanted in ("examples", "softmax", "mean"),
                Reason("in a causal program attention reads single tokens", got),
            ),
            (program.sink and beyond and constants, sink),
        ]
        return next((reason for applies, reason in reasons if applies), None)

    @classmethod
    def shared(cls, program: Program, instruction: Attend) -> bool:
        return not program.causal and all(program.stream[view.lane].shared for view in instruction.value)

    # ------------------------------------------------------------------------------------------------ how it is built

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        """W_V reads entries as they are, W_O combines them: what a sink's empty lanes show is then zero, exactly."""
        heads = merge(head for instruction in layer.instructions for head in cls.heads(instruction, context))
        behind, values = cls.behind(context), list[list[tuple[Row, Row]]]()

        def read(row: Row) -> Row:
            return context.norm.read(row, behind["gain"], context)

        for head in heads:
            columns: dict[int, Row] = {
                source: {} for source in sorted({e for row in head.writes.values() for e in row})
            }
            for entry, source, weight in ((e, s, w) for e, row in head.writes.items() for s, w in row.items()):
                columns[source][entry] = weight
            values.append([(read({source: 1.0}), column) for source, column in columns.items()])
        pairs = [[(read(query), read(key)) for query, key in head.pairs] for head in heads]
        stacks = attention_stacks(pairs, values, context.program.stream.d_model)
        return cls(layer.name, *stacks, causal=context.program.causal, **behind)

    @classmethod
    def heads(cls, instruction: Attend, context: Context) -> Iterator[Head]:
        scope, program, pairs = instruction.scope, context.program, Pairs()
        if instruction.scores:
            yield from (cls._sigmoids if scope == "self" else cls._scored)(instruction, context)
            return
        if scope != "all" and not (scope == "self" and cls.shared(program, instruction)):
            assert isinstance(context.positions, Places)
            pairs = context.positions.pairs(instruction, context)
        if scope not in ("all", "self") and not program.causal:  # a sink, which comes first, reads nothing
            ns = context.entry("ns")
            pairs = [*pairs, ({context.one: -NEVER, ns: NEVER}, {ns: 1.0})]
        yield cls._head(pairs, instruction, {}, 1.0, context)

    @classmethod
    def _head(cls, pairs: Pairs, instruction: Attend, index: Index, weight: float, context: Context) -> Head:
        """Where a sink may be read, the constant is the lane that is zero on it."""
        made = writes(context.program, instruction, index, weight)
        if context.program.sink and instruction.scope not in ("all", "self"):
            ns = context.entry("ns")
            made = {e: {ns if c == context.one else c: w for c, w in row.items()} for e, row in made.items()}
        return Head(pairs, made)

    @classmethod
    def _sigmoids(cls, instruction: Attend, context: Context) -> Iterator[Head]:
        """A function of a token's own lanes."""
        ns, tokens, one = context.entry("ns"), context.entry("log_tokens"), context.one
        for index in family(context.program, instruction):
            form = linear_form(score_rows(context.program, instruction, instruction.scores[0], index), one)
            for a, b, c in context.approximants[instruction.scores[0].f.name].hinges:
                query = scaled(form, a)
                add(query, {one: b, tokens: -1.0})
                written = writes(context.program, instruction, index, c)
                yield Head([(query, {ns: 1.0})], {e: {ns: row[one]} for e, row in written.items()})

    @classmethod
    def _scored(cls, instruction: Attend, context: Context) -> Iterator[Head]:
        """Softmax over all tokens or over the examples, or sums over them of exponentials, by a heavy sink."""
        one, t = context.one, context.entry("t")
        hidden = (
            [({one: 1.0}, {t: NEVER, one: -NEVER})] if instruction.scope == "demos" else []
        )  # 0 on examples, exactly
        for index in family(context.program, instruction):
            scores = [score_rows(context.program, instruction, score, index) for score in instruction.scores]
            if instruction.reduce == "softmax":
                yield cls._head([*scores[0], *hidden], instruction, index, 1.0, context)
                continue
            ns = context.entry("ns")
            levels = [  # 0 on examples, exactly; -NEVER on queries; SINK on the sink, which itself reads nothing
                ({one: 1.0}, {t: NEVER, ns: -NEVER}),
                ({one: 1.0}, {one: SINK, ns: -SINK}),
                ({one: -NEVER, ns: NEVER}, {t: 1.0}),
            ]
            for rates, weight in cls._exponentials(instruction, context):
                pairs = [(scaled(q, a), k) for a, rows in zip(rates, scores, strict=True) for q, k in rows]
                yield cls._head(pairs + levels, instruction, index, weight * math.exp(SINK), context)

    @classmethod
    def _exponentials(cls, instruction: Attend, context: Context) -> Iterator[tuple[tuple[float, ...], float]]:
        """The product of the scores' functions as a sum of weight * exp(sum of rate * score)."""
        found = (context.approximants.get(score.f.name) for score in instruction.scores)
        sums = [[(1.0, 1.0)] if f is None else list(zip(f.a, f.c, strict=True)) for f in found]
        for terms in itertools.product(*sums):
            yield tuple(rate for rate, _ in terms), math.prod(weight for _, weight in terms)
