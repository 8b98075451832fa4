"""What was saved once still loads, and shipped programs keep their layers: see ``golden/make.py``."""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import innergrad as ig
from cases import CASES
from golden.make import FACTS, archive, layers, learned
from logistic_regression import LogisticRegression

GOLDEN: dict[str, dict[str, Any]] = json.loads(FACTS.read_text())
NAMES = {  # rows of the cost, as they were called in fixtures without the row "blocks"; None: they had no such row
    "blocks": "layers, attention + mlp as one",
    "layers a step": "sublayers a step",
    "read-out blocks": None,
    "blocks a step": None,
}


def test_every_case_has_a_fixture() -> None:
    assert set(CASES) <= set(GOLDEN)


@pytest.mark.parametrize("golden", GOLDEN)
def test_an_old_folder_loads_and_its_program_is_the_same(golden: str, tmp_path: Path) -> None:
    expected = GOLDEN[golden]
    with zipfile.ZipFile(archive(golden)) as folder:
        folder.extractall(tmp_path)
    tf = ig.load(tmp_path, extensions=[LogisticRegression, *(CASES[golden].extensions if golden in CASES else ())])
    assert [lane.name for lane in tf.program.stream.lanes] == expected["lanes"]
    assert layers(tf.program) == expected["layers"]
    found = learned(tf, {key: value[0] for key, value in CASES[golden].prompts(1).items()})
    ramps = any(f.ramps for f in tf.approximants.values())
    for key, numbers in expected["learned"].items():
        now, then = (torch.tensor(part, dtype=torch.float64) for part in (found[key], numbers))
        scale = max(1.0, float(then.abs().max())) if then.numel() else 1.0
        assert not then.numel() or float((now - then).abs().max()) <= (1e-9 if ramps else 1e-12) * scale


@pytest.mark.parametrize("golden", [name for name in GOLDEN if name in CASES])
def test_a_program_that_is_compiled_now_has_the_layers_and_the_cost_it_had(golden: str) -> None:
    """Where approximants are proven, to the last weight; fits depend on the machine's linear algebra in last digits.
    Ramps were as wide as epsilon, which can still be asked for; fixtures that are newer say how wide theirs are.
    """
    expected, tf = GOLDEN[golden], CASES[golden].tf
    steps = {name: tf.options.epsilon for name, f in tf.approximants.items() if math.isinf(f.error)}
    if steps and "ramps" not in expected:
        assert [row.heads for row in tf.cost().rows] == expected["heads"], "narrow ramps cost no heads"
        tf = replace(CASES[golden], options={**CASES[golden].options, "epsilons": steps}).tf
    assert layers(tf.program) == expected["layers"]
    cost = tf.cost()
    assert [row.heads for row in cost.rows] == expected["heads"]
    older = "blocks" not in expected["cost"]
    for key, value in cost.totals().items():
        tolerance, then = 1e-12 if tf.proven else 1e-6, NAMES.get(key, key) if older else key
        if then is not None:
            assert value == pytest.approx(expected["cost"][then], rel=tolerance), key
