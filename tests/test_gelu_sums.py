"""Sums of GeLUs and of exponentials: evaluated with SciPy's erf and numpy's exp, compared with torch's own functions.

Points are random, never those of the grids on which the library fits and measures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import Tensor
from torch.nn import functional as F

import innergrad as ig
from innergrad.functions.fits.exponentials import exponential_sum
from innergrad.functions.fits.gelu import UNITS, coarse_square, gelu_sum, reciprocal_sum, square
from innergrad.functions.fits.sums import FeatureSum
from innergrad.functions.scalar import Function, clip_residual

U = 2.0**-53
TORCHS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
    "sin": torch.sin,
}


def uniform(lo: float, hi: float, count: int = 4_000, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(lo, hi, count)


def by_torch(name: str, derivative: bool, t: np.ndarray) -> np.ndarray:
    """The activation as torch ships it, or its derivative by autograd."""
    argument = torch.from_numpy(t).requires_grad_()
    value = TORCHS[name](argument)
    if derivative:
        (value,) = torch.autograd.grad(value.sum(), argument)
    return value.detach().numpy()


def by_scipy(f: FeatureSum, t: np.ndarray) -> np.ndarray:
    """slope t + constant + sum c phi(a t + b), written out."""
    z = np.outer(t, f.a) + np.array(f.b)
    phi = np.exp(z) if f.feature == "exp" else z * (1 + erf(z / math.sqrt(2))) / 2
    return f.slope * t + f.constant + phi @ np.array(f.c)


def amplification(f: FeatureSum, t: np.ndarray) -> float:
    """Sum of the sizes of all terms, the most that rounding of the terms can be multiplied by."""
    z = np.abs(np.outer(t, f.a)) + np.abs(np.array(f.b))
    terms = np.exp(z) if f.feature == "exp" else z
    return float((np.abs(f.slope * t) + abs(f.constant) + terms @ np.abs(np.array(f.c))).max())


# ----------------------------------------------------------------------------------------------- functions as GeLUs


@pytest.mark.parametrize("radius", [2.0, 5.0, 8.0, 16.0])
@pytest.mark.parametrize("derivative", [False, True], ids=["r", "r'"])
@pytest.mark.parametrize("name", TORCHS)
def test_a_gelu_sum_reaches_every_epsilon_between_the_points_it_was_fitted_to(
    name: str, derivative: bool, radius: float
) -> None:
    """And it takes no fewer units for a smaller epsilon."""
    f = ig.ACTIVATIONS[name].dr if derivative else ig.ACTIVATIONS[name].r
    t, units = uniform(-radius, radius), [0]
    expected = by_torch(name, derivative, t)
    for epsilon in (1e-2, 1e-4, 1e-6, 1e-9):
        fitted = gelu_sum(f, epsilon, (-radius, radius))
        error = np.abs(by_scipy(fitted, t) - expected).max()
        assert error <= epsilon
        assert fitted.error <= epsilon
        assert error <= 1.001 * fitted.error + 1e-12, "what was measured on a grid holds between its points"
        assert fitted.domain == (-radius, radius)
        units.append(len(fitted.a))
    assert units == sorted(units)
    assert units[-1] > units[1], "accuracy is not free"


def test_a_gelu_sum_fits_an_interval_that_is_not_centred_at_zero() -> None:
    t = uniform(3.0, 7.0)
    fitted = gelu_sum(ig.ACTIVATIONS["sin"].r, 1e-8, (3.0, 7.0))
    assert np.abs(by_scipy(fitted, t) - np.sin(t)).max() <= 1e-8


@pytest.mark.parametrize("f", [gelu_sum(ig.ACTIVATIONS["tanh"].r, 1e-9, (-8.0, 8.0)), exponential_sum(2.0, 1e-9)])
def test_a_feature_sum_is_its_formula_to_rounding(f: FeatureSum) -> None:
    """Called, and evaluated the way the weights do; 300 terms or fewer, in either precision."""
    t = uniform(*f.domain)
    for dtype, unit in ((torch.float64, U), (torch.float32, 2.0**-24)):
        given = torch.from_numpy(t).to(dtype)
        expected, size = by_scipy(f, given.double().numpy()), amplification(f, t)
        for value in (f(given), f.as_weights(given)):
            assert value.dtype == dtype
            assert np.abs(value.double().numpy() - expected).max() <= 16 * unit * size


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "sin"])
def test_float32_costs_less_than_1e_5(name: str) -> None:
    """The coefficients do not cancel: the weights that are right to 1e-9 serve float32 as well."""
    fitted, t = gelu_sum(ig.ACTIVATIONS[name].r, 1e-9, (-8.0, 8.0)), uniform(-8.0, 8.0).astype(np.float32)
    error = fitted(torch.from_numpy(t)).double().numpy() - by_torch(name, False, t.astype(np.float64))
    assert np.abs(error).max() < 1e-5


def test_gelu_of_z_minus_gelu_of_minus_z_is_z() -> None:
    z = uniform(-20.0, 20.0)
    difference = z * (1 + erf(z / math.sqrt(2))) / 2 + z * (1 + erf(-z / math.sqrt(2))) / 2
    assert np.abs(difference - z).max() <= 4 * U * 20
    t = torch.from_numpy(z)
    assert float((F.gelu(t) - F.gelu(-t) - t).abs().max()) <= 4 * U * 20


# -------------------------------------------------------------------------------------------------- hinges and ramps

HINGES: dict[str, tuple[Function, Callable[[np.ndarray], np.ndarray]]] = {
    "relu": (ig.ACTIVATIONS["relu"].r, lambda t: np.maximum(t, 0)),
    "leaky_relu": (ig.ACTIVATIONS["leaky_relu"].r, lambda t: np.where(t > 0, t, 0.01 * t)),
    "relu6": (ig.ACTIVATIONS["relu6"].r, lambda t: np.clip(t, 0, 6)),
    "clip 4": (clip_residual(4.0), lambda t: np.clip(t, -4, 4) - t),
    "clip 0.3": (clip_residual(0.3), lambda t: np.clip(t, -0.3, 0.3) - t),
}


@pytest.mark.parametrize("epsilon", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("name", HINGES)
def test_a_piecewise_linear_function_is_within_its_stated_error_everywhere(name: str, epsilon: float) -> None:
    """Also next to the hinges, where the error is, and far outside any domain. The rest is rounding of a t + b."""
    f, expected = HINGES[name]
    fitted = gelu_sum(f, epsilon, (-8.0, 8.0))
    near = [knot + uniform(-3, 3) / abs(a) for knot, a in zip(-np.divide(fitted.b, fitted.a), fitted.a, strict=True)]
    t = np.concatenate([uniform(-8.0, 8.0), uniform(-1e3, 1e3), *near])
    error = np.abs(by_scipy(fitted, t) - expected(t))
    assert fitted.error <= epsilon
    assert (error <= fitted.error + 8 * U * (1 + np.abs(t))).all()
    assert error.max() > 0.4 * fitted.error, "the stated error is not idle"


@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "relu6"])
def test_a_step_function_is_within_epsilon_outside_its_ramps_and_the_ramps_are_counted(
    name: str, epsilon: float
) -> None:
    """A ramp is a difference of two hinges, each of size |t| / width: so is its rounding."""
    fitted = gelu_sum(ig.ACTIVATIONS[name].dr, epsilon, (-8.0, 8.0))
    lo, hi = np.array(fitted.ramps).T
    width = (hi - lo).min()
    t = np.concatenate([uniform(-8.0, 8.0), *(x + uniform(-2 * width, 2 * width) for x in (*lo, *hi))])
    inside = ((t[:, None] > lo) & (t[:, None] < hi)).any(1)
    error = np.abs(by_scipy(fitted, t) - by_steps(name, t))
    assert error[~inside].max() <= epsilon + 16 * U * 8 / width
    assert error[inside].max() > 0.9, "a ramp is not a step"
    assert int(fitted.hits(torch.from_numpy(t))) == inside.sum()


def by_steps(name: str, t: np.ndarray) -> np.ndarray:
    argument = torch.from_numpy(t).requires_grad_()
    (slope,) = torch.autograd.grad(getattr(F, name)(argument).sum(), argument)
    return slope.numpy()


def test_a_smooth_approximant_has_no_ramps_to_hit() -> None:
    fitted = gelu_sum(ig.ACTIVATIONS["tanh"].r, 1e-3, (-4.0, 4.0))
    assert int(fitted.hits(torch.zeros(5))) == 0


# --------------------------------------------------------------------------------------------------------- products


def gelu_square(scales: tuple[tuple[float, float], ...], z: Tensor) -> Tensor:
    total = torch.zeros_like(z)
    for s, c in scales:
        total += c * (F.gelu(z / s) + F.gelu(-z / s))
    return total


SQUARES = {"fine": square, "coarse": coarse_square}


def stated(make: Callable[[], object]) -> dict[torch.dtype, float]:
    """The errors that the docstring states, to one digit."""
    found = re.findall(r"(\d+e-\d+) in (float\d+)", make.__doc__ or "")
    return {getattr(torch, dtype): float(error) for error, dtype in found}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", SQUARES)
def test_squares_have_the_errors_their_docstrings_state(name: str, dtype: torch.dtype) -> None:
    z = torch.from_numpy(uniform(-1.0, 1.0, 200_000)).to(dtype)
    error = float((gelu_square(SQUARES[name](), z).double() - z.double() ** 2).abs().max())
    assert error < 1.5 * stated(SQUARES[name])[dtype]


def test_each_square_is_the_better_one_in_its_precision() -> None:
    z = torch.from_numpy(uniform(-1.0, 1.0, 200_000))

    def error(scales: tuple[tuple[float, float], ...], dtype: torch.dtype) -> float:
        given = z.to(dtype)
        return float((gelu_square(scales, given).double() - given.double() ** 2).abs().max())

    assert error(square(), torch.float64) < error(coarse_square(), torch.float64)
    assert error(coarse_square(), torch.float32) < error(square(), torch.float32)


@pytest.mark.parametrize("name", SQUARES)
def test_products_come_from_squares_of_sums_and_differences(name: str) -> None:
    """u v = ((u + v)^2 - (u - v)^2) / 4 with |u| + |v| <= R: half the square's error, times R^2."""
    R, scales = 6.0, SQUARES[name]()
    u, v = (torch.from_numpy(uniform(-R / 2, R / 2, seed=seed)) for seed in (1, 2))
    product = (gelu_square(scales, (u + v) / R) - gelu_square(scales, (u - v) / R)) * R**2 / 4
    assert float((product - u * v).abs().max()) <= 1.5 * stated(SQUARES[name])[torch.float64] / 2 * R**2


