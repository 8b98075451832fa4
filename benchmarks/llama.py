"""Gradient descent in the forward pass of Hugging Face's own classes, in memory, without a patch, beside autograd.

    python benchmarks/llama.py stock                                N = 1 .. 6, K = 4: the smallest of every depth
    python benchmarks/llama.py stock --sizes 4 8 16 --workers 4     all of it
    python benchmarks/llama.py stock --sizes 16 --more              rows that are not stored yet, beside the others
    python benchmarks/llama.py own                                  errors of autograd and blocks of all rows again

stock stores ``results/llama_stock.json``; ``--out folder`` also copies it there. A row is one network, loss and rate on
ten prompts, each with its own initial weights:

    float64     the model of a transformer compiled with ``double=True``, against autograd in float64
    float32     the model of one compiled without, against the same
    own         autograd in float32, against the same: the median over orders of the examples, which change nothing but
                roundings; given: in the order of the prompt; spread: the largest over the least of these errors
    own64       autograd in float64, with the examples in other orders, against itself: the largest difference
    growth      how much gradient descent itself enlarges a change of w0: |w_T(w0 + v) - w_T(w0 - v)| / |2 v|, the
                largest of 32 random v of length 1e-7, in float64, by autograd; later: of the weights after any tenth
                of the steps
    blocks      a step: the blocks of the model that occur once a step, told apart by their tensors

Errors are the largest over all entries of the weights, in all tokens, or of the predictions. In memory equal blocks
share their tensors; rows whose different blocks take more than ``--memory`` are left out, and listed. So are rows that
were not begun after ``--seconds``; smaller networks come first.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import innergrad as ig
from _results import read, renew, store
from innergrad.export import llama_sizes, to_llama
from innergrad.export.llama_weights import llama_blocks

LOSSES, RATES, DEPTHS, WIDTHS = ("squared", "logistic", "softmax"), (0.5, 0.1), range(1, 7), (4,)
EXAMPLES, QUERIES, STEPS, D_X, CLASSES, DIRECTIONS, STEP = 10, 4, 20, 2, 3, 32, 1e-7
MANY = 200  # steps of the long runs
NEAR = 1e-11  # to autograd in float64: the promise where nothing grows
LARGE = 100  # growth of a change from which on no accuracy is claimed
ORDERS = 15  # of the examples
APART = 10_000  # between the seeds of prompts and of weights
Row = dict[str, Any]


class Cell(NamedTuple):
    """What a row is about."""

    N: int
    K: int
    loss: str = "squared"
    lr: float = 0.5
    variant: str = "chain"
    family: str = "llama"
    steps: int = STEPS

    @property
    def sizes(self) -> list[int]:
        """A network without hidden layers has K inputs."""
        d_y = CLASSES if self.loss == "softmax" else 1
        return [D_X, *[self.K] * (self.N - 1), d_y] if self.N > 1 else [self.K, d_y]

    @property
    def algorithm(self) -> ig.GradientDescent:
        return ig.GradientDescent(ig.Network(self.sizes), self.loss, lr=self.lr, steps=self.steps, box=None)


def cells(depths: Iterable[int], widths: Iterable[int]) -> Iterator[Cell]:
    """Every network, loss and rate; at K = 4 also ``wide``, where it has fewer blocks, and, on 2,4,4,1, other families
    and the long runs.
    """
    for K in widths:
        yield from (Cell(N, K, loss, lr) for N, loss, lr in itertools.product(depths, LOSSES, RATES))
        if min(WIDTHS) == K:
            yield from (Cell(N, K, variant="wide") for N in depths if N > 3)
            yield from (Cell(3, K, lr=lr, family=family) for family in ("mistral", "qwen2") for lr in RATES)
            yield from (Cell(3, K, lr=lr, steps=MANY) for lr in RATES)


# -------------------------------------------------------------------------------------------------------------- a row


def prompts(algorithm: ig.GradientDescent, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X, y, X_query and w0 of so many prompts."""
    drawn = [algorithm.random_prompt(EXAMPLES, QUERIES, torch.Generator().manual_seed(seed)) for seed in range(count)]
    X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
    return X, y, X_query, torch.stack([algorithm.network.init(APART + seed) for seed in range(count)])


