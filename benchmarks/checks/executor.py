"""Stored results of executor.py: how fast, and how large, the fused executor is."""

from __future__ import annotations

from typing import Any

import executor as bench
from _results import read
from checks._require import equal, require
from innergrad.bench.executor import SIZES


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read(f"executor_{name}")["rows"]
    return rows


def _point(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {row[key]}" for key in ("n", "K", "N", "dtype"))


def the_grid_is_whole_and_meets_its_goals() -> None:
    """At most as long as autograd everywhere, half of it where n K <= 4,096; plain torch at most twice; one thread."""
    rows, file = _rows("grid_1"), "results/executor_grid_1.json"
    equal(f"{file}, rows", len(rows), 2 * len(SIZES["n"]) * len(SIZES["K"]) * len(SIZES["N"]))
    for row in rows:
        limit = 0.5 if row["n"] * row["K"] <= 4096 else 1.0
        require(row["ratio"] <= limit, f"{file}, {_point(row)}, ratio", row["ratio"], f"at most {limit}")
        ratio = row["fallback_ratio"]
        require(ratio <= 2.0, f"{file}, {_point(row)}, fallback_ratio", ratio, "at most 2")


def batches_are_faster_than_vmap() -> None:
    for name in ("batch", "batch_gpu"):
        for row in _rows(name):
            where = f"results/executor_{name}.json, {_point(row)}"
            equal(f"{where}, prompts", row["prompts"], 4096)
            require(row["ratio"] <= 1.0, f"{where}, ratio", row["ratio"], "at most 1")


def the_large_network_fits() -> None:
    file = "results/executor_memory.json"
    large = [row for row in _rows("memory") if row["K"] == 512 and row["what"] in ("compiled", "fallback")]
    equal(f"{file}, rows with K = 512", len(large), 4)
    for row in large:
        where = f"{file}, {row['what']}, {_point(row)}, peak_mib"
        require(row["peak_mib"] <= 8 * 1024, where, row["peak_mib"], "at most 8 GiB")


def a_thousand_steps_end_where_autograd_does() -> None:
    """Wherever autograd itself does in float32: at the larger rates the path is not determined by that precision."""
    rows, file = _rows("steps"), "results/executor_steps.json"
    for row in rows:
        equal(f"{file}, epsilon = {row['epsilon']}, lr = {row['lr']}, held", row["held"], True)
    determined = [row for row in rows if row["autograd_float32_relative"] <= 1e-3]
    equal(f"{file}, rates at which float32 is enough", {row["lr"] for row in determined}, {0.05, 0.02})
    for row in determined:
        where = f"{file}, epsilon = {row['epsilon']}, lr = {row['lr']}, relative"
        require(row["relative"] <= 1e-3, where, row["relative"], "at most 1e-3")


def a_kernel_is_built_once() -> None:
    """Loading one from the cache takes a tenth of what building one does, at most."""
    rows, file = _rows("auto"), "results/executor_auto.json"
    built = min((row["processor_seconds"] for row in rows if row["cache"] != "this shape"), default=0.0)
    loaded = [row for row in rows if row["cache"] == "this shape"]
    equal(f"{file}, kernels that were loaded", len(loaded), 6)
    for row in loaded:
        where = f"{file}, K = {row['K']}, N = {row['N']}, dtype = {row['dtype']}, processor_seconds"
        require(row["processor_seconds"] <= 0.1 * built, where, row["processor_seconds"], f"at most {0.1 * built:.2g}")


def operations_are_counted_by_the_one_counter() -> None:
    """innergrad.flops, for the transformer that was timed."""
    counted = bench.dense_counts()
    for row in _rows("dense"):
        for key, value in counted.items():
            equal(f"results/executor_dense.json, {row['dtype']}, {key}", row[key], value)


CHECKS = (
    operations_are_counted_by_the_one_counter,
    the_grid_is_whole_and_meets_its_goals,
    batches_are_faster_than_vmap,
    the_large_network_fits,
    a_thousand_steps_end_where_autograd_does,
    a_kernel_is_built_once,
)
