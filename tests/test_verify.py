"""``verify`` can fail: a single corrupted weight in every kind of layer, a wrong program, a wrong oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

import innergrad as ig
from innergrad.evidence import verification
from innergrad.evidence.report import Law, Report
from innergrad.targets.parts.attention import SoftmaxAttention
from logistic_regression import LogisticRegression


def algorithm(loss: str = "squared") -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network([2, 3, 3, 2], "gelu"), loss=loss, steps=2, momentum=0.5)


@cache
def transformer(loss: str = "squared") -> ig.CompiledTransformer:
    """Who changes a weight puts it back."""
    return ig.compile(algorithm(loss), epsilon=1e-2, n_examples=5)


def failing(report: Report) -> set[str]:
    return {law.name for law in report.laws if not law.holds}


LAYERS = [layer.name for layer in algorithm("softmax").program(ig.Options(n_examples=5)).layers]
PROVE = cache(verification.prove)


@pytest.fixture
def proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are changed and approximants are not: their proofs, most of the time of ``verify``, are made once."""
    monkeypatch.setattr(verification, "prove", PROVE)


@pytest.mark.usefixtures("proven_once")
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


@pytest.mark.usefixtures("proven_once")
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


@pytest.mark.usefixtures("proven_once")
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
    assert "what it may be off by is not finite" in found.where


def test_a_head_that_looks_at_other_queries_is_noticed() -> None:
    """Without it, their effect is rounding, in a run of any length: the limit is that of a single layer."""
    tf = ig.compile(ig.OnlineSGD(d=2), n_examples=3)
    X, y, X_query = tf.algorithm.random_prompt(3, 3, torch.Generator().manual_seed(0))

    def law() -> Law:
        return next(law for law in tf.verify(X, y, X_query).laws if law.name == "examples")

    assert law().holds
    assert law().limit == pytest.approx(tf.target.functions.rounding(tf.options))
    module = next(layer for layer in tf.module.layers() if isinstance(layer, SoftmaxAttention))
    module.W_Q.value *= 1e-3
    assert not law().holds


def test_ramp_hits_are_counted() -> None:
    algorithm = ig.GradientDescent(ig.Network([1, 1, 1], "relu", bias=False), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-2)
    X = torch.tensor([[0.5], [1e-3], [2e-3], [-1e-3], [0.0]], dtype=torch.float64)
    report = tf.verify(X, torch.zeros(5, 1), w0=torch.ones(2))
    assert report.ramp_hits == [2], "two arguments lie strictly inside (0, 2^-7); 0 and negative ones do not"
