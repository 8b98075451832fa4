"""What plain methods say about the labels of a table: inputs of a learner of tables.

    ridge regression on the z-scores, with several penalties
    gradient descent in the space of a Gaussian kernel, f <- f + (y - f) K / s: the mean over its first p steps

Both have an intercept that is free. So the fits of the n demonstrations are linear in their labels, y - f = L y, where
L is symmetric and takes a constant to zero. A demonstration's guess leaves its own label out:

    y_i - (L y)_i / L_ii

This number does not change with y_i. Of ridge regression it is the fit to the others (leave-one-out), and of descent
nearly so. So the guesses of demonstrations are about as good as those of queries, and a learner can see how far to
trust them. (The last step of descent, in place of the mean, leaves L next to nothing: its guesses are then far off.)

p = 2^q steps take q doublings. With J = 1 1' / n, the centred kernel C = (I - J) K (I - J), s its largest sum of a row,
and M = I - J - C / s:

    S_p = I + M + ... + M^(p-1),   S_2p = S_p + M^p S_p,       L = S_p / p
    t_p = S_1 y + ... + S_(p-1) y,   t_2p = t_p + p S_p y + M^p t_p,       f = mean(y) + C t_p / (p s)

There are only products and sums, so a step of training holds all of it in a CUDA graph. They are in float64.

Shapes: N prompts, n rows, d columns, c numbers of a label. ``shown`` (N, n): the rows that are demonstrations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PENALTIES = (0.003, 0.05, 0.5, 5.0)  # of ridge regression, for each row
WIDTH = 1.0  # of the kernel
STOPS = (5, 8, 10)  # logarithms of the steps that are averaged
LEAST_FREE = 1e-9  # L_ii below which a guess becomes the mean of the other labels
FLOOR = 0.02  # the relevance of a column that does not go with the labels
TINY = 1e-300
FAR = 6.0  # guesses beyond are cut
SHARP = 8.0  # guesses are mixed by their errors to the power of minus this
NUMBERS, CLASSES = len(PENALTIES) + 2 * len(STOPS), 3  # guesses of a label, without the mixture of them


class Labels(NamedTuple):
    """Labels of demonstrations less their ``middle`` (N, 1, c): ``centred`` (N, n, c), 0 for other rows."""

    centred: Tensor
    middle: Tensor
    shown: Tensor

    @classmethod
    def of(cls, codes: Tensor, shown: Tensor) -> Labels:
        inside = shown[..., None].to(codes.dtype)
        middle = (codes * inside).sum(1, keepdim=True) / shown.sum(1).clamp(min=1)[:, None, None]
        return cls((codes - middle) * inside, middle, shown)

    def guessed(self, fits: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        """From predictions (N, n, c) and L_ii (N, n, 1): guesses, and the mean squares of their errors, (N,)."""
        count = self.shown.sum(1).clamp(min=2)[:, None, None]
        others = self.centred - (self.centred - fits) / free.clamp(min=LEAST_FREE)
        others = torch.where(free > LEAST_FREE, others, -self.centred / (count - 1))
        found = torch.where(self.shown[..., None], others, fits).clamp(-FAR, FAR)
        errors = torch.where(self.shown[..., None], found - self.centred, 0.0).square().sum(1)
        return (found + self.middle).float(), (errors / self.shown.sum(1).clamp(min=1)[:, None]).mean(-1).float()


Guesses = list[tuple[Tensor, Tensor]]


def guessed(
    z: Tensor, present: Tensor, strength: Tensor, codes: Tensor, shown: Tensor, keys: int, classes: bool
) -> Tensor:
    """All guesses of labels (N, n, c): (N, n, g) with g = (guesses + 1) c + guesses + 1. First a mixture of them, in
    which the better ones count more; then all; then how far off they are, and how many demonstrations there are.

    ``strength`` (N, d): how a column goes with the labels, from -1 to 1.
    """
    alike = present / present.sum(1, keepdim=True).clamp(min=1)
    by_relevance = relevance(present, strength, shown)
    if classes:
        found = ridge(z, codes, shown, PENALTIES[1:2]) + descent(z, by_relevance, codes, shown, keys, STOPS[:2])
    else:
        found = ridge(z, codes, shown)
        for weights in (alike, by_relevance):
            found += descent(z, weights, codes, shown, keys)
    values, errors = torch.stack([one for one, _ in found], -1), torch.stack([one for _, one in found], -1)
    shares = (-0.5 * SHARP * errors.clamp(min=1e-6).log()).softmax(-1)
    mixed = (values * shares[:, None, None]).sum(-1)
    count = (shown.sum(1, keepdim=True).clamp(min=1) / 128.0).log()
    about = torch.cat((errors.sqrt().clamp(max=3.0), count), -1)[:, None].expand(-1, z.shape[1], -1)
    return torch.cat((mixed, values.flatten(2), about), -1)


def ridge(z: Tensor, codes: Tensor, shown: Tensor, penalties: tuple[float, ...] = PENALTIES) -> Guesses:
    """Of labels (N, n, c) on z-scores (N, n, d), one guess for each penalty."""
    labels, rows = Labels.of(codes.double(), shown), z.double()
    rows = rows - mean_of(rows, shown)
    known, count = rows * shown[..., None], shown.sum(1).clamp(min=1)[:, None, None]
    added = count * torch.eye(z.shape[-1], device=z.device, dtype=torch.float64)
    whole = known.mT @ known + torch.stack([penalty * added for penalty in penalties])
    turned = inverse(whole.flatten(0, 1)).view_as(whole)
    fits = rows @ (turned @ (known.mT @ labels.centred))
    free = 1.0 - 1.0 / count - ((rows @ turned) * rows).sum(-1, keepdim=True)
    return [labels.guessed(*both) for both in zip(fits, free, strict=True)]


def mean_of(values: Tensor, shown: Tensor) -> Tensor:
    """(N, 1, ...): the mean over the demonstrations of values (N, n, ...)."""
    inside = shown.view(*shown.shape, *[1] * (values.ndim - 2))
    return torch.where(inside, values, 0.0).sum(1, keepdim=True) / shown.sum(1).clamp(min=1).view(-1, 1, 1)


def inverse(matrix: Tensor) -> Tensor:
    """Of positive definite matrices (N, d, d), by Gauss and Jordan."""
    for j in range(matrix.shape[-1]):
        here = torch.arange(matrix.shape[-1], device=matrix.device) == j
        pivot, row, column = matrix[:, j : j + 1, j : j + 1], matrix[:, j : j + 1], matrix[:, :, j : j + 1]
        across, along = torch.where(here, 1.0, row) / pivot, torch.where(here[:, None], 0.0, column)
        matrix = torch.where(here, 0.0, matrix) - along * across
        matrix = torch.where(here[:, None], across, matrix)
    return matrix


def relevance(present: Tensor, strength: Tensor, shown: Tensor) -> Tensor:
    """(N, d): weights of columns that sum to one, from how they go with the labels, (N, d), less what chance gives."""
    chance = 1.0 / shown.sum(1, keepdim=True).clamp(min=1)
    found = torch.where(present, (strength.square() - chance).clamp(min=0.0) + FLOOR, 0.0)
    return found / found.sum(1, keepdim=True).clamp(min=FLOOR)


def descent(
    z: Tensor,
    weights: Tensor,
    codes: Tensor,
    shown: Tensor,
    keys: int,
    stops: tuple[int, ...] = STOPS,
) -> Guesses:
    """Means of gradient descent with the kernel exp(-|z - z'|^2 / (2 WIDTH^2)), the distance weighted by (N, d): one
    guess for each of ``stops``. The first ``keys`` rows may be demonstrations.
    """
    labels, known = Labels.of(codes.double(), shown), shown[:, :keys]
    rows = z.double() * weights.double().sqrt()[:, None]
    squares = rows.square().sum(-1, keepdim=True)
    apart = squares + squares[:, :keys].mT - 2.0 * rows @ rows[:, :keys].mT
    kernel = torch.where(known[:, None], (apart / (-2.0 * WIDTH**2)).clamp(max=0.0).exp(), 0.0)
    kernel = kernel - mean_of(kernel, shown)  # of each column, and then of each row: centred
    kernel = torch.where(known[:, None], kernel - mean_of(kernel.mT, known).mT, 0.0)
    inside = torch.where(known[..., None], kernel[:, :keys], 0.0)
    size = inside.abs().sum(-1).amax(-1).clamp(min=TINY)[:, None, None]
    count = known.sum(1).clamp(min=1)[:, None, None]
    both = known[:, None] & known[..., None]
    start = torch.where(both, torch.eye(keys, device=z.device, dtype=torch.float64) - 1.0 / count, 0.0)  # I - J
    power, sums = start - inside / size, start
    y, total, found = labels.centred[:, :keys], torch.zeros_like(labels.centred[:, :keys]), []
    for doubling in range(max(stops)):
        total = total + 2.0**doubling * (sums @ y) + power @ total
        sums = sums + power @ sums
        power = power @ power
        if doubling + 1 in stops:
            steps = 2.0 ** (doubling + 1)
            free = sums.diagonal(dim1=-2, dim2=-1)[..., None] / steps
            free = torch.nn.functional.pad(free, (0, 0, 0, z.shape[1] - keys))
            found.append(labels.guessed(kernel @ total / (steps * size), free))
    return found
