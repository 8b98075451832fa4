"""Linear attention with A = 0 in whitened inputs: losses against the lab's learner, polynomials, rotations."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners.kernel_learner import KernelLearnerConfig, distance
from innergrad.lab.tasks import GaussianProcesses, Sphere
from innergrad.papers.functional_gradient import KERNELS
from innergrad.papers.functional_rotations import (
    CHUNK,
    Moments,
    best_rotations,
    best_steps,
    curvature,
    on_set,
    rotations,
    steps_of,
)

N = 30


@pytest.mark.parametrize("kernel", ["linear", "relu", "exp"])
def test_losses_are_those_of_the_labs_learner(kernel: str) -> None:
    """Any B, C and r: by ``label_weights``, prompt by prompt, and the covariances of the task."""
    model = KernelLearnerConfig(3, ("linear",), normalise="count").build(5, N + 1).double()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=random, dtype=torch.float64))
    white = GaussianProcesses(inputs=Sphere(), terms=KERNELS[kernel])
    x = white.points(CounterRNG.of(3, "rotations"), torch.arange(40), N + 1, {})
    v, K = model.label_weights(x.double()[None])[0].detach(), white.covariance(x).double()
    wanted = torch.einsum("bi,bij,bj->b", v, K, v)
    B, C, r = (model.get_parameter(name).detach()[0, :, 0] for name in ("B", "C", "r"))
    Q = r[:, None, None] * B.mT @ C
    moments = Moments.of(kernel, 40, 3)
    torch.testing.assert_close(moments.losses(Q), wanted, rtol=1e-6, atol=1e-8)
    assert float((moments.losses(Q.mT) / wanted - 1.0).abs().max()) > 0.1  # it matters which is transposed


def test_prompts_do_not_depend_on_how_many_are_drawn_at_a_time() -> None:
    few, many = Moments.of("exp", 3, 5), Moments.of("exp", CHUNK + 3, 5)
    torch.testing.assert_close(few.within, many.within[:3])
    assert many.q.shape == (CHUNK + 3, 5)


def test_steps_make_a_polynomial_and_back() -> None:
    """On the set the residual is the product of 1 - eta S; its coefficients give the steps again, complex ones too."""
    steps, moments = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64), Moments.of("relu", 20, 1)
    w = polynomial(steps.tolist())
    torch.testing.assert_close(moments.losses(on_set(steps)), moments.polynomial_losses(w))
    assert steps_of(w) == pytest.approx(steps.tolist())
    turned = [1.0 - 2.0j, 1.0 + 2.0j, 3.0]
    assert steps_of(polynomial(turned)) == pytest.approx(turned)


def polynomial(steps: list[float] | list[complex]) -> Tensor:
    """The coefficients of S, S^2, S^3 in the product of 1 - eta S."""
    sums = [sum(torch.tensor(some).prod() for some in itertools.combinations(steps, k)) for k in (1, 2, 3)]
    return torch.stack([(-1.0) ** (k + 1) * torch.as_tensor(value).real.double() for k, value in enumerate(sums)])


def test_the_best_polynomial_is_a_minimum() -> None:
    moments = Moments.of("exp", 300, 1)
    w = moments.best_polynomial()
    least = float(moments.polynomial_losses(w).mean())
    assert all(
        float(moments.polynomial_losses(w + 0.01 * one).mean()) > least for one in (*torch.eye(3), *-torch.eye(3))
    )
    assert float(moments.losses(on_set(best_steps(moments))).mean()) >= least


def test_without_a_turn_rotations_are_steps() -> None:
    steps = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    parts = torch.stack((steps, 0 * steps, steps, 0 * steps, steps), 1)
    assert torch.equal(rotations(parts), on_set(steps))
    turned = parts.clone()
    turned[1, 1] = 0.5
    values = torch.linalg.eigvals(-rotations(turned)[1])
    assert sorted(values.imag.tolist()) == pytest.approx([-0.5, 0.0, 0.0, 0.0, 0.5])
    assert values.real.tolist() == pytest.approx([2.0] * 5)


def test_the_curvature_is_that_of_the_loss_along_turns() -> None:
    """By finite differences: the Hessian in the three layers, its mean over the ten planes."""
    moments, size = Moments.of("relu", 3000, 1), 1e-3
    steps = best_steps(moments)

    def loss(layers: Tensor, plane: tuple[int, int]) -> float:
        turn = torch.zeros(5, 5, dtype=torch.float64)
        turn[plane], turn[plane[::-1]] = 0.5**0.5, -(0.5**0.5)
        return float(moments.losses(on_set(steps) + size * layers[:, None, None] * turn).mean())

    def bend(layers: Tensor) -> float:
        ends = [loss(sign * layers, plane) for plane in itertools.combinations(range(5), 2) for sign in (-1.0, 1.0)]
        return (sum(ends) / 10 - 2.0 * loss(0.0 * layers, (0, 1))) / size**2

    eye = torch.eye(3, dtype=torch.float64)
    H = torch.tensor([[bend(a + b) - bend(a) - bend(b) if i != j else 2.0 * bend(a) for j, b in enumerate(eye)]
                      for i, a in enumerate(eye)]) / 2.0  # fmt: skip
    assert curvature(moments, steps) == pytest.approx(float(torch.linalg.eigvalsh(H)[0]), rel=1e-3)


@pytest.mark.parametrize(("kernel", "turned"), [("relu", True), ("exp", True), ("linear", False)])
def test_turns_are_better_where_labels_are_not_linear(kernel: str, turned: bool) -> None:
    """With few prompts; the benchmark has many. Real steps are equal there, and apart elsewhere."""
    moments = Moments.of(kernel, 8000, 1)
    steps = best_steps(moments)
    assert (float(steps.max() - steps.min()) < 1e-2) == turned
    assert any(one.imag for one in steps_of(moments.best_polynomial())) == turned
    assert (curvature(moments, steps) < 0.0) == turned
    Q = best_rotations(moments, steps)
    assert (float(distance(Q).max()) > 0.2) == turned
    gain = float((moments.losses(on_set(steps)) - moments.losses(Q)).mean())
    assert (gain > 1e-4) == turned
