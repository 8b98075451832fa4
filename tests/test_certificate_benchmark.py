"""A sample of benchmarks/certificates.py, and that it measures what is stored."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch

import _judge as judge
import certificates as bench
import innergrad as ig
from _results import read
from innergrad.evidence.bounds import corrected_theorem_1
from innergrad.functions.facts import proven


def fresh(**wanted: str) -> int:
    """A configuration that is not among the stored ones and whose approximants are quick to make."""
    rows = map(judge.configuration, range(10_000, 20_000))
    wanted = {"kind": "descent", "executor": "plain"} | wanted
    quick = (row for row in rows if row["epsilon"] == 1e-2 and judge.small(row))
    return next(row["number"] for row in quick if wanted.items() <= row.items())


@pytest.mark.parametrize(
    ("activation", "loss"),
    [(activation, judge.LOSSES[(i + k) % 5]) for i, activation in enumerate(judge.ACTIVATIONS) for k in (0, 2)],
)
def test_every_bound_holds(activation: str, loss: str) -> None:
    """Steps, trajectory and predictions, entry by entry, judged in 80-bit arithmetic without a tolerance."""
    row = judge.examine(fresh(activation=activation, loss=loss))
    assert row["violations"] == []
    assert row["entries"] + row["infinite"] > 0
    assert row["apart"] < 1e-13  # autograd in float64


@pytest.mark.parametrize("kind", ["others", "honest", "hostile"])
def test_bounds_hold_or_are_refused(kind: str) -> None:
    """Other targets, users' functions, honest and hostile."""
    row = judge.examine(fresh(kind=kind))
    assert row.get("violations", []) == []
    assert "failed" not in row
    assert ("refused" in row) == (kind == "hostile")


def test_a_run_that_overflows_in_the_read_out_says_so() -> None:
    """Tables have no place for what is not a number."""
    assert "overflowed" in judge.examine(7292)


@pytest.mark.parametrize("first", [0, *(pytest.param(20 * k, marks=pytest.mark.soak) for k in range(1, 20))])
def test_extreme_bounds_hold(first: int) -> None:
    """Settings and data of any size; few other errors than rounding and underflow are left."""
    rows = [judge.examine(judge.EXTREME + number) for number in range(first, first + (20 if first else 7))]
    assert [row for row in rows if row.get("violations") or "failed" in row] == []
    assert sum(row.get("entries", 0) for row in rows) > 100


#: of float32: what is made of the weights for the next step, as z_1, is rounded there, and counts in it
REMADE = (182, 287, 609)


@pytest.mark.parametrize(
    "numbers", [REMADE, range(8), *(pytest.param(range(k, k + 50), marks=pytest.mark.soak) for k in range(8, 408, 50))]
)
def test_bounds_on_llama_hold(numbers: Iterable[int]) -> None:
    """Nothing is approximated: rounding is all there is."""
    rows = [judge.examine(judge.LLAMA + number) for number in numbers]
    assert [row for row in rows if row.get("violations") or "failed" in row] == []
    assert sum(row.get("entries", 0) for row in rows) > 100


def test_work_is_shared_out_by_approximants() -> None:
    """Every configuration once; no list is longer than a third of what a process has to do."""
    numbers = range(100, 400)
    parts = bench.shared_out(numbers, 4)
    assert sorted(number for part in parts for number in part) == list(numbers)
    for part in parts:
        rows = [judge.configuration(number) for number in part]
        assert len({(row["target"], row["activation"], row["epsilon"]) for row in rows}) == 1
        assert len(part) <= 25


