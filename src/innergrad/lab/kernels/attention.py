"""Causal attention over short prompts: a plain reference, and a fast path on CUDA that computes the same numbers.

All heads of a layer come packed as GPT-2 packs them: qkv (..., T, 3 D), where head h of the queries is columns
h Dh .. (h+1) Dh of the first D; keys and values have the same columns of the second and third D. Token i sees 0 .. i:

    out_i = sum over j <= i of P_ij v_j        P_ij = f(s_ij) / c_i        s_ij = q_i . k_j / sqrt(Dh)

    softmax              f = exp                         c_i = sum over j <= i of f(s_ij)
    relu, linear, exp    f = max(., 0), identity, exp    c_i = i + 1 ("count"), sqrt(i + 1) ("sqrt") or 1 ("none")

The count is that of the tokens *seen*: dividing by the prompt's length would let a prediction depend on the future.

The fast path is one kernel for each direction (``attention_triton.py``), which reads the packed columns where they lie.
They are operators of torch.library, so torch.compile takes them without a graph break, and Triton is imported when the
first one runs. They can be differentiated once; for second derivatives use the reference (fast=False).
"""

from __future__ import annotations

import math
import os
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from innergrad.errors import InputError, integer

KINDS = ("softmax", "relu", "linear", "exp")
NORMALISE = ("count", "sqrt", "none")

#: What the kernels take. A head stays on the chip whole: its queries, padded to blocks of 64 tokens, may take 16 KiB
#: (heads of 32 in bf16: 256 tokens). Past that the registers spill, and torch's attention is the better choice.
FAST_LENGTH = 256
FAST_BYTES = 16384
FAST_HEADS = (16, 32, 64, 128)
FAST_TYPES = (torch.bfloat16, torch.float16)

HAS_TRITON = find_spec("triton") is not None
#: Triton's interpreter runs the kernels on the CPU, very slowly: for tests.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def attend(
    qkv: Tensor,
    n_heads: int,
    kind: str = "softmax",
    normalise: str = "count",
    pattern: Tensor | None = None,
    fast: bool | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Causal attention of packed heads: (..., T, 3 D) -> (..., T, D).

    ``bias`` (G, 3 D), when given, is added to qkv first: N sequences are G models' of N / G each, in that order.
    ``pattern`` (..., H, T, T), when given, takes the place of the computed one, which ``attention_pattern`` returns.
    ``fast``: True takes the kernels or raises, False takes the reference, None takes the fastest that applies.
    """
    head = _head_size(qkv, n_heads, kind, normalise)
    if bias is not None:
        _check_bias(qkv, bias)
    reason = "an explicit pattern" if pattern is not None else _why_not_fast(qkv, head)
    if fast and reason:
        raise InputError(
            "the attention kernels do not apply",
            got=reason,
            allowed=f"CUDA; bf16 or fp16; heads of {FAST_HEADS}; {FAST_LENGTH} tokens; {FAST_BYTES} bytes a head",
            hint="leave fast=None",
        )
    if fast or (fast is None and not reason and qkv.is_cuda):
        packed = qkv.reshape(-1, *qkv.shape[-2:]).contiguous()
        out: Tensor = attend_packed(packed, bias, n_heads, kind, normalise)[0]
        return out.reshape(*qkv.shape[:-1], n_heads * head)
    if bias is not None:
        models = qkv.reshape(len(bias), qkv.shape[:-2].numel() // len(bias), *qkv.shape[-2:])
        qkv = (models + bias[:, None, None]).to(qkv.dtype).view(qkv.shape)
    q, k, v = _split(qkv, n_heads)
    if kind == "softmax" and fast is None and pattern is None:
        q, k, v = (part.reshape(-1, *part.shape[-3:]) for part in (q, k, v))
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.reshape(*qkv.shape[:-2], *mixed.shape[1:])
    else:
        weights = _pattern(q, k, kind, normalise) if pattern is None else pattern
        mixed = (weights @ v.to(weights.dtype)).to(qkv.dtype)
    return mixed.transpose(-3, -2).flatten(-2)


def attention_pattern(
    qkv: Tensor, n_heads: int, kind: str = "softmax", normalise: str = "count", hidden: Tensor | None = None
) -> Tensor:
    """The weights P_ij of every head, (..., T, 3 D) -> (..., H, T, T), at least float32.

    They are zero where ``hidden``, (T, T) or (T,), says so: above the diagonal, when it is not given. The count is that
    of the others.
    """
    _head_size(qkv, n_heads, kind, normalise)
    q, k, _ = _split(qkv, n_heads)
    return _pattern(q, k, kind, normalise, hidden)


def _pattern(q: Tensor, k: Tensor, kind: str, normalise: str, hidden: Tensor | None = None) -> Tensor:
    """P (..., H, T, T) of queries and keys (..., H, T, Dh). Scores are at least float32, as in the kernels."""
    dtype = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(dtype) @ k.to(dtype).mT / math.sqrt(q.shape[-1])
    length = scores.shape[-1]
    if hidden is None:
        hidden = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    if kind == "softmax":  # the second mask is for tokens that see nothing
        return scores.masked_fill(hidden, torch.finfo(dtype).min).softmax(-1).masked_fill(hidden, 0.0)
    # Hidden scores are masked before f as well: exp of a large one would be inf, and its gradient inf * 0.
    scores = scores.masked_fill(hidden, 0.0)
    weights = {"relu": torch.relu, "linear": torch.clone, "exp": torch.exp}[kind](scores).masked_fill(hidden, 0.0)
    if normalise == "none":
        return weights
    seen = (~hidden).sum(-1, keepdim=True).clamp(min=1).to(dtype)
    return weights / (seen if normalise == "count" else seen.sqrt())


def _split(qkv: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the queries, keys and values, each (..., H, T, Dh)."""
    heads = qkv.reshape(*qkv.shape[:-1], 3, n_heads, -1).transpose(-4, -2)  # (..., H, 3, T, Dh)
    q, k, v = heads.unbind(-3)
    return q, k, v


