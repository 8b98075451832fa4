"""In-context training against training: time of L steps of the fused executor, divided by that of its fastest rival.

Every point is measured in one run. The contenders take turns, and a ratio is the median of the ratios of the rounds, so
that other work of the machine meets both. None of them looks for symptoms after a run. Before anything is timed, all of
them must end with the same weights, up to the accuracy of the approximants.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from innergrad.algorithms import GradientDescent
from innergrad.algorithms.networks import Network
from innergrad.bench import rivals
from innergrad.compiler import compile
from innergrad.errors import InputError, JobError, integer
from innergrad.memory import require_memory
from innergrad.transformer import CompiledTransformer

EPSILON, RATE, D_X, D_Y = 1e-4, 0.01, 8, 2
SIZES = {"n": (20, 64, 256, 1024, 4096), "K": (8, 16, 32, 64, 128), "N": (2, 3, 4, 6)}
QUICK = {"n": (20, 256, 4096), "K": (8, 64), "N": (3,)}
DTYPES = {"float32": torch.float32, "float64": torch.float64}
AGREE = {torch.float32: 2e-3, torch.float64: 1e-3}  # of weights, after the steps of the check
CHECKED = 5  # steps
LEAST_STEPS = 10  # of a timed run: costs that a call has once are part of the time


@dataclass(frozen=True)
class Point:
    """n examples, N layers of width K, one network."""

    n: int
    K: int
    N: int
    dtype: str = "float32"
    threads: int = 1

    @property
    def network(self) -> Network:
        return Network([D_X, *[self.K] * (self.N - 1), D_Y])


def grid(sizes: dict[str, tuple[int, ...]], dtypes: Iterable[str], threads: Iterable[int]) -> list[Point]:
    points = itertools.product(dtypes, threads, sizes["N"], sizes["K"], sizes["n"])
    return [Point(n, K, N, dtype, count) for dtype, count, N, K, n in points]


def compiled(net: Network, n: int, steps: int, epsilon: float = EPSILON) -> CompiledTransformer:
    return compile(GradientDescent(net, lr=RATE, steps=steps, box=None), epsilon=epsilon, n_examples=n)


def data(net: Network, n: int, dtype: torch.dtype, *batch: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """X, y, w0, with a batch axis if there is a batch."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(*batch, n, net.sizes[0], generator=generator, dtype=torch.float64)
    y = torch.randn(*batch, n, net.sizes[-1], generator=generator, dtype=torch.float64)
    w0 = torch.stack([net.init(i) for i in range(*batch)]) if batch else net.init(seed)
    return X.to(dtype), y.to(dtype), w0.to(dtype)


Times = dict[str, list[float]]


def rounds(contenders: dict[str, Callable[[], object]], repeats: int) -> Times:
    """Seconds of each in every round; they take turns."""
    times: Times = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return times


def medians(times: Times) -> dict[str, float]:
    return {name: statistics.median(found) for name, found in times.items()}


def ratio(times: Times, name: str, others: Iterable[str]) -> float:
    """Of one to the fastest of the others: the median over the rounds."""
    rival = min(others, key=lambda other: statistics.median(times[other]))
    return round(statistics.median(a / b for a, b in zip(times[name], times[rival], strict=True)), 4)


