"""A row alone, in a batch, in another order, by two threads: is it the same row?

    python benchmarks/invariance.py --count 10000 --workers 16      stores results/invariance.json

Compiled transformers: every algorithm of ``tests/cases.py`` (all targets and variants), by every executor, in float32
and float64, on random prompts of 1 to 9 examples (some algorithms: of 1 to 40), with random weights of the examples
where the algorithm takes them. Models of the lab: GPTs of every kind of attention, position, norm and token, and the
attention-only learners, with random weights. What must not matter is drawn from ``innergrad.testing.invariance``, which
also says how far rounding may take two runs apart; ``share`` is the difference over that. Cases are a function of their
number alone.
"""

from __future__ import annotations

import argparse
import importlib
import math
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch

from _results import store
from innergrad.errors import InputError, JobError
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.model.executors import Name as Executor
from innergrad.testing.invariance import CHANGES, OF_LEARNERS, SYMMETRIC, compared, rows

Row = dict[str, Any]
EXECUTORS: tuple[Executor, ...] = ("plain", "fused", "dense", "auto")
LAB = "lab"


def table() -> dict[str, Any]:
    """Name -> case; long ones have 40 examples."""
    root = Path(__file__).parent.parent
    sys.path += [folder for folder in (str(root / "tests"), str(root / "examples")) if folder not in sys.path]
    cases: Any = importlib.import_module("cases")
    return {**cases.CASES, **{f"{name} (40 examples)": case for name, case in cases.LONG.items()}}


# ------------------------------------------------------------------------------------------------------------ compiled


