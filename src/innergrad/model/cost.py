"""The cost of a compiled transformer, as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

from innergrad.errors import InputError
from innergrad.flops import Flops, attention, mlp, product, total
from innergrad.interpret.counts import structured_flops
from innergrad.interpret.repeats import FEWEST_HIDDEN, longest_run, without_digits
from innergrad.ir.program import Layer, Options, Program
from innergrad.model.comparison import Compared, Comparison
from innergrad.targets.weights.modules import Count

SAME_NORM = 1e-9
WORDS = "A layer is attention, a product or an mlp. A block is attention and the mlp after it. The read-out is apart."


@dataclass(frozen=True)
class LayerCost:
    """One stored layer: heads (units of an mlp), sizes of the head matrices, nonzero weights, norm (C.1), shapes."""

    name: str
    kind: str
    heads: int
    d_head: int
    nonzeros: int
    low_rank: int
    dense: int
    norm: float
    flops_dense: int
    flops_structured: int
    times: int
    shapes: Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True)
class Cost:
    """Totals over the forward pass; ``rows`` lists every stored layer, and ``times`` how often it is applied (0: in
    the read-out).

    Parameters of tied layers count once. ``low_rank`` counts the entries of W_Q, W_K, W_V, W_O as stored per head,
    ``dense`` those of the paper's D x D matrices. FLOPs (:mod:`innergrad.flops`) are for one prompt of n_examples
    examples and one query. ``flops_dense`` counts D x D matrices, as the paper does. ``flops_structured`` counts the
    same function with shared lanes and shared scores used once. Both count the functions of scores; a sum of features
    counts by its terms. steps: of the algorithm. before: the number of rows that come before the first step. others:
    the same algorithm on other targets, when asked.
    """

    rows: tuple[LayerCost, ...]
    n_layers: int
    n_readout_layers: int
    d_model: int
    n_tokens: int
    paper: dict[str, str]
    steps: int = 1
    before: int = 0
    others: Callable[[tuple[str, ...]], Comparison] | None = field(default=None, compare=False, repr=False)

    def compare(self, *targets: str) -> Comparison:
        """Blocks a step, heads, width, units and parameters of the same algorithm in every variant of these targets, or
        of all that it has a program for, and the paper's. Each is compiled, at the target's epsilon, and counted.
        """
        if self.others is None:
            raise InputError("this cost is of no compiled transformer", hint="tf.cost().compare()")
        return self.others(targets)

    def beside(self, options: Options) -> Compared:
        """As a row of a comparison."""
        sizes = (self.blocks_a_step, self.readout_blocks, self.heads, self.d_model, self.units, self.nonzeros)
        return Compared(options.target, options.variant, options.epsilon, *sizes)

    @property
    def blocks_a_step(self) -> float:
        """Depth of a step when attention and the mlp after it count as one, on every target."""
        return self._a_step(_blocks([row for row in self.rows[self.before :] if row.times]))

    @property
    def heads(self) -> int:
        """Of the widest attention layer."""
        return max((row.heads for row in self.rows if row.kind == "attention"), default=0)

    @property
    def units(self) -> int:
        """Of the widest mlp."""
        return max((row.heads for row in self.rows if row.kind == "mlp"), default=0)

    @property
    def layers_a_step(self) -> float:
        """Depth of a step, as its construction counts: in blocks, where all layers are attention and mlps, as in a
        transformer; else, as the paper does, product layers and mlps one by one.
        """
        if any(row.kind == "product" for row in self.rows):
            return self.sublayers_a_step
        return self.blocks_a_step

    @property
    def sublayers_a_step(self) -> float:
        """Attention, product and mlp layers of a step, one by one."""
        return self._a_step(self.n_layers - sum(row.times for row in self.rows[: self.before]))

    @property
    def blocks(self) -> int:
        """Depth of the body in blocks: attention and the mlp after it count as one. The read-out is apart."""
        return _blocks([row for row in self.rows if row.times])

    @property
    def readout_blocks(self) -> int:
        """Depth of the read-out, likewise: the blocks that turn what was learned into predictions."""
        return _blocks([row for row in self.rows if not row.times])

    @property
    def nonzeros(self) -> int:
        return sum(row.nonzeros for row in self.rows)

    def totals(self) -> dict[str, Any]:
        """Name -> number; the names are those of the paper's column. :data:`WORDS` says what is counted."""
        return {
            "layers": self.n_layers,
            "read-out layers": self.n_readout_layers,
            "layers a step": self.sublayers_a_step,
            "blocks": self.blocks,
            "read-out blocks": self.readout_blocks,
            "blocks a step": self.blocks_a_step,
            "width D": self.d_model,
            "heads of the widest layer": self.heads,
            "parameters (nonzero)": self.nonzeros,
            "parameters (low rank)": sum(row.low_rank for row in self.rows),
            "parameters (D x D heads)": sum(row.dense for row in self.rows),
            "norm B_theta": max(row.norm for row in self.rows),
            "FLOPs (D x D heads)": sum(row.flops_dense * max(row.times, 1) for row in self.rows),
            "FLOPs (structured)": sum(row.flops_structured * max(row.times, 1) for row in self.rows),
        }

    def _a_step(self, depth: int) -> float:
        return depth / self.steps if depth % self.steps else depth // self.steps

    def to_json(self) -> dict[str, Any]:
        layers = [
            vars(row) | {"shapes": {name: list(shape) for name, shape in row.shapes.items()}} for row in self.rows
        ]
        return {"totals": self.totals(), "paper": self.paper, "layers": layers}

    def __str__(self) -> str:
        lines = [f"{'layer':<24}{'kind':<11}{'times':>6}{'heads/units':>13}{'d_head':>8}{'nonzeros':>10}{'norm':>10}"]
        lines += [
            f"  {row}"
            if isinstance(row, str)
            else f"{row.name:<24}{row.kind:<11}{row.times or 'out':>6}{row.heads:>13}{row.d_head:>8}{row.nonzeros:>10}"
            f"{row.norm:>10.3g}"
            for row in condensed(self.rows)
        ]
        lines += ["", WORDS] + [
            f"{name:<34}{number(value):>14}   {self.paper.get(name, '')}".rstrip()
            for name, value in self.totals().items()
        ]
        return "\n".join(lines)


