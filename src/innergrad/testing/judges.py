"""How far two computations of the same numbers may be apart."""

from __future__ import annotations

from torch import Tensor

from innergrad.transformer import CompiledTransformer

#: The stated accuracy where approximants are fitted: products and divisions by smooth units are not exact.
FITTED = 1e-6
#: A ramp of width delta multiplies rounding by 1/delta.
RAMP = 2.0**13


def ramps(tf: CompiledTransformer) -> bool:
    return any(f.ramps for f in tf.approximants.values())


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry (or to 1, if that is larger)."""
    return float((found - expected).abs().max()) / max(1.0, float(expected.abs().max())) if found.numel() else 0.0


def rounding(tf: CompiledTransformer, tolerance: float, fitted: float = FITTED) -> float:
    """``tolerance`` where the weights are exact, ``fitted`` at least where they are fitted; more with ramps."""
    return (tolerance if tf.proven else max(tolerance, fitted)) * (RAMP if ramps(tf) else 1.0)
