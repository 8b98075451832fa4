"""Attention over other tokens: softmax attention, as in standard blocks, and attention whose scores pass through h.

Softmax attention:

    h_i += sum_m softmax_s(<W_Q^m g_i, W_K^m g_s>) W_O^m W_V^m g_s      g = norm(h)

- the mean over all tokens: no score. Softmax of a score over all tokens, over the examples, or over the tokens that a
  lane marks. Over three *markers*, with the scores 0, z + log 2 and 2 z, the weights are (1 - s)^2, 2 s (1 - s) and
  s^2, s = sigmoid(z): one head is sigmoid, tanh and their derivatives, exactly, whatever z.
- a function of a token's own lanes, with a sink, as a sum of sigmoids: all n tokens have the score z - log n and the
  value 1, the sink 0 and 0: a head computes n e^z / n / (e^z + 1).
- sums over the examples with exp scores: a sink with score 40 and value zero makes softmax un-normalised ("heavy
  sink"): e^40 softmax is exp up to e^-40 sum exp. A linear score is a sum of eight such heads.
- reading tokens (mov). Lanes pos, pos2 and ns are zero on a *sink* token at the front, so its score is zero. Token p
  gets -256 (j - p)^2 + 64 or more, all others -64 or less; where p must not be seen the sink is attended to: it adds
  nothing. (Beyond the end of a short prompt, where p is a query, its neighbour may win: a label's token, whose x is
  zero.)

Kernel attention, over the examples (Cheng et al. 2024, equations (2)-(5), (12)):

    h_j += sum_m sum_{i: t_i = 1} prod_{s in m} h_s(<W_Q^s h_j, W_K^s h_i>) W_O^m W_V^m h_i      h in linear, relu, exp
    h_j += sum_m softmax_{i: t_i = 1}(<W_Q^m h_j, W_K^m h_i>) W_O^m W_V^m h_i                     softmax

The mask M of the paper is the lane t. Scores are multiplied within a head, heads are added: products and sums of
kernels (Proposition D.1). Nothing is approximated: the layer computes the functions themselves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from innergrad.functions.scalar import EXP, IDENTITY
from innergrad.ir.program import Attend, Layer, Options, Program, View
from innergrad.ir.stream import POSITION, Lane, Stream
from innergrad.targets.parts.base import Abilities, Context, Heads, Normed, Positions, Reason, described, need
from innergrad.targets.parts.functions import LINEAR
from innergrad.targets.weights.modules import SparseStack
from innergrad.targets.weights.rows import (
    Head,
    Index,
    Pairs,
    add,
    attention_stacks,
    family,
    linear_form,
    merge,
    scaled,
    score_rows,
    writes,
)

MARGIN, BETA, QUERY = 64.0, 256.0, 2.0**20  # of the scores that select a token by its position
SINK, NEVER = 40.0, 1024.0  # score of a heavy sink; exp(-NEVER) is zero, exactly: what a sink held would grow e^40-fold
H = {"identity": lambda z: z, "relu": torch.relu, "exp": torch.exp}


# ------------------------------------------------------------------------------------------- how it tells tokens apart


class Sink(Positions):
    """A sink and the number of tokens: attention applies sigmoids to a token's own lanes."""

    can: ClassVar[Abilities] = {"function": "{how}, by sigmoids"}

    def prepare(self, program: Program, options: Options) -> Program:
        layers = [layer for layer in program.layers if layer.kind == "attention"]
        sink = any(i.scores and i.scope == "self" for layer in layers for i in layer.instructions)
        own = (Lane("ns", (), "input"), Lane("log_tokens", (), "input", shared=True)) if sink else ()
        return replace(program, stream=Stream((*program.stream.lanes, *own)), sink=sink)


