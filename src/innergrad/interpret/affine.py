"""The affine interpreter: how far the numbers of a transformer can be from those of the algorithm.

It runs beside a forward pass. The values that the transformer produced are the *centres*. For every lane of every token
it carries the difference of the exact value from its centre, a linear combination of symbols (``Error``). Lanes share
symbols, so errors that cancel do cancel.

    z = <q, k>        dz = <dq, k> + <q, dk> + [rad dq rad dk]
    f(z)              df = f'(z) dz + [eps_f + 1/2 sup|f''| rad(dz)^2]             eps_f: the approximant's proven error
    f v               d(f v) = f dv + v df + [rad df rad dv]
    softmax(z)        da_s = a_s (dz_s - sum_r a_r dz_r) + [2 rho^2 exp(2 rho) a_s],  rho = max rad(dz)

The terms in brackets become new symbols, one for every entry of the lane that is written. So remainders of second order
come back as symbols of the first: they do not accumulate. Near a kink of f only slopes on both sides are known.

Symbols are of two kinds. Those an instruction makes are in [-1, 1] and belong to one token: rad is the sum of absolute
coefficients, and a sum over tokens adds their radii. The symbols ``BEFORE`` describe the errors of weights and state
when the step begins. They are a vector of Euclidean norm at most one, known to all tokens; their rad is the Euclidean
norm of the coefficients. With them the forms enclose the exact step from *every* point of an ellipsoid around the
transformer's weights, and their coefficients are the derivative of the step. Terms of second order in BEFORE are not
taken entry by entry, because not all entries can be off by their most at once. They are a vector of bounded Euclidean
norm, a lane's *ball*, which goes through linear maps by their operator norms.

Rounding is not estimated but measured: the written lane is compared with the instruction, evaluated on the same stream
in float64. So one interpreter serves float32 and float64, and every executor. The rounding of that evaluation is
bounded. Sums have gamma terms: gamma_m = m u / (1 - m u), u = 2^-53, times the sum of absolute terms. Functions have
interval arithmetic on their formulas. Numbers too small to be normal are accounted for. Where rounding is all there is,
the comparison is made in extended precision, u = 2^-64, for instructions that apply no function
(:mod:`innergrad.interpret.extended`). A bound is then near the true rounding, not near the possible one.

A :class:`Form` is a value with its error, :class:`Forms` the algebra of one instruction, :class:`Affine` the lanes. An
error is a sum of parts, and a part is one of

    I, S, G    coefficients of symbols: of the token that is written, of those that are read, of all tokens (BEFORE)
    R          numbers of which nothing is known but how large each is: the terms in brackets
    N          a vector of which nothing is known but its Euclidean norm, for every token: a ball
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, count, pairwise
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.facts import REACH, Evaluated, U, departed, evaluated, facts_on, local_curvature, local_swing
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.intervals import LIBRARY_ULP, SMALLEST_NORMAL
from innergrad.functions.scalar import IDENTITY, Function, PiecewiseLinear
from innergrad.functions.tape import Formula
from innergrad.interpret.extended import UNIT, Array, Extended, Long, apart, long
from innergrad.interpret.plain import Labelled, attention, contract, labelled_view, tokens_in, total
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place, seen
from innergrad.ir.program import Attend, Expr, Layer, Program, Score, View
from innergrad.ir.stream import State

PIECE = 1 << 22  # numbers that are held at a time
UNDERFLOW = 2.0**-900  # a product that is larger has lost nothing
SETTINGS = 16  # roundings of a number made of settings: rates, decays, Adam's corrections
LINE = (-math.inf, math.inf)
K = TypeVar("K")
P = TypeVar("P", Tensor, Labelled, float)


class Key(NamedTuple):
    """A part of an error: where it comes from, a number that tells symbols apart, and of which kind it is."""

    source: str
    number: int
    kind: str


#: What a lane is off by: parts (batch, tokens or 1, *shape), then the symbols; a ball is one number per token. Of lanes
#: of means: a radius for every source, or symbols of all tokens (kind S), which the means are made of.
Error = dict[Key, Tensor]
BEFORE = Key("before", 0, "G")
BALL = Key("before", 0, "N")
LOOSE = Key("", 0, "R")  # of a form; radii of lanes have sources
ZERO = Labelled(torch.zeros((), dtype=torch.float64), "")


@dataclass(frozen=True)
class Form:
    """A value with labelled axes and the parts of its error, symbols labelled Z.

    tokens: the axes that number tokens, not entries of a vector. Where the value was summed over tokens S, they number
    symbols of those tokens.
    """

    centre: Labelled
    parts: Mapping[Key, Labelled] = field(default_factory=dict)
    tokens: str = "BIS"

    def size(self, key: Key) -> Labelled:
        """rad of a part, entry by entry."""
        part, symbols = self.parts[key], [] if key.kind in "RN" else ["Z" if "S" in self.centre.labels else "SZ"]
        labels = without(part.labels, "".join(symbols))
        return Labelled(measure(key, grouped(part, *labels, *symbols)), labels)

    @cached_property
    def entries(self) -> Labelled:
        """The radius of all that is known entry by entry."""
        sizes = (self.size(key) for key in self.parts if key.kind not in "GN")
        return total([self.centre.map(torch.zeros_like), *sizes]).map(sound)

    @cached_property
    def earlier(self) -> Labelled | None:
        """The radius of every entry that comes from BEFORE, if any does."""
        return self._with_ball(None if BEFORE not in self.parts else self.size(BEFORE))

    @cached_property
    def norm(self) -> Labelled | None:
        """Of the part from BEFORE, for every token."""
        block = self.parts.get(BEFORE)
        if block is None:
            return self._with_ball(None)
        tokens = among(block.labels, self.tokens)
        matrices = grouped(block, *tokens, without(block.labels, tokens + "Z"), "Z")
        return self._with_ball(Labelled(spectral_norm(matrices), tokens))

    def _with_ball(self, size: Labelled | None) -> Labelled | None:
        ball = self.parts.get(BALL)
        return size if ball is None else ball if size is None else size + ball

    @cached_property
    def radius(self) -> Labelled:
        return total([self.entries, *([] if self.earlier is None else [self.earlier])]).map(sound)


@dataclass(frozen=True)
class Used:
    """The tokens S that matter to a mean, and which axes are tokens to vectors of errors: not S, if tokens S are
    neurons, whose errors together are one vector.
    """

    tokens: Tensor
    axes: str


class Forms(Algebra[Form]):
    """Values with errors, of one instruction of a layer that reads a stream; the errors of the lanes are known."""

    def __init__(self, lanes: Affine, layer: Layer, i: Attend, state: State, unit: float = U) -> None:
        """unit: of the rounding of the numbers that the instruction is compared with."""
        self.lanes, self.program, self.layer, self.i, self.state = lanes, lanes.program, layer, i, state
        self.unit = unit
        self.tokens = tokens_in(state)
        self.radii_only = lanes.gathers(i.dst.lane) and not lanes.columns  # of the terms of a sum over tokens

    @cached_property
    def used(self) -> Used | None:
        """Where weights are in tokens of their own: the tokens that a mean over all reads anything but zeros from."""
        tokens = seen(self.program, self.i)
        if not self.program.placement or tokens is None or tokens.labels:
            return None
        linear = (score.pairs[0][1] for score in self.i.scores if score.f == IDENTITY and len(score.pairs) == 1)
        factors, codes = [self.i.value, *linear], {mark.lane for mark in self.program.marks}
        used = torch.ones(self.tokens, dtype=torch.bool)
        for expression in factors:
            form = self.sum([self._view(view, "S", None) for view in expression])
            parts = [form.centre, *form.parts.values()]
            if all("S" in part.labels for part in parts):
                zeros = [grouped(part, "S", without(part.labels, "S")) == 0 for part in parts]
                used &= ~torch.cat(zeros, dim=1).all(1)
        used[:2] |= used.sum() < 2  # a single one would pass for a lane that all tokens share
        coded = any(view.lane in codes for expression in factors for view in expression)
        return Used(used.nonzero().flatten(), "BI" if coded else "BIS")

    def everywhere(self, block: Labelled) -> Labelled:
        """Coefficients of symbols of all tokens S, zero of those that are not used."""
        if self.used is None:
            return block
        axis = block.labels.index("S")
        full = block.tensor.new_zeros(*block.tensor.shape[:axis], self.tokens, *block.tensor.shape[axis + 1 :])
        return Labelled(full.index_copy(axis, self.used.tokens, block.tensor), block.labels)

    def read(self, expression: Expr, token: Token) -> Form:
        """A linear combination of lane views, with the errors of the lanes; of the tokens that are used."""
        return self.sum([self._view(view, token, self.used if token == "S" else None) for view in expression])

    def _view(self, view: View, token: Token, used: Used | None) -> Form:
        axes, coefficient, view = "BIS" if used is None else used.axes, view.coefficient, replace(view, coefficient=1.0)

        def labelled(tensor: Tensor, view: View = view, extra: str = "") -> Labelled:
            some = tensor if used is None or tensor.shape[1] == 1 else tensor[:, used.tokens]
            return labelled_view(self.program, view, some, token, extra)

        parts: dict[Key, Labelled] = {}
        for key, part in self.lanes.errors.get(view.lane, {}).items():
            if key == BALL:
                ball = labelled(part.flatten(1), replace(view, index=())).map(torch.abs)
                parts[BALL] = ball if ball.labels[-1] in axes else Labelled(norm_of(ball.tensor), "B")
            elif key.kind in "RS":
                parts = merged(parts, {LOOSE: labelled(measure(key, part)).map(torch.abs)})
            else:
                parts[key if key == BEFORE else key._replace(kind=token)] = labelled(part, extra="Z")
        found = Form(labelled(self.state[view.lane]), parts, axes)
        if coefficient == 1.0:
            return found
        roundings = 2 if abs(coefficient) == math.log(2.0) else SETTINGS  # the logarithm's own, and the product's
        roundings = 0 if power_of_two(coefficient) else roundings
        return _weighted(found, Labelled(torch.tensor(coefficient, dtype=torch.float64), ""), gamma(roundings))

    def sum(self, terms: list[Form]) -> Form:
        """The sum of the forms, and its rounding."""
        centre, parts = total([term.centre for term in terms]), [term.parts for term in terms]
        if len(terms) > 1:
            sizes = total([term.centre.map(torch.abs) for term in terms])
            parts.append({LOOSE: sizes.map(lambda size: gamma(len(terms) - 1, self.unit) * size)})
        return Form(centre, merged(*parts), terms[0].tokens)

    def product(self, factors: list[Form], keep: str) -> Form:
        """The product of the factors, summed over every label that is not kept."""
        axes = min((factor.tokens for factor in factors), key=len)
        factors = [replace(factor, tokens=axes) for factor in factors]
        centres = [factor.centre for factor in factors]
        sizes = [centre.map(torch.abs) for centre in centres]
        lengths = {label: n for c in centres for label, n in zip(c.labels, c.tensor.shape, strict=True)}
        terms = math.prod(n for label, n in lengths.items() if label not in keep)
        rounded = gamma(terms + len(factors) + 1, self.unit)
        found = [{LOOSE: contract(sizes, keep).map(lambda size: size * rounded)}, *_underflow(factors, keep)]
        summed = self.radii_only and "S" not in keep
        gathered = dict.fromkeys(key for factor in factors for key in factor.parts if summed and key.kind == "S")
        found += [{key._replace(kind="R"): _radius_through(factors, key, keep)} for key in gathered]
        for m, factor in enumerate(factors):
            others = [*centres[:m], *centres[m + 1 :]]
            found.append({key: _through(others, factor, key, keep) for key in factor.parts if key not in gathered})
        for a, b in combinations([factor for factor in factors if factor.parts], 2):
            rest = [c.centre.map(torch.abs) + c.radius for c in factors if c is not a and c is not b]
            found.append({LOOSE: contract([a.entries, b.radius, *rest], keep)})
            if a.earlier is not None:
                found.append({LOOSE: contract([a.earlier, b.entries, *rest], keep)})
            if a.norm is not None and b.norm is not None:
                largest_of = [largest(part, axes) for part in rest]
                found.append({BALL: contract([a.norm, b.norm, *largest_of], among(keep, axes))})
        return Form(contract(centres, keep), merged(*found), axes)

    def scale(self, value: Form, factor: float) -> Form:
        """A factor below zero is a rate, made of settings, and rounded a few times itself; 1 and 2 are just that."""
        exact = factor > 0 and power_of_two(factor)
        weight = Labelled(torch.tensor(factor, dtype=torch.float64), "")
        return _weighted(value, weight, 0.0 if exact else gamma(SETTINGS))

    def count(self, value: Form, mask: Form | None, power: Literal[-1, 1]) -> Form:
        if power > 0:
            return self.scale(value, self.tokens)
        all_tokens = Labelled(torch.tensor(float(self.tokens), dtype=torch.float64), "")
        shown = all_tokens if mask is None else contract([mask.centre], "BI")
        return _weighted(value, shown.map(lambda n: 1.0 / n.clamp(min=1.0)), gamma(2, self.unit))

    def varies(self, value: Form) -> bool:
        return "S" in value.centre.labels

    def mask(self, seen: Seen) -> Form:
        return Form(Labelled(seen.mask(self.state, self.tokens), seen.labels))

    def softmax(self, scores: Form, mask: Form | None) -> Form:
        """Attention weights; symbols of the tokens that are read, and loose radii, are taken at their worst."""
        if self.used is not None:
            raise InputError("no errors are known of a softmax over tokens that carry weights", got=self.i.dst.lane)
        z, weights = scores, attention(scores.centre, None if mask is None else mask.centre, self.tokens)
        a, labels = weights.tensor, weights.labels
        axis = labels.index("S")
        rho = torch.where(a > 0, z.radius.aligned(labels), 0.0).amax(axis, keepdim=True)
        own = {key: part for key, part in z.parts.items() if key.kind in "IG"}
        rest = replace(z, parts={key: part for key, part in z.parts.items() if key not in own})
        rough = rest.radius.aligned(labels).expand_as(a)
        remainder = a * (rough + (a * rough).sum(axis, keepdim=True) + 2 * rho**2 * torch.exp(2 * rho))
        rounded = 2 * LIBRARY_ULP * self.unit + gamma(self.tokens + 2, self.unit)
        size = z.centre.aligned(labels).abs()  # exp(z - max z): the difference is rounded, too
        remainder = remainder + rounded * a * (1 + size + size.amax(axis, keepdim=True)) + SMALLEST_NORMAL
        remainder = remainder + self._nothing(a, labels)
        moved = {key: times(weights, part) for key, part in own.items()}
        means = {key: contract([part], without(part.labels, "S")) for key, part in moved.items()}
        off = {key: contract([weights.map(torch.neg), mean], moved[key].labels) for key, mean in means.items()}
        return Form(weights, {**merged(moved, off), LOOSE: Labelled(sound(remainder), labels)})

    def _nothing(self, a: Tensor, labels: str) -> Tensor:
        """The error of weights a where scores that should be minus infinity, or nearly, are a number: that weight
        itself, and its share of the others.
        """
        weights = torch.zeros_like(a)
        for view in (view for score in self.i.scores for _, key in score.pairs for view in key):
            if view.lane in self.lanes.bottoms:
                shown = labelled_view(self.program, replace(view, coefficient=1.0), self.state[view.lane], "S")
                weights = torch.where(shown.aligned(labels) <= self.lanes.bottoms[view.lane], a, weights)
        taken = weights.sum(labels.index("S"), keepdim=True)
        return torch.where(taken < 0.5, weights + 2 * taken * a, math.inf)

    def apply(self, score: Score, argument: Form, value: Form | None) -> Form:
        """f(z), with the errors of the argument and of the approximant of f."""
        if score.f == IDENTITY:
            return argument
        f, z, stand_in = score.f, argument, None if self.lanes.pointwise else self.lanes.approximants.get(score.f.name)
        t, labels = z.centre.tensor.detach(), z.centre.labels
        found = self.lanes.at(f, t)
        sizes = (z.radius, z.entries, z.parts.get(LOOSE, ZERO))
        radius, rough, loose = (size.aligned(labels).expand_as(t) for size in sizes)
        facts = self._facts(f, found, t, radius, locally=BEFORE in z.parts)
        slope, (lipschitz, curvature, swing) = found.slope, facts
        second = rough * (2 * radius - rough)  # the rest is in the ball
        remainder = slope.abs() * loose + 0.5 * curvature * second
        remainder = remainder + torch.where(radius > 0, found.slope_off * radius, 0.0)
        kept = slope
        if f.breaks:
            near = touched(t, radius, zip(f.breaks, f.breaks, strict=True))
            middle, half = (0.0, lipschitz) if f.exact is None else slope_range(f.exact.slopes)
            kept = torch.where(near, middle, slope)
            remainder = torch.where(near, half * radius + abs(middle) * loose, remainder)
        if f.breaks and math.isinf(f.lipschitz) and f.exact is None:  # an infinite slope at a break
            swing = torch.minimum(swing, local_swing(f, t, radius))
        flat = ~(kept.abs() * radius + remainder <= swing)  # all that is known is that f is bounded
        kept, curvature, remainder = (
            torch.where(flat, part, other) for part, other in ((0.0, kept), (0.0, curvature), (swing, remainder))
        )
        remainder = remainder + self._unknown(f, stand_in, t, radius) + f.rounded
        remainder = remainder + departed(f, self.lanes.primitives.get(f.value, ()), t, radius)
        if stand_in is not None:
            found = self.lanes.at(stand_in, t) if isinstance(stand_in, PiecewiseLinear) else found
            remainder = remainder + (0.0 if stand_in.ramps else stand_in.error)
        parts = {key: _sloped(kept, labels, part) for key, part in z.parts.items() if key.kind not in "RN"}
        parts[LOOSE] = Labelled(sound(remainder + found.off), labels)
        return Form(Labelled(found.value, labels), {**parts, **_bent(z, kept, curvature)}, z.tokens)

    def _unknown(self, f: Function, stand_in: Approximant | None, t: Tensor, radius: Tensor) -> Tensor:
        """The unknown part of f(t), which is noted. A step function may be on either side of a jump, or its approximant
        on a ramp: the part is then as high as the jump. Outside the domain of an approximant nothing is known.
        """
        zero = unknown = torch.zeros_like(t)
        low, high = stand_in.domain if stand_in else LINE
        steep = stand_in.ramps if stand_in else [(at, at) for at, _, _ in f.jumps]
        jumps = sorted(f.jumps) if steep else []
        found = [(f"may be at a jump ({', '.join(f'{at:g}' for at, _, _ in jumps)})", touched(t, radius, steep))]
        for interval, (_, height, _) in zip(steep, jumps, strict=True):
            unknown = unknown + torch.where(touched(t, radius, [interval]), abs(height), zero)
        outside = (t < low) | (t > high)
        found.append((f"left the domain [{low:g}, {high:g}] of its approximant", outside))
        for why, where in found:
            if bool(where.any()):
                worst = torch.where(where, radius, -1.0).argmax()
                at, off = float(t.flatten()[worst]), float(radius.flatten()[worst])
                what = f"{self.layer.name}, {self.i.dst.lane}: {int(where.sum())} arguments of {f.name} {why}"
                self.lanes.culprits.append(f"{what}, e.g. z = {at:.3g} known to within {off:.1e}")
        return torch.where(outside, math.inf, unknown)

    def _facts(
        self, f: Function, at: Evaluated, t: Tensor, radius: Tensor, *, locally: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Proven bounds on |f'|, and on |f''| off the kinks: everywhere that facts are known, or between t - radius and
        t + radius. Also a bound on how far f anywhere can be from f(t).
        """
        unknown, zero = torch.full_like(t, math.inf), torch.zeros_like(t)
        if f.jumps or f.exact is not None:
            return unknown, zero, zero if f.jumps else unknown
        approximants = self.lanes.approximants
        facts = facts_on(f, approximants[f.name].domain if f.name in approximants else LINE)
        inside = t.abs() + radius <= facts.reach
        lipschitz, swing = torch.where(inside, facts.lipschitz, unknown), at.value.abs() + at.off + facts.bound
        swing = swing if facts.reach >= REACH else torch.where(inside, swing, math.inf)
        if math.isfinite(facts.curvature) and not locally and bool(inside.all()):
            return lipschitz, torch.full_like(t, facts.curvature), swing
        reach = torch.nan_to_num(radius, posinf=0.0)  # nothing is known anyway where the radius is infinite
        bound = local_curvature(f, t - reach, t + reach, facts)  # infinite across a break, which is no kink's fault
        bound = torch.where(inside, bound.clamp(max=facts.curvature), bound)
        if not facts.proven and bool(torch.isinf(bound).all()):
            raise InputError(f"nothing is proven about {f.name}, so there is no certificate", got=facts.reason)
        return lipschitz, bound, swing


