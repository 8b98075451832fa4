"""A transformer of target ``gpt``, variant ``pre-ln``, as Hugging Face's GPT-2, which runs it unmodified.

    model = GPT2Model.from_pretrained(folder)                      # transformers' own class, nothing of innergrad's
    hidden = model(inputs_embeds=..., attention_mask=...).last_hidden_state
    ig.read_predictions(hidden, note["read"], n_query)             # "read" of innergrad.json; or tf.predictions

GPT-2 has heads of equal size that share the width: the stream is padded with zeros to n_head * d_head. It divides
scores by sqrt(d_head), so W_Q is multiplied by it. Every layer of a loop is written out (GPT-2 has no loops); attention
and the MLP after it share a block, and a half that is not needed is zero. Programs that are not causal need the 4-D
attention mask of zeros that :func:`gpt2_inputs` makes: GPT-2 adds such a mask to the scores as it is. Without it GPT-2
hides later tokens, and is wrong without a word: README.md in the folder says so, example.py shows it, and
:func:`innergrad.export.check` finds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from innergrad.errors import InputError, require_packages
from innergrad.export.card import card_texts
from innergrad.export.folder import NEEDED, SHARD, Sizes, require_small, write_model
from innergrad.export.note import note
from innergrad.memory import require_memory
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.mlps import FeedForward
from innergrad.targets.parts.norms import LN_EPS, PAD
from innergrad.transformer import CompiledTransformer

if TYPE_CHECKING:
    from transformers import GPT2Model

Block = tuple[SoftmaxAttention | None, FeedForward | None]


@dataclass(frozen=True)
class GPT2Export(Sizes):
    """Sizes of the GPT-2 that a transformer of target ``gpt`` becomes. ``sizes_of`` gives them.

    Examples:
        >>> from innergrad.export import GPT2Export
        >>> GPT2Export(n_layer=5, n_head=2, d_head=32, n_inner=64).n_embd
        64
    """

    n_layer: int
    n_head: int
    d_head: int
    n_inner: int

    @property
    def n_embd(self) -> int:
        return self.n_head * self.d_head

    @property
    def width(self) -> int:
        return self.n_embd

    @property
    def n_parameters(self) -> int:
        D = self.n_embd
        return self.n_layer * (4 * D * D + 2 * D * self.n_inner + 9 * D + self.n_inner) + 2 * D


def blocks_of(tf: CompiledTransformer) -> list[Block]:
    """Attention and the MLP after it as one block, in the order in which they are applied."""
    if tf.options.target != "gpt" or tf.options.variant == "raw":
        raise InputError(
            "only standard pre-LN blocks are GPT-2's",
            got=f"target {tf.options.target!r}, variant {tf.options.variant!r}",
            allowed="target 'gpt', variant 'pre-ln' or 'markers'; or target 'llama', which is exported as a Llama",
            hint="compile again with target='llama'",
        )
    tf.require_double()
    blocks: list[Block] = []
    for layer in tf.module.layers():
        if isinstance(layer, SoftmaxAttention):
            blocks.append((layer, None))
        elif isinstance(layer, FeedForward):
            if blocks and blocks[-1][1] is None:
                blocks[-1] = (blocks[-1][0], layer)
            else:
                blocks.append((None, layer))
    return blocks


def sizes_of(tf: CompiledTransformer) -> GPT2Export:
    """Sizes of the GPT-2 that ``to_gpt2`` and ``export_gpt2`` make, before anything is made.

    Args:
        tf: compiled for target ``gpt``, variant ``pre-ln``.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import sizes_of
        >>> sizes_of(ig.compile(ig.OnlineSGD(d=2), n_examples=2)).n_layer
        5
    """
    blocks = blocks_of(tf)
    attentions = [attention for attention, _ in blocks if attention is not None]
    n_head = max((a.W_V.shape[0] for a in attentions), default=1) or 1
    needed = max((max(a.W_Q.shape[1], a.W_V.shape[1]) for a in attentions), default=1)
    n_inner = max((mlp.W_1.shape[1] for _, mlp in blocks if mlp is not None), default=1)
    return GPT2Export(len(blocks), n_head, max(needed, math.ceil(tf.d_model / n_head)), n_inner)


def config_of(tf: CompiledTransformer) -> dict[str, Any]:
    """The settings of the GPT2Config."""
    sizes = sizes_of(tf)
    tokens = 2 * tf.options.n_examples + 1026
    return {
        "n_layer": sizes.n_layer,
        "n_head": sizes.n_head,
        "n_embd": sizes.n_embd,
        "n_inner": sizes.n_inner,
        "n_positions": tokens,
        "vocab_size": 1,
        "activation_function": "gelu",
        "layer_norm_epsilon": LN_EPS,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "use_cache": False,
    }


def state_of(tf: CompiledTransformer, dtype: torch.dtype) -> dict[str, Tensor]:
    """GPT-2's parameters by name; blocks that are equal share their tensors."""
    sizes = sizes_of(tf)
    D, made = sizes.n_embd, dict[object, dict[str, Tensor]]()
    gain = torch.full((D,), PAD * math.sqrt(2.0 / D), dtype=dtype)
    zero = torch.zeros(D, dtype=dtype)
    state = {
        "wte.weight": torch.zeros(1, D, dtype=dtype),
        "wpe.weight": torch.zeros(config_of(tf)["n_positions"], D, dtype=dtype),
        "ln_f.weight": gain,
        "ln_f.bias": zero,
    }
    for i, block in enumerate(blocks_of(tf)):
        for part, layer in zip(("attn", "mlp"), block, strict=True):
            key = part, None if layer is None else id(next(layer.children()))  # equal layers share their matrices
            if key not in made:
                built = _mlp(block[1], sizes) if part == "mlp" else _attention(block[0], sizes)
                made[key] = {name: value.to(dtype) for name, value in built.items()}
            state |= {f"h.{i}.{part}.{name}": value for name, value in made[key].items()}
        state |= {f"h.{i}.ln_{k}.{name}": value for k in (1, 2) for name, value in (("weight", gain), ("bias", zero))}
    return state


