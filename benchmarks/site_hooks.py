"""Hooks of mkdocs.yml. They make pages that are written for a reader of the repository work on the site as well.

Links: a page may link to a file outside docs/, such as ../README.md, ../configs or ../src/innergrad/errors.py. The site
shows such a file under ``files/``: Markdown as a page, other text as code, a folder as a list, a large file as it is.
A page of HTML in docs/ goes there as well: docs/ledger.md becomes ledger.html already.
Notebooks: docs/notebooks/NAME.ipynb is a page, with its stored outputs, beside the file itself.
Places: headings get the names that GitHub gives them. A link named after a file is named after its title instead, and
marks of generated tables are taken out. A picture is a link to its file.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent
DOCS, FILES = "docs/", "files/"
ABOUT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")  # pages of the site that no page needs to link to
LARGE = 100_000  # bytes; a file beyond is copied, and not shown
IMAGES = (".png", ".svg", ".gif")
FENCE = "`" * 5
PICTURES = {"image/svg+xml": "svg", "image/png": "png"}  # kinds of output that are shown as they are, the best first
LANGUAGE = {".py": "python", ".toml": "toml", ".json": "json", ".hpp": "cpp", ".cpp": "cpp", ".cff": "yaml"}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")
CODE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"\[[\w/.-]+\.md\](?=\(([^)\s#]+)[^)\s]*\))")  # [inside.md](inside.md#hooks)
TITLE = re.compile(r"^# (.*)$", re.MULTILINE)
PICTURE = re.compile(r'(<img [^>]*src="([^"]+)"[^>]*>)(?!</a>)')
MARK = re.compile(r"^<!-- .* -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the notebooks as pages, every file outside docs/ that a page links to, and the files that these link to."""
    for book in sorted((ROOT / DOCS / "notebooks").glob("*.ipynb")):
        text, pictures = notebook(json.loads(book.read_text()), book.stem)
        files.append(File.generated(config, f"notebooks/{book.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    waiting = list(ABOUT)
    for file in files.documentation_pages():
        waiting += outside(file.content_string, DOCS + file.src_uri)
    done: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in done:
            done.add(name)
            files.append(as_file(name, config))
            waiting += further(name)
    for page in (ROOT / DOCS).glob("*.html"):  # excluded in mkdocs.yml
        content = re.sub(r'href="([\w-]+)\.md', r'href="../\1.html', page.read_text())
        files.append(File.generated(config, uri_of(DOCS + page.name), content=content))


def notebook(book: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as a page of Markdown, with the outputs that it stores, and the pictures among these by name."""
    parts, pictures = list[str](), dict[str, bytes]()
    for cell in book["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else _fenced("python", source))
        for output in cell.get("outputs", ()):
            data = {kind: "".join(part) for kind, part in output.get("data", {}).items()}
            data.setdefault("text/plain", "".join(output.get("text", ())))
            if kind := next((kind for kind in PICTURES if kind in data), None):
                name = f"{stem}-{len(pictures) + 1}.{PICTURES[kind]}"
                pictures[name] = base64.b64decode(data[kind]) if kind == "image/png" else data[kind].encode()
                parts.append(f"![Output of the cell above]({name})")
            else:
                parts.append(_fenced("text", data["text/plain"]))
    title, rest = parts[0].split("\n", 1)
    about = f'*A notebook, with the outputs of its last run. <a href="{stem}.ipynb" download>The file itself</a>.*'
    return "\n\n".join([title, about, rest, *parts[1:]]) + "\n", pictures


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    name = uri.removeprefix(FILES) if uri.startswith(FILES) else DOCS + uri
    parts = CODE.split(markdown)  # text, code, text, ...
    parts[::2] = [with_links(with_titles(MARK.sub("\n", part), name), name, uri) for part in parts[::2]]
    return "".join(parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A picture is a link to its file: on a narrow screen it fits, and can be opened and enlarged."""
    return PICTURE.sub(r'<a href="\2">\1</a>', html)


def targets(markdown: str, name: str) -> list[str]:
    """The files of the repository that the page ``name`` links to, by their paths from the root."""
    return [resolved(link, name) for part in CODE.split(markdown)[::2] for link in LINK.findall(part)]


def outside(markdown: str, name: str) -> list[str]:
    """Those of them that are not under docs/, and exist: what does not exist is mkdocs' to report."""
    found = targets(markdown, name)
    return [path for path in found if not path.startswith(DOCS) and path != ".." and (ROOT / path).exists()]


def further(name: str) -> list[str]:
    path = ROOT / name
    if path.is_dir():
        return [f"{name}/{part.name}" for part in listed(path)]
    return outside(path.read_text(), name) if path.suffix == ".md" else []


def listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def resolved(link: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link))


def uri_of(name: str) -> str:
    """Where the site has a file of the repository."""
    if name.startswith(DOCS):
        name = re.sub(r"\.ipynb$", ".md", name)
        return FILES * name.endswith(".html") + name.removeprefix(DOCS)
    path = ROOT / name
    shown = path.suffix not in (".md", *IMAGES) and (path.is_dir() or path.stat().st_size <= LARGE)
    return f"{FILES}{name}.md" if shown else FILES + name


def with_titles(markdown: str, name: str) -> str:
    """The same, with the titles of pages in place of the names of their files."""

    def titled(match: re.Match[str]) -> str:
        path = ROOT / resolved(match[1], name)
        title = TITLE.search(path.read_text()) if path.is_file() else None
        return f"[{title[1]}]" if title else match[0]

    return NAMED.sub(titled, markdown)


def with_links(markdown: str, name: str, uri: str) -> str:
    """The same, with links to the site's files in place of the repository's."""

    def moved(match: re.Match[str]) -> str:
        target = resolved(match[1], name)
        stays = target.startswith(DOCS) and name.startswith(DOCS) and not target.endswith((".html", ".ipynb"))
        if stays or not (ROOT / target).exists():
            return match[1]
        return posixpath.relpath(uri_of(target), posixpath.dirname(uri) or ".")

    return LINK.sub(moved, markdown)


def as_file(name: str, config: MkDocsConfig) -> File:
    uri, path = uri_of(name), ROOT / name
    if not uri.endswith(".md"):
        return File.generated(config, uri, abs_src_path=str(path))
    if path.suffix == ".md":
        return File.generated(config, uri, content=path.read_text(), inclusion=InclusionLevel.NOT_IN_NAV)
    if path.is_dir():
        body = "\n".join(f"- [{part.name}]({path.name}/{part.name})" for part in listed(path))
    else:
        body = f"{FENCE}{LANGUAGE.get(path.suffix, 'text')}\n{path.read_text()}\n{FENCE}"
    content = f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{body}\n"
    return File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
