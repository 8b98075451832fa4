"""The files beside an exported model, for its users: README.md, and example.py, which needs nothing of innergrad's."""

from __future__ import annotations

import inspect
import re
from typing import Any

from innergrad.model.prompt import read_predictions
from innergrad.transformer import CompiledTransformer

CARD, EXAMPLE = "README.md", "example.py"

_SCRIPT = '''"""Runs the model of this folder on the prompt in innergrad.json. Needs torch and transformers."""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModel

FOLDER = Path(__file__).parent
NOTE = json.loads((FOLDER / "innergrad.json").read_text())


{reader}

def arguments(model, example=NOTE["example"]):
    """The arguments of the model: {arguments}"""
    inputs = torch.zeros(1, example["tokens"], model.config.hidden_size, dtype=model.dtype)
    for token, entry, value in example["entries"]:
        inputs[0, token, entry] = value
    given = {{"inputs_embeds": inputs}}{mask}
    return given


def main():
    example = NOTE["example"]
    if example is None:
        sys.exit("innergrad.json has no prompt to try it on")
    model = AutoModel.from_pretrained(FOLDER)
    with torch.no_grad():
        hidden = model(**arguments(model)).last_hidden_state
    predictions = read_predictions(hidden, NOTE["read"], example["n_query"])[0]
    zero = NOTE["read"]["zero"]
    stream = hidden if zero is None else hidden - hidden[..., zero : zero + 1]
    held = stream[0][:, example["places"]]  # the weights of all tokens
    held = held + stream[0][:, example["lows"]] if "lows" in example else held
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

# {kind}, as the weights of a {model}

These weights were not trained. They were compiled by innergrad. In one forward pass the model learns from the examples
in its prompt, and predicts at the queries. `innergrad.json` names the algorithm. {known}
It is a stock model: `AutoModel.from_pretrained` loads it. It has no tokens of text. Its input is the residual stream,
`inputs_embeds`.

```python
from transformers import AutoModel
from example import NOTE, arguments, read_predictions  # example.py of this folder

model = AutoModel.from_pretrained(".")
hidden = model(**arguments(model)).last_hidden_state  # the prompt of innergrad.json
print(read_predictions(hidden, NOTE["read"], NOTE["example"]["n_query"]))
```

## Call it

- `inputs_embeds` is (batch, tokens, {width}), {dtype}. Its tokens: {tokens}.
  `layout` in `innergrad.json` lists the content of every entry. With innergrad, `{inputs}` makes all arguments.
- {mask}
- {more}

## Read it

The predictions are in the lane `{lane}`, entries {first} to {last} of the last tokens, times {sign:g}{shown}.
`read_predictions(hidden, NOTE["read"], n_query)` does that, in `example.py`, and in innergrad as
`innergrad.read_predictions`.

## Check it

`python example.py` runs the model and compares: {tried}.
`innergrad.export.check(folder)` does the same and says what is wrong: the mask, positions, the attention, or the block
whose weights were changed. `innergrad.export.check(folder, hidden_states=mine)` checks *your* way to call it,
`mine(model, inputs_embeds)`. `innergrad.export.predict(tf, folder, X, y, X_query)` checks first, and predicts only if
nothing is wrong.
"""

_ZEROS = """
    given["attention_mask"] = inputs.new_zeros(1, 1, example["tokens"], example["tokens"])"""
_RANGES = "Nothing checks ranges: `ranges` in `innergrad.json` has the lanes that must stay within some."
_ATTENTION = """The attention must be `sdpa`, as it is by default; `eager` takes its softmax in float32, in float64
  models too. In bfloat16 the model runs, and products, sums and the learned weights have 8 bits."""
_NO_MASK = "No token sees a later one, so the model's own causal mask is right: give no `attention_mask`."
_MASK = """**It needs a 4-D attention mask of zeros**, `attention_mask=zeros(batch, 1, tokens, tokens)`, in the dtype of
  the model. Every token sees all tokens; a {model} hides the later ones unless it is given such a mask. Without it, or
  with the usual 2-D mask of ones, it runs, and **its results are wrong without a word**."""
_CONFIGURED = """Give no attention mask. Every token sees all tokens: the configuration has `is_causal: false`. **With a
  causal mask, or without that setting, it runs, and its results are wrong without a word.**"""
_POSITIONS = """Give no positions. Rotary positions turn nothing, for the configuration divides them by 1e30. Without
  that it is wrong, too.
- """
_SHOWN = ", after adding the mean that the last norm\nsubtracted; entry {zero} shows it"


def card_texts(tf: CompiledTransformer, note: dict[str, Any], model: str, width: int, dtype: str) -> dict[str, str]:
    """README.md and example.py. model: the class; width: of its stream. The rest follows from the note."""
    masked, llama = note["attention_mask"] is not None, "family" in note
    hint, mask = "", _NO_MASK
    if masked:
        hint, mask = ": is the 4-D attention mask missing?", _MASK.format(model=model)
    elif llama:
        hint, mask = ": is is_causal false in its configuration?", _CONFIGURED
    example, where, zero = note["example"], note["read"]["prediction"], note["read"]["zero"]
    tried = "there is no prompt to try it on, for no random one is in the domain of this model"
    if example is not None:
        tried = f"predictions and learned weights must be within {example['tolerance']:.1e} of `innergrad.json`'s"
    shown = "" if zero is None else _SHOWN.format(zero=zero)
    shown += f", plus their low digits, from entry {where['low']} on" if "low" in where else ""
    inputs = "llama_inputs(tf, tf.stream(X, y, X_query), model)"
    script = _SCRIPT.format(
        reader=reader_source(),
        arguments="every token sees all." if masked else "no mask is needed.",
        mask=_ZEROS if masked else "",
        hint=hint,
    )
    readme = _README.format(
        kind=tf.algorithm.kind.replace("_", " ").capitalize(),
        model=model,
        known=_known(tf) if llama else "",
        width=width,
        dtype=dtype,
        tokens=note["tokens"],
        inputs=f"innergrad.export.{inputs if llama else 'gpt2_inputs(tf, tf.stream(X, y, X_query), model.dtype)'}",
        mask=mask,
        more=_POSITIONS + _ATTENTION if llama else _RANGES,
        lane=where["lane"],
        first=where["first"],
        last=where["first"] + where["size"] - 1,
        sign=where["sign"],
        shown=shown,
        tried=tried,
    )
    return {CARD: readme, EXAMPLE: script}


def _known(tf: CompiledTransformer) -> str:
    """The functions of target llama that are approximated."""
    fitted = ", ".join(name for name, known in tf.standings.items() if known.state == "measured")
    if fitted:
        return f"Fitted, to {tf.options.epsilon:g} on a grid: {fitted}. Everything else is exact up to rounding."
    return "Nothing in it is approximated: it differs from the algorithm by rounding alone."


def reader_source() -> str:
    """Of the function that reads predictions off hidden states: the library's own."""
    source = re.sub(r"\n\n    Examples:.*?(?=\n    \"\"\")", "", inspect.getsource(read_predictions), flags=re.DOTALL)
    return source.replace("(hidden: Any, read: Any, n_query: int) -> Any:", "(hidden, read, n_query):")
