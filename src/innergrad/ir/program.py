"""The one instruction, and programs made of it.

Everything a learning algorithm does on a residual stream is attention:

    dst_i  +=  scale * reduce over s in scope(i) of  f_1(z_1) f_2(z_2) ... * value_s
    z_m     =  sum over its pairs of <query_i, key_s>

written with index labels, as in einsum. ``Attend("p1[k]", Score(tanh, ("x[c]", "V1[k,c]"), ("one", "b1[k]")))`` says
``p1[k] += tanh(sum_c x[c] V1[k,c] + 1 * b1[k])``. A label that is not a label of ``dst`` is summed inside the inner
product; the labels of ``dst`` range over a family, so one instruction writes a whole vector or matrix.

Queries are read at the token that is written (i), keys and values at the token that is attended to (s); with
``scope="self"`` they are the same token. How a target architecture realises an instruction (hinges, signs, heads)
belongs to its lowering and never to the program. The ``kind`` of a layer says which sublayer of a transformer the
instructions go into: exactly, for a construction that names its targets; for others it is a hint, or ``any``.

The meaning of ``scope``, ``reduce`` and ``where`` is decided once, in :mod:`innergrad.interpret.walk`; interpretations
bring their arithmetic. A new choice is a new literal here: the type checker then finds every decision that lacks it.

To average over the examples, write ``scope="all", reduce="mean"`` with the lane ``omega`` as a factor. It is zero on
the queries, and weighted so that the mean over all tokens is the weighted mean over the demos.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, get_args

from innergrad.errors import InputError, LoweringError
from innergrad.functions.approximants import RAMP
from innergrad.functions.scalar import EXP, IDENTITY, NEGATION, RECIPROCAL, RELU, Function
from innergrad.ir.stream import Lane, Stream


@dataclass(frozen=True)
class Options:
    """How an algorithm is compiled: target, accuracy, domain. Saved with the model.

    Fields that are not listed here are the arguments of ``innergrad.compile``.

    Attributes:
        epsilons: pairs (function, error) for functions whose accuracy is not ``epsilon``. For a step function the
            second is the width of its ramps.
        weight_error: the error of the final weights that the accuracies were chosen for, if they were.
        until: the norm of the gradient mapping at which runs stop, if they do.
        double: every value is in two lanes.

    Examples:
        >>> import innergrad as ig
        >>> algorithm = ig.GradientDescent(ig.Network([1, 3, 1]), steps=1, box=None)
        >>> tf = ig.compile(algorithm, target="llama", n_examples=9)
        >>> tf.options.target, tf.options.n_examples
        ('llama', 9)
    """

    target: str = "relu"
    variant: str = "literal"
    epsilon: float = 1e-3
    n_examples: int = 16
    x_bound: float | None = None
    y_bound: float | None = None
    z_bound: float | None = None
    sigma: str | None = None
    epsilons: tuple[tuple[str, float], ...] = ()
    weight_error: float | None = None
    until: float | None = None
    double: bool = False

    def accuracy(self, name: str) -> float:
        """The sup error that the approximant of a function may have."""
        return dict(self.epsilons).get(name, self.epsilon)

    def ramp(self, name: str) -> float:
        """How wide the ramps of a step function are: ``epsilon`` has no say in it."""
        return dict(self.epsilons).get(name, RAMP)


Reduce = Literal["sum", "mean", "softmax"]
Where = Literal["all", "demos", "query"]
Kind = Literal["attention", "mlp", "product", "any"]
Scope = Literal["self", "all", "demos", "before", "upto", "previous"]
DEFAULT_BOUND = 8.0  # of lanes and of domains of functions, on targets that fit, unless z_bound says otherwise
STANDARD_LANES = ("x", "y", "one", "t", "query", "omega")
SCOPES: tuple[Scope, ...] = get_args(Scope)
Tokens = Literal["stacked", "interleaved"]
OWN = {f.name: f for f in (IDENTITY, NEGATION, EXP, RECIPROCAL, RELU)}  # known by name, wherever they are used


@dataclass(frozen=True)
class View:
    """``coefficient * lane[index]``: the order of labels picks rows, columns or the transpose; a number, one entry."""

    lane: str
    index: tuple[str | int, ...] = ()
    coefficient: float = 1.0

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(label for label in self.index if isinstance(label, str))

    @property
    def whole(self) -> bool:
        """Whether no index is a number."""
        return len(self.labels) == len(self.index)

    @property
    def place(self) -> tuple[int | slice, ...]:
        """The entries of the lane, as an index of a tensor."""
        return tuple(entry if isinstance(entry, int) else slice(None) for entry in self.index)


Expr = tuple[View, ...]  # a linear combination of views

_NUMBER = r"(?:\d+\.?\d*(?:[eE][+-]?\d+)?)"
_TERM = re.compile(
    rf"\s*([+-])?\s*(?:({_NUMBER})\s*\*\s*)?([A-Za-z_]\w*)\s*(?:\[((?:[a-z]|\d+)(?:\s*,\s*(?:[a-z]|\d+))*)\])?"
)


def expr(text: str | Expr) -> Expr:
    """``"p3[k] - y[k]"`` or ``"-0.5*V1[k,c]"`` as a linear combination of lane views."""
    return _parse(text) if isinstance(text, str) else text


@lru_cache(maxsize=4096)
def _parse(text: str) -> Expr:
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
    """A function of inner products, ``f(sum over pairs of <query_i, key_s>)``: the weight that attention gives a token.

    Args:
        f: the function.
        *pairs: (query, key). A query is read at the token that is written, a key at the token that is read.

    Examples:
        >>> import innergrad as ig
        >>> score = ig.Score(ig.ACTIVATIONS["tanh"].r, ("x[c]", "V1[k,c]"), ("one", "b1[k]"))
        >>> score.f.name, len(score.pairs)
        ('tanh', 2)
    """

    f: Function
    pairs: tuple[tuple[Expr, Expr], ...]

    def __init__(self, f: Function, *pairs: tuple[str | Expr, str | Expr]) -> None:
        if not isinstance(f, Function):
            raise InputError("the first argument of a Score is its function", got=repr(f), allowed="an ig.Function")
        if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise InputError(
                "a Score needs (query, key) pairs", got=repr(pairs), allowed='e.g. Score(f, ("x[c]", "w[c]"))'
            )
        object.__setattr__(self, "f", f)
        object.__setattr__(self, "pairs", tuple((expr(q), expr(k)) for q, k in pairs))


@dataclass(frozen=True)
class Attend:
    """The one instruction: everything a program does is attention.

        dst_i  +=  scale * reduce over s in scope(i) of  f(<query_i, key_s>) * value_s

    It is written with index labels, as in einsum. Labels of ``dst`` range over a family, so that one instruction writes
    a whole vector or matrix. Other labels are summed inside the inner product. A number picks one entry: ``p[0]``.

    Args:
        dst: the lane that is added to, such as ``"p[k]"``.
        *scores: functions of inner products, which are multiplied.
        value: what is added, read at the token s, such as ``"x[k]"``.
        scope: the tokens s: ``self``, ``all``, ``demos``, ``before`` (s < i), ``upto`` (s <= i), ``previous`` (s = i -
            1), ``at(t)`` (token t of the prompt, from 0, unless it is a query), ``at(t,u)`` (the same, seen by tokens i
            >= u), or the name of a lane that is 0 or 1. In a causal program a token sees no later one.
        reduce: ``sum`` or ``mean`` over the scope, or ``softmax`` of the score over the scope.
        scale: a factor.
        where: the tokens i that are written: ``all``, ``demos`` or ``query``.

    Examples:
        >>> import innergrad as ig
        >>> tanh = ig.ACTIVATIONS["tanh"].r
        >>> step = ig.Attend("p[k]", ig.Score(tanh, ("x[c]", "V[k,c]")))  # p[k] += tanh(sum_c x[c] V[k,c])
        >>> step.scope, step.own
        ('self', True)
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
        dst: str | Expr,
        *scores: Score,
        value: str | Expr = "one",
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
    def at(self) -> tuple[int, int] | None:
        """The token read by ``scope="at(t,u)"``, and the first token that sees it."""
        match = re.fullmatch(r"at\((\d+)(?:,(\d+))?\)", self.scope)
        return (int(match[1]), int(match[2] or 0)) if match else None

    @property
    def own(self) -> bool:
        """Every token reads itself, and no other."""
        return self.scope == "self"

    @property
    def family(self) -> str:
        """The labels of the destination."""
        return "".join(self.dst.labels)

    def changed(self, **changes: Any) -> Attend:
        """The same instruction with another dst (a View), scores, value, scope, reduce, scale or where."""
        parts = {name: changes.get(name, getattr(self, name)) for name in self.__dataclass_fields__}
        return Attend((parts.pop("dst"),), *parts.pop("scores"), **parts)

    def views(self) -> Iterator[View]:
        yield self.dst
        yield from self.value
        for score in self.scores:
            for query, key in score.pairs:
                yield from query
                yield from key


