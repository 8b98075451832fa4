"""The approximants of a program's scalar functions.

- :class:`Piecewise`: piecewise-linear functions, with proven error. Functions that are applied to the same argument in
  one layer share their knots, so that one head writes them all.
- :class:`Sigmas`: sums of one activation sigma, fitted; all smooth functions share their knots.
- :class:`Blocks`: for standard blocks: sums of GeLUs for MLPs, of exponentials for linear scores over the examples, of
  sigmoids where attention applies a function; in variant ``lookup``, tables of ReLUs.
- :class:`Silus`: for gated MLPs: piecewise-linear functions as they are, ramps for steps, sums of silu for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from innergrad.errors import InputError, LoweringError
from innergrad.functions.approximants import approximate, approximate_jointly
from innergrad.functions.fits.algebra import algebra_error, linear_sum, piecewise_sum, without_line
from innergrad.functions.fits.exponentials import exponential_sum
from innergrad.functions.fits.gelu import gelu_sum
from innergrad.functions.fits.sigmas import COARSE
from innergrad.functions.fits.smooth import shared_sums
from innergrad.functions.fits.sums import Approximant, FeatureSum
from innergrad.functions.scalar import IDENTITY, NEGATION, RECIPROCAL, Function
from innergrad.interpret.ranges import argument_bounds
from innergrad.ir.program import DEFAULT_BOUND, Attend, Layer, Options, Program, Score
from innergrad.targets.parts.base import Functions, need

LINEAR = Function("linear score", lambda t: t, curvature=0.0, lipschitz=1.0)
LINEAR_BOUND = 2.0  # of linear attention's scores
SHOWN = 2.0**-46  # relative error of LayerNorm's output, where entries are as large as 64
SCORES = 16.0  # range of scores that are used as they are, unless z_bound is larger


def with_linear_scores(program: Program, chosen: Callable[[Attend], bool]) -> Program:
    """Scores of attention that are used as they are become a function of their own, which heads add up."""

    def rewritten(i: Attend) -> Attend:
        scores = (Score(LINEAR, *score.pairs) if score.f == IDENTITY else score for score in i.scores)
        return i.changed(scores=scores) if chosen(i) else i

    def change(layer: Layer) -> Layer:
        new = tuple(map(rewritten, layer.instructions))
        return replace(layer, instructions=new) if layer.kind == "attention" else layer

    return program.with_layers(change)


def together(program: Program) -> list[tuple[str, ...]]:
    """The functions in groups that share their knots: smooth functions of the same argument in the same layer."""
    functions = program.functions()
    groups = [{name} for name in functions]
    for layer in program.layers:
        arguments: dict[object, set[str]] = {}
        for score in (score for instruction in layer.instructions for score in instruction.scores):
            if score.f.exact is None and not score.f.jumps:
                arguments.setdefault(score.pairs, set()).add(score.f.name)
        for names in arguments.values():
            apart = [group for group in groups if not group & names]
            groups = [*apart, set().union(*(group for group in groups if group & names))]
    ordered = [tuple(name for name in functions if name in group) for group in groups]
    return sorted(ordered, key=lambda names: list(functions).index(names[0]))


class Piecewise(Functions):
    """Piecewise-linear functions, with proven error."""

    how = "proven"

    def approximated(self, program: Program) -> set[str]:
        return set(program.functions())

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        functions = program.functions()
        radii: dict[str, float] = {}
        if any(f.needs_domain for f in functions.values()):
            domain = (("x", options.x_bound), ("y", options.y_bound))
            declared = {name: bound for name, bound in domain if bound is not None}
            coarsest = max(options.accuracy(name) for name in functions)
            radii = argument_bounds(program, declared, coarsest, options.n_examples)
        found: dict[str, Approximant] = {}
        for names in together(program):
            group = tuple(functions[name] for name in names)
            epsilon = min(options.accuracy(name) for name in names)
            radius = max((self._radius(f, radii, options) for f in group if f.needs_domain), default=None)
            if len(group) == 1:
                found[names[0]] = approximate(group[0], epsilon, radius, options.ramp(names[0]))
            else:
                found |= zip(names, approximate_jointly(group, epsilon, radius), strict=True)
        return {name: found[name] for name in functions}

    def _radius(self, f: Function, radii: Mapping[str, float], options: Options) -> float:
        """Of the domain of a function without asymptotes."""
        if math.isfinite(f.radius):
            return f.radius
        radius = radii[f.name] if options.z_bound is None else options.z_bound
        if not math.isfinite(radius):
            raise InputError(
                f"no asymptotes of {f.name} are known, so its approximant needs a domain",
                got="no finite bound on its arguments",
                hint="give z_bound=..., or x_bound=... together with a box; or declare a radius",
            )
        return radius


class Silus(Functions):
    """Of gated MLPs, which have piecewise-linear functions as they are: ramps for steps, and, for any other function,
    sums of silu, with measured error on a bounded domain. Functions of the same argument share their units.
    """

    how = "exactly where piecewise linear, else by a fit"

    def approximated(self, program: Program) -> set[str]:
        return {name for name, f in program.functions().items() if f.exact is None}

    def measured(self, program: Program) -> set[str]:
        functions = program.functions()
        return {name for name in self.approximated(program) if not functions[name].jumps}

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        functions, fitted, radius = program.functions(), self.measured(program), options.z_bound or DEFAULT_BOUND
        steps = sorted(self.approximated(program) - fitted)
        made: dict[str, Approximant] = {f: approximate(functions[f], 1e-3, ramp=options.ramp(f)) for f in steps}
        for names in (names for names in together(program) if fitted.issuperset(names)):
            epsilon = min(map(options.accuracy, names))
            made |= shared_sums((functions[name] for name in names), "silu", epsilon, (-radius, radius))
        return made


class Fitted(Functions):
    """Sums of features, with measured error."""

    how, proven = "by a fit", False

    def spread(self, program: Program, approximants: Mapping[str, Approximant]) -> float:
        """Every token computes the same sum, but norms show it the same lanes up to SHOWN, which its terms multiply."""
        shared = [i for layer in program.layers for i in layer.instructions if program.stream[i.dst.lane].shared]
        found = (approximants.get(score.f.name) for i in shared for score in i.scores)
        sums = [zip(f.a, f.b, f.c, strict=True) for f in found if isinstance(f, FeatureSum)]
        return max([1e-12, *(SHOWN * sum(abs(c) * (abs(a) + abs(b)) for a, b, c in terms) for terms in sums)])


class Sigmas(Fitted):
    """Sums of the activation sigma that attention and MLPs have."""

    linear = "exactly (tanh, sigmoid, cos: by a fit)"

    def prepare(self, program: Program, options: Options) -> Program:
        return with_linear_scores(program, lambda instruction: True)

    def approximated(self, program: Program) -> set[str]:
        return {name for name, f in program.functions().items() if f not in (IDENTITY, NEGATION)}

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        sigma, radius = options.sigma or "", options.z_bound or DEFAULT_BOUND
        functions, smooth, made = program.functions(), [], dict[str, Approximant]()
        heads = [layer for layer in program.layers if layer.kind == "attention"]
        by_heads = {score.f.name for layer in heads for i in layer.instructions for score in i.scores}
        products = algebra_error(sigma, options.epsilon >= COARSE)
        if products > options.epsilon:
            what, got = f"products are not sums of {sigma} to within epsilon", f"epsilon = {options.epsilon:g}"
            raise InputError(what, got=got, allowed=f"at least {products:.1e}")
        for name in sorted(self.approximated(program)):
            f = functions[name]
            if f == LINEAR:
                made[name] = linear_sum(sigma, max(SCORES, radius), options.epsilon)
            elif f.exact is not None or f.jumps:
                fitted = piecewise_sum(f, sigma, options.epsilon, options.ramp(name))
                made[name] = without_line(fitted) if name in by_heads else fitted
            else:
                smooth.append(f)
        return made | shared_sums(smooth, sigma, options.epsilon, (-radius, radius))

    def rounding(self, options: Options) -> float:
        """Products are exact to about 1e-13, or, made for float32, to 1e-9, of the square of their range."""
        range = max(SCORES, options.z_bound or DEFAULT_BOUND)
        return (1e-9 if options.epsilon < COARSE else 1e-6) * (range / SCORES) ** 2


class Blocks(Fitted):
    """Exponential sums for linear scores, sigmoids for functions of attention, GeLU sums for those of mlps."""

    def prepare(self, program: Program, options: Options) -> Program:
        return with_linear_scores(program, lambda instruction: need(instruction) == "examples")

    def approximated(self, program: Program) -> set[str]:
        """The blocks compute exp, division and identity themselves."""
        own = (IDENTITY, NEGATION, RECIPROCAL)
        return {
            score.f.name
            for layer in program.layers
            for instruction in layer.instructions
            for score in instruction.scores
            if score.f == LINEAR or (instruction.scope == "self" and score.f not in own)
        }

    def approximants(self, program: Program, options: Options) -> dict[str, Approximant]:
        radius, functions, made = options.z_bound or DEFAULT_BOUND, program.functions(), dict[str, Approximant]()
        if options.variant == "lookup":
            return {name: approximate(functions[name], 1e-3) for name in sorted(self.approximated(program))}
        by_heads = self._sigmoids(program)
        made |= shared_sums((functions[f] for f in sorted(by_heads)), "sigmoid", options.epsilon, (-radius, radius))
        for name in sorted(self.approximated(program) - by_heads):
            if functions[name] == LINEAR:
                made[name] = exponential_sum(options.z_bound or LINEAR_BOUND, options.epsilon)
            else:
                made[name] = gelu_sum(functions[name], options.epsilon, (-radius, radius), options.ramp(name))
        return made

    def _sigmoids(self, program: Program) -> set[str]:
        """Functions that attention applies to a token's own lanes, by a sink."""
        found: dict[str, set[str]] = {"attention": set(), "mlp": set()}
        for layer in program.layers:
            for instruction in layer.instructions:
                found[layer.kind] |= {score.f.name for score in instruction.scores if instruction.scope == "self"}
        both = found["attention"] & found["mlp"] - {IDENTITY.name, NEGATION.name}
        if both:
            what, got = "a function is applied by attention or by mlps, not by both", ", ".join(sorted(both))
            raise LoweringError(what, got=got, hint="name it twice")
        return found["attention"]

    def rounding(self, options: Options) -> float:
        """Products are exact to 1e-14, or, made for float32, to 1e-10, of the square of their range."""
        return 1e-9 if options.epsilon < COARSE else 1e-7
