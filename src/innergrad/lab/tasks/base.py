"""The extension point: a family of functions, in one place.

    y_i = f(x_i; theta) + noise,     theta ~ the task's parameters,  x_i ~ its inputs,   i = 1 .. n

A task is a frozen dataclass. It says how theta is drawn (``params``), computes f (``evaluate``, pure), and knows how
large labels are (``scale``) and which predictor is best for it (``best``). Training, evaluation, baselines and the
command line take the same object, so the measured task is the trained one.

    class Constant(Task, kind="constant"):
        def params(self, rng, index, n):  return {"c": rng.normal(index)}
        def evaluate(self, params, x):       return params["c"][:, None].expand(x.shape[:2])

Shapes: x (B, n, d), y (B, n), each parameter (B, ...). A label may also be a vector: a task that says ``outputs`` = k
above 1 has labels (B, n, k). Noise is added to every number of a label, and ``scale`` is the root mean square of one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from innergrad.config import Family
from innergrad.errors import InputError, integer, lacks, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import shape_of_label, words_for_label
from innergrad.lab.tasks.inputs import Gaussian, Inputs

Params = dict[str, Tensor]


class Prompts(NamedTuple):
    """Prompts drawn from a task, as a tuple: x (B, n, d), y (B, n) or (B, n, k), and the B functions' parameters.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y, params = lab.Linear(d=2).sample(lab.CounterRNG.of(0), torch.arange(3), n=4)
        >>> torch.allclose(y, (x @ params["w"][..., None])[..., 0])
        True
    """

    x: Tensor
    y: Tensor
    params: Params


@dataclass(frozen=True)
class Task(Family):
    """A family of functions: y = f(x; theta) + noise. Subclass it to write your own.

    A subclass gives its ``kind``, the name in configuration files. It says how parameters are drawn (``params``) and
    what f is (``evaluate``). It may say how large labels are (``scale``), which predictor is best (``best``), and how
    many numbers a label has (``outputs``).
    Training, evaluation, baselines and the command line take the same object.

    Args:
        d: the number of inputs.
        inputs: their distribution.
        noise: the standard deviation of the labels' noise.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> class Constant(lab.Task, kind="a-constant"):
        ...     def params(self, rng, index, n):
        ...         return {"c": rng.normal(index)}
        ...     def evaluate(self, params, x):
        ...         return params["c"][:, None].expand(x.shape[:2])
        >>> prompts = Constant(d=2).sample(lab.CounterRNG.of(0), torch.arange(3), n=4)
        >>> tuple(prompts.x.shape), tuple(prompts.y.shape)
        ((3, 4, 2), (3, 4))
    """

    d: int = 20
    inputs: Inputs = field(default_factory=Gaussian)
    noise: float = 0.0

    gaps: ClassVar[bool] = False  # whether a coordinate may be missing: NaN

    def __post_init__(self) -> None:
        integer("d", self.d)
        real("noise", self.noise, low=0.0)
        if not isinstance(self.inputs, Inputs):
            raise InputError("inputs must be a distribution of inputs", got=repr(self.inputs), allowed=_names(Inputs))
        self.inputs.check(self.d)

    # ------------------------------------------------------------------------------------------ what a task declares

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        """The parameters of the functions numbered ``index``; ``n``: points of a prompt, for those that need it."""
        raise lacks(self, "params(rng, index, n)")

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        """Labels (B, n), or (B, n, outputs), of the points x (B, n, d), without noise."""
        raise lacks(self, "evaluate(params, x)")

    @property
    def outputs(self) -> int:
        """How many numbers a label has. 1: labels are (B, n); k above 1: they are (B, n, k)."""
        return 1

    def unasked(self, n: int) -> int:
        """How many of the first points of a prompt of n have no label of their own."""
        del n
        return 0

    @property
    def scale(self) -> float:
        """Root mean square of a label's numbers, without noise. Learners see y / scale; errors are over scale^2."""
        return 1.0

    def covariance(self, x: Tensor) -> Tensor:
        """(B, n, n): of the labels of points x (B, n, d), noise included; for training with averaged labels."""
        raise lacks(self, "covariance(x)")

    def best(self) -> Predictor:
        """The predictor nothing beats on this task, or the strongest that is known."""
        raise InputError(f"no best predictor is known for task {self.kind}", hint="name the baselines instead")

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        """(B, n, d): where the functions are observed. From ``inputs``, unless the points depend on the function."""
        return self.inputs.sample(rng, index, n, self.d)

    # ------------------------------------------------------------------------------------------------ what it gets

    def sample(self, rng: CounterRNG, index: Tensor, n: int, dims: int | Tensor | None = None) -> Prompts:
        """Prompts of n points, one for each of ``index``; coordinates from ``dims`` on are zero (a curriculum)."""
        params = self.params(rng.fork("params"), index, n)
        x = self.points(rng.fork("inputs"), index, n, params)
        if dims is not None:
            x = x * (torch.arange(self.d, device=x.device) < dims)
        y = self.evaluate(params, x)
        one = shape_of_label(self.outputs)
        if not isinstance(y, Tensor) or y.shape != x.shape[:2] + one:
            got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            what = f"task {self.kind}: evaluate must return labels {words_for_label(self.outputs)}"
            raise InputError(what, got=got, allowed=f"a tensor {(*x.shape[:2], *one)}")
        if self.noise:
            y = y + self.noise * rng.fork("noise").normal(index, n, *one)
        return Prompts(x, y, params)


@lru_cache(maxsize=64)
def measured_scale(task: Task) -> float:
    """Root mean square of a number of a label, without noise, from a fixed generator: the same number every time.

    4,096 functions at 16 points each, or fewer, down to 64, where a function has many parameters. A family that is zero
    everywhere (networks whose units are all dead) gets 1, so that dividing by the scale does no harm.
    """
    rng, n = CounterRNG.of(0, "scale"), 16
    first = task.params(rng.fork("params"), torch.arange(1), n)
    parameters = sum(value.numel() for value in first.values())
    functions = max(64, min(4096, 2**25 // max(1, parameters)))
    total = 0.0
    for index in torch.split(torch.arange(functions), max(1, 2**21 // max(1, parameters))):
        params = task.params(rng.fork("params"), index, n)
        x = task.points(rng.fork("inputs"), index, n, params)
        total += float(task.evaluate(params, x).double().square().sum())
    return (total / (functions * n * task.outputs)) ** 0.5 or 1.0


def _names(family: type[Inputs]) -> str:
    return ", ".join(sorted(family.kinds))
