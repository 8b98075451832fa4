"""What a column of text holds: numbers, dates, yes or no, categories, or nothing to learn from. Its cells as values.

A ``Plan`` says how a column is read, in fields that a JSON file keeps and in plain words. It is made from the rows of
one file, by ``plan``, and reads the same column of another, by ``Plan.values``.

Values are floats, NaN where nothing is given; of categories, text or None. Dates are days since 1970, times of day
hours, yes is 1 and no is 0.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal

from innergrad.errors import LARGEST, InputError, plural, readable, shortened
from innergrad.written.dates import (
    MONTH_AND_YEAR,
    are_compact_days,
    day_of,
    day_words,
    either_way,
    hour_of,
    short_year,
)
from innergrad.written.numbers import (
    MOSTLY,
    NO_NUMBER,
    about_marks,
    about_unit,
    has_marks,
    is_missing,
    mixture,
    number_of,
    parsed,
    plain_numbers,
    unit_of,
)

Kind = Literal["numbers", "dates", "times", "yes or no", "categories", "empty", "constant", "identifier", "text"]
Value = float | str | None
USED: tuple[Kind, ...] = ("numbers", "dates", "times", "yes or no", "categories")
HALF, WORDS = 0.5, 3  # numbers may also be so few, if all else is one of three words: refused, unknown
MANY, OFTEN = 20, 0.5  # text with more different values, in more than this share of its rows, is no category
FEW_ROWS = 10  # with fewer rows all values may differ by chance
SHOWN = 3  # examples in words
YEARS = (1000, 2999)


@dataclass(frozen=True)
class Plan:
    """How a column is read. words: what was done with it. reading: the part of them about marks, units and spellings.
    decimal: the mark of fractions, "." or ","; marked: whether there were marks to tell it by. unit: what stands beside
    every number. day_first: 1/2/2024 is in February. yes, no: as they are written, in lower case; no is empty where an
    empty cell means no. levels: of categories, the most frequent first.
    """

    name: str
    kind: Kind
    words: str
    reading: str = ""
    decimal: str = "."
    marked: bool = False
    unit: str = ""
    day_first: bool = True
    yes: str = ""
    no: str = ""
    levels: tuple[str, ...] = ()

    @property
    def used(self) -> bool:
        return self.kind in USED

    @property
    def numeric(self) -> bool:
        return self.kind in ("numbers", "dates", "times", "yes or no")

    def values(self, cells: Sequence[str]) -> tuple[list[Value], list[str]]:
        """The cells as values, and the texts that are no value of this kind (they count as missing)."""
        if self.kind == "numbers" and (plain := plain_numbers(cells, self.decimal)) is not None:
            return list(plain), []
        known = dict[str, Value]()
        strange = dict[str, None]()
        for text in dict.fromkeys(cells):
            known[text], fits = self._value(text.strip())
            if not fits:
                strange[text.strip()] = None
        return [known[text] for text in cells], list(strange)

    def _value(self, text: str) -> tuple[Value, bool]:
        if self.kind == "yes or no" and not self.no and (is_missing(text) or _folded(text) in _WORDS_FOR_NO):
            return 0.0, True
        if is_missing(text) or (self.kind in ("numbers", "dates", "times") and _folded(text) in NO_NUMBER):
            return (None if self.kind == "categories" else math.nan), True
        if self.kind == "categories":
            return text, True
        if self.kind == "yes or no":
            folded, other = _folded(text), answer(text)  # or as it is written elsewhere
            found = 1.0 if folded == self.yes else 0.0 if folded == self.no else math.nan if other is None else other
        elif self.kind == "numbers":
            value = number_of(text, self.decimal, self.unit)
            found = math.nan if value is None else value
        else:
            parse = day_of if self.kind == "dates" else hour_of
            value = parse(text, self.day_first)
            found = math.nan if value is None else value
        return (found, True) if abs(found) < LARGEST else (math.nan, False)

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the defaults."""
        default = Plan("", "empty", "")
        found = {key: value for key, value in asdict(self).items() if value != getattr(default, key)}
        return {"name": self.name, "kind": self.kind, "words": self.words} | found

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Plan:
        known = {one.name for one in fields(cls)}
        if not set(content) <= known:
            raise KeyError(", ".join(sorted(set(content) - known)))
        made = cls(**{**content, "levels": tuple(content.get("levels", ()))})
        texts = (made.name, made.words, made.reading, made.decimal, made.unit, *made.levels)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("text")
        return made


