"""Stopping a loop by a certificate: ``tf.run(..., until=tolerance)``.

A transformer that has taken the step w -> w' knows how far w' is from the exact step's w*, at most r (the certificate
of a single step, which needs no trajectory). The gradient mapping of projected gradient descent at w, (w - w*) / lr,
therefore has norm at most

    |w - w'| / lr + r / lr

Once that is at most the tolerance, the run returns w. It does not return w', because the certificate speaks of w.
(Without a box, or inside it, the gradient mapping is the gradient.) The compiled steps are the most that are taken: the
weights of a looped transformer are the same for any number of them.

Every prompt of a batch stops by itself and is frozen from then on, so its result does not depend on the others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from innergrad.evidence.certificate import INFLATION, Boundary, double, follow_up, fresh, started
from innergrad.ir.stream import State
from innergrad.model.compiled import Compiled
from innergrad.model.executors import Executor
from innergrad.model.guard import Guard
from innergrad.model.preparation import check_until
from innergrad.model.prompt import Prompt


def run_until(
    compiled: Compiled, prompt: Prompt, given: Prompt, executor: Executor, guard: Guard, until: float
) -> tuple[list[Tensor], State, tuple[int | None, ...]]:
    """Weights (batch, D_w) after each step, lanes after the read-out, and for every prompt the steps it took before it
    stopped, or None; ``given`` is the prompt in float64.
    """
    until, program = check_until(compiled.algorithm, until), compiled.program
    lr: float = compiled.algorithm.lr  # type: ignore[attr-defined]
    exactly = given.state(program)
    kept = prompt.state(program)  # of every prompt, at the beginning of the step, or where it stopped
    stopped: list[int | None] = [None] * len(prompt.X)
    weights, before = [prompt.w0], double(kept)
    affine = fresh(compiled, "pointwise", started(program, kept, exactly))
    for layer, state, step_ends in executor.layers(prompt, guard):
        after = double(state)
        affine.layer(layer, before, after)
        ended, before = Boundary(layer, before, after), after
        if not step_ends:
            continue
        likes = {lane.name: after[lane.name][:, :1] if lane.shared else after[lane.name] for lane in program.weights}
        radii = {name: affine.radius(name, like) for name, like in likes.items()}
        step = (prompt.weights(program, after) - weights[-1].double()).norm(dim=-1)
        mapping = (step + prompt.weights(program, radii).norm(dim=-1)) / lr * INFLATION
        for row, norm in enumerate(mapping.tolist()):
            if stopped[row] is None and norm <= until:
                stopped[row] = len(weights) - 1
        done = torch.tensor([number is not None for number in stopped])
        kept = {name: _where(done, kept[name], value) for name, value in state.items()}
        if bool(done.all()):
            break
        weights.append(prompt.weights(program, kept))
        affine = follow_up(compiled, "pointwise", exactly, affine, ended)
        if len(weights) > program.steps:
            break
    return weights, executor.read_out(kept, guard), tuple(stopped)


def _where(done: Tensor, kept: Tensor, new: Tensor) -> Tensor:
    """The old lane of prompts that are done, the new one of the others."""
    return torch.where(done.view(-1, *[1] * (new.ndim - 1)), kept, new)
