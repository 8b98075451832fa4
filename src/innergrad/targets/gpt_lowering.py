"""How a program becomes the weights of target ``gpt``.

LayerNorm. Two pads +-N, N = 2^24, dwarf all other entries of the stream, so that LN divides by N sqrt(2 / D) whatever
the token holds; the gain multiplies it back. An entry that is always zero shows what LN subtracted, and every row that
reads subtracts it again: LN then is the identity up to |h|^2 / (4 N^2), relatively (1e-13), in float64 and in float32.
Nothing has to keep sums at zero. (The pads of 004's Lemma 6, [N, -N - sum x], err by x sum x / (2N).)

Reading tokens (mov). Lanes pos, pos2 and ns are zero on a *sink* token at the front, so its score is zero. Token p gets
-256 (j - p)^2 + 64 or more, all others -64 or less; where p must not be seen the sink is attended to: it adds nothing.
(Beyond the end of a short prompt, where p is a query, its neighbour may win: a label's token, whose x is zero.)

Products (mul). u v = ((u + v)^2 - (u - v)^2) / 4 by GeLUs of several scales (:mod:`innergrad.functions.fits.gelu`).
Their error is relative to the square of the range that lanes are declared to stay in; leaving it is an error.

Linear maps (aff). z = gelu(z) - gelu(-z), exactly.

Division (div). An attention layer multiplies a token's pads by c; LN then divides everything the MLP reads by c. In
variant ``raw`` the next attention layer sets the pads back; LN before attention would not let it see c, so in variant
``pre-ln`` the same MLP adds N (1 - c), c from a fit of 1 / t at t = 1 / c; and each MLP repairs what is left of the
error, adding N (one - 1), one as LN shows it: Newton's iteration for 1 / one = 1.

Sums over the examples with exp scores. A sink with score 40 and value zero makes softmax un-normalised ("heavy sink"):
e^40 softmax is exp up to e^-40 sum exp. A linear score is a sum of eight such heads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from innergrad.functions.fits.gelu import coarse_square, reciprocal_sum, square
from innergrad.options import Options
from innergrad.program import Attend, Layer, Program
from innergrad.prompt import POSITION
from innergrad.targets.base import Approximants, LoopedTransformer, Sublayer, looped, renamed
from innergrad.targets.gpt import FeedForward, GptAttention
from innergrad.targets.gpt_functions import COARSE, check, lane_bounds, shared
from innergrad.targets.gpt_prepare import PAD, PADS, divisor_of
from innergrad.targets.rows import (
    Head,
    Index,
    Row,
    add,
    destinations,
    entries,
    family,
    linear_form,
    merge,
    require_room,
    scaled,
    score_rows,
    stack,
    writes,
)
from innergrad.targets.units import EXACT, Algebra, Units

MARGIN, BETA, QUERY = 64.0, 256.0, 2.0**20  # of the scores that select a token by its position
SINK, NEVER = 40.0, 1024.0  # score of a heavy sink; exp(-NEVER) is zero, exactly: what a sink held would grow e^40-fold
FINEST = 1e-11  # relative error of a reciprocal


def lower(program: Program, approximants: Approximants, options: Options) -> LoopedTransformer:
    """Each layer of the program becomes exactly one attention layer or mlp. Equal layers share their matrices."""
    check(program)
    require_room(program, heads=4 * len(square()))
    built: dict[object, Sublayer] = {}

    def build(layer: Layer) -> Sublayer:
        key = layer.kind, layer.instructions
        if key not in built:
            built[key] = _Lowering(program, approximants, options).build(layer)
        return renamed(built[key], layer.name)

    return looped(program, build)


def algebra(options: Options) -> Algebra:
    if options.variant == "lookup":
        return Algebra(EXACT, ())  # relu(z) - relu(-z) = z, but no products
    scales = square() if options.epsilon < COARSE else coarse_square()
    return Algebra(EXACT, tuple((sign / s, 0.0, c) for s, c in scales for sign in (1.0, -1.0)))


class _Lowering:
    def __init__(self, program: Program, approximants: Approximants, options: Options) -> None:
        self.program, self.stream, self.approximants, self.options = program, program.stream, approximants, options
        self.one = self.stream.entry("one")
        gain = PAD * math.sqrt(2.0 / self.stream.d_model) if "zero" in self.stream.by_name else None  # None: no LN
        self.gains = {"attention": None if options.variant == "raw" else gain, "mlp": gain}
        known = lane_bounds(program, options)
        bound = np.concatenate([np.full(lane.size, known[lane.name]) for lane in self.stream.lanes])
        self.bound, self.units = bound, Units(program, bound, algebra(options))

    def build(self, layer: Layer) -> Sublayer:
        return self._mlp(layer) if layer.kind == "mlp" else self._attention(layer)

    def entry(self, lane: str) -> int:
        return self.stream.entry(lane)

    def read(self, row: Row, kind: str) -> Row:
        """The row behind a LayerNorm: minus what it subtracted, which the entry that is always zero shows."""
        if not row or self.gains[kind] is None:
            return row
        zero = self.entry("zero")
        return {**row, zero: row.get(zero, 0.0) - sum(row.values())}

    # ------------------------------------------------------------------------------------------------------ attention

    def _attention(self, layer: Layer) -> GptAttention:
        """W_V reads entries as they are, W_O combines them: what a sink's empty lanes show is then zero, exactly."""
        kind, D = "attention", self.stream.d_model
        heads = merge(head for i in layer.instructions for head in self._heads(layer, i))
        queries = [[self.read(row, kind) for row in head.query] for head in heads]
        keys = [[self.read(row, kind) for row in head.key] for head in heads]
        values = [[self.read({source: 1.0}, kind) for source in sources] for sources in self._sources(heads)]
        read = self._sources(heads)
        d_head, d_v = max(1, *map(len, queries)), max(1, *map(len, read))
        outputs = (
            (m, entry, read[m].index(source), weight)
            for m, head in enumerate(heads)
            for entry, row in head.writes.items()
            for source, weight in row.items()
        )
        return GptAttention(
            layer.name,
            stack((len(heads), d_head, D), entries(queries)),
            stack((len(heads), d_head, D), entries(keys)),
            stack((len(heads), d_v, D), entries(values)),
            stack((len(heads), D, d_v), outputs),
            gain=self.gains[kind],
            causal=self.program.causal,
        )

    def _sources(self, heads: list[Head]) -> list[list[int]]:
        """The entries that each head's values read."""
        return [sorted({entry for row in head.writes.values() for entry in row}) for head in heads]

    def _heads(self, layer: Layer, instruction: Attend) -> Iterator[Head]:
        if instruction.scope == "demos":
            yield from self._example_heads(layer, instruction)
            return
        if instruction.scores:
            yield from (self._average if instruction.scope == "all" else self._sigmoids)(instruction)
            return
        scope, pairs = instruction.scope, []
        if scope != "all" and not (scope == "self" and shared(self.program, instruction)):
            pairs = self._position(instruction)
        if scope not in ("all", "self") and not self.program.causal:  # a sink, which comes first, reads nothing
            one, ns = self.one, self.entry("ns")
            pairs = [*pairs, ({one: -NEVER, ns: NEVER}, {ns: 1.0})]
        yield Head([q for q, _ in pairs], [k for _, k in pairs], self._writes(instruction, {}, 1.0))

    def _average(self, instruction: Attend) -> Iterator[Head]:
        """Softmax over all tokens of the score."""
        for index in family(self.program, instruction):
            pairs = score_rows(self.program, instruction, instruction.scores[0], index)
            yield Head([q for q, _ in pairs], [k for _, k in pairs], self._writes(instruction, index, 1.0))

    def _sigmoids(self, instruction: Attend) -> Iterator[Head]:
        """A function of a token's own lanes: all n tokens have the score z - log n and the value 1, the sink 0 and 0:
        a head computes n e^z / n / (e^z + 1): a sigmoid.
        """
        ns, tokens = self.entry("ns"), self.entry("log_tokens")
        for index in family(self.program, instruction):
            form = linear_form(score_rows(self.program, instruction, instruction.scores[0], index), self.one)
            for a, b, c in self.approximants[instruction.scores[0].f.name].hinges:
                query = scaled(form, a)
                add(query, {self.one: b, tokens: -1.0})
                written = writes(self.program, instruction, index, c)
                yield Head([query], [{ns: 1.0}], {e: {ns: row[self.one]} for e, row in written.items()})

    def _writes(self, instruction: Attend, index: Index, weight: float) -> dict[int, Row]:
        """What a head adds; where a sink may be read, the constant is the lane that is zero on it."""
        made = writes(self.program, instruction, index, weight)
        if not self.program.sink or instruction.scope in ("all", "self"):
            return made
        ns = self.entry("ns")
        return {e: {ns if c == self.one else c: w for c, w in row.items()} for e, row in made.items()}

    def _position(self, instruction: Attend) -> list[tuple[Row, Row]]:
        """-BETA (j - p)^2 + MARGIN or more at the token p to be read, -MARGIN or less at all others, 0 at the sink."""
        one, pos, pos2, ns = self.one, *(self.entry(name) for name in ("pos", "pos2", "ns"))
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
        hidden = ({one: -QUERY}, {self.entry("query"): 1.0})  # positions beyond a short prompt may hold queries
        return [({one: -BETA}, {pos2: P**2}), ({one: 2 * BETA * p - slope}, {pos: P}), (level, {ns: 1.0}), hidden]

    def _example_heads(self, layer: Layer, instruction: Attend) -> Iterator[Head]:
        """Softmax over the examples, or sums over them of products of exponentials, by a heavy sink."""
        one, t = self.one, self.entry("t")
        for index in family(self.program, instruction):
            scores = [score_rows(self.program, instruction, score, index) for score in instruction.scores]
            if instruction.reduce == "softmax":
                pairs = [*scores[0], ({one: 1.0}, {t: NEVER, one: -NEVER})]  # 0 on examples, exactly
                yield Head([q for q, _ in pairs], [k for _, k in pairs], self._writes(instruction, index, 1.0))
                continue
            ns = self.entry("ns")
            levels = [  # 0 on examples, exactly; -NEVER on queries; SINK on the sink, which itself reads nothing
                ({one: 1.0}, {t: NEVER, ns: -NEVER}),
                ({one: 1.0}, {one: SINK, ns: -SINK}),
                ({one: -NEVER, ns: NEVER}, {t: 1.0}),
            ]
            for rates, weight in self._exponentials(instruction):
                pairs = [(scaled(q, a), k) for a, rows in zip(rates, scores, strict=True) for q, k in rows]
                pairs += levels
                weight *= math.exp(SINK)
                yield Head([q for q, _ in pairs], [k for _, k in pairs], self._writes(instruction, index, weight))

    def _exponentials(self, instruction: Attend) -> Iterator[tuple[tuple[float, ...], float]]:
        """The product of the scores' functions as a sum of weight * exp(sum of rate * score)."""
        sums = []
        for score in instruction.scores:
            f = self.approximants.get(score.f.name)
            sums.append([(1.0, 1.0)] if f is None else list(zip(f.a, f.c, strict=True)))
        for terms in itertools.product(*sums):
            yield tuple(rate for rate, _ in terms), math.prod(weight for _, weight in terms)

    # ------------------------------------------------------------------------------------------------------------ mlp

    def _mlp(self, layer: Layer) -> FeedForward:
        divisor = divisor_of(layer)
        for instruction in layer.instructions:
            if divisor is not None and instruction.dst.lane in PADS:
                self._restore(instruction, divisor)
            elif divisor is not None:
                self._divide(instruction)
            else:
                self.units.compute(instruction, self.approximants)
        if divisor is None and self.options.variant == "pre-ln" and self.stream["pad_up"].role == "state":
            self._repair()
        units, D = self.units.rows(), self.stream.d_model
        return FeedForward(
            layer.name,
            stack(
                (1, len(units), D),
                ((0, u, e, w) for u, (row, _, _) in enumerate(units) for e, w in self.read(row, "mlp").items()),
            ),
            stack((1, len(units), 1), ((0, u, 0, bias) for u, (_, bias, _) in enumerate(units))),
            stack((1, D, len(units)), ((0, e, u, w) for u, (_, _, row) in enumerate(units) for e, w in row.items())),
            gain=self.gains["mlp"],
            activation="relu" if self.options.variant == "lookup" else "gelu",
        )

    def _divide(self, instruction: Attend) -> None:
        """dst += scale value / c: LN divides by c, the pads being +-N c."""
        for entry, value in destinations(self.program, instruction, {}):
            self.units.add(entry, value, instruction.scale)

    def _restore(self, instruction: Attend, divisor: str) -> None:
        """pads += +-N (1 - c), c from a fit of 1 / t at t = one / c."""
        c, entry = self.entry(divisor), self.entry(instruction.dst.lane)
        largest, least = float(self.bound[c]), self.stream[divisor].least
        fit = reciprocal_sum(least / largest, max(self.options.epsilon / largest, FINEST))  # relative to c
        self.units.function(fit, {self.one: least}, c, entry, -instruction.scale * least)  # 1 / t = least / (least t)
        self.units.add(entry, {c: 1.0}, instruction.scale)

    def _repair(self) -> None:
        """pads += +-N (one - 1): what LN shows of the lane one is 1 / (1 + e) for pads N (1 + e)."""
        for pad, sign in PADS.items():
            for side in (1.0, -1.0):
                self.units.unit({self.one: side}, -side, self.entry(pad), side * sign * PAD)
