"""The attack finds prompts that are much worse than random ones, inside the domain, and tells the truth about them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

import innergrad as ig
from innergrad.evidence.attack import Attack, attack


def descent(
    *sizes: int, activation: str = "tanh", loss: str = "squared", box: float | None = 2.0
) -> ig.GradientDescent:
    return ig.GradientDescent(ig.Network(list(sizes), activation), loss, lr=0.1, steps=2, box=box)


def error_of_one_step(tf: ig.CompiledTransformer, found: Attack) -> float:
    """By autograd."""
    algorithm = tf.algorithm
    assert isinstance(algorithm, ig.GradientDescent)
    after = tf.run(found.X, found.y, w0=found.w0).weights[1]
    return float((after - ig.reference(algorithm, found.X, found.y, w0=found.w0).weights[1]).norm()) / algorithm.lr


@pytest.mark.parametrize("seed", range(3))
def test_on_the_demo_it_is_three_times_worse_than_random(seed: int) -> None:
    """The demo's own settings, with a small budget; also against random weights of all the box."""
    algorithm = ig.GradientDescent(ig.Network([10, 8, 8, 1], "tanh"), lr=0.5, steps=20)
    found = attack(ig.compile(algorithm, epsilon=1e-3, n_examples=48), starts=6, iterations=25, seed=seed)
    assert found.ratio == found.error / found.median >= 3.0
    assert found.error >= 3.0 * found.uniform
    assert found.error <= found.certificate
    assert found.violations == ()


def test_the_worst_prompt_is_in_the_domain_and_as_bad_as_it_says() -> None:
    tf = ig.compile(descent(2, 4, 1), n_examples=6, x_bound=2.0, y_bound=1.0)
    found = attack(tf, starts=8, iterations=30)
    assert float(found.X.abs().max()) <= 2.0
    assert float(found.y.abs().max()) <= 1.0
    assert float(found.w0.abs().max()) <= 2.0
    assert found.domain == "x in [-2, 2], y in [-1, 1], |w| <= 2"
    assert found.error == pytest.approx(error_of_one_step(tf, found), rel=1e-6)
    assert found.certificate == pytest.approx(tf.certify(found.X, found.y, w0=found.w0).gradient[0], rel=1e-6)
    assert found.domainwide is not None
    assert found.error <= found.certificate <= found.domainwide
    assert found.error / found.certificate <= found.closest <= 1.0
    again = attack(tf, starts=8, iterations=30)
    assert torch.equal(found.X, again.X)
    assert attack(tf, starts=8, iterations=30, seed=1).error != found.error
    stored = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert stored["ratio"] == found.ratio > 3.0
    assert stored["prompt"]["w0"] == found.w0.tolist()


def test_more_iterations_are_not_worse_than_random_starts() -> None:
    tf = ig.compile(descent(2, 4, 1), n_examples=6)
    short, long = (attack(tf, starts=4, iterations=n) for n in (1, 60))
    assert long.error > 2 * short.error >= 2 * short.median


@pytest.mark.parametrize(("loss", "outputs"), [("logistic", 1), ("softmax", 3)])
def test_labels_stay_labels(loss: str, outputs: int) -> None:
    tf = ig.compile(descent(2, 3, outputs, loss=loss, box=None), n_examples=5)
    found = attack(tf, starts=4, iterations=20)
    assert set(found.y.flatten().tolist()) <= {0.0, 1.0}
    assert "labels" in found.domain
    assert found.ratio > 2.0
    assert found.error == pytest.approx(error_of_one_step(tf, found), rel=1e-6)


def test_functions_stay_in_their_domains() -> None:
    """sin is approximated on [-4, 4]. (The weights may leave it in the step, which is attacked alone.)"""
    algorithm = descent(2, 3, 1, activation="sin")
    tf = ig.compile(algorithm, n_examples=4, z_bound=4.0)
    found = attack(tf, starts=6, iterations=30)
    (V, bias), *_ = algorithm.network.unflatten(found.w0)
    assert bias is not None
    assert 2.0 < float((found.X @ V.T + bias).abs().max()) <= 4.0
    assert math.isnan(found.uniform) or found.uniform > 0.0
    wide = {name: replace(f, domain=(-math.inf, math.inf)) for name, f in tf.approximants.items()}
    assert found.error == pytest.approx(error_of_one_step(replace(tf, approximants=wide), found), rel=1e-6)
    assert found.ratio > 2.0


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (ig.FunctionalGradientDescent(d=2, steps=2), {"target": "gpt", "n_examples": 4}),
        (ig.OnlineSGD(d=2), {"n_examples": 2}),
        (descent(1, 2, 1), {"target": "gpt", "n_examples": 2}),
    ],
    ids=["kernel on gpt", "sgd", "gpt"],
)
def test_weights_that_are_fitted_are_attacked_themselves(algorithm: ig.Algorithm, options: dict[str, object]) -> None:
    """Products by GeLUs are not exact: the error is that of the module, not of the plain interpreter."""
    tf = ig.compile(algorithm, **options)  # type: ignore[arg-type]
    found = attack(tf, starts=3, iterations=8)
    assert not found.proven
    assert found.domainwide is None
    assert found.ratio > 1.5
    assert found.violations == ()
    assert ("|w|" in found.domain) == bool(tf.program.weights)


def test_a_false_certificate_is_found_out() -> None:
    """Approximants that claim a tenth of their error."""
    tf = ig.compile(descent(2, 3, 1), n_examples=4)
    boast = replace(tf, approximants={name: replace(f, error=f.error / 10) for name, f in tf.approximants.items()})
    found = attack(boast, starts=6, iterations=30, errors="sup")
    assert found.violations
    assert found.closest > 1.0
    assert "VIOLATION" in str(found)


def test_an_error_that_random_prompts_do_not_show() -> None:
    """ReLU networks are exact, unless an argument falls onto a ramp: most prompts have no error at all."""
    tf = ig.compile(descent(2, 3, 1, activation="relu"), n_examples=4, epsilons={"relu'": 2**-10})
    found = attack(tf, starts=16, iterations=20)
    assert found.median == 0.0
    assert found.ratio == math.inf
    assert found.error == pytest.approx(error_of_one_step(tf, found), rel=1e-6)
    assert found.to_json()["ratio"] is None


@pytest.mark.parametrize(
    ("algorithm", "what"),
    [
        (descent(2, 1), "zero at and around every random prompt"),
        (ig.GridDescent(ig.GradientDescent(ig.Network([1, 1]), steps=1)), "tables"),
    ],
    ids=["exact", "tables"],
)
def test_what_cannot_be_attacked_says_so(algorithm: ig.Algorithm, what: str) -> None:
    with pytest.raises(ig.InputError, match=what):
        attack(ig.compile(algorithm, n_examples=1))


def test_budgets_are_positive() -> None:
    tf = ig.compile(descent(2, 3, 1))
    for budget in ({"starts": 0}, {"iterations": 0}, {"starts": 1.5}):
        with pytest.raises(ig.InputError, match="positive integer"):
            attack(tf, **budget)
