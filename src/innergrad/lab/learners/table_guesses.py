"""What plain methods say about the labels of a table: inputs of a learner of tables.

    ridge regression on the z-scores, with several penalties
    gradient descent in the space of a Gaussian kernel, stopped early:   f <- f + (y - f) K / s

A demonstration's guess leaves its own label out. With H_ii the share of a label in its own prediction f_i, it is

    y_i - (y_i - f_i) / (1 - H_ii)

That is exact for ridge regression (leave-one-out), and near for descent. So the guesses of demonstrations are about as
good as those of queries, and a learner can see how far to trust them.

2^p steps of descent take p products: with M = I - K / s, s the largest sum of a row, the first 2^p steps have

    f = K a,    a = (I + M) (I + M^2) (I + M^4) ... (I + M^(2^(p-1))) y / s,      H = I - M^(2^p)

There are only products and sums, so a step of training holds all of it in a CUDA graph. They are in float64: leaving a
label out divides by small numbers.

Shapes: N prompts, n rows, d columns, c numbers of a label. ``shown`` (N, n): the rows that are demonstrations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PENALTIES = (0.003, 0.05, 0.5, 5.0)  # of ridge regression, for each row
WIDTH = 1.0  # of the kernel
STOPS = (5, 8, 10)  # logarithms of the steps at which descent is looked at
LEAST_FREE = 0.01  # what a demonstration leaves to the others, at the least
FLOOR = 0.02  # the relevance of a column that does not go with the labels
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

    def guessed(self, fits: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """From predictions (N, n, c) and shares H_ii (N, n, 1): guesses, and the mean squares of their errors, (N,)."""
        count = self.shown.sum(1).clamp(min=1)
        others = self.centred - (self.centred - fits) / (1.0 - own - 1.0 / count[:, None, None]).clamp(min=LEAST_FREE)
        found = torch.where(self.shown[..., None], others, fits).clamp(-FAR, FAR)
        errors = torch.where(self.shown[..., None], found - self.centred, 0.0).square().sum(1) / count[:, None]
        return (found + self.middle).float(), errors.mean(-1).float()


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
    rows, labels = z.double(), Labels.of(codes.double(), shown)
    known = rows * shown[..., None]
    added = shown.sum(1).clamp(min=1)[:, None, None] * torch.eye(z.shape[-1], device=z.device, dtype=torch.float64)
    whole = known.mT @ known + torch.stack([penalty * added for penalty in penalties])
    turned = inverse(whole.flatten(0, 1)).view_as(whole)
    fits = rows @ (turned @ (known.mT @ labels.centred))
    own = ((rows @ turned) * rows).sum(-1, keepdim=True)
    return [labels.guessed(*both) for both in zip(fits, own, strict=True)]


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
    """Gradient descent with the kernel exp(-|z - z'|^2 / (2 WIDTH^2)), the distance weighted by (N, d): one guess for
    each of ``stops``. The first ``keys`` rows may be demonstrations.
    """
    labels = Labels.of(codes.double(), shown)
    rows = z.double() * weights.double().sqrt()[:, None]
    squares = rows.square().sum(-1, keepdim=True)
    apart = squares + squares[:, :keys].mT - 2.0 * rows @ rows[:, :keys].mT
    kernel = torch.where(shown[:, None, :keys], (apart / (-2.0 * WIDTH**2)).clamp(max=0.0).exp(), 0.0)
    inside = torch.where(shown[:, :keys, None], kernel[:, :keys], 0.0)
    size = inside.sum(-1).amax(-1).clamp(min=1.0)[:, None, None]
    left = torch.eye(keys, device=z.device, dtype=torch.float64) - inside / size
    sums, found = labels.centred[:, :keys] / size, []
    for doubling in range(1, max(stops) + 1):
        sums = sums + left @ sums
        left = left @ left
        if doubling in stops:
            own = torch.nn.functional.pad(1.0 - left.diagonal(dim1=-2, dim2=-1), (0, z.shape[1] - keys))
            found.append(labels.guessed(kernel @ sums, own[..., None]))
    return found
