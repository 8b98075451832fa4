"""The exact interpreter: the program with the functions themselves, i.e. the algorithm."""

from __future__ import annotations

from innergrad.functions.scalar import Function
from innergrad.program import Program


def exact_functions(program: Program) -> dict[str, Function]:
    """The functions to hand to :func:`innergrad.interpret.plain.run` to run the algorithm itself."""
    return program.functions()
