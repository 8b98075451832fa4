"""``verify`` can fail: a single corrupted weight in every kind of layer, a wrong program, a wrong oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import innergrad as ig
from innergrad.errors import InputError
from innergrad.evidence.report import Law, Report, WorstCase
from innergrad.targets.parts.attention import SoftmaxAttention
from logistic_regression import LogisticRegression


def algorithm(loss: str = "squared") -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 3, 3, 2], "gelu"), loss=loss, steps=1, momentum=0.5)


@cache
def transformer(loss: str = "squared") -> ig.CompiledTransformer:
    """Who changes a weight puts it back."""
    return ig.compile(algorithm(loss), epsilon=1e-2, n_examples=5)


def failing(report: Report) -> set[str]:
    return {law.name for law in report.laws if not law.holds}


LAYERS = [layer.name for layer in algorithm("softmax").program(ig.Options(n_examples=5)).layers]


@pytest.mark.parametrize("many", [1, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("number", range(len(LAYERS)), ids=[f"{i} {name}" for i, name in enumerate(LAYERS)])
def test_one_corrupted_weight_in_any_matrix_is_noticed_and_its_layer_named(number: int, many: int) -> None:
    """So many of each matrix, a little off or gone."""
    tf = transformer("softmax")
    module = list(tf.module.stored_layers())[number]
    for name, stack in ((name, getattr(module, name)) for name in module.matrices):
        entries = torch.linspace(0, len(stack.value) - 1, many + 1)[:-1].long().tolist()
        for entry, factor in zip(entries, (1.001, 0.0, 1.001, 0.0), strict=False):
            original = stack.value[entry].item()
            stack.value[entry] = original * factor
            report = tf.verify(prompts=1)
            stack.value[entry] = original
            assert failing(report) & {"weights", "probe"}, (name, entry)
            named = " ".join(law.where for law in report.laws if not law.holds)
            assert f"layer {LAYERS[number]}," in named
    assert tf.verify(prompts=1).passed


@pytest.mark.soak
def test_an_extra_weight_is_noticed() -> None:
    """In W_K and W_1, whose partners (W_Q, W_2) are nonzero in every row, a weight cannot be without effect."""
    tf = transformer()
    for module in tf.module.stored_layers():
        stack = module.W_1 if hasattr(module, "W_1") else module.W_K
        index, value = stack.index, stack.value
        free = torch.ones(stack.shape, dtype=torch.bool)
        free[tuple(index)] = False
        where = free[:, :1].nonzero()[0]  # the first row: every head has one
        stack.index, stack.value = torch.cat([index, where[:, None]], 1), torch.cat([value, value.new_tensor([0.5])])
        report = tf.verify(prompts=1)
        stack.index, stack.value = index, value
        assert failing(report), module.name


def test_weights_of_another_learning_rate_are_noticed() -> None:
    a, b = (ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), lr=lr), epsilon=1e-2) for lr in (0.1, 0.11))
    mixed = ig.CompiledTransformer(a.algorithm, a.program, a.approximants, a.options, b.module)
    assert "weights" in failing(mixed.verify())


def test_approximants_of_a_larger_epsilon_break_the_approximation_law() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]))
    fine, coarse = (ig.compile(algorithm, epsilon=e) for e in (1e-3, 1e-2))
    claimed = {name: replace(f, error=min(f.error, 1e-3)) for name, f in coarse.approximants.items()}
    lying = ig.CompiledTransformer(algorithm, fine.program, claimed, fine.options)
    assert failing(lying.verify()) == {"approximation", "proof"}


def test_a_wrong_step_function_breaks_the_approximation_law_without_a_ramp_hit() -> None:
    """A ramp excuses an error only where an argument fell into it: here none does, and relu' is 0.9 instead of 1."""
    algorithm = ig.GradientDescent(ig.Network([1, 1, 1], "relu", bias=False), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-2)
    ramp = tf.approximants["relu'"]
    low = replace(ramp, slopes=(0.0, 0.9 * ramp.slopes[1], 0.0))
    lying = ig.CompiledTransformer(algorithm, tf.program, {**tf.approximants, "relu'": low}, tf.options)
    X = torch.tensor([[0.5], [1.0], [-1.0]], dtype=torch.float64)
    report = lying.verify(X, torch.zeros(3, 1), w0=torch.ones(2))
    assert report.ramp_hits == [0]
    assert "approximation" in failing(report)
    assert tf.verify(X, torch.zeros(3, 1), w0=torch.ones(2)).passed


