"""Triton kernels of residual additions with LayerNorm, and biases with GELU; timed by ``benchmarks/kernel_timing.py``.

Tensors are (S, R, D): S models, R rows each, contiguous; parameters are (S, D) with any distance between rows. A
program takes rows of one model only. The forward kernels take one group of rows each. With x^ = (r' - mean) rstd and
g = d(normed) gain, the backward kernel is

    d(r) = d(r') + rstd (g - mean(g) - x^ mean(g x^))
    d(gain) = sum over rows of d(normed) x^     d(shift) = sum of d(normed)     d(bias) = sum of d(r)

Its programs walk over many groups of rows of one model and hold those sums in registers, for KEPT rows. These are the
rows that a program's threads have side by side, so no thread needs another's numbers before the end. Each program
writes its sums to a row of its own, and a last small kernel (``column_sums``) adds the rows up. No atomics: every run
gives the same bits. Mean and rstd are formed again from r', which is read anyway.
"""
# The kernels are Triton's language, which has no types for Python's checker.
# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

EPS = 1e-5  # as in norms, which these are tested against
Given = TypeVar("Given", Tensor, Tensor | None)


class Choice(NamedTuple):
    """How a kernel is laid on the chip: numbers of a group (rows times columns), warps of a program, and, backward,
    programs for each multiprocessor."""

    numbers: int
    warps: int
    programs: int = 0


FORWARD = Choice(2048, 4)
BACKWARD = Choice(2048, 4, 5)


