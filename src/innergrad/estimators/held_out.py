"""Rows that are held out: a setting is chosen, and an error is measured, on rows that were not learned from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def parts(rows: int, count: int, seed: int) -> np.ndarray:
    """(rows,): the part that every row is in, 0 to count - 1.

    Rows come sorted by their label (:mod:`innergrad.estimators.order`). Of every ``count`` rows in a row each is in
    another part. So the parts have like labels.
    """
    count = min(count, rows)
    rng = np.random.default_rng(seed)
    blocks = -(-rows // count)
    return np.concatenate([rng.permutation(count) for _ in range(blocks)])[:rows]


def some(rows: int, most: int, seed: int) -> np.ndarray:
    """At most so many of the rows, in their order: one at random from each stretch of them."""
    if rows <= most:
        return np.arange(rows)
    edges = np.linspace(0, rows, most + 1).astype(int)
    return np.random.default_rng(seed).integers(edges[:-1], edges[1:])


def residual_quantiles(residuals: np.ndarray, q: Sequence[float]) -> np.ndarray:
    """(len(q),): quantiles of held-out residuals, as split conformal prediction takes them.

    Levels above one half are rounded up to the next of the n + 1 places between n residuals, levels below it down. An
    interval from them covers a new exchangeable residual with at least its nominal probability, where n is large enough
    for it to have an end.
    """
    ordered, n = np.sort(residuals), len(residuals)
    places = [np.ceil(level * (n + 1)) if level > 0.5 else np.floor(level * (n + 1)) for level in q]
    found = [np.median(residuals) if level == 0.5 else ordered[int(min(max(place, 1), n)) - 1]
             for level, place in zip(q, places, strict=True)]  # fmt: skip
    return np.array(found, dtype=np.float64)
