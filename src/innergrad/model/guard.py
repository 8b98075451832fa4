"""The domains a transformer was compiled for, and the handling of values outside them.

    inputs      |X| <= x_bound, |y| <= y_bound, as declared; initial weights within their box
    lanes       the ranges that a layer's products are made for, where products are not exact
    arguments   the domains of approximants

A :class:`Guard` knows them all and watches one run. A value outside is an error. If flags were asked for, it is a
sentence in ``violations``, and the run continues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.functions.ball import ROOT
from innergrad.functions.fits.sums import Approximant
from innergrad.interpret.plain import SCALE_INPUTS, Limits, argument_left, enlarge, lane_left, range_error, slack
from innergrad.ir.program import Attend, Layer, Options, Program, Score
from innergrad.ir.stream import State

Outside = Literal["error", "flag"]
BEFORE_THE_BALL = "weights may be four radii long before they are projected: give a larger ball, or a smaller lr"
Ranges = Callable[[Layer], Mapping[str, Limits]]  # of the lanes that a layer's products are made for


def check_outside(outside: object) -> None:
    if outside not in get_args(Outside):
        raise InputError("unknown treatment of violations", got=repr(outside), allowed="'error' or 'flag'")


def in_prompts(outside: Tensor, first: int | None) -> str:
    """Which prompts of a batch: ``outside`` is (batch, ...). first: the number of the first, if it is a part of one."""
    rows = (outside.reshape(len(outside), -1).any(-1).nonzero().flatten() + (first or 0)).tolist()
    if len(outside) == 1 and first is None:
        return ""
    return f"in prompt{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows))} of the batch"


@dataclass
class Guard:
    """Watches a run.

    options: the declared domain of inputs; None: nothing is declared. violations: a sentence each, if they are flagged.
    first: the number of the first prompt that runs, if the batch runs in parts.
    """

    program: Program
    options: Options | None = None
    approximants: Mapping[str, Approximant] = field(default_factory=dict)
    ranges: Ranges = lambda layer: {}
    outside: Outside = "error"
    violations: list[str] = field(default_factory=list)
    first: int | None = None
    step: int = field(default=0, init=False)  # 0: the prompt itself is being checked

    def __post_init__(self) -> None:
        check_outside(self.outside)

    @property
    def flags(self) -> bool:
        return self.outside == "flag"

    def report(self, error: InputError) -> None:
        """Refuse, or take note."""
        if not self.flags:
            raise error
        where = "" if self.step == 0 else f"step {self.step}, " if self.step <= self.program.steps else "read-out, "
        self.violations.append(f"{where}{error}")

    def begin(self) -> None:
        """The first layer comes next."""
        self.step = 1

    def aside(self) -> Guard:
        """For a run beside this one, with violations of its own."""
        return replace(self, violations=[])

    def part(self, first: int | None) -> Guard:
        """For a part of the batch, from this prompt on. Its flags are flagged here, too."""
        return replace(self, first=first)

    # -------------------------------------------------------------------------------------------------------- inputs

    def inputs(self, X: Tensor, X_query: Tensor, y: Tensor, w0: Tensor) -> None:
        X, X_query, y, w0 = (part.detach() for part in (X, X_query, y, w0))
        if self.options is not None:
            self._bound("X", torch.cat([X, X_query], dim=1), self.options.x_bound)
            self._bound("y", y, self.options.y_bound)
        start = 0
        for part in self.program.parts:
            sizes, bound = w0[:, start : start + part.size].abs(), self.program.stream[part.lane].bound
            if float(sizes.max()) > bound:
                ball = self.program.stream[part.lane].bound_from == "ball"
                kind, what = ("ball", "the ball must be near w0") if ball else ("box", "the box must contain w0")
                limit = f"at most {bound:g}, four radii" if ball else f"a box of {bound:g}"
                found = f"max |{part.lane}| = {float(sizes.max()):.6g} with {limit}"
                hint = f"use a larger {kind} or smaller initial weights"
                hint = _joined(in_prompts(sizes > bound, self.first), hint)
                self.report(InputError(what, got=found, hint=hint))
            start += part.size

    def _bound(self, name: str, tensor: Tensor, bound: float | None) -> None:
        largest = float(tensor.abs().max())
        if bound is not None and largest > bound:
            what = f"{name} leaves the domain the transformer was compiled for"
            found, place = f"max |{name}| = {largest:g}", in_prompts(tensor.abs() > bound, self.first)
            self.report(InputError(what, got=found, allowed=f"at most {bound:g}", hint=place))

    # ------------------------------------------------------------------------------------------------------- the run

    def lanes(self, layer: Layer, before: State) -> None:
        """The lanes that a layer read."""
        for lane, limits in self.ranges(layer).items():
            self._inside(
                lane_left(layer, lane), before[lane], limits, slack(limits), enlarge(self.program.stream[lane])
            )

    def bounded(self, score: Score) -> bool:
        """The function of this score has an approximant with a bounded domain."""
        f = self.approximants.get(score.f.name)
        return f is not None and any(map(math.isfinite, f.domain))

    def argument(self, layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
        """An argument of a function: an observer of the plain interpreter."""
        del instruction
        if self.bounded(score):
            domain, hint = self.approximants[score.f.name].domain, "" if self.flags else SCALE_INPUTS
            if hint and score.f == ROOT:
                hint = BEFORE_THE_BALL
            self._inside(argument_left(layer, score.f.name), argument, domain, 0.0, hint)

    def _inside(self, what: str, values: Tensor, limits: Limits, room: float, hint: str) -> None:
        """Refuse, or take note of, values that are farther than ``room`` outside the limits."""
        values, low, high = values.detach(), limits[0] - room, limits[1] + room
        if values.numel() and (float(values.min()) < low or float(values.max()) > high):
            place = in_prompts((values < low) | (values > high), self.first)
            self.report(range_error(what, values, limits, _joined(place, hint)))


def _joined(*hints: str) -> str:
    return "; ".join(filter(None, hints))
