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
from datetime import date, timedelta
from itertools import pairwise
from typing import Any, Literal

from innergrad.errors import LARGEST, InputError, plural, readable, shortened

Kind = Literal["numbers", "dates", "times", "yes or no", "categories", "empty", "constant", "identifier", "text"]
Value = float | str | None
USED: tuple[Kind, ...] = ("numbers", "dates", "times", "yes or no", "categories")
MOSTLY = 0.9  # of the cells that are given: a column of numbers, or dates, may have a few that are none
HALF, WORDS = 0.5, 3  # numbers may also be so few, if all else is one of three words: refused, unknown
MANY, OFTEN = (
    20,
    0.5,
)  # text with more different values than this, and in more than this share of its rows, is no category
FEW_ROWS = 10  # with fewer rows all values may differ by chance
SHOWN = 3  # examples in words

MISSING = frozenset(
    ("", "na", "n/a", "n.a.", "nan", "null", "?", "-", "--", "–", "—", ".")
    + ("#n/a", "#na", "#null!", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "<na>", "(null)", "\\n")
)  # ways to write that there is no value, in lower case
NO_NUMBER = frozenset(("none", "nil", "missing"))  # the same among numbers; among words, they are words
LONGEST_MISSING = 32  # characters, with spaces around


def is_missing(text: str) -> bool:
    return len(text) < LONGEST_MISSING and text.strip().casefold() in MISSING


@dataclass(frozen=True)
class Plan:
    """How a column is read. words: what was done with it. decimal: the mark of fractions, "." or ",". unit: what
    stands beside every number. day_first: 1/2/2024 is in February. yes, no: as they are written, in lower case; no is
    empty where an empty cell means no. levels: of categories, the most frequent first.
    """

    name: str
    kind: Kind
    words: str
    decimal: str = "."
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
        if self.kind == "yes or no" and not self.no:
            return (0.0 if is_missing(text) else 1.0), is_missing(text) or _folded(text) == self.yes
        if is_missing(text) or (self.kind in ("numbers", "dates", "times") and _folded(text) in NO_NUMBER):
            return (None if self.kind == "categories" else math.nan), True
        if self.kind == "categories":
            return text, True
        if self.kind == "yes or no":
            folded = _folded(text)
            found = 1.0 if folded == self.yes else 0.0 if folded == self.no else math.nan
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
        if not all(isinstance(text, str) for text in (made.name, made.words, made.decimal, made.unit, *made.levels)):
            raise TypeError("text")
        return made


def plan(name: str, cells: Sequence[str], decimal: str = ".") -> Plan:
    """How to read a column, from its cells. decimal: the mark of fractions in this file (see ``decimal_mark``)."""
    plain = plain_numbers(cells, decimal)
    if plain is not None and len(set(plain)) > 1 and not any(text[:1] == "0" and text[1:2].isdigit() for text in cells):
        words = f"numbers from {readable(min(plain))} to {readable(max(plain))}"
        words += COMMAS if decimal == "," and any("," in text for text in cells) else ""
        numbers = Plan(name, "numbers", words, decimal=decimal)
        return _as_identifier(name, numbers, plain) or numbers
    given = Counter(text.strip() for text in cells)
    for text in [text for text in given if is_missing(text)]:
        del given[text]
    missing = len(cells) - given.total()
    if not given:
        return Plan(name, "empty", "left out: no cell is filled")
    told = Counter({text: times for text, times in given.items() if _folded(text) not in NO_NUMBER})
    found = _numbers(name, told, decimal) or _yes_or_no(name, given, missing) or _dates(name, told)
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

