"""The worst-case interpreter: how far one pass can be from the algorithm, for every input of a bounded domain.

It runs beside no values at all. For every lane it carries two bounds (:class:`Known`) that hold at every token of every
admissible prompt: on the *size* of the lane, in the transformer and in the algorithm, and on the *error*, the
difference of the two. Each is a bound on the entries and on the Euclidean norm (:class:`Bound`); neither follows from
the other, so both are carried, and each is tightened by the other.

    a b                 |ab|     <= |a| |b|;  sums over labels also by Cauchy-Schwarz: |<a, b>| <= ||a|| ||b||
                        |d(ab)|  <= |a| |db| + |da| |b|                     (|a|, |b| bound both runs: no second order)
    f(z)                |df|     <= eps_f + min(L_f |dz|, sup f - inf f)     sup and inf over |z| <= its bound
    lane += f(lane)     together: t + f(t) has its own Lipschitz constant (a projection enlarges no error)
    mean over tokens    <= the largest; a lane with one factor omega is bounded per unit of omega, whose mean is one
    anything            |d| <= 2 |size|

``exact=True`` compares the algorithm with itself, started from other weights: no approximants, no caps. Rounding is
not included: these are statements about exact arithmetic.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.facts import proven
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import Function, PiecewiseLinear
from innergrad.interpret.tensors import Labelled, contract
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place
from innergrad.ir.program import Expr, Layer, Program, Score, View
from innergrad.ir.stream import Lane

AXES = "ABCD"  # labels of a lane's own axes


@dataclass(frozen=True)
class Bound:
    """|entry| of a labelled quantity, entry by entry, and its Euclidean norm."""

    entry: Labelled
    norm: float

    @property
    def size(self) -> int:
        return self.entry.tensor.numel()

    @property
    def largest(self) -> float:
        return float(self.entry.tensor.max())

    def rows(self, kept: Iterable[str]) -> Labelled:
        """Norms over all labels but the kept ones."""
        squares = Labelled(self.entry.tensor.square(), self.entry.labels)
        norms = contract([squares], "".join(kept))
        return Labelled(norms.tensor.sqrt().clamp(max=self.norm), norms.labels)


def tight(entry: Labelled, norm: float) -> Bound:
    """What is known of the entries and of the norm, each used for the other. Unknown (nan) is infinite."""
    tensor = torch.nan_to_num(entry.tensor, nan=math.inf, posinf=math.inf)
    norm = min(norm, float(tensor.norm())) if not math.isnan(norm) else float(tensor.norm())
    return Bound(Labelled(tensor.clamp(max=norm), entry.labels), norm)


def plus(a: Bound, b: Bound) -> Bound:
    """Triangle inequality; a label that one of them lacks repeats its entries."""
    entry = a.entry + b.entry
    norm = sum(x.norm * math.sqrt(entry.tensor.numel() / x.size) for x in (a, b))
    return tight(entry, norm)


def scaled(a: Bound, factor: float) -> Bound:
    if factor == 0.0:
        return Bound(Labelled(torch.zeros_like(a.entry.tensor), a.entry.labels), 0.0)
    return Bound(Labelled(abs(factor) * a.entry.tensor, a.entry.labels), abs(factor) * a.norm)


def smaller(a: Bound, b: Bound) -> Bound:
    """Both hold; of the same labels."""
    return tight(Labelled(a.entry.tensor.minimum(b.entry.aligned(a.entry.labels)), a.entry.labels), min(a.norm, b.norm))


def times(a: Bound, b: Bound, keep: str) -> Bound:
    """The product, summed over the labels that are not kept.

    With C the kept labels of both: ||ab||^2 <= sum over C of ||a_C||^2 ||b_C||^2 <= max ||a_C||^2 ||b||^2.
    """
    plain = contract([a.entry, b.entry], keep)
    rows = [x.rows(label for label in keep if label in x.entry.labels) for x in (a, b)]
    entry = Labelled(plain.tensor.minimum(contract(rows, keep).aligned(plain.labels)), plain.labels)
    common = [label for label in keep if label in a.entry.labels and label in b.entry.labels]
    norms = [_product(float(x.rows(common).tensor.max()), other.norm) for x, other in ((a, b), (b, a))]
    return tight(entry, min(norms))


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


class Worst:
    """The bounds of all lanes, layer by layer.

    sizes: (largest entry, largest norm) of input lanes whose bound the program does not declare, e.g. x and y.
    changes: what the instructions so far added to each lane, apart from what they did to it in place.
    jumps: functions for whose approximants nothing is known but that they stay in the function's range.
    """

    def __init__(
        self,
        program: Program,
        approximants: Mapping[str, Approximant],
        sizes: Mapping[str, tuple[float, float]],
        *,
        exact: bool = False,
    ) -> None:
        self.program, self.approximants, self.exact = program, approximants, exact
        self.lanes = {lane.name: _start(lane, sizes.get(lane.name)) for lane in program.stream.lanes}
        self.changes: dict[str, Known] = {}
        self.jumps: set[str] = set()

    def shift(self, lane: str, norm: float) -> None:
        """Let the lane differ between the two runs, by this much in norm."""
        known = self.lanes[lane]
        entry = Labelled(torch.full_like(known.error.entry.tensor, norm), known.error.entry.labels)
        self.lanes[lane] = replace(known, error=tight(entry, norm))

    def cap(self, lanes: Iterable[str]) -> None:
        """Both runs stay within the size of these lanes, e.g. in a box."""
        for lane in lanes:
            self.lanes[lane] = self._capped(self.lanes[lane])

    def layer(self, layer: Layer) -> None:
        """All instructions read the lanes before the layer; then all add."""
        inner: dict[str, list[PiecewiseLinear]] = {}
        changes: list[tuple[View, Known]] = []
        for i in layer.instructions:
            own = in_place(i)
            if own is None:
                change = added(self.program, i, Bounds(self, layer))
                changes.append((i.dst, self._capped(change)))
            else:
                inner.setdefault(i.dst.lane, []).append(own)
        after = dict(self.lanes)
        for lane, functions in inner.items():
            after[lane] = _transformed(self.lanes[lane], functions)
        for dst, change in changes:
            whole = self._placed(dst, change)
            after[dst.lane] = sum_of(after[dst.lane], whole, f"layer {layer.name}: {dst.lane}")
            so_far = self.changes.get(dst.lane)
            self.changes[dst.lane] = whole if so_far is None else sum_of(so_far, whole, dst.lane)
        self.lanes = {
            name: self._capped(known) if self.program.stream[name].role == "scratch" else known
            for name, known in after.items()
        }

    def _capped(self, a: Known) -> Known:
        """Neither run is larger than its size, so they are no farther apart than twice that."""
        return a if self.exact else replace(a, error=smaller(a.error, scaled(a.size, 2.0)))

    def _placed(self, dst: View, change: Known) -> Known:
        """The change as one of the whole lane: zero where it is not written."""
        shape = self.program.stream[dst.lane].shape

        def put(bound: Bound) -> Bound:
            whole = torch.zeros(shape, dtype=torch.float64)
            spread = bound.entry.aligned("".join(dst.labels)).expand(whole[dst.place].shape)
            whole[dst.place] = spread
            return tight(Labelled(whole, AXES[: len(shape)]), bound.norm * math.sqrt(spread.numel() / bound.size))

        return Known(put(change.size), put(change.error), change.weights)


@dataclass(frozen=True)
class Bounds(Algebra[Known]):
    """What is known of an instruction at every token: values have no axes of tokens."""

    worst: Worst
    layer: Layer

    def read(self, expression: Expr, token: Token) -> Known:
        return self.sum([self._view(view, token) for view in expression])

    def _view(self, view: View, token: Token) -> Known:
        lane = self.worst.lanes[view.lane]
        return self.scale(
            Known(_viewed(lane.size, view), _viewed(lane.error, view), token * len(lane.weights)), view.coefficient
        )

    def product(self, factors: list[Known], keep: str) -> Known:
        return reduce(partial(times_of, keep=keep), factors)

    def sum(self, terms: list[Known]) -> Known:
        return reduce(partial(sum_of, what=f"layer {self.layer.name}: a sum"), terms)

    def apply(self, score: Score, argument: Known, value: Known | None) -> Known:
        del value
        f, z, run = score.f, argument, self.worst
        slope = _linear(f)
        if slope is not None:
            return self.scale(z, slope)
        if z.weights:
            raise InputError(
                f"layer {self.layer.name}: {f.name} of a weighted example", allowed="linear functions of omega"
            )
        approximant = run.approximants.get(f.name)
        if approximant is None and not run.exact:
            raise InputError(f"layer {self.layer.name}: {f.name} has no approximant with a proven error")
        f = proven(f)
        epsilon, jumps = 0.0, bool(approximant and approximant.ramps)
        if approximant is not None and not jumps:
            epsilon = approximant.error
        low, high = _range(f, approximant, epsilon, z.size.largest)
        labels, root = z.size.entry.labels, math.sqrt(z.size.size)
        like = z.size.entry.tensor
        at_zero = abs(float(f(torch.zeros((), dtype=like.dtype)))) + epsilon
        largest = min(max(abs(low), abs(high)), f.bound + epsilon)
        size = tight(
            Labelled(torch.full_like(like, largest), labels), root * at_zero + _product(f.lipschitz, z.size.norm)
        )
        moved = z.error.entry.aligned(labels).expand_as(like)
        moved = torch.where(moved > 0.0, f.lipschitz * moved, 0.0)
        drift = tight(Labelled(moved, labels), _product(f.lipschitz, z.error.norm))
        if run.exact:
            return Known(size, drift)
        if jumps:
            run.jumps.add(f.name)
            return Known(size, _constant(like, labels, high - low))
        drift = smaller(drift, _constant(like, labels, high - low))
        return Known(size, plus(drift, _constant(like, labels, epsilon)))

    def softmax(self, scores: Known, mask: Known | None) -> Known:
        raise self._refused("a softmax")

    def mask(self, seen: Seen) -> Known:
        raise self._refused("a scope of some tokens")

    def count(self, value: Known, mask: Known | None, power: Literal[-1, 1]) -> Known:
        raise self._refused("a number of tokens")

    def scale(self, value: Known, factor: float) -> Known:
        return Known(scaled(value.size, factor), scaled(value.error, factor), value.weights)

    def varies(self, value: Known) -> bool:
        return "S" in value.weights

    def over(self, factors: list[Known], keep: str, mask: Known | None, mean: bool) -> Known:
        """A mean is at most the largest; of what has the weight omega_S as a factor, as omega's mean is one."""
        found = self.product(factors, keep)
        if not mean:
            raise self._refused("a sum over tokens")
        if found.weights not in ("", "S"):
            what = f"layer {self.layer.name}: a mean is over what is weighted by its own token's omega, once at most"
            raise InputError(what, got=f"{len(found.weights)} weights")
        return Known(found.size, found.error)

    def _refused(self, got: str) -> InputError:
        return InputError(
            f"layer {self.layer.name}: no bound is known for this instruction",
            got=got,
            allowed="what a token does by itself, or the mean over all, in programs that are not causal",
        )


