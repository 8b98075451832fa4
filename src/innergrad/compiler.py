"""algorithm -> program -> approximants -> transformer."""

from __future__ import annotations

from collections.abc import Mapping

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError, LoweringError, in_no_mode, shortened, within_limits
from innergrad.evidence.solver import solve
from innergrad.ir.program import Options
from innergrad.model.preparation import check_options, default_variant, prepared
from innergrad.model.prompt import ArrayLike
from innergrad.targets import TARGETS
from innergrad.transformer import CompiledTransformer


@within_limits("compiling")
@in_no_mode
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
    double: bool = False,
) -> CompiledTransformer:
    """Write a learning algorithm into the weights of a transformer.

    target, variant: the architecture; by default the first target the algorithm has a program for, or, if it names
        none, the first that can do its instructions, and the target's first variant: on llama ``chain``, whose width
        grows least with the network. Others are for who asks for fewer blocks; ``tf.cost().compare()`` has the prices.
    epsilon: sup error of every scalar function's approximant; sizes follow from it. By default the target's: 1e-3 for
        relu, where it is proven, 1e-9 for gpt, softmax and sigma, where it is measured; kernel needs none. On llama
        tanh, sigmoid, silu, kinks and most losses are exact; other functions are fitted, 1e-12 by default, measured.
    n_examples: the longest prompt. Shorter ones, weighted examples and several queries need no recompiling.
    x_bound, y_bound: declared domain; inputs outside are an error. z_bound: domain of functions without asymptotes
        (sin), by default derived from the algorithm's box and x_bound; of functions that are fitted, by default 8; on
        variants compact and shallow also the range of what is multiplied, by default 64.
    sigma: on target sigma, the activation of the transformer itself (default gelu).
    epsilons: sup errors of single functions, by name, e.g. {"tanh": 1e-3, "tanh'": 1e-4}, on relu and llama. Of a
        step function, on every target, the width of its ramps: by default 2^-26, half of the digits of float64,
        whatever epsilon is; {"relu'": 2**-12} makes matrices that can be run in float32.
    weight_error: instead of epsilon and epsilons: choose them so that the final weights are certified to be within
        weight_error of the algorithm's, with the fewest heads; ``tf.solution`` says what was chosen. The certificate
        is for the prompts ``data`` = (X, y) and the initial weights w0, or, without data, for a few random prompts;
        for any other prompt call ``tf.certify``. See :mod:`innergrad.evidence.solver`.
    until: ``tf.run`` stops when the certified norm of the gradient mapping is at most this; see there.
    double: on target llama, every value in two lanes, so that Hugging Face's classes, whose norms cast to float32,
        compute in float64; see :mod:`innergrad.model.double`.
    """
    if not isinstance(algorithm, Algorithm):
        raise InputError("only an algorithm can be compiled", got=repr(algorithm), allowed="an ig.Algorithm")
    target = _first_that_can(algorithm, n_examples) if target is None else target
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
        double,
    )
    options = check_options(options)
    program = prepared(algorithm, options)
    if weight_error is None:
        if data is not None or w0 is not None:
            raise InputError("data and w0 go with weight_error, which is certified on them", got="no weight_error")
        return CompiledTransformer(
            algorithm, program, TARGETS[options.target].functions.approximants(program, options), options
        )
    if epsilon is not None or epsilons is not None:
        raise InputError(
            "weight_error chooses the epsilons", got="both", allowed="weight_error, or epsilon and epsilons"
        )
    found, solution = solve(algorithm, program, options, data, w0)
    return CompiledTransformer(algorithm, program, found.approximants, found.options, solution=solution)


def _first_that_can(algorithm: Algorithm, n_examples: int) -> str:
    """The target of an algorithm that was not told one."""
    if algorithm.targets != ("any",):
        return algorithm.targets[0]
    refusals = []
    for name, target in TARGETS.items():
        sigma, variant = next(iter(target.sigmas), None), default_variant(algorithm, name)
        options = check_options(Options(name, variant, target.epsilon, n_examples, sigma=sigma))
        try:
            prepared(algorithm, options)
        except LoweringError as error:
            refusals.append(shortened(f"{name}: {error}", 80))
        else:
            return name
    raise LoweringError(f"no target can run the program of {algorithm.kind}", got="; ".join(refusals))


def _pairs(epsilons: Mapping[str, float] | None) -> tuple[tuple[str, float], ...]:
    if not isinstance(epsilons, Mapping | None):
        raise InputError("epsilons are given by name", got=repr(epsilons), allowed="e.g. {'tanh': 1e-3}")
    return tuple((epsilons or {}).items())
