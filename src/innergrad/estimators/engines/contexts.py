"""Contexts: the rows and columns of a table that a learner sees in one prompt.

A learner takes so many rows and columns. An *ensemble* of contexts is averaged. Its members differ in whatever an
answer should not depend on: the order of columns, the numbers of categories and of classes; and, of a table that is too
large, in the rows or columns that they see. The first has categories in the order of their labels; the second has a
column for each category, where that is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from innergrad.errors import plural
from innergrad.estimators.design import Design
from innergrad.estimators.engines.base import Table
from innergrad.estimators.held_out import some

FEW, MANY = 2, 4  # members, unless the caller says how many: of a small table, and where each sees other rows
PRIOR = 3.0  # rows
APART = range(3, 9)  # categories that may have a column each: two need none
Way = Literal["random", "nearest"]
Codes = tuple[np.ndarray | None, ...]


@dataclass(frozen=True)
class Limits:
    """Of a context: most rows and columns. members: of the ensemble, at the most; None for the default. exchangeable:
    the learner sees no order of columns and classes.
    """

    rows: int
    columns: int
    members: int | None
    way: Way
    exchangeable: bool
    seed: int

    def count(self, table: Table) -> int:
        apart = len(table) > self.rows and self.way == "random"
        return (MANY if apart else FEW) if self.members is None else self.members


@dataclass(frozen=True)
class Member:
    """A context: rows and columns of the table, in the learner's order; a column may be there several times.

    codes: for each of the columns, if it is of categories, the learner's numbers of them. shift: of the numbers of
    classes.
    """

    rows: np.ndarray
    columns: np.ndarray
    codes: tuple[np.ndarray | None, ...]
    shift: int = 0

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, codes: Codes, shift: int = 0) -> Member:
        """codes: for every column of the table."""
        return cls(rows, columns, tuple(codes[column] for column in columns), shift)

    def without(self, left_out: np.ndarray) -> Member:
        """The same without some columns of the table, left_out (d,); as it is if none would be left."""
        places = np.flatnonzero(~left_out[self.columns])
        if len(places) in (0, len(self.columns)):
            return self
        return replace(self, columns=self.columns[places], codes=tuple(self.codes[place] for place in places))

    @property
    def content(self) -> bytes:
        """Members with the same content give the same answer."""
        codes = (one for one in self.codes if one is not None)
        return b"".join(one.tobytes() for one in (self.rows, self.columns, *codes, np.array(self.shift)))


@dataclass(frozen=True)
class Regions:
    """Parts of a large table, by k-means. A column counts by its relevance; weights has one for each of the design."""

    design: Design
    weights: np.ndarray
    centres: np.ndarray

    @classmethod
    def learn(cls, table: Table, count: int, seed: int) -> Regions:
        from sklearn.cluster import KMeans

        design, scores = Design.learn(table.values, table.levels), np.maximum(table.scores, 0.0)
        each = np.sqrt(scores / scores.max()) if scores.max() > 0 else np.ones(len(scores))
        weights = each[[column for column, _ in design.parts]]
        found = KMeans(count, n_init=1, random_state=seed).fit(design(table.values) * weights)
        return cls(design, weights, np.asarray(found.cluster_centers_))

    def distances(self, values: np.ndarray) -> np.ndarray:
        """(regions, rows): squared, to the middle of every region."""
        space = self.design(values) * self.weights
        return np.stack([((space - centre) ** 2).sum(1) for centre in self.centres])


@dataclass(frozen=True)
class Contexts:
    """Groups of members: one for every region, or a single one. notes: what was done, in sentences."""

    groups: list[list[Member]]
    regions: Regions | None
    notes: list[str]

    @classmethod
    def choose(cls, table: Table, limits: Limits) -> Contexts:
        """For the rows of a table, whose columns come in the order of their relevance."""
        rng, notes, count = np.random.default_rng(limits.seed), list[str](), limits.count(table)
        n, d, most = len(table), table.values.shape[1], f"{limits.rows:,}"
        regions, rows = None, [[np.arange(n)] * count]
        if n > limits.rows and limits.way == "random":
            rows = [[_drawn(table, limits.rows, rng) for _ in range(count)]]
            drawn = plural(count, "context")
            notes.append(f"{n:,} rows are more than a context of {most}: {drawn} of rows drawn at random, averaged")
        elif n > limits.rows:
            regions = Regions.learn(table, -(-2 * n // limits.rows), limits.seed)
            by_distance = regions.distances(table.values).argsort(1, kind="stable")
            rows = [[np.sort(near)] * count for near in by_distance[:, : limits.rows]]
            notes.append(
                f"{n:,} rows are more than a context of {most}: the table is cut into {len(rows)} regions, and a "
                f"prediction is made from the {most} rows nearest to the middle of its region"
            )
        if d > limits.columns:
            traded = "" if count == 1 else "; members of the ensemble after the first trade half of them for others"
            notes.append(
                f"{d} columns are more than the learner takes: it sees the {limits.columns} that say most about the "
                f"labels one by one{traded}"
            )
        return cls([_group(table, limits, contexts, rng) for contexts in rows], regions, notes)

    def of(self, values: np.ndarray) -> list[tuple[np.ndarray, list[Member]]]:
        """Places of rows, and the members that answer for them."""
        if self.regions is None:
            return [(np.arange(len(values)), self.groups[0])]
        nearest = self.regions.distances(values).argmin(0)
        return [(np.flatnonzero(nearest == region), self.groups[region]) for region in np.unique(nearest)]


def _drawn(table: Table, most: int, rng: np.random.Generator) -> np.ndarray:
    """Rows at random, with one of every class at least."""
    rows = some(len(table), most, int(rng.integers(2**31)))
    if not table.classes:
        return rows
    lost = np.setdiff1d(table.y, table.y[rows])
    more = [int(rng.choice(np.flatnonzero(table.y == label))) for label in lost]
    return np.sort(np.concatenate([rows[len(more) :], more]).astype(np.intp))


def _group(table: Table, limits: Limits, contexts: list[np.ndarray], rng: np.random.Generator) -> list[Member]:
    """The members that differ. The first sees all as it is, and categories in the order of their labels."""
    found: dict[bytes, Member] = {}
    for number, rows in enumerate(contexts):
        member = _member(table, limits, rows, number, rng)
        found.setdefault(member.content, member)
    return list(found.values())


def _member(table: Table, limits: Limits, rows: np.ndarray, number: int, rng: np.random.Generator) -> Member:
    levels, most = table.levels, limits.columns
    columns, ordered = np.arange(len(levels))[:most], by_labels(table.rows(rows))
    if number == 0:
        return Member.of(rows, columns, ordered)
    if len(levels) > most:
        half = most - most // 2
        columns = np.concatenate([columns[:half], rng.choice(np.arange(half, len(levels)), most - half, False)])
    codes = tuple(None if order is None else rng.permutation(len(order))[order] for order in ordered)
    shift = number
    if limits.exchangeable:
        columns, shift = np.sort(columns), 0
    else:
        columns = rng.permutation(columns)
    found = Member.of(rows, columns, codes, shift)
    return _apart(found, levels, most) if number == 1 else found


def _apart(one: Member, levels: Sequence[int], most: int) -> Member:
    """The same with a column for each category, 1 where a row has it: first of the most telling columns, as long as
    there is room.
    """
    room, split = most - len(one.columns), set[int]()
    for column in sorted(one.columns.tolist()):
        if levels[column] in APART and levels[column] - 1 <= room:
            room -= levels[column] - 1
            split.add(column)
    columns, codes = list[int](), list[np.ndarray | None]()
    for column, code in zip(one.columns.tolist(), one.codes, strict=True):
        each = list(np.eye(levels[column])) if column in split else [code]
        columns += [column] * len(each)
        codes += each
    return replace(one, columns=np.array(columns, dtype=np.intp), codes=tuple(codes))


def by_labels(table: Table) -> Codes:
    """For every column of categories their numbers in the order of the mean labels of their rows. So a line says more
    about them than in an order that means nothing.

    The mean of a category counts as if ``PRIOR`` rows with the mean of all were in it. Of classes, a label is whether
    it is the most frequent one.
    """
    labels = (table.y == np.bincount(table.y.astype(int)).argmax()) if table.classes else table.y
    centred = labels.astype(float) - labels.mean()
    columns = zip(table.values.T, table.levels, strict=True)
    return tuple(_order(column, centred, count) if count else None for column, count in columns)


def _order(column: np.ndarray, centred: np.ndarray, count: int) -> np.ndarray:
    there = np.isfinite(column)
    places = column[there].astype(int)
    means = np.bincount(places, centred[there], count) / (np.bincount(places, minlength=count) + PRIOR)
    return means.argsort(kind="stable").argsort()
