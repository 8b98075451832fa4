"""Tables: random tables that look like real ones, for learners that are to be used on real ones.

    nodes   <- rows                        correlated numbers, one for each row and node
    columns <- columns, derived            nodes become numbers, counts, flags, codes ..., squares and sums of others
    signal  <- functions                   of the columns that matter, or a node that the table does not show
    y       <- strength, noises            sqrt(R^2) signal + sqrt(1 - R^2) noise
    labels  <- labels or rules             the number itself, an amount, a count ..., or several of them; or classes
    cells   <- units, missing, shuffle     columns get units, holes, and an order that means nothing

Everything that a table draws is a function of its own index. It is the same in every batch, up to rounding: where a
number is within rounding of a cut, another device may see it on the other side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from innergrad.errors import InputError, integer, lacks, real
from innergrad.lab.counter_rng import CounterRNG
from innergrad.lab.tasks.base import Params, Prompts, Task
from innergrad.lab.tasks.inputs import Gaussian, Inputs
from innergrad.lab.tasks.tables import columns as kinds
from innergrad.lab.tasks.tables import functions as families
from innergrad.lab.tasks.tables import labels as sorts
from innergrad.lab.tasks.tables import noise as shapes
from innergrad.lab.tasks.tables import rows as origins
from innergrad.lab.tasks.tables.base import Draws, check_parts, check_share, columns_of, reweighted, select, standard

MOST_OUTPUTS = 100
FAR_NODE, FAR_NOISE, FAR_LABEL = 5.0, 8.0, 10.0  # numbers are cut off so many deviations from their mean


@dataclass(frozen=True)
class Missing:
    """Cells that are not there, as NaN.

    In a table that has any, about half of the columns do. A column misses up to ``most`` of its cells or a few more, at
    random, or more often where its values are large or small.

    Args:
        tables: the share of tables with missing cells.
        most: the largest share of a column's cells.
    """

    tables: float = 0.15
    most: float = 0.4

    def __post_init__(self) -> None:
        check_share("tables", self.tables)
        check_share("most", self.most)

    def draw(self, draws: Draws, z: Tensor) -> Tensor:
        """(B, n, d): which cells are missing, for columns made of the nodes z."""
        n, d = z.shape[1:]
        any_here = draws.chance(self.tables)[:, None, None] & draws.chance(0.5, 1, d)
        rate = self.most * draws.uniform(1, d).square()
        lean = torch.where(draws.chance(0.5, 1, d), 0.0, draws.normal(1, d))
        return any_here & (draws.uniform(n, d) < rate * (1.0 + torch.tanh(lean * z)))


@dataclass(frozen=True)
class Tables(Task):
    """What both tasks of tables have in common; see the module."""

    inputs: Inputs = field(init=False, default_factory=Gaussian)
    noise: float = field(init=False, default=0.0)
    rows: tuple[origins.Rows, ...] = (
        origins.IndependentRows(0.7),
        origins.FactorRows(2.0),
        origins.EquationRows(2.0),
        origins.ClusterRows(0.6),
        origins.PanelRows(0.8),
        origins.WalkRows(0.5),
    )
    columns: tuple[kinds.Column, ...] = (
        kinds.NumberColumn(3.0),
        kinds.SkewedColumn(1.5),
        kinds.HeavyColumn(0.4),
        kinds.UniformColumn(0.8),
        kinds.AmountColumn(0.5),
        kinds.IntegerColumn(1.0),
        kinds.CountColumn(0.6),
        kinds.OrdinalColumn(0.6),
        kinds.FlagColumn(1.0),
        kinds.CategoryColumn(0.7),
        kinds.CategoryColumn(0.15, most=40),
    )
    derived: tuple[kinds.Derived, ...] = (
        kinds.SquareColumn(1.0),
        kinds.LogarithmColumn(0.7),
        kinds.SumColumn(1.0),
        kinds.ProductColumn(0.8),
        kinds.CopyColumn(1.5),
        kinds.DummyColumn(1.0),
    )
    derived_share: float = 0.5
    functions: tuple[families.Function, ...] = (
        families.LinearFunction(3.5),
        families.AdditiveFunction(1.2),
        families.NetworkFunction(1.8),
        families.TreeFunction(1.0),
        families.ProcessFunction(1.2),
        families.ProductFunction(0.8),
        families.NodeFunction(2.5),
        families.AccountFunction(0.7),
    )
    blend: float = 0.5
    strength: shapes.Strength = field(default_factory=shapes.Strength)
    noises: tuple[shapes.Noise, ...] = (
        shapes.NormalNoise(2.0),
        shapes.HeavyNoise(0.8),
        shapes.SkewedNoise(0.5),
        shapes.UnequalNoise(1.0),
    )
    missing: Missing = field(default_factory=Missing)
    mood: float = 1.5
    crowd: float = 1.3
    units: float = 3.0

    gaps: ClassVar[bool] = True  # a NaN is a missing cell

    def __post_init__(self) -> None:
        super().__post_init__()
        sorts_of = {
            "rows": origins.Rows,
            "columns": kinds.Column,
            "derived": kinds.Derived,
            "functions": families.Function,
            "noises": shapes.Noise,
        }
        for name, sort in sorts_of.items():
            check_parts(name, getattr(self, name), sort)
        check_share("derived_share", self.derived_share)
        check_share("blend", self.blend)
        real("mood", self.mood, low=0.0)
        real("crowd", self.crowd, above=0.0)
        if real("units", self.units, low=0.0) > 6.0:
            raise InputError("units has at most six decades in each direction", got=self.units, allowed="0 to 6")

    # ------------------------------------------------------------------------------------------------ a task's methods

    @property
    def signals(self) -> int:
        """Functions that a label is made of."""
        return 1

    def sample(self, rng: CounterRNG, index: Tensor, n: int, dims: int | Tensor | None = None) -> Prompts:
        """Tables of n rows, one for each of ``index``; columns from ``dims`` on are not there (a curriculum)."""
        params = self.drawn(self._draws(rng.fork("params"), index, n), n, dims)
        return Prompts(params["x"], params["y"], params)

    def params(self, rng: CounterRNG, index: Tensor, n: int) -> Params:
        """The whole tables: x and y, and what they were made of."""
        return self.drawn(self._draws(rng, index, n), n)

    def points(self, rng: CounterRNG, index: Tensor, n: int, params: Params) -> Tensor:
        return params["x"]

    def evaluate(self, params: Params, x: Tensor) -> Tensor:
        """The labels that were drawn with the table: they may depend on nodes that x does not show."""
        return params["y"][:, : x.shape[1]]

    # ------------------------------------------------------------------------------------------------- a table is drawn

    def _draws(self, rng: CounterRNG, index: Tensor, n: int) -> Draws:
        """Blocks that hold a few numbers for every cell, and a few thousand for all that a table draws once."""
        return Draws(rng, index, 4096 + 4 * n * (self.d + self.signals))

    def drawn(self, draws: Draws, n: int, dims: int | Tensor | None = None) -> Params:
        """x (B, n, d) and y (B, n) or (B, n, outputs), and facts about them.

        ``columns``, ``matter`` (B,): how many columns there are, and how many of them matter. ``explained`` (B,): R^2.
        ``rows``, ``functions``, ``noises`` (B,): the number of the part that was taken. ``kinds`` (B, d): that of each
        column; columns that are made of others have the numbers after the last kind.
        """
        count, matter = self._counts(draws, dims)
        which = {name: draws.choice(getattr(self, name)) for name in ("rows", "functions", "noises")}
        made = [part.draw(draws, n, self.d + self.signals) if part.weight else None for part in self.rows]
        nodes = standard(select(made, which["rows"][:, None, None])).clamp(-FAR_NODE, FAR_NODE)
        shown, meaning, whole, kind = self._columns(draws, nodes[:, :, : self.d], count)
        sheet = self._sheet(draws, shown, meaning, nodes[:, :, self.d :], matter)
        signal, explained = self._signal(draws, sheet, which)
        x, order = self._cells(draws, nodes[:, :, : self.d], shown, whole, count)
        y = self.labels_of(draws, signal)
        facts = {"columns": count, "matter": matter, "explained": explained, **which}
        return {"x": x, "y": y, "kinds": kind.gather(1, order), **facts}

    def labels_of(self, draws: Draws, signal: Tensor) -> Tensor:
        """(B, n) or (B, n, outputs), from the signal with its noise, (B, n, signals), of mean 0 and deviation 1."""
        raise lacks(self, "labels_of(draws, signal)")

    def _counts(self, draws: Draws, dims: int | Tensor | None) -> tuple[Tensor, Tensor]:
        """How many columns a table has, and how many of them matter, (B,) int64 each."""
        count = (1.0 + draws.uniform() ** self.crowd * self.d).long().clamp(max=self.d)
        count = count if dims is None else count.clamp(max=dims)
        some = 1 + draws.below(count)
        return count, torch.where(draws.chance(0.3), count, some)

    def _columns(self, draws: Draws, z: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Columns as they are shown, (B, n, d), and their meanings; whether they are whole, and their kinds, (B, d)."""
        which = draws.choice(self.columns, self.d, mood=self.mood)
        pairs = [part.draw(draws, z) if part.weight else (None, None) for part in self.columns]
        shown, meaning = (select(options, which[:, None, :]) for options in zip(*pairs, strict=True))
        first, second = (columns_of(shown, draws.below(count, self.d)) for _ in range(2))
        others = draws.choice(self.derived, self.d)
        made = [part.draw(draws, first, second) if part.weight else None for part in self.derived]
        replaced = select(made, others[:, None, :])
        chance = draws.chance(0.5) * draws.between(0.0, self.derived_share)
        here = draws.chance(chance[:, None], self.d)
        shown = torch.where(here[:, None, :], replaced, shown)
        meaning = standard(torch.where(here[:, None, :], replaced, meaning)).clamp(-FAR_NODE, FAR_NODE)
        kind = torch.where(here, len(self.columns) + others, which)
        whole = torch.zeros_like(here)
        for number, counts in enumerate([part.whole for part in self.columns] + [part.whole for part in self.derived]):
            whole = whole | (kind == number) if counts else whole
        return shown, meaning, whole, kind

    def _sheet(self, draws: Draws, shown: Tensor, meaning: Tensor, nodes: Tensor, matter: Tensor) -> families.Sheet:
        here = torch.arange(self.d, device=matter.device) < matter[:, None]
        uneven = draws.between(0.0, 2.0)[:, None]
        importance = (uneven * draws.normal(self.d)).exp() * here
        importance = importance / importance.square().sum(1, keepdim=True).sqrt()
        return families.Sheet(meaning * here[:, None, :], importance, matter, shown, nodes)

    def _signal(self, draws: Draws, sheet: families.Sheet, which: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Labels with their noise, (B, n, signals), of mean 0 and deviation 1; and R^2, (B,)."""
        made = [standard(part.draw(draws, sheet, self.signals)) if part.weight else None for part in self.functions]
        other = draws.choice(self.functions)
        angle = draws.chance(self.blend) * draws.between(0.0, 0.25 * math.pi)
        first, second = (standard(select(made, number[:, None, None])) for number in (which["functions"], other))
        signal = standard(angle.cos()[:, None, None] * first + angle.sin()[:, None, None] * second)
        quiet = select([torch.full_like(angle, part.quiet) for part in self.functions], which["functions"])
        explained = self.strength.draw(draws, quiet)
        errors = [part.draw(draws, sheet, signal) if part.weight else None for part in self.noises]
        error = standard(select(errors, which["noises"][:, None, None])).clamp(-FAR_NOISE, FAR_NOISE)
        size = explained[:, None, None]
        return standard(size.sqrt() * signal + (1.0 - size).sqrt() * error), explained

    def _cells(self, draws: Draws, z: Tensor, shown: Tensor, whole: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The columns with units and holes, in a random order; those that are there come before those that are not.

        And that order, (B, d).
        """
        unit = 10.0 ** draws.between(-self.units, self.units, self.d)
        unit = unit * (1.0 - 2.0 * draws.chance(0.1, self.d).float())
        x = shown * torch.where(whole, 1.0, unit)[:, None, :]
        absent = torch.arange(self.d, device=count.device) >= count[:, None]
        x = x.masked_fill(self.missing.draw(draws, z) | absent[:, None, :], torch.nan)
        order = (draws.uniform(self.d) + 2.0 * absent).argsort(1)
        return columns_of(x, order), order


@dataclass(frozen=True)
class TableRegression(Tables, kind="table-regression"):
    """Random tables with numbers as labels.

    A prompt is a table: x (B, n, d), y (B, n). A NaN is a missing cell. A column of NaN is not there. Labels have mean
    square 1 or so, and a unit and an offset of their own.

    With several ``outputs``, y is (B, n, outputs): as many functions of the same rows and of one family, each with a
    noise of its own, and with a sort, a unit and an offset of its own. They have the same R^2.

    Args:
        d: the most columns. A table with fewer has columns of NaN for the others.
        inputs: no setting of tables: ``rows`` and ``columns`` make them.
        noise: no setting of tables: ``noises`` and ``strength`` make it.
        rows: how rows come about.
        columns: kinds of columns.
        derived: kinds of columns that are made of others.
        derived_share: the largest share of such columns in a table; half of the tables have none.
        functions: families of functions behind the labels.
        blend: the share of tables whose label has a second function in it.
        strength: how much of the labels the columns explain.
        noises: shapes of noise.
        missing: cells that are not there.
        mood: how much tables differ in the kinds of their columns; 0: all are alike.
        crowd: above 1 for fewer columns, below for more. The number is 1 + floor(d u^crowd), u uniform on 0 to 1.
        units: columns of measured numbers are multiplied by 10^-units to 10^units.
        labels: sorts of numbers that a label can be.
        outputs: numbers of a label.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y, made = lab.TableRegression(d=6).sample(lab.CounterRNG.of(0), torch.arange(3), n=50)
        >>> tuple(x.shape), tuple(y.shape), torch.equal((~x.isnan().all(1)).sum(1), made["columns"])
        ((3, 50, 6), (3, 50), True)
        >>> tuple(lab.TableRegression(d=6, outputs=2).sample(lab.CounterRNG.of(0), torch.arange(3), n=50).y.shape)
        (3, 50, 2)
    """

    labels: tuple[sorts.Label, ...] = (
        sorts.PlainLabel(5.0),
        sorts.SkewedLabel(2.0),
        sorts.CountLabel(1.0),
        sorts.FlagLabel(0.3),
        sorts.CensoredLabel(0.5),
        sorts.BoundedLabel(0.5),
        sorts.RoundedLabel(0.5),
    )
    outputs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts("labels", self.labels, sorts.Label)
        integer("outputs", self.outputs, high=MOST_OUTPUTS)

    @property
    def signals(self) -> int:
        return self.outputs

    def labels_of(self, draws: Draws, signal: Tensor) -> Tensor:
        found = [self._numbers(draws, one) for one in signal.unbind(2)]
        return found[0] if self.outputs == 1 else torch.stack(found, 2)

    def _numbers(self, draws: Draws, signal: Tensor) -> Tensor:
        """(B, n): one number of each label, from its signal (B, n)."""
        made = [part.draw(draws, signal) if part.weight else None for part in self.labels]
        y = standard(select(made, draws.choice(self.labels)[:, None])).clamp(-FAR_LABEL, FAR_LABEL)
        unit = 10.0 ** draws.between(-0.5, 0.5)[:, None]
        side = 1.0 - 2.0 * draws.chance(0.1).float()[:, None]
        return unit * (side * y + draws.normal()[:, None])


@dataclass(frozen=True)
class TableClassification(Tables, kind="table-classification"):
    """Random tables with classes as labels.

    A prompt is a table: x (B, n, d), y (B, n). A NaN is a missing cell. A column of NaN is not there. Labels are the
    whole numbers 0 .. C - 1, as floats. Every table has its own C, and at least one row of each class.

    Args:
        d: the most columns. A table with fewer has columns of NaN for the others.
        inputs: no setting of tables: ``rows`` and ``columns`` make them.
        noise: no setting of tables: ``noises`` and ``strength`` make it.
        rows: how rows come about.
        columns: kinds of columns.
        derived: kinds of columns that are made of others.
        derived_share: the largest share of such columns in a table; half of the tables have none.
        functions: families of functions behind the labels.
        blend: the share of tables whose label has a second function in it.
        strength: how much of the labels the columns explain.
        noises: shapes of noise.
        missing: cells that are not there.
        mood: how much tables differ in the kinds of their columns; 0: all are alike.
        crowd: above 1 for fewer columns, below for more. The number is 1 + floor(d u^crowd), u uniform on 0 to 1.
        units: columns of measured numbers are multiplied by 10^-units to 10^units.
        classes: the most classes.
        two: the share of tables with two classes.
        rules: ways to make classes.

    Examples:
        >>> import torch
        >>> from innergrad import lab
        >>> x, y, _ = lab.TableClassification(d=6, classes=4).sample(lab.CounterRNG.of(0), torch.arange(3), n=50)
        >>> tuple(x.shape), set(y.flatten().tolist()) <= {0.0, 1.0, 2.0, 3.0}
        ((3, 50, 6), True)
    """

    rows: tuple[origins.Rows, ...] = reweighted(Tables.rows, clusters=2.0)  # classes are often clusters
    functions: tuple[families.Function, ...] = reweighted(Tables.functions, node=3.0)
    strength: shapes.Strength = field(default_factory=lambda: shapes.Strength(power=0.15))
    classes: int = 10
    two: float = 0.45
    rules: tuple[sorts.ClassRule, ...] = (sorts.ThresholdClasses(1.0), sorts.LargestClasses(1.2))

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("classes", self.classes, low=2, high=1000)
        check_share("two", self.two)
        check_parts("rules", self.rules, sorts.ClassRule)

    @property
    def signals(self) -> int:
        return self.classes

    def labels_of(self, draws: Draws, signal: Tensor) -> Tensor:
        more = 3 + (draws.uniform() ** 1.5 * (self.classes - 2)).long()
        count = torch.where(draws.chance(self.two), 2, more).clamp(max=self.classes)
        made = [part.draw(draws, signal, count) if part.weight else None for part in self.rules]
        found = select(made, draws.choice(self.rules)[:, None])
        cut = sorts.ThresholdClasses().draw(draws, signal, count)
        alike = (found == found[:, :1]).all(1, keepdim=True)  # all rows in one class: cut the first score instead
        return sorts.closed_up(draws, torch.where(alike, cut, found), self.classes).to(signal.dtype)