def plan(name: str, cells: Sequence[str], decimal: str = ".") -> Plan:
    """How to read a column, from its cells. decimal: the mark of fractions in this file (see ``decimal_mark``)."""
    plain = None if are_compact_days(text.strip() for text in cells) else plain_numbers(cells, decimal)
    if plain is not None and len(set(plain)) > 1 and not any(text[:1] == "0" and text[1:2].isdigit() for text in cells):
        reading = about_marks(cells, decimal)
        words = f"numbers {span(min(plain), max(plain))}{reading}"
        numbers = Plan(name, "numbers", words, reading, decimal, has_marks(cells))
        return _as_identifier(name, numbers, plain) or numbers
    given = Counter(text.strip() for text in cells)
    for text in [text for text in given if is_missing(text)]:
        del given[text]
    missing = len(cells) - given.total()
    if not given:
        return Plan(name, "empty", "left out: no cell is filled")
    told = Counter({text: times for text, times in given.items() if _folded(text) not in NO_NUMBER})
    found = _yes_or_no(name, given, missing) or _compact_dates(name, told) or _numbers(name, told, decimal)
    found = found or _dates(name, told)
    if found is not None and found.kind != "yes or no":
        missing += given.total() - told.total()
        given = told
    if len(given) == 1 and (found is None or found.kind != "yes or no"):
        return Plan(name, "constant", f"left out: it is {_quoted(given)} in every row where it is filled")
    if found is None:
        found = _words(name, given)
    if found.kind == "numbers" and not missing:
        values = [value for value in found.values(cells)[0] if isinstance(value, float)]
        found = _as_identifier(name, found, values) or found
    if missing and found.used and not (found.kind == "yes or no" and not found.no):
        found = _more(found, f"{plural(missing, 'cell')} {'is' if missing == 1 else 'are'} missing")
    return found


def _more(one: Plan, words: str) -> Plan:
    return Plan(**{**vars(one), "words": f"{one.words}; {words}"})


def _quoted(texts: Iterable[str]) -> str:
    some = [repr(shortened(text, 30)) for text in list(texts)[:SHOWN]]
    return ", ".join(some)


def _folded(text: str) -> str:
    return text.strip().casefold()


# -------------------------------------------------------------------------------------------------------------- numbers

_CODE = re.compile(r"0\d+")


def numbers_of(name: str, cells: Sequence[str], decimal: str) -> Plan | None:
    """How cells of a column of numbers are written, be they few or all the same; None if they are no numbers."""
    return _numbers(name, _told(cells), decimal)


def dates_of(name: str, cells: Sequence[str]) -> Plan | None:
    """The same of a column of dates."""
    return _dates(name, _told(cells))


def _told(cells: Sequence[str]) -> Counter[str]:
    given = Counter(text.strip() for text in cells)
    return Counter({text: n for text, n in given.items() if not is_missing(text) and _folded(text) not in NO_NUMBER})


def _numbers(name: str, given: Counter[str], decimal: str) -> Plan | None:
    best: Plan | None = None
    if not given or any(_CODE.fullmatch(text) for text in given):
        return None  # 01067 is the name of a place
    if len(given) > 1 and all(MONTH_AND_YEAR.fullmatch(text) for text in given):
        return None
    for mark in (decimal, "," if decimal == "." else "."):
        read = {text: parsed(text, mark) for text in given}
        fits = sum(given[text] for text, found in read.items() if found is not None)
        others = sum(found is None for found in read.values())
        enough = fits >= (HALF if others <= WORDS and len(read) > 2 * others else MOSTLY) * given.total()
        if not enough or (mark != decimal and others):
            continue
        best = _of_numbers(name, given, read, mark)
        if best is not None:
            break
    return best


def _of_numbers(
    name: str, given: Counter[str], read: Mapping[str, tuple[float, str] | None], decimal: str
) -> Plan | None:
    unit = unit_of(found for found in read.values() if found is not None)
    if unit is None:
        return None  # numbers of several units are no one column of numbers
    infinite = [text for text, found in read.items() if found is not None and not abs(found[0]) < LARGEST]
    strange = [text for text, found in read.items() if found is None]
    sizes = [number_of(text, decimal, unit) for text in given]
    known = [value for value in sizes if value is not None and abs(value) < LARGEST]
    reading = about_unit(unit) + about_marks((text for text in given if text not in strange), decimal)
    words = (f"numbers {span(min(known), max(known))}" if known else "numbers") + reading
    if strange:
        count = plural(sum(given[text] for text in strange), "cell")
        words += f"; no numbers, and so missing: {count} ({_quoted(strange)})"
    if infinite:
        words += f"; infinite or too large, and so missing: {_quoted(infinite)}"
    return Plan(name, "numbers", words, reading, decimal, has_marks(given), unit)


