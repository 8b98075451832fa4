"""What a target architecture is: layers with real matrices, and a way to write a program into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innergrad.errors import InputError
from innergrad.functions.fits.sums import Approximant
from innergrad.interpret.cost import Cost, LayerCost, structured_flops
from innergrad.options import Options
from innergrad.program import Layer, Program
from innergrad.targets.sparse import SparseStack

Approximants = Mapping[str, Any]  # of the kind the target makes: PiecewiseLinear, FeatureSum


class Sublayer(nn.Module):
    """One layer: stream in, stream out.

    ``matrices`` names its weights, each a :class:`SparseStack`; ``settings`` is what else it needs, as JSON values.
    ``hook_*`` submodules pass one tensor through unchanged, for :meth:`LoopedTransformer.run_with_cache` and for hooks
    of the user's own.
    """

    matrices: ClassVar[tuple[str, ...]]
    hooks: ClassVar[tuple[str, ...]] = ()
    name: str

    def __init__(self, name: str, *stacks: SparseStack, **settings: Any) -> None:
        super().__init__()
        self.name, self.settings = name, settings
        for matrix, stack in zip(self.matrices, stacks, strict=True):
            self.add_module(matrix, stack)
        for hook in self.hooks:
            self.add_module(hook, nn.Identity())


class LoopedTransformer(nn.Module):
    """A compiled transformer: stream in, stream out. Each loop of the body is stored once, applied ``counts`` times."""

    def __init__(self, blocks: list[list[Sublayer]], counts: list[int], readout: list[Sublayer]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleList(block) for block in blocks)
        self.counts = counts
        self.readout = nn.ModuleList(readout)

    def layers(self) -> Iterator[Sublayer]:
        """The layers in the order in which they are applied."""
        for block, count in zip(self.stored_blocks(), self.counts, strict=True):
            for _ in range(count):
                yield from block
        yield from self.stored_readout()

    def stored_layers(self) -> Iterator[Sublayer]:
        """Every stored layer once, in the order of ``Program.layers``."""
        for block in self.stored_blocks():
            yield from block
        yield from self.stored_readout()

    def stored_blocks(self) -> list[list[Sublayer]]:
        return [cast(list[Sublayer], list(block.children())) for block in self.blocks]

    def stored_readout(self) -> list[Sublayer]:
        return cast(list[Sublayer], list(self.readout))

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        self._check(h)
        for layer in self.layers():
            h = layer(h)
        return h

    def run_with_cache(
        self, h: Float[Tensor, "batch tokens d_model"], names: Iterable[str] | Callable[[str], bool] | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The forward pass, and what happened inside it, by name.

        ``layers.3.hook_resid_pre`` and ``layers.3.hook_resid_post`` are the stream before and after the fourth layer
        that is applied (a loop's layers are applied, and so named, several times); what else there is follows from the
        kind of layer: ``hook_q``, ``hook_k``, ``hook_v``, ``hook_pattern``, ``hook_pre``, ``hook_post`` ...
        names: which to keep; all by default.
        """
        self._check(h)
        names = [names] if isinstance(names, str) else names
        chosen = names if callable(names) or names is None else set(names)
        cache: dict[str, Tensor] = {}

        def keep(name: str, tensor: Tensor) -> None:
            if chosen is None or (chosen(name) if callable(chosen) else name in chosen):
                cache[name] = tensor.detach()

        known: set[str] = set()
        for number, layer in enumerate(self.layers()):
            place = f"layers.{number}"
            known |= {f"{place}.{hook}" for hook in ("hook_resid_pre", "hook_resid_post", *layer.hooks)}
            keep(f"{place}.hook_resid_pre", h)
            handles = [
                getattr(layer, hook).register_forward_hook(
                    lambda module, inputs, output, name=f"{place}.{hook}": keep(name, output)
                )
                for hook in layer.hooks
            ]
            try:
                h = layer(h)
            finally:
                for handle in handles:
                    handle.remove()
            keep(f"{place}.hook_resid_post", h)
        if isinstance(chosen, set) and chosen - known:
            raise InputError(
                "no such place in the transformer", got=sorted(chosen - known), allowed="e.g. layers.0.hook_resid_post"
            )
        return h, cache

    def _check(self, h: Tensor) -> None:
        stack = next(module for module in self.modules() if isinstance(module, SparseStack))
        if h.ndim != 3 or h.shape[2] != stack.shape[2] or h.dtype != stack.value.dtype:
            raise InputError(
                "the transformer takes a residual stream",
                got=f"{h.dtype} of shape {tuple(h.shape)}",
                allowed=f"{stack.value.dtype} of shape (batch, tokens, {stack.shape[2]})",
                hint="tf.stream(X, y, X_query) makes one",
            )


