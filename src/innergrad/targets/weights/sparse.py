"""A stack of mostly-zero matrices, stored by its entries, that saves and loads as the dense tensor it stands for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from innergrad.errors import InputError

BYTES_PER_ENTRY = 200  # of a nonzero weight while the matrices are being put together


def available_memory() -> int:
    """Bytes of memory that can be allocated now."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def require_memory(n_bytes: int, what: str, hint: str) -> None:
    """Refuse, before allocating, what the machine has no room for."""
    available = available_memory()
    if n_bytes > available:
        raise InputError(
            f"{what} needs {n_bytes / 2**30:.1f} GiB of memory", got=f"{available / 2**30:.1f} GiB available", hint=hint
        )


class Stack(nn.Module, ABC):
    """A stack of matrices that projects tokens to heads, and writes what heads computed to tokens."""

    shape: tuple[int, int, int]

    @abstractmethod
    def tall(self) -> Tensor:
        """The matrices below one another, (matrices * rows, columns)."""

    @abstractmethod
    def wide(self) -> Tensor:
        """The matrices side by side, (rows, matrices * columns)."""

    def project(self, h: Float[Tensor, "batch tokens columns"]) -> Float[Tensor, "matrices batch tokens rows"]:
        flat: Tensor = self.tall() @ h.flatten(0, 1).T
        return flat.view(self.shape[0], self.shape[1], *h.shape[:2]).permute(0, 2, 3, 1)

    def write(self, z: Float[Tensor, "matrices batch tokens columns"]) -> Float[Tensor, "batch tokens rows"]:
        """The sum over the matrices."""
        flat: Tensor = self.wide() @ z.permute(0, 3, 1, 2).flatten(2).flatten(0, 1)
        return flat.T.view(*z.shape[1:3], self.shape[1])


class SparseStack(Stack):
    """``matrices`` real matrices of shape (rows, columns), stored as entries (matrix, row, column) -> value.

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

    def dense(self) -> Float[Tensor, "matrices rows columns"]:
        count = self.shape[0] * self.shape[1] * self.shape[2]
        require_memory(
            count * self.value.element_size(),
            f"a dense {tuple(self.shape)} weight tensor",
            "work with its entries, or use executor='plain'",
        )
        full = self.value.new_zeros(self.shape)
        full.index_put_(tuple(self.index), self.value, accumulate=True)
        return full

    weight = property(dense, doc="The matrices, dense: what ``state_dict`` holds.")

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
