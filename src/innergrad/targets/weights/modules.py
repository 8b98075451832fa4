"""Transformers as torch modules: matrices that are mostly zero, sublayers made of them, and sublayers in loops.

A stack of matrices is stored by its entries, and saves and loads as the dense tensor it stands for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from innergrad.errors import InputError
from innergrad.ir.program import Layer, Program
from innergrad.memory import require_memory

BYTES_PER_ENTRY = 200  # of a nonzero weight while the matrices are being put together


class SparseStack(nn.Module):
    """``matrices`` matrices of shape (rows, columns), stored as entries (matrix, row, column) -> value. It projects
    tokens to heads, and writes the heads' results to tokens.

    ``state_dict`` materialises them as one dense tensor, ``W_Q.weight``; ``load_state_dict`` takes such a tensor.
    """

    index: Tensor
    value: Tensor

    def __init__(self, shape: tuple[int, int, int], index: Tensor, value: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("value", value, persistent=False)

    def extra_repr(self) -> str:
        return f"{tuple(self.shape)}, nonzeros={self.value.numel()}"

    def dense(self, device: torch.device | str | None = None) -> Float[Tensor, "matrices rows columns"]:
        """device: of the matrices; by default that of the entries."""
        count = self.shape[0] * self.shape[1] * self.shape[2]
        require_memory(
            count * self.value.element_size(),
            f"a dense {tuple(self.shape)} weight tensor",
            "work with its entries, or use executor='plain'",
        )
        index, value = self.index.to(device), self.value.to(device)
        full = value.new_zeros(self.shape)
        full.index_put_(tuple(index), value, accumulate=True)
        return full

    weight = property(dense, doc="The matrices, dense, as in ``state_dict``.")

    def tall(self) -> Tensor:
        """The matrices below one another, (matrices * rows, columns), sparse."""
        matrix, row, column = self.index
        return torch.sparse_coo_tensor(
            torch.stack([matrix * self.shape[1] + row, column]),
            self.value,
            (self.shape[0] * self.shape[1], self.shape[2]),
            check_invariants=False,
        )

    def wide(self) -> Tensor:
        """The matrices side by side, (rows, matrices * columns), sparse."""
        matrix, row, column = self.index
        return torch.sparse_coo_tensor(
            torch.stack([row, matrix * self.shape[2] + column]),
            self.value,
            (self.shape[1], self.shape[0] * self.shape[2]),
            check_invariants=False,
        )

    def project(self, h: Float[Tensor, "batch tokens columns"]) -> Float[Tensor, "matrices batch tokens rows"]:
        flat: Tensor = self.tall() @ h.flatten(0, 1).T
        return flat.view(self.shape[0], self.shape[1], *h.shape[:2]).permute(0, 2, 3, 1)

    def write(self, z: Float[Tensor, "matrices batch tokens columns"]) -> Float[Tensor, "batch tokens rows"]:
        """The sum over the matrices."""
        flat: Tensor = self.wide() @ z.permute(0, 3, 1, 2).flatten(2).flatten(0, 1)
        return flat.T.view(*z.shape[1:3], self.shape[1])

    def some(self, first: int, last: int, rows: int, columns: int) -> SparseStack:
        """The matrices from ``first`` to before ``last``, of so many rows and columns: others of theirs are zero."""
        chosen = (self.index[0] >= first) & (self.index[0] < last)
        index = self.index[:, chosen]
        index[0] -= first
        return SparseStack((last - first, rows, columns), index, self.value[chosen])

    def used(self, axis: int) -> Tensor:
        """Of every matrix, how many rows (axis 1) or columns (2) it has up to the last that is not zero."""
        found = self.index.new_zeros(self.shape[0])
        return found.scatter_reduce_(0, self.index[0], self.index[axis] + 1, "amax")

    def norms(self, often: Tensor | int = 1) -> Float[Tensor, " matrices"]:
        """Induced 1-norm (largest absolute column sum) of every matrix. often: for how many an entry counts."""
        matrix, _, column = self.index
        return _largest_sums(self.shape, matrix, column, self.value.abs() * often)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.dense()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        name, missing = prefix + "weight", args[2]
        if name not in state_dict:
            missing.append(name)
            return
        full = state_dict[name]
        if tuple(full.shape) != self.shape:
            raise InputError(f"{name} has the wrong shape", got=tuple(full.shape), allowed=str(self.shape))
        self.index = full.nonzero().T.contiguous()
        self.value = full[tuple(self.index)].to(self.value.dtype)


def stack(shape: tuple[int, int, int], entries: Iterable[tuple[int, int, int, float]]) -> SparseStack:
    """From entries (matrix, row, column, weight), in any order."""
    table = np.array([entry for entry in entries if entry[3] != 0.0], dtype=np.float64).reshape(-1, 4)
    table = table[np.lexsort(table[:, 2::-1].T)]  # the order in which a dense matrix is read
    return SparseStack(
        shape, torch.from_numpy(table[:, :3].T.astype(np.int64).copy()), torch.from_numpy(table[:, 3].copy())
    )


def value_norms(W_V: SparseStack, W_O: SparseStack) -> Float[Tensor, " heads"]:
    """||W_O W_V||_1 of every head (largest absolute column sums), from the entries."""
    (_, d_v, D), (m, e, r), (n, s, c) = W_V.shape, W_O.index, W_V.index
    rows, order = torch.sort(n * d_v + s)
    wanted = m * d_v + r  # the row of W_V that each entry of W_O meets
    first, last = torch.searchsorted(rows, wanted), torch.searchsorted(rows, wanted, right=True)
    left = torch.repeat_interleave(torch.arange(len(m)), last - first)
    right = order[torch.arange(len(left)) + (last - (last - first).cumsum(0))[left]]
    places, index = torch.unique((m[left] * D + e[left]) * D + c[right], return_inverse=True)
    products = W_O.value.new_zeros(len(places)).index_add_(0, index, W_O.value[left] * W_V.value[right])
    return _largest_sums(W_V.shape, places // D**2, places % D, products.abs())


def _largest_sums(shape: tuple[int, int, int], matrix: Tensor, column: Tensor, sizes: Tensor) -> Tensor:
    """Of every matrix, the largest sum over a column; dense they would be large."""
    places, index = torch.unique(matrix * shape[2] + column, return_inverse=True)
    sums = sizes.new_zeros(len(places)).index_add_(0, index, sizes)
    return sizes.new_zeros(shape[0]).scatter_reduce_(0, places // shape[2], sums, "amax")


# -------------------------------------------------------------------------------------------------- sublayers and loops


class Count(NamedTuple):
    """The counts that make the cost of a layer."""

    shapes: dict[str, tuple[int, int, int]]
    nonzeros: int
    norm: float


class Sublayer(nn.Module):
    """One layer: stream in, stream out.

    ``matrices`` names its weights, each a :class:`SparseStack`. ``settings`` has everything else that it needs, as JSON
    values. ``hook_*`` submodules pass one tensor through unchanged, for :meth:`LoopedTransformer.run_with_cache` and
    for hooks of the user's own.
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
        """The tensor, after the hooks of everybody who looks at it."""
        return cast(Tensor, getattr(self, hook)(tensor))

    def counted(self, copies: Tensor | None = None, one: int = -1) -> Count:
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
        """The forward pass, and the tensors inside it, by name.

        ``layers.3.hook_resid_pre`` and ``layers.3.hook_resid_post`` are the stream before and after the fourth layer
        that is applied. (A loop's layers are applied, and so named, several times.) Other names depend on the kind of
        layer: ``hook_q``, ``hook_k``, ``hook_v``, ``hook_pattern``, ``hook_pre``, ``hook_post`` ...
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