# ----------------------------------------------------------------------------------------- exponentials, reciprocals


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("radius", [0.5, 1.0, 2.0, 4.0])
def test_eight_exponentials_are_the_identity_to_epsilon(radius: float, epsilon: float) -> None:
    fitted, t = exponential_sum(radius, epsilon), uniform(-radius, radius)
    assert fitted.feature == "exp"
    assert len(fitted.a) == 8
    assert np.abs(by_scipy(fitted, t) - t).max() <= epsilon
    assert fitted.error <= epsilon
    pairs = list(zip(fitted.a, fitted.c, strict=True))
    assert sorted(pairs) == sorted((-a, -c) for a, c in pairs)


@pytest.mark.parametrize(("radius", "epsilon"), [(1.0, 1e-3), (1.0, 1e-6), (2.0, 1e-3), (4.0, 1e-6)])
def test_a_ninth_constant_head_would_get_the_coefficient_zero(radius: float, epsilon: float) -> None:
    """Least squares with it; t is odd, constants are even. Rounding is multiplied by the condition number."""
    rates = np.array(exponential_sum(radius, epsilon).a)
    half = uniform(0.0, radius, 300)
    t = np.concatenate([half, -half])
    columns = np.concatenate([np.exp(np.outer(t, rates)), np.ones((len(t), 1))], axis=1)
    solution, _, rank, _ = np.linalg.lstsq(columns, t, rcond=None)
    assert rank == 9
    assert abs(solution[8]) <= U * np.linalg.cond(columns)
    assert np.abs(solution[:8]).max() > 0.9


