"""Certificates after the run: how far each step that a transformer took can be from the exact step of the algorithm.

:func:`certify` runs the transformer, and the affine interpreter (:mod:`innergrad.interpret.affine`) beside it, on the
values that the transformer produced. The result is a bound on every weight after every step, given the weights before
it: no sampling, no unknown constants, rounding included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from innergrad.errors import InputError
from innergrad.interpret import plain
from innergrad.interpret.affine import Affine
from innergrad.prompt import Prompt

if TYPE_CHECKING:
    from innergrad.transformer import CompiledTransformer


@dataclass(frozen=True)
class StepCertificate:
    """One step, from the weights the transformer had before it.

    radius (batch, D_w): no weight is farther than this from the exact step's.
    shares: what the sum of the radii is made of: functions and products of layers, and rounding.
    """

    radius: Float[Tensor, "batch n_weights"]
    shares: dict[str, float]

    @property
    def bound(self) -> float:
        """On the Euclidean norm of the error of the weights, for every prompt of the batch."""
        return float(self.radius.norm(dim=-1).max())


@dataclass(frozen=True)
class Certificate:
    """A bound for every step; ``weights`` (batch, steps + 1, D_w) are those of the run it speaks of."""

    steps: tuple[StepCertificate, ...]
    weights: Tensor
    lr: float

    @property
    def bounds(self) -> list[float]:
        """On the error of the weights in each step."""
        return [step.bound for step in self.steps]

    @property
    def gradient_bounds(self) -> list[float]:
        """On the error of the gradient in each step: the same, divided by the learning rate."""
        return [step.bound / self.lr for step in self.steps]

    def __str__(self) -> str:
        lines = [f"{'step':>5}{'error of the gradient, at most':>32}   largest share"]
        for number, (step, bound) in enumerate(zip(self.steps, self.gradient_bounds, strict=True), start=1):
            source = max(step.shares, key=lambda name: step.shares[name])
            part = step.shares[source] / max(sum(step.shares.values()), 1e-300)
            lines.append(f"{number:>5}{bound:>32.3e}   {source} ({part:.0%})")
        return "\n".join(lines)


def certify(tf: CompiledTransformer, prompt: Prompt) -> Certificate:
    """Bounds for the run of the plain executor on the prompt."""
    if not tf.proven or tf.options.target != "relu":
        raise InputError(
            "only target relu has proven approximants, which a certificate is made from",
            got=f"target={tf.options.target!r}",
            allowed="target='relu'",
        )
    program, state = tf.program, prompt.state(tf.program)
    roundoff = torch.finfo(prompt.X.dtype).eps / 2
    steps, weights, affine = [], [prompt.w0], Affine(program, tf.approximants, roundoff)
    for layer, step_ends in program.schedule():
        affine.layer(layer, {name: value.double() for name, value in state.items()})
        state = plain.apply_layer(program, layer, state, tf.functions)
        if step_ends:
            steps.append(_step(affine, [lane.name for lane in program.weights]))
            weights.append(prompt.weights(program, state))
            affine = Affine(program, tf.approximants, roundoff)
        if len(steps) == program.steps:
            break  # the read-out teaches nothing
    return Certificate(tuple(steps), torch.stack(weights, dim=1), getattr(tf.algorithm, "lr", 1.0) or 1.0)


def _step(affine: Affine, lanes: Iterable[str]) -> StepCertificate:
    radii, shares = [], dict[str, float]()
    for lane in lanes:
        own = affine.shares.get(lane, {})
        radii.append(sum(share.flatten(1) for share in own.values()))
        for source, share in own.items():
            shares[source] = shares.get(source, 0.0) + float(share.sum()) / len(share)
    return StepCertificate(torch.cat([torch.as_tensor(radius) for radius in radii], dim=1), shares)
