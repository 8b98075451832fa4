"""Optimisers beside torch.optim: distance of the exact programs, layers that settings add, and Adam's function.

Writes results/optimisers.json and prints the tables (a minute, one thread); ``--tables``: only the tables.

    rules     the rules of tests/test_optimisers.py, six steps each: largest distance of a weight of the exact program
              (float64, the functions themselves) to torch.optim's, over all steps
    layers    layers a step by setting and variant, on a network of depth 3
    adam      network [3, 4, 4, 2], lr = 0.02, 20 steps, epsilon = 1e-4 for tanh and its derivative: what delta and the
              accuracy of 1 / (1 + sqrt) do to a step and to the path
    pieces    of the approximant of 1 / (1 + sqrt), on the whole half-line, and its rounding for t up to 1e16
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import innergrad as ig
from _results import read, store
from innergrad.functions.adam import ADAM
from innergrad.functions.approximants import approximate
from innergrad.functions.scalar import hinge_sum
from innergrad.model.prompt import make_prompt
from innergrad.transformer import exact_run
from variants import VARIANTS, table

DELTAS, EPSILONS = (0.1, 0.01, 0.001), (1e-2, 1e-3, 1e-4)
SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "weight_decay": {"weight_decay": 0.1},
    "l1": {"l1": 0.1},
    "lr a sequence": {"lr": (0.2, 0.1)},
    "batches": {"batches": ((0, 1), (2, 3))},
    "clip": {"clip": 1.0},
    "ball": {"ball": 1.0},
    "Adam": {"adam": True},
    "Adam, clip": {"adam": True, "clip": 1.0},
}


def rules() -> list[dict[str, Any]]:
    """The rules, and torch.optim's paths, are those of the tests."""
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    import test_optimisers as oracle  # type: ignore[import-not-found]

    X, y, _ = oracle.prompt()
    w0, rows = oracle.NET.init(1), []
    for i, (name, rule) in enumerate(oracle.RULES.items()):
        schedule = list(oracle.SCHEDULES)[i % len(oracle.SCHEDULES)]
        rates, scheduler = oracle.SCHEDULES[schedule]
        algorithm = oracle.algorithm_of(rule, rates)
        program = algorithm.program(ig.Options(n_examples=len(X)))
        checked = make_prompt(algorithm, program, X, y, None, w0, None, seed=0, dtype=torch.float64)
        expected = oracle.by_torch(rule, scheduler, X, y, w0, len(rates))
        distance = float((exact_run(program, checked)[0][0] - expected).abs().max())
        moved = float((expected[-1] - expected[0]).norm())
        rows.append({"rule": name, "schedule": schedule, "steps": len(rates), "distance": distance, "moved": moved})
    return rows


def layers(N: int = 3) -> list[dict[str, Any]]:
    """Layers a step, and by how many they are more than those of plain descent."""
    network, rows = ig.Network([3] + [2] * N), []
    for variant in VARIANTS:
        plain = _layers(ig.GradientDescent(network), variant)
        for name, given in SETTINGS.items():
            own = {key: value for key, value in given.items() if key != "adam"}
            algorithm = (ig.Adam if "adam" in given else ig.GradientDescent)(network, **own)
            count = _layers(algorithm, variant)
            rows.append({"setting": name, "variant": variant, "N": N, "layers": count, "more": count - plain})
    return rows


def _layers(algorithm: ig.GradientDescent, variant: str) -> float:
    return ig.compile(algorithm, variant=variant, epsilon=1e-2, n_examples=4).cost().layers_a_step


