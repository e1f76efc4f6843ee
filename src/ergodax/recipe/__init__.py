"""The recipe of Ma, Chen and Fox: H, D and Q determine a sampler."""

from ergodax.recipe import dynamics
from ergodax.recipe.operators import Column, Dense, Diagonal, LowRank, Operator, Scalar
from ergodax.recipe.recipe import Recipe

__all__ = ["Column", "Dense", "Diagonal", "LowRank", "Operator", "Recipe", "Scalar", "dynamics"]
