"""Does an exported model, called as its user calls it, predict what it should?

check("out/gpt2")                              the folder, called as it should be
check("out/gpt2", hidden_states=mine)          mine(model, inputs_embeds): the user's own way to call it
check("out/llama")                             likewise
check("out/model.onnx")                        mine(session, stream), likewise
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError, JobError
from innergrad.export.folder import NOTE
from innergrad.export.llama import UNTURNED
from innergrad.files import read_text
from innergrad.model.prompt import read_predictions

Call = Callable[[Any, Any], Any]  # a model, its input -> hidden states
NO_MASK = (
    "it was called without the 4-D attention mask of zeros, (batch, 1, tokens, tokens), so GPT-2 hid later tokens; "
    "give attention_mask=inputs_embeds.new_zeros(batch, 1, tokens, tokens)"
)
CAUSAL = (
    "it hid later tokens; give no attention_mask, and leave is_causal=False in its configuration, or give "
    "attention_mask=inputs_embeds.new_zeros(batch, 1, tokens, tokens)"
)
TURNED = (
    "rotary positions are on; leave rope_parameters of its configuration as they are, or give position_ids of zeros"
)


def check(path: str | Path, model: Any = None, hidden_states: Call | None = None) -> float:
    """The largest error of predictions and learned weights on the prompt that the export carries; a :class:`JobError`
    if it is more than it may be, which says so if it is a missing attention mask.

    path: a folder of ``export_gpt2`` or ``export_llama``, or a file of ``export_onnx``. model: what was loaded from it,
    by default loaded here. hidden_states: how it is called, by default as it should be.
    """
    path = Path(path)
    model, note, right, wrong = _onnx(path, model) if path.suffix == ".onnx" else _hugging_face(path, model)
    example = note.get("example")
    if example is None:
        raise InputError(f"{path} has no prompt to try it on", hint="export it again")
    inputs = _inputs(note, model)
    expected, found = _expected(example), _held(hidden_states or right, model, inputs, note)
    error, allowed = float((found - expected).abs().max()), example["tolerance"]
    if error <= allowed:
        return error
    why = _configured(model) or "the weights, or the way it is called, are not those that were exported"
    if wrong is not None:
        masked = _held(wrong, model, inputs, note)
        if float((found - masked).abs().max()) <= max(0.1 * error, allowed):
            why = CAUSAL if "family" in note else NO_MASK
    raise JobError(
        f"{path}: predictions, or the weights it learned, are off by {error:.1e} (at most {allowed:.1e}); {why}"
    )


def _expected(example: dict[str, Any]) -> Tensor:
    parts = (example["predictions"], example["held"])
    return torch.cat([torch.tensor(part, dtype=torch.float64).flatten() for part in parts])


def _held(call: Call, model: Any, inputs: Any, note: dict[str, Any]) -> Tensor:
    """Predictions, and what all tokens hold in the places of weights and predictions, flat."""
    example, read = note["example"], note["read"]
    with torch.no_grad():
        hidden = call(model, inputs)
    shape = (1, example["tokens"], inputs.shape[-1])
    if not isinstance(hidden, Tensor | np.ndarray) or tuple(hidden.shape) != shape:
        got = tuple(hidden.shape) if isinstance(hidden, Tensor | np.ndarray) else type(hidden).__name__
        raise InputError("these are not the model's last hidden states", got=got, allowed=f"an array {shape}")
    hidden = torch.as_tensor(hidden).double()
    predictions = read_predictions(hidden, read, example["n_query"])
    stream = hidden if read["zero"] is None else hidden - hidden[..., read["zero"], None]
    return torch.cat([predictions.flatten(), stream[0][:, example["places"]].flatten()])


def _inputs(note: dict[str, Any], model: Any) -> Any:
    """The prompt of the note, as this model takes it."""
    example, config = note["example"], getattr(model, "config", None)
    width = sum(int(np.prod(lane["shape"])) for lane in note["layout"]) if config is None else config.hidden_size
    inputs = torch.zeros(1, example["tokens"], width, dtype=torch.float64)
    for token, entry, value in example["entries"]:
        inputs[0, token, entry] = value
    return inputs.float().numpy() if config is None else inputs.to(model.device, model.dtype)


def _configured(model: Any) -> str | None:
    """What is wrong with the configuration of a Llama."""
    rope = getattr(getattr(model, "config", None), "rope_parameters", None)
    return TURNED if rope and rope.get("factor", 1.0) < UNTURNED else None


def _hugging_face(folder: Path, model: Any) -> tuple[Any, dict[str, Any], Call, Call | None]:
    if not (folder / NOTE).is_file():
        hint = "write one with export_gpt2 or export_llama"
        raise InputError(f"{folder} is no export of innergrad's", got=f"no {NOTE}", hint=hint)
    note = json.loads(read_text(folder / NOTE))
    if model is None:
        from transformers import AutoModel

        model = AutoModel.from_pretrained(folder)
    needed, llama = note["attention_mask"] is not None, "family" in note

    def right(model: Any, inputs: Tensor) -> Tensor:
        (batch, tokens, _), extra = inputs.shape, {}
        if needed:
            extra = {"attention_mask": inputs.new_zeros(batch, 1, tokens, tokens)}
        found: Tensor = model(inputs_embeds=inputs, **extra).last_hidden_state
        return found

    def wrong(model: Any, inputs: Tensor) -> Tensor:
        (batch, tokens, _), extra = inputs.shape, {}
        if llama:
            later = inputs.new_full((tokens, tokens), torch.finfo(inputs.dtype).min).triu(1)
            extra = {"attention_mask": later.expand(batch, 1, tokens, tokens)}
        found: Tensor = model(inputs_embeds=inputs, **extra).last_hidden_state
        return found

    return model, note, right, wrong if needed or llama else None


def _onnx(path: Path, session: Any) -> tuple[Any, dict[str, Any], Call, None]:
    if session is None:
        import onnxruntime

        if not path.is_file():
            raise InputError(f"{path} is not there", allowed="a file of export_onnx")
        session = onnxruntime.InferenceSession(str(path))
    text = session.get_modelmeta().custom_metadata_map.get("innergrad")
    if text is None:
        raise InputError(f"{path} is no export of innergrad's", hint="write one with export_onnx")
    return session, json.loads(text), lambda session, stream: session.run(None, {"stream": stream})[0], None