def measured(cell: Cell, count: int, memory: float, ends: float = math.inf, device: str = "cpu") -> Row:
    """The row of a cell, or why it has none. ends: the time after which none is begun."""
    if time.time() > ends:
        return {**cell._asdict(), "left_out": "no time"}
    started, algorithm = time.perf_counter(), cell.algorithm
    X, y, X_query, w0 = prompts(algorithm, count)
    exact = trained(algorithm, X, y, X_query, w0)
    row: Row = {**cell._asdict(), "sizes": cell.sizes, "prompts": count}
    for name, dtype, double in (("float64", torch.float64, True), ("float32", torch.float32, False)):
        tf = ig.compile(algorithm, target="llama", variant=cell.variant, n_examples=EXAMPLES, double=double)
        needed = different_bytes(tf, dtype)
        if needed > memory * 1e9:
            return {**row, "left_out": f"{needed / 1e9:.1f} GB"}
        model: Any = to_llama(tf, dtype, cell.family, device=device)
        found = forward(tf, model, dtype, X, y, X_query, w0)
        row |= {f"blocks_{name}": blocks_a_step(model, cell.steps), f"width_{name}": tf.d_model}
        row |= {f"heads_{name}": model.config.num_attention_heads, f"units_{name}": model.config.intermediate_size}
        row |= {f"{part}_{name}": off for part, off in errors(found, exact).items()}
    row |= own_errors(algorithm, X, y, X_query, w0, exact)
    return {**row, **growth(algorithm, X, y, w0), "seconds": round(time.perf_counter() - started, 1)}


def own_errors(
    algorithm: ig.GradientDescent, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, exact: tuple[Tensor, Tensor]
) -> Row:
    """Of autograd in float32: of every prompt the median over orders of its examples, what the given order has, and
    how far the orders are apart. Of autograd in float64: how far its orders are from the given one.
    """
    found = list[dict[str, list[float]]]()
    apart = list[dict[str, list[float]]]()
    for number in range(ORDERS):
        order = torch.randperm(X.shape[1], generator=torch.Generator().manual_seed(number)) if number else slice(None)
        some = X[:, order], y[:, order], X_query, w0
        found.append(errors(trained(algorithm, *(part.float() for part in some)), exact))
        apart.append(errors(trained(algorithm, *some), exact))
    row: Row = {}
    for part in ("weights", "predictions"):
        of_prompts = [*zip(*(one[part] for one in found), strict=True)]
        row[f"{part}_own"] = [statistics.median(each) for each in of_prompts]
        row[f"{part}_given"] = [each[0] for each in of_prompts]
        row[f"{part}_own64"] = [max(each) for each in zip(*(one[part] for one in apart), strict=True)]
        row[f"{part}_spread"] = [float(f"{max(each) / min(each):.3g}") for each in of_prompts]
    return row


