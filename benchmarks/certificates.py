"""The certificates of runs on trial: do they hold, how tight are they, how long do they take?

    python benchmarks/certificates.py violations --count 10000 --workers 16     random configurations, entry by entry
    python benchmarks/certificates.py violations --target llama --count 2000    the same on target llama
    python benchmarks/certificates.py tightness      bound / error of one gradient, beside the bounds of the theorems
    python benchmarks/certificates.py trajectory     bound / distance after 100 steps
    python benchmarks/certificates.py trajectory --target llama     the same on target llama, over up to 1,000 steps
    python benchmarks/certificates.py attack         the worst prompts and weights that gradient ascent finds

Each stores ``results/certificates_<part>.json``; ``--out folder`` also copies it there. Violations can be looked for in
several commands: ``--seconds 500 --out out`` leaves what is done by then in ``out/rows_*.json``, and the same command
with ``--rows out/rows_*.json`` goes on from there and stores the result of all. All are judged by gradient
descent written out in 80-bit floating point (``_oracle.py``), from inputs rounded to the precision of the run, and
without any tolerance. Weights are N(0, 1/fan_in) and prompts those of ``algorithm.random_prompt`` unless said
otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

import innergrad as ig
from _judge import (
    ACTIVATIONS,
    APART,
    LLAMA,
    LOSSES,
    MODES,
    PROMPTS,
    SIN_DOMAIN,
    SMOOTH,
    Row,
    configuration,
    descent,
    examine,
    moderate,
    small,
)
from _oracle import Long, forward, long, step
from _results import store
from innergrad.algorithms.losses import ResidualLoss
from innergrad.cli.demo import diabetes
from innergrad.evidence.attack import attack
from innergrad.evidence.bounds import printed_theorem_1
from innergrad.functions.facts import proven

T = TypeVar("T")


def compiled(algorithm: ig.GradientDescent, epsilon: float, n: int) -> ig.CompiledTransformer:
    z_bound = SIN_DOMAIN if algorithm.network.activation.name == "sin" else None
    return ig.compile(algorithm, epsilon=epsilon, n_examples=n, z_bound=z_bound)


# ----------------------------------------------------------------------------------------------------------- violations


def approximate(row: Row) -> bool:
    """Whether a function of the program has an approximant: otherwise all errors are rounding, or a ramp's. On target
    llama there is nothing else, and its ratios are those of rounding.
    """
    if row["target"] == "llama":
        return True
    activated = len(row["sizes"]) > 2 or row["output"] == "activation"
    return row["loss"] != "squared" or (activated and row["activation"] in SMOOTH)


def grouped(rows: list[Row], key: Callable[[Row], str]) -> list[Row]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [{"group": name, **_summary(group)} for name, group in sorted(groups.items())]


def _summary(rows: list[Row]) -> Row:
    entries, infinite = (sum(row[key] for row in rows) for key in ("entries", "infinite"))
    ratios = sorted(ratio for row in rows if approximate(row) for ratio in row["ratios"])
    return {
        "configurations": len(rows),
        "violations": sum(bool(row["violations"]) for row in rows),
        "entries": entries,
        "infinite": infinite,
        "with_infinite": sum(row["infinite"] > 0 for row in rows),
        "closest": round(max((row["closest"] for row in rows), default=0.0), 4),
        **{name: _quantile(ratios, share) for name, share in (("median", 0.5), ("q95", 0.95), ("max", 1.0))},
    }


def _quantile(ordered: list[float], share: float) -> float | None:
    return _short(ordered[round(share * (len(ordered) - 1))]) if ordered else None


def examined(numbers: Sequence[int], workers: int, seconds: float = math.inf) -> list[Row]:
    """All configurations, on several processes, in order; only those that are done when the time is over."""
    started, rows = time.time(), list[Row]()
    tasks = [(some, started + seconds) for some in shared_out(numbers, workers)]
    for found in _parallel(_examined, tasks, workers):
        rows += found
        for row in found:
            if row.get("violations") or "failed" in row:
                print(f"{'FAILED' if 'failed' in row else 'VIOLATION'}: {row}", flush=True)
        if found:
            print(f"{len(rows)} configurations, {time.time() - started:.0f} s", flush=True)
    return sorted(rows, key=lambda row: int(row["number"]))


def shared_out(numbers: Sequence[int], workers: int) -> list[list[int]]:
    """Lists of configurations with the same approximants, which a process proves once; the longest come first."""
    groups, most = dict[tuple[Any, ...], list[int]](), max(1, len(numbers) // (3 * workers))
    for number in numbers:
        row = configuration(number)
        groups.setdefault((row["target"], row["activation"], row["epsilon"]), []).append(number)
    parts = [group[i : i + most] for group in groups.values() for i in range(0, len(group), most)]
    return sorted(parts, key=len, reverse=True)


def _examined(numbers: list[int], until: float) -> list[Row]:
    return [examine(number) for number in numbers if time.time() < until]


def violations(rows: list[Row]) -> Row:
    ran = [row for row in rows if "entries" in row]
    by: dict[str, Callable[[Row], str]] = {
        "kind": lambda row: row["kind"],
        "optimiser": optimiser,
        "target": lambda row: row["target"],
        "precision": lambda row: f"{row['dtype']}, {row['executor']}",
        "activation": lambda row: row["activation"],
        "loss": lambda row: row["loss"],
        "errors": lambda row: row["errors"],
        "variant": lambda row: row["variant"] or "the target's own",
        "depth": lambda row: f"N = {len(row['sizes']) - 1}",
        "inputs": lambda row: "|x| of 30 or less, and 1e-3 or more" if moderate(row) else "|x| larger, or smaller",
    }
    return {
        "configurations": len(rows),
        "prompts": PROMPTS,
        "refused": refusals(rows),
        "overflowed": sum("overflowed" in row for row in rows),
        "failed": [row for row in rows if "failed" in row],
        "with_trajectory": sum(map(small, ran)),
        "oracles_apart": max((row["apart"] for row in ran if row["activation"] not in KINKED), default=0.0),
        "violations": [row for row in ran if row["violations"]],
        "all": [{"group": "all", **_summary(ran)}],
        **{name: grouped(ran, key) for name, key in by.items()},
    }


KINKED = set(ACTIVATIONS) - set(SMOOTH)  # where a rounding decides on which side of a kink an argument is


def optimiser(row: Row) -> str:
    if row["adam"]:
        return "Adam"
    return "Nesterov" if row["nesterov"] else "momentum" if row["momentum"] else "gradient descent"


def refusals(rows: list[Row]) -> list[Row]:
    """How often, and why: the reasons without their numbers, names and folders."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if "refused" in row:
            what, *got = row["refused"].split("; ")[:2]
            reason = what if "lane" in what or not got else f"{what}; {got[0].split(':')[0]}"
            reason = re.sub(r"/\S+", "the folder", reason)
            found[row["kind"], re.sub(r"-?\d[\d.,e+-]*|\(.*\)|\S*'", "...", reason)[:120]] += 1
    return [{"kind": kind, "count": count, "reason": reason} for (kind, reason), count in sorted(found.items())]


