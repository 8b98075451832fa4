"""A transformer of target ``llama`` as Hugging Face's Llama, Mistral, Qwen, Gemma ..., which run it unmodified.

    model = AutoModel.from_pretrained(folder)                      # transformers' own class, nothing of innergrad's
    hidden = model(**llama_inputs(tf, tf.stream(X, y, X_query), model)).last_hidden_state
    tf.predictions(llama_stream(tf, hidden, model), n_query)       # or read_predictions, "read" of innergrad.json

The differences between families are in :mod:`innergrad.export.families`. Hidden states are the residual stream itself:
the last norm, too, is the identity. The number of heads divides the width, so some heads may be zero. Every layer of a
loop is written out; attention and the MLP after it share a block, and a half that is not needed is zero. In memory,
equal blocks share their tensors.

Rotary positions are divided by 1e30 (linear scaling), so that they turn nothing, and ``is_causal`` is false in the
configuration: the model needs neither an attention mask nor positions (StableLM needs the mask). Norms compute in
float32 for every dtype of the model, except StableLM's. So a float64 model of another family needs a transformer that
was compiled with ``double=True`` (:mod:`innergrad.model.double`). Qwen3 casts queries and keys, too, and has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from innergrad.errors import InputError, require_packages
from innergrad.export.card import card_texts
from innergrad.export.families import EPS, UNTURNED, family_of
from innergrad.export.folder import NEEDED, SHARD, require_small, write_model
from innergrad.export.frames import frame
from innergrad.export.heads import LlamaExport, sizes
from innergrad.export.llama_weights import llama_blocks, llama_state
from innergrad.export.note import note
from innergrad.functions.fits.sums import FeatureSum
from innergrad.memory import require_memory
from innergrad.transformer import CompiledTransformer

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def llama_sizes(tf: CompiledTransformer, family: str = "llama", kv_heads: int | None = None) -> LlamaExport:
    """Sizes of the model that ``to_llama`` and ``export_llama`` make, before anything is made.

    Args:
        tf: compiled for target ``llama``.
        family: the class: ``llama``, ``mistral``, ``qwen2``, ``gemma`` ...
        kv_heads: heads of keys and values. By default as many as give the fewest parameters.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import llama_sizes
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama")
        >>> print(llama_sizes(tf))
        5 blocks, 2 heads of 4, 2 of keys and values, width 48, 37 units
    """
    blocks = llama_blocks(tf)
    attentions = {id(a.W_Q): a for a, _ in blocks if a is not None}.values()
    inner = max((mlp.W_1.shape[1] for _, mlp in blocks if mlp is not None), default=1)
    return sizes(tf, family_of(family), attentions, len(blocks), inner, kv_heads)


def llama_config(tf: CompiledTransformer, family: str = "llama", kv_heads: int | None = None) -> dict[str, Any]:
    """The settings of the configuration."""
    made, kind = llama_sizes(tf, family, kv_heads), family_of(family)
    return {
        "num_hidden_layers": made.n_layer,
        "num_attention_heads": made.n_head,
        "num_key_value_heads": made.n_kv,
        "head_dim": made.d_head,
        "hidden_size": made.d_model,
        "intermediate_size": made.n_inner,
        "hidden_act": kind.act,
        "layer_norm_eps" if kind.layer_norm else "rms_norm_eps": EPS,
        "max_position_embeddings": tf.options.n_examples + tf.program.carriers + 1024,
        "rope_parameters": {"rope_type": "linear", "factor": UNTURNED, "rope_theta": 10000.0, **kind.turned},
        "is_causal": False,
        "vocab_size": 1,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "use_cache": False,
        **kind.own,
    }


def to_llama(
    tf: CompiledTransformer,
    dtype: torch.dtype = torch.float32,
    family: str = "llama",
    kv_heads: int | None = None,
    device: str = "cpu",
) -> PreTrainedModel:
    """A ``transformers.LlamaModel`` with the compiled weights, or a model of another family.

    Args:
        tf: compiled for target ``llama``.
        dtype: of the weights.
        family: the class: ``llama``, ``mistral``, ``qwen2``, ``gemma`` ...
        kv_heads: heads of keys and values. By default as many as give the fewest parameters.
        device: where it is made. Equal blocks share their tensors there; ``model.to(device)`` copies those of every
            block.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import to_llama
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama")
        >>> type(to_llama(tf)).__name__
        'LlamaModel'
    """
    require_packages("a model of Hugging Face", "transformers", hint=NEEDED)
    import transformers

    check_settings(tf, dtype, family)
    config = transformers.AutoConfig.for_model(family, **llama_config(tf, family, kv_heads))
    kind = family_of(family)
    state = llama_state(tf, llama_sizes(tf, family, kv_heads), kind, dtype, device)
    with torch.device("meta"):
        model: PreTrainedModel = getattr(transformers, kind.model)(config)
    model.load_state_dict(state, assign=True)
    model.rotary_emb = type(model.rotary_emb)(config).to(device)  # its buffers are not in the state
    model.eval()  # type: ignore[no-untyped-call]
    return model


def check_settings(tf: CompiledTransformer, dtype: torch.dtype, family: str) -> None:
    """Refuses settings that would give wrong results without a word."""
    kind = family_of(family)
    if dtype == torch.float64 and kind.pinned:
        what = f"a {kind.model} casts queries and keys to float32, whatever the model's dtype"
        raise InputError(what, got="float64", allowed="float32, bfloat16", hint="export another family")
    if dtype == torch.float64 and not kind.layer_norm and not tf.options.double:
        what = "the norms of these models compute in float32, whatever the model's dtype"
        hint = "compile with double=True, or use family='stablelm', or tf.module, the same blocks in float64"
        raise InputError(what, got="float64", allowed="float32, bfloat16", hint=hint)
    kind.pad(dtype)
    sums = [name for name, f in tf.approximants.items() if isinstance(f, FeatureSum)]
    if sums and kind.act != "silu":
        what = f"these functions are sums of silu units, and a {kind.model} has {kind.act}"
        raise InputError(what, got=", ".join(sums), hint="export another family")
    tf.check_steps(dtype, as_weights=True)


def llama_inputs(tf: CompiledTransformer, stream: Tensor, model: Any) -> dict[str, Tensor]:
    """The arguments that a model of ``to_llama``, or one loaded from a folder, is called with.

    Args:
        tf: what was exported.
        stream: from ``tf.stream(X, y, X_query)``.
        model: the model.

    Examples:
        >>> import innergrad as ig, torch
        >>> from innergrad.export import llama_inputs, to_llama
        >>> X = torch.ones(4, 1)
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama")
        >>> model = to_llama(tf)
        >>> hidden = model(**llama_inputs(tf, tf.stream(X, X, X), model)).last_hidden_state
        >>> tuple(tf.predictions(hidden, n_query=4).shape)
        (1, 4, 1)
    """
    batch, tokens, _ = stream.shape
    kind, width = family_of(model.config.model_type), model.config.hidden_size
    inputs = frame(tf, kind, width, model.dtype).inputs(stream).to(model.device, model.dtype)
    mask = {"attention_mask": inputs.new_zeros(batch, 1, tokens, tokens)} if kind.masked else {}
    return {"inputs_embeds": inputs, **mask}


def llama_stream(tf: CompiledTransformer, hidden: Tensor, model: Any) -> Tensor:
    """The residual stream after the last block, as ``tf.module`` has it.

    Args:
        tf: what was exported.
        hidden: the model's ``last_hidden_state``.
        model: the model.

    Examples:
        >>> import innergrad as ig, torch
        >>> from innergrad.export import llama_inputs, llama_stream, to_llama
        >>> X = torch.ones(4, 1)
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama")
        >>> model, stream = to_llama(tf), tf.stream(X, X, X)
        >>> after = llama_stream(tf, model(**llama_inputs(tf, stream, model)).last_hidden_state, model)
        >>> bool((after - tf.module(stream)).abs().max() < 1e-3)
        True
    """
    kind, width = family_of(model.config.model_type), model.config.hidden_size
    return frame(tf, kind, width, model.dtype).stream(hidden, tf.d_model)


def export_llama(
    tf: CompiledTransformer,
    path: str | Path,
    dtype: torch.dtype = torch.float32,
    family: str = "llama",
    *,
    kv_heads: int | None = None,
    force: bool = False,
    large: bool = False,
) -> Path:
    """Write a folder that Hugging Face's ``AutoModel.from_pretrained`` loads.

    innergrad.json in it says where numbers are in the stream. README.md says how the model is called, and example.py
    calls it. An earlier export is replaced.

    Args:
        tf: compiled for target ``llama``.
        path: the folder.
        dtype: of the weights.
        family: the class: ``llama``, ``mistral``, ``qwen2``, ``gemma`` ...
        kv_heads: heads of keys and values. By default as many as give the fewest parameters.
        force: also replace other files with these names.
        large: also write more than 2 GB.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import export_llama
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama")
        >>> folder = export_llama(tf, "exported")
        >>> (folder / "config.json").exists() and (folder / "example.py").exists()
        True
    """
    check_settings(tf, dtype, family)
    if dtype not in (torch.float32, torch.float64):
        raise InputError("folders are written in float32", got=dtype, hint="convert the model that was loaded")
    made, kind = llama_sizes(tf, family, kv_heads), family_of(family)
    require_small(made.n_bytes(dtype), "to_llama", large=large)
    different = made.n_parameters // made.n_layer * len(list(tf.module.stored_layers()))  # others share theirs
    require_memory(different * 8 + 2 * SHARD, "writing out the blocks of a Llama", "use fewer inputs")
    name = str(dtype).removeprefix("torch.")
    config = {
        "model_type": family,
        "architectures": [kind.model],
        "dtype": name,
        **llama_config(tf, family, kv_heads),
    }
    content = {
        "inputs_embeds": f"(batch, tokens, {made.d_model}): the residual stream",
        "attention_mask": "zeros (batch, 1, tokens, tokens), in the dtype of the model" if kind.masked else None,
        "family": family,
        "dtype": name,
        "blocks": ["; ".join(layer.name for layer in block if layer is not None) for block in llama_blocks(tf)],
        **frame(tf, kind, made.d_model, dtype).explained(note(tf, dtype)),
    }
    texts = card_texts(tf, content, kind.model, made.d_model, name)
    return write_model(Path(path), config, llama_state(tf, made, kind, dtype), texts, content, force=force)
