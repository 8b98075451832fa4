"""How far rounding can take a forward pass, so how far two passes may be apart that should be equal.

Every operation of the program adds its own rounding to that of its operands, by the usual bounds:

    a sum of m terms      gamma_m sum |terms|,     gamma_m = m u / (1 - m u)
    a function            u (|f| + |f' z|), times the roundings that the way to evaluate it has; sums of features round
                          in each of their terms, also where these cancel
    an addition to a lane u |lane|

and radii of arguments go through a function by its slope there. Nothing is assumed of the order of a sum, so the same
radius holds for a prompt alone, in a batch, with its examples and queries in another order, with one thread or several.
It grows with the sizes: of the network, the prompt, the numbers, and with the steps. u is 2^-53, or 2^-24 in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from innergrad.functions.fits.sums import FEATURES, FeatureSum
from innergrad.functions.scalar import PiecewiseLinear
from innergrad.interpret import plain
from innergrad.interpret.pairs import Balls, Pair
from innergrad.interpret.plain import Labelled, ScalarFunction, contract, placed, tokens_in, total
from innergrad.interpret.walk import Token, added, in_place
from innergrad.ir.program import Expr, Layer, Program, Score
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.prompt import Prompt

STEP = 2.0**-26  # of the secants that slopes are taken from: far above rounding, no wider than a ramp
FEW = 8  # roundings of one evaluation of a function, a quotient, or the weight of an example
STEEPEST = 1.13  # the largest slope of a feature that is no exponential: gelu's
COMPUTED = ("omega", "log_omega", "log_tokens", "batch", "log_batch")  # lanes that a prompt computes


def unit(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


@dataclass
class Rounded(Balls):
    """Radii of rounding. u: the unit; more: how many sums the weights make of one, for heads add up, too."""

    u: float = 2.0**-53
    more: int = 0

    def gamma(self, terms: int) -> float:
        return (terms + self.more) * self.u / (1 - (terms + self.more) * self.u)

    def rounded(self, pair: Pair, roundings: float) -> Pair:
        centre, radius = pair
        return centre, radius + centre.map(lambda t: roundings * t.abs())

    def read(self, expression: Expr, token: Token) -> Pair:
        centre, radius = super().read(expression, token)
        sizes = [self.numbers.read((view,), token).map(torch.abs) for view in expression]
        return centre, radius + total(sizes).map(lambda t: self.gamma(len(sizes)) * t)

    def product(self, factors: list[Pair], keep: str) -> Pair:
        centre, radius = super().product(factors, keep)
        lengths = {label: n for c, _ in factors for label, n in zip(c.labels, c.tensor.shape, strict=True)}
        summed = 1
        for label, n in lengths.items():
            summed *= 1 if label in keep else n
        sizes = contract([c.map(torch.abs) + r for c, r in factors], keep)
        return centre, radius + sizes.map(lambda t: self.gamma(summed + len(factors)) * t)

    def sum(self, terms: list[Pair]) -> Pair:
        centre, radius = super().sum(terms)
        sizes = total([c.map(torch.abs) for c, _ in terms])
        return centre, radius + sizes.map(lambda t: self.gamma(len(terms)) * t)

    def apply(self, score: Score, argument: Pair, value: Pair | None) -> Pair:
        (centre, radius), f = argument, self.numbers.functions[score.f.name]
        t, off = centre.tensor, radius.aligned(centre.labels)
        through = through_function(f, t, off)
        return centre.map(f), Labelled(through + self.off(score, centre), centre.labels)

    def softmax(self, scores: Pair, mask: Pair | None) -> Pair:
        weights, radius = super().softmax(scores, mask)
        tokens = tokens_in(self.numbers.state)
        size = 1.0 + float(scores[0].tensor.abs().amax()) if scores[0].tensor.numel() else 1.0
        return self.rounded((weights, radius), (self.gamma(tokens) + FEW * self.u) * size)

    def count(self, value: Pair, mask: Pair | None, power: int) -> Pair:
        return self.rounded(super().count(value, mask, power), FEW * self.u)  # type: ignore[arg-type]

    def scale(self, value: Pair, factor: float) -> Pair:
        return self.rounded(super().scale(value, factor), 2 * self.u)


def through_function(f: ScalarFunction, t: Tensor, off: Tensor) -> Tensor:
    """How far f moves if its argument does by ``off``: by the steepest secant there. Secants are wide enough that their
    own rounding does not matter; the rest is for the bend of f between them.
    """
    at, wide = f(t), off + STEP * (1.0 + t.abs())
    slopes = [(f(t + side * wide) - at).abs() / (abs(side) * wide) for side in (1.0, -1.0, 0.5, -0.5)]
    return (1.01 * torch.stack(slopes).amax(0) + STEP) * off


def rounding_of(
    functions: dict[str, ScalarFunction], u: float, as_weights: bool, fits: bool, score: Score, argument: Labelled
) -> Tensor:
    """The rounding of one evaluation of a function. as_weights: where a head is a term. fits: with the error of a fit
    that is summed over tokens, for it is not zero at tokens that hold zeros.
    """
    f, t = functions[score.f.name], argument.tensor
    if isinstance(f, FeatureSum) and fits and "S" in argument.labels:
        return rounding_of(functions, u, as_weights, False, score, argument) + f.error
    if isinstance(f, FeatureSum):
        a, b, c = (torch.tensor(column, dtype=t.dtype) for column in (f.a, f.b, f.c))
        value = FEATURES[f.feature](t.unsqueeze(-1) * a + b).abs()
        slope = value if f.feature == "exp" else torch.full_like(value, STEEPEST)
        terms = value + slope * (t.unsqueeze(-1).abs() * a.abs() + b.abs())
        return (len(f.c) + FEW) * u * (terms @ c.abs() + abs(f.slope) * t.abs() + abs(f.constant))
    if isinstance(f, PiecewiseLinear) and as_weights:
        hinges = torch.from_numpy(f.hinges).to(t.dtype)
        a, b, c = hinges.abs().unbind(1)
        return (len(hinges) + FEW) * u * ((t.abs().unsqueeze(-1) * a + b) @ c)
    if isinstance(f, PiecewiseLinear):
        x, y, slope = f.lines(t)
        return FEW * u * (y.abs() + slope.abs() * (t.abs() + x.abs()))
    return FEW * u * f(t).abs() + through_function(f, t, FEW * u * t.abs())


def radii_after(program: Program, layer: Layer, state: State, radii: State, rounded: Rounded) -> State:
    """The allowed errors of the lanes after a layer; ``state``: the lanes before it. An operation in place (a
    projection, a decay, clearing a lane) has the radius of that function.
    """
    after = dict(radii)
    for i in sorted(layer.instructions, key=lambda i: in_place(i) is None):
        lane = i.dst.lane
        f, now = in_place(i), state[lane]
        if f is not None and after[lane] is radii[lane]:
            g = f.plus_identity
            size = rounded.u * FEW * (g(now).abs() + (0.0 if not any(g.slopes) else now.abs()))
            after[lane] = through_function(g, now, radii[lane]) + size
            continue
        _, radius = added(program, i, rounded)
        after[lane] = placed(after[lane], i, radius.aligned("BI" + i.family))
    return after


def radii_of(
    tf: Compiled, prompt: Prompt, dtype: torch.dtype, dense: bool = False, fits: bool = False
) -> tuple[Tensor, Tensor]:
    """The allowed errors, in a dtype, of the last weights (batch, D_w) and the predictions (batch, n_query, d_y) of a
    prompt, given in float64. dense: as the matrices compute it; where functions are fitted, products are, too, and
    every layer may be off by the target's stated error. fits: also by fits that are summed over tokens. Where radii
    grow beyond all numbers, they are infinite.
    """
    program, u, functions = tf.program, unit(dtype), dict(tf.functions)
    state = prompt.state(program)
    radii = {name: _given(name, value, u) for name, value in state.items()}
    more = tf.n_heads if dense else 0
    off = partial(rounding_of, functions, u, dense, fits)
    stated = tf.target.functions.rounding(tf.options) * u * 2.0**53 if dense and not tf.target.proven else 0.0
    weights = radii
    for layer, step_ends in program.schedule():
        rounded = Rounded(plain.Tensors(program, state, functions), _full(radii, state), off, u, more)
        written = {i.dst.lane for i in layer.instructions}
        after = plain.apply_layer(program, layer, state, functions)
        radii = radii_after(program, layer, state, _full(radii, state), rounded)
        largest = max([1.0, *(float(after[name].abs().max()) for name in written if after[name].numel())])
        for name in written:
            radii[name] = radii[name] + (1 + more) * u * after[name].abs() + stated * largest
        state = after
        weights = radii if step_ends else weights
    return _bound(prompt.weights(program, _full(weights, state))), _bound(prompt.predictions(program, radii).abs())


def _bound(radius: Tensor) -> Tensor:
    """Infinite times zero is no number, and no bound either."""
    return torch.where(radius.isnan(), torch.inf, radius)


def _given(name: str, value: Tensor, u: float) -> Tensor:
    return FEW * u * (1.0 + value.abs()) if name in COMPUTED else torch.zeros_like(value)


def _full(radii: State, state: State) -> State:
    """Radii of the shape of their lanes, which may have become one for every token."""
    whole = {name: radii[name].shape[1] > 1 for name in state}
    return {name: radii[name] if whole[name] else radii[name].expand_as(lane) for name, lane in state.items()}
