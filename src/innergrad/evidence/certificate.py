"""Certificates after the run: how far the weights of a transformer can be from those of the algorithm.

:func:`certify` runs the transformer, and the affine interpreter (:mod:`innergrad.interpret.affine`) beside it on the
values that the transformer produced.

- *per step*: a bound on everything that was learned in a step, given the weights before it;
- *for the trajectory*: a bound on the distance to the algorithm's own path. The exact weights are somewhere in an
  ellipsoid {w + A xi, |xi| <= 1} around the transformer's w. A step takes it to {w' + M xi + C zeta + rest}, which the
  next ellipsoid encloses. M is the derivative of the step, and C zeta has the errors of the step itself. The rest has
  every term of second order, so the bound holds on the whole segment between the two iterates. Where it diverges it
  is infinite;
- *for the predictions*: the read-out, from the last ellipsoid.

No sampling and no unknown constants; rounding is included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.algorithms.base import LOG_UNIT
from innergrad.errors import InputError, JobError
from innergrad.evidence.pictures import plot_certificate
from innergrad.functions.facts import Remembered, U, evaluated
from innergrad.functions.intervals import LIBRARY_ULP, SMALLEST_NORMAL
from innergrad.functions.states import StateName
from innergrad.interpret.affine import (
    BALL,
    BEFORE,
    PIECE,
    Affine,
    Error,
    Key,
    norm_of,
    numbers_held,
    radius_of,
    spectral_norm,
)
from innergrad.interpret.walk import in_place
from innergrad.ir.program import Attend, Layer, Program
from innergrad.ir.stream import Lane, State
from innergrad.memory import available_memory, require_memory
from innergrad.model.compiled import Compiled
from innergrad.model.executors import Executor, Name, executor_of
from innergrad.model.executors.dense import Dense
from innergrad.model.guard import Guard, Outside
from innergrad.model.prompt import BOTTOMS, ArrayLike, Prompt
from innergrad.model.running import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Errors = Literal["sup", "pointwise"]
INFLATION = 1 + 1e-9  # for the rounding of the bounds' own arithmetic
ROUND = 1024  # with more entries the ellipsoid is a ball
SHARE = 0.25  # of the memory there is
LOST = 1e9  # a bound this large says nothing, and is infinite a step later
PLOT = "for a file: plot(path=...)"
LARGEST = 1536  # with more entries there is no trajectory bound unless it is asked for


@dataclass(frozen=True)
class StepCertificate:
    """One step, from the weights the transformer had before it.

    radius (batch, D_w): no weight is farther than this from the exact step's; without weights, all state.
    shares: the parts of the sum of the radii: functions and products of layers, and rounding.
    layers: the largest radius of the lanes that each layer wrote.
    culprits: arguments at which nothing is known, if the radius is infinite.
    """

    radius: Float[Tensor, "batch n_learned"]
    shares: dict[str, float]
    layers: dict[str, float]
    culprits: tuple[str, ...] = ()

    @property
    def bound(self) -> float:
        """On the Euclidean norm of the error of the weights, for every prompt of the batch."""
        return float(norm_of(self.radius).max())


@dataclass(frozen=True)
class Certificate:
    """Bounds for one run. ``CompiledTransformer.certify`` makes it.

    Attributes:
        steps: a record for every step.
        path: (batch, steps + 1, D_w), the weights of the run that it is about.
        lr: the learning rate.
        errors: ``pointwise`` or ``sup``: the errors of the approximants that the bounds rest on.
        trajectory: (batch, steps), bounds on the distance of the weights to the algorithm's after every step; None if
            they were not asked for.
        predictions: bounds on the errors of the predictions, in their shape, with a leading axis for the batch.
        violations: a sentence for each value that left its domain, with ``outside="flag"``. Bounds that rest on such a
            value are infinite.
        state: of the functions: exact, proven or measured. Where facts are only declared there is no certificate.
        unchecked: the matrices came from a folder, and ``verify`` has not passed on them.
        notes: what a reader of the bounds should know, a sentence each.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.linspace(-1, 1, 4).view(-1, 1)
        >>> algorithm = ig.GradientDescent(ig.Network([1, 2, 1]), lr=0.1, steps=2, box=None)
        >>> certificate = ig.compile(algorithm, target="llama", n_examples=4).certify(X, X)
        >>> exact = ig.reference(algorithm, X, X)
        >>> all(d <= bound for d, bound in zip(certificate.distance(exact), certificate.weights))
        True
    """

    steps: tuple[StepCertificate, ...]
    path: Tensor
    lr: float
    errors: Errors
    trajectory: Float[Tensor, "batch steps"] | None = None
    predictions: Tensor | None = None
    violations: tuple[str, ...] = ()
    state: StateName = "proven"
    unchecked: bool = False
    notes: tuple[str, ...] = ()

    @property
    def bounds(self) -> list[float]:
        """On the error of the weights in each step, given the weights before it."""
        return [step.bound for step in self.steps]

    @property
    def gradient(self) -> list[float]:
        """On the error of the gradient in each step: the same, divided by the learning rate."""
        return [step.bound / self.lr for step in self.steps]

    @property
    def weights(self) -> list[float]:
        """On the distance to the algorithm's weights after each step; ``inf`` where the bound has diverged."""
        if self.trajectory is None:
            raise InputError("the trajectory was not certified", hint="certify(..., trajectory=True)")
        return [float(bound) for bound in self.trajectory.amax(0)]

    @property
    def diverged(self) -> int | None:
        """The first step after which the bound on the trajectory is infinite."""
        return next((number for number, bound in enumerate(self.weights, start=1) if math.isinf(bound)), None)

    @property
    def culprits(self) -> list[str]:
        """Arguments about which nothing is known, step by step."""
        return [f"step {n}: {text}" for n, step in enumerate(self.steps, start=1) for text in step.culprits]

    def distance(self, reference: Run | Tensor) -> list[float]:
        """Of the run's weights to those of ``ig.reference``, or to these (..., steps + 1, D_w), after each step."""
        exact = reference.weights if isinstance(reference, Run) else reference
        if not isinstance(exact, Tensor):
            got, hint = f"{type(exact).__name__} {str(exact)!r}", "for a file: plot(path=...)"
            raise InputError(
                "a certificate is compared with a run", got=got, allowed="what ig.reference gives", hint=hint
            )
        exact = exact if exact.ndim == 3 else exact.unsqueeze(0)
        if exact.shape != self.path.shape or not exact.shape[-1]:
            got, allowed = f"{tuple(exact.shape)}", f"{tuple(self.path.shape)}, with weights"
            raise InputError("the reference is of another run", got=got, allowed=allowed, hint="give the same data")
        return [float(norm) for norm in (self.path - exact).norm(dim=-1).amax(0)[1:]]

    def plot(
        self, reference: Run | Tensor | None = None, path: str | Path | None = None, *, force: bool = False
    ) -> Figure:
        """Bounds by step, on a log scale; with the exact run (``ig.reference``), also the distance to it. With a path
        it is saved as a PNG.
        """
        along = None if self.trajectory is None else self.weights
        distance = None if reference is None else self.distance(reference)
        return plot_certificate(self.gradient, along, distance, path, force)

    def __str__(self) -> str:
        head = f"{'step':>5}{'error of the gradient <=':>26}"
        head += f"{'distance to the exact path <=':>32}" if self.trajectory is not None else ""
        lines = [head + "   largest share"]
        path = self.weights if self.trajectory is not None else []
        for number, (step, bound) in enumerate(zip(self.steps, self.gradient, strict=True), start=1):
            source = max(step.shares, key=lambda name: step.shares[name])
            part = step.shares[source] / max(sum(step.shares.values()), 1e-300)
            along = f"{path[number - 1]:>32.3e}" if path else ""
            share = f"{source} ({part:.0%})" if math.isfinite(part) else step.culprits[0] if step.culprits else source
            lines.append(f"{number:>5}{bound:>26.3e}{along}   {share}")
        return "\n".join([*lines, *self.notes])


