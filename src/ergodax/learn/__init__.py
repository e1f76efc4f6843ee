"""Models that are learnt from data in one call, in scikit-learn's convention.

None is imported before it is used. Tables are read here, too.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ergodax.learn import regression, tables, topics
    from ergodax.learn.base import NotConvergedWarning
    from ergodax.learn.estimators import (
        LinearRegressor,
        LogisticClassifier,
        NegativeBinomialRegressor,
        PoissonRegressor,
        RobustRegressor,
    )
    from ergodax.learn.networks import MLPClassifier, MLPRegressor
    from ergodax.learn.topics.estimator import LatentDirichletAllocation

__all__ = [
    "LatentDirichletAllocation",
    "LinearRegressor",
    "LogisticClassifier",
    "MLPClassifier",
    "MLPRegressor",
    "NegativeBinomialRegressor",
    "NotConvergedWarning",
    "PoissonRegressor",
    "RobustRegressor",
    "regression",
    "tables",
    "topics",
]

PLACES = {
    "LatentDirichletAllocation": "topics.estimator",
    "NotConvergedWarning": "base",
    "MLPClassifier": "networks",
    "MLPRegressor": "networks",
}


def __getattr__(name: str) -> Any:
    """An estimator or a module, imported when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.islower():
        return importlib.import_module(f"ergodax.learn.{name}")
    try:
        place = PLACES.get(name, "estimators")
        module = importlib.import_module(f"ergodax.learn.{place}")
    except ModuleNotFoundError as error:
        if error.name != "sklearn":
            raise
        raise ModuleNotFoundError(
            f"ergodax.learn.{name} needs scikit-learn: pip install 'ergodax[learn]'.",
            name="sklearn",
        ) from error
    return getattr(module, name)
