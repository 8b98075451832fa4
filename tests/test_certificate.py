"""Certificates after the run hold, say what they are made of, and notice what they cannot certify."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch

import innergrad as ig
from innergrad.evidence import certificate as certificates
from innergrad.interpret.affine import BEFORE
from logistic_regression import LogisticRegression

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


@pytest.mark.parametrize("loss", LOSSES)
def test_a_single_example_without_a_query_is_certified(loss: str) -> None:
    """One token: lanes have no axis of tokens."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 2]), loss, steps=2)
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=4)
    X, y, _ = algorithm.random_prompt(1, 1, torch.Generator().manual_seed(0))
    away = (tf.run(X, y).weights - ig.reference(algorithm, X, y).weights).norm(dim=-1)[1:]
    assert bool((away <= torch.tensor(tf.certify(X, y, trajectory=True).weights)).all())


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
        assert sum(step.shares.values()) == pytest.approx(float(step.radius.sum()), rel=1e-8)
        assert any(source.startswith("tanh': derivatives") for source in step.shares)
        assert step.shares["rounding"] < 1e-12
    assert "error of the gradient <=" in str(certificate)


class Direct(LogisticRegression):
    """Its weights take the function as it is: w += scale mean f(<w, x>) x. Without a lane in between."""

    def program(self, options: ig.Options) -> ig.Program:
        program = super().program(options)
        score = ig.Score(ig.ACTIVATIONS["tanh"].r, ("w[c]", "x[c]"))
        update = ig.Attend("w[c]", score, value="x[c]", scope="all", reduce="mean", scale=-self.lr)
        return replace(program, body=(ig.Loop(self.steps, (ig.Layer("attention", "update", (update,)),)),))


@pytest.mark.parametrize("errors", ["pointwise", "sup"])
def test_a_function_that_writes_weights_is_named(errors: Any) -> None:
    """As in lanes of tokens: its error is not rounding, nor the lack of it."""
    tf = ig.compile(Direct(d=2, steps=2), epsilon=1e-2, n_examples=4)
    X = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    for step in tf.certify(X, torch.ones(4, 1), w0=torch.tensor([0.5, -0.7, 0.0]), errors=errors).steps:
        assert max(step.shares, key=lambda name: step.shares[name]) == "tanh: update, w"
        assert step.shares.get("rounding", 0.0) < 1e-12


def cubic() -> ig.Activation:
    """t^3, with what is true of it for |t| <= 1 only."""
    r = ig.Function("cubic", lambda t: t**3, curvature=6.0, lipschitz=3.0, bound=1.0)
    dr = ig.Function("cubic'", lambda t: 3 * t**2, curvature=6.0, lipschitz=6.0, bound=3.0)
    return ig.Activation("cubic", r, dr, (-math.inf, math.inf))