def certify(
    of: Compiled,
    X: ArrayLike,
    y: ArrayLike,
    X_query: ArrayLike | None = None,
    *,
    w0: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    executor: Name = "plain",
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    trajectory: bool | None = None,
    errors: Errors | None = None,
    outside: Outside = "error",
) -> Certificate:
    """Bounds for a run on the caller's data, as :meth:`innergrad.CompiledTransformer.certify` says."""
    chosen, guard = executor_of(of, executor), of.guard(outside)
    chosen.check(dtype, guard)
    prompt = of.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed, guard=guard)
    double = of.in_double(prompt, sample_weight, guard.aside())
    size, found = prompts_at_a_time(of, prompt, trajectory), list[Certificate]()
    for start in range(0, len(prompt.X), size):
        some, part = slice(start, start + size), guard.part(None if size >= len(prompt.X) else start)
        found.append(certify_run(of, prompt[some], double[some], chosen, part, trajectory=trajectory, errors=errors))
    return found[0] if len(found) == 1 else _joined(found)


def prompts_at_a_time(of: Compiled, prompt: Prompt, trajectory: bool | None) -> int:
    """How many prompts of the batch are certified together: their errors take a share of the memory there is. Refuses
    a prompt whose errors do not fit.
    """
    program, tokens = of.program, prompt.state(of.program)["x"].shape[1]
    places = {
        lane: 1 if lane.shared else program.carriers if program.placement else tokens for lane in _learned(program)
    }
    size = sum(lane.size * count for lane, count in places.items())
    follow = size <= LARGEST if trajectory is None else trajectory
    numbers = numbers_held(program, tokens, size if follow else 0)
    held, room = 8.0 * (numbers if follow else 2 * numbers), available_memory() - 8.0 * 4 * PIECE
    hint = "give fewer examples" + (", or trajectory=False, which takes less" if follow else "")
    require_memory(held + 8.0 * 4 * PIECE, f"a certificate for {tokens} tokens", hint)
    return max(1, min(len(prompt.X), int(SHARE * room / max(held, 1.0))))


