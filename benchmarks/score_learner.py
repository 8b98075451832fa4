"""A learner that gets samples of a distribution and answers with its score, beside methods that need no pretraining.

    train --dims 2 --seconds 200 --out FOLDER    pretrains three seeds as one stack (GPU): scores-2-0.safetensors, ...
          --size cpu --precision fp32 --batch 16 --short 4000 --steps 1200 --seconds 7200     smaller: an hour of a core
    compare FOLDER                               measures them on unseen mixtures: results/score_learner.json
    quick                                        both on the line, small, in a minute or two on a CPU; stores nothing
    draw FOLDER                                  docs/score_learner.png: a prompt, and the score by three methods
    shelve FOLDER                                weights and card of one learner a dimension, for src/innergrad/zoo

Errors are relative: the root mean square over P_t of the difference to the exact score, over that of the exact score,
at TIMES times from 0.02 to 3. That of a mixture is the root mean square over times, and the mean over mixtures is
reported. Intervals (95 %): by resampling mixtures, and by Student's t over the seeds of training. All methods get the
same samples, and nothing else. Two oracles get more: a bandwidth that is chosen by the exact score, and the label of
networks. Needs torch, numpy and safetensors only; ``draw`` needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import _score_rivals as rivals
from _results import device_name, read, store
from _score_rivals import Answer
from innergrad.config import to_table
from innergrad.diffusion import GaussianMixture, Scale, ScoreTask, energy_distance, sample, sliced_wasserstein
from innergrad.diffusion.process import sigma
from innergrad.diffusion.samplers import Score
from innergrad.lab import metrics
from innergrad.lab.baselines.density import BANDWIDTHS
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Experiment, TrainConfig
from innergrad.lab.learners.base import Learner
from innergrad.lab.learners.sample_learner import SampleLearner, SampleLearnerConfig
from innergrad.lab.optimisers import Optimiser
from innergrad.lab.samples import QUERY, joined
from innergrad.lab.tasks import SampleScores
from innergrad.lab.timed import train_within
from innergrad.lab.training import load_learner
from innergrad.lab.weights import write_learner

NAME, COMMAND = "score_learner", "python benchmarks/score_learner.py compare"
ROOT = Path(__file__).parent.parent
SEEDS = 3
COUNTS = (16, 64, 256)  # samples of a prompt
TIMES = 12
LEARNER, DENSITY, EM = "learner", "kernel density", "mixture by EM"
NETWORK, ORACLE = "network by denoising", "kernel density, oracle"
LABELS = ("velocity", "data", "noise")  # of networks; the best for all mixtures together is taken: an oracle, too
METHODS = (LEARNER, DENSITY, ORACLE, NETWORK, EM)

Stored = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How large a comparison is."""

    mixtures: int = 128
    places: int = 256  # at each time
    counts: tuple[int, ...] = COUNTS
    steps: int = 3000  # of networks
    sampled: int = 16  # mixtures that are sampled from
    drawn: int = 2000  # samples of each


FULL = Sizes()
QUICK = Sizes(mixtures=32, places=64, counts=(16, 64), steps=400, sampled=3, drawn=500)


def task_of(dims: int, queries: int = 64) -> SampleScores:
    """Up to four components on the line, up to eight in the plane."""
    return SampleScores(dims=dims, queries=queries, min_samples=12, components=4 if dims == 1 else 8)


#: A learner of 1.7 MB in 16 bits, for a GPU, and one of 0.5 MB, for a core of a CPU.
SHAPES = {
    "gpu": SampleLearnerConfig(n_layers=4, d_model=128, n_heads=4, d_mlp=512),
    "cpu": SampleLearnerConfig(n_layers=3, d_model=96, n_heads=4, d_mlp=192),
}
SHORT = 112  # points of the prompts that training may begin with


