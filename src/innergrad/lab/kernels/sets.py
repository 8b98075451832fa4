"""Attention in small sets without an order: plain torch, and a kernel on CUDA that computes the same numbers.

Heads are packed as in ``attention.py``: qkv (N, T, 3 D). Every token reads every token of its set that is not hidden:

    out_i = sum over j of P_ij v_j        P_i = softmax over j of (q_i . k_j / sqrt(Dh) + hidden_j)

``hidden`` (P, T) is 0, or so negative that the token is not read. N / P sets that follow one another share a row of it.
A set of a few tokens wastes most of a block of torch's kernels, so a kernel of its own (``sets_triton.py``) takes one
head of one set, whole, and reads the packed columns where they lie.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from innergrad.errors import InputError
from innergrad.lab.kernels.attention import FAST_TYPES, HAS_TRITON, INTERPRETED

AVAILABLE = HAS_TRITON  # a script may take the kernel away
FAST_LENGTH = 64
FAST_HEADS = (16, 32, 64)
MOST_BATCH = 65_535  # sequences that one call of torch's kernels takes


def attend_set(qkv: Tensor, hidden: Tensor | None, n_heads: int, fast: bool | None = None) -> Tensor:
    """(N, T, 3 D) -> (N, T, D). ``fast``: whether the kernel is taken; by default on CUDA, if it applies."""
    head = qkv.shape[-1] // (3 * n_heads)
    there = AVAILABLE and (qkv.is_cuda or INTERPRETED)
    able = there and qkv.dtype in FAST_TYPES and head in FAST_HEADS and qkv.shape[1] <= FAST_LENGTH
    if fast and not able:
        got = f"{tuple(qkv.shape)} of {qkv.dtype} on {qkv.device.type}, heads of {head}"
        allowed = f"CUDA and Triton; bf16 or fp16; heads of {FAST_HEADS}; {FAST_LENGTH} tokens"
        raise InputError("the kernel of sets does not apply", got=got, allowed=allowed, hint="leave fast=None")
    if able and (qkv.is_cuda if fast is None else fast):
        hidden = qkv.new_zeros(1, qkv.shape[1], dtype=torch.float32) if hidden is None else hidden.float()
        out: Tensor = set_forward(qkv.contiguous(), hidden.contiguous(), n_heads)[0]
        return out
    q, k, v = qkv.view(*qkv.shape[:2], 3, n_heads, head).permute(2, 0, 3, 1, 4)
    if hidden is None:
        return set_of_heads(plain(q, k, v))
    mask = hidden.to(q.dtype)[:, None].expand(-1, len(qkv) // len(hidden), -1).reshape(len(qkv), 1, 1, -1)
    return set_of_heads(plain(q, k, v, mask.expand(-1, 1, q.shape[2], -1)))


def set_of_heads(mixed: Tensor) -> Tensor:
    """(N, H, T, Dh) -> (N, T, D)."""
    return mixed.transpose(1, 2).flatten(2)


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Torch's attention, (N, H, T, Dh), in parts if there are more sequences than one call takes."""
    if len(q) <= MOST_BATCH:
        return scaled_dot_product_attention(q, k, v, mask)
    parts = zip(q.split(MOST_BATCH), k.split(MOST_BATCH), v.split(MOST_BATCH), strict=True)
    masks = [None] * -(-len(q) // MOST_BATCH) if mask is None else mask.split(MOST_BATCH)
    return torch.cat([plain(*part, one) for part, one in zip(parts, masks, strict=True)])


@torch.library.custom_op("innergrad::attend_set", mutates_args=())
def set_forward(qkv: Tensor, hidden: Tensor, n_heads: int) -> tuple[Tensor, Tensor]:
    """The forward kernel: out (N, T, D), and log2 of the sums of exp, (N, H, T)."""
    from innergrad.lab.kernels.sets_triton import forward

    return forward(qkv, hidden, n_heads)


@torch.library.custom_op("innergrad::attend_set_backward", mutates_args=())
def set_backward(grad: Tensor, qkv: Tensor, hidden: Tensor, out: Tensor, norms: Tensor, n_heads: int) -> Tensor:
    """The backward kernel: the gradient (N, T, D) of the output -> that of qkv."""
    from innergrad.lab.kernels.sets_triton import backward

    return backward(grad.contiguous(), qkv, hidden, out, norms, n_heads)


@set_forward.register_fake
def _forward_shapes(qkv: Tensor, hidden: Tensor, n_heads: int) -> tuple[Tensor, Tensor]:
    batch, length, width = qkv.shape
    norms = qkv.new_empty((batch, n_heads, length), dtype=torch.float32)
    return qkv.new_empty(batch, length, width // 3), norms


@set_backward.register_fake
def _backward_shapes(grad: Tensor, qkv: Tensor, hidden: Tensor, out: Tensor, norms: Tensor, n_heads: int) -> Tensor:
    return torch.empty_like(qkv)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    qkv, hidden, ctx.n_heads = inputs
    ctx.save_for_backward(qkv, hidden, *output)


def _differentiate(ctx, grad, _):  # type: ignore[no-untyped-def]
    return set_backward(grad, *ctx.saved_tensors, ctx.n_heads), None, None


set_forward.register_autograd(_differentiate, setup_context=_save)
