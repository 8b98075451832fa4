"""Stored results of kills.py, invariance.py, damage.py and mutations.py: what docs/reliability.md claims."""

from __future__ import annotations

import kills as bench
from _results import read
from checks._require import equal, require


def every_kill_is_as_if_it_never_was() -> None:
    stored, file = read("kills"), "results/kills.json"
    equal(f"{file}, wrong", stored["wrong"], [])
    require(stored["kills"] >= 500, f"{file}, kills", stored["kills"], "at least 500")
    equal(f"{file}, scenarios", {row["scenario"] for row in stored["scenarios"]}, set(bench.SCENARIOS))
    places = {row["where"].split(",")[0] for row in stored["where"]}
    missing = {"first checkpoint", "a later checkpoint", "the journal", "sweep.json"} - places
    equal(f"{file}, where, missing", missing, set())


def rows_are_what_they_are_alone() -> None:
    stored, file = read("invariance"), "results/invariance.json"
    equal(f"{file}, apart", stored["apart"], [])
    require(stored["cases"] >= 10_000, f"{file}, cases", stored["cases"], "at least 10,000")
    refused = stored["refused"]
    require(refused < 0.1 * stored["cases"], f"{file}, refused", refused, "less than 10%")
    for row in stored["changes"]:
        equal_share = row["equal"] / row["cases"]
        require(row["change"] != "again" or equal_share == 1.0, f"{file}, again, equal", equal_share, "all")


def no_bit_flips_without_a_word() -> None:
    file = "results/damage.json"
    for row in read("damage")["rows"]:
        where = f"{file}, {row['what']}, {row['file']}"
        equal(f"{where}, other", row["other"], 0)
        equal(f"{where}, raw", row["raw"], 0)


def whatever_is_read_gets_a_sentence() -> None:
    stored, file = read("mutations"), "results/mutations.json"
    equal(f"{file}, wrong", stored["wrong"], [])
    cases = stored["kinds"][-1]["cases"]
    require(cases >= 50_000, f"{file}, cases", cases, "at least 50,000")


CHECKS = (
    every_kill_is_as_if_it_never_was,
    rows_are_what_they_are_alone,
    no_bit_flips_without_a_word,
    whatever_is_read_gets_a_sentence,
)
