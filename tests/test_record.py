"""The record that compiling makes: executors and evidence work on it, its weights are made once, ``auto`` chooses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import innergrad as ig
from cases import CASES
from innergrad import memory
from innergrad.evidence.attack import attack
from innergrad.evidence.bounds import apriori
from innergrad.evidence.certificate import certify
from innergrad.evidence.explain import explain
from innergrad.evidence.solver import solve
from innergrad.evidence.verification import verify
from innergrad.interpret import plain
from innergrad.interpret.native.kernel import build
from innergrad.ir.program import Attend, Layer, Loop, Program
from innergrad.model import executors, storage
from innergrad.model.compiled import Compiled
from innergrad.model.executors import Dense, Fused, Plain, choose, dense, executor_of, fused, fused_of
from innergrad.model.executors.timing import dense_seconds, plain_seconds
from innergrad.model.running import run
from innergrad.targets import Target
from innergrad.targets.weights import modules


def descent(activation: str = "tanh", steps: int | None = 2, **settings: Any) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 3, 1], activation), steps=steps, **{"lr": 0.1, **settings})


def record(tf: ig.CompiledTransformer) -> Compiled:
    """Without the facade."""
    return Compiled(tf.algorithm, tf.program, tf.approximants, tf.options)


def examples(batch: int = 1, n: int = 4, size: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X, y = (torch.rand(batch, n, d, generator=generator, dtype=torch.float64) * 2 - 1 for d in (2, 1))
    return size * X, y


# ------------------------------------------------------------------------------------------------------------ evidence


def test_evidence_needs_no_facade(tmp_path: Path) -> None:
    """On the record alone it says what the transformer says."""
    tf = ig.compile(descent(), n_examples=4, x_bound=1.0, y_bound=1.0)
    of, (X, y) = record(tf), examples()
    assert torch.equal(run(of, X, y).weights, tf.run(X, y).weights)
    assert verify(of, None, None, None, w0=None, sample_weight=None, seed=0, prompts=2).passed
    assert certify(of, X, y).weights == tf.certify(X, y).weights
    assert apriori(of).best == tf.certificate.best
    assert attack(of, starts=2, iterations=2).error == tf.attack(starts=2, iterations=2).error
    assert explain(of, X, y).steps == tf.explain(X, y).steps
    storage.save(of, tmp_path / "model")
    assert type(storage.read(tmp_path / "model", ())) is Compiled
    found, solution = solve(tf.algorithm, tf.program, replace(tf.options, weight_error=0.1), (X, y), None)
    assert type(found) is Compiled
    assert solution.bound <= 0.1


def test_evidence_does_not_import_the_facade() -> None:
    evidence = "attack bounds certificate explain solver stopping verification"
    modules = [
        *(f"evidence.{name}" for name in evidence.split()),
        *(f"model.{name}" for name in ("storage", "running")),
    ]
    imports = "; ".join(f"import innergrad.{name}" for name in modules)
    code = f"{imports}; import sys; print('innergrad.transformer' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


# ------------------------------------------------------------------------------------------------------------- weights

TARGET_OF = {"relu": descent(), "gpt": descent(), "softmax": descent(), "sigma": descent()}
TARGET_OF |= {"kernel": ig.FunctionalGradientDescent(kernel="exp", d=2, steps=2, lambda_max=8.0)}


@pytest.mark.parametrize("target", TARGET_OF)
def test_weights_are_lowered_once(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cost is counted on the module that is built and kept; what is loaded is not built again."""
    original, calls = Target.lower, list[str]()

    def lower(self: Target, *given: Any) -> Any:
        calls.append(target)
        return original(self, *given)

    monkeypatch.setattr(Target, "lower", lower)
    tf = ig.compile(TARGET_OF[target], target=target, n_examples=4)
    cost, module = tf.cost(), tf.module
    tf.save(tmp_path)
    assert tf.module is module
    assert calls == [target]
    loaded = ig.load(tmp_path)
    assert loaded.cost() == cost
    assert calls == [target]


