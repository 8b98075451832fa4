"""The affine interpreter: how far a step, as the transformer computed it, can be from the exact step.

It runs beside the values that the transformer produced (the *centres*) and carries, for every lane of every token, what
the exact value may differ from its centre by: a linear combination of symbols in [-1, 1] (:class:`Error`). Symbols are
shared by lanes, so that errors that cancel do cancel.

    z = <q, k>        dz = <dq, k> + <q, dk> + (rad dq rad dk)
    f(z)              df = f'(z) dz + (eps_f + 1/2 sup|f''| rad(dz)^2)             eps_f: the approximant's proven error
    f v               d(f v) = f dv + v df + (rad df rad dv)
    mean over tokens  each token has symbols of its own, so the radii are averaged

rad is the sum of the absolute coefficients; what is in brackets becomes a new symbol, one for every entry written. So
remainders of second order come back as symbols of the first: they do not accumulate. Near a kink of f (closer than
rad dz) f is known to be Lipschitz, and no more. Every symbol remembers which function or product it stands for: the
final radius is the sum of their shares.

Rounding of the centres themselves enters with unit roundoff u: inner products of m terms are off by (m + 2) u of the
sum of their absolute terms, a function by four roundings of its value, and of its argument times the slope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.dictionaries import Approximant
from innergrad.functions.scalar import IDENTITY, NEGATION, Function
from innergrad.interpret.plain import Labelled, contract, labelled_view
from innergrad.program import Attend, Expr, Layer, Program, Score, View
from innergrad.stream import State

Blocks = dict[int, Tensor]  # symbols, by where they come from -> coefficients (batch, tokens, *shape, symbols)


@dataclass
class Error:
    """What a lane may be off by: coefficients of symbols, and a radius of symbols that no other lane has."""

    blocks: Blocks = field(default_factory=dict)
    own: Tensor | None = None

    def radius(self, like: Tensor) -> Tensor:
        total = torch.zeros_like(like) if self.own is None else self.own.expand_as(like)
        for coefficients in self.blocks.values():
            total = total + coefficients.abs().sum(-1)
        return _sound(total)


@dataclass
class Form:
    """A value with labelled axes, and its error: blocks, whose last label is Z, and a radius that has no symbols yet,
    ``loose``, with the labels of the centre. An instruction gives it one symbol for each entry it writes.
    """

    centre: Labelled
    blocks: dict[int, Labelled]
    loose: Tensor

    def radius(self) -> Labelled:
        total = Labelled(self.loose, self.centre.labels)
        for block in self.blocks.values():
            labels = block.labels.replace("Z", "")
            total = total + Labelled(block.tensor.abs().sum(block.labels.index("Z")), labels)
        return Labelled(_sound(total.aligned(self.centre.labels).expand_as(self.centre.tensor)), self.centre.labels)


class Affine:
    """The errors of all lanes, layer by layer. ``sources`` names what every block of symbols stands for."""

    def __init__(self, program: Program, approximants: Mapping[str, Approximant], roundoff: float) -> None:
        self.program, self.approximants, self.u = program, approximants, roundoff
        self.errors: dict[str, Error] = {}
        self.sources: list[str] = ["rounding"]
        self.shares: dict[str, dict[str, Tensor]] = {}  # lane -> source -> share of the radius of shared lanes

    def layer(self, layer: Layer, before: State) -> None:
        """All instructions read the state before the layer; then all add."""
        if "omega" not in self.errors:  # weights of the examples are quotients: rounded
            self.errors["omega"] = Error({0: 4 * self.u * before["omega"].abs().unsqueeze(-1)})
        changes: list[tuple[View, Form, dict[str, Labelled] | None]] = []
        cleared = set()
        for instruction in layer.instructions:
            if _in_place(instruction):
                cleared |= _cleared(instruction)
            else:
                changes.append(self._instruction(layer, instruction, before))
        for lane in cleared:
            self.errors.pop(lane, None)
        for dst, form, shares in changes:
            if shares is not None:  # the weight itself is rounded when something is added to it
                kept = Labelled(before[dst.lane][:, 0][(slice(None), *_place(dst))].abs(), "B" + "".join(dst.labels))
                shares["rounding"] = shares["rounding"] + Labelled(2 * self.u * kept.tensor, kept.labels)
            self._add(dst, form, shares, before[dst.lane])

    # ---------------------------------------------------------------------------------------------------- instructions

    def _instruction(self, layer: Layer, i: Attend, before: State) -> tuple[View, Form, dict[str, Labelled] | None]:
        if i.where != "all" or i.reduce == "softmax" or i.scope not in ("self", "all") or self.program.causal:
            raise InputError(
                f"layer {layer.name}: no certificate for this instruction yet",
                got=f"scope={i.scope!r}, reduce={i.reduce!r}, where={i.where!r}",
                allowed="programs of target relu",
            )
        place, token = f"{layer.name}, {i.dst.lane}", "I" if i.scope == "self" else "S"
        names = [score.f.name for score in i.scores if score.f != IDENTITY]
        source = f"{names[0] if names else 'products'}: {place}"
        product = self._read(i.value, before, token) if not i.scores or i.value != (View("one"),) else None
        for score in i.scores:
            f = self._function(score, before, token, i)
            product = f if product is None else self._times(f, product)
        assert product is not None
        product = self._scaled(product, i.scale)
        if i.scope == "all":
            return i.dst, *self._mean(product, before, source)
        if self.program.stream[i.dst.lane].shared:
            if product.blocks:
                raise InputError(f"{place}: a weight is made from lanes with errors", allowed="programs of target relu")
            return i.dst, product, {"rounding": Labelled(product.loose, product.centre.labels)}
        new = self._new(Labelled(product.loose, product.centre.labels), source)
        return i.dst, Form(product.centre, product.blocks | new, torch.zeros_like(product.loose)), None

    def _function(self, score: Score, before: State, token: str, i: Attend) -> Form:
        """f(<q, k>), with the errors of argument, approximant and rounding."""
        total: Form | None = None
        size: Labelled | None = None
        keep = "BIS" + "".join(i.dst.labels)
        for query, key in score.pairs:
            q, k = self._read(query, before, "I"), self._read(key, before, token)
            term = self._inner(q, k, keep)
            total = term if total is None else self._sum(total, term)
            absolute = contract([_abs(q.centre), _abs(k.centre)], keep)
            size = absolute if size is None else size + absolute
        assert total is not None
        assert size is not None
        rounding = (self._terms(score, i) + 2) * self.u * size.aligned(total.centre.labels)
        return self._apply(score.f, Form(total.centre, total.blocks, total.loose + rounding))

    def _terms(self, score: Score, i: Attend) -> int:
        """Summands of the inner product."""
        sizes, count = self.program.label_sizes(i), 0
        for query, key in score.pairs:
            inner = {label for view in (*query, *key) for label in view.labels} - set(i.dst.labels)
            count += math.prod(sizes[label] for label in inner)
        return count

    def _apply(self, f: Function, z: Form) -> Form:
        approximant = self.approximants.get(f.name)
        ramps = () if approximant is None else approximant.ramps
        epsilon = 0.0 if approximant is None or ramps else approximant.error
        value, slope = _slope(f if approximant is None else approximant, f, z.centre.tensor)
        radius = z.radius().tensor
        smooth = torch.full_like(radius, epsilon) + 0.5 * _curvature(f) * radius**2 + slope.abs() * z.loose
        rough = torch.full_like(radius, epsilon) + f.lipschitz * radius
        near = torch.zeros_like(radius, dtype=torch.bool)
        for kink in f.breaks:
            near |= (z.centre.tensor - kink).abs() <= radius
        for start, end in ramps:  # between two steps nothing is known
            inside = (z.centre.tensor + radius >= start) & (z.centre.tensor - radius <= end)
            smooth = torch.where(inside, math.inf, smooth)
        remainder = torch.where(near, rough, smooth)
        remainder = remainder + 4 * self.u * (value.abs() + slope.abs() * z.centre.tensor.abs())
        kept = Labelled(torch.where(near, 0.0, slope), z.centre.labels)
        blocks = {number: _multiply(kept, block) for number, block in z.blocks.items()}
        return Form(Labelled(value, z.centre.labels), blocks, remainder)

    def _inner(self, q: Form, k: Form, keep: str) -> Form:
        centre = contract([q.centre, k.centre], keep)
        blocks: dict[int, Labelled] = {}
        for number in {*q.blocks, *k.blocks}:
            parts = [
                contract([form.blocks[number], other.centre], keep + "Z")
                for form, other in ((q, k), (k, q))
                if number in form.blocks
            ]
            blocks[number] = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        loose = torch.zeros_like(centre.tensor)
        if q.blocks and k.blocks:
            loose = loose + contract([q.radius(), k.radius()], keep).aligned(centre.labels)
        return Form(centre, blocks, loose)

    def _times(self, f: Form, v: Form) -> Form:
        labels = f.centre.labels + "".join(label for label in v.centre.labels if label not in f.centre.labels)
        centre = Labelled(f.centre.aligned(labels) * v.centre.aligned(labels), labels)
        blocks: dict[int, Labelled] = {}
        for number in {*f.blocks, *v.blocks}:
            parts = [
                _multiply(other.centre, form.blocks[number])
                for form, other in ((f, v), (v, f))
                if number in form.blocks
            ]
            blocks[number] = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        radii = f.radius().aligned(labels), v.radius().aligned(labels)
        loose = radii[0] * radii[1] + 4 * self.u * centre.tensor.abs()  # rounded: the product, its scale, its sum
        for form, other in ((f, v), (v, f)):
            loose = (
                loose + Labelled(form.loose, form.centre.labels).aligned(labels) * other.centre.aligned(labels).abs()
            )
        return Form(centre, blocks, _sound(loose))

    def _scaled(self, form: Form, scale: float) -> Form:
        centre = Labelled(scale * form.centre.tensor, form.centre.labels)
        blocks = {n: Labelled(scale * block.tensor, block.labels) for n, block in form.blocks.items()}
        return Form(centre, blocks, abs(scale) * form.loose + 4 * self.u * centre.tensor.abs())

    def _sum(self, a: Form, b: Form) -> Form:
        blocks = dict(a.blocks)
        for number, block in b.blocks.items():
            blocks[number] = blocks[number] + block if number in blocks else block
        centre = a.centre + b.centre
        loose = Labelled(a.loose, a.centre.labels) + Labelled(b.loose, b.centre.labels)
        return Form(centre, blocks, loose.aligned(centre.labels).expand_as(centre.tensor))

    def _mean(self, form: Form, before: State, source: str) -> tuple[Form, dict[str, Labelled]]:
        """The mean over the tokens; their symbols are independent, so the radii are averaged, source by source."""
        tokens = max(value.shape[1] for value in before.values())
        labels = form.centre.labels.replace("S", "")
        centre, size, loose = (
            Labelled(tensor.mean(form.centre.labels.index("S")) if "S" in form.centre.labels else tensor, labels)
            for tensor in (form.centre.tensor, form.centre.tensor.abs(), form.loose)
        )
        shares = {"rounding": Labelled((tokens + 2) * self.u * size.tensor, labels), source: loose}
        for number, block in form.blocks.items():
            total = block.tensor.abs().sum(block.labels.index("Z"))
            left = block.labels.replace("Z", "")
            reduced = total.mean(left.index("S")) if "S" in left else total
            share = Labelled(reduced, left.replace("S", ""))
            name = self.sources[number]
            shares[name] = shares[name] + share if name in shares else share
        return Form(centre, {}, loose.tensor), shares

    # ----------------------------------------------------------------------------------------------------------- lanes

    def _read(self, expression: Expr, state: State, token: str) -> Form:
        """A linear combination of lane views, with the errors of the lanes."""
        centre: Labelled | None = None
        blocks: dict[int, Labelled] = {}
        for view in expression:
            term = labelled_view(self.program, view, state[view.lane], token)
            centre = term if centre is None else centre + term
            error = self.errors.get(view.lane)
            if error is None:
                continue
            if error.own is not None and error.own.abs().max() > 0:
                raise InputError(f"lane {view.lane} is read again after its mean", allowed="programs of target relu")
            for number, coefficients in error.blocks.items():
                part = labelled_view(self.program, view, coefficients, token, "Z")
                blocks[number] = blocks[number] + part if number in blocks else part
        assert centre is not None
        return Form(centre, blocks, torch.zeros_like(centre.tensor))

    def _new(self, radius: Labelled, source: str) -> dict[int, Labelled]:
        """One new symbol for every entry (of every token): coefficients on the diagonal."""
        if not bool((_sound(radius.tensor) > 0).any()):
            return {}
        tokens = "".join(label for label in radius.labels if label in "BIS")
        entries = "".join(label for label in radius.labels if label not in "BIS")
        aligned = _sound(radius.aligned(tokens + entries))
        lead, shape = aligned.shape[: len(tokens)], aligned.shape[len(tokens) :]
        coefficients = torch.diag_embed(aligned.reshape(*lead, -1)).reshape(*lead, *shape, -1)
        self.sources.append(source)
        return {len(self.sources) - 1: Labelled(coefficients, tokens + entries + "Z")}

    def _add(self, dst: View, form: Form, shares: dict[str, Labelled] | None, like: Tensor) -> None:
        error, labels = self.errors.setdefault(dst.lane, Error()), "".join(dst.labels)
        place = _place(dst)
        shape = self.program.stream[dst.lane].shape
        for source, share in (shares or {}).items():
            full = like.new_zeros(like.shape[0], 1, *shape)
            full[(slice(None), 0, *place)] = _sound(share.aligned("B" + labels))
            kept = self.shares.setdefault(dst.lane, {})
            kept[source] = kept[source] + full if source in kept else full
            error.own = full if error.own is None else error.own + full
        for number, block in form.blocks.items():
            added = block.aligned("BI" + labels + "Z")
            tokens = max(like.shape[1], added.shape[1])
            full = like.new_zeros(like.shape[0], tokens, *shape, added.shape[-1])
            full[(slice(None), slice(None), *place)] = added
            error.blocks[number] = error.blocks[number] + full if number in error.blocks else full


def _sound(radius: Tensor) -> Tensor:
    """Zero times infinity is not known: infinity."""
    return torch.nan_to_num(radius, nan=math.inf, posinf=math.inf)


def _cleared(i: Attend) -> set[str]:
    """lane += f(lane), entry by entry: a lane that is cleared has no error; a projection does not enlarge any."""
    f = i.scores[0].f
    if f == NEGATION:
        return {i.dst.lane}
    if f.exact is None or not all(-2.0 <= slope <= 0.0 for slope in f.exact.slopes):  # |1 + f'| <= 1
        raise InputError(f"no certificate for {f.name} in place", allowed="negation, clip")
    return set()


def _place(dst: View) -> tuple[int | slice, ...]:
    return tuple(entry if isinstance(entry, int) else slice(None) for entry in dst.index)


def _in_place(i: Attend) -> bool:
    """dst += f(dst), and nothing else."""
    if len(i.scores) != 1 or i.scope != "self":
        return False
    views = [view for query, key in i.scores[0].pairs for view in (*query, *key) if view.lane != "one"]
    return len(views) == 1 and views[0].lane == i.dst.lane and views[0].index == i.dst.index


def _abs(value: Labelled) -> Labelled:
    return Labelled(value.tensor.abs(), value.labels)


def _multiply(factor: Labelled, block: Labelled) -> Labelled:
    """Entry by entry; labels that the factor has and the block lacks are spread over."""
    labels = block.labels.replace("Z", "")
    labels += "".join(label for label in factor.labels if label not in labels) + "Z"
    return Labelled(factor.aligned(labels) * block.aligned(labels), labels)


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


def _curvature(f: Function) -> float:
    if f.exact is not None or f.jumps:
        return 0.0
    if not math.isfinite(f.curvature):
        raise InputError(f"{f.name} declares no curvature (sup |f''|)", hint="declare it, or nothing can be certified")
    return f.curvature