# ---------------------------------------------------------------------------------------------------------- the lanes


class Change(NamedTuple):
    """The addend of an instruction.

    source: where its own errors come from; measured: where it comes from that not this was computed.
    added: the same in extended precision, if that is known.
    """

    dst: View
    form: Form
    source: str
    measured: str
    added: Long | None = None


EARLIER = Key("before", 0, "R")  # the use of BEFORE in earlier steps


class Affine:
    """The errors of all lanes, layer by layer.

    approximants: of the functions. pointwise: functions are taken at their exact values, so that the error of an
        approximant is measured where it was evaluated; else it is the proven one.
    columns: keep the symbols that shared lanes and weights are means of, instead of their radii.
    extended: instructions that apply no function are evaluated in extended precision.
    primitives: formulas that some functions must be the derivatives of.
    bottoms: of some lanes, the number that in a softmax stands for minus infinity, and for all below it.
    at: values of functions, and their errors; interpreters that run side by side may share it.
    """

    def __init__(
        self,
        program: Program,
        approximants: Mapping[str, Approximant],
        *,
        pointwise: bool = False,
        columns: bool = False,
        extended: bool = False,
        primitives: Mapping[Formula, tuple[Formula, ...]] | None = None,
        bottoms: Mapping[str, float] | None = None,
        at: Callable[[Function | PiecewiseLinear, Tensor], Evaluated] = evaluated,
    ) -> None:
        self.program, self.approximants, self.pointwise = program, approximants, pointwise
        self.columns, self.extended = columns, extended
        self.primitives, self.bottoms, self.at = primitives or {}, bottoms or {}, at
        self.errors: dict[str, Error] = {}
        self.culprits: list[str] = []  # arguments about which nothing is known
        self.worst: dict[str, float] = {}  # layer -> the largest radius of its output
        self._numbers = count(1)

    def start(self, lane: str, block: Tensor) -> None:
        """The lane is off by ``block`` times the symbols BEFORE."""
        self.errors[lane] = {BEFORE: block}

    def given(self, lane: str, radius: Tensor) -> None:
        """An input lane is itself rounded."""
        self._keep(lane, self._symbols("rounding", radius))

    def radius(self, lane: str, like: Tensor) -> Tensor:
        return radius_of(self.errors.get(lane, {}), like)

    def parts(self, lanes: list[str]) -> dict[str, float]:
        """The parts of the summed radii of the lanes; for the mean prompt of the batch."""
        errors = (item for lane in lanes for item in self.errors.get(lane, {}).items())
        return merged(*({key.source: float(sound(measure(key, part)).sum()) / len(part)} for key, part in errors))

    def collapse(self) -> None:
        """Forgets the symbols BEFORE: a radius takes their place from now on."""
        for lane, error in self.errors.items():
            if BEFORE in error:
                self.errors[lane] = merged({EARLIER: measure(BEFORE, error.pop(BEFORE))}, error)

    def gathers(self, lane: str) -> bool:
        """Whether the lane takes means over the examples: its errors are no token's own, but radii or columns."""
        known = self.program.stream[lane]
        return bool(known.shared) or bool(self.program.placement and known.role in ("weight", "state"))

    # --------------------------------------------------------------------------------------------------- the next layer

    def layer(self, layer: Layer, before: State, after: State) -> None:
        """All instructions read the stream before the layer, then all add; float64 tensors."""
        before, after = (
            {name: value[:, :1] if self.program.stream[name].shared else value for name, value in state.items()}
            for state in (before, after)
        )
        writers: dict[str, list[Attend]] = {}
        for i in layer.instructions:
            writers.setdefault(i.dst.lane, []).append(i)
        maps = {lane: found for lane, some in writers.items() if (found := _map_among(some)) is not None}
        changes = {lane: [self._change(layer, i, before) for i in some] for lane, some in writers.items()}
        for lane, old in before.items():
            start = self.squeeze(lane, *maps[lane], old) if lane in maps else old
            if changes.get(lane) or not torch.equal(start, after[lane]):  # matrices may touch what they should leave
                self.add(lane, changes.get(lane, []), start, after[lane])
        self.worst[layer.name] = max((float(self.radius(lane, after[lane]).max()) for lane in writers), default=0.0)

    def _change(self, layer: Layer, i: Attend, before: State) -> Change:
        precisely = self._precisely(i, before)
        algebra = Forms(self, layer, i, before, U if precisely is None else UNIT)
        form = added(self.program, i, algebra)
        functions = [score.f for score in i.scores if score.f != IDENTITY]
        source = f"{functions[0].name if functions else 'products'}: {layer.name}, {i.dst.lane}"
        measured = self.pointwise and any(f.exact is None and f.name in self.approximants for f in functions)
        if self.columns and self.gathers(i.dst.lane):
            read = {key: algebra.everywhere(part) for key, part in form.parts.items() if key.kind == "S"}
            form = replace(form, parts={**form.parts, **read})
        return Change(i.dst, form, source, source if measured else "rounding", precisely)

    def _precisely(self, i: Attend, before: State) -> Long | None:
        """The addend of the instruction in extended precision, if that is wanted and possible."""
        if not self.extended:
            return None
        try:
            return added(self.program, i, Extended(self.program, before))
        except InputError:  # a function that is known in float64 alone
            return None

    def add(self, lane: str, changes: list[Change], before: Tensor, after: Tensor) -> None:
        """The lane after the layer: coefficients added, new symbols for loose terms and for rounding."""
        full = torch.Size((len(after), max(before.shape[1], after.shape[1]), *self.program.stream[lane].shape))
        error, computed = self.errors.get(lane, {}), np.zeros(full, np.longdouble)
        size = before.abs() + after.abs()  # of all terms: they may cancel
        radii, loose = dict[str, Tensor](), "R" if self.columns and self.gathers(lane) else "RS"
        for dst, form, source, _, precisely in changes:
            change = _placed(form.centre, dst, full)
            size = size + change.abs()
            computed += long(change) if precisely is None else _placed_long(precisely, dst, full)
            for key, part in form.parts.items():
                if key.kind in loose:
                    radii = merged(radii, {key.source or source: _placed(form.size(key), dst, full)})
                elif key == BALL:
                    error = merged(error, {BALL: _placed_ball(form, dst, full)})
                else:
                    error = merged(error, {key: _placed(part, dst, full, "SZ")})
        residual = apart(after, before, computed)
        if changes:  # lanes that no instruction writes are compared without any arithmetic
            residual = residual + gamma(len(changes) + 2, UNIT) * size
        measured = (change.measured for change in changes if change.measured != "rounding")
        radii = merged(radii, {next(measured, "rounding"): residual})
        if self.gathers(lane):
            found = {Key(source, 0, "R"): radius for source, radius in radii.items()}
        else:
            found = self._symbols(changes[0].source if changes else "rounding", sum(radii.values(), torch.zeros(())))
        self._keep(lane, merged(error, found))

    def squeeze(self, lane: str, g: PiecewiseLinear, rounded: float, before: Tensor) -> Tensor:
        """lane <- g(lane), entry by entry, g piecewise linear: clearing a lane removes its error, a projection keeps it
        where the box is not touched. Returns g(lane). Where layers can only add, the difference is measured.
        rounded: of the constants of g, which do not matter where it is flat.
        """
        error, found = self.errors.get(lane, {}), evaluated(g, before)
        near = touched(before, radius_of(error, before) + rounded, zip(g.knots, g.knots, strict=True))
        middle, half = slope_range(g.slopes)
        steepest = torch.where(near, max(map(abs, g.slopes)), found.slope.abs())
        kept = torch.where(near, middle, found.slope)
        parts: Error = {
            Key("rounding", 0, "R"): found.off + torch.where(steepest > 0, rounded, torch.zeros_like(before))
        }
        for key, part in error.items():
            if key.kind == "R":  # |g(a) - g(b)| <= max slope |a - b|
                parts = merged(parts, {key: part * steepest})
            elif key.kind == "N":
                parts = merged(parts, {key: part * steepest.reshape(*part.shape[:2], -1).amax(-1).view(part.shape)})
            else:
                rest = torch.where(near, half * measure(key, part), 0.0)
                parts = merged(parts, {key: part * kept.unsqueeze(-1), Key(key.source, 0, "R"): rest})
        self._keep(lane, _within(g, found.value, parts))
        return found.value

    def _symbols(self, source: str, radius: Tensor) -> Error:
        """One new symbol for every entry of every token: a last axis of as many as a token has entries."""
        entries = torch.diag_embed(sound(radius).reshape(*radius.shape[:2], -1))
        return {Key(source, next(self._numbers), "I"): entries.reshape(*radius.shape, -1)}

    def _keep(self, lane: str, error: Error) -> None:
        """All that is not zero."""
        self.errors[lane] = {key: part for key, part in error.items() if bool((part != 0).any())}