@pytest.mark.parametrize("errors", ["pointwise", "sup"])
def test_facts_are_those_of_the_domain(errors: Any) -> None:
    """What compiling proves on the declared domain serves the certificate, too."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], cubic()), lr=0.3, steps=3, box=None)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=6, z_bound=1.0)
    X, y, _ = algorithm.random_prompt(6, 1, torch.Generator().manual_seed(0))
    X, w0 = 0.2 * X, 0.3 * algorithm.network.init(0)
    certificate, exact = tf.certify(X, y, w0=w0, errors=errors), ig.reference(algorithm, X, y, w0=w0)
    distance = (certificate.path[0] - exact.weights).norm(dim=-1)[1:]
    assert bool((distance <= certificate.trajectory).all())
    assert max(certificate.weights) < 0.1


def test_a_batch_and_weighted_examples_are_certified() -> None:
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], "tanh"), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=4)
    X, y, weights = torch.randn(5, 4, 2), torch.randn(5, 4, 1), torch.tensor([1.0, 2.0, 0.0, 3.0])
    certificate = tf.certify(X, y, sample_weight=weights)
    exact = ig.reference(algorithm, X, y, sample_weight=weights).weights[:, 1]
    assert bool(((certificate.path[:, 1] - exact).abs() <= certificate.steps[0].radius).all())


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_batch_in_parts_is_certified_as_a_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is little memory; prompts keep their numbers."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], "tanh"), steps=2)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=4, x_bound=2.0)
    generator = torch.Generator().manual_seed(0)
    X, y = torch.rand(5, 4, 2, generator=generator), torch.rand(5, 4, 1, generator=generator)
    whole = tf.certify(X, y, X)
    monkeypatch.setattr("innergrad.evidence.certificate.prompts_at_a_time", lambda *of: size)
    found = tf.certify(X, y, X)
    assert torch.equal(found.path, whole.path)
    for name in ("trajectory", "predictions"):
        torch.testing.assert_close(getattr(found, name), getattr(whole, name), rtol=1e-9, atol=0.0)
    for part, step in zip(found.steps, whole.steps, strict=True):
        torch.testing.assert_close(part.radius, step.radius, rtol=1e-9, atol=0.0)
        assert part.shares == pytest.approx(step.shares)
        assert part.layers == pytest.approx(step.layers)
    assert found.violations == ()
    X[3, 0, 0] = 3.0
    flagged = tf.certify(X, y, outside="flag").violations
    assert all("in prompt 3" in text for text in flagged)
    assert flagged


def test_certificates_say_what_memory_they_need_before_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([4, 64, 64, 1], "tanh"), steps=1), epsilon=1e-2, n_examples=64)
    X, y = torch.rand(64, 4), torch.rand(64, 1)
    monkeypatch.setattr("innergrad.memory.available_memory", lambda: 2**27)
    with pytest.raises(ig.InputError, match=r"a certificate for 64 tokens needs .* GiB of memory; got 0\.1 GiB"):
        tf.certify(X, y)


def test_an_argument_in_a_ramp_is_off_by_the_jump_at_most() -> None:
    """Of ReLU networks nothing but rounding is certified, unless a pre-activation is in the ramp of r'."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "relu", bias=False), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=2, epsilons={"relu'": 1e-2})
    X, y, w0 = torch.tensor([[1.0], [0.5]]), torch.tensor([[1.0], [0.3]]), torch.tensor([0.8, -0.7, 0.5, 0.4])
    assert tf.certify(X, y, w0=w0).bounds[0] < 1e-12
    w0 = torch.tensor([0.004, -0.7, 0.5, 0.4])
    certificate, exact = tf.certify(X, y, w0=w0, errors="sup"), ig.reference(algorithm, X, y, w0=w0).weights[1]
    assert 1e-3 < float((certificate.path[0, 1] - exact).norm()) <= certificate.bounds[0] < 0.1


