"""Gradients of the library's own, whatever mode of torch's the caller is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def own_gradients() -> Iterator[None]:
    """Gradients are taken: under ``torch.no_grad`` and in ``torch.inference_mode``, too."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def in_no_mode(f: Callable[P, T]) -> Callable[P, T]:
    """A function that takes gradients of its own, and keeps none of the caller's."""

    @wraps(f)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with own_gradients():
            given = {name: _constant(value) for name, value in kwargs.items()}
            return f(*map(_constant, args), **given)  # type: ignore[arg-type]

    return called


def _constant(value: object) -> object:
    """A tensor, or those of a tuple, without the caller's gradients and mode."""
    if isinstance(value, tuple):
        return tuple(map(_constant, value)) if type(value) is tuple else value
    through = isinstance(value, Tensor) and (value.requires_grad or value.is_inference())
    return value.detach().clone() if isinstance(value, Tensor) and through else value
