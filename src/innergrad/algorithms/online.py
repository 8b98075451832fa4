"""Learning from examples one after the other (Akyürek et al.): SGD (Theorem 1) and recursive least squares (Theorem 2).

Tokens are x_1, y_1, x_2, y_2, ..., then queries, and no token sees a later one. Every token carries its own weights.
Step t reads example t into the lanes X and Y of every token that comes after it. Other tokens read nothing: X = Y = 0,
which changes nothing. So after the last step the token x_t holds the weights learned from the examples before it, and
its prediction <w, x_t> is the online prediction: all prefixes come out of one pass.

    OnlineSGD                w -= lr (X (<w, X> - Y) + 2 weight_decay w)                                 equation (11)
    RecursiveLeastSquares    u = A X,  c = ridge + <X, u>,  A -= u u^T / c,  w += (Y - <w, X>) u / c             A_0 = I

The paper's form of Theorem 2 keeps A and b = sum X Y, and multiplies w = A b at the end (``form="sherman-morrison"``).
b grows with the number of examples, and in float32 the last product loses digits that RLS keeps. A here is ridge times
the inverse (X^T X + ridge I)^-1, so that no lane grows as ridge becomes small; the lane B holds A - I.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from innergrad.algorithms.base import MAX_D, MAX_EXAMPLES, Algorithm
from innergrad.errors import InputError, integer, real
from innergrad.functions.scalar import IDENTITY, RECIPROCAL
from innergrad.ir.program import Attend, Layer, Loop, Options, Program, Score
from innergrad.ir.stream import Lane, example_stream

Form = Literal["rls", "sherman-morrison"]
OUT = Lane("out", (1,))
RESIDUAL = 16.0


def _read(t: int, *more: Attend) -> Layer:
    """X and Y of example t, for all tokens that come after its label."""
    X = Attend("X[c]", value="x[c]", scope=f"at({2 * t},{2 * t + 1})")
    return Layer("attention", f"read {t + 1}", (X, Attend("Y", value="y[0]", scope=f"at({2 * t + 1})"), *more))


def _residual(options: Options) -> float:
    """The range of Y - <w, X>."""
    return max(RESIDUAL, options.z_bound or 0.0)


def _clear(*lanes: str) -> tuple[Attend, ...]:
    return tuple(Attend(lane, value=lane, scale=-1.0) for lane in lanes)


def _product(dst: str, a: str, b: str, scale: float = 1.0) -> Attend:
    return Attend(dst, Score(IDENTITY, (a, b)), scale=scale)


class _Online(Algorithm):
    targets: ClassVar[tuple[str, ...]] = ("gpt",)
    weighted: ClassVar[bool] = False
    d: int

    def _program(
        self, lanes: tuple[Lane, ...], steps: Sequence[tuple[Layer, ...]], readout: tuple[Layer, ...]
    ) -> Program:
        stream = example_stream(self.d, 1, *lanes, OUT)
        variance = "variance" if "variance" in stream.by_name else None
        body = tuple(Loop(1, layers) for layers in steps)
        return Program(stream, body, readout, "out", variance=variance, tokens="interleaved", causal=True)

    def predicted(self, w: Tensor, X: Tensor) -> Tensor | None:
        return X @ w.unsqueeze(-1)

    def objective_at(self, w: Tensor, predictions: Tensor, y: Tensor, omega: Tensor) -> Tensor:
        """Half the mean squared error over all examples."""
        del w
        return 0.5 * (omega * (predictions - y).square().sum(-1)).sum(-1)

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """A linear function of Gaussian inputs, clipped to |x| <= 3, with a little noise."""
        X, noise, X_query = super().random_prompt(n, n_query, generator)
        X, X_query = X.clamp(-3.0, 3.0), X_query.clamp(-3.0, 3.0)
        w = torch.randn(self.d, 1, generator=generator, dtype=torch.float64) / self.d**0.5
        return X, X @ w + 0.1 * noise, X_query


@dataclass(frozen=True)
class OnlineSGD(_Online):
    """Linear regression by one pass of SGD over the prompt (Akyürek et al. 2023, Theorem 1).

    For each example in turn, w -= lr (x (w·x - y) + 2 weight_decay w). ``run.online`` has the prediction of every label
    from the examples before it.

    Args:
        d: the number of inputs.
        lr: the learning rate.
        weight_decay: the paper's lambda; torch's ``weight_decay`` is twice that.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> run = ig.compile(ig.OnlineSGD(d=2, lr=0.5), n_examples=2).run(X, torch.tensor([1.0, 2.0]), X)
        >>> [round(float(value), 4) for value in run.predictions]
        [0.5, 1.0]
    """

    kind: ClassVar[str] = "online_sgd"

    d: int = 8
    lr: float = 0.05
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", integer("d", self.d, high=MAX_D))
        for name in ("lr", "weight_decay"):
            object.__setattr__(self, name, real(name, getattr(self, name), low=0.0))

    def program(self, options: Options) -> Program:
        """Two blocks an example, and one that predicts."""
        x_bound = math.inf if options.x_bound is None else options.x_bound
        X = Lane("X", (self.d,), bound=x_bound, bound_from="x_bound")
        lanes = [Lane("w", (self.d,), "weight", shared=False), X, Lane("Y"), Lane("e", bound=_residual(options))]
        error = Layer("mlp", "error", (_product("e", "w[c]", "X[c]"), Attend("e", value="Y", scale=-1.0)))
        update = (_product("w[c]", "e", "X[c]", -self.lr), *_clear("X[c]", "Y", "e"))
        seen: tuple[Attend, ...] = ()
        if self.weight_decay:  # only tokens that have read an example shrink their weights
            lanes.append(Lane("seen", bound=1.0))
            update += (_product("w[c]", "seen", "w[c]", -2 * self.lr * self.weight_decay), *_clear("seen"))
        steps = []
        for t in range(integer("n_examples", options.n_examples, high=MAX_EXAMPLES)):
            if self.weight_decay:
                seen = (Attend("seen", value="t", scope=f"at({2 * t + 1})"),)
            steps.append((_read(t, *seen), error, Layer("mlp", "update", update)))
        predict = Layer("mlp", "predict", (_product("out[0]", "w[c]", "x[c]"),))
        return self._program(tuple(lanes), steps, (predict,))

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """Autograd on (w·x - y)^2 / 2 + weight_decay |w|^2."""
        del omega
        path = [w0]
        for t in range(X.shape[1]):
            w = path[-1].detach().requires_grad_()
            residual = (w * X[:, t]).sum(-1) - y[:, t, 0]
            loss = (residual**2 / 2 + self.weight_decay * (w**2).sum(-1)).sum()
            (gradient,) = torch.autograd.grad(loss, w)
            path.append(w.detach() - self.lr * gradient)
        return torch.stack(path, dim=1), X_query @ path[-1].unsqueeze(-1)

    def objective_at(self, w: Tensor, predictions: Tensor, y: Tensor, omega: Tensor) -> Tensor:
        return super().objective_at(w, predictions, y, omega) + self.weight_decay * w.square().sum(-1)

    @property
    def by_example(self) -> bool:
        return True

    @property
    def rate_setting(self) -> tuple[str, float]:
        return "lr", self.lr

    def with_rate(self, rate: float, steps: int) -> OnlineSGD:
        del steps  # there are as many as examples
        return replace(self, lr=rate)

    def curvature_rate(self, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> float:
        """1 / the curvature of the steepest example's loss, |x|^2 + 2 weight_decay."""
        del y, w0, omega
        return 1.0 / max(float(X.square().sum(-1).max()) + 2.0 * self.weight_decay, torch.finfo(X.dtype).tiny)

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon
        return {"layers": f"O(n), n = {n_examples}", "width D": f"O(d), d = {self.d}"}


