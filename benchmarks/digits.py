"""Handwritten digits, learned inside a Llama: scikit-learn's, a network with one hidden layer of tanh, cross-entropy.

Writes results/digits.json (two minutes, one thread): for every network and number of steps, direct training (torch.nn
and torch.optim.SGD, float64) from the same initial weights, and beside it

    fused       target llama in float64 and float32, and target relu, by the fused executor
    dense       target llama, the matrices themselves (tf.module); 50 steps of the small network, on 8 principal
                components. (Of the large one a layer's 24 heads alone have 0.6 GB of scores, and a pass takes minutes.)
    LlamaModel  the same in Hugging Face's class as it is, float32

seconds: of the second call, so that no kernel is built in it; the median of several, except for the matrices. Direct
training is timed in the same precision. agree: test examples for which both predict the same digit.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import innergrad as ig
from _results import read, store
from innergrad.manifest import manifest

RATE, EXAMPLES, CLASSES = 2.0, 500, 10
LARGE, SMALL = (64, 24, CLASSES), (8, 8, CLASSES)
FEW, MANY = 50, 200  # steps
REPEATS = 5

Outcome = tuple[Tensor | None, Tensor]  # weights and logits
Made = dict[str, ig.CompiledTransformer]


def digits(inputs: int) -> tuple[Tensor, Tensor]:
    """All 1,797 images in a random order, entries in [0, 1], or their first principal components; one-hot labels."""
    from sklearn.datasets import load_digits

    pixels, labels = (torch.from_numpy(values) for values in load_digits(return_X_y=True))
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    X = pixels[order] / 16.0
    if inputs < X.shape[1]:
        centred = X - X[:EXAMPLES].mean(0)
        X = centred @ torch.linalg.svd(centred[:EXAMPLES], full_matrices=False)[2][:inputs].T
    return X, nn.functional.one_hot(labels[order], CLASSES).to(torch.float64)


def direct(net: ig.Network, w0: Tensor, parts: tuple[Tensor, ...], steps: int) -> tuple[Tensor, Tensor]:
    """Weights and logits of a torch.nn.Module, trained with torch.optim.SGD on the mean loss: twice the risk."""
    X, y, X_query = parts
    inputs, hidden, outputs = net.sizes
    model = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)).to(X.dtype)
    nn.utils.vector_to_parameters(w0.to(X.dtype, copy=True), model.parameters())
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=RATE / 2), nn.CrossEntropyLoss()
    labels = y.argmax(-1)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(model(X), labels).backward()
        optimiser.step()
    with torch.no_grad():
        return nn.utils.parameters_to_vector(model.parameters()).detach(), model(X_query)


def timed(call: Callable[[], Outcome], repeats: int) -> tuple[Outcome, float]:
    """What it returns, and the median time of some calls after the first; with one, that of the call itself."""
    taken = []
    for _ in range(repeats + (repeats > 1)):
        started = time.perf_counter()
        outcome = call()
        taken.append(time.perf_counter() - started)
    return outcome, statistics.median(taken[repeats > 1 :])


def ways(tf: Made, parts: tuple[Tensor, ...], w0: Tensor) -> Iterator[tuple[str, str, str, Any, int]]:
    """Target, executor, dtype, a call that gives weights (if it has them) and logits, and how often it is timed."""

    def run(target: str, executor: Any, dtype: str) -> Callable[[], Outcome]:
        how = {"w0": w0, "executor": executor, "dtype": getattr(torch, dtype), "record": "last"}

        def call() -> Outcome:
            found = tf[target].run(*parts, **how)
            return found.weights[-1], found.predictions

        return call

    for target, dtype in (("llama", "float64"), ("llama", "float32"), ("relu", "float64")):
        yield target, "fused", dtype, run(target, "fused", dtype), REPEATS
    if len(parts[0][0]) == SMALL[0]:
        yield "llama", "dense", "float64", run("llama", "dense", "float64"), 1
        yield "llama", "LlamaModel", "float32", lambda: (None, _stock(tf["llama"], parts, w0)), 1


def _stock(tf: ig.CompiledTransformer, parts: tuple[Tensor, ...], w0: Tensor) -> Tensor:
    """The logits in the hidden states of an unmodified LlamaModel."""
    from innergrad.export import to_llama

    with torch.no_grad():
        hidden = to_llama(tf)(inputs_embeds=tf.stream(*parts, w0=w0, dtype=torch.float32)).last_hidden_state
    return tf.predictions(hidden, len(parts[2]))[0]


def rows(sizes: tuple[int, ...], steps: int) -> Iterator[dict[str, Any]]:
    X, y = digits(sizes[0])
    parts, truth = (X[:EXAMPLES], y[:EXAMPLES], X[EXAMPLES:]), y[EXAMPLES:].argmax(-1)
    net = ig.Network(list(sizes), "tanh")
    w0 = net.init(0)
    algorithm = ig.GradientDescent(net, loss="softmax", lr=RATE, steps=steps, box=None)
    made = {target: ig.compile(algorithm, target=target, n_examples=EXAMPLES) for target in ("llama", "relu")}
    llama = made["llama"]
    shape = {"blocks": llama.cost().blocks, "heads": llama.n_heads, "width": llama.d_model}
    weights, logits = direct(net, w0, parts, steps)
    for target, how, dtype, call, repeats in ways(made, parts, w0):
        (learned, outputs), taken = timed(call, repeats)
        same = tuple(part.to(getattr(torch, dtype)) for part in parts)
        row = {"sizes": list(sizes), "steps": steps, "target": target, "how": how, "dtype": dtype}
        row |= shape if target == "llama" else {}
        row |= {"examples": EXAMPLES, "test": len(truth), "agree": int((outputs.argmax(-1) == logits.argmax(-1)).sum())}
        row |= {"accuracy": _share(outputs.argmax(-1) == truth), "direct_accuracy": _share(logits.argmax(-1) == truth)}
        row |= {"logits": float((outputs - logits).abs().max())}
        row |= {} if learned is None else {"weights": float((learned - weights).abs().max())}
        row |= {"seconds": taken, "direct_seconds": timed(partial(direct, net, w0, same, steps), REPEATS)[1]}
        yield row


def _share(right: Tensor) -> float:
    return float(right.double().mean())


def table() -> list[str]:
    """Of docs/reference/llama.md."""
    lines = [
        "| network | steps | target, run by | dtype | same digit as direct training | accuracy (direct) | weights "
        "| time | direct training |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in read("digits")["rows"]:
        how = {"LlamaModel": "stock `LlamaModel`", "dense": "`dense`, the matrices", "fused": "`fused`"}[row["how"]]
        weights = f"{row['weights']:.0e}" if "weights" in row else ""
        agree = f"{row['agree']:,} of {row['test']:,}"
        network = "-".join(map(str, row["sizes"]))
        lines.append(
            f"| {network} | {row['steps']} | `{row['target']}`, {how} | {row['dtype']} | {agree} "
            f"| {row['accuracy']:.1%} ({row['direct_accuracy']:.1%}) | {weights} "
            f"| {_time(row['seconds'])} | {_time(row['direct_seconds'])} |"
        )
    return lines


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2f} s"


TABLES = {"digits": table}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    found = []
    for sizes, steps in ((LARGE, FEW), (LARGE, MANY), (SMALL, FEW)):
        for row in rows(sizes, steps):
            found.append(row)
            print(row, flush=True)
    store("digits", "python benchmarks/digits.py", {"processor": manifest({})["hardware"]["cpu"], "rows": found})


if __name__ == "__main__":
    main()
