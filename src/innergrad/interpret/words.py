"""An instruction as a sentence: one more algebra of the walk, whose values are phrases.

    p1 += tanh(V1·x + b1)
    V1 += −0.05 × the mean over all tokens of s1ₛ xₛᵀ
    clear p1

A phrase knows its parts: the lanes that are read, and its index labels, which tell a matrix product (·) from an
entry-by-entry one (⊙) and from an outer one (ᵀ). A small s marks values that are read at other tokens than the written
one. Values that all tokens share do not need it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from innergrad.functions.scalar import IDENTITY, NEGATION
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place, written_on
from innergrad.ir.program import Attend, Expr, Program, Score, View

ATOM, PRODUCT, SUM = range(3)  # how a phrase is put together, and so which parts need brackets
OTHER, TIMES, MINUS = "ₛ", "·", "\u2212"
WRITTEN = {"t": "on the examples: ", "query": "on the queries: "}
NUMBERS = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class Phrase:
    """A value in words. labels: its axes; lanes: its sources; over: the tokens it is taken over; weights: of a softmax,
    its scores; mean: divided by the number of tokens.
    """

    text: str = ""
    made: int = ATOM
    labels: frozenset[str] = frozenset()
    lanes: frozenset[str] = frozenset()
    other: bool = False
    over: str = ""
    weights: str = ""
    mean: bool = False

    @property
    def inside(self) -> str:
        """As a factor of a matrix product."""
        return f"({self.text})" if self.made == SUM else self.text

    @property
    def bracketed(self) -> str:
        """As a factor of any other."""
        return self.text if self.made == ATOM else f"({self.text})"


@dataclass(frozen=True)
class Sentence:
    """An instruction in words. verb: for an operation on a lane by itself, e.g. "clear"; else empty.

    form: the same without numbers, which tells whether two sentences say the same of other lanes.
    """

    text: str
    writes: str
    reads: tuple[str, ...]
    verb: str = ""

    @property
    def form(self) -> str:
        return NUMBERS.sub("#", self.text)


def sentence(program: Program, i: Attend) -> Sentence:
    """The instruction in words, with the lanes it reads and the one it writes."""
    said = added(program, i, Words(program, i))
    reads = tuple(lane.name for lane in program.stream.lanes if lane.name in said.lanes)
    f = in_place(i)
    if f is not None:
        name = i.scores[0].f.name.removesuffix("-identity") if i.scores else "linear"
        verb = "clear" if not f.knots and f.slopes == (-1.0,) else f"{name} of" if f.knots else ""
        if verb:
            return Sentence(f"{verb} {i.dst.lane}", i.dst.lane, reads, verb)
    on = WRITTEN.get(written_on(i) or "", "")
    return Sentence(f"{on}{_view(i.dst)} += {_whole(said)}", i.dst.lane, reads)


def _whole(said: Phrase) -> str:
    """With the tokens it is taken over; a number in front stays in front."""
    number, _, rest = said.text.rpartition(" × ")
    scale = f"{number} × " if number else ""
    text = rest or "1"
    if said.weights:
        return f"{scale}the average of {text} over {said.over}, weighted by softmax({said.weights})"
    if not said.other:
        return f"{scale}{text}"
    over = said.over or "all tokens"
    if over.startswith("token ") or over == "the token before":
        return f"{scale}{text.replace(OTHER, '')} of {over}"
    return f"{scale}the {'mean' if said.mean else 'sum'} over {over} of {text}"


@dataclass(frozen=True)
class Words(Algebra[Phrase]):
    """Phrases of one instruction of a program."""

    program: Program
    i: Attend

    def read(self, expression: Expr, token: Token) -> Phrase:
        lanes = frozenset(view.lane for view in expression if view.lane != "one")
        labels = frozenset(label for view in expression for label in view.labels)
        if expression == (View(written_on(self.i) or ""),):
            return Phrase("", lanes=lanes)  # said in front
        terms = [(view.coefficient, self._read(view, token)) for view in expression]
        text = "".join(_signed(c, word, first=not n) for n, (c, word) in enumerate(terms))
        other = token == "S" and any(not self.program.stream[view.lane].shared for view in expression)
        made = SUM if len(terms) > 1 else PRODUCT if terms[0][0] != 1.0 and terms[0][1] else ATOM
        return Phrase("" if text == "1" else text, made, labels, lanes, other)

    def _read(self, view: View, token: Token) -> str:
        if view.lane == "one":
            return ""
        at = OTHER if token == "S" and not self.program.stream[view.lane].shared else ""
        kept = [label in self.i.family for label in view.labels]
        across = "ᵀ" if kept == [False, True] else ""  # rows are summed over, columns stay
        return _view(view) + at + across

    def product(self, factors: list[Phrase], keep: str) -> Phrase:
        found = factors[0]
        for factor in factors[1:]:
            found = _times(found, factor, keep, self.i.family)
        return replace(found, labels=found.labels & frozenset(keep))

    def sum(self, terms: list[Phrase]) -> Phrase:
        text = " + ".join(term.text or "1" for term in terms).replace(f"+ {MINUS}", f"{MINUS} ")
        return replace(_joined(terms), text=text, made=SUM if len(terms) > 1 else terms[0].made)

    def apply(self, score: Score, argument: Phrase, value: Phrase | None) -> Phrase:
        del value
        if score.f == IDENTITY:
            return argument
        if score.f == NEGATION:
            return replace(argument, text=f"{MINUS}{argument.inside}", made=PRODUCT)
        name = score.f.name.replace("'", "′")
        return replace(argument, text=f"{name}({argument.text or '1'})", made=ATOM)

    def softmax(self, scores: Phrase, mask: Phrase | None) -> Phrase:
        seen = mask or Phrase(over="all tokens")
        return Phrase("", ATOM, scores.labels, scores.lanes | seen.lanes, True, seen.over, scores.text)

    def mask(self, seen: Seen) -> Phrase:
        return Phrase(lanes=frozenset(filter(None, [seen.reads])), over=_tokens(seen, self.program.sink), other=True)

    def count(self, value: Phrase, mask: Phrase | None, power: Literal[-1, 1]) -> Phrase:
        return replace(value, mean=power == -1, other=True)

    def scale(self, value: Phrase, factor: float) -> Phrase:
        if factor == 1.0:
            return value
        if factor == -1.0 and value.text and not value.other:
            return replace(value, text=f"{MINUS}{value.inside}", made=PRODUCT)
        if value.text or value.other:
            return replace(value, text=f"{_number(factor)} × {value.inside or '1'}", made=PRODUCT)
        return replace(value, text=_number(factor))

    def varies(self, value: Phrase) -> bool:
        return value.other


def _times(a: Phrase, b: Phrase, keep: str, family: str) -> Phrase:
    """Two factors: a number before a vector, a matrix before its vector, and of an outer product the rows first."""
    both = _joined([a, b])
    if not a.text or not b.text:
        one = a if a.text else b
        return replace(both, text=one.text, made=one.made)
    summed, apart = (a.labels & b.labels) - frozenset(keep), not a.labels & b.labels
    if summed:
        a, b = sorted((a, b), key=lambda part: -len(part.labels))
        text = f"{a.inside}{TIMES}{_turned(b) if len(b.labels) > 1 else b.inside}"
    elif apart and a.labels and b.labels:
        a, b = sorted((a, b), key=lambda part: min(map(family.find, part.labels)))
        text = f"{a.inside} {b.bracketed}ᵀ"
    elif apart:
        a, b = sorted((a, b), key=lambda part: len(part.labels))
        text = f"{a.bracketed} {b.bracketed}"
    else:
        text = f"{a.bracketed} ⊙ {b.bracketed}"
    return replace(both, text=text, made=PRODUCT)


def _turned(matrix: Phrase) -> str:
    """A matrix on the right of a product. The sum is over its rows, so the other factor is the transposed one."""
    text = matrix.inside
    return text.removesuffix("ᵀ") if text.endswith("ᵀ") else f"{text}ᵀ"


def _joined(parts: Iterable[Phrase]) -> Phrase:
    """Everything but the text."""
    found = Phrase()
    for part in parts:
        found = Phrase(
            "",
            ATOM,
            found.labels | part.labels,
            found.lanes | part.lanes,
            found.other or part.other,
            found.over or part.over,
            found.weights or part.weights,
            found.mean or part.mean,
        )
    return found


def _tokens(seen: Seen, sink: bool) -> str:
    """Which tokens are read."""
    if seen.token is not None:
        return f"token {seen.token - int(sink) + 1}"
    if seen.nearest == seen.farthest:
        return "the token before"
    if seen.lane is not None:
        so_far = " so far" if seen.nearest == 0 else ""
        return ("the examples" if seen.lane == "t" else f"the tokens with {seen.lane} = 1") + so_far
    return {1: "the tokens before", 0: "the tokens so far"}.get(int(max(seen.nearest, -1)), "all tokens")


def _view(view: View) -> str:
    """The lane, with the places of the entries it is about; labels range over all."""
    numbers = [str(entry) for entry in view.index if isinstance(entry, int)]
    return view.lane + (f"[{','.join(numbers)}]" if numbers else "")


def _signed(coefficient: float, word: str, *, first: bool) -> str:
    size = abs(coefficient)
    body = f"{_number(size)} {word}".strip() if size != 1.0 or not word else word
    sign = MINUS if coefficient < 0 else ""
    return f"{sign}{body}" if first else f" {sign or '+'} {body}"


def _number(value: float) -> str:
    """Short; a power of two that is large or small as such."""
    power = math.log2(abs(value)) if value else 0.0
    if abs(power) >= 10 and power == round(power):
        text = f"2^{power:.0f}"
        return f"{MINUS}{text}" if value < 0 else text.replace("-", MINUS)
    return f"{value:.3g}".replace("-", MINUS)
