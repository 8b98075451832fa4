"""Data sets of different sizes as one batch of prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.model.prompt import ArrayLike, array


def ragged(
    X: Sequence[ArrayLike], y: Sequence[ArrayLike], sample_weight: Sequence[ArrayLike] | None = None
) -> dict[str, Tensor]:
    """Data sets of different lengths as one batch: ``tf.run(**ig.ragged([X1, X2], [y1, y2]))``.

    Shorter ones are filled up with examples of weight zero, so each learns as if it were alone.

    Args:
        X: inputs of each data set.
        y: labels of each.
        sample_weight: weights of the examples of each.

    Examples:
        >>> import innergrad as ig, torch
        >>> batch = ig.ragged([torch.ones(3, 1), torch.ones(5, 1)], [torch.zeros(3, 1), torch.zeros(5, 1)])
        >>> {name: tuple(value.shape) for name, value in batch.items()}
        {'X': (2, 5, 1), 'y': (2, 5, 1), 'sample_weight': (2, 5)}
    """
    inputs, targets = _sets("X", X), _sets("y", y)
    ones = [part.new_ones(len(part)) for part in inputs]
    given = ones if sample_weight is None else _sets("sample_weight", sample_weight)
    for name, parts in (("y", targets), ("sample_weight", given)):
        if len(parts) != len(inputs):
            raise InputError(f"a batch has as many {name} as X", got=f"{len(parts)} and {len(inputs)}")
        for number, (part, rows) in enumerate(zip(parts, inputs, strict=True)):
            if part.shape[:1] != rows.shape[:1] or part.shape[1:] != parts[0].shape[1:]:
                got, allowed = tuple(part.shape), str((len(rows), *parts[0].shape[1:]))
                raise InputError(f"{name} of data set {number} has the wrong shape", got=got, allowed=allowed)
    longest = max(map(len, inputs))

    def filled(part: Tensor, with_first: bool) -> Tensor:
        rest = part[:1].expand(longest - len(part), *part.shape[1:])
        return torch.cat([part, rest if with_first else torch.zeros_like(rest)])

    return {
        "X": torch.stack([filled(part, True) for part in inputs]),
        "y": torch.stack([filled(part, True) for part in targets]),
        "sample_weight": torch.stack([filled(part, False) for part in given]),
    }


def _sets(name: str, parts: Sequence[ArrayLike]) -> list[Tensor]:
    """The data sets' arrays; of X, with as many columns each."""
    if isinstance(parts, str | bytes) or not isinstance(parts, Iterable):
        raise InputError(f"{name} is not a list of arrays", got=type(parts).__name__, hint="one for each data set")
    found = [array(f"{name}[{number}]", part, torch.float64) for number, part in enumerate(parts)]
    if name == "X" and (not found or any(part.ndim != 2 or not len(part) for part in found)):
        shapes = [tuple(part.shape) for part in found][:4]
        raise InputError(
            "a batch is made of data sets, X (n, d_x) and y each", got=f"{len(found)} of X with shapes {shapes}"
        )
    if name == "X" and len({part.shape[1] for part in found}) > 1:
        raise InputError("data sets of a batch have the same columns", got=sorted({part.shape[1] for part in found}))
    return found
