"""Samples of benchmarks/variants.py and optimisers.py: they measure what is stored."""

from __future__ import annotations

import pytest

import optimisers
import test_optimisers
import variants as bench
from _results import read


def stored(name: str, key: str, **wanted: object) -> list[dict[str, object]]:
    return [row for row in read(name)[key] if all(row[field] == value for field, value in wanted.items())]


# ------------------------------------------------------------------------------------------------------------- variants


@pytest.mark.soak
@pytest.mark.parametrize("N", [2, 3])
def test_the_stored_variants_are_those_of_today(N: int) -> None:
    """Sizes to the digit; errors up to rounding, which is not the same everywhere."""
    fresh = bench.variants((N,), bench.SEEDS)
    assert [row["variant"] for row in fresh] == list(bench.VARIANTS)
    for row, old in zip(fresh, stored("variants", "variants", N=N), strict=True):
        for key, value in old.items():
            if isinstance(value, float):
                assert row[key] == pytest.approx(value, rel=1e-4, abs=1e-14), key
            else:
                assert row[key] == value, key


def test_the_width_of_narrow_is_a_straight_line_and_that_of_literal_is_none() -> None:
    literal, narrow = bench.fits(bench.widths((4, 6, 8)))
    assert (literal["variant"], narrow["variant"]) == ("literal", "narrow")
    assert (narrow["slope"], narrow["intercept"]) == pytest.approx((10.0, 20.0))
    assert narrow["residual"] < 1e-9 < 1e-3 < literal["residual"]


def test_lanes_of_the_jacobians() -> None:
    assert bench.jacobians() == read("variants")["jacobians"]


def test_joint_knots() -> None:
    assert bench.knots(("tanh", "softplus")) == stored("variants", "knots")[0:3:2]


# ----------------------------------------------------------------------------------------------------------- optimisers


def test_every_rule_is_torch_optim() -> None:
    fresh, old = optimisers.rules(), read("optimisers")["rules"]
    assert [row["rule"] for row in fresh] == [row["rule"] for row in old] == list(test_optimisers.RULES)
    for row in fresh:
        assert row["distance"] < 1e-13 < 0.1 < row["moved"]


def test_layers_of_settings() -> None:
    fresh = optimisers.layers()
    assert fresh == read("optimisers")["layers"]
    assert {row["setting"] for row in fresh if row["more"]} == {"ball", "clip", "Adam", "Adam, clip"}
