"""How far is the in-context gradient from the true one? The full matrix of configurations, in units of epsilon.

Protocol: weights N(0, 1/fan_in), zero biases, x ~ N(0, I), d_x = 4, n = 8 examples, 50 seeds, 10 steps, learning rate
0.1; targets N(0, I), mapped into the range of an activated output; labels for the logistic and softmax losses. The
error of a step is ||w_{l+1} - GD(w_l)||_2 / lr, with GD one exact projected step by autograd from the transformer's own
weights; it is divided by epsilon, the sup error of every approximant. Plain interpreter, float64.

    python benchmarks/gradient_error.py            the matrix, the growth curves and the figure (about 20 minutes)
    python benchmarks/gradient_error.py --outputs 8    the matrix at K = 8 with eight outputs
    python benchmarks/gradient_error.py --ramps    piecewise-linear activations, by the width of ramps (two minutes)
    python benchmarks/gradient_error.py --quick    a small part of it, nothing stored
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import innergrad as ig
from _results import store
from innergrad.interpret import plain

SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "silu", "sin")
PIECEWISE = ("relu", "leaky_relu", "relu6")
LOSSES = ("squared", "log-cosh", "pseudo-huber", "logistic", "softmax")
DEPTHS, EPSILONS = (1, 2, 3, 4, 6, 10, 12), (1e-2, 1e-3, 1e-4)
SEEDS, STEPS, N_EXAMPLES, D_X, LR, BOX = 50, 10, 8, 4, 0.1, 8.0
SIN_DOMAIN = 32.0


def limits(N: int) -> tuple[float, float]:
    """Claimed bounds on the median and the 95% quantile."""
    return (5.0, 10.0) if N <= 6 else (10.0, 25.0)


def setting(
    activation: str, loss: str, output: str, bias: bool, N: int, K: int, d_y: int, steps: int = STEPS
) -> ig.GradientDescent:
    net = ig.Network([D_X, *[K] * (N - 1), d_y], activation, output, bias)  # type: ignore[arg-type]
    return ig.GradientDescent(net, loss=loss, lr=LR, steps=steps, box=BOX)


def prompts(algorithm: ig.GradientDescent) -> tuple[Tensor, Tensor, Tensor]:
    drawn = [algorithm.random_prompt(N_EXAMPLES, 0, torch.Generator().manual_seed(seed)) for seed in range(SEEDS)]
    X, y = (torch.stack([prompt[i] for prompt in drawn]) for i in (0, 1))
    return X, y, torch.stack([algorithm.network.init(seed) for seed in range(SEEDS)])


def errors(algorithm: ig.GradientDescent, epsilon: float) -> tuple[Tensor, Tensor]:
    """Gradient error in units of epsilon, (seeds, steps), and the weights (seeds, steps + 1, D_w)."""
    z_bound = SIN_DOMAIN if algorithm.network.activation.name == "sin" else None
    tf = ig.compile(algorithm, epsilon=epsilon, n_examples=N_EXAMPLES, z_bound=z_bound)
    X, y, w0 = prompts(algorithm)
    weights = tf.run(X, y, w0=w0).weights
    return step_errors(algorithm, weights, X, y) / epsilon, weights


def step_errors(algorithm: ig.GradientDescent, weights: Tensor, X: Tensor, y: Tensor) -> Tensor:
    start = weights[:, :-1].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(algorithm.risk(start, X[:, None], y[:, None]).sum(), start)
    ideal = (weights[:, :-1] - algorithm.lr * gradient).clamp(-BOX, BOX)
    error: Tensor = (weights[:, 1:] - ideal).norm(dim=-1) / algorithm.lr
    return error


def cells(
    depths: tuple[int, ...], widths: tuple[int, ...], epsilons: tuple[float, ...], outputs: int | None = None
) -> Iterator[dict[str, Any]]:
    """Every configuration; two outputs (softmax: four) unless their number is given."""
    for epsilon, N, K, activation, loss, output, bias in itertools.product(
        epsilons, depths, widths, SMOOTH, LOSSES, ("linear", "activation"), (True, False)
    ):
        if output == "activation" and loss in ("logistic", "softmax"):
            continue
        d_y = outputs or (4 if loss == "softmax" else 2)
        names = {"activation": activation, "loss": loss, "output": output, "bias": bias}
        yield {**names, "N": N, "K": K, "d_y": d_y, "epsilon": epsilon}


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    found, _ = errors(
        setting(*(cell[key] for key in ("activation", "loss", "output", "bias", "N", "K", "d_y"))), cell["epsilon"]
    )
    flat = found.flatten()
    median, q95, largest = (round(float(value), 4) for value in (flat.median(), flat.quantile(0.95), flat.max()))
    within = median <= limits(cell["N"])[0] and q95 <= limits(cell["N"])[1]
    return {**cell, "median": median, "q95": q95, "max": largest, "within": within}


def growth() -> dict[str, list[dict[str, Any]]]:
    """tanh, squared loss, linear output, biases, epsilon 1e-3: against depth, width, outputs, steps."""

    def row(name: str, value: int, found: Tensor) -> dict[str, Any]:
        return {
            name: value,
            "median": float(found.median()),
            "q95": float(found.flatten().quantile(0.95)),
            "max": float(found.max()),
        }

    def one(N: int, K: int, d_y: int) -> Tensor:
        return errors(setting("tanh", "squared", "linear", True, N, K, d_y), 1e-3)[0]

    curves = {
        "depth": [row("N", N, one(N, 8, 2)) for N in range(1, 13)],
        "width": [row("K", K, one(4, K, 2)) for K in (1, 2, 4, 8, 16, 32)],
        "outputs": [row("d_y", d_y, one(6, 8, d_y)) for d_y in (1, 2, 3, 4, 6, 8)],
        "outputs_deep": [row("d_y", d_y, one(12, 8, d_y)) for d_y in (1, 2, 3, 4, 6, 8)],
    }
    algorithm = setting("tanh", "squared", "linear", True, 3, 8, 2, steps=200)
    found, weights = errors(algorithm, 1e-3)
    X, y, w0 = prompts(algorithm)
    distance = (weights - ig.reference(algorithm, X, y, w0=w0).weights).norm(dim=-1) / 1e-3
    curves["steps"] = [
        {
            **row("step", step, found[:, step - 1]),
            "distance": float(distance[:, step].median()),
            "distance_max": float(distance[:, step].max()),
        }
        for step in (1, 2, 5, 10, 20, 50, 100, 200)
    ]
    return curves


WIDTHS = (2.0**-10, 2.0**-12, 2.0**-20, 2.0**-26)


def ramps(epsilon: float) -> list[dict[str, Any]]:
    """Piecewise-linear activations: the error of steps without a ramp hit is rounding; how often are there hits?"""
    rows = []
    for activation, N, width in itertools.product(PIECEWISE, (2, 3, 6), (WIDTHS[0], WIDTHS[-1])):
        algorithm = setting(activation, "squared", "linear", True, N, 8, 2)
        tf = ig.compile(algorithm, epsilon=epsilon, n_examples=N_EXAMPLES, epsilons={f"{activation}'": width})
        X, y, w0 = prompts(algorithm)
        weights = tf.run(X, y, w0=w0).weights
        found = step_errors(algorithm, weights, X, y)
        hits = torch.stack([count_hits(tf, X[i], y[i], w0[i]) for i in range(SEEDS)])
        off = (weights - ig.reference(algorithm, X, y, w0=w0).weights).abs().amax((1, 2))
        rows.append(
            {
                "activation": activation,
                "N": N,
                "epsilon": epsilon,
                "width": width,
                "heads": tf.n_heads,
                "runs": SEEDS,
                "runs_off": int((off > 1e-6).sum()),
                "steps": hits.numel(),
                "steps_with_hits": int((hits > 0).sum()),
                "max_error_without_hits": _largest(found[hits == 0]),
                "max_error_with_hits": _largest(found[hits > 0]),
            }
        )
    return rows


def rounding() -> list[dict[str, Any]]:
    """How far the matrices are from the program, by the width of ramps; too narrow ones are refused in float32."""
    rows = []
    for activation, width in itertools.product(("relu", "leaky_relu"), WIDTHS):
        algorithm = ig.GradientDescent(ig.Network([D_X, 4, 4, 1], activation), lr=LR, steps=3, box=BOX)
        tf = ig.compile(algorithm, n_examples=N_EXAMPLES, epsilons={f"{activation}'": width})
        X, y, w0 = (part[:10] for part in prompts(algorithm))
        row: dict[str, Any] = {"activation": activation, "width": width}
        for dtype in (torch.float64, torch.float32):
            try:
                dense = tf.run(X, y, w0=w0, dtype=dtype, executor="dense").weights
                plain = tf.run(X, y, w0=w0, dtype=dtype, executor="plain").weights
                row[str(dtype).removeprefix("torch.")] = float((dense - plain).abs().max())
            except ig.InputError:
                row[str(dtype).removeprefix("torch.")] = None
        rows.append(row)
    return rows


def _largest(values: Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def count_hits(tf: ig.CompiledTransformer, X: Tensor, y: Tensor, w0: Tensor) -> Tensor:
    """Ramp hits of every step of one prompt."""
    prompt = tf.prompt(X, y, w0=w0)
    counts, now = [], 0

    def observe(layer: ig.Layer, instruction: ig.Attend, score: ig.Score, argument: Tensor) -> None:
        nonlocal now
        now += int(tf.approximants[score.f.name].hits(argument))

    for _, _, step_ends in plain.run(tf.program, prompt.state(tf.program), tf.approximants, observer=observe):
        if step_ends:
            counts.append(now)
            now = 0
    return torch.tensor(counts)


def run_matrix(configurations: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    started, matrix = time.perf_counter(), []
    for cell in configurations:
        matrix.append(measure(cell))
        if len(matrix) % 100 == 0:
            print(f"{len(matrix)} cells, {time.perf_counter() - started:.0f} s", flush=True)
    outside = [cell for cell in matrix if not cell["within"]]
    print(f"{len(matrix)} cells, {len(outside)} outside the claimed bounds")
    return matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--outputs", type=int, help="the matrix at K = 8 with this many outputs")
    parser.add_argument("--ramps", action="store_true", help="piecewise-linear activations alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.quick:
        run_matrix(cells((1, 3, 6), (4,), (1e-2,)))
    elif arguments.ramps:
        data = {"ramps": ramps(1e-3), "rounding": rounding()}
        store("ramps", "python benchmarks/gradient_error.py --ramps", data)
    elif arguments.outputs:
        matrix = run_matrix(cells(DEPTHS, (8,), EPSILONS, arguments.outputs))
        name = f"gradient_error_{arguments.outputs}_outputs"
        store(name, f"python benchmarks/gradient_error.py --outputs {arguments.outputs}", {"matrix": matrix})
    else:
        matrix = run_matrix(cells(DEPTHS, (4, 8), EPSILONS))
        store("gradient_error", "python benchmarks/gradient_error.py", {"matrix": matrix, "growth": growth()})


if __name__ == "__main__":
    main()
