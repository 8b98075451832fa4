"""The learner of tables: training on one GPU, its scores, the speed-run, and its place in the zoo.

    train --labels numbers --seconds 500 --seed 0 --out FOLDER      trains it and measures it
    train ... --start FOLDER/NAME-0-state.safetensors               the same, from weights that are there (longer rows:
                                                                    --points 1024 --batch 40 --lr 3e-4)
    evaluate WEIGHTS [--tables TABLES.npz]                          measures weights that are there
    speedrun --tables TABLES.npz --seconds 60 --seeds 5 --out ...   seconds of training until others are passed
    profile                                                         where the time of a step goes
    pack WEIGHTS LOG.json [LOG.json]                                puts weights and a card into src/innergrad/zoo

``--size tiny`` is a check of seconds, ``--size small`` a learner for a CPU. ``--compile off`` does without
torch.compile and without a recorded graph, ``--kernels off`` without the lab's own kernels. Needs torch, numpy and
safetensors only.

TABLES.npz is what ``real_tables.py export`` writes. A speed-run takes the small ones (``real.tables.fast``). The scores
of random forest and others on them are those of results/real_tables_baselines.json.

Numbers on the prior's own prompts are measured with seeds that training never draws. Settings are chosen by them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from _results import device_name, wait
from innergrad import zoo
from innergrad.config import parse, to_table
from innergrad.files import digest
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.kernels import sets
from innergrad.lab.learners.table import TableConfig, TableLearner
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Task
from innergrad.lab.timed import train_within
from innergrad.lab.training import load_learner
from innergrad.lab.weights import write_learner
from tables_learner_scores import Tables, measured
from tables_learner_zoo import NAMES, pack

KINDS = {"numbers": "table-regression", "classes": "table-classification"}
SIZES: dict[str, dict[str, Any]] = {
    "full": {},
    "small": {"n_cells": 2, "d_cell": 32, "d_cell_mlp": 64, "free": 1, "n_rows": 2, "d_row": 64, "d_row_mlp": 96},
    "tiny": {"n_cells": 1, "d_cell": 32, "d_cell_mlp": 32, "free": 1, "n_rows": 1, "d_row": 32, "d_row_mlp": 32},
}
RECIPE = TrainConfig(
    steps=10**6,  # as many as fit
    batch=128,
    precision="bf16",
    optimiser=Optimiser("muon", lr=2e-3, schedule="cosine", warmup=200, betas=(0.9, 0.99), clip=1.0),
)
POINTS = 320
SHORT = 40  # warm-up of a speed-run
MEASURING = 45.0  # seconds that training leaves


def experiment_of(given: argparse.Namespace, seed: int) -> Experiment:
    """What the flags ask for."""
    shape = TableConfig(labels=given.labels, **{**SIZES[given.size], **json.loads(given.shape)})
    tiny = given.size == "tiny"
    warmup = given.warmup or (8 if tiny else RECIPE.optimiser.warmup)
    rule = replace(RECIPE.optimiser, warmup=warmup, lr=given.lr or RECIPE.optimiser.lr, final=given.final)
    batch, points = given.batch or (8 if tiny else RECIPE.batch), given.points or (64 if tiny else POINTS)
    how = replace(RECIPE, batch=batch, optimiser=rule, compile=given.compile == "on", steps=given.steps)
    how = replace(how, precision="bf16" if given.device.startswith("cuda") else "fp32")
    how = replace(how, log_every=8 if tiny else how.log_every)
    task: Task = parse(Task, {"kind": KINDS[given.labels], **json.loads(given.task)})
    return Experiment(f"{NAMES[given.labels]}-{seed}", seed, points, task, shape, how)


def choose_kernels(given: argparse.Namespace) -> None:
    """Takes the lab's own kernel if it runs here, is right, and is faster than torch's."""
    if not given.device.startswith("cuda") or not sets.AVAILABLE or given.kernels == "off":
        sets.AVAILABLE = False
        return
    try:
        qkv, grad = (torch.randn(40_960, 24, width, device=given.device, dtype=torch.bfloat16) for width in (384, 128))
        hidden = torch.zeros(128, 24, device=given.device)
        hidden[::2, 5:20] = -1e4
        few = slice(0, 640), slice(0, 2)  # sets, and what they must not read
        exact = attended(qkv[few[0]].float(), hidden[few[1]], grad[few[0]].float(), False)
        found = attended(qkv[few[0]], hidden[few[1]], grad[few[0]], True)
        off = max(float((a.float() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))
        times = {}
        for fast in (True, False):
            for _ in range(4):
                wait(given.device)
                start = time.monotonic()
                attended(qkv, hidden, grad, fast)
                wait(given.device)
                times[fast] = 1e3 * (time.monotonic() - start)
        sets.AVAILABLE = off < 0.02 and times[True] < times[False]
        print(f"kernel: off by {off:.2g}, {times[True]:.2f} ms; torch {times[False]:.2f} ms", flush=True)
    except Exception as error:  # whatever a machine has against it: torch's own attention is there
        sets.AVAILABLE = False
        print(f"the kernel does not run here: {error}", flush=True)


def attended(qkv: Tensor, hidden: Tensor, grad: Tensor, fast: bool) -> tuple[Tensor, Tensor]:
    """Attention in sets, and its gradient."""
    leaf = qkv.detach().requires_grad_()
    out = sets.attend_set(leaf, hidden, 4, fast=fast)
    return out.detach(), torch.autograd.grad(out, leaf, grad)[0]


def train(given: argparse.Namespace) -> None:
    """Trains for at most about so many seconds, measures, and leaves weights and a log."""
    began, one = time.monotonic(), experiment_of(given, given.seed)
    choose_kernels(given)

    def progress(step: int, words: str = "") -> None:
        if step % (10 * one.train.log_every) == 0:
            print(f"{time.monotonic() - began:7.1f} s   step {step:,}   {words}", flush=True)

    left = max(given.seconds - (MEASURING if given.size == "full" else 1.0), 1.0)
    result = train_within([one], left, device=given.device, progress=progress, start=given.start)
    took = time.monotonic() - began
    first, last = result.log[0], result.log[-1]
    rate = (last["step"] - first["step"]) / max(last["seconds"] - first["seconds"], 1e-9)
    print(
        f"{result.step:,} steps, {rate:.1f} a second, {took:.0f} s in all, {first['seconds']:.0f} s until warm",
        flush=True,
    )
    log: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/tables_learner.py", *sys.argv[1:]]),
        "device": device_name(given.device),
        "kernel": sets.AVAILABLE,
        "seconds": round(took, 1),
        "steps": result.step,
        "steps_per_second": round(rate, 2),
        "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if given.device.startswith("cuda") else None,
        "start": None if given.start is None else [str(given.start.name), digest(given.start)],
        "experiment": to_table(result.experiments[0]),
        "log": result.log,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    name, made = one.name, result.experiments[0]
    for bits, path in ((16, f"{name}{zoo.WEIGHTS}"), (32, f"{name}-state{zoo.WEIGHTS}")):
        with tempfile.TemporaryDirectory() as folder:
            written = write_learner(folder, result.learner, made, result.step, bits=bits)
            shutil.copyfile(written, given.out / path)
    keep(given.out / f"{name}.json", log)
    learner, _ = load_learner(given.out / f"{name}{zoo.WEIGHTS}", device=given.device)
    log |= measured(learner, made.task, given)
    keep(given.out / f"{name}.json", log)


def keep(path: Path, log: dict[str, Any]) -> None:
    path.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path.name}", flush=True)


# ------------------------------------------------------------------------------------------------------------ speed-run


def speedrun(given: argparse.Namespace) -> None:
    """Seconds of training until the mean over the tables passes those of random forest and others, for several seeds.

    One stack is compiled once, and every seed begins it anew. The clock runs while it trains, and neither while it
    compiles nor while it is measured. Learners are told what plain methods predict, so the first look is at one that is
    not trained.
    """
    tables, began = Tables(given.tables, given.labels), time.monotonic()
    choose_kernels(given)
    stack = Stack([experiment_of(given, 0)], given.device)
    stack.run(8, stack.n_points)
    wait(given.device)
    compiled = time.monotonic()
    stack.run(max(8, given.timed), stack.n_points)
    wait(given.device)
    rate = max(8, given.timed) / (time.monotonic() - compiled)
    steps = max(stack.rule.warmup + 1, int(rate * given.seconds))
    stack.plan(steps)
    bars = ", ".join(f"{name} {value:.4f}" for name, value in tables.means.items())
    print(f"{compiled - began:.0f} s to compile, {rate:.1f} steps a second, {steps:,} steps; bars: {bars}", flush=True)
    runs = [one_run(stack, seed, steps, tables, given) for seed in range(given.seeds)]
    log = {
        "command": " ".join(["python", "benchmarks/tables_learner.py", *sys.argv[1:]]),
        "device": device_name(given.device),
        "bars": tables.means,
        "tables": tables.names,
        "compile_seconds": round(compiled - began, 1),
        "steps_per_second": round(rate, 2),
        "experiment": to_table(replace(experiment_of(given, 0), train=stack.config)),
        "runs": runs,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    keep(given.out / f"{NAMES[given.labels]}-speedrun.json", log)


def one_run(stack: Stack, seed: int, steps: int, tables: Tables, given: argparse.Namespace) -> dict[str, Any]:
    """One seed: scores by the seconds of training, and when each of the others was passed (None: never)."""
    restart(stack, seed)
    seconds, curve, looks = 0.0, list[dict[str, float]](), max(1, given.looks)
    ends = sorted({round(steps * number / looks) for number in range(looks + 1)})
    for before, end in zip([0, *ends], ends, strict=False):
        start = time.monotonic()
        stack.run(end - before, stack.n_points)
        wait(given.device)
        seconds += time.monotonic() - start if end else 0.0
        alone = stack.learner.model(0)
        assert isinstance(alone, TableLearner)
        score = float(np.mean(tables.scores(alone, given.device)))
        curve.append({"step": end, "seconds": round(seconds, 2), "score": round(score, 5)})
        print(f"seed {seed}   {seconds:6.1f} s   step {end:,}   {score:.4f}", flush=True)
    passed = {
        name: next((look["seconds"] for look in curve if look["score"] >= bar), None)
        for name, bar in tables.means.items()
    }
    return {"seed": seed, "passed": passed, "curve": curve}


def restart(stack: Stack, seed: int) -> None:
    """The stack as a new one of this seed: weights, data, and the optimiser's memory."""
    stack.learner.init([seed])
    for name, value in stack.state.items():
        if name != "theta":
            value.zero_()
    stack.rngs[0].key.copy_(CounterRNG.of(seed, "train").key)


