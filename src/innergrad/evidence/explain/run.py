"""One run of a transformer, watched: beside every layer the algorithm itself, beside every step its certificate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.evidence.attack import learned
from innergrad.evidence.certificate import Errors, StepCertificate, certify_run
from innergrad.evidence.explain import health
from innergrad.evidence.explain.explanation import Explanation, LayerError, StepError
from innergrad.evidence.verification import random_prompt
from innergrad.interpret import plain
from innergrad.ir.program import Layer
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import Executor, Name, executor_of
from innergrad.model.prompt import ArrayLike, Prompt


def explain(
    tf: Compiled,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    X_query: ArrayLike | None = None,
    *,
    w0: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    seed: int = 0,
    executor: Name = "dense",
    dtype: torch.dtype = torch.float64,
    errors: Errors | None = None,
) -> Explanation:
    """Run the transformer on the given data, or on a random prompt, and say where its error comes from.

    Every step and every layer has a bound (:meth:`CompiledTransformer.certify`) and a measured error: of the exact
    program, started from the transformer's own state at the beginning of the step. Where there are weights, queries are
    left out: nothing that they hold reaches the weights. errors: as in ``certify``.
    """
    if (X is None) != (y is None) or (X is None and X_query is not None):
        raise InputError("explain takes X and y together, or neither", hint="without data it draws a random prompt")
    if X is None or y is None:
        drawn = random_prompt(tf, seed, 1, w0)
        X, y, X_query, w0 = drawn.X, drawn.y, drawn.X_query, drawn.w0
    X_query = None if tf.program.weights else X_query
    prompt = tf.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed)
    given = tf.in_double(prompt, sample_weight)
    chosen = executor_of(tf, executor)
    certificate = certify_run(tf, prompt, given, chosen, tf.guard(), errors=errors)
    seen = _watch(tf, prompt, given, chosen)
    lr = certificate.lr
    along = certificate.weights if certificate.trajectory is not None else [None] * len(certificate.steps)
    steps = tuple(
        StepError(bound, error / lr, path_bound, path)
        for bound, error, path_bound, path in zip(certificate.gradient, seen.steps, along, seen.path, strict=True)
    )
    worst = max(range(len(steps)), key=lambda i: steps[i].measured)
    layers = tuple(
        LayerError(name, bound, seen.layers[worst].get(name, 0.0))
        for name, bound in certificate.steps[worst].layers.items()
    )
    shares = [_normalised(step) for step in certificate.steps]
    sources = _mean(shares)
    bounds: dict[str, float] = {}
    for step in certificate.steps:
        bounds |= {name: max(bound, bounds.get(name, 0.0)) for name, bound in step.layers.items()}
    rounding = {name: local.share(bounds.get(name, 0.0)) for name, local in seen.local.items()}
    rows = (
        health.growth(steps, certificate.errors == "sup"),
        seen.ranges.row(),
        health.rounding_row(tf, dtype, executor == "dense", shares, rounding, seen.rounding, seen.relative),
        seen.cancellation.row(dtype),
        health.leakage(tf, given),
    )
    return Explanation(
        steps,
        worst + 1,
        layers,
        _grouped(sources, lambda source: source.split(": ")[0]),
        _grouped(sources, health.layer_of),
        _grouped(sources, str),
        rows,
        "gradient" if tf.program.weights else "state",
        certificate.errors == "sup",
    )


@dataclass
class _Seen:
    """What was observed in the run: errors of steps, of their layers, of the path; and what health rows are made of."""

    steps: list[float] = field(default_factory=list)
    layers: list[dict[str, float]] = field(default_factory=list)
    path: list[float] = field(default_factory=list)
    local: dict[str, health.Local] = field(default_factory=dict)
    rounding: float = 0.0  # the largest of a layer
    relative: float = 0.0  # and relative to the largest number in the stream
    ranges: health.Ranges = field(default_factory=health.Ranges)
    cancellation: health.Cancellation = field(default_factory=health.Cancellation)


def _watch(tf: Compiled, prompt: Prompt, given: Prompt, executor: Executor) -> _Seen:
    program, seen, errors = tf.program, _Seen(), dict[str, float]()
    functions = program.functions()
    before = _double(prompt.state(program))
    ideal = before  # the algorithm, restarted from the transformer's state at every step
    path = plain.run(program, given.state(program), program.functions())
    for layer, state, step_ends in executor.layers(prompt, tf.guard()):
        after, (_, truth, _) = _double(state), next(path)
        ideal = plain.apply_layer(program, layer, ideal, functions)
        written = [lane for lane in _written(layer) if not program.stream[lane].fill]  # pads are no results
        errors[layer.name] = max((_largest(tf, after, ideal, lane) for lane in written), default=0.0)
        _local(tf, layer, before, after, seen)
        seen.ranges.layer(tf, layer, before)
        seen.cancellation.layer(program, layer, before)
        if step_ends:
            found = learned(program, prompt, after)
            seen.steps.append(_norm(found - learned(program, prompt, ideal)))
            seen.path.append(_norm(found - learned(program, prompt, truth)))
            seen.layers.append(errors)
            seen.ranges.weights(program, after)
            ideal, errors = after, {}
        before = after
    return seen


def _local(tf: Compiled, layer: Layer, before: State, after: State, seen: _Seen) -> None:
    """What the layer itself got wrong, from the stream it read: by rounding, and by approximants."""
    approximated = plain.apply_layer(tf.program, layer, before, tf.functions)
    true = plain.apply_layer(tf.program, layer, before, tf.program.functions())
    lanes = [lane.name for lane in tf.program.stream.lanes if not lane.fill]
    scale = max(1.0, *(float(state[lane].abs().max()) for state in (before, after) for lane in lanes))
    local = seen.local.setdefault(layer.name, health.Local())
    for lane in _written(layer):
        rounding = (after[lane] - approximated[lane]).abs()
        local.rounding += float(rounding.mean())
        local.largest = max(local.largest, float(rounding.max()))
        local.approximation += float((approximated[lane] - true[lane]).abs().mean())
        if lane in lanes:
            seen.rounding = max(seen.rounding, float(rounding.max()))
            seen.relative = max(seen.relative, float(rounding.max()) / scale)


def _written(layer: Layer) -> list[str]:
    return list(dict.fromkeys(instruction.dst.lane for instruction in layer.instructions))


def _largest(tf: Compiled, one: State, other: State, lane: str) -> float:
    a, b = ((state[lane][:, :1] if tf.program.stream[lane].shared else state[lane]) for state in (one, other))
    return float((a - b).abs().max())


def _norm(difference: Tensor) -> float:
    return float(difference.norm(dim=-1).max()) if difference.numel() else 0.0


def _double(state: State) -> State:
    return {name: value.double() for name, value in state.items()}


def _normalised(step: StepCertificate) -> dict[str, float]:
    """Shares of the bound; if it is infinite, of what is."""
    shares = {name: value for name, value in step.shares.items() if value > 0.0}
    if any(math.isinf(value) for value in shares.values()):
        shares = {name: 1.0 for name, value in shares.items() if math.isinf(value)}
    total = sum(shares.values())
    return {name: value / total for name, value in shares.items()}


def _mean(shares: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Over the steps that have an error at all."""
    nonzero = [step for step in shares if step]
    mean: dict[str, float] = {}
    for step in nonzero:
        for name, share in step.items():
            mean[name] = mean.get(name, 0.0) + share / len(nonzero)
    return mean


def _grouped(shares: Mapping[str, float], group: health.Group) -> dict[str, float]:
    found: dict[str, float] = {}
    for source, share in shares.items():
        found[group(source)] = found.get(group(source), 0.0) + share
    return dict(sorted(found.items(), key=lambda item: -item[1]))
