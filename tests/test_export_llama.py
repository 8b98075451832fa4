"""Gradient descent in stock classes of Hugging Face's: Llama, Mistral, Qwen2."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, LlamaModel, MistralModel, Qwen2Model

import innergrad as ig
from innergrad.errors import JobError
from innergrad.export import check, export_llama, llama, llama_sizes, to_llama
from innergrad.model.prompt import flat_weights
from test_export import innergrad

CLASSES = {"llama": LlamaModel, "mistral": MistralModel, "qwen2": Qwen2Model}


def compiled(sizes: list[int], steps: int = 5, **settings: Any) -> ig.CompiledTransformer:
    algorithm = ig.GradientDescent(ig.Network(sizes), lr=0.5, steps=steps, box=None, **settings)
    return ig.compile(algorithm, target="llama")


def data(tf: ig.CompiledTransformer, seed: int = 1, n: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    return tf.algorithm.random_prompt(n, 2, torch.Generator().manual_seed(seed))


def errors(tf: ig.CompiledTransformer, hidden: Tensor, *prompt: Tensor) -> tuple[float, float]:
    """Of the weights that every token learned, and of the predictions."""
    reference, lanes = ig.reference(tf.algorithm, *prompt), tf.program.stream.unpack(hidden.double())
    learned = [flat_weights(tf.program, lanes, token)[0] for token in range(hidden.shape[1])]
    off = max(float((w - reference.weights[-1]).abs().max()) for w in learned)
    return off, float((tf.predictions(hidden, 2)[0].double() - reference.predictions).abs().max())


def own_error(tf: ig.CompiledTransformer, *prompt: Tensor) -> tuple[float, float]:
    """Of autograd in float32."""
    X, y, X_query = (part.float()[None] for part in prompt)
    exact = ig.reference(tf.algorithm, *prompt)
    omega = torch.full(X.shape[:2], 1 / X.shape[1])
    found = tf.algorithm.reference(X, y, X_query, exact.weights[:1].float(), omega)
    assert found is not None
    weights, predictions = found
    return (
        float((weights[0, -1] - exact.weights[-1]).abs().max()),
        float((predictions[0] - exact.predictions).abs().max()),
    )


@pytest.mark.parametrize("sizes", [[2, 1], [2, 4, 1], [2, 4, 4, 1]])
def test_a_stock_llama_trains_a_network_in_its_forward_pass(sizes: list[int]) -> None:
    """sdpa attention, a 4-D mask of zeros, positions 0; float32, near torch's own error."""
    tf = compiled(sizes)
    model, prompt = to_llama(tf), data(tf)
    assert type(model) is LlamaModel
    assert model.config._attn_implementation == "sdpa"
    assert model.config.num_hidden_layers == tf.cost().blocks + tf.cost().readout_blocks
    stream = tf.stream(*prompt, dtype=torch.float32)
    tokens = stream.shape[1]
    with torch.no_grad():
        given = {"attention_mask": stream.new_zeros(1, 1, tokens, tokens)}
        given |= {"position_ids": torch.zeros(1, tokens, dtype=torch.long)}
        hidden = model(inputs_embeds=stream, **given).last_hidden_state
        plainly = model(inputs_embeds=stream).last_hidden_state
    assert torch.equal(hidden, plainly)  # the configuration makes both superfluous
    for found, own in zip(errors(tf, hidden, *prompt), own_error(tf, *prompt), strict=True):
        assert found <= 4 * max(own, 6e-8)


@pytest.mark.parametrize("family", CLASSES)
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_folders_are_loaded_by_auto_model(family: str, loss: str, tmp_path: Path) -> None:
    tf = compiled([2, 3, 2], steps=3, loss=loss)
    export_llama(tf, tmp_path, family=family)
    model, prompt = AutoModel.from_pretrained(tmp_path), data(tf)
    assert type(model) is CLASSES[family]
    with torch.no_grad():
        hidden = model(inputs_embeds=tf.stream(*prompt, dtype=torch.float32)).last_hidden_state
    assert max(errors(tf, hidden, *prompt)) < 1e-6
    assert check(tmp_path) < 1e-6


