"""Target ``kernel``: attention whose scores pass through h, summed over the examples (003, equations (2)-(5), (12)).

    h_j += sum_m sum_{i: t_i = 1} prod_{s in m} h_s(<W_Q^s h_j, W_K^s h_i>) W_O^m W_V^m h_i      h in linear, relu, exp
    h_j += sum_m softmax_{i: t_i = 1}(<W_Q^m h_j, W_K^m h_i>) W_O^m W_V^m h_i                     softmax

The mask M of the paper is the lane t. Scores are multiplied within a head, heads are added: products and sums of
kernels (Proposition D.1). Nothing is approximated: the layer computes the functions themselves.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from innergrad.errors import LoweringError
from innergrad.options import Options
from innergrad.program import Attend, Layer, Program
from innergrad.targets.base import Approximants, LoopedTransformer, Sublayer, looped
from innergrad.targets.rows import Row, destinations, entries, family, require_room, scaled, score_rows, stack
from innergrad.targets.sparse import SparseStack

H = {"identity": lambda z: z, "relu": torch.relu, "exp": torch.exp}


class KernelAttention(Sublayer):
    """See the module docstring. Shapes: W_Q, W_K (scores, d_head, D), W_V (heads, d_v, D), W_O (heads, D, d_v).

    heads: for each head, the h of each of its scores; ["softmax"] for a head of softmax attention. t: entry of lane t.
    """

    matrices = ("W_Q", "W_K", "W_V", "W_O")
    hooks = ("hook_q", "hook_k", "hook_v", "hook_pattern")
    W_Q: SparseStack
    W_K: SparseStack
    W_V: SparseStack
    W_O: SparseStack
    hook_q: nn.Identity
    hook_k: nn.Identity
    hook_v: nn.Identity
    hook_pattern: nn.Identity

    def __init__(self, name: str, *stacks: SparseStack, heads: list[list[str]], t: int) -> None:
        super().__init__(name, *stacks, heads=heads, t=t)
        if not all(h in (*H, "softmax") for head in heads for h in head) or sum(map(len, heads)) != stacks[0].shape[0]:
            raise ValueError(f"layer {name}: the heads {heads} do not fit the scores")
        self.heads, self.t = heads, t

    def forward(self, h: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        q, k, v = self.hook_q(self.W_Q.project(h)), self.hook_k(self.W_K.project(h)), self.hook_v(self.W_V.project(h))
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
        attended = self.hook_pattern(torch.stack(patterns)) @ v
        return h + self.W_O.write(attended)


def check(program: Program) -> None:
    for layer in program.layers:
        for instruction in layer.instructions:
            _check(program, layer, instruction)


def _check(program: Program, layer: Layer, instruction: Attend) -> None:
    name = f"layer {layer.name}, {instruction.dst.lane}"
    if layer.kind != "attention":
        raise LoweringError(f"{name}: this target has attention layers only", got=layer.kind)
    if instruction.scope != "demos" or instruction.reduce == "mean" or instruction.where != "all" or program.causal:
        raise LoweringError(
            f"{name}: this target sums, or takes the softmax, over the examples",
            got=f"scope={instruction.scope!r}, reduce={instruction.reduce!r}, where={instruction.where!r}",
        )
    wrong = [score.f.name for score in instruction.scores if score.f.name not in H]
    if wrong or (instruction.reduce == "softmax" and instruction.scores[0].f.name != "identity"):
        raise LoweringError(f"{name}: no such h", got=wrong, allowed="identity, relu, exp; identity under a softmax")
    if not instruction.scores:
        raise LoweringError(f"{name}: a head of this target has a score")


def lower(program: Program, approximants: Approximants, options: Options) -> LoopedTransformer:
    """Each layer becomes one attention layer; instructions with the same scores share a head."""
    del approximants, options
    check(program)
    require_room(program, heads=1)
    return looped(program, lambda layer: _build(program, layer))


def _build(program: Program, layer: Layer) -> KernelAttention:
    heads: dict[object, tuple[list[str], list[tuple[list[Row], list[Row]]], dict[int, Row]]] = {}
    for instruction in layer.instructions:
        for index in family(program, instruction):
            names = ["softmax"] if instruction.reduce == "softmax" else [score.f.name for score in instruction.scores]
            pairs = [score_rows(program, instruction, score, index) for score in instruction.scores]
            rows = [([q for q, _ in pair], [k for _, k in pair]) for pair in pairs]
            _, _, kept = heads.setdefault((tuple(names), repr(rows)), (names, rows, {}))
            for entry, row in destinations(program, instruction, index):
                target = kept.setdefault(entry, {})
                for column, weight in scaled(row, instruction.scale).items():
                    target[column] = target.get(column, 0.0) + weight
    D, made = program.stream.d_model, list(heads.values())
    scores = [rows for _, head, _ in made for rows in head]
    d_head, d_v = max(len(query) for query, _ in scores), max(len(writes) for _, _, writes in made)
    return KernelAttention(
        layer.name,
        stack((len(scores), d_head, D), entries([query for query, _ in scores])),
        stack((len(scores), d_head, D), entries([key for _, key in scores])),
        stack((len(made), d_v, D), entries([list(writes.values()) for _, _, writes in made])),
        stack((len(made), D, d_v), ((m, e, r, 1.0) for m, (_, _, w) in enumerate(made) for r, e in enumerate(w))),
        heads=[names for names, _, _ in made],
        t=program.stream.entry("t"),
    )
