"""What is said about a value outside the domain that a transformer was compiled for: sentences, and errors."""

from __future__ import annotations

from torch import Tensor

from innergrad.errors import DomainError
from innergrad.functions.fits.sums import Approximant
from innergrad.ir.program import Layer
from innergrad.ir.stream import Lane

Limits = tuple[float, float]
SCALE_INPUTS = "compile with a larger z_bound, or scale the inputs"


def lane_left(layer: Layer, lane: str) -> str:
    return f"layer {layer.name}: lane {lane} left the range its products are made for"


def enlarge(lane: Lane) -> str:
    """What to do about a lane outside its range."""
    return f"compile with a larger {lane.bound_from}, or scale the data"


def slack(limits: Limits) -> float:
    """Rounding of lanes in float32."""
    return 1e-4 * limits[1]


def range_error(what: str, found: Limits, allowed: Limits, hint: str) -> DomainError:
    """The error of values outside a range, from the least and the largest of them."""
    outside = found[0] if allowed[0] - found[0] > found[1] - allowed[1] else found[1]
    return DomainError(what, got=f"{outside:g}", allowed=f"[{allowed[0]:g}, {allowed[1]:g}]", hint=hint)


def argument_left(layer: Layer, f: str) -> str:
    return f"layer {layer.name}: an argument of {f} left the domain of its approximant"


def argument_error(layer: Layer, name: str, f: Approximant, argument: Tensor, hint: str) -> DomainError:
    """The error of an argument outside the domain of an approximant."""
    allowed = f"[{f.domain[0]:g}, {f.domain[1]:g}]"
    return DomainError(argument_left(layer, name), got=f"{f.outside(argument):g}", allowed=allowed, hint=hint)
