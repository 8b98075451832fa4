"""Errors, limits and names: everything that a public call relies on. An error teaches. It says what is wrong, what was
found, what is allowed, and what to do next. Limits of the machine become such errors. So do unknown names of the things
that users choose by name: activations, losses, targets, algorithms, kinds of tasks. A public call also leaves the torch
modes of its caller.

torch is imported where it is used: errors come before it, and ``--help`` without it.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from typing import Any, ParamSpec, SupportsIndex, TypeVar

MOST_WORDS = 500  # characters of a part of a sentence
LARGEST_INTEGER = 2**53  # of a setting: the largest number that a float counts to
NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc")  # of torch, CUDA and C++
LARGEST, SMALLEST = 1e100, 1e-100  # of a setting: its square is a float, and so is one over it

P = ParamSpec("P")
T = TypeVar("T")


class InputError(ValueError):
    """The caller's input is wrong. The message is one line: what is wrong, what was found, what is allowed, what to do.

    The command line exits with code 2.

    Args:
        what: is wrong.
        got: was found.
        allowed: would be right.
        hint: the next step.

    Examples:
        >>> import innergrad as ig
        >>> ig.Network([1, 4, 1], activation="tahn")
        Traceback (most recent call last):
        ...
        innergrad.errors.InputError: unknown activation; got 'tahn'; allowed: tanh, ...; did you mean tanh?; ...
    """

    def __init__(self, what: str, *, got: object = None, allowed: str = "", hint: str = "") -> None:
        parts = [what]
        if got is not None:
            parts.append(f"got {got}")
        if allowed:
            parts.append(f"allowed: {allowed}")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(map(shortened, parts)))


def shortened(text: str, most: int = MOST_WORDS) -> str:
    """The text; of a long text its beginning and its end, since it may be a whole file."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


def suggestion(name: object, known: Collection[str]) -> str:
    """ "did you mean tanh?", if a known name is near to this one; else nothing. Upper and lower case count as equal."""
    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1)
    return f"did you mean {folded[near[0]]}?" if near else ""


def one_of(what: str, name: object, known: Collection[str], *, hint: str = "") -> str:
    """The name, which is a known one; else an error with all of them, and with the nearest. ``what``: what it names."""
    if isinstance(name, str) and name in known:
        return name
    words = "; ".join(filter(None, [suggestion(name, known), hint]))
    raise InputError(what, got=repr(name), allowed=", ".join(known), hint=words)


def plural(number: int, word: str) -> str:
    """ "1 prediction", "2 predictions"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def readable(value: float, digits: int = 5) -> str:
    """A number as people write it: 330,412 and 152.33, not 3.3e+05. Very large and very small ones keep an exponent."""
    if not 1e-4 <= abs(value) < 1e15:  # zero and NaN, too
        return f"{value:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def at_most(bound: float) -> str:
    """A bound with two digits, rounded up: a smaller number would not be proven."""
    if not 0.0 < bound < math.inf:
        return f"{bound:g}"
    step = 10.0 ** (math.floor(math.log10(bound)) - 1)
    return readable(math.ceil(bound / step * (1 - 1e-12)) * step, 2) if step > 0.0 else f"{bound:.1e}"


def require_packages(what: str, *packages: str, hint: str = "pip install 'innergrad[export]'") -> None:
    """An error if a package is not installed that ``what`` needs; the hint says how to install it."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise InputError(f"{what} needs {' and '.join(missing)}", got="not installed", hint=hint)


class DomainError(InputError):
    """A value left the domain that the transformer was compiled for. It is an ``InputError``.

    Examples:
        >>> import innergrad as ig, torch
        >>> tf = ig.compile(ig.raw.OneStepSGD(d=1), n_examples=1)
        >>> tf.run(torch.tensor([[5.0]]), torch.tensor([1.0]))
        Traceback (most recent call last):
        ...
        innergrad.errors.DomainError: layer mul ...: lane x left the range its products are made for; got 5; ...
    """


