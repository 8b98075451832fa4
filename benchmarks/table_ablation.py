"""Which parts of the prior of tables matter? Learners trained alike on priors that lack one of them, and their scores.

    python benchmarks/table_ablation.py --seconds 60 --seeds 2 --tables out/tables/tables.npz --out FOLDER

Every learner is measured on the whole prior, and on small real tables if there are some (nothing is chosen by these).
FOLDER/table-ablation.json is kept after every learner, and the same command goes on with it. ``--priors`` takes some of
them. ``--size tiny --device cpu`` is a check of seconds. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _results import device_name
from innergrad.lab import TableRegression
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.table import TableConfig, TableLearner
from innergrad.lab.tasks.tables.prior import Missing
from innergrad.lab.timed import train_within
from tables_learner import POINTS, RECIPE, SIZES, choose_kernels
from tables_learner_scores import PROMPTS, Tables, on_prior

KS = (64, 250)  # demonstrations of validation prompts
FILE = "table-ablation.json"
Prior = dict[str, Any]


def only(part: str, *kinds: str) -> Prior:
    """These kinds of a part alone, with their usual weights."""
    chosen = tuple(one for one in getattr(TableRegression(), part) if type(one).__name__ in kinds)
    return {part: chosen}


def without(part: str, *kinds: str) -> Prior:
    left = {type(one).__name__ for one in getattr(TableRegression(), part)} - set(kinds)
    return only(part, *left)


PRIORS: dict[str, Prior] = {
    "the whole prior": {},
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
    tiny = given.size == "tiny"
    rule = replace(RECIPE.optimiser, warmup=8 if tiny else 100)
    how = replace(RECIPE, optimiser=rule, compile=given.compile == "on", batch=8 if tiny else RECIPE.batch)
    how = replace(how, precision="bf16" if given.device.startswith("cuda") else "fp32", steps=given.steps)
    task = TableRegression(d=20, **PRIORS[prior])
    return Experiment(f"{prior}, {seed}", seed, 64 if tiny else POINTS, task, TableConfig(**SIZES[given.size]), how)


def trained(prior: str, seed: int, given: argparse.Namespace, tables: Tables | None) -> dict[str, Any]:
    """One learner: how long it was trained, and its scores."""
    began = time.monotonic()
    result = train_within([experiment(prior, seed, given)], given.seconds, device=given.device)
    learner, whole = result.learner.model(0), TableRegression(d=20)
    assert isinstance(learner, TableLearner)
    number = given.prompts or PROMPTS
    scores = {str(k): round(on_prior(learner, whole, k, number, given.device)["learner"], 5) for k in given.ks}
    row = {"prior": prior, "seed": seed, "steps": result.step, "on_the_whole_prior": scores}
    if tables is not None:
        row["on_real_tables"] = round(float(np.mean(tables.scores(learner, given.device))), 5)
    print(f"{time.monotonic() - began:6.0f} s   {row}", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--priors", nargs="+", choices=list(PRIORS), default=list(PRIORS))
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, with compiling, for each learner")
    parser.add_argument("--steps", type=int, default=RECIPE.steps, help="at most")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tables", type=Path, help="what real_tables.py export writes")
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", choices=("on", "off"), default="on")
    parser.add_argument("--kernels", choices=("on", "off"), default="on")
    parser.add_argument("--prompts", type=int, default=0, help="of validation; 0: the usual number")
    parser.add_argument("--ks", type=int, nargs="+", default=list(KS), help="demonstrations of validation prompts")
    given = parser.parse_args(arguments)
    choose_kernels(given)
    tables = None if given.tables is None else Tables(given.tables, "numbers")
    path = given.out / FILE
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["prior"], row["seed"]) for row in rows}
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(given.seeds):
        for prior in given.priors:
            if (prior, seed) not in done:
                rows.append(trained(prior, seed, given, tables))
                about = {"device": device_name(given.device), "rows": rows}
                path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
