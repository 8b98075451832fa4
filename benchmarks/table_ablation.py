"""Which parts of the prior of tables matter? Learners trained alike on priors that lack one of them, and their scores.

    python benchmarks/table_ablation.py train --size small --steps 1000 --tables out/tables/tables.npz --out FOLDER
    python benchmarks/table_ablation.py store FOLDER [FOLDER ...]      stores results/table_ablation.json

Every learner is measured on the same prompts of the whole prior, and on small real tables if there are some (nothing is
chosen by these). Learners of one seed begin with the same weights. FOLDER/table-ablation.json is kept after every
learner, and the same command goes on with it. ``--priors`` and ``--seeds`` take some of them. ``--size small`` is for a
core of a CPU (two hours), ``--size tiny`` a check of seconds. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _results import RESULTS, device_name, read, store
from innergrad.lab import TableRegression
from innergrad.lab.evaluation import prompts
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.answers import NumberAnswer
from innergrad.lab.learners.table import TableConfig, TableLearner
from innergrad.lab.tasks.tables.prior import Missing
from innergrad.lab.timed import train_within
from tables_learner import POINTS, RECIPE, SIZES, choose_kernels
from tables_learner_scores import PROMPTS, QUERIES, SEED, Tables, each_r2, guess_of, r2

KS = (64, 250)  # demonstrations of validation prompts
FILE, NAME = "table-ablation.json", "table_ablation"
REAL = "real tables"
HEADS = {"guess on": "told what plain methods say", "guess off": "not told"}
AMOUNTS = {"full": (RECIPE.batch, POINTS, 2e-3), "small": (8, 128, 1e-3), "tiny": (8, 64, 2e-3)}  # tables, rows, rate
WHOLE = "the whole prior"
Prior = dict[str, Any]


def only(part: str, *kinds: str) -> Prior:
    """These kinds of a part alone, with their usual weights."""
    chosen = tuple(one for one in getattr(TableRegression(), part) if type(one).__name__ in kinds)
    return {part: chosen}


def without(part: str, *kinds: str) -> Prior:
    left = {type(one).__name__ for one in getattr(TableRegression(), part)} - set(kinds)
    return only(part, *left)


PRIORS: dict[str, Prior] = {
    WHOLE: {},
    "rows that are independent": only("rows", "IndependentRows"),
    "columns of plain numbers": only("columns", "NumberColumn"),
    "no columns made of others": {"derived_share": 0.0},
    "straight lines only": only("functions", "LinearFunction"),
    "no straight lines": without("functions", "LinearFunction", "AccountFunction"),
    "no trees": without("functions", "TreeFunction"),
    "no networks and processes": without("functions", "NetworkFunction", "ProcessFunction"),
    "normal noise only": only("noises", "NormalNoise"),
    "plain labels only": only("labels", "PlainLabel"),
    "no missing cells": {"missing": Missing(tables=0.0)},
}


def experiment(prior: str, seed: int, given: argparse.Namespace) -> Experiment:
    batch, points, lr = AMOUNTS[given.size]
    rule = replace(RECIPE.optimiser, lr=lr, warmup=8 if given.size == "tiny" else 100)
    how = replace(RECIPE, optimiser=rule, compile=given.compile == "on", batch=batch, steps=given.steps)
    how = replace(how, precision="bf16" if given.device.startswith("cuda") else "fp32")
    task = TableRegression(d=20, **PRIORS[prior])
    shape = TableConfig(**SIZES[given.size], guess=given.guess == "on")
    return Experiment(f"{prior}, {seed}", seed, points, task, shape, how)


def trained(prior: str, seed: int, given: argparse.Namespace, tables: Tables | None) -> dict[str, Any]:
    """One learner: how long it was trained, and its scores, prompt by prompt and table by table."""
    began = time.monotonic()
    result = train_within([experiment(prior, seed, given)], given.seconds, device=given.device)
    if result.asked:
        sys.exit("stopped by a signal; what was complete is kept")
    took, learner = time.monotonic() - began, result.learner.model(0)
    assert isinstance(learner, TableLearner)
    scores = {f"{k} rows": on_whole(learner, k, given.prompts, given.device) for k in given.ks}
    if tables is not None:
        scores[REAL] = tables.scores(learner, given.device).tolist()
    means = {name: round(float(np.mean(values)), 4) for name, values in scores.items()}
    print(f"{time.monotonic() - began:6.0f} s   {prior}, {seed}: {result.step:,} steps   {means}", flush=True)
    about = {"prior": prior, "seed": seed, "steps": result.step, "seconds": round(took, 1)}
    if given.guess == "on":
        about["plain"] = {f"{k} rows": plain(learner, k, given.prompts, given.device) for k in given.ks}
    return about | {"scores": {name: [round(value, 5) for value in values] for name, values in scores.items()}}


@torch.no_grad()
def on_whole(learner: TableLearner, k: int, number: int, device: str) -> list[float]:
    """R^2 on prompts of the whole prior with k demonstrations, one number each."""
    x, y = prompts(TableRegression(d=20), number, k + QUERIES, SEED, 32, device)
    parts = [learner.answer(a, b[:, :k]) for a, b in zip(x.split(32), y.split(32), strict=True)]
    means = [part.mean for part in parts if isinstance(part, NumberAnswer)]
    found: list[float] = each_r2(torch.cat(means), y[:, k:]).tolist()
    return found


@torch.no_grad()
def plain(learner: TableLearner, k: int, number: int, device: str) -> float:
    """The mean R^2 of what the learner is told, on the same prompts."""
    x, y = prompts(TableRegression(d=20), number, k + QUERIES, SEED, 32, device)
    return round(r2(guess_of(learner, x, y, k)[..., 0], y[:, k:]), 4)


def train(given: argparse.Namespace) -> None:
    choose_kernels(given)
    tables = None if given.tables is None else Tables(given.tables, "numbers")
    path = given.out / FILE
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["prior"], row["seed"]) for row in rows}
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        for prior in given.priors:
            if (prior, seed) not in done:
                rows.append(trained(prior, seed, given, tables))
                batch, points, lr = AMOUNTS[given.size]
                about = {"device": device_name(given.device), "size": given.size, "lr": lr, "batch": batch}
                command = shlex.join(["python", "benchmarks/table_ablation.py", *sys.argv[1:]])
                found = about | {"points": points, "guess": given.guess, "command": command, "rows": rows}
                path.write_text(json.dumps(found) + "\n", encoding="utf-8")


# -------------------------------------------------------------------------------------------------------------- summary


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each prior: mean scores, and what they lose against the whole prior, with 95 % intervals over prompts
    or tables. Both are means over the seeds that both priors have.
    """
    found = []
    for prior in PRIORS:
        mine = {row["seed"]: row for row in rows if row["prior"] == prior}
        whole = {row["seed"]: row for row in rows if row["prior"] == WHOLE and row["seed"] in mine}
        if not whole:
            continue
        row: dict[str, Any] = {"prior": prior, "seeds": sorted(whole), "steps": min(mine[n]["steps"] for n in whole)}
        if prior == WHOLE and "plain" in mine[min(whole)]:
            row["plain"] = mine[min(whole)]["plain"]
        for measure in mine[min(whole)]["scores"]:
            scores, others = (np.array([one[n]["scores"][measure] for n in sorted(whole)]) for one in (mine, whole))
            lost = (others - scores).mean(0)
            half = 1.96 * float(lost.std(ddof=1)) / math.sqrt(len(lost))
            seeds = [round(float(value), 4) for value in (others - scores).mean(1)]
            row[measure] = {"mean": round(float(scores.mean()), 4), "lost": round(float(lost.mean()), 4)}
            row[measure] |= {"half": round(half, 4), "by_seed": seeds, "number": len(lost)}
        found.append(row)
    return found


