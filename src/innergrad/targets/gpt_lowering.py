"""How a program becomes the weights of target ``gpt``.

LayerNorm. Two pads +-N, N = 2^24, dwarf all other entries of the stream, so that LN divides by N sqrt(2 / D) whatever
the token holds; the gain multiplies it back. An entry that is always zero shows what LN subtracted, and every row that
reads subtracts it again: LN then is the identity up to |h|^2 / (4 N^2), relatively (1e-13), in float64 and in float32.
Nothing has to keep sums at zero. (The pads of 004's Lemma 6, [N, -N - sum x], err by x sum x / (2N).)

Reading tokens (mov). Lanes pos, pos2 and ns are zero on a *sink* token at the front, so its score is zero. Token p gets
-256 (j - p)^2 + 64 or more, all others -64 or less; where p must not be seen the sink is attended to: it adds nothing.
(Beyond the end of a short prompt, where p is a query, its neighbour may win: a label's token, whose x is zero.)

Products (mul). u v = ((u + v)^2 - (u - v)^2) / 4 by GeLUs of several scales (:mod:`innergrad.functions.dictionaries`).
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

from innergrad.functions.dictionaries import FeatureSum, coarse_square, reciprocal_sum, square
from innergrad.functions.scalar import NEGATION
from innergrad.options import Options
from innergrad.program import Attend, Layer, Program
from innergrad.prompt import POSITION
from innergrad.targets.base import Approximants, LoopedTransformer, Sublayer, looped, renamed
from innergrad.targets.gpt import GeluMlp, GptAttention
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


class _Lowering:
    def __init__(self, program: Program, approximants: Approximants, options: Options) -> None:
        self.program, self.stream, self.approximants, self.options = program, program.stream, approximants, options
        self.one, self.zero = self.stream.entry("one"), self.stream.entry("zero")
        self.gain = PAD * math.sqrt(2.0 / self.stream.d_model)
        known = lane_bounds(program, options)
        self.bound = np.concatenate([np.full(lane.size, known[lane.name]) for lane in self.stream.lanes])
        self.units: dict[tuple[tuple[tuple[int, float], ...], float], Row] = {}
        self.linear: dict[int, Row] = {}

    def build(self, layer: Layer) -> Sublayer:
        return self._mlp(layer) if layer.kind == "mlp" else self._attention(layer)

    def entry(self, lane: str) -> int:
        return self.stream.entry(lane)

    def read(self, row: Row) -> Row:
        """The row behind a LayerNorm: minus what it subtracted, which the entry that is always zero shows."""
        return {**row, self.zero: row.get(self.zero, 0.0) - sum(row.values())} if row else row

    # ------------------------------------------------------------------------------------------------------ attention

    def _attention(self, layer: Layer) -> GptAttention:
        """W_V reads entries as they are, W_O combines them: what a sink's empty lanes show is then zero, exactly."""
        gain, D = (None if self.options.variant == "raw" else self.gain), self.stream.d_model
        heads = merge(head for i in layer.instructions for head in self._heads(layer, i))
        known = self.read if gain is not None else dict
        queries = [[known(row) for row in head.query] for head in heads]
        keys = [[known(row) for row in head.key] for head in heads]
        read = [sorted({entry for row in head.writes.values() for entry in row}) for head in heads]
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
            stack((len(heads), d_v, D), entries([[known({source: 1.0}) for source in sources] for sources in read])),
            stack((len(heads), D, d_v), outputs),
            gain=gain,
            causal=self.program.causal,
        )

    def _heads(self, layer: Layer, instruction: Attend) -> Iterator[Head]:
        if instruction.scope == "demos":
            yield from self._example_heads(layer, instruction)
            return
        scope, pairs = instruction.scope, []
        if scope != "all" and not (scope == "self" and shared(self.program, instruction)):
            pairs = self._position(instruction)
        if scope not in ("all", "self") and not self.program.causal:  # a sink, which comes first, reads nothing
            one, ns = self.one, self.entry("ns")
            pairs = [*pairs, ({one: -NEVER, ns: NEVER}, {ns: 1.0})]
        yield Head([q for q, _ in pairs], [k for _, k in pairs], self._writes(instruction, {}, 1.0))

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

    def _mlp(self, layer: Layer) -> GeluMlp:
        divisor = divisor_of(layer)
        for instruction in layer.instructions:
            if divisor is not None and instruction.dst.lane in PADS:
                self._restore(instruction, divisor)
            elif divisor is not None:
                self._divide(instruction)
            else:
                self._compute(instruction)
        if divisor is None and self.options.variant == "pre-ln" and self.stream["pad_up"].role == "state":
            self._repair()
        for entry, row in self.linear.items():
            self._unit(row, 0.0, entry, 1.0)
            self._unit(scaled(row, -1.0), 0.0, entry, -1.0)
        units, D = [(key, row) for key, row in self.units.items() if any(row.values())], self.stream.d_model
        rows = [self.read(dict(items)) for (items, _), _ in units]
        return GeluMlp(
            layer.name,
            stack((1, len(units), D), ((0, u, e, w) for u, row in enumerate(rows) for e, w in row.items())),
            stack((1, len(units), 1), ((0, u, 0, bias) for u, ((_, bias), _) in enumerate(units))),
            stack((1, D, len(units)), ((0, e, u, w) for u, (_, row) in enumerate(units) for e, w in row.items())),
            gain=self.gain,
        )

    def _unit(self, row: Row, bias: float, entry: int, weight: float) -> None:
        key = tuple(sorted((e, w) for e, w in row.items() if w)), bias
        written = self.units.setdefault(key, {})
        written[entry] = written.get(entry, 0.0) + weight

    def _add(self, entry: int, row: Row, factor: float) -> None:
        add(self.linear.setdefault(entry, {}), row, factor)

    def _compute(self, instruction: Attend) -> None:
        """dst += scale f(linear form), scale u v, or scale (linear form)."""
        for index in family(self.program, instruction):
            pairs = [score_rows(self.program, instruction, score, index) for score in instruction.scores]
            for entry, value in destinations(self.program, instruction, index):
                if not pairs:
                    self._add(entry, value, instruction.scale)
                    continue
                f, terms = instruction.scores[0].f, pairs[0]
                fitted = self.approximants.get(f.name)
                if fitted is not None:
                    self._function(fitted, linear_form(terms, self.one), self.one, entry, instruction.scale)
                    continue
                scale = -instruction.scale if f == NEGATION else instruction.scale
                if set(value) == {self.one}:
                    for u, v in terms:
                        self._multiply(u, v, entry, scale * value[self.one])
                else:
                    self._multiply(linear_form(terms, self.one), value, entry, scale)

    def _function(self, f: FeatureSum, form: Row, one: int, entry: int, scale: float) -> None:
        """dst += scale f(form); one: the entry that reads 1."""
        self._add(entry, form, scale * f.slope)
        self._add(entry, {one: 1.0}, scale * f.constant)
        for a, b, c in zip(f.a, f.b, f.c, strict=True):
            self._unit(scaled(form, a), b, entry, scale * c)

    def _multiply(self, u: Row, v: Row, entry: int, scale: float) -> None:
        """dst += scale u v; linear if one factor is a constant."""
        for a, b in ((u, v), (v, u)):
            if set(a) == {self.one}:
                self._add(entry, b, scale * a[self.one])
                return
        R_u, R_v = (sum(abs(w) * float(self.bound[e]) for e, w in row.items()) for row in (u, v))
        if u == v:
            self._square(u, R_u, entry, scale)
        elif R_u and R_v:
            balance = 2.0 ** round(math.log2(R_v / R_u) / 2)
            for sign in (1.0, -1.0):
                z = scaled(u, balance)
                add(z, v, sign / balance)
                self._square(z, R_u * balance + R_v / balance, entry, sign * scale / 4)

    def _square(self, z: Row, R: float, entry: int, scale: float) -> None:
        """dst += scale z^2 for |z| <= R."""
        for s, c in square() if self.options.epsilon < COARSE else coarse_square():
            for sign in (1.0, -1.0):
                self._unit(scaled(z, sign / (s * R)), 0.0, entry, scale * c * R**2)

    def _divide(self, instruction: Attend) -> None:
        """dst += scale value / c: LN divides by c, the pads being +-N c."""
        for entry, value in destinations(self.program, instruction, {}):
            self._add(entry, value, instruction.scale)

    def _restore(self, instruction: Attend, divisor: str) -> None:
        """pads += +-N (1 - c), c from a fit of 1 / t at t = one / c."""
        c, entry = self.entry(divisor), self.entry(instruction.dst.lane)
        largest, least = float(self.bound[c]), self.stream[divisor].least
        fit = reciprocal_sum(least / largest, max(self.options.epsilon / largest, FINEST))  # relative to c
        self._function(fit, {self.one: least}, c, entry, -instruction.scale * least)  # 1 / t = least / (least t)
        self._add(entry, {c: 1.0}, instruction.scale)

    def _repair(self) -> None:
        """pads += +-N (one - 1): what LN shows of the lane one is 1 / (1 + e) for pads N (1 + e)."""
        for pad, sign in PADS.items():
            for side in (1.0, -1.0):
                self._unit({self.one: side}, -side, self.entry(pad), side * sign * PAD)
