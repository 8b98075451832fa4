"""Which statements of four papers hold? One small numerical check per numbered statement, and a table of verdicts.

    python benchmarks/claims.py            runs all, writes results/claims.json and docs/claims.md (half a minute)
    python benchmarks/claims.py --check    exit 1 if docs/claims.md or the rows here differ from results/claims.json

A check returns the error of the true statement, which must be at most ``limit``. Where the paper is wrong it returns
two numbers: that error for the corrected statement, and how far off the printed one is, which must be at least
``threshold``. The checks are in ``claims_general.py``, ``claims_gradient.py``, ``claims_softmax.py``,
``claims_functional.py`` and ``claims_primitives.py``.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from _results import read, store

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "claims.md"
COMMAND = "python benchmarks/claims.py"

Verdict = Literal["holds", "corrected", "partly", "conjecture", "cited", "definition", "not testable"]
Check = Callable[[], "float | tuple[float, float]"]


class Measured(NamedTuple):
    """Error of the true statement, and of the printed one where it is wrong; neither of what cannot be tested."""

    error: float | None
    printed: float | None


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, the verdict, and the check that the verdict rests on.

    instead: what is right, if it is corrected; what of it holds, if partly; what speaks for it, if it is a conjecture;
    why not, if it cannot be tested.
    """

    paper: str
    number: str
    says: str
    verdict: Verdict
    instead: str
    limit: float | None
    threshold: float | None
    check: Check | None

    def __post_init__(self) -> None:
        wrong, may_be = self.verdict == "corrected", self.verdict in ("partly", "conjecture")
        if (self.threshold is not None) != wrong and not may_be:
            raise ValueError(f"{self.id}: a threshold belongs to a wrong statement, and only there")
        if bool(self.instead) != (wrong or may_be or self.verdict == "not testable"):
            raise ValueError(f"{self.id}: what is right instead belongs to what does not simply hold, and only there")
        if (self.verdict == "not testable") != (self.check is None) or (self.check is None) != (self.limit is None):
            raise ValueError(f"{self.id}: a check and a limit belong to what can be tested, and only there")

    @property
    def id(self) -> str:
        """'003', 'Prop. 3.1' -> '003-Prop-3.1'; '(118)-(120)' -> '003-eq-118-120'."""
        number = re.sub(r"^\(", "eq (", self.number)
        return "-".join([self.paper, *re.findall(r"[A-Za-z0-9]+(?:\.[0-9]+)*", number)])

    def measure(self) -> Measured:
        if self.check is None:
            return Measured(None, None)
        result = self.check()
        measured = Measured(*result) if isinstance(result, tuple) else Measured(result, None)
        if (measured.printed is None) != (self.threshold is None):
            raise ValueError(f"{self.id}: one number for a true statement, two for a wrong one")
        return measured

    def metadata(self) -> dict[str, Any]:
        names = ("id", "paper", "number", "says", "verdict", "instead", "limit", "threshold")
        return {name: getattr(self, name) for name in names}


@dataclass
class Paper:
    """A paper, or a part of one, and its claims, in the order in which they are decorated."""

    key: str
    reference: str
    claims: list[Claim] = field(default_factory=list)

    def claim(
        self,
        number: str,
        says: str,
        verdict: Verdict = "holds",
        *,
        instead: str = "",
        limit: float,
        threshold: float | None = None,
    ) -> Callable[[Check], Check]:
        """Decorator: registers a check under the statement's number."""

        def register(check: Check) -> Check:
            self.claims.append(Claim(self.key, number, says, verdict, instead, limit, threshold, check))
            return check

        return register

    def untestable(self, number: str, says: str, why: str) -> None:
        """A statement that no computation can decide, and the reason."""
        self.claims.append(Claim(self.key, number, says, "not testable", why, None, None, None))


def papers() -> list[Paper]:
    import claims_experiments
    import claims_functional
    import claims_general
    import claims_gradient
    import claims_primitives
    import claims_softmax

    modules = (
        claims_general,
        claims_gradient,
        claims_softmax,
        claims_experiments,
        claims_functional,
        claims_primitives,
    )
    return [module.PAPER for module in modules]


def all_claims() -> list[Claim]:
    return [claim for paper in papers() for claim in paper.claims]


# ------------------------------------------------------------------------------------------------ for writing checks


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers in float64, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gap(a: Any, b: Any) -> float:
    """Largest absolute difference of two arrays."""
    a, b = (torch.as_tensor(v, dtype=torch.float64).detach() for v in (a, b))
    if a.shape != b.shape:
        raise ValueError(f"cannot compare {tuple(a.shape)} with {tuple(b.shape)}")
    return float((a - b).abs().max())