def test_a_smaller_epsilon_makes_larger_coefficients() -> None:
    """The largest rates that reach epsilon are taken: less accuracy, less rounding."""
    sizes = [max(exponential_sum(2.0, epsilon).c) for epsilon in (1e-3, 1e-6, 1e-9, 1e-12)]
    assert sizes == sorted(sizes)
    assert sizes[0] < 2.0 < sizes[-1]


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-9, 1e-11])
@pytest.mark.parametrize("low", [0.5, 0.1, 0.01, 0.001])
def test_reciprocals_have_a_relative_error_of_epsilon(low: float, epsilon: float) -> None:
    fitted = reciprocal_sum(low, epsilon)
    t = np.exp(math.log(low) * uniform(0.0, 1.0))
    assert np.abs(by_scipy(fitted, t) * t - 1).max() <= epsilon
    assert fitted.domain == (low, 1.0)


@pytest.mark.parametrize("low", [0.5, 0.1, 0.01])
def test_an_accuracy_just_missed_takes_more_units(low: float) -> None:
    """Epsilon is the largest error, not a typical one: asked for a little less than it, a fit is not given again."""
    t, epsilon = np.exp(math.log(low) * uniform(0.0, 1.0)), 1e-2
    for _ in range(5):
        fitted = reciprocal_sum(low, epsilon)
        error = np.abs(by_scipy(fitted, t) * t - 1).max()
        assert error <= epsilon
        better = reciprocal_sum(low, 0.95 * error)
        assert len(better.a) > len(fitted.a)
        epsilon = 0.95 * error


