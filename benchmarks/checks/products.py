"""Stored results of products.py: three ways to multiply inside a transformer."""

from __future__ import annotations

import math

import products as bench
from _results import read
from checks._require import equal, require

FILE = "results/products.json"
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def sizes_of_squares_are_the_formula() -> None:
    """2 eps^-1/2 heads, and the ends."""
    for row in read("products")["sizes"]:
        if row["accuracy"]:
            wanted = 2 / math.sqrt(row["accuracy"])
            where = f"{FILE}, sizes, accuracy = {row['accuracy']}, heads"
            require(abs(row["heads"] - wanted) <= 4, where, row["heads"], f"{wanted:.1f}, at most 4 off")


def products_and_selecting_heads_are_the_same_numbers() -> None:
    stored = read("products")
    for key, across in (("scales", "scale"), ("depths", "depth")):
        rows = {way: [row for row in stored[key] if row["method"] == way] for way in ("product", "selecting")}
        right = {(row["dtype"], row[across]): (row["max"], row["median"]) for row in rows["product"]}
        equal(f"{FILE}, {key}, rows of product", len(right), 2 * len({row[across] for row in rows["product"]}))
        for row in rows["selecting"]:
            where = f"{FILE}, {key}, selecting, {row['dtype']}, {across} = {row[across]}, (max, median)"
            equal(where, (row["max"], row["median"]), right[row["dtype"], row[across]])
    ranges = {row["range"] for row in stored["scales"] if row["method"] == "selecting"}
    equal(f"{FILE}, scales, ranges of selecting", ranges, {"fitted", "fixed"})


def errors_of_squares_are_within_what_was_proven() -> None:
    """Relative to R^2; and with a range of 1024 nothing is left of products of small numbers.

    Rounding: of two squares, at most 1, the weights (knots, whose slopes add up to 2, and coefficients) and the sums.
    """
    rows = [row for row in read("products")["scales"] if row["method"] == "squares"]
    equal(f"{FILE}, scales, accuracies of squares", {row["accuracy"] for row in rows}, {1e-2, 1e-4, 1e-6})
    for row in rows:
        where = f"{FILE}, scales, squares, {row['accuracy']}, {row['dtype']}, scale = {row['scale']}, {row['range']}"
        rounding = 2 * (2 + 1 + 2) * UNIT[row["dtype"]]
        limit = (row["accuracy"] + rounding) * row["R"] ** 2
        error = row["max"] * row["scale"] ** 2
        require(error <= limit, f"{where}, max times scale^2", error, f"at most {limit}")
        if row["range"] == "fixed" and row["scale"] <= 1.0:
            require(row["max"] > 1.0, f"{where}, max", row["max"], "more than 1")


def rounding_of_positions_does_not_grow_in_the_built_layer() -> None:
    rows = [row for row in read("products")["codes"] if row["code"] == "built layer"]
    wanted = {(n, R) for n in bench.LENGTHS for R in bench.RANGES}
    equal(f"{FILE}, codes, (n, R) of the built layer", {(row["n"], row["R"]) for row in rows}, wanted)
    for row in rows:
        where = f"{FILE}, codes, built layer, {row['dtype']}, n = {row['n']}, R = {row['R']}, last"
        require(row["last"] <= UNIT[row["dtype"]], where, row["last"], f"at most {UNIT[row['dtype']]}")


def steps_of_training_round_as_training_does() -> None:
    """Both variants within a factor of four of autograd in float32, at every depth; and within 1e-15 in float64."""
    rows = read("products")["training"]
    direct = {row["N"]: row["error"] for row in rows if row["way"] == "direct" and row["dtype"] == "float32"}
    equal(f"{FILE}, training, depths of direct", sorted(direct), [2, 4, 8, 12])
    for row in rows:
        if row["way"] != "direct":
            limit = 1e-15 if row["dtype"] == "float64" else 4 * direct[row["N"]]
            where = f"{FILE}, training, {row['way']}, {row['dtype']}, N = {row['N']}, error"
            require(row["error"] <= limit, where, row["error"], f"at most {limit}")


def outside_is_always_said() -> None:
    for row in read("products")["outside"]:
        where = f"{FILE}, outside, {row['method']}, {row['accuracy']}, {row['dtype']}, beyond = {row['beyond']}, says"
        said = bool(row["says"]) == (row["beyond"] > 1.0 and row["method"] != "product")
        require(said, where, repr(row["says"]), "a message beyond the range, of ways that have one, and no other")


CHECKS = (
    sizes_of_squares_are_the_formula,
    products_and_selecting_heads_are_the_same_numbers,
    errors_of_squares_are_within_what_was_proven,
    rounding_of_positions_does_not_grow_in_the_built_layer,
    steps_of_training_round_as_training_does,
    outside_is_always_said,
)
