"""Predictions have the axes of y; what a caller gives is taken for what it is, or refused in a sentence."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize("exponent", [-1073, -1050, -500, 0, 500, 1021])
def test_weights_of_examples_are_what_they_are_beside_each_other(exponent: int) -> None:
    """Whatever their unit, in both precisions, as a list, an array or a view; in a run and in its certificate."""
    tf = ig.compile(ALGORITHMS["gradient descent"], n_examples=4)
    X, y = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    plain, scaled = [1.0, 3.0, 2.0], [float(np.ldexp(w, exponent)) for w in (1.0, 3.0, 2.0)]
    for dtype in (torch.float64, torch.float32):
        expected = tf.run(X, y, sample_weight=plain, dtype=dtype)
        bounds = [tf.certify(X, y, sample_weight=given, dtype=dtype).weights for given in (plain, scaled)]
        assert bounds[0] == bounds[1]
        for given in (
            scaled,
            np.array(scaled),
            np.array(scaled[::-1])[::-1],
            torch.tensor(scaled, dtype=torch.float64),
        ):
            assert torch.equal(tf.run(X, y, sample_weight=given, dtype=dtype).weights, expected.weights)
    assert torch.equal(
        ig.reference(tf.algorithm, X, y, sample_weight=scaled).weights,
        ig.reference(tf.algorithm, X, y, sample_weight=plain).weights,
    )


def test_lists_are_not_rounded_to_single_precision() -> None:
    """As torch would do with them."""
    X, y = [[0.1, 0.2], [0.3, 0.7]], [0.1, 0.9]
    assert ig.ragged([X], [y])["X"].tolist() == [X]
    tf = ig.compile(ALGORITHMS["gradient descent"], n_examples=4)
    weights = tf.run(**ig.ragged([X, X[:1]], [y, y[:1]], [[0.1, 0.7], [0.3]])).weights
    assert torch.equal(weights[0], tf.run(X, y, sample_weight=[0.1, 0.7]).weights)


def test_the_reference_does_not_need_the_callers_mode() -> None:
    X, y = torch.randn(3, 2, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    expected = ig.reference(ALGORITHMS["gradient descent"], X, y, X)
    with torch.no_grad():
        found = ig.reference(ALGORITHMS["gradient descent"], X, y, X)
    assert torch.equal(found.weights, expected.weights)
    with torch.inference_mode():
        inside = ig.reference(ALGORITHMS["gradient descent"], X.clone(), y.clone(), X.clone())
    assert torch.equal(inside.weights, expected.weights)


# ---------------------------------------------------------------------------------------------------- gradients, modes

DESCENT, SMALL = ALGORITHMS["gradient descent"], ig.GradientDescent(ig.Network([1, 2, 1]), steps=1)
TARGETS: dict[str, tuple[ig.Algorithm, dict[str, Any]]] = {
    "relu": (SMALL, {}),
    "gpt": (SMALL, {"target": "gpt", "z_bound": 16.0}),
    "softmax": (SMALL, {"target": "softmax", "z_bound": 16.0}),
    "sigma": (SMALL, {"target": "sigma", "z_bound": 16.0}),
    "kernel": (ALGORITHMS["functional"], {}),
    "online": (ALGORITHMS["online"], {}),
}
WAYS: list[tuple[Any, bool | None]] = [("plain", None), ("dense", None), ("fused", False), ("auto", None)]


SOAK = ("softmax", "sigma")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.soak) if n in SOAK else n for n in TARGETS])
def test_gradients_flow_or_are_refused_in_a_sentence(name: str) -> None:
    """Of every array a caller gives, in every executor; under no_grad and inference_mode all run, in any order."""
    algorithm, options = TARGETS[name]
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=3, **options)
    X, y, X_query = algorithm.random_prompt(3, 2, torch.Generator().manual_seed(0))
    given = {"X": 0.3 * X, "y": y, "X_query": 0.3 * X_query}
    if tf.program.n_weights:
        start = algorithm.initial_weights(0)
        given["w0"] = torch.zeros(tf.program.n_weights, dtype=torch.float64) if start is None else start
    if algorithm.weighted:
        given["sample_weight"] = torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)
    expected = tf.run(**given)
    for executor, compiled in WAYS:
        for mode in (torch.inference_mode, torch.no_grad):
            for part in given:
                args = {key: value.clone().requires_grad_(key == part) for key, value in given.items()}
                with mode():
                    run = tf.run(**args, executor=executor, compiled=compiled)  # type: ignore[arg-type]
                    inside = {key: value.clone() for key, value in args.items()}
                torch.testing.assert_close(run.predictions.clone(), expected.predictions, rtol=1e-5, atol=1e-5)
                tf.run(**inside, executor=executor, compiled=compiled)  # type: ignore[arg-type]
        for part in given:
            args = {key: value.clone().requires_grad_(key == part) for key, value in given.items()}
            if executor == "fused":
                with pytest.raises(ig.InputError, match=f"no gradients; got {part} that requires them; .*'plain'"):
                    tf.run(**args, executor=executor, compiled=compiled)  # type: ignore[arg-type]
                continue
            run = tf.run(**args, executor=executor, compiled=compiled)  # type: ignore[arg-type]
            (gradient,) = torch.autograd.grad(run.predictions.sum(), args[part])
            moved = {**given, part: given[part] + 1e-3 * gradient}
            change = float((tf.run(**moved).predictions - expected.predictions).sum())
            assert change == pytest.approx(1e-3 * float(gradient.square().sum()), rel=0.1, abs=1e-5)


def test_evidence_does_not_need_the_callers_mode() -> None:
    """Certificates take gradients of their own: under no_grad, in inference_mode, from tensors that require some."""
    tf = ig.compile(DESCENT, epsilon=1e-3, n_examples=3)
    X, y, X_query = DESCENT.random_prompt(3, 2, torch.Generator().manual_seed(0))
    expected = tf.certify(X, y, X_query)
    with torch.inference_mode():
        assert tf.verify(X.clone(), y.clone(), X_query.clone()).passed
        found = tf.certify(X.clone(), y.clone(), X_query.clone())
    assert found.gradient == expected.gradient
    with torch.no_grad():
        assert tf.certify(X, y, X_query).gradient == expected.gradient
    given = (X.clone().requires_grad_(), y.clone().requires_grad_(), X_query.clone().requires_grad_())
    assert max(tf.certify(*given, executor="fused").gradient) == pytest.approx(max(expected.gradient))


def _numbers(value: Any) -> Any:
    """What is compared of a result."""
    if isinstance(value, ig.Run):
        return [
            value.weights.tolist(),
            value.predictions.tolist(),
            None if value.online is None else value.online.tolist(),
        ]
    if isinstance(value, ig.CompiledTransformer):
        return value.options
    return [value.gradient, value.weights] if hasattr(value, "gradient") else str(value)


MODES: dict[str, Any] = {
    **{
        f"reference of {name}": lambda X, y, algorithm=algorithm: ig.reference(algorithm, X, y, X)
        for name, algorithm in {
            **ALGORITHMS,
            "adam": ig.Adam(ig.Network([2, 3, 1]), steps=2),
            "rls": ig.RecursiveLeastSquares(d=2),
            "batches": ig.GradientDescent(ig.Network([2, 3, 1]), steps=2, batches=[[0], [1, 2]]),
        }.items()
    },
    "a run that stops": lambda X, y: ig.compile(DESCENT, n_examples=3).run(X, y, X, until=0.01),
    "compiling for an error": lambda X, y: ig.compile(SMALL, n_examples=3, weight_error=0.5, data=(X[..., :1], y)),
    "an explanation": lambda X, y: ig.compile(DESCENT, n_examples=3).explain(X, y),
    "an attack": lambda X, y: ig.compile(SMALL, n_examples=3).attack(starts=2, iterations=2),
    "facts of a function": lambda X, y: ig.prove_facts(
        ig.Function("soft", lambda t: t / (1 + t * t).sqrt(), curvature=1, lipschitz=1, bound=1)
    ),
    "a run whose loss rises": lambda X, y: ig.compile(
        ig.GradientDescent(ig.Network([2, 3, 1]), lr=50.0, steps=2), n_examples=3
    ).run(X, y),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.filterwarnings("ignore::innergrad.PoorRun")
def test_nothing_needs_the_callers_mode(name: str) -> None:
    """Everything that takes gradients of its own gives the same in every mode, and of tensors made in it."""
    generator = torch.Generator().manual_seed(0)
    X, y = (0.3 * torch.randn(3, *shape, generator=generator, dtype=torch.float64) for shape in ((2,), ()))
    expected = _numbers(MODES[name](X, y))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert _numbers(MODES[name](X.clone(), y.clone())) == expected
