"""The work between a block's products: residual additions with LayerNorm, and biases with GELU.

All models of a stack have their own parameters: tensors are (S, ..., D), parameters (S, D).

    add_norm     r' = r + delta + bias,    normed = (r' - mean) / sqrt(variance + 1e-5) * gain + shift
    bias_gelu    z / (1 + exp(-2 u)),  z = x + bias,  u = sqrt(2 / pi) (z + 0.044715 z^3)        (GPT-2's GELU, by tanh)

Each is plain torch, and on CUDA in half precision one operator of torch.library with a kernel for each direction
(``norms_triton.py``): the backward kernel sums the gradients of the parameters on its way. Sums are float32 at least;
r' is rounded to its type before it is normalised. The operators can be differentiated once.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from innergrad.errors import InputError
from innergrad.lab.kernels.attention import FAST_TYPES, HAS_TRITON, INTERPRETED

EPS = 1e-5
#: What the kernels take. A row stays on the chip whole; GELU's are cut into pieces.
FAST_WIDTH = 1024
FAST_COLUMNS = 16


def add_norm(
    residual: Tensor, delta: Tensor | None, bias: Tensor | None, gain: Tensor, shift: Tensor, fast: bool | None = None
) -> tuple[Tensor, Tensor]:
    """The new residual and its LayerNorm, each of the shape (S, ..., D) of ``residual``.

    ``delta`` (S, ..., D) and ``bias`` (S, D) are added, if given; ``gain`` and ``shift`` are (S, D). ``fast``: True
    takes the kernels or raises, False takes plain torch, None takes the fastest that applies.
    """
    width = residual.shape[-1]
    _check(residual, {"bias": bias, "gain": gain, "shift": shift}, delta)
    reason = _why_not_fast(residual, delta, bias, gain, shift)
    if not reason and (width & (width - 1) or width > FAST_WIDTH):
        reason = f"a width of {width}"
    if _take(fast, reason, residual, f"widths that are powers of two, up to {FAST_WIDTH}"):
        total, normed = add_norm_fused(residual, delta, bias, gain, shift)
        return total, normed
    wide = torch.promote_types(residual.dtype, torch.float32)
    total = residual
    if delta is not None or bias is not None:
        total = total.to(wide)
        total = total if delta is None else total + delta
        total = (total if bias is None else total + _spread(bias, total)).to(residual.dtype)
    gain, shift = gain.to(wide), shift.to(wide)
    if len(residual) == 1:
        normed = F.layer_norm(total.to(wide), (width,), gain[0], shift[0], EPS)
    else:
        normed = torch.addcmul(
            _spread(shift, total), F.layer_norm(total.to(wide), (width,), eps=EPS), _spread(gain, total)
        )
    return total, normed.to(residual.dtype)


def bias_gelu(x: Tensor, bias: Tensor, fast: bool | None = None) -> Tensor:
    """GELU of x + bias: x (S, ..., M), bias (S, M) -> (S, ..., M); ``fast`` as in ``add_norm``."""
    _check(x, {"bias": bias})
    reason = _why_not_fast(x, bias)
    if not reason and x.shape[-1] % FAST_COLUMNS:
        reason = f"a width of {x.shape[-1]}"
    if _take(fast, reason, x, f"widths that are multiples of {FAST_COLUMNS}"):
        out: Tensor = bias_gelu_fused(x, bias)
        return out
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.gelu(x.to(wide) + _spread(bias, x), approximate="tanh").to(x.dtype)


def _spread(parameter: Tensor, x: Tensor) -> Tensor:
    """A parameter (S, D) as (S, 1, ..., 1, D), to meet x (S, ..., D)."""
    return parameter.view(len(parameter), *[1] * (x.dim() - 2), x.shape[-1])


def _check(x: Tensor, parameters: dict[str, Tensor | None], delta: Tensor | None = None) -> None:
    """Shapes: x and delta (S, ..., D), parameters (S, D)."""
    if x.dim() < 2 or not x.shape[-1]:
        raise InputError("the first tensor must be (S, ..., D)", got=tuple(x.shape))
    if delta is not None and delta.shape != x.shape:
        raise InputError("residual and delta must have one shape", got=f"{tuple(x.shape)} and {tuple(delta.shape)}")
    for name, value in parameters.items():
        if value is not None and value.shape != (len(x), x.shape[-1]):
            raise InputError(f"{name} must be (S, D)", got=tuple(value.shape), allowed=str((len(x), x.shape[-1])))


def _why_not_fast(x: Tensor, *others: Tensor | None) -> str:
    """Why the kernels cannot take these tensors; empty when they can."""
    if not HAS_TRITON:
        return "Triton is not installed"
    if not x.is_cuda and not INTERPRETED:
        return f"a tensor on {x.device.type}"
    types = {value.dtype for value in (x, *others) if value is not None}
    if len(types) > 1 or x.dtype not in FAST_TYPES:
        return ", ".join(sorted(map(str, types)))
    return ""


def _take(fast: bool | None, reason: str, x: Tensor, widths: str) -> bool:
    """Whether the kernels are used; an error where they were asked for and do not apply."""
    if fast and reason:
        raise InputError(
            "the kernels do not apply", got=reason, allowed=f"CUDA; bf16 or fp16; {widths}", hint="leave fast=None"
        )
    return bool(fast) or (fast is None and not reason and x.is_cuda)


# ------------------------------------------------------------------------------------------------------- the operators


@torch.library.custom_op("innergrad::add_norm", mutates_args=())
def add_norm_fused(
    residual: Tensor, delta: Tensor | None, bias: Tensor | None, gain: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """The forward kernel of ``add_norm``. The new residual is always a new tensor."""
    from innergrad.lab.kernels.norms_triton import add_norm_forward

    return add_norm_forward(residual, delta, bias, gain, shift)


@torch.library.custom_op("innergrad::add_norm_backward", mutates_args=())
def add_norm_fused_backward(
    d_total: Tensor | None, d_normed: Tensor, total: Tensor, gain: Tensor
) -> tuple[Tensor, Tensor]:
    """The backward kernel: the gradient of r, of delta too, (S, ..., D), and those of gain, shift, bias, (S, 3, D)."""
    from innergrad.lab.kernels.norms_triton import add_norm_backward

    return add_norm_backward(d_total, d_normed, total, gain)


@torch.library.custom_op("innergrad::bias_gelu", mutates_args=())
def bias_gelu_fused(x: Tensor, bias: Tensor) -> Tensor:
    """The forward kernel of ``bias_gelu``."""
    from innergrad.lab.kernels.norms_triton import bias_gelu_forward

    return bias_gelu_forward(x, bias)


@torch.library.custom_op("innergrad::bias_gelu_backward", mutates_args=())
def bias_gelu_fused_backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The backward kernel: the gradients of x, (S, ..., M), and of the bias, (S, M)."""
    from innergrad.lab.kernels.norms_triton import bias_gelu_backward

    return bias_gelu_backward(grad, x, bias)


