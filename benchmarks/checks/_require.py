"""What a check of stored results says when it fails: the file, the entry, the number found and what was wanted."""

from __future__ import annotations

import math


class Wrong(Exception):
    """A stored number is not what is said of it."""


def require(holds: object, where: str, found: object, wanted: str) -> None:
    """``where`` names the file and the entry. A comparison with NaN is false, so that NaN fails."""
    if not bool(holds):
        raise Wrong(f"{where}: found {found}, wanted {wanted}")


def equal(where: str, found: object, wanted: object) -> None:
    require(found == wanted, where, found, str(wanted))


def near(where: str, found: float, wanted: float, rel: float = 0.0, abs: float = 0.0) -> None:
    """Within ``rel`` of ``wanted``, or within ``abs``."""
    close = math.isclose(found, wanted, rel_tol=0.0, abs_tol=max(rel * math.fabs(wanted), abs))
    require(close, where, found, f"{wanted} up to {max(rel * math.fabs(wanted), abs):.2g}")
