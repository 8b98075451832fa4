"""What a learner of tables sees of a table: numbers without units, from statistics of the demonstrations alone.

    cell      z-score in its column, rank in its column from -1 to 1, and whether it is there at all
    column    a few statistics, and a tag: sines of random combinations of them
    label     z-score and rank, or one of ten classes
    guess     what plain methods say about a row's label: ``table_guesses``

A column's tag tells columns apart. It is a function of the column's demonstrations, not of the column's place, so the
order of columns changes nothing. Two equal columns have equal tags.

A cell that is NaN or infinite is missing. A column is there if a demonstration has a number in it.

Shapes: N prompts, n rows, d columns. ``shown`` (N, n): the rows that are demonstrations.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

MOST_Z = 6.0  # z-scores beyond are cut
FLAT = 16.0  # roundings of its mean: values that spread by less are equal
STATISTICS, STRENGTH = 10, 6  # of a column; the place of how it goes with the labels
CUT, ROUNDS = 4.0, 2  # the scale of labels: what is beyond so many standard deviations is moved there, so many times


class Seen(NamedTuple):
    """A table without units. ``z``, ``rank``, ``there`` (N, n, d); ``columns`` (N, d, STATISTICS); ``levels`` (N, d,
    10), of labels that are classes, the mean z-score in each class, or (N, d, 0); ``present`` (N, d); ``guess`` (N, n,
    g), what plain methods say, or (N, n, 0).
    """

    z: Tensor
    rank: Tensor
    there: Tensor
    columns: Tensor
    levels: Tensor
    present: Tensor
    guess: Tensor


def seen(x: Tensor, shown: Tensor, codes: Tensor, classes: bool) -> Seen:
    """The table x (N, n, d) as the learner sees it. codes: of the labels, see below."""
    there = x.isfinite()
    used = there & shown[..., None]
    count = used.sum(1)  # (N, d)
    x = torch.where(there, x, 0.0)
    whole = ((x == x.round()) | ~used).all(1)
    x = x / torch.where(used, x.abs(), 0.0).amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    mean, spread = moments(x, used)
    flat = equal(mean, spread)
    z = (x - mean[:, None]) / torch.where(flat, 1.0, spread)[:, None]
    z = torch.where(there & ~flat[:, None], z, 0.0).clamp(-MOST_Z, MOST_Z).float()
    rank, distinct = ranked(x, used, count)
    rank = torch.where(there, rank, 0.0).float()
    columns = statistics(z, rank, used, count, shown, distinct, whole, codes, classes)
    levels = _levels(z, used, codes if classes else codes[..., :0])
    return Seen(z, rank, there, columns, levels, count > 0, z[..., :0])


def moments(x: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the cells that are used, along the rows: (N, n, ...) -> (N, ...)."""
    count = used.sum(1).clamp(min=1)
    mean = torch.where(used, x, 0.0).sum(1) / count
    return mean, (torch.where(used, x - mean[:, None], 0.0).square().sum(1) / count).sqrt()


