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
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from innergrad.functions.fits.sums import Approximant
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import IDENTITY
from innergrad.interpret.forms import (
    BALL,
    BEFORE,
    Error,
    Form,
    Forms,
    Key,
    gamma,
    grouped,
    measure,
    merged,
    slope_range,
    sound,
    touched,
)
from innergrad.interpret.tensors import Labelled
from innergrad.interpret.walk import added, in_place
from innergrad.ir.program import Attend, Layer, Program, View
from innergrad.ir.stream import State

#: What an instruction adds to a lane; where its own errors come from; where it comes from that not this was computed.
Change = tuple[View, Form, str, str]
EARLIER = Key("before", 0, "R")  # what BEFORE was good for in earlier steps


def total(error: Error, like: Tensor, kinds: str = "ISGRN") -> Tensor:
    """The radius of the parts of these kinds, of the shape of the lane."""
    sizes = (measure(key, part) for key, part in error.items() if key.kind in kinds)
    return sound(sum(sizes, torch.zeros_like(like)))


class Affine:
    """The errors of all lanes, layer by layer.

    approximants: what stands for the functions. pointwise: functions are taken at their exact values, so that the error
    of what the transformer computed instead is measured where it was evaluated; else it is the proven one.
    columns: keep the symbols that shared lanes and weights are means of, instead of their radii.
    """

    def __init__(
        self,
        program: Program,
        approximants: Mapping[str, Approximant],
        *,
        pointwise: bool = False,
        columns: bool = False,
    ) -> None:
        self.program, self.approximants, self.pointwise, self.columns = program, approximants, pointwise, columns
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
        return merged(*({key.source: float(sound(measure(key, part)).sum()) / len(part)} for key, part in errors))

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
        writers: dict[str, list[Attend]] = {}
        for i in layer.instructions:
            writers.setdefault(i.dst.lane, []).append(i)
        alone = {lane: f for lane, (i, *more) in writers.items() if not more and (f := in_place(i)) is not None}
        others = {lane: instructions for lane, instructions in writers.items() if lane not in alone}
        changes = {lane: [self._change(layer, i, before) for i in some] for lane, some in others.items()}
        for lane, old in before.items():
            if lane in alone:
                self.squeeze(lane, alone[lane], old, after[lane])
            elif lane in changes or not torch.equal(old, after[lane]):  # matrices may touch what they should leave
                self.add(lane, changes.get(lane, []), old, after[lane])
        self.worst[layer.name] = max((float(self.radius(lane, after[lane]).max()) for lane in writers), default=0.0)

    def _change(self, layer: Layer, i: Attend, before: State) -> Change:
        algebra = Forms(self.program, self.approximants, self.pointwise, self.errors, before, i)
        form = added(self.program, i, algebra)
        self.culprits += [f"{layer.name}, {i.dst.lane}: {reason}" for reason in algebra.culprits]
        functions = [score.f for score in i.scores if score.f != IDENTITY]
        source = f"{functions[0].name if functions else 'products'}: {layer.name}, {i.dst.lane}"
        measured = self.pointwise and any(f.exact is None and f.name in self.approximants for f in functions)
        if self.columns and self.gathers(i.dst.lane):
            read = {key: algebra.everywhere(part) for key, part in form.parts.items() if key.kind == "S"}
            form = replace(form, parts={**form.parts, **read})
        return i.dst, form, source, source if measured else "rounding"

    def add(self, lane: str, changes: list[Change], before: Tensor, after: Tensor) -> None:
        """The lane after the layer: coefficients added, new symbols for what is loose and for what was rounded."""
        full = torch.Size((len(after), max(before.shape[1], after.shape[1]), *self.program.stream[lane].shape))
        error, computed = self.errors.get(lane, {}), torch.zeros(full, dtype=torch.float64)
        radii, apart = dict[str, Tensor](), "R" if self.columns and self.gathers(lane) else "RS"
        for dst, form, source, _ in changes:
            computed = computed + _placed(form.centre, dst, full)
            for key, part in form.parts.items():
                if key.kind in apart:
                    radii = merged(radii, {key.source or source: _placed(form.size(key), dst, full)})
                elif key == BALL:
                    error = merged(error, {BALL: _placed_ball(form, dst, full)})
                else:
                    error = merged(error, {key: _placed(part, dst, full, "SZ")})
        residual = (after - before - computed).abs()
        if changes:  # what no instruction writes is compared without any arithmetic
            residual = residual + gamma(len(changes) + 2) * (before.abs() + after.abs() + computed.abs())
        radii = merged(radii, {next((off for *_, off in changes if off != "rounding"), "rounding"): residual})
        if self.gathers(lane):
            found = {Key(source, 0, "R"): radius for source, radius in radii.items()}
        else:
            found = self._symbols(changes[0][2] if changes else "rounding", sum(radii.values()))
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


def _placed_ball(form: Form, dst: View, full: torch.Size) -> Tensor:
    """The ball of what is written, which counts as often as its vector is repeated."""
    written = math.prod(size for size, index in zip(full[2:], dst.index, strict=True) if isinstance(index, str))
    entries = math.prod(grouped(form.centre, "B", "I", *dst.labels).shape[2:])
    norm = form.parts[BALL].aligned("BI").expand(full[:2]) * math.sqrt(written / max(1, entries))
    return norm.view(*norm.shape, *[1] * len(full[2:]))
