"""Stored results of llama.py: what the pages claim of stock classes."""

from __future__ import annotations

import llama as bench
from _results import read
from checks._require import equal, require

FILE = "results/llama_stock.json"


def stock_covers_every_depth_and_loss() -> None:
    rows = read("llama_stock")["rows"]
    found = {bench.cell_of(row) for row in rows if row["prompts"] >= 10}
    equal(f"{FILE}, rows, missing", {*bench.cells(bench.DEPTHS, (4, 8, 16))} - found, set())
    equal(f"{FILE}, rows, families", {row["family"] for row in rows}, {"llama", "mistral", "qwen2"})


def blocks_of_stock_models_are_the_formulas() -> None:
    for row in read("llama_stock")["rows"]:
        N, squared = row["N"], row["loss"] == "squared"
        single, double = (2 * N - 1, 3 * N - 1) if squared else (2 * N, 3 * N + 1)
        if row["variant"] == "wide":
            single, double = (min(single, N + 2), min(double, 2 * N + 2))
        where = f"{FILE}, rows, N = {N}, {row['loss']}, {row['variant']}"
        equal(f"{where}, blocks_float32", row["blocks_float32"], single)
        equal(f"{where}, blocks_float64", row["blocks_float64"], double)


def stock_models_are_within_their_limits() -> None:
    """float64: 1e-11 where a change of the weights, whenever made, grows less than 100-fold. float32: torch's own
    error, which is the median over orders of the examples, twice in the median, and 20 times at most.
    """
    rows = read("llama_stock")["rows"]
    for row in (row for row in rows if row["steps"] == bench.STEPS):
        where = f"{FILE}, rows, {row['family']} {row['sizes']}, {row['loss']}, lr {row['lr']}"
        for part in ("weights", "predictions"):
            keys = ("growth_later", f"{part}_float64", f"{part}_float32", f"{part}_own")
            for grown, double, single, own in zip(*(row[key] for key in keys), strict=True):
                calm = grown < bench.LARGE
                require(double <= bench.NEAR or not calm, f"{where}, {part}_float64", double, "at most 1e-11")
                require(single <= 20 * own, f"{where}, {part}_float32", single, f"at most 20 times {own}")
    found = bench.summary(rows)
    equal(f"{FILE}, summary", read("llama_stock")["summary"], [found])
    require(found["float32_median"] <= 2.0, f"{FILE}, summary, float32_median", found["float32_median"], "at most 2")


def long_runs_are_exact_where_they_are_not_chaotic() -> None:
    for row in (row for row in read("llama_stock")["rows"] if row["steps"] == bench.MANY):
        calm = [i for i, grown in enumerate(row["growth_later"]) if grown < bench.LARGE]
        require(calm, f"{FILE}, rows, 200 steps, lr {row['lr']}, prompts that do not grow", len(calm), "some")
        for part in ("weights", "predictions"):
            worst = max(row[f"{part}_float64"][i] for i in calm)
            require(worst <= 1e-13, f"{FILE}, rows, 200 steps, lr {row['lr']}, {part}_float64", worst, "at most 1e-13")


CHECKS = (
    stock_covers_every_depth_and_loss,
    blocks_of_stock_models_are_the_formulas,
    stock_models_are_within_their_limits,
    long_runs_are_exact_where_they_are_not_chaotic,
)
