"""The classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from innergrad.estimators.base import InContext
from innergrad.estimators.engines.contexts import Way
from innergrad.estimators.engines.pretrained import TableLearner
from innergrad.estimators.inputs import require_labels, table_of


class InContextClassifier(ClassifierMixin, InContext):  # type: ignore[misc]
    """Predicts classes from a table: the training rows are the prompt of a transformer.

    It is a scikit-learn estimator. ``X`` may have numbers, text, dates, categories and missing cells; scaling and
    coding happen inside. Classes may be numbers or text.

    Args:
        engine: who learns from the prompt. ``pretrained`` is a transformer that was trained on made-up tables. The
            others are algorithms, compiled into a transformer: ``gd`` is gradient descent on a small network, with the
            cross-entropy; ``ridge`` and ``kernel`` are regressions on 0 and 1, one for each class.
        learner: of engine ``pretrained``: None for that of the package, the name of another in the zoo, or a
            learner of your own.
        n_estimators: of engine ``pretrained``: the most prompts that are averaged. By default 2, and 4 where each
            has rows of its own. They differ in the numbers of the categories, in the columns or rows of a table that is
            too large, and in the order of columns and classes, unless the learner sees none.
        max_rows: of engine ``pretrained``: the most rows in a prompt.
        contexts: of engine ``pretrained``: the rows in the prompt, if the table has more: ``random``, or ``nearest`` to
            the row that is asked for, which is slower.
        hidden: of engine ``gd``: units in each hidden layer.
        steps: of engine ``gd``: the most steps. As many are taken as predict held-out rows best.
        random_state: the seed of everything that is drawn; or, as in scikit-learn, a generator, or None for another
            seed in every fit.

    Attributes:
        classes_: the classes, sorted.
        columns_: what was done with every column, in words.
        notes_: sentences about choices that were made.
        n_features_in_: how many columns X has.
        feature_names_in_: their names, if X has names.
        loss_curve_: of engine ``gd``: the loss after every step.
        certificate_: of engine ``gd``: a proven bound on the error of the run.

    Examples:
        >>> import innergrad as ig, numpy as np
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> model = ig.InContextClassifier(engine="ridge").fit(X, np.where(X[:, 0] > 0.5, "large", "small"))
        >>> print(model.predict([[0.1], [0.9]]))
        ['small' 'large']
        >>> model.predict_proba([[0.1], [0.9]]).shape
        (2, 2)
    """

    _LEARNER = "tables-classification"

    def __init__(
        self,
        engine: str = "pretrained",
        *,
        learner: TableLearner | str | None = None,
        n_estimators: int | None = None,
        max_rows: int = 1000,
        contexts: Way = "random",
        hidden: Sequence[int] = (16,),
        steps: int = 200,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.engine = engine
        self.learner = learner
        self.n_estimators = n_estimators
        self.max_rows = max_rows
        self.contexts = contexts
        self.hidden = hidden
        self.steps = steps
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> InContextClassifier:
        """Learn from the rows of a table.

        Args:
            X: a data frame or an array, a row for each example.
            y: their classes, numbers or text.
        """
        table = table_of(self, X, reset=True, y=y)
        require_labels(y)
        labels = check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator=self)
        labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        check_consistent_length(table[0], labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._fit(table, [codes], len(self.classes_))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row.

        Args:
            X: a row for each prediction.
        """
        check_is_fitted(self)
        found: np.ndarray = self.classes_[self.predict_proba(X).argmax(1)]
        return found

    def predict_proba(self, X: Any) -> np.ndarray:
        """(rows, classes): the probability of every class, in the order of ``classes_``.

        Args:
            X: a row for each prediction.
        """
        values, (fit,) = self._values(X), self._fits
        return fit.engine.probabilities(fit.values(values))
