"""Shared by all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest_plugins = ["pytester"]
for folder in ("examples", "benchmarks"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))

from cases import CASES, LONG  # noqa: E402


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests first, so that no process waits for another's at the end; those of a case, or of a model of the table
    of the command line, in one process, which compiles it once.
    """
    items.sort(key=lambda item: "slow" not in item.keywords)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if name := group_of(item):
                item.add_marker(pytest.mark.xdist_group(name))


NAMES = {id(case): name for table in (CASES, LONG) for name, case in table.items()}


def group_of(item: pytest.Item) -> str | None:
    """The row of ``cases.py``, or of the table of ``test_cli.py``, that a test is about, if it is about one."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if "each" in given:
        return f"model: {given['each']}"
    name = given.get("name")
    if isinstance(name, str) and name in CASES:
        return name
    return NAMES.get(id(given.get("case"))) or NAMES.get(id(given.get("long_case"))) or given.get("golden")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The suite runs on several processes; threads would only fight."""
    torch.set_num_threads(1)