def _head_size(qkv: Tensor, n_heads: int, kind: str, normalise: str) -> int:
    """Dh, after checking the arguments."""
    integer("n_heads", n_heads)
    if kind not in KINDS:
        raise InputError("unknown kind of attention", got=repr(kind), allowed=", ".join(KINDS))
    if normalise not in NORMALISE:
        raise InputError("unknown normalisation of attention", got=repr(normalise), allowed=", ".join(NORMALISE))
    if qkv.dim() < 2 or qkv.shape[-2] == 0 or qkv.shape[-1] == 0 or qkv.shape[-1] % (3 * n_heads):
        shape = tuple(qkv.shape)
        raise InputError("qkv must be (..., T, 3 D) with D a multiple of the heads", got=f"{shape}, {n_heads} heads")
    return qkv.shape[-1] // (3 * n_heads)


def _check_bias(qkv: Tensor, bias: Tensor) -> None:
    sequences, width = qkv.shape[:-2].numel(), qkv.shape[-1]
    if bias.dim() != 2 or bias.shape[1] != width or not len(bias) or sequences % len(bias):
        allowed = f"(G, {width}), with G a divisor of the {sequences} sequences"
        raise InputError("bias must be (G, 3 D)", got=tuple(bias.shape), allowed=allowed)


def _why_not_fast(qkv: Tensor, head: int) -> str:
    """Why the kernels cannot take this tensor; empty when they can."""
    if not HAS_TRITON:
        return "Triton is not installed"
    if not qkv.is_cuda and not INTERPRETED:
        return f"a tensor on {qkv.device.type}"
    if qkv.dtype not in FAST_TYPES:
        return str(qkv.dtype)
    if head not in FAST_HEADS:
        return f"heads of {head}"
    length = qkv.shape[-2]
    padded = -(-length // 64) * 64
    if length > FAST_LENGTH or padded * head * qkv.element_size() > FAST_BYTES:
        return f"{length} tokens with heads of {head} in {qkv.dtype}"
    return ""


@torch.library.custom_op("innergrad::attend", mutates_args=())
def attend_packed(qkv: Tensor, bias: Tensor | None, n_heads: int, kind: str, normalise: str) -> tuple[Tensor, Tensor]:
    """The forward kernel: qkv (N, T, 3 D) -> out (N, T, D), and for softmax the logarithms of c_i, (N, H, T)."""
    from innergrad.lab.kernels.attention_triton import forward

    return forward(qkv, bias, n_heads, kind, normalise)


@torch.library.custom_op("innergrad::attend_backward", mutates_args=())
def attend_packed_backward(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, out: Tensor, norms: Tensor, n_heads: int, kind: str, normalise: str
) -> tuple[Tensor, Tensor]:
    """The backward kernel: the gradient (N, T, D) of the output -> those of qkv, (N, T, 3 D), and bias, (G, 3 D)."""
    from innergrad.lab.kernels.attention_triton import backward

    return backward(grad.contiguous(), qkv, bias, out, norms, n_heads, kind, normalise)


@attend_packed.register_fake
def _attend_shapes(qkv: Tensor, bias: Tensor | None, n_heads: int, kind: str, normalise: str) -> tuple[Tensor, Tensor]:
    batch, length, width = qkv.shape
    norms = (batch, n_heads, length) if kind == "softmax" else (0,)
    return qkv.new_empty(batch, length, width // 3), qkv.new_empty(norms, dtype=torch.float32)


@attend_packed_backward.register_fake
def _backward_shapes(
    grad: Tensor, qkv: Tensor, bias: Tensor | None, out: Tensor, norms: Tensor, n_heads: int, kind: str, normalise: str
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(qkv), qkv.new_empty(0) if bias is None else bias.new_empty(bias.shape)


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    qkv, bias, *ctx.options = inputs
    ctx.save_for_backward(qkv, bias, *output)


def _differentiate(ctx, grad, _):  # type: ignore[no-untyped-def]
    dqkv, dbias = attend_packed_backward(grad, *ctx.saved_tensors, *ctx.options)
    return dqkv, None if ctx.saved_tensors[1] is None else dbias, None, None, None


attend_packed.register_autograd(_differentiate, setup_context=_save)
