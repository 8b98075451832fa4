"""Gradient descent on target relu in its four variants: depth, width, heads, weights and the error of the gradient.

Writes results/variants.json and prints the tables (a minute, one thread); ``--tables``: only the tables.

    variants   tanh networks of sizes 4, 4, ..., 2 with biases, linear output, squared loss, N = 2 .. 6, epsilon = 1e-3,
               n_examples = 16; the error of the gradient as in gradient_error.py, 20 prompts, steps 1, 4, 7 and 10
    widths     literal and narrow, sizes 2, K, K, 2 without biases, one step: what grows with K, and how
    knots      pieces of r and r' at epsilon = 1e-3, each alone and on joint knots
    jacobians  lanes that carry the Jacobians of shallow
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import innergrad as ig
from _results import read, store
from gradient_error import setting, step_errors

VARIANTS = ("literal", "compact", "shallow", "narrow")
DEPTHS, WIDTHS = (2, 3, 4, 5, 6), (4, 8, 16, 32, 64)
K, D_Y, N_EXAMPLES, EPSILON = 4, 2, 16, 1e-3
SEEDS, SHOWN = 20, (1, 4, 7, 10)  # steps whose gradient is compared
PATHS = (5, 10)  # steps after which the path is bounded
SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "silu")


def compiled(algorithm: ig.GradientDescent, variant: str) -> ig.CompiledTransformer:
    return ig.compile(algorithm, variant=variant, epsilon=EPSILON, n_examples=N_EXAMPLES)


# ------------------------------------------------------------------------------------------------------------- variants


def variants(depths: tuple[int, ...] = DEPTHS, seeds: int = SEEDS) -> list[dict[str, Any]]:
    """dense, step, path: of the first prompt. step: the bound on the gradient of step 1; path: on the weights."""
    rows = []
    for N in depths:
        algorithm = setting("tanh", "squared", "linear", True, N, K, D_Y)
        X, y, w0 = prompts(algorithm, seeds)
        transformers = {variant: compiled(algorithm, variant) for variant in VARIANTS}
        weights = {variant: tf.run(X, y, w0=w0).weights for variant, tf in transformers.items()}
        for variant, tf in transformers.items():
            dense = tf.run(X[0], y[0], w0=w0[0], executor="dense").weights
            certificate = tf.certify(X[0], y[0], w0=w0[0], trajectory=True)
            errors = step_errors(algorithm, weights[variant], X, y)[:, [step - 1 for step in SHOWN]] / EPSILON
            rows.append(
                {
                    **sizes(tf, N, variant),
                    "median": float(errors.median()),
                    "max": float(errors.max()),
                    "dense": float((dense - weights[variant][0]).abs().max()),  # against the plain run
                    "literal": float((weights[variant] - weights["literal"]).abs().max()),
                    "step": certificate.gradient[0],
                    **{f"path_{steps}": _finite(certificate.weights[steps - 1]) for steps in PATHS},
                }
            )
    return rows


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def prompts(algorithm: ig.GradientDescent, seeds: int) -> tuple[Tensor, Tensor, Tensor]:
    drawn = [algorithm.random_prompt(N_EXAMPLES, 0, torch.Generator().manual_seed(seed)) for seed in range(seeds)]
    X, y = (torch.stack([prompt[i] for prompt in drawn]) for i in (0, 1))
    return X, y, torch.stack([algorithm.network.init(seed) for seed in range(seeds)])


def sizes(tf: ig.CompiledTransformer, N: int, variant: str) -> dict[str, Any]:
    """heads: of the attention and product layers of a step; widest: of the attention layers."""
    cost = tf.cost()
    return {
        "N": N,
        "variant": variant,
        "layers": cost.layers_a_step,
        "sublayers": cost.sublayers_a_step,
        "readout": cost.n_readout_layers,
        "width": cost.d_model,
        "heads": sum(row.heads for row in cost.rows if row.times and row.kind != "mlp"),
        "widest": cost.totals()["heads of the widest layer"],
        "nonzeros": cost.nonzeros,
        "tokens": cost.n_tokens,
    }


def jacobians(depths: tuple[int, ...] = DEPTHS) -> list[dict[str, Any]]:
    rows = []
    for N in depths:
        stream = setting("tanh", "squared", "linear", True, N, K, D_Y).program(ig.Options(variant="shallow")).stream
        carried = sum(lane.size for lane in stream.lanes if lane.name.startswith("T"))
        rows.append({"N": N, "K": K, "lanes": carried, "width": stream.d_model})
    return rows


# --------------------------------------------------------------------------------------------------------------- widths


def widths(widths: tuple[int, ...] = WIDTHS) -> list[dict[str, Any]]:
    """Literal and narrow, N = 3, one step and the read-out."""
    rows = []
    for hidden in widths:
        algorithm = ig.GradientDescent(ig.Network([2, hidden, hidden, 2], bias=False), steps=1)
        for variant in ("literal", "narrow"):
            tf = compiled(algorithm, variant)
            totals = tf.cost().totals()
            flops = {"flops_dense": totals["FLOPs (D x D heads)"], "flops_structured": totals["FLOPs (structured)"]}
            rows.append({"K": hidden, **sizes(tf, 3, variant), **flops, "norm": float(totals["norm B_theta"])})
    return rows


def fits(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The straight line of least squares through the widths; residual: the largest, relative to the width."""
    found = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        x, y = np.array([(row["K"], row["width"]) for row in rows if row["variant"] == variant], dtype=float).T
        slope, intercept = np.polyfit(x, y, 1)
        residual = np.abs(slope * x + intercept - y) / y
        found.append({"variant": variant, "slope": slope, "intercept": intercept, "residual": residual.max()})
    return found