_SPACES = re.compile(r"[\s\u00a0\u202f\u2009]+")
_CURRENCY = r"(?:[€$£¥₹₽₩₺₴]|US\$|R\$|A\$|C\$|[A-Z]{3}|Rs\.?|kr\.?|zł|Fr\.?)"
_AREA = r"(?:[kcdm]?m|ft|in|yd|mi)(?:\^?[23])|sq\.? ?(?:k?m|ft|in|yd|mi)\.?"  # m2, sq ft
_UNIT = rf"(?:{_AREA}|[^\d\s.,+()'’-][^\d\s,+()]{{0,7}})"  # behind a number: %, €, km, m²
_BODY = {
    ".": r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:['’ ]\d{3})+|\d+)?(?:\.\d*)?",
    ",": r"(?:\d{1,3}(?:\.\d{3})+|\d{1,3}(?:['’ ]\d{3})+|\d+)?(?:,\d*)?",
}
_NUMBER = {
    mark: re.compile(
        rf"(?P<open>\()?(?P<a>[+-])?\s?(?P<before>{_CURRENCY})?\s?(?P<b>[+-])?\s?(?P<body>(?=[.,]?\d){body})"
        rf"(?P<exponent>[eE][+-]?\d+)?\s?(?P<after>{_UNIT})?(?P<close>\))?"
    )
    for mark, body in _BODY.items()
}
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"(?<![\d.])[1-9]\d{0,2}(\.\d{3})+(?!\d)")
_CODE = re.compile(r"0\d+")
_INFINITE = re.compile(r"[+-]?(inf|infinity|∞)", re.IGNORECASE)


def _number(text: str, decimal: str) -> tuple[float, str] | None:
    """A number as people write it, and the unit beside it; None if it is none."""
    if decimal == "." and _PLAIN.fullmatch(text):
        return float(text), ""
    text = _SPACES.sub(" ", text.replace("−", "-")).strip().removeprefix("'")
    if _INFINITE.fullmatch(text):
        return (-math.inf if text[0] == "-" else math.inf), ""
    found = _NUMBER[decimal].fullmatch(text)
    if found is None or bool(found["open"]) != bool(found["close"]) or (found["a"] and found["b"]):
        return None
    body = re.sub(r"['’ ]", "", found["body"])
    body = body.replace(",", "") if decimal == "." else body.replace(".", "").replace(",", ".")
    value = float(body + (found["exponent"] or ""))
    negative = (found["a"] or found["b"]) == "-" or bool(found["open"])
    return (-value if negative else value), f"{found['before'] or ''} {found['after'] or ''}".strip()


def number_of(text: str, decimal: str, unit: str = "") -> float | None:
    """The number in a cell of a column with this unit. Two units are of several cells at once: a percent sign, where
    others have none, counts hundredths; and k and M count thousands and millions.
    """
    found = _number(text, decimal)
    if found is None:
        return None
    value, own = found
    if unit == MIXED:
        return value / 100.0 if own == "%" else value if not own else None
    if unit == MULTIPLES:
        factor = _factor(own)
        return None if factor is None else value * factor
    return value if own in ("", unit) or _folded(own) == _folded(unit) else None


def number_alone(text: str, decimal: str = ".", unit: str = "") -> float | None:
    """The number in a cell of a column with this unit. The cell is read by itself, whatever others have beside theirs:
    with another unit where the column has none, or with none.
    """
    found = _number(text, decimal)
    return None if found is None else number_of(text, decimal, unit_of_others(unit, found[1])[0])


def _factor(unit: str) -> float | None:
    """Of k, M, $ M: what they count; 1 of a currency alone."""
    *before, last = unit.split(" ")
    if _folded(last) in _FACTORS and all(re.fullmatch(_CURRENCY, one) for one in before):
        return _FACTORS[_folded(last)]
    return 1.0 if not unit or re.fullmatch(_CURRENCY, unit) else None


def unit_of_others(learned: str, here: str) -> tuple[str, str]:
    """The unit by which new cells are read, where those that taught had one, or none, and these have another, or none:
    the unit, and a note on it.
    """
    if learned == here or _folded(learned) == _folded(here) or learned in (MIXED, MULTIPLES):
        return learned, ""
    if learned and here:
        return learned, ""  # cells of another unit are no numbers of this column
    if learned:
        return (
            learned,
            f"has no unit here: {learned!r} is assumed, as in the rows that teach, so 5 is read as 5 {learned}",
        )
    if here in ("%", MIXED):
        return MIXED, "has % here, and none in the rows that teach: 5 % is read as 0.05"
    if here == MULTIPLES:
        return here, "has k or M here, and not in the rows that teach: they are read as thousands and millions"
    if here != "m" and _factor(here) not in (None, 1.0):  # m may be metres
        return MULTIPLES, f"has {here!r} here, and not in the rows that teach: it is read as {_factor(here):,.0f}"
    return here, f"has the unit {here!r} here, and none in the rows that teach: it is left off"