def _joined(parts: list[Certificate]) -> Certificate:
    """Of one batch, from those of its parts, in order."""
    first, total = parts[0], sum(len(part.path) for part in parts)
    steps = []
    for each in zip(*(part.steps for part in parts), strict=True):
        sources = {source: None for step in each for source in step.shares}
        shares = {s: sum(len(step.radius) * step.shares.get(s, 0.0) for step in each) / total for s in sources}
        layers = {name: max(step.layers.get(name, 0.0) for step in each) for step in each for name in step.layers}
        culprits = tuple(text for step in each for text in step.culprits)
        steps.append(StepCertificate(torch.cat([step.radius for step in each]), shares, layers, culprits))
    trajectory, predictions = (
        None if getattr(first, name) is None else torch.cat([getattr(part, name) for part in parts])
        for name in ("trajectory", "predictions")
    )
    path = torch.cat([part.path for part in parts])
    said = parts[-1].violations  # all of them
    return replace(
        first, steps=tuple(steps), path=path, trajectory=trajectory, predictions=predictions, violations=said
    )


def certify_run(
    of: Compiled,
    prompt: Prompt,
    given: Prompt,
    executor: Executor,
    guard: Guard,
    *,
    trajectory: bool | None = None,
    errors: Errors | None = None,
) -> Certificate:
    """Bounds for a run of an executor on the prompt. ``given`` is the same prompt in float64, as the caller gave it."""
    program = of.program
    mode: Errors = errors or "pointwise"
    if mode not in ("sup", "pointwise"):
        raise InputError("unknown kind of errors", got=repr(mode), allowed="'sup' or 'pointwise'")
    of.require_proven_facts()
    if mode == "sup" and not of.proven:
        raise InputError(
            f"errors of approximants are measured, not proven, on target {of.options.target!r}",
            allowed="errors='pointwise', which evaluates them at the arguments that occur",
        )
    exactly, state = given.state(program), prompt.state(program)
    at = Remembered()  # the two interpreters meet the same arguments
    path = _Path(of, prompt, mode, started(program, state, exactly), at)
    follow = path.size <= LARGEST if trajectory is None else trajectory
    steps, weights, along = list[StepCertificate](), [prompt.w0], list[Tensor]()
    before, affine = double(state), fresh(of, mode, started(program, state, exactly), at=at)
    for layer, state, step_ends in executor.layers(prompt, guard):
        after = double(state)
        at.clear()
        if len(steps) < program.steps:
            affine.layer(layer, before, after)
        if follow and path.finite:
            path.affine.layer(layer, before, after)
        if step_ends:
            steps.append(_step(affine, path, after))
            weights.append(prompt.weights(program, state))
            ended = Boundary(layer, before, after)
            affine = follow_up(of, mode, exactly, affine, ended, at)
            if follow:
                along.append(path.end_step(ended) if path.finite else along[-1])
        before = after
    predictions = None
    if follow:
        lane = program.prediction
        radius = path.affine.radius(lane, before[lane]) if path.finite else torch.full_like(before[lane], math.inf)
        predictions = prompt.like_y(prompt.predictions(program, {lane: radius}).abs() * INFLATION)
    lr = float(getattr(of.algorithm, "lr", 1.0) or 1.0)
    found = torch.stack(along, dim=1) if follow else None
    if not bool(torch.isfinite(torch.stack(weights)).all()):
        raise JobError("the forward pass overflowed: weights are not finite; scale the inputs or lower lr")
    unchecked = isinstance(executor, Dense) and of.unchecked
    said = tuple(guard.violations), of.state, unchecked, tuple(_notes(of, unchecked))
    return Certificate(tuple(steps), torch.stack(weights, dim=1), lr, mode, found, predictions, *said)


