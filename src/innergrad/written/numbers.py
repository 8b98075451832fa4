"""Numbers as people write them: with marks of fractions and of thousands, and with units.

The *unit* of a column is the text beside its numbers: "km", "%", "€", "$ k". Where its cells have several, the unit is
one of these, which say how a cell is read:

    MIXED                % or share        5 % is 0.05, and 0.05 is 0.05
    MULTIPLES            k, M              5 k is 5000, and 5000 is 5000
    ... of BASE          k, M of eur       5 k€ is 5000, and so is 5000 €; 5 $ is none
    ... / UNIT           k, M / k          the same, and then in another unit: 5 k is 5, and 5000 is 5
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from innergrad.errors import LARGEST

MOSTLY = 0.9  # of the cells that are given: a column of numbers, or dates, may have a few that are none
LOOKED_AT = 500  # cells of a column, for the mark of fractions
SOME, HUNDREDS = (
    4,
    100.0,
)  # cells such as 12.500, and the least of whole numbers beside them: the points are for thousands
MISSING = frozenset(
    ("", "na", "n/a", "n.a.", "nan", "null", "?", "-", "--", "–", "—", ".")
    + ("#n/a", "#na", "#null!", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "<na>", "(null)", "\\n")
)  # ways to write that there is no value, in lower case
NO_NUMBER = frozenset(("none", "nil", "missing"))  # the same among numbers; among words, they are words
LONGEST_MISSING = 32  # characters, with spaces around

MIXED, MULTIPLES, OF, PER = "% or share", "k, M", " of ", " / "


def is_missing(text: str) -> bool:
    return len(text) < LONGEST_MISSING and text.strip().casefold() in MISSING


# ------------------------------------------------------------------------------------------------------------- a number

_SPACES = re.compile(r"[\s\u00a0\u202f\u2009]+")
_CURRENCY = r"(?:[€$£¥₹₽₩₺₴₱₪₫]|(?:US|NZ|HK|CA|AU|[RAC])\$|[A-Z]{3}|Rs\.?|Rp\.?|kr\.?|zł|Fr\.?)"
_AREA = r"(?:[kcdm]?m|ft|in|yd|mi)(?:\^?[23])|sq\.? ?(?:k?m|ft|in|yd|mi)\.?"  # m2, sq ft
_WORD = rf"(?:{_AREA}|[^\d\s.,+()'’-][^\d\s,+()]{{0,7}})"  # behind a number: %, €, km, m²
_UNIT = rf"(?:(?:[kK]|[Tt]sd\.?|[Mm]io\.?|[Mm]rd\.?|M) )?{_WORD}"  # k km, Mio. €


def _body(mark: str, thousands: str) -> str:
    groups = rf"[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+|\d{{1,3}}(?:{thousands}\d{{3}}){{2,}}|\d{{1,3}}(?:['’ ]\d{{3}})+"
    lakhs = r"|[1-9]\d?(?:,\d{2})+,\d{3}" if thousands == "," else ""  # 1,53,000, as it is written in India
    return rf"(?:{groups}{lakhs}|\d+)?(?:{mark}\d*)?"


_NUMBER = {
    mark: re.compile(
        rf"(?P<open>\()?(?P<a>[+-])?\s?(?P<before>{_CURRENCY})?\s?(?P<b>[+-])?\s?(?P<body>(?=[.,]?\d){body})"
        rf"(?P<exponent>[eE][+-]?\d+)?\s?(?P<after>{_UNIT})?(?P<close>\))?"
    )
    for mark, body in ((".", _body(r"\.", ",")), (",", _body(",", r"\.")))
}
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INFINITE = re.compile(r"[+-]?(inf|infinity|∞)", re.IGNORECASE)


def parsed(text: str, decimal: str) -> tuple[float, str] | None:
    """A number as people write it, and the unit beside it; None if it is none."""
    if decimal == "." and _PLAIN.fullmatch(text):
        return float(text), ""
    text = _SPACES.sub(" ", text.replace("−", "-").replace("–", "-")).strip().removeprefix("'")
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
    """The number in a cell of a column with this unit."""
    found = parsed(text, decimal)
    if found is None:
        return None
    value, own = found
    reading, _, per = unit.partition(PER)
    if reading == MIXED:
        if own not in ("", "%"):
            return None
        value = value / 100.0 if own == "%" else value
    elif reading.startswith(MULTIPLES):
        factor, base = measure(own, counts=True)
        wanted = reading.partition(OF)[2]
        if base and base != wanted and (wanted or not _has_currency(own)):
            return None
        value *= factor
    elif own and measure(own) != measure(unit) and measure(own) != (measure(unit)[0], ""):
        return None
    return value / (0.01 if per == "%" else measure(per)[0]) if per else value


def number_alone(text: str, decimal: str = ".", unit: str = "") -> float | None:
    """The number in a cell of a column with this unit. The cell is read by itself, whatever others have beside theirs:
    with another unit where the column has none, or with none.
    """
    found = parsed(text, decimal)
    return None if found is None else number_of(text, decimal, unit_of_others(unit, found[1])[0])


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


# ---------------------------------------------------------------------------------------------------------------- units

_FACTORS = {"k": 1e3, "tsd": 1e3, "tsd.": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "mio.": 1e6, "b": 1e9, "bn": 1e9}
_FACTORS |= {"mln": 1e6, "mlrd": 1e9, "mrd": 1e9, "mrd.": 1e9, "t": 1e12, "tn": 1e12, "trn": 1e12}
_OFTEN_OTHERS = ("m", "b", "t")  # metres, minutes, bytes, tonnes
_SAME = {"€": "eur", "$": "usd", "us$": "usd", "£": "gbp"}


def measure(unit: str, *, counts: bool = False) -> tuple[float, str]:
    """What a unit counts, and of what: (1000, "usd") of "$ k". counts: m, b and t count, too, and not M alone."""
    factor, rest = 1.0, list[str]()
    for word in unit.split():
        folded = word.casefold()
        if folded in _FACTORS and (counts or word == "M" or folded not in _OFTEN_OTHERS):
            factor *= _FACTORS[folded]
        else:
            rest.append(_SAME.get(folded, folded))
    return factor, " ".join(rest)


def scales(unit: str) -> bool:
    """Whether a number without this unit is another one, by a factor: % and $ k; not km, nor a mixture of units."""
    if unit == MIXED or unit.startswith(MULTIPLES):
        return False
    return unit == "%" or measure(unit, counts=_has_currency(unit))[0] != 1.0


def _has_currency(unit: str) -> bool:
    return any(re.fullmatch(_CURRENCY, word) for word in unit.split())


def unit_of(cells: Iterable[tuple[float, str]]) -> str | None:
    """The unit of a column, from the numbers of its cells and their units; None if they are of several kinds."""
    found = list(cells)
    units = list(dict.fromkeys(unit for _, unit in found if unit))
    if not units:
        return ""
    bare = [value for value, unit in found if not unit]
    counts = any(measure(unit)[0] != 1.0 or _has_currency(unit) for unit in units)
    measures = {measure(unit, counts=counts) for unit in units}
    factors, bases = {factor for factor, _ in measures} | ({1.0} if bare else set()), {base for _, base in measures}
    bases.discard("")
    alone = any(not base for _, base in measures)  # k beside km: what does it count?
    if len(bases) > 1 or (bases and alone and not any(map(_has_currency, units))):
        return None
    if len(factors) > 1:
        return MULTIPLES + "".join(OF + base for base in bases)
    if units[0] == "%" and any(bare) and all(abs(value) <= 1.0 for value in bare):
        return MIXED
    return units[0]


def about_unit(unit: str) -> str:
    """What was done with the unit of a column, to be put behind other words."""
    if unit == MIXED:
        return "; those with % are hundredths"
    if unit.startswith(MULTIPLES):
        return "; k and M count thousands and millions"
    return f"; the unit {unit!r} is left off" if unit else ""


def unit_of_others(learned: str, here: str) -> tuple[str, str]:
    """The unit by which new cells are read, where those that taught had one, or none, and these have another, or none:
    the unit, and a note on it.
    """
    if learned in (here, MIXED) or learned.startswith(MULTIPLES):
        return learned, ""
    if not here:
        assumed = f"has no unit here: {learned!r} is assumed, as in the rows that teach, so 5 is read as 5 {learned}"
        return learned, assumed
    if here in ("%", MIXED):
        if learned == "%":
            return MIXED + PER + learned, "has % in some cells here: 0.2 without it is read as 20 %"
        note = "has % here, and none in the rows that teach: 5 % is read as 0.05"
        return (learned, "") if learned else (MIXED, note)
    (factor, base), reading = measure(learned), here
    if here.startswith(MULTIPLES):
        other, own = None, here.partition(OF)[2]
    else:
        other, own = measure(here, counts=_has_currency(here))
    if learned and base != own and ((base and (own or not _has_currency(learned))) or factor == other):
        return learned, ""  # cells of another unit are no numbers of this column
    if other != factor:
        either = base or own
        reading = MULTIPLES + (OF + either if either else "") + (PER + learned if factor != 1.0 else "")
        if other is None or factor != 1.0:
            in_unit = f", in {learned!r}" if factor != 1.0 else ""
            lacks = ", and not in the rows that teach" if factor == 1.0 else ""
            return reading, f"has k or M here{lacks}: they are read as thousands and millions{in_unit}"
        return reading, f"has {here!r} here, and not in the rows that teach: it is read as {other:,.0f}"
    if learned:
        return learned, ""
    return here, f"has the unit {here!r} here, and none in the rows that teach: it is left off"


_LETTER = re.compile(r"[A-Z]")
MOST_UNITS = 6  # of a mixture


def mixture(given: Mapping[str, int]) -> str:
    """Why text that is made of numbers is no column of numbers: several units, or both marks of fractions; empty if
    there is no such reason. given: how often each text occurs.
    """
    return _several_units(given) or _both_marks(given)


def _several_units(given: Mapping[str, int]) -> str:
    """Two of them have several numbers, or else they are names with a number: 1. Yes, 2. No. So are 12A and 14B."""
    for decimal in ".,":
        read = {text: found for text in given if (found := parsed(text, decimal)) is not None}
        if sum(given[text] for text in read) < MOSTLY * sum(given.values()) or unit_of(read.values()) is not None:
            continue
        cells, numbers = Counter[str](), Counter(unit for _, unit in set(read.values()) if unit)
        for text, (_, unit) in read.items():
            cells[unit] += given[text]
        several = sum(many > 1 for many in numbers.values()) > 1
        if several and len(numbers) <= MOST_UNITS and not all(map(_LETTER.fullmatch, numbers)):
            names = ", ".join(unit for unit, _ in cells.most_common() if unit)
            return f"numbers with several units ({names}): write them in one unit"
    return ""


def _both_marks(given: Mapping[str, int]) -> str:
    """Some are numbers with one mark of fractions alone, some with the other alone, and together almost all are."""
    read = {text: tuple(parsed(text, mark) for mark in ".,") for text in given}
    points, commas = (
        [text for text, found in read.items() if found[place] and not found[1 - place]] for place in (0, 1)
    )
    units = {found[1] for one in read.values() for found in one if found}
    numbers = sum(given[text] for text, found in read.items() if any(found))
    if not points or not commas or len(units) > 1 or numbers < MOSTLY * sum(given.values()):
        return ""
    return f"numbers with two decimal marks ({commas[0]!r}, {points[0]!r}): write them with one"


# ---------------------------------------------------------------------------------------------------------------- marks

_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}([.,])\d{3}(?:\1\d{3})*(?![\d.,])")  # 12.500, 1,234,567


def decimal_mark(columns: Iterable[Sequence[str]], separator: str, learned: str | None = None) -> str:
    """The mark of fractions in a file: the one by which more of its columns are numbers. Cells such as 1,234 are
    numbers by both. If nothing else decides, it is the mark of the file that taught; else a comma is the mark only
    where semicolons or tabs stand between columns.
    """
    votes, maybe = Counter[str](), False
    for cells in columns:
        given = _with_digits(cells)
        if not has_marks(given):
            continue
        mark = own_mark(given, sure=learned is not None)
        if mark:
            votes[mark] += 1
        elif mark is None and separator != ",":
            points = [text for text in given if "." in text]
            thousands = len(given) >= SOME and all(_THOUSANDS.search(text) for text in points)
            maybe = maybe or any("," in text for text in given) or thousands
    if votes["."] != votes[","]:
        return max(votes, key=lambda mark: votes[mark])
    return learned or ("," if maybe and not votes else ".")


def _with_digits(cells: Sequence[str]) -> list[str]:
    """Different cells that may be numbers: not unknown, k.A. and the like."""
    return [text.strip() for text in dict.fromkeys(cells[:LOOKED_AT]) if any(map(str.isdigit, text))]


def has_marks(cells: Iterable[str]) -> bool:
    """Whether there are points or commas in numbers."""
    return any("," in text or "." in text for text in cells if any(map(str.isdigit, text)))


def own_mark(cells: Sequence[str], *, sure: bool) -> str | None:
    """That of a column, if its cells tell: "" if it has no numbers, None if both would do. sure: no other hints count
    than cells that are a number by one of them alone.
    """
    given = _with_digits(cells)
    if not given:
        return ""
    shares = {mark: sum(parsed(text, mark) is not None for text in given) / len(given) for mark in ".,"}
    if max(shares.values()) < MOSTLY:
        return ""
    if shares["."] != shares[","]:
        return max(shares, key=lambda mark: shares[mark])
    if not sure:
        for mark, other in (".,", ",."):
            if _are_for_thousands(given, mark):
                return other
    return None


def _are_for_thousands(given: Sequence[str], mark: str) -> bool:
    """Three digits behind every mark, zeros at the end among them, beside whole numbers in the hundreds: 12.500 and
    506. Fractions would have lost their zeros, or whole numbers would have them.
    """
    marked = [text for text in given if mark in text]
    others = [abs(number[0]) for text in given if mark not in text and (number := parsed(text, mark))]
    shaped = [found.group() for text in marked if (found := _THOUSANDS.search(text)) and found[1] == mark]
    if len(shaped) < max(SOME, len(marked)) or not others:
        return False
    whole = all(value.is_integer() and value < 1000.0 for value in others) and max(others) >= HUNDREDS
    return whole and any(text.endswith("0") for text in shaped)


def about_marks(given: Iterable[str], decimal: str) -> str:
    """What was made of points and commas in numbers, to be put behind other words, where it is not plain."""
    texts = list(given)
    if decimal == ",":
        said = "; commas are read as decimal marks" if any("," in text for text in texts) else ""
        return said + ("; points are for thousands" if any("." in text for text in texts) else "")
    marked = [text for text in texts if "." in text]
    shaped = [text for text in marked if _THOUSANDS.search(text)]
    if len(shaped) < SOME or len(shaped) < len(marked):
        return ""
    found = parsed(shaped[0], decimal)
    return f"; points are read as decimal marks ({shaped[0]!r} is {found[0]:g})" if found else ""
