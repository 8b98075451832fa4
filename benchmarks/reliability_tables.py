"""Tables of docs/reliability.md and docs/reference/reliability.md: what was tried, how often, and what went wrong.

A trial that has no stored result yet has a row that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _results import RESULTS, read

Row = dict[str, Any]
COMMANDS = {
    "certificates_violations": "python benchmarks/certificates.py violations --count 10000 --workers 16",
    "mutations": "python benchmarks/mutations.py --cases 100000 --workers 16 --store",
    "kills": "python benchmarks/kills.py --kills 500",
    "damage": "python benchmarks/damage.py --flips 2000",
    "invariance": "python benchmarks/invariance.py --count 10000",
}


def _stored(name: str) -> Row | None:
    return read(name) if (RESULTS / f"{name}.json").exists() else None


def certificates(stored: Row) -> tuple[str, str]:
    found = stored["all"][0]
    ran, median = found["configurations"], found["median"]
    without = f"{found['with_infinite'] / ran:.1%} have some bound that is not finite"
    tried = f"{stored['configurations']:,} random configurations against back-propagation in 80 bits; {without}; "
    return tried + f"bound / error in the median {median:.3g}", f"{len(stored['violations'])} violated"


def mutations(stored: Row) -> tuple[str, str]:
    """All kinds together; the last row of the stored ones."""
    found, kinds = stored["kinds"][-1], [row["kind"] for row in stored["kinds"][:-1]]
    tried = f"{found['cases']:,} damaged or hostile inputs ({', '.join(kinds)})"
    slow = f"the slowest took {found['slowest_s']:g} s, the largest {found['largest_mb']:,} MB"
    wrong = found["cases"] - sum(found[verdict] for verdict in ("done", "refused", "failed", "said"))
    return (
        f"{tried}; {slow}",
        f"{wrong} gave an exception, wrote elsewhere, or took too much without a word{_again(stored)}",
    )


def kills(stored: Row) -> tuple[str, str]:
    """Ends of trainings and sweeps."""
    tried = (
        f"{stored['kills']:,} kills of trainings and sweeps, and {stored['other_ends']} full disks and polite signals"
    )
    return tried, f"{len(stored['wrong'])} did not end bit for bit as if never disturbed"


def damage(stored: Row) -> tuple[str, str]:
    flips = sum(row["flips"] for row in stored["rows"])
    wrong = sum(row["other"] + row["raw"] for row in stored["rows"])
    return f"{flips:,} single bits flipped in saved models, checkpoints and built kernels", f"{wrong} without a word"


def invariance(stored: Row) -> tuple[str, str]:
    tried = f"{stored['cases']:,} rows alone, in batches, in other orders, by two threads"
    return tried, f"{len(stored['apart'])} apart by more than rounding allows{_again(stored)}"


def _again(stored: Row) -> str:
    """What was wrong at first, mended, and judged again."""
    again = [row["number"] for row in stored.get("mended", []) if row["judged"] == "again"]
    many = "case was" if len(again) == 1 else "cases were"
    return f"; {len(again)} {many} judged again after something was mended" if again else ""


TRIALS: dict[str, Callable[[Row], tuple[str, str]]] = {
    "certificates_violations": certificates,
    "mutations": mutations,
    "kills": kills,
    "damage": damage,
    "invariance": invariance,
}


def reliability() -> list[str]:
    lines = ["| tried | found | command |", "|---|---|---|"]
    for name, said in TRIALS.items():
        stored = _stored(name)
        tried, found = said(stored) if stored else (f"`results/{name}.json` is not stored yet", "")
        command = stored["manifest"]["command"] if stored else COMMANDS[name]
        lines.append(f"| {tried} | {found} | `{command}` |")
    return lines


def _missing(name: str) -> list[str]:
    return [f"`results/{name}.json` is not stored yet: `{COMMANDS[name]}`."]


def killed() -> list[str]:
    if (stored := _stored("kills")) is None:
        return _missing("kills")
    lines = ["| what was killed | points at which something reaches the disk | cases | kills | not bit-exact |"]
    lines.append("|---|---|---|---|---|")
    for row in stored["scenarios"]:
        points = stored["points"][row["scenario"]]
        lines.append(f"| {row['scenario']} | {points} | {row['cases']} | {row['kills']} | {row['wrong']} |")
    places = [f"{row['where']}: {row['ends']}" for row in stored["where"]]
    faults = [f"{row['fault']}: {row['ends']}" for row in stored["fault"]]
    lines += ["", f"How: {', '.join(faults)}. In {stored['in_a_row']} cases more than once in a row."]
    return [*lines, "", f"During: {'; '.join(places)}."]


def rows_alone() -> list[str]:
    if (stored := _stored("invariance")) is None:
        return _missing("invariance")
    lines = ["| what must not matter | cases | equal bit for bit | largest difference | part of the limit |"]
    lines.append("|---|---|---|---|---|")
    lines += [_compared(row["change"], [row]) for row in stored["changes"]]
    lines += ["", "| model, precision | cases | equal bit for bit | largest difference | part of the limit |"]
    lines.append("|---|---|---|---|---|")
    kinds: dict[str, list[Row]] = {}
    for row in stored["kinds"]:  # executors together
        model, _, precision = row["kind"].split(", ")
        kinds.setdefault(f"{'lab' if model == 'lab' else f'target `{model}`'}, {precision}", []).append(row)
    lines += [_compared(name, rows) for name, rows in kinds.items()]
    share = stored["vacuous"] / max(1, stored["all"][0]["cases"])
    refused = f"{stored['refused']} were refused with a sentence (ramps too steep for float32, a prompt outside), and"
    refused += f" {stored['overflowed']} random learners of the lab overflowed, which leaves nothing to compare"
    few = f"In {share:.1%} the limit leaves less than half the digits"
    return [*lines, "", f"{stored['algorithms']} algorithms. Of {stored['cases']:,} cases {refused}. {few}."]


def _compared(name: str, rows: list[Row]) -> str:
    """Groups of cases, together."""
    cases, equal = (sum(row[key] for row in rows) for key in ("cases", "equal"))
    difference, share = (max(row[key] for row in rows) for key in ("largest_difference", "largest_share"))
    return f"| {name} | {cases:,} | {equal / cases:.0%} | {difference:.0e} | {share:.2g} |"


def flips() -> list[str]:
    if (stored := _stored("damage")) is None:
        return _missing("damage")
    lines = ["| a bit flips in | file | flips | refused | the same | something else | raw exceptions |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in stored["rows"]:
        numbers = " | ".join(str(row[key]) for key in ("flips", "refused", "same", "other", "raw"))
        lines.append(f"| {row['what']} | {row['file']} | {numbers} |")
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "reliability": reliability,
    "reliability_kills": killed,
    "reliability_invariance": rows_alone,
    "reliability_damage": flips,
}
