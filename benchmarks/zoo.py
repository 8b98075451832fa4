"""Learners for the zoo: weights and card of one, as src/innergrad/zoo has them.

    train NAME --seconds 560 --out FOLDER     trains it (GPU), measures it, and leaves NAME.safetensors and NAME.json
    take CHECKPOINT NAME --out FOLDER         the same for weights that are there
    check                                     the size of the zoo, and every digest

Weights are kept in 8 bits where that costs at most 5 % of the error at every length that the card shows, else in 16.
The card's numbers are those of the weights as they are kept. Copy both files to src/innergrad/zoo to ship them. Needs
torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from _results import device_name
from innergrad import zoo
from innergrad.config import to_table
from innergrad.files import digest
from innergrad.lab import checkpoints
from innergrad.lab.baselines import Mean
from innergrad.lab.evaluation import MEASURES, MODEL, Evaluation, evaluate
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import GaussianMixture, Linear, Networks
from innergrad.lab.timed import train_within
from innergrad.lab.training import load_learner
from innergrad.lab.weights import write_learner

KS = (10, 20, 30, 40, 50)  # lengths that a card shows
SEED = 1  # of the prompts
WORSE = 1.05  # 8 bits may cost so much of the squared error
MOST = 25 * 10**6  # bytes of the whole zoo
MEASURING = 60.0  # seconds that training leaves
COMPLETE = 0.999  # of the planned steps


@dataclass(frozen=True)
class Entry:
    """A learner of the zoo. ``claims``: its squared error is at most this, by length."""

    title: str
    about: str
    experiment: Experiment
    limits: tuple[str, ...]
    claims: Mapping[int, float] = field(default_factory=dict)


SHAPE = GPTConfig(n_layers=12, d_model=256, n_heads=8, d_mlp=256)
RECIPE = TrainConfig(
    steps=42_000,
    batch=64,
    precision="bf16",
    optimiser=Optimiser("muon", lr=1e-3, schedule="cosine", warmup=840, clip=1.0),
    curriculum=Curriculum(first_dims=5, every=350),
)
NETWORKS = Networks(d=20, layers=3, width=200, scaling="he", inputs=GaussianMixture(w1=1.0, mean=2.0))
ELSEWHERE = "Inputs of another distribution are not what it knows: measure it there first (innergrad evaluate --shift)."

ENTRIES = {
    "linear-20": Entry(
        "linear functions of 20 inputs (Garg et al. 2022); 12 blocks of softmax attention",
        "y = w·x with w ~ N(0, I) and x ~ N(0, I) in 20 dimensions, without noise.",
        Experiment("linear-20", 0, 51, Linear(d=20), SHAPE, RECIPE),
        (
            "Prompts have at most 51 points. Its positions end there.",
            "It is no exact solver. Where least squares is exact, it errs by 0.017 at 20 examples, by 1e-4 from 40 on.",
            ELSEWHERE,
        ),
        {20: 0.0207, 40: 0.00058},
    ),
    "networks-3-softmax": Entry(
        "random 3-layer ReLU networks of 20 inputs (Deep Optimizers); 12 blocks of softmax attention",
        "y = f(x), f a random ReLU network of 3 layers and width 200, x ~ N(-2, I) in 20 dimensions, without noise.",
        Experiment("networks-3-softmax-0", 0, 51, NETWORKS, replace(SHAPE, max_points=76), RECIPE),
        (
            "Prompts have at most 76 points. Training saw 51; what follows has positions that were never trained.",
            "Most of its pooled R² is the level of a prompt, which the mean knows, too. See within-prompt R².",
            "Networks of other depths, widths or parameters are other tasks.",
            ELSEWHERE,
        ),
    ),
}


def train(name: str, out: Path, seconds: float, device: str, prompts: int) -> None:
    """Trains an entry for at most about ``seconds``, and shelves it."""
    entry, began = ENTRIES[name], time.monotonic()

    def progress(step: int, words: str = "") -> None:
        if step % 2000 == 0:
            print(f"{time.monotonic() - began:7.1f} s   step {step:,}   {words}", flush=True)

    left = max(seconds - MEASURING, 1.0)
    result = train_within([entry.experiment], left, device=device, progress=progress)
    command = f"python benchmarks/zoo.py train {name} --out FOLDER --seconds {seconds:g}"
    took = {"seconds": round(time.monotonic() - began, 1), "device": device_name(device), "command": command}
    experiment = replace(result.experiments[0], name=name)
    shelve(name, result.learner, experiment, result.step, took, out, device, prompts)


def take(checkpoint: Path, name: str, took: Mapping[str, Any], out: Path, device: str, prompts: int) -> None:
    """Shelves weights that were trained elsewhere; they must be of the entry's task and shape."""
    learner, experiment = load_learner(checkpoint, device=device)
    wanted = ENTRIES[name].experiment
    if (experiment.task, experiment.learner) != (wanted.task, wanted.learner):
        sys.exit(f"{checkpoint} is another learner than {name}")
    step = checkpoints.load(checkpoint).step
    shelve(name, learner, replace(experiment, name=name), step, took, out, device, prompts)