# ------------------------------------------------------------------------------------------------------------ yes or no

_PAIRS = (
    *(("yes", "no"), ("true", "false"), ("y", "n"), ("t", "f"), ("on", "off"), ("ja", "nein"), ("wahr", "falsch")),
    *(("oui", "non"), ("vrai", "faux"), ("sí", "no"), ("si", "no"), ("sim", "não"), ("ja", "nej"), ("ja", "nee")),
    *(("tak", "nie"), ("x", ""), ("✓", ""), ("1", "0")),
)
_WORDS_FOR_YES = {yes for yes, _ in _PAIRS} - {"1"}
_WORDS_FOR_NO = {no for _, no in _PAIRS} - {""}
_ANSWERS = dict.fromkeys(_WORDS_FOR_NO, 0.0) | dict.fromkeys({*_WORDS_FOR_YES, "1"} - {"x"}, 1.0)  # x may be unknown


def answer(text: str) -> float | None:
    """1 of a spelling of yes, 0 of one of no; None of anything else."""
    return _ANSWERS.get(_folded(text))


def answers(texts: Iterable[str]) -> tuple[str, str] | None:
    """The words for yes and no, in lower case, of texts that are spellings of these and nothing else; None of others.
    Among several spellings there must be the two words of a pair, or one of them and the first letter of the other: t
    and n may be anything. 1 and 0 alone are numbers.
    """
    folded = set(map(_folded, texts))
    for yes, no in _PAIRS:
        if no and folded == {yes, no}:
            return yes, no
    if not folded <= _ANSWERS.keys():
        return None
    for yes, no in _PAIRS:
        if not no or no == "0" or not ({yes, yes[0]} & folded and {no, no[0]} & folded):
            continue
        if {yes, no} & folded:
            return yes, no
    return None


def _yes_or_no(name: str, given: Counter[str], missing: int) -> Plan | None:
    """Spellings of yes and no; or one word, and empty cells, where empty means no."""
    folded = {_folded(text) for text in given}
    if (pair := answers(folded)) and not folded <= {"1", "0"}:
        yes, no = pair
        ways = f", written in {len(folded)} ways ({_quoted(given)} ...)" if len(folded) > 2 else ""
        return Plan(name, "yes or no", f"{yes} is 1, {no} is 0{ways}", ways, yes=yes, no=no)
    if len(folded) == 1 and missing and given.total() > 1 and (word := next(iter(folded))) in _WORDS_FOR_YES:
        return Plan(name, "yes or no", f"{next(iter(given))!r} is 1, an empty cell is 0", yes=word)
    return None


# ------------------------------------------------------------------------------------------------------ dates and times


EITHER, SHORT = "could be either", "years have two digits"


def _compact_dates(name: str, given: Counter[str]) -> Plan | None:
    return _dates(name, given) if are_compact_days(given) else None


def _dates(name: str, given: Counter[str]) -> Plan | None:
    for kind, parse in (("dates", day_of), ("times", hour_of)):
        fits = {
            first: sum(times for text, times in given.items() if parse(text, first) is not None)
            for first in (True, False)
        }
        if not given or max(fits.values()) < MOSTLY * given.total():
            continue
        either = [text for text in given if either_way(text)] if fits[True] == fits[False] else []
        dotted = any("." in text.split(" ")[0] for text in given)
        day_first = fits[True] > fits[False] or (fits[True] == fits[False] and (dotted or not either))
        words = "dates: days since 1970" if kind == "dates" else "times: hours"
        if are_compact_days(given):
            words += f", of numbers such as {next(iter(given))}"
        if either:
            words += f"; {'the day' if day_first else 'the month'} is read first ({either[0]!r} {EITHER})"
        short = [day for text in given if kind == "dates" and short_year(text) and (day := day_of(text, day_first))]
        strange = [text for text in given if parse(text, day_first) is None]
        if short:
            words += f"; {SHORT}, from {day_words(min(short))} to {day_words(max(short))}"
        words += f"; no {kind}, and so missing: {_quoted(strange)}" if strange else ""
        return Plan(name, "dates" if kind == "dates" else "times", words, day_first=day_first)
    return None