def _within(g: PiecewiseLinear, value: Tensor, error: Error) -> Error:
    """The errors of g(lane), where that can be nowhere but between two numbers: nothing but the distance to these, if
    that is less.
    """
    if g.slopes[0] or g.slopes[-1]:
        return error
    _, values, _ = g.table  # at all knots
    farthest = torch.maximum(float(values.max()) - value, value - float(values.min()))
    vague = radius_of(error, value) > farthest
    if not bool(vague.any()):
        return error
    all_of_token = vague.flatten(2).all(2) if vague.ndim > 2 else vague
    where = {"R": vague, "N": all_of_token.view(*vague.shape[:2], *[1] * (vague.ndim - 2))}
    kept = {key: torch.where(where.get(key.kind, vague.unsqueeze(-1)), 0.0, part) for key, part in error.items()}
    return merged(kept, {Key("box", 0, "R"): torch.where(vague, farthest, 0.0)})


def _map_among(instructions: list[Attend]) -> tuple[PiecewiseLinear, float] | None:
    """Takes out the instruction that takes the lane through a function of itself. Returns the new lane, and the
    rounding of the function.
    """
    for i in instructions:
        f = in_place(i)
        if f is not None and (f.knots or f.slopes == (-1.0,)):
            instructions.remove(i)
            return f.plus_identity, i.scores[0].f.rounded if i.scores else 0.0
    return None


