"""Certificates after the run hold, say what they are made of, and notice what they cannot certify."""

from __future__ import annotations

import random

import pytest
import torch

import innergrad as ig

LOSSES = ("squared", "log-cosh", "pseudo-huber", "logistic", "softmax")


def one_exact_step(algorithm: ig.GradientDescent, X: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """By autograd, written out."""
    variable = w.clone().requires_grad_()
    losses = algorithm.loss.value(algorithm.network.forward(variable, X), y)
    (gradient,) = torch.autograd.grad(losses.mean(-1) / 2, variable)
    after = w - algorithm.lr * (gradient + algorithm.weight_decay * w)
    return after if algorithm.box is None else after.clamp(-algorithm.box, algorithm.box)


@pytest.mark.parametrize("seed", range(60))
def test_no_weight_is_farther_off_than_certified(seed: int) -> None:
    """Random networks, losses, epsilons and precisions: every weight of every step."""
    draw = random.Random(seed)
    loss = draw.choice(LOSSES)
    output = "linear" if loss in ("logistic", "softmax") else draw.choice(["linear", "activation"])
    sizes = [draw.randint(1, 3), *[draw.choice([1, 2, 4, 8])] * draw.randint(0, 4), draw.randint(2, 3)]
    activation = draw.choice(["tanh", "sigmoid", "softplus", "gelu", "silu"])
    network = ig.Network(sizes, activation, output, draw.random() < 0.5)
    decay, box = draw.choice([0.0, 0.1]), draw.choice([None, 4.0])
    algorithm = ig.GradientDescent(network, loss, lr=0.3, steps=2, box=box, weight_decay=decay)
    tf = ig.compile(algorithm, epsilon=draw.choice([1e-2, 1e-3, 1e-4]), n_examples=8)
    dtype = draw.choice([torch.float32, torch.float64])
    X, y, _ = algorithm.random_prompt(draw.randint(1, 8), 1, torch.Generator().manual_seed(seed))
    X, y, w0 = (part.to(dtype).double() for part in (X, y, network.init(seed).clamp(-4, 4)))
    certificate = tf.certify(X, y, w0=w0, dtype=dtype)
    assert torch.equal(certificate.path[0, 1:], tf.run(X, y, w0=w0, dtype=dtype).weights[1:])
    for step, before, after in zip(
        certificate.steps, certificate.path[0].double(), certificate.path[0, 1:].double(), strict=False
    ):
        error = (after - one_exact_step(algorithm, X, y, before)).abs()
        assert bool((error <= step.radius[0]).all())
        assert float(step.radius.max()) < 1.0


@pytest.mark.parametrize(("depth", "width"), [(2, 4), (3, 8), (4, 16), (6, 8)])
def test_the_bound_is_within_sixty_times_the_error(depth: int, width: int) -> None:
    network = ig.Network([4, *[width] * (depth - 1), 2], "tanh")
    algorithm = ig.GradientDescent(network, lr=0.2, steps=1, box=None)
    X, y, _ = algorithm.random_prompt(32, 1, torch.Generator().manual_seed(0))
    certificate = ig.compile(algorithm, epsilon=1e-3, n_examples=32).certify(X, y, w0=network.init(0))
    error = float((certificate.path[0, 1] - one_exact_step(algorithm, X, y, network.init(0))).norm())
    assert error < certificate.bounds[0] < 60 * error
    assert certificate.gradient[0] == pytest.approx(certificate.bounds[0] / 0.2)


def test_it_says_what_the_bound_is_made_of() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 4, 1], "tanh"), steps=3)
    certificate = ig.compile(algorithm, epsilon=1e-3, n_examples=4).certify(torch.randn(4, 2), torch.randn(4, 1))
    for step in certificate.steps:
        assert sum(step.shares.values()) == pytest.approx(float(step.radius.sum()), rel=1e-9)
        assert any(source.startswith("tanh': derivatives") for source in step.shares)
        assert step.shares["rounding"] < 1e-12
    assert "error of the gradient <=" in str(certificate)


def test_a_batch_and_weighted_examples_are_certified() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], "tanh"), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=4)
    X, y, weights = torch.randn(5, 4, 2), torch.randn(5, 4, 1), torch.tensor([1.0, 2.0, 0.0, 3.0])
    certificate = tf.certify(X, y, sample_weight=weights)
    exact = ig.reference(algorithm, X, y, sample_weight=weights).weights[:, 1]
    assert bool(((certificate.path[:, 1] - exact).abs() <= certificate.steps[0].radius).all())


def test_an_argument_in_a_ramp_has_no_finite_bound() -> None:
    """ReLU networks are certified unless a pre-activation is in the ramp of r'."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "relu", bias=False), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=2)
    X, y, w0 = torch.tensor([[1.0], [0.5]]), torch.tensor([[1.0], [0.3]]), torch.tensor([0.8, -0.7, 0.5, 0.4])
    assert tf.certify(X, y, w0=w0).bounds[0] < 1e-12
    assert tf.certify(X, y, w0=torch.tensor([0.004, -0.7, 0.5, 0.4])).bounds[0] == float("inf")


def test_what_is_not_proven_is_not_certified_from_sup_errors() -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 1]), steps=1), target="gpt", n_examples=2)
    with pytest.raises(ig.InputError, match="measured, not proven"):
        tf.certify(torch.randn(2, 1), torch.randn(2, 1), errors="sup")