def adam(steps: int = 20) -> list[dict[str, Any]]:
    network, rows = ig.Network([3, 4, 4, 2]), []
    X, y, _ = ig.GradientDescent(network).random_prompt(8, 1, torch.Generator().manual_seed(0))
    w0 = network.init(1)
    for delta in DELTAS:
        algorithm = ig.Adam(network, lr=0.02, steps=steps, delta=delta)
        exact = ig.reference(algorithm, X, y, w0=w0).weights
        for epsilon in EPSILONS:
            tf = ig.compile(algorithm, epsilon=1e-4, epsilons={"adam": epsilon}, n_examples=8)
            distance = (tf.run(X, y, w0=w0).weights - exact).norm(dim=-1)
            certificate = tf.certify(X, y, w0=w0, trajectory=True)
            finite = steps if certificate.diverged is None else certificate.diverged - 1
            rows.append(
                {
                    "delta": delta,
                    "epsilon": epsilon,
                    "heads": len(tf.approximants["adam"].hinges),
                    "first": float(distance[1]),
                    "bound": certificate.bounds[0],
                    "last": float(distance[-1]),
                    "finite": finite,  # steps whose distance to the exact path is bounded
                }
            )
    return rows


def pieces() -> list[dict[str, Any]]:
    rows = []
    t = torch.cat([torch.zeros(1), torch.logspace(-24, 16, 100_001)]).double()
    for epsilon in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        f = approximate(ADAM, epsilon)
        rounding = {
            name: float((hinge_sum(f, t.to(dtype)) - f(t.to(dtype))).abs().max())
            for name, dtype in (("float64", torch.float64), ("float32", torch.float32))
        }
        rows.append({"epsilon": epsilon, "pieces": f.pieces, "formula": 1.092 * epsilon**-0.5, **rounding})
    return rows


# --------------------------------------------------------------------------------------------------------------- tables


def table_of_rules() -> list[str]:
    rows = read("optimisers")["rules"]
    lines = [
        [row["rule"], row["schedule"], row["steps"], f"{row['moved']:.1f}", f"{row['distance']:.0e}"] for row in rows
    ]
    return table(["rule", "rates", "steps", "length of the way", "largest distance"], lines)


def table_of_layers() -> list[str]:
    rows = read("optimisers")["layers"]
    more = {(row["setting"], row["variant"]): row["more"] for row in rows}
    lines = [[name, *(f"+ {more[name, variant]}" for variant in VARIANTS)] for name in SETTINGS]
    return table(["setting", *(f"`{variant}`" for variant in VARIANTS)], lines)


def table_of_adam() -> list[str]:
    rows, lines = read("optimisers")["adam"], []
    for delta in dict.fromkeys(row["delta"] for row in rows):
        group = [row for row in rows if row["delta"] == delta]
        cells = [" / ".join(f"{row['epsilon']:.0e}" for row in group), " / ".join(str(row["heads"]) for row in group)]
        cells += [" / ".join(f"{row[key]:.1e}" for row in group) for key in ("first", "bound", "last")]
        cells.append(" / ".join(str(row["finite"]) for row in group))
        lines.append([f"{delta:g}", *cells])
    head = ["delta", "epsilon of adam", "heads a weight", "error of step 1", "its certificate"]
    return table([*head, "distance after 20 steps", "steps with a bound on the path"], lines)


def table_of_pieces() -> list[str]:
    rows = read("optimisers")["pieces"]
    lines: list[list[object]] = [["pieces (1.092 ε^−½)", *(f"{row['pieces']} ({row['formula']:.1f})" for row in rows)]]
    for dtype in ("float64", "float32"):
        lines.append([f"rounding, {dtype}", *(f"{row[dtype]:.0e}" for row in rows)])
    return table(["ε", *(f"{row['epsilon']:.0e}" for row in rows)], lines)


TABLES: dict[str, Callable[[], list[str]]] = {
    "optimiser_rules": table_of_rules,
    "optimiser_layers": table_of_layers,
    "adam": table_of_adam,
    "adam_pieces": table_of_pieces,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="print the tables of stored results")
    if not parser.parse_args().tables:
        data = {"rules": rules(), "layers": layers(), "adam": adam(), "pieces": pieces()}
        store("optimisers", "python benchmarks/optimisers.py", data)
    for name, lines in TABLES.items():
        print("", name, *lines(), sep="\n")


if __name__ == "__main__":
    main()