@dataclass(frozen=True)
class Layer:
    """Instructions that all read the stream before the layer, and then all add to it.

    If the algorithm names its targets, a layer becomes exactly one layer of the transformer. Otherwise the compiler
    places it, and splits it where it has to.

    Args:
        kind: ``attention``, ``mlp``, ``product`` or ``any``.
        name: traces and errors call it so.
        instructions: the instructions.

    Examples:
        >>> import innergrad as ig
        >>> ig.Layer("attention", "answer", (ig.Attend("p[k]", value="w[k]"),)).name
        'answer'
    """

    kind: Kind
    name: str
    instructions: tuple[Attend, ...]


@dataclass(frozen=True)
class Loop:
    """The same layers several times.

    Args:
        count: how often.
        layers: the layers.
        step: each pass is a step of the algorithm, after which the weights are recorded.

    Examples:
        >>> import innergrad as ig
        >>> shrink = ig.Layer("attention", "shrink", (ig.Attend("w[k]", value="w[k]", scale=-0.1),))
        >>> ig.Loop(20, (shrink,)).count
        20
    """

    count: int
    layers: tuple[Layer, ...]
    step: bool = True


@dataclass(frozen=True)
class Part:
    """A run of the flat weight vector: the first ``size`` entries of a lane; of one token, or held by every token."""

    lane: str
    size: int
    token: int | None = None