def keep(given: argparse.Namespace) -> None:
    """Learners with guesses, and without, apart from one another; all else must be the same. What these folders lack
    stays as it was stored.
    """
    parts = [json.loads((folder / FILE).read_text()) for folder in given.folders]
    about = {name: parts[0][name] for name in ("device", "size", "lr", "batch", "points")}
    stored = RESULTS / f"{NAME}.json"
    before = json.loads(stored.read_text()) if stored.exists() else about | {"commands": {}}
    if any(one[name] != value for one in (*parts, before) for name, value in about.items()):
        sys.exit("these folders, or what is stored, have learners of different sizes or machines: store one kind")
    new, commands = dict[str, list[dict[str, Any]]](), before["commands"]
    for kind in HEADS:
        chosen = [part for part in parts if f"guess {part['guess']}" == kind]
        found = {row["prior"]: row for row in before.get(kind, [])}
        found |= {row["prior"]: row for row in summary([row for part in chosen for row in part["rows"]])}
        new[kind] = [found[prior] for prior in PRIORS if prior in found]
        commands[kind] = list(dict.fromkeys([*commands.get(kind, []), *(part["command"] for part in chosen)]))
    store(NAME, " && ".join(one for each in commands.values() for one in each), about | {"commands": commands} | new)


def table() -> list[str]:
    """For docs/reference/table_prior.md: mean R^2 of the whole prior, and what others gain or lose."""
    data = read(NAME)
    kinds = [name for name in HEADS if data.get(name)]
    measures = [f"{KS[-1]} rows", REAL]
    lines = [f"| learned from | {' | '.join(f'{HEADS[kind]}: {one}' for kind in kinds for one in measures)} |"]
    lines.append("|---" * (1 + len(kinds) * len(measures)) + "|")
    told = [data[kind][0].get("plain", {}).get(one) for kind in kinds for one in measures]
    if any(told):
        cells = ["" if value is None else f"{value:.3f}" for value in told]
        lines.append(f"| *no learner: what plain methods say* | {' | '.join(cells)} |")
    for prior in PRIORS:
        rows = [next((row for row in data[kind] if row["prior"] == prior), None) for kind in kinds]
        cells = [_cell(row, one) for row in rows for one in measures]
        lines.append(f"| {' | '.join([prior, *cells])} |")
    seeds = ", ".join(f"{HEADS[kind]}: {len(data[kind][0]['seeds'])}" for kind in kinds)
    return [
        *lines,
        "",
        f"Seeds of training: {seeds}. In bold: more than the interval, over prompts or tables, and so in every seed.",
    ]


