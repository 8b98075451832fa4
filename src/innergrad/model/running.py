"""One forward pass on a prompt, and its results."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from innergrad.errors import InputError, JobError, PoorRun
from innergrad.ir.program import Program
from innergrad.ir.stream import State
from innergrad.memory import require_memory
from innergrad.model.compiled import Compiled
from innergrad.model.executors import OVERFLOWED, Executor, Name, choose, executor_of, recorded, require_finite
from innergrad.model.guard import Guard, Outside
from innergrad.model.learning import Learning, plot_loss
from innergrad.model.prompt import ArrayLike, Prompt
from innergrad.model.rates import lower_rate
from innergrad.model.symptoms import Symptom, symptoms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBER = 48  # bytes of a number of a step, in a tuple
LITTLE = 2**16  # bytes that are there: to ask takes longer than a short run

# a record, a prompt, the same in float64, an executor, a guard, a limit -> weights, lanes, steps taken by each prompt
Stop = Callable[[Compiled, Prompt, Prompt, Executor, Guard, float], tuple[list[Tensor], State, tuple[int | None, ...]]]


@dataclass(frozen=True)
class Run:
    """What a forward pass learned.

    Attributes:
        weights: (..., steps + 1, D_w), the weights of the small network before the first step and after every one. D_w
            is 0 for an algorithm without weights. With ``until`` there are fewer steps; with ``record``, those in
            ``recorded``.
        predictions: (..., n_query, d_y), or (..., n_query) if y was given as (n,).
        online: (..., n), the prediction of each label from the examples before it. Only causal programs have it.
        std: (..., n_query), the predictive standard deviation, if it was asked for.
        stopped: with ``until``, the number of steps before the run stopped, or None. One for each prompt of a batch.
        violations: a sentence for each value that left its domain, with ``outside="flag"``.
        recorded: the steps that ``weights`` has; 0 is the start.
        symptoms: signs that the run has not learned well, each with a remedy. ``warnings`` has them as sentences.
        learning: the data of the run, which ``loss`` and ``plot`` use.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.linspace(-1, 1, 8).view(-1, 1)
        >>> algorithm = ig.GradientDescent(ig.Network([1, 4, 1]), lr=0.2, steps=5, box=None)
        >>> tf = ig.compile(algorithm, target="llama")
        >>> run = tf.run(X, torch.sin(X), X)
        >>> tuple(run.weights.shape), tuple(run.predictions.shape), tuple(run.loss.shape)
        ((6, 13), (8, 1), (6,))
    """

    weights: Tensor
    predictions: Tensor
    online: Tensor | None = None
    std: Tensor | None = None
    stopped: int | tuple[int | None, ...] | None = None
    violations: tuple[str, ...] = ()
    recorded: tuple[int, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    learning: Learning | None = field(default=None, compare=False, repr=False)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each symptom: the loss rises, the box binds, units are saturated, predictions are constant."""
        return tuple(map(str, self.symptoms))

    @cached_property
    def loss(self) -> Tensor:
        """(..., recorded): the algorithm's objective on the examples, after every step that ``weights`` has."""
        found = self._learned_from.loss(self._batched, self._steps)
        return found if self._learned_from.prompt.batched else found[0]

    @cached_property
    def exact_loss(self) -> Tensor:
        """The same of the algorithm itself, without a transformer: by autograd where it says how."""
        found = self._learned_from.exact_loss(self._steps)
        return found if self._learned_from.prompt.batched else found[0]

    def plot(self, path: str | Path | None = None, *, exact: bool = True, force: bool = False) -> Figure:
        """The loss by step, beside the algorithm's own; with a path it is saved as a PNG."""
        beside = self.exact_loss if exact else None
        rows = [None if part is None else part.reshape(-1, part.shape[-1]) for part in (self.loss, beside)]
        assert rows[0] is not None
        return plot_loss(self._steps, rows[0], rows[1], path, force)

    @property
    def _learned_from(self) -> Learning:
        if self.learning is None:
            what = "this run has no record of its examples"
            raise InputError(what, hint="runs of tf.run and of ig.reference do")
        return self.learning

    @property
    def _batched(self) -> Tensor:
        return self.weights if self._learned_from.prompt.batched else self.weights.unsqueeze(0)

    @property
    def _steps(self) -> tuple[int, ...]:
        return self.recorded or tuple(range(self.weights.shape[-2]))


