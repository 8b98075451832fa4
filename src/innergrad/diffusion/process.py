"""The diffusion process, and mixtures of Gaussians, whose scores it keeps exact.

    dx  = -x dt + sqrt(2) dW                      (Ornstein and Uhlenbeck; *variance-preserving*: N(0, I) stays N(0, I))
    x_t = e^-t x_0 + sigma_t z,   sigma_t^2 = 1 - e^-2t,   z ~ N(0, I)

If x_0 is a mixture of N(m_k, C_k) with shares p_k, then x_t is one of N(e^-t m_k, e^-2t C_k + sigma_t^2 I). So density
and score are formulas at every time:

    grad log p_t(x) = sum_k share_k(x, t) (e^-2t C_k + sigma_t^2 I)^-1 (e^-t m_k - x)

Shapes: x (..., n, d); t a number or (..., n); weights (..., K), means (..., K, d). The leading axes are of mixtures, so
one call evaluates a batch of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, seed_number

Times = float | Tensor


def decay(t: Times) -> Tensor:
    """e^-t: how much of the data is left."""
    return torch.exp(-torch.as_tensor(t))


def sigma(t: Times) -> Tensor:
    """The standard deviation of the noise, sqrt(1 - e^-2t)."""
    return torch.sqrt(-torch.expm1(-2.0 * torch.as_tensor(t)))


def noised(x0: Tensor, t: Tensor, z: Tensor) -> Tensor:
    """x_t from the data x0 (..., d), times t (...) and standard normal numbers z (..., d)."""
    return decay(t)[..., None] * x0 + sigma(t)[..., None] * z


@dataclass(frozen=True, init=False, eq=False)
class GaussianMixture:
    """A mixture of Gaussians in any dimension. It knows its density and its score at every time of the diffusion.

    Args:
        means: of the K components, (K, d); with leading axes for a batch of mixtures.
        std: their standard deviations, the same in every direction: a number, or (K,).
        weights: their shares, (K,). By default all are equal.
        covariances: (K, d, d), in place of ``std``.

    Examples:
        >>> import innergrad as ig, torch
        >>> mixture = ig.diffusion.GaussianMixture([[-1.0], [1.0]], std=0.3)
        >>> x = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
        >>> mixture.score(x, t=0.01)[1].item()  # halfway between two equal components it is zero
        0.0
        >>> tuple(mixture.sample(5, seed=0).shape)
        (5, 1)
    """

    weights: Tensor
    means: Tensor
    variances: Tensor  # (..., K, d), along the axes
    axes: Tensor | None  # (..., K, d, d), columns; None: those of the space

    def __init__(
        self,
        means: object,
        std: object = None,
        weights: object = None,
        covariances: object = None,
    ) -> None:
        centres = _numbers("means", means)
        if centres.ndim < 2 or 0 in centres.shape:
            raise InputError("means have the shape (K, d)", got=tuple(centres.shape))
        if (std is None) == (covariances is None):
            raise InputError("a mixture has deviations or covariances", got="both" if std is not None else "neither")
        shape, axes = centres.shape, None
        if covariances is None:
            spread = _numbers("std", std)
            variances = _fitting("std", spread, shape[:-1]).square()[..., None].expand(shape)
            low = float(spread.min())
        else:
            matrices = _fitting("covariances", _numbers("covariances", covariances), (*shape, shape[-1]))
            if not torch.allclose(matrices, matrices.mT):
                raise InputError("covariances must be symmetric")
            variances, axes = torch.linalg.eigh(matrices)
            low = float(variances.min())
        if low < 0.0:
            raise InputError("a Gaussian has no negative spread", got=f"{low:g}")
        shares = torch.ones(shape[:-1], dtype=torch.float64) if weights is None else _numbers("weights", weights)
        shares = _fitting("weights", shares, shape[:-1])
        if float(shares.min()) < 0.0 or not bool((shares.sum(-1) > 0.0).all()):
            raise InputError("weights of a mixture are not negative, with a positive sum", got=shares.tolist())
        parts = (shares / shares.sum(-1, keepdim=True), centres, variances, axes)
        for name, part in zip(("weights", "means", "variances", "axes"), parts, strict=True):
            object.__setattr__(self, name, part)

    @property
    def d(self) -> int:
        """The dimension of the data."""
        return self.means.shape[-1]

    def log_density(self, x: Tensor, t: Times = 0.0) -> Tensor:
        """log p_t(x), (..., n)."""
        logits, _ = self._components(x, t)
        return logits.logsumexp(-1)

    def score(self, x: Tensor, t: Times = 0.0) -> Tensor:
        """The gradient of log p_t at x, (..., n, d)."""
        logits, pulls = self._components(x, t)
        return (logits.softmax(-1)[..., None] * pulls).sum(-2)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """n points of the data, (..., n, d)."""
        n, generator = integer("n", n), torch.Generator().manual_seed(seed_number(seed))
        shares = self.weights.reshape(-1, self.weights.shape[-1])
        which = torch.multinomial(shares, n, replacement=True, generator=generator)
        z = torch.randn(*which.shape, self.d, generator=generator, dtype=self.means.dtype)
        which = which.reshape(*self.weights.shape[:-1], n)
        chosen = which[..., None].expand(*which.shape, self.d)
        out = self.variances.gather(-2, chosen).sqrt() * z.reshape(chosen.shape)
        if self.axes is not None:
            axes = self.axes.gather(-3, chosen[..., None].expand(*chosen.shape, self.d))
            out = (axes @ out[..., None])[..., 0]
        return self.means.gather(-2, chosen) + out

    def diffused(self, n: int, t: float, seed: int = 0) -> Tensor:
        """n points of P_t, the law of x_t."""
        x0 = self.sample(n, seed)
        z = torch.randn(x0.shape, generator=torch.Generator().manual_seed(seed_number(seed) + 1), dtype=x0.dtype)
        return noised(x0, torch.full(x0.shape[:-1], float(t), dtype=x0.dtype), z)

    def _components(self, x: Tensor, t: Times) -> tuple[Tensor, Tensor]:
        """log of share times density of each component at x, (..., n, K), and the score of each, (..., n, K, d)."""
        if x.shape[-1] != self.d:
            raise InputError("points do not fit the mixture", got=tuple(x.shape), allowed=f"(..., n, {self.d})")
        weights, means, variances = (
            part.to(x.dtype).unsqueeze(-place)
            for part, place in ((self.weights, 2), (self.means, 3), (self.variances, 3))
        )
        time = torch.as_tensor(t, dtype=x.dtype).expand(x.shape[:-1])[..., None, None]
        left = decay(time)
        variance = left.square() * variances + sigma(time).square()
        away = x[..., None, :] - left * means
        if self.axes is not None:
            axes = self.axes.to(x.dtype).unsqueeze(-4)
            away = (axes.mT @ away[..., None])[..., 0]
        logits = weights.log() - 0.5 * (away.square() / variance + variance.log()).sum(-1)
        pulls = -away / variance
        if self.axes is not None:
            pulls = (axes @ pulls[..., None])[..., 0]
        return logits - 0.5 * self.d * math.log(2.0 * math.pi), pulls


def _numbers(name: str, values: object) -> Tensor:
    try:
        found = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} of a mixture are numbers", got=repr(values)) from error
    if not bool(torch.isfinite(found).all()):
        raise InputError(f"{name} of a mixture are finite numbers", got="NaN or infinity")
    return found


def _fitting(name: str, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    try:
        return values.expand(shape)
    except RuntimeError as error:
        raise InputError(f"{name} do not fit the means", got=tuple(values.shape), allowed=str(tuple(shape))) from error