def measure(point: Point, repeats: int = 5, seconds: float = 0.1) -> dict[str, Any]:
    """Microseconds a step of every contender, and the ratios. seconds: about how long a run of the slowest takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(point.threads)
    try:
        return _measure(point, repeats, seconds)
    finally:
        torch.set_num_threads(before)


def _measure(point: Point, repeats: int, seconds: float) -> dict[str, Any]:
    net, dtype = point.network, DTYPES[point.dtype]
    X, y, w0 = data(net, point.n, dtype)
    train = {**rivals.AUTOGRAD, "manual": rivals.manual}
    _agree(compiled(net, point.n, CHECKED), X, y, w0, {n: f(net, X, y, w0, RATE, CHECKED) for n, f in train.items()})
    start = time.perf_counter()
    rivals.foreach(net, X, y, w0, RATE, CHECKED)
    one = (time.perf_counter() - start) / CHECKED
    steps = max(LEAST_STEPS, min(400, int(seconds / one)))
    tf = compiled(net, point.n, steps)
    how = {"w0": w0, "dtype": dtype, "executor": "fused", "record": "last", "diagnose": False}
    contenders: dict[str, Callable[[], object]] = {
        name: partial(f, net, X, y, w0, RATE, steps) for name, f in train.items()
    }
    contenders["compiled"] = lambda: tf.run(X, y, compiled=True, **how)  # type: ignore[arg-type]
    contenders["fallback"] = lambda: tf.run(X, y, compiled=False, **how)  # type: ignore[arg-type]
    contenders["compiled"]()
    contenders["fallback"]()
    times = rounds(contenders, repeats)
    return {
        **asdict(point),
        "steps": steps,
        **{name: round(1e6 * found / steps, 3) for name, found in medians(times).items()},
        "ratio": ratio(times, "compiled", rivals.AUTOGRAD),
        "fallback_ratio": ratio(times, "fallback", rivals.AUTOGRAD),
        "manual_ratio": ratio(times, "compiled", ("manual",)),
    }


def _agree(tf: CompiledTransformer, X: Tensor, y: Tensor, w0: Tensor, others: dict[str, Tensor]) -> None:
    """All contenders train the same network: else nothing is measured."""
    how = {"w0": w0, "dtype": X.dtype, "executor": "fused", "record": "last"}
    found = {
        name: tf.run(X, y, compiled=flag, **how).weights[..., -1, :]  # type: ignore[arg-type]
        for name, flag in (("compiled", None), ("fallback", False))
    }
    for name, weights in {**found, **others}.items():
        distance = float((weights - found["compiled"]).abs().max())
        if not distance <= AGREE[X.dtype]:
            raise JobError(f"{name} does not end with the same weights: they differ by {distance:.1e}")


def measure_batch(prompts: int, n: int, K: int, N: int, dtype: str, device: str, repeats: int = 5) -> dict[str, Any]:
    """A batch of prompts, each with its own data and w0, against torch.func's vmap(grad)."""
    net, kind = Point(n, K, N).network, DTYPES[dtype]
    X, y, w0 = (part.to(device) for part in data(net, n, kind, prompts))
    on_gpu = device != "cpu"
    steps = 100 if on_gpu else 5

    def synchronised(run: Callable[[], object]) -> Callable[[], object]:
        def timed() -> None:
            run()
            if on_gpu:
                torch.cuda.synchronize()

        return timed

    _agree(compiled(net, n, CHECKED), X, y, w0, {m: f(net, X, y, w0, RATE, CHECKED) for m, f in rivals.BATCHED.items()})
    tf = compiled(net, n, steps)
    how = {"w0": w0, "dtype": kind, "executor": "fused", "record": "last", "diagnose": False}
    contenders: dict[str, Callable[[], object]] = {
        name: synchronised(partial(f, net, X, y, w0, RATE, steps)) for name, f in rivals.BATCHED.items()
    }
    contenders["fused"] = synchronised(lambda: tf.run(X, y, **how))  # type: ignore[arg-type]
    contenders["fallback"] = synchronised(lambda: tf.run(X, y, compiled=False, **how))  # type: ignore[arg-type]
    for run in contenders.values():
        run()
    times = rounds(contenders, repeats)
    return {
        "prompts": prompts,
        "n": n,
        "K": K,
        "N": N,
        "dtype": dtype,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "threads": torch.get_num_threads(),
        "steps": steps,
        **{name: round(1e6 * found / steps, 2) for name, found in medians(times).items()},
        "ratio": ratio(times, "fused", rivals.BATCHED),
        "fallback_ratio": ratio(times, "fallback", rivals.BATCHED),
    }


MOST, DEEPEST, MOST_THREADS = 2**20, 256, 1024  # examples or width; layers; threads, which are all started
COPIES = 20  # of activations and weights, at least


def chosen(quick: bool, points: list[list[int]] | None, dtypes: list[str], threads: list[int]) -> list[Point]:
    """The points of the command line: those given, n, K, N of each, or a grid."""
    for count in threads:
        integer("threads", count, high=MOST_THREADS)
    unknown = [name for name in dtypes if name not in DTYPES]
    if unknown or not dtypes:
        raise InputError("unknown dtype", got=", ".join(unknown) or "none", allowed=", ".join(DTYPES))
    if points is not None:
        shallow = [point for point in points if point[2] < 2]
        if shallow or not points:
            raise InputError("a point has n examples, width K, and N >= 2 layers", got=shallow or "none")
        for n, K, N in points:
            integer("n", n, high=MOST), integer("K", K, high=MOST), integer("N", N, high=DEEPEST)
            require_memory(COPIES * 8.0 * N * K * (n + K), f"the point {n},{K},{N}", "choose a smaller one")
        return [Point(n, K, N, dtype, count) for dtype in dtypes for count in threads for n, K, N in points]
    return grid(QUICK if quick else SIZES, dtypes, threads)
