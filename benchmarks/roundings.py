"""How exactly numpy and torch evaluate elementary functions: what proofs and certificates take for granted of them.

    python benchmarks/roundings.py float64                  sampled, against python-flint's balls
    python benchmarks/roundings.py float32 --workers 16     all finite numbers, against float64

Interval arithmetic trusts the functions below, in float64, to ``LIBRARY_ULP`` units in the last place, and to flushing
nothing larger than the smallest normal number to zero; sums, products, quotients and roots are correctly rounded. That
is a fact about libraries on a processor, not about innergrad, so it is measured, with a margin, and certificates name
it. Of float32 nothing is taken for granted: a certificate measures what a run rounded. What is found for it is stored
beside. Writes results/roundings_<dtype>.json.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from _results import device_name, read, store
from innergrad.functions.intervals import LIBRARY_ULP, Array, from_torch

TINY = 2.0**-1022
CHUNKS = 64


class Trusted(NamedTuple):
    """As the library calls it, in float64; torch's, for float32; its name in flint; least and largest argument."""

    call: Callable[[Array], Array]
    torch: Callable[[Tensor], Tensor]
    ball: str
    low: float
    high: float


FUNCTIONS = {
    "numpy.exp": Trusted(np.exp, torch.exp, "exp", -745.0, 709.0),
    "numpy.expm1": Trusted(np.expm1, torch.expm1, "expm1", -745.0, 709.0),
    "numpy.log": Trusted(np.log, torch.log, "log", 0.0, 1e300),
    "numpy.log1p": Trusted(np.log1p, torch.log1p, "log1p", -1.0, 1e300),
    "numpy.tanh": Trusted(np.tanh, torch.tanh, "tanh", -1e4, 1e4),
    "numpy.arctan": Trusted(np.arctan, torch.arctan, "atan", -1e300, 1e300),
    "numpy.sin": Trusted(np.sin, torch.sin, "sin", -1e9, 1e9),
    "numpy.cos": Trusted(np.cos, torch.cos, "cos", -1e9, 1e9),
    "numpy.sinh": Trusted(np.sinh, torch.sinh, "sinh", -709.0, 709.0),
    "numpy.cosh": Trusted(np.cosh, torch.cosh, "cosh", -709.0, 709.0),
    "torch.erf": Trusted(from_torch(torch.erf), torch.erf, "erf", -1e4, 1e4),
    "torch.erfc": Trusted(from_torch(torch.erfc), torch.erfc, "erfc", -1e4, 27.0),
    "torch.exp": Trusted(from_torch(torch.exp), torch.exp, "exp", -745.0, 709.0),
}


def points(f: Trusted, count: int, seed: int) -> Array:
    """Of both signs where it has them, of every size, dense where functions bend, and around whole numbers."""
    draw = np.random.default_rng(seed)
    part = count // 3
    sizes = 2.0 ** draw.uniform(-60, math.log2(max(abs(f.low), abs(f.high))), part)
    near = draw.uniform(-20, 20, part)
    whole = np.rint(draw.uniform(-700, 700, count - 2 * part)) * (1 + draw.integers(-4, 5, count - 2 * part) * 2.0**-52)
    t = np.concatenate([sizes * draw.choice([-1.0, 1.0], part), near, whole])
    return t[(t > f.low) & (t <= f.high)]


def in_float64(name: str, count: int, seed: int) -> tuple[float, float]:
    """The most units in the last place, and where."""
    from flint import arb, ctx

    ctx.prec = 160
    f, worst, where = FUNCTIONS[name], 0.0, math.nan
    t = points(f, count, seed)
    for argument, computed in zip(t.tolist(), f.call(t).tolist(), strict=True):
        exact = getattr(arb(argument), f.ball)()
        error = float(abs(exact - arb(computed)).upper())
        if error <= TINY:  # underflow
            continue
        found = error / math.ulp(computed)
        if found > worst:
            worst, where = found, argument
    return worst, where


def in_float32(name: str, chunk: int) -> tuple[float, float]:
    """All numbers of a chunk, in units in the last place of float32; not where f or torch overflows (sinh and cosh
    do so a little early, at 88.7228).
    """
    f, size = FUNCTIONS[name], 2**32 // CHUNKS
    worst, where = 0.0, math.nan
    for start in range(chunk * size, (chunk + 1) * size, 2**20):
        t = torch.arange(start - 2**31, start - 2**31 + 2**20).to(torch.int32).view(torch.float32)
        t = t[torch.isfinite(t) & (t >= f.low) & (t <= f.high)]
        exact, computed = f.torch(t.double()), f.torch(t).double()
        unit = torch.exp2(torch.floor(torch.log2(exact.abs().clamp(min=2.0**-126))) - 23)
        error = (computed - exact).abs()
        known = torch.isfinite(exact.float()) & torch.isfinite(computed) & (error > 2.0**-126)
        ratio = torch.where(known, error / unit, 0.0)
        if len(t) and float(ratio.max()) > worst:
            worst, where = float(ratio.max()), float(t[int(ratio.argmax())])
    return worst, where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dtype", choices=("float64", "float32"))
    parser.add_argument("--points", type=int, default=100_000, help="of each function, in float64")
    parser.add_argument(
        "--only", nargs="*", default=list(FUNCTIONS), help="some functions; others stay as they are stored"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, help="a folder for a copy of the results")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    started, name = time.perf_counter(), f"roundings_{asked.dtype}"
    partial = set(asked.only) != set(FUNCTIONS)
    rows: list[dict[str, Any]] = [
        row for row in (read(name)["rows"] if partial else []) if row["function"] not in asked.only
    ]
    with ProcessPoolExecutor(asked.workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        if asked.dtype == "float64":
            parts = {name: [pool.submit(in_float64, name, asked.points, 0)] for name in asked.only}
        else:
            parts = {name: [pool.submit(in_float32, name, i) for i in range(CHUNKS)] for name in asked.only}
        for function, futures in parts.items():
            worst, where = max(future.result() for future in futures)
            rows.append({"function": function, "ulp": float(f"{worst:.4g}"), "at": where})
            print(rows[-1], f"{time.perf_counter() - started:.0f} s", flush=True)
    command = f"python benchmarks/roundings.py {asked.dtype}"
    command += f" --points {asked.points}" if asked.dtype == "float64" else ""
    number = asked.points if asked.dtype == "float64" else "all"
    data: dict[str, Any] = {"processor": device_name("cpu"), "points": number, "trusted": LIBRARY_ULP}
    data["rows"] = sorted(rows, key=lambda row: list(FUNCTIONS).index(row["function"]))
    store(name, command, data, asked.out)


if __name__ == "__main__":
    main()
