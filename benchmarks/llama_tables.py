"""Tables of llama.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from _results import read
from llama import LARGE, MANY, ORDERS

Row = dict[str, Any]


def stock() -> list[str]:
    """A line for every network: all losses and rates together."""
    stored = read("llama_stock")
    rows = [row for row in stored["rows"] if row["steps"] < MANY]
    lines = [
        "| N, K | runs | blocks a step | `double` | width, units | float64: weights | predictions | "
        "float32 / own: median | largest | growth |",
        "|---" * 10 + "|",
    ]
    keys = dict.fromkeys((row["family"], row["variant"], row["N"], row["K"]) for row in rows)
    for family, variant, N, K in keys:
        group = [r for r in rows if (r["family"], r["variant"], r["N"], r["K"]) == (family, variant, N, K)]
        name = (
            f"{N}, {K}" + (f", {variant}" if variant != "chain" else "") + (f", {family}" if family != "llama" else "")
        )
        blocks = (" or ".join(map(str, sorted({row[f"blocks_{d}"] for row in group}))) for d in ("float32", "float64"))
        sizes = f"{_most(group, 'width_float64'):,}, {_most(group, 'units_float64'):,}"
        errors = (f"{max(_moderate(group, part)):.0e}" for part in ("weights", "predictions"))
        ratios = [*_ratios(group, "weights"), *_ratios(group, "predictions")]
        against = (f"{value:.1f}" for value in (statistics.median(ratios), max(ratios)))
        grown = max(value for row in group for value in row["growth_later"])
        cells = (name, str(sum(row["prompts"] for row in group)), *blocks, sizes, *errors, *against, f"{grown:.2g}")
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", _said(stored)]


def _said(stored: Row) -> str:
    found = stored["summary"][0]
    missing = sorted({(row["K"], row["N"]) for row in stored["left_out"]})
    text = (
        f"{found['runs']:,} runs. Growth is how much gradient descent enlarges a change of the weights, whenever the "
        f"change is made. Where that is less than {LARGE}-fold, the float64 model is within {found['float64']:.1e} of "
        f"autograd. In {found['large']} runs it is more"
    )
    text += "" if found["float64_large"] is None else f"; there the error is up to {found['float64_large']:.1e}"
    text += (
        f". float32 errors are {found['float32_median']:.1f} times those of autograd in float32 in the median, and "
        f"{found['float32_max']:.1f} times at most. Autograd's error is the median over {ORDERS} orders of examples. "
        f"One order would be no measure: errors in two orders are up to {found['own_spread']:.0f}-fold apart."
    )
    if found["late"]:
        text += (
            f" A change of w₀ alone is no measure, either: {found['late']} runs enlarge it less than {LARGE}-fold and "
            f"later changes more; they end up to {found['late_float64']:.1e} from autograd. Autograd in float64, given "
            f"the examples in another order, moves by up to {found['late_own64']:.1e} there."
        )
    if missing:
        named = "; ".join(
            f"K = {K}: N = {', '.join(str(N) for k, N in missing if k == K)}"
            for K in dict.fromkeys(k for k, _ in missing)
        )
        text += f" Some sizes take too much memory or time, and were not run in full: {named}."
    return text


def door() -> list[str]:
    """For the README: the same in three sentences."""
    found = read("llama_stock")["summary"][0]
    calm, runs = found["runs"] - found["large"], found["runs"]
    return [
        f"Of {runs:,} runs, {calm:,} end within {found['float64']:.1e} of autograd in float64 (`double=True`). In the "
        f"other {found['large']}, descent itself magnifies a small change {LARGE}-fold or more; they end within "
        f"{found['float64_large']:.1e}. In float32 the error is that of autograd in float32: "
        f"{found['float32_median']:.1f} times in the median, {found['float32_max']:.1f} times at most."
    ]


def long() -> list[str]:
    """200 steps on 2,4,4,1, prompt by prompt: some of these runs are chaotic."""
    rows = [row for row in read("llama_stock")["rows"] if row["steps"] == MANY]
    lines = ["| lr | a later change grows | float64 | float32 | autograd in float32 |", "|---" * 5 + "|"]
    for row in rows:
        keys = ("growth_later", "weights_float64", "weights_float32", "weights_own")
        runs = sorted(zip(*(row[key] for key in keys), strict=True))
        for calm in (True, False):
            some = [run for run in runs if (run[0] < LARGE) == calm]
            if some:
                grown, *errors = zip(*some, strict=True)
                name = f"{row['lr']}, {len(some)} prompts"
                lines.append(f"| {name} | {_range(grown)} | " + " | ".join(map(_range, errors)) + " |")
    return lines


def _range(values: Iterable[float]) -> str:
    values = sorted(values)
    return f"{values[0]:.0e} to {values[-1]:.0e}"


def _most(rows: list[Row], key: str) -> int:
    return int(max(row[key] for row in rows))


def _moderate(rows: list[Row], part: str) -> list[float]:
    """Errors in float64 of the runs that do not grow."""
    pairs = ((g, e) for row in rows for g, e in zip(row["growth_later"], row[f"{part}_float64"], strict=True))
    return [error for grown, error in pairs if grown < LARGE]


def _ratios(rows: list[Row], part: str) -> list[float]:
    return [a / b for row in rows for a, b in zip(row[f"{part}_float32"], row[f"{part}_own"], strict=True)]


TABLES = {"llama_stock": stock, "llama_long": long, "llama_door": door}
