"""How the rows of a table come about: one number for each row and each of its nodes, correlated in some way.

A *node* is a quantity that a row has, whether or not the table shows it. The first d nodes become the columns. The last
ones are left for the label: ``NodeFunction`` makes it from one of them. So where rows are a network of causes, a label
can be a cause of some columns and an effect of others.

Given what a table has drawn once, rows are independent of one another, except those of panels and walks, which share
groups and times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from innergrad.config import Family
from innergrad.errors import integer, lacks
from innergrad.lab.tasks.tables.base import Draws, Weighted, columns_of, gumbel, rows_of, select, standard


@dataclass(frozen=True)
class Rows(Weighted, Family):
    """How rows come about. Subclass it to write your own.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        """(B, n, nodes): numbers of any size; they are scaled later."""
        raise lacks(self, "draw(draws, n, nodes)")


@dataclass(frozen=True)
class IndependentRows(Rows, kind="independent"):
    """Nodes that have nothing to do with one another: designed experiments, and the easiest case.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        return draws.normal(n, nodes)


@dataclass(frozen=True)
class FactorRows(Rows, kind="factors"):
    """A few hidden factors behind all nodes, from hardly correlated to nearly collinear.

    Args:
        weight: how often it is taken.
        factors: how many at most.
    """

    factors: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("factors", self.factors, high=100)

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        return correlated(draws, n, nodes, self.factors)


@dataclass(frozen=True)
class EquationRows(Rows, kind="equations"):
    """Structural equations: every node is a function of nodes above it, plus noise of its own.

    Nodes are in layers. A node has a few parents in the layer above, one of several shapes (straight, bent, stepped,
    wavy, squared), and noise of its own size. The table shows some of the nodes of all layers.

    Args:
        weight: how often it is taken.
        layers: of nodes.
        width: nodes of a layer.
    """

    layers: int = 4
    width: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("layers", self.layers, high=100)
        integer("width", self.width, high=1000)

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        width = max(self.width, math.ceil(nodes / self.layers))
        places = torch.arange(width, device=draws.index.device)
        roots = draws.log_between(1.0, width)[:, None, None]
        layer, found = draws.normal(n, width) * (places < roots), []
        density = draws.log_between(1.5 / width, 0.6)[:, None, None]
        for _ in range(self.layers):
            layer = self._effects(draws, layer, density)
            found.append(layer)
        return columns_of(torch.cat(found, 2), draws.order(width * self.layers)[:, :nodes])

    def _effects(self, draws: Draws, causes: Tensor, density: Tensor) -> Tensor:
        """(B, n, width): the nodes below these."""
        n, width = causes.shape[1:]
        weights = draws.normal(width, width) * draws.chance(density, width, width)
        weights = weights + torch.diag_embed(draws.normal(width))
        drive = standard(causes @ weights)
        shapes = [drive, torch.tanh(3.0 * drive), drive.relu(), drive.square(), torch.sin(2.0 * drive), drive]
        which = (len(shapes) * draws.uniform(width)).long()[:, None, :]
        size = draws.log_between(0.02, 0.7, width)[:, None, :]
        effect = standard(select(shapes, which))
        return (1.0 - size.square()).sqrt() * effect + size * draws.normal(n, width)


@dataclass(frozen=True)
class ClusterRows(Rows, kind="clusters"):
    """Rows of several sorts, each with its own centre and spread, such as species.

    Args:
        weight: how often it is taken.
        clusters: how many sorts at most.
    """

    clusters: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("clusters", self.clusters, low=2, high=1000)

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        most = self.clusters
        count = draws.between(2.0, most + 1.0)[:, None]
        common = draws.normal(most).masked_fill(torch.arange(most, device=count.device) >= count, -math.inf)
        which = (common[:, None, :] + gumbel(draws.uniform(n, most))).argmax(-1)
        apart = 1.0 - draws.uniform(1, nodes) ** 3  # the share of a node's variance that is between clusters
        within = correlated(draws, n, nodes, 2)
        spread = draws.log_between(0.4, 2.0, most).gather(1, which)[:, :, None]
        centre = rows_of(draws.normal(most, nodes), which)
        return apart.sqrt() * centre + (1.0 - apart).sqrt() * spread * within


@dataclass(frozen=True)
class PanelRows(Rows, kind="panel"):
    """Groups observed at several times: states and years, firms and quarters.

    A node has a part that all rows of a group share, a part that all rows of a time share (with a trend), and a part of
    its own. Some nodes belong to the group or to the time alone.

    Args:
        weight: how often it is taken.
        groups: how many at most.
        times: how many at most.
    """

    groups: int = 50
    times: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("groups", self.groups, low=2, high=10_000)
        integer("times", self.times, low=2, high=10_000)

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        group = draws.below(draws.log_between(3.0, self.groups + 1.0).floor(), n)
        time = draws.below(draws.log_between(2.0, self.times + 1.0).floor(), n)
        groups = correlated(draws, self.groups + 1, nodes, 3)
        drift = draws.normal(1, nodes)
        times = running_sums(draws.normal(self.times + 1, nodes) + drift) / math.sqrt(self.times)
        own = correlated(draws, n, nodes, 3)
        return mixed(draws, [rows_of(groups, group), rows_of(times, time), own])


@dataclass(frozen=True)
class WalkRows(Rows, kind="walk"):
    """Time series, in an order that is not told: random walks, trends and seasons, which move together or do not.

    Args:
        weight: how often it is taken.
    """

    def draw(self, draws: Draws, n: int, nodes: int) -> Tensor:
        walk = standard(running_sums(correlated(draws, n, nodes, 2)))
        time = torch.linspace(-math.sqrt(3.0), math.sqrt(3.0), n, device=walk.device)[None, :, None]
        trend = time * torch.ones_like(walk)
        pace, phase = draws.log_between(1.0, 40.0, 1, nodes), draws.between(0.0, 2 * math.pi, 1, nodes)
        season = torch.sin(pace * time + phase)
        own = correlated(draws, n, nodes, 2)
        return rows_of(mixed(draws, [walk, trend, season, own]), draws.order(n))


# ------------------------------------------------------------------------------------------------------------- formulas


def running_sums(x: Tensor) -> Tensor:
    """Sums over the rows so far, (B, n, m). A product: torch.compile has no sound code for long sums on a GPU."""
    return x.new_ones(x.shape[1], x.shape[1]).tril() @ x


def correlated(draws: Draws, n: int, nodes: int, factors: int) -> Tensor:
    """(B, n, nodes): normal numbers of variance 1 with ``factors`` common factors, the later ones weaker.

    A node has the share h of its variance from the factors. How large h can be differs from table to table.
    """
    fade = draws.between(0.2, 1.0)[:, None, None] ** torch.arange(factors, device=draws.index.device)
    loadings = draws.normal(nodes, factors) * fade
    loadings = loadings / loadings.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-6)
    share = draws.uniform().sqrt()[:, None, None] * draws.uniform(1, nodes).sqrt()
    common = draws.normal(n, factors) @ loadings.mT
    return (0.995 * share).sqrt() * common + (1.0 - 0.995 * share).sqrt() * draws.normal(n, nodes)


def mixed(draws: Draws, parts: list[Tensor]) -> Tensor:
    """(B, n, nodes): each node a sum of these parts, by random shares of its variance, of which many are next to 0."""
    nodes = parts[0].shape[2]
    shares = draws.uniform(len(parts), 1, nodes) ** 4 + 1e-4
    shares = (shares / shares.sum(1, keepdim=True)).sqrt()
    total = torch.zeros_like(parts[0])
    for number, part in enumerate(parts):
        total = total + shares[:, number] * part
    return total
