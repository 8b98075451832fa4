"""The pages of the ledger, from results/claims.json.

docs/claims.md is to read; docs/reference/corrections.md, docs/ledger.md and docs/ledger.html are to look up.
"""

from __future__ import annotations

import html
import re
import textwrap
from pathlib import Path
from typing import Any

from _results import read
from claims import PAGE, ROOT, Paper
from claims_corrections import CORRECTIONS, Correction
from claims_mutants import APART, ENDS, EXCUSES
from claims_statements import PAPERS

Row = dict[str, Any]

SUMMARY_PAGE = ROOT / "docs" / "claims.md"
CORRECTIONS_PAGE = ROOT / "docs" / "reference" / "corrections.md"
SEARCH_PAGE = ROOT / "docs" / "ledger.html"
NAMES = {
    "networks": "*Transformers Perform In-Context Learning through Neural Networks*",
    "optimizers": "*Transformers are Deep Optimizers*",
    "summary": "a summary of *In-Context Deep Learning via Transformer Models*",
    "cheng": "Cheng et al. 2024",
    "akyurek": "Akyürek et al. 2023",
}
VERDICTS = {
    "holds": "it holds as printed",
    "corrected": "it is wrong as printed; the row has the right statement",
    "partly": "it holds in part, or under one of its readings; the row says which",
    "conjecture": "nobody has shown it; the row says what speaks for it",
    "cited": "it is a result of another paper; only cheap consequences are checked",
    "definition": "it is checked for being consistent",
    "not testable": "no small computation decides it; the row says why, and where it was tested by training",
}


def numbers(row: Row) -> str:
    if row["limit"] is None:
        return "none"
    text = f"{row['measured']:.1e} ≤ {row['limit']:.0e}"
    if row["threshold"] is not None:
        text += f"; printed: {row['printed_error']:.1e} ≥ {row['threshold']:.0e}"
    return re.sub(r"(?<![\d.])0(\.0)?e\+00", "0", text)


def count(rows: list[Row]) -> str:
    verdicts = [entry["verdict"] for entry in rows]
    return ", ".join(f"{verdicts.count(v)} × {v}" for v in VERDICTS if v in verdicts)


def mutated() -> dict[str, str]:
    """'7/8, 3 apart' by id: mutants that are caught, of those that could be; and those that no number can notice."""
    found = {}
    for one in read("claims_mutants")["rows"]:
        apart = sum(one[end] for end in APART)
        found[one["id"]] = f"{one['caught']}/{one['caught'] + one['survived']}" + (f", {apart} apart" if apart else "")
    return found


def plain(number: float) -> str:
    """2.5e-07, 0.25, 28,000."""
    if number and not 1e-3 <= abs(number) < 1e7:
        return f"{number:.1e}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


# ------------------------------------------------------------ docs/claims.md: to read; docs/reference/corrections.md


