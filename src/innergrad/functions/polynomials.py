"""A polynomial, on tensors by Horner's rule; on intervals with its Taylor coefficients, and so on jets in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from innergrad.functions.intervals import Interval
from innergrad.functions.jets import Jet


@dataclass(frozen=True)
class Polynomial:
    """sum_k c_k (slope s)^k, at least of degree one."""

    c: tuple[float, ...]
    slope: float = 1.0

    def __call__(self, s: Any) -> Any:
        if isinstance(s, Jet):
            value, first, second = self.series(s.value, 2)
            return s.chain(value, first, second.times(np.array(2.0)))
        x = s * self.slope
        total = x * self.c[-1] + self.c[-2]
        for c in self.c[-3::-1]:
            total = total * x + c
        return total

    def series(self, s: Interval, order: int) -> list[Interval]:
        """p^(k)(s) / k!, k = 0 .. order, by synthetic division: by x - x_0 over and over."""
        slope = Interval.point(np.full_like(s.lo, self.slope))
        x, power, found = s * slope, Interval.point(np.ones_like(s.lo)), list[Interval]()
        rest = [Interval.point(np.full_like(s.lo, c)) for c in reversed(self.c)]
        for _ in range(order + 1):
            for k in range(1, len(rest)):
                rest[k] = rest[k] + rest[k - 1] * x
            found.append(rest.pop() * power if rest else Interval.point(np.zeros_like(s.lo)))
            power = power * slope
        return found
