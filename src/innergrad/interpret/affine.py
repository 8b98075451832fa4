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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import IDENTITY
from innergrad.interpret.form_rules import apply, divided, product, scaled, softmax, summed
from innergrad.interpret.forms import BEFORE, Form, Key, measure, plus
from innergrad.interpret.lane_errors import Change, LaneErrors
from innergrad.interpret.plain import Labelled, contract, labelled_view, tokens_in
from innergrad.interpret.walk import Algebra, Seen, Token, added, in_place
from innergrad.ir.program import Attend, Expr, Layer, Program, Score, View
from innergrad.ir.stream import State


class Affine(LaneErrors):
    """The errors of all lanes, layer by layer.

    approximants: what stands for the functions, with proven errors; functions without one are taken at their exact
    values, so that the error of what the transformer computed instead is measured where it was evaluated.
    columns: keep the symbols that shared lanes and weights are means of, instead of their radii.
    """

    def __init__(self, program: Program, approximants: Mapping[str, Approximant], *, columns: bool = False) -> None:
        super().__init__(program)
        self.approximants, self.columns = approximants, columns
        self.culprits: list[str] = []  # arguments about which nothing is known
        self.worst: dict[str, float] = {}  # layer -> the largest radius of what it wrote

    def layer(self, layer: Layer, before: State, after: State) -> None:
        """All instructions read the stream before the layer, then all add; float64 tensors."""
        alone = {i.dst.lane: i for i in layer.instructions if in_place(i) is not None}
        for i in layer.instructions:
            if i.dst.lane in alone and i is not alone[i.dst.lane]:
                del alone[i.dst.lane]
        changes: dict[str, list[Change]] = {}
        for i in layer.instructions:
            if i.dst.lane not in alone:
                changes.setdefault(i.dst.lane, []).append(self._change(layer, i, before))
        for lane, i in alone.items():
            self.squeeze(i, before[lane], after[lane])
        for lane, added_to in changes.items():
            self.add(lane, added_to, before[lane], after[lane])
        for lane in {*after} - {*alone, *changes}:
            same = torch.equal(self._like(lane, before), self._like(lane, after))
            if not same:  # matrices may also touch what they should leave alone
                self.add(lane, [], before[lane], after[lane])
        written = {*alone, *changes} & {*self.errors}
        self.worst[layer.name] = max(
            (float(self.errors[lane].total(self._like(lane, after)).max()) for lane in written), default=0.0
        )

    def _like(self, lane: str, state: State) -> Tensor:
        return state[lane][:, :1] if self.program.stream[lane].shared else state[lane]

    def _change(self, layer: Layer, i: Attend, before: State) -> Change:
        forms = Forms(self, before, i)
        form = added(self.program, i, forms)
        self.culprits += [f"{layer.name}, {i.dst.lane}: {reason}" for reason in forms.unknown]
        names = [score.f.name for score in i.scores if score.f != IDENTITY]
        source = f"{names[0] if names else 'products'}: {layer.name}, {i.dst.lane}"
        if self.columns and self.gathers(i.dst.lane):
            return Change(i.dst, form, source, {}, {n: forms.everywhere(block) for (n, _), block in form.read.items()})
        others: dict[str, Labelled] = {}
        for (number, _), block in form.read.items():
            radius, name = contract([block.map(torch.abs)], "BI" + i.family), self.sources[number]
            others[name] = others[name] + radius if name in others else radius
        return Change(i.dst, form, source, others, {})


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
            parts = [part for part in (form.centre, *form.blocks.values(), form.loose, form.ball) if part is not None]
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
        def labelled(tensor: Tensor, extra: str = "") -> Labelled:
            some = tensor if used is None or tensor.shape[1] == 1 else tensor[:, used.tokens]
            return labelled_view(self.program, view, some, token, extra)

        form, error = Form(labelled(self.state[view.lane]), tokens=axes), self.lanes.errors.get(view.lane)
        if error is None:
            return form
        blocks: dict[Key, Labelled] = {
            (number, "G" if number == BEFORE else token): labelled(coefficients, "Z")
            for number, coefficients in error.blocks.items()
        }
        radius, ball = error.radius, error.ball
        for number, coefficients in error.columns.items():
            radius = plus(radius, measure(coefficients, -1, number))
        loose = None if radius is None else labelled(radius).map(torch.abs)
        if ball is None:
            return replace(form, blocks=blocks, loose=loose)
        if ball.shape[1] == 1:
            ball, labels = ball[:, 0], "B"
        else:
            ball, labels = ball if used is None else ball[:, used.tokens], "B" + token
        if labels[-1] not in axes:
            ball, labels = ball.norm(dim=-1), "B"
        return replace(form, blocks=blocks, loose=loose, ball=Labelled(ball * abs(view.coefficient), labels))

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