# ---------------------------------------------------------------------------------------------------- table and page


def row(claim: Claim, measured: Measured) -> dict[str, Any]:
    numbers = {"measured": measured.error, "printed_error": measured.printed}
    return claim.metadata() | {k: None if v is None else float(f"{v:.1e}") for k, v in numbers.items()}


def accepted(row: dict[str, Any]) -> bool:
    if row["limit"] is None:
        return bool(row["verdict"] == "not testable")
    right = bool(row["measured"] <= row["limit"])
    return right and (row["threshold"] is None or bool(row["printed_error"] >= row["threshold"]))


def numbers(row: dict[str, Any]) -> str:
    if row["limit"] is None:
        return "none"
    text = f"{row['measured']:.1e} ≤ {row['limit']:.0e}"
    if row["threshold"] is not None:
        text += f"; printed: {row['printed_error']:.1e} ≥ {row['threshold']:.0e}"
    return re.sub(r"(?<![\d.])0(\.0)?e\+00", "0", text)


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| number | says | verdict | instead | measured, limit | test |", "|---|---|---|---|---|---|"]
    for entry in rows:
        cells = [entry["number"], entry["says"], entry["verdict"], entry["instead"], numbers(entry), f"`{entry['id']}`"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def count(rows: list[dict[str, Any]]) -> str:
    verdicts = [entry["verdict"] for entry in rows]
    return ", ".join(f"{verdicts.count(v)} × {v}" for v in dict.fromkeys(verdicts))


INTRODUCTION = """\
# Which statements hold?

Four papers that this library builds on, statement by statement. A row says what the paper says and what came out: it
**holds**, or it is **corrected**, and then what is right instead and why; or it holds **partly**, and then what of it.
A **definition** is checked for being consistent, and of a **cited** result only what is cheap to see is checked. Of a
**conjecture** the page says what speaks for it and against it, and what is **not testable** has a reason. Every other
row is a numerical check, written
against something else than the formula it tests (autograd, SciPy, scikit-learn, finite groups, brute force, the layer
of the paper itself, the lanes and weights of a compiled transformer): the error of the true statement must be below the
limit and, where the paper is wrong, the error of the *printed* statement must be above a threshold. Errors are absolute
unless the check says otherwise, for a bound the ratio of its sides; float64; fixed seeds.

Made by `python benchmarks/claims.py` from `benchmarks/claims_general.py`, `benchmarks/claims_gradient.py`,
`benchmarks/claims_softmax.py`, `benchmarks/claims_functional.py` and `benchmarks/claims_primitives.py`; one row again:
`pytest tests/test_claims.py -k 003-Prop-3.1`.
"""


def page(rows: list[dict[str, Any]], sources: list[Paper]) -> str:
    lines = [INTRODUCTION]
    for paper in sources:
        ids = {claim.id for claim in paper.claims}
        own = [entry for entry in rows if entry["id"] in ids]
        lines += [f"## {paper.key}: {paper.reference}", "", f"{len(own)} rows: {count(own)}.", "", *table(own), ""]
    return "\n".join(lines)


def drift(rows: list[dict[str, Any]], sources: list[Paper]) -> list[str]:
    """What is not as results/claims.json says."""
    registered = [claim.metadata() for paper in sources for claim in paper.claims]
    stored = [{key: entry[key] for key in registered[0]} for entry in rows]
    found = [f"{a['id']}: the row differs from results/claims.json" for a in registered if a not in stored]
    found += [f"{b['id']}: is in results/claims.json but not in benchmarks/" for b in stored if b not in registered]
    if not PAGE.exists() or PAGE.read_text() != page(rows, sources):
        found.append(f"{PAGE.relative_to(ROOT)} is not what results/claims.json says")
    return found


def run(sources: list[Paper]) -> list[dict[str, Any]]:
    rows = []
    for paper in sources:
        for claim in paper.claims:
            start = time.perf_counter()
            rows.append(row(claim, claim.measure()))
            mark = " " if accepted(rows[-1]) else "!"
            seconds = time.perf_counter() - start
            print(f"{mark} {claim.id:<34}{claim.verdict:<11}{numbers(rows[-1]):<46}{seconds:5.2f} s", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare page and rows with results/claims.json")
    sources = papers()
    if parser.parse_args().check:
        found = drift(read("claims")["claims"], sources)
        sys.exit("\n".join([*found, f"run `{COMMAND}`"]) if found else 0)
    torch.set_num_threads(1)
    rows = run(sources)
    print(count(rows))
    if not all(map(accepted, rows)):
        sys.exit("a row marked ! is outside its limit; nothing is written")
    store("claims", COMMAND, {"claims": rows})
    PAGE.write_text(page(rows, sources))
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
