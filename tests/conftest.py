"""Shared by all tests."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

pytest_plugins = ["pytester"]
for folder in ("examples", "benchmarks"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))

from cases import CASES, LONG  # noqa: E402

OPTIONAL = {  # what is not installed without extras
    **dict.fromkeys(("matplotlib", "sklearn"), "demo"),
    **dict.fromkeys(("onnx", "onnxscript", "onnxruntime", "transformers"), "export"),
    **dict.fromkeys(("scipy", "mpmath", "flint"), "dev"),
}


def missing(error: BaseException | None) -> str:
    """What an extra would bring, if that is why something could not be imported."""
    name = (getattr(error, "name", "") or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    absent = name in OPTIONAL and importlib.util.find_spec(name) is None
    return f"{name} is not installed: pip install 'innergrad[{OPTIONAL[name]}]'" if absent else ""


class Module(pytest.Module):
    """A module of tests, skipped as a whole where it needs what an extra would bring."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            if reason := missing(error.__cause__):
                pytest.skip(reason, allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return Module.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if reason := missing(error):
            pytest.skip(reason)
        raise


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
