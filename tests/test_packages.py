"""What is shipped. ``make dist`` installs it into clean environments, and runs the tests there."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

import innergrad
from innergrad.manifest import manifest
from test_cli import call

ROOT = Path(__file__).parent.parent
needs_checkout = pytest.mark.skipif(not (ROOT / "src").is_dir(), reason="needs a checkout: there is no src here")


def test_the_version_is_the_same_everywhere() -> None:
    version = innergrad.__version__
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version  # type: ignore[index]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert call("--version").out == f"innergrad {version}\n"
    assert manifest({})["versions"]["innergrad"] == version


@needs_checkout
def test_the_version_is_written_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "innergrad.__version__"}


@needs_checkout
def test_every_file_of_the_package_is_in_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As setuptools finds them, without building."""
    setuptools = pytest.importorskip("setuptools")
    monkeypatch.chdir(ROOT)
    made = setuptools.Distribution({"script_name": "setup.py"})
    made.parse_config_files()
    made.set_defaults()
    command = made.get_command_obj("build_py")
    command.ensure_finalized()
    shipped = {Path(path) for _, _, path in command.find_all_modules()}
    shipped |= {Path(folder) / name for _, folder, _, names in command.data_files for name in names}
    files = {Path(os.path.relpath(path, ROOT)) for path in (ROOT / "src" / "innergrad").rglob("*") if path.is_file()}
    files = {path for path in files if path.suffix != ".pyc"}
    assert {path.suffix for path in files} > {".py", ".cpp", ".hpp"}
    assert files - shipped == set()
