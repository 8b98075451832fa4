"""Measures of the lab against scikit-learn and closed forms; what is not defined is said, never infinite."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.metrics import Curve, mean_r2, pooled_r2, squared_error, within_prompt_r2

B, N = 60, 7


def prompts() -> tuple[Tensor, Tensor]:
    """Labels with a level for each prompt, and predictions of them."""
    index = torch.arange(B)
    rng = CounterRNG.of(0, "metrics")
    y = 2.0 * rng.fork("level").normal(index, 1) + rng.fork("labels").normal(index, N)
    return y + 0.5 * rng.fork("error").normal(index, N), y


MEASURES = [squared_error, pooled_r2, within_prompt_r2, mean_r2]


def test_squared_error_is_the_mean_over_prompts() -> None:
    p, y = prompts()
    curve = squared_error(p, y, scale=3.0)
    torch.testing.assert_close(curve.value, (p - y).double().square().mean(0) / 9.0)
    assert curve.k.tolist() == list(range(N))
    assert curve.undefined == ""


def test_pooled_and_mean_r2_are_scikit_learns() -> None:
    from sklearn.metrics import r2_score

    p, y = prompts()
    pooled = [r2_score(y[:, k].double(), p[:, k].double()) for k in range(N)]
    torch.testing.assert_close(pooled_r2(p, y).value, torch.tensor(pooled, dtype=torch.float64))
    each = [r2_score(y[row].double(), p[row].double()) for row in range(B)]
    torch.testing.assert_close(float(mean_r2(p, y).value), sum(each) / B)
    twice = mean_r2(torch.stack([p, 0.9 * p], 1), torch.stack([y, y], 1))
    torch.testing.assert_close(twice.value[:1], mean_r2(p, y).value)
    assert twice.value[0] != twice.value[1]


def test_within_prompt_r2_of_the_prompts_own_mean_is_zero() -> None:
    """Summed over k, the error of a prompt's mean is (n - 1) v_b."""
    _, y = prompts()
    curve = within_prompt_r2(y.mean(1, keepdim=True).expand(-1, N), y)
    torch.testing.assert_close(float((1.0 - curve.value).mean()), (N - 1) / N, rtol=1e-6, atol=0.0)
    assert float(pooled_r2(y.mean(1, keepdim=True).expand(-1, N), y).value.min()) > 0.6  # which looks like learning
    torch.testing.assert_close(within_prompt_r2(y, y).value, torch.ones(N, dtype=torch.float64))


def test_intervals_are_as_wide_as_the_standard_error_says() -> None:
    index = torch.arange(2000)
    y = CounterRNG.of(1, "y").normal(index, 3)
    curve = squared_error(torch.zeros_like(y), y, resamples=4000)
    error = y.double().square().std(0) / 2000**0.5
    torch.testing.assert_close(curve.high - curve.low, 2 * 1.96 * error, rtol=0.05, atol=0.0)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """The mean square of normal labels is 1; 300 sets of 200 prompts, 95% intervals."""
    y = CounterRNG.of(2, "y").normal(torch.arange(200), 300)
    curve = squared_error(torch.zeros_like(y), y, rng=CounterRNG.of(3, "bootstrap"))
    covered = float(((curve.low <= 1.0) & (curve.high >= 1.0)).double().mean())
    assert 0.90 < covered < 0.98


@pytest.mark.parametrize("measure", MEASURES, ids=lambda m: m.__name__)
def test_values_lie_in_their_intervals_and_depend_on_the_stream_alone(measure) -> None:
    p, y = prompts()
    curve = measure(p, y)
    assert bool((curve.low < curve.value).all())
    assert bool((curve.value < curve.high).all())
    again, other = measure(p, y), measure(p, y, rng=CounterRNG.of(9, "other"))
    assert torch.equal(curve.low, again.low)
    assert torch.equal(curve.high, again.high)
    assert torch.equal(curve.value, other.value)
    assert not torch.equal(curve.low, other.low)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda m: m.__name__)
