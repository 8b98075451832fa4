"""The one walk over an instruction: the meaning of ``scope``, ``reduce`` and ``where`` is decided here and nowhere
else.

    dst_i  +=  scale * reduce over s in scope(i) of  f_1(z_1) f_2(z_2) ... * value_s,    z = sum of <query_i, key_s>

:func:`added` goes through the instruction once and asks an *algebra* for every operation. The algebra's values make the
interpretation: tensors (the plain interpreter), nodes of a graph (the fused executor), affine forms and worst cases
(certificates), ranges of arguments, counts of operations. An algebra that has no answer raises an :class:`InputError`,
in a sentence.

Values have labelled axes, as in einsum: B prompts, I the token that is written, S the token that is read (the same
token with scope ``self``), and the index labels of the instruction. A value lacks the labels it does not depend on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, assert_never

import torch
from torch import Tensor

from innergrad.functions.scalar import Function, PiecewiseLinear
from innergrad.ir.program import SCOPES, Attend, Expr, Layer, Program, Score, View

V = TypeVar("V")
Token = Literal["I", "S"]
ONE: Expr = (View("one"),)


@dataclass(frozen=True)
class Seen:
    """Which tokens S are in the scope of a token I. By default all are; every field takes some away.

    lane: of those, the tokens that hold 1 in this lane. token: this one alone, unless it is a query.
    source, reader: tokens S, and tokens I, from this one on. nearest, farthest: I - S is at least, at most this.
    """

    lane: str | None = None
    token: int | None = None
    source: int = 0
    reader: int = 0
    nearest: float = -math.inf
    farthest: float = math.inf

    @property
    def reads(self) -> str | None:
        """The lane that decides, if one does."""
        return "query" if self.token is not None else self.lane

    @property
    def single(self) -> bool:
        """Whether no token sees more than one."""
        return self.token is not None or self.nearest == self.farthest

    @property
    def labels(self) -> str:
        """The axes of the mask; empty if all tokens are seen."""
        by_place = bool(self.source or self.reader) or self.nearest > -math.inf
        return ("B" if self.reads else "") + ("I" if by_place else "") + ("S" if by_place or self.reads else "")

    def mask(self, state: Mapping[str, Tensor], tokens: int) -> Tensor:
        """1 where token S is in the scope of token I, else 0; the axes are ``labels``."""
        one = state["one"]
        reader = torch.arange(tokens, device=one.device).unsqueeze(1)
        source, mask = reader.T, one.new_ones(())
        if self.lane is not None:
            mask = state[self.lane]
        if self.token is not None:
            mask = (source == self.token).to(one.dtype) * (1.0 - state["query"])
        if "I" not in self.labels:
            return mask
        near = (reader - source >= self.nearest) & (reader - source <= self.farthest)
        places = near & (source >= self.source) & (reader >= self.reader)
        return places.to(one.dtype) * (mask.unsqueeze(1) if self.reads else mask)


def seen(program: Program, i: Attend) -> Seen | None:
    """The tokens that an instruction reads; None if every token reads itself.

    In a causal program no token sees a later one. A sink reads no other token, and is read by none, except that
    ``all`` is all.
    """
    first, latest = int(program.sink), 0 if program.causal else -math.inf
    if i.scope not in SCOPES:
        if i.at is None:
            return Seen(lane=i.scope, reader=first, nearest=latest)
        token, since = i.at
        return Seen(token=token + first, reader=since + first, nearest=latest)
    scope = SCOPES[SCOPES.index(i.scope)]
    match scope:
        case "self":
            return None
        case "all":
            return Seen(nearest=latest)
        case "demos":
            return Seen(lane="t", reader=first, nearest=latest)
        case "before":
            return Seen(source=first, nearest=1)
        case "upto":
            return Seen(source=first, nearest=0)
        case "previous":
            return Seen(source=first, nearest=1, farthest=1)
        case unknown:
            assert_never(unknown)


class Algebra(ABC, Generic[V]):
    """The operations that an interpretation has to provide: eight, on values of its own kind, and which values vary."""

    @abstractmethod
    def read(self, expression: Expr, token: Token) -> V:
        """A linear combination of lane views, at the token that is written or at the tokens that are read."""

    @abstractmethod
    def product(self, factors: list[V], keep: str) -> V:
        """The product of the factors, summed over every label that is not kept."""

    @abstractmethod
    def sum(self, terms: list[V]) -> V:
        """Of at least one term."""

    @abstractmethod
    def apply(self, score: Score, argument: V, value: V | None) -> V:
        """The function of a score; value: its factor, if that is not one."""

    @abstractmethod
    def softmax(self, scores: V, mask: V | None) -> V:
        """Weights that sum to one over the tokens that the mask shows; all zero where it shows none."""

    @abstractmethod
    def mask(self, seen: Seen) -> V:
        """1 where token S is in the scope of token I, else 0."""

    @abstractmethod
    def count(self, value: V, mask: V | None, power: Literal[-1, 1]) -> V:
        """The value times, or divided by, the number of tokens that the mask shows: at least one."""

    @abstractmethod
    def scale(self, value: V, factor: float) -> V:
        """The value times a number."""

    @abstractmethod
    def varies(self, value: V) -> bool:
        """Whether the value depends on the token S."""

    def over(self, factors: list[V], keep: str, mask: V | None, mean: bool) -> V:
        """The sum, or the mean, over the tokens S that the mask shows. Where no factor depends on S, all tokens add
        the same.
        """
        factors = factors if mask is None else [*factors, mask]
        total, summed = self.product(factors, keep), any(map(self.varies, factors))
        if mean:
            return self.count(total, mask, -1) if summed else total
        return total if summed else self.count(total, mask, 1)


def added(program: Program, i: Attend, algebra: Algebra[V]) -> V:
    """The addend of the instruction to its destination, with the labels B, I and the destination's, or fewer."""
    tokens, (softmax, mean) = seen(program, i), _reduction(i)
    mask = algebra.mask(tokens) if tokens is not None and tokens.labels else None
    value = _value(i, algebra, tokens)
    factors = [] if value is None else [value]
    for score in i.scores if tokens is not None or not softmax else ():  # a softmax of one number is 1
        f = algebra.apply(score, _argument(i, score, algebra, tokens), value)
        factors.append(algebra.softmax(f, mask) if softmax else f)
    factors, keep = factors or [algebra.read(ONE, "I")], "BI" + i.family
    averages = tokens is not None and not softmax
    result = algebra.over(factors, keep, mask, mean) if averages else algebra.product(factors, keep)
    written = written_on(i)
    if written is not None:
        result = algebra.product([result, algebra.read((View(written),), "I")], keep)
    return algebra.scale(result, i.scale)