# ---------------------------------------------------------------------------------------------------------------- knots


def knots(activations: tuple[str, ...] = SMOOTH) -> list[dict[str, Any]]:
    rows = []
    for name in activations:
        algorithm = setting(name, "squared", "linear", True, 2, K, D_Y)
        alone, joint = (pieces(compiled(algorithm, variant)) for variant in ("literal", "compact"))
        rows.append({"activation": name, "r": alone[0], "dr": alone[1], "joint": max(joint)})
    return rows


def pieces(tf: ig.CompiledTransformer) -> tuple[int, int]:
    """Of r and r'."""
    activation = tf.algorithm.network.activation  # type: ignore[attr-defined]
    r, dr = (tf.approximants[f.name].pieces for f in (activation.r, activation.dr))  # type: ignore[union-attr]
    return r, dr


# --------------------------------------------------------------------------------------------------------------- tables


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]


def table_of_variants() -> list[str]:
    """Sizes, and the error of the gradient in units of epsilon."""
    head = ["N", "variant", "layers a step", "sublayers", "read-out", "width", "heads", "widest layer", "nonzeros"]
    rows = []
    for row in read("variants")["variants"]:
        cells = [row["N"], f"`{row['variant']}`", *(row[key] for key in ("layers", "sublayers", "readout", "width"))]
        cells += [f"{row[key]:,}" for key in ("heads", "widest", "nonzeros", "tokens")]
        rows.append([*cells, f"{row['median']:.2f}", f"{row['max']:.1f}"])
    return table([*head, "tokens", "error: median", "max"], rows)


def table_of_agreement() -> list[str]:
    """Dense runs against plain ones, variants against literal; largest over all depths."""
    rows, lines = read("variants")["variants"], []
    for variant in VARIANTS:
        own = [row for row in rows if row["variant"] == variant]
        largest = [f"{max(row[key] for row in own):.0e}" for key in ("dense", "literal")]
        lines.append([f"`{variant}`", largest[0], "" if variant == "literal" else largest[1]])
    return table(["variant", "dense − plain", "weights − those of `literal`"], lines)


def table_of_bounds() -> list[str]:
    """Certificates by depth and variant: a step, the path."""
    rows, lines = read("variants")["variants"], []
    for N in dict.fromkeys(row["N"] for row in rows):
        cells: list[object] = [N]
        for row in (row for row in rows if row["N"] == N):
            path = ("inf" if (bound := row[f"path_{steps}"]) is None else f"{bound:.1e}" for steps in PATHS)
            cells.append(" / ".join([f"{row['step']:.1e}", *path]))
        lines.append(cells)
    return table(["N", *(f"`{variant}`" for variant in VARIANTS)], lines)


def table_of_jacobians() -> list[str]:
    rows = read("variants")["jacobians"]
    lines = [f"| N | {' | '.join(str(row['N']) for row in rows)} |", "|---" * (len(rows) + 1) + "|"]
    for name, key in (("lanes of Jacobians", "lanes"), ("width", "width")):
        lines.append(f"| {name} | {' | '.join(str(row[key]) for row in rows)} |")
    return lines


def table_of_widths() -> list[str]:
    """Literal -> narrow, by K; and the straight lines through the widths."""
    stored = read("variants")
    keys = ("width", "widest", "heads", "nonzeros", "tokens")
    lines = []
    for hidden in dict.fromkeys(row["K"] for row in stored["widths"]):
        pair = [row for row in stored["widths"] if row["K"] == hidden]
        cells = [" → ".join(f"{row[key]:,}" for row in pair) for key in keys]
        cells += [" → ".join(f"{row[key]:.1e}" for row in pair) for key in ("flops_dense", "flops_structured")]
        lines.append([hidden, *cells, " → ".join(f"{row['norm']:,.0f}" for row in pair)])
    head = ["K", "width", "widest attention layer", "heads, with product layers", "nonzeros", "tokens"]
    found = [
        f"`{fit['variant']}`, {fit['slope']:.4g} K {'+' if fit['intercept'] >= 0 else '−'} "
        f"{abs(fit['intercept']):.4g}, largest residual {fit['residual']:.0%} of the width"
        for fit in stored["fits"]
    ]
    text = f"The best straight lines through the widths: {'; '.join(found)}."
    return [*table([*head, "FLOPs, D × D heads", "FLOPs, structured", "norm B_θ"], lines), "", text]


def table_of_knots() -> list[str]:
    rows = [[row["activation"], row["r"], row["dr"], row["joint"]] for row in read("variants")["knots"]]
    return table(["", "r alone", "r′ alone", "together"], rows)


TABLES: dict[str, Callable[[], list[str]]] = {
    "variants": table_of_variants,
    "variant_agreement": table_of_agreement,
    "variant_bounds": table_of_bounds,
    "variant_jacobians": table_of_jacobians,
    "variant_widths": table_of_widths,
    "variant_knots": table_of_knots,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="print the tables of stored results")
    if not parser.parse_args().tables:
        by_width = widths()
        data = {"variants": variants(), "jacobians": jacobians(), "widths": by_width, "fits": fits(by_width)}
        store("variants", "python benchmarks/variants.py", {**data, "knots": knots()})
    for name, lines in TABLES.items():
        print("", name, *lines(), sep="\n")


if __name__ == "__main__":
    main()
