"""Tables of cells on a GPU: one kernel for all functions of an argument. Imported only where there is triton."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"

from __future__ import annotations

from collections.abc import Callable

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

BLOCK = 1024


@triton.jit
def _look_up(t_at, out_at, records, numbers, count, FUNCTIONS: tl.constexpr, BLOCK: tl.constexpr):
    """out[f, i] = y + s (t_i - x) + d relu(t_i - x), with x, y, s, d of the cell of t_i and function f."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    t = tl.load(t_at + place, mask=inside, other=0.0)
    cell = t * tl.load(numbers) + tl.load(numbers + 1)
    last = tl.load(numbers + 2)
    cell = tl.where(cell > 0.0, cell, 0.0)  # also arguments that are not numbers
    cell = tl.where(cell < last, cell, last).to(tl.int32)
    for f in tl.static_range(FUNCTIONS):
        record = records + (cell * FUNCTIONS + f) * 4
        u = t - tl.load(record)
        value = tl.load(record + 1) + tl.load(record + 2) * u + tl.load(record + 3) * tl.where(u < 0.0, 0.0, u)
        tl.store(out_at + f * count + place, value, mask=inside)


def look_up(records: Tensor, inverse: float, offset: float, functions: int) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """records (cells, 4 * functions) on the GPU; numbers go as a tensor, for as arguments they would be float32."""
    numbers = torch.tensor([inverse, offset, len(records) - 1.0], dtype=records.dtype, device=records.device)

    def evaluate(t: Tensor) -> tuple[Tensor, ...]:
        t = t.contiguous()
        out = torch.empty((functions, *t.shape), dtype=t.dtype, device=t.device)
        grid = (triton.cdiv(t.numel(), BLOCK),)
        _look_up[grid](t, out, records, numbers, t.numel(), FUNCTIONS=functions, BLOCK=BLOCK)
        return out.unbind(0)

    return evaluate
