"""Long runs in several commands: every row goes to a file at once, and the next command leaves out what is there.

A file belongs to one code: rows of another are not mixed with these. What was found to be wrong, and mended, is judged
again by its number; then the result says so, and has both rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Collection, Iterable
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

    def __init__(self, path: Path | None, settings: Row, made_by: Iterable[Path], again: Collection[int] = ()) -> None:
        """again: numbers whose rows are made anew, by the code of now; the file keeps those of before."""
        self.rows: dict[int, Row] = {}
        self.before: dict[int, Row] = {}
        self._file = None
        if path is None:
            return
        head = {"code": code(made_by), **settings}
        if path.exists():
            first, *lines = path.read_text().splitlines(keepends=True) or [""]
            if first and json.loads(first) != head and not again:
                sys.exit(f"{path} has rows of another code, or of other settings: begin another file")
            known = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may have been cut
            self.rows = {row["number"]: row for row in known}
        if again:
            self.before = {number: self.rows.pop(number, {}) for number in again}
            return
        self._file = path.open("w")
        self._file.writelines(json.dumps(each) + "\n" for each in (head, *self.rows.values()))
        self._file.flush()

    def missing(self, every: Iterable[int]) -> list[int]:
        """What is still to be done. Where something is judged again, that is all: the rest has another code."""
        found = [number for number in every if number not in self.rows]
        if self.before and set(found) - set(self.before):
            sys.exit("not all cases were done before: go on with the code of then, and judge some again after it")
        return found

    def add(self, row: Row) -> None:
        self.rows[row["number"]] = row
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()

    def mended(self) -> list[Row]:
        """What was judged again: the row of before, and then that of now."""
        times = (("before", self.before), ("again", self.rows))
        both = [(when, rows[number]) for number in self.before for when, rows in times if rows[number]]
        return [{"judged": when, **{key: _written(value) for key, value in row.items()}} for when, row in both]


def _written(value: Any) -> Any:
    """JSON has no infinity, and nothing that is no number."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