def numbers_held(program: Program, tokens: int, before: int = 0) -> int:
    """How many numbers the errors of the lanes of one prompt are, at most, during a step or the read-out.

    before: how many symbols BEFORE there are; then means keep their symbols, too.
    """
    gathers, most = Affine(program, {}).gathers, 0
    for layers in dict.fromkeys([*(loop.layers for loop in program.body), program.readout]):
        known: dict[str, dict[int, int]] = {}  # lane -> how many symbols it has from every instruction
        for number, i in enumerate(i for layer in layers for i in layer.instructions):
            lane, f = i.dst.lane, in_place(i)
            if f is not None and not any(f.plus_identity.slopes):
                known.pop(lane, None)
            elif before or not gathers(lane):
                found = {number: program.stream[lane].size}
                for view in i.views():  # a mean has the symbols of all tokens
                    scale = tokens if gathers(lane) and not gathers(view.lane) else 1
                    found |= {key: scale * n for key, n in known.get(view.lane, {}).items()}
                known[lane] = found
            sizes = {name: (1 if gathers(name) else tokens) * program.stream[name].size for name in known}
            most = max(most, sum(size * (before + sum(known[name].values())) for name, size in sizes.items()))
    return most + 4 * before**2


def radius_of(error: Error, like: Tensor, kinds: str = "ISGRN") -> Tensor:
    """The radius of the parts of these kinds, of the shape of the lane."""
    sizes = (measure(key, part) for key, part in error.items() if key.kind in kinds)
    return sound(sum(sizes, torch.zeros_like(like)))