def test_culprits_are_named_and_errors_at_the_arguments_may_still_be_finite() -> None:
    """Inside the ramp, but not at the jump: what the ramp computes is known to differ, and by how much."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "relu", bias=False), steps=1)
    tf = ig.compile(algorithm, epsilon=1e-2, n_examples=2, epsilons={"relu'": 1e-2})
    X, y, w0 = torch.tensor([[1.0], [0.5]]), torch.tensor([[1.0], [0.3]]), torch.tensor([0.004, -0.7, 0.5, 0.4])
    (culprit,) = tf.certify(X, y, w0=w0, errors="sup").culprits
    assert "step 1: derivatives, d1: 2 arguments of relu' may be at a jump (0), e.g. z = " in culprit
    pointwise = tf.certify(X, y, w0=w0, errors="pointwise")
    error = float((pointwise.path[0, 1] - one_exact_step(algorithm, X.double(), y.double(), w0.double())).norm())
    assert 1e-3 < error <= pointwise.bounds[0] < 4 * error
    assert pointwise.culprits == []


@pytest.mark.parametrize("steps", [8, pytest.param(25, marks=pytest.mark.soak)])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_the_trajectory_is_enclosed_step_by_step(momentum: float, steps: int) -> None:
    network = ig.Network([3, 6, 6, 1], "tanh")
    algorithm = ig.GradientDescent(network, lr=0.1, steps=steps, box=4.0, momentum=momentum)
    X, y, X_query = algorithm.random_prompt(10, 3, torch.Generator().manual_seed(1))
    tf = ig.compile(algorithm, epsilon=1e-5, n_examples=10)
    certificate, exact = tf.certify(X, y, X_query, w0=network.init(1)), ig.reference(algorithm, X, y, X_query, seed=1)
    distance = (certificate.path[0] - exact.weights).norm(dim=-1)[1:]
    ratios = torch.tensor(certificate.weights) / distance
    assert bool((ratios >= 1).all())
    assert float(ratios.max()) < 100
    assert certificate.diverged is None
    assert certificate.predictions is not None
    error = (tf.run(X, y, X_query, w0=network.init(1)).predictions - exact.predictions).abs()
    assert bool((error <= certificate.predictions[0]).all())


def test_a_trajectory_that_is_lost_says_so() -> None:
    """Steps far too large: errors grow without bound, and the bound says from which step on it is infinite."""
    algorithm = ig.GradientDescent(ig.Network([3, 6, 1], "tanh"), lr=2.0, steps=30, box=None)
    X, y, _ = algorithm.random_prompt(8, 1, torch.Generator().manual_seed(0))
    certificate = ig.compile(algorithm, epsilon=1e-3, n_examples=8).certify(X, y)
    assert certificate.diverged is not None
    assert certificate.weights[certificate.diverged - 2] < float("inf")
    assert certificate.weights[-1] == float("inf")
    assert all(bound < float("inf") for bound in certificate.bounds)
    assert "inf" in str(certificate)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_a_trajectory_is_never_lost_in_a_box(scale: float) -> None:
    """Both paths are in it."""
    algorithm = ig.GradientDescent(ig.Network([2, 4, 1], "tanh"), lr=2.0, steps=10, box=2.5)
    X, y, _ = algorithm.random_prompt(4, 1, torch.Generator().manual_seed(0))
    certificate = ig.compile(algorithm, epsilon=1e-2, n_examples=4).certify(scale * X, scale * y)
    apart = (certificate.path[0] - ig.reference(algorithm, scale * X, scale * y).weights).norm(dim=-1)[1:]
    assert certificate.diverged is None
    assert certificate.trajectory is not None
    assert bool((apart <= certificate.trajectory[0]).all())
    assert max(certificate.weights) <= 2 * 5.0 * math.sqrt(17)


@pytest.mark.parametrize("seed", range(8))
def test_a_step_from_every_point_of_the_ellipsoid_is_enclosed(seed: int) -> None:
    """w + A xi -> the exact step is w' + M xi + rest, entry by entry and, in norm, within the next ellipsoid."""
    generator = torch.Generator().manual_seed(seed)
    network = ig.Network([2, 4, 3, 1], ["tanh", "gelu", "softplus", "sin"][seed % 4])
    algorithm = ig.GradientDescent(network, lr=0.3, steps=1, box=None)
    X, y, _ = algorithm.random_prompt(6, 1, generator)
    tf, w = ig.compile(algorithm, epsilon=1e-4, n_examples=6, z_bound=16.0), network.init(seed)
    prompt, size = tf.prompt(X, y, w0=w), network.n_weights
    path = certificates._Path(tf, prompt, "sup", {}, certificates.Remembered())
    A = 0.02 * torch.randn(size, size, generator=generator, dtype=torch.float64) / size**0.5
    start = 0
    for lane in path.lanes:
        path.affine.start(lane.name, A[start : start + lane.size].reshape(1, 1, *lane.shape, size))
        start += lane.size
    before = prompt.state(tf.program)
    for layer, after, step_ends in tf.execute(prompt, "plain"):
        path.affine.layer(layer, before, after)
        ended = certificates.Boundary(layer, before, after)
        before = after
        if step_ends:
            break
    after_weights = prompt.weights(tf.program, before)[0]
    path.end_step(ended)
    shape = torch.cat([path.affine.errors[lane.name][BEFORE].reshape(lane.size, -1) for lane in path.lanes])
    largest = 0.0
    for _ in range(200):
        xi = torch.randn(size, generator=generator, dtype=torch.float64)
        exact = one_exact_step(algorithm, X, y, w + A @ (xi / xi.norm()))
        largest = max(largest, float(torch.linalg.solve(shape, exact - after_weights).norm()))
    assert 0.05 < largest <= 1.0


