"""A row is the same in every company: neither its batch, nor the order of its tokens, nor the number of threads
matters.

    CHANGES       the same prompts in another form: alone, in a batch of another order, with other queries beside, ...
    compared      a run of each, and how far they are apart beside the limit of rounding (see :mod:`rounding`)
    rows          the same of a learner of the lab

Two runs of the same prompts may each be off by the rounding that is allowed. Two limits are known, and the smaller one
counts. One is the radius of :mod:`rounding`, entry by entry, which grows with all sizes. The other is flat: ``DOUBLE``
and ``SINGLE``, relative to the largest entry. Ramps multiply rounding by their slope, and have the radius alone;
functions that are fitted have the flat limit alone in float32. And a fit is not zero at a token that holds zeros: with
another number of queries, fits that are summed over tokens may be off by their errors, which the radius then has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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

DOUBLE, SINGLE = 1e-12, 1e-4  # allowed error of a run, relative to the largest entry (or to 1, if that is larger)
Prompts = Mapping[str, Any]  # of tensors: X (B, n, d), y (B, n, d_y), X_query (B, m, d), w0 (B, D_w), sample_weight
Parts = tuple[Tensor, Tensor]  # the last weights (B, D_w), predictions (B, m, d_y)
Change = Callable[[Prompts, torch.Generator], tuple[dict[str, Any], Callable[[Parts], Parts]]]


def _each(prompts: Prompts, of: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    return {name: of(value) for name, value in prompts.items()}


def _order(n: int, generator: torch.Generator) -> Tensor:
    """Another order, if there is one."""
    order = torch.randperm(n, generator=generator)
    return order.flip(0) if torch.equal(order, torch.arange(n)) else order


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
    """share: the largest difference over its limit; equal: bit for bit; difference, limit: at that place, of numbers of
    this size.
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
    names: Iterable[str],
    generator: torch.Generator,
    executor: Executor = "plain",
    dtype: torch.dtype = torch.float64,
) -> dict[str, Compared]:
    """Prompts as they are, and after each of these changes: how far apart, beside the limit. The radius of a prompt's
    numbers is the same in any company.
    """
    prompts = {key: value.to(dtype).double() for key, value in prompts.items()}
    first, found = _parts(tf.run(**prompts, executor=executor, dtype=dtype)), dict[str, Compared]()
    known: dict[bool, Parts] = {}
    for name in names:
        other, expected = CHANGES[name](prompts, generator)
        with threads(2 if name == THREADS else torch.get_num_threads()):
            second = _parts(tf.run(**other, executor=executor, dtype=dtype))
        fits = name == "a query alone" and not tf.target.proven
        if fits not in known:
            known[fits] = limits_of(tf, prompts, first, executor, dtype, fits)
        found[name] = judged(second, expected(first), expected(known[fits]))
    return found


def _parts(run: Run) -> Parts:
    return run.weights[:, -1].double(), run.predictions.double()


def limits_of(
    tf: CompiledTransformer, prompts: Prompts, run: Parts, executor: Executor, dtype: torch.dtype, fits: bool
) -> Parts:
    """The allowed distance of two runs: in their weights, and in their predictions. fits: with another number of
    tokens.
    """
    single, fitted = dtype == torch.float32, not tf.target.proven
    flat = SINGLE if single else max(DOUBLE, tf.target.functions.rounding(tf.options)) if fitted else DOUBLE
    stated = [torch.full_like(part, 2 * flat * max(1.0, _largest(part))) for part in run]
    if single and fitted:
        return stated[0], stated[1]
    prompt = tf.prompt(**{"X_query": None, **prompts}, dtype=torch.float64)
    weights, predictions = (2 * part for part in radii_of(tf, prompt, dtype, executor == "dense", fits))
    if fits or any(f.ramps for f in tf.approximants.values()):
        return weights, predictions
    return torch.fmin(weights, stated[0]), torch.fmin(predictions, stated[1])


def judged(found: Parts, expected: Parts, limit: Parts) -> Compared:
    worst = Compared(0.0, True, 0.0, 0.0, 0.0)
    for a, b, allowed in zip(found, expected, limit, strict=True):
        if a.shape != b.shape:
            raise AssertionError(f"shapes {tuple(a.shape)} and {tuple(b.shape)}")
        if not a.numel():
            continue
        off = (a - b).abs()
        share = torch.where(off == 0, 0.0, off / allowed).nan_to_num(nan=float("inf"))
        place = int((share if bool(share.any()) else off).flatten().argmax())  # of an infinite limit, all share nothing
        here = Compared(
            float(share.max()),
            worst.equal and bool((off == 0).all()),
            float(off.flatten()[place]),
            float(allowed.flatten()[place]),
            _largest(b),
        )
        further = (here.share, here.difference) >= (worst.share, worst.difference)
        worst = here if further else Compared(**{**vars(worst), "equal": here.equal})
    return worst


def _largest(part: Tensor) -> float:
    return float(part.abs().max()) if part.numel() else 0.0


# ------------------------------------------------------------------------------------------------------------ the lab

ROUNDINGS = 2  # of each term of a sum, a product and an addition; norms and functions are in the blocks
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
    """Predictions of a learner, a stack of one, on x (B, n, d) and y (B, n, ...); and the same after a change."""
    whole = learner.predict(x, y)
    size, n = y.shape[:2]
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
    limit = torch.full_like(expected, 2 * learner_limit(learner, x, whole)).double()
    return judged((nothing, found.double()), (nothing, expected.double()), (nothing, limit))


def _stacked(learner: Learner) -> Learner:
    """Three of them, whose second is the learner and whose others are not."""
    config: Any = learner.config
    stack: Learner = config.build_for(learner.d, getattr(learner, "n_points", 1), 3, learner.outputs).init([1, 2, 3])
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
    blocks = int(getattr(learner.config, "n_layers", 1)) + 2
    longest = max(2 * x.shape[1], *(max(parameter.shape) for parameter in learner.parameters()))
    return unit(predictions.dtype) * ROUNDINGS * blocks * longest * max(1.0, _largest(predictions))
