"""One run of a transformer, watched: beside every layer the algorithm itself, beside every step its certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from innergrad.errors import InputError
from innergrad.evidence.attack import learned
from innergrad.evidence.certificate import Errors, StepCertificate, certify_run, double
from innergrad.evidence.explain import health
from innergrad.evidence.explain.explanation import Explanation, LayerError, StepError
from innergrad.evidence.verification import random_prompt
from innergrad.interpret import plain
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
    along = certificate.weights if certificate.trajectory is not None else [None] * len(certificate.steps)
    steps = tuple(
        StepError(bound, error / certificate.lr, path_bound, path)
        for bound, error, path_bound, path in zip(certificate.gradient, seen.steps, along, seen.path, strict=True)
    )
    worst = max(range(len(steps)), key=lambda i: steps[i].measured)
    layers = tuple(
        LayerError(name, bound, seen.layers[worst].get(name, 0.0))
        for name, bound in certificate.steps[worst].layers.items()
    )
    shares, proven = [_normalised(step) for step in certificate.steps], certificate.errors == "sup"
    rows = (
        health.growth(steps, proven, seen.size),
        seen.ranges.row(),
        seen.rounding.row(tf, dtype, executor == "dense", certificate.steps, shares),
        seen.cancellation.row(dtype),
        health.leakage(tf, given),
    )
    return Explanation(
        steps,
        worst + 1,
        layers,
        _grouped(shares, lambda source: source.split(": ")[0]),
        _grouped(shares, health.layer_of),
        _grouped(shares, str),
        rows,
        "gradient" if tf.program.weights else "state",
        proven,
        certificate.state,
        certificate.notes,
        seen.size,
    )


@dataclass
class _Seen:
    """Observations of the run: errors of steps, layers and the path, and the numbers for the health rows."""

    steps: list[float] = field(default_factory=list)
    layers: list[dict[str, float]] = field(default_factory=list)
    path: list[float] = field(default_factory=list)
    size: float = 0.0  # of what the algorithm itself has learned, at the end
    ranges: health.Ranges = field(default_factory=health.Ranges)
    rounding: health.Rounding = field(default_factory=health.Rounding)
    cancellation: health.Cancellation = field(default_factory=health.Cancellation)


def _watch(tf: Compiled, prompt: Prompt, given: Prompt, executor: Executor) -> _Seen:
    program, seen, errors, exact = tf.program, _Seen(), dict[str, float](), tf.program.functions()
    before = ideal = double(prompt.state(program))  # ideal: the algorithm, restarted from the transformer's every step
    path = plain.run(program, given.state(program), exact)
    for (layer, state, step_ends), (_, truth, _) in zip(executor.layers(prompt, tf.guard()), path, strict=True):
        after, ideal = double(state), plain.apply_layer(program, layer, ideal, exact)
        results = [lane for lane in health.written(layer) if not program.stream[lane].fill]  # pads are none
        errors[layer.name] = max((_largest(tf, after, ideal, lane) for lane in results), default=0.0)
        seen.ranges.layer(tf, layer, before)
        seen.rounding.layer(tf, layer, before, after)
        seen.cancellation.layer(program, layer, before)
        if step_ends:
            found, one_step, exactly = (learned(program, prompt, state) for state in (after, ideal, truth))
            seen.steps.append(_norm(found - one_step))
            seen.path.append(_norm(found - exactly))
            seen.size = _norm(exactly)
            seen.layers.append(errors)
            seen.ranges.weights(program, after)
            ideal, errors = after, {}
        before = after
    return seen


def _largest(tf: Compiled, one: State, other: State, lane: str) -> float:
    a, b = ((state[lane][:, :1] if tf.program.stream[lane].shared else state[lane]) for state in (one, other))
    return float((a - b).abs().max())


def _norm(difference: Tensor) -> float:
    return float(difference.norm(dim=-1).max()) if difference.numel() else 0.0


def _normalised(step: StepCertificate) -> dict[str, float]:
    """Shares of the bound; if it is infinite, of its infinite parts."""
    shares = {name: value for name, value in step.shares.items() if value > 0.0}
    if math.inf in shares.values():
        shares = {name: 1.0 for name, value in shares.items() if value == math.inf}
    total = sum(shares.values())
    return {name: value / total for name, value in shares.items()}


def _grouped(steps: Sequence[Mapping[str, float]], group: Callable[[str], str]) -> dict[str, float]:
    """Shares by group, the largest first: the mean over the steps that have an error at all."""
    found: dict[str, float] = {}
    inexact = [step for step in steps if step]
    for source, share in (item for step in inexact for item in step.items()):
        found[group(source)] = found.get(group(source), 0.0) + share / len(inexact)
    return dict(sorted(found.items(), key=lambda item: -item[1]))
