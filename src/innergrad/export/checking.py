"""Does an exported model, called as its user calls it, predict what it should?

check("out/gpt2")                              the folder, called as it should be
check("out/gpt2", hidden_states=mine)          mine(model, inputs_embeds): the user's own way to call it
check("out/llama")                             likewise
check("out/model.onnx")                        mine(session, stream), likewise
predict(tf, "out/llama", X, y, X_query)        checks first, and predicts only if nothing is wrong
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError, JobError, require_packages
from innergrad.export.families import UNTURNED
from innergrad.export.folder import NEEDED, NOTE, fingerprints
from innergrad.export.gpt2 import gpt2_inputs
from innergrad.export.llama import llama_inputs
from innergrad.files import read_text
from innergrad.model.prompt import ArrayLike, read_predictions
from innergrad.transformer import CompiledTransformer

Call = Callable[[Any, Any], Any]  # a model, its input -> hidden states
NO_MASK = (
    "it was called without the 4-D attention mask of zeros, (batch, 1, tokens, tokens), so the model hid later tokens; "
    "give attention_mask=inputs_embeds.new_zeros(batch, 1, tokens, tokens)"
)
CAUSAL = (
    "it hid later tokens; give no attention_mask, and leave is_causal=False in its configuration, or give "
    "attention_mask=inputs_embeds.new_zeros(batch, 1, tokens, tokens)"
)
TURNED = (
    "rotary positions are on; leave rope_parameters of its configuration as they are, or give position_ids of zeros"
)
EAGER = "eager attention takes its softmax in float32, whatever the dtype; load it with attn_implementation='sdpa'"
OTHERS = "the weights, or the way it is called, are not those that were exported"


@dataclass(frozen=True)
class _Loaded:
    """A model, its note, and two ways to call it: as it should be called, and with later tokens hidden."""

    model: Any
    note: dict[str, Any]
    right: Call
    causal: Call | None

    @property
    def stock(self) -> bool:
        """One of Hugging Face's."""
        return hasattr(self.model, "config")


def check(path: str | Path, model: Any = None, hidden_states: Call | None = None) -> float:
    """Run an export on the prompt that it carries. Returns the largest error of predictions and learned weights.

    An error that is too large is a ``JobError``. It says why: a mask, positions, the attention, or the block whose
    weights changed.

    Args:
        path: a folder of ``export_gpt2`` or ``export_llama``, or a file of ``export_onnx``.
        model: the loaded model. By default it is loaded here.
        hidden_states: how to call it. By default as it should be called.

    Examples:
        >>> import innergrad as ig
        >>> from innergrad.export import check, export_llama
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama", n_examples=4)
        >>> check(export_llama(tf, "exported")) < 1e-4
        True
    """
    path = Path(path)
    return _checked(path, _load(path, model), hidden_states)


def predict(
    tf: CompiledTransformer,
    path: str | Path,
    X: ArrayLike,
    y: ArrayLike,
    X_query: ArrayLike,
    *,
    model: Any = None,
    hidden_states: Call | None = None,
    **prompt: Any,
) -> Tensor:
    """Predictions of an exported model, as ``tf.run`` gives them, after ``check``.

    Nothing is predicted if the mask, positions or weights are wrong, or if the prompt has more examples than ``tf`` was
    compiled for.

    Args:
        tf: what was exported.
        path: where to.
        X: inputs of the examples.
        y: their labels.
        X_query: inputs to predict at.
        model: the loaded model. By default it is loaded here.
        hidden_states: how to call it. By default as it should be called.
        **prompt: other arguments of ``tf.run``: ``w0``, ``sample_weight``, ``seed``.

    Examples:
        >>> import innergrad as ig, torch
        >>> from innergrad.export import export_llama, predict
        >>> X = torch.linspace(-1, 1, 4).view(-1, 1)
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama", n_examples=4)
        >>> found = predict(tf, export_llama(tf, "exported"), X, X, X)
        >>> bool((found - tf.run(X, X, X).predictions).abs().max() < 1e-4)
        True
    """
    path = Path(path)
    loaded = _load(path, model)
    ours = json.loads(json.dumps({"kind": tf.algorithm.kind, **tf.algorithm.config()}))
    if loaded.note["algorithm"] != ours:
        raise InputError(f"{path} is not an export of this transformer", got=f"one of {loaded.note['algorithm']}")
    made = tf.prompt(X, y, X_query, **prompt)
    _checked(path, loaded, hidden_states)
    stream = tf.program.stream.pack(made.state(tf.program))
    inputs: Any = stream.float().numpy()
    if loaded.stock:
        given = llama_inputs(tf, stream, loaded.model) if "family" in loaded.note else None
        inputs = (given or gpt2_inputs(tf, stream, loaded.model.dtype))["inputs_embeds"].to(loaded.model.device)
    hidden = _hidden(hidden_states or loaded.right, loaded.model, inputs)
    found = made.like_y(read_predictions(hidden, loaded.note["read"], made.X_query.shape[1]))
    return found if made.batched else found[0]


def _checked(path: Path, loaded: _Loaded, hidden_states: Call | None) -> float:
    model, note = loaded.model, loaded.note
    example, llama = note.get("example"), "family" in note
    if example is None:
        raise InputError(f"{path} has no prompt to try it on", hint="export it again")
    if llama and model.dtype == torch.float64 and model.config._attn_implementation == "eager":
        raise JobError(f"{path}: {EAGER}")
    if loaded.stock:
        _require_weights(path, model, note)
    inputs = _inputs(note, model)
    expected, found = _expected(example), _held(hidden_states or loaded.right, model, inputs, note)
    error, allowed = float((found - expected).abs().max()), example["tolerance"]
    if error <= allowed:
        return error
    why = _configured(model, note) or OTHERS
    if loaded.causal is not None:
        masked = _held(loaded.causal, model, inputs, note)
        if float((found - masked).abs().max()) <= max(0.1 * error, allowed):
            why = CAUSAL if llama and note["attention_mask"] is None else NO_MASK
    raise JobError(
        f"{path}: predictions, or the weights it learned, are off by {error:.1e} (at most {allowed:.1e}); {why}"
    )


