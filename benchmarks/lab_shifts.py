"""Learners under shifts: the experiments of *Transformers are Deep Optimizers*, App. G.1 (objective 2) and G.2.

    PYTHONPATH=src python3 benchmarks/lab_shifts.py --out FOLDER                    one H200, seven minutes
    PYTHONPATH=src python3 benchmarks/lab_shifts.py --out FOLDER --tiny --device cpu       half a minute, for tests

Learners of 12 blocks, width 256, are trained on ReLU networks of 3 and of 4 layers, inputs N(-2, I), weights N(0, 1),
prompts of 51 points, and then asked about prompts of 76 points:

- with inputs w1 N(-2, I) + (1 - w1) N(2, I), w1 = 1, 0.9, 0.7, 0.5 (G.1);
- with weights N(0.5, 1) and N(-0.5, 1) (G.2).

Three kinds of learners: softmax attention with learned absolute positions; the same without positions, which says
whether these are why a learner declines past 51 points; and ReLU attention. Beside them, on the same prompts: the mean
of the labels, ridge regression, the posterior of infinitely wide networks, and networks of the task's depth trained on
the prompt. FOLDER/lab_shifts.json is written again after every kind, so a run that is cut off keeps what it has. Needs
torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from _results import device_name, store
from innergrad import lab
from innergrad.config import to_table
from innergrad.lab.baselines import NNGP, Mean, TrainedNetwork, TunedRidge
from innergrad.lab.evaluation import MODEL, prompts
from innergrad.lab.experiments import Curriculum, Experiment, TrainConfig
from innergrad.lab.learners.gpt import GPTConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.tasks import GaussianMixture, Networks
from lab import DRAWN, SEED, at, chunked, curves, network_name

COMMAND = "python benchmarks/lab_shifts.py"
KINDS: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax"},
    "softmax, no positions": {"attention": "softmax", "positions": "none"},
    "relu": {"attention": "relu"},
}
MEAN = 2.0  # of the inputs: -2 or 2
SHIFTS: dict[str, dict[str, float]] = {
    "none": {},
    "w1 = 0.9": {"w1": 0.9},
    "w1 = 0.7": {"w1": 0.7},
    "w1 = 0.5": {"w1": 0.5},
    "weights N(0.5, 1)": {"weight_mean": 0.5},
    "weights N(-0.5, 1)": {"weight_mean": -0.5},
}
Stored = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """Of the experiment: those of the paper but for the steps (there 500,000 of Adam), or tiny ones."""

    steps: int = 20_000
    n_points: int = 51
    asked: int = 76
    ks: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 75)  # where networks are trained on the prompt
    n_prompts: int = 6400
    d: int = 20
    width: int = 200
    epochs: int = 100
    shape: tuple[int, int, int, int] = (12, 256, 8, 256)  # blocks, width, heads, MLP
    layers: tuple[int, ...] = (3, 4)
    precision: Literal["bf16", "fp32"] = "bf16"


TINY = Sizes(60, 6, 9, (2, 5, 8), 40, 4, 8, 5, (1, 16, 2, 16), (3, 4), "fp32")


def task_of(sizes: Sizes, layers: int) -> Networks:
    """He's factors only change the unit of the labels: networks without biases are homogeneous in each layer."""
    inputs = GaussianMixture(w1=1.0, mean=MEAN)
    return Networks(d=sizes.d, layers=layers, width=sizes.width, scaling="he", inputs=inputs)