def times_of(a: Known, b: Known, keep: str) -> Known:
    """|d(ab)| <= |a| |db| + |da| |b|."""
    error = plus(times(b.size, a.error, keep), times(b.error, a.size, keep))
    return Known(times(b.size, a.size, keep), error, a.weights + b.weights)


def sum_of(a: Known, b: Known, what: str) -> Known:
    if a.weights != b.weights and a.size.norm and b.size.norm:
        raise InputError(f"{what} adds what is weighted by omega to what is not")
    return Known(plus(a.size, b.size), plus(a.error, b.error), a.weights if a.size.norm else b.weights)


def _start(lane: Lane, given: tuple[float, float] | None) -> Known:
    """Before the first layer: as large as declared, the same in both runs."""
    weights = "I" if lane.name == "omega" else ""
    if weights:
        entry, norm = 1.0, 1.0
    elif given is not None:
        entry, norm = given
    else:
        known = lane.role == "scratch" or (lane.role == "state" and math.isinf(lane.bound))
        entry = abs(lane.fill) if known else lane.bound
        norm = entry * math.sqrt(lane.size)
    if not math.isfinite(entry):
        raise InputError(f"no bound on the lane {lane.name}", hint="declare one: Lane(..., bound=...)")
    tensor = torch.full(lane.shape, entry, dtype=torch.float64)
    labels = AXES[: len(lane.shape)]
    return Known(tight(Labelled(tensor, labels), norm), _constant(tensor, labels, 0.0), weights)


