"""Things that users choose among by name: activations, losses, targets, algorithms, kinds of tasks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from innergrad.errors import InputError

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