def _attention(layer: SoftmaxAttention | None, sizes: GPT2Export) -> dict[str, Tensor]:
    """c_attn (D, 3D) = [W_Q | W_K | W_V], heads side by side; c_proj (D, D)."""
    D, d = sizes.n_embd, sizes.d_head
    c_attn, c_proj = (torch.zeros(D, width, dtype=torch.float64) for width in (3 * D, D))
    if layer is not None:
        for part, (stack, factor) in enumerate(((layer.W_Q, math.sqrt(d)), (layer.W_K, 1.0), (layer.W_V, 1.0))):
            head, row, column = stack.index
            c_attn.index_put_((column, part * D + head * d + row), factor * stack.value, accumulate=True)
        head, row, column = layer.W_O.index
        c_proj.index_put_((head * d + column, row), layer.W_O.value, accumulate=True)
    biases = {"c_attn.bias": c_attn.new_zeros(3 * D), "c_proj.bias": c_attn.new_zeros(D)}
    return {"c_attn.weight": c_attn, "c_proj.weight": c_proj, **biases}


def _mlp(layer: FeedForward | None, sizes: GPT2Export) -> dict[str, Tensor]:
    """c_fc (D, n_inner) and c_proj (n_inner, D): the transposes of W_1 and W_2."""
    D, inner = sizes.n_embd, sizes.n_inner
    c_fc, c_proj = torch.zeros(D, inner, dtype=torch.float64), torch.zeros(inner, D, dtype=torch.float64)
    bias = torch.zeros(inner, dtype=torch.float64)
    if layer is not None:
        for matrix, stack in ((c_fc, layer.W_1), (c_proj, layer.W_2)):
            _, row, column = stack.index
            matrix.index_put_((column, row), stack.value, accumulate=True)
        _, unit, _ = layer.b_1.index
        bias.index_put_((unit,), layer.b_1.value, accumulate=True)
    return {"c_fc.weight": c_fc, "c_fc.bias": bias, "c_proj.weight": c_proj, "c_proj.bias": c_fc.new_zeros(D)}


def to_gpt2(tf: CompiledTransformer, dtype: torch.dtype = torch.float32) -> GPT2Model:
    """A ``transformers.GPT2Model`` with the compiled weights. Equal blocks share their memory.

    Args:
        tf: compiled for target ``gpt``, variant ``pre-ln``.
        dtype: of the weights.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import to_gpt2
        >>> type(to_gpt2(ig.compile(ig.OnlineSGD(d=2), n_examples=2))).__name__
        'GPT2Model'
    """
    require_packages("a model of Hugging Face", "transformers", hint=NEEDED)
    from transformers import GPT2Config, GPT2Model

    config, state = GPT2Config(**config_of(tf)), state_of(tf, dtype)
    with torch.device("meta"):
        model: GPT2Model = GPT2Model(config)  # type: ignore[no-untyped-call]
    model.load_state_dict(state, assign=True)
    model.eval()  # type: ignore[no-untyped-call]
    return model


