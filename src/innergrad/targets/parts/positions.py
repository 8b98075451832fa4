"""How attention tells tokens apart.

Reading tokens (mov). Lanes pos, pos2 and ns are zero on a *sink* token at the front, so its score is zero. Token p gets
-256 (j - p)^2 + 64 or more, all others -64 or less; where p must not be seen the sink is attended to: it adds nothing.
(Beyond the end of a short prompt, where p is a query, its neighbour may win: a label's token, whose x is zero.)

Sign bits. In prompts of a fixed length T, m binary signs (the lane bits) tell tokens apart: the score gets
-R (m - <bits_i, bits_s>) / 2, which is 0 for s = i and at most -R for others.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch

from innergrad.ir.options import Options
from innergrad.ir.program import Attend, Program
from innergrad.ir.stream import POSITION, Lane, Stream
from innergrad.targets.parts.base import Abilities, Context, Positions, Reason, need
from innergrad.targets.weights.rows import Pairs

MARGIN, BETA, QUERY = 64.0, 256.0, 2.0**20  # of the scores that select a token by its position


class SignBits(Positions):
    """The lane bits, which a program declares: self-selecting heads."""

    can: ClassVar[Abilities] = {
        "score": "{how}: keys and values shared, or, with the lane `bits`, on a bounded domain of own lanes"
    }

    def why_not(self, program: Program, instruction: Attend, private: list[str]) -> Reason | None:
        """Why a head cannot select its own token. private: what it reads there that differs between tokens."""
        if program.length is None or "bits" not in program.stream.by_name:
            return Reason(
                "attention reaches its own token only through shared keys and values",
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


class Sink(Positions):
    """A sink and the number of tokens: attention applies sigmoids to a token's own lanes."""

    can: ClassVar[Abilities] = {"function": "{how}, by sigmoids"}

    def prepare(self, program: Program) -> Program:
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

    def prepare(self, program: Program) -> Program:
        """What has to be told apart: single tokens, examples and the sink, a token's own lanes."""
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
        if delay <= 0:
            slope, level = 0.0, {one: -BETA * p**2 + MARGIN}
        else:  # 2 MARGIN (i - j - delay + 1/2): MARGIN or more for tokens that may see p, -MARGIN or less for others
            slope, level = 2 * MARGIN, {pos: 2 * MARGIN * P, one: -BETA * p**2 - 2 * MARGIN * (delay - 0.5)}
        hidden = ({one: -QUERY}, {context.entry("query"): 1.0})  # positions beyond a short prompt may hold queries
        return [({one: -BETA}, {pos2: P**2}), ({one: 2 * BETA * p - slope}, {pos: P}), (level, {ns: 1.0}), hidden]
