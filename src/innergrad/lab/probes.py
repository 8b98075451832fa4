"""Probes: what can be read from the hidden states of a learner, in which layer, at which token (Akyürek et al. 2023).

A learner reads a prompt. In layer l it has a hidden state h_t of D numbers for each of T tokens. A probe attends over
the tokens, and a read-out then predicts a target, such as X^T y of the first k pairs (equations 20 to 22):

    alpha = softmax over t of W_p[t] . h_t        u = W_v sum_t alpha_t h_t        target = FF(u)

FF is linear, or an MLP with one hidden layer of GELUs. A low error says that the target is in that layer; alpha says at
which tokens; the read-out says in which form. A target that the learner has no use for is a *control*: it says how much
the probe can compute by itself (Hewitt and Liang, 2019).

Every layer, target, prefix and read-out has a probe of its own, (layers, probes, ...) in each parameter, and all are
trained at once, on fresh prompts in every step. An error is relative: the squared error over the mean square of the
target. So 1 is what predicting zero has.

Examples:
    >>> import torch
    >>> from innergrad import lab
    >>> sorted(lab.probes.TARGETS)
    ['moments', 'moments, control', 'weights', 'weights, control']
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from innergrad.errors import InputError, integer, one_of, own_gradients, real
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners.base import Learner
from innergrad.lab.tasks import Task

States = Callable[[Tensor, Tensor], Tensor]  # x (B, n, d), y (B, n) -> hidden states (layers, B, T, D)
Target = Callable[[Tensor, Tensor], Tensor]  # the first k pairs, x (B, k, d), y (B, k) -> (B, numbers)
Named = dict[tuple[str, str], Tensor]  # by read-out and target
READOUTS = ("linear", "mlp")
PENALTY = 1.0  # of the control for weights: labels that fit no linear function need one, or k = d has no variance
UNTIMED = 3  # the first steps are not timed
MARGIN = 0.95  # of the time that is left is planned for


# ------------------------------------------------------------------------------------------------------------- targets


def moments(x: Tensor, y: Tensor) -> Tensor:
    """X^T y, (B, d): the first thing that every algorithm for linear regression computes.

    Of labels of k numbers it has d k numbers.

    Args:
        x: inputs, (B, k, d).
        y: labels, (B, k).

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> lab.probes.moments(torch.ones(1, 3, 2), torch.ones(1, 3))
        tensor([[3., 3.]])
    """
    return torch.einsum("bkd,bk->bd", x, y) if y.ndim == 2 else torch.einsum("bnd,bnk->bdk", x, y).flatten(1)


def least_squares(x: Tensor, y: Tensor, penalty: float = 0.0) -> Tensor:
    """The weights that fit the pairs, (B, d): those of least norm where there are fewer than d pairs.

    Of labels of k numbers it has d k numbers.

    Args:
        x: inputs, (B, k, d).
        y: labels, (B, k).
        penalty: lambda of ridge regression.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> lab.probes.least_squares(torch.eye(2)[None], torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2.]])
    """
    x64, y64 = x.double(), y.double() if y.ndim == 3 else y.double()[..., None]
    k, d = x.shape[1:]
    few = k < d  # the smaller of the two Gram matrices has an inverse
    gram = x64 @ x64.mT if few else x64.mT @ x64
    gram = gram + penalty * torch.eye(min(k, d), dtype=torch.float64, device=x.device)
    found: Tensor = x64.mT @ torch.linalg.solve(gram, y64) if few else torch.linalg.solve(gram, x64.mT @ y64)
    return found.flatten(1).to(x)


def shuffled(target: Target) -> Target:
    """A control: the same target of the same pairs, every input with the label of the pair before it.

    A learner has no use for it. One pair alone stays what it is, so a control needs two.

    Args:
        target: the target.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y = torch.eye(2)[None], torch.tensor([[1.0, 2.0]])
        >>> lab.probes.shuffled(lab.probes.moments)(x, y)
        tensor([[2., 1.]])
    """
    return lambda x, y: target(x, y.roll(1, 1))


#: The targets of Akyürek et al., and a control for each.
TARGETS: dict[str, Target] = {
    "moments": moments,
    "weights": least_squares,
    "moments, control": shuffled(moments),
    "weights, control": shuffled(partial(least_squares, penalty=PENALTY)),
}


# -------------------------------------------------------------------------------------------------------------- probes


@dataclass(frozen=True)
class ProbeConfig:
    """How probes are trained.

    Args:
        width: of u, and of the hidden layer of the MLP; 0 for the width of the hidden states.
        steps: of Adam, each on prompts of its own.
        batch: prompts in a step.
        lr: the learning rate, which falls to zero as a cosine. Akyürek et al. have 1e-4, and many more steps.
        n_prompts: other prompts, on which errors are measured.
        seed: of prompts and initial weights.

    Examples:
        >>> from innergrad import lab
        >>> lab.ProbeConfig(steps=100).batch
        256
    """

    width: int = 0
    steps: int = 2000
    batch: int = 256
    lr: float = 1e-3
    n_prompts: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        integer("width", self.width, low=0)
        for name in ("steps", "batch"):
            integer(name, getattr(self, name))
        integer("n_prompts", self.n_prompts, low=2)
        real("lr", self.lr, above=0.0)


@dataclass(frozen=True)
class Probes:
    """What probes have found.

    Attributes:
        prefixes: how many pairs the targets are of.
        errors: errors[readout, target]: (layers, prefixes), relative squared errors on other prompts.
        spread: the same keys and shapes: their standard errors, over prompts.
        attention: the same keys: (layers, prefixes, T), the mean of alpha over prompts.
        steps: steps taken.

    Examples:
        >>> from innergrad import lab
        >>> learner = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8).build(d=2, n_points=4).init([0])
        >>> short = lab.ProbeConfig(steps=3, batch=8, n_prompts=16)
        >>> found = lab.probe(learner, lab.Linear(d=2), prefixes=[2, 3], n_points=4, config=short)
        >>> tuple(found.errors["mlp", "weights"].shape), tuple(found.attention["mlp", "weights"].shape)
        ((2, 2), (2, 2, 7))
    """

    prefixes: tuple[int, ...]
    errors: Named
    spread: Named
    attention: Named
    steps: int


def hidden_states(learner: Learner) -> States:
    """The residual stream of a GPT, (layers + 1, B, T, D): the tokens, and the output of every block.

    Args:
        learner: a stack of one.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> learner = lab.GPTConfig(n_layers=2, d_model=8, n_heads=1, d_mlp=8).build(d=2, n_points=4).init([0])
        >>> tuple(lab.probes.hidden_states(learner)(torch.zeros(5, 4, 2), torch.zeros(5, 4)).shape)
        (3, 5, 7, 8)
    """

    def states(x: Tensor, y: Tensor) -> Tensor:
        _, cache = learner.run_with_cache(x, y, names=("blocks.0.resid_pre", "blocks.*.resid_post"))
        return torch.stack(list(cache.values()))

    return states


def probe(
    learner: Learner | States,
    task: Task,
    *,
    prefixes: Sequence[int],
    n_points: int,
    targets: Mapping[str, Target] | None = None,
    readouts: Sequence[Literal["linear", "mlp"]] = ("linear", "mlp"),
    config: ProbeConfig | None = None,
    seconds: float = math.inf,
    device: torch.device | str = "cpu",
) -> Probes:
    """Train probes on the hidden states of a learner, and measure them on other prompts.

    Args:
        learner: a GPT; or a function states(x, y) of prompts (B, n, d), (B, n) that returns hidden states of its own,
            (layers, B, T, D).
        task: where prompts come from.
        prefixes: how many pairs a target is of; a probe each.
        n_points: points of a prompt. The probe sees all tokens, those after the prefix too.
        targets: what to predict, by name. By default X^T y, the weights of least squares, and a control for each.
        readouts: ``linear``, ``mlp``.
        config: how to train.
        seconds: fewer steps are taken if they would take longer.
        device: where to run.

    Examples:
        >>> from innergrad import lab
        >>> learner = lab.GPTConfig(n_layers=1, d_model=8, n_heads=1, d_mlp=8).build(d=2, n_points=4).init([0])
        >>> short = lab.ProbeConfig(steps=3, batch=8, n_prompts=16)
        >>> found = lab.probe(learner, lab.Linear(d=2), prefixes=[2], n_points=4, config=short)
        >>> sorted(found.errors)[0]
        ('linear', 'moments')
    """
    for readout in readouts:
        one_of("unknown read-out", readout, READOUTS)
    for k in prefixes:
        integer("prefix", k, high=n_points)
    if not prefixes or not readouts:
        raise InputError("nothing to probe", got=f"{len(prefixes)} prefixes, {len(readouts)} read-outs")
    config = config or ProbeConfig()
    states = hidden_states(learner.to(device)) if isinstance(learner, Learner) else learner
    data = _Data(states, task, n_points, tuple(prefixes), TARGETS if targets is None else targets, config, device)
    with own_gradients():
        stacks: dict[str, _Stack] = {readout: _Stack(readout, data, config) for readout in readouts}
        steps = _train(stacks, data, config, seconds)
    return _measure(stacks, data, config, steps)


class _Data:
    """Prompts, their hidden states in units of each layer's root mean square, and targets in units of theirs."""

    def __init__(
        self,
        states: States,
        task: Task,
        n_points: int,
        prefixes: tuple[int, ...],
        targets: Mapping[str, Target],
        config: ProbeConfig,
        device: torch.device | str,
    ) -> None:
        self.states, self.task, self.n_points, self.device = states, task, n_points, device
        self.prefixes, self.targets, self.config = prefixes, targets, config
        self.rng = CounterRNG.of(config.seed, "probes", device)
        self.unit, self.size = torch.ones(()), torch.ones(())
        hidden, wanted = self.draw("size", 0, config.batch)
        self.unit = hidden.square().mean((1, 2, 3), keepdim=True).sqrt()
        self.size = wanted.square().mean((0, 2), keepdim=True).sqrt()
        self.hidden_shape, self.numbers = tuple(hidden.shape), wanted.shape[2]

    @torch.no_grad()
    def draw(self, what: str, first: int, rows: int) -> tuple[Tensor, Tensor]:
        """Hidden states (layers, B, T, D) and targets (B, targets x prefixes, numbers) of prompts from ``first`` on."""
        index = torch.arange(first, first + rows, device=self.device)
        x, y, _ = self.task.sample(self.rng.fork(what), index, self.n_points)
        wanted = [target(x[:, :k], y[:, :k]) for target in self.targets.values() for k in self.prefixes]
        return self.states(x, y) / self.unit, torch.stack(wanted, 1) / self.size


