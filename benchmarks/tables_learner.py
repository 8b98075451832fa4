"""The learner of tables: training on one GPU, its scores, the speed-run, and its place in the zoo.

    train --labels numbers --seconds 500 --seed 0 --out FOLDER      trains it and measures it
    train ... --start FOLDER/NAME-0-state.safetensors               the same, from weights that are there (longer rows:
                                                                    --points 1024 --batch 40 --lr 3e-4)
    evaluate WEIGHTS [--tables TABLES.npz]                          measures weights that are there
    speedrun --tables TABLES.npz --seconds 60 --seeds 5 --out ...   seconds of training until random forest is passed
    profile                                                         where the time of a step goes
    pack WEIGHTS LOG.json                                           puts weights and a card into src/innergrad/zoo

``--size tiny`` is a check of seconds. ``--compile off`` does without torch.compile and without a recorded graph,
``--kernels off`` without the lab's own kernels. Needs torch, numpy and safetensors only.

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

from _results import device_name, read, wait
from innergrad import zoo
from innergrad.config import parse, to_table
from innergrad.files import digest
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.evaluation import prompts
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.kernels import sets
from innergrad.lab.learners import table_features as features
from innergrad.lab.learners.answers import ClassAnswer, NumberAnswer
from innergrad.lab.learners.table import MOST_CLASSES, TableConfig, TableLearner
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.stack import Stack
from innergrad.lab.tasks import Task
from innergrad.lab.timed import train_within
from innergrad.lab.training import load_learner
from innergrad.lab.weights import write_learner
from real import tables as real_tables
from real.scores import auc as of_class

NAMES = {"numbers": "tables-regression", "classes": "tables-classification"}
KINDS = {"numbers": "table-regression", "classes": "table-classification"}
SIZES: dict[str, dict[str, Any]] = {
    "full": {},
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
KS, QUERIES, PROMPTS = (64, 250, 1000), 64, 512  # demonstrations and queries of validation prompts
SEED = 1  # of validation prompts
MEASURING = 45.0  # seconds that training leaves
LEVELS = (0.1, 0.9)  # of the interval whose coverage is measured
WORST = -1.0  # an R^2 below counts as this
RIDGES = tuple(10.0**power for power in range(-4, 5))
MOST = 15 * 10**6  # bytes of both learners
LIMITS = (
    "It has seen tables that were drawn at random, and no real one. Time series, text, images and drift are not there.",
    "Training has at most {columns} columns and {rows} rows. More are taken, without a promise.",
)


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


# ------------------------------------------------------------------------------------------------------------ measuring


def measured(learner: Any, task: Task, given: argparse.Namespace) -> dict[str, Any]:
    """Scores on prompts of the prior, and on real tables if there are some."""
    assert isinstance(learner, TableLearner)
    tiny = given.size == "tiny"
    rows = [
        on_prior(learner, task, k, given.prompts or (8 if tiny else PROMPTS // (4 if k >= 1000 else 1)), given.device)
        for k in ((8,) if tiny else KS)
    ]
    for row in rows:
        print("   ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    found: dict[str, Any] = {"validation": {"queries": QUERIES, "seed": SEED, "rows": rows}}
    if given.tables is not None:
        tables = Tables(given.tables, learner.config.labels)
        scores = tables.scores(learner, given.device)
        print(tables.words(scores), flush=True)
        found["tables"] = {"scores": dict(zip(tables.names, scores.tolist(), strict=True)), "others": tables.means}
    return found


@torch.no_grad()
def on_prior(learner: TableLearner, task: Task, k: int, number: int, device: str) -> dict[str, float]:
    """Scores of k demonstrations, beside the mean (or the shares of the classes) and ridge regression."""
    x, y = prompts(task, number, k + QUERIES, SEED, 32, device)
    parts = [learner.answer(a, b[:, :k], **_classes(learner)) for a, b in zip(x.split(32), y.split(32), strict=True)]
    labels, row = y[:, k:], {"k": float(k), "prompts": float(number)}
    numbers = learner.config.labels == "numbers"
    ridge = ridge_predictions(x, y, k, numbers)
    if numbers:
        answers = [part for part in parts if isinstance(part, NumberAnswer)]
        mean = torch.cat([answer.mean for answer in answers])
        low, high = torch.cat([answer.quantile(LEVELS) for answer in answers]).unbind(-1)
        flat = y[:, :k].mean(1, keepdim=True).expand_as(labels)
        row |= {"learner": r2(mean, labels), "ridge": r2(ridge, labels), "mean": r2(flat, labels)}
        row |= {"guess": r2(guess_of(learner, x, y, k)[..., 0], labels)} if learner.config.guess else {}
        return row | {"coverage": float(((labels >= low) & (labels <= high)).float().mean())}
    chances = torch.cat([part.probabilities for part in parts if isinstance(part, ClassAnswer)])
    shares = features.class_codes(y[:, :k], torch.ones_like(y[:, :k], dtype=torch.bool), MOST_CLASSES).mean(1)
    frequent = shares[:, None].expand_as(chances)
    for name, one in (("learner", chances), ("shares", frequent)):
        row[f"{name} log-loss"] = float(-one.gather(-1, labels.long()[..., None]).clamp(min=1e-6).log().mean())
    guess = {"guess": guess_of(learner, x, y, k)} if learner.config.guess else {}
    for name, one in {"learner": chances, "ridge": ridge, "shares": frequent, **guess}.items():
        row[f"{name} accuracy"] = float((one.argmax(-1) == labels).float().mean())
    row["learner AUC"] = float(np.nanmean([auc(*both) for both in zip(chances.cpu(), labels.cpu(), strict=True)]))
    return row


def guess_of(learner: TableLearner, x: Tensor, y: Tensor, k: int) -> Tensor:
    """What the learner is told by plain methods: labels (B, m, 1), or scores of the classes (B, m, 10)."""
    found = []
    for some, labels in zip(x.split(8), y.split(8), strict=True):
        shown = (torch.arange(x.shape[1], device=x.device) < k).expand(len(some), -1)
        table, _, about = learner.read(some, labels, shown, k)
        if learner.config.labels == "numbers":
            found.append(table.guess[:, k:, :1] * about[1][:, None, None] + about[0][:, None, None])
        else:
            mixed = table.guess[:, k:, :MOST_CLASSES]
            found.append(mixed.gather(-1, about[0].argsort(1)[:, None].expand_as(mixed)))
    return torch.cat(found)


def _classes(learner: TableLearner) -> dict[str, int]:
    return {} if learner.config.labels == "numbers" else {"classes": MOST_CLASSES}


def r2(predicted: Tensor, labels: Tensor) -> float:
    """The mean over prompts of R^2 on their queries."""
    spread = (labels - labels.mean(1, keepdim=True)).square().sum(1)
    found = 1.0 - (predicted - labels).square().sum(1) / spread
    return float(found[spread > 0].clamp(min=WORST).mean())


def ridge_predictions(x: Tensor, y: Tensor, k: int, numbers: bool) -> Tensor:
    """Ridge regression on z-scores, its penalty by generalised cross-validation: labels, or a score of each class."""
    shown = (torch.arange(x.shape[1], device=x.device) < k).expand(x.shape[:2])
    codes = features.class_codes(y, shown, MOST_CLASSES)
    z = features.seen(x, shown, codes, True).z.double()
    targets = (y[:, :k, None] if numbers else codes[:, :k]).double()
    middle = targets.mean(1, keepdim=True)
    centre = z[:, :k].mean(1, keepdim=True)
    known, targets = z[:, :k] - centre, targets - middle
    sizes, turn = torch.linalg.eigh(known.mT @ known)
    sizes = sizes.clamp(min=0.0)
    seen, along = known @ turn, (known @ turn).mT @ targets
    best, errors = None, None
    for penalty in RIDGES:
        weights = along / (sizes + penalty * k)[..., None]
        free = 1.0 - (sizes / (sizes + penalty * k)).sum(-1) / k
        error = (targets - seen @ weights).square().sum((1, 2)) / free.square().clamp(min=1e-9)
        better = torch.ones_like(error, dtype=torch.bool) if errors is None else error < errors
        errors = error if errors is None else torch.minimum(error, errors)
        best = weights if best is None else torch.where(better[:, None, None], weights, best)
    assert best is not None
    found: Tensor = (z[:, k:] - centre) @ turn @ best + middle
    return found[..., 0].to(y.dtype) if numbers else found


def auc(chances: Any, labels: Any) -> float:
    """The mean over the classes that are there, each against the others; NaN if there is one alone."""
    chances, labels = np.asarray(chances), np.asarray(labels)
    found = [of_class(labels == one, chances[:, one]) for one in np.unique(labels).astype(int)]
    return float(np.mean(found))


class Tables:
    """Small real tables, and the scores of baselines on them: the mean over folds of R^2, or of ROC AUC."""

    def __init__(self, path: Path, labels: str) -> None:
        numbers = labels == "numbers"
        chosen = real_tables.fast(real_tables.load(path), "regression" if numbers else "classification")
        if not chosen:
            sys.exit(f"{path} has no small tables whose labels are {labels}")
        self.names = [f"{table.source} {table.name}" for table in chosen]
        self.tables = [(table.x[table.order], table.y[table.order], table.fold[table.order]) for table in chosen]
        found: dict[str, dict[str, list[float]]] = {}
        for row in read("real_tables_baselines")["rows"]:
            score = row.get("r2" if numbers else "auc")
            if score is not None:
                scores = found.setdefault(row["model"], {})
                scores.setdefault(f"{row['source']} {row['table']}", []).append(score)
        whole = {model: scores for model, scores in found.items() if all(name in scores for name in self.names)}
        self.means = {
            model: float(np.mean([np.mean(scores[name]) for name in self.names])) for model, scores in whole.items()
        }

    def scores(self, learner: TableLearner, device: str) -> Any:
        """(T,): the mean over folds of R^2, or of ROC AUC."""
        return np.array([self.score(learner, table, device) for table in self.tables])

    def score(self, learner: TableLearner, table: tuple[Any, ...], device: str) -> float:
        """All folds in one batch: the rows of a larger fold that are too many are left out, queries are repeated."""
        x, y, fold = table
        folds = np.unique(fold)
        known = [np.flatnonzero(fold != one) for one in folds]
        asked = [np.flatnonzero(fold == one) for one in folds]
        k, m = min(map(len, known)), max(map(len, asked))
        rows = np.stack([np.r_[a[:k], np.resize(b, m)] for a, b in zip(known, asked, strict=True)])
        inputs = torch.as_tensor(x[rows], device=device)
        labels = torch.as_tensor(y[rows[:, :k]], dtype=torch.float64, device=device)
        answer = learner.answer(inputs, labels, **_classes(learner))
        if isinstance(answer, ClassAnswer):
            chances = answer.probabilities.cpu().numpy()
            return float(np.nanmean([auc(chances[i, : len(b)], y[b]) for i, b in enumerate(asked)]))
        mean = answer.mean.cpu().numpy()
        errors = [np.square(mean[i, : len(b)] - y[b]).sum() for i, b in enumerate(asked)]
        spreads = [np.square(y[b] - y[b].mean()).sum() for b in asked]
        return float(np.mean([1.0 - a / b for a, b in zip(errors, spreads, strict=True)]))

    def words(self, scores: Any) -> str:
        others = ", ".join(f"{name} {value:.4f}" for name, value in self.means.items())
        found = f"mean {np.mean(scores):.4f}, median {np.median(scores):.4f}"
        return f"{len(scores)} tables: {found}; means of others: {others}"


# ------------------------------------------------------------------------------------------------------------ speed-run


def speedrun(given: argparse.Namespace) -> None:
    """Seconds of training until the mean over the tables passes that of random forest, for several seeds.

    One stack is compiled once, and every seed begins it anew. The clock runs while it trains, and neither while it
    compiles nor while it is measured.
    """
    tables, began = Tables(given.tables, given.labels), time.monotonic()
    choose_kernels(given)
    bar = tables.means["forest"] if given.bar is None else given.bar
    stack = Stack([experiment_of(given, 0)], given.device)
    stack.run(8, stack.n_points)
    wait(given.device)
    compiled = time.monotonic()
    stack.run(max(8, given.timed), stack.n_points)
    wait(given.device)
    rate = max(8, given.timed) / (time.monotonic() - compiled)
    steps = max(stack.rule.warmup + 1, int(rate * given.seconds))
    stack.plan(steps)
    print(f"{compiled - began:.0f} s to compile, {rate:.1f} steps a second, {steps:,} steps, bar {bar:.4f}", flush=True)
    runs = [one_run(stack, seed, steps, tables, bar, given) for seed in range(given.seeds)]
    log = {
        "command": " ".join(["python", "benchmarks/tables_learner.py", *sys.argv[1:]]),
        "device": device_name(given.device),
        "bar": bar,
        "others": tables.means,
        "tables": tables.names,
        "compile_seconds": round(compiled - began, 1),
        "steps_per_second": round(rate, 2),
        "experiment": to_table(replace(experiment_of(given, 0), train=stack.config)),
        "runs": runs,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    keep(given.out / f"{NAMES[given.labels]}-speedrun.json", log)


def one_run(
    stack: Stack, seed: int, steps: int, tables: Tables, bar: float, given: argparse.Namespace
) -> dict[str, Any]:
    """One seed: scores by the seconds of training, and when the bar was passed."""
    restart(stack, seed)
    seconds, curve, passed, looks = 0.0, [], None, max(1, given.looks)
    ends = sorted({round(steps * (number + 1) / looks) for number in range(looks)} - {0})
    for before, end in zip([0, *ends], ends, strict=False):
        start = time.monotonic()
        stack.run(end - before, stack.n_points)
        wait(given.device)
        seconds += time.monotonic() - start
        alone = stack.learner.model(0)
        assert isinstance(alone, TableLearner)
        score = float(np.mean(tables.scores(alone, given.device)))
        passed = seconds if passed is None and score >= bar else passed
        curve.append({"step": end, "seconds": round(seconds, 2), "score": round(score, 5)})
        print(f"seed {seed}   {seconds:6.1f} s   step {end:,}   {score:.4f}", flush=True)
    return {"seed": seed, "passed": None if passed is None else round(passed, 2), "curve": curve}


def restart(stack: Stack, seed: int) -> None:
    """The stack as a new one of this seed: weights, data, and the optimiser's memory."""
    stack.learner.init([seed])
    for name, value in stack.state.items():
        if name != "theta":
            value.zero_()
    stack.rngs[0].key.copy_(CounterRNG.of(seed, "train").key)