def _notes(of: Compiled, unchecked: bool) -> Iterator[str]:
    """Notes for a reader of the bounds: the assumptions that they rest on."""
    fitted = [name for name, known in of.standings.items() if known.state == "measured"]
    if fitted:
        yield (
            f"measured: {', '.join(fitted)} {'are' if len(fitted) > 1 else 'is'} fitted, with errors measured on a "
            "grid, not proven; the bounds rest on the errors at the arguments of this run"
        )
    if unchecked:
        yield "unchecked: the matrices were loaded, and verify() has not passed on them; the bounds are about this run"


def double(state: State) -> State:
    return {name: value.double() for name, value in state.items()}


def started(program: Program, state: State, given: State) -> dict[str, Tensor]:
    """How far the lanes at the beginning of a step are from the algorithm's, given weights and state. Inputs are
    rounded, or were touched. Weights of examples are quotients and logarithms. Scratch lanes may not have been cleared
    to the last bit.
    """
    sums = len(state["x"][0]) + LIBRARY_ULP  # roundings of a quotient whose denominator is a sum over examples
    found = dict[str, Tensor]()
    for lane in program.stream.lanes:
        value, exact = state[lane.name].double(), given[lane.name]
        if lane.role == "scratch":
            found[lane.name] = (value - lane.fill).abs()
        elif lane.role == "input":
            found[lane.name] = (value - exact).abs() + _rounded(lane.name, exact, sums) + _underflow(lane, given)
    return found


def _rounded(lane: str, exact: Tensor, sums: int) -> Tensor:
    """The float64 errors of lanes that a prompt computes. Logarithms of weights are read by a softmax alone, which
    takes no notice of the sum they were divided by: quotients are rounded, and the logarithm.
    """
    if lane in ("omega", "batch"):
        return sums * U * exact.abs()
    if lane in ("log_omega", "log_batch"):
        return U * (LIBRARY_ULP * exact.abs() + 4 / LOG_UNIT)
    return sums * U * (1 + exact.abs()) if lane == "log_tokens" else torch.zeros_like(exact)


