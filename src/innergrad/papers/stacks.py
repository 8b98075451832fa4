"""What studies of trained learners share: a stack that is trained within the time of a stage, and curves.

Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from innergrad.config import to_table
from innergrad.errors import JobError
from innergrad.lab.evaluation import measured
from innergrad.lab.experiments import Experiment
from innergrad.lab.learners.base import Learner
from innergrad.lab.timed import train_within
from innergrad.lab.weights import write_learner
from innergrad.papers.frame import Record, Records, Run, number

SEED, OTHER_SEED = 1, 2  # of the prompts; and of those that the learning rate of networks is chosen on
CHUNK, DRAWN = 1024, 256  # prompts that are predicted, and drawn, at a time
LINES = 200  # of a stored log
PACE = 2.2e-9  # seconds a fit and a weight, on an H200: 480,000 fits of 44,200 weights, 100 epochs, took 46
SLACK = 3.0  # seconds that are left unused
LEARNER = "learner"
EPOCHS = {"last": "networks, last epoch", "pooled": "networks, best epoch (oracle)"}


def train_stack(
    run: Run, records: Records, stack: list[Experiment], seconds: float
) -> tuple[Learner, list[Experiment]]:
    """The trained stack, in 16 bits, and its experiments with the steps that were taken."""
    sizes = run.sizes
    began, said = time.monotonic(), -10.0

    def progress(step: int, words: str = "") -> None:
        nonlocal said
        if time.monotonic() - said >= 10.0:
            said = time.monotonic()
            run.say(f"{run.clock.spent:7.1f} s   step {step:,}   least {words}")

    def keep(learner: Learner, step: int) -> None:
        save(run, learner, stack, step, min(1, sizes.kept))

    if run.steps is not None:
        stack = [replace(one, train=replace(one.train, steps=min(run.steps, one.train.steps))) for one in stack]
    result = train_within(stack, max(seconds, 1.0), device=run.device, progress=progress, keep=keep)
    took, log = time.monotonic() - began, result.log
    rate = (log[-1]["step"] - log[0]["step"]) * len(stack) / max(log[-1]["seconds"] - log[0]["seconds"], 1e-9)
    about: Record = {"planned": sizes.steps, "chosen": result.experiments[0].train.steps, "steps": result.step}
    about |= {"seconds": round(took, 1), "warm_up_seconds": log[0]["seconds"], "model_steps_a_second": round(rate, 1)}
    every = -(-len(log) // LINES)
    thin = [{name: row[name] for name in ("step", "loss", "seconds")} for row in log[::-1][::every][::-1]]
    names = [one.name for one in stack]
    config = to_table(result.experiments[0])
    records.note(training=about | {"models": names, "experiment": config, "log": thin}, device=device_name(run.device))
    run.say(f"{run.clock.spent:7.1f} s   trained: {about}")
    if result.asked:
        raise JobError("stopped by a signal; the log of training is kept")
    with torch.no_grad():
        for parameter in result.learner.parameters():
            parameter.copy_(parameter.half())
            if not parameter.isfinite().all():
                raise JobError("weights that 16 bits do not hold")
    save(run, result.learner, list(result.experiments), result.step, sizes.kept)
    return result.learner, list(result.experiments)


def save(run: Run, learner: Learner, stack: Sequence[Experiment], step: int, seeds: int) -> None:
    """The weights of the first ``seeds`` seeds of each depth in 16 bits: a checkpoint each, which ``load_learner``
    takes.
    """
    for place, one in enumerate(stack):
        if one.seed in run.sizes.seeds[:seeds]:
            write_learner(run.out / one.name, learner, one, step, model=place)


def noted(records: Records, run: Run, began: float, *, complete: bool = True) -> None:
    """What a stage took, until it is complete: parts on one device are added up, those on others are ``earlier``.

    A stage that ends before it has a record leaves no file.
    """
    notes, device, seconds = records.notes, device_name(run.device), time.monotonic() - began
    if notes.get("complete") or not (complete or records.rows):
        return
    if "seconds" in notes and notes["device"] == device:
        seconds += notes["seconds"]
    elif "seconds" in notes:
        part = {"seconds": notes["seconds"], "device": notes["device"]}
        records.note(earlier=[*notes.get("earlier", []), part])
    records.note(seconds=round(seconds, 1), device=device, complete=complete)


def device_name(device: str) -> str:
    """The GPU's name, or "CPU"."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


# ------------------------------------------------------------------------------------------------------------ measures


def chunked(predict: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Predictions in chunks of prompts. Every predictor here treats a prompt by itself."""
    return torch.cat([predict(*part) for part in zip(x.split(CHUNK), y.split(CHUNK), strict=True)])


def curves(p: Tensor, y: Tensor, scale: float, ks: Sequence[int] | None = None) -> Record:
    """Every measure at the lengths ``ks`` (all by default), with intervals over prompts; six digits."""
    chosen = list(range(y.shape[1]) if ks is None else ks)
    there = torch.zeros_like(y)  # other lengths may have no predictions
    there[:, chosen] = p[:, chosen]
    found: Record = {"k": chosen}
    for measure, curve in measured(there, y, scale).items():
        columns = {"value": curve.value, "low": curve.low, "high": curve.high}
        found[measure] = {
            name: [number(value) for value in column[chosen].tolist()] for name, column in columns.items()
        }
        if curve.undefined:
            found[measure]["undefined"] = curve.undefined
    return found
