"""The stand-ins of target ``relu``: piecewise-linear functions, with proven error."""

from __future__ import annotations

import math
from collections.abc import Mapping

from innergrad.errors import InputError
from innergrad.functions.approximants import approximate
from innergrad.functions.dictionaries import Approximant
from innergrad.interpret.ranges import argument_bounds
from innergrad.options import Options
from innergrad.program import Program


def approximants(program: Program, options: Options) -> dict[str, Approximant]:
    """The stand-in of every scalar function of the program."""
    radii: dict[str, float] = {}
    if any(f.needs_domain for f in program.functions().values()):
        declared = {
            name: bound for name, bound in (("x", options.x_bound), ("y", options.y_bound)) if bound is not None
        }
        radii = argument_bounds(program, declared, max(options.accuracy(name) for name in program.functions()))
    return {
        name: approximate(f, options.accuracy(name), _radius(name, radii, options) if f.needs_domain else None)
        for name, f in program.functions().items()
    }


def _radius(name: str, radii: Mapping[str, float], options: Options) -> float:
    radius = radii[name] if options.z_bound is None else options.z_bound
    if not math.isfinite(radius):
        raise InputError(
            f"{name} has no asymptotes, so its approximant needs a domain",
            got="no finite bound on its arguments",
            hint="give z_bound=..., or x_bound=... together with a box",
        )
    return radius