# ---------------------------------------------------------------------------------------------------- text, identifiers

_NAMES = re.compile(
    r"(.*[\W_])?(id|ids|nr|no|number|key|uuid|guid|code|index|row)\.?|.*[a-z](Id|ID|Nr|No|Key)|unnamed.*|#|column \d+",
    re.IGNORECASE,
)
_COUNTERS = re.compile(
    r"unnamed.*|index|row|rows?[\W_]?(id|nr|no|number)?|#|nr\.?|no\.?|number|id|column \d+|(?-i:X)|obs\.?",
    re.IGNORECASE,
)


def _words(name: str, given: Counter[str]) -> Plan:
    rows, different, mixed = given.total(), len(given), mixture(given)
    if rows >= FEW_ROWS and different == rows:
        words = mixed or f"text that is different in every row ({_quoted(given)})"
        return Plan(name, "identifier", f"left out: {words}")
    if different > MANY and different > OFTEN * rows:
        words = mixed or f"free text ({different:,} different texts in {rows:,} rows)"
        return Plan(name, "text", f"left out: {words}")
    levels = tuple(text for text, _ in given.most_common())
    words = f"{len(levels)} categories: {_quoted(levels)}" + (" ..." if len(levels) > SHOWN else "")
    return Plan(name, "categories", words + (f"; {mixed}" if mixed else ""), levels=levels)


def _as_identifier(name: str, found: Plan, values: Sequence[float]) -> Plan | None:
    """Row numbers, and numbers that name a thing: whole, all different, in a column that is called so."""
    counter, names = _COUNTERS.fullmatch(name), _NAMES.fullmatch(name)
    if not (counter or names) or found.unit or len(values) < FEW_ROWS or len(set(values)) < len(values):
        return None
    if not all(value.is_integer() for value in values):
        return None
    if counter and all(b == a + 1 for a, b in pairwise(values)):
        return Plan(name, "identifier", "left out: it numbers the rows")
    if names:
        return Plan(name, "identifier", "left out: by its name and its values, a number that names the row")
    return None


# --------------------------------------------------------------------------------------------------------------- target

MOST_CLASSES, EACH = 10, 5  # whole numbers are classes if they are so few, and each is in so many rows
FEW_VALUES = 3  # of a target of whole numbers, some of which are rare: they may be classes
Task = Literal["numbers", "classes"]


def task_of(one: Plan, values: Sequence[Value], asked: Task | None) -> tuple[Task, str]:
    """Whether the target is an amount or a class, and why: text and yes or no are classes; so are whole numbers of at
    most ten different values, each in five rows or more. All other numbers, and dates, are amounts.
    """
    given = Counter(value for value in values if not absent(value))
    if not one.numeric:
        if asked == "numbers":
            raise InputError(
                f"the target {one.name!r} is no column of numbers",
                got=_quoted(one.levels),
                hint="leave out --numbers, or name another --target",
            )
        return "classes", f"its {plural(len(given), 'different text')} are classes"
    if asked is not None:
        return asked, f"as --{asked} says"
    if one.kind == "yes or no":
        return "classes", "yes or no" + one.reading
    whole = one.kind == "numbers" and all(isinstance(value, float) and value.is_integer() for value in given)
    if whole and len(given) <= MOST_CLASSES and min(given.values(), default=0) >= EACH:
        return "classes", f"its {len(given)} different whole numbers are classes; with --numbers they are amounts"
    sizes = [value for value in given if isinstance(value, float)]
    classes = f"; with --classes its {len(given)} values are classes" if whole and 1 < len(given) <= FEW_VALUES else ""
    return "numbers", (span(min(sizes), max(sizes), one) if sizes else "") + one.reading + classes


def absent(value: Value) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def span(low: float, high: float, one: Plan | None = None) -> str:
    """ "from 51.8 to 239.9". Whole numbers that both may be years are written as these are: from 1900 to 2023."""
    if one is not None and one.kind == "dates":
        return f"from {day_words(low)} to {day_words(high)}"
    years = all(value.is_integer() and YEARS[0] <= value <= YEARS[1] for value in (low, high))
    ends = (f"{value:.0f}" if years else readable(value) for value in (low, high))
    return "from {} to {}".format(*ends)