def _parallel(task: Callable[..., T], cells: Iterable[tuple[Any, ...]], workers: int, threads: int = 1) -> Iterator[T]:
    """task(*cell) for every cell, in order; threads: of every process."""
    if workers == 1:
        yield from (task(*cell) for cell in cells)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (threads,)) as pool:
        try:
            yield from pool.map(task, *zip(*cells, strict=True))
        finally:
            pool.shutdown(cancel_futures=True)


# ------------------------------------------------------------------------------------------------------------ tightness

D_X, D_Y, SEEDS, FEW = 4, 2, range(10), range(5)
BOUNDS = ("printed", "corrected_rows", "corrected_norms", "entrywise", "sup", "pointwise")


def tightness(workers: int) -> Row:
    """One gradient from initial weights, 32 examples: what bounds say, over what the error is."""
    shapes = [(N, K) for N in range(1, 7) for K in ((4, 8, 16, 32) if N > 1 else (4,))]
    cells = [(*shape, epsilon) for epsilon in (1e-3, 1e-5) for shape in shapes]
    others = [
        (activation, loss, output, epsilon)
        for epsilon in (1e-3, 1e-5)
        for activation in SMOOTH
        for loss in LOSSES
        for output in (("linear",) if loss in ("logistic", "softmax") else ("linear", "activation"))
    ]
    return {
        "timing": [timing()],
        "tightness": list(_parallel(compare, cells, workers)),
        "others": list(_parallel(other, others, workers)),
    }


