"""The stand-ins of target ``relu``: piecewise-linear functions, with proven error.

Functions that are applied to the same argument in one layer share their knots, so that one head writes them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from innergrad.errors import InputError
from innergrad.functions.approximants import approximate, approximate_jointly
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import Function
from innergrad.interpret.ranges import argument_bounds
from innergrad.options import Options
from innergrad.program import Program


def approximants(program: Program, options: Options) -> dict[str, Approximant]:
    """The stand-in of every scalar function of the program."""
    functions = program.functions()
    radii: dict[str, float] = {}
    if any(f.needs_domain for f in functions.values()):
        declared = {
            name: bound for name, bound in (("x", options.x_bound), ("y", options.y_bound)) if bound is not None
        }
        radii = argument_bounds(program, declared, max(options.accuracy(name) for name in functions))
    found: dict[str, Approximant] = {}
    for names in together(program):
        group = tuple(functions[name] for name in names)
        epsilon = min(options.accuracy(name) for name in names)
        bounds = [_radius(f, radii, options) for f in group if f.needs_domain]
        radius = max(bounds, default=None)
        if len(group) == 1:
            found[names[0]] = approximate(group[0], epsilon, radius)
        else:
            found |= zip(names, approximate_jointly(group, epsilon, radius), strict=True)
    return {name: found[name] for name in functions}


def together(program: Program) -> list[tuple[str, ...]]:
    """The functions in groups that share their knots: smooth functions of the same argument in the same layer."""
    functions = program.functions()
    groups = [{name} for name in functions]
    for layer in program.layers:
        arguments: dict[object, set[str]] = {}
        for instruction in layer.instructions:
            for score in instruction.scores:
                if score.f.exact is None and not score.f.jumps:
                    arguments.setdefault(score.pairs, set()).add(score.f.name)
        for names in arguments.values():
            apart = [group for group in groups if not group & names]
            groups = [*apart, set().union(*(group for group in groups if group & names))]
    ordered = [tuple(name for name in functions if name in group) for group in groups]
    return sorted(ordered, key=lambda names: list(functions).index(names[0]))


def _radius(f: Function, radii: Mapping[str, float], options: Options) -> float:
    """Of the domain of a function without asymptotes."""
    if math.isfinite(f.radius):
        return f.radius
    radius = radii[f.name] if options.z_bound is None else options.z_bound
    if not math.isfinite(radius):
        raise InputError(
            f"{f.name} has no asymptotes, so its approximant needs a domain",
            got="no finite bound on its arguments",
            hint="give z_bound=..., or x_bound=... together with a box",
        )
    return radius
