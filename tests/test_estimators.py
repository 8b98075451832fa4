"""Estimators of tables: scikit-learn's own checks, oracles for the compiled engines, laws, and awkward columns."""

from __future__ import annotations

import copy
import datetime
import pickle
import runpy
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import Tensor

import innergrad as ig
from innergrad import InContextClassifier, InContextRegressor, estimators, lab, written
from innergrad.errors import InputError
from innergrad.estimators.columns import Columns
from innergrad.estimators.engines import groupings
from innergrad.estimators.engines.kernel import kernel, on_sphere
from innergrad.estimators.engines.ridge import fold, solve
from innergrad.estimators.held_out import HeldOut, by_lacking, parts, residual_quantiles, some
from innergrad.estimators.order import ranks, relevance
from innergrad.tables.models import objects

# ------------------------------------------------------------------------------- a learner that needs no training


@dataclass(frozen=True)
class SmootherAnswer:
    """Of every query a weight for each demonstration, (B, m, k); y (B, k)."""

    weights: Tensor
    y: Tensor

    @property
    def mean(self) -> Tensor:
        return (self.weights @ self.y[..., None])[..., 0]

    @property
    def std(self) -> Tensor:
        squares = (self.weights @ self.y[..., None].square())[..., 0]
        return (squares - self.mean.square()).clamp(min=0.0).sqrt()

    def quantile(self, q: list[float]) -> Tensor:
        order = self.y.argsort(-1)
        below = self.weights.gather(-1, order[:, None].expand_as(self.weights)).cumsum(-1)
        levels = torch.tensor(q, dtype=below.dtype).expand(*below.shape[:2], -1).contiguous()
        place = torch.searchsorted(below, levels).clamp(max=self.y.shape[-1] - 1)
        return self.y.gather(-1, order)[:, None].expand_as(self.weights).gather(-1, place)

    @property
    def probabilities(self) -> Tensor:
        return self.weights @ torch.nn.functional.one_hot(self.y.long()).double()


class Smoother:
    """A learner of tables by the contract: a Gaussian smoother of z-scores, NaN where a cell is missing."""

    def __init__(self, d: int = 20) -> None:
        self.d = d
        self.prompts: list[tuple[Tensor, Tensor]] = []

    def answer(self, x: Tensor, y: Tensor) -> SmootherAnswer:
        assert x.dtype == y.dtype == torch.float32
        assert x.shape[2] == self.d
        self.prompts.append((x, y))
        k, x = y.shape[1], x.double()
        shown = x[:, :k]
        count = shown.isfinite().sum(1, keepdim=True).clamp(min=1)
        mean = shown.nan_to_num(0.0).sum(1, keepdim=True) / count
        std = ((shown - mean).nan_to_num(0.0).square().sum(1, keepdim=True) / count).sqrt()
        z = ((x - mean) / std.clamp(min=1e-6)).nan_to_num(0.0)
        distances = (z[:, k:, None] - z[:, None, :k]).square().mean(-1)
        return SmootherAnswer((-40.0 * distances).softmax(-1), y.double())


def tiny(labels: str) -> lab.TableLearner:
    """A learner of tables with random weights: a learner that is built has a read-out of zeros."""
    learner = lab.TableConfig(labels, n_cells=1, d_cell=32, d_cell_mlp=32, n_rows=1, d_row=32, d_row_mlp=32)
    built = learner.build(d=8, n_points=64).init([0])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return built


def made(kind: type, engine: str, **more: Any) -> Any:
    return kind(engine, learner=Smoother() if engine == "pretrained" else None, **more)


def table(n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 5.0 + 3.0 * X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=n)


def frame(n: int = 80) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns of every kind."""
    rng = np.random.default_rng(1)
    size, town = rng.normal(100.0, 30.0, size=n), rng.choice(["Oslo", "Rome", "Bonn"], size=n)
    X = pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, size),
            "town": np.where(rng.random(n) < 0.1, None, town),
            "new": rng.random(n) < 0.5,
            "built": pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 5000, n), unit="D"),
            "constant": "same",
            "size again": np.nan,
            "id": [f"house {i}" for i in range(n)],
            "nothing": None,
            "rooms": pd.array(np.where(rng.random(n) < 0.1, None, rng.integers(1, 5, n)), dtype="Int64"),
            "grade": pd.Categorical(rng.integers(1, 4, n)),
            "text number": [f" {value:.2f}" if value > 0.2 else "NA" for value in rng.random(n)],
            "text date": [f"2020-0{month}-11" for month in rng.integers(1, 9, n)],
            "code": [f"0{value}" for value in rng.integers(1, 5, n)],
        }
    )
    X["size again"] = X["size"]
    return X, 2.0 * size + 40.0 * (town == "Oslo") + rng.normal(size=n)


# ---------------------------------------------------------------------------------------- scikit-learn's own checks


def skips(results: list[dict[str, Any]]) -> dict[str, str]:
    return {one["check_name"]: str(one["exception"]) for one in results if one["status"] != "passed"}


@pytest.mark.parametrize("kind", [InContextRegressor, InContextClassifier])
@pytest.mark.parametrize(
    "engine",
    ["pretrained", *(pytest.param(name, marks=pytest.mark.soak) for name in ("ridge", "kernel", "gd"))],
)
def test_all_of_scikit_learns_checks_pass(kind: type, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None fails and none is skipped; the one about other kinds of arrays runs if this variable is set."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(made(kind, engine), on_fail=None, on_skip=None)
    assert len(results) > 45
    assert skips(results) == {}


@pytest.mark.soak
@pytest.mark.parametrize("kind", [InContextRegressor, InContextClassifier])
def test_all_checks_pass_with_the_learner_of_the_package(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert skips(check_estimator(kind(), on_fail=None, on_skip=None)) == {}


@pytest.mark.parametrize("engine", ["pretrained", "ridge", pytest.param("kernel", marks=pytest.mark.soak)])
def test_pipelines_searches_clones_and_pickles(engine: str) -> None:
    X, y = table()
    pipeline = make_pipeline(StandardScaler(), made(InContextRegressor, engine))
    search = GridSearchCV(pipeline, {"incontextregressor__random_state": [0, 1]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.3
    model = search.best_estimator_[-1]
    assert clone(model).get_params()["random_state"] == model.random_state
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict(X), search.predict(X))
    logs = TransformedTargetRegressor(made(InContextRegressor, engine), func=np.log, inverse_func=np.exp)
    assert logs.fit(X, np.exp(y)).predict(X).shape == y.shape


def test_a_fitted_estimator_does_not_carry_the_learner_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked up by its name: after unpickling, too."""
    looked_up = []

    def lookup(name: str) -> Smoother:
        looked_up.append(name)
        return Smoother()

    monkeypatch.setattr("innergrad.estimators.engines.pretrained.learner_by_name", lookup)
    X, y = table()
    kept = pickle.dumps(InContextRegressor().fit(X, y))
    assert b"Smoother" not in kept
    assert pickle.loads(kept).predict(X).shape == y.shape
    InContextClassifier(learner="another").fit(X, y > 5).predict(X)
    assert set(looked_up) == {"tables-regression", "another"}


