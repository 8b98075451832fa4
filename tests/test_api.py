"""The API pages have every public name, and every name has an example that runs."""

from __future__ import annotations

import doctest
import importlib
import re
from functools import cache
from pathlib import Path

import griffe
import pytest

PAGES = Path(__file__).parent.parent / "docs" / "api"
MODULES = ("innergrad", "innergrad.lab", "innergrad.export", "innergrad.testing")
PUBLIC = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]
SHOWN = [name for page in sorted(PAGES.glob("*.md")) for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@cache
def package() -> griffe.Module:
    """As the site reads it: without importing anything."""
    found = griffe.load("innergrad", resolve_aliases=True, extensions=griffe.load_extensions("dataclasses"))
    assert isinstance(found, griffe.Module)
    return found


def shown(name: str) -> griffe.Object | griffe.Alias:
    found = package()[name.removeprefix("innergrad.")]
    assert isinstance(found, griffe.Object | griffe.Alias)
    return found


def docstrings(it: griffe.Object | griffe.Alias) -> list[griffe.Docstring]:
    """Its own, and those of its public members."""
    own = [it.docstring] if it.docstring else []
    members = [member for member in it.members.values() if member.is_public and not member.is_alias]
    return own + [found for member in members for found in docstrings(member) if it.is_class or it.is_module]


def test_every_public_name_is_on_one_page() -> None:
    assert sorted(name for name in SHOWN if name in PUBLIC) == sorted(PUBLIC)


@pytest.mark.parametrize("name", SHOWN)
def test_it_has_an_example_and_the_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, parser = docstrings(shown(name)), doctest.DocTestParser()
    assert found, f"{name} has no docstring"
    assert parser.get_examples(found[0].value), f"{name} has no example"
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for docstring in found:
        runner.run(parser.get_doctest(docstring.value, {}, name, str(docstring.parent), docstring.lineno))
    assert not runner.failures, capsys.readouterr().out
