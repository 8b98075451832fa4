"""How exactly torch evaluates the shipped functions: what certificates take for granted of it.

    python benchmarks/roundings.py float64     sampled, against python-flint's balls
    python benchmarks/roundings.py float32     all finite numbers, against the same formula in float64

An evaluation of f at t may be off by so many roundings u (|f(t)| + |f'(t) t|), u = 2^-53 or 2^-24: as if argument and
result had been rounded that often. The largest number found is a fact about torch on a processor, not about innergrad:
certificates name it as an assumption. Writes results/roundings_<dtype>.json.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from _results import device_name, store
from innergrad.functions import ACTIVATIONS
from innergrad.functions.adam import ADAM
from innergrad.functions.derived import square_derivative
from innergrad.functions.scalar import EXP, EXP_CAPPED, PSEUDO_HUBER_U, RECIPROCAL, Function

if TYPE_CHECKING:
    from flint import arb_series

    Jet = Callable[[arb_series], arb_series]

F32, F64 = torch.float32, torch.float64


def shipped() -> dict[str, Function]:
    """Every function that has a formula; piecewise-linear ones are exact up to the rounding of a line."""
    found: dict[str, Function] = {}
    for activation in ACTIVATIONS.values():
        for f in (activation.r, activation.dr, *square_derivative(activation)):
            if f.exact is None and not f.jumps:
                found[f.name] = f
    return found | {f.name: f for f in (EXP_CAPPED, PSEUDO_HUBER_U, ADAM, EXP, RECIPROCAL)}


def balls() -> dict[str, Jet]:
    """The functions as maps of Taylor jets with rigorous radii, from their definitions."""
    from flint import arb

    def sigmoid(t: arb_series) -> arb_series:
        return 1 / (1 + (-t).exp())

    primitives: dict[str, Jet] = {
        "tanh": lambda t: 1 - 2 / (1 + (2 * t).exp()),
        "sigmoid": sigmoid,
        "softplus": lambda t: (1 + t[0].exp()).log() + sigmoid(t).integral(),
        "gelu": lambda t: t * (t * (-1 / arb(2).sqrt())).erfc() / 2,
        "silu": lambda t: t * sigmoid(t),
        "sin": lambda t: t.sin(),
    }
    squares: dict[str, Jet] = {f"({name}^2)": lambda t, f=f: f(t) * f(t) for name, f in primitives.items()}  # type: ignore[misc]
    others: dict[str, Jet] = {
        "exp(min(t,0))": lambda t: t.exp(),
        "pseudo-huber'": lambda t: t * (1 + t * t).rsqrt(),
        "adam": lambda t: 1 / (1 + t.sqrt()),
        "exp": lambda t: t.exp(),
        "reciprocal": lambda t: 1 / t,
    }
    return primitives | squares | others


def points(name: str, count: int, seed: int) -> Tensor:
    """Both signs, from 1e-12 to where functions are flat, dense where they bend; the half-line of adam and exp."""
    generator = torch.Generator().manual_seed(seed)
    wide = 10.0 ** (14.5 * torch.rand(count // 2, generator=generator, dtype=F64) - 12.0)
    near = 12.0 * torch.rand(count - count // 2, generator=generator, dtype=F64)
    t = torch.cat([wide, near])
    if name == "adam":
        return t
    if name == "exp(min(t,0))":
        return -t
    return t * torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)


def in_float64(f: Function, jets: dict[str, Jet], count: int) -> tuple[float, float]:
    """The most roundings that were found, and where."""
    from flint import arb, arb_series, ctx

    ctx.prec = 2048  # softplus at -700 is e^-700
    shift = 0 if f.name in jets else 1
    jet = jets[f.name if shift == 0 else f.name.removesuffix("'")]
    ctx.cap = shift + 2
    t = points(f.name, count, 0)
    worst, where = 0.0, math.nan
    for argument, computed in zip(t.tolist(), f.value(t).tolist(), strict=True):
        series = jet(arb_series([arb(argument), 1]))
        value, slope = series[shift] * math.factorial(shift), series[shift + 1] * math.factorial(shift + 1)
        unit = (abs(value) + abs(slope * argument)) * arb(2) ** -53
        error = float(abs(value - arb(computed)).upper())
        if error < 2.0**-1021:  # what underflows is off by no more than the smallest normal number
            continue
        found = error / float(unit.lower()) if float(unit.lower()) > 0 else math.inf
        if found > worst:
            worst, where = found, argument
    return worst, where


def in_float32(f: Function) -> tuple[float, float]:
    """All finite arguments where f is one; 2^24 at a time."""
    worst, where, chunk = 0.0, math.nan, 2**24
    for start in range(-(2**31), 2**31, chunk):
        t = torch.arange(start, start + chunk, dtype=torch.int64).to(torch.int32).view(F32)
        t = t[torch.isfinite(t)]
        t = t[t >= 0] if f.name == "adam" else t[t <= 0] if f.name == "exp(min(t,0))" else t
        if not len(t):
            continue
        exact = t.double().requires_grad_()
        value = f.value(exact)
        (slope,) = torch.autograd.grad(value.sum(), exact)
        value, exact = value.detach(), exact.detach()
        computed = f.value(t).double()
        error = (computed - value).abs()
        unit = 2.0**-24 * (value.abs() + torch.nan_to_num(slope * exact, nan=0.0, posinf=0.0, neginf=0.0).abs())
        known = torch.isfinite(value) & (value.abs() < 3.4e38) & (error > 2.0**-125)
        ratio = torch.where(known, error / unit, 0.0)
        ratio = torch.nan_to_num(ratio, nan=math.inf)
        most = float(ratio.max())
        if most > worst:
            worst, where = most, float(t[int(ratio.argmax())])
    return worst, where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dtype", choices=("float64", "float32"))
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--only", default="", help="names with commas between; nothing is stored")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    jets = balls() if asked.dtype == "float64" else {}
    for name, f in shipped().items():
        if asked.only and name not in asked.only.split(","):
            continue
        began = time.perf_counter()
        worst, where = in_float64(f, jets, asked.points) if jets else in_float32(f)
        rows.append({"function": name, "roundings": worst, "at": where, "seconds": time.perf_counter() - began})
        print(rows[-1], flush=True)
    if not asked.only:
        data = {"processor": device_name("cpu"), "points": asked.points if jets else "all", "rows": rows}
        store(f"roundings_{asked.dtype}", f"python benchmarks/roundings.py {asked.dtype}", data)


if __name__ == "__main__":
    main()
