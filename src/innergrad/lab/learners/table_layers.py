"""The layers of a learner of tables, on cells and on rows; see ``table.py`` for what they are.

**Masks of rows cost nothing.** In attention over rows the last number of every head is not learned: it is 1 in queries,
and in keys 0 or a large negative number, for a key that must not be read. So plain attention, with its fast kernels,
leaves that key out. How many rows are demonstrations differs from prompt to prompt, without another shape.

Shapes: S models, B prompts, n rows, c tokens of a row, D and E widths, H heads of Dh. N = S B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from innergrad.lab.kernels.sets import attend_set, plain
from innergrad.lab.learners.gpt import product

HEAD = 32  # numbers of a head
HIDDEN = -1e4  # in a key that must not be read
NORMAL = 128.0  # demonstrations at which scores are as they are

Weights = Mapping[str, Tensor]
Context = tuple[Tensor, Tensor]  # keys and values of the demonstrations


class Masks(NamedTuple):
    """What attention may read: ``tokens`` (N, c) of a row and ``rows`` (N, keys), 0 or HIDDEN; None for all tokens.
    ``log_k`` (N,): the logarithm of the number of demonstrations over NORMAL.
    """

    tokens: Tensor | None
    rows: Tensor
    log_k: Tensor


def cell_layer(
    h: Tensor, w: Weights, masks: Masks, context: Context | None, keeps: bool, kept: int
) -> tuple[Tensor, Context | None]:
    """One layer on cells, (S, B, n, c, D) -> (S, B, n, kept, D); and its keys and values, if they are kept.

    Only the last ``kept`` tokens of a row go on: after the last layer nobody reads the others.
    """
    S, B, n, c, D = h.shape
    qkv = product(normed(h, w["norm1"]), w["W_QKV1"])
    z = attend_set(qkv.view(S * B * n, c, 3 * D), masks.tokens, D // HEAD).view(h.shape)
    h, c = h[..., c - kept :, :] + product(z[..., c - kept :, :], w["W_O1"]), kept

    x = normed(h, w["norm2"])
    warm = heated(w["heat"], masks.log_k)[:, None].expand(-1, c, -1).reshape(S * B * c, -1)
    hidden = masks.rows[:, None].expand(-1, c, -1).reshape(S * B * c, 1, -1)

    def columns(part: Tensor) -> Tensor:
        """(S, B, rows, c, D) -> (S B c, H, rows, Dh)."""
        split: Tensor = part.unflatten(-1, (-1, HEAD)).permute(0, 1, 3, 4, 2, 5)
        return split.reshape(S * B * c, D // HEAD, part.shape[2], HEAD)

    q, context = queries_and_context(x, w["W_QKV2"], columns, hidden, context)
    z = attention(q, *context, warm).unflatten(0, (S, B, c)).permute(0, 1, 4, 2, 3, 5)
    h = h + product(z.reshape(S, B, n, c, D), w["W_O2"])
    return h + mlp(normed(h, w["norm3"]), w), context if keeps else None


def row_layer(
    r: Tensor, w: Weights, masks: Masks, context: Context | None, keeps: bool
) -> tuple[Tensor, Context | None]:
    """One layer on rows, (S, B, n, E) -> the same; and its keys and values, if they are kept."""
    S, B, n, E = r.shape

    def split(part: Tensor) -> Tensor:
        return part.reshape(S * B, part.shape[2], E // HEAD, HEAD).transpose(1, 2)

    x = normed(r, w["norm1"])
    q, context = queries_and_context(x, w["W_QKV"], split, masks.rows[:, None], context)
    z = attention(q, *context, heated(w["heat"], masks.log_k))
    r = r + product(z.transpose(1, 2).reshape(S, B, n, E), w["W_O"])
    return r + mlp(normed(r, w["norm2"]), w), context if keeps else None


def attention(q: Tensor, k: Tensor, v: Tensor, warm: Tensor) -> Tensor:
    """Softmax attention, (N, H, T, Dh); ``warm`` (N, H) multiplies scores. The last number of a query becomes 1."""
    q = masked(q * warm[..., None, None].to(q.dtype), q.new_ones(1, 1, 1))
    return plain(q, k, v)


def masked(x: Tensor, last: Tensor) -> Tensor:
    """x (N, H, T, Dh) with ``last`` (N, 1, T) as the last number of every head."""
    return torch.cat((x[..., :-1], last[..., None].to(x.dtype).expand(*x.shape[:-1], 1)), -1)


def heated(heat: Tensor, log_k: Tensor) -> Tensor:
    """(N, H): the factor of scores, from the heats (S, H) and log(k / NORMAL), (N,)."""
    each = heat.float()[:, None] * log_k.float().view(len(heat), -1, 1)
    return (1.0 + each).clamp(min=0.1).flatten(0, 1)


def normed(x: Tensor, gain: Tensor) -> Tensor:
    """x (S, ..., D) with root mean square 1, times the gain (S, D)."""
    return F.rms_norm(x, x.shape[-1:], eps=1e-5) * wide(gain, x.ndim)


def mlp(x: Tensor, w: Weights) -> Tensor:
    return product(F.gelu(product(x, w["W_in"]), approximate="tanh"), w["W_out"])


def queries_and_context(
    x: Tensor, weight: Tensor, split: Callable[[Tensor], Tensor], hidden: Tensor, context: Context | None
) -> tuple[Tensor, Context]:
    """Queries of all rows of x (S, B, n, ..., D), and keys and values of those that may be demonstrations, unless there
    are some from before.
    """
    D = x.shape[-1]
    if context is not None:
        return split(product(x, weight[..., :D].contiguous())), context
    q, k, v = product(x, weight).chunk(3, -1)
    keys = hidden.shape[-1]
    return split(q), (masked(split(k[:, :, :keys]), hidden), split(v[:, :, :keys]))


def layers(w: Weights, prefix: str, names: Sequence[str], count: int) -> list[dict[str, Tensor]]:
    """The parameters of every layer, by their names in it."""
    apart = {name: w[prefix + name].unbind(1) for name in names}
    return [{name: apart[name][number] for name in names} for number in range(count)]


def wide(value: Tensor, ndim: int) -> Tensor:
    """(S, D) as (S, 1, ..., D) of so many axes."""
    return value.view(len(value), *[1] * (ndim - 2), -1)
