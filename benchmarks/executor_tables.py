"""The tables of docs/reference/executor.md and docs/speed.md, from results/executor_*.json."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from _results import read

DTYPES = ("float32", "float64")
SMALL = 4096  # n K, up to which the ratio is to be half


def _rows(*names: str) -> list[dict[str, Any]]:
    return [{**row, "processor": _name(read(name))} for name in names for row in read(name)["rows"]]


def _name(content: dict[str, Any]) -> str:
    return str(content["processor"]).replace("(R)", "").replace(" Processor", "")


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} - {max(values):.2f}, median {statistics.median(values):.2f}"


def grid() -> list[str]:
    """Range of the ratios over the grid."""
    lines = [
        "| processor | threads | dtype | compiled | n K <= 4,096 | plain torch | compiled / torch by hand |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = _rows("executor_grid_1", "executor_grid_2", "executor_grid_1_xeon")
    groups = dict.fromkeys((row["processor"], row["threads"], row["dtype"]) for row in rows)
    for group in groups:
        part = [row for row in rows if (row["processor"], row["threads"], row["dtype"]) == group]
        small = [row["ratio"] for row in part if row["n"] * row["K"] <= SMALL]
        cells = [_range([row["ratio"] for row in part]), _range(small)]
        cells += [_range([row[key] for row in part]) for key in ("fallback_ratio", "manual_ratio")]
        lines.append(f"| {group[0]} | {group[1]} | {group[2]} | {' | '.join(cells)} |")
    above = [row for row in rows if row["threads"] == 1 and row["ratio"] > 1.0]
    slow = [row for row in rows if row["threads"] == 1 and row["fallback_ratio"] > 2.0]
    lines.append("")
    for what, found in (("compiled above 1.0", above), ("plain torch above 2.0", slow)):
        counts = {name: sum(row["processor"] == name for row in found) for name in dict.fromkeys(g[0] for g in groups)}
        text = ", ".join(f"{count} of 200 on {name}" for name, count in counts.items())
        lines.append(f"One thread, points with {what}: {text}.  ")
    return lines


def short() -> list[str]:
    """One thread, for docs/speed.md: the largest ratios."""
    lines = [
        "| processor, one thread | dtype | compiled, median (largest) | where n K <= 4,096 | plain torch |",
        "|---|---|---|---|---|",
    ]
    rows = _rows("executor_grid_1", "executor_grid_1_xeon")
    for processor, dtype in dict.fromkeys((row["processor"], row["dtype"]) for row in rows):
        part = [row for row in rows if (row["processor"], row["dtype"]) == (processor, dtype)]
        small = [row for row in part if row["n"] * row["K"] <= SMALL]
        cells = [
            f"{statistics.median(found):.2f} ({max(found):.2f})"
            for found in (
                [row["ratio"] for row in part],
                [row["ratio"] for row in small],
                [row["fallback_ratio"] for row in part],
            )
        ]
        lines.append(f"| {processor} | {dtype} | {' | '.join(cells)} |")
    return lines


def door() -> list[str]:
    """For the README: against the fastest way to train in torch at each size, autograd or by hand; float32."""
    lines = ["| one thread, float32 | sizes | median | largest | fastest rival |", "|---|---|---|---|---|"]
    rows = [row for row in _rows("executor_grid_1", "executor_grid_1_xeon") if row["dtype"] == "float32"]
    for processor in dict.fromkeys(row["processor"] for row in rows):
        part = [row for row in rows if row["processor"] == processor]
        found = [max(row["ratio"], row["manual_ratio"]) for row in part]
        by_hand = sum(row["manual_ratio"] >= row["ratio"] for row in part)
        cells = [
            str(len(part)),
            f"{statistics.median(found):.2f}",
            f"{max(found):.2f}",
            f"by hand at {by_hand}, autograd at {len(part) - by_hand}",
        ]
        lines.append(f"| {processor} | {' | '.join(cells)} |")
    stored = read("executor_jax")
    found = [row["ratio"] for row in stored["rows"]]
    said = f"{statistics.median(found):.2f} in the median, {max(found):.2f} at most ({stored['processor']})."
    return [*lines, "", f"Against a loop that JAX compiles as a whole: {said}"]


def jax() -> list[str]:
    """Against a loop that JAX compiles as a whole; float32, one core."""
    stored = read("executor_jax")
    lines = ["| N | sizes | median | smallest | largest | JAX is faster |", "|---" * 6 + "|"]
    depths = sorted({row["N"] for row in stored["rows"]})
    for name, part in [
        *((str(N), [row for row in stored["rows"] if row["N"] == N]) for N in depths),
        ("all", stored["rows"]),
    ]:
        found = [row["ratio"] for row in part]
        cells = [f"{value:.2f}" for value in (statistics.median(found), min(found), max(found))]
        lines.append(f"| {name} | {len(part)} | {' | '.join(cells)} | {sum(value > 1 for value in found)} times |")
    return [*lines, "", f"{stored['processor']}, one core, float32, JAX {stored['jax']}."]


def sizes() -> list[str]:
    rows = [r for r in _rows("executor_grid_1") if r["dtype"] == "float32" and r["N"] == 4]
    examples = sorted({row["n"] for row in rows})
    lines = ["| K | " + " | ".join(f"n = {n:,}" for n in examples) + " |", "|---|" + "---|" * len(examples)]
    for K in sorted({row["K"] for row in rows}):
        part = {row["n"]: row for row in rows if row["K"] == K}
        cells = [f"{part[n]['ratio']:.2f} / {part[n]['fallback_ratio']:.2f}" for n in examples]
        lines.append(f"| {K} | {' | '.join(cells)} |")
    return lines


def batch() -> list[str]:
    lines = [
        "| device | threads | dtype | vmap(grad), us a step | fused | ratio | plain torch, ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in _rows("executor_batch", "executor_batch_gpu"):
        device = row["processor"] if row["device"] == "cpu" else row["device"]
        threads = row["threads"] if row["device"] == "cpu" else ""
        best = min(row["vmap"], row["vmap of lists"])
        lines.append(
            f"| {device} | {threads} | {row['dtype']} | {best:,.0f} | {row['fused']:,.0f} | {row['ratio']:.2f} | "
            f"{row['fallback_ratio']:.2f} |"
        )
    return lines


def growth() -> list[str]:
    found = read("executor_growth")["exponents"]
    names = list(dict.fromkeys(row["in"] for row in found))
    lines = ["| time grows with the power | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for path in ("compiled", "fallback"):
        cells = [next(f"{r['exponent']:.2f}" for r in found if r["in"] == n and r["path"] == path) for n in names]
        lines.append(f"| {'plain torch' if path == 'fallback' else path} | {' | '.join(cells)} |")
    return lines


def memory() -> list[str]:
    names = {"compiled": "compiled", "fallback": "plain torch", "foreach": "autograd", "manual": "torch by hand"}
    lines = [
        "| n | K | N | dtype | " + " | ".join(f"{name}: peak (added), MiB" for name in names.values()) + " |",
        "|---|---|---|---|" + "---|" * len(names),
    ]
    rows = read("executor_memory")["rows"]
    for size in dict.fromkeys((row["n"], row["K"], row["N"], row["dtype"]) for row in rows):
        part = {row["what"]: row for row in rows if (row["n"], row["K"], row["N"], row["dtype"]) == size}
        cells = [f"{part[what]['peak_mib']:,} ({part[what]['added_mib']:,.0f})" for what in names]
        lines.append(f"| {size[0]:,} | {size[1]} | {size[2]} | {size[3]} | {' | '.join(cells)} |")
    return lines


def dense() -> list[str]:
    lines = [
        "| dtype | dense | plain | fused | time, dense / fused | FLOPs, dense / structured | fused - plain "
        "| dense - plain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in read("executor_dense")["rows"]:
        lines.append(
            f"| {row['dtype']} | {row['dense_us']:,.0f} us | {row['plain_us']:,.0f} us | {row['fused_us']:.1f} us | "
            f"{row['time_ratio']:,} | {row['flops_dense']:.1e} / {row['flops_structured']:.1e} = "
            f"{row['flop_ratio']:,} | {row['fused_to_plain']:.0e} | {row['dense_to_plain']:.0e} |"
        )
    return lines


def steps() -> list[str]:
    lines = [
        "| epsilon | lr | loss | autograd, float64 | relative | autograd in float32, relative "
        "| distance of weights | certified steps of 100 | held |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in read("executor_steps")["rows"]:
        lines.append(
            f"| {row['epsilon']:.0e} | {row['lr']} | {row['loss']:.6f} | {row['autograd']:.6f} | "
            f"{row['relative']:.0e} | {row['autograd_float32_relative']:.0e} | {row['distance']:.0e} | "
            f"{row['certified_steps']} | {'yes' if row['held'] else 'NO'} |"
        )
    return lines


def auto() -> list[str]:
    """Processor time, which other work on the machine hardly changes."""
    texts = {
        "nothing": "to build the first one on a machine",
        "another shape": "to build one for a new shape of network",
        "this shape": "to load one from the cache",
    }
    lines = ["| a kernel: time of one core | " + " | ".join(DTYPES) + " |", "|---|" + "---|" * len(DTYPES)]
    rows = read("executor_auto")["rows"]
    for held, text in texts.items():
        cells = []
        for dtype in DTYPES:
            found = [row["processor_seconds"] for row in rows if (row["cache"], row["dtype"]) == (held, dtype)]
            factor, unit = (1.0, "s") if min(found) > 0.1 else (1e3, "ms")
            ends = dict.fromkeys(f"{factor * value:.2g}" for value in (min(found), max(found)))
            cells.append(f"{' - '.join(ends)} {unit}")
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "executor_grid": grid,
    "executor_short": short,
    "executor_door": door,
    "executor_jax": jax,
    "executor_sizes": sizes,
    "executor_batch": batch,
    "executor_growth": growth,
    "executor_memory": memory,
    "executor_dense": dense,
    "executor_steps": steps,
    "executor_auto": auto,
}
