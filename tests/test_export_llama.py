"""Gradient descent in stock classes of Hugging Face's: Llama, Mistral, Qwen, Gemma, StableLM, SmolLM."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, LlamaModel, MistralModel

import innergrad as ig
from innergrad.errors import JobError
from innergrad.export import check, export_llama, folder, llama_inputs, llama_sizes, llama_stream, predict, to_llama
from innergrad.export.families import FAMILIES
from innergrad.functions.fits.sums import FeatureSum
from innergrad.model.prompt import flat_weights
from test_export import innergrad

SINGLE, DOUBLE = torch.float32, torch.float64


def compiled(sizes: list[int], steps: int = 5, variant: str = "chain", **settings: Any) -> ig.CompiledTransformer:
    algorithm = ig.GradientDescent(ig.Network(sizes), lr=0.5, steps=steps, box=None, **settings)
    return ig.compile(algorithm, target="llama", variant=variant)


def data(tf: ig.CompiledTransformer, seed: int = 1, n: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    return tf.algorithm.random_prompt(n, 2, torch.Generator().manual_seed(seed))


def errors(tf: ig.CompiledTransformer, stream: Tensor, *prompt: Tensor) -> tuple[float, float]:
    """Of the weights that every token learned, and of the predictions."""
    reference, lanes = ig.reference(tf.algorithm, *prompt), tf.program.stream.unpack(stream.double())
    learned = [flat_weights(tf.program, lanes, token)[0] for token in range(stream.shape[1])]
    off = max(float((w - reference.weights[-1]).abs().max()) for w in learned)
    return off, float((tf.predictions(stream, 2)[0].double() - reference.predictions).abs().max())


def run(tf: ig.CompiledTransformer, model: Any, *prompt: Tensor) -> tuple[float, float]:
    with torch.no_grad():
        hidden = model(**llama_inputs(tf, tf.stream(*prompt), model)).last_hidden_state
    return errors(tf, llama_stream(tf, hidden, model), *prompt)


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


@pytest.mark.parametrize(
    ("sizes", "variant"),
    [
        ([2, 1], "chain"),
        ([2, 4, 1], "chain"),
        ([2, 4, 4, 1], "chain"),
        ([2, 4, 4, 1], "widest"),
        ([2, 4, 1], "shortest"),
        ([2, 4, 4, 1], "shortest"),
    ],
)
def test_a_stock_llama_trains_a_network_in_its_forward_pass(sizes: list[int], variant: str) -> None:
    """sdpa attention, a 4-D mask of zeros, positions 0; float32, near torch's own error."""
    tf = compiled(sizes, variant=variant)
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


def test_fits_are_exported_too(tmp_path: Path) -> None:
    """gelu by silu units: off by epsilon and float32's rounding, and the card says what is fitted."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], "gelu"), lr=0.2, steps=2, box=None)
    tf = ig.compile(algorithm, target="llama", epsilon=1e-5)
    assert max(run(tf, to_llama(tf), *data(tf))) < 2e-5
    export_llama(tf, tmp_path)
    assert "Fitted, to 1e-05 on a grid: gelu, gelu'" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_a_network(family: str, tmp_path: Path) -> None:
    """2,4,4,1, 5 steps, in the class itself, loaded by AutoModel: near torch's own error in float32."""
    tf = compiled([2, 4, 4, 1])
    export_llama(tf, tmp_path, family=family)
    model, prompt = AutoModel.from_pretrained(tmp_path), data(tf)
    assert type(model) is getattr(transformers, FAMILIES[family].model)
    for found, own in zip(run(tf, model, *prompt), own_error(tf, *prompt), strict=True):
        assert found <= 4 * max(own, 6e-8)
    assert check(tmp_path, model) < 1e-6
    weights, _ = run(tf, to_llama(tf, torch.bfloat16, family), *prompt)
    assert 1e-4 < weights < 0.03  # 8 bits


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_every_family_has_the_other_losses(family: str, loss: str) -> None:
    tf = compiled([2, 3, 2], steps=3, loss=loss)
    assert max(run(tf, to_llama(tf, family=family), *data(tf))) < 1e-6


