"""Networks of ten and more layers on real tables, trained inside a transformer: error, certificate, score.

    python benchmarks/deep.py            all tables and depths, stores results/deep.json (half an hour on one core)
    python benchmarks/deep.py --quick    one table, N = 10, a few steps; stores nothing

The tables are scikit-learn's: diabetes (regression), wine and breast cancer (classes). A prompt has 96 rows, scaled by
their mean and deviation; the rest are queries. The network is tanh, 8 units a layer, its start N(0, 1/fan_in).
*Directly*: a module of torch.nn, trained by torch.optim.SGD with momentum on the same rows, from the same start. One
rate and one number of steps for all, so that nothing is chosen by what comes out.

    weights, predictions    the largest distance of an entry to direct training's, after all steps
    gradient, bound         at the weights after none, half and all of the steps: the error of one step's gradient, and
                            its certificate; the largest of each, and the least ratio
    amplifies               how far two direct trainings are apart at the end whose starts are 1e-8 apart, over 1e-8
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from torch import Tensor, nn

import innergrad as ig
from _results import read, store

DEPTHS, WIDTH, ROWS, STEPS, EPSILON = (10, 12, 16), 8, 96, 100, 1e-6
RATE, MOMENTUM = 0.05, 0.9
TABLES_OF: dict[str, Callable[..., Any]] = {"diabetes": load_diabetes, "wine": load_wine, "cancer": load_breast_cancer}
Row = dict[str, Any]


class Split(NamedTuple):
    """A table, split into the examples of a prompt and queries; of classes, y is one-hot."""

    X: Tensor
    y: Tensor
    X_query: Tensor
    y_query: Tensor
    classes: bool


def split(name: str) -> Split:
    X, y = (torch.as_tensor(part, dtype=torch.float64) for part in TABLES_OF[name](return_X_y=True))
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    X, y, classes = X[order], y[order], name != "diabetes"
    X = (X - X[:ROWS].mean(0)) / X[:ROWS].std(0)
    y = nn.functional.one_hot(y.long()).double() if classes else ((y - y[:ROWS].mean()) / y[:ROWS].std())[:, None]
    return Split(X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:], classes)


def loss_of(predictions: Tensor, y: Tensor, classes: bool) -> Tensor:
    """1/(2n) times the sum of the losses."""
    if classes:
        return nn.functional.cross_entropy(predictions, y) / 2
    return (predictions - y).square().sum(1).mean() / 2


def directly(net: ig.Network, w0: Tensor, data: Split, steps: int) -> tuple[list[Tensor], Tensor]:
    """The weights after every step, flat, and the predictions at the queries, by torch.nn and torch.optim."""
    layers = list[nn.Module]()
    for V, b in net.unflatten(w0):
        assert b is not None
        linear = nn.Linear(V.shape[1], V.shape[0], dtype=torch.float64)
        linear.load_state_dict({"weight": V, "bias": b})
        layers += [linear, nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    optimiser, path = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM), [w0]
    for _ in range(steps):
        optimiser.zero_grad()
        loss_of(model(data.X), data.y, data.classes).backward()
        optimiser.step()
        path.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    with torch.no_grad():
        return path, model(data.X_query)


def score(predictions: Tensor, data: Split) -> float:
    """R^2, or the share of classes that are right."""
    if data.classes:
        return float((predictions.argmax(1) == data.y_query.argmax(1)).double().mean())
    rest = (predictions - data.y_query).square().sum() / (data.y_query - data.y_query.mean()).square().sum()
    return 1.0 - float(rest)


def trial(name: str, depth: int, steps: int) -> Row:
    started, data = time.perf_counter(), split(name)
    net = ig.Network([data.X.shape[1], *[WIDTH] * (depth - 1), data.y.shape[1]])
    w0, loss = net.init(0), "softmax" if data.classes else "squared"
    path, predictions = directly(net, w0, data, steps)
    moved, _ = directly(net, w0 + 1e-8 * nn.functional.normalize(torch.ones_like(w0), dim=0), data, steps)

    def compiled(steps: int, momentum: float) -> ig.CompiledTransformer:
        algorithm = ig.GradientDescent(net, loss, lr=RATE, steps=steps, momentum=momentum, box=None)
        return ig.compile(algorithm, epsilon=EPSILON, n_examples=ROWS)

    tf = compiled(steps, MOMENTUM)
    run = tf.run(data.X, data.y, data.X_query, w0=w0, executor="fused")
    checked, one = list[tuple[float, float]](), compiled(1, 0.0)
    for at in (0, steps // 2, steps):
        certificate = one.certify(data.X, data.y, w0=path[at], trajectory=False)
        exact = directly(net, path[at], data, 1)[0][1]
        error = float((certificate.path[0, 1] - exact).norm()) / RATE
        checked.append((error, certificate.gradient[0]))
    return {
        "table": name,
        "N": depth,
        "layers": tf.n_layers,
        "steps": steps,
        "score": round(score(run.predictions, data), 4),
        "direct": round(score(predictions, data), 4),
        "weights": _short(float((run.weights[-1] - path[-1]).abs().max())),
        "predictions": _short(float((run.predictions - predictions).abs().max())),
        "amplifies": _short(float((moved[-1] - path[-1]).norm()) / 1e-8),
        "gradient": _short(max(error for error, _ in checked)),
        "bound": _short(max(bound for _, bound in checked)),
        "least_ratio": _short(min(bound / error for error, bound in checked)),
        "seconds": round(time.perf_counter() - started),
    }


def _short(value: float) -> float:
    return float(f"{value:.2e}")


def deep() -> list[str]:
    lines = [
        "| table | N | layers | score in context | directly | predictions apart | amplifies | gradient's error "
        "| its certificate |"
    ]
    lines.append("|" + "---|" * 9)
    for row in read("deep")["rows"]:
        cells = [row["table"], row["N"], f"{row['layers']:,}", f"{row['score']:.3f}", f"{row['direct']:.3f}"]
        cells += [f"{row[name]:.0e}" for name in ("predictions", "amplifies", "gradient", "bound")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def deep_certificates() -> list[str]:
    """How much larger than the error the certificate is, in a sentence."""
    rows = read("deep")["rows"]
    ratios = [row["bound"] / row["gradient"] for row in rows]
    errors = [max(row["gradient"] for row in rows if row["N"] == depth) for depth in DEPTHS]
    text = f"From N = {DEPTHS[0]} to {DEPTHS[-1]} the largest error of a step grows {errors[-1] / errors[0]:.1f} times,"
    return [f"{text} and its certificate is {min(ratios):.0f} to {max(ratios):.0f} times as large as it."]


TABLES: dict[str, Callable[[], list[str]]] = {"deep": deep, "deep_certificates": deep_certificates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one table, N = 10, a few steps; nothing is stored")
    torch.set_num_threads(1)
    if parser.parse_args().quick:
        print(trial("wine", 10, 8))
        return
    rows = list[Row]()
    for name in TABLES_OF:
        for depth in DEPTHS:
            rows.append(trial(name, depth, STEPS))
            print(rows[-1], flush=True)
    settings = {"width": WIDTH, "rows_of_a_prompt": ROWS, "epsilon": EPSILON, "rate": RATE, "momentum": MOMENTUM}
    store("deep", "python benchmarks/deep.py", {**settings, "rows": rows})


if __name__ == "__main__":
    main()