def about_unit(unit: str) -> str:
    """What was done with the unit of a column, to be put behind other words."""
    said = {"": "", MIXED: "; those with % are hundredths", MULTIPLES: "; k and M count thousands and millions"}
    return said.get(unit, f"; the unit {unit!r} is left off")


MIXED, MULTIPLES = "% or share", "k, M"
_FACTORS = {"k": 1e3, "tsd": 1e3, "tsd.": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "mio.": 1e6, "b": 1e9, "bn": 1e9}
_FACTORS |= {"mrd": 1e9, "mrd.": 1e9}
COMMAS = "; commas are read as decimal marks"
LOOKED_AT = 500  # cells of a column, for the mark of fractions


def plain_numbers(cells: Sequence[str], decimal: str = ".") -> list[float] | None:
    """The cells, if every one is a number without anything else; the usual case, and the fast one."""
    if decimal == ",":
        if any("." in text for text in cells):
            return None
        cells = [text.replace(",", ".") for text in cells]
    try:
        found = list(map(float, cells))
    except ValueError:
        return None
    ordinary = all(-LARGEST < value < LARGEST for value in found)  # NaN is not
    return None if not ordinary or any("_" in text for text in cells) else found  # Python takes 1_0 for 10


def decimal_mark(columns: Iterable[Sequence[str]], separator: str) -> str:
    """The mark of fractions in a file: the one by which more of its columns are numbers. Cells such as 1,234 are
    numbers by both; if nothing else decides, a comma is the mark only where semicolons or tabs stand between columns.
    """
    votes = Counter[str]()
    for cells in columns:
        given = [text.strip() for text in dict.fromkeys(cells[:LOOKED_AT]) if not is_missing(text)]
        if not any("," in text or "." in text for text in given):
            continue
        shares = {mark: sum(_number(text, mark) is not None for text in given) / len(given) for mark in ".,"}
        if max(shares.values()) >= MOSTLY and shares["."] != shares[","]:
            votes[max(shares, key=lambda mark: shares[mark])] += 1
        elif min(shares.values()) >= MOSTLY and separator != ",":
            if any("," in text for text in given):
                votes[","] += 0  # 1,234 between semicolons
            elif len(given) > SHOWN and all(_THOUSANDS.search(text) for text in given if "." in text):
                votes[","] += 1  # 1.234 and 12.500
    if votes["."] == votes[","]:
        return "," if "," in votes and separator != "," and not votes["."] else "."
    return max(votes, key=lambda mark: votes[mark])


def _numbers(name: str, given: Counter[str], decimal: str) -> Plan | None:
    best: Plan | None = None
    if not given or any(_CODE.fullmatch(text) for text in given):
        return None  # 01067 is the name of a place
    for mark in (decimal, "," if decimal == "." else "."):
        parsed = {text: _number(text, mark) for text in given}
        fits = sum(given[text] for text, found in parsed.items() if found is not None)
        others = sum(found is None for found in parsed.values())
        enough = fits >= (HALF if others <= WORDS and len(parsed) > 2 * others else MOSTLY) * given.total()
        if not enough or (mark != decimal and others):
            continue
        best = _of_numbers(name, given, parsed, mark)
        if best is not None:
            break
    return best


def _of_numbers(
    name: str, given: Counter[str], parsed: Mapping[str, tuple[float, str] | None], decimal: str
) -> Plan | None:
    units = Counter(_folded(found[1]) for found in parsed.values() if found is not None and found[1])
    unit, bare = "", any(found is not None and not found[1] for found in parsed.values())
    if units:
        spelt = next(found[1] for found in parsed.values() if found is not None and found[1])
        counted = {_factor(found[1]) for found in parsed.values() if found is not None and found[1]}
        if None not in counted and (len(counted) > 1 or (bare and counted != {1.0})):
            unit = MULTIPLES
        elif len(units) > 1:
            return None  # numbers of several units are no one column of numbers
        else:
            unit = MIXED if spelt == "%" and bare else spelt
    infinite = [text for text, found in parsed.items() if found is not None and not abs(found[0]) < LARGEST]
    strange = [text for text, found in parsed.items() if found is None]
    sizes = [number_of(text, decimal, unit) for text in given]
    known = [value for value in sizes if value is not None and abs(value) < LARGEST]
    words = f"numbers from {readable(min(known))} to {readable(max(known))}" if known else "numbers"
    words += about_unit(unit)
    if decimal == "," and any("," in text for text in given):
        words += COMMAS
    if strange:
        count = plural(sum(given[text] for text in strange), "cell")
        words += f"; no numbers, and so missing: {count} ({_quoted(strange)})"
    if infinite:
        words += f"; infinite or too large, and so missing: {_quoted(infinite)}"
    return Plan(name, "numbers", words, decimal=decimal, unit=unit)