def compare(N: int, K: int, epsilon: float) -> Row:
    """tanh, squared loss, linear output (N = 1: activated, a linear model being exact)."""
    network = ig.Network([D_X, *[K] * (N - 1), D_Y], "tanh", "linear" if N > 1 else "activation")
    algorithm = ig.GradientDescent(network, lr=0.1, steps=1, box=None)
    tf = compiled(algorithm, epsilon, 32)
    found: dict[str, list[float]] = {name: [] for name in ("error", "seconds", *BOUNDS)}
    for seed in SEEDS:
        X, y, _ = algorithm.random_prompt(32, 0, torch.Generator().manual_seed(seed))
        w = network.init(APART + seed)
        bounds = theorems(tf, w, X, y)
        for mode in MODES:
            started = time.perf_counter()
            certificate = tf.certify(X, y, w0=w, trajectory=False, errors=mode)
            if mode == "sup":
                found["seconds"].append(time.perf_counter() - started)
            bounds[mode] = certificate.gradient[0]
        error = step_error(algorithm, w, certificate.path[0, 1], X, y) / algorithm.lr
        found["error"].append(error)
        for name in BOUNDS:
            found[name].append(bounds[name] / error)
    row: Row = {"N": N, "K": K, "epsilon": epsilon, "error": _short(statistics.median(found["error"]))}
    for name in BOUNDS:
        row |= {name: _short(statistics.median(found[name])), f"{name}_max": _short(max(found[name]))}
    return {**row, "least": _short(min(found["sup"] + found["pointwise"])), "seconds": _short(min(found["seconds"]))}


def step_errors(algorithm: ig.GradientDescent, w: Tensor, after: Tensor, X: Tensor, y: Tensor) -> Long:
    """|w' - GD(w)|, entry by entry."""
    omega = np.full(len(X), 1 / np.longdouble(len(X)))
    zero = np.zeros(len(w), np.longdouble)
    exact, _ = step(descent(algorithm), 0, long(w), (zero, zero), long(X), long(y), omega)
    errors: Long = np.abs(long(after) - exact)
    return errors


def step_error(*given: Any) -> float:
    """Its Euclidean norm."""
    return float(np.sqrt((step_errors(*given) ** 2).sum()))


def theorems(tf: ig.CompiledTransformer, w: Tensor, X: Tensor, y: Tensor) -> dict[str, float]:
    """Theorem 1 as printed and corrected, with the actual sizes of this prompt and these weights as its constants, and
    the error of every entry carried along as a radius.
    """
    algorithm = tf.algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    net, N = algorithm.network, algorithm.network.depth
    matrices = [V for V, _ in net.unflatten(w)]
    full = [V if b is None else torch.cat([V, b[:, None]], dim=1) for V, b in net.unflatten(w)]
    B_v = max(float(rows.norm(dim=1).max()) for rows in full)
    favourable = ig.GradientDescent(net, algorithm.loss, box=B_v / math.sqrt(max(net.sizes[:-1]) + net.bias))
    x_bound = float(X.norm(dim=1).max()) / math.sqrt(net.sizes[0])
    values, _ = forward(descent(algorithm), long(w), long(X))
    b = [math.hypot(float(np.sqrt((p**2).sum(1)).max()), net.bias) for p in values[:N]]
    rows = [float(V.norm(dim=1).max()) for V in matrices]
    norms = [float(torch.linalg.matrix_norm(V, 2)) for V in matrices]
    radius, B_l = entrywise(tf, w, X, y)
    by_rows = [math.sqrt(k) * row for k, row in zip(net.sizes[1:], rows, strict=True)]
    return {
        "printed": printed_theorem_1(favourable, tf.approximants, x_bound, float(y.abs().max())),
        "corrected_rows": corrected(tf, by_rows, rows, b, B_l),
        "corrected_norms": corrected(tf, norms, rows, b, B_l),
        "entrywise": radius,
    }


