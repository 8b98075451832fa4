"""results/claims.json and docs/ledger.md: rows are accepted, and name a test. ``claims.py --check`` has more."""

from __future__ import annotations

import re

import claims as bench
from _results import read
from checks._require import equal, require


def every_stored_verdict_is_accepted() -> None:
    for row in read("claims")["claims"]:
        found, wanted = (row["measured"], row["printed_error"]), f"at most {row['limit']}, at least {row['threshold']}"
        require(bench.accepted(row), f"results/claims.json, {row['id']}, (measured, printed_error)", found, wanted)


def rows_of_the_page_name_tests_that_exist() -> None:
    named = re.findall(r"\| `([^`]+)` \|$", bench.PAGE.read_text(), re.MULTILINE)
    equal("docs/ledger.md, names of rows", named, [claim.id for claim in bench.all_claims()])


CHECKS = (every_stored_verdict_is_accepted, rows_of_the_page_name_tests_that_exist)
