"""Examples of a score: what a prompt holds, and how a prediction becomes a score again.

An example is a point x at a time t, and a label, which is a linear function of the score:

    y = alpha(t) score + beta(t) x          score: of p_t (Deep Optimizers, Problem 3), or of p(x_t | x_0) (H.2)

Scores grow without bound as t goes to 0. Labels do not: three choices of alpha and beta (:data:`LABELS`) keep them at
the size of the data or of the noise, at all times. Given x_0, the score of p(x_t | x_0) is -z / sigma_t, so

    label      alpha               beta         true label                      denoising label (H.2)
    noise      sigma_t             0            -E[z | x_t]                     -z
    velocity   sigma_t e^t         sigma_t e^t  E[sigma_t x_0 - e^-t z | x_t]   sigma_t x_0 - e^-t z
    data       sigma_t^2 e^t       e^t          E[x_0 | x_t]                    x_0

The loss (H.1) has a weight gamma(t). A squared error of the label is alpha(t)^2 times that of the score, and times are
drawn with a density q(t), log-uniform on [T_0, T]. So examples of equal weight have gamma = alpha^2 q. For any other
gamma an example has the weight gamma / (alpha^2 q).

Time is an input (Problem 3 leaves it out): beside x an example has the lanes e^-t, sigma_t and log t, scaled to
[-1, 1].

All functions take leading axes, of prompts: x (..., n, d), t (..., n).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from innergrad.diffusion.process import GaussianMixture, Times, decay, noised, sigma
from innergrad.errors import InputError, Registry, integer, real, seed_number

TIME_LANES = 3
SLACK = 1e-6  # of a time at the ends, relative: float32 rounds them


class Label(NamedTuple):
    """y = alpha(t) score + beta(t) x."""

    alpha: Callable[[Tensor], Tensor]
    beta: Callable[[Tensor], Tensor]


LABELS: Registry[Label] = Registry(
    "label",
    {
        "noise": Label(sigma, torch.zeros_like),
        "velocity": Label(lambda t: sigma(t) * t.exp(), lambda t: sigma(t) * t.exp()),
        "data": Label(lambda t: sigma(t).square() * t.exp(), torch.exp),
    },
)
"""What a prompt's labels are made of, by name: ``noise``, ``velocity`` or ``data``.

Examples:
    >>> import innergrad as ig
    >>> sorted(ig.diffusion.LABELS)
    ['data', 'noise', 'velocity']
