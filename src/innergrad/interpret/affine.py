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
from typing import NamedTuple

import torch
from torch import Tensor

from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import IDENTITY
from innergrad.interpret.form_rules import apply, product, softmax
from innergrad.interpret.forms import BEFORE, Form, Key, mapped, measure, plus, sum_of, times
from innergrad.interpret.lane_errors import Change, LaneErrors, squeezing
from innergrad.interpret.plain import Labelled, contract, labelled_view, scope_mask
from innergrad.program import Attend, Expr, Layer, Program, Score, View
from innergrad.stream import State


class Seen(NamedTuple):
    """The tokens S that matter to a mean, and which axes are tokens to vectors of errors: not S, if tokens S are
    neurons, whose errors together are one vector.
    """

    tokens: Tensor
    axes: str


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
        in_place = {i.dst.lane: i for i in layer.instructions if squeezing(i) is not None}
        for i in layer.instructions:
            if i.dst.lane in in_place and i is not in_place[i.dst.lane]:
                del in_place[i.dst.lane]
        changes: dict[str, list[Change]] = {}
        for i in layer.instructions:
            if i.dst.lane not in in_place:
                changes.setdefault(i.dst.lane, []).append(self._instruction(layer, i, before))
        for lane, i in in_place.items():
            self.squeeze(i, before[lane], after[lane])
        for lane, added in changes.items():
            self.add(lane, added, before[lane], after[lane])
        for lane in {*after} - {*in_place, *changes}:
            same = torch.equal(self._like(lane, before), self._like(lane, after))
            if not same:  # matrices may also touch what they should leave alone
                self.add(lane, [], before[lane], after[lane])
        written = {*in_place, *changes} & {*self.errors}
        self.worst[layer.name] = max(
            (float(self.errors[lane].total(self._like(lane, after)).max()) for lane in written), default=0.0
        )

    def _like(self, lane: str, state: State) -> Tensor:
        return state[lane][:, :1] if self.program.stream[lane].shared else state[lane]

    # ---------------------------------------------------------------------------------------------------- instructions

    def _instruction(self, layer: Layer, i: Attend, before: State) -> Change:
        tokens, keep = max(value.shape[1] for value in before.values()), "BI" + i.family
        mask = scope_mask(self.program, i, before, tokens)
        seen = self._seen(i, before, tokens)
        factors = [] if i.scores and i.value == (View("one"),) else [self._read(i.value, before, i.token, seen)]
        for score in i.scores:
            z = self._argument(score, before, i, seen)
            f, unknown = apply(score.f, self.approximants.get(score.f.name), z)
            self.culprits += [f"{layer.name}, {i.dst.lane}: {reason}" for reason in unknown]
            factors.append(softmax(f, mask, tokens) if i.softmax else f)
        if mask is not None and not i.softmax:
            factors.append(Form(mask))
        summed = any("S" in factor.centre.labels for factor in factors)
        weight, power = torch.tensor(i.scale, dtype=torch.float64), i.power(summed)
        if power > 0:
            weight = weight * tokens
        elif power < 0 and mask is None:
            weight = weight / tokens
        elif power < 0 and mask is not None:
            count = contract([mask], "BI")
            factors.append(Form(Labelled(1.0 / count.tensor.clamp(min=1.0), count.labels)))
        factors.append(Form(Labelled(weight, "")))
        if i.written is not None:
            factors.append(Form(Labelled(before[i.written], "BI")))
        names = [score.f.name for score in i.scores if score.f != IDENTITY]
        source = f"{names[0] if names else 'products'}: {layer.name}, {i.dst.lane}"
        form, read = product(factors, keep, tokens if summed else 1, collapse=True)
        if self.columns and self.gathers(i.dst.lane):
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
        if not self.program.placement or i.scope != "all" or i.softmax:
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

    def _argument(self, score: Score, before: State, i: Attend, seen: Seen | None) -> Form:
        """z = sum over pairs of <q, k>."""
        keep, total = "BIS" + i.family, None
        terms = self._terms(score, i)
        for query, key in score.pairs:
            factors = [self._read(query, before, "I"), self._read(key, before, i.token, seen)]
            form, _ = product(factors, keep, terms)
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