@dataclass(frozen=True)
class RecursiveLeastSquares(_Online):
    """Ridge regression on every prefix of the prompt, by rank-one updates (Akyürek et al. 2023, Theorem 2).

    The updated matrix is (X^T X + ridge I)^-1. ``run.online`` has the prediction of every label from the examples
    before it.

    Args:
        d: the number of inputs.
        ridge: the coefficient of |w|^2.
        noise: the standard deviation of the labels' noise. ``run(..., return_std=True)`` then gives the predictive
            standard deviation under the prior w ~ N(w0, noise^2 / ridge I).
        form: ``rls``, or ``sherman-morrison``, the paper's, which loses digits in float32.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> tf = ig.compile(ig.RecursiveLeastSquares(d=2, ridge=1.0), n_examples=2)
        >>> run = tf.run(X, torch.tensor([1.0, 2.0]), X)
        >>> [round(float(value), 4) for value in run.predictions]  # (X^T X + I)^-1 X^T y = y / 2
        [0.5, 1.0]
    """

    kind: ClassVar[str] = "recursive_least_squares"

    d: int = 8
    ridge: float = 0.5
    noise: float = 1.0
    form: Form = "rls"

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", integer("d", self.d, high=MAX_D))
        for name in ("ridge", "noise"):
            object.__setattr__(self, name, real(name, getattr(self, name), above=0.0))
        if self.form not in get_args(Form):
            raise InputError("unknown form", got=repr(self.form), allowed=", ".join(get_args(Form)))

    def program(self, options: Options) -> Program:
        """Three blocks an example, and the read-out."""
        x_bound = 4.0 if options.x_bound is None else options.x_bound
        norm2 = self.d * x_bound**2
        lanes = [
            Lane("B", (self.d, self.d), "state", False, 1.25, bound_from="x_bound"),  # 1, and room for rounding
            Lane("X", (self.d,), bound=x_bound, bound_from="x_bound"),
            Lane("Y"),
            Lane("u", (self.d,), bound=norm2**0.5, bound_from="x_bound"),
            Lane("c", (), "state", False, self.ridge + norm2, least=self.ridge, bound_from="x_bound"),
            Lane("P", (self.d, self.d), "state", shared=False),
            Lane("variance"),
        ]
        gain = (_product("u[k]", "B[k,c]", "X[c]"), Attend("u[k]", value="X[k]"))
        growth = (
            Attend("c", value="one", scale=self.ridge),
            _product("c", "X[c]", "u[c]"),
            _product("P[k,c]", "u[k]", "u[c]"),
        )
        shrink = Attend("B[k,c]", Score(RECIPROCAL, ("c", "one")), value="P[k,c]", scale=-1.0)
        if self.form == "rls":
            lanes += [
                Lane("w", (self.d,), "weight", shared=False),
                Lane("e", bound=_residual(options)),
                Lane("q", (self.d,), "state", shared=False),
            ]
            error = (Attend("e", value="Y"), _product("e", "w[c]", "X[c]", -1.0))
            first = Layer("mlp", "gain and error", (*gain, *error, *_clear("P[k,c]", "c", "q[k]")))
            second = (*growth, _product("q[k]", "e", "u[k]"), *_clear("X[c]", "Y", "u[k]", "e"))
            third: tuple[Attend, ...] = (shrink, Attend("w[k]", Score(RECIPROCAL, ("c", "one")), value="q[k]"))
        else:
            lanes += [Lane("b", (self.d,), "weight", shared=False), Lane("w", (self.d,))]
            first = Layer("mlp", "gain", (*gain, *_clear("P[k,c]", "c")))
            second = (*growth, _product("b[k]", "Y", "X[k]"), *_clear("X[c]", "Y", "u[k]"))
            third = (shrink,)
        steps = [
            (_read(t), first, Layer("mlp", "growth", second), Layer("mlp", "divide", third))
            for t in range(integer("n_examples", options.n_examples, high=MAX_EXAMPLES))
        ]
        return self._program(tuple(lanes), steps, self._readout())

    def _readout(self) -> tuple[Layer, ...]:
        """<w, x>, and the variance 1 + <x, A x>; w = A b first in the paper's form."""
        spread = (_product("u[k]", "B[k,c]", "x[c]"), Attend("u[k]", value="x[k]"))
        variance = (Attend("variance", value="one"), _product("variance", "x[c]", "u[c]", 1.0 / self.ridge))
        predict = _product("out[0]", "w[c]", "x[c]")
        if self.form == "rls":
            return Layer("mlp", "predict", (predict, *spread)), Layer("mlp", "variance", variance)
        solve = (
            _product("w[k]", "B[k,c]", "b[c]", 1.0 / self.ridge),
            Attend("w[k]", value="b[k]", scale=1.0 / self.ridge),
        )
        return Layer("mlp", "solve", (*solve, *spread)), Layer("mlp", "predict", (predict, *variance))

    def predicted(self, w: Tensor, X: Tensor) -> Tensor | None:
        return super().predicted(w, X) if self.form == "rls" else None  # else the weights are b

    def std(self, variance: Tensor) -> Tensor:
        return self.noise * super().std(variance)

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """The normal equations of every prefix; in the paper's form the weights are b = sum x y."""
        del omega
        eye = self.ridge * torch.eye(self.d, dtype=X.dtype)
        path = []
        for t in range(X.shape[1] + 1):
            gram, b = X[:, :t].mT @ X[:, :t] + eye, X[:, :t].mT @ y[:, :t]
            start = w0.unsqueeze(-1) * (self.ridge if self.form == "rls" else 1.0)
            w = torch.linalg.solve(gram, b + start)
            path.append(w if self.form == "rls" else b + start)
        return torch.cat(path, dim=-1).mT, X_query @ w

    def reference_std(self, X: Tensor, X_query: Tensor) -> Tensor:
        """noise sqrt(1 + x^T (X^T X + ridge I)^-1 x), by solving."""
        gram = X.mT @ X + self.ridge * torch.eye(self.d, dtype=X.dtype)
        spread: Tensor = (X_query * torch.linalg.solve(gram, X_query.mT).mT).sum(-1)
        return self.noise * (1 + spread).sqrt()

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon
        return {"layers": f"O(n), n = {n_examples}", "width D": f"O(d^2), d = {self.d}"}
