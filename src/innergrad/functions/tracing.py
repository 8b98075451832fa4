"""Tracing: a plain function of torch as a tape, and what such a function must be.

A *tape* is the list of operations that a function does (:mod:`innergrad.functions.tape`). Functions of
``torch.nn.functional`` that are formulas of simpler operations are written out (:data:`FORMULAS`), so that facts about
them can be proven. One of them is not what torch computes: beyond its threshold torch takes t for softplus(t), which
makes a jump of 2e-9. Written out it is softplus for every t. The root of a square and a number, sqrt(1 + t^2), becomes
torch.hypot, which can be followed far out.

:func:`check_callable` tries a function on tensors before anything else, and says in one sentence what is wrong with it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from innergrad.errors import InputError, own_gradients
from innergrad.functions.jets import NoRule
from innergrad.functions.tape import Formula, Ref, Step, Tape, filled, record

SAME = 1e-8  # how far a formula that is written out may be from what torch computes, relative to 1 or to its size
_ELEMENTWISE = 1e-9  # how far values may be apart that must be the same, relative to the largest
_POINTS = 257
NUMBER = (
    "a Python number made of a tensor, by item(), float() or a function of math",
    "use torch's functions, for example torch.sin(t) in place of math.sin(t)",
)

Call = Callable[[Tensor], Tensor]


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    del threshold
    return -torch.nn.functional.logsigmoid(x * -beta) / beta


def _elu(x: Any, alpha: float = 1.0, width: float = 1.0) -> Any:
    return torch.where(x > 0.0, x, alpha * torch.expm1((x / width).clamp(max=0.0)))


def _selu(x: Any) -> Any:
    return 1.0507009873554804934193349852946 * _elu(x, 1.6732632423543772848170429916717)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        return x * (0.5 * torch.erfc(x * -math.sqrt(0.5)))
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _between(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> Any:
    """Unlike clamp, with a derivative of 0 at the ends, as torch has it."""
    return torch.where(x <= min_val, min_val, torch.where(x >= max_val, max_val, x))


#: functions of torch.nn.functional in simpler operations
FORMULAS: dict[str, Callable[..., Any]] = {
    "softplus": _softplus,
    "mish": lambda x: x * torch.tanh(_softplus(x)),
    "silu": lambda x: x * torch.sigmoid(x),
    "gelu": _gelu,
    "elu": _elu,
    "celu": lambda x, alpha=1.0: _elu(x, alpha, alpha),
    "selu": _selu,
    "tanhshrink": lambda x: x - torch.tanh(x),
    "softshrink": lambda x, lambd=0.5: x - x.clamp(-lambd, lambd),
    "hardtanh": _between,
    "relu6": lambda x: _between(x, 0.0, 6.0),
    "hardsigmoid": lambda x: _between(x, -3.0, 3.0) / 6.0 + 0.5,
    "hardswish": lambda x: x * (_between(x, -3.0, 3.0) / 6.0 + 0.5),
}


def _unreduced(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Of a loss of torch.nn.functional, which is to give one number for each t and y."""

    def called(t: Any, y: Any, *args: Any, reduction: str = "mean", **named: Any) -> Any:
        settings = {name: value for name, value in named.items() if value is not None}
        if reduction != "none":
            raise NoRule(f"a loss with reduction={reduction!r}")
        return formula(t, y, *args, **settings)

    return called


def _huber(t: Any, y: Any, delta: float = 1.0) -> Any:
    d = t - y
    near = d.clamp(-delta, delta)
    return near * (d - 0.5 * near)


#: losses of torch.nn.functional, likewise
LOSSES: dict[str, Callable[..., Any]] = {
    "mse_loss": lambda t, y: (t - y).square(),
    "l1_loss": lambda t, y: torch.abs(t - y),
    "huber_loss": _huber,
    "smooth_l1_loss": lambda t, y, beta=1.0: _huber(t, y, beta) / beta,
    "binary_cross_entropy_with_logits": lambda t, y: _softplus(t) - t * y,
    "soft_margin_loss": lambda t, y: _softplus(-y * t),
}
FORMULAS |= {name: _unreduced(formula) for name, formula in LOSSES.items()}
OF_TENSORS = ("maximum", "minimum", "hypot", "logaddexp")  # torch wants tensors, not numbers


def traced(f: Formula, arguments: int = 1) -> Tape:
    """What a function does, in operations that have rules; raises :class:`NoRule` if it cannot be recorded."""

    def formula(*given: Any) -> Any:
        return _replayed(record(f, arguments), given)

    return record(formula, arguments)