def test_stablelm_computes_in_float64(tmp_path: Path) -> None:
    """Its LayerNorm does, so the model is exact to 1e-14; and in float16 its pads are finite."""
    tf = compiled([2, 4, 4, 1], steps=20)
    export_llama(tf, tmp_path, DOUBLE, family="stablelm")
    model, prompt = AutoModel.from_pretrained(tmp_path), data(tf)
    assert model.dtype == DOUBLE
    assert max(run(tf, model, *prompt)) < 1e-14
    assert check(tmp_path, model) < 1e-14
    assert run(tf, to_llama(tf, torch.float16, "stablelm"), *prompt)[0] < 0.01
    eager = AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
    assert run(tf, eager, *prompt)[0] > 1e-10
    with pytest.raises(JobError, match="eager attention takes its softmax in float32"):
        check(tmp_path, eager)


@pytest.mark.parametrize("family", ["mistral", "gemma", "smollm3"])
def test_double_in_every_family(family: str, tmp_path: Path) -> None:
    """Compiled with double=True: a float64 model, exact to rounding. Qwen3 casts queries and keys, too."""
    algorithm = ig.GradientDescent(ig.Network([2, 4, 4, 1]), lr=0.5, steps=3, box=None)
    tf = ig.compile(algorithm, target="llama", double=True)
    export_llama(tf, tmp_path, DOUBLE, family=family)
    assert check(tmp_path) < 1e-13
    prompt = data(tf)
    assert float((predict(tf, tmp_path, *prompt) - ig.reference(algorithm, *prompt).predictions).abs().max()) < 1e-13
    with pytest.raises(ig.InputError, match="a Qwen3Model casts queries and keys to float32"):
        to_llama(tf, DOUBLE, "qwen3")


