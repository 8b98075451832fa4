"""Where the parameters of a model are in its row of theta (S, P), the one matrix that training keeps them in."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import pad

from innergrad.lab.learners.base import Learner

ALIGN = 64  # columns: products of matrices that begin elsewhere take twice as long


class Layout:
    """The parameters of a learner, one after another, each beginning at a multiple of ``ALIGN`` columns.

    Those that Muon takes come last, so that the columns of the others are one slice: ``others``.
    """

    def __init__(self, learner: Learner) -> None:
        self.matrices = learner.matrices
        named = sorted(learner.named_parameters(), key=lambda item: item[0] in self.matrices)
        self.shapes = {name: tuple(parameter.shape[1:]) for name, parameter in named}
        sizes = {name: -(-prod(shape) // ALIGN) * ALIGN for name, shape in self.shapes.items()}
        self.width = sum(sizes.values())
        self.others = slice(0, self.width - sum(size for name, size in sizes.items() if name in self.matrices))
        used = {name: prod(shape) for name, shape in self.shapes.items()}
        self._splits = [part for name in sizes for part in (used[name], sizes[name] - used[name])]

    @property
    def table(self) -> dict[str, list[object]]:
        """For readers of checkpoints: name -> [first column, shape]."""
        first = [sum(self._splits[: 2 * number]) for number in range(len(self.shapes))]
        return {name: [place, list(shape)] for place, (name, shape) in zip(first, self.shapes.items(), strict=True)}

    def unpack(self, matrix: Tensor) -> dict[str, Tensor]:
        """Views of a matrix (S, P), by the names and in the shapes of the parameters."""
        parts = matrix.split(self._splits, 1)[::2]
        return {name: part.unflatten(1, shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def pack(self, values: Sequence[Tensor]) -> Tensor:
        """The reverse: tensors (S, ...), one a parameter, as one float32 matrix (S, P)."""
        columns = [value.flatten(1).float() for value in values]
        return torch.cat([pad(each, (0, -each.shape[1] % ALIGN)) for each in columns], 1)
