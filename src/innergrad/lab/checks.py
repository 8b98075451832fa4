"""Checks for tasks and baselines of one's own: do they keep the promises that training and evaluation rely on?

    check_task(Products(d=3))              a prompt depends on its number and the seed alone, evaluate is pure, labels
                                           are finite, vary, and are of the size that scale says
    check_predictor(Nearest(), d=3)        the prediction of y_k sees x_k and the first k pairs, and nothing else

A broken promise is an InputError that names the class. Checks try a few prompts on the CPU: they find slips, and prove
nothing. ``train`` and ``evaluate_run`` make them for every class that is not innergrad's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import shape_of_label, words_for_label
from innergrad.lab.tasks.base import Params, Prompts, Task

PROMPTS = 8  # of a task: drawn twice, and one of them alone
ALONE = 5
SCALE_PROMPTS = 64
NEAR, FAR = 4.0, 10.0  # a scale that is wrong by this factor is worth a note; by that, an error
ROWS = 4  # prompts of a predictor
TOLERANCE = 1e-4  # rounding of float32 in products of other sizes


def is_users_own(instance: object) -> bool:
    """Whether the class is a user's, or that of a task that it is made of."""
    inside = [getattr(instance, one.name) for one in fields(instance)] if isinstance(instance, Task) else []
    parts = [part for value in inside for part in (value if isinstance(value, tuple) else (value,))]
    own = not type(instance).__module__.startswith("innergrad.")
    return own or any(is_users_own(part) for part in parts if isinstance(part, Task))


# --------------------------------------------------------------------------------------------------------------- tasks


def check_task(task: Task, n: int = 8, *, shifted: bool = False) -> tuple[str, ...]:
    """Check that a task keeps its promises, on a few prompts. A broken one is an ``InputError``.

    Promises are: functions are pure, the same in every batch, and not all alike. Returns notes on what looks
    suspicious.

    Args:
        task: the task.
        n: points of a prompt.
        shifted: it is not trained on, and is measured in units of the task that was.

    Examples:
        >>> from innergrad import lab
        >>> lab.check_task(lab.Linear(d=2))
        ()
    """
    if not isinstance(task, Task):
        raise InputError("check_task takes a task", got=repr(task), hint="an instance, such as Linear(d=5)")
    integer("n", n)
    rng, index = CounterRNG.of(0, "check task"), torch.arange(PROMPTS)
    _sample(task, rng, index, n)
    _check_pure(task, rng, index, n)
    _check_repeats(task, rng, index, n)
    _check_batches(task, rng, index, n)
    _check_varies(task, rng, index, n)
    return _scale_notes(task, rng, n, shifted)


def _check_pure(task: Task, rng: CounterRNG, index: Tensor, n: int) -> None:
    """``evaluate`` twice on points that it has not seen yet, with a look at its side effects."""
    params, x = _drawn(task, rng, index, n)
    kept, kept_x = {name: value.clone() for name, value in params.items()}, x.clone()
    labels = task.evaluate(params, x).clone()
    if params.keys() != kept.keys() or any(not _same(params[name], kept[name]) for name in kept):
        raise InputError(f"{_name(task)}: evaluate changes params in place", hint="work on a copy")
    if not _same(x, kept_x):
        raise InputError(f"{_name(task)}: evaluate changes x in place", hint="work on a copy")
    if not _same(labels, task.evaluate(params, x)):
        hint = "draw random numbers in params"
        raise InputError(f"{_name(task)}: evaluate gives other labels when it is called again", hint=hint)


def _check_repeats(task: Task, rng: CounterRNG, index: Tensor, n: int) -> None:
    """The same prompts twice: the same numbers, from the generator."""
    hint = "take random numbers from rng, by index"
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        torch.default_generator.manual_seed(271828)  # a state that no task ends in by itself
        state = torch.get_rng_state()
        first, again = (_sample(task, rng, index, n) for _ in range(2))
        untouched = torch.equal(state, torch.get_rng_state())
    for what, a, b in _parts(task, first, again):
        if not _same(a, b):
            found = f"{what} are other numbers when the same prompts are drawn again"
            raise InputError(f"{_name(task)}: {found}", hint=hint)
    if not untouched:
        raise InputError(f"{_name(task)}: drawing prompts changes torch's global random numbers", hint=hint)


def _check_batches(task: Task, rng: CounterRNG, index: Tensor, n: int) -> None:
    """A prompt in a batch and alone."""
    batch, alone = _sample(task, rng, index, n), _sample(task, rng, index[ALONE : ALONE + 1], n)
    for what, a, b in _parts(task, batch, alone):
        size = float(b.double().nan_to_num().abs().max()) if b.numel() else 0.0
        if not _same(a[ALONE : ALONE + 1], b, TOLERANCE * size):
            raise InputError(
                f"{_name(task)}: {what} of a prompt depend on the batch it is drawn in",
                got=f"others for prompt {ALONE} alone than among {len(index)}",
                hint="use the entries of index, not their places, and sum over no batch",
            )


