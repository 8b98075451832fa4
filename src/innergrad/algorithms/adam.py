"""Adam on a network: everything of gradient descent but the update rule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from innergrad.algorithms.descent.step import Moments, Rule, Step
from innergrad.algorithms.gradient_descent import DEFAULT_BOX, GradientDescent
from innergrad.algorithms.losses import Loss
from innergrad.algorithms.networks import Network
from innergrad.errors import InputError, real
from innergrad.ir.program import Options

COARSE = 1.0  # epsilon / delta, from which a step may be off by as much as it is long


@dataclass(frozen=True)
class Adam(GradientDescent):
    """Adam, as ``torch.optim.Adam`` with eps = ``delta`` does it, with a box or a ball.

    The loss that it makes small is that of ``GradientDescent``. One step is

        g  = clip(grad L(w)) + weight_decay w
        m <- beta_1 m + (1 - beta_1) g          m_hat = m / (1 - beta_1^l)
        v <- beta_2 v + (1 - beta_2) g^2        v_hat = v / (1 - beta_2^l)
        w <- box(soft(w - lr m_hat / (sqrt(v_hat) + delta)))

    The function 1 / (sqrt(v) + delta) is called "adam" in the program, and ``compile(epsilons={"adam": ...})`` sets its
    error. An error of epsilon there is epsilon / delta, relative to the largest value 1 / delta. Where sqrt(v) is much
    larger than delta, a relative error of e takes epsilon = e delta / sqrt(v).

    Args:
        network: what is trained.
        loss: as in ``GradientDescent``.
        lr: the rate, or a rate for each step.
        steps: how many.
        box: the largest absolute weight, 4 by default; None for no limit.
        betas: of the averages of g and of g^2.
        delta: torch's eps.
        weight_decay: of the l2 kind.
        l1: as in ``GradientDescent``.
        clip: likewise.
        batches: likewise.
        epochs: likewise.
        ball: likewise.

    Examples:
        >>> import innergrad as ig, torch
        >>> X = torch.linspace(-1, 1, 8).view(-1, 1)
        >>> adam = ig.Adam(ig.Network([1, 4, 1]), lr=0.05, steps=20)
        >>> loss = ig.reference(adam, X, torch.sin(X)).loss
        >>> bool(loss[-1] < loss[0])
        True
    """

    kind: ClassVar[str] = "adam"
    targets: ClassVar[tuple[str, ...]] = ("relu",)  # smooth units do not add up to a function with an infinite slope
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("lr", "steps", "box", "betas", "delta"),
        *("weight_decay", "l1", "clip", "batches", "ball"),
    )
    ADDED: ClassVar[tuple[str, ...]] = ("ball",)

    betas: tuple[float, float]
    delta: float

    def __init__(
        self,
        network: Network,
        loss: str | Loss = "squared",
        lr: float | Sequence[float] = 0.01,
        steps: int | None = None,
        box: float | None = DEFAULT_BOX,
        betas: tuple[float, float] = (0.9, 0.999),
        delta: float = 1e-2,
        weight_decay: float = 0.0,
        l1: float = 0.0,
        clip: float | None = None,
        batches: Sequence[Sequence[int]] | None = None,
        epochs: int | None = None,
        ball: float | None = None,
    ) -> None:
        super().__init__(
            network, loss, lr, steps, box, 0.0, weight_decay, False, l1, clip, batches=batches, epochs=epochs, ball=ball
        )
        if not isinstance(betas, Sequence) or isinstance(betas, str) or len(betas) != 2:
            raise InputError("betas are two numbers", got=repr(betas), allowed="e.g. (0.9, 0.999)")
        first, second = (real("betas", beta, low=0.0) for beta in betas)
        if max(first, second) >= 1.0:
            raise InputError("betas are less than 1", got=repr(tuple(betas)), allowed="e.g. (0.9, 0.999)")
        object.__setattr__(self, "betas", (first, second))
        object.__setattr__(self, "delta", real("delta", delta, above=0.0))

    def check_options(self, options: Options) -> None:
        super().check_options(options)
        relative = options.accuracy("adam") / self.delta
        if relative > COARSE:
            warnings.warn(
                f"Adam's quotient m / (sqrt(v) + delta) is known to {relative:.1g} m: epsilon / delta is large, and so "
                "may be the error of a step; use a larger delta, or epsilons={'adam': ...}",
                UserWarning,
                stacklevel=4,
            )

    def _step(self, number: int, rate: float, batch: int | None) -> Step:
        first, second = (_correction(beta, number + 1) for beta in self.betas)
        return Step(rate, batch, (first, second))

    @property
    def rule(self) -> Rule:
        return Moments(self.betas, self.delta, self.weight_decay, self.clip)

    @property
    def basic(self) -> bool:
        return False

    @property
    def monotone(self) -> bool:
        return False


def _correction(beta: float, power: int) -> float:
    """1 - beta^power to a few units in the last place; as it is written it would cancel where beta is nearly one."""
    return -math.expm1(power * math.log(beta)) if beta else 1.0
