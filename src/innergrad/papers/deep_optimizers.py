"""The learners of *Transformers are Deep Optimizers*, App. G: trained on random networks, measured under shifts.

Stacks of learners, three seeds for each depth of the networks, are trained on inputs N(-2, I) and weights N(0, 1), on
prompts of 51 points. Every learner is then measured on prompts of 76 points:

    mixtures      inputs w1 N(-2, I) + (1 - w1) N(2, I), w1 = 1, 0.9, 0.7, 0.5                    (Fig. 1 and 2)
    parameters    4 layers, weights N(m, 1), m = 0, -0.5, 0.5, labels raw and rescaled            (Fig. 3 and 4)
    shapes        learners of 4 layers on networks of other depths and widths                     (B.3)
    depths        one learner of mixed depths, on networks of each                                (B.3)

Rescaled labels: those of a prompt are divided by their root mean square, times that of training. Beside the learners
stand, on the same prompts, the mean of the labels seen, ridge regression, the posterior of infinitely wide networks
(NNGP), and networks of the same depth trained on the prompt.

The paper leaves open the width of the networks that make the labels (200 here, as that of its baselines) and the
learning rates. It trains for 500,000 steps of Adam; here it is 42,000 of Muon, or as many as fit into the time (and
12,000 where depth or positions vary). ReLU learners of 6-layer networks are a stack of their own, whose coordinates
come more slowly: with the curriculum of the others they do not begin to learn. What is measured is what is kept:
weights are rounded to 16 bits first. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from innergrad.lab.baselines import NNGP, Mean, TrainedNetwork, TunedRidge
from innergrad.lab.evaluation import prompts
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import GaussianMixture, Mixture, Networks, Task
from innergrad.papers.frame import Record, Records, Run, Study
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

MEAN = 2.0  # of the inputs: -2 or 2
MIXED = "mixed"


@dataclass(frozen=True)
class Sizes:
    """Those of the paper but for the steps, or smaller ones."""

    steps: int = 42_000
    batch: int = 64
    lr: float = 1e-3
    precision: Literal["bf16", "fp32"] = "bf16"
    n_points: int = 51
    asked: int = 76
    d: int = 20
    width: int = 200
    layers: tuple[int, ...] = (3, 4, 6)
    seeds: tuple[int, ...] = (0, 1, 2)
    blocks: int = 12
    d_model: int = 256
    heads: int = 8
    d_mlp: int = 256
    prompts: int = 6400  # in distribution
    shifted_prompts: int = 1600
    ks: tuple[int, ...] = (1, *range(5, 76, 5))  # where networks are trained on the prompt
    all_ks: bool = True  # at all other lengths, too, in distribution
    epochs: int = 100
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)  # of these networks; the best is taken
    w1: tuple[float, ...] = (1.0, 0.9, 0.7, 0.5)
    weight_means: tuple[float, ...] = (-0.5, 0.5)
    other_layers: tuple[int, ...] = (3, 6, 10)
    other_widths: tuple[int, ...] = (20, 50, 800)
    depths: tuple[int, ...] = (4, 6, 8, 10)  # blocks, where they are what is varied
    kept: int = 2  # seeds of each depth whose weights are kept
    evaluation: float = 50.0  # seconds that training leaves
    settled: float = 0.125  # of the steps: from there on all coordinates are in use

    @property
    def shifted_layers(self) -> int:
        """The depth of the networks whose learners are measured on other parameters and shapes."""
        return 4 if 4 in self.layers else self.layers[-1]


FULL = Sizes()
QUICK = replace(
    FULL,
    steps=800,
    batch=16,
    lr=3e-3,
    precision="fp32",
    n_points=17,
    asked=25,
    d=3,
    width=40,
    layers=(3, 4),
    seeds=(0, 1),
    blocks=3,
    d_model=32,
    heads=2,
    d_mlp=32,
    prompts=400,
    shifted_prompts=120,
    ks=(1, 4, 8, 12, 16, 24),
    all_ks=False,
    epochs=60,
    rates=(1e-2,),
    other_layers=(3, 6),
    other_widths=(10, 80),
    depths=(1, 2, 3, 4),
    evaluation=15.0,
)
TINY = replace(
    QUICK,
    steps=30,
    n_points=6,
    asked=9,
    width=8,
    layers=(3, 4),
    blocks=1,
    d_model=16,
    heads=2,
    d_mlp=16,
    prompts=40,
    shifted_prompts=20,
    ks=(2, 5, 8),
    all_ks=True,
    epochs=4,
    rates=(3e-3,),
    w1=(1.0, 0.5),
    weight_means=(0.5,),
    other_layers=(3,),
    other_widths=(4,),
    kept=1,
    evaluation=0.0,
)


@dataclass(frozen=True)
class Test:
    """What prompts are drawn from. ``labels``: raw, or rescaled prompt by prompt."""

    __test__ = False  # not one of pytest's

    layers: int
    width: int
    w1: float = 1.0
    weight_mean: float = 0.0
    labels: Literal["raw", "rescaled"] = "raw"

    def task(self, sizes: Sizes) -> Networks:
        """He's factors only change the unit of the labels: networks without biases are homogeneous in each layer."""
        inputs = GaussianMixture(w1=self.w1, mean=MEAN)
        shape: dict[str, Any] = {"d": sizes.d, "layers": self.layers, "width": self.width}
        return Networks(**shape, scaling="he", inputs=inputs, weight_mean=self.weight_mean)

    def draw(self, sizes: Sizes, device: str, seed: int = SEED) -> tuple[Tensor, Tensor]:
        """x (B, n, d) and y (B, n): many prompts of the distribution of training, fewer of others."""
        number = sizes.prompts if self in [trained(sizes, layers) for layers in sizes.layers] else sizes.shifted_prompts
        x, y = prompts(self.task(sizes), number, sizes.asked, seed, DRAWN, device)
        if self.labels == "rescaled":
            size = y.square().mean(1, keepdim=True).sqrt()
            y = torch.where(size > 0, y / size * trained(sizes, self.layers).task(sizes).scale, y)
        return x, y