class ForgetsOmega(LogisticRegression):
    def program(self, options: ig.Options) -> ig.Program:
        program = super().program(options)
        forward, _, update, clear = program.body[0].layers
        error = ig.Layer("product", "error", (ig.Attend("g", ig.Score(ig.IDENTITY, ("one", "p[0] - y[0]"))),))
        return ig.Program(program.stream, (ig.Loop(self.steps, (forward, error, update, clear)),), program.readout, "p")


class ForgetsToClear(LogisticRegression):
    def program(self, options: ig.Options) -> ig.Program:
        program = super().program(options)
        layers = program.body[0].layers[:-1]
        return ig.Program(program.stream, (ig.Loop(self.steps, layers),), program.readout, "p")


class PredictsNothing(LogisticRegression):
    def program(self, options: ig.Options) -> ig.Program:
        program = super().program(options)
        return ig.Program(program.stream, program.body, (), "p")


class WrongOracle(LogisticRegression):
    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        weights, predictions = super().reference(X, y, X_query, w0, omega)
        return weights * 1.0001, predictions


@pytest.mark.parametrize(
    ("kind", "law"),
    [(ForgetsOmega, "examples"), (ForgetsToClear, "scratch"), (PredictsNothing, "oracle"), (WrongOracle, "oracle")],
)
def test_a_wrong_program_breaks_its_law(kind: type[LogisticRegression], law: str) -> None:
    assert law in failing(ig.compile(kind(d=2, steps=3), epsilon=1e-2, n_examples=6).verify())


