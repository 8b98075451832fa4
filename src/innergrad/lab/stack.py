"""A stack in training: the parameters of all models as rows of one matrix, and the step that advances them.

    theta (S, P) float32     the parameters (master copies; the forward pass may use them in bfloat16)
    m, v (S, P)              the optimiser's memory
    step ()                  how many steps were taken; everything that changes with time is a function of it

One step makes its data on the device, predicts, differentiates and updates, without a look at a value: on a GPU it is
recorded once as a CUDA graph and then replayed. Gradients become one matrix too, so that clipping and the update are
single operations.

Models of a stack may differ in the seed, the task (with the same d and outputs), the learning rate and the weight
decay, and in how initial weights are drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from innergrad.errors import InputError, real
from innergrad.lab import optimisers
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.experiments import Experiment
from innergrad.lab.layout import Layout
from innergrad.lab.learners.base import Learner
from innergrad.lab.tasks import Task


def _scale(task: Task) -> float:
    """The divisor of a task's labels."""
    return real(f"the scale of task {task.kind}", task.scale, above=0.0, hint="it is the root mean square of a label")


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled; as it is, with a warning, if the compiler fails on it: that costs speed, not the run."""
    from torch._dynamo.exc import TorchDynamoException  # takes a second, and only GPUs need it

    compiled, failed = torch.compile(function, dynamic=False), False

    def call(*args: Any, **named: Any) -> Any:
        nonlocal failed
        if not failed:
            try:
                return compiled(*args, **named)
            except TorchDynamoException as error:
                failed = True
                first = str(error).strip().partition("\n")[0]
                warnings.warn(
                    f"the compiler fails on {function.__name__}, which runs without it: {first}", stacklevel=2
                )
        return function(*args, **named)

    return call


class Stack:
    """S models of one shape in training; see the module. ``experiments`` agree in all that one graph has in common."""

    def __init__(self, experiments: Sequence[Experiment], device: torch.device | str) -> None:
        first = experiments[0]
        self.config, self.rule, self.n_points = first.train, first.train.optimiser, first.n_points
        self.tasks: list[Task] = [one.task for one in experiments]
        self.device, self.size = torch.device(device), len(experiments)
        self.learner: Learner = first.learner.build_for(first.task.d, first.n_points, self.size, first.task.outputs)
        self.learner.init([one.seed for one in experiments])
        self._draw_others(experiments)
        self._check_optimiser()
        self.learner.scale.copy_(torch.tensor([_scale(task) for task in self.tasks]))
        self.learner.to(self.device)
        self.rngs = [CounterRNG.of(one.seed, "train", self.device) for one in experiments]
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

        self.layout = Layout(self.learner)
        self.theta = torch.zeros(self.size, self.layout.width, device=self.device)
        named = dict(self.learner.named_parameters())
        with torch.no_grad():  # from here on the learner's parameters are views of theta
            for name, view in self.layout.unpack(self.theta).items():
                view.copy_(named[name])
                named[name].data = view
        self.adam = self.layout.others if self.rule.kind == "muon" else slice(None)  # columns that AdamW updates
        self.m, self.v = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.step = torch.zeros((), dtype=torch.int64, device=self.device)
        self.steps = torch.tensor(self.config.steps, device=self.device)  # where the schedule ends; see plan
        self.loss_sum, self.norm_sum = (torch.zeros(self.size, device=self.device) for _ in range(2))
        self.counted = torch.zeros((), dtype=torch.int64, device=self.device)  # steps in these sums
        column = [[one.train.optimiser.lr, one.train.optimiser.weight_decay] for one in experiments]
        self.lr, self.decay = torch.tensor(column, device=self.device).split(1, 1)
        self.decays = torch.zeros_like(self.theta)
        for name, view in self.layout.unpack(self.decays).items():
            if name in self.learner.decayed:
                view += self.decay.view(-1, *[1] * (view.ndim - 1))
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.dtype = torch.bfloat16 if self.config.precision == "bf16" else torch.float32
        self.kept: tuple[object, tuple[Tensor, Tensor] | None] = (None, None)
        gpu = self.device.type == "cuda"
        fuses = gpu and self.config.compile
        self.recorded = gpu and (self.config.compile or self.config.record) and self.world == 1
        again = self.config.data_every > 1 and not (fuses or self.recorded)
        self.draw_batch: Callable[[int], tuple[Tensor, Tensor]] = self.kept_batch if again else self.batch
        self.apply_update: Callable[[Sequence[Tensor], Tensor], None] = self.update
        if fuses:
            self.compile()

    def _draw_others(self, experiments: Sequence[Experiment]) -> None:
        """Initial weights of models whose learner says another way to draw them than the first."""
        first, named = experiments[0], dict(self.learner.named_parameters())
        for number, one in enumerate(experiments):
            if one.learner != first.learner:
                alone = one.learner.build_for(one.task.d, one.n_points, outputs=one.task.outputs).init([one.seed])
                with torch.no_grad():
                    for name, value in alone.named_parameters():
                        named[name][number].copy_(value[0])

    def _check_optimiser(self) -> None:
        if self.rule.kind == "muon" and not self.learner.matrices:
            raise InputError("this learner has no matrices for Muon", hint="take adamw, or say so in its `matrices`")
        if self.rule.weight_decay and not self.learner.decayed:
            raise InputError("no parameter of this learner decays", hint="weight_decay = 0, or say so in its `decayed`")

    # ------------------------------------------------------------------------------------------------------- one step

    def advance(self, n: int) -> None:
        """One step on prompts of n points."""
        x, labels = self.draw_batch(n)
        copies = self.layout.unpack(self.theta.to(self.dtype))
        weights = {name: copy.detach().requires_grad_() for name, copy in copies.items()}
        if self.config.labels == "averaged":
            loss = self.risk(self.learner.label_weights(x, weights), labels)
        else:
            points = self.config.curriculum.points(self.step, self.n_points)
            loss = self.learner.objective(x, labels, weights, self.step, points)
        averaged = self.config.labels == "averaged"  # then parameters without an effect are not seen at all
        grads = torch.autograd.grad(loss.sum(), list(weights.values()), materialize_grads=averaged)
        self.apply_update(self.averaged(grads), self.averaged([loss.detach()])[0])

    def batch(self, n: int) -> tuple[Tensor, Tensor]:
        """This device's share of the step's prompts: x (S, B, n, d), y (S, B, n, ...). Equal tasks are drawn together.

        If labels are averaged, their covariances (S, B, n, n) take the place of y.
        """
        rows = self.config.batch // self.world
        number = self.step // self.config.data_every * self.world + self.rank
        index = number * rows + torch.arange(rows, device=self.device)
        dims = self.config.curriculum.dims(self.step, self.tasks[0].d)
        parts: dict[int, tuple[Tensor, Tensor]] = {}
        for task in dict.fromkeys(self.tasks):
            members = [number for number, other in enumerate(self.tasks) if other == task]
            rng = CounterRNG.rows([self.rngs[number] for number in members], rows)
            drawn = self.drawn(task, rng, index.repeat(len(members)), n, dims)
            x, y = (value.unflatten(0, (len(members), rows)) for value in drawn)
            parts |= {number: (x[place], y[place]) for place, number in enumerate(members)}
        xs, ys = zip(*(parts[number] for number in range(self.size)), strict=True)
        return torch.stack(xs), torch.stack(ys)

    def drawn(self, task: Task, rng: CounterRNG, index: Tensor, n: int, dims: Tensor | None) -> tuple[Tensor, Tensor]:
        """Points and labels of prompts, or points and the covariances of their labels."""
        if self.config.labels == "drawn":
            return task.sample(rng, index, n, dims)[:2]
        x = task.points(rng.fork("inputs"), index, n, {})
        x = x if dims is None else x * (torch.arange(task.d, device=x.device) < dims)
        return x, task.covariance(x)

    def kept_batch(self, n: int) -> tuple[Tensor, Tensor]:
        """The batch, drawn once for all steps that share it."""
        dims = self.config.curriculum.dims(self.step, self.tasks[0].d)
        key = (int(self.step) // self.config.data_every, n, None if dims is None else int(dims))
        if self.kept[0] != key or self.kept[1] is None:
            self.kept = (key, self.batch(n))
        assert self.kept[1] is not None
        return self.kept[1]

    def risk(self, v: Tensor, covariance: Tensor) -> Tensor:
        """The mean squared error of each model over all labels of its prompts, E (v y)^2 = v K v, as ``loss``, (S,)."""
        v = v.to(covariance.dtype)
        return (v * (covariance @ v[..., None])[..., 0]).sum(-1).mean(1) / self.learner.scale.square()

    def averaged(self, values: Sequence[Tensor]) -> Sequence[Tensor]:
        """Means over the devices that share the batch."""
        if self.world > 1:
            for value in values:
                dist.all_reduce(value)
                value /= self.world
        return values

    def update(self, grads: Sequence[Tensor], loss: Tensor) -> None:
        """The optimiser's change of theta for the gradients of the parameters, and the next step's number."""
        rule = self.rule
        grad, norm = optimisers.clipped(self.layout.pack(grads), rule.clip)
        lr = self.lr * rule.factor(self.step, self.steps).to(self.lr.dtype)
        if rule.kind == "muon":
            parameters, slopes, momenta, decays = (
                self.layout.unpack(matrix) for matrix in (self.theta, grad, self.m, self.decays)
            )
            optimisers.muon(rule, self.layout.matrices, parameters, slopes, momenta, lr, decays)
        theta, grad, m, v, decay = (each[:, self.adam] for each in (self.theta, grad, self.m, self.v, self.decays))
        optimisers.adamw(rule, theta, grad, m, v, self.step, lr, decay)
        self.loss_sum += loss
        self.norm_sum += norm[:, 0]
        self.counted += 1
        self.step += 1

    def any_device(self, told: Sequence[object]) -> bool:
        """Whether one of the devices was told: all must hear it, or the others would wait for it for ever."""
        heard = torch.tensor(float(bool(told)), device=self.device)
        return bool(self.averaged([heard])[0] > 0) if self.world > 1 else bool(told)

    # ------------------------------------------------------------------------------------------------------- many steps

    def run(self, steps: int, n: int) -> None:
        """``steps`` steps on prompts of n points; on a GPU, replays of one graph."""
        if not self.recorded:
            for _ in range(steps):
                self.advance(n)
            return
        if n not in self.graphs:
            self.graphs[n] = self.record(n)
        for _ in range(steps):
            self.graphs[n].replay()

    def plan(self, steps: int) -> None:
        """Another number of steps: the schedule of those to come ends there. Recorded graphs stay."""
        self.config = replace(self.config, steps=steps)
        self.steps.fill_(steps)

    def record(self, n: int) -> torch.cuda.CUDAGraph:
        """A step as a CUDA graph. Steps taken to warm up are taken back."""
        before = {name: value.clone() for name, value in self.state.items()}
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.advance(n)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance(n)
        for name, value in before.items():
            self.state[name].copy_(value)
        return graph

    def compile(self) -> None:
        """Fuses the parts of a step: the data, a block of the learner, and the update."""
        torch._dynamo.config.recompile_limit = 64  # one for every length of a curriculum, a few of each
        warnings.filterwarnings("ignore", message="TensorFloat32")  # float32 was asked for
        self.draw_batch = fused(self.batch)
        self.apply_update = fused(self.update)
        for name in self.learner.FUSED:
            setattr(self.learner, name, fused(getattr(self.learner, name)))

    @property
    def state(self) -> dict[str, Tensor]:
        """All that changes in training; a run is resumed from these."""
        sums = {"loss_sum": self.loss_sum, "norm_sum": self.norm_sum, "counted": self.counted}
        return {"theta": self.theta, "m": self.m, "v": self.v, "step": self.step, **sums}

    def take_means(self) -> tuple[list[float], list[float]]:
        """The losses and gradient norms of the models, means over the steps since the last call."""
        losses, norms = ((value / self.counted).tolist() for value in (self.loss_sum, self.norm_sum))
        for value in (self.loss_sum, self.norm_sum, self.counted):
            value.zero_()
        return losses, norms