@triton.jit
def _group(pointer, row, column, mask):
    """Numbers (rows, columns) in float32; zeros where the mask is off."""
    return tl.load(pointer + row + column, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _standard(x, D: tl.constexpr, EPS: tl.constexpr):
    """Rows of x less their means, over their standard deviations; and 1 / standard deviation, (rows, 1)."""
    centred = x - tl.sum(x, 1, keep_dims=True) / D
    rstd = tl.rsqrt(tl.sum(centred * centred, 1, keep_dims=True) / D + EPS)
    return centred * rstd, rstd


@triton.jit
def _folded(x, KEPT: tl.constexpr):
    """Rows (KEPT, columns) of sums: row i has those of rows i, i + KEPT, i + 2 KEPT, ..."""
    return tl.sum(tl.reshape(x, (x.shape[0] // KEPT, KEPT, x.shape[1])), 0)


@triton.jit
def _over_rows(x):
    """The sum over the rows, (1, columns), by halves. tl.sum(x, 0) is three times slower here: its writes to shared
    memory all fall into one bank."""
    for _ in tl.static_range(8):
        if x.shape[0] > 1:
            upper, lower = tl.split(tl.permute(tl.reshape(x, (2, x.shape[0] // 2, x.shape[1])), (1, 2, 0)))
            x = upper + lower
    return x


@triton.jit(do_not_specialize=["R"])
def _add_norm_forward(
    residual, delta, bias, gain, shift, total, normed, R, gain_stride, shift_stride, bias_stride,
    D: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """One group of ROWS rows of one model."""
    model = tl.program_id(1)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    mask = number < R
    row = (model * R + number).to(tl.int64) * D
    column = tl.arange(0, D)[None, :]
    x = _group(residual, row, column, mask)
    if delta is not None:
        x += _group(delta, row, column, mask)
    if bias is not None:
        x += tl.load(bias + model * bias_stride + column).to(tl.float32)
    x = x.to(total.dtype.element_ty)
    tl.store(total + row + column, x, mask=mask)
    standard, _ = _standard(x.to(tl.float32), D, EPS)
    y = standard * tl.load(gain + model * gain_stride + column).to(tl.float32)
    y += tl.load(shift + model * shift_stride + column).to(tl.float32)
    tl.store(normed + row + column, y.to(normed.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["R", "groups"])
def _add_norm_backward(
    d_total, d_normed, total, gain, dx, sums, R, groups, gain_stride,
    D: tl.constexpr, ROWS: tl.constexpr, KEPT: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """``groups`` groups of ROWS rows of one model; sums (S, programs, 3, D) of those for gain, shift and bias."""
    model = tl.program_id(1)
    column = tl.arange(0, D)[None, :]
    weight = tl.load(gain + model * gain_stride + column).to(tl.float32)
    for_gain = tl.zeros((KEPT, D), tl.float32)
    for_shift = tl.zeros((KEPT, D), tl.float32)
    for_bias = tl.zeros((KEPT, D), tl.float32)
    for i in range(groups):
        number = (tl.program_id(0) * groups + i) * ROWS + tl.arange(0, ROWS)[:, None]
        mask = number < R
        row = (model * R + number).to(tl.int64) * D
        x = _group(total, row, column, mask)
        dy = _group(d_normed, row, column, mask)
        passed = tl.zeros((ROWS, D), tl.float32)
        if d_total is not None:
            passed = _group(d_total, row, column, mask)
        standard, rstd = _standard(x, D, EPS)
        product = dy * standard
        for_gain += _folded(product, KEPT)
        for_shift += _folded(dy, KEPT)
        d = dy * weight
        d = rstd * (d - tl.sum(d, 1, keep_dims=True) / D - standard * (tl.sum(product * weight, 1, keep_dims=True) / D))
        d += passed
        for_bias += _folded(d, KEPT)
        tl.store(dx + row + column, d.to(dx.dtype.element_ty), mask=mask)
    sums += (model * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * 3 * D
    tl.store(sums + column, _over_rows(for_gain))
    tl.store(sums + D + column, _over_rows(for_shift))
    tl.store(sums + 2 * D + column, _over_rows(for_bias))


@triton.jit
def _sigmoid(z):
    """1 / (1 + exp(-2 u)) = (1 + tanh(u)) / 2 with GELU's u, and the derivative of 2 u."""
    square = z * z
    u2 = 1.5957691216057308 * z * (1.0 + 0.044715 * square)
    return 1.0 / (1.0 + tl.exp(-u2)), 1.5957691216057308 * (1.0 + 0.134145 * square)


@triton.jit(do_not_specialize=["R"])
def _bias_gelu_forward(x, bias, out, R, bias_stride, M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """ROWS rows and COLUMNS columns of one model."""
    model = tl.program_id(1)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    mask = number < R
    row = (model * R + number).to(tl.int64) * M
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    z = _group(x, row, column, mask) + tl.load(bias + model * bias_stride + column).to(tl.float32)
    s, _ = _sigmoid(z)
    tl.store(out + row + column, (z * s).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["R", "groups"])
def _bias_gelu_backward(
    grad, x, bias, dx, sums, R, groups, bias_stride,
    M: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, KEPT: tl.constexpr,
):  # fmt: skip
    """``groups`` groups of ROWS rows, COLUMNS columns of one model; sums (S, programs, M) of those for the bias."""
    model = tl.program_id(1)
    column = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    added = tl.load(bias + model * bias_stride + column).to(tl.float32)
    for_bias = tl.zeros((KEPT, COLUMNS), tl.float32)
    for i in range(groups):
        number = (tl.program_id(0) * groups + i) * ROWS + tl.arange(0, ROWS)[:, None]
        mask = number < R
        row = (model * R + number).to(tl.int64) * M
        z = _group(x, row, column, mask) + added
        s, du = _sigmoid(z)
        d = _group(grad, row, column, mask) * s * (1.0 + z * (1.0 - s) * du)
        for_bias += _folded(d, KEPT)
        tl.store(dx + row + column, d.to(dx.dtype.element_ty), mask=mask)
    sums += (model * tl.num_programs(0) + tl.program_id(0)).to(tl.int64) * M
    tl.store(sums + column, _over_rows(for_bias))


@triton.jit(do_not_specialize=["P"])
def _column_sums(parts, out, P, C: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sums of COLUMNS columns of one model's parts (P, C)."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    parts += tl.program_id(1).to(tl.int64) * P * C
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, P, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(parts + row * C + column[None, :], mask=row < P, other=0.0)
    tl.store(out + tl.program_id(1) * C + column, tl.sum(total, 0).to(out.dtype.element_ty))


# --------------------------------------------------------------------------------------------------------- the launches


def add_norm_forward(
    residual: Tensor, delta: Tensor | None, bias: Tensor | None, gain: Tensor, shift: Tensor, choice: Choice = FORWARD
) -> tuple[Tensor, Tensor]:
    """The new residual and its LayerNorm, contiguous."""
    residual = residual.contiguous()
    delta = None if delta is None else delta.contiguous()
    bias, gain, shift = lined(bias), lined(gain), lined(shift)
    total, normed = torch.empty_like(residual), torch.empty_like(residual)
    S, R, D = _sizes(residual)
    rows = max(1, choice.numbers // D)
    strides = (gain.stride(0), shift.stride(0), 0 if bias is None else bias.stride(0))
    if residual.numel():
        _add_norm_forward[(triton.cdiv(R, rows), S)](
            residual, delta, bias, gain, shift, total, normed, R, *strides,
            D=D, ROWS=rows, EPS=EPS, num_warps=choice.warps,
        )  # fmt: skip
    return total, normed


def add_norm_backward(
    d_total: Tensor | None, d_normed: Tensor, total: Tensor, gain: Tensor, choice: Choice = BACKWARD
) -> tuple[Tensor, Tensor]:
    """The gradient of the residual, and of delta; and those of gain, shift and bias, (S, 3, D)."""
    d_total = None if d_total is None else d_total.contiguous()
    d_normed, gain = d_normed.contiguous(), lined(gain)
    dx = torch.empty_like(total)
    S, R, D = _sizes(total)
    rows = max(1, choice.numbers // D)
    programs, groups = _share(S, R, rows, total.device, choice)
    sums = torch.empty(S, programs, 3 * D, dtype=torch.float32, device=total.device)
    if programs:
        _add_norm_backward[(programs, S)](
            d_total, d_normed, total, gain, dx, sums, R, groups, gain.stride(0),
            D=D, ROWS=rows, KEPT=_kept(rows, D, choice), EPS=EPS, num_warps=choice.warps,
        )  # fmt: skip
    return dx, column_sums(sums, gain.dtype).view(S, 3, D)


def bias_gelu_forward(x: Tensor, bias: Tensor, choice: Choice = FORWARD) -> Tensor:
    """GELU of x + bias, contiguous."""
    x, bias = x.contiguous(), lined(bias)
    out = torch.empty_like(x)
    S, R, M = _sizes(x)
    columns = min(256, M & -M)
    rows = max(1, choice.numbers // columns)
    if x.numel():
        _bias_gelu_forward[(triton.cdiv(R, rows), S, M // columns)](
            x, bias, out, R, bias.stride(0), M=M, ROWS=rows, COLUMNS=columns, num_warps=choice.warps
        )
    return out


def bias_gelu_backward(grad: Tensor, x: Tensor, bias: Tensor, choice: Choice = BACKWARD) -> tuple[Tensor, Tensor]:
    """The gradients of x, contiguous, and of the bias, (S, M)."""
    grad, x, bias = grad.contiguous(), x.contiguous(), lined(bias)
    dx = torch.empty_like(x)
    S, R, M = _sizes(x)
    columns = min(256, M & -M)
    rows = max(1, choice.numbers // columns)
    programs, groups = _share(S * (M // columns), R, rows, x.device, choice)
    sums = torch.empty(S, programs, M, dtype=torch.float32, device=x.device)
    if programs:
        _bias_gelu_backward[(programs, S, M // columns)](
            grad, x, bias, dx, sums, R, groups, bias.stride(0),
            M=M, ROWS=rows, COLUMNS=columns, KEPT=_kept(rows, columns, choice), num_warps=choice.warps,
        )  # fmt: skip
    return dx, column_sums(sums, bias.dtype)


def column_sums(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """Sums of float32 rows, in the same order always: (S, P, C) -> (S, C) of this type."""
    S, P, C = parts.shape
    out = torch.empty(S, C, dtype=dtype, device=parts.device)
    columns = min(8, C & -C)
    _column_sums[(C // columns, S)](
        parts, out, P, C=C, ROWS=min(256, triton.next_power_of_2(max(P, 1))), COLUMNS=columns, num_warps=4
    )
    return out


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """S, R, D of a tensor (S, ..., D)."""
    return len(x), x.shape[1:-1].numel(), x.shape[-1]


def _kept(rows: int, columns: int, choice: Choice) -> int:
    """Rows that the threads of a program hold side by side, eight numbers of a row each."""
    return max(1, min(rows, choice.warps * 32 * 8 // columns))


def lined(parameter: Given) -> Given:
    """(S, D) whose rows are contiguous each; they may lie apart, as views of one long vector of parameters do."""
    return parameter if parameter is None or parameter.stride(-1) == 1 else parameter.contiguous()


def _share(parts: int, R: int, rows: int, device: torch.device, choice: Choice) -> tuple[int, int]:
    """How many programs walk over the R rows of one of so many parts, and how many groups of rows each takes."""
    total = triton.cdiv(R, rows)
    groups = max(1, triton.cdiv(total * parts, choice.programs * _processors(device)))
    return triton.cdiv(total, groups), groups


@cache
def _processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; the interpreter's CPU counts as one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
