"""Piecewise-linear functions, evaluated at a cost that does not depend on the number of their pieces.

Functions with few pieces are sums of clamped pieces, f(t) = f(anchor) + sum s_i (clamp(t, x_i, x_{i+1}) - clamp(anchor,
x_i, x_{i+1})): exact where it should be, ramps and projections included. Others get a *table of cells*: the line is cut
into equal cells, so narrow that none contains two knots of a function, and each cell holds, for every function,

    x, y, s, d    with   f(t) = y + s (t - x) + d relu(t - x)     in the whole cell

where x is the knot in the cell, so the table holds the exact knots and is the same function as the sum of hinges.
Rounding may put an argument into the cell next to its own. The argument is then a few ulp from the bound between them.
So its value is off by a few ulp times a change of slope, as if the argument itself had been rounded. Functions of the
same argument share the cells. A function for which there is no such table (knots very close to one another) is
evaluated as it is, by binary search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.functions.scalar import PiecewiseLinear

FEW = 4  # pieces of nonzero slope that are summed one by one
MOST_CELLS = 1 << 13
CHUNK_BYTES = 1 << 17  # of the arguments looked up at a time
ROOM = 2.0**-20  # of a piece, by which its length may change in float32
NARROWER = 1.0 - 2.0**-10  # cells than the distance of two knots


@dataclass(frozen=True)
class Piece:
    """slope * (clamp(t, low, high) - start)."""

    slope: float
    low: float
    high: float
    start: float

    def __call__(self, t: Tensor) -> Tensor:
        """Without the slope."""
        inside = t.clamp(fitting(self.low, t.dtype), fitting(self.high, t.dtype))
        return inside - self.start if self.start else inside


def fitting(number: float, dtype: torch.dtype) -> float:
    """The number, or infinity, where the precision has none as large; torch refuses such, and infinity it takes."""
    return number if abs(number) <= torch.finfo(dtype).max else math.copysign(math.inf, number)


def told_apart(f: PiecewiseLinear) -> bool:
    """Whether float32 has room for every ramp of a step function: if not, neither clamping nor a table of cells gets
    its rise right, and a piece is found by bisection.
    """
    if not f.ramps or f.error == 0.0:  # exact functions run in a precision that tells their ramps apart
        return True
    knots = np.array(f.knots)
    gaps = np.diff(knots)
    return bool((np.abs(np.diff(knots.astype(np.float32).astype(float)) - gaps) <= ROOM * gaps).all())


def clamped_pieces(f: PiecewiseLinear) -> tuple[Piece, ...] | None:
    """The pieces of nonzero slope, if they are few."""
    if not told_apart(f):
        return None
    ends = (-math.inf, *f.knots, math.inf)
    pieces = tuple(
        Piece(slope, low, high, min(max(f.anchor, low), high))
        for slope, low, high in zip(f.slopes, ends, ends[1:], strict=False)
        if slope
    )
    return pieces if len(pieces) <= FEW else None


@dataclass(frozen=True)
class Cells:
    """Cell number int(clamp(t * inverse + offset, 0, count - 1)); records (count, 4 * functions), x y s d of each."""

    inverse: float
    offset: float
    records: Float[np.ndarray, "count fields"]

    @property
    def count(self) -> int:
        return len(self.records)


@lru_cache(maxsize=256)
def cells(functions: tuple[PiecewiseLinear, ...]) -> Cells | None:
    """A common table of several functions, or None if it would have too many cells."""
    knots = sorted({knot for f in functions for knot in f.knots})
    closest = min((b - a for f in functions for a, b in zip(f.knots, f.knots[1:], strict=False)), default=0.0)
    span = knots[-1] - knots[0] if knots else 0.0
    if not closest or span / closest > MOST_CELLS or not all(map(told_apart, functions)):
        return None
    width = closest * NARROWER
    start = knots[0] - 0.5 * width
    count = int((knots[-1] - start) / width) + 2
    fields = [_records(f, start, width, count) for f in functions]
    return Cells(1.0 / width, -start / width, np.concatenate(fields, axis=1))


@lru_cache(maxsize=64)
def pieces(f: PiecewiseLinear) -> Float[np.ndarray, "pieces 4"]:
    """End, x, y and slope of every piece, for functions that have no table of cells: a piece is found by bisection."""
    return np.stack([np.array([*f.knots, np.inf]), *f.table], axis=1)


def _records(f: PiecewiseLinear, start: float, width: float, count: int) -> Float[np.ndarray, "count 4"]:
    x, y, slope = f.table
    centres = start + (np.arange(count) + 0.5) * width
    piece = np.searchsorted(np.array(f.knots), centres)
    records = np.stack([x[piece], y[piece], slope[piece], np.zeros(count)], axis=1)
    values = f(torch.tensor(f.knots, dtype=torch.float64)).numpy()
    for i, knot in enumerate(f.knots):
        records[int((knot - start) / width)] = (knot, values[i], slope[i], slope[i + 1] - slope[i])
    return records


Evaluate = Callable[[Tensor], tuple[Tensor, ...]]


def evaluator(
    functions: tuple[PiecewiseLinear, ...], dtype: torch.dtype, device: torch.device, *, reuse: bool = False
) -> Evaluate:
    """Several functions of the same argument, in torch. reuse: the next call overwrites the result."""
    simple = [clamped_pieces(f) for f in functions]
    hard = tuple(f for f, pieces in zip(functions, simple, strict=True) if pieces is None)
    look_up = _look_up(hard, dtype, device, reuse) if hard else None

    def evaluate(t: Tensor) -> tuple[Tensor, ...]:
        looked_up = iter(look_up(t) if look_up else ())
        return tuple(
            next(looked_up) if pieces is None else _sum_of_pieces(f, pieces, t)
            for f, pieces in zip(functions, simple, strict=True)
        )

    return evaluate


def _sum_of_pieces(f: PiecewiseLinear, pieces: tuple[Piece, ...], t: Tensor) -> Tensor:
    return (
        combined([(piece.slope, piece(t)) for piece in pieces], f.value)
        if pieces
        else torch.full_like(t, fitting(f.value, t.dtype))
    )


def combined(terms: list[tuple[float, Tensor]], constant: float) -> Tensor:
    """The sum of numbers times tensors, of at least one, and of the constant."""
    number, total = terms[0]
    total = total if number == 1.0 else total * number
    for number, term in terms[1:]:
        total = torch.add(total, term, alpha=fitting(number, total.dtype))
    return total + constant if constant else total


def _look_up(functions: tuple[PiecewiseLinear, ...], dtype: torch.dtype, device: torch.device, reuse: bool) -> Evaluate:
    table = cells(functions)
    if table is None and len(functions) > 1:
        single = [_look_up((f,), dtype, device, reuse) for f in functions]
        return lambda t: tuple(value for one in single for value in one(t))
    if table is None:
        return lambda t: (functions[0](t),)
    if device.type == "cuda" and find_spec("triton") is not None:
        from innergrad.interpret.triton_tables import look_up as on_gpu

        records = torch.from_numpy(table.records).to(device, dtype).contiguous()
        return on_gpu(records, table.inverse, table.offset, len(functions))
    columns = [_halves(table.records[:, i : i + 4], dtype, device) for i in range(0, table.records.shape[1], 4)]
    inverse, last, on_cpu = table.inverse, table.count - 1.0, device.type == "cpu"
    offset = torch.tensor(table.offset, dtype=dtype, device=device)

    def part(t: Tensor, results: list[Tensor]) -> None:
        place = torch.add(offset, t, alpha=inverse).clamp_(0.0, last).to(torch.int32)
        if not on_cpu:
            place.clamp_(min=0)  # of arguments that are not numbers; on the CPU, that is an IndexError
        for (knot, slope, intercept), result in zip(columns, results, strict=True):
            half = torch.add(t > knot.index_select(0, place), place, alpha=2)
            torch.addcmul(intercept.index_select(0, half), slope.index_select(0, half), t, out=result)

    kept: list[Tensor] = []  # new memory is slow

    def look_up(t: Tensor) -> tuple[Tensor, ...]:
        flat = t.reshape(-1)
        chunk = CHUNK_BYTES // flat.element_size() if on_cpu else max(len(flat), 1)
        results = kept if reuse and kept and kept[0].shape == flat.shape else [torch.empty_like(flat) for _ in columns]
        kept[:] = results
        for start in range(0, len(flat), chunk):  # values in between stay in the cache
            part(flat[start : start + chunk], [result[start : start + chunk] for result in results])
        return tuple(result.view(t.shape) for result in results)

    return look_up


def _halves(record: np.ndarray, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The knot of every cell, and slope and intercept left and right of it."""
    x, y, s, d = torch.from_numpy(record.T.copy())
    slope = torch.stack([s, s + d], dim=1).flatten()
    intercept = torch.stack([y - s * x, y - (s + d) * x], dim=1).flatten()
    return x.to(device, dtype), slope.to(device, dtype), intercept.to(device, dtype)
