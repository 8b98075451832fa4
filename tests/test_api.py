"""The API pages have every public name, and every name has an example that runs."""

from __future__ import annotations

import doctest
import importlib
import re
from functools import cache
from pathlib import Path
from unittest import mock

import griffe
import pytest
import torch

from innergrad.functions.fits.sigmas import SIGMAS

PAGES = Path(__file__).parent.parent / "docs" / "api"
MODULES = ("innergrad", "innergrad.diffusion", "innergrad.export", "innergrad.lab", "innergrad.testing")
PUBLIC = [f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__]
SHOWN = [name for page in sorted(PAGES.glob("*.md")) for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@cache
def package() -> griffe.Object:
    """As the site reads it: without importing anything."""
    return griffe.load("innergrad", resolve_aliases=True)


def docstrings(name: str) -> list[griffe.Docstring]:
    """Its own, and those of its public members, which the page shows with it."""
    found = package()[name.removeprefix("innergrad.")]
    it = found.final_target if found.is_alias else found
    members = [part for part in it.members.values() if part.is_public and not part.is_alias and not part.is_module]
    below = [part.docstring for part in members if part.docstring]
    return ([it.docstring] if it.docstring else []) + (below if it.is_class or it.is_module else [])


def prose(docstring: griffe.Docstring) -> str:
    """Without code: examples, formulas (which are indented) and ``names``."""
    text = ""
    for section in docstring.parse("google"):
        if section.kind is griffe.DocstringSectionKind.text:
            text += re.sub(r"^ {4}.*$", "", section.value, flags=re.MULTILINE)
        elif section.kind in (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes):
            text += "\n".join(part.description for part in section.value)
    return re.sub(r"`+.*?`+", "", text)


def test_every_public_name_is_on_one_page() -> None:
    assert sorted(name for name in SHOWN if name in PUBLIC) == sorted(PUBLIC)


@pytest.mark.parametrize("name", SHOWN)
def test_it_has_an_example_and_the_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, parser = docstrings(name), doctest.DocTestParser()
    assert found, f"{name} has no docstring"
    assert parser.get_examples(found[0].value), f"{name} has no example"
    monkeypatch.chdir(tmp_path)
    torch.set_printoptions(profile="default")  # pages that other tests run set others
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    with mock.patch.dict(SIGMAS):  # an example registers one of its own
        for docstring in found:
            runner.run(parser.get_doctest(docstring.value, {}, name, str(docstring.parent), docstring.lineno))
    assert not runner.failures, capsys.readouterr().out


@pytest.mark.parametrize("name", SHOWN)
def test_every_parameter_is_explained(name: str) -> None:
    """Where a docstring explains any, it explains all, and no other."""
    for docstring in docstrings(name):
        explained = [
            parameter.name.lstrip("*")
            for section in docstring.parse("google")
            if section.kind is griffe.DocstringSectionKind.parameters
            for parameter in section.value
        ]
        if explained:
            assert explained == [given.name for given in docstring.parent.parameters if given.name != "self"]


@pytest.mark.parametrize("name", SHOWN)
def test_its_docstrings_are_markdown(name: str) -> None:
    """No roles of another markup, which would be shown as they are, and no <w, x>, which would be taken for HTML."""
    for docstring in docstrings(name):
        strange = re.findall(r":(?:class|func|meth|mod):|</?[A-Za-z][^<>\n]*>", prose(docstring))
        assert not strange, f"{docstring.parent}: {strange}"