def experiments(
    dims: int, steps: int = 80_000, batch: int = 32, precision: str = "bf16", size: str = "gpu"
) -> list[Experiment]:
    """One a seed, which differ in nothing else."""
    task, shape = task_of(dims), SHAPES[size]
    optimiser = Optimiser("muon", lr=2e-3, schedule="cosine", warmup=400, clip=1.0)
    train = TrainConfig(steps=steps, batch=batch, precision=precision, optimiser=optimiser)  # type: ignore[arg-type]
    points = max(COUNTS) + task.queries
    return [Experiment(f"scores-{dims}-{seed}", seed, points, task, shape, train) for seed in range(SEEDS)]


def quick_experiments() -> list[Experiment]:
    """On the line: 20,000 weights, prompts of up to 64 samples."""
    task = replace(task_of(1, queries=16), min_samples=4)
    shape = SampleLearnerConfig(n_layers=2, d_model=32, n_heads=2, d_mlp=64)
    train = TrainConfig(steps=1500, batch=16, optimiser=Optimiser(lr=3e-3, schedule="cosine", warmup=48, clip=1.0))
    return [Experiment("scores-1-quick", 0, 64 + task.queries, task, shape, train)]


# --------------------------------------------------------------------------------------------------------------- train


def train(chosen: Sequence[Experiment], seconds: float, device: str, out: Path, short: int = 0) -> list[Path]:
    """Trains a stack for so long, and writes each of its models in 16 bits; after each quarter of the time, too.

    short: so many steps on prompts of at most 64 samples come first: they take a sixth as long.
    """
    out.mkdir(parents=True, exist_ok=True)
    began, first = time.perf_counter(), None

    def keep(learner: Learner, step: int) -> None:
        for number, one in enumerate(chosen):
            write_learner(out / one.name, learner, one, step, model=number)

    def told(step: int, words: str = "") -> None:
        print(f"{time.perf_counter() - began:7.1f} s   step {step:,}   {words}", flush=True)

    if short:
        first = train_within([shortened(one, short) for one in chosen], seconds, device=device, progress=told)
        chosen = [resumed(one) for one in chosen]
    left, start = seconds - (time.perf_counter() - began), None if first is None else first.learner
    result = train_within(chosen, left, device=device, keep=keep, progress=told, start=start)
    took = {"seconds": round(time.perf_counter() - began, 1), "device": device_name(device), "steps": result.step}
    took["short_steps"] = 0 if first is None else first.step
    took["command"] = " ".join(["python", "benchmarks/score_learner.py", *sys.argv[1:]])
    paths = []
    for number, one in enumerate(result.experiments):
        made = write_learner(out / one.name, result.learner, one, result.step, model=number)
        paths.append(made.replace(out / f"{one.name}.safetensors"))
        shutil.rmtree(out / one.name)  # what was kept on the way
        rows = [{"step": row["step"], "loss": row["loss"][number]} for row in result.log]
        about = {**took, "experiment": to_table(one), "log": rows[:: max(1, len(rows) // 100)] + rows[-1:]}
        (out / f"{one.name}.json").write_text(json.dumps(about) + "\n")
        print(f"wrote {paths[-1].name}, {paths[-1].stat().st_size:,} bytes, loss {rows[-1]['loss']:.4g}", flush=True)
    return paths


def shortened(one: Experiment, steps: int) -> Experiment:
    """On prompts of at most 64 samples. The rate ends at a half: training goes on."""
    rule = replace(one.train.optimiser, final=0.5, warmup=one.train.optimiser.warmup // 2)
    task = replace(_sample_task(one), queries=SHORT - 64)
    return replace(one, n_points=SHORT, task=task, train=replace(one.train, optimiser=rule, steps=steps))


def resumed(one: Experiment) -> Experiment:
    """What comes after that: from half the rate on, with a short warm-up."""
    rule = one.train.optimiser
    rule = replace(rule, lr=0.5 * rule.lr, warmup=rule.warmup // 8)
    return replace(one, train=replace(one.train, optimiser=rule))


# ------------------------------------------------------------------------------------------------------------- compare


class Unseen:
    """Mixtures that no training has seen: samples of them, places to ask at, and the exact answers."""

    def __init__(self, task: SampleScores, sizes: Sizes, device: str) -> None:
        self.task, self.sizes = task, sizes
        rng, index = CounterRNG.of(1, "score learner, compare", device), torch.arange(sizes.mixtures, device=device)
        self.params = {name: value.double() for name, value in task.params(rng.fork("params"), index, 1).items()}
        self.samples = task.data(rng.fork("samples"), index, max(sizes.counts), self.params)
        low, high = math.log(task.min_time), math.log(task.max_time)
        self.times = torch.linspace(low, high, TIMES, dtype=torch.float64).exp().tolist()
        data = task.data(rng.fork("places"), index, TIMES * sizes.places, self.params)
        self.t = torch.tensor(self.times, device=device).double().repeat_interleave(sizes.places).expand(len(data), -1)
        z = rng.fork("noise").normal(index, *data.shape[1:]).double()
        self.x = (-self.t).exp()[..., None] * data + sigma(self.t)[..., None] * z
        self.exact = self.answer(self.x, self.t)

    def answer(self, x: Tensor, t: Tensor) -> Tensor:
        """sigma_t times the exact score."""
        points = joined(x, t, torch.full_like(t, QUERY))
        found: Tensor = self.task.evaluate(self.params, points)
        return found.view(x.shape)

    def errors(self, answer: Answer) -> Tensor:
        """(M, TIMES): relative errors in L2(P_t)."""
        apart, size = (
            value.double().square().sum(-1).view(len(value), TIMES, -1).mean(2)
            for value in (answer(self.x, self.t) - self.exact, self.exact)
        )
        return (apart / size).sqrt()

    def mixture(self, number: int) -> GaussianMixture:
        """One of them, for sampling."""
        weight, mean, std = (self.params[name][number].cpu() for name in ("weight", "mean", "std"))
        there = weight > 0
        return GaussianMixture(mean[there], std=std[there], weights=weight[there])


def overall(errors: Tensor) -> Tensor:
    """(M,): the root mean square over times."""
    return errors.square().mean(1).sqrt()


def fitted(unseen: Unseen, n: int, learners: Sequence[SampleLearner], steps: int) -> dict[str, list[Tensor]]:
    """The errors (M, TIMES) of every method on n samples; of the learner one for each seed."""
    samples = unseen.samples[:, :n]
    found = {LEARNER: [unseen.errors(rivals.by_learner(one, samples)) for one in learners]}
    found[DENSITY] = [unseen.errors(rivals.by_density(samples))]
    grid = torch.stack([unseen.errors(rivals.by_density(samples, h)) for h in BANDWIDTHS])
    best = grid.square().mean(2).argmin(0)
    found[ORACLE] = [grid[best, torch.arange(len(best), device=best.device)]]
    trained = [unseen.errors(rivals.by_network(samples, label, steps=steps)) for label in LABELS]
    found[NETWORK] = [min(trained, key=lambda errors: float(overall(errors).mean()))]
    found[EM] = [unseen.errors(rivals.by_em(samples, unseen.task.components, unseen.task.min_std**2))]
    return found


def judged(found: dict[str, list[Tensor]]) -> list[Stored]:
    """One row a method: its error with intervals, by time, and how often the learner is better."""
    device = found[LEARNER][0].device
    means = {name: torch.stack([overall(one) for one in errors]).mean(0) for name, errors in found.items()}
    counts = metrics.bootstrap_counts(len(means[LEARNER]), metrics.RESAMPLES, device)
    tails = torch.tensor([0.025, 0.975], dtype=torch.float64, device=device)

    def interval(values: Tensor) -> list[float]:
        ends: list[float] = (counts @ values / len(values)).quantile(tails).tolist()
        return ends

    rows = []
    for name, errors in found.items():
        low, high = interval(means[name])
        by_time = torch.stack(errors).mean((0, 1)).tolist()
        row: Stored = {"method": name, "error": float(means[name].mean()), "low": low, "high": high, "times": by_time}
        if name == LEARNER:
            each = [float(overall(one).mean()) for one in errors]
            row["seeds"] = each
            if len(each) > 1:
                spread = float(torch.tensor(each, dtype=torch.float64).std())
                row["half_over_seeds"] = metrics.student(len(each) - 1) * spread / math.sqrt(len(each))
        else:  # what the learner's error is less, mixture by mixture
            gain = means[name] - means[LEARNER]
            row |= {
                "gain": float(gain.mean()),
                "gain_interval": interval(gain),
                "wins": float((gain > 0).double().mean()),
            }
        rows.append(row)
    return rows


def distances(unseen: Unseen, learner: SampleLearner, n: int, steps: int) -> list[Stored]:
    """Samples by probability flow, on a scale from the exact score, 0, to noise, 1; a row a method."""
    task, sizes, dims = ScoreTask(), unseen.sizes, unseen.task.dims
    given = unseen.samples[: sizes.sampled, :n]
    answers = {DENSITY: rivals.by_density(given), NETWORK: rivals.by_network(given, steps=steps)}
    found: dict[str, list[float]] = {}
    for number in range(sizes.sampled):
        mixture = unseen.mixture(number)
        data = mixture.sample(sizes.drawn, seed=number)
        scores: dict[str, Score] = {"exact": mixture.score, LEARNER: learner.score(given[number])}
        scores |= {name: of_one(answer, number, unseen) for name, answer in answers.items()}
        flow = {name: sample(score, task, sizes.drawn, dims, seed=number + 1).x for name, score in scores.items()}
        flow["samples of the prompt"] = given[number].cpu()
        noise = torch.randn(data.shape, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
        for what, measure in (("energy distance", energy_distance), ("sliced Wasserstein-1", sliced_wasserstein)):
            scale = Scale(measure(flow["exact"], data), measure(noise, data))
            for name, points in flow.items():
                found.setdefault(f"{name}|{what}", []).append(scale(measure(points, data)))
    rows = []
    for key, shares in found.items():
        name, what = key.split("|")
        values = torch.tensor(shares, dtype=torch.float64)
        counts = metrics.bootstrap_counts(len(values), metrics.RESAMPLES, torch.device("cpu"))
        ends = (counts @ values / len(values)).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        rows.append({"method": name, "measure": what, "share": float(values.mean()), "low": ends[0], "high": ends[1]})
    return rows


def of_one(answer: Answer, number: int, unseen: Unseen) -> Score:
    """The score of one of the distributions that an answer is about, as samplers take it."""
    M, device = unseen.sizes.sampled, unseen.x.device

    def score(x: Tensor, t: float) -> Tensor:
        places = x.to(device).expand(M, *x.shape)
        times = torch.full(places.shape[:2], float(t), dtype=x.dtype, device=device)
        return (answer(places, times)[number] / float(sigma(t))).to(x)

    return score


def compared(learners: Sequence[SampleLearner], task: SampleScores, sizes: Sizes, device: str) -> Stored:
    """Everything about one dimension."""
    unseen = Unseen(task, sizes, device)
    found: Stored = {"dims": task.dims, "mixtures": sizes.mixtures, "times": unseen.times, "places": sizes.places}
    found["counts"] = []
    for n in sizes.counts:
        began = time.perf_counter()
        rows = judged(fitted(unseen, n, learners, sizes.steps))
        found["counts"].append({"n": n, "methods": rows})
        told = ", ".join(f"{row['method']} {row['error']:.3f}" for row in rows)
        print(f"{task.dims}-D, n = {n}: {told}   ({time.perf_counter() - began:.0f} s)", flush=True)
    n = 64 if 64 in sizes.counts else sizes.counts[-1]
    found["sampled"] = {"n": n, "mixtures": sizes.sampled, "points": sizes.drawn}
    found["distances"] = distances(unseen, learners[0], n, sizes.steps)
    return found


def load(folder: Path, dims: int, device: str) -> tuple[list[SampleLearner], Experiment, Stored]:
    """The learners of a dimension, one a seed, what the first was trained on, and how long."""
    found = [load_learner(path, device=device) for path in sorted(folder.glob(f"scores-{dims}-*.safetensors"))]
    if not found:
        raise SystemExit(f"no scores-{dims}-*.safetensors in {folder}: train them first")
    learners, experiment = [one for one, _ in found if isinstance(one, SampleLearner)], found[0][1]
    about = json.loads((folder / f"{experiment.name}.json").read_text())
    return learners, experiment, {key: about[key] for key in ("seconds", "device", "steps", "short_steps")}


def compare(folder: Path, dims: Sequence[int], device: str, sizes: Sizes, out: Path | None, *, keep: bool) -> Stored:
    command = COMMAND + " --small" * (sizes == QUICK)
    found: Stored = {"command": command, "network_steps": sizes.steps, "dimensions": []}
    for one in dims:
        learners, experiment, took = load(folder, one, device)
        weights = sum(parameter.numel() for parameter in learners[0].parameters())
        about = {"task": to_table(experiment.task), "learner": to_table(experiment.learner), "weights": weights}
        about |= {"training": {**took, "batch": experiment.train.batch}}
        found["dimensions"].append({**about, **compared(learners, _sample_task(experiment), sizes, device)})
        store(NAME, command, found, out, keep=keep)
    return found


def _sample_task(experiment: Experiment) -> SampleScores:
    assert isinstance(experiment.task, SampleScores)
    return experiment.task


# --------------------------------------------------------------------------------------------------------------- quick


def quick(seconds: float, device: str) -> Stored:
    """A small learner on the line, and what it is compared with; printed."""
    result = train_within(quick_experiments(), seconds, device=device)
    learner = result.learner.model(0)
    assert isinstance(learner, SampleLearner)
    print(f"trained {result.step:,} steps, loss {result.log[-1]['loss'][0]:.4f}")
    found = compared([learner], _sample_task(result.experiments[0]), QUICK, device)
    print("\n".join(rows_of(found)))
    return found


# -------------------------------------------------------------------------------------------------------------- tables


def rows_of(found: Stored) -> list[str]:
    """Relative errors by the number of samples, of one dimension."""
    head = "| " + " | ".join(["error of the score", *(f"n = {one['n']}" for one in found["counts"])]) + " |"
    lines = [head, "|---" * (1 + len(found["counts"])) + "|"]
    for name in METHODS:
        cells = []
        for one in found["counts"]:
            row = next(row for row in one["methods"] if row["method"] == name)
            cells.append(f"{row['error']:.1%} ({row['low']:.1%} to {row['high']:.1%})")
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return lines


def errors_table() -> list[str]:
    """Of docs/score_learner.md: all dimensions, one after the other."""
    lines = []
    for found in read(NAME)["dimensions"]:
        where = "On the line" if found["dims"] == 1 else "In the plane"
        took = found["training"]
        first = f"{took['short_steps']:,} steps on prompts of at most 64 samples, then " if took["short_steps"] else ""
        who = f"a learner of {found['weights']:,} weights, {first}{took['steps']:,} steps of {took['batch']} prompts"
        lines += [f"{where}, {found['mixtures']} mixtures; {who}:", "", *rows_of(found), ""]
    return lines[:-1]


def verdict() -> list[str]:
    """Whether it wins at n = 64, and by how much."""
    words = []
    for found in read(NAME)["dimensions"]:
        rows = {row["method"]: row for row in next(one for one in found["counts"] if one["n"] == 64)["methods"]}
        where = "On the line" if found["dims"] == 1 else "In the plane"
        mine = rows[LEARNER]
        half = f" (± {mine['half_over_seeds']:.1%} over {len(mine['seeds'])} trainings)" if mine["seeds"][1:] else ""
        wins = [f"{rows[name]['wins']:.0%}" for name in (DENSITY, ORACLE, NETWORK, EM)]
        words.append(
            f"{where}, with 64 samples, the learner errs by {mine['error']:.1%}{half}. Its score is better than that "
            f"of the kernel density on {wins[0]} of the mixtures, than that with the oracle's bandwidth on {wins[1]}, "
            f"than that of the trained network on {wins[2]}, and than that of EM on {wins[3]}."
        )
    return words


def times_table() -> list[str]:
    """With 64 samples, time by time, of the learner and of kernel density: the mean over mixtures, and over seeds."""
    stored = read(NAME)["dimensions"]
    shown = [0, 3, 6, 9, TIMES - 1]
    times = [f"t = {stored[0]['times'][place]:.2g}" for place in shown]
    lines = ["| " + " | ".join(["with 64 samples", "dimensions", *times]) + " |", "|---" * (2 + len(shown)) + "|"]
    for found in stored:
        rows = next(one for one in found["counts"] if one["n"] == 64)["methods"]
        for row in (row for row in rows if row["method"] in (LEARNER, DENSITY)):
            cells = [f"{row['times'][place]:.1%}" for place in shown]
            lines.append("| " + " | ".join([row["method"], str(found["dims"]), *cells]) + " |")
    return lines


def distances_table() -> list[str]:
    lines = ["| samples by | dimensions | energy distance | sliced Wasserstein-1 |", "|---" * 4 + "|"]
    for found in read(NAME)["dimensions"]:
        rows = {(row["method"], row["measure"]): row for row in found["distances"]}
        for name in dict.fromkeys(row["method"] for row in found["distances"] if row["method"] != "exact"):
            cells = [
                f"{(row := rows[name, what])['share']:.1%} ({row['low']:.1%} to {row['high']:.1%})"
                for what in ("energy distance", "sliced Wasserstein-1")
            ]
            lines.append("| " + " | ".join([name, str(found["dims"]), *cells]) + " |")
    return lines


TABLES: dict[str, Callable[[], list[str]]] = {
    "score_learner_errors": errors_table,
    "score_learner_verdict": verdict,
    "score_learner_samples": distances_table,
    "score_learner_times": times_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = {name: commands.add_parser(name) for name in ("train", "compare", "quick", "draw", "shelve")}
    for name in ("train", "compare", "quick"):
        made[name].add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name in ("compare", "draw", "shelve"):
        made[name].add_argument("folder", type=Path)
    made["train"].add_argument("--dims", type=int, default=2)
    made["train"].add_argument("--seconds", type=float, default=200.0)
    made["train"].add_argument("--batch", type=int, default=32)
    made["train"].add_argument("--precision", choices=("bf16", "fp32"), default="bf16")
    made["train"].add_argument("--size", choices=list(SHAPES), default="gpu")
    made["train"].add_argument("--steps", type=int, default=80_000, help="at most")
    made["train"].add_argument("--short", type=int, default=0, help="steps on short prompts, which come first")
    made["train"].add_argument("--threads", type=int, default=1, help="of a CPU")
    made["train"].add_argument("--tiny", action="store_true", help="the shape of quick: to try the command")
    made["train"].add_argument("--out", type=Path, required=True)
    made["compare"].add_argument("--dims", type=int, nargs="+", default=[1, 2])
    made["compare"].add_argument("--small", action="store_true", help="fewer mixtures, shorter networks: for a CPU")
    made["compare"].add_argument("--out", type=Path, help="also, or on another machine only, write the result there")
    made["compare"].add_argument("--only-out", action="store_true", help="leave results/ as it is")
    made["quick"].add_argument("--seconds", type=float, default=60.0)
    made["shelve"].add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "train":
        torch.set_num_threads(given.threads)
        chosen = experiments(given.dims, given.steps, given.batch, given.precision, given.size)
        if given.tiny:
            chosen = [replace(one, learner=quick_experiments()[0].learner, n_points=48) for one in chosen]
        train(chosen, given.seconds, given.device, given.out, given.short)
    elif given.command == "compare":
        sizes = QUICK if given.small else FULL
        compare(given.folder, given.dims, given.device, sizes, given.out, keep=not given.only_out)
    elif given.command == "quick":
        torch.set_num_threads(1)
        quick(given.seconds, given.device)
    elif given.command == "draw":
        from score_learner_figure import draw

        draw(load(given.folder, 2, "cpu")[0][0], ROOT / "docs" / f"{NAME}.png")
    else:
        from score_learner_zoo import shelve

        shelve(given.folder, given.out)


if __name__ == "__main__":
    main()