def test_without_scikit_learn_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match=r"need scikit-learn: pip install 'innergrad\[tables\]'"):
        runpy.run_path(str(estimators.__file__))


# ---------------------------------------------------------------------------------------- compiled engines


@pytest.mark.parametrize(("n", "d", "ridge"), [(50, 4, 1e-5), (5, 9, 0.1), (120, 45, 1e-3)])
def test_the_compiled_ridge_is_scikit_learns(n: int, d: int, ridge: float) -> None:
    rng = np.random.default_rng(n)
    Z, Y = rng.normal(size=(n, d)), rng.normal(size=(n, 2))
    Z[:, -1] = Z[:, 0] + 0.01 * Z[:, -1]  # nearly the same column twice
    Z, Y = Z - Z.mean(0), Y - Y.mean(0)
    theirs = Ridge(alpha=ridge * n, fit_intercept=False, tol=1e-12).fit(Z, Y).coef_.T
    assert np.abs(solve(Z, Y, ridge) - theirs).max() < 1e-7 * max(1.0, np.abs(theirs).max())


def test_folded_rows_have_the_same_products() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 30):
        X, y = rng.normal(size=(n, 5)), rng.normal(size=n)
        both, folded = np.column_stack([X, y]), fold(X, y)
        assert folded.shape == (6, 6)
        assert np.allclose(folded.T @ folded, both.T @ both)


def test_the_ridge_engine_predicts_as_a_ridge_on_scaled_columns() -> None:
    X, y = table()
    model = InContextRegressor("ridge").fit(X, y)
    Z = (X - X.mean(0)) / X.std(0)
    theirs = Ridge(alpha=model._fits[0].engine.ridge * len(X)).fit(Z, y)
    assert np.allclose(model.predict(X), theirs.predict(Z), atol=1e-6)


def test_gradient_descent_is_that_of_autograd_and_certified() -> None:
    X, y = table(12)
    model = InContextRegressor("gd", hidden=(2,), steps=4).fit(X, y)
    engine = model._fits[0].engine
    Z, Y = map(torch.from_numpy, engine.examples)
    exact = ig.reference(engine._algorithm(engine.rate, engine.steps), Z, Y, Z, w0=engine._start)
    assert np.allclose(exact.predictions[:, 0] * y.std() + y.mean(), model.predict(X)[np.argsort(y)], atol=1e-9)
    assert model.loss_curve_.shape == (engine.steps + 1,)
    assert model.loss_curve_[-1] < 0.8 * model.loss_curve_[0]
    error = float((torch.from_numpy(engine.weights) - exact.weights[-1]).norm())
    assert error <= model.certificate_.weights[-1] < 1e-9


def test_the_kernel_engine_comes_near_its_limit() -> None:
    """Many steps of functional gradient descent are a Gaussian process without noise, where there is no noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(40, 1))
    y = np.sin(3 * X[:, 0])
    model = InContextRegressor("kernel").fit(X, y)
    engine = model._fits[0].engine
    at, labels = engine.examples
    limit = KernelRidge(alpha=1e-6, kernel="precomputed").fit(kernel(engine.bandwidth)(*[torch.tensor(at)] * 2), labels)
    queries = np.linspace(-0.9, 0.9, 7)[:, None]
    near = kernel(engine.bandwidth)(torch.tensor(on_sphere(engine.design(queries))), torch.tensor(at))
    theirs = engine.scale.back(limit.predict(near)[:, 0] + engine.mean_)
    assert np.abs(model.predict(queries) - theirs).max() < 0.05
    assert np.abs(model.predict(queries) - np.sin(3 * queries[:, 0])).max() < 0.05


@pytest.mark.parametrize("engine", ["gd", "ridge", "kernel"])
def test_compiled_engines_classify_and_give_intervals(engine: str) -> None:
    X, y = table(90)
    model = InContextRegressor(engine, steps=40).fit(X[:60], y[:60])
    assert model.score(X[60:], y[60:]) > 0.8
    low, high = model.predict(X[60:], quantiles=[0.1, 0.9]).T
    assert 0.5 < np.mean((low <= y[60:]) & (y[60:] <= high)) < 1.0
    mean, std = model.predict(X, return_std=True)
    assert np.array_equal(mean, model.predict(X))
    assert 0.2 < std[0] < 1.5
    label = np.select([y < 4, y < 6], ["low", "middle"], "high")
    classifier = InContextClassifier(engine, steps=40).fit(X[:60], label[:60])
    assert classifier.score(X[60:], label[60:]) > 0.6
    chances = classifier.predict_proba(X)
    assert (chances > 0).all()
    assert np.allclose(chances.sum(1), 1.0)
    assert model.notes_[0].startswith(engine)


@pytest.mark.parametrize("missing_before", [0.0, 0.15])
@pytest.mark.parametrize("engine", ["ridge", "kernel", "gd", "pretrained"])
def test_intervals_are_honest_where_cells_are_missing(engine: str, missing_before: float) -> None:
    """Whether the column that matters most lacked cells in the training rows, or never did."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 4))
    y = 3 * X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=400)
    X[:200, 0][rng.random(200) < missing_before] = np.nan
    X[200:300, 0] = np.nan
    model = InContextRegressor(engine, hidden=(8,), steps=40).fit(X[:200], y[:200])
    low, high = model.predict(X[200:], quantiles=[0.1, 0.9]).T
    inside = (low <= y[200:]) & (y[200:] <= high)
    assert 0.65 < inside[:100].mean() < 0.93
    assert 0.65 < inside[100:].mean() < 0.93
    assert np.quantile((high - low)[:100], 0.1) > 2.5 * np.quantile((high - low)[100:], 0.9)
    std = model.predict(X[299:301], return_std=True)[1]
    assert 2.5 < std[0] / std[1] < 8.0  # 3 to 1/2, and what learning adds


HOUSES = pd.read_csv(Path(__file__).parent.parent / "examples" / "houses.csv", sep=";", dtype=str)


