"""Every row of docs/claims.md is measured again, and a row or a page that is not as stored is found."""

from __future__ import annotations

import re

import pytest

from _results import read
from claims import Claim, accepted, all_claims, drift, papers, row

CLAIMS = all_claims()

# propositions, theorems, lemmas, numbered remarks and examples of the papers, and numbered equations that are wrong
GENERAL = """
    Def. 1; Def. 2; Def. 3; Def. 4; Assumption 1; Assumption 2; Theorem 1; Remark 1; Theorem 2; Remark 2; Lemma 1;
    Lemma 2; Theorem 3; Lemma 3; Lemma 4; Theorem 4; Lemma 5; (1), (2); (3); Sec. 3, (4); Trade-off of width and depth
"""
GRADIENT = """
    Abstract, ReLU; (2.1), D; (2.1), prediction; (2.2); (2.3), (3.5); (2.3), start; (3.5), start; Problem 1, W;
    Def. 1, (3.1)-(3.3), Remark 1; (3.1), output; (3.4); Remark 2; Def. 2; Lemma 1, 8, (3.6); Lemma 1, sketch;
    Def. 3, (3.7); (3.8); Def. 4; Lemma 7, smoothness; Lemma 7, terms; Lemma 2, 9, (3.9); Lemma 2, L_r;
    Lemma 2, R_1; Lemma 2, B_r^j; Lemma 2, norm; (3.10), (3.11); (3.12), order; (D.5)-(D.8); Lemma 3, 10, (3.13);
    Lemma 3, R_2; Lemma 3, dimension; Lemma 3, norm; (D.9)-(D.12); Lemma 4, 11, (3.15); Lemma 4, R_3;
    Theorem 1, R_3; (D.10), (D.13); Lemma 4, norm; (D.14); (D.13), losses; Def. 5, 6, (3.17); Before Def. 5;
    Remark 3; Lemma 5, 12, (3.19), (D.15); Lemma 5, norm; D.5, output; (3.20); (3.21); Lemma 6, 13, (3.22), (3.23);
    Lemma 6, (3.24); Theorem 1, 4; Theorem 1, layers, B.1; Theorem 1, order; Theorem 1, heads;
    Theorem 1, width, B.3; Theorem 1, norm; Theorem 1, C_w; Theorem 1, Proj; D.7, last MLP; (D.16); D.7, layer 2N+3;
    D.7, norm; D.7, sum over k; D.7, j = 1; D.7, choice of eps; Theorem 2; Theorem 3; Cor. 1.1, 4.1; Cor. 1.1, L_f;
    Cor. 1.1, w_GD; Lemma 14, step size; Lemma 14, sum; B.3, FLOPs; B.3, ICL costs more; Def. 7; Def. 7, 1/n;
    Def. 8; Def. 9; (C.1); (D.1); (D.2), (D.3); (D.4); Def. 10; Lemma 15; Theorem 5
"""
SOFTMAX = """
    Def. 11; Def. 12; Def. 13; Lemma 16, 18; Lemma 17; Theorem 6; (F.1); (F.2); (F.3); (F.4); (F.5); (F.6);
    (F.7), (F.8); (F.9); (F.10); (F.11); (F.12); (F.13); (F.14); (F.15); (F.16); (F.17); (F.18), (F.19);
    (F.20), (F.21); (F.22), (F.23); (F.24)
"""
FUNCTIONAL = """
    Prop. 3.1; Remark 3.2; Definition 3.3; Prop. 3.4; Assumption 4.1; Assumption 4.3; Thm. 4.5, E.1; Thm. 4.6, F.1;
    Lemma A.1; Prop. D.1 (A); Prop. D.1 (B); Remark E.2; Prop. E.3; Remark F.2; Prop. F.3; Prop. F.4; Lemma F.5;
    Thm. G.1; Thm. G.2; Lemma G.3; App. I.2; Example 1; Example 2; Example 3; Example 4; Example 5; Example 6;
    Example 7; Example 8, App. I.1; (7); (9), (21); (10); (13); (17); (22); (24); (25); (29); (31); (40); (43); (48);
    (58), (72); (68), (82)
"""
PRIMITIVES = """
    Lemma 1; Theorem 1; Theorem 2; Lemma 2, dot; Lemma 2, aff; Lemma 2, mov; Lemma 3; Lemma 4, (36); Lemma 5, (41);
    Lemma 6, (45); Lemma 7, (129); (5); (10); (11); (12); (18); (33); (35); (37); (38); (39), (40); (42)-(44); (47);
    (54), (57); (69); (92), (128); (101); (103); (107); (114), (115); (118)-(120); (124); (131); App. A, sign
"""


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.id for claim in CLAIMS])
def test_claim(claim: Claim) -> None:
    measured = claim.measure()
    if claim.limit is None:
        assert claim.verdict == "not testable"
        return
    assert measured.error is not None
    assert measured.error <= claim.limit, claim.says
    if claim.threshold is not None:
        assert measured.printed is not None
        assert measured.printed >= claim.threshold, f"as printed it is not wrong: {claim.says}"


@pytest.mark.parametrize(
    ("paper", "listed"),
    [("000", GENERAL), ("001", GRADIENT), ("001", SOFTMAX), ("003", FUNCTIONAL), ("004", PRIMITIVES)],
)
def test_every_numbered_statement_has_a_row(paper: str, listed: str) -> None:
    numbers = {claim.number for claim in CLAIMS if claim.paper == paper}
    assert {number.strip() for number in re.split(r";", " ".join(listed.split()))} <= numbers


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
