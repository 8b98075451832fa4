"""Triton kernels of attention in small sets. One program takes one head of one set, whole; see ``sets.py``.

    forward     S = Q K^T / sqrt(Dh) + hidden,  P = softmax(S),  O = P V
    backward    dV = P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dO O)),  dQ = dS K / sqrt(Dh),  dK = dS^T Q / sqrt(Dh)

The backward kernel forms P again from log2 of the sums of exp, which the forward kernel keeps. Rows that pad a set are
zeros in q and dO: they add nothing to dK and dV, and are not written. Columns that pad it are hidden.
"""
# The kernels are Triton's language, which has no types for Python's checker.
# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,assignment"

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from innergrad.lab.kernels.attention_triton import _rows, _store


@triton.jit(do_not_specialize=["T", "share"])
def _forward(
    qkv, hidden, out, norms, T, share, scale, H: tl.constexpr, DH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """``scale`` is log2(e) / sqrt(Dh); ``share`` sets have one row of ``hidden`` in common."""
    D: tl.constexpr = H * DH
    number, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    qkv += number * T * 3 * D + head * DH
    out += number * T * D + head * DH
    token = tl.arange(0, BLOCK)
    away = tl.load(hidden + number // share * T + token, mask=token < T, other=-float("inf"))
    q = _rows(qkv, 0, T, 3 * D, BLOCK, DH)
    k = _rows(qkv + D, 0, T, 3 * D, BLOCK, DH)
    v = _rows(qkv + 2 * D, 0, T, 3 * D, BLOCK, DH)
    s = tl.dot(q, tl.trans(k)) * scale + away[None, :]
    top = tl.max(s, 1, keep_dims=True)
    p = tl.exp2(s - top)
    mass = tl.sum(p, 1, keep_dims=True)
    _store(out, tl.dot(p.to(q.dtype), v) / mass, 0, T, D, BLOCK, DH)
    row = token[:, None]
    tl.store(norms + (number * H + head) * T + row, top + tl.log2(mass), mask=row < T)


@triton.jit(do_not_specialize=["T", "share"])
def _backward(
    grad, qkv, hidden, out, norms, dqkv, T, share, scale, root,
    H: tl.constexpr, DH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """``scale`` as in the forward kernel, ``root`` is 1 / sqrt(Dh)."""
    D: tl.constexpr = H * DH
    number, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    qkv += number * T * 3 * D + head * DH
    dqkv += number * T * 3 * D + head * DH
    grad += number * T * D + head * DH
    out += number * T * D + head * DH
    token = tl.arange(0, BLOCK)
    away = tl.load(hidden + number // share * T + token, mask=token < T, other=-float("inf"))
    shift = tl.load(norms + (number * H + head) * T + token, mask=token < T, other=0.0)
    q = _rows(qkv, 0, T, 3 * D, BLOCK, DH)
    k = _rows(qkv + D, 0, T, 3 * D, BLOCK, DH)
    v = _rows(qkv + 2 * D, 0, T, 3 * D, BLOCK, DH)
    g = _rows(grad, 0, T, D, BLOCK, DH)
    o = _rows(out, 0, T, D, BLOCK, DH)
    p = tl.exp2(tl.dot(q, tl.trans(k)) * scale + away[None, :] - shift[:, None])
    mean = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1, keep_dims=True)
    ds = (p * (tl.dot(g, tl.trans(v)) - mean)).to(q.dtype)
    _store(dqkv, tl.dot(ds, k) * root, 0, T, 3 * D, BLOCK, DH)
    _store(dqkv + D, tl.dot(tl.trans(ds), q) * root, 0, T, 3 * D, BLOCK, DH)
    _store(dqkv + 2 * D, tl.dot(tl.trans(p.to(q.dtype)), g), 0, T, 3 * D, BLOCK, DH)


def forward(qkv: Tensor, hidden: Tensor, n_heads: int) -> tuple[Tensor, Tensor]:
    """Packed, contiguous qkv (N, T, 3 D), hidden (P, T) float32 -> out (N, T, D), log2 of the sums of exp (N, H, T)."""
    batch, length, width = qkv.shape
    out = qkv.new_empty(batch, length, width // 3)
    norms = qkv.new_empty((batch, n_heads, length), dtype=torch.float32)
    _launch(_forward, (qkv, hidden, out, norms), (), qkv, hidden, n_heads)
    return out, norms


def backward(grad: Tensor, qkv: Tensor, hidden: Tensor, out: Tensor, norms: Tensor, n_heads: int) -> Tensor:
    """The gradient of qkv from that of the output; ``out`` and ``norms`` come from ``forward``."""
    dqkv = torch.empty_like(qkv)
    root = (3 * n_heads / qkv.shape[2]) ** 0.5
    _launch(_backward, (grad, qkv, hidden, out, norms, dqkv), (root,), qkv, hidden, n_heads)
    return dqkv


def _launch(kernel, tensors, extra, qkv: Tensor, hidden: Tensor, n_heads: int) -> None:
    """One program for each set and head; a set is one block, of the power of two from its size."""
    batch, length, width = qkv.shape
    head, block = width // (3 * n_heads), max(16, triton.next_power_of_2(length))
    scale = head**-0.5 * math.log2(math.e)
    if batch:
        kernel[(batch * n_heads,)](
            *tensors, length, batch // len(hidden), scale, *extra, H=n_heads, DH=head, BLOCK=block,
            num_warps=1 if block <= 32 else 4,
        )  # fmt: skip
