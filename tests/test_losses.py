"""Losses of one's own, l(t, y): derivatives from the formula, sums of functions of linear forms, what is proven; and
the cells of the table of targets, losses and activations that were missing, each against training by autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import innergrad as ig
from cases import POISSON
from innergrad.functions import ridges
from innergrad.functions.calculus import partial, summands
from innergrad.functions.polynomials import Polynomial
from innergrad.functions.rules import evaluate
from innergrad.functions.tape import Tape
from innergrad.functions.taylor import Taylor, exponents

Formula = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Formula] = {
    "poisson": lambda t, y: (torch.exp(t) - y * t).sum(-1),
    "gamma": lambda t, y: (t + y * torch.exp(-t)).sum(-1),
    "squared": lambda t, y: ((t - y) ** 2).sum(-1),
    "log-cosh": lambda t, y: torch.log(torch.cosh(t - y)).sum(dim=-1),
    "logistic": lambda t, y: (torch.logaddexp(t, torch.zeros_like(t)) - t * y).sum(-1),
    "hinge, smooth": lambda t, y: (-torch.nn.functional.logsigmoid(y * t - 1.0)).sum(-1),
    "all rules": lambda t, y: (
        torch.sin(t * y) + t / (2 + y * y) - torch.atan(t) / (3.0 + torch.tanh(y)) + torch.sqrt(9 + t * y)
        + torch.log1p(0.1 * t * t) * torch.sigmoid(y) - torch.sinh(0.3 * t) * torch.cos(y) + (5 + t).reciprocal()
        + torch.expm1(0.2 * t) * torch.rsqrt(5 + y) + (1.5 - t) ** 3 + torch.cosh(t) / (7 - y) - (t + 4) ** -2
    ).sum(-1),
}  # fmt: skip
#: u(t, y) that is neither f(t - y) nor f(t) + g(y)
MIXED = ("gamma", "hinge, smooth")


def derivative(formula: Formula, t: Tensor, y: Tensor) -> Tensor:
    variable = t.clone().requires_grad_()
    (found,) = torch.autograd.grad(formula(variable, y).sum(), variable)
    return found


def points(n: int = 500, size: float = 1.5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    t, y = (2 * torch.rand(2, n, 1, generator=generator, dtype=torch.float64) - 1) * size
    return t, y


# ------------------------------------------------------------------------------------------------ derivatives of tapes


@pytest.mark.parametrize("name", LOSSES)
def test_the_derivative_of_a_formula_is_autograds(name: str) -> None:
    t, y = points()
    u = partial(summands(LOSSES[name]), 0)
    assert isinstance(u, Tape)
    torch.testing.assert_close(u(t, y), derivative(LOSSES[name], t, y), rtol=1e-13, atol=1e-13)
    for argument, others in ((0, (t, y)), (1, (t, y))):
        slope = partial(u, argument)
        variables = [part.clone().requires_grad_() for part in others]
        (found,) = torch.autograd.grad(u(*variables).sum(), variables[argument])
        value = torch.full_like(t, slope) if isinstance(slope, float) else slope(t, y)
        torch.testing.assert_close(value, found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (lambda t, y: (t - y).square().mean(-1), "no sum over the outputs"),
        (lambda t, y: torch.logsumexp(t, -1) - (t * y).sum(-1), "no sum over the outputs"),
        (lambda t, y: (t * t.sum(-1, keepdim=True) - y).sum(-1), r"got the derivative of torch\.sum"),
        (lambda t, y: (torch.softmax(t, -1) * y).sum(-1), r"got the derivative of torch\.softmax"),
        (lambda t, y: (t - y).abs().sum(-1), r"got the derivative of torch\.abs"),
        (lambda t, y: torch.relu(1 - t * y).sum(-1), r"got the derivative of torch\.relu"),
        (lambda t, y: (3 * t + y).sum(-1), "linear in t"),
    ],
)
def test_a_loss_that_is_coupled_or_not_smooth_is_refused_with_the_reason(formula: Formula, reason: str) -> None:
    with pytest.raises(ig.InputError, match=reason):
        ig.SmoothLoss("mine", formula)


@pytest.mark.parametrize("setting", ["t_bound", "y_bound", "accuracy"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), "wide"])
def test_settings_of_a_loss_are_positive_numbers(setting: str, value: object) -> None:
    with pytest.raises(ig.InputError, match=setting):
        ig.SmoothLoss("mine", LOSSES["poisson"], **{setting: value})  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_on_its_domain_is_refused() -> None:
    for formula in (lambda t, y: (t * torch.log(1 + t) + y).sum(-1), lambda t, y: (y * torch.log(1 + t)).sum(-1)):
        loss = ig.SmoothLoss("mine", formula, t_bound=2.0, y_bound=2.0)
        with pytest.raises(ig.InputError, match=r"not finite on its domain|not smooth on its domain|can be proven"):
            assert loss.ridges


# ---------------------------------------------------------------------------------------- sums of functions of one form


def added(loss: ig.SmoothLoss, t: Tensor, y: Tensor) -> Tensor:
    return torch.stack([r.scale * r.f(r.t * t + r.y * y) for r in loss.ridges]).sum(0)


@pytest.mark.parametrize(
    ("name", "terms"), [("poisson", 2), ("squared", 2), ("log-cosh", 1), ("logistic", 2), ("gamma", None)]
)
def test_a_form_is_exact_where_the_formula_says_so(name: str, terms: int | None) -> None:
    loss = ig.SmoothLoss(name, LOSSES[name], t_bound=1.5, y_bound=1.5, accuracy=1e-3)
    t, y = points()
    off = (added(loss, t, y) - derivative(LOSSES[name], t, y)).abs().max()
    if terms is None:
        assert 0.0 < off <= loss.remainder <= 1e-3
    else:
        assert len(loss.ridges) == terms
        assert loss.remainder == 0.0
        assert off <= 1e-14
    assert loss.bound >= derivative(LOSSES[name], t, y).abs().max()


@pytest.mark.parametrize("name", MIXED)
def test_the_remainder_of_any_smooth_loss_is_proven(name: str) -> None:
    """The bound holds at every point tried; it is within the accuracy, and a wrong polynomial does not get one."""
    loss = ig.SmoothLoss(name, LOSSES[name], t_bound=1.0, y_bound=1.0, accuracy=1e-4)
    t, y = points(20_000, 1.0)
    seen = float((added(loss, t, y) - derivative(LOSSES[name], t, y)).abs().max())
    assert 0.0 < seen <= loss.remainder <= 1e-4
    forms = [(r.t, r.y) for r in loss.ridges]
    polynomials = [r.f.value for r in loss.ridges]
    assert all(isinstance(p, Polynomial) for p in polynomials)
    u = loss.u
    polynomials[1] = replace(polynomials[1], c=(polynomials[1].c[0] + 2e-3, *polynomials[1].c[1:]))
    with pytest.raises(ig.InputError, match="could not be proven"):
        ridges._proven_remainder(u, 1.0, 1.0, forms, polynomials, 1e-4)


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(sorted(LOSSES)),
    st.floats(-1.2, 1.2),
    st.floats(-1.2, 1.2),
    st.sampled_from([0.0, 2.0**-6, 2.0**-3]),
    st.integers(0, 2**32),
)
def test_taylor_polynomials_enclose_the_formula(name: str, t: float, y: float, h: float, seed: int) -> None:
    """|u(c + d) - polynomial| is at most the terms of the next degree, around all points of the cell."""
    u, order = partial(summands(LOSSES[name]), 0), 4
    assert isinstance(u, Tape)
    centre, wide = (
        u(*(Taylor.variable(order, n, np.array([c - r]), np.array([c + r])) for n, c in ((0, t), (1, y))))
        for r in (0.0, h)
    )
    draw = np.random.default_rng(seed)
    for a, b in draw.uniform(-h, h, (20, 2)):
        terms = [(i, j, n) for n, (i, j) in enumerate(exponents(order)) if i + j < order]
        value = sum(centre.centre[n, 0] * a**i * b**j for i, j, n in terms)
        off = sum(centre.radius[n, 0] * abs(a) ** i * abs(b) ** j for i, j, n in terms)
        rest = [(i, j, n) for n, (i, j) in enumerate(exponents(order)) if i + j == order]
        off += sum((abs(wide.centre[n, 0]) + wide.radius[n, 0]) * abs(a) ** i * abs(b) ** j for i, j, n in rest)
        exact = float(u(*torch.tensor([[t + a], [y + b]], dtype=torch.float64)))
        assert abs(exact - value) <= off + 1e-14 * (1 + abs(exact))


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=9), st.floats(0.2, 2.0), st.floats(-1, 1), st.floats(0, 0.3))
def test_a_polynomial_is_inside_its_enclosures(c: list[float], slope: float, s: float, h: float) -> None:
    p = Polynomial(tuple(c), slope)
    jet = evaluate(p, np.array([s - h]), np.array([s + h]))
    t = torch.tensor(s, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(p(t), t, create_graph=True)
    second = torch.autograd.grad(first, t)[0] if first.requires_grad else torch.zeros(())
    for value, part in ((p(t), jet.value), (first, jet.first), (second, jet.second)):
        room = 1e-12 * (1 + float(part.magnitude[0]))
        assert part.lo[0] - room <= float(value.detach()) <= part.hi[0] + room


# ----------------------------------------------------------------------------------------------- against plain autograd


def trained(
    algorithm: ig.GradientDescent, X: Tensor, y: Tensor, w0: Tensor, loss: Formula, X_query: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradient descent by torch.nn and autograd, without the library's network."""
    net = algorithm.network
    modules: list[torch.nn.Module] = []
    acts = {"tanh": torch.nn.Tanh(), "relu": torch.nn.ReLU(), "leaky_relu": torch.nn.LeakyReLU(0.01),
            "relu6": torch.nn.ReLU6(), "sigmoid": torch.nn.Sigmoid()}  # fmt: skip
    for j, (c, k) in enumerate(zip(net.sizes, net.sizes[1:], strict=False), start=1):
        modules.append(torch.nn.Linear(c, k, bias=net.bias, dtype=torch.float64))
        modules += [acts[net.activation.name]] if j < net.depth or net.output == "activation" else []
    model = torch.nn.Sequential(*modules)
    torch.nn.utils.vector_to_parameters(w0.clone(), model.parameters())
    optimiser = torch.optim.SGD(model.parameters(), lr=algorithm.lr)
    for _ in range(algorithm.steps):
        optimiser.zero_grad()
        (0.5 * loss(model(X), y).mean()).backward()
        optimiser.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach(), model(X_query).detach()


