"""Learning rates for every step, for ``GradientDescent(lr=...)``, as ``torch.optim.lr_scheduler`` has them.

Steps l are counted from 0. A schedule is a plain tuple of numbers.

Examples:
    >>> import innergrad as ig
    >>> ig.schedules.step_decay(0.1, steps=4, every=2, factor=0.5)
    (0.1, 0.1, 0.05, 0.05)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from innergrad.algorithms.base import MOST_STEPS
from innergrad.errors import InputError, integer, real, seed_number

Rates = tuple[float, ...]
Batches = tuple[tuple[int, ...], ...]
STEPS = 5  # where nothing says how many
MOST_RATES = 1_000_000  # of a list
MOST_BATCHES, MOST_EXAMPLES = 100_000, 10_000_000


def constant(lr: float, steps: int) -> Rates:
    """lr in every step."""
    return (real("lr", lr, low=0.0),) * integer("steps", steps, high=MOST_RATES)


def cosine(lr: float, steps: int, final: float = 0.0) -> Rates:
    """final + (lr - final) (1 + cos(pi l / steps)) / 2, as ``CosineAnnealingLR(T_max=steps, eta_min=final)``."""
    lr, final = real("lr", lr, low=0.0), real("final", final, low=0.0)
    count = integer("steps", steps, high=MOST_RATES)
    return tuple(final + (lr - final) * (1.0 + math.cos(math.pi * step / count)) / 2.0 for step in range(count))


def warmup_cosine(lr: float, steps: int, warmup: int, final: float = 0.0) -> Rates:
    """lr (l + 1) / (warmup + 1) for l < warmup, then ``cosine`` over the steps that are left."""
    lr, count = real("lr", lr, low=0.0), integer("steps", steps, high=MOST_RATES)
    warmup = integer("warmup", warmup, low=0, high=count - 1)
    return (*(lr * (step + 1) / (warmup + 1) for step in range(warmup)), *cosine(lr, count - warmup, final))


def step_decay(lr: float, steps: int, every: int, factor: float = 0.1) -> Rates:
    """lr factor^(l // every), as ``StepLR(step_size=every, gamma=factor)``."""
    lr, factor, every = real("lr", lr, low=0.0), real("factor", factor, low=0.0), integer("every", every)
    return tuple(lr * factor ** (step // every) for step in range(integer("steps", steps, high=MOST_RATES)))


def exponential(lr: float, steps: int, factor: float) -> Rates:
    """lr factor^l, as ``ExponentialLR(gamma=factor)``."""
    return step_decay(lr, steps, 1, factor)


def minibatches(n: int, size: int, epochs: int = 1, seed: int | None = None) -> Batches:
    """The examples 0 .. n - 1 in batches of one size, for ``GradientDescent(batches=...)``.

    The last batch of an epoch may be smaller. Gradient descent then has as many steps as there are batches.

    Args:
        n: how many examples.
        size: of a batch.
        epochs: how often all examples are gone through.
        seed: shuffle them, anew for every epoch. Without a seed they stay in order.

    Examples:
        >>> import innergrad as ig
        >>> ig.minibatches(5, 2)
        ((0, 1), (2, 3), (4,))
    """
    n, size, epochs = integer("n", n), integer("size", size), integer("epochs", epochs)
    if -(-n // max(size, 1)) * epochs > MOST_BATCHES or n * epochs > MOST_EXAMPLES:
        got, allowed = f"{n} examples, {epochs} epochs", f"{MOST_BATCHES:,} batches and {MOST_EXAMPLES:,} examples"
        raise InputError("there are too many batches", got=got, allowed=f"at most {allowed}")
    if size > n:
        raise InputError("a batch has at most as many examples as there are", got=f"size={size}", allowed=f"1 to {n}")
    generator = None if seed is None else torch.Generator().manual_seed(seed_number(seed))
    found: list[tuple[int, ...]] = []
    for _ in range(epochs):
        order = list(range(n)) if generator is None else torch.randperm(n, generator=generator).tolist()
        found += [tuple(sorted(order[start : start + size])) for start in range(0, n, size)]
    return tuple(found)


class Plan(NamedTuple):
    """Rates and batches, step by step. lr: the rate or, if rates differ, the least positive one. rates, batches: None
    if the rate is the same in every step, and every step is on all examples.
    """

    lr: float
    steps: int
    rates: Rates | None
    batches: Batches | None


def plan(lr: object, steps: object, batches: object, epochs: object) -> Plan:
    """Check the settings, and that they agree on the number of steps."""
    chosen = None if batches is None else _batches(batches)
    varied = isinstance(lr, Iterable) and not isinstance(lr, str)
    rates = _rates(lr)
    counts: dict[str, int] = {} if steps is None else {"steps": integer("steps", steps, high=MOST_STEPS)}
    if epochs is not None:
        counts["epochs, of so many batches"] = integer("epochs", epochs, high=MOST_STEPS) * len(chosen or (None,))
    if varied:
        counts["rates in lr"] = len(rates)
    if len(set(counts.values())) > 1:
        got = ", ".join(f"{count} by {name}" for name, count in counts.items())
        raise InputError("steps, lr and epochs do not agree on the number of steps", got=got)
    number = next(iter(counts.values()), STEPS if chosen is None else len(chosen))
    if len(set(rates)) == 1:
        return Plan(rates[0], number, None, chosen)
    return Plan(min((rate for rate in rates if rate), default=0.0), number, rates, chosen)


def _rates(lr: object) -> Rates:
    hint = "or a sequence of them, one for each step"
    if isinstance(lr, Iterable) and not isinstance(lr, str):
        try:
            found = tuple(lr.tolist() if isinstance(lr, torch.Tensor) else lr)
        except TypeError:  # a tensor without axes
            found = ()
        if found:
            return tuple(real("lr", rate, low=0.0, hint=hint) for rate in found)
    return (real("lr", lr, low=0.0, hint=hint),)


def _batches(batches: object) -> Batches:
    what, allowed = "batches are lists of examples, by number from 0", "e.g. [[0, 1], [2, 3]], or ig.minibatches(...)"
    if not isinstance(batches, Sequence) or isinstance(batches, str) or not batches:
        raise InputError(what, got=repr(batches), allowed=allowed)
    for batch in batches:
        if not isinstance(batch, Sequence) or isinstance(batch, str) or not batch:
            raise InputError(what, got=f"{batch!r} in it", allowed=allowed)
    found = tuple(tuple(integer("an example of a batch", i, low=0) for i in batch) for batch in batches)
    twice = next((batch for batch in found if len(set(batch)) < len(batch)), None)
    if twice is not None:
        raise InputError("an example is in a batch once", got=list(twice), hint="use sample_weight for weights")
    return found
