"""Triton kernels of causal attention for short sequences; checked and timed by ``benchmarks/kernel_timing.py``.

One program takes one head of one sequence, whole. It reads q, k and v in place in the packed qkv (N, T, 3 D), and
writes the output, or the gradient of qkv, packed. There are no copies between layouts and no atomics, so every run
gives the same bits. The sequence is cut into blocks; blocks of scores above the diagonal are never formed. The loops
over blocks are unrolled, and tuples hold the values of each block. With i a block of rows and j <= i one of columns,

    forward     S = Q_i K_j^T / sqrt(Dh),  P = f(S) / c,  O_i += P V_j
    backward    dV_j += P^T dO_i,  dP = dO_i V_j^T,  dS = P (dP - rowsum(dO_i O_i)) for softmax, dP f'(S) / c otherwise,
                dQ_i += dS K_j / sqrt(Dh),  dK_j += dS^T Q_i / sqrt(Dh)

The backward kernel forms P again; for softmax the forward kernel keeps log2 of the sum of exp of each row. Sums are
float32, and factors of products have the type of qkv. The bias, if there is one, is added when q, k and v are read. The
backward kernel sums dq, dk and dv, as they are written, over the tokens of its sequence (products with ones), and
``column_sums`` over the sequences. Softmax does not depend on the bias of the keys: there it is left out, and its
gradient is exactly zero.

The rows that pad a sequence to whole blocks are zeros in q and dO: they add nothing to dK and dV, and are not written.
The columns that pad it are above the diagonal of every row that is written.
"""
# The kernels are Triton's language, which has no types for Python's checker.
# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,assignment,var-annotated"

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from innergrad.lab.kernels.norms_triton import column_sums, lined


class Choice(NamedTuple):
    """How a kernel is laid on the chip: tokens of a block, warps of a program, at most so many registers."""

    block: int = 64
    warps: int = 4
    registers: int | None = None


#: The choices in use. 168 registers let three programs of four warps share a multiprocessor.
FORWARD = Choice()
BACKWARD = Choice(registers=168)


@triton.jit
def _rows(pointer, block, T, STRIDE: tl.constexpr, BLOCK: tl.constexpr, DH: tl.constexpr):
    """Block ``block`` of a (T, DH) matrix whose rows lie STRIDE apart; zeros past T."""
    row = block * BLOCK + tl.arange(0, BLOCK)[:, None]
    return tl.load(pointer + row * STRIDE + tl.arange(0, DH)[None, :], mask=row < T, other=0.0)


@triton.jit
def _biased(pointer, bias, offset, block, T, STRIDE: tl.constexpr, BLOCK: tl.constexpr, DH: tl.constexpr):
    """Such a block plus the DH numbers from ``offset`` in the bias, rounded to the block's type; still zeros past T."""
    value = _rows(pointer, block, T, STRIDE, BLOCK, DH)
    if bias is not None:
        row = block * BLOCK + tl.arange(0, BLOCK)[:, None]
        added = tl.load(bias + offset + tl.arange(0, DH)[None, :]).to(tl.float32)
        value = tl.where(row < T, value.to(tl.float32) + added, 0.0).to(value.dtype)
    return value


@triton.jit
def _key(
    pointer, bias, offset, block, T, STRIDE: tl.constexpr, BLOCK: tl.constexpr, DH: tl.constexpr, KIND: tl.constexpr
):
    """A block of keys. Softmax needs no bias: it adds the same number to all scores of a query."""
    if KIND == "softmax":
        key = _rows(pointer, block, T, STRIDE, BLOCK, DH)
    else:
        key = _biased(pointer, bias, offset, block, T, STRIDE, BLOCK, DH)
    return key


@triton.jit
def _store(pointer, value, block, T, STRIDE: tl.constexpr, BLOCK: tl.constexpr, DH: tl.constexpr):
    """Writes the rows that ``_rows`` reads."""
    row = block * BLOCK + tl.arange(0, BLOCK)[:, None]
    tl.store(pointer + row * STRIDE + tl.arange(0, DH)[None, :], value.to(pointer.dtype.element_ty), mask=row < T)


@triton.jit
def _weight(block, BLOCK: tl.constexpr, NORMALISE: tl.constexpr):
    """1 / c of the rows of a block, (BLOCK, 1)."""
    weight = tl.full((BLOCK, 1), 1.0, tl.float32)
    seen = block * BLOCK + tl.arange(0, BLOCK)[:, None] + 1
    if NORMALISE == "count":
        weight /= seen
    elif NORMALISE == "sqrt":
        weight /= tl.sqrt(seen.to(tl.float32))
    return weight


