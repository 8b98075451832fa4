"""In-context training at the price of training: every number of docs/reference/executor.md.

    python benchmarks/executor.py grid      ratios to torch on the whole grid; --threads 2 for two
    python benchmarks/executor.py jax       ratios to a loop that JAX compiles as a whole (pip install jax), on one core
    python benchmarks/executor.py batch     4,096 prompts at once, against vmap(grad); --device cuda for a GPU
    python benchmarks/executor.py growth    time against n, K, N, L and the number of prompts, with fitted exponents
    python benchmarks/executor.py memory    peak memory, and K = 512, N = 6, n = 10,000
    python benchmarks/executor.py dense     the same function with the dense module
    python benchmarks/executor.py count     only its FLOPs, with the times that are stored
    python benchmarks/executor.py steps     1,000 steps in float32 on the demo's data
    python benchmarks/executor.py auto      what building a kernel takes, and loading one from the cache
    python benchmarks/executor.py draw      docs/executor.png

Each writes results/executor_<name>.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import innergrad as ig
from _results import read, renew, store
from innergrad import figures
from innergrad.bench import rivals
from innergrad.bench.executor import (
    DTYPES,
    RATE,
    SIZES,
    Point,
    compiled,
    data,
    grid,
    measure,
    measure_batch,
    medians,
    ratio,
    rounds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).parent.parent
FEW = {"prompts": 4096, "n": 32, "K": 16, "N": 3}


def _store(name: str, command: str, content: dict[str, Any]) -> None:
    store(f"executor_{name}", f"python benchmarks/executor.py {command}", {"processor": _processor(), **content})


def _processor() -> str:
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def run_grid(threads: int, repeats: int, part: str | None = None) -> None:
    """``part``: N and dtype, as 6-float32: only these rows are measured again, all of them, and the others stay."""
    name, rows = f"grid_{threads}", []
    before = [] if part is None else read(f"executor_{name}")["rows"]
    for number, point in enumerate(grid(SIZES, DTYPES, (threads,))):
        if part not in (None, f"{point.N}-{point.dtype}"):
            rows.append(before[number])
            continue
        rows.append(measure(point, repeats))
        print(
            {key: rows[-1][key] for key in ("n", "K", "N", "dtype", "threads", "ratio", "fallback_ratio")}, flush=True
        )
    _store(name, "grid" + f" --threads {threads}" * (threads > 1), {"rows": rows})


def run_jax(repeats: int) -> None:
    """Times of a step on one core: the executor, JAX, back-propagation by hand in torch; and the ratio to JAX."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = []
    for point in grid(SIZES, ("float32",), (1,)):
        net = point.network
        X, y, w0 = data(net, point.n, torch.float32)
        start = time.perf_counter()
        rivals.manual(net, X, y, w0, RATE, 5)
        steps = max(10, min(400, int(0.5 / (time.perf_counter() - start))))
        tf, scanned = compiled(net, point.n, steps), jax_loop(net, X, y, w0, RATE, steps)
        how: dict[str, Any] = {"w0": w0, "dtype": torch.float32, "executor": "fused", "record": "last"}
        contenders: dict[str, Callable[[], Any]] = {
            "compiled": partial(tf.run, X, y, compiled=True, diagnose=False, **how),
            "jax": scanned,
            "manual": partial(rivals.manual, net, X, y, w0, RATE, steps),
        }
        exact, found = contenders["manual"](), torch.from_numpy(np.concatenate([np.ravel(w) for w in scanned()]))
        off = float((exact - found).abs().max() / exact.abs().max())
        if off > 1e-3:
            raise SystemExit(f"{point}: JAX ends {off:.1e} from torch, so nothing is measured")
        contenders["compiled"]()
        times = rounds(contenders, repeats)
        row: dict[str, Any] = {"n": point.n, "K": point.K, "N": point.N, "steps": steps}
        row |= {name: round(1e6 * seconds / steps, 3) for name, seconds in medians(times).items()}
        rows.append({**row, "ratio": ratio(times, "compiled", ("jax",))})
        print(rows[-1], flush=True)
    _store("jax", "jax", {"jax": import_module("jax").__version__, "rows": rows})


