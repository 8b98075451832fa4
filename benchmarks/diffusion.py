"""Scores that are learned in context, beside direct training and the exact score.

Writes results/diffusion.json (minutes, one thread; ``--only NAME`` renews one row):

    studies        every distribution that ships, a ReLU network and a tanh one; true scores in the prompt (Problem 3),
                   and denoising labels made from points (H.2). In context: target llama, the fused executor, float32.
                   Direct training: torch.nn and torch.optim.SGD from the same start, float32.
    seeds          eight Gaussians again, with other prompts, initial weights and noise
    orders         what float32 alone does: direct training of these networks with the examples in other orders; and in
                   context against direct training in float64
    certificates   how far weights and score can be from exact gradient descent, by steps; and how far they are

Distances of samples are on a scale: 0 is the sampler with the exact score, 1 is noise.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from _results import read, renew, store
from innergrad.cli.diffusion import line_learner, plane_learner
from innergrad.diffusion import SHAPES, Examples, GaussianMixture, ScoreLearner, ScoreTask, TrainedScore, train_directly
from innergrad.diffusion.study import CONTEXT, DIRECT, EXACT, TEST_TIMES, Sampling, apart, study

NAME, COMMAND = "diffusion", "python benchmarks/diffusion.py"
SAMPLES = Sampling(n=4000, steps=60)
SEEDS = (1, 2)
ORDERS = 8  # of the examples
POINTS = 2000  # of the data, that denoising labels are made from


def learner_of(name: str, activation: str) -> ScoreLearner:
    """That of the demo, and the same with another activation."""
    return replace(line_learner() if name == "two-bumps" else plane_learner(), activation=activation)


def prompt_of(name: str, learner: ScoreLearner, prompt: str, seed: int = 0) -> tuple[GaussianMixture, Examples]:
    """A distribution, and examples of its score. prompt: true, or denoising."""
    mixture, task, n = SHAPES[name](), learner.task, learner.n_examples
    if prompt == "true":
        return mixture, task.from_mixture(mixture, n, seed)
    return mixture, task.from_data(mixture.sample(POINTS, seed + 10), n, seed)


def row(name: str, activation: str, prompt: str, seed: int = 0) -> dict[str, Any]:
    """One study as a record. prompt: true, or denoising."""
    learner = learner_of(name, activation)
    mixture, examples = prompt_of(name, learner, prompt, seed)
    found = study(name, mixture, learner, examples, replace(SAMPLES, seed=seed + 1), seed)
    return {"prompt": prompt, "seed": seed, **found.record()}


def orders(name: str, activation: str, prompt: str, steps: int) -> dict[str, Any]:
    """Differences of scores, as in the studies: direct training in other orders, and both ways in float64."""
    learner = learner_of(name, activation)
    mixture, examples = prompt_of(name, learner, prompt)
    how: dict[str, Any] = {"lr": learner.lr, "momentum": learner.momentum, "steps": steps, "activation": activation}

    def direct(given: Examples, dtype: torch.dtype) -> TrainedScore:
        return train_directly(given, learner.task, learner.hidden, learner.start(), **how, dtype=dtype)

    learned = replace_plateau(replace(learner, steps=steps)).learn(examples, dtype=torch.float64)
    exact, given = direct(examples, torch.float64), direct(examples, torch.float32)
    others = [direct(shuffled(examples, seed), torch.float32) for seed in range(ORDERS)]
    times = learner.task.times(torch.linspace(0.0, 1.0, TEST_TIMES, dtype=torch.float64)).tolist()
    return {
        "name": name,
        "activation": activation,
        "prompt": prompt,
        "steps": steps,
        "float64": apart(mixture, learned, exact, times),
        "to_float64": apart(mixture, given, exact, times),
        "orders": [apart(mixture, given, other, times) for other in others],
    }


def shuffled(examples: Examples, seed: int) -> Examples:
    """The same examples in another order."""
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))
    weight = None if examples.weight is None else examples.weight[order]
    return Examples(examples.X[order], examples.y[order], examples.x[order], examples.t[order], weight)


STUDIES = {
    "two-bumps": ("two-bumps", "relu", "true"),
    "eight-gaussians": ("eight-gaussians", "relu", "true"),
    "moons": ("moons", "relu", "true"),
    "spiral": ("spiral", "relu", "true"),
    "eight-gaussians, tanh": ("eight-gaussians", "tanh", "true"),
    "eight-gaussians, denoising": ("eight-gaussians", "relu", "denoising"),
    "eight-gaussians, denoising, tanh": ("eight-gaussians", "tanh", "denoising"),
}


def certificates() -> Iterator[dict[str, Any]]:
    """Small networks on the line, float64: bounds and true distances, by steps."""
    mixture, task = SHAPES["two-bumps"](), ScoreTask()
    x = torch.linspace(-2, 2, 9, dtype=torch.float64).view(-1, 1)
    for activation in ("tanh", "relu"):
        for steps in (5, 20, 60):
            learner = ScoreLearner(
                d=1, task=task, hidden=(4, 4), activation=activation, n_examples=12, steps=steps, lr=0.1, momentum=0.9
            )
            examples = task.from_mixture(mixture, 12)
            learned = replace_plateau(learner).learn(examples, dtype=torch.float64)
            bound = learned.certify(x, 0.1)
            how = {"lr": 0.1, "momentum": 0.9, "steps": steps, "activation": activation, "dtype": torch.float64}
            exact = train_directly(examples, task, (4, 4), learner.start(), **how)  # type: ignore[arg-type]
            yield {
                "activation": activation,
                "network": list(learner.network.sizes),
                "steps": steps,
                "weights": bound.weights if math.isfinite(bound.weights) else None,
                "score": float(bound.score.max()) if bound.finite else None,
                "score_apart": float((learned(x, 0.1) - exact(x, 0.1)).abs().max()),
                "diverged": bound.run.diverged,
            }


def replace_plateau(learner: ScoreLearner) -> ScoreLearner:
    """All steps, at rest or not."""
    return replace(learner, plateau=replace(learner.plateau, fall=0.0))


# --------------------------------------------------------------------------------------------------------------- tables


def samples_table() -> list[str]:
    """Of docs/diffusion.md: how good the samples are."""
    lines = [
        "| data | prompt | network | steps | loss | error of the score | distance: exact score | in context | noise | "
        "on the scale |",
        "|---" * 10 + "|",
    ]
    for one in read(NAME)["studies"]:
        what = "Wasserstein-1" if one["name"] == "two-bumps" else "sliced Wasserstein-1"
        found, rest = one["distances"][what], "" if one["at_rest"] else " (not at rest)"
        cells = [
            one["name"].replace("-", " "),
            f"{one['examples']:,} {'true scores' if one['prompt'] == 'true' else 'denoising labels'}",
            f"{'-'.join(map(str, one['network']))} {one['activation'].replace('relu', 'ReLU')}",
            f"{one['steps']:,}{rest}",
            f"{one['loss']:.4f}",
            f"{one['relative_error'][CONTEXT]:.0%}",
            *(f"{found[key]:.3f}" for key in (EXACT, CONTEXT, "noise")),
            f"{one['on_the_scale'][what][CONTEXT]:.1%}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def direct_table() -> list[str]:
    """In context beside direct training."""
    head = (
        "| data | network | difference of the scores | worst | direct, in other orders | in float64 | "
        "error: in context | direct | loss: in context | direct |"
    )
    lines, stored = [head, "|---" * 10 + "|"], read(NAME)
    for one, other in zip(stored["studies"], stored["orders"], strict=True):
        denoised = "" if one["prompt"] == "true" else ", denoising"
        cells = [
            one["name"].replace("-", " ") + denoised,
            one["activation"].replace("relu", "ReLU"),
            *(f"{one[key]:.1e}" for key in ("score_difference", "relative_difference")),
            f"{statistics.median(other['orders']):.1e}, {max(other['orders']):.1e}",
            f"{other['float64']:.1e}",
            *(f"{one['relative_error'][key]:.4f}" for key in (CONTEXT, DIRECT)),
            *(f"{one[key]:.5f}" for key in ("loss", "loss_direct")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def certificates_table() -> list[str]:
    lines = ["| network | steps | weights, at most | score, at most | score, in truth |", "|---" * 5 + "|"]
    for one in read(NAME)["certificates"]:
        bounds = ["infinite" if one[key] is None else f"{one[key]:.1e}" for key in ("weights", "score")]
        network = f"{'-'.join(map(str, one['network']))} {one['activation'].replace('relu', 'ReLU')}"
        lines.append(f"| {network} | {one['steps']} | {bounds[0]} | {bounds[1]} | {one['score_apart']:.1e} |")
    return lines


def seeds_sentence() -> list[str]:
    """Eight Gaussians, every seed."""
    stored = read(NAME)
    rows = [one for one in stored["studies"] if one["name"] == "eight-gaussians" and one["prompt"] == "true"]
    shares = [one["on_the_scale"]["sliced Wasserstein-1"][CONTEXT] for one in (rows[0], *stored["seeds"])]
    told = ", ".join(f"{share:.1%}" for share in shares)
    return [f"Eight Gaussians with {len(shares)} prompts, starts and draws of noise: {told} of the way to noise."]


TABLES = {
    "diffusion_samples": samples_table,
    "diffusion_direct": direct_table,
    "diffusion_certificates": certificates_table,
    "diffusion_seeds": seeds_sentence,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"one of: {', '.join([*STUDIES, *parts([])])}")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only is not None:
        old = read(NAME)["studies"]
        if only in STUDIES:
            place = list(STUDIES).index(only)
            renew(NAME, COMMAND, {"studies": [*old[:place], row(*STUDIES[only]), *old[place + 1 :]]})
        else:
            renew(NAME, COMMAND, {only: parts(old)[only]()})
        return
    found: dict[str, Any] = {"studies": []}
    for name, given in STUDIES.items():
        found["studies"].append(row(*given))
        print(name, found["studies"][-1]["on_the_scale"], flush=True)
    store(NAME, COMMAND, found | {name: make() for name, make in parts(found["studies"]).items()})


def parts(studies: list[dict[str, Any]]) -> dict[str, Any]:
    """What is measured beside the studies, which say how many steps there are."""
    return {
        "seeds": lambda: [row("eight-gaussians", "relu", "true", seed) for seed in SEEDS],
        "orders": lambda: [orders(*given, one["steps"]) for given, one in zip(STUDIES.values(), studies, strict=True)],
        "certificates": lambda: list(certificates()),
    }


if __name__ == "__main__":
    main()
