"""Data sets of different sizes as one batch of prompts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.model.prompt import ArrayLike


def ragged(
    X: Sequence[ArrayLike], y: Sequence[ArrayLike], sample_weight: Sequence[ArrayLike] | None = None
) -> dict[str, Tensor]:
    """``tf.run(**ig.ragged([X1, X2], [y1, y2]))``: data sets with n_1, n_2, ... examples in one call.

    Shorter ones are filled up with examples of weight zero (copies of their first), so each learns as if it were alone.
    """
    inputs, targets = ([torch.as_tensor(part) for part in parts] for parts in (X, y))
    weights = [torch.as_tensor(w) for w in sample_weight] if sample_weight is not None else None
    if not inputs or len(inputs) != len(targets) or any(part.ndim != 2 or not len(part) for part in inputs):
        raise InputError(
            "a batch is made of data sets, X (n, d_x) and y each",
            got=f"{len(inputs)} of X with shapes {[tuple(part.shape) for part in inputs][:4]}, {len(targets)} of y",
        )
    given = [torch.ones(len(part)) for part in inputs] if weights is None else weights
    for number, parts in enumerate(zip(inputs, targets, given, strict=True)):
        if len({len(part) for part in parts}) > 1:
            raise InputError(
                f"data set {number} has not as many targets or weights as inputs", got=[len(part) for part in parts]
            )
    longest = max(map(len, inputs))

    def filled(part: Tensor, with_first: bool) -> Tensor:
        rest = part[:1].expand(longest - len(part), *part.shape[1:])
        return torch.cat([part, rest if with_first else torch.zeros_like(rest)])

    return {
        "X": torch.stack([filled(part, True) for part in inputs]),
        "y": torch.stack([filled(part, True) for part in targets]),
        "sample_weight": torch.stack([filled(part, False) for part in given]),
    }