def jax_loop(
    net: ig.Network, X: torch.Tensor, y: torch.Tensor, w0: torch.Tensor, lr: float, steps: int
) -> Callable[[], Any]:
    """L steps as one compiled ``lax.scan``; a call waits for the weights."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")

    def risk(weights: Any, X: Any, y: Any) -> Any:
        p, last = X, len(weights) - 2
        for j in range(0, len(weights), 2):
            z = p @ weights[j].T + weights[j + 1]
            p = z if j == last else jnp.tanh(z)
        return jnp.square(p - y).sum() / (2 * len(X))

    def train(weights: Any, X: Any, y: Any) -> Any:
        def step(weights: Any, _: None) -> tuple[Any, None]:
            gradients = jax.grad(risk)(weights, X, y)
            return [w - lr * g for w, g in zip(weights, gradients, strict=True)], None

        return jax.lax.scan(step, weights, None, length=steps)[0]

    trained = jax.jit(train)
    given = (
        [jnp.asarray(part.numpy()) for part in rivals.parameters(net, w0)],
        *(jnp.asarray(a.numpy()) for a in (X, y)),
    )
    jax.block_until_ready(trained(*given))
    return lambda: jax.block_until_ready(trained(*given))


def run_batch(device: str, repeats: int) -> None:
    rows = []
    for dtype in DTYPES:
        for threads in (1, 2) if device == "cpu" else (1,):
            torch.set_num_threads(threads)
            rows.append(measure_batch(**FEW, dtype=dtype, device=device, repeats=repeats))
            print(rows[-1], flush=True)
    gpu = device != "cpu"
    _store("batch_gpu" if gpu else "batch", "batch" + " --device cuda" * gpu, {"rows": rows})


# ------------------------------------------------------------------------------------------------------------- growth

# what grows -> its values, and the other sizes: large enough that a call's own cost is not seen
GROWTH: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "n": ((1024, 2048, 4096, 8192, 16384), {"L": 50, "prompts": 1, "K": 64, "N": 3}),
    "L": ((100, 200, 400, 800, 1600), {"n": 256, "prompts": 1, "K": 32, "N": 3}),
    "prompts": ((64, 128, 256, 512, 1024), {"n": 64, "L": 50, "K": 16, "N": 3}),
    "K": ((128, 192, 256, 384, 512), {"n": 512, "L": 20, "prompts": 1, "N": 6}),
    "N": ((4, 6, 8, 12, 16), {"n": 512, "L": 50, "prompts": 1, "K": 64}),
}


def run_growth(repeats: int) -> None:
    """Seconds of a run when one size grows; K is also shown as the number of weights."""
    rows: list[dict[str, Any]] = []
    for name, (values, others) in GROWTH.items():
        for value in values:
            size = {**others, name: value}
            net = Point(size["n"], size["K"], size["N"]).network
            tf = compiled(net, size["n"], size["L"])
            X, y, w0 = data(net, size["n"], torch.float32, size["prompts"])
            found = {}
            for path, flag in (("compiled", True), ("fallback", False)):
                how = {"w0": w0, "dtype": torch.float32, "executor": "fused", "record": "last", "compiled": flag}

                def run(how: dict[str, Any] = how, tf: Any = tf, X: Any = X, y: Any = y) -> None:
                    tf.run(X, y, **how)

                run()
                found[path] = medians(rounds({path: run}, repeats))[path]
            rows.append({"grows": name, "value": value, "weights": net.n_weights, **found})
            print(rows[-1], flush=True)
    exponents = []
    for name in (*GROWTH, "weights"):
        part = [row for row in rows if row["grows"] == ("K" if name == "weights" else name)]
        at = [row["weights"] if name in ("weights", "N") else row["value"] for row in part]
        for path in ("compiled", "fallback"):
            slope = np.polyfit(np.log(at), np.log([row[path] for row in part]), 1)[0]
            exponents.append(
                {"in": "weights, by N" if name == "N" else name, "path": path, "exponent": round(float(slope), 3)}
            )
            print(exponents[-1])
    _store("growth", "growth", {"rows": rows, "exponents": exponents})


# ------------------------------------------------------------------------------------------------------------- memory

CHILD = """
import resource, sys, time, torch
import innergrad as ig
from innergrad.bench import rivals
from innergrad.bench.executor import RATE, compiled, data, Point
what, n, K, N, dtype, steps = sys.argv[1], *map(int, sys.argv[2:5]), getattr(torch, sys.argv[5]), int(sys.argv[6])
torch.set_num_threads(1)
net = Point(n, K, N).network
X, y, w0 = data(net, n, dtype)
tf = compiled(net, n, steps)
run = dict(w0=w0, dtype=dtype, executor="fused", record="last", compiled=what == "compiled")
if what in ("compiled", "fallback"):
    compiled(Point(20, 8, 2).network, 20, 2).run(*data(Point(20, 8, 2).network, 20, dtype)[:2], dtype=dtype)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
