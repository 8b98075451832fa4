"""Whatever is in a folder, a configuration, a table or a checkpoint: a sentence, in bounded memory and time; nothing is
written elsewhere, or executed. See ``benchmarks/mutations.py``, whose long version is stored.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import _mutators
import mutations
from innergrad.config import to_toml
from mutations import BAD, KINDS, Act, Bases, Case, Found, bases, judged

ABSURD = (10**30, 2**63, 10**12, -1, True, float("nan"), float("inf"), 1e308, "a", [[1]], 0)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    return bases(tmp_path_factory.mktemp("mutations").resolve(), few=True)


def wrong(found: list[Found]) -> list[str]:
    return [f"{one.kind} {one.number}: {one.verdict} {one.words}" for one in found if one.verdict in BAD]


def test_a_hundred_cases(given: Bases) -> None:
    found = list(judged(range(100), 1, 1, given))
    assert len(found) == 100
    assert {one.kind for one in found} == set(KINDS)
    assert wrong(found) == []


@pytest.mark.soak
def test_a_few_thousand_cases(given: Bases) -> None:
    assert wrong(list(judged(range(4000), 2, 2, given))) == []


@pytest.mark.soak
def test_a_case_is_made_by_its_number(given: Bases) -> None:
    one, other = (sorted(judged(range(20), 3, workers, given)) for workers in (1, 2))
    assert [(a.number, a.kind) for a in one] == [(b.number, b.kind) for b in other]


def made(number: int, given: Bases, home: Path) -> dict[str, bytes | str]:
    """The files of a case, and where its links go."""
    case = Case(random.Random(number), given, home / "in", home / "out", mock.Mock(), number)
    for folder in (case.inputs, case.out):
        folder.mkdir(parents=True)
    KINDS[mutations.kind_of(number, 0)][1](case)
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(home))] = os.readlink(path).removeprefix(str(home))
        elif path.is_file() and path.stat().st_size < 2**20:
            found[str(path.relative_to(home))] = path.read_bytes()
    shutil.rmtree(home)
    return found


def test_the_files_of_a_case_are_a_function_of_its_number(given: Bases, tmp_path: Path) -> None:
    """Of every kind; and of nothing else: times, hashes, an order that a library happens to read in."""
    other = bases((tmp_path / "bases").resolve(), few=True)
    for number in range(80):
        assert made(number, given, tmp_path / "a") == made(number, other, tmp_path / "b"), number


def test_a_number_of_any_size_can_be_mutated() -> None:
    for old in (10**5000, -(10**5000), 2**1023, 10**300, 1e308, 0, True):
        for number in range(200):
            _mutators.value(random.Random(number), old)


def test_a_table_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long cells, in long rows, many times: what is tried has to fit into memory before anybody can refuse it."""
    monkeypatch.setattr(_mutators, "LARGEST", 2**20)
    sizes = [len(_mutators.table(random.Random(number), "a,b\n1,2\n")) for number in range(500)]
    assert 2**19 < max(sizes) < 2**24


# ------------------------------------------------------------------------------------------- every setting, one by one


def absurd(tree: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(tree)
    *parts, last = name.split(".")
    node = changed
    for part in parts:
        node = node[part]
    node[last] = value
    return changed


def every_setting(given: Bases) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """A command, and a configuration with one setting that is absurd: all of them."""
    lab = ("train", "--device", "cpu", "-q")
    return [
        (command, absurd(tree, name, value))
        for command, trees in ((("cost", "-q"), given.settings), (lab, given.experiments))
        for tree in trees
        for name, _ in mutations._leaves(tree)
        for value in ABSURD
    ]


def setting(cases: list[Any], case: Case) -> Act:
    (command, *flags), tree = cases[case.number]
    config = case.write("a.toml", to_toml(tree))
    place = (config,) if command == "train" else ("--config", config)
    return partial(mutations._command, command, *place, *flags, "--out", case.out / "made")


def try_settings(given: Bases, cases: list[Any], workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "KINDS", {"setting": (1, partial(setting, cases))})
    monkeypatch.setattr(mutations, "ORDER", ["setting"])
    found = list(judged(range(len(cases)), 0, workers, given))
    assert len(found) == len(cases)
    assert [(cases[one.number], one) for one in found if one.verdict in BAD] == []


def test_a_setting_of_each_is_absurd(given: Bases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some settings, and all values."""
    try_settings(given, every_setting(given)[:: 8 * len(ABSURD) + 1], 1, monkeypatch)


@pytest.mark.soak
def test_every_setting_is_absurd(given: Bases, monkeypatch: pytest.MonkeyPatch) -> None:
    try_settings(given, every_setting(given), 2, monkeypatch)


# --------------------------------------------------------------------------------------------------- the judge can fail


def _raises() -> None:
    raise KeyError("a raw exception")


def _allocates() -> None:
    torch.zeros(mutations.ROOM)


def _loops() -> None:
    while True:
        time.process_time()


def _writes(path: Path) -> None:
    path.write_text("somebody's")


def _links(path: Path) -> None:
    path.with_name("link").symlink_to(path)


DEEDS: dict[str, tuple[str, Callable[[Path], Act]]] = {
    "nothing": ("done", lambda home: lambda: None),
    "an exception": ("raw", lambda home: _raises),
    "a file elsewhere": ("outside", lambda home: partial(_writes, home / "in" / "a")),
    "a link elsewhere": ("outside", lambda home: partial(_links, home / "in" / "a")),
    "a process": ("code", lambda home: partial(subprocess.run, ["true"])),
    "a string": ("code", lambda home: partial(eval, mutations.CANARY + " if False else 0")),
    "memory": ("memory", lambda home: _allocates),
    "time": ("slow", lambda home: _loops),
    "an end": ("died", lambda home: partial(os._exit, 3)),
}


def test_what_is_wrong_is_seen(given: Bases, monkeypatch: pytest.MonkeyPatch) -> None:
    deeds = list(DEEDS)

    def deed(case: Case) -> Act:
        return DEEDS[deeds[case.number]][1](case.out.parent)

    monkeypatch.setattr(mutations, "SECONDS", 0.5)
    monkeypatch.setattr(mutations, "KINDS", {"deed": (1, deed)})
    monkeypatch.setattr(mutations, "ORDER", ["deed"])
    found = sorted(judged(range(len(deeds)), 0, 1, given))
    assert {deeds[one.number]: one.verdict for one in found} == {name: verdict for name, (verdict, _) in DEEDS.items()}
