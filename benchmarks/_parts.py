"""Long runs in several commands: every row goes to a file at once, and the next command leaves out what is there.

A file belongs to one code: rows of another are not mixed with these.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent


def code(more: Iterable[Path]) -> str:
    """A digest of what can change a row: the library, and these files."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src" / "innergrad").rglob("*.py"), *more]):
        digest.update(f"{path.resolve().relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


class Parts:
    """rows: by number, those of earlier commands first. Without a path, nothing is kept."""

    def __init__(self, path: Path | None, settings: Row, made_by: Iterable[Path]) -> None:
        self.rows: dict[int, Row] = {}
        self._file = None
        if path is None:
            return
        head = {"code": code(made_by), **settings}
        if path.exists():
            first, *lines = path.read_text().splitlines(keepends=True) or [""]
            if first and json.loads(first) != head:
                sys.exit(f"{path} has rows of another code, or of other settings: begin another file")
            known = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may have been cut
            self.rows = {row["number"]: row for row in known}
        self._file = path.open("w")
        self._file.writelines(json.dumps(each) + "\n" for each in (head, *self.rows.values()))
        self._file.flush()

    def add(self, row: Row) -> None:
        self.rows[row["number"]] = row
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
