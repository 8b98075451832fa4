"""The primitives of Akyürek et al. (2023), and their chains for one step of SGD and one of ridge regression.

There are four operations on the lanes of every token. Each is one layer of a transformer (Lemma 1 there; RAW: read,
arithmetic, write). A lane that is written is overwritten; all others stay:

    mov    dst of one token, or of the queries  <-  src of an earlier token                        attention
    aff    dst  <-  W_1 r + W_2 s + b                                                              an MLP
    mul    dst  <-  (a x b matrix in left) (b x c matrix in right)                                 an MLP
    div    dst  +=  src / c,  c >= least > 0                                                       LayerNorm, an MLP

The paper divides by |c|. Here c is positive, and dst is zero before. A lane that is read as a matrix is read row by
row, whatever its shape.

    OneStepSGD      nine operations (App. A):     w' = w - lr (x (<w, x> - y) + 2 weight_decay w),      <w', x_n>
    OneStepRidge    fourteen (App. B):            w' = (x x^T + ridge I)^-1 x y by Sherman-Morrison,    <w', x_n>

Tokens are x_1, y_1, then queries, as there. The transformer learns in the token of y_1, and w' is moved to the queries.
The paper has two misprints: the sign of weight_decay, and the shape of the last product of App. B. A layer of the paper
is attention and an MLP. A mov needs no MLP, and the others need no attention. So nine operations fit into seven of its
layers, and fourteen into twelve (``tf.cost().blocks``). ``OnlineSGD`` and ``RecursiveLeastSquares``, which learn from
any number of examples, take two and three.

To make a chain of your own, subclass ``Chain``.

Examples:
    >>> import innergrad as ig, torch
    >>> tf = ig.compile(ig.raw.OneStepSGD(d=2, lr=0.5), n_examples=1)
    >>> run = tf.run(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0]), torch.tensor([[2.0, 3.0]]))
    >>> round(float(run.predictions), 4)  # w' = (0.5, 0)
    1.0
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from innergrad.algorithms.base import MAX_D, Algorithm
from innergrad.errors import InputError, integer, real
from innergrad.functions.scalar import IDENTITY, RECIPROCAL
from innergrad.ir.program import Attend, Layer, Loop, Options, Program, Score, View
from innergrad.ir.stream import Lane, Stream, example_stream

Matrix = tuple[tuple[float, ...], ...]
Index = tuple[int, ...]
TOKENS = 2  # x_1 and y_1; the queries come after them
X_BOUND = 4.0
HERE = Lane("here", (), "state", shared=False, bound=1.0)  # 1 on tokens, 0 on the sink, which is read for nothing


class Operation(ABC):
    """One operation on the stream. dst: the lane that it writes."""

    dst: str

    @abstractmethod
    def layer(self, stream: Stream, constant: str) -> Layer:
        """The layer that does it. constant: the lane that is 1, for biases."""

    @property
    def name(self) -> str:
        return f"{type(self).__name__.lower()} {self.dst}"


@dataclass(frozen=True)
class Mov(Operation):
    """dst of the token ``target``, or of all queries, becomes src of the token ``source``, which comes before."""

    source: int
    target: int | Literal["queries"]
    src: str
    dst: str

    def __post_init__(self) -> None:
        last = TOKENS - 1 if self.target == "queries" else self.target - 1
        if not 0 <= self.source <= last:
            raise InputError("mov reads an earlier token", got=f"token {self.source}", allowed=f"0 to {last}")
        if self.target != "queries" and self.target >= TOKENS:
            what = "mov writes a token of the example, or the queries"
            raise InputError(what, got=self.target, allowed=f"1 to {TOKENS - 1}, or 'queries'")

    def layer(self, stream: Stream, constant: str) -> Layer:
        """Heads read single tokens, from some token on. So the reading of one token is the difference of two."""
        del constant
        src, dst = (_view(stream[lane]) for lane in (self.src, self.dst))
        if self.target == "queries":
            new = [Attend(dst, value=src, scope=f"at({self.source},{TOKENS})")]
            kept = [part for token in range(TOKENS) for part in _at(dst, dst, token, token, 1.0)]
            old = [Attend(dst, value=dst, scale=-1.0), *kept]  # of all tokens, but not of those before the queries
        else:
            new = _at(dst, src, self.source, self.target, 1.0)
            old = _at(dst, dst, self.target, self.target, -1.0)
        return Layer("attention", self.name, (*new, *old))


@dataclass(frozen=True)
class Aff(Operation):
    """dst becomes the sum of W h[lane] over the terms (lane, W), plus the bias; a number W means W times I."""

    dst: str
    terms: tuple[tuple[str, float | Matrix], ...] = ()
    bias: tuple[float, ...] = ()

    def layer(self, stream: Stream, constant: str) -> Layer:
        self._check(stream)
        made = []
        for row, index in enumerate(_entries(stream[self.dst])):
            form = {(self.dst, index): -1.0}
            for lane, W in self.terms:
                for column, entry in enumerate(_entries(stream[lane])):
                    weight = (W if row == column else 0.0) if isinstance(W, float) else W[row][column]
                    form[lane, entry] = form.get((lane, entry), 0.0) + weight
            if self.bias:
                form[constant, ()] = self.bias[row]
            views = tuple(View(lane, entry, weight) for (lane, entry), weight in form.items() if weight)
            if views:
                made.append(Attend((View(self.dst, index),), value=views))
        return Layer("mlp", self.name, tuple(made))

    def _check(self, stream: Stream) -> None:
        """Matrices and bias fit the lanes."""
        rows = stream[self.dst].size
        if self.bias and len(self.bias) != rows:
            raise InputError(f"{self.name}: a bias has {rows} numbers", got=len(self.bias))
        for lane, W in self.terms:
            columns = stream[lane].size
            if isinstance(W, float):
                if rows != columns:
                    what = f"{self.name}: a multiple of I needs lanes of one size"
                    raise InputError(what, got=f"{columns} and {rows} entries")
            elif len(W) != rows or any(len(row) != columns for row in W):
                what = f"{self.name}: a matrix for lane {lane} has {rows} rows and {columns} columns"
                raise InputError(what, got=f"{len(W)} rows of {sorted({len(row) for row in W})} columns")


@dataclass(frozen=True)
class Mul(Operation):
    """dst becomes the product of the a x b matrix in left and the b x c matrix in right; shape = (a, b, c)."""

    shape: tuple[int, int, int]
    left: str
    right: str
    dst: str

    def layer(self, stream: Stream, constant: str) -> Layer:
        del constant
        a, b, c = self.shape
        left, right, dst = (_entries(stream[lane]) for lane in (self.left, self.right, self.dst))
        sizes = (len(left), len(right), len(dst))
        if sizes != (a * b, b * c, a * c):
            what = f"mul {self.shape}: lanes {self.left}, {self.right}, {self.dst} do not have these matrices' entries"
            raise InputError(what, got=sizes, allowed=str((a * b, b * c, a * c)))
        made = []
        for i, k in itertools.product(range(a), range(c)):
            pairs = [((View(self.left, left[i * b + j]),), (View(self.right, right[j * c + k]),)) for j in range(b)]
            here = View(self.dst, dst[i * c + k])
            made += [Attend((here,), Score(IDENTITY, *pairs)), Attend((here,), value=(_minus(here),))]
        return Layer("mlp", self.name, tuple(made))


@dataclass(frozen=True)
class Div(Operation):
    """dst, which must be zero, becomes src over the scalar lane ``by``, whose ``least`` is positive."""

    src: str
    by: str
    dst: str

    def layer(self, stream: Stream, constant: str) -> Layer:
        del constant
        src, dst = (_view(stream[lane]) for lane in (self.src, self.dst))
        return Layer("mlp", self.name, (Attend(dst, Score(RECIPROCAL, (self.by, "one")), value=src),))


def _view(lane: Lane) -> str:
    return lane.name + ("", "[k]", "[k,c]")[len(lane.shape)]


def _entries(lane: Lane) -> list[Index]:
    """The entries of a lane, row by row."""
    return list(itertools.product(*map(range, lane.shape)))


def _minus(view: View) -> View:
    return View(view.lane, view.index, -1.0)


def _at(dst: str, src: str, source: int, target: int, scale: float) -> list[Attend]:
    """dst of the one token ``target`` += scale src of the token ``source``."""
    from_it, after_it = (f"at({source},{first})" for first in (target, target + 1))
    return [Attend(dst, value=src, scope=from_it, scale=scale), Attend(dst, value=src, scope=after_it, scale=-scale)]


class Chain(Algorithm):
    """Operations one after the other, a layer each, on the tokens x_1, y_1 and the queries.

    The prediction is the lane ``out`` of the queries. The last ``n_readout`` operations are the read-out; the learned
    state is the one before them. Where a step starts from is written by the operations themselves, so there are no
    weights to give: ``run.weights`` is empty, and ``tf.trace`` shows the lanes.
    """

    targets: ClassVar[tuple[str, ...]] = ("gpt",)
    weighted: ClassVar[bool] = False
    n_readout: ClassVar[int] = 1
    d: int

    @abstractmethod
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the transformer, layer by layer."""

    @abstractmethod
    def sizes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of its lanes, besides x (d,), y (1,) and out (1,)."""

    def ranges(self, options: Options) -> Mapping[str, float]:
        """Bounds of lanes that are factors of products."""
        del options
        return {}

    def program(self, options: Options) -> Program:
        operations = self.operations()
        ranges = {"x": X_BOUND if options.x_bound is None else options.x_bound, **self.ranges(options)}
        shapes = {"x": (self.d,), "y": (1,), **self.sizes(), "out": (1,)}
        origin = {"x": "x_bound", "y": "y_bound"}
        lanes = (
            Lane(
                name,
                shape,
                "state",
                shared=False,
                bound=ranges.get(name, math.inf),
                bound_from=origin.get(name, "z_bound"),
            )
            for name, shape in shapes.items()
        )
        stream = example_stream(self.d, 1, *lanes, HERE)
        divisors = {operation.by for operation in operations if isinstance(operation, Div)}
        moved = divisors & {operation.src for operation in operations if isinstance(operation, Mov)}
        if moved:
            raise InputError("a lane that is divided by cannot be moved", got=", ".join(sorted(moved)))
        layers = _started(
            [operation.layer(stream, "one" if operation.dst in divisors else "here") for operation in operations]
        )
        last = len(layers) - self.n_readout
        return Program(stream, (Loop(1, layers[:last]),), layers[last:], "out", tokens="interleaved")

    def check_options(self, options: Options) -> None:
        if options.n_examples != 1:
            raise InputError(
                f"{self.kind} learns from one example",
                got=f"n_examples={options.n_examples}",
                allowed="n_examples=1",
                hint="ig.OnlineSGD and ig.RecursiveLeastSquares learn from several",
            )

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Gaussian, clipped to |x| <= 3 and |y| <= 3."""
        X, y, X_query = (
            torch.randn(*shape, generator=generator, dtype=torch.float64).clamp(-3.0, 3.0)
            for shape in ((n, self.d), (n, 1), (n_query, self.d))
        )
        return X, y, X_query