@pytest.mark.parametrize(("target", "law"), [("relu", "approximation"), ("sigma", "examples")])
def test_a_law_without_a_limit_fails(target: str, law: str) -> None:
    """An approximant that claims nothing allows everything: then nothing was checked, and that is said."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), steps=1)
    tf = ig.compile(algorithm, target=target, n_examples=3)
    assert tf.verify(prompts=1).passed
    modest = {name: replace(f, error=math.inf) for name, f in tf.approximants.items()}
    report = ig.CompiledTransformer(algorithm, tf.program, modest, tf.options, tf.module).verify(prompts=1)
    (found,) = (one for one in report.laws if one.name == law)
    assert not found.holds
    assert "its limit is not finite" in found.where


def test_a_head_that_looks_at_other_queries_is_noticed() -> None:
    """Without it, their effect is rounding, in a run of any length: the limit is that of a single layer."""
    tf = ig.compile(ig.OnlineSGD(d=2), n_examples=3)
    X, y, X_query = tf.algorithm.random_prompt(3, 3, torch.Generator().manual_seed(0))

    def law() -> Law:
        return next(law for law in tf.verify(X, y, X_query).laws if law.name == "examples")

    assert law().holds
    largest = max(float(lane.abs().max()) for lane in tf.prompt(X, y, X_query).state(tf.program).values())
    assert law().limit <= 2 * max(1.0, largest) * tf.target.functions.rounding(tf.options)
    module = next(layer for layer in tf.module.layers() if isinstance(layer, SoftmaxAttention))
    module.W_Q.value *= 1e-3
    assert not law().holds


def test_ramp_hits_are_counted() -> None:
    algorithm = ig.GradientDescent(ig.Network([1, 1, 1], "relu", bias=False), steps=1)
    X = torch.tensor([[0.5], [1e-3], [2e-3], [-1e-3], [0.0]], dtype=torch.float64)
    wide = ig.compile(algorithm, epsilon=1e-2, epsilons={"relu'": 1e-2}).verify(X, torch.zeros(5, 1), w0=torch.ones(2))
    assert wide.ramp_hits == [2], "two arguments lie strictly inside (0, 2^-7); 0 and negative ones do not"
    narrow = ig.compile(algorithm, epsilon=1e-2).verify(X, torch.zeros(5, 1), w0=torch.ones(2))
    assert narrow.ramp_hits == [0]
    assert narrow.step_error[0] * 1e-2 < 1e-15 < wide.step_error[0]


# ------------------------------------------------------------------------------------------------------------- scales

Compiled = Callable[[], ig.CompiledTransformer]


def descent(sizes: list[int], activation: str = "tanh", **settings: object) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network(sizes, activation), **{"steps": 2, **settings})  # type: ignore[arg-type]


#: One or two of every target; every way to write gradient descent, with and without a box, and step functions.
MODELS: dict[str, Compiled] = {
    "tanh": lambda: ig.compile(descent([2, 2, 1], steps=1), epsilon=1e-2, n_examples=4),
    "linear, no box": lambda: ig.compile(descent([2, 1], box=None), n_examples=4),
    "leaky_relu, momentum": lambda: ig.compile(descent([2, 2, 1], "leaky_relu", momentum=0.5, steps=1), n_examples=4),
    "relu, compact": lambda: ig.compile(descent([2, 3, 1], "relu"), n_examples=4, variant="compact", z_bound=1e9),
    "softplus, shallow": lambda: ig.compile(
        descent([2, 3, 1], "softplus"), epsilon=1e-2, n_examples=4, variant="shallow", z_bound=1e9
    ),
    "narrow": lambda: ig.compile(descent([2, 2, 1]), epsilon=1e-2, n_examples=4, variant="narrow"),
    "l1, clip": lambda: ig.compile(descent([2, 2, 1], l1=0.1, clip=0.3), epsilon=1e-2, n_examples=4),
    "kernel": lambda: ig.compile(ig.FunctionalGradientDescent("linear", steps=3, d=2), n_examples=4),
    "kernel, exp": lambda: ig.compile(ig.FunctionalGradientDescent("exp", steps=3, d=2), n_examples=4),
    "kernel, softmax": lambda: ig.compile(ig.FunctionalGradientDescent("softmax", steps=3, d=2), n_examples=4),
    "gpt": lambda: ig.compile(descent([2, 2, 1], "relu"), target="gpt", n_examples=4),
    "gpt, online": lambda: ig.compile(ig.OnlineSGD(d=2, lr=0.05), n_examples=4),
    "softmax": lambda: ig.compile(descent([2, 2, 1]), target="softmax", variant="sink", n_examples=4),
    "sigma": lambda: ig.compile(descent([2, 2, 1]), target="sigma", n_examples=4),
}
model = cache(lambda name: MODELS[name]())
CORNERS = [(1e-8, 1e-8), (1e8, 1.0), (1e8, 1e8), (1.0, 1.0), (1e-8, 1e8)]
QUICK = ("tanh", "leaky_relu, momentum", "linear, no box", "kernel, softmax", "gpt, online")


def data(tf: ig.CompiledTransformer, x: float, y: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    X, targets, X_query = tf.algorithm.random_prompt(4, 1, torch.Generator().manual_seed(seed))
    return x * X, y * targets, x * X_query


def check_at(tf: ig.CompiledTransformer, x: float, y: float, seed: int = 0) -> str:
    """Correct weights pass on data of any scale. If not, data left the domain, or the gradient's row says why."""
    try:
        report = tf.verify(*data(tf, x, y, seed))
    except InputError as error:  # a domain, or steps that would diverge
        return "outside" if "scale" in str(error) or "bound" in str(error) else "refused"
    assert failing(report) <= {"gradient"}, f"x {x:g}, y {y:g}\n{report}"
    for law in report.laws:
        assert law.holds or "scale the data" in law.where or "on a ramp" in law.where
    return "passed" if report.passed else "gradient"


@pytest.mark.parametrize(
    ("name", "corners"),
    [*((name, 3) for name in QUICK), *(pytest.param(name, 5, marks=pytest.mark.soak) for name in MODELS)],
)
def test_correct_weights_pass_on_data_of_any_scale(name: str, corners: int) -> None:
    outcomes = {corner: check_at(model(name), *corner) for corner in CORNERS[:corners]}
    assert "refused" not in outcomes.values()
    assert outcomes.get((1.0, 1.0), "passed") == "passed"
    assert outcomes[1e-8, 1e-8] in ("passed", "gradient")
    if name in ("linear, no box", "kernel, softmax"):
        assert set(outcomes.values()) == {"passed"}, "nothing is approximated, and nothing has a domain"


