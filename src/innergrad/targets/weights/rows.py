"""Instructions as rows of weight matrices, which every lowering needs.

A row maps entries of the residual stream to weights. A head is made of rows of W_Q and W_K, and of its writes. A unit
of an MLP is made of a row of W_1, a bias, and its writes. Heads with the same queries and keys, and units with the same
row and bias, are one.

Products of units: u v = ((u + v)^2 - (u - v)^2) / 4, u and v scaled to the same range, and z^2 a sum of sigma
(:mod:`innergrad.functions.fits`). Their error is relative to the square of the range that lanes are declared to stay
in; leaving it is an error.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from innergrad.errors import LongRun
from innergrad.functions.fits.sigmas import Terms
from innergrad.functions.fits.sums import Approximant, FeatureSum
from innergrad.functions.scalar import NEGATION
from innergrad.ir.program import Attend, Expr, Program, Score, labels_of
from innergrad.ir.stream import Stream
from innergrad.memory import require_memory
from innergrad.targets.weights.modules import BYTES_PER_ENTRY, SparseStack, stack

Row = dict[int, float]  # a row of a weight matrix: entry of the stream -> weight
Pairs = list[tuple[Row, Row]]  # rows of Q and K
Index = Mapping[str, int]
Term = tuple[float, float, float]  # (a, b, c): c sigma(a z + b)
Unit = tuple[Row, float, Row]  # row of W_1, bias, writes
PRODUCT = 24  # rows, about: two squares of a dozen units each
SECONDS_A_TERM, A_LAYER, LONG = 1e-5, 200, 10.0  # about; terms that a layer is worth; seconds that are worth a word
SECONDS_COUNTED = 4e-5  # of a term that is listed, and not only multiplied: rows are made, compared and merged
BUILDING, COUNTING, SMALLER = "building the weights", "counting the weights", "use fewer inputs, or smaller networks"
EXACT: Terms = ((1.0, 0.0, 1.0), (-1.0, 0.0, -1.0))  # sigma(z) - sigma(-z) = z, for every z


# ---------------------------------------------------------------------------------------------------------------- rows


def add(target: Row, row: Row, factor: float = 1.0) -> None:
    for entry, weight in row.items():
        target[entry] = target.get(entry, 0.0) + factor * weight


def scaled(row: Row, factor: float) -> Row:
    return {entry: factor * weight for entry, weight in row.items()}


def row_of(stream: Stream, expression: Expr, index: Index) -> Row:
    """A linear combination of lane views, at one value of its labels."""
    row: Row = {}
    for view in expression:
        place = tuple(i if isinstance(i, int) else index[i] for i in view.index)
        add(row, {stream.entry(view.lane, place): view.coefficient})
    return row


def points(program: Program, instruction: Attend, labels: Iterable[str], index: Index) -> Iterator[dict[str, int]]:
    """Every assignment of the labels, beside those of the index."""
    sizes, labels = program.label_sizes(instruction), list(labels)
    for point in itertools.product(*(range(sizes[label]) for label in labels)):
        yield {**index, **dict(zip(labels, point, strict=True))}


def family(program: Program, instruction: Attend) -> Iterator[dict[str, int]]:
    """Every assignment of the destination's labels that the scores depend on: heads of their own for each."""
    used = {x for score in instruction.scores for pair in score.pairs for side in pair for x in labels_of(side)}
    yield from points(program, instruction, (label for label in instruction.dst.labels if label in used), {})


def score_rows(program: Program, instruction: Attend, score: Score, index: Index) -> Pairs:
    """The terms of the inner product, query row and key row: every pair at every value of its contracted labels."""
    return [
        (row_of(program.stream, query, at), row_of(program.stream, key, at))
        for query, key in score.pairs
        for at in points(program, instruction, sorted((labels_of(query) | labels_of(key)) - set(index)), index)
    ]


def linear_form(pairs: Pairs, one: int) -> Row:
    """sum of query * key, where one side of each pair is a multiple of the constant lane."""
    form: Row = {}
    for query, key in pairs:
        linear, constant = (query, key) if set(key) == {one} else (key, query)
        add(form, linear, constant[one])
    return form


def destinations(program: Program, instruction: Attend, index: Index) -> Iterator[tuple[int, Row]]:
    """For every value of the destination's remaining labels: its entry, and the row of the value, unscaled."""
    for at in points(program, instruction, (x for x in instruction.dst.labels if x not in index), index):
        place = tuple(i if isinstance(i, int) else at[i] for i in instruction.dst.index)
        yield program.stream.entry(instruction.dst.lane, place), row_of(program.stream, instruction.value, at)


