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
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import IDENTITY
from innergrad.interpret.forms import (
    BALL,
    BEFORE,
    LOOSE,
    Form,
    Key,
    apply,
    divided,
    gamma,
    grouped,
    measure,
    merged,
    product,
    scaled,
    slope_range,
    softmax,
    sound,
    summed,
    touched,
)
from innergrad.interpret.tensors import Labelled, labelled_view, tokens_in
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place
from innergrad.ir.program import Attend, Expr, Layer, Program, Score, View
from innergrad.ir.stream import State

#: The parts of what a lane is off by: (batch, tokens or 1, *shape), and the symbols; a ball is one number per token.
#: A lane of means has a radius for every source, or symbols of all tokens (kind S), which the means are made of.
Error = dict[Key, Tensor]
EARLIER = Key("before", 0, "R")  # what BEFORE was good for in earlier steps


def total(error: Error, like: Tensor, kinds: str = "ISGRN") -> Tensor:
    """The radius of the parts of these kinds, of the shape of the lane."""
    radius = torch.zeros_like(like)
    for key, part in error.items():
        if key.kind in kinds:
            radius = radius + measure(key, part)
    return sound(radius)


class Change(NamedTuple):
    """What an instruction adds to a lane: a form without radii, and these by where they come from."""

    dst: View
    form: Form
    source: str
    radii: dict[str, Labelled]