@pytest.mark.parametrize("blank", ["area", "district"])
def test_the_learner_is_as_sure_as_it_may_be_where_a_cell_is_missing(blank: str) -> None:
    """A column that no training row lacks. Rows that lack it are predicted as if the column had never been there; and
    the others as if no row lacked it.
    """
    rows = HOUSES.dropna(subset="price").sample(frac=1.0, random_state=0)
    y = rows["price"].str.replace(r"\D", "", regex=True).astype(float).to_numpy()
    X, shown, asked = rows[["district", "area", "rooms", "built", "garden"]], slice(0, 140), slice(140, None)
    lacks = X[asked].astype({blank: object})
    lacks.loc[lacks.index[:90], blank] = None
    model = InContextRegressor(n_estimators=1).fit(X[shown], y[shown])
    without = InContextRegressor(n_estimators=1).fit(X[shown].drop(columns=blank), y[shown])
    found = model.predict(lacks, quantiles=[0.1, 0.9])
    others = without.predict(X[asked].drop(columns=blank), quantiles=[0.1, 0.9])
    np.testing.assert_allclose(found[:90], others[:90], rtol=1e-4)
    np.testing.assert_allclose(found[90:], model.predict(X[asked], quantiles=[0.1, 0.9])[90:], rtol=1e-6)
    inside = (found[:90, 0] <= y[asked][:90]) & (y[asked][:90] <= found[:90, 1])
    assert 0.65 < inside.mean() < 0.95


def test_columns_that_are_left_out_are_few_and_the_most_relevant() -> None:
    """A pass for each set of columns, and so not for every set: of columns that training rows lack, the first three."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 8))
    y = X @ 0.5 ** np.arange(8)
    some = X.copy()
    some[rng.random(X.shape) < 0.1] = np.nan
    asked = np.where(rng.random((200, 8)) < 0.3, np.nan, rng.normal(size=(200, 8)))
    for table, most in ((X, 1 + 8 + 28 + 56), (some, 8)):
        learner = Smoother()
        InContextRegressor(learner=learner, n_estimators=1).fit(table, y).predict(asked)
        kinds = {x[0, : len(table)].numpy().tobytes() for x, _ in learner.prompts}
        assert 4 < len(kinds) <= most
    learner = Smoother()
    InContextRegressor(learner=learner, n_estimators=1).fit(X[:, :2], y).predict(np.full((1, 2), np.nan))
    assert not torch.isnan(learner.prompts[-1][0][0, : len(X), :2]).any()  # nothing would be left


def test_rows_that_lack_the_same_are_compared() -> None:
    """With 120 complete rows, 60 that lack a, and 60 that lack b; a is worth more."""
    cells = np.zeros((240, 2))
    cells[120:180, 0] = cells[180:, 1] = np.nan
    rows = HeldOut(cells, np.arange(240.0), np.arange(240) % 3, np.array([0.8, 0.1]))
    kinds = {(): "whole", (0,): "no a", (1,): "no b", (0, 1): "nothing"}

    def near(*lacks: int) -> dict[str, int]:
        found = rows.lacking(np.isin([0, 1], lacks))
        assert np.isnan(found.cells[:, list(lacks)]).all()
        own = [kinds[tuple(np.flatnonzero(np.isnan(cells[int(row)])))] for row in found.y]
        return {kind: own.count(kind) for kind in dict.fromkeys(own)}

    assert near() == {"whole": 120}
    assert near(0) == {"whole": 120, "no a": 60}
    assert near(1) == {"whole": 120, "no b": 60}
    assert near(0, 1) == {"no a": 60, "no b": 60}
    groups = [(lacks.tolist(), found.tolist()) for lacks, found in by_lacking(cells[[0, 130, 200, 1]])]
    assert groups == [([False, False], [0, 3]), ([False, True], [2]), ([True, False], [1])]


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("dear", "'dear'.*InContextClassifier"),
        (datetime.date(2024, 5, 31), "such as days"),
        (np.datetime64("2024-05-31"), "such as days"),
        (b"dear", "make them numbers"),
        (None, "missing label"),
        (pd.NA, "missing label"),
    ],
)
def test_labels_of_amounts_are_numbers(label: object, told: str) -> None:
    X, y = table(12)
    labels = np.array([label, *y[1:]], dtype=object)
    for given in (labels, pd.Series(labels), [label] * 12):
        with pytest.raises(InputError, match=told):
            InContextRegressor("ridge").fit(X, given)
    as_text = np.array([f"{one:.3f}" for one in y], dtype=object)
    assert InContextRegressor("ridge").fit(X, as_text).predict(X).shape == (12,)


def test_no_order_changes_an_interval() -> None:
    X, y = frame()
    X = X.mask(np.random.default_rng(1).random(X.shape) < 0.2)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(60), rng.permutation(X.shape[1])
    model = InContextRegressor("ridge").fit(X[:60], y[:60])
    other = clone(model).fit(X.iloc[rows, columns], y[rows])
    whole = model.predict(X[60:], quantiles=[0.1, 0.9])
    assert np.allclose(other.predict(X.iloc[60:, columns], quantiles=[0.1, 0.9]), whole, rtol=1e-6)
    alone = [model.predict(X[i : i + 1], quantiles=[0.1, 0.9]) for i in range(60, len(X))]
    assert np.allclose(np.concatenate(alone), whole, rtol=1e-9)


def test_only_gradient_descent_has_a_loss_curve() -> None:
    model = InContextRegressor("ridge").fit(*table())
    assert not hasattr(model, "loss_curve_")
    with pytest.raises(AttributeError, match="engine='gd'"):
        _ = model.certificate_


# ---------------------------------------------------------------------------------------- several labels


def labels_of(X: np.ndarray, q: int) -> np.ndarray:
    """(n, q): in units that differ by 1e6, and from the third on one that is constant."""
    rng = np.random.default_rng(q)
    y = X @ rng.normal(size=(4, q)) + 0.3 * rng.normal(size=(len(X), q))
    y[:, 1:2] *= 1e6
    y[:, 2:3] = 7.0
    return np.asarray(y)


@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize("engine", ["pretrained", "ridge", "kernel", "gd"])
def test_several_labels_are_predicted_as_scikit_learn_would(engine: str, q: int) -> None:
    """As by an estimator for each label. Means, standard deviations and quantiles have the form of y."""
    X, _ = table()
    y = labels_of(X, q)
    settings: dict[str, Any] = {"steps": 10, "calibrate": engine == "pretrained"}
    model = made(InContextRegressor, engine, **settings).fit(X[:40], y[:40])
    theirs = MultiOutputRegressor(made(InContextRegressor, engine, **settings)).fit(X[:40], y[:40])
    mean, std = model.predict(X[40:], return_std=True)
    quantiles = model.predict(X[40:], quantiles=[0.1, 0.5, 0.9])
    assert (mean.shape, std.shape, quantiles.shape) == ((20, q), (20, q), (20, q, 3))
    assert np.array_equal(mean, theirs.predict(X[40:]))
    assert np.array_equal(mean, model.predict(X[40:]))
    for number, one in enumerate(theirs.estimators_):
        assert np.array_equal(std[:, number], one.predict(X[40:], return_std=True)[1])
        assert np.array_equal(quantiles[:, number], one.predict(X[40:], quantiles=[0.1, 0.5, 0.9]))
    assert np.isfinite(model.score(X[40:], y[40:]))
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X[40:]), mean)
    if engine == "gd":
        assert hasattr(model, "loss_curve_") == (q == 1)
    if q == 5:
        assert (mean[:, 2] == 7.0).all()


def test_labels_of_a_data_frame_have_names() -> None:
    X, y = table()
    frames = pd.DataFrame({"price": y, "tax": 2.0, "size": y.astype(int)})
    model = InContextRegressor("ridge").fit(X, frames)
    assert model.predict(X).shape == frames.shape
    assert [note.split(": ")[0] for note in model.notes_] == ["price", "tax", "size"]
    assert InContextRegressor("ridge").fit(X, labels_of(X, 2)).notes_[1].startswith("label 2: ridge: ")
    single = InContextRegressor("ridge").fit(X, frames[["price"]])
    assert single.notes_ == InContextRegressor("ridge").fit(X, frames["price"]).notes_
    assert single.predict(X).shape == (len(X), 1)
    assert np.array_equal(model.predict(X), InContextRegressor("ridge").fit(X, frames.to_numpy()).predict(X))
    assert clone(model).fit(X, y).predict(X).shape == y.shape  # fit again, with one label


@pytest.mark.parametrize("hole", [np.nan, np.inf, None, pd.NA])
def test_labels_that_are_missing_or_of_another_form_are_errors(hole: Any) -> None:
    X, _ = table()
    y = labels_of(X, 2).astype(object)
    y[3, 1] = hole
    for form in (y, pd.DataFrame(y), pd.DataFrame(y).convert_dtypes()):
        with pytest.raises(ValueError, match=r"Input y contains (a missing label; got row 3|NaN|infinity)"):
            InContextRegressor("ridge").fit(X, form)
    for form in (np.zeros((60, 2, 2)), np.zeros((60, 0)), np.zeros((59, 2)), np.zeros(())):
        with pytest.raises((ValueError, TypeError)):
            InContextRegressor("ridge").fit(X, form)


# ---------------------------------------------------------------------------------------- laws


def answer(model: Any, X: Any) -> np.ndarray:
    return np.asarray(model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X))


@pytest.mark.parametrize(
    "engine", ["pretrained", "ridge", *(pytest.param(name, marks=pytest.mark.soak) for name in ("kernel", "gd"))]
)
def test_no_order_changes_a_prediction(engine: str) -> None:
    """Of training rows, of columns, and of the rows that are asked for; nor do these change one another's."""
    X, y = frame()
    label = np.where(y > np.median(y), "dear", "cheap")
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
    for kind, labels in ((InContextRegressor, y), (InContextClassifier, label)):
        model = made(kind, engine, steps=30).fit(X[:60], labels[:60])
        other = clone(model).fit(X.iloc[rows[rows < 60], columns], labels[rows[rows < 60]])
        whole = answer(model, X[60:])
        assert np.abs(answer(other, X.iloc[60:, columns]) - whole).max() <= 1e-6 * np.abs(whole).max()
        assert np.allclose(np.concatenate([answer(model, X[i : i + 1]) for i in range(60, 80)]), whole, rtol=1e-9)


