"""Theorems 4.5 and 4.6 of Cheng et al. (2024), computed: the loss and its gradient on the set of predicted weights,

    A_l = a_l I,    B_l = b_l Sigma^(-1/2),    C_l = c_l Sigma^(-1/2),    r_l any number.

Points are x = Sigma^(1/2) U xi, with U uniform among orthogonal matrices, and labels do not depend on U. A finite group
stands for all U here, without any error: signed cyclic shifts. A matrix that commutes with all changes of signs is
diagonal, and if it commutes with the shifts, too, it is a multiple of I. So the mean of U M U^T over the group is
tr(M) / d I for every M, as over all orthogonal matrices.

The theorems say that on the set the gradient has no component off it, if matrices are written as the symmetry has them:
A, B Sigma^(1/2) and C Sigma^(1/2) are multiples of I there. Their gradients are grad A, grad B Sigma^(-1/2) and grad C
Sigma^(-1/2). So where descent *on the set* ends, the *full* gradient is zero. (Descent in the entries of B themselves
leaves the set, unless Sigma is a multiple of I: grad B is a multiple of Sigma^(1/2).)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.learners.kernel_learner import KernelLearner, KernelLearnerConfig
from innergrad.lab.tasks import Covariance, GaussianProcesses, KernelTerm, Sphere

Weights = dict[str, Tensor]
SCALARS = ("r", "a", "b", "c")


def signed_shifts(d: int) -> Tensor:
    """(d 2^d, d, d): all products of changes of signs and cyclic shifts."""
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * d).view(-1, d)
    shifts = torch.stack([torch.eye(d, dtype=torch.float64).roll(k, 0) for k in range(d)])
    return (signs[:, None, :, None] * shifts).flatten(0, 1)


@dataclass(frozen=True)
class Symmetric:
    """The loss of a learner on ``prompts`` random prompts of n examples, each turned by every element of the group.

    kernel: of the labels; attention: of the learner. ``turned``: False leaves the group out, for comparison.
    """

    kernel: str
    attention: str
    free_A: bool
    n: int = 6
    layers: int = 2
    prompts: int = 3
    eigenvalues: tuple[float, ...] = (1.0, 0.25, 2.25)
    turned: bool = True

    @property
    def d(self) -> int:
        return len(self.eigenvalues)

    @cached_property
    def learner(self) -> KernelLearner:
        return KernelLearnerConfig(self.layers, (self.attention,), self.free_A, "count").build(self.d, self.n + 1)

    @cached_property
    def inputs(self) -> Covariance:
        return Covariance(Sphere(), self.eigenvalues)

    @cached_property
    def points(self) -> tuple[Tensor, Tensor]:
        """x (1, B, n + 1, d) and the covariances of the labels, float64."""
        term: dict[str, KernelTerm] = {h: KernelTerm(h) for h in ("linear", "relu", "exp")}
        white = GaussianProcesses(self.d, Sphere(), terms=(term[self.kernel],))
        xi = white.points(CounterRNG.of(0, "theorems"), torch.arange(self.prompts), self.n + 1, {}).double()
        group = signed_shifts(self.d) if self.turned else torch.eye(self.d, dtype=torch.float64)[None]
        root = torch.tensor(self.inputs.root, dtype=torch.float64)
        turned = (xi[:, None] @ group.mT) @ root
        K = white.covariance(xi)[:, None].expand(-1, len(group), -1, -1)
        return turned.flatten(0, 1)[None], K.flatten(0, 1)

    def on_set(self, scalars: Tensor, root: Tensor | None = None) -> Weights:
        """The weights of r, a, b, c, (4, L). root: what B and C are multiples of; by default Sigma^(-1/2)."""
        root = torch.tensor(self.inputs.inverse_root, dtype=torch.float64) if root is None else root
        r, a, b, c = (row[None, :, None] for row in scalars)
        found = {"r": r, "B": b[..., None, None] * root, "C": c[..., None, None] * root}
        return found | ({"A": a[..., None, None] * torch.eye(self.d, dtype=torch.float64)} if self.free_A else {})

    def loss(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The mean over prompts, turns and labels."""
        x, K = self.points
        v = self.learner.label_weights(x, weights)[0]
        return (v * (K @ v[..., None])[..., 0]).sum(-1).mean()

    def gradient(self, weights: Mapping[str, Tensor]) -> Weights:
        """In r; and in the matrices (L, d, d) that the symmetry has: A, B Sigma^(1/2), C Sigma^(1/2)."""
        leaves = {name: value.detach().clone().requires_grad_() for name, value in weights.items()}
        found = torch.autograd.grad(self.loss(leaves), list(leaves.values()))
        root = torch.tensor(self.inputs.inverse_root, dtype=torch.float64)
        grads = {name: grad[0, :, 0] for name, grad in zip(leaves, found, strict=True)}
        return {name: grad @ root if name in ("B", "C") else grad for name, grad in grads.items()}

    def settled(self, start: Tensor, root: Tensor | None = None, rounds: int = 400) -> Tensor:
        """The scalars (4, L) where descent of the loss on the set ends, from ``start``."""
        scalars = start.clone().requires_grad_()
        rule = torch.optim.LBFGS([scalars], 1.0, rounds, 4 * rounds, 1e-14, 0.0, 30, "strong_wolfe")

        def closure() -> Tensor:
            rule.zero_grad()
            loss = self.loss(self.on_set(scalars, root))
            loss.backward()
            return loss

        rule.step(closure)
        return scalars.detach()


def off_set(gradient: Mapping[str, Tensor]) -> float:
    """The largest component of a gradient that is no multiple of the identity, over the largest norm of a matrix."""
    matrices = [value for value in gradient.values() if value.ndim == 3]
    eye = torch.eye(matrices[0].shape[-1], dtype=torch.float64)
    rests = [m - m.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * eye for m in matrices]
    return float(max(rest.norm(dim=(1, 2)).max() for rest in rests) / max(m.norm(dim=(1, 2)).max() for m in matrices))


def size(gradient: Mapping[str, Tensor]) -> float:
    """The largest entry of a gradient."""
    return float(max(value.abs().max() for value in gradient.values()))
