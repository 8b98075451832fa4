"""Checks of *What Learning Algorithm Is In-Context Learning? Investigations with Linear Models*.

The layer under test is (1)-(7) of the paper, :class:`Layer`: causal softmax heads with the "imaginary" timestep of
score 0, GeLU and LayerNorm from torch. The matrices of the RAW operator are written from the paper's index equations in
:func:`raw`; each equation that is wrong can be put back as printed, alone or with the others. What a layer should do is
computed by loops over columns in :func:`raw_definition`, by numpy, SciPy or autograd. The chains of Theorems 1 and 2
are those of ``innergrad.algorithms.raw``: its operations become the matrices of the paper here, and those of a compiled
transformer there.
"""

from __future__ import annotations

from importlib import import_module

from claims_primitives.common import PAPER

__all__ = ["PAPER"]
SECTIONS = (
    "formulas",
    "chains",
    "raw_layers",
    "nonlinearities",
    "equations",
)
for section in SECTIONS:  # in this order, in which the rows are listed
    import_module(f"claims_primitives.{section}")