def _check_varies(task: Task, rng: CounterRNG, index: Tensor, n: int) -> None:
    """Other prompts and other seeds are other numbers; so are labels."""
    prompts, others = _sample(task, rng, index, n), _sample(task, CounterRNG.of(1, "check task"), index, n)
    if _same(prompts.x, others.x) and _same(prompts.y, others.y):
        what, hint = "prompts are the same for every seed", "take random numbers from rng, by index"
        raise InputError(f"{_name(task)}: {what}", hint=hint)
    if _same(prompts.x, prompts.x[:1].expand_as(prompts.x)) and _same(prompts.y, prompts.y[:1].expand_as(prompts.y)):
        raise InputError(f"{_name(task)}: all prompts are the same", hint="take random numbers from rng, by index")
    labels = torch.cat([_labels(task, each, n) for each in (rng, CounterRNG.of(1, "check task"))])
    if _same(labels, labels.flatten()[0].expand_as(labels)):
        got = f"{float(labels.flatten()[0]):.6g} at every point of every prompt"
        raise InputError(f"{_name(task)}: all labels are equal: there is nothing to learn", got=got)


def _scale_notes(task: Task, rng: CounterRNG, n: int, shifted: bool) -> tuple[str, ...]:
    """A sentence if labels without noise are not quite of the size that the task says; an error if not at all."""
    scale = real(f"{_name(task)}: scale", task.scale, above=0.0)
    again = real(f"{_name(task)}: scale", task.scale, above=0.0)
    if again != scale:
        got = f"{scale:.6g}, then {again:.6g}"
        raise InputError(f"{_name(task)}: scale is another number when it is asked again", got=got)
    size = float(_labels(task, rng, n).double().square().mean().sqrt())
    if scale / NEAR <= size <= scale * NEAR:
        return ()
    found = f"the root mean square of labels is {size:.3g}, scale is {scale:.3g}"
    if shifted or scale / FAR <= size <= scale * FAR:
        return (f"{_name(task)}: learners see y / scale: {found}",)
    raise InputError(
        f"{_name(task)}: scale is far from the size of its labels, and learners see y / scale",
        got=found,
        allowed=f"the root mean square of a label without noise, within a factor of {FAR:g}",
        hint="let scale return it, or lab.tasks.measured_scale(self)",
    )


def _labels(task: Task, rng: CounterRNG, n: int) -> Tensor:
    """(SCALE_PROMPTS, n, ...), without noise."""
    labels = task.evaluate(*_drawn(task, rng, torch.arange(SCALE_PROMPTS), n))
    _check_numbers(task, "labels", labels)
    return labels


def _sample(task: Task, rng: CounterRNG, index: Tensor, n: int) -> Prompts:
    """Prompts of the right shapes, with finite numbers."""
    _drawn(task, rng, index, n)  # says what is wrong with x before evaluate stumbles over it
    prompts = task.sample(rng, index, n)
    labels = (len(index), n, *shape_of_label(task.outputs))
    shapes = {"points": (prompts.x, (len(index), n, task.d)), "labels": (prompts.y, labels)}
    for what, (values, shape) in shapes.items():
        if not isinstance(values, Tensor) or values.shape != shape:
            raise InputError(
                f"{_name(task)}: sample gives {what} of another shape", got=_shape(values), allowed=f"{shape}"
            )
        _check_numbers(task, what, values, gaps=task.gaps and what == "points")
    return prompts


def _drawn(task: Task, rng: CounterRNG, index: Tensor, n: int) -> tuple[Params, Tensor]:
    """Parameters and points, drawn as ``sample`` does."""
    params = task.params(rng.fork("params"), index, n)
    values = list(params.values()) if isinstance(params, dict) else [params]
    if not isinstance(params, dict) or not all(isinstance(v, Tensor) and v.shape[:1] == index.shape for v in values):
        got = ", ".join(map(_shape, values))
        raise InputError(f"{_name(task)}: params must return a dictionary of tensors (B, ...)", got=got)
    x, shape = task.points(rng.fork("inputs"), index, n, params), (len(index), n, task.d)
    if not isinstance(x, Tensor) or x.shape != shape:
        raise InputError(f"{_name(task)}: points must be (B, n, d)", got=_shape(x), allowed=f"a tensor {shape}")
    _check_numbers(task, "points", x, gaps=task.gaps)
    return params, x


def _check_numbers(task: Task, what: str, values: Tensor, *, gaps: bool = False) -> None:
    """Finite, or missing where there may be gaps, and of the type that learners take."""
    if not values.is_floating_point():
        got, hint = str(values.dtype), "learners work in float32: .float()"
        raise InputError(f"{_name(task)}: {what} must be floating-point numbers", got=got, hint=hint)
    if values.requires_grad:
        raise InputError(f"{_name(task)}: {what} require gradients", hint="they are data: .detach()")
    wrong = values[~(values.isfinite() | values.isnan())] if gaps else values[~values.isfinite()]
    if len(wrong):
        got = f"{float(wrong[0])} among {values.numel()} numbers"
        raise InputError(f"{_name(task)}: {what} must be finite", got=got)


