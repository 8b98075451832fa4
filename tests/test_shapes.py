"""Predictions have the axes of y; what a caller gives is taken for what it is, or refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import innergrad as ig

ALGORITHMS = {
    "gradient descent": ig.GradientDescent(ig.Network([2, 3, 1]), steps=2),
    "functional": ig.FunctionalGradientDescent("linear", steps=3, d=2),
    "online": ig.OnlineSGD(d=2),
}


@pytest.fixture(scope="module", params=ALGORITHMS)
def tf(request: pytest.FixtureRequest) -> ig.CompiledTransformer:
    return ig.compile(ALGORITHMS[request.param], epsilon=1e-3, n_examples=6)


@pytest.mark.parametrize("batch", [(), (3,), (1,)])
@pytest.mark.parametrize("outputs", [(), (1,)])
@pytest.mark.parametrize("n", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_predictions_have_an_axis_of_outputs_if_y_has(
    batch: tuple[int, ...], outputs: tuple[int, ...], n: int, tf: ig.CompiledTransformer
) -> None:
    generator = torch.Generator().manual_seed(0)
    X, X_query = (0.3 * torch.randn(*batch, k, 2, generator=generator, dtype=torch.float64) for k in (n, 4))
    y = 0.3 * torch.randn(*batch, n, *outputs, generator=generator, dtype=torch.float64)
    run, exact = tf.run(X, y, X_query), ig.reference(tf.algorithm, X, y, X_query)
    assert run.predictions.shape == exact.predictions.shape == (*batch, 4, *outputs)
    assert (run.predictions - exact.predictions).shape == run.predictions.shape
    other = tf.run(X, y.reshape(*batch, n, 1), X_query)
    assert torch.equal(run.predictions.flatten(), other.predictions.flatten())
    assert torch.equal(run.weights, other.weights)
    bound = tf.certify(X, y, X_query, trajectory=True).predictions
    assert bound is not None
    assert bound.shape == (*(batch or (1,)), 4, *outputs)
    assert bool(((run.predictions - exact.predictions).abs() <= bound).all())


def test_weights_of_examples_whose_sum_overflows() -> None:
    tf = ig.compile(ALGORITHMS["gradient descent"], n_examples=4)
    X, y = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    ordinary, huge = (tf.run(X, y, sample_weight=w) for w in ([1.0, 2.0, 1.0], [6e307, 1.2e308, 6e307]))
    torch.testing.assert_close(ordinary.weights, huge.weights, rtol=1e-12, atol=1e-12)
    assert not torch.equal(huge.weights[0], huge.weights[-1])
    single = tf.run(X, y, sample_weight=np.array([1e38, 2e38, 1e38], dtype=np.float32), dtype=torch.float32)
    torch.testing.assert_close(single.weights.double(), ordinary.weights, rtol=1e-5, atol=1e-5)


def test_the_reference_does_not_need_the_callers_mode() -> None:
    X, y = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    expected = ig.reference(ALGORITHMS["gradient descent"], X, y, X)
    with torch.no_grad():
        found = ig.reference(ALGORITHMS["gradient descent"], X, y, X)
    assert torch.equal(found.weights, expected.weights)
    with torch.inference_mode():
        inside = ig.reference(ALGORITHMS["gradient descent"], X.clone(), y.clone(), X.clone())
    assert torch.equal(inside.weights, expected.weights)
