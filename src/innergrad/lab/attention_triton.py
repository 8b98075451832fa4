"""Triton kernels of causal attention for short sequences, and their timing: python -m innergrad.lab.attention_triton.

One program takes one head of one sequence, whole. It reads q, k and v where they lie in the packed qkv (N, T, 3 D)
and writes the output, or the gradient of qkv, packed: no copies between layouts, and no atomics, so every run gives
the same bits. The sequence is cut into blocks; blocks of scores above the diagonal are never formed. The loops over
blocks are unrolled, and tuples hold what belongs to each block. With i a block of rows and j <= i one of columns,

    forward     S = Q_i K_j^T / sqrt(Dh),  P = f(S) / c,  O_i += P V_j
    backward    dV_j += P^T dO_i,  dP = dO_i V_j^T,  dS = P (dP - rowsum(dO_i O_i)) for softmax, dP f'(S) / c otherwise,
                dQ_i += dS K_j / sqrt(Dh),  dK_j += dS^T Q_i / sqrt(Dh)

The backward kernel forms P again; for softmax the forward kernel keeps log2 of the sum of exp of each row. Sums are
float32, and factors of products have the type of qkv. The bias, if there is one, is added to what is read of q, k and
v; the backward kernel sums dq, dk and dv over the tokens of its sequence, and ``column_sums`` over the sequences.

The rows that pad a sequence to whole blocks are zeros in q and dO: they add nothing to dK and dV, and are not written.
The columns that pad it are above the diagonal of every row that is written.
"""
# The kernels are Triton's language, which has no types for Python's checker.
# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,assignment,var-annotated"

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from innergrad.lab.attention import KINDS, NORMALISE, attend
from innergrad.lab.norms_triton import column_sums, lined


class Choice(NamedTuple):
    """How a kernel is laid on the chip: tokens of a block, warps of a program, at most so many registers."""

    block: int = 64
    warps: int = 4
    registers: int | None = None


#: The choices in use; ``tune`` times others. 168 registers let three programs of four warps share a multiprocessor.
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
def _store(pointer, value, block, T, STRIDE: tl.constexpr, BLOCK: tl.constexpr, DH: tl.constexpr):
    """Write what ``_rows`` reads."""
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


@triton.jit(do_not_specialize=["T", "share", "stride"])
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
        keys += (_biased(qkv + D, bias, own + D, j, T, 3 * D, BLOCK, DH),)
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


@triton.jit(do_not_specialize=["T", "share", "stride"])
def _backward(
    grad, qkv, bias, out, norms, dqkv, sums, T, share, stride, scale, root,
    H: tl.constexpr, DH: tl.constexpr, N_BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    KIND: tl.constexpr, NORMALISE: tl.constexpr,
):  # fmt: skip
    """One head of one sequence. ``scale`` as in the forward kernel, ``root`` is 1/sqrt(Dh); sums (N, 3 D)."""
    D: tl.constexpr = H * DH
    sequence, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    own = sequence // share * stride + head * DH
    sum_q, sum_k, sum_v = (tl.zeros((DH,), tl.float32),) * 3
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
            row = i * BLOCK + tl.arange(0, BLOCK)[:, None]
            shifts += (tl.load(norms + row, mask=row < T, other=0.0),)
            o = _rows(out, i, T, D, BLOCK, DH)
            means += (tl.sum(g.to(tl.float32) * o.to(tl.float32), 1, keep_dims=True),)
    for j in tl.static_range(N_BLOCKS):
        k = _biased(qkv + D, bias, own + D, j, T, 3 * D, BLOCK, DH)
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
                _store(dqkv, dq * root, i, T, 3 * D, BLOCK, DH)
                if bias is not None:
                    sum_q += tl.sum(dq, 0)
            else:
                later += (dq,)
        dqs = later
        _store(dqkv + D, dk * root, j, T, 3 * D, BLOCK, DH)
        _store(dqkv + 2 * D, dv, j, T, 3 * D, BLOCK, DH)
        if bias is not None:
            sum_k += tl.sum(dk, 0)
            sum_v += tl.sum(dv, 0)
    if bias is not None:
        sums += sequence * 3 * D + head * DH + tl.arange(0, DH)
        tl.store(sums, sum_q * root)
        tl.store(sums + D, sum_k * root)
        tl.store(sums + 2 * D, sum_v)


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


CHOICES = (
    *(Choice(block, warps) for block in (32, 64, 128) for warps in (2, 4, 8)),
    *(Choice(64, 4, registers) for registers in (80, 128, 160, 168)),
    Choice(128, 8, 128),
)
fast = partial(attend, fast=True)
TOLERANCE = {torch.bfloat16: 1e-2, torch.float32: 2e-5}  # relative, of the norm, against float64


def check(device: str, types=tuple(TOLERANCE), cases=((5, 16), (51, 64), (102, 32), (200, 32)), batch: int = 4) -> bool:
    """Output and gradient of every kind and type against float64, and under torch.compile; prints the worst errors."""
    generator = torch.Generator().manual_seed(0)
    passed = True
    for dtype, kind in itertools.product(types, KINDS):
        errors = []
        for i, (length, size) in enumerate(cases):
            if length * size * dtype.itemsize <= FAST_BYTES:
                qkv = torch.randn(batch, length, 6 * size, generator=generator).to(dtype)
                grad = torch.randn(batch, length, 2 * size, generator=generator).to(dtype)
                options = (2, kind, NORMALISE[i % 3])
                exact = _both(qkv.double(), grad.double(), *options, partial(attend, fast=False))
                found = _both(qkv.to(device), grad.to(device), *options)
                errors += [((a.cpu() - b).norm() / b.norm()).item() for a, b in zip(found, exact, strict=True)]
        good = all(error <= TOLERANCE[dtype] for error in errors)
        print(f"{dtype!s:15} {kind:8} largest error {max(errors):.1e} {'ok' if good else 'WRONG'}", flush=True)
        passed &= good
    qkv, grad = (torch.randn(2, 40, width, generator=generator).to(device) for width in (96, 32))
    same = all(map(torch.equal, _both(qkv, grad), _both(qkv, grad, function=torch.compile(fast, fullgraph=True))))
    print("torch.compile:", "one graph, the same bits" if same else "DIFFERS", flush=True)
    return passed and same