class Mark(NamedTuple):
    """An entry of an input lane that is 1 on a token."""

    lane: str
    token: int
    entry: int


@dataclass(frozen=True)
class Program:
    """A learning algorithm on a residual stream: a body that learns, and a read-out that predicts.

    Trained are the lanes of role ``weight``, flattened in the order of the stream. There may be none.

    Args:
        stream: the lanes.
        body: loops of layers.
        readout: the layers after the last step.
        prediction: the lane that holds the prediction on the query tokens after the read-out, times ``sign``. It has
            the shape of y.
        sign: a factor.
        variance: the scalar lane that holds the predictive variance there, if there is one.
        tokens: ``stacked``, one token (x; y) for an example, or ``interleaved``, x_1, y_1, x_2, y_2, ...
        causal: no token sees a later one, so that predictions at every prefix come out of one pass.
        sink: an empty token stands before all others. Targets ask for it, not algorithms. It reads only itself, and all
            tokens with scope ``all``: shared lanes are written from there.
        length: prompts are filled up to this number of tokens, with blank ones between the examples and the queries.
            None if prompts have any length.
        placement: where the flat weight vector is, if tokens of their own, before the examples, carry it. Empty if it
            is in the lanes of role ``weight``.
        marks: entries that tell the tokens before the examples apart, numbered from 0, the sink aside.
        batches: sets of examples. Entry b of the lane ``batch`` holds the weights of the examples of batch b, and
            ``log_batch`` their logarithms.

    Examples:
        >>> import innergrad as ig
        >>> program = ig.GradientDescent(ig.Network([1, 2, 1]), steps=3).program(ig.Options())
        >>> program.steps, program.n_weights
        (3, 7)
    """

    stream: Stream
    body: tuple[Loop, ...]
    readout: tuple[Layer, ...]
    prediction: str
    sign: float = 1.0
    variance: str | None = None
    tokens: Tokens = "stacked"
    causal: bool = False
    sink: bool = False
    length: int | None = None
    placement: tuple[Part, ...] = ()
    marks: tuple[Mark, ...] = ()
    batches: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        check(self)

    @property
    def weights(self) -> tuple[Lane, ...]:
        """The lanes that are trained, in stream order."""
        return tuple(lane for lane in self.stream.lanes if lane.role == "weight")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The flat weight vector, part by part: where each is."""
        return self.placement or tuple(Part(lane.name, lane.size) for lane in self.weights)

    @property
    def n_weights(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def weight_bounds(self) -> tuple[float, ...]:
        """The declared bound of every entry of the flat weight vector."""
        return tuple(self.stream[part.lane].bound for part in self.parts for _ in range(part.size))

    @property
    def carriers(self) -> int:
        """Tokens before the demos that carry weights, or marks alone."""
        held = [part.token for part in self.placement if part.token is not None]
        return 1 + max((*held, *(mark.token for mark in self.marks)), default=-1)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The stored layers: the layers of every loop once, then the read-out."""
        return (*(layer for loop in self.body for layer in loop.layers), *self.readout)

    def with_layers(self, change: Callable[[Layer], Layer]) -> Program:
        """The same program, every layer changed."""
        body = tuple(replace(loop, layers=tuple(map(change, loop.layers))) for loop in self.body)
        return replace(self, body=body, readout=tuple(map(change, self.readout)))

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

    def functions(self) -> dict[str, Function]:
        """Every scalar function the program uses, by name."""
        return dict(self._functions)

    @cached_property
    def _functions(self) -> dict[str, Function]:
        found: dict[str, Function] = {}
        for layer in self.layers:
            for instruction in layer.instructions:
                for score in instruction.scores:
                    if found.setdefault(score.f.name, score.f) != score.f:
                        raise InputError("two different functions of one program have the same name", got=score.f.name)
                    if OWN.get(score.f.name, score.f) != score.f:
                        what = f"{score.f.name} is a function of the library, which some targets compute as it is"
                        raise InputError(what, got="another function, or radius", hint="give yours another name")
        return found

    def label_sizes(self, instruction: Attend) -> dict[str, int]:
        """How far each label of an instruction ranges."""
        return {
            label: size
            for view in instruction.views()
            for label, size in zip(view.index, self.stream[view.lane].shape, strict=True)
            if isinstance(label, str)
        }


