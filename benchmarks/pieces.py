"""Pieces of the approximants against the whole-line formula 1/4 int sqrt|f''| epsilon^-1/2, and against epsilon^-2.

python benchmarks/pieces.py    writes results/pieces.json (half a minute)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.integrate import quad

import innergrad as ig
from _results import no_arguments, store

EPSILONS = (1e-2, 1e-3, 1e-4, 1e-5)


def whole_line_constant(f: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """1/4 int sqrt|f''| over the whole line; f'' by autograd, twice."""

    def root(t: float) -> float:
        x = torch.tensor(t, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(f(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first, x)
        return math.sqrt(abs(float(second)))

    total = sum(quad(root, a, a + 1, limit=200)[0] for a in range(-60, 60))
    return float(total) / 4


def main() -> None:
    rows = []
    for name in ("tanh", "sigmoid", "softplus", "gelu", "silu"):
        r = ig.ACTIVATIONS[name].r
        constant = whole_line_constant(r)
        for epsilon in EPSILONS:
            f = ig.approximate(r, epsilon)
            formula = constant * epsilon**-0.5
            rows.append(
                {
                    "activation": name,
                    "epsilon": epsilon,
                    "pieces": f.pieces,
                    "formula": round(formula, 2),
                    "error": f.error,
                }
            )
            print(rows[-1])
    store("pieces", "python benchmarks/pieces.py", {"pieces": rows})


if __name__ == "__main__":
    no_arguments(__doc__)
    main()