def looped(program: Program, build: Callable[[Layer], Sublayer]) -> LoopedTransformer:
    """Every layer of the program built, loops stored once; layers that are equal share their matrices."""
    built: dict[Layer, Sublayer] = {}

    def once(layer: Layer) -> Sublayer:
        if layer in built:
            return renamed(built[layer], layer.name)
        built[layer] = build(layer)
        return built[layer]

    return LoopedTransformer(
        [[once(layer) for layer in loop.layers] for loop in program.body],
        [loop.count for loop in program.body],
        [once(layer) for layer in program.readout],
    )


def renamed(layer: Sublayer, name: str) -> Sublayer:
    """The same layer, sharing its matrices, under another name."""
    return type(layer)(name, *(getattr(layer, matrix) for matrix in layer.matrices), **layer.settings)


@dataclass(frozen=True)
class Target:
    """A target architecture.

    variants: the first is the default; likewise sigmas, the activations it can have, if it has a choice.
    epsilon: the default accuracy; finest: the finest.
    proven: errors of its approximants are proven; otherwise they are measured, and everything says so.
    rounding: how far a layer of the module may be from the plain interpreter in float64, relative to the largest
        number in the stream; it covers what is not exact beside approximants (products of GeLUs, divisions).
    prepare: the program as this target runs it: lanes of its own, a sink token, instructions rewritten.
    check: raises :class:`innergrad.errors.LoweringError`, with the reason, if it cannot realise a program.
    approximants: what stands for the program's functions; functions not named are computed as they are.
    approximated: the names of those functions, without making what stands for them.
    lower: program and approximants -> transformer; each layer of the program becomes exactly one module.
    cost: program, approximants, options, what the paper says -> the cost.
    bounds: lanes that a layer reads, outside whose bounds it does not compute what it should (products of GeLUs).
    structural: lanes whose values mean something to the modules; verification does not replace them by random ones.
    probes: the sizes of the random streams it does make.
    inspect: further checks of the modules, on a stream: (value, limit, where).
    longest: how many tokens the modules tell apart in a dtype.
    modules: kind of layer -> its module, made from a name and one :class:`SparseStack` for each of its ``matrices``.
    """

    variants: tuple[str, ...]
    epsilon: float
    finest: float
    proven: bool
    rounding: Callable[[Options], float]
    check: Callable[[Program], None]
    approximated: Callable[[Program], set[str]]
    approximants: Callable[[Program, Options], dict[str, Approximant]]
    lower: Callable[[Program, Approximants, Options], LoopedTransformer]
    cost: Callable[[Program, Approximants, Options, dict[str, str]], Cost]
    modules: Mapping[str, type[Sublayer]]
    structural: tuple[str, ...]
    probes: tuple[float, ...]
    sigmas: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Program, Options], Program] = lambda program, options: program
    bounds: Callable[[Program, Layer, Options], dict[str, tuple[float, float]]] = lambda program, layer, options: {}
    inspect: Callable[[Program, LoopedTransformer, Tensor, Options], Iterator[tuple[float, float, str]]] = (
        lambda program, module, h, options: iter(())
    )
    longest: Callable[[Program, Options, torch.dtype], float] = lambda program, options, dtype: math.inf


