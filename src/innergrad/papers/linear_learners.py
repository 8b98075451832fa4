"""Learners of linear functions, as in *What learning algorithm is in-context learning?* (Akyürek et al. 2023).

What its experiments have in common: sizes, stacks of learners, the prompts they are measured on, and curves over seeds.

    linear-algorithms    Fig. 1 and 4: a transformer of 16 blocks of 512, beside known algorithms; probes in its layers
    linear-noise         Fig. 2: noise and prior; which ridge regression matches
    linear-sizes         Fig. 3: depth and width; which algorithm matches
    linear-inits         Table 1: initial weights

The paper has d = 8 inputs, x and w ~ N(0, I), prompts of 40 pairs, and trains for 500,000 steps of Adam. Here it is
Muon, and as many steps as fit into the time. The paper does not give the width of the MLP: it is four times that of the
stream here, as in GPT-2. What is measured is what 16 bits hold. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from innergrad.lab.baselines import Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.differences import (
    implied_weight_difference,
    implied_weights,
    in_chunks,
    squared_prediction_difference,
)
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.metrics import Curve, student
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Linear
from innergrad.papers.frame import Record, Run, number
from innergrad.papers.stacks import noted, train_stack

PAPER = "What learning algorithm is in-context learning?"
SEED = 1  # of the prompts
LEAST = 1e-12  # smaller values count as this, where a logarithm is taken
COLUMNS = ("value", "low", "high")


@dataclass(frozen=True)
class Sizes:
    """Those of the paper but for the steps, or smaller ones. Every study has what it varies beside these."""

    steps: int = 30_000
    batch: int = 64
    lr: float = 1e-3
    precision: Literal["bf16", "fp32"] = "bf16"
    d: int = 8
    n_points: int = 41
    seeds: tuple[int, ...] = (0, 1, 2)
    blocks: int = 16
    d_model: int = 512
    heads: int = 4
    mlp: int = 4  # its width, over that of the stream
    init_std: float = 0.02
    prompts: int = 1600
    kept: int = 0  # weights are not kept
    evaluation: float = 20.0  # seconds of a stage that training leaves


#: What the quick versions have in common.
SMALL: dict[str, Any] = {
    "lr": 3e-3,
    "precision": "fp32",
    "n_points": 9,
    "seeds": (0,),
    "blocks": 3,
    "d_model": 32,
    "heads": 2,
    "mlp": 2,
    "init_std": 0.12,
}


def shape(sizes: Sizes, blocks: int | None = None, width: int | None = None) -> GPTConfig:
    """A GPT-2 of this depth and width. A head has 16 numbers or more."""
    D = width or sizes.d_model
    heads = max(1, min(sizes.heads, D // 16))
    return GPTConfig(blocks or sizes.blocks, D, heads, sizes.mlp * D, init_std=sizes.init_std)


def experiment(
    sizes: Sizes, name: str, seed: int, learner: GPTConfig | None = None, task: Linear | None = None
) -> Experiment:
    """One learner. All inputs are in use after an eighth of the steps."""
    every = max(1, sizes.steps // (8 * max(1, sizes.d - 5)))
    config = TrainConfig(
        steps=sizes.steps,
        batch=sizes.batch,
        precision=sizes.precision,
        optimiser=Optimiser("muon", lr=sizes.lr, schedule="cosine", warmup=max(8, sizes.steps // 50), clip=1.0),
        curriculum=Curriculum(first_dims=min(5, sizes.d), every=every),
        log_every=200,
    )
    return Experiment(name, seed, sizes.n_points, task or Linear(d=sizes.d), learner or shape(sizes), config)


# -------------------------------------------------------------------------------------------------------------- stages

Measure = Callable[[Run, Learner, Experiment], Iterable[tuple[Record, Callable[[], Record]]]]


def learners(run: Run, stage: str, stack: Sequence[Experiment], efforts: Mapping[str, float], measure: Measure) -> bool:
    """Trains a stack, and takes every measure of every learner; whether there was time for it. Nothing is trained again
    once all measures are there. Before that, those that are there are taken again: they are of other weights.

    ``measure`` yields, for a learner, the key of each record and a function that makes the rest of it. ``efforts``: the
    time that is left is shared in these parts with stages that are still to come. Before training, everything is
    measured once on an untrained learner and a few prompts: what fails should fail then.
    """
    records = run.records(stage)
    if not stack or records.notes.get("complete"):
        return True
    began, part = time.monotonic(), efforts[stage] / sum(efforts[name] for name in run.waiting or (stage,))
    seconds = part * run.clock.left
    if seconds <= run.sizes.evaluation:
        run.say(f"{stage}: {seconds:.0f} s are too few")
        return False
    _rehearse(run, stack[0], measure)
    learner, trained = train_stack(run, records, list(stack), seconds - run.sizes.evaluation)
    records.clear()
    for place, one in enumerate(trained):
        alone = learner.model(place)
        for key, make in measure(run, alone, one):
            records.add({**key, **make()})
        run.say(f"{run.clock.spent:7.1f} s   measured: {one.name}")
    noted(records, run, began)
    return True


def _rehearse(run: Run, one: Experiment, measure: Measure) -> None:
    study = replace(run.study, sizes={run.size: small(run.sizes)})
    learner = one.learner.build(one.task.d, one.n_points).init([one.seed]).to(run.device)
    for _, make in measure(replace(run, study=study), learner, one):
        make()


def small(sizes: Any) -> Any:
    """A rehearsal of a measure: few prompts, few steps of probes."""
    few = {"prompts": 16, "weight_prompts": 4, "probe_steps": 2, "probe_batch": 16, "probe_prompts": 16}
    return replace(sizes, **{name: value for name, value in few.items() if hasattr(sizes, name)})


# ------------------------------------------------------------------------------------------------------------ measures


@dataclass(frozen=True)
class Bench:
    """Prompts of a task, and what references say about them; each is computed once."""

    task: Linear
    references: tuple[Predictor, ...]
    prompts: int
    n_points: int
    weight_prompts: int
    ks: tuple[int, ...]
    device: str

    @cached_property
    def drawn(self) -> tuple[Tensor, Tensor, Tensor]:
        """x (B, n, d), y (B, n), and test inputs for implied weights (b, 2 d, d)."""
        rng, index = CounterRNG.of(SEED, "evaluate", self.device), torch.arange(self.prompts, device=self.device)
        x, y, _ = self.task.sample(rng, index, self.n_points)
        few, d = index[: self.weight_prompts], self.task.d
        return x, y, self.task.inputs.sample(rng.fork("tests"), few, 2 * d, d)

    @cached_property
    def predictions(self) -> dict[str, Tensor]:
        x, y, _ = self.drawn
        return {one.name: in_chunks(one, x, y) for one in self.references}

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        return {one.name: self.implied(one) for one in self.references}

    def implied(self, predict: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        x, y, tests = self.drawn
        few = len(tests)
        return implied_weights(predict, x[:few], y[:few], tests, self.ks)

    def spd(self, predict: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Record]:
        """SPD / d to every reference, length by length."""
        x, y, _ = self.drawn
        p = in_chunks(predict, x, y)
        return {name: curve(squared_prediction_difference(p, q, self.task.d)) for name, q in self.predictions.items()}

    def ilw(self, predict: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Record]:
        """ILW / d to every reference, at the lengths ``ks``."""
        own = self.implied(predict)
        return {name: curve(implied_weight_difference(own, w, self.ks)) for name, w in self.weights.items()}


def curve(found: Curve) -> Record:
    """Six digits, for JSON."""
    columns = {"value": found.value, "low": found.low, "high": found.high}
    return {"k": found.k.tolist(), **{name: [number(v) for v in column.tolist()] for name, column in columns.items()}}


# ---------------------------------------------------------------------------------------------------------- over seeds


def together(curves: Sequence[Record]) -> Record:
    """Several curves of one measure as their geometric mean with a 95 % interval over seeds; one curve keeps its own,
    over prompts.
    """
    if len(curves) == 1:
        return {**curves[0], "interval": "prompts"}
    found: Record = {"k": curves[0]["k"], "value": [], "low": [], "high": [], "interval": "seeds"}
    for column in zip(*(one["value"] for one in curves), strict=True):
        for name, value in zip(COLUMNS, geometric(column), strict=True):
            found[name].append(number(value))
    return found


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and its 95 % interval by Student's t; of one value, the value alone."""
    n, mean = len(values), sum(values) / len(values)
    if n == 1:
        return mean, mean, mean
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    half = student(n - 1) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def geometric(values: Sequence[float]) -> tuple[float, float, float]:
    """The same for the geometric mean: differences between algorithms span orders of magnitude."""
    value, low, high = (math.exp(one) for one in mean_interval([math.log(max(value, LEAST)) for value in values]))
    return value, low, high


def span(value: float, low: float | None, high: float | None) -> str:
    """0.0020 (0.0018 to 0.0022): a value and its interval, if it has one."""
    return f"{value:.2g}" + (
        f" ({low:.2g} to {high:.2g})" if low is not None and high is not None and low < high else ""
    )


def at(row: Record, k: int) -> float:
    return float(row["value"][row["k"].index(k)])


def stage_names(seeds: int) -> list[str]:
    """A stage a seed."""
    return [f"seed-{place + 1}" for place in range(seeds)]
