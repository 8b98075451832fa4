"""The graph of imports between the folders of the package, and the files that a call goes through: from the source.

    python benchmarks/architecture.py          draws docs/architecture.svg and prints both tables
    python benchmarks/architecture.py --check  says whether the drawing is that of the source

The tables of docs/architecture.md come from here through benchmarks/tables.py.
"""

from __future__ import annotations

import ast
import functools
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

import innergrad as ig

ROOT = Path(ig.__file__).parent
PICTURE = ROOT.parent.parent / "docs" / "architecture.svg"
ROWS = (  # from the top; what a row imports is below it
    ("cli",),
    ("testing", "report"),
    ("tables",),
    ("papers", "export", "bench", "estimators"),
    ("lab",),
    ("zoo", "diffusion"),
    ("compiler",),
    ("transformer",),
    ("evidence",),
    ("model",),
    ("targets",),
    ("interpret", "algorithms"),
    ("ir",),
    ("functions",),
)
BOX, ROW, WIDE = (150, 34), 62, 760


def imports() -> dict[str, set[str]]:
    """Folder, or module at the top -> what it imports of the others; imports inside functions count."""
    known = {name for row in ROWS for name in row}
    found: dict[str, set[str]] = {name: set() for name in known}
    for path in sorted(ROOT.rglob("*.py")):
        here = path.relative_to(ROOT).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text())) if here in known else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if isinstance(node, ast.ImportFrom) and node.module == "innergrad":
                names += [f"innergrad.{alias.name}" for alias in node.names]
            tops = {name.split(".")[1] for name in names if name.startswith("innergrad.")}
            found[here] |= tops & known - {here}
    return found


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without the imports that follow from others: a -> c, where a -> b -> c."""

    def reach(name: str) -> set[str]:
        return graph[name].union(*(reach(below) for below in graph[name]))

    return {name: {b for b in below if not any(b in reach(other) for other in below)} for name, below in graph.items()}


def drawn() -> str:
    place = {
        name: (WIDE * (n + 1) / (len(row) + 1), 24 + ROW * level)
        for level, row in enumerate(ROWS)
        for n, name in enumerate(row)
    }
    height = 24 + ROW * len(ROWS)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {height}" '
        'font-family="sans-serif" font-size="14">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="dimgray"/></marker></defs>',
    ]
    for name, below in sorted(reduced(imports()).items()):
        for other in sorted(below):
            (x, y), (u, v) = place[name], place[other]
            parts.append(
                f'<path d="M{x:.0f} {y + BOX[1]:.0f}C{x:.0f} {y + ROW:.0f} {u:.0f} {v - 28:.0f} {u:.0f} {v - 2:.0f}" '
                'fill="none" stroke="dimgray" marker-end="url(#a)"/>'
            )
    for name, (x, y) in place.items():
        parts.append(
            f'<rect x="{x - BOX[0] / 2:.0f}" y="{y:.0f}" width="{BOX[0]}" height="{BOX[1]}" rx="6" fill="aliceblue" '
            f'stroke="slategray"/><text x="{x:.0f}" y="{y + 22:.0f}" text-anchor="middle" fill="black">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def touched(call: Callable[[], object]) -> list[str]:
    """The files of the package in which some function runs during a call."""
    seen: set[str] = set()

    def note(frame: object, event: str, argument: object) -> None:
        code = getattr(frame, "f_code", None)
        if event == "call" and code is not None and code.co_filename.startswith(str(ROOT)):
            seen.add(os.path.relpath(code.co_filename, ROOT))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(seen)


def forget() -> None:
    """Facts and approximants that were proven before are proven again."""
    for found in gc.get_objects():
        if type(found) is functools._lru_cache_wrapper and found.__module__.startswith("innergrad."):
            found.cache_clear()


def paths() -> list[str]:
    """Compile, for the first time and again, run and certify gradient descent on target relu: how many files, and
    which.
    """
    generator = torch.Generator().manual_seed(0)
    X, y = (torch.randn(8, k, generator=generator, dtype=torch.float64) for k in (3, 2))
    algorithm = ig.GradientDescent(ig.Network([3, 8, 8, 2]), steps=3)
    tf = ig.compile(algorithm)
    tf.certify(X, y)
    forget()
    calls: dict[str, Callable[[], object]] = {
        "`ig.compile(algorithm)`, the first time: with proofs": lambda: ig.compile(algorithm),
        "`ig.compile(algorithm)`, again": lambda: ig.compile(algorithm),
        '`tf.run(X, y, executor="plain")`': lambda: tf.run(X, y, executor="plain"),
        "`tf.certify(X, y)`": lambda: tf.certify(X, y),
    }
    lines = ["| call | files | which |", "|---|---|---|"]
    for name, call in calls.items():
        files = touched(call)
        folders: dict[str, list[str]] = {}
        for file in files:
            folder, _, rest = file.removesuffix(".py").rpartition("/")
            folders.setdefault(folder, []).append(rest)
        words = "; ".join(f"{folder + '/: ' if folder else ''}{', '.join(names)}" for folder, names in folders.items())
        lines.append(f"| {name} | {len(files)} | {words} |")
    return lines


AREAS = ("interpret", "targets", "evidence/verification.py", "evidence/explain", "evidence/bounds.py")
BEFORE = (5124, 4307)  # the same before there was one walk, counted by this function


def sizes() -> list[str]:
    """Statements by the syntax tree, all of them and without docstrings and imports."""
    places = [ROOT / area for area in AREAS]
    files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
    found = [node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.stmt)]
    words = [n for n in found if isinstance(n, ast.Expr) and isinstance(getattr(n.value, "value", None), str)]
    imported = [n for n in found if isinstance(n, ast.Import | ast.ImportFrom)]
    now = (len(found), len(found) - len(words) - len(imported))
    names = ("statements", "statements, docstrings and imports aside")
    rows = [f"| {name} | {b:,} | {n:,} | {n / b:.0%} |" for name, b, n in zip(names, BEFORE, now, strict=True)]
    return ["| | before | now | |", "|---|---|---|---|", *rows]


TABLES: dict[str, Callable[[], list[str]]] = {"architecture_paths": paths, "architecture_size": sizes}


def main() -> None:
    picture = drawn()
    if "--check" in sys.argv:
        same = PICTURE.is_file() and PICTURE.read_text() == picture
        raise SystemExit(None if same else f"{PICTURE.name} is not that of the source: run benchmarks/architecture.py")
    PICTURE.write_text(picture)
    print("\n".join(paths()))


if __name__ == "__main__":
    main()
