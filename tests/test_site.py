"""The site of the documentation: every page is in its navigation, every link leads somewhere, all of it is offline."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import mkdocs.exceptions
import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from site_check import check
from site_hooks import notebook

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "mkdocs.yml"


def in_navigation(part: Any) -> list[str]:
    """The pages of a navigation, or of a part of it."""
    if isinstance(part, str):
        return [part]
    return [page for below in (part.values() if isinstance(part, dict) else part) for page in in_navigation(below)]


def test_the_navigation_has_every_page_once() -> None:
    listed = in_navigation(yaml.safe_load(CONFIG.read_text())["nav"])
    sources = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    pages = [page.relative_to(ROOT / "docs").with_suffix(".md").as_posix() for page in sources]
    assert sorted(page for page in listed if not page.startswith("files/")) == sorted(pages)
    assert all((ROOT / page.removeprefix("files/")).exists() for page in listed if page.startswith("files/"))


def test_a_notebook_becomes_a_page_with_its_outputs() -> None:
    markdown = {"cell_type": "markdown", "source": ["# A title\n", "Words."]}
    shown = {"output_type": "display_data", "data": {"image/png": "aGVsbG8=\n", "text/plain": ["<Figure>"]}}
    printed = {"output_type": "stream", "text": ["1\n", "2\n"]}
    code = {"cell_type": "code", "source": ["print(1)\n", "2"], "outputs": [printed, shown]}
    text, pictures = notebook({"cells": [markdown, code]}, "book")
    assert text.startswith("# A title\n\n")
    assert text.endswith(
        "Words.\n\n```python\nprint(1)\n2\n```\n\n```text\n1\n2\n```\n\n![Output of the cell above](book-1.png)\n"
    )
    assert pictures == {"book-1.png": b"hello"}
    assert 'href="book.ipynb"' in text


@pytest.mark.soak  # make check builds it, too
@pytest.mark.skipif(not (ROOT / "src").exists(), reason="the site shows files of src")
def test_the_site_is_built_without_a_warning_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", CONFIG, "--site-dir", tmp_path]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert check(tmp_path) == []
    assert "<table>" in (tmp_path / "targets.html").read_text()  # a generated one, between its marks
    assert "1-the-idea-1.png" in (tmp_path / "notebooks" / "1-the-idea.html").read_text()  # with its outputs
    assert "ipynb" not in (tmp_path / "idea.html").read_text()  # links lead to pages, and not to files of JSON
    assert 'id="innergrad.compile"' in (tmp_path / "api" / "compile.html").read_text()


SOUND = {"index.md": "# Home\n\n[away](more.md#a-place)\n", "more.md": "# More\n\n## A place\n"}
BROKEN = {
    "a link": ({"index.md": "# Home\n\n[away](gone.md)\n"}, ["index.md", "more.md"]),
    "a place": ({"index.md": "# Home\n\n[away](more.md#gone)\n"}, ["index.md", "more.md"]),
    "a page that is not in the navigation": ({}, ["index.md"]),
    "an entry of the navigation without a page": ({}, ["index.md", "more.md", "gone.md"]),
    "nothing": ({}, ["index.md", "more.md"]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_page_stops_the_build(case: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the rules of mkdocs.yml, on two pages of our own."""
    pages, nav = BROKEN[case]
    (tmp_path / "docs").mkdir()
    for name, text in {**SOUND, **pages}.items():
        (tmp_path / "docs" / name).write_text(text)
    rules = yaml.safe_load(CONFIG.read_text())["validation"]
    (tmp_path / "mkdocs.yml").write_text(
        yaml.safe_dump({"site_name": "a site", "nav": nav, "validation": rules, "plugins": [], "strict": True})
    )
    caplog.set_level(logging.WARNING, "mkdocs")
    config = load_config(str(tmp_path / "mkdocs.yml"))
    if case == "nothing":
        build(config)
        assert not caplog.records
        return
    with pytest.raises(mkdocs.exceptions.Abort):
        build(config)
    assert len(caplog.records) == 1, caplog.text


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('<a href="gone.html">', "does not exist"),
        ('<a href="more.html#gone">', "no such place"),
        ('<img src="gone.png">', "does not exist"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "loads //cdn.example/x.css"),
        ('<style id="here"></style><a href="more.html#place"><a href="#here"><a href="https://example.org">', ""),
    ],
)
def test_a_broken_page_of_the_built_site_is_noticed(text: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(f"<html>{text}</html>")
    (tmp_path / "more.html").write_text('<html><h1 id="place"></h1></html>')
    found = check(tmp_path)
    assert len(found) == bool(wrong)
    assert wrong in "".join(found)


def test_a_style_sheet_that_loads_fonts_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<html></html>")
    (tmp_path / "style.css").write_text("@import url('https://fonts.example/css');")
    assert check(tmp_path) == ["style.css loads https:..."]