def counts(n: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """X, counts y, and a query."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n + 1, 2, generator=generator, dtype=torch.float64)
    y = torch.poisson((0.5 * X[:n, :1]).exp(), generator=generator).clamp(max=8.0)
    return X[:n], y, X[n:]


@pytest.mark.parametrize("variant", ["literal", "compact", "shallow", "narrow"])
def test_poisson_regression_is_within_its_certificate(variant: str) -> None:
    """Three layers, on ReLU attention."""
    algorithm = ig.GradientDescent(ig.Network([2, 4, 4, 1]), loss=POISSON, lr=0.05, steps=3, box=8.0)
    X, y, X_query = counts(8)
    w0 = algorithm.network.init(0)
    tf = ig.compile(algorithm, variant=variant, epsilon=1e-3, n_examples=8)
    assert tf.state == "proven"
    run, certificate = tf.run(X, y, X_query, w0=w0), tf.certify(X, y, X_query, w0=w0, trajectory=True)
    weights, predictions = trained(algorithm, X, y, w0, POISSON.value, X_query)
    assert certificate.trajectory is not None
    assert certificate.predictions is not None
    off = float((run.weights[-1] - weights).norm())
    assert 0.0 < off <= float(certificate.trajectory[..., -1].max()) < 0.01
    assert bool(((run.predictions - predictions).abs() <= certificate.predictions).all())


@pytest.mark.parametrize(
    ("target", "variant"),
    [
        ("gpt", "pre-ln"),
        ("softmax", "mean"),
        ("softmax", "sink"),
        pytest.param("sigma", "backprop", marks=pytest.mark.soak),
    ],
)
def test_poisson_regression_by_fits(target: str, variant: str) -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), loss=POISSON, lr=0.05, steps=2, box=8.0)
    X, y, X_query = counts(6)
    w0 = algorithm.network.init(0)
    tf = ig.compile(algorithm, target=target, variant=variant, epsilon=1e-6, n_examples=6)
    weights, predictions = trained(algorithm, X, y, w0, POISSON.value, X_query)
    run = tf.run(X, y, X_query, w0=w0, executor="dense")
    torch.testing.assert_close(run.weights[-1], weights, rtol=0, atol=1e-5)
    torch.testing.assert_close(run.predictions, predictions, rtol=0, atol=1e-5)
    report = tf.verify(X, y, X_query, w0=w0)
    assert report.passed, str(report)


@pytest.mark.soak
def test_a_loss_with_a_remainder_is_certified_with_it(tmp_path) -> None:
    loss = ig.SmoothLoss("gamma", LOSSES["gamma"], t_bound=1.5, y_bound=2.0, accuracy=1e-2)
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), loss=loss, lr=0.1, steps=1)
    generator = torch.Generator().manual_seed(0)
    X = 0.5 * torch.randn(6, 2, generator=generator, dtype=torch.float64)
    y, w0 = 2 * torch.rand(6, 1, generator=generator, dtype=torch.float64), 0.7 * algorithm.network.init(0)
    tf = ig.compile(algorithm, epsilon=1e-4, n_examples=6)
    certificate = tf.certify(X, y, w0=w0, trajectory=True)
    weights, _ = trained(algorithm, X, y, w0, loss.value, X)
    assert certificate.trajectory is not None
    off = float((tf.run(X, y, w0=w0).weights[-1] - weights).norm())
    assert off <= float(certificate.trajectory[..., -1].max())
    fine = ig.GradientDescent(algorithm.network, loss=replace(loss, accuracy=1e-3), lr=0.1, steps=1)
    finer = ig.compile(fine, epsilon=1e-4, n_examples=6).certify(X, y, w0=w0)
    assert max(finer.gradient) < max(certificate.gradient), "the remainder is part of it"
    report = tf.verify(X, y, w0=w0)
    assert report.passed, str(report)
    again = ig.load(tf.save(tmp_path), extensions=[loss])
    assert torch.equal(again.run(X, y, w0=w0).weights, tf.run(X, y, w0=w0).weights)


def test_outside_the_domain_of_a_loss_is_an_error() -> None:
    loss = ig.SmoothLoss("poisson", LOSSES["poisson"], t_bound=1.0, y_bound=2.0)
    tf = ig.compile(ig.GradientDescent(ig.Network([2, 3, 1]), loss=loss, steps=1), epsilon=1e-2, n_examples=4)
    X, y = torch.ones(4, 2, dtype=torch.float64), torch.ones(4, 1, dtype=torch.float64)
    with pytest.raises(ig.DomainError, match=r"targets leave the domain of the loss 'poisson'.*y_bound = 2"):
        tf.run(X, 3 * y)
    with pytest.raises(ig.DomainError, match=r"poisson' in t"):
        tf.run(X, y, w0=torch.full((tf.program.n_weights,), 2.0, dtype=torch.float64))
    assert tf.run(0.1 * X, y, w0=tf.algorithm.initial_weights(0)).weights.isfinite().all()


# -------------------------------------------------------------------------------------------------- the softmax loss


@pytest.mark.parametrize(
    ("target", "variant"),
    [("gpt", "pre-ln"), ("gpt", "raw"), ("softmax", "mean"), ("softmax", "sink"), ("sigma", "backprop")],
)
def test_the_softmax_loss_is_autograds_on_every_target(target: str, variant: str) -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 4]), loss="softmax", lr=0.5, steps=3)
    X, y, X_query = algorithm.random_prompt(5, 3, torch.Generator().manual_seed(1))
    w0 = algorithm.network.init(1)
    tf = ig.compile(algorithm, target=target, variant=variant, n_examples=8)

    def cross_entropy(t: Tensor, one_hot: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(t, one_hot.argmax(-1), reduction="none")

    weights, predictions = trained(algorithm, X, y, w0, cross_entropy, X_query)
    for executor in ("plain", "dense"):
        run = tf.run(X, y, X_query, w0=w0, executor=executor)
        torch.testing.assert_close(run.weights[-1], weights, rtol=0, atol=1e-8)
        torch.testing.assert_close(run.predictions, predictions, rtol=0, atol=1e-8)


def test_markers_are_tokens_of_their_own() -> None:
    """One for each class, before the examples, after a sink."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 3]), loss="softmax", steps=1)
    X, y, X_query = algorithm.random_prompt(4, 1, torch.Generator().manual_seed(1))
    tf = ig.compile(algorithm, target="softmax", variant="sink", n_examples=4)
    start = tf.trace(X, y, X_query)[0][1]
    assert tf.program.carriers == 3
    assert tf.program.sink
    assert torch.equal(start["mark"][0, 1:4], torch.eye(3, dtype=torch.float64))
    assert not bool(start["mark"][0, [0, 4, 5, 6, 7, 8]].any())
    assert start["unmarked"][0].tolist() == [1, 0, 0, 0, 1, 1, 1, 1, 1]
    assert start["omega"][0].tolist() == [0, 0, 0, 0, 2.25, 2.25, 2.25, 2.25, 0]


# -------------------------------------------------------------------------------- kinks, and activated outputs, by fits


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "relu6"])
@pytest.mark.parametrize("output", ["linear", "activation"])
@pytest.mark.parametrize(
    ("target", "variant", "sigma"), [("softmax", "sink", None), ("sigma", "backprop", "gelu"), ("sigma", None, "silu")]
)
def test_networks_with_kinks_train_as_in_torch(
    activation: str, output: str, target: str, variant: str | None, sigma: str | None
) -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 3, 1], activation, output), lr=0.2, steps=2)  # type: ignore[arg-type]
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(2))
    w0 = algorithm.network.init(2) + 0.05
    tf = ig.compile(algorithm, target=target, variant=variant, sigma=sigma, n_examples=6)
    run = tf.run(X, y, X_query, w0=w0, executor="dense")
    weights, predictions = trained(algorithm, X, y, w0, LOSSES["squared"], X_query)
    torch.testing.assert_close(run.weights[-1], weights, rtol=0, atol=1e-7)
    torch.testing.assert_close(run.predictions, predictions, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("sizes", "variant"), [([2, 1], "backprop"), ([2, 3, 1], "recursion"), ([2, 2, 3, 1], "recursion")]
)
def test_activated_outputs_on_sigma(sizes: list[int], variant: str) -> None:
    algorithm = ig.GradientDescent(ig.Network(sizes, "sigmoid", "activation", bias=False), lr=0.5, steps=2)
    X, y, X_query = algorithm.random_prompt(6, 2, torch.Generator().manual_seed(2))
    w0 = algorithm.network.init(2)
    tf = ig.compile(algorithm, target="sigma", variant=variant, epsilon=1e-7, n_examples=6)
    run = tf.run(X, y, X_query, w0=w0, executor="dense")
    weights, predictions = trained(algorithm, X, y, w0, LOSSES["squared"], X_query)
    torch.testing.assert_close(run.weights[-1], weights, rtol=0, atol=1e-6)
    torch.testing.assert_close(run.predictions, predictions, rtol=0, atol=1e-6)
    report = tf.verify(X, y, X_query, w0=w0)
    assert report.passed, str(report)