def _started(layers: list[Layer]) -> tuple[Layer, ...]:
    """With the lane here: set by the first layer if it is attention, else by one before it."""
    set_here = Attend("here", value="one", scope="at(0)")
    if layers[0].kind == "attention":
        first = replace(layers[0], instructions=(*layers[0].instructions, set_here))
        return first, *layers[1:]
    return Layer("attention", "here", (set_here,)), *layers


def _answer(w: Tensor, X_query: Tensor) -> tuple[Tensor, Tensor]:
    """No weights before and after the step, and the predictions <w, x>."""
    return w.new_zeros(len(w), 2, 0), X_query @ w.unsqueeze(-1)


@dataclass(frozen=True)
class OneStepSGD(Chain):
    """One step of SGD on one example, and its prediction, by nine operations (App. A of the paper).

    w: the weights that the step starts from. They are constants of the transformer: (0, ..., 0) if not given.
    weight_decay: the paper's lambda, the coefficient of |w|^2 beside half the squared error.
    """

    kind: ClassVar[str] = "one_step_sgd"
    n_readout: ClassVar[int] = 2

    d: int = 8
    lr: float = 0.05
    weight_decay: float = 0.0
    w: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", integer("d", self.d, high=MAX_D))
        for name in ("lr", "weight_decay"):
            object.__setattr__(self, name, real(name, getattr(self, name), low=0.0))
        w = tuple(float(entry) for entry in self.w) or (0.0,) * self.d
        if len(w) != self.d or not np.isfinite(w).all():
            raise InputError("w is d numbers", got=w, allowed=f"{self.d} finite numbers")
        object.__setattr__(self, "w", w)

    def sizes(self) -> dict[str, tuple[int, ...]]:
        return {"a": (1,), "e": (1,), "g": (self.d,), "w": (self.d,), "q": (self.d,)}

    def ranges(self, options: Options) -> dict[str, float]:
        return {"e": max(16.0, options.z_bound or 0.0)}

    def operations(self) -> tuple[Operation, ...]:
        return (
            Mov(0, 1, "x", "x"),
            Aff("a", (("x", (self.w,)),)),  # <w, x>
            Aff("e", (("a", 1.0), ("y", -1.0))),
            Mul((self.d, 1, 1), "x", "e", "g"),  # x (<w, x> - y)
            Aff("w", bias=self.w),
            Aff("q", (("g", 1.0), ("w", 2.0 * self.weight_decay))),
            Aff("w", (("w", 1.0), ("q", -self.lr))),  # w'
            Mov(1, "queries", "w", "w"),
            Mul((1, self.d, 1), "w", "x", "out"),
        )

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """Autograd on (<w, x> - y)^2 / 2 + weight_decay |w|^2."""
        del w0, omega
        w = torch.tensor(self.w, dtype=X.dtype).expand(len(X), -1).clone().requires_grad_()
        with torch.enable_grad():
            residual = (w * X[:, 0]).sum(-1) - y[:, 0, 0]
            (slope,) = torch.autograd.grad((residual**2 / 2 + self.weight_decay * (w**2).sum(-1)).sum(), w)
        return _answer(w.detach() - self.lr * slope, X_query)

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon, n_examples
        return {"layers": "9", "width D": f"O(d), d = {self.d}"}