def export_gpt2(
    tf: CompiledTransformer,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    *,
    force: bool = False,
    large: bool = False,
) -> Path:
    """Write a folder that Hugging Face's ``GPT2Model.from_pretrained`` loads.

    innergrad.json in it says where numbers are in the stream. README.md says how the model is called, and example.py
    calls it. An earlier export is replaced.

    Args:
        tf: compiled for target ``gpt``, variant ``pre-ln``.
        path: the folder.
        dtype: of the weights.
        force: also replace other files with these names.
        large: also write more than 2 GB.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import export_gpt2
        >>> folder = export_gpt2(ig.compile(ig.OnlineSGD(d=2), n_examples=2), "exported")
        >>> (folder / "config.json").exists()
        True
    """
    path, sizes = Path(path), sizes_of(tf)
    require_small(sizes.n_bytes(dtype), "to_gpt2", large=large)
    different = sizes.n_parameters // sizes.n_layer * len(list(tf.module.stored_layers()))  # others share theirs
    require_memory(
        different * 8 + 2 * SHARD, "writing out the blocks of a GPT-2", "use fewer inputs or a larger epsilon"
    )
    name = str(dtype).removeprefix("torch.")
    config = {"model_type": "gpt2", "architectures": ["GPT2Model"], "dtype": name, **config_of(tf)}
    content = _note(tf, sizes.n_embd, dtype)
    texts = card_texts(tf, content, "GPT2Model", sizes.n_embd, name)
    return write_model(path, config, state_of(tf, dtype), texts, content, force=force)


def _note(tf: CompiledTransformer, width: int, dtype: torch.dtype) -> dict[str, Any]:
    mask = None if tf.program.causal else "zeros (batch, 1, tokens, tokens), in the dtype of the model"
    stream = {"stream": "last_hidden_state - last_hidden_state[..., zero]"}
    made = note(tf, dtype)
    inputs = f"(batch, tokens, {width}): the residual stream; entries not listed are zero"
    name = str(dtype).removeprefix("torch.")
    return {"inputs_embeds": inputs, "attention_mask": mask, "dtype": name, **made, "read": {**stream, **made["read"]}}


def gpt2_inputs(tf: CompiledTransformer, stream: Tensor, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The arguments that a GPT2Model is called with.

    Args:
        tf: what was exported.
        stream: from ``tf.stream(X, y, X_query)``.
        dtype: of the weights.

    Examples:
        >>> import innergrad as ig, torch
        >>> from innergrad.export import gpt2_inputs, to_gpt2
        >>> X = torch.eye(2)
        >>> tf = ig.compile(ig.OnlineSGD(d=2, lr=0.5), n_examples=2)
        >>> inputs = gpt2_inputs(tf, tf.stream(X, torch.tensor([1.0, 2.0]), X))
        >>> hidden = to_gpt2(tf)(**inputs).last_hidden_state.detach()
        >>> [round(float(value), 2) for value in tf.predictions(hidden, n_query=2).flatten()]
        [0.5, 1.0]
    """
    batch, tokens, width = stream.shape
    padded = torch.cat([stream, stream.new_zeros(batch, tokens, sizes_of(tf).n_embd - width)], dim=-1).to(dtype)
    if tf.program.causal:
        return {"inputs_embeds": padded}
    return {"inputs_embeds": padded, "attention_mask": padded.new_zeros(batch, 1, tokens, tokens)}


def gpt2_stream(tf: CompiledTransformer, hidden: Tensor) -> Tensor:
    """The residual stream after the last block, as ``tf.module`` has it. The last LayerNorm is undone.

    Args:
        tf: what was exported.
        hidden: the model's ``last_hidden_state``.

    Examples:
        >>> import innergrad as ig, torch
        >>> from innergrad.export import gpt2_inputs, gpt2_stream, to_gpt2
        >>> X = torch.eye(2)
        >>> tf = ig.compile(ig.OnlineSGD(d=2, lr=0.5), n_examples=2)
        >>> stream = tf.stream(X, torch.tensor([1.0, 2.0]), X)
        >>> after = gpt2_stream(tf, to_gpt2(tf)(**gpt2_inputs(tf, stream)).last_hidden_state)
        >>> after.shape == stream.shape
        True
    """
    zero = tf.program.stream.entry("zero")
    return hidden[..., : tf.d_model] - hidden[..., zero : zero + 1]
