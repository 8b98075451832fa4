"""``innergrad fit``: a table as a spreadsheet writes it is read, or refused in one line that names the column."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import runpy
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from innergrad import figures, lab
from innergrad import written as columns
from innergrad.cli import names
from innergrad.config import parse
from innergrad.errors import InputError
from innergrad.estimators import Column
from innergrad.report.tables import _draw_bars
from innergrad.tables import fitted, models, scoring, unusual, words
from innergrad.tables.first_line import doubt
from innergrad.tables.new_rows import read_new
from innergrad.tables.table import Asked, Table, read_table
from innergrad.written import day_of, hour_of, number_of
from test_cli import call, good
from test_report import read as read_page

ROOT = Path(__file__).parent.parent
HOUSES, OFFERS = ROOT / "examples" / "houses.csv", ROOT / "examples" / "new-houses.csv"


@dataclass(frozen=True)
class Good:
    """A file that is read: the kinds of its columns by name, the first values of some, words of the notes."""

    text: str | bytes
    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    task: str = "numbers"
    rows: int = 12
    notes: str = ""
    asked: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bad:
    """A file that is refused, in words that say why and where."""

    text: str | bytes
    words: tuple[str, ...]
    asked: dict[str, Any] = field(default_factory=dict)


def lines(header: str, row: str, rows: int = 12) -> str:
    """A file whose rows differ: {n} is the number of the row, {s} a number with a fraction, {c} one of three texts."""
    body = [row.format(n=n, s=n * n / 8 + 0.5, c=["red", "green", "blue"][n % 3]) for n in range(rows)]
    return "\n".join([header, *body]) + "\n"


PLAIN = lines("a,b,y", "{s},{n},{s}")
GERMAN = lines("a;b;y", "{s};{c};{s}").replace(".", ",")
DATES = ("31.01.2024", "2024-01-31", "31/01/2024", "01/31/2024", "31 Jan 2024", "Jan 31, 2024", "31. Januar 2024")

CASES: dict[str, Good | Bad] = {
    "plain": Good(PLAIN, {"a": "numbers", "b": "numbers"}, {"a": [0.5, 0.625, 1.0], "b": [0.0, 1.0]}),
    "semicolons and decimal commas": Good(GERMAN, {"a": "numbers", "b": "categories"}, {"a": [0.5, 0.625, 1.0]}),
    "tabs": Good(PLAIN.replace(",", "\t"), {"a": "numbers"}, {"a": [0.5, 0.625]}),
    "bars": Good(PLAIN.replace(",", "|"), {"a": "numbers"}, {"a": [0.5, 0.625]}),
    "the line that Excel reads": Good("sep=;\n" + GERMAN, {"a": "numbers"}, {"a": [0.5, 0.625]}),
    "a byte order mark": Good(PLAIN.encode("utf-8-sig"), {"a": "numbers"}),
    "UTF-16": Good(PLAIN.encode("utf-16"), {"a": "numbers"}, notes="UTF-16"),
    "UTF-16 without its mark": Good(PLAIN.encode("utf-16-le"), {"a": "numbers"}, notes="UTF-16"),
    "Latin-1": Good(GERMAN.replace("red", "Köln").encode("latin-1"), values={"b": ["Köln", "green"]}, notes="Windows"),
    "Windows line ends": Good(PLAIN.replace("\n", "\r\n"), {"a": "numbers"}, {"a": [0.5]}),
    "old Mac line ends": Good(PLAIN.replace("\n", "\r"), {"a": "numbers"}, {"a": [0.5]}),
    "quotes, with separators and line ends inside": Good(
        lines("a,t,y", '{s},"{c}, or\n""not""",{s}'), {"t": "categories"}, {"t": ['red, or\n"not"']}
    ),
    "thousands": Good(lines("a,y", '"{n},900,000.5",{s}'), {"a": "numbers"}, {"a": [900000.5, 1900000.5]}),
    "thousands, German": Good(lines("a;y", "{n}.900.000,5;{s}"), {"a": "numbers"}, {"a": [900000.5, 1900000.5]}),
    "currency": Good(lines("a,y", "$ {s},{s}"), {"a": "numbers"}, {"a": [0.5, 0.625]}),
    "currency behind": Good(lines("a,y", "{s} €,{s}"), {"a": "numbers"}, {"a": [0.5, 0.625]}),
    "per cent": Good(lines("a,y", "{s}%,{s}"), {"a": "numbers"}, {"a": [0.5, 0.625]}),
    "thousands alone, German": Good(
        lines("a;y", "{n}.500;{n}").replace("\n0.", "\n12."), {"a": "numbers"}, {"a": [12500.0, 1500.0]}
    ),
    "fractions between semicolons": Good(lines("a;y", "{n}.500;{n}"), {"a": "numbers"}, {"a": [0.5, 1.5]}),
    "None among numbers": Good(
        lines("a,b,y", "{n},{c},{s}").replace("red", "None").replace("green", "3.5").replace("blue", "None"),
        {"b": "constant"},
    ),
    "none as a word": Good(lines("a,y", "{s},{c}").replace("red", "None"), task="classes"),
    "mostly None": Good(
        lines("a,b,y", "{c},{n},{s}", 30)
        .replace("red", "None")
        .replace("green", "None")
        .replace("blue,", "7.5,", 1)
        .replace("blue", "8"),
        {"a": "numbers"},
        {"a": [math.nan, math.nan, 7.5]},
        rows=30,
    ),
    "thousands and millions": Good(
        lines("a,y", "€{c},{s}").replace("red", "1.5M").replace("green", "900K").replace("blue", "7"),
        {"a": "numbers"},
        {"a": [1.5e6, 9e5, 7.0]},
    ),
    "several units": Good(
        lines("a,y", "5 {c},{s}").replace("red", "km").replace("green", "m").replace("blue", "mi"), {"a": "categories"}
    ),
    "a unit": Good(lines("a,y", "{s} km,{s}"), {"a": "numbers"}, {"a": [0.5]}),
    "accountants": Good(lines("a,y", "({s}),{s}"), {"a": "numbers"}, {"a": [-0.5, -0.625]}),
    "missing, in all spellings": Good(
        PLAIN.replace("0.625,1", "NA,n/a").replace("1.0,2", "null,-").replace("1.625,3", "#N/A,"),
        {"a": "numbers", "b": "numbers"},
        {"a": [0.5, math.nan, math.nan, math.nan, 2.5], "b": [0.0, math.nan, math.nan, math.nan, 4.0]},
    ),
    "infinite": Good(PLAIN.replace("1.0,2", "inf,2"), {"a": "numbers"}, {"a": [0.5, 0.625, math.nan]}),
    "a number too large": Good(PLAIN.replace("1.0,2", "1e999,2"), {"a": "numbers"}, {"a": [0.5, 0.625, math.nan]}),
    "a text among numbers": Good(PLAIN.replace("1.0,2", "unknown,2"), {"a": "numbers"}, {"a": [0.5, 0.625, math.nan]}),
    "yes and no": Good(PLAIN.replace("{n}", "x"), {"a": "numbers"}),
    "ja und nein": Good(
        lines("a;k;y", "{s};{c};{s}").replace("red", "Ja").replace("green", "nein").replace("blue", ""),
        {"k": "yes or no"},
        {"k": [1.0, 0.0, math.nan]},
    ),
    "crosses": Good(
        lines("a,k,y", "{s},{c},{s}").replace("red", "x").replace("green", "").replace("blue", ""),
        {"k": "yes or no"},
        {"k": [1.0, 0.0, 0.0, 1.0]},
    ),
    "dates": Good(
        lines("when,y", "2024-01-{n},{s}", 31).replace("-0,", "-31,"),
        {"when": "dates"},
        {"when": [19753.0, 19723.0]},
        rows=31,
    ),
    "dates, day first": Good(
        lines("when,y", "{n}/02/2024,{s}", 29).replace("\n0/", "\n29/"),
        {"when": "dates"},
        {"when": [19782.0, 19754.0]},
        rows=29,
    ),
    "dates, month first": Good(
        lines("when,y", "02/{n}/2024,{s}", 29).replace("/0/", "/29/"),
        {"when": "dates"},
        {"when": [19782.0, 19754.0]},
        rows=29,
    ),
    "times": Good(lines("at,y", "{n}:30,{s}"), {"at": "times"}, {"at": [0.5, 1.5]}),
    "equal names": Good(lines("a,a,y", "{s},{c},{s}"), {"a": "numbers", "a (2)": "categories"}, notes="'a'"),
    "a column without a name": Good(lines(",a,y", "{n},{s},{s}"), {"column 1": "identifier", "a": "numbers"}),
    "an index": Good(lines("Unnamed: 0,a,y", "{n},{s},{s}"), {"Unnamed: 0": "identifier", "a": "numbers"}),
    "an identifier": Good(lines("customer_id,a,y", "{n}7{n},{s},{s}"), {"customer_id": "identifier", "a": "numbers"}),
    "a text that names the row": Good(lines("who,a,y", "p{n},{s},{s}"), {"who": "identifier", "a": "numbers"}),
    "free text": Good(lines("why,a,y", "because {n},{s},{s}", 30) + "because 1,1,1\n", {"why": "text"}, rows=31),
    "codes": Good(lines("zip,a,y", "0{n}1,{s},{s}") * 1, {"zip": "identifier"}),
    "years are no row numbers": Good(lines("year,a,y", "20{n},{s},{s}").replace("20", "199", 1), {"a": "numbers"}),
    "a constant column": Good(lines("a,same,y", "{s},7,{s}"), {"same": "constant", "a": "numbers"}),
    "an empty column": Good(lines("a,none,y", "{s},,{s}"), {"none": "empty", "a": "numbers"}),
    "columns that nobody filled": Good(lines("a,y,,", "{s},{s},,"), {"a": "numbers"}, notes="2 columns without a name"),
    "a title and a comment": Good("Sales 2024\n\n# by hand\n" + PLAIN, {"a": "numbers"}, notes="2 lines above"),
    "names in a comment": Good("# " + PLAIN, {"a": "numbers"}),
    "blank lines": Good(
        PLAIN.replace("\n", "\n\n"), {"a": "numbers"}, notes="12 blank rows are left out (lines 2, 4, 6"
    ),
    "a blank row": Good("\n" + PLAIN.replace("1.0,2", ",,\n1.0,2"), notes="1 blank row is left out (line 5)"),
    "blank rows at the end": Good(PLAIN + ",,\n , ,\n\n", notes="2 blank rows are left out (lines 14, 15)"),
    "a rare class": Good(
        lines("a,y", "{s},{c}", 30) + "1,grey\n2,grey\n", task="classes", rows=32, notes="the class 'grey' (2 rows)"
    ),
    "many rare classes": Good(
        lines("a,y", "{s},{c}", 30) + "1,p\n2,p\n3,q\n4,r\n5,s\n",
        task="classes",
        rows=35,
        notes="the classes 's' (1 row), 'r' (1 row), 'q' (1 row) and 1 more: from so few",
    ),
    "short rows": Good(lines("y,a,b", "{s},{s},{n}") + "3,4\n", {"b": "numbers"}, rows=13, notes="1 row ended early"),
    "a target without regard to case": Good(PLAIN.replace("y", "Y"), {"a": "numbers"}),
    "rows without a target": Good(PLAIN + "1,2,\n3,4,NA\n", {"a": "numbers"}, rows=12),
    "a text in the target": Good(PLAIN + "1,2,soon\n", {"a": "numbers"}, rows=12, notes="'soon'"),
    "an infinite target": Good(PLAIN + "1,2,inf\n", {"a": "numbers"}, rows=12, notes="'inf'"),
    "classes by text": Good(lines("a,y", "{s},{c}"), {"a": "numbers"}, task="classes"),
    "classes by yes and no": Good(
        lines("a,y", "{s},{c}").replace("red", "Yes").replace("green", "no").replace("blue", "yes"), task="classes"
    ),
    "classes by whole numbers": Good(
        lines("a,y", "{s},{c}", 30).replace("red", "1").replace("green", "2").replace("blue", "3.0"),
        task="classes",
        rows=30,
    ),
    "the same as amounts": Good(
        lines("a,y", "{s},{c}", 30).replace("red", "1").replace("green", "2").replace("blue", "3"),
        rows=30,
        asked={"task": "numbers"},
    ),
    "few whole numbers, each rare": Good(lines("a,y", "{s},{n}", 9), task="numbers", rows=9),
    "a target that is called a number": Good(lines("a,no", "{s},{n}"), {"a": "numbers"}, asked={"target": "no"}),
    "a leak": Good(lines("a,again,y", "{c},{s},{s}"), {"again": "numbers"}, notes="'again' tells the target"),
    "copies of rows": Good(
        lines("a,b,y", "{n},{c},{s}", 30) * 1 + lines("x", "{n},{c},{s}", 6)[2:], rows=36, notes="6 rows are copies"
    ),
    "a word among numbers": Good(
        lines("a,b,y", "{n},{c},{s}", 30).replace("red", "refused").replace("green", "3.5").replace("blue", "4"),
        {"b": "numbers"},
        {"b": [math.nan, 3.5, 4.0]},
        rows=30,
    ),
    "a row of totals": Good(
        lines("who,a,y", "p{n},{s},{s}") + "Total:,,69.25\n",
        {"a": "numbers"},
        rows=12,
        notes="line 14 is left out: its 'y' is the sum of all others",
    ),
    "a row with little else": Good(
        lines("a,b,y", "{s},{c},{s}") + ",,69.26\n", {"a": "numbers"}, rows=12, notes="line 14 is left out"
    ),
    "a sum by chance": Good(lines("a,b,y", "{s},{c},{s}") + "9,red,69.25\n", {"a": "numbers"}, rows=13),
    "a column left out": Good(PLAIN, {"a": "text", "b": "numbers"}, asked={"drop": ("a",)}),
    "yes and no in several ways": Good(
        lines("a,k,y", "{s},{c},{s}").replace("red", "YES").replace("green", "n").replace("blue", "True"),
        {"k": "yes or no"},
        {"k": [1.0, 0.0, 1.0]},
    ),
    "a target of yes and no in several ways": Good(
        lines("a,y", "{s},{c}").replace("red", "Y").replace("green", "no").replace("blue", "FALSE") + "3,yes\n",
        task="classes",
        rows=13,
    ),
    "letters that may be anything": Good(
        lines("a,k,y", "{s},{c},{s}").replace("red", "T").replace("green", "N").replace("blue", "N"),
        {"k": "categories"},
    ),
    "capitals": Good(
        lines("a,k,y", "{s},{c},{s}").replace("red", "Spam").replace("green", "spam"),
        {"k": "categories"},
        {"k": ["Spam", "spam", "blue"]},
        notes="column 'k' has texts that differ in capitals or spaces only ('Spam' and 'spam'): write them alike",
    ),
    "classes in capitals": Good(
        lines("a,y", "{s},{c}").replace("red", "Spam").replace("green", "spam"),
        task="classes",
        notes="the target 'y' has texts that differ in capitals or spaces only ('Spam' and 'spam')",
    ),
    "days as numbers": Good(
        "d,y\n" + "".join(f"202401{n:02},{n * n / 8}\n" for n in range(1, 31)),
        {"d": "dates"},
        {"d": [19723.0]},
        rows=30,
    ),
    "numbers that are hardly days": Good(
        "d,y\n" + "".join(f"202401{n:02},{n * n / 8}\n" for n in range(1, 33)), {"d": "numbers"}, rows=32
    ),
    "classes of several units": Good(
        lines("a,y", "{s},5 {c}").replace("red", "km").replace("green", "m").replace("blue", "mi")
        + "1,6 km\n2,6 m\n3,7 m\n",
        task="classes",
        rows=15,
        notes="has numbers with several units (m, km, mi): write them in one unit, or each text is a class",
    ),
    "data in the first line": Good(
        lines("7.5,7 km,y", "{s},{n} km,{s}").replace("y", "3.5", 1),
        notes="the first line looks like data, not like names: '7.5', '7 km', '3.5'",
        asked={"target": "3.5"},
    ),
    # ------------------------------------------------------------------------------------------------- refused
    "empty": Bad("", ("is empty",)),
    "blank": Bad("\n \n", ("is empty",)),
    "a header alone": Bad("a,b,y\n", ("a header but no rows", "a, b, y")),
    "one row": Bad("a,b,y\n1,2,3\n", ("'y'", "too few rows", "1 row")),
    "a target among the data": Bad(
        lines("7.5,7 km,3.5", "{s},{n} km,{s}"), ("no such column", "looks like data", "put a line of names above it")
    ),
    "a target with a longer name": Bad(
        PLAIN.replace("y", "asking price"), ("did you mean 'asking price'?",), {"target": "price"}
    ),
    "a target of two currencies": Bad(
        lines("a,y", "{s},{c}{n}").replace("red", "$").replace("green", "€").replace("blue", "€"),
        ("'y'", "has numbers with several units (€, $); got '$0', '€1', '€2'; write them in one unit"),
    ),
    "a target of two decimal marks": Bad(
        lines("a;y", "{s};{c}{n}").replace("red", "5,1").replace("green", "5.2").replace("blue", "5.3"),
        ("'y'", "has numbers with two decimal marks ('5,10', '5.21')", "write them with one"),
    ),
    "a target of many kinds": Bad(
        "a,y\n" + "".join(f"{n},kind {n % 120}\n" for n in range(180)),
        ("is text of many kinds; got 120 different texts in 180 rows",),
    ),
    "a space before a quotation mark": Bad(
        PLAIN + '1, "red, dark",3\n', ("line 14", "no space is before its quotation")
    ),
    "one column": Bad("y\n1\n2\n3\n4\n5\n6\n", ("no column to learn 'y' from", "the target alone")),
    "no header": Bad("1,2,3\n4,5,6\n7,8,9\n", ("is not a header", "1, 2, 3")),
    "spaces between columns": Bad("a b y\n1 2 3\n4 5 7\n", ("one column", "commas, semicolons, tabs or bars")),
    "no such target": Bad(PLAIN, ("no such column", "'price'", "a, b, y"), {"target": "price"}),
    "a target misspelt": Bad(PLAIN.replace("y", "price"), ("did you mean price?",), {"target": "prise"}),
    "no target": Bad(PLAIN, ("the column to predict is missing", "a, b, y"), {"target": None}),
    "two targets": Bad(lines("a,y,y", "{s},{n},{s}"), ("several columns called 'y'",)),
    "a target of crosses": Bad(
        lines("a,y", "{s},{c}", 30).replace("red", "x").replace("green", "").replace("blue", ""),
        ("'y'", "'x'", "write no"),
    ),
    "a constant target": Bad(lines("a,y", "{s},4"), ("'y'", "the same in every row", "4")),
    "an empty target": Bad(lines("a,y", "{s},"), ("'y'", "empty in every row")),
    "a target that names the row": Bad(lines("a,y", "{s},p{n}"), ("'y'", "different in almost every row", "12")),
    "amounts of text": Bad(lines("a,y", "{s},{c}"), ("'y'", "no column of numbers", "'red'"), {"task": "numbers"}),
    "classes that never come again": Bad(lines("a,y", "{s},{n}"), ("'y'", "too many classes"), {"task": "classes"}),
    "nothing to learn from": Bad(lines("id,same,y", "{n},1,{s}"), ("no column to learn 'y' from", "'id'", "'same'")),
    "a comma too many": Bad(PLAIN + "1,2,3,4\n", ("line 14", "4 cells", "3, as")),
    "a quote that stays open": Bad(PLAIN + '1,"2,3\n', ("quotation mark that is never closed",)),
    "a workbook": Bad(b"PK\x03\x04" + b"x" * 100, ("workbook", "save the sheet as CSV")),
    "bytes": Bad(bytes(range(256)) * 4, ("no text",)),
    "a column to leave out that is not there": Bad(PLAIN, ("no such column", "'c'"), {"drop": ("c",)}),
}


