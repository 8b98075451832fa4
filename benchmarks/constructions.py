"""Every construction on every target: its size, and its error in float64 and float32 against the algorithm itself.

    python benchmarks/constructions.py                 writes results/constructions.json (five minutes on one core)
    python benchmarks/constructions.py --rows RAW      only the constructions with this in their name, the others kept

Errors are those of the *module* (real matrices), largest over the prompts, against the algorithm by other means: the
recursion in function space, numpy and autograd loops, normal equations, scikit-learn; see each row's ``against``.
float64 is compiled with epsilon = 1e-9, float32 with epsilon = 1e-5 (target gpt; relu says its own).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from torch import Tensor

import innergrad as ig
from _results import read, renew, store
from innergrad.algorithms.lookup import table_rows
from innergrad.export import export_onnx, gpt2_inputs, gpt2_stream, to_gpt2
from innergrad.functions.decay import decay_condition
from innergrad.functions.fits import smooth
from innergrad.functions.fits.sigmas import SIGMAS

F32, F64 = torch.float32, torch.float64
EPSILON = {F64: 1e-9, F32: 1e-5}
Data = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Row:
    name: str
    paper: str
    algorithm: ig.Algorithm
    target: str
    variant: str | None
    n: int
    says: str
    ours: str
    what: str = "predictions"
    against: str = "the recursion in function space"
    options: tuple[tuple[str, Any], ...] = ()


KERNEL = "one layer a step, exact"
FGD = ig.FunctionalGradientDescent
BLOCKS = {"relu": "ReLU attention, MLP, products", "kernel": "kernel attention", "pre-ln": "GPT-2's (pre-LN)"}
NETWORK = ig.Network([2, 4, 4, 2], "tanh")
G = np.diag([1.0, 1.0, 0.5, 1.5, 1.0])


def rows() -> list[Row]:
    sgd = "O(1) layers a step, O(d) wide (Theorem 1); 9 in App. A"
    rls = "O(1) layers a step, O(d²) wide (Theorem 2); 14 in App. B"
    numpy_loop, ridge = "a numpy loop of (11)", "scikit-learn's Ridge, refitted on every prefix"
    bounded = (("x_bound", 4.0),)
    made = [
        Row(
            f"functional GD, {name}, 64 layers", "Cheng et al.", FGD(kernel, steps=64), "kernel", None, 14, KERNEL, ours
        )
        for name, kernel, ours in (
            ("linear kernel", "linear", "Prop. 3.1 with the gradient instead of its direction"),
            ("exp kernel", "exp", "the same"),
            ("softmax", "softmax", "not a kernel; its own fixed point"),
            (
                "linear + exp(G·)·linear",
                ig.Kernel("linear") + ig.Kernel("exp", G=G) * ig.Kernel("linear"),
                "sums of heads (Prop. D.1), products of scores in one head",
            ),
        )
    ]
    for variant in ("pre-ln", "raw"):
        made += [
            Row(
                "functional GD, exp kernel, 64 layers",
                "Cheng et al. 2024",
                FGD("exp", steps=64),
                "gpt",
                variant,
                14,
                "not given",
                "heavy sink: un-normalised exp on standard softmax",
            ),
            Row(
                "functional GD, linear kernel, 32 layers",
                "Cheng et al. 2024",
                FGD("linear", steps=32),
                "gpt",
                variant,
                14,
                "not given",
                "linear attention from eight exp heads",
            ),
            Row(
                "SGD, d = 8",
                "Akyürek et al. 2023",
                ig.OnlineSGD(d=8, lr=0.05),
                "gpt",
                variant,
                40,
                sgd,
                "2 blocks an example, all prefixes",
                "weights",
                numpy_loop,
                bounded,
            ),
            Row(
                "ridge by RLS, d = 8",
                "Akyürek et al. 2023",
                ig.RecursiveLeastSquares(d=8, ridge=0.5),
                "gpt",
                variant,
                40,
                rls,
                "3 blocks an example, all prefixes, predictive std",
                "online predictions",
                ridge,
                bounded,
            ),
            Row(
                "ridge by RLS, d = 8, penalty 0.01",
                "Akyürek et al. 2023",
                ig.RecursiveLeastSquares(d=8, ridge=0.01),
                "gpt",
                variant,
                40,
                rls,
                "the same; the smaller the penalty, the worse the condition",
                "online predictions",
                ridge,
                bounded,
            ),
            Row(
                "ridge, the paper's A⁻¹b, d = 8",
                "Akyürek et al. 2023",
                ig.RecursiveLeastSquares(d=8, ridge=0.5, form="sherman-morrison"),
                "gpt",
                variant,
                40,
                rls,
                "as printed, corrected; b grows with n",
                "online predictions",
                ridge,
                (*bounded, ("z_bound", 128.0)),
            ),
        ]
    w = tuple(np.random.default_rng(4).normal(size=8).tolist())
    nine, fourteen = ig.raw.OneStepSGD(d=8, lr=0.2, weight_decay=0.3, w=w), ig.raw.OneStepRidge(d=8, ridge=0.5)
    for variant in ("pre-ln", "raw"):
        for name, chain, says, ours, against in (
            ("one step of SGD", nine, "9 layers (App. A)", "9 operations, in 7 blocks", "a numpy step of (11)"),
            ("ridge on one example", fourteen, "14 layers (App. B)", "14 operations, in 12 blocks", "numpy's inverse"),
        ):
            row = Row(
                f"{name} by RAW primitives, d = 8",
                "Akyürek et al.",
                chain,
                "gpt",
                variant,
                1,
                says,
                ours,
                against=against,
            )
            made.append(row)
    autograd = "torch autograd"
    average, sink = "4N - 1 blocks a step, explicit", "2N + 1 blocks a step, explicit"
    for steps in (1, 20):
        for target, variant, ours in (
            ("gpt", "pre-ln", average),
            ("gpt", "raw", average),
            ("softmax", "mean", average),
            ("softmax", "sink", sink),
        ):
            made.append(
                Row(
                    f"gradient descent, N = 3, K = 4, {steps} step{'s' * (steps > 1)}",
                    "*Deep Optimizers*",
                    ig.GradientDescent(NETWORK, steps=steps),
                    target,
                    variant,
                    8,
                    "existence only (App. F)",
                    ours,
                    "weights",
                    autograd,
                )
            )
    for sizes, variant, says, ours in (
        ([3, 6, 1], "backprop", "2 layers (Theorem 1)", "the same"),
        ([2, 4, 4, 1], "recursion", "a_n = O(n²) layers (Theorem 2)", "the same: a_3 = 6"),
        ([2, 4, 4, 1], "backprop", "a_n = O(n²) layers (Theorem 2)", "2n - 1"),
        ([2, 3, 3, 3, 1], "recursion", "a_n = O(n²) layers (Theorem 2)", "the same: a_4 = 11"),
        ([2, 3, 3, 3, 1], "backprop", "a_n = O(n²) layers (Theorem 2)", "2n - 1"),
    ):
        made.append(
            Row(
                f"gradient descent, sizes {', '.join(map(str, sizes))}, 5 steps",
                "*Neural Networks*",
                ig.GradientDescent(ig.Network(sizes, "tanh", bias=False), steps=5),
                "sigma",
                variant,
                8,
                says,
                ours,
                "weights",
                autograd,
            )
        )
    made.append(
        Row(
            "gradient descent, N = 3, K = 4, 1 step",
            "*Deep Optimizers*",
            ig.GradientDescent(NETWORK, steps=1),
            "relu",
            None,
            8,
            "(2N+4) layers a step (Theorem 1)",
            "the same, ε = 1e-3 proven",
            "weights",
            autograd,
            (("epsilon", 1e-3),),
        )
    )
    return made


def prompts(algorithm: ig.Algorithm, n: int, batch: int) -> Data:
    generator = torch.Generator().manual_seed(2024)
    drawn = [algorithm.random_prompt(n, 2, generator) for _ in range(batch)]
    X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
    return X, y, X_query


def truth(row: Row, X: Tensor, y: Tensor, X_query: Tensor) -> Tensor:
    """What the algorithm gives, by other means than the program."""
    algorithm = row.algorithm
    if isinstance(algorithm, ig.OnlineSGD):
        return torch.from_numpy(np.stack([_sgd(algorithm, *pair) for pair in zip(X.numpy(), y.numpy(), strict=True)]))
    if isinstance(algorithm, ig.RecursiveLeastSquares):
        return torch.from_numpy(np.stack([_ridge(algorithm, *pair) for pair in zip(X.numpy(), y.numpy(), strict=True)]))
    if isinstance(algorithm, ig.raw.OneStepSGD | ig.raw.OneStepRidge):
        solved = [_one_example(algorithm, *pair) for pair in zip(X[:, 0].numpy(), y[:, 0, 0].numpy(), strict=True)]
        return X_query @ torch.from_numpy(np.stack(solved)).unsqueeze(-1)
    run = ig.reference(algorithm, X, y, X_query)
    return run.weights if row.what == "weights" else run.predictions


def _sgd(algorithm: ig.OnlineSGD, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    path = [np.zeros(algorithm.d)]
    for x, target in zip(X, y[:, 0], strict=True):
        w = path[-1]
        path.append(w - algorithm.lr * (x * (w @ x - target) + 2 * algorithm.weight_decay * w))
    return np.stack(path)


def _ridge(algorithm: ig.RecursiveLeastSquares, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = [0.0]
    for t in range(1, len(X)):
        model = Ridge(alpha=algorithm.ridge, fit_intercept=False, solver="cholesky").fit(X[:t], y[:t, 0])
        found.append(float(model.predict(X[t : t + 1])[0]))
    return np.array(found)


def _one_example(algorithm: ig.raw.OneStepSGD | ig.raw.OneStepRidge, x: np.ndarray, y: float) -> np.ndarray:
    """The weights after one example."""
    if isinstance(algorithm, ig.raw.OneStepSGD):
        w = np.array(algorithm.w)
        moved: np.ndarray = w - algorithm.lr * (x * (w @ x - y) + 2 * algorithm.weight_decay * w)
        return moved
    found: np.ndarray = np.linalg.inv(np.outer(x, x) + algorithm.ridge * np.eye(len(x))) @ (x * y)
    return found


def measured(row: Row) -> dict[str, Any]:
    options = dict(row.options)
    data = prompts(row.algorithm, row.n, 20 if row.n < 40 else 10)
    expected = truth(row, *data)
    entry: dict[str, Any] = {"name": row.name, "paper": row.paper, "what": row.what, "against": row.against}
    for dtype, key in ((F64, "float64"), (F32, "float32")):
        epsilon = options.get("epsilon", EPSILON[dtype])
        extra = {name: value for name, value in options.items() if name != "epsilon"}
        tf = ig.compile(
            row.algorithm,
            target=row.target,
            variant=row.variant,
            epsilon=epsilon if row.target != "kernel" else None,
            n_examples=row.n,
            **extra,
        )
        try:
            run = tf.run(*data, executor="dense", dtype=dtype)
        except ig.DomainError:
            entry |= {key: None, f"{key}_rmse": None}  # rounding drives a lane out of its range: no result
            continue
        got = {"weights": run.weights, "predictions": run.predictions, "online predictions": run.online}[row.what]
        assert got is not None
        difference = got.double() - expected
        entry |= {key: float(difference.abs().max()), f"{key}_rmse": float(difference.square().mean().sqrt())}
        if dtype == F64:
            cost = tf.cost()
            attention = [layer.heads for layer in cost.rows if layer.kind == "attention"]
            entry |= {
                "target": tf.options.target,
                "variant": tf.options.variant,
                "block": BLOCKS.get(
                    tf.options.variant, BLOCKS.get(tf.options.target, "Akyürek et al.'s (no LN before attention)")
                ),
                "steps": tf.program.steps,
                "layers_per_step": cost.blocks / tf.program.steps,
                "readout": cost.readout_blocks,
                "heads": max(attention, default=0),
                "width": tf.d_model,
                "units": max((layer.heads for layer in cost.rows if layer.kind == "mlp"), default=0),
                "parameters": tf.n_parameters,
                "says": row.says,
                "ours": row.ours,
            }
    print(f"{row.name:<45}{row.target:<8}{row.variant or '':<8}{entry['float64']}  {entry['float32']}", flush=True)
    return entry


# ------------------------------------------------------------------------------------------------ stock software, depth


def stock() -> list[dict[str, Any]]:
    """The same weights in Hugging Face's GPT2Model, unmodified, and in ONNX Runtime."""
    import onnxruntime

    entries = []
    for name, algorithm, n in (
        ("gradient descent, N = 3, K = 4, 1 step", ig.GradientDescent(NETWORK, steps=1), 8),
        ("gradient descent, N = 3, K = 4, 20 steps", ig.GradientDescent(NETWORK, steps=20), 8),
        ("SGD, d = 8, n = 40", ig.OnlineSGD(d=8), 40),
        ("ridge by RLS, d = 4, n = 20", ig.RecursiveLeastSquares(d=4), 20),
        ("functional GD, exp kernel, 64 layers", FGD("exp", steps=64), 14),
    ):
        data = prompts(algorithm, n, 5)
        expected = ig.reference(algorithm, *data)
        entry: dict[str, Any] = {"name": name}
        for dtype, key in ((F64, "float64"), (F32, "float32")):
            tf = ig.compile(algorithm, target="gpt", epsilon=EPSILON[dtype], n_examples=n, x_bound=4.0)
            model, inputs = to_gpt2(tf, dtype), gpt2_inputs(tf, tf.stream(*data), dtype)
            with torch.no_grad():
                stream = gpt2_stream(tf, model(**inputs).last_hidden_state).double()
            entry |= {key: _error(tf, stream, data, expected), "blocks": len(model.h), "width": model.config.n_embd}
        if "20 steps" not in name and "SGD" not in name:
            with tempfile.TemporaryDirectory() as folder:
                session = onnxruntime.InferenceSession(str(export_onnx(tf, folder + "/model.onnx")))
            stream = tf.stream(*data).float()
            theirs = torch.from_numpy(session.run(None, {"stream": stream.numpy()})[0]).double()
            ours = tf.module_for(F32)(stream).double()
            entry["onnx"] = _error(tf, theirs, data, expected)
            entry["onnx_ours"] = _difference(tf, theirs, ours, data)
        entries.append(entry)
        print(entry, flush=True)
    return entries


