"""The learners of tables in the zoo: weights and cards, and their table. ``tables_learner.py pack`` writes them."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import tables_learner_scores as scores
from innergrad import zoo
from innergrad.config import to_table
from innergrad.files import digest
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.table import MOST_CLASSES, TableLearner
from innergrad.lab.training import load_learner
from innergrad.lab.weights import write_learner

NAMES = {"numbers": "tables-regression", "classes": "tables-classification"}
MOST = 15 * 10**6  # bytes of both learners
LOST = 0.003  # of R^2 or accuracy: what 8 bits may cost
LIMITS = (
    "It has seen tables that were drawn at random, and no real one. Time series, text, images and drift are not there.",
    "Training has at most {columns} columns and {rows} rows. More are taken, without a promise.",
)


def pack(given: argparse.Namespace) -> None:
    """Weights and card into the zoo. What fewer bits cost is measured on the prior's prompts, and said."""
    learner, experiment = load_learner(given.weights, device=given.device)
    assert isinstance(learner, TableLearner)
    logs = [json.loads(path.read_text(encoding="utf-8")) for path in given.logs]
    log = logs[-1]
    name, before = NAMES[learner.config.labels], log["validation"]["rows"]
    path = given.out / f"{name}{zoo.WEIGHTS}"
    with tempfile.TemporaryDirectory() as folder:
        written = write_learner(folder, learner, replace(experiment, name=name), log["steps"], bits=given.bits)
        shutil.copyfile(written, path)
    words, more = f"{given.bits} bits.", dict[str, Any]()
    if given.bits == 8:
        small, _ = load_learner(path, device=given.device)
        log |= scores.measured(small, experiment.task, given)
        measure, said = ("learner", "R²") if learner.config.labels == "numbers" else ("learner accuracy", "accuracy")
        pairs = zip(before, log["validation"]["rows"], strict=True)
        lost = {str(int(a["k"])): round(a[measure] - b[measure], 5) for a, b in pairs}
        most, more = max(0.0, *lost.values()), {"lost_by_8_bits": lost}
        words = f"matrices of blocks in 8 bits, all else in 16; {said} falls by at most {most:.2g}."
        if most > LOST:
            sys.exit(f"8 bits cost too much: {words}")
    card = card_of(name, learner, experiment, logs)
    card["weights"] = {"words": words, "bits": given.bits, "bytes": path.stat().st_size, "sha256": digest(path)}
    card["weights"] |= more
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


def trained_words(log: dict[str, Any]) -> str:
    """How a log's training went."""
    one = log["experiment"]
    how, rule = one["train"], one["train"]["optimiser"]
    words = f"{log['steps']:,} steps, {how['batch']} tables of {one['n_points']} rows each, {rule['kind']} at "
    words += (
        f"{rule['lr']:g}, cosine to 0, {how['precision']}, seed {one['seed']}; {log['device']}, {log['seconds']:g} s."
    )
    return words


def card_of(name: str, learner: TableLearner, experiment: Experiment, logs: Sequence[dict[str, Any]]) -> zoo.Card:
    """The card but for the weights."""
    log = logs[-1]
    shape, config = learner.config, experiment.train
    parameters = sum(value.numel() for value in learner.parameters())
    numbers = shape.labels == "numbers"
    what = "numbers" if numbers else f"classes, at most {MOST_CLASSES}"
    words = (
        f"sets of rows, cells as tokens: {shape.n_cells} layers of width {shape.d_cell} on cells, {shape.n_rows} of "
    )
    words += f"width {shape.d_row} on rows; no positions; {parameters:,} parameters."
    trained = " Then ".join(map(trained_words, logs))
    if logs[0].get("start"):
        trained += " The first began with weights that were trained before, whose steps are not counted here."
    measure = "mean R² of the queries over tables, below -1 counted as -1" if numbers else "log-loss, accuracy, ROC AUC"
    rows = [
        {key: int(value) if key in ("k", "prompts") else float(f"{value:.4g}") for key, value in row.items()}
        for row in log["validation"]["rows"]
    ]
    numbers_words = (
        f"on tables of the prior that training did not see, k demonstrations, {scores.QUERIES} queries: {measure}."
    )
    table = to_table(experiment.task)
    prompts_seen = sum(one["steps"] * one["experiment"]["train"]["batch"] for one in logs)
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
            "steps": sum(one["steps"] for one in logs),
            "planned": sum(one["steps"] for one in logs),
            "seconds": sum(one["seconds"] for one in logs),
            "device": log["device"],
            "command": " && ".join(one["command"] for one in logs),
            "table": to_table(config),
        },
        "numbers": {"words": numbers_words, "seed": scores.SEED, "rows": rows},
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