"""


@dataclass(frozen=True, eq=False)
class Examples:
    """The examples of a prompt.

    Attributes:
        X: their inputs, (n, d + 3): the point, and three features of the time.
        y: their labels, (n, d).
        x: the points alone, (n, d).
        t: their times, (n,).
        weight: how much each counts, (n,), or None if all count the same.

    Examples:
        >>> import innergrad as ig
        >>> examples = ig.diffusion.ScoreTask().from_mixture(ig.diffusion.SHAPES["moons"](), n=8)
        >>> tuple(examples.X.shape), tuple(examples.y.shape)
        ((8, 5), (8, 2))
    """

    X: Tensor
    y: Tensor
    x: Tensor
    t: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        return self.X.shape[-2]


@dataclass(frozen=True)
class ScoreTask:
    """How a score becomes the examples of a prompt, and how predictions become a score again.

    Args:
        min_time: the least time, T_0. It is positive: at t = 0 the score of a set of points is infinite.
        max_time: the largest time, T, at which the data are nearly noise.
        label: ``noise``, ``velocity`` or ``data``: the multiple of the score that is learned, see ``LABELS``.
        gamma: the weight of a time in the loss, a function of a tensor of times. By default all examples count the
            same.

    Examples:
        >>> import innergrad as ig, torch
        >>> task, mixture = ig.diffusion.ScoreTask(label="data"), ig.diffusion.SHAPES["two-bumps"]()
        >>> examples = task.from_mixture(mixture, n=64)  # true scores, as in Problem 3
        >>> score = task.score(examples.x, examples.t, examples.y)
        >>> torch.allclose(score, mixture.score(examples.x, examples.t))
        True
        >>> len(task.from_data(mixture.sample(20), n=64))  # from points alone, by denoising
        64
    """

    min_time: float = 0.02
    max_time: float = 3.0
    label: str = "data"
    gamma: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("min_time", "max_time"):
            hint = "the score may be infinite at t = 0" if name == "min_time" else ""
            object.__setattr__(self, name, real(name, getattr(self, name), above=0.0, hint=hint))
        if self.min_time >= self.max_time:
            got = f"{self.min_time:g} to {self.max_time:g}"
            raise InputError("times go from min_time to max_time", got=got, allowed="min_time < max_time")
        LABELS.find(self.label)

    # ----------------------------------------------------------------------------------------------- pure, of a batch

    def inputs(self, d: int) -> int:
        """How many features an example has in d dimensions."""
        return d + TIME_LANES

    def features(self, x: Tensor, t: Tensor) -> Tensor:
        """(..., n, d + 3): the lanes of the points x at times t."""
        low, high = math.log(self.min_time), math.log(self.max_time)
        scaled = (2.0 * t.log() - low - high) / (high - low)
        return torch.cat([x, torch.stack([2.0 * decay(t) - 1.0, 2.0 * sigma(t) - 1.0, scaled], -1)], -1)

    def labels(self, x: Tensor, t: Tensor, score: Tensor) -> Tensor:
        """(..., n, d): alpha(t) score + beta(t) x."""
        alpha, beta = LABELS.find(self.label)
        return alpha(t)[..., None] * score + beta(t)[..., None] * x

    def score(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """The inverse: the score that a label y is made of."""
        alpha, beta = LABELS.find(self.label)
        return (y - beta(t)[..., None] * x) / alpha(t)[..., None]

    def alpha(self, t: Tensor) -> Tensor:
        """What an error of the score is multiplied by to become one of the label."""
        return LABELS.find(self.label).alpha(t)

    def weights(self, t: Tensor) -> Tensor | None:
        """How much an example at time t counts: gamma / (alpha^2 q)."""
        if self.gamma is None:
            return None
        found = self.gamma(t) * t / LABELS.find(self.label).alpha(t).square()
        if not bool((torch.isfinite(found) & (found >= 0.0)).all()):
            raise InputError("gamma is a function that is finite and not negative on [min_time, max_time]")
        return found

    def times(self, u: Tensor) -> Tensor:
        """Log-uniform times on [min_time, max_time], from uniform numbers u on [0, 1]."""
        return self.min_time * (self.max_time / self.min_time) ** u

    def checked_times(self, t: Times, like: Tensor) -> Tensor:
        """Times of the points ``like`` (..., n, d), all of them in [min_time, max_time]."""
        found = torch.as_tensor(t, dtype=like.dtype, device=like.device)
        if bool(torch.isnan(found).any()):
            raise InputError("a time is not a number", got="NaN")
        low, high = (float(end) for end in (found.min(), found.max()))
        if low < self.min_time * (1 - SLACK) or high > self.max_time * (1 + SLACK):
            got = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            allowed = f"min_time = {self.min_time:g} to max_time = {self.max_time:g}"
            hint = "at t = 0 a score may be infinite; ask at min_time" if low <= 0.0 else ""
            raise InputError("the time is outside of what is learned", got=f"t = {got}", allowed=allowed, hint=hint)
        try:
            return found.clamp(self.min_time, self.max_time).expand(like.shape[:-1])
        except RuntimeError as error:
            allowed = f"a number, or {tuple(like.shape[:-1])}"
            raise InputError("times do not fit the points", got=tuple(found.shape), allowed=allowed) from error

    # ------------------------------------------------------------------------------------------------------- prompts

    def from_mixture(self, mixture: GaussianMixture, n: int, seed: int = 0) -> Examples:
        """Examples with true scores (Problem 3): points x_t of the diffusion, labels by the exact score."""
        x0, t, z = self._drawn(mixture.sample(n, seed), seed)
        x = noised(x0, t, z)
        return self.given(x, t, mixture.score(x, t))

    def from_data(self, data: object, n: int, seed: int = 0) -> Examples:
        """Examples from points alone (H.2): each of them is noised, in turn, and its label is made from the noise."""
        points = _points(data)
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed_number(seed)))
        x0, t, z = self._drawn(points[order[torch.arange(integer("n", n)) % len(points)]], seed)
        x = noised(x0, t, z)
        return self.given(x, t, -z / sigma(t)[..., None])

    def given(self, x: object, t: object, score: object) -> Examples:
        """Examples of your own: points (n, d), times (n,) and scores (n, d)."""
        points, scores = _points(x), _finite("scores", score)
        if scores.shape != points.shape:
            raise InputError("scores do not fit the points", got=tuple(scores.shape), allowed=str(tuple(points.shape)))
        times = self.checked_times(_finite("times", t), points)
        y = self.labels(points, times, scores)
        return Examples(self.features(points, times), y, points, times, self.weights(times))

    def _drawn(self, x0: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """The data, times and noise. Times are evenly spread: one in each of n equal parts of their range."""
        generator = torch.Generator().manual_seed(seed_number(seed) + 1)
        n = len(x0)
        u = (torch.randperm(n, generator=generator) + torch.rand(n, generator=generator, dtype=torch.float64)) / n
        return x0, self.times(u), torch.randn(x0.shape, generator=generator, dtype=torch.float64)


def _finite(name: str, values: object) -> Tensor:
    try:
        found = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} are numbers", got=type(values).__name__) from error
    if not bool(torch.isfinite(found).all()):
        raise InputError(f"{name} contain NaN or infinity", hint="leave those rows out")
    return found


def _points(values: object) -> Tensor:
    """Points (n, d) that a distribution can be learned from."""
    found = _finite("points", values)
    if found.ndim != 2 or 0 in found.shape:
        raise InputError("points have the shape (n, d)", got=tuple(found.shape))
    if len(found) == 1:
        raise InputError("one point is no distribution", got="1 point", allowed="two different points or more")
    if bool((found == found[0]).all()):
        what = "all points are equal, so there is no distribution to learn"
        raise InputError(what, got=f"{len(found)} times {found[0].tolist()}", allowed="two different points or more")
    return found