def _cell(row: dict[str, Any] | None, measure: str) -> str:
    if row is None:
        return ""
    one = row[measure]
    told = f"{-one['lost']:+.3f} ± {one['half']:.3f}"
    if row["prior"] == WHOLE:
        return f"{one['mean']:.3f}"
    agreed = all(each * one["lost"] > 0 for each in one["by_seed"])
    return f"**{told}**" if agreed and abs(one["lost"]) > one["half"] else told


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, two = map(commands.add_parser, ("train", "store"))
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--priors", nargs="+", choices=list(PRIORS), default=list(PRIORS))
    one.add_argument("--seconds", type=float, default=math.inf, help="of training each, with compiling, at most")
    one.add_argument("--steps", type=int, default=RECIPE.steps, help="at most")
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    one.add_argument("--tables", type=Path, help="what real_tables.py export writes")
    one.add_argument("--size", choices=list(SIZES), default="full")
    one.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    one.add_argument("--compile", choices=("on", "off"), default="on" if torch.cuda.is_available() else "off")
    one.add_argument("--kernels", choices=("on", "off"), default="on")
    one.add_argument("--guess", choices=("on", "off"), default="on", help="whether learners are told what ridge says")
    one.add_argument("--prompts", type=int, default=PROMPTS, help="of validation")
    one.add_argument("--ks", type=int, nargs="+", default=list(KS), help="demonstrations of validation prompts")
    two.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args(arguments)
    train(given) if given.command == "train" else keep(given)


if __name__ == "__main__":
    main()
