"""Estimators of scikit-learn that train bit by bit as fanin's nodes do (docs/reference/sklearn.md)."""

from fanin.sklearn.classifier import GlmClassifier
from fanin.sklearn.regressor import GlmRegressor

__all__ = ["GlmClassifier", "GlmRegressor"]
