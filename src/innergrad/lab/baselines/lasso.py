"""The lasso on every prefix of every prompt at once, by following its path.

    min over w of  1/(2k) |X w - y|^2 + alpha |w|_1            G = X^T X / k,   b = X^T y / k,   c = b - G w

Coordinate descent crawls where there are fewer points than coordinates: its steps are of the size of alpha. The
solution is a piecewise linear function of the penalty, and has few pieces (Osborne et al., 2000). The path goes from
the penalty max |b_j|, where w = 0, down to alpha. The coordinates A with |c_j| = penalty move along G_AA delta_A =
sign(c_A), which keeps them there, until another one joins or one of them reaches zero and leaves. Every event is one
batched d x d system. A few sweeps of coordinate descent from where the path ends take away rounding, and settle ties.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.errors import integer, real
from innergrad.lab.baselines.base import Predictor
from innergrad.lab.labels import by_component

CHECK = 10  # sweeps of coordinate descent between looks at the moving coordinates
NUMBERS = 1 << 26  # of Gram matrices at a time: half a gigabyte


@dataclass(frozen=True)
class Lasso(Predictor, kind="lasso"):
    """The lasso without intercept; 0 at k = 0.

    Args:
        alpha: the penalty, as in scikit-learn.
        tol: where to stop.
        sweeps: how many at most.
    """

    alpha: float = 0.01
    tol: float = 1e-9
    sweeps: int = 500

    def __post_init__(self) -> None:
        real("alpha", self.alpha, above=0.0, hint="alpha = 0 is least squares: LeastSquares()")
        real("tol", self.tol, above=0.0)
        integer("sweeps", self.sweeps)

    @property
    def name(self) -> str:
        return f"lasso {self.alpha:g}"

    @by_component
    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        rows = max(1, NUMBERS // (x.shape[1] * x.shape[2] ** 2))
        cuts = [slice(first, first + rows) for first in range(0, len(x), rows)]
        return torch.cat([self._some(x[cut].double(), y[cut].double()) for cut in cuts]).to(y)

    def _some(self, x: Tensor, y: Tensor) -> Tensor:
        _, n, d = x.shape
        k = torch.arange(n, device=x.device, dtype=x.dtype).clamp(min=1)
        G = (_before(torch.einsum("bni,bnj->bnij", x, x)) / k[:, None, None]).view(-1, d, d)
        b = (_before(x * y[..., None]) / k[:, None]).view(-1, d)
        w = descend(G, b, path(G, b, self.alpha), self.alpha, self.tol, self.sweeps)
        return (w.view(x.shape) * x).sum(-1)


def path(G: Tensor, b: Tensor, alpha: float) -> Tensor:
    """w (P, d) at the penalty ``alpha``, followed from where it is zero; G (P, d, d), b (P, d)."""
    d = b.shape[1]
    w = torch.zeros_like(b)
    penalty = b.abs().amax(1, keepdim=True)
    active = (b.abs() == penalty) & (penalty > alpha)
    left = torch.zeros_like(active)  # a coordinate that has just left is at its old place, and must not return there
    lift = torch.diag_embed(1e-13 * G.diagonal(dim1=-2, dim2=-1) + torch.finfo(b.dtype).tiny)
    for _ in range(8 * d):
        c = b - (G @ w[..., None])[..., 0]
        both = active[:, :, None] & active[:, None, :]
        system = torch.where(both, G, 0.0) + lift + torch.diag_embed((~active).to(b))
        delta = torch.linalg.solve_ex(system, (c.sign() * active)[..., None])[0][..., 0] * active
        a = (G @ delta[..., None])[..., 0]
        leaves = torch.where(active & (w * delta < 0), -w / delta, torch.inf)
        up, down = (_meets(s * c, s * a, penalty, active | (left & (s * c > 0))) for s in (1.0, -1.0))
        events = torch.cat([leaves, torch.minimum(up, down)], 1)
        step, which = events.min(1, keepdim=True)
        rest = penalty - alpha
        moves = active.any(1, keepdim=True) & (rest > 0)
        final = step >= rest
        w = torch.where(moves, w + torch.minimum(step, rest) * delta, w)
        penalty = torch.where(moves, penalty - torch.minimum(step, rest), penalty)
        if bool((final | ~moves).all()):
            break
        event = torch.zeros_like(events, dtype=torch.bool).scatter_(1, which, moves & ~final)
        left, joined = event[:, :d], event[:, d:]
        active = (active & ~left) | joined
        w = w.masked_fill(left, 0.0)
    return w


def _meets(c: Tensor, a: Tensor, penalty: Tensor, never: Tensor) -> Tensor:
    """After which step c - step * a equals the penalty less that step, for coordinates that are below it."""
    return torch.where((a < 1.0) & ~never, (penalty - c).clamp(min=0.0) / (1.0 - a), torch.inf)


def descend(G: Tensor, b: Tensor, w: Tensor, alpha: float, tol: float, sweeps: int) -> Tensor:
    """Coordinate descent from w: w_j = soft(b_j - sum_{i != j} G_ji w_i, alpha) / G_jj until none moves by ``tol``."""
    found, w = w.clone(), w.clone()
    moving = torch.arange(len(b), device=b.device)
    for sweep in range(1, sweeps + 1):
        before = w.clone()
        for j in range(b.shape[1]):
            own = G[:, j, j]
            rest = b[:, j] - (G[:, j] * w).sum(1) + own * w[:, j]
            soft = rest.sign() * (rest.abs() - alpha).clamp(min=0.0)
            w[:, j] = torch.where(own > 0, soft / own, 0.0)
        found[moving] = w
        if sweep % CHECK == 0 or sweep == 1:
            go_on = (w - before).abs().amax(1) > tol
            moving, w, G, b = (part[go_on] for part in (moving, w, G, b))
            if not len(moving):
                break
    return found


def _before(terms: Tensor) -> Tensor:
    """Sums over the pairs before each: (B, n, ...) -> (B, n, ...), entry k the sum of entries 0 .. k - 1."""
    return torch.cat([torch.zeros_like(terms[:, :1]), terms.cumsum(1)[:, :-1]], 1)