def _replayed(tape: Tape, given: tuple[Any, ...]) -> Any:
    values, inverse = list(given), dict[Any, Any]()  # a step that is one over a root -> the root
    for number, step in enumerate(tape.steps, start=tape.arguments):
        args = [filled(x, values) for x in step.args]
        named = {name: filled(x, values) for name, x in step.kwargs if name != "inplace"}
        if step.name in OF_TENSORS:
            args = [torch.full_like(given[0], x) if isinstance(x, int | float) else x for x in args]
        root = _root(tape, step)
        if root is not None:
            x = values[root.x.number]
            side = torch.hypot(x if root.factor == 1.0 else x * root.factor, torch.full_like(x, root.other))
            inverse |= {Ref(number): side} if root.power < 0 else {}
            values.append(side if root.power > 0 else 1.0 / side)
        elif (
            step.name == "mul" and not named and any(x in inverse for x in step.args)
        ):  # x * rsqrt(...) is x / sqrt(...)
            top, bottom = step.args if step.args[1] in inverse else step.args[::-1]
            values.append(filled(top, values) / inverse[bottom])
        elif step.name == "sub" and step.args == (Ref(1), Ref(0)) and tape.arguments == 2:  # so that t - y is seen
            values.append(-(given[0] - given[1]))
        else:
            values.append(FORMULAS.get(step.name, step.call)(*args, **named))
    return values[tape.result.number]


@dataclass(frozen=True)
class _Root:
    """A step that is sqrt((factor x)^2 + other^2), or one over it if power is -1. The same is torch.hypot(factor x,
    other), which neither overflows nor cancels far out: there asymptotes are proven.
    """

    power: int
    x: Ref
    factor: float
    other: float


ROOTS = {("sqrt",): 1, ("rsqrt",): -1, ("pow", 0.5): 1, ("pow", -0.5): -1}


def _root(tape: Tape, step: Step) -> _Root | None:
    """What is under the root, if a step takes one of a square and a positive number; None of anything else."""
    power, sum_ = ROOTS.get((step.name, *step.args[1:])), _made_by(tape, *step.args[:1])
    if power is None or step.kwargs or sum_ is None or sum_.name != "add" or sum_.kwargs:
        return None
    square, number = sum_.args
    found = _squared(tape, square)
    if found is None or not _positive(number):
        return None
    return _Root(power, found[0], math.sqrt(found[1]), math.sqrt(number))


def _squared(tape: Tape, value: Any) -> tuple[Ref, float] | None:
    """x and k > 0 of a value that is k x^2."""
    step = _made_by(tape, value)
    if step is None or step.kwargs or not step.args or not isinstance(step.args[0], Ref):
        return None
    x, *more = step.args
    if (step.name, *more) in (("square",), ("pow", 2)) or (step.name == "mul" and more == [x]):
        return x, 1.0
    if step.name not in ("mul", "truediv") or not _positive(*more):
        return None
    inner = _squared(tape, x)
    return None if inner is None else (inner[0], inner[1] * more[0] if step.name == "mul" else inner[1] / more[0])


def _positive(*numbers: Any) -> bool:
    return all(isinstance(x, int | float) and not isinstance(x, bool) and 0 < x < math.inf for x in numbers)


def _made_by(tape: Tape, value: Any = None) -> Step | None:
    """The step whose result a value is."""
    inner = isinstance(value, Ref) and value.number >= tape.arguments
    return tape.steps[value.number - tape.arguments] if inner else None


def takes(f: Any, arguments: int) -> bool:
    """Whether a function asks for so many arguments; others have defaults. One without a signature is tried."""
    try:
        parameters = inspect.signature(getattr(f, "forward", f)).parameters.values()  # of a module
    except (TypeError, ValueError):
        return _can_be_called(f, arguments)
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    asked = sum(p.default is p.empty for p in named)
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return (asked == arguments or (asked < arguments and several)) and not any(
        p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters
    )


def _can_be_called(f: Any, arguments: int) -> bool:
    try:
        f(*torch.ones(arguments, 2, dtype=torch.float64))
    except TypeError:
        return False
    return True


# --------------------------------------------------------------------------------------------- what a function must be


def name_of(f: object, name: str | None) -> str:
    """The name that is given, or that the function has."""
    if name is None:
        name = getattr(f, "__name__", type(f).__name__)
        if not name.isidentifier():  # a lambda
            raise InputError("the function has no name of its own", got=repr(f), hint='give one: name="..."')
    if not isinstance(name, str) or not name.isprintable() or not name.strip():
        raise InputError("a name is a text", got=repr(name), hint='e.g. name="mine"')
    return name


def check_callable(f: object, what: str, *radii: float) -> None:
    """Refuse what is no function R -> R (or R x R -> R), entry by entry, for numbers up to the radii."""
    if not callable(f):
        raise InputError(f"{what} is no function", got=repr(f), allowed="a function of a tensor, such as torch.tanh")
    if isinstance(f, type) or not takes(f, len(radii)):
        raise InputError(f"{what} is no function of {('one tensor', 'two tensors')[len(radii) - 1]}", got=repr(f))
    try:
        hash(f)
    except TypeError as error:
        raise InputError(
            f"{what} cannot be told from other functions", got=str(error), hint="wrap it: lambda t: ..."
        ) from error
    given = [_points(radius, k) for k, radius in enumerate(radii)]
    whole = _tried(f, what, given)
    if not bool(torch.isfinite(whole).all()):
        at = ", ".join(f"{float(t[~torch.isfinite(whole)][0]):g}" for t in given)
        hint = "give a smaller radius=..., the largest |t| that it is applied to"
        raise InputError(f"{what} is not finite", got=f"{float(whole[~torch.isfinite(whole)][0])} at {at}", hint=hint)
    _check_repeats(f, what, given, whole)
    _check_elementwise(f, what, given, whole)


