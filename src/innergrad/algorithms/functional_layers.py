"""Functional gradient descent whose layers have kernels, steps and matrices of their own (Cheng et al. 2024, (2)-(4),
(26)).

    x_j += sum over heads of  A sum_i k(B x_i, C x_j) x_i
    y_j -= sum over heads of  r sum_i k(B x_i, C x_j) y_i        i over the examples, j over examples and queries

In the paper's words: V = diag(A, -r), B on the keys, C on the queries, k = h~ (softmax: normalised over i). Tokens are
(x_i; y_i), a query is (x; 0), and the prediction is minus its lane y. With A = 0, B = C = 1 and one kernel this is
:class:`innergrad.FunctionalGradientDescent`. The *stationary points* of Theorem 4.6 are A_l = a_l 1, B_l = b_l
Sigma^(-1/2), C_l = c_l Sigma^(-1/2): steps of functional gradient descent, and of the covariates, in turns. With A = 0
they are those of Theorem 4.5.

Nothing says that such steps converge: matrices and signs are anybody's, a training's for example
(``KernelLearner.as_algorithm``). Only the product of the transposed B with C matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from innergrad.algorithms.base import MAX_D, Algorithm
from innergrad.algorithms.kernels import Kernel, Matrix, finite_matrix, inverse_root, rows
from innergrad.errors import InputError, integer, real
from innergrad.ir.program import Attend, Expr, Layer, Loop, Options, Program
from innergrad.ir.stream import Lane, example_stream

MOST_LAYERS = 10_000
Map = float | Matrix  # a multiple of the identity, or a matrix
MapLike = float | Sequence[Sequence[float]] | np.ndarray | Tensor


@dataclass(frozen=True)
class FunctionalHead:
    """A head of ``FunctionalLayers``: a kernel k, a step r, and three matrices.

    It moves the labels, y_j -= r sum_i k(B x_i, C x_j) y_i, and the inputs, x_j += A sum_i k(B x_i, C x_j) x_i. The
    sums are over the examples. A number in place of a matrix stands for that multiple of the identity.

    Args:
        kernel: a name or a ``Kernel``.
        step: r.
        A: on values, (d, d).
        B: on keys, (m, d).
        C: on queries, (m, d).

    Examples:
        >>> import innergrad as ig
        >>> head = ig.FunctionalHead("linear", step=0.1, B=[[1.0, 0.0]], C=[[1.0, 0.0]])
        >>> head.step
        0.1
    """

    kernel: Kernel
    step: float
    A: Map
    B: Map
    C: Map

    def __init__(
        self,
        kernel: str | Kernel = "exp",
        step: float = 0.0,
        A: MapLike = 0.0,
        B: MapLike = 1.0,
        C: MapLike = 1.0,
    ) -> None:
        object.__setattr__(self, "kernel", Kernel.of(kernel))
        object.__setattr__(self, "step", real("step", step))
        for name, value in (("A", A), ("B", B), ("C", C)):
            object.__setattr__(self, name, _map(name, value))

    def maps(self, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, B and C as matrices."""
        A, B, C = (_full(getattr(self, name), d) for name in "ABC")
        if A.shape != (d, d) or B.shape[1] != d or B.shape != C.shape:
            raise InputError(
                "the matrices of a head do not fit the inputs",
                got=f"A {A.shape}, B {B.shape}, C {C.shape}",
                allowed=f"A (d, d), B and C (m, d), d = {d}",
            )
        return A, B, C

    def instructions(self, d: int) -> Iterator[Attend]:
        """The instructions that add to y and to x."""
        A, B, C = self.maps(d)
        reduce: Literal["softmax", "sum"] = "softmax" if self.kernel.normalised else "sum"
        moves: list[tuple[str, str | Expr, float]] = [("y[k]", "y[k]", -self.step)]
        if isinstance(self.A, float):
            moves.append(("x[k]", "x[k]", self.A))
        else:
            moves += [(f"x[{k}]", row, 1.0) for k, row in enumerate(rows(A)) if row]
        for weight, factors in self.kernel.terms:
            scores = [factor.mapped(C, B) for factor in factors]
            for lane, value, scale in moves:
                if scale * weight:
                    yield Attend(lane, *scores, value=value, scope="demos", reduce=reduce, scale=scale * weight)

    def matrix(self, X: Tensor, Z: Tensor) -> Tensor:
        """k(B z, C x) of queries X and keys Z; rows of softmax attention sum to one."""
        _, B, C = (torch.tensor(matrix, dtype=X.dtype, device=X.device) for matrix in self.maps(X.shape[-1]))
        K = self.kernel(X @ C.T, Z @ B.T)
        return K / K.sum(-1, keepdim=True) if self.kernel.normalised else K

    def config(self) -> dict[str, Any]:
        return {"kernel": self.kernel.config(), **{name: getattr(self, name) for name in ("step", "A", "B", "C")}}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FunctionalHead:
        return cls(**{**config, "kernel": Kernel.from_config(config["kernel"])})