def compiled(number: int, name: str, case: Any) -> Row:
    draw = random.Random(number)
    executor, dtype = EXECUTORS[number % 4], (torch.float64, torch.float32)[number // 4 % 2]
    changes = [change for change in CHANGES if change != SYMMETRIC or not case.ordered]
    change = draw.choice(changes)
    tf, long = case.tf, "(40" in name
    batch = draw.choice([1, 2]) if long else draw.randint(1, 6)
    n_query, most = draw.randint(1, 3), tf.options.n_examples
    if tf.program.length is not None:
        most = min(most, tf.program.length - tf.program.carriers - n_query)
    least = max((max(batch) + 1 for batch in tf.program.batches), default=1)  # some example of every batch
    n = draw.randint(min(least, most), most)
    prompts = case.prompts(batch, n, n_query, seed=number)
    if not tf.proven:  # fits have a bounded domain, which normal numbers leave now and then
        prompts |= {name: prompts[name] / 2 for name in ("X", "X_query")}
    if tf.algorithm.weighted and not tf.algorithm.by_place and draw.random() < 0.3:
        generator = torch.Generator().manual_seed(number)
        prompts["sample_weight"] = torch.rand(batch, n, generator=generator, dtype=torch.float64) + 0.1
    kind = f"{tf.options.target}, {executor}, {str(dtype).removeprefix('torch.')}"
    row = {"number": number, "case": name, "kind": kind, "change": change}
    try:
        found = compared(tf, prompts, [change], torch.Generator().manual_seed(number), executor, dtype)[change]
    except (InputError, JobError) as refusal:  # a program that cannot be fused, a prompt that leaves the domain
        return {**row, "refused": str(refusal).splitlines()[0]}
    return {**row, **vars(found)}


# ------------------------------------------------------------------------------------------------------------- the lab


def learner_of(draw: random.Random, d: int, n: int) -> Learner:
    """Random sizes and kinds, random weights that are not small."""
    std = draw.choice([0.02, 0.1, 0.3])
    if draw.random() < 0.3:
        heads = tuple(draw.choice(["linear", "relu", "exp", "softmax"]) for _ in range(draw.randint(1, 3)))
        kernel = KernelLearnerConfig(draw.randint(1, 4), heads, draw.random() < 0.5, "count", min(std, 0.1))
        return kernel.build(d, n).init([draw.randrange(1000)])
    heads_of, width = draw.choice([1, 2, 4]), draw.choice([8, 16, 32, 64])
    gpt = GPTConfig(
        n_layers=draw.randint(1, 4),
        d_model=width,
        n_heads=heads_of,
        d_mlp=draw.choice([0, 16, 128]),
        attention=draw.choice(["softmax", "relu", "linear", "exp"]),
        normalise=draw.choice(["count", "sqrt"]),
        positions=draw.choice(["learned", "rotary", "none"]),
        tokens=draw.choice(["interleaved", "columns"]),
        layer_norm=draw.random() < 0.8,
        tied=draw.random() < 0.2,
        qk_norm=draw.random() < 0.3,
        init_std=std,
    )
    return gpt.build(d, n).init([draw.randrange(1000)])


def of_the_lab(number: int) -> Row:
    draw = random.Random(number)
    d, n, batch = draw.randint(1, 8), draw.randint(2, 24), draw.choice([1, 2, 7, 33])
    dtype = (torch.float64, torch.float32)[number % 2]
    learner = learner_of(draw, d, n).to(dtype)
    config: Any = learner.config
    a_set = isinstance(config, KernelLearnerConfig) or (config.tokens, config.positions) == ("columns", "none")
    changes = [change for change in OF_LEARNERS if change != SYMMETRIC or a_set]
    change = draw.choice(changes)
    generator = torch.Generator().manual_seed(number)
    x, y = torch.randn(batch, n, d, generator=generator), torch.randn(batch, n, generator=generator)
    kind = f"{LAB}, {type(learner).__name__}, {str(dtype).removeprefix('torch.')}"
    found, what = rows(learner, x.to(dtype), y.to(dtype), change, generator), {"number": number, "case": repr(config)}
    if not math.isfinite(found.size):  # unnormalised attention with weights as large as these
        return {**what, "kind": kind, "change": change, "overflowed": True}
    return {**what, "kind": kind, "change": change, **vars(found)}


# ---------------------------------------------------------------------------------------------------------- everything

LAB_SHARE, CHUNK = 5, 16  # one case in five is the lab's; a process takes so many of an algorithm at a time


def chunks(count: int) -> Iterator[tuple[str, list[int]]]:
    """Name of the algorithm (or the lab), numbers of the cases."""
    names, groups = list(table()), dict[str, list[int]]()
    for number in range(count):
        place, rest = divmod(number, LAB_SHARE)
        name = LAB if rest == LAB_SHARE - 1 else names[(place * (LAB_SHARE - 1) + rest) // 8 % len(names)]
        groups.setdefault(name, []).append(number)
    for name, numbers in groups.items():
        size = 4 * CHUNK if name == LAB else max(CHUNK, len(numbers) // 4 + 1)
        yield from ((name, numbers[start : start + size]) for start in range(0, len(numbers), size))


def examine(name: str, numbers: list[int]) -> list[Row]:
    case = None if name == LAB else table()[name]
    return [of_the_lab(number) if case is None else compiled(number, name, case) for number in numbers]


def examined(count: int, workers: int) -> list[Row]:
    started, found = time.perf_counter(), list[Row]()
    cells = sorted(chunks(count), key=lambda cell: (cell[0] == LAB, -len(cell[1])))
    if workers == 1:
        parts: Iterator[list[Row]] = (examine(*cell) for cell in cells)
    else:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,))
        parts = iter(pool.map(examine, *zip(*cells, strict=True)))
    for done, part in enumerate(parts, start=1):
        found += part
        for row in part:
            if row.get("share", 0.0) > 1.0:
                print(f"APART: {row}", flush=True)
        if done % 40 == 0:
            print(f"{len(found)} cases, {time.perf_counter() - started:.0f} s", flush=True)
    return sorted(found, key=lambda row: row["number"])


def summary(found: list[Row]) -> Row:
    ran = [row for row in found if "share" in row]
    return {
        "cases": len(found),
        "refused": len(found) - len(ran),
        "apart": [row for row in ran if not row["share"] <= 1.0],
        "vacuous": sum(vacuous(row) for row in ran),
        "kinds": grouped(ran, "kind"),
        "changes": grouped(ran, "change"),
        "algorithms": len({row["case"] for row in found if not row["kind"].startswith(LAB)}),
        "all": grouped([{**row, "all": "all"} for row in ran], "all"),
    }


def vacuous(row: Row) -> bool:
    """Whether rounding may, by its bound, take away half of the digits, or is not bounded."""
    precise = row["kind"].endswith("float64")
    return not row["limit"] <= (2.0**-26 if precise else 2.0**-12) * max(1.0, row["size"])


def grouped(ran: list[Row], key: str) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in ran:
        groups.setdefault(row[key], []).append(row)
    return [
        {
            key: name,
            "cases": len(group),
            "equal": sum(row["equal"] for row in group),
            "largest_share": _short(max(row["share"] for row in group)),
            "largest_difference": _short(max(row["difference"] / max(1.0, row["size"]) for row in group)),
            "median_limit": _short(sorted(row["limit"] for row in group)[len(group) // 2]),
        }
        for name, group in sorted(groups.items())
    ]


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    started = time.perf_counter()
    found = summary(examined(given.count, given.workers))
    found["seconds"] = round(time.perf_counter() - started)
    print(f"{found['cases']} cases, {found['refused']} refused, {len(found['apart'])} apart")
    store("invariance", f"python benchmarks/invariance.py --count {given.count}", found, given.out)
    if found["apart"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
