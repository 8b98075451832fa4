"""A file to learn from: its columns, the target, and the rows that teach."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from innergrad.errors import InputError, plural, shortened, suggestion
from innergrad.tables.sheets import Choose, Sheet, read_sheet
from innergrad.written import (
    Plan,
    Task,
    Value,
    absent,
    decimal_mark,
    is_missing,
    mixture,
    plan,
    task_of,
)

ROWS = 10_000  # that teach; of more, a sample
QUERIES = 200_000  # that are predicted in one go
LEAST = 5  # rows that teach
RARE = 5  # rows of a class: with fewer, some parts of the cross-validation have none
NAMED = 3  # classes, in a sentence
MOSTLY = 0.9  # of the rows: text that differs in more differs in almost every one
LETTERS = 3  # of a name, the least that are looked for in other names
VARIED = 20  # different values of a column: with fewer in all columns, rows are equal by chance
COPIES = 0.05  # of the rows: so many copies are worth a word
ALIKE = 0.9995  # a column whose correlation with the target is as large as this knows it
TOTALS = frozenset(("total", "totals", "sum", "summe", "gesamt", "grand total", "somme", "totale", "suma", "totaal"))
ROUNDED = 1e-3  # of a total: what the rounding of its parts may do


@dataclass(frozen=True)
class Asked:
    """What the user says of a file. task: amounts or classes, None to find out. drop: columns to leave out. rows: the
    most that teach.
    """

    target: str | None = None
    task: Task | None = None
    drop: tuple[str, ...] = ()
    rows: int = ROWS
    seed: int = 0


@dataclass(frozen=True)
class Table:
    """columns: values of the columns that are used, row by row of the sheet. y: the target, None where it is not known.
    why: the sentence about the target. plans: of every column but the target, in the order of the file. warnings:
    sentences about what may make a score too good.
    """

    sheet: Sheet
    target: Plan
    task: Task
    why: str
    plans: tuple[Plan, ...]
    columns: list[list[Value]]
    y: list[Value]
    decimal: str = "."
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def used(self) -> list[Plan]:
        return [one for one in self.plans if one.used]

    @property
    def known(self) -> list[int]:
        """Rows that teach."""
        return [row for row, value in enumerate(self.y) if value is not None]

    @property
    def queries(self) -> list[int]:
        """Rows whose target is empty."""
        empty = map(is_missing, self.sheet.column(self.sheet.header.index(self.target.name)))
        return [row for row, asked in enumerate(empty) if asked]

    @property
    def classes(self) -> list[str]:
        return sorted({value for value in self.y if isinstance(value, str)}, key=_natural)


def _natural(text: str) -> tuple[bool, float, str]:
    """Numbers before words, and 2 before 10."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def read_table(path: Path, asked: Asked) -> Table:
    """The file, ready to learn from; an error names the column that is in the way."""
    sheet = read_sheet(path, most=asked.rows, seed=asked.seed, certain=_to_predict(path, asked))
    place = sheet.header.index(_column(path, sheet.header, asked.target))
    decimal = decimal_mark((sheet.column(one) for one in range(len(sheet.header))), sheet.separator)
    name, cells = sheet.header[place], sheet.column(place)
    target, task, why, y, notes = _target(path, name, cells, decimal, asked.task)
    if total := _without_total(sheet, place, task, y):
        notes += total
        _, why = task_of(target, y, asked.task)
    known = [row for row, value in enumerate(y) if value is not None]
    _check_target(path, target, task, [y[row] for row in known])
    dropped = {_column(path, sheet.header, one, "--drop") for one in asked.drop}
    if name in dropped:
        raise InputError(f"{path.name}: {name!r} is the target", got=f"--drop {name}", allowed="other columns")
    plans = []
    for at, one in enumerate(sheet.header):
        if at == place:
            continue
        taught = [sheet.rows[row][at] for row in known]  # rows to predict say nothing about how a column is read
        plans.append(Plan(one, "text", "left out: --drop") if one in dropped else plan(one, taught, decimal))
    used = [one for one in plans if one.used]
    if not used:
        got = "; ".join(f"{one.name!r} {one.words.removeprefix('left out: ')}" for one in plans) or "the target alone"
        raise InputError(
            f"{path} has no column to learn {name!r} from", got=got, allowed="one or more columns that vary"
        )
    columns = [one.values(sheet.column(sheet.header.index(one.name)))[0] for one in used]
    alike = [note for one in used if not one.numeric for note in _alike("column", one.name, one.levels)]
    notes = [*sheet.notes, *notes, *alike, *_times(used)]
    table = Table(sheet, target, task, why, tuple(plans), columns, y, decimal, notes)
    return replace(table, warnings=[*_leaks(table), *_copies(table), *_rare(table)])


