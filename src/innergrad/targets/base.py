"""What a target architecture is: layers with real matrices, and a way to write a program into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, cast

from jaxtyping import Float
from torch import Tensor, nn

from innergrad.errors import InputError
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.interpret.cost import Cost
from innergrad.program import Program
from innergrad.targets.sparse import SparseStack

Approximants = Mapping[str, PiecewiseLinear]


class Sublayer(nn.Module):
    """One layer: stream in, stream out. ``matrices`` names its weights, each a :class:`SparseStack`."""

    matrices: ClassVar[tuple[str, ...]]
    name: str

    def __init__(self, name: str, *stacks: SparseStack) -> None:
        super().__init__()
        self.name = name
        for matrix, stack in zip(self.matrices, stacks, strict=True):
            self.add_module(matrix, stack)


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
        stack = next(module for module in self.modules() if isinstance(module, SparseStack))
        if h.ndim != 3 or h.shape[2] != stack.shape[2] or h.dtype != stack.value.dtype:
            raise InputError(
                "the transformer takes a residual stream",
                got=f"{h.dtype} of shape {tuple(h.shape)}",
                allowed=f"{stack.value.dtype} of shape (batch, tokens, {stack.shape[2]})",
                hint="tf.stream(X, y, X_query) makes one",
            )
        for layer in self.layers():
            h = layer(h)
        return h


@dataclass(frozen=True)
class Target:
    """A target architecture.

    check: raises :class:`innergrad.errors.LoweringError`, with the reason, if it cannot realise a program.
    lower: program and approximants -> transformer; each layer of the program becomes exactly one module.
    cost: program, approximants, number of tokens, what the paper says -> the cost, without building the weights.
    modules: kind of layer -> its module, made from a name and one :class:`SparseStack` for each of its ``matrices``.
    """

    variants: tuple[str, ...]
    check: Callable[[Program], None]
    lower: Callable[[Program, Approximants], LoopedTransformer]
    cost: Callable[[Program, Approximants, int, dict[str, str]], Cost]
    modules: Mapping[str, type[Sublayer]]
