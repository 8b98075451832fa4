"""How far two computations of the same numbers may be apart."""

from __future__ import annotations

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.transformer import CompiledTransformer

#: The stated accuracy where approximants are fitted: products and divisions by smooth units are not exact.
FITTED = 1e-6
#: Of the matrices, times u / delta, where functions have ramps of width delta: arguments are of size 1 to 8.
RAMP = 64.0


def ramps(tf: CompiledTransformer) -> bool:
    return any(f.ramps for f in tf.approximants.values())


def too_steep(tf: CompiledTransformer, *, as_weights: bool) -> bool:
    """Whether float32 is refused because of steps."""
    try:
        tf.check_steps(torch.float32, as_weights=as_weights)
    except InputError:
        return True
    return False


def distance(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry (or to 1, if that is larger)."""
    return float((found - expected).abs().max()) / max(1.0, float(expected.abs().max())) if found.numel() else 0.0


def rounding(tf: CompiledTransformer, tolerance: float, fitted: float = FITTED) -> float:
    """``tolerance`` where the weights are exact, at least ``fitted`` where they are fits, and the rounding of ramps."""
    widths = [high - low for f in tf.approximants.values() for low, high in f.ramps]
    steep = RAMP * 2.0**-53 / min(widths) if widths else 0.0
    return max(tolerance, steep, 0.0 if tf.target.proven else fitted)
