"""The functions behind the labels. Each family gives m functions of a table's columns at once, one for each output.

A number as label needs one output; a vector needs one for each of its numbers, and classes one for each class. Results
may have any size; they are scaled later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.config import Family
from innergrad.errors import integer, lacks
from innergrad.lab.tasks.tables.base import Draws, Weighted, check_share, columns_of, rows_of, select, standard


@dataclass(frozen=True)
class Sheet:
    """Tables while they are made: all that a function may look at.

    Columns are still in the order in which they matter: the first ``matter`` of a table have an effect, the others have
    none. They are shuffled at the very end.

    Attributes:
        values: (B, n, d): the meanings of the columns, with mean 0 and deviation 1; zero where they do not matter.
        importance: (B, d): how much a column matters, with squares that sum to 1; zero where it does not.
        matter: (B,): how many columns do.
        shown: (B, n, d): the columns as the table shows them, before units.
        nodes: (B, n, m): nodes of the rows that the table does not show.
    """

    values: Tensor
    importance: Tensor
    matter: Tensor
    shown: Tensor
    nodes: Tensor


@dataclass(frozen=True)
class Function(Weighted, Family):
    """A family of functions. Subclass it to write your own.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.

    Examples:
        >>> import dataclasses, torch
        >>> from innergrad import lab
        >>> @dataclasses.dataclass(frozen=True)
        ... class Nearest(lab.tables.Function, kind="a-nearest"):
        ...     def draw(self, draws, sheet, outputs):
        ...         centre = draws.normal(outputs, sheet.values.shape[2])
        ...         return -torch.cdist(sheet.values, centre)
        >>> task = lab.TableRegression(d=3, functions=(Nearest(weight=2.0),))
        >>> tuple(task.sample(lab.CounterRNG.of(0), torch.arange(2), n=5).y.shape)
        (2, 5)
    """

    quiet: float = 0.08

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("quiet", self.quiet)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        """(B, n, outputs)."""
        raise lacks(self, "draw(draws, sheet, outputs)")


@dataclass(frozen=True)
class LinearFunction(Function, kind="linear"):
    """A weighted sum of the columns that matter. Sparse, where few of many columns do.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
    """

    quiet: float = 0.25

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d = sheet.values.shape[2]
        return sheet.values @ (draws.normal(d, outputs) * sheet.importance[:, :, None])


@dataclass(frozen=True)
class AdditiveFunction(Function, kind="additive"):
    """A sum of curves, one for each column: saturating, bent, U-shaped, stepped or wavy.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
        pieces: of a curve, which is their sum.
    """

    pieces: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("pieces", self.pieces, high=100)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d = sheet.values.shape[2]
        units = d * self.pieces
        repeated = sheet.values.repeat_interleave(self.pieces, 2)
        steep = draws.log_between(0.3, 3.0, 1, units) * (1.0 - 2.0 * draws.chance(0.5, 1, units).float())
        at = steep * (repeated - draws.normal(1, units))
        shapes = [torch.tanh(at), at.relu(), 1.0 / (1.0 + at.square()), (at > 0.0).float(), torch.sin(at), repeated]
        which = (len(shapes) * draws.uniform(1, units)).long()
        importance = sheet.importance.repeat_interleave(self.pieces, 1)[:, :, None]
        return standard(select(shapes, which)) @ (draws.normal(units, outputs) * importance)


@dataclass(frozen=True)
class NetworkFunction(Function, kind="network"):
    """Random networks of one to three hidden layers, with one of five activations.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
        width: of hidden layers.
        layers: hidden layers at most.
    """

    width: int = 24
    layers: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("width", self.width, high=10_000)
        integer("layers", self.layers, high=100)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d, width = sheet.values.shape[2], self.width
        depth = (self.layers * draws.uniform() ** 1.5).long()[:, None, None]
        activation = (5.0 * draws.uniform()).long()[:, None, None]
        steep = draws.log_between(0.2, 1.8)[:, None, None]
        first = draws.normal(d, width) * sheet.importance[:, :, None]
        layer = _activate(steep * (sheet.values @ first + draws.normal(1, width)), activation)
        last = layer
        for number in range(1, self.layers):
            weights = draws.normal(width, width) / math.sqrt(width)
            layer = _activate(steep * (standard(layer) @ weights + draws.normal(1, width)), activation)
            last = torch.where(depth == number, layer, last)
        return standard(last) @ draws.normal(width, outputs)


def _activate(values: Tensor, which: Tensor) -> Tensor:
    smooth = torch.nn.functional.softplus(values)
    shapes = [torch.tanh(values), values.relu(), torch.sin(values), smooth, (-0.5 * values.square()).exp()]
    return select(shapes, which)


@dataclass(frozen=True)
class TreeFunction(Function, kind="tree"):
    """A decision tree, or a sum of several. Cuts are at values of the table's own rows.

    From node v a value above the cut goes to node 2v + 2, any other to node 2v + 1. Every node adds to the result, and
    deeper ones add less.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
        trees: how many at most.
        depth: of a tree at most.
    """

    trees: int = 6
    depth: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("trees", self.trees, high=1000)
        integer("depth", self.depth, high=12)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        count, inner = self.trees, 2**self.depth - 1
        feature, cut = self._questions(draws, sheet, count * inner)
        n, first = sheet.values.shape[1], torch.arange(count, device=feature.device) * inner
        node = torch.zeros(len(feature), n, count, dtype=torch.int64, device=feature.device)
        for _ in range(self.depth):
            asked = (first + node).flatten(1)
            value = sheet.values.gather(2, feature.gather(1, asked).view_as(node))
            node = 2 * node + 1 + (value > cut.gather(1, asked).view_as(node))
        leaf = node - inner + torch.arange(count, device=feature.device) * 2**self.depth
        leaves = self._leaves(draws, outputs).flatten(1, 2)
        found = rows_of(leaves, leaf.flatten(1))
        return found.view(-1, n, count, outputs).sum(2)

    def _questions(self, draws: Draws, sheet: Sheet, count: int) -> tuple[Tensor, Tensor]:
        """The columns that nodes ask for, some more often than others, and the cuts, (B, count) each."""
        n, d = sheet.values.shape[1:]
        lean = draws.between(1.0, 3.0)[:, None]
        feature = (draws.uniform(count) ** lean * sheet.matter[:, None]).long().clamp(max=d - 1)
        row = draws.below(torch.full_like(draws.index, n), count)
        return feature, sheet.values.flatten(1).gather(1, row * d + feature)

    def _leaves(self, draws: Draws, outputs: int) -> Tensor:
        """(B, trees, 2^depth, outputs): what the nodes on the way to a leaf add, in the trees that a table has."""
        total = torch.zeros(1, 1, 1, 1, device=draws.index.device)
        depth = draws.between(1.0, self.depth + 1.0)[:, None, None, None]
        fade = draws.between(0.5, 1.1)[:, None, None, None]
        for level in range(1, self.depth + 1):
            added = draws.normal(self.trees, 2**level, outputs) * fade**level * (level <= depth)
            total = total + added.repeat_interleave(2 ** (self.depth - level), 2)
        here = torch.arange(self.trees, device=depth.device) < draws.between(0.001, self.trees)[:, None]
        return total * here[:, :, None, None]


@dataclass(frozen=True)
class ProcessFunction(Function, kind="process"):
    """Draws of a Gaussian process, by random waves: smooth or rough, slow or fast.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
        waves: of a function, which is their sum.
    """

    waves: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("waves", self.waves, high=10_000)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d, waves = sheet.values.shape[2], self.waves
        pace = draws.log_between(0.1, 2.0)[:, None, None]
        rough = draws.uniform()[:, None, None]  # 0: all waves are as fast; 1: a few are much faster
        spread = (-draws.uniform(1, waves).clamp(min=1e-3).log()).rsqrt().clamp(max=10.0) ** rough
        directions = draws.normal(d, waves) * sheet.importance[:, :, None]
        phases = draws.between(0.0, 2.0 * math.pi, 1, waves)
        return torch.cos(pace * spread * (sheet.values @ directions) + phases) @ draws.normal(waves, outputs)


@dataclass(frozen=True)
class ProductFunction(Function, kind="product"):
    """A sum of products of two or three columns, beside their own effects: interactions.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
        terms: products in the sum.
    """

    terms: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("terms", self.terms, high=1000)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d, terms = sheet.values.shape[2], self.terms
        which = draws.below(sheet.matter, 3 * terms)
        first, second, third = columns_of(sheet.values, which).unflatten(2, (3, terms)).unbind(2)
        third = torch.where(draws.chance(0.3, 1, terms), third, 1.0)
        products = (first * second * third).clamp(-20.0, 20.0) @ draws.normal(terms, outputs)
        own = sheet.values @ (draws.normal(d, outputs) * sheet.importance[:, :, None])
        return standard(products) + draws.log_between(0.1, 3.0)[:, None, None] * standard(own)


@dataclass(frozen=True)
class NodeFunction(Function, kind="node"):
    """A node of the rows themselves: a cause or an effect of the columns, or one that shares their groups and times.

    The columns that matter have a straight effect beside it, in most tables.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
    """

    quiet: float = 0.3  # such a node has noise of its own

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d = sheet.values.shape[2]
        own = sheet.values @ (draws.normal(d, outputs) * sheet.importance[:, :, None])
        share = draws.chance(0.6) * draws.log_between(0.2, 5.0)
        return sheet.nodes[:, :, :outputs] + share[:, None, None] * standard(own)


@dataclass(frozen=True)
class AccountFunction(Function, kind="account"):
    """Sums and differences of a few columns as they are shown: totals, balances. Mostly without noise.

    Args:
        weight: how often it is taken.
        quiet: the share of its tables whose labels have next to no noise.
        items: columns in a sum at most.
    """

    quiet: float = 0.6
    items: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("items", self.items, high=1000)

    def draw(self, draws: Draws, sheet: Sheet, outputs: int) -> Tensor:
        d = sheet.shown.shape[2]
        items = torch.minimum(draws.between(1.0, self.items + 1.0), sheet.matter.float())
        there = torch.arange(d, device=items.device)[:, None] < items[:, None, None]
        signs = 1.0 - 2.0 * draws.chance(0.25, d, outputs).float()
        return sheet.shown @ (signs * there)