def read(tmp_path: Path, case: Good | Bad) -> Table:
    path = tmp_path / "data.csv"
    path.write_bytes(case.text.encode() if isinstance(case.text, str) else case.text)
    return read_table(path, Asked(**{"target": "y", **case.asked}))


@pytest.mark.parametrize("name", CASES)
def test_a_table_is_read_or_refused(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if isinstance(case, Bad):
        with pytest.raises(InputError) as error:
            read(tmp_path, case)
        assert all(words in str(error.value) for words in case.words), str(error.value)
        assert "\n" not in str(error.value)
        return
    table = read(tmp_path, case)
    assert (table.task, len(table.known)) == (case.task, case.rows), table
    assert {one.name: one.kind for one in table.plans if one.name in case.kinds} == case.kinds
    assert all(one.words for one in table.plans)
    assert case.notes in "; ".join([*table.notes, *table.warnings])
    found = dict(zip((one.name for one in table.used), table.columns, strict=True))
    for column, values in case.values.items():
        np.testing.assert_equal(found[column][: len(values)], values)


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        *(("1,234.5", ".", 1234.5), ("1.234,5", ",", 1234.5), ("1 234,5", ",", 1234.5), ("1'234.5", ".", 1234.5)),
        *(
            ("-5", ".", -5.0),
            ("−5", ".", -5.0),
            ("+5", ".", 5.0),
            ("(5)", ".", -5.0),
            (".5", ".", 0.5),
            ("5.", ".", 5.0),
        ),
        *(
            ("1e3", ".", 1000.0),
            ("1,5e-3", ",", 0.0015),
            ("12,34,567", ".", 1234567.0),
            ("1.2.3", ".", None),
            ("", ".", None),
        ),
        *(("5 km", ".", None), ("A5", ".", None), ("5A6", ".", None), ("--5", ".", None), ("1_000", ".", None)),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, decimal: str, value: float | None) -> None:
    assert number_of(text, decimal) == value


