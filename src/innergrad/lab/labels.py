"""Labels of one number, y (B, n), and labels that are vectors, y (B, n, k): what all parts of the lab share about them.

A task says how many numbers its labels have (``outputs``). One number has no axis of its own, so that k = 1 and "no
vector" are the same thing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor

from innergrad.errors import InputError

Self = TypeVar("Self")


def shape_of_label(outputs: int) -> tuple[int, ...]:
    """The axes of a label: none for one number, (k,) for k of them."""
    return () if outputs == 1 else (outputs,)


def words_for_label(outputs: int) -> str:
    """How messages write the shape of labels."""
    return "(B, n)" if outputs == 1 else "(B, n, outputs)"


def by_component(predict: Callable[[Self, Tensor, Tensor], Tensor]) -> Callable[[Self, Tensor, Tensor], Tensor]:
    """For predictors ``predict(self, x, y)`` of one number: of a vector they predict every number by itself."""

    @wraps(predict)
    def each(self: Self, x: Tensor, y: Tensor) -> Tensor:
        if y.ndim < 3:
            return predict(self, x, y)
        return torch.stack([predict(self, x, one) for one in y.unbind(2)], 2)

    return each


def folded(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Prompts x (..., B, n, d) with labels y (..., B, k, q), as q times as many with labels of one number.

    Those of one prompt are one after another, and each has the whole x.
    """
    return x.repeat_interleave(y.shape[-1], -3), y.mT.flatten(-3, -2)


def require_one_number(what: str, y: Tensor | None = None, outputs: int = 1) -> None:
    """An error if labels are vectors, from something that is about labels of one number."""
    found = outputs if y is None or y.ndim < 3 else y.shape[2]
    if found > 1 or (y is not None and y.ndim > 2):
        raise InputError(f"{what} is for labels of one number", got=f"labels of {found}", hint="take one of them")
