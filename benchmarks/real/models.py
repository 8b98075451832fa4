"""What people use on tables: scikit-learn's models, each with sensible preprocessing, tuned inside the training rows.

    linear      ridge regression (penalty by leave-one-out), logistic regression (penalty by 5 folds, on log-loss)
    forest      random forest, 300 trees
    boosting    histogram gradient boosting, scikit-learn's defaults; it takes categories and missing cells as they are
    neighbours  k nearest neighbours, k and weights by 5 folds
    network     an MLP of two layers of 64 units, batches of 32 rows, early stopping on a tenth of the rows
    process     a Gaussian process, one length scale and noise by the marginal likelihood (of classes, Laplace's,
                on at most 500 rows)

All but boosting see one-hot categories, medians for missing cells with a column that says so, and columns scaled to
mean 0 and deviation 1. Numbers to predict are scaled for the network and the process.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tables import Table

Array = NDArray[Any]
MODELS = ("linear", "forest", "boosting", "neighbours", "network", "process")
TREES, STEPS = 300, 50  # of a forest; of the search for a process's length scale
PENALTIES = np.logspace(-3, 5, 25)
NEIGHBOURS = (1, 3, 5, 10, 15, 25, 40)
CLASS_ROWS = 500  # of a process of classes: the first of the training rows, since it takes the cube of them a class


def prepared(table: Table) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True))
    texts = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = [
        ("numbers", numbers, np.flatnonzero(~table.categories)),
        ("texts", texts, np.flatnonzero(table.categories)),
    ]
    return make_pipeline(ColumnTransformer(parts), StandardScaler())


def _search(objective: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
    """L-BFGS with a bound on its steps, so that the time of a process is bounded."""
    from scipy.optimize import minimize

    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": STEPS})
    return found.x, found.fun


def _kernel(width: int, *, noise: bool) -> Any:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * RBF(float(np.sqrt(max(width, 1))), (1e-2, 1e4))
    return kernel + WhiteKernel(0.3, (1e-5, 1e2)) if noise else kernel


def regressor(name: str, table: Table, rows: int, seed: int) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "boosting":
        return HistGradientBoostingRegressor(categorical_features=table.categories, random_state=seed)
    if name == "linear":
        model: Any = RidgeCV(PENALTIES)
    elif name == "forest":
        model = RandomForestRegressor(TREES, random_state=seed)
    elif name == "neighbours":
        model = GridSearchCV(KNeighborsRegressor(), _grid(rows), scoring="neg_mean_squared_error", cv=5)
    elif name == "network":
        model = TransformedTargetRegressor(MLPRegressor(**_network(seed)), transformer=StandardScaler())
    else:
        kernel = _kernel(table.x.shape[1], noise=True)
        model = GaussianProcessRegressor(kernel, normalize_y=True, optimizer=_search, random_state=seed)
    return make_pipeline(prepared(table), model)


def classifier(name: str, table: Table, rows: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    if name == "boosting":
        return HistGradientBoostingClassifier(categorical_features=table.categories, random_state=seed)
    if name == "linear":
        model: Any = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=500)
    elif name == "forest":
        model = RandomForestClassifier(TREES, random_state=seed)
    elif name == "neighbours":
        model = GridSearchCV(KNeighborsClassifier(), _grid(rows), scoring="neg_log_loss", cv=5)
    elif name == "network":
        model = MLPClassifier(**_network(seed))
    else:
        kernel = _kernel(table.x.shape[1], noise=False)
        model = GaussianProcessClassifier(kernel, optimizer=_search, random_state=seed)
    return make_pipeline(prepared(table), model)


def _grid(rows: int) -> dict[str, list[Any]]:
    return {"n_neighbors": [k for k in NEIGHBOURS if k <= rows // 2], "weights": ["uniform", "distance"]}


def _network(seed: int) -> dict[str, Any]:
    stop: dict[str, Any] = {"early_stopping": True, "n_iter_no_change": 100, "max_iter": 1000, "batch_size": 32}
    return {"hidden_layer_sizes": (64, 64), "random_state": seed, **stop}


def said(name: str, table: Table, learn: Array, test: Array, seed: int = 0) -> tuple[Array, float]:
    """Predictions or probabilities for the rows ``test`` after learning from ``learn``; and the seconds of one core."""
    if name == "process" and table.task == "classification":
        learn = learn[:CLASS_ROWS]
    make = regressor if table.task == "regression" else classifier
    model = make(name, table, len(learn), seed)
    started = time.process_time()  # imports are done
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence: a bound on steps is what was asked for
        model.fit(table.x[learn], table.y[learn])
        if table.task == "regression":
            found = np.asarray(model.predict(table.x[test]), dtype=float)
        else:
            found = np.zeros((len(test), len(table.classes)))
            found[:, model.classes_.astype(int)] = model.predict_proba(table.x[test])
    return found, time.process_time() - started