@pytest.mark.parametrize(
    "text", ["31.01.2024", "2024-01-31", "31/1/24", "31 Jan 2024", "January 31st, 2024", "20240131"]
)
def test_dates_are_days(text: str) -> None:
    assert day_of(text) == 19753.0
    assert day_of("2024-01-31 18:00") == 19753.75
    assert day_of("2024-02-30") is None
    assert hour_of("1:30 pm") == 13.5


def test_a_sample_is_fair_and_keeps_every_row_to_predict(tmp_path: Path) -> None:
    """Of 20,000 rows 500 teach: in the order of the file, from all its parts; those without a target are all there."""
    path = tmp_path / "long.csv"
    path.write_text("a,y\n" + "".join(f"{n},{'' if n % 1000 == 7 else n % 13}\n" for n in range(20_000)))
    table = read_table(path, Asked("y", task="numbers", rows=500))
    taught = [table.columns[0][row] for row in table.known]
    assert len(taught) == 500
    assert taught == sorted(taught)
    thirds = np.histogram(taught, 4, (0, 20_000))[0]  # 125 in each quarter, give or take 4 deviations
    assert abs(thirds - 125).max() < 4 * math.sqrt(500 * 0.25 * 0.75)
    assert [table.columns[0][row] for row in table.queries] == [1000.0 * n + 7 for n in range(20)]
    assert "20,000 rows a random sample" in table.notes[0]
    again = read_table(path, Asked("y", task="numbers", rows=500, seed=1))
    assert [again.columns[0][row] for row in again.known] != taught


# ------------------------------------------------------------------------------------------------------------- new rows


def test_new_rows_are_read_by_the_plans_of_the_old(tmp_path: Path) -> None:
    """In other columns, other order, with another decimal mark, and with what was never seen."""
    table = read_table(HOUSES, Asked("price"))
    path = tmp_path / "new.csv"
    header = "extra,garden,area,district,sold,rooms,built,energy,heating,price"
    path.write_text(
        f"{header}\n1,no,100.5,Mond,2024-12-31,3,1999,,gas,\n2,maybe,70 m²,Hafen,01.02.2024,,1950,B,,9000\n"
    )
    new = read_new(path, table.plans, table.target, table.task)
    found = {one.name: values for one, values in zip(table.used, new.columns, strict=True)}
    np.testing.assert_equal(found["area"], [100.5, 70.0])
    np.testing.assert_equal(found["garden"], [0.0, math.nan])
    np.testing.assert_equal(found["sold"], [20088.0, 19754.0])
    assert found["district"] == ["Mond", "Hafen"]
    assert new.truth == [None, 9000.0]
    assert any("nothing was learned about: 'Mond' (line 2)" in note for note in new.notes)
    assert any("('maybe'; line 3)" in note for note in new.notes)


