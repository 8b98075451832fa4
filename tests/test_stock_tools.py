"""Other people's tools of interpretability on exported models: TransformerLens's bridge and nnsight.

Both run the stock class of Hugging Face's, and what they cache is the residual stream: every lane in it is, after every
layer, the one of ``tf.trace``. Skipped where the packages are not installed (``pip install
'innergrad[interpretability]'``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.export import export_gpt2, export_llama, gpt2_inputs, llama_inputs
from innergrad.export.gpt2 import blocks_of
from innergrad.export.llama_weights import llama_blocks

WITHIN = 1e-5
PADS = ("pad", "spare", "pad_up", "pad_down")  # of norms: up to 2^40, and no part of the algorithm
X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PROMPT = X, torch.sin(X.sum(1, keepdim=True)), X[:2] + 0.1


@pytest.fixture(scope="module", params=["llama", "gpt"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """A transformer, how its model is loaded (a tool may change it), its inputs and its blocks. A GPT-2 in float64: in
    float32 its sums of GeLUs are off by more than 1e-5.
    """
    transformers = pytest.importorskip("transformers")
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), lr=0.2, steps=2, box=None)
    folder = tmp_path_factory.mktemp("exported") / "model"
    if request.param == "llama":
        tf = ig.compile(algorithm, target="llama", n_examples=6)
        load = partial(transformers.LlamaForCausalLM.from_pretrained, export_llama(tf, folder))
        return tf, load, llama_inputs(tf, tf.stream(*PROMPT), load().base_model), llama_blocks(tf)
    tf = ig.compile(algorithm, target="gpt", epsilon=1e-6, n_examples=6)
    exported = export_gpt2(tf, folder, torch.float64)
    load = partial(transformers.GPT2LMHeadModel.from_pretrained, exported, dtype=torch.float64)
    return tf, load, gpt2_inputs(tf, tf.stream(*PROMPT), torch.float64), blocks_of(tf)


def places(blocks: list[tuple[Any, Any]]) -> Iterator[tuple[int, str]]:
    """Where the stream is after every layer of the program: in the middle of a block, or at its end."""
    for i, (attention, mlp) in enumerate(blocks):
        yield from [(i, "mid")] * (attention is not None) + [(i, "post")] * (mlp is not None)


def compare(
    tf: ig.CompiledTransformer, blocks: list[tuple[Any, Any]], cached: Mapping[tuple[int, str], Tensor]
) -> None:
    trace, seen = tf.trace(*PROMPT)[1:], list(places(blocks))
    assert len(trace) == len(seen) > 5
    moved = 0.0
    for (name, lanes), place in zip(trace, seen, strict=True):
        found = tf.program.stream.unpack(cached[place][..., : tf.d_model].detach().double())
        for lane in (lane for lane in lanes if lane not in PADS):
            expected = lanes[lane].double()
            assert float((found[lane] - expected).abs().max()) <= WITHIN, f"{lane} after {name}"
            moved = max(moved, float(expected.abs().max()))
    assert moved > 0.5  # it is not nothing that was compared
    assert float((found["V1"] - tf.trace(*PROMPT)[0][1]["V1"]).abs().max()) > 1e-2  # and it has learned


def test_transformer_lens_reads_every_lane(exported: tuple[Any, ...]) -> None:
    sources = pytest.importorskip("transformer_lens.model_bridge.sources")
    tf, load, inputs, blocks = exported
    model = load()
    bridge = sources.build_bridge_from_module(model, type(model).__name__, hf_config=model.config)
    stream = inputs["inputs_embeds"]
    everything = stream.new_zeros(1, 1, stream.shape[1], stream.shape[1])
    with torch.no_grad():
        _, cache = bridge.run_with_cache(stream, attention_mask=everything)
    compare(tf, blocks, {(i, at): cache[f"blocks.{i}.hook_resid_{at}"] for i, at in places(blocks)})
    if tf.options.target == "llama":  # without the mask, the bridge hides later tokens
        with torch.no_grad():
            _, hidden = bridge.run_with_cache(stream)
        last = f"blocks.{len(blocks) - 1}.hook_resid_post"
        assert float((hidden[last] - cache[last]).abs().max()) > 1e-2


def test_nnsight_reads_every_lane(exported: tuple[Any, ...]) -> None:
    nnsight = pytest.importorskip("nnsight")
    tf, load, inputs, blocks = exported
    stock = nnsight.NNsight(load().base_model)
    middle = "post_attention_layernorm" if tf.options.target == "llama" else "ln_2"
    with torch.no_grad(), stock.trace(**inputs):
        saved = []
        for block in stock.layers if tf.options.target == "llama" else stock.h:
            saved.append((getattr(block, middle).input.save(), block.output.save()))
        nnsight.save(saved)
    ends = {(i, at): part for i, pair in enumerate(saved) for at, part in zip(("mid", "post"), pair, strict=True)}
    compare(tf, blocks, {place: part[0] if isinstance(part, tuple) else part for place, part in ends.items()})