def _placed(part: Labelled, dst: View, full: torch.Size, *symbols: str) -> Tensor:
    """A value written into a view of a lane, as a tensor of the whole lane: zero elsewhere. symbols: of a last axis."""
    values = grouped(part, "B", "I", *dst.labels, *symbols)
    whole = torch.zeros(*full, *values.shape[2 + len(dst.labels) :], dtype=torch.float64)
    whole[(slice(None), slice(None), *dst.place)] = values
    return whole


def _placed_long(added: Long, dst: View, full: torch.Size) -> Array:
    """The same, of numbers in extended precision."""
    whole = np.zeros(full, np.longdouble)
    whole[(slice(None), slice(None), *dst.place)] = added.aligned("BI" + "".join(dst.labels))
    return whole


def _placed_ball(form: Form, dst: View, full: torch.Size) -> Tensor:
    """The ball of a written value, which counts as often as its vector is repeated."""
    written = math.prod(size for size, index in zip(full[2:], dst.index, strict=True) if isinstance(index, str))
    entries = math.prod(grouped(form.centre, "B", "I", *dst.labels).shape[2:])
    norm = form.parts[BALL].aligned("BI").expand(full[:2]) * math.sqrt(written / max(1, entries))
    return norm.view(*norm.shape, *[1] * len(full[2:]))