@pytest.mark.parametrize("engine", ["pretrained", "ridge", "kernel"])
@pytest.mark.parametrize("classes", [2, 3])
def test_names_of_classes_do_not_matter(engine: str, classes: int) -> None:
    X, y = table(80)
    label = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    names = np.array(["b", "c", "a"][:classes])
    model, other = (made(InContextClassifier, engine).fit(X[:60], labels) for labels in (label[:60], names[label[:60]]))
    found = other.predict_proba(X[60:])[:, [list(other.classes_).index(name) for name in names]]
    assert np.allclose(found, model.predict_proba(X[60:]), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("engine", ["pretrained", "ridge", "kernel"])
@pytest.mark.parametrize("categories", [2, 5, 12])
def test_names_of_categories_do_not_matter(engine: str, categories: int) -> None:
    rng = np.random.default_rng(categories)
    number, code = rng.normal(size=100), rng.integers(0, categories, 100)
    y = number + rng.normal(size=categories)[code] + 0.1 * rng.normal(size=100)
    found = []
    for names in (np.arange(categories), rng.permutation(categories) if categories > 2 else np.array([1, 0])):
        X = pd.DataFrame({"a": number, "b": [f"kind {name:02}" for name in names[code]]})
        found.append(made(InContextRegressor, engine).fit(X[:80], y[:80]).predict(X[80:]))
    assert np.abs(found[0] - found[1]).max() <= 1e-5 * np.abs(found[0]).max()


@pytest.mark.parametrize("engine", ["pretrained", "ridge", "kernel", pytest.param("gd", marks=pytest.mark.soak)])
def test_units_do_not_matter(engine: str) -> None:
    X, y = table()
    model, other = (made(InContextRegressor, engine, steps=30) for _ in range(2))
    moved = X * [1e-9, 1e12, 1.0, 3.0] + [0.0, 1e13, 1e3, 0.0]
    found = other.fit(moved, 1e6 * y - 5.0).predict(moved)
    assert np.allclose((found + 5.0) / 1e6, model.fit(X, y).predict(X), rtol=1e-4)


def test_held_out_parts_have_like_labels_and_quantiles_are_conservative() -> None:
    held = parts(103, 5, 0)
    assert set(np.bincount(held)) <= {20, 21}
    assert all(len(set(held[i : i + 5])) == 5 for i in range(0, 100, 5))
    rows = some(1000, 100, 0)
    assert len(rows) == 100
    assert (np.diff(rows) > 0).all()
    residuals = np.arange(1.0, 100.0)  # 99 of them: the 0.9 quantile of a new one is the 90th
    assert residual_quantiles(residuals, [0.1, 0.5, 0.9, 0.901]).tolist() == [10.0, 50.0, 90.0, 91.0]


def test_relevance_sees_what_correlation_does_not() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    assert relevance(x, ranks(x**2)) > 0.8
    assert abs(np.corrcoef(x, x**2)[0, 1]) < 0.3
    assert abs(relevance(rng.normal(size=400), ranks(x))) < 0.05
    assert relevance(np.where(x > 0, np.nan, 1.0), ranks(x)) > 0.5  # that a cell is missing may tell, too


# ---------------------------------------------------------------------------------------- columns


def test_every_kind_of_column_is_read_and_said() -> None:
    X, y = frame()
    model = InContextRegressor("ridge").fit(X, y)
    kinds = {column.name: column.kind for column in model.columns_}
    assert kinds == {
        "size": "number",
        "town": "category",
        "new": "yes/no",
        "built": "date",
        "constant": "constant",
        "size again": "copy",
        "id": "text",
        "nothing": "empty",
        "rooms": "number",
        "grade": "category",
        "text number": "number",
        "text date": "date",
        "code": "category",
    }
    words = {column.name: column.words for column in model.columns_}
    assert words["town"].startswith("3 categories, ")
    assert words["size again"] == "a copy of column 'size': left out"
    assert words["text number"].startswith("text that reads as numbers, ")
    assert model.score(X, y) > 0.8
    assert list(model.feature_names_in_) == list(X.columns)


def test_a_category_that_was_never_seen_is_missing() -> None:
    X, y = frame()
    for engine in ("ridge", "pretrained"):
        model = made(InContextRegressor, engine).fit(X, y)
        strange, missing = X.copy(), X.copy()
        strange["town"], missing["town"] = "Atlantis", None
        assert np.array_equal(model.predict(strange), model.predict(missing))
        assert not np.allclose(model.predict(strange), model.predict(X))


def test_the_same_cells_as_objects_text_or_data_frame() -> None:
    X, y = table()
    wanted = InContextRegressor("ridge").fit(X, y).predict(X)
    for form in (X.astype(object), X.astype(str), pd.DataFrame(X).convert_dtypes(), pd.DataFrame(X).astype(str)):
        model = InContextRegressor("ridge").fit(form.to_numpy() if hasattr(form, "iloc") else form, y)
        assert np.allclose(model.predict(form.to_numpy() if hasattr(form, "iloc") else form), wanted, atol=1e-9)


def test_dates_are_days_in_every_form() -> None:
    days = np.arange("2020-01-01", "2020-02-10", dtype="datetime64[D]")
    y = np.arange(len(days), dtype=float)
    forms: list[Any] = [
        days[:, None],
        np.array([[str(day)] for day in days]),
        np.array([[datetime.date.fromisoformat(str(day))] for day in days], dtype=object),
        pd.DataFrame({"when": pd.Series(days).dt.tz_localize("Europe/Rome")}),
        pd.DataFrame({"when": pd.Series(days).dt.to_period("D")}),
    ]
    for form in forms:
        model = InContextRegressor("ridge").fit(form, y)
        assert model.columns_[0].kind == "date"
        assert np.allclose(model.predict(form), y, atol=0.05)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        ({"a": [1.0, np.inf, 2.0]}, "column 'a' contains infinity; got row 1"),
        ({"a": [1.0, 2.0, 3.0]}, "column 'a' had numbers in the training rows; got 'many'"),
        ({"a": ["2020-01-01", "2020-01-02", "2020-01-03"]}, "column 'a' had dates in the training rows; got 'many'"),
    ],
)
def test_a_bad_cell_is_named(X: dict[str, list[Any]], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):  # noqa: PT012  in fit or in predict
        model = InContextRegressor("ridge").fit(pd.DataFrame(X), [1.0, 2.0, 4.0])
        model.predict(pd.DataFrame({"a": ["many"]}))


