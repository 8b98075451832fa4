"""Functions as sums of one activation: evaluated with numpy and SciPy, compared with closed forms at random points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtr
from torch import Tensor

import innergrad as ig
from innergrad.errors import InputError
from innergrad.functions.fits.algebra import evaluate, linear_sum, piecewise_sum, scales
from innergrad.functions.fits.sigmas import SIGMAS, unit_level
from innergrad.functions.fits.smooth import UNITS, shared_sums
from innergrad.functions.fits.sums import FEATURES, FeatureSum, feature
from innergrad.functions.scalar import Function, clip_residual
from innergrad.model.storage import seal

Array = np.ndarray
NUMPYS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda z: z * ndtr(z),
    "tanh": np.tanh,
    "sigmoid": expit,
    "softplus": lambda z: np.logaddexp(0.0, z),
    "silu": lambda z: z * expit(z),
    "cos": np.cos,
}
HINGES = ["gelu", "softplus", "silu"]
WAVES = ["tanh", "sigmoid", "cos"]
CLOSED: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "tanh'": lambda t: 1 / np.cosh(t) ** 2,
    "sigmoid": expit,
    "sigmoid'": lambda t: expit(t) * expit(-t),
    "sin": np.sin,
    "sin'": np.cos,
}


def functions(name: str) -> list[Function]:
    """An activation and its derivative."""
    return [ig.ACTIVATIONS[name].r, ig.ACTIVATIONS[name].dr]


def value(f: FeatureSum, t: Array) -> Array:
    """sum_m c_m sigma(a_m t + b_m), and nothing else, written out."""
    assert f.slope == f.constant == 0.0
    total: Array = NUMPYS[f.feature](np.outer(t, f.a) + np.array(f.b)) @ np.array(f.c)
    return total


def uniform(low: float, high: float, count: int = 4_000) -> Array:
    return np.random.default_rng(0).uniform(low, high, count)


def error(f: FeatureSum, name: str, low: float, high: float) -> float:
    t = np.concatenate([uniform(low, high), [low, high]])
    return float(np.abs(value(f, t) - CLOSED[name](t)).max())


# ----------------------------------------------------------------------------------------------------- smooth functions


def test_the_activations_are_those_of_numpy_and_scipy() -> None:
    z = uniform(-40, 40)
    assert set(NUMPYS) == set(SIGMAS)
    for sigma, by_numpy in NUMPYS.items():
        np.testing.assert_allclose(feature(sigma)(z), by_numpy(z), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("domain", [(-4.0, 4.0), (-8.0, 8.0), (-1.0, 3.0)], ids=str)
@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_shared_sums_reach_epsilon_between_the_points_they_were_fitted_to(
    sigma: str, epsilon: float, domain: tuple[float, float]
) -> None:
    """And the reported error is what random points and the ends of the domain show."""
    for activation in ("tanh", "sigmoid"):
        for name, f in shared_sums(functions(activation), sigma, epsilon, domain).items():
            found = error(f, name, *domain)
            assert 0.8 * f.error - 1e-12 <= found <= 1.02 * f.error + 1e-12
            assert f.error <= epsilon
            assert f.domain == domain or sigma == name


@pytest.mark.parametrize("sigma", SIGMAS)
def test_functions_share_their_units(sigma: str) -> None:
    """Four functions, the same a and b in the same order, a constant among them; the number is one of UNITS."""
    wanted = [*functions("tanh"), *functions("sin")]
    made = shared_sums([f for f in wanted if f.name != sigma], sigma, 1e-5, (-4.0, 4.0))
    assert len({(f.a, f.b) for f in made.values()}) == 1
    for name, f in made.items():
        assert f.feature == sigma
        assert sum(a != 0 for a in f.a) in UNITS
        assert sum(a == 0 for a in f.a) == 1
        assert error(f, name, -4, 4) <= 1e-5
    assert len({f.c for f in made.values()}) == len(made)


@pytest.mark.parametrize("epsilons", [(1e-2, 1e-4, 1e-6), (9e-8, 2e-9, 3e-11)], ids=["coarse", "fine"])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_error_falls_when_units_grow(sigma: str, epsilons: tuple[float, ...]) -> None:
    """A finer epsilon takes more units, among the sums made for float32 and among the others; the error is smaller."""
    made = [shared_sums(functions("tanh"), sigma, epsilon, (-5.0, 5.0))["tanh'"] for epsilon in epsilons]
    counts, errors = [len(f.a) for f in made], [error(f, "tanh'", -5, 5) for f in made]
    assert all(a <= b for a, b in pairwise(counts))
    assert counts[-1] > counts[0]
    assert errors[-1] < errors[0] / 50


@pytest.mark.parametrize("sigma", SIGMAS)
def test_no_smaller_number_of_units_reaches_epsilon(sigma: str) -> None:
    """Least squares on the same knots, untruncated, by numpy: with the next smaller number in UNITS no width does."""
    epsilon, radius = 1e-8, 4.0
    f = shared_sums([ig.ACTIVATIONS["sigmoid"].dr], sigma, epsilon, (-radius, radius))["sigmoid'"]
    fewer = UNITS[UNITS.index(sum(a != 0 for a in f.a)) - 1]
    knots = np.linspace(-1.1 * radius, 1.1 * radius, fewer)
    t = radius * np.cos(np.pi * (np.arange(1200) + 0.5) / 1200)
    for steepness in SIGMAS[sigma].steepness or (0.0,):
        a = steepness / (knots[1] - knots[0]) * (-1.0) ** (1 + np.arange(fewer))
        b = -a * knots
        if sigma == "cos":
            a, b = (np.arange(fewer) // 2 + 1) * np.pi / (1.6 * radius), -np.pi / 2 * (np.arange(fewer) % 2)
        columns = np.c_[NUMPYS[sigma](np.outer(t, a) + b), np.ones(len(t))]
        columns /= np.abs(columns).max(0)
        c = np.linalg.lstsq(columns, CLOSED["sigmoid'"](t), rcond=1e-14)[0]
        assert np.abs(columns @ c - CLOSED["sigmoid'"](t)).max() > 0.9 * epsilon


@pytest.mark.parametrize("sigma", ["gelu", "tanh", "sigmoid", "softplus", "silu"])
def test_a_function_that_is_sigma_itself_is_one_unit(sigma: str) -> None:
    """Exact on the whole line, whatever epsilon; its derivative still takes knots."""
    f, derivative = functions(sigma)
    made = shared_sums([f, derivative], sigma, 1e-6, (-4.0, 4.0))
    itself = made[sigma]
    assert (itself.a, itself.b, itself.c, itself.error) == ((1.0,), (0.0,), (1.0,), 0.0)
    assert itself.domain == (-math.inf, math.inf)
    t = uniform(-30, 30)
    np.testing.assert_allclose(value(itself, t), NUMPYS[sigma](t), rtol=1e-15)
    if derivative.name not in SIGMAS:
        assert len(made[derivative.name].a) >= 12


def test_a_function_that_is_only_called_sigma_is_fitted() -> None:
    """The name alone is not trusted."""
    impostor = Function("tanh", lambda t: torch.tanh(t / 2))
    made = shared_sums([impostor], "tanh", 1e-6, (-4.0, 4.0))["tanh"]
    assert len(made.a) > 1
    t = uniform(-4, 4)
    assert np.abs(value(made, t) - np.tanh(t / 2)).max() <= 1e-6


def test_no_functions_need_no_units() -> None:
    assert shared_sums([], "gelu", 1e-6, (-1.0, 1.0)) == {}


def test_the_same_call_gives_the_same_sum() -> None:
    first, second = (shared_sums(functions("tanh"), "silu", 1e-6, (-3.0, 3.0)) for _ in range(2))
    assert first == second


@settings(max_examples=12, deadline=None)
@given(radius=st.floats(0.25, 12.0), sigma=st.sampled_from(list(SIGMAS)), shift=st.floats(-2.0, 2.0))
def test_sums_reach_epsilon_on_any_domain(radius: float, sigma: str, shift: float) -> None:
    domain = (shift - radius, shift + radius)
    for name, f in shared_sums(functions("tanh"), sigma, 1e-4, domain).items():
        assert error(f, name, *domain) <= min(1.02 * f.error + 1e-12, 1e-4)


@pytest.mark.parametrize("sigma", ["gelu", "sigmoid", "cos"])
def test_an_epsilon_that_cannot_be_reached_is_an_error_that_says_what_can(sigma: str) -> None:
    """A step of width 0.01: 256 units do not resolve it. What it allows is reached."""
    step = Function("step", lambda t: torch.tanh(100 * t))
    with pytest.raises(InputError, match=rf"step is not a sum of 256 units {sigma} .*\[-4, 4\].*z_bound") as failure:
        shared_sums([step], sigma, 1e-6, (-4.0, 4.0))
    least = float(str(failure.value).split("at least ")[1].split(";")[0])
    assert 1e-6 < least < 1.0
    reached = shared_sums([step], sigma, 1.1 * least, (-4.0, 4.0))["step"]
    t = uniform(-4, 4)
    assert np.abs(value(reached, t) - np.tanh(100 * t)).max() <= 1.1 * least


# ---------------------------------------------------------------------------------------------------- linear functions


@pytest.mark.parametrize("epsilon", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("radius", [2.0, 16.0])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_linear_sums_are_odd_and_zero_at_zero(sigma: str, radius: float, epsilon: float) -> None:
    """Exactly, in both precisions: what must not count has score zero."""
    f = linear_sum(sigma, radius, epsilon)
    t = uniform(-radius, radius)
    assert np.abs(value(f, t) - t).max() <= f.error + 1e-12 * radius
    assert f.error <= epsilon
    for dtype in (torch.float32, torch.float64):
        assert float(f(torch.zeros(3, dtype=dtype)).abs().max()) == 0.0
    largest = float(np.abs(f.c).max())
    np.testing.assert_allclose(value(f, -t), -value(f, t), atol=1e-14 * (largest + radius))


@pytest.mark.parametrize("sigma", HINGES)
def test_two_hinges_are_linear_on_the_whole_line(sigma: str) -> None:
    """sigma(t) - sigma(-t) = t for gelu, softplus and silu, to rounding."""
    f = linear_sum(sigma, 1.0, 1e-12)
    assert (f.a, f.c, f.error, f.domain) == ((1.0, -1.0), (1.0, -1.0), 0.0, (-math.inf, math.inf))
    t = uniform(-1e6, 1e6)
    np.testing.assert_allclose(value(f, t), t, rtol=1e-14)


@pytest.mark.parametrize("sigma", WAVES)
def test_other_linear_sums_have_a_domain(sigma: str) -> None:
    """Beyond it they are not linear: tanh and sigmoid are bounded, cos returns."""
    f = linear_sum(sigma, 16.0, 1e-6)
    assert f.domain == (-16.0, 16.0)
    assert abs(float(value(f, np.array([200.0]))[0]) - 200.0) > 20.0


@pytest.mark.parametrize("sigma", ["tanh", "sigmoid"])
def test_linear_sums_reach_epsilon_or_say_that_they_cannot(sigma: str) -> None:
    try:
        f = linear_sum(sigma, 64.0, 1e-12)
    except InputError:
        return
    assert f.error <= 1e-12


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("sigma", SIGMAS)
def test_scales_are_t_and_its_square(sigma: str, power: int) -> None:
    """Fine ones to 2e-12, coarse ones, with smaller coefficients, to 4e-8."""
    t = uniform(-1, 1)
    size = {}
    for coarse, tolerance in ((False, 2e-12), (True, 4e-8)):
        terms = scales(sigma, power, coarse)
        a, b, c = np.array(terms).T
        by_numpy = NUMPYS[sigma](np.outer(t, a) + b) @ c
        assert np.abs(by_numpy - t**power).max() < tolerance
        np.testing.assert_allclose(evaluate(terms, sigma, torch.from_numpy(t)).numpy(), by_numpy, atol=tolerance)
        size[coarse] = float(np.abs(c).sum())
    assert size[True] < size[False] or (power == 1 and sigma in HINGES)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_coarse_squares_are_made_for_float32(sigma: str) -> None:
    """They round better than the fine ones, 1.5 to 15 times, to less than 3e-5."""
    t = torch.from_numpy(uniform(-1, 1)).float()
    fine, coarse = (
        float((evaluate(scales(sigma, 2, made), sigma, t).double() - t.double() ** 2).abs().max())
        for made in (False, True)
    )
    assert coarse < fine / 1.5
    assert coarse < 3e-5


@pytest.mark.parametrize("sigma", SIGMAS)
def test_small_products_are_small(sigma: str) -> None:
    """Errors near zero count more: relative to t^2 the fine square is off by 1e-6 at most for |t| >= 1e-3."""
    t = np.geomspace(1e-3, 1, 500)
    a, b, c = np.array(scales(sigma, 2, False)).T
    assert np.abs((NUMPYS[sigma](np.outer(t, a) + b) @ c) / t**2 - 1).max() < 1e-6


@pytest.mark.parametrize("sigma", SIGMAS)
def test_the_level_of_a_constant_unit_is_not_zero(sigma: str) -> None:
    level, height = unit_level(sigma)
    assert height == pytest.approx(float(NUMPYS[sigma](np.array([level]))[0]), rel=1e-15)
    assert height > 0.5


# ---------------------------------------------------------------------------------------------------- piecewise linear


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("sigma", HINGES)
def test_a_projection_is_a_sum_of_steep_units(sigma: str, epsilon: float) -> None:
    """clip(t, -2, 2) - t to epsilon on the whole line."""
    f = piecewise_sum(clip_residual(2.0), sigma, epsilon)
    t = np.concatenate([uniform(-10, 10), 2 + uniform(-1, 1) * epsilon * 10, [-2.0, 0.0, 2.0]])
    by_numpy = f.slope * t + f.constant + NUMPYS[sigma](np.outer(t, f.a) + np.array(f.b)) @ np.array(f.c)
    assert np.abs(by_numpy - (np.clip(t, -2, 2) - t)).max() <= epsilon + 1e-13
    assert f.error <= epsilon


@pytest.mark.parametrize("sigma", HINGES)
def test_hinges_are_as_close_to_relu_as_declared(sigma: str) -> None:
    """sup |sigma - relu|: 0.16997, log 2, 0.27846; and the declared bound is not twice too large."""
    z = np.linspace(-12, 12, 100_001)
    found, declared = float(np.abs(NUMPYS[sigma](z) - np.maximum(z, 0)).max()), SIGMAS[sigma].hinge
    assert declared is not None
    assert found <= declared < 1.01 * found


@pytest.mark.parametrize("sigma", WAVES)
def test_sums_of_waves_have_no_kinks(sigma: str) -> None:
    with pytest.raises(InputError, match=rf"has kinks.*got sigma='{sigma}'; allowed: gelu, softplus, silu"):
        piecewise_sum(clip_residual(1.0), sigma, 1e-6)


@pytest.fixture
def registry() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    known = dict(FEATURES), dict(SIGMAS)
    yield
    for table, before in zip((FEATURES, SIGMAS), known, strict=True):
        table.clear()
        table.update(before)  # type: ignore[arg-type]


@pytest.mark.usefixtures("registry")
def test_an_activation_of_ones_own(tmp_path: Path) -> None:
    """Registered once, it is compiled, saved and loaded; its name never comes to mean another function."""

    def mish(z: Tensor) -> Tensor:
        return z * torch.tanh(torch.nn.functional.softplus(z, threshold=100.0))

    ig.register_sigma("mish", mish)
    ig.register_sigma("mish", mish)  # again: nothing changes
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), steps=2, box=None)
    tf = ig.compile(algorithm, target="sigma", sigma="mish", epsilon=1e-8, n_examples=6, z_bound=6.0)
    X, y, _ = algorithm.random_prompt(6, 1, torch.Generator().manual_seed(0))
    assert float((tf.run(X, y, executor="dense").weights - ig.reference(algorithm, X, y).weights).abs().max()) < 1e-7
    assert tf.verify().passed
    again = ig.load(tf.save(tmp_path))
    assert torch.equal(again.run(X, y, executor="dense").weights, tf.run(X, y, executor="dense").weights)
    with pytest.raises(ig.InputError, match="mish is another function already; take another name"):
        ig.register_sigma("mish", lambda z: 1.0001 * mish(z))
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"sigma": "mish"', '"sigma": "silu"'))
    seal(tmp_path)
    with pytest.raises(ig.InputError, match="silu is not the activation that"):
        ig.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "function", "reason"),
    [
        ("tanh", torch.tanh, "needs a name of its own"),
        ("my sine", torch.sin, "needs a name of its own"),
        ("sine", torch.sin, "does not satisfy the general decay condition; got almost periodic"),
        ("chirp", lambda z: torch.cos(z * z), "cannot be shown to satisfy the general decay condition"),
        ("hinge", torch.relu, "sums of hinge make no squares: it has to be smooth"),
        ("softsign", torch.nn.functional.softsign, "sums of softsign make no squares"),
    ],
)
def test_what_cannot_be_an_activation_is_refused_and_leaves_nothing(name: str, function: Any, reason: str) -> None:
    known = dict(FEATURES)
    with pytest.raises(ig.InputError, match=reason):
        ig.register_sigma(name, function)
    assert known == FEATURES


@pytest.mark.usefixtures("registry")
def test_products_that_do_not_reach_epsilon_are_refused() -> None:
    """hardswish is piecewise quadratic: with kinks in its derivative, squares are sums of it on small ranges only."""
    algorithm = ig.GradientDescent(ig.Network([2, 3, 1]), steps=1, box=None)
    ig.register_sigma("hardswish", torch.nn.functional.hardswish)
    with pytest.raises(
        ig.InputError, match=r"products are not sums of hardswish to within epsilon; got epsilon = 0.01"
    ):
        ig.compile(algorithm, target="sigma", sigma="hardswish", epsilon=1e-2, n_examples=4)
