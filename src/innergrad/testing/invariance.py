"""A row is what it is alone: neither its batch, nor the order of what it reads, nor the number of threads matters.

    CHANGES       the same prompts in another form: alone, in a batch of another order, with other queries beside, ...
    compared      a run of each, and how far they are apart beside what rounding allows (see :mod:`rounding`)
    rows          the same of a learner of the lab

Two runs of the same prompts may differ by what rounding allows each of them, the sum of the two radii, entry by entry.
Functions that are fitted in float32 have no such bound: there each run is within ``SINGLE`` of float64, which is a law
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innergrad.lab.learners.base import Learner
from innergrad.model.executors import Name as Executor
from innergrad.model.running import Run
from innergrad.testing.rounding import radii_of, unit
from innergrad.transformer import CompiledTransformer

SINGLE = 1e-4  # of float32, relative to the largest entry, where functions are fitted
Prompts = Mapping[str, Any]  # of tensors: X (B, n, d), y (B, n, d_y), X_query (B, m, d), w0 (B, D_w), sample_weight
Parts = tuple[Tensor, Tensor]  # the last weights (B, D_w), predictions (B, m, d_y)
Change = Callable[[Prompts, torch.Generator], tuple[dict[str, Any], Callable[[Parts], Parts]]]


def _each(prompts: Prompts, of: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    return {name: of(value) for name, value in prompts.items()}


def _order(n: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(n, generator=generator)


def again(prompts: Prompts, generator: torch.Generator) -> tuple[dict[str, Any], Callable[[Parts], Parts]]:
    return dict(prompts), lambda parts: parts


def alone(prompts: Prompts, generator: torch.Generator) -> tuple[dict[str, Any], Callable[[Parts], Parts]]:
    """One of the prompts, as a batch of one."""
    row = slice(r := int(_order(len(prompts["X"]), generator)[0]), r + 1)
    return _each(prompts, lambda value: value[row]), lambda parts: (parts[0][row], parts[1][row])


def other_batch(prompts: Prompts, generator: torch.Generator) -> tuple[dict[str, Any], Callable[[Parts], Parts]]:
    """In another order, and some of them twice."""
    size = len(prompts["X"])
    rows = torch.cat([_order(size, generator), torch.randint(size, (2,), generator=generator)])
    return _each(prompts, lambda value: value[rows]), lambda parts: (parts[0][rows], parts[1][rows])


def other_queries(prompts: Prompts, generator: torch.Generator) -> tuple[dict[str, Any], Callable[[Parts], Parts]]:
    order = _order(prompts["X_query"].shape[1], generator)
    return {**prompts, "X_query": prompts["X_query"][:, order]}, lambda parts: (parts[0], parts[1][:, order])


def one_query(prompts: Prompts, generator: torch.Generator) -> tuple[dict[str, Any], Callable[[Parts], Parts]]:
    some = _order(prompts["X_query"].shape[1], generator)[:1]
    return {**prompts, "X_query": prompts["X_query"][:, some]}, lambda parts: (parts[0], parts[1][:, some])


def other_examples(prompts: Prompts, generator: torch.Generator) -> tuple[dict[str, Any], Callable[[Parts], Parts]]:
    order = _order(prompts["X"].shape[1], generator)
    named = {name: prompts[name][:, order] for name in ("X", "y", "sample_weight") if name in prompts}
    return {**prompts, **named}, lambda parts: parts


#: Name -> what is done to the prompts, and, with what was given for those before, what must be given for these.
CHANGES: dict[str, Change] = {
    "alone": alone,
    "in another batch": other_batch,
    "queries in another order": other_queries,
    "a query alone": one_query,
    "examples in another order": other_examples,  # of algorithms to which the order does not matter
    "by two threads": again,
    "again": again,
}
SYMMETRIC = "examples in another order"
THREADS = "by two threads"


@dataclass(frozen=True)
class Compared:
    """share: the largest difference over what is allowed; equal: bit for bit; difference, limit: where that is, of
    numbers of this size.
    """

    share: float
    equal: bool
    difference: float
    limit: float
    size: float


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compared(
    tf: CompiledTransformer,
    prompts: Prompts,
    name: str,
    generator: torch.Generator,
    executor: Executor = "plain",
    dtype: torch.dtype = torch.float64,
    compiled: bool | None = None,
) -> Compared:
    """Prompts as they are, and after a change: how far apart, beside what is allowed."""
    prompts = {key: value.to(dtype).double() for key, value in prompts.items()}
    other, expected = CHANGES[name](prompts, generator)
    how: dict[str, Any] = {"executor": executor, "dtype": dtype}
    how |= {} if compiled is None else {"compiled": compiled}
    first = _parts(tf.run(**prompts, **how))
    with threads(2 if name == THREADS else torch.get_num_threads()):
        second = _parts(tf.run(**other, **how))
    limits = [limits_of(tf, given, executor, dtype) for given in (prompts, other)]
    return judged(second, expected(first), limits[1], expected(limits[0]))


def _parts(run: Run) -> Parts:
    return run.weights[:, -1].double(), run.predictions.double()


def limits_of(tf: CompiledTransformer, prompts: Prompts, executor: Executor, dtype: torch.dtype) -> Parts:
    """What a run may be off by: its weights, and its predictions."""
    dense = executor == "dense"
    prompt = tf.prompt(**{"X_query": None, **prompts}, dtype=torch.float64)
    if dtype == torch.float32 and not tf.proven:
        run = _parts(tf.run(**prompts))
        return tuple(torch.full_like(part, SINGLE * max(1.0, _largest(part))) for part in run)  # type: ignore[return-value]
    return radii_of(tf, prompt, dtype, dense)


def judged(found: Parts, expected: Parts, limit: Parts, other: Parts) -> Compared:
    worst = Compared(0.0, True, 0.0, 0.0, 0.0)
    for a, b, allowed in zip(found, expected, (x + y for x, y in zip(limit, other, strict=True)), strict=True):
        if a.shape != b.shape:
            raise AssertionError(f"shapes {tuple(a.shape)} and {tuple(b.shape)}")
        if not a.numel():
            continue
        off = (a - b).abs()
        share = torch.where(off == 0, 0.0, off / allowed).nan_to_num(nan=float("inf"))
        place = int(share.flatten().argmax())
        here = Compared(
            float(share.max()),
            worst.equal and bool((off == 0).all()),
            float(off.flatten()[place]),
            float(allowed.flatten()[place]),
            _largest(b),
        )
        worst = here if here.share >= worst.share else Compared(**{**vars(worst), "equal": here.equal})
    return worst


def _largest(part: Tensor) -> float:
    return float(part.abs().max()) if part.numel() else 0.0


# ------------------------------------------------------------------------------------------------------------ the lab

ROUNDINGS = 16  # of each sum of a block, and of what its norm and its function make of them
#: What must not matter to a learner; the last, to one that reads examples as a set.
OF_LEARNERS = (
    "alone",
    "in another batch",
    "in batches of another size",
    "of a shorter prompt",
    "in a stack",
    THREADS,
    "again",
    SYMMETRIC,
)


def rows(learner: Learner, x: Tensor, y: Tensor, name: str, generator: torch.Generator) -> Compared:
    """Predictions (B, n) of a learner, a stack of one, on x (B, n, d) and y (B, n); and the same after a change."""
    whole = learner.predict(x, y)
    size, n = y.shape
    order = _order(size, generator)
    some = int(torch.randint(1, max(size, n) + 1, (), generator=generator))
    expected = whole
    if name == "alone":
        found, expected = learner.predict(x[order[:1]], y[order[:1]]), whole[order[:1]]
    elif name == "in another batch":
        found, expected = learner.predict(x[order], y[order]), whole[order]
    elif name == "in batches of another size":
        pairs = zip(x.split(some), y.split(some), strict=True)
        found = torch.cat([learner.predict(*pair) for pair in pairs])
    elif name == "of a shorter prompt":
        short = 1 + some % n
        found, expected = learner.predict(x[:, :short], y[:, :short]), whole[:, :short]
    elif name == "in a stack":
        found = _stacked(learner)(x[None].expand(3, *x.shape), y[None].expand(3, *y.shape))[1].detach()
        expected = whole[:, n - found.shape[1] :]
    elif name == SYMMETRIC:  # the last is the query, and its label is not read
        examples = torch.cat([_order(n - 1, generator), torch.tensor([n - 1])])
        found, expected = learner.predict(x[:, examples], y[:, examples])[:, -1:], whole[:, -1:]
    else:
        with threads(2 if name == THREADS else torch.get_num_threads()):
            found = learner.predict(x, y)
    nothing = torch.zeros(0)
    limit = torch.full_like(expected, learner_limit(learner, x, whole)).double()
    return judged((nothing, found.double()), (nothing, expected.double()), (nothing, limit), (nothing, limit))


def _stacked(learner: Learner) -> Learner:
    """Three of them, whose second is the learner and whose others are not."""
    config: Any = learner.config
    stack: Learner = config.build(learner.d, getattr(learner, "n_points", 1), 3).init([1, 2, 3])
    stack = stack.to(next(learner.parameters()).dtype)
    with torch.no_grad():
        for name, value in learner.state_dict().items():
            stack.state_dict()[name][1].copy_(value[0])
    return stack


def learner_limit(learner: Learner, x: Tensor, predictions: Tensor) -> float:
    """Of one run. Stated, not proven: each block may round as one sum over its widest axis does, relative to the
    predictions.

    u * ROUNDINGS * blocks * (numbers in the longest sum) * max(1, |predictions|)
    """
    config: Any = learner.config
    longest = max(2 * x.shape[1], *(max(parameter.shape) for parameter in learner.parameters()))
    return unit(predictions.dtype) * ROUNDINGS * (config.n_layers + 2) * longest * max(1.0, _largest(predictions))
