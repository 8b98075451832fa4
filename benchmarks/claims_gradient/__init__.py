"""Checks of the main text and Appendices A-E of *Transformers are Deep Optimizers*: gradient descent on N-layer
networks by ReLU attention.

What the layers of the construction do is read off a compiled transformer (``ig.compile(.., target="relu")``): its lanes
after each layer, its weights, its cost. What they should do comes from autograd, or from the network of Definition 1
written out in :func:`propagate`. Lanes here and symbols of the paper: dj is r'_i(j-1), sj is s_i(j), pj is p_i(j); the
lane omega, (n + 1)/n on examples and 0 on the query, has the part of the mask, so that sj is omega s_i(j).
"""

from __future__ import annotations

from importlib import import_module

from claims_gradient.common import PAPER

__all__ = ["PAPER"]
SECTIONS = (
    "problem",
    "network",
    "approximants",
    "forward",
    "derivatives",
    "loss",
    "products",
    "theorem_1",
    "trajectories",
    "appendices",
)
for section in SECTIONS:  # in this order, in which the rows are listed
    import_module(f"claims_gradient.{section}")
