"""Layers that repeat: for people they are shown once, in tables and in pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

FEWEST_HIDDEN = 4  # a shorter run of layers that repeat is shown in full
LONGEST_PERIOD = 32  # layers that repeat together


def longest_run(forms: Sequence[object], start: int) -> tuple[int, int]:
    """The period, and the length, of the periodic run from here whose repetitions are the most layers."""

    def length(period: int) -> int:
        same = takewhile(lambda at: forms[at] == forms[at + period], range(start, len(forms) - period))
        return period + sum(1 for _ in same)

    periods = range(1, min((len(forms) - start) // 2, LONGEST_PERIOD) + 1)
    best = max(periods, key=lambda period: length(period) // period * period - period, default=1)
    return best, length(best)


def without_digits(name: str) -> str:
    """The name of a layer or lane, without its number."""
    return " ".join(re.sub(r"\d+", "", name).split())