def pointwise(f: Function, lanes: Iterable[Lane]) -> tuple[Attend, ...]:
    """Instructions for an MLP layer: lane += f(lane), entry by entry. With ``NEGATION`` they clear the lanes, exactly.

    Args:
        f: the function.
        lanes: the lanes.

    Examples:
        >>> import innergrad as ig
        >>> clear = ig.Layer("mlp", "clear", ig.pointwise(ig.NEGATION, [ig.Lane("p", (3,)), ig.Lane("g")]))
        >>> len(clear.instructions)
        2
    """
    views = (lane.name + ("", "[k]", "[k,c]", "[k,c,e]", "[k,c,e,o]")[len(lane.shape)] for lane in lanes)
    return tuple(Attend(view, Score(f, (view, "one"))) for view in views)


# -------------------------------------------------------------------------------------------------- well-formedness


def check(program: Program) -> None:
    """Raise :class:`InputError`, naming layer and instruction, if the program does not make sense on any target."""
    stream = program.stream
    for name in STANDARD_LANES:
        _require(name in stream.by_name, "a stream has the lanes " + ", ".join(STANDARD_LANES), f"no lane {name}")
    _require(all(isinstance(part, Loop) for part in program.body), "the body is a tuple of Loops", program.body)
    for loop in program.body:
        _require(isinstance(loop.count, int) and loop.count > 0, "a Loop runs a positive number of times", loop.count)
        _require(bool(loop.layers), "a Loop needs layers", loop.layers)
    misplaced = [part for part in program.layers if not isinstance(part, Layer)]
    _require(not misplaced, "loops and the read-out are made of Layers", misplaced)
    _require(program.steps > 0, "the body needs a Loop that is a step of the algorithm", program.steps)
    learned = any(lane.role in ("weight", "state") for lane in stream.lanes)
    _require(learned, "some lane must have the role 'weight' or 'state'", [lane.role for lane in stream.lanes])
    _require(program.tokens in get_args(Tokens), "unknown arrangement of tokens", program.tokens)
    _check_placement(program)
    target = stream[program.prediction]
    _require(
        not target.shared and target.shape == stream["y"].shape,
        f"the prediction lane {target.name} must be per token, of the shape of y",
        f"shape {target.shape}, shared={target.shared}",
    )
    for layer in program.layers:
        _require(
            layer.kind in get_args(Kind), f"layer {layer.name}: unknown kind", layer.kind, ", ".join(get_args(Kind))
        )
        well_made = isinstance(layer.instructions, tuple) and all(isinstance(i, Attend) for i in layer.instructions)
        _require(
            well_made and bool(layer.instructions), f"layer {layer.name} takes a tuple of Attends", layer.instructions
        )
        for instruction in layer.instructions:
            _check_instruction(program, instruction, f"layer {layer.name}, {instruction.dst.lane}")
    program.functions()


