"""Checks the built site: every link and place exists, nothing is loaded from elsewhere.

    python benchmarks/site_check.py [out/site]

MkDocs checks the links of Markdown; this also sees what themes, docstrings and pages of plain HTML say.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
CSS_LOAD = re.compile(r"""(?:url\(|@import)\s*["']?(https?:|//)""")


class Links(HTMLParser):
    """What a page links to, what it loads, and the places it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {str(given[key]) for key in ("id", "name") if given.get(key)}
        for key in ("href", "src"):
            if (value := given.get(key)) is not None:
                (self.loads if LOADS.get(tag) == key else self.links).append(value)


def check(site: Path) -> list[str]:
    """What is wrong, a sentence each."""
    pages = {page.resolve(): Links(page) for page in sorted(site.rglob("*.html"))}
    wrong = [] if pages else [f"{site} has no pages"]
    for page, found in pages.items():
        name = page.relative_to(site.resolve())
        wrong += [f"{name} loads {url}" for url in found.loads if urlsplit(url).netloc]
        for url in found.links + found.loads:
            if problem := broken(url, page, site.resolve(), pages):
                wrong.append(f"{name}: {problem}")
    for sheet in sorted(site.rglob("*.css")):
        if load := CSS_LOAD.search(sheet.read_text()):
            wrong.append(f"{sheet.relative_to(site)} loads {load[1]}...")
    return wrong


def broken(url: str, page: Path, site: Path, pages: dict[Path, Links]) -> str:
    """Why a link of a page leads nowhere, or ""."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return ""
    folder = site if parts.path.startswith("/") else page.parent
    target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return f"{url} does not exist"
    place = unquote(parts.fragment)
    known = place.startswith("__") or target not in pages or place in pages[target].places  # __: the theme's own
    return "" if not place or known else f"{url} has no such place"


if __name__ == "__main__":
    problems = check(Path(sys.argv[1] if len(sys.argv) > 1 else "out/site"))
    sys.exit("\n".join(problems) if problems else 0)
