"""The worst-case interpreter: how far one pass can be from the algorithm, for every input of a bounded domain.

It runs beside no values at all. For every lane it carries two bounds (:class:`Known`) that hold at every token of every
admissible prompt. One is on the *size* of the lane, in the transformer and in the algorithm. The other is on the
*error*, the difference of the two. Each is a bound on the entries and on the Euclidean norm (:class:`Bound`); neither
follows from the other, so both are carried, and each is tightened by the other.

    a b                 |ab|     <= |a| |b|;  sums over labels also by Cauchy-Schwarz: |<a, b>| <= ||a|| ||b||
                        |d(ab)|  <= |a| |db| + |da| |b|                     (|a|, |b| bound both runs: no second order)
    f(z)                |df|     <= eps_f + min(L_f |dz|, sup f - inf f)     sup and inf over |z| <= its bound
    lane += f(lane)     together: t + f(t) has its own Lipschitz constant (a projection enlarges no error)
    mean over tokens    <= the largest; a lane with one factor omega is bounded per unit of omega, whose mean is one
    anything            |d| <= 2 |size|

Where the algorithm is compared with itself, started from other weights, there are no approximants and no caps. Rounding
is not included: these are statements about exact arithmetic.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate, pairwise
from typing import Literal

import torch

from innergrad.errors import InputError
from innergrad.functions.facts import proven
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import Function, PiecewiseLinear
from innergrad.interpret.plain import Labelled, contract
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place
from innergrad.ir.program import Expr, Layer, Program, Score, View
from innergrad.ir.stream import Lane

AXES = "ABCD"  # labels of a lane's own axes
TINY = 1e-100  # a change of the weights so small that only first order is left of its effect


@dataclass(frozen=True)
class Bound:
    """|entry| of a labelled quantity, entry by entry, and its Euclidean norm."""

    entry: Labelled
    norm: float

    @classmethod
    def tight(cls, entry: Labelled, norm: float) -> Bound:
        """The bounds on the entries and on the norm, each tightened by the other. Unknown (nan) is infinite."""
        known = entry.map(lambda tensor: torch.nan_to_num(tensor, nan=math.inf, posinf=math.inf))
        norm = min(float(known.tensor.norm()), math.inf if math.isnan(norm) else norm)
        return cls(known.map(lambda tensor: tensor.clamp(max=norm)), norm)

    @property
    def size(self) -> int:
        return self.entry.tensor.numel()

    @property
    def largest(self) -> float:
        return float(self.entry.tensor.max())

    def rows(self, kept: str) -> Labelled:
        """Norms over all labels but the kept ones."""
        return contract([self.entry.map(torch.square)], kept).map(lambda squares: squares.sqrt().clamp(max=self.norm))

    def filled(self, value: float) -> Bound:
        """Every entry at most this."""
        return Bound(self.entry.map(lambda tensor: torch.full_like(tensor, value)), value * math.sqrt(self.size))

    def __add__(self, other: Bound) -> Bound:
        """Triangle inequality; a label that one of them lacks repeats its entries."""
        entry = self.entry + other.entry
        return Bound.tight(entry, sum(a.norm * math.sqrt(entry.tensor.numel() / a.size) for a in (self, other)))

    def __and__(self, other: Bound) -> Bound:
        """Both hold; of the same labels."""
        labels = self.entry.labels
        entry = self.entry.tensor.minimum(other.entry.aligned(labels))
        return Bound.tight(Labelled(entry, labels), min(self.norm, other.norm))

    def scaled(self, factor: float) -> Bound:
        """By the absolute value; zero times anything is zero."""
        entry = self.entry.map(lambda tensor: torch.where(tensor > 0.0, abs(factor) * tensor, 0.0))
        return Bound(entry, _product(abs(factor), self.norm)) if factor else self.filled(0.0)

    def times(self, other: Bound, keep: str) -> Bound:
        """The product, summed over the labels that are not kept.

        With C the kept labels of both: ||ab||^2 <= sum over C of ||a_C||^2 ||b_C||^2 <= max ||a_C||^2 ||b||^2.
        """
        plain = contract([self.entry, other.entry], keep)
        by_rows = contract([self.rows(keep), other.rows(keep)], keep)
        common = "".join(label for label in keep if label in self.entry.labels and label in other.entry.labels)
        pairs = ((self, other), (other, self))
        norm = min(_product(float(a.rows(common).tensor.max()), b.norm) for a, b in pairs)
        return Bound.tight(Labelled(plain.tensor.minimum(by_rows.aligned(plain.labels)), plain.labels), norm)


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0.0 or b == 0.0 else a * b


@dataclass(frozen=True)
class Known:
    """Bounds on the size, in both runs, and on the error, times the weights omega of some tokens: one letter I or S for
    each factor.
    """

    size: Bound
    error: Bound
    weights: str = ""

    def each(self, change: Callable[[Bound], Bound]) -> Known:
        return replace(self, size=change(self.size), error=change(self.error))

    def plus(self, other: Known, what: str) -> Known:
        if self.weights != other.weights and self.size.norm and other.size.norm:
            raise InputError(f"{what} adds a value that omega weights to one that it does not")
        weights = self.weights if self.size.norm else other.weights
        return Known(self.size + other.size, self.error + other.error, weights)

    def times(self, other: Known, keep: str) -> Known:
        """|d(ab)| <= |a| |db| + |da| |b|."""
        error = other.size.times(self.error, keep) + other.error.times(self.size, keep)
        return Known(other.size.times(self.size, keep), error, self.weights + other.weights)


class Worst(Algebra[Known]):
    """The bounds of all lanes, layer by layer. As an algebra its values hold at every token, and have no axes of
    tokens.

    sizes: (largest entry, largest norm) of input lanes whose bound the program does not declare, e.g. x and y.
    changes: the addends of the instructions so far to each lane, apart from changes in place.
    jumps: functions whose approximants are only known to stay in the function's range.
    moved: compare the algorithm with itself, started from weights that differ, in this lane, by TINY in norm.
    """

    def __init__(
        self,
        program: Program,
        approximants: Mapping[str, Approximant],
        sizes: Mapping[str, tuple[float, float]],
        *,
        moved: str | None = None,
    ) -> None:
        self.program, self.approximants, self.exact = program, approximants, moved is not None
        self.lanes = {lane.name: _start(lane, sizes.get(lane.name)) for lane in program.stream.lanes}
        self.changes = {name: known.each(lambda bound: bound.filled(0.0)) for name, known in self.lanes.items()}
        self.jumps, self.name = set[str](), ""  # of the layer
        if moved is not None:
            size = self.lanes[moved].size
            self.lanes[moved] = Known(size, Bound.tight(size.filled(TINY).entry, TINY))

    def cap(self, lanes: Iterable[str]) -> None:
        """Both runs stay within the size of these lanes, e.g. in a box."""
        for lane in lanes:
            self.lanes[lane] = self._capped(self.lanes[lane])

    def layer(self, layer: Layer) -> None:
        """All instructions read the lanes before the layer; then all add."""
        self.name, inner, changes = layer.name, dict[str, list[PiecewiseLinear]](), list[tuple[View, Known]]()
        for i in layer.instructions:
            own = in_place(i)
            if own is None:
                changes.append((i.dst, self._capped(added(self.program, i, self))))
            else:
                inner.setdefault(i.dst.lane, []).append(own)
        self.lanes.update({lane: _transformed(self.lanes[lane], functions) for lane, functions in inner.items()})
        for dst, change in changes:
            shape, what = self.program.stream[dst.lane].shape, f"layer {self.name}: {dst.lane}"
            whole = change.each(partial(_placed, shape, dst))
            self.lanes[dst.lane] = self.lanes[dst.lane].plus(whole, what)
            self.changes[dst.lane] = self.changes[dst.lane].plus(whole, what)
        self.cap(lane.name for lane in self.program.stream.lanes if lane.role == "scratch")

    def _capped(self, a: Known) -> Known:
        """Neither run is larger than its size, so they are no farther apart than twice that."""
        return a if self.exact else replace(a, error=a.error & a.size.scaled(2.0))

    # -------------------------------------------------------------------------------------------------- one instruction

    def read(self, expression: Expr, token: Token) -> Known:
        return self.sum([self._view(view, token) for view in expression])

    def _view(self, view: View, token: Token) -> Known:
        lane = self.lanes[view.lane].each(partial(_viewed, view))
        return self.scale(replace(lane, weights=token * len(lane.weights)), view.coefficient)

    def product(self, factors: list[Known], keep: str) -> Known:
        return reduce(lambda a, b: a.times(b, keep), factors)

    def sum(self, terms: list[Known]) -> Known:
        return reduce(lambda a, b: a.plus(b, f"layer {self.name}: a sum"), terms)

    def apply(self, score: Score, argument: Known, value: Known | None) -> Known:
        f, z = score.f, argument
        if f.exact is not None and not f.exact.knots and f.exact.value == f.exact.anchor == 0.0:  # linear
            return self.scale(z, f.exact.slopes[0])
        if z.weights:
            raise InputError(f"layer {self.name}: {f.name} of a weighted example", allowed="linear functions of omega")
        approximant = self.approximants.get(f.name)
        if approximant is None and not self.exact:
            raise InputError(f"layer {self.name}: {f.name} has no approximant with a proven error")
        f, jumps = proven(f), bool(approximant and approximant.ramps)
        epsilon = 0.0 if approximant is None or jumps else approximant.error
        low, high = _range(f, approximant, epsilon, z.size.largest)
        at_zero = abs(float(f(torch.zeros((), dtype=torch.float64)))) + epsilon
        largest = z.size.filled(min(max(abs(low), abs(high)), f.bound + epsilon))
        norm = math.sqrt(z.size.size) * at_zero + _product(f.lipschitz, z.size.norm)
        size, drift, swing = Bound.tight(largest.entry, norm), z.error.scaled(f.lipschitz), z.size.filled(high - low)
        if self.exact:
            return Known(size, drift)
        if jumps:
            self.jumps.add(f.name)
            return Known(size, swing)
        return Known(size, (drift & swing) + z.size.filled(epsilon + f.rounded))

    def softmax(self, scores: Known, mask: Known | None) -> Known:
        raise self._refused("a softmax")

    def mask(self, seen: Seen) -> Known:
        raise self._refused("a scope of some tokens")

    def count(self, value: Known, mask: Known | None, power: Literal[-1, 1]) -> Known:
        raise self._refused("a number of tokens")

    def scale(self, value: Known, factor: float) -> Known:
        return value.each(lambda bound: bound.scaled(factor))

    def varies(self, value: Known) -> bool:
        return "S" in value.weights

    def over(self, factors: list[Known], keep: str, mask: Known | None, mean: bool) -> Known:
        """A mean is at most the largest. So is one of values with the weight omega_S as a factor, as omega's mean is
        one.
        """
        found = self.product(factors, keep)
        if not mean:
            raise self._refused("a sum over tokens")
        if found.weights not in ("", "S"):
            raise InputError(
                f"layer {self.name}: the values of a mean are weighted by their own token's omega once at most",
                got=f"{len(found.weights)} weights",
            )
        return Known(found.size, found.error)

    def _refused(self, got: str) -> InputError:
        return InputError(
            f"layer {self.name}: no bound is known for this instruction",
            got=got,
            allowed="operations of a token by itself, or the mean over all, in programs that are not causal",
        )


def _start(lane: Lane, given: tuple[float, float] | None) -> Known:
    """Before the first layer: as large as declared, the same in both runs."""
    weights = "I" if lane.name == "omega" else ""
    filled = lane.role == "scratch" or (lane.role == "state" and math.isinf(lane.bound))
    largest = abs(lane.fill) if filled else lane.bound
    entry, norm = (1.0, 1.0) if weights else given or (largest, largest * math.sqrt(lane.size))
    if not math.isfinite(entry):
        raise InputError(f"no bound on the lane {lane.name}", hint="declare one: Lane(..., bound=...)")
    tensor = torch.full(lane.shape, entry, dtype=torch.float64)
    size = Bound.tight(Labelled(tensor, AXES[: len(lane.shape)]), norm)
    return Known(size, size.filled(0.0), weights)


def _viewed(view: View, bound: Bound) -> Bound:
    """Entries picked by numbers, the diagonal by a label twice, the others renamed."""
    picked = Labelled(bound.entry.tensor[view.place], "".join(view.labels))
    return Bound.tight(contract([picked], "".join(dict.fromkeys(view.labels))), bound.norm)


def _placed(shape: tuple[int, ...], dst: View, bound: Bound) -> Bound:
    """A value written into a view, as a bound of the whole lane: zero where it is not written."""
    whole = torch.zeros(shape, dtype=torch.float64)
    spread = bound.entry.aligned("".join(dst.labels)).expand(whole[dst.place].shape)
    whole[dst.place] = spread
    return Bound.tight(Labelled(whole, AXES[: len(shape)]), bound.norm * math.sqrt(spread.numel() / bound.size))


def _range(f: Function, approximant: Approximant | None, epsilon: float, radius: float) -> tuple[float, float]:
    """Bounds on f and on its approximant over [-radius, radius]; a piecewise-linear one has its extremes at knots."""
    inside_domain = approximant is not None and radius <= min(-approximant.domain[0], approximant.domain[1])
    if isinstance(approximant, PiecewiseLinear) and inside_domain and math.isfinite(radius):
        inside = [knot for knot in approximant.knots if abs(knot) < radius]
        values = approximant(torch.tensor([-radius, *inside, radius], dtype=torch.float64))
        return float(values.min()) - epsilon, float(values.max()) + epsilon
    largest = f.magnitude(radius) + epsilon
    return -largest, largest


def _transformed(lane: Known, functions: list[PiecewiseLinear]) -> Known:
    """g(lane), g(t) = t + f_1(t) + f_2(t) + ...; summed up from 0 by slopes, so that cancellation is exact."""
    radius = lane.size.largest
    inside = {knot for f in functions for knot in f.knots if abs(knot) < radius}
    points = sorted({-radius, *inside, radius, 0.0})
    slopes = [1.0 + sum(f.slopes[bisect(f.knots, (a + b) / 2)] for f in functions) for a, b in pairwise(points)]
    steps = [_product(slope, b - a) for slope, (a, b) in zip(slopes, pairwise(points), strict=True)]
    centre = points.index(0.0)
    at_zero = float(sum(f(torch.zeros((), dtype=torch.float64)) for f in functions))
    values = [at_zero, *(at_zero + part for part in accumulate(steps[centre:]))]
    values += [at_zero - part for part in accumulate(reversed(steps[:centre]))]
    slope = max(map(abs, slopes), default=0.0)
    grown = lane.size.scaled(slope) + lane.size.filled(abs(at_zero))
    return Known(grown & lane.size.filled(max(map(abs, values))), lane.error.scaled(slope), lane.weights)
