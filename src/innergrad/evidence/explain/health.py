"""The health table: five things that go wrong in a transformer that computes, each observed and compared with a limit.

error growth          the distance to the algorithm's path against the certificate's prediction of it
range use             arguments and lanes against the intervals that approximants, products and the box are made for
rounding share        how much of the bound is rounding
cancellation          sum |terms| / |sum| of inner products and sums over tokens, in bits
softmax leakage       what attention brings in from tokens that an instruction does not mean
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from innergrad.evidence.explain.explanation import Health, StepError
from innergrad.interpret import plain
from innergrad.interpret.tensors import Labelled, attention, contract, labelled_view, tokens_in, total
from innergrad.interpret.walk import Algebra, Seen, Token, added, seen
from innergrad.ir.program import Attend, Expr, Layer, Program, Score
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import rounding
from innergrad.model.prompt import Prompt
from innergrad.targets.parts.attention import SoftmaxAttention

Group = Callable[[str], str]
NEAR = 0.95  # of a range


def layer_of(source: str) -> str:
    """The layer in a source of error such as ``tanh: forward 1, p1``."""
    return source.split(": ", 1)[1].rsplit(", ", 1)[0] if ": " in source else source


# -------------------------------------------------------------------------------------------------------- error growth


def growth(steps: Sequence[StepError], proven: bool) -> Health:
    """Red if a measured error is above its bound, or if the bound on the path has diverged."""
    name, kind = "error growth", "proven" if proven else "measured"
    pairs = [(step.measured, step.bound) for step in steps]
    pairs += [(step.path, step.path_bound) for step in steps if step.path_bound is not None]
    value = max(_part(measured, bound) for measured, bound in pairs)
    grown = f"the distance to the exact path went from {steps[0].path:.1e} to {steps[-1].path:.1e}"
    lost = next((n for n, step in enumerate(steps, 1) if math.isinf(step.bound)), None)
    diverged = next((n for n, s in enumerate(steps, 1) if s.path_bound is not None and math.isinf(s.path_bound)), None)
    if value > 1.0:
        return Health(name, value, 1.0, False, f"a measured error is above its bound: {grown}")
    if lost is not None:
        return Health(name, value, 1.0, False, f"in step {lost} an argument may be at a jump, so nothing is known")
    if diverged is not None:
        return Health(name, value, 1.0, False, f"the bound on the path diverged at step {diverged}, though {grown}")
    if steps[0].path_bound is None:
        return Health(
            name,
            value,
            1.0,
            True,
            f"every step is within its {kind} bound (no bound on the path: too many weights); {grown}",
        )
    return Health(name, value, 1.0, True, f"{grown}, the bound on it to {steps[-1].path_bound:.1e}")


def _part(measured: float, bound: float) -> float:
    return 0.0 if measured == 0.0 else measured / bound if bound else math.inf


# ----------------------------------------------------------------------------------------------------------- range use


class Ranges:
    """The largest use of an interval that something is made for, and where it was."""

    def __init__(self) -> None:
        self.value, self.where = 0.0, ""

    def see(self, values: Tensor, limits: tuple[float, float], where: str) -> None:
        centre, radius = (limits[0] + limits[1]) / 2, (limits[1] - limits[0]) / 2
        if values.numel() and math.isfinite(radius):
            used = float((values - centre).abs().max()) / radius
            if used > self.value:
                self.value, self.where = used, where

    def layer(self, tf: Compiled, layer: Layer, before: State) -> None:
        """Arguments of approximants, and lanes that products are made for; lanes that cannot leave their range (they
        have a bound of their own, or prompts are checked for it) are left out.
        """

        def watch(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
            if score.f.name in tf.approximants:
                domain = tf.approximants[score.f.name].domain
                self.see(argument, domain, f"the argument of {score.f.name} in layer {layer.name}")

        plain.apply_layer(tf.program, layer, before, tf.functions, observer=watch)
        for name, (_, high) in tf.target.bounds(tf.program, layer, tf.options).items():
            lane = tf.program.stream[name]
            if lane.role != "input" and math.isinf(lane.bound):
                self.see(before[name], (-high, high), f"lane {name} in layer {layer.name}")

    def weights(self, program: Program, after: State) -> None:
        for lane in program.weights:
            self.see(after[lane.name], (-lane.bound, lane.bound), f"the box of {lane.name}")

    def row(self) -> Health:
        green = self.value <= NEAR
        if not self.where:
            reason = "nothing here has a bounded range"
        elif green:
            reason = f"the most used range is {self.where}"
        else:
            reason = f"{self.where} is at its edge" if self.value <= 1.0 else f"{self.where} is outside its range"
        return Health("range use", self.value, NEAR, green, reason)


# ------------------------------------------------------------------------------------------------------ rounding share


@dataclass
class Local:
    """What a layer got wrong by itself, summed over steps and lanes, and its largest rounding."""

    rounding: float = 0.0
    approximation: float = 0.0
    largest: float = 0.0

    def share(self, bound: float) -> float:
        """How much of it is rounding; without approximants, against the bound on what the layer wrote, for what it adds
        to that is of second order else.
        """
        if self.approximation == 0.0:
            return min(1.0, self.largest / bound) if bound else 0.0
        return self.rounding / (self.rounding + self.approximation)


def rounding_row(
    tf: Compiled,
    dtype: torch.dtype,
    as_weights: bool,
    shares: Sequence[Mapping[str, float]],
    parts: Mapping[str, float],
    largest: float,
    relative: float,
) -> Health:
    """Red if more than half of the bound is rounding, and that is more than a tenth of epsilon; where nothing is
    approximated, so that rounding is all there is, more than the target's own limit.

    shares: of the bound of every step, by source. parts: how much of what a layer got wrong is rounding.
    largest: the largest rounding of a layer; relative: to the largest number in the stream.
    """
    sums = [sum(share * parts.get(layer_of(source), 1.0) for source, share in step.items()) for step in shares]
    value = max(sums, default=0.0)
    inexact = [f for f in tf.approximants.values() if 0.0 < f.error < math.inf]
    coarser = torch.finfo(dtype).eps / torch.finfo(torch.float64).eps
    limit = tf.options.epsilon / 10 if inexact else tf.target.functions.rounding(tf.options) * coarser
    green = value <= 0.5 or (largest if inexact else relative) <= limit
    kind = str(dtype).removeprefix("torch.")
    text = f"a layer rounds by up to {largest:.1e} in {kind}"
    if not inexact and green:
        text = f"nothing is approximated, so rounding is all there is: {text}"
    elif not green:
        text += f", more than a tenth of epsilon = {tf.options.epsilon:g}" if inexact else f", more than {limit:.1e}"
    if inexact and dtype == torch.float64:
        single = max(rounding(f, torch.float32, as_weights) for f in inexact)
        text += f"; in float32 functions would, by up to {single:.1e}"
    return Health("rounding share", value, 0.5, green, text)


# -------------------------------------------------------------------------------------------------------- cancellation


class Cancellation:
    """The most bits that an inner product or a sum over tokens loses: log2 of max sum |terms| / max |sum|."""

    def __init__(self) -> None:
        self.bits, self.where = 0.0, ""

    def layer(self, program: Program, layer: Layer, before: State) -> None:
        for i in layer.instructions:
            added(program, i, Terms(program, before, self, f"layer {layer.name}, {i.dst.lane}"))

    def see(self, sum: Tensor, terms: Tensor, where: str) -> None:
        sizes, left = (float(part.abs().max()) if part.numel() else 0.0 for part in (terms, sum))
        bits = 0.0 if sizes == 0.0 else math.inf if left == 0.0 else math.log2(sizes / left)
        if bits > self.bits:
            self.bits, self.where = bits, where

    def row(self, dtype: torch.dtype) -> Health:
        digits = -math.log2(torch.finfo(dtype).eps) + 1
        green, where = self.bits <= digits / 2, f" in {self.where}" if self.where else ""
        text = f"sums lose at most {self.bits:.1f} of {digits:.0f} bits{where}"
        if not green:
            text = f"a sum loses {self.bits:.1f} of {digits:.0f} bits{where}: its terms nearly cancel"
        return Health("cancellation in products", self.bits, digits / 2, green, text)


Pair = tuple[Labelled, Labelled]


@dataclass
class Terms(Algebra[Pair]):
    """A number, and the sum of the absolute values of its terms. Means by softmax are let pass."""

    program: Program
    state: State
    lost: Cancellation
    where: str
    softmaxed: bool = False

    def read(self, expression: Expr, token: Token) -> Pair:
        terms = [labelled_view(self.program, view, self.state[view.lane], token) for view in expression]
        return total(terms), total([term.map(torch.abs) for term in terms])

    def product(self, factors: list[Pair], keep: str) -> Pair:
        value, size = (contract([factor[n] for factor in factors], keep) for n in (0, 1))
        if "S" not in keep and not self.softmaxed:
            self.lost.see(value.tensor, size.tensor, self.where)
        return value, size

    def sum(self, terms: list[Pair]) -> Pair:
        value, size = (total([term[n] for term in terms]) for n in (0, 1))
        self.lost.see(value.tensor, size.tensor, self.where)
        return value, size

    def apply(self, score: Score, argument: Pair, value: Pair | None) -> Pair:
        f = argument[0].map(score.f)
        return f, f.map(torch.abs)

    def softmax(self, scores: Pair, mask: Pair | None) -> Pair:
        self.softmaxed = True
        weights = attention(scores[0], None if mask is None else mask[0], tokens_in(self.state))
        return weights, weights

    def mask(self, seen: Seen) -> Pair:
        mask = Labelled(seen.mask(self.state, tokens_in(self.state)), seen.labels)
        return mask, mask

    def count(self, value: Pair, mask: Pair | None, power: Literal[-1, 1]) -> Pair:
        return value  # a ratio does not depend on it, nor on the scale

    def scale(self, value: Pair, factor: float) -> Pair:
        return value

    def varies(self, value: Pair) -> bool:
        return "S" in value[0].labels


# ----------------------------------------------------------------------------------------------------- softmax leakage


def leakage(tf: Compiled, prompt: Prompt) -> Health:
    """What heads bring in from tokens outside the scope of their instructions, relative to what they bring in from
    inside; in the weights themselves, in float64. A value that all tokens share cannot leak.
    """
    name, limit = "softmax leakage", tf.options.epsilon
    if tf.target.modules.get("attention") is not SoftmaxAttention:
        return Health(name, 0.0, limit, True, "no softmax here")
    value, where, program = 0.0, "", tf.program
    h = program.stream.pack(prompt.state(program))
    for (layer, _), module in zip(program.schedule(), tf.module.layers(), strict=True):
        if not isinstance(module, SoftmaxAttention) or not module.W_V.shape[0]:
            h = module(h)
            continue
        state = program.stream.unpack(h)
        h, values, pattern = _observed(module, h)
        moved = pattern * values.norm(dim=-1).unsqueeze(-2)  # (heads, batch, tokens, tokens)
        allowed = _allowed(program, layer, module, state, pattern.shape)
        outside = torch.where(allowed, 0.0, moved).sum(-1).amax((1, 2))
        inside = torch.where(allowed, moved, 0.0).sum(-1).amax((1, 2))
        leak = float((outside / torch.where(inside > 0, inside, 1.0)).max())
        if leak > value:
            value, where = leak, layer.name
    text = f"attention brings in {value:.1e} of what it means to from tokens it does not mean"
    text += f", in layer {where}" if where else ""
    return Health(name, value, limit, value <= limit, text)


def _observed(module: SoftmaxAttention, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The stream after the layer, and its heads' values and patterns."""
    kept: list[Tensor] = []
    hooks = [
        module.get_submodule(hook).register_forward_hook(lambda module, inputs, output: kept.append(output))
        for hook in ("hook_v", "hook_pattern")
    ]
    try:
        after: Tensor = module(h)
    finally:
        for handle in hooks:
            handle.remove()
    return after, kept[0], kept[1]


