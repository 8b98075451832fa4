"""The exact interpreter: the program with the functions themselves, i.e. the algorithm."""

from __future__ import annotations

from collections.abc import Iterator

from innergrad.interpret import plain
from innergrad.program import Layer, Program
from innergrad.stream import State


def run(program: Program, state: State) -> Iterator[tuple[Layer, State, bool]]:
    """As :func:`innergrad.interpret.plain.run`, without approximants."""
    return plain.run(program, state, program.functions())
