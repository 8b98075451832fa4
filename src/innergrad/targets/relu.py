"""Target ``relu``: ReLU attention, ReLU MLPs and element-wise multiplication layers (Definitions 6-9 of the paper).

    attention   h_i += 1/T sum_m sum_s relu(<W_Q^m h_i, W_K^m h_s>) W_O^m W_V^m h_s     (the vector form; T tokens)
    mlp         h_i += W_2 relu(W_1 h_i)
    product     h_i += sum_m <W_Q^m h_i, W_K^m h_i> W_O^m W_V^m h_i

There are no bias vectors: constants come from the lane ``one``. The weights are written by
:mod:`innergrad.targets.relu_lowering`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innergrad.targets.base import Sublayer
from innergrad.targets.sparse import SparseStack

_CHUNK = 1 << 18  # attention scores held at a time: they stay in the cache, which is ten times faster


class ReluAttention(Sublayer):
    """h_i += 1/T sum_m sum_s relu(<W_Q^m h_i, W_K^m h_s>) W_O^m W_V^m h_s.

    Shapes: W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).
    """

    matrices = ("W_Q", "W_K", "W_V", "W_O")
    hooks: ClassVar[tuple[str, ...]] = ("hook_q", "hook_k", "hook_v", "hook_pattern")
    W_Q: SparseStack
    W_K: SparseStack
    W_V: SparseStack
    W_O: SparseStack
    hook_q: nn.Identity
    hook_k: nn.Identity
    hook_v: nn.Identity
    hook_pattern: nn.Identity

    def phi(self, z: Tensor) -> Tensor:
        """The activation."""
        return torch.relu(z)

    @property
    def n_heads(self) -> int:
        return self.W_Q.shape[0]

    def _projections(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k (heads, batch, T, d_head) and v (heads, batch, T, d_v)."""
        return self.hook_q(self.W_Q.project(h)), self.hook_k(self.W_K.project(h)), self.hook_v(self.W_V.project(h))

    def _write(self, h: Tensor, heads: Float[Tensor, "heads batch tokens d_v"]) -> Tensor:
        return h + self.W_O.write(heads)

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        if self.n_heads == 0:
            return h
        q, k, v = self._projections(h)
        tokens = h.shape[1]
        if self.hook_pattern._forward_hooks:  # somebody looks: all heads at once
            return self._write(h, self.hook_pattern(self.phi(q @ k.mT) / tokens) @ v)
        chunk = max(1, _CHUNK // (h.shape[0] * tokens * tokens))
        parts = [slice(m, m + chunk) for m in range(0, self.n_heads, chunk)]
        return self._write(h, torch.cat([self.phi(q[m] @ k[m].mT) @ v[m] / tokens for m in parts]))


class Product(ReluAttention):
    """Element-wise multiplication layer: h_i += sum_m <W_Q^m h_i, W_K^m h_i> W_O^m W_V^m h_i."""

    hooks = ("hook_q", "hook_k", "hook_v")

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        if self.n_heads == 0:
            return h
        q, k, v = self._projections(h)
        return self._write(h, (q * k).sum(-1, keepdim=True) * v)


class Mlp(Sublayer):
    """h_i += W_2 relu(W_1 h_i). Shapes: W_1 (1, units, D), W_2 (1, D, units)."""

    matrices = ("W_1", "W_2")
    hooks = ("hook_pre", "hook_post")
    W_1: SparseStack
    W_2: SparseStack
    hook_pre: nn.Identity
    hook_post: nn.Identity

    def phi(self, z: Tensor) -> Tensor:
        """The activation."""
        return torch.relu(z)

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        units = self.hook_post(self.phi(self.hook_pre(self.W_1.tall() @ h.flatten(0, 1).T)))
        written: Tensor = self.W_2.tall() @ units
        return h + written.T.view_as(h)