def trained(algorithm: ig.GradientDescent, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (prompts, D_w) and predictions (prompts, queries, d_y) of autograd, in the dtype of the prompts."""
    omega = torch.full(X.shape[:2], 1.0 / X.shape[1], dtype=X.dtype)
    weights, predictions = algorithm.reference(X, y, X_query, w0, omega)
    return weights[:, -1], predictions


def forward(
    tf: ig.CompiledTransformer, model: Any, dtype: torch.dtype, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor
) -> tuple[Tensor, Tensor]:
    """The same of a model: weights (prompts, tokens, D_w), of every token."""
    stream = tf.stream(X, y, X_query, w0=w0).to(dtype)
    with torch.no_grad():
        hidden = model(inputs_embeds=stream.to(model.device)).last_hidden_state.cpu()
    learned = torch.stack([tf.learned(hidden, token) for token in range(hidden.shape[1])], dim=1)
    return learned, tf.predictions(hidden, X_query.shape[1])


def errors(found: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> dict[str, list[float]]:
    """The largest errors of every prompt."""
    (weights, predictions), (w, p) = found, exact
    off = (weights.double() - (w if weights.ndim == 2 else w[:, None])), predictions.double() - p
    return {
        name: [float(f"{value:.3g}") for value in part.abs().flatten(1).amax(1)]
        for name, part in zip(("weights", "predictions"), off, strict=True)
    }


def growth(algorithm: ig.GradientDescent, X: Tensor, y: Tensor, w0: Tensor) -> dict[str, list[float]]:
    """Of every prompt: how much a change of w0 grows, and how much one of the weights after any tenth of the steps."""
    generator, steps = torch.Generator().manual_seed(0), algorithm.steps
    v = torch.randn(DIRECTIONS, *w0.shape, dtype=torch.float64, generator=generator)
    v *= STEP / v.norm(dim=-1, keepdim=True)
    many_X, many_y = (part.repeat(DIRECTIONS, 1, 1) for part in (X, y))
    found, w = list[Tensor](), w0
    for start in range(0, steps, steps // 10):
        rest = ig.GradientDescent(algorithm.network, algorithm.loss, lr=algorithm.lr, steps=steps - start, box=None)
        ends = [trained(rest, many_X, many_y, many_X[:, :0], (w + sign * v).flatten(0, 1))[0] for sign in (1.0, -1.0)]
        found.append(((ends[0] - ends[1]).norm(dim=-1).view(DIRECTIONS, -1) / (2 * STEP)).amax(0))
        some = ig.GradientDescent(algorithm.network, algorithm.loss, lr=algorithm.lr, steps=steps // 10, box=None)
        w = trained(some, X, y, X[:, :0], w)[0]
    short = [[float(f"{value:.3g}") for value in one] for one in (found[0], torch.stack(found).amax(0))]
    return dict(zip(("growth", "growth_later"), short, strict=True))


def blocks_a_step(model: Any, steps: int) -> int:
    """Blocks that occur once a step, counted on the module."""
    places = (
        (layer.self_attn.o_proj.weight.data_ptr(), layer.mlp.down_proj.weight.data_ptr()) for layer in model.layers
    )
    return sum(times == steps for times in Counter(places).values())


def written_a_step(tf: ig.CompiledTransformer, steps: int) -> int:
    """The same, counted on the layers that the module's tensors are written from."""
    places = (
        tuple(None if part is None else id(next(part.children())) for part in block) for block in llama_blocks(tf)
    )
    return sum(times == steps for times in Counter(places).values())


def different_bytes(tf: ig.CompiledTransformer, dtype: torch.dtype) -> float:
    """What the blocks take in memory: different MLPs, different attention layers, and one that is zero."""
    sizes = llama_sizes(tf)
    kinds = Counter(kind for kind, _ in {(layer.kind, layer.instructions) for layer in tf.program.layers})
    mlps, heads = 3 * sizes.n_inner * kinds["mlp"], 4 * sizes.n_head * sizes.d_head * (kinds["attention"] + 1)
    return sizes.d_model * (mlps + heads) * dtype.itemsize


# ------------------------------------------------------------------------------------------------------------ all rows


def stock(given: argparse.Namespace) -> Row:
    """The rows of all cells; with ``--more``, those that are stored are not measured again."""
    every = [*cells(given.depths, given.sizes)]
    rows: list[Row] = read("llama_stock")["rows"] if given.more else []
    known, ends = {cell_of(row) for row in rows}, time.time() + given.seconds
    missing = [cell for cell in every if cell not in known]
    if given.workers == 1:
        torch.set_num_threads(given.threads)
        rows += [said(measured(cell, given.count, given.memory, ends, given.device)) for cell in missing]
    else:
        context, share = multiprocessing.get_context("spawn"), given.memory / given.workers
        start = (torch.set_num_threads, (given.threads,))
        with ProcessPoolExecutor(given.workers, context, *start, max_tasks_per_child=1) as pool:
            waiting = [
                pool.submit(measured, cell, given.count, share, ends, given.device) for cell in reversed(missing)
            ]
            rows += [said(done.result()) for done in as_completed(waiting)]
    return gathered(rows)


def gathered(rows: list[Row]) -> Row:
    """All rows, in order, and what they say together."""
    order = {cell: place for place, cell in enumerate(cells(DEPTHS, (4, 8, 16)))}
    rows = sorted(rows, key=lambda row: order[cell_of(row)])
    ran = [row for row in rows if "left_out" not in row]
    left = [row for row in rows if "left_out" in row]
    return {"examples": EXAMPLES, "summary": [summary(ran)], "rows": ran, "left_out": left}


def cell_of(row: Row) -> Cell:
    return Cell(*(row[name] for name in Cell._fields))


def own(rows: list[Row]) -> list[Row]:
    """The rows with the errors of autograd measured again, and their blocks counted again."""
    found = []
    for row in rows:
        cell = cell_of(row)
        algorithm = cell.algorithm
        X, y, X_query, w0 = prompts(algorithm, row["prompts"])
        row |= own_errors(algorithm, X, y, X_query, w0, trained(algorithm, X, y, X_query, w0))
        for name, double in (("float64", True), ("float32", False)):
            tf = ig.compile(algorithm, target="llama", variant=cell.variant, n_examples=EXAMPLES, double=double)
            row[f"blocks_{name}"] = written_a_step(tf, cell.steps)
        found.append(row)
    return found


def summary(rows: list[Row]) -> Row:
    """Over all runs of 20 steps, a run being one prompt of a row; float64: where no change of the weights, whenever it
    is made, grows by 100 or more.
    """
    moderate, others, ratios = list[float](), list[float](), list[float]()
    rows = [row for row in rows if row["steps"] == STEPS]
    for row in rows:
        for part in ("weights", "predictions"):
            runs = zip(
                row["growth_later"], row[f"{part}_float64"], row[f"{part}_float32"], row[f"{part}_own"], strict=True
            )
            for grown, double, single, own in runs:
                (moderate if grown < LARGE else others).append(double)
                ratios.append(single / own)
    late = [*late_growth(rows)]
    return {
        "rows": len(rows),
        "runs": sum(row["prompts"] for row in rows),
        "float64": max(moderate),
        "large": sum(grown >= LARGE for row in rows for grown in row["growth_later"]),
        "float64_large": max(others, default=None),
        "float32_median": round(statistics.median(ratios), 3),
        "float32_max": round(max(ratios), 3),
        "own_spread": max(max(row[f"{part}_spread"]) for row in rows for part in ("weights", "predictions")),
        "late": len({where for where, _, _ in late}),
        "late_float64": max((double for _, double, _ in late), default=None),
        "late_own64": max((own for _, _, own in late), default=None),
    }


def late_growth(rows: list[Row]) -> Iterator[tuple[tuple[int, int], float, float]]:
    """Runs more than NEAR from autograd of which w0 alone would say that they are moderate: (row, prompt), that error,
    and how far autograd in float64 is from itself.
    """
    for place, row in enumerate(rows):
        for part in ("weights", "predictions"):
            runs = zip(row["growth"], row[f"{part}_float64"], row[f"{part}_own64"], strict=True)
            for prompt, (grown, double, own) in enumerate(runs):
                if grown < LARGE and double > NEAR:
                    yield (place, prompt), double, own


def said(row: Row) -> Row:
    if "left_out" in row:
        print(f"left out: {row}", flush=True)
        return row
    found = {name: max(row[name]) for name in ("weights_float64", "predictions_float64", "growth")}
    ratios = [
        max(a / b for a, b in zip(row[f"{p}_float32"], row[f"{p}_own"], strict=True))
        for p in ("weights", "predictions")
    ]
    print(
        [row[name] for name in Cell._fields],
        row["blocks_float64"],
        row["blocks_float32"],
        found,
        ratios,
        row["seconds"],
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["stock", "own"])
    parser.add_argument("--depths", type=int, nargs="*", default=[*DEPTHS], help="N")
    parser.add_argument("--sizes", type=int, nargs="*", default=[*WIDTHS], help="K")
    parser.add_argument("--count", type=int, default=10, help="prompts of a row")
    parser.add_argument("--more", action="store_true", help="keep the stored rows, and measure those that are missing")
    parser.add_argument("--device", default="cpu", help="of the models; autograd stays on the CPU")
    parser.add_argument("--memory", type=float, default=8.0, help="GB, of all processes together")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no more rows are begun")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--threads", type=int, default=1, help="of a process")
    parser.add_argument("--out", type=Path, help="a folder for a copy of the results")
    given = parser.parse_args()
    if given.part == "own":
        rows = own(read("llama_stock")["rows"])
        renew("llama_stock", "python benchmarks/llama.py own", {"rows": rows, "summary": [summary(rows)]})
        return
    data = stock(given)
    widths = sorted({row["K"] for row in data["rows"]})
    command = f"python benchmarks/llama.py stock --sizes {' '.join(map(str, widths))} --count {given.count}"
    store("llama_stock", command, data, given.out)


if __name__ == "__main__":
    main()
