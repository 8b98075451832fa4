"""Kernels: their matrices against numpy's formulas and scikit-learn's, their algebra, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

import innergrad as ig
from innergrad import Kernel

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(9, 4)), RNG.normal(size=(6, 4))
X, Z = X / 2, Z / 2
G = RNG.normal(size=(3, 4)) / 2
ROOT = RNG.normal(size=(4, 4))
SIGMA = ROOT @ ROOT.T / 4 + np.eye(4)


def matrix(kernel: Kernel, A: np.ndarray = X, B: np.ndarray = Z) -> np.ndarray:
    return kernel(torch.from_numpy(A), torch.from_numpy(B)).numpy()


# ------------------------------------------------------------------------------------------------------- matrices

FORMULAS: dict[str, tuple[Kernel, Callable[[], np.ndarray]]] = {
    "linear": (Kernel("linear"), lambda: linear_kernel(X, Z)),
    "relu": (Kernel("relu"), lambda: np.maximum(X @ Z.T, 0)),
    "exp": (Kernel("exp"), lambda: np.exp(X @ Z.T)),
    "softmax, before it is normalised": (Kernel("softmax"), lambda: np.exp(X @ Z.T)),
    "bandwidth": (Kernel("exp", bandwidth=0.7), lambda: np.exp(X @ Z.T / 0.49)),
    "bandwidth, linear": (Kernel("linear", bandwidth=2), lambda: X @ Z.T / 4),
    "G": (Kernel("exp", G=G), lambda: np.exp((X @ G.T) @ (Z @ G.T).T)),
    "G and bandwidth": (Kernel("relu", 0.5, G.tolist()), lambda: np.maximum(X @ G.T @ G @ Z.T, 0) * 4),
    "G, a tensor": (Kernel("linear", G=torch.from_numpy(G)), lambda: X @ G.T @ G @ Z.T),
    "covariance": (Kernel("exp", covariance=SIGMA), lambda: np.exp(X @ np.linalg.inv(SIGMA) @ Z.T)),
    "sum": (Kernel("linear") + Kernel("exp"), lambda: X @ Z.T + np.exp(X @ Z.T)),
    "weights": (0.5 * Kernel("linear") + Kernel("exp") * 2, lambda: 0.5 * X @ Z.T + 2 * np.exp(X @ Z.T)),
    "product": (Kernel("linear") * Kernel("exp"), lambda: (X @ Z.T) * np.exp(X @ Z.T)),
    "distributive": (
        Kernel("linear") * (Kernel("exp", 2.0) + 3 * Kernel("relu")) * 0.5,
        lambda: 0.5 * (X @ Z.T) * (np.exp(X @ Z.T / 4) + 3 * np.maximum(X @ Z.T, 0)),
    ),
    "powers": (Kernel("linear") * Kernel("linear") * Kernel("linear"), lambda: polynomial_kernel(X, Z, 3, 1.0, 0.0)),
    "negative weight": (Kernel("exp") + (-1) * Kernel("linear"), lambda: np.exp(X @ Z.T) - X @ Z.T),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_kernel_matrix_is_its_formula(name: str) -> None:
    """Sums of a handful of numbers of size one: rounding."""
    kernel, formula = FORMULAS[name]
    np.testing.assert_allclose(matrix(kernel), formula(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 3.0])
def test_the_exp_kernel_is_the_gaussian_kernel_with_its_norms_put_back(bandwidth: float) -> None:
    """exp(<x, z>) = exp(|x|^2 / 2) exp(-|x - z|^2 / 2) exp(|z|^2 / 2), the middle factor by scikit-learn."""
    grow_x, grow_z = (np.exp((A**2).sum(1) / (2 * bandwidth**2)) for A in (X, Z))
    expected = grow_x[:, None] * rbf_kernel(X, Z, gamma=1 / (2 * bandwidth**2)) * grow_z
    np.testing.assert_allclose(matrix(Kernel("exp", bandwidth)), expected, rtol=1e-13)


def test_a_kernel_takes_batches_in_the_precision_it_is_given() -> None:
    kernel = Kernel("exp", G=G) + 0.5 * Kernel("linear")
    batch = torch.from_numpy(np.stack([X, 2 * X]))
    assert kernel(batch, batch).shape == (2, 9, 9)
    np.testing.assert_allclose(kernel(batch, batch)[1].numpy(), matrix(kernel, 2 * X, 2 * X), rtol=1e-13)
    single = kernel(batch.float(), batch.float())
    assert single.dtype == torch.float32
    assert kernel(batch, batch).dtype == torch.float64
    np.testing.assert_allclose(single.numpy(), kernel(batch, batch).numpy(), rtol=1e-5, atol=1e-5)


def test_a_covariance_is_the_inverse_of_its_symmetric_root() -> None:
    (weight, (factor,)) = Kernel("exp", covariance=SIGMA).terms[0]
    assert weight == 1.0
    np.testing.assert_allclose(np.array(factor.G), np.linalg.inv(sqrtm(SIGMA).real), rtol=1e-12, atol=1e-13)
    identity = matrix(Kernel("exp", covariance=np.eye(4)))
    np.testing.assert_allclose(identity, matrix(Kernel("exp")), rtol=1e-14)


def test_weights_may_be_numpys_numbers() -> None:
    for weight in (2, 2.0, np.float64(2), np.float32(2), np.int64(2)):
        assert weight * Kernel("exp") == Kernel("exp") * weight == 2.0 * Kernel("exp")


# ------------------------------------------------------------------------------------------------- positive or not

POSITIVE = {
    "linear": Kernel("linear"),
    "exp": Kernel("exp", 0.8),
    "G": Kernel("exp", G=G),
    "covariance": Kernel("linear", covariance=SIGMA),
    "sum": Kernel("linear") + 0.3 * Kernel("exp"),
    "product": Kernel("linear") * Kernel("exp", 2.0),
    "sum of products": Kernel("linear") * Kernel("linear") + 2 * Kernel("exp") * Kernel("linear", G=G),
    "weight zero": Kernel("exp") + 0.0 * Kernel("linear"),
}


def smallest_eigenvalue(kernel: Kernel, prompts: int = 50, n: int = 14, d: int = 4) -> float:
    points = np.random.default_rng(1).normal(size=(prompts, n, d))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return min(np.linalg.eigvalsh(matrix(kernel, A, A)).min() for A in points)


@pytest.mark.parametrize("name", POSITIVE)
def test_a_kernel_that_says_so_is_positive_semi_definite(name: str) -> None:
    assert POSITIVE[name].positive
    assert not POSITIVE[name].normalised
    assert smallest_eigenvalue(POSITIVE[name]) >= -1e-10


@pytest.mark.parametrize(
    "kernel", [Kernel("relu"), Kernel("relu") * Kernel("relu"), Kernel("linear") + (-1) * Kernel("exp")]
)
def test_a_kernel_with_negative_eigenvalues_says_so(kernel: Kernel) -> None:
    assert not kernel.positive
    assert smallest_eigenvalue(kernel) < -1e-3, "far beyond rounding"


def test_softmax_attention_is_no_kernel() -> None:
    assert Kernel("softmax").normalised
    assert not Kernel("softmax").positive


@pytest.mark.parametrize("name", [name for name in FORMULAS if "softmax" not in name])
@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0])
def test_largest_bounds_the_diagonal_on_a_ball(name: str, radius: float) -> None:
    kernel, _ = FORMULAS[name]
    directions = np.random.default_rng(2).normal(size=(500, 4))
    points = radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    assert np.abs(np.diag(matrix(kernel, points, points))).max() <= kernel.largest(radius) * (1 + 1e-12)


@pytest.mark.parametrize("h", ["linear", "relu", "exp"])
def test_largest_is_reached_where_nothing_is_added_or_rotated(h: str) -> None:
    e = 2 * np.eye(4)[:1]
    assert Kernel(h, 1.5).largest(2.0) == pytest.approx(matrix(Kernel(h, 1.5), e, e).item(), rel=1e-14)


def test_the_bound_of_a_narrow_kernel_is_infinite_and_no_crash() -> None:
    """exp(1 / 0.03^2) is beyond float64: an algorithm that needs the bound says which of its settings to change."""
    assert Kernel("exp", bandwidth=0.03).largest() == math.inf
    with pytest.raises(ig.InputError, match="lambda_max"):
        ig.FunctionalGradientDescent(Kernel("exp", bandwidth=0.03))


# ------------------------------------------------------------------------------------------------------- round trip


@pytest.mark.parametrize("name", FORMULAS)
def test_a_kernel_survives_json(name: str) -> None:
    kernel, _ = FORMULAS[name]
    again = Kernel.from_config(json.loads(json.dumps(kernel.config())))
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert np.array_equal(matrix(again), matrix(kernel))


def test_kernels_are_compared_by_what_they_compute() -> None:
    assert Kernel("exp") == Kernel.of("exp")
    assert Kernel.of(Kernel("exp", 2.0)) == Kernel("exp", 2.0)
    assert Kernel("exp") != Kernel("exp", 2.0)
    assert Kernel("exp") != 2 * Kernel("exp")
    assert Kernel("exp", G=G) != Kernel("exp")


# -------------------------------------------------------------------------------------------------- what is refused

NOT_A_KERNEL = "softmax attention is not a kernel: it cannot be added, multiplied or scaled"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown": (lambda: Kernel("rbf"), "unknown kernel; got 'rbf'; allowed: linear, relu, exp, softmax"),
    "not a name": (lambda: Kernel(3), "unknown kernel; got 3"),  # type: ignore[arg-type]
    "not a kernel": (lambda: Kernel.of(None), "unknown kernel; got None"),  # type: ignore[arg-type]
    "softmax + softmax": (lambda: Kernel("softmax") + Kernel("softmax"), NOT_A_KERNEL),
    "exp + softmax": (lambda: Kernel("exp") + Kernel("softmax"), NOT_A_KERNEL),
    "softmax * exp": (lambda: Kernel("softmax") * Kernel("exp"), NOT_A_KERNEL),
    "2 softmax": (lambda: 2.0 * Kernel("softmax"), NOT_A_KERNEL),
    "G and covariance": (lambda: Kernel("exp", G=G, covariance=SIGMA), "G or covariance, not both"),
    "asymmetric": (lambda: Kernel("exp", covariance=[[1, 2], [0, 1]]), "symmetric positive definite"),
    "indefinite": (lambda: Kernel("exp", covariance=[[1, 2], [2, 1]]), "symmetric positive definite"),
    "singular": (lambda: Kernel("exp", covariance=np.zeros((2, 2))), "symmetric positive definite"),
    "not square": (lambda: Kernel("exp", covariance=np.ones((2, 3))), "symmetric positive definite"),
    "ragged": (lambda: Kernel("exp", G=[[1, 2], [3]]), "G is not a matrix of numbers; got list"),
    "words": (lambda: Kernel("exp", G="eye"), "G is not a matrix of numbers; got str"),  # type: ignore[arg-type]
    "empty": (lambda: Kernel("exp", G=[]), r"G must be a matrix of finite numbers; got shape \(0,\)"),
    "a vector": (lambda: Kernel("exp", G=[1.0]), r"G must be a matrix of finite numbers; got shape \(1,\)"),  # type: ignore[list-item]
    "not a number": (lambda: Kernel("exp", G=[[math.nan]]), "G must be a matrix of finite numbers"),
    "weight": (lambda: Kernel("exp") * math.inf, "the weight of a kernel must be a finite number; got inf"),
    "G too wide": (
        lambda: ig.compile(ig.FunctionalGradientDescent(Kernel("exp", G=G), d=3)),
        "G does not fit the inputs; got 4 columns; allowed: d = 3",
    ),
    **{
        f"bandwidth {value}": (lambda value=value: Kernel("exp", value), "bandwidth must be a positive number; got")
        for value in (0, -1.0, math.nan, math.inf, "1", True, None)
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_with_the_reason(name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(ig.InputError, match=reason):
        make()


def test_a_trainable_tensor_as_G_is_detached_or_refused_with_the_reason() -> None:
    G = torch.eye(4, dtype=torch.float64, requires_grad=True)
    try:
        made = Kernel("exp", G=G)
    except ig.InputError:
        return
    np.testing.assert_array_equal(matrix(made), matrix(Kernel("exp")))


@pytest.mark.parametrize(
    "combine",
    [
        lambda: Kernel("exp") + 1,
        lambda: 1 + Kernel("exp"),
        lambda: True * Kernel("exp"),
        lambda: Kernel("exp") * "2",
        lambda: Kernel("exp") * None,
        lambda: sum([Kernel("exp"), Kernel("exp")]),
    ],
)
def test_operators_are_for_kernels_and_numbers(combine: Callable[[], object]) -> None:
    with pytest.raises(TypeError):
        combine()
