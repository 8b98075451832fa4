"""Compiled transformers in software nobody here wrote: Hugging Face's GPT-2 and ONNX Runtime."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GPT2Model

import innergrad as ig
from innergrad.errors import JobError
from innergrad.export import check, export_gpt2, export_onnx, folder, gpt2_inputs, gpt2_stream, to_gpt2
from innergrad.export.gpt2 import config_of, sizes_of
from innergrad.files import digest
from test_cli import call

NETWORK = ig.Network([2, 4, 4, 2], "tanh")
ALGORITHMS: dict[str, ig.Algorithm] = {
    "gradient descent": ig.GradientDescent(NETWORK, steps=1),
    "logistic": ig.GradientDescent(ig.Network([2, 4, 1], "gelu"), loss="logistic", steps=2, box=None),
    "online SGD": ig.OnlineSGD(d=3, weight_decay=0.1),
    "RLS": ig.RecursiveLeastSquares(d=2),
    "exp kernel": ig.FunctionalGradientDescent("exp", steps=8),
    "linear kernel": ig.FunctionalGradientDescent("linear", steps=4),
    "softmax": ig.FunctionalGradientDescent("softmax", steps=4),
}
PRECISION = {torch.float64: 1e-9, torch.float32: 1e-5}


def prompts(algorithm: ig.Algorithm, batch: int = 2, n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(11)
    drawn = [algorithm.random_prompt(n, 2, generator) for _ in range(batch)]
    X, y, X_query = (torch.stack(part) for part in zip(*drawn, strict=True))
    return X, y, X_query


def outcome(tf: ig.CompiledTransformer, stream: Tensor, *data: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and predictions in hidden states."""
    prompt, state = tf.prompt(*data), tf.program.stream.unpack(stream.double())
    return prompt.weights(tf.program, state), tf.predictions(stream.double(), data[2].shape[-2])


