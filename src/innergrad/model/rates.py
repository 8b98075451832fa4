"""Rates that make a loss fall: from the curvature at w0, and tried by the algorithm itself before a word is said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from innergrad.algorithms.base import Algorithm
from innergrad.errors import LARGEST, SMALLEST, own_gradients
from innergrad.model.prompt import Prompt

TRIED, TRIALS, WORK = 64, 8, 5e8  # prompts, rates, and additions and multiplications of each trial
FASTER, FALL = 10.0, 0.05  # times the rate, and of the loss: a change worth a word where it did not move
MOST = 10.0  # of a rate for weights: where a larger one suits the curvature, hardly any gradient comes through

NO_SMALLER = "no smaller"

Trial = tuple[Tensor, Tensor, Tensor, Tensor]  # X, y, w0, omega


def lower_rate(algorithm: Algorithm, prompt: Prompt, prompts: Sequence[int]) -> str:
    """The rate at which the loss falls in these prompts, where it rose. Empty for algorithms that have no rate."""
    setting = algorithm.rate_setting
    if setting is None or not setting[1]:
        return ""
    with own_gradients():
        rate, steps = slower(algorithm, *_trial(algorithm, prompt, prompts))
    if rate is None:
        return f"{NO_SMALLER} {setting[0]} was found that makes it fall: look at the data and at w0"
    return _said(algorithm, rate, steps, "it falls", "makes it fall")


def higher_rate(algorithm: Algorithm, prompt: Prompt, prompts: Sequence[int]) -> str:
    """The rate that lowers the loss by much more in these prompts, where it did not move. Empty if none was found."""
    setting = algorithm.rate_setting
    if setting is None or not setting[1]:
        return ""
    with own_gradients():
        rate, steps = faster(algorithm, *_trial(algorithm, prompt, prompts))
    return "" if rate is None else _said(algorithm, rate, steps, "it falls more", "makes it fall more")


def slower(algorithm: Algorithm, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> tuple[float | None, int | None]:
    """A rate, smaller than the algorithm's, at which its objective falls in all prompts, from the curvature at w0; and
    for how many steps it was tried, None for all. A rate of None: none was found.
    """
    setting, start = algorithm.rate_setting, algorithm.curvature_rate(X, y, w0, omega)
    if setting is None or start is None or not start > 0.0:
        return None, None
    return _first(algorithm, (X, y, w0, omega), _rates(algorithm, min(start, setting[1] / 2.0)), 0.0)


def faster(algorithm: Algorithm, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> tuple[float | None, int | None]:
    """The same of a rate ``FASTER`` times the algorithm's or more, at which the objective falls by ``FALL`` of it."""
    setting, start = algorithm.rate_setting, algorithm.curvature_rate(X, y, w0, omega)
    if setting is None or start is None or not start > 0.0:
        return None, None
    most = MOST if w0.shape[-1] else math.inf
    rates = (rate for rate in _rates(algorithm, start) if FASTER * setting[1] <= rate <= most)
    return _first(algorithm, (X, y, w0, omega), rates, FALL)


def _rates(algorithm: Algorithm, start: float) -> Iterator[float]:
    """The first rate, and smaller and smaller ones. Each is rounded down to two digits, as it is printed (a schedule:
    as a multiple of its own). So the suggested rate is the one that was tried.
    """
    unit = _unit(algorithm)
    for trial in range(TRIALS):
        part = start / unit / 4.0**trial
        if SMALLEST <= part <= LARGEST and SMALLEST <= part * unit <= LARGEST:
            digit = 10.0 ** (math.floor(math.log10(part)) - 1)
            yield float(f"{math.floor(part / digit) * digit:.2g}") * unit


def _unit(algorithm: Algorithm) -> float:
    """The unit of a rate."""
    setting = algorithm.rate_setting
    return setting[1] if setting is not None and getattr(algorithm, "schedule", None) else 1.0


def _first(algorithm: Algorithm, trial: Trial, rates: Iterator[float], fall: float) -> tuple[float | None, int | None]:
    X, y, w0, _ = trial
    steps = int(getattr(algorithm, "steps", 1))
    tried = max(1, min(steps, int(WORK / (6.0 * y[..., 0].numel() * max(X.shape[1], w0.shape[-1]) + 5e5))))
    for rate in rates:
        if _falls(algorithm.with_rate(rate, tried), trial, fall):
            return rate, None if tried == steps else tried
    return None, None


def _falls(algorithm: Algorithm, trial: Trial, fall: float) -> bool:
    X, y, w0, omega = trial
    done = algorithm.reference(X, y, X, w0, omega)
    if done is None:
        return False
    start = algorithm.predicted(w0, X)
    before = algorithm.objective_at(w0, torch.zeros_like(y) if start is None else start, y, omega)
    after = algorithm.objective_at(done[0][:, -1], done[1], y, omega)
    return before is not None and after is not None and bool((after < (1.0 - fall) * before).all())


def _trial(algorithm: Algorithm, prompt: Prompt, prompts: Sequence[int]) -> Trial:
    parts = (prompt.X, prompt.y, prompt.w0, algorithm.seen(prompt.omega))
    X, y, w0, omega = (part.detach()[list(prompts[:TRIED])].double().clone() for part in parts)
    return X, y, w0, omega


def _said(algorithm: Algorithm, rate: float, steps: int | None, falls: str, makes: str) -> str:
    varied = getattr(algorithm, "schedule", None)
    how = (
        f"with {rate / _unit(algorithm):.2g} times every rate {falls}"
        if varied
        else f"{algorithm.rate_said(rate)} {makes}"
    )
    return f"{how} (from the curvature at w0, and tried{'' if steps is None else f', for {steps} steps'})"
