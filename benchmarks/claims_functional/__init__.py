"""Checks of *Transformers Implement Functional Gradient Descent to Learn Non-Linear Functions In Context*.

The layer under test is (2)-(4) of the paper, written out in :func:`attention` and :func:`transformer`; what it is
compared with is autograd in the reproducing kernel Hilbert space, scikit-learn, SciPy, or a finite group average.
"""

from __future__ import annotations

from importlib import import_module

from claims_functional.common import PAPER

__all__ = ["PAPER"]
SECTIONS = (
    "modules",
    "descent",
    "assumptions",
    "stationary",
    "proofs",
    "appendices_e_f",
    "appendices_g_to_i",
)
for section in SECTIONS:  # in this order, in which the rows are listed
    import_module(f"claims_functional.{section}")
