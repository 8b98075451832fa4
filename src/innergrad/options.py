"""How an algorithm is compiled, and so what prompts the transformer takes. Saved with the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Target architecture and variant, accuracy and domain; see :func:`innergrad.compile`."""

    target: str = "relu"
    variant: str = "literal"
    epsilon: float = 1e-3
    n_examples: int = 16
    x_bound: float | None = None
    y_bound: float | None = None
    z_bound: float | None = None
    sigma: str | None = None