def corrected(tf: ig.CompiledTransformer, norms: list[float], rows: list[float], b: list[float], B_l: float) -> float:
    """The corrected Theorem 1, :func:`innergrad.evidence.bounds.corrected_theorem_1`, with constants of every layer:

    norms: ||V_j||_op or a bound on it.  rows: norms of the longest rows.  b: bounds on ||p_{j-1}||_2.  B_l: sup |g|.
    """
    algorithm = tf.algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    assert isinstance(algorithm.loss, ResidualLoss)
    net, N, k = algorithm.network, algorithm.network.depth, algorithm.network.sizes
    r, dr, loss, u = *map(proven, (net.activation.r, net.activation.dr)), algorithm.loss, proven(algorithm.loss.u)
    eps = {f.name: tf.approximants[f.name].error if f.name in tf.approximants else 0.0 for f in (r, dr, loss.u)}
    e, d, slope = [0.0], [0.0], 0.0
    for j in range(1, N + 1):
        smooth, moved = net.activated(j), norms[j - 1] * e[-1]
        d.append(eps[dr.name] + dr.lipschitz * rows[j - 1] * e[-1] if smooth else 0.0)
        e.append(math.sqrt(k[j]) * eps[r.name] + r.lipschitz * moved if smooth else moved)
        slope = max(slope, dr.bound if smooth else 1.0)
    off = loss.scale * (math.sqrt(k[N]) * eps[loss.u.name] + u.lipschitz * e[N])
    S, D = (slope + max(d)) * math.sqrt(k[N]) * B_l, d[N] * math.sqrt(k[N]) * B_l + slope * off
    errors = []
    for j in range(N, 0, -1):
        errors.append(D * b[j - 1] + S * e[j - 1])
        S, D = (slope + max(d)) * norms[j - 1] * S, norms[j - 1] * (d[j - 1] * S + slope * D)
    return 0.5 * math.hypot(*errors)


def entrywise(tf: ig.CompiledTransformer, w: Tensor, X: Tensor, y: Tensor) -> tuple[float, float]:
    """A running bound without symbols: every entry has a radius, so nothing cancels. Squared loss, exact arithmetic.

        rad p = eps_r + |r'| rad z + 1/2 sup|r''| rad z^2,   rad z = |V| rad p;   products by the rule of Leibniz

    Also the largest |g|.
    """
    algorithm = tf.algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    net, weights = algorithm.network, algorithm.network.unflatten(w)
    r, dr = net.activation.r, net.activation.dr
    p, rad_p, d, rad_d = [X], [torch.zeros_like(X)], list[Tensor](), list[Tensor]()
    for j, (V, b) in enumerate(weights, start=1):
        z, rad_z = p[-1] @ V.T + (0.0 if b is None else b), rad_p[-1] @ V.abs().T
        if not net.activated(j):
            p, rad_p = [*p, z], [*rad_p, rad_z]
            d, rad_d = [*d, torch.ones_like(z)], [*rad_d, torch.zeros_like(z)]
            continue
        variable = z.clone().requires_grad_()
        (bend,) = torch.autograd.grad(dr(variable).sum(), variable)
        for f, slope, values, radii in ((r, dr(z), p, rad_p), (dr, bend, d, rad_d)):
            values.append(tf.approximants[f.name](z))
            radii.append(tf.approximants[f.name].error + slope.abs() * rad_z + 0.5 * f.curvature * rad_z**2)
    g, rad_g = 2 * (p[-1] - y), 2 * rad_p[-1]
    s, rad_s, squares = g * d[-1], rad_g * (d[-1].abs() + rad_d[-1]) + g.abs() * rad_d[-1], 0.0
    for j in range(net.depth, 0, -1):
        radius = rad_s.T @ (p[j - 1].abs() + rad_p[j - 1]) + s.abs().T @ rad_p[j - 1]
        squares += float(radius.square().sum()) + (float(rad_s.sum(0).square().sum()) if net.bias else 0.0)
        V = weights[j - 1][0]
        if j > 1:
            s, rad_s = s @ V, rad_s @ V.abs()
            rad_s = rad_s * (d[j - 2].abs() + rad_d[j - 2]) + s.abs() * rad_d[j - 2]
            s = s * d[j - 2]
    return math.sqrt(squares) / (2 * len(X)), float(g.abs().max())