def _constant(like: Tensor, labels: str, value: float) -> Bound:
    return Bound(Labelled(torch.full_like(like, value), labels), value * math.sqrt(like.numel()))


def _viewed(bound: Bound, view: View) -> Bound:
    """Entries picked by numbers, the diagonal by a label twice, the others renamed."""
    tensor = bound.entry.tensor[view.place]
    labels = "".join(view.labels)
    once = "".join(dict.fromkeys(labels))
    if once != labels:
        tensor = torch.einsum(f"{labels}->{once}", tensor)
    return tight(Labelled(tensor, once), bound.norm)


def _linear(f: Function) -> float | None:
    """The slope of a linear function."""
    line = f.exact
    return line.slopes[0] if line is not None and not line.knots and line.value == line.anchor == 0.0 else None


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
    """g(lane), g(t) = t + f_1(t) + f_2(t) + ...; summed up from 0 by slopes, so that what cancels does so exactly."""
    radius, like, labels = lane.size.largest, lane.size.entry.tensor, lane.size.entry.labels
    inside = {knot for f in functions for knot in f.knots if abs(knot) < radius}
    points = sorted({-radius, *inside, radius, 0.0})
    slopes = [1.0 + sum(f.slopes[bisect(f.knots, (a + b) / 2)] for f in functions) for a, b in pairwise(points)]
    steps = [_product(slope, b - a) for slope, (a, b) in zip(slopes, pairwise(points), strict=True)]
    centre = points.index(0.0)
    at_zero = float(sum(f(torch.zeros((), dtype=torch.float64)) for f in functions))
    values = [at_zero, *(at_zero + part for part in accumulate(steps[centre:]))]
    values += [at_zero - part for part in accumulate(reversed(steps[:centre]))]
    slope = max(map(abs, slopes), default=0.0)
    grown = plus(scaled(lane.size, slope), _constant(like, labels, abs(at_zero)))
    size = smaller(grown, _constant(like, labels, max(map(abs, values))))
    return Known(size, scaled(lane.error, slope), lane.weights)