# ------------------------------------------------------------------------------------------------------------ yes or no

_PAIRS = (
    *(("yes", "no"), ("true", "false"), ("y", "n"), ("t", "f"), ("on", "off"), ("ja", "nein"), ("wahr", "falsch")),
    *(("oui", "non"), ("vrai", "faux"), ("sí", "no"), ("si", "no"), ("sim", "não"), ("ja", "nej"), ("ja", "nee")),
    *(("tak", "nie"), ("x", ""), ("✓", ""), ("1", "0")),
)


def _yes_or_no(name: str, given: Counter[str], missing: int) -> Plan | None:
    """Two words of a pair; or one word, and empty cells, where empty means no."""
    folded = {_folded(text) for text in given}
    for yes, no in _PAIRS:
        if no and folded == {yes, no}:
            return Plan(name, "yes or no", f"{yes} is 1, {no} is 0", yes=yes, no=no)
    if len(folded) == 1 and missing and given.total() > 1 and (word := next(iter(folded))) in _WORDS_FOR_YES:
        return Plan(name, "yes or no", f"{next(iter(given))!r} is 1, an empty cell is 0", yes=word)
    return None


_WORDS_FOR_YES = {yes for yes, _ in _PAIRS} - {"1"}


# ------------------------------------------------------------------------------------------------------ dates and times

_CLOCK = (
    r"(?:[T ]+(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,]\d+)?)?"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?\s*(?:Z|UTC|[+-]\d{2}:?\d{2})?)?"
)
_DAY, _YEAR, _MONTH = r"(?P<d>\d{1,2})(?:\.|st|nd|rd|th)?", r"(?P<y>\d{4}|\d{2})", r"(?P<name>[^\W\d_]{3,9})\.?"
_DAYS = [
    re.compile(r"(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?:(?P=sep)(?P<d>\d{1,2}))?" + _CLOCK),
    re.compile(rf"(?P<first>\d{{1,2}})(?P<sep>[-/.])(?P<second>\d{{1,2}})(?P=sep){_YEAR}{_CLOCK}"),
    re.compile(rf"(?:\w{{3,9}},\s+)?{_DAY}[ -]*{_MONTH},?[ -]+{_YEAR}{_CLOCK}"),
    re.compile(rf"{_MONTH}[ -]+(?:{_DAY},?[ -]+)?(?P<y>\d{{4}}){_CLOCK}"),
]
_COMPACT = re.compile(r"(?P<y>(?:19|20)\d{2})(?P<m>\d{2})(?P<d>\d{2})")
_NAMES_OF_MONTHS = (  # their first letters, in some languages
    *("jan ene gen sty", "feb fév fev lut", "mar mär mrz", "apr avr abr kwi", "may mai mag maj", "jun juin giu cze"),
    *("jul juil lug lip", "aug aoû ago sie", "sep set wrz", "oct okt ott paź", "nov lis", "dec dez déc dic gru"),
)
_MONTHS = {name: number for number, names in enumerate(_NAMES_OF_MONTHS, start=1) for name in names.split()}
_CLOCK_ALONE = re.compile(r"(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,]\d+)?)?\s*(?P<half>[AaPp]\.?[Mm]\.?)?")
EPOCH = date(1970, 1, 1)


def day_of(text: str, day_first: bool = True) -> float | None:
    """Days since 1970, with the time of day as a fraction; None if it is no date."""
    for pattern in (*_DAYS, _COMPACT):
        if found := pattern.fullmatch(text):
            return _day(found.groupdict(), day_first)
    return None


