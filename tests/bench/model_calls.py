"""A model of scikit-learn, called for one value or for columns: eight scaled features, logistic regression on their products."""

from __future__ import annotations

from typing import Any

import numpy
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

FEATURES = tuple("abcdefgh")
_RANDOM = numpy.random.default_rng(7)
_ROWS = _RANDOM.random((500, len(FEATURES)))
MODEL = make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression())
MODEL.fit(_ROWS, (_ROWS.sum(axis=1) + _RANDOM.normal(size=500) > len(FEATURES) / 2).astype(int))


def predicted(features: Any) -> Any:
    """Return the probability of each row of features."""
    return numpy.round(MODEL.predict_proba(features)[:, 1], 9)


def one(key: str, value: dict[str, float]) -> float:
    """Score one record."""
    return float(predicted(numpy.array([[value[name] for name in FEATURES]]))[0])


def many(keys: list[str], columns: dict[str, Any]) -> Any:
    """Score the records of a batch."""
    return predicted(numpy.stack([columns[name] for name in FEATURES], axis=1))
