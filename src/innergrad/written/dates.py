"""Dates and times of day, as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from innergrad.written.numbers import is_missing

_CLOCK = (
    r"(?:(?:T|,? +)(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,]\d+)?)?"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?\s*(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})?)?"
)
_DAY, _YEAR, _MONTH = r"(?P<d>\d{1,2})(?:\.|st|nd|rd|th)?", r"(?P<y>\d{4}|\d{2})", r"(?P<name>[^\W\d_]{3,9})\.?"
_DAYS = [
    re.compile(r"(?P<y>\d{4})(?P<sep>[-/.])(?P<m>\d{1,2})(?:(?P=sep)(?P<d>\d{1,2}))?" + _CLOCK),
    re.compile(rf"(?P<first>\d{{1,2}})(?P<sep>[-/.])(?P<second>\d{{1,2}})(?P=sep){_YEAR}{_CLOCK}"),
    re.compile(rf"(?:\w{{2,10}},?\s+)?{_DAY}[ -]*(?:de )?{_MONTH}(?: de)?,?[ -]+{_YEAR}{_CLOCK}"),
    re.compile(rf"(?:\w{{2,10}},?\s+)?{_MONTH}[ -]+(?:{_DAY},?[ -]+)?(?P<y>\d{{4}}){_CLOCK}"),
    re.compile(r"(?P<m>\d{1,2})[-/.](?P<y>\d{4})"),
]
SLASHES = _DAYS[1]  # 1/2/2024: which is the month?
MONTH_AND_YEAR = re.compile(r"(?:0[1-9]|1[0-2])\.(?:19|20)\d{2}")  # 06.2014, which could be a number
TURN = 30  # years of two digits: 29 is 2029, and 30 is 1930, as spreadsheets have it
_COMPACT = re.compile(r"(?P<y>(?:19|20)\d{2})(?P<m>\d{2})(?P<d>\d{2})")
_NAMES_OF_MONTHS = (  # their first letters, in some languages
    *(
        "jan ene gen sty",
        "feb fév fev lut",
        "mar mär mrz maa",
        "apr avr abr kwi",
        "may mai mag maj",
        "jun juin giu cze",
    ),
    *("jul juil lug lip", "aug aoû ago sie", "sep set wrz", "oct okt ott paź", "nov lis", "dec dez déc dic gru"),
)
_MONTHS = {name: number for number, names in enumerate(_NAMES_OF_MONTHS, start=1) for name in names.split()}
_CLOCK_ALONE = re.compile(r"(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,]\d+)?)?\s*(?P<half>[AaPp]\.?[Mm]\.?)?")
EPOCH = date(1970, 1, 1)
DIFFERENT = 3  # days that must be different where all cells are numbers such as 20240131


def day_of(text: str, day_first: bool = True) -> float | None:
    """Days since 1970, with the time of day as a fraction; None if it is no date."""
    for pattern in (*_DAYS, _COMPACT):
        if found := pattern.fullmatch(text):
            return _day(found.groupdict(), day_first)
    return None


def _day(parts: Mapping[str, str | None], day_first: bool) -> float | None:
    year = int(parts["y"] or 0)
    if len(parts["y"] or "") == 2:
        year += 2000 if year < TURN else 1900
    if first := parts.get("first"):
        pair = int(first), int(parts["second"] or 0)
        day, month = pair if day_first or parts["sep"] == "." else pair[::-1]  # nobody writes month.day.year
    else:
        word = (parts.get("name") or "").casefold()
        known = _MONTHS.get(word[:4]) or _MONTHS.get(word[:3]) if word else int(parts["m"] or 0)
        day, month = int(parts.get("d") or 1), known or 0
    try:
        whole = (date(year, month, day) - EPOCH) / timedelta(days=1)
    except ValueError:
        return None
    hour = _hours(parts) if parts.get("h") else 0.0
    return None if hour is None else whole + (hour - _ahead(parts.get("zone"))) / 24.0


def _ahead(zone: str | None) -> float:
    """Hours of local time ahead of UTC, of +05:30."""
    if not zone or zone[0] not in "+-":
        return 0.0
    hours = int(zone[1:3]) + int(zone[-2:]) / 60
    return -hours if zone[0] == "-" else hours


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


def day_words(value: float) -> str:
    """Days since 1970 as a date: 2024-01-31."""
    return (EPOCH + timedelta(days=math.floor(value))).isoformat()


def short_year(text: str) -> bool:
    """Whether it is a date whose year has two digits."""
    found = [match for pattern in _DAYS if (match := pattern.fullmatch(text))]
    return bool(found) and len(found[0].groupdict().get("y") or "") == 2


def either_way(text: str) -> bool:
    """Whether it is a date by both orders, and not the same one."""
    days = {day_of(text, first) for first in (True, False)} if SLASHES.fullmatch(text) else set()
    return len(days) == 2 and None not in days


def are_compact_days(texts: Iterable[str]) -> bool:
    """Whether all that are given are days such as 20240131: eight digits that are an amount are seldom a day, too."""
    days = set[str]()
    for text in texts:
        if _COMPACT.fullmatch(text):
            if day_of(text) is None:
                return False
            days.add(text)
        elif not is_missing(text):
            return False
    return len(days) >= DIFFERENT