def _outcome(tf: ig.CompiledTransformer, stream: Tensor, data: Data) -> Tensor:
    prompt, state = tf.prompt(*data), tf.program.stream.unpack(stream)
    return torch.cat([prompt.weights(tf.program, state), prompt.predictions(tf.program, state).flatten(1)], dim=1)


def _error(tf: ig.CompiledTransformer, stream: Tensor, data: Data, expected: ig.Run) -> float:
    target = torch.cat([expected.weights[:, -1], expected.predictions.flatten(1)], dim=1)
    return float((_outcome(tf, stream, data) - target).abs().max())


def _difference(tf: ig.CompiledTransformer, a: Tensor, b: Tensor, data: Data) -> float:
    return float((_outcome(tf, a, data) - _outcome(tf, b, data)).abs().max())


def depth() -> list[dict[str, Any]]:
    """Proposition 3.4: mean squared distance to the Bayes predictor after L layers (exp kernel, n = 14, d = 5)."""
    generator, batch, n = torch.Generator().manual_seed(34), 1000, 14
    X = torch.nn.functional.normalize(torch.randn(batch, n + 1, 5, generator=generator, dtype=F64), dim=-1)
    values, vectors = torch.linalg.eigh(ig.Kernel("exp")(X, X))
    y = vectors @ (
        values.clamp(min=0).sqrt().unsqueeze(-1) * torch.randn(batch, n + 1, 1, generator=generator, dtype=F64)
    )
    data = X[:, :n], y[:, :n], X[:, n:]
    bayes = FGD("exp").limit(*data)
    entries = []
    for layers in (8, 16, 32, 64, 128):
        entry: dict[str, Any] = {"layers": layers, "bayes_mse": float((bayes - y[:, n:]).square().mean())}
        for rule in ("constant", "chebyshev"):
            algorithm = FGD("exp", steps=layers, step_rule=rule, lambda_max=n * math.e)
            tf = ig.compile(algorithm, n_examples=n)
            for dtype, key in ((F64, "float64"), (F32, "float32")):
                got = tf.run(*data, executor="dense", dtype=dtype).predictions.double()
                entry[f"{rule}_{key}"] = float((got - bayes).square().mean())
        entries.append(entry)
        print(entry, flush=True)
    return entries


