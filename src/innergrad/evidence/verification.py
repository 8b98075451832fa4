"""Laws that the weights must satisfy, checked on data: each can fail, and says by how much.

Each layer of the module is compared with the program on the *module's own stream*, so the layer that is wrong is named:

    weights         every layer of the module computes the same as the plain interpreter, up to rounding
    probe           the same on random streams that drive every hinge, also those the data never reach (e.g. the box)
    proof           every approximant has a sup error of at most epsilon, proven again; on targets whose approximants
                    are fitted, not proven, this law is called ``fit`` and is checked on a grid; where nothing is proven
                    about a function, it is called ``declared``, and rests on its author's word
    approximation   every layer is within its approximants' proven errors of the exact functions
    gradient        every step is one of the algorithm, from the weights before it, up to 200 epsilon times the learning
                    rate, and rounding. Without weights it is about the predictions
    oracle          the exact program is the algorithm: weights, predictions, those at every prefix and standard
                    deviations equal autograd's (or another oracle's), but for the proven remainder of a loss
    examples        after one step: queries do not change the weights, an example of weight 2 counts as two, one of
                    weight 0 as none; where examples have no weights: a query's prediction depends on no other query,
                    and in a causal program on no later example
    shared          the weights are equal in all tokens; where tokens of their own carry them, they are zero elsewhere
    scratch         scratch lanes are exactly zero after every step
    inputs          input lanes are untouched (the read-out writes the prediction on query tokens only)
    box             weight lanes stay within their declared bounds

A law that has no finite limit fails, and says where. Besides the laws the report gives the distance to the oracle per
step, and the number of *ramp hits*: arguments at which the derivative of a piecewise-linear activation was replaced by
a ramp. Only the law of the gradient accounts for a hit.

Limits follow the scale of the data. *Derived*: the rounding of a layer and of a step, from the sizes of the terms that
are added (:mod:`innergrad.evidence.limits`); zero, where nothing is rounded. *Measured*: three limits. Fitted products
and divisions have theirs (gpt, softmax, sigma), relative to the largest number in the stream. A gradient has 200
epsilon: the most of 4,032,000 steps of 8,064 configurations on data of size one is 153. The oracle may differ by 1e-10
of the largest number or, if that is more, as far as the exact program moves when its inputs change by 2^-40 of
themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from innergrad.errors import DomainError, InputError, integer, seed_number
from innergrad.evidence.limits import U, roundings, sizes_after
from innergrad.evidence.report import Report, WorstCase
from innergrad.functions.approximants import is_ramped, prove
from innergrad.functions.fits.sums import Approximant
from innergrad.functions.scalar import RECIPROCAL, PiecewiseLinear
from innergrad.functions.states import described, sampled
from innergrad.interpret import plain
from innergrad.interpret.pairs import radii_after
from innergrad.ir.program import Layer, Score
from innergrad.ir.stream import State
from innergrad.memory import require_memory
from innergrad.model.compiled import Compiled
from innergrad.model.executors import executor_of
from innergrad.model.prompt import ArrayLike, Prompt, placed
from innergrad.targets.parts.base import PIECE

ENTRY, STREAMS = 40, 12  # bytes of a nonzero weight; streams of a layer, and of its counterpart
FEWER = "take fewer prompts, or a smaller model"
WITHIN = 200.0  # epsilon, the error of a gradient
SIZE = 4.0  # of data, weights or labels: larger ones may be why the gradient is off
CHANGED = 2.0**-40  # of themselves, the inputs of the exact program, to see its reaction to rounding
Part = Callable[[Prompt, State], Tensor]  # of the results of a forward pass, or of their limits
Case = tuple[str, Prompt, Prompt, Part]  # the cause, two prompts that differ in it, the results


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
        require_memory(foreseen_bytes(tf, prompts, tf.options.n_examples + 1), "verifying", FEWER)
        prompt = random_prompt(tf, seed, prompts, w0)
    else:
        prompt = tf.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, seed=seed)
        tokens = prompt.X.shape[1] + prompt.X_query.shape[1]
        require_memory(foreseen_bytes(tf, len(prompt.X), tokens), "verifying", FEWER)
        _require_inside(tf, prompt)
    report = _Verification(tf, prompt, seed).report()
    if report.passed:
        tf.mark_checked()
    return report


def foreseen_bytes(tf: Compiled, prompts: int, tokens: int) -> int:
    """The memory of verification, about: matrices, streams with their counterparts, and the values of one layer at a
    time. A law gives the prompt as many queries as it has examples.
    """
    n, rows = 2 * max(4, integer("prompts", prompts)) * tokens, tf.cost().rows
    units = max((row.heads for row in rows if row.kind != "attention"), default=0)
    return ENTRY * tf.cost().nonzeros + 8 * (n * (STREAMS * tf.d_model + 3 * units) + 4 * PIECE)


def _require_inside(tf: Compiled, prompt: Prompt) -> None:
    """Refuse a prompt that leaves the domain: there the weights claim nothing."""
    executor_of(tf, "plain").run(prompt, (), tf.guard())


def random_prompt(tf: Compiled, seed: int, prompts: int, w0: ArrayLike | None) -> Prompt:
    """Random prompts and weights inside the domain the transformer was compiled for."""
    generator, options = torch.Generator().manual_seed(seed_number(seed)), tf.options
    integer("prompts", prompts)
    drawn = [tf.algorithm.random_prompt(options.n_examples, 1, generator) for _ in range(prompts)]
    X, y, X_query = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    starts = [start for i in range(prompts) if (start := tf.algorithm.initial_weights(seed + i)) is not None]
    if w0 is None and starts:
        bounds = torch.tensor(tf.program.weight_bounds, dtype=torch.float64)
        radius = getattr(tf.algorithm, "ball", None) or math.inf  # a fitted projection takes no start from far away
        w0 = torch.stack([start * min(1.0, radius / float(start.norm())) for start in starts]).clamp(-bounds, bounds)
    largest_x, largest_y = (math.inf if bound is None else bound for bound in (options.x_bound, options.y_bound))
    X, X_query = X.clamp(-largest_x, largest_x), X_query.clamp(-largest_x, largest_x)
    y = y.clamp(-largest_y, largest_y)
    while True:  # halve inputs and targets until every function stays in its domain
        try:
            prompt = tf.prompt(X, y, X_query, w0=w0, seed=seed)
            _require_inside(tf, prompt)
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
    """The laws while they are being checked, on a prompt inside the domain."""

    def __init__(self, tf: Compiled, prompt: Prompt, seed: int) -> None:
        self.tf, self.program, self.prompt, self.seed = tf, tf.program, prompt, seed
        # of a layer that is fitted, relative to its largest number; hinges only round
        self.fitted = 0.0 if tf.target.proven else tf.target.functions.rounding(tf.options)
        self.spread = 0.0 if tf.target.proven else tf.target.functions.spread(tf.program, tf.approximants)
        self.slack = dict[str, float]()  # the rounding of the lanes that this step wrote
        self.largest = dict[str, float]()  # entry of a lane before it was last written
        self.proof = "proof" if tf.proven else "fit" if tf.state == "measured" else "declared"
        limits = {
            "weights": self.fitted,
            "probe": self.fitted,
            self.proof: tf.options.epsilon,
            "approximation": self.fitted,
            "gradient": WITHIN,
            "oracle": 1e-10,
            "examples": self.fitted,
            "shared": self.spread,
            "scratch": self.fitted,  # clearing by GeLUs is exact up to rounding
            "inputs": 0.0,
            "box": 0.0 if tf.target.proven else tf.options.epsilon,  # a steep GeLU is a hinge nearly
        }
        self.laws = {name: WorstCase(name, limit) for name, limit in limits.items()}

    def report(self) -> Report:
        tf = self.tf
        try:
            trajectory, step_error, hits = self._walk()
        except DomainError as error:
            self.laws["weights"].see(math.inf, f"the module alone: {error}")
            distance, step_error, hits = [math.inf], [math.inf], [0]
        else:
            self._probe()
            self._proofs()
            self._examples()
            distance = (trajectory - self._oracle()).norm(dim=-1).amax(0).tolist()
        laws = tuple(worst.law for worst in self.laws.values())
        learned = "weights" if self.program.weights else "predictions"
        known = tf.state, tuple(described(tf.standings))
        return Report(laws, distance, step_error, hits, tf.options.epsilon, tf.proven, learned, *known)

    def _learned(self, state: State) -> Tensor:
        """The numbers that are compared step by step: the weights or, where there are none, the predictions so far."""
        predictions = self.prompt.predictions(self.program, state).flatten(1)
        return self.prompt.weights(self.program, state) if self.program.weights else predictions

    # ------------------------------------------------------------------------------------------- a run, layer by layer

    def _walk(self) -> tuple[Tensor, list[float], list[int]]:
        """Run the module, check every layer on its own stream; returns weights, error and ramp hits of every step."""
        tf, program, stream, exact = self.tf, self.program, self.program.stream, self.program.functions()
        start = self.prompt.state(program)
        h, ideal = stream.pack(start), start  # ideal: the exact algorithm, restarted from the module's at every step
        trajectory, step_error, hits, count = [self._learned(start)], list[float](), list[int](), 0
        drift = State()  # how far ideal may be from the module, by rounding alone
        for number, ((layer, step_ends), module) in enumerate(zip(program.schedule(), tf.module.layers(), strict=True)):
            before = stream.unpack(h)
            h = module(h)
            after = stream.unpack(h)
            rounded = self._rounding(layer, before)
            allowed = self._fitted(rounded, before)
            self._compare("weights", layer, before, allowed, after, self._plain(layer, before, tf.functions))
            self._compare("approximation", layer, before, allowed, after, self._plain(layer, before, exact))
            self._check_inputs(layer, start, after, readout=number >= tf.n_layers)
            for _, score, argument in plain.arguments(program, layer, before, lambda s: s.f.name in tf.approximants):
                count += int(tf.approximants[score.f.name].hits(argument))
            drift = self._carried(layer, before, drift, rounded, exact, lambda score, z: torch.zeros_like(z.tensor))
            for lane in {i.dst.lane for i in layer.instructions}:
                self.slack[lane] = self.slack.get(lane, 0.0) + float(rounded[lane].max())
                self.largest[lane] = float(before[lane].abs().max())
            ideal = self._plain(layer, ideal, exact)
            if step_ends:
                self._check_step(after)
                step_error.append(self._check_gradient(after, ideal, drift, len(hits) + 1, count))
                trajectory.append(self._learned(after))
                hits.append(count)
                ideal, count, drift, self.slack = after, 0, State(), {}
        return torch.stack(trajectory, dim=1), step_error, hits

    def _plain(self, layer: Layer, before: State, functions: Mapping[str, plain.ScalarFunction]) -> State:
        return plain.apply_layer(self.program, layer, before, functions)

    def _check_gradient(self, after: State, ideal: State, drift: State, number: int, hits: int) -> float:
        """The error of a step over the learning rate, in units of epsilon; its limit, or why there is none."""
        unit = (getattr(self.tf.algorithm, "lr", 1.0) or 1.0) * self.tf.options.epsilon
        error = (self._learned(after) - self._learned(ideal)).norm(dim=-1) / unit
        rounded = self._learned(drift).norm(dim=-1).nan_to_num(nan=0.0, posinf=0.0) / unit  # unknown: allows nothing
        if not error.numel():
            return 0.0
        coarse = max(1.0, self.fitted / self.tf.options.epsilon)
        limits = WITHIN * coarse + rounded
        ratio = error / limits
        worst = int(ratio.nan_to_num(nan=math.inf).argmax())
        where = f"step {number}"
        if not bool(ratio[worst] <= 1.0):
            sizes = {name: float(part.abs().max()) for name, part in self._inputs() if part.numel()}
            if hits:
                where += f"; {hits} arguments on a ramp"
            elif self.tf.approximants and max(sizes.values()) > SIZE:
                found = ", ".join(f"{name} is up to {size:.1e}" for name, size in sizes.items())
                where += f"; approximants are for data of size one: {found}; scale the data, or lower epsilon"
        self.laws["gradient"].see(float(error[worst]), where, float(limits[worst]))
        return float(error.max())

    def _inputs(self) -> tuple[tuple[str, Tensor], ...]:
        return ("x", self.prompt.X), ("y", self.prompt.y), ("w", self.prompt.w0)

    def _rounding(self, layer: Layer, before: State) -> State:
        """The allowed error of the lanes after a layer, by rounding: it follows from the sizes of the terms."""
        tf, tokens = self.tf, max(value.shape[1] for value in before.values())
        unit = roundings(self.program, tf.approximants, tokens) * U
        sizes = sizes_after(self.program, layer, before, tf.functions, tf.approximants)
        return {name: unit * size for name, size in sizes.items()}

    def _fitted(self, rounded: State, before: State) -> State:
        """And by fits, relative to the largest number in the stream; pads have a size of their own."""
        if not self.fitted:
            return rounded
        lanes = self.program.stream.lanes
        largest = max([1.0, *(float(before[lane.name].abs().max()) for lane in lanes if not lane.fill)])
        return {lane.name: rounded[lane.name] + self.fitted * max(largest, abs(lane.fill)) for lane in lanes}

    def _carried(
        self,
        layer: Layer,
        before: State,
        radii: State,
        rounded: State,
        functions: Mapping[str, plain.ScalarFunction],
        off: Callable[[Score, plain.Labelled], Tensor],
    ) -> State:
        """The errors of lanes after a layer that rounds. Of a lane that is not written nothing is rounded."""
        after = radii_after(self.program, layer, before, functions, radii, off)
        for lane in {i.dst.lane for i in layer.instructions}:
            after[lane] = after[lane] + rounded[lane]
        return after

    def _compare(self, law: str, layer: Layer, before: State, rounded: State, after: State, expected: State) -> None:
        """A layer may round, and lanes that it writes may have the errors of its functions."""
        radii = State()
        if self._inexact(law, layer):
            functions = self.program.functions()
            radii = radii_after(self.program, layer, before, functions, radii, partial(self._off, law))
        over = (bool(((after[n] - expected[n]).abs() > rounded[n] + radii.get(n, 0.0)).any()) for n in after)
        if any(over) and (apart := self._apart(before)):
            used = self.tf.functions if law == "weights" else self.program.functions()
            radii = radii_after(self.program, layer, before, used, apart, partial(self._off, law))
        written = {i.dst.lane for i in layer.instructions}
        for name, value in after.items():
            if name not in written and torch.equal(value, expected[name]):
                continue  # as it was
            where, allowed = f"layer {layer.name}, lane {name}", rounded[name].expand_as(value)
            if bool(torch.isfinite(allowed).all()):
                self._see(law, (value - expected[name]).abs(), allowed + radii.get(name, 0.0), where)
            else:
                self.laws[law].see(math.inf, f"{where}: its limit for rounding is not finite")

    def _apart(self, before: State) -> State:
        """How far tokens are apart in lanes that they share: each token rounds by itself, and the interpreter reads one
        of them. Of a weight that is almost zero, that is more than its own rounding. The law ``shared`` limits it.
        """
        shared = {lane.name: before[lane.name] for lane in self.program.stream.lanes if lane.shared}
        apart = {name: (value - value[:, :1]).abs().amax(1, keepdim=True) for name, value in shared.items()}
        return {name: spread.expand_as(shared[name]) for name, spread in apart.items() if bool(spread.any())}

    def _see(self, law: str, error: Tensor, allowed: Tensor, where: str) -> None:
        """The entry that is nearest to its limit, or farthest beyond. Only a probe leaves out entries of which nothing
        is known; where another law has no limit, it fails.
        """
        known = torch.isfinite(allowed)
        if not bool(known.all()) and law != "probe":
            self.laws[law].see(math.inf, f"{where}: its limit is not finite")
        elif error.numel():
            ratio = torch.where(error == 0.0, 0.0, error / allowed.clamp(min=1e-300)).nan_to_num(nan=math.inf)
            worst = torch.where(known, ratio, 0.0).flatten().argmax()
            value, limit = (float(part.flatten()[worst]) for part in (error, allowed))
            self.laws[law].see(value, where, limit)

    def _inexact(self, law: str, layer: Layer) -> bool:
        """Whether some function of a layer may be off by more than rounding, as far as the law is concerned."""
        names = {score.f.name for i in layer.instructions for score in i.scores}
        used = [f for name, f in self.tf.approximants.items() if name in names]
        fits = law == "probe" and any(not isinstance(f, PiecewiseLinear) for f in used)
        return fits or (law == "approximation" and any(f.ramps or f.error for f in used))

    def _off(self, law: str, score: Score, z: plain.Labelled) -> Tensor:
        """The allowed error of a function at its arguments, beside rounding.

        approximation: the error of the approximant. A step function has none, unless an argument fell into a ramp: then
        it is off by no more than the jump. probe: a fit is not compared outside its domain, where exponentials, for
        example, are large and cancel. examples: where fits take part in averages, their errors may differ between two
        prompts.
        """
        f, at = self.tf.approximants.get(score.f.name), z.tensor
        off = torch.zeros_like(at)
        if f is None:
            return off
        if law == "approximation":
            jump = max((abs(height) for _, height, _ in score.f.jumps), default=1.0)
            for low, high in f.ramps:
                off = off + jump * ((at > low) & (at < high))
        if law == "probe" and not isinstance(f, PiecewiseLinear):
            return torch.where((at < f.domain[0]) | (at > f.domain[1]), math.inf, off)
        averaged = law == "examples" and not self.tf.target.proven and "S" in z.labels
        return off + f.error if not f.ramps and (averaged or law == "approximation") else off

    def _check_inputs(self, layer: Layer, start: State, after: State, *, readout: bool) -> None:
        for lane in self.program.stream.lanes:
            if lane.role == "input":
                difference = after[lane.name] - start[lane.name]
                if readout and lane.name == self.program.prediction:
                    difference = difference[:, : difference.shape[1] - self.prompt.X_query.shape[1]]
                largest = float(difference.abs().max()) if difference.numel() else 0.0
                self.laws["inputs"].see(largest, f"layer {layer.name}, lane {lane.name}")

    def _check_step(self, after: State) -> None:
        program, alone = self.program, State()
        if program.placement:
            alone = placed(program, self.prompt.weights(program, after), after["x"].shape[1])
        for lane in program.stream.lanes:
            value, where = after[lane.name], f"lane {lane.name}"
            largest = float(value.abs().max())
            rounded = self.slack.get(lane.name, 0.0)
            if lane.role == "scratch":
                self.laws["scratch"].see(largest, where, self.fitted and self.fitted + rounded)
            if lane.shared:
                apart = float((value - value[:, :1]).abs().max())
                self.laws["shared"].see(apart, where, self.spread * max(1.0, largest) + 2 * rounded)
            if lane.name in alone:
                self.laws["shared"].see(float((value - alone[lane.name]).abs().max()), where, 0.0)
            if lane.role == "weight":  # w + (b - w) is b exactly for b <= w <= 2 b (Sterbenz 1974)
                limit = self.laws["box"].limit + (rounded if self.largest.get(lane.name, 0.0) > 2 * lane.bound else 0.0)
                self.laws["box"].see(max(0.0, largest - lane.bound), where, limit)

    # -------------------------------------------------------------------------------------------------- random streams

    def _probe(self) -> None:
        """Every stored layer on random streams of several magnitudes: this tests the weights, not the approximation, so
        approximants are used also outside their domains.
        """
        tf, program, stream = self.tf, self.program, self.program.stream
        generator, state = torch.Generator().manual_seed(self.seed), self.prompt.state(self.program)
        domains = [extent for f in tf.approximants.values() if 0.0 < (extent := _extent(f)) < math.inf]
        every_unit = [max(domains) / 2] if domains else []  # drives every unit of a fit
        drawn = [self._drawn(size, state, generator) for size in (*tf.target.probes, *every_unit)]
        bounded = {lane.name for lane in program.weights if math.isfinite(lane.bound)}
        for number, probe in enumerate([*drawn, self._beyond(drawn[0])] if bounded else drawn):
            for layer, module in zip(program.layers, tf.module.stored_layers(), strict=True):
                if number == len(drawn) and not bounded & {i.dst.lane for i in layer.instructions}:
                    continue
                h = stream.pack(self._suited(layer, probe, generator))
                before, after = stream.unpack(h), stream.unpack(module(h))
                expected = plain.apply_layer(program, layer, before, tf.functions, observer=lambda *_: None)
                allowed = self._fitted(self._rounding(layer, before), before)
                self._compare("probe", layer, before, allowed, after, expected)
        for value, limit, where in tf.target.norm.inspect(
            program, list(tf.module.stored_layers()), stream.pack(state), tf.options
        ):
            self.laws["probe"].see(value, where, limit)

    def _beyond(self, probe: State) -> State:
        """The stream with weights beyond their bounds, above in half of the prompts and below in the others."""
        beyond = dict(probe)
        for lane in (lane for lane in self.program.weights if math.isfinite(lane.bound)):
            value = probe[lane.name].abs() / 4 + 1.25 * lane.bound
            beyond[lane.name] = torch.cat([value[:2], -value[2:]])
        return beyond

    def _drawn(self, size: float, state: State, generator: torch.Generator) -> State:
        """A random stream, with shared lanes shared. Lanes that have a meaning of their own (constants, positions,
        pads) keep the prompt's values.
        """
        program, probe, tokens = self.program, State(), state["x"].shape[1]
        kept = {"one", *self.tf.target.structural, *(mark.lane for mark in program.marks)}
        bound = max((lane.bound for lane in program.weights if math.isfinite(lane.bound)), default=1.0)
        for lane in program.stream.lanes:
            shape = (4, 1 if lane.shared else tokens, *lane.shape)
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            values = values * size * (bound if lane.role == "weight" else 1.0)
            values = state[lane.name][:1].expand(shape) if lane.name in kept else values
            if program.sink and not lane.shared:  # a sink has empty lanes
                values = torch.cat([state[lane.name][:1, :1].expand(4, 1, *lane.shape), values[:, 1:]], dim=1)
            probe[lane.name] = values
        if program.tokens == "interleaved":  # a label's token has no x, an input's no y
            label = state["t"][:1].unsqueeze(-1)
            probe["x"], probe["y"] = probe["x"] * (1 - label), probe["y"] * label
        return probe

    def _suited(self, layer: Layer, probe: State, generator: torch.Generator) -> State:
        """The stream as the layer can take it: factors of products within a quarter of their bounds; divisors within
        theirs, and pads scaled by them. Where heads tell tokens apart by their positions, so that scores must be within
        bounds, it is halved until every argument is in the domain of its function.
        """
        program, f, ranges = self.program, self.tf.approximants, self.tf.ranges(layer)
        kept = {"one", *self.tf.target.structural}
        clamped = {name: probe[name].clamp(-high / 4, high / 4) for name, (_, high) in ranges.items()}
        given = {name: value if name in kept else clamped.get(name, value) for name, value in probe.items()}
        scores = [score for i in layer.instructions for score in i.scores]
        for lane in {view.lane for score in scores if score.f == RECIPROCAL for view in score.pairs[0][0]}:
            low, high = ranges.get(lane, (1.0, 8.0))
            low = max(low, 0.1)  # LayerNorm's error grows as 1 / c^2; where c is smaller, the dividend is too
            spread = torch.rand(probe[lane].shape, generator=generator, dtype=torch.float64)
            given[lane] = low * (high / low) ** spread
            pads = (pad for pad in program.stream.lanes if pad.fill and pad.role == "state")
            given |= {pad.name: pad.fill * given[lane] for pad in pads}
        while program.length is not None:
            seen = plain.arguments(program, layer, given, lambda score: score.f.name in f)
            if all(f[score.f.name].outside(argument) is None for _, score, argument in seen):
                break
            given = {name: value if name in kept else value / 2 for name, value in given.items()}
        return given

    # ---------------------------------------------------------------------------------------------------- approximants

    def _proofs(self) -> None:
        """Sup errors, without trusting the approximants' own word; exact functions and ramps must be as declared."""
        for name, f in self.program.functions().items():
            given = self.tf.approximants.get(name)
            if given is None:
                continue
            epsilon = self.tf.accuracies[name]
            if not isinstance(given, PiecewiseLinear):
                error = sampled(f, given, 50_001)
            elif f.exact is not None:
                error = 0.0 if given == f.exact else math.inf
            elif f.jumps:
                error = 0.0 if is_ramped(f, given, epsilon) else math.inf
            else:
                try:
                    error = max(given.error, prove(f, given, epsilon).error)
                except InputError:
                    error = math.inf
            widths = [] if self.tf.target.proven else [high - low for low, high in given.ramps]
            rounded = 64 * U * 9 / min(widths) if widths else 0.0  # |t| <= 8, times the slope of a ramp
            self.laws[self.proof].see(error, name, epsilon + rounded)

    # ---------------------------------------------------------------------------------------------------------- oracle

    def _oracle(self) -> Tensor:
        """Weights and predictions of the exact program against the algorithm's oracle, e.g. autograd. Returns the
        weights of every step.
        """
        tf, prompt, program = self.tf, self.prompt, self.program
        path, state = self._exactly(prompt)
        oracle = tf.algorithm.reference(prompt.X, prompt.y, prompt.X_query, prompt.w0, prompt.omega)
        if oracle is None:
            self.laws["oracle"].unchecked("no oracle, the program stands for itself")
            return path
        weights, predictions = oracle
        missing = path.shape[1] - weights.shape[1]  # a causal program has a step for examples that a prompt may lack
        if program.causal and missing > 0:
            weights = torch.cat([weights, weights[:, -1:].expand(-1, missing, -1)], dim=1)
        online = tf.algorithm.reference_online(prompt.X, prompt.y, prompt.w0, prompt.omega) if program.causal else None
        compared = {
            "weights": weights if program.weights else None,
            "predictions": predictions,
            "online predictions": online,
            "std": None if program.variance is None else tf.algorithm.reference_std(prompt.X, prompt.X_query),
        }
        found, near = self._results(path, state), self._results(*self._exactly(self._changed()))
        for name, expected in ((name, part) for name, part in compared.items() if part is not None):
            value = found[name]
            if value.shape != expected.shape:
                got, allowed = tuple(expected.shape), str(tuple(value.shape))
                raise InputError(f"the oracle's {name} have the wrong shape", got=got, allowed=allowed)
            if value.numel():
                moved = float((near[name] - value).abs().max())
                limit = max(self.laws["oracle"].limit * float(expected.abs().max()), moved) + self._remainder()
                self.laws["oracle"].see(float((value - expected).abs().max()), name, limit)
        return weights if program.weights else path

    def _remainder(self) -> float:
        """A function of the program may be known to differ from the algorithm's, as the terms of a loss of two
        variables do. Then a gradient may be as far off as by an approximant with that error.
        """
        rounded = sum(f.rounded for f in self.program.functions().values())
        return WITHIN * rounded * (getattr(self.tf.algorithm, "lr", 1.0) or 1.0) * self.program.steps

    def _exactly(self, prompt: Prompt) -> tuple[Tensor, State]:
        """The weights of the exact program step by step, and the lanes after its read-out."""
        start = state = prompt.state(self.program)
        steps = [self._learned(start)]
        for _, state, step_ends in plain.run(self.program, start, self.program.functions()):
            if step_ends:
                steps.append(self._learned(state))
        return torch.stack(steps, dim=1), state

    def _results(self, path: Tensor, state: State) -> dict[str, Tensor]:
        """The results that an oracle gives, too."""
        prompt, program = self.prompt, self.program
        found = {"weights": path, "predictions": prompt.predictions(program, state)}
        if program.causal:
            found["online predictions"] = prompt.online(program, state)
        if program.variance is not None:
            lane = state[program.variance]
            found["std"] = self.tf.algorithm.std(lane[:, lane.shape[1] - prompt.X_query.shape[1] :])
        return found

    def _changed(self) -> Prompt:
        """The prompt with every number changed a little, up or down."""
        prompt, generator = self.prompt, torch.Generator().manual_seed(self.seed)

        def other(part: Tensor) -> Tensor:
            sign = torch.randint(0, 2, part.shape, generator=generator, dtype=part.dtype) * 2 - 1
            return part * (1.0 + CHANGED * sign)

        X, y, X_query, w0 = map(other, (prompt.X, prompt.y, prompt.X_query, prompt.w0))
        return replace(prompt, X=X, y=y, X_query=X_query, w0=w0)

    # --------------------------------------------------------------------------------------------- examples and queries

    def _examples(self) -> None:
        """Which examples and queries may have an effect on which results: two prompts must lead to the same."""
        weighted = self.tf.algorithm.weighted and not self.tf.algorithm.by_place
        cases = self._other_weights() if weighted else self._others_left_out()
        outcome, checked = self._after_a_step if weighted else self._after_all, False
        for name, one, other, part in cases:
            try:
                (a, off), (b, more) = (outcome(prompt, part) for prompt in (one, other))
            except DomainError:  # with other tokens, the same examples may leave the domain
                continue
            self._see("examples", (a - b).abs(), off + more, name)
            checked = True
        if cases and not checked:
            self.laws["examples"].unchecked("with one more or less of anything, the prompts leave the domain")

    def _others_left_out(self) -> list[Case]:
        """The last query alone; in a causal program, the prompt without its last example."""
        p, program, cases = self.prompt, self.program, list[Case]()
        if p.X_query.shape[1]:
            alone = replace(p, X_query=p.X_query[:, -1:])
            cases.append(("the other queries", p, alone, lambda of, state: of.predictions(program, state)[:, -1:]))
        if program.causal and p.X.shape[1] > 1:
            shorter, n = replace(p, X=p.X[:, :-1], y=p.y[:, :-1], omega=p.omega[:, :-1]), p.X.shape[1]
            cases.append(("a later example", p, shorter, lambda of, state: of.online(program, state)[:, : n - 1]))
        return cases

    def _other_weights(self) -> list[Case]:
        """With and without queries, with an example doubled or dropped; as far as the prompt has room."""
        p, n, room = self.prompt, self.prompt.X.shape[1], self.prompt.X.shape[1]
        if self.program.length is not None:
            room = self.program.length - self.program.carriers - n
            p = replace(p, X_query=p.X_query[:, : max(0, room - 1)])  # one token is for the example that is doubled
        equal, first = torch.ones_like(p.omega), torch.zeros_like(p.omega)
        first[:, 0] = 1.0
        X, y, ones = (torch.cat([part, part[:, :1]], 1) for part in (p.X, p.y, equal))
        cases = [
            ("queries", replace(p, X_query=p.X_query[:, :0]), replace(p, X_query=p.X[:, :room])),
            (
                "an example of weight 2",
                replace(p, omega=(equal + first) / (n + 1)),
                replace(p, X=X, y=y, omega=ones / (n + 1)),
            ),
        ]
        if n > 1:
            without = replace(p, X=p.X[:, 1:], y=p.y[:, 1:], omega=equal[:, 1:] / (n - 1))
            cases.append(("an example of weight 0", replace(p, omega=(equal - first) / (n - 1)), without))
        return [(*case, lambda of, state: of.weights(self.program, state)) for case in cases]

    def _after_all(self, prompt: Prompt, part: Part) -> tuple[Tensor, Tensor]:
        """A part of the module's results, and its allowed error: half of that of a single layer, the one that adds the
        largest terms to the prediction. An error carried through all steps would allow anything.
        """
        stream, lane, most = self.program.stream, self.program.prediction, 0.0
        for layer, before, _ in self._watched(prompt):
            most = max(most, float(self._fitted(self._rounding(layer, before), before)[lane].max()))
        found = part(prompt, stream.unpack(self.tf.module(stream.pack(prompt.state(self.program)))))
        return found, torch.full_like(found, most / 2)

    def _after_a_step(self, prompt: Prompt, part: Part) -> tuple[Tensor, Tensor]:
        """The same after one step. Its allowed error is the rounding of every layer, carried through those after it."""
        program, radii = self.program, State()
        h = program.stream.pack(prompt.state(program))
        for (layer, before, step_ends), module in zip(self._watched(prompt), self.tf.module.layers(), strict=True):
            h = module(h)
            allowed = self._fitted(self._rounding(layer, before), before)
            radii = self._carried(layer, before, radii, allowed, self.tf.functions, partial(self._off, "examples"))
            if step_ends:
                break
        return part(prompt, program.stream.unpack(h)), part(prompt, radii).abs()

    def _watched(self, prompt: Prompt) -> Iterator[tuple[Layer, State, bool]]:
        """Every layer with the lanes before it, as the plain interpreter has them; raises outside the domain."""
        before = prompt.state(self.program)
        for layer, after, step_ends in executor_of(self.tf, "plain").layers(prompt, self.tf.guard()):
            yield layer, before, step_ends
            before = after


def _extent(f: Approximant) -> float:
    """How far out a function on a bounded domain has units; infinite on an unbounded one."""
    if isinstance(f, PiecewiseLinear) and math.isfinite(f.domain[1]):
        return min(f.domain[1], max(map(abs, f.knots), default=0.0))
    return f.domain[1]
