"""Why linear attention with A = 0 leaves the weights that Theorem 4.5 of Cheng et al. (2024) predicts.

With linear attention, layer l of such a learner is a matrix Q_l = r_l Sigma^(1/2) B_l^T C_l Sigma^(1/2), and the
prediction is made of the second moment of the examples, S = sum xi xi^T / n, and the query. On the predicted set Q_l is
a multiple of I, -eta_l: functional gradient descent with step eta_l. After L layers the residual is then the polynomial
(1 - eta_1 S) ... (1 - eta_L S), all of whose roots are real.

The best polynomial of degree L may have complex roots: descent with complex steps. That happens where enough of the
labels is no linear function of the inputs. Some of the best *real* steps are then equal, and the loss would fall if two
of them became a pair eta +- i beta. Multiples of I cannot do this. A matrix that also turns a plane, eta I + beta J
with J a quarter turn, has the eigenvalues eta +- i beta. It would do as well if S were a multiple of I on the plane; S
is not, and whether a turn gains anything depends on the labels. For relu and exp labels it does: the loss curves
downwards there (``curvature``), so that the predicted weights are a saddle. The best turned matrices also take another
step in the plane that they turn (``best_rotations``).

Each prompt enters by sums of its points and of the covariances K of its labels, so that the loss of a learner is cheap.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks import GaussianProcesses, Sphere
from innergrad.papers.functional_gradient import KERNELS

D = 5  # inputs
CHUNK = 2000  # prompts that are drawn at a time
ROUNDS = 500


@dataclass(frozen=True)
class Moments:
    """Of prompts in whitened inputs, float64: S (P, d, d), the query q (P, d), X^T K X / n^2, X^T K q / n, and K at q.

    X are the examples, and K the covariance of the labels.
    """

    S: Tensor
    q: Tensor
    within: Tensor
    across: Tensor
    least: Tensor

    @classmethod
    def of(cls, kernel: str, prompts: int, seed: int, n: int = 30) -> Moments:
        """Of prompts of n examples; the labels have the kernel of that name."""
        white = GaussianProcesses(inputs=Sphere(), terms=KERNELS[kernel])
        rng, parts = CounterRNG.of(seed, "rotations"), []
        for index in torch.arange(prompts).split(CHUNK):
            xi = white.points(rng, index, n + 1, {})
            K, xi = white.covariance(xi).double(), xi.double()
            X, q = xi[:, :n], xi[:, n]
            within = X.mT @ K[:, :n, :n] @ X / n**2
            parts.append((X.mT @ X / n, q, within, (X.mT @ K[:, :n, n:])[..., 0] / n, K[:, n, n]))
        return cls(*map(torch.cat, zip(*parts, strict=True)))

    def losses(self, Q: Tensor) -> Tensor:
        """(P,): the squared error of every prompt, its mean over labels, for matrices Q (L, d, d)."""
        return self.errors(self.weights(Q))

    def weights(self, Q: Tensor) -> Tensor:
        """(P, d): the learner predicts -sum <u, xi_i> y_i / n. Layers are gone through from the last to the first."""
        u = torch.zeros_like(self.q)
        for matrix in Q.flip(0):
            u = u + ((self.S @ u[..., None])[..., 0] + self.q) @ matrix.mT
        return u

    def errors(self, u: Tensor) -> Tensor:
        return ((self.within @ u[..., None])[..., 0] * u).sum(-1) + 2.0 * (self.across * u).sum(-1) + self.least

    @cached_property
    def powers(self) -> Tensor:
        """(P, 3, d): q, S q, S^2 q."""
        first = (self.S @ self.q[..., None])[..., 0]
        return torch.stack((self.q, first, (self.S @ first[..., None])[..., 0]), 1)

    def best_polynomial(self) -> Tensor:
        """w (3,): u = w_0 q + w_1 S q + w_2 S^2 q with the least mean error, by least squares."""
        A = torch.einsum("pkd,pde,pje->kj", self.powers, self.within, self.powers)
        w: Tensor = torch.linalg.solve(A, torch.einsum("pkd,pd->k", self.powers, self.across))
        return -w

    def polynomial_losses(self, w: Tensor) -> Tensor:
        u: Tensor = torch.einsum("pkd,k->pd", self.powers, w)
        return self.errors(u)


def on_set(steps: Tensor) -> Tensor:
    """Q (L, d, d) of functional gradient descent with these steps (L,)."""
    return -steps[:, None, None] * torch.eye(D, dtype=steps.dtype)


def best_steps(moments: Moments, layers: int = 3) -> Tensor:
    """The steps with the least loss on the predicted set."""
    start = torch.linspace(1.5, 4.5, layers, dtype=torch.float64)
    return _descended(start, lambda steps: moments.losses(on_set(steps)).mean())


def steps_of(w: Tensor) -> list[complex]:
    """The steps eta of a polynomial 1 + w_0 S + w_1 S^2 + w_2 S^3 = (1 - eta_1 S) (1 - eta_2 S) (1 - eta_3 S)."""
    return sorted(map(complex, np.roots([1.0, *w.tolist()])), key=lambda one: (one.real, one.imag))


def rotations(parts: Tensor) -> Tensor:
    """Q (L, 5, 5) of parts (L, 5): step and turn in one plane, in another, and the step in the fifth direction."""
    basis = torch.zeros(D, D, D, dtype=parts.dtype)
    for place in (0, 2):
        one, other = place, place + 1
        basis[place, one, one] = basis[place, other, other] = -1.0
        basis[place + 1, one, other], basis[place + 1, other, one] = -1.0, 1.0
    basis[4, 4, 4] = -1.0
    return torch.einsum("lk,kij->lij", parts, basis)


def curvature(moments: Moments, steps: Tensor) -> float:
    """The least eigenvalue of the Hessian of the loss along turns: changes of Q by antisymmetric matrices, of norm 1.

    No direction is special on the sphere, so all ten planes have the same Hessian in the layers, and none between them.
    The sample's is averaged over planes: the least of thirty noisy eigenvalues would be too low.
    """
    planes = list(itertools.combinations(range(D), 2))
    basis = torch.zeros(len(planes), D, D, dtype=steps.dtype)
    for place, (one, other) in enumerate(planes):
        basis[place, one, other], basis[place, other, one] = 0.5**0.5, -(0.5**0.5)

    def slopes(turns: Tensor) -> Tensor:
        loss = moments.losses(on_set(steps) + torch.einsum("lk,kij->lij", turns, basis)).mean()
        return torch.autograd.grad(loss, turns, create_graph=True)[0]

    turns = torch.zeros(len(steps), len(planes), dtype=steps.dtype, requires_grad=True)
    rows = []
    for slope in slopes(turns):
        each = [torch.autograd.grad(one, turns, retain_graph=True)[0][:, plane] for plane, one in enumerate(slope)]
        rows.append(torch.stack(each).mean(0))
    return float(torch.linalg.eigvalsh(torch.stack(rows))[0])


def best_rotations(moments: Moments, steps: Tensor) -> Tensor:
    """Q (L, 5, 5) with the least loss among ``rotations``, from these steps, turned a little."""
    turns = torch.tensor([[0.3, 0.1], [-1.0, -0.3], [0.7, 0.2]], dtype=torch.float64)
    columns = (steps, turns[:, 0], steps, turns[:, 1], steps)
    return rotations(_descended(torch.stack(columns, 1), lambda parts: moments.losses(rotations(parts)).mean()))


def _descended(start: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    leaf = start.clone().requires_grad_()
    rule = torch.optim.LBFGS([leaf], 1.0, ROUNDS, 4 * ROUNDS, 1e-12, 0.0, 30, "strong_wolfe")

    def closure() -> Tensor:
        rule.zero_grad()
        value = loss(leaf)
        value.backward()
        return value.detach()

    rule.step(closure)
    return leaf.detach()