@pytest.mark.parametrize("target", TARGET_OF)
def test_room_is_looked_for_before_anything_is_built(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tf, made = ig.compile(TARGET_OF[target], target=target, n_examples=4), list[Any]()
    _ = tf.foreseen  # counted on a few heads that stand for all others
    monkeypatch.setattr(memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(modules.SparseStack, "__init__", lambda self, *given: made.append(given))
    with pytest.raises(ig.InputError, match=r"building the weights needs .* memory; got 0\.0 GiB available"):
        _ = tf.module
    assert made == []


@pytest.mark.parametrize("matrix", ["W_Q", "W_V", "W_O", "W_1", "W_2", "b_1"])
def test_matrices_that_do_not_fit_are_not_loaded(matrix: str, tmp_path: Path) -> None:
    """Also where their shapes are not known before they are built."""
    tf = ig.compile(descent(), target="gpt", n_examples=4)
    layer = next(layer for layer in tf.module.stored_layers() if matrix in layer.matrices)
    stack = getattr(layer, matrix)
    shape = (stack.shape[0], stack.shape[1] + 1, stack.shape[2])
    setattr(layer, matrix, modules.SparseStack(shape, stack.index.clone(), stack.value.clone()))
    tf.save(tmp_path)
    with pytest.raises(ig.InputError, match="have the wrong shapes"):
        ig.load(tmp_path)


# -------------------------------------------------------------------------------------------------------------- domains

SENTENCES: dict[str, tuple[ig.Algorithm, dict[str, Any], float, str]] = {
    "argument": (
        descent("sin", box=None),
        {"z_bound": 2.0, "epsilon": 1e-2},
        9.0,
        "layer forward 1: an argument of sin left the domain of its approximant; got ",
    ),
    "lane": (
        descent(),
        {"target": "gpt", "z_bound": 8.0},
        9.0,
        "lane x left the range its products are made for; got ",
    ),
    "example": (ig.OnlineSGD(d=2), {}, 9.0, "lane X left the range its products are made for; got "),
    "declared": (descent(), {"x_bound": 1.0}, 9.0, "X leaves the domain the transformer was compiled for; got "),
}
HINT = {
    "argument": "compile with a larger z_bound, or scale the inputs",
    "lane": "compile with a larger x_bound, or scale the data",
    "example": "compile with a larger x_bound, or scale the data",
    "declared": "in prompts 1, 2 of the batch",
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", SENTENCES)
def test_all_executors_say_the_same_sentence(case: str, batch: int) -> None:
    algorithm, options, size, sentence = SENTENCES[case]
    tf = ig.compile(algorithm, n_examples=4, **options)
    X, y = examples(batch)
    X = X / X.abs().amax((1, 2), keepdim=True)
    X[-2:] *= size
    said = {}
    for executor in ("plain", "dense", "fused", "auto"):
        with pytest.raises(ig.InputError) as caught:
            tf.run(X, y, executor=executor)  # type: ignore[arg-type]
        said[executor] = str(caught.value)
    assert len(set(said.values())) == 1, said
    assert sentence in said["plain"]
    where = "in prompt 1 of" if case == "example" else "in prompts 1, 2 of"  # the other example comes later
    assert (where in said["plain"]) == (batch > 1)
    assert said["plain"].endswith(HINT[case]) or (case == "declared" and batch == 1)


def test_a_long_run_that_left_its_domain_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To say in which prompt would take too long; the sentence is there all the same."""
    tf = ig.compile(descent("sin", box=None), n_examples=4, z_bound=2.0, epsilon=1e-2)
    monkeypatch.setattr(fused, "PATIENCE", 0.0)
    X, y = examples(3, size=9.0)
    with pytest.raises(ig.DomainError, match="an argument of sin left the domain") as caught:
        tf.run(X, y, executor="fused")
    assert "of the batch" not in str(caught.value)


def test_dense_runs_no_interpreter_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it watches the arguments of functions with a domain."""
    tf, (X, y) = ig.compile(descent("sin", box=None), n_examples=4, z_bound=40.0, epsilon=1e-2), examples()
    expected, layers = tf.run(X, y, X).weights, list[str]()

    def watched(*given: Any) -> Any:
        layers.append(given[1].name)
        return arguments(*given)

    arguments = plain.arguments
    monkeypatch.setattr(plain, "apply_layer", None)
    monkeypatch.setattr(plain, "arguments", watched)
    found = tf.run(X, y, X, executor="dense").weights
    assert float((found - expected).abs().max()) < 1e-12
    assert len(layers) == tf.n_layers + tf.n_readout_layers


# ----------------------------------------------------------------------------------------------------------------- auto


@pytest.fixture
def no_run_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "SHORT", 0.0)
    monkeypatch.setattr(executors, "GRAPH", 0.0)


@pytest.mark.parametrize("name", CASES)
def test_auto_equals_plain(name: str, no_run_is_short: None) -> None:
    """To 1e-13, as the fused executor, whose law this is."""
    case = CASES[name]
    prompt = case.prompts(2)
    chosen, _ = choose(case.tf, case.tf.prompt(**prompt))  # type: ignore[arg-type]
    assert isinstance(chosen, Fused)
    auto, by_hand = case.tf.run(**prompt), case.tf.run(**prompt, executor="plain")  # type: ignore[arg-type]
    for part in ("weights", "predictions", "online"):
        a, b = getattr(auto, part), getattr(by_hand, part)
        if b is not None and b.numel():
            scale = max(1.0, float(b.abs().max()))
            assert float((a - b).abs().max()) <= 1e-13 * scale


def test_short_runs_are_plain() -> None:
    """To the last bit."""
    tf, (X, y) = ig.compile(descent(), n_examples=4), examples()
    assert isinstance(choose(tf, tf.prompt(X, y))[0], Plain)
    assert torch.equal(tf.run(X, y).weights, tf.run(X, y, executor="plain").weights)


def test_a_loop_for_every_step_has_to_pay_for_being_fused() -> None:
    """A schedule makes a graph for every rate; many prompts pay for them."""
    tf = ig.compile(descent(steps=None, lr=ig.schedules.cosine(0.1, 300)), n_examples=4)
    (X, y), (many, more) = examples(), examples(20_000)
    assert plain_seconds(tf, 1, 4) > executors.SHORT
    assert isinstance(choose(tf, tf.prompt(X, y))[0], Plain)
    assert isinstance(choose(tf, tf.prompt(many, more))[0], Fused)


def test_long_runs_are_fused_and_very_long_ones_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    many, most = (ig.compile(descent(steps=steps), n_examples=4) for steps in (300, 100_000))
    (X, y), at_hand = examples(), False
    monkeypatch.setattr(Fused, "at_hand", lambda self, dtype: at_hand)
    for tf, kernel in ((many, False), (most, None)):
        chosen, compiled = choose(tf, tf.prompt(X, y))
        assert isinstance(chosen, Fused)
        assert compiled is kernel
    at_hand = True  # then a kernel costs nothing
    assert choose(many, many.prompt(X, y))[1] is None
    assert choose(many, many.prompt(X, y), compiled=True)[1] is True


def test_a_kernel_is_at_hand_once_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INNERGRAD_CACHE", str(tmp_path))
    tf, (X, y) = ig.compile(descent(steps=3), n_examples=4), examples()
    assert not tf.fused.at_hand(torch.float64)
    build.cache_clear()  # what was loaded from another folder
    tf.run(X, y, executor="fused", compiled=True)
    assert tf.fused.at_hand(torch.float64)
    assert not tf.fused.at_hand(torch.float32)


def test_auto_lets_gradients_through(no_run_is_short: None) -> None:
    tf, (X, y) = ig.compile(descent(), n_examples=4), examples()
    w0 = tf.algorithm.initial_weights(0)
    assert w0 is not None
    w0.requires_grad_()
    tf.run(X, y, w0=w0).weights[0, -1].square().sum().backward()
    assert w0.grad is not None
    assert float(w0.grad.abs().max()) > 0.0


def test_auto_flags_and_stops(no_run_is_short: None) -> None:
    """What fused has not is plain's."""
    tf, (X, y) = ig.compile(descent(), n_examples=4, x_bound=0.5), examples()
    assert len(tf.run(X, y, outside="flag").violations) == 1
    assert tf.run(X / 2, y, until=1e9).stopped == (0,)
    with pytest.raises(ig.InputError, match="refuses violations"):
        tf.run(X, y, outside="flag", executor="fused")
    with pytest.raises(ig.InputError, match="only the fused executor has a compiled path"):
        tf.run(X / 2, y, executor="plain", compiled=True)


def test_a_program_that_has_no_graph_is_plain(no_run_is_short: None) -> None:
    """Its first layer writes the lane that the second one's scope is made from."""

    class Turning(ig.Algorithm):
        targets = ("kernel",)
        variants: ClassVar[dict[str, tuple[str, ...]]] = {"kernel": ("attention",)}

        def program(self, options: ig.Options) -> Program:
            lanes = (ig.Lane("m", (), "state", shared=False), ig.Lane("v", (1,), "state", shared=False))
            mark = Layer("attention", "mark", (Attend("m", value="t"),))
            read = Layer("attention", "read", (Attend("v[k]", value="x[k]", scope="m", reduce="sum"),))
            return Program(ig.example_stream(1, 1, *lanes), (Loop(1, (mark, read)),), (), "v")

    algorithm = Turning()
    options = ig.Options("kernel", "attention", n_examples=3)
    of = Compiled(algorithm, algorithm.program(options), {}, options)
    X, y = torch.ones(1, 3, 1, dtype=torch.float64), torch.ones(1, 3, 1, dtype=torch.float64)
    prompt = of.prompt(X, y)
    assert not fused_of(of).possible
    assert isinstance(choose(of, prompt)[0], Plain)
    assert run(of, X, y, X[:, :1]).predictions.tolist() == [[[3.0]]]


def test_executors_are_a_table() -> None:
    of = record(ig.compile(descent(), n_examples=4))
    assert [type(executor_of(of, name)) for name in ("plain", "dense", "fused", "auto")] == [Plain, Dense, Fused, Plain]
    assert executor_of(of, "fused") is executor_of(of, "fused")
    with pytest.raises(ig.InputError, match="allowed: plain, dense, fused, auto"):
        executor_of(of, "gpu")


# ------------------------------------------------------------------------------------------------------------- duration


def test_a_long_dense_run_says_so_beforehand(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    tf, (X, y) = ig.compile(descent(), n_examples=4), examples()
    tf.run(X, y, executor="dense")
    assert not [one for one in recwarn if issubclass(one.category, ig.LongRun)]
    monkeypatch.setattr(dense, "LONG", 0.0)
    with pytest.warns(ig.LongRun, match="will take about 0 s on this prompt; executor='fused' computes the same"):
        tf.run(X, y, executor="dense")


def test_estimates_grow_with_the_work() -> None:
    """Prompts and steps linearly, tokens at least so."""
    one, ten = (ig.compile(descent(steps=steps), n_examples=64) for steps in (10, 100))
    for seconds in (plain_seconds, dense_seconds):
        fixed = seconds(one, 0, 65)
        assert seconds(one, 20, 65) - fixed == pytest.approx(20 * (seconds(one, 1, 65) - fixed))
        assert 7 < seconds(ten, 1, 65) / seconds(one, 1, 65) < 10.1
        assert seconds(one, 100, 130) - fixed > 1.5 * (seconds(one, 100, 65) - fixed)
