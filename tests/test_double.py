"""double=True: every value in two lanes, so that classes whose norms cast to float32 compute in float64."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, LlamaModel, MistralModel, Qwen2Model

import innergrad as ig
from innergrad import Attend, Lane, Layer, Loop, Program, Score
from innergrad.errors import JobError
from innergrad.export import check, export_llama, to_llama
from innergrad.interpret import plain
from innergrad.ir.stream import low
from innergrad.model.double import doubled
from innergrad.model.storage import seal
from innergrad.targets.parts.rms_norm import RMSNorm
from test_llama import CASES, descent

CLASSES = {"llama": LlamaModel, "mistral": MistralModel, "qwen2": Qwen2Model}
FEW = {"steps": 3}


def compiled(algorithm: ig.GradientDescent, variant: str = "chain") -> ig.CompiledTransformer:
    return ig.compile(algorithm, target="llama", variant=variant, double=True)


def drawn(tf: ig.CompiledTransformer, seed: int = 1, n: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    return tf.algorithm.random_prompt(n, 3, torch.Generator().manual_seed(seed))


def stock_error(tf: ig.CompiledTransformer, model: Any, seed: int = 1, **prompt: Any) -> float:
    """Of the weights that every token learned and of the predictions, against autograd in float64."""
    X, y, X_query = drawn(tf, seed)
    reference = ig.reference(tf.algorithm, X, y, X_query, **prompt)
    with torch.no_grad():
        hidden = model(inputs_embeds=tf.stream(X, y, X_query, **prompt)).last_hidden_state
    assert hidden.dtype == torch.float64
    learned = torch.stack([tf.learned(hidden, token)[0] for token in range(hidden.shape[1])])
    off = (learned - reference.weights[-1]).abs().max()
    return float(max(off, (tf.predictions(hidden, 3)[0] - reference.predictions).abs().max()))


# ----------------------------------------------------------------------------------------- stock classes, in float64


@pytest.mark.parametrize("family", CLASSES)
def test_stock_classes_compute_in_float64(family: str) -> None:
    tf = compiled(descent([2, 4, 4, 1], steps=20))
    model = to_llama(tf, torch.float64, family)
    assert type(model) is CLASSES[family]
    assert model.config._attn_implementation == "sdpa"
    assert stock_error(tf, model) < 2e-14


STOCK = [("1 layer", "chain"), ("4 layers", "wide"), ("cross-entropy", "chain"), ("everything", "wide")]
MORE = [(name, variant) for name in CASES for variant in ("chain", "wide") if (name, variant) not in STOCK]


@pytest.mark.parametrize(("name", "variant"), [*STOCK, *(pytest.param(*one, marks=pytest.mark.soak) for one in MORE)])
def test_every_kind_of_program_in_a_stock_llama(name: str, variant: str) -> None:
    tf = compiled(CASES[name], variant)
    assert stock_error(tf, to_llama(tf, torch.float64)) < 2e-13


def test_example_weights_have_all_their_digits() -> None:
    """log_omega, too, is read in float32."""
    tf = compiled(descent([2, 4, 1], steps=5))
    weight = torch.rand(10, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    assert stock_error(tf, to_llama(tf, torch.float64), sample_weight=weight) < 2e-14


def test_without_it_float64_stalls_where_float32_does() -> None:
    """So the two lanes are what helps. (The class is the same; the export refuses it.)"""
    plain, double = (ig.compile(descent([2, 4, 1]), target="llama", double=double) for double in (False, True))
    with pytest.raises(ig.InputError, match=r"compute in float32.*compile with double=True"):
        to_llama(plain, torch.float64)
    model = to_llama(plain).double()
    assert 1e-9 < stock_error(plain, model) < 1e-5
    eager = to_llama(double, torch.float64)
    eager.set_attn_implementation("eager")
    assert 1e-10 < stock_error(double, eager) < 1e-5


@pytest.mark.soak
def test_two_hundred_steps_in_a_stock_llama() -> None:
    tf = compiled(descent([2, 4, 4, 1], steps=200))
    assert max(stock_error(tf, to_llama(tf, torch.float64), seed) for seed in range(3)) < 1e-13


# ----------------------------------------------------------------------------------------------- the same algorithm


OWN = [("1 layer", "chain"), ("3 layers", "chain"), ("4 layers", "wide"), ("everything", "chain"), ("silu", "wide")]
OTHERS = [(name, variant) for name in CASES for variant in ("chain", "wide") if (name, variant) not in OWN]


@pytest.mark.parametrize(("name", "variant"), [*OWN, *(pytest.param(*one, marks=pytest.mark.soak) for one in OTHERS)])
def test_the_weights_are_gradient_descent(name: str, variant: str) -> None:
    """plain == dense == fused == autograd, up to rounding, where norms do not cast."""
    algorithm = CASES[name]
    tf = compiled(algorithm, variant)
    X, y, X_query = algorithm.random_prompt(6, 3, torch.Generator().manual_seed(0))
    reference = ig.reference(algorithm, X, y, X_query)
    for executor in ("plain", "dense", "fused"):
        run = tf.run(X, y, X_query, executor=executor)
        torch.testing.assert_close(run.weights, reference.weights, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(run.predictions, reference.predictions, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "name", ["1 layer", *(pytest.param(name, marks=pytest.mark.soak) for name in ("2 layers", "everything"))]
)
def test_every_law_holds(name: str) -> None:
    tf = compiled(CASES[name])
    assert tf.state == "exact"
    report = tf.verify()
    assert report.passed, str(report)


def test_low_lanes_are_zero_where_nothing_is_rounded() -> None:
    """After every step, and after the read-out."""
    tf = compiled(CASES["2 layers"])
    X, y, X_query = drawn(tf, n=5)
    last = tf.trace(X, y, X_query)[-1][1]
    lows = {name: value for name, value in last.items() if name.endswith("_low")}
    assert {low(name) for name in ("x", "y", "V1", "b2", "z2", "log_omega")} <= set(lows)
    assert max(float(value.abs().max()) for value in lows.values()) < 1e-15


@pytest.mark.parametrize("N", [1, 2, 3, 4, 5, 6])
def test_blocks_a_step(N: int) -> None:
    """One more than without for every activation and loss that attention computes, and one for the mean."""

    def blocks(variant: str = "chain", double: bool = True, **settings: Any) -> float:
        algorithm = descent([2, *[2] * (N - 1), 2], **settings)
        return ig.compile(algorithm, target="llama", variant=variant, double=double).cost().layers_a_step

    assert blocks() == 3 * N - 1 == blocks(double=False) + N
    assert blocks(loss="logistic") == blocks(loss="softmax") == 3 * N + 1
    assert blocks("wide") == min(3 * N - 1, 2 * N + 2)
    assert blocks("wide", loss="logistic") == min(3 * N + 1, 2 * N + 3)
    assert blocks(box=1.0) == 3 * N + 1
    assert blocks(momentum=0.9) == max(3 * N - 1, 3)


@pytest.mark.soak
def test_a_certificate_holds() -> None:
    tf = compiled(descent([2, 4, 1], steps=10))
    X, y, X_query = drawn(tf, n=6)
    reference = ig.reference(tf.algorithm, X, y, X_query)
    for dtype, limit in (
        (torch.float64, 1e-10),
        (torch.float32, 2e-3),
    ):  # bounds: 6e-11 and 1.1e-3
        certificate = tf.certify(X, y, X_query, dtype=dtype, executor="dense")
        off = tf.run(X, y, X_query, dtype=dtype, executor="dense").weights.double() - reference.weights
        assert certificate.state == "exact"
        assert max(certificate.weights) < limit
        assert all(float(one.norm()) <= bound for one, bound in zip(off[1:], certificate.weights, strict=True))


# --------------------------------------------------------------------------------------------------- options, folders


def test_saving_and_loading_is_the_identity(tmp_path: Path) -> None:
    tf = compiled(CASES["cross-entropy"])
    tf.save(tmp_path / "model")
    loaded = ig.load(tmp_path / "model")
    assert loaded.options.double
    X, y, X_query = drawn(tf, n=5)
    a, b = (one.run(X, y, X_query, executor="dense") for one in (tf, loaded))
    assert torch.equal(a.weights, b.weights)


def test_folders_without_the_option_load(tmp_path: Path) -> None:
    ig.compile(descent([2, 1], **FEW), target="llama").save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["options"]["double"]
    path.write_text(json.dumps(config))
    seal(tmp_path / "model")
    assert not ig.load(tmp_path / "model").options.double


def test_what_is_refused() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 1]), steps=1)
    with pytest.raises(ig.InputError, match=r"double=True is for blocks whose norm casts.*got target 'gpt'"):
        ig.compile(algorithm, target="gpt", double=True)
    with pytest.raises(ig.InputError, match="double is True or False; got 'yes'"):
        ig.compile(algorithm, target="llama", double="yes")  # type: ignore[arg-type]


def test_attention_adds_to_nothing_that_it_reads() -> None:
    grows = Attend("w[k]", Score(ig.IDENTITY, ("w[c]", "x[c]")), value="x[k]", scope="demos", reduce="softmax")
    stream = ig.example_stream(2, 2, Lane("w", (2,), "weight"))
    program = Program(stream, (Loop(1, (Layer("attention", "grow", (grows,)),)),), (), "y")
    with pytest.raises(ig.LoweringError, match=r"layer grow: attention .* adds to values that it does not read; got w"):
        doubled(program)


def test_programs_that_leave_something_behind() -> None:
    """A scratch lane that a step does not clear, a state lane that it does, and a lane that is read before anything is
    written: each pass of the loop begins as the others do, and numbers read in float32 add up to float64.
    """
    lanes = (Lane("w", (2,), "weight"), Lane("m", (2,), "state", shared=False), Lane("p", (2,)), Lane("q", (2,)))
    layers = (
        Layer(
            "mlp", "a", (Attend("p[k]", value="x[k] + 0.5*p[k]"), Attend("m[k]", Score(ig.IDENTITY, ("x[k]", "q[k]"))))
        ),
        Layer("mlp", "b", (Attend("q[k]", Score(ig.IDENTITY, ("p[k]", "x[k]"))), Attend("m[k]", value="p[k]"))),
        Layer("mlp", "c", (Attend("y[k]", value="q[k] + m[k]", scale=0.3),)),
        Layer("mlp", "d", tuple(Attend(v, Score(ig.NEGATION, (v, "one"))) for v in ("q[k]", "m[k]"))),
    )
    program = Program(ig.example_stream(2, 2, *lanes), (Loop(3, layers),), (), "y")
    twice = doubled(program)
    x = torch.randn(2, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def last(program: Program, rounded: bool) -> Tensor:
        state = {
            lane.name: torch.zeros(2, 1 if lane.shared else 5, *lane.shape, dtype=torch.float64)
            for lane in program.stream.lanes
        } | {"x": x, "x_low": x, "one": torch.ones(2, 1, dtype=torch.float64)}
        for layer, _ in program.schedule():
            shown = {name: value.float().double() if rounded else value for name, value in state.items()}
            after = plain.apply_layer(program, layer, shown, program.functions())
            state = {name: state[name] + (after[name] - shown[name]) for name in state}
        return state["y"].float().double() + state["y_low"] if rounded else state["y"]

    exact = last(program, rounded=False)
    torch.testing.assert_close(last(twice, rounded=False), exact, rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(last(twice, rounded=True), exact, rtol=1e-13, atol=1e-13)


def test_folders_in_float64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tf = compiled(descent([2, 3, 1], **FEW))
    export_llama(tf, tmp_path, torch.float64)
    model = AutoModel.from_pretrained(tmp_path)
    assert model.dtype == torch.float64
    assert check(tmp_path) < 1e-13
    assert stock_error(tf, model) < 1e-14
    eager = AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
    with pytest.raises(JobError, match="eager attention takes its softmax in float32"):
        check(tmp_path, eager)
    runpy.run_path(str(tmp_path / "example.py"), run_name="__main__")
    assert "allowed: 1" in capsys.readouterr().out
    assert "low digits" in (tmp_path / "README.md").read_text()


# ------------------------------------------------------------------------------------------------- what it rests on


def test_what_a_float64_llama_reads_of_a_value() -> None:
    """LlamaRMSNorm reads B in float32, and B and C = v - read(B) add up to v up to 2^-48."""
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    tf = compiled(descent([2, 3, 1], **FEW))
    h = tf.stream(*drawn(tf))
    gain = RMSNorm().gain("mlp", tf.target.context(tf.program, tf.options))
    norm = LlamaRMSNorm(tf.d_model).double()
    norm.weight.data.fill_(gain)
    with torch.no_grad():
        read = norm(h)
        assert torch.equal(read, h.float().double())
        content = tf.d_model - tf.program.stream["pad"].size  # pads come last
        v, low_digits = h[..., :content], h.clone()
        low_digits[..., :content] -= read[..., :content]
        both = read[..., :content] + norm(low_digits)[..., :content]
    assert float((read[..., :content] - v).abs().max()) > 1e-9
    assert bool(((both - v).abs() <= 2.0**-48 * v.abs()).all())
