"""Samples of benchmarks/variants.py and optimisers.py, and their stored results: what the pages claim of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import optimisers
import test_optimisers
import variants as bench
from _results import RESULTS, read

DEPTH = {
    "literal": lambda N: 2 * N + 4,
    "compact": lambda N: 2 * N - 1,
    "shallow": lambda N: N + 2,
    "narrow": lambda N: 3 * N + 3,
}


def stored(name: str, key: str, **wanted: object) -> list[dict[str, object]]:
    return [row for row in read(name)[key] if all(row[field] == value for field, value in wanted.items())]


# ------------------------------------------------------------------------------------------------------------- variants


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


def test_depths_are_the_formulas() -> None:
    rows = read("variants")["variants"]
    assert [(row["N"], row["variant"]) for row in rows] == [(N, v) for N in bench.DEPTHS for v in bench.VARIANTS]
    for row in rows:
        assert row["layers"] == DEPTH[row["variant"]](row["N"])


def test_what_the_page_says_of_variants() -> None:
    """Two pairs of equal errors; a dense run is a plain one; bounds hold, those of steps in pairs; paths differ."""
    for N in bench.DEPTHS:
        by = {row["variant"]: row for row in stored("variants", "variants", N=N)}
        for a, b in (("literal", "narrow"), ("compact", "shallow")):
            assert by[a]["median"] == pytest.approx(by[b]["median"], rel=1e-9)
            assert by[a]["max"] == pytest.approx(by[b]["max"], rel=1e-9)
        assert by["literal"]["step"] == pytest.approx(by["narrow"]["step"], rel=1e-9)
        assert by["compact"]["path_5"] < by["literal"]["path_5"] < by["narrow"]["path_5"]
        if N >= 4:
            assert by["shallow"]["path_5"] < by["compact"]["path_5"]
        assert by["narrow"]["literal"] < 1e-14 < by["compact"]["literal"]
        assert max(row["dense"] for row in by.values()) < 1e-14


def test_the_width_of_narrow_is_a_straight_line_and_that_of_literal_is_none() -> None:
    literal, narrow = read("variants")["fits"]
    assert (literal["variant"], narrow["variant"]) == ("literal", "narrow")
    assert (narrow["slope"], narrow["intercept"]) == pytest.approx((10.0, 20.0))
    assert narrow["residual"] < 1e-9 < 0.5 < literal["residual"]
    assert bench.fits(bench.widths((4, 8)))[1]["slope"] == pytest.approx(10.0)
    rows = stored("variants", "widths", variant="narrow")
    assert len({row["widest"] for row in rows}) == 1
    ratios = [
        b["flops_structured"] / a["flops_structured"]
        for a, b in zip(stored("variants", "widths", variant="literal"), rows, strict=True)
    ]
    assert ratios == sorted(ratios)
    assert ratios[0] > 1


def test_lanes_of_the_jacobians() -> None:
    assert bench.jacobians() == read("variants")["jacobians"]
    for row in read("variants")["jacobians"]:
        assert row["lanes"] == max(2 * row["N"] - 5, 0) * row["K"] ** 2


def test_joint_knots() -> None:
    assert bench.knots(("tanh", "softplus")) == stored("variants", "knots")[0:3:2]
    for row in read("variants")["knots"]:
        assert max(row["r"], row["dr"]) <= row["joint"] < row["r"] + row["dr"]


# ----------------------------------------------------------------------------------------------------------- optimisers


def test_every_rule_is_torch_optim() -> None:
    rows = read("optimisers")["rules"]
    assert [row["rule"] for row in rows] == list(test_optimisers.RULES)
    for row in (*rows, *optimisers.rules()):
        assert row["distance"] < 1e-13 < 0.1 < row["moved"]


def test_layers_of_settings() -> None:
    fresh = optimisers.layers()
    assert fresh == read("optimisers")["layers"]
    assert {row["setting"] for row in fresh if row["more"]} == {"clip", "Adam", "Adam, clip"}


def test_adam() -> None:
    """Errors are within certificates and fall with epsilon; the number of heads does not depend on delta."""
    rows = read("optimisers")["adam"]
    for delta in optimisers.DELTAS:
        group = [row for row in rows if row["delta"] == delta]
        assert [row["epsilon"] for row in group] == list(optimisers.EPSILONS)
        assert [row["heads"] for row in group] == [row["heads"] for row in rows[:3]]
        assert all(row["first"] <= row["bound"] for row in group)
        assert group[0]["first"] > 5 * group[1]["first"] > 25 * group[2]["first"]
    for row in read("optimisers")["pieces"]:
        assert abs(row["pieces"] - row["formula"]) < 1.5
        assert row["float64"] < 1e-13 < row["float32"] < 1e-6


# ---------------------------------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(("page", "module"), [("variants", bench), ("optimisers", optimisers)])
def test_a_page_has_all_tables_of_its_benchmark(page: str, module: object) -> None:
    named = re.findall(r"<!-- table: (\w+) -->", (RESULTS.parent / "docs" / f"{page}.md").read_text())
    assert sorted(named) == sorted(module.TABLES)  # type: ignore[attr-defined]
