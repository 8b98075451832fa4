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
    """Slow tests first, so that no process waits for another's at the end; those of a case in one process, which
    compiles it once.
    """
    items.sort(key=lambda item: "slow" not in item.keywords)
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if name := case_of(item):
                item.add_marker(pytest.mark.xdist_group(name))


def case_of(item: pytest.Item) -> str | None:
    """The name of the row of ``cases.py`` that a test is about, if it is about one."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    tables = [*CASES.items(), *LONG.items()]
    chosen = (name for name, case in tables if case in (given.get("case"), given.get("long_case")))
    return next(chosen, name if isinstance(name := given.get("name"), str) and name in CASES else None)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The suite runs on several processes; threads would only fight."""
    torch.set_num_threads(1)