@dataclass(frozen=True)
class OneStepRidge(Chain):
    """Ridge regression on one example by a rank-one update of I / ridge, by fourteen operations (App. B).

    The second writes x y, which the others do not use: it is the paper's, and is kept for the count.
    """

    kind: ClassVar[str] = "one_step_ridge"
    n_readout: ClassVar[int] = 2

    d: int = 8
    ridge: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", integer("d", self.d, high=MAX_D))
        object.__setattr__(self, "ridge", real("ridge", self.ridge, above=0.0))

    def sizes(self) -> dict[str, tuple[int, ...]]:
        vector, matrix = (self.d,), (self.d, self.d)
        return {"xy": vector, "A": matrix, "u": vector, "v": vector, "P": matrix, "c": (), "R": matrix, "w": vector}

    def ranges(self, options: Options) -> dict[str, float]:
        """A is between 0 and I / ridge; 1.25: room for rounding. c = 1 + |x|^2 / ridge, and is at least 1."""
        x = X_BOUND if options.x_bound is None else options.x_bound
        gain = x / self.ridge
        return {"A": 1.25 / self.ridge, "u": gain, "v": gain, "c": 1.0 + self.d * x * gain}

    def operations(self) -> tuple[Operation, ...]:
        d = self.d
        start = tuple(float(i == j) / self.ridge for i in range(d) for j in range(d))
        return (
            Mov(0, 1, "x", "x"),
            Mul((d, 1, 1), "x", "y", "xy"),
            Aff("A", bias=start),  # A_0^-1 = I / ridge
            Mul((d, d, 1), "A", "x", "u"),
            Mul((1, d, d), "x", "A", "v"),
            Mul((d, 1, d), "u", "v", "P"),
            Mul((1, d, 1), "v", "x", "c"),
            Aff("c", (("c", 1.0),), bias=(1.0,)),
            Div("P", "c", "R"),
            Aff("A", (("A", 1.0), ("R", -1.0))),  # A_1^-1
            Mul((d, d, 1), "A", "x", "w"),
            Mul((d, 1, 1), "w", "y", "w"),  # w'
            Mov(1, "queries", "w", "w"),
            Mul((1, d, 1), "w", "x", "out"),
        )

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """The normal equations."""
        del w0, omega
        gram = X.mT @ X + self.ridge * torch.eye(self.d, dtype=X.dtype)
        return _answer(torch.linalg.solve(gram, X.mT @ y)[..., 0], X_query)

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon, n_examples
        return {"layers": "14", "width D": f"O(d^2), d = {self.d}"}