def test_boxes_and_kinks_of_every_family() -> None:
    """relu(t) = gelu(2^60 t) / 2^60, too: a box that binds."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), lr=4.0, steps=3, box=1.5625)
    tf = ig.compile(algorithm, target="llama")
    assert float(ig.reference(algorithm, *data(tf)).weights[-1].abs().max()) == 1.5625
    for family in ("llama", "gemma", "stablelm"):
        for found, own in zip(run(tf, to_llama(tf, family=family), *data(tf)), own_error(tf, *data(tf)), strict=True):
            assert found <= 4 * own


# ------------------------------------------------------------------------------------------------ heads and their sizes


@pytest.mark.parametrize("family", ["llama", "qwen3", "stablelm"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries(family: str, kv_heads: int) -> None:
    """The neurons of a layer share keys and values: 4 query heads to one, or to two."""
    tf = compiled([2, 4, 4, 1])
    sizes, prompt = llama_sizes(tf, family, kv_heads), data(tf)
    assert (sizes.n_kv, sizes.n_head) == (kv_heads, 4)
    model = to_llama(tf, family=family, kv_heads=kv_heads)
    assert model.config.num_key_value_heads == kv_heads
    assert model.layers[0].self_attn.k_proj.weight.shape[0] == kv_heads * sizes.d_head
    for found, own in zip(run(tf, model, *prompt), own_error(tf, *prompt), strict=True):
        assert found <= 4 * max(own, 6e-8)


def test_heads_have_the_fewest_parameters() -> None:
    tf = compiled([2, 4, 4, 1])
    for family in FAMILIES:
        least, others = llama_sizes(tf, family), [llama_sizes(tf, family, kv) for kv in (1, 2, 4)]
        assert least.n_parameters <= min(other.n_parameters for other in others)
    many = compiled([2, 40, 40, 1], steps=1)  # 1,761 numbers are averaged
    with pytest.raises(ig.InputError, match=r"no heads fit; got kv_heads=1; allowed: of up to 1024 rows and values"):
        llama_sizes(many, kv_heads=1)


def test_heads_divide_the_width_and_are_powers_of_four() -> None:
    for sizes in ([2, 5, 1], [3, 7, 7, 2], [2, 16, 1]):
        tf = compiled(sizes, momentum=0.9)
        for family in FAMILIES:
            found = llama_sizes(tf, family)
            assert found.d_model % found.n_head == 0
            assert found.n_head % found.n_kv == 0
            assert found.d_head in (4, 16, 64, 256)


def test_equal_blocks_share_their_memory() -> None:
    for family in FAMILIES:
        model = to_llama(compiled([2, 3, 1], steps=10), family=family)
        first, again = model.layers[1], model.layers[4]
        assert first.mlp.up_proj.weight.data_ptr() == again.mlp.up_proj.weight.data_ptr()
        assert first.self_attn.q_proj.weight.data_ptr() == again.self_attn.q_proj.weight.data_ptr()
        assert first.input_layernorm.weight.data_ptr() == again.input_layernorm.weight.data_ptr()


def test_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    tf = compiled([2, 4, 4, 1], steps=2)
    for family in FAMILIES:
        path = export_llama(tf, tmp_path / family, family=family) / "model.safetensors"
        size = llama_sizes(tf, family).n_bytes(SINGLE)
        assert abs(path.stat().st_size - size) < 0.02 * size + 2e4


# ------------------------------------------------------------------------------------------- the check, and predictions


def causal(model: Any, inputs: Tensor) -> Tensor:
    tokens = inputs.shape[1]
    mask = torch.full((1, 1, tokens, tokens), torch.finfo(torch.float32).min).triu(1)
    hidden: Tensor = model(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
    return hidden


def test_nothing_is_predicted_if_something_is_wrong(tmp_path: Path) -> None:
    """A mask, positions, a weight, a prompt that is too long, another transformer: each is a sentence."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), lr=0.5, steps=2, box=None)
    tf = ig.compile(algorithm, target="llama", n_examples=10)
    export_llama(tf, tmp_path)
    prompt = data(tf)
    expected = ig.reference(tf.algorithm, *prompt).predictions
    assert float((predict(tf, tmp_path, *prompt) - expected).abs().max()) < 1e-6
    flat = predict(tf, tmp_path, prompt[0], prompt[1][:, 0], prompt[2])
    assert flat.shape == (2,)
    for match, given in (
        ("it hid later tokens; give no attention_mask", {"hidden_states": causal}),
        ("it hid later tokens", {"model": AutoModel.from_pretrained(tmp_path, is_causal=True)}),
        (
            "rotary positions are on; leave rope_parameters",
            {"model": AutoModel.from_pretrained(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 1e4})},
        ),
        (
            "it is in bfloat16, and was exported in float32",
            {"model": AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)},
        ),
    ):
        with pytest.raises(JobError, match=match):
            predict(tf, tmp_path, *prompt, **given)
        with pytest.raises(JobError, match=match):
            check(tmp_path, **given)
    with pytest.raises(
        ig.InputError, match=r"number of examples is out of range; got 11; allowed: 1 to n_examples = 10"
    ):
        predict(tf, tmp_path, *data(tf, n=11))
    with pytest.raises(ig.InputError, match="not an export of this transformer"):
        predict(compiled([2, 3, 1], steps=3), tmp_path, *prompt)


@pytest.mark.parametrize("family", ["llama", "stablelm"])
def test_a_changed_weight_is_found_and_its_block_named(family: str, tmp_path: Path) -> None:
    """In memory and in the file; a single bit of it, too."""
    tf = compiled([2, 3, 1], steps=2)
    export_llama(tf, tmp_path, family=family)
    model = AutoModel.from_pretrained(tmp_path)
    weight = model.layers[3].mlp.down_proj.weight.data
    place = int(weight.abs().argmax())
    weight.view(-1)[place] *= 1 + 2**-22
    said = r"the weights of layers\.3 \(update; clear and prepare\) are not those that were exported"
    with pytest.raises(JobError, match=said):
        check(tmp_path, model)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["layers.3.mlp.down_proj.weight"] *= 1.01
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(JobError, match=said):
        check(tmp_path)
    model.norm.weight.data *= 2
    with pytest.raises(JobError, match=r"of everything outside of blocks, and of 1 others, are not those"):
        check(tmp_path, model)