def writes(program: Program, instruction: Attend, index: Index, coefficient: float) -> dict[int, Row]:
    """The addends of one head: destination entry -> row of V."""
    factor = coefficient * instruction.scale
    found = destinations(program, instruction, index) if instruction.scale else ()
    return {entry: scaled(row, factor) for entry, row in found}


def require_room(program: Program, approximants: Mapping[str, Approximant], *, counted: bool) -> None:
    """Refuses, before anything is built, a layer that would take too much memory to put together. This is an estimate,
    for targets whose weights are not ``counted`` before. A layer that will take long is announced.
    """
    pieces = {name: len(f.a) if isinstance(f, FeatureSum) else f.pieces for name, f in approximants.items()}

    def rows(i: Attend) -> int:
        return max([PRODUCT, *(pieces.get(score.f.name, 0) for score in i.scores)])

    terms = _terms(program, lambda i: rows(i) * math.prod(program.label_sizes(i).values()))
    if not counted:
        require_memory(BYTES_PER_ENTRY * 4 * terms, BUILDING, SMALLER)
    _announce(BUILDING, SECONDS_A_TERM * terms)


def require_room_to_count(program: Program) -> None:
    """The same before weights are counted: the written entries are listed, and the terms of scores, of one head of
    those that are alike.
    """

    def listed(i: Attend) -> int:
        sizes, written = program.label_sizes(i), i.dst.labels
        parts = [[size for label, size in sizes.items() if (label in written) is inside] for inside in (True, False)]
        return sum(map(math.prod, parts))

    terms = _terms(program, listed)
    require_memory(BYTES_PER_ENTRY * terms, COUNTING, SMALLER)
    _announce(COUNTING, SECONDS_COUNTED * terms)


def _terms(program: Program, of: Callable[[Attend], int]) -> int:
    """Of all instructions; layers that are equal are one, and each is some work by itself."""
    found = {(layer.kind, layer.instructions): sum(map(of, layer.instructions)) for layer in program.layers}
    return sum(found.values()) + A_LAYER * len(found)


def _announce(what: str, seconds: float) -> None:
    if seconds > LONG:
        warnings.warn(
            f"{what} will take about {seconds:.0f} s; {SMALLER}, or do without tf.module", LongRun, stacklevel=2
        )


# --------------------------------------------------------------------------------------------------------------- heads


@dataclass
class Head:
    """The writes of the head, (destination entry, row of V), and rows of Q and K for each of its scores, of which it
    multiplies functions. copies: how many heads it stands for.
    """

    scores: list[Pairs]
    writes: dict[int, Row]
    functions: tuple[str, ...] = ()
    copies: int = 1

    @property
    def key(self) -> object:
        """The common part of heads that can be one."""
        rows = ((tuple(sorted(q.items())), tuple(sorted(k.items()))) for pairs in self.scores for q, k in pairs)
        return self.functions, tuple(map(len, self.scores)), tuple(rows)


def merge(heads: Iterable[Head]) -> list[Head]:
    """Heads with the same queries and keys are one head that writes several entries."""
    merged: dict[object, Head] = {}
    for head in heads:
        kept = merged.setdefault(head.key, head)
        if kept is not head:
            for entry, row in head.writes.items():
                add(kept.writes.setdefault(entry, {}), row)
    return [head for head in merged.values() if head.writes]


def attention_stacks(
    heads: list[Head], d_model: int, read: Callable[[Row], Row] | None = None
) -> tuple[SparseStack, ...]:
    """W_Q, W_K (scores, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    read: how a row reads through a norm. W_V then reads entries as they are, and W_O combines them, so a sink's empty
    lanes show exactly zero.
    """
    scores = [pairs for head in heads for pairs in head.scores]
    values = [[(row, {entry: 1.0}) for entry, row in head.writes.items()] for head in heads]
    if read is not None:
        scores = [[(read(query), read(key)) for query, key in pairs] for pairs in scores]
        values = [[(read({e: 1.0}), column) for e, column in _columns(head.writes)] for head in heads]

    def tall(matrices: list[list[Row]]) -> SparseStack:
        rows = ((m, r, c, w) for m, head in enumerate(matrices) for r, row in enumerate(head) for c, w in row.items())
        return stack((len(matrices), max([1, *map(len, matrices)]), d_model), rows)

    W_Q, W_K = (tall([[pair[side] for pair in pairs] for pairs in scores]) for side in (0, 1))
    W_V = tall([[row for row, _ in head] for head in values])
    out = ((m, e, r, w) for m, head in enumerate(values) for r, (_, to) in enumerate(head) for e, w in to.items())
    return W_Q, W_K, W_V, stack((len(heads), d_model, W_V.shape[1]), out)