loss = None
if what in ("compiled", "fallback"):
    w = tf.run(X, y, **run).weights[-1]
else:
    w = getattr(rivals, what)(net, X, y, w0, RATE, steps)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter() - start,
      float((net.forward(w.double(), X.double()) - y.double()).square().sum() / (2 * n)))
"""


def _child(*arguments: object) -> tuple[float, float, float, float]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    before, peak, seconds, loss = map(float, done.stdout.split())
    return before / 1024, peak / 1024, seconds, loss


def run_memory() -> None:
    """Peak of a fresh process, MiB, and how much of it the run added."""
    rows = []
    sizes = [(20, 8, 3, "float32", 200), (1024, 64, 4, "float32", 50), (4096, 128, 4, "float32", 20)]
    sizes += [(4096, 128, 6, "float64", 10), (10_000, 512, 6, "float32", 2), (10_000, 512, 6, "float64", 2)]
    for size in sizes:
        for what in ("compiled", "fallback", "foreach", "manual"):
            before, peak, seconds, loss = _child(what, *size)
            n, K, N, dtype, steps = size
            row = {"what": what, "n": n, "K": K, "N": N, "dtype": dtype, "steps": steps, "peak_mib": round(peak)}
            rows.append({**row, "added_mib": round(peak - before, 1), "seconds": round(seconds, 3), "loss": loss})
            print(rows[-1], flush=True)
    _store("memory", "memory", {"rows": rows})


# -------------------------------------------------------------------------------------------------------------- dense


def dense_transformer() -> ig.CompiledTransformer:
    """K = 8, N = 3, n = 16, epsilon 1e-3, five steps."""
    algorithm = ig.GradientDescent(ig.Network([4, 8, 8, 2]), lr=RATE, steps=5, box=None)
    return ig.compile(algorithm, epsilon=1e-3, n_examples=16)


def dense_counts() -> dict[str, int]:
    """FLOPs of a step, by innergrad.flops: with D x D heads, as the paper counts, and structured."""
    tf = dense_transformer()
    totals = tf.cost().totals()
    dense, structured = totals["FLOPs (D x D heads)"], totals["FLOPs (structured)"]
    steps = tf.program.steps
    return {
        "flops_dense": dense // steps,
        "flops_structured": structured // steps,
        "flop_ratio": round(dense / structured),
    }


def count_dense() -> None:
    """The counts of results/executor_dense.json again; its times stay those of the machine that took them."""
    rows = [row | dense_counts() for row in read("executor_dense")["rows"]]
    renew("executor_dense", "python benchmarks/executor.py count", {"rows": rows})


def run_dense(repeats: int) -> None:
    """The matrices of the transformer, the plain interpreter, and this one."""
    rows = []
    torch.set_num_threads(1)
    for dtype in (torch.float64, torch.float32):
        tf = dense_transformer()
        net, steps = ig.Network([4, 8, 8, 2]), tf.program.steps
        X, y, w0 = data(net, 16, dtype)
        stream, module = tf.stream(X, y, w0=w0, dtype=dtype), tf.module_for(dtype)
        runs = {name: tf.run(X, y, w0=w0, dtype=dtype, executor=name).weights for name in ("dense", "plain", "fused")}
        distance = {name: float((runs[name] - runs["plain"]).abs().max() / runs["plain"].abs().max()) for name in runs}

        long = ig.compile(ig.GradientDescent(net, lr=RATE, steps=2000, box=None), epsilon=1e-3, n_examples=16)
        contenders: dict[str, Callable[[], object]] = {
            "dense": lambda module=module, stream=stream: module(stream),  # type: ignore[misc]
            "plain": lambda tf=tf, X=X, y=y, w0=w0, dtype=dtype: tf.run(X, y, w0=w0, dtype=dtype),  # type: ignore[misc]
            "fused": lambda long=long, X=X, y=y, w0=w0, dtype=dtype: long.run(  # type: ignore[misc]
                X, y, w0=w0, dtype=dtype, executor="fused", record="last"
            ),
        }
        for run in contenders.values():
            run()
        found = medians(rounds(contenders, repeats))
        per_step = {name: found[name] / (2000 if name == "fused" else steps) for name in found}
        rows.append(
            {
                "dtype": str(dtype).removeprefix("torch."),
                **{f"{name}_us": round(1e6 * seconds, 2) for name, seconds in per_step.items()},
                "time_ratio": round(per_step["dense"] / per_step["fused"]),
                **dense_counts(),
                "dense_to_plain": distance["dense"],
                "fused_to_plain": distance["fused"],
            }
        )
        print(rows[-1])
    _store("dense", "dense", {"rows": rows})


# -------------------------------------------------------------------------------------------------------------- steps


def run_steps() -> None:
    """The demo's network and data, 1,000 steps in float32, against torch autograd in float32 and float64."""
    from innergrad.cli.demo import diabetes

    rows = []
    X, y, X_query, y_query = diabetes(0)
    del y_query
    for epsilon in (1e-3, 1e-4, 1e-5):
        for lr in (0.5, 0.1, 0.05, 0.02):
            net = ig.Network([X.shape[1], 8, 8, 1], "tanh")
            algorithm = ig.GradientDescent(net, lr=lr, steps=1000)
            tf = ig.compile(algorithm, epsilon=epsilon, n_examples=len(X))
            w0 = net.init(0).float()
            single, double = X.float(), X.float().double()
            run = tf.run(single, y.float(), w0=w0, dtype=torch.float32, executor="fused")
            exact = ig.reference(algorithm, double, y.float().double(), w0=w0.double())
            loss, truth = (
                float(algorithm.risk(w.double(), double, y.float().double()))
                for w in (run.weights[-1], exact.weights[-1])
            )
            trained = rivals.foreach(net, single, y.float(), w0, lr, 1000).double()
            in_single = float(algorithm.risk(trained, double, y.float().double()))
            distance = (run.weights.double() - exact.weights).norm(dim=-1)[1:]
            few = ig.compile(ig.GradientDescent(net, lr=lr, steps=100), epsilon=epsilon, n_examples=len(X))
            certificate = few.certify(single, y.float(), w0=w0, dtype=torch.float32, executor="fused", trajectory=True)
            assert certificate.trajectory is not None
            bounds = certificate.trajectory[0]
            finite = int(torch.isfinite(bounds).sum())
            held = bool((distance[:100] <= bounds).all())
            rows.append(
                {
                    "epsilon": epsilon,
                    "lr": lr,
                    "loss": loss,
                    "autograd": truth,
                    "relative": abs(loss - truth) / truth,
                    "autograd_float32_relative": abs(in_single - truth) / truth,
                    "distance": float(distance[-1]),
                    "certified_steps": finite,
                    "held": held,
                }
            )
            print(rows[-1], flush=True)
    del X_query
    _store("steps", "steps", {"rows": rows})