def _times(used: Sequence[Plan]) -> list[str]:
    """A score is no promise for other times."""
    dates = [repr(one.name) for one in used if one.kind == "dates"]
    if not dates:
        return []
    return [f"{', '.join(dates)}: the score is for new rows of the same time; later rows may be harder to predict"]


def _to_predict(path: Path, asked: Asked) -> Choose:
    """Rows without a target are kept, all of them: they are to be predicted."""

    def of(header: Sequence[str], doubted: str) -> Callable[[Sequence[str]], bool]:
        place, found = list(header).index(_column(path, header, asked.target, doubted=doubted)), 0

        def kept(row: Sequence[str]) -> bool:
            nonlocal found
            found += is_missing(row[place])
            if found > QUERIES:
                raise InputError(
                    f"{path} has too many rows without a {header[place]!r}",
                    got=f"more than {QUERIES:,}",
                    hint="put them into a file of their own, or several, for --predict",
                )
            return is_missing(row[place])

        return kept

    return of


def _column(path: Path, header: Sequence[str], name: str | None, flag: str = "--target", doubted: str = "") -> str:
    """The name of a column as the file has it. doubted: why the header may be none."""
    shown = ", ".join(header)
    if name is None:
        hint = doubted or f"give {flag} with the name of a column, e.g. {flag} {header[-1]!r}"
        raise InputError("the column to predict is missing", allowed=shown, hint=hint)
    sheet = Sheet(path, list(header), [], [], 0)
    place = sheet.place(name)
    if place is None:
        hint = doubted or near_name(name, header) or f"{flag} names a column of the header"
        raise InputError(f"no such column in {path}", got=repr(name), allowed=shown, hint=hint)
    twice = [one for one in header if one.startswith(f"{header[place]} (")]
    if flag == "--target" and twice and f"{header[place]} (2)" in twice:
        hint = f"rename all but one, or give --target {twice[0]!r} for the second"
        raise InputError(f"{path} has several columns called {header[place]!r}", got=", ".join(twice), hint=hint)
    return header[place]


def near_name(name: str, header: Sequence[str]) -> str:
    """ "did you mean 'asking price'?": a column of a similar name, or the only one that has this name in its own."""
    folded = name.strip().casefold()
    within = [one for one in header if len(folded) >= LETTERS and folded in one.casefold()]
    near = suggestion(name, header)
    return near if near or len(within) != 1 else f"did you mean {within[0]!r}?"


# --------------------------------------------------------------------------------------------------------------- target


def _target(
    path: Path, name: str, cells: Sequence[str], decimal: str, asked: Task | None
) -> tuple[Plan, Task, str, list[Value], list[str]]:
    """How the target is read, as amounts or classes and why, its values (None: not known), and notes."""
    given = sum(not is_missing(text) for text in cells)
    if 0 < given < LEAST:
        raise _too_few(f"the target {name!r} of {path}", given)
    found = plan("", cells, decimal)  # no name makes it an identifier
    if asked == "classes" and not (found.kind == "yes or no" and found.no):
        found = _text(name, cells)
    found = replace(found, name=name)
    if found.kind == "yes or no" and not found.no:
        what = f"the target {name!r} of {path} is the same in every row where it is filled"
        hint = "a row whose target is empty is to be predicted: write no where it is no"
        raise InputError(what, got=repr(found.yes), allowed="yes and no, or more classes", hint=hint)
    if found.kind == "empty":
        what = f"the target {name!r} of {path} is empty in every row"
        raise InputError(
            what, got=plural(len(cells), "row"), hint="rows with a target teach: fill some, or name another --target"
        )
    if found.kind == "constant":
        what = f"the target {name!r} of {path} is the same in every row"
        raise InputError(
            what, got=found.words.removeprefix("left out: it is ").split(" in every")[0], allowed="a column that varies"
        )
    texts = Counter(text.strip() for text in cells if not is_missing(text))
    mixed = mixture(texts) if not found.numeric and asked != "classes" else ""
    if mixed and (found.kind != "categories" or asked == "numbers" or len(texts) > _most_classes(texts.total())):
        what, _, hint = mixed.partition(": ")
        raise InputError(f"the target {name!r} of {path} has {what}", got=_quoted(texts), hint=hint)
    if found.kind in ("identifier", "text"):
        raise _too_different(path, name, texts)
    values, strange = found.values(cells)
    notes = [f"the target {name!r} has {mixed}, or each text is a class"] if mixed else []
    if strange:
        where = _quoted(strange)
        count = sum(text.strip() in strange for text in cells)
        notes.append(
            f"{plural(count, 'row')} whose {name!r} is no number ({where}) {'is' if count == 1 else 'are'} left out"
        )
    task, why = task_of(found, values, asked)
    y = [None if absent(value) else value for value in values]
    if task == "classes" and found.numeric:
        y = labels_of(cells, y, found)
    notes += _alike("the target", name, [value for value in y if isinstance(value, str)])
    return found, task, why, y, notes