def shelve(
    name: str,
    learner: Learner,
    experiment: Experiment,
    step: int,
    took: Mapping[str, Any],
    out: Path,
    device: str,
    prompts: int,
) -> None:
    """Rounds, measures, and writes weights and card; an error if a claim does not hold."""
    entry = ENTRIES[name]
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = {bits: write_learner(Path(folder) / str(bits), learner, experiment, step, bits=bits) for bits in (16, 8)}
        found = {bits: measured(path, device, prompts) for bits, path in made.items()}
        ratios = {k: error(found[8], k) / error(found[16], k) for k in KS}
        bits = 8 if max(ratios.values()) <= WORSE else 16
        shutil.copyfile(made[bits], out / f"{name}{zoo.WEIGHTS}")
    card = described(name, entry, experiment, step, took, found[bits])
    path = out / f"{name}{zoo.WEIGHTS}"
    rounding = {str(k): float(f"{ratio:.6g}") for k, ratio in ratios.items()}
    words = f"matrices of blocks in {bits} bits, all else in 16; 8 bits multiply the error by at most "
    words += f"{max(ratios.values()):.4f} (k = 10, 20, ..., 50; against 16)."
    card["weights"] = {"words": words, "bits": bits, "bytes": path.stat().st_size, "sha256": digest(path)}
    card["weights"]["error_8_over_16"] = rounding
    (out / f"{name}{zoo.CARD}").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for k, most in entry.claims.items():
        held = error(found[bits], k) <= most
        print(f"error at k = {k}: {error(found[bits], k):.3g}, at most {most}: {'holds' if held else 'FAILS'}")
    print(f"wrote {name}{zoo.WEIGHTS} ({path.stat().st_size:,} bytes, {bits} bits) and {name}{zoo.CARD}")
    if any(error(found[bits], k) > most for k, most in entry.claims.items()):
        sys.exit("a claim of the entry does not hold: do not ship it")


def measured(path: Path, device: str, prompts: int) -> Evaluation:
    """The learner in a file on its own task, beside the mean and the best predictor."""
    learner, experiment = load_learner(path, device=device)
    task = experiment.task
    how: dict[str, Any] = {"n_prompts": prompts, "n_points": experiment.n_points, "seed": SEED}
    return evaluate(learner.predict, task, baselines=[Mean(), task.best()], device=device, **how)


def error(found: Evaluation, k: int, by: str = MODEL) -> float:
    return found.curves[by][MEASURES[0]].at(k)[0]