@pytest.mark.parametrize(
    ("old", "new", "values", "said"),
    [
        ("1M 900k 3M 2M 1k", "5M 7", [5e6, 7.0], False),  # k and M stay thousands and millions
        ("1M 2M 3M 4M 5M", "5M 7k", [5.0, 0.007], True),  # here a number counts millions
        ("1% 2% 0.5 3% 4%", "50% 0.5", [0.5, 0.5], False),
        ("1% 2% 5 3% 4%", "50% 20", [50.0, 20.0], False),  # 5 is no share: all are per cent
        ("1% 2% 5% 3% 4%", "20% 0.2", [20.0, 20.0], True),
        ("1% 2% 5% 3% 4%", "20 30", [20.0, 30.0], True),
        ("1 2 3 4 5", "5kg 6kg", [5.0, 6.0], True),
        ("1 2 3 4 5", "5kg", [5.0], True),
        ("1 2 3 4 5", "5m 6m", [5.0, 6.0], True),  # metres
        ("1 2 3 4 5", "5m 6", [5.0, 6.0], True),
        ("1m 2 3m 4 5", "5m 6", [5.0, 6.0], False),
        ("1B 2 3B 4 5", "5B 6", [5.0, 6.0], False),  # bytes
        ("$1m $2k $3m $4 $5", "$5m 6", [5e6, 6.0], False),
        ("1kg 2kg 3kg 4kg 5kg", "5 6lb", [5.0, math.nan], True),
        ("1kg 2kg 3kg 4kg 5kg", "5 6", [5.0, 6.0], True),
        ("1€ 2€ 3EUR 4€ 5€", "5EUR 6€", [5.0, 6.0], False),
        ("0.1 0.2 0.3 0.4 0.5", "50% 60%", [0.5, 0.6], True),
        ("1000 2000 3000 4000 5000", "5k 0.1M", [5000.0, 1e5], True),
        ("1000 2000 3000 4000 5000", "5k 6k", [5000.0, 6000.0], True),
        ("1k 2k 3k 4k 5k", "5000 6000", [5000.0, 6000.0], True),  # of k: this cannot be known, and is said
        ("$1k $2k $3k $4k $5k", "$5k 6000", [5.0, 6.0], True),
        ("$1k $2k $3k $4k $5k", "$5000 $6000", [5.0, 6.0], True),
        ("$1 $2 $3 $4 $5", "$5k $7", [5000.0, 7.0], True),
        ("$1k $2k $3k $4k $5k", "€5k 6k", [math.nan, 6.0], True),
        ("5% 0 7% 12% 3%", "12", [12.0], True),  # a bare 0 says nothing of shares
        ("5B 6B 7B 8B 9B", "2B", [2.0], False),
        ("1.2T 800B 500M 45M 2B", "1T 2bn", [1e12, 2e9], False),
        ("5mln 3k 10 20 30", "1mln 2", [1e6, 2.0], False),
    ],
)
def test_units_are_those_of_the_rows_that_teach(
    old: str, new: str, values: list[float], said: bool, tmp_path: Path
) -> None:
    """A unit that is there in one file alone is never passed over in silence."""
    (tmp_path / "old.csv").write_text("a,y\n" + "".join(f"{text},{n * n}\n" for n, text in enumerate(old.split())))
    (tmp_path / "new.csv").write_text("a,b\n" + "".join(f"{text},\n" for text in new.split()))
    table = read_table(tmp_path / "old.csv", Asked("y"))
    found = read_new(tmp_path / "new.csv", table.plans, table.target, "numbers")
    np.testing.assert_allclose(found.columns, [values], rtol=1e-15)
    assert bool(found.notes) == said


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("5.000 42.100 79.200 12.000", "12.500 150.000", [12500.0, 150000.0]),  # points of thousands, in few rows
        ("5.000 42.100 79.200 12.000", "12.500 150.000 60.000 7.000", [12500.0, 150000.0, 60000.0, 7000.0]),
        ("5.000 42.100 79.200 12.000", "12.5 150", [12.5, 150.0]),  # no thousands
        ("0,10 0,47 1,25 2,125", "1,125", [1.125]),
        ("0.10 0.47 1.25 2.125", "1.125 2.250 3.375 4.500", [1.125, 2.25, 3.375, 4.5]),
        ("0.10 0.47 1.25 2.125", "0,900 1,2", [0.9, 1.2]),
        ("1.250 2.375 0.500 150", "1.250 2.500 3.125 4.750 150", [1.25, 2.5, 3.125, 4.75, 150.0]),
        ("1,234 2,345,678 900 1,870", "1,500", [1500.0]),
        ("1,250 2,500 1,125 1,750 0,875 k.A.", "1,250", [1.25]),
        ("1 2 3 4", "12.500 150.000 60.000 7.000", [12500.0, 150000.0, 60000.0, 7000.0]),  # no marks were there
    ],
)
def test_marks_are_those_of_the_rows_that_teach_unless_the_new_rows_show_others(
    old: str, new: str, values: list[float], tmp_path: Path
) -> None:
    (tmp_path / "old.csv").write_text(
        "a;y\n" + "".join(f"{text};{n * n}\n" for n, text in enumerate([*old.split(), "3"]))
    )
    (tmp_path / "new.csv").write_text("a;y\n" + "".join(f"{text};\n" for text in new.split()))
    table = read_table(tmp_path / "old.csv", Asked("y"))
    assert read_new(tmp_path / "new.csv", table.plans, table.target, "numbers").columns == [values]