def _without_total(sheet: Sheet, place: int, task: Task, y: list[Value]) -> list[str]:
    """A row whose target is the sum of all others, and that says so or has little else, teaches nothing: its y becomes
    None. A note on it.
    """
    amounts = {row: value for row, value in enumerate(y) if isinstance(value, float)} if task == "numbers" else {}
    total = math.fsum(amounts.values())
    for row, value in amounts.items():
        others = [text.strip() for at, text in enumerate(sheet.rows[row]) if at != place]
        bare = 2 * sum(map(is_missing, others)) >= len(others)
        if len(amounts) <= LEAST or abs(total - 2 * value) > ROUNDED * abs(value) or value == 0.0:
            continue
        if bare or any(text.casefold().rstrip(":") in TOTALS for text in others):
            y[row] = None
            return [f"line {sheet.lines[row]} is left out: its {sheet.header[place]!r} is the sum of all others"]
    return []


def _text(name: str, cells: Sequence[str]) -> Plan:
    """A column whose cells are names of classes, whatever they are."""
    given = Counter(text.strip() for text in cells if not is_missing(text))
    kind = "categories" if len(given) > 1 else "constant" if given else "empty"
    words = f"classes; left out: it is {next(iter(given), '')!r}"
    return Plan(name, kind, words, levels=tuple(text for text, _ in given.most_common()))  # type: ignore[arg-type]


def labels_of(cells: Sequence[str], y: Sequence[Value], target: Plan) -> list[Value]:
    """Classes by their text: 1 and 1.0 are one class, Yes and yes, too; each is called as it is written first. Of yes
    and no in several ways, that is the first that has the words of the plan.
    """
    first, found = dict[Value, str](), list[Value]()
    for meant, word in ((1.0, target.yes), (0.0, target.no)):
        named = next((text.strip() for text in cells if word and text.strip().casefold() == word), None)
        first |= {meant: named} if named else {}
    for text, value in zip(cells, y, strict=True):
        if value is None:
            found.append(None)
            continue
        whole = isinstance(value, float) and value.is_integer() and text.strip()[:1].isdigit()
        found.append(first.setdefault(value, str(int(float(value))) if whole else text.strip()))
    return found


def _too_different(path: Path, name: str, texts: Counter[str]) -> InputError:
    almost = len(texts) > MOSTLY * texts.total()
    return InputError(
        f"the target {name!r} of {path} is text{', and different in almost every row' if almost else ' of many kinds'}",
        got=f"{len(texts):,} different texts in {texts.total():,} rows",
        allowed="numbers, or classes that occur several times",
        hint="name another --target, or write the same text where the same is meant",
    )