def verdict_table(rows: list[Row]) -> list[str]:
    head = ["", *VERDICTS, "all"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    groups = [(NAMES[name], [r for r in rows if r["paper"] == name]) for name in PAPERS.values()]
    for name, own in [*groups, ("all", rows)]:
        verdicts = [r["verdict"] for r in own]
        cells = [name, *(str(verdicts.count(v)) for v in VERDICTS), str(len(own))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def correction(number: int, one: Correction, row: Row) -> list[str]:
    values = {"printed": plain(row["printed_error"]), "measured": plain(row["measured"])}
    parts = {"The paper says": one.says, "Right is": one.right, "Counter-example": one.example}
    lines = [wrapped(f"- *{name}:* {text.format(**values)}", "  ") for name, text in parts.items()]
    source = wrapped(f"{NAMES[row['paper']]}, {row['number']} ([row](../ledger.md#{row['id']})).")
    return [f"## {number}. {one.title}", "", source, "", *lines, ""]


def place(number: int, one: Correction) -> str:
    """The heading of a correction, as a link names it."""
    return f"{number}-" + re.sub(r"[^\w\- ]", "", one.title.lower()).replace(" ", "-")


READ = """\
# Which statements hold?

This library builds on five papers (of one, a summary was read). They were checked statement by statement. Every
theorem, lemma, definition, assumption, remark, example and numbered equation has a row in the *ledger*. A row has the
statement, its verdict, and a small computation that the verdict rests on. The ledger is [a table by
paper](ledger.md), and [a page with filters](ledger.html) to open in a browser. This page has the counts, the
corrections that matter most, and the reasons to trust them.

## The verdicts
"""
TWENTY = """\
## Twenty corrections

[reference/corrections.md](reference/corrections.md) has twenty corrections that matter. Each has the paper's
statement, the right one, and a counter-example with its measured number:
"""
METHOD = """\
## How far to trust it

A row is a numerical check. It compares the statement with something else than the formula that it tests: autograd,
SciPy, scikit-learn, finite groups, brute force, the layer of the paper itself, or the lanes and weights of a compiled
transformer. The error of the true statement must be below a limit. Where the paper is wrong, the error of the
*printed* statement must be above a threshold. A number that agrees is no proof; a counter-example is one.

- *Nothing is left out.* The list of numbered statements is read off the papers (`benchmarks/claims_statements.py`). A
  statement without a row fails `make check`.
{changes}
- *Every row is a test*, run again by `make test`: `pytest tests/test_claims.py -k cheng-Prop-3.1`.
- *Readings.* Some texts can be read in two ways. The row then takes the reading that favours the paper, and says so.
  The papers were read from text made of their pages, so a slip may be the scan's. A second reading changed verdicts;
  CHANGELOG.md lists them.

Made by `python benchmarks/claims.py`. Numbers are absolute errors in float64, unless the row says otherwise.
"""
CORRECTED = """\
# Twenty corrections

Reference. Twenty statements of the papers that are wrong as printed: the statement, the right one, and a
counter-example with its measured number. [claims.md](../claims.md) says how far to trust them, and [the
ledger](../ledger.md) has all statements.
"""


CHANGES = """\
- *Every check can fail.* Its code is changed at random: a sign, a factor, a constant, two arguments. The row must
notice (`benchmarks/claims_mutants.py`). The rows noticed {caught:,} of the {decided:,} changes that a number could
show, in
{checks} checks. A check that notices less than a third of its own changes fails `make check`, with {few} exceptions.
Three kinds of change are counted apart: {looser:,} leave a bound a bound, {refuted:,} turn a refuted statement into
another wrong one, and {idle:,} are in lines that the check does not use. The samples, sizes and rates of a check are
never changed. The ledger has the share of every row. The exceptions:
"""


def changes() -> str:
    """What came of changing the checks, in a paragraph; and the rows that notice few changes, with the reason."""
    tests = read("claims_mutants")["rows"]
    ends = {end: sum(t[end] for t in tests) for end in ENDS}
    counts = {"decided": ends["caught"] + ends["survived"], "checks": len(tests), "few": len(EXCUSES)}
    text = CHANGES.replace("\n", " ").format(**ends, **counts)
    reasons = (f"- [{name}](ledger.md#{name}): {why}." for name, why in EXCUSES.items())
    lines = [textwrap.indent(wrapped(reason, "  "), "    ") for reason in reasons]
    return "\n".join([wrapped(text.strip(), "  "), *lines])


def summary_page(rows: list[Row]) -> str:
    lines = [READ, *verdict_table(rows), ""]
    lines += [f"- **{verdict}**: {meaning}." for verdict, meaning in VERDICTS.items()]
    lines += ["", TWENTY]
    lines += [f"{n}. [{one.title}](reference/corrections.md#{place(n, one)})" for n, one in enumerate(CORRECTIONS, 1)]
    return "\n".join([*lines, "", METHOD.format(changes=changes())])


def corrections_page(rows: list[Row]) -> str:
    known = {row["id"]: row for row in rows}
    lines = [line for n, one in enumerate(CORRECTIONS, 1) for line in correction(n, one, known[one.row])]
    return "\n".join([CORRECTED, *lines[:-1], ""])


# ---------------------------------------------------------------------------------------- docs/ledger.md: to look up


def table(rows: list[Row]) -> list[str]:
    caught = mutated()
    lines = [
        "| number | says | verdict | instead | measured, limit | mutants | test |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in rows:
        number = f'<a id="{entry["id"]}"></a>{entry["number"]}'
        cells = [number, entry["says"], entry["verdict"], entry["instead"], numbers(entry)]
        cells += [caught.get(entry["id"], ""), f"`{entry['id']}`"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


LOOK_UP = """\
# The ledger

Reference. Every statement of the papers, its verdict, and the check that the verdict rests on. [claims.md](claims.md)
explains the verdicts and says how far to trust them. [ledger.html](ledger.html) is the same table, with filters by
paper, verdict and text.

A cell of *mutants* counts changes of the check's code. It says how many were noticed, of those that a number could
show. *Apart* are changes that no number can show: a bound stays a bound, a refuted statement becomes another wrong
one, or the check does not use the line.

Made by `python benchmarks/claims.py`; one row again: `pytest tests/test_claims.py -k cheng-Prop-3.1`.
"""


def index(rows: list[Row]) -> list[str]:
    lines = ["## By verdict", ""]
    for verdict in VERDICTS:
        for name in PAPERS.values():
            own = [r for r in rows if r["verdict"] == verdict and r["paper"] == name]
            links = ", ".join(f"[{r['number']}](#{r['id']})".replace("|", "\\|") for r in own)
            lines += [f"- **{verdict}**, {NAMES[name]}: {links}"] if own else []
    return [*lines, ""]


def ledger_page(rows: list[Row], sources: list[Paper]) -> str:
    lines = [LOOK_UP, *index(rows)]
    for paper in sources:
        ids = {claim.id for claim in paper.claims}
        own = [entry for entry in rows if entry["id"] in ids]
        lines += [f"## {paper.reference}", "", f"{len(own)} rows: {count(own)}.", "", *table(own), ""]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------- docs/ledger.html: to search

HTML = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>innergrad: the ledger</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem; color: #222; }}
form {{ position: sticky; top: 0; background: #fff; padding: .6rem 0; display: flex; gap: .6rem; flex-wrap: wrap; }}
input, select {{ font: inherit; padding: .25rem .4rem; max-width: 100%; }}
input {{ flex: 1; min-width: 12rem; }}
table {{ border-collapse: collapse; width: 100%; }}
.scroll {{ overflow-x: auto; }} /* narrow screens scroll the table, and not the page */
td, th {{ text-align: left; vertical-align: top; padding: .35rem .5rem; border-bottom: 1px solid #ddd; }}
td:nth-child(6), td:nth-child(7) {{ font-size: .85em; color: #555; }}
tr:target {{ background: cornsilk; }}
</style></head><body>
<h1>The ledger</h1>
<p>Every statement of the papers, its verdict, and the check it rests on. <a href="claims.md">What this is.</a></p>
<form onsubmit="return false">
<input id="text" placeholder="number or words, e.g. Lemma 6" aria-label="search">
<select id="paper" aria-label="paper"><option value="">all papers</option>{papers}</select>
<select id="verdict" aria-label="verdict"><option value="">all verdicts</option>{verdicts}</select>
<output id="shown"></output>
</form>
<div class="scroll"><table><thead>
<tr><th>paper</th><th>number</th><th>says</th><th>verdict</th><th>instead</th><th>measured, limit</th>
<th>test, mutants</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
<script>
const rows = [...document.querySelectorAll("tbody tr")];
const get = id => document.getElementById(id);
function filter() {{
  const words = get("text").value.toLowerCase().split(/\\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {{
    const text = row.textContent.toLowerCase();
    const fits = words.every(word => text.includes(word))
      && (!get("paper").value || row.dataset.paper === get("paper").value)
      && (!get("verdict").value || row.dataset.verdict === get("verdict").value);
    row.hidden = !fits;
    shown += fits;
  }}
  get("shown").value = shown + " of " + rows.length;
}}
for (const id of ["text", "paper", "verdict"]) get(id).addEventListener("input", filter);
filter();
</script></body></html>
"""


def option(value: str, text: str) -> str:
    return f'<option value="{html.escape(value)}">{html.escape(text.replace("*", ""))}</option>'


def search_page(rows: list[Row]) -> str:
    caught, lines = mutated(), []
    for r in rows:
        last = f"{r['id']}" + (f" ({caught[r['id']]})" if r["id"] in caught else "")
        name = NAMES[r["paper"]].replace("*", "")
        cells = [name, r["number"], r["says"], r["verdict"], r["instead"], numbers(r), last]
        data = f'id="{r["id"]}" data-paper="{r["paper"]}" data-verdict="{r["verdict"]}"'
        lines.append(f"<tr {data}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    papers = "".join(option(name, NAMES[name]) for name in PAPERS.values())
    verdicts = "".join(option(v, v) for v in VERDICTS)
    return HTML.format(papers=papers, verdicts=verdicts, rows="\n".join(lines))


def pages(rows: list[Row], sources: list[Paper]) -> dict[Path, str]:
    return {
        PAGE: ledger_page(rows, sources),
        SEARCH_PAGE: search_page(rows),
        SUMMARY_PAGE: summary_page(rows),
        CORRECTIONS_PAGE: corrections_page(rows),
    }
