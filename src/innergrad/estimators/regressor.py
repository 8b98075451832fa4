"""The regressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length

from innergrad.errors import InputError
from innergrad.estimators.base import InContext
from innergrad.estimators.engines.contexts import Way
from innergrad.estimators.engines.pretrained import Pretrained, TableLearner
from innergrad.estimators.inputs import names_of_labels, require_numbers, table_of


class InContextRegressor(RegressorMixin, InContext):  # type: ignore[misc]
    """Predicts numbers from a table: the training rows are the prompt of a transformer.

    It is a scikit-learn estimator. ``X`` may have numbers, text, dates, categories and missing cells; scaling and
    coding happen inside. ``y`` may have several labels a row, each in a column of its own: each is predicted by itself.

    Args:
        engine: who learns from the prompt. ``pretrained`` is a transformer that was trained on made-up tables. The
            others are algorithms, compiled into a transformer: ``gd`` is gradient descent on a small network, ``ridge``
            is ridge regression, and ``kernel`` is gradient descent in the space of a kernel.
        learner: of engine ``pretrained``: None for that of the package, the name of another in the zoo, or a
            learner of your own.
        n_estimators: of engine ``pretrained``: the most prompts that are averaged. By default 2, and 4 where each
            has rows of its own. They differ in the numbers of the categories, in the columns or rows of a table that is
            too large, and in the order of columns, unless the learner sees none.
        max_rows: of engine ``pretrained``: the most rows in a prompt.
        contexts: of engine ``pretrained``: the rows in the prompt, if the table has more: ``random``, or ``nearest`` to
            the row that is asked for, which is slower.
        calibrate: of engine ``pretrained``: correct the quantiles by held-out rows. Fitting then takes five
            predictions.
        hidden: of engine ``gd``: units in each hidden layer.
        steps: of engine ``gd``: the most steps. As many are taken as predict held-out rows best.
        random_state: the seed of everything that is drawn; or, as in scikit-learn, a generator, or None for another
            seed in every fit.

    Attributes:
        columns_: what was done with every column, in words.
        notes_: sentences about choices that were made.
        n_features_in_: how many columns X has.
        feature_names_in_: their names, if X has names.
        loss_curve_: of engine ``gd`` with one label: the loss after every step.
        certificate_: of engine ``gd`` with one label: a proven bound on the error of the run.

    Examples:
        >>> import innergrad as ig, numpy as np
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> model = ig.InContextRegressor(engine="ridge").fit(X, 3 * X[:, 0] + 1)
        >>> print(model.predict([[0.5]]).round(2))
        [2.5]
        >>> model.columns_[0].words
        'numbers'
        >>> both = np.column_stack([3 * X[:, 0], -X[:, 0]])  # two labels a row
        >>> print(ig.InContextRegressor(engine="ridge").fit(X, both).predict([[0.5]]).round(2))
        [[ 1.5 -0.5]]
    """

    _LEARNER = "tables-regression"

    def __init__(
        self,
        engine: str = "pretrained",
        *,
        learner: TableLearner | str | None = None,
        n_estimators: int | None = None,
        max_rows: int = 1000,
        contexts: Way = "random",
        calibrate: bool = False,
        hidden: Sequence[int] = (16,),
        steps: int = 200,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.engine = engine
        self.learner = learner
        self.n_estimators = n_estimators
        self.max_rows = max_rows
        self.contexts = contexts
        self.calibrate = calibrate
        self.hidden = hidden
        self.steps = steps
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> InContextRegressor:
        """Learn from the rows of a table.

        Args:
            X: a data frame or an array, a row for each example.
            y: their labels, finite numbers: (rows,), or (rows, labels) if there are several for a row.
        """
        table = table_of(self, X, reset=True, y=y)
        require_numbers(y)
        labels = check_array(y, ensure_2d=False, dtype="numeric", input_name="y", estimator=self)
        labels = np.asarray(labels, dtype=np.float64)
        check_consistent_length(table[0], labels)
        self._vector = labels.ndim == 2
        columns = list(np.atleast_2d(labels.T))
        self._fit(table, columns, 0, names_of_labels(y, len(columns)))
        return self

    def predict(self, X: Any, *, quantiles: Sequence[float] | None = None, return_std: bool = False) -> Any:
        """Labels of other rows, (rows,), or (rows, labels) if ``y`` had columns.

        Args:
            X: a row for each prediction.
            quantiles: levels between 0 and 1. Then the result has one more axis, of levels: below each number the label
                is with this probability.
            return_std: the result is two arrays: predictions, and the standard deviations of the labels around them.
        """
        if quantiles is not None and return_std:
            raise InputError("predict gives quantiles or standard deviations", got="both", allowed="one of them")
        levels, values = _levels(quantiles), self._values(X)
        if quantiles is None and not return_std:
            return self._joined([fit.engine.means(fit.values(values)) for fit in self._fits])
        found = [fit.engine.numbers(fit.values(values), levels) for fit in self._fits]
        if quantiles is not None:
            return self._joined([one.quantiles for one in found])
        return tuple(self._joined([getattr(one, name) for one in found]) for name in ("mean", "std"))

    def _joined(self, labels: list[np.ndarray]) -> np.ndarray:
        """What is said of every label, (rows, ...), in the form of y."""
        return np.stack(labels, 1) if self._vector else labels[0]

    def _pretrained(self, seed: int) -> Pretrained:
        made = super()._pretrained(seed)
        made.calibrate = bool(self.calibrate)
        return made


def _levels(quantiles: Sequence[float] | None) -> list[float]:
    found = np.asarray([] if quantiles is None else quantiles, dtype=np.float64)
    if found.ndim != 1 or not ((found > 0) & (found < 1)).all():
        raise InputError("quantiles are a list of levels", got=quantiles, allowed="numbers between 0 and 1")
    return [float(level) for level in found]
