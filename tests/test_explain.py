"""Explanations: measured errors are the truth, bounds hold, and each kind of illness turns its own row red."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

import innergrad as ig
from innergrad.evidence.explain import Explanation, Health, draw, explain
from innergrad.evidence.explain.health import growth
from innergrad.targets.parts.attention import SoftmaxAttention
from innergrad.targets.parts.scores import ScoreAttention

ROWS = ("error growth", "range use", "rounding share", "cancellation in products", "softmax leakage")


def network(*sizes: int, activation: str = "tanh", bias: bool = True) -> ig.Network:
    return ig.Network(list(sizes), activation, bias=bias)


def descent(*sizes: int, activation: str = "tanh", **settings: float | None) -> ig.GradientDescent:
    return ig.GradientDescent(network(*sizes, activation=activation), **{"lr": 0.1, "steps": 2, **settings})  # type: ignore[arg-type]


def row(explanation: Explanation, name: str) -> Health:
    return next(row for row in explanation.health if row.name == name)


def red(explanation: Explanation) -> set[str]:
    return {row.name for row in explanation.health if not row.green}


MODELS = {
    "relu": lambda: ig.compile(descent(2, 3, 1), n_examples=5),
    "momentum": lambda: ig.compile(descent(2, 3, 1, activation="gelu", momentum=0.5), n_examples=5),
    "exact": lambda: ig.compile(descent(2, 1), n_examples=5),
    "kernel": lambda: ig.compile(ig.FunctionalGradientDescent(d=2, steps=2), n_examples=4),
    "kernel on gpt": lambda: ig.compile(ig.FunctionalGradientDescent(d=2, steps=2), target="gpt", n_examples=4),
    "sgd": lambda: ig.compile(ig.OnlineSGD(d=2), n_examples=3),
    "rls": lambda: ig.compile(ig.RecursiveLeastSquares(d=2), n_examples=2),
    "softmax": lambda: ig.compile(descent(1, 2, 1), target="softmax", variant="mean", n_examples=3),
    "gpt": lambda: ig.compile(descent(1, 2, 1), target="gpt", n_examples=3),
    "lookup": lambda: ig.compile(ig.GridDescent(descent(1, 1, steps=1)), n_examples=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_is_explained_and_well(name: str) -> None:
    """A bound and a measured error for every step and layer, shares that add up, five green rows, valid JSON."""
    tf = MODELS[name]()
    found = explain(tf)
    assert tuple(row.name for row in found.health) == ROWS
    assert red(found) == set(), found
    assert found.violations == []
    assert len(found.steps) == tf.program.steps
    assert all(0.0 < step.bound < 1.0 and step.path_bound is not None for step in found.steps)
    assert {layer.name for layer in found.layers} <= {layer.name for layer in tf.program.layers}
    for shares in (found.functions, found.by_layer, found.instructions):
        assert sum(shares.values()) == pytest.approx(1.0)
    assert found.learned == ("gradient" if tf.program.weights else "state")
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["worst_step"] == found.worst
    assert all(name in str(found) for name in ROWS)


def test_what_is_measured_is_the_error() -> None:
    """Against a run, the reference, and one step by autograd from the run's own weights."""
    algorithm = descent(2, 4, 1, steps=3)
    tf = ig.compile(algorithm, n_examples=6)
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(1))
    w0 = algorithm.network.init(3)
    found = explain(tf, X, y, X_query, w0=w0, errors="sup")
    run, exact = tf.run(X, y, w0=w0), ig.reference(algorithm, X, y, w0=w0)
    for number, step in enumerate(found.steps):
        restarted = ig.reference(algorithm, X, y, w0=run.weights[number]).weights[1]
        assert step.measured == pytest.approx(float((run.weights[number + 1] - restarted).norm()) / 0.1, rel=1e-6)
        distance = float((run.weights[number + 1] - exact.weights[number + 1]).norm())
        assert step.path == pytest.approx(distance, rel=1e-6)
    certificate = tf.certify(X, y, w0=w0, executor="dense", errors="sup")
    assert [step.bound for step in found.steps] == certificate.gradient
    assert [step.path_bound for step in found.steps] == certificate.weights
    worst = max(found.steps, key=lambda step: step.measured)
    assert found.steps[found.worst - 1] == worst
    forward = next(layer for layer in found.layers if layer.name == "forward 1")
    assert 0.2e-3 < forward.measured <= forward.bound == pytest.approx(1e-3, rel=1e-4)


