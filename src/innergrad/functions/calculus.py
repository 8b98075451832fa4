"""Calculus on tapes: the partial derivative of a recorded formula, and on which of its arguments a tape depends.

An author writes a loss l(t, y), and nothing else. Its derivative u = dl/dt is made from the steps of l, one rule a
step. So it is the derivative by construction, and nothing has to be proven about it. Tangents are 0 (None), numbers, or
recorded values. Steps that do not depend on an argument vanish from the tape, so "u is f(t) + g(y)" can be read off.

A step without a rule (a sum over outputs in the middle) raises :class:`NoRule`. Steps with a kink (abs, clamp, where)
have rules of their own, which count if ``kinks`` is asked for: away from the kink they are right, at the kink they give
the derivative of one side, that of torch's autograd if it is one of both.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from innergrad.functions.jets import NoRule
from innergrad.functions.tape import COMPARISONS, Formula, Ref, Step, Tape, filled, record

Tangent = Any  # None: zero


def partial(tape: Tape, argument: int, kinks: bool = False) -> Tape | float:
    """The derivative of a tape in one of its arguments, as a tape of the same arguments; a number if it is constant."""
    constant: list[float] = []

    def formula(*given: Any) -> Any:
        found = _forward(tape, given, argument, kinks)
        if found is None or isinstance(found, int | float):
            constant.append(float(found or 0.0))
            return given[0] * constant[-1]
        return found

    made = record(formula, tape.arguments)
    return constant[-1] if constant else pruned(made)


def is_derivative(f: Formula, of: Formula) -> bool:
    """Whether f is, step by step, what :func:`partial` makes of another formula: then it is its derivative."""
    try:
        return isinstance(f, Tape) and isinstance(of, Tape) and partial(of, 0, kinks=True) == f
    except NoRule:
        return False


def _forward(tape: Tape, given: tuple[Any, ...], argument: int, kinks: bool) -> Tangent:
    values, tangents = list(given), [1.0 if k == argument else None for k in range(len(given))]
    for step in tape.steps:
        if any(isinstance(x, Ref) and tangents[x.number] is not None for _, x in step.kwargs):
            raise NoRule(f"the derivative of torch.{step.name} in an argument that is named")
        args, named = [filled(x, values) for x in step.args], {k: filled(x, values) for k, x in step.kwargs}
        value = step.call(*args, **named)
        moved = [tangents[x.number] if isinstance(x, Ref) else None for x in step.args]
        if kinks and step.name in (*KINKS, *STEPS) and any(tangent is not None for tangent in moved):
            tangents.append(None if step.name in STEPS else _kinked(step.name, args, moved, named))
        else:
            tangents.append(_tangent(step, args, moved, value))
        values.append(value)
    return tangents[tape.result.number]


def _tangent(step: Step, args: list[Any], moved: list[Tangent], value: Any) -> Tangent:
    """The tangent of a step, from the tangents of its arguments."""
    if step.name in CONSTANT or all(tangent is None for tangent in moved):
        return None
    if step.kwargs:
        raise NoRule(f"the derivative of torch.{step.name} with {', '.join(name for name, _ in step.kwargs)}")
    if step.name in LINEAR:
        return LINEAR[step.name](*moved)
    if step.name in ("mul", "multiply"):
        return _plus(_times(args[1], moved[0]), _times(args[0], moved[1]))
    if step.name in ("truediv", "divide", "true_divide", "rtruediv"):
        (_, dx), (y, dy) = list(zip(args, moved, strict=True))[:: -1 if step.name == "rtruediv" else 1]
        change = _minus(dx, _times(value, dy))  # of x - (x / y) y: where x / y is near a limit, nothing cancels
        return None if change is None else change / y
    if step.name == "pow" and moved[1] is None and isinstance(args[1], int | float):
        return _times(moved[0], args[1] * args[0] ** (args[1] - 1) if args[1] != 2 else 2.0 * args[0])
    if step.name in ("to", "double", "contiguous"):
        return moved[0]
    if step.name == "hypot":
        return _plus(_times(moved[0], args[0] / value), _times(moved[1], args[1] / value))
    if step.name == "logaddexp":  # x + log(1 + e^(y - x))
        weight = torch.sigmoid(args[0] - args[1])
        return _plus(_times(moved[0], weight), _times(moved[1], 1.0 - weight))
    if step.name not in FACTORS:
        raise NoRule(f"the derivative of torch.{step.name}")
    return _times(moved[0], FACTORS[step.name](args[0], value))


def _plus(a: Tangent, b: Tangent) -> Tangent:
    return b if a is None else a if b is None else a + b


def _times(a: Tangent, b: Tangent) -> Tangent:
    """Products with 0 and with 1 leave no step behind."""
    if a is None or b is None:
        return None
    one = [isinstance(x, int | float) and x == 1.0 for x in (a, b)]
    return b if one[0] else a if one[1] else a * b


def _minus(a: Tangent, b: Tangent) -> Tangent:
    return a if b is None else -b if a is None else a - b


CONSTANT = ("zeros_like", "ones_like", "full_like", "dtype", "device")
STEPS = (*COMPARISONS, "and", "or", "invert")  # constant but for their jumps
LINEAR: dict[str, Callable[..., Tangent]] = {
    "add": _plus,
    "sub": _minus,
    "subtract": _minus,
    "rsub": lambda a, b: _minus(b, a),
    "neg": operator.neg,
    "negative": operator.neg,
    "pos": operator.pos,
}
#: name -> the derivative of the function, from its argument x and its value f
FACTORS: dict[str, Callable[[Any, Any], Any]] = {
    "square": lambda x, f: 2.0 * x,
    "exp": lambda x, f: f,
    "expm1": lambda x, f: f + 1.0,
    "log": lambda x, f: 1.0 / x,
    "log1p": lambda x, f: 1.0 / (1.0 + x),
    "sqrt": lambda x, f: 0.5 / f,
    "rsqrt": lambda x, f: -0.5 * f / x,
    "reciprocal": lambda x, f: -1.0 * f * f,
    "sigmoid": lambda x, f: f * torch.sigmoid(-x),  # far out 1 - f and 1 - f^2 would cancel
    "expit": lambda x, f: f * torch.sigmoid(-x),
    "log_sigmoid": lambda x, f: torch.sigmoid(-x),
    "tanh": lambda x, f: 4.0 * torch.sigmoid(2.0 * x) * torch.sigmoid(-2.0 * x),
    "arctan": lambda x, f: 1.0 / (1.0 + x * x),
    "atan": lambda x, f: 1.0 / (1.0 + x * x),
    "sin": lambda x, f: torch.cos(x),
    "cos": lambda x, f: -1.0 * torch.sin(x),
    "sinh": lambda x, f: torch.cosh(x),
    "cosh": lambda x, f: torch.sinh(x),
    "erf": lambda x, f: torch.exp(-x * x) * (2.0 / math.sqrt(math.pi)),
    "erfc": lambda x, f: torch.exp(-x * x) * (-2.0 / math.sqrt(math.pi)),
}


# ---------------------------------------------------------------------------------------------------------------- kinks


def _kinked(name: str, args: list[Any], moved: list[Tangent], named: dict[str, Any]) -> Tangent:
    try:
        return KINKS[name](args, moved, **named)
    except (TypeError, IndexError) as error:
        raise NoRule(f"the derivative of torch.{name} with these arguments") from error


def _as_number(mask: Any, like: Any) -> Any:
    return mask.to(like.dtype)


def _of_relu(args: list[Any], moved: list[Tangent], **_: Any) -> Tangent:
    (x,) = args
    return _times(moved[0], _as_number(x > 0.0, x))


def _of_abs(args: list[Any], moved: list[Tangent]) -> Tangent:
    (x,) = args
    return _times(moved[0], 2.0 * _as_number(x > 0.0, x) - 1.0)


def _of_softsign(args: list[Any], moved: list[Tangent]) -> Tangent:
    (x,) = args
    return _times(moved[0], (1.0 + torch.abs(x)).square().reciprocal())


def _of_leaky(args: list[Any], moved: list[Tangent], negative_slope: float = 0.01, **_: Any) -> Tangent:
    x, slope = args[0], args[1] if len(args) > 1 else negative_slope
    return _times(moved[0], slope + (1.0 - slope) * _as_number(x > 0.0, x))


def _of_clamp(args: list[Any], moved: list[Tangent], min: Any = None, max: Any = None) -> Tangent:
    """Inside, ends included."""
    x, low, high = (*args, min, max)[:3] if len(args) == 1 else (*args, max)[:3]
    if any(tangent is not None for tangent in moved[1:]):
        raise NoRule("the derivative of torch.clamp in its ends")
    found = moved[0]
    if low is not None:
        found = _times(found, _as_number(x >= low, x))
    return found if high is None else _times(found, _as_number(x <= high, x))


def _of_maximum(args: list[Any], moved: list[Tangent], sign: float = 1.0) -> Tangent:
    x, y = args
    difference = x - y if sign > 0 else y - x
    first = _as_number(difference > 0.0, difference)
    return _plus(_times(moved[0], first), _times(moved[1], 1.0 - first))


def _of_where(args: list[Any], moved: list[Tangent]) -> Tangent:
    mask, x, y = args
    like = x if moved[1] is not None else y
    ends = (torch.zeros_like(like) if tangent is None else tangent for tangent in moved[1:])
    return torch.where(mask, *(torch.full_like(like, end) if isinstance(end, float) else end for end in ends))


#: name -> the tangent, from the arguments, their tangents and the arguments that are named
KINKS: dict[str, Callable[..., Tangent]] = {
    "relu": _of_relu,
    "abs": _of_abs,
    "absolute": _of_abs,
    "softsign": _of_softsign,
    "leaky_relu": _of_leaky,
    "clamp": _of_clamp,
    "clip": _of_clamp,
    "clamp_min": lambda args, moved, **named: _of_clamp(args, moved, **named),
    "clamp_max": lambda args, moved, max=None: _of_clamp([args[0], None, *args[1:], max][:3], moved[:1]),
    "maximum": _of_maximum,
    "minimum": lambda args, moved: _of_maximum(args, moved, -1.0),
    "where": _of_where,
}


def kinks(tape: Tape) -> tuple[Tape, ...]:
    """Where a tape of one argument may have a kink: formulas that are zero there, and nowhere else."""
    found, at_zero = list(tape.comparisons), ("relu", "abs", "absolute", "leaky_relu", "softsign")
    for number, step in enumerate(tape.steps):
        if step.name not in KINKS or step.name == "where":
            continue
        named = [x for _, x in step.kwargs if isinstance(x, int | float) and not isinstance(x, bool)]
        ends = [0.0] if step.name in at_zero else [*step.args[1:], *named]
        for end in (end for end in ends if end is not None):
            difference = Step("sub", operator.sub, (step.args[0], end))
            found.append(Tape((*tape.steps[:number], difference), Ref(tape.arguments + number)))
    return tuple(found)


# ------------------------------------------------------------------------------------------------- what a tape reads


def pruned(tape: Tape) -> Tape:
    """The tape without the steps that its result does not depend on."""
    needed, kept = {tape.result.number}, list[tuple[int, Step]]()
    for number in range(tape.arguments + len(tape.steps) - 1, tape.arguments - 1, -1):
        if number in needed:
            step = tape.steps[number - tape.arguments]
            kept.insert(0, (number, step))
            needed |= {x.number for x in (*step.args, *(x for _, x in step.kwargs)) if isinstance(x, Ref)}
    moved = {k: k for k in range(tape.arguments)} | {old: tape.arguments + i for i, (old, _) in enumerate(kept)}
    steps = tuple(
        replace(step, args=_renamed(step.args, moved), kwargs=tuple((k, _renamed(x, moved)) for k, x in step.kwargs))
        for _, step in kept
    )
    return Tape(steps, Ref(moved[tape.result.number]), tape.arguments)


def _renamed(x: Any, moved: dict[int, int]) -> Any:
    if isinstance(x, Ref):
        return Ref(moved[x.number])
    return tuple(_renamed(part, moved) for part in x) if isinstance(x, tuple) else x


def reads(tape: Tape, argument: int) -> bool:
    """Whether the result depends on an argument."""
    return tape.result == Ref(argument) or any(
        x == Ref(argument) for step in pruned(tape).steps for x in (*step.args, *(x for _, x in step.kwargs))
    )


def of_the_difference(tape: Tape) -> Tape | None:
    """A tape of two arguments that reads their difference t - y alone, as a tape of that; else None."""
    tape = pruned(tape)
    differences = {
        n for n, step in enumerate(tape.steps, start=2) if (step.name, step.args) == ("sub", (Ref(0), Ref(1)))
    }
    steps, moved = list[Step](), dict.fromkeys(differences, 0)
    for number, step in enumerate(tape.steps, start=2):
        if number in differences:
            continue
        if any(x in (Ref(0), Ref(1)) for x in step.args):
            return None
        steps.append(replace(step, args=_renamed(step.args, moved)))
        moved[number] = len(steps)
    if tape.result.number not in moved:
        return None
    return Tape(tuple(steps), Ref(moved[tape.result.number]))


def at(tape: Tape, argument: int, place: float) -> Formula:
    """A tape of two arguments as a formula of the other one, with one argument held at a number."""

    def formula(t: Any) -> Any:
        held = torch.full_like(t, place)
        return tape(held, t) if argument == 0 else tape(t, held)

    return record(formula)


def summands(loss: Formula) -> Tape:
    """l of one output, from a loss that is a sum of it over the outputs, the last axis."""
    tape = record(loss, arguments=2)
    last = tape.steps[-1] if tape.steps else None
    whole = tape.result == Ref(1 + len(tape.steps))
    if last is None or last.name != "sum" or not whole or (*last.args[1:], *last.kwargs) not in ((-1,), (("dim", -1),)):
        raise NoRule("a loss that is no sum over the outputs, written (...).sum(-1)")
    (result,) = last.args[:1]
    return pruned(Tape(tape.steps[:-1], result, 2))
