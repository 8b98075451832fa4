"""Gradient descent in Hugging Face's own classes: its error in every family and every dtype, beside torch's own.

    python benchmarks/llama_families.py            all families, stores results/llama_families.json (a minute)
    python benchmarks/llama_families.py --quick    two families, two prompts, one step; stores nothing

A network 2, 4, 4, 1 of tanh, squared loss, 20 steps of rate 0.5, ten prompts of ten examples and two queries. The model
is the class as it is, in its default attention (sdpa), called as README.md of an export says.

    weights, predictions    the largest distance of an entry to autograd's in float64, over prompts and all tokens
    own                     the same of autograd in that dtype
    refused                 why there is no model of that dtype
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

import innergrad as ig
from _results import read, store

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Row = dict[str, Any]


def reference(tf: ig.CompiledTransformer, prompts: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights (batch, D_w) after the last step, and predictions (batch, n_query, d_y), by autograd in a dtype."""
    X, y, X_query = (part.to(dtype) for part in prompts)
    w0 = tf.algorithm.initial_weights(0)
    assert w0 is not None
    omega = torch.full(X.shape[:2], 1 / X.shape[1], dtype=dtype)
    found = tf.algorithm.reference(X, y, X_query, w0.to(dtype).expand(len(X), -1), omega)
    assert found is not None
    weights, predictions = found
    return weights[:, -1].double(), predictions.double()


def furthest(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).abs().max())


def measured(tf: ig.CompiledTransformer, prompts: tuple[Tensor, ...], family: str, dtype: torch.dtype) -> Row:
    from innergrad.export import llama_inputs, llama_stream, to_llama
    from innergrad.model.prompt import flat_weights

    row = {"family": family, "dtype": str(dtype).removeprefix("torch.")}
    try:
        model = to_llama(tf, dtype, family)
    except ig.InputError as problem:
        return {**row, "refused": str(problem)}
    with torch.no_grad():
        hidden = model(**llama_inputs(tf, tf.stream(*prompts), model)).last_hidden_state
    stream, (weights, predictions) = llama_stream(tf, hidden, model).double(), reference(tf, prompts, torch.float64)
    lanes, config = tf.program.stream.unpack(stream), model.config
    learned = [flat_weights(tf.program, lanes, token) for token in range(stream.shape[1])]
    return {
        **row,
        "model": type(model).__name__,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "width": config.hidden_size,
        "weights": max(furthest(found, weights) for found in learned),
        "predictions": furthest(tf.predictions(stream, prompts[2].shape[1]), predictions),
    }


def measure(quick: bool) -> dict[str, Any]:
    from innergrad.export.families import FAMILIES

    algorithm = ig.GradientDescent(ig.Network([2, 4, 4, 1]), lr=0.5, steps=1 if quick else 20, box=None)
    tf = ig.compile(algorithm, target="llama")
    drawn = [algorithm.random_prompt(10, 2, torch.Generator().manual_seed(i)) for i in range(2 if quick else 10)]
    X, y, X_query = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    prompts, families = (X, y, X_query), list(FAMILIES)[-3:-1] if quick else list(FAMILIES)
    exact = reference(tf, prompts, torch.float64)
    own = [
        {
            "dtype": str(dtype).removeprefix("torch."),
            **dict(zip(("weights", "predictions"), map(furthest, reference(tf, prompts, dtype), exact), strict=True)),
        }
        for dtype in DTYPES[1:]
    ]
    rows = [measured(tf, prompts, family, dtype) for family in families for dtype in DTYPES]
    return {"own": own, "families": rows}


def families() -> list[str]:
    """Family by dtype: error of weights / of predictions."""
    stored = read("llama_families")
    names = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    lines = [f"| `--family` | class | heads (keys and values) | width | {' | '.join(names)} |", "|---" * 8 + "|"]
    cells = {(row["family"], row["dtype"]): row for row in stored["families"]}
    for family in dict.fromkeys(row["family"] for row in stored["families"]):
        shown = cells[family, "float32"]
        sizes = f"{shown['model']} | {shown['heads']} ({shown['kv_heads']}) | {shown['width']}"
        lines.append(f"| `{family}` | {sizes} | {' | '.join(_cell(cells[family, name]) for name in names)} |")
    own = {row["dtype"]: row for row in stored["own"]}
    lines.append(f"| *autograd in that dtype* | | | | | {' | '.join(_cell(own[name]) for name in names[1:])} |")
    return lines


def _cell(row: Row) -> str:
    return "refused" if "refused" in row else f"{row['weights']:.0e} / {row['predictions']:.0e}"


TABLES = {"families": families}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    found = measure(quick)
    for row in (*found["own"], *found["families"]):
        print(row)
    if not quick:
        store("llama_families", "python benchmarks/llama_families.py", found)


if __name__ == "__main__":
    main()