@pytest.mark.parametrize("label", [None, np.nan, pd.NA, ""])
def test_a_missing_label_is_named(label: Any) -> None:
    with pytest.raises(ValueError, match="Input y contains"):
        InContextClassifier("ridge").fit(np.arange(3.0)[:, None], np.array(["a", label, "b"], dtype=object))


def test_where_nothing_can_be_learned_all_answers_are_the_same() -> None:
    X, y = table()
    for engine in ("pretrained", "ridge"):
        constant = made(InContextRegressor, engine).fit(X, np.full(len(X), 7.0))
        assert (constant.predict(X, quantiles=[0.1, 0.9]) == 7.0).all()
        assert "all labels are equal" in constant.notes_[0]
        blind = made(InContextRegressor, engine).fit(np.ones_like(X), y)
        assert np.allclose(blind.predict(X), y.mean())
        assert "no column can be used" in blind.notes_[0]
        shares = made(InContextClassifier, engine).fit(np.ones_like(X), y > 5).predict_proba(X[:1])
        assert np.allclose(shares, [[np.mean(y <= 5), np.mean(y > 5)]])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "magic"}, "unknown engine; got 'magic'; allowed: pretrained, gd, ridge, kernel"),
        ({"engine": "gd", "hidden": (0,)}, "each of the hidden sizes must be a positive integer"),
        ({"engine": "gd", "hidden": 3}, "hidden has the size of every hidden layer; got 3"),
        ({"learner": 3}, "the learner cannot answer; got int"),
        ({"learner": "networks-3-softmax"}, "the learner cannot answer; got GPT"),
        ({"learner": tiny("classes")}, "the learner answers with other labels; got classes; allowed: numbers"),
        ({"learner": Smoother(), "contexts": "all"}, "unknown contexts; got 'all'; allowed: random, nearest"),
        ({"engine": "ridge", "random_state": "0"}, "random_state must be an integer"),
        ({"learner": "tables-regresion"}, "unknown learner of tables; got 'tables-regresion'.*mean tables-regression"),
    ],
)
def test_wrong_settings_are_errors_of_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        InContextRegressor(**settings).fit(*table())
    with pytest.raises(InputError, match="numbers between 0 and 1"):
        InContextRegressor("ridge").fit(*table()).predict(table()[0], quantiles=[0.0])


def test_a_random_state_may_be_a_generator_or_none() -> None:
    X, y = table()
    X = np.concatenate([X, X + 0.01])  # more rows than a context: which are drawn is at random
    y = np.concatenate([y, y])

    def found(state: Any) -> np.ndarray:
        model = InContextRegressor(learner=Smoother(), max_rows=20, n_estimators=1, random_state=state).fit(X, y)
        return np.asarray(model.predict(X))

    generators = [np.random.RandomState(5), np.random.RandomState(5)]
    assert np.array_equal(found(generators[0]), found(generators[1]))
    assert not np.array_equal(found(generators[0]), found(generators[0]))  # the next number
    assert not np.array_equal(found(None), found(None))