@triton.jit(do_not_specialize=["T", "share"])
def _forward(
    qkv, bias, out, norms, T, share, stride, scale,
    H: tl.constexpr, DH: tl.constexpr, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    KIND: tl.constexpr, NORMALISE: tl.constexpr,
):  # fmt: skip
    """One head of one sequence. ``scale`` is 1/sqrt(Dh), times log2(e) where f is an exponential.

    ``share`` sequences have one row of the bias in common; its rows lie ``stride`` apart.
    """
    D: tl.constexpr = H * DH
    sequence, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    own = sequence // share * stride + head * DH
    qkv += sequence * T * 3 * D + head * DH
    out += sequence * T * D + head * DH
    below = tl.arange(0, BLOCK)[:, None] >= tl.arange(0, BLOCK)[None, :]
    keys, values = (), ()
    for j in tl.static_range(N_BLOCKS):
        keys += (_key(qkv + D, bias, own + D, j, T, 3 * D, BLOCK, DH, KIND),)
        values += (_biased(qkv + 2 * D, bias, own + 2 * D, j, T, 3 * D, BLOCK, DH),)
    for i in tl.static_range(N_BLOCKS):
        q = _biased(qkv, bias, own, i, T, 3 * D, BLOCK, DH)
        total = tl.zeros((BLOCK, DH), tl.float32)
        top = tl.full((BLOCK, 1), -float("inf"), tl.float32)
        mass = tl.zeros((BLOCK, 1), tl.float32)
        for j in tl.static_range(i + 1):
            s = tl.dot(q, tl.trans(keys[j])) * scale
            if KIND == "softmax":
                if i == j:
                    s = tl.where(below, s, -float("inf"))
                higher = tl.maximum(top, tl.max(s, 1, keep_dims=True))
                p = tl.exp2(s - higher)
                shrink = tl.exp2(top - higher)
                mass = mass * shrink + tl.sum(p, 1, keep_dims=True)
                total *= shrink
                top = higher
            else:
                if KIND == "relu":
                    p = tl.maximum(s, 0.0)
                elif KIND == "linear":
                    p = s
                else:
                    p = tl.exp2(s)
                p *= _weight(i, BLOCK, NORMALISE)
                if i == j:
                    p = tl.where(below, p, 0.0)
            total += tl.dot(p.to(q.dtype), values[j])
        if KIND == "softmax":
            total /= mass
            row = i * BLOCK + tl.arange(0, BLOCK)[:, None]
            tl.store(norms + (sequence * H + head) * T + row, top + tl.log2(mass), mask=row < T)
        _store(out, total, i, T, D, BLOCK, DH)


@triton.jit(do_not_specialize=["T", "share"])
def _backward(
    grad, qkv, bias, out, norms, dqkv, sums, T, share, stride, scale, root,
    H: tl.constexpr, DH: tl.constexpr, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    KIND: tl.constexpr, NORMALISE: tl.constexpr,
):  # fmt: skip
    """One head of one sequence. ``scale`` as in the forward kernel, ``root`` is 1/sqrt(Dh); sums (N, 3 D)."""
    D: tl.constexpr = H * DH
    sequence, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    own = sequence // share * stride + head * DH
    ones = tl.full((16, BLOCK), 1.0, tl.float32).to(qkv.dtype.element_ty)
    sum_q, sum_k, sum_v = (tl.zeros((16, DH), tl.float32),) * 3  # all rows alike: 16 is the least a product has
    qkv += sequence * T * 3 * D + head * DH
    dqkv += sequence * T * 3 * D + head * DH
    grad += sequence * T * D + head * DH
    out += sequence * T * D + head * DH
    norms += (sequence * H + head) * T
    below = tl.arange(0, BLOCK)[:, None] >= tl.arange(0, BLOCK)[None, :]
    queries, grads, shifts, means, dqs = (), (), (), (), ()
    for i in tl.static_range(N_BLOCKS):
        g = _rows(grad, i, T, D, BLOCK, DH)
        queries += (_biased(qkv, bias, own, i, T, 3 * D, BLOCK, DH),)
        grads += (g,)
        dqs += (tl.zeros((BLOCK, DH), tl.float32),)
        if KIND == "softmax":
            row = i * BLOCK + tl.arange(0, BLOCK)  # one dimension: in two, threads load each number many times over
            shifts += (tl.load(norms + row, mask=row < T, other=0.0)[:, None],)
            o = _rows(out, i, T, D, BLOCK, DH)
            means += (tl.sum(g.to(tl.float32) * o.to(tl.float32), 1, keep_dims=True),)
    for j in tl.static_range(N_BLOCKS):
        k = _key(qkv + D, bias, own + D, j, T, 3 * D, BLOCK, DH, KIND)
        v = _biased(qkv + 2 * D, bias, own + 2 * D, j, T, 3 * D, BLOCK, DH)
        dk = tl.zeros((BLOCK, DH), tl.float32)
        dv = tl.zeros((BLOCK, DH), tl.float32)
        later = ()  # the dQ of the rows below this block: the tuples hold rows j, j+1, ...
        for i in tl.static_range(j, N_BLOCKS):
            q, g = queries[i], grads[i]
            s = tl.dot(q, tl.trans(k)) * scale
            dp = tl.dot(g, tl.trans(v))
            if KIND == "softmax":
                p = tl.exp2(s - shifts[i])
                ds = p * (dp - means[i])
            else:
                weight = _weight(i, BLOCK, NORMALISE)
                if KIND == "relu":
                    p = tl.maximum(s, 0.0) * weight
                    ds = tl.where(s > 0.0, dp * weight, 0.0)
                elif KIND == "linear":
                    p = s * weight
                    ds = dp * weight
                else:
                    p = tl.exp2(s) * weight
                    ds = p * dp
            if i == j:
                p = tl.where(below, p, 0.0)
                ds = tl.where(below, ds, 0.0)
            ds = ds.to(q.dtype)
            dv += tl.dot(tl.trans(p.to(q.dtype)), g)
            dk += tl.dot(tl.trans(ds), q)
            dq = dqs[i - j] + tl.dot(ds, k)
            if i == j:
                dq = (dq * root).to(ones.dtype)
                _store(dqkv, dq, i, T, 3 * D, BLOCK, DH)
                if bias is not None:
                    sum_q += tl.dot(ones, dq)
            else:
                later += (dq,)
        dqs = later
        dk, dv = (dk * root).to(ones.dtype), dv.to(ones.dtype)
        _store(dqkv + D, dk, j, T, 3 * D, BLOCK, DH)
        _store(dqkv + 2 * D, dv, j, T, 3 * D, BLOCK, DH)
        if bias is not None:
            if KIND != "softmax":
                sum_k += tl.dot(ones, dk)
            sum_v += tl.dot(ones, dv)
    if bias is not None:
        row = tl.arange(0, 16)[:, None]
        sums += sequence * 3 * D + head * DH + row + tl.arange(0, DH)[None, :]
        tl.store(sums, sum_q, mask=row == 0)
        tl.store(sums + D, sum_k, mask=row == 0)
        tl.store(sums + 2 * D, sum_v, mask=row == 0)