def _columns(rows: Mapping[int, Row]) -> list[tuple[int, Row]]:
    """The matrix of these rows by its columns."""
    columns: dict[int, Row] = {}
    for entry, row in rows.items():
        for source, weight in row.items():
            columns.setdefault(source, {})[entry] = weight
    return sorted(columns.items())


# --------------------------------------------------------------------------------------------------------------- units


@dataclass(frozen=True)
class Algebra:
    """t and t^2 for |t| <= 1 as sums of sigma; ``linear`` is EXACT where it holds for every t."""

    linear: Terms
    square: Terms


class Units:
    """The units of one MLP, instruction by instruction: functions, products and linear maps as sums of one sigma.

    bound: the range of every entry of the stream; one: the entry that holds 1.
    """

    def __init__(self, program: Program, bound: np.ndarray, algebra: Algebra) -> None:
        self.program, self.bound, self.algebra = program, bound, algebra
        self.one = program.stream.entry("one")
        self.units: dict[tuple[tuple[tuple[int, float], ...], float], Row] = {}
        self.linear: dict[int, Row] = {}

    def rows(self) -> list[Unit]:
        for entry, row in self.linear.items():
            R = 1.0 if self.algebra.linear is EXACT else self.range(row)
            self.sum(self.algebra.linear if R else (), row, entry, R=R, power=1)
        self.linear = {}
        return [(dict(items), bias, row) for (items, bias), row in self.units.items() if any(row.values())]

    def range(self, row: Row) -> float:
        return sum(abs(weight) * float(self.bound[entry]) for entry, weight in row.items())

    def unit(self, row: Row, bias: float, entry: int, weight: float) -> None:
        key = tuple(sorted((e, w) for e, w in row.items() if w)), bias
        add(self.units.setdefault(key, {}), {entry: weight})

    def sum(
        self, terms: Iterable[Term], z: Row, entry: int, scale: float = 1.0, R: float = 1.0, power: int = 0
    ) -> None:
        """dst += scale R^power sum of c sigma(a z / R + b); with the terms of z^power, that is scale z^power."""
        for a, b, c in terms:
            self.unit(scaled(z, a / R), b, entry, scale * c * R**power)

    def add(self, entry: int, row: Row, factor: float) -> None:
        """dst += factor * row."""
        add(self.linear.setdefault(entry, {}), row, factor)

    def compute(self, instruction: Attend, approximants: Mapping[str, Approximant]) -> None:
        """dst += scale f(linear form), scale u v, or scale (linear form)."""
        one, scale = self.one, instruction.scale
        for index in family(self.program, instruction):
            pairs = [score_rows(self.program, instruction, score, index) for score in instruction.scores]
            for entry, value in destinations(self.program, instruction, index):
                if not pairs:
                    self.add(entry, value, scale)
                    continue
                f, terms = instruction.scores[0].f, pairs[0]
                sign = -scale if f == NEGATION else scale
                if f.name in approximants:
                    self.function(approximants[f.name], linear_form(terms, one), one, entry, scale)
                elif set(value) == {one}:
                    for u, v in terms:
                        self.multiply(u, v, entry, sign * value[one])
                else:
                    self.multiply(linear_form(terms, one), value, entry, sign)

    def function(self, f: Approximant, form: Row, one: int, entry: int, scale: float) -> None:
        """dst += scale f(form); one: the entry that reads 1."""
        if isinstance(f, FeatureSum):
            for row, factor in ((form, f.slope), ({one: 1.0}, f.constant)):
                if factor:
                    self.add(entry, row, scale * factor)
        terms = zip(f.a, f.b, f.c, strict=True) if isinstance(f, FeatureSum) else f.hinges.tolist()
        self.sum(terms, form, entry, scale)

    def multiply(self, u: Row, v: Row, entry: int, scale: float) -> None:
        """dst += scale u v; linear if one factor is a constant."""
        for a, b in ((u, v), (v, u)):
            if set(a) == {self.one}:
                self.add(entry, b, scale * a[self.one])
                return
        R_u, R_v = self.range(u), self.range(v)
        if u == v:
            self.sum(self.algebra.square, u, entry, scale, R_u, power=2)
        elif R_u and R_v:
            balance = 2.0 ** round(math.log2(R_v / R_u) / 2)
            for sign in (1.0, -1.0):
                z = scaled(u, balance)
                add(z, v, sign / balance)
                self.sum(self.algebra.square, z, entry, sign * scale / 4, R_u * balance + R_v / balance, power=2)