def test_shares_say_which_function_is_the_worst() -> None:
    """tanh 30 times coarser than tanh' is nearly all of the bound, and the other way round."""
    tf = ig.compile(descent(2, 3, 1), n_examples=5)
    coarse = ig.compile(descent(2, 3, 1), n_examples=5, epsilon=3e-2)
    for name in ("tanh", "tanh'"):
        mixed = replace(tf, approximants={**tf.approximants, name: coarse.approximants[name]})
        found = explain(mixed)
        assert max(found.functions, key=lambda f: found.functions[f]) == name
        assert found.functions[name] > 0.8
        layer = {"tanh": "forward 1", "tanh'": "derivatives"}[name]
        assert next(iter(found.by_layer)) == layer


# ---------------------------------------------------------------------------------------------------------- red rows


def test_a_corrupted_weight_is_rounding_that_is_not() -> None:
    tf = ig.compile(descent(2, 3, 1), n_examples=5)
    assert red(explain(tf)) == set()
    cast(ScoreAttention, next(tf.module.layers())).W_V.value[0] += 0.05
    found = explain(tf)
    assert "rounding share" in red(found)
    assert row(found, "rounding share").value > 0.5
    forward = next(layer for layer in found.layers if layer.name == "forward 1")
    assert 0.05 < forward.measured <= forward.bound
    assert found.violations == []  # the certificate measures what the layers wrote


def test_float32_with_a_tiny_epsilon_drowns() -> None:
    algorithm = descent(2, 3, 1, activation="softplus", lr=1e-4)
    tf = ig.compile(algorithm, n_examples=5, epsilon=1e-6)
    X, y, _ = algorithm.random_prompt(5, 1, torch.Generator().manual_seed(0))
    single, double = (explain(tf, 30 * X, y, dtype=dtype, executor="plain") for dtype in (torch.float32, torch.float64))
    assert not row(single, "rounding share").green
    assert "float32" in row(single, "rounding share").reason
    assert row(double, "rounding share").green


@pytest.mark.parametrize("use", [0.9, 0.97])
def test_the_edge_of_a_domain(use: float) -> None:
    algorithm = descent(1, 2, 1, activation="sin", lr=1e-6)
    tf = ig.compile(algorithm, n_examples=2, z_bound=4.0)
    w0 = torch.zeros(algorithm.network.n_weights, dtype=torch.float64)
    w0[0], w0[4] = 1.0, 0.5
    found = explain(tf, [[4.0 * use], [0.1]], [[0.0], [0.1]], w0=w0)
    assert row(found, "range use").value == pytest.approx(use, rel=1e-4)
    assert row(found, "range use").green == (use < 0.95)
    assert "sin" in row(found, "range use").reason


def test_the_edge_of_the_box() -> None:
    algorithm = descent(1, 2, 1, box=2.0)
    w0 = algorithm.network.init(0).clamp(-1, 1)
    w0[1] = 2.0
    found = explain(ig.compile(algorithm, n_examples=2), [[0.3], [0.1]], [[0.0], [0.1]], w0=w0)
    assert red(found) == {"range use"}
    assert "box of V1" in row(found, "range use").reason


def test_terms_that_cancel() -> None:
    """2e9 - 2e9 + 1: 31 of 53 bits are lost in the forward pass."""
    algorithm = ig.GradientDescent(network(2, 1, bias=False), lr=1e-20, steps=1)
    X, y, w0 = (torch.tensor(part, dtype=torch.float64) for part in ([[1e9, 1e9 - 1]], [[0.5]], [1.0, -1.0]))
    found = explain(ig.compile(algorithm, n_examples=1), X, y, w0=w0)
    found_row = row(found, "cancellation in products")
    assert not found_row.green
    assert found_row.value == pytest.approx(30.9, abs=0.1)
    assert "forward 1" in found_row.reason


