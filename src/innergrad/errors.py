"""Errors that teach: what is wrong, what was found, what is allowed, what to do next."""

from __future__ import annotations


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


class DegenerateStart(UserWarning):
    """The initial weights make the gradient zero, or keep hidden units identical for ever."""
