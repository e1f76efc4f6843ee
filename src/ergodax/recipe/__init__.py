"""The recipe of Ma, Chen and Fox: H, D and Q determine a sampler."""

from ergodax.recipe import dynamics
from ergodax.recipe.metric import Metric, PotentialMetric
from ergodax.recipe.operators import Column, Dense, Diagonal, LowRank, Operator, Scalar
from ergodax.recipe.recipe import Recipe

__all__ = [
    "Column",
    "Dense",
    "Diagonal",
    "LowRank",
    "Metric",
    "Operator",
    "PotentialMetric",
    "Recipe",
    "Scalar",
    "dynamics",
]
