"""What a trained stack has learned, against the right references; every number of docs/lab.md that a GPU made.

    train CONFIG       trains the experiments of configs/three_tasks.toml, say, as one stack, in out/runs/three_tasks
    evaluate NAME      each model of that run on its own task, 20,000 prompts: results/lab_three_tasks.json
    full [--run NAME]  Deep Optimizers' evaluation, a network for every prompt and length: results/lab_full.json
    draw [NAME]        docs/lab.png, from these results

Beside the models: the mean of the labels seen, ridge regression (lambda by leave-one-out), the task's own reference
(least squares; the posterior of infinitely wide networks), and for deeper networks, networks trained on each prompt.
``--out FOLDER`` writes results there too. Needs torch, numpy and safetensors only; ``draw`` needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import lab_figure
from _results import RESULTS, device_name, read, store, wait
from innergrad.config import to_table
from innergrad.errors import InputError, JobError
from innergrad.lab.baselines import Mean, Predictor, TrainedNetwork, TunedRidge
from innergrad.lab.checkpoints import newest
from innergrad.lab.evaluation import MODEL, measured, prompts
from innergrad.lab.experiments import Experiment
from innergrad.lab.journal import CONFIG, LOG, MANIFEST, Progress, read_log
from innergrad.lab.sweeps import read_experiments
from innergrad.lab.tasks import GaussianMixture, Networks, Task
from innergrad.lab.training import load_learner
from innergrad.lab.training import train as run_training

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "out" / "runs"
KS = (10, 20, 30, 40, 50)  # where networks are trained on the prompts
RATES = (1e-3, 3e-3, 1e-2)  # of these networks: the model is compared with the best
CHUNK = 2048  # prompts at a time
DRAWN = 256  # prompts drawn at a time: their networks have 44,200 weights each
SEED = 1  # of the prompts: not those of the trials that chose the learning rate
LINES = 400  # of a stored log
STOP_BEFORE = 30.0  # seconds: for the step under way, the checkpoint and the copies
TASK_001 = Networks(d=20, layers=3, width=200, scaling="he", inputs=GaussianMixture(w1=1.0, mean=2.0))

Stored = dict[str, Any]


# --------------------------------------------------------------------------------------------------------------- train


def train(
    config: Path,
    name: str,
    *,
    runs: Path = RUNS,
    results: Path = RESULTS,
    device: str = "cpu",
    resume: bool = False,
    steps: int | None = None,
    minutes: float = math.inf,
    out: Path | None = None,
) -> bool:
    """Trains the experiments of a file as one stack in ``runs``/name; whether it came to the end.

    Shortly before ``minutes`` are over it stops with a checkpoint. The log (thinned), the manifest and the
    configuration are copied to ``results``/lab_name, and to ``out``/lab_name.
    """
    experiments = read_experiments(config, [] if steps is None else [f"train.steps={steps}"])
    run = runs / name
    going_on = resume and newest(run) is not None
    watch = watched(experiments, minutes)
    result = run_training(experiments, run, device=device, resume=going_on, progress=watch)
    for folder in (results, out):
        if folder is not None:
            copy_journal(run, folder / f"lab_{name}")
    return result.finished


def watched(experiments: Sequence[Experiment], minutes: float, every: float = 10.0) -> Progress:
    """Prints a line now and then; when the time is nearly over, sends the signal at which training stops cleanly."""
    began, steps, said = time.monotonic(), experiments[0].train.steps, -math.inf

    def report(step: int, words: str = "") -> None:
        nonlocal said
        now = time.monotonic() - began
        if now - said >= every or step == steps:
            said = now
            print(f"{now:7.1f} s   step {step:,} of {steps:,}   least {words}", flush=True)
        if now > 60 * minutes - STOP_BEFORE and step < steps:
            signal.raise_signal(signal.SIGTERM)

    return report


def copy_journal(run: Path, folder: Path) -> None:
    """What a reader needs of a run's folder: settings, and the log, thinned to LINES lines, the last among them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (MANIFEST, CONFIG):
        (folder / name).write_text((run / name).read_text())
    rows = read_log(run)
    every = -(-len(rows) // LINES) or 1
    kept = rows[::-1][::every][::-1]
    (folder / LOG).write_text("".join(json.dumps(row) + "\n" for row in kept))


def training(run: Path, device: str) -> Stored:
    """Steps and seconds of a run, the compile time included; a resumed run's clock begins anew."""
    log = read_log(run)
    ends = [a for a, b in pairwise(log) if b["seconds"] < a["seconds"]] + log[-1:]
    about = json.loads((run / MANIFEST).read_text())
    gpus = [gpu["name"] for gpu in about["hardware"]["gpus"]]
    hardware = gpus[0] if gpus and device.startswith("cuda") else about["hardware"]["cpu"]
    return {"steps": log[-1]["step"], "seconds": round(sum(row["seconds"] for row in ends), 1), "device": hardware}


# ------------------------------------------------------------------------------------------------------------ evaluate


def evaluate(
    run: Path,
    *,
    device: str = "cpu",
    n_prompts: int = 20_000,
    n_fits: int = 6400,
    network: Stored | None = None,
) -> dict[str, Stored]:
    """Every model of a run on its own task: name -> task, curves[predictor][measure], and ``fitted``.

    ``fitted``: for networks of three layers and more, curves at the lengths KS on the first ``n_fits`` of the same
    prompts, with networks trained on the prompt among the predictors (``network``: changes to their settings).
    """
    found = {}
    for number in range(len(read_experiments(run))):
        learner, one = load_learner(run, number, device)
        x, y = prompts(one.task, n_prompts, one.n_points, SEED, DRAWN, device)
        references = list(dict.fromkeys([Mean(), TunedRidge(), one.task.best()]))
        predictions = {MODEL: chunked(learner.predict, x, y)}
        predictions |= {predictor.name: chunked(predictor, x, y) for predictor in references}
        about: Stored = {"task": to_table(one.task), "scale": one.task.scale, "n_prompts": n_prompts, "seed": SEED}
        about |= {"reference": one.task.best().name, "curves": curves(predictions, y, one.task.scale)}
        if isinstance(one.task, Networks) and one.task.layers > 2:
            ks = tuple(k for k in KS if k < one.n_points)
            few = {name: p[:n_fits] for name, p in predictions.items()}
            few |= trained(one.task, x[:n_fits], y[:n_fits], ks, **(network or {}))
            about["fitted"] = {"n_prompts": len(x[:n_fits]), "curves": curves(few, y[:n_fits], one.task.scale, ks)}
        found[one.name] = about
        ends = {name: rows["squared error"][-1]["value"] for name, rows in about["curves"].items()}
        print(f"{one.name}: squared error at the longest prompt: {ends}", flush=True)
    return found


def chunked(predict: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Predictions in chunks of prompts. Every predictor here treats a prompt by itself."""
    return torch.cat([predict(*part) for part in zip(x.split(CHUNK), y.split(CHUNK), strict=True)])


def trained(
    task: Networks, x: Tensor, y: Tensor, ks: Sequence[int], rates: Sequence[float] = RATES, **settings: Any
) -> dict[str, Tensor]:
    """Networks of the task's depth trained on every prompt: the last epoch, and the best for all prompts together."""
    found: dict[str, Tensor] = {}
    for lr in rates:
        given = {"layers": task.layers, "y_scale": task.scale, **settings}
        fits = TrainedNetwork(**given, lr=lr, ks=tuple(ks)).fit(x, y)
        found |= {network_name(task.layers, lr, epoch): fits.at(epoch) for epoch in ("last", "pooled")}
    return found


def network_name(layers: int, lr: float, epoch: str) -> str:
    return TrainedNetwork(layers=layers, lr=lr, epoch=epoch).name


def curves(
    predictions: dict[str, Tensor], y: Tensor, scale: float, ks: Sequence[int] | None = None
) -> dict[str, dict[str, list[Stored]]]:
    """curves[predictor][measure]: rows k, value, low, high at the lengths ``ks`` (all by default), six digits each."""
    ks = range(y.shape[1]) if ks is None else ks
    found: dict[str, dict[str, list[Stored]]] = {}
    for name, p in predictions.items():
        there = torch.zeros_like(y)  # other lengths may have no predictions
        there[:, list(ks)] = p[:, list(ks)]
        found[name] = {
            measure: [rounded(row) for row in curve.rows() if row["k"] in ks]
            for measure, curve in measured(there, y, scale).items()
        }
    return found


def rounded(row: Stored) -> Stored:
    return {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}


def at(rows: Sequence[Stored], k: int) -> float:
    """The value of a stored curve at length k."""
    (value,) = (row["value"] for row in rows if row["k"] == k)
    return math.nan if value is None else float(value)


# -------------------------------------------------------------------------------------------------------------- claims


def claims(models: dict[str, Stored]) -> list[Stored]:
    """What is claimed of the models ``evaluate`` measured, recomputed from their curves."""
    made = []
    for about in models.values():
        kind, layers = about["task"]["kind"], about["task"].get("layers")
        mine = about["curves"][MODEL]
        if kind == "linear":
            for k, bound in ((20, 0.025), (40, 0.001)):
                error = at(mine["squared error"], k)
                made.append(claim(f"linear functions: error / d at k = {k}", error, "at most", bound))
        elif kind == "network" and layers == 2:
            for k in (20, 40, 50):
                best = at(about["curves"][about["reference"]]["squared error"], k)
                ratio = at(mine["squared error"], k) / best
                made.append(
                    claim(f"2-layer networks: error / that of the posterior at k = {k}", ratio, "at most", 1.05)
                )
        elif kind == "network" and layers == 3:
            fitted = about["fitted"]["curves"]
            pooled = [at(rows["pooled R^2"], 50) for name, rows in fitted.items() if name.endswith("pooled epoch")]
            r2 = at(fitted[MODEL]["pooled R^2"], 50)
            what = (
                "3-layer networks: pooled R^2 at k = 50; networks trained on the prompt, best rate and epoch, less .01"
            )
            made.append(claim(what, r2, "at least", max(pooled) - 0.01))
    return made


def claim(what: str, value: float, side: str, bound: float) -> Stored:
    holds = value <= bound if side == "at most" else value >= bound
    return {"claim": what, "value": float(f"{value:.6g}"), "bound": f"{side} {bound:.6g}", "holds": holds}


# ---------------------------------------------------------------------------------------------------------------- full


def full(
    run: Path | None,
    *,
    task: Task = TASK_001,
    device: str = "cpu",
    n_prompts: int = 6400,
    n_points: int = 76,
    network: Stored | None = None,
) -> Stored:
    """Deep Optimizers' evaluation: a network for every length of every prompt; seconds in all and of each part."""
    assert isinstance(task, Networks)
    trained_one = None if run is None else model_of(run, task, device)
    seconds: dict[str, float] = {}
    predictions: dict[str, Tensor] = {}
    wait(device)
    began = last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        wait(device)
        now = time.perf_counter()
        seconds[name], last = round(now - last, 2), now
        print(f"{seconds[name]:8.2f} s   {name}", flush=True)

    x, y = prompts(task, n_prompts, n_points, SEED, DRAWN, device)
    lap("prompts")
    references: list[Predictor] = [Mean(), TunedRidge(), task.best()]
    for predictor in references:
        predictions[predictor.name] = chunked(predictor, x, y)
        lap(predictor.name)
    settings = {"layers": task.layers, "y_scale": task.scale, **(network or {})}
    one = TrainedNetwork(**settings)
    fits = one.fit(x, y)
    predictions |= {
        network_name(task.layers, one.lr, epoch): fits.at(epoch) for epoch in ("last", "pooled", "per-prompt")
    }
    lap("trained networks")
    found = {}
    if trained_one is not None:
        learner, experiment = trained_one
        n = min(experiment.n_points, n_points)
        p = torch.cat((chunked(learner.predict, x[:, :n], y[:, :n]), torch.zeros_like(y[:, n:])), 1)
        lap(MODEL)
        found = curves({MODEL: p}, y, task.scale, range(n))
    found |= curves(predictions, y, task.scale)
    lap("measures and intervals")
    total = time.perf_counter() - began
    sizes = {"n_prompts": n_prompts, "n_points": n_points, "fits": n_prompts * (n_points - 1), "epochs": one.epochs}
    return {**sizes, "seconds": round(total, 2), "parts": seconds, "curves": found}


def there(name: str) -> Path:
    """The folder of a run."""
    if not (RUNS / name).is_dir():
        raise InputError(
            f"no run {name} in out/runs", hint=f"first: python benchmarks/lab.py train configs/{name}.toml"
        )
    return RUNS / name


def model_of(run: Path, task: Task, device: str) -> tuple[Any, Experiment]:
    """The model of a stack that was trained on this task."""
    for number, one in enumerate(read_experiments(run)):
        if one.task == task:
            return load_learner(run, number, device)
    raise InputError(f"no model of {run.name} was trained on this task", allowed=str(task))


# ---------------------------------------------------------------------------------------------------------------- main


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    trains, evaluates, fulls, draws = (commands.add_parser(name) for name in ("train", "evaluate", "full", "draw"))
    trains.add_argument("config", type=Path)
    trains.add_argument("--name", help="of the run; that of the file by default")
    trains.add_argument("--resume", action="store_true", help="go on from the newest checkpoint, if there is one")
    trains.add_argument("--steps", type=int, help="instead of those in the file")
    trains.add_argument("--minutes", type=float, default=math.inf, help="stop with a checkpoint before these are over")
    evaluates.add_argument("name")
    evaluates.add_argument("--prompts", type=int, default=20_000)
    evaluates.add_argument("--fits", type=int, default=6400, help="prompts that networks are trained on")
    fulls.add_argument("--run", help="name of a run; its model of 3-layer networks is measured too")
    fulls.add_argument("--prompts", type=int, default=6400)
    draws.add_argument("name", nargs="?", default="three_tasks")
    for command in (trains, evaluates, fulls):
        command.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
        command.add_argument("--out", type=Path, help="a folder to write results to as well")
    given, words, began = parser.parse_args(), " ".join(sys.argv[1:]), time.perf_counter()
    try:
        if given.what == "train":
            name = given.name or given.config.stem
            how = {key: getattr(given, key) for key in ("device", "resume", "steps", "minutes", "out")}
            if not train(given.config, name, **how):
                raise JobError(f"stopped before the end; python benchmarks/lab.py {words} --resume goes on")
        elif given.what == "evaluate":
            run = there(given.name)
            models = evaluate(run, device=given.device, n_prompts=given.prompts, n_fits=given.fits)
            made = claims(models)
            for one in made:
                print(one)
            about = {"device": device_name(given.device), "seconds": round(time.perf_counter() - began, 1)}
            content = {**about, "training": training(run, given.device), "claims": made, "models": models}
            store(f"lab_{given.name}", f"python benchmarks/lab.py evaluate {given.name}", content, given.out)
        elif given.what == "full":
            found = full(there(given.run) if given.run else None, device=given.device, n_prompts=given.prompts)
            line = "python benchmarks/lab.py full" + (f" --run {given.run}" if given.run else "")
            store("lab_full", line, {"device": device_name(given.device), **found}, given.out)
        else:
            lab_figure.draw(read(f"lab_{given.name}"), ROOT / "docs" / "lab.png")
    except (InputError, JobError) as error:
        sys.exit(f"benchmarks/lab.py: {error}")
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