def profile(given: argparse.Namespace) -> None:
    """Where the time of a step goes, kernel by kernel."""
    choose_kernels(given)
    stack = Stack([experiment_of(given, 0)], given.device)
    stack.run(8, stack.n_points)
    wait(given.device)
    start = time.monotonic()
    stack.run(20, stack.n_points)
    wait(given.device)
    print(f"{20 / (time.monotonic() - start):.1f} steps a second")
    with torch.profiler.profile() as found:
        stack.advance(stack.n_points)
        wait(given.device)
    by = "self_cuda_time_total" if given.device.startswith("cuda") else "self_cpu_time_total"
    print(found.key_averages().table(sort_by=by, row_limit=30, max_name_column_width=80))


def evaluate(given: argparse.Namespace) -> None:
    learner, experiment = load_learner(given.weights, device=given.device)
    found = measured(learner, experiment.task, given)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        keep(given.out / f"{given.weights.stem}-scores.json", found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, two, three, four, five = map(commands.add_parser, ("train", "evaluate", "speedrun", "pack", "profile"))
    for each in (one, two, three, four, five):
        each.add_argument("--size", choices=list(SIZES), default="full")
        each.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        each.add_argument("--tables", type=Path, required=each is three)
        each.add_argument("--prompts", type=int, default=0, help="of validation; 0: the usual number")
        each.add_argument(
            "--out", type=Path, required=each in (one, three), default=zoo.FOLDER if each is four else None
        )
    for each in (one, three, five):
        each.add_argument("--labels", choices=list(NAMES), default="numbers")
        each.add_argument("--seconds", type=float, default=500.0)
        each.add_argument("--batch", type=int, default=0)
        each.add_argument("--points", type=int, default=0)
        each.add_argument("--lr", type=float, default=0.0, help="0: the recipe's")
        each.add_argument("--final", type=float, default=0.0, help="the last rate, as a share of the first")
        each.add_argument("--warmup", type=int, default=SHORT if each is three else 0, help="0: the recipe's")
        each.add_argument("--steps", type=int, default=RECIPE.steps, help="at most")
        each.add_argument("--shape", default="{}", help="JSON: settings of the learner")
        each.add_argument("--task", default="{}", help="JSON: settings of the prior")
        each.add_argument("--compile", choices=("on", "off"), default="on")
        each.add_argument("--kernels", choices=("on", "off"), default="on", help="the lab's own, where they apply")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--start", type=Path)
    two.add_argument("weights", type=Path)
    three.add_argument("--seeds", type=int, default=5)
    three.add_argument("--looks", type=int, default=10, help="how often the tables are scored in training")
    three.add_argument("--timed", type=int, default=50, help="steps that are timed")
    four.add_argument("weights", type=Path)
    four.add_argument("logs", type=Path, nargs="+", help="of each training in turn, the last one that of the weights")
    four.add_argument("--bits", type=int, choices=(8, 16), default=16)
    given = parser.parse_args(arguments)
    chosen = {"train": train, "evaluate": evaluate, "speedrun": speedrun, "pack": pack, "profile": profile}
    chosen[given.command](given)


if __name__ == "__main__":
    main()