# ------------------------------------------------------------------------------------------ what cannot be reached


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: gelu_sum(ig.ACTIVATIONS["tanh"].r, 1e-15, (-8.0, 8.0)), rf"tanh is not a sum of {UNITS[-1]} GeLUs"),
        (lambda: gelu_sum(ig.ACTIVATIONS["sin"].r, 1e-6, (-500.0, 500.0)), r"on \[-500, 500\].*smaller z_bound"),
        (lambda: reciprocal_sum(0.01, 1e-16), rf"1 / t on \[0.01, 1\] is not a sum of {UNITS[-1]} GeLUs"),
        (lambda: exponential_sum(2.0, 1e-15), r"t is not a sum of eight exponentials .* on \[-2, 2\]"),
    ],
)
def test_an_epsilon_that_cannot_be_reached_is_refused_with_what_can(make: Callable[[], FeatureSum], named: str) -> None:
    with pytest.raises(ig.InputError, match=named) as caught:
        make()
    assert "got epsilon = " in str(caught.value)
    assert "allowed: at least " in str(caught.value)


def test_what_the_refusal_names_can_be_reached() -> None:
    """The accuracy that an error message offers is one that works."""
    tanh, domain = ig.ACTIVATIONS["tanh"].r, (-8.0, 8.0)
    with pytest.raises(ig.InputError) as caught:
        gelu_sum(tanh, 1e-16, domain)
    offered = float(str(caught.value).split("at least ")[1].split(";")[0])
    assert gelu_sum(tanh, 1.1 * offered, domain).error <= 1.1 * offered


# ----------------------------------------------------------------------------------------------------------- domains


def test_arguments_outside_the_domain_are_found() -> None:
    """The farthest one, on either side; the ends belong to the domain."""
    fitted = replace(gelu_sum(ig.ACTIVATIONS["tanh"].r, 1e-3, (-4.0, 4.0)), domain=(-4.0, 6.0))

    def outside(*t: float) -> float | None:
        return fitted.outside(torch.tensor(t, dtype=torch.float64))

    assert outside(-4.0, 0.0, 6.0) is None
    assert outside() is None
    assert outside(6.5, 0.0) == 6.5
    assert outside(-4.5, 0.0) == -4.5
    assert outside(-4.5, 6.25) == -4.5
    assert outside(-4.25, 6.5) == 6.5
    assert gelu_sum(ig.ACTIVATIONS["relu"].r, 1e-3, (-4.0, 4.0)).outside(torch.tensor([1e9])) is None