def other(activation: str, loss: str, output: str, epsilon: float) -> Row:
    """Ratios of both kinds of certificates over N = 2, 3, 4, K = 8, 16 and five seeds."""
    ratios: dict[str, list[float]] = {mode: [] for mode in MODES}
    for N in (2, 3, 4):
        for K in (8, 16):
            sizes = [D_X, *[K] * (N - 1), 4 if loss == "softmax" else D_Y]
            network = ig.Network(sizes, activation, output)  # type: ignore[arg-type]
            algorithm = ig.GradientDescent(network, loss, lr=0.1, steps=1, box=None)
            tf, (X, y, w) = compiled(algorithm, epsilon, 32), batch(algorithm, 32, FEW)
            for mode in MODES:
                certificate = tf.certify(X, y, w0=w, trajectory=False, errors=mode)
                bounds = certificate.steps[0].radius.norm(dim=-1)
                for seed in FEW:
                    error = step_error(algorithm, w[seed], certificate.path[seed, 1], X[seed], y[seed])
                    ratios[mode].append(float(bounds[seed]) / error)
    row: Row = {"activation": activation, "loss": loss, "output": output, "epsilon": epsilon}
    for mode in MODES:
        row |= {mode: _short(statistics.median(ratios[mode])), f"{mode}_max": _short(max(ratios[mode]))}
    return {**row, "least": _short(min(ratios["sup"] + ratios["pointwise"]))}


def batch(algorithm: ig.GradientDescent, n: int, seeds: range = SEEDS) -> tuple[Tensor, Tensor, Tensor]:
    """One prompt for every seed."""
    drawn = [algorithm.random_prompt(n, 0, torch.Generator().manual_seed(seed)) for seed in seeds]
    X, y = (torch.stack([prompt[i] for prompt in drawn]) for i in (0, 1))
    return X, y, torch.stack([algorithm.network.init(APART + seed) for seed in seeds])


def timing() -> Row:
    """N = 4, K = 32, 32 examples, one thread."""
    algorithm = ig.GradientDescent(ig.Network([D_X, 32, 32, 32, D_Y], "tanh"), steps=1, box=None)
    tf = compiled(algorithm, 1e-3, 32)
    X, y, _ = algorithm.random_prompt(32, 0, torch.Generator().manual_seed(0))
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        tf.certify(X, y, w0=algorithm.network.init(APART), trajectory=False)
        seconds.append(time.perf_counter() - started)
    return {"N": 4, "K": 32, "n": 32, "first": _short(seconds[0]), "least": _short(min(seconds[1:]))}


