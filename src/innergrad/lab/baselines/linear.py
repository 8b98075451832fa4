"""Linear baselines: least squares and ridge regression, for all prompts at once, prefix after prefix.

A triangle holds everything that the first k pairs say about a linear fit: X = Q R with R (d, d), and c = Q^T y (d,). A
new pair is one more row, [R; x_k] = Q' R'. So a prefix of any length costs the decomposition of a small matrix, and
nothing is squared. The normal equations would square the condition number, which is large at k = d points (in float32
the prediction explodes there). With R = U diag(s) V^T the fits are

    least squares  w = V diag(1/s) U^T c            (s = 0 left out: the solution of least norm, as for k < d)
    ridge          w = V diag(s / (s^2 + lam)) U^T c        minimises |X w - y|^2 + lam |w|^2

Intercept, not penalised: with a first column of ones, R = [[r, m], [0, R_1]] and c = [c_0, c_1]. R_1 and c_1 are the
triangle of the centred data, and the means are m / r and c_0 / r. All arithmetic is float64. Of labels that are
vectors every number has a fit of its own, and a penalty of its own where it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from innergrad.errors import InputError, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.labels import by_component

SELECT = ("leave-one-out", "oracle")


class Prefix(NamedTuple):
    """The first k >= 1 pairs: mean_x (B, d), mean_y (B,) (zero without intercept), and the SVD of the rest."""

    k: int
    mean_x: Tensor
    mean_y: Tensor
    s: Tensor  # (B, d)
    Vh: Tensor  # (B, d, d)
    Utc: Tensor  # (B, d)

    def predict(self, x: Tensor, filters: Tensor) -> Tensor:
        """(..., B): the fit w = V (filters * U^T c) at x (B, d); filters (..., B, d)."""
        along = torch.einsum("bjd,bd->bj", self.Vh, x - self.mean_x)
        return (along * filters * self.Utc).sum(-1) + self.mean_y

    def weights(self, filters: Tensor) -> Tensor:
        """(B, d): the fit w = V (filters * U^T c); filters (B, d)."""
        return torch.einsum("bjd,bj->bd", self.Vh, filters * self.Utc)


def prefixes(x: Tensor, y: Tensor, intercept: bool) -> Iterator[Prefix]:
    """k = 1 .. n - 1: the triangle of x[:, :k] (B, k, d) and y[:, :k] for a linear fit; float64."""
    x, y = x.double(), y.double()
    if intercept:
        x = torch.cat([torch.ones_like(x[..., :1]), x], -1)
    triangle = torch.cat([x, y[..., None]], -1)  # the labels as a last column: their part of R is c
    width = x.shape[-1]
    R = triangle.new_zeros(len(x), width, width + 1)
    for k in range(1, x.shape[1]):
        R = torch.linalg.qr(torch.cat([R, triangle[:, k - 1 : k]], 1), mode="r")[1][:, :width]
        rest = R[:, 1:, 1:] if intercept else R
        U, s, Vh = torch.linalg.svd(rest[..., :-1])
        # r = +-sqrt(k): the column of ones
        means = R[:, 0, 1:] / R[:, 0, :1] if intercept else torch.zeros_like(R[:, 0])
        yield Prefix(k, means[:, :-1], means[:, -1], s, Vh, torch.einsum("bij,bi->bj", U, rest[..., -1]))


@dataclass(frozen=True)
class LeastSquares(Predictor, kind="least-squares"):
    """Least squares. With fewer than d points it takes the solution of least norm; at k = 0 it predicts 0.

    Args:
        intercept: also fit a constant.
    """

    intercept: bool = False

    @property
    def name(self) -> str:
        return "least squares" + (" with intercept" if self.intercept else "")

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        found = torch.zeros_like(y)
        for prefix in prefixes(x, y, self.intercept):
            found[:, prefix.k] = prefix.predict(x[:, prefix.k].double(), _inverse(prefix, x)).to(y)
        return found

    def linear_weights(self, x: Tensor, y: Tensor) -> Tensor | None:
        """(B, n, d): the solutions of least norm; None with an intercept."""
        return None if self.intercept else _weights(x, y, lambda prefix: _inverse(prefix, x))


@dataclass(frozen=True)
class Ridge(Predictor, kind="ridge"):
    """Ridge regression with a given penalty; 0 at k = 0.

    With ``intercept=False`` and lam = sigma^2 / tau^2 it is the Bayes predictor of linear functions with weights N(0,
    tau^2 I) and noise N(0, sigma^2) (Akyürek et al. 2023, section 4).

    Args:
        lam: the penalty.
        intercept: also fit a constant.
    """

    lam: float = 1.0
    intercept: bool = True

    def __post_init__(self) -> None:
        real("lam", self.lam, above=0.0, hint="lam = 0 is another baseline: least-squares")

    @classmethod
    def bayes(cls, sigma: float, tau: float = 1.0) -> Predictor:
        """The best predictor of a linear function with weights N(0, tau^2 I) and noise sigma."""
        return cls(sigma**2 / tau**2, intercept=False) if sigma else LeastSquares()

    @property
    def name(self) -> str:
        return f"ridge {self.lam:g}" + (" with intercept" if self.intercept else "")

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        found = torch.zeros_like(y)
        for prefix in prefixes(x, y, self.intercept):
            found[:, prefix.k] = prefix.predict(x[:, prefix.k].double(), _shrink(prefix.s, self.lam)).to(y)
        return found

    def linear_weights(self, x: Tensor, y: Tensor) -> Tensor | None:
        """(B, n, d): the solutions; None with an intercept."""
        return None if self.intercept else _weights(x, y, lambda prefix: _shrink(prefix.s, self.lam))


@dataclass(frozen=True)
class TunedRidge(Predictor, kind="tuned-ridge"):
    """Ridge regression with a penalty from a grid.

    Args:
        lams: the grid.
        intercept: also fit a constant.
        select: ``leave-one-out`` chooses inside the prompt, for every prefix: the penalty with the smallest squared
            leave-one-out error. That is a learner's choice. ``oracle`` chooses for every k the one penalty whose error
            *on the labels to be predicted*, summed over all prompts, is smallest. That is a bound on every fixed rule,
            and no predictor.
    """

    lams: tuple[float, ...] = tuple(10.0 ** (e / 2) for e in range(-6, 9))
    intercept: bool = True
    select: str = "leave-one-out"

    def __post_init__(self) -> None:
        if not self.lams:
            raise InputError("a grid has at least one lam", got=self.lams)
        for lam in self.lams:
            real("lam", lam, above=0.0)
        if self.select not in SELECT:
            raise InputError("unknown select", got=repr(self.select), allowed=", ".join(SELECT))

    @property
    def name(self) -> str:
        return f"ridge, {self.select} lambda" + (" with intercept" if self.intercept else "")

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        found = torch.zeros_like(y)
        lams = torch.tensor(self.lams, dtype=torch.float64, device=x.device)[:, None, None]
        for prefix in prefixes(x, y, self.intercept):
            k = prefix.k
            each = prefix.predict(x[:, k].double(), _shrink(prefix.s, lams))  # (lams, B)
            if self.select == "oracle":
                found[:, k] = each[(each - y[:, k]).square().sum(1).argmin()].to(y)
            else:
                error = self._left_out(prefix, x[:, :k].double(), y[:, :k].double(), lams)
                found[:, k] = each.gather(0, error.argmin(0, keepdim=True))[0].to(y)
        return found

    def _left_out(self, prefix: Prefix, x: Tensor, y: Tensor, lams: Tensor) -> Tensor:
        """(lams, B): the squared error at each pair of the fit without it, summed over the prefix."""
        along = torch.einsum("bkd,bjd->bkj", x - prefix.mean_x[:, None], prefix.Vh)
        fitted = torch.einsum("bkj,lbj->lbk", along, _shrink(prefix.s, lams) * prefix.Utc)
        leverage = torch.einsum("bkj,lbj->lbk", along.square(), 1.0 / (prefix.s.square() + lams))
        leverage = leverage + (1.0 / prefix.k if self.intercept else 0.0)
        residual = y - prefix.mean_y[:, None] - fitted
        return (residual / (1.0 - leverage).clamp(min=1e-12)).square().sum(-1)  # one pair and an intercept: 0 / 0


def _weights(x: Tensor, y: Tensor, filters: Callable[[Prefix], Tensor]) -> Tensor:
    """(B, n, d): the fits without intercept to the pairs before each; float64."""
    found = x.new_zeros(x.shape, dtype=torch.float64)
    for prefix in prefixes(x, y, intercept=False):
        found[:, prefix.k] = prefix.weights(filters(prefix))
    return found


def _inverse(prefix: Prefix, x: Tensor) -> Tensor:
    """1 / s, and 0 where s is rounding. R was made by k steps of rounding relative to the size of x, centred or not."""
    size = x[:, : prefix.k].double().square().sum((1, 2)).sqrt()
    there = prefix.s > (torch.finfo(torch.float64).eps * (prefix.k + x.shape[-1]) * size)[:, None]
    return torch.where(there, 1.0 / prefix.s, 0.0)


def _shrink(s: Tensor, lam: Tensor | float) -> Tensor:
    return s / (s.square() + lam)