def _parts(task: Task, a: Prompts, b: Prompts) -> list[tuple[str, Tensor, Tensor]]:
    """The parts of two draws to compare, causes before their effects."""
    if a.params.keys() != b.params.keys():
        got = f"{sorted(a.params)} and {sorted(b.params)}"
        raise InputError(f"{_name(task)}: params have other names in another draw", got=got)
    named = [(f"params ({name})", a.params[name], b.params[name]) for name in a.params]
    return [*named, ("points", a.x, b.x), ("labels", a.y, b.y)]


# ---------------------------------------------------------------------------------------------------------- predictors


def check_predictor(predictor: Predictor, d: int, n: int = 6, outputs: int = 1) -> None:
    """Check that a predictor keeps its promises, on random prompts. A broken one is an ``InputError``.

    The promise is that no prediction looks at its own label, or at later ones. Oracles do look ahead, and are refused.

    Args:
        predictor: the predictor.
        d: the number of inputs.
        n: points of a prompt.
        outputs: numbers of a label.

    Examples:
        >>> from innergrad import lab
        >>> lab.check_predictor(lab.baselines.Mean(), d=2)
    """
    if not isinstance(predictor, Predictor):
        raise InputError("check_predictor takes a predictor", got=repr(predictor), hint="an instance, such as Mean()")
    integer("d", d)
    integer("n", n, low=2)
    check_no_peeking(_name(predictor), predictor, d, n, outputs=integer("outputs", outputs))


def check_no_peeking(
    name: str,
    predict: Callable[[Tensor, Tensor], Tensor],
    d: int,
    n: int,
    *,
    device: torch.device | str = "cpu",
    outputs: int = 1,
) -> None:
    """An error if a prediction changes when it is made again, or with its own label, or with later points."""
    rng, index = CounterRNG.of(0, "check predictor", device), torch.arange(ROWS, device=device)
    label = (n, *shape_of_label(outputs))
    x, y = rng.fork("x").normal(index, n, d), rng.fork("y").normal(index, *label)
    found = _predicted(name, predict, x, y)
    if not _agree(found, _predicted(name, predict, x, y)):
        raise InputError(
            f"{name}: predictions change when it is called again",
            hint="random numbers come from a CounterRNG with a fixed seed",
        )
    # All prompts change at once: a predictor may choose by all of them together.
    other_x, other_y = 3.0 * rng.fork("other x").normal(index, n, d), 3.0 * rng.fork("other y").normal(index, *label)
    for k in range(n):
        later_x = torch.cat([x[:, : k + 1], other_x[:, k + 1 :]], 1)
        later_y = torch.cat([y[:, :k], other_y[:, k:]], 1)
        if not _agree(found[:, k], _predicted(name, predict, later_x, later_y)[:, k]):
            labels = not _agree(found[:, k], _predicted(name, predict, x, later_y)[:, k])
            seen = f"y_{k} or later labels" if labels else f"points after x_{k}"
            raise InputError(
                f"{name} looks ahead: the prediction of y_{k} changes with {seen}",
                allowed=f"x_{k} and the first {k} pairs",
            )


def _predicted(name: str, predict: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Predictions, from copies that must stay as they are."""
    own_x, own_y = x.clone(), y.clone()
    found: object = predict(own_x, own_y)
    if not isinstance(found, Tensor) or found.shape != y.shape:
        allowed, words = f"a tensor {tuple(y.shape)}", words_for_label(y.shape[2] if y.ndim == 3 else 1)
        raise InputError(f"{name} must return predictions {words}", got=_shape(found), allowed=allowed)
    for what, own, given in (("x", own_x, x), ("y", own_y, y)):
        if not _same(own, given):
            raise InputError(f"{name} changes {what} in place", hint="work on a copy")
    return found.detach().clone()


def _agree(a: Tensor, b: Tensor) -> bool:
    """Whether predictions are equal up to rounding."""
    return _same(a, b, TOLERANCE * (1.0 + a.abs().double()))


# --------------------------------------------------------------------------------------------------------------- both


def _same(a: Tensor, b: Tensor, tolerance: Tensor | float = 0.0) -> bool:
    """Whether two tensors have one shape and the same numbers, up to a tolerance; NaN equals NaN."""
    if a.shape != b.shape:
        return False
    equal = (a == b) | (a.isnan() & b.isnan()) | ((a.double() - b.double()).abs() <= tolerance)
    return bool(equal.all())


def _name(instance: object) -> str:
    return type(instance).__name__


def _shape(value: object) -> str:
    return f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