def _short(value: float | None) -> float | None:
    """Four digits; what is infinite is null in the results."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


# ----------------------------------------------------------------------------------------------------------- trajectory

STEPS = 100


def trajectory(workers: int, quick: bool = False) -> Row:
    """tanh, squared loss, K = 8, 16 examples, 100 steps: bound over distance at the end."""
    cells = itertools.product((1, 2, 3), (1e-5,) if quick else (1e-4, 1e-5), (0.05,) if quick else (0.05, 0.1), MODES)
    return {"trajectory": list(_parallel(follow, cells, workers))}


def follow(N: int, epsilon: float, lr: float, mode: Literal["sup", "pointwise"]) -> Row:
    """N = 1 has an activated output: a linear model is exact."""
    network = ig.Network([D_X, *[8] * (N - 1), D_Y], "tanh", "linear" if N > 1 else "activation")
    algorithm = ig.GradientDescent(network, lr=lr, steps=STEPS, box=None)
    X, y, w = batch(algorithm, 16)
    started = time.perf_counter()
    certificate = compiled(algorithm, epsilon, 16).certify(X, y, w0=w, trajectory=True, errors=mode)
    seconds = (time.perf_counter() - started) / len(SEEDS)
    assert certificate.trajectory is not None
    ratios, distances, violated, ends = list[float](), list[float](), 0, list[int]()
    for seed in SEEDS:
        along, path = certificate.trajectory[seed], exact_path(algorithm, X[seed], y[seed], w[seed])
        apart = np.sqrt(((long(certificate.path[seed, 1:]) - path) ** 2).sum(1))
        violated += int((~(apart <= long(along))).sum())
        distances.append(float(apart[-1]))
        ratios.append(float(along[-1]) / distances[-1])
        ends += [int(torch.isinf(along).nonzero()[0]) + 1] if math.isinf(ratios[-1]) else []
    return {
        "N": N,
        "epsilon": epsilon,
        "lr": lr,
        "errors": mode,
        "distance": _short(statistics.median(distances)),
        "median": _short(statistics.median(ratios)),
        "max": _short(max(ratios)),
        "diverged": len(ends),
        "first_diverged": min(ends, default=None),
        "violations": violated,
        "seconds": _short(seconds),
    }


#: data, sizes, lr, steps, seed
LLAMA_PATHS = (
    ("diabetes", (10, 8, 8, 1), 0.1, 1000, 0),
    ("diabetes", (10, 8, 8, 1), 0.5, 300, 0),
    ("diabetes", (10, 8, 8, 1), 0.5, 300, 1),
    *(("random", (D_X, *[8] * (N - 1), D_Y), lr, 100, 0) for N in (1, 2, 3, 4) for lr in (0.1, 0.5)),
    ("random", (D_X, 8, 8, D_Y), 2.0, 100, 0),
)
LLAMA_STEPS_QUICK = 20


def llama_paths(workers: int, quick: bool = False, known: Sequence[Row] = ()) -> Row:
    """The demo's network, data and settings on target llama, which errs by rounding alone; and random prompts. known:
    rows of an earlier run.
    """
    cells = [(*cell[:3], min(cell[3], LLAMA_STEPS_QUICK) if quick else cell[3], cell[4]) for cell in LLAMA_PATHS]
    rows = {cell_of(row): row for row in known}
    threads, missing = max(1, (os.cpu_count() or 1) // workers), [cell for cell in cells if cell not in rows]
    rows |= {cell_of(row): row for row in _parallel(follow_llama, missing, workers, threads)}
    return {"trajectory": [rows[cell] for cell in cells]}


def cell_of(row: Row) -> tuple[str, tuple[int, ...], float, int, int]:
    return row["data"], tuple(row["sizes"]), row["lr"], row["steps"], row["seed"]


def follow_llama(data: str, sizes: tuple[int, ...], lr: float, steps: int, seed: int) -> Row:
    """tanh, squared loss, no box; the demo's 48 examples of the diabetes data, or 16 random ones."""
    network = ig.Network(sizes, "tanh")
    algorithm = ig.GradientDescent(network, lr=lr, steps=steps, box=None)
    if data == "diabetes":
        X, y, *_ = diabetes(seed)
    else:
        X, y, _ = algorithm.random_prompt(16, 0, torch.Generator().manual_seed(seed))
    tf, w = ig.compile(algorithm, target="llama", n_examples=len(X)), network.init(seed)
    started = time.perf_counter()
    certificate = tf.certify(X, y, w0=w, trajectory=True)
    seconds = time.perf_counter() - started
    assert certificate.trajectory is not None
    along = certificate.trajectory[0]
    apart = np.sqrt(((long(certificate.path[0, 1:]) - exact_path(algorithm, X, y, w)) ** 2).sum(1))
    row: Row = {"data": data, "sizes": list(sizes), "n": len(X), "lr": lr, "steps": steps, "seed": seed}
    row |= {
        "bound": _short(float(along[-1])),
        "distance": _short(float(apart[-1])),
        "ratio": _short(float(along[-1]) / float(apart[-1])),
        "diverged": certificate.diverged,
        "violations": int((~(apart <= long(along))).sum()),
        "seconds": _short(seconds),
    }
    print(json.dumps(row), flush=True)
    return row


