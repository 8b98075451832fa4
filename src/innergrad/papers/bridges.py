"""Section 4 of *Transformers Perform In-Context Learning through Neural Networks*: learners, and the networks that are
said to be their bridges.

    learners     one for each family of functions and seed, trained on prompts of 51 points
    networks     of 2, 3 and 4 layers and one width, trained on the same prompts; and on longer ones
    beside       the mean of the labels, ridge regression, and the strongest predictor that is known

Families: balls in 5, 10 and 20 dimensions; functions with 1 and 4 derivatives of 5 and 20 inputs. A function of 5
inputs is one of 20 here, of which 15 are zero: so learners have one shape, and train in stacks. Inputs are N(0, I).
A ball's centre is N(0, I / 4), so that a linear function does not tell inside from outside. The strongest predictor is
the posterior for smooth functions. For balls it is ridge regression on x and |x|^2: a ball is a half-space of these.

How near a learner is to another predictor is the mean squared difference of their predictions on the same prompts. A
learner that *is* training of a network would have distance zero to it. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from innergrad.lab.baselines import Mean, TrainedNetwork, TunedRidge
from innergrad.lab.evaluation import prompts
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Balls, Leading, SmoothFunctions, Task
from innergrad.papers.frame import Record, Records, Run, Stage, Study
from innergrad.papers.stacks import (
    DRAWN,
    EPOCHS,
    LEARNER,
    OTHER_SEED,
    PACE,
    SEED,
    SLACK,
    chunked,
    curves,
    noted,
    train_stack,
)

TO = "to "  # begins the name of a distance
MEAN, RIDGE, LIFTED, POSTERIOR = "mean", "ridge", "lifted ridge", "posterior"
Predict = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Sizes:
    """Of learners, networks and prompts."""

    steps: int = 8_000
    batch: int = 64
    lr: float = 1e-3
    precision: Literal["bf16", "fp32"] = "bf16"
    n_points: int = 51
    dims: tuple[int, ...] = (5, 10, 20)  # of balls
    smooth_dims: tuple[int, ...] = (5, 20)
    smoothness: tuple[int, ...] = (1, 4)
    waves: int = 256  # of a smooth function
    centre: float = 0.5  # of balls, in each coordinate
    seeds: tuple[int, ...] = (0, 1, 2)
    blocks: int = 8
    d_model: int = 256
    heads: int = 8
    d_mlp: int = 256
    prompts: int = 1600
    long_prompts: int = 800
    ks: tuple[int, ...] = (5, 10, 20, 30, 40, 50)  # where networks are trained on the learners' prompts
    long_ks: tuple[int, ...] = (100, 200, 400)  # and on longer ones
    layers: tuple[int, ...] = (2, 3, 4)
    width: int = 200
    epochs: int = 200
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)  # of networks; the best is taken
    kept: int = 0  # seeds whose weights are kept
    evaluation: float = 12.0  # seconds that training leaves for each family
    networks: float = 75.0  # and, if these come next, for networks on longer prompts

    @property
    def d(self) -> int:
        return max(*self.dims, *self.smooth_dims)


FULL = Sizes()
SMALL = replace(
    FULL,
    steps=3000,
    batch=32,
    lr=3e-3,
    precision="fp32",
    n_points=31,
    dims=(2, 4, 8),
    smooth_dims=(2, 8),
    waves=128,
    blocks=4,
    d_model=48,
    heads=4,
    d_mlp=96,
    prompts=800,
    long_prompts=400,
    ks=(5, 10, 20, 30),
    long_ks=(100, 400),
    width=100,
)
QUICK = replace(
    FULL,
    steps=500,
    batch=16,
    lr=5e-3,
    precision="fp32",
    n_points=13,
    dims=(1, 2, 4),
    smooth_dims=(1, 4),
    waves=64,
    seeds=(0,),
    blocks=2,
    d_model=32,
    heads=2,
    d_mlp=32,
    prompts=300,
    long_prompts=160,
    ks=(3, 6, 12),
    long_ks=(48,),
    layers=(2, 3),
    width=32,
    epochs=80,
    rates=(1e-2,),
    evaluation=1.2,
    networks=5.0,
)
TINY = replace(
    QUICK,
    steps=20,
    n_points=6,
    dims=(2, 3),
    smooth_dims=(2, 3),
    seeds=(0, 1),
    blocks=1,
    d_model=16,
    d_mlp=16,
    prompts=24,
    long_prompts=16,
    ks=(2, 5),
    long_ks=(8,),
    layers=(2, 3),
    width=6,
    epochs=3,
    rates=(3e-3,),
    evaluation=0.0,
    networks=0.0,
)


@dataclass(frozen=True)
class Functions:
    """A family: balls, or functions with ``smoothness`` derivatives, of so many ``inputs``."""

    kind: Literal["ball", "smooth"]
    inputs: int
    smoothness: int = 0

    @property
    def name(self) -> str:
        return f"ball-{self.inputs}" if self.kind == "ball" else f"smooth-{self.smoothness}-{self.inputs}"

    @property
    def words(self) -> str:
        several = "s" * (self.inputs > 1)
        smooth = f", {self.smoothness} derivative{'s' * (self.smoothness != 1)}"
        return f"{self.inputs} input{several}" + smooth * (self.kind == "smooth")

    def task(self, sizes: Sizes) -> Task:
        """All have d inputs, the last of which may be zero. Of smooth functions these do not count for the length."""
        shape: dict[str, Any] = {"d": sizes.d, "inputs": Leading(count=self.inputs)}
        if self.kind == "ball":
            return Balls(**shape, centre=sizes.centre)
        return SmoothFunctions(
            **shape, smoothness=self.smoothness, length=(self.inputs / sizes.d) ** 0.5, waves=sizes.waves
        )


def balls(sizes: Sizes) -> list[Functions]:
    return [Functions("ball", inputs) for inputs in sizes.dims]


def smooth(sizes: Sizes) -> list[Functions]:
    return [
        Functions("smooth", inputs, derivatives) for derivatives in sizes.smoothness for inputs in sizes.smooth_dims
    ]


FAMILIES: dict[str, Callable[[Sizes], list[Functions]]] = {"balls": balls, "smooth": smooth}  # stages with learners


# -------------------------------------------------------------------------------------------------------------- running


def experiments(sizes: Sizes, families: Sequence[Functions]) -> list[Experiment]:
    """One stack: a learner for every family and every seed."""
    rule = Optimiser("muon", lr=sizes.lr, schedule="cosine", warmup=max(8, sizes.steps // 50), clip=1.0)
    config = TrainConfig(sizes.steps, sizes.batch, rule, precision=sizes.precision, log_every=200)
    shape = GPTConfig(sizes.blocks, sizes.d_model, sizes.heads, sizes.d_mlp)
    return [
        Experiment(f"{one.name}-{seed}", seed, sizes.n_points, one.task(sizes), shape, config)
        for one in families
        for seed in sizes.seeds
    ]


def learners(stage: str, run: Run) -> bool:
    """Trains the learners of a stage, and measures them: their errors, and how near they are to every predictor beside
    them.
    """
    sizes: Sizes = run.sizes
    records, families = run.records(stage), FAMILIES[stage](sizes)
    if all(records.has(by=LEARNER, test=vars(one)) for one in families) and records.notes.get("complete"):
        return True
    seconds = _seconds(run, stage) - sizes.evaluation * len(families)
    if seconds <= 0:
        return False
    stack = experiments(sizes, families)
    began, longest, seeds = time.monotonic(), 0.0, len(sizes.seeds)
    rehearse(run, stack[0], families)
    learner, _ = train_stack(run, records, stack, seconds)
    records.clear()  # of a run that was cut off: all are measured on one training
    for place, one in enumerate(families):
        if run.clock.left < 1.2 * longest:
            noted(records, run, began, complete=False)
            return False
        start = time.monotonic()
        measure(run, records, one, [learner.model(place * seeds + number) for number in range(seeds)])
        longest = max(longest, time.monotonic() - start)
        run.say(f"{run.clock.spent:7.1f} s   measured: {one.name}")
    noted(records, run, began)
    return True


def _seconds(run: Run, stage: str) -> float:
    """Of what is left, beside networks that come later: a part by the number of families."""
    sizes: Sizes = run.sizes
    count = {name: len(FAMILIES[name](sizes)) for name in run.waiting or (stage,) if name in FAMILIES}
    later = sizes.networks if "networks" in run.waiting else 0.0
    return (run.clock.left - later) * count[stage] / sum(count.values())


def measure(run: Run, records: Records, one: Functions, models: Sequence[Learner]) -> None:
    """The learners of one family, one for each seed, and the predictors beside them, on the same prompts."""
    sizes: Sizes = run.sizes
    x, y = draw_prompts(run, one)
    scale, about = one.task(sizes).scale, {"test": vars(one), "prompts": len(x)}
    found = {name: chunked(predict, x, y) for name, predict in beside(one, sizes).items()}
    fits = trained(run, records, one, x, y, sizes.ks)
    others = found | fits
    for name, q in others.items():
        records.add({"by": name, **about, "curves": curves(q, y, scale, sizes.ks if name in fits else None)})
    for seed, model in zip(sizes.seeds, models, strict=True):
        p = chunked(model.predict, x, y)
        measured = {LEARNER: curves(p, y, scale)}
        measured |= {TO + name: distance(p, q, scale, sizes.ks) for name, q in others.items()}
        for name, each in measured.items():
            records.add({"by": name, "seed": seed, **about, "curves": each})


def rehearse(run: Run, one: Experiment, families: Sequence[Functions]) -> None:
    """Measures an untrained learner on a few prompts of every family: what fails should fail before training."""
    sizes: Sizes = run.sizes
    learner = one.learner.build(sizes.d, sizes.n_points).init([one.seed]).to(run.device)
    for family in families:
        x, y = prompts(family.task(sizes), 8, sizes.n_points, SEED, DRAWN, run.device)
        p = learner.predict(x, y)
        for predict in beside(family, sizes).values():
            distance(p, predict(x, y), 1.0, sizes.ks)


def draw_prompts(run: Run, one: Functions, *, long: bool = False, seed: int = SEED) -> tuple[Tensor, Tensor]:
    sizes: Sizes = run.sizes
    number, points = (sizes.long_prompts, 1 + max(sizes.long_ks)) if long else (sizes.prompts, sizes.n_points)
    return prompts(one.task(sizes), number, points, seed, DRAWN, run.device)


def beside(one: Functions, sizes: Sizes) -> dict[str, Predict]:
    """Predictors that are not trained, by their names. Ridge regression gets the inputs that are not zero."""
    ridge = TunedRidge()
    found: dict[str, Predict] = {MEAN: Mean(), RIDGE: lambda x, y: ridge(x[..., : one.inputs], y)}
    if one.kind == "ball":
        return found | {LIFTED: lambda x, y: ridge(lifted(x[..., : one.inputs]), y)}
    return found | {POSTERIOR: one.task(sizes).best()}


def lifted(x: Tensor) -> Tensor:
    """x and |x|^2, which varies as much as a coordinate: a ball is a half-space of these."""
    d = x.shape[-1]
    return torch.cat([x, (x.square().sum(-1, keepdim=True) - d) / (2 * d) ** 0.5], -1)


def network(layers: int, epoch: str) -> str:
    """The name of networks trained on the prompt: "networks of 3 layers, last epoch"."""
    return EPOCHS[epoch].replace("networks", f"networks of {layers} layers")


def trained(
    run: Run, records: Records, one: Functions, x: Tensor, y: Tensor, ks: tuple[int, ...], depths: Sequence[int] = ()
) -> dict[str, Tensor]:
    """Predictions of networks that were trained on the prompts, at the lengths ``ks``, by name."""
    found: dict[str, Tensor] = {}
    for layers in depths or run.sizes.layers:
        fits = fitted(run.sizes, one, layers, ks, rate(run, records, one, layers, ks)).fit(with_ones(one, x), y)
        found |= {network(layers, epoch): fits.at(epoch) for epoch in EPOCHS}
    return found


def fitted(sizes: Sizes, one: Functions, layers: int, ks: tuple[int, ...], lr: float) -> TrainedNetwork:
    shape: dict[str, Any] = {"layers": layers, "width": sizes.width, "epochs": sizes.epochs}
    return TrainedNetwork(**shape, lr=lr, ks=ks, y_scale=one.task(sizes).scale)


def with_ones(one: Functions, x: Tensor) -> Tensor:
    """The inputs that are not zero, and a one: networks have no biases of their own."""
    return torch.cat([x[..., : one.inputs], torch.ones_like(x[..., :1])], -1)


def rate(run: Run, records: Records, one: Functions, layers: int, ks: tuple[int, ...]) -> float:
    """The learning rate with the lowest error at the longest of ``ks``, best epoch, on other prompts."""
    known, key = records.notes.setdefault("rates", {}), f"{one.name}, {layers} layers, {max(ks)} examples"
    if key not in known:
        sizes: Sizes = run.sizes
        drawn = draw_prompts(run, one, long=ks == sizes.long_ks, seed=OTHER_SEED)
        x, y = (part[: max(8, len(part) // 4)] for part in drawn)
        k, errors = max(ks), {}
        for lr in sizes.rates if len(sizes.rates) > 1 else ():
            p = fitted(sizes, one, layers, (k,), lr).fit(with_ones(one, x), y).best[:, k]
            errors[lr] = float((p - y[:, k]).square().mean())
        known[key] = min(errors, key=lambda lr: errors[lr]) if errors else sizes.rates[0]
    return float(known[key])


def distance(p: Tensor, q: Tensor, scale: float, ks: Sequence[int]) -> Record:
    """Between two predictions, as curves: their "squared error" is the mean squared difference / scale^2."""
    return curves(p[:, list(ks)], q[:, list(ks)], scale) | {"k": list(ks)}


def networks(run: Run) -> bool:
    """Networks trained on longer prompts; as many as there is time for, the shallow ones first."""
    sizes: Sizes = run.sizes
    records, began, slowest = run.records("networks"), time.monotonic(), PACE
    for layers in sizes.layers:
        for one in (*smooth(sizes), *balls(sizes)):
            if records.has(by=network(layers, "last"), test=vars(one)):
                continue
            weights = sizes.width * (one.inputs + 2 + (layers - 2) * sizes.width)
            # PACE is that of 100 epochs on 40 examples
            work = sizes.long_prompts * weights * sizes.epochs / 100 * sum(sizes.long_ks) / 40
            if run.clock.left < 1.5 * work * slowest + SLACK:
                noted(records, run, began, complete=False)
                return False
            start = time.monotonic()
            x, y = draw_prompts(run, one, long=True)
            about = {"test": vars(one), "prompts": len(x)}
            for name, p in trained(run, records, one, x, y, sizes.long_ks, [layers]).items():
                found = curves(p, y, one.task(sizes).scale, sizes.long_ks)
                records.add({"by": name, **about, "curves": found})
            slowest = max(slowest, (time.monotonic() - start) / work)
        run.say(f"{run.clock.spent:7.1f} s   longer prompts: networks of {layers} layers")
    noted(records, run, began)
    return True


STAGES: dict[str, Stage] = {name: partial(learners, name) for name in FAMILIES}
BRIDGES = Study(
    "bridges", {"full": FULL, "small": SMALL, "quick": QUICK, "tiny": TINY}, {**STAGES, "networks": networks}
)
