"""Which statements of five papers hold? One small numerical check per numbered statement, and a ledger of verdicts.

    python benchmarks/claims.py            runs all, writes results/claims.json and the pages (half a minute)
    python benchmarks/claims.py --check    exit 1 if pages or rows differ from results/claims.json, if a numbered
                                           statement has no row, or if a check cannot fail

A check returns the error of the true statement, which must be at most ``limit``. Where the paper is wrong it returns
two numbers: that error for the corrected statement, and how far off the printed one is, which must be at least
``threshold``. The checks are in ``claims_general``, ``claims_gradient``, ``claims_softmax``, ``claims_experiments``,
``claims_summary``, ``claims_functional`` and ``claims_primitives``, by section of the paper where there are many; the
statements that must have a row in ``claims_statements.py``, the mutants of the checks in ``claims_mutants.py``, the
pages in ``claims_pages.py``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from _results import read, store
from claims_statements import PAPERS, missing, stored

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "ledger.md"
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
        """'Prop. 3.1' of Cheng et al. -> 'cheng-Prop-3.1'; '(118)-(120)' -> 'akyurek-eq-118-120'."""
        number = re.sub(r"^\(", "eq (", self.number)
        return "-".join([PAPERS[self.paper], *re.findall(r"[A-Za-z0-9]+(?:\.[0-9]+)*", number)])

    def measure(self) -> Measured:
        if self.check is None:
            return Measured(None, None)
        result = self.check()
        measured = Measured(*result) if isinstance(result, tuple) else Measured(result, None)
        if (measured.printed is None) != (self.threshold is None):
            raise ValueError(f"{self.id}: one number for a true statement, two for a wrong one")
        return measured

    def fits(self, measured: Measured) -> bool:
        """Whether the numbers are within the limits: these numbers, not the two digits that are stored."""
        if self.limit is None or measured.error is None:
            return self.verdict == "not testable"
        right = measured.error <= self.limit
        return right and (self.threshold is None or (measured.printed or 0.0) >= self.threshold)

    def metadata(self) -> dict[str, Any]:
        names = ("number", "says", "verdict", "instead", "limit", "threshold")
        return {"id": self.id, "paper": PAPERS[self.paper]} | {name: getattr(self, name) for name in names}


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
    import claims_summary

    modules = (
        claims_general,
        claims_gradient,
        claims_softmax,
        claims_experiments,
        claims_summary,
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


def worst(errors: Iterable[float]) -> float:
    """The largest; not a number if one of them is none (Python's max may leave that out)."""
    return float(torch.tensor([float(e) for e in errors], dtype=torch.float64).max())


def attained(ratios: Iterable[float], least: float = 1 - 1e-9) -> float:
    """The largest ratio of a quantity to its bound; infinite if less than ``least``.

    A check that only asks for a ratio of 1 or less passes for any larger bound. Here the case is one in which the bound
    is attained or, with a smaller ``least``, as nearly as that: a bound too large, or a quantity too small, is noticed.
    """
    largest = worst(ratios)
    return largest if largest >= least else math.inf


def derived(*lines: Any) -> float:
    """Of a derivation: the largest difference of a line and the next."""
    return worst(gap(a, b) for a, b in itertools.pairwise(lines))


# ------------------------------------------------------------------------------------------------- rows and checks


def row(claim: Claim, measured: Measured) -> dict[str, Any]:
    numbers = {"measured": measured.error, "printed_error": measured.printed}
    return claim.metadata() | {k: None if v is None else float(f"{v:.1e}") for k, v in numbers.items()}


def accepted(row: dict[str, Any]) -> bool:
    """Of a stored row, to two digits; :meth:`Claim.fits` is exact."""
    if row["limit"] is None:
        return bool(row["verdict"] == "not testable")
    right = bool(row["measured"] <= row["limit"])
    return right and (row["threshold"] is None or bool(row["printed_error"] >= row["threshold"]))


def drift(rows: list[dict[str, Any]], sources: list[Paper]) -> list[str]:
    """What is not as results/claims.json says."""
    from claims_pages import pages

    registered = [claim.metadata() for paper in sources for claim in paper.claims]
    known = [{key: entry[key] for key in registered[0]} for entry in rows]
    found = [f"{a['id']}: the row differs from results/claims.json" for a in registered if a not in known]
    found += [f"{b['id']}: is in results/claims.json but not in benchmarks/" for b in known if b not in registered]
    for path, text in pages(rows, sources).items():
        if not path.exists() or path.read_text() != text:
            found.append(f"{path.relative_to(ROOT)} is not what results/claims.json says")
    return found


def uncovered(claims: list[Claim]) -> list[str]:
    """Numbered statements of the papers that no row is about."""
    rows = [(PAPERS[claim.paper], claim.number) for claim in claims]
    return [f"{paper}: {label} has no row" for paper, labels in missing(rows, stored()).items() for label in labels]


def toothless(claims: list[Claim]) -> list[str]:
    """Rows whose check was never seen to fail, or was changed since."""
    from claims_mutants import COMMAND, idle_excuses, stale, weak

    rows = read("claims_mutants")["rows"]
    found = [f"{name}: its check notices too few changes of its code (claims_mutants.py)" for name in weak(rows)]
    found += [f"{name}: an excuse in claims_mutants.py that it does not need" for name in idle_excuses(rows)]
    old = [f"{name}: its check is not the one in results/claims_mutants.json" for name in stale(claims, rows)]
    return found + old + ([f"run `{COMMAND.removesuffix(' --all')}`"] if old else [])


def unfounded(claims: list[Claim]) -> list[str]:
    """Numbers of the counter-examples of docs/claims.md that are not in the check they speak of."""
    from claims_corrections import CORRECTIONS
    from claims_mutants import code

    known, found = {claim.id: claim for claim in claims}, []
    for one in CORRECTIONS:
        text, rest = code(known[one.row]), re.sub(r"{(printed|measured)}", "", one.example)
        for words, line in one.settings:
            if words not in one.example or line not in text:
                found.append(
                    f"claims_corrections.py, {one.row}: {words!r} is not in the text, or {line!r} in the check"
                )
            rest = rest.replace(words, "")
        found += [f"claims_corrections.py, {one.row}: {n} has no code" for n in re.findall(r"\d[\d.,]*", rest)]
    return found


def run(sources: list[Paper]) -> tuple[list[dict[str, Any]], list[str]]:
    """All rows, and the names of those outside their limits."""
    from claims_pages import numbers

    rows, outside = list[dict[str, Any]](), list[str]()
    for paper in sources:
        for claim in paper.claims:
            start = time.perf_counter()
            measured = claim.measure()
            rows.append(row(claim, measured))
            outside += [] if claim.fits(measured) else [claim.id]
            mark = "!" if claim.id in outside else " "
            seconds = time.perf_counter() - start
            print(f"{mark} {claim.id:<38}{claim.verdict:<13}{numbers(rows[-1]):<46}{seconds:5.2f} s", flush=True)
    return rows, outside


def main() -> None:
    from claims_pages import count, pages

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare pages and rows with what is stored")
    sources = papers()
    if parser.parse_args().check:
        claims = all_claims()
        changed = drift(read("claims")["claims"], sources)
        found = [
            *changed,
            *([f"run `{COMMAND}`"] if changed else []),
            *uncovered(claims),
            *toothless(claims),
            *unfounded(claims),
        ]
        sys.exit("\n".join(found) if found else 0)
    torch.set_num_threads(1)
    rows, outside = run(sources)
    print(count(rows))
    if outside:
        sys.exit("a row marked ! is outside its limit; nothing is written")
    store("claims", COMMAND, {"claims": rows})
    for path, text in pages(rows, sources).items():
        path.write_text(text)
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