def _like(x: Tensor) -> Tensor:
    """A new contiguous tensor of this shape, for the kernels to write."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@add_norm_fused.register_fake
def _add_norm_shapes(
    residual: Tensor, delta: Tensor | None, bias: Tensor | None, gain: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    return _like(residual), _like(residual)


@add_norm_fused_backward.register_fake
def _add_norm_backward_shapes(
    d_total: Tensor | None, d_normed: Tensor, total: Tensor, gain: Tensor
) -> tuple[Tensor, Tensor]:
    return _like(total), gain.new_empty(len(gain), 3, gain.shape[1])


@bias_gelu_fused.register_fake
def _bias_gelu_shapes(x: Tensor, bias: Tensor) -> Tensor:
    return _like(x)


@bias_gelu_fused_backward.register_fake
def _bias_gelu_backward_shapes(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return _like(x), bias.new_empty(bias.shape)


def _add_norm_save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, delta, bias, gain, _ = inputs
    ctx.delta, ctx.bias = delta is not None, bias is not None
    ctx.save_for_backward(output[0], gain)
    ctx.set_materialize_grads(False)  # the new residual of the last LayerNorm is not used: no zeros for it


def _add_norm_differentiate(ctx, d_total, d_normed):  # type: ignore[no-untyped-def]
    total, gain = ctx.saved_tensors
    d_normed = torch.zeros_like(total) if d_normed is None else d_normed
    dx, parameters = add_norm_fused_backward(d_total, d_normed, total, gain)
    d_gain, d_shift, d_bias = parameters.unbind(1)
    return dx, dx if ctx.delta else None, d_bias if ctx.bias else None, d_gain, d_shift


def _bias_gelu_save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _bias_gelu_differentiate(ctx, grad):  # type: ignore[no-untyped-def]
    return bias_gelu_fused_backward(grad, *ctx.saved_tensors)


add_norm_fused.register_autograd(_add_norm_differentiate, setup_context=_add_norm_save)
bias_gelu_fused.register_autograd(_bias_gelu_differentiate, setup_context=_bias_gelu_save)
