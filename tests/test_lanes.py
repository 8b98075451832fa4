"""docs/reference/lanes.md has every lane of every program of the library, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import innergrad as ig
from innergrad.ir.program import Options
from innergrad.model.preparation import prepared
from innergrad.targets import TARGETS

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "lanes.md"
NET = ig.Network([2, 3, 2])
DESCENTS = [
    ig.GradientDescent(ig.Network([2, 3, 4, 3, 2]), momentum=0.5),
    ig.GradientDescent(ig.Network([3, 2]), box=None),
    ig.GradientDescent(ig.Network([2, 3, 3, 2], bias=False), box=None),  # the recursion takes no biases
    ig.GradientDescent(ig.Network([2, 3, 3, 3, 2], bias=False), box=None),
    ig.GradientDescent(ig.Network([2, 3, 3, 2], "silu"), box=None),
    ig.GradientDescent(ig.Network([2, 3, 2], "tanh", "activation"), loss="log-cosh"),
    ig.GradientDescent(NET, loss="softmax"),
    ig.GradientDescent(NET, box=None, ball=1.0),
    ig.GradientDescent(NET, clip=1.0, batches=((0, 1), (2,)), steps=2),
    ig.Adam(NET),
]
OTHERS = [
    (ig.OnlineSGD(2, weight_decay=0.1), "gpt", "pre-ln"),
    (ig.RecursiveLeastSquares(2), "gpt", "pre-ln"),
    (ig.RecursiveLeastSquares(2, form="sherman-morrison"), "gpt", "pre-ln"),
    (ig.FunctionalGradientDescent("exp", steps=2, d=2), "kernel", "attention"),
    (ig.FunctionalGradientDescent("exp", steps=2, d=2), "gpt", "pre-ln"),
    (ig.GridDescent(ig.GradientDescent(ig.Network([1, 1], bias=False), box=1.0, steps=1), grid=2), "softmax", "lookup"),
]


def options(target: str, variant: str, *, double: bool = False) -> Options:
    sigma = next(iter(TARGETS[target].sigmas), None)
    return Options(target, variant, TARGETS[target].epsilon, 3, z_bound=8.0, sigma=sigma, double=double)


def programs() -> Iterator[tuple[ig.Algorithm, Options]]:
    """Every variant of every target with every setting that adds lanes, refused ones among them."""
    for algorithm in DESCENTS:
        for target in algorithm.targets:
            variants = algorithm.variants.get(target, TARGETS[target].variants)
            yield from ((algorithm, options(target, variant)) for variant in variants)
    yield from ((DESCENTS[0], options("llama", variant, double=True)) for variant in ("chain", "wide"))
    yield from ((algorithm, options(target, variant)) for algorithm, target, variant in OTHERS)


@pytest.fixture(scope="module")
def found() -> set[tuple[str, str]]:
    """(lane, target), the lanes of the library's programs."""
    lanes = set()
    for algorithm, chosen in programs():
        try:
            program = prepared(algorithm, chosen)
        except (ig.InputError, ig.LoweringError):
            continue
        lanes |= {(lane.name, chosen.target) for lane in program.stream.lanes}
    return lanes


def targets(where: str) -> list[str]:
    named = [name for name in re.findall(r"`(\w+)`", where) if name in TARGETS]
    return [name for name in TARGETS if name not in named] if where.startswith("all") else named


def rows() -> list[tuple[re.Pattern[str], str]]:
    """(name, target) of every row; a number stands for any number."""
    tables = re.findall(r"^\| (`.*?) \| .* \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return [
        (re.compile(re.sub(r"\d+", r"\\d+", name) + "$"), target)
        for names, where in tables
        for name in re.findall(r"`(\w+)`", names)
        for target in targets(where)
    ]


def test_every_lane_is_on_the_page(found: set[tuple[str, str]]) -> None:
    listed = rows()
    assert len(found) > 400
    for lane, target in found:
        plain = lane.removesuffix("_low")
        assert any(name.match(plain) and target == on for name, on in listed), f"{lane} on {target}"


def test_every_row_is_a_lane(found: set[tuple[str, str]]) -> None:
    for name, target in rows():
        assert any(name.match(lane) and target == on for lane, on in found), f"{name.pattern} on {target}"