class Affine:
    """The errors of all lanes, layer by layer.

    approximants: what stands for the functions, with proven errors; functions without one are taken at their exact
    values, so that the error of what the transformer computed instead is measured where it was evaluated.
    columns: keep the symbols that shared lanes and weights are means of, instead of their radii.
    """

    def __init__(self, program: Program, approximants: Mapping[str, Approximant], *, columns: bool = False) -> None:
        self.program, self.approximants, self.columns = program, approximants, columns
        self.errors: dict[str, Error] = {}
        self.culprits: list[str] = []  # arguments about which nothing is known
        self.worst: dict[str, float] = {}  # layer -> the largest radius of what it wrote
        self._numbers = count(1)

    def start(self, lane: str, block: Tensor) -> None:
        """The lane is off by ``block`` times the symbols BEFORE."""
        self.errors[lane] = {BEFORE: block}

    def given(self, lane: str, radius: Tensor) -> None:
        """An input lane is itself rounded."""
        self._keep(lane, self._symbols("rounding", radius))

    def radius(self, lane: str, like: Tensor) -> Tensor:
        return total(self.errors.get(lane, {}), like)

    def parts(self, lanes: list[str]) -> dict[str, float]:
        """What the radii of the lanes, summed, are made of; for the mean prompt of the batch."""
        errors = (item for lane in lanes for item in self.errors.get(lane, {}).items())
        return merged(*({key.source: float(measure(key, part).sum()) / len(part)} for key, part in errors))

    def collapse(self) -> None:
        """Forget the symbols BEFORE: what they were for is a radius from now on."""
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
        writers = Counter(i.dst.lane for i in layer.instructions)
        alone: dict[str, PiecewiseLinear] = {}
        changes: dict[str, list[Change]] = {}
        for i in layer.instructions:
            f = in_place(i)
            if f is not None and writers[i.dst.lane] == 1:
                alone[i.dst.lane] = f
            else:
                changes.setdefault(i.dst.lane, []).append(self._change(layer, i, before))
        for lane, old in before.items():
            if lane in alone:
                self.squeeze(lane, alone[lane], old, after[lane])
            elif lane in changes or not torch.equal(old, after[lane]):  # matrices may touch what they should leave
                self.add(lane, changes.get(lane, []), old, after[lane])
        self.worst[layer.name] = max((float(self.radius(lane, after[lane]).max()) for lane in writers), default=0.0)

    def _change(self, layer: Layer, i: Attend, before: State) -> Change:
        algebra = Forms(self, before, i)
        form = added(self.program, i, algebra)
        self.culprits += [f"{layer.name}, {i.dst.lane}: {reason}" for reason in algebra.unknown]
        names = [score.f.name for score in i.scores if score.f != IDENTITY]
        source = f"{names[0] if names else 'products'}: {layer.name}, {i.dst.lane}"
        parts: dict[Key, Labelled] = {}
        radii = {source: form.parts[LOOSE]}
        for key, part in form.parts.items():
            if key.kind == "S" and self.columns and self.gathers(i.dst.lane):
                parts[key] = algebra.everywhere(part)
            elif key.kind == "S":
                radii = merged(radii, {key.source: form.size(key)})
            elif key != LOOSE:
                parts[key] = part
        return Change(i.dst, replace(form, parts=parts), source, radii)

    def add(self, lane: str, changes: list[Change], before: Tensor, after: Tensor) -> None:
        """The lane after the layer: coefficients added, new symbols for what is loose and for what was rounded."""
        full = torch.Size((len(after), max(before.shape[1], after.shape[1]), *self.program.stream[lane].shape))
        error, computed = self.errors.get(lane, {}), torch.zeros(full, dtype=torch.float64)
        radii: dict[str, Tensor] = {}
        for dst, form, _, loose in changes:
            computed = computed + _placed(form.centre, dst, full)
            error = merged(error, {key: _placed_part(key, form, dst, full) for key in form.parts})
            radii = merged(radii, {source: _placed(part, dst, full) for source, part in loose.items()})
        residual = (after - before - computed).abs()
        if changes:  # what no instruction writes is compared without any arithmetic
            residual = residual + gamma(len(changes) + 2) * (before.abs() + after.abs() + computed.abs())
        radii = merged(radii, {"rounding": residual})
        if self.gathers(lane):
            found = {Key(source, 0, "R"): radius for source, radius in radii.items()}
        else:
            found = self._symbols(changes[0].source if changes else "rounding", sum(radii.values()))
        self._keep(lane, merged(error, found))

    def squeeze(self, lane: str, f: PiecewiseLinear, before: Tensor, after: Tensor) -> None:
        """lane += f(lane), entry by entry, f piecewise linear: clearing a lane removes its error, a projection keeps
        it where the box is not touched.
        """
        error, slopes = self.errors.get(lane, {}), [1.0 + slope for slope in f.slopes]
        piece = torch.bucketize(before.contiguous(), torch.tensor(f.knots, dtype=torch.float64))
        slope = torch.tensor(slopes, dtype=torch.float64)[piece]
        near = touched(before, total(error, before), zip(f.knots, f.knots, strict=True))
        middle, half = slope_range(slopes)
        kept, steepest = torch.where(near, middle, slope), torch.where(near, max(map(abs, slopes)), slope.abs())
        found: list[Error] = [{Key("rounding", 0, "R"): (after - before - f(before)).abs()}]
        for key, part in error.items():
            if key.kind == "R":  # |g(a) - g(b)| <= max slope |a - b|
                found.append({key: part * steepest})
            elif key.kind == "N":
                found.append({key: part * steepest.reshape(*part.shape[:2], -1).amax(-1).view(part.shape)})
            else:
                rest = torch.where(near, half * measure(key, part), 0.0)
                found.append({key: part * kept.unsqueeze(-1), Key(key.source, 0, "R"): rest})
        self._keep(lane, merged(*found))

    def _symbols(self, source: str, radius: Tensor) -> Error:
        """One new symbol for every entry of every token: a last axis of as many as a token has entries."""
        entries = torch.diag_embed(sound(radius).reshape(*radius.shape[:2], -1))
        return {Key(source, next(self._numbers), "I"): entries.reshape(*radius.shape, -1)}

    def _keep(self, lane: str, error: Error) -> None:
        """All that is not zero."""
        self.errors[lane] = {key: part for key, part in error.items() if bool((part != 0).any())}


def _placed(part: Labelled, dst: View, full: torch.Size, *symbols: str) -> Tensor:
    """What is written into a view of a lane, as a tensor of the whole lane: zero elsewhere. symbols: of a last axis."""
    values = grouped(part, "B", "I", *dst.labels, *symbols)
    whole = torch.zeros(*full, *values.shape[2 + len(dst.labels) :], dtype=torch.float64)
    whole[(slice(None), slice(None), *dst.place)] = values
    return whole


def _placed_part(key: Key, form: Form, dst: View, full: torch.Size) -> Tensor:
    """A part of the error of what is written, of the whole lane; a ball counts as often as its vector is repeated."""
    if key != BALL:
        return _placed(form.parts[key], dst, full, "SZ")
    written = math.prod(size for size, index in zip(full[2:], dst.index, strict=True) if isinstance(index, str))
    entries = math.prod(grouped(form.centre, "B", "I", *dst.labels).shape[2:])
    norm = form.parts[BALL].aligned("BI").expand(full[:2]) * math.sqrt(written / max(1, entries))
    return norm.view(*norm.shape, *[1] * len(full[2:]))


