"""AdamW and Muon on the parameters of a stack, rows of one matrix theta (S, P), one row a model.

    AdamW   m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,
            theta = (1 - lr decay) theta - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    Muon    for matrices (a, b): m = mu m + g,   u = g + mu m = U S V^T,
            theta = (1 - lr decay) theta - lr 0.2 sqrt(max(a, b)) U V^T
            with U V^T from five Newton-Schulz steps (Jordan et al., 2024); AdamW for the rest. The factor makes the
            root mean square of an update that of AdamW (Liu et al., 2025), so both share their lr.

Everything is done in place by tensor operations without a look at a value, so that a step can be recorded as a CUDA
graph. Learning rate and decay are columns (S, 1), one a model. Which parameters are matrices for Muon, and which decay,
the learner says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from innergrad.config import check_choices
from innergrad.errors import InputError, integer, real


@dataclass(frozen=True)
class Optimiser:
    """How parameters are updated.

    Args:
        kind: ``adamw`` or ``muon``. Muon is for matrices; AdamW takes the rest.
        lr: the learning rate after the warmup.
        schedule: ``constant``, ``linear`` or ``cosine``.
        warmup: steps until lr is reached.
        final: the last rate, as a fraction of lr.
        betas: of AdamW.
        momentum: of Muon.
        weight_decay: decoupled from the gradient.
        clip: the largest norm of a gradient; None for no limit.
        eps: of AdamW.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> optimiser = lab.Optimiser(lr=1e-3, schedule="linear", warmup=10)
        >>> float(optimiser.factor(torch.tensor(4), steps=100))  # of lr, in step 4
        0.5
    """

    kind: Literal["adamw", "muon"] = "adamw"
    lr: float = 1e-4
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = 0
    final: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.95
    weight_decay: float = 0.0
    clip: float | None = None
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_choices(self, "optimiser.")
        real("optimiser.lr", self.lr, above=0.0)
        real("optimiser.weight_decay", self.weight_decay, low=0.0)
        real("optimiser.eps", self.eps, above=0.0)
        integer("optimiser.warmup", self.warmup, low=0)
        if self.clip is not None:
            real("optimiser.clip", self.clip, above=0.0, hint="none: gradients are not clipped")
        for name, value in (("betas", self.betas[0]), ("betas", self.betas[1]), ("momentum", self.momentum)):
            if not 0.0 <= value < 1.0:
                raise InputError(f"optimiser.{name} must be at least 0 and less than 1", got=value)
        if not 0.0 <= self.final <= 1.0:
            raise InputError(
                "optimiser.final is the last learning rate as a fraction of lr", got=self.final, allowed="0 to 1"
            )

    def factor(self, step: Tensor, steps: int | Tensor) -> Tensor:
        """The learning rate of a step (0, 1, ...) as a fraction of lr. That of warm-up does not depend on ``steps``."""
        done = step.to(torch.float64)
        warm = ((done + 1) / max(self.warmup, 1)).clamp(max=1.0)
        if self.schedule == "constant":
            return warm
        after = steps - self.warmup
        after = after.clamp(min=1) if isinstance(after, Tensor) else max(after, 1)
        progress = ((done - self.warmup) / after).clamp(0.0, 1.0)
        left = 1.0 - progress if self.schedule == "linear" else 0.5 * (1.0 + torch.cos(math.pi * progress))
        return warm * (self.final + (1.0 - self.final) * left)


def clipped(grad: Tensor, limit: float | None) -> tuple[Tensor, Tensor]:
    """The gradient (S, P) of each model with norm at most ``limit``, and its norm before, (S, 1)."""
    norm = grad.norm(dim=1, keepdim=True)
    return (grad if limit is None else grad * (limit / (norm + 1e-6)).clamp(max=1.0)), norm


def adamw(
    rule: Optimiser, theta: Tensor, grad: Tensor, m: Tensor, v: Tensor, step: Tensor, lr: Tensor, decay: Tensor
) -> None:
    """One update in place; ``step`` counts from 0, lr and decay are (S, 1), or (S, P)."""
    b1, b2 = rule.betas
    t = (step + 1).to(torch.float64)
    m.lerp_(grad, 1.0 - b1)
    v.lerp_(grad * grad, 1.0 - b2)
    mean, spread = m / (1.0 - b1**t).to(m.dtype), v / (1.0 - b2**t).to(m.dtype)
    theta.copy_(theta - lr * (decay * theta + mean / (spread.sqrt() + rule.eps)))


def muon(
    rule: Optimiser,
    matrices: Mapping[str, int],
    theta: dict[str, Tensor],
    grad: dict[str, Tensor],
    m: dict[str, Tensor],
    lr: Tensor,
    decays: dict[str, Tensor],
) -> None:
    """One update in place of ``matrices``: views by name, (S, ..., a, b), each so many matrices side by side."""
    for name, number in matrices.items():
        m[name].mul_(rule.momentum).add_(grad[name])
        update = grad[name] + rule.momentum * m[name]
        parts = update.chunk(number, -1)
        size = 0.2 * math.sqrt(max(parts[0].shape[-2:]))
        update = size * torch.cat([orthogonal(part) for part in parts], -1)
        rate = lr.view(-1, *[1] * (update.ndim - 1))
        theta[name].copy_(theta[name] - rate * (decays[name] * theta[name] + update))


#: x -> a x + b x^3 + c x^5 makes small x larger as fast as it can, and keeps x <= 1 below 1.21 (Jordan et al., 2024).
GROWTH = 3.4445, -4.7750, 2.0315


def orthogonal(matrix: Tensor, rounds: int = 5) -> Tensor:
    """About U V^T of each matrix U S V^T of (..., a, b): its singular values go to 0.7 .. 1.2."""
    x = matrix.to(torch.bfloat16) if matrix.is_cuda else matrix
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = GROWTH
    for _ in range(rounds):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    found: Tensor = x.mT if tall else x
    return found.to(matrix.dtype)
