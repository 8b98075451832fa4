"""Attention whose scores pass through h, summed over the examples (003, equations (2)-(5), (12)).

    h_j += sum_m sum_{i: t_i = 1} prod_{s in m} h_s(<W_Q^s h_j, W_K^s h_i>) W_O^m W_V^m h_i      h in linear, relu, exp
    h_j += sum_m softmax_{i: t_i = 1}(<W_Q^m h_j, W_K^m h_i>) W_O^m W_V^m h_i                     softmax

The mask M of the paper is the lane t. Scores are multiplied within a head, heads are added: products and sums of
kernels (Proposition D.1). Nothing is approximated: the layer computes the functions themselves.
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.ir.options import Options
from innergrad.ir.program import Attend, Layer
from innergrad.targets.parts.base import Abilities, Context, Part, Reason
from innergrad.targets.weights.rows import Pairs, Row, add, attention_stacks, destinations, family, score_rows
from innergrad.targets.weights.sparse import SparseStack

H = {"identity": lambda z: z, "relu": torch.relu, "exp": torch.exp}


class KernelAttention(Part):
    """See the module docstring. Shapes: W_Q, W_K (scores, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    heads: for each head, the h of each of its scores; ["softmax"] for a head of softmax attention. t: entry of lane t.
    """

    kind = "attention"
    hooks = ("hook_q", "hook_k", "hook_v", "hook_pattern")
    can: ClassVar[Abilities] = {
        "softmax": "exactly, over the examples",
        "examples": "exactly: products of identity, relu and exp scores",
    }
    about = "this target has attention layers only, which sum, or take the softmax, over the examples"

    def __init__(self, name: str, *stacks: SparseStack, heads: list[list[str]], t: int) -> None:
        super().__init__(name, *stacks, heads=heads, t=t)
        if not all(h in (*H, "softmax") for head in heads for h in head) or sum(map(len, heads)) != stacks[0].shape[0]:
            raise ValueError(f"layer {name}: the heads {heads} do not fit the scores")
        self.heads, self.t = heads, t

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        q, k, v = self.projections(h)
        shown = (h[..., self.t] == 1).unsqueeze(-2)  # the mask M
        patterns, scores = [], iter(q @ k.mT)
        for head in self.heads:
            if head == ["softmax"]:
                patterns.append(torch.softmax(next(scores).masked_fill(~shown, -torch.inf), dim=-1))
            else:
                product = torch.ones((), dtype=h.dtype, device=h.device)
                for name in head:
                    product = product * H[name](next(scores))
                patterns.append(product * shown)
        return h + self.W_O.write(self.show("hook_pattern", torch.stack(patterns)) @ v)

    @classmethod
    def room(cls, options: Options) -> int:
        return 1

    @classmethod
    def limits(cls, instruction: Attend, context: Context) -> Reason | None:
        if instruction.scope != "demos" or context.program.causal or not instruction.scores:
            return Reason(cls.about, "a causal program, no score, or other tokens")
        names = [score.f.name for score in instruction.scores]
        if any(name not in H for name in names) or (instruction.reduce == "softmax" and names != ["identity"]):
            return Reason("no such h", names, "identity, relu, exp; identity under a softmax")
        return None

    @classmethod
    def build(cls, layer: Layer, context: Context) -> Self:
        """Instructions with the same scores share a head."""
        heads: dict[str, tuple[list[str], list[Pairs], dict[int, Row]]] = {}
        for instruction in layer.instructions:
            for index in family(context.program, instruction):
                names = (
                    ["softmax"] if instruction.reduce == "softmax" else [score.f.name for score in instruction.scores]
                )
                pairs = [score_rows(context.program, instruction, score, index) for score in instruction.scores]
                _, _, kept = heads.setdefault(repr((names, pairs)), (names, pairs, {}))
                for entry, row in destinations(context.program, instruction, index):
                    add(kept.setdefault(entry, {}), row, instruction.scale)
        scores = [pairs for _, head, _ in heads.values() for pairs in head]
        values = [[(row, {entry: 1.0}) for entry, row in written.items()] for _, _, written in heads.values()]
        stacks = attention_stacks(scores, values, context.program.stream.d_model)
        return cls(layer.name, *stacks, heads=[names for names, _, _ in heads.values()], t=context.entry("t"))