@dataclass(frozen=True)
class Used:
    """The tokens S that matter to a mean, and which axes are tokens to vectors of errors: not S, if tokens S are
    neurons, whose errors together are one vector.
    """

    tokens: Tensor
    axes: str


class Forms(Algebra[Form]):
    """Values with errors, of one instruction on a stream."""

    def __init__(self, lanes: Affine, state: State, i: Attend) -> None:
        self.lanes, self.program, self.state, self.i = lanes, lanes.program, state, i
        self.unknown: list[str] = []
        self.tokens, self.masked = tokens_in(state), False

    @cached_property
    def used(self) -> Used | None:
        """Where weights are in tokens of their own: the tokens that a mean over all reads anything but zeros from."""
        if not self.program.placement or self.masked:
            return None
        linear = (score.pairs[0][1] for score in self.i.scores if score.f == IDENTITY and len(score.pairs) == 1)
        factors, codes = [self.i.value, *linear], {mark.lane for mark in self.program.marks}
        used = torch.ones(self.tokens, dtype=torch.bool)
        for expression in factors:
            form = self._combined(expression, "S", None)
            parts = [form.centre, *form.parts.values()]
            if all("S" in part.labels for part in parts):
                used &= torch.stack([_nonzero(part) for part in parts]).any(0)
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

    # ------------------------------------------------------------------------------------------------------ operations

    def read(self, expression: Expr, token: Token) -> Form:
        return self._combined(expression, token, self.used if token == "S" else None)

    def _combined(self, expression: Expr, token: Token, used: Used | None) -> Form:
        """A linear combination of lane views, with the errors of the lanes; of the tokens that are used."""
        axes = "BIS" if used is None else used.axes
        return summed([self._view(view, token, used, axes) for view in expression])

    def _view(self, view: View, token: Token, used: Used | None, axes: str) -> Form:
        def labelled(tensor: Tensor, view: View = view, extra: str = "") -> Labelled:
            some = tensor if used is None or tensor.shape[1] == 1 else tensor[:, used.tokens]
            return labelled_view(self.program, view, some, token, extra)

        parts: dict[Key, Labelled] = {}
        for key, part in self.lanes.errors.get(view.lane, {}).items():
            if key == BALL:
                ball = labelled(part.flatten(1), replace(view, index=())).map(torch.abs)
                parts[BALL] = ball if ball.labels[-1] in axes else Labelled(ball.tensor.norm(dim=-1), "B")
            elif key.kind in "RS":
                parts = merged(parts, {LOOSE: labelled(measure(key, part)).map(torch.abs)})
            else:
                parts[key if key == BEFORE else key._replace(kind=token)] = labelled(part, extra="Z")
        return Form(labelled(self.state[view.lane]), parts, axes)

    def product(self, factors: list[Form], keep: str) -> Form:
        return product(factors, keep)

    def sum(self, terms: list[Form]) -> Form:
        return summed(terms)

    def apply(self, score: Score, argument: Form, value: Form | None) -> Form:
        del value
        form, unknown = apply(score.f, self.lanes.approximants.get(score.f.name), argument)
        self.unknown += unknown
        return form

    def softmax(self, scores: Form, mask: Form | None) -> Form:
        if self.used is not None:
            raise InputError("no errors are known of a softmax over tokens that carry weights", got=self.i.dst.lane)
        return softmax(scores, None if mask is None else mask.centre, self.tokens)

    def mask(self, seen: Seen) -> Form:
        self.masked = True
        return Form(Labelled(seen.mask(self.state, self.tokens), seen.labels))

    def count(self, value: Form, mask: Form | None, power: Literal[-1, 1]) -> Form:
        if power > 0:
            return scaled(value, self.tokens)
        return divided(value, None if mask is None else mask.centre, self.tokens)

    def scale(self, value: Form, factor: float) -> Form:
        return scaled(value, factor)

    def varies(self, value: Form) -> bool:
        return "S" in value.centre.labels


def _nonzero(part: Labelled) -> Tensor:
    """The tokens S at which something is not zero, in any prompt."""
    return (part.tensor != 0).movedim(part.labels.index("S"), 0).flatten(1).any(1)
