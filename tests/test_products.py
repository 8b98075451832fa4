"""A sample of benchmarks/products.py: three ways to multiply inside a transformer."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

import products as bench
from _results import read
from innergrad.errors import DomainError
from innergrad.targets.parts.scores import HingeMlp, Product, ScoreAttention

PRODUCT, SELECTING = bench.Method("product"), bench.Method("selecting")
COARSE = bench.Method("squares", 1e-2)


def pair(tokens: int, width: int, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> list[Tensor]:
    return [bench.uniform((3, tokens, width), scale, dtype, seed) for seed in (7, 8)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("tokens", "width"), [(8, 5), (64, 1), (64, 16), (512, 2)])
def test_product_layers_and_selecting_heads_round_once(dtype: torch.dtype, tokens: int, width: int) -> None:
    """Bit for bit what a processor's multiplication gives, at any scale, length and range of the ones compared."""
    for scale, R in ((1e-3, 4096.0), (1.0, 1.0), (1e3, 1024.0)):
        given = pair(tokens, width, dtype, scale)
        for method in (PRODUCT, SELECTING):
            built = bench.Chain(method, ((R, R),), width, tokens)
            built.check(given)
            assert torch.equal(built.run(given)["p1"], given[0] * given[1])


@pytest.mark.parametrize("ranges", [(1.0, 1.0), (4.0, 0.5)])
@pytest.mark.parametrize("accuracy", [1e-2, 1e-3])
def test_squares_err_as_much_as_was_proven_and_no_more(ranges: tuple[float, float], accuracy: float) -> None:
    built = bench.Chain(bench.Method("squares", accuracy), (ranges,))
    given = [bench.uniform((32, 64, 1), R, torch.float64, seed) for R, seed in zip(ranges[::-1], (1, 2), strict=True)]
    built.check(given)
    worst = bench.largest_error(built.run(given)["p1"], given) / math.prod(ranges)
    assert 0.5 * accuracy < worst <= accuracy


def test_sizes_of_a_product_are_those_of_the_built_layers() -> None:
    kinds = {"product": Product, "selecting": ScoreAttention, "squares": HingeMlp}
    for method in (PRODUCT, SELECTING, COARSE):
        built = bench.Chain(method, ((1.0, 1.0),), width=3)
        (layer,), (cost,) = built.module.layers(), built.cost
        assert type(layer) is kinds[method.name]
        stacks = [getattr(layer, name) for name in layer.matrices]
        assert cost.nonzeros == sum(stack.value.numel() for stack in stacks)
    rows = bench.sizes()
    assert rows == read("products")["sizes"]
    found = {bench._way(row): row["heads"] for row in rows if row["accuracy"] in (None, 1e-2)}
    assert (found["product"], found["selecting"]) == (1, 2)


@pytest.mark.parametrize("method", [SELECTING, COARSE], ids=lambda method: method.name)
def test_beyond_the_range_a_run_stops_for_the_product_would_be_wrong(method: bench.Method) -> None:
    built, given = bench.Chain(method, ((1.0, 1.0),)), pair(64, 1)
    built.check(given)
    given[0][:, 0] = given[1][:, 0] = 2.0
    with pytest.raises(DomainError, match="left the domain"):
        built.check(given)
    error = (built.run(given)["p1"] - given[0] * given[1]).abs()
    assert float(error[:, 0].min()) > 0.2
    assert float(error[:, 1:].max()) <= method.accuracy


def test_only_one_factor_of_selecting_heads_has_a_range() -> None:
    """f_1 is in the score; x is the value, and may be anything."""
    built, (x, f) = bench.Chain(SELECTING, ((1.0, 1.0),), width=2), pair(64, 2)
    built.check([1e9 * x, f])
    assert torch.equal(built.run([1e9 * x, f])["p1"], 1e9 * x * f)
    with pytest.raises(DomainError):
        built.check([x, 1e9 * f])


def test_a_chain_multiplies_its_factors() -> None:
    for dtype, unit in ((torch.float64, 2.0**-53), (torch.float32, 2.0**-24)):
        factors = [part[:2] for part in bench.chain_factors(dtype)]
        exact = bench.exact_products(factors)
        for method in (PRODUCT, SELECTING):
            built = bench.chain(method)
            built.check(factors)
            found = bench.fractions(built.run(factors)[f"p{bench.DEPTH}"])
            worst = max(abs(float(a / b - 1)) for a, b in zip(found, exact, strict=True))
            assert unit < worst <= bench.DEPTH * unit * (1 + 1e-6)


def test_errors_are_measured_exactly() -> None:
    """A difference of one unit in the last place is seen, and so is the rounding of the right answer."""
    x = torch.tensor([1 + 2.0**-30], dtype=torch.float64)
    assert bench.largest_error(x * x, [x, x]) == 2.0**-60
    assert bench.largest_error(torch.nextafter(x * x, 2 * x), [x, x]) == float(Fraction(2) ** -52 - Fraction(2) ** -60)


@pytest.mark.parametrize("code", bench.CODES)
def test_positions_cost_rounding_only_where_they_are_added_late(code: str) -> None:
    """Then about u times the largest partial sum: R log2(n) / 2, R n^2, R."""
    for n in (8, 64):
        largest = {"binary signs": math.log2(n), "(i, i²)": 2 * n * n, "one-hot": 1.0}[code]
        for R in (64.0, 4096.0):
            assert bench.code_error(code, n, R, np.float32, last=True) <= 2.0**-24
            late = bench.code_error(code, n, R, np.float32, last=False)
            assert 2.0**-24 < late <= 2.0**-24 * R * largest + 2.0**-24
    query, key = bench.CODES[code](8, 64.0)
    scores = query @ key.T
    assert bool((np.diag(scores) == 0.0).all())
    assert float((scores - 1e9 * np.eye(8)).max()) <= -64.0


# -------------------------------------------------------------------------------------------------------------- stored


def test_a_stored_error_is_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "SCALES", (1e1,))
    monkeypatch.setattr(bench, "METHODS", (PRODUCT, SELECTING, COARSE))
    for row in bench.scales():
        wanted = {key: row[key] for key in ("method", "accuracy", "dtype", "scale", "range")}
        stored = bench._pick(read("products")["scales"], **wanted)
        for key in ("max", "median"):
            assert row[key] == pytest.approx(stored[key], rel=1e-3, abs=0.0)