def trained(sizes: Sizes, layers: int) -> Test:
    """The distribution of training."""
    return Test(layers, sizes.width)


def tests(sizes: Sizes, layers: int) -> list[Test]:
    """What learners of networks of so many layers are measured on, in the order of its value."""
    own = trained(sizes, layers)
    found = [replace(own, w1=w1) for w1 in sizes.w1]
    if layers == sizes.shifted_layers and sizes.weight_means:
        means = [replace(own, weight_mean=mean) for mean in sizes.weight_means]
        found += [replace(one, labels=labels) for one in means for labels in ("raw", "rescaled")]
        found += [replace(own, labels="rescaled")]
        found += [Test(other, sizes.width) for other in sizes.other_layers if other != layers]
        found += [Test(layers, width) for width in sizes.other_widths]
    return found


# ------------------------------------------------------------------------------------------------------------ learners


@dataclass(frozen=True)
class Variant:
    """A kind of learner: its name, and what is special about its shape. ``effort``: its share of the time.

    ``depth``: which of the sizes' ``depths`` it has, if it has not their ``blocks``.
    ``mixed``: one learner for networks of all depths together, instead of one for each.
    ``deep``: learners of the networks deeper than ``shifted_layers`` alone (True), or of all others alone (False).
    ``slow``: the share of the steps until all coordinates are in use, three more at a time, if not that of the sizes.
    """

    name: str
    attention: Literal["softmax", "relu"] = "softmax"
    positions: Literal["learned", "rotary", "none"] = "learned"
    depth: int | None = None
    mixed: bool = False
    deep: bool | None = None
    slow: float | None = None
    effort: float = 1.0

    def layers(self, sizes: Sizes) -> list[int]:
        """The depths of the networks that it learns."""
        return [each for each in sizes.layers if self.deep is None or self.deep == (each > sizes.shifted_layers)]

    def train(self, sizes: Sizes) -> TrainConfig:
        steps, (settled, leap) = sizes.steps, (sizes.settled, 1) if self.slow is None else (self.slow, 3)
        leaps = max(1, -(-(sizes.d - 5) // leap))
        return TrainConfig(
            steps=steps,
            batch=sizes.batch,
            precision=sizes.precision,
            optimiser=Optimiser("muon", lr=sizes.lr, schedule="cosine", warmup=max(8, steps // 50), clip=1.0),
            curriculum=Curriculum(
                first_dims=min(5, sizes.d), more_dims=leap, every=max(1, int(settled * steps) // leaps)
            ),
            log_every=200,
        )

    def shape(self, sizes: Sizes) -> GPTConfig:
        blocks = sizes.blocks if self.depth is None else sizes.depths[self.depth]
        usual = GPTConfig(blocks, sizes.d_model, sizes.heads, sizes.d_mlp, max_points=sizes.asked)
        return replace(usual, attention=self.attention, positions=self.positions)


def experiments(sizes: Sizes, variant: Variant) -> list[Experiment]:
    """One stack: a learner for every depth of the networks, or one for all of them, and every seed."""
    tasks: dict[str, Task] = {
        f"{layers}-{variant.name}": trained(sizes, layers).task(sizes) for layers in variant.layers(sizes)
    }
    if variant.mixed:
        tasks = {variant.name: Mixture(tuple(tasks.values()))}
    shape, config = variant.shape(sizes), variant.train(sizes)
    return [
        Experiment(f"networks-{name}-{seed}", seed, sizes.n_points, task, shape, config)
        for name, task in tasks.items()
        for seed in sizes.seeds
    ]


def learners(stage: str, stages: Mapping[str, Variant], run: Run) -> bool:
    """Trains the stack of a stage, keeps weights, measures every learner. What was measured is not trained again.

    The time that is left is shared with the stages of learners that are still to come.
    """
    sizes: Sizes = run.sizes
    variant, records = stages[stage], run.records(stage)
    stack = experiments(sizes, variant)
    wanted = {
        (number, test): _key(variant, one, test)
        for test in all_tests(sizes)
        for number, one in enumerate(stack)
        if test in own_tests(sizes, one)
    }
    if all(records.has(**key) for key in wanted.values()):  # as when there are none, at small sizes
        return True
    began = time.monotonic()
    share = variant.effort / sum(stages[name].effort for name in run.waiting or (stage,) if name in stages)
    seconds = share * run.clock.left
    if seconds <= sizes.evaluation:
        run.say(f"{stage}: {seconds:.0f} s are too few")
        return False
    rehearse(run, stack[0])
    learner, stack = train_stack(run, records, stack, seconds - sizes.evaluation)
    longest = 0.0
    for test in dict.fromkeys(test for _, test in wanted):
        if run.clock.left < 1.2 * longest:
            noted(records, run, began, complete=False)
            return False
        start = time.monotonic()
        x, y = test.draw(sizes, run.device)
        for number, key in ((number, key) for (number, other), key in wanted.items() if other == test):
            found = curves(chunked(learner.model(number).predict, x, y), y, stack[number].task.scale)
            records.add({**key, "prompts": len(x), "curves": found})
        longest = max(longest, time.monotonic() - start)
        run.say(f"{run.clock.spent:7.1f} s   measured: {test}")
    noted(records, run, began)
    return True


def rehearse(run: Run, one: Experiment) -> None:
    """Measures an untrained learner on a few prompts of every test: what fails should fail before training."""
    sizes: Sizes = run.sizes
    learner = one.learner.build(sizes.d, sizes.n_points).init([one.seed]).to(run.device)
    for test in all_tests(sizes):
        x, y = test.draw(replace(sizes, prompts=8, shifted_prompts=8), run.device)
        curves(learner.predict(x, y), y, one.task.scale)


def own_tests(sizes: Sizes, one: Experiment) -> list[Test]:
    """What a learner is measured on; one of mixed depths: on networks of every depth."""
    if isinstance(one.task, Networks):
        return tests(sizes, one.task.layers)
    return [Test(layers, sizes.width) for layers in sorted({*sizes.layers, *sizes.other_layers})]


def learned(one: Experiment) -> int | str:
    """The depth of the networks that a learner was trained on."""
    return one.task.layers if isinstance(one.task, Networks) else MIXED


def _key(variant: Variant, one: Experiment, test: Test) -> Record:
    return {"by": LEARNER, "variant": variant.name, "layers": learned(one), "seed": one.seed, "test": vars(test)}


# ----------------------------------------------------------------------------------------------------------- baselines


def references(run: Run) -> bool:
    """The mean, ridge regression and the posterior on every test; whether there was time for all."""
    sizes: Sizes = run.sizes
    records, began = run.records("references"), time.monotonic()
    longest = 0.0
    for test in all_tests(sizes):
        lacking = [one for one in cheap(test) if not records.has(by=one.name, test=vars(test))]
        if lacking and run.clock.left < 1.5 * longest + SLACK:
            noted(records, run, began, complete=False)
            return False
        start = time.monotonic()
        if lacking:
            x, y = test.draw(sizes, run.device)
            scale = trained(sizes, test.layers).task(sizes).scale
        for one in lacking:
            found = curves(chunked(one, x, y), y, scale)
            records.add({"by": one.name, "test": vars(test), "prompts": len(x), "curves": found})
        longest = max(longest, time.monotonic() - start)
    noted(records, run, began)
    return True


def cheap(test: Test) -> list[Mean | TunedRidge | NNGP]:
    return [Mean(), TunedRidge(), NNGP(test.layers, test.width, "he")]


def all_tests(sizes: Sizes) -> list[Test]:
    """Of all learners, each once: those in distribution first, then the mixtures."""
    found = list(dict.fromkeys(test for layers in sizes.layers for test in tests(sizes, layers)))
    own = [trained(sizes, layers) for layers in sizes.layers]
    mixed = [replace(one, w1=w1) for one in own for w1 in sizes.w1]
    return list(dict.fromkeys([*own, *mixed, *found]))


def fits(run: Run) -> bool:
    """Networks of each test's depth, trained on the prompt; as many tests as there is time for.

    First the lengths ``ks`` of every test, then all others of the distributions of training.
    """
    sizes: Sizes = run.sizes
    records, began, slowest = run.records("fits"), time.monotonic(), PACE
    for test, ks in _fits(sizes):
        if records.has(by=EPOCHS["last"], test=vars(test), ks=list(ks)):
            continue
        many = test in [trained(sizes, layers) for layers in sizes.layers]
        work = (sizes.prompts if many else sizes.shifted_prompts) * len(ks) * weights(sizes, test)
        if run.clock.left < 1.3 * work * slowest + SLACK:
            noted(records, run, began, complete=False)
            return False
        lr = rate(run, records, test)
        start = time.monotonic()
        x, y = test.draw(sizes, run.device)
        one = TrainedNetwork(layers=test.layers, width=sizes.width, epochs=sizes.epochs, ks=ks, y_scale=size(y), lr=lr)
        made, scale = one.fit(x, y), trained(sizes, test.layers).task(sizes).scale
        for epoch, name in EPOCHS.items():
            about = {"by": name, "test": vars(test), "ks": list(ks), "lr": lr, "prompts": len(x)}
            records.add({**about, "curves": curves(made.at(epoch), y, scale, ks)})
        slowest = max(slowest, (time.monotonic() - start) / work)
        run.say(f"{run.clock.spent:7.1f} s   networks of {test.layers} layers, {len(x):,} prompts, {len(ks)} lengths")
    noted(records, run, began)
    return True


def _fits(sizes: Sizes) -> Iterator[tuple[Test, tuple[int, ...]]]:
    """Tests and lengths, by their value. Those of other shapes get no networks: whose shape should they have?"""
    shapes = [Test(layers, sizes.width) for layers in sizes.other_layers]
    shapes += [Test(sizes.shifted_layers, width) for width in sizes.other_widths]
    own = [trained(sizes, layers) for layers in sizes.layers]
    for test in all_tests(sizes):
        if test in own or test not in shapes:
            yield test, sizes.ks
    rest = [k for k in range(1, sizes.asked) if k not in sizes.ks] if sizes.all_ks else []
    for test in own:
        yield from ((test, tuple(rest[first : first + 15])) for first in range(0, len(rest), 15))


def rate(run: Run, records: Records, test: Test) -> float:
    """The learning rate of networks of this depth: the best on other prompts of the distribution of training."""
    sizes: Sizes = run.sizes
    known = records.notes.setdefault("rates", {})
    if str(test.layers) not in known:
        own = replace(trained(sizes, test.layers))
        x, y = (part[: sizes.shifted_prompts] for part in own.draw(sizes, run.device, OTHER_SEED))
        k = max(k for k in sizes.ks if k < sizes.n_points)
        shape: dict[str, Any] = {"layers": test.layers, "width": sizes.width, "epochs": sizes.epochs, "ks": (k,)}
        errors = {}
        for lr in sizes.rates:
            p = TrainedNetwork(**shape, y_scale=size(y), lr=lr).fit(x, y).best[:, k]
            errors[lr] = float((p - y[:, k]).square().mean())
        known[str(test.layers)] = min(errors, key=lambda lr: errors[lr])
    return float(known[str(test.layers)])


def weights(sizes: Sizes, test: Test) -> int:
    """Of a network that is trained on the prompt: its time goes with them."""
    return sizes.width * (sizes.d + (test.layers - 2) * sizes.width + 1)


def size(y: Tensor) -> float:
    """The root mean square of the labels; 1 where all are zero."""
    return float(y.square().mean().sqrt()) or 1.0


def study(name: str, sizes: Mapping[str, Sizes], variants: Mapping[str, Variant], beside: str = "") -> Study:
    """Learners, stage by stage, and what they are compared with. ``beside``: its name, where studies share that."""
    stages: dict[str, Callable[[Run], bool]] = {stage: partial(learners, stage, variants) for stage in variants}
    others: dict[str, Callable[[Run], bool]] = {"references": references, "fits": fits}
    return Study(name, sizes, stages | others, dict.fromkeys(others, beside or name))


SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}
SOFTMAX = study("networks-softmax", SIZES, {"learners": Variant("softmax")}, "networks")
RELU = study(
    "networks-relu",
    SIZES,
    {
        "learners": Variant("relu", "relu", deep=False),
        "deep": Variant("relu", "relu", deep=True, slow=0.25),
    },
    "networks",
)
