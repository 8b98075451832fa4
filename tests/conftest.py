"""Shared by all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

for folder in ("examples", "benchmarks"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, so that no process waits for another's at the end."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """The suite runs on several processes; threads would only fight."""
    torch.set_num_threads(1)