def described(
    name: str, entry: Entry, experiment: Experiment, step: int, took: Mapping[str, Any], found: Evaluation
) -> zoo.Card:
    """The card but for the weights."""
    config, best = experiment.train, experiment.task.best().name
    learner = experiment.learner
    assert isinstance(learner, GPTConfig)
    parameters = sum(value.numel() for value in learner.build(experiment.task.d, experiment.n_points).parameters())
    shape = f"GPT-2 on vectors: {learner.n_layers} blocks, width {learner.d_model}, {learner.n_heads} heads, MLPs of "
    shape += (
        f"{learner.d_mlp}, {learner.attention} attention, {learner.positions} positions; {parameters:,} parameters."
    )
    planned = entry.experiment.train.steps
    cut = "" if step >= COMPLETE * planned else f" of {planned:,} that were planned"
    trained = f"{step:,} steps{cut}, {config.batch} prompts each, {config.optimiser.kind} at {config.optimiser.lr:g}, "
    trained += f"cosine to 0, {config.precision}, seed {experiment.seed}, dimensions curriculum; {took['device']}."
    rows = []
    for k in KS:
        value, low, high = found.curves[MODEL][MEASURES[0]].at(k)
        row = {"k": k, "learner": value, "low": low, "high": high, best: error(found, k, best)}
        row |= {"mean": error(found, k, "mean"), "pooled R²": found.curves[MODEL][MEASURES[1]].at(k)[0]}
        row["within-prompt R²"] = found.curves[MODEL][MEASURES[2]].at(k)[0]
        rows.append({key: value if isinstance(value, int) else float(f"{value:.6g}") for key, value in row.items()})
    words = f"squared error / mean square of a label, k examples, {found.n_prompts:,} prompts, seed {SEED}; low and "
    words += f"high: 95 % over prompts. {best} and the mean see the same prompts."
    data = f"{step * config.batch:,} prompts, each seen once, drawn by counters from the task. No data of anybody."
    return {
        "name": name,
        "title": entry.title,
        "task": {"words": entry.about, "table": to_table(experiment.task)},
        "data": {"words": data, "prompts": step * config.batch, "points": experiment.n_points},
        "learner": {"words": shape, "table": to_table(learner)},
        "training": {"words": trained, "steps": step, "planned": planned, **took, "table": to_table(config)},
        "numbers": {"words": words, "prompts": found.n_prompts, "seed": SEED, "rows": rows},
        "limits": list(entry.limits),
        "licence": "MIT",
    }


def table() -> list[str]:
    """Every learner of the zoo that reads vectors, from its card. Those of tables: ``tables_learner_zoo.table``."""
    lines = [
        "| name | learns | size | error at k | best predictor | 8 bits cost at most |",
        "|---|---|---|---|---|---|",
    ]
    for name in zoo.names():
        card = zoo.card(name)
        if card["learner"]["table"]["kind"] == "table":
            continue
        rows = {row["k"]: row for row in card["numbers"]["rows"]}
        ks = [20, 50] if 20 in rows else sorted(rows)[-2:]
        best = next(key for key in rows[ks[0]] if key not in ("k", "learner", "low", "high"))
        errors, others = (", ".join(f"{rows[k][by]:.3g}" for k in ks) for by in ("learner", best))
        errors += f" at {ks[0]}, {ks[1]}"
        lost = max(card["weights"]["error_8_over_16"].values()) - 1.0
        size = f"{card['weights']['bytes'] / 2**20:.1f} MiB, {card['weights']['bits']} bits"
        lines.append(f"| `{name}` | {card['title']} | {size} | {errors} | {best}: {others} | {max(lost, 0.0):.2%} |")
    return lines


def check() -> None:
    """The size of the zoo, and every digest."""
    total = 0
    for name in zoo.names():
        size = zoo.weights(name).stat().st_size
        total += size
        print(f"{name}: {size:,} bytes, digest right")
    print(f"{total:,} bytes of at most {MOST:,}")
    if total > MOST:
        sys.exit("the zoo is too large")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, other = commands.add_parser("train"), commands.add_parser("take")
    commands.add_parser("check")
    other.add_argument("checkpoint", type=Path)
    other.add_argument("--took", type=json.loads, default={"device": "unknown"}, help="JSON: seconds, device, command")
    for each in (one, other):
        each.add_argument("name", choices=list(ENTRIES))
        each.add_argument("--out", type=Path, required=True)
        each.add_argument("--prompts", type=int, default=6400)
        each.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    one.add_argument("--seconds", type=float, default=560.0)
    given = parser.parse_args()
    if given.command == "check":
        check()
    elif given.command == "train":
        train(given.name, given.out, given.seconds, given.device, given.prompts)
    else:
        take(given.checkpoint, given.name, given.took, given.out, given.device, given.prompts)


if __name__ == "__main__":
    main()
