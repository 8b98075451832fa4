"""Tables as spreadsheets write them: a file -> a header and rows of text, and what was noticed on the way.

Encoding (UTF-8, UTF-16, Windows), separator (comma, semicolon, tab, bar), lines above the header, and the lengths of
rows are found out. Cells stay text here; ``innergrad.written`` reads them. Nothing heavy is imported: a file that is no
table is answered at once.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from innergrad.errors import InputError, plural, shortened
from innergrad.files import require_regular
from innergrad.tables.first_line import doubt
from innergrad.written import is_missing

MOST, LONGEST = 2**31, 2**24  # bytes of a file, and characters of a line of it
MOST_COLUMNS = 2000
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
LOOKED_AT = 60  # lines from which the separator is found out
LINES = 3  # that a sentence names
OTHER_FILES = {
    b"PK\x03\x04": "a workbook of a spreadsheet (or another zip file)",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a compressed file",
    b"%PDF": "a PDF",
    b"SQLite format 3": "a database",
    b"\x89PNG": "a picture",
}


@dataclass(frozen=True)
class Sheet:
    """A file. rows: cells of text, as many as the header has; lines: where they begin in the file. total: rows of the
    file, of which ``rows`` may be a sample. notes: sentences about the file. doubt: that its names may be data.
    """

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    total: int
    separator: str = ","
    encoding: str = "utf-8"
    notes: list[str] = field(default_factory=list)
    doubt: str = ""

    def column(self, place: int) -> list[str]:
        return [row[place] for row in self.rows]

    def place(self, name: str) -> int | None:
        """Of a column by its name: as it is written, else without regard to case and outer spaces."""
        folded = [one.casefold() for one in self.header]
        wanted = " ".join(name.split())
        if wanted in self.header:
            return self.header.index(wanted)
        return folded.index(wanted.casefold()) if folded.count(wanted.casefold()) == 1 else None


Choose = Callable[[Sequence[str], str], Callable[[Sequence[str]], bool]]  # header, doubt -> (row -> kept for certain)


def read_sheet(path: Path, *, most: int, seed: int = 0, certain: Choose | None = None, least: int = 1) -> Sheet:
    """The table in a file. Of more than ``most`` rows a random sample is kept, in the order of the file.

    certain: which rows are kept besides, of whatever number. least: rows that there must be.
    """
    encoding = _encoding(path)
    try:
        with path.open(newline="", encoding=encoding) as file:
            rest = lines(path, file)
            head = list(itertools.islice(rest, LOOKED_AT))
            separator, head, before = _separator(path, head)
            notes = [] if encoding.startswith("utf-8") else [f"its text is {_ENCODINGS[encoding]}"]
            reader = csv.reader(itertools.chain(head, rest), delimiter=separator, strict=True)
            blank = list[int]()
            rows_of = _filled_rows(((reader.line_num + before, row) for row in reader), blank)
            header, names_line, below, doubted = _header(path, rows_of, separator, notes)
            keep = None if certain is None else certain(header, doubted)
            kept, found, total = _sampled(_even(path, header, below, notes), most, seed, keep)
    except FileNotFoundError as error:
        raise InputError(f"cannot read {path}", got="no such file", allowed="a CSV file") from error
    except csv.Error as error:
        raise _broken(path, error, reader.line_num) from error
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot read {path}", got=str(error), allowed="a CSV file with a header") from error
    if len(kept) < least:
        what = f"{path} has a header but no rows"
        raise InputError(what, got=", ".join(header), allowed="a header and at least one row")
    if found < total:
        notes.append(f"of its {total:,} rows a random sample of {found:,} is used")
    if below_names := [line for line in blank if line > names_line]:
        rows_left = f"{plural(len(below_names), 'blank row')} {'is' if len(below_names) == 1 else 'are'} left out"
        notes.append(f"{rows_left} ({lines_words(below_names)})")
    header, kept = _without_empty(header, kept, notes)
    rows, numbers = [row for _, row in kept], [line for line, _ in kept]
    return Sheet(path, header, rows, numbers, total, separator, encoding, notes, doubted)


# ------------------------------------------------------------------------------------------------------------- encoding

_ENCODINGS = {"utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "cp1252": "Windows-1252 (Latin)"}
_ENCODINGS |= {"latin-1": "Latin-1"}


def _encoding(path: Path) -> str:
    """UTF-8 if the whole file can be read as that, with or without a byte order mark; UTF-16; else Windows' Latin."""
    require_regular(path, MOST)
    try:
        with path.open("rb") as file:
            start = file.read(2**16)
            for magic, words in OTHER_FILES.items():
                if start.startswith(magic):
                    hint = "save the sheet as CSV" if "workbook" in words else "write the table as CSV"
                    raise InputError(f"{path} is no CSV file", got=words, allowed="text", hint=hint)
            if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            if b"\0" in start:
                return _without_mark(path, start)
            utf8, windows = codecs.getincrementaldecoder("utf-8")(), True
            valid, block = True, start
            while block:
                windows = windows and not _NOT_WINDOWS.search(block)
                if valid:
                    try:
                        utf8.decode(block)
                    except UnicodeDecodeError:
                        valid = False
                block = file.read(2**20)
    except FileNotFoundError:
        return "utf-8"  # who opens it says so
    except OSError as error:
        raise InputError(f"cannot read {path}", got=error.strerror, allowed="a CSV file") from error
    if valid:
        return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"
    return "cp1252" if windows else "latin-1"