class LoweringError(InputError):
    """A target cannot run an instruction of the program. It is an ``InputError``.

    Examples:
        >>> import innergrad as ig
        >>> class Quotient(ig.Algorithm):
        ...     def program(self, options):
        ...         stream = ig.example_stream(1, 1, ig.Lane("w", (1,), "weight"), ig.Lane("p", (1,)))
        ...         divide = ig.Attend("p[k]", ig.Score(ig.RECIPROCAL, ("one", "one")), value="w[k]")
        ...         learn = ig.Layer("any", "learn", (ig.Attend("w[k]", value="w[k]"),))
        ...         return ig.Program(stream, (ig.Loop(1, (learn,)),), (ig.Layer("any", "divide", (divide,)),), "p")
        >>> ig.compile(Quotient(), target="relu")
        Traceback (most recent call last):
        ...
        innergrad.errors.LoweringError: ...
    """


class JobError(RuntimeError):
    """The input is well-formed, but the job failed. The command line exits with code 1."""


class DegenerateStart(UserWarning):
    """A warning: the initial weights make the gradient zero, or keep hidden units identical for ever.

    Examples:
        >>> import innergrad as ig, torch, warnings
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 2, 1]), steps=1, box=None), target="llama", n_examples=4)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     run = tf.run(torch.ones(4, 1), torch.ones(4, 1), w0=torch.zeros(7))
        >>> caught[0].category.__name__
        'DegenerateStart'
    """


class PoorRun(UserWarning):
    """A warning: a run has not learned, or less than it could. Its loss rises, or its weights are at the box, and the
    like.

    Examples:
        >>> import innergrad as ig, torch, warnings
        >>> X = torch.linspace(-1, 1, 8).view(-1, 1)
        >>> tf = ig.compile(ig.GradientDescent(ig.Network([1, 4, 1]), lr=9.0, steps=5, box=None), target="llama")
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     run = tf.run(X, torch.sin(X))
        >>> caught[0].category.__name__, len(run.warnings) > 0
        ('PoorRun', True)
    """


class LongRun(UserWarning):
    """A warning: this will take more than a few seconds.

    Examples:
        >>> import innergrad as ig, warnings
        >>> warnings.simplefilter("ignore", ig.LongRun)  # for who knows
    """


class NotPositive(UserWarning):
    """A warning: the kernel has negative eigenvalues, so the recursion that it defines does not converge.

    Examples:
        >>> import innergrad as ig, warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     algorithm = ig.FunctionalGradientDescent("relu", steps=2, d=2)
        >>> [warning.category.__name__ for warning in caught]
        ['NotPositive']
    """


def limit_of(error: BaseException) -> str | None:
    """The limit of the machine or of Python that an exception is about, in words. None if it is about none.

    torch has no exception of its own for memory on a CPU, nor for a tensor of more entries than can be counted.
    """
    if isinstance(error, InputError | JobError):
        return None
    text = str(error)
    if isinstance(error, MemoryError) or any(words in text for words in NO_MEMORY):
        return "out of memory: choose smaller sizes"
    if isinstance(error, RecursionError):
        return "nested too deeply: tables, lists or layers inside one another"
    if isinstance(error, OverflowError) or (isinstance(error, RuntimeError) and "overflow" in text):
        return f"too large for this machine: {shortened(text, 200)}"
    if type(error).__name__.endswith("LinAlgError"):  # numpy's and torch's, which are not imported for it
        return "numbers too far apart for this machine's arithmetic: choose settings of more ordinary sizes"
    if isinstance(error, UnicodeError):
        return f"text that cannot be read or written: {shortened(text, 200)}"
    return None


@contextmanager
def within_limits(what: str) -> Iterator[None]:
    """Replaces the raw exceptions of :func:`limit_of` by a sentence. ``what`` names the work in progress. Also a
    decorator.
    """
    try:
        yield
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
        words = limit_of(error)
        if words is None:
            raise
        raise InputError(f"{what} failed", got=words) from error


@contextmanager
def own_gradients() -> Iterator[None]:
    """Gradients are taken: under ``torch.no_grad`` and in ``torch.inference_mode``, too."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        yield


def in_no_mode(f: Callable[P, T]) -> Callable[P, T]:
    """A function that takes gradients of its own, and keeps none of the caller's."""

    @wraps(f)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with own_gradients():
            given = {name: _constant(value) for name, value in kwargs.items()}
            return f(*map(_constant, args), **given)  # type: ignore[arg-type]

    return called