# ------------------------------------------------------------------------------------------------------------- the zoo


def pack(given: argparse.Namespace) -> None:
    """Weights and card into the zoo."""
    learner, experiment = load_learner(given.weights)
    assert isinstance(learner, TableLearner)
    log = json.loads(given.log.read_text(encoding="utf-8"))
    name = NAMES[learner.config.labels]
    path = given.out / f"{name}{zoo.WEIGHTS}"
    with tempfile.TemporaryDirectory() as folder:
        step = log["steps"]
        written = write_learner(folder, learner, replace(experiment, name=name), step, bits=16)
        shutil.copyfile(written, path)
    card = card_of(name, learner, experiment, log)
    card["weights"] = {"words": "16 bits.", "bits": 16, "bytes": path.stat().st_size, "sha256": digest(path)}
    text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
    (given.out / f"{name}{zoo.CARD}").write_text(text, encoding="utf-8")
    total = sum(
        (given.out / f"{one}{zoo.WEIGHTS}").stat().st_size
        for one in NAMES.values()
        if (given.out / f"{one}{zoo.WEIGHTS}").exists()
    )
    print(f"wrote {name}{zoo.WEIGHTS} and {name}{zoo.CARD}; {total:,} bytes of at most {MOST:,}")
    if total > MOST:
        sys.exit("the learners of tables are too large")