def ranked(x: Tensor, used: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks of x (N, n, d) among the cells that are used, from -1 to 1, ties in the middle; how many values there are.

    A rank is the share of used cells below minus the share above.
    """
    values = x.transpose(1, 2).contiguous()
    known = torch.where(used, x, torch.inf).transpose(1, 2).contiguous().sort(-1).values  # missing ones at the end
    most = count.clamp(min=1)[..., None]
    below = torch.searchsorted(known, values).minimum(most)
    upto = torch.searchsorted(known, values, right=True).minimum(most)
    rank = ((below + upto).to(x.dtype) / most - 1.0).transpose(1, 2)
    place = torch.arange(1, known.shape[-1], device=x.device)
    rises = (known[..., 1:] > known[..., :-1]) & (place < count[..., None])
    return rank, 1 + rises.sum(-1)


def statistics(
    z: Tensor,
    rank: Tensor,
    used: Tensor,
    count: Tensor,
    shown: Tensor,
    distinct: Tensor,
    whole: Tensor,
    codes: Tensor,
    classes: bool,
) -> Tensor:
    """(N, d, STATISTICS): about -1 to 1, each the same for any order of rows."""
    most = count.clamp(min=1).float()
    rows = shown.sum(1).clamp(min=1)[:, None]

    def average(value: Tensor) -> Tensor:
        return torch.where(used, value, 0.0).sum(1) / most

    alone = (
        distinct.float().log() / (most + 1.0).log(),
        1.0 / distinct.float(),
        whole.float(),
        1.0 - count / rows,
        (average(z**3) / 3.0).tanh(),
        (average(z**4) / 9.0).tanh(),
    )
    return torch.stack((*alone, *_with_labels(z, rank, used, most, codes, classes)), -1)


def _with_labels(
    z: Tensor, rank: Tensor, used: Tensor, most: Tensor, codes: Tensor, classes: bool
) -> tuple[Tensor, ...]:
    """How a column goes with the labels, four times (N, d): correlations, or the shares of the spread that is between
    classes, which do not depend on the names of the classes.
    """
    kinds = torch.stack([torch.where(used, value, 0.0) for value in (z, rank, z.square() - 1.0)], 2)  # (N, n, 3, d)

    def against(labels: Tensor) -> Tensor:
        return torch.einsum("nrkd,nrc->nkdc", kinds, labels) / most[:, None, :, None]

    if classes:
        chance = codes.sum(1, keepdim=True) / codes.sum((1, 2), keepdim=True).clamp(min=1.0)
        between = against((codes - chance) / chance.clamp(min=1e-3).sqrt()).square().sum(-1).sqrt()
        return (*between.unbind(1), between.mean(1))
    label, place = codes.unbind(-1)
    found = against(torch.stack((label, place, label.square() - 1.0), -1))
    return found[:, 0, :, 0], 3.0 * found[:, 1, :, 1], found[:, 0, :, 2].tanh(), found[:, 2, :, 0].tanh()


def _levels(z: Tensor, used: Tensor, codes: Tensor) -> Tensor:
    """The mean z-score of a column's cells in each class, (N, d, classes); 0 in a class without one."""
    sums = torch.einsum("nrd,nrc->ndc", torch.where(used, z, 0.0), codes)
    return sums / torch.einsum("nrd,nrc->ndc", used.to(z.dtype), codes).clamp(min=1.0)


# -------------------------------------------------------------------------------------------------------------- labels


def location_scale(y: Tensor, shown: Tensor) -> tuple[Tensor, Tensor]:
    """Of the demonstrations' labels, each (N,). Labels far out are moved in first; equal labels have the scale 0."""
    mean, spread = moments(y, shown)
    for _ in range(ROUNDS):
        reach = CUT * spread
        near = y.maximum((mean - reach)[:, None]).minimum((mean + reach)[:, None])
        mean, spread = moments(near, shown)
    return mean, torch.where(equal(mean, spread), 0.0, spread)


def equal(mean: Tensor, spread: Tensor) -> Tensor:
    """Whether a spread around a mean is nothing but rounding."""
    return spread <= FLAT * torch.finfo(mean.dtype).eps * mean.abs()


def number_codes(y: Tensor, shown: Tensor, location: Tensor, scale: Tensor) -> Tensor:
    """(N, n, 2): z-score and rank of the demonstrations' labels, 0 for other rows."""
    z = (y - location[:, None]) / torch.where(scale > 0, scale, 1.0)[:, None]
    rank, _ = ranked(z[..., None], shown[..., None], shown.sum(1)[:, None])
    both = torch.stack((z.clamp(-MOST_Z, MOST_Z), rank[..., 0]), -1)
    return torch.where((shown & (scale > 0)[:, None])[..., None], both, 0.0).float()


def class_codes(y: Tensor, shown: Tensor, classes: int) -> Tensor:
    """(N, n, classes): 1 at the class of a demonstration, 0 elsewhere."""
    return ((y[..., None] == torch.arange(classes, device=y.device)) & shown[..., None]).float()


def in_order(table: Seen, codes: Tensor) -> tuple[Seen, Tensor, Tensor]:
    """Classes in an order that does not depend on their names: the frequent first; of equally frequent ones, the one
    whose rows have larger z-scores. Also (N, classes), the names in this order.
    """
    larger = torch.where(table.present[..., None], table.levels, 0.0).mean(1).tanh()
    names = (codes.sum(1) + 0.4 * larger).argsort(1, descending=True)
    codes = codes.gather(2, names[:, None].expand_as(codes))
    levels = table.levels.gather(2, names[:, None].expand_as(table.levels))
    return table._replace(levels=levels), codes, names
