"""algorithm -> program -> approximants -> transformer."""

from __future__ import annotations

from collections.abc import Mapping

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, integer, real
from innergrad.functions.approximants import check_epsilon
from innergrad.options import Options
from innergrad.program import Program
from innergrad.prompt import ArrayLike
from innergrad.targets import TARGETS
from innergrad.transformer import CompiledTransformer, default_variant


def compile(
    algorithm: Algorithm,
    *,
    target: str | None = None,
    variant: str | None = None,
    epsilon: float | None = None,
    n_examples: int = 16,
    x_bound: float | None = None,
    y_bound: float | None = None,
    z_bound: float | None = None,
    sigma: str | None = None,
    epsilons: Mapping[str, float] | None = None,
    weight_error: float | None = None,
    data: tuple[ArrayLike, ArrayLike] | None = None,
    w0: ArrayLike | None = None,
    until: float | None = None,
) -> CompiledTransformer:
    """Write a learning algorithm into the weights of a transformer.

    target, variant: the architecture; by default the first the algorithm has a program for.
    epsilon: sup error of every scalar function's approximant; sizes follow from it. By default the target's: 1e-3 for
        relu, where it is proven, 1e-9 for gpt, softmax and sigma, where it is measured; kernel attention needs none.
    n_examples: the longest prompt. Shorter ones, weighted examples and several queries need no recompiling.
    x_bound, y_bound: declared domain; inputs outside are an error. z_bound: domain of functions without asymptotes
        (sin), by default derived from the algorithm's box and x_bound; on variants compact and shallow also the range
        of what is multiplied, by default 64.
    sigma: on target sigma, the activation of the transformer itself (default gelu).
    epsilons: sup errors of single functions, by name, e.g. {"tanh": 1e-3, "tanh'": 1e-4}, where they are proven.
    weight_error: instead of epsilon and epsilons: choose them so that the final weights are certified to be within
        weight_error of the algorithm's, with the fewest heads; ``tf.solution`` says what was chosen. The certificate
        is for the prompts ``data`` = (X, y) and the initial weights w0, or, without data, for a few random prompts;
        for any other prompt call ``tf.certify``. See :mod:`innergrad.solver`.
    until: ``tf.run`` stops when the certified norm of the gradient mapping is at most this; see there.
    """
    if not isinstance(algorithm, Algorithm):
        raise InputError("only an algorithm can be compiled", got=repr(algorithm), allowed="an ig.Algorithm")
    target = algorithm.targets[0] if target is None else target
    known = TARGETS.get(target) if isinstance(target, str) else None
    options = Options(
        target,
        default_variant(algorithm, target) if variant is None and known else variant,  # type: ignore[arg-type]
        known.epsilon if epsilon is None and known else epsilon,  # type: ignore[arg-type]
        n_examples,
        x_bound,
        y_bound,
        z_bound,
        next(iter(known.sigmas)) if sigma is None and known and known.sigmas else sigma,
        _pairs(epsilons),
        weight_error,
        until,
    )
    options = check_options(options)
    program = prepared(algorithm, options)
    if weight_error is None:
        if data is not None or w0 is not None:
            raise InputError("data and w0 are what a weight_error is certified on", got="no weight_error")
        return CompiledTransformer(algorithm, program, TARGETS[options.target].approximants(program, options), options)
    if epsilon is not None or epsilons is not None:
        raise InputError(
            "weight_error chooses the epsilons", got="both", allowed="weight_error, or epsilon and epsilons"
        )
    from innergrad.solver import solve

    return solve(algorithm, program, options, data, w0)


def _pairs(epsilons: Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    if not isinstance(epsilons, Mapping | None):
        raise InputError("epsilons are given by name", got=repr(epsilons), allowed="e.g. {'tanh': 1e-3}")
    return tuple((epsilons or {}).items())


def prepared(algorithm: Algorithm, options: Options) -> Program:
    """The algorithm's program as the target runs it, or the reason why the target cannot."""
    if options.target not in algorithm.targets:
        raise InputError(
            f"{algorithm.kind} has no program for target {options.target!r}", allowed=", ".join(algorithm.targets)
        )
    variants = algorithm.variants.get(options.target, (options.variant,))
    if options.variant not in variants:
        what = f"{algorithm.kind} has no program for variant {options.variant!r} of target {options.target!r}"
        hint = "ig.GridDescent looks gradient descent up" if options.variant == "lookup" else ""
        raise InputError(what, allowed=", ".join(variants), hint=hint)
    algorithm.check_options(options)
    target = TARGETS[options.target]
    program = target.prepare(algorithm.program(options), options)
    target.check(program)
    _check_epsilons(program, options)
    if options.until is not None:
        from innergrad.stopping import check_until

        check_until(algorithm, options.until)
    return program


def _check_epsilons(program: Program, options: Options) -> None:
    """Accuracies of single functions are for functions the program has, where functions are approximated alone."""
    if options.epsilons and not TARGETS[options.target].proven:
        raise InputError(
            f"on target {options.target!r} functions share their units, so one epsilon is for all of them",
            got=f"epsilons of {', '.join(name for name, _ in options.epsilons)}",
            allowed="epsilon",
        )
    known = [name for name, f in program.functions().items() if f.exact is None]
    unknown = [name for name, _ in options.epsilons if name not in known]
    if unknown:
        what = "epsilons of functions that the program does not approximate"
        raise InputError(what, got=", ".join(unknown), allowed=", ".join(known) or "none: it approximates no function")


def check_options(options: Options) -> Options:
    variants = TARGETS.find(options.target).variants
    if options.variant not in variants:
        what = f"unknown variant of target {options.target!r}"
        raise InputError(what, got=repr(options.variant), allowed=", ".join(variants))
    sigmas = TARGETS[options.target].sigmas
    if options.sigma not in (sigmas or (None,)):
        what = (
            "unknown activation of the transformer" if sigmas else f"target {options.target!r} has no choice of sigma"
        )
        allowed = ", ".join(sigmas) if sigmas else "target='sigma'"
        hint = "ig.register_sigma(name, function) adds your own" if sigmas else ""
        raise InputError(what, got=repr(options.sigma), allowed=allowed, hint=hint)
    check_epsilon(options.epsilon, TARGETS[options.target].finest)
    for entry in options.epsilons:
        if len(entry) != 2 or not isinstance(entry[0], str):
            raise InputError("epsilons are pairs of a function's name and a number", got=repr(entry))
        check_epsilon(entry[1], TARGETS[options.target].finest)
    if options.weight_error is not None:
        real("weight_error", options.weight_error, above=0.0, hint="or None")
    integer("n_examples", options.n_examples)
    for name in ("x_bound", "y_bound", "z_bound"):
        if getattr(options, name) is not None:
            real(name, getattr(options, name), above=0.0, hint="or None")
    return options
