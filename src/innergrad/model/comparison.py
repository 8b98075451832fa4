"""The cost of one algorithm on every target and variant that has a program for it, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, shortened
from innergrad.functions.fits.sums import Approximant
from innergrad.ir.program import Options, Program
from innergrad.model.preparation import prepared
from innergrad.targets import TARGETS

Counting = Callable[[Program, dict[str, Approximant], Options], "Compared"]
PAPER = ("layers", "width D", "heads of the widest layer")  # parts of the paper's count that are shown


@dataclass(frozen=True)
class Compared:
    """A target and variant at the target's own epsilon: blocks a step, and the sizes of the widest layers. refused: why
    it has none of them.
    """

    target: str
    variant: str
    epsilon: float
    blocks_a_step: float = 0
    readout_blocks: int = 0
    heads: int = 0
    width: int = 0
    units: int = 0
    parameters: int = 0
    refused: str = ""


@dataclass(frozen=True)
class Comparison:
    """rows: in the order of the targets. paper: name of a number -> the paper's formula, and its value here."""

    rows: tuple[Compared, ...]
    paper: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"rows": [vars(row) for row in self.rows], "paper": self.paper}

    def __str__(self) -> str:
        names = ("blocks a step", "read-out", "heads", "width", "units", "parameters", "epsilon")
        lines = [f"{'target, variant':<20}" + "".join(f"{name:>14}" for name in names)]
        for row in self.rows:
            cells: list[float] = [row.blocks_a_step, row.readout_blocks, row.heads, row.width, row.units]
            shown = [*(f"{cell:,}" for cell in [*cells, row.parameters]), f"{row.epsilon:.0e}"]
            text = f"  {shortened(row.refused, 90)}" if row.refused else "".join(f"{cell:>14}" for cell in shown)
            lines.append(f"{row.target + ', ' + row.variant:<20}{text}")
        return "\n".join([*lines, *(f"paper: {name} {text}" for name, text in self.paper.items())])


def compared(algorithm: Algorithm, own: Options, count: Counting, targets: tuple[str, ...]) -> Comparison:
    """The variants of these targets, or of all, each compiled and counted. own: of the one that is compared."""
    for target in targets:
        TARGETS.find(target)
    rows = list[Compared]()
    for target, variant in _every(algorithm, targets):
        known = TARGETS[target]
        sizes: dict[str, Any] = {
            "epsilon": known.epsilon,
            "sigma": next(iter(known.sigmas), None),
            "epsilons": (),
            "weight_error": None,
        }
        mine = (target, variant) == (own.target, own.variant)
        options = own if mine else replace(own, target=target, variant=variant, **sizes)
        try:
            program = prepared(algorithm, options)
            rows.append(count(program, known.functions.approximants(program, options), options))
        except InputError as error:
            rows.append(Compared(target, variant, options.epsilon, refused=str(error)))
    return Comparison(tuple(rows), _paper(algorithm, own))


def _every(algorithm: Algorithm, targets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Where the algorithm says it has a program."""
    for name, target in TARGETS.items():
        meant = name in targets or not targets
        if meant and (name in algorithm.targets or algorithm.targets == ("any",)):
            yield from ((name, variant) for variant in algorithm.variants.get(name, target.variants))


def _paper(algorithm: Algorithm, own: Options) -> dict[str, str]:
    """At the epsilon of the target that it is about."""
    home = TARGETS.get(algorithm.home)
    found = algorithm.paper_cost(home.epsilon, own.n_examples) if home else {}
    return {name: found[name] for name in PAPER if name in found}
