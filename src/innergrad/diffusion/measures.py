"""How good is a score, and how good are samples?

    score error        root mean square of the difference to the exact score under P_t, time by time: L2(P_t)
    Wasserstein-1      on the line, the area between the distribution functions
    sliced             the mean of that over directions, in any dimension
    energy distance    sqrt(2 E|a - b| - E|a - a'| - E|b - b'|)

Distances of samples have a scale: 0 is the sampler with the exact score, 1 is noise, N(0, I).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.diffusion.process import GaussianMixture
from innergrad.diffusion.samplers import Score
from innergrad.errors import InputError, integer, seed_number

Distance = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class ScoreError:
    """The error of a score at some times.

    Attributes:
        times: t.
        error: the root mean square of the difference to the exact score, under P_t.
        size: the root mean square of the exact score, likewise.

    Examples:
        >>> import innergrad as ig
        >>> mixture = ig.diffusion.SHAPES["two-bumps"]()
        >>> ig.diffusion.score_error(lambda x, t: -x, mixture, [0.1, 3.0]).relative[1] < 0.1  # nearly noise by then
        True
    """

    times: tuple[float, ...]
    error: tuple[float, ...]
    size: tuple[float, ...]

    @property
    def relative(self) -> tuple[float, ...]:
        """error / size: 1 is a score of zero."""
        return tuple(error / size for error, size in zip(self.error, self.size, strict=True))

    @property
    def overall(self) -> float:
        """The root mean square of ``relative``."""
        return math.sqrt(sum(one**2 for one in self.relative) / len(self.times))


def score_error(
    score: Score, mixture: GaussianMixture, times: Sequence[float], n: int = 2000, seed: int = 0
) -> ScoreError:
    """The error of a score in L2(P_t), time by time, on n points of P_t.

    Args:
        score: a function of points (n, d) and a time.
        mixture: the data, whose exact score is known.
        times: where to measure.
        n: points at each time.
        seed: of the points.

    Examples:
        >>> import innergrad as ig
        >>> mixture = ig.diffusion.SHAPES["moons"]()
        >>> ig.diffusion.score_error(mixture.score, mixture, [0.1, 1.0]).error
        (0.0, 0.0)
    """
    errors, sizes = list[float](), list[float]()
    for number, t in enumerate(times):
        x = mixture.diffused(n, float(t), seed=seed_number(seed) + 2 * number)
        exact, found = mixture.score(x, t), score(x, t).to(x.dtype)
        errors.append(float((found - exact).square().sum(-1).mean().sqrt()))
        sizes.append(float(exact.square().sum(-1).mean().sqrt()))
    return ScoreError(tuple(map(float, times)), tuple(errors), tuple(sizes))


def wasserstein_1(a: Tensor, b: Tensor) -> float:
    """On the line: the area between the distribution functions of two sets of points, (n, 1) or (n,) each.

    Args:
        a: some points.
        b: others. There may be more or fewer of them.

    Examples:
        >>> import innergrad as ig, torch
        >>> ig.diffusion.wasserstein_1(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 3.0]))
        2.0
    """
    a, b = (_finite(one.unsqueeze(-1) if one.ndim == 1 else one) for one in (a, b))
    if a.shape[1] != 1 or b.shape[1] != 1:
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise InputError("this distance is for points on a line", got=got, hint="use sliced_wasserstein")
    return float(_between(a, b)[0])


def sliced_wasserstein(a: Tensor, b: Tensor, directions: int = 64, seed: int = 0) -> float:
    """The mean Wasserstein-1 distance of the projections of two sets of points (n, d) to random directions.

    Args:
        a: some points.
        b: others.
        directions: how many.
        seed: of the directions.

    Examples:
        >>> import innergrad as ig, torch
        >>> points = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> ig.diffusion.sliced_wasserstein(points, points)
        0.0
    """
    a, b = _finite(a), _finite(b)
    generator = torch.Generator().manual_seed(seed_number(seed))
    ways = torch.randn(a.shape[1], integer("directions", directions), generator=generator, dtype=torch.float64)
    ways = ways / ways.norm(dim=0)
    return float(_between(a @ ways, b @ ways).mean())


def energy_distance(a: Tensor, b: Tensor) -> float:
    """sqrt(2 E|a - b| - E|a - a'| - E|b - b'|), over all pairs of points of two sets (n, d).

    Args:
        a: some points.
        b: others.

    Examples:
        >>> import innergrad as ig, torch
        >>> ig.diffusion.energy_distance(torch.zeros(2, 1), torch.ones(2, 1))
        1.4142135623730951
    """
    a, b = _finite(a), _finite(b)
    apart = [float(torch.cdist(one, other).mean()) for one, other in ((a, b), (a, a), (b, b))]
    return math.sqrt(max(0.0, 2.0 * apart[0] - apart[1] - apart[2]))


@dataclass(frozen=True)
class Scale:
    """A scale for distances of samples to the data: 0 is the sampler with the exact score, 1 is noise.

    Args:
        exact: the distance of samples by the exact score.
        noise: the distance of N(0, I).

    Examples:
        >>> import innergrad as ig
        >>> ig.diffusion.Scale(exact=0.5, noise=1.5)(0.75)
        0.25
    """

    exact: float
    noise: float

    def __call__(self, distance: float) -> float:
        """Where a distance is on the scale."""
        if self.noise <= self.exact:
            what = "noise is as near to the data as exact samples, so there is no scale"
            raise InputError(what, got=f"{self.noise:.3g} and {self.exact:.3g}", hint="take more samples")
        return (distance - self.exact) / (self.noise - self.exact)


def _between(a: Tensor, b: Tensor) -> Tensor:
    """(k,): the area between the distribution functions, column by column."""
    points, order = torch.cat([a, b]).sort(dim=0)
    jumps = torch.cat([a.new_full((len(a),), 1.0 / len(a)), b.new_full((len(b),), -1.0 / len(b))])
    return (jumps[order].cumsum(0)[:-1].abs() * points.diff(dim=0)).sum(0)


def _finite(points: Tensor) -> Tensor:
    if points.ndim != 2 or 0 in points.shape:
        raise InputError("points have the shape (n, d)", got=tuple(points.shape))
    if not bool(torch.isfinite(points).all()):
        raise InputError("points contain NaN or infinity")
    return points.double()