def _require(condition: bool, what: str, got: object, allowed: str = "") -> None:
    if not condition:
        raise InputError(what, got=got, allowed=allowed)


def _check_placement(program: Program) -> None:
    """Tokens that carry weights are tokens of plain prompts; each part is inside its lane, and no two overlap."""
    stream = program.stream
    plain = program.tokens == "stacked" and not program.sink and not program.causal and program.length is not None
    _require(plain or not program.placement, "weights in tokens of their own need prompts of a fixed length", program)
    for part in program.placement:
        lane = stream[part.lane]
        right = part.token is not None and part.token >= 0 and lane.role == "weight" and not lane.shared
        _require(right and 0 < part.size <= lane.size, "a part of the weights is in a weight lane, per token", part)
    places = [(part.lane, part.token) for part in program.placement]
    _require(len(set(places)) == len(places), "two parts of the weights are in the same place", places)
    last = max((part.token or 0 for part in program.placement), default=math.inf)
    for mark in program.marks:
        lane = stream[mark.lane]
        right = lane.role == "input" and not lane.shared and 0 <= mark.entry < lane.size
        what = "a mark is an entry of an input lane, on a token that carries weights if any does"
        _require(right and 0 <= mark.token <= last, what, mark)


def _check_instruction(program: Program, instruction: Attend, name: str) -> None:
    stream = program.stream
    sizes: dict[str, int] = {}
    for view in instruction.views():
        shape = stream[view.lane].shape
        _require(
            len(shape) == len(view.index), f"{name}: lane {view.lane} has shape {shape}", f"indices {list(view.index)}"
        )
        for label, size in zip(view.index, shape, strict=True):
            if isinstance(label, int):
                _require(label < size, f"{name}: lane {view.lane} has shape {shape}", f"index {label}")
            elif sizes.setdefault(label, size) != size:
                raise InputError(f"{name}: label {label} ranges over {sizes[label]} and over {size} entries")
    for score in instruction.scores:
        for query, key in score.pairs:
            one_sided = (labels_of(query) ^ labels_of(key)) - set(instruction.dst.labels)
            _require(
                not one_sided, f"{name}: a summed label must be on both sides of the inner product", sorted(one_sided)
            )
    _require(
        instruction.reduce in get_args(Reduce),
        f"{name}: unknown reduce",
        instruction.reduce,
        ", ".join(get_args(Reduce)),
    )
    _require(
        instruction.where in get_args(Where), f"{name}: unknown where", instruction.where, ", ".join(get_args(Where))
    )
    named = instruction.scope in SCOPES or instruction.at is not None
    mask = stream.by_name.get(instruction.scope)
    usable = mask is not None and mask.shape == () and not mask.shared
    scopes = ", ".join(SCOPES) + ", at(t), at(t,u) or a scalar mask lane, per token"
    _require(named or usable, f"{name}: unknown scope", instruction.scope, scopes)
    lonely = instruction.reduce == "softmax" and len(instruction.scores) != 1
    _require(not lonely, f"{name}: a softmax has one score", len(instruction.scores))
    if stream[instruction.dst.lane].shared:
        read = [view for score in instruction.scores for query, _ in score.pairs for view in query]
        if instruction.scope == "self":
            read += [
                *instruction.value,
                *(view for score in instruction.scores for _, key in score.pairs for view in key),
            ]
        private = sorted({view.lane for view in read if not stream[view.lane].shared})
        unequal = instruction.scope in ("before", "upto", "previous") or (
            instruction.scope != "self" and (program.causal or (instruction.at or (0, 0))[1] > 0)
        )
        same = not private and instruction.where == "all" and not unequal
        what = f"{name}: a shared lane must receive the same in every token"
        _require(same, what, f"{', '.join(private) or instruction.scope} differs between tokens")
        if program.sink and instruction.scope not in ("self", "all"):
            raise LoweringError(
                what,
                got=f"scope {instruction.scope}, of which the sink that this target puts first reads nothing",
                allowed="scope self or all",
                hint='average over scope="all" with omega as a factor, or make the lane per token: shared=False',
            )


def labels_of(expression: Expr) -> set[str]:
    return {label for view in expression for label in view.labels}
