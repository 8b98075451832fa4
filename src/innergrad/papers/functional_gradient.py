"""The learners of Cheng et al. (2024): attention by a kernel h, trained on labels of a Gaussian process with kernel K.

Everything is as in their App. H.1: d = 5, x = Sigma^(1/2) xi with xi uniform on the sphere, Sigma with eigenvalues
(1, 1, 0.25, 2.25, 1) and random axes, others for every seed; three seeds. Not in the paper: initial weights, learning
rate, number of steps. Here is what was chosen, and why:

- **Labels are averaged.** A learner is linear in the labels, so its expected loss over all labels of given points is a
  quadratic form (their Lemma A.1). It is trained on that form, and measured by it. Nothing is drawn but points.
- **Adam** with clipping, warm-up and a cosine schedule down to zero, at a rate of 0.1: less beyond three layers, and
  with a free A (half of it for linear and relu, 0.3 of it for exp). Every step has 3,000 new prompts: as many new
  ones a step as the paper's batches of 30,000, each used for ten steps. Where a model of a stack diverges, the stack is
  trained again at half the rate, for twice as many steps; records say how often that was.
- **Attention is divided by the number of examples** for linear, relu and exp. At one length this only changes the unit
  of A and r.
- **Scores of exp are capped** at 4, those of relu beyond three layers, too. Without a cap, exp with a free A overflows,
  and relu does with eight layers: see ``functional_depth``. Records say on which share of the test prompts the cap
  makes a difference at the end.

A stack has one shape of learner and all kernels and seeds of a study. What a stack leaves behind is a record a model.
Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from innergrad.errors import JobError
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig, distance
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import Covariance, GaussianProcesses, KernelTerm, Sphere
from innergrad.lab.timed import train_within
from innergrad.lab.training import Result
from innergrad.papers.frame import Record, Records, Run, Stage
from innergrad.papers.stacks import noted

PAPER = "Cheng et al. (2024)"
SEED = 1  # of the prompts that learners are measured on
CHUNK = 500  # prompts of a model that are measured at a time
RATES = {"linear": 0.5, "relu": 0.5, "exp": 0.3, "softmax": 1.0}  # with a free A, of the learning rate
CAP = 4.0  # of scores; see functional_depth
JITTER = 1e-10  # of a label's variance, where the covariance of labels is singular
SHARE = 0.99  # of the labels' variance: the directions that carry it count for a condition number
HALVINGS = 3  # of the learning rate, where training diverges
LINES = 40  # of a stored log

KERNELS: dict[str, tuple[KernelTerm, ...]] = {
    "linear": (KernelTerm("linear"),),
    "relu": (KernelTerm("relu"),),
    "exp": (KernelTerm("exp"),),
    "mixed": (
        KernelTerm("linear", 0.5, coordinates=(1.0, 1.0, 0.0, 0.0, 0.0)),
        KernelTerm("exp", 0.5, 2.0, coordinates=(0.0, 0.0, 1.0, 1.0, 1.0)),
    ),
}


@dataclass(frozen=True)
class Sizes:
    """Of one study. ``n``: examples in a prompt. ``prompts``: those that a learner is measured on."""

    steps: int
    batch: int
    n: tuple[int, ...]
    layers: tuple[int, ...]
    kernels: tuple[str, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    lr: float = 0.1
    beta: float = 0.98  # Adam's second
    clip: float = 1.0
    data_every: int = 1  # steps on the same points
    free_steps: int = 0  # with a free A, if they are others
    slow_from: int = 1000  # layers from which on all learners have half the rate and twice the steps
    prompts: int = 4000
    conditions: int = 200  # prompts whose condition numbers are looked at


@dataclass(frozen=True)
class Shape:
    """Of a learner: one activation a head. ``n``: examples in its prompts."""

    heads: tuple[str, ...]
    layers: int
    n: int
    free_A: bool = True

    @property
    def key(self) -> Record:
        return {"heads": "+".join(self.heads), "layers": self.layers, "n": self.n, "free_A": self.free_A}

    @property
    def cost(self) -> float:
        """Of a step, about: the entries of all patterns, and something for every operation."""
        return self.layers * len(self.heads) * (self.n * (self.n + 1) + 50)

    @property
    def caution(self) -> float:
        """A factor of the learning rate. With a free A, covariates can run away, all but those of softmax."""
        return min(1.0, 3 / self.layers) * (min(RATES[head] for head in self.heads) if self.free_A else 1.0)

    def learner(self) -> KernelLearnerConfig:
        """Entries of A, B and C are N(0, 0.3^2) at first, and r is -0.3."""
        cap = CAP if "exp" in self.heads or ("relu" in self.heads and self.layers > 3) else None
        return KernelLearnerConfig(self.layers, self.heads, self.free_A, "count", 0.3, -0.3, cap)


def task(kernel: str, seed: int) -> GaussianProcesses:
    """The labels of a kernel; the axes of Sigma are those of the seed."""
    return GaussianProcesses(inputs=Covariance(sigma_seed=seed), terms=KERNELS[kernel])


def experiments(sizes: Sizes, shape: Shape, halved: int = 0) -> list[Experiment]:
    """One stack: every kernel and every seed. ``halved``: how often the learning rate is, for twice as many steps."""
    steps, batch, every = steps_of(sizes, shape, halved), sizes.batch, sizes.data_every
    warmup, betas = max(8, steps // 50), (0.9, sizes.beta)
    lr = sizes.lr * shape.caution / 2**halved
    rule = Optimiser(lr=lr, schedule="cosine", warmup=warmup, clip=sizes.clip, betas=betas)
    settings: dict[str, Any] = {"steps": steps, "batch": batch, "data_every": every, "log_every": -(-steps // LINES)}
    # recorded, and not compiled: with so many shapes, that takes longer than training
    config = TrainConfig(**settings, optimiser=rule, labels="averaged", compile=False, record=True)
    return [
        Experiment(f"{kernel}-{seed}", seed, shape.n + 1, task(kernel, seed), shape.learner(), config)
        for kernel in sizes.kernels
        for seed in sizes.seeds
    ]


def steps_of(sizes: Sizes, shape: Shape, halved: int) -> int:
    planned = sizes.free_steps if shape.free_A and sizes.free_steps else sizes.steps
    return planned << halved


def stage(name: str, shapes: Callable[[Sizes], list[Shape]], *, conditions: bool = False) -> Stage:
    """Trains and measures a stack of every shape, as long as there is time. What was measured is not trained again."""

    def run_stage(run: Run) -> bool:
        sizes: Sizes = run.sizes
        records = run.records(name)
        lacking = [shape for shape in shapes(sizes) if not measured(records, sizes, shape)]
        lacking.sort(key=lambda shape: -shape.cost)  # small shapes cost more than their share: they get what is left
        for number, shape in enumerate(lacking):
            share = shape.cost / sum(one.cost for one in lacking[number:]) / max(1, len(run.waiting))
            seconds = share * run.clock.left
            if seconds <= 1.0:
                return False
            train_and_measure(run, records, shape, seconds, conditions)
        if lacking:
            records.note(complete=True)
        return True

    return run_stage


def keys(sizes: Sizes, shape: Shape) -> list[Record]:
    """What says which model a record is about, in the order of the stack."""
    return [{**shape.key, "kernel": kernel, "seed": seed} for kernel in sizes.kernels for seed in sizes.seeds]


def measured(records: Records, sizes: Sizes, shape: Shape) -> bool:
    return all(records.has(**key) for key in keys(sizes, shape))


def train_stack(run: Run, shape: Shape, seconds: float) -> tuple[list[Experiment], Result, int]:
    """Trains a stack. If a model diverges, all of it again at half the learning rate, for twice as many steps, HALVINGS
    times at most.
    """
    sigmas = torch.stack([_inputs(one).sigma() for one in experiments(run.sizes, shape)]).to(run.device)
    watched: dict[str, Callable[[Learner], Tensor]] = {}
    if len(shape.heads) == 1:
        watched["distances"] = lambda learner: distances(learner, sigmas)
    first = int(shape.layers >= run.sizes.slow_from)
    for halved in range(first, first + HALVINGS + 1):
        stack = experiments(run.sizes, shape, halved)
        result = train_within(stack, min(seconds, run.clock.left), device=run.device, measures=watched)
        if result.asked:
            raise JobError("stopped by a signal; the same command goes on with this stack")
        if all(map(math.isfinite, result.log[-1]["loss"])):
            break
        rate = stack[0].train.optimiser.lr
        run.say(f"{run.clock.spent:7.1f} s   {shape.key}: a loss is not finite at learning rate {rate:.3g}")
    return stack, result, halved


def train_and_measure(run: Run, records: Records, shape: Shape, seconds: float, conditions: bool) -> None:
    """One stack: a record a model."""
    sizes: Sizes = run.sizes
    began = time.monotonic()
    stack, result, halved = train_stack(run, shape, seconds)
    rows = [row for row in result.measures if row["step"] > 0]
    for number, (one, key) in enumerate(zip(stack, keys(sizes, shape), strict=True)):
        learner = result.learner.model(number)
        assert isinstance(learner, KernelLearner)
        found: Record = {**key, "steps": result.step, "halved": halved}
        found |= risks(learner, one, key["kernel"], sizes.prompts, run.device)
        found["loss"] = [_digits(row["loss"][number] * one.task.scale**2) for row in result.log]
        if rows:
            found["watched"] = [row["step"] for row in rows]
            found["distances"] = [[_digits(value) for value in row["distances"][number]] for row in rows]
        if conditions and shape.free_A:
            found["conditions"] = conditioning(learner, one, key["kernel"], sizes.conditions, run.device)
        if not records.has(**key):
            records.add(found)
    trained = {"steps": result.step, "planned": steps_of(sizes, shape, halved)}
    least = min(records.notes.get("training", trained), trained, key=lambda one: one["steps"] / one["planned"])
    records.note(training=least)
    noted(records, run, began, complete=False)
    run.say(f"{run.clock.spent:7.1f} s   {shape.key}: {result.step:,} steps, {time.monotonic() - began:.0f} s")


def _inputs(one: Experiment) -> Covariance:
    assert isinstance(one.task.inputs, Covariance)
    return one.task.inputs


def _digits(value: float | None) -> float | None:
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


# ------------------------------------------------------------------------------------------------------------ measures


def distances(learner: Learner, sigmas: Tensor) -> Tensor:
    """(S, L), or (S, 2 L - 1) with a free A: of B_l^T C_l for every layer, then of A_l for all but the last.

    The last layer's A moves covariates that nothing looks at.
    """
    assert isinstance(learner, KernelLearner)
    found = learner.distance_to_identity(sigmas)[:, :, 0]
    if learner.config.free_A:
        found = torch.cat((found, distance(learner.get_parameter("A").double())[:, :-1, 0]), 1)
    return found


@lru_cache(maxsize=8)
def prompts_of(kernel: str, n: int, number: int, device: str) -> tuple[Tensor, Tensor, float]:
    """xi (B, n + 1, d), the covariances of the labels, and the least expected squared error there is, float64.

    They are the same for all seeds: labels depend on xi alone.
    """
    white = GaussianProcesses(inputs=Sphere(), terms=KERNELS[kernel])
    index = torch.arange(number, device=device)
    xi = white.points(CounterRNG.of(SEED, "evaluate", device), index, n + 1, {}).double()
    K = torch.cat([white.covariance(part) for part in xi.split(CHUNK)])
    lifted = K + torch.diag_embed(JITTER * K.diagonal(dim1=-2, dim2=-1))
    last = torch.linalg.cholesky_ex(lifted).L[:, -1, -1]
    return xi, K, float(last.square().mean())


@torch.no_grad()
def risks(learner: KernelLearner, one: Experiment, kernel: str, number: int, device: str) -> Record:
    """The squared error of one model, its mean over all labels of the test prompts; and that of the Bayes estimator.

    ``capped``: the share of the prompts on which the cap of the scores makes any difference.
    """
    xi, K, bayes = prompts_of(kernel, one.n_points - 1, number, device)
    root = torch.tensor(_inputs(one).root, dtype=xi.dtype, device=xi.device)
    total = torch.zeros((), dtype=xi.dtype, device=xi.device)
    uncapped, changed = without_cap(learner), 0
    for part, covariance in zip(xi.split(CHUNK), K.split(CHUNK), strict=True):
        v = learner.label_weights((part @ root).float()[None])[0].to(covariance.dtype)
        total += (v * (covariance @ v[..., None])[..., 0]).sum()
        if uncapped is not None:
            changed += int((uncapped.label_weights((part @ root).float()[None])[0].to(v.dtype) != v).any(-1).sum())
    found: Record = {"risk": _digits(float(total) / number), "bayes": _digits(bayes), "prompts": number}
    return found if uncapped is None else found | {"capped": _digits(changed / number)}


def without_cap(learner: KernelLearner) -> KernelLearner | None:
    """The same weights without a cap; None if there is none."""
    if learner.config.cap is None:
        return None
    found = KernelLearner(replace(learner.config, cap=None), learner.d)
    found.load_state_dict(learner.state_dict())
    return found.to(learner.r.device)


@torch.no_grad()
def conditioning(learner: KernelLearner, one: Experiment, kernel: str, number: int, device: str) -> Record:
    """What A does to the condition number of the pattern of every layer, as a factor; its median over prompts.

    The pattern of layer l is taken at the covariates that A has moved, and again, with the same B_l and C_l, at the
    covariates of the prompt, all multiplied by one number, so that both have the same mean square: a change of size
    alone is nothing that B_l and C_l could not do. A condition number is sigma_1 / sigma_m of the examples' rows, with
    m the least number of eigenvalues of K that carry 99 % of the labels' variance, a median over prompts.
    """
    xi, K, _ = prompts_of(kernel, one.n_points - 1, number, device)
    n, root = one.n_points - 1, torch.tensor(_inputs(one).root, dtype=xi.dtype, device=xi.device)
    values = torch.linalg.eigvalsh(K[:, :n, :n]).abs().sort(-1, descending=True).values
    carried = values.cumsum(-1) / values.sum(-1, keepdim=True)
    m = int((carried < SHARE).sum(-1).median()) + 1
    w = {name: value.detach().double() for name, value in learner.named_parameters()}
    X0 = X = (xi @ root)[None]
    factors, before = [], []
    for layer in range(learner.config.n_layers):
        parameters = {name: value[:, layer] for name, value in w.items()}
        same = (X.square().mean() / X0.square().mean()).sqrt() * X0
        moved, still = (learner.attention(Z, Z[:, :, :-1], parameters) for Z in (X, same))
        kappas = [_condition(pattern[0, :, 0, :n], m) for pattern in (moved, still)]
        factors.append(_digits(float((kappas[0] / kappas[1]).median())))
        before.append(_digits(float(kappas[1].median())))
        X = X + learner.moves(moved @ X[:, :, None, :-1], parameters["A"])
    return {"m": m, "factors": factors, "unmoved": before}


def _condition(pattern: Tensor, m: int) -> Tensor:
    values: Tensor = torch.linalg.svdvals(pattern)
    return values[:, 0] / values[:, m - 1]
