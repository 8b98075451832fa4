"""Blocks a step of the variants of target llama, and what the same network takes on other targets -> llama_cost.json

python benchmarks/llama_cost.py    (five minutes)

blocks: counted on the transformer, for N layers, every exact loss, and an activated output (loss "squared, activated").
compared: ``tf.cost().compare()``, with the largest error of the weights over five prompts of ten examples after 20
steps at lr 0.5, against autograd in float64; in float32 fits are for float32, epsilon = 1e-5. own: autograd's in
float32.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import torch

import innergrad as ig
from _results import read, store

VARIANTS = ("chain", "wide", "widest", "shortest")
LOSSES = ("squared", "logistic", "log-cosh", "softmax", "squared, activated")
DEPTHS = range(1, 7)
NETWORKS = ([2, 4, 4, 1], [2, 8, 8, 1], [4, 8, 8, 8, 2])
TARGETS = ("relu", "softmax", "gpt", "llama")
MEASURED = {"softmax", "gpt", "llama"}
SHOWN = {
    ("relu", "literal"),
    *(("softmax", variant) for variant in ("sink", "markers")),
    *(("gpt", variant) for variant in ("pre-ln", "markers")),
    *(("llama", variant) for variant in VARIANTS),
}
PROMPTS, EXAMPLES, STEPS = 5, 10, 20
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def descent(sizes: list[int], steps: int = 2, **settings: Any) -> ig.GradientDescent:
    output = settings.pop("output", "linear")
    return ig.GradientDescent(ig.Network(sizes, "tanh", output), lr=0.5, steps=steps, box=None, **settings)


def blocks() -> list[dict[str, Any]]:
    """None: the variant refuses."""
    found = list[dict[str, Any]]()
    for loss in LOSSES:
        name, _, activated = loss.partition(", ")
        for N in DEPTHS:
            output = "activation" if activated else "linear"
            algorithm = descent([2, *[3] * (N - 1), 2], loss=name, output=output)
            row: dict[str, Any] = {"loss": loss, "N": N}
            for variant in VARIANTS:
                try:
                    row[variant] = ig.compile(algorithm, target="llama", variant=variant).cost().blocks_a_step
                except ig.InputError:
                    row[variant] = None
            found.append(row)
    return found


def compared(sizes: list[int]) -> dict[str, Any]:
    algorithm = descent(sizes, STEPS)
    comparison = ig.compile(algorithm, target="llama").cost().compare(*TARGETS).to_json()
    prompts = [algorithm.random_prompt(EXAMPLES, 1, torch.Generator().manual_seed(seed)) for seed in range(PROMPTS)]
    truths = [ig.reference(algorithm, *prompt).weights for prompt in prompts]
    for row in comparison["rows"]:
        if row["target"] in MEASURED and row["variant"] != "raw":
            row |= {name: error(algorithm, row, prompts, truths, dtype) for name, dtype in DTYPES.items()}
    own = max(own_error(algorithm, *pair) for pair in zip(prompts, truths, strict=True))
    return {"sizes": sizes, **comparison, "own": own}


def error(algorithm: ig.GradientDescent, row: dict[str, Any], prompts: Any, truths: Any, dtype: torch.dtype) -> float:
    """Of the dense transformer."""
    epsilon = 1e-5 if dtype == torch.float32 and row["target"] != "llama" else row["epsilon"]
    tf = ig.compile(algorithm, target=row["target"], variant=row["variant"], epsilon=epsilon, z_bound=16.0)
    runs = (tf.run(*prompt, executor="dense", dtype=dtype).weights.double() for prompt in prompts)
    return max(float((run - truth).abs().max()) for run, truth in zip(runs, truths, strict=True))


def own_error(algorithm: ig.GradientDescent, prompt: Any, truth: torch.Tensor) -> float:
    X, y, X_query = (part.float()[None] for part in prompt)
    omega = torch.full(X.shape[:2], 1 / X.shape[1])
    found = algorithm.reference(X, y, X_query, truth[:1].float(), omega)
    assert found is not None
    return float((found[0][0].double() - truth).abs().max())


def blocks_table() -> list[str]:
    rows = read("llama_cost")["blocks"]
    lines = ["| loss | variant | " + " | ".join(f"N = {N}" for N in DEPTHS) + " |", "|---|---|" + "---|" * len(DEPTHS)]
    groups = dict[tuple[tuple[float | None, ...], ...], list[str]]()
    for loss in LOSSES:
        found = {row["N"]: row for row in rows if row["loss"] == loss}
        groups.setdefault(tuple(tuple(found[N][v] for N in DEPTHS) for v in VARIANTS), []).append(loss)
    for counts, losses in groups.items():
        for variant, counted in zip(VARIANTS, counts, strict=True):
            if any(count is not None for count in counted):
                cells = " | ".join("—" if count is None else str(count) for count in counted)
                lines.append(f"| {'; '.join(losses)} | `{variant}` | {cells} |")
    return lines


def compared_table() -> list[str]:
    lines = [
        "| network | target, variant | blocks a step | heads | width | units | nonzeros | float64 | float32 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for network in read("llama_cost")["compared"]:
        name = ", ".join(map(str, network["sizes"]))
        for row in (row for row in network["rows"] if (row["target"], row["variant"]) in SHOWN):
            sizes = [row[key] for key in ("blocks_a_step", "heads", "width", "units", "parameters")]
            errors = [f"{row[dtype]:.0e}" if dtype in row else "" for dtype in DTYPES]
            cells = [name, f"{row['target']}, `{row['variant']}`", *(f"{n:,}" for n in sizes), *errors]
            lines.append(f"| {' | '.join(cells)} |")
        layers, width, heads = (text.rpartition(" = ")[2] for text in network["paper"].values())
        lines.append(f"| {name} | *the paper* | {int(layers) // STEPS} layers | {heads} | {width} | | | | |")
        lines.append(f"| {name} | *autograd* | | | | | | | {network['own']:.0e} |")
    return lines


TABLES = {"llama_blocks": blocks_table, "llama_compared": compared_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None)
    out = parser.parse_args().out
    warnings.simplefilter("ignore")
    data = {"blocks": blocks(), "compared": [compared(sizes) for sizes in NETWORKS]}
    store("llama_cost", "python benchmarks/llama_cost.py", data, out)


if __name__ == "__main__":
    main()
