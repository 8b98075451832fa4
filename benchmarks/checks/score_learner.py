"""Stored results of score_learner.py: a score from samples, by a pretrained learner and by others."""

from __future__ import annotations

from _results import read
from checks._require import require
from score_learner import DENSITY, LEARNER, METHODS, NETWORK

FILE, N = "results/score_learner.json", 64


def the_learner_wins_with_64_samples() -> None:
    """Against the kernel density and the trained network: its error is smaller, on average over mixtures."""
    for found in read("score_learner")["dimensions"]:
        rows = {row["method"]: row for one in found["counts"] if one["n"] == N for row in one["methods"]}
        for name in (DENSITY, NETWORK):
            where, gain = f"{FILE}, {found['dims']}-D, n = {N}, {name}, gain", rows[name]["gain"]
            require(gain > 0.0, where, gain, "more than 0")


def every_method_is_measured() -> None:
    """All methods at all sizes; errors are between their ends, and a learner is there for every seed."""
    for found in read("score_learner")["dimensions"]:
        for one in found["counts"]:
            where = f"{FILE}, {found['dims']}-D, n = {one['n']}"
            names = [row["method"] for row in one["methods"]]
            require(names == list(METHODS), f"{where}, methods", names, str(METHODS))
            for row in one["methods"]:
                held = row["low"] <= row["error"] <= row["high"] and len(row["times"]) == len(found["times"])
                require(held, f"{where}, {row['method']}", row["error"], f"{row['low']} to {row['high']}")
            mean = sum(one["methods"][0]["seeds"]) / len(one["methods"][0]["seeds"])
            require(abs(mean - one["methods"][0]["error"]) < 1e-9, f"{where}, {LEARNER}", mean, "the mean over seeds")


CHECKS = (the_learner_wins_with_64_samples, every_method_is_measured)
