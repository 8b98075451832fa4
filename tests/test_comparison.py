"""One algorithm on every target, side by side."""

from __future__ import annotations

import json

import pytest

import innergrad as ig
from innergrad.model.cost import Cost
from innergrad.targets import TARGETS


def test_every_variant_is_counted_or_says_why_not() -> None:
    algorithm = ig.GradientDescent(ig.Network([1, 2, 1], "relu"), lr=0.1, steps=2, box=None)
    mine = ig.compile(algorithm, target="llama").cost()
    found = mine.compare("relu", "gpt", "llama")
    rows = {(row.target, row.variant): row for row in found.rows}
    assert set(rows) == {(name, variant) for name in ("relu", "gpt", "llama") for variant in TARGETS[name].variants}
    own, other = rows["llama", "chain"], ig.compile(algorithm, target="relu").cost()
    assert (own.blocks_a_step, own.heads, own.width, own.parameters) == (4, 1, mine.d_model, mine.nonzeros)
    assert [rows["gpt", variant].blocks_a_step for variant in ("markers", "raw")] == [5, 7]
    assert (rows["relu", "literal"].heads, rows["relu", "literal"].width) == (other.heads, other.d_model)
    assert "got activation relu" in rows["llama", "widest"].refused
    assert "llama, widest" in str(found)
    assert found.paper["layers"] == "(2N+4)L = 16"
    assert json.loads(json.dumps(found.to_json()))["rows"][0]["target"] == "relu"
    with pytest.raises(ig.InputError, match="unknown target"):
        mine.compare("llamas")


def test_a_cost_of_nothing_cannot_be_compared() -> None:
    with pytest.raises(ig.InputError, match="of no compiled transformer"):
        Cost((), 0, 0, 1, 1, {}).compare()