def test_the_check_says_what_is_wrong(tmp_path: Path) -> None:
    tf = compiled([2, 3, 1], steps=2)
    export_llama(tf, tmp_path)

    def causal(model: Any, inputs: Tensor) -> Tensor:
        tokens = inputs.shape[1]
        mask = torch.full((1, 1, tokens, tokens), torch.finfo(torch.float32).min).triu(1)
        return model(inputs_embeds=inputs, attention_mask=mask).last_hidden_state

    with pytest.raises(JobError, match="it hid later tokens; give no attention_mask"):
        check(tmp_path, hidden_states=causal)
    model = AutoModel.from_pretrained(tmp_path, is_causal=True)
    with pytest.raises(JobError, match="it hid later tokens"):
        check(tmp_path, model)
    turned = AutoModel.from_pretrained(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    with pytest.raises(JobError, match="rotary positions are on"):
        check(tmp_path, turned)
    model = AutoModel.from_pretrained(tmp_path)
    model.layers[1].mlp.down_proj.weight.data *= 1.01
    with pytest.raises(JobError, match="not those that were exported"):
        check(tmp_path, model)


def test_the_example_runs_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export_llama(compiled([2, 3, 1], steps=2), tmp_path)
    runpy.run_path(str(tmp_path / "example.py"), run_name="__main__")
    assert "they, and the weights learned, are off by" in capsys.readouterr().out
    assert "LlamaModel" in (tmp_path / "README.md").read_text()


def test_equal_blocks_share_their_memory() -> None:
    model = to_llama(compiled([2, 3, 1], steps=10))
    first, again = model.layers[1], model.layers[4]
    assert first.mlp.up_proj.weight.data_ptr() == again.mlp.up_proj.weight.data_ptr()
    assert first.self_attn.q_proj.weight.data_ptr() == again.self_attn.q_proj.weight.data_ptr()


def test_heads_divide_the_width_and_are_powers_of_four() -> None:
    for sizes in ([2, 5, 1], [3, 7, 7, 2], [2, 16, 1]):
        tf = compiled(sizes, momentum=0.9)
        found = llama_sizes(tf)
        assert tf.d_model % found.n_head == 0
        assert found.d_head in (4, 16, 64, 256)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tf = compiled([2, 3, 1], steps=2)
    with pytest.raises(ig.InputError, match="compute in float32, whatever the model's dtype; got float64"):
        to_llama(tf, torch.float64)
    with pytest.raises(ig.InputError, match="unknown family of models; got 'gemma'"):
        to_llama(tf, family="gemma")
    other = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), target="gpt")
    with pytest.raises(ig.InputError, match="only blocks of target llama"):
        to_llama(other)
    steep = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1], "relu"), steps=1, box=None), target="llama")
    with pytest.raises(ig.InputError, match=r"the ramps of relu' are too steep"):
        to_llama(steep)
    monkeypatch.setattr(llama, "LARGEST", 10**4)
    with pytest.raises(ig.InputError, match="the folder would be large"):
        export_llama(tf, tmp_path / "large")
    assert not (tmp_path / "large").exists()
    export_llama(tf, tmp_path / "large", large=True)


def test_export_on_the_command_line(tmp_path: Path) -> None:
    compiled([2, 3, 1], steps=2).save(tmp_path / "model")
    out = tmp_path / "mistral"
    innergrad("export", str(tmp_path / "model"), "--out", str(out), "--family", "mistral", "--quiet")
    assert check(out) < 1e-6
    assert type(AutoModel.from_pretrained(out)) is MistralModel
    _, said = innergrad("export", str(tmp_path / "model"), "--out", str(tmp_path / "x"), "--dtype", "float64", code=2)
    assert "compute in float32" in said
