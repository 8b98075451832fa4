"""The affine interpreter: how far what a transformer computed can be from what the algorithm would have.

It runs beside a forward pass. The values that the transformer produced are the *centres*; for every lane of every token
it carries what the exact value may differ from its centre by, a linear combination of symbols (:class:`Error`). Lanes
share symbols, so errors that cancel do cancel.

    z = <q, k>        dz = <dq, k> + <q, dk> + [rad dq rad dk]
    f(z)              df = f'(z) dz + [eps_f + 1/2 sup|f''| rad(dz)^2]             eps_f: the approximant's proven error
    f v               d(f v) = f dv + v df + [rad df rad dv]
    softmax(z)        da_s = a_s (dz_s - sum_r a_r dz_r) + [2 rho^2 exp(2 rho) a_s],  rho = max rad(dz)

What is in brackets becomes a new symbol, one for every entry of the lane that is written. So remainders of second order
come back as symbols of the first: they do not accumulate. Near a kink of f only slopes on both sides are known.

Symbols are of two kinds. Those an instruction makes are in [-1, 1] and belong to one token: rad is the sum of absolute
coefficients, and a sum over tokens adds their radii. The symbols ``BEFORE`` describe what weights and state may be off
by when the step begins: a vector of Euclidean norm at most one, known to all tokens; their rad is the Euclidean norm of
the coefficients. With them the forms enclose the exact step from *every* point of an ellipsoid around the transformer's
weights, and their coefficients are the derivative of the step. Terms of second order in BEFORE are not taken entry by
entry (not all entries can be off by their most at once) but as a vector of bounded Euclidean norm, a lane's *ball*,
which goes through linear maps by their operator norms.

Rounding is not estimated but measured: what a layer wrote is compared with the instruction, evaluated on the same
stream in float64. So one interpreter serves float32 and float64, and every executor. The rounding of that evaluation is
bounded by gamma terms: gamma_m = m u / (1 - m u), u = 2^-53, times the sum of absolute terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.dictionaries import Approximant
from innergrad.functions.facts import local_curvature, local_swing, prove_facts
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import IDENTITY, Function
from innergrad.interpret.forms import (
    BEFORE,
    COMMON,
    Error,
    Form,
    Key,
    U,
    bent,
    diagonal,
    gamma,
    joined,
    mapped,
    measure,
    over_entries,
    plus,
    sound,
    sum_of,
    through,
    times,
    tokens_in,
)
from innergrad.interpret.plain import Labelled, contract, labelled_view, scope_mask
from innergrad.program import Attend, Expr, Layer, Program, Score, View
from innergrad.stream import State


@dataclass
class Change:
    """What an instruction adds to a lane: its form, and the radii of other tokens' symbols by where they come from."""

    dst: View
    form: Form
    source: str
    others: dict[str, Labelled]
    columns: dict[int, Labelled]


class Seen(NamedTuple):
    """The tokens S that matter to a mean, and which axes are tokens to vectors of errors: not S, if tokens S are
    neurons, whose errors together are one vector.
    """

    tokens: Tensor
    axes: str


