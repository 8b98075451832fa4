"""Tasks made of tasks: a finite pool of functions, a mixture of families, and vectors of functions."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.labels import require_one_number
from innergrad.lab.tasks.base import Params, Task
from innergrad.lab.tasks.inputs import Inputs

MOST_TASKS = 100  # of a mixture, which evaluates all of them for every prompt
MOST_NUMBERS = 100  # of a label


@dataclass(frozen=True)
class Pool(Task, kind="pool"):
    """A fixed set of functions of another task. A prompt's function is one of them.

    Function number i of the pool is made anew wherever it is needed, so a pool of a million costs nothing.

    Args:
        task: the family that they are drawn from.
        size: how many.
        pool_seed: of the draw.
    """

    d: int = field(init=False)
    inputs: Inputs = field(init=False)
    noise: float = field(init=False)
    task: Task
    size: int = 64
    pool_seed: int = 0

    def __post_init__(self) -> None:
        _take_over(self, self.task)
        super().__post_init__()
        integer("size", self.size, high=2**31)
        integer("pool_seed", self.pool_seed, low=0)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        member = rng.fork("member").integers(index, self.size)
        return self.task.params(CounterRNG.of(self.pool_seed, "pool", index.device), member, n)

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return self.task.points(rng, index, n, params)

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return self.task.evaluate(params, x)

    @property
    def outputs(self) -> int:
        return self.task.outputs

    @property
    def scale(self) -> float:
        """That of the task, so that errors on a pool and on fresh functions have one unit."""
        return self.task.scale

    def best(self) -> Predictor:
        """The best for the family: a learner needs it for functions outside the pool."""
        return self.task.best()


@dataclass(frozen=True)
class Mixture(Task, kind="mixture"):
    """Several families of one d, noise and outputs: a prompt's function, and its points, come from one of them.

    All families are evaluated and one is chosen, so a step costs their sum.

    Args:
        tasks: the families.
        weights: their probabilities; equal by default.
    """

    d: int = field(init=False)
    inputs: Inputs = field(init=False)
    noise: float = field(init=False)
    tasks: tuple[Task, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InputError("a mixture needs tasks", got="none")
        if len(self.tasks) > MOST_TASKS:
            raise InputError(f"a mixture has at most {MOST_TASKS} tasks", got=len(self.tasks))
        _take_over(self, self.tasks[0])
        super().__post_init__()
        for task in self.tasks[1:]:
            ours = (self.d, self.noise, self.outputs)
            if not isinstance(task, Task) or (task.d, task.noise, task.outputs) != ours:
                raise InputError("tasks of a mixture have one d, one noise and one number of outputs", got=repr(task))
        if self.weights and len(self.weights) != len(self.tasks):
            raise InputError("a mixture has one weight a task", got=len(self.weights), allowed=str(len(self.tasks)))
        if self.weights and not sum(real("a weight", weight, low=0.0) for weight in self.weights) > 0.0:
            raise InputError("weights of a mixture must not all be zero", got=self.weights)

    @property
    def outputs(self) -> int:
        return self.tasks[0].outputs

    @property
    def probabilities(self) -> tuple[float, ...]:
        weights = self.weights or (1.0,) * len(self.tasks)
        return tuple(weight / sum(weights) for weight in weights)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        """Those of every family, as 0.w, 1.w, ..., and ``which`` (B,), the family that the prompt has."""
        draw, edge = rng.fork("which").uniform(index), 0.0
        made = {"which": torch.zeros_like(index)}
        for probability in self.probabilities[:-1]:
            edge += probability
            made["which"] += draw >= edge
        for number, task in enumerate(self.tasks):
            own = task.params(rng.fork(f"task {number}"), index, n)
            made |= {f"{number}.{name}": value for name, value in own.items()}
        return made

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        drawn = [task.points(rng, index, n, self.part(params, i)) for i, task in enumerate(self.tasks)]
        return _choose(drawn, params["which"])

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        labels = [task.evaluate(self.part(params, i), x) for i, task in enumerate(self.tasks)]
        return _choose(labels, params["which"])

    @staticmethod
    def part(params: Params, number: int) -> Params:
        """The parameters of one family, under the names it knows."""
        own = f"{number}."
        return {name.removeprefix(own): value for name, value in params.items() if name.startswith(own)}

    @property
    def scale(self) -> float:
        pairs = zip(self.probabilities, self.tasks, strict=True)
        return float(sum(p * task.scale**2 for p, task in pairs) ** 0.5)

    def best(self) -> Predictor:
        """The best for the likeliest family: a predictor that knew the family of each prompt would do better."""
        likeliest = max(range(len(self.tasks)), key=lambda i: self.probabilities[i])
        return self.tasks[likeliest].best()


@dataclass(frozen=True)
class Vectors(Task, kind="vectors"):
    """Labels that are vectors: each of their numbers is another function of the same family, at the same points.

    Points that depend on the function are those of the first.

    Args:
        task: the family, of labels of one number.
        size: how many numbers a label has, 2 or more.
    """

    d: int = field(init=False)
    inputs: Inputs = field(init=False)
    noise: float = field(init=False)
    task: Task
    size: int = 2

    def __post_init__(self) -> None:
        _take_over(self, self.task)
        super().__post_init__()
        integer("size", self.size, low=2, high=MOST_NUMBERS)
        require_one_number("a vector of functions", outputs=self.task.outputs)

    @property
    def outputs(self) -> int:
        return self.size

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        """Those of every function, as 0.w, 1.w, ..."""
        made: Params = {}
        for number in range(self.size):
            own = self.task.params(rng.fork(f"function {number}"), index, n)
            made |= {f"{number}.{name}": value for name, value in own.items()}
        return made

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return self.task.points(rng, index, n, Mixture.part(params, 0))

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        return torch.stack([self.task.evaluate(Mixture.part(params, number), x) for number in range(self.size)], 2)

    @property
    def scale(self) -> float:
        return self.task.scale

    def best(self) -> Predictor:
        """The best for the family: functions that are drawn independently say nothing about each other."""
        return self.task.best()


def _take_over(outer: Task, inner: Task) -> None:
    """A task made of others has their d, inputs and noise."""
    if not isinstance(inner, Task):
        raise InputError("this must be a task", got=repr(inner), allowed=", ".join(sorted(Task.kinds)))
    for name in ("d", "inputs", "noise"):
        object.__setattr__(outer, name, getattr(inner, name))


def _choose(values: list[Tensor], which: Tensor) -> Tensor:
    """Row b of values[which[b]], each (B, ...)."""
    chosen = values[0]
    for number, value in enumerate(values[1:], 1):
        chosen = torch.where((which == number).view(-1, *[1] * (value.ndim - 1)), value, chosen)
    return chosen
