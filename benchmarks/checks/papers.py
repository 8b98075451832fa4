"""Stored results of functional_theorems.py: what docs/reproduction.md says of Theorems 4.5 and 4.6 of Cheng et al."""

from __future__ import annotations

import functional_theorems as bench
from _results import read
from checks._require import require

FILE = f"results/{bench.NAME}.json"


def the_gradient_stays_in_the_predicted_set() -> None:
    """And only there, and only with the average over all axes."""
    for row in read(bench.NAME)["set"]:
        where = f"{FILE}, set, {row['kernel']}, {row['attention']}, free_A {row['free_A']}"
        require(row["averaged"] < bench.ZERO, f"{where}, averaged", row["averaged"], f"below {bench.ZERO:g}")
        for name in ("one axis", "off"):
            require(row[name] > bench.CLEAR, f"{where}, {name}", row[name], f"above {bench.CLEAR:g}")


def descent_on_the_set_ends_where_the_full_gradient_vanishes() -> None:
    for row in read(bench.NAME)["flow"]:
        where = f"{FILE}, flow, {row['kernel']}, {row['attention']}, free_A {row['free_A']}"
        require(row["predicted"] < bench.ENDED, f"{where}, predicted", row["predicted"], f"below {bench.ENDED:g}")
        require(row["wrong"] > 1e-3, f"{where}, wrong", row["wrong"], "above 0.001")


CHECKS = (the_gradient_stays_in_the_predicted_set, descent_on_the_set_ends_where_the_full_gradient_vanishes)
