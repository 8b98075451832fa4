"""The base class of algorithms: a program, and a little about its prompts.

To add one, subclass :class:`Algorithm` as a frozen dataclass whose fields are its hyper-parameters, and write
:meth:`Algorithm.program`. ``run``, ``trace``, ``verify``, ``cost``, ``save`` and ``load`` follow from the program.
``examples/logistic_regression.py`` is one.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from innergrad.errors import InputError, lacks
from innergrad.functions.scalar import Function
from innergrad.functions.tape import Formula
from innergrad.ir.program import Options, Program

MAX_D, MAX_EXAMPLES = 20_000, 4096  # of inputs; of examples, where each has layers of its own
MOST_STEPS = 10**9  # equal ones: a loop
LOG_UNIT = 16.0  # of the lane log_omega; large, so that it does not dominate the stream


class Algorithm(ABC):
    """The base of all learning algorithms. Subclass it, as a frozen dataclass, to write your own.

    The fields are its settings; a field ``lr`` is taken for the learning rate. ``program`` is all that must be written.
    Running, tracing, verifying, saving and loading follow from it. ``examples/logistic_regression.py`` is a whole one.

    Attributes:
        kind: the name under which it is saved. By default that of the class.
        targets: the kinds of transformer that the program is a construction for; it is then compiled exactly as
            written. ``("any",)`` means that the compiler places the program on every target that can run it.
        variants: the variants of each target that it has a program for.
        weighted: it averages over the examples, each with its weight. Verification checks that.
        by_place: examples are chosen by their place in the prompt.
        keeps_residuals: after a run, the lane y of an example holds its label minus its prediction.

    Examples:
        >>> import innergrad as ig
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Average(ig.Algorithm):
        ...     "Predicts the mean label: w becomes the average of y."
        ...     def program(self, options):
        ...         stream = ig.example_stream(1, 1, ig.Lane("w", (1,), "weight"), ig.Lane("p", (1,)))
        ...         weighted = ig.Score(ig.IDENTITY, ("one", "omega"))
        ...         mean = ig.Attend("w[k]", weighted, value="y[k]", scope="all", reduce="mean")
        ...         learn = ig.Layer("attention", "average", (mean,))
        ...         answer = ig.Layer("attention", "answer", (ig.Attend("p[k]", value="w[k]"),))
        ...         return ig.Program(stream, (ig.Loop(1, (learn,)),), (answer,), "p")
        >>> run = ig.compile(Average()).run([[0.0], [1.0]], [[1.0], [3.0]], [[0.0]])
        >>> round(float(run.predictions), 6)
        2.0
    """

    kind: ClassVar[str]
    targets: ClassVar[tuple[str, ...]] = ("any",)
    variants: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "relu": ("literal",),
        "softmax": ("mean", "sink"),
        "sigma": ("backprop",),
        "gpt": ("pre-ln", "raw"),
        "llama": ("chain",),
    }
    weighted: ClassVar[bool] = True
    by_place: ClassVar[bool] = False
    keeps_residuals: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__dict__.get("kind", cls.__name__)

    @property
    def home(self) -> str:
        """The target that the algorithm is for, or is looked at on if it is for any."""
        return "relu" if self.targets == ("any",) else self.targets[0]

    @abstractmethod
    def program(self, options: Options) -> Program:
        """The algorithm as a program. ``innergrad.example_stream`` makes its stream.

        Args:
            options: how it is being compiled. Most programs do not depend on it. Some have one form for each kind of
                block (``options.target``, ``options.variant``), or one loop for each of ``options.n_examples``.
        """

    def check_options(self, options: Options) -> None:
        """Raise an ``InputError`` if it cannot be compiled so. Targets and variants are checked already."""
        del options

    def initial_weights(self, seed: int) -> Tensor | None:
        """Weights to start from where the caller gives none: a flat vector, or None for zeros."""
        del seed
        return None

    def check_prompt(self, X: Tensor, y: Tensor, w0: Tensor) -> None:
        """Raise an ``InputError`` for prompts it cannot serve. Shapes and finiteness are checked already."""
        del X, y, w0

    def check_queries(self, X_query: Tensor) -> None:
        """Likewise for queries, (batch, n_query, d_x)."""
        del X_query

    def reference(
        self, X: Tensor, y: Tensor, X_query: Tensor, w0: Tensor, omega: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """The algorithm by other means, e.g. autograd.

        Returns weights (batch, steps + 1, D_w) and predictions (batch, n_query, d_y), or None if there is no such
        oracle; then the exact interpreter of the program serves. All arguments have a batch axis; omega (batch, n) are
        the weights of the examples, summing to one.
        """
        del X, y, X_query, w0, omega
        return None

    def primitives(self) -> Mapping[Function, tuple[Formula, ...]]:
        """Functions that must be derivatives for the program to be the algorithm, each with its primitive."""
        return {}

    # ------------------------------------------------------------------------------------------ how well it has learned

    def predicted(self, w: Tensor, X: Tensor) -> Tensor | None:
        """Predictions (batch, n, d_y) at X (batch, n, d_x) by the weights w (batch, D_w); None if weights are not all
        that they follow from.
        """
        del w, X
        return None

    def objective_at(self, w: Tensor, predictions: Tensor, y: Tensor, omega: Tensor) -> Tensor | None:
        """The objective that it makes small, (batch,), from its weights and its predictions at the examples, (batch, n,
        d_y). The weights omega of the examples sum to one. None if it is not known: then a run says nothing about its
        loss.
        """
        del w, predictions, y, omega
        return None

    def seen(self, omega: Tensor) -> Tensor:
        """The weights of the examples (batch, n) in the objective: those of steps on some of them, averaged."""
        return omega

    @property
    def by_example(self) -> bool:
        """Steps are on some of the examples, so that one may well raise the loss on others."""
        return False

    @property
    def rate_setting(self) -> tuple[str, float] | None:
        """The setting that says how large its steps are, and its largest value; None if there is none."""
        return None

    def rate_said(self, rate: float) -> str:
        """The setting, as the caller would give it, that makes ``with_rate``."""
        setting = self.rate_setting
        return "" if setting is None else f"{setting[0]}={rate:g}"

    def with_rate(self, rate: float, steps: int) -> Algorithm:
        """The same with ``rate`` as the largest, others in proportion, and with fewer steps."""
        raise lacks(self, "with_rate(rate, steps)")

    def curvature_rate(self, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> float | None:
        """A rate that suits the curvature of the objective at w0 in all prompts, if that is known."""
        del X, y, w0, omega
        return None

    def std(self, variance: Tensor) -> Tensor:
        """The predictive standard deviation from the variance, which the program or ``variance_prompt`` gives."""
        return variance.clamp(min=0.0).sqrt()

    def reference_std(self, X: Tensor, X_query: Tensor) -> Tensor | None:
        """The predictive standard deviation at the queries, (batch, n_query), by other means; None if there is none."""
        del X, X_query
        return None

    def reference_online(self, X: Tensor, y: Tensor, w0: Tensor, omega: Tensor) -> Tensor | None:
        """The prediction of ``reference`` for every y_t from the examples before it, (batch, n, d_y)."""
        found = []
        for t in range(X.shape[1]):
            prefix = self.reference(X[:, :t], y[:, :t], X[:, t : t + 1], w0, omega[:, :t])
            if prefix is None:
                return None
            found.append(prefix[1])
        return torch.cat(found, dim=1)

    def variance_prompt(self, X: Tensor, X_query: Tensor) -> tuple[Tensor, Tensor] | None:
        """For algorithms whose own predictions give their variance. Returns targets (batch, n_query, n, 1) to learn,
        and prior variances (batch, n_query). The prediction at each query is subtracted from the prior variance.
        """
        del X, X_query
        return None

    def paper_cost(self, epsilon: float, n_examples: int) -> dict[str, str]:
        """The paper's statements about the size of this transformer, by row of the cost table."""
        del epsilon, n_examples
        return {}

    def random_prompt(self, n: int, n_query: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Random (X, y, X_query) of one prompt, for verification: Gaussian unless the algorithm says otherwise."""
        stream = self.program(Options(target=self.home, n_examples=n)).stream
        X = torch.randn(n + n_query, *stream["x"].shape, generator=generator, dtype=torch.float64)
        y = torch.randn(n, *stream["y"].shape, generator=generator, dtype=torch.float64)
        return X[:n], y, X[n:]

    def config(self) -> dict[str, Any]:
        """The fields, as JSON values."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_config(cls, config: Mapping[str, Any], extensions: Iterable[object] = ()) -> Algorithm:
        del extensions
        try:
            return cls(**config)
        except TypeError as error:
            raise InputError(f"the saved settings of {cls.kind!r} do not fit this version", got=dict(config)) from error
