"""Settings checked, and an algorithm's program as its target runs it, or the reason why that cannot be."""

from __future__ import annotations

from innergrad.algorithms import GradientDescent
from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, integer, real
from innergrad.functions.approximants import check_epsilon
from innergrad.ir.program import Options, Program
from innergrad.model.double import doubled
from innergrad.model.legalise import legalise
from innergrad.targets import TARGETS


def default_variant(algorithm: Algorithm, target: str) -> str:
    """The first variant of the target that the algorithm has a program for."""
    return algorithm.variants.get(target, TARGETS[target].variants)[0]


def prepared(algorithm: Algorithm, options: Options) -> Program:
    """The algorithm's program as the target runs it, or the reason why the target cannot."""
    if options.target not in algorithm.targets and algorithm.targets != ("any",):
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
    program = algorithm.program(options)
    if algorithm.targets == ("any",):
        program = legalise(program, target, options)
    if options.double:
        program = doubled(program)
    program = target.prepare(program, options)
    target.check(program, options)
    _check_epsilons(program, options)
    if options.until is not None:
        check_until(algorithm, options.until)
    return program


def _check_epsilons(program: Program, options: Options) -> None:
    """Accuracies of single functions are for functions the program has, where functions are approximated alone, as step
    functions are everywhere.
    """
    functions = program.functions()
    shared = [name for name, _ in options.epsilons if not (name in functions and functions[name].jumps)]
    if shared and not TARGETS[options.target].proven:
        raise InputError(
            f"on target {options.target!r} functions share their units, so one epsilon is for all of them",
            got=f"epsilons of {', '.join(shared)}",
            allowed="epsilon; in epsilons, the ramps of step functions",
        )
    known = [name for name, f in functions.items() if f.exact is None]
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
    if not isinstance(options.double, bool):
        raise InputError("double is True or False", got=repr(options.double))
    if options.double and options.target != "llama":
        what = "double=True is for blocks whose norm casts to float32, whatever the model's dtype"
        hint = "the models of other targets compute in float64 as they are"
        raise InputError(what, got=f"target {options.target!r}", allowed="target='llama'", hint=hint)
    if options.weight_error is not None:
        real("weight_error", options.weight_error, above=0.0, hint="or None")
    integer("n_examples", options.n_examples)
    for name in ("x_bound", "y_bound", "z_bound"):
        if getattr(options, name) is not None:
            real(name, getattr(options, name), above=0.0, hint="or None")
    return options


def check_until(algorithm: Algorithm, until: object) -> float:
    """The tolerance, if the algorithm has a gradient mapping: gradient descent with nothing but a projection."""
    plain = isinstance(algorithm, GradientDescent) and algorithm.basic
    plain = plain and not (algorithm.momentum or algorithm.weight_decay)  # type: ignore[attr-defined]
    if not plain or not algorithm.lr > 0:  # type: ignore[attr-defined]
        raise InputError(
            "until= bounds the gradient mapping of projected gradient descent",
            got=algorithm.kind,
            allowed="ig.GradientDescent with one lr > 0, without momentum, weight decay, l1, clip, batches and ball",
        )
    return real("until", until, low=0.0)