class Affine:
    """The errors of all lanes, layer by layer.

    approximants: what stands for the functions, with proven errors; functions without one are taken at their exact
    values, so that the error of what the transformer computed instead is measured where it was evaluated.
    columns: keep the symbols that shared lanes and weights are means of, instead of their radii.
    """

    def __init__(self, program: Program, approximants: Mapping[str, Approximant], *, columns: bool = False) -> None:
        self.program, self.approximants, self.columns = program, approximants, columns
        self.errors: dict[str, Error] = {}
        self.sources: list[str] = ["before"]
        self.shares: dict[str, dict[str, Tensor]] = {}  # lane of means -> source -> part of its radius
        self.culprits: list[str] = []  # arguments about which nothing is known
        self.worst: dict[str, float] = {}  # layer -> the largest radius of what it wrote

    def start(self, lane: str, block: Tensor) -> None:
        """The lane is off by ``block`` times the symbols BEFORE."""
        self.errors[lane] = Error({BEFORE: block})

    def given(self, lane: str, radius: Tensor) -> None:
        """An input lane is itself rounded."""
        if bool((radius > 0).any()):
            self.sources.append("rounding")
            self.errors[lane] = Error({len(self.sources) - 1: diagonal(radius)})

    def layer(self, layer: Layer, before: State, after: State) -> None:
        """All instructions read the stream before the layer, then all add; float64 tensors."""
        in_place = {i.dst.lane: i for i in layer.instructions if _in_place(i) is not None}
        for i in layer.instructions:
            if i.dst.lane in in_place and i is not in_place[i.dst.lane]:
                del in_place[i.dst.lane]
        changes: dict[str, list[Change]] = {}
        for i in layer.instructions:
            if i.dst.lane not in in_place:
                changes.setdefault(i.dst.lane, []).append(self._instruction(layer, i, before))
        for lane, i in in_place.items():
            self._squeeze(i, before[lane], after[lane])
        for lane, added in changes.items():
            self._add(lane, added, before[lane], after[lane])
        for lane in {*after} - {*in_place, *changes}:
            same = torch.equal(self._like(lane, before), self._like(lane, after))
            if not same:  # matrices may also touch what they should leave alone
                self._add(lane, [], before[lane], after[lane])
        written = {*in_place, *changes} & {*self.errors}
        self.worst[layer.name] = max(
            (float(self.errors[lane].total(self._like(lane, after)).max()) for lane in written), default=0.0
        )

    def radius(self, lane: str, like: Tensor, *, before: bool = True) -> Tensor:
        error = self.errors.get(lane)
        return torch.zeros_like(like) if error is None else error.total(like, before=before)

    def parts(self, lanes: list[str]) -> dict[str, float]:
        """What the radii of the lanes, summed, are made of; for the mean prompt of the batch."""
        found: dict[str, float] = {}
        for lane in lanes:
            for source, share in self.shares.get(lane, {}).items():
                found[source] = found.get(source, 0.0) + float(share.sum()) / len(share)
            error = self.errors.get(lane, Error())
            for number, block in error.blocks.items():
                source = self.sources[number]
                found[source] = found.get(source, 0.0) + float(measure(block, -1, number).sum()) / len(block)
        return found

    def collapse(self) -> None:
        """Forget the symbols BEFORE: what they were for is a radius from now on."""
        for error in self.errors.values():
            block = error.blocks.pop(BEFORE, None)
            if block is not None:
                size = measure(block, -1, BEFORE)
                error.radius = size if error.radius is None else error.radius + size

    # ---------------------------------------------------------------------------------------------------- instructions

    def _instruction(self, layer: Layer, i: Attend, before: State) -> Change:
        token, family = ("I" if i.scope == "self" else "S"), "".join(i.dst.labels)
        tokens = max(value.shape[1] for value in before.values())
        mask = scope_mask(self.program, i, before, tokens)
        seen = self._seen(i, before, tokens)
        factors = [] if i.scores and i.value == (View("one"),) else [self._read(i.value, before, token, seen)]
        for score in i.scores:
            z = self._argument(score, before, token, i, seen)
            f = self._apply(score.f, z, f"{layer.name}, {i.dst.lane}")
            factors.append(self._softmax(f, mask, tokens) if i.reduce == "softmax" else f)
        if mask is not None and i.reduce != "softmax":
            factors.append(Form(mask))
        reads_all = token == "S"
        summed = any("S" in factor.centre.labels for factor in factors)
        weight = torch.tensor(i.scale, dtype=torch.float64)
        if reads_all and i.reduce == "mean" and summed:
            weight = weight / tokens if mask is None else weight
            if mask is not None:
                count = contract([mask], "BI")
                factors.append(Form(Labelled(1.0 / count.tensor.clamp(min=1.0), count.labels)))
        elif reads_all and i.reduce == "sum" and not summed:
            weight = weight * tokens
        factors.append(Form(Labelled(weight, "")))
        if i.where != "all":
            factors.append(Form(Labelled(before["t" if i.where == "demos" else "query"], "BI")))
        names = [score.f.name for score in i.scores if score.f != IDENTITY]
        source = f"{names[0] if names else 'products'}: {layer.name}, {i.dst.lane}"
        keep = "BI" + family
        form, read = self._product(factors, keep, tokens if summed else 1, collapse=True)
        if self.columns and self._gathers(i.dst.lane):
            columns = {number: _everywhere(block, seen, tokens) for (number, _), block in read.items()}
            return Change(i.dst, form, source, {}, columns)
        others: dict[str, Labelled] = {}
        for (number, _), block in read.items():
            radius = contract([mapped(torch.abs, block)], keep)
            name = self.sources[number]
            others[name] = others[name] + radius if name in others else radius
        return Change(i.dst, form, source, others, {})

    def _seen(self, i: Attend, before: State, tokens: int) -> Seen | None:
        """Where weights are in tokens of their own: the tokens that a mean reads anything but zeros from."""
        if not self.program.placement or i.scope != "all" or i.reduce == "softmax":
            return None
        linear = (score.pairs[0][1] for score in i.scores if score.f == IDENTITY and len(score.pairs) == 1)
        factors, codes = [i.value, *linear], {mark.lane for mark in self.program.marks}
        used = torch.ones(tokens, dtype=torch.bool)
        for expression in factors:
            form = self._read(expression, before, "S")
            parts = [part for part in (form.centre, *form.blocks.values(), form.loose, form.ball) if part is not None]
            if all("S" in part.labels for part in parts):
                used &= torch.stack([_nonzero(part) for part in parts]).any(0)
        used[:2] |= used.sum() < 2  # a single one would pass for a lane that all tokens share
        coded = any(view.lane in codes for expression in factors for view in expression)
        return Seen(used.nonzero().flatten(), "BI" if coded else "BIS")

    def _argument(self, score: Score, before: State, token: str, i: Attend, seen: Seen | None) -> Form:
        """z = sum over pairs of <q, k>."""
        keep, total = "BIS" + "".join(i.dst.labels), None
        terms = self._terms(score, i)
        for query, key in score.pairs:
            factors = [self._read(query, before, "I"), self._read(key, before, token, seen)]
            form, _ = self._product(factors, keep, terms)
            total = form if total is None else sum_of(total, form)
        assert total is not None
        return total

    def _terms(self, score: Score, i: Attend) -> int:
        """Summands of the inner product."""
        sizes, count = self.program.label_sizes(i), 0
        for query, key in score.pairs:
            inner = {label for view in (*query, *key) for label in view.labels} - set(i.dst.labels)
            count += math.prod(sizes[label] for label in inner)
        return count

    def _apply(self, f: Function, z: Form, place: str) -> Form:
        """f(z), with the errors of the argument and of what stands for f."""
        stand_in = self.approximants.get(f.name)
        value, slope = _slope(f if stand_in is None else stand_in, f, z.centre.tensor)
        radius, labels = z.radius().aligned(z.centre.labels).expand_as(value), z.centre.labels
        loose = torch.zeros_like(value) if z.loose is None else z.loose.aligned(labels).expand_as(value)
        epsilon = 0.0 if stand_in is None or stand_in.ramps else stand_in.error
        curvature = _curvature(f, z.centre.tensor, radius, locally=COMMON in z.blocks)
        rough, kept = z.entries().aligned(labels).expand_as(value), slope
        remainder = slope.abs() * loose + 0.5 * curvature * rough * (2 * radius - rough)  # the rest is in the ball
        if f.breaks:
            near = torch.zeros_like(radius, dtype=torch.bool)
            for kink in f.breaks:
                near |= (z.centre.tensor - kink).abs() <= radius
            middle, half = (0.0, prove_facts(f).lipschitz) if f.exact is None else _slopes(f.exact.slopes)
            kept = torch.where(near, middle, slope)
            remainder = torch.where(near, half * radius + abs(middle) * loose, remainder)
        if f.breaks and math.isinf(f.lipschitz) and f.exact is None:  # an infinite slope at a break
            swing = local_swing(f, z.centre.tensor, radius)
            flat = ~(kept.abs() * radius + remainder <= swing)
            slope, kept, curvature = (torch.where(flat, 0.0, part) for part in (slope, kept, curvature))
            remainder = torch.where(flat, swing, remainder)
        for unknown, why in _unknown(f, stand_in, z.centre.tensor, radius):
            if bool(unknown.any()):
                remainder = torch.where(unknown, math.inf, remainder)
                self._blame(z.centre.tensor, radius, unknown, f"{place}: {{}} arguments of {f.name} {why}")
        remainder = remainder + epsilon + 4 * U * (value.abs() + slope.abs() * z.centre.tensor.abs())
        factor = Labelled(kept, labels)
        blocks = {key: contract([factor, block], joined(labels, block.labels)) for key, block in z.blocks.items()}
        ball = bent(z, kept, curvature)
        return Form(Labelled(value, labels), blocks, Labelled(sound(remainder), labels), ball, z.tokens)

    def _blame(self, z: Tensor, radius: Tensor, unknown: Tensor, what: str) -> None:
        worst = torch.where(unknown, radius, -1.0).flatten().argmax()
        at, off = float(z.flatten()[worst]), float(radius.flatten()[worst])
        self.culprits.append(f"{what.format(int(unknown.sum()))}, e.g. z = {at:.3g} known to within {off:.1e}")

    def _softmax(self, z: Form, mask: Labelled | None, tokens: int) -> Form:
        """Attention weights; symbols of the tokens that are read, and loose radii, are taken at their worst."""
        labels = z.centre.labels if "S" in z.centre.labels else z.centre.labels + "S"
        labels = labels if mask is None else joined(labels, mask.labels)
        shape = (z.centre + Labelled(torch.zeros(tokens), "S")).aligned(labels)
        scores = shape if mask is None else shape.masked_fill(mask.aligned(labels) == 0, -math.inf)
        axis = labels.index("S")
        a = torch.nan_to_num(torch.softmax(scores, dim=axis))
        radius = torch.where(a > 0, z.radius().aligned(labels), 0.0)
        rho = radius.amax(axis, keepdim=True)
        rest = Form(z.centre, {key: block for key, block in z.blocks.items() if key[1] == "S"}, z.loose, z.ball)
        rough = rest.radius().aligned(labels).expand_as(a)
        remainder = a * (rough + (a * rough).sum(axis, keepdim=True) + 2 * rho**2 * torch.exp(2 * rho))
        remainder = remainder + (4 * U + gamma(tokens + 2)) * a * (1 + scores.abs().nan_to_num(posinf=0.0))
        weights, blocks = Labelled(a, labels), dict[Key, Labelled]()
        for key, block in z.blocks.items():
            if key[1] != "S":
                own = contract([weights, block], joined(labels, block.labels))
                mean = Labelled(own.tensor.sum(own.labels.index("S")), own.labels.replace("S", ""))
                blocks[key] = own + contract([mapped(torch.neg, weights), mean], own.labels)
        return Form(weights, blocks, Labelled(sound(remainder), labels))

    def _product(
        self, factors: list[Form], keep: str, terms: int, *, collapse: bool = False
    ) -> tuple[Form, dict[Key, Labelled]]:
        """The product of the factors, summed over every label that is not kept.

        collapse: symbols of the tokens that are read do not outlive the sum: their coefficients are given apart.
        """
        centres, axes = [factor.centre for factor in factors], min((factor.tokens for factor in factors), key=len)
        sizes = [mapped(torch.abs, centre) for centre in centres]
        loose = times(contract(sizes, keep), gamma(terms + len(factors) + 1))
        blocks: dict[Key, Labelled] = {}
        read: dict[Key, Labelled] = {}

        def others(m: int) -> list[Labelled]:
            return [*centres[:m], *centres[m + 1 :]]

        for m, factor in enumerate(factors):
            for key, block in factor.blocks.items():
                mine = collapse and key[1] == "S"
                found, kept = (read, keep.replace("I", "IS") + "Z") if mine else (blocks, keep + "Z")
                part = contract([*others(m), block], kept)
                found[key] = found[key] + part if key in found else part
            if factor.loose is not None:
                loose = loose + contract([*sizes[:m], *sizes[m + 1 :], factor.loose], keep)
        balls = [through(others(m), factor, keep, axes) for m, factor in enumerate(factors) if factor.ball is not None]
        erring = {m: (factor.entries(), factor.vector(axes)) for m, factor in enumerate(factors) if factor.errs}
        for a, b in combinations(erring, 2):
            (rough_a, vector_a), (rough_b, vector_b) = erring[a], erring[b]
            rest = [size + factors[m].radius() for m, size in enumerate(sizes) if m not in (a, b)]
            loose = loose + contract([rough_a, factors[b].radius(), *rest], keep)
            if vector_a:
                loose = loose + contract([vector_a[0], rough_b, *rest], keep)
            if vector_a and vector_b:
                largest = [over_entries(torch.amax, part, axes) for part in rest]
                balls.append(contract([vector_a[1], vector_b[1], *largest], tokens_in(keep, axes)))
        ball = None
        for part in balls:
            ball = part if ball is None else ball + part
        return Form(contract(centres, keep), blocks, mapped(sound, loose), ball, axes), read

    # ----------------------------------------------------------------------------------------------------------- lanes

    def _read(self, expression: Expr, state: State, token: str, seen: Seen | None = None) -> Form:
        """A linear combination of lane views, with the errors of the lanes; of the tokens that are seen."""
        axes, at = ("BIS", None) if seen is None else (seen.axes, seen.tokens)

        def some(tensor: Tensor) -> Tensor:
            return tensor if at is None or token != "S" or tensor.shape[1] == 1 else tensor[:, at]

        centre: Labelled | None = None
        loose: Labelled | None = None
        ball: Labelled | None = None
        blocks: dict[Key, Labelled] = {}
        for view in expression:
            term = labelled_view(self.program, view, some(state[view.lane]), token)
            centre = term if centre is None else centre + term
            error = self.errors.get(view.lane)
            if error is None:
                continue
            for number, coefficients in error.blocks.items():
                key = (number, "G" if number == BEFORE else token)
                part = labelled_view(self.program, view, some(coefficients), token, "Z")
                blocks[key] = blocks[key] + part if key in blocks else part
            radius = error.radius
            for number, coefficients in error.columns.items():
                radius = plus(radius, measure(coefficients, -1, number))
            if radius is not None:
                size = mapped(torch.abs, labelled_view(self.program, view, some(radius), token))
                loose = size if loose is None else loose + size
            if error.ball is not None:
                one = error.ball.shape[1] == 1
                norm = Labelled(error.ball[:, 0] if one else some(error.ball), "B" if one else "B" + token)
                if token not in axes and not one:
                    norm = Labelled(norm.tensor.norm(dim=-1), "B")
                norm = times(norm, abs(view.coefficient))
                ball = norm if ball is None else ball + norm
        assert centre is not None
        return Form(centre, blocks, loose, ball, axes)

    def _add(self, lane: str, changes: list[Change], before: Tensor, after: Tensor) -> None:
        """The lane after the layer: coefficients added, new symbols for what is loose and for what was rounded."""
        shared = self.program.stream[lane].shared
        before, after = (before[:, :1], after[:, :1]) if shared else (before, after)
        tokens = max(before.shape[1], after.shape[1])
        shape = self.program.stream[lane].shape
        error, full = self.errors.setdefault(lane, Error()), torch.Size((after.shape[0], tokens, *shape))
        computed, size = torch.zeros(full, dtype=torch.float64), before.abs() + after.abs()
        radii: dict[str, Tensor] = {}
        for change in changes:
            place = (slice(None), slice(None), *_place(change.dst))
            labels = "BI" + "".join(change.dst.labels)
            centre = change.form.centre.aligned(labels)
            computed[place] += centre
            for (number, _), block in change.form.blocks.items():
                added = block.aligned(labels + "Z")
                spread = torch.zeros(*full, added.shape[-1], dtype=torch.float64)
                spread[place] = added
                error.blocks[number] = error.blocks[number] + spread if number in error.blocks else spread
            if change.form.ball is not None:
                norm = change.form.ball.aligned("BI").expand(full[:2])
                copies = full[2:].numel() / max(1, centre[0, 0].numel()) if not _indexed(change.dst) else 1.0
                error.ball = plus(error.ball, norm * math.sqrt(copies))
            for number, block in change.columns.items():
                added = block.aligned(labels + "SZ").flatten(-2)  # symbols of all tokens S
                spread = torch.zeros(*full, added.shape[-1], dtype=torch.float64)
                spread[place] = added
                error.columns[number] = plus(error.columns.get(number), spread)
            loose = {change.source: change.form.loose} if change.form.loose is not None else {}
            for source, part in (*loose.items(), *change.others.items()):
                radii.setdefault(source, torch.zeros(full, dtype=torch.float64))[place] += part.aligned(labels)
        residual = (after - before - computed).abs()
        if changes:  # what no instruction writes is compared without any arithmetic
            residual = residual + gamma(len(changes) + 2) * (size + computed.abs())
        if self._gathers(lane):
            kept = self.shares.setdefault(lane, {})
            for source, radius in ({**radii, "rounding": radii.get("rounding", 0.0) + residual}).items():
                kept[source] = kept[source] + radius if source in kept else radius
                error.radius = radius if error.radius is None else error.radius + radius
            return
        new = sound(sum(radii.values()) + residual)
        if bool((new > 0).any()):
            self.sources.append(changes[0].source if changes else "rounding")
            error.blocks[len(self.sources) - 1] = diagonal(new)

    def _squeeze(self, i: Attend, before: Tensor, after: Tensor) -> None:
        """lane += f(lane), entry by entry, f piecewise linear: clearing a lane removes its error, a projection keeps
        it where the box is not touched.
        """
        f, lane = _in_place(i), i.dst.lane
        assert f is not None
        error = self.errors.get(lane)
        if self.program.stream[lane].shared:
            before, after = before[:, :1], after[:, :1]
        residual = (after - before - f(before)).abs()
        rounded = bool((residual > 0).any())
        if error is None and not rounded:
            return
        error = self.errors.setdefault(lane, Error())
        slopes = [1.0 + slope for slope in f.slopes]
        radius = error.total(before)
        piece = torch.bucketize(before.contiguous(), torch.tensor(f.knots, dtype=torch.float64))
        slope = torch.tensor(slopes, dtype=torch.float64)[piece]
        near = torch.zeros_like(radius, dtype=torch.bool)
        for kink in f.knots:
            near |= (before - kink).abs() <= radius
        middle, half = _slopes(tuple(slopes))
        if error.radius is not None:  # |g(a) - g(b)| <= max slope |a - b|
            error.radius = error.radius * torch.where(near, max(map(abs, slopes)), slope.abs())
        for blocks in (error.blocks, error.columns):
            for number, block in blocks.items():
                size = measure(block, -1, number)
                blocks[number] = block * torch.where(near, middle, slope).unsqueeze(-1)
                if bool(near.any()):
                    error.radius = plus(error.radius, torch.where(near, half * size, 0.0))
        if error.ball is not None:
            steepest = slope.abs().masked_fill(near, max(map(abs, slopes))).view(*slope.shape[:2], -1).amax(-1)
            error.ball = error.ball * steepest if bool((steepest > 0).any()) else None
        if rounded:
            error.radius = plus(error.radius, residual)
        if not bool((error.total(before) > 0).any()):
            self.errors.pop(lane)

    def _gathers(self, lane: str) -> bool:
        """Whether the lane takes means over the examples: its errors are no token's own, but a radius or columns."""
        known = self.program.stream[lane]
        return bool(known.shared) or bool(self.program.placement and known.role in ("weight", "state"))

    def _like(self, lane: str, state: State) -> Tensor:
        return state[lane][:, :1] if self.program.stream[lane].shared else state[lane]