@pytest.mark.soak
@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(list(MODELS)), x=st.floats(-8.0, 8.0), y=st.floats(-8.0, 8.0), seed=st.integers(0, 10_000))
def test_correct_weights_pass_on_data_of_all_scales(name: str, x: float, y: float, seed: int) -> None:
    assert check_at(model(name), 10.0**x, 10.0**y, seed) != "refused"


@pytest.mark.soak
def test_a_weight_that_is_almost_zero_is_no_failure() -> None:
    """Tokens round the weights that they share each by itself. Near a weight of zero that is more than its rounding:
    in this run one passes by it, and layers that read it are no further off than the tokens are apart.
    """
    tf = ig.compile(ig.GradientDescent(ig.Network([10, 8, 8, 1]), lr=0.5, steps=20), n_examples=48)
    report = tf.verify(seed=0, prompts=2)
    assert report.passed, report


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        pytest.param("leaky_relu, momentum", 1e8, 1e8, marks=pytest.mark.soak),
        pytest.param("leaky_relu, momentum", 1e-8, 1e8, marks=pytest.mark.soak),
        ("linear, no box", 1e8, 1e8),
        ("linear, no box", 1e-8, 1e-8),
        ("kernel, softmax", 1e8, 1e-8),
        pytest.param("gpt", 1e-8, 1e-8, marks=pytest.mark.soak),
        pytest.param("softmax", 1e-8, 1.0, marks=pytest.mark.soak),
        pytest.param("sigma", 1.0, 1e-8, marks=pytest.mark.soak),
    ],
)
def test_a_corrupted_weight_is_found_at_every_scale(name: str, x: float, y: float) -> None:
    """One in every stored layer, off by a thousandth."""
    tf = model(name)
    given = data(tf, x, y)
    for module in list(tf.module.stored_layers())[:: 1 if x == y else 3]:
        stack = getattr(module, module.matrices[-1])
        original = stack.value[0].item()
        stack.value[0] = original * 1.001
        report = tf.verify(*given)
        stack.value[0] = original
        assert failing(report) & {"weights", "probe"}, (name, module.name)


def test_the_error_of_a_gradient_has_a_verdict() -> None:
    """Unscaled data: every layer is right, and what is learned is not."""
    tf = ig.compile(descent([2, 3, 1], lr=0.1), epsilon=1e-2, n_examples=4)
    X, y, _ = data(tf, 1.0, 1.0)
    report = tf.verify(X + 1000.0 * torch.rand(4, 2, generator=torch.Generator().manual_seed(1)), 500.0 * y)
    assert max(report.step_error) > 1000
    assert failing(report) == {"gradient"}
    assert not report.passed
    (law,) = (law for law in report.laws if not law.holds)
    assert law.value == pytest.approx(max(report.step_error))
    assert "approximants are for data of size one: x is up to 8" in law.where
    assert "FAILS" in str(report)
    assert tf.verify(X, y).passed


def test_an_argument_on_a_ramp_is_what_the_gradient_fails_by() -> None:
    algorithm = ig.GradientDescent(ig.Network([1, 1, 1], "relu", bias=False), steps=1)
    X, y = torch.tensor([[1e-9]], dtype=torch.float64), torch.tensor([[1e9]], dtype=torch.float64)
    report = ig.compile(algorithm).verify(X, y, w0=torch.ones(2))
    assert report.ramp_hits == [1]
    assert failing(report) == {"gradient"}
    assert "1 arguments on a ramp" in str(report)


def test_the_worst_case_is_the_one_nearest_to_its_limit() -> None:
    worst = WorstCase("law", 0.0)
    worst.see(0.0, "nothing")
    assert worst.law == Law("law", 0.0, 0.0)
    worst.see(1e-20, "near", 1e-19)
    worst.see(1e-3, "far", 1.0)
    assert worst.law.where == "near"
    worst.see(1e-30, "not allowed", 0.0)
    assert not worst.law.holds
    worst.see(math.nan, "not a number", 1.0)
    assert worst.law.value == math.inf