def test_stablelm_needs_a_mask(tmp_path: Path) -> None:
    """Its blocks drop is_causal; the card and the example say so."""
    tf = compiled([2, 3, 1], steps=2)
    export_llama(tf, tmp_path, family="stablelm")
    assert "needs a 4-D attention mask of zeros" in (tmp_path / "README.md").read_text()

    def unmasked(model: Any, inputs: Tensor) -> Tensor:
        hidden: Tensor = model(inputs_embeds=inputs).last_hidden_state
        return hidden

    with pytest.raises(JobError, match="called without the 4-D attention mask of zeros"):
        check(tmp_path, hidden_states=unmasked)
    assert predict(tf, tmp_path, *data(tf)).shape == (2, 1)


@pytest.mark.parametrize("family", ["llama", "stablelm"])
def test_the_card_and_the_example_run(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The five lines of README.md, in the folder, and example.py."""
    tf = compiled([2, 3, 1], steps=2)
    export_llama(tf, tmp_path, family=family)
    runpy.run_path(str(tmp_path / "example.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "they, and the weights learned, are off by" in printed
    card = (tmp_path / "README.md").read_text()
    assert FAMILIES[family].model in card
    (lines,) = [part.split("```")[0] for part in card.split("```python\n")[1:]]
    assert len([line for line in lines.splitlines() if line]) == 5
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "example", raising=False)
    exec(lines, {})
    assert capsys.readouterr().out.split("[")[3].split("]")[0].strip()[:5] in printed  # the first prediction


# ------------------------------------------------------------------------------------------------------ what is refused


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tf = compiled([2, 3, 1], steps=2)
    with pytest.raises(ig.InputError, match="compute in float32, whatever the model's dtype; got float64"):
        to_llama(tf, torch.float64)
    with pytest.raises(ig.InputError, match=r"need pads of 2\^40, which is beyond the largest number; got float16"):
        to_llama(tf, torch.float16)
    with pytest.raises(ig.InputError, match="unknown family of models; got 'bert'; allowed: llama, mistral"):
        to_llama(tf, family="bert")
    with pytest.raises(ig.InputError, match="folders are written in float32"):
        export_llama(tf, tmp_path / "half", torch.bfloat16)
    other = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), target="gpt")
    with pytest.raises(ig.InputError, match="only blocks of target llama"):
        to_llama(other)
    steep = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1], "relu"), steps=1, box=None), target="llama")
    with pytest.raises(ig.InputError, match=r"the ramps of relu' are too steep"):
        to_llama(steep)
    fitted = compiled([2, 3, 1], steps=1)
    fitted.approximants["f"] = FeatureSum("silu")
    with pytest.raises(ig.InputError, match="are sums of silu units, and a GemmaModel has gelu_pytorch_tanh; got f"):
        to_llama(fitted, family="gemma")
    monkeypatch.setattr(folder, "LARGEST", 10**4)
    with pytest.raises(ig.InputError, match="the folder would be large"):
        export_llama(tf, tmp_path / "large")
    assert not (tmp_path / "large").exists()
    export_llama(tf, tmp_path / "large", large=True)


def test_export_on_the_command_line(tmp_path: Path) -> None:
    compiled([2, 3, 1], steps=2).save(tmp_path / "model")
    for family in ("mistral", "gemma"):
        out = tmp_path / family
        flags = ("--family", family, "--kv-heads", "1")
        _, said = innergrad("export", str(tmp_path / "model"), "--out", str(out), *flags)
        assert "note: this writes 1.0 MB, 8 blocks, 4 heads of 16, 1 of keys and values, width 80" in said
        assert check(out) < 1e-6
    assert type(AutoModel.from_pretrained(tmp_path / "mistral")) is MistralModel
    out = ("export", str(tmp_path / "model"), "--out", str(tmp_path / "x"))
    _, said = innergrad(*out, "--dtype", "float64", code=2)
    assert "compute in float32" in said
    _, said = innergrad(*out, "--format", "onnx", "--kv-heads", "1", code=2)
    assert "--family and --kv-heads are for Llamas" in said
    _, said = innergrad(*out, "--format", "onnx", "--large", code=2)
    assert "--large is for folders" in said
    told = "".join(innergrad("export", "--help")).replace("\u2502", " ").split()
    assert all(name in (word.strip(",.") for word in told) for name in FAMILIES)
    printed, said = innergrad(*out, "--dtype", "float64", "--family", "stablelm")
    assert "next: transformers.AutoModel.from_pretrained" in printed
    assert "called without a 4-D attention mask it is wrong" in said