def arguments_of(
    program: Program, i: Attend, algebra: Algebra[V], chosen: Callable[[Score], bool]
) -> Iterator[tuple[Score, V, V | None]]:
    """The arguments of the chosen scores, each with the factor of its function, if that is not one."""
    tokens = seen(program, i)
    for score in filter(chosen, i.scores):
        yield score, _argument(i, score, algebra, tokens), _value(i, algebra, tokens)


def _value(i: Attend, algebra: Algebra[V], tokens: Seen | None) -> V | None:
    """None: one, beside scores."""
    return None if i.scores and i.value == ONE else algebra.read(i.value, "I" if tokens is None else "S")


def _argument(i: Attend, score: Score, algebra: Algebra[V], tokens: Seen | None) -> V:
    """z = sum over the pairs of <query_i, key_s>."""
    token: Token = "I" if tokens is None else "S"
    pairs = ([algebra.read(query, "I"), algebra.read(key, token)] for query, key in score.pairs)
    return algebra.sum([algebra.product(pair, "BIS" + i.family) for pair in pairs])


def _reduction(i: Attend) -> tuple[bool, bool]:
    """Whether the score becomes weights that sum to one, and whether the sum is divided by the number of tokens."""
    match i.reduce:
        case "sum":
            return False, False
        case "mean":
            return False, True
        case "softmax":
            return True, False
        case unknown:
            assert_never(unknown)


def written_on(i: Attend) -> str | None:
    """The lane that is 1 on the tokens that are written, and 0 on others; None if all are."""
    match i.where:
        case "all":
            return None
        case "demos":
            return "t"
        case "query":
            return "query"
        case unknown:
            assert_never(unknown)


def by_itself(i: Attend) -> bool:
    """A token reads nothing but itself, and its scores are used as they are."""
    return i.own and not _reduction(i)[0]


def maps_first(layer: Layer, functions: Mapping[str, object]) -> list[tuple[Attend, PiecewiseLinear | None]]:
    """The instructions of a layer. First come those that take a lane to g(lane) = lane + f(lane), f bent, one a lane,
    with g. So a projection is computed as such. Where f(lane) is a number minus the lane, adding it would cancel.

    functions: the approximants of the program's functions; nothing but their own pieces will do.
    """
    found, mapped = list[tuple[Attend, PiecewiseLinear | None]](), set[str]()
    for i in layer.instructions:
        f = in_place(i)
        own = pieces_of(functions[i.scores[0].f.name]) if f is not None and f.knots else None
        if own is None or i.dst.lane in mapped:
            found.append((i, None))
        else:
            found.insert(0, (i, own.plus_identity))
            mapped.add(i.dst.lane)
    return found


def pieces_of(f: object) -> PiecewiseLinear | None:
    """A piecewise-linear function, as such."""
    return f if isinstance(f, PiecewiseLinear) else f.exact if isinstance(f, Function) else None


def in_place(i: Attend) -> PiecewiseLinear | None:
    """The piecewise-linear f of an instruction that does dst += f(dst), entry by entry, and nothing else."""
    if not by_itself(i) or written_on(i) is not None or not i.dst.whole:
        return None
    if not i.scores:
        same = [view for view in i.value if (view.lane, view.index) == (i.dst.lane, i.dst.index)]
        return PiecewiseLinear((), (i.scale * same[0].coefficient,)) if len(i.value) == len(same) == 1 else None
    if len(i.scores) != 1 or i.scale != 1.0 or i.value != ONE:
        return None
    dst = (i.dst,)
    return i.scores[0].f.exact if i.scores[0].pairs in (((dst, ONE),), ((ONE, dst),)) else None
