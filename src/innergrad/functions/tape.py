"""Tapes: formulas, recorded.

A formula is a callable of Python's, and could do anything: something else on intervals than on tensors, with gradients
than without, today than tomorrow. The proven function must be the one that runs. So a formula is run once on a
:class:`Term`, which takes note of every operation. From then on the note, a :class:`Tape`, is evaluated, on tensors and
on intervals alike. The formula is then watched on tensors of several kinds: it has to do the same to them.

A callable that cannot be recorded, or does otherwise on tensors, is :class:`Opaque`: it runs as it is, and nothing can
be proven about it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from innergrad.errors import InputError, own_gradients
from innergrad.functions.jets import NoRule

Formula = Callable[..., Any]
COMPARISONS = ("lt", "le", "gt", "ge")


@dataclass(frozen=True)
class Ref:
    """The result of an earlier step; the arguments of the formula come first."""

    number: int


@dataclass(frozen=True)
class Method:
    """A method of the first argument or, if ``attribute``, one of its attributes."""

    name: str
    attribute: bool = False

    def __call__(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(x, self.name)
        return found if self.attribute else found(*args, **kwargs)


@dataclass(frozen=True)
class Step:
    """One operation. name: the same for every way to write it."""

    name: str
    call: Callable[..., Any] = field(compare=False)
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Tape:
    """The steps of a formula of ``arguments`` arguments, and which of them is its result. source: the recorded
    callable.
    """

    steps: tuple[Step, ...]
    result: Ref
    arguments: int = 1
    source: Formula | None = field(default=None, compare=False, repr=False)

    def __call__(self, *given: Any) -> Any:
        values = list(given)
        for step in self.steps:
            args = [filled(x, values) for x in step.args]
            values.append(step.call(*args, **{name: filled(x, values) for name, x in step.kwargs}))
        return values[self.result.number]

    def still(self) -> bool:
        """Whether the recorded callable still does the same, for every argument."""
        if self.source is None:
            return True
        try:
            return record(self.source, self.arguments) == self
        except NoRule:
            return False

    @property
    def comparisons(self) -> tuple[Tape, ...]:
        """The formulas that are compared with zero, one for every comparison: x - y of x > y."""
        return tuple(
            Tape((*self.steps[:number], Step("sub", operator.sub, step.args)), Ref(self.arguments + number))
            for number, step in enumerate(self.steps)
            if step.name in COMPARISONS
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.steps, self.result))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Opaque:
    """A callable that is no formula. reason: why."""

    call: Formula
    reason: str = field(compare=False)

    def __call__(self, t: Any) -> Any:
        if not isinstance(t, Tensor):
            raise NoRule(self.reason)
        return self.call(t)


def recorded(formula: Formula) -> Formula:
    """The formula as a tape, or opaque."""
    if isinstance(formula, Tape | Opaque):
        return formula
    try:
        return record(formula)
    except NoRule as problem:
        found = Opaque(formula, problem.operation)
    _require_function(formula)
    return found


def _require_function(formula: Formula) -> None:
    """Refuses a callable that gives another value for the same t, for example in a larger tensor, or where gradients
    are wanted.
    """
    t = torch.linspace(-3.0, 3.0, 1025, dtype=torch.float64)
    try:
        with torch.no_grad():
            whole = formula(t)
            parts = [(i, formula(t[i : i + n])) for i, n in ((0, 1), (100, 7), (512, 300))]
            parts += [(700, formula(t[700]).reshape(1)), (0, formula(t.view(41, 25)).flatten())]
        with own_gradients():
            parts.append((0, formula(t.clone().requires_grad_()).detach()))
        off = [float((part - whole[i : i + len(part)]).abs().nan_to_num().max()) for i, part in parts]
    except Exception:  # an argument that it cannot take is reported where it is given
        return
    if max(off) > 1e-9 * max(1.0, float(whole.abs().nan_to_num().max())):
        what = "a function gives different values for the same t"
        raise InputError(what, got=f"{max(off):g} apart", hint="it must depend on nothing but t")


def record(formula: Formula, arguments: int = 1) -> Tape:
    """The tape of a formula, which does the same to tensors; raises :class:`NoRule` if there is none."""
    tapes = {_run(_on_terms, formula, arguments, grad) for grad in (False, True)}
    tape = tapes.pop()
    for grad, like in _tensors():
        if tapes or _run(_on_tensors, formula, arguments, grad, like) != tape:
            raise NoRule("a formula that does one thing to tensors and another to intervals, or not always the same")
    return replace(tape, source=formula)


def residual(loss: Formula, scale: float) -> Formula:
    """psi / scale of a loss l(t, y), the sum of psi(t - y) over the last axis, as a tape of t - y; or opaque."""
    try:
        tape = record(loss, arguments=2)
        return _of_difference(tape, scale)
    except NoRule as problem:
        return Opaque(lambda t: loss(t, torch.zeros_like(t)), problem.operation)


def _of_difference(tape: Tape, scale: float) -> Tape:
    """The steps with one argument, the difference of two, and without the sum over the last axis at their end."""
    steps, moved = list[Step](), dict[int, int]()
    *inner, last = tape.steps or (Step("", operator.pos, ()),)
    if (
        last.name != "sum"
        or tape.result != Ref(1 + len(tape.steps))
        or (*last.args[1:], *last.kwargs)
        not in (
            (-1,),
            (("dim", -1),),
        )
    ):
        raise NoRule("a loss that is no sum over the outputs")
    for number, step in enumerate(inner, start=2):
        if step.name == "sub" and step.args == (Ref(0), Ref(1)):
            moved[number] = 0
            continue
        steps.append(replace(step, args=_moved(step.args, moved), kwargs=_moved(step.kwargs, moved)))
        moved[number] = len(steps)
    (result,) = _moved(last.args[:1], moved)
    if scale != 1.0:
        steps.append(Step("truediv", operator.truediv, (result, scale)))
        result = Ref(len(steps))
    return Tape(tuple(steps), result)


def _moved(x: Any, moved: dict[int, int]) -> Any:
    if isinstance(x, Ref):
        if x.number not in moved:
            raise NoRule("a loss that depends on more than t - y")
        return Ref(moved[x.number])
    return tuple(_moved(part, moved) for part in x) if isinstance(x, tuple) else x


def _tensors() -> Iterator[tuple[bool, Tensor]]:
    """Of every kind that the library evaluates formulas on."""
    points = torch.tensor([-2.5, -0.75, 0.0, 0.25, 1.5, 3.0], dtype=torch.float64)
    for like in (points, points.view(2, 3), points[3], points.float()):
        yield False, like
    yield True, points.clone().requires_grad_()
    yield False, points.clone().requires_grad_()


def _run(how: Callable[..., Tape], formula: Formula, arguments: int, grad: bool, *more: Any) -> Tape:
    mode: AbstractContextManager[object] = own_gradients() if grad else torch.no_grad()
    try:
        with torch.inference_mode(False), mode:
            return how(formula, arguments, *more)
    except NoRule:
        raise
    except Exception as error:  # of the caller's own code, on something it does not expect
        raise NoRule(
            f"what it does ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"
        ) from error


def _on_terms(formula: Formula, arguments: int) -> Tape:
    steps: list[Step] = []
    result = formula(*(Term(steps, number, arguments) for number in range(arguments)))
    if not isinstance(result, Term) or result._steps is not steps:
        raise NoRule("a result that is not made of t")
    return Tape(tuple(steps), Ref(result._place), arguments)


def _on_tensors(formula: Formula, arguments: int, like: Tensor) -> Tape:
    given = [like.detach().clone().requires_grad_(like.requires_grad) for _ in range(arguments)]
    with _Watch(given) as watch:
        result = formula(*given)
    if id(result) not in watch.numbers:
        raise NoRule("a result that is not made of t")
    return Tape(tuple(watch.steps), Ref(watch.numbers[id(result)]), arguments)


# ------------------------------------------------------------------------------------------------------------ recording


class Term:
    """Stands for an unknown number; operations on it are noted."""

    __array_ufunc__ = None  # numpy's scalars leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, steps: list[Step], number: int, arguments: int) -> None:
        self._steps, self._place, self._arguments = steps, number, arguments

    def _note(self, name: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Term:
        noted = tuple((key, _noted(value, _of_term)) for key, value in sorted(kwargs.items()))
        self._steps.append(Step(name, call, tuple(_noted(x, _of_term) for x in args), noted))
        return Term(self._steps, self._arguments + len(self._steps) - 1, self._arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("dtype", "device"):
            return self._note(name, Method(name, attribute=True), (self,), {})
        if name.endswith("_"):  # in place
            raise NoRule(f"torch.{name}")
        return _Bound(self, name)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, Term)]
        if not found:
            raise NoRule(f"torch.{_name(func)} of several values")
        return found[0]._note(_name(func), func, args, kwargs or {})

    def __bool__(self) -> bool:
        raise NoRule("a branch that depends on t")

    def _number(self, *_: object) -> Any:
        raise NoRule("a number made of t")

    __float__ = __int__ = __index__ = __len__ = __iter__ = __contains__ = __complex__ = __array__ = _number
    __getitem__ = _number

    def __eq__(self, other: object) -> bool:
        raise NoRule("==")


def _operators() -> None:
    """a + t is noted as radd of t and a, as torch does."""

    def binary(name: str, call: Callable[..., Any]) -> Callable[[Term, Any], Term]:
        return lambda x, y: x._note(plain_name(name), call, (x, y), {})

    def unary(name: str, call: Callable[..., Any]) -> Callable[[Term], Term]:
        return lambda x: x._note(name, call, (x,), {})

    for name in ("add", "sub", "mul", "truediv", "pow"):
        plain = getattr(operator, name)
        setattr(Term, f"__{name}__", binary(name, plain))
        setattr(Term, f"__r{name}__", binary(f"r{name}", lambda x, y, plain=plain: plain(y, x)))
    for name in ("lt", "le", "gt", "ge", "and", "or"):
        setattr(Term, f"__{name}__", binary(name, getattr(operator, f"{name}_" if name in ("and", "or") else name)))
    for name in ("neg", "pos", "abs", "invert"):
        setattr(Term, f"__{name}__", unary(name, getattr(operator, name)))


_operators()


@dataclass(frozen=True)
class _Bound:
    """A method of a term, which is to be called and nothing else."""

    term: Term
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Term:
        return self.term._note(plain_name(self.name), Method(self.name), (self.term, *args), kwargs)

    def __bool__(self) -> bool:
        return bool(self.term)

    __eq__ = __ne__ = __bool__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class _Watch(TorchFunctionMode):
    """Takes note of torch's operations on some tensors, and on the results."""

    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.arguments, self.kept = len(given), list[Any](given)
        self.numbers = {id(tensor): number for number, tensor in enumerate(given)}

    def _of_tensor(self, x: Any) -> Ref | None:
        return Ref(self.numbers[id(x)]) if id(x) in self.numbers else None

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not any(id(x) in self.numbers for x in (*args, *kwargs.values())):
            return result  # a constant
        if isinstance(result, Tensor) and id(result) in self.numbers:
            result = result.clone()
        if result is None:  # of a getter
            raise NoRule(f"torch.{_name(func)}")
        read = _Attribute.of(func)
        noted = tuple((key, _noted(value, self._of_tensor)) for key, value in sorted(kwargs.items()))
        given = tuple(_noted(x, self._of_tensor) for x in (args[:1] if read else args))
        self.steps.append(Step(read or _name(func), func, given, noted))
        self.kept.append(result)
        self.numbers[id(result)] = self.arguments + len(self.steps) - 1
        return result