def _constant(value: object) -> object:
    """A tensor, or those of a tuple, without the caller's gradients and mode."""
    from torch import Tensor

    if isinstance(value, tuple):
        return tuple(map(_constant, value)) if type(value) is tuple else value
    through = isinstance(value, Tensor) and (value.requires_grad or value.is_inference())
    return value.detach().clone() if isinstance(value, Tensor) and through else value


def lacks(instance: object, method: str) -> InputError:
    """The error of a user's class that lacks a method of its family."""
    return InputError(f"{type(instance).__name__} has no {method}", hint="docs/extending.md shows an example")


def integer(name: str, value: object, low: int = 1, high: int = LARGEST_INTEGER) -> int:
    """A Python integer from ``low`` to ``high``; numpy's integers are integers, True is not."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = value.__index__()
        if low <= number <= high:
            return number
    kind = "a positive integer" if low == 1 else f"an integer, at least {low}"
    over = isinstance(value, int) and value > high
    allowed = f"{low} to {high}" if over or high < LARGEST_INTEGER else ""
    raise InputError(f"{name} must be {kind}", got=_shown(value), allowed=allowed)


def counted(text: str) -> int | None:
    """The number that a text is in decimal digits, if it can be one of anything; Python refuses thousands of digits."""
    return int(text) if text.isdecimal() and len(text) <= len(str(LARGEST_INTEGER)) else None


def _shown(value: object) -> str:
    """repr, which Python refuses for integers of thousands of digits."""
    try:
        return shortened(repr(value), 80)
    except ValueError:
        return "a number of thousands of digits"


def real(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    hint: str = "",
    ordinary: bool = True,
) -> float:
    """A finite Python float, at least ``low`` and greater than ``above``; if ``ordinary``, not so large, or so small
    where it must be positive, that its square would be none.
    """
    kind = (
        "a positive number" if above == 0.0 else "a finite number" + ("" if low == -math.inf else f", at least {low:g}")
    )
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number >= low and number > above:
            least = SMALLEST if above == 0.0 else 0.0
            if not ordinary or least <= abs(number) <= LARGEST:
                return number
            allowed = f"{least:g} to {LARGEST:g}" if least else f"-{LARGEST:g} to {LARGEST:g}"
            raise InputError(f"{name} is out of any range", got=_shown(value), allowed=allowed, hint=hint)
    raise InputError(f"{name} must be {kind}", got=_shown(value), hint=hint)


def seed_number(value: object) -> int:
    """A seed that torch's generators take."""
    number = integer("seed", value, low=0, high=2**200)
    if number >= 2**63:
        raise InputError("seed must be less than 2^63", got=number)
    return number


class Registry(dict[str, T]):
    """A dictionary of things with names, whose errors teach. ``what`` names the kind of thing; ``unknown`` and ``hint``
    belong to the error of an unknown name.

    find(name)     the thing of this name, or an InputError: what is wrong, what was found, what is allowed, what next
    add(name, it)  one more class; two cannot share a name, but one that is defined again (a notebook's cell) replaces
                   itself. Nothing tells whether that is so of an instance: ``registry[name] = it``
    with_own(...)  the same with things of the user's own, which are found before those of the same name
    """

    def __init__(self, what: str, things: Mapping[str, T], *, unknown: str = "", hint: str = "") -> None:
        super().__init__(things)
        self.what, self.unknown, self.hint = what, unknown or f"unknown {what}", hint

    def find(self, name: object) -> T:
        return self[one_of(self.unknown, name, self, hint=self.hint)]

    def add(self, name: str, thing: T) -> None:
        here, there = _full_name(thing), _full_name(self.get(name, thing))
        if here != there:
            got = f"{there} and {here}"
            raise InputError(f"two classes of {self.what} {name!r}", got=got, hint="give yours another")
        self[name] = thing

    def with_own(self, own: Mapping[str, T]) -> Registry[T]:
        return Registry(self.what, {**self, **own}, unknown=self.unknown, hint=self.hint)


def _full_name(cls: Any) -> str:
    """The name of a class that stays the same when its definition runs again."""
    if not isinstance(cls, type):
        raise InputError("only a class is added", got=repr(cls), hint="registry[name] = it, for anything else")
    return f"{cls.__module__}.{cls.__qualname__}"