def _both(qkv, grad, heads=2, kind="softmax", normalise="count", function=fast):
    """The output, and the gradient of qkv."""
    leaf = qkv.detach().requires_grad_()
    out = function(leaf, heads, kind, normalise)
    return out.detach(), torch.autograd.grad(out, leaf, grad)[0]


def microseconds(step: Callable[[int], object], sets: int, device: str, replays: int = 30) -> float:
    """Median time of one of step(0) .. step(sets - 1), replayed from a CUDA graph; inputs rotate to miss the cache."""
    for i in range(sets):
        step(i)
    if device == "cpu":  # the interpreter: nothing to learn from the number
        start = time.perf_counter()
        step(0)
        return (time.perf_counter() - start) * 1e6
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for i in range(min(sets, 3)):
            step(i)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(sets):
            step(i)
    times: list[float] = []
    for _ in range(replays + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / sets)
    return statistics.median(times[3:])


def tune(device: str = "cuda", batch: int = 64, length: int = 102, heads: int = 8, size: int = 32) -> None:
    """Print microseconds of one layer's attention, forward and backward, bf16: the kernels' choices, then torch's."""
    print(f"\n{batch} sequences of {length} tokens, {heads} heads of {size}, bf16{'forward':>13}{'backward':>10}  us")
    sets = 1 if device == "cpu" else max(2, int(150e6 / (batch * length * heads * size * 6)))
    packed = [torch.randn(batch, length, 3 * heads * size, device=device).bfloat16() for _ in range(sets)]
    grads = [torch.randn(batch, length, heads * size, device=device).bfloat16() for _ in range(sets)]

    def kernels(label: str, kind: str, ahead: Choice, back: Choice) -> None:
        kept = [forward(qkv, heads, kind, "count") for qkv in packed]

        def run_back(i: int) -> object:
            out, norms = kept[i]
            return backward(grads[i], packed[i], out, norms, heads, kind, "count", back)

        _row(label, sets, device, lambda i: forward(packed[i], heads, kind, "count", ahead), run_back)

    def torchs(name: str, own: bool, context: Callable[[], AbstractContextManager[object]]) -> None:
        """torch's attention in the layout it likes, or from packed qkv to its packed gradient, with the copies."""

        def split(qkv: Tensor) -> Tensor:
            return qkv.view(batch, length, 3, heads, size).permute(2, 0, 3, 1, 4)

        inputs = [[p.contiguous() for p in split(qkv)] if own else [qkv] for qkv in packed]
        outs = [g.view(batch, length, heads, size).transpose(1, 2).contiguous() if own else g for g in grads]

        def ahead(i: int, leaves: list[Tensor] | None = None) -> Tensor:
            given = leaves or inputs[i]
            q, k, v = given if own else split(given[0])
            with context():
                out = scaled_dot_product_attention(q, k, v, is_causal=True)
            return out if own else out.transpose(1, 2).reshape(batch, length, heads * size)

        def both(i: int) -> object:
            leaves = [p.detach().requires_grad_() for p in inputs[i]]
            return torch.autograd.grad(ahead(i, leaves), leaves, outs[i])

        _row(
            f"torch {name}, {'own layout' if own else 'packed, with copies'}", sets, device, ahead, both, subtract=True
        )

    for choice in CHOICES:
        limit = f", {choice.registers} registers" if choice.registers else ""
        kernels(f"softmax, block {choice.block}, {choice.warps} warps{limit}", "softmax", choice, choice)
    for kind in KINDS:
        kernels(f"{kind}, as chosen", kind, FORWARD, BACKWARD)
    _row("a copy of qkv, for scale", sets, device, lambda i: packed[i].clone())
    for own in (True, False):
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            torchs(backend.name.split("_")[0].lower(), own, partial(sdpa_kernel, backend))
        torchs("default", own, nullcontext)


def _row(label: str, sets: int, device: str, ahead, back=None, subtract: bool = False) -> None:
    """One line of the table. ``subtract``: ``back`` runs both directions. What cannot run here gives a line too."""
    try:
        with torch.no_grad():
            cells = [microseconds(ahead, sets, device)]
        if back:
            cells.append(microseconds(back, sets, device) - (cells[0] if subtract else 0.0))
        text = "".join(f"{cell:10.1f}" for cell in cells)
    except Exception as error:
        text = f"  does not run: {(str(error) or repr(error)).splitlines()[0][:70]}"
    print(f"{label:54}{text}", flush=True)


def main(device: str) -> int:
    """All of it, to the end whatever fails; the exit status."""
    passed = True
    for part in (partial(check, device), partial(tune, device, 64), partial(tune, device, 512)):
        try:
            passed &= part() is not False
        except Exception:
            traceback.print_exc()
            passed = False
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main("cuda" if torch.cuda.is_available() else "cpu"))