def experiments(sizes: Sizes, kind: str) -> list[Experiment]:
    """One stack: a learner for each depth of the networks."""
    blocks, width, heads, mlp = sizes.shape
    longest: dict[str, Any] = {} if KINDS[kind].get("positions") == "none" else {"max_points": sizes.asked}
    shape = GPTConfig(n_layers=blocks, d_model=width, n_heads=heads, d_mlp=mlp, **KINDS[kind], **longest)
    every = max(1, sizes.steps // (8 * max(1, sizes.d - 5)))  # all coordinates after an eighth of the steps
    config = TrainConfig(
        steps=sizes.steps,
        batch=64,
        precision=sizes.precision,
        optimiser=Optimiser("muon", lr=1e-3, schedule="cosine", warmup=sizes.steps // 50, clip=1.0),
        curriculum=Curriculum(first_dims=min(5, sizes.d), every=every),
    )
    tasks = [task_of(sizes, layers) for layers in sizes.layers]
    names = [f"{layers}-layer networks" for layers in sizes.layers]
    found = zip(names, tasks, strict=True)
    return [Experiment(name=n, task=t, learner=shape, train=config, n_points=sizes.n_points) for n, t in found]


def shifted(task: Networks, shift: dict[str, float]) -> Networks:
    inputs = GaussianMixture(w1=shift.get("w1", 1.0), mean=MEAN)
    return replace(task, inputs=inputs, weight_mean=shift.get("weight_mean", 0.0))


def beside(task: Networks, trained: Networks, x: Tensor, y: Tensor, sizes: Sizes) -> dict[str, Tensor]:
    """Predictions that do not depend on a learner. The networks get labels of mean square about one."""
    references = [Mean(), TunedRidge(), NNGP(task.layers, task.width, task.scaling)]
    found = {one.name: chunked(one, x, y) for one in references}
    unit = float(y.square().mean().sqrt()) or trained.scale
    one = TrainedNetwork(layers=task.layers, width=task.width, epochs=sizes.epochs, ks=sizes.ks, y_scale=unit)
    fits = one.fit(x, y)
    return found | {network_name(task.layers, one.lr, epoch): fits.at(epoch) for epoch in ("last", "per-prompt")}


def findings(content: Stored) -> list[Stored]:
    """What the rows of the ledger ask, one number each, from stored curves.

    error over posterior  squared error at the longest trained length over that of the posterior, under each shift: 1 if
                          the learner is as good as can be there, more where it declines
    past the trained      squared error at the longest prompt over that at the longest trained length: below 1 if more
                          examples help
    R^2 less networks'    pooled R^2 less that of networks trained on the prompt, last epoch; the longest trained length
    """
    end, last = content["sizes"]["n_points"] - 1, content["sizes"]["asked"] - 1
    found = []
    for kind, models in content["models"].items():
        for networks, shifts in models.items():
            for shift, mine in shifts.items():
                others = content["references"][networks][shift]
                (posterior,) = (rows for name, rows in others.items() if name.startswith("NNGP"))
                (trained,) = (rows for name, rows in others.items() if name.endswith("last epoch"))
                error = at(mine["squared error"], end)
                numbers = {
                    "error over posterior": error / (at(posterior["squared error"], end) or math.nan),
                    "past the trained": at(mine["squared error"], last) / (error or math.nan),
                    "R^2": at(mine["pooled R^2"], end),
                    "R^2 less networks'": at(mine["pooled R^2"], end) - at(trained["pooled R^2"], end),
                }
                about = {"learner": kind, "networks": networks, "shift": shift}
                found += [about | {"what": what, "value": rounded(value)} for what, value in numbers.items()]
    return found


def rounded(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.4g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for lab_shifts.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--steps", type=int, help=f"of training; {Sizes.steps:,} by default")
    parser.add_argument("--minutes", type=float, default=8.0, help="no kind is begun that would end after these")
    parser.add_argument("--tiny", action="store_true", help="sizes for a test")
    given = parser.parse_args()
    sizes = TINY if given.tiny else Sizes()
    sizes = replace(sizes, steps=given.steps or sizes.steps)
    run(sizes, given.kinds, given.device, given.out, given.minutes)


def run(sizes: Sizes, kinds: Sequence[str], device: str, out: Path, minutes: float) -> Stored:
    """Trains and measures one kind after another; writes what it has after each."""
    began, longest = time.perf_counter(), 0.0
    drawn: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}
    fixed: dict[tuple[int, str], dict[str, Stored]] = {}
    content: Stored = {"device": device_name(device), "sizes": to_plain(sizes), "tasks": {}, "training": {}}
    content |= {"references": {}, "models": {}}
    for kind in kinds:
        start = time.perf_counter()
        if longest and start - began + longest > 60 * minutes:
            print(f"no time is left for {kind}", flush=True)
            break
        stack = experiments(sizes, kind)
        result = lab.train(stack, device=device, progress=lambda step, words="": None)
        seconds = time.perf_counter() - start
        content["training"][kind] = {"seconds": round(seconds, 1), "loss": list(result.log[-1]["loss"])}
        print(f"{seconds:7.1f} s   {kind}: {sizes.steps:,} steps, loss {result.log[-1]['loss']}", flush=True)
        for number, one in enumerate(stack):
            trained = task_of(sizes, sizes.layers[number])
            learner = result.learner.model(number)
            for name, shift in SHIFTS.items():
                task, key = shifted(trained, shift), (trained.layers, name)
                if key not in drawn:
                    drawn[key] = prompts(task, sizes.n_prompts, sizes.asked, SEED, DRAWN, device)
                    x, y = drawn[key]
                    ks = list(sizes.ks)
                    fixed[key] = curves(beside(task, trained, x, y, sizes), y, trained.scale, ks)
                    content["references"].setdefault(one.name, {})[name] = fixed[key]
                    content["tasks"].setdefault(one.name, {})[name] = to_table(task)
                x, y = drawn[key]
                mine = curves({MODEL: chunked(learner.predict, x, y)}, y, trained.scale)[MODEL]
                content["models"].setdefault(kind, {}).setdefault(one.name, {})[name] = mine
        longest = max(longest, time.perf_counter() - start)
        content["seconds"] = round(time.perf_counter() - began, 1)
        content["findings"] = findings(content)
        store("lab_shifts", COMMAND, content, out, keep=False)
        print(f"{content['seconds']:7.1f} s   {kind} measured", flush=True)
    return content


def to_plain(sizes: Sizes) -> Stored:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(sizes).items()}


if __name__ == "__main__":
    main()