def test_intervals_are_the_measure_of_resampled_prompts(measure) -> None:
    p, y = (part[:12] for part in prompts())
    rng = CounterRNG.of(4, "bootstrap")
    drawn = rng.integers(torch.arange(40), 12, 12)
    values = torch.stack([measure(p[some], y[some], resamples=1).value for some in drawn])
    curve = measure(p, y, rng=rng, resamples=40)
    torch.testing.assert_close(curve.low, values.quantile(0.025, dim=0))
    torch.testing.assert_close(curve.high, values.quantile(0.975, dim=0))


def test_resamples_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All measures of an evaluation resample the same prompts; what is remembered is what would be drawn."""
    (p, y), drawn, draw = prompts(), [], CounterRNG.integers

    def counting(self: CounterRNG, index: torch.Tensor, high: int, *shape: int) -> torch.Tensor:
        drawn.append((len(index), high))
        return draw(self, index, high, *shape)

    expected = [measure(p, y, rng=CounterRNG.of(0, "bootstrap"), resamples=30) for measure in MEASURES]
    few = pooled_r2(p[:9], y[:9], rng=CounterRNG.of(0, "bootstrap"), resamples=30)
    monkeypatch.setattr(CounterRNG, "integers", counting)
    for measure, curve in zip(MEASURES, expected, strict=True):
        found = measure(p, y, resamples=30)
        assert torch.equal(found.low, curve.low)
        assert torch.equal(found.high, curve.high)
    assert torch.equal(pooled_r2(p[:9], y[:9], resamples=30).low, few.low)
    assert not torch.equal(pooled_r2(p, y, rng=CounterRNG.of(1), resamples=30).low, expected[1].low)
    assert drawn == [(30, B), (30, 9), (30, B)]


def test_dead_networks_are_left_out_and_counted() -> None:
    p, y = prompts()
    y[:3] = 0.25
    for measure in (within_prompt_r2, mean_r2):
        curve, alive = measure(p, y), measure(p[3:], y[3:])
        torch.testing.assert_close(curve.value, alive.value)
        assert curve.undefined == f"3 of {B} prompts have constant labels"
        everything = measure(p[:3], y[:3])
        assert bool(everything.value.isnan().all())
        assert everything.undefined == "3 of 3 prompts have constant labels"


def test_one_label_for_all_prompts_is_not_minus_infinity() -> None:
    p, y = prompts()
    y[:, 2] = 0.1
    curve = pooled_r2(p, y)
    assert curve.undefined == f"1 of {N} lengths have the same label in all prompts"
    assert curve.value.isnan().tolist() == [k == 2 for k in range(N)]
    assert curve.rows()[2] == {"k": 2, "value": None, "low": None, "high": None}
    assert curve.rows()[3]["value"] == float(curve.value[3])


@pytest.mark.parametrize("measure", MEASURES[:3], ids=lambda m: m.__name__)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_predictions_that_are_not_finite_are_said(measure, bad: float) -> None:
    p, y = prompts()
    expected = measure(p, y)
    p[5, 1] = bad
    curve = measure(p, y)
    assert curve.undefined == f"1 of {N} lengths have predictions that are not finite"
    for found, clean in ((curve.value, expected.value), (curve.low, expected.low), (curve.high, expected.high)):
        assert found.isnan().tolist() == [k == 1 for k in range(N)]
        torch.testing.assert_close(found[2:], clean[2:])


def test_a_curve_is_read_by_length() -> None:
    one = torch.ones(2, dtype=torch.float64)
    curve = Curve(torch.tensor([5, 9]), 2 * one, one, 3 * one)
    assert curve.at(9) == (2.0, 1.0, 3.0)
    with pytest.raises(InputError, match="no such length"):
        curve.at(6)


def test_errors_say_what_is_missing() -> None:
    p, y = prompts()
    with pytest.raises(InputError, match="differ in shape"):
        pooled_r2(p[:, 1:], y)
    with pytest.raises(InputError, match="pooled_r2"):
        mean_r2(p[:, :1], y[:, :1])
    with pytest.raises(InputError, match="two labels"):
        within_prompt_r2(p[:, :1], y[:, :1])
