"""Linear maps on PyTrees: the blocks of D and Q, masses and covariances."""

from ergodax.recipe.operators.algebra import as_definite, as_operator
from ergodax.recipe.operators.elementwise import Column, Diagonal, Operator, Scalar
from ergodax.recipe.operators.matrices import Dense, LowRank

__all__ = [
    "Column",
    "Dense",
    "Diagonal",
    "LowRank",
    "Operator",
    "Scalar",
    "as_definite",
    "as_operator",
]
