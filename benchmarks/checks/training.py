"""Stored results of training.py: the lab's training loop beside a reference loop."""

from __future__ import annotations

from typing import Any

import torch

import lab_tables
import training as bench
from _results import read
from checks._require import equal, near, require

CURVES = ("training_curve_cpu", "training_curve_cuda")
SEEDS, MEANS = "standard deviation of the reference's seeds", "difference of the means"
LARGEST = "largest difference of one seed"


def _compared(stored: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor(row) for key, row in lab_tables.compare_curves(stored["plain"], stored["fast"]).items()}


def speeds_add_up() -> None:
    for device in ("cuda", "cpu"):
        stored, file = read(f"training_speed_{device}"), f"results/training_speed_{device}.json"
        (reference,) = stored["reference"]
        for row in (reference, *stored["stacks"]):
            rates = (row["slowest"], row["steps_a_second"], row["fastest"])
            ordered = 0 < rates[0] <= rates[1] <= rates[2]
            require(ordered, f"{file}, stack = {row.get('stack')}, rates", rates, "0 < slowest <= median <= fastest")
        for row in stored["stacks"]:
            ratio = row["steps_a_second"] / reference["steps_a_second"]
            near(f"{file}, stack = {row['stack']}, against_reference", row["against_reference"], ratio, rel=0.01)


def speeds_on_a_gpu_are_those_asked_for() -> None:
    """One model and stacks, and the share of the peak from the operations of a step."""
    stored, file = read("training_speed_cuda"), "results/training_speed_cuda.json"
    rows = {row["stack"]: row for row in stored["stacks"]}
    require(rows[1]["slowest"] > 450, f"{file}, stack = 1, slowest", rows[1]["slowest"], "more than 450")
    fastest = max(row["slowest"] for row in rows.values())
    require(fastest > 1000, f"{file}, largest of slowest", fastest, "more than 1,000")
    for stack, row in rows.items():
        first = row["first_step_seconds"]
        require(first < 100, f"{file}, stack = {stack}, first_step_seconds", first, "less than 100")
        peak = bench.PEAK[stored["device"]] / (1e9 * stored["gflop_a_step"])
        near(f"{file}, stack = {stack}, mfu", row["mfu"], row["steps_a_second"] / peak, abs=2e-4)


def operations_are_counted_by_the_one_counter() -> None:
    """innergrad.flops, for the models that were timed: the small one on the CPU."""
    for device in ("cpu", "cuda"):
        counted = bench.flops(bench.experiment(small=device == "cpu")) / 1e9
        where = f"results/training_speed_{device}.json, gflop_a_step"
        near(where, read(f"training_speed_{device}")["gflop_a_step"], counted, abs=6e-4)


def curves_are_one_training() -> None:
    """The loss falls, the loops start on one path, and their means are nearer than seeds are at every window.

    Seed by seed that holds as long as rounding to bfloat16 has not led to another path: then it is like another seed.
    """
    for name in CURVES:
        stored, file = read(name), f"results/{name}.json"
        plain = torch.tensor(stored["plain"])
        require(len(plain) >= 5, f"{file}, seeds", len(plain), "at least 5")
        fallen = plain.min(1).values / plain[:, 0]
        require((fallen < 0.6).all(), f"{file}, least loss over first", fallen.tolist(), "less than 0.6")
        rows = _compared(stored)
        means, seeds, largest = rows[MEANS], rows[SEEDS], rows[LARGEST]
        require((means < seeds).all(), f"{file}, {MEANS}", means.tolist(), f"less than {seeds.tolist()}")
        near_at_first = (largest < seeds)[:3].all()
        require(near_at_first, f"{file}, {LARGEST}", largest[:3].tolist(), f"less than {seeds[:3].tolist()}")


def curves_a_window_late_are_told_apart() -> None:
    """The check of the curves can fail: fifty steps are told apart, before the curriculum adds a coordinate."""
    for name in CURVES:
        stored = read(name)
        plain, late = ([row[i : i + 6] for row in stored[loop]] for i, loop in ((1, "plain"), (0, "fast")))
        rows = lab_tables.compare_curves(plain, late)
        apart = sum(a > b for a, b in zip(rows[MEANS], rows[SEEDS], strict=True))
        require(apart >= 4, f"results/{name}.json, windows of 6 at which a late curve is apart", apart, "at least 4")


def loops_are_as_near_as_the_page_says() -> None:
    """docs/lab.md: how near the means are, when seeds part, where they end; how fast the reference was in two runs."""
    stored, file = read("training_curve_cuda"), "results/training_curve_cuda.json"
    rows = _compared(stored)
    near(f"{file}, {MEANS} in standard deviations", float((rows[MEANS] / rows[SEEDS]).max()), 0.65, abs=0.005)
    steps = int((rows[LARGEST] < rows[SEEDS]).long().cumprod(0).sum()) * stored["every"]
    equal(f"{file}, steps until a seed parts", steps, 300)
    ends = sorted(abs(fast[-1] / plain[-1] - 1) for plain, fast in zip(stored["plain"], stored["fast"], strict=True))
    near(f"{file}, largest difference at the end", ends[-1], 0.12, abs=0.005)
    require(ends[-2] < 0.03, f"{file}, second largest difference at the end", ends[-2], "less than 0.03")
    for name, row, rate in (
        ("training_speed_cuda", read("training_speed_cuda")["reference"][0], 43),
        ("training_target_cuda", read("training_target_cuda")["rows"][0], 30),
    ):
        equal(f"results/{name}.json, steps_a_second of the reference, rounded", round(row["steps_a_second"]), rate)
    same = float(_compared(read("training_curve_cpu"))[LARGEST].max())
    require(same < 1e-6, f"results/training_curve_cpu.json, {LARGEST}", same, "less than 1e-6")


def the_race_was_won_by_reaching_the_target() -> None:
    stored, file = read("training_target_cpu"), "results/training_target_cpu.json"
    least = bench.least_squares_loss(bench.recipe(True, 200))
    near(f"{file}, least_squares", stored["least_squares"], least, abs=1e-4)
    reference, lab = stored["rows"]
    for name, row in (("reference", reference), ("lab", lab)):
        require(row["reached"], f"{file}, {name}, reached", row["reached"], "true")
        between = stored["least_squares"] < row["loss"] < stored["target"]
        require(between, f"{file}, {name}, loss", row["loss"], "between least_squares and target")
    near(f"{file}, ratio", stored["ratio"], reference["seconds"] / lab["seconds"], rel=0.01)
    require(stored["ratio"] > 1.0, f"{file}, ratio", stored["ratio"], "more than 1")


CHECKS = (
    speeds_add_up,
    speeds_on_a_gpu_are_those_asked_for,
    operations_are_counted_by_the_one_counter,
    curves_are_one_training,
    curves_a_window_late_are_told_apart,
    loops_are_as_near_as_the_page_says,
    the_race_was_won_by_reaching_the_target,
)