def _underflow(lane: Lane, given: State) -> Tensor | float:
    """The amount that weights of examples may have lost below the smallest normal number. A batch is normalised again,
    so there it may be anything.
    """
    if lane.name not in ("omega", "batch") or "omega" not in given:
        return 0.0
    omega = given["omega"]
    small = (omega > 0) & (omega < SMALLEST_NORMAL * omega.shape[1])
    if lane.name == "omega":
        return small.double() * SMALLEST_NORMAL
    return torch.where(small.any(1)[:, None, None] & (given["batch"] > 0), math.inf, 0.0).double()


def fresh(
    of: Compiled,
    errors: Errors,
    off: Mapping[str, Tensor],
    *,
    columns: bool = False,
    at: Remembered | None = None,
) -> Affine:
    """At the beginning of a step. off: the errors that the lanes have already. at: shared with another interpreter."""
    of.require_proven_facts()
    pointwise, primitives = errors == "pointwise", {f.value: of_it for f, of_it in of.primitives.items()}
    affine = Affine(
        of.program,
        of.approximants,
        pointwise=pointwise,
        columns=columns,
        extended=of.state == "exact" and not of.program.placement,
        primitives=primitives,
        bottoms=BOTTOMS,
        at=at or evaluated,
    )
    for lane, radius in off.items():
        affine.given(lane, radius[:, :1] if of.program.stream[lane].shared else radius)
    return affine


def follow_up(
    of: Compiled, errors: Errors, exactly: State, earlier: Affine, ended: Boundary, at: Remembered | None = None
) -> Affine:
    """At the beginning of the next step, with the weights as the last step left them. exactly: the lanes at the
    beginning. State that no step writes keeps the error that it had.
    """
    program, learned = of.program, {lane.name for lane in _learned(of.program)}
    affine = fresh(of, errors, started(program, ended.after, exactly), at=at)
    for lane in program.stream.lanes:
        if lane.role == "state" and lane.name not in learned:
            like = ended.after[lane.name]
            affine.given(lane.name, earlier.radius(lane.name, like[:, :1] if lane.shared else like))
    ended.cross(affine)
    return affine


def _step(affine: Affine, path: _Path, after: State) -> StepCertificate:
    radii = {lane.name: radius_of(path.error(affine, lane), path.like(lane, after)) for lane in path.lanes}
    radius = path.flat(radii)[:, path.learned] * INFLATION
    return StepCertificate(
        radius, affine.parts([lane.name for lane in path.lanes]), dict(affine.worst), tuple(affine.culprits)
    )


def _learned(program: Program) -> list[Lane]:
    """The lanes that a step changes and the next one starts from; not those that are made of them anew."""
    steps = [loop.layers for loop in program.body if loop.step]
    written = {i.dst.lane for layers in steps for layer in layers for i in layer.instructions}
    made = {lane for layers in steps for lane in remade(program, layers[-1])}
    return [
        lane
        for lane in program.stream.lanes
        if lane.role == "weight" or (lane.role == "state" and lane.name in written and lane.name not in made)
    ]


def remade(program: Program, layer: Layer) -> dict[str, tuple[Attend, ...]]:
    """The state that the last layer of a step makes anew from weights and inputs for the next step, such as z_1 = V_1
    x: the lanes that it clears, and the values that it writes into them. Given the weights, the earlier values do not
    matter.
    """
    written = {i.dst.lane for i in layer.instructions}
    found = dict[str, tuple[Attend, ...]]()
    for lane in (lane for lane in program.stream.lanes if lane.role == "state" and lane.name in written):
        writers = tuple(i for i in layer.instructions if i.dst.lane == lane.name)
        maps = [f for i in writers if (f := in_place(i)) is not None]
        read = {view.lane for i in writers if in_place(i) is None for view in (*i.views(),)[1:]}
        kept = (program.stream[name].role != "scratch" and name not in written for name in read)
        if read and all(kept) and any(not any(f.plus_identity.slopes) for f in maps):
            found[lane.name] = writers
    return found