def run_gpt2(tf: ig.CompiledTransformer, model: GPT2Model, *data: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        hidden = model(**gpt2_inputs(tf, tf.stream(*data), model.dtype)).last_hidden_state
    weights, _ = outcome(tf, gpt2_stream(tf, hidden), *data)
    return weights, tf.predictions(hidden, data[2].shape[-2]).double()


def error(result: tuple[Tensor, Tensor], reference: ig.Run) -> float:
    parts = [(result[0], reference.weights[:, -1]), (result[1], reference.predictions)]
    return max(float((a - b).abs().max()) for a, b in parts if a.numel())


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_unmodified_gpt2_learns_what_the_algorithm_learns(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Written to a folder, loaded by transformers' own from_pretrained, compared with the oracle (e.g. autograd)."""
    algorithm = ALGORITHMS[name]
    tf = ig.compile(algorithm, target="gpt", epsilon=PRECISION[dtype], n_examples=7)
    data = prompts(algorithm)
    model = GPT2Model.from_pretrained(export_gpt2(tf, tmp_path, dtype))
    assert type(model) is GPT2Model
    assert model.dtype == dtype
    result = run_gpt2(tf, model, *data)
    assert error(result, ig.reference(algorithm, *data)) < {torch.float64: 1e-8, torch.float32: 1e-4}[dtype]
    assert len(model.h) == tf.cost().blocks + len(tf.program.readout)


@pytest.mark.parametrize(("dtype", "one", "twenty"), [(torch.float64, 1e-7, 1e-6), (torch.float32, 1e-4, 1e-3)])
def test_gradient_descent_on_stock_gpt2(dtype: torch.dtype, one: float, twenty: float) -> None:
    """N = 3, K = 4: weights after one step and after twenty (260 blocks or fewer) against autograd."""
    for steps, limit in ((1, one), (20, twenty)):
        algorithm = ig.GradientDescent(NETWORK, steps=steps)
        tf = ig.compile(algorithm, target="gpt", epsilon=PRECISION[dtype], n_examples=8)
        data = prompts(algorithm, batch=5, n=8)
        weights, _ = run_gpt2(tf, to_gpt2(tf, dtype), *data)
        reference = ig.reference(algorithm, *data).weights
        assert float((weights - reference[:, -1]).abs().max()) < limit
        assert float((reference[:, -1] - reference[:, 0]).abs().max()) > 10 * limit, "something was learned"


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """One changed weight of the exported folder, and GPT-2 no longer agrees; without the 4-D mask, neither."""
    algorithm = ALGORITHMS["gradient descent"]
    tf = ig.compile(algorithm, target="gpt", n_examples=7)
    data, reference = prompts(algorithm), ig.reference(algorithm, *prompts(algorithm))
    export_gpt2(tf, tmp_path, torch.float64)
    tensors = load_file(tmp_path / "model.safetensors")
    weight = tensors["h.0.mlp.c_proj.weight"]
    weight.view(-1)[weight.abs().argmax()] *= 1.01
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert error(run_gpt2(tf, GPT2Model.from_pretrained(tmp_path), *data), reference) > 1e-5
    inputs = gpt2_inputs(tf, tf.stream(*data), torch.float64)
    with torch.no_grad():
        hidden = to_gpt2(tf, torch.float64)(inputs_embeds=inputs["inputs_embeds"]).last_hidden_state
    assert error(outcome(tf, gpt2_stream(tf, hidden), *data), reference) > 1e-3


def test_the_folder_says_how_to_use_it_without_innergrad(tmp_path: Path) -> None:
    """From innergrad.json alone: fill the lanes, call GPT-2, read the prediction."""
    tf = ig.compile(ig.FunctionalGradientDescent("exp", steps=8, d=2), target="gpt", n_examples=5)
    export_gpt2(tf, tmp_path, torch.float64)
    note = json.loads((tmp_path / "innergrad.json").read_text())
    X, y, X_query = (part[0].numpy() for part in prompts(tf.algorithm, 1, 5))
    model = GPT2Model.from_pretrained(tmp_path)
    assert (
        note["tokens"]
        == "a sink, which holds only the values of every token; then (x_1; y_1), (x_2; y_2), ...; then the queries"
    )
    tokens = 1 + len(X) + len(X_query)
    example, query = np.arange(1, 1 + len(X)), np.arange(1 + len(X), tokens)
    embeds = np.zeros((1, tokens, model.config.n_embd))
    lanes = {
        lane["name"]: slice(lane["offset"], lane["offset"] + int(np.prod(lane["shape"]))) for lane in note["layout"]
    }
    for lane in note["layout"]:
        if lane["holds"].endswith(" on every token"):
            embeds[..., lanes[lane["name"]]] = float(lane["holds"].split()[0])
    embeds[0, example, lanes["x"]], embeds[0, query, lanes["x"]] = X, X_query
    embeds[0, example, lanes["y"]] = y
    embeds[0, example, lanes["t"]] = 1
    embeds[0, query, lanes["query"]] = 1
    embeds[0, 1:, lanes["ns"]] = 1
    assert {lane["name"]: lane["holds"] for lane in note["layout"] if lane["name"] in ("t", "query", "ns")} == {
        "t": "1 on examples (interleaved: on their y tokens)",
        "query": "1 on queries",
        "ns": "1 on every token but the sink",
    }
    mask = torch.zeros(1, 1, tokens, tokens, dtype=torch.float64)
    with torch.no_grad():
        hidden = model(inputs_embeds=torch.from_numpy(embeds), attention_mask=mask).last_hidden_state.numpy()
    stream = hidden - hidden[..., note["read"]["zero"], None]
    prediction = note["read"]["prediction"]["sign"] * stream[0, query, lanes[note["read"]["prediction"]["lane"]]]
    expected = ig.reference(tf.algorithm, X, y, X_query).predictions.numpy()
    np.testing.assert_allclose(prediction, expected, atol=1e-10)
    np.testing.assert_array_equal(ig.read_predictions(hidden, note["read"], len(X_query))[0], prediction)


# ------------------------------------------------------------------------------------- the card, the example, the check


def test_hidden_states_of_the_wrong_shape_are_refused() -> None:
    tf = ig.compile(ALGORITHMS["online SGD"], n_examples=4)
    for hidden, n_query in ((torch.zeros(5), 1), (torch.zeros(1, 5, 3), 1), (torch.zeros(1, 5, tf.d_model), 6)):
        with pytest.raises(ig.InputError, match=r"hidden states have the wrong shape; got .*; allowed: "):
            tf.predictions(hidden, n_query)


def unmasked(model: GPT2Model, inputs: Tensor) -> Tensor:
    hidden: Tensor = model(inputs_embeds=inputs).last_hidden_state
    return hidden


def padded(model: GPT2Model, inputs: Tensor) -> Tensor:
    """With the mask that most models are given."""
    hidden: Tensor = model(inputs_embeds=inputs, attention_mask=torch.ones(inputs.shape[:2])).last_hidden_state
    return hidden


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_check_finds_a_mask_that_is_missing(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Where a mask is needed. The card says so, and whether."""
    tf = ig.compile(ALGORITHMS[name], target="gpt", epsilon=PRECISION[dtype], n_examples=7)
    export_gpt2(tf, tmp_path, dtype)
    assert check(tmp_path) < 1e-4
    model = GPT2Model.from_pretrained(tmp_path)
    written = (tmp_path / "README.md").read_text()
    assert ("needs a 4-D attention mask of zeros" in written) == (not tf.program.causal)
    assert f"lane `{tf.program.prediction}`" in written
    for call_it in (unmasked, padded):
        if tf.program.causal:
            assert check(tmp_path, model, call_it) < 1e-4
        else:
            with pytest.raises(JobError, match="called without the 4-D attention mask of zeros"):
                check(tmp_path, model, call_it)
    with pytest.raises(ig.InputError, match="not the model's last hidden states"):
        check(tmp_path, model, lambda m, x: m(inputs_embeds=x))


def test_the_check_finds_a_changed_weight(tmp_path: Path) -> None:
    tf = ig.compile(ALGORITHMS["exp kernel"], target="gpt", n_examples=7)
    export_gpt2(tf, tmp_path, torch.float64)
    tensors = load_file(tmp_path / "model.safetensors")
    weight = tensors["h.1.attn.c_proj.weight"]
    weight.view(-1)[weight.abs().argmax()] *= 1.01
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(JobError, match="are not those that were exported"):
        check(tmp_path)
    with pytest.raises(ig.InputError, match="no export of innergrad's"):
        check(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["gradient descent", "online SGD"])
def test_the_example_runs_by_itself(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It knows nothing of innergrad; and it fails if the mask is taken out of it."""
    tf = ig.compile(ALGORITHMS[name], target="gpt", n_examples=7)
    export_gpt2(tf, tmp_path, torch.float64)
    script = tmp_path / "example.py"
    assert "innergrad" not in script.read_text().replace("innergrad.json", "")
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    expected = json.loads((tmp_path / "innergrad.json").read_text())["example"]["predictions"]
    assert f"predictions [{expected[0][0]:.8f}"[:-2] in printed
    if not tf.program.causal:
        script.write_text(script.read_text().replace('given["attention_mask"] =', "unused ="))
        with pytest.raises(SystemExit, match=r"is the 4-D attention mask missing\?"):
            runpy.run_path(str(script), run_name="__main__")


def test_equal_blocks_share_their_memory() -> None:
    """Twenty steps of gradient descent take no more memory than one, until they are written to a file."""
    parameters = {}
    for steps in (1, 20):
        tf = ig.compile(ig.GradientDescent(NETWORK, steps=steps), target="gpt", n_examples=7)
        model = to_gpt2(tf)
        parameters[steps] = len({p.data_ptr() for p in model.parameters()})
        assert config_of(tf)["n_layer"] == 11 * steps + 5
        assert sum(p.numel() for p in model.h.parameters()) > 0
        assert sizes_of(tf).n_embd >= tf.d_model
    assert parameters[1] == parameters[20]


def test_large_models_are_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPT-2 loads them; an earlier export leaves nothing that it would load instead."""
    tf = ig.compile(ig.FunctionalGradientDescent("linear", steps=2, d=2), target="gpt", n_examples=5)
    expected = to_gpt2(tf).state_dict()

    def same() -> bool:
        found = GPT2Model.from_pretrained(tmp_path).state_dict()
        return all(torch.equal(found[name], value) for name, value in expected.items())

    export_gpt2(tf, tmp_path)
    whole = (tmp_path / "model.safetensors").stat().st_size
    monkeypatch.setattr(folder, "SHARD", whole // 3)
    export_gpt2(tf, tmp_path)
    files = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert "model.safetensors" not in files
    assert len(files) >= 3
    for tensors in (load_file(tmp_path / name) for name in files):
        assert len(tensors) == 1 or sum(value.nbytes for value in tensors.values()) <= whole // 3
    assert same()
    monkeypatch.undo()
    export_gpt2(tf, tmp_path)
    assert [path.name for path in tmp_path.glob("model*")] == ["model.safetensors"]
    assert same()
    neighbour = tmp_path.parent / "neighbour.txt"  # a note that lists it does not make it the export's
    neighbour.write_text("mine")
    note = json.loads((tmp_path / "innergrad.json").read_text())
    note["files"] |= {f"../{neighbour.name}": digest(neighbour)}
    (tmp_path / "innergrad.json").write_text(json.dumps(note, indent=1))
    export_gpt2(tf, tmp_path)
    assert neighbour.read_text() == "mine"
    monkeypatch.setattr(folder, "SHARD", whole // 3)
    (tmp_path / "model.safetensors").write_bytes(b"another's")
    with pytest.raises(ig.InputError, match=r"model.safetensors is there, and innergrad export did not write it"):
        export_gpt2(tf, tmp_path)
    export_gpt2(tf, tmp_path, force=True)
    assert same()
    size = sizes_of(tf).n_bytes(torch.float32)
    assert abs(size - whole) < 0.1 * whole + 4 * expected["wpe.weight"].numel()


def test_what_is_not_gpt2_is_refused(tmp_path: Path) -> None:
    for tf in (
        ig.compile(ig.OnlineSGD(d=2), variant="raw", n_examples=2),
        ig.compile(ig.FunctionalGradientDescent("exp", steps=2), n_examples=2),
    ):
        with pytest.raises(ig.InputError, match="only standard pre-LN blocks are GPT-2's"):
            export_gpt2(tf, tmp_path)
    assert list(tmp_path.iterdir()) == []


ONNX: dict[str, tuple[ig.Algorithm, str]] = {
    "gradient descent on ReLU attention": (ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), "relu"),
    "functional gradient descent": (ig.FunctionalGradientDescent("exp", steps=3), "kernel"),
    "gradient descent on GPT-2's blocks": (ig.GradientDescent(ig.Network([2, 3, 1]), steps=1), "gpt"),
    "recursive least squares": (ig.RecursiveLeastSquares(d=2), "gpt"),
}
LONG = [name for name in ONNX if name != "functional gradient descent"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["functional gradient descent", *(pytest.param(n, marks=pytest.mark.soak) for n in LONG)]
)
def test_onnx_runtime_computes_what_the_module_computes(name: str, tmp_path: Path) -> None:
    """Within float32 rounding, for any number of prompts and tokens; weights and predictions near the oracle's."""
    algorithm, target = ONNX[name]
    most = 2 if isinstance(algorithm, ig.RecursiveLeastSquares) else 4  # it has layers for each example
    tf = ig.compile(algorithm, target=target, epsilon=1e-3 if target == "relu" else 1e-5, n_examples=most)
    path = export_onnx(tf, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(path))
    note = json.loads(session.get_modelmeta().custom_metadata_map["innergrad"])
    assert note["read"] == tf.reading
    assert check(path) <= note["example"]["tolerance"]
    with pytest.raises(JobError, match="are not those that were exported"):
        check(path, session, lambda session, stream: 1.01 * session.run(None, {"stream": stream})[0])
    for batch, n in ((3, most), (1, most // 2)):
        data = prompts(algorithm, batch, n)
        stream = tf.stream(*data).float()
        theirs = torch.from_numpy(session.run(None, {"stream": stream.numpy()})[0])
        ours = tf.module_for(torch.float32)(stream)
        for a, b in zip(outcome(tf, theirs, *data), outcome(tf, ours, *data), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=3e-5)
        read = ig.read_predictions(theirs, note["read"], data[2].shape[-2])
        assert torch.equal(read.double(), outcome(tf, theirs, *data)[1])
        limit = 0.05 if target == "relu" else 1e-4
        assert error(outcome(tf, theirs, *data), ig.reference(algorithm, *data)) < limit


def test_an_onnx_model_is_a_file(tmp_path: Path) -> None:
    tf = ig.compile(ig.FunctionalGradientDescent("exp", steps=2), n_examples=2)
    with pytest.raises(ig.InputError, match=r"one file.*model\.onnx"):
        export_onnx(tf, tmp_path)


# ------------------------------------------------------------------------------------------------ on the command line


def innergrad(*arguments: str, code: int = 0) -> tuple[str, str]:
    done = call(*arguments)
    assert done.code == code, done.err
    return done.out, done.err


def test_export_on_the_command_line(tmp_path: Path) -> None:
    """A saved model, exported and loaded by from_pretrained; wrong input is one line, exit code 2, and no file."""
    model, folder = tmp_path / "model", tmp_path / "gpt2"
    tf = ig.compile(ALGORITHMS["online SGD"], n_examples=4)
    tf.save(model)
    printed, _ = innergrad("export", str(model), "--out", str(folder), "--dtype", "float64", "--json")
    assert json.loads(printed) == {"exported": str(folder), "format": "hf", "dtype": "float64"}
    data = prompts(tf.algorithm, n=4)
    assert error(run_gpt2(tf, GPT2Model.from_pretrained(folder), *data), ig.reference(tf.algorithm, *data)) < 1e-9
    for arguments, complaint in (
        (("--format", "tflite"), "unknown format; got 'tflite'; allowed: hf, onnx"),
        (("--dtype", "float16"), "unknown dtype; got 'float16'; allowed: float64, float32; did you mean float64?"),
        (("--format", "onnx", "--dtype", "float64"), "allowed: float32"),
        (("--format", "onnx", "--out", str(tmp_path)), "an ONNX model is one file"),
    ):
        before = sorted(tmp_path.rglob("*"))
        _, said = innergrad("export", str(model), "--out", str(tmp_path / "x"), *arguments, code=2)
        assert complaint in said
        assert len(said.splitlines()) == 1
        assert sorted(tmp_path.rglob("*")) == before
    _, said = innergrad("export", str(model), code=2)
    assert "the output is missing" in said
