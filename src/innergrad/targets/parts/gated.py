"""Gated MLPs, as those of Llama: they multiply, exactly.

    h_i += W_2 (silu(W_1 g_i) * (W_3 g_i))        g = norm(h), silu(t) = t sigmoid(t)

- a product: sigmoid(a) + sigmoid(-a) = 1, so silu(a) b - silu(-a) b = a b. Two units.
- a linear map: silu(64) = 64 in every floating-point type, so a unit whose gate is 64 times the lane one is its other
  factor. One unit for every form that is added somewhere, whatever the number of places.
- a piecewise-linear function: silu(2^60 t) / 2^60 = relu(t) up to 2^-61. One unit a kink. A step function is one, with
  ramps, as on every target.
- any other function: a sum of c silu(a t + b) that was fitted (:class:`innergrad.targets.parts.functions.Silus`). One
  unit a term, for all functions of the same form.

The result differs from the instruction, or from the fitted sum, by rounding alone.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.functions.fits.sums import FeatureSum
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.ir.program import Attend, Layer
from innergrad.targets.parts.base import Abilities, Context, Normed
from innergrad.targets.weights.modules import SparseStack, stack
from innergrad.targets.weights.rows import Row, add, destinations, family, linear_form, scaled, score_rows

OPEN = 64.0  # silu(64) = 64
STEEP = 2.0**60  # silu(2^60 t) = 2^60 relu(t)
Key = tuple[tuple[int, float], ...]  # a row, as a key
Gated = tuple[Key, Key]  # rows of W_1 and of W_3


class GatedMlp(Normed):
    """See the module docstring. Shapes: W_1, W_3 (1, units, D), W_2 (1, D, units)."""

    kind = "mlp"
    matrices = ("W_1", "W_3", "W_2")
    hooks = ("hook_normalized", "hook_pre", "hook_linear", "hook_post")
    can: ClassVar[Abilities] = {
        "linear map": "exactly",
        "product": "exactly",
        "function": "{how}",
    }
    about = "a gated mlp reads its own token: it multiplies two linear forms, and bends one"
    W_3: SparseStack

    def __init__(self, name: str, *stacks: SparseStack, gain: Any, norm: str = "layer") -> None:
        super().__init__(name, *stacks, gain=gain, norm=norm)

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        g = self.normalised(h).flatten(0, 1).T
        gate, up = self.show("hook_pre", self.W_1.tall() @ g), self.show("hook_linear", self.W_3.tall() @ g)
        written: Tensor = self.W_2.tall() @ self.show("hook_post", torch.nn.functional.silu(gate) * up)
        return h + written.T.view_as(h)

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        units = GatedUnits(context)
        for instruction in layer.instructions:
            units.compute(instruction)
        rows, D = [(dict(a), dict(b), to) for (a, b), to in units.rows()], context.program.stream.d_model
        n, settings = len(rows), cls.stored(context)
        return cls(
            layer.name,
            stack((1, n, D), ((0, u, e, w) for u, (a, _, _) in enumerate(rows) for e, w in a.items())),
            stack((1, n, D), ((0, u, e, w) for u, (_, b, _) in enumerate(rows) for e, w in b.items())),
            stack((1, D, n), ((0, e, u, w) for u, (_, _, to) in enumerate(rows) for e, w in to.items())),
            **settings,
        )


class GatedUnits:
    """The units of one gated MLP, instruction by instruction; equal ones are one."""

    def __init__(self, context: Context) -> None:
        self.program, self.one, self.approximants = context.program, context.one, context.approximants
        self.products: dict[Gated, Row] = {}
        self.linear: dict[int, Row] = {}  # destination -> its addend

    def rows(self) -> list[tuple[Gated, Row]]:
        """Rows of W_1 and W_3, and the writes. Linear maps share a unit where the same form is added."""
        forms: dict[Key, Row] = {}
        for entry, row in self.linear.items():
            form, weight = _key(row), 1.0
            if len(form) == 1:
                ((source, weight),) = form
                form = ((source, 1.0),)
            if form:
                add(forms.setdefault(form, {}), {entry: weight})
        gate = ((self.one, OPEN),)
        copies = [((gate, form), scaled(to, 1.0 / OPEN)) for form, to in forms.items()]
        return [*copies, *((key, to) for key, to in self.products.items() if any(to.values()))]

    def compute(self, instruction: Attend) -> None:
        """dst += scale f(linear form), scale u v, or scale (linear form)."""
        scale = instruction.scale
        for index in family(self.program, instruction):
            pairs = [score_rows(self.program, instruction, score, index) for score in instruction.scores]
            for entry, value in destinations(self.program, instruction, index):
                if not pairs:
                    add(self.linear.setdefault(entry, {}), value, scale)
                    continue
                f, terms = instruction.scores[0].f, pairs[0]
                bent = self.approximants.get(f.name, f.exact)
                if isinstance(bent, FeatureSum):
                    self.fit(bent, linear_form(terms, self.one), entry, scale)
                    continue
                if bent is not None and bent.knots:
                    self.bend(bent, linear_form(terms, self.one), entry, scale)
                    continue
                slope, constant = (
                    (1.0, 0.0) if bent is None else (bent.slopes[0], bent.value - bent.slopes[0] * bent.anchor)
                )
                if constant:
                    add(self.linear.setdefault(entry, {}), value, scale * constant)
                if set(value) == {self.one}:
                    for u, v in terms:
                        self.multiply(u, v, entry, scale * slope * value[self.one])
                else:
                    self.multiply(linear_form(terms, self.one), value, entry, scale * slope)

    def multiply(self, u: Row, v: Row, entry: int, scale: float) -> None:
        """dst += scale u v; linear if one factor is a constant."""
        for a, b in ((u, v), (v, u)):
            if set(a) == {self.one}:
                add(self.linear.setdefault(entry, {}), b, scale * a[self.one])
                return
        first, second = sorted((u, v), key=_key)
        for sign in (1.0, -1.0):
            self.unit(scaled(first, sign), second, entry, sign * scale)

    def bend(self, f: PiecewiseLinear, form: Row, entry: int, scale: float) -> None:
        """dst += scale f(form), a sum of hinges."""
        for a, b, c in f.hinges.tolist():
            row = scaled(form, STEEP * a)
            add(row, {self.one: STEEP * b})
            self.unit(row, {self.one: 1.0}, entry, scale * c / STEEP)

    def fit(self, f: FeatureSum, form: Row, entry: int, scale: float) -> None:
        """dst += scale f(form), a sum of silu."""
        for a, b, c in f.hinges:
            row = scaled(form, a)
            add(row, {self.one: b})
            self.unit(row, {self.one: 1.0}, entry, scale * c)

    def unit(self, gate: Row, up: Row, entry: int, weight: float) -> None:
        add(self.products.setdefault((_key(gate), _key(up)), {}), {entry: weight})


def _key(row: Row) -> Key:
    return tuple(sorted((entry, weight) for entry, weight in row.items() if weight))