class Boundary(NamedTuple):
    """Where a step ends: its last layer, and the lanes before and after it."""

    layer: Layer
    before: State
    after: State

    def cross(self, affine: Affine) -> None:
        """The state that the layer makes anew for the next step, with the errors that the weights have by now."""
        made = remade(affine.program, self.layer)
        if made:
            writers = tuple(i for i in self.layer.instructions if i.dst.lane in made)
            affine.layer(
                replace(self.layer, instructions=writers),
                self.after | {lane: self.before[lane] for lane in made},
                self.after,
            )


class _Path:
    """The ellipsoid around the weights and state of a run that the exact ones are in, step by step."""

    def __init__(self, of: Compiled, prompt: Prompt, errors: Errors, off: Mapping[str, Tensor], at: Remembered) -> None:
        program = self.program = of.program
        self.lanes = _learned(program)
        state, number, places = prompt.state(program), 0, dict[str, Tensor]()
        for lane in self.lanes:
            shape = (1, *self.like(lane, state).shape[1:])
            places[lane.name] = torch.arange(number, number + math.prod(shape)).view(shape)
            number += math.prod(shape)
        self.size = number
        own = [places[lane.name].flatten() for lane in self.lanes if not lane.fill]  # pads are nothing that is learned
        weights = prompt.weights(program, places)[0] if program.weights else torch.cat(own)
        self.learned: Tensor = weights.long()
        self.affine = fresh(of, errors, off, columns=self.size <= ROUND, at=at)
        self.finite = True  # for some prompt of the batch

    def like(self, lane: Lane, state: State) -> Tensor:
        """The lane as far as it is learned: in the tokens that carry weights, if there are such."""
        if lane.shared:
            return state[lane.name][:, :1]
        return state[lane.name][:, : self.program.carriers] if self.program.placement else state[lane.name]

    def error(self, affine: Affine, lane: Lane) -> Error:
        """Of the lane as far as it is learned."""
        error = affine.errors.get(lane.name, {})
        if not self.program.placement or lane.shared:
            return error
        return {key: part[:, : self.program.carriers] for key, part in error.items()}

    def flat(self, parts: dict[str, Tensor]) -> Tensor:
        """(batch, entries) from lanes (batch, tokens or 1, *shape); a last axis of symbols is kept."""
        return torch.cat([parts[lane.name].flatten(1) for lane in self.lanes], dim=1)

    def end_step(self, ended: Boundary) -> Tensor:
        """Encloses the image of the ellipsoid under the step, and starts the next step from there. Returns the bound
        (batch,).
        """
        after = ended.after
        errors = {lane.name: self.error(self.affine, lane) for lane in self.lanes}
        likes = {lane.name: self.like(lane, after) for lane in self.lanes}
        keys = dict.fromkeys(key for error in errors.values() for key in error if key.kind == "S")
        M, columns = self._matrix(BEFORE, errors, likes), [self._matrix(key, errors, likes) for key in keys]
        units = self._units({name: radius_of(errors[name], like) for name, like in likes.items()})
        R = self.flat({name: radius_of(errors[name], like, "IR") for name, like in likes.items()})
        balls = self.flat({name: _spread(errors[name].get(BALL), like) for name, like in likes.items()})
        fresh = [part for part in columns if part is not None]
        A = _enclose(M, fresh, R, balls, units, self.program.steps)
        bound = spectral_norm(A[:, self.learned])
        lost = (bound > LOST) | self._elsewhere(after)
        A, bound = torch.where(lost[:, None, None], math.inf, A), torch.where(lost, math.inf, bound)
        self.affine.collapse()
        start = 0
        for name, like in likes.items():
            entries = math.prod(like.shape[1:])
            block = A[:, start : start + entries].reshape(*like.shape, -1)
            others = after[name].shape[1] - like.shape[1] if self.program.placement else 0  # exact: they carry nothing
            self.affine.start(name, torch.cat([block, block.new_zeros(len(A), others, *block.shape[2:])], dim=1))
            start += entries
        ended.cross(self.affine)
        self.finite = bool(torch.isfinite(bound).any())
        return bound

    def _elsewhere(self, after: State) -> Tensor:
        """Which prompts' weights or state may be off in tokens that carry none: (batch,)."""
        off = torch.zeros(len(after["x"]), dtype=torch.bool)
        for lane in self.lanes if self.program.placement else ():
            if not lane.shared:
                radius = self.affine.radius(lane.name, after[lane.name])
                off |= (radius[:, self.program.carriers :] > 0).flatten(1).any(1)
        return off

    def _units(self, radii: dict[str, Tensor]) -> Tensor:
        """The size of each entry's error: one for all weights, one for every lane of other state."""
        largest = {name: torch.nan_to_num(part, posinf=0.0).flatten(1).amax(1) for name, part in radii.items()}
        weights = [largest[lane.name] for lane in self.program.weights]
        for lane in self.program.weights:
            largest[lane.name] = torch.stack(weights).amax(0)
        sizes = {name: largest[name].clamp(min=1e-100) for name in radii}
        return self.flat(
            {name: sizes[name].view(-1, *[1] * (part.ndim - 1)).expand_as(part) for name, part in radii.items()}
        )

    def _matrix(self, key: Key, errors: dict[str, Error], likes: dict[str, Tensor]) -> Tensor | None:
        """Coefficients of all entries of weights and state, (batch, entries, symbols)."""
        widths = [error[key].shape[-1] for error in errors.values() if key in error]
        if not widths:
            return None
        rows = [
            errors[name].get(key, like.new_zeros(1)).expand(*like.shape, widths[0]).reshape(len(like), -1, widths[0])
            for name, like in likes.items()
        ]
        return torch.cat(rows, dim=1)


