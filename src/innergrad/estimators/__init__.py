"""Estimators for tables, by scikit-learn's conventions: a table is the prompt of a transformer."""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "innergrad's estimators need scikit-learn: pip install 'innergrad[tables]'", name="sklearn"
    ) from error

from innergrad.estimators.classifier import InContextClassifier
from innergrad.estimators.columns import Column
from innergrad.estimators.regressor import InContextRegressor

__all__ = ["Column", "InContextClassifier", "InContextRegressor"]