def card_of(name: str, learner: TableLearner, experiment: Experiment, log: dict[str, Any]) -> zoo.Card:
    """The card but for the weights."""
    shape, config = learner.config, experiment.train
    parameters = sum(value.numel() for value in learner.parameters())
    numbers = shape.labels == "numbers"
    what = "numbers" if numbers else f"classes, at most {MOST_CLASSES}"
    words = (
        f"sets of rows, cells as tokens: {shape.n_cells} layers of width {shape.d_cell} on cells, {shape.n_rows} of "
    )
    words += f"width {shape.d_row} on rows; no positions; {parameters:,} parameters."
    trained = f"{log['steps']:,} steps, {config.batch} tables of {experiment.n_points} rows each, "
    trained += f"{config.optimiser.kind} at {config.optimiser.lr:g}, cosine to 0, {config.precision}, seed "
    trained += f"{experiment.seed}; {log['device']}, {log['seconds']:g} s."
    if log.get("start"):
        trained += " It went on from weights that were trained before, whose steps are not counted here."
    measure = "mean R² of the queries over tables, below -1 counted as -1" if numbers else "log-loss, accuracy, ROC AUC"
    rows = [
        {key: int(value) if key in ("k", "prompts") else float(f"{value:.4g}") for key, value in row.items()}
        for row in log["validation"]["rows"]
    ]
    numbers_words = f"on tables of the prior that training did not see, k demonstrations, {QUERIES} queries: {measure}."
    table = to_table(experiment.task)
    prompts_seen = log["steps"] * config.batch
    return {
        "name": name,
        "title": f"tables of at most {learner.d} columns, labels that are {what}; sets of rows",
        "task": {"words": "Random tables: a mixture of functions, columns and noise; see task.kind.", "table": table},
        "data": {
            "words": f"{prompts_seen:,} tables, each seen once, drawn by counters. No data of anybody.",
            "prompts": prompts_seen,
            "points": experiment.n_points,
        },
        "learner": {"words": words, "table": to_table(shape)},
        "training": {
            "words": trained,
            "steps": log["steps"],
            "planned": log["steps"],
            "seconds": log["seconds"],
            "device": log["device"],
            "command": log["command"],
            "table": to_table(config),
        },
        "numbers": {"words": numbers_words, "seed": SEED, "rows": rows},
        "limits": [one.format(columns=learner.d, rows=experiment.n_points) for one in LIMITS],
        "licence": "MIT",
    }


