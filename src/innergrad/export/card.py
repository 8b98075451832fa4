"""What lies beside an exported GPT-2 for its users: README.md, and example.py, which needs nothing of innergrad's."""

from __future__ import annotations

import inspect
from typing import Any

from innergrad.model.prompt import read_predictions
from innergrad.transformer import CompiledTransformer

CARD, EXAMPLE = "README.md", "example.py"

_CAUSAL = '''def hidden_states(model, inputs_embeds):
    """No token sees a later one, as in GPT-2 itself: no mask is needed."""
    return model(inputs_embeds=inputs_embeds).last_hidden_state
'''

_MASKED = '''def hidden_states(model, inputs_embeds):
    """Every token sees all. Without this mask GPT-2 hides later ones, and predictions are wrong without a word."""
    batch, tokens, _ = inputs_embeds.shape
    mask = inputs_embeds.new_zeros(batch, 1, tokens, tokens)
    return model(inputs_embeds=inputs_embeds, attention_mask=mask).last_hidden_state
'''

_SCRIPT = '''"""Runs the model of this folder on the prompt in innergrad.json. Needs torch and transformers."""

import json
import sys
from pathlib import Path

import torch
from transformers import GPT2Model


{reader}

{caller}

def main():
    folder = Path(__file__).parent
    note = json.loads((folder / "innergrad.json").read_text())
    model, example = GPT2Model.from_pretrained(folder), note["example"]
    inputs = torch.zeros(1, example["tokens"], model.config.n_embd, dtype=model.dtype)
    for token, entry, value in example["entries"]:
        inputs[0, token, entry] = value
    with torch.no_grad():
        hidden = hidden_states(model, inputs)
    predictions = read_predictions(hidden, note["read"], example["n_query"])[0]
    zero = note["read"]["zero"]
    held = (hidden - hidden[..., zero : zero + 1])[0][:, example["places"]]  # what all tokens learned
    pairs = ((predictions, example["predictions"]), (held, example["held"]))
    error = max(float((a.double() - torch.tensor(b, dtype=torch.float64)).abs().max()) for a, b in pairs)
    print(f"predictions {{predictions.flatten().tolist()}}")
    print(f"they, and the weights learned, are off by {{error:.1e}}, allowed: {{example['tolerance']:.1e}}")
    if not error <= example["tolerance"]:
        sys.exit("this is not what the model should learn{hint}")


if __name__ == "__main__":
    main()
'''

_README = """---
library_name: transformers
tags: [innergrad, in-context-learning]
---

# {kind}, as the weights of a GPT-2

These weights were not trained. They were compiled by innergrad: in one forward pass the model learns from the examples
in its prompt, by the algorithm that `innergrad.json` names, and predicts at the queries. It is stock:
`GPT2Model.from_pretrained` loads it. It has no tokens of text; its input is the residual stream, `inputs_embeds`.

## Call it

- `inputs_embeds` is (batch, tokens, n_embd), {dtype}. Its tokens: {tokens}.
  `layout` in `innergrad.json` says what each entry holds. With innergrad,
  `innergrad.export.gpt2_inputs(tf, tf.stream(X, y, X_query))` makes all arguments.
- {mask}
- Nothing checks ranges: `ranges` in `innergrad.json` has the lanes that must stay within some.

## Read it

The predictions are in the lane `{lane}`, entries {first} to {last} of the last tokens, times {sign:g}, after adding
what the last LayerNorm subtracted, which entry {zero} shows. One function does that:
`read_predictions(hidden, note["read"], n_query)`, in `example.py`, and in innergrad as `innergrad.read_predictions`.

## Check it

`python example.py` runs the model and compares: {tried}.
`innergrad.export.check(folder)` does the same, and `innergrad.export.check(folder, hidden_states=mine)` checks *your*
way to call it, `mine(model, inputs_embeds)`, and finds a mask that is missing.
"""

_NO_MASK = "No token sees a later one, so GPT-2's own causal mask is right: give no `attention_mask`."
_MASK = """**It needs a 4-D attention mask of zeros**, `attention_mask=zeros(batch, 1, tokens, tokens)`, in the dtype of
  the model. Every token sees all tokens; GPT-2 hides the later ones unless it is given such a mask. Without it, or with
  the usual 2-D mask of ones, it runs, and **what it learns and predicts is wrong without a word**."""


def example_script(causal: bool) -> str:
    """The library's own function reads the predictions: its source is in it."""
    reader = reader_source()
    hint = "" if causal else ": is the 4-D attention mask missing?"
    return _SCRIPT.format(reader=reader, caller=_CAUSAL if causal else _MASKED, hint=hint)


def reader_source() -> str:
    """Of the function that reads predictions off hidden states."""
    source = inspect.getsource(read_predictions)
    return source.replace("(hidden: Any, read: Any, n_query: int) -> Any:", "(hidden, read, n_query):")


def card(tf: CompiledTransformer, note: dict[str, Any], dtype: str) -> str:
    """README.md."""
    read, example, where = note["read"], note["example"], note["read"]["prediction"]
    tried = "there is no prompt to try it on, for no random one is in the domain of this model"
    if example is not None:
        tried = f"predictions and learned weights must be within {example['tolerance']:.1e} of `innergrad.json`'s"
    return _README.format(
        kind=tf.algorithm.kind.replace("_", " ").capitalize(),
        dtype=dtype,
        tokens=note["tokens"],
        mask=_NO_MASK if tf.program.causal else _MASK,
        lane=where["lane"],
        first=where["first"],
        last=where["first"] + where["size"] - 1,
        sign=where["sign"],
        zero=read["zero"],
        tried=tried,
    )
