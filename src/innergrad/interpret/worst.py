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
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.facts import proven
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import Function
from innergrad.interpret.lane_errors import squeezing
from innergrad.interpret.plain import Labelled, contract
from innergrad.program import Attend, Expr, Layer, Program, Score, View
from innergrad.stream import Lane

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
    """Bounds on the size, in both runs, and on the error; times omega_i ** degree at token i."""

    size: Bound
    error: Bound
    degree: int = 0


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
        self.lanes[lane] = Known(known.size, tight(entry, norm), known.degree)

    def cap(self, lanes: Iterable[str]) -> None:
        """Both runs stay within the size of these lanes, e.g. in a box."""
        for lane in lanes:
            self.lanes[lane] = self._capped(self.lanes[lane])

    def layer(self, layer: Layer) -> None:
        """All instructions read the lanes before the layer; then all add."""
        inner: dict[str, list[PiecewiseLinear]] = {}
        added: list[tuple[View, Known]] = []
        for i in layer.instructions:
            own = squeezing(i)
            if own is None:
                added.append((i.dst, self._instruction(layer, i)))
            else:
                inner.setdefault(i.dst.lane, []).append(own)
        after = dict(self.lanes)
        for lane, functions in inner.items():
            after[lane] = _transformed(self.lanes[lane], functions)
        for dst, change in added:
            whole = self._placed(dst, change)
            after[dst.lane] = self._sum(layer, dst.lane, after[dst.lane], whole)
            so_far = self.changes.get(dst.lane)
            self.changes[dst.lane] = whole if so_far is None else self._sum(layer, dst.lane, so_far, whole)
        self.lanes = {
            name: self._capped(known) if self.program.stream[name].role == "scratch" else known
            for name, known in after.items()
        }

    # ---------------------------------------------------------------------------------------------------- instructions

    def _instruction(self, layer: Layer, i: Attend) -> Known:
        """What the instruction adds, with the labels of its destination."""
        averaged = i.scope == "all" and i.reduce == "mean"
        alone = i.scope == "self" and i.reduce != "softmax"
        if not (alone or averaged) or self.program.causal:
            raise InputError(
                f"layer {layer.name}: no bound is known for this instruction",
                got=f"scope={i.scope!r}, reduce={i.reduce!r}{', causal' * self.program.causal}",
                allowed="scope='self', or scope='all' with reduce='mean', of programs that are not causal",
            )
        keep = "".join(i.dst.labels)
        product = self._read(i.value)
        for score in i.scores:
            product = self._times(self._score(layer, score, keep, averaged), product, keep)
        product = Known(scaled(product.size, i.scale), scaled(product.error, i.scale), product.degree)
        if averaged:
            if product.degree > 1:
                raise InputError(f"layer {layer.name}: weights of examples are averaged twice", got=i.dst.lane)
            product = Known(product.size, product.error)
        return self._capped(product)

    def _score(self, layer: Layer, score: Score, keep: str, averaged: bool) -> Known:
        total: Known | None = None
        for query, key in score.pairs:
            asked = self._read(query)
            if averaged and asked.degree:
                raise InputError(f"layer {layer.name}: the mean is over other tokens than the weight of {score.f.name}")
            term = self._times(asked, self._read(key), keep)
            total = term if total is None else self._sum(layer, score.f.name, total, term)
        assert total is not None
        return self._apply(layer, score.f, total)

    def _apply(self, layer: Layer, f: Function, z: Known) -> Known:
        slope = _linear(f)
        if slope is not None:
            return Known(scaled(z.size, slope), scaled(z.error, slope), z.degree)
        if z.degree:
            raise InputError(f"layer {layer.name}: {f.name} of a weighted example", allowed="linear functions of omega")
        approximant = self.approximants.get(f.name)
        if approximant is None and not self.exact:
            raise InputError(f"layer {layer.name}: {f.name} has no approximant with a proven error")
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
        if self.exact:
            return Known(size, drift)
        if jumps:
            self.jumps.add(f.name)
            return Known(size, _constant(like, labels, high - low))
        drift = smaller(drift, _constant(like, labels, high - low))
        return Known(size, plus(drift, _constant(like, labels, epsilon)))

    # ---------------------------------------------------------------------------------------------------------- algebra

    def _times(self, a: Known, b: Known, keep: str) -> Known:
        error = plus(times(a.size, b.error, keep), times(a.error, b.size, keep))
        return Known(times(a.size, b.size, keep), error, a.degree + b.degree)

    def _sum(self, layer: Layer, what: str, a: Known, b: Known) -> Known:
        if a.degree != b.degree and a.size.norm and b.size.norm:
            raise InputError(f"layer {layer.name}: {what} adds what is weighted by omega to what is not")
        return Known(plus(a.size, b.size), plus(a.error, b.error), a.degree if a.size.norm else b.degree)

    def _capped(self, a: Known) -> Known:
        """Neither run is larger than its size, so they are no farther apart than twice that."""
        return a if self.exact else Known(a.size, smaller(a.error, scaled(a.size, 2.0)), a.degree)

    # ------------------------------------------------------------------------------------------------------------ lanes

    def _read(self, expression: Expr) -> Known:
        total: Known | None = None
        for view in expression:
            lane = self.lanes[view.lane]
            size, error = (scaled(_viewed(bound, view), view.coefficient) for bound in (lane.size, lane.error))
            term = Known(size, error, lane.degree)
            if total is not None and total.degree != term.degree:
                raise InputError("an expression adds what is weighted by omega to what is not", got=view.lane)
            total = term if total is None else Known(plus(total.size, size), plus(total.error, error), term.degree)
        assert total is not None
        return total

    def _placed(self, dst: View, change: Known) -> Known:
        """The change as one of the whole lane: zero where it is not written."""
        shape = self.program.stream[dst.lane].shape
        place = tuple(index if isinstance(index, int) else slice(None) for index in dst.index)

        def put(bound: Bound) -> Bound:
            whole = torch.zeros(shape, dtype=torch.float64)
            spread = bound.entry.aligned("".join(dst.labels)).expand(whole[place].shape)
            whole[place] = spread
            return tight(Labelled(whole, AXES[: len(shape)]), bound.norm * math.sqrt(spread.numel() / bound.size))

        return Known(put(change.size), put(change.error), change.degree)


def _start(lane: Lane, given: tuple[float, float] | None) -> Known:
    """Before the first layer: as large as declared, the same in both runs."""
    if lane.name == "omega":
        entry, norm, degree = 1.0, 1.0, 1
    elif given is not None:
        (entry, norm), degree = given, 0
    else:
        known = lane.role == "scratch" or (lane.role == "state" and math.isinf(lane.bound))
        entry = abs(lane.fill) if known else lane.bound
        norm, degree = entry * math.sqrt(lane.size), 0
    if not math.isfinite(entry):
        raise InputError(f"no bound on the lane {lane.name}", hint="declare one: Lane(..., bound=...)")
    tensor = torch.full(lane.shape, entry, dtype=torch.float64)
    labels = AXES[: len(lane.shape)]
    return Known(tight(Labelled(tensor, labels), norm), _constant(tensor, labels, 0.0), degree)


def _constant(like: Tensor, labels: str, value: float) -> Bound:
    return Bound(Labelled(torch.full_like(like, value), labels), value * math.sqrt(like.numel()))


def _viewed(bound: Bound, view: View) -> Bound:
    """Entries picked by numbers, the diagonal by a label twice, the others renamed."""
    tensor = bound.entry.tensor[tuple(index if isinstance(index, int) else slice(None) for index in view.index)]
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
    return Known(size, scaled(lane.error, slope), lane.degree)
