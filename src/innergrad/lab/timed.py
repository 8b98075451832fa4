"""Training that ends in time: as many steps as planned, or as many as fit.

The learning rate of a warm-up step does not depend on how many steps follow. So warm-up is timed, and the number of
steps is chosen at its end. The weights are those of a run that was configured with this number from the beginning.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from innergrad.errors import InputError, JobError, own_gradients
from innergrad.lab.experiments import Experiment
from innergrad.lab.journal import Progress
from innergrad.lab.learners.base import Learner
from innergrad.lab.measures import Measures, Watch
from innergrad.lab.room import check_training
from innergrad.lab.stack import Stack
from innergrad.lab.training import Result, begin, check_stack, next_multiple, report, signals

UNTIMED = 8  # the first of so many parts of warm-up is not timed: it compiles
MARGIN = 0.985  # of the time that is left is planned for
OVERTIME = 1.02  # training stops there, whatever was planned

Keep = Callable[[Learner, int], None]  # the stack, and its steps so far


def train_within(
    experiments: Sequence[Experiment],
    seconds: float,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    keep: Keep | None = None,
    measures: Measures | None = None,
    start: Learner | str | Path | None = None,
) -> Result:
    """Trains a stack for at most about ``seconds``, and never for more steps than planned.

    ``keep`` is called after each quarter of the steps but the last. ``measures``, ``start``: as in ``train``. The
    experiments of the result have the steps that were chosen. ``finished`` is False if even these could not be taken.
    """
    began = time.perf_counter()
    check_stack(experiments)
    if torch.device(device).type == "cpu":  # it looks at the memory of the host
        check_training(experiments)
    config = experiments[0].train
    warmup, n = config.optimiser.warmup, experiments[0].n_points
    if config.curriculum.first_points or not UNTIMED <= warmup < config.steps:
        allowed = f"a warm-up of {UNTIMED} steps or more, and more steps after it; prompts of one length"
        got = "a curriculum of points" if config.curriculum.first_points else f"{warmup} of {config.steps} steps"
        raise InputError("the steps of this run cannot be timed", got=got, allowed=allowed)
    with signals() as told, own_gradients():
        stack = Stack(experiments, device)
        if start is not None:
            begin(stack, start)
        watch = Watch(measures, config.steps)
        each = _warm_up(stack, watch, warmup, n, lambda: bool(told) or time.perf_counter() - began > OVERTIME * seconds)
        steps = _chosen(config.steps, warmup, began + seconds - time.perf_counter(), each)
        stack.plan(steps)
        watch.plan(steps)
        chosen = tuple(replace(one, train=replace(one.train, steps=steps)) for one in experiments)
        step, log, quarter = warmup, [report(stack, warmup, time.perf_counter() - began)], max(1, steps // 4)
        while step < steps and not told and time.perf_counter() - began < OVERTIME * seconds:
            end = min(steps, next_multiple(step, config.log_every), next_multiple(step, quarter))
            watch.run(stack, step, end, n)
            step = end
            log.append(row := report(stack, step, time.perf_counter() - began))
            if progress:
                progress(step, f"loss {min(filter(math.isfinite, row['loss']), default=math.nan):.4g}")
            if not any(map(math.isfinite, row["loss"])):
                raise JobError(f"the loss is not finite at step {step}; got {row['loss']}; lower the learning rate")
            if keep and step % quarter == 0 and step < steps:
                keep(stack.learner, step)
    return Result(stack.learner, chosen, step, step == steps, tuple(log), bool(told), tuple(watch.rows))


def _warm_up(stack: Stack, watch: Watch, warmup: int, n: int, over: Callable[[], bool]) -> float:
    """Takes the steps of warm-up; the seconds of one, less those that compile."""
    timed = time.perf_counter()
    for step in range(warmup):
        if over():
            got = f"{step} of {warmup} steps of warm-up"
            raise JobError(
                f"training was stopped, or its time was over, before it was warm; got {got}; give it more time"
            )
        if step == warmup // UNTIMED:
            _wait(stack)
            timed = time.perf_counter()
        watch.run(stack, step, step + 1, n)
    _wait(stack)
    return (time.perf_counter() - timed) / (warmup - warmup // UNTIMED)


def _chosen(planned: int, warmup: int, left: float, each: float) -> int:
    """As many steps of ``each`` seconds as fit after warm-up; at least one, at most ``planned``."""
    fit = math.floor(min(MARGIN * max(left, 0.0) / each, float(planned)))
    return max(warmup + 1, min(planned, warmup + fit))


def _wait(stack: Stack) -> None:
    """Until the device has taken its steps."""
    if stack.device.type == "cuda":
        torch.cuda.synchronize(stack.device)