def _require_weights(path: Path, model: Any, note: dict[str, Any]) -> None:
    """The weights must be those that were exported, bit for bit, unless they were converted to another dtype."""
    if str(model.dtype).removeprefix("torch.") != note.get("dtype") or "weights" not in note:
        return
    found, names = fingerprints(model.state_dict()), note.get("blocks", ())
    wrong = [block for block, digest in note["weights"].items() if found.get(block) != digest]
    if wrong:
        number = wrong[0].partition(".")[2]
        does = f" ({names[int(number)]})" if number and names else ""
        more = f", and of {len(wrong) - 1} others," if len(wrong) > 1 else ""
        first = f"{wrong[0]}{does}" if number else "everything outside of blocks"
        raise JobError(f"{path}: the weights of {first}{more} are not those that were exported")


def _configured(model: Any, note: dict[str, Any]) -> str | None:
    """Mistakes in the configuration of a Llama, or its dtype."""
    if "family" not in note:
        return None
    rope, dtype = model.config.rope_parameters, str(model.dtype).removeprefix("torch.")
    if rope.get("factor", 1.0) < UNTURNED:
        return TURNED
    return f"it is in {dtype}, and was exported in {note['dtype']}" if dtype != note["dtype"] else None


# ------------------------------------------------------------------------------------------- what it says, and how


def _expected(example: dict[str, Any]) -> Tensor:
    parts = (example["predictions"], example["held"])
    return torch.cat([torch.tensor(part, dtype=torch.float64).flatten() for part in parts])


def _hidden(call: Call, model: Any, inputs: Any) -> Tensor:
    with torch.no_grad():
        hidden = call(model, inputs)
    shape = tuple(inputs.shape)
    if not isinstance(hidden, Tensor | np.ndarray) or tuple(hidden.shape) != shape:
        got = tuple(hidden.shape) if isinstance(hidden, Tensor | np.ndarray) else type(hidden).__name__
        raise InputError("these are not the model's last hidden states", got=got, allowed=f"an array {shape}")
    return torch.as_tensor(hidden).double().cpu()


def _held(call: Call, model: Any, inputs: Any, note: dict[str, Any]) -> Tensor:
    """Predictions, and the values of all tokens in the places of weights and predictions, flat."""
    example, read, hidden = note["example"], note["read"], _hidden(call, model, inputs)
    predictions = read_predictions(hidden, read, example["n_query"])
    stream = hidden if read["zero"] is None else hidden - hidden[..., read["zero"], None]
    held = stream[0][:, example["places"]]
    if "lows" in example:
        held = held + stream[0][:, example["lows"]]
    return torch.cat([predictions.flatten(), held.flatten()])


def _inputs(note: dict[str, Any], model: Any) -> Any:
    """The prompt of the note, as this model takes it."""
    example, config = note["example"], getattr(model, "config", None)
    width = sum(int(np.prod(lane["shape"])) for lane in note["layout"]) if config is None else config.hidden_size
    inputs = torch.zeros(1, example["tokens"], width, dtype=torch.float64)
    for token, entry, value in example["entries"]:
        inputs[0, token, entry] = value
    return inputs.float().numpy() if config is None else inputs.to(model.device, model.dtype)


def _load(path: Path, model: Any) -> _Loaded:
    return _onnx(path, model) if path.suffix == ".onnx" else _hugging_face(path, model)


def _hugging_face(folder: Path, model: Any) -> _Loaded:
    if not (folder / NOTE).is_file():
        hint = "write one with export_gpt2 or export_llama"
        raise InputError(f"{folder} is no export of innergrad's", got=f"no {NOTE}", hint=hint)
    note = json.loads(read_text(folder / NOTE))
    if model is None:
        require_packages("checking a folder", "transformers", hint=NEEDED)
        from transformers import AutoModel

        model = AutoModel.from_pretrained(folder)
    needed = note["attention_mask"] is not None

    def right(model: Any, inputs: Tensor) -> Tensor:
        (batch, tokens, _), extra = inputs.shape, {}
        if needed:
            extra = {"attention_mask": inputs.new_zeros(batch, 1, tokens, tokens)}
        found: Tensor = model(inputs_embeds=inputs, **extra).last_hidden_state
        return found

    def causal(model: Any, inputs: Tensor) -> Tensor:
        batch, tokens, _ = inputs.shape
        later = inputs.new_full((tokens, tokens), torch.finfo(inputs.dtype).min).triu(1)
        mask = later.expand(batch, 1, tokens, tokens)
        found: Tensor = model(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
        return found

    return _Loaded(model, note, right, causal if needed or "family" in note else None)


def _onnx(path: Path, session: Any) -> _Loaded:
    if session is None:
        require_packages("checking a file", "onnxruntime", hint="pip install onnxruntime")
        import onnxruntime

        if not path.is_file():
            raise InputError(f"{path} is not there", allowed="a file of export_onnx")
        session = onnxruntime.InferenceSession(str(path))
    text = session.get_modelmeta().custom_metadata_map.get("innergrad")
    if text is None:
        raise InputError(f"{path} is no export of innergrad's", hint="write one with export_onnx")

    def right(session: Any, stream: Any) -> Any:
        return session.run(None, {"stream": stream})[0]

    return _Loaded(session, json.loads(text), right, None)
