"""RMSNorm as the identity, bit for bit.

    RMSNorm(h) = gain h / sqrt(mean(h^2) + eps)

m entries of the stream hold P = 2^40, and D = c m with c = 16, 64 or 256. All other entries together are nothing beside
the pads. So the mean of the squares is P^2 / c, and its root P / sqrt(c), both powers of two. With the gain P /
sqrt(c), a sublayer reads h itself. That holds bit for bit, in float64, float32 and bfloat16, while the squares of all
other entries add up to less than half of the last bit of m P^2: |h|^2 < m 2^80 2^-25 in float32. eps is nothing, too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from innergrad.ir.program import Options, Program
from innergrad.ir.stream import Lane, Stream
from innergrad.targets.parts.base import Context, Norm

PAD = 2.0**40
RMS_EPS = 1e-6  # Llama's
SQUARES = (16, 64, 256)  # c: powers of 4, so that P / sqrt(c) is a power of two


def padding(entries: int) -> tuple[int, int]:
    """(m, c): the fewest pads and zeros beside so many entries, such that all of them are c m."""
    return min(((math.ceil(entries / (c - 1)), c) for c in SQUARES), key=lambda pads: math.prod(pads))


class RMSNorm(Norm):
    """See the module docstring. gain: of every entry the same."""

    name = "rms"

    def prepare(self, program: Program, options: Options) -> Program:
        """Pads, and as many entries that are zero as make them a c-th of the width."""
        entries = program.stream.d_model
        m, c = padding(entries)
        own = (Lane("spare", (c * m - m - entries,)), Lane("pad", (m,), "input", shared=True, fill=PAD))
        return replace(program, stream=Stream((*program.stream.lanes, *(lane for lane in own if lane.size))))

    def gain(self, kind: str, context: Context) -> float:
        stream = context.program.stream
        return PAD / math.sqrt(stream.d_model / stream["pad"].size)

    def apply(self, h: Tensor, gain: float) -> Tensor:
        return gain * (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + RMS_EPS))