def _blocks(rows: Sequence[LayerCost]) -> int:
    """An mlp right after attention belongs to its block."""
    joined = (b.kind == "mlp" and a.kind == "attention" for a, b in pairwise(rows))
    return sum(max(row.times, 1) for row, after in zip(rows, [False, *joined], strict=False) if not after)


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) and value < 10**9 else f"{value:.4g}"


def condensed(rows: Sequence[LayerCost]) -> Iterator[LayerCost | str]:
    """The rows of a table for people. Layers that repeat are shown once, and a line says how many were left out.

    Layers repeat if they differ in nothing but their norm and the digits in their names; if the norms differ, the line
    says so. Left-over layers of a run that is no whole number of repetitions come first, so that the run ends with it.
    """
    forms = [(without_digits(r.name), r.kind, r.times, r.heads, r.d_head, r.nonzeros) for r in rows]
    start = 0
    while start < len(rows):
        period, length = longest_run(forms, start)
        extra = length % period
        if length - extra - period < FEWEST_HIDDEN:
            yield rows[start]
            start += 1
        else:
            yield from rows[start : start + extra]
            yield from _shown_once(rows[start + extra : start + length], period)
            start += length


def _shown_once(run: Sequence[LayerCost], period: int) -> Iterator[LayerCost | str]:
    """The first repetition of a run, and a line about the others; of one layer with other norms, also the last."""
    if period == 1 and _spread(run):
        hidden = run[1:-1]
        yield from (run[0], f"... {len(hidden)} more, norm {_spread(hidden) or f'{hidden[0].norm:.3g}'}", run[-1])
        return
    yield from run[:period]
    others = len(run) // period - 1
    above = "layer" if period == 1 else f"{period} layers"
    norms = [f"of {without_digits(run[i].name)} {spread}" for i in range(period) if (spread := _spread(run[i::period]))]
    yield f"... the {above} above, {others} more times{'; norm ' if norms else ''}{', '.join(norms)}"


def _spread(rows: Sequence[LayerCost]) -> str:
    """Smallest and largest norm, with as many digits as tell them apart; empty if they are the same."""
    low, high = min(row.norm for row in rows), max(row.norm for row in rows)
    if high - low <= SAME_NORM * abs(high):
        return ""
    digits = next((digits for digits in (3, 6, 9) if f"{low:.{digits}g}" != f"{high:.{digits}g}"), 12)
    return f"{low:.{digits}g} to {high:.{digits}g}"


def dense_heads(heads: int, tokens: int, D: int, *, own: bool) -> Flops:
    """Heads with D x D matrices Q, K and V. own: each token reads itself, with no function of the score."""
    pairs = tokens if own else tokens * tokens
    return product(3, heads, tokens, D, D) + attention(heads, pairs, D, D, each=0 if own else 1)


def layer_cost(
    program: Program,
    layer: Layer,
    times: int,
    tokens: int,
    shapes: Mapping[str, tuple[int, int, int]],
    nonzeros: int,
    norm: float,
    stands: Mapping[str, object],
) -> LayerCost:
    """The cost of a layer from the shapes of its matrices, their nonzero entries and their norm."""
    D, entries = program.stream.d_model, sum(map(math.prod, shapes.values()))
    if "W_1" in shapes:
        heads, d_head, dense = shapes["W_1"][1], 0, entries
        flops = mlp(tokens, D, heads, gated="W_3" in shapes)
    else:
        heads, d_head = shapes["W_V"][0], shapes["W_Q"][1]
        dense, flops = 3 * heads * D * D, dense_heads(heads, tokens, D, own=layer.kind == "product")
    structured = total(structured_flops(program, i, tokens, stands) for i in layer.instructions)
    sizes = (heads, d_head, nonzeros, entries, dense, norm, flops.total, structured.total)
    return LayerCost(layer.name, layer.kind, *sizes, times, shapes)


def cost_of(
    program: Program,
    options: Options,
    counts: Sequence[Count],
    paper: dict[str, str],
    stands: Mapping[str, object] | None = None,
) -> Cost:
    """The cost of the longest prompt with one query, from counts of the weights of every stored layer. The counts are
    foreseen, or those of the module. stands: the approximants of the functions, by name.
    """
    stacked = (
        int(program.sink) + program.carriers + options.n_examples * (2 if program.tokens == "interleaved" else 1) + 1
    )
    times = [loop.count for loop in program.body for _ in loop.layers] + [0] * len(program.readout)
    tokens, D = program.length or stacked, program.stream.d_model
    each = zip(program.layers, counts, times, strict=True)
    rows = tuple(layer_cost(program, layer, time, tokens, *count, stands or {}) for layer, count, time in each)
    before = sum(len(loop.layers) for loop in takewhile(lambda loop: not loop.step, program.body))
    return Cost(rows, program.n_layers, len(program.readout), D, tokens, paper, program.steps, before)
