"""Stored results of lab.py: what README and docs/lab.md say of the trained learners."""

from __future__ import annotations

import json
from pathlib import Path

import _results
import lab as bench
from _results import read
from checks._require import equal, near, require
from innergrad.config import to_table
from innergrad.lab.sweeps import read_experiments

CONFIG = Path(__file__).parent.parent.parent / "configs" / "three_tasks.toml"
FILE, FULL = "results/lab_three_tasks.json", "results/lab_full.json"
RIDGE = "ridge, leave-one-out lambda with intercept"


def the_stored_run_is_the_shipped_configuration() -> None:
    stored, folder = read("lab_three_tasks"), _results.RESULTS / "lab_three_tasks"
    experiments = read_experiments(CONFIG)
    equal("results/lab_three_tasks/config.toml", read_experiments(folder), experiments)
    tasks = [about["task"] for about in stored["models"].values()]
    equal(f"{FILE}, tasks", tasks, [to_table(one.task) for one in experiments])
    for name, about in stored["models"].items():
        require(about["n_prompts"] >= 20_000, f"{FILE}, {name}, n_prompts", about["n_prompts"], "at least 20,000")
    seconds, steps = stored["training"]["seconds"], experiments[0].train.steps
    require(seconds < 25 * 60, f"{FILE}, training, seconds", seconds, "less than 25 minutes")
    equal(f"{FILE}, training, steps", stored["training"]["steps"], steps)
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    equal("results/lab_three_tasks/log.jsonl, last step", log[-1]["step"], steps)
    for number, about in enumerate(stored["models"].values()):  # the loss is the mean of the errors at all lengths
        errors = [row["value"] for row in about["curves"]["model"]["squared error"]]
        where = f"results/lab_three_tasks/log.jsonl, last loss of model {number}"
        near(where, log[-1]["loss"][number], sum(errors) / len(errors), rel=0.02)


def the_stored_run_holds_its_claims() -> None:
    """Recomputed from the curves: nothing that is said of the three learners is stored without them."""
    stored = read("lab_three_tasks")
    equal(f"{FILE}, claims", stored["claims"], bench.claims(stored["models"]))
    equal(f"{FILE}, claims that hold", [one["holds"] for one in stored["claims"]], [True] * 6)


def learners_come_as_near_to_the_best_as_the_pages_say() -> None:
    """And those of networks are below ridge from the second example on."""
    linear, *networks = (
        {name: [row["value"] for row in rows["squared error"]] for name, rows in about["curves"].items()}
        | {"best": [row["value"] for row in about["curves"][about["reference"]]["squared error"]], "name": [key]}
        for key, about in read("lab_three_tasks")["models"].items()
    )
    for curves, lengths, factor in ((linear, 19, 1.02), *((curves, None, 1.021) for curves in networks)):
        for k, (mine, best) in enumerate(zip(curves["model"][:lengths], curves["best"][:lengths], strict=True)):
            where = f"{FILE}, {curves['name'][0]}, squared error of the model at {k}"
            require(mine <= factor * best, where, mine, f"at most {factor} times {best}")
    for curves in networks:
        for k, (mine, other) in enumerate(zip(curves["model"][1:], curves[RIDGE][1:], strict=True), start=1):
            where = f"{FILE}, {curves['name'][0]}, squared error of the model at {k}"
            require(mine < other, where, mine, f"below ridge's {other}")


def the_evaluation_is_whole() -> None:
    """6,400 prompts at 76 lengths, and no epoch that could be chosen is better than the posterior."""
    stored = read("lab_full")
    sizes = (stored["n_prompts"], stored["n_points"], stored["fits"])
    equal(f"{FULL}, (n_prompts, n_points, fits)", sizes, (6400, 76, 6400 * 75))
    require(stored["seconds"] < 5 * 60, f"{FULL}, seconds", stored["seconds"], "less than 5 minutes")
    curves = {name: rows["pooled R^2"] for name, rows in stored["curves"].items()}
    posterior = curves["NNGP, 3 layers"]
    equal(f"{FULL}, lengths of the posterior's curve", [row["k"] for row in posterior], list(range(76)))
    last, pooled, oracle = (
        bench.at(curves[f"3-layer network, adam 0.003, {epoch} epoch"], 50)
        for epoch in ("last", "pooled", "per-prompt")
    )
    best = bench.at(posterior, 50)
    rising = last <= pooled < best < oracle
    where = f"{FULL}, pooled R^2 at 50 of the last, the pooled epoch, the posterior, the per-prompt epoch"
    require(rising, where, (last, pooled, best, oracle), "last <= pooled < posterior < per-prompt")


CHECKS = (
    the_stored_run_is_the_shipped_configuration,
    the_stored_run_holds_its_claims,
    learners_come_as_near_to_the_best_as_the_pages_say,
    the_evaluation_is_whole,
)
