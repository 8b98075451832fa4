"""A compiled transformer: sublayers, some of them in loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innergrad.errors import InputError
from innergrad.ir.program import Layer, Program
from innergrad.targets.weights.sparse import SparseStack, value_norms


class Count(NamedTuple):
    """What the cost of a layer is made of."""

    shapes: dict[str, tuple[int, int, int]]
    nonzeros: int
    norm: float


class Sublayer(nn.Module):
    """One layer: stream in, stream out.

    ``matrices`` names its weights, each a :class:`SparseStack`; ``settings`` is what else it needs, as JSON values.
    ``hook_*`` submodules pass one tensor through unchanged, for :meth:`LoopedTransformer.run_with_cache` and for hooks
    of the user's own.
    """

    matrices: ClassVar[tuple[str, ...]] = ("W_Q", "W_K", "W_V", "W_O")
    hooks: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[bool] = False  # matrices with layers of other names
    name: str
    W_Q: SparseStack
    W_K: SparseStack
    W_V: SparseStack
    W_O: SparseStack
    W_1: SparseStack
    b_1: SparseStack
    W_2: SparseStack

    def __init__(self, name: str, *stacks: SparseStack, **settings: Any) -> None:
        super().__init__()
        self.name, self.settings = name, settings
        for matrix, stack in zip(self.matrices, stacks, strict=True):
            self.add_module(matrix, stack)
        for hook in self.hooks:
            self.add_module(hook, nn.Identity())

    @property
    def n_heads(self) -> int:
        return self.W_V.shape[0]

    def show(self, hook: str, tensor: Tensor) -> Tensor:
        """The tensor, after whoever looks at it."""
        seen: Tensor = getattr(self, hook)(tensor)
        return seen

    def counted(self, copies: Tensor | None = None, one: int | None = None) -> Count:
        """The shapes of its matrices, nonzero weights, and norm (C.1).

        copies: how many heads (units) each of those here stands for, if they stand for others, which read and write
        other entries; one: the entry that all of them read.
        """
        stacks: dict[str, SparseStack] = {name: getattr(self, name) for name in self.matrices}
        shapes, nonzeros = dict[str, tuple[int, int, int]](), 0
        for name, stack in stacks.items():
            axis = {"W_1": 1, "b_1": 1, "W_2": 2}.get(name, 0)  # of units; otherwise of heads
            each = torch.ones(stack.shape[axis], dtype=torch.int64) if copies is None else copies
            shape = (*stack.shape[:axis], int(each.sum()), *stack.shape[axis + 1 :])
            shapes[name], nonzeros = cast(Any, shape), nonzeros + int(each[stack.index[axis]][stack.value != 0].sum())
        if "W_1" in stacks:
            often = 1 if copies is None else torch.where(self.W_1.index[2] == one, copies[self.W_1.index[1]], 1)
            norm = self.W_1.norms(often).max() + self.W_2.norms().max()
        elif self.n_heads:
            values = value_norms(self.W_V, self.W_O) * (1 if copies is None else copies)
            norm = torch.maximum(self.W_Q.norms().max(), self.W_K.norms().max()) + values.sum()
        else:
            norm = torch.zeros(())
        return Count(shapes, nonzeros, float(norm))


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
        return itertools.chain(*self.stored_blocks(), self.stored_readout())

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
    """Every layer of the program built, loops stored once. Layers that do the same share their matrices: under any name
    where a kind of sublayer says so, otherwise under the same name.
    """
    built: dict[Layer, Sublayer] = {}

    def once(layer: Layer) -> Sublayer:
        key = replace(layer, name="")
        found = built.get(layer) or built.get(key) or build(layer)
        built[key if found.shares else layer] = found
        return type(found)(layer.name, *(getattr(found, matrix) for matrix in found.matrices), **found.settings)

    return LoopedTransformer(
        [[once(layer) for layer in loop.layers] for loop in program.body],
        [loop.count for loop in program.body],
        [once(layer) for layer in program.readout],
    )
