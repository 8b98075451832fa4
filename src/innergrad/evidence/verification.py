"""Laws that the weights must satisfy, checked on data: each can fail, and says by how much.

Each layer of the module is compared with the program on the *module's own stream*, so the layer that is wrong is named:

    weights         every layer of the module computes what the plain interpreter computes (float64 rounding)
    probe           the same on random streams that drive every hinge, also those the data never reach (e.g. the box)
    proof           every approximant has a sup error of at most epsilon, proven again; on targets whose approximants
                    are fitted, not proven, this law is called ``fit`` and is checked on a grid
    approximation   every layer is within its approximants' proven errors of the exact functions
    oracle          the exact program is the algorithm: weights, predictions, those at every prefix and standard
                    deviations equal autograd's (or another oracle's)
    examples        after one step: queries do not change the weights, an example of weight 2 counts as two, one of
                    weight 0 as none; where examples have no weights: a query's prediction depends on no other query,
                    and in a causal program on no later example
    shared          the weights are equal in all tokens; where tokens of their own carry them, they are zero elsewhere
    scratch         scratch lanes are exactly zero after every step
    inputs          input lanes are untouched (the read-out writes the prediction on query tokens only)
    box             weight lanes stay within their declared bounds

Besides the laws the report gives the distance to the oracle per step, and the number of *ramp hits*: arguments at which
the derivative of a piecewise-linear activation was replaced by a ramp. Steps with a hit carry no epsilon claim.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from innergrad.errors import DomainError, InputError, integer, seed_number
from innergrad.evidence.report import Law, Report, WorstCase
from innergrad.functions.approximants import approximate, prove
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import RECIPROCAL, Function, PiecewiseLinear
from innergrad.interpret import plain
from innergrad.interpret.balls import Off, radii_after
from innergrad.interpret.tensors import Labelled
from innergrad.ir.program import Attend, Layer, Score
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import executor_of
from innergrad.model.prompt import ArrayLike, Prompt, placed

U = 2.0**-53


def verify(
    tf: Compiled,
    X: ArrayLike | None,
    y: ArrayLike | None,
    X_query: ArrayLike | None,
    *,
    w0: ArrayLike | None,
    sample_weight: ArrayLike | None,
    seed: int,
    prompts: int,
) -> Report:
    """Check all laws on the given data, or on ``prompts`` random prompts of n_examples examples and one query."""
    if (X is None) != (y is None) or (X is None and X_query is not None):
        raise InputError("verify takes X and y together, or neither", hint="without data it draws random prompts")
    if X is None or y is None:
        prompt = random_prompt(tf, seed, prompts, w0)
    else:
        prompt = tf.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, seed=seed)
        for _ in executor_of(tf, "plain").layers(prompt, tf.guard()):
            pass  # raises where the prompt leaves the domain: there the weights claim nothing
    return _Verification(tf, prompt, seed).report()


def random_prompt(tf: Compiled, seed: int, prompts: int, w0: ArrayLike | None) -> Prompt:
    """Random prompts and weights inside the domain the transformer was compiled for."""
    generator, options = torch.Generator().manual_seed(seed_number(seed)), tf.options
    integer("prompts", prompts)
    drawn = [tf.algorithm.random_prompt(options.n_examples, 1, generator) for _ in range(prompts)]
    X, y, X_query = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    starts = [start for i in range(prompts) if (start := tf.algorithm.initial_weights(seed + i)) is not None]
    if w0 is None and starts:
        bounds = torch.tensor(tf.program.weight_bounds, dtype=torch.float64)
        w0 = torch.stack(starts).clamp(-bounds, bounds)
    if options.y_bound is not None:
        y = y.clamp(-options.y_bound, options.y_bound)
    while True:  # halve inputs and targets until every function stays in its domain
        if options.x_bound is not None:
            X, X_query = X.clamp(-options.x_bound, options.x_bound), X_query.clamp(-options.x_bound, options.x_bound)
        try:
            prompt = tf.prompt(X, y, X_query, w0=w0, seed=seed)
            for _ in executor_of(tf, "plain").layers(prompt, tf.guard()):
                pass
            return prompt
        except DomainError:
            if float(X.abs().max()) < 1e-3:
                raise
            X, X_query, y = X / 2, X_query / 2, _halved(tf, X, y)


def _halved(tf: Compiled, X: Tensor, y: Tensor) -> Tensor:
    """The targets halved, unless they are labels."""
    try:
        tf.algorithm.check_prompt(X, y / 2, torch.ones(len(X), tf.program.n_weights, dtype=y.dtype))
    except InputError:
        return y
    return y / 2


class _Verification:
    def __init__(self, tf: Compiled, prompt: Prompt, seed: int) -> None:
        self.tf, self.prompt, self.seed = tf, prompt, seed
        self.rounding = tf.target.functions.rounding(tf.options)  # of a layer, relative to its largest number
        self.proof = "proof" if tf.target.proven else "fit"
        names = (
            "weights",
            "probe",
            self.proof,
            "approximation",
            "oracle",
            "examples",
            "shared",
            "scratch",
            "inputs",
            "box",
        )
        self.laws = {name: WorstCase(name, self.rounding) for name in names}
        # a probe tests the weights, not the approximation: approximants without their domains
        self.anywhere = {**tf.functions, **{name: _everywhere(f) for name, f in tf.approximants.items()}}
        self.spread = tf.target.functions.spread(tf.program, tf.approximants)
        self.laws["shared"].law = Law("shared", 0.0, self.spread)
        self.exactly = 0.0 if tf.target.proven else self.rounding  # clearing by GeLUs is exact up to rounding
        for name in ("scratch", "inputs", "box"):
            self.laws[name].law = Law(name, 0.0, self.exactly)

    def report(self) -> Report:
        try:
            trajectory, step_error, hits = self._walk()
        except DomainError as error:
            for _ in plain.run(self.tf.program, self.prompt.state(self.tf.program), self.tf.functions):
                pass  # raises if the prompt itself leaves the domain
            self.laws["weights"].see(math.inf, self.rounding, f"the module alone: {error}")
            return self._result([math.inf], [math.inf], [0])
        self._probe()
        self._proofs()
        self._examples()
        oracle = self._oracle()
        distance = (trajectory - oracle).norm(dim=-1).amax(0).tolist()
        return self._result(distance, step_error, hits)

    def _result(self, distance: list[float], step_error: list[float], hits: list[int]) -> Report:
        laws = tuple(worst.law for worst in self.laws.values())
        learned = "weights" if self.tf.program.weights else "predictions"
        return Report(laws, distance, step_error, hits, self.tf.options.epsilon, self.tf.target.proven, learned)

    def _oracle(self) -> Tensor:
        """Weights and predictions of the exact program against the algorithm's oracle, e.g. autograd."""
        tf, prompt, program = self.tf, self.prompt, self.tf.program
        path, state = [self._learned(prompt.state(program))], prompt.state(program)
        for _, after, step_ends in plain.run(program, state, program.functions()):
            state = after
            if step_ends:
                path.append(self._learned(state))
        oracle = self.tf.algorithm.reference(prompt.X, prompt.y, prompt.X_query, prompt.w0, prompt.omega)
        if oracle is None:
            self.laws["oracle"].law = Law("oracle", 0.0, 1e-10, "not checked: no oracle, the program stands for itself")
            return torch.stack(path, dim=1)
        missing = len(path) - oracle[0].shape[1]  # a causal program has a step for examples that a prompt may lack
        if program.causal and missing > 0:
            oracle = torch.cat([oracle[0], oracle[0][:, -1:].expand(-1, missing, -1)], dim=1), oracle[1]
        weights = torch.stack(path, dim=1) if program.weights else prompt.w0[:, None].expand_as(oracle[0])
        compared = [("weights", weights, oracle[0]), ("predictions", prompt.predictions(program, state), oracle[1])]
        online = tf.algorithm.reference_online(prompt.X, prompt.y, prompt.w0, prompt.omega) if program.causal else None
        if online is not None:
            compared.append(("online predictions", prompt.online(program, state), online))
        std = tf.algorithm.reference_std(prompt.X, prompt.X_query)
        if program.variance is not None and std is not None:
            lane = state[program.variance]
            compared.append(("std", tf.algorithm.std(lane[:, lane.shape[1] - std.shape[1] :]), std))
        for name, value, expected in compared:
            if value.shape != expected.shape:
                raise InputError(
                    f"the oracle's {name} have the wrong shape",
                    got=tuple(expected.shape),
                    allowed=str(tuple(value.shape)),
                )
            if value.numel():
                scale = max(1.0, float(expected.abs().max()))
                self.laws["oracle"].see(float((value - expected).abs().max()) / scale, 1e-10, name)
        return oracle[0] if program.weights else torch.stack(path, dim=1)

    def _learned(self, state: State) -> Tensor:
        """What is compared step by step: the weights, or, where there are none, the predictions so far."""
        if self.tf.program.weights:
            return self.prompt.weights(self.tf.program, state)
        return self.prompt.predictions(self.tf.program, state).flatten(1)

    def _proofs(self) -> None:
        """Sup errors, not taken from the approximants' own word; exact functions and ramps must be what they are."""
        for name, f in self.tf.program.functions().items():
            given, epsilon = self.tf.approximants.get(name), self.tf.options.accuracy(name)
            if given is None:
                continue
            if not isinstance(given, PiecewiseLinear):
                error = _sampled(f, given)
            elif f.exact is not None or f.jumps:
                error = 0.0 if given == approximate(f, epsilon) else math.inf
            else:
                try:
                    error = prove(f, given, epsilon).error
                except InputError:
                    error = math.inf
                error = max(error, given.error)
            widths = [] if self.tf.target.proven else [high - low for low, high in given.ramps]
            rounded = 64 * U * 9 / min(widths) if widths else 0.0  # |t| <= 8, times the slope of a ramp: as _rounded
            self.laws[self.proof].see(error, epsilon + rounded, name)

    def _examples(self) -> None:
        """Which examples and queries may have an effect on what."""
        if self.tf.algorithm.weighted and not self.tf.algorithm.by_place:
            self._weighted_examples()
        else:
            self._independent_queries()

    def _independent_queries(self) -> None:
        """The last query alone; in a causal program, the prompt without its last example."""
        p, program = self.prompt, self.tf.program
        cases: list[tuple[str, Tensor, Tensor]] = []
        if p.X_query.shape[1]:
            alone = replace(p, X_query=p.X_query[:, -1:])
            cases.append(("the other queries", self._outcome(p)[0][:, -1:], self._outcome(alone)[0]))
        if program.causal and p.X.shape[1] > 1:
            shorter = replace(p, X=p.X[:, :-1], y=p.y[:, :-1], omega=p.omega[:, :-1])
            cases.append(("a later example", self._outcome(p)[1][:, :-1], self._outcome(shorter)[1]))
        for name, a, b in cases:
            error = float((a - b).abs().max()) / max(1.0, float(a.abs().max()))
            self.laws["examples"].see(error, self.rounding, name)

    def _outcome(self, prompt: Prompt) -> tuple[Tensor, Tensor]:
        """Predictions at the queries, and at the examples (empty unless the program is causal), of the module."""
        program = self.tf.program
        state = program.stream.unpack(self.tf.module(program.stream.pack(prompt.state(program))))
        predictions = prompt.predictions(program, state)
        return predictions, prompt.online(program, state) if program.causal else predictions[:, :0]

    def _weighted_examples(self) -> None:
        """One step with and without queries, with an example doubled or dropped; as far as the prompt has room."""
        p, n, room = self.prompt, self.prompt.X.shape[1], self.prompt.X.shape[1]
        if self.tf.program.length is not None:
            room = self.tf.program.length - self.tf.program.carriers - n
            p = replace(p, X_query=p.X_query[:, : max(0, room - 1)])  # one token is for the example that is doubled
        even = torch.ones_like(p.omega) / n
        doubled, dropped = even.clone(), even.clone()
        doubled[:, 0], dropped[:, 0] = 2.0 / n, 0.0
        twice = replace(
            p,
            X=torch.cat([p.X, p.X[:, :1]], 1),
            y=torch.cat([p.y, p.y[:, :1]], 1),
            omega=torch.cat([even, even[:, :1]], 1) * n / (n + 1),
        )
        cases = [
            ("queries", replace(p, X_query=p.X_query[:, :0]), replace(p, X_query=p.X[:, :room])),
            ("an example of weight 2", replace(p, omega=doubled * n / (n + 1)), twice),
        ]
        if n > 1:
            without = replace(p, X=p.X[:, 1:], y=p.y[:, 1:], omega=even[:, 1:] * n / (n - 1))
            cases.append(("an example of weight 0", replace(p, omega=dropped * n / (n - 1)), without))
        cases = [case for case in cases if self._inside(case[1]) and self._inside(case[2])]
        if not cases:  # with other tokens, the same examples may leave the domain
            reason = "not checked: with one more or less of anything, the prompts leave the domain"
            self.laws["examples"].law = Law("examples", 0.0, self.rounding, reason)
        for name, one, other in cases:
            a, b = self._one_step(one), self._one_step(other)
            allowed = (self._allowed_step(one) + self._allowed_step(other)).expand_as(a)
            self._see("examples", (a - b).abs(), allowed, max(1.0, float(a.abs().max())), name)

    def _inside(self, prompt: Prompt) -> bool:
        """Whether a step on the prompt stays in the domain that the transformer was compiled for."""
        try:
            for _, _, step_ends in executor_of(self.tf, "plain").layers(prompt, self.tf.guard()):
                if step_ends:
                    break
        except DomainError:
            return False
        return True

    def _allowed_step(self, prompt: Prompt) -> Tensor:
        """How far the weights after one step may be from those of the program: what every layer may round by, carried
        through the layers after it. Where fits are averaged with, their errors may differ between two prompts.
        """
        program, state = self.tf.program, prompt.state(self.tf.program)
        radii = self._exactly_known(state)

        def off(score: Score, z: Labelled) -> Tensor:
            f = None if self.tf.proven or "S" not in z.labels else self.tf.approximants.get(score.f.name)
            return self._rounded(score, z) + (0.0 if f is None or f.ramps else f.error)

        for layer, step_ends in program.schedule():
            radii = radii_after(program, layer, state, self.anywhere, radii, off)
            before, state = state, plain.apply_layer(program, layer, state, self.anywhere)
            scale = self._scale(before, state)
            for lane in {i.dst.lane for i in layer.instructions}:
                radii[lane] = radii[lane] + self.rounding * self._size(lane, scale)
            if step_ends:
                break
        return prompt.weights(program, radii)

    def _exactly_known(self, state: State) -> State:
        return {name: torch.zeros_like(lane[:, :1]) for name, lane in state.items()}

    def _rounded(self, score: Score, z: Labelled) -> Tensor:
        """A ramp of width delta is a difference of two terms of size |z| / delta, times its height."""
        f = self.tf.approximants.get(score.f.name)
        height = max((abs(height) for _, height, _ in score.f.jumps), default=1.0)
        slope = max((max(1.0, height) / (high - low) for low, high in (f.ramps if f else ())), default=0.0)
        return 64 * U * slope * (z.tensor.abs() + 1)

    def _approximated(self, score: Score, z: Labelled) -> Tensor:
        """The error of the approximant; a step function has none, unless an argument fell into a ramp: then it is off
        by no more than the jump.
        """
        f = self.tf.approximants.get(score.f.name)
        if f is None or not f.ramps:
            return torch.full_like(z.tensor, 0.0 if f is None else f.error)
        jump, inside = max(abs(height) for _, height, _ in score.f.jumps), torch.zeros_like(z.tensor, dtype=torch.bool)
        for low, high in f.ramps:
            inside |= (z.tensor > low) & (z.tensor < high)
        return jump * inside + self._rounded(score, z)

    def _see(self, law: str, error: Tensor, allowed: Tensor, unit: float, where: str) -> None:
        """The entry that is nearest to what is allowed, or farthest beyond."""
        if error.numel():
            ratio = (error / allowed.clamp(min=1e-300)).nan_to_num(nan=math.inf)
            worst = torch.where(allowed < math.inf, ratio, 0.0).flatten().argmax()  # where nothing is known, no law
            value, limit = (float(part.flatten()[worst]) / unit for part in (error, allowed))
            self.laws[law].see(value, limit, where)

    def _one_step(self, prompt: Prompt) -> Tensor:
        """The weights after one step of the module."""
        program = self.tf.program
        h = program.stream.pack(prompt.state(program))
        for (_, step_ends), module in zip(program.schedule(), self.tf.module.layers(), strict=True):
            h = module(h)
            if step_ends:
                break
        return prompt.weights(program, program.stream.unpack(h))

    def _walk(self) -> tuple[Tensor, list[float], list[int]]:
        """Run the module, check every layer on its own stream; returns weights, error and ramp hits of every step."""
        tf, stream, exact = self.tf, self.tf.program.stream, self.tf.program.functions()
        start = self.prompt.state(tf.program)
        h = stream.pack(start)
        trajectory, step_error, hits, count = [self._learned(start)], [], [], 0
        ideal = start  # the exact algorithm, restarted from the module's state at every step

        def observe(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
            nonlocal count
            if score.f.name in tf.approximants:
                count += int(tf.approximants[score.f.name].hits(argument))

        body = tf.n_layers
        for number, ((layer, step_ends), module) in enumerate(
            zip(tf.program.schedule(), tf.module.layers(), strict=True)
        ):
            before = stream.unpack(h)
            h = module(h)
            computed = plain.apply_layer(tf.program, layer, before, tf.functions, observer=observe)
            true = plain.apply_layer(tf.program, layer, before, exact)
            self._compare("weights", layer, before, stream.unpack(h), computed, self._rounded)
            self._compare("approximation", layer, before, stream.unpack(h), true, self._approximated)
            self._check_inputs(layer, start, stream.unpack(h), readout=number >= body)
            ideal = plain.apply_layer(tf.program, layer, ideal, exact) if number < body else ideal
            if step_ends:
                after = stream.unpack(h)
                self._check_step(after)
                step = (self._learned(after) - self._learned(ideal)).norm(dim=-1)
                lr = getattr(tf.algorithm, "lr", 1.0) or 1.0
                step_error.append(float(step.max()) / lr / tf.options.epsilon if step.numel() else 0.0)
                trajectory.append(self._learned(after))
                hits.append(count)
                ideal, count = after, 0
        return torch.stack(trajectory, dim=1), step_error, hits

    def _probe(self) -> None:
        """Every stored layer on random streams of several magnitudes, with shared lanes shared.

        Lanes that have a meaning of their own (constants, positions, pads) keep what the prompt gives them; a lane of
        bounded products stays within a quarter of its bound; a division is checked on the data alone.
        """
        tf, stream = self.tf, self.tf.program.stream
        generator = torch.Generator().manual_seed(self.seed)
        state = self.prompt.state(tf.program)
        tokens = state["x"].shape[1]
        kept = {*tf.target.structural, *(mark.lane for mark in tf.program.marks)}
        bound = max(
            (lane.bound for lane in stream.lanes if lane.role == "weight" and math.isfinite(lane.bound)), default=1.0
        )
        domains = [extent for f in tf.approximants.values() if 0.0 < (extent := _extent(f)) < math.inf]
        for size in (
            *tf.target.probes,
            *([max(domains) / 2] if domains else ()),
        ):  # the last drives every unit of a fit
            probe: State = {}
            for lane in stream.lanes:
                shape = (4, 1 if lane.shared else tokens, *lane.shape)
                values = torch.randn(shape, generator=generator, dtype=torch.float64)
                values = values * size * (bound if lane.role == "weight" else 1.0)
                values = state[lane.name][:1].expand(shape) if lane.name in kept else values
                if tf.program.sink and not lane.shared:  # a sink has empty lanes
                    values = torch.cat([state[lane.name][:1, :1].expand(4, 1, *lane.shape), values[:, 1:]], dim=1)
                probe[lane.name] = values
            probe["one"] = torch.ones(4, 1, dtype=torch.float64)
            if tf.program.tokens == "interleaved":  # a label's token has no x, an input's no y
                label = state["t"][:1].unsqueeze(-1)
                probe["x"], probe["y"] = probe["x"] * (1 - label), probe["y"] * label
            for layer, module in zip(tf.program.layers, tf.module.stored_layers(), strict=True):
                given = self._told_apart(layer, self._divisible(layer, self._clamped(layer, probe), generator))
                h = stream.pack(given)
                after, expected = stream.unpack(module(h)), plain.apply_layer(tf.program, layer, given, self.anywhere)
                self._compare("probe", layer, stream.unpack(h), after, expected, self._probed)
        for value, limit, where in tf.target.norm.inspect(
            tf.program, list(tf.module.stored_layers()), stream.pack(state), tf.options
        ):
            self.laws["probe"].see(value, limit, where)

    def _clamped(self, layer: Layer, probe: State) -> State:
        """Factors of a layer's products within a quarter of their bounds."""
        limits = self.tf.target.bounds(self.tf.program, layer, self.tf.options)
        kept = self.tf.target.structural
        clamped = {
            name: probe[name].clamp(-high / 4, high / 4) for name, (_, high) in limits.items() if name not in kept
        }
        return {**probe, **clamped}

    def _told_apart(self, layer: Layer, probe: State) -> State:
        """Where heads tell tokens apart by their positions, a stream on which their scores are within bounds: halved
        until every argument is in the domain of its function.
        """
        kept, f = {"one", *self.tf.target.structural}, self.tf.approximants
        while self.tf.program.length is not None:
            seen = plain.arguments(self.tf.program, layer, probe, lambda score: score.f.name in f)
            if all(f[score.f.name].outside(argument) is None for _, score, argument in seen):
                break
            probe = {name: value if name in kept else value / 2 for name, value in probe.items()}
        return probe

    def _probed(self, score: Score, z: Labelled) -> Tensor:
        """Hinges are the same everywhere. A fit is not compared outside its domain: there exponentials, say, are large
        and cancel.
        """
        f = self.tf.approximants.get(score.f.name)
        if f is None or isinstance(f, PiecewiseLinear):
            return self._rounded(score, z)
        outside = (z.tensor < f.domain[0]) | (z.tensor > f.domain[1])
        return torch.where(outside, math.inf, self._rounded(score, z))

    def _divisible(self, layer: Layer, probe: State, generator: torch.Generator) -> State:
        """A random stream on which a layer can divide: divisors within their bounds, pads scaled by them."""
        ranges = self.tf.target.bounds(self.tf.program, layer, self.tf.options)
        divisors = {
            view.lane
            for i in layer.instructions
            for score in i.scores
            if score.f == RECIPROCAL
            for view in score.pairs[0][0]
        }
        given = dict(probe)
        for lane in divisors:
            low, high = ranges.get(lane, (1.0, 8.0))
            low = max(low, 0.1)  # LayerNorm's error grows as 1 / c^2; where c is smaller, what is divided is too
            spread = torch.rand(probe[lane].shape, generator=generator, dtype=torch.float64)
            given[lane] = low * (high / low) ** spread
            for pad in (pad for pad in self.tf.program.stream.lanes if pad.fill and pad.role == "state"):
                given[pad.name] = pad.fill * given[lane]
        return given

    def _compare(self, law: str, layer: Layer, before: State, after: State, expected: State, off: Off) -> None:
        """A layer may round, and lanes that it writes may be off by what its functions are off by."""
        scale, program = self._scale(before, after), self.tf.program
        radii = self._exactly_known(before)
        if self._inexact(law, layer):
            radii = radii_after(program, layer, before, program.functions(), radii, off)
        for name, value in after.items():
            size = self._size(name, scale)
            allowed = (self.rounding * size + radii[name]).expand_as(value)
            self._see(law, (value - expected[name]).abs(), allowed, size, f"layer {layer.name}, lane {name}")

    def _inexact(self, law: str, layer: Layer) -> bool:
        """Whether some function of a layer may be off by more than rounding, as far as the law is concerned."""
        names = {score.f.name for i in layer.instructions for score in i.scores}
        used = [f for name, f in self.tf.approximants.items() if name in names]
        fits = law == "probe" and any(not isinstance(f, PiecewiseLinear) for f in used)
        errors = law == "approximation" and any(f.error for f in used)
        return fits or errors or any(f.ramps for f in used)

    def _check_inputs(self, layer: Layer, start: State, after: State, *, readout: bool) -> None:
        for lane in self.tf.program.stream.lanes:
            if lane.role == "input":
                difference = after[lane.name] - start[lane.name]
                if readout and lane.name == self.tf.program.prediction:
                    difference = difference[:, : difference.shape[1] - self.prompt.X_query.shape[1]]
                self.laws["inputs"].see(
                    float(difference.abs().max()) if difference.numel() else 0.0,
                    0.0,
                    f"layer {layer.name}, lane {lane.name}",
                )

    def _check_step(self, after: State) -> None:
        program, alone = self.tf.program, State()
        if program.placement:
            alone = placed(program, self.prompt.weights(program, after), after["x"].shape[1])
        for lane in self.tf.program.stream.lanes:
            value = after[lane.name]
            largest = float(value.abs().max())
            if lane.role == "scratch":
                self.laws["scratch"].see(largest, self.exactly, f"lane {lane.name}")
            if lane.shared:
                spread = float((value - value[:, :1]).abs().max()) / max(1.0, largest)
                self.laws["shared"].see(spread, self.spread, f"lane {lane.name}")
            if lane.name in alone:
                self.laws["shared"].see(float((value - alone[lane.name]).abs().max()), 0.0, f"lane {lane.name}")
            if lane.role == "weight" and math.isfinite(lane.bound):
                slack = 0.0 if self.tf.target.proven else self.tf.options.epsilon  # a steep GeLU is a hinge nearly
                self.laws["box"].see(max(0.0, largest - lane.bound), slack, f"lane {lane.name}")

    def _scale(self, before: State, after: State) -> float:
        """The largest number in the stream, pads (which have a size of their own) aside."""
        lanes = [lane.name for lane in self.tf.program.stream.lanes if not lane.fill]
        return max(1.0, *(float(s[name].abs().max()) for s in (before, after) for name in lanes if s[name].numel()))

    def _size(self, name: str, scale: float) -> float:
        return max(scale, abs(self.tf.program.stream[name].fill))


def _extent(f: Approximant) -> float:
    """How far out a function on a bounded domain has units; infinite on an unbounded one."""
    if isinstance(f, PiecewiseLinear) and math.isfinite(f.domain[1]):
        return min(f.domain[1], max(map(abs, f.knots), default=0.0))
    return f.domain[1]


def _everywhere(f: Approximant) -> Approximant:
    """The approximant without its domain: a probe tests the weights, not the approximation."""
    return replace(f, domain=(-math.inf, math.inf))


def _sampled(f: Function, given: Approximant) -> float:
    """max |f - f^| on a grid over the domain (up to 8 where unbounded); of a step function, away from its ramps."""
    low, high = (end if math.isfinite(end) else math.copysign(8.0, end) for end in given.domain)
    t = torch.linspace(low, high, 50_001, dtype=torch.float64)
    for low, high in given.ramps:
        t = t[(t < 2 * low - high) | (t > 2 * high - low)]
    return float((given(t) - f(t)).abs().max())
