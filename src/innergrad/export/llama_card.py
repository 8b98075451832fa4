"""What lies beside an exported Llama for its users: README.md, and example.py, which needs nothing of innergrad's."""

from __future__ import annotations

from typing import Any

from innergrad.export.card import reader_source
from innergrad.transformer import CompiledTransformer

_SCRIPT = '''"""Runs the model of this folder on the prompt in innergrad.json. Needs torch and transformers."""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModel


{reader}

def main():
    folder = Path(__file__).parent
    note = json.loads((folder / "innergrad.json").read_text())
    model, example = AutoModel.from_pretrained(folder), note["example"]
    inputs = torch.zeros(1, example["tokens"], model.config.hidden_size, dtype=model.dtype)
    for token, entry, value in example["entries"]:
        inputs[0, token, entry] = value
    with torch.no_grad():
        hidden = model(inputs_embeds=inputs).last_hidden_state
    predictions = read_predictions(hidden, note["read"], example["n_query"])[0]
    held = hidden[0][:, example["places"]]  # what all tokens learned
    pairs = ((predictions, example["predictions"]), (held, example["held"]))
    error = max(float((a.double() - torch.tensor(b, dtype=torch.float64)).abs().max()) for a, b in pairs)
    print(f"predictions {{predictions.flatten().tolist()}}")
    print(f"they, and the weights learned, are off by {{error:.1e}}, allowed: {{example['tolerance']:.1e}}")
    if not error <= example["tolerance"]:
        sys.exit("this is not what the model should learn: is is_causal false in its configuration?")


if __name__ == "__main__":
    main()
'''

_README = """---
library_name: transformers
tags: [innergrad, in-context-learning]
---

# {kind}, as the weights of a {model}

These weights were not trained. They were compiled by innergrad: in one forward pass the model learns from the examples
in its prompt, by the algorithm that `innergrad.json` names, and predicts at the queries. Nothing in it is approximated:
what it differs by from the algorithm is rounding. It is stock: `AutoModel.from_pretrained` loads it. It has no tokens
of text; its input is the residual stream, `inputs_embeds`.

    import innergrad as ig
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder)
    hidden = model(inputs_embeds=tf.stream(X, y, X_query).float()).last_hidden_state
    predictions = tf.predictions(hidden, n_query)

`tf` is the transformer that was exported, or `ig.load` of what it was saved to.

## Call it

- `inputs_embeds` is (batch, tokens, {width}), float32. Its tokens: {tokens}.
  `layout` in `innergrad.json` says what each entry holds.
- Give no attention mask and no positions. Every token sees all tokens: the configuration has `is_causal: false`. Rotary
  positions turn nothing: they are divided by 1e30. **With a causal mask, or with a configuration that lacks either, it
  runs, and what it learns and predicts is wrong without a word.**
- The attention must be `sdpa`, as it is by default, or `eager`. In bfloat16 the model runs, and products, sums and the
  learned weights have 8 bits.

## Read it

The hidden states are the residual stream itself. The predictions are in the lane `{lane}`, entries {first} to {last}
of the last tokens, times {sign:g}: `read_predictions(hidden, note["read"], n_query)`, in `example.py`, and in innergrad
as `innergrad.read_predictions`.

## Check it

`python example.py` runs the model and compares: {tried}.
`innergrad.export.check(folder)` does the same, and `innergrad.export.check(folder, hidden_states=mine)` checks *your*
way to call it, `mine(model, inputs_embeds)`, and finds a causal mask.
"""


def llama_script() -> str:
    """The library's own function reads the predictions: its source is in it."""
    return _SCRIPT.format(reader=reader_source())


def llama_card(tf: CompiledTransformer, note: dict[str, Any], model: str) -> str:
    """README.md."""
    example, where = note["example"], note["read"]["prediction"]
    tried = "there is no prompt to try it on, for no random one is in the domain of this model"
    if example is not None:
        tried = f"predictions and learned weights must be within {example['tolerance']:.1e} of `innergrad.json`'s"
    return _README.format(
        kind=tf.algorithm.kind.replace("_", " ").capitalize(),
        model=model,
        width=tf.d_model,
        tokens=note["tokens"],
        lane=where["lane"],
        first=where["first"],
        last=where["first"] + where["size"] - 1,
        sign=where["sign"],
        tried=tried,
    )