@pytest.mark.parametrize("seed", range(5))
def test_ellipsoids_enclose_sums(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    M, C, R, ball = draw(1, 5, 5), 0.3 * draw(1, 5, 7), 0.2 * draw(1, 5).abs(), 0.1
    units = 10.0 ** draw(1, 5)
    A = certificates._enclose(M, [C], R, torch.full((1, 5), ball / 5**0.5, dtype=torch.float64), units)[0]
    for _ in range(300):
        xi, beta = draw(5), draw(5)
        corner = C[0] @ draw(7).sign() + R[0] * draw(5).sign() + ball * beta / beta.norm()
        point = M[0] @ (xi / xi.norm()) + corner
        assert float(torch.linalg.solve(A, point).norm()) <= 1.0


def test_what_is_off_along_one_direction_does_not_leak_into_another() -> None:
    """Errors that stay, of size 1, along four directions; the fifth forgets, and is off by what a step adds to it."""
    new, units, A = torch.full((1, 5), 1e-12), torch.ones(1, 5), torch.diag(torch.tensor([1.0, 1, 1, 1, 0]))[None]
    M, new, units, A = (part.double() for part in (A[0].clone(), new, units, A))
    for _ in range(30):
        A = certificates._enclose(M @ A, [], new, 0 * new, units, steps=30)
    assert 1e-12 <= float(A[0, 4].norm()) <= 1e-12 * (4 * 30 * 5) ** 0.5 * 1.5  # with the least axes: 1e-6
    assert float(A[0, :4].norm()) <= 2 * 1.14


@pytest.mark.parametrize("tiny", [1e-9, 1e-13, 1e-20, 0.0])
def test_rows_of_any_size_are_enclosed(tiny: float) -> None:
    """Entries may be off by orders of magnitude less than others, also in the same units."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1.0, 1.0, tiny, tiny, 1e-3], dtype=torch.float64)
    M = sizes[:, None] * torch.randn(1, 5, 5, generator=generator, dtype=torch.float64)
    R = 1e-14 * sizes[None]
    A = certificates._enclose(M, [], R, 0 * R, torch.ones(1, 5, dtype=torch.float64), steps=50)[0]
    assert bool(torch.isfinite(A).all())
    assert bool((A.norm(dim=-1) <= 1.2 * M[0].norm(dim=-1) + 1e-12 * M.norm()).all())
    assert bool((A.norm(dim=-1) >= M[0].norm(dim=-1)).all())


def test_a_corrupted_weight_is_inside_its_certificate() -> None:
    """Rounding is measured on what the layers wrote, so is everything else that is wrong with them."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1], "tanh"), lr=0.5, steps=2)
    tf = ig.compile(algorithm, epsilon=1e-4, n_examples=5)
    X, y, _ = algorithm.random_prompt(5, 1, torch.Generator().manual_seed(0))
    honest = tf.certify(X, y, executor="dense")
    value = next(iter(tf.module.stored_layers())).get_buffer("W_O.value")
    value[0] += 0.05
    certificate, exact = tf.certify(X, y, executor="dense"), ig.reference(algorithm, X, y).weights
    error = float((certificate.path[0, -1] - exact[-1]).norm())
    assert honest.weights[-1] < error <= certificate.weights[-1]


def test_a_function_about_which_nothing_is_proven_is_refused() -> None:
    def value(t: torch.Tensor) -> torch.Tensor:
        return torch.special.ndtr(t) if isinstance(t, torch.Tensor) else torch.special.i0(t)

    facts = {"curvature": 0.25, "left": ig.Asymptote(0, 0, 0), "right": ig.Asymptote(0, 1, 0), "lipschitz": 0.4}
    cdf = ig.Function("cdf", value, **facts)  # type: ignore[arg-type]
    density = ig.ACTIVATIONS["sigmoid"].dr
    network = ig.Network([1, 2, 1], ig.Activation("cdf", cdf, density))
    tf = ig.compile(ig.GradientDescent(network, steps=1), epsilon=1e-2, n_examples=2)
    with pytest.raises(ig.InputError, match="nothing is proven about cdf, so there is no certificate"):
        tf.certify(torch.randn(2, 1), torch.randn(2, 1))


def test_outside_the_domain_there_is_no_bound_from_sup_errors() -> None:
    """sin is approximated on [-2, 2] here; an argument outside is an error, or flagged, and then nothing is known."""
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "sin", bias=False), steps=1, box=None)
    tf = ig.compile(algorithm, epsilon=1e-3, n_examples=2, z_bound=2.0)
    X, y, w0 = torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1), torch.tensor([1.0, 0.1, 0.5, 0.4])
    with pytest.raises(ig.DomainError):
        tf.certify(X, y, w0=w0)
    flagged = tf.certify(X, y, w0=w0, outside="flag", errors="sup")
    assert "an argument of sin left the domain" in flagged.violations[0]
    assert "step 1: forward 1, p1: 1 arguments of sin left the domain [-2, 2]" in flagged.culprits[0]
    assert flagged.bounds[0] == float("inf")
    pointwise = tf.certify(X, y, w0=w0, outside="flag", errors="pointwise")
    error = float((pointwise.path[0, 1] - one_exact_step(algorithm, X.double(), y.double(), w0.double())).norm())
    assert error <= pointwise.bounds[0] < float("inf")


