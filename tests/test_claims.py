"""Every row of the ledger is measured again; what is not as stored, has no row, or cannot fail, is found."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

import pytest

import claims_mutants
from _results import read
from claims import (
    PAGE,
    Claim,
    Measured,
    accepted,
    all_claims,
    attained,
    derived,
    drift,
    papers,
    row,
    toothless,
    uncovered,
    unfounded,
    worst,
)
from claims_corrections import CORRECTIONS
from claims_pages import CORRECTIONS_PAGE, SEARCH_PAGE, SUMMARY_PAGE, VERDICTS, pages
from claims_statements import PAPERS, Label, covered, missing, statements, stored

CLAIMS = all_claims()


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.id for claim in CLAIMS])
def test_claim(claim: Claim) -> None:
    measured = claim.measure()
    limits = f"at most {claim.limit}, printed at least {claim.threshold}"
    assert claim.fits(measured), f"{measured}, not {limits}: {claim.says}"


# ---------------------------------------------------------------------------------------- every statement has a row


@pytest.mark.parametrize("paper", PAPERS.values())
def test_every_numbered_statement_has_a_row(paper: str) -> None:
    assert [line for line in uncovered(CLAIMS) if line.startswith(f"{paper}:")] == []


@pytest.mark.parametrize("paper", PAPERS.values())
def test_a_row_less_is_found(paper: str) -> None:
    """Without the rows of a paper all its statements are missing."""
    rows = [(PAPERS[claim.paper], claim.number) for claim in CLAIMS if PAPERS[claim.paper] != paper]
    assert missing(rows, stored())[paper] == stored()[paper] != []


EQUATION = "Equation"


@pytest.mark.parametrize(
    ("number", "labels"),
    [
        ("Lemma 1, 8, (3.6)", {("Lemma", "1"), ("Lemma", "8"), (EQUATION, "3.6")}),
        ("(F.18), (F.19)", {(EQUATION, "F.18"), (EQUATION, "F.19")}),
        ("(118)-(120)", {(EQUATION, "118"), (EQUATION, "119"), (EQUATION, "120")}),
        (
            "Def. 1, (3.1)-(3.3), Remark 1",
            {("Definition", "1"), (EQUATION, "3.1"), (EQUATION, "3.2"), (EQUATION, "3.3"), ("Remark", "1")},
        ),
        ("Thm. 4.5, E.1", {("Theorem", "4.5"), ("Theorem", "E.1")}),
        ("Prop. D.1 (A)", {("Proposition", "D.1")}),
        ("Theorem 1, norm", {("Theorem", "1")}),
        ("Lemma 6, (3.24)", {("Lemma", "6"), (EQUATION, "3.24")}),
        ("Theorem 1, layers, B.1", {("Theorem", "1")}),
        ("Sec. 3, (4)", {(EQUATION, "4")}),
        ("F.4, after (F.24)", set()),
        ("Def. 7, 1/n", {("Definition", "7")}),
        ("D.7, j = 1", set()),
        ("Key result 1", {("Key result", "1")}),
        ("Trade-off 1, Limitation 3", {("Trade-off", "1"), ("Limitation", "3")}),
        ("Trade-off of width and depth", set()),
    ],
)
def test_a_number_says_what_it_covers(number: str, labels: set[tuple[str, str]]) -> None:
    assert covered(number) == {Label(*label) for label in labels}


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no range"):
        covered("(12)-(9)")


TEXT = r"""
**Definition 2.** A thing. By Lemma 3 of others and Theorem 12.11 it is one.
Lemma 2 (Name). Let x be.
Lemma 9 shows that. Here is **Theorem E.1.** Let y be.
$$a = b \quad (3)$$
$$a = b \tag{D.2}$$
See (7), and f(4).
"""


def test_statements_are_read_off_a_text() -> None:
    """Stated, not cited; and what lies between 1 and the largest number."""
    wanted = {"Definition 1", "Definition 2", "Lemma 1", "Lemma 2", "Theorem E.1"}
    wanted |= {"(1)", "(2)", "(3)", "(D.1)", "(D.2)"}
    assert {str(label) for label in statements("001", TEXT)} == wanted


# --------------------------------------------------------------------------------------------- every check can fail


def test_every_check_has_mutants_that_are_caught() -> None:
    assert toothless(CLAIMS) == []


def same() -> float:
    """Compares something with itself."""
    value = 2.0 * 3.0 + 1.0
    return value - value


def itself() -> float:
    value = 2.0 * 3.0 + 1.0
    return abs(value - value)


def different() -> float:
    return abs(2.0 * 3.0 - 6.0)


@pytest.mark.parametrize(("check", "caught"), [(same, False), (itself, False), (different, True)])
def test_a_check_that_compares_something_with_itself_is_found(check: Any, caught: bool) -> None:
    claim = Claim("003", "(0)", "", "holds", "", limit=1e-12, threshold=None, check=check)
    found = claims_mutants.tried(claim, 10, show=False)
    assert sum(found[end] for end in claims_mutants.ENDS) > 3
    assert bool(found["caught"]) == caught
    assert bool(claims_mutants.weak([found])) != caught


def bounded() -> float:
    """A quantity over its bound, which is three times as large."""
    quantity, length = 2.0, 3.0
    return quantity * length / (9.0 + length * length)


def refuted() -> tuple[float, float]:
    return abs(2.0 * 3.0 - 6.0), abs(2.0 * 3.0 - 50.0 / 2.0)


def ends(check: Any, limit: float, threshold: float | None = None) -> dict[str, int]:
    verdict = "holds" if threshold is None else "corrected"
    claim = Claim("003", "(0)", "", verdict, "" if threshold is None else "so", limit, threshold, check)
    return claims_mutants.tried(claim, 10, show=False)


def test_changes_after_which_a_bound_is_one_still_are_counted_apart() -> None:
    found = ends(bounded, limit=1.0)
    assert found["looser"] > 0
    assert found["survived"] > 0  # 2/9 is not near 1: the case is not one in which the bound is attained


def test_changes_of_a_refuted_statement_are_counted_apart() -> None:
    found = ends(refuted, limit=1e-12, threshold=5.0)
    assert found["refuted"] > 0
    assert found["survived"] == 0 < found["caught"]


@pytest.mark.parametrize(
    ("before", "after", "own", "end"),
    [
        (Measured(0.5, None), None, True, "raised"),
        (Measured(0.5, None), Measured(1.5, None), True, "caught"),
        (Measured(0.5, None), Measured(float("nan"), None), True, "caught"),
        (Measured(0.5, None), Measured(0.25, None), True, "looser"),
        (Measured(0.5, None), Measured(0.9, None), True, "survived"),
        (Measured(0.5, None), Measured(0.5, None), True, "survived"),
        (Measured(0.5, None), Measured(0.5, None), False, "idle"),
        (Measured(0.0, None), Measured(0.0, None), False, "survived"),  # both sides may have changed
    ],
)
def test_how_mutants_end(before: Measured, after: Measured | None, own: bool, end: str) -> None:
    claim = Claim("003", "(0)", "", "holds", "", limit=1.0, threshold=None, check=bounded)
    assert claims_mutants.ended(claim, before, after, own) == end


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("x = 3", 0),
        ("x = 0.5 * normal(3, 4)", 0),
        ("w = w + 0.1 * normal(3, 4)", 0),
        ("sizes = (3, 4, d)", 0),
        ("x = 3 * y", 3),  # the operator, the second factor, the number
        ("x = f(y, y)", 0),
        ("x = f(y, z)", 1),
        ("x = f(y, 250)", 1),  # a seed
        ("x = y / 1.0", 1),
    ],
)
def test_what_a_statement_is_tried_on_is_not_changed(code: str, changes: int) -> None:
    change = claims_mutants.Change()
    change.visit(ast.parse(code))
    assert change.seen == changes


def test_rows_that_notice_little_need_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"id": "cheng-eq-0", "caught": 1, "survived": 7}
    assert claims_mutants.weak([entry]) == ["cheng-eq-0"]
    monkeypatch.setitem(claims_mutants.EXCUSES, "cheng-eq-0", "a reason")
    assert claims_mutants.weak([entry]) == []
    assert claims_mutants.idle_excuses([entry]) == [name for name in claims_mutants.EXCUSES if name != "cheng-eq-0"]
    assert "cheng-eq-0" in claims_mutants.idle_excuses([entry | {"caught": 7}])


def test_checks_of_a_section_are_changed_in_what_they_share() -> None:
    (claim,) = (one for one in CLAIMS if one.id == "optimizers-Lemma-1-8-3.6")
    functions = {mutant.function for mutant in claims_mutants.mutants(claim)}
    assert {"lemma_1", "kronecker_gradient", "propagate"} <= functions
    assert not functions & {"matrices", "sample", "compiled"}


def test_a_bound_that_is_not_attained_is_noticed() -> None:
    assert attained([0.2, 1.0]) == 1.0
    assert attained([0.2, 0.9], 0.8) == 0.9
    assert attained([0.2, 0.5], 0.8) == float("inf")
    assert attained([0.2, float("nan")]) == float("inf")


def test_every_line_of_a_derivation_counts() -> None:
    assert derived([1.0], [1.5], [1.25]) == 0.5
    assert derived([1.0], [1.0], [3.0]) == 2.0


def test_limits_are_those_of_the_number_not_of_its_two_digits() -> None:
    claim = Claim("003", "(0)", "", "holds", "", limit=1.0, threshold=None, check=lambda: 1.04)
    assert row(claim, claim.measure())["measured"] == 1.0
    assert not claim.fits(claim.measure())


def test_mutants_that_raise_or_do_not_end_are_counted_apart() -> None:
    claim = Claim("003", "(0)", "", "holds", "", limit=1e-12, threshold=None, check=same)

    def raises() -> float:
        raise RuntimeError

    def endless() -> float:
        while True:
            pass

    assert claims_mutants.outcome(claim, raises, 1.0) is None
    assert claims_mutants.outcome(claim, endless, 0.2) is None
    assert claims_mutants.outcome(claim, lambda: 0.5, 1.0) == Measured(0.5, None)


def test_a_check_that_changed_since_it_was_mutated_is_found() -> None:
    claim = Claim("003", "(0)", "", "holds", "", limit=1e-12, threshold=None, check=same)
    known = [{"id": claim.id, "digest": claims_mutants.digest(claim)}]
    assert claims_mutants.stale([claim], known) == []
    other = Claim("003", "(0)", "", "holds", "", limit=1e-12, threshold=None, check=different)
    assert claims_mutants.stale([other], known) == [claim.id]


# ------------------------------------------------------------------------------------------------------------- pages


def test_corrections_are_twenty_rows_that_are_wrong_as_printed() -> None:
    rows = {entry["id"]: entry for entry in read("claims")["claims"]}
    assert len({one.row for one in CORRECTIONS}) == len(CORRECTIONS) == 20
    for one in CORRECTIONS:
        assert rows[one.row]["verdict"] in ("corrected", "partly"), one.row
        assert "{printed}" in one.example, one.row


def test_numbers_of_the_corrections_are_those_of_their_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unfounded(CLAIMS) == []
    first = CORRECTIONS[0]
    for wrong in (
        replace(first, settings=()),
        replace(first, example=first.example.replace("η = 10", "η = 20")),
        replace(first, settings=(*first.settings, ("six steps", "saddle_path(eta, 7, eps)"))),
    ):
        monkeypatch.setattr("claims_corrections.CORRECTIONS", (wrong,))
        assert unfounded(CLAIMS) != []


def test_links_of_the_pages_have_a_place() -> None:
    ledger = PAGE.read_text()
    places = set(re.findall(r'<a id="([^"]+)">', ledger))
    others = SUMMARY_PAGE.read_text() + CORRECTIONS_PAGE.read_text()
    links = set(re.findall(r"\(#([^)]+)\)", ledger)) | set(re.findall(r"ledger\.md#([^)]+)\)", others))
    assert links <= places
    assert places == {claim.id for claim in CLAIMS}
    assert set(re.findall(r'<tr id="([^"]+)"', SEARCH_PAGE.read_text())) == places


def test_pages_need_nothing_from_elsewhere_and_name_papers_by_title_or_author() -> None:
    assert not re.search(r"(src|href)=\"https?:", SEARCH_PAGE.read_text())
    for text in pages(read("claims")["claims"], papers()).values():
        assert not re.search(r"(?<![\d,.])00[0-4]\b", text)


def test_every_verdict_is_explained() -> None:
    assert {claim.verdict for claim in CLAIMS} <= set(VERDICTS)


def test_the_worst_error_may_be_no_number() -> None:
    assert worst([1.0, 3.0, 2.0]) == 3.0
    assert worst([1.0, float("nan")]) != worst([1.0, float("nan")])


def test_ids_are_unique() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


def test_drift_is_found() -> None:
    stored = read("claims")["claims"]
    changed = [entry | {"limit": 2 * entry["limit"] + 1} if entry is stored[3] else entry for entry in stored]
    assert any(stored[3]["id"] in line for line in drift(changed, papers()))
    assert any("docs" in line for line in drift(changed, papers()))


def test_a_wrong_verdict_is_not_accepted() -> None:
    """A check outside its limit, and a printed statement that turns out right."""
    claim = Claim("003", "(0)", "", "corrected", "so", limit=1e-3, threshold=0.1, check=lambda: (1e-2, 1.0))
    assert not accepted(row(claim, claim.measure()))
    claim = Claim("003", "(0)", "", "corrected", "so", limit=1e-3, threshold=0.1, check=lambda: (1e-4, 1e-2))
    assert not accepted(row(claim, claim.measure()))
    with pytest.raises(ValueError, match="threshold"):
        Claim("003", "(0)", "", "corrected", "", limit=1e-3, threshold=None, check=lambda: 0.0)