# --------------------------------------------------------------------------------------------------------------- auto

FIRST_RUN = """
import resource, sys, time, torch
from innergrad.bench.executor import Point, compiled, data
K, N, dtype = int(sys.argv[1]), int(sys.argv[2]), getattr(torch, sys.argv[3])
torch.set_num_threads(1)
net = Point(20, K, N).network
X, y, w0 = data(net, 20, dtype)
tf = compiled(net, 20, 2)
def spent():
    own, made = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + made.ru_utime + made.ru_stime
def seconds(compiled):
    start, before = time.perf_counter(), spent()
    tf.run(X, y, w0=w0, dtype=dtype, executor="fused", record="last", compiled=compiled)
    return time.perf_counter() - start, spent() - before
seconds(False)  # the graph, which every fused run needs
first, second = seconds(True), seconds(True)
print(first[0] - second[0], first[1] - second[1])
"""
SHAPES = ((8, 2), (32, 3), (128, 6))  # K, N


def run_auto() -> None:
    """What the first run with a kernel takes more than the second, in processes of their own."""
    rows = []
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as cache:
            for K, N in SHAPES:
                for held in ("another shape" if SHAPES[0] != (K, N) else "nothing", "this shape"):
                    done = subprocess.run(
                        [sys.executable, "-c", FIRST_RUN, str(K), str(N), dtype],
                        env={**os.environ, "INNERGRAD_CACHE": cache},
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    wall, processor = (round(float(part), 4) for part in done.stdout.split())
                    row = {"cache": held, "K": K, "N": N, "dtype": dtype}
                    rows.append({**row, "seconds": wall, "processor_seconds": processor})
                    print(rows[-1], flush=True)
    _store("auto", "auto", {"rows": rows})


# --------------------------------------------------------------------------------------------------------------- draw


COLOURS = {"compiled": figures.GREEN, "fallback": figures.ORANGE}
GROWS = {"n": "examples n", "K": "width K", "N": "layers N", "L": "steps L", "prompts": "prompts in a batch"}


def draw() -> None:
    """Every point of the grid, and how the time grows with each size."""
    rows, growth = read("executor_grid_1")["rows"], read("executor_growth")
    with figures.new(2, 3, size=(13, 7.6)) as (figure, axes):
        _draw_grid(axes[0], [row for row in rows if row["threads"] == 1])
        for ax, (name, title) in zip(axes[1:], GROWS.items(), strict=True):
            _draw_growth(ax, name, title, growth)
        axes[1].legend()
        figures.save(figure, ROOT / "docs" / "executor.png")
    print("wrote docs/executor.png")


def _draw_grid(ax: Axes, rows: list[dict[str, Any]]) -> None:
    for dtype, marker in (("float32", "o"), ("float64", "s")):
        part = [row for row in rows if row["dtype"] == dtype]
        work = [3 * row["n"] * Point(row["n"], row["K"], row["N"]).network.n_weights for row in part]
        for path, key in (("compiled", "ratio"), ("fallback", "fallback_ratio")):
            look: dict[str, Any] = {"s": 14, "marker": marker, "color": COLOURS[path], "alpha": 0.6}
            ax.scatter(work, [row[key] for row in part], label=f"{path}, {dtype}", **look)
    ax.axhline(1.0, color=figures.DARK, lw=0.8)
    ax.set(xscale="log", yscale="log", xlabel="multiply-adds a step", ylabel="time / torch autograd")
    ax.set_title("Every point of the grid, one thread")
    ax.legend()


def _draw_growth(ax: Axes, name: str, title: str, growth: dict[str, Any]) -> None:
    part = [row for row in growth["rows"] if row["grows"] == name]
    sizes = [row["value"] for row in part]
    for path, colour in COLOURS.items():
        ax.plot(sizes, [1e3 * row[path] for row in part], "o-", color=colour, label=path)
    key = "weights, by N" if name == "N" else "weights" if name == "K" else name
    of = "weights" if name in ("K", "N") else name
    slopes = [f"{e['path']} {e['exponent']:.2f}" for e in growth["exponents"] if e["in"] == key]
    ax.set(xscale="log", yscale="log", xlabel=title, ylabel="ms a run")
    ax.set_title(f"exponent in {of}: {', '.join(slopes)}", fontsize=figures.SMALL)
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=7)
    ax.minorticks_off()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("grid", "jax", "batch", "growth", "memory", "dense", "count", "steps", "auto", "draw")
    parser.add_argument("what", choices=names)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", help="grid: measure only these rows again, as 6-float32 (N = 6)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    if arguments.what == "grid":
        run_grid(arguments.threads, arguments.repeats, arguments.part)
    elif arguments.what == "jax":
        run_jax(arguments.repeats)
    elif arguments.what == "batch":
        run_batch(arguments.device, arguments.repeats)
    elif arguments.what == "growth":
        run_growth(arguments.repeats)
    elif arguments.what == "memory":
        run_memory()
    elif arguments.what == "dense":
        run_dense(arguments.repeats)
    elif arguments.what == "count":
        count_dense()
    elif arguments.what == "steps":
        run_steps()
    elif arguments.what == "auto":
        run_auto()
    else:
        draw()
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