_NOT_WINDOWS = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")  # bytes that Windows-1252 has no letter for


def _without_mark(path: Path, start: bytes) -> str:
    """UTF-16 whose mark is missing has a zero in every second byte."""
    odd, even = start[1::2].count(0), start[::2].count(0)
    half = len(start) // 4
    if odd > half and not even:
        return "utf-16-le"
    if even > half and not odd:
        return "utf-16-be"
    raise InputError(f"{path} is no CSV file", got="bytes that are no text", allowed="text", hint="save it as CSV")


# -------------------------------------------------------------------------------------------------- lines and separator


def lines(path: Path, file: IO[str]) -> Iterator[str]:
    """The lines of a file; none that would fill the memory. Zero bytes are no text."""
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise InputError(f"{path} has a line of more than {LONGEST:,} characters", hint="is it a table?")
        if "\0" in line:
            raise InputError(f"{path} is no CSV file", got="bytes that are no text", allowed="text")
        yield line


def _separator(path: Path, head: list[str]) -> tuple[str, list[str], int]:
    """The separator, the first lines without the one that names it, and the number of such lines. Of several that would
    do: the one by which most lines have as many cells as each other, then the one that gives the most cells.
    """
    if not any(line.strip() for line in head):
        raise InputError(f"{path} is empty", got="nothing", allowed="a header and at least one row")
    named = re.fullmatch(r"sep=(.)\s*", head[0])
    if named and named[1] in SEPARATORS:
        return named[1], head[1:], 1
    scores = {mark: _regularity(head, mark) for mark in SEPARATORS}
    best = max(scores, key=lambda mark: scores[mark])
    return (best if scores[best][1] > 1 else ","), head, 0


def _regularity(head: list[str], mark: str) -> tuple[float, int]:
    """The share of lines with the most frequent number of cells (none if that is one cell), and that number."""
    rows = []
    try:
        for row in csv.reader(head, delimiter=mark):
            if any(cell.strip() for cell in row):
                rows.append(len(row))
    except csv.Error:
        return 0.0, 0
    (width, times) = Counter(rows).most_common(1)[0]
    return (times / len(rows) if width > 1 else 0.0), width


# ------------------------------------------------------------------------------------------------------ header and rows

Rows = Iterator[tuple[int, list[str]]]
_NUMBER = re.compile(r"\s*[+-]?(\d[\d.,' ]*)([eE][+-]?\d+)?\s*", re.ASCII)


def _filled_rows(rows: Rows, blank: list[int]) -> Rows:
    """Those that have a cell. blank: gets the lines of the others, but not of empty lines at the end of the file."""
    waiting = list[int]()
    for line, row in rows:
        if _filled(row):
            blank += waiting
            waiting = []
            yield line, row
        else:
            waiting.append(line)
            if row:  # separators, and nothing between them
                blank += waiting
                waiting = []


def lines_words(numbers: Sequence[int]) -> str:
    """ "line 7", "lines 3, 5, 9 and 2 more"."""
    some = ", ".join(f"{number:,}" for number in numbers[:LINES])
    more = f" and {len(numbers) - LINES:,} more" if len(numbers) > LINES else ""
    return f"line{'' if len(numbers) == 1 else 's'} {some}{more}"


def _header(path: Path, rows: Rows, separator: str, notes: list[str]) -> tuple[list[str], int, Rows, str]:
    """Names, each once, and their line; the rows below; a doubt, if the names look like data. Titles and comments above
    the names, of a single cell, are left out.
    """
    first = list(itertools.islice(rows, LOOKED_AT))
    if not first:
        raise InputError(f"{path} is empty", got="nothing", allowed="a header and at least one row")
    width = Counter(_filled(row) for _, row in first).most_common(1)[0][0]
    skipped = 0
    while len(first) - skipped > 1 and width > 1 and _is_title(first[skipped][1], first[skipped + 1][1]):
        skipped += 1
    if skipped:
        notes.append(
            f"{plural(skipped, 'line')} above the names of the columns {'is' if skipped == 1 else 'are'} left out"
        )
    names = [" ".join(name.split()) for name in first[skipped][1]]
    if names[0].startswith("#") and len(names) > 1:
        names[0] = names[0].lstrip("# ")
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{path} has too many columns", got=f"{len(names):,}", allowed=f"at most {MOST_COLUMNS:,}")
    filled = [name for name in names if name]
    if filled and all(_NUMBER.fullmatch(name) for name in filled):
        got, allowed = shortened(", ".join(names), 80), "names of the columns"
        raise InputError(f"the first line of {path} is not a header", got=got, allowed=allowed, hint=_NO_NAMES)
    if len(filled) == 1 and separator == ",":
        _check_one_column(path, filled[0])
    doubted = doubt(names, [row for _, row in first[skipped + 1 :]], separator)
    notes += [doubted] if doubted else []
    return _each_once(names, notes), first[skipped][0], itertools.chain(first[skipped + 1 :], rows), doubted