def test_what_is_not_proven_is_not_certified_from_sup_errors() -> None:
    tf = ig.compile(ig.GradientDescent(ig.Network([1, 1]), steps=1), target="gpt", n_examples=2)
    with pytest.raises(ig.InputError, match="measured, not proven"):
        tf.certify(torch.randn(2, 1), torch.randn(2, 1), errors="sup")


def test_a_break_that_may_be_crossed_leaves_the_trajectory_bounded() -> None:
    """exp(min(t, 0)) of the softmax loss, whose argument comes near 0: its curvature is bounded on either side."""
    network = ig.Network([4, 3], bias=False)
    algorithm = ig.GradientDescent(network, "softmax", lr=0.5, steps=2, box=None)
    X, y, _ = algorithm.random_prompt(1, 1, torch.Generator().manual_seed(42))
    tf, w0 = ig.compile(algorithm, epsilon=1e-2, n_examples=4), network.init(0)
    certificate, exact = tf.certify(30 * X, y, w0=w0, errors="sup"), ig.reference(algorithm, 30 * X, y, w0=w0)
    assert certificate.trajectory is not None
    distance = (certificate.path[0] - exact.weights).norm(dim=-1)[1:]
    assert bool((distance <= certificate.trajectory[0]).all())
    assert bool(torch.isfinite(certificate.trajectory).all())