def _spread(ball: Tensor | None, like: Tensor) -> Tensor:
    """The ball b of a lane with m entries, of each token, as numbers e = b / sqrt(m) of its entries: like boxes, balls
    together are inside the ellipsoid of shape diag(e_i sum_j e_j).
    """
    if ball is None:
        return torch.zeros_like(like)
    return (ball / math.sqrt(max(1, math.prod(like.shape[2:])))).expand_as(like)


def _enclose(
    M: Tensor | None, columns: list[Tensor], R: Tensor, balls: Tensor, units: Tensor, steps: int = 1
) -> Tensor:
    """A with {A xi} containing {M xi + C zeta + rho + beta}, where |xi| <= 1, |zeta_j| <= 1, |rho_i| <= R_i and |beta|
    <= ball. Infinite where that is not bounded. steps: how often this is done.

    The sum of ellipsoids {F_k xi} is inside {[F_1 / sqrt t_1, F_2 / sqrt t_2 ...] xi} for any t_k > 0 that add up to
    one. The sum of the squares of its axes is least for t_k proportional to the Frobenius norms of the F_k. A segment
    {c zeta} is the ellipsoid of one column; so a box is inside the one with columns e_i sqrt(R_i sum_j R_j). Lanes may
    differ by orders of magnitude, so every entry is measured in its ``units``.

    The image of earlier errors under M is often large along directions that do no harm. New errors are small along all
    directions. With the least sum of squares, the factor 1/t of the new errors would be as large as the quotient of
    both. That would also enlarge directions along which later steps diverge. So it has a share of at least 1 / (4
    steps): that enlarges the rest by less than 14% over all steps. A is the triangular factor of the columns, not the
    root of their products, which would lose half of the digits, again in all directions.
    """
    rows, identity = units.unsqueeze(-1), torch.eye(R.shape[1], dtype=torch.float64)
    M = None if M is None else M / rows
    if R.shape[1] > ROUND:  # a ball, in units
        axis = ((R / units).norm(dim=-1) + (balls / units).norm(dim=-1))[:, None, None]
        axis = axis if M is None else axis + spectral_norm(M)[:, None, None]
        return torch.where(_small(axis), axis, math.inf) * INFLATION * rows * identity
    R, balls = R / units, balls / units
    C = [_segments(torch.cat(columns, dim=-1) / rows)] if columns else []
    given = [R, balls, *C, *([] if M is None else [M])]
    known = torch.stack([_small(part.flatten(1)).all(1) for part in given]).all(0)
    R, balls, *others = (torch.where(known.view(-1, *[1] * (part.ndim - 1)), part, 0.0) for part in given)
    C, old = (others, None) if M is None else (others[:-1], others[-1])
    A = _factor(old, [_box(R), _box(balls), *C], steps)
    off = 2 * _off(A, len(given))
    A = _factor(old, [_box(R + off), _box(balls), *C], steps)
    known = known & (off >= _off(A, len(given))).all(-1)
    return torch.where(known[:, None, None], rows * A * INFLATION, math.inf)


