"""Laws that the weights must satisfy, checked on data: each can fail, and says by how much.

Each layer of the module is compared with the program on the *module's own stream*, so the layer that is wrong is named:

    weights         every layer of the module computes what the plain interpreter computes (float64 rounding)
    probe           the same on random streams that drive every hinge, also those the data never reach (e.g. the box)
    proof           every approximant has a sup error of at most epsilon, proven again
    approximation   every layer is within its approximants' proven errors of the exact functions
    oracle          the exact program is the algorithm: weights and predictions equal autograd's (or another oracle's)
    examples        after one step: queries do not change the weights, an example of weight 2 counts as two, one of
                    weight 0 as none
    shared          the weights are equal in all tokens
    scratch         scratch lanes are exactly zero after every step
    inputs          input lanes are untouched (the read-out writes the prediction on query tokens only)
    box             weight lanes stay within their declared bounds

Besides the laws the report gives the distance to the oracle per step, and the number of *ramp hits*: arguments at which
the derivative of a piecewise-linear activation was replaced by a ramp. Steps with a hit carry no epsilon claim.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from innergrad.errors import DomainError, InputError, integer, seed_number
from innergrad.functions.approximants import approximate
from innergrad.functions.piecewise import PiecewiseLinear
from innergrad.functions.proof import prove
from innergrad.interpret import plain
from innergrad.program import Attend, Layer, Score
from innergrad.prompt import ArrayLike, Prompt, flat_weights
from innergrad.report import Law, Report, Worst
from innergrad.stream import State
from innergrad.transformer import exact_run

if TYPE_CHECKING:
    from innergrad.transformer import CompiledTransformer

ROUNDING = 1e-12  # of a layer, relative to the largest number it reads or writes
U = 2.0**-53


def verify(
    tf: CompiledTransformer,
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
        prompt = _random_prompt(tf, seed, prompts, w0)
    else:
        prompt = tf.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, seed=seed)
    return _Verification(tf, prompt, seed).report()


def _random_prompt(tf: CompiledTransformer, seed: int, prompts: int, w0: ArrayLike | None) -> Prompt:
    """Random prompts and weights inside the domain the transformer was compiled for."""
    generator, options = torch.Generator().manual_seed(seed_number(seed)), tf.options
    integer("prompts", prompts)
    drawn = [tf.algorithm.random_prompt(options.n_examples, 1, generator) for _ in range(prompts)]
    X, y, X_query = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    starts = [start for i in range(prompts) if (start := tf.algorithm.initial_weights(seed + i)) is not None]
    if w0 is None and starts:
        bounds = torch.cat([torch.full((lane.size,), lane.bound, dtype=torch.float64) for lane in tf.program.weights])
        w0 = torch.stack(starts).clamp(-bounds, bounds)
    if options.y_bound is not None:
        y = y.clamp(-options.y_bound, options.y_bound)
    while True:  # halve the inputs until every function stays in its domain
        if options.x_bound is not None:
            X, X_query = X.clamp(-options.x_bound, options.x_bound), X_query.clamp(-options.x_bound, options.x_bound)
        try:
            tf.run(X, y, X_query, w0=w0, seed=seed)
            return tf.prompt(X, y, X_query, w0=w0, seed=seed)
        except DomainError:
            if float(X.abs().max()) < 1e-3:
                raise
            X, X_query = X / 2, X_query / 2


class _Verification:
    def __init__(self, tf: CompiledTransformer, prompt: Prompt, seed: int) -> None:
        self.tf, self.prompt, self.seed = tf, prompt, seed
        names = (
            "weights",
            "probe",
            "proof",
            "approximation",
            "oracle",
            "examples",
            "shared",
            "scratch",
            "inputs",
            "box",
        )
        self.laws = {name: Worst(name, ROUNDING) for name in names}
        self.laws["shared"].law = Law("shared", 0.0, 1e-14)
        for name in ("scratch", "inputs", "box"):
            self.laws[name].law = Law(name, 0.0, 0.0)

    def report(self) -> Report:
        trajectory, step_error, hits = self._walk()
        self._probe()
        self._proofs()
        self._examples()
        oracle = self._oracle()
        distance = (trajectory - oracle).norm(dim=-1).amax(0).tolist()
        return Report(
            tuple(worst.law for worst in self.laws.values()), distance, step_error, hits, self.tf.options.epsilon
        )

    def _oracle(self) -> Tensor:
        """Weights and predictions of the exact program against the algorithm's oracle, e.g. autograd."""
        prompt = self.prompt
        exact = exact_run(self.tf.program, prompt)
        oracle = self.tf.algorithm.reference(prompt.X, prompt.y, prompt.X_query, prompt.w0, prompt.omega)
        if oracle is None:
            self.laws["oracle"].law = Law("oracle", 0.0, 1e-10, "no oracle: the exact program stands for itself")
            return exact[0]
        for name, value, expected in zip(("weights", "predictions"), exact, oracle, strict=True):
            if value.shape != expected.shape:
                raise InputError(
                    f"the oracle's {name} have the wrong shape",
                    got=tuple(expected.shape),
                    allowed=str(tuple(value.shape)),
                )
            if value.numel():
                scale = max(1.0, float(expected.abs().max()))
                self.laws["oracle"].see(float((value - expected).abs().max()) / scale, 1e-10, name)
        return oracle[0]

    def _proofs(self) -> None:
        """Sup errors, not taken from the approximants' own word; exact functions and ramps must be what they are."""
        epsilon = self.tf.options.epsilon
        for name, f in self.tf.program.functions().items():
            given = self.tf.approximants[name]
            if f.exact is not None or f.jumps:
                error = 0.0 if given == approximate(f, epsilon) else math.inf
            else:
                try:
                    error = prove(f, given, epsilon).error
                except InputError:
                    error = math.inf
                error = max(error, given.error)
            self.laws["proof"].see(error, epsilon, name)

    def _examples(self) -> None:
        """One step with and without queries, with an example doubled or dropped."""
        p, n = self.prompt, self.prompt.X.shape[1]
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
            ("queries", replace(p, X_query=p.X_query[:, :0]), replace(p, X_query=p.X)),
            ("an example of weight 2", replace(p, omega=doubled * n / (n + 1)), twice),
        ]
        if n > 1:
            without = replace(p, X=p.X[:, 1:], y=p.y[:, 1:], omega=even[:, 1:] * n / (n - 1))
            cases.append(("an example of weight 0", replace(p, omega=dropped * n / (n - 1)), without))
        for name, one, other in cases:
            a, b = self._one_step(one), self._one_step(other)
            self.laws["examples"].see(float((a - b).abs().max()) / max(1.0, float(a.abs().max())), ROUNDING, name)

    def _one_step(self, prompt: Prompt) -> Tensor:
        tf = self.tf
        state = prompt.state(tf.program)
        for _, after, step_ends in plain.run(tf.program, state, tf.approximants):
            state = after
            if step_ends:
                break
        return flat_weights(tf.program, state)

    def _walk(self) -> tuple[Tensor, list[float], list[int]]:
        """Run the module, check every layer on its own stream; returns weights, error and ramp hits of every step."""
        tf, stream, exact = self.tf, self.tf.program.stream, self.tf.program.functions()
        start = self.prompt.state(tf.program)
        h = stream.pack(start)
        trajectory, step_error, hits, count = [flat_weights(tf.program, start)], [], [], 0
        ideal = start  # the exact algorithm, restarted from the module's state at every step

        def observe(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
            nonlocal count
            count += int(tf.approximants[score.f.name].hits(argument))

        body = tf.n_layers
        for number, ((layer, step_ends), module) in enumerate(
            zip(tf.program.schedule(), tf.module.layers(), strict=True)
        ):
            before = stream.unpack(h)
            h = module(h)
            self._compare(
                "weights",
                layer,
                before,
                stream.unpack(h),
                plain.apply_layer(tf.program, layer, before, tf.approximants, observer=observe),
            )
            self._approximation(layer, before, stream.unpack(h))
            self._check_inputs(layer, start, stream.unpack(h), readout=number >= body)
            ideal = plain.apply_layer(tf.program, layer, ideal, exact) if number < body else ideal
            if step_ends:
                after = stream.unpack(h)
                self._check_step(after)
                step = (flat_weights(tf.program, after) - flat_weights(tf.program, ideal)).norm(dim=-1)
                lr = getattr(tf.algorithm, "lr", 1.0) or 1.0
                step_error.append(float(step.max()) / lr / tf.options.epsilon)
                trajectory.append(flat_weights(tf.program, after))
                hits.append(count)
                ideal, count = after, 0
        return torch.stack(trajectory, dim=1), step_error, hits

    def _probe(self) -> None:
        """Every stored layer on random streams of several magnitudes, with shared lanes shared."""
        tf, stream = self.tf, self.tf.program.stream
        generator = torch.Generator().manual_seed(self.seed)
        state = self.prompt.state(tf.program)
        tokens = state["x"].shape[1]
        bound = max(
            (lane.bound for lane in stream.lanes if lane.role == "weight" and math.isfinite(lane.bound)), default=1.0
        )
        for size in (0.5, 2.0, 8.0):
            probe: State = {}
            for lane in stream.lanes:
                values = torch.randn(
                    4, 1 if lane.shared else tokens, *lane.shape, generator=generator, dtype=torch.float64
                )
                probe[lane.name] = values * size * (bound if lane.role == "weight" else 1.0)
            probe["one"] = torch.ones(4, 1, dtype=torch.float64)
            h = stream.pack(probe)
            for layer, module in zip(tf.program.layers, tf.module.stored_layers(), strict=True):
                functions = {name: _everywhere(f) for name, f in tf.approximants.items()}
                self._compare(
                    "probe",
                    layer,
                    stream.unpack(h),
                    stream.unpack(module(h)),
                    plain.apply_layer(tf.program, layer, probe, functions),
                )

    def _compare(self, law: str, layer: Layer, before: State, after: State, expected: State) -> None:
        scale = _scale(before, after)
        tolerance = ROUNDING + self._ramp_rounding(layer, before, scale)
        for name, value in after.items():
            self.laws[law].see(
                float((value - expected[name]).abs().max()) / scale, tolerance, f"layer {layer.name}, lane {name}"
            )

    def _ramp_rounding(self, layer: Layer, before: State, scale: float) -> float:
        """A ramp of width delta is a difference of two terms of size |z| / delta."""
        widths = [
            hi - lo
            for instruction in layer.instructions
            for score in instruction.scores
            for lo, hi in self.tf.approximants[score.f.name].ramps
        ]
        if not widths:
            return 0.0
        largest = 0.0

        def observe(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
            nonlocal largest
            largest = max(largest, float(argument.abs().max()))

        plain.apply_layer(self.tf.program, layer, before, self.tf.program.functions(), observer=observe)
        return 64 * U * (largest + 1) / min(widths) / scale

    def _approximation(self, layer: Layer, before: State, after: State) -> None:
        """A lane may be off by the approximant's error times scale times |value|; all other lanes by rounding."""
        tf = self.tf
        allowed: dict[str, float] = {}

        def observe(layer: Layer, instruction: Attend, score: Score, argument: Tensor) -> None:
            f = tf.approximants[score.f.name]
            if f.ramps:  # exact, unless an argument fell into a ramp: then off by no more than the jump
                error = max(abs(height) for _, height, _ in score.f.jumps) if int(f.hits(argument)) else 0.0
            else:
                error = f.error
            values = (abs(view.coefficient) * float(before[view.lane].abs().max()) for view in instruction.value)
            lane = instruction.dst.lane
            allowed[lane] = allowed.get(lane, 0.0) + abs(instruction.scale) * sum(values) * error

        scale = _scale(before, after)
        expected = plain.apply_layer(tf.program, layer, before, tf.program.functions(), observer=observe)
        tolerance = (ROUNDING + self._ramp_rounding(layer, before, scale)) * scale
        for name, value in after.items():
            self.laws["approximation"].see(
                float((value - expected[name]).abs().max()),
                allowed.get(name, 0.0) + tolerance,
                f"layer {layer.name}, lane {name}",
            )

    def _check_inputs(self, layer: Layer, start: State, after: State, *, readout: bool) -> None:
        for lane in self.tf.program.stream.lanes:
            if lane.role == "input":
                difference = after[lane.name] - start[lane.name]
                if readout and lane.name == self.tf.program.prediction:
                    difference = difference[:, : self.prompt.X.shape[1]]
                self.laws["inputs"].see(
                    float(difference.abs().max()) if difference.numel() else 0.0,
                    0.0,
                    f"layer {layer.name}, lane {lane.name}",
                )

    def _check_step(self, after: State) -> None:
        for lane in self.tf.program.stream.lanes:
            value = after[lane.name]
            largest = float(value.abs().max())
            if lane.role == "scratch":
                self.laws["scratch"].see(largest, 0.0, f"lane {lane.name}")
            if lane.shared:
                spread = float((value - value[:, :1]).abs().max()) / max(1.0, largest)
                self.laws["shared"].see(spread, 1e-14, f"lane {lane.name}")
            if lane.role == "weight" and math.isfinite(lane.bound):
                self.laws["box"].see(max(0.0, largest - lane.bound), 0.0, f"lane {lane.name}")


def _everywhere(f: PiecewiseLinear) -> PiecewiseLinear:
    """The approximant without its domain: a probe tests the weights, not the approximation."""
    return replace(f, domain=(-math.inf, math.inf))


def _scale(before: State, after: State) -> float:
    return max(
        1.0, *(float(value.abs().max()) for state in (before, after) for value in state.values() if value.numel())
    )