def _day(parts: Mapping[str, str | None], day_first: bool) -> float | None:
    year = int(parts["y"] or 0)
    if len(parts["y"] or "") == 2:
        year += 2000 if year < 70 else 1900
    if first := parts.get("first"):
        pair = int(first), int(parts["second"] or 0)
        day, month = pair if day_first else pair[::-1]
    else:
        word = (parts.get("name") or "").casefold()
        known = _MONTHS.get(word[:4]) or _MONTHS.get(word[:3]) if word else int(parts["m"] or 0)
        day, month = int(parts.get("d") or 1), known or 0
    try:
        whole = (date(year, month, day) - EPOCH) / timedelta(days=1)
    except ValueError:
        return None
    hour = _hours(parts) if parts.get("h") else 0.0
    return None if hour is None else whole + hour / 24.0


def hour_of(text: str, day_first: bool = True) -> float | None:
    """Hours, of a time of day or of a duration such as 1:30."""
    del day_first
    found = _CLOCK_ALONE.fullmatch(text)
    return _hours(found.groupdict()) if found else None


def _hours(parts: Mapping[str, str | None]) -> float | None:
    hour, minute, second = (int(parts.get(name) or 0) for name in ("h", "min", "s"))
    half = (parts.get("half") or "").casefold()[:1]
    if minute > 59 or second > 59 or (half and not 1 <= hour <= 12):
        return None
    hour = hour % 12 + 12 * (half == "p") if half else hour
    return hour + minute / 60 + second / 3600


def _dates(name: str, given: Counter[str]) -> Plan | None:
    for kind, parse in (("dates", day_of), ("times", hour_of)):
        fits = {
            first: sum(times for text, times in given.items() if parse(text, first) is not None)
            for first in (True, False)
        }
        if not given or max(fits.values()) < MOSTLY * given.total():
            continue
        ambiguous = fits[True] == fits[False] and any(_DAYS[1].fullmatch(text) for text in given)
        dotted = any("." in text.split(" ")[0] for text in given)
        day_first = fits[True] > fits[False] or (fits[True] == fits[False] and (dotted or not ambiguous))
        words = "dates: days since 1970" if kind == "dates" else "times: hours"
        if ambiguous:
            order = "the day" if day_first else "the month"
            words += f"; {order} is read first ({_quoted(given).split(', ')[0]} could be either)"
        strange = [text for text in given if parse(text, day_first) is None]
        words += f"; no {kind}, and so missing: {_quoted(strange)}" if strange else ""
        return Plan(name, "dates" if kind == "dates" else "times", words, day_first=day_first)
    return None


# ---------------------------------------------------------------------------------------------------- text, identifiers

_NAMES = re.compile(
    r"(.*[\W_])?(id|ids|nr|no|number|key|uuid|guid|code|index|row)\.?|.*[a-z](Id|ID|Nr|No|Key)|unnamed.*|#|column \d+",
    re.IGNORECASE,
)
_COUNTERS = re.compile(
    r"unnamed.*|index|row|rows?[\W_]?(id|nr|no|number)?|#|nr\.?|no\.?|number|id|column \d+|x|obs\.?", re.IGNORECASE
)


def _words(name: str, given: Counter[str]) -> Plan:
    rows, different = given.total(), len(given)
    if rows >= FEW_ROWS and different == rows:
        return Plan(name, "identifier", f"left out: text that is different in every row ({_quoted(given)})")
    if different > MANY and different > OFTEN * rows:
        return Plan(name, "text", f"left out: free text ({different:,} different texts in {rows:,} rows)")
    levels = tuple(text for text, _ in given.most_common())
    words = f"{len(levels)} categories: {_quoted(levels)}" + (" ..." if len(levels) > SHOWN else "")
    return Plan(name, "categories", words, levels=levels)


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
        return "classes", "yes or no"
    whole = one.kind == "numbers" and all(isinstance(value, float) and value.is_integer() for value in given)
    if whole and len(given) <= MOST_CLASSES and min(given.values(), default=0) >= EACH:
        return "classes", f"its {len(given)} different whole numbers are classes; with --numbers they are amounts"
    sizes = [value for value in given if isinstance(value, float)]
    ends = f"from {spoken(min(sizes), one)} to {spoken(max(sizes), one)}" if sizes else ""
    return "numbers", ends + about_unit(one.unit)


def absent(value: Value) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def spoken(value: float, one: Plan) -> str:
    return day_words(value) if one.kind == "dates" else readable(value)


def day_words(value: float) -> str:
    """Days since 1970 as a date: 2024-01-31."""
    return (EPOCH + timedelta(days=math.floor(value))).isoformat()