def table() -> list[str]:
    """The learners of tables in the zoo, from their cards."""
    lines = ["| name | k | learner | ridge regression | without columns |", "|---|---|---|---|---|"]
    for name in (one for one in NAMES.values() if one in zoo.names()):
        for row in zoo.card(name)["numbers"]["rows"]:
            ends = ("", "", "") if "learner" in row else (" accuracy",) * 3
            keys = zip(("learner", "ridge", "mean" if "mean" in row else "shares"), ends, strict=True)
            lines.append(f"| `{name}` | {row['k']} | {' | '.join(f'{row[key + end]:.3f}' for key, end in keys)} |")
    return lines


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
    for each in (one, two, three, five):
        each.add_argument("--size", choices=list(SIZES), default="full")
        each.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        each.add_argument("--tables", type=Path, required=each is three)
        each.add_argument("--prompts", type=int, default=0, help="of validation; 0: the usual number")
        each.add_argument("--out", type=Path, required=each in (one, three))
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
    three.add_argument("--looks", type=int, default=6, help="how often the tables are scored")
    three.add_argument("--bar", type=float, help="by default random forest's mean in the file of tables")
    three.add_argument("--timed", type=int, default=50, help="steps that are timed")
    four.add_argument("weights", type=Path)
    four.add_argument("log", type=Path)
    four.add_argument("--out", type=Path, default=zoo.FOLDER)
    given = parser.parse_args(arguments)
    chosen = {"train": train, "evaluate": evaluate, "speedrun": speedrun, "pack": pack, "profile": profile}
    chosen[given.command](given)


if __name__ == "__main__":
    main()
