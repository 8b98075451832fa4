"""Stored results of variants.py and optimisers.py: what the pages claim of variants and of settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optimisers
import variants as bench
from _results import read
from checks._require import equal, near, require

DOCS = Path(__file__).parent.parent.parent / "docs"
FILE, SETTINGS = "results/variants.json", "results/optimisers.json"
DEPTH: dict[str, Callable[[int], int]] = {
    "literal": lambda N: 2 * N + 4,
    "compact": lambda N: 2 * N - 1,
    "shallow": lambda N: N + 2,
    "narrow": lambda N: 3 * N + 3,
}


def depths_are_the_formulas() -> None:
    rows = read("variants")["variants"]
    wanted = [(N, variant) for N in bench.DEPTHS for variant in bench.VARIANTS]
    equal(f"{FILE}, variants, rows", [(row["N"], row["variant"]) for row in rows], wanted)
    for row in rows:
        where = f"{FILE}, variants, N = {row['N']}, {row['variant']}, layers"
        equal(where, row["layers"], DEPTH[row["variant"]](row["N"]))


def errors_of_variants_are_as_the_page_says() -> None:
    """Two pairs of equal errors; a dense run is a plain one; bounds hold, those of steps in pairs; paths differ."""
    for N in bench.DEPTHS:
        where = f"{FILE}, variants, N = {N}"
        by: dict[str, dict[str, Any]] = {row["variant"]: row for row in read("variants")["variants"] if row["N"] == N}
        for a, b in (("literal", "narrow"), ("compact", "shallow")):
            for key in ("median", "max"):
                near(f"{where}, {key} of {a} against {b}", by[a][key], by[b][key], rel=1e-9)
        near(f"{where}, step of literal against narrow", by["literal"]["step"], by["narrow"]["step"], rel=1e-9)
        path = {name: row["path_5"] for name, row in by.items()}
        rising = path["compact"] < path["literal"] < path["narrow"]
        require(rising, f"{where}, path_5", path, "compact < literal < narrow")
        if N >= 4:
            require(path["shallow"] < path["compact"], f"{where}, path_5", path, "shallow < compact")
        away = {name: row["literal"] for name, row in by.items()}
        apart = away["narrow"] < 1e-14 < away["compact"]
        require(apart, f"{where}, distance to literal", away, "of narrow below 1e-14, of compact above")
        dense = max(row["dense"] for row in by.values())
        require(dense < 1e-14, f"{where}, dense", dense, "below 1e-14")


def the_width_of_narrow_is_a_straight_line_and_that_of_literal_is_none() -> None:
    stored = read("variants")
    literal, narrow = stored["fits"]
    equal(f"{FILE}, fits, variants", (literal["variant"], narrow["variant"]), ("literal", "narrow"))
    near(f"{FILE}, fits, slope of narrow", narrow["slope"], 10.0, rel=1e-6)
    near(f"{FILE}, fits, intercept of narrow", narrow["intercept"], 20.0, rel=1e-6)
    require(narrow["residual"] < 1e-9, f"{FILE}, fits, residual of narrow", narrow["residual"], "below 1e-9")
    require(literal["residual"] > 0.5, f"{FILE}, fits, residual of literal", literal["residual"], "above 0.5")
    wide, thin = ([row for row in stored["widths"] if row["variant"] == name] for name in ("literal", "narrow"))
    equal(f"{FILE}, widths, widths of narrow's widest layer", len({row["widest"] for row in thin}), 1)
    ratios = [b["flops_structured"] / a["flops_structured"] for a, b in zip(wide, thin, strict=True)]
    wider = ratios[1:]  # below, the functions of scores count for more than the scores
    require(wider == sorted(wider), f"{FILE}, widths, operations of narrow over literal", ratios, "rising from K = 8")
    require(min(ratios) > 1, f"{FILE}, widths, operations of narrow over literal", min(ratios), "more than 1")


def lanes_of_jacobians_are_the_formula() -> None:
    for row in read("variants")["jacobians"]:
        where = f"{FILE}, jacobians, N = {row['N']}, K = {row['K']}, lanes"
        equal(where, row["lanes"], max(2 * row["N"] - 5, 0) * row["K"] ** 2)


def joint_knots_are_fewer_than_both() -> None:
    for row in read("variants")["knots"]:
        fewer = max(row["r"], row["dr"]) <= row["joint"] < row["r"] + row["dr"]
        require(fewer, f"{FILE}, knots, joint", row, "at least those of each, fewer than the sum")


def every_rule_is_torch_optim() -> None:
    """That the rows are all rules of today, in order, is a test: it runs them."""
    rows = read("optimisers")["rules"]
    require(rows, f"{SETTINGS}, rules", rows, "at least one")
    for row in rows:
        where = f"{SETTINGS}, rules, {row['rule']}"
        require(row["distance"] < 1e-13, f"{where}, distance", row["distance"], "below 1e-13")
        require(row["moved"] > 0.1, f"{where}, moved", row["moved"], "above 0.1")


def adam_is_certified_and_falls_with_epsilon() -> None:
    """Errors are within certificates and fall with epsilon; the number of heads does not depend on delta."""
    rows = read("optimisers")["adam"]
    for delta in optimisers.DELTAS:
        where, group = f"{SETTINGS}, adam, delta = {delta}", [row for row in rows if row["delta"] == delta]
        equal(f"{where}, epsilons", [row["epsilon"] for row in group], list(optimisers.EPSILONS))
        equal(f"{where}, heads", [row["heads"] for row in group], [row["heads"] for row in rows[:3]])
        for row in group:
            inside = row["first"] <= row["bound"]
            require(inside, f"{where}, epsilon = {row['epsilon']}, first", row["first"], f"at most {row['bound']}")
        first = [row["first"] for row in group]
        falling = first[0] > 5 * first[1] > 25 * first[2]
        require(falling, f"{where}, first", first, "a fifth at most, from each epsilon to the next")
    for row in read("optimisers")["pieces"]:
        where = f"{SETTINGS}, pieces, epsilon = {row['epsilon']}"
        off = abs(row["pieces"] - row["formula"])
        require(off < 1.5, f"{where}, pieces", row["pieces"], f"{row['formula']:.2f}, less than 1.5 off")
        require(row["float64"] < 1e-13, f"{where}, float64", row["float64"], "below 1e-13")
        require(1e-13 < row["float32"] < 1e-6, f"{where}, float32", row["float32"], "between 1e-13 and 1e-6")


def pages_have_all_tables_of_their_benchmarks() -> None:
    for page, tables in (("variants", bench.TABLES), ("optimisers", optimisers.TABLES)):
        named = re.findall(r"<!-- table: (\w+) -->", (DOCS / f"{page}.md").read_text())
        equal(f"docs/{page}.md, tables", sorted(named), sorted(tables))


CHECKS = (
    depths_are_the_formulas,
    errors_of_variants_are_as_the_page_says,
    the_width_of_narrow_is_a_straight_line_and_that_of_literal_is_none,
    lanes_of_jacobians_are_the_formula,
    joint_knots_are_fewer_than_both,
    every_rule_is_torch_optim,
    adam_is_certified_and_falls_with_epsilon,
    pages_have_all_tables_of_their_benchmarks,
)