@pytest.mark.parametrize("rate", [1e-60, 1e-40, 1e-20])
@pytest.mark.parametrize("errors", ["sup", "pointwise"])
def test_a_threshold_that_is_left_out_is_part_of_the_bound(rate: float, errors: Any) -> None:
    """Beside the box it is nothing; a weight of its size it would have set to zero."""
    algorithm = ig.GradientDescent(ig.Network([1, 1], bias=False), lr=rate, l1=100.0, steps=1)
    tf, threshold = ig.compile(algorithm, n_examples=1), rate * 100.0
    certificate = tf.certify([[0.0]], [[0.0]], w0=[threshold / 2], errors=errors)
    assert float(certificate.path[0, 1]) == threshold / 2  # soft(w) is 0
    assert certificate.steps[0].radius[0, 0] >= threshold / 2


@pytest.mark.parametrize("rate", [1e-200, 1e-250, 1e-320])
def test_what_underflows_is_part_of_the_bound(rate: float) -> None:
    """w - rate g, with rate g too small to be a number, or not quite one."""
    algorithm = ig.GradientDescent(ig.Network([1, 1], bias=False), lr=rate, steps=1)
    tf = ig.compile(algorithm, n_examples=1)
    certificate = tf.certify([[1e-60 / 3]], [[1e-60 / 7]], w0=[0.0])
    step = Fraction(rate) * Fraction(1e-60 / 3) * Fraction(1e-60 / 7)
    error = abs(Fraction(float(certificate.path[0, 1])) - step)
    assert 0 < error <= Fraction(float(certificate.steps[0].radius[0, 0]))


@pytest.mark.parametrize(("target", "variant"), [("softmax", "mean"), ("softmax", "sink"), ("gpt", "raw")])
@pytest.mark.parametrize("weight", [0.0, 1e-40, 1e-300])
@pytest.mark.parametrize("executor", ["plain", "dense"])
def test_an_example_without_weight_counts_a_little(target: str, variant: str, weight: float, executor: Any) -> None:
    """A softmax gives it e^-64; the other's gradient is zero, so that it is all there is."""
    algorithm = ig.GradientDescent(ig.Network([1, 1]), lr=0.1, steps=1)
    tf = ig.compile(algorithm, target=target, variant=variant, epsilon=1e-2, n_examples=2)
    given: Any = {"sample_weight": [1.0, weight], "w0": [0.0, 0.0], "executor": executor}
    certificate = tf.certify([[0.0], [1.0]], [[0.0], [1.0]], [[0.5]], **given)
    exact = 0.1 * weight
    error = (certificate.path[0, 1] - exact).abs()
    assert bool((error <= certificate.steps[0].radius[0]).all())
    assert float(error.max()) > 1e-30
    prediction = tf.run([[0.0], [1.0]], [[0.0], [1.0]], [[0.5]], **given).predictions
    assert certificate.predictions is not None
    assert float((prediction - 1.5 * exact).abs().max()) <= float(certificate.predictions.max())


@pytest.mark.parametrize("seed", range(20))
def test_terms_that_cancel_are_rounded(seed: int) -> None:
    """Gradient, decay and momentum are added to one lane in one layer; whichever two cancel, their rounding stays."""
    draw = random.Random(seed)
    rate, momentum, decay = 10.0 ** draw.uniform(-8, 0), draw.random(), 10.0 ** draw.uniform(0, 8)
    start = draw.uniform(-1, 1)
    target = start * (1 + decay) * draw.choice([1.0, 1 + 1e-9, draw.random()])  # the gradient is about -decay w
    algorithm = ig.GradientDescent(ig.Network([1, 1], bias=False), "squared", rate, 2, None, momentum, decay)
    certificate = ig.compile(algorithm, n_examples=1).certify([[1.0]], [[target]], w0=[start])
    w, m = Fraction(start), Fraction(0)
    for number in range(2):
        m = Fraction(momentum) * m + (w - Fraction(target)) + Fraction(decay) * w
        w -= Fraction(rate) * m
        assert abs(Fraction(float(certificate.path[0, number + 1])) - w) <= Fraction(certificate.weights[number])
