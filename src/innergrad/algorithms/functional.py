"""Functional gradient descent in the space of a kernel (Cheng et al. 2024): one layer of attention is one step.

    f_{l+1}(.) = f_l(.) + r_l sum_i (y_i - f_l(x_i)) k(., x_i)            Proposition 3.1, in its corrected form

On the stream, with tokens (x_i; y_i) and a query (x; 0), one instruction on the lane y does it: it adds -r_l sum_i
k(x_j, x_i) y_i to y_j. The lane of an example then holds its *residual* y_i - f_l(x_i), that of the query -f_l(x): the
prediction is minus the lane. As printed, (7) takes a unit step in the direction of steepest descent; its length depends
on the prompt, which fixed weights cannot know. Fixed weights do the recursion above instead.

Steps. K = k(X, X) of a prompt has eigenvalues in [0, lambda_max]; r must be below 2 / lambda_max for *every* prompt.
The default for lambda_max is the trace bound for 16 examples in the unit ball, 16 sup k(x, x).

    constant     r_l = 1.9 / lambda_max
    chebyshev    r_l = 1 / node_l of the Chebyshev polynomial on [lambda_max / kappa, lambda_max], in Leja order (in
                 natural order the residual overflows half way), kappa = (steps / 4)^2 unless ``condition`` is given

Softmax attention is not a kernel. But D^-1 K (D = diag(K 1)) has its spectrum in (0, 1], so any r in (0, 2) converges
for every prompt. The limit is f(x) = k(x)^T K^-1 D y / sum_j k(x, x_j), which is not the Bayes predictor.

covariate_step: Theorem 4.6's algorithm, x_j += a sum_i k(x_j, x_i) x_i in every layer, the analogue of GD++.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.algorithms.base import MAX_D, MOST_STEPS, Algorithm
from innergrad.algorithms.kernels import Kernel
from innergrad.errors import InputError, NotPositive, integer, real
from innergrad.ir.program import Attend, Layer, Loop, Options, Program
from innergrad.ir.stream import Lane, example_stream

StepRule = Literal["constant", "chebyshev"]
DEFAULT_EXAMPLES = 16
DEFAULT_STEP = 1.9  # over lambda_max: of 2, from which steps diverge
MOST_LAMBDA = 1e12  # of eigenvalues, beyond which no step suits the others
MOST_CHEBYSHEV = 10_000  # steps: each has a layer of its own


@dataclass(frozen=True)
class FunctionalGradientDescent(Algorithm):
    """Gradient descent in the space of a kernel: one layer of attention is one step (Cheng et al. 2024).

        f_{l+1}(.) = f_l(.) + r_l sum_i (y_i - f_l(x_i)) k(., x_i)

    Args:
        kernel: a name or a ``Kernel``.
        steps: how many.
        step_rule: ``constant``, r = 1.9 / lambda_max; or ``chebyshev``, whose steps differ and converge faster.
        d: the number of inputs.
        d_y: the number of labels.
        step: the constant step, if the rule is not to choose it.
        lambda_max: a bound on the largest eigenvalue of k(X, X) over all prompts. By default that of 16 examples in the
            unit ball.
        condition: lambda_max divided by the least eigenvalue that the Chebyshev steps are made for.
        covariate_step: also move the inputs, x_j += a sum_i k(x_j, x_i) x_i, as in Theorem 4.6 there.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.tensor([[0.0], [1.0]])
        >>> tf = ig.compile(ig.FunctionalGradientDescent("exp", steps=50, d=1, step=0.4), n_examples=2)
        >>> run = tf.run(X, torch.tensor([1.0, 2.0]), X)
        >>> [round(float(value), 3) for value in run.predictions]
        [1.0, 2.0]
    """

    kind: ClassVar[str] = "functional_gradient_descent"
    targets: ClassVar[tuple[str, ...]] = ("kernel", "gpt")
    weighted: ClassVar[bool] = False
    keeps_residuals: ClassVar[bool] = True

    kernel: Kernel
    steps: int
    step_rule: StepRule
    d: int
    d_y: int
    step: float | None
    lambda_max: float
    condition: float
    covariate_step: float

    def __init__(
        self,
        kernel: str | Kernel = "exp",
        steps: int = 64,
        step_rule: StepRule = "constant",
        d: int = 5,
        d_y: int = 1,
        step: float | None = None,
        lambda_max: float | None = None,
        condition: float | None = None,
        covariate_step: float = 0.0,
    ) -> None:
        kernel = Kernel.of(kernel)
        if step_rule not in get_args(StepRule):
            raise InputError("unknown step rule", got=repr(step_rule), allowed=", ".join(get_args(StepRule)))
        steps = integer("steps", steps, high=MOST_STEPS if step_rule == "constant" else MOST_CHEBYSHEV)
        bound = 1.0 if kernel.normalised else DEFAULT_EXAMPLES * kernel.largest()
        settings = {
            "kernel": kernel,
            "steps": steps,
            "step_rule": step_rule,
            "d": integer("d", d, high=MAX_D),
            "d_y": integer("d_y", d_y, high=MAX_D),
            "step": None if step is None else real("step", step, above=0.0),
            "lambda_max": _lambda_max(bound if lambda_max is None else lambda_max),
            "condition": real("condition", max((steps / 4) ** 2, 2.0) if condition is None else condition, low=1.0),
            "covariate_step": real("covariate_step", covariate_step),
        }
        for name, content in settings.items():
            object.__setattr__(self, name, content)
        if step_rule == "chebyshev":
            if step is not None:
                raise InputError("Chebyshev steps follow from lambda_max and condition", got=f"step = {step}")
            self._require_convergence("Chebyshev steps")
        elif not (kernel.positive or kernel.normalised):
            warnings.warn(
                "the kernel is not positive semi-definite: a finite number of layers computes the recursion, but it "
                "diverges as layers are added",
                NotPositive,
                stacklevel=2,
            )

    def _require_convergence(self, what: str) -> None:
        if not (self.kernel.positive or self.kernel.normalised):
            raise InputError(
                f"{what} need a positive semi-definite kernel",
                got="one that has negative eigenvalues (relu, or a negative weight)",
                allowed="sums and products of linear and exp, or softmax",
                hint="use step_rule='constant' with few steps",
            )
        if self.covariate_step:
            raise InputError(f"{what} need a kernel matrix that stays the same", got="covariate steps")

    def rates(self) -> Float[np.ndarray, " steps"]:
        """r_l for every layer."""
        if self.step_rule == "chebyshev":
            return chebyshev_steps(self.steps, self.lambda_max / self.condition, self.lambda_max)
        return np.full(self.steps, self._constant)

    @property
    def _constant(self) -> float:
        """The step, where all are equal."""
        default = 1.0 if self.kernel.normalised else DEFAULT_STEP / self.lambda_max
        return default if self.step is None else self.step

    # --------------------------------------------------------------------------------------------------------------
    # program

    def program(self, options: Options) -> Program:
        """One attention layer a step; no read-out."""
        del options
        own = Lane("x", (self.d,), "state", shared=False, bound_from="x_bound")
        covariates = (own,) if self.covariate_step else ()
        targets = Lane("y", (self.d_y,), "state", shared=False, bound_from="y_bound")
        stream = example_stream(self.d, self.d_y, *covariates, targets)
        if self.step_rule == "constant":
            body: tuple[Loop, ...] = (Loop(self.steps, (self._layer("step", self._constant),)),)
        else:
            body = tuple(Loop(1, (self._layer(f"step {i}", float(r)),)) for i, r in enumerate(self.rates(), start=1))
        return Program(stream, body, (), "y", sign=-1.0)

    def _layer(self, name: str, rate: float) -> Layer:
        instructions = []
        for weight, factors in self.kernel.terms:
            scores = [factor.score(self.d) for factor in factors]
            reduce: Literal["softmax", "sum"] = "softmax" if self.kernel.normalised else "sum"
            moves = (("y[k]", -rate), ("x[k]", self.covariate_step)) if self.covariate_step else (("y[k]", -rate),)
            for lane, scale in moves:
                instructions.append(
                    Attend(lane, *scores, value=lane, scope="demos", reduce=reduce, scale=scale * weight)
                )
        return Layer("attention", name, tuple(instructions))

    # --------------------------------------------------------------------------------------------------------------
    # prompts and oracles

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        """The steps must be small enough for this prompt: r lambda < 2, or all eigenvalues below lambda_max."""
        del y, w0
        if self.kernel.normalised:
            largest_step = self._constant if self.step_rule == "constant" else 0.0
            if largest_step >= 2.0:
                raise InputError("softmax attention converges for steps in (0, 2)", got=largest_step)
            return
        if not self.kernel.positive or self.covariate_step:
            return
        matrix = self.kernel(X, X).double()
        if not bool(torch.isfinite(matrix).all()):
            what = "the kernel of this prompt is not finite"
            raise InputError(what, got=f"inputs up to {float(X.abs().max()):.4g}", hint="scale the inputs")
        top = float(torch.linalg.eigvalsh(matrix).max())
        limit = 2.0 / self._constant if self.step_rule == "constant" else self.lambda_max * (1 + 1e-9)
        if top > limit:
            smaller = (
                f"give lambda_max={_upwards(top):g} or more, or " if self.step is None else "give a smaller step, or "
            )
            raise InputError(
                "the steps are too large for this prompt: they diverge",
                got=f"largest eigenvalue {top:.4g} of its kernel matrix",
                allowed=f"at most {limit:.4g}",
                hint=f"{smaller if top <= MOST_LAMBDA else ''}scale the inputs, or give a larger bandwidth",
            )

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """x on the unit sphere, y ~ N(0, 1)."""
        X, y, X_query = super().random_prompt(n, n_query, generator)
        return X / X.norm(dim=-1, keepdim=True), y, X_query / X_query.norm(dim=-1, keepdim=True)

    def _kernels(self, X: Tensor, X_query: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """k(X, X) and k(X_query, X) of every layer; softmax attention's have rows that sum to one."""
        for _ in range(self.steps):
            K, k = self.kernel(X, X), self.kernel(X_query, X)
            if self.kernel.normalised:
                K, k = K / K.sum(-1, keepdim=True), k / k.sum(-1, keepdim=True)
            yield K, k
            if self.covariate_step:
                X, X_query = X + self.covariate_step * K @ X, X_query + self.covariate_step * k @ X

    def reference(self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        """The recursion in function space: values at the examples and at the queries."""
        del w0, omega
        at_examples, at_queries = torch.zeros_like(y), y.new_zeros(*X_query.shape[:2], self.d_y)
        for r, (K, k) in zip(self.rates().tolist(), self._kernels(X, X_query), strict=True):
            residual = y - at_examples
            at_examples, at_queries = at_examples + r * K @ residual, at_queries + r * k @ residual
        return y.new_zeros(len(y), self.steps + 1, 0), at_queries

    def objective_at(self, w: Tensor, predictions: Tensor, y: Tensor, omega: Tensor) -> Tensor:
        """Half the mean squared residual."""
        del w
        return 0.5 * (omega * (predictions - y).square().sum(-1)).sum(-1)

    @property
    def rate_setting(self) -> tuple[str, float] | None:
        return "step", self._constant if self.step_rule == "constant" else 1.0 / self.lambda_max

    def rate_said(self, rate: float) -> str:
        return f"step={rate:g}" if self._by_step else f"lambda_max={self._bound(rate):g}"

    def with_rate(self, rate: float, steps: int) -> FunctionalGradientDescent:
        slower = copy.copy(self)
        if self._by_step:
            object.__setattr__(slower, "step", rate)
        else:
            object.__setattr__(slower, "lambda_max", self._bound(rate))
        object.__setattr__(slower, "steps", steps)
        return slower

    @property
    def _by_step(self) -> bool:
        """The step was given, or follows from nothing; else it follows from lambda_max."""
        return self.step is not None or self.kernel.normalised

    def _bound(self, rate: float) -> float:
        """The lambda_max whose steps are about ``rate``, and no larger."""
        return _upwards((DEFAULT_STEP if self.step_rule == "constant" else 1.0) / rate)

    def curvature_rate(self, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> float:
        """1 / the largest eigenvalue of a kernel matrix, which is the curvature."""
        del y, w0, omega
        if self.kernel.normalised:
            return 1.0
        return 1.0 / max(float(torch.linalg.eigvalsh(self.kernel(X, X)).abs().max()), torch.finfo(X.dtype).tiny)

    def limit(self, X: Tensor, y: Tensor, X_query: Tensor) -> Tensor:
        """The prediction of infinitely many layers (Proposition 3.4): the Bayes predictor k(x)^T K^+ y, or softmax
        attention's fixed point k(x)^T K^-1 D y / sum_j k(x, x_j).
        """
        self._require_convergence("limits")
        y = y.unsqueeze(-1) if y.ndim < X.ndim else y
        K, k = self.kernel(X, X), self.kernel(X_query, X)
        if self.kernel.normalised:
            degrees = K.sum(-1, keepdim=True)
            fixed: Tensor = k @ torch.linalg.solve(K, degrees * y) / k.sum(-1, keepdim=True)
            return fixed
        bayes: Tensor = k @ (torch.linalg.pinv(K, hermitian=True) @ y)
        return bayes

    def conditions(self, X: Tensor) -> list[Tensor]:
        """cond(k(X, X)) in every layer, which covariate steps are there to improve."""
        return [torch.linalg.cond(K) for K, _ in self._kernels(X, X)]

    def variance_prompt(self, X: Tensor, X_query: Tensor) -> tuple[Tensor, Tensor] | None:
        """The posterior variance k(x, x) - k(x)^T K^-1 k(x). The second term is the transformer's prediction at x when
        it is shown the labels k(x_i, x).
        """
        if self.kernel.normalised or not self.kernel.positive or self.covariate_step or self.d_y != 1:
            return None
        prior = torch.diagonal(self.kernel(X_query, X_query), dim1=-2, dim2=-1)
        return self.kernel(X_query, X).unsqueeze(-1), prior

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        del epsilon, n_examples
        return {"layers": f"one a step = {self.steps}", "width D": f"d + 1 = {self.d + 1}"}

    # --------------------------------------------------------------------------------------------------------------
    # saving

    def config(self) -> dict[str, Any]:
        return {**super().config(), "kernel": self.kernel.config()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], extensions: Iterable[object] = ()) -> FunctionalGradientDescent:
        del extensions
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotPositive)
                return cls(**{**config, "kernel": Kernel.from_config(config["kernel"])})
        except (TypeError, KeyError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"the saved settings of {cls.kind!r} do not fit this version", got=dict(config)) from error


def _lambda_max(value: object) -> float:
    if value == math.inf:
        raise InputError(
            "k(x, x) overflows, so there is no default for lambda_max",
            hint="give lambda_max, or a larger bandwidth",
        )
    return real("lambda_max", value, above=0.0)


def _upwards(value: float) -> float:
    """To three digits, not below the value."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit) * unit:.3g}")


def chebyshev_steps(steps: int, low: float, high: float) -> Float[np.ndarray, " steps"]:
    """1 / (nodes of the Chebyshev polynomial of degree ``steps`` on [low, high]), in Leja order."""
    angles = (2 * np.arange(steps) + 1) * np.pi / (2 * steps)
    nodes = (high + low) / 2 + (high - low) / 2 * np.cos(angles)
    order, logs = [0], np.zeros(steps)
    while len(order) < steps:  # the next node is the one farthest, in product, from those taken
        with np.errstate(divide="ignore"):
            logs = logs + np.log(np.abs(nodes - nodes[order[-1]]))
        order.append(int(np.argmax(logs)))
    rates: np.ndarray = 1.0 / nodes[order]
    return rates
