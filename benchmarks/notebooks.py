"""Run the notebooks of docs/notebooks and store their outputs.

    python benchmarks/notebooks.py            all of them; make notebooks
    python benchmarks/notebooks.py 1-the-idea

A notebook is run from its first cell in a process of its own, in an empty folder. An error in a cell ends it, and the
file stays as it was. What differs from run to run without a reason (the time, a machine's name) is not stored.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "notebooks"
SECONDS = 300  # of one cell, at most
LARGEST = 500_000  # bytes of a notebook with its outputs


def executed(path: Path) -> str:
    """The notebook with its outputs, as text."""
    book = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            book, timeout=SECONDS, kernel_name="python3", record_timing=False, resources={"metadata": {"path": folder}}
        ).execute()
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(book.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
    text: str = nbformat.writes(book) + "\n"
    if len(text) > LARGEST:
        raise SystemExit(f"{path.name} has {len(text):,} bytes with its outputs; at most {LARGEST:,} are allowed")
    return text


def main() -> None:
    names = sys.argv[1:] or [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
    for path in (FOLDER / f"{name}.ipynb" for name in names):
        text = executed(path)
        path.write_text(text)
        print(f"{path.name}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