def _box(sizes: Tensor) -> Tensor:
    """The columns of an ellipsoid around a box, or around balls of some entries each."""
    return torch.diag_embed((sizes * sizes.sum(-1, keepdim=True)).sqrt())


def _segments(C: Tensor) -> Tensor:
    """The columns of an ellipsoid around a sum of segments {c zeta}: as many as there are entries."""
    lengths = C.norm(dim=1, keepdim=True).clamp(min=1e-150)
    shape = lengths.sum(-1, keepdim=True) * (C / lengths) @ C.mT
    trace = torch.nan_to_num(shape.diagonal(dim1=1, dim2=2).sum(-1), posinf=0.0, nan=0.0)
    slack = max(1e-12, 4 * C.shape[-1] * U) * trace + 1e-200  # pays for the rounding of the product and of its root
    identity = torch.eye(C.shape[1], dtype=torch.float64)
    finite = _small(shape.flatten(1)).all(1)[:, None, None]
    root = torch.linalg.cholesky(torch.where(finite, shape + slack[:, None, None] * identity, identity))
    return torch.where(finite, root, math.inf)


def _factor(old: Tensor | None, new: list[Tensor], steps: int) -> Tensor:
    """The triangular A of {A xi} around the sum of the ellipsoids, each given by its columns."""
    sizes = torch.stack([part.flatten(1).norm(dim=-1) for part in new]).clamp(min=1e-100)
    fresh, parts = sizes.sum(0), list(new)
    shares = sizes / fresh
    if old is not None:
        share = (fresh / (fresh + old.flatten(1).norm(dim=-1))).clamp(min=1 / (4 * steps))
        parts, shares = [old, *new], torch.cat([1 - share[None], shares * share])
    columns = [part / share.sqrt()[:, None, None] for part, share in zip(parts, shares.clamp(min=1e-60), strict=True)]
    triangular: Tensor = torch.linalg.qr(torch.cat(columns, dim=-1).mT, mode="r").R
    return triangular.mT


def _off(A: Tensor, parts: int) -> Tensor:
    """The error of the rows of the factor of so many square parts: Higham 2002, Theorem 19.4, with 4 for its small
    constant. Rows that are tiny beside the others count for a little more: they grow when this is enclosed, too.
    """
    lengths: Tensor = A.norm(dim=-1)
    return 4 * parts * A.shape[1] ** 2 * U * torch.maximum(lengths, 1e-6 * lengths.sum(-1, keepdim=True))


def _small(value: Tensor) -> Tensor:
    """Neither infinite nor on the way there."""
    return value.abs() < 1e100
