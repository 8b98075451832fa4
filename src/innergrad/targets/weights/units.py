"""The units of an MLP, instruction by instruction: functions, products and linear maps as sums of one sigma.

A unit is a row of W_1, a bias, and what it writes. Units with the same row and bias are one.

Products: u v = ((u + v)^2 - (u - v)^2) / 4, u and v scaled to the same range, and z^2 a sum of sigma
(:mod:`innergrad.functions.fits`). Their error is relative to the square of
the range that lanes are declared to stay in; leaving it is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from innergrad.functions.fits.sigmas import Terms
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.scalar import NEGATION
from innergrad.ir.program import Attend, Program
from innergrad.targets.weights.rows import Row, add, destinations, family, linear_form, scaled, score_rows

EXACT: Terms = ((1.0, 0.0, 1.0), (-1.0, 0.0, -1.0))  # sigma(z) - sigma(-z) = z, whatever z


@dataclass(frozen=True)
class Algebra:
    """t and t^2 for |t| <= 1 as sums of sigma; ``linear`` is EXACT where it holds for every t."""

    linear: Terms
    square: Terms


class Units:
    """The units of one MLP. bound: the range of every entry of the stream; one: the entry that holds 1."""

    def __init__(self, program: Program, bound: np.ndarray, algebra: Algebra) -> None:
        self.program, self.bound, self.algebra = program, bound, algebra
        self.one = program.stream.entry("one")
        self.units: dict[tuple[tuple[tuple[int, float], ...], float], Row] = {}
        self.linear: dict[int, Row] = {}

    def rows(self) -> list[tuple[Row, float, Row]]:
        """(row of W_1, bias, what is written) of every unit."""
        for entry, row in self.linear.items():
            R = 1.0 if self.algebra.linear is EXACT else self.range(row)
            for a, b, c in self.algebra.linear if R else ():
                self.unit(scaled(row, a / R), b, entry, c * R)
        self.linear = {}
        return [(dict(items), bias, row) for (items, bias), row in self.units.items() if any(row.values())]

    def range(self, row: Row) -> float:
        return sum(abs(weight) * float(self.bound[entry]) for entry, weight in row.items())

    def unit(self, row: Row, bias: float, entry: int, weight: float) -> None:
        key = tuple(sorted((e, w) for e, w in row.items() if w)), bias
        written = self.units.setdefault(key, {})
        written[entry] = written.get(entry, 0.0) + weight

    def add(self, entry: int, row: Row, factor: float) -> None:
        """dst += factor * row."""
        add(self.linear.setdefault(entry, {}), row, factor)

    def compute(self, instruction: Attend, approximants: Mapping[str, Approximant]) -> None:
        """dst += scale f(linear form), scale u v, or scale (linear form)."""
        for index in family(self.program, instruction):
            pairs = [score_rows(self.program, instruction, score, index) for score in instruction.scores]
            for entry, value in destinations(self.program, instruction, index):
                if not pairs:
                    self.add(entry, value, instruction.scale)
                    continue
                f, terms = instruction.scores[0].f, pairs[0]
                fitted = approximants.get(f.name)
                if fitted is not None:
                    self.function(fitted, linear_form(terms, self.one), self.one, entry, instruction.scale)
                    continue
                scale = -instruction.scale if f == NEGATION else instruction.scale
                if set(value) == {self.one}:
                    for u, v in terms:
                        self.multiply(u, v, entry, scale * value[self.one])
                else:
                    self.multiply(linear_form(terms, self.one), value, entry, scale)

    def function(self, f: Approximant, form: Row, one: int, entry: int, scale: float) -> None:
        """dst += scale f(form); one: the entry that reads 1."""
        if isinstance(f, PiecewiseLinear):
            for a, b, c in f.hinges.tolist():
                self.unit(scaled(form, a), b, entry, scale * c)
            return
        if f.slope:
            self.add(entry, form, scale * f.slope)
        if f.constant:
            self.add(entry, {one: 1.0}, scale * f.constant)
        for a, b, c in zip(f.a, f.b, f.c, strict=True):
            self.unit(scaled(form, a), b, entry, scale * c)

    def multiply(self, u: Row, v: Row, entry: int, scale: float) -> None:
        """dst += scale u v; linear if one factor is a constant."""
        for a, b in ((u, v), (v, u)):
            if set(a) == {self.one}:
                self.add(entry, b, scale * a[self.one])
                return
        R_u, R_v = self.range(u), self.range(v)
        if u == v:
            self._square(u, R_u, entry, scale)
        elif R_u and R_v:
            balance = 2.0 ** round(math.log2(R_v / R_u) / 2)
            for sign in (1.0, -1.0):
                z = scaled(u, balance)
                add(z, v, sign / balance)
                self._square(z, R_u * balance + R_v / balance, entry, sign * scale / 4)

    def _square(self, z: Row, R: float, entry: int, scale: float) -> None:
        """dst += scale z^2 for |z| <= R."""
        for a, b, c in self.algebra.square:
            self.unit(scaled(z, a / R), b, entry, scale * c * R**2)