def exact_path(algorithm: ig.GradientDescent, X: Tensor, y: Tensor, w0: Tensor) -> Long:
    """(steps, D_w)."""
    zero, path = np.zeros(len(w0), np.longdouble), []
    w, state = long(w0), (zero, zero)
    omega = np.full(len(X), 1 / np.longdouble(len(X)))
    for number in range(algorithm.steps):
        w, state = step(descent(algorithm), number, w, state, long(X), long(y), omega)
        path.append(w)
    return np.stack(path)


# --------------------------------------------------------------------------------------------------------------- attack


def attacks(workers: int) -> Row:
    """The worst prompts and weights that ascent finds: every activation and loss, and tanh at every depth."""
    cells = [(activation, loss, 2, 4) for activation in ACTIVATIONS for loss in LOSSES]
    cells += [("tanh", "squared", N, K) for N in range(2, 7) for K in (8, 16)]
    return {"attack": list(_parallel(attacked, cells, workers))}


def attacked(activation: str, loss: str, N: int, K: int) -> Row:
    """|x| <= 2, |y| <= 1, weights in a box of 1; epsilon = 1e-3, 8 examples, 32 starts, 100 steps of ascent."""
    network = ig.Network([3, *[K] * (N - 1), 3 if loss == "softmax" else 2], activation)
    algorithm = ig.GradientDescent(network, loss, steps=1, box=1.0)
    z_bound = SIN_DOMAIN if activation == "sin" else None
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=8, x_bound=2.0, y_bound=1.0, z_bound=z_bound)
    found = attack(tf, starts=32, iterations=100, seed=0)
    certificate = tf.certify(found.X, found.y, w0=found.w0, trajectory=False)
    error = step_errors(algorithm, found.w0, certificate.path[0, 1], found.X, found.y)
    numbers = {name: getattr(found, name) for name in ("error", "median", "certificate", "closest", "domainwide")}
    return {
        "activation": activation,
        "loss": loss,
        "N": N,
        "K": K,
        **{name: _short(value) for name, value in numbers.items()},
        "violations": [*found.violations, *map(str, np.flatnonzero(~(error <= long(certificate.steps[0].radius[0]))))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["violations", "tightness", "trajectory", "attack"])
    parser.add_argument("--target", choices=["llama"], help="only configurations of this target")
    parser.add_argument("--count", type=int, help="configurations (default: 10,000; of one target 2,000)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first configuration")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no more configurations are begun")
    parser.add_argument(
        "--rows", type=Path, nargs="*", default=[], help="rows_*.json of earlier runs: what is in them is not run again"
    )
    parser.add_argument(
        "--quick", action="store_true", help="of the trajectories only epsilon = 1e-5, lr = 0.05; 20 steps"
    )
    parser.add_argument("--out", type=Path, help="a folder for a copy of the results")
    given = parser.parse_args()
    torch.set_num_threads(1)
    command, name = f"python benchmarks/certificates.py {given.part}", given.part
    if given.part == "violations":
        rows_of = {row["number"]: row for path in given.rows for row in json.loads(path.read_text())}
        first, count = given.first + (LLAMA if given.target else 0), given.count or (2_000 if given.target else 10_000)
        wanted, name = range(first, first + count), given.target or given.part
        rows = examined([number for number in wanted if number not in rows_of], given.workers, given.seconds)
        if given.out is not None and rows:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"rows_{rows[0]['number']}_{len(rows)}.json").write_text(json.dumps(rows))
        rows_of |= {row["number"]: row for row in rows}
        data = {"asked": len(wanted), **violations([rows_of[number] for number in wanted if number in rows_of])}
        command += f"{f' --target {given.target}' if given.target else ''} --first {given.first} --count {count}"
    elif given.part == "trajectory":
        earlier = [row for path in given.rows for row in json.loads(path.read_text())]
        data = (
            llama_paths(given.workers, given.quick, earlier) if given.target else trajectory(given.workers, given.quick)
        )
        command += f"{f' --target {given.target}' if given.target else ''}{' --quick' if given.quick else ''}"
        name = f"{given.target}_{name}" if given.target else name
    else:
        data = {"tightness": tightness, "attack": attacks}[given.part](given.workers)
    store(f"certificates_{name}", command, data, given.out)


if __name__ == "__main__":
    main()