# ---------------------------------------------------------------------------------------- prompts of a learner


@pytest.mark.parametrize("kind", [InContextRegressor, InContextClassifier])
def test_categories_come_in_the_order_of_their_labels(kind: type) -> None:
    """So their names change nothing."""
    rng = np.random.default_rng(0)
    codes, other = rng.integers(0, 4, 80), rng.normal(size=80)
    codes[:3], other[:3] = 4, np.nan
    effect = np.array([3.0, -1.0, 2.0, 0.5, 0.0])[codes]
    y = effect + 0.1 * rng.normal(size=80) if kind is InContextRegressor else np.where(effect > 0.7, "b", "a")
    found = []
    for names in ("pqrst", "tpsqr"):
        learner = Smoother()
        frame = pd.DataFrame({"c": pd.Categorical([names[code] for code in codes]), "x": other})
        found.append(kind(learner=learner, n_estimators=1).fit(frame[:60], y[:60]).predict(frame[60:]))
        x, _ = learner.prompts[-1]
        place = int(np.isfinite(x[0, 0].numpy()).argmax())  # the column without a missing cell in the first row
        assert [int(x[0, list(codes[:60]).index(code), place]) for code in (1, 3, 2, 0)] == sorted(
            int(x[0, list(codes[:60]).index(code), place]) for code in range(4)
        )
    assert (found[0] == found[1]).all()


def test_text_that_is_not_read_is_noted() -> None:
    x = np.arange(40.0)
    frame = pd.DataFrame({"note": [f"seen by {one}" for one in x], "x": x})
    model = InContextRegressor(learner=Smoother()).fit(frame, x)
    said = "column 'note': text with 40 different values in 40 rows: left out; if it has something to learn from, "
    assert model.notes_ == [said + "make numbers or categories of it"]


WRITTEN = {
    "units": [f"{one:.1f} m2" for one in range(40)],
    "units, some bare": [f"{one:.1f}" if one % 3 else f"{one:.1f} m2" for one in range(40)],
    "areas": [f"{one} sq ft" for one in range(40)],
    "money": [f"$ {1000 * one:,}" for one in range(40)],
    "percent": [f"{one}%" for one in range(40)],
    "thousands": [f"{one}k" for one in range(40)],
    "decimal commas": [f"{one},5" for one in range(40)],
    "dates": [f"{1 + one % 28:02}/{1 + one // 28:02}/2024" for one in range(40)],
    "names of months": [f"{1 + one % 28} {'Jan' if one < 28 else 'Feb'} 2024" for one in range(40)],
    "times": [f"{one // 2}:{30 * (one % 2):02}" for one in range(40)],
    "days as numbers": [f"2024{1 + one // 28:02}{1 + one % 28:02}" for one in range(40)],
    "lakhs": [f"{1 + one},00,000" for one in range(40)],
    "some are words": [f"{one} kg" if one % 13 else "unknown" for one in range(40)],
}


@pytest.mark.parametrize("cells", WRITTEN.values(), ids=WRITTEN)
def test_estimators_read_text_as_fit_reads_a_file(cells: list[str]) -> None:
    """Numbers with units, and dates: by the reading of files, each cell by itself, and with any order of rows."""
    y = np.arange(40.0)
    plan = written.plan("a", cells)
    expected = [float(value) for value in plan.values(cells)[0]]  # type: ignore[arg-type]
    order = np.random.default_rng(0).permutation(40)
    found = Columns.learn([np.array(cells, dtype=object)], ["a"])
    again = Columns.learn([np.array(cells, dtype=object)[order]], ["a"])
    matrix = found.matrix([np.array(cells, dtype=object)])[:, 0]
    np.testing.assert_array_equal(matrix, expected)
    alone = [found.matrix([np.array([cell], dtype=object)])[0, 0] for cell in cells]
    np.testing.assert_array_equal(alone, expected)
    np.testing.assert_array_equal(again.matrix([np.array(cells, dtype=object)])[:, 0], expected)
    scores = cross_val_score(
        InContextRegressor("ridge"), pd.DataFrame({"a": cells}), y, cv=KFold(5, shuffle=True, random_state=0)
    )
    assert np.isfinite(scores).all()
    if "unknown" not in cells:
        assert scores.min() > 0.9