# ---------------------------------------------------------------------------------------------------- sums and products


def _through(others: list[Labelled], factor: Form, key: Key, keep: str) -> Labelled:
    """A part of the error of a factor, times the other factors. Of the tokens S that are summed over symbols remain; a
    ball is multiplied by the norm of the linear map that the others are, and those of tokens not kept are added up.
    """
    part, axes = factor.parts[key], factor.tokens
    if key.kind == "R":
        return contract([*(other.map(torch.abs) for other in others), part], keep)
    if key.kind != "N":
        return contract([*others, part], keep + ("SZ" if key.kind == "S" and "S" not in keep else "Z"))
    inner, outer = without(factor.centre.labels, axes), without(keep, axes)
    matrix = contract(others, axes + outer + without(inner, outer))
    tokens = among(matrix.labels, axes)
    matrices = grouped(matrix, *tokens, among(inner, outer), without(outer, inner), without(inner, outer))
    return contract([Labelled(spectral_norm(matrices).amax(-1), tokens), part], among(keep, axes))


def _radius_through(factors: list[Form], key: Key, keep: str) -> Labelled:
    """The radius that symbols of the tokens S have in a product that is summed over them. Where several factors have
    them they may cancel, so coefficients are added first: some entries at a time, for they are as many as there are
    entries, tokens and symbols.
    """
    having = [m for m, factor in enumerate(factors) if key in factor.parts]
    if len(having) == 1:
        others = [factor.centre.map(torch.abs) for m, factor in enumerate(factors) if m != having[0]]
        return contract([*others, factors[having[0]].parts[key].map(torch.abs)], keep)
    tensors = [*(factor.centre for factor in factors), *(factors[m].parts[key] for m in having)]
    lengths = {label: n for part in tensors for label, n in zip(part.labels, part.tensor.shape, strict=True)}
    kept = [label for label in keep if label in lengths]
    along = max(kept, key=lambda label: lengths[label])
    held = math.prod(lengths.get(label, 1) for label in (*kept, "S", "Z"))
    pieces = min(lengths[along], -(-held // PIECE))
    edges, found = [lengths[along] * i // pieces for i in range(pieces + 1)], list[Labelled]()
    for ends in pairwise(edges):
        centres = [_part(factor.centre, along, *ends) for factor in factors]
        parts = [_part(factors[m].parts[key], along, *ends) for m in having]
        rests = [[*centres[:m], *centres[m + 1 :]] for m in having]
        whole = total([contract([*rest, part], keep + "SZ") for rest, part in zip(rests, parts, strict=True)])
        found.append(contract([whole.map(torch.abs)], without(whole.labels, "SZ")))
    labels = found[0].labels
    return Labelled(torch.cat([part.tensor for part in found], dim=labels.index(along)), labels)


def _part(value: Labelled, label: str, start: int, end: int) -> Labelled:
    """Some entries along an axis, if there is such."""
    if label not in value.labels:
        return value
    axis = value.labels.index(label)
    return Labelled(value.tensor.narrow(axis, start, end - start), value.labels)


def _underflow(factors: list[Form], keep: str) -> list[dict[Key, Labelled]]:
    """The loss of products of values, of radii and of both below the smallest normal number, times the largest other
    factors. Zero, unless some are that small.
    """
    sizes = [(factor.centre.map(torch.abs), factor.radius) for factor in factors]
    if math.prod(min(1.0, _least([part.tensor for part in pair])) for pair in sizes) >= UNDERFLOW:
        return []  # in every order of multiplication
    parts = [[part.tensor[part.tensor > 0] for part in pair] for pair in sizes]
    most = math.prod(max([1.0, *(float(part.max()) for part in pair if part.numel())]) for pair in parts)
    terms = contract([(centre + radius).map(lambda size: (size > 0).double()) for centre, radius in sizes], keep)
    return [{LOOSE: terms.map(lambda count: count * (SMALLEST_NORMAL * most))}]


def _weighted(form: Form, weight: Labelled, off: float) -> Form:
    """The form times a number that depends on no index, and is off by this share of itself."""
    centre, size = times(weight, form.centre), weight.map(torch.abs)
    parts = {key: times(size if key.kind in "RN" else weight, part) for key, part in form.parts.items()}
    loose = [{LOOSE: centre.map(lambda value: off * value.abs())}] if off else []
    factors = [weight.tensor, *(part.tensor for part in (form.centre, *form.parts.values()))]
    if min(1.0, _least(factors[:1])) * min(1.0, _least(factors[1:])) < UNDERFLOW:  # errors are rounded, too
        lost = SMALLEST_NORMAL * max(1.0, float(size.tensor.max()))
        some = times(size.map(torch.sign), (form.centre.map(torch.abs) + form.radius).map(torch.sign))
        loose.append({LOOSE: some.map(lambda sign: lost * sign)})
    return Form(centre, merged(parts, *loose), form.tokens)


def _least(tensors: list[Tensor]) -> float:
    """The smallest size that is not zero."""
    found = (torch.where(tensor == 0, math.inf, tensor.abs()).min() for tensor in tensors if tensor.numel())
    return min(map(float, found), default=math.inf)


# ------------------------------------------------------------------------------------------------ functions and softmax


def _sloped(slope: Tensor, labels: str, part: Labelled) -> Labelled:
    """Symbols times a slope; where that is zero they do not count, however large they are."""
    factor = Labelled(slope, labels)
    product = times(factor, part)
    return Labelled(torch.where(factor.aligned(product.labels) == 0, 0.0, product.tensor), product.labels)


def _bent(z: Form, slope: Tensor, curvature: Tensor) -> dict[Key, Labelled]:
    """The ball of f(z): z's, by the steepest slope, and 1/2 sup|f''| |dz|_inf |dz|_2 of the part from BEFORE."""
    labels = z.centre.labels
    if z.earlier is None or z.norm is None:
        return {}
    bend = largest(times(Labelled(0.5 * curvature, labels), z.earlier), z.tokens)
    steepest = largest(Labelled(slope.abs(), labels), z.tokens)
    ball = {BALL: contract([steepest, z.parts[BALL]], "BIS")} if BALL in z.parts else {}
    return merged(ball, {BALL: contract([bend, z.norm], "BIS")})


def touched(t: Tensor, radius: Tensor, intervals: Iterable[tuple[float, float]]) -> Tensor:
    """Where t, known to within the radius, may be in one of the intervals."""
    found = torch.zeros_like(t, dtype=torch.bool)
    for start, end in intervals:
        found |= (t + radius >= start) & (t - radius <= end)
    return found


def slope_range(slopes: Sequence[float]) -> tuple[float, float]:
    """The middle of the slopes, and how far they are from it."""
    return 0.5 * (max(slopes) + min(slopes)), 0.5 * (max(slopes) - min(slopes))


# ----------------------------------------------------------------------------------------------------- parts and labels


def merged(*parts: Mapping[K, P]) -> dict[K, P]:
    """The sum, part by part."""
    found: dict[K, P] = {}
    for key, part in (item for one in parts for item in one.items()):
        found[key] = found[key] + part if key in found else part
    return found


def measure(key: Key, part: Tensor) -> Tensor:
    """rad, symbols on the last axis: Euclidean for the symbols BEFORE, else the sum of absolute coefficients."""
    if key.kind in "RN":
        return part
    return norm_of(part) if key == BEFORE else part.abs().sum(-1)


def norm_of(vectors: Tensor) -> Tensor:
    """Euclidean norms along the last axis, also where squares are too small or too large to be numbers."""
    norms: Tensor = vectors.norm(dim=-1)
    odd = ~((norms > 1e-140) & (norms < 1e140))
    if bool(odd.any()) and vectors.shape[-1]:
        some = vectors[odd]
        largest = some.abs().amax(-1, keepdim=True)
        unit = torch.where((largest > 0) & torch.isfinite(largest), torch.exp2(torch.floor(torch.log2(largest))), 1.0)
        norms[odd] = (some / unit).norm(dim=-1) * unit.squeeze(-1)
    return norms


def sound(radius: Tensor) -> Tensor:
    """Zero times infinity is not known: infinity."""
    return torch.nan_to_num(radius, nan=math.inf, posinf=math.inf)


def power_of_two(number: float) -> bool:
    """Up to its sign: products with it are not rounded."""
    return abs(math.frexp(number)[0]) == 0.5


def gamma(terms: int, unit: float = U) -> float:
    return terms * unit / (1 - terms * unit)


def among(labels: str, some: str) -> str:
    return "".join(label for label in labels if label in some)


def without(labels: str, some: str) -> str:
    return "".join(label for label in labels if label not in some)


def grouped(value: Labelled, *groups: str) -> Tensor:
    """The tensor with one axis for every group of labels."""
    sizes = dict(zip(value.labels, value.tensor.shape, strict=True))
    return value.aligned("".join(groups)).reshape([math.prod(sizes.get(x, 1) for x in group) for group in groups])


def largest(value: Labelled, axes: str) -> Labelled:
    """The largest entry of every token."""
    tokens = among(value.labels, axes)
    return Labelled(grouped(value, *tokens, without(value.labels, axes)).amax(-1), tokens)


def times(factor: Labelled, part: Labelled) -> Labelled:
    """Entry by entry; symbols stay last."""
    return contract([factor, part], without(factor.with_labels(part.labels), "Z") + "Z")


def spectral_norm(matrix: Tensor) -> Tensor:
    """The spectral norm of every matrix (..., rows, columns), infinite where an entry is, or is on the way there."""
    if 1 in matrix.shape[-2:]:
        return sound(norm_of(matrix.flatten(-2)))
    largest = matrix.abs().flatten(-2).amax(-1)
    bad = ~(largest < 1e100)
    unit = torch.where(bad | (largest == 0), 1.0, torch.exp2(torch.floor(torch.log2(largest))))
    finite = torch.where(bad[..., None, None], 0.0, matrix / unit[..., None, None])
    gram = finite @ finite.mT if matrix.shape[-2] <= matrix.shape[-1] else finite.mT @ finite
    norm = torch.linalg.eigvalsh(gram)[..., -1].clamp(min=0.0).sqrt() * unit * (1 + 1e-9)
    return torch.where(bad, math.inf, norm)