def forward(
    qkv: Tensor, bias: Tensor | None, n_heads: int, kind: str, normalise: str, choice: Choice = FORWARD
) -> tuple[Tensor, Tensor]:
    """Packed, contiguous qkv (N, T, 3 D) -> out (N, T, D) and, for softmax, log2 of the sums of exp, (N, H, T)."""
    batch, length, width = qkv.shape
    out = qkv.new_empty(batch, length, width // 3)
    norms = qkv.new_empty((batch, n_heads, length) if kind == "softmax" else (0,), dtype=torch.float32)
    _launch(_forward, (qkv, lined(bias), out, norms), (), n_heads, kind, normalise, choice)
    return out, norms


def backward(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, out: Tensor, norms: Tensor, n_heads: int, kind: str, normalise: str,
    choice: Choice = BACKWARD,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradient (N, T, D) of the output -> those of qkv, (N, T, 3 D), and bias, (G, 3 D), or nothing.

    ``out`` and ``norms`` come from ``forward``."""
    batch, _, width = qkv.shape
    dqkv = torch.empty_like(qkv)
    sums = torch.empty(0 if bias is None else batch, width, dtype=torch.float32, device=qkv.device)
    root = (3 * n_heads / width) ** 0.5
    _launch(_backward, (grad, qkv, lined(bias), out, norms, dqkv, sums), (root,), n_heads, kind, normalise, choice)
    if bias is None:
        return dqkv, qkv.new_empty(0)
    return dqkv, column_sums(sums.view(len(bias), batch // len(bias), width), bias.dtype)


def _launch(kernel, tensors, extra, n_heads: int, kind: str, normalise: str, choice: Choice) -> None:
    """One program for each sequence and head. A short sequence is one block, of the power of two from its length."""
    qkv, bias = tensors[0:2] if kernel is _forward else tensors[1:3]
    batch, length, width = qkv.shape
    head = width // (3 * n_heads)
    block = min(choice.block, max(16, triton.next_power_of_2(length)))
    scale = head**-0.5 * (math.log2(math.e) if kind in ("softmax", "exp") else 1.0)
    share, stride = (1, 0) if bias is None else (batch // len(bias), bias.stride(0))
    limit = choice.registers if length * head <= 4096 else None  # larger ones would spill
    if batch:
        kernel[(batch * n_heads,)](
            *tensors, length, share, stride, scale, *extra, H=n_heads, DH=head, N_BLOCKS=triton.cdiv(length, block),
            BLOCK=block, KIND=kind, NORMALISE=normalise, num_warps=choice.warps, maxnreg=limit,
        )  # fmt: skip