def test_attention_that_leaks() -> None:
    """Queries that no longer tell one position from the next."""
    tf = ig.compile(ig.OnlineSGD(d=2), n_examples=3)
    assert row(explain(tf), "softmax leakage").value < 1e-20
    layer = next(layer for layer in tf.module.layers() if isinstance(layer, SoftmaxAttention))
    layer.W_Q.value *= 1e-3
    found = explain(tf)
    assert not row(found, "softmax leakage").green
    assert layer.name in row(found, "softmax leakage").reason


def test_a_bound_as_large_as_the_weights_is_of_no_use() -> None:
    """It has not diverged, and every error is below its bound; yet the row is red, and says why."""
    found = explain(ig.compile(descent(2, 3, 1), n_examples=5))
    last = found.steps[-1].path_bound
    assert last is not None
    assert found.useful
    for size, green in ((2 * last, True), (last / 2, False)):
        health = growth(found.steps, found.proven, size)
        assert health.green is green
        assert ("is useless" in health.reason) is not green
        assert replace(found, size=size).useful is green


def test_a_bound_that_diverges() -> None:
    tf = ig.compile(descent(2, 4, 4, 1, lr=1.0, steps=12, box=None), n_examples=5, epsilon=1e-2)
    found = explain(tf)
    step = next(n for n, one in enumerate(found.steps, 1) if one.path_bound == float("inf"))
    assert not row(found, "error growth").green
    assert f"step {step}" in row(found, "error growth").reason
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["steps"][-1]["path_bound"] is None


def test_an_error_above_its_bound_is_a_violation() -> None:
    """A false claim of an approximant: its error is 100 times what it says."""
    tf = ig.compile(descent(2, 3, 1), n_examples=5)
    modest = {name: replace(f, error=f.error / 100) for name, f in tf.approximants.items()}
    found = explain(replace(tf, approximants=modest), executor="plain", errors="sup")
    assert any("layer forward 1" in text for text in found.violations)
    assert "VIOLATION" in str(found)


# ------------------------------------------------------------------------------------------------------------- figure


def test_the_exact_program_beside_it_rounds_too() -> None:
    """On target llama a bound is rounding alone, and so is the distance of two runs that are both within it."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None)
    tf = ig.compile(algorithm, target="llama", n_examples=4)
    close = 0
    for seed in range(6):
        X, y, _ = algorithm.random_prompt(4, 0, torch.Generator().manual_seed(seed))
        found = tf.explain(X, y)
        assert found.violations == []
        close += any(layer.measured > layer.bound for layer in found.layers)
        off = [replace(layer, measured=2.01 * layer.bound) for layer in found.layers]
        assert len(replace(found, layers=tuple(off)).violations) == sum(layer.bound > 0 for layer in off)
    assert close  # some are above once the bound


def test_the_figure(tmp_path: Path) -> None:
    """Drawn also where bounds are infinite, errors zero, and there is one step only."""
    good = explain(ig.compile(descent(2, 3, 1, steps=1), n_examples=5))
    infinite = replace(good, steps=(replace(good.steps[0], bound=float("inf"), measured=0.0, path_bound=float("inf")),))
    unknown = replace(good, steps=(replace(good.steps[0], path_bound=None),))
    sizes = []
    for number, one in enumerate((good, infinite, unknown)):
        draw(one, tmp_path / f"{number}.png")
        content = (tmp_path / f"{number}.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        sizes.append(content)
    assert len(set(sizes)) == 3


def test_data_are_given_together() -> None:
    with pytest.raises(ig.InputError, match="X and y together"):
        explain(ig.compile(descent(2, 3, 1)), torch.ones(2, 2))