_NO_NAMES = "put a line of names above the numbers"


def _filled(row: list[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _is_title(row: list[str], after: list[str]) -> bool:
    """A comment, or a line of one cell in a table of more. A comment has the names, though, if it is as long as the
    line of numbers below it.
    """
    if row[0].lstrip().startswith("#"):
        numbers = all(_NUMBER.fullmatch(cell) or is_missing(cell) for cell in after)
        return not (len(row) == len(after) > 1 and numbers)
    return _filled(row) == 1


def _check_one_column(path: Path, name: str) -> None:
    if len(name.split()) > 1 and re.search(r"\s{2,}|\w\s\w+\s\w", name):
        what = f"{path} has one column, {shortened(name, 60)!r}"
        allowed = "commas, semicolons, tabs or bars between columns"
        raise InputError(what, got="spaces between words", allowed=allowed, hint="save it as CSV")


def _each_once(names: list[str], notes: list[str]) -> list[str]:
    """Columns without a name are called by their number, equal names by how often they came before."""
    found, twice = list[str](), list[str]()
    for place, name in enumerate(names, start=1):
        base = name or f"column {place}"
        number, new = 1, base
        while new in found:
            number += 1
            new = f"{base} ({number})"
        if number > 1:
            twice.append(repr(base))
        found.append(new)
    if twice:
        same = ", ".join(dict.fromkeys(twice))
        notes.append(f"several columns are called {same}: the later ones have a number behind the name")
    return found


_SPACE_BEFORE_QUOTE = re.compile(r'\s+"')


def _even(path: Path, header: list[str], rows: Rows, notes: list[str]) -> Rows:
    """The rows, all as long as the header: short ones lack their last cells, long ones may only have empty ones."""
    width, short = len(header), 0
    for line, row in rows:
        if len(row) > width:
            if _filled(row[width:]):
                hint = "a comma inside a number or a text? quote the cell, or use semicolons between columns"
                if any(_SPACE_BEFORE_QUOTE.match(cell) for cell in row):
                    hint = 'a cell is quoted only if no space is before its quotation mark: write ,"red, dark" and not '
                    hint += ', "red, dark"'
                allowed = f"{width}, as the line of names has"
                what = f"line {line} of {path} has more cells than there are columns"
                raise InputError(what, got=f"{len(row)} cells", allowed=allowed, hint=hint)
            row = row[:width]
        elif len(row) < width:
            short += 1
            row = [*row, *[""] * (width - len(row))]
        yield line, row
    if short:
        notes.append(f"{plural(short, 'row')} ended early: the missing cells count as empty")


def _sampled(
    rows: Rows, most: int, seed: int, keep: Callable[[Sequence[str]], bool] | None
) -> tuple[list[tuple[int, list[str]]], int, int]:
    """Rows in the order of the file, their number, and the number of all. Of those that are not certain, ``most`` at
    random: each has the same chance, whatever the length of the file (reservoir sampling).
    """
    rng = random.Random(seed)
    chosen, besides, seen = list[tuple[int, list[str]]](), list[tuple[int, list[str]]](), 0
    for line, row in rows:
        if keep is not None and keep(row):
            besides.append((line, row))
            continue
        seen += 1
        if len(chosen) < most:
            chosen.append((line, row))
        elif (place := rng.randrange(seen)) < most:
            chosen[place] = (line, row)
    kept = sorted([*chosen, *besides], key=lambda one: one[0])
    return kept, len(kept), seen + len(besides)


def _without_empty(
    header: list[str], kept: list[tuple[int, list[str]]], notes: list[str]
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Spreadsheets write columns that nobody filled: without a name, and without a value."""
    unnamed = [place for place, name in enumerate(header) if re.fullmatch(r"column \d+( \(\d+\))?", name)]
    empty = {place for place in unnamed if not any(row[place].strip() for _, row in kept)}
    if not empty:
        return header, kept
    notes.append(
        f"{plural(len(empty), 'column')} without a name or a value {'is' if len(empty) == 1 else 'are'} left out"
    )
    places = [place for place in range(len(header)) if place not in empty]
    return [header[place] for place in places], [(line, [row[place] for place in places]) for line, row in kept]


def _broken(path: Path, error: csv.Error, line: int) -> InputError:
    if "unexpected end" in str(error) or "field larger" in str(error):
        what, got = f"{path} has a quotation mark that is never closed", f"the end of the file, line {line}"
        return InputError(what, got=got, hint="a mark inside a quoted cell is written twice")
    return InputError(f"line {line} of {path} cannot be read", got=str(error), allowed="cells, quoted where needed")