def _indexed(view: View) -> bool:
    return any(isinstance(entry, int) for entry in view.index)


def _slopes(slopes: tuple[float, ...]) -> tuple[float, float]:
    """The middle of the slopes, and how far they are from it."""
    return 0.5 * (max(slopes) + min(slopes)), 0.5 * (max(slopes) - min(slopes))


def _unknown(f: Function, stand_in: Approximant | None, z: Tensor, radius: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Where nothing is known: a step function that may be on either side of a jump, or its stand-in on a ramp; and
    outside the domain of a stand-in.
    """
    intervals = [(at, at) for at, _, _ in f.jumps] if stand_in is None else stand_in.ramps
    if intervals:
        unknown = torch.zeros_like(z, dtype=torch.bool)
        for start, end in intervals:
            unknown |= (z + radius >= start) & (z - radius <= end)
        yield unknown, f"may be at a jump ({', '.join(f'{at:g}' for at, _, _ in f.jumps)})"
    if stand_in is not None and math.isfinite(stand_in.domain[1] - stand_in.domain[0]):
        low, high = stand_in.domain
        yield (z < low) | (z > high), f"left the domain [{low:g}, {high:g}] of its approximant"


def _nonzero(part: Labelled) -> Tensor:
    """The tokens S at which something is not zero, in any prompt."""
    return (part.tensor != 0).movedim(part.labels.index("S"), 0).flatten(1).any(1)


def _everywhere(block: Labelled, seen: Seen | None, tokens: int) -> Labelled:
    """Coefficients of symbols of all tokens S, zero of those that are not seen."""
    if seen is None:
        return block
    axis = block.labels.index("S")
    full = block.tensor.new_zeros(*block.tensor.shape[:axis], tokens, *block.tensor.shape[axis + 1 :])
    return Labelled(full.index_copy(axis, seen.tokens, block.tensor), block.labels)


def _place(dst: View) -> tuple[int | slice, ...]:
    return tuple(entry if isinstance(entry, int) else slice(None) for entry in dst.index)


def _in_place(i: Attend) -> PiecewiseLinear | None:
    """The piecewise-linear f of an instruction that does dst += f(dst), and nothing else."""
    if i.scope != "self" or i.where != "all" or _indexed(i.dst):
        return None
    if not i.scores:
        return PiecewiseLinear((), (i.scale,)) if i.value == (i.dst,) else None
    if len(i.scores) != 1 or i.scale != 1.0 or i.value != (View("one"),):
        return None
    views = [view for query, key in i.scores[0].pairs for view in (*query, *key) if view.lane != "one"]
    return i.scores[0].f.exact if views == [i.dst] else None


def _slope(computed: Approximant | Function, f: Function, z: Tensor) -> tuple[Tensor, Tensor]:
    """The computed value at z, and the derivative of f there."""
    with torch.no_grad():
        value = computed(z)
    if f.jumps:
        return value, torch.zeros_like(value)
    with torch.enable_grad():
        variable = z.detach().requires_grad_()
        (slope,) = torch.autograd.grad(f(variable).sum(), variable, allow_unused=True)
    return value, torch.zeros_like(value) if slope is None else slope.detach()


def _curvature(f: Function, z: Tensor, radius: Tensor, *, locally: bool) -> Tensor | float:
    """A proven bound on |f''|, off the kinks: on all of the line, or between z - radius and z + radius."""
    if f.exact is not None or f.jumps:
        return 0.0
    facts = prove_facts(f)
    if math.isfinite(facts.curvature) and not locally:
        return facts.curvature
    known = torch.isfinite(radius)
    reach = torch.where(known, radius, 0.0)
    bound = local_curvature(f, z - reach, z + reach).clamp(max=facts.curvature)
    if not facts.proven and bool(torch.isinf(bound).all()):
        raise InputError(f"nothing is proven about {f.name}, so there is no certificate", got=facts.reason)
    return torch.where(known, bound, facts.curvature)