# ------------------------------------------------------------------------- softmax transformers, any activation, tables


SCALAR = ig.Network([1, 1], "tanh", bias=False)
SOFTMAX = (  # name, network, examples, steps
    ("one weight", SCALAR, 2, 20),
    ("N = 3, K = 4, linear output", NETWORK, 8, 20),
    ("N = 4, K = 16, activated output", ig.Network([4, 16, 16, 16, 2], "tanh", "activation"), 16, 2),
    ("the demo's: N = 3, K = 8", ig.Network([10, 8, 8, 1], "tanh"), 48, 2),
)


def softmax(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The three softmax transformers on the same networks; of the table, which cannot be built, its rows.

    measured: what :func:`lookup` gave; its rms error times D is how many cells an entry some accuracy needs.
    """
    entries, rate = [], measured[-1]["rms"] * measured[-1]["cells"]
    for name, network, n, steps in SOFTMAX:
        algorithm = ig.GradientDescent(network, lr=0.5, steps=steps)
        data = prompts(algorithm, n, 5)
        expected = ig.reference(algorithm, *data).weights
        for variant in ("sink", "mean"):
            entry: dict[str, Any] = {"name": name, "variant": variant, "n": n, "steps": steps}
            for dtype, key in ((F64, "float64"), (F32, "float32")):
                tf = ig.compile(algorithm, target="softmax", variant=variant, epsilon=EPSILON[dtype], n_examples=n)
                got = tf.run(*data, executor="dense", dtype=dtype).weights.double()
                entry[key] = float((got - expected).abs().max())
                if dtype == F64:
                    rows = tf.cost().rows
                    entry |= {
                        "layers": tf.cost().blocks / steps,
                        "heads": tf.n_heads,
                        "units": max(row.heads for row in rows if row.kind == "mlp"),
                        "width": tf.d_model,
                        "parameters": tf.n_parameters,
                    }
            entries.append(entry)
            print(entry, flush=True)
        grid = ig.GridDescent(algorithm, grid=16)
        needed = rate / entries[-2]["float64"]  # cells an entry for the error of `sink`
        fine = ig.GridDescent(algorithm, grid=math.ceil(needed))
        entries.append(
            {
                "name": name,
                "variant": "lookup",
                "n": n,
                "layers": 4,
                "log10_rows_16": table_rows(grid, n),
                "log10_cells_same": math.log10(needed),
                "log10_rows_same": table_rows(fine, n),
            }
        )
        print(entries[-1], flush=True)
    return entries


def lookup() -> list[dict[str, Any]]:
    """One weight, two examples, one step: rows, units and error of the table, for D cells an entry."""
    exact = ig.GradientDescent(SCALAR, lr=1.0, steps=1, box=1.0)
    entries = []
    for D in (2, 4, 8, 12, 16):
        algorithm = ig.GridDescent(exact, grid=D)
        tf = ig.compile(algorithm, n_examples=2)
        X, y, X_query = prompts(algorithm, 2, 1000)
        w0 = 2 * torch.rand(1000, 1, generator=torch.Generator().manual_seed(1), dtype=F64) - 1
        run, expected = tf.run(X, y, X_query, w0=w0), ig.reference(exact, X, y, X_query, w0=w0)
        dense = tf.run(X[:20], y[:20], X_query[:20], w0=w0[:20], executor="dense").weights
        error = (run.weights - expected.weights)[:, -1].abs()
        knots = np.array(tf.approximants["w'[0]"].knots)  # type: ignore[union-attr]
        entries.append(
            {
                "cells": D,
                "sequences": D**5,
                "rows": len(knots) // 2 + 1,
                "units": tf.cost().rows[2].heads,
                "max": float(error.max()),
                "rms": float(error.square().mean().sqrt()),
                "gap": float(2 * np.diff(knots)[::2].min()),
                "dense": float((dense - run.weights[:20]).abs().max()),
            }
        )
        print(entries[-1], flush=True)
    return entries


def sigma() -> list[dict[str, Any]]:
    """Theorem 1: heads a neuron against the error of the weights after one step; K = 6, d = 3, n = 12, |z| <= 4."""
    network = ig.Network([3, 6, 1], "tanh", bias=False)
    algorithm = ig.GradientDescent(network, lr=0.1, steps=1, box=None)
    X, y, X_query = prompts(algorithm, 12, 5)
    X, X_query = X / 2, X_query / 2
    w0 = torch.stack([network.init(seed) for seed in range(5)])
    expected = ig.reference(algorithm, X, y, X_query, w0=w0).weights
    functions, entries = (network.activation.r, network.activation.dr), []
    for name in SIGMAS:
        entry: dict[str, Any] = {"sigma": name, "decay": decay_condition(name).holds}
        for units in (12, 24, 48):
            epsilon = 1.001 * smooth.reachable(functions, name, units, (-4.0, 4.0))
            made = ig.compile(algorithm, target="sigma", sigma=name, epsilon=epsilon, n_examples=12, z_bound=4.0)
            fitted = made.approximants["tanh'"]
            assert len([a for a in fitted.a if a]) == units, (name, units, len(fitted.a))  # type: ignore[union-attr]
            got = made.run(X, y, X_query, w0=w0, executor="dense").weights
            entry |= {f"heads_{units}": float((got - expected).abs().max()), f"fit_{units}": epsilon}
        for epsilon in (1e-5, 1e-4):
            try:
                made = ig.compile(algorithm, target="sigma", sigma=name, epsilon=epsilon, n_examples=12, z_bound=4.0)
                got = made.run(X, y, X_query, w0=w0, executor="dense", dtype=F32).weights
            except ig.InputError:  # rounding is larger than epsilon
                continue
            entry |= {"float32": float((got.double() - expected).abs().max()), "float32_epsilon": epsilon}
            break
        entries.append(entry)
        print(entry, flush=True)
    return entries


def renewed(part: str) -> None:
    """Measures some constructions; the others are those of results/constructions.json."""
    known = {(row["name"], row["target"], row["variant"]): row for row in read("constructions")["constructions"]}
    kept = []
    for row in rows():
        if part in row.name:
            kept.append(measured(row))
            continue
        kept += [
            one for key, one in known.items() if key[:2] == (row.name, row.target) and row.variant in (None, key[2])
        ]
    renew("constructions", f"python benchmarks/constructions.py --rows {part}", {"constructions": kept})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", help="only the constructions with this in their name")
    part = parser.parse_args().rows
    torch.set_num_threads(1)
    if part:
        renewed(part)
        return
    table = lookup()
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "constructions": lambda: [measured(row) for row in rows()],
        "stock": stock,
        "depth": depth,
        "softmax": lambda: softmax(table),
        "lookup": lambda: table,
        "sigma": sigma,
    }
    store("constructions", "python benchmarks/constructions.py", {name: make() for name, make in parts.items()})


if __name__ == "__main__":
    main()
