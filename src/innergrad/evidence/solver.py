"""The accuracies that meet an error on the final weights with the fewest heads: ``ig.compile(..., weight_error=1e-3)``.

The bound on the weights after the last step (:mod:`innergrad.evidence.certificate`, from proven sup errors) is, to
first order, linear in the accuracies of the functions. An approximant has about c / sqrt(eps) pieces. Each piece is a
head or a hidden unit wherever the function is used. So:

    minimise   sum_f  h_f / sqrt(eps_f)     subject to   sum_f  a_f eps_f  <=  weight_error
    =>         eps_f  proportional to  (h_f / a_f)^(2/3)

h_f is measured on two approximants, a_f on two certificates. Approximants have whole numbers of pieces, so the fewest
heads are then looked for on a geometric grid around that. The certificate is not exactly linear, and much less so for
long runs. The returned epsilons were certified as they are, and no single one can be made one grid step larger.

A certificate speaks of prompts. They are the ones given, or a few random ones of the algorithm. The error is certified
for those; for other prompts, ask ``tf.certify``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.errors import InputError
from innergrad.evidence.certificate import Certificate, certify
from innergrad.functions.approximants import LARGEST_EPSILON, SMALLEST_EPSILON, approximate
from innergrad.ir.program import Options, Program
from innergrad.model.compiled import Compiled
from innergrad.model.prompt import ArrayLike
from innergrad.targets import TARGETS
from innergrad.targets.weights.rows import family

PROMPTS = 4
HALF = 8  # points of the grid of accuracies from one to half of it
STEP = 2.0 ** (1 / HALF)  # 4 % of the heads
FINEST = math.floor(math.log(LARGEST_EPSILON / SMALLEST_EPSILON, STEP))  # the last point
START = math.ceil(math.log(LARGEST_EPSILON / 1e-3, STEP))  # where the search begins
WINDOW = 4  # points to either side among which the fewest heads are looked for ...
SMOOTH = 1e-4  # ... unless there are so many pieces that their number hardly jumps

Places = Mapping[str, int]  # functions -> points of the grid; point k is the accuracy LARGEST_EPSILON / STEP^k


@dataclass(frozen=True)
class Solution:
    """The accuracies that ``compile(weight_error=...)`` chose, and the heads they save: ``tf.solution``.

    Attributes:
        weight_error: what was asked for.
        epsilons: the chosen error of each function.
        bound: on the distance of the final weights to the algorithm's, certified on ``prompts``.
        heads: of all stored layers, with the hidden units of MLPs.
        common_epsilon: the coarsest single epsilon that is certified to be enough ...
        common_heads: ... and the heads it takes.
        prompts: the prompts in words.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.linspace(-1, 1, 4).view(-1, 1)
        >>> algorithm = ig.GradientDescent(ig.Network([1, 1, 1]), lr=0.1, steps=1)
        >>> tf = ig.compile(algorithm, target="relu", weight_error=0.1, data=(X, X), n_examples=4)
        >>> tf.solution.bound <= 0.1
        True
    """

    weight_error: float
    epsilons: Mapping[str, float]
    bound: float
    heads: int
    common_epsilon: float
    common_heads: int
    prompts: str

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}: {epsilon:.3g}" for name, epsilon in self.epsilons.items()) or "none needed"
        certified = f"{self.bound:.3g} <= {self.weight_error:g}"
        return (
            f"weights within {certified} of the algorithm's, certified on {self.prompts}\n"
            f"epsilons   {chosen}\n"
            f"heads      {self.heads} (a common epsilon of {self.common_epsilon:.3g}: {self.common_heads})"
        )


def solve(
    algorithm: Algorithm,
    program: Program,
    options: Options,
    data: tuple[ArrayLike, ArrayLike] | None,
    w0: ArrayLike | None,
) -> tuple[Compiled, Solution]:
    """The transformer with the accuracies that meet ``options.weight_error``, and which they are.

    data: (X, y), a prompt or a batch; None for random prompts.
    """
    names = _smooth(program, options)
    X, y, starts = _random_prompts(algorithm, program, options) if data is None else (*_pair(data), None)
    prompts = f"{PROMPTS} random prompts" if data is None else "the given data"
    search = _Search(algorithm, program, options, names, X, y, starts if w0 is None else w0)
    common = search.settled(dict.fromkeys(names, search.coarsest()))
    best = search.polished(search.settled(search.balanced(common))) if names else common
    if search.heads(best) > search.heads(common):
        best = search.polished(common)
    solution = Solution(
        search.target,
        {name: _epsilon(k) for name, k in best.items()},
        search.bound(best),
        search.heads(best),
        _epsilon(min(common.values())) if names else options.epsilon,
        search.heads(common),
        prompts,
    )
    return search.compiled(best), solution


def _epsilon(k: int) -> float:
    return float(LARGEST_EPSILON / STEP**k)


def _place(epsilon: float) -> int:
    """The point of the grid at or below an accuracy, as far as there is one."""
    return min(max(math.ceil(math.log(LARGEST_EPSILON / epsilon, STEP)), 0), FINEST)


def _smooth(program: Program, options: Options) -> list[str]:
    """The functions whose accuracy can be chosen, if the final weights can be certified at all."""
    if TARGETS[options.target].functions.measured(program):
        raise InputError(
            "weight_error needs proven errors of approximants",
            got=f"target={options.target!r}, where they are measured",
            allowed="target='relu'",
            hint="give epsilon, and see tf.certify(X, y)",
        )
    if not program.weights:
        raise InputError("weight_error is about weights", got="an algorithm that trains none", hint="give epsilon")
    approximated = TARGETS[options.target].functions.approximated(program)
    functions = {name: f for name, f in program.functions().items() if name in approximated}
    steps = [name for name, f in functions.items() if f.jumps]
    if steps:
        raise InputError(
            "step functions have no sup error that could be chosen: their epsilon is the width of ramps",
            got=", ".join(steps),
            hint="give epsilon; tf.certify(X, y) says whether an argument falls on a ramp, which is rare",
        )
    return [name for name, f in functions.items() if f.exact is None]


def _pair(data: object) -> tuple[ArrayLike, ArrayLike]:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data is a pair of arrays", got=type(data).__name__, allowed="(X, y)")
    return data[0], data[1]


def _random_prompts(algorithm: Algorithm, program: Program, options: Options) -> tuple[Tensor, Tensor, Tensor | None]:
    """Random examples and initial weights, inside the declared domain."""
    generator = torch.Generator().manual_seed(0)
    drawn = [algorithm.random_prompt(options.n_examples, 1, generator)[:2] for _ in range(PROMPTS)]
    X, y = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    starts = [start for seed in range(PROMPTS) if (start := algorithm.initial_weights(seed)) is not None]
    box = torch.tensor(program.weight_bounds, dtype=torch.float64)
    return (
        X if options.x_bound is None else X.clamp(-options.x_bound, options.x_bound),
        y if options.y_bound is None else y.clamp(-options.y_bound, options.y_bound),
        torch.stack(starts).clamp(-box, box) if starts else None,
    )


class _Search:
    """Certificates and costs of transformers with given accuracies."""

    def __init__(
        self,
        algorithm: Algorithm,
        program: Program,
        options: Options,
        names: list[str],
        X: ArrayLike,
        y: ArrayLike,
        w0: ArrayLike | None,
    ) -> None:
        assert options.weight_error is not None
        self.algorithm, self.program, self.options, self.names = algorithm, program, options, names
        self.given, self.w0, self.target = (X, y), w0, options.weight_error
        self.bounds: dict[tuple[int, ...], float] = {}
        self.model = self.compiled(dict.fromkeys(names, START))

    def compiled(self, places: Places) -> Compiled:
        """options.epsilon is the largest of the accuracies, so that it bounds all of them."""
        chosen = tuple((name, _epsilon(k)) for name, k in places.items())
        largest = max((epsilon for _, epsilon in chosen), default=self.options.epsilon)
        options = replace(self.options, epsilon=largest, epsilons=chosen)
        approximants = TARGETS[options.target].functions.approximants(self.program, options)
        return Compiled(self.algorithm, self.program, approximants, options)

    def bound(self, places: Places) -> float:
        """On the final weights, for the transformer with these accuracies."""
        key = tuple(places.values())
        if key not in self.bounds:
            self.bounds[key] = self._final(self._certificate(self.compiled(places)))
        return self.bounds[key]

    def foreseen(self, places: Places) -> float:
        """The same for the model's path, as if its approximants had these errors: quick, for no approximant is made."""
        return self._final(self._certificate(self._as_if(places)))

    def _as_if(self, places: Places) -> Compiled:
        errors = {name: replace(self.model.approximants[name], error=_epsilon(k)) for name, k in places.items()}
        return replace(self.model, approximants={**self.model.approximants, **errors})

    def _certificate(self, of: Compiled) -> Certificate:
        return certify(of, *self.given, w0=self.w0, trajectory=True, errors="sup")

    def _final(self, certificate: Certificate) -> float:
        """With ``until`` any weights may be the final ones."""
        return max(certificate.weights) if self.options.until is not None else certificate.weights[-1]

    def heads(self, places: Places) -> int:
        return sum(row.heads for row in self.compiled(places).cost().rows)

    def coarsest(self) -> int:
        """The coarsest common point that is foreseen to meet the target. As the bound is nearly proportional to
        epsilon, it says which point to try next.
        """
        missed, met, k = -1, FINEST + 1, START
        while self.names and met - missed > 1:
            bound = self.foreseen(dict.fromkeys(self.names, k))
            if bound <= self.target:
                met = k
            else:
                missed = k
            ratio = max(bound / self.target, 1e-9) if math.isfinite(bound) else 8.0
            k = min(max(k + math.ceil(math.log(ratio, STEP)), missed + 1), met - 1)
        if self.names and met > FINEST:
            self._give_up(dict.fromkeys(self.names, FINEST))
        return met

    def _give_up(self, places: Places) -> None:
        """Say why the finest accuracy is not enough."""
        certificate = self._certificate(self._as_if(places))
        step = certificate.diverged
        found = f"{self._final(certificate):.3g}" if step is None else f"a bound that diverges in step {step}"
        raise InputError(
            f"weight_error = {self.target:g} cannot be certified, not even with epsilon = {SMALLEST_EPSILON:g}",
            got=found,
            hint="take fewer steps, a smaller lr or a larger weight_error",
        )

    def settled(self, places: Places) -> Places:
        """Certified as it is; all functions a few points finer, if need be."""
        while not self.bound(places) <= self.target:
            if min(places.values(), default=FINEST) == FINEST:
                self._give_up(places)
            places = {name: min(k + 1, FINEST) for name, k in places.items()}
        return places

    def balanced(self, common: Places) -> Places:
        """eps_f proportional to (h_f / a_f)^(2/3), with the rest of the bound as at a common epsilon; then the fewest
        heads in a neighbourhood of that.
        """
        self.model = self.compiled(common)
        bound = self.bound(common)
        slopes = {
            name: max(bound - self.foreseen({**common, name: k + HALF}), 1e-6 * bound) / (0.5 * _epsilon(k))
            for name, k in common.items()
        }
        rest = bound - sum(slopes[name] * _epsilon(k) for name, k in common.items())
        shapes = {name: (self._pieces_constant(name) * self._uses(name) / slopes[name]) ** (2 / 3) for name in common}
        factor = (self.target - rest) / sum(slopes[name] * shapes[name] for name in common)
        centre = {name: _place(factor * shape) if factor > 0 else common[name] for name, shape in shapes.items()}
        if min(map(_epsilon, centre.values())) < SMOOTH:
            return centre
        tables = [
            [
                (self._uses(name) * self._pieces(name, _epsilon(k)), slopes[name] * _epsilon(k), k)
                for k in range(max(at - WINDOW, 0), min(at + WINDOW, FINEST) + 1)
            ]
            for name, at in centre.items()
        ]
        best = (math.inf, math.inf, tuple(centre.values()))
        for choice in product(*tables):
            heads, parts, places = zip(*choice, strict=True)
            if rest + sum(parts) <= self.target:
                best = min(best, (sum(heads), sum(parts), places))
        return dict(zip(centre, best[2], strict=True))

    def _pieces_constant(self, name: str) -> float:
        """c of the c / sqrt(eps) pieces of an approximant, from two of them."""
        coarse, fine = 1e-2, 1e-3
        more = self._pieces(name, fine) - self._pieces(name, coarse)
        return max(more, 1) / (1 / math.sqrt(fine) - 1 / math.sqrt(coarse))

    def _pieces(self, name: str, epsilon: float) -> int:
        f, domain = self.program.functions()[name], self.model.approximants[name].domain
        return approximate(f, epsilon, domain[1] if f.needs_domain else None).pieces

    def _uses(self, name: str) -> int:
        """How many arguments a layer has the function of: each takes a head for every piece."""
        return sum(
            sum(1 for _ in family(self.program, i))
            for layer in self.program.layers
            for i in layer.instructions
            for score in i.scores
            if score.f.name == name
        )

    def polished(self, places: Places) -> Places:
        """No single function can be one point coarser; the one that saves most heads is tried first."""
        while True:
            tried = [{**places, name: k - 1} for name, k in places.items() if k > 0]
            better = (coarser for coarser in sorted(tried, key=self.heads) if self.bound(coarser) <= self.target)
            found = next(better, None)
            if found is None:
                return places
            places = found
