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

    The result has learned nothing yet. It learns when it runs: from the examples in its prompt.

    Args:
        algorithm: what to write, for example a ``GradientDescent``.
        target: the kind of transformer. By default it is the first that the algorithm has a program for. An algorithm
            that names no targets gets the first target that can run it.
        variant: one of several ways to write the algorithm for a target; some are deeper, others wider. By default the
            target's first. On ``llama`` that is ``chain``, whose width grows least with the network.
            ``tf.cost().compare()`` lists the price of the others.
        epsilon: the largest error of every scalar function that is approximated. Sizes follow from it. The default
            depends on the target. ``relu``: 1e-3, proven. ``gpt``, ``softmax`` and ``sigma``: 1e-9, measured.
            ``llama``: 1e-12, measured, for the few functions that it does not compute exactly. ``kernel`` needs none.
        n_examples: the longest prompt. Shorter prompts, weighted examples and any number of queries run without
            compiling again.
        x_bound: the largest absolute input. A larger one is an error.
        y_bound: the largest absolute label, likewise.
        z_bound: the domain of functions that need one, [-z_bound, z_bound]. For functions without asymptotes, such as
            sin, it follows from ``x_bound`` and the algorithm's box by default. For functions that are fitted it is 8.
            On the variants ``compact`` and ``shallow`` it is also the range of factors, 64 by default.
        sigma: the activation of the transformer itself, on target ``sigma``; ``gelu`` by default.
        epsilons: errors of single functions by name, such as ``{"tanh": 1e-3, "tanh'": 1e-4}``, on ``relu`` and
            ``llama``. For a step function, on every target, it is the width of the ramps that stand for its jumps:
            2^-26 by default. ``{"relu'": 2**-12}`` makes matrices that can be run in float32.
        weight_error: choose the epsilons for me. The final weights are then certified to be this close to the
            algorithm's, with the fewest heads; ``tf.solution`` says what was chosen. It takes the place of ``epsilon``
            and ``epsilons``.
        data: the prompts (X, y) that a ``weight_error`` is certified for. Without them it is certified for a few random
            prompts. For any other prompt call ``tf.certify``.
        w0: the initial weights that a ``weight_error`` is certified for.
        until: stop a run when the gradient mapping is certified to be this small; see ``CompiledTransformer.run``.
        double: on target ``llama``, keep every value in two lanes. Hugging Face's classes round to float32 in their
            norms; two lanes carry the digits of float64 through them.

    Examples:
        >>> import innergrad as ig
        >>> algorithm = ig.GradientDescent(ig.Network([2, 4, 1]), lr=0.1, steps=10, box=None)
        >>> ig.compile(algorithm, target="llama", n_examples=32)
        <CompiledTransformer: gradient_descent on target 'llama', 51 + 2 layers, d_model = 96, exact>
        >>> ig.compile(algorithm, target="relu", epsilon=1e-2).state
        'proven'
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
