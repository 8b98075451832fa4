"""A row alone, in a batch, in another order, by two threads: is it the same row?

    python benchmarks/invariance.py --count 10000 --workers 16      stores results/invariance.json

Compiled transformers: every algorithm of ``tests/cases.py`` (all targets and variants), by every executor, in float32
and float64, on random prompts of 1 to 9 examples (some algorithms: of 1 to 40), with random weights of the examples
where the algorithm takes them. Models of the lab: GPTs of every kind of attention, position, norm and token, and the
attention-only learners, with random weights. What must not matter is drawn from ``innergrad.testing.invariance``, which
also says how far rounding may take two runs apart; ``share`` is the difference over that. A case is one comparison;
four of them, with four different changes, share their prompts and the run that they are compared with. Cases are a
function of their number alone.
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
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # of two threads on a busy core, one would spin for seconds
import torch

from _parts import ROOT, Parts
from _results import store
from innergrad.errors import InputError, JobError, PoorRun
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig
from innergrad.model.executors import Name as Executor
from innergrad.testing.invariance import CHANGES, OF_LEARNERS, SYMMETRIC, compared, rows

Row = dict[str, Any]
EXECUTORS: tuple[Executor, ...] = ("plain", "fused", "dense", "auto")
LAB = "lab"
LAB_SHARE, CHUNK = 5, 4  # one case in five is the lab's; a process takes the rest of so many fives at a time


def table() -> dict[str, Any]:
    """Name -> case; long ones have 40 examples."""
    sys.path += [folder for folder in (str(ROOT / "tests"), str(ROOT / "examples")) if folder not in sys.path]
    cases: Any = importlib.import_module("cases")
    return {**cases.CASES, **{f"{name} (40 examples)": case for name, case in cases.LONG.items()}}


# ------------------------------------------------------------------------------------------------------------ compiled


def compiled(place: int, name: str, case: Any) -> list[Row]:
    """The first four of five cases: the same prompts, and as many changes."""
    draw = random.Random(place)
    executor, dtype = EXECUTORS[place % 4], (torch.float64, torch.float32)[place // 4 % 2]
    changes = draw.sample([change for change in CHANGES if change != SYMMETRIC or not case.ordered], LAB_SHARE - 1)
    tf, long = case.tf, "(40" in name
    batch = draw.choice([1, 2]) if long else draw.randint(1, 6)
    n_query, most = draw.randint(1, 3), tf.options.n_examples
    if tf.program.length is not None:
        most = min(most, tf.program.length - tf.program.carriers - n_query)
    least = max((max(batch) + 1 for batch in tf.program.batches), default=1)  # some example of every batch
    n = draw.randint(min(least, most), most)
    prompts = case.prompts(batch, n, n_query, seed=place)
    if not tf.proven:  # fits have a bounded domain, which normal numbers leave now and then
        prompts |= {name: prompts[name] / 2 for name in ("X", "X_query")}
    if tf.algorithm.weighted and not tf.algorithm.by_place and draw.random() < 0.3:
        generator = torch.Generator().manual_seed(place)
        prompts["sample_weight"] = torch.rand(batch, n, generator=generator, dtype=torch.float64) + 0.1
    kind = f"{tf.options.target}, {executor}, {str(dtype).removeprefix('torch.')}"
    numbered = enumerate(changes, start=LAB_SHARE * place)
    cases: list[Row] = [{"number": n, "case": name, "kind": kind, "change": change} for n, change in numbered]
    try:
        found = compared(tf, prompts, changes, torch.Generator().manual_seed(place), executor, dtype)
    except (InputError, JobError) as refusal:  # a program that cannot be fused, a prompt that leaves the domain
        return [{**row, "refused": str(refusal).splitlines()[0]} for row in cases]
    return [{**row, **vars(found[row["change"]])} for row in cases]


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


def chunks(numbers: Iterable[int]) -> Iterator[tuple[str, list[int]]]:
    """Name of the algorithm (or the lab), numbers of the cases; cases that share a run stay together."""
    names, groups = list(table()), dict[tuple[str, int], list[int]]()
    for number in numbers:
        place, rest = divmod(number, LAB_SHARE)
        name = LAB if rest == LAB_SHARE - 1 else names[place // 8 % len(names)]
        part = number // 256 if name == LAB else place // (8 * len(names)) // CHUNK
        groups.setdefault((name, part), []).append(number)
    yield from ((name, group) for (name, _), group in groups.items())


def examine(name: str, numbers: list[int]) -> list[Row]:
    warnings.simplefilter("ignore", PoorRun)  # that nothing good is learned from random numbers
    if name == LAB:
        return [of_the_lab(number) for number in numbers]
    case, places = table()[name], sorted({number // LAB_SHARE for number in numbers})
    return [row for place in places for row in compiled(place, name, case) if row["number"] in numbers]


def examined(numbers: Iterable[int], workers: int, parts: Parts) -> None:
    """Every case that is not among the parts already."""
    started, before = time.perf_counter(), len(parts.rows)
    cells = sorted(chunks(parts.missing(numbers)), key=lambda cell: cell[0] == LAB)
    if workers == 1 or not cells:
        found: Iterator[list[Row]] = (examine(*cell) for cell in cells)
    else:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,))
        found = iter(pool.map(examine, *zip(*cells, strict=True)))
    for done, part in enumerate(found, start=1):
        for row in part:
            parts.add(row)
            if row.get("share", 0.0) > 1.0:
                print(f"APART: {row}", flush=True)
        if done % 20 == 0:
            told = f"{len(parts.rows) - before} more in {time.perf_counter() - started:.0f} s"
            print(f"{len(parts.rows)} cases, {told}", flush=True)


def summary(found: list[Row]) -> Row:
    ran = [row for row in found if "share" in row]
    return {
        "cases": len(found),
        "refused": sum("refused" in row for row in found),
        "overflowed": sum("overflowed" in row for row in found),
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
    parser.add_argument("--parts", type=Path, help="a file of the cases done: a command that ended goes on from it")
    parser.add_argument(
        "--again", type=int, action="append", default=[], help="with --parts: cases that something was mended for"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    made_by = (Path(__file__), ROOT / "tests" / "cases.py", *(ROOT / "examples").glob("*.py"))
    parts, every = Parts(given.parts, {}, made_by, given.again), range(given.count)
    examined(every, given.workers, parts)
    found = summary([parts.rows[number] for number in every]) | {"mended": parts.mended()}
    told = f"{found['refused']} refused, {len(found['apart'])} apart, {len(given.again)} judged again"
    print(f"{found['cases']} cases, {told}")
    store("invariance", f"python benchmarks/invariance.py --count {given.count}", found, given.out)
    if found["apart"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