class Places(Positions):
    """pos, pos2 and ns with a sink: attention reads one token, and sums exponentials over the examples."""

    can: ClassVar[Abilities] = {
        "linear map": "exactly, by position",
        "token": "exactly",
        "examples": "exp exactly, linear scores {how}",
    }

    def prepare(self, program: Program, options: Options) -> Program:
        """The things that have to be told apart: single tokens, examples and the sink, a token's own lanes."""
        own = (Lane("pos", (), "input"), Lane("pos2", (), "input"), Lane("ns", (), "input"))
        for i in (i for layer in program.layers if layer.kind == "attention" for i in layer.instructions):
            private = any(not program.stream[view.lane].shared for view in i.value) or program.causal
            if need(i) in ("token", "examples") or (need(i) == "linear map" and private):
                return replace(program, stream=Stream((*program.stream.lanes, *own)), sink=True)
        return program

    def longest(self, program: Program, options: Options, dtype: torch.dtype) -> float:
        """Scores by position grow with the square of the number of tokens; behind a LayerNorm they are rounded."""
        rounded = options.variant == "pre-ln" and dtype == torch.float32
        return 512 if rounded and "pos" in program.stream.by_name else math.inf

    def pairs(self, instruction: Attend, context: Context) -> Pairs:
        """-BETA (j - p)^2 + MARGIN or more at the token p to be read, -MARGIN or less at all others, 0 at the sink."""
        one, pos, pos2, ns = (context.entry(name) for name in ("one", "pos", "pos2", "ns"))
        P = 1.0 / POSITION
        if instruction.at is None:  # p = i, or i - 1
            back = 0.0 if instruction.scope == "self" else 1.0
            centre = {pos2: -BETA * P**2, pos: 2 * BETA * back * P, one: -BETA * back**2 + MARGIN}
            here = one if instruction.scope == "self" else ns  # a sink reads itself, but has no token before it
            return [
                ({one: -BETA}, {pos2: P**2}),
                ({pos: 2 * BETA * P, one: -2 * BETA * back}, {pos: P}),
                (centre, {here: 1.0}),
            ]
        token, since = instruction.at
        p, delay = token + 1.0, since - token
        if since == 0 or (delay <= 0 and context.program.causal):  # everybody who may see it does
            slope, level = 0.0, {one: -BETA * p**2 + MARGIN}
        else:  # 2 MARGIN (i - j - delay + 1/2): MARGIN or more for tokens that may see p, -MARGIN or less for others
            slope, level = 2 * MARGIN, {pos: 2 * MARGIN * P, one: -BETA * p**2 - 2 * MARGIN * (delay - 0.5)}
        hidden = ({one: -QUERY}, {context.entry("query"): 1.0})  # positions beyond a short prompt may hold queries
        return [({one: -BETA}, {pos2: P**2}), ({one: 2 * BETA * p - slope}, {pos: P}), (level, {ns: 1.0}), hidden]


# ------------------------------------------------------------------------------------------------------------- softmax