class _Attribute:
    """Getters of tensors, as torch shows them."""

    @staticmethod
    def of(func: Callable[..., Any]) -> str | None:
        owner = getattr(func, "__self__", None) if getattr(func, "__name__", "") == "__get__" else None
        return None if owner is None else str(getattr(owner, "__name__", ""))


# ----------------------------------------------------------------------------------------------------- names and values

_SAME = {
    "rdiv": "rtruediv",
    "div": "truediv",
    "radd": "add",
    "rmul": "mul",
    "positive": "pos",
    "bitwise_not": "invert",
    "bitwise_and": "and",
    "bitwise_or": "or",
}


def plain_name(name: str) -> str:
    """torch's names for one operation are several: t * 2 is mul, __mul__ or multiply."""
    name = (name.strip("_") if name.startswith("__") else name).removeprefix("special_")
    return _SAME.get(name, name)


def _name(func: Callable[..., Any]) -> str:
    return plain_name(getattr(func, "__name__", type(func).__name__))


def _of_term(x: Any) -> Ref | None:
    return Ref(x._place) if isinstance(x, Term) else None


def _noted(x: Any, ref: Callable[[Any], Ref | None]) -> Any:
    """A reference, or a constant as it is now."""
    found = ref(x)
    if found is not None:
        return found
    if isinstance(x, tuple | list):
        return tuple(_noted(part, ref) for part in x)
    if isinstance(x, Tensor | np.ndarray | np.generic):
        if x.ndim:
            raise NoRule("a constant of several numbers")
        return x.item()
    if x is None or isinstance(x, bool | int | float | str | torch.dtype | torch.device):
        return x
    raise NoRule(f"a constant of type {type(x).__name__}")


def filled(x: Any, values: list[Any]) -> Any:
    if isinstance(x, Ref):
        return values[x.number]
    return tuple(filled(part, values) for part in x) if isinstance(x, tuple) else x
