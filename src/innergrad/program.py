"""The one instruction, and programs made of it.

Everything a learning algorithm does on a residual stream is attention:

    dst_i  +=  scale * reduce over s in scope(i) of  f_1(z_1) f_2(z_2) ... * value_s,      z = sum of <query_i, key_s>
    over pairs

written with index labels, as in einsum. ``Attend("p1[k]", Score(tanh, ("x[c]", "V1[k,c]"), ("one", "b1[k]")))`` says
``p1[k] += tanh(sum_c x[c] V1[k,c] + 1 * b1[k])``. A label that is not a label of ``dst`` is summed inside the inner
product; the labels of ``dst`` range over a family, so one instruction writes a whole vector or matrix.

Queries are read at the token that is written (i), keys and values at the token that is attended to (s); with
``scope="self"`` they are the same token. How a target architecture realises an instruction (hinges, signs, heads)
belongs to its lowering and never to the program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from innergrad.errors import InputError
from innergrad.functions.scalar import Function
from innergrad.stream import Stream

Reduce = Literal["sum", "mean", "softmax"]
Where = Literal["all", "demos", "query"]
Kind = Literal["attention", "mlp", "product"]


@dataclass(frozen=True)
class View:
    """``coefficient * lane[labels]``: the order of the labels picks rows, columns or the transpose; a number picks
    one entry.
    """

    lane: str
    index: tuple[str | int, ...] = ()
    coefficient: float = 1.0

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for label in self.index if isinstance(label, str))


Expr = tuple[View, ...]  # a linear combination of views

_NUMBER = r"(?:\d+\.?\d*(?:[eE][+-]?\d+)?)"
_TERM = re.compile(
    rf"\s*([+-])?\s*(?:({_NUMBER})\s*\*\s*)?([A-Za-z_]\w*)\s*(?:\[((?:[a-z]|\d+)(?:\s*,\s*(?:[a-z]|\d+))*)\])?"
)


@lru_cache(maxsize=4096)
def expr(text: str) -> Expr:
    """Parse ``"p3[k] - y[k]"`` or ``"-0.5*V1[k,c]"`` into a linear combination of lane views."""
    views: list[View] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TERM.match(text, position)
        if match is None or (views and match[1] is None):
            raise InputError(
                "cannot read the expression",
                got=repr(text),
                allowed='sums of "2.0*lane[k,c]" with one-letter labels or numbers',
            )
        sign = -1.0 if match[1] == "-" else 1.0
        parts = [part.strip() for part in match[4].split(",")] if match[4] else []
        index = tuple(int(part) if part.isdigit() else part for part in parts)
        views.append(View(match[3], index, sign * float(match[2] or 1.0)))
        position = match.end()
    if not views:
        raise InputError("an expression needs at least one lane", got=repr(text))
    return tuple(views)


@dataclass(frozen=True)
class Score:
    """``f(sum over pairs of <query_i, key_s>)``."""

    f: Function
    pairs: tuple[tuple[Expr, Expr], ...]

    def __init__(self, f: Function, *pairs: tuple[str, str]) -> None:
        object.__setattr__(self, "f", f)
        object.__setattr__(self, "pairs", tuple((expr(q), expr(k)) for q, k in pairs))


@dataclass(frozen=True)
class Attend:
    """One instruction; see the module docstring.

    scope: ``self``, ``all``, ``demos``, ``before`` (s < i), ``upto`` (s <= i), ``at(t)``, or the name of a 0/1 mask
        lane.
    reduce: ``sum``, ``mean`` over the scope, or ``softmax`` of the score over the scope.
    where: which tokens are written.
    """

    dst: View
    scores: tuple[Score, ...] = ()
    value: Expr = (View("one"),)
    scope: str = "self"
    reduce: Reduce = "sum"
    scale: float = 1.0
    where: Where = "all"

    def __init__(
        self,
        dst: str,
        *scores: Score,
        value: str = "one",
        scope: str = "self",
        reduce: Reduce = "sum",
        scale: float = 1.0,
        where: Where = "all",
    ) -> None:
        views = expr(dst)
        if len(views) != 1 or views[0].coefficient != 1.0 or len(set(views[0].labels)) != len(views[0].labels):
            raise InputError("an instruction writes one lane, with distinct labels", got=repr(dst))
        for name, content in (
            ("dst", views[0]),
            ("scores", scores),
            ("value", expr(value)),
            ("scope", scope),
            ("reduce", reduce),
            ("scale", float(scale)),
            ("where", where),
        ):
            object.__setattr__(self, name, content)
        loose = {label for view in self.value for label in view.labels} - set(self.dst.labels)
        if loose:
            raise InputError(f"{dst}: labels of the value must be labels of the destination", got=sorted(loose))

    @property
    def at(self) -> int | None:
        """The token read by ``scope="at(t)"``."""
        match = re.fullmatch(r"at\((\d+)\)", self.scope)
        return int(match[1]) if match else None

    def views(self) -> Iterator[View]:
        yield self.dst
        yield from self.value
        for score in self.scores:
            for query, key in score.pairs:
                yield from query
                yield from key


@dataclass(frozen=True)
class Layer:
    """Instructions that all read the stream before the layer, then all add. Lowers to exactly one layer of the
    target.
    """

    kind: Kind
    name: str
    instructions: tuple[Attend, ...]


@dataclass(frozen=True)
class Loop:
    """The same layers, ``count`` times. If ``step``, each pass is one step of the algorithm, after which the weights
    are recorded.
    """

    count: int
    layers: tuple[Layer, ...]
    step: bool = True


@dataclass(frozen=True)
class Program:
    """A learning algorithm on a residual stream: the body learns, the read-out turns what was learned into predictions.

    weights: the lanes that hold what is trained, in the order of the flat weight vector.
    prediction: the lane that holds the prediction on the query tokens after the read-out.
    """

    stream: Stream
    body: tuple[Loop, ...]
    readout: tuple[Layer, ...]
    weights: tuple[str, ...]
    prediction: str

    def __post_init__(self) -> None:
        for layer in self.layers:
            for instruction in layer.instructions:
                self._check(layer, instruction)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The stored layers: the layers of every loop once, then the read-out."""
        return (*(layer for loop in self.body for layer in loop.layers), *self.readout)

    def schedule(self) -> Iterator[tuple[Layer, bool]]:
        """Every layer in the order in which it is applied, and whether a step of the algorithm ends with it."""
        for loop in self.body:
            for _ in range(loop.count):
                for layer in loop.layers[:-1]:
                    yield layer, False
                yield loop.layers[-1], loop.step
        for layer in self.readout:
            yield layer, False

    @property
    def n_layers(self) -> int:
        """Depth of the body; the read-out is counted separately."""
        return sum(loop.count * len(loop.layers) for loop in self.body)

    @property
    def steps(self) -> int:
        return sum(loop.count for loop in self.body if loop.step)

    def _check(self, layer: Layer, instruction: Attend) -> None:
        sizes: dict[str, int] = {}
        for view in instruction.views():
            shape = self.stream[view.lane].shape
            if len(shape) != len(view.index):
                raise InputError(
                    f"layer {layer.name}: lane {view.lane} has shape {shape}", got=f"indices {list(view.index)}"
                )
            for label, size in zip(view.index, shape, strict=True):
                if isinstance(label, int):
                    if label >= size:
                        raise InputError(
                            f"layer {layer.name}: lane {view.lane} has shape {shape}", got=f"index {label}"
                        )
                elif sizes.setdefault(label, size) != size:
                    raise InputError(
                        f"layer {layer.name}: label {label} ranges over {sizes[label]} and over {size} entries"
                    )

    def functions(self) -> dict[str, Function]:
        """Every scalar function the program uses, by name."""
        found: dict[str, Function] = {}
        for layer in self.layers:
            for instruction in layer.instructions:
                for score in instruction.scores:
                    found.setdefault(score.f.name, score.f)
        return found

    def label_sizes(self, instruction: Attend) -> dict[str, int]:
        """How far each label of an instruction ranges."""
        return {
            label: size
            for view in instruction.views()
            for label, size in zip(view.index, self.stream[view.lane].shape, strict=True)
            if isinstance(label, str)
        }
