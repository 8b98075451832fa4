"""Target ``gpt``: the blocks of a standard decoder: softmax attention, exact GeLU, LayerNorm.

    attention   h_i += sum_m softmax_s(<W_Q^m g_i, W_K^m g_s>) W_O^m W_V^m g_s      g = LN(h); in variant ``raw``, g = h
    mlp         h_i += W_2 gelu(W_1 LN(h_i) + b_1)

``pre-ln`` is GPT-2's block, which Hugging Face's ``GPT2Model`` runs unmodified; ``raw`` is the block of 004 (equations
(1)-(7)), which has no LayerNorm before attention. The weights are written by :mod:`innergrad.targets.gpt_lowering`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm

from innergrad.targets.base import Sublayer
from innergrad.targets.sparse import SparseStack

LN_EPS = 1e-5  # GPT-2's


def normalised(h: Tensor, gain: float | None) -> Tensor:
    """LayerNorm with all gains equal and no bias; None: no LayerNorm."""
    if gain is None:
        return h
    return layer_norm(h, h.shape[-1:], torch.full_like(h[0, 0], gain), None, LN_EPS)


class GptAttention(Sublayer):
    """Softmax attention. Shapes: W_Q, W_K (heads, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    gain: of the LayerNorm before it, or None. causal: a token sees no later one.
    """

    matrices = ("W_Q", "W_K", "W_V", "W_O")
    hooks = ("hook_normalized", "hook_q", "hook_k", "hook_v", "hook_pattern", "hook_z")
    W_Q: SparseStack
    W_K: SparseStack
    W_V: SparseStack
    W_O: SparseStack
    hook_normalized: nn.Identity
    hook_q: nn.Identity
    hook_k: nn.Identity
    hook_v: nn.Identity
    hook_pattern: nn.Identity
    hook_z: nn.Identity

    def __init__(self, name: str, *stacks: SparseStack, gain: float | None, causal: bool) -> None:
        super().__init__(name, *stacks, gain=gain, causal=causal)
        self.gain, self.causal = gain, causal

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        if self.W_V.shape[0] == 0:
            return h
        g = self.hook_normalized(normalised(h, self.gain))
        q, k, v = self.hook_q(self.W_Q.project(g)), self.hook_k(self.W_K.project(g)), self.hook_v(self.W_V.project(g))
        scores = q @ k.mT
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=h.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        z = self.hook_z(self.hook_pattern(torch.softmax(scores, dim=-1)) @ v)
        return h + self.W_O.write(z)


class FeedForward(Sublayer):
    """W_2 gelu(W_1 LN(h) + b_1). Shapes: W_1 (1, units, D), b_1 (1, units, 1), W_2 (1, D, units).

    gain: of the LayerNorm before it, or None. activation: gelu, or relu.
    """

    matrices = ("W_1", "b_1", "W_2")
    hooks = ("hook_normalized", "hook_pre", "hook_post")
    W_1: SparseStack
    b_1: SparseStack
    W_2: SparseStack
    hook_normalized: nn.Identity
    hook_pre: nn.Identity
    hook_post: nn.Identity

    def __init__(self, name: str, *stacks: SparseStack, gain: float | None, activation: str = "gelu") -> None:
        super().__init__(name, *stacks, gain=gain, activation=activation)
        self.gain, self.phi = gain, {"gelu": gelu, "relu": torch.relu}[activation]

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        flat = self.hook_normalized(normalised(h, self.gain)).flatten(0, 1).T
        pre = self.hook_pre(self.W_1.tall() @ flat + self.b_1.dense()[0])
        written: Tensor = self.W_2.tall() @ self.hook_post(self.phi(pre))
        return h + written.T.view_as(h)