def _most_classes(rows: int) -> int:
    return max(2, rows // 2)


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(repr(shortened(text, 30)) for text in list(texts)[:NAMED])


def _alike(what: str, name: str, texts: Iterable[str]) -> list[str]:
    """A note on texts that differ only in capitals and in spaces: they are taken as different."""
    same = dict[str, list[str]]()
    for text in dict.fromkeys(texts):
        same.setdefault("".join(text.split()).casefold(), []).append(text)
    pairs = [" and ".join(map(repr, (shortened(one, 30) for one in some))) for some in same.values() if len(some) > 1]
    if not pairs:
        return []
    more = f" and {len(pairs) - NAMED:,} more" if len(pairs) > NAMED else ""
    some = ", ".join(pairs[:NAMED])
    return [f"{what} {name!r} has texts that differ in capitals or spaces only ({some}{more}): write them alike"]


def _too_few(where: str, rows: int, read_as: str = "") -> InputError:
    what = f"{where} is known in too few rows"
    hint = f"give more rows; it was read as {read_as}" if "missing" in read_as else "give more rows"
    return InputError(what, got=plural(rows, "row"), allowed=f"{LEAST} or more", hint=hint)


def _check_target(path: Path, target: Plan, task: Task, y: Sequence[Value]) -> None:
    where = f"the target {target.name!r} of {path}"
    if len(y) < LEAST:
        raise _too_few(where, len(y), target.words)
    counts = Counter(y)
    if len(counts) < 2:
        got = f"{next(iter(counts))}"
        raise InputError(f"{where} is the same in every row", got=got, allowed="a column that varies")
    if task == "classes" and len(counts) > _most_classes(len(y)):
        got = f"{len(counts):,} classes in {len(y):,} rows"
        hint = "amounts? give --numbers" if target.numeric else "name another --target"
        raise InputError(
            f"{where} has too many classes", got=got, allowed="classes that occur several times", hint=hint
        )


def _leaks(table: Table) -> list[str]:
    """Columns that know the target: who predicts seldom has them."""
    known, found = table.known, []
    for one, values in zip(table.used, table.columns, strict=True):
        pairs = [(values[row], table.y[row]) for row in known if not absent(values[row])]
        if len(pairs) < 10 or len(pairs) < len(known) // 2:
            continue
        if _knows(pairs, table.task, one.numeric):
            found.append(
                f"column {one.name!r} tells the target by itself: if it is not known when you predict, leave it out "
                f"with --drop {one.name!r}"
            )
    return found


def _copies(table: Table) -> list[str]:
    """Rows that are there twice: one teaches, the other is asked."""
    if not are_varied(table.used, table.columns):
        return []
    rows = Counter(row_keys([*table.columns, table.y], table.known))
    copies = rows.total() - len(rows)
    if copies < COPIES * rows.total():
        return []
    return [f"{plural(copies, 'row')} are copies of other rows, which makes the score too good: leave them out"]


def are_varied(used: Sequence[Plan], columns: Sequence[Sequence[Value]]) -> bool:
    """Where values are few, rows are equal by chance."""
    return any(one.numeric and len(set(values)) > VARIED for one, values in zip(used, columns, strict=True))


def row_keys(columns: Sequence[Sequence[Value]], rows: Sequence[int]) -> list[tuple[str, ...]]:
    """The same for equal rows, and only for these; a missing cell equals a missing one."""
    return [tuple("" if absent(values[row]) else repr(values[row]) for values in columns) for row in rows]


def _rare(table: Table) -> list[str]:
    """Classes that are hardly learned, and hardly tested."""
    counts = Counter(table.y[row] for row in table.known) if table.task == "classes" else Counter[Value]()
    rare = [f"{shortened(str(name), 30)!r} ({plural(n, 'row')})" for name, n in counts.most_common() if n < RARE]
    if not rare:
        return []
    more = f" and {len(rare) - NAMED:,} more" if len(rare) > NAMED else ""
    what = "the class" if len(rare) == 1 else "the classes"
    end = "from so few rows little can be learned, and the score can tell little about that"
    return [f"{what} {', '.join(rare[::-1][:NAMED])}{more}: {end}"]


def _knows(pairs: list[tuple[Value, Value]], task: Task, numeric: bool) -> bool:
    if task == "numbers":
        return numeric and abs(_correlation([(float(a or 0.0), float(b or 0.0)) for a, b in pairs])) > ALIKE
    by = dict[Value, set[Value]]()
    for value, label in pairs:
        by.setdefault(value, set()).add(label)
    return len(by) <= max(10, len(pairs) // 5) and all(len(labels) == 1 for labels in by.values())


def _correlation(pairs: list[tuple[float, float]]) -> float:
    n = len(pairs)
    scale = max(max(abs(a) for a, _ in pairs), 1e-300), max(max(abs(b) for _, b in pairs), 1e-300)
    x, y = ([pair[i] / scale[i] for pair in pairs] for i in (0, 1))
    a, b = math.fsum(x) / n, math.fsum(y) / n
    top = math.fsum((u - a) * (v - b) for u, v in zip(x, y, strict=True))
    below = math.sqrt(math.fsum((u - a) ** 2 for u in x) * math.fsum((v - b) ** 2 for v in y))
    return top / below if below > 0.0 else 0.0
