"""The pages of the ledger, from results/claims.json: docs/claims.md to read, docs/ledger.md and .html to look up."""

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
    "corrected": "as printed it is wrong; the row says what is right instead",
    "partly": "it holds in part, or under one of its readings; the row says which",
    "conjecture": "nobody has shown it; the row says what speaks for it",
    "cited": "a result of another paper: only what is cheap to see is checked",
    "definition": "checked for being consistent",
    "not testable": "no computation decides it; the row says why",
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


# ------------------------------------------------------------------------------------------- docs/claims.md: to read


def verdict_table(rows: list[Row]) -> list[str]:
    head = ["", *VERDICTS, "all"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    groups = [(NAMES[name], [r for r in rows if r["paper"] == name]) for name in PAPERS.values()]
    for name, own in [*groups, ("all", rows)]:
        verdicts = [r["verdict"] for r in own]
        cells = [name, *(str(verdicts.count(v)) for v in VERDICTS), str(len(own))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def correction(number: int, one: Correction, row: Row) -> list[str]:
    values = {"printed": plain(row["printed_error"]), "measured": plain(row["measured"])}
    text = " ".join(part.format(**values) for part in (one.says, one.right, one.example))
    source = f"({NAMES[row['paper']]}, {row['number']}; [row](ledger.md#{row['id']}))"
    lines = textwrap.wrap(f"{text} {source}", 118, break_long_words=False, break_on_hyphens=False)
    return [f"### {number}. {one.title}", "", *lines, ""]


READ = """\
# Which statements hold?

The papers that this library builds on, statement by statement. Every theorem, lemma, definition, assumption, remark,
example and numbered equation has a row in the *ledger*: what the paper says, what came out, and a small computation
that the verdict rests on. The ledger is [a table by paper](ledger.md), and [a page with filters](ledger.html) to open
in a browser. This page is what is worth knowing first: how the count stands, and twenty corrections that matter.
"""
METHOD = """\
## How far to trust it

A row is a numerical check, written against something else than the formula it tests (autograd, SciPy, scikit-learn,
finite groups, brute force, the layer of the paper itself, the lanes and weights of a compiled transformer). The error
of the true statement must be below a limit and, where the paper is wrong, the error of the *printed* statement above a
threshold. A number that agrees is no proof; a counter-example is one.

- *Nothing is left out.* The list of numbered statements is read off the papers (`benchmarks/claims_statements.py`); a
  statement without a row fails `make check`.
{changes}
- *Every row is a test*, run again by `make test`: `pytest tests/test_claims.py -k cheng-Prop-3.1`.
- *Readings.* Where a text can be read in two ways the row takes the one that favours the paper, and says so. The papers
  were read from text made of their pages: a slip may be the scan's. A second reading changed verdicts; CHANGELOG.md
  lists which.

Made by `python benchmarks/claims.py`; numbers are absolute errors unless the row says otherwise, in float64.
"""


CHANGES = """\
- *Every check can fail.* Its code is changed at random, a sign, a factor, a constant, two arguments, and the row must
notice (`benchmarks/claims_mutants.py`). {caught:,} of {decided:,} changes that a number could show were noticed, in
{checks} checks; every check noticed a third of its own or more, with {few} exceptions, or `make check` fails. Counted
apart: {looser:,} after which a bound is a bound still, {refuted:,} of a refuted statement, which is another wrong one
then, and {idle:,} of lines that the check does not use. What a statement is tried on (samples, sizes, rates) is left as
it is. The ledger has the share of every row. The exceptions:
"""


def changes() -> str:
    """What came of changing the checks, in a paragraph; and the rows that notice few changes, with the reason."""
    tests = read("claims_mutants")["rows"]
    ends = {end: sum(t[end] for t in tests) for end in ENDS}
    counts = {"decided": ends["caught"] + ends["survived"], "checks": len(tests), "few": len(EXCUSES)}
    text = CHANGES.replace("\n", " ").format(**ends, **counts)
    text += "; ".join(f"[{name}](ledger.md#{name}), for {why}" for name, why in EXCUSES.items()) + "."
    return textwrap.fill(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def summary_page(rows: list[Row]) -> str:
    known = {row["id"]: row for row in rows}
    lines = [READ, *verdict_table(rows), ""]
    lines += [f"- **{verdict}**: {meaning}." for verdict, meaning in VERDICTS.items()]
    lines += ["", "## Twenty corrections", ""]
    lines += ["In each: what the paper says, what is right, and a counter-example with its measured number.", ""]
    for number, one in enumerate(CORRECTIONS, 1):
        lines += correction(number, one, known[one.row])
    return "\n".join([*lines, METHOD.format(changes=changes())])


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

Every statement of the papers, its verdict, and the check it rests on. [claims.md](claims.md) says what the verdicts
mean, how far to trust them, and which corrections matter; [ledger.html](ledger.html) is the same table with filters by
paper, verdict and text. A cell of *mutants* is how many changes of the check's code were noticed, of those that a
number could show; *apart* are those after which a bound is a bound still, or a refuted statement another wrong one, and
those of a line that the check does not use.

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
input, select {{ font: inherit; padding: .25rem .4rem; }}
input {{ flex: 1; min-width: 12rem; }}
table {{ border-collapse: collapse; width: 100%; }}
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
<table><thead><tr><th>paper</th><th>number</th><th>says</th><th>verdict</th><th>instead</th><th>measured, limit</th>
<th>test, mutants</th></tr></thead>
<tbody>
{rows}
</tbody></table>
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
    return {PAGE: ledger_page(rows, sources), SEARCH_PAGE: search_page(rows), SUMMARY_PAGE: summary_page(rows)}
