"""MLPs whose units are features: they apply fitted functions, and multiply.

A unit is a row of W_1, a bias, and its writes; :class:`innergrad.targets.weights.rows.Units` makes them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

from jaxtyping import Float
from torch import Tensor

from innergrad.functions.fits.algebra import scales
from innergrad.functions.fits.gelu import coarse_square, square
from innergrad.functions.fits.sigmas import COARSE, SIGMAS
from innergrad.functions.scalar import IDENTITY, RECIPROCAL
from innergrad.ir.program import Attend, Layer, Options
from innergrad.targets.parts.base import Abilities, Activated, Context, Normed, Reason, constant, need
from innergrad.targets.weights.modules import SparseStack, stack
from innergrad.targets.weights.rows import EXACT, Algebra, Unit, Units


class Mlp(Activated):
    """h_i += W_2 phi(W_1 h_i). Shapes: W_1 (1, units, D), W_2 (1, D, units). Constants come from the lane one, or from
    b_1 (1, units, 1).
    """

    kind = "mlp"
    matrices: ClassVar[tuple[str, ...]] = ("W_1", "W_2")
    hooks: ClassVar[tuple[str, ...]] = ("hook_pre", "hook_post")

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        pre = self.W_1.tall() @ self.normalised(h).flatten(0, 1).T
        pre = self.show("hook_pre", pre + self.b_1.dense()[0] if "b_1" in self.matrices else pre)
        written: Tensor = self.W_2.tall() @ self.show("hook_post", self.phi(pre))
        return h + written.T.view_as(h)

    @classmethod
    def of(cls, name: str, units: list[Unit], context: Context) -> Self:
        """The module of these units."""
        settings, D, n = cls.stored(context), context.program.stream.d_model, len(units)
        if "b_1" not in cls.matrices:
            units = [({**row, context.one: row.get(context.one, 0.0) + bias}, 0.0, to) for row, bias, to in units]
        rows = [context.norm.read(row, settings.get("gain"), context) for row, _, _ in units]
        stacks = {
            "W_1": stack((1, n, D), ((0, u, e, w) for u, row in enumerate(rows) for e, w in row.items())),
            "b_1": stack((1, n, 1), ((0, u, 0, bias) for u, (_, bias, _) in enumerate(units))),
            "W_2": stack((1, D, n), ((0, e, u, w) for u, (_, _, to) in enumerate(units) for e, w in to.items())),
        }
        return cls(name, *(stacks[matrix] for matrix in cls.matrices), **settings)


class FeatureMlp(Mlp):
    """An MLP whose units are features."""

    can: ClassVar[Abilities] = {"linear map": "{linear}", "product": "by a fit", "function": "{how}"}
    about = "an mlp reads its own token: it applies a function to a linear form, or multiplies two linear forms"

    @classmethod
    @abstractmethod
    def algebra(cls, options: Options) -> Algebra:
        """t and t^2 as sums of its activation."""

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        if need(instruction) == "product" and not cls.algebra(context.options).square:
            return Reason("these MLPs do not multiply", hint="use tables, or another variant")
        return None

    @classmethod
    def bounds(cls, layer: Layer, context: Context) -> dict[str, tuple[float, float]]:
        """Ranges of the lanes that are factors of a product of this layer, or are divided by."""
        found, ranges = dict[str, tuple[float, float]](), context.ranges
        for score, value in ((score, i.value) for i in layer.instructions for score in i.scores):
            divides = score.f == RECIPROCAL
            sides = [*(side for pair in score.pairs for side in pair), *(() if divides else (value,))]
            multiplies = score.f == IDENTITY and sum(not constant(side) for side in sides) > 1
            for lane in {view.lane for side in sides for view in side if divides or multiplies} - {"one"}:
                found[lane] = context.program.stream[lane].least if divides else -ranges[lane], ranges[lane]
        return dict(sorted(found.items()))

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        units = Units(context.program, context.bound, cls.algebra(context.options))
        context.norm.write(layer, units, context)
        return cls.of(layer.name, units.rows(), context)


class SigmaMlp(FeatureMlp):
    """h_i += W_2 sigma(W_1 h_i), for any sigma."""

    @classmethod
    def algebra(cls, options: Options) -> Algebra:
        sigma, coarse = options.sigma or "", options.epsilon >= COARSE
        exact = SIGMAS[sigma].hinge is not None
        return Algebra(EXACT if exact else scales(sigma, 1, coarse), scales(sigma, 2, coarse))

    @classmethod
    def bounds(cls, layer: Layer, context: Context) -> dict[str, tuple[float, float]]:
        """Ranges of factors of products; where linear maps are not exact, of all lanes that it reads."""
        found = super().bounds(layer, context)
        if SIGMAS[context.options.sigma or ""].hinge is None:
            read = {view.lane for i in layer.instructions for view in list(i.views())[1:]} - {"one"}
            found |= {lane: (-context.ranges[lane], context.ranges[lane]) for lane in sorted(read)}
        return found


class FeedForward(Normed, FeatureMlp):
    """h_i += W_2 gelu(W_1 g_i + b_1), g the stream behind a norm; b_1 (1, units, 1). activation: gelu, or, for tables,
    relu.
    """

    matrices = ("W_1", "b_1", "W_2")
    hooks = ("hook_normalized", "hook_pre", "hook_post")

    def __init__(
        self, name: str, *stacks: SparseStack, gain: Any, activation: str = "gelu", norm: str = "layer"
    ) -> None:
        super().__init__(name, *stacks, gain=gain, norm=norm, activation=activation)

    @classmethod
    def algebra(cls, options: Options) -> Algebra:
        if options.variant == "lookup":
            return Algebra(EXACT, ())  # relu(z) - relu(-z) = z, but no products
        scales = square() if options.epsilon < COARSE else coarse_square()
        return Algebra(EXACT, tuple((sign / s, 0.0, c) for s, c in scales for sign in (1.0, -1.0)))

    @classmethod
    def stored(cls, context: Context) -> dict[str, Any]:
        return super().stored(context) | {"activation": "relu" if context.options.variant == "lookup" else "gelu"}
