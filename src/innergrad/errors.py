"""Errors that teach: what is wrong, what was found, what is allowed, what to do next; and the things that users choose
among by name (activations, losses, targets, algorithms, kinds of tasks), whose unknown names are such errors.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Mapping
from typing import Any, SupportsIndex, TypeVar


class InputError(ValueError):
    """The caller's input is wrong. One line: what, got, allowed, next step. The command line exits with code 2."""

    def __init__(self, what: str, *, got: object = None, allowed: str = "", hint: str = "") -> None:
        parts = [what]
        if got is not None:
            parts.append(f"got {got}")
        if allowed:
            parts.append(f"allowed: {allowed}")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


class DomainError(InputError):
    """A value left the interval on which an approximant is valid (only functions without asymptotes have one)."""


class LoweringError(InputError):
    """A target architecture cannot realise an instruction of the program."""


class JobError(RuntimeError):
    """The input is well-formed, but the job failed. The command line exits with code 1."""


class DegenerateStart(UserWarning):
    """The initial weights make the gradient zero, or keep hidden units identical for ever."""


class PoorRun(UserWarning):
    """A run has not learned, or not what it could: its loss rises, or its weights are at the box, and the like."""


class LongRun(UserWarning):
    """What was asked for will take more than a few seconds."""


class NotPositive(UserWarning):
    """The kernel has negative eigenvalues: the recursion it defines does not converge."""


def lacks(instance: object, method: str) -> InputError:
    """The error of a class of the user's own that has left out what its family asks for."""
    return InputError(f"{type(instance).__name__} has no {method}", hint="docs/extending.md shows an example")


def integer(name: str, value: object, low: int = 1, high: float = math.inf) -> int:
    """A Python integer from ``low`` to ``high``; numpy's integers are integers, True is not."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = value.__index__()
        if low <= number <= high:
            return number
    kind = "a positive integer" if low == 1 else f"an integer, at least {low}"
    raise InputError(f"{name} must be {kind}", got=repr(value), allowed="" if high == math.inf else f"{low} to {high}")


def real(name: str, value: object, *, low: float = -math.inf, above: float = -math.inf, hint: str = "") -> float:
    """A finite Python float, at least ``low`` and greater than ``above``."""
    kind = (
        "a positive number" if above == 0.0 else "a finite number" + ("" if low == -math.inf else f", at least {low:g}")
    )
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number >= low and number > above:
            return number
    got = repr(value)
    raise InputError(f"{name} must be {kind}", got=got if len(got) < 80 else got[:77] + "...", hint=hint)


def seed_number(value: object) -> int:
    """A seed that torch's generators take."""
    number = integer("seed", value, low=0)
    if number >= 2**63:
        raise InputError("seed must be less than 2^63", got=number)
    return number


T = TypeVar("T")


class Registry(dict[str, T]):
    """A dictionary of such things, whose errors teach: ``what`` they are, ``unknown`` and ``hint`` of an unknown name.

    find(name)     the thing of this name, or an InputError: what is wrong, what was found, what is allowed, what next
    add(name, it)  one more class; two cannot share a name, but one that is defined again (a notebook's cell) replaces
                   itself
    with_own(...)  the same with things of the user's own, which are found before those of the same name
    """

    def __init__(self, what: str, things: Mapping[str, T], *, unknown: str = "", hint: str = "") -> None:
        super().__init__(things)
        self.what, self.unknown, self.hint = what, unknown or f"unknown {what}", hint

    def find(self, name: object) -> T:
        if isinstance(name, str) and name in self:
            return self[name]
        near = [f"did you mean {near}?" for near in difflib.get_close_matches(str(name), self, n=1)]
        hint = "; ".join([*near, self.hint] if self.hint else near)
        raise InputError(self.unknown, got=repr(name), allowed=", ".join(self), hint=hint)

    def add(self, name: str, thing: T) -> None:
        here, there = _full_name(thing), _full_name(self.get(name, thing))
        if here != there:
            got = f"{there} and {here}"
            raise InputError(f"two classes of {self.what} {name!r}", got=got, hint="give yours another")
        self[name] = thing

    def with_own(self, own: Mapping[str, T]) -> Registry[T]:
        return Registry(self.what, {**self, **own}, unknown=self.unknown, hint=self.hint)


def _full_name(cls: Any) -> str:
    """What a class is known by when its definition runs again."""
    return f"{cls.__module__}.{cls.__qualname__}"