def _points(radius: float, number: int) -> Tensor:
    """Of the interval, in an order that is not theirs; 0 is one of them."""
    t = torch.linspace(-radius, radius, _POINTS, dtype=torch.float64)
    return t[torch.randperm(_POINTS, generator=torch.Generator().manual_seed(number))]


def _tried(f: Any, what: str, given: list[Tensor]) -> Tensor:
    """f of these tensors, which is a tensor of their shape and type."""
    try:
        with torch.no_grad():
            found = f(*given)
    except InputError:
        raise
    except Exception as error:  # of the caller's own code
        raise _failed(f"{what} cannot be applied to a tensor", error) from error
    shape, dtype = given[0].shape, given[0].dtype
    if not isinstance(found, Tensor):
        raise InputError(f"{what} does not give a tensor", got=type(found).__name__, allowed="one number for each t")
    if found.shape != shape:
        got, allowed = f"shape {tuple(found.shape)}", f"one number for each t: {tuple(shape)}"
        raise InputError(f"{what} does not give a number for each t", got=got, allowed=allowed)
    if found.dtype != dtype:
        raise InputError(f"{what} changes the type of its numbers", got=f"{found.dtype} from {dtype}")
    return found.detach()


#: part of a message of torch's -> what a function has done, and what it should do instead
MISTAKES = {
    "Boolean value of Tensor": ("an if, or a comparison as True or False", "use torch.where in place of an if"),
    "converted to Scalar": NUMBER,
    "converted to Python scalar": NUMBER,
    "call numpy() on Tensor": ("a conversion to numpy", "use torch's function of the same name"),
}


def _failed(what: str, error: Exception) -> InputError:
    """The error of a user's function in a sentence: what it did, where that can be told; else what Python said."""
    said = str(error).splitlines() or [""]
    for words, (done, instead) in MISTAKES.items():
        if words in said[0]:
            return InputError(
                what, got=done, allowed="functions of torch, which take all entries at once", hint=instead
            )
    hint = "try it: f(torch.linspace(-1, 1, 5, dtype=torch.float64)) must give five numbers"
    return InputError(what, got=f"{type(error).__name__}: {said[0]}", hint=hint)


def _check_repeats(f: Any, what: str, given: list[Tensor], whole: Tensor) -> None:
    """The same again, with gradients and without; in float32, too."""
    again = [_tried(f, what, given) for _ in range(3)]
    with own_gradients():
        again.append(_with_gradients(f, what, given).detach())
    if not all(torch.equal(one, whole) for one in again):
        hint = "it must depend on nothing but t: no random numbers, no memory, no mode"
        raise InputError(f"{what} gives different values for the same t", hint=hint)
    _tried(f, what, [t.float() for t in given])


def _with_gradients(f: Any, what: str, given: list[Tensor]) -> Tensor:
    try:
        found: Tensor = f(*(t.clone().requires_grad_() for t in given))
    except Exception as error:
        raise _failed(f"{what} cannot be differentiated by autograd", error) from error
    if not found.requires_grad:
        hint = "use torch's own operations, without detach, numpy or rounding"
        raise InputError(f"{what} cannot be differentiated by autograd", got="a result without gradients", hint=hint)
    return found


def _check_elementwise(f: Any, what: str, given: list[Tensor], whole: Tensor) -> None:
    """Every value is what it is alone, in another order, and in another shape."""
    size = _ELEMENTWISE * max(1.0, float(whole.abs().max()))
    picked = range(0, _POINTS, 16)
    alone = torch.stack([_tried(f, what, [t[i] for t in given]) for i in picked])
    rest = [(alone, whole[::16]), (_tried(f, what, [t.flip(0) for t in given]).flip(0), whole)]
    square = 2 * (_POINTS // 2)
    rest.append((_tried(f, what, [t[:square].view(2, -1) for t in given]).flatten(), whole[:square]))
    for found, expected in rest:
        off = (found - expected).abs()
        if not bool((off <= size).all()):
            at = int(off.argmax())
            hint = "f(t)[i] must depend on t[i] alone: no sum, mean, norm, softmax or sort over entries"
            got = f"{float(expected.flatten()[at]):g} among others, {float(found.flatten()[at]):g} otherwise"
            raise InputError(f"{what} is not elementwise", got=got, hint=hint)
