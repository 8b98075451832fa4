"""A transformer of target ``llama`` as Hugging Face's Llama, Mistral or Qwen2, which run it unmodified.

    model = AutoModel.from_pretrained(folder)                      # transformers' own class, nothing of innergrad's
    hidden = model(inputs_embeds=tf.stream(X, y, X_query).float()).last_hidden_state
    tf.predictions(hidden, n_query)                                # or read_predictions, "read" of innergrad.json

The hidden states are the residual stream itself: the last norm, too, is the identity. The number of heads divides the
width, so some heads may be zero. All heads have the same size, a power of four: scores are divided by its root, a power
of two, by which W_Q is multiplied. A head that writes more numbers than that becomes several with the same queries and
keys. Every layer of a loop is written out; attention and the MLP after it share a block, and a half that is not needed
is zero. In memory, equal blocks share their tensors.

Rotary positions are divided by 1e30 (linear scaling), so that they turn nothing, and ``is_causal`` is false in the
configuration: the model needs neither an attention mask nor positions. Its norms compute in float32, whatever the
model's dtype, so there is no float64 model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.export.card import CARD, EXAMPLE
from innergrad.export.folder import SHARD, write_model
from innergrad.export.llama_card import llama_card, llama_script
from innergrad.export.note import note
from innergrad.memory import require_memory
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.gated import GatedMlp
from innergrad.targets.parts.rms_norm import PAD, RMS_EPS
from innergrad.targets.weights.modules import SparseStack
from innergrad.transformer import CompiledTransformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Block = tuple[SoftmaxAttention | None, GatedMlp | None]
FAMILIES = {"llama": "LlamaModel", "mistral": "MistralModel", "qwen2": "Qwen2Model"}
UNTURNED = 1e30  # what positions are divided by
LARGEST = 2 * 10**9  # bytes of a folder that is written without being asked for
HEAD_SIZES = (4, 16, 64, 256, 1024)


@dataclass(frozen=True)
class LlamaExport:
    """Sizes of the Llama that a transformer becomes."""

    n_layer: int
    n_head: int
    d_head: int
    n_inner: int
    d_model: int

    @property
    def n_parameters(self) -> int:
        D = self.d_model
        return self.n_layer * (4 * D * self.n_head * self.d_head + 3 * D * self.n_inner + 2 * D) + 2 * D

    def n_bytes(self, dtype: torch.dtype) -> int:
        """Of the files, almost: every block is stored, also those that are equal."""
        return self.n_parameters * dtype.itemsize


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


def llama_sizes(tf: CompiledTransformer) -> LlamaExport:
    """The size of heads is the one with which queries are smallest."""
    blocks, D = llama_blocks(tf), tf.d_model
    attentions = {id(a.W_Q): a for a, _ in blocks if a is not None}.values()
    scores = max((a.W_Q.shape[1] for a in attentions), default=1)
    inner = max((mlp.W_1.shape[1] for _, mlp in blocks if mlp is not None), default=1)

    def heads(size: int) -> int:
        """A divisor of the width; 0 if there is none."""
        least = max((len(_places(a, size)) for a in attentions), default=1)
        return next((n for n in range(max(1, least), D + 1) if D % n == 0), 0)

    widths = [size for size in HEAD_SIZES if size >= scores and heads(size)]
    if not widths:
        raise InputError("no head is wide enough for the queries", got=scores, allowed=f"at most {HEAD_SIZES[-1]}")
    size = min(widths, key=lambda size: size * heads(size))
    return LlamaExport(len(blocks), heads(size), size, inner, D)


def _places(layer: SoftmaxAttention, size: int) -> list[tuple[int, int]]:
    """(head, first value) for every head of so many values that the heads of a layer become."""
    used = layer.W_V.used(1).tolist()
    return [(head, first) for head, values in enumerate(used) for first in range(0, max(1, values), size)]


def llama_config(tf: CompiledTransformer, family: str = "llama") -> dict[str, Any]:
    """The settings of the configuration."""
    sizes = llama_sizes(tf)
    own: dict[str, Any] = {"sliding_window": None} if family == "mistral" else {}
    return {
        "num_hidden_layers": sizes.n_layer,
        "num_attention_heads": sizes.n_head,
        "num_key_value_heads": sizes.n_head,
        "head_dim": sizes.d_head,
        "hidden_size": sizes.d_model,
        "intermediate_size": sizes.n_inner,
        "hidden_act": "silu",
        "rms_norm_eps": RMS_EPS,
        "max_position_embeddings": tf.options.n_examples + tf.program.carriers + 1024,
        "rope_parameters": {"rope_type": "linear", "factor": UNTURNED, "rope_theta": 10000.0},
        "is_causal": False,
        "vocab_size": 1,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "use_cache": False,
        **own,
    }


def llama_state(tf: CompiledTransformer, dtype: torch.dtype, family: str = "llama") -> dict[str, Tensor]:
    """The parameters by name; blocks that are equal share their tensors."""
    sizes, made = llama_sizes(tf), dict[object, dict[str, Tensor]]()
    D, pads = sizes.d_model, tf.program.stream["pad"].size
    gain = torch.full((D,), PAD / math.sqrt(D / pads), dtype=dtype)
    state = {"embed_tokens.weight": torch.zeros(1, D, dtype=dtype), "norm.weight": gain}
    for i, block in enumerate(llama_blocks(tf)):
        for part, layer in zip(("self_attn", "mlp"), block, strict=True):
            key = part, None if layer is None else id(next(layer.children()))  # equal layers share their matrices
            if key not in made:
                built = _mlp(block[1], sizes) if part == "mlp" else _attention(block[0], sizes, family)
                made[key] = {name: value.to(dtype) for name, value in built.items()}
            state |= {f"layers.{i}.{part}.{name}": value for name, value in made[key].items()}
        state |= {f"layers.{i}.{name}_layernorm.weight": gain for name in ("input", "post_attention")}
    return state


def _attention(layer: SoftmaxAttention | None, sizes: LlamaExport, family: str) -> dict[str, Tensor]:
    """q_proj, k_proj, v_proj (heads * size, D), heads below one another; o_proj (D, heads * size)."""
    D, size = sizes.d_model, sizes.d_head
    names = ("q_proj", "k_proj", "v_proj")
    q, k, v = (torch.zeros(sizes.n_head, size, D, dtype=torch.float64) for _ in names)
    out = torch.zeros(D, sizes.n_head, size, dtype=torch.float64)
    if layer is not None:
        W_Q, W_K, W_V, W_O = (stack.dense() for stack in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O))
        for place, (head, first) in enumerate(_places(layer, size)):
            values = W_V[head, first : first + size]
            q[place, : W_Q.shape[1]] = W_Q[head] * math.sqrt(size)
            k[place, : W_K.shape[1]] = W_K[head]
            v[place, : len(values)] = values
            out[:, place, : len(values)] = W_O[head, :, first : first + size]
    made = {f"{name}.weight": part.flatten(0, 1) for name, part in zip(names, (q, k, v), strict=True)}
    biases = {f"{name}.bias": q.new_zeros(sizes.n_head * size) for name in names} if family == "qwen2" else {}
    return {**made, **biases, "o_proj.weight": out.flatten(1)}


def _mlp(layer: GatedMlp | None, sizes: LlamaExport) -> dict[str, Tensor]:
    """gate_proj, up_proj (units, D), down_proj (D, units)."""
    D, inner = sizes.d_model, sizes.n_inner

    def filled(stack: SparseStack | None, rows: int, columns: int) -> Tensor:
        full = torch.zeros(rows, columns, dtype=torch.float64)
        if stack is not None:
            dense = stack.dense()[0]
            full[: dense.shape[0], : dense.shape[1]] = dense
        return full

    stacks = (None, None, None) if layer is None else (layer.W_1, layer.W_3, layer.W_2)
    shapes = {"gate_proj": (inner, D), "up_proj": (inner, D), "down_proj": (D, inner)}
    return {
        f"{name}.weight": filled(stack, *shape) for (name, shape), stack in zip(shapes.items(), stacks, strict=True)
    }


def to_llama(tf: CompiledTransformer, dtype: torch.dtype = torch.float32, family: str = "llama") -> PreTrainedModel:
    """A ``transformers.LlamaModel`` (or Mistral's, or Qwen2's) with the compiled weights."""
    import transformers

    check_settings(tf, dtype, family)
    config = transformers.AutoConfig.for_model(family, **llama_config(tf, family))
    state, kind = llama_state(tf, dtype, family), getattr(transformers, FAMILIES[family])
    with torch.device("meta"):
        model: PreTrainedModel = kind(config)
    model.load_state_dict(state, assign=True)
    model.rotary_emb = type(model.rotary_emb)(config)  # its buffers are not in the state
    model.eval()  # type: ignore[no-untyped-call]
    return model


def check_settings(tf: CompiledTransformer, dtype: torch.dtype, family: str) -> None:
    """Refuse what would be wrong without a word."""
    if family not in FAMILIES:
        raise InputError("unknown family of models", got=repr(family), allowed=", ".join(FAMILIES))
    if dtype == torch.float64:
        what = "the norms of these models compute in float32, whatever the model's dtype"
        raise InputError(what, got="float64", allowed="float32", hint="tf.module is the same blocks in float64")
    tf.check_steps(dtype, as_weights=True)


def export_llama(
    tf: CompiledTransformer,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    family: str = "llama",
    *,
    force: bool = False,
    large: bool = False,
) -> Path:
    """Write a folder that ``AutoModel.from_pretrained`` loads. innergrad.json in it says what entries are, README.md
    how the model is called and what goes wrong, and example.py calls it.

    An earlier export is replaced; other files of these names only with ``force``. large: also more than 2 GB.
    """
    check_settings(tf, dtype, family)
    if dtype != torch.float32:
        raise InputError("folders are written in float32", got=dtype, hint="convert the model that was loaded")
    sizes = llama_sizes(tf)
    size = sizes.n_bytes(dtype)
    if size > LARGEST and not large:
        got, hint = (
            f"{size / 1e9:.1f} GB",
            "large=True writes it; to_llama makes it in memory, where equal blocks are one",
        )
        raise InputError("the folder would be large, for every block is written out", got=got, hint=hint)
    different = sizes.n_parameters // sizes.n_layer * len(list(tf.module.stored_layers()))  # others share theirs
    require_memory(different * 8 + 2 * SHARD, "writing out the blocks of a Llama", "use fewer inputs")
    name = str(dtype).removeprefix("torch.")
    config = {"model_type": family, "architectures": [FAMILIES[family]], "dtype": name, **llama_config(tf, family)}
    inputs = f"(batch, tokens, {sizes.d_model}): the residual stream"
    content = {"inputs_embeds": inputs, "attention_mask": None, "family": family, **note(tf, dtype)}
    texts = {CARD: llama_card(tf, content, FAMILIES[family]), EXAMPLE: llama_script()}
    return write_model(Path(path), config, llama_state(tf, dtype, family), texts, content, force=force)
