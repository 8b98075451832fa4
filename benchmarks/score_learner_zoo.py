"""Score learners for the zoo: weights and card of one a dimension, as src/innergrad/zoo has them."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import _score_rivals as rivals
from innergrad import zoo
from innergrad.config import to_table
from innergrad.files import digest
from innergrad.lab.learners.sample_learner import SampleLearner
from innergrad.lab.training import load_learner
from innergrad.lab.weights import write_learner
from score_learner import COUNTS, DENSITY, Sizes, Unseen, load, overall
from zoo import WORSE

SIZES = Sizes(mixtures=64, places=64)  # of what a card says
LIMITS = (
    "Data have a spread of about one: means in [-2, 2], components of deviation 0.1 to 0.6. Scale yours to that first.",
    "Training saw 12 to 256 samples. More are taken, but it has not learned what to do with them.",
    "It knows mixtures of a few round Gaussians. Curves and thin shapes look like such mixtures to it.",
    "Times from 0.02 to 3.",
)


def shelve(folder: Path, out: Path, dims: tuple[int, ...] = (1, 2), sizes: Sizes = SIZES) -> None:
    """The learner of seed 0, in 8 bits where that costs at most 1 % of its squared error, else in 16."""
    out.mkdir(parents=True, exist_ok=True)
    for one in dims:
        learners, experiment, took = load(folder, one, "cpu")
        name = f"scores-{one}"
        unseen = Unseen(experiment.task, sizes, "cpu")  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory() as place:
            made = {
                bits: write_learner(Path(place) / str(bits), learners[0], experiment, took["steps"], bits=bits)
                for bits in (16, 8)
            }
            found = {bits: errors(path, unseen) for bits, path in made.items()}
            ratios = {n: (found[8][n] / found[16][n]) ** 2 for n in COUNTS}
            bits = 8 if max(ratios.values()) <= WORSE else 16
            path = out / f"{name}{zoo.WEIGHTS}"
            shutil.copyfile(made[bits], path)
        card = described(name, experiment, took, found[bits], unseen)
        words = f"matrices of blocks in {bits} bits, all else in 16; 8 bits multiply the squared error by at most "
        words += f"{max(ratios.values()):.4f} (against 16)."
        card["weights"] = {"words": words, "bits": bits, "bytes": path.stat().st_size, "sha256": digest(path)}
        card["weights"]["error_8_over_16"] = {str(n): float(f"{ratio:.6g}") for n, ratio in ratios.items()}
        (out / f"{name}{zoo.CARD}").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {path.name} ({path.stat().st_size:,} bytes, {bits} bits) and {name}{zoo.CARD}")


def errors(path: Path, unseen: Unseen) -> dict[int, float]:
    """Relative errors of the learner in a file, by the number of samples."""
    learner, _ = load_learner(path)
    assert isinstance(learner, SampleLearner)
    found = {n: unseen.errors(rivals.by_learner(learner, unseen.samples[:, :n])) for n in COUNTS}
    return {n: float(overall(one).mean()) for n, one in found.items()}


def described(
    name: str, experiment: Any, took: dict[str, Any], found: dict[int, float], unseen: Unseen
) -> dict[str, Any]:
    """The card but for the weights."""
    task, learner, config, dims = experiment.task, experiment.learner, experiment.train, unseen.task.dims
    density = {n: float(overall(unseen.errors(rivals.by_density(unseen.samples[:, :n]))).mean()) for n in COUNTS}
    where = "on the line" if dims == 1 else "in the plane"
    weights = sum(value.numel() for value in learner.build_for(task.d, 2, outputs=task.outputs).parameters())
    shape = f"A transformer that reads samples as a set: {learner.n_layers} blocks, width {learner.d_model}, "
    shape += f"{learner.n_heads} heads, MLPs of {learner.d_mlp}; {weights:,} parameters."
    first = f"{took['short_steps']:,} steps on prompts of at most 64 samples, then " if took["short_steps"] else ""
    trained = f"{first}{took['steps']:,} steps, {config.batch} prompts each, {config.optimiser.kind} at "
    trained += f"{config.optimiser.lr:g}, cosine to 0, {config.precision}, seed {experiment.seed}; {took['device']}."
    prompts = (took["short_steps"] + took["steps"]) * config.batch
    rows = [{"k": n, "learner": float(f"{found[n]:.6g}"), DENSITY: float(f"{density[n]:.6g}")} for n in COUNTS]
    words = (
        f"k samples; relative error of the score in L2(P_t), over {len(unseen.times)} times from 0.02 to 3, mean over "
    )
    words += f"{unseen.sizes.mixtures} mixtures that no training saw. {DENSITY}: bandwidth by leave-one-out likelihood."
    return {
        "name": name,
        "title": f"scores of mixtures {where}, from samples of them; {learner.n_layers} blocks",
        "task": {
            "words": f"sigma_t grad log p_t; p_0 is a mixture of up to {task.components} round Gaussians {where}. "
            "The prompt holds samples of it, and no labels.",
            "table": to_table(task),
        },
        "data": {
            "words": f"{prompts:,} prompts, each seen once, drawn by counters from the task. No data of anybody.",
            "prompts": prompts,
            "points": experiment.n_points,
        },
        "learner": {"words": shape, "table": to_table(learner)},
        "training": {"words": trained, "planned": took["steps"], **took, "table": to_table(config)},
        "numbers": {"words": words, "mixtures": unseen.sizes.mixtures, "rows": rows},
        "limits": list(LIMITS),
        "licence": "MIT",
    }