def run(
    of: Compiled,
    X: ArrayLike,
    y: ArrayLike,
    X_query: ArrayLike | None = None,
    *,
    w0: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    name: Name = "auto",
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    return_std: bool = False,
    until: float | None = None,
    outside: Outside = "error",
    record: int | Literal["all", "last"] = "all",
    compiled: bool | None = None,
    stop: Stop | None = None,
    watched: bool = True,
) -> Run:
    """As :meth:`innergrad.CompiledTransformer.run` says; name: of the executor; stop: ends a run by a certificate;
    watched: look for symptoms, and warn of them.
    """
    guard = of.guard(outside)
    limit = of.options.until if until is None else until
    automatic = name == "auto"
    chosen = executor_of(of, name)
    chosen.check(dtype, guard, None if automatic else compiled)
    prompt = of.prompt(X, y, X_query, w0=w0, sample_weight=sample_weight, dtype=dtype, seed=seed, guard=guard)
    _check_record(of.program, prompt, record)
    wanted = recorded(of.program.steps, record)
    stopped: tuple[int | None, ...] | None = None
    try:
        if limit is not None and stop is not None:
            _check_until(guard, record)
            given = of.in_double(prompt, sample_weight)
            weights, state, stopped = stop(of, prompt, given, chosen, guard, limit)
            wanted = tuple(range(len(weights)))
        else:
            if automatic and not guard.flags:
                chosen, compiled = choose(of, prompt, compiled=compiled)
            weights, state = chosen.run(prompt, wanted, guard, compiled)
        predictions = prompt.predictions(of.program, state)
        require_finite(weights[-1], predictions)
    except JobError as error:
        advice = lower_rate(of.algorithm, prompt, range(len(prompt.X))) if str(error) == OVERFLOWED else ""
        raise JobError("; ".join(filter(None, [str(error), advice]))) from error
    std = _std(of, prompt, state, chosen, guard, compiled) if return_std else None
    found = symptoms(of.program, of.algorithm, prompt, weights, state, predictions) if watched else ()
    for symptom in found:
        warnings.warn(str(symptom), PoorRun, stacklevel=3)
    return replace(
        as_run(of.program, prompt, torch.stack(weights, dim=1), state, std),
        stopped=stopped if stopped is None or prompt.batched else stopped[0],
        violations=tuple(guard.violations),
        recorded=wanted,
        symptoms=found,
        learning=Learning(of.algorithm, of.program, prompt, of.functions),
    )


def _check_record(program: Program, prompt: Prompt, record: object) -> None:
    """An error, before any step, if there is no room for the weights that are kept."""
    kept = program.steps // record if isinstance(record, int) and record > 0 else program.steps * (record == "all")
    size = 2 * prompt.w0.numel() * prompt.w0.element_size() + NUMBER
    what = f"keeping the weights after {kept + 1:,} steps"
    if (kept + 1) * size > LITTLE:
        require_memory((kept + 1) * size, what, "give record='last', or fewer steps")


def _check_until(guard: Guard, record: object) -> None:
    if guard.flags:
        raise InputError(
            "a run is stopped by its certificate, which holds inside the domain",
            got="until and outside='flag'",
            allowed="one of them",
        )
    if record != "all":
        raise InputError("a run that stops by itself records all steps", got=f"record={record!r}")


def _std(of: Compiled, prompt: Prompt, state: State, chosen: Executor, guard: Guard, compiled: bool | None) -> Tensor:
    """Predictive standard deviation at the queries, (batch, n_query)."""
    algorithm, program = of.algorithm, of.program
    if program.variance is not None:
        lane = state[program.variance]
        return algorithm.std(lane[:, lane.shape[1] - prompt.X_query.shape[1] :])
    columns = algorithm.variance_prompt(prompt.X, prompt.X_query)
    if columns is None:
        raise InputError(f"{algorithm.kind} has no predictive standard deviation", got="return_std=True")
    targets, prior = columns
    batch, n_query = prompt.X_query.shape[:2]
    one_each = Prompt(
        prompt.X.repeat_interleave(n_query, 0),
        targets.flatten(0, 1),
        prompt.X_query.flatten(0, 1).unsqueeze(1),
        prompt.w0.repeat_interleave(n_query, 0),
        prompt.omega.repeat_interleave(n_query, 0),
        True,
    )
    aside = guard.aside()
    _, state = chosen.run(one_each, (), aside, compiled)
    guard.violations += [f"predictive deviation, one prompt a query: {text}" for text in aside.violations]
    explained = one_each.predictions(program, state)[:, 0, 0].view(batch, n_query)
    return algorithm.std(prior - explained)


def as_run(program: Program, prompt: Prompt, weights: Tensor, state: State, std: Tensor | None) -> Run:
    predictions = prompt.like_y(prompt.predictions(program, state))
    online = prompt.online(program, state)[..., 0] if program.causal else None
    if prompt.batched:
        return Run(weights, predictions, online, std)
    return Run(weights[0], predictions[0], None if online is None else online[0], None if std is None else std[0])