@dataclass(frozen=True)
class FunctionalLayers(Algorithm):
    """Functional gradient descent with heads of their own in every layer (Cheng et al. 2024, Theorems 4.5 and 4.6).

    Args:
        layers: a ``FunctionalHead``, or several, for each layer.
        d: the number of inputs.
        d_y: the number of labels.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.tensor([[0.0], [1.0]])
        >>> algorithm = ig.FunctionalLayers([ig.FunctionalHead("exp", step=0.4)] * 50, d=1)
        >>> run = ig.compile(algorithm, n_examples=2).run(X, torch.tensor([1.0, 2.0]), X)
        >>> [round(float(value), 3) for value in run.predictions]
        [1.0, 2.0]
    """

    kind: ClassVar[str] = "functional_layers"
    targets: ClassVar[tuple[str, ...]] = ("kernel", "gpt")
    weighted: ClassVar[bool] = False
    keeps_residuals: ClassVar[bool] = True

    layers: tuple[tuple[FunctionalHead, ...], ...]
    d: int
    d_y: int

    def __init__(self, layers: Sequence[FunctionalHead | Sequence[FunctionalHead]], d: int = 5, d_y: int = 1) -> None:
        made = tuple((layer,) if isinstance(layer, FunctionalHead) else tuple(layer) for layer in layers)
        if not made or not all(made) or not all(isinstance(head, FunctionalHead) for layer in made for head in layer):
            allowed = "a FunctionalHead, or several, for each of one or more layers"
            raise InputError("layers are made of heads", got=repr(layers), allowed=allowed)
        integer("the number of layers", len(made), high=MOST_LAYERS)
        object.__setattr__(self, "layers", made)
        object.__setattr__(self, "d", integer("d", d, high=MAX_D))
        object.__setattr__(self, "d_y", integer("d_y", d_y, high=MAX_D))
        for number, layer in enumerate(made, start=1):
            if not any(True for head in layer for _ in head.instructions(self.d)):
                raise InputError(f"layer {number} does nothing", got="steps 0 and A = 0", hint="leave it out")

    @classmethod
    def stationary(
        cls,
        kernel: str | Kernel,
        steps: Sequence[float],
        a: Sequence[float] | None = None,
        b: Sequence[float] | None = None,
        c: Sequence[float] | None = None,
        covariance: Sequence[Sequence[float]] | np.ndarray | Tensor | None = None,
        d: int = 5,
        d_y: int = 1,
    ) -> FunctionalLayers:
        """Theorem 4.6: A_l = a_l 1, B_l = b_l Sigma^(-1/2), C_l = c_l Sigma^(-1/2); by default a = 0 (Theorem 4.5), b =
        c = 1, Sigma = 1. Which a, b, c and r make the loss of a task stationary is the task's.
        """
        root = None if covariance is None else inverse_root(finite_matrix("covariance", covariance))
        numbers = [[value] * len(steps) if given is None else given for value, given in ((0.0, a), (1.0, b), (1.0, c))]
        if any(len(given) != len(steps) for given in numbers):
            raise InputError("one a, b and c a layer", got=[len(given) for given in numbers], allowed=str(len(steps)))
        heads = [
            FunctionalHead(kernel, r, A, *(scale if root is None else scale * root for scale in (B, C)))
            for r, A, B, C in zip(steps, *numbers, strict=True)
        ]
        return cls(heads, d if root is None else len(root), d_y)

    @property
    def moves(self) -> bool:
        """Whether the covariates change."""
        return any(head.A and head.maps(self.d)[0].any() for layer in self.layers for head in layer)

    def program(self, options: Options) -> Program:
        """One attention layer a step; no read-out. Equal layers in a row are a loop."""
        del options
        own = Lane("x", (self.d,), "state", shared=False, bound_from="x_bound")
        targets = Lane("y", (self.d_y,), "state", shared=False, bound_from="y_bound")
        stream = example_stream(self.d, self.d_y, *((own,) if self.moves else ()), targets)
        body, number = list[Loop](), 1
        for heads, same in itertools.groupby(self.layers):
            instructions = tuple(i for head in heads for i in head.instructions(self.d))
            body.append(Loop(len(list(same)), (Layer("attention", f"step {number}", instructions),)))
            number += body[-1].count
        return Program(stream, tuple(body), (), "y", sign=-1.0)

    # --------------------------------------------------------------------------------------------------------------
    # prompts and oracle

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """x on the unit sphere, y ~ N(0, 1)."""
        X, y, X_query = super().random_prompt(n, n_query, generator)
        return X / X.norm(dim=-1, keepdim=True), y, X_query / X_query.norm(dim=-1, keepdim=True)

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """The recursion in function space: values at the examples and at the queries, covariates that move."""
        del w0, omega
        n = X.shape[1]
        points, values = torch.cat((X, X_query), 1), y.new_zeros(len(y), n + X_query.shape[1], self.d_y)
        for layer in self.layers:
            residual, moved = y - values[:, :n], points
            for head in layer if n else ():
                K, A = head.matrix(points, points[:, :n]), torch.tensor(head.maps(self.d)[0]).to(points)
                values = values + head.step * K @ residual
                moved = moved + K @ points[:, :n] @ A.T
            points = moved
        return y.new_zeros(len(y), len(self.layers) + 1, 0), values[:, n:]

    def objective_at(self, w: Tensor, predictions: Tensor, y: Tensor, omega: Tensor) -> Tensor:
        """Half the mean squared residual."""
        del w
        return 0.5 * (omega * (predictions - y).square().sum(-1)).sum(-1)

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon, n_examples
        return {"layers": f"one a step = {len(self.layers)}", "width D": f"d + 1 = {self.d + 1}"}

    # --------------------------------------------------------------------------------------------------------------
    # saving

    def config(self) -> dict[str, Any]:
        return {**super().config(), "layers": [[head.config() for head in layer] for layer in self.layers]}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], extensions: Iterable[object] = ()) -> FunctionalLayers:
        del extensions
        try:
            layers = [[FunctionalHead.from_config(head) for head in layer] for layer in config["layers"]]
            return cls(**{**config, "layers": layers})
        except (TypeError, KeyError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the saved settings of {cls.kind!r} do not fit this version", got=dict(config)) from error


def _map(name: str, value: MapLike) -> Map:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return real(name, value)
    return tuple(tuple(row) for row in finite_matrix(name, value).tolist())


def _full(value: Map, d: int) -> np.ndarray:
    return value * np.eye(d) if isinstance(value, float) else np.array(value)