@pytest.mark.parametrize("new", ["9.500", "9.500 8.250", "9.500 8.250 12.000"])
def test_the_score_of_new_rows_has_the_marks_of_the_target(new: str, tmp_path: Path) -> None:
    rows = [f"{n};{1 + n // 3}.{n:02d}0" for n in range(12)]
    (tmp_path / "old.csv").write_text("\n".join(["a;y", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("a;y\n" + "".join(f"1;{text}\n" for text in new.split()))
    table = read_table(tmp_path / "old.csv", Asked("y"))
    assert "points are for thousands" in table.why
    found = read_new(tmp_path / "new.csv", table.plans, table.target, "numbers")
    assert found.truth == [float(text.replace(".", "")) for text in new.split()]


COLUMNS = {
    "points for thousands between commas": ("506 75.400 12.000 3.550 480 9.120", [506.0, 75400.0, 12000.0]),
    "fractions that are typed": ("5 1.250 2.500 3.125 1.875 4", [5.0, 1.25, 2.5]),
    "two currencies": ("$42k 79000EUR $7k $8k $9k $10k", None),
    "thousands of a unit": ("194k_km 87,000_km 12_km 5k_km 70_km 1k_km", [194e3, 87e3, 12.0]),
    "months": ("06.2014 12.2015 01.2016 02.2016 03.2016 04.2016", [16222.0, 16770.0, 16801.0]),
    "months with strokes": ("6/2014 12/2015 1/2016 2/2016 3/2016 4/2016", [16222.0, 16770.0, 16801.0]),
    "years of two digits": ("01.02.65 01.02.24 01.03.70 02.03.71 03.03.71 04.03.71", [-1795.0, 19754.0, 59.0]),
    "hours ahead of UTC": (
        "2024-03-01T00:30+09:00 2024-02-29T15:30Z 2024-02-29T10:30-05:00",
        [19782 + 15.5 / 24] * 3,
    ),
    "points have the day first": ("3/13/2024 4.5.2024 3/20/2024 6.7.2024", [19795.0, 19847.0]),
    "names of days": (
        "Monday,_January_30,_2023 Mon_Jan_31_2023 Tue_Feb_7_2023 30_de_enero_de_2023",
        [19387.0, 19388.0, 19395.0, 19387.0],
    ),
    "other currencies": ("NZ$100 NZ$250 NZ$300 NZ$90", [100.0, 250.0, 300.0]),
    "what K counts is not said": ("5G 3M 2K 7G 1K", None),
    "a long minus": ("–5 6 –7 8 9 10", [-5.0, 6.0, -7.0]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_read_as_it_was_meant(name: str) -> None:
    text, values = COLUMNS[name]
    cells = text.replace("_", " ").split(" ") if "_" not in text else [one.replace("_", " ") for one in text.split()]
    found = columns.plan("a", cells, columns.decimal_mark([cells], ","))
    if values is None:
        assert not found.numeric
    else:
        assert found.values(cells)[0][: len(values)] == pytest.approx(values, rel=1e-15)
    if name in ("points for thousands between commas", "years of two digits"):
        assert "points are for thousands" in found.words or "from 1965-02-01 to 2024-02-01" in found.words


LEFT_OUT = {
    "several units": (
        [f"{40000 + n:,} km" if n % 3 else f"{25000 + n:,} mi" for n in range(60)],
        "left out: numbers with several units (km, mi): write them in one unit",
    ),
    "currencies, some again": (
        [f"${n % 30}" if n % 3 else f"€{n}" for n in range(60)],
        "left out: numbers with several units ($, €): write them in one unit",
    ),
    "two decimal marks": (
        [f"{n}.25" if n % 3 else f"{n},75" for n in range(60)],
        "left out: numbers with two decimal marks ('0,75', '1.25'): write them with one",
    ),
    "names with numbers": (["1. Yes", "2. No", "3. Maybe", "1. Yes"], "3 categories: '1. Yes', '2. No', '3. Maybe'"),
    "seats": (
        [f"{n}{'ABC'[n % 3]}" for n in range(60)],
        "left out: text that is different in every row ('0A', '1B', '2C')",
    ),
    "addresses": (
        [f"{n} {'ABCDEFGH'[n % 8]}street" for n in range(60)],
        "left out: text that is different in every row ('0 Astreet', '1 Bstreet', '2 Cstreet')",
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_column_that_is_left_out_says_why(name: str) -> None:
    cells, words = LEFT_OUT[name]
    assert columns.plan("a", cells).words == words


def test_years_have_no_mark_of_thousands() -> None:
    assert columns.plan("a", ["2009", "2024", "2011"]).words == "numbers from 2009 to 2024"
    assert columns.plan("a", ["2009 €", "2024 €"]).words.startswith("numbers from 2009 to 2024")
    assert columns.plan("a", ["2009", "5024", "2011"]).words == "numbers from 2,009 to 5,024"


@pytest.mark.parametrize(
    ("names", "row", "data"),
    [
        ('Ford,2015,"41,097 km",€8', 'Ford,20{k},"{n}1,097 km",€{n}', True),
        ("make,year,km,price", 'Ford,20{k},"{n}1,097 km",€{n}', False),
        ("Ford,year,km,price", 'Ford,20{k},"{n}1,097 km",€{n}', False),
        ("2015-01-03,red", "2016-01-{k},red", True),
        ("2015-01-03,2015-01-04,2015-01-05", "{n}5,{n},9{n}", False),  # days as names
        ("land,2019,2020,2021", "l{n},{k}00.5,{k}11,{k}33", False),  # years as names
        (",2010,2015,2020", "l{n},{k}00.5,{k}11,{k}33", False),
        ("land,2015", "l{n},{k}00", False),
        ("land,2015", "l{n},20{k}", True),  # above years, a year
        ("q,10,20,30,40", "red,{k},{k},{k},{k}", False),  # in even steps
        ("q,0.1,0.5,0.9,2", "l{n},{n},{n},{n},{n}", False),  # rising
        ("5.1,3.5,1.4,0.2,red", "{n}.5,{n}.5,{n}.5,{n}.5,red", True),
        ("5.1,3.5,1.4,0.2,kind", "{n}.5,{n}.5,{n}.5,{n}.5,red", False),
        ("5 km,10 km,42 km", "{n}.5,{n}.7,{n}.9", False),  # cells without the unit
        ("red,green", "{c},{c}", True),
        ("red,kind", "{c},{c}", False),
        ("kind,kind", "kind,kind", False),  # the names again, and nothing else
        ("x,y", "{n},{n}", False),
    ],
)
def test_a_first_line_of_data_is_known_from_names(names: str, row: str, data: bool) -> None:
    rows = [row.format(n=n, k=10 + n, c=["red", "green", "blue"][n % 3]) for n in range(1, 10)]
    first, *below = csv.reader([names, *rows])
    assert bool(doubt(first, below, ",")) == data


def test_new_rows_may_spell_yes_and_no_in_another_way(tmp_path: Path) -> None:
    text = lines("a,k,y", "{s},{c},{c}").replace("red", "Yes").replace("green", "No").replace("blue", "No")
    (tmp_path / "data.csv").write_text(text)
    table = read_table(tmp_path / "data.csv", Asked("y"))
    (tmp_path / "new.csv").write_text("a,k,y\n1,y,TRUE\n1,N,0\n1,1,no\n1,False,yes\n1,x,\n")
    new = read_new(tmp_path / "new.csv", table.plans, table.target, table.task, table.classes)
    np.testing.assert_equal(new.columns[1], [1.0, 0.0, 1.0, 0.0, math.nan])
    assert new.truth == ["Yes", "No", "No", "Yes", None]
    assert [note for note in new.notes if "'k'" in note] == [
        "column 'k': cells that are no yes or no ('x'; line 6) count as missing"
    ]
    (tmp_path / "data.csv").write_text(text.replace("No\n", "false\n", 2))
    assert read_table(tmp_path / "data.csv", Asked("y")).classes == ["No", "Yes"]
    assert read_table(tmp_path / "data.csv", Asked("y", "classes")).classes == ["No", "Yes"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("5,{n}97 km", ["5.297 km"], True),
        ("5,{n}97 km", ["5.297", "5.500 km"], True),
        ("5,{n}97 km", ["5.2 km"], False),  # within by neither
        ("5,{n}97 km", ["5,297 km"], False),
        ("5,{n}97 km", ["5.297 km", "5,300 km", "5,400 km"], False),  # most are within
        ("5.{n}97 km", ["5,297 km"], True),
        ("5.{n}97 km", ["5.297 km"], False),
    ],
)
def test_a_mark_that_makes_new_numbers_strange_is_said(old: str, new: list[str], said: bool, tmp_path: Path) -> None:
    rows = [f'"{old.format(n=n % 10)}",{n * n}' for n in range(20)]
    (tmp_path / "old.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("a,y\n" + "".join(f'"{cell}",\n' for cell in new))
    table = read_table(tmp_path / "old.csv", Asked("y"))
    model = fitted.Fitted.of(table, models.Engine("numbers", "ridge"))
    found = read_new(tmp_path / "new.csv", table.plans, table.target, "numbers")
    assert any("other decimal mark" in note for note in unusual.notes(model, found, [])) == said


def test_no_is_no_where_only_yes_was_written() -> None:
    found = columns.plan("a", ["ja", "", "", "ja", "", "ja"])
    assert found.values(["ja", "nein", "", "no", "0", "vielleicht"]) == (
        [1.0, 0.0, 0.0, 0.0, 0.0, pytest.approx(math.nan, nan_ok=True)],
        ["vielleicht"],
    )


def test_dates_that_could_be_either_are_said(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("d,y\n" + "".join(f"2024-0{n}-15,{n}\n" for n in range(1, 9)))
    table = read_table(tmp_path / "old.csv", Asked("y", task="numbers"))
    for text, note in (
        ("24-01-05", "'24-01-05' is read as 2005-01-24"),
        ("03/10/2024", "'03/10/2024' is read as 2024-10-03"),
        ("03/21/2024", ""),
        ("05/05/2024", ""),
    ):
        (tmp_path / "new.csv").write_text(f"d,b\n{text},\n")
        notes = read_new(tmp_path / "new.csv", table.plans, table.target, "numbers").notes
        assert (note in notes[0]) if note else not notes
    (tmp_path / "new.csv").write_text("d,b\n2024-02-01,\n03/10/2024,\n")  # the note is about the one that is meant
    assert "'03/10/2024' is" in read_new(tmp_path / "new.csv", table.plans, table.target, "numbers").notes[0]
    (tmp_path / "new.csv").write_text("d,b\n10:30,\n11:30,\n")
    with pytest.raises(InputError, match=r"column 'd' .* has no dates"):
        read_new(tmp_path / "new.csv", table.plans, table.target, "numbers")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("garden,area\nno,1\n", "no 'sold', 'district'"),
        ("sold;district;area;rooms;built;garden;energy;heating\nx;x;large;1;1;no;A;gas\n", "column 'sold'"),
        ("sold;district;area;rooms;built;garden;energy;heating\n", "header but no rows"),
    ],
)
def test_new_rows_that_cannot_be_used_are_refused_by_name(text: str, told: str, tmp_path: Path) -> None:
    table = read_table(HOUSES, Asked("price"))
    (tmp_path / "new.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        read_new(tmp_path / "new.csv", table.plans, table.target, table.task)


def test_what_is_unusual_about_new_rows_is_said(tmp_path: Path) -> None:
    """Rows far away, by the columns that matter; empty ones; those that taught."""
    table = read_table(HOUSES, Asked("price"))
    model = fitted.Fitted.of(table, models.Engine("numbers", "ridge"))
    header = "sold;district;area;rooms;built;garden;energy;heating;price"
    first = {name: table.sheet.rows[0][place] for place, name in enumerate(table.sheet.header)}
    same = ";".join(first[name] for name in header.split(";"))
    other = same.replace(first["price"], "9 €")
    far = ["31.01.2030;Hafen;900;3;1980;no;A;gas;", "31.01.2030;Hafen;20,5;3;1980;no;A;gas;1"]
    (tmp_path / "new.csv").write_text("\n".join([header, *far, ";" * 8, "NA;;;;;;;;7", same, other]) + "\n")
    new = read_new(tmp_path / "new.csv", table.plans, table.target, table.task)
    matters = [{"column": "area", "fall": 0.8}, {"column": "sold", "fall": 0.004}, {"column": "rooms", "fall": 0.0}]
    told = [*new.notes, *unusual.notes(model, new, matters)]
    assert told[0] == "1 blank row is left out (line 4)"
    assert told[1].startswith(
        "column 'area': 2 rows lie outside the range of the rows that taught, 51.8 to 239.9 (lines"
    )
    assert "1 row has no cell that was learned from (line 5)" in told[2]
    assert len(told) == 3
    dates = unusual.notes(model, new, [{"column": "sold", "fall": 0.1}])
    assert "'sold'" in dates[0]
    assert "(lines 2, 3)" in dates[0]
    assert " to 2024-" in dates[0]
    assert unusual.taught(model, new) == 1  # equal in all cells and in the target


def test_a_score_counts_what_it_can_and_says_what_it_cannot(tmp_path: Path) -> None:
    """Classes are the same in capitals, where they are yes and no; one that is new is not scored, and that is said."""
    text = lines("a,b,y", "{s},{n},{c}", 30).replace("red", "Yes").replace("green", "no").replace("blue", "no")
    (tmp_path / "data.csv").write_text(text)
    table = read_table(tmp_path / "data.csv", Asked("y"))
    (tmp_path / "new.csv").write_text("a,b,y\n1,2,yes\n3,4,NO\n5,6,perhaps\n7,8,\n")
    new = read_new(tmp_path / "new.csv", table.plans, table.target, table.task, table.classes)
    assert new.truth == ["Yes", "no", None, None]
    assert any("1 row whose 'y' is nothing that was learned ('perhaps'; line 4)" in note for note in new.notes)
    sure = fitted.Predictions(table.target, table.classes, np.tile([0.1, 0.9], (4, 1)))
    assert sure.score(new) == {"rows": 2, "right": 0.5, "most": 0.5}
    (tmp_path / "data.csv").write_text(text.replace("Yes", "red").replace("no", "blue"))
    table = read_table(tmp_path / "data.csv", Asked("y"))
    (tmp_path / "new.csv").write_text("a,b,y\n1,2,red\n3,4,pink\n")
    new = read_new(tmp_path / "new.csv", table.plans, table.target, table.task, table.classes)
    assert new.truth == ["red", None]
    assert any("'pink'" in note for note in new.notes)


# --------------------------------------------------------------------------------------------------------------- scores


def test_scores_are_scikit_learns() -> None:
    from sklearn.metrics import log_loss, r2_score, roc_auc_score

    rng = np.random.default_rng(0)
    y, chances = rng.integers(3, size=90), rng.dirichlet(np.full(3, 5.0), size=90).round(2)  # rounded: there are ties
    chances[:, 2] = 1 - chances[:, 0] - chances[:, 1]
    fold = np.zeros(90, dtype=int)
    found = scoring.classes(y, scoring.Found("", chances, 0.0), fold)
    assert found["auc"] == pytest.approx(roc_auc_score(y, chances, multi_class="ovr"))
    assert found["log_loss"] == pytest.approx(log_loss(y, chances), rel=1e-4)
    two = np.column_stack([1 - chances[:, 0], chances[:, 0]])
    assert scoring.decisive("classes", y // 2, two, fold) == pytest.approx(roc_auc_score(y // 2, two[:, 1]))
    fold = np.arange(90) % 5
    parts = [(y // 2)[fold == one] for one in range(5)]
    weights = [part.sum() * (1 - part).sum() for part in parts]
    each = [roc_auc_score(part, two[fold == one, 1]) for one, part in enumerate(parts)]
    assert scoring.decisive("classes", y // 2, two, fold) == pytest.approx(np.average(each, weights=weights))
    truth, guess = rng.normal(size=(2, 50))
    assert scoring.decisive("numbers", truth, guess) == pytest.approx(r2_score(truth, guess))
    times = rng.integers(4, size=90)  # a row that counts three times is there three times
    more = np.repeat(np.arange(90), times)
    for task, true, said in (("classes", y, chances), ("numbers", truth, guess)):
        rows = more[more < len(true)]
        found = scoring.weighted(task, true, said, fold[: len(true)], times[None, : len(true)])
        assert found[0] == pytest.approx(scoring.decisive(task, true[rows], said[rows], fold[rows]))


@pytest.mark.parametrize("rows", [60, 1000])
def test_few_rows_that_differ_from_all_others_do_not_deceive(rows: int) -> None:
    """Four amounts among zeros: rows that are drawn again may have none of them, and then there is no R²."""
    for seed in range(20):
        y = np.zeros(rows)
        y[:4] = 1000.0 * np.random.default_rng(seed).uniform(0.5, 2.0, 4)
        fold = scoring.folds("numbers", y, 5, seed)
        found = [scoring.Found("", guess, 0.0) for guess in (0.99 * y, np.full(rows, y.mean()))]
        validation = scoring.Validation("numbers", [], list(range(rows)), y, fold, found, [])
        assert max(row["spread"] for row in validation.scores()) < 0.1
        assert words.is_clear(*validation.gain(1))
    normal = np.random.default_rng(0).normal(size=400)
    assert scoring.spread_of(normal) == pytest.approx(normal.std(), rel=0.1)
    assert np.isnan(scoring.weighted("numbers", y, y, fold, (y == 0.0)[None].astype(float)))
    assert scoring.decisive("numbers", np.full(9, 0.1), np.full(9, 0.1)) == 0.0


def test_few_pairs_and_tiny_numbers_do_not_deceive() -> None:
    """Guesses at the classes of six rows are never clearly better than chance; R² does not change with the unit."""
    rng = np.random.default_rng(0)
    clear = 0
    for _ in range(100):
        y = rng.permutation(np.arange(6) % 2)
        fold, guess = scoring.folds("classes", y, 5, 0), rng.random(6)
        found = [scoring.Found("", np.column_stack([1 - one, one]), 0.0) for one in (guess, np.full(6, 0.5))]
        gain = scoring.Validation("classes", ["a", "b"], list(range(6)), y, fold, found, []).gain(1)
        clear += words.is_clear(*gain)
    assert clear == 0
    many, fold = np.arange(400) % 2, np.arange(400) // 2 % 5
    guesses = np.array([scoring.decisive("classes", many, np.c_[1 - g, g], fold) for g in rng.random((300, 400))])
    assert scoring.chance_error(many, fold) == pytest.approx(guesses.std(), rel=0.15)
    truth, guess = rng.normal(size=(2, 50))
    assert scoring.decisive("numbers", 1e-300 * truth, 1e-300 * guess) == pytest.approx(
        scoring.decisive("numbers", truth, guess)
    )


def test_every_class_is_in_every_fold() -> None:
    y = np.array([0] * 23 + [1] * 12 + [2] * 5)
    fold = scoring.folds("classes", y, 5, 0)
    assert np.bincount(fold).tolist() == [8] * 5
    assert all(len(set(fold[y == one])) == 5 for one in range(3))
    assert (fold != scoring.folds("classes", y, 5, 1)).any()


class Nearest:
    """A learner that is quick: the mean of the three nearest rows by the first column, and their spread."""

    notes_: Sequence[str] = ("three neighbours",)

    def fit(self, X: np.ndarray, y: np.ndarray) -> Nearest:
        self.x, self.y, self.classes_ = X[:, 0].astype(float), y, np.unique(y)
        self.columns_ = [Column(f"column {place + 1}", "number", "numbers") for place in range(X.shape[1])]
        return self

    def _near(self, X: np.ndarray) -> np.ndarray:
        return np.abs(X[:, :1].astype(float) - self.x).argsort(1)[:, :3]

    def predict(self, X: np.ndarray, quantiles: Sequence[float] | None = None) -> np.ndarray:
        near = self.y[self._near(X)].astype(float)
        return near.mean(1) if quantiles is None else np.quantile(near, quantiles, axis=1).T

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        near = self.y[self._near(X)]
        return np.stack([(near == one).mean(1) for one in self.classes_], 1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The quick learner, beside the mean alone; and a table in which only the first column matters."""
    all_rivals = models.rivals
    monkeypatch.setattr(models.Engine, "make", lambda self: Nearest())
    monkeypatch.setattr(scoring, "rivals", lambda *given: all_rivals(*given)[:2])
    rng = np.random.default_rng(0)
    x, noise = rng.uniform(size=(60, 2)).round(3), rng.normal(size=60)
    rows = [
        f"{a},{b},{10 * a + 0.1 * c:.2f},{'high' if a > 0.5 else 'low'}" for (a, b), c in zip(x, noise, strict=True)
    ]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,y,kind", *rows, "0.5,0.5,,"]) + "\n")
    return tmp_path


@pytest.mark.parametrize("target", ["y", "kind"])
def test_a_table_is_fitted_kept_and_reported(quick: Path, target: str) -> None:
    data, out = quick / "data.csv", quick / "out"
    other = "kind" if target == "y" else "y"
    printed = good("fit", data, "--target", target, "--drop", other, "--out", out, "--report")
    assert "60 rows teach, and 1 row has no target" in printed
    assert "three neighbours" in printed
    found = json.loads((out / "fit.json").read_text())
    own, mean = found["scores"][:2]
    key = "r2" if target == "y" else "auc"
    assert own[key] > 0.9 > mean[key] + 0.3
    assert [one["column"] for one in found["matters"]] == ["a", "b"]
    assert found["matters"][0]["fall"] > 0.3 > 0.01 > abs(found["matters"][1]["fall"])
    with (out / "validation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["line"]) for row in rows] == list(range(2, 62))
    page = read_page(out / "report.html")
    assert all(text in page.text for text in ("What the model is, and is not", "Which columns matter", own["method"]))
    assert ("If you act on every row that is low" in page.text) == (target == "kind")
    # the same folder, used again: by --model, and by innergrad report
    first = (out / "predictions.csv").read_text()
    assert first.splitlines()[1].startswith("0.5,0.5,,,")
    good("fit", "--model", out, "--predict", data, "--out", quick / "again")
    assert (quick / "again" / "predictions.csv").read_text().splitlines()[-1] == first.splitlines()[1]
    told = json.loads((quick / "again" / "predictions.json").read_text())["score"]
    assert (told["rows"], told["taught"]) == (60, 60)
    assert "60 of these rows taught: their score is too good" in words.about_score(told)
    good("report", out, "--out", quick / "again.html")
    assert "Which columns matter" in (quick / "again.html").read_text()
    # the new rows: with the column that matters, and not when the file is another one by now
    cells = page.text.split("1 prediction")[1].split("Which columns")[0].split()
    header = ["prediction", "low", "high"] if target == "y" else ["class", "probability"]
    own = first.splitlines()[1].split(",")[4:]
    assert cells == ["line", "a", *header, "62", "0.5", *own[: len(header)]]
    assert "Rows of data.csv" in (quick / "again.html").read_text()
    (out / "predictions.csv").write_text("mine")
    good("report", out, "--out", quick / "again.html")
    assert "Rows of data.csv" not in (quick / "again.html").read_text()


@pytest.mark.parametrize("target", ["y", "kind"])
def test_the_json_has_what_the_file_has(quick: Path, target: str) -> None:
    (quick / "new.csv").write_text("a,b\n0.1,0.5\n,,\n0.9,0.5\n7,0\n")
    dropped = "kind" if target == "y" else "y"
    given = ("--predict", quick / "new.csv", "--out", quick / "out", "--json")
    told = json.loads(good("fit", quick / "data.csv", "--target", target, "--drop", dropped, *given))["predictions"]
    again = json.loads(good("fit", "--model", quick / "out", *given))["predictions"]
    assert again == told
    assert (told["rows"], [one["line"] for one in told["values"]]) == (3, [2, 4, 5])
    assert "blank row" in told["notes"][0]
    assert "column 'a': 1 row lies outside" in told["notes"][1]
    with (quick / "out" / "predictions.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    for one, row in zip(told["values"], written, strict=True):
        if target == "y":
            assert [one[name] for name in ("prediction", "low", "high")] == pytest.approx(
                [float(row[name]) for name in ("prediction", "low", "high")]
            )
        else:
            assert (one["class"], one["probability"]) == (row["class"], float(row["probability"]))
            assert one["probabilities"] == {name: float(row[f"probability of {name}"]) for name in ("high", "low")}
    assert "values" not in json.loads((quick / "out" / "predictions.json").read_text())


def test_a_frequent_class_is_said_beside_the_score(quick: Path) -> None:
    rows = [f"{n},{'rare' if n % 9 == 0 else 'usual'}" for n in range(90)]
    (quick / "data.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    (quick / "new.csv").write_text("\n".join(["a,y", *(f"{n}.5,usual" for n in range(9)), "9.5,rare"]) + "\n")
    given = ("fit", quick / "data.csv", "--target", "y", "--out", quick / "out", "--predict", quick / "new.csv")
    printed = good(*given)
    assert "88.9% of the rows are 'usual': who always says so is right as often" in printed
    assert "(90% are of one class)" in printed
    assert words.lopsided("classes", "y", ["a", "b", "b", "b", "b"]) == []
    assert "'y' is 0 in 90.0% of the rows" in words.lopsided("numbers", "y", [0.0] * 9 + [4.0])[0]


@pytest.mark.parametrize(("key", "base", "values"), [("auc", 0.5, [0.9, 0.5, 0.3]), ("r2", 0.0, [0.9, -0.1, -30.0])])
def test_bars_begin_at_the_score_of_who_learned_nothing(key: str, base: float, values: list[float]) -> None:
    with figures.new(size=(5, 4)) as (_, (ax,)):
        shown = [{"method": f"m{place}", key: value, "spread": 0.02} for place, value in enumerate(values)]
        _draw_bars(ax, shown, key, key)
        low, high = ax.get_xlim()
        ends = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches)
        assert f"{base:g} is" in ax.get_xlabel()
    for begin, end in ends:
        assert begin == base
        assert low < end < high
    assert [end for _, end in ends] == pytest.approx(sorted(max(value, -1.0) for value in values))


def test_what_the_learner_leaves_out_is_said(tmp_path: Path) -> None:
    """A column that can be read, and still does not teach: a copy of another."""
    rows = [f"{n % 7},{n},{n},{3 * n + n % 5}" for n in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["first,size,again,price", *rows]) + "\n")
    told = good("fit", tmp_path / "data.csv", "--target", "price", "--engine", "ridge", "--out", tmp_path / "out")
    assert "'again', to the learner: a copy of 'size': left out" in " ".join(told.split())


def test_what_an_earlier_fit_left_is_not_shown_as_this_ones(quick: Path) -> None:
    """Predictions and a report of another target go when a fit does not write them; what others wrote stays, unseen."""
    data, out = quick / "data.csv", quick / "out"
    price = ("fit", data, "--target", "y", "--drop", "kind", "--out", out)
    kind = ("fit", quick / "all.csv", "--target", "kind", "--drop", "y", "--out", out)  # no row to predict
    (quick / "all.csv").write_text(data.read_text().replace("0.5,0.5,,\n", ""))
    good(*price, "--report")
    assert "removed, since an earlier fit wrote them: predictions.json, predictions.csv, report.html" in good(*kind)
    assert sorted(one.name for one in out.iterdir()) == ["demonstrations.csv", "fit.json", "validation.csv"]
    good(*price, "--report")
    told = good(*kind, "--report")
    assert "report.html" not in told.partition("removed")[2]
    assert "New rows" not in read_page(out / "report.html").text
    good(*price)
    kept = (out / "predictions.json").read_text(), (out / "predictions.csv").read_text()
    good(*kind)
    for name, text in zip(("predictions.json", "predictions.csv"), kept, strict=True):
        (out / name).write_text(text)  # put back by hand: whole, but of another fit
    good("report", out, "--out", quick / "again.html")
    assert "New rows" not in read_page(quick / "again.html").text
    (out / "report.html").write_text("mine")
    good(*kind)
    assert (out / "report.html").read_text() == "mine"


def test_files_of_others_stay_and_damage_is_seen(quick: Path) -> None:
    data, out = quick / "data.csv", quick / "out"
    given = ("fit", data, "--target", "y", "--drop", "kind", "--out", out)
    good(*given, "--quiet")
    good(*given, "--quiet")  # its own files are replaced
    (out / "predictions.csv").write_text("mine")
    assert call(*given).code == 2
    good(*given, "--quiet", "--force")
    rows = (out / "demonstrations.csv").read_text()
    (out / "demonstrations.csv").write_text(rows.replace("0.", "1.", 1))
    done = call("fit", "--model", out, "--predict", data)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "was changed" in done.err


@pytest.mark.parametrize(
    ("text", "told"), [("{}", "got no 'model', 'files'"), ("[]", "no 'model'"), ("x", "cannot be read")]
)
def test_a_damaged_index_is_what_is_blamed(text: str, told: str, quick: Path) -> None:
    data, out = quick / "data.csv", quick / "out"
    good("fit", data, "--target", "y", "--drop", "kind", "--out", out, "--quiet")
    whole = json.loads((out / "fit.json").read_text())
    for damaged, blamed in ((text, told), (json.dumps({**whole, "files": {}}), "no digest of demonstrations.csv")):
        (out / "fit.json").write_text(damaged)
        done = call("fit", "--model", out, "--predict", data)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "fit.json" in done.err
        assert blamed in done.err
        assert "was changed" not in done.err


def test_a_folder_that_may_not_be_written_to_is_said_first(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any work. (Whoever runs the tests may write anywhere, so the system is asked in vain.)"""
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    done = call("fit", quick / "data.csv", "--target", "y", "--out", quick / "own" / "out")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"no right to write into {quick}" in done.err
    assert "--out" in done.err


def test_a_long_name_does_not_make_every_line_long(quick: Path) -> None:
    name = "how many " * 60
    (quick / "data.csv").write_text((quick / "data.csv").read_text().replace("a,b", f"{name},b", 1))
    (quick / "new.csv").write_text(f"{name},b\n0.1,0.5\n")
    given = ("fit", quick / "data.csv", "--target", "y", "--drop", "kind", "--predict", quick / "new.csv")
    printed = good(*given, "--out", quick / "out", "--report")
    assert re.search(r"^  b {10,40}numbers from", printed, re.MULTILINE)
    assert max(map(len, re.findall("how many[^0-9]*", printed.split("In context")[0]))) < 60
    assert name.strip() not in read_page(quick / "out" / "report.html").text


@pytest.mark.parametrize("words", [("Yes", "no"), ("1", "0"), ("high", "low")])
def test_the_chance_of_yes_is_shown(words: tuple[str, str], quick: Path) -> None:
    """In the table for people; the file has both."""
    text = (quick / "data.csv").read_text().replace("high", words[0]).replace("low", words[1])
    (quick / "data.csv").write_text(text)
    (quick / "new.csv").write_text("a,b\n0.01,0.5\n,,\n0.99,0.5\n")
    given = ("fit", quick / "data.csv", "--target", "kind", "--drop", "y", "--predict", quick / "new.csv")
    printed = good(*given, "--out", quick / "out", "--report").split("2 predictions of kind")[1]
    page = read_page(quick / "out" / "report.html").text.split("2 predictions")[1]
    known = words[0] != "high"
    for shown in (printed, page):
        assert (f"probability of {words[0]}" in " ".join(shown.split("Which columns")[0].split())) == known
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] in (["2"], ["4"])]
    assert rows == [["2", words[1], "0.0000" if known else "1.0000"], ["4", words[0], "1.0000"]]
    header = (quick / "out" / "predictions.csv").read_text().splitlines()[0]
    assert header.startswith("a,b,class,probability,probability of ")


def test_a_kept_fit_is_the_fit(tmp_path: Path, quick: Path) -> None:
    """Every value of the rows that teach comes back as it was."""
    table = read_table(HOUSES, Asked("price"))
    model = fitted.Fitted.of(table, models.Engine("numbers", "ridge", 3))
    model.write(tmp_path / "demonstrations.csv")
    again = fitted._read(json.loads(json.dumps(model.to_json())), tmp_path / "demonstrations.csv")
    assert (again.engine, again.target, again.plans) == (model.engine, model.target, model.plans)
    for here, there in zip((*again.columns, again.y), (*model.columns, model.y), strict=True):
        np.testing.assert_equal(here, there)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "the CSV file is missing"),
        (("data.csv",), "allowed: a, b, y, kind"),
        (("data.cvs", "--target", "y"), "did you mean data.csv?"),
        (("data.csv", "--target", "y", "--classes", "--numbers"), "of one kind"),
        (("data.csv", "--target", "y", "--interval", "80"), "80% is 0.8"),
        (("data.csv", "--target", "y", "--predict", "nothing.csv"), "nothing.csv"),
        (("data.csv", "--target", "y", "--learner", "nowhere"), "no trained learner"),
        (("data.csv", "--target", "y", "--learner", "nowhere", "--engine", "gd"), "--engine gd"),
        (("--model", "nowhere", "--predict", "data.csv"), "no such folder"),
        (("--model", ".", "--predict", "data.csv"), "no fit.json"),
        (("data.csv", "--model", ".", "--predict", "data.csv"), "also DATA"),
        (("--model", "."), "--predict new.csv"),
        ((".", "--target", "y"), "cannot read .; got a folder"),
        (("data.csv", "--target", "asking", "price"), "needs quotes: --target 'asking price'"),
        (("--target", "asking", "price", "data.csv"), "needs quotes: --target 'asking price'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: tuple[str, ...], told: str, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(quick)
    done = call("fit", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert told in done.err
    assert not (quick / "out").exists()


# ------------------------------------------------------------------------------------------------------ words and pages


def row(method: str, r2: float, **more: float) -> dict[str, Any]:
    return {"method": method, "r2": r2, "typical_error": 1.0, "spread": 0.02, **more}


@pytest.mark.parametrize(
    ("own", "gains", "told"),
    [
        (row("in context", 0.8), [(0.8, 0.02), (0.1, 0.02)], "better than every other method"),
        (row("in context", 0.6), [(0.6, 0.02), (-0.1, 0.02)], "forest is clearly better"),
        (row("in context", 0.7), [(0.7, 0.02), (0.0, 0.02)], "cannot be told apart"),
        (row("in context", 0.7), [(0.7, 0.02), (-0.0005, 0.0001)], "is as good"),
        (row("in context", 0.01), [(0.01, 0.02), (-0.69, 0.02)], "not clearly better than the mean. Decide nothing"),
        (row("in context", 0.9965), [(0.99, 0.02), (0.3, 0.02)], "over 99% of the variance"),
        (row("in context", 0.7, covered_80=0.5, rows=50), [(0.7, 0.02), (0.0, 0.02)], "had 50%: do not rely on them"),
    ],
)
def test_the_verdict_follows_from_the_scores(own: dict[str, Any], gains: list[tuple[float, float]], told: str) -> None:
    assert told in " ".join(words.verdict("numbers", "y", [own, row("the mean", 0.0), row("forest", 0.7)], gains))
    nothing = words.verdict("numbers", "y", [row("", 0.0), row("the mean", 0.0), row("forest", 0.01)], gains[:1] * 2)
    assert (gains[0][0] > 0.1) != ("do not tell 'y'" in nothing[0])


@pytest.mark.parametrize(
    ("covered", "rows", "told"),
    [
        (0.91, 45, "had 91%; of so few rows, that may be chance."),
        (0.6, 10, "had 60%; of so few rows, that may be chance."),
        (0.88, 160, "had 88%: they are wider than needed."),
        (0.72, 400, "had 72%: they are too narrow."),
        (0.6, 200, "had 60%: do not rely on them."),
        (0.83, 3000, "had 83%."),
        (0.77, 45, "had 77%."),
    ],
)
def test_intervals_are_judged_by_more_than_chance(covered: float, rows: int, told: str) -> None:
    scores = [row("in context", 0.7, covered_80=covered, rows=rows), row("the mean", 0.0)]
    assert words.verdict("numbers", "y", scores, [(0.7, 0.02)])[-1].endswith(told)


def test_few_rows_are_seldom_told_that_honest_intervals_are_not() -> None:
    """In a twentieth of all tables, or less."""
    for rows in (10, 20, 45, 160, 1000):
        drawn = np.random.default_rng(rows).binomial(rows, 0.8, 4000) / rows
        assert np.mean([":" in words._intervals({"covered_80": one, "rows": rows}) for one in drawn]) <= 0.05


@pytest.mark.parametrize("task", ["numbers", "classes"])
def test_boosting_learns_from_forty_rows(task: columns.Task, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=40)
    y = [f"{value:.3f}" for value in 2 * a] if task == "numbers" else ["high" if value > 0 else "low" for value in a]
    text = "\n".join(["a,y", *(f"{one:.3f},{other}" for one, other in zip(a, y, strict=True))])
    (tmp_path / "small.csv").write_text(text)
    table = read_table(tmp_path / "small.csv", Asked("y"))
    scores = {one["method"]: one for one in scoring.validate(table, models.Engine(task, "ridge")).scores()}
    assert scores["boosting"]["r2" if task == "numbers" else "auc"] > 0.7


@pytest.mark.parametrize(
    ("cells", "unit"),
    [("2024-01-{n:02}", "days"), ("{n:02}:30", "hours"), ("{n}.5 kg", "kg"), ("{n}.5", "")],
)
def test_errors_have_the_unit_of_the_target(cells: str, unit: str, tmp_path: Path) -> None:
    lines_of = ["a,y", *(f"{n + 0.25},{cells.format(n=n)}" for n in range(1, 24))]
    (tmp_path / "small.csv").write_text("\n".join(lines_of))
    table = read_table(tmp_path / "small.csv", Asked("y"))
    assert words.error_unit(table.target) == unit
    header = words.score_rows("numbers", [], unit)[0]
    assert header[3] == (f"typical error, {unit}" if unit else "typical error")
    scores = [row("in context", 0.9), row("the mean", 0.0)]
    assert f"off by less than {f'1 {unit}'.strip()}." in words.verdict("numbers", "y", scores, [(0.9, 0.1)], unit)[0]


def test_the_page_shows_what_is_printed_of_the_file() -> None:
    table = read_table(HOUSES, Asked("price"))
    width = max(len(one.name) for one in table.plans)
    lines = [words.about_file(table), words.about_target(table.target, table.task, table.why)]
    lines += [f"  {one.name:<{width}}  {one.words}" for one in table.plans]
    assert "\n".join(lines) in (ROOT / "docs" / "tables.md").read_text()


def test_the_configuration_of_the_page_is_one() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "tables.md").read_text(), re.DOTALL)
    made = parse(lab.Experiment, tomllib.loads(text))
    assert [(one.kind, one.weight) for one in made.task.functions] == [("linear", 1.0), ("tree", 3.0)]


@pytest.mark.soak
def test_a_learner_of_ones_own(tmp_path: Path) -> None:
    """Trained for two steps, used, kept; and refused where it is not the same any more."""
    small = lab.TableConfig(n_cells=1, d_cell=32, n_rows=1, d_row=32)
    made = lab.Experiment(
        n_points=32, task=lab.TableRegression(d=6), learner=small, train=lab.TrainConfig(steps=2, batch=4)
    )
    lab.train(made, tmp_path / "run")
    given = ("fit", HOUSES, "--target", "price", "--rows", 40, "--learner", tmp_path / "run", "--out", tmp_path / "out")
    assert "in context" in good(*given, "--predict", OFFERS)
    first = (tmp_path / "out" / "predictions.csv").read_text()
    good("fit", "--model", tmp_path / "out", "--predict", OFFERS, "--quiet")
    assert (tmp_path / "out" / "predictions.csv").read_text() == first
    lab.train(replace(made, seed=1), tmp_path / "other")
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "other").rename(tmp_path / "run")
    done = call("fit", "--model", tmp_path / "out", "--predict", OFFERS)
    assert (done.code, "has changed" in done.err) == (2, True), done.err


def test_the_houses_are_those_of_their_rule() -> None:
    made = runpy.run_path(str(ROOT / "examples" / "houses.py"))["files"]()
    assert made == {path.name: path.read_text(encoding="utf-8-sig") for path in (HOUSES, OFFERS)}


def test_names_of_the_command_line_are_the_librarys() -> None:
    from innergrad import InContextRegressor
    from innergrad.estimators.base import ENGINES

    assert names.ENGINES == models.ENGINES == ENGINES
    assert tuple(InContextRegressor().hidden) == models.HIDDEN  # the same network, trained directly
    assert names.FIT_FILES == (fitted.FIT, fitted.DEMONSTRATIONS, fitted.VALIDATION)
    assert len(columns.plans.USED) == len(words.KINDS)
    assert set(words.KINDS) == set(columns.plans.USED)


def test_predictions_that_need_a_word_have_one(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below zero, where no known target is; not between low and high. And a rare number may be a class."""
    rows = "".join(f"{n},{int(n % 15 == 0)}\n" for n in range(60))
    (quick / "rare.csv").write_text("a,b\n" + rows)
    (quick / "new.csv").write_text("a\n3\n30\n")

    def predict(self: fitted.Fitted, *given: Any) -> fitted.Predictions:
        return fitted.Predictions(self.target, [], np.array([-0.5, 0.5]), np.array([[-1.0, 1.0], [0.6, 0.9]]))

    monkeypatch.setattr(fitted.Fitted, "predict", predict)
    found = good("fit", quick / "rare.csv", "--target", "b", "--predict", quick / "new.csv", "--out", quick / "out")
    assert "from 0 to 1; with --classes its 2 values are classes" in found
    assert "1 prediction below zero, though no 'b' that is known is (line 2)" in found
    assert "1 prediction is not between low and high (line 3)" in found


def test_columns_are_said_before_the_scores(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may take minutes: a column that was misunderstood is seen at once."""

    def slow(*given: Any, **more: Any) -> None:
        raise InputError("stopped")

    monkeypatch.setattr(scoring, "validate", slow)
    result = call("fit", quick / "data.csv", "--target", "y", "--out", quick / "out")
    assert (result.code, "  b     numbers from" in result.out) == (2, True)
