"""Checks of *Transformers Perform In-Context Learning through Neural Networks*, the version under review.

The layers under test are Definitions 1 and 2 of the paper, :func:`attention` and :func:`mlp`; Q, K and V of the proof
of Theorem 2 are written out as printed and as corrected. What they should do is computed by autograd, by loops, by
SciPy or by counting.
"""

from __future__ import annotations

from importlib import import_module

from claims_general.common import PAPER

__all__ = ["PAPER"]
SECTIONS = (
    "definitions",
    "assumptions",
    "theorem_2",
    "resources",
    "lemma_5",
)
for section in SECTIONS:  # in this order, in which the rows are listed
    import_module(f"claims_general.{section}")
