"""The prior of tables: a table depends on its number alone, gaps mean what they say, every part is taken and sane."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from scipy import stats
from torch import Tensor

from innergrad.cli.lab_settings import _classes
from innergrad.config import change, parse, to_table, to_toml
from innergrad.errors import InputError
from innergrad.lab import CounterRNG, TableClassification, TableRegression, Task, check_task, tables

RNG = CounterRNG.of(0, "tables")
TASKS: dict[str, tables.Tables] = {
    "regression": TableRegression(d=7),
    "classification": TableClassification(d=7, classes=6),
    "vectors": TableRegression(d=7, outputs=3),
}
each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


def drawn(task: tables.Tables, count: int = 12, n: int = 30) -> dict[str, Tensor]:
    return task.sample(RNG, torch.arange(count), n).params


def same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


# ---------------------------------------------------------------------------------------------------------------- laws


@each_task
def test_a_table_depends_on_its_number_alone(task: tables.Tables) -> None:
    whole = task.sample(RNG, torch.arange(20), 30)
    parts = [task.sample(RNG, part, 30) for part in torch.arange(20).split([1, 12, 7])]
    for name in ("x", "y"):  # up to rounding, which differs at the end of a tensor
        torch.testing.assert_close(
            torch.cat([getattr(part, name) for part in parts]),
            getattr(whole, name),
            rtol=1e-5,
            atol=1e-5,
            equal_nan=True,
        )
    rows = task.sample(CounterRNG.rows([RNG, CounterRNG.of(1, "tables")], 3), torch.arange(3).repeat(2), 30)  # a stack
    torch.testing.assert_close(rows.x[:3], whole.x[:3], rtol=1e-5, atol=1e-5, equal_nan=True)
    assert not same(rows.x[3:], whole.x[:3])
    assert len({tuple(y.flatten().tolist()) for y in whole.y}) == 20  # no two are alike


@each_task
def test_columns_that_are_not_there_come_last(task: tables.Tables) -> None:
    made = drawn(task, 200, 20)
    there = ~made["x"].isnan().all(1)
    assert torch.equal(there, torch.arange(task.d) < made["columns"][:, None])
    assert torch.equal(made["columns"].unique(), torch.arange(1, task.d + 1))
    assert (made["matter"] >= 1).all()
    assert (made["matter"] <= made["columns"]).all()
    partly = made["x"].isnan().any(1) & there
    assert 0.02 < float(partly.any(1).float().mean()) < 2 * task.missing.tables  # the share of tables with gaps
    assert made["x"].nan_to_num().isfinite().all()
    assert made["y"].isfinite().all()
    assert not drawn(dataclasses.replace(task, missing=tables.Missing(0.0)), 40)["x"].isnan()[:, :, 0].any()


@each_task
def test_a_curriculum_takes_columns_away(task: tables.Tables) -> None:
    few = task.sample(RNG, torch.arange(40), 10, dims=torch.tensor(2))
    assert few.x[:, :, 2:].isnan().all()
    assert int(few.params["columns"].max()) == 2 == int(few.params["matter"].max())


def test_labels_are_of_size_one_and_cut_off() -> None:
    y = drawn(TASKS["regression"], 200, 40)["y"]
    assert 0.5 < float(y.square().mean().sqrt()) < 3.0
    away = (y - y.mean(1, keepdim=True)).abs().amax(1) / y.std(1)
    assert float(away.max()) <= 10.5
    assert int((y.std(1) == 0.0).sum()) <= 4  # a label that no row changes: a flag that is always up


def test_tables_stay_as_they_are() -> None:
    """Numbers of the first tables, so that a run that is repeated has the same ones."""
    wanted = [[-0.878838, 0.447207, 0.372896], [0.679555, 1.01885, 0.211644], [1.338108, 0.069478, -0.560267]]
    found = drawn(TASKS["regression"], 3)["y"][:, :3]
    torch.testing.assert_close(found, torch.tensor(wanted), rtol=1e-4, atol=1e-4)


def test_numbers_of_a_vector_differ_in_function_noise_sort_and_unit() -> None:
    assert check_task(TASKS["vectors"]) == ()
    assert TASKS["vectors"].outputs == 3
    y = drawn(TASKS["vectors"], 150, 40)["y"]
    assert y.shape == (150, 40, 3)
    assert 0.5 < float(y.square().mean().sqrt()) < 3.0
    values = torch.tensor([[len(column.unique()) for column in table.T] for table in y])
    assert ((values.amin(1) < 10) & (values.amax(1) == 40)).any()  # sorts differ within a table
    together = [table.T.corrcoef()[0, 1].abs() for table in y if (table.std(0) > 0.0).all()]
    assert 0.05 < float(torch.stack(together).median()) < 0.9
    loud = dataclasses.replace(TASKS["vectors"], strength=tables.Strength(nothing=1.0), labels=(tables.PlainLabel(),))
    noise = drawn(loud, 20, 1000)["y"]
    most = torch.stack([table.T.corrcoef().sub(torch.eye(3)).abs().max() for table in noise])
    assert float(most.median()) < 0.1  # without a signal they have nothing to do with one another


def test_classes_are_whole_numbers_without_gaps() -> None:
    task = TableClassification(d=4, classes=10)
    y = drawn(task, 300, 40)["y"]
    counts = y.amax(1) + 1
    for labels, count in zip(y, counts, strict=True):
        assert torch.equal(labels.unique(), torch.arange(int(count), dtype=y.dtype))
    found = torch.bincount(counts.long(), minlength=11) / len(y)
    assert found[:2].sum() == 0.0  # two classes at least
    assert abs(float(found[2]) - task.two) < 0.15
    assert (found[2:] > 0.0).all()
    largest = torch.stack([(y == label).float().mean(1) for label in range(10)]).amax(0)
    assert float(largest.max()) > 0.9  # some are uneven ...
    assert float((largest * counts).min()) < 1.1  # ... and some are even
    two = drawn(TableClassification(d=4, classes=2), 50, 8)["y"]
    assert torch.equal(two.amax(1), torch.ones(50))


def test_the_share_that_columns_explain_is_what_it_says() -> None:
    """A straight function of one number, without noise, or with a known share of it: least squares finds that share."""
    plain: dict[str, Any] = {
        "rows": (tables.IndependentRows(),),
        "columns": (tables.NumberColumn(),),
        "functions": (tables.LinearFunction(quiet=0.0),),
        "noises": (tables.NormalNoise(),),
        "labels": (tables.PlainLabel(),),
        "missing": tables.Missing(0.0),
        "derived_share": 0.0,
        "blend": 0.0,
    }
    made = TableRegression(d=1, **plain).sample(RNG, torch.arange(12), 1500).params
    x, y = made["x"][:, :, 0], made["y"]
    found = [stats.pearsonr(a.numpy(), b.numpy()).statistic ** 2 for a, b in zip(x, y, strict=True)]
    torch.testing.assert_close(torch.tensor(found).float(), made["explained"], atol=0.06, rtol=0.0)


@pytest.mark.parametrize("freedom", [3.0, 6.0])
def test_heavy_noise_is_students(freedom: float) -> None:
    normal = torch.linspace(-3.0, 3.0, 7, dtype=torch.float64)
    exact = torch.as_tensor(stats.t.ppf(stats.norm.cdf(normal.numpy()), freedom))
    torch.testing.assert_close(tables.student(normal, torch.tensor(freedom)), exact, rtol=0.1, atol=0.02)


# --------------------------------------------------------------------------------------------------------------- parts


def single(task: tables.Tables) -> Iterator[tuple[str, tables.Tables]]:
    """The task with one part of a sort alone, for every part of every sort."""
    for field in dataclasses.fields(task):
        value = getattr(task, field.name)
        if isinstance(value, tuple):
            for number, part in enumerate(value):
                yield f"{field.name} {number}", dataclasses.replace(task, **{field.name: (part,)})


SINGLE = {name: one for task in ("regression", "classification") for name, one in single(TASKS[task])}


@pytest.mark.parametrize("name", SINGLE)
def test_every_part_alone_is_sane(name: str) -> None:
    made = SINGLE[name].sample(RNG, torch.arange(6), 15)
    assert made.y.isfinite().all()
    assert made.x.nan_to_num().isfinite().all()
    assert (made.y.std(1) > 0.0).sum() >= 4
    assert not same(made.y[0], made.y[1])


def test_every_part_is_taken_as_often_as_its_weight_says() -> None:
    task = TASKS["regression"]
    made = drawn(task, 800, 2)
    for name in ("rows", "functions", "noises"):
        weights = torch.tensor([part.weight for part in getattr(task, name)])
        found = torch.bincount(made[name], minlength=len(weights)) / 800
        torch.testing.assert_close(found, weights / weights.sum(), atol=0.06, rtol=0.0)
    assert len(made["kinds"].unique()) == len(task.columns) + len(task.derived)
    flags = task.columns.index(tables.FlagColumn(1.0))
    x = made["x"].mT[made["kinds"] == flags]
    assert (x.isnan() | (x == 0.0) | (x == 1.0)).all()  # kinds are those of the columns, after the shuffle
    never = dataclasses.replace(task, rows=(tables.FactorRows(0.0), tables.WalkRows()))
    assert drawn(never, 50, 3)["rows"].unique().tolist() == [1]


def test_categories_are_codes_from_zero() -> None:
    z = RNG.normal(torch.arange(40), 200, 3)
    shown, meaning = tables.CategoryColumn(most=5).draw(tables.Draws(RNG, torch.arange(40)), z)
    for table, effects in zip(shown.mT.flatten(0, 1), meaning.mT.flatten(0, 1), strict=True):
        codes = table.unique()
        assert codes.tolist() == [c for c in range(5) if c in codes]
        assert len(effects.unique()) == len(codes)  # one effect a category, whatever its code
    assert shown.amax((0, 1)).tolist() == [4.0] * 3


def test_a_tree_asks_one_column_at_each_node() -> None:
    """Against a walk through the nodes of each tree, one row at a time."""
    part, values = tables.TreeFunction(trees=2, depth=3), RNG.normal(torch.arange(3), 9, 4)
    matter = torch.tensor([4, 1, 2])
    sheet = tables.Sheet(values, torch.ones(3, 4), matter, values, values)
    found = part.draw(tables.Draws(RNG, torch.arange(3)), sheet, 2)
    draws = tables.Draws(RNG, torch.arange(3))
    feature, cut = part._questions(draws, sheet, 14)
    leaves = part._leaves(draws, 2)
    assert (feature < matter[:, None]).all()
    for table in range(3):
        for row in range(9):
            total = torch.zeros(2)
            for tree in range(2):
                node = 0
                while node < 7:
                    asked = feature[table, 7 * tree + node]
                    node = 2 * node + 1 + int(values[table, row, asked] > cut[table, 7 * tree + node])
                total += leaves[table, tree, node - 7]
            torch.testing.assert_close(found[table, row], total)


def test_a_part_of_ones_own() -> None:
    with mock.patch.dict(tables.Column.kinds), mock.patch.dict(tables.Function.kinds):

        @dataclasses.dataclass(frozen=True)
        class Percent(tables.Column, kind="test percent"):
            whole = True

            def draw(self, draws: tables.Draws, z: Tensor) -> tuple[Tensor, Tensor]:
                return (100.0 * torch.sigmoid(z)).round(), z

        @dataclasses.dataclass(frozen=True)
        class Largest(tables.Function, kind="test largest"):
            floor: float = 0.0

            def draw(self, draws: tables.Draws, sheet: tables.Sheet, outputs: int) -> Tensor:
                return sheet.values.amax(2, keepdim=True).clamp(min=self.floor).expand(-1, -1, outputs)

        task = TableRegression(d=3, columns=(Percent(),), derived_share=0.0, functions=(Largest(2.0, floor=0.1),))
        x = drawn(task)["x"]
        assert (x.isnan() | ((x == x.round()) & (x >= 0.0) & (x <= 100.0))).all()
        assert parse(Task, to_table(task)) == task
        assert drawn(TableClassification(d=3, functions=(Largest(),)))["y"].isfinite().all()


@dataclasses.dataclass(frozen=True)
class Looks(tables.Rows):
    def draw(self, draws: tables.Draws, n: int, nodes: int) -> Tensor:
        z = draws.normal(n, nodes)
        return z if bool(z.mean() > 0.0) else -z


@each_task
def test_it_looks_at_no_value(task: tables.Tables) -> None:
    """Training records it as a CUDA graph. Tensors without values raise where one is looked at."""
    x, y = task.sample(CounterRNG.of(0, device="meta"), torch.arange(3, device="meta"), 5)[:2]
    assert (x.shape, y.shape) == ((3, 5, 7), (3, 5, 3) if task.outputs == 3 else (3, 5))
    looks = dataclasses.replace(task, rows=(Looks(),))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        looks.sample(CounterRNG.of(0, device="meta"), torch.arange(3, device="meta"), 5)


@pytest.mark.soak
@each_task
def test_it_traces_without_a_break(task: tables.Tables) -> None:
    """Training compiles it. This takes some seconds: it has thousands of operations."""
    small = dataclasses.replace(task, d=3)
    traced = torch.compile(lambda index: small.sample(RNG, index, 5)[:2], fullgraph=True, backend="eager")
    x, y = traced(torch.arange(2))
    plain = small.sample(RNG, torch.arange(2), 5)
    assert same(x, plain.x)
    assert same(y, plain.y)


# ------------------------------------------------------------------------------------------------------------- settings


@each_task
def test_it_is_a_configuration(task: tables.Tables) -> None:
    assert parse(Task, tomllib.loads(to_toml(task))) == task
    changed = change(task, ["functions.1.weight=0", "rows.2.width=5", "missing.tables=0"])
    assert changed.functions[1].weight == 0.0 == changed.missing.tables
    assert isinstance(changed.rows[2], tables.EquationRows)
    assert changed.rows[2].width == 5
    parse(_classes()["Task"], to_table(task))  # the command line's own idea of it


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rows": ()}, "rows need a part with a weight above 0"),
        ({"functions": (tables.LinearFunction(0.0),)}, "functions need a part"),
        ({"columns": (tables.LinearFunction(),)}, "columns must be a tuple of Column.*category"),
        ({"labels": [tables.PlainLabel()]}, "labels must be a tuple"),
        ({"blend": 1.5}, "blend is a share"),
        ({"units": 9.0}, "units"),
        ({"crowd": 0.0}, "crowd"),
        ({"d": 0}, "d must be"),
        ({"outputs": 0}, "outputs must be"),
        ({"outputs": 1.5}, "outputs must be"),
    ],
)
def test_what_is_wrong_is_said(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TableRegression(**settings)
    with pytest.raises(InputError):
        TableClassification(classes=1)
    with pytest.raises(InputError, match="weight"):
        tables.WalkRows(-1.0)
