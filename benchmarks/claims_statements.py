"""Which numbered statements do the papers have? The ledger must have a row for every one of them.

    python benchmarks/claims_statements.py --papers FOLDER      writes results/claims_statements.json

The folder holds the papers' text, one file ``000*.txt`` ... each. The text is not part of this repository: what is
stored is the label of every statement (paper, kind, number) and the digest of the file it was read from. ``claims.py
--check`` then says which labels no row covers, without the papers.

A label is a numbered statement (``Theorem 3 (...)`` at the beginning of a line) or a numbered equation (``\\tag{3}``,
or ``(3)`` at the end of a line). Papers number without gaps, and the text is read off printed pages: what is missing
between 1 and the largest number found is filled in. The summary has no numbers; its statements are counted.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _results import read, store

COMMAND = "python benchmarks/claims_statements.py --papers FOLDER"
PAPERS = {"000": "networks", "001": "optimizers", "002": "summary", "003": "cheng", "004": "akyurek"}  # file: name
SUMMARY = "002"

KINDS = {
    "Theorem": ("Theorem", "Thm."),
    "Lemma": ("Lemma",),
    "Proposition": ("Proposition", "Prop."),
    "Corollary": ("Corollary", "Cor."),
    "Definition": ("Definition", "Def."),
    "Assumption": ("Assumption",),
    "Remark": ("Remark",),
    "Problem": ("Problem",),
    "Example": ("Example",),
    "Question": ("Question",),
    "Mechanism": ("Mechanism",),
    "Key result": ("Key result",),
    "Trade-off": ("Trade-off",),
    "Limitation": ("Limitation",),
}
WORDS = {word: kind for kind, words in KINDS.items() for word in words}
NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)*"
EQUATION = rf"\(({NUMBER})\)"


class Label(NamedTuple):
    """Of a numbered statement; the kind of an equation is 'Equation'."""

    kind: str
    number: str

    def __str__(self) -> str:
        return f"({self.number})" if self.kind == "Equation" else f"{self.kind} {self.number}"


def order(label: Label) -> tuple[Any, ...]:
    """Theorem 2 before Theorem 10, (3.9) before (D.1)."""
    parts = label.number.split(".")
    return label.kind, [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


# ------------------------------------------------------------------------------------------------- labels of a row


def between(first: str, last: str) -> list[str]:
    """'3.1', '3.3' -> '3.1', '3.2', '3.3'."""
    (head, a), (other, b) = (re.fullmatch(r"(.*?)(\d+)", n).groups() for n in (first, last))  # type: ignore[union-attr]
    if head != other or int(a) >= int(b):
        raise ValueError(f"({first})-({last}) is no range of numbers")
    return [f"{head}{n}" for n in range(int(a), int(b) + 1)]


def covered(number: str) -> set[Label]:
    """What a row's number stands for: 'Lemma 1, 8, (3.6)', '(42)-(44)', 'Thm. 4.5, E.1', 'Theorem 1, norm'.

    A bare number has the kind of the one before it. Any other word ('norm', 'Sec. 3') says which part of a statement
    the row is about, and is no label.
    """
    found: set[Label] = set()
    kind = None
    words = "|".join(map(re.escape, sorted(WORDS, key=len, reverse=True)))
    for piece in number.split(", "):
        if several := re.fullmatch(rf"{EQUATION}-{EQUATION}", piece):
            found |= {Label("Equation", n) for n in between(*several.groups())}
        elif equation := re.fullmatch(EQUATION, piece):
            found.add(Label("Equation", equation[1]))
        elif statement := re.fullmatch(rf"({words}) ({NUMBER})(?: \(\w\))?", piece):
            kind = WORDS[statement[1]]
            found.add(Label(kind, statement[2]))
        elif kind and re.fullmatch(NUMBER, piece):
            found.add(Label(kind, piece))
        else:
            kind = None
    return found


# ------------------------------------------------------------------------------------------------ labels of a paper


def stated(text: str) -> set[Label]:
    """'Lemma 5 (Name).' at the beginning of a line, '**Lemma 5.**' anywhere; not 'Lemma 5 shows', which cites it."""
    kinds = "|".join(kind for kind in KINDS if kind.isalpha())
    ends = r"(?![\d.]*\d)(?=\.?\**\.?(?:\s*\$?\(|\s*$|\.|\s+\*|\*))"
    head = re.compile(rf"(?:^[#* ]*|\*\*)({kinds}) \**({NUMBER}){ends}", re.MULTILINE)
    return {Label(m[1], m[2]) for m in head.finditer(text)}


def equations(text: str) -> set[Label]:
    r"""'\tag{3.5}', or '(3.5)' at the end of a display: what is left of its line closes it."""
    tags = set(re.findall(rf"\\tag\{{({NUMBER})\}}", text))
    tags |= set(re.findall(rf"\\q?quad {EQUATION}\$+", text))
    tags |= {m[1] for line in text.splitlines() if "$" in line or "\\" in line if (m := at_end(line))}
    tags |= set(re.findall(rf"^{EQUATION}$", text, re.MULTILINE))
    return {Label("Equation", tag) for tag in tags}


def at_end(line: str) -> re.Match[str] | None:
    return re.search(rf"[\s$.,]{EQUATION}[\s$.]*$", line)


def filled(labels: Iterable[Label]) -> set[Label]:
    """With the numbers between 1 and the largest: of a kind, or of a kind in a section for 'D.7' and '3.5'."""
    found = set(labels)
    for label in tuple(found):
        head, last = re.fullmatch(r"(.*?)(\d+)", label.number).groups()  # type: ignore[union-attr]
        if not head or label.kind == "Equation":  # 'Proposition 3.4' counts together with 'Remark 3.2'
            found |= {Label(label.kind, f"{head}{n}") for n in range(1, int(last) + 1)}
    return found


def summary(text: str) -> set[Label]:
    """The claims of a summary: mechanisms have numbers, the items of three lists are counted."""
    found = {Label("Mechanism", n) for n in re.findall(r"^### Mechanism (\d+)", text, re.MULTILINE)}
    lists = {
        "Key result": r"^## Key Results\n",
        "Trade-off": r"^- \*\*Design tradeoffs:\*\*\n",
        "Limitation": r"^## Limitations\n",
    }
    for kind, heading in lists.items():
        after = re.split(heading, text, flags=re.MULTILINE)[1]
        items = re.match(r"(?: *- .*\n)+", after)
        count = len(items[0].splitlines()) if items else 0
        found |= {Label(kind, str(n)) for n in range(1, count + 1)}
    return found


def statements(paper: str, text: str) -> list[Label]:
    found = summary(text) if paper == SUMMARY else filled(stated(text)) | filled(equations(text))
    return sorted(found, key=order)


# -------------------------------------------------------------------------------------------------------- the check


def stored() -> dict[str, list[Label]]:
    """By the paper's name."""
    found: dict[str, list[Label]] = {name: [] for name in PAPERS.values()}
    for entry in read("claims_statements")["statements"]:
        found[entry["paper"]].append(Label(entry["kind"], entry["number"]))
    return found


def missing(rows: Sequence[tuple[str, str]], wanted: dict[str, list[Label]]) -> dict[str, list[Label]]:
    """Labels that no row covers, by paper; rows are (name of the paper, number)."""
    have = {(paper, label) for paper, number in rows for label in covered(number)}
    return {paper: [one for one in labels if (paper, one) not in have] for paper, labels in wanted.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=Path, required=True, help="folder of the papers' text, 000*.txt and so on")
    folder = parser.parse_args().papers
    entries, sources = [], []
    for key, name in PAPERS.items():
        (path,) = sorted(folder.glob(f"{key}*.txt")) or parser.error(f"no file {key}*.txt in {folder}")
        content = path.read_bytes()
        labels = statements(key, content.decode())
        sources.append({"paper": name, "sha256": hashlib.sha256(content).hexdigest(), "statements": len(labels)})
        entries += [{"paper": name, "kind": one.kind, "number": one.number} for one in labels]
    store("claims_statements", COMMAND, {"sources": sources, "statements": entries})


if __name__ == "__main__":
    main()