def test_cells_that_cannot_be_read_are_said_and_missing() -> None:
    cells = [f"{n} km" for n in range(1, 31)]
    model = InContextRegressor(learner=Smoother()).fit(pd.DataFrame({"way": cells}), np.arange(30.0))
    with pytest.warns(UserWarning, match="'way' has 2 cells that cannot be read .* such as '1000 m' .* missing"):
        found = model.predict(pd.DataFrame({"way": ["1000 m", "3 km", "far"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = model.predict(pd.DataFrame({"way": [None, "3 km", ""]}, dtype=object))
    np.testing.assert_array_equal(found, again)


@pytest.mark.parametrize(
    ("form", "told"), [("${} k", True), ("{} %", True), ("{} tsd. €", True), ("{} km", False), ("{}", False)]
)
@pytest.mark.parametrize("cells", [["30", "7"], [30.0, 7.0]], ids=["text", "numbers"])
def test_numbers_without_the_unit_of_the_training_rows_are_said(form: str, told: bool, cells: list[Any]) -> None:
    """Where the unit says how large they are. Nothing is said of cells that have it, and of missing ones."""
    model = InContextRegressor("ridge").fit(
        pd.DataFrame({"way": [form.format(n) for n in range(1, 31)]}), np.arange(30.0)
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.predict(pd.DataFrame({"way": [form.format(30), None]}, dtype=object))
        assert not found
        model.predict(pd.DataFrame({"way": cells}))
    assert len(found) == told
    assert all(
        "'way' has 2 cells without the unit of the training rows, such as '30" in str(one.message) for one in found
    )


def test_a_unit_that_no_training_row_has_is_read() -> None:
    frame = pd.DataFrame({"a": [str(one) for one in range(40)]})
    model = InContextRegressor("ridge").fit(frame, np.arange(40.0))
    new = pd.DataFrame({"a": ["7", "7 km", "700%", "7 "]})
    np.testing.assert_allclose(model.predict(new), model.predict(new)[0])


def test_text_of_several_units_says_so() -> None:
    frame = pd.DataFrame({"way": [f"{n} {'km' if n % 3 else 'mi'}" for n in range(40)], "x": np.arange(40.0)})
    model = InContextRegressor(learner=Smoother()).fit(frame, np.arange(40.0))
    assert "left out; numbers with several units (km, mi): write them in one unit" in model.columns_[0].words


def test_yes_and_no_are_two_categories_however_they_are_written() -> None:
    """Those of new rows as those that taught; each cell by itself."""
    one_way, ways = ["yes", "no", "no", "yes"] * 8, ["yes", "N", "FALSE", "1"] * 8
    new = np.array(["Y", "false", "0", "true", "no", "maybe", None, "1"], dtype=object)
    wanted = [1.0, 0.0, 0.0, 1.0, 0.0, np.nan, np.nan, 1.0]
    for cells in (one_way, ways):
        found = Columns.learn([np.array(cells, dtype=object)], ["a"])
        assert (found.columns[0].kind, found.levels) == ("category", (2,))
        np.testing.assert_array_equal(found.matrix([new])[:, 0], wanted)
        np.testing.assert_array_equal([found.matrix([new[[place]]])[0, 0] for place in range(len(new))], wanted)
        np.testing.assert_array_equal(found.matrix([np.array(cells, dtype=object)])[:, 0], [1.0, 0.0, 0.0, 1.0] * 8)
    assert found.columns[0].words == "yes and no, written in 4 ways"
    several = ["red", "no", "yes"] * 8  # no column of yes and no
    found = Columns.learn([np.array(several, dtype=object)], ["a"])
    np.testing.assert_array_equal(
        found.matrix([new])[:, 0], [np.nan, np.nan, np.nan, np.nan, 0.0, np.nan, np.nan, np.nan]
    )


def test_categories_of_a_file_stay_categories_in_every_part() -> None:
    """Texts of several units are categories. Some rows may have one unit only; they are no numbers there either."""
    cells = objects([["5 km", "3 m", "5 km", "4 km"]], [0, 2, 3])
    assert Columns.learn([cells[:, 0]], ["a"]).columns[0].kind == "category"


def test_the_prompt_of_a_small_table_is_the_table() -> None:
    X, y = frame()
    learner = Smoother()
    model = InContextRegressor(learner=learner, n_estimators=1).fit(X[:60], y[:60])
    low, middle, high = model.predict(X[60:], quantiles=[0.1, 0.5, 0.9]).T
    assert ((low <= middle) & (middle <= high)).all()
    x, labels = learner.prompts[0]  # of rows that lack no cell
    assert tuple(x.shape) == (1, 60 + 32, 20)
    assert labels.shape == (1, 60)
    assert abs(float(labels.mean())) < 1e-6
    used = [column for column in model.columns_ if column.used]
    there = x[0].isfinite().any(0)
    assert there.tolist() == [True] * len(used) + [False] * (20 - len(used))
    columns = [cells[cells.isfinite()] for cells in x[0, :, : len(used)].T]
    assert any(set(cells.tolist()) == {0.0, 1.0, 2.0} for cells in columns)  # categories are whole numbers
    whole = sum(bool((cells == cells.round()).all()) for cells in columns)
    assert whole == len(used) - 2  # all but the sizes, and text that reads as numbers


def test_means_and_intervals_of_the_same_rows_cost_one_pass() -> None:
    X, y = table()
    learner = Smoother()
    model = InContextRegressor(learner=learner, n_estimators=1).fit(X, y)
    mean, (again, std) = model.predict(X), model.predict(X, return_std=True)
    low, high = model.predict(X, quantiles=[0.1, 0.9]).T
    assert len(learner.prompts) == 1
    assert np.array_equal(mean, again)
    assert ((low <= high) & (std > 0)).all()
    assert not np.array_equal(model.predict(X[::-1]), mean)
    assert len(learner.prompts) == 2
    assert len(pickle.loads(pickle.dumps(model))._fits[0].engine._kept[1]) == 0
    assert model.fit(X, -y).predict(X).mean() < 0 < mean.mean()


def test_members_see_other_orders_and_other_numbers_of_categories_and_classes() -> None:
    X, y = frame()
    learner = Smoother()
    model = InContextClassifier(learner=learner, n_estimators=3).fit(X, np.digitize(y, np.quantile(y, [0.3, 0.6])))
    model.predict(X[:1])
    assert len(learner.prompts) == 3
    first, second, _ = learner.prompts
    assert not torch.equal(first[0].nan_to_num(9.0), second[0].nan_to_num(9.0))
    assert torch.equal((first[1] + 1) % 3, second[1])


def test_the_second_prompt_has_a_column_for_each_category() -> None:
    """As many as fit, of the most telling columns first; two categories need one column. Missing cells stay missing."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, [3, 4, 2, 9], (80, 4))
    X = np.array([*"abcdefghi"], dtype=object)[codes]
    X[7, 0] = None
    y = 5.0 * codes[:, 0] + 2.0 * codes[:, 1] + codes[:, 2] + 0.1 * codes[:, 3]
    for room, columns in ((9, 3 + 4 + 1 + 1), (8, 3 + 1 + 1 + 1)):
        learner = Smoother()
        learner.d, learner.exchangeable = room, True  # type: ignore[attr-defined]
        model = InContextRegressor(learner=learner).fit(X, y)
        model.predict(X)
        second = learner.prompts[1][0][0, :80]
        there = ~second.isnan().all(0)
        assert int(there.sum()) == columns
        first = second[:, :3]
        row = int(first[:, 0].isnan().nonzero())
        assert first[row].isnan().all()
        kept = np.delete(np.arange(80), row)
        assert (first[kept].sum(1) == 1.0).all()
        assert set(first[kept].unique().tolist()) == {0.0, 1.0}
        # the same rows have the same category
        places = model._fits[0].engine.table.values[kept, 0]
        assert all(len(set(first[kept].argmax(1)[places == one].tolist())) == 1 for one in range(3))


@pytest.mark.parametrize("labels", ["numbers", "classes"])
def test_a_learner_of_the_lab(labels: str) -> None:
    """Its answers do not depend on the rows that are asked for besides; and its columns have no order, so one prompt is
    enough, unless there are categories.
    """
    X, y = table()
    kind = InContextRegressor if labels == "numbers" else InContextClassifier
    model = kind(learner=tiny(labels)).fit(X[:40], y[:40] if labels == "numbers" else y[:40] > 5)
    assert len(model._fits[0].engine.chosen.groups[0]) == 1
    whole = answer(model, X[40:])
    assert len(np.unique(whole)) > 10
    alone = np.concatenate([answer(model, X[i : i + 1]) for i in range(40, 60)])
    assert np.allclose(alone, whole, rtol=2.0**-22, atol=0.0)  # two bits of float32
    mixed = np.column_stack([X.astype(object), np.array([*"abcde"])[np.arange(60) % 5]])
    assert len(clone(model).fit(mixed, (y > 5).astype(int))._fits[0].engine.chosen.groups[0]) == 2


@pytest.mark.soak
@pytest.mark.parametrize("labels", ["numbers", "classes"])
def test_checks_pass_with_a_learner_of_the_lab(labels: str) -> None:
    """But for those that want a learner to have learned, and for one that compares pickles of the parameters before
    and after: those of a torch module and of its copy differ.
    """
    assert joblib.hash(learner := tiny(labels)) != joblib.hash(copy.deepcopy(learner))
    kind = InContextRegressor if labels == "numbers" else InContextClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(kind(learner=tiny(labels)), on_fail=None, on_skip=None)
    failed = {one["check_name"] for one in results if one["status"] == "failed"}
    learned = {"check_regressors_train", "check_classifiers_train", "check_classifiers_classes"}
    assert failed - learned == {"check_estimators_overwrite_params"}


@pytest.mark.parametrize("contexts", ["nearest", "random"])
def test_more_rows_than_a_context_has(contexts: str) -> None:
    X, y = table(1000)
    learner = Smoother()
    model = InContextRegressor(learner=learner, contexts=contexts, max_rows=200).fit(X[:900], y[:900])
    assert model.score(X[900:], y[900:]) > (0.7 if contexts == "nearest" else 0.6)
    assert all(labels.shape[1] == 200 for _, labels in learner.prompts)
    assert len(model._fits[0].engine.chosen.groups) == (1 if contexts == "random" else 9)
    assert {len(group) for group in model._fits[0].engine.chosen.groups} == {4 if contexts == "random" else 2}
    assert "900 rows are more than a context of 200" in model.notes_[0]
    alone = np.concatenate([model.predict(X[i : i + 1]) for i in range(900, 910)])
    assert np.allclose(alone, model.predict(X[900:910]))
    label = np.where(np.arange(1000) < 2, "rare", np.where(y > 5, "high", "low"))
    chances = (
        InContextClassifier(learner=Smoother(), contexts=contexts, max_rows=200).fit(X, label).predict_proba(X[:1])
    )
    assert contexts == "nearest" or chances[0, 2] > 0  # every class is in every context that is drawn


def test_more_columns_than_a_learner_has() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 30))
    y = X[:, 29] + X[:, 17]
    learner = Smoother(d=4)
    model = InContextRegressor(learner=learner, n_estimators=3).fit(X, y)
    assert model.score(X, y) > 0.5
    assert "30 columns are more than the learner takes: it sees the 4" in model.notes_[0]
    assert set(model._fits[0].order[:2]) == {29, 17}
    assert all({0, 1} <= set(member.columns) for member in model._fits[0].engine.chosen.groups[0])


def test_more_classes_than_a_learner_has() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(13, 4)) * 4
    label = np.arange(130) % 13
    X = centres[label] + 0.3 * rng.normal(size=(130, 4))
    model = InContextClassifier(learner=Smoother(), n_estimators=1).fit(X, label)
    assert model.score(X, label) > 0.95
    assert np.allclose(model.predict_proba(X).sum(1), 1.0)
    assert "13 classes are more than the learner's 10: it is asked for 10 groups of them" in model.notes_[0]


def test_chances_of_groups_give_back_the_chances_of_classes() -> None:
    """If the answers agree with one another; in any order of the groupings; and not if they are of other rows."""
    rng = np.random.default_rng(0)
    chances, even = rng.dirichlet(np.full(13, 0.3), size=50), np.full(13, 1 / 13)
    of = groupings.groupings(13, 10, seed=0)
    answers = np.stack([chances @ np.eye(10)[group] for group in of])
    found = groupings.combined(answers, of, even)
    assert np.abs(found - chances).max() < 1e-9  # after 50 rounds 2e-8, after 100 1e-14
    assert np.allclose(found, groupings.combined(answers[::-1], of[::-1], even))
    assert np.abs(groupings.combined(answers[:, ::-1], of, even) - chances).max() > 0.2


@pytest.mark.parametrize("classes", [11, 12, 19, 20, 47, 300])
def test_groups_of_classes_are_equally_large_and_tell_classes_apart(classes: int) -> None:
    of = groupings.groupings(classes, 10, seed=classes)
    sizes = np.stack([np.bincount(group, minlength=10) for group in of])
    assert (sizes.max(1) - sizes.min(1) <= 1).all()
    assert (of[:, :, None] == of[:, None]).all(0).sum() == classes


def test_groups_that_contradict_one_another_still_give_chances() -> None:
    of = groupings.groupings(20, 10, seed=0)
    drawn = np.random.default_rng(0).dirichlet(np.full(10, 0.02), size=(len(of), 30))
    sure = np.eye(10)[drawn.argmax(2)]  # every grouping is sure, of another group
    for answers in (drawn, sure):
        found = groupings.combined(answers, of, np.full(20, 0.05))
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert np.allclose(found.sum(1), 1.0)


def test_names_of_many_classes_change_nothing() -> None:
    """With the package's learner: its answers about different groups do not quite agree."""
    rng = np.random.default_rng(0)
    label = np.arange(72) % 12
    X = rng.normal(size=(12, 3))[label] * 2 + rng.normal(size=(72, 3))
    names = np.array([f"kind {number:02}" for number in rng.permutation(12)])
    one = InContextClassifier(n_estimators=1).fit(X[:60], label[:60])
    two = InContextClassifier(n_estimators=1).fit(X[:60], names[label[:60]])
    assert np.abs(one.predict_proba(X[60:]) - two.predict_proba(X[60:])[:, names.argsort().argsort()]).max() < 1e-4


def test_calibration_widens_intervals_that_are_too_narrow() -> None:
    """The smoother's are, where it follows single rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + rng.normal(size=200)
    covered = {}
    for calibrate in (False, True):
        model = InContextRegressor(learner=Smoother(), calibrate=calibrate, n_estimators=1).fit(X[:150], y[:150])
        low, high = model.predict(X[150:], quantiles=[0.1, 0.9]).T
        covered[calibrate] = np.mean((low <= y[150:]) & (y[150:] <= high))
    assert abs(covered[True] - 0.8) < abs(covered[False] - 0.8)
    assert "calibrated" in model.notes_[0]