def tokens_of(program: Program, options: Options) -> int:
    """Tokens of the longest prompt with one query."""
    return program.length or int(program.sink) + options.n_examples * (2 if program.tokens == "interleaved" else 1) + 1


def counted(
    lower: Callable[[Program, Approximants, Options], LoopedTransformer],
) -> Callable[[Program, Approximants, Options, dict[str, str]], Cost]:
    """The cost, counted on the weights themselves: for targets whose weights are quick to build."""

    def cost(program: Program, approximants: Approximants, options: Options, paper: dict[str, str]) -> Cost:
        return _cost_of(program, lower(program, approximants, options), tokens_of(program, options), paper)

    return cost


def _cost_of(program: Program, module: LoopedTransformer, tokens: int, paper: dict[str, str]) -> Cost:
    times = [loop.count for loop in program.body for _ in loop.layers] + [0] * len(program.readout)
    rows = [
        _layer_cost(program, layer, built, tokens, count)
        for layer, built, count in zip(program.layers, module.stored_layers(), times, strict=True)
    ]
    D, depth = program.stream.d_model, len(program.readout)
    return Cost(tuple(rows), program.n_layers, depth, D, tokens, paper, program.steps)


def _value_norm(W_V: SparseStack, W_O: SparseStack) -> float:
    """sum over heads of ||W_O W_V||_1 (largest absolute column sums), from the entries: dense they would be large."""
    if not W_V.shape[0]:
        return 0.0
    (heads, d_v, D), (m, e, r), (n, s, c) = W_V.shape, W_O.index, W_V.index
    rows, order = n * d_v + s, torch.argsort(n * d_v + s)
    counts = torch.bincount(rows, minlength=heads * d_v)
    first = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    repeats = counts[m * d_v + r]  # how many entries of W_V meet each entry of W_O
    left = torch.repeat_interleave(torch.arange(len(m)), repeats)
    inside = torch.arange(len(left)) - torch.repeat_interleave(repeats.cumsum(0) - repeats, repeats)
    right = order[first[(m * d_v + r)[left]] + inside]
    places, index = torch.unique((m[left] * D + e[left]) * D + c[right], return_inverse=True)
    products = W_O.value.new_zeros(len(places)).index_add_(0, index, W_O.value[left] * W_V.value[right])
    columns = W_O.value.new_zeros(heads * D)
    columns.index_add_(0, places // D**2 * D + places % D, products.abs())
    return float(columns.view(heads, D).amax(-1).sum())


def _layer_cost(program: Program, layer: Layer, built: Sublayer, tokens: int, times: int) -> LayerCost:
    stacks: dict[str, SparseStack] = {name: getattr(built, name) for name in built.matrices}
    D, nonzeros = program.stream.d_model, sum(int((s.value != 0).sum()) for s in stacks.values())
    entries = sum(s.shape[0] * s.shape[1] * s.shape[2] for s in stacks.values())
    structured = sum(structured_flops(program, instruction, tokens) for instruction in layer.instructions)
    shapes = {name: s.shape for name, s in stacks.items()}
    norms = {name: float(s.norms().max()) if s.shape[0] else 0.0 for name, s in stacks.items()}
    if "W_1" in stacks:
        units = stacks["W_1"].shape[1]
        norm, dense, flops, d_head, heads = norms["W_1"] + norms["W_2"], entries, 4 * tokens * units * D, 0, units
    else:
        heads, d_head = stacks["W_V"].shape[0], stacks["W_Q"].shape[1]
        norm, dense = max(norms["W_Q"], norms["W_K"]) + _value_norm(stacks["W_V"], stacks["W_O"]), 3 * heads * D * D
        flops = heads * (6 * tokens * D * D + 4 * tokens * tokens * D)
    return LayerCost(
        layer.name, layer.kind, heads, d_head, nonzeros, entries, dense, norm, flops, structured, times, shapes
    )
