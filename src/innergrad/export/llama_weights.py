"""The weights of a transformer of target ``llama``, under the names that Hugging Face's classes have for them.

    layers.i.self_attn.  q_proj (heads size, D), k_proj, v_proj (groups size, D), o_proj (D, heads size)
    layers.i.mlp.        gate_proj, up_proj (units, D), down_proj (D, units)
    norm, layers.i.input_layernorm, layers.i.post_attention_layernorm      (D,)

Blocks that are equal share their tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.export.families import Family
from innergrad.export.frames import Frame, frame
from innergrad.export.heads import LlamaExport, groups
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.gated import GatedMlp
from innergrad.targets.parts.rms_norm import PAD
from innergrad.targets.weights.modules import SparseStack
from innergrad.transformer import CompiledTransformer

Block = tuple[SoftmaxAttention | None, GatedMlp | None]
State = dict[str, Tensor]


def llama_blocks(tf: CompiledTransformer) -> list[Block]:
    """Attention and the MLP after it as one block, in the order in which they are applied."""
    if tf.options.target != "llama":
        raise InputError("only blocks of target llama are Llama's", got=f"target {tf.options.target!r}")
    tf.require_double()
    blocks: list[Block] = []
    for layer in tf.module.layers():
        if isinstance(layer, SoftmaxAttention):
            blocks.append((layer, None))
        elif isinstance(layer, GatedMlp):
            if blocks and blocks[-1][1] is None:
                blocks[-1] = (blocks[-1][0], layer)
            else:
                blocks.append((None, layer))
    return blocks


def llama_state(
    tf: CompiledTransformer, sizes: LlamaExport, family: Family, dtype: torch.dtype, device: str = "cpu"
) -> State:
    """All parameters by name."""
    writer = _Writer(tf, sizes, family, frame(tf, family, sizes.d_model, dtype), device)
    norm = {name: value.to(dtype) for name, value in writer.norm().items()}
    state = {"embed_tokens.weight": torch.zeros(1, sizes.d_model, dtype=dtype, device=device), **_under("norm", norm)}
    made: dict[object, State] = {}
    for i, (attention, mlp) in enumerate(llama_blocks(tf)):
        for part, layer in (("self_attn", attention), ("mlp", mlp)):
            key = part, None if layer is None else id(next(layer.children()))  # equal layers share their matrices
            if key not in made:
                built = writer.mlp(mlp) if part == "mlp" else writer.attention(attention)
                made[key] = {name: value.to(dtype) for name, value in built.items()}
            state |= _under(f"layers.{i}.{part}", made[key])
        for place in ("input_layernorm", "post_attention_layernorm"):
            state |= _under(f"layers.{i}.{place}", norm)
    return state


def _under(prefix: str, state: State) -> State:
    return {f"{prefix}.{name}": value for name, value in state.items()}


@dataclass(frozen=True)
class _Writer:
    tf: CompiledTransformer
    sizes: LlamaExport
    family: Family
    frame: Frame
    device: str

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=self.device)

    def norm(self) -> State:
        gain = self.zeros(self.sizes.d_model) + (self.frame.gain - self.family.offset)
        return {"weight": gain, "bias": torch.zeros_like(gain)} if self.family.layer_norm else {"weight": gain}

    def attention(self, layer: SoftmaxAttention | None) -> State:
        """A group of heads has one place among keys and values."""
        D, size, share = self.tf.d_model, self.sizes.d_head, self.sizes.share
        q, out = (self.zeros(self.sizes.n_head, size, D) for _ in range(2))
        k, v = (self.zeros(self.sizes.n_kv, size, D) for _ in range(2))
        if layer is not None:
            W_Q, W_K, W_V, W_O = (stack.dense(self.device) for stack in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O))
            for group, members in enumerate(groups(layer, size, share)):
                for place, (head, first) in enumerate(members, group * share):
                    values = W_V[head, first : first + size]
                    q[place, : W_Q.shape[1]] = W_Q[head] * math.sqrt(size)
                    k[group, : W_K.shape[1]] = W_K[head]
                    v[group, : len(values)] = values
                    out[place, : len(values)] = W_O[head, :, first : first + size].T
            if self.family.pinned:
                q[:, -1, self.tf.program.stream.offsets["pad"]] = 1.0
                k[:, -1, self.tf.program.stream.offsets["pad"]] = 1.0
        reads = {name: self.frame.reads(part.flatten(0, 1)) for name, part in (("q", q), ("k", k), ("v", v))}
        made = {f"{name}_proj.weight": part for name, part in reads.items()}
        made |= {
            f"{name}.bias": made[f"{name}.weight"].new_zeros(len(made[f"{name}.weight"])) for name in self.family.biases
        }
        return {**made, **self.pinned(), "o_proj.weight": self.frame.writes(out.flatten(0, 1).T)}

    def pinned(self) -> State:
        """The norms of queries and keys: the entry that reads a pad is not seen."""
        if not self.family.pinned:
            return {}
        gain = self.zeros(self.sizes.d_head) + PAD / math.sqrt(self.sizes.d_head)
        gain[-1] = 0.0
        return {"q_norm.weight": gain, "k_norm.weight": gain}

    def mlp(self, layer: GatedMlp | None) -> State:
        def filled(stack: SparseStack | None, rows: int, columns: int) -> Tensor:
            full = self.zeros(rows, columns)
            if stack is not None:
                dense = stack.dense(self.device)[0]
                full[: dense.shape[0], : dense.shape[1]] = dense
            return full

        D, inner = self.tf.d_model, self.sizes.n_inner
        gate, up, down = (None, None, None) if layer is None else (layer.W_1, layer.W_3, layer.W_2)
        return {
            "gate_proj.weight": self.frame.reads(filled(gate, inner, D)),
            "up_proj.weight": self.frame.reads(filled(up, inner, D)),
            "down_proj.weight": self.frame.writes(filled(down, D, inner)),
        }