class SoftmaxAttention(Normed, Heads):
    """See the module docstring. Shapes: W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    gain: of the norm before it, or None. causal: a token sees no later one.
    """

    hooks = ("hook_normalized", "hook_q", "hook_k", "hook_v", "hook_pattern", "hook_z")
    can: ClassVar[Abilities] = {"linear map": "exactly, of shared lanes", "mean": "exactly", "softmax": "exactly"}
    about = "softmax attention averages over all tokens and takes the softmax of scores"

    def __init__(self, name: str, *stacks: SparseStack, gain: Any, causal: bool, norm: str = "layer") -> None:
        super().__init__(name, *stacks, gain=gain, norm=norm, causal=causal)
        self.causal = causal

    @classmethod
    def stored(cls, context: Context) -> dict[str, Any]:
        return super().stored(context) | {"causal": context.program.causal}

    def mixed(self, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=h.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        return self.show("hook_z", self.show("hook_pattern", torch.softmax(scores, dim=-1)) @ v)

    # ------------------------------------------------------------------------------------------------ what it can do

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        program, scores, wanted, got = context.program, instruction.scores, need(instruction), described(instruction)
        functions = [score.f.name for score in scores if score.f not in (EXP, LINEAR, IDENTITY)]
        constants = [v.lane for v in instruction.value if program.stream[v.lane].shared and v.lane != "one"]
        beyond, own = instruction.scope not in ("all", "self"), instruction.value != (View("one"),)
        tokens = instruction.scope in ("all", "demos") or cls.mask(instruction, program) is not None
        plain = [score.f for score in scores] == [IDENTITY] and tokens
        placed = cls.shared(program, instruction) or isinstance(context.positions, Places)
        reasons = [
            (
                wanted == "function" and own,
                Reason("with a sink, attention applies functions to linear forms", "a value"),
            ),
            (
                wanted == "examples" and (functions or not scores),
                Reason(
                    "softmax heads add up exponentials of scores, and linear scores as sums of those",
                    functions or "no score",
                    "scores exp and linear with reduce='sum', or a softmax",
                ),
            ),
            (wanted == "softmax" and not plain, Reason("softmax heads take the softmax of a score", got)),
            (
                wanted == "linear map" and not placed,
                Reason("a token reads its own lanes in an mlp", hint="make it an mlp layer"),
            ),
            (
                wanted in ("linear map", "mean", "token") and scores,
                Reason("scores are for scope='demos', or for a softmax", got),
            ),
            (
                program.causal and wanted in ("examples", "softmax", "mean"),
                Reason("in a causal program attention reads single tokens", got),
            ),
            (
                program.sink and beyond and constants,
                Reason(
                    "where there is nothing to read, shared lanes would be read off the sink",
                    ", ".join(constants),
                    hint="read lanes that are per token, and add the shared ones in an mlp",
                ),
            ),
        ]
        return next((reason for applies, reason in reasons if applies), None)

    @classmethod
    def mask(cls, instruction: Attend, program: Program) -> str | None:
        """The lane that is 1 on the tokens in scope, and 0 on others: of the examples, or any, where there is no sink,
        which would have to read nothing.
        """
        if instruction.scope == "demos":
            return "t"
        return instruction.scope if not program.sink and instruction.scope in program.stream.by_name else None

    @classmethod
    def shared(cls, program: Program, instruction: Attend) -> bool:
        return not program.causal and all(program.stream[view.lane].shared for view in instruction.value)

    # ------------------------------------------------------------------------------------------------ how it is built

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        heads = merge(head for instruction in layer.instructions for head in cls.heads(instruction, context))
        settings = cls.stored(context)
        read = partial(context.norm.read, gain=settings["gain"], context=context)
        return cls(layer.name, *attention_stacks(heads, context.program.stream.d_model, read), **settings)

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
        return Head([pairs], made)

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
                yield Head([[(query, {ns: 1.0})]], {e: {ns: row[one]} for e, row in written.items()})

    @classmethod
    def _scored(cls, instruction: Attend, context: Context) -> Iterator[Head]:
        """Softmax over all tokens or over the examples, or sums over them of exponentials, by a heavy sink."""
        one, t, mask = context.one, context.entry("t"), cls.mask(instruction, context.program)
        hidden = Pairs()
        if mask is not None:  # 0 on tokens in scope, exactly: a row of its own, where nothing else is added to it
            hidden = [({one: 1.0}, {context.entry(mask): NEVER, one: -NEVER})]
        if context.program.sink and hidden:  # a sink, whose own score is -NEVER, reads itself and nothing else
            hidden.append(({one: -2 * NEVER, context.entry("ns"): 2 * NEVER}, {context.entry("ns"): 1.0}))
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


# ------------------------------------------------------------------------------------------------------------- kernels


class KernelAttention(Heads):
    """See the module docstring. Shapes: W_Q, W_K (scores, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    heads: for each head, the h of each of its scores; ["softmax"] for a head of softmax attention. t: entry of lane t.
    """

    can: ClassVar[Abilities] = {
        "softmax": "exactly, over the examples",
        "examples": "exactly: products of identity, relu and exp scores",
    }
    separable: ClassVar[bool] = False  # several scores may be of one head
    about = "this target has attention layers only, which sum, or take the softmax, over the examples"

    def __init__(self, name: str, *stacks: SparseStack, heads: list[list[str]], t: int) -> None:
        super().__init__(name, *stacks, heads=heads, t=t)
        if not all(h in (*H, "softmax") for head in heads for h in head) or sum(map(len, heads)) != stacks[0].shape[0]:
            raise ValueError(f"layer {name}: the heads {heads} do not fit the scores")
        self.heads, self.t = heads, t

    def mixed(self, h: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shown = (h[..., self.t] == 1).unsqueeze(-2)  # the mask M
        patterns, scores = [], iter(q @ k.mT)
        for head in self.heads:
            if head == ["softmax"]:
                patterns.append(torch.softmax(next(scores).masked_fill(~shown, -torch.inf), dim=-1))
            else:
                patterns.append(math.prod(H[name](next(scores)) for name in head) * shown)
        return self.show("hook_pattern", torch.stack(patterns)) @ v

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        if instruction.scope != "demos" or context.program.causal or not instruction.scores:
            return Reason(cls.about, "a causal program, no score, or other tokens")
        names = [score.f.name for score in instruction.scores]
        if any(name not in H for name in names) or (instruction.reduce == "softmax" and names != ["identity"]):
            return Reason("no such h", names, "identity, relu, exp; identity under a softmax")
        return None

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        """Instructions with the same scores share a head."""
        program, made = context.program, list[Head]()
        for i in layer.instructions:
            names = ("softmax",) if i.reduce == "softmax" else tuple(score.f.name for score in i.scores)
            for index in family(program, i):
                scores = [score_rows(program, i, score, index) for score in i.scores]
                made.append(Head(scores, writes(program, i, index, 1.0), names))
        heads = merge(made)
        stacks = attention_stacks(heads, program.stream.d_model)
        return cls(layer.name, *stacks, heads=[list(head.functions) for head in heads], t=context.entry("t"))
