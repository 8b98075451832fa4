"""A pretrained learner of tables: the training rows are its prompt, and nothing is trained.

Rows that are asked for come in blocks of ``BLOCK``, the last one filled up. Products of other shapes are summed in
another order; of these shapes a row's are rounded alike, alone and in company.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol, cast, get_args

import numpy as np
import torch
from torch import Tensor

from innergrad.errors import InputError, integer, one_of
from innergrad.estimators.design import Scale
from innergrad.estimators.engines.base import Engine, Numbers, Table
from innergrad.estimators.engines.contexts import Contexts, Limits, Member, Way
from innergrad.estimators.engines.groupings import GROUPINGS, combined, groupings
from innergrad.estimators.held_out import by_lacking, parts

MOST_CLASSES = 10
LARGEST_WHOLE = 2.0**24  # that float32 has with all whole numbers below it
MOST_KEPT = 20_000  # rows whose answers are kept
BLOCK = 32  # rows that are asked for
PARTS = 5  # held out, to calibrate
GRID = np.array([0.001, 0.003, *np.arange(1, 100) / 100, 0.997, 0.999])  # that held-out labels are compared with
FIRST, SELDOM = 3, 0.25  # columns are left out for rows that lack them: the first, if fewer of all rows lack them
LEFT_OUT = 3  # columns, at most, for a row
BELIEVED = 20  # held-out rows that the learner's own quantiles count as


class Answer(Protocol):
    """What a learner says: of numbers ``mean``, ``std`` (B, m) and ``quantile(q)`` (B, m, len(q)); of classes
    ``probabilities`` (B, m, C).
    """

    @property
    def mean(self) -> Tensor: ...
    @property
    def std(self) -> Tensor: ...
    def quantile(self, q: Sequence[float]) -> Tensor: ...
    @property
    def probabilities(self) -> Tensor: ...


class TableLearner(Protocol):
    """Answers for rows k to n - 1 of x (B, n, d), NaN where missing, from y (B, k).

    It may have an attribute ``exchangeable``: True if the order of columns and of classes changes no answer.
    """

    d: int

    def answer(self, x: Tensor, y: Tensor) -> Any: ...


Asked = list[tuple[np.ndarray, list[Answer]]]
TABLES = "tables-"  # so begin the names of the zoo's learners of tables
NOTHING: tuple[bytes, Asked] = (b"", [])


@lru_cache(maxsize=4)
def learner_by_name(name: str) -> TableLearner:
    """From the zoo; once in a process."""
    from innergrad import zoo
    from innergrad.lab.pretrained import load_pretrained

    known = [one for one in zoo.names() if one.startswith(TABLES)]
    if known and name not in zoo.names():
        one_of("unknown learner of tables", name, known)
    if not known:
        hint = "--engine kernel, ridge or gd needs none; --learner takes one of your own"
        raise InputError("this version ships no pretrained learner of tables", got="engine pretrained", hint=hint)
    return cast(TableLearner, load_pretrained(name)[0])


@dataclass
class Pretrained(Engine):
    """``learner``: one's own, or None for ``name`` from the zoo, which is looked up where it is used."""

    name: str
    learner: TableLearner | None = None
    n_estimators: int | None = None
    max_rows: int = 1000
    contexts: Way = "random"
    calibrate: bool = False
    seed: int = 0
    notes: list[str] = field(default_factory=list)

    def fit(self, table: Table) -> None:
        one_of("unknown contexts", self.contexts, get_args(Way))
        learner = self._learner
        _check(learner, "classes" if table.classes else "numbers")
        self.table, self._kept = table, NOTHING
        self.scales = tuple(map(_scale, table.values.T))
        self.scale = Scale() if table.classes else Scale.of(table.y)
        count = None if self.n_estimators is None else integer("n_estimators", self.n_estimators)
        limits = Limits(
            integer("max_rows", self.max_rows, low=2),
            learner.d,
            count,
            self.contexts,
            bool(getattr(learner, "exchangeable", False)),
            self.seed,
        )
        self.chosen = Contexts.choose(table, limits)
        self.notes += self.chosen.notes
        if table.classes > MOST_CLASSES:
            self.notes.append(
                f"{table.classes} classes are more than the learner's {MOST_CLASSES}: it is asked for {MOST_CLASSES} "
                f"groups of them, {GROUPINGS} times, and the answers are put together"
            )
        lacking = np.isnan(table.values).mean(0)
        self.told = (lacking > 0.0) & ((np.arange(len(lacking)) >= FIRST) | (lacking >= SELDOM))
        self.levels_seen = self._held_out_levels() if self.calibrate and not table.classes else None

    @property
    def _learner(self) -> TableLearner:
        return learner_by_name(self.name) if self.learner is None else self.learner

    # ---------------------------------------------------------------------------------------------------------- answers

    def numbers(self, values: np.ndarray, q: Sequence[float]) -> Numbers:
        if self.levels_seen is not None and len(q):
            q = np.quantile(self.levels_seen, q, method="linear").clip(0.001, 0.999).tolist()
        return self._numbers(values, q)

    def _numbers(self, values: np.ndarray, q: Sequence[float]) -> Numbers:
        found = np.empty((len(values), 2 + len(q)))
        for rows, answers in self._asked(values):
            found[rows] = np.mean([_read(answer, q)[: len(rows)] for answer in answers], axis=0)
        mean, std, quantiles = found[:, 0], found[:, 1], found[:, 2:]
        return Numbers(self.scale.back(mean), self.scale.spread(std), self.scale.back(quantiles))

    def _asked(self, values: np.ndarray) -> Asked:
        """Rows, and what the members of their group say. The last answers are kept: who asks for means often asks for
        intervals of the same rows next.
        """
        key, kept = blake2b(values.tobytes()).digest(), self._kept
        if kept[0] != key:
            kept = (
                key,
                [
                    (rows, [self._ask(member, values[rows]) for member in members])
                    for rows, members in self._members(values)
                ],
            )
            self._kept = kept if len(values) <= MOST_KEPT else NOTHING
        return kept[1]

    def _members(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, list[Member]]]:
        """Places of rows, and the members that answer for them.

        A column that a row lacks is left out of its prompts: the row is predicted from the others. With the column, the
        learner would have to guess what the lack means; its answers are then farther off, and too sure. But every set
        of columns is a pass of its own. So this is done for columns that no row of the table lacks, and for the most
        relevant ones, unless many rows lack them: those say what the lack means. (Columns come in that order.)
        """
        for rows, members in self.chosen.of(values):
            lacks = np.isnan(values[rows]) & ~self.told
            lacks &= lacks.cumsum(1) <= LEFT_OUT
            for left_out, some in by_lacking(np.where(lacks, np.nan, 0.0)):
                yield rows[some], [member.without(left_out) for member in members]

    def _ask(self, member: Member, values: np.ndarray) -> Answer:
        labels = self.scale.there(self.table.y[member.rows])
        answer: Answer = self._learner.answer(self._prompt(member, values), self._there(labels))
        return answer

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": NOTHING}

    def probabilities(self, values: np.ndarray) -> np.ndarray:
        found = np.empty((len(values), self.table.classes))
        for rows, members in self._members(values):
            found[rows] = np.mean([self._chances(member, values[rows]) for member in members], axis=0)
        normalised: np.ndarray = found / found.sum(1, keepdims=True)
        return normalised

    def _chances(self, member: Member, values: np.ndarray) -> np.ndarray:
        """(m, classes), by one prompt, or by one for each grouping of the classes."""
        y, classes = self.table.y[member.rows], self.table.classes
        present, labels = np.unique(y, return_inverse=True)
        found = np.zeros((len(values), classes))
        if len(present) == 1:
            found[:, present] = 1.0
        elif len(present) <= MOST_CLASSES:
            codes = (labels + member.shift) % len(present)
            chances = self._class_answer(member, values, codes, len(present))
            found[:, present] = chances[:, (np.arange(len(present)) + member.shift) % len(present)]
        else:
            found[:, present] = self._by_groups(member, values, labels)
        return found

    def _by_groups(self, member: Member, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Classes are numbered by their first rows, so their names play no part."""
        _, first = np.unique(labels, return_index=True)
        place = first.argsort().argsort()
        numbers, of = place[labels], groupings(len(first), MOST_CLASSES, self.seed)
        answers = np.stack([self._class_answer(member, values, group[numbers], MOST_CLASSES) for group in of])
        return combined(answers, of, np.bincount(numbers) / len(numbers))[:, place]

    def _class_answer(self, member: Member, values: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
        answer: Answer = self._learner.answer(self._prompt(member, values), self._there(labels))
        return answer.probabilities[0, : len(values), :classes].double().cpu().numpy()

    def _prompt(self, member: Member, values: np.ndarray) -> Tensor:
        """(1, k + m, d): the member's rows, then those that are asked for; columns that are not there are NaN."""
        values = np.concatenate([values, np.repeat(values[-1:], -len(values) % BLOCK, 0)])
        x = np.full((len(member.rows) + len(values), self._learner.d), np.nan)
        for place, (column, codes) in enumerate(zip(member.columns, member.codes, strict=True)):
            cells = np.concatenate([self.table.values[member.rows, column], values[:, column]])
            x[:, place] = self.scales[column].there(cells) if codes is None else _renamed(cells, codes)
        return self._there(x)

    def _there(self, values: np.ndarray) -> Tensor:
        """(1, ...) float32, where the learner is: on the GPU, if it was put there."""
        weights: Iterable[Tensor] = getattr(self._learner, "parameters", tuple)()
        device = next((parameter.device for parameter in weights), torch.device("cpu"))
        return torch.from_numpy(values.astype(np.float32))[None].to(device)

    # ------------------------------------------------------------------------------------------------------ calibration

    def _held_out_levels(self) -> np.ndarray:
        """The level of every held-out label in its predicted distribution. Of an honest learner they are uniform."""
        held = parts(len(self.table), PARTS, self.seed)
        found = []
        for part in range(held.max() + 1):
            inside = replace(self, calibrate=False, notes=[])
            inside.fit(self.table.rows(np.flatnonzero(held != part)))
            shown = self.table.rows(np.flatnonzero(held == part))
            quantiles = inside._numbers(shown.values, GRID.tolist()).quantiles
            found += [float(np.interp(y, row, GRID)) for y, row in zip(shown.y, quantiles, strict=True)]
        self.notes.append(f"quantiles are calibrated on held-out rows, in {held.max() + 1} parts")
        return np.array([*found, *((np.arange(BELIEVED) + 0.5) / BELIEVED)])


def _check(learner: TableLearner, wanted: str) -> None:
    if not callable(getattr(learner, "answer", None)):
        allowed = "a learner of tables, such as lab.TableConfig makes"
        raise InputError("the learner cannot answer", got=type(learner).__name__, allowed=allowed)
    labels = getattr(getattr(learner, "config", None), "labels", wanted)
    if labels != wanted:
        raise InputError("the learner answers with other labels", got=labels, allowed=wanted)


def _scale(column: np.ndarray) -> Scale:
    """So that float32 keeps the digits that differ. Whole numbers stay whole, which tells the learner something."""
    seen = column[~np.isnan(column)]
    whole = bool((seen == seen.round()).all()) and float(np.abs(seen).max(initial=0.0)) <= LARGEST_WHOLE
    return Scale() if whole else Scale.of(column)


def _read(answer: Answer, q: Sequence[float]) -> np.ndarray:
    """(m, 2 + len(q)): mean, std, quantiles, on the scale of the labels."""
    found = [answer.mean[0, :, None], answer.std[0, :, None]]
    found += [answer.quantile(list(q))[0]] if len(q) else []
    return torch.cat([part.double().cpu() for part in found], -1).numpy()


def _renamed(cells: np.ndarray, codes: np.ndarray) -> np.ndarray:
    found = np.full(len(cells), np.nan)
    there = ~np.isnan(cells)
    found[there] = codes[cells[there].astype(int)]
    return found