def _allowed(program: Program, layer: Layer, module: SoftmaxAttention, state: State, shape: torch.Size) -> Tensor:
    """Which tokens each head may read: (heads, batch, tokens, tokens), from the lanes that it writes."""
    _, batch, tokens, _ = shape
    scopes: dict[str, Tensor] = {}
    for i in layer.instructions:
        scope = _scope(program, i, state, tokens).expand(batch, tokens, tokens)
        scopes[i.dst.lane] = scopes[i.dst.lane] | scope if i.dst.lane in scopes else scope
    allowed = torch.zeros(shape, dtype=torch.bool)
    entries = [lane.name for lane in program.stream.lanes for _ in range(lane.size)]
    written = {(int(head), entries[int(entry)]) for head, entry in zip(*module.W_O.index[:2], strict=True)}
    for head, lane in written:
        if lane in scopes:
            allowed[head] |= scopes[lane]
    return allowed


def _scope(program: Program, i: Attend, state: State, tokens: int) -> Tensor:
    read = seen(program, i)
    if all(program.stream[view.lane].shared for view in i.value) or (read is not None and not read.labels):
        return torch.ones(1, tokens, tokens, dtype=torch.bool)
    if read is None:
        return torch.eye(tokens, dtype=torch.bool).unsqueeze(0)
    return Labelled(read.mask(state, tokens), read.labels).aligned("BIS") > 0