class _Stack:
    """All probes of one read-out: parameters (L, P, ...) for L layers and P targets."""

    def __init__(self, readout: str, data: _Data, config: ProbeConfig) -> None:
        layers, _, tokens, D = data.hidden_shape
        probes, width = len(data.targets) * len(data.prefixes), config.width or D
        rng, one = CounterRNG.of(config.seed, f"probes, {readout}", data.device), torch.zeros(1, dtype=torch.int64)

        def drawn(name: str, rows: int, columns: int) -> Tensor:
            index = one.to(data.device)
            return rng.fork(name).normal(index, layers, probes, rows, columns)[0] / math.sqrt(rows)

        self.W_p = torch.zeros(layers, probes, tokens, D, device=data.device)  # attends to all tokens alike at first
        self.W_v = drawn("W_v", D, width)
        inside = [("W_1", width, width)] if readout == "mlp" else []
        self.matrices = [drawn(*shape) for shape in (*inside, ("W_2", width, data.numbers))]
        self.biases = [torch.zeros_like(matrix[..., :1, :]) for matrix in self.matrices]
        for parameter in self.parameters:
            parameter.requires_grad_()

    @property
    def parameters(self) -> list[Tensor]:
        return [self.W_p, self.W_v, *self.matrices, *self.biases]

    def __call__(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states (L, B, T, D) -> predictions (L, P, B, numbers), and alpha (L, P, B, T)."""
        scores = torch.einsum("lbtd,lptd->lpbt", hidden, self.W_p)
        alpha = scores.softmax(-1)
        value = torch.einsum("lpbt,lbtd->lpbd", alpha, hidden) @ self.W_v
        for number, (matrix, bias) in enumerate(zip(self.matrices, self.biases, strict=True)):
            value = (F.gelu(value) if number else value) @ matrix + bias
        return value, alpha


def _train(stacks: Mapping[str, _Stack], data: _Data, config: ProbeConfig, seconds: float) -> int:
    """Adam on the sum of all probes' errors: every probe has its own parameters, so each follows its own error. The
    steps that were taken: as many as fit into the time, as a few at the beginning tell.
    """
    began = time.perf_counter()
    parameters = [parameter for stack in stacks.values() for parameter in stack.parameters]
    fused = torch.device(data.device).type == "cuda"
    adam = torch.optim.Adam(parameters, config.lr, fused=fused)
    timed, steps, step, start = min(25, config.steps), config.steps, 0, began
    while step < steps:
        if step == UNTIMED:
            start = _now(data.device)
        if step == timed and step > UNTIMED and math.isfinite(seconds):
            now = _now(data.device)
            each = (now - start) / (step - UNTIMED)
            steps = max(step, min(steps, step + int(MARGIN * (seconds - (now - began)) / each)))
        for group in adam.param_groups:
            group["lr"] = config.lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        hidden, wanted = data.draw("train", step * config.batch, config.batch)
        adam.zero_grad()
        for stack in stacks.values():
            apart = stack(hidden)[0] - wanted.transpose(0, 1)
            apart.square().mean((2, 3)).sum().backward()
        adam.step()
        step += 1
    return step


@torch.no_grad()
def _measure(stacks: Mapping[str, _Stack], data: _Data, config: ProbeConfig, steps: int) -> Probes:
    errors: dict[str, list[Tensor]] = {readout: [] for readout in stacks}
    looks: dict[str, list[Tensor]] = {readout: [] for readout in stacks}
    squares = []
    for first in range(0, config.n_prompts, config.batch):
        hidden, wanted = data.draw("measure", first, min(config.batch, config.n_prompts - first))
        squares.append(wanted.square().mean(2).mT)
        for readout, stack in stacks.items():
            made, alpha = stack(hidden)
            errors[readout].append((made - wanted.transpose(0, 1)).square().mean(3))
            looks[readout].append(alpha.sum(2))
    scale = torch.cat(squares, 1).mean(1)  # (P,): the mean square of each target, on these prompts
    parts: tuple[Named, Named, Named] = ({}, {}, {})
    for readout in stacks:
        each = torch.cat(errors[readout], 2) / scale[:, None]  # (L, P, B)
        found = (
            each.mean(2),
            each.std(2) / math.sqrt(each.shape[2]),
            torch.stack(looks[readout]).sum(0) / each.shape[2],
        )
        for part, value in zip(parts, found, strict=True):
            named = value.cpu().unflatten(1, (len(data.targets), len(data.prefixes))).unbind(1)
            part |= {(readout, target): one for target, one in zip(data.targets, named, strict=True)}
    return Probes(data.prefixes, parts[0], parts[1], parts[2], steps)


def _now(device: torch.device | str) -> float:
    """The time, after the device has done its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
