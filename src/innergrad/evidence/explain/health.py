"""The health table: five things that go wrong in a transformer that computes, each observed and compared with a limit.

error growth          the distance to the algorithm's path against the bound on it, which must be of use
range use             arguments and lanes against the intervals that approximants, products and the box are made for
rounding share        how much of the bound is rounding
cancellation          sum |terms| / |sum| of inner products and sums over tokens, in bits
softmax leakage       the part that attention brings in from tokens outside its scope
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from innergrad.errors import at_most, readable
from innergrad.evidence.certificate import StepCertificate
from innergrad.evidence.explain.explanation import Health, StepError
from innergrad.interpret import plain
from innergrad.interpret.pairs import Pair, Pairs
from innergrad.interpret.walk import added, seen
from innergrad.ir.program import Attend, Layer, Program
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import rounding
from innergrad.model.prompt import Prompt
from innergrad.targets import LoopedTransformer
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.weights.modules import Sublayer

NEAR = 0.95  # of a range


def layer_of(source: str) -> str:
    """The layer in a source of error such as ``tanh: forward 1, p1``."""
    return source.split(": ", 1)[1].rsplit(", ", 1)[0] if ": " in source else source


def written(layer: Layer) -> list[str]:
    """The lanes that a layer writes."""
    return list(dict.fromkeys(instruction.dst.lane for instruction in layer.instructions))


@dataclass
class Largest:
    """The largest value that was seen, and its place."""

    value: float = 0.0
    place: str = ""

    def see(self, value: float, place: str) -> None:
        if value > self.value:
            self.value, self.place = value, place


# -------------------------------------------------------------------------------------------------------- error growth


def growth(steps: Sequence[StepError], proven: bool, size: float) -> Health:
    """Red if a measured error is above its bound, or if the bound on the path is useless: it has diverged, or it is
    larger than what it is about, which has this size.
    """
    pairs = [(step.measured, step.bound) for step in steps]
    pairs += [(step.path, step.path_bound) for step in steps if step.path_bound is not None]
    value = max(0.0 if measured == 0.0 else measured / bound if bound else math.inf for measured, bound in pairs)
    grown = f"the distance to the exact path went from {steps[0].path:.1e} to {steps[-1].path:.1e}"
    lost = next((n for n, step in enumerate(steps, 1) if step.bound == math.inf), None)
    diverged = next((n for n, step in enumerate(steps, 1) if step.path_bound == math.inf), None)
    last, kind = steps[-1].path_bound, "sup errors" if proven else "errors at the arguments"
    alone = f"every step is within its bound from {kind} (no bound on the path: too many weights); {grown}"
    well = alone if last is None else f"{grown}, the bound on it to {last:.1e}"
    useless = last is not None and last > 0.0 and not last < size
    too_large = (
        f"the bound on the path, {at_most(last or 0.0)}, is useless: all that was learned has size {readable(size, 2)}"
    )
    wrong = (
        (value > 1.0, f"a measured error is above its bound: {grown}"),
        (lost is not None, f"in step {lost} an argument may be at a jump, so nothing is known"),
        (diverged is not None, f"the bound on the path diverged at step {diverged}, though {grown}"),
        (useless, f"{too_large}; {grown}"),
    )
    reason = next((text for applies, text in wrong if applies), None)
    return Health("error growth", value, 1.0, reason is None, reason or well)


# ----------------------------------------------------------------------------------------------------------- range use


class Ranges(Largest):
    """The largest use of an interval that something is made for."""

    def use(self, values: Tensor, limits: tuple[float, float], where: str) -> None:
        centre, radius = (limits[0] + limits[1]) / 2, (limits[1] - limits[0]) / 2
        if values.numel() and math.isfinite(radius):
            self.see(float((values - centre).abs().max()) / radius, where)

    def layer(self, tf: Compiled, layer: Layer, before: State) -> None:
        """Arguments of approximants, and lanes that products are made for; lanes that cannot leave their range (they
        have a bound of their own, or prompts are checked for it) are left out.
        """
        f = tf.approximants
        for _, score, argument in plain.arguments(tf.program, layer, before, lambda score: score.f.name in f):
            name = score.f.name
            self.use(argument, f[name].domain, f"the argument of {name} in layer {layer.name}")
        for name, (_, high) in tf.ranges(layer).items():
            lane = tf.program.stream[name]
            if lane.role != "input" and math.isinf(lane.bound):
                self.use(before[name], (-high, high), f"lane {name} in layer {layer.name}")

    def weights(self, program: Program, after: State) -> None:
        for lane in program.weights:
            self.use(after[lane.name], (-lane.bound, lane.bound), f"the box of {lane.name}")

    def row(self) -> Health:
        reason = f"the most used range is {self.place}" if self.place else "nothing here has a bounded range"
        if self.value > NEAR:
            reason = f"{self.place} is at its edge" if self.value <= 1.0 else f"{self.place} is outside its range"
        return Health("range use", self.value, NEAR, self.value <= NEAR, reason)


# ------------------------------------------------------------------------------------------------------ rounding share


@dataclass
class Rounding:
    """The errors that layers made by themselves, from the stream that they read.

    off: layer -> of every lane that it wrote, in every step: the mean error by rounding, the mean error by
    approximants, and the largest rounding. most: the largest of all. relative: to the largest number in the stream.
    """

    off: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    most: float = 0.0
    relative: float = 0.0

    def layer(self, tf: Compiled, layer: Layer, before: State, after: State) -> None:
        approximated = plain.apply_layer(tf.program, layer, before, tf.functions)
        true = plain.apply_layer(tf.program, layer, before, tf.program.functions())
        lanes = [lane.name for lane in tf.program.stream.lanes if not lane.fill]
        scale = max(1.0, *(float(state[lane].abs().max()) for state in (before, after) for lane in lanes))
        for lane in written(layer):
            rounded, inexact = (after[lane] - approximated[lane]).abs(), (approximated[lane] - true[lane]).abs()
            largest = float(rounded.max())
            self.off.setdefault(layer.name, []).append((float(rounded.mean()), float(inexact.mean()), largest))
            if lane in lanes:
                self.most, self.relative = max(self.most, largest), max(self.relative, largest / scale)

    def share(self, layer: str, steps: Sequence[StepCertificate]) -> float:
        """The share of rounding in the error of a layer. Without approximants, it is measured against the bound on the
        lanes that the layer wrote. Otherwise its effect on that bound is of second order.
        """
        rounded, inexact, largest = zip(*self.off[layer], strict=True)
        if any(inexact):
            return float(sum(rounded) / sum((*rounded, *inexact)))
        bound = max(step.layers.get(layer, 0.0) for step in steps)
        return min(1.0, max(largest) / bound) if bound else 0.0

    def row(
        self,
        tf: Compiled,
        dtype: torch.dtype,
        as_weights: bool,
        steps: Sequence[StepCertificate],
        shares: Sequence[Mapping[str, float]],
    ) -> Health:
        """Red if more than half of the bound is rounding, and that is more than a tenth of epsilon. Where nothing is
        approximated, rounding is all there is; then red if it is more than the target's own limit.

        shares: of the bound of every step, by source.
        """
        parts = {layer: self.share(layer, steps) for layer in self.off}
        sums = [sum(share * parts.get(layer_of(source), 1.0) for source, share in step.items()) for step in shares]
        value, epsilon = max(sums, default=0.0), tf.options.epsilon
        inexact = [f for f in tf.approximants.values() if 0.0 < f.error < math.inf]
        coarser = torch.finfo(dtype).eps / torch.finfo(torch.float64).eps
        limit = epsilon / 10 if inexact else tf.target.functions.rounding(tf.options) * coarser
        green = value <= 0.5 or (self.most if inexact else self.relative) <= limit
        text = f"a layer rounds by up to {self.most:.1e} in {str(dtype).removeprefix('torch.')}"
        if not inexact and green:
            text = f"nothing is approximated, so rounding is all there is: {text}"
        elif not green:
            text += f", more than a tenth of epsilon = {epsilon:g}" if inexact else f", more than {limit:.1e}"
        if inexact and dtype == torch.float64:
            single = max(rounding(f, torch.float32, as_weights) for f in inexact)
            text += f"; in float32 functions would, by up to {single:.1e}"
        return Health("rounding share", value, 0.5, green, text)


# -------------------------------------------------------------------------------------------------------- cancellation


class Cancellation(Largest):
    """The most bits that an inner product or a sum over tokens loses: log2 of max sum |terms| / max |sum|."""

    def layer(self, program: Program, layer: Layer, before: State) -> None:
        numbers = plain.Tensors(program, before, program.functions())
        for i in layer.instructions:
            added(program, i, Terms(numbers, before, partial(self.lose, f"layer {layer.name}, {i.dst.lane}")))

    def lose(self, where: str, pair: Pair) -> None:
        left, sizes = (float(part.tensor.abs().max()) if part.tensor.numel() else 0.0 for part in pair)
        self.see(0.0 if sizes == 0.0 else math.inf if left == 0.0 else math.log2(sizes / left), where)

    def row(self, dtype: torch.dtype) -> Health:
        digits = -math.log2(torch.finfo(dtype).eps) + 1
        green, where = self.value <= digits / 2, f" in {self.place}" if self.place else ""
        text = f"sums lose at most {self.value:.1f} of {digits:.0f} bits{where}"
        if not green:
            text = f"a sum loses {self.value:.1f} of {digits:.0f} bits{where}: its terms nearly cancel"
        return Health("cancellation in products", self.value, digits / 2, green, text)


@dataclass
class Terms(Pairs):
    """A number, and the sum of the absolute values of its terms. Means by softmax are let pass."""

    see: Callable[[Pair], None]
    softmaxed: bool = False

    def alone(self, number: plain.Labelled) -> Pair:
        return number, number.map(torch.abs)

    def product(self, factors: list[Pair], keep: str) -> Pair:
        product = super().product(factors, keep)
        if "S" not in keep and not self.softmaxed:
            self.see(product)
        return product

    def sum(self, terms: list[Pair]) -> Pair:
        total = super().sum(terms)
        self.see(total)
        return total

    def softmax(self, scores: Pair, mask: Pair | None) -> Pair:
        self.softmaxed = True
        return super().softmax(scores, mask)


# ----------------------------------------------------------------------------------------------------- softmax leakage


def leakage(tf: Compiled, prompt: Prompt) -> Health:
    """The part that heads bring in from tokens outside the scope of their instructions, relative to the part from
    inside. It is measured in the weights themselves, in float64. A value that all tokens share cannot leak.
    """
    name, limit = "softmax leakage", tf.options.epsilon
    if tf.target.modules.get("attention") is not SoftmaxAttention:
        return Health(name, 0.0, limit, True, "no softmax here")
    most, program = Largest(), tf.program
    h = program.stream.pack(prompt.state(program))
    for (layer, _), module in zip(program.schedule(), tf.module.layers(), strict=True):
        state = program.stream.unpack(h)
        h, cache = LoopedTransformer([], [], [module]).run_with_cache(h)
        if "layers.0.hook_pattern" in cache:
            values, pattern = cache["layers.0.hook_v"], cache["layers.0.hook_pattern"]
            moved = pattern * values.norm(dim=-1).unsqueeze(-2)  # (heads, batch, tokens, tokens)
            meant = _meant(program, layer, module, state, pattern.shape)
            outside, inside = (torch.where(part, moved, 0.0).sum(-1).amax((1, 2)) for part in (~meant, meant))
            most.see(float((outside / torch.where(inside > 0, inside, 1.0)).max()), layer.name)
    text = f"attention brings in {most.value:.1e} of its value from tokens outside its scope"
    text += f", in layer {most.place}" if most.place else ""
    return Health(name, most.value, limit, most.value <= limit, text)


def _meant(program: Program, layer: Layer, module: Sublayer, state: State, shape: torch.Size) -> Tensor:
    """Which tokens each head may read: (heads, batch, tokens, tokens), from the lanes that it writes."""
    allowed = torch.zeros(shape, dtype=torch.bool)
    entries = [lane.name for lane in program.stream.lanes for _ in range(lane.size)]
    pairs = {(int(head), entries[int(entry)]) for head, entry in zip(*module.W_O.index[:2], strict=True)}
    for i in layer.instructions:
        for head in (head for head, lane in pairs if lane == i.dst.lane):
            allowed[head] |= _scope(program, i, state, shape[-1])
    return allowed


def _scope(program: Program, i: Attend, state: State, tokens: int) -> Tensor:
    read = seen(program, i)
    if all(program.stream[view.lane].shared for view in i.value) or (read is not None and not read.labels):
        return torch.ones(1, tokens, tokens, dtype=torch.bool)
    if read is None:
        return torch.eye(tokens, dtype=torch.bool).unsqueeze(0)
    return plain.Labelled(read.mask(state, tokens), read.labels).aligned("BIS") > 0
