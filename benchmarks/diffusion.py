"""Scores that are learned in context, beside direct training and the exact score.

Writes results/diffusion.json (minutes, one thread; ``--only NAME`` renews one row):

    studies        every distribution that ships, a ReLU network and a tanh one; true scores in the prompt (Problem 3),
                   and denoising labels made from points (H.2). In context: target llama, the fused executor, float32.
                   Direct training: torch.nn and torch.optim.SGD from the same start, float32.
    seeds          eight Gaussians again, with other prompts, initial weights and noise
    certificates   how far weights and score can be from exact gradient descent, by steps; and how far they are

Distances of samples are on a scale: 0 is the sampler with the exact score, 1 is noise.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from _results import read, renew, store
from innergrad.cli.diffusion import line_learner, plane_learner
from innergrad.diffusion import SHAPES, ScoreLearner, ScoreTask, train_directly
from innergrad.diffusion.study import CONTEXT, DIRECT, EXACT, Sampling, study

NAME, COMMAND = "diffusion", "python benchmarks/diffusion.py"
SAMPLES = Sampling(n=4000, steps=60)
SEEDS = (1, 2)
POINTS = 2000  # of the data, that denoising labels are made from


def learner_of(name: str, activation: str) -> ScoreLearner:
    """That of the demo, and the same with another activation."""
    return replace(line_learner() if name == "two-bumps" else plane_learner(), activation=activation)


def row(name: str, activation: str, prompt: str, seed: int = 0) -> dict[str, Any]:
    """One study as a record. prompt: true, or denoising."""
    mixture, learner = SHAPES[name](), learner_of(name, activation)
    task, n = learner.task, learner.n_examples
    examples = task.from_mixture(mixture, n, seed) if prompt == "true" else None
    if examples is None:
        examples = task.from_data(mixture.sample(POINTS, seed + 10), n, seed)
    found = study(name, mixture, learner, examples, replace(SAMPLES, seed=seed + 1), seed)
    return {"prompt": prompt, "seed": seed, **found.record()}


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
        "| data | network | difference of the scores | worst | error: in context | direct | loss: in context | direct |"
    )
    lines = [head, "|---" * 8 + "|"]
    for one in read(NAME)["studies"]:
        denoised = "" if one["prompt"] == "true" else ", denoising"
        cells = [
            one["name"].replace("-", " ") + denoised,
            one["activation"].replace("relu", "ReLU"),
            *(f"{one[key]:.1e}" for key in ("score_difference", "relative_difference")),
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
    parser.add_argument("--only", help=f"one of: {', '.join([*STUDIES, 'seeds', 'certificates'])}")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    if only is not None:
        old = read(NAME)["studies"]
        if only in STUDIES:
            place = list(STUDIES).index(only)
            renew(NAME, COMMAND, {"studies": [*old[:place], row(*STUDIES[only]), *old[place + 1 :]]})
        else:
            renew(NAME, COMMAND, {only: parts()[only]()})
        return
    found: dict[str, Any] = {"studies": []}
    for name, given in STUDIES.items():
        found["studies"].append(row(*given))
        print(name, found["studies"][-1]["on_the_scale"], flush=True)
    store(NAME, COMMAND, found | {name: make() for name, make in parts().items()})


def parts() -> dict[str, Any]:
    return {
        "seeds": lambda: [row("eight-gaussians", "relu", "true", seed) for seed in SEEDS],
        "certificates": lambda: list(certificates()),
    }


if __name__ == "__main__":
    main()
