"""algorithm -> program -> approximants -> transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, integer, real
from innergrad.functions.approximants import approximate, check_epsilon
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.interpret.ranges import argument_bounds
from innergrad.program import Program
from innergrad.prompt import Options
from innergrad.targets import TARGETS
from innergrad.transformer import CompiledTransformer


def compile(
    algorithm: Algorithm,
    *,
    target: str = "relu",
    variant: str = "literal",
    epsilon: float = 1e-3,
    n_examples: int = 16,
    x_bound: float | None = None,
    y_bound: float | None = None,
    z_bound: float | None = None,
) -> CompiledTransformer:
    """Write a learning algorithm into the weights of a transformer.

    epsilon: sup error of every scalar function's approximant; sizes follow from it.
    n_examples: the longest prompt. Shorter ones, weighted examples and several queries need no recompiling.
    x_bound, y_bound: declared domain; inputs outside are an error. z_bound: domain of functions without asymptotes
    (sin); by default
        derived from the algorithm's box and x_bound.
    """
    if not isinstance(algorithm, Algorithm):
        raise InputError("only an algorithm can be compiled", got=repr(algorithm), allowed="an ig.Algorithm")
    options = check_options(Options(target, variant, epsilon, n_examples, x_bound, y_bound, z_bound))
    program = algorithm.program()
    TARGETS[options.target].check(program)
    return CompiledTransformer(algorithm, program, approximants(program, options), options)


def approximants(program: Program, options: Options) -> dict[str, PiecewiseLinear]:
    """The stand-in of every scalar function of the program."""
    radii: dict[str, float] = {}
    if any(f.needs_domain for f in program.functions().values()):
        declared = {
            name: bound for name, bound in (("x", options.x_bound), ("y", options.y_bound)) if bound is not None
        }
        radii = argument_bounds(program, declared, options.epsilon)
    return {
        name: approximate(f, options.epsilon, _radius(name, radii, options) if f.needs_domain else None)
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


def check_options(options: Options) -> Options:
    if not isinstance(options.target, str) or options.target not in TARGETS:
        raise InputError("unknown target", got=repr(options.target), allowed=", ".join(TARGETS))
    variants = TARGETS[options.target].variants
    if options.variant not in variants:
        what = f"unknown variant of target {options.target!r}"
        raise InputError(what, got=repr(options.variant), allowed=", ".join(variants))
    check_epsilon(options.epsilon)
    integer("n_examples", options.n_examples)
    for name in ("x_bound", "y_bound", "z_bound"):
        if getattr(options, name) is not None:
            real(name, getattr(options, name), above=0.0, hint="or None")
    return options