def test_radii_do_not_depend_on_the_default_precision() -> None:
    """A mask times a number, or a choice of two numbers, is of that precision: in float32 1e-60 is nothing."""
    found: dict[torch.dtype, list[torch.Tensor]] = {torch.float32: [], torch.float64: []}
    drawn = map(judge.configuration, range(judge.EXTREME, judge.EXTREME + 400))
    rows = [row for row in drawn if row["variant"] == "literal"]
    rows = [row | {"loss": "squared", "activation": "leaky_relu", "x_scale": 1.0, "y_scale": 1.0} for row in rows]
    rows = [
        row | {"output": "linear", "box": 4.0, "adam": False, "executor": "plain"}
        for row in rows
        if row["l1"] and row["clip"] is None
    ]
    rows = [row for row in rows if row["l1"] * row["lr"] < 1e9]
    for dtype, radii in found.items():
        torch.set_default_dtype(dtype)
        try:
            for row in rows[:6]:
                tf, precision, X, y, _, w0, weight = judge.case(row)
                given: Any = {"w0": w0, "sample_weight": weight, "dtype": precision, "errors": row["errors"]}
                radii += [step.radius for step in tf.certify(X, y, **given).steps]
        finally:
            torch.set_default_dtype(torch.float32)
    assert len(found[torch.float32]) >= 6
    assert all(map(torch.equal, found[torch.float32], found[torch.float64]))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_what_matrices_do_not_clear_counts_in_the_next_step(activation: str) -> None:
    """In float32 something is left in scratch lanes: much, beside weights and targets as small as these."""
    row = judge.configuration(fresh(kind="others", target="gpt"))
    row |= {"activation": activation, "variant": "raw", "executor": "dense", "dtype": "float32", "steps": 3}
    row |= {"x_scale": 1e-5, "y_scale": 1e-26, "w_scale": 1e-20, "sizes": [1, 2, 1], "clip": None, "loss": "squared"}
    found = judge._examine(row | {"output": "linear", "box": None, "l1": 0.0, "batched": False})
    assert found["violations"] == []
    assert found["infinite"] == 0


def test_a_bound_that_is_too_small_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    certify = ig.CompiledTransformer.certify

    def too_small(self: ig.CompiledTransformer, *args: Any, **given: Any) -> Any:
        found = certify(self, *args, **given)
        steps = tuple(dataclasses.replace(part, radius=part.radius / 100) for part in found.steps)
        return dataclasses.replace(found, steps=steps)

    monkeypatch.setattr(ig.CompiledTransformer, "certify", too_small)
    assert judge.examine(fresh(activation="tanh", loss="squared"))["violations"]


def test_the_theorem_with_given_constants_is_the_librarys() -> None:
    """With the constants of a whole domain it is the bound for the whole domain."""
    net, box, x, y = ig.Network([3, 5, 4, 2], "tanh", bias=False), 1.5, 2.0, 1.0
    tf = ig.compile(ig.GradientDescent(net, box=box), epsilon=1e-2, n_examples=4)
    entry = [x]
    for c in net.sizes[:2]:
        entry.append(proven(net.activation.r).magnitude(c * box * entry[-1]) + tf.approximants["tanh"].error)
    entry.append(net.sizes[2] * box * entry[-1])
    norms = [box * math.sqrt(k * c) for c, k in zip(net.sizes, net.sizes[1:], strict=False)]
    rows = [box * math.sqrt(c) for c in net.sizes[:-1]]
    b = [math.sqrt(k) * size for k, size in zip(net.sizes, entry, strict=True)][:3]
    assert isinstance(tf.algorithm, ig.GradientDescent)
    library = corrected_theorem_1(tf.algorithm, tf.approximants, x, y)
    assert bench.corrected(tf, norms, rows, b, 2 * (entry[3] + y)) == pytest.approx(library, rel=1e-12)


@pytest.mark.parametrize(("N", "K"), [(1, 4), (2, 8), (3, 8)])
def test_stored_tightness_is_what_is_measured(N: int, K: int) -> None:
    torch.set_num_threads(1)
    stored = next(
        row
        for row in read("certificates_tightness")["tightness"]
        if (row["N"], row["K"], row["epsilon"]) == (N, K, 1e-3)
    )
    measured = bench.compare(N, K, 1e-3)
    assert {**measured, "seconds": 0.0} == pytest.approx({**stored, "seconds": 0.0}, rel=1e-2)
