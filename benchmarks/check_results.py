"""Are the stored results what README and docs/ say of them? Nothing is measured again: see tests and ``make bench``.

    python benchmarks/check_results.py      exit 1, and one line for each check that fails: file, entry, number, limit

Tables are compared with the results by ``tables.py --check``, ``claims.py --check`` and ``bridges.py --check``; here
are statements about numbers: that no certificate is violated, that a learner is as near to the best as a page says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from checks import (
    certificates,
    claims,
    diffusion,
    executor,
    lab,
    llama,
    papers,
    products,
    reliability,
    score_learner,
    training,
    variants,
)
from checks._require import Wrong

MODULES = (
    certificates,
    claims,
    diffusion,
    executor,
    lab,
    llama,
    papers,
    products,
    reliability,
    score_learner,
    training,
    variants,
)


def checks() -> dict[str, Callable[[], None]]:
    """By name, module.check."""
    return {f"{m.__name__.removeprefix('checks.')}.{check.__name__}": check for m in MODULES for check in m.CHECKS}


def failure(name: str) -> str | None:
    """The line of a check that fails. A file or an entry that is not there fails the checks that read it."""
    try:
        checks()[name]()
    except Wrong as wrong:
        return f"{name}: {wrong}"
    except Exception as error:
        return f"{name}: the stored result cannot be read ({type(error).__name__}: {error})"
    return None


def main() -> None:
    failed = [line for name in checks() if (line := failure(name))]
    if failed:
        sys.exit("\n".join([*failed, f"{len(failed)} of {len(checks())} checks of results/ failed"]))
    print(f"results/: {len(checks())} checks passed")


if __name__ == "__main__":
    main()
